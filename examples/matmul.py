"""Matrix product, and one with bias and GELU behind it.

A block computes one tile of the result. It walks along k, a tile of `a` and one of `b` at a time,
and keeps the sum in float32. Where the last tiles stick out of the arrays they are padded with
zeros, which add nothing; the result is cut off when it is stored.
"""

from __future__ import annotations

import math
from typing import Any

import numpy as np
from bounds import Estimate, Floats, estimate, number
from harness import Case, main, normal, output, seeded

import reftile
import reftile.lang as ct

ZERO = ct.PaddingMode.ZERO
SQRT_HALF = math.sqrt(0.5)


@reftile.kernel
def matmul(a, b, c, tile_m: ct.Constant[int], tile_n: ct.Constant[int], tile_k: ct.Constant[int]):
    """c = a @ b. Grid: (cdiv(m, tile_m), cdiv(n, tile_n))."""
    i, j = ct.bid(0), ct.bid(1)
    acc = ct.zeros((tile_m, tile_n), ct.float32)
    for k in range(ct.num_tiles(a, 1, (tile_m, tile_k))):
        x = ct.load(a, (i, k), (tile_m, tile_k), padding_mode=ZERO)
        y = ct.load(b, (k, j), (tile_k, tile_n), padding_mode=ZERO)
        acc = ct.mma(x, y, acc)
    ct.store(c, (i, j), acc.astype(c.dtype))


def gelu(x):
    """x times the probability that a normal number lies below x; kernels may call functions."""
    return (0.5 * x) * (1.0 + ct.erf(x * SQRT_HALF))


@reftile.kernel
def matmul_bias_gelu(
    a, b, bias, c, tile_m: ct.Constant[int], tile_n: ct.Constant[int], tile_k: ct.Constant[int]
):
    """c = gelu(a @ b + bias). What follows the product costs no further pass over memory."""
    i, j = ct.bid(0), ct.bid(1)
    acc = ct.zeros((tile_m, tile_n), ct.float32)
    for k in range(ct.num_tiles(a, 1, (tile_m, tile_k))):
        x = ct.load(a, (i, k), (tile_m, tile_k), padding_mode=ZERO)
        y = ct.load(b, (k, j), (tile_k, tile_n), padding_mode=ZERO)
        acc = ct.mma(x, y, acc)
    row = ct.load(bias, (j,), (tile_n,), padding_mode=ZERO).astype(ct.float32)
    ct.store(c, (i, j), gelu(acc + row[None, :]).astype(c.dtype))


# What they should give


def reference(a: Any, b: Any) -> Floats:
    """The product in float64; sums of these few products of narrow numbers are all but exact."""
    return np.asarray(a, np.float64) @ np.asarray(b, np.float64)


def reference_gelu(x: Floats) -> Floats:
    """GELU in float64."""
    return 0.5 * x * (1 + np.vectorize(math.erf)(x * SQRT_HALF))


def bound_gelu(x: Estimate) -> Estimate:
    """GELU of numbers with errors, one step after the other."""
    inner = x * number(SQRT_HALF)
    nearest = np.maximum(np.abs(inner.value) - inner.error, 0)
    slope = 2 / math.sqrt(math.pi) * np.exp(-(nearest**2))
    return (x * 0.5) * (inner.smooth(np.vectorize(math.erf)(inner.value), slope, "erf") + 1.0)


# Cases


def case(
    name: str,
    shape: tuple[int, int, int],
    tiles: tuple[int, int, int],
    dtype: str,
    out: str = "",
    *,
    large: bool = False,
) -> Case:
    """m, n, k and the tile's."""
    m, n, k = shape
    rng = seeded(m + n + k)
    a, b = normal(rng, (m, k), dtype), normal(rng, (k, n), dtype)
    expected = (estimate(a) @ estimate(b)).astype(out or dtype)
    return Case(
        f"matmul-{name}",
        matmul,
        (-(-m // tiles[0]), -(-n // tiles[1])),
        {"a": a, "b": b, "c": output((m, n), out or dtype), **sizes(tiles)},
        {"c": Estimate(reference(a, b), expected.error)},
        large=large,
    )


def sizes(tiles: tuple[int, int, int]) -> dict[str, int]:
    """The constants of a kernel."""
    return dict(zip(("tile_m", "tile_n", "tile_k"), tiles, strict=True))


def whole_numbers(shape: tuple[int, int, int], tiles: tuple[int, int, int]) -> Case:
    """Small whole numbers: every sum is exact, so the bound is 0 and a wrong index cannot hide."""
    m, n, k = shape
    rng = seeded(k)
    a, b = (rng.integers(-8, 9, s).astype(np.float16) for s in ((m, k), (k, n)))
    arguments = {"a": a, "b": b, "c": output((m, n), "float32"), **sizes(tiles)}
    grid = (-(-m // tiles[0]), -(-n // tiles[1]))
    return Case("matmul-exact", matmul, grid, arguments, {"c": estimate(reference(a, b))})


def case_gelu(shape: tuple[int, int, int], tiles: tuple[int, int, int], dtype: str) -> Case:
    """A layer of a network."""
    m, n, k = shape
    rng = seeded(m * n * k)
    a = normal(rng, (m, k), dtype)
    b = (rng.standard_normal((k, n)) / math.sqrt(k)).astype(a.dtype)
    bias = normal(rng, (n,), dtype)
    expected = bound_gelu(estimate(a) @ estimate(b) + estimate(bias)).astype(dtype)
    exact = reference_gelu(reference(a, b) + bias.astype(np.float64))
    return Case(
        f"matmul-bias-gelu-{dtype}",
        matmul_bias_gelu,
        (-(-m // tiles[0]), -(-n // tiles[1])),
        {"a": a, "b": b, "bias": bias, "c": output((m, n), dtype), **sizes(tiles)},
        {"c": Estimate(exact, expected.error)},
    )


def cases() -> list[Case]:
    """Ragged shapes, and the size that hardware is measured with."""
    return [
        case("f16", (70, 50, 45), (32, 32, 16), "float16"),
        case("bf16-f32", (33, 65, 100), (32, 32, 32), "bfloat16", "float32"),
        case("f32", (20, 30, 40), (16, 16, 16), "float32"),
        case("f8", (40, 24, 72), (16, 16, 32), "float8_e4m3fn", "float16"),
        case("thin", (1, 37, 19), (16, 16, 16), "float16"),
        whole_numbers((45, 39, 50), (16, 32, 16)),
        case_gelu((37, 45, 50), (16, 32, 16), "float16"),
        case_gelu((18, 33, 70), (16, 16, 32), "bfloat16"),
        case("1024", (1024, 1024, 1024), (128, 128, 32), "float16", large=True),
        case("1000", (1000, 1001, 999), (128, 128, 32), "float16", large=True),
    ]


if __name__ == "__main__":
    main(cases)
