"""Tiles between registers and global memory: vectors of each thread, inside a view only."""

from __future__ import annotations

from collections.abc import Callable

from reftile.ir import ops
from reftile.ir.core import Op, Value
from reftile.ir.types import PartitionViewType, TensorViewType, TileType
from reftile.layout.linear import Layout
from reftile.lower.context import I1, I32, I64, Context, Number
from reftile.lower.fragments import elements_at_origin, is_first_copy, layout_of
from reftile.lower.view_access import (
    TileAccess,
    element_address,
    require_alignment,
    rows_further,
    thread_index,
    tile_access,
    vector_width,
    view_extents,
)

Elements = tuple[tuple[int, int], ...]


def _elements(layout: Layout) -> Elements:
    """Row and column of each register of lane 0 of warp 0; a tile of one axis is a row."""
    found: list[tuple[int, int]] = []
    for index in elements_at_origin(layout):
        row, column = (0, *index)[-2:]
        found.append((row, column))
    return tuple(found)


def _first_element(context: Context, layout: Layout) -> tuple[Number, Number]:
    """Row and column of a thread's first element in the tile."""
    rank = len(layout.shape)
    row: Number = thread_index(context, layout, rank - 2) if rank > 1 else 0
    return row, thread_index(context, layout, rank - 1)


def lower_store_view(context: Context, op: Op) -> None:
    """Vectors of each thread, those that lie outside the view left out."""
    assert isinstance(op, ops.StoreViewTko)
    kind = op.tile.type
    assert isinstance(kind, TileType)
    if op.ordering != "weak" or kind.dtype.bits < 8:
        raise context.unsupported(f"this store of {kind} is not lowered yet")
    if kind.size == 1:
        address, inside = _single(context, op)
        if not context.role.is_elected:
            inside = context.value(ops.Andi, (inside, context.lead()), I1, "inside")
        arguments = (context.scalar(op.tile), address, inside)
        context.emit(ops.StoreVector, arguments, first=0, count=1, offset=0, space="global")
        return
    layout = layout_of(kind.layout)
    access = tile_access(context, op.view, op.index)
    elements = _elements(layout)
    count = vector_width(context, access, _vector(elements, access.size))
    require_alignment(context, access, op.view, count * access.size)
    guards = _Guards(context, access, layout)
    tile = context.scalar(op.tile)
    for first in sorted(range(0, len(elements), count), key=lambda r: elements[r][0]):
        row, column = elements[first]
        context.emit(
            ops.StoreVector,
            (tile, guards.address(row), guards.inside(row, column)),
            first=first,
            count=count,
            offset=column * access.size,
            space="global",
        )


def lower_reduce_view(context: Context, op: Op) -> None:
    """Each element by the thread that holds its first copy, those outside the view left out."""
    assert isinstance(op, ops.AtomicRedViewTko)
    kind = op.value.type
    assert isinstance(kind, TileType)
    if kind.size == 1:
        raise context.unsupported(f"this reduction of {kind} is not lowered yet")
    layout = layout_of(kind.layout)
    access = tile_access(context, op.view, op.index)
    guards = _Guards(context, access, layout)
    tile = context.scalar(op.value)
    for register, (row, column) in enumerate(_elements(layout)):
        context.emit(
            ops.ReduceVector,
            (tile, guards.address(row), guards.inside(row, column)),
            first=register,
            offset=column * access.size,
            mode=op.mode,
            scope=op.scope,
        )


def lower_load_view(context: Context, op: Op) -> None:
    """Vectors of each thread; what lies outside the view becomes its padding."""
    assert isinstance(op, ops.LoadViewTko)
    kind, view = op.results[0].type, op.view.type
    assert isinstance(kind, TileType)
    assert isinstance(view, PartitionViewType)
    if op.ordering != "weak" or kind.dtype.bits < 8:
        raise context.unsupported(f"this load of {kind} is not lowered yet")
    if kind.size == 1:
        address, inside = _single(context, op)
        context.values[op.results[0]] = context.value(
            ops.LoadVector,
            ((address,), (inside,)),
            kind,
            op.results[0].name,
            count=1,
            which=(0,),
            offsets=(0,),
            guards=(0,),
            fill=view.padding,
            space="global",
        )
        return
    layout = layout_of(kind.layout)
    access = tile_access(context, op.view, op.index)
    elements = _elements(layout)
    count = vector_width(context, access, _vector(elements, access.size))
    require_alignment(context, access, op.view, count * access.size)
    guards = _Guards(context, access, layout, copies=True)
    starts = [elements[r] for r in range(0, len(elements), count)]
    rows = list(dict.fromkeys(row for row, _ in starts))
    insides = list(dict.fromkeys(starts))
    context.values[op.results[0]] = context.value(
        ops.LoadVector,
        (
            tuple(guards.address(row) for row in rows),
            tuple(guards.inside(row, column) for row, column in insides),
        ),
        kind,
        op.results[0].name,
        count=count,
        which=tuple(rows.index(row) for row, _ in starts),
        offsets=tuple(column * access.size for _, column in starts),
        guards=tuple(insides.index(start) for start in starts),
        fill=view.padding,
        space="global",
    )


def _single(context: Context, op: ops.LoadViewTko | ops.StoreViewTko) -> tuple[Value, Value]:
    """The address of a tile of one element, and whether it lies inside."""
    access = tile_access(context, op.view, op.index)
    require_alignment(context, access, op.view, access.size)
    row = context.compare("less_than", access.first_row, access.row_count, "row_inside")
    column = context.compare("less_than", access.first_column, access.column_count, "column_inside")
    inside = context.value(ops.Andi, (row, column), I1, "inside")
    return element_address(context, access, 0, 0), inside


class _Guards:
    """Addresses and conditions of a thread's accesses, each built once.

    copies: threads that hold copies access, too.
    """

    def __init__(
        self, context: Context, access: TileAccess, layout: Layout, copies: bool = False
    ) -> None:
        self.context, self.access = context, access
        self.row, self.column = _first_element(context, layout)
        self.start = element_address(context, access, self.row, self.column)
        self.first = None if copies else is_first_copy(context, layout)
        self.addresses: dict[int, Value] = {}
        self.rows: dict[int, Value] = {}
        self.columns: dict[int, Value] = {}

    def address(self, rows: int) -> Value:
        """The address of the thread's first element, some rows further."""
        if rows not in self.addresses:
            self.addresses[rows] = rows_further(self.context, self.access, self.start, rows)
        return self.addresses[rows]

    def inside(self, rows: int, columns: int) -> Value:
        """True if a vector lies inside: rows are whole vectors long, so its first element says."""
        context, access = self.context, self.access
        if rows not in self.rows:
            at = context.add(context.add(access.first_row, self.row), rows, "row")
            inside = context.compare("less_than", at, access.row_count, "row_inside")
            if self.first is not None:
                inside = context.value(ops.Andi, (inside, self.first), I1, "row_inside")
            self.rows[rows] = inside
        if columns not in self.columns:
            at = context.add(context.add(access.first_column, self.column), columns, "column")
            self.columns[columns] = context.compare(
                "less_than", at, access.column_count, "column_inside"
            )
        both = (self.rows[rows], self.columns[columns])
        return context.value(ops.Andi, both, I1, "inside")


def _vector(elements: Elements, size: int) -> int:
    """How many elements of a thread lie one behind another in a row, at most 16 bytes."""
    count = 1
    while (
        2 * count * size <= 16
        and len(elements) % (2 * count) == 0
        and all(
            elements[first + i] == (elements[first][0], elements[first][1] + i)
            for first in range(0, len(elements), 2 * count)
            for i in range(2 * count)
        )
    ):
        count *= 2
    return count


def lower_shape(context: Context, op: Op) -> None:
    """Extents of a tensor are known where its view is made."""
    assert isinstance(op, ops.GetTensorShape)
    kind = op.operands[0].type
    assert isinstance(kind, TensorViewType)
    for result, number in zip(op.results, view_extents(context, op.operands[0]), strict=True):
        _give(context, result, number)


def _give(context: Context, result: Value, number: Number) -> None:
    """An extent as a result, in 64 bits if that asks for it."""
    kind = result.type
    assert isinstance(kind, TileType)
    if kind.dtype.bits == I64.dtype.bits and isinstance(number, Value):
        wide = context.value(ops.Exti, (number,), I64, result.name, signedness="unsigned")
        context.values[result] = wide
    elif kind.dtype.bits in (I32.dtype.bits, I64.dtype.bits):
        context.values[result] = context.number(number, kind)
    else:
        raise context.unsupported(f"an extent in {kind} is not lowered yet")


def lower_index_space(context: Context, op: Op) -> None:
    """The tiles of a partition: extents divided by the tile's, rounded up."""
    assert isinstance(op, ops.GetIndexSpaceShape)
    kind = op.src.type
    if not isinstance(kind, PartitionViewType):
        raise context.unsupported(f"the index space of {kind} is not lowered yet")
    part = op.src.owner
    assert isinstance(part, ops.MakePartitionView)
    extents = view_extents(context, part.operands[0])
    for axis, result in enumerate(op.results):
        extent, tile = extents[kind.dim_map[axis]], kind.tile[axis]
        if isinstance(extent, int):
            _give(context, result, -(-extent // tile))
            continue
        more = context.number(context.add(extent, tile - 1, "whole"))
        count = (more, context.number(tile))
        tiles = context.value(ops.Divi, count, I32, result.name, signedness="unsigned")
        _give(context, result, tiles)


VIEWS: dict[str, Callable[[Context, Op], None]] = {
    "store_view_tko": lower_store_view,
    "load_view_tko": lower_load_view,
    "atomic_red_view_tko": lower_reduce_view,
    "get_tensor_shape": lower_shape,
    "get_index_space_shape": lower_index_space,
}
