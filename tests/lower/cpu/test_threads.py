"""Threads of a launch: how many there are, that results do not depend on it, and those of BLAS."""

from __future__ import annotations

import os
import threading
from collections.abc import Callable, Generator
from typing import Any

import numpy as np
import pytest

import reftile
import reftile.lang as ct
from reftile.rt.cpu import blas, launch, launch_cpu, prepare, thread_count
from reftile.rt.cpu import threads as cpu_threads

ZERO = ct.PaddingMode.ZERO
SECONDS = 60.0
"""How long a thread may take to get somewhere."""


@reftile.kernel
def product(a, b, c, m: ct.Constant[int], n: ct.Constant[int], k: ct.Constant[int]):
    i, j = ct.bid(0), ct.bid(1)
    acc = ct.zeros((m, n), ct.float32)
    for s in range(ct.num_tiles(a, 1, (m, k))):
        x = ct.load(a, (i, s), (m, k), padding_mode=ZERO)
        y = ct.load(b, (s, j), (k, n), padding_mode=ZERO)
        acc = ct.mma(x, y, acc)
    ct.store(c, (i, j), ct.exp(acc / 64.0))


@reftile.kernel
def normalise(x, y, width: ct.Constant[int]):
    i = ct.bid(0)
    row = ct.load(x, (i, 0), (2, width), padding_mode=ZERO)
    mean = ct.sum(row, axis=1, keepdims=True) / width
    apart = row - mean
    spread = ct.sum(apart * apart, axis=1, keepdims=True) / width
    ct.store(y, (i, 0), apart * ct.rsqrt(spread + 1e-5))


@reftile.kernel
def histogram(x, bins, most, tile: ct.Constant[int]):
    i = ct.bid(0)
    values = ct.load(x, (i,), (tile,))
    ct.atomic_add(bins, values, 1)
    ct.atomic_max(most, values, i)


@reftile.kernel(progress="cooperative")
def hold(a, b, c, begun, flag):
    """A product, and then the block waits until the host lets it go."""
    x, y = ct.load(a, (0, 0), (64, 64)), ct.load(b, (0, 0), (64, 64))
    ct.store(c, (0, 0), ct.mma(x, y, ct.zeros((64, 64), ct.float32)))
    ct.atomic_xchg(begun, 0, 1, memory_order=ct.MemoryOrder.RELEASE)
    while ct.atomic_cas(flag, 0, 7, 7, memory_order=ct.MemoryOrder.ACQUIRE) != 7:
        pass


@reftile.kernel(progress="cooperative")
def meet(count, out, blocks: ct.Constant[int]):
    """Every block waits until all are there."""
    ct.atomic_add(count, 0, 1, memory_order=ct.MemoryOrder.RELEASE)
    while ct.atomic_add(count, 0, 0, memory_order=ct.MemoryOrder.ACQUIRE) != blocks:
        pass
    ct.store(out, (ct.bid(0),), ct.full((1,), 1, ct.int32))


@reftile.kernel
def doubtful_product(a, b, c, fine):
    x, y = ct.load(a, (0, 0), (64, 64)), ct.load(b, (0, 0), (64, 64))
    ct.store(c, (0, 0), ct.mma(x, y, ct.zeros((64, 64), ct.float32)))
    ct.assert_(ct.load(fine, (0,), (1,)) == 1, "not fine")


def matrices(m: int, n: int, k: int) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    rng = np.random.default_rng(m + n + k)
    a = rng.standard_normal((m, k), dtype=np.float32)
    return a, rng.standard_normal((k, n), dtype=np.float32), np.zeros((m, n), np.float32)


# How many


def rows() -> tuple[Any, tuple[int]]:
    """A kernel with enough blocks for many threads, and its grid."""
    x = np.random.default_rng(0).standard_normal((1000, 300), dtype=np.float32)
    return normalise.specialise(x, np.zeros_like(x), 300), (500,)


def threads_used(threads: int | None = None) -> int:
    found, grid = rows()
    return launch_cpu(found.kernel, grid, found.values, threads=threads).threads


def test_there_are_as_many_as_this_process_has_processors(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("REFTILE_CPU_THREADS", raising=False)
    monkeypatch.setattr(os, "sched_getaffinity", lambda process: {1, 4, 7}, raising=False)
    assert thread_count() == threads_used() == 3


@pytest.mark.skipif(not hasattr(os, "sched_setaffinity"), reason="there is no affinity here")
def test_affinity_is_that_of_the_system(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("REFTILE_CPU_THREADS", raising=False)
    before = os.sched_getaffinity(0)
    try:
        os.sched_setaffinity(0, {min(before)})
        assert thread_count() == threads_used() == 1
    finally:
        os.sched_setaffinity(0, before)
    assert thread_count() == threads_used() == len(before)


def test_the_argument_overrides_the_variable_and_that_the_processors(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(os, "sched_getaffinity", lambda process: {1, 4, 7}, raising=False)
    monkeypatch.setenv("REFTILE_CPU_THREADS", "5")
    assert threads_used() == 5
    assert threads_used(threads=2) == 2


def test_variables_of_other_libraries_do_not_matter(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("REFTILE_CPU_THREADS", raising=False)
    monkeypatch.setattr(os, "sched_getaffinity", lambda process: {1, 4, 7}, raising=False)
    for name in ("NUMBA_NUM_THREADS", "OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS"):
        monkeypatch.setenv(name, "1")
    assert threads_used() == 3


@pytest.mark.parametrize("chosen", ["0", "-2", "two", "1.5", " "])
def test_a_variable_that_is_no_number_is_diagnosed(
    monkeypatch: pytest.MonkeyPatch, chosen: str
) -> None:
    monkeypatch.setenv("REFTILE_CPU_THREADS", chosen)
    with pytest.raises(reftile.ReftileError, match="REFTILE_CPU_THREADS") as caught:
        threads_used()
    assert caught.value.diagnosis.rule == "cpu.threads"


@pytest.mark.parametrize("threads", [0, -1])
def test_less_than_one_thread_is_diagnosed(threads: int) -> None:
    with pytest.raises(reftile.ReftileError) as caught:
        threads_used(threads=threads)
    assert caught.value.diagnosis.rule == "cpu.threads"


def test_blocks_run_on_as_many_threads_as_are_said(monkeypatch: pytest.MonkeyPatch) -> None:
    found, grid = rows()
    all_there = threading.Barrier(3)
    seen: set[int] = set()
    address = cpu_threads.scratch_address

    def meet(size: int) -> int:
        """What every thread does before its first block."""
        seen.add(threading.get_ident())
        all_there.wait(SECONDS)
        return address(size)

    monkeypatch.setattr(cpu_threads, "scratch_address", meet)
    assert launch_cpu(found.kernel, grid, found.values, threads=3).threads == 3
    assert len(seen) == 3 and threading.get_ident() in seen


# The same bits


def of_product() -> tuple[Any, tuple[int, ...], list[np.ndarray]]:
    a, b, c = matrices(150, 110, 200)
    return product.specialise(a, b, c, 32, 32, 16), (5, 4), [c]


def of_rows() -> tuple[Any, tuple[int, ...], list[np.ndarray]]:
    x = np.random.default_rng(0).standard_normal((999, 300), dtype=np.float32)
    y = np.zeros_like(x)
    return normalise.specialise(x, y, 300), (500,), [y]


def of_meeting() -> tuple[Any, tuple[int, ...], list[np.ndarray]]:
    count, out = np.zeros(1, np.int32), np.zeros(5, np.int32)
    return meet.specialise(count, out, 5), (5,), [count, out]


def of_atomics() -> tuple[Any, tuple[int, ...], list[np.ndarray]]:
    x = np.random.default_rng(0).integers(0, 8, 1_024_000, dtype=np.int32)
    bins, most = np.zeros(8, np.int32), np.zeros(8, np.int32)
    return histogram.specialise(x, bins, most, 512), (2000,), [bins, most]


@pytest.mark.parametrize("kernel", [of_product, of_rows, of_atomics])
def test_bits_do_not_depend_on_the_number_of_threads(
    kernel: Callable[[], tuple[Any, tuple[int, ...], list[np.ndarray]]],
) -> None:
    found, grid, results = kernel()
    bits: set[bytes] = set()
    for threads in (1, 2, 3, 5) * 5:
        for result in results:
            result[:] = 0
        assert launch_cpu(found.kernel, grid, found.values, threads=threads).threads == threads
        bits.add(b"".join(r.tobytes() for r in results))
    assert len(bits) == 1
    assert all(result.any() for result in results)


# BLAS


@pytest.fixture
def blas_threads() -> Generator[Callable[[], int]]:
    """How many threads scipy's OpenBLAS uses now; it starts with 3."""
    get, put = blas._find_thread_functions()
    before = get()
    put(3)
    if get() != 3:
        pytest.skip("scipy brings no BLAS whose threads can be counted")
    yield get
    put(before)


class Held:
    """A launch on a thread of its own that has called BLAS, and ends when it is let go."""

    def __init__(self) -> None:
        self.a, self.b, self.c = matrices(64, 64, 64)
        self.begun, self.flag = np.zeros(1, np.int32), np.zeros(1, np.int32)
        found = hold.specialise(self.a, self.b, self.c, self.begun, self.flag)
        self.failed: list[BaseException] = []

        def work() -> None:
            try:
                launch_cpu(found.kernel, (1,), found.values)
            except BaseException as error:
                self.failed.append(error)

        self.thread = threading.Thread(target=work)

    def __enter__(self) -> Held:
        self.thread.start()
        waited = threading.Event()
        for _ in range(int(SECONDS * 100)):
            if self.begun[0] or not self.thread.is_alive():
                break
            waited.wait(0.01)
        assert self.begun[0] == 1, self.failed
        return self

    def __exit__(self, *error: object) -> None:
        self.flag[0] = 7
        self.thread.join(SECONDS)
        assert np.allclose(self.c, self.a @ self.b, atol=1e-3)


def test_blas_has_one_thread_while_a_launch_may_call_it(blas_threads: Callable[[], int]) -> None:
    with Held():
        assert blas_threads() == 1
    assert blas_threads() == 3


def test_launches_that_overlap_give_the_threads_back_at_the_end(
    blas_threads: Callable[[], int],
) -> None:
    found, grid, _ = of_product()
    with Held():
        with Held():
            launch_cpu(found.kernel, grid, found.values, threads=2)
            assert blas_threads() == 1
        assert blas_threads() == 1
    assert blas_threads() == 3
    launch_cpu(found.kernel, grid, found.values, threads=2)
    assert blas_threads() == 3


def test_kernels_without_products_leave_blas_alone(
    blas_threads: Callable[[], int], monkeypatch: pytest.MonkeyPatch
) -> None:
    seen: list[int] = []
    address = cpu_threads.scratch_address

    def note(size: int) -> int:
        seen.append(blas_threads())
        return address(size)

    monkeypatch.setattr(cpu_threads, "scratch_address", note)
    found, grid = rows()
    launch_cpu(found.kernel, grid, found.values, threads=1)
    found, grid, _ = of_product()
    launch_cpu(found.kernel, grid, found.values, threads=1)
    assert seen == [3, 1]


def test_products_are_loops_where_there_is_no_blas(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(prepare, "blas_address", lambda name: 0)
    monkeypatch.setattr(launch, "blas_address", None)
    a, b, c = matrices(70, 40, 50)
    found = product.specialise(a, b, c, 16, 16, 8)
    launch_cpu(found.kernel, (5, 3), found.values, threads=2)
    assert np.allclose(c, np.exp(a @ b / 64), atol=1e-5)


def test_a_fault_gives_the_threads_back(blas_threads: Callable[[], int]) -> None:
    found = doubtful_product.specialise(*matrices(64, 64, 64), np.zeros(1, np.int32))
    with pytest.raises(reftile.ReftileError, match="not fine"):
        launch_cpu(found.kernel, (1,), found.values)
    assert blas_threads() == 3


def test_a_launch_that_is_stopped_gives_the_threads_back(
    blas_threads: Callable[[], int], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(cpu_threads, "PATIENCE_SECONDS", 0.2)
    held = Held()
    held.thread.start()
    held.thread.join(SECONDS)
    assert [e.diagnosis.rule for e in held.failed] == ["cpu.no_progress"]  # type: ignore[union-attr]
    assert blas_threads() == 3
