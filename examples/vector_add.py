"""Vector addition: the smallest kernel, and what every other one is made of.

A kernel is a Python function that runs once for each block of a grid. `ct.bid(0)` is the number of
the block, `ct.load` gives a tile of an array, operators work on whole tiles, `ct.store` writes
one. The last tile sticks out of the array: what is loaded there is undetermined, and it is not
stored.
"""

from __future__ import annotations

import numpy as np
from bounds import Floats, estimate
from harness import Case, main, normal, output, seeded

import reftile
import reftile.lang as ct


@reftile.kernel
def vector_add(a, b, c, tile: ct.Constant[int]):
    """Grid: (cdiv(a.shape[0], tile),)."""
    i = ct.bid(0)
    x = ct.load(a, (i,), (tile,))
    y = ct.load(b, (i,), (tile,))
    ct.store(c, (i,), x + y)


def reference(a: np.ndarray, b: np.ndarray) -> Floats:
    """In float64, where sums of these numbers are exact or all but exact."""
    return a.astype(np.float64) + b.astype(np.float64)


def case(dtype: str, size: int, tile: int) -> Case:
    """Sums of whole numbers are exact; others are rounded once, so half a unit is the bound."""
    rng = seeded(size)
    if dtype.startswith("int"):
        a, b = (rng.integers(-1000, 1000, size).astype(dtype) for _ in range(2))
        total = estimate(reference(a, b))
    else:
        a, b = normal(rng, (size,), dtype), normal(rng, (size,), dtype)
        total = estimate(reference(a, b), dtype).rounded()
    return Case(
        f"vector-add-{dtype}",
        vector_add,
        (-(-size // tile),),
        {"a": a, "b": b, "c": output((size,), dtype), "tile": tile},
        {"c": total},
    )


def cases() -> list[Case]:
    """Sizes that leave the last tile ragged; a size below one tile; an exact dtype."""
    return [
        case("float32", 1000, 128),
        case("float16", 333, 64),
        case("bfloat16", 5, 16),
        case("int32", 700, 256),
    ]


if __name__ == "__main__":
    main(cases)
