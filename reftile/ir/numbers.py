"""Numbers between formats: encodings, conversions with exactly one rounding.

Values live in carriers (see `DType.carrier`); encodings are unsigned integers of `DType.storage`,
one per element. `rounding` says what becomes of numbers that a format does not have.
"""

from __future__ import annotations

import functools

import numpy as np

from reftile.ir.dtypes import F16, F32, F64, I4, TF32, DType
from reftile.ir.integers import to_signed, to_unsigned, wrap
from reftile.ir.rounding import Array, Rounding, nan_code, round_to_code

__all__ = [
    "Rounding",
    "canonical",
    "convert",
    "decode",
    "encode",
    "float_to_int",
    "int_to_float",
    "is_representable",
]


_CANONICAL = 0x7FC00000
"""The bits of the canonical NaN of f32."""


def canonical(values: Array) -> Array:
    """Return `values` with every NaN replaced by the canonical one: positive, quiet, no payload."""
    nan = np.isnan(values)
    if not nan.any():
        return np.asarray(values)
    return np.where(nan, values.dtype.type(np.nan), values)


def decode(bits: Array, dtype: DType) -> Array:
    """Return the values, in the carrier, that encodings mean; one encoding per element.

    bits: of dtype.storage. Bits that an encoding does not use are ignored: the upper nibble of i4
    and f4e2m1, the low 13 of tf32. An i1 is true when its byte is not zero.
    A NaN keeps its sign and its fraction, in the leading bits of the carrier's NaN, and so its bits
    when it is encoded again.
    """
    bits = np.asarray(bits, dtype.storage)
    if dtype.is_int:
        if dtype.bits == 1:
            return np.asarray(bits != 0)
        return wrap(bits, dtype) if dtype is I4 else bits.view(dtype.carrier)
    if dtype is F64 or dtype is F32:
        return bits.view(dtype.carrier)
    if dtype is F16:
        with np.errstate(all="ignore"):
            return _with_nans_of(bits, bits.view(np.float16).astype(np.float32))
    if dtype is TF32:
        values = bits.view(np.float32)
        kept = np.asarray(bits & np.uint32(0xFFFFE000)).view(np.float32)
        # The mask could leave an infinity of a NaN whose payload is in the low bits.
        return np.where(np.isnan(values) & ~np.isnan(kept), np.float32(np.nan), kept)
    if dtype.bits == 16:
        return np.asarray(bits.astype(np.uint32) << np.uint32(16)).view(np.float32)
    return np.asarray(_small_values(dtype)[bits & np.uint8((1 << dtype.bits) - 1)])


def _with_nans_of(bits: Array, values: Array) -> Array:
    """Return `values` of f16 with the sign and fraction of each NaN; the processor may quiet it."""
    nan = np.isnan(values)
    if nan.any():
        wide = bits[nan].astype(np.uint32)
        sign, fraction = (wide & np.uint32(0x8000)) << 16, (wide & np.uint32(0x3FF)) << 13
        values.view(np.uint32)[nan] = sign | np.uint32(0x7F800000) | fraction
    return values


@functools.cache
def _small_values(dtype: DType) -> Array:
    """Return the value of every code of an 8 or 4 bit format."""
    fraction_codes = 1 << dtype.mantissa_bits
    values = np.empty(1 << dtype.bits, np.float64)
    for code in range(len(values)):
        magnitude = code & ((1 << (dtype.exponent_bits + dtype.mantissa_bits)) - 1)
        field, fraction = divmod(magnitude, fraction_codes)
        subnormal = field == 0 and dtype.has_zero
        significand = fraction if subnormal else fraction_codes + fraction
        exponent = max(field, 1 if dtype.has_zero else 0) - dtype.bias - dtype.mantissa_bits
        value = np.ldexp(float(significand), exponent)
        if magnitude > dtype.max_finite_code:
            is_infinity = dtype.has_infinity and magnitude == dtype.max_finite_code + 1
            value = np.inf if is_infinity else np.nan
        if code != magnitude:
            value = -value if dtype.has_negative_zero or magnitude else np.nan
        values[code] = value
    table = canonical(values).astype(np.float32)
    for code in np.flatnonzero(np.isnan(table)):
        table.view(np.uint32)[code] = _nan_of(int(code), dtype)
    table.setflags(write=False)
    return table


def _nan_of(code: int, dtype: DType) -> int:
    """The bits of the carrier's NaN for a NaN of an 8 bit format."""
    if not dtype.has_negative_zero:
        return _CANONICAL
    sign = code >> 7 if dtype.signed else 0
    fraction = code & ((1 << dtype.mantissa_bits) - 1) if dtype.nan == "ieee" else 0
    payload = fraction << (23 - dtype.mantissa_bits) if fraction else _CANONICAL & 0x7FFFFF
    return sign << 31 | 0x7F800000 | payload


def _encode_nans(values: Array, codes: Array, dtype: DType) -> Array:
    """Return `codes` with the sign and fraction of each NaN of `values`, as far as there is room.

    values: of f32. codes: an array of the caller's own.
    """
    nan, codes = np.isnan(values), np.asarray(codes)
    if not nan.any() or not dtype.signed or dtype.nan in ("negative_zero", "none"):
        return codes
    wide = values.view(np.uint32)[nan]
    found = np.full(wide.shape, nan_code(dtype), np.uint32)
    if dtype.nan == "ieee":
        fraction = (wide & np.uint32(0x7FFFFF)) >> np.uint32(23 - dtype.mantissa_bits)
        found = np.where(fraction, np.uint32(dtype.max_finite_code + 1) | fraction, found)
    found |= (wide >> np.uint32(31)) << np.uint32(dtype.exponent_bits + dtype.mantissa_bits)
    codes[nan] = found.astype(codes.dtype)
    return codes


def encode(values: Array, dtype: DType) -> Array:
    """Return the encodings, of dtype.storage, of carrier values that the format has.

    A NaN keeps its sign and the leading bits of its fraction, where the format tells NaNs
    apart: what `decode` gave gets its bits again. f4e2m1 has none and gets its largest value.
    """
    values = np.asarray(values, dtype.carrier)
    if dtype.is_int:
        bits = values.view(dtype.storage)
        return bits & np.uint8(0xF) if dtype is I4 else bits
    if dtype is F64 or dtype is F32:
        return values.view(dtype.storage)
    if dtype is F16:
        with np.errstate(all="ignore"):
            return _encode_nans(values, values.astype(np.float16).view(np.uint16), dtype)
    if dtype is TF32:
        return values.view(np.uint32)
    if dtype.bits == 16:
        codes = (values.view(np.uint32) >> np.uint32(16)).astype(np.uint16)
        return _encode_nans(values, codes, dtype)
    return _encode_nans(values, round_to_code(values, dtype, "nearest_even", saturate=False), dtype)


def is_representable(values: Array, dtype: DType) -> Array:
    """Return where the float format `dtype` has the value exactly (a NaN counts if it has NaN)."""
    values = np.asarray(values)
    source = F64 if values.dtype == np.float64 else F32
    there = convert(values, source, dtype)
    same = (there == values) & (np.signbit(there) == np.signbit(values))
    return np.asarray(same | (np.isnan(values) & np.isnan(there)))


@np.errstate(all="ignore")
def convert(
    values: Array,
    source: DType,
    target: DType,
    rounding: Rounding = "nearest_even",
    saturate: bool = False,
) -> Array:
    """Return float `values` of format `source` rounded once into format `target`.

    saturate: finite overflow and infinities give max_finite of the target instead of an infinity or
    NaN. What else a target lacks: see reftile.ir.rounding.
    """
    values = np.asarray(values, source.carrier)
    if target.mantissa_bits >= (52 if source is F64 else 23):
        # Every value of the source carrier exists in the target.
        return _clamp(canonical(values.astype(target.carrier)), target, saturate)
    if rounding == "nearest_even" and not saturate:
        if source is F64 and target is F32:
            return canonical(values.astype(np.float32))
        if source is not F64 and target is F16:
            return canonical(values.astype(np.float16).astype(np.float32))
        if source is not F64 and target.exponent_bits == 8 and target.signed:
            return _round_fraction_to_even(values, 23 - target.mantissa_bits)
    return decode(round_to_code(values, target, rounding, saturate), target)


def _clamp(values: Array, target: DType, saturate: bool) -> Array:
    if not saturate:
        return values
    limit = target.carrier.type(target.max_finite)
    return np.asarray(np.clip(values, -limit, limit))


def _round_fraction_to_even(values: Array, drop: int) -> Array:
    """Round float32 values to 23 - drop fraction bits; the exponent range stays that of float32."""
    bits = values.view(np.uint32)
    # In place from here on: this is the conversion that tiles meet most.
    rounded = np.array(bits >> np.uint32(drop))
    rounded &= np.uint32(1)
    rounded += np.uint32((1 << (drop - 1)) - 1)
    rounded += bits
    rounded &= np.uint32(0xFFFFFFFF << drop & 0xFFFFFFFF)
    nan = np.isnan(values)
    if nan.any():
        rounded[nan] = nan_code(F32)
    return rounded.view(np.float32)


@np.errstate(all="ignore")
def float_to_int(
    values: Array,
    source: DType,
    target: DType,
    signed: bool,
    rounding: Rounding = "zero",
    saturate: bool = False,
) -> tuple[Array, Array]:
    """Return (integers, invalid): floats rounded to integers, and where they have no such integer.

    invalid marks NaN and what lies, after rounding, outside the target's signed or unsigned range;
    the integer there is 0. With `saturate` the nearest end of the range is given instead, 0 for
    NaN, and nothing is invalid.
    """
    values = np.asarray(values, source.carrier)
    whole = _round_to_whole(values, rounding)
    # Both ends are powers of two or zero, so every carrier holds them exactly; high is excluded.
    low = float(target.signed_min if signed else 0)
    high = float(2 ** (target.bits - 1 if signed else target.bits))
    invalid = np.asarray(~((whole >= low) & (whole < high)))
    safe = np.where(invalid, values.dtype.type(0), whole)
    integers = wrap(safe.astype(np.int64 if signed else np.uint64), target)
    if not saturate or not invalid.any():
        return integers, np.zeros_like(invalid) if saturate else invalid
    ends = np.array([target.signed_min, target.signed_max] if signed else [0, -1], np.int64)
    least, greatest = wrap(ends, target)
    integers = np.where(whole < low, least, integers)
    return np.where(whole >= high, greatest, integers), np.zeros_like(invalid)


def _round_to_whole(values: Array, rounding: Rounding) -> Array:
    match rounding:
        case "nearest_even":
            return np.rint(values)
        case "zero":
            return np.trunc(values)
        case "negative_inf":
            return np.floor(values)
        case "positive_inf":
            return np.ceil(values)
        case "nearest_away":
            # Adding a half first would round 0.49999997 up; the difference below is exact.
            whole = np.trunc(values)
            return whole + np.copysign(np.abs(values - whole) >= 0.5, values)


@np.errstate(all="ignore")
def int_to_float(
    values: Array,
    source: DType,
    target: DType,
    signed: bool,
    rounding: Rounding = "nearest_even",
    saturate: bool = False,
) -> Array:
    """Return integers, read as signed or unsigned, rounded once into the float format `target`."""
    wide = to_signed(values, source) if signed else to_unsigned(values, source)
    if source.bits < 64:
        return convert(wide.astype(np.float64), F64, target, rounding, saturate)
    if rounding == "nearest_even" and target in (F32, F64):
        return np.asarray(wide.astype(target.carrier))
    negative = np.asarray(wide < 0)
    magnitude = wide.astype(np.uint64)
    magnitude = np.where(negative, np.uint64(0) - magnitude, magnitude)
    if target is F64:
        return _round_magnitude_to_f64(magnitude, negative, rounding)
    # Keep at least 43 leading bits and fold the rest into the lowest of them: whatever the target
    # (24 bits or fewer), it then rounds as the integer itself would.
    large = magnitude >= np.uint64(1 << 53)
    sticky = np.where(magnitude & np.uint64(0x7FF), np.uint64(1 << 11), np.uint64(0))
    folded = np.where(large, (magnitude & ~np.uint64(0x7FF)) | sticky, magnitude)
    wide_float = folded.astype(np.float64)
    return convert(np.where(negative, -wide_float, wide_float), F64, target, rounding, saturate)


def _round_magnitude_to_f64(magnitude: Array, negative: Array, rounding: Rounding) -> Array:
    # Halving the integer 11 times makes its float64 exact, and so its bit length.
    bit_length = np.frexp((magnitude >> np.uint64(11)).astype(np.float64))[1] + 11
    drop = np.maximum(bit_length - 53, 0).astype(np.uint64)
    kept = magnitude >> drop
    rest = magnitude - (kept << drop)
    twice_rest = rest << np.uint64(1)
    unit = np.uint64(1) << drop
    match rounding:
        case "nearest_even":
            up = (twice_rest > unit) | ((twice_rest == unit) & (kept & np.uint64(1) == 1))
        case "nearest_away":
            up = twice_rest >= unit
        case "zero":
            up = np.zeros_like(negative)
        case "positive_inf":
            up = (rest != 0) & ~negative
        case "negative_inf":
            up = (rest != 0) & negative
    value = np.ldexp((kept + up).astype(np.float64), drop.astype(np.int32))
    return np.where(negative, -value, value)
