"""Attention forward: plain, causal, block-causal, grouped heads, variable length.

A block of the grid takes `tile_m` queries of one head and walks over the keys, `tile_n` at a time.
It never holds a whole row of scores. Instead it keeps, for each query,

    highest   the greatest score so far
    total     the sum of exp2(score - highest) so far
    acc       the sum of exp2(score - highest) * value so far

and when a greater score appears, `total` and `acc` are scaled down to the new maximum. Scores are
in units of log2(e), so that the exponential is the exp2 that hardware has.

Layouts: q is [batch, heads, queries, dim], k and v are [batch, kv heads, keys, dim]; query head h
reads kv head h // group. Queries are the last of the keys, as when a cache of keys is ahead of
them: query i is at the position i + keys - queries.
"""

from __future__ import annotations

import math
from itertools import pairwise
from typing import Any

import numpy as np
from bounds import Estimate, Floats, concatenate, estimate, gamma, limit
from harness import Case, main, normal, output, seeded

import reftile
import reftile.lang as ct

LOG2_E = 1.4426950408889634
ZERO = ct.PaddingMode.ZERO


def softmax_step(scores, value, highest, total, acc):
    """Take the scores and values of further keys into account. Kernels inline what they call.

    scores: [m, n], minus infinity where a query must not see a key. value: [n, dim].
    """
    higher = ct.maximum(highest, ct.max(scores, axis=1, keepdims=True))
    weights = ct.exp2(scores - higher)
    shrink = ct.exp2(highest - higher)
    total = total * shrink + ct.sum(weights, axis=1, keepdims=True)
    acc = ct.mma(weights.astype(value.dtype), value, acc * shrink)
    return higher, total, acc


@reftile.kernel
def attention(
    q,
    k,
    v,
    out,
    scale: float,
    group: ct.Constant[int],
    window: ct.Constant[int],
    head_dim: ct.Constant[int],
    tile_m: ct.Constant[int],
    tile_n: ct.Constant[int],
):
    """Grid: (cdiv(queries, tile_m), heads, batch).

    window: 0 lets every query see all keys, 1 those up to its own position (causal), w > 1 those
    up to the end of its own group of w positions (block-causal).
    """
    row, head, batch = ct.bid(0), ct.bid(1), ct.bid(2)
    queries, keys = q.shape[2], k.shape[2]
    query = ct.load(q, (batch, head, row, 0), (1, 1, tile_m, head_dim), padding_mode=ZERO)
    query = query.reshape((tile_m, head_dim))
    position = row * tile_m + ct.arange(tile_m, dtype=ct.int32)[:, None] + (keys - queries)

    last = keys
    if window > 0:
        # No key behind this is seen by any query of the tile, so no tile behind it is loaded.
        reach = (row + 1) * tile_m - 1 + (keys - queries)
        last = min((reach // window + 1) * window, keys)

    highest = ct.full((tile_m, 1), -math.inf, ct.float32)
    total = ct.zeros((tile_m, 1), ct.float32)
    acc = ct.zeros((tile_m, head_dim), ct.float32)
    for j in range(ct.cdiv(last, tile_n)):
        key = ct.load(k, (batch, head // group, j, 0), (1, 1, tile_n, head_dim), padding_mode=ZERO)
        key = key.reshape((tile_n, head_dim)).transpose()
        scores = ct.mma(query, key, ct.zeros((tile_m, tile_n), ct.float32)) * (scale * LOG2_E)

        column = j * tile_n + ct.arange(tile_n, dtype=ct.int32)[None, :]
        seen = column < keys
        if window > 0:
            seen = seen & (column // window <= position // window)
        scores = ct.where(seen, scores, -math.inf)

        value = ct.load(
            v, (batch, head // group, j, 0), (1, 1, tile_n, head_dim), padding_mode=ZERO
        )
        value = value.reshape((tile_n, head_dim))
        highest, total, acc = softmax_step(scores, value, highest, total, acc)
    result = (acc / total).astype(out.dtype).reshape((1, 1, tile_m, head_dim))
    ct.store(out, (batch, head, row, 0), result)


@reftile.kernel
def attention_ragged(
    q,
    k,
    v,
    starts,
    out,
    scale: float,
    head_dim: ct.Constant[int],
    tile_m: ct.Constant[int],
    tile_n: ct.Constant[int],
):
    """Sequences of different lengths, packed end to end: q, k, v and out are [tokens, heads, dim].

    Sequence s holds the tokens from starts[s] up to starts[s + 1]. A slice of an array is an array
    whose extents are known at run time; accesses are cut off at its end, not at that of the whole,
    so no tile reads or writes the neighbour. Grid: (cdiv(longest, tile_m), heads, sequences);
    blocks behind the end of a short sequence have nothing to do.
    """
    row, head, sequence = ct.bid(0), ct.bid(1), ct.bid(2)
    first = ct.load(starts, (sequence,), ())
    end = ct.load(starts, (sequence + 1,), ())
    if row * tile_m < end - first:
        q_part = q.slice(0, first, end)
        k_part, v_part = k.slice(0, first, end), v.slice(0, first, end)
        query = ct.load(q_part, (row, head, 0), (tile_m, 1, head_dim), padding_mode=ZERO)
        query = query.reshape((tile_m, head_dim))
        position = row * tile_m + ct.arange(tile_m, dtype=ct.int32)[:, None]
        highest = ct.full((tile_m, 1), -math.inf, ct.float32)
        total = ct.zeros((tile_m, 1), ct.float32)
        acc = ct.zeros((tile_m, head_dim), ct.float32)
        for j in range(ct.cdiv(min((row + 1) * tile_m, end - first), tile_n)):
            key = ct.load(k_part, (j, head, 0), (tile_n, 1, head_dim), padding_mode=ZERO)
            key = key.reshape((tile_n, head_dim)).transpose()
            scores = ct.mma(query, key, ct.zeros((tile_m, tile_n), ct.float32))
            column = j * tile_n + ct.arange(tile_n, dtype=ct.int32)[None, :]
            scores = ct.where(column <= position, scores * (scale * LOG2_E), -math.inf)
            value = ct.load(v_part, (j, head, 0), (tile_n, 1, head_dim), padding_mode=ZERO)
            value = value.reshape((tile_n, head_dim))
            highest, total, acc = softmax_step(scores, value, highest, total, acc)
        result = (acc / total).astype(out.dtype).reshape((tile_m, 1, head_dim))
        ct.store(out.slice(0, first, end), (row, head, 0), result)


# What it should give


def visible(queries: int, keys: int, window: int) -> np.ndarray:
    """Which keys each query sees, [queries, keys]."""
    if window == 0:
        return np.ones((queries, keys), bool)
    position = np.arange(queries)[:, None] + keys - queries
    return np.arange(keys)[None, :] // window <= position // window


def reference(q: Any, k: Any, v: Any, scale: float, seen: np.ndarray) -> Floats:
    """Softmax of the scores times the values, in float64; the last two axes are matrices."""
    q, k, v = (np.asarray(x, np.float64) for x in (q, k, v))
    scores = np.where(seen, q @ k.swapaxes(-1, -2) * scale, -np.inf)
    weights = np.exp(scores - scores.max(-1, keepdims=True))
    return weights / weights.sum(-1, keepdims=True) @ v


def bound(q: Any, k: Any, v: Any, scale: float, seen: np.ndarray, tile_n: int) -> Floats:
    """How far the kernel may be from the reference, by the roundings along its way."""
    dtype = str(v.dtype)
    factor = estimate(np.float64(scale * LOG2_E), "float32").rounded(1.5)
    scores = (estimate(q) @ estimate(k).swap()) * factor
    highest = np.where(seen, scores.value, -np.inf).max(-1, keepdims=True)
    # The maximum that is subtracted cancels between `acc` and `total`, whatever its error. The
    # differences from a rising maximum add up to that from the last one. So do their roundings, up
    # to a factor of 2, as half a unit is between u / 2 and u times the number.
    shifted = (scores - highest).rounded().exp2()
    # Each tile that follows scales by another exp2, which has an error, and rounds the product.
    rescalings = -(-k.shape[-2] // tile_n)
    relative = rescalings * (2 * limit("exp", "float32") + 1) * gamma(1)
    error = np.where(seen, shifted.error + relative * shifted.value, 0.0)
    weights = Estimate(np.where(seen, shifted.value, 0.0), error)
    total = weights.sum(keepdims=True)
    return (weights.astype(dtype) @ v / total).astype(dtype).error


# Cases


def dense(
    name: str,
    shape: tuple[int, int, int, int, int],
    *,
    heads: int = 2,
    window: int = 0,
    dtype: str = "bfloat16",
    tiles: tuple[int, int] = (16, 16),
) -> Case:
    """A case of `attention`. shape: batch, kv heads, queries, keys, dim."""
    batch, kv_heads, queries, keys, dim = shape
    rng = seeded(sum(shape) + window)
    q = normal(rng, (batch, heads, queries, dim), dtype)
    k = normal(rng, (batch, kv_heads, keys, dim), dtype)
    v = normal(rng, (batch, kv_heads, keys, dim), dtype)
    group, scale = heads // kv_heads, 1 / math.sqrt(dim)
    head_dim = -(-dim // 8) * 8
    seen = visible(queries, keys, window)
    wide_k, wide_v = (np.repeat(x, group, axis=1) for x in (k, v))
    arguments = {"q": q, "k": k, "v": v, "out": output(q.shape, dtype), "scale": scale}
    constants = {"group": group, "window": window, "head_dim": head_dim}
    expected = Estimate(
        reference(q, wide_k, wide_v, scale, seen),
        bound(q, wide_k, wide_v, scale, seen, tiles[1]),
    )
    return Case(
        f"attention-{name}",
        attention,
        (-(-queries // tiles[0]), heads, batch),
        {**arguments, **constants, "tile_m": tiles[0], "tile_n": tiles[1]},
        {"out": expected},
    )


def ragged(name: str, lengths: list[int], heads: int, dim: int, dtype: str = "float16") -> Case:
    """A case of `attention_ragged`."""
    rng = seeded(sum(lengths))
    starts = np.cumsum([0, *lengths]).astype(np.int32)
    q, k, v = (normal(rng, (int(starts[-1]), heads, dim), dtype) for _ in range(3))
    scale, tiles = 1 / math.sqrt(dim), (8, 16)
    parts: list[Estimate] = []
    for first, end in pairwise(starts):
        own_q, own_k, own_v = (x[first:end].swapaxes(0, 1) for x in (q, k, v))
        seen = visible(end - first, end - first, 1)
        errors = bound(own_q, own_k, own_v, scale, seen, tiles[1])
        parts.append(Estimate(reference(own_q, own_k, own_v, scale, seen), errors))
    whole = concatenate(parts, axis=1)
    expected = Estimate(whole.value.swapaxes(0, 1), whole.error.swapaxes(0, 1))
    arrays = {"q": q, "k": k, "v": v, "starts": starts, "out": output(q.shape, dtype)}
    constants = {"scale": scale, "head_dim": dim, "tile_m": tiles[0], "tile_n": tiles[1]}
    return Case(
        f"attention-{name}",
        attention_ragged,
        (-(-max(lengths) // tiles[0]), heads, len(lengths)),
        {**arrays, **constants},
        {"out": expected},
    )


def cases() -> list[Case]:
    """Shapes that are no multiples of the tiles, each kind of mask, three dtypes."""
    return [
        dense("plain", (1, 2, 37, 45, 32)),
        dense("plain-f16", (1, 2, 17, 50, 20), dtype="float16"),
        dense("plain-f32", (1, 1, 9, 33, 16), heads=1, dtype="float32", tiles=(8, 16)),
        dense("causal", (2, 2, 41, 41, 16), window=1),
        dense("causal-cached", (1, 2, 5, 43, 16), window=1, tiles=(8, 16)),
        dense("block-causal", (1, 2, 39, 39, 16), window=6, dtype="float16"),
        dense("gqa", (1, 2, 21, 35, 24), heads=6),
        dense("gqa-causal", (1, 1, 23, 31, 16), heads=4, window=1),
        ragged("variable-length", [19, 3, 33, 1], 2, 16),
    ]


if __name__ == "__main__":
    main(cases)
