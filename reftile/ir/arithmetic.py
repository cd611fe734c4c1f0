"""Correctly rounded float arithmetic on carriers, for any float format and four rounding modes.

Every function takes carrier arrays of one dtype, broadcasts them, and returns a carrier array whose
NaNs are canonical. Modes: nearest_even, zero, negative_inf, positive_inf. `flush_to_zero` (f32
only) turns subnormal operands, and results that are subnormal after rounding, into zeros of the
same sign. A format that lacks a result (infinity, NaN, -0) gets what `rounding` says.

How one rounding comes about
    f32, f64, nearest_even: NumPy's own operation.
    narrower, nearest_even: the f32 operation, rounded again. For precision p a nearest result in
        2p + 2 bits or more rounds again as the exact value would (S. Figueroa, "When is double
        rounding innocuous?", 1995); p is at most 11 and f32 has 24. bf16's subnormals are f32's
        too, where f32 rounds to multiples of 2**-149. Still, sums there are exact, products of two
        8-bit significands miss a middle of two bf16 subnormals by 2**-149 or more, quotients by
        2**-142. tf32's products could miss by less, so tf32 goes the next way.
    fma up to f32, and tf32, nearest_even: the f64 result (for fma of an exact product) rounded
        again, except where it is the middle of two narrow numbers; those go the next way.
    otherwise, up to f32: f64 rounded to odd (reftile.ir.exact), then the mode asked for.
    otherwise, f64: a result and the sign of its error; exact fractions for the few elements so
        large or so small that the error could itself be rounded.
"""

from __future__ import annotations

import operator
from collections.abc import Callable
from dataclasses import dataclass
from fractions import Fraction
from math import isqrt

import numpy as np

from reftile.ir import exact
from reftile.ir.dtypes import F32, F64, TF32, DType
from reftile.ir.exact import Pair, round_fraction, round_pair, round_to_odd
from reftile.ir.numbers import canonical, convert
from reftile.ir.rounding import Array, Rounding


@dataclass(frozen=True, slots=True)
class _Operation:
    """One arithmetic operation, in the ways it can be computed.

    plain: NumPy's, of any float dtype.
    plain_rounds_once: False for fma, which NumPy does not have.
    pair, narrow_pair: float64 result and error, for any operands and for 24-bit ones.
    fraction: the exact value; None when `pair` is right for every finite operand.
    is_special: where `plain` in float64 is right: zeros, infinities, NaN and the like.
    smallest, largest: magnitudes of nonzero operands for which `pair` is right.
    addends: the two numbers whose signs decide the sign of an exact zero; None for no such rule.
    """

    plain: Callable[..., Array]
    plain_rounds_once: bool
    pair: Callable[..., Pair]
    narrow_pair: Callable[..., Pair]
    fraction: Callable[..., Fraction] | None
    is_special: Callable[..., Array]
    smallest: float
    largest: float
    addends: Callable[..., Pair] | None


def _any_zero_or_not_finite(*operands: Array) -> Array:
    found = np.zeros((), np.bool_)
    for operand in operands:
        found = found | ~np.isfinite(operand) | (operand == 0)
    return found


def _fma_is_special(lhs: Array, rhs: Array, acc: Array) -> Array:
    return _any_zero_or_not_finite(lhs, rhs) | ~np.isfinite(acc)


def _fma_twice_rounded(lhs: Array, rhs: Array, acc: Array) -> Array:
    product = lhs * rhs
    # A product of numbers is a number, though it may overflow here: it leaves an infinite addend
    # alone.
    overflowed = np.isinf(product) & np.isfinite(lhs) & np.isfinite(rhs) & np.isinf(acc)
    return np.where(overflowed, acc, product + acc)


def _div_fraction(lhs: Fraction, rhs: Fraction) -> Fraction:
    return lhs / rhs


def _fma_fraction(lhs: Fraction, rhs: Fraction, acc: Fraction) -> Fraction:
    return lhs * rhs + acc


def _fma_addends(lhs: Array, rhs: Array, acc: Array) -> Pair:
    return np.copysign(1.0, lhs) * np.copysign(1.0, rhs), acc


def _add_addends(lhs: Array, rhs: Array) -> Pair:
    return lhs, rhs


def _sqrt_is_special(values: Array) -> Array:
    return ~(np.isfinite(values) & (values > 0))


_ADD = _Operation(
    plain=np.add,
    plain_rounds_once=True,
    pair=exact.two_sum,
    narrow_pair=exact.two_sum,
    fraction=operator.add,
    is_special=_any_zero_or_not_finite,
    smallest=0.0,
    largest=2.0**1020,
    addends=_add_addends,
)
_MUL = _Operation(
    plain=np.multiply,
    plain_rounds_once=True,
    pair=exact.two_product,
    narrow_pair=exact.two_product,
    fraction=operator.mul,
    is_special=_any_zero_or_not_finite,
    smallest=2.0**-400,
    largest=2.0**400,
    addends=None,
)
_DIV = _Operation(
    plain=np.divide,
    plain_rounds_once=True,
    pair=exact.quotient,
    narrow_pair=exact.quotient,
    fraction=_div_fraction,
    is_special=_any_zero_or_not_finite,
    smallest=2.0**-400,
    largest=2.0**400,
    addends=None,
)
_FMA = _Operation(
    plain=_fma_twice_rounded,
    plain_rounds_once=False,
    pair=exact.fma,
    narrow_pair=exact.narrow_fma,
    fraction=_fma_fraction,
    is_special=_fma_is_special,
    smallest=2.0**-400,
    largest=2.0**400,
    addends=_fma_addends,
)
_SQRT = _Operation(
    plain=np.sqrt,
    plain_rounds_once=True,
    pair=exact.square_root,
    narrow_pair=exact.square_root,
    fraction=None,
    is_special=_sqrt_is_special,
    smallest=0.0,
    largest=F64.max_finite,
    addends=None,
)


def add(
    lhs: Array,
    rhs: Array,
    dtype: DType,
    rounding: Rounding = "nearest_even",
    flush_to_zero: bool = False,
) -> Array:
    """Return lhs + rhs. An exact zero of opposite addends is +0, but -0 in negative_inf."""
    return _compute(_ADD, (lhs, rhs), dtype, rounding, flush_to_zero)


def sub(
    lhs: Array,
    rhs: Array,
    dtype: DType,
    rounding: Rounding = "nearest_even",
    flush_to_zero: bool = False,
) -> Array:
    """Return lhs - rhs, as lhs + (-rhs)."""
    return _compute(_ADD, (lhs, np.negative(rhs)), dtype, rounding, flush_to_zero)


def mul(
    lhs: Array,
    rhs: Array,
    dtype: DType,
    rounding: Rounding = "nearest_even",
    flush_to_zero: bool = False,
) -> Array:
    """Return lhs * rhs."""
    return _compute(_MUL, (lhs, rhs), dtype, rounding, flush_to_zero)


def div(
    lhs: Array,
    rhs: Array,
    dtype: DType,
    rounding: Rounding = "nearest_even",
    flush_to_zero: bool = False,
) -> Array:
    """Return lhs / rhs."""
    return _compute(_DIV, (lhs, rhs), dtype, rounding, flush_to_zero)


def sqrt(
    values: Array,
    dtype: DType,
    rounding: Rounding = "nearest_even",
    flush_to_zero: bool = False,
) -> Array:
    """Return the square root: -0 of -0, NaN of numbers below zero."""
    return _compute(_SQRT, (values,), dtype, rounding, flush_to_zero)


def fma(
    lhs: Array,
    rhs: Array,
    acc: Array,
    dtype: DType,
    rounding: Rounding = "nearest_even",
    flush_to_zero: bool = False,
) -> Array:
    """Return lhs * rhs + acc with one rounding. The sign of an exact zero is that of `add`."""
    return _compute(_FMA, (lhs, rhs, acc), dtype, rounding, flush_to_zero)


@np.errstate(all="ignore")
def rsqrt(values: Array, dtype: DType, flush_to_zero: bool = False) -> Array:
    """Return 1 / sqrt(values) to nearest even: infinity of a zero's sign at zero, NaN below."""
    (values,) = _prepare((values,), dtype, flush_to_zero)
    wide = values.astype(np.float64)
    special = _sqrt_is_special(wide)
    safe = np.where(special, 1.0, wide)
    if dtype is F64:
        root = _rsqrt_wide(safe)
    else:
        root = round_to_odd(*exact.reciprocal_root(safe))
    result = convert(np.where(special, 1.0 / np.sqrt(wide), root), F64, dtype)
    return flush_subnormals(result, dtype) if flush_to_zero else result


def _rsqrt_wide(values: Array) -> Array:
    result, residual = exact.reciprocal_root(values)
    result = np.array(result)
    # The exact root is result * (1 + residual / 2): near half a unit in the last place, where
    # `result` might be the wrong neighbour, an integer square root with 120 bits decides.
    offset = np.abs(result * residual) / np.spacing(result)
    for index in np.flatnonzero(np.abs(offset - 1.0) < 2.0**-30):
        square = 1 / Fraction(float(values.flat[index]))
        scaled = square * 2**1400
        root = isqrt(int(scaled))
        below = 2 * root + (root * root != scaled)
        result.flat[index] = round_fraction(Fraction(below, 2**701), "nearest_even")
    return result


def flush_subnormals(values: Array, dtype: DType) -> Array:
    """Return the values with subnormal numbers replaced by zeros of the same sign."""
    values = np.asarray(values, dtype.carrier)
    subnormal = np.abs(values) < dtype.carrier.type(dtype.min_normal)
    return np.where(subnormal, np.copysign(dtype.carrier.type(0), values), values)


def _prepare(operands: tuple[Array, ...], dtype: DType, flush_to_zero: bool) -> tuple[Array, ...]:
    if flush_to_zero and dtype is not F32:
        raise ValueError(f"flush_to_zero exists for f32 only, not for {dtype}")
    arrays = tuple(np.asarray(operand, dtype.carrier) for operand in operands)
    return tuple(flush_subnormals(a, dtype) for a in arrays) if flush_to_zero else arrays


@np.errstate(all="ignore")
def _compute(
    op: _Operation,
    operands: tuple[Array, ...],
    dtype: DType,
    rounding: Rounding,
    flush_to_zero: bool,
) -> Array:
    if rounding == "nearest_away":
        raise ValueError("arithmetic does not round to nearest away")
    operands = _prepare(operands, dtype, flush_to_zero)
    if rounding == "nearest_even" and op.plain_rounds_once and dtype is not TF32:
        result = op.plain(*operands)
        if dtype is not F32 and dtype is not F64:
            result = convert(result, F32, dtype)
    elif rounding == "nearest_even" and dtype is not F64:
        result = _round_midpoints(op, operands, dtype)
    elif dtype is F64:
        result = _round_wide(op, operands, rounding)
    else:
        result = convert(_round_odd(op, operands, rounding), F64, dtype, rounding)
    result = canonical(np.asarray(result))
    return flush_subnormals(result, dtype) if flush_to_zero else result


def _round_midpoints(op: _Operation, operands: tuple[Array, ...], dtype: DType) -> Array:
    """Round float64 results to nearest even, in two steps where that is safe.

    Two steps go wrong only where the first lands on the middle of two narrow numbers; below twice
    the least normal number the middles lie elsewhere, so all of those are done again too.
    """
    wide = np.asarray(op.plain(*(operand.astype(np.float64) for operand in operands)))
    result = np.asarray(convert(wide, F64, dtype))
    dropped = 52 - dtype.mantissa_bits
    middle = (wide.view(np.int64) & ((1 << dropped) - 1)) == 1 << (dropped - 1)
    doubtful = middle | ((np.abs(wide) < 2 * dtype.min_normal) & (wide != 0))
    if not doubtful.any():
        return result
    chosen = tuple(np.broadcast_to(operand, wide.shape)[doubtful] for operand in operands)
    result[doubtful] = convert(_round_odd(op, chosen, "nearest_even"), F64, dtype)
    return result


def _round_odd(op: _Operation, operands: tuple[Array, ...], rounding: Rounding) -> Array:
    """Return the float64 that rounds to any narrower format as the exact result does."""
    wide = tuple(operand.astype(np.float64) for operand in operands)
    result, error = op.narrow_pair(*wide)
    rounded = np.where(op.is_special(*wide), op.plain(*wide), round_to_odd(result, error))
    return _sign_zeros(op, wide, rounded, rounding)


def _round_wide(op: _Operation, operands: tuple[Array, ...], rounding: Rounding) -> Array:
    result, error = op.pair(*operands)
    special = op.is_special(*operands)
    rounded = np.where(special, op.plain(*operands), round_pair(result, error, rounding))
    rounded = _sign_zeros(op, operands, rounded, rounding)
    if op.fraction is None:
        return rounded
    hard = np.zeros((), np.bool_)
    for operand in operands:
        magnitude = np.abs(operand)
        outside = (magnitude < op.smallest) | (magnitude > op.largest)
        hard = hard | (outside & (operand != 0))
    hard = np.asarray(hard & ~special)
    if not hard.any():
        return rounded
    every = np.broadcast_arrays(*operands)
    for index in np.flatnonzero(np.broadcast_to(hard, rounded.shape)):
        value = op.fraction(*(Fraction(float(operand.flat[index])) for operand in every))
        rounded.flat[index] = round_fraction(value, rounding)
    return rounded


def _sign_zeros(
    op: _Operation,
    operands: tuple[Array, ...],
    rounded: Array,
    rounding: Rounding,
) -> Array:
    """Make exact zeros -0 in negative_inf, unless both addends are positive (IEEE 754, 6.3)."""
    if op.addends is None or rounding != "negative_inf":
        return rounded
    first, second = op.addends(*operands)
    negative = np.signbit(first) | np.signbit(second)
    return np.where((rounded == 0) & negative, -0.0, rounded)
