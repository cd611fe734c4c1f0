"""Queries, keys and values in one kernel, with rotary positions.

One product of the tokens with all weights side by side, [queries | keys | values], a head at a
time. A block knows by the number of its head which of the three it computes, and where it goes.
Queries and keys are rotated: number c of the first half of a head and number c of the second are a
point in the plane, which is turned by an angle that grows with the position of the token.
"""

from __future__ import annotations

import math
from typing import Any

import numpy as np
from bounds import Estimate, Floats, concatenate, estimate
from harness import Case, main, normal, output, seeded

import reftile
import reftile.lang as ct

ZERO = ct.PaddingMode.ZERO


def rotate(x, cosine, sine):
    """[tokens, dim] rotated by angles [tokens, dim / 2]."""
    rows, half = cosine.shape
    left, right = ct.extract(x, (0, 0), (rows, half)), ct.extract(x, (0, 1), (rows, half))
    turned = (left * cosine - right * sine, right * cosine + left * sine)
    return ct.cat(turned, axis=1)


@reftile.kernel
def project_qkv(
    x,
    weights,
    cosines,
    sines,
    q,
    k,
    v,
    tile_m: ct.Constant[int],
    tile_k: ct.Constant[int],
    dim: ct.Constant[int],
):
    """x: [tokens, width]; weights: [width, (heads + 2 kv heads) * dim]; cosines and sines: float32
    [tokens, dim / 2]; q: [heads, tokens, dim]; k and v: [kv heads, tokens, dim].

    Grid: (cdiv(tokens, tile_m), heads + 2 kv heads).
    """
    i, head = ct.bid(0), ct.bid(1)
    heads, kv_heads = q.shape[0], k.shape[0]
    acc = ct.zeros((tile_m, dim), ct.float32)
    for step in range(ct.num_tiles(x, 1, (tile_m, tile_k))):
        part = ct.load(x, (i, step), (tile_m, tile_k), padding_mode=ZERO)
        acc = ct.mma(part, ct.load(weights, (step, head), (tile_k, dim), padding_mode=ZERO), acc)
    if head < heads + kv_heads:
        cosine = ct.load(cosines, (i, 0), (tile_m, dim // 2), padding_mode=ZERO)
        sine = ct.load(sines, (i, 0), (tile_m, dim // 2), padding_mode=ZERO)
        turned = rotate(acc, cosine, sine).astype(q.dtype).reshape((1, tile_m, dim))
        if head < heads:
            ct.store(q, (head, i, 0), turned)
        else:
            ct.store(k, (head - heads, i, 0), turned)
    else:
        ct.store(v, (head - heads - kv_heads, i, 0), acc.astype(v.dtype).reshape((1, tile_m, dim)))


def turn(x: Any, cosine: Any, sine: Any) -> Any:
    """The same on the last axis of numbers, or of numbers with errors."""
    half = cosine.shape[-1]
    left, right = x[..., :half], x[..., half:]
    return left * cosine - right * sine, right * cosine + left * sine


def reference(x: Any, weights: Any, dim: int) -> Floats:
    """[heads, tokens, dim] before the rotation, in float64."""
    flat = np.asarray(x, np.float64) @ np.asarray(weights, np.float64)
    return flat.reshape(flat.shape[0], -1, dim).swapaxes(0, 1)


def case(tokens: int, width: int, heads: int, kv_heads: int, dim: int, dtype: str) -> Case:
    """Angles as usual: position / 10000 ^ (2 c / dim)."""
    rng = seeded(tokens + width)
    x = normal(rng, (tokens, width), dtype)
    weights = normal(rng, (width, (heads + 2 * kv_heads) * dim), "float32") / math.sqrt(width)
    weights = weights.astype(x.dtype)
    angles = np.arange(tokens)[:, None] * 10000.0 ** (-2 * np.arange(dim // 2) / dim)
    cosines, sines = np.cos(angles).astype(np.float32), np.sin(angles).astype(np.float32)
    exact = reference(x, weights, dim)
    flat = estimate(x) @ estimate(weights)
    errors = flat.error.reshape(tokens, -1, dim).swapaxes(0, 1)
    parts = {
        "q": slice(0, heads),
        "k": slice(heads, heads + kv_heads),
        "v": slice(heads + kv_heads, None),
    }
    expected: dict[str, Estimate] = {}
    for name, part in parts.items():
        found = Estimate(exact[part], errors[part])
        if name != "v":
            found = concatenate(turn(found, cosines, sines), axis=-1)
        expected[name] = found.astype(dtype)
    inputs = {"x": x, "weights": weights, "cosines": cosines, "sines": sines}
    outputs = {name: output(e.value.shape, dtype) for name, e in expected.items()}
    return Case(
        f"qkv-{dtype}",
        project_qkv,
        (-(-tokens // 16), heads + 2 * kv_heads),
        {**inputs, **outputs, "tile_m": 16, "tile_k": 32, "dim": dim},
        expected,
    )


def cases() -> list[Case]:
    """Fewer heads for keys and values than for queries."""
    return [case(21, 50, 4, 2, 16, "bfloat16"), case(9, 33, 2, 1, 8, "float16")]


if __name__ == "__main__":
    main(cases)
