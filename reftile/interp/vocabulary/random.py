"""Words of meanings: counter-based random numbers."""

from __future__ import annotations

import numpy as np

from reftile.interp.values import Array

_FACTOR0, _FACTOR1 = np.uint64(0xD2511F53), np.uint64(0xCD9E8D57)
_STEP0, _STEP1 = np.uint32(0x9E3779B9), np.uint32(0xBB67AE85)


def philox(
    counter0: Array,
    counter1: Array,
    counter2: Array,
    counter3: Array,
    key0: Array,
    key1: Array,
    rounds: int,
) -> tuple[Array, Array, Array, Array]:
    """Four words of random bits for each counter, under a key."""
    words = (counter0, counter1, counter2, counter3, key0, key1)
    c0, c1, c2, c3, k0, k1 = (np.asarray(word).view(np.uint32) for word in words)
    for _ in range(rounds):
        high0, low0 = _halves(c0 * _FACTOR0)
        high1, low1 = _halves(c2 * _FACTOR1)
        c0, c1, c2, c3 = high1 ^ c1 ^ k0, low1, high0 ^ c3 ^ k1, low0
        k0, k1 = k0 + _STEP0, k1 + _STEP1
    shape = np.broadcast_shapes(*(c.shape for c in (c0, c1, c2, c3)))
    w0, w1, w2, w3 = (np.broadcast_to(c, shape).view(np.int32) for c in (c0, c1, c2, c3))
    return w0, w1, w2, w3


def _halves(product: Array) -> tuple[Array, Array]:
    return (product >> np.uint64(32)).astype(np.uint32), product.astype(np.uint32)
