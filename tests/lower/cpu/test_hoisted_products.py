"""A loop that becomes one product of BLAS leaves what the loop would have left."""

from __future__ import annotations

import mmap
import sys
from collections.abc import Callable

import numpy as np
import pytest

import reftile
import reftile.lang as ct

pytest.importorskip("scipy")

NO_RESERVE = getattr(mmap, "MAP_NORESERVE", 0x4000)


@reftile.kernel
def keep_the_counter(a, b, out, kept, steps: ct.Constant[int]):
    total = ct.zeros((16, 16), ct.float32)
    last = -1
    for k in range(steps):
        total = ct.mma(ct.load(a, (0, k), (16, 16)), ct.load(b, (k, 0), (16, 16)), total)
        last = k
    ct.store(out, (0, 0), total)
    ct.store(kept, (0, 0), ct.full((1, 1), last, ct.float32))


@reftile.kernel
def keep_a_tile(a, b, out, kept, steps: ct.Constant[int]):
    total = ct.zeros((16, 16), ct.float32)
    last = ct.zeros((16, 16), ct.float32)
    for k in range(steps):
        last = ct.load(a, (0, k), (16, 16))
        total = ct.mma(last, ct.load(b, (k, 0), (16, 16)), total)
    ct.store(out, (0, 0), total)
    ct.store(kept, (0, 0), last)


@reftile.kernel
def exchange_tiles(a, b, out, kept, steps: ct.Constant[int]):
    total = ct.zeros((16, 16), ct.float32)
    one, other = ct.zeros((16, 16), ct.float32), ct.ones((16, 16), ct.float32)
    for k in range(steps):
        total = ct.mma(ct.load(a, (0, k), (16, 16)), ct.load(b, (k, 0), (16, 16)), total)
        one, other = other, one
    ct.store(out, (0, 0), total)
    ct.store(kept, (0, 0), one)


@reftile.kernel
def keep_the_sum_before(a, b, out, kept, steps: ct.Constant[int]):
    total = ct.zeros((16, 16), ct.float32)
    before = ct.zeros((16, 16), ct.float32)
    for k in range(steps):
        before = total
        total = ct.mma(ct.load(a, (0, k), (16, 16)), ct.load(b, (k, 0), (16, 16)), total)
    ct.store(out, (0, 0), total)
    ct.store(kept, (0, 0), before)


@pytest.mark.parametrize(
    "kernel", [keep_the_counter, keep_a_tile, exchange_tiles, keep_the_sum_before]
)
def test_what_else_a_loop_carries_is_not_lost(kernel: Callable[..., None]) -> None:
    random = np.random.default_rng(1)
    # Products of small integers have one result in any order.
    a, b = (random.integers(-3, 4, shape).astype(np.float32) for shape in ((16, 48), (48, 16)))
    results: list[list[np.ndarray]] = []
    for backend, check in (("interp", True), ("cpu", False)):
        out, kept = np.zeros((2, 16, 16), np.float32)
        reftile.launch(kernel, (1,), (a, b, out, kept, 3), backend=backend, check=check)
        results.append([out, kept])
    assert np.array_equal(results[0], results[1])
    assert results[0][1].any()


@reftile.kernel
def product_of_rows(a, b, out, steps: ct.Constant[int]):
    total = ct.zeros((2, 16), ct.float32)
    for k in range(steps):
        total = ct.mma(ct.load(a, (0, k), (2, 16)), ct.load(b, (k, 0), (16, 16)), total)
    ct.store(out, (0, 0), total)


@reftile.kernel
def product_of_half_rows(a, b, out, steps: ct.Constant[int]):
    half = ct.load(a, (0, 0), (2, 16)) * 0.5
    for k in range(steps):
        half = half + ct.mma(ct.load(a, (0, k), (2, 16)), ct.load(b, (k, 0), (16, 16)), half)
    ct.store(out, (0, 0), half)


@pytest.mark.skipif(sys.platform != "linux", reason="8 GiB of addresses are asked of Linux")
@pytest.mark.parametrize("kernel", [product_of_rows, product_of_half_rows])
def test_strides_that_blas_does_not_take_are_right(kernel: Callable[..., None]) -> None:
    stride = (1 << 31) + 64
    flags = mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS | NO_RESERVE
    flat = np.frombuffer(mmap.mmap(-1, (stride + 64) * 4, flags=flags), np.float32)
    far = np.lib.stride_tricks.as_strided(flat, (2, 32), (stride * 4, 4))
    random = np.random.default_rng(4)
    far[:] = random.integers(-3, 4, (2, 32))
    b = random.integers(-3, 4, (32, 16)).astype(np.float32)
    near, found = np.zeros((2, 2, 16), np.float32)
    reftile.launch(kernel, (1,), (far.copy(), b, near, 2), backend="cpu", check=False)
    reftile.launch(kernel, (1,), (far, b, found, 2), backend="cpu", check=False)
    assert np.array_equal(found, near) and near.any()
