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
from reftile.interp.vocabulary.shapes import batch_of
from reftile.ir.core import Op, Region
from reftile.ir.types import TileType

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
    at_once = _order_free(prepared.op.regions[0], tiles)
    if at_once is not None:
        return (
            Tile(
                np.asarray(
                    at_once.reduce(tiles[0].data, axis=axis - rank, dtype=tiles[0].data.dtype)
                )
            ),
        )
    combine = _combine(prepared.op.regions[0], run_region, report)
    level = [_tile_first(tile, rank, _batch_rank(tiles, rank)) for tile in tiles]
    while (count := level[0].data.shape[axis]) > 1:
        even = count - count % 2
        before = [_cut(tile, axis, slice(0, even, 2)) for tile in level]
        after = [_cut(tile, axis, slice(1, even, 2)) for tile in level]
        combined = combine(after, before)
        rest = [_cut(tile, axis, slice(even, count)) for tile in level]
        level = [_joined(*pair, axis) for pair in zip(combined, rest, strict=True)]
    return tuple(_batch_first(_cut(tile, axis, 0), rank - 1) for tile in level)


def evaluate_scan(
    prepared: Prepared,
    tiles: Sequence[Tile],
    run_region: RunRegion | None,
    report: Report | None,
) -> tuple[Tile, ...]:
    """Combine every position with the one d before it, for d = 1, 2, 4, ..."""
    axis, rank = prepared.integer("axis"), _rank(prepared)
    turn = slice(None, None, -1) if prepared.names["reverse"] else slice(None)
    at_once = _order_free(prepared.op.regions[0], tiles)
    if at_once is not None:
        turned = _along(tiles[0].data, axis - rank, turn)
        return (
            Tile(
                _along(
                    at_once.accumulate(turned, axis=axis - rank, dtype=turned.dtype),
                    axis - rank,
                    turn,
                )
            ),
        )
    combine = _combine(prepared.op.regions[0], run_region, report)
    level = [_cut(_tile_first(t, rank, _batch_rank(tiles, rank)), axis, turn) for t in tiles]
    count, distance = level[0].data.shape[axis], 1
    while distance < count:
        before = [_cut(tile, axis, slice(0, count - distance)) for tile in level]
        after = [_cut(tile, axis, slice(distance, count)) for tile in level]
        combined = combine(after, before)
        first = [_cut(tile, axis, slice(0, distance)) for tile in level]
        level = [_joined(*pair, axis) for pair in zip(first, combined, strict=True)]
        distance *= 2
    return tuple(_batch_first(_cut(tile, axis, turn), rank) for tile in level)


def _rank(prepared: Prepared) -> int:
    type = prepared.op.operands[0].type
    assert isinstance(type, TileType)
    return type.rank


# The region


def _combine(region: Region, run_region: RunRegion | None, report: Report | None) -> Combine:
    inner = _single_op(region)
    if inner is not None and inner.definition.meaning:
        prepared = prepared_meaning(inner)
        element_first = inner.operands[0] is region.block.arguments[0]

        def apply(elements: Sequence[Tile], accumulators: Sequence[Tile]) -> tuple[Tile, ...]:
            pair = (elements[0], accumulators[0])
            return prepared(pair if element_first else pair[::-1], report)

        return apply

    assert run_region is not None

    def run(elements: Sequence[Tile], accumulators: Sequence[Tile]) -> tuple[Tile, ...]:
        pairs = zip(elements, accumulators, strict=True)
        yielded = run_region(region, tuple(tile for pair in pairs for tile in pair))
        # A region may yield what does not depend on its arguments, and so lacks their axes.
        return tuple(
            Tile(np.broadcast_to(new.data, old.data.shape), new.poison)
            for new, old in zip(yielded, elements, strict=True)
        )

    return run


def _single_op(region: Region) -> Op | None:
    """The operation of a region that yields one operation on element and accumulator."""
    arguments, ops = region.block.arguments, region.block.ops
    if len(arguments) != 2 or len(ops) != 2:
        return None
    inner = ops[0]
    takes_both = inner.operands in (tuple(arguments), tuple(arguments[::-1]))
    if not takes_both or inner.regions or tuple(ops[1].operands) != inner.results:
        return None
    return inner


_ORDER_FREE = {
    "addi": np.add,
    "muli": np.multiply,
    "andi": np.bitwise_and,
    "ori": np.bitwise_or,
    "xori": np.bitwise_xor,
}
"""Operations on integers that give the same bits in every order, so that NumPy may choose one."""


def _order_free(region: Region, tiles: Sequence[Tile]) -> np.ufunc | None:
    inner = _single_op(region)
    if inner is None or inner.attributes or tiles[0].poison is not None:
        return None
    if tiles[0].data.dtype == np.bool_ and inner.name in ("addi", "muli"):
        return None
    return _ORDER_FREE.get(inner.name)


# Axes


def _batch_rank(tiles: Sequence[Tile], rank: int) -> int:
    return max(tile.data.ndim - rank for tile in tiles)


def _tile_first(tile: Tile, rank: int, batch_rank: int) -> Tile:
    """The tile's axes in front of its batch axes, which are filled up with axes of extent 1."""

    def moved(source: Array) -> Array:
        batch = batch_of(source, rank)
        filled = source.reshape((1,) * (batch_rank - len(batch)) + source.shape)
        return np.moveaxis(filled, range(batch_rank, batch_rank + rank), range(rank))

    return Tile(moved(tile.data), None if tile.poison is None else moved(mask_of(tile)))


def _batch_first(tile: Tile, rank: int) -> Tile:
    """The inverse of `_tile_first`."""

    def moved(source: Array) -> Array:
        return np.moveaxis(source, range(rank), range(source.ndim - rank, source.ndim))

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
