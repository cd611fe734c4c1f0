"""Numbers to test with:

the edges of every type, strata of the wide ones, all values of the narrow ones.
"""

from __future__ import annotations

import math
from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray
from reftile.conformance.cases import Budget
from reftile.conformance.oracle.formats import (
    FORMATS,
    WIDTHS,
    Codes,
    Format,
    codes,
    is_float,
    round_to,
    take_apart,
)

LANDMARKS = (
    *(0.5, 1.0, 1.5, 2.0, 2.5, 3.0, 3.5, 4.5, 1 / 3, 0.1, 10.0, 100.0, 255.0, 256.0, 127.5, 1e-3),
    *(math.pi * k / 4 for k in (1, 2, 3, 4, 6, 8, 100)),
    *(math.e, math.sqrt(2), math.log(2), 0.9999999, 1.0000001, 1e5, 1e10, 1e22, 1e30),
    *(11.09, 16.64, 17.33, 88.72, 87.34, 103.97, 92.2, 709.78, 745.13, 708.4, 36.7, 18.7, 9.0),
)
"""Numbers around which functions change:

halves, multiples of pi, and where exponentials leave a format.
"""


def codes_of(numbers: Sequence[float] | NDArray[np.float64], f: Format) -> Codes:
    """The codes of finite numbers in a format, rounded to nearest."""
    bits = np.asarray(numbers, np.float64).view(np.uint64).reshape(-1)
    sign, m, e = take_apart(bits, FORMATS["f64"])
    return round_to(sign, m, e, np.zeros(sign.shape, bool), f, "nearest_even")


def float_edges(dtype: str) -> Codes:
    """Zeros, ends of subnormal and normal numbers, powers of two, infinities, NaN; both signs."""
    f = FORMATS[dtype]
    one = 1 << f.mantissa_bits
    last = f.max_code
    magnitudes = [0, 1, 2, 3, one - 1, one, one + 1, 2 * one - 1, 2 * one, last - 1, last]
    magnitudes += [f.nan_code >> f.unused] if f.nan == "above" else []
    if f.infinity:
        magnitudes += [last + 1, last + 2]
    unit = f.bias << f.mantissa_bits
    for code in (
        unit,
        unit + one,
        unit - one,
        unit + f.mantissa_bits * one,
        unit + f.precision * one,
    ):
        magnitudes += [code - 1, code, code + 1]
    magnitudes += [unit + one + one // 2, unit + 3 * one, unit + 2 * one + one // 4]
    top = last + (1 if f.infinity else 0) + (f.nan == "above")
    kept = [m for m in dict.fromkeys(magnitudes) if 0 <= m <= top]
    plus = codes(kept) << np.uint64(f.unused)
    if not f.signed:
        return plus
    minus = plus | np.uint64(1 << (f.width - 1))
    return np.stack([plus, minus], axis=-1).reshape(-1)


def landmark_codes(dtype: str) -> Codes:
    """The landmarks and their neighbours, with both signs."""
    f = FORMATS[dtype]
    found = codes_of([s * v for v in LANDMARKS for s in (1, -1)], f)
    step = np.uint64(1 << f.unused)
    return np.concatenate([found, found + step, np.maximum(found, step) - step])


def integer_edges(dtype: str) -> Codes:
    """Ends of both ranges, small numbers, powers of two, patterns, shift amounts."""
    width = WIDTHS[dtype]
    mask = (1 << width) - 1
    numbers = [0, 1, 2, 3, 5, 7, -1, -2, -3, -7, 10, 100]
    half = 1 << (width - 1)
    numbers += [half - 2, half - 1, half, half + 1, mask, mask - 1, width - 1, width, width + 1]
    numbers += [0x5555555555555555, 0xAAAAAAAAAAAAAAAA, 1 << (width // 2), (1 << (width // 2)) - 1]
    numbers += [(1 << (width // 2)) + 1, -(1 << (width // 2)), 0x123456789ABCDEF0 >> (64 - width)]
    return codes(sorted({n & mask for n in numbers}))


def edges(dtype: str) -> Codes:
    """The edges of a type."""
    return float_edges(dtype) if is_float(dtype) else integer_edges(dtype)


def every(dtype: str) -> Codes:
    """All values of a type of 16 bits or less."""
    return np.arange(1 << WIDTHS[dtype], dtype=np.uint64)


def random_codes(dtype: str, count: int, rng: np.random.Generator) -> Codes:
    """Half bit patterns, which spread over all exponents, half numbers of moderate size."""
    width = WIDTHS[dtype]
    bits = rng.integers(0, 1 << min(width, 63), count, dtype=np.uint64, endpoint=False)
    if width == 64:
        bits = rng.integers(0, (1 << 64) - 1, count, dtype=np.uint64, endpoint=True)
    if not is_float(dtype):
        small = codes(rng.integers(-20, 20, count) & np.int64(-1)) & np.uint64((1 << width) - 1)
        return np.where(rng.random(count) < 0.3, small, bits)
    f = FORMATS[dtype]
    if f.unused:
        bits = bits & ~np.uint64((1 << f.unused) - 1)
    moderate = codes_of(rng.standard_normal(count) * 4, f)
    return np.where(rng.random(count) < 0.5, moderate, bits)


UNARY_COUNTS: dict[Budget, dict[int, int]] = {
    "wimpy": {32: 100, 64: 60},
    "default": {32: 1500, 64: 800},
    "exhaustive": {32: 60000, 64: 30000},
}
PAIR_COUNTS: dict[Budget, int] = {"wimpy": 100, "default": 2000, "exhaustive": 60000}


def unary_inputs(dtype: str, budget: Budget, rng: np.random.Generator) -> Codes:
    """All values of a narrow type; edges, landmarks and a sample of a wide one."""
    if WIDTHS[dtype] <= 16:
        return every(dtype)
    parts = [edges(dtype), random_codes(dtype, UNARY_COUNTS[budget][WIDTHS[dtype]], rng)]
    if is_float(dtype):
        parts.append(landmark_codes(dtype))
    return np.concatenate(parts)


def tuples(dtypes: list[str], budget: Budget, rng: np.random.Generator) -> list[Codes]:
    """Inputs for several operands:

    edges against edges, and random ones; all pairs of 8-bit types.
    """
    widths = [WIDTHS[d] for d in dtypes]
    if sum(widths) <= 16 and (budget != "wimpy" or sum(widths) <= 8):
        return _cross([every(d) for d in dtypes])
    count = PAIR_COUNTS[budget]
    fixed = [edges(d) for d in dtypes]
    if budget == "wimpy" or len(dtypes) > 2:
        limit = 24 if len(dtypes) == 2 else 9 if budget == "wimpy" else 13
        fixed = [e if e.size <= limit else rng.permutation(e)[:limit] for e in fixed]
    crossed = _cross(fixed)
    loose = [random_codes(d, count, rng) for d in dtypes]
    return [np.concatenate([a, b]) for a, b in zip(crossed, loose, strict=True)]


def _cross(columns: list[Codes]) -> list[Codes]:
    grids = np.meshgrid(*columns, indexing="ij")
    return [g.reshape(-1).astype(np.uint64) for g in grids]


def small_integers(
    dtype: str, shape: tuple[int, ...], rng: np.random.Generator, top: int = 8
) -> Codes:
    """Integers of at most `top` in magnitude, as far as the type has them: their sums are exact."""
    count = math.prod(shape)
    if not is_float(dtype):
        low = 0 if dtype == "i1" else -min(top, 1 << (WIDTHS[dtype] - 2))
        drawn = rng.integers(low, -low + 1 if low else 2, count)
        return (codes(drawn & np.int64(-1)) & np.uint64((1 << WIDTHS[dtype]) - 1)).reshape(shape)
    f = FORMATS[dtype]
    limit = min(top, 1 << f.precision)
    if dtype == "f4e2m1":
        limit = 4
    low = 1 if not f.signed else -limit
    drawn = rng.integers(low, limit + 1, count)
    if not f.signed:
        drawn = 2 ** (drawn % 3)
    return codes_of(drawn.astype(np.float64), f).reshape(shape)
