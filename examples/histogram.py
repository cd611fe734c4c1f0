"""Histograms: many blocks count into the same bins.

`histogram` counts within the tile first and adds its counts to the bins by one read-modify-write
for each bin. `histogram_by_element` adds 1 for each element; several elements of one tile may meet
in one bin, which read-modify-writes may and stores may not. Counting needs no order, only that
nothing is lost: relaxed is enough.
"""

from __future__ import annotations

import numpy as np
from bounds import estimate
from harness import Case, main, seeded

import reftile
import reftile.lang as ct

RELAXED = ct.MemoryOrder.RELAXED


@reftile.kernel
def histogram(x, bins, count: ct.Constant[int], tile: ct.Constant[int]):
    """Grid: (cdiv(x.shape[0], tile),). bins: int32, `count` of them. Other numbers are left out."""
    i = ct.bid(0)
    values = ct.load(x, (i,), (tile,), padding_mode=ct.PaddingMode.ZERO)
    inside = i * tile + ct.arange(tile, dtype=ct.int32) < x.shape[0]
    counts = ct.histogram(values, count, mask=inside)
    ct.atomic_add(bins, ct.arange(count, dtype=ct.int32), counts, memory_order=RELAXED)


@reftile.kernel
def histogram_by_element(x, bins, tile: ct.Constant[int]):
    """Grid: (cdiv(x.shape[0], tile),).

    What lies behind the end of x counts as number -1, which is outside of `bins` and left alone.
    """
    i = ct.bid(0)
    place = i * tile + ct.arange(tile, dtype=ct.int32)
    values = ct.gather(x, place, padding_value=-1)
    ct.atomic_add(bins, values, 1, memory_order=RELAXED)


def reference(x: np.ndarray, start: np.ndarray) -> np.ndarray:
    """What the bins hold afterwards; whole numbers, so exact."""
    return start + np.bincount(x, minlength=start.size)[: start.size]


def case(kernel: reftile.KernelFunction, size: int, bins: int, tile: int) -> Case:
    """Bins that hold something already, and numbers that belong to none."""
    rng = seeded(size)
    x = np.minimum(rng.geometric(0.2, size), bins + 3).astype(np.int32)
    start = rng.integers(0, 10, bins).astype(np.int32)
    constants = {"count": bins} if kernel is histogram else {}
    return Case(
        kernel.__name__.replace("_", "-"),
        kernel,
        (-(-size // tile),),
        {"x": x, "bins": start, **constants, "tile": tile},
        {"bins": estimate(reference(x, start))},
        starts=("bins",),
        schedules=(("topo", 1), ("topo", 2), ("adversarial", 0), ("adversarial", 1)),
    )


def cases() -> list[Case]:
    """Bins in no round number."""
    return [case(histogram, 500, 19, 64), case(histogram_by_element, 300, 19, 64)]


if __name__ == "__main__":
    main(cases)
