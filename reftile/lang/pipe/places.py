"""Views of global memory, buffers and rings in shared memory, and tiles moved by registers."""

from __future__ import annotations

from typing import cast

from reftile.ir.buffer_layout import sliced_layout, transposed_layout
from reftile.ir.core import Op, Value
from reftile.ir.types import (
    Access,
    BufferType,
    GatherScatterViewType,
    Padding,
    PartitionViewType,
    RingType,
    TensorViewType,
)
from reftile.lang.arithmetic import as_tile, convert
from reftile.lang.dtypes import DType, int32
from reftile.lang.foreign import ForeignValue
from reftile.lang.names.create import need_dtype
from reftile.lang.names.registry import name
from reftile.lang.pipe.common import (
    buffer_type,
    error,
    need,
    scalar,
    scalars,
    token_of,
    word,
)
from reftile.lang.pipe.values import (
    METHODS,
    Buffer,
    Pointer,
    Ring,
    TensorView,
    TileView,
    named_view,
)
from reftile.lang.trace import Trace, static_number
from reftile.lang.values import Array, Tile, Token, as_items, describe

ACCESS = ("read_write", "read_only", "write_only")
PADDING = ("zero", "neg_zero", "nan", "pos_inf", "neg_inf")


class WholeArray(ForeignValue):
    """An array of the kernel's, with its extents and strides."""

    array: Array


# Global memory


@name
def tensor(
    t: Trace,
    base: object,
    /,
    shape: object = None,
    strides: object = None,
    *,
    access: object = "read_write",
) -> TensorView:
    """An array in global memory.

    base: an array of the kernel's, or a pointer with `shape` and `strides` in elements (those of
    rows one behind another if left out). access: how the kernel uses it.
    """
    mode = cast("Access", word(t, access, ACCESS, "access"))
    if isinstance(base, WholeArray):
        base = base.array
    if isinstance(base, Array):
        if shape is not None or strides is not None:
            raise error(t, "tensor", f"{describe(base)} has a shape and strides already")
        return make_tensor(t, base.pointer, base.dtype, base.shape, base.strides, mode)
    pointer = need(t, base, Pointer, "base", "an array, or a parameter annotated as Pointer")
    if shape is None:
        raise error(t, "tensor", "a pointer needs a `shape`")
    extents = as_items(shape)
    steps = as_items(strides) if strides is not None else _row_major(t, extents)
    if len(steps) != len(extents):
        raise error(t, "tensor", f"{len(extents)} extents need as many strides, found {len(steps)}")
    assert pointer.dtype is not None
    return make_tensor(t, pointer.value, pointer.dtype, extents, steps, mode)


def _row_major(t: Trace, shape: tuple[object, ...]) -> tuple[object, ...]:
    strides: list[object] = [1]
    for extent in reversed(shape[1:]):
        last, number = strides[0], static_number(extent)
        if isinstance(last, int) and isinstance(number, int):
            strides.insert(0, last * number)
            continue
        value = t.value("muli", scalar(t, extent, "shape"), scalar(t, last, "shape"))
        strides.insert(0, Tile(value, int32))
    return tuple(strides)


def make_tensor(
    t: Trace,
    pointer: Value,
    dtype: DType,
    shape: tuple[object, ...],
    strides: tuple[object, ...],
    access: Access,
) -> TensorView:
    """Build the view; extents and strides that are known now are part of its type."""
    known = [[_number(v) for v in values] for values in (shape, strides)]
    dynamic = [
        tuple(scalar(t, v, "shape") for v, k in zip(values, numbers, strict=True) if k is None)
        for values, numbers in zip((shape, strides), known, strict=True)
    ]
    kind = TensorViewType(tuple(known[0]), dtype.element, tuple(known[1]), access)
    return TensorView(t.value("make_tensor_view", pointer, *dynamic, types=[kind]), dtype)


def _number(value: object) -> int | None:
    found = static_number(value)
    return int(found) if isinstance(found, int) else None


@name
def tiles(
    t: Trace, source: object, shape: object, /, *, padding: object = None, axes: object = None
) -> TileView:
    """A tensor cut into tiles of `shape`.

    padding: what elements outside are. axes: the tensor axis of each tile axis.
    """
    whole = source
    if isinstance(whole, WholeArray):
        whole = tensor.implementation(t, whole)
    found = need(t, whole, TensorView, "source")
    extents = t.static_shape(shape)
    if len(extents) != found.type.rank:
        raise error(
            t,
            "rank",
            f"tiles of shape {extents} do not fit {found.describe()}",
            "a tile has one extent for each axis; extents of 1 drop out in a buffer",
        )
    order = tuple(range(len(extents)))
    if axes is not None:
        order = tuple(t.static_axis(a, len(extents), "axes") for a in as_items(axes))
    kept = None if padding is None else cast("Padding", word(t, padding, PADDING, "padding"))
    kind = PartitionViewType(extents, found.type, order, kept)
    value = t.value("make_partition_view", found.value, types=[kind])
    made = cast("Op", found.value.owner)
    return TileView(named_view(t, value, made.operands[0].name), found.dtype)


@name
def rows(
    t: Trace, source: object, shape: object, /, *, axis: object = 0, padding: object = None
) -> TileView:
    """A tensor by rows whose numbers a tile gives: the index along `axis` is that tile.

    Copies of threads take them; bulk copies do not.
    """
    whole = source
    if isinstance(whole, WholeArray):
        whole = tensor.implementation(t, whole)
    found = need(t, whole, TensorView, "source")
    extents = t.static_shape(shape)
    if len(extents) != found.type.rank:
        raise error(t, "rank", f"tiles of shape {extents} do not fit {found.describe()}")
    along = t.static_axis(axis, len(extents))
    kept = None if padding is None else cast("Padding", word(t, padding, PADDING, "padding"))
    kind = GatherScatterViewType(extents, found.type, along, kept)
    value = t.value("make_gather_scatter_view", found.value, types=[kind])
    made = cast("Op", found.value.owner)
    return TileView(named_view(t, value, made.operands[0].name), found.dtype)


def view_index(t: Trace, view: TileView, index: object) -> tuple[Value, ...]:
    """The index of a tile: one scalar for each axis, or a tile of row numbers."""
    kind, items = view.type, list(as_items(index))
    numbers: tuple[int, Value] | None = None
    if isinstance(kind, GatherScatterViewType) and len(items) == kind.rank:
        tile = t.tile(items[kind.sparse_dim], "index")
        numbers = kind.sparse_dim, convert(t, tile, int32).value
        items[kind.sparse_dim] = 0
    found = scalars(t, tuple(items), "index")
    if numbers is not None:
        found = (*found[: numbers[0]], numbers[1], *found[numbers[0] + 1 :])
    if len(found) != view.type.rank:
        raise error(
            t, "index", f"{view.describe()} has {view.type.rank} axes, found {len(found)} indices"
        )
    return found


@name
def load(t: Trace, view: object, index: object, /, *, token: object = None) -> object:
    """A tile of a view in registers, and the token of the load."""
    found = need(t, view, TileView, "view")
    op = t.op(
        "load_view_tko",
        found.value,
        view_index(t, found, index),
        token_of(t, token),
        ordering="weak",
    )
    assert found.dtype is not None
    return Tile(op.results[0], found.dtype), Token(op.results[1])


@name
def store(t: Trace, view: object, index: object, tile: object, /, *, token: object = None) -> Token:
    """Store registers as a tile of a view; the token of the store."""
    found = need(t, view, TileView, "view")
    assert found.dtype is not None
    value = convert(t, as_tile(t, tile, what="`tile`"), found.dtype)
    at = view_index(t, found, index)
    op = t.op("store_view_tko", value.value, found.value, at, token_of(t, token), ordering="weak")
    return Token(op.results[0])


# Shared memory


@name
def alloc_buffer(t: Trace, shape: object, dtype: object, /, layout: object = None) -> Buffer:
    """Shared memory for one tile; `()` is one number.

    layout: a name of spec/pipe.md; left out, the widest swizzle that fits.
    """
    element = need_dtype(t, dtype)
    kind = buffer_type(t, shape, element, layout)
    return Buffer(t.value("alloc_buffer", types=[kind]), element)


@name
def alloc_ring(
    t: Trace, stages: object, shape: object, dtype: object, /, layout: object = None
) -> Ring:
    """Shared memory for `stages` tiles that are used in turn: `ring[i]` is one."""
    element, count = need_dtype(t, dtype), t.static_int(stages, "stages")
    if count < 1:
        raise error(t, "stages", f"a ring has one stage at least, found {count}")
    kind = RingType(count, buffer_type(t, shape, element, layout))
    return Ring(t.value("alloc_ring", types=[kind]), element)


@name
def slot(t: Trace, ring: Ring, index: object, /) -> Buffer:
    """One buffer of a ring."""
    value = t.value("slot", ring.value, scalar(t, index, "index"), types=[ring.type.buffer])
    return Buffer(value, ring.dtype)


@name
def part(t: Trace, buffer: Buffer, index: object, shape: object, /) -> Buffer:
    """An aligned slice of a buffer; `index` counts slices, as that of `extract` does."""
    extents, at = t.static_shape(shape), scalars(t, index, "index")
    if len(at) != len(buffer.type.shape) or len(extents) != len(at):
        raise error(t, "rank", f"{buffer.describe()} has {len(buffer.type.shape)} axes")
    layout = sliced_layout(buffer.type, extents)
    if not layout:
        raise error(
            t,
            "part",
            f"{extents} is no slice of {buffer.describe()}",
            "extents must divide; a swizzled slice keeps whole panels and groups of 8 rows",
        )
    kind = BufferType(extents, buffer.type.dtype, layout)
    return Buffer(t.value("subview", buffer.value, at, types=[kind]), buffer.dtype)


@name
def transpose(t: Trace, buffer: Buffer, /) -> Buffer:
    """A buffer with its two axes exchanged: the same memory."""
    if len(buffer.type.shape) != 2:
        raise error(t, "rank", f"{buffer.describe()} has {len(buffer.type.shape)} axes, not 2")
    layout = transposed_layout(buffer.type)
    kind = BufferType(buffer.type.shape[::-1], buffer.type.dtype, layout)
    return Buffer(t.value("transpose_buffer", buffer.value, types=[kind]), buffer.dtype)


@name
def reinterpret(
    t: Trace, place: object, shape: object, dtype: object, /, layout: object = None
) -> Buffer | Ring:
    """The memory of a buffer or ring under another type."""
    element = need_dtype(t, dtype)
    kind = buffer_type(t, shape, element, layout)
    if isinstance(place, Ring):
        ring = RingType(place.type.stages, kind)
        return Ring(t.value("reinterpret_buffer", place.value, types=[ring]), element)
    source = need(t, place, Buffer, "place")
    return Buffer(t.value("reinterpret_buffer", source.value, types=[kind]), element)


def _rank(t: Trace, rank: object) -> Value | None:
    return None if rank is None else scalar(t, rank, "rank")


@name
def load_buffer(
    t: Trace, buffer: Buffer, /, *, token: object = None, rank: object = None
) -> tuple[Tile, Token]:
    """A buffer's tile in registers, and the token of the load.

    rank: the block of the cluster whose buffer is meant.
    """
    op = t.op("load_buffer", buffer.value, _rank(t, rank), token_of(t, token))
    assert buffer.dtype is not None
    return Tile(op.results[0], buffer.dtype), Token(op.results[1])


@name
def store_buffer(
    t: Trace, buffer: Buffer, tile: object, /, *, token: object = None, rank: object = None
) -> Token:
    """Store registers into a buffer; the token of the store."""
    assert buffer.dtype is not None
    value = as_tile(t, tile, buffer.dtype if not isinstance(tile, Tile) else None)
    if value.shape != buffer.type.shape or value.dtype is not buffer.dtype:
        raise error(
            t,
            "shape",
            f"{describe(value)} does not fit {buffer.describe()}",
            "convert it with `.astype(...)`, or take a part of the buffer",
        )
    op = t.op("store_buffer", value.value, buffer.value, _rank(t, rank), token_of(t, token))
    return Token(op.results[0])


METHODS[TileView] = {"load": load, "store": store}
METHODS[Ring] = {"slot": slot, "reinterpret": reinterpret}
METHODS[Buffer] = {
    "load": load_buffer,
    "store": store_buffer,
    "part": part,
    "transpose": transpose,
    "reinterpret": reinterpret,
}
