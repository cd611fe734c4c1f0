"""Words of meanings: integer arithmetic, and masks of where it is undefined."""

from __future__ import annotations

from collections.abc import Callable
from typing import cast

import numpy as np

from reftile.interp.values import Array, Mask
from reftile.ir import integers
from reftile.ir.dtypes import DType
from reftile.ir.integers import IntRounding, Predicate


def add_int(lhs: Array, rhs: Array, dtype: DType) -> Array:
    """Return lhs + rhs, wrapping."""
    # From 8 bits on NumPy's integers are the carriers and wrap by themselves.
    return np.add(lhs, rhs) if dtype.bits >= 8 else integers.add_int(lhs, rhs, dtype)


def sub_int(lhs: Array, rhs: Array, dtype: DType) -> Array:
    """Return lhs - rhs, wrapping."""
    return np.subtract(lhs, rhs) if dtype.bits >= 8 else integers.sub_int(lhs, rhs, dtype)


def mul_int(lhs: Array, rhs: Array, dtype: DType) -> Array:
    """The low half of lhs * rhs."""
    return np.multiply(lhs, rhs) if dtype.bits >= 8 else integers.mul_int(lhs, rhs, dtype)


def mulhi_int(x: Array, y: Array, dtype: DType) -> Array:
    """The high half of the unsigned product."""
    return integers.mulhi_int(x, y, dtype, signed=False)


def neg_int(source: Array, dtype: DType) -> Array:
    """0 - source, wrapping."""
    return np.negative(source) if dtype.bits >= 8 else integers.neg_int(source, dtype)


def abs_int(source: Array, dtype: DType) -> Array:
    """The magnitude of a signed number."""
    return integers.abs_int(source, dtype)


def div_int(lhs: Array, rhs: Array, dtype: DType, signedness: str, rounding: str) -> Array:
    """The quotient; 0 where the divisor is, wrapping where it does not fit."""
    if not 8 <= dtype.bits <= 32:
        mode = cast("IntRounding", rounding)
        return integers.div_int(lhs, rhs, dtype, signedness == "signed", mode)[0]
    if signedness == "unsigned":
        lhs, rhs = lhs.view(dtype.storage), rhs.view(dtype.storage)
    # A quotient of 32 bit integers is at least 2**-32 from any integer that it is not, relative
    # to 1 / rhs: f64 never rounds it to one.
    quotient = _ROUND[rounding](np.true_divide(lhs, rhs, dtype=np.float64))
    zero = rhs == 0
    if zero.any():
        quotient = np.where(zero, 0.0, quotient)
    return quotient.astype(np.int64).astype(dtype.carrier)


_ROUND = {"zero": np.trunc, "negative_inf": np.floor, "positive_inf": np.ceil}


def rem_int(lhs: Array, rhs: Array, dtype: DType, signedness: str) -> Array:
    """The remainder of the division towards zero; `lhs` where the divisor is zero."""
    quotient = div_int(lhs, rhs, dtype, signedness, "zero")
    return sub_int(lhs, mul_int(quotient, rhs, dtype), dtype)


def is_zero(source: Array) -> Mask:
    """Where a number is zero."""
    return np.asarray(source == 0)


def quotient_overflows(lhs: Array, rhs: Array, dtype: DType) -> Mask:
    """Where the signed quotient does not fit: the least number divided by -1."""
    if dtype.bits == 1:
        return np.asarray(lhs & rhs)
    least = dtype.carrier.type(dtype.signed_min)
    return np.asarray((rhs == -1) & (lhs == least))


def max_int(lhs: Array, rhs: Array, dtype: DType, signedness: str) -> Array:
    """The greater."""
    return _extreme(np.maximum, lhs, rhs, dtype, signedness)


def min_int(lhs: Array, rhs: Array, dtype: DType, signedness: str) -> Array:
    """The lesser."""
    return _extreme(np.minimum, lhs, rhs, dtype, signedness)


def _extreme(choose: np.ufunc, lhs: Array, rhs: Array, dtype: DType, signedness: str) -> Array:
    if dtype.bits == 1:
        # Read as signed, True is -1 and the lesser.
        return ~choose(~lhs, ~rhs) if signedness == "signed" else choose(lhs, rhs)
    if signedness == "signed":
        return choose(lhs, rhs)
    return np.asarray(choose(lhs.view(dtype.storage), rhs.view(dtype.storage))).view(dtype.carrier)


_PREDICATES: dict[str, Predicate] = {
    "equal": "eq",
    "not_equal": "ne",
    "less_than": "lt",
    "less_than_or_equal": "le",
    "greater_than": "gt",
    "greater_than_or_equal": "ge",
}


def compare_int(lhs: Array, rhs: Array, dtype: DType, predicate: str, signedness: str) -> Array:
    """Where the comparison holds."""
    return integers.compare_int(lhs, rhs, dtype, _PREDICATES[predicate], signedness == "signed")


def and_int(lhs: Array, rhs: Array) -> Array:
    """Bits set in both."""
    return np.bitwise_and(lhs, rhs)


def or_int(lhs: Array, rhs: Array) -> Array:
    """Bits set in one or both."""
    return np.bitwise_or(lhs, rhs)


def xor_int(lhs: Array, rhs: Array) -> Array:
    """Bits set in one only."""
    return np.bitwise_xor(lhs, rhs)


def shl_int(lhs: Array, rhs: Array, dtype: DType) -> Array:
    """Bits moved up by an unsigned amount."""
    if _in_range(rhs, dtype):
        return np.left_shift(lhs, rhs)
    return integers.shl_int(lhs, rhs, dtype)


def shr_int(lhs: Array, rhs: Array, dtype: DType, signedness: str) -> Array:
    """Bits moved down by an unsigned amount."""
    if _in_range(rhs, dtype):
        if signedness == "signed":
            return np.right_shift(lhs, rhs)
        shifted = np.right_shift(lhs.view(dtype.storage), rhs.view(dtype.storage))
        return np.asarray(shifted).view(dtype.carrier)
    return integers.shr_int(lhs, rhs, dtype, signedness == "signed")


def _in_range(amounts: Array, dtype: DType) -> bool:
    """Whether every amount is one that NumPy shifts by as it stands."""
    return dtype.bits >= 8 and bool(amounts.min() >= 0 and amounts.max() < dtype.bits)


def shift_out_of_range(rhs: Array, dtype: DType) -> Mask | bool:
    """Where a shift amount is not below the width."""
    return False if _in_range(rhs, dtype) else integers.shift_out_of_range(rhs, dtype)


def add_overflows(lhs: Array, rhs: Array, dtype: DType, overflow: str) -> Mask:
    """Where the sum breaks the promise."""
    return _broken(_add_overflows, overflow, lhs, rhs, dtype)


def sub_overflows(lhs: Array, rhs: Array, dtype: DType, overflow: str) -> Mask:
    """Where the difference breaks the promise."""
    return _broken(_sub_overflows, overflow, lhs, rhs, dtype)


def mul_overflows(lhs: Array, rhs: Array, dtype: DType, overflow: str) -> Mask:
    """Where the product breaks the promise."""
    return _broken(integers.mul_overflows, overflow, lhs, rhs, dtype)


def neg_overflows(source: Array, dtype: DType, overflow: str) -> Mask:
    """Where the opposite breaks the promise."""
    return _broken(integers.neg_overflows, overflow, source, dtype)


def shl_overflows(lhs: Array, rhs: Array, dtype: DType, overflow: str) -> Mask:
    """Where the shifted number breaks the promise, by an amount in range."""
    broken = _broken(integers.shl_overflows, overflow, lhs, rhs, dtype)
    return np.asarray(broken & ~integers.shift_out_of_range(rhs, dtype))


def _add_overflows(lhs: Array, rhs: Array, dtype: DType, signed: bool) -> Array:
    if dtype.bits < 8:
        return integers.add_overflows(lhs, rhs, dtype, signed)
    total = np.asarray(np.add(lhs, rhs))
    if signed:
        # Signed sums wrap when both addends have the other sign.
        return ((lhs ^ total) & (rhs ^ total)) < 0
    return total.view(dtype.storage) < lhs.view(dtype.storage)


def _sub_overflows(lhs: Array, rhs: Array, dtype: DType, signed: bool) -> Array:
    if dtype.bits < 8:
        return integers.sub_overflows(lhs, rhs, dtype, signed)
    if signed:
        return ((lhs ^ rhs) & (lhs ^ np.subtract(lhs, rhs))) < 0
    return lhs.view(dtype.storage) < rhs.view(dtype.storage)


def _broken(overflows: Callable[..., Array], overflow: str, *operands: object) -> Mask:
    """Where nsw (the signed reading), nuw (the unsigned one) or nw (both) is broken."""
    signed = overflow in ("nsw", "nw") and overflows(*operands, True)
    unsigned = overflow in ("nuw", "nw") and overflows(*operands, False)
    return np.asarray(signed | unsigned)
