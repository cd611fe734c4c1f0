"""Split-K matrix product: several blocks share one tile of the result, and add up what they have.

With few tiles and a long k, a block for each tile leaves a device idle, so k is split. The blocks
then have to add up partial sums in memory, and must not race:

- `matmul_in_turns`: a semaphore for each tile says whose turn it is. A block waits for its turn,
  adds
  its part to the result, and passes the turn on. The waiting needs blocks that run together or
  start in order, which the kernel declares: progress="occupancy_bound".
- `matmul_last_adds`: each block stores its part in a workspace and counts itself. The one that
  comes last
  adds up all parts. Nobody waits.

In both the order of the sum is fixed, so that the result has the same bits in every run. What makes
them right is a release in one block and an acquire in the other: all stores behind the release are
visible to all loads after the acquire.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from bounds import Estimate, estimate, gamma
from harness import Case, main, normal, output, seeded
from matmul import reference, sizes

import reftile
import reftile.lang as ct

ZERO = ct.PaddingMode.ZERO
ACQUIRE, RELEASE = ct.MemoryOrder.ACQUIRE, ct.MemoryOrder.RELEASE
DEVICE = ct.MemoryScope.DEVICE


def part_of_product(a, b, i, j, part, parts, tile_m, tile_n, tile_k):
    """The sum over the tiles of k that belong to `part`: every `parts`-th one."""
    acc = ct.zeros((tile_m, tile_n), ct.float32)
    for k in range(part, ct.num_tiles(a, 1, (tile_m, tile_k)), parts):
        x = ct.load(a, (i, k), (tile_m, tile_k), padding_mode=ZERO)
        y = ct.load(b, (k, j), (tile_k, tile_n), padding_mode=ZERO)
        acc = ct.mma(x, y, acc)
    return acc


@reftile.kernel(progress="occupancy_bound")
def matmul_in_turns(
    a,
    b,
    c,
    turns,
    tile_m: ct.Constant[int],
    tile_n: ct.Constant[int],
    tile_k: ct.Constant[int],
):
    """Grid: (cdiv(m, tile_m), cdiv(n, tile_n), parts). turns: zeros, one for each tile of c."""
    i, j, part = ct.bid(0), ct.bid(1), ct.bid(2)
    acc = part_of_product(a, b, i, j, part, ct.num_blocks(2), tile_m, tile_n, tile_k)
    while ct.load(turns, (i, j), (), memory_order=ACQUIRE, memory_scope=DEVICE) != part:
        pass
    if part > 0:
        acc = ct.load(c, (i, j), (tile_m, tile_n), padding_mode=ZERO) + acc
    ct.store(c, (i, j), acc)
    ct.store(turns, (i, j), part + 1, memory_order=RELEASE, memory_scope=DEVICE)


@reftile.kernel
def matmul_last_adds(
    a,
    b,
    c,
    parts,
    arrived,
    tile_m: ct.Constant[int],
    tile_n: ct.Constant[int],
    tile_k: ct.Constant[int],
):
    """Grid as above. parts: [parts, m, n]; arrived: zeros, one for each tile of c."""
    i, j, part = ct.bid(0), ct.bid(1), ct.bid(2)
    count = ct.num_blocks(2)
    acc = part_of_product(a, b, i, j, part, count, tile_m, tile_n, tile_k)
    ct.store(parts, (part, i, j), acc.reshape((1, tile_m, tile_n)))
    # Releases the store above to whoever counts later, and acquires those of whoever counted
    # before.
    before = ct.atomic_add(arrived, (i, j), 1, memory_order=ct.MemoryOrder.ACQ_REL)
    if before == count - 1:
        total = ct.zeros((1, tile_m, tile_n), ct.float32)
        for p in range(count):
            total = total + ct.load(parts, (p, i, j), (1, tile_m, tile_n), padding_mode=ZERO)
        ct.store(c, (i, j), total.reshape((tile_m, tile_n)).astype(c.dtype))


# Cases


def product(shape: tuple[int, int, int], parts: int, dtype: str, out: str) -> tuple[Any, ...]:
    """Two matrices, and their product; its bound has `parts` more roundings than without parts."""
    m, n, k = shape
    rng = seeded(k + parts)
    a, b = normal(rng, (m, k), dtype), normal(rng, (k, n), dtype)
    plain = estimate(a) @ estimate(b)
    size = np.abs(a.astype(np.float64)) @ np.abs(b.astype(np.float64))
    bound = Estimate(plain.value, plain.error + gamma(parts) * size).astype(out)
    return a, b, Estimate(reference(a, b), bound.error)


SCHEDULES = (("topo", 1), ("topo", 2), ("adversarial", 0), ("adversarial", 3))


def case_turns(
    shape: tuple[int, int, int], tiles: tuple[int, int, int], parts: int, dtype: str
) -> Case:
    """The result in float32, as parts are added to it in memory."""
    m, n, _ = shape
    a, b, expected = product(shape, parts, dtype, "float32")
    grid = (-(-m // tiles[0]), -(-n // tiles[1]), parts)
    turns = np.zeros(grid[:2], np.int32)
    arguments = {"a": a, "b": b, "c": output((m, n), "float32"), "turns": turns, **sizes(tiles)}
    return Case(
        f"split-k-turns-{dtype}",
        matmul_in_turns,
        grid,
        arguments,
        {"c": expected, "turns": estimate(np.full(grid[:2], parts))},
        starts=("turns",),
        schedules=SCHEDULES,
    )


def case_last(
    shape: tuple[int, int, int], tiles: tuple[int, int, int], parts: int, dtype: str
) -> Case:
    """The result in the dtype of the operands."""
    m, n, _ = shape
    a, b, expected = product(shape, parts, dtype, dtype)
    grid = (-(-m // tiles[0]), -(-n // tiles[1]), parts)
    outputs = {"c": output((m, n), dtype), "parts": output((parts, m, n), "float32")}
    return Case(
        f"split-k-last-{dtype}",
        matmul_last_adds,
        grid,
        {"a": a, "b": b, **outputs, "arrived": np.zeros(grid[:2], np.int32), **sizes(tiles)},
        {"c": expected},
        schedules=SCHEDULES,
    )


def cases() -> list[Case]:
    """A long k, in parts that are not equal."""
    return [
        case_turns((20, 17, 150), (16, 16, 16), 3, "float16"),
        case_turns((9, 24, 80), (16, 16, 16), 4, "bfloat16"),
        case_last((20, 17, 150), (16, 16, 16), 3, "float16"),
        case_last((30, 9, 100), (16, 16, 32), 4, "float32"),
    ]


if __name__ == "__main__":
    main(cases)
