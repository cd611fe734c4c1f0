"""`sort`: the keys in order, other tiles rearranged in the same way."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from reftile.interp.poison import mask_of
from reftile.interp.prepared import Prepared, RunRegion
from reftile.interp.values import Report, Tile
from reftile.interp.vocabulary.order import order_along, order_keys
from reftile.interp.vocabulary.shapes import take_along
from reftile.ir.types import TileType


def evaluate_sort(
    prepared: Prepared,
    tiles: Sequence[Tile],
    run_region: RunRegion | None,
    report: Report | None,
) -> tuple[Tile, ...]:
    """Sort along an axis. A poisoned key spoils its line; any other poisoned element moves."""
    key_type = prepared.op.operands[0].type
    assert isinstance(key_type, TileType)
    axis = prepared.integer("axis") - key_type.rank
    names = prepared.names
    keys = order_keys(tiles[0].data, key_type.dtype, str(names["signedness"]))
    order = order_along(keys, axis, bool(names["descending"]))
    spoiled = mask_of(tiles[0]).any(axis=axis, keepdims=True)
    results: list[Tile] = []
    for tile in tiles:
        poison = spoiled
        if tile.poison is not None:
            poison = poison | take_along(mask_of(tile), order, axis)
        data = take_along(tile.data, order, axis)
        results.append(Tile(data, np.asarray(poison) if poison.any() else None))
    return tuple(results)
