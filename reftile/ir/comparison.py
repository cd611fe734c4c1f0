"""Minimum, maximum and comparisons of floats, as IEEE 754-2019 has them."""

from __future__ import annotations

import numpy as np

from reftile.ir.arithmetic import flush_subnormals
from reftile.ir.dtypes import F32, DType
from reftile.ir.integers import Predicate
from reftile.ir.numbers import canonical
from reftile.ir.rounding import Array


def maximum(
    lhs: Array,
    rhs: Array,
    dtype: DType,
    propagate_nan: bool = False,
    flush_to_zero: bool = False,
) -> Array:
    """Return the greater number, -0 counting as less than +0.

    One NaN gives the other operand (maximumNumber), or NaN with `propagate_nan` (maximum).
    flush_to_zero (f32 only) turns subnormals into zeros of the same sign first.
    """
    lhs, rhs = _prepare(lhs, rhs, dtype, flush_to_zero)
    # Equal numbers differ at most as zeros do, and then the one without a sign is greater.
    takes_lhs = (lhs > rhs) | ((lhs == rhs) & ~np.signbit(lhs))
    return _with_nans(lhs, rhs, takes_lhs, propagate_nan)


def minimum(
    lhs: Array,
    rhs: Array,
    dtype: DType,
    propagate_nan: bool = False,
    flush_to_zero: bool = False,
) -> Array:
    """Return the lesser number, -0 counting as less than +0; see `maximum`."""
    lhs, rhs = _prepare(lhs, rhs, dtype, flush_to_zero)
    takes_lhs = (lhs < rhs) | ((lhs == rhs) & np.signbit(lhs))
    return _with_nans(lhs, rhs, takes_lhs, propagate_nan)


def _prepare(lhs: Array, rhs: Array, dtype: DType, flush_to_zero: bool) -> tuple[Array, Array]:
    if flush_to_zero and dtype is not F32:
        raise ValueError(f"flush_to_zero exists for f32 only, not for {dtype}")
    lhs, rhs = np.asarray(lhs, dtype.carrier), np.asarray(rhs, dtype.carrier)
    if flush_to_zero:
        return flush_subnormals(lhs, dtype), flush_subnormals(rhs, dtype)
    return lhs, rhs


def _with_nans(lhs: Array, rhs: Array, takes_lhs: Array, propagate_nan: bool) -> Array:
    # Comparisons with NaN are false, so rhs is taken there: right when lhs is the NaN.
    if propagate_nan:
        takes_lhs = takes_lhs | np.isnan(lhs)
    else:
        takes_lhs = takes_lhs | np.isnan(rhs)
    return canonical(np.where(takes_lhs, lhs, rhs))


def compare(lhs: Array, rhs: Array, predicate: Predicate, ordered: bool = True) -> Array:
    """Return where the comparison holds; with a NaN operand it is `not ordered`.

    So "ne" ordered is false of NaN, unlike Python's `!=`, and "ne" unordered is true.
    """
    lhs, rhs = np.asarray(lhs), np.asarray(rhs)
    unordered = np.isnan(lhs) | np.isnan(rhs)
    match predicate:
        case "eq":
            holds = lhs == rhs
        case "ne":
            holds = lhs != rhs
        case "lt":
            holds = lhs < rhs
        case "le":
            holds = lhs <= rhs
        case "gt":
            holds = lhs > rhs
        case "ge":
            holds = lhs >= rhs
    return np.asarray(holds & ~unordered if ordered else holds | unordered)


def total_order_key(values: Array) -> Array:
    """Return signed integers that order carrier floats as IEEE 754 totalOrder does.

    -NaN < -infinity < ... < -0 < +0 < ... < infinity < NaN; equal keys mean equal bits.
    Neighbouring numbers of the carrier have neighbouring keys, so a difference of keys counts
    units in the last place (with one more between -0 and +0).
    """
    values = np.asarray(values)
    integer = np.dtype(f"int{values.dtype.itemsize * 8}")
    bits = values.view(integer)
    # Negative numbers have the sign bit, then grow with their magnitude; flipping reverses that.
    return np.asarray(np.where(bits < 0, bits ^ integer.type(np.iinfo(integer).max), bits))
