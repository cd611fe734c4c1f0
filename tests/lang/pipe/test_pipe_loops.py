"""`Pipelined` among other loops and branches: what is copied ahead, what is not, and both right."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from reftile import pipe
from reftile.ir.print import show
from reftile.pipe import Constant, float16, float32
from tests.interp.pipe.pipe_kernels import SCHEDULES
from tests.lang.pipe.pipe_python import TARGETS, run_on_machine

F16 = np.float16


def data(*shape: int, seed: int = 0) -> Any:
    return np.random.default_rng(seed).standard_normal(shape).astype(F16)


def near(found: Any, wanted: Any) -> bool:
    return bool(np.all(np.abs(found - wanted) <= 2.0**-10 * np.abs(wanted) + 2.0**-8))


@pipe.kernel
def two_loops(a, b, d, c):
    """A B + A D: two loops fill the same memory, one after the other."""
    with pipe.Kernel(1, threads=128):
        left = pipe.alloc_shared((64, 32), float16)
        right = pipe.alloc_shared((32, 64), float16)
        total = pipe.alloc_fragment((64, 64), float32)
        pipe.clear(total)
        for step in pipe.Pipelined(pipe.ceildiv(a.shape[1], 32), num_stages=3):
            pipe.copy(a[0, step * 32], left)
            pipe.copy(b[step * 32, 0], right)
            pipe.gemm(left, right, total)
        for step in pipe.Pipelined(pipe.ceildiv(a.shape[1], 32), num_stages=2):
            pipe.copy(a[0, step * 32], left)
            pipe.copy(d[step * 32, 0], right)
            pipe.gemm(left, right, total)
        pipe.copy(total, c[0, 0])


@pipe.kernel
def nested(a, b, c, parts: Constant[int]):
    """A loop of its own inside each step of another."""
    with pipe.Kernel(1, threads=128):
        left = pipe.alloc_shared((64, 64), float16)
        right = pipe.alloc_shared((64, 64), float16)
        total = pipe.alloc_fragment((64, 64), float32)
        pipe.clear(total)
        for outer in pipe.Pipelined(parts, num_stages=2):
            pipe.copy(a[0, outer * 64], left)
            for inner in pipe.Pipelined(2, num_stages=2):
                pipe.copy(b[(outer * 2 + inner) * 64, 0], right)
                pipe.gemm(left, right, total)
        pipe.copy(total, c[0, 0])


@pipe.kernel
def turned(a, b, c):
    """A^T B^T."""
    with pipe.Kernel(1, threads=128):
        left = pipe.alloc_shared((64, 64), float16)
        right = pipe.alloc_shared((64, 64), float16)
        total = pipe.alloc_fragment((64, 64), float32)
        pipe.clear(total)
        for step in pipe.Pipelined(pipe.ceildiv(a.shape[0], 64), num_stages=2):
            pipe.copy(a[step * 64, 0], left)
            pipe.copy(b[0, step * 64], right)
            pipe.gemm(left, right, total, transpose_A=True, transpose_B=True)
        pipe.copy(total, c[0, 0])


@pipe.kernel
def sometimes(a, b, c):
    """The product is done in every other step, and the copies in all."""
    with pipe.Kernel(1, threads=128):
        left = pipe.alloc_shared((64, 32), float16)
        right = pipe.alloc_shared((32, 64), float16)
        total = pipe.alloc_fragment((64, 64), float32)
        pipe.clear(total)
        for step in pipe.Pipelined(pipe.ceildiv(a.shape[1], 32), num_stages=2):
            pipe.copy(a[0, step * 32], left)
            pipe.copy(b[step * 32, 0], right)
            if pipe.remainder(step, 2) == 0:
                pipe.gemm(left, right, total)
        pipe.copy(total, c[0, 0])


@pipe.kernel
def by_table(a, table, c):
    """Where a step copies from stands in memory: it is copied when it is known, not ahead."""
    with pipe.Kernel(1, threads=128):
        block = pipe.alloc_shared((32, 64), float16)
        held = pipe.alloc_fragment((32, 64), float32)
        total = pipe.alloc_fragment((32, 64), float32)
        cells = pipe.tiles(table, (1,))
        pipe.clear(total)
        for step in pipe.Pipelined(table.shape[0], num_stages=3):
            number, _read = cells.load((step,))
            pipe.copy(a[number.reshape(()) * 32, 0], block)
            pipe.copy(block, held)
            for i, j in pipe.Parallel(32, 64):
                total[i, j] += held[i, j]
        pipe.copy(total, c[0, 0])


@pipe.kernel
def sums(a, c, stages: Constant[int]):
    """No product: what a loop copies ahead is added up."""
    with pipe.Kernel(1, threads=128):
        block = pipe.alloc_shared((32, 64), float16)
        total = pipe.alloc_fragment((32, 64), float32)
        pipe.clear(total)
        for step in pipe.Pipelined(1, pipe.ceildiv(a.shape[0], 32), num_stages=stages):
            pipe.copy(a[step * 32, 0], block)
            for i, j in pipe.Parallel(32, 64):
                total[i, j] += block[i, j]
        pipe.copy(total, c[0, 0])


@pipe.kernel
def plain(a, b, c):
    """The same product without `Pipelined`: each step copies and waits."""
    with pipe.Kernel(1, threads=128):
        left = pipe.alloc_shared((64, 32), float16)
        right = pipe.alloc_shared((32, 64), float16)
        total = pipe.alloc_fragment((64, 64), float32)
        pipe.clear(total)
        for step in range(pipe.ceildiv(a.shape[1], 32)):
            pipe.copy(a[0, step * 32], left)
            pipe.copy(b[step * 32, 0], right)
            pipe.gemm(left, right, total)
        pipe.copy(total, c[0, 0])


@pipe.kernel
def feedback(a, c):
    """What a step stores the next one copies: nothing is copied ahead of the store."""
    with pipe.Kernel(1, threads=128):
        block = pipe.alloc_shared((32, 64), float16)
        held = pipe.alloc_fragment((32, 64), float16)
        for step in pipe.Pipelined(3, num_stages=3):
            pipe.copy(c[step * 32, 0], block)
            pipe.copy(block, held)
            for i, j in pipe.Parallel(32, 64):
                held[i, j] = held[i, j].astype(float32) * 2.0
            pipe.copy(held, c[step * 32 + 32, 0])


@pipe.kernel
def stored_first(a, c):
    """A loop copies what was stored in front of it."""
    with pipe.Kernel(1, threads=128):
        block = pipe.alloc_shared((32, 64), float16)
        held = pipe.alloc_fragment((32, 64), float32)
        for part in range(3):
            pipe.copy(a[part * 32, 0], held)
            pipe.copy(held, c[part * 32, 0])
        total = pipe.alloc_fragment((32, 64), float32)
        pipe.clear(total)
        for step in pipe.Pipelined(3, num_stages=2):
            pipe.copy(c[step * 32, 0], block)
            for i, j in pipe.Parallel(32, 64):
                total[i, j] += block[i, j]
        pipe.copy(total, c[96, 0])


def cases() -> dict[str, tuple[Any, list[Any], Any]]:
    """By name: the kernel, its arguments with the result last or before constants, the result."""
    a, b, d = data(64, 128), data(128, 64, seed=1), data(128, 64, seed=2)
    wide = [x.astype(float) for x in (a, b, d)]
    c = np.full((64, 64), np.nan, F16)
    even = np.repeat(np.arange(4) % 2 == 0, 32)
    table = np.array([3, 0, 2, 2, 1], np.int32)
    blocks = data(128, 64, seed=3)
    by_block = blocks.astype(float).reshape(4, 32, 64)
    small = np.full((32, 64), np.nan, np.float32)
    tall = data(256, 64, seed=4)
    chain = np.concatenate([data(32, 64), np.full((96, 64), np.nan, F16)])
    deep = data(64, 128), data(256, 64, seed=5)
    parts = [deep[0][:, o * 64 : o * 64 + 64].astype(float) for o in range(2)]
    below = [
        deep[1][o * 128 : o * 128 + 128].astype(float).reshape(2, 64, 64).sum(0) for o in (0, 1)
    ]
    first = data(96, 64, seed=6), np.full((128, 64), np.nan, F16)
    summed = first[0].astype(float).reshape(3, 32, 64).sum(0)
    return {
        "stored_first": (stored_first, [*first], np.concatenate([first[0].astype(float), summed])),
        "two_loops": (two_loops, [a, b, d, c], wide[0] @ (wide[1] + wide[2])),
        "nested": (nested, [*deep, c, 2], sum(p @ q for p, q in zip(parts, below, strict=True))),
        "turned": (turned, [b, a, c], wide[1].T @ wide[0].T),
        "sometimes": (sometimes, [a, b, c], (wide[0] * even) @ wide[1]),
        "by_table": (by_table, [blocks, table, small], by_block[table].sum(0)),
        "sums 1": (sums, [tall, small, 1], tall[32:].astype(float).reshape(7, 32, 64).sum(0)),
        "sums 4": (sums, [tall, small, 4], tall[32:].astype(float).reshape(7, 32, 64).sum(0)),
        "plain": (plain, [a, b, c], wide[0] @ wide[1]),
        "feedback": (
            feedback,
            [a, chain],
            np.concatenate([chain[:32].astype(float) * 2**i for i in range(4)]),
        ),
    }


@pytest.mark.parametrize("target", TARGETS)
@pytest.mark.parametrize("name", cases())
def test_it_is_right_under_every_schedule(name: str, target: str) -> None:
    kernel, args, wanted = cases()[name]
    result = next(x for x in reversed(args) if isinstance(x, np.ndarray))
    start = result.copy()
    for options in SCHEDULES:
        result[...] = start
        kernel.for_target(target)(*args, **options)
        assert near(result, wanted), (name, options)


IN_PTX = [name for name in cases() if name != "by_table"]
"""Not those that load a number as a tile of one element."""


@pytest.mark.parametrize("target", TARGETS)
@pytest.mark.parametrize("name", IN_PTX)
def test_it_is_right_in_ptx(name: str, target: str) -> None:
    kernel, args, wanted = cases()[name]
    run_on_machine(kernel.for_target(target), *args, seed=1)
    assert near(next(x for x in reversed(args) if isinstance(x, np.ndarray)), wanted)


@pytest.mark.parametrize(
    ("name", "ahead"), [("sums 4", True), ("by_table", False), ("feedback", False)]
)
def test_what_is_copied_ahead(name: str, ahead: bool) -> None:
    kernel, args, _wanted = cases()[name]
    text = show(kernel.specialise(*args).kernel)
    assert ("ring<4" in text or "ring<3" in text) == ahead
