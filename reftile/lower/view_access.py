"""Elements of views for threads: where a tile begins, what lies inside, global addresses."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cache

import numpy as np

from reftile.ir import ops
from reftile.ir.core import Value
from reftile.ir.diagnostics import fail
from reftile.ir.types import PartitionViewType, PointerType, TensorViewType, TileType
from reftile.layout.linear import Layout
from reftile.lower.context import I32, I64, Context, Number, bit_steps, crossed
from reftile.lower.fragments import text_of
from reftile.lower.host import host_expression


@dataclass(frozen=True, slots=True)
class TileAccess:
    """A tile of a view with two wide axes, the last, of a tensor whose last axis is contiguous.

    base: the tensor's address. size: bytes of an element. `first_row` and `first_column` are
    where the tile begins, `row_count` and `column_count` the tensor's extents; `row_stride` is in
    elements. A tile of one axis is a row.
    """

    base: Value
    size: int
    first_row: Number
    first_column: Number
    row_count: Number
    column_count: Number
    row_stride: Number
    row_stride_text: str
    column_count_text: str
    outer_stride_texts: tuple[str, ...] = ()


def tile_access(context: Context, view: Value, index: tuple[Value, ...]) -> TileAccess:
    """Find the parts of an access.

    Raises:
        ReftileError: the view is of a form that is not lowered.
    """
    kind = view.type
    if not isinstance(kind, PartitionViewType) or not _has_rows(kind):
        raise context.unsupported(f"accesses of threads to {kind} are not lowered yet")
    if kind.tensor.strides[-1] != 1:
        raise context.unsupported(f"the last axis of {kind.tensor} must be contiguous")
    part = view.owner
    assert isinstance(part, ops.MakePartitionView)
    made = part.operands[0].owner
    assert isinstance(made, ops.MakeTensorView)
    extents, strides = _numbers(context, made, kind.tensor)
    element = kind.tensor.element
    assert not isinstance(element, PointerType)
    for extent, _ in extents:
        _require_32_bits(context, extent, "an extent")
    starts: list[Number] = []
    for number, extent in zip(index, kind.tile, strict=True):
        at = context.scalar(number)
        _require_32_bits(context, at, "an index")
        starts.append(context.multiply(at, extent, "first"))
    pointer = context.scalar(made.operands[0])
    base = context.value(ops.GlobalAddress, (pointer,), I64, "base")
    if len(kind.tile) == 1:
        starts, extents, strides = [0, *starts], [(1, "1"), *extents], [(0, "0"), *strides]
    size, row_count = element.bits // 8, extents[-2][0]
    for start, (extent, _), (stride, _) in zip(
        starts[:-2], extents[:-2], strides[:-2], strict=True
    ):
        base = _moved(context, base, start, stride, size)
        inside = context.compare("less_than", start, extent, "inside")
        rows = (inside, context.number(row_count), context.number(0))
        row_count = context.value(ops.Select, rows, I32, "row_count")
    return TileAccess(
        base,
        size,
        starts[-2],
        starts[-1],
        row_count,
        extents[-1][0],
        strides[-2][0],
        strides[-2][1],
        extents[-1][1],
        tuple(text for _, text in strides[:-2]),
    )


def _require_32_bits(context: Context, number: Number, what: str) -> None:
    """Threads count elements along an axis in 32 bits, with a sign; distances have 64.

    Raises:
        ReftileError: a number has others, or does not fit them.
    """
    if isinstance(number, int):
        if number >> 31:
            message = f"{what} of {number}: threads count elements along an axis in 32 bits"
            raise fail("lower.unsupported", message, context.span, "cut the tensor into parts")
        return
    assert isinstance(number.type, TileType)
    if number.type.dtype != I32.dtype:
        message = f"{what} in {number.type}: threads count elements along an axis in 32 bits"
        raise fail("lower.unsupported", message, context.span, "give it as an i32")


def _has_rows(kind: PartitionViewType) -> bool:
    """True if all axes but the last two have an extent of 1, and all are in their order."""
    rank = len(kind.tile)
    in_order = kind.dim_map == tuple(range(rank))
    return rank >= 1 and in_order and all(e == 1 for e in kind.tile[:-2])


def _moved(context: Context, base: Value, start: Number, stride: Number, size: int) -> Value:
    """An address `start` steps of `stride` elements further."""
    steps = context.value(ops.Muli, (_wide(context, start), _wide(context, stride)), I64, "steps")
    bytes_ = context.value(ops.Muli, (steps, context.number(size, I64)), I64, "moved")
    return context.value(ops.Addi, (base, bytes_), I64, "base")


def _numbers(
    context: Context, made: ops.MakeTensorView, kind: TensorViewType
) -> tuple[list[tuple[Number, str]], list[tuple[Number, str]]]:
    """Extents and strides, as values and as host expressions."""
    dynamic = list(made.operands[1:])

    def read(values: tuple[int | None, ...]) -> list[tuple[Number, str]]:
        found: list[tuple[Number, str]] = []
        for value in values:
            if value is not None:
                found.append((value, str(value)))
            else:
                operand = dynamic.pop(0)
                found.append((context.scalar(operand), host_expression(operand)))
        return found

    return read(kind.shape), read(kind.strides)


def view_extents(context: Context, view: Value) -> list[Number]:
    """The extents of a tensor view that the kernel makes.

    Raises:
        ReftileError: it is given by the caller.
    """
    made = view.owner
    if not isinstance(made, ops.MakeTensorView) or not isinstance(view.type, TensorViewType):
        raise context.unsupported(f"%{view.name} is not made in this kernel")
    return [number for number, _ in _numbers(context, made, view.type)[0]]


def thread_index(context: Context, layout: Layout, axis: int) -> Number:
    """What lane and warp contribute to an index.

    Raises:
        ReftileError: it is no sum over the bits of their numbers.
    """
    found = _thread_steps(layout, axis)
    if found is None:
        raise context.unsupported(f"an access of threads that hold {text_of(layout)}")
    lane, warp = found

    def build() -> Value:
        total = context.weighted(context.lane(), lane, "by_lane")
        if any(warp):
            by_warp = context.weighted(context.warp_in_role(), warp)
            total = context.add(total, by_warp, "by_thread")
        return context.number(total)

    return context.hoist(("index", layout, axis), build)


@cache
def _thread_steps(layout: Layout, axis: int) -> tuple[tuple[int, ...], tuple[int, ...]] | None:
    """What each bit of the lane's and the warp's number adds to an index."""
    digits = (d for place in layout.places for d in layout.digits(place))
    if crossed([d.step[axis] for d in digits if d.is_bit]):
        return None
    lane, warp = (
        bit_steps(np.broadcast_to(layout.index(**{place: numbers})[axis], numbers.shape).tolist())
        for place in ("lane", "warp")
        for numbers in (np.arange(layout.extent(place)),)
    )
    return None if lane is None or warp is None else (lane, warp)


def element_address(context: Context, access: TileAccess, row: Number, column: Number) -> Value:
    """The address of an element, in 64 bits."""
    wide_row = _wide(context, context.add(access.first_row, row, "row"))
    stride = _wide(context, access.row_stride)
    elements = context.value(ops.Muli, (wide_row, stride), I64, "elements")
    along = _wide(context, context.add(access.first_column, column, "column"))
    elements = context.value(ops.Addi, (elements, along), I64, "elements")
    size = context.number(access.size, I64)
    moved = context.value(ops.Muli, (elements, size), I64, "moved")
    return context.value(ops.Addi, (access.base, moved), I64, "address")


def rows_further(context: Context, access: TileAccess, address: Value, rows: int) -> Value:
    """An address some rows further."""
    if not rows:
        return address
    count = context.number(rows * access.size, I64)
    moved = context.value(ops.Muli, (_wide(context, access.row_stride), count), I64, "moved")
    return context.value(ops.Addi, (address, moved), I64, "address")


def _wide(context: Context, number: Number) -> Value:
    if isinstance(number, int):
        return context.number(number, I64)
    assert isinstance(number.type, TileType)
    if number.type.dtype == I64.dtype:
        return number
    return context.value(ops.Exti, (number,), I64, "wide", signedness="signed")


def require(context: Context, condition: str, why: str) -> None:
    """Note what the host must check before a launch: an expression over arguments, and why."""
    if (condition, why) not in context.requirements:
        context.requirements.append((condition, why))


def vector_width(context: Context, access: TileAccess, count: int) -> int:
    """How many elements of a row may be accessed at once: rows are whole vectors long.

    A number of columns that is known when compiling may narrow them; else the host looks.
    """
    columns = access.column_count
    if isinstance(columns, int):
        while columns % count:
            count //= 2
        return count
    text = access.column_count_text
    if count > 1 and text != access.row_stride_text:
        why = f"`{text}` must be a multiple of {count}, since {count} elements are accessed at once"
        require(context, f"{text} % {count} == 0", f"{why}, found {{{text}}}")
    return count


def require_alignment(context: Context, access: TileAccess, view: Value, size: int) -> None:
    """Accesses of `size` bytes: rows and the tensor must begin at multiples of it."""
    part = view.owner
    assert isinstance(part, ops.MakePartitionView)
    made = part.operands[0].owner
    assert isinstance(made, ops.MakeTensorView)
    name = made.operands[0].name
    require(context, f"{name} % {size} == 0", f"`{name}` must lie at a multiple of {size} bytes")
    for text in (*access.outer_stride_texts, access.row_stride_text):
        require(
            context,
            f"{text} * {access.size} % {size} == 0",
            f"rows of `{name}` must be a multiple of {size} bytes apart, found {{{text}}} elements",
        )
