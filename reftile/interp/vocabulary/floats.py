"""Words of meanings: float arithmetic, extremes, comparison and rounding to integers."""

from __future__ import annotations

from typing import cast

import numpy as np

from reftile.interp.values import Array
from reftile.ir import arithmetic, comparison, exact
from reftile.ir.dtypes import F32, F64, DType
from reftile.ir.numbers import convert
from reftile.ir.rounding import Rounding


def canonical(values: Array) -> Array:
    """Return `values`, an array of the caller's own, with every NaN made the canonical one."""
    # A minimum is NaN if any element is: one pass, and no array of masks.
    least = np.minimum.reduce(values, axis=None)
    if least == least:
        return values
    return np.where(np.isnan(values), values.dtype.type(np.nan), values)


def _is_plain(dtype: DType, rounding: str, flush_to_zero: bool) -> bool:
    """Whether NumPy's own operation, which rounds to nearest even in f32 and f64, is the answer."""
    return rounding == "nearest_even" and not flush_to_zero and (dtype is F32 or dtype is F64)


def _mode(rounding: str) -> Rounding:
    """The mode in which the interpreter rounds: approximations are exact here."""
    return "nearest_even" if rounding in ("approx", "full") else cast("Rounding", rounding)


def add(lhs: Array, rhs: Array, dtype: DType, rounding: str, flush_to_zero: bool) -> Array:
    """Return lhs + rhs, rounded once."""
    if _is_plain(dtype, rounding, flush_to_zero):
        return canonical(np.add(lhs, rhs))
    return arithmetic.add(lhs, rhs, dtype, _mode(rounding), flush_to_zero)


def sub(lhs: Array, rhs: Array, dtype: DType, rounding: str, flush_to_zero: bool) -> Array:
    """Return lhs - rhs, rounded once."""
    if _is_plain(dtype, rounding, flush_to_zero):
        return canonical(np.subtract(lhs, rhs))
    return arithmetic.sub(lhs, rhs, dtype, _mode(rounding), flush_to_zero)


def mul(lhs: Array, rhs: Array, dtype: DType, rounding: str, flush_to_zero: bool) -> Array:
    """Return lhs * rhs, rounded once."""
    if _is_plain(dtype, rounding, flush_to_zero):
        return canonical(np.multiply(lhs, rhs))
    return arithmetic.mul(lhs, rhs, dtype, _mode(rounding), flush_to_zero)


def div(lhs: Array, rhs: Array, dtype: DType, rounding: str, flush_to_zero: bool) -> Array:
    """Return lhs / rhs, rounded once."""
    mode = _mode(rounding)
    if _is_plain(dtype, mode, flush_to_zero):
        return canonical(np.divide(lhs, rhs))
    return arithmetic.div(lhs, rhs, dtype, mode, flush_to_zero)


def reciprocal(source: Array, dtype: DType, rounding: str, flush_to_zero: bool) -> Array:
    """1 / source, rounded once."""
    return div(dtype.carrier.type(1), source, dtype, rounding, flush_to_zero)


def fma(
    lhs: Array, rhs: Array, acc: Array, dtype: DType, rounding: str, flush_to_zero: bool
) -> Array:
    """Return lhs * rhs + acc, rounded once."""
    if dtype is F32 and rounding == "nearest_even" and not flush_to_zero:
        return canonical(_fma_in_f64(lhs, rhs, acc))
    return arithmetic.fma(lhs, rhs, acc, dtype, _mode(rounding), flush_to_zero)


def _fma_in_f64(lhs: Array, rhs: Array, acc: Array) -> Array:
    """Return the f32 fma by way of f64, where the product is exact and the sum rounds a first time.

    The rounded sum lies on the same side as the exact one of the middle between two f32, unless it
    lies in that middle. There its low bits are a one and zeros, and its error decides.
    """
    product = np.multiply(lhs, rhs, dtype=np.float64)
    total = np.asarray(product + acc)
    bits = total.view(np.int64) & _LOW_BITS
    middle = bits == _MIDDLE
    # Subnormal f32 have fewer bits, and so their middles elsewhere.
    middle |= np.abs(total) < float(F32.min_normal)
    result = np.asarray(total.astype(np.float32))
    if middle.any():
        product, acc = np.broadcast_arrays(product, acc)
        nearest, error = exact.two_sum(product[middle], acc[middle].astype(np.float64))
        towards = np.where(error == 0, nearest, np.copysign(np.inf, error))
        result[middle] = np.nextafter(nearest, towards)
    return result


_LOW_BITS = np.int64((1 << 29) - 1)
_MIDDLE = np.int64(1 << 28)


def sqrt(source: Array, dtype: DType, rounding: str, flush_to_zero: bool) -> Array:
    """The square root, rounded once."""
    mode = _mode(rounding)
    if _is_plain(dtype, mode, flush_to_zero):
        return canonical(np.sqrt(source))
    return arithmetic.sqrt(source, dtype, mode, flush_to_zero)


def rsqrt(source: Array, dtype: DType, flush_to_zero: bool) -> Array:
    """1 / sqrt(source), computed in f64 and rounded once; in f64, the nearest number."""
    if dtype is F64 or flush_to_zero:
        return arithmetic.rsqrt(source, dtype, flush_to_zero)
    return convert(1.0 / np.sqrt(source.astype(np.float64)), F64, dtype)


def remainder(lhs: Array, rhs: Array, dtype: DType) -> Array:
    """Return lhs - trunc(lhs / rhs) * rhs, exactly; every format has its own remainders."""
    return canonical(np.fmod(lhs, rhs))


def neg_float(source: Array) -> Array:
    """The sign bit flipped."""
    return np.negative(source)


def abs_float(source: Array) -> Array:
    """The sign bit cleared."""
    return np.absolute(source)


def maximum(
    lhs: Array, rhs: Array, dtype: DType, propagate_nan: bool, flush_to_zero: bool
) -> Array:
    """The greater number, +0 above -0; NaN if one operand is (propagate_nan) or both are."""
    if flush_to_zero:
        return comparison.maximum(lhs, rhs, dtype, propagate_nan, flush_to_zero)
    result = np.maximum(lhs, rhs) if propagate_nan else np.fmax(lhs, rhs)
    if not propagate_nan and np.isnan(result).any():
        # Of a signalling NaN and a number, NumPy gives NaN in some of its loops.
        result = np.fmax(canonical(lhs), canonical(rhs))
    zero = result == 0
    if zero.any():
        # NumPy gives either of two zeros; their sum is -0 only if both are.
        result = np.where(zero & (lhs == rhs), lhs + rhs, result)
    return canonical(result)


def minimum(
    lhs: Array, rhs: Array, dtype: DType, propagate_nan: bool, flush_to_zero: bool
) -> Array:
    """The lesser number, -0 below +0; NaN as in `maximum`."""
    if flush_to_zero:
        return comparison.minimum(lhs, rhs, dtype, propagate_nan, flush_to_zero)
    result = np.minimum(lhs, rhs) if propagate_nan else np.fmin(lhs, rhs)
    if not propagate_nan and np.isnan(result).any():
        # Of a signalling NaN and a number, NumPy gives NaN in some of its loops.
        result = np.fmin(canonical(lhs), canonical(rhs))
    zero = result == 0
    if zero.any():
        result = np.where(zero & (lhs == rhs), -((-lhs) - rhs), result)
    return canonical(result)


def compare(lhs: Array, rhs: Array, predicate: str, ordering: str) -> Array:
    """Where the comparison holds; with a NaN operand where `ordering` is unordered."""
    if ordering == "unordered":
        # The opposite question, asked in order, is false of NaN.
        return np.logical_not(_compare_ordered(lhs, rhs, _OPPOSITE[predicate]))
    return _compare_ordered(lhs, rhs, predicate)


_OPPOSITE = {
    "equal": "not_equal",
    "not_equal": "equal",
    "less_than": "greater_than_or_equal",
    "less_than_or_equal": "greater_than",
    "greater_than": "less_than_or_equal",
    "greater_than_or_equal": "less_than",
}


def _compare_ordered(lhs: Array, rhs: Array, predicate: str) -> Array:
    match predicate:
        case "equal":
            return np.equal(lhs, rhs)
        case "not_equal":
            return np.logical_or(np.less(lhs, rhs), np.greater(lhs, rhs))
        case "less_than":
            return np.less(lhs, rhs)
        case "less_than_or_equal":
            return np.less_equal(lhs, rhs)
        case "greater_than":
            return np.greater(lhs, rhs)
        case _:
            return np.greater_equal(lhs, rhs)


def ceil(source: Array, dtype: DType) -> Array:
    """The least integer not below."""
    return canonical(np.ceil(source))


def floor(source: Array, dtype: DType) -> Array:
    """The greatest integer not above."""
    return canonical(np.floor(source))


def trunc(source: Array, dtype: DType) -> Array:
    """The integer part."""
    return canonical(np.trunc(source))


def round_even(source: Array, dtype: DType) -> Array:
    """The nearest integer, the even one of two."""
    return canonical(np.rint(source))
