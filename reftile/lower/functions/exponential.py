"""Functions made of powers of e, in f32.

Coefficients, unless said otherwise: fitted to the interval, the greatest relative error least.
"""

from __future__ import annotations

from reftile.ir import ops
from reftile.lower.functions.scalar import Scalar, with_sign_of

LOG2_E = 1.4426950408889634
SHIFT, SHIFT_BITS = 12582912.0, 0x4B400000
"""1.5 * 2**23: a small number added to it is rounded to an integer, which is in the low bits."""
EXP = (
    0.0001979006628971547,
    0.0013944943202659488,
    0.008333498612046242,
    0.041666291654109955,
    0.1666666567325592,
    0.5,
)
"""(exp(r) - 1 - r) / r**2 for |r| up to 0.3475, relative error 2**-34."""
SINH = (2.782267074508127e-06, 0.00019842891197185963, 0.00833331048488617, 0.1666666716337204)
"""(sinh(x) / x - 1) / x**2 by x**2, for |x| up to 1, relative error of sinh 2**-31."""
ERF_NEAR = (
    8.85386616573669e-05,
    -0.0008248131489381194,
    0.005209613125771284,
    -0.026862600818276405,
    0.11283749341964722,
    -0.37612637877464294,
    1.128379225730896,
)
"""erf(x) / x by x**2, for |x| up to 0.85; fitted at Chebyshev points."""
ERF_FAR = (
    1.5801477957211318e-06,
    -4.490620267461054e-05,
    0.0005868830485269427,
    -0.004712110385298729,
    0.026283396407961845,
    -0.10983273386955261,
    -0.6320939660072327,
    -1.1300737857818604,
    0.00028011450194753706,
)
"""log(1 - erf(x)) for x from 0.8 to 4, where erf becomes 1; fitted at Chebyshev points."""


def split_exponent(x: Scalar) -> tuple[Scalar, Scalar]:
    """Return (exp(r) - 1, n) with x = n ln 2 + r, |r| up to half of ln 2, for |x| below 2**21."""
    shifted = x.times_plus(LOG2_E, SHIFT)
    n = shifted - SHIFT
    # The first part of ln 2 has 16 bits, so that its product with n is exact.
    r = n.times_plus(-0.693145751953125, x)
    r = n.times_plus(-1.428606765330187e-06, r)
    return r.polynomial(EXP).times_plus(r * r, r), shifted.bits() - SHIFT_BITS


def power_of_two(n: Scalar) -> Scalar:
    """2**n as an f32, for an exponent of normal numbers."""
    return ((n << 23) + 0x3F800000).as_float()


def exp_quarter(x: Scalar) -> Scalar:
    """exp(x) / 4, for x from 0 to 90."""
    fraction, n = split_exponent(x)
    n = n - 2
    half = n.halved()
    return (fraction + 1.0) * power_of_two(half) * power_of_two(n - half)


def expm1(x: Scalar) -> Scalar:
    """exp(x) - 1."""
    fraction, n = split_exponent(x.within(-30.0, 89.0))
    # Half of it, because 2**128 is no number of f32.
    half = power_of_two(n - 1)
    y = fraction.times_plus(half, half - 0.5) * 2.0
    return (x.magnitude() < 2.0**-25).choose(x, y)


def sinh(x: Scalar) -> Scalar:
    """The hyperbolic sine."""
    square = x * x
    near = (x * square).times_plus(square.polynomial(SINH), x)
    quarter = exp_quarter(x.magnitude().within(0.5, 90.0))
    far = with_sign_of(quarter.times_plus(2.0, -0.125 / quarter), x)
    return (x.magnitude() < 1.0).choose(near, far)


def cosh(x: Scalar) -> Scalar:
    """The hyperbolic cosine."""
    quarter = exp_quarter(x.magnitude().within(0.0, 90.0))
    return quarter.times_plus(2.0, 0.125 / quarter)


def erf(x: Scalar) -> Scalar:
    """The error function."""
    size = x.magnitude()
    near = (x * x).polynomial(ERF_NEAR) * x
    rest = (size.within(0.8, 4.0).polynomial(ERF_FAR) * LOG2_E).make(ops.Exp2)
    return (size < 0.85).choose(near, with_sign_of(1.0 - rest, x))
