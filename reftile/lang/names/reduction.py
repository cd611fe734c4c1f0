"""Reductions and scans, with the usual functions and with the user's own."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from math import prod as product_of
from typing import Literal, cast

from reftile.lang.arithmetic import (
    add_sub_mul,
    as_tile,
    compare,
    convert,
    logical,
    min_max,
    select,
    wrap,
)
from reftile.lang.arithmetic import reshape as reshape_tile
from reftile.lang.dtypes import DType, bool_, int32
from reftile.lang.enums import RoundingMode
from reftile.lang.names.registry import name
from reftile.lang.names.shape import matched
from reftile.lang.trace import Trace, static_number
from reftile.lang.values import Number, Tile, as_items, describe

Combine = Callable[[Sequence[Tile], Sequence[Tile]], Sequence[Tile]]
Kind = Literal["reduce", "scan"]


def combine_along(
    t: Trace,
    kind: Kind,
    tiles: Sequence[Tile],
    axis: int,
    identities: Sequence[Number],
    combine: Combine,
    reverse: bool = False,
) -> tuple[Tile, ...]:
    """Build `reduce` or `scan`; `combine` takes what comes first and what comes next."""
    values = tuple(tile.value for tile in tiles)
    backwards = True if reverse else None
    op = t.op(kind, values, axis=axis, identities=tuple(identities), reverse=backwards)
    block = op.regions[0].block
    with t.inside(block):
        pairs = block.arguments
        elements = [wrap(v, tile.dtype) for v, tile in zip(pairs[0::2], tiles, strict=True)]
        accumulators = [wrap(v, tile.dtype) for v, tile in zip(pairs[1::2], tiles, strict=True)]
        results = combine(accumulators, elements)
        t.op("yield", tuple(r.value for r in results))
    impure = next((o for o in block.ops[:-1] if not o.definition.is_pure), None)
    if impure is not None:
        raise t.error(
            "reduce.pure",
            f"the function of a {kind} may only compute, and it does `{impure.name}`",
            span=impure.span,
        )
    return tuple(wrap(v, tile.dtype) for v, tile in zip(op.results, tiles, strict=True))


def _axes(t: Trace, axis: object, rank: int) -> tuple[int, ...]:
    if axis is None:
        return tuple(range(rank))
    items = as_items(axis)
    axes = tuple(t.static_axis(item, rank) for item in items)
    if len(set(axes)) != len(axes):
        raise t.error("axis", f"an axis is named twice: {axes}")
    return axes


def _simple(
    t: Trace,
    x: object,
    axis: object,
    keepdims: object,
    identity: Callable[[DType], Number],
    function: Callable[[Tile, Tile], Tile],
) -> Tile:
    tile = as_tile(t, x, what="`x`")
    if tile.dtype is bool_:
        tile = convert(t, tile, int32)
    if tile.dtype.category == "storage_float":
        raise t.error("dtype.arithmetic", f"{tile.dtype} has no arithmetic")
    axes, shape = _axes(t, axis, tile.ndim), tile.shape
    kept = tuple(1 if i in axes else e for i, e in enumerate(shape))
    if len(axes) == tile.ndim > 1:
        tile, axes = reshape_tile(t, tile, (product_of(shape),)), (0,)
    for position in sorted(axes, reverse=True):
        (tile,) = combine_along(
            t,
            "reduce",
            [tile],
            position,
            [identity(tile.dtype)],
            lambda before, after: [function(before[0], after[0])],
        )
    if t.static_bool(keepdims, "keepdims"):
        return reshape_tile(t, tile, kept)
    return tile


def _least(dtype: DType) -> Number:
    if dtype.is_float:
        return float("-inf")
    return -(1 << (dtype.bits - 1)) if dtype.signed else 0


def _greatest(dtype: DType) -> Number:
    if dtype.is_float:
        return float("inf")
    return (1 << (dtype.bits - 1)) - 1 if dtype.signed else (1 << dtype.bits) - 1


@name
def sum(
    t: Trace,
    x: object,
    /,
    axis: object = None,
    *,
    keepdims: object = False,
    rounding_mode: RoundingMode | None = None,
    flush_to_zero: object = False,
) -> Tile:
    """The sum along an axis, some axes, or all. Booleans are counted as int32."""
    flush = t.static_bool(flush_to_zero, "flush_to_zero")
    return _simple(
        t,
        x,
        axis,
        keepdims,
        lambda _: 0,
        lambda a, b: add_sub_mul(t, "add", a, b, rounding_mode, flush),
    )


@name
def prod(
    t: Trace,
    x: object,
    /,
    axis: object = None,
    *,
    keepdims: object = False,
    rounding_mode: RoundingMode | None = None,
    flush_to_zero: object = False,
) -> Tile:
    """The product along an axis, some axes, or all."""
    flush = t.static_bool(flush_to_zero, "flush_to_zero")
    return _simple(
        t,
        x,
        axis,
        keepdims,
        lambda _: 1,
        lambda a, b: add_sub_mul(t, "mul", a, b, rounding_mode, flush),
    )


@name
def max(
    t: Trace,
    x: object,
    /,
    axis: object = None,
    *,
    keepdims: object = False,
    flush_to_zero: object = False,
    propagate_nan: object = False,
) -> Tile:
    """The greatest along an axis, some axes, or all; NaN is ignored unless `propagate_nan`."""
    flush = t.static_bool(flush_to_zero, "flush_to_zero")
    nan = t.static_bool(propagate_nan, "propagate_nan")
    return _simple(t, x, axis, keepdims, _least, lambda a, b: min_max(t, "max", a, b, flush, nan))


@name
def min(
    t: Trace,
    x: object,
    /,
    axis: object = None,
    *,
    keepdims: object = False,
    flush_to_zero: object = False,
    propagate_nan: object = False,
) -> Tile:
    """The least along an axis, some axes, or all; NaN is ignored unless `propagate_nan`."""
    flush = t.static_bool(flush_to_zero, "flush_to_zero")
    nan = t.static_bool(propagate_nan, "propagate_nan")
    return _simple(
        t, x, axis, keepdims, _greatest, lambda a, b: min_max(t, "min", a, b, flush, nan)
    )


def _position(
    t: Trace, op: str, x: object, axis: object, keepdims: object, propagate_nan: object
) -> Tile:
    tile = as_tile(t, x, what="`x`")
    shape = tile.shape
    if axis is None:
        kept = (1,) * tile.ndim
        tile, position = reshape_tile(t, tile, (product_of(shape),)), 0
    else:
        position = t.static_axis(axis, tile.ndim)
        kept = (*shape[:position], 1, *shape[position + 1 :])
    keys = tile
    if tile.dtype.is_float and not t.static_bool(propagate_nan, "propagate_nan"):
        # NaN is ignored: it counts as the worst number. All NaN gives position 0, as all equal.
        worst = _least(tile.dtype) if op == "argmax" else _greatest(tile.dtype)
        keys = select(t, compare(t, "not_equal", tile, tile), worst, tile)
    value = t.value(op, keys.value, axis=position, signedness=tile.dtype.signedness)
    result = wrap(value, int32)
    return reshape_tile(t, result, kept) if t.static_bool(keepdims, "keepdims") else result


@name
def argmax(
    t: Trace,
    x: object,
    /,
    axis: object = None,
    *,
    keepdims: object = False,
    propagate_nan: object = False,
) -> Tile:
    """The first position of the greatest (int32), along an axis or in row-major order."""
    return _position(t, "argmax", x, axis, keepdims, propagate_nan)


@name
def argmin(
    t: Trace,
    x: object,
    /,
    axis: object = None,
    *,
    keepdims: object = False,
    propagate_nan: object = False,
) -> Tile:
    """The first position of the least (int32), along an axis or in row-major order."""
    return _position(t, "argmin", x, axis, keepdims, propagate_nan)


def _custom(
    t: Trace, kind: Kind, x: object, axis: object, func: object, identity: object, reverse: bool
) -> tuple[tuple[Tile, ...], bool, int]:
    several = isinstance(x, (tuple, list))
    sources = cast("Sequence[object]", x) if several else (x,)
    tiles = matched(t, *sources)
    numbers = as_items(identity)
    if len(numbers) != len(tiles):
        raise t.error(
            "reduce.identity",
            f"{len(tiles)} tiles need {len(tiles)} identities, found {len(numbers)}",
        )
    identities = [_identity(t, number) for number in numbers]
    position = t.static_axis(axis, tiles[0].ndim)

    def combine(before: Sequence[Tile], after: Sequence[Tile]) -> Sequence[Tile]:
        result = t.call(func, *before, *after)
        items = as_items(result)
        if len(items) != len(tiles):
            raise t.error(
                "reduce.results",
                f"the function must return {len(tiles)} values, found {describe(result)}",
            )
        return [_scalar(t, item, tile.dtype) for item, tile in zip(items, tiles, strict=True)]

    results = combine_along(t, kind, tiles, position, identities, combine, reverse)
    return results, several, position


def _scalar(t: Trace, item: object, dtype: DType) -> Tile:
    tile = as_tile(t, item, what="the function's result")
    if tile.shape:
        raise t.error("reduce.results", f"the function must return scalars, found {describe(tile)}")
    return convert(t, tile, dtype)


def _identity(t: Trace, value: object) -> Number:
    number = static_number(value)
    if number is None:
        raise t.error(
            "reduce.identity",
            f"`identity` must be a number known when compiling, found {describe(value)}",
        )
    return number


@name
def reduce(
    t: Trace,
    x: object,
    /,
    axis: object,
    func: object,
    identity: object,
    *,
    keepdims: object = False,
) -> object:
    """Combine the elements along an axis by `func`, which must be associative.

    For one tile, `func(a, b)` takes two scalars. For a tuple of N tiles it takes N scalars of what
    comes first and N of what comes next, and returns N.
    """
    tiles, several, position = _custom(t, "reduce", x, axis, func, identity, False)
    if t.static_bool(keepdims, "keepdims"):
        tiles = tuple(
            reshape_tile(t, r, (*r.shape[:position], 1, *r.shape[position:])) for r in tiles
        )
    return tiles if several else tiles[0]


@name
def scan(
    t: Trace,
    x: object,
    /,
    axis: object,
    func: object,
    identity: object,
    *,
    reverse: object = False,
) -> object:
    """All prefixes along an axis, combined by `func` as in `reduce`; from the end if `reverse`."""
    backwards = t.static_bool(reverse, "reverse")
    tiles, several, _ = _custom(t, "scan", x, axis, func, identity, backwards)
    return tiles if several else tiles[0]


def _scan(
    t: Trace,
    name: Literal["add", "mul"],
    x: object,
    axis: object,
    reverse: object,
    rounding: RoundingMode | None,
    flush_to_zero: object,
) -> Tile:
    tile = as_tile(t, x, what="`x`")
    tile = convert(t, tile, int32) if tile.dtype is bool_ else tile
    flush = t.static_bool(flush_to_zero, "flush_to_zero")
    return combine_along(
        t,
        "scan",
        [tile],
        t.static_axis(axis, tile.ndim),
        [0 if name == "add" else 1],
        lambda before, after: [add_sub_mul(t, name, before[0], after[0], rounding, flush)],
        t.static_bool(reverse, "reverse"),
    )[0]


@name
def cumsum(
    t: Trace,
    x: object,
    /,
    axis: object = 0,
    *,
    reverse: object = False,
    rounding_mode: RoundingMode | None = None,
    flush_to_zero: object = False,
) -> Tile:
    """Running sums along an axis."""
    return _scan(t, "add", x, axis, reverse, rounding_mode, flush_to_zero)


@name
def cumprod(
    t: Trace,
    x: object,
    /,
    axis: object = 0,
    *,
    reverse: object = False,
    rounding_mode: RoundingMode | None = None,
    flush_to_zero: object = False,
) -> Tile:
    """Running products along an axis."""
    return _scan(t, "mul", x, axis, reverse, rounding_mode, flush_to_zero)


@name
def any(t: Trace, x: object, /, axis: object = None, *, keepdims: object = False) -> Tile:
    """True where some element along an axis, some axes, or all, is."""
    return _boolean(t, "or", x, axis, keepdims)


@name
def all(t: Trace, x: object, /, axis: object = None, *, keepdims: object = False) -> Tile:
    """True where every element along an axis, some axes, or all, is."""
    return _boolean(t, "and", x, axis, keepdims)


def _boolean(t: Trace, op: Literal["and", "or"], x: object, axis: object, keepdims: object) -> Tile:
    tile = convert(t, as_tile(t, x, what="`x`"), bool_)
    axes, shape = _axes(t, axis, tile.ndim), tile.shape
    for position in sorted(axes, reverse=True):
        (tile,) = combine_along(
            t,
            "reduce",
            [tile],
            position,
            [op == "and"],
            lambda before, after: [logical(t, op, before[0], after[0])],
        )
    if t.static_bool(keepdims, "keepdims"):
        return reshape_tile(t, tile, tuple(1 if i in axes else e for i, e in enumerate(shape)))
    return tile
