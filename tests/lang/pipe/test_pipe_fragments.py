"""Fragments, shared memory and copies through loops and branches."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from reftile import ReftileError, pipe
from reftile.pipe import Constant, float16, float32
from tests.interp.pipe.pipe_kernels import SCHEDULES
from tests.lang.pipe.pipe_python import TARGETS, example, run_on_machine

F16 = np.float16


def data(*shape: int, seed: int = 0) -> Any:
    return np.random.default_rng(seed).standard_normal(shape).astype(F16)


@pipe.kernel
def relu_product(a, b, bias, c):
    """max(A @ B + bias, 0), the bias a row."""
    with pipe.Kernel(pipe.ceildiv(c.shape[1], 64), pipe.ceildiv(c.shape[0], 64), threads=128) as (
        x,
        y,
    ):
        a_shared = pipe.alloc_shared((64, 32), float16)
        b_shared = pipe.alloc_shared((32, 64), float16)
        total = pipe.alloc_fragment((64, 64), float32)
        row = pipe.alloc_fragment((64,), float32)
        pipe.clear(total)
        for step in pipe.Pipelined(pipe.ceildiv(a.shape[1], 32), num_stages=3):
            pipe.copy(a[y * 64, step * 32], a_shared)
            pipe.copy(b[step * 32, x * 64], b_shared)
            pipe.gemm(a_shared, b_shared, total)
        pipe.copy(bias[x * 64], row)
        for i, j in pipe.Parallel(64, 64):
            total[i, j] = pipe.maximum(total[i, j] + row[j], 0.0)
        pipe.copy(total, c[y * 64, x * 64])


@pytest.mark.parametrize("options", SCHEDULES)
@pytest.mark.parametrize("target", TARGETS)
def test_elementwise_work_follows_a_product(target: str, options: dict[str, Any]) -> None:
    a, b, bias = data(64, 96), data(96, 128, seed=1), data(128, seed=2)
    c = np.full((64, 128), np.nan, F16)
    relu_product.for_target(target)(a, b, bias, c, **options)
    wanted = np.maximum(a.astype(float) @ b.astype(float) + bias.astype(float), 0)
    assert np.all(np.abs(c - wanted) <= 2.0**-11 * wanted + 2.0**-10)


@pytest.mark.parametrize("target", TARGETS)
def test_elementwise_work_follows_a_product_in_ptx(target: str) -> None:
    a, b, bias = data(64, 96), data(96, 128, seed=1), data(128, seed=2)
    c = np.full((64, 128), np.nan, F16)
    run_on_machine(relu_product.for_target(target), a, b, bias, c)
    wanted = np.maximum(a.astype(float) @ b.astype(float) + bias.astype(float), 0)
    assert np.all(np.abs(c - wanted) <= 2.0**-11 * wanted + 2.0**-10)


@pipe.kernel
def persistent(a, b, c, tiles: Constant[int], stages: Constant[int]):
    """Blocks take several tiles each: a `Pipelined` inside a loop goes on where it stopped."""
    with pipe.Kernel(2, threads=128) as block:
        a_shared = pipe.alloc_shared((64, 32), float16)
        b_shared = pipe.alloc_shared((32, 64), float16)
        total = pipe.alloc_fragment((64, 64), float32)
        for tile in range(block, tiles, 2):
            pipe.clear(total)
            for step in pipe.Pipelined(pipe.ceildiv(a.shape[1], 32), num_stages=stages):
                pipe.copy(a[tile * 64, step * 32], a_shared)
                pipe.copy(b[step * 32, 0], b_shared)
                pipe.gemm(a_shared, b_shared, total)
            pipe.copy(total, c[tile * 64, 0])


@pytest.mark.parametrize("options", SCHEDULES)
@pytest.mark.parametrize(
    ("target", "k", "stages"), [(t, k, s) for t in TARGETS for k, s in ((96, 2), (32, 3), (160, 4))]
)
def test_a_pipeline_runs_again_and_again(
    target: str, k: int, stages: int, options: dict[str, Any]
) -> None:
    a, b, c = data(320, k), data(k, 64, seed=1), np.full((320, 64), np.nan, F16)
    persistent.for_target(target)(a, b, c, 5, stages, **options)
    wanted = a.astype(float) @ b.astype(float)
    assert np.all(np.abs(c - wanted) <= 2.0**-11 * np.abs(wanted) + 2.0**-8)


@pytest.mark.parametrize("target", TARGETS)
def test_a_pipeline_runs_again_in_ptx(target: str) -> None:
    a, b, c = data(320, 96), data(96, 64, seed=1), np.full((320, 64), np.nan, F16)
    run_on_machine(persistent.for_target(target), a, b, c, 5, 2)
    wanted = a.astype(float) @ b.astype(float)
    assert np.all(np.abs(c - wanted) <= 2.0**-11 * np.abs(wanted) + 2.0**-8)


@pipe.kernel
def empty(c, a, steps):
    """As many steps as asked for, perhaps none."""
    with pipe.Kernel(1, threads=128):
        a_shared = pipe.alloc_shared((64, 32), float16)
        total = pipe.alloc_fragment((64, 64), float32)
        pipe.clear(total)
        for _step in pipe.Pipelined(steps, num_stages=2):
            pipe.copy(a[0, 0], a_shared)
            pipe.gemm(a_shared, a_shared, total, transpose_B=True)
        pipe.copy(total, c[0, 0])


@pytest.mark.parametrize("target", TARGETS)
def test_no_step_at_all_leaves_zeros(target: str) -> None:
    for steps in (0, 1):
        a, c = data(64, 32), np.full((64, 64), np.nan, F16)
        empty.for_target(target)(c, a, steps)
        wanted = steps * (a.astype(float) @ a.astype(float).T)
        assert np.all(np.abs(c - wanted) <= 2.0**-10 * np.abs(wanted))


@pytest.mark.parametrize("options", SCHEDULES)
@pytest.mark.parametrize("causal", [False, True])
def test_attention_is_right(causal: bool, options: dict[str, Any]) -> None:
    q, k, v = (data(2, 150, 64, seed=s) for s in range(3))
    o = np.full_like(q, np.nan)
    example("flash_attention").attention(q, k, v, o, causal, **options)
    assert attention_error(q, k, v, o, causal) < 1e-3


@pytest.mark.parametrize("causal", [False, True])
def test_attention_is_right_in_ptx(causal: bool) -> None:
    q, k, v = (data(1, 100, 64, seed=s) for s in range(3))
    o = np.full_like(q, np.nan)
    run_on_machine(example("flash_attention").attention, q, k, v, o, causal)
    assert attention_error(q, k, v, o, causal) < 1e-3


def attention_error(q: Any, k: Any, v: Any, o: Any, causal: bool) -> float:
    """Relative in the 2-norm; probabilities are rounded to half precision."""
    wide = [x.astype(float) for x in (q, k, v)]
    scores = np.einsum("hid,hjd->hij", wide[0], wide[1]) / 8
    if causal:
        hidden = np.arange(q.shape[1])[None, :] > np.arange(q.shape[1])[:, None]
        scores = np.where(hidden, -np.inf, scores)
    weights = np.exp(scores - scores.max(-1, keepdims=True))
    wanted = np.einsum("hij,hjd->hid", weights / weights.sum(-1, keepdims=True), wide[2])
    return float(np.linalg.norm(o - wanted) / np.linalg.norm(wanted))


@pipe.kernel
def through_shared(a, c):
    """Registers, shared memory, and out as a whole."""
    with pipe.Kernel(pipe.ceildiv(a.shape[0], 64), threads=128) as x:
        first = pipe.alloc_shared((64, 64), float16)
        second = pipe.alloc_shared((64, 64), float16)
        held = pipe.alloc_fragment((64, 64), float32)
        pipe.copy(a[x * 64, 0], first)
        pipe.copy(first, held)
        for i, j in pipe.Parallel(64, 64):
            held[i, j] = held[i, j] * 2.0
        pipe.copy(held, second)
        pipe.copy(second, c[x * 64, 0])
        for i, j in pipe.Parallel(64, 64):
            held[i, j] = first[i, j] + held[i, j]
        pipe.copy(held, second)
        pipe.copy(second, c[x * 64, 64])


@pytest.mark.parametrize("options", SCHEDULES)
@pytest.mark.parametrize("target", TARGETS)
def test_memory_is_used_again_when_it_is_free(target: str, options: dict[str, Any]) -> None:
    a, c = data(100, 64), np.full((100, 128), np.nan, F16)
    through_shared.for_target(target)(a, c, **options)
    assert np.array_equal(c, np.concatenate([2 * a, 3 * a], axis=1))


@pytest.mark.parametrize("target", TARGETS)
def test_memory_is_used_again_in_ptx(target: str) -> None:
    a, c = data(100, 64), np.full((100, 128), np.nan, F16)
    run_on_machine(through_shared.for_target(target), a, c)
    assert np.array_equal(c, np.concatenate([2 * a, 3 * a], axis=1))


@pipe.kernel
def chosen(a, c, doubled):
    """A branch at run time changes a fragment and a tile in shared memory."""
    with pipe.Kernel(1, threads=128):
        shared = pipe.alloc_shared((64, 64), float16)
        held = pipe.alloc_fragment((64, 64), float32)
        pipe.copy(a[0, 0], shared)
        pipe.copy(shared, held)
        if doubled == 1:
            for i, j in pipe.Parallel(64, 64):
                held[i, j] *= 2.0
            pipe.copy(held, shared)
        pipe.copy(shared, c[0, 0])
        pipe.copy(held, c[64, 0])


@pytest.mark.parametrize("doubled", [0, 1])
@pytest.mark.parametrize("target", TARGETS)
def test_branches_change_what_they_say(target: str, doubled: int) -> None:
    a, c = data(64, 64), np.full((128, 64), np.nan, F16)
    chosen.for_target(target)(a, c, doubled, schedule="adversarial")
    assert np.array_equal(c, np.concatenate([a * (1 + doubled)] * 2))


@pytest.mark.parametrize("doubled", [0, 1])
@pytest.mark.parametrize("target", TARGETS)
def test_branches_change_what_they_say_in_ptx(target: str, doubled: int) -> None:
    a, c = data(64, 64), np.full((128, 64), np.nan, F16)
    run_on_machine(chosen.for_target(target), a, c, doubled)
    assert np.array_equal(c, np.concatenate([a * (1 + doubled)] * 2))


@pipe.kernel
def row_sums(a, c):
    with pipe.Kernel(1, threads=128):
        held = pipe.alloc_fragment((32, 64), float32)
        low = pipe.alloc_fragment((32,), float32)
        high = pipe.alloc_fragment((32,), float32)
        sums = pipe.alloc_fragment((32,), float32)
        pipe.copy(a[0, 0], held)
        pipe.reduce_min(held, low, dim=1)
        pipe.reduce_max(held, high, dim=1)
        pipe.fill(sums, 1.0)
        pipe.reduce_sum(held, sums, dim=1, clear=False)
        pipe.copy(low, c[0])
        pipe.copy(high, c[32])
        pipe.copy(sums, c[64])


def test_reductions_along_rows() -> None:
    a = np.arange(32 * 64, dtype=F16).reshape(32, 64) % 7
    c = np.full(96, np.nan, np.float32)
    row_sums(a, c)
    wide = a.astype(np.float32)
    assert np.array_equal(c[:32], wide.min(1))
    assert np.array_equal(c[32:64], wide.max(1))
    assert np.array_equal(c[64:], wide.sum(1) + 1)


@pytest.mark.parametrize("target", TARGETS)
def test_reductions_along_rows_in_ptx(target: str) -> None:
    a = np.arange(32 * 64, dtype=F16).reshape(32, 64) % 7
    c = np.full(96, np.nan, np.float32)
    run_on_machine(row_sums.for_target(target), a, c)
    wide = a.astype(np.float32)
    assert np.array_equal(c, np.concatenate([wide.min(1), wide.max(1), wide.sum(1) + 1]))


def scaled(held, factor):
    """A helper that changes a fragment of its caller's."""
    for i, j in pipe.Parallel(32, 64):
        held[i, j] = held[i, j] * factor


@pipe.kernel
def helped(a, c):
    with pipe.Kernel(1, threads=128):
        held = pipe.alloc_fragment((32, 64), float32)
        pipe.copy(a[0, 0], held)
        scaled(held, 2.0)
        for _turn in range(3):
            scaled(held, 2.0)
        pipe.copy(held, c[0, 0])


def test_functions_change_fragments_of_their_callers() -> None:
    a, c = data(32, 64), np.full((32, 64), np.nan, np.float32)
    helped(a, c)
    assert np.array_equal(c, 16 * a.astype(np.float32))


@pipe.kernel
def in_place(c):
    with pipe.Kernel(pipe.ceildiv(c.shape[0], 32), threads=128) as x:
        held = pipe.alloc_fragment((32, 64), float32)
        for _turn in range(2):
            pipe.copy(c[x * 32, 0], held)
            for i, j in pipe.Parallel(32, 64):
                held[i, j] += 1.0
            pipe.copy(held, c[x * 32, 0])


@pytest.mark.parametrize("target", TARGETS)
def test_an_array_is_read_and_written_in_ptx(target: str) -> None:
    c = np.zeros((100, 64), np.float32)
    run_on_machine(in_place.for_target(target), c)
    assert np.all(c == 2)


@pytest.mark.parametrize("options", SCHEDULES)
def test_an_array_is_read_and_written_in_the_order_of_the_text(options: dict[str, Any]) -> None:
    c = np.zeros((100, 64), np.float32)
    in_place(c, **options)
    assert np.all(c == 2)


@pipe.kernel
def grouped(a, b, bias, c, threads: Constant[int]):
    """Two products of a block of tiles each, through shared memory between: warpgroups meet."""
    with pipe.Kernel(2, threads=threads) as block:
        a_shared = pipe.alloc_shared((128, 64), float16)
        b_shared = pipe.alloc_shared((64, 64), float16)
        between = pipe.alloc_shared((128, 64), float16)
        total = pipe.alloc_fragment((128, 64), float32)
        sums = pipe.alloc_fragment((128,), float32)
        row = pipe.alloc_fragment((64,), float32, replicated=True)
        pipe.copy(bias[0], row)
        for tile in range(block, 4, 2):
            pipe.clear(total)
            for step in pipe.Pipelined(pipe.ceildiv(a.shape[1], 64), num_stages=2):
                pipe.copy(a[tile * 128, step * 64], a_shared)
                pipe.copy(b[step * 64, 0], b_shared)
                pipe.gemm(a_shared, b_shared, total)
            pipe.reduce_max(total, sums, dim=1)
            for i, j in pipe.Parallel(128, 64):
                total[i, j] = total[i, j] - sums[i] + row[j] + pipe.where(i == j, 1.0, 0.0)
            pipe.copy(total, between)
            pipe.copy(between, c[tile * 128, 0])


@pytest.mark.parametrize("options", SCHEDULES)
@pytest.mark.parametrize("threads", [128, 256])
def test_warpgroups_meet_where_memory_is_shared(threads: int, options: dict[str, Any]) -> None:
    a, b, bias = data(512, 192), data(192, 64, seed=1), data(64, seed=2)
    c = np.full((512, 64), np.nan, F16)
    grouped(a, b, bias, c, threads, **options)
    product = a.astype(float) @ b.astype(float)
    ones = np.tile(np.eye(128, 64), (4, 1))
    wanted = product - product.max(1, keepdims=True) + bias.astype(float) + ones
    assert np.all(np.abs(c - wanted) <= 2.0**-10 * np.abs(wanted) + 2.0**-10)


@pytest.mark.parametrize("threads", [128, 256])
def test_warpgroups_meet_in_ptx(threads: int) -> None:
    a, b, bias = data(512, 192), data(192, 64, seed=1), data(64, seed=2)
    c = np.full((512, 64), np.nan, F16)
    run_on_machine(grouped, a, b, bias, c, threads, seed=3)
    product = a.astype(float) @ b.astype(float)
    ones = np.tile(np.eye(128, 64), (4, 1))
    wanted = product - product.max(1, keepdims=True) + bias.astype(float) + ones
    assert np.all(np.abs(c - wanted) <= 2.0**-10 * np.abs(wanted) + 2.0**-10)


def test_rows_of_warpgroups_are_not_combined() -> None:
    @pipe.kernel
    def kernel(c):
        with pipe.Kernel(1, threads=256):
            held = pipe.alloc_fragment((128, 64), float32)
            sums = pipe.alloc_fragment((64,), float32)
            pipe.clear(held)
            pipe.reduce_sum(held, sums, dim=0)
            pipe.copy(sums, c[0])

    with pytest.raises(ReftileError, match="rows are dealt out to several warpgroups"):
        kernel.specialise(np.zeros(64, np.float32))
