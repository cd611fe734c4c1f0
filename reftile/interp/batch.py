"""Batches: blocks that run together, how they part, and how their values come together again."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

import numpy as np
from numpy.typing import NDArray

from reftile.interp.memory import Buffer, Memory
from reftile.interp.values import Tile

Rows = NDArray[np.int64]
Index3 = tuple[int, int, int]


@dataclass(slots=True, eq=False)
class Batch:
    """Some blocks that run together.

    blocks: their numbers in the grid. env: by slot; a tile has a leading axis for the blocks, or
    none if all have the same. report: None, so that pure operations check nothing.
    """

    blocks: Rows
    env: list[Any]
    shared: Shared
    report: None = None


@dataclass(slots=True, eq=False)
class Shared:
    """What all batches of a launch share. ranks: of the tile in each slot, -1 for other values."""

    grid: Index3
    memory: Memory
    globals: dict[str, Buffer]
    ranks: list[int] = field(default_factory=list[int])


@dataclass(slots=True)
class Part:
    """Blocks that left a region together: how, with which values, as which rows of its batch."""

    ending: str
    rows: Rows
    values: list[Any]


def select(batch: Batch, rows: Rows) -> Batch:
    """The batch of some rows."""
    env = [select_value(v, r, rows) for v, r in zip(batch.env, batch.shared.ranks, strict=True)]
    return Batch(batch.blocks[rows], env, batch.shared)


def select_value(value: Any, rank: int, rows: Rows) -> Any:
    """The part of a value that belongs to some rows; rank: of the tile, without the batch axis."""
    if not isinstance(value, Tile):
        return value
    poison = value.poison
    if value.data.ndim > rank:
        if poison is not None and poison.ndim > rank:
            poison = poison[rows] if poison.shape[0] > 1 else poison
        return Tile(value.data[rows], poison)
    if poison is not None and poison.ndim > rank and poison.shape[0] > 1:
        return Tile(value.data, poison[rows])
    return value


def join_parts(parts: list[Part], which: int, rank: int) -> Any:
    """The values that parts have at one position, in the order of their rows."""
    values = [p.values[which] for p in parts]
    first = values[0]
    if len(parts) == 1 or not isinstance(first, Tile):
        return first
    rows = np.concatenate([p.rows for p in parts])
    order = np.argsort(rows, kind="stable")
    data = [_spread(v.data, rank, p.rows.size) for v, p in zip(values, parts, strict=True)]
    poison = None
    if any(v.poison is not None for v in values):
        masks = [
            np.broadcast_to(False if v.poison is None else v.poison, d.shape)
            for v, d in zip(values, data, strict=True)
        ]
        poison = np.concatenate(masks)[order]
    return Tile(np.concatenate(data)[order], poison)


def _spread(data: Any, rank: int, count: int) -> Any:
    if data.ndim > rank:
        return np.broadcast_to(data, (count, *data.shape[1:]))
    return np.broadcast_to(data, (count, *data.shape))
