"""A product of floats of 8 bits whose result has 8 bits again, at every level."""

from __future__ import annotations

from typing import Any

import ml_dtypes  # pyright: ignore[reportMissingImports]
import numpy as np
import pytest

from reftile import pipe
from reftile.interp.launch import interpret
from reftile.lower.ptx.assemble import assemble, find_ptxas
from reftile.pipe import Constant, float8_e4m3fn, float32
from tests.interp.pipe.pipe_kernels import SCHEDULES
from tests.lang.pipe.pipe_python import lowered, run_on_machine

TARGETS = ("sm_89", "sm_90a")
RESULTS = {"f8e4m3": ml_dtypes.float8_e4m3fn, "f8e5m2": ml_dtypes.float8_e5m2}


@pipe.kernel
def scaled_product(a, b, c, scale: float, limit: float, threads: Constant[int] = 128):
    """C = A B^T times a scale, no farther from zero than a limit, rounded to the type of C."""
    (m, k), n = a.shape, b.shape[0]
    with pipe.Kernel(pipe.ceildiv(n, 64), pipe.ceildiv(m, 64), threads=threads) as (x, y):
        left = pipe.alloc_shared((64, 64), float8_e4m3fn)
        right = pipe.alloc_shared((64, 64), float8_e4m3fn)
        total = pipe.alloc_fragment((64, 64), float32)
        pipe.clear(total)
        for step in pipe.Pipelined(pipe.ceildiv(k, 64), num_stages=2):
            pipe.copy(a[y * 64, step * 64], left)
            pipe.copy(b[x * 64, step * 64], right)
            pipe.gemm(left, right, total, transpose_B=True)
        for i, j in pipe.Parallel(64, 64):
            total[i, j] = pipe.maximum(pipe.minimum(total[i, j] * scale, limit), -limit)
        pipe.copy(total, c[y * 64, x * 64])


def case(result: str, limit: float, m: int, n: int, k: int) -> tuple[list[Any], Any]:
    """Arguments, and the exact result rounded once: sums of small integers are exact."""
    draw = np.random.default_rng(m)
    a, b = (draw.integers(-4, 5, s).astype(ml_dtypes.float8_e4m3fn) for s in ((m, k), (n, k)))
    exact = np.clip(a.astype(np.float32) @ b.astype(np.float32).T * 3, -limit, limit)
    wanted = exact.astype(RESULTS[result])
    return [a, b, np.zeros((m, n), RESULTS[result]), 3.0, limit], wanted


def same(found: Any, wanted: Any) -> bool:
    """The same bits, but any NaN for a NaN."""
    nan = np.isnan(wanted.astype(np.float32))
    is_same = found.view(np.uint8) == wanted.view(np.uint8)
    return bool(np.all(np.where(nan, np.isnan(found.astype(np.float32)), is_same)))


@pytest.mark.parametrize("limit", [448.0, float("inf")])
@pytest.mark.parametrize("result", RESULTS)
@pytest.mark.parametrize("target", TARGETS)
def test_the_product_is_right_at_every_level(target: str, result: str, limit: float) -> None:
    kernel = scaled_product.for_target(target)
    for size in ((72, 80, 96), (64, 64, 64)):
        args, wanted = case(result, limit, *size)
        has_nan = np.isnan(wanted.astype(np.float32)).any()
        assert has_nan == (result == "f8e4m3" and limit > 448)
        for options in SCHEDULES:
            args[2][:] = 0
            kernel(*args, **options)
            assert same(args[2], wanted), options
        found = kernel.specialise(*args)
        args[2][:] = 0
        threads = lowered(found.kernel).passes.kernel
        assert interpret(threads, kernel.grid_of(found), list(found.values)).checked
        assert same(args[2], wanted)
        args[2][:] = 0
        run_on_machine(kernel, *args, seed=1)
        assert same(args[2], wanted)


@pytest.mark.skipif(find_ptxas() is None, reason="needs ptxas")
@pytest.mark.parametrize("target", TARGETS)
def test_ptxas_has_nothing_to_say(target: str) -> None:
    args, _ = case("f8e4m3", 448.0, 64, 64, 64)
    ptx = lowered(scaled_product.for_target(target).specialise(*args).kernel).ptx
    _, report = assemble(ptx, target)
    assert (report.spill_bytes, report.remarks) == (0, ())
    # Each thread has 32 elements of the result, and converts two at once.
    assert ptx.count("cvt.rn.satfinite.e4m3x2.f32") == 16
