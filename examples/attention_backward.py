"""The gradient of attention, from what the forward pass leaves: `lse`, and `delta`.

Nothing of the size queries x keys is kept between the passes. From the logarithm of each row's sum
of exponentials, `lse`, a tile of the softmax is computed again: p = exp(score - lse). With `delta`
= sum(out * dout) for each query, the gradient of the scores is ds = p * (dp - delta).

- `row_dots` computes delta;
- `gradient_of_keys` gives a block a tile of keys and walks over the queries that see them: dk and
  dv;
- `gradient_of_queries` gives a block a tile of queries and walks over the keys: dq.

So each block adds up its own results, and no two blocks write to one place.

Layouts: [heads, tokens, dim]; causal; lse and delta are float32 [heads, tokens].
"""

from __future__ import annotations

import math
from typing import Any

import numpy as np
from attention import visible
from bounds import Estimate, Floats, estimate, number
from harness import Case, main, normal, output, seeded

import reftile
import reftile.lang as ct

ZERO = ct.PaddingMode.ZERO


@reftile.kernel
def row_dots(out, dout, delta, tile_m: ct.Constant[int], dim: ct.Constant[int]):
    """delta = sum(out * dout). Grid: (cdiv(tokens, tile_m), heads)."""
    i, head = ct.bid(0), ct.bid(1)
    x = ct.load(out, (head, i, 0), (1, tile_m, dim), padding_mode=ZERO).astype(ct.float32)
    y = ct.load(dout, (head, i, 0), (1, tile_m, dim), padding_mode=ZERO).astype(ct.float32)
    ct.store(delta, (head, i), ct.sum(x * y, axis=2))


def rows_of(array, head, i, tile, dim):
    """Tile i of the rows of a head, and zeros behind the last."""
    return ct.load(array, (head, i, 0), (1, tile, dim), padding_mode=ZERO).reshape((tile, dim))


def column_of(array, head, i, tile):
    """Tile i of the numbers of a head, as a column."""
    return ct.load(array, (head, i), (1, tile), padding_mode=ZERO).reshape((tile, 1))


def softmax_and_gradient(query, key, value, dout, lse, delta, scale, i, j, tokens):
    """Tile (i, j) of the softmax and of the gradient of the scores, both [queries, keys]."""
    shape = (query.shape[0], key.shape[0])
    nothing = ct.zeros(shape, ct.float32)
    row = i * shape[0] + ct.arange(shape[0], dtype=ct.int32)[:, None]
    column = j * shape[1] + ct.arange(shape[1], dtype=ct.int32)[None, :]
    seen = (column <= row) & (row < tokens)
    scores = ct.mma(query, key.transpose(), nothing) * scale
    p = ct.where(seen, ct.exp(scores - lse), 0.0)
    dp = ct.mma(dout, value.transpose(), nothing)
    return p, p * (dp - delta)


@reftile.kernel
def gradient_of_keys(
    q,
    k,
    v,
    dout,
    lse,
    delta,
    dk,
    dv,
    scale: float,
    dim: ct.Constant[int],
    tile_m: ct.Constant[int],
    tile_n: ct.Constant[int],
):
    """Grid: (cdiv(tokens, tile_n), heads)."""
    j, head = ct.bid(0), ct.bid(1)
    tokens = q.shape[1]
    key, value = rows_of(k, head, j, tile_n, dim), rows_of(v, head, j, tile_n, dim)
    key_sum = ct.zeros((tile_n, dim), ct.float32)
    value_sum = ct.zeros((tile_n, dim), ct.float32)
    # Queries in front of the first key of the tile do not see any of it.
    for i in range(j * tile_n // tile_m, ct.cdiv(tokens, tile_m)):
        query, dy = rows_of(q, head, i, tile_m, dim), rows_of(dout, head, i, tile_m, dim)
        lse_part, delta_part = column_of(lse, head, i, tile_m), column_of(delta, head, i, tile_m)
        p, ds = softmax_and_gradient(
            query, key, value, dy, lse_part, delta_part, scale, i, j, tokens
        )
        value_sum = ct.mma(p.astype(v.dtype).transpose(), dy, value_sum)
        key_sum = ct.mma(ds.astype(k.dtype).transpose(), query, key_sum)
    ct.store(dk, (head, j, 0), (key_sum * scale).astype(dk.dtype).reshape((1, tile_n, dim)))
    ct.store(dv, (head, j, 0), value_sum.astype(dv.dtype).reshape((1, tile_n, dim)))


@reftile.kernel
def gradient_of_queries(
    q,
    k,
    v,
    dout,
    lse,
    delta,
    dq,
    scale: float,
    dim: ct.Constant[int],
    tile_m: ct.Constant[int],
    tile_n: ct.Constant[int],
):
    """Grid: (cdiv(tokens, tile_m), heads)."""
    i, head = ct.bid(0), ct.bid(1)
    tokens = q.shape[1]
    query, dy = rows_of(q, head, i, tile_m, dim), rows_of(dout, head, i, tile_m, dim)
    lse_part, delta_part = column_of(lse, head, i, tile_m), column_of(delta, head, i, tile_m)
    query_sum = ct.zeros((tile_m, dim), ct.float32)
    for j in range(ct.cdiv(min((i + 1) * tile_m, tokens), tile_n)):
        key, value = rows_of(k, head, j, tile_n, dim), rows_of(v, head, j, tile_n, dim)
        _, ds = softmax_and_gradient(
            query, key, value, dy, lse_part, delta_part, scale, i, j, tokens
        )
        query_sum = ct.mma(ds.astype(q.dtype), key, query_sum)
    ct.store(dq, (head, i, 0), (query_sum * scale).astype(dq.dtype).reshape((1, tile_m, dim)))


# What they should give


def forward(q: Any, k: Any, v: Any, scale: float) -> tuple[Floats, Floats]:
    """The output of causal attention and its lse, in float64."""
    q, k, v = (np.asarray(x, np.float64) for x in (q, k, v))
    seen = visible(q.shape[1], k.shape[1], 1)
    scores = np.where(seen, q @ k.swapaxes(-1, -2) * scale, -np.inf)
    lse = np.logaddexp.reduce(scores, axis=-1)
    return np.exp(scores - lse[..., None]) @ v, lse


def reference(
    q: Any, k: Any, v: Any, dout: Any, lse: Any, delta: Any, scale: float
) -> tuple[Floats, Floats, Floats]:
    """dq, dk and dv, in float64: the gradient of sum(out * dout) when lse and delta are exact."""
    q, k, v, dout, lse, delta = (np.asarray(x, np.float64) for x in (q, k, v, dout, lse, delta))
    seen = visible(q.shape[1], k.shape[1], 1)
    p = np.where(seen, np.exp(q @ k.swapaxes(-1, -2) * scale - lse[..., None]), 0.0)
    ds = p * (dout @ v.swapaxes(-1, -2) - delta[..., None]) * scale
    return ds @ k, ds.swapaxes(-1, -2) @ q, p.swapaxes(-1, -2) @ dout


def bounds(
    q: Any, k: Any, v: Any, dout: Any, lse: Any, delta: Any, scale: float
) -> tuple[Floats, Floats, Floats]:
    """How far the kernels may be from that: their steps on numbers with errors."""
    dtype, seen = str(q.dtype), visible(q.shape[1], k.shape[1], 1)
    factor = number(scale)
    scores = (estimate(q) @ estimate(k).swap()) * factor
    p = (scores - lse[..., None]).exp().where(seen)
    ds = (p * ((estimate(dout) @ estimate(v).swap()) - delta[..., None])).where(seen)
    narrow, p = ds.astype(dtype), p.astype(dtype)
    dq, dk = (narrow @ k) * factor, (narrow.swap() @ q) * factor
    return tuple(x.astype(dtype).error for x in (dq, dk, p.swap() @ dout))  # type: ignore


# Cases


def make(kernel: reftile.KernelFunction, tokens: int, dim: int, dtype: str) -> Case:
    """A launch of a kernel, with lse and delta as the forward pass would leave them."""
    heads, tile_m, tile_n = 2, 16, 16
    rng = seeded(tokens)
    q, k, v, dout = (normal(rng, (heads, tokens, dim), dtype) for _ in range(4))
    scale = 1 / math.sqrt(dim)
    out, lse = forward(q, k, v, scale)
    out, lse = out.astype(q.dtype), lse.astype(np.float32)
    name = f"{kernel.__name__}-{dtype}".replace("_", "-")
    if kernel is row_dots:
        product = (estimate(out).astype("float32") * estimate(dout).astype("float32")).sum()
        delta = output((heads, tokens), "float32")
        arguments = {"out": out, "dout": dout, "delta": delta, "tile_m": tile_m, "dim": dim}
        return Case(name, kernel, (-(-tokens // tile_m), heads), arguments, {"delta": product})
    delta = (out.astype(np.float64) * dout.astype(np.float64)).sum(-1).astype(np.float32)
    numbers = (q, k, v, dout, lse, delta, scale)
    pairs = zip(reference(*numbers), bounds(*numbers), strict=True)
    dq, dk, dv = (Estimate(value, error) for value, error in pairs)
    expected = {"dq": dq} if kernel is gradient_of_queries else {"dk": dk, "dv": dv}
    inputs = {"q": q, "k": k, "v": v, "dout": dout, "lse": lse, "delta": delta}
    outputs = {name: output(q.shape, dtype) for name in expected}
    constants = {"dim": dim, "tile_m": tile_m, "tile_n": tile_n}
    grid = (-(-tokens // (tile_m if kernel is gradient_of_queries else tile_n)), heads)
    return Case(name, kernel, grid, {**inputs, **outputs, "scale": scale, **constants}, expected)


def cases() -> list[Case]:
    """Each kernel, on a number of tokens that fills no tile."""
    return [
        make(row_dots, 37, 16, "bfloat16"),
        make(gradient_of_keys, 37, 16, "float16"),
        make(gradient_of_queries, 37, 16, "float16"),
        make(gradient_of_keys, 21, 8, "bfloat16"),
        make(gradient_of_queries, 21, 8, "bfloat16"),
    ]


if __name__ == "__main__":
    main(cases)
