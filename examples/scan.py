"""Prefix sums in one pass: decoupled look-back.

Every block sums its tile and needs the sum of all tiles before it. Instead of waiting for the block
ahead to know *its* prefix, it looks back: tile by tile it adds up the sums that blocks ahead have
published, until it meets one that knows its whole prefix. What a block has published stands in its
flag:

    EMPTY    nothing yet; look again
    SUM      the sum of its own tile, in `sums`
    PREFIX   the sum of everything up to the end of its tile, in `prefixes`

A flag is stored with release after the number it announces, and loaded with acquire before the
number is read. A block waits for blocks of lower numbers only, which start before it:
progress="occupancy_bound".

Source: D. Merrill and M. Garland, "Single-pass Parallel Prefix Scan with Decoupled Look-back"
(2016).
"""

from __future__ import annotations

import numpy as np
from bounds import Estimate, Floats, estimate, gamma
from harness import Case, main, output, seeded

import reftile
import reftile.lang as ct

ACQUIRE, RELEASE = ct.MemoryOrder.ACQUIRE, ct.MemoryOrder.RELEASE
DEVICE = ct.MemoryScope.DEVICE
EMPTY, SUM, PREFIX = 0, 1, 2


@reftile.kernel(progress="occupancy_bound")
def prefix_sum(x, out, flags, sums, prefixes, tile: ct.Constant[int]):
    """Grid: (cdiv(x.shape[0], tile),). flags: EMPTY; flags, sums, prefixes: one for each block."""
    i = ct.bid(0)
    part = ct.load(x, (i,), (tile,), padding_mode=ct.PaddingMode.ZERO)
    own = ct.sum(part)
    before = ct.zeros((), x.dtype)
    if i > 0:
        ct.store(sums, (i,), own)
        ct.store(flags, (i,), SUM, memory_order=RELEASE, memory_scope=DEVICE)
        ahead = i - 1
        while True:
            flag = ct.load(flags, (ahead,), (), memory_order=ACQUIRE, memory_scope=DEVICE)
            if flag == PREFIX:
                before = ct.load(prefixes, (ahead,), ()) + before
                break
            if flag == SUM:
                before = ct.load(sums, (ahead,), ()) + before
                ahead = ahead - 1
    ct.store(prefixes, (i,), before + own)
    ct.store(flags, (i,), PREFIX, memory_order=RELEASE, memory_scope=DEVICE)
    ct.store(out, (i,), ct.cumsum(part) + before)


def reference(x: np.ndarray) -> Floats:
    """Running sums in float64."""
    return np.cumsum(x.astype(np.float64))


def case(name: str, dtype: str, size: int, tile: int) -> Case:
    """Whole numbers are exact in any order; floats may be added in any order."""
    rng = seeded(size)
    if dtype == "int32":
        x = rng.integers(-100, 100, size).astype(dtype)
        expected = estimate(reference(x))
    else:
        x = rng.standard_normal(size).astype(dtype)
        expected = Estimate(reference(x), gamma(size - 1, dtype) * reference(np.abs(x)))
    blocks = -(-size // tile)
    flags = np.zeros(blocks, np.int32)
    numbers = {name: output((blocks,), dtype) for name in ("sums", "prefixes")}
    return Case(
        f"scan-{name}",
        prefix_sum,
        (blocks,),
        {"x": x, "out": output((size,), dtype), "flags": flags, **numbers, "tile": tile},
        {"out": expected, "flags": estimate(np.full(blocks, PREFIX))},
        starts=("flags",),
        schedules=(("topo", 1), ("topo", 2), ("topo", 3), ("adversarial", 0), ("adversarial", 1)),
    )


def cases() -> list[Case]:
    """Several blocks with a ragged end, one block alone."""
    return [
        case("int32", "int32", 150, 16),
        case("float32", "float32", 201, 32),
        case("one-block", "int32", 20, 32),
    ]


if __name__ == "__main__":
    main(cases)
