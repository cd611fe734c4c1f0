# pyright: basic, reportAttributeAccessIssue=false, reportCallIssue=false
# pyright: reportGeneralTypeIssues=false, reportOptionalMemberAccess=false
# pyright: reportPrivateImportUsage=false, reportArgumentType=false
# numba has no types for the functions it compiles.
"""Elementary functions within their accuracy classes (spec/accuracy.md).

The f32 functions that kernels use most are polynomials, which LLVM computes for many elements at
once; the others are the C library's in f64, rounded once.
"""

from __future__ import annotations

import math

import numpy as np

from reftile.lower.cpu.functions import machine as m
from reftile.lower.cpu.functions.numbers import called, inlined


@called
def exp64(x):
    """e**x."""
    return math.exp(x)


@called
def exp2_64(x):
    """2**x."""
    return 2.0**x


@called
def expm1_64(x):
    """e**x - 1."""
    return math.expm1(x)


@called
def log64(x):
    """The natural logarithm."""
    return math.log(x)


@called
def log2_64(x):
    """The logarithm to base 2."""
    return math.log2(x)


@called
def log1p64(x):
    """log(1 + x)."""
    return math.log1p(x)


@called
def sin64(x):
    """The sine."""
    return math.sin(x)


@called
def cos64(x):
    """The cosine."""
    return math.cos(x)


@called
def tan64(x):
    """The tangent."""
    return math.tan(x)


@called
def sinh64(x):
    """The hyperbolic sine."""
    return math.sinh(x)


@called
def cosh64(x):
    """The hyperbolic cosine."""
    return math.cosh(x)


@called
def tanh64(x):
    """The hyperbolic tangent."""
    return math.tanh(x)


@called
def erf64(x):
    """The error function."""
    return math.erf(x)


@called
def atan2_64(y, x):
    """The angle of the point (x, y)."""
    return math.atan2(y, x)


@called
def pow64(x, y):
    """Return x to the power of y; of a signalling NaN too the power 0 is 1."""
    if y == 0.0 or x == 1.0:
        return 1.0
    return x**y


@inlined
def expm1_32(x):
    """`expm1_64` of an f32, rounded once."""
    return m.narrow(expm1_64(m.widen(x)))


@inlined
def log1p32(x):
    """`log1p64` of an f32, rounded once."""
    return m.narrow(log1p64(m.widen(x)))


@inlined
def sin32(x):
    """`sin64` of an f32, rounded once."""
    return m.narrow(sin64(m.widen(x)))


@inlined
def cos32(x):
    """`cos64` of an f32, rounded once."""
    return m.narrow(cos64(m.widen(x)))


@inlined
def tan32(x):
    """`tan64` of an f32, rounded once."""
    return m.narrow(tan64(m.widen(x)))


@inlined
def sinh32(x):
    """`sinh64` of an f32, rounded once."""
    return m.narrow(sinh64(m.widen(x)))


@inlined
def cosh32(x):
    """`cosh64` of an f32, rounded once."""
    return m.narrow(cosh64(m.widen(x)))


@inlined
def atan2_32(x, y):
    """`atan2_64` of f32, rounded once."""
    return m.narrow(atan2_64(m.widen(x), m.widen(y)))


@inlined
def pow32(x, y):
    """`pow64` of f32, rounded once."""
    return m.narrow(pow64(m.widen(x), m.widen(y)))


@inlined
def clamp(x, limit):
    """Return x, at most `limit` away from 0; NaN stays."""
    x = m.choose(m.fgt(x, limit), limit, x)
    return m.choose(m.flt(x, m.negf(limit)), m.negf(limit), x)


# f32, for many elements at once: no calls, no branches, fused products and sums where there are.
# Coefficients: S. Moshier, Cephes (expf, logf, log2f, tanhf); errors are measured in tests.

_f = np.float32
_MAGIC, _MAGIC_BITS = _f(12582912.0), np.int32(0x4B400000)


@inlined
def _power_of_two(n):
    """2**n of an i32 in the range of normal numbers."""
    return m.float32_of_bits(m.shl(m.addi(n, np.int32(127)), np.int32(23)))


@inlined
def _scaled_by(x, n):
    """X * 2**n, rounded once also where the result is subnormal."""
    half = m.ashr(n, np.int32(1))
    return m.mulf(m.mulf(x, _power_of_two(half)), _power_of_two(m.subi(n, half)))


@inlined
def _exp_near_zero(r):
    """e**r for |r| up to half of ln 2."""
    p = _f(1.9875691500e-4)
    p = m.muladd(p, r, _f(1.3981999507e-3))
    p = m.muladd(p, r, _f(8.3334519073e-3))
    p = m.muladd(p, r, _f(4.1665795894e-2))
    p = m.muladd(p, r, _f(1.6666665459e-1))
    p = m.muladd(p, r, _f(5.0000001201e-1))
    return m.addf(m.muladd(p, m.mulf(r, r), r), _f(1.0))


@inlined
def _between(x, least, greatest):
    """Return x moved into a range; NaN stays."""
    x = m.choose(m.fgt(x, greatest), greatest, x)
    return m.choose(m.flt(x, least), least, x)


@inlined
def exp32(x):
    """e**x."""
    x = _between(x, _f(-104.0), _f(89.0))
    z = m.muladd(x, _f(1.44269504088896341), _MAGIC)
    n = m.subf(z, _MAGIC)
    r = m.muladd(n, _f(-0.693359375), x)
    r = m.muladd(n, _f(2.12194440e-4), r)
    return _scaled_by(_exp_near_zero(r), m.subi(m.bits32(z), _MAGIC_BITS))


@inlined
def exp2_32(x):
    """2**x; exact for integers."""
    x = _between(x, _f(-151.0), _f(129.0))
    z = m.addf(x, _MAGIC)
    r = m.mulf(m.subf(x, m.subf(z, _MAGIC)), _f(0.693147180559945309))
    return _scaled_by(_exp_near_zero(r), m.subi(m.bits32(z), _MAGIC_BITS))


@inlined
def _log_parts(x):
    """(t, e, y) with log(x) = e ln 2 + t - t**2 / 2 + y, for x positive and finite."""
    small = m.flt(x, _f(1.1754943508222875e-38))
    x = m.choose(small, m.mulf(x, _f(8388608.0)), x)
    bits = m.subi(m.bits32(x), np.int32(0x3F3504F3))
    e = m.ashr(bits, np.int32(23))
    fraction = m.addi(m.andi(bits, np.int32(0x007FFFFF)), np.int32(0x3F3504F3))
    t = m.subf(m.float32_of_bits(fraction), _f(1.0))
    e = m.subi(e, m.choose(small, np.int32(23), np.int32(0)))
    p = _f(7.0376836292e-2)
    p = m.muladd(p, t, _f(-1.1514610310e-1))
    p = m.muladd(p, t, _f(1.1676998740e-1))
    p = m.muladd(p, t, _f(-1.2420140846e-1))
    p = m.muladd(p, t, _f(1.4249322787e-1))
    p = m.muladd(p, t, _f(-1.6668057665e-1))
    p = m.muladd(p, t, _f(2.0000714765e-1))
    p = m.muladd(p, t, _f(-2.4999993993e-1))
    p = m.muladd(p, t, _f(3.3333331174e-1))
    square = m.mulf(t, t)
    return t, m.f32_of_signed(e), m.mulf(m.mulf(p, t), square)


@inlined
def _log_special(x, result):
    """The result of a logarithm, also of what is not positive and finite."""
    result = m.choose(m.flt(x, _f(np.inf)), result, x)
    result = m.choose(m.fgt(x, _f(0.0)), result, _f(np.nan))
    return m.choose(m.feq(x, _f(0.0)), _f(-np.inf), result)


@inlined
def log32(x):
    """The natural logarithm."""
    t, e, y = _log_parts(x)
    y = m.muladd(e, _f(-2.12194440e-4), y)
    y = m.muladd(m.mulf(t, t), _f(-0.5), y)
    return _log_special(x, m.muladd(e, _f(0.693359375), m.addf(t, y)))


@inlined
def log2_32(x):
    """The logarithm to base 2; exact for powers of two."""
    t, e, y = _log_parts(x)
    y = m.muladd(m.mulf(t, t), _f(-0.5), y)
    z = m.mulf(y, _f(0.44269504088896340736))
    z = m.muladd(t, _f(0.44269504088896340736), z)
    return _log_special(x, m.addf(m.addf(m.addf(z, y), t), e))


@inlined
def tanh32(x):
    """The hyperbolic tangent."""
    a = m.absf(x)
    s = m.mulf(x, x)
    p = _f(-5.70498872745e-3)
    p = m.muladd(p, s, _f(2.06390887954e-2))
    p = m.muladd(p, s, _f(-5.37397155531e-2))
    p = m.muladd(p, s, _f(1.33314422036e-1))
    p = m.muladd(p, s, _f(-3.33332819422e-1))
    near = m.muladd(m.mulf(p, s), x, x)
    power = exp32(m.addf(a, a))
    far = m.subf(_f(1.0), m.divf(_f(2.0), m.addf(power, _f(1.0))))
    # The sign of zero is lost on the way.
    return m.copysignf(m.choose(m.flt(a, _f(0.625)), near, far), x)


@inlined
def erf32(x):
    """The error function: erf(x) / x by x**2 near zero, and else 1 - e**q, q = log(1 - erf).

    Both polynomials were fitted at Chebyshev points.
    """
    a = m.absf(x)
    s = m.mulf(x, x)
    p = _f(8.85386616573669e-05)
    p = m.muladd(p, s, _f(-0.0008248131489381194))
    p = m.muladd(p, s, _f(0.005209613125771284))
    p = m.muladd(p, s, _f(-0.026862600818276405))
    p = m.muladd(p, s, _f(0.11283749341964722))
    p = m.muladd(p, s, _f(-0.37612637877464294))
    p = m.muladd(p, s, _f(1.128379225730896))
    b = _between(a, _f(0.8), _f(4.0))
    q = _f(1.5801477957211318e-06)
    q = m.muladd(q, b, _f(-4.490620267461054e-05))
    q = m.muladd(q, b, _f(0.0005868830485269427))
    q = m.muladd(q, b, _f(-0.004712110385298729))
    q = m.muladd(q, b, _f(0.026283396407961845))
    q = m.muladd(q, b, _f(-0.10983273386955261))
    q = m.muladd(q, b, _f(-0.6320939660072327))
    q = m.muladd(q, b, _f(-1.1300737857818604))
    q = m.muladd(q, b, _f(0.00028011450194753706))
    rest = m.subf(_f(1.0), exp32(q))
    return m.choose(m.flt(a, _f(0.85)), m.mulf(p, x), m.copysignf(rest, x))


@inlined
def rsqrt_single(x):
    """1 / sqrt(x) of an f32, rounded twice."""
    return m.divf(_f(1.0), m.sqrtf(x))
