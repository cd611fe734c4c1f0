"""How arrays become views and pointers of the IR, and how indices are given to them."""

from __future__ import annotations

from collections.abc import Sequence
from typing import cast

from reftile.ir.core import Value
from reftile.ir.types import (
    GatherScatterViewType,
    PartitionViewType,
    StridedViewType,
    TensorViewType,
    TileType,
    TileViewType,
)
from reftile.lang.arithmetic import (
    add_sub_mul,
    as_tile,
    broadcast_together,
    convert,
    logical,
    offset_pointer,
    spread,
    wrap,
)
from reftile.lang.dtypes import DType, bool_, int32, int64
from reftile.lang.enums import MemoryOrder, MemoryScope, PaddingMode
from reftile.lang.trace import Trace, static_number
from reftile.lang.values import Array, Index, Tile, as_items, describe, items_of


def need_array(t: Trace, value: object, what: str = "array") -> Array:
    """An array, or a diagnosis."""
    if isinstance(value, Array):
        return value
    raise t.error("type.array", f"`{what}` must be an array, found {describe(value)}")


def tensor_view(t: Trace, array: Array) -> Value:
    """The tensor view of an array."""
    for extent in array.shape:
        if isinstance(extent, int) and extent <= 0:
            raise t.error("shape.positive", f"`{array.name}` has an axis of extent {extent}")
    type = TensorViewType(
        tuple(e if isinstance(e, int) else None for e in array.shape),
        array.dtype.element,
        tuple(s if isinstance(s, int) else None for s in array.strides),
    )
    shape = tuple(e.value for e in array.shape if isinstance(e, Tile))
    strides = tuple(s.value for s in array.strides if isinstance(s, Tile))
    return t.value("make_tensor_view", array.pointer, shape, strides, types=[type])


def tile_view(
    t: Trace,
    array: Array,
    tile: tuple[int, ...],
    order: tuple[int, ...],
    padding: PaddingMode,
    traversal: tuple[int, ...] | None = None,
) -> Value:
    """A partition view, or a strided view when the tiles are not side by side."""
    tensor = tensor_view(t, array)
    tensor_type = cast("TensorViewType", tensor.type)
    pad = None if padding is PaddingMode.UNDETERMINED else padding.value
    if traversal is None or traversal == tile:
        type: TileViewType = PartitionViewType(tile, tensor_type, order, pad)
        return t.value("make_partition_view", tensor, types=[type])
    type = StridedViewType(tile, traversal, tensor_type, order, pad)
    return t.value("make_strided_view", tensor, types=[type])


def sparse_view(
    t: Trace, array: Array, tile: tuple[int, ...], sparse_dim: int, padding: PaddingMode
) -> Value:
    """A view whose rows along one axis are given by number."""
    tensor = tensor_view(t, array)
    pad = None if padding is PaddingMode.UNDETERMINED else padding.value
    type = GatherScatterViewType(tile, cast("TensorViewType", tensor.type), sparse_dim, pad)
    return t.value("make_gather_scatter_view", tensor, types=[type])


def need_padding(t: Trace, value: object) -> PaddingMode:
    """A padding mode, or a diagnosis."""
    if isinstance(value, PaddingMode):
        return value
    raise t.error("type.padding", f"`padding_mode` must be a PaddingMode, found {describe(value)}")


def axis_order(t: Trace, order: object, rank: int) -> tuple[int, ...]:
    """The array axis of each tile axis: "C", "F" or a permutation."""
    if order == "C":
        return tuple(range(rank))
    if order == "F":
        return tuple(reversed(range(rank)))
    items = items_of(order)
    if items is None:
        raise t.error("order", f'`order` is "C", "F" or a permutation, found {describe(order)}')
    axes = tuple(t.static_axis(a, rank, "order") for a in items)
    if sorted(axes) != list(range(rank)):
        raise t.error("order", f"`order` must name each of {rank} axes once, found {axes}")
    return axes


def tile_index(t: Trace, index: object, rank: int) -> tuple[Value, ...]:
    """The operands of an index into a view."""
    items = as_items(index)
    if len(items) != rank:
        raise t.error(
            "index.rank",
            f"the index of an array of rank {rank} needs {rank} entries, found {len(items)}",
        )
    return tuple(index_scalar(t, item).value for item in items)


def index_scalar(t: Trace, value: object) -> Tile:
    """An integer scalar of 32 bits or more."""
    tile = as_tile(t, value, what="an index")
    if not tile.dtype.is_int or tile.shape:
        raise t.error(
            "index.type",
            f"an index must be an integer scalar, found {describe(tile)}",
            "`x.item()` makes a scalar of a tile with one element" if tile.dtype.is_int else "",
        )
    return tile if tile.dtype.bits >= 32 else convert(t, tile, int32)


def index_value(t: Trace, index: Index) -> Tile:
    """An extent or stride as a tile."""
    return index if isinstance(index, Tile) else as_tile(t, index)


def element_pointers(
    t: Trace, array: Array, indices: object, mask: object, check_bounds: object
) -> tuple[Value, Value | None, tuple[int, ...]]:
    """Pointers to elements by index, the mask of those that may be touched, and the shape."""
    items = as_items(indices)
    if len(items) != array.ndim:
        raise t.error(
            "index.rank",
            f"`indices` needs {array.ndim} entries for {describe(array)}, found {len(items)}",
        )
    tiles = [_integer_tile(t, item) for item in items]
    chosen = None if mask is None else boolean_mask(t, mask)
    shape = broadcast_together(t, *(tile.shape for tile in tiles))
    if chosen is not None and broadcast_together(t, shape, chosen.shape) != shape:
        raise t.error("shape.broadcast", f"a mask of {chosen.shape} for indices of {shape}")
    dtype = int64 if any(tile.dtype.bits == 64 for tile in tiles) else array.index_dtype
    wide = [spread(t, tile, dtype, shape) for tile in (convert(t, x, dtype) for x in tiles)]
    if t.static_bool(check_bounds, "check_bounds"):
        for tile, extent in zip(wide, array.shape, strict=True):
            bound = spread(t, index_value(t, extent), dtype, shape)
            # Unsigned: a negative index is above every extent.
            inside = wrap(
                t.value(
                    "cmpi", tile.value, bound.value, predicate="less_than", signedness="unsigned"
                ),
                bool_,
            )
            chosen = inside if chosen is None else logical(t, "and", chosen, inside)
    offset = _linear_offset(t, wide, array, dtype, shape)
    pointers = offset_pointer(t, array.pointer, offset)
    allowed = None if chosen is None else spread(t, chosen, bool_, shape).value
    return pointers, allowed, shape


def boolean_mask(t: Trace, mask: object) -> Tile:
    """A tile of booleans, or a diagnosis."""
    tile = as_tile(t, mask, what="`mask`")
    if tile.dtype is not bool_:
        raise t.error("dtype.mask", f"`mask` must hold booleans, found {describe(tile)}")
    return tile


def _integer_tile(t: Trace, value: object) -> Tile:
    tile = as_tile(t, value, what="an index")
    if not tile.dtype.is_int:
        raise t.error("index.type", f"indices must be integers, found {describe(tile)}")
    return tile


def _linear_offset(
    t: Trace, tiles: Sequence[Tile], array: Array, dtype: DType, shape: tuple[int, ...]
) -> Tile:
    total: Tile | None = None
    for tile, stride in zip(tiles, array.strides, strict=True):
        factor = spread(t, index_value(t, stride), dtype, shape)
        term = tile if static_number(stride) == 1 else add_sub_mul(t, "mul", tile, factor)
        total = term if total is None else add_sub_mul(t, "add", total, term)
    return total if total is not None else wrap(t.constant(0, dtype, shape), dtype)


def pointer_type(array: Array, shape: tuple[int, ...]) -> TileType:
    """The type of a tile of the array's elements."""
    return TileType(shape, array.dtype.element)


def order_and_scope(t: Trace, order: object, scope: object) -> tuple[str, str | None]:
    """The attributes `ordering` and `scope`; a strong access must name its scope."""
    if not isinstance(order, MemoryOrder) or not isinstance(scope, MemoryScope):
        raise t.error(
            "type.order",
            f"memory_order and memory_scope take MemoryOrder and MemoryScope, "
            f"found {describe(order)} and {describe(scope)}",
        )
    if order is MemoryOrder.WEAK:
        return "weak", None
    if scope is MemoryScope.NONE:
        raise t.error(
            "scope",
            f"a {order.value} access needs a scope",
            "memory_scope=ct.MemoryScope.DEVICE is the one of all blocks on the device",
        )
    return order.value, scope.value


def hints(t: Trace, latency: object, allow_tma: object) -> dict[str, int | bool] | None:
    """The `hints` attribute: what a compiler may use and nothing depends on."""
    found: dict[str, int | bool] = {}
    if latency is not None:
        found["latency"] = t.static_int(latency, "latency")
        if not 1 <= found["latency"] <= 10:
            raise t.error("latency", f"`latency` lies between 1 and 10, found {found['latency']}")
    if allow_tma is not None:
        found["allow_tma"] = t.static_bool(allow_tma, "allow_tma")
    return found or None
