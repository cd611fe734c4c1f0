"""The attributes and methods of tiles, arrays, views and raw memory."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from types import MappingProxyType
from typing import cast

from reftile.ir.core import Value
from reftile.ir.types import PointerType
from reftile.lang.arithmetic import (
    add_sub_mul,
    as_tile,
    broadcast,
    broadcast_together,
    convert,
    floor_divide,
    offset_pointer,
    spread,
    wrap,
)
from reftile.lang.arithmetic import reshape as reshape_tile
from reftile.lang.dtypes import bool_, dtype_named
from reftile.lang.enums import MemoryOrder, MemoryScope, PaddingMode
from reftile.lang.names import shape as shapes
from reftile.lang.names.atomics import (
    atomic_mode,
    swap_pointers,
    update_pointers,
    update_tile,
)
from reftile.lang.names.memory import (
    given_token,
    load_pointers,
    only_token,
    store_pointers,
    stored,
    with_token,
)
from reftile.lang.names.registry import Name, name
from reftile.lang.names.views import (
    boolean_mask,
    hints,
    index_scalar,
    index_value,
    need_padding,
    order_and_scope,
    tile_index,
    tile_view,
)
from reftile.lang.trace import Trace
from reftile.lang.values import (
    Array,
    Index,
    RawArrayMemory,
    Tile,
    TiledView,
    describe,
)

# Arrays


@name
def slice(t: Trace, array: Array, axis: object, start: object, stop: object) -> Array:
    """The part of an array from `start` up to `stop` along an axis; nothing is copied."""
    position = t.static_axis(axis, array.ndim)
    dtype = array.index_dtype
    if isinstance(start, int) and isinstance(stop, int):
        extent: Index = stop - start
    else:
        low, high = index_scalar(t, start), index_scalar(t, stop)
        extent = convert(t, add_sub_mul(t, "sub", high, low), dtype)
    stride = array.strides[position]
    offset: Tile
    if isinstance(start, int) and isinstance(stride, int):
        offset = as_tile(t, start * stride, dtype)
    else:
        begin = convert(t, index_scalar(t, start), dtype)
        offset = add_sub_mul(t, "mul", begin, index_value(t, stride))
    return Array(
        array.name,
        array.dtype,
        offset_pointer(t, array.pointer, offset),
        (*array.shape[:position], extent, *array.shape[position + 1 :]),
        array.strides,
        dtype,
    )


@name
def tiled_view(
    t: Trace,
    array: Array,
    tile_shape: object,
    *,
    padding_mode: object = PaddingMode.UNDETERMINED,
    traversal_steps: object = None,
) -> TiledView:
    """The array cut into tiles of one shape; `traversal_steps` apart instead of side by side."""
    shape = t.static_shape(tile_shape, "tile_shape")
    if shape and len(shape) != array.ndim:
        raise t.error(
            "shape.rank",
            f"a tile of shape {shape} does not fit {describe(array)}",
        )
    default = shape or (1,) * array.ndim
    steps = (
        default if traversal_steps is None else t.static_shape(traversal_steps, "traversal_steps")
    )
    if len(steps) != array.ndim:
        raise t.error(
            "shape.rank", f"`traversal_steps` needs {array.ndim} entries, found {len(steps)}"
        )
    return TiledView(array, shape, steps, need_padding(t, padding_mode))


@name
def get_raw_memory(t: Trace, array: Array) -> RawArrayMemory:
    """The array's memory, reached by offsets in elements."""
    return RawArrayMemory(array)


@name
def from_foreign(t: Trace, pointer: object, shape: object, strides: object) -> Array:
    """An array made of a pointer, extents and strides."""
    base = t.tile(pointer, "pointer")
    element = base.type.element
    if not isinstance(element, PointerType) or base.shape:
        raise t.error("type.pointer", f"`pointer` must be a pointer, found {describe(pointer)}")
    if not isinstance(shape, tuple) or not isinstance(strides, tuple):
        raise t.error("type.tuple", "`shape` and `strides` must be tuples")
    extents = cast("tuple[object, ...]", shape)
    steps = cast("tuple[object, ...]", strides)
    if len(extents) != len(steps):
        raise t.error("shape.rank", f"{len(extents)} extents and {len(steps)} strides")
    indices = [i if isinstance(i, int) else index_scalar(t, i) for i in (*extents, *steps)]
    dtype = dtype_named("int64" if _any_wide(indices) else "int32")
    found = tuple(i if isinstance(i, int) else convert(t, i, dtype) for i in indices)
    return Array(
        "foreign", base.dtype, base.value, found[: len(extents)], found[len(extents) :], dtype
    )


def _any_wide(indices: list[Index]) -> bool:
    return any(isinstance(i, Tile) and i.dtype.bits > 32 for i in indices)


# Tiled views


def _view(t: Trace, view: TiledView) -> tuple[Value, tuple[int, ...]]:
    rank = view.array.ndim
    tile = view.tile_shape or (1,) * rank
    order = tuple(range(rank))
    return tile_view(t, view.array, tile, order, view.padding_mode, view.traversal_steps), tile


def _bounds(t: Trace, check_bounds: object, rank: int) -> tuple[bool, ...] | None:
    return None if t.static_bool(check_bounds, "check_bounds") else (True,) * rank


@name
def load(
    t: Trace,
    view: TiledView,
    index: object,
    *,
    check_bounds: object = True,
    latency: object = None,
    allow_tma: object = None,
    token: object = None,
) -> object:
    """The tile number `index` of a view."""
    value, tile = _view(t, view)
    op = t.op(
        "load_view_tko",
        value,
        tile_index(t, index, len(tile)),
        given_token(t, token),
        ordering="weak",
        inbounds=_bounds(t, check_bounds, len(tile)),
        hints=hints(t, latency, allow_tma),  # type: ignore[arg-type]
    )
    result = wrap(op.results[0], view.dtype)
    result = result if view.tile_shape else reshape_tile(t, result, ())
    return with_token(t, token, result, op.results[1])


@name
def store(
    t: Trace,
    view: TiledView,
    index: object,
    tile: object,
    *,
    check_bounds: object = True,
    latency: object = None,
    allow_tma: object = None,
    token: object = None,
) -> object:
    """Store a tile, broadcast to the view's shape, as number `index`."""
    value, extents = _view(t, view)
    found = broadcast(t, stored(t, tile, view.dtype), extents)
    op = t.op(
        "store_view_tko",
        found.value,
        value,
        tile_index(t, index, len(extents)),
        given_token(t, token),
        ordering="weak",
        inbounds=_bounds(t, check_bounds, len(extents)),
        hints=hints(t, latency, allow_tma),  # type: ignore[arg-type]
    )
    return only_token(t, token, op.results[0])


@name
def view_num_tiles(t: Trace, view: TiledView, axis: object) -> object:
    """The number of tiles of a view along an axis."""
    position = t.static_axis(axis, view.array.ndim)
    extent, step = view.array.shape[position], view.traversal_steps[position]
    if isinstance(extent, int):
        return -(-extent // step)
    return floor_divide(t, extent, step, "cdiv")


def _reduction(what: str) -> Name[..., object]:
    def implementation(
        t: Trace, view: TiledView, index: object, update: object, /, *, token: object = None
    ) -> object:
        value, extents = _view(t, view)
        tile = broadcast(t, update_tile(t, what, update, view.dtype), extents)
        op = t.op(
            "atomic_red_view_tko",
            value,
            tile_index(t, index, len(extents)),
            tile.value,
            given_token(t, token),
            ordering="relaxed",
            scope="device",
            mode=atomic_mode(t, what, view.dtype),
        )
        return only_token(t, token, op.results[0])

    implementation.__name__ = f"atomic_store_{what}"
    implementation.__doc__ = f"Combine a tile with number `index` of a view by atomic {what}."
    return Name(implementation)


# Raw memory


def _raw(
    t: Trace, memory: RawArrayMemory, offset: object, mask: object
) -> tuple[Value, Value | None, tuple[int, ...]]:
    tile = as_tile(t, offset, what="`offset`")
    if not tile.dtype.is_int:
        raise t.error("index.type", f"`offset` must be integers, found {describe(tile)}")
    chosen = None if mask is None else boolean_mask(t, mask)
    shape = tile.shape if chosen is None else broadcast_together(t, tile.shape, chosen.shape)
    pointers = offset_pointer(t, memory.array.pointer, broadcast(t, tile, shape))
    return pointers, None if chosen is None else spread(t, chosen, bool_, shape).value, shape


@name
def load_offset(
    t: Trace,
    memory: RawArrayMemory,
    offset: object,
    /,
    *,
    mask: object = None,
    padding_value: object = 0,
    latency: object = None,
    token: object = None,
) -> object:
    """The elements at offsets from the first element; nothing is checked."""
    pointers, allowed, shape = _raw(t, memory, offset, mask)
    return load_pointers(
        t,
        memory.dtype,
        pointers,
        allowed,
        shape,
        padding_value,
        ("weak", None),
        latency,
        token,
    )


@name
def store_offset(
    t: Trace,
    memory: RawArrayMemory,
    offset: object,
    value: object,
    /,
    *,
    mask: object = None,
    latency: object = None,
    token: object = None,
) -> object:
    """Store elements at offsets from the first element; nothing is checked."""
    pointers, allowed, shape = _raw(t, memory, offset, mask)
    return store_pointers(
        t,
        memory.dtype,
        pointers,
        allowed,
        shape,
        value,
        ("weak", None),
        latency,
        token,
    )


@name
def atomic_cas_offset(
    t: Trace,
    memory: RawArrayMemory,
    offset: object,
    expected: object,
    desired: object,
    /,
    *,
    mask: object = None,
    memory_order: object = MemoryOrder.ACQ_REL,
    memory_scope: object = MemoryScope.DEVICE,
    token: object = None,
) -> object:
    """Compare and swap at offsets from the first element; the old elements."""
    pointers, allowed, shape = _raw(t, memory, offset, mask)
    order = order_and_scope(t, memory_order, memory_scope)
    return swap_pointers(
        t,
        memory.dtype,
        pointers,
        allowed,
        shape,
        expected,
        desired,
        order,
        token,
    )


def _offset_update(what: str) -> Name[..., object]:
    def implementation(
        t: Trace,
        memory: RawArrayMemory,
        offset: object,
        update: object,
        /,
        *,
        mask: object = None,
        memory_order: object = MemoryOrder.ACQ_REL,
        memory_scope: object = MemoryScope.DEVICE,
        token: object = None,
    ) -> object:
        pointers, allowed, shape = _raw(t, memory, offset, mask)
        order = order_and_scope(t, memory_order, memory_scope)
        return update_pointers(
            t,
            what,
            memory.dtype,
            pointers,
            allowed,
            shape,
            update,
            order,
            token,
        )

    implementation.__name__ = f"atomic_{what}_offset"
    implementation.__doc__ = f"Atomic {what} at offsets from the first element; the old elements."
    return Name(implementation)


# What each kind of value has

_TILE_METHODS: Mapping[str, Name[..., object]] = MappingProxyType(
    {
        "reshape": shapes.reshape,
        "permute": shapes.permute,
        "transpose": shapes.transpose,
        "astype": shapes.astype,
        "extract": shapes.extract,
        "insert": shapes.insert,
        "item": shapes.item,
        "broadcast_to": shapes.broadcast_to,
    }
)
_ARRAY_METHODS: Mapping[str, Name[..., object]] = MappingProxyType(
    {"slice": slice, "tiled_view": tiled_view, "get_raw_memory": get_raw_memory}
)
_VIEW_METHODS: Mapping[str, Name[..., object]] = MappingProxyType(
    {
        "load": load,
        "store": store,
        "num_tiles": view_num_tiles,
        **{
            f"atomic_store_{what}": _reduction(what)
            for what in ("add", "max", "min", "and", "or", "xor")
        },
    }
)
_RAW_METHODS: Mapping[str, Name[..., object]] = MappingProxyType(
    {
        "load_offset": load_offset,
        "store_offset": store_offset,
        "atomic_cas_offset": atomic_cas_offset,
        **{
            f"atomic_{what}_offset": _offset_update(what)
            for what in ("xchg", "add", "max", "min", "and", "or", "xor")
        },
    }
)


def find_method(owner: object, attribute: str) -> Name[..., object] | None:
    """The method called `attribute` of a value of the language."""
    match owner:
        case Tile() | bool() | int() | float():
            return _TILE_METHODS.get(attribute)
        case Array():
            return _ARRAY_METHODS.get(attribute)
        case TiledView():
            return _VIEW_METHODS.get(attribute)
        case RawArrayMemory():
            return _RAW_METHODS.get(attribute)
        case _:
            return None


MISSING = object()


def find_attribute(t: Trace, owner: object, attribute: str) -> object:
    """The value of an attribute of a value of the language, or MISSING."""
    readers: dict[str, Callable[[], object]] = {}
    match owner:
        case Tile():
            readers = {
                "shape": lambda: owner.shape,
                "dtype": lambda: owner.dtype,
                "ndim": lambda: owner.ndim,
            }
        case bool() | int() | float():
            readers = {
                "shape": lambda: (),
                "dtype": lambda: as_tile(t, owner).dtype,
                "ndim": lambda: 0,
            }
        case Array():
            readers = {
                "shape": lambda: owner.shape,
                "strides": lambda: owner.strides,
                "dtype": lambda: owner.dtype,
                "ndim": lambda: owner.ndim,
                "foreign_pointer": lambda: Tile(owner.pointer, owner.dtype),
            }
        case TiledView():
            readers = {
                "dtype": lambda: owner.dtype,
                "tile_shape": lambda: owner.tile_shape,
                "traversal_steps": lambda: owner.traversal_steps,
            }
        case RawArrayMemory():
            readers = {"dtype": lambda: owner.dtype}
        case _:
            pass
    reader = readers.get(attribute)
    return reader() if reader is not None else MISSING


def known_attributes(owner: object) -> tuple[str, ...]:
    """The attributes and methods that a value of the language has, for messages."""
    match owner:
        case Tile() | bool() | int() | float():
            return ("dtype", "ndim", "shape", *_TILE_METHODS)
        case Array():
            return ("dtype", "ndim", "shape", "strides", "foreign_pointer", *_ARRAY_METHODS)
        case TiledView():
            return ("dtype", "tile_shape", "traversal_steps", *_VIEW_METHODS)
        case RawArrayMemory():
            return ("dtype", *_RAW_METHODS)
        case _:
            return ()
