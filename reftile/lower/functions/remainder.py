"""The remainder of f32, exact: long division of one whole number by another."""

from __future__ import annotations

import math

from reftile.ir import ops
from reftile.ir.dtypes import I32
from reftile.lower.functions.exponential import power_of_two
from reftile.lower.functions.scalar import Scalar, with_sign_of

DIGIT = 8
"""Bits of a quotient found at once: so many more than the 24 of a remainder fit 32."""


def remainder(x: Scalar, y: Scalar) -> Scalar:
    """X less a whole multiple of y, with x's sign."""
    numerator, top = _apart(x)
    denominator, bottom = _apart(y)
    size = y.magnitude()
    is_divided = size.equals(0.0).negated() & (size < math.inf)
    denominator = is_divided.choose(denominator, 1)
    left = top - bottom
    left = left.make(ops.Maxi, left.like(0), signedness="signed")

    def modulo(number: Scalar) -> Scalar:
        divisor = Scalar(denominator.value, number.block)
        return number.make(ops.Remi, divisor, signedness="unsigned")

    found = (left >> 3).repeat(modulo(numerator), lambda r: modulo(r << DIGIT))
    found = modulo(found << (left & (DIGIT - 1)))
    half = bottom.halved()
    result = found.rounded() * power_of_two(half) * power_of_two(bottom - half)
    result = with_sign_of(result, x)
    # Whatever is shorter than y, or meets an infinite y, stays.
    result = (x.magnitude() < size).choose(x, result)
    is_number = (x.magnitude() < math.inf) & (size > 0.0)
    return is_number.choose(result, math.nan)


def _apart(x: Scalar) -> tuple[Scalar, Scalar]:
    """Return (m, e) with |x| = m 2**e, where e is at least -149."""
    field = (x.bits() >> 23) & 0xFF
    fraction = x.bits() & 0x007FFFFF
    is_normal = field > 0
    m = is_normal.choose(fraction | x.constant(0x00800000, I32), fraction)
    return m, is_normal.choose(field, 1) - 150
