"""Buffers of a generated kernel, and the places that an access may name: pointers and views.

A route is the way from a buffer to a tile of elements. It is made such that no address lies outside
the part of the buffer that the block may touch, and so that a store never names one element twice.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from math import prod
from typing import Literal

from reftile.conformance.fuzz.choices import Choices
from reftile.conformance.fuzz.values import INDEX, Shape, Writer

from reftile.ir import ops
from reftile.ir.core import Op, Value
from reftile.ir.dtypes import DTYPES, DType
from reftile.ir.types import (
    GatherScatterViewType,
    Padding,
    PartitionViewType,
    PointerType,
    StridedViewType,
    TensorViewType,
    TileType,
    TileViewType,
)

Role = Literal["input", "private", "sum", "data", "flag", "counter", "scratch"]
I1, I32, I64 = DTYPES["i1"], DTYPES["i32"], DTYPES["i64"]


@dataclass
class Buffer:
    """Memory of a kernel.

    role: `input` is only read; of `private` each block has a part of its own; `sum` is combined by
        all, always in `mode`; `data`, `flag` and `counter` hand something over; `scratch` is the
        block's own memory.
    part: elements that one block may touch (all of them, for what is shared).
    base: pointer to the block's part. number: of the block, if each has a part.
    """

    name: str
    dtype: DType
    role: Role
    part: int
    argument: Value
    parts: int = 1
    mode: str = ""
    base: Value | None = None
    number: Value | None = None
    fill: Literal["random", "zero"] = "random"

    @property
    def size(self) -> int:
        """Elements in all."""
        return self.part * self.parts


@dataclass
class Route:
    """Where an access goes.

    shape, dtype: of the tile. pointers: of a route by pointers, with a mask if it needs one.
    view, index: of a route through a view. partial: some elements may lie outside the view.
    """

    buffer: Buffer
    shape: Shape
    dtype: DType
    pointers: Value | None = None
    mask: Value | None = None
    view: Value | None = None
    index: list[Value] = field(default_factory=list)
    partial: bool = False

    @property
    def type(self) -> TileType:
        """Of the tile that is moved."""
        return TileType(self.shape, self.dtype)

    @property
    def view_type(self) -> TileViewType:
        """Of the view."""
        assert self.view is not None and isinstance(self.view.type, TileViewType)
        return self.view.type


def make_route(writer: Writer, buffer: Buffer, distinct: bool) -> Route:
    """A way to some elements of a buffer; `distinct`: no element is named twice."""
    sub_byte = buffer.dtype.elements_per_unit > 1
    if sub_byte or writer.choices.chance(50):
        return _view_route(writer, buffer, distinct)
    return pointer_route(writer, buffer, distinct)


# By pointers


def pointer_route(writer: Writer, buffer: Buffer, distinct: bool) -> Route:
    """A tile of pointers into the block's part, masked where it would leave it."""
    choices = writer.choices
    base, dtype, room = buffer.base, buffer.dtype, buffer.part
    assert base is not None
    if distinct and buffer.role == "private" and choices.chance(15):
        base, dtype, room = _reinterpreted(writer, base, dtype, room)
    shape = writer.shape(0, room)
    count = prod(shape)
    offsets, mask = _offsets(writer, shape, room, distinct)
    if choices.chance(30):
        own = _any_mask(writer, shape, count)
        mask = own if mask is None else writer.let(ops.Andi, mask, own)
    return Route(buffer, shape, dtype, _pointers(writer, base, dtype, offsets, shape), mask)


def _reinterpreted(
    writer: Writer, base: Value, dtype: DType, room: int
) -> tuple[Value, DType, int]:
    """The same memory as elements of another size."""
    narrow = [DTYPES[n] for n in ("i8", "i16", "i32", "f32", "f16")]
    allowed = [d for d in narrow if d.storage.itemsize <= dtype.storage.itemsize]
    other = writer.choices.pick(allowed)
    type = TileType((), PointerType(other))
    pointer = writer.let(ops.PtrToPtr, base, type=type)
    return pointer, other, room * dtype.storage.itemsize // other.storage.itemsize


def _offsets(writer: Writer, shape: Shape, room: int, distinct: bool) -> tuple[Value, Value | None]:
    """Element offsets below `room`, with a mask of those that are."""
    choices, count = writer.choices, prod(shape)
    dtype = DTYPES[choices.pick(INDEX[:2] if room > 100 else INDEX)]
    flat = TileType((count,), dtype)
    line = writer.let(ops.Iota, type=flat)
    if count > 1 and count & (count - 1) == 0 and choices.chance(20):
        line = writer.let(ops.Xori, line, writer.filled(flat, choices.below(count)))
    widest = max(1, (room - 1) // max(1, count - 1)) if count > 1 else 1
    stride = choices.pick(range(1, min(widest, 3) + 1))
    if not distinct and choices.chance(20):
        # A load may name an element several times.
        line = writer.let(ops.Divi, line, writer.filled(flat, 2), signedness="unsigned")
    if stride > 1:
        line = writer.let(ops.Muli, line, writer.filled(flat, stride))
    slack = room - 1 - stride * (count - 1)
    beyond = choices.chance(20)
    if slack > 0 or beyond:
        shift = writer.index_below(slack + 1 + (3 if beyond else 0))
        shift = writer.spread(writer.as_i32(shift, dtype), (count,))
        line = writer.let(ops.Addi, line, shift)
    mask = None
    if beyond:
        limit = writer.filled(flat, min(room, 127) if dtype.bits == 8 else room)
        mask = writer.let(ops.Cmpi, line, limit, predicate="less_than", signedness="signed")
        mask = writer.let(ops.Reshape, mask, type=TileType(shape, I1))
    if shape != (count,):
        line = writer.let(ops.Reshape, line, type=TileType(shape, dtype))
    return line, mask


def _any_mask(writer: Writer, shape: Shape, count: int) -> Value:
    """A mask that depends on the place in the tile and on what is known."""
    flat = TileType((count,), I32)
    line = writer.let(ops.Iota, type=flat)
    if writer.choices.chance(40):
        line = writer.let(ops.Remi, line, writer.filled(flat, 2), signedness="unsigned")
        limit = writer.filled(flat, 1)
    else:
        limit = writer.spread(writer.index_below(count + 1), (count,))
    mask = writer.let(ops.Cmpi, line, limit, predicate="less_than", signedness="signed")
    return writer.let(ops.Reshape, mask, type=TileType(shape, I1))


def _pointers(writer: Writer, base: Value, dtype: DType, offsets: Value, shape: Shape) -> Value:
    spread = writer.spread(base, shape)
    pointers = writer.let(ops.Offset, spread, offsets)
    if writer.choices.chance(5):
        number = writer.let(ops.PtrToInt, pointers, type=TileType(shape, I64))
        return writer.let(ops.IntToPtr, number, type=TileType(shape, PointerType(dtype)))
    return pointers


# Through views


def _view_route(writer: Writer, buffer: Buffer, distinct: bool) -> Route:
    """Through a view of the block's part, or of all parts with the block as one index."""
    choices = writer.choices
    whole = buffer.number is not None and choices.chance(50)
    tensor, shape = _tensor(writer, buffer, distinct, whole)
    rank = len(shape)
    gathers = 2 if rank and not whole else 0
    kind = choices.weighted([("partition", 5), ("strided", 3), ("gather", gathers)])
    if kind == "gather":
        tile = tuple(choices.pick(_tile_sizes(n, choices)) for n in shape)
        return _gather_route(writer, buffer, tensor, shape, tile, distinct)
    dim_map = tuple(choices.shuffled(range(rank)))
    block = dim_map.index(0) if whole else -1
    sizes = tuple(shape[d] for d in dim_map)
    tile = tuple(
        1 if i == block else choices.pick(_tile_sizes(n, choices)) for i, n in enumerate(sizes)
    )
    steps = tile
    if kind == "strided":
        steps = tuple(
            1 if i == block else choices.pick((t, *range(1, 4))) for i, t in enumerate(tile)
        )
    space = [-(-n // s) for n, s in zip(sizes, steps, strict=True)]
    reach = [(c - 1) * s + t for c, s, t in zip(space, steps, tile, strict=True)]
    partial = any(r > n for r, n in zip(reach, sizes, strict=True))
    view = _tile_view(writer, tensor, tile, steps, dim_map, _padding(writer, buffer.dtype, partial))
    if rank and choices.chance(12):
        _ask_extents(writer, tensor, view)
    dtype = DTYPES[choices.pick(INDEX)]
    index = [
        writer.as_i32(buffer.number if i == block and buffer.number else _tile_at(writer, c), dtype)
        for i, c in enumerate(space)
    ]
    return Route(buffer, tile, buffer.dtype, view=view, index=index, partial=partial)


def _tile_at(writer: Writer, space: int) -> Value:
    return writer.index_below(min(space, 100))


def _tile_view(
    writer: Writer,
    tensor: Value,
    tile: Shape,
    steps: Shape,
    dim_map: Shape,
    padding: Padding | None,
) -> Value:
    """A partition view where tiles lie side by side, else a strided view."""
    assert isinstance(tensor.type, TensorViewType)
    cls: type[Op] = ops.MakePartitionView
    type: TileViewType = PartitionViewType(tile, tensor.type, dim_map, padding)
    if steps != tile:
        cls = ops.MakeStridedView
        type = StridedViewType(tile, steps, tensor.type, dim_map, padding)
    view = writer.builder.create(cls, tensor, types=(type,)).results[0]
    writer.used[cls.name] += 1
    return view


def _ask_extents(writer: Writer, tensor: Value, view: Value) -> None:
    """How large a view is, as values to compute with."""
    choices = writer.choices
    asked = choices.pick((view, tensor))
    cls = ops.GetIndexSpaceShape if asked is view else ops.GetTensorShape
    type = TileType((), DTYPES[choices.pick(INDEX)])
    rank = asked.type.rank  # type: ignore[attr-defined]
    for extent in writer.op(cls, asked, types=[type] * rank).results:
        writer.keep(extent)


def _tile_sizes(extent: int, choices: Choices) -> list[int]:
    """Sizes of a tile along an axis, some of which do not divide it."""
    sizes = choices.subset.extents((4, 2, 1, 3, 8, 16))
    return [t for t in sizes if t <= max(extent + 1, 2)]


def _padding(writer: Writer, dtype: DType, partial: bool) -> Padding | None:
    options: list[Padding] = ["zero"]
    if dtype.is_float and dtype.has_infinity and dtype.has_nan and dtype.has_negative_zero:
        options.extend(("neg_zero", "nan", "pos_inf", "neg_inf"))
    if dtype.name == "f8e8m0":
        options = ["nan"] if partial else []
    if not options or (not partial and writer.choices.chance(60)):
        return None
    return writer.choices.pick(options)


def _tensor(writer: Writer, buffer: Buffer, distinct: bool, whole: bool) -> tuple[Value, Shape]:
    """A tensor view of the block's part or, with an axis for the parts, of all; and its extents."""
    choices, room = writer.choices, buffer.part
    rank = choices.weighted([(1, 5), (2, 5), (3, 1), (0, 1)])
    shape: list[int] = []
    for _ in range(rank):
        left = room // max(1, prod(shape))
        options = [e for e in (4, 8, 2, 3, 5, 7, 16, 6, 1) if e <= left]
        shape.append(choices.pick(options))
    order = choices.shuffled(range(rank))
    strides = [1] * rank
    span = 1
    for axis in reversed(order):
        extra = choices.below(2) if span * (shape[axis] + 1) * 2 <= room else 0
        strides[axis] = span + extra
        if strides[axis] * (shape[axis] - 1) + 1 > room:
            strides[axis] = span
        span = strides[axis] * shape[axis]
    if not distinct and rank > 1 and choices.chance(15):
        strides = [1] * rank
    if sum((n - 1) * s for n, s in zip(shape, strides, strict=True)) >= room:
        strides = [prod(shape[i + 1 :]) for i in range(rank)]
    if whole:
        shape, strides = [buffer.parts, *shape], [buffer.part, *strides]
        return _make_tensor(writer, buffer.argument, buffer.dtype, tuple(shape), tuple(strides))
    assert buffer.base is not None
    return _make_tensor(writer, buffer.base, buffer.dtype, tuple(shape), tuple(strides))


def _make_tensor(
    writer: Writer, base: Value, dtype: DType, shape: Shape, strides: Shape
) -> tuple[Value, Shape]:
    """Some extents and strides are known only at run time."""
    choices = writer.choices
    dynamic = [choices.chance(15) for _ in range(2 * len(shape))]
    sizes = tuple(None if d else n for n, d in zip(shape, dynamic, strict=False))
    steps = tuple(None if d else s for s, d in zip(strides, dynamic[len(shape) :], strict=True))
    type = TensorViewType(sizes, dtype, steps)
    given = [[n for n, d in zip(shape, sizes, strict=True) if d is None]]
    given.append([s for s, d in zip(strides, steps, strict=True) if d is None])
    operands = [[writer.number(n) for n in numbers] for numbers in given]
    view = writer.builder.create(ops.MakeTensorView, base, *operands, types=(type,))
    writer.used["make_tensor_view"] += 1
    return view.results[0], shape


def _gather_route(
    writer: Writer, buffer: Buffer, tensor: Value, shape: Shape, tile: Shape, distinct: bool
) -> Route:
    """Rows by number. Rows outside the tensor are no access; equal rows only where allowed."""
    choices = writer.choices
    axis = choices.below(len(shape))
    rows, extent = tile[axis], shape[axis]
    numbers = _rows(writer, rows, extent, distinct)
    outside = any(n >= extent for n in numbers)
    others = [(t, n) for i, (t, n) in enumerate(zip(tile, shape, strict=True)) if i != axis]
    begins = [choices.below(max(1, n - t + 1)) if choices.chance(70) else 0 for t, n in others]
    partial = outside or any(b + t > n for b, (t, n) in zip(begins, others, strict=True))
    padding = _padding(writer, buffer.dtype, partial)
    tensor_type = tensor.type
    assert isinstance(tensor_type, TensorViewType)
    type = GatherScatterViewType(tile, tensor_type, axis, padding)
    view = writer.builder.create(ops.MakeGatherScatterView, tensor, types=(type,)).results[0]
    writer.used["make_gather_scatter_view"] += 1
    index = [writer.number(b) for b in begins]
    index.insert(axis, writer.constant(TileType((rows,), I32), *numbers))
    return Route(buffer, tile, buffer.dtype, view=view, index=index, partial=partial)


def _rows(writer: Writer, rows: int, extent: int, distinct: bool) -> Sequence[int]:
    if distinct:
        order = writer.choices.shuffled(range(max(extent, rows) + 1))
        return order[:rows]
    return [writer.choices.below(extent + 1) for _ in range(rows)]
