# pyright: basic
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
    """x**y."""
    return x**y


@inlined
def exp32(x):
    """`exp64` of an f32, rounded once."""
    return m.narrow(exp64(m.widen(x)))


@inlined
def expm1_32(x):
    """`expm1_64` of an f32, rounded once."""
    return m.narrow(expm1_64(m.widen(x)))


@inlined
def log32(x):
    """`log64` of an f32, rounded once."""
    return m.narrow(log64(m.widen(x)))


@inlined
def log2_32(x):
    """`log2_64` of an f32, rounded once."""
    return m.narrow(log2_64(m.widen(x)))


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
def tanh32(x):
    """`tanh64` of an f32, rounded once."""
    return m.narrow(tanh64(m.widen(x)))


@inlined
def erf32(x):
    """`erf64` of an f32, rounded once."""
    return m.narrow(erf64(m.widen(x)))


@inlined
def exp2_32(x):
    """`exp2_64` of an f32, rounded once."""
    return m.narrow(exp2_64(m.widen(x)))


@inlined
def atan2_32(x, y):
    """`atan2_64` of f32, rounded once."""
    return m.narrow(atan2_64(m.widen(x), m.widen(y)))


@inlined
def pow32(x, y):
    """`pow64` of f32, rounded once."""
    return m.narrow(pow64(m.widen(x), m.widen(y)))


@inlined
def rsqrt_single(x):
    """1 / sqrt(x) of an f32, computed in f64 and rounded once."""
    return m.narrow(m.divf(np.float64(1), m.sqrtf(m.widen(x))))


@inlined
def clamp(x, limit):
    """x, at most `limit` away from 0; NaN stays."""
    x = m.choose(m.fgt(x, limit), limit, x)
    return m.choose(m.flt(x, m.negf(limit)), m.negf(limit), x)
