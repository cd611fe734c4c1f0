"""Fragments combined with memory: by blocks that share a product, and along axes."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from reftile import pipe
from reftile.ir.diagnostics import ReftileError
from reftile.pipe import Constant, float16, float32, int8, int32
from tests.interp.pipe.pipe_kernels import SCHEDULES
from tests.lang.pipe.pipe_python import TARGETS, product_bound, run_on_machine


@pipe.kernel
def split(a, b, c, splits: Constant[int], threads: Constant[int]):
    """C += A @ B, the sum over k dealt out to blocks."""
    (m, k), n, rows = a.shape, b.shape[1], threads // 2
    grid = pipe.ceildiv(n, 64), pipe.ceildiv(m, rows), splits
    with pipe.Kernel(*grid, threads=threads) as (x, y, z):
        a_shared = pipe.alloc_shared((rows, 32), float16)
        b_shared = pipe.alloc_shared((32, 64), float16)
        total = pipe.alloc_fragment((rows, 64), float32)
        steps = pipe.ceildiv(pipe.ceildiv(k, 32), splits)
        pipe.clear(total)
        for step in pipe.Pipelined(steps, num_stages=2):
            pipe.copy(a[y * rows, (z * steps + step) * 32], a_shared)
            pipe.copy(b[(z * steps + step) * 32, x * 64], b_shared)
            pipe.gemm(a_shared, b_shared, total)
        pipe.atomic_add(c[y * rows, x * 64], total)


CASES = (("sm_80", 128), ("sm_90a", 128), ("sm_90a", 256))


@pytest.mark.parametrize(("target", "threads"), CASES)
def test_blocks_add_their_shares_of_a_product(target: str, threads: int) -> None:
    draw = np.random.default_rng(5)
    a, b = (draw.standard_normal(s).astype(np.float16) for s in ((70, 104), (104, 72)))
    wanted, bound = product_bound(a, b, np.float32)
    kernel = split.for_target(target)
    for options in SCHEDULES:
        c = np.zeros((70, 72), np.float32)
        kernel(a, b, c, 3, threads, **options)
        assert np.all(np.abs(c - wanted) <= 2 * bound), options
    c = np.zeros((70, 72), np.float32)
    run_on_machine(kernel, a, b, c, 3, threads)
    assert np.all(np.abs(c - wanted) <= 2 * bound)


@pipe.kernel
def extremes(x, high, low):
    """The greatest and the least of each column."""
    m, n = x.shape
    with pipe.Kernel(pipe.ceildiv(n, 64), pipe.ceildiv(m, 16), threads=128) as (column, row):
        part = pipe.alloc_fragment((16, 64), int32)
        found = pipe.alloc_fragment((64,), int32)
        pipe.copy(x[row * 16, column * 64], part)
        pipe.reduce_max(part, found, dim=0)
        pipe.atomic_max(high[column * 64], found)
        pipe.reduce_min(part, found, dim=0)
        pipe.atomic_min(low[column * 64], found)


@pytest.mark.parametrize("target", TARGETS)
def test_blocks_find_the_extremes_of_columns(target: str) -> None:
    x = np.random.default_rng(6).integers(-99, 99, (48, 72)).astype(np.int32)
    for run in (lambda k, *a: k(*a), run_on_machine):
        high, low = np.full(72, -100, np.int32), np.full(72, 100, np.int32)
        run(extremes.for_target(target), x, high, low)
        assert np.array_equal(high, x.max(0))
        assert np.array_equal(low, x.min(0))


@pipe.kernel
def widen(x, y, dtype: Constant[object]):
    with pipe.Kernel(1, threads=128):
        narrow = pipe.alloc_fragment((16, 64), int8)
        wide = pipe.alloc_fragment((16, 64), dtype)
        pipe.copy(x, narrow)
        pipe.copy(narrow, wide)
        pipe.copy(wide, y)


@pytest.mark.parametrize("target", TARGETS)
def test_small_integers_become_floats_of_16_bits(target: str) -> None:
    import ml_dtypes

    x = np.arange(-512, 512).astype(np.int8).reshape(16, 64)
    for dtype, kind in ((float16, np.float16), (pipe.bfloat16, ml_dtypes.bfloat16)):
        y = np.zeros((16, 64), kind)
        run_on_machine(widen.for_target(target), x, y, dtype)
        assert np.array_equal(y, x.astype(kind))


def test_what_cannot_be_combined_is_told() -> None:
    @pipe.kernel
    def wrong(x, y, what: Constant[str]):
        with pipe.Kernel(1, threads=256):
            part = pipe.alloc_fragment((64, 64), float32)
            whole = pipe.alloc_fragment((64,), float32, replicated=True)
            shared = pipe.alloc_shared((64, 64), float32)
            pipe.clear(part)
            pipe.clear(whole)
            if what == "max of floats":
                pipe.atomic_max(x, part)
            elif what == "two fragments":
                pipe.atomic_add(part, part)
            elif what == "shared":
                pipe.atomic_add(x, shared)
            elif what == "replicated":
                pipe.atomic_add(y, whole)

    rules: dict[str, str] = {
        "max of floats": "lang.atomic.dtype",
        "two fragments": "lang.pipe.type",
        "shared": "lang.pipe.type",
        "replicated": "lang.pipe.rows",
    }
    arguments: tuple[Any, ...] = np.zeros((64, 64), np.float32), np.zeros(64, np.float32)
    for what, rule in rules.items():
        with pytest.raises(ReftileError) as error:
            wrong(*arguments, what)
        found = error.value.diagnosis
        assert found.rule == rule
        assert found.span is not None
        assert "atomic_" in found.span.source.text[found.span.start : found.span.end]
