"""How poison spreads: one function per class that a record may name.

Each takes the prepared operation and its operands by port, at least one of them with
poison, and returns the mask of poison in the results. Masks broadcast to the data they belong to,
and may lack axes.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any, Protocol, TypeAlias

import numpy as np

from reftile.interp.values import Array, Mask, Tile
from reftile.interp.vocabulary.shapes import batch_of, gather, spread
from reftile.ir.define import Definition
from reftile.ir.dtypes import DType

Operand: TypeAlias = "Tile | tuple[Tile, ...] | None"


class Prepared(Protocol):
    """What is asked of a prepared operation; `interp.prepared` has the class and its words."""

    definition: Definition
    compute: Callable[..., Any]
    ranks: tuple[int, ...]
    result_rank: int
    result_shape: tuple[int, ...]

    def integer(self, name: str) -> int:
        """The value of an integer attribute."""
        ...

    def dtype(self, name: str) -> DType:
        """The element type that a name stands for."""
        ...


Spread: TypeAlias = Callable[[Prepared, Sequence[Operand]], Mask]

NOTHING: Mask = np.zeros((), np.bool_)


def tiles_of(operand: Operand) -> tuple[Tile, ...]:
    """The tiles at one port."""
    if operand is None:
        return ()
    return operand if isinstance(operand, tuple) else (operand,)


def mask_of(tile: Tile) -> Mask:
    """The mask with all the axes of the data."""
    mask = NOTHING if tile.poison is None else tile.poison
    return np.broadcast_to(mask, tile.data.shape)


def all_tiles(operands: Sequence[Operand]) -> tuple[Tile, ...]:
    """The tiles at all ports, in order."""
    return tuple(tile for operand in operands for tile in tiles_of(operand))


def elementwise(prepared: Prepared, operands: Sequence[Operand]) -> Mask:
    """An element is poison if one at its place is; a scalar among tiles stands for every place."""
    result = NOTHING
    for rank, operand in zip(prepared.ranks, operands, strict=True):
        for tile in tiles_of(operand):
            if tile.poison is None:
                continue
            missing = prepared.result_rank - rank
            result = result | (spread(mask_of(tile), (1,) * missing) if missing else tile.poison)
    return result


def select(prepared: Prepared, operands: Sequence[Operand]) -> Mask:
    """The condition's poison, and that of the elements chosen."""
    condition, if_true, if_false = all_tiles(operands)
    chosen = np.where(condition.data, mask_of(if_true), mask_of(if_false))
    return mask_of(condition) | chosen


def structural(prepared: Prepared, operands: Sequence[Operand]) -> Mask:
    """Masks move as elements do. A poisoned index makes everything poison."""
    moved: list[Array | tuple[Array, ...] | None] = []
    everything = NOTHING
    for port, operand in zip(prepared.definition.operands, operands, strict=True):
        if port.multiplicity == "one":
            moved.extend(mask_of(tile) for tile in tiles_of(operand))
            continue
        moved.append(tuple(tile.data for tile in tiles_of(operand)))
        for tile in tiles_of(operand):
            everything = everything | spread(mask_of(tile), (1,) * prepared.result_rank)
    return np.asarray(prepared.compute(*moved)) | everything


def contract(prepared: Prepared, operands: Sequence[Operand]) -> Mask:
    """A row of an operand with axes (m, ..) spreads along n, a column of (.., n) along m."""
    result = NOTHING
    for port, tile in zip(prepared.definition.operands, all_tiles(operands), strict=True):
        if tile.poison is None:
            continue
        row, column = (term.text for term in port.pattern.shape[-2:])
        mask = mask_of(tile)
        if row != "m":
            mask = mask.any(axis=-2, keepdims=True)
        if column != "n":
            mask = mask.any(axis=-1, keepdims=True)
        result = result | mask
    return result


def axis(prepared: Prepared, operands: Sequence[Operand]) -> Mask:
    """One poisoned element spoils all results on its line along `axis`."""
    (tile,) = all_tiles(operands)
    place = prepared.integer("axis") - prepared.ranks[0]
    keeps_axis = prepared.result_rank == prepared.ranks[0]
    return np.asarray(mask_of(tile).any(axis=place, keepdims=keeps_axis))


def gathered(prepared: Prepared, operands: Sequence[Operand]) -> Mask:
    """A result is poison if its index is, or the element that it chooses."""
    source, indices = all_tiles(operands)
    place = prepared.integer("axis") - prepared.ranks[0]
    chosen = gather(mask_of(source), indices.data, prepared.dtype("I"), place)
    return chosen | mask_of(indices)


def whole(prepared: Prepared, operands: Sequence[Operand]) -> Mask:
    """One poisoned element spoils everything."""
    result = NOTHING
    for rank, tile in zip(prepared.ranks, all_tiles(operands), strict=False):
        mask = mask_of(tile)
        lines = mask.reshape((*batch_of(mask, rank), -1))
        result = result | spread(np.asarray(lines.any(axis=-1)), (1,) * prepared.result_rank)
    return result


def packed(prepared: Prepared, operands: Sequence[Operand]) -> Mask:
    """A byte is poison if it holds bits of a poisoned element, and the other way round."""
    (tile,) = all_tiles(operands)
    mask = mask_of(tile)
    before, after = mask.shape[-1], prepared.result_shape[-1]
    if after >= before:
        return np.repeat(mask, after // before, axis=-1)
    groups = mask.reshape(*mask.shape[:-1], after, before // after)
    return np.asarray(groups.any(axis=-1))


SPREAD: Mapping[str, Spread] = {
    "elementwise": elementwise,
    "select": select,
    "structural": structural,
    "contract": contract,
    "axis": axis,
    "gather": gathered,
    "whole": whole,
    "bytes": packed,
}
"""The classes by name. `none` has no operands, and `region` is the affair of an evaluator."""
