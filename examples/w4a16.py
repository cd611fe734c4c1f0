"""W4A16 matrix product: 4-bit weights, 16-bit activations.

Two weights share a byte: byte p of a column holds the weights of rows 2p (low half) and 2p + 1.
Each group of rows of a column has a scale and a zero point of its own: weight = (code - zero) *
scale. The weights are unpacked in the kernel and multiplied as 16-bit floats, so that memory
carries a quarter.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from bounds import Estimate, estimate
from harness import Case, main, normal, output, seeded
from matmul import sizes

import reftile
import reftile.lang as ct

ZERO = ct.PaddingMode.ZERO


def unpack_rows(packed):
    """[p, n] bytes to [2 p, n] codes: the halves of a byte are neighbours along the first axis."""
    rows, columns = packed.shape
    both = ct.cat((packed & 15, packed >> 4), axis=1)
    return both.reshape((rows * 2, columns))


@reftile.kernel
def matmul_w4a16(
    a,
    packed,
    scales,
    zeros,
    c,
    group: ct.Constant[int],
    tile_m: ct.Constant[int],
    tile_n: ct.Constant[int],
    tile_k: ct.Constant[int],
):
    """Grid: (cdiv(m, tile_m), cdiv(n, tile_n)).

    packed: uint8 [k / 2, n]. scales, zeros: [k / group, n], where group is a multiple of tile_k.
    """
    i, j = ct.bid(0), ct.bid(1)
    acc = ct.zeros((tile_m, tile_n), ct.float32)
    for k in range(ct.num_tiles(a, 1, (tile_m, tile_k))):
        x = ct.load(a, (i, k), (tile_m, tile_k), padding_mode=ZERO)
        codes = ct.load(packed, (k, j), (tile_k // 2, tile_n), padding_mode=ZERO)
        row = (k * tile_k // group, j)
        scale = ct.load(scales, row, (1, tile_n), padding_mode=ZERO)
        zero = ct.load(zeros, row, (1, tile_n), padding_mode=ZERO)
        weights = (unpack_rows(codes).astype(a.dtype) - zero.astype(a.dtype)) * scale
        acc = ct.mma(x, weights, acc)
    ct.store(c, (i, j), acc.astype(c.dtype))


def reference(a: Any, codes: Any, scales: Any, zeros: Any, group: int) -> Any:
    """In float64. codes: [k, n], one weight each."""
    wide = [
        np.repeat(np.asarray(x, np.float64), group, axis=0)[: codes.shape[0]]
        for x in (scales, zeros)
    ]
    return np.asarray(a, np.float64) @ ((codes - wide[1]) * wide[0])


def bound(a: Any, codes: Any, scales: Any, zeros: Any, group: int) -> Any:
    """Codes and zero points are small whole numbers: only the product with the scale is rounded."""
    dtype = str(a.dtype)
    scale, zero = (np.repeat(x, group, axis=0)[: codes.shape[0]] for x in (scales, zeros))
    weights = estimate(codes - zero.astype(np.float64), dtype) * estimate(scale)
    return (estimate(a) @ weights).astype(dtype).error


def case(shape: tuple[int, int, int], tiles: tuple[int, int, int], group: int, dtype: str) -> Case:
    """Random codes; k is even, as two share a byte."""
    m, n, k = shape
    rng = seeded(m + n + k)
    a = normal(rng, (m, k), dtype)
    codes = rng.integers(0, 16, (k, n)).astype(np.uint8)
    groups = -(-k // group)
    scales = (rng.random((groups, n)) * 0.1 + 0.01).astype(a.dtype)
    zeros = rng.integers(0, 16, (groups, n)).astype(np.uint8)
    packed = codes[0::2] | codes[1::2] << 4
    inputs = {"a": a, "packed": packed, "scales": scales, "zeros": zeros}
    numbers = (a, codes, scales, zeros, group)
    return Case(
        f"w4a16-{dtype}",
        matmul_w4a16,
        (-(-m // tiles[0]), -(-n // tiles[1])),
        {**inputs, "c": output((m, n), dtype), "group": group, **sizes(tiles)},
        {"c": Estimate(reference(*numbers), bound(*numbers))},
    )


def cases() -> list[Case]:
    """A last group that is not full."""
    return [
        case((17, 40, 80), (16, 32, 16), 32, "float16"),
        case((5, 19, 50), (16, 16, 16), 16, "bfloat16"),
    ]


if __name__ == "__main__":
    main(cases)
