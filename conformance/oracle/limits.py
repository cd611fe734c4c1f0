"""From an exact value and a limit to the range of accepted codes.

ulp(r) = 2 ** (clamp(floor(log2(abs(r))), emin, emax) - (p - 1)). Ranges never reach across zero: an
error does not change the sign. An infinity is the first number beyond the largest.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from fractions import Fraction

import numpy as np
from numpy.typing import NDArray
from reftile.conformance.oracle.answer import Answer, Limit
from reftile.conformance.oracle.formats import (
    Codes,
    Format,
    Mask,
    codes,
    join,
    unbounded,
)

LongDouble = NDArray[np.longdouble]
WIDE = int(np.finfo(np.longdouble).nmant) >= 63
"""Whether long double has at least 64 significant bits here."""

Dyadic = tuple[int, int]
"""(m, e): m * 2**e."""

Refine = Callable[[int], tuple[Dyadic, Dyadic]]
"""`refine(digits)`: magnitudes between which the exact one lies, closer for more binary digits."""


def magnitude_code(value: Fraction, f: Format, upwards: bool) -> int:
    """The code of the nearest magnitude not below (above) a value of at least 0;

    at most that of infinity.
    """
    beyond = f.max_code + 1
    if value <= 0:
        return 0
    if value >= Fraction(2) ** (f.top_exponent + 2):
        return beyond
    top, bottom = value.numerator, value.denominator
    q = max(_exponent(top, bottom) - f.mantissa_bits, f.quantum)
    n, rest = divmod(top << max(-q, 0), bottom << max(q, 0))
    code = ((q - f.quantum) << f.mantissa_bits) + n + (upwards and rest != 0)
    return min(code, beyond)


def _exponent(top: int, bottom: int) -> int:
    """The floor of the binary logarithm of a positive fraction."""
    exponent = top.bit_length() - bottom.bit_length()
    below = top < bottom << exponent if exponent >= 0 else top << -exponent < bottom
    return exponent - below


def unit(value: Fraction, f: Format) -> Fraction:
    """ulp of a magnitude."""
    if value == 0:
        return Fraction(2) ** f.quantum
    exponent = _exponent(value.numerator, value.denominator)
    clamped = min(max(exponent, f.least_exponent), f.top_exponent)
    return Fraction(2) ** (clamped - f.mantissa_bits)


def _dyadic(value: float) -> Dyadic:
    """A float as m * 2**e."""
    m, e = math.frexp(value)
    return int(m * (1 << 53)), e - 53


def _plus(a: Dyadic, b: Dyadic, sign: int = 1) -> Dyadic:
    (m, e), (n, d) = a, b
    low = min(e, d)
    return (m << (e - low)) + sign * (n << (d - low)), low


def _greater(a: Dyadic, b: Dyadic) -> Dyadic:
    return a if _plus(a, b, -1)[0] >= 0 else b


def _code(value: Dyadic, f: Format, upwards: bool) -> int:
    """As `magnitude_code`, of a dyadic number."""
    m, e = value
    beyond = f.max_code + 1
    if m <= 0:
        return 0
    top = m.bit_length() + e - 1
    if top > f.top_exponent + 1:
        return beyond
    q = max(top - f.mantissa_bits, f.quantum)
    if e >= q:
        n, inexact = m << (e - q), False
    else:
        n = m >> (q - e)
        inexact = n << (q - e) != m
    return min(((q - f.quantum) << f.mantissa_bits) + n + (upwards and inexact), beyond)


def range_of(value: Dyadic, f: Format, limit: Limit, index: int) -> tuple[int, int]:
    """Magnitude codes accepted for an exact magnitude."""
    m, e = value
    top = m.bit_length() + e - 1 if m else f.least_exponent
    if top > f.top_exponent + 4:
        value, top = (1, f.top_exponent + 4), f.top_exponent + 4
    unit_exponent = min(max(top, f.least_exponent), f.top_exponent) - f.mantissa_bits
    n, d = _dyadic(float(limit.ulp[index]))
    slack: Dyadic = n, d + unit_exponent
    if limit.absolute is not None:
        slack = _greater(slack, _dyadic(float(limit.absolute[index])))
    if limit.relative is not None:
        n, d = _dyadic(float(limit.relative[index]))
        slack = _greater(slack, (n * value[0], d + value[1]))
    return _code(_plus(value, slack, -1), f, True), _code(_plus(value, slack), f, False)


def settle(refine: Refine, f: Format, limit: Limit, index: int) -> tuple[int, int]:
    """Magnitude codes accepted for a value that can be had to any number of digits."""
    digits = 96
    while True:
        below, above = refine(digits)
        least = range_of(below, f, limit, index)
        most = least if above == below else range_of(above, f, limit, index)
        if least == most:
            return least
        if digits > 800:
            # Undecided after so many digits: a range ends on a code, because the value is that
            # short number.
            return range_of(_short(below, above), f, limit, index)
        digits *= 2


def _short(below: Dyadic, above: Dyadic) -> Dyadic:
    """The number of few digits between two that agree in many."""
    m, e = _plus(below, above)
    cut = max(m.bit_length() - 400, 0)
    return (m + (1 << cut >> 1)) >> cut, e - 1 + cut


def answer_from(
    dtype: str, f: Format, sign: Mask, low: list[int], high: list[int], limit: Limit
) -> Answer:
    """An answer from ranges of magnitude codes."""
    least, most = codes(low), codes(high)
    answer = Answer(
        dtype,
        join(sign, np.where(sign, most, least), f),
        join(sign, np.where(sign, least, most), f),
    )
    answer.free = limit.anything
    return answer


def wide_ranges(
    value: LongDouble, error: float, f: Format, limit: Limit
) -> tuple[Codes, Codes, Mask]:
    """(low, high, undecided) magnitude codes of long doubles known up to a relative error."""
    magnitude = np.abs(value)
    ends: list[tuple[Codes, Codes]] = []
    for factor in (
        np.longdouble(1) - np.longdouble(error),
        np.longdouble(1) + np.longdouble(error),
    ):
        exact = magnitude * factor
        _, exponent = np.frexp(np.where(np.isfinite(exact) & (exact > 0), exact, 1))
        clamped = np.clip(exponent.astype(np.int64) - 1, f.least_exponent, f.top_exponent)
        clamped = np.where(np.isinf(exact), f.top_exponent, clamped)
        clamped = np.where(exact == 0, f.least_exponent, clamped)
        slack = limit.ulp * np.ldexp(np.longdouble(1), (clamped - f.mantissa_bits).astype(np.int32))
        if limit.absolute is not None:
            slack = np.maximum(slack, limit.absolute)
        if limit.relative is not None:
            slack = np.maximum(slack, np.where(np.isinf(exact), 0, limit.relative * exact))
        low, high = np.maximum(exact - slack, 0), exact + slack
        ends.append((_wide_codes(low, f, "positive_inf"), _wide_codes(high, f, "zero")))
    (low, high), (low2, high2) = ends
    return low, high, (low != low2) | (high != high2)


def _wide_codes(value: LongDouble, f: Format, mode: str) -> Codes:
    beyond = value >= np.ldexp(np.longdouble(1), f.top_exponent + 2)
    part, exponent = np.frexp(np.where(beyond, 1, value))
    m = np.ldexp(part, 64).astype(np.uint64)
    code, _ = unbounded(
        np.zeros(m.shape, bool),
        m,
        exponent.astype(np.int64) - 64,
        np.zeros(m.shape, bool),
        f,
        mode,
    )
    return np.where(beyond, np.uint64(f.max_code + 1), np.minimum(code, np.uint64(f.max_code + 1)))
