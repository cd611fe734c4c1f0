"""Matrix products of 8-bit and 4-bit floats with a scale for each block of elements along k.

The formats of the OCP microscaling specification, where a scale is a power of two (float8_e8m0fnu)
for 32 elements, and the 4-bit one with float8_e4m3fn scales for 16. Two 4-bit floats share a byte
in memory, the first in the low half; a kernel loads bytes and takes them apart.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from bounds import Estimate, Floats, estimate
from harness import Case, main, numpy_dtype, output, seeded
from matmul import sizes

import reftile
import reftile.lang as ct

ZERO = ct.PaddingMode.ZERO


@reftile.kernel
def matmul_scaled(
    a,
    a_scale,
    b,
    b_scale,
    c,
    block: ct.Constant[int],
    tile_m: ct.Constant[int],
    tile_n: ct.Constant[int],
    tile_k: ct.Constant[int],
):
    """c = (a * a_scale) @ (b * b_scale) in 8 bits. a: [m, k]; a_scale: [m, k / block]; b: [k, n];
    b_scale: [k / block, n]; k is a multiple of block. Grid: (cdiv(m, tile_m), cdiv(n, tile_n)).
    """
    i, j = ct.bid(0), ct.bid(1)
    acc = ct.zeros((tile_m, tile_n), ct.float32)
    for k in range(ct.num_tiles(a, 1, (tile_m, tile_k))):
        x = ct.load(a, (i, k), (tile_m, tile_k), padding_mode=ZERO)
        y = ct.load(b, (k, j), (tile_k, tile_n), padding_mode=ZERO)
        x_scale = ct.load(a_scale, (i, k), (tile_m, tile_k // block), padding_mode=ZERO)
        y_scale = ct.load(b_scale, (k, j), (tile_k // block, tile_n), padding_mode=ZERO)
        acc = ct.mma_scaled(x, x_scale, y, y_scale, acc)
    ct.store(c, (i, j), acc.astype(c.dtype))


def load_halves(packed, index, rows, columns):
    """A tile of 4-bit floats from an array of bytes, two of them in each."""
    tile = ct.load(packed, index, (rows, columns // 2), padding_mode=ZERO)
    return ct.unpack_from_bytes(tile.reshape((rows * columns // 2,)), ct.float4_e2m1fn)


@reftile.kernel
def matmul_scaled_4bit(
    a,
    a_scale,
    b,
    b_scale,
    c,
    block: ct.Constant[int],
    tile_m: ct.Constant[int],
    tile_n: ct.Constant[int],
    tile_k: ct.Constant[int],
):
    """The same in 4 bits. a: uint8 [m, k / 2]; b: uint8 [n, k / 2], transposed, as bytes hold
    neighbours along k; b_scale: [n, k / block].
    """
    i, j = ct.bid(0), ct.bid(1)
    acc = ct.zeros((tile_m, tile_n), ct.float32)
    for k in range(ct.num_tiles(a, 1, (tile_m, tile_k // 2))):
        x = load_halves(a, (i, k), tile_m, tile_k).reshape((tile_m, tile_k))
        y = load_halves(b, (j, k), tile_n, tile_k).reshape((tile_n, tile_k)).transpose()
        x_scale = ct.load(a_scale, (i, k), (tile_m, tile_k // block), padding_mode=ZERO)
        y_scale = ct.load(b_scale, (j, k), (tile_n, tile_k // block), padding_mode=ZERO)
        acc = ct.mma_scaled(x, x_scale, y, y_scale.transpose(), acc)
    ct.store(c, (i, j), acc.astype(c.dtype))


# Cases


def scaled(values: Any, scales: Any, block: int) -> Floats:
    """Elements times their scales along the last axis; float64 holds the products exactly."""
    wide = np.repeat(np.asarray(scales, np.float64), block, axis=-1)
    return np.asarray(values, np.float64) * wide


def reference(x: Floats, y: Floats) -> Estimate:
    """x @ y.T of scaled elements, added in float32 in any order.

    Products of such narrow numbers are exact in float32, as those of bfloat16 are.
    """
    return estimate(x, "bfloat16") @ estimate(y.T, "bfloat16")


def pack(values: Any) -> np.ndarray:
    """4-bit floats, two in a byte."""
    codes = values.view(np.uint8)
    return codes[..., 0::2] | codes[..., 1::2] << 4


def random_scales(rng: np.random.Generator, shape: tuple[int, ...], dtype: str) -> np.ndarray:
    """Scales around 1."""
    if dtype == "float8_e8m0fnu":
        return (2.0 ** rng.integers(-3, 4, shape)).astype(numpy_dtype(dtype))
    return (rng.random(shape) * 2 + 0.25).astype(numpy_dtype(dtype))


def case(
    name: str, shape: tuple[int, int, int], dtype: str, scale: str, block: int, out: str = "float32"
) -> Case:
    """m, n, k."""
    m, n, k = shape
    rng, four_bits = seeded(m + n + k), dtype == "float4_e2m1fn"
    a, b = ((rng.standard_normal(s) * 2).astype(numpy_dtype(dtype)) for s in ((m, k), (n, k)))
    a_scale, b_scale = (random_scales(rng, (s, k // block), scale) for s in (m, n))
    x, y = scaled(a, a_scale, block), scaled(b, b_scale, block)
    tiles = (16, 16, 64)
    if four_bits:
        inputs = {"a": pack(a), "a_scale": a_scale, "b": pack(b), "b_scale": b_scale}
    else:
        b, b_scale = np.ascontiguousarray(b.T), np.ascontiguousarray(b_scale.T)
        inputs = {"a": a, "a_scale": a_scale, "b": b, "b_scale": b_scale}
    return Case(
        f"block-scaled-{name}",
        matmul_scaled_4bit if four_bits else matmul_scaled,
        (-(-m // tiles[0]), -(-n // tiles[1])),
        {**inputs, "c": output((m, n), out), "block": block, **sizes(tiles)},
        {"c": reference(x, y).astype(out)},
    )


def cases() -> list[Case]:
    """The usual pairs of element and scale; k ends within a tile."""
    e8m0 = "float8_e8m0fnu"
    return [
        case("mxfp8-e4m3", (20, 17, 96), "float8_e4m3fn", e8m0, 32),
        case("mxfp8-e5m2", (9, 30, 128), "float8_e5m2", e8m0, 32, "bfloat16"),
        case("mxfp4", (20, 17, 96), "float4_e2m1fn", e8m0, 32),
        case("nvfp4", (18, 20, 80), "float4_e2m1fn", "float8_e4m3fn", 16),
    ]


if __name__ == "__main__":
    main(cases)
