"""Float64 results together with the sign of what rounding left out, and roundings made from both.

A pair (result, error) says: `result` is the nearest float64 to the exact value, and `error` has the
sign of exact - result (0 when they are equal). From such a pair any rounding mode follows.

The functions are valid where nothing overflows or loses bits to underflow, which their callers
check; `round_fraction` is the slow way that always works.

Sources: T. J. Dekker, "A floating-point technique for extending the available precision" (1971);
S. Boldo and G. Melquiond, "Emulation of FMA and correctly rounded sums: proved algorithms using
rounding to odd" (2008).
"""

from __future__ import annotations

import math
from fractions import Fraction

import numpy as np

from reftile.ir.rounding import Array, Rounding

Pair = tuple[Array, Array]


def two_sum(lhs: Array, rhs: Array) -> Pair:
    """Return the pair of lhs + rhs; the error is exact, not only its sign."""
    total = lhs + rhs
    rhs_part = total - lhs
    return total, (lhs - (total - rhs_part)) + (rhs - rhs_part)


def two_product(lhs: Array, rhs: Array) -> Pair:
    """Return the pair of lhs * rhs; the error is exact, not only its sign."""
    product = lhs * rhs
    lhs_high, lhs_low = _split(lhs)
    rhs_high, rhs_low = _split(rhs)
    error = ((lhs_high * rhs_high - product) + lhs_high * rhs_low + lhs_low * rhs_high) + (
        lhs_low * rhs_low
    )
    return product, error


def _split(values: Array) -> Pair:
    """Split into halves of at most 26 bits, whose products are exact."""
    scaled = values * 134217729.0  # 2**27 + 1
    high = scaled - (scaled - values)
    return high, values - high


def quotient(lhs: Array, rhs: Array) -> Pair:
    """Return the pair of lhs / rhs."""
    result = lhs / rhs
    product, error = two_product(result, rhs)
    # product is within a few units of lhs, so the difference is exact (Sterbenz).
    remainder = (lhs - product) - error
    return result, np.where(rhs < 0, -remainder, remainder)


def square_root(values: Array) -> Pair:
    """Return the pair of sqrt(values), for any finite positive values."""
    fraction, half_exponent = _split_even_exponent(values)
    result = np.sqrt(fraction)
    square, error = two_product(result, result)
    return np.ldexp(result, half_exponent), (fraction - square) - error


def reciprocal_root(values: Array) -> Pair:
    """Return the pair of 1 / sqrt(values), for any finite positive values.

    result is the nearest float64 except, possibly, where the exact value lies within 2**-40 of a
    unit in the last place from the middle of two: it may then be the other one of the two.
    The error's sign is exact for values of at most 24 significant bits where result has 25 or
    fewer, because fraction * result**2 then differs from 1 by nothing or by more than 2**-100;
    a longer result lies between the numbers of a narrow format whichever its sign.
    """
    fraction, half_exponent = _split_even_exponent(values)
    guess = 1.0 / np.sqrt(fraction)
    # One Newton step turns an error of about one unit into half a unit.
    result = guess + guess * (_root_residual(fraction, guess) * 0.5)
    return np.ldexp(result, -half_exponent), _root_residual(fraction, result)


def _root_residual(fraction: Array, root: Array) -> Array:
    """Return 1 - fraction * root**2, about its leading 50 bits."""
    product, low = two_product(fraction, root)
    square, error = two_product(product, root)
    return ((1.0 - square) - error) - low * root


def _split_even_exponent(values: Array) -> Pair:
    """Return (f, k) with values = f * 4**k and f in [0.5, 2)."""
    fraction, exponent = np.frexp(values)
    odd = exponent & 1
    return np.ldexp(fraction, odd), (exponent - odd) >> 1


def narrow_fma(lhs: Array, rhs: Array, acc: Array) -> Pair:
    """Return the pair of lhs * rhs + acc for operands of at most 24 significant bits."""
    # The product has at most 48 bits, so it is exact.
    return two_sum(lhs * rhs, acc)


def fma(lhs: Array, rhs: Array, acc: Array) -> Pair:
    """Return the pair of lhs * rhs + acc (Boldo and Melquiond)."""
    product, product_low = two_product(lhs, rhs)
    small, small_low = two_sum(acc, product_low)
    large, large_low = two_sum(product, small)
    # Rounded to odd, the tail cannot fall on a number or a midpoint that the exact one misses.
    tail = round_to_odd(*two_sum(small_low, large_low))
    return two_sum(large, tail)


def _has_error(result: Array, error: Array) -> Array:
    # Operands that are infinite or NaN give exact results and errors that are NaN.
    return np.isfinite(result) & ((error < 0) | (error > 0))


def _step(result: Array, up: Array, where: Array) -> Array:
    """Move to the neighbouring float64, up or down, where asked; result is not zero there."""
    outward = up == (result > 0)
    return (result.view(np.int64) + where * np.where(outward, 1, -1)).view(np.float64)


def round_to_odd(result: Array, error: Array) -> Array:
    """Return the exact value rounded to odd: itself, or the neighbour whose last bit is 1.

    Rounding that to a format with at least two bits fewer, in any mode, rounds the exact value.
    """
    result = np.asarray(result)
    even = (result.view(np.int64) & 1) == 0
    return _step(result, error > 0, _has_error(result, error) & even)


def round_pair(result: Array, error: Array, rounding: Rounding) -> Array:
    """Return the exact value rounded to float64; not for nearest_away."""
    result = np.asarray(result)
    moved = _has_error(result, error)
    match rounding:
        case "nearest_even":
            return result
        case "zero":
            return _step(result, error > 0, moved & ((error > 0) != (result > 0)))
        case "negative_inf":
            return _step(result, error > 0, moved & (error < 0))
        case "positive_inf":
            return _step(result, error > 0, moved & (error > 0))
        case "nearest_away":
            raise ValueError("arithmetic does not round to nearest away")


def round_fraction(value: Fraction, rounding: Rounding) -> float:
    """Return an exact value rounded to float64, with overflow and subnormals; slow.

    Zero gives the zero that a sum of two opposite numbers gives: -0 in negative_inf, else +0.
    """
    if value == 0:
        return -0.0 if rounding == "negative_inf" else 0.0
    magnitude = abs(value)
    exponent = magnitude.numerator.bit_length() - magnitude.denominator.bit_length()
    if Fraction(2) ** exponent > magnitude:
        exponent -= 1
    quantum = max(exponent - 52, -1074)
    units, rest = divmod(magnitude / Fraction(2) ** quantum, 1)
    negative = value < 0
    match rounding:
        case "nearest_even":
            up = rest > Fraction(1, 2) or (rest == Fraction(1, 2) and units % 2 == 1)
        case "nearest_away":
            up = rest >= Fraction(1, 2)
        case "zero":
            up = False
        case "positive_inf":
            up = rest > 0 and not negative
        case "negative_inf":
            up = rest > 0 and negative
    units += up
    if units.bit_length() + quantum > 1024:
        outward = rounding in ("nearest_even", "nearest_away") or (
            rounding == ("negative_inf" if negative else "positive_inf")
        )
        largest = math.ldexp(2.0**53 - 1, 971)
        result = math.inf if outward else largest
    else:
        result = math.ldexp(units, quantum)
    return -result if negative else result
