"""Reductions and scans: the orders that spec/reduction.md fixes.

The region is evaluated once per level of the tree, on all elements of the level at once. Elements
are laid out with the tile's axes first and the batch axes behind them, so that what the region
takes from outside, which has the batch axes alone, broadcasts against them.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

import numpy as np

from reftile.interp.poison import mask_of
from reftile.interp.prepared import Prepared, RunRegion, prepared_meaning
from reftile.interp.values import Array, Report, Tile
from reftile.interp.vocabulary.floats import canonical
from reftile.interp.vocabulary.shapes import batch_of
from reftile.ir.core import Op
from reftile.ir.dtypes import F32, F64
from reftile.ir.types import Element, TileType

Combine = Callable[[Sequence[Tile], Sequence[Tile]], tuple[Tile, ...]]
"""`combine(elements, accumulators)`: the new accumulators."""


def evaluate_reduce(
    prepared: Prepared,
    tiles: Sequence[Tile],
    run_region: RunRegion | None,
    report: Report | None,
) -> tuple[Tile, ...]:
    """Combine neighbours in pairs until one is left."""
    axis, rank = prepared.integer("axis"), _rank(prepared)
    inner = prepared.single
    quick = None if inner is None else _quick_reduction(inner, tiles[0])
    if quick is not None:
        return (Tile(np.asarray(quick(tiles[0].data, axis - rank))),)
    combine = _combine(prepared, run_region, report)
    level = _tiles_first(tiles, rank)
    while (count := level[0].data.shape[axis]) > 1:
        even = count - count % 2
        before = [_cut(tile, axis, slice(0, even, 2)) for tile in level]
        after = [_cut(tile, axis, slice(1, even, 2)) for tile in level]
        combined = combine(after, before)
        rest = [_cut(tile, axis, slice(even, count)) for tile in level]
        level = [_joined(*pair, axis) for pair in zip(combined, rest, strict=True)]
    return tuple(_batch_first(_cut(tile, axis, 0), rank - 1, tiles, rank) for tile in level)


def evaluate_scan(
    prepared: Prepared,
    tiles: Sequence[Tile],
    run_region: RunRegion | None,
    report: Report | None,
) -> tuple[Tile, ...]:
    """Combine every position with the one d before it, for d = 1, 2, 4, ..."""
    axis, rank = prepared.integer("axis"), _rank(prepared)
    turn = slice(None, None, -1) if prepared.names["reverse"] else slice(None)
    inner = prepared.single
    at_once = None if inner is None else _order_free(inner, tiles[0])
    if at_once is not None:
        data = _along(tiles[0].data, axis - rank, turn)
        prefixes = at_once.accumulate(data, axis=axis - rank, dtype=data.dtype)
        return (Tile(_along(prefixes, axis - rank, turn)),)
    combine = _combine(prepared, run_region, report)
    level = [_cut(tile, axis, turn) for tile in _tiles_first(tiles, rank)]
    count, distance = level[0].data.shape[axis], 1
    while distance < count:
        before = [_cut(tile, axis, slice(0, count - distance)) for tile in level]
        after = [_cut(tile, axis, slice(distance, count)) for tile in level]
        combined = combine(after, before)
        first = [_cut(tile, axis, slice(0, distance)) for tile in level]
        level = [_joined(*pair, axis) for pair in zip(first, combined, strict=True)]
        distance *= 2
    return tuple(_batch_first(_cut(tile, axis, turn), rank, tiles, rank) for tile in level)


def _rank(prepared: Prepared) -> int:
    type = prepared.op.operands[0].type
    assert isinstance(type, TileType)
    return type.rank


# The region


def _combine(prepared: Prepared, run_region: RunRegion | None, report: Report | None) -> Combine:
    region, inner = prepared.op.regions[0], prepared.single
    if inner is not None and inner.definition.meaning:
        meaning = prepared_meaning(inner)
        element_first = inner.operands[0] is region.block.arguments[0]

        def apply(elements: Sequence[Tile], accumulators: Sequence[Tile]) -> tuple[Tile, ...]:
            pair = (elements[0], accumulators[0])
            return meaning(pair if element_first else pair[::-1], report)

        return apply

    assert run_region is not None

    def run(elements: Sequence[Tile], accumulators: Sequence[Tile]) -> tuple[Tile, ...]:
        pairs = zip(elements, accumulators, strict=True)
        yielded = run_region(region, tuple(tile for pair in pairs for tile in pair))
        # A region may yield what does not depend on its arguments, and so lacks their axes.
        return tuple(
            Tile(
                np.broadcast_to(new.data, np.broadcast_shapes(new.data.shape, old.data.shape)),
                new.poison,
            )
            for new, old in zip(yielded, elements, strict=True)
        )

    return run


# Quick ways for one operation on clean tiles


_ORDER_FREE = {
    "addi": np.add,
    "muli": np.multiply,
    "andi": np.bitwise_and,
    "ori": np.bitwise_or,
    "xori": np.bitwise_xor,
}
"""Operations on integers that give the same bits in every order, so that NumPy may choose one."""

_BY_PAIRS = {"addf": np.add, "mulf": np.multiply}
"""Operations that NumPy rounds as the spec does, in f32 and f64."""


def _order_free(inner: Op, tile: Tile) -> np.ufunc | None:
    if inner.attributes or tile.poison is not None:
        return None
    if tile.data.dtype == np.bool_ and inner.name in ("addi", "muli"):
        return None
    return _ORDER_FREE.get(inner.name)


def _quick_reduction(inner: Op, tile: Tile) -> Callable[[Array, int], Array] | None:
    order_free = _order_free(inner, tile)
    if order_free is not None:
        return lambda data, axis: order_free.reduce(data, axis=axis, dtype=data.dtype)
    if inner.attributes or tile.poison is not None or tile.data.dtype.kind != "f":
        return None
    if inner.name == "maxf":
        return _greatest
    by_pairs = _BY_PAIRS.get(inner.name)
    if by_pairs is None or _element(inner) not in (F32, F64):
        return None
    return lambda data, axis: _tree(by_pairs, data, axis)


def _element(op: Op) -> Element:
    type = op.results[0].type
    assert isinstance(type, TileType)
    return type.element


def _tree(combine: np.ufunc, data: Array, axis: int) -> Array:
    if data.shape[axis] == 1:
        return _along(data, axis, 0)
    data = data if axis == -1 else np.moveaxis(data, axis, -1)
    while (count := data.shape[-1]) > 1:
        if count % 2:
            combined = combine(data[..., :-1:2], data[..., 1::2])
            data = np.concatenate((combined, data[..., -1:]), axis=-1)
        else:
            data = combine(data[..., ::2], data[..., 1::2])
    return canonical(data[..., 0])


def _greatest(data: Array, axis: int) -> Array:
    if data.shape[axis] == 1:
        return _along(data, axis, 0)
    # Of a signalling NaN and a number, NumPy gives NaN in some of its loops.
    data = canonical(data)
    result = np.asarray(np.fmax.reduce(data, axis=axis))
    if (result == 0).any():
        # NumPy gives either of two zeros; +0 is the greater.
        positive = ((data == 0) & ~np.signbit(data)).any(axis=axis)
        result = np.where(result == 0, np.where(positive, 0.0, -0.0), result).astype(data.dtype)
    return canonical(result)


# Axes


def _tiles_first(tiles: Sequence[Tile], rank: int) -> list[Tile]:
    """The axes of the tiles in front of their batch axes, which all have the same extents.

    Tiles without batch axes get one of extent 1, in which what the region takes from outside may
    differ between blocks.
    """
    batch = np.broadcast_shapes(*(batch_of(tile.data, rank) for tile in tiles)) or (1,)
    return [_tile_first(tile, rank, batch) for tile in tiles]


def _tile_first(tile: Tile, rank: int, batch: tuple[int, ...]) -> Tile:
    def moved(source: Array) -> Array:
        shape = source.shape[source.ndim - rank :]
        filled = np.broadcast_to(source, (*batch, *shape))
        return np.moveaxis(filled, range(len(batch), len(batch) + rank), range(rank))

    return Tile(moved(tile.data), None if tile.poison is None else moved(mask_of(tile)))


def _batch_first(tile: Tile, rank: int, sources: Sequence[Tile], source_rank: int) -> Tile:
    """The inverse of `_tiles_first`; a batch axis that it added and nothing used goes."""
    added = all(source.data.ndim == source_rank for source in sources)

    def moved(source: Array) -> Array:
        turned = np.moveaxis(source, range(rank), range(source.ndim - rank, source.ndim))
        return turned[0] if added and turned.shape[0] == 1 else turned

    return Tile(moved(tile.data), None if tile.poison is None else moved(mask_of(tile)))


def _along(source: Array, axis: int, part: slice | int) -> Array:
    before = (slice(None),) * (axis % source.ndim)
    return source[(*before, part)]


def _cut(tile: Tile, axis: int, part: slice | int) -> Tile:
    poison = None if tile.poison is None else _along(mask_of(tile), axis, part)
    return Tile(_along(tile.data, axis, part), poison)


def _joined(first: Tile, second: Tile, axis: int) -> Tile:
    """One behind the other; the second may be empty, and batch axes may differ."""
    if second.data.shape[axis] == 0:
        return first
    shape = list(np.broadcast_shapes(_without(first, axis), _without(second, axis)))

    def both(one: Array, other: Array) -> Array:
        parts: list[Array] = []
        for source in (one, other):
            shape[axis] = source.shape[axis]
            parts.append(np.broadcast_to(source, shape))
        return np.concatenate(parts, axis=axis)

    data = both(first.data, second.data)
    if first.poison is None and second.poison is None:
        return Tile(data)
    return Tile(data, both(mask_of(first), mask_of(second)))


def _without(tile: Tile, axis: int) -> tuple[int, ...]:
    return (*tile.data.shape[:axis], 1, *tile.data.shape[axis + 1 :])
