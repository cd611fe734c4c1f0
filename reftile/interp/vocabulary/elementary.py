"""Words of meanings: elementary functions.

f16, bf16 and f32 are computed in f64 and rounded once, so their error is half a unit and very
little more; f64 is NumPy's own, which lies within two units.
"""

from __future__ import annotations

import math
from collections.abc import Callable

import numpy as np

from reftile.interp.values import Array
from reftile.interp.vocabulary.floats import canonical
from reftile.ir.arithmetic import flush_subnormals
from reftile.ir.dtypes import F64, DType
from reftile.ir.numbers import convert


def _apply(function: Callable[..., Array], dtype: DType, *operands: Array) -> Array:
    # Contiguous, because NumPy has other loops, with other last bits, for strided arrays.
    # (`ascontiguousarray` would give a scalar an axis.)
    wide = [np.asarray(operand, np.float64, order="C") for operand in operands]
    result = np.asarray(function(*wide))
    return canonical(result) if dtype is F64 else convert(result, F64, dtype)


def exp(source: Array, dtype: DType) -> Array:
    """Return e to the power of source."""
    return _apply(np.exp, dtype, source)


def exp2(source: Array, dtype: DType, flush_to_zero: bool) -> Array:
    """2 to the power of source."""
    if not flush_to_zero:
        return _apply(np.exp2, dtype, source)
    return flush_subnormals(_apply(np.exp2, dtype, flush_subnormals(source, dtype)), dtype)


def expm1(source: Array, dtype: DType) -> Array:
    """Return e to the power of source, less 1."""
    return _apply(np.expm1, dtype, source)


def log(source: Array, dtype: DType) -> Array:
    """The natural logarithm."""
    return _apply(np.log, dtype, source)


def log2(source: Array, dtype: DType) -> Array:
    """The logarithm to base 2."""
    return _apply(np.log2, dtype, source)


def log1p(source: Array, dtype: DType) -> Array:
    """The natural logarithm of 1 + source."""
    return _apply(np.log1p, dtype, source)


def power(source: Array, exponent: Array, dtype: DType) -> Array:
    """Return source to the power of exponent."""
    return _apply(np.power, dtype, *np.broadcast_arrays(source, exponent))


def integer_power(source: Array, exponent: Array, dtype: DType, exponent_dtype: DType) -> Array:
    """Return source to the power of a signed integer of at most 32 bits, which f64 has exactly."""
    signed = np.negative(exponent, dtype=np.int8) if exponent_dtype.bits == 1 else exponent
    return power(source, signed, dtype)


def sin(source: Array, dtype: DType) -> Array:
    """The sine."""
    return _apply(np.sin, dtype, source)


def cos(source: Array, dtype: DType) -> Array:
    """The cosine."""
    return _apply(np.cos, dtype, source)


def tan(source: Array, dtype: DType) -> Array:
    """The tangent."""
    return _apply(np.tan, dtype, source)


def sinh(source: Array, dtype: DType) -> Array:
    """The hyperbolic sine."""
    return _apply(np.sinh, dtype, source)


def cosh(source: Array, dtype: DType) -> Array:
    """The hyperbolic cosine."""
    return _apply(np.cosh, dtype, source)


def tanh(source: Array, dtype: DType) -> Array:
    """The hyperbolic tangent."""
    return _apply(np.tanh, dtype, source)


def atan2(x: Array, y: Array, dtype: DType) -> Array:
    """The angle whose tangent is x / y, in the quadrant of (y, x)."""
    return _apply(np.arctan2, dtype, *np.broadcast_arrays(x, y))


def erf(source: Array, dtype: DType) -> Array:
    """The error function."""
    return _apply(_erf_elements, dtype, source)


def _erf_elements(values: Array) -> Array:
    # NumPy has no erf; the C library's is within a unit.
    flat = map(math.erf, values.reshape(-1).tolist())
    return np.fromiter(flat, np.float64, values.size).reshape(values.shape)
