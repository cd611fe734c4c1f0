"""Batches: blocks that run together, how they part, and how their values come together again.

A batch has *batch axes*. Blocks of any numbers lie along one axis. Whole rows of the grid lie along
two, (rows, blocks of a row), so that what depends on the row alone, or on the place in it alone,
has an extent of 1 along the other axis and is loaded and computed once for all of them. A value
that is the same for all blocks has no batch axes at all.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from math import prod
from typing import Any

import numpy as np
from numpy.typing import NDArray

from reftile.interp.memory import Buffer, Memory
from reftile.interp.values import Array, Tile
from reftile.ir.core import Op

Rows = NDArray[np.int64]
Index3 = tuple[int, int, int]
Shape = tuple[int, ...]


@dataclass(slots=True, eq=False)
class Batch:
    """Some blocks that run together.

    blocks: their numbers in the grid, ascending. lead: the extents of the batch axes; their product
    is the number of blocks. env: by slot. report: None, so that pure operations check nothing.
    everyone: the row in `blocks` of each block.
    spans: what is known about index arrays (see `batched_memory`), by their ids.
    """

    blocks: Rows
    lead: Shape
    env: list[Any]
    shared: Shared
    report: None = None
    everyone: Rows = field(init=False)
    spans: dict[int, Any] = field(default_factory=dict[int, Any])

    def __post_init__(self) -> None:
        self.everyone = np.arange(self.blocks.size)


@dataclass(slots=True, eq=False)
class Shared:
    """What all batches of a launch share.

    ranks: of the tile in each slot, -1 for other values. at: the operation that runs. done: blocks
    of the batches that have ended. tick: called at each iteration of a loop.
    """

    grid: Index3
    memory: Memory
    globals: dict[str, Buffer]
    ranks: list[int] = field(default_factory=list[int])
    at: Op | None = None
    done: int = 0
    tick: Callable[[], None] | None = None


@dataclass(slots=True)
class Part:
    """Blocks that left a region together: how, with which values, as which rows of its batch.

    Parts beside each other have one batch axis; a part that is the whole batch has those of it.
    """

    ending: str
    rows: Rows
    values: list[Any]


def divide(grid: Index3, most: int) -> Iterator[tuple[Rows, Shape]]:
    """(blocks, batch axes) of the batches of a grid, of at most `most` blocks each."""
    row, rows = grid[0], grid[1] * grid[2]
    together = most // row
    if row == 1 or rows == 1 or together < 2:
        for start in range(0, row * rows, most):
            blocks = np.arange(start, min(start + most, row * rows))
            yield blocks, blocks.shape
        return
    for start in range(0, rows, together):
        count = min(together, rows - start)
        yield np.arange(start * row, (start + count) * row), (count, row)


def block_ids(batch: Batch) -> tuple[Array, Array, Array]:
    """The coordinates of the blocks along the axes of the grid."""
    x, y, z = batch.shared.grid
    if len(batch.lead) == 2:
        within, row = np.arange(x)[None, :], batch.blocks[::x, None] // x
    else:
        within, row = batch.blocks % x, batch.blocks // x
    nothing = np.zeros((), np.int64)
    return (
        within if x > 1 else nothing,
        row % y if y > 1 else nothing,
        row // y if z > 1 else nothing,
    )


def lead_of(rank: int, *tiles: Tile | None) -> Shape:
    """The batch axes that tiles of a rank have together, () if they have none."""
    shapes = [t.data.shape[: t.data.ndim - rank] for t in tiles if t is not None]
    return np.broadcast_shapes(*shapes)


def as_rows(data: Array, rank: int, lead: Shape) -> Array:
    """Data with one batch axis, along which all blocks are."""
    shape = data.shape[data.ndim - rank :]
    return np.broadcast_to(data, (*lead, *shape)).reshape((prod(lead), *shape))


def select(batch: Batch, rows: Rows) -> Batch:
    """The batch of some rows."""
    ranks = batch.shared.ranks
    env = [select_value(v, r, rows, batch.lead) for v, r in zip(batch.env, ranks, strict=True)]
    return Batch(batch.blocks[rows], rows.shape, env, batch.shared)


def select_value(value: Any, rank: int, rows: Rows, lead: Shape) -> Any:
    """The part of a value that belongs to some rows; rank: of the tile, without batch axes."""
    if not isinstance(value, Tile):
        return value
    poison = value.poison
    if poison is not None:
        poison = _select(poison, rank, rows, lead)
    return Tile(_select(value.data, rank, rows, lead), poison)


def _select(data: Array, rank: int, rows: Rows, lead: Shape) -> Array:
    if data.ndim <= rank:
        return data
    places = np.unravel_index(rows, lead)
    extents = data.shape[: data.ndim - rank]
    if all(extent == 1 for extent in extents):
        return data.reshape(data.shape[len(extents) :])
    return data[tuple(p if e > 1 else 0 for p, e in zip(places, extents, strict=True))]


def join_parts(parts: list[Part], which: int, rank: int, lead: Shape) -> Any:
    """The values that parts have at one position, in the order of their rows.

    lead: the batch axes of the batch that the parts make up.
    """
    values = [p.values[which] for p in parts]
    first = values[0]
    if len(parts) == 1 or not isinstance(first, Tile):
        return first
    rows = np.concatenate([p.rows for p in parts])
    order = np.argsort(rows, kind="stable")
    data = [as_rows(v.data, rank, p.rows.shape) for v, p in zip(values, parts, strict=True)]
    poison = None
    if any(v.poison is not None for v in values):
        masks = [
            np.broadcast_to(False if v.poison is None else v.poison, d.shape)
            for v, d in zip(values, data, strict=True)
        ]
        poison = _joined(masks, order, lead)
    return Tile(_joined(data, order, lead), poison)


def _joined(arrays: list[Array], order: Rows, lead: Shape) -> Array:
    rows = np.concatenate(arrays)[order]
    return rows.reshape((*lead, *rows.shape[1:]))
