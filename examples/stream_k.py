"""Stream-K: as many blocks as run at once, each with the same amount of work.

The work of a product is a line of steps: all steps along k of tile 0, then all of tile 1, and so
on. Each block takes an equal stretch of the line, which may begin and end within tiles. Who does
the first step of a tile owns the tile. A block that begins within a tile adds up its share of that
tile, stores it in its workspace and raises its flag. The owner waits for the flags of the blocks
behind it that share the tile, adds what they left in their order, and stores the tile.

Owners wait for blocks of higher numbers, so all blocks must run at once: progress="cooperative".

Source: M. Osama and others, "Stream-K: Work-centric Parallel Decomposition for Dense Matrix-Matrix
Multiplication on the GPU" (2023).
"""

from __future__ import annotations

import numpy as np
from bounds import estimate
from harness import Case, main, output
from matmul import sizes
from split_k import product

import reftile
import reftile.lang as ct

ZERO = ct.PaddingMode.ZERO
ACQUIRE, RELEASE = ct.MemoryOrder.ACQUIRE, ct.MemoryOrder.RELEASE
DEVICE = ct.MemoryScope.DEVICE


@reftile.kernel(progress="cooperative")
def matmul_stream_k(
    a,
    b,
    c,
    shares,
    flags,
    tile_m: ct.Constant[int],
    tile_n: ct.Constant[int],
    tile_k: ct.Constant[int],
):
    """Grid: any number of blocks. shares: float32 [blocks, tile_m, tile_n]; flags: [blocks], 0."""
    block = ct.bid(0)
    columns = ct.num_tiles(c, 1, (tile_m, tile_n))
    steps = ct.num_tiles(a, 1, (tile_m, tile_k))
    line = ct.num_tiles(c, 0, (tile_m, tile_n)) * columns * steps
    stretch = ct.cdiv(line, ct.num_blocks(0))
    at, end = block * stretch, min((block + 1) * stretch, line)
    while at < end:
        tile, first = at // steps, at % steps
        last = min(steps, first + end - at)
        i, j = tile // columns, tile % columns
        acc = ct.zeros((tile_m, tile_n), ct.float32)
        for k in range(first, last):
            x = ct.load(a, (i, k), (tile_m, tile_k), padding_mode=ZERO)
            y = ct.load(b, (k, j), (tile_k, tile_n), padding_mode=ZERO)
            acc = ct.mma(x, y, acc)
        if first > 0:
            ct.store(shares, (block, 0, 0), acc.reshape((1, tile_m, tile_n)))
            ct.store(flags, (block,), 1, memory_order=RELEASE, memory_scope=DEVICE)
        else:
            helper, covered = block + 1, last
            while covered < steps:
                while ct.load(flags, (helper,), (), memory_order=ACQUIRE, memory_scope=DEVICE) == 0:
                    pass
                share = ct.load(shares, (helper, 0, 0), (1, tile_m, tile_n))
                acc = acc + share.reshape((tile_m, tile_n))
                helper, covered = helper + 1, covered + stretch
            ct.store(c, (i, j), acc.astype(c.dtype))
        at = at + last - first


def case(name: str, shape: tuple[int, int, int], blocks: int, dtype: str) -> Case:
    """Blocks that divide the line of steps into stretches that fit no tile."""
    m, n, k = shape
    tiles = (16, 16, 16)
    steps = -(-k // tiles[2])
    a, b, expected = product(shape, min(blocks, steps), dtype, dtype)
    line = -(-m // tiles[0]) * -(-n // tiles[1]) * steps
    stretch = -(-line // blocks)
    begins = np.arange(blocks) * stretch
    raised = (begins < line) & (begins % steps > 0)
    shares = output((blocks, *tiles[:2]), "float32")
    flags = np.zeros(blocks, np.int32)
    return Case(
        f"stream-k-{name}",
        matmul_stream_k,
        (blocks,),
        {
            "a": a,
            "b": b,
            "c": output((m, n), dtype),
            "shares": shares,
            "flags": flags,
            **sizes(tiles),
        },
        {"c": expected, "flags": estimate(raised.astype(np.int32))},
        starts=("flags",),
        schedules=(("topo", 1), ("topo", 2), ("adversarial", 0), ("adversarial", 5)),
    )


def cases() -> list[Case]:
    """A stretch longer and shorter than a tile's steps; more blocks than work."""
    return [
        case("long-stretches", (40, 30, 70), 4, "float16"),
        case("many-share", (17, 16, 150), 7, "bfloat16"),
        case("idle-blocks", (10, 10, 40), 5, "float32"),
    ]


if __name__ == "__main__":
    main(cases)
