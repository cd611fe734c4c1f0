"""Tiles in another shape, another order, another dtype."""

from __future__ import annotations

from math import prod

from reftile.ir.core import Value
from reftile.ir.types import TileType
from reftile.lang.arithmetic import (
    as_tile,
    broadcast,
    broadcast_together,
    convert,
    operand,
    select,
    spread,
    wrap,
)
from reftile.lang.arithmetic import reshape as reshape_tile
from reftile.lang.dtypes import bool_, int8, int32, uint8
from reftile.lang.enums import RoundingMode
from reftile.lang.names.create import need_dtype
from reftile.lang.names.registry import name
from reftile.lang.trace import Trace
from reftile.lang.values import Tile, as_items, describe, items_of


@name
def reshape(t: Trace, x: object, /, shape: object) -> Tile:
    """The same elements, in row-major order; one extent may be -1."""
    tile = as_tile(t, x, what="`x`")
    items = as_items(shape)
    extents = [t.static_int(item, "shape") for item in items]
    size = prod(tile.shape)
    if extents.count(-1) == 1:
        rest = prod(e for e in extents if e != -1)
        if rest and size % rest == 0:
            extents[extents.index(-1)] = size // rest
    if prod(extents) != size or any(e <= 0 for e in extents):
        raise t.error(
            "shape.reshape",
            f"a tile of shape {tile.shape} has {size} elements, and {tuple(extents)} has not",
        )
    return reshape_tile(t, tile, tuple(extents))


@name
def expand_dims(t: Trace, x: object, /, axis: object) -> Tile:
    """An axis of extent 1 inserted in front of `axis`."""
    tile = as_tile(t, x, what="`x`")
    position = t.static_axis(axis, tile.ndim + 1)
    return reshape_tile(t, tile, (*tile.shape[:position], 1, *tile.shape[position:]))


@name
def broadcast_to(t: Trace, x: object, /, shape: object) -> Tile:
    """Repeated to `shape` by NumPy's rules."""
    return broadcast(t, as_tile(t, x, what="`x`"), t.static_shape(shape))


@name
def permute(t: Trace, x: object, /, axes: object) -> Tile:
    """Axis i of the result is axis `axes[i]` of the tile."""
    tile = as_tile(t, x, what="`x`")
    items = as_items(axes)
    order = tuple(t.static_axis(item, tile.ndim, "axes") for item in items)
    if sorted(order) != list(range(tile.ndim)):
        raise t.error("axis", f"`axes` must name each of {tile.ndim} axes once, found {order}")
    if order == tuple(range(tile.ndim)):
        return tile
    return wrap(t.value("permute", tile.value, permutation=order), tile.dtype)


@name
def transpose(t: Trace, x: object, /, axis0: object = None, axis1: object = None) -> Tile:
    """Two axes swapped; a tile of rank 2 needs none named."""
    tile = as_tile(t, x, what="`x`")
    if axis0 is None and axis1 is None and tile.ndim == 2:
        axis0, axis1 = 0, 1
    if axis0 is None or axis1 is None:
        raise t.error(
            "axis",
            f"`transpose` of a tile of shape {tile.shape} needs both axes",
            "name them: x.transpose(0, 1)",
        )
    first, second = t.static_axis(axis0, tile.ndim), t.static_axis(axis1, tile.ndim)
    order = list(range(tile.ndim))
    order[first], order[second] = second, first
    return permute.implementation(t, tile, tuple(order))


@name
def cat(t: Trace, tiles: object, /, axis: object) -> Tile:
    """Tiles one after the other along `axis`."""
    items = items_of(tiles)
    if not items:
        raise t.error("type.tuple", f"`tiles` must be a tuple of tiles, found {describe(tiles)}")
    parts = [as_tile(t, item, what="a part") for item in items]
    first = parts[0]
    position = t.static_axis(axis, first.ndim)
    value = first.value
    for part in parts[1:]:
        same = part.ndim == first.ndim and all(
            a == b
            for i, (a, b) in enumerate(zip(part.shape, first.shape, strict=True))
            if i != position
        )
        if not same or part.dtype is not first.dtype:
            raise t.error(
                "shape.cat",
                f"{describe(first)} and {describe(part)} do not fit together along axis {position}",
                "all other extents and the dtypes must agree",
            )
        value = t.value("cat", value, part.value, axis=position)
    return wrap(value, first.dtype)


@name
def astype(
    t: Trace, x: object, dtype: object, /, *, rounding_mode: RoundingMode | None = None
) -> Tile:
    """Converted: floats to nearest even unless told otherwise, floats to integers towards zero."""
    target = need_dtype(t, dtype)
    return convert(t, as_tile(t, x, what="`x`"), target, rounding_mode)


@name
def bitcast(t: Trace, x: object, /, dtype: object) -> Tile:
    """The same bits read as another dtype of the same width."""
    tile, target = as_tile(t, x, what="`x`"), need_dtype(t, dtype)
    if tile.dtype.bits != target.bits:
        raise t.error(
            "dtype.bitcast",
            f"{tile.dtype} has {tile.dtype.bits} bits and {target} has {target.bits}",
            "pack_to_bytes and unpack_from_bytes change the number of elements",
        )
    if tile.dtype.element is target.element:
        return wrap(tile.value, target)
    type = TileType(tile.shape, target.element)
    return wrap(t.value("bitcast", tile.value, types=[type]), target)


@name
def pack_to_bytes(t: Trace, x: object, /) -> Tile:
    """The bytes of all elements, as a rank-1 tile of uint8."""
    tile = as_tile(t, x, what="`x`")
    flat = reshape_tile(t, tile, (prod(tile.shape),))
    if tile.dtype.bits == 8:
        return bitcast.implementation(t, flat, uint8)
    if prod(tile.shape) * tile.dtype.bits % 8:
        raise t.error("shape.bytes", f"{describe(tile)} does not fill whole bytes")
    return wrap(t.value("pack", flat.value), uint8)


@name
def unpack_from_bytes(t: Trace, x: object, /, dtype: object) -> Tile:
    """A rank-1 tile of uint8 read as elements of another dtype."""
    tile, target = as_tile(t, x, what="`x`"), need_dtype(t, dtype)
    if tile.dtype not in (uint8, int8) or tile.ndim != 1:
        raise t.error("dtype.bytes", f"`x` must be a rank-1 tile of uint8, found {describe(tile)}")
    if target.bits == 8:
        return bitcast.implementation(t, tile, target)
    bits = tile.shape[0] * 8
    if bits % target.bits:
        raise t.error("shape.bytes", f"{bits} bits are no whole number of {target}")
    type = TileType((bits // target.bits,), target.element)
    return wrap(t.value("unpack", tile.value, types=[type]), target)


@name
def where(t: Trace, cond: object, x: object, y: object, /) -> Tile:
    """Elements of `x` where `cond` is true, else of `y`."""
    condition = convert(t, as_tile(t, cond, what="`cond`"), bool_)
    return select(t, condition, operand(t, x, "`x`"), operand(t, y, "`y`"))


def _subtile_index(t: Trace, index: object, rank: int) -> list[Value]:
    items = as_items(index)
    if len(items) != rank:
        raise t.error("index.rank", f"`index` needs {rank} entries, found {len(items)}")
    return [as_tile(t, item, int32, "an index").value for item in items]


def _check_divides(t: Trace, small: tuple[int, ...], large: tuple[int, ...]) -> None:
    if len(small) != len(large) or any(b % a for a, b in zip(small, large, strict=True)):
        raise t.error("shape.divides", f"a part of shape {small} does not divide {large}")


@name
def extract(t: Trace, x: object, /, index: object, shape: object) -> Tile:
    """Part number `index` of the tile cut into parts of `shape`."""
    tile, part = as_tile(t, x, what="`x`"), t.static_shape(shape)
    scalar = not part and tile.ndim > 0
    part = (1,) * tile.ndim if scalar else part
    _check_divides(t, part, tile.shape)
    indices = _subtile_index(t, index, tile.ndim)
    type = TileType(part, tile.dtype.element)
    result = wrap(t.value("extract", tile.value, indices, types=[type]), tile.dtype)
    return reshape_tile(t, result, ()) if scalar else result


@name
def insert(t: Trace, x: object, /, index: object, value: object) -> Tile:
    """The tile with part number `index` replaced by `value`."""
    tile = as_tile(t, x, what="`x`")
    part = as_tile(t, value, tile.dtype, "`value`")
    if not part.shape:
        part = reshape_tile(t, part, (1,) * tile.ndim)
    _check_divides(t, part.shape, tile.shape)
    indices = _subtile_index(t, index, tile.ndim)
    return wrap(t.value("insert", part.value, tile.value, indices), tile.dtype)


@name
def gather_axis(t: Trace, x: object, indices: object, /, axis: object = -1) -> Tile:
    """Elements chosen along `axis` by a tile of positions; the other coordinates stay."""
    tile, chosen = as_tile(t, x, what="`x`"), as_tile(t, indices, what="`indices`")
    position = t.static_axis(axis, tile.ndim)
    return wrap(t.value("gather", tile.value, chosen.value, axis=position), tile.dtype)


@name
def item(t: Trace, x: object, /) -> Tile:
    """The only element, as a scalar."""
    return reshape.implementation(t, x, ())


def matched(t: Trace, *tiles: object) -> tuple[Tile, ...]:
    """Tiles broadcast to their common shape."""
    found = [as_tile(t, tile, what="an operand") for tile in tiles]
    shape = broadcast_together(t, *(tile.shape for tile in found))
    return tuple(spread(t, tile, tile.dtype, shape) for tile in found)
