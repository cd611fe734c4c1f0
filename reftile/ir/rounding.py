"""Rounding a float32 or float64 once, into the codes of any narrower format.

One integer algorithm serves every format. A finite number is significand * 2**exponent; dropping
the low bits of the significand leaves the target's, and the target's code is its exponent field
plus that shortened significand, so a carry out of the significand moves the exponent by itself.

What becomes of numbers that a format does not have
    too large, or an infinity: the format's infinity, or NaN where it has none, or max_finite where
        it has neither (f4e2m1). A finite number that rounds *towards zero* past max_finite, in mode
        zero or in the directed mode that points that way, gives max_finite, as in IEEE 754.
        With `saturate` both give max_finite.
    NaN: the canonical NaN (sign clear, only the quiet bit of the payload set; all ones for FN
        formats; the code of -0 for FNUZ), saturating or not; +max_finite for f4e2m1, which has no
        NaN (as PTX `cvt.satfinite` has it).
    -0: +0 in the FNUZ formats.
    f8e8m0: has neither sign nor zero. The magnitude is rounded, positive_inf upwards, negative_inf
        downwards, halfway cases upwards in both nearest modes (IEEE 754 for one digit of
        precision); results below 2**-127, zero among them, become 2**-127. Source: CUDA Math API,
        "__nv_cvt_float_to_e8m0".
"""

from __future__ import annotations

from typing import Any, Literal, TypeAlias

import numpy as np
from numpy.typing import NDArray

from reftile.ir.dtypes import DType

Array: TypeAlias = NDArray[Any]

Rounding = Literal["nearest_even", "zero", "negative_inf", "positive_inf", "nearest_away"]

ROUNDINGS: tuple[Rounding, ...] = (
    "nearest_even",
    "zero",
    "negative_inf",
    "positive_inf",
    "nearest_away",
)


def nan_code(dtype: DType) -> int:
    """Return the code of the canonical NaN, in the low bits; of max_finite where there is none."""
    match dtype.nan:
        case "ieee":
            return dtype.max_finite_code + 1 + (1 << (dtype.mantissa_bits - 1))
        case "all_ones":
            return dtype.max_finite_code + 1
        case "negative_zero":
            return dtype.max_finite_code + 1
        case "none":
            return dtype.max_finite_code


@np.errstate(all="ignore")
def round_to_code(values: Array, target: DType, rounding: Rounding, saturate: bool) -> Array:
    """Return the codes in `target`, as its storage dtype, of float32 or float64 `values`.

    `target` must have fewer mantissa bits than `values`. tf32 codes lie in the upper 19 bits.
    """
    if not target.has_zero:
        return _round_to_scale(values, target, rounding, saturate)
    integer = np.dtype(np.int64 if values.dtype.itemsize == 8 else np.int32)
    fraction_bits, bias = (52, 1023) if values.dtype.itemsize == 8 else (23, 127)
    infinity = ((2 * bias + 1) << fraction_bits) + integer.type(0)

    bits = values.view(integer)
    magnitude = bits & np.iinfo(integer).max
    negative = bits < 0
    if target.exponent_bits == (11 if integer.itemsize == 8 else 8):
        # Same exponents, subnormals included: the magnitude itself is exponent plus significand.
        drop = np.full((), fraction_bits - target.mantissa_bits, integer)
        code = _shift_right(magnitude, drop, rounding, negative)
    else:
        exponent = magnitude >> fraction_bits
        hidden = (exponent > 0).astype(integer) << fraction_bits
        significand = (magnitude & ((1 << fraction_bits) - 1)) | hidden
        field = np.maximum(exponent, 1) - (bias - target.bias)
        # Below the target's normal range each step down drops one more bit. Two bits more than
        # there are give the same zero (or least number) as any larger count.
        drop = (fraction_bits - target.mantissa_bits) + np.maximum(1 - field, 0)
        drop = np.minimum(drop, fraction_bits + 2)
        code = _shift_right(significand, drop, rounding, negative)
        code = code + ((np.maximum(field, 1) - 1) << target.mantissa_bits)

    nan = magnitude > infinity
    largest = target.max_finite_code
    if saturate or target.nan == "none":
        code = np.minimum(code, largest)
    else:
        overflow = code > largest
        if overflow.any():
            stays = _overflow_stays_finite(rounding, negative) & (magnitude < infinity)
            code = np.where(overflow & stays, integer.type(largest), code)
            overflow = overflow & ~stays
            if target.has_infinity:
                code = np.where(overflow, integer.type(largest + 1), code)
            else:
                nan = nan | overflow
    if nan.any():
        code = np.where(nan, integer.type(nan_code(target)), code)
        negative = negative & ~nan
    if not target.has_negative_zero:
        negative = negative & (code != 0)
    sign_position = target.exponent_bits + target.mantissa_bits
    code = code | (negative.astype(integer) << sign_position)
    unsigned = np.asarray(code).astype(target.storage)
    return unsigned << tf32_padding(target) if tf32_padding(target) else unsigned


def tf32_padding(dtype: DType) -> int:
    """Return how many low bits of an encoding mean nothing: 13 for tf32, else 0."""
    return dtype.bits - 1 - dtype.exponent_bits - dtype.mantissa_bits if dtype.signed else 0


def _shift_right(value: Array, count: Array, rounding: Rounding, negative: Array) -> Array:
    """Return value / 2**count rounded to an integer; `negative` says which are magnitudes below 0.

    count is at least 1; value has at least two bits of headroom.
    """
    one = value.dtype.type(1)
    match rounding:
        case "zero":
            return value >> count
        case "nearest_even":
            # Just under half, plus one when the result would be odd: ties move to even.
            return (value + ((one << (count - one)) - one) + ((value >> count) & one)) >> count
        case "nearest_away":
            return (value + (one << (count - one))) >> count
        case "positive_inf" | "negative_inf":
            grows = ~negative if rounding == "positive_inf" else negative
            return (value + grows * ((one << count) - one)) >> count


def _overflow_stays_finite(rounding: Rounding, negative: Array) -> Array:
    match rounding:
        case "nearest_even" | "nearest_away":
            return np.zeros_like(negative)
        case "zero":
            return np.ones_like(negative)
        case "positive_inf":
            return negative
        case "negative_inf":
            return ~negative


def _round_to_scale(values: Array, target: DType, rounding: Rounding, saturate: bool) -> Array:
    """Return f8e8m0 codes: the exponent of the magnitude, rounded."""
    fraction, exponent = np.frexp(np.abs(values))
    match rounding:
        case "zero" | "negative_inf":
            up = np.zeros_like(fraction, dtype=np.bool_)
        case "positive_inf":
            up = fraction > 0.5
        case "nearest_even" | "nearest_away":
            up = fraction >= 0.75
    # frexp gives fractions in [0.5, 1), hence the 1; and exponent 0 for the specials.
    code = np.where(values == 0, 0, exponent - 1 + up + target.bias)
    if saturate or rounding in ("zero", "negative_inf"):
        code = np.minimum(code, target.max_finite_code)
    largest = target.max_finite_code if saturate else nan_code(target)
    code = np.where(np.isinf(values), largest, np.clip(code, 0, nan_code(target)))
    return np.where(np.isnan(values), nan_code(target), code).astype(target.storage)
