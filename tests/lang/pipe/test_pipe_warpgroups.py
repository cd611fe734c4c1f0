"""Several warpgroups in a block: loops among loops, branches, what is stored and read again."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from reftile import pipe
from reftile.pipe import Constant, float16, float32
from tests.interp.pipe.pipe_kernels import SCHEDULES
from tests.lang.pipe.pipe_python import run_on_machine

F16 = np.float16


def data(*shape: int, seed: int = 0) -> Any:
    return np.random.default_rng(seed).standard_normal(shape).astype(F16)


def near(found: Any, wanted: Any) -> bool:
    return bool(np.all(np.abs(found - wanted) <= 2.0**-10 * np.abs(wanted) + 2.0**-7))


@pipe.kernel
def nested(a, b, d, c, threads: Constant[int], stages: Constant[int]):
    """Loops in a loop, two that fill the same memory, and one step that is skipped at times."""
    with pipe.Kernel(1, threads=threads):
        left = pipe.alloc_shared((128, 64), float16)
        right = pipe.alloc_shared((64, 64), float16)
        total = pipe.alloc_fragment((128, 64), float32)
        pipe.clear(total)
        for outer in pipe.Pipelined(2, num_stages=2):
            pipe.copy(a[0, outer * 64], left)
            for inner in pipe.Pipelined(2, num_stages=stages):
                pipe.copy(b[(outer * 2 + inner) * 64, 0], right)
                pipe.gemm(left, right, total)
            for inner in pipe.Pipelined(outer + 1, num_stages=stages):
                pipe.copy(d[inner * 64, 0], right)
                pipe.gemm(left, right, total)
        pipe.copy(total, c[0, 0])


def nested_case() -> tuple[list[Any], Any]:
    a, b, d = data(128, 128), data(256, 64, seed=1), data(128, 64, seed=2)
    wide_a, wide_b, wide_d = (x.astype(float) for x in (a, b, d))
    wanted = np.zeros((128, 64))
    for outer in range(2):
        left = wide_a[:, outer * 64 : outer * 64 + 64]
        for inner in range(2):
            wanted += left @ wide_b[(outer * 2 + inner) * 64 :][:64]
        for inner in range(outer + 1):
            wanted += left @ wide_d[inner * 64 :][:64]
    return [a, b, d, np.full((128, 64), np.nan, F16)], wanted


@pytest.mark.parametrize("options", SCHEDULES)
@pytest.mark.parametrize("stages", [1, 2, 3])
def test_loops_among_loops(stages: int, options: dict[str, Any]) -> None:
    args, wanted = nested_case()
    nested(*args, 256, stages, **options)
    assert near(args[-1], wanted)


@pytest.mark.parametrize("stages", [1, 3])
def test_loops_among_loops_in_ptx(stages: int) -> None:
    args, wanted = nested_case()
    run_on_machine(nested, *args, 256, stages, seed=stages)
    assert near(args[-1], wanted)


@pipe.kernel
def passed_on(a, c, threads: Constant[int]):
    """Each warpgroup reads what the others have stored: registers, shared memory, an array."""
    with pipe.Kernel(1, threads=threads):
        block = pipe.alloc_shared((128, 64), float16)
        held = pipe.alloc_fragment((128, 64), float32)
        product = pipe.alloc_fragment((128, 128), float32)
        pipe.copy(a[0, 0], held)
        for i, j in pipe.Parallel(128, 64):
            held[i, j] += 1.0
        pipe.copy(held, block)
        pipe.clear(product)
        pipe.gemm(block, block, product, transpose_B=True)
        pipe.copy(product, c[0, 0])
        pipe.copy(c[0, 64], block)
        pipe.copy(block, held)
        pipe.copy(held, c[0, 128])


def passed_case() -> tuple[list[Any], Any]:
    a = (data(128, 64) / 8).astype(F16)
    raised = (a.astype(np.float32) + 1).astype(F16).astype(float)
    product = raised @ raised.T
    return [a, np.full((128, 192), np.nan, F16)], np.concatenate([product, product[:, 64:]], 1)


@pytest.mark.parametrize("options", SCHEDULES)
@pytest.mark.parametrize("threads", [128, 256])
def test_what_one_stores_all_read(threads: int, options: dict[str, Any]) -> None:
    args, wanted = passed_case()
    passed_on(*args, threads, **options)
    assert near(args[-1], wanted)


@pytest.mark.parametrize("threads", [128, 256])
def test_what_one_stores_all_read_in_ptx(threads: int) -> None:
    args, wanted = passed_case()
    run_on_machine(passed_on, *args, threads)
    assert near(args[-1], wanted)
