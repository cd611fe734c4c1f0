"""Integer arithmetic on carriers: wrapping results, and masks of where a promise was broken.

Carriers are signed NumPy integers (bool for i1, whose set bit is -1 when read as signed; int8
holding the sign-extended value for i4). Unsigned readings go through uint64, never through floats.
Values are always defined: the operation's own result modulo 2**bits. What a program may not do
(overflow under nsw or nuw, dividing by zero, shifting too far) is told by a separate mask, computed
only when asked for.
"""

from __future__ import annotations

from typing import Any, Literal, TypeAlias

import numpy as np
from numpy.typing import NDArray

from reftile.ir.dtypes import I1, I4, DType

Array: TypeAlias = NDArray[Any]

IntRounding = Literal["zero", "negative_inf", "positive_inf"]
Predicate = Literal["eq", "ne", "lt", "le", "gt", "ge"]


@np.errstate(all="ignore")
def wrap(values: Array, dtype: DType) -> Array:
    """Return NumPy integers of any width reduced modulo 2**bits into the carrier."""
    values = np.asarray(values)
    if dtype is I1:
        return np.asarray((values & values.dtype.type(1)) != 0)
    if dtype is I4:
        nibble = values.astype(np.int8) & np.int8(0xF)
        return np.asarray((nibble ^ np.int8(8)) - np.int8(8))
    return values.astype(dtype.carrier)


def to_signed(values: Array, dtype: DType) -> Array:
    """Return the values as int64, read as signed."""
    wide = np.asarray(values, dtype.carrier).astype(np.int64)
    return np.asarray(-wide) if dtype is I1 else wide


def to_unsigned(values: Array, dtype: DType) -> Array:
    """Return the values as uint64, read as unsigned."""
    wide = np.asarray(values, dtype.carrier).astype(np.int64).view(np.uint64)
    return wide if dtype.bits == 64 else np.asarray(wide & np.uint64(dtype.unsigned_max))


def to_wide(values: Array, dtype: DType, signed: bool) -> Array:
    """Return the values as int64 read as signed, or as uint64 read as unsigned."""
    return to_signed(values, dtype) if signed else to_unsigned(values, dtype)


def extend_int(values: Array, source: DType, target: DType, signed: bool) -> Array:
    """Return the values sign- or zero-extended to a wider type."""
    return wrap(to_wide(values, source, signed), target)


def truncate_int(values: Array, source: DType, target: DType) -> Array:
    """Return the low bits of the values in a narrower type."""
    return wrap(np.asarray(values, source.carrier), target)


def truncate_overflows(values: Array, source: DType, target: DType, signed: bool) -> Array:
    """Return where truncation loses the value read as signed (nsw) or as unsigned (nuw)."""
    kept = extend_int(truncate_int(values, source, target), target, source, signed)
    return np.asarray(kept != np.asarray(values, source.carrier))


@np.errstate(all="ignore")
def add_int(lhs: Array, rhs: Array, dtype: DType) -> Array:
    """Return lhs + rhs."""
    # NumPy adds bools with `or`; one bit adds with `xor`.
    return np.asarray(lhs ^ rhs) if dtype is I1 else wrap(lhs + rhs, dtype)


@np.errstate(all="ignore")
def sub_int(lhs: Array, rhs: Array, dtype: DType) -> Array:
    """Return lhs - rhs."""
    return np.asarray(lhs ^ rhs) if dtype is I1 else wrap(lhs - rhs, dtype)


@np.errstate(all="ignore")
def mul_int(lhs: Array, rhs: Array, dtype: DType) -> Array:
    """Return the low bits of lhs * rhs."""
    return wrap(lhs * rhs, dtype)


@np.errstate(all="ignore")
def neg_int(values: Array, dtype: DType) -> Array:
    """Return 0 - values."""
    return np.asarray(values) if dtype is I1 else wrap(-values, dtype)


def abs_int(values: Array, dtype: DType) -> Array:
    """Return |values|, read as signed; of the least value, its bits (an unsigned magnitude)."""
    return np.where(to_signed(values, dtype) < 0, neg_int(values, dtype), values)


@np.errstate(all="ignore")
def add_overflows(lhs: Array, rhs: Array, dtype: DType, signed: bool) -> Array:
    """Return where lhs + rhs leaves the signed (nsw) or unsigned (nuw) range."""
    left, right = to_wide(lhs, dtype, signed), to_wide(rhs, dtype, signed)
    total = left + right
    if dtype.bits < 64:
        return _outside(total, dtype, signed)
    return np.asarray(((left ^ total) & (right ^ total)) < 0 if signed else total < left)


@np.errstate(all="ignore")
def sub_overflows(lhs: Array, rhs: Array, dtype: DType, signed: bool) -> Array:
    """Return where lhs - rhs leaves the signed (nsw) or unsigned (nuw) range."""
    left, right = to_wide(lhs, dtype, signed), to_wide(rhs, dtype, signed)
    if not signed:
        return np.asarray(left < right)
    difference = left - right
    if dtype.bits < 64:
        return _outside(difference, dtype, signed)
    return np.asarray(((left ^ right) & (left ^ difference)) < 0)


@np.errstate(all="ignore")
def mul_overflows(lhs: Array, rhs: Array, dtype: DType, signed: bool) -> Array:
    """Return where lhs * rhs leaves the signed (nsw) or unsigned (nuw) range."""
    if dtype.bits < 64:
        product = to_wide(lhs, dtype, signed) * to_wide(rhs, dtype, signed)
        return _outside(product, dtype, signed)
    high = mulhi_int(lhs, rhs, dtype, signed)
    # The high half must be what extending the low half gives.
    return np.asarray(high != (mul_int(lhs, rhs, dtype) >> 63) if signed else high != 0)


def neg_overflows(values: Array, dtype: DType, signed: bool) -> Array:
    """Return where 0 - values leaves the signed (nsw) or unsigned (nuw) range."""
    wide = to_wide(values, dtype, signed)
    return np.asarray(wide == dtype.signed_min if signed else wide != 0)


def _outside(values: Array, dtype: DType, signed: bool) -> Array:
    if signed:
        return np.asarray((values < dtype.signed_min) | (values > dtype.signed_max))
    return np.asarray(values > np.uint64(dtype.unsigned_max))


def mulhi_int(lhs: Array, rhs: Array, dtype: DType, signed: bool = False) -> Array:
    """Return the high half of the double-width product."""
    left, right = to_wide(lhs, dtype, signed), to_wide(rhs, dtype, signed)
    if dtype.bits < 64:
        return wrap((left * right) >> left.dtype.type(dtype.bits), dtype)
    high = _high_half(left.view(np.uint64), right.view(np.uint64)).view(np.int64)
    if signed:
        # A negative factor reads 2**64 too large, which adds the other factor to the high half.
        with np.errstate(all="ignore"):
            high = high - np.where(left < 0, right, 0) - np.where(right < 0, left, 0)
    return np.asarray(high)


@np.errstate(all="ignore")
def _high_half(left: Array, right: Array) -> Array:
    """Return the upper 64 bits of uint64 products, by schoolbook multiplication of halves."""
    half, mask = np.uint64(32), np.uint64(0xFFFFFFFF)
    left_high, left_low = left >> half, left & mask
    right_high, right_low = right >> half, right & mask
    middle = left_high * right_low + ((left_low * right_low) >> half)
    other = left_low * right_high + (middle & mask)
    return np.asarray(left_high * right_high + (middle >> half) + (other >> half))


def shift_out_of_range(amounts: Array, dtype: DType) -> Array:
    """Return where a shift amount, read as unsigned, is not below the width."""
    return np.asarray(to_unsigned(amounts, dtype) >= np.uint64(dtype.bits))


@np.errstate(all="ignore")
def shl_int(values: Array, amounts: Array, dtype: DType) -> Array:
    """Return values << amounts; an amount out of range shifts every bit out."""
    count = to_unsigned(amounts, dtype)
    shifted = to_unsigned(values, dtype) << np.minimum(count, np.uint64(63))
    return wrap(np.where(count < np.uint64(dtype.bits), shifted, np.uint64(0)), dtype)


@np.errstate(all="ignore")
def shr_int(values: Array, amounts: Array, dtype: DType, signed: bool) -> Array:
    """Return values >> amounts, arithmetic when signed; out of range leaves the sign or 0."""
    wide = to_wide(values, dtype, signed)
    count = to_unsigned(amounts, dtype)
    shifted = wide >> np.minimum(count, np.uint64(63)).astype(wide.dtype)
    if not signed:
        shifted = np.where(count < np.uint64(dtype.bits), shifted, np.uint64(0))
    return wrap(shifted, dtype)


def shl_overflows(values: Array, amounts: Array, dtype: DType, signed: bool) -> Array:
    """Return where values << amounts loses bits, or (signed) bits unlike the result's sign.

    An amount out of range always counts.
    """
    back = shr_int(shl_int(values, amounts, dtype), amounts, dtype, signed)
    return np.asarray((back != values) | shift_out_of_range(amounts, dtype))


@np.errstate(all="ignore")
def div_int(
    lhs: Array, rhs: Array, dtype: DType, signed: bool, rounding: IntRounding = "zero"
) -> tuple[Array, Array]:
    """Return (quotient, invalid); invalid where rhs is 0 or a signed quotient does not fit.

    The quotient is 0 where rhs is 0, and wraps where it does not fit.
    """
    left, right, by_zero = _division_operands(lhs, rhs, dtype, signed)
    if not signed:
        quotient = left // right
        if rounding == "positive_inf":
            quotient = quotient + (quotient * right != left)
        return wrap(np.where(by_zero, np.uint64(0), quotient), dtype), by_zero
    unfit = np.asarray((left == dtype.signed_min) & (right == -1))
    # NumPy's own answer to -2**63 // -1 is not documented; dividing by 1 wraps to the same bits.
    divisor = np.where(unfit, 1, right)
    quotient = left // divisor
    inexact = quotient * divisor != left
    if rounding == "positive_inf":
        quotient = quotient + inexact
    elif rounding == "zero":
        quotient = quotient + (inexact & ((left < 0) != (divisor < 0)))
    return wrap(np.where(by_zero, 0, quotient), dtype), np.asarray(by_zero | unfit)


@np.errstate(all="ignore")
def rem_int(lhs: Array, rhs: Array, dtype: DType, signed: bool) -> tuple[Array, Array]:
    """Return (remainder of division towards zero, invalid); invalid as in `div_int`.

    The remainder has the sign of lhs; it is 0 where the division is invalid.
    """
    quotient, invalid = div_int(lhs, rhs, dtype, signed)
    remainder = sub_int(lhs, mul_int(quotient, rhs, dtype), dtype)
    return np.where(invalid, dtype.carrier.type(0), remainder), invalid


def _division_operands(
    lhs: Array, rhs: Array, dtype: DType, signed: bool
) -> tuple[Array, Array, Array]:
    left, right = np.broadcast_arrays(to_wide(lhs, dtype, signed), to_wide(rhs, dtype, signed))
    by_zero = np.asarray(right == 0)
    return left, np.where(by_zero, right.dtype.type(1), right), by_zero


def compare_int(lhs: Array, rhs: Array, dtype: DType, predicate: Predicate, signed: bool) -> Array:
    """Return where the comparison holds."""
    left, right = _comparable(lhs, dtype, signed), _comparable(rhs, dtype, signed)
    match predicate:
        case "eq":
            return np.asarray(left == right)
        case "ne":
            return np.asarray(left != right)
        case "lt":
            return np.asarray(left < right)
        case "le":
            return np.asarray(left <= right)
        case "gt":
            return np.asarray(left > right)
        case "ge":
            return np.asarray(left >= right)


def _comparable(values: Array, dtype: DType, signed: bool) -> Array:
    """Return values in a NumPy dtype whose own order is the asked-for one, cheaply."""
    values = np.asarray(values, dtype.carrier)
    if dtype is I1:
        return ~values if signed else values
    return values if signed else values.view(dtype.storage)


def max_int(lhs: Array, rhs: Array, dtype: DType, signed: bool) -> Array:
    """Return the greater value, read as signed or unsigned."""
    return np.where(compare_int(lhs, rhs, dtype, "ge", signed), lhs, rhs)


def min_int(lhs: Array, rhs: Array, dtype: DType, signed: bool) -> Array:
    """Return the lesser value, read as signed or unsigned."""
    return np.where(compare_int(lhs, rhs, dtype, "le", signed), lhs, rhs)
