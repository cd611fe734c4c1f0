"""Softmax of rows: all at once, and in one pass over rows of any length.

Both take the greatest element off first, so that no exponential overflows. `softmax` holds whole
rows. `softmax_long` walks over them twice: the first time it keeps the greatest element so far and
the sum of exponentials relative to it, scaling the sum down when a greater one appears.
"""

from __future__ import annotations

import math
from typing import Any

import numpy as np
from bounds import Estimate, Floats, estimate, gamma, limit
from harness import Case, main, normal, output, seeded

import reftile
import reftile.lang as ct

NEGATIVE = ct.PaddingMode.NEG_INF


@reftile.kernel
def softmax(x, out, rows: ct.Constant[int], width: ct.Constant[int]):
    """Grid: (cdiv(x.shape[0], rows),). width: at least x.shape[1]; exp(-inf) of the rest is 0."""
    i = ct.bid(0)
    row = ct.load(x, (i, 0), (rows, width), padding_mode=NEGATIVE).astype(ct.float32)
    # Rows behind the last are all -inf, and -inf - -inf is NaN; it is cut off by the store.
    powers = ct.exp(row - ct.max(row, axis=1, keepdims=True))
    ct.store(out, (i, 0), (powers / ct.sum(powers, axis=1, keepdims=True)).astype(out.dtype))


@reftile.kernel
def softmax_long(x, out, rows: ct.Constant[int], tile: ct.Constant[int]):
    """Grid: (cdiv(x.shape[0], rows),)."""
    i = ct.bid(0)
    highest = ct.full((rows, 1), -math.inf, ct.float32)
    total = ct.zeros((rows, 1), ct.float32)
    for j in range(ct.num_tiles(x, 1, (rows, tile))):
        row = ct.load(x, (i, j), (rows, tile), padding_mode=NEGATIVE).astype(ct.float32)
        higher = ct.maximum(highest, ct.max(row, axis=1, keepdims=True))
        powers = ct.exp(row - higher)
        total = total * ct.exp(highest - higher) + ct.sum(powers, axis=1, keepdims=True)
        highest = higher
    for j in range(ct.num_tiles(x, 1, (rows, tile))):
        row = ct.load(x, (i, j), (rows, tile), padding_mode=NEGATIVE).astype(ct.float32)
        ct.store(out, (i, j), (ct.exp(row - highest) / total).astype(out.dtype))


def reference(x: Any) -> Floats:
    """In float64."""
    x = np.asarray(x, np.float64)
    powers = np.exp(x - x.max(1, keepdims=True))
    return powers / powers.sum(1, keepdims=True)


def bound(x: Any, rescalings: int) -> Floats:
    """The kernel's steps on numbers with errors.

    Each rescaling multiplies what was added before by an exponential, which has an error, and
    rounds the product. The differences from a rising maximum add up to that from the last one, and
    so do their roundings, up to a factor of 2.
    """
    row = estimate(x).astype("float32")
    shifted = row - row.value.max(1, keepdims=True)
    powers, added = shifted.exp(), shifted.rounded().exp()
    relative = rescalings * (2 * limit("exp", "float32") + 1) * gamma(1)
    added = Estimate(added.value, added.error + relative * added.value)
    return (powers / added.sum(1, keepdims=True)).astype(str(x.dtype)).error


def case(kernel: Any, shape: tuple[int, int], tile: tuple[int, int], dtype: str) -> Case:
    """Rows of numbers that are far apart."""
    rng = seeded(sum(shape))
    x = (normal(rng, shape, "float32") * 4).astype(normal(rng, (1,), dtype).dtype)
    whole = kernel is softmax
    rescalings = 0 if whole else -(-shape[1] // tile[1])
    second = "width" if whole else "tile"
    return Case(
        f"{kernel.__name__}-{dtype}".replace("_", "-"),
        kernel,
        (-(-shape[0] // tile[0]),),
        {"x": x, "out": output(shape, dtype), "rows": tile[0], second: tile[1]},
        {"out": Estimate(reference(x), bound(x, rescalings))},
    )


def cases() -> list[Case]:
    """Rows that fill no tile, more and fewer than a block takes."""
    return [
        case(softmax, (13, 100), (4, 128), "float32"),
        case(softmax, (6, 77), (4, 128), "float16"),
        case(softmax_long, (9, 150), (4, 64), "bfloat16"),
        case(softmax_long, (3, 200), (4, 32), "float32"),
    ]


if __name__ == "__main__":
    main(cases)
