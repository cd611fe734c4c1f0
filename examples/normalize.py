"""Residual + LayerNorm, and RMSNorm.

`residual_layernorm` holds whole rows in a tile and needs one pass over memory. The tile is wider
than the row, so sums must leave the rest out: it is padded with zeros, and what the mean is taken
off there is put back to zero before it is squared. `rmsnorm` takes rows of any length, in two
passes of narrow tiles.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from bounds import Estimate, Floats, estimate, number
from harness import Case, main, normal, output, seeded

import reftile
import reftile.lang as ct

ZERO = ct.PaddingMode.ZERO
EPSILON = 1e-5


@reftile.kernel
def residual_layernorm(
    x, residual, weight, bias, total, out, rows: ct.Constant[int], width: ct.Constant[int]
):
    """total = x + residual; out = layernorm(total) * weight + bias.

    Grid: (cdiv(x.shape[0], rows),). width: at least x.shape[1].
    """
    i, count = ct.bid(0), x.shape[1]
    h = ct.load(x, (i, 0), (rows, width), padding_mode=ZERO).astype(ct.float32)
    h = h + ct.load(residual, (i, 0), (rows, width), padding_mode=ZERO).astype(ct.float32)
    ct.store(total, (i, 0), h.astype(total.dtype))
    mean = ct.sum(h, axis=1, keepdims=True) / count
    inside = ct.arange(width, dtype=ct.int32)[None, :] < count
    centred = ct.where(inside, h - mean, 0.0)
    variance = ct.sum(centred * centred, axis=1, keepdims=True) / count
    scaled = centred * ct.rsqrt(variance + EPSILON)
    w = ct.load(weight, (0,), (width,), padding_mode=ZERO).astype(ct.float32)
    b = ct.load(bias, (0,), (width,), padding_mode=ZERO).astype(ct.float32)
    ct.store(out, (i, 0), (scaled * w + b).astype(out.dtype))


@reftile.kernel
def rmsnorm(x, weight, out, rows: ct.Constant[int], tile: ct.Constant[int]):
    """out = x / sqrt(mean(x * x)) * weight. Grid: (cdiv(x.shape[0], rows),)."""
    i, count = ct.bid(0), x.shape[1]
    squares = ct.zeros((rows, tile), ct.float32)
    for j in range(ct.cdiv(count, tile)):
        part = ct.load(x, (i, j), (rows, tile), padding_mode=ZERO).astype(ct.float32)
        squares = squares + part * part
    scale = ct.rsqrt(ct.sum(squares, axis=1, keepdims=True) / count + EPSILON)
    for j in range(ct.cdiv(count, tile)):
        part = ct.load(x, (i, j), (rows, tile)).astype(ct.float32)
        w = ct.load(weight, (j,), (tile,)).astype(ct.float32)
        ct.store(out, (i, j), (part * scale * w).astype(out.dtype))


# What they should give


def reference_layernorm(h: Floats, weight: Floats, bias: Floats) -> Floats:
    """In float64."""
    centred = h - h.mean(1, keepdims=True)
    variance = (centred**2).mean(1, keepdims=True)
    return centred / np.sqrt(variance + EPSILON) * weight + bias


def bound_layernorm(h: Estimate, weight: Any, bias: Any, dtype: str) -> Floats:
    """The kernel's steps on numbers with errors."""
    count = float(h.value.shape[1])
    centred = h - h.sum(1, keepdims=True) / count
    variance = (centred * centred).sum(1, keepdims=True) / count
    scaled = centred * (variance + number(EPSILON)).rsqrt()
    w, b = (estimate(v).astype("float32") for v in (weight, bias))
    return (scaled * w + b).astype(dtype).error


def reference_rmsnorm(x: Floats, weight: Floats) -> Floats:
    """In float64."""
    return x / np.sqrt((x**2).mean(1, keepdims=True) + EPSILON) * weight


def bound_rmsnorm(x: Any, weight: Any) -> Floats:
    """Squares are added across tiles first, then across the tile: some order of the same sum."""
    h = estimate(x).astype("float32")
    mean = (h * h).sum(1, keepdims=True) / float(x.shape[1])
    scaled = h * (mean + number(EPSILON)).rsqrt()
    return (scaled * estimate(weight).astype("float32")).astype(str(x.dtype)).error


# Cases


def case_layernorm(shape: tuple[int, int], rows: int, width: int, dtype: str) -> Case:
    """Rows with a mean that is not small, so that taking it off cancels."""
    rng = seeded(sum(shape))
    x, residual = (normal(rng, shape, dtype) for _ in range(2))
    x = (x.astype(np.float32) + 3).astype(x.dtype)
    weight, bias = (normal(rng, shape[1:], dtype) for _ in range(2))
    exact = [v.astype(np.float64) for v in (x, residual, weight, bias)]
    h = estimate(x).astype("float32") + estimate(residual).astype("float32")
    result = reference_layernorm(exact[0] + exact[1], exact[2], exact[3])
    inputs = {"x": x, "residual": residual, "weight": weight, "bias": bias}
    outputs = {"total": output(shape, dtype), "out": output(shape, dtype)}
    return Case(
        f"residual-layernorm-{dtype}",
        residual_layernorm,
        (-(-shape[0] // rows),),
        {**inputs, **outputs, "rows": rows, "width": width},
        {
            "total": h.astype(dtype),
            "out": Estimate(result, bound_layernorm(h, weight, bias, dtype)),
        },
    )


def case_rmsnorm(shape: tuple[int, int], rows: int, tile: int, dtype: str) -> Case:
    """Normal rows."""
    rng = seeded(shape[0] * shape[1])
    x, weight = normal(rng, shape, dtype), normal(rng, shape[1:], dtype)
    result = reference_rmsnorm(x.astype(np.float64), weight.astype(np.float64))
    return Case(
        f"rmsnorm-{dtype}",
        rmsnorm,
        (-(-shape[0] // rows),),
        {"x": x, "weight": weight, "out": output(shape, dtype), "rows": rows, "tile": tile},
        {"out": Estimate(result, bound_rmsnorm(x, weight))},
    )


def cases() -> list[Case]:
    """Rows that fill no tile."""
    return [
        case_layernorm((13, 100), 4, 128, "bfloat16"),
        case_layernorm((7, 50), 2, 64, "float32"),
        case_rmsnorm((9, 150), 4, 64, "float16"),
        case_rmsnorm((5, 70), 2, 32, "float32"),
    ]


if __name__ == "__main__":
    main(cases)
