"""Dropout with a counter-based generator: the mask is computed, never stored.

Philox gives four random words for each counter. Element e takes word e % 4 of counter e // 4,
whatever the tiles, so the backward pass, another tile size and another machine find the same mask.
An element is dropped if its word lies below a threshold; the others are scaled up.
"""

from __future__ import annotations

import numpy as np
from bounds import estimate, number
from harness import Case, main, normal, output, seeded

import reftile
import reftile.lang as ct


@reftile.kernel
def dropout(x, out, seed: int, threshold: int, scale: float, tile: ct.Constant[int]):
    """x, out: of rank 1. threshold: below 2 ** 31. Grid: (cdiv(x.shape[0], tile),)."""
    i = ct.bid(0)
    counter = i * (tile // 4) + ct.arange(tile // 4, dtype=ct.int32)
    words = ct.philox(counter, 0, 0, 0, seed, 0)
    columns = [w.reshape((tile // 4, 1)) for w in words]
    word = ct.cat((columns[0], columns[1], columns[2], columns[3]), axis=1).reshape((tile,))
    # The upper 31 bits, so that the comparison is one of signed numbers.
    kept = (word >> 1).astype(ct.int32) >= threshold
    value = ct.load(x, (i,), (tile,)).astype(ct.float32) * scale
    ct.store(out, (i,), ct.where(kept, value, 0.0).astype(out.dtype))


def philox(counter: np.ndarray, key: int) -> np.ndarray:
    """Four words for each counter, [..., 4]: Philox4x32, 10 rounds, in plain 64-bit integers."""
    word, mask = np.uint64, np.uint64(0xFFFFFFFF)
    c = [counter.astype(word), *(np.zeros(counter.shape, word) for _ in range(3))]
    k0, k1 = key & 0xFFFFFFFF, 0
    for _ in range(10):
        p0, p1 = word(0xD2511F53) * c[0], word(0xCD9E8D57) * c[2]
        c = [
            (p1 >> word(32)) ^ c[1] ^ word(k0),
            p1 & mask,
            (p0 >> word(32)) ^ c[3] ^ word(k1),
            p0 & mask,
        ]
        k0, k1 = (k0 + 0x9E3779B9) & 0xFFFFFFFF, (k1 + 0xBB67AE85) & 0xFFFFFFFF
    return np.stack(c, axis=-1)


def reference(size: int, seed: int, threshold: int) -> np.ndarray:
    """Which elements are kept."""
    words = philox(np.arange(-(-size // 4)), seed).reshape(-1)[:size]
    return (words >> np.uint64(1)).astype(np.int64) >= threshold


def case(size: int, tile: int, probability: float, dtype: str, seed: int) -> Case:
    """Drop with some probability."""
    x = normal(seeded(size), (size,), dtype)
    threshold, scale = round(probability * 2**31), 1 / (1 - probability)
    kept = reference(size, seed, threshold)
    scaled = (estimate(x).astype("float32") * number(scale)).astype(dtype).where(kept)
    constants = {"seed": seed, "threshold": threshold, "scale": scale, "tile": tile}
    return Case(
        f"dropout-{dtype}",
        dropout,
        (-(-size // tile),),
        {"x": x, "out": output((size,), dtype), **constants},
        {"out": scaled},
    )


def cases() -> list[Case]:
    """A few tiles, the last one ragged."""
    return [case(300, 64, 0.3, "float32", 1234), case(77, 32, 0.5, "bfloat16", -7)]


if __name__ == "__main__":
    main(cases)
