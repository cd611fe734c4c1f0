"""Quantising casts: rows to 8 bits with a scale for each row, and blocks to 8-bit floats.

`quantize_rows` finds the greatest magnitude of a row, and divides by the scale that maps it to the
greatest number of the target: 127 in int8, 448 in float8_e4m3fn. `quantize_blocks` takes a scale
that is a power of two for each 32 elements, as the microscaling formats want it: it is read off
the exponent of the greatest magnitude, with integer operations on its bits.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from bounds import Estimate, Floats, estimate, limit
from harness import Case, main, normal, numpy_dtype, output, seeded

import reftile
import reftile.lang as ct

ZERO = ct.PaddingMode.ZERO
GREATEST = {"int8": 127.0, "float8_e4m3fn": 448.0, "float8_e5m2": 57344.0}


@reftile.kernel
def quantize_rows(x, out, scales, greatest: float, rows: ct.Constant[int], width: ct.Constant[int]):
    """scales: float32 [rows of x]. Grid: (cdiv(x.shape[0], rows),). width: at least x.shape[1]."""
    i = ct.bid(0)
    part = ct.load(x, (i, 0), (rows, width), padding_mode=ZERO).astype(ct.float32)
    magnitude = ct.max(ct.abs(part), axis=1, keepdims=True)
    # A row of zeros has the scale 1: 0 / 0 is no number.
    scale = ct.where(magnitude > 0.0, magnitude / greatest, 1.0)
    scaled = part / scale
    if ct.static_eval(out.dtype.is_int):
        scaled = ct.round(scaled)
    ct.store(out, (i, 0), scaled.astype(out.dtype))
    ct.store(scales, (i,), scale.reshape((rows,)))


@reftile.kernel
def quantize_blocks(x, out, exponents, rows: ct.Constant[int], blocks: ct.Constant[int]):
    """out: float8_e4m3fn; exponents: uint8 [rows of x, columns / 32], e for 2^(e - 127).

    Grid: (cdiv(x.shape[0], rows), cdiv(columns, 32 * blocks)); columns are a multiple of 32.
    """
    i, j = ct.bid(0), ct.bid(1)
    part = ct.load(x, (i, j), (rows, 32 * blocks), padding_mode=ZERO).astype(ct.float32)
    part = part.reshape((rows, blocks, 32))
    magnitude = ct.max(ct.abs(part), axis=2, keepdims=True)
    # 448 is 1.75 * 2^8: with the exponent of the greatest less 8, elements stay below 2^9 and what
    # lies above 448 saturates, as the OCP specification has it.
    exponent = (ct.bitcast(magnitude, ct.int32) >> 23) - 8
    exponent = ct.maximum(exponent, 1)
    scale = ct.bitcast(exponent << 23, ct.float32)
    scaled = ct.minimum(ct.maximum(part / scale, -448.0), 448.0)
    ct.store(out, (i, j), scaled.reshape((rows, 32 * blocks)).astype(out.dtype))
    ct.store(exponents, (i, j), exponent.reshape((rows, blocks)).astype(ct.uint8))


# Cases


def reference(x: Any, target: str) -> tuple[Floats, Floats]:
    """Elements over their row's scale, and the scales, in float64."""
    x = np.asarray(x, np.float64)
    magnitude = np.abs(x).max(1, keepdims=True)
    scale = np.where(magnitude > 0, magnitude / GREATEST[target], 1.0)
    return x / scale, scale


def bound(x: Any, target: str) -> tuple[Floats, Floats]:
    """Two divisions and the last rounding; to a whole number it is off by half of 1."""
    _, scales = reference(x, target)
    scale = estimate(scales, "float32").rounded(limit("div", "float32"))
    scaled = estimate(x).astype("float32") / scale
    error = scaled.error + 0.5 if target == "int8" else scaled.astype(target).error
    return error, scale.error


def case_rows(shape: tuple[int, int], target: str, dtype: str) -> Case:
    """Rows of different size, one of them zero."""
    rng = seeded(sum(shape))
    size = 10.0 ** rng.integers(-2, 3, (shape[0], 1))
    x = (normal(rng, shape, "float32") * size).astype(numpy_dtype(dtype))
    x[2] = 0
    (out, scales), (error, scale_error) = reference(x, target), bound(x, target)
    outputs = {"out": output(shape, target), "scales": output(shape[:1], "float32")}
    constants = {"greatest": GREATEST[target], "rows": 4, "width": 64}
    return Case(
        f"quantize-rows-{target}",
        quantize_rows,
        (-(-shape[0] // 4),),
        {"x": x, **outputs, **constants},
        {"out": Estimate(out, error), "scales": Estimate(scales[:, 0], scale_error[:, 0])},
    )


def case_blocks(shape: tuple[int, int], dtype: str) -> Case:
    """Blocks of different size. Scales are powers of two, so only the last step rounds."""
    rng = seeded(sum(shape))
    x = (normal(rng, shape, "float32") * 10.0 ** rng.integers(-3, 4, shape)).astype(
        numpy_dtype(dtype)
    )
    exact = x.astype(np.float64).reshape(shape[0], -1, 32)
    _, exponent = np.frexp(np.abs(exact).max(2, keepdims=True))
    scale = np.ldexp(1.0, exponent - 1 - 8)
    scaled = np.clip(exact / scale, -448, 448).reshape(shape)
    codes = (exponent[..., 0] - 1 - 8 + 127).astype(np.uint8)
    outputs = {"out": output(shape, "float8_e4m3fn"), "exponents": output(codes.shape, "uint8")}
    return Case(
        "quantize-blocks",
        quantize_blocks,
        (-(-shape[0] // 4), -(-shape[1] // 64)),
        {"x": x, **outputs, "rows": 4, "blocks": 2},
        {"out": estimate(scaled, "float32").astype("float8_e4m3fn"), "exponents": estimate(codes)},
    )


def cases() -> list[Case]:
    """Each target."""
    return [
        case_rows((9, 50), "int8", "float16"),
        case_rows((9, 50), "float8_e4m3fn", "bfloat16"),
        case_rows((5, 60), "float8_e5m2", "float32"),
        case_blocks((6, 96), "bfloat16"),
    ]


if __name__ == "__main__":
    main(cases)
