"""Whole kernels of the kinds that users write, against NumPy, in any order that tokens allow."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import reftile
import reftile.lang as ct

ConstInt = ct.Constant[int]
ZERO = ct.PaddingMode.ZERO
RNG = np.random.default_rng(0)


def normal(*shape: int) -> np.ndarray:
    return RNG.standard_normal(shape).astype(np.float32)


def grouped(tile: Any, rows: Any, columns: Any, group: int) -> tuple[Any, Any]:
    """The row and column of a tile when tiles are numbered in groups of rows."""
    width = group * columns
    first = tile // width * group
    height = min(rows - first, group)
    return first + tile % width % height, tile % width // height


@reftile.kernel
def persistent_matmul(a, b, c, m: ConstInt, n: ConstInt, k: ConstInt):
    rows, columns = ct.num_tiles(c, 0, (m, n)), ct.num_tiles(c, 1, (m, n))
    dtype = ct.tfloat32 if a.dtype == ct.float32 else a.dtype
    for tile in range(ct.bid(0), rows * columns, ct.num_blocks(0)):
        i, j = grouped(tile, rows, columns, 2)
        acc = ct.zeros((m, n), ct.float32)
        for step in range(ct.cdiv(a.shape[1], k)):
            x = ct.load(a, (i, step), (m, k), padding_mode=ZERO).astype(dtype)
            y = ct.load(b, (step, j), (k, n), padding_mode=ZERO).astype(dtype)
            acc = ct.mma(x, y, acc)
        ct.store(c, (i, j), acc.astype(c.dtype))


@pytest.mark.parametrize("schedule", ["program", "adversarial"])
def test_a_persistent_matmul(schedule: str) -> None:
    a, b = normal(20, 24), normal(24, 12)
    c = np.zeros((20, 12), np.float32)
    reftile.launch(persistent_matmul, 3, (a, b, c, 8, 4, 8), schedule=schedule, seed=1)
    np.testing.assert_allclose(c, a @ b, atol=2e-2)


@reftile.kernel
def attention(
    q, k, v, out, scale, d: ConstInt, m: ConstInt, n: ConstInt, causal: ct.Constant[bool]
):
    i = ct.bid(0)
    rows = i * m + ct.arange(m, dtype=np.int32)[:, None]
    query = ct.load(q, (i, 0), (m, d))
    best = ct.full((m, 1), -np.inf, np.float32)
    total, acc = ct.zeros((m, 1), np.float32), ct.zeros((m, d), np.float32)
    steps = ct.cdiv(min((i + 1) * m, k.shape[0]) if causal else k.shape[0], n)
    for j in range(steps):
        keys = ct.load(k, (0, j), (d, n), order=(1, 0))
        scores = ct.mma(query, keys, ct.zeros((m, n), np.float32)) * scale
        if causal:
            columns = j * n + ct.arange(n, dtype=np.int32)[None, :]
            scores = ct.where(rows >= columns, scores, -np.inf)
        higher = max(best, ct.max(scores, -1, keepdims=True))
        weights, shrink = ct.exp(scores - higher), ct.exp(best - higher)
        total = total * shrink + ct.sum(weights, -1, keepdims=True)
        acc = ct.mma(weights.astype(v.dtype), ct.load(v, (j, 0), (n, d)), acc * shrink)
        best = higher
    ct.store(out, (i, 0), (acc / total).astype(out.dtype))


@pytest.mark.parametrize("causal", [False, True])
def test_attention_with_a_running_maximum(causal: bool) -> None:
    q, k, v = normal(16, 8), normal(16, 8), normal(16, 8)
    out = np.zeros_like(q)
    attention[2](q, k, v, out, 0.5, 8, 8, 4, causal)
    scores = q @ k.T * 0.5
    if causal:
        scores = np.where(np.tri(16, dtype=bool), scores, -np.inf)
    weights = np.exp(scores - scores.max(1, keepdims=True))
    np.testing.assert_allclose(out, weights / weights.sum(1, keepdims=True) @ v, atol=1e-5)


@reftile.kernel(progress="cooperative")
def sum_rows_under_locks(x, out, locks, n: ConstInt):
    row = ct.bid(0)
    group = row % locks.shape[0]
    for j in range(ct.num_tiles(x, 1, (1, n))):
        part = ct.load(x, (row, j), (1, n), padding_mode=ZERO)
        while ct.atomic_cas(locks, group, 0, 1, memory_order=ct.MemoryOrder.ACQUIRE) == 1:
            pass
        part += ct.load(out, (group, j), (1, n), padding_mode=ZERO)
        ct.store(out, (group, j), part)
        ct.atomic_xchg(locks, group, 0, memory_order=ct.MemoryOrder.RELEASE)


@pytest.mark.parametrize("seed", range(3))
def test_blocks_take_turns_under_locks(seed: int) -> None:
    x = np.arange(40, dtype=np.float32).reshape(4, 10)
    out, locks = np.zeros((2, 10), np.float32), np.zeros(2, np.int32)
    reftile.launch(sum_rows_under_locks, 4, (x, out, locks, 8), schedule="adversarial", seed=seed)
    assert np.array_equal(out, x[:2] + x[2:])


@reftile.kernel
def routed_matmul(tokens, weights, order, experts, out, m: ConstInt, n: ConstInt, k: ConstInt):
    i = ct.bid(0)
    rows = ct.gather(order, i * m + ct.arange(m, dtype=ct.int32))
    expert = ct.load(experts, i, ())
    acc = ct.zeros((m, n), ct.float32)
    for step in range(ct.cdiv(weights.shape[2], k)):
        columns = step * k + ct.arange(k, dtype=ct.int32)
        x = ct.gather(tokens, (rows[:, None], columns[None, :]))
        w = ct.load(weights, (expert, step, 0), (1, k, n), order=(0, 2, 1)).reshape((k, n))
        acc = ct.mma(x, w, acc)
    ct.scatter(out, (rows[:, None], ct.arange(n, dtype=ct.int32)), acc)


def test_rows_are_routed_to_experts() -> None:
    tokens, weights = normal(8, 8), normal(2, 4, 8)
    order, experts = np.array([1, 6, 3, 0, 7, 2, 5, 99], np.int32), np.array([0, 1], np.int32)
    out = np.zeros((8, 4), np.float32)
    routed_matmul[2](tokens, weights, order, experts, out, 4, 4, 4)
    expected = np.zeros_like(out)
    for slot, row in enumerate(order[:-1]):
        expected[row] = tokens[row] @ weights[slot // 4].T
    np.testing.assert_allclose(out, expected, atol=1e-5)


@reftile.kernel
def fourier(x, w, out, n: ConstInt):
    parts = ct.load(x, (ct.bid(0), 0, 0), (1, n, 2))
    real, imaginary = (ct.extract(parts, (0, 0, i), (1, n, 1)) for i in ct.static_iter(range(2)))
    turns = ct.load(w, (0, 0, 0), (n, n, 2))
    cosine = ct.extract(turns, (0, 0, 0), (n, n, 1)).reshape((1, n, n))
    sine = ct.extract(turns, (0, 0, 1), (n, n, 1)).reshape((1, n, n))
    result = ct.cat((cosine @ real - sine @ imaginary, sine @ real + cosine @ imaginary), axis=-1)
    ct.store(out, (ct.bid(0), 0, 0), result)


def test_a_fourier_transform_by_matrices() -> None:
    x = normal(2, 8, 2)
    angles = -2 * np.pi * np.outer(np.arange(8), np.arange(8)) / 8
    w = np.stack([np.cos(angles), np.sin(angles)], -1).astype(np.float32)
    out = np.zeros_like(x)
    fourier[2](x, w, out, 8)
    expected = np.fft.fft(x[..., 0] + 1j * x[..., 1])
    np.testing.assert_allclose(out[..., 0] + 1j * out[..., 1], expected, atol=1e-5)
