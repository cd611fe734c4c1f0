"""Loads and stores.

Every access may be given `token=`. Then it waits for that token alone, no order is inserted for it,
and it returns a token: a load returns `(tile, token)`, a store returns the token.
"""

from __future__ import annotations

from typing import cast

from reftile.ir.core import Value
from reftile.ir.types import TileType
from reftile.lang.arithmetic import as_tile, broadcast, floor_divide, operand, spread, wrap
from reftile.lang.arithmetic import reshape as reshape_tile
from reftile.lang.dtypes import DType
from reftile.lang.enums import MemoryOrder, MemoryScope, PaddingMode
from reftile.lang.names.registry import name
from reftile.lang.names.views import (
    axis_order,
    element_pointers,
    hints,
    index_scalar,
    index_value,
    need_array,
    need_padding,
    order_and_scope,
    sparse_view,
    tile_index,
    tile_view,
)
from reftile.lang.promote import promote, promote_weak
from reftile.lang.trace import Trace
from reftile.lang.values import Array, Slice, Tile, Token, as_items, describe


def with_token(t: Trace, token: object, result: Tile, new: Value) -> object:
    """What a load returns: the tile, with its token if one was given."""
    return result if token is None else (result, Token(new))


def only_token(t: Trace, token: object, new: Value) -> object:
    """What a store returns: its token, if one was given."""
    return None if token is None else Token(new)


def given_token(t: Trace, token: object) -> Value | None:
    """The token operand of an access."""
    return None if token is None else t.token(token)


def stored(t: Trace, value: object, dtype: DType, what: str = "the stored value") -> Tile:
    """A value in the dtype of the memory it goes to, if promotion leads there."""
    found = operand(t, value, what)
    if isinstance(found, Tile):
        name, fits = found.dtype.name, promote(found.dtype, dtype) is dtype
    else:
        name, fits = repr(found), promote_weak(dtype, found) in (dtype, None)
    if not fits:
        raise t.error(
            "dtype.store",
            f"{what} is {name}, and the array holds {dtype.name}",
            f"convert it: .astype(ct.{dtype.name})",
        )
    return as_tile(t, found, dtype)


def _inbounds(t: Trace, check_bounds: object, rank: int) -> tuple[bool, ...] | None:
    return None if t.static_bool(check_bounds, "check_bounds") else (True,) * rank


def _need_rank(t: Trace, array: Array, tile: tuple[int, ...]) -> None:
    if len(tile) != array.ndim:
        raise t.error(
            "shape.rank",
            f"a tile of shape {tile} has rank {len(tile)}, and {describe(array)} has {array.ndim}",
            "a tile has one extent for each axis of the array",
        )


@name
def load(
    t: Trace,
    array: object,
    /,
    index: object,
    shape: object,
    *,
    order: object = "C",
    padding_mode: object = PaddingMode.UNDETERMINED,
    check_bounds: object = True,
    latency: object = None,
    allow_tma: object = None,
    memory_order: object = MemoryOrder.WEAK,
    memory_scope: object = MemoryScope.NONE,
    token: object = None,
) -> object:
    """The tile number `index` of the array cut into tiles of `shape`.

    order: "C", "F" or the array axis of each tile axis. padding_mode: what elements outside the
    array are. check_bounds=False promises that there are none.
    """
    source = need_array(t, array)
    extents = t.static_shape(shape)
    scalar = not extents
    tile = extents or (1,) * source.ndim
    _need_rank(t, source, tile)
    view = tile_view(
        t, source, tile, axis_order(t, order, source.ndim), need_padding(t, padding_mode)
    )
    ordering, scope = order_and_scope(t, memory_order, memory_scope)
    op = t.op(
        "load_view_tko",
        view,
        tile_index(t, index, source.ndim),
        given_token(t, token),
        ordering=ordering,
        scope=scope,
        inbounds=_inbounds(t, check_bounds, source.ndim),
        hints=hints(t, latency, allow_tma),  # type: ignore[arg-type]
    )
    result = wrap(op.results[0], source.dtype)
    result = reshape_tile(t, result, ()) if scalar else result
    return with_token(t, token, result, op.results[1])


@name
def store(
    t: Trace,
    array: object,
    /,
    index: object,
    tile: object,
    *,
    order: object = "C",
    check_bounds: object = True,
    latency: object = None,
    allow_tma: object = None,
    memory_order: object = MemoryOrder.WEAK,
    memory_scope: object = MemoryScope.NONE,
    token: object = None,
) -> object:
    """Store a tile as number `index` of the array cut into tiles of its shape.

    Elements outside the array are not stored. A scalar is a tile with one element.
    """
    target = need_array(t, array)
    value = stored(t, tile, target.dtype)
    if not value.shape:
        value = reshape_tile(t, value, (1,) * target.ndim)
    _need_rank(t, target, value.shape)
    axes = axis_order(t, order, target.ndim)
    view = tile_view(t, target, value.shape, axes, PaddingMode.UNDETERMINED)
    ordering, scope = order_and_scope(t, memory_order, memory_scope)
    op = t.op(
        "store_view_tko",
        value.value,
        view,
        tile_index(t, index, target.ndim),
        given_token(t, token),
        ordering=ordering,
        scope=scope,
        inbounds=_inbounds(t, check_bounds, target.ndim),
        hints=hints(t, latency, allow_tma),  # type: ignore[arg-type]
    )
    return only_token(t, token, op.results[0])


@name
def num_tiles(
    t: Trace, array: object, /, axis: object, shape: object, order: object = "C"
) -> object:
    """The number of tiles of `shape` along a tile axis of the array."""
    source = need_array(t, array)
    tile = t.static_shape(shape) or (1,) * source.ndim
    _need_rank(t, source, tile)
    position = t.static_axis(axis, source.ndim)
    extent = source.shape[axis_order(t, order, source.ndim)[position]]
    if isinstance(extent, int):
        return -(-extent // tile[position])
    return floor_divide(t, index_value(t, extent), tile[position], "cdiv")


@name
def gather(
    t: Trace,
    array: object,
    indices: object,
    /,
    *,
    mask: object = None,
    padding_value: object = 0,
    check_bounds: object = True,
    latency: object = None,
    memory_order: object = MemoryOrder.WEAK,
    memory_scope: object = MemoryScope.NONE,
    token: object = None,
) -> object:
    """The elements at `indices`, one integer tile for each axis; they broadcast together.

    Elements that the mask leaves out or that lie outside the array are `padding_value`.
    """
    source = need_array(t, array)
    pointers, allowed, shape = element_pointers(t, source, indices, mask, check_bounds)
    return load_pointers(
        t,
        source.dtype,
        pointers,
        allowed,
        shape,
        padding_value,
        order_and_scope(t, memory_order, memory_scope),
        latency,
        token,
    )


def load_pointers(
    t: Trace,
    dtype: DType,
    pointers: Value,
    allowed: Value | None,
    shape: tuple[int, ...],
    padding_value: object,
    order: tuple[str, str | None],
    latency: object,
    token: object,
) -> object:
    """Build `load_ptr_tko`."""
    padding = None
    if allowed is not None and padding_value is not None:
        filler = as_tile(t, padding_value, what="`padding_value`")
        padding = spread(t, filler, dtype, shape).value
    op = t.op(
        "load_ptr_tko",
        pointers,
        allowed,
        padding,
        given_token(t, token),
        ordering=order[0],
        scope=order[1],
        hints=hints(t, latency, None),  # type: ignore[arg-type]
    )
    return with_token(t, token, wrap(op.results[0], dtype), op.results[1])


@name
def scatter(
    t: Trace,
    array: object,
    indices: object,
    value: object,
    /,
    *,
    mask: object = None,
    check_bounds: object = True,
    latency: object = None,
    memory_order: object = MemoryOrder.WEAK,
    memory_scope: object = MemoryScope.NONE,
    token: object = None,
) -> object:
    """Store elements at `indices`, as `gather` finds them. Two at one place race."""
    target = need_array(t, array)
    pointers, allowed, shape = element_pointers(t, target, indices, mask, check_bounds)
    order = order_and_scope(t, memory_order, memory_scope)
    return store_pointers(t, target.dtype, pointers, allowed, shape, value, order, latency, token)


def store_pointers(
    t: Trace,
    dtype: DType,
    pointers: Value,
    allowed: Value | None,
    shape: tuple[int, ...],
    value: object,
    order: tuple[str, str | None],
    latency: object,
    token: object,
) -> object:
    """Build `store_ptr_tko`."""
    elements = broadcast(t, stored(t, value, dtype), shape)
    op = t.op(
        "store_ptr_tko",
        pointers,
        elements.value,
        allowed,
        given_token(t, token),
        ordering=order[0],
        scope=order[1],
        hints=hints(t, latency, None),  # type: ignore[arg-type]
    )
    return only_token(t, token, op.results[0])


# Rows by number


def _sparse(
    t: Trace, array: Array, indices: object, padding: PaddingMode
) -> tuple[Value, tuple[Value, ...]]:
    items = as_items(indices)
    sparse = [i for i, item in enumerate(items) if isinstance(item, Tile) and item.ndim == 1]
    dense = [item for item in items if isinstance(item, Slice)]
    if len(items) != array.ndim or len(sparse) != 1 or len(dense) != array.ndim - 1:
        raise t.error(
            "index.sparse",
            f"`indices` needs one rank-1 tile and {array.ndim - 1} slices, found {describe(items)}",
            "for example (rows, ct.Slice(0, 64))",
        )
    shape: list[int] = []
    operands: list[Value] = []
    for item in items:
        if isinstance(item, Slice):
            shape.append(t.static_shape(item.length, "length")[0])
            operands.append(index_scalar(t, item.start).value)
        else:
            rows = t.tile(item, "indices")
            shape.append(rows.shape[0])
            operands.append(rows.value)
    return sparse_view(t, array, tuple(shape), sparse[0], padding), tuple(operands)


@name
def load_advanced_indexing(
    t: Trace,
    array: object,
    indices: object,
    /,
    *,
    padding_mode: object = PaddingMode.UNDETERMINED,
    latency: object = None,
    allow_tma: object = None,
    token: object = None,
) -> object:
    """The rows named by a rank-1 tile of numbers, cut by `Slice`s along the other axes."""
    source = need_array(t, array)
    view, index = _sparse(t, source, indices, need_padding(t, padding_mode))
    op = t.op(
        "load_view_tko",
        view,
        index,
        given_token(t, token),
        ordering="weak",
        hints=hints(t, latency, allow_tma),  # type: ignore[arg-type]
    )
    return with_token(t, token, wrap(op.results[0], source.dtype), op.results[1])


@name
def store_advanced_indexing(
    t: Trace,
    array: object,
    indices: object,
    tile: object,
    /,
    *,
    latency: object = None,
    allow_tma: object = None,
    token: object = None,
) -> object:
    """Store rows by number; see `load_advanced_indexing`. One number twice is a race."""
    target = need_array(t, array)
    view, index = _sparse(t, target, indices, PaddingMode.UNDETERMINED)
    shape = cast("TileType", view.type.tile_type).shape  # type: ignore[attr-defined]
    value = broadcast(t, stored(t, tile, target.dtype), shape)
    op = t.op(
        "store_view_tko",
        value.value,
        view,
        index,
        given_token(t, token),
        ordering="weak",
        hints=hints(t, latency, allow_tma),  # type: ignore[arg-type]
    )
    return only_token(t, token, op.results[0])


# Tokens


@name
def make_token(t: Trace) -> Token:
    """A token that waits for nothing."""
    return Token(t.value("make_token"))


@name
def join_tokens(t: Trace, *tokens: object) -> Token:
    """A token that waits for everything that `tokens` wait for."""
    values = tuple(cast("Value", t.token(token)) for token in tokens)
    return Token(t.value("join_tokens", values))


@name
def grid_dependency_control_wait(t: Trace) -> None:
    """Wait for the launches that this one depends on."""
    t.op("gdc_wait_tko")


@name
def grid_dependency_control_launch_dependents(t: Trace) -> None:
    """Allow launches that depend on this one to begin."""
    t.op("gdc_launch_dependents_tko")
