"""Functions made of logarithms, in f32.

Coefficients are fitted to the interval, the greatest relative error least.
"""

from __future__ import annotations

import math

from reftile.ir import ops
from reftile.lower.functions.scalar import Scalar

LN2 = 0.6931471805599453
LOG1P = (
    0.04138144478201866,
    -0.09702647477388382,
    0.11983363330364227,
    -0.12728583812713623,
    0.14242394268512726,
    -0.16649514436721802,
    0.2000068873167038,
    -0.2500043511390686,
    0.3333333134651184,
    -0.4999999701976776,
)
"""(log(1 + m) - m) / m**2 for m from -0.25 to 0.5, relative error of the logarithm 2**-29."""
ATANH = (0.12139622867107391, 0.14249393343925476, 0.20000486075878143, 0.3333333134651184)
"""(atanh(q) / q - 1) / q**2 by q**2, for |q| up to 0.1716, relative error of atanh 2**-35."""
TWO_BY_LN2 = (2.885390043258667, 3.851926067000022e-08)
"""2 / ln 2 as a sum of two f32."""
EXPONENT = 0xFF800000
"""Sign and exponent of an f32."""


def log1p(x: Scalar) -> Scalar:
    """log(1 + x) as e ln 2 + log(1 + m), with 1 + x = 2**e (1 + m) and m found without 1 + x."""
    exponent = ((x + 1.0).bits() - 0x3F400000) & EXPONENT
    scaled = (x.bits() - exponent).as_float()
    four = (0x40800000 - exponent).as_float()  # 4 * 2**-e
    m = four.times_plus(0.25, -1.0) + scaled
    y = m.polynomial(LOG1P).times_plus(m * m, m)
    y = (exponent.rounded() * 2.0**-23).times_plus(LN2, y)
    y = (x < math.inf).choose(y, x)
    y = (x > -1.0).choose(y, x.equals(-1.0).choose(x.like(-math.inf), math.nan))
    return (x.magnitude() < 2.0**-25).choose(x, y)


def log2_parts(x: Scalar) -> tuple[Scalar, Scalar]:
    """The logarithm to base 2 as a sum of two numbers, for x positive and finite.

    It is off by 2**-29 of itself: with m from sqrt(1/2) to sqrt(2) and q = (m - 1) / (m + 1), it is
    e + 2 / ln 2 * (q + q**3 ATANH(q**2)).
    """
    tiny = x < 2.0**-126
    x = tiny.choose(x * 2.0**23, x)
    exponent = (x.bits() - 0x3F3504F3) & EXPONENT
    m = (x.bits() - exponent).as_float()
    e = (exponent.rounded() * 2.0**-23) - tiny.choose(x.like(23.0), 0.0)
    above, below = m - 1.0, m + 1.0
    inverse = 1.0 / below
    q = above * inverse
    # above - q * below, where below may lack the last bit of m + 1 = above + 2.
    q_low = (-q).times_plus(above, q.times_plus(-2.0, above)) * inverse
    square = q * q
    rest = square.polynomial(ATANH) * square
    high = q * TWO_BY_LN2[0]
    low = q.times_plus(TWO_BY_LN2[0], -high)
    low = q.times_plus(TWO_BY_LN2[1], low)
    low = q_low.times_plus(TWO_BY_LN2[0], low)
    low = high.times_plus(rest, low)
    log = high + low
    low = low - (log - high)
    total = e + log
    return total, (log - (total - e)) + low


def power(x: Scalar, y: Scalar) -> Scalar:
    """X to the power of y, with the cases that spec/floating.md lists."""
    size = x.magnitude()
    is_whole = y.whole().equals(y)
    half = y * 0.5
    is_odd = is_whole & half.whole().equals(half).negated()
    result = _signed(_power_of_size(size, y), x, is_odd)
    is_undefined = (x < 0.0) & (x > -math.inf) & is_whole.negated()
    result = is_undefined.choose(result.like(math.nan), result)
    stays = size.equals(1.0) & y.magnitude().equals(math.inf)
    is_one = y.equals(0.0) | x.equals(1.0) | stays
    return is_one.choose(result.like(1.0), result)


def integer_power(x: Scalar, n: Scalar) -> Scalar:
    """X to the power of a signed integer, which is a sum of two f32."""
    n = n.extended()
    y = n.rounded()
    rest = ((n & 0xFFFFF000).rounded() - y) + (n & 0xFFF).rounded()
    result = _signed(_power_of_size(x.magnitude(), y, rest), x, (n & 1).equals(1))
    is_one = n.equals(0) | x.equals(1.0)
    return is_one.choose(result.like(1.0), result)


def _power_of_size(size: Scalar, y: Scalar, rest: Scalar | None = None) -> Scalar:
    """2**((y + rest) log2(size)); NaN where y is 0 and size 0 or infinite."""
    high, low = log2_parts(size)
    high = (size < math.inf).choose(high, size)
    high = size.equals(0.0).choose(size.like(-math.inf), high)
    product = high * y
    error = high.times_plus(y, -product) + low * y
    if rest is not None:
        error = high.times_plus(rest, error)
    # Beyond these the power is 0 or infinite, and the error of the product may be no number.
    bounded = product.within(-152.0, 128.5)
    error = bounded.equals(product).choose(error, 0.0)
    large = bounded > 64.0
    result = large.choose(bounded - 1.0, bounded).make(ops.Exp2)
    result = result.times_plus(error * LN2, result)
    return large.choose(result + result, result)


def _signed(result: Scalar, x: Scalar, is_odd: Scalar) -> Scalar:
    """An odd power has the sign of its base."""
    return ((x.bits() < 0) & is_odd).choose(-result, result)
