"""Neighbouring blocks whose products are one call of BLAS."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import reftile
import reftile.lang as ct
from reftile.lower.cpu.emit import generate
from reftile.rt.cpu import launch_cpu, threads

pytest.importorskip("scipy")

ZERO = ct.PaddingMode.ZERO
M, N, K = 16, 32, 8


def product(a: Any, b: Any, i: Any, j: Any) -> Any:
    total = ct.zeros((M, N), ct.float32)
    for k in range(ct.num_tiles(a, 1, (M, K))):
        x = ct.load(a, (i, k), (M, K), padding_mode=ZERO)
        y = ct.load(b, (k, j), (K, N), padding_mode=ZERO)
        total = ct.mma(x, y, total)
    return total


@reftile.kernel
def rows_first(a, b, c):
    i, j = ct.bid(0), ct.bid(1)
    ct.store(c, (i, j), product(a, b, i, j))


@reftile.kernel
def columns_first(a, b, c):
    j, i = ct.bid(0), ct.bid(1)
    ct.store(c, (i, j), product(a, b, i, j))


@reftile.kernel
def with_more_around_it(a, b, c):
    i, j = ct.bid(0), ct.bid(1)
    ct.store(c, (i, j), product(a, b, i, j) * 2.0 + product(a, b, i, j) + 1.0)


@reftile.kernel
def both_indices_move(a, b, c):
    i = ct.bid(0)
    j = i % 3
    ct.store(c, (i, j), product(a, b, i, j))


@reftile.kernel
def onto_an_operand(a, b, c):
    i, j = ct.bid(0), ct.bid(1)
    total = product(a, b, i, j)
    ct.store(c, (i, j), total)
    ct.store(b, (0, j), ct.zeros((K, N), ct.float32))


@reftile.kernel
def in_a_branch(a, b, c):
    i, j = ct.bid(0), ct.bid(1)
    if j > 0:
        ct.store(c, (i, j), product(a, b, i, j))


@reftile.kernel
def sums_of_other_lengths(a, b, c):
    i, j = ct.bid(0), ct.bid(1)
    total = ct.zeros((M, N), ct.float32)
    for k in range(i):
        x = ct.load(a, (i, k), (M, K), padding_mode=ZERO)
        total = ct.mma(x, ct.load(b, (k, j), (K, N), padding_mode=ZERO), total)
    ct.store(c, (i, j), total)


@reftile.kernel
def with_a_long_way_to_an_index(a, b, c, length: ct.Constant[int]):
    i, j = ct.bid(0), ct.bid(1)
    for k in ct.static_iter(range(length)):
        j = j + (k % 2) * 2 - 1
    ct.store(c, (i, j), product(a, b, i, j))


def arrays(m: int, n: int, k: int, whole: bool = True) -> tuple[np.ndarray, ...]:
    random = np.random.default_rng(m + n + k)
    if whole:
        # Products of small integers have one result in any order.
        a, b = (random.integers(-3, 4, s).astype(np.float32) for s in ((m, k), (k, n)))
    else:
        a, b = (random.standard_normal(s, np.float32) for s in ((m, k), (k, n)))
    return a, b, np.full((m, n), np.nan, np.float32)


@pytest.fixture(autouse=True)
def one_processor(monkeypatch: pytest.MonkeyPatch) -> None:
    """Runs are as long as they get, whatever the machine is."""
    monkeypatch.setattr(threads.os, "cpu_count", lambda: 1)


def grid_of(kernel: Callable[..., None], m: int, n: int) -> tuple[int, int]:
    rows, columns = -(-m // M), -(-n // N)
    return (columns, rows) if kernel is columns_first else (rows, columns)


@pytest.mark.parametrize("kernel", [rows_first, columns_first, with_more_around_it])
@pytest.mark.parametrize("extents", [(128, 256, 40), (120, 250, 37), (256, 256, 8), (16, 32, 8)])
@pytest.mark.parametrize("count", [1, 2, 3])
def test_results_are_those_of_the_interpreter(
    kernel: Any, extents: tuple[int, int, int], count: int
) -> None:
    a, b, c = arrays(*extents)
    grid = grid_of(kernel, *extents[:2])
    found = kernel.specialise(a, b, c)
    assert generate(found.kernel).most_shared > 1
    launch_cpu(found.kernel, grid, found.values, threads=count)
    expected = a @ b
    assert np.array_equal(c, 3 * expected + 1 if kernel is with_more_around_it else expected)
    again = np.zeros_like(c)
    reftile.launch(kernel, grid, (a, b, again), backend="interp", check=True)
    assert np.array_equal(c, again)


@pytest.mark.parametrize("kernel", [rows_first, columns_first])
def test_bits_do_not_depend_on_the_number_of_threads(kernel: Any) -> None:
    a, b, c = arrays(512, 512, 200, whole=False)
    found = kernel.specialise(a, b, c)
    results: set[bytes] = set()
    for count in (1, 2, 3, 5, 7):
        c[:] = np.nan
        launch_cpu(found.kernel, grid_of(kernel, 512, 512), found.values, threads=count)
        results.add(c.tobytes())
    assert len(results) == 1


@pytest.mark.parametrize(
    "kernel", [both_indices_move, onto_an_operand, in_a_branch, sums_of_other_lengths]
)
def test_blocks_that_differ_in_more_share_nothing(kernel: Any) -> None:
    a, b, c = arrays(128, 128, 128)
    found = kernel.specialise(a, b, c)
    assert generate(found.kernel).most_shared == 0


def test_the_way_to_an_index_may_be_long() -> None:
    a, b, c = arrays(128, 128, 40)
    found = with_a_long_way_to_an_index.specialise(a, b, c, 600)
    assert generate(found.kernel).most_shared > 1
    launch_cpu(found.kernel, (8, 4), found.values, threads=2)
    assert np.array_equal(c, a @ b)


def test_arrays_that_overlap_are_not_shared() -> None:
    a, b, c = arrays(128, 128, 128)
    found = rows_first.specialise(a, b, c)
    assert generate(found.kernel, groups=(0, 1, 2)).most_shared > 1
    assert generate(found.kernel, groups=(0, 1, 1)).most_shared == 0


def test_sums_of_other_lengths_are_right() -> None:
    a, b, c = arrays(128, 64, 64)
    found = sums_of_other_lengths.specialise(a, b, c)
    launch_cpu(found.kernel, (8, 2), found.values, threads=2)
    for i in range(8):
        rows = slice(i * M, (i + 1) * M)
        assert np.array_equal(c[rows], a[rows, : i * K] @ b[: i * K])


def test_a_grid_may_end_before_the_array(monkeypatch: pytest.MonkeyPatch) -> None:
    a, b, c = arrays(128, 32, 16)
    found = rows_first.specialise(a, b, c)
    monkeypatch.setattr(threads, "_RUNS_PER_PROCESSOR", 1)
    assert threads.blocks_in_run(64, 4, 4) == 4
    launch_cpu(found.kernel, (4, 1), found.values, threads=1)
    assert np.array_equal(c[:64], (a @ b)[:64]) and np.isnan(c[64:]).all()


@pytest.mark.parametrize(
    ("most", "along_x", "blocks", "processors", "expected"),
    [
        (0, 64, 64, 1, 1),
        (8, 64, 64, 1, 8),
        (8, 12, 144, 1, 4),
        (8, 7, 49, 1, 1),
        (8, 64, 64, 4, 4),
        (8, 64, 64, 64, 1),
        (6, 64, 640, 1, 4),
    ],
)
def test_length_of_runs(
    most: int,
    along_x: int,
    blocks: int,
    processors: int,
    expected: int,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(threads.os, "cpu_count", lambda: processors)
    assert threads.blocks_in_run(most, along_x, blocks) == expected
