"""Blocks of the grid, and tiles made from nothing."""

from __future__ import annotations

from reftile.ir.types import TileType
from reftile.lang.arithmetic import add_sub_mul, as_tile, convert, operand, wrap
from reftile.lang.arithmetic import reshape as reshape_tile
from reftile.lang.dtypes import DType, as_dtype, int32
from reftile.lang.names.registry import name
from reftile.lang.trace import Trace
from reftile.lang.values import Tile, describe, items_of


def need_dtype(t: Trace, value: object, what: str = "dtype") -> DType:
    """The dtype that an argument means, or a diagnosis."""
    found = as_dtype(value)
    if found is None:
        raise t.error(
            "type.dtype",
            f"`{what}` must be a dtype, found {describe(value)}",
            "for example ct.float32, np.float32 or torch.float32",
        )
    return found


def _coordinate(t: Trace, op: str, axis: object) -> Tile:
    number = t.static_int(axis, "axis")
    if number not in (0, 1, 2):
        raise t.error("axis", f"a grid has the axes 0, 1 and 2, found {number}")
    return wrap(t.op(op).results[number], int32)


@name
def bid(t: Trace, axis: object) -> Tile:
    """The coordinate of this block along an axis of the grid (int32)."""
    return _coordinate(t, "get_tile_block_id", axis)


@name
def num_blocks(t: Trace, axis: object) -> Tile:
    """The number of blocks along an axis of the grid (int32)."""
    return _coordinate(t, "get_num_tile_blocks", axis)


@name
def arange(
    t: Trace, size: object, /, *, dtype: object, start: object = 0, step: object = 1
) -> Tile:
    """The tile `start, start + step, ...` of `size` elements."""
    target = need_dtype(t, dtype)
    extent = t.static_shape(size, "size")
    counter = target if target.is_int else int32
    tile = wrap(t.value("iota", types=[TileType(extent, counter.element)]), counter)
    tile = convert(t, tile, target)
    if step != 1:
        tile = add_sub_mul(t, "mul", tile, convert_scalar(t, step, target, "step"))
    if start != 0:
        tile = add_sub_mul(t, "add", tile, convert_scalar(t, start, target, "start"))
    return tile


def convert_scalar(t: Trace, value: object, dtype: DType, what: str) -> Tile:
    """A scalar of `dtype`."""
    tile = as_tile(t, value, dtype, f"`{what}`")
    if tile.shape:
        raise t.error("shape.scalar", f"`{what}` must be a scalar, found {describe(tile)}")
    return tile


@name
def full(t: Trace, shape: object, fill_value: object, dtype: object) -> Tile:
    """A tile in which every element is `fill_value`."""
    target = need_dtype(t, dtype)
    extents = t.static_shape(shape)
    number = operand(t, fill_value, "`fill_value`")
    if isinstance(number, Tile):
        scalar = convert_scalar(t, number, target, "fill_value")
        value = reshape_tile(t, scalar, (1,) * len(extents)).value
        type = TileType(extents, target.element)
        return wrap(t.value("broadcast", value, types=[type]) if extents else value, target)
    if target.is_int:
        number = int(number)
    return Tile(t.constant(number, target, extents), target, number if not extents else None)


@name
def zeros(t: Trace, shape: object, dtype: object) -> Tile:
    """A tile of zeros."""
    return full.implementation(t, shape, 0, dtype)


@name
def ones(t: Trace, shape: object, dtype: object) -> Tile:
    """A tile of ones."""
    return full.implementation(t, shape, 1, dtype)


@name
def astile(t: Trace, value: object, /, *, dtype: object) -> Tile:
    """The tile that a scalar, or nested tuples of scalars, write out."""
    return _nested(t, value, need_dtype(t, dtype))


def _nested(t: Trace, value: object, dtype: DType) -> Tile:
    found = items_of(value)
    if found is None:
        return convert_scalar(t, value, dtype, "value")
    items = [_nested(t, item, dtype) for item in found]
    if not items:
        raise t.error("shape.positive", "an empty tuple writes no tile")
    if len({item.shape for item in items}) != 1:
        raise t.error("shape.nested", "tuples at one depth must have the same length")
    parts = [reshape_tile(t, item, (1, *item.shape)).value for item in items]
    value = parts[0]
    for part in parts[1:]:
        value = t.value("cat", value, part, axis=0)
    return wrap(value, dtype)
