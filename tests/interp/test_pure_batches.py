"""Every meaning is right for any number of batch axes: it equals itself in a loop over them."""

from __future__ import annotations

import zlib

import numpy as np
import pytest

from reftile.interp.pure import evaluate
from reftile.interp.values import Tile
from reftile.ir.core import Op
from tests.interp.pure_cases import (
    each,
    example_ops,
    part,
    random_mask,
    random_values,
    region_runner,
    same_defined,
    tile_type,
)

NAMES = [name for name, ops in example_ops().items() if ops[0].operands]


def operands(op: Op, batch: tuple[int, ...], seed: int, with_poison: bool) -> list[Tile]:
    """Random operands, of which some have all batch axes, some the last only and some none.

    With several axes, some have an extent of 1.
    """
    rng = np.random.default_rng(seed)
    tiles: list[Tile] = []
    for i, value in enumerate(op.operands):
        own = batch if i == seed % len(op.operands) else batch[rng.integers(0, len(batch) + 1) :]
        if len(own) > 1:
            own = tuple(1 if rng.random() < 0.3 else extent for extent in own)
        data = random_values(tile_type(value), own, rng)
        poison = random_mask(data.shape, rng) if with_poison and rng.random() < 0.6 else None
        tiles.append(Tile(data, poison))
    return tiles


@pytest.mark.parametrize("with_poison", [False, True])
@pytest.mark.parametrize("batch", [(3,), (2, 3)])
@pytest.mark.parametrize("name", NAMES)
def test_a_batch_gives_what_a_loop_over_it_gives(
    name: str, batch: tuple[int, ...], with_poison: bool
) -> None:
    for op in example_ops()[name]:
        for seed in range(4):
            key = zlib.crc32(f"{name}{batch}".encode()) + seed
            tiles = operands(op, batch, key, with_poison)
            together = evaluate(op, tiles, region_runner({}))
            for index, one in each(op, tiles, batch):
                alone = evaluate(op, one, region_runner({}))
                for result, batched, single in zip(op.results, together, alone, strict=True):
                    rank = tile_type(result).rank
                    assert single.data.shape == tile_type(result).shape
                    assert same_defined(part(batched, index, rank), single), (op, index, seed)


@pytest.mark.parametrize("name", sorted(example_ops()))
def test_results_have_the_shape_and_carrier_of_their_types(name: str) -> None:
    for op in example_ops()[name]:
        tiles = operands(op, (), 1, with_poison=False) if op.operands else []
        for value, tile in zip(op.results, evaluate(op, tiles, region_runner({})), strict=True):
            type = tile_type(value)
            assert type.shape == tile.data.shape
            assert isinstance(tile.data, np.ndarray)
            carrier = getattr(type.element, "carrier", np.dtype(np.int64))
            assert tile.data.dtype == carrier
