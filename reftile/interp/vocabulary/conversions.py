"""Words of meanings: conversions, bytes and pointers."""

from __future__ import annotations

import sys
from typing import cast

import numpy as np

from reftile.interp.values import Array, Mask
from reftile.ir import integers, numbers
from reftile.ir.dtypes import I8, TF32, DType
from reftile.ir.packing import pack_nibbles, unpack_nibbles
from reftile.ir.rounding import Rounding


def convert(source: Array, dtype: DType, target: DType, rounding: str, saturating: bool) -> Array:
    """A float rounded once into another format."""
    return numbers.convert(source, dtype, target, cast("Rounding", rounding), saturating)


def _whole_rounding(rounding: str) -> Rounding:
    return "zero" if rounding == "nearest_int_to_zero" else cast("Rounding", rounding)


def float_to_int(
    source: Array, dtype: DType, target: DType, signedness: str, rounding: str, saturating: bool
) -> Array:
    """A float rounded to an integer; 0 where it does not fit, or the nearest end if saturating."""
    signed, mode = signedness == "signed", _whole_rounding(rounding)
    if mode == "zero" and target.bits >= 8 and _is_within(source, target, signed):
        # NumPy truncates; what fits in 64 bits as an unsigned number goes through that type.
        wide = np.int64 if signed or target.bits < 64 else np.uint64
        return source.astype(wide).astype(target.carrier)
    return numbers.float_to_int(source, dtype, target, signed, mode, saturating)[0]


def _is_within(source: Array, target: DType, signed: bool) -> bool:
    """Whether no float is NaN and all, rounded in any mode, are integers of the target."""
    low = target.signed_min if signed else 0
    high = target.signed_max if signed else target.unsigned_max
    # As Python's numbers, which compare exactly: an array would round the ends to floats first.
    return float(source.min()) >= low and float(source.max()) <= high - 1


def float_outside(
    source: Array, dtype: DType, target: DType, signedness: str, rounding: str
) -> Mask | bool:
    """Where a float, rounded, is no integer of the target."""
    signed, mode = signedness == "signed", _whole_rounding(rounding)
    if _is_within(source, target, signed):
        return False
    return numbers.float_to_int(source, dtype, target, signed, mode)[1]


def int_to_float(
    source: Array, dtype: DType, target: DType, signedness: str, rounding: str
) -> Array:
    """An integer rounded once into a float format."""
    if rounding == "nearest_even" and target.bits >= 32 and target is not TF32 and dtype.bits >= 8:
        # NumPy's conversions to f32 and f64 round once to nearest even.
        wide = source if signedness == "signed" else source.view(dtype.storage)
        return wide.astype(target.carrier)
    mode = cast("Rounding", rounding)
    return numbers.int_to_float(source, dtype, target, signedness == "signed", mode)


def extend_int(source: Array, dtype: DType, target: DType, signedness: str) -> Array:
    """An integer in a wider type."""
    return integers.extend_int(source, dtype, target, signedness == "signed")


def truncate_int(source: Array, dtype: DType, target: DType) -> Array:
    """The low bits in a narrower type."""
    return integers.truncate_int(source, dtype, target)


def truncate_overflows(source: Array, dtype: DType, target: DType, overflow: str) -> Mask:
    """Where truncation breaks the promise."""
    signed = overflow in ("nsw", "nw") and integers.truncate_overflows(source, dtype, target, True)
    unsigned = overflow in ("nuw", "nw") and integers.truncate_overflows(
        source, dtype, target, False
    )
    return np.asarray(signed | unsigned)


def bitcast(source: Array, dtype: DType, target: DType) -> Array:
    """The same bits in another type of the same width."""
    return numbers.decode(numbers.encode(source, dtype).view(target.storage), target)


def pack(source: Array, dtype: DType) -> Array:
    """The memory image of the last axis, as i8."""
    bits = numbers.encode(source, dtype)
    if dtype.bits == 4:
        return pack_nibbles(bits).view(I8.carrier)
    return np.ascontiguousarray(_little_endian(bits)).view(I8.carrier)


def unpack(source: Array, dtype: DType) -> Array:
    """The numbers whose memory image the last axis is."""
    units = np.ascontiguousarray(source).view(np.uint8)
    if dtype.bits == 4:
        return numbers.decode(unpack_nibbles(units), dtype)
    return numbers.decode(_little_endian(units.view(dtype.storage)), dtype)


def _little_endian(units: Array) -> Array:
    return units if sys.byteorder == "little" else units.byteswap()


def same(source: Array) -> Array:
    """The value itself: pointers are held as their addresses."""
    return source


def offset_pointer(ptr: Array, offset: Array, pointee: DType, dtype: DType) -> Array:
    """The address advanced by `offset` elements of `pointee`."""
    return np.add(ptr, _distance(offset, pointee, dtype))


def _distance(offset: Array, pointee: DType, dtype: DType) -> Array:
    """Bytes between a pointer and the one `offset` elements after it."""
    return integers.to_signed(offset, dtype) * np.int64(pointee.storage_bits // 8)


def offset_wraps(ptr: Array, offset: Array, pointee: DType, dtype: DType) -> Mask | bool:
    """Where the distance wraps as a signed, or the address as an unsigned 64 bit number."""
    size = pointee.storage_bits // 8
    # Masks are made only where the extremes say that something may wrap.
    low, high = -int(offset.max()) * size, int(offset.max()) * size
    if dtype.bits >= 8:
        low = int(offset.min()) * size
    first, last = int(ptr.min()), int(ptr.max())
    if first >= 0 and first + low >= 0 and last + high < 1 << 63 and high < 1 << 63:
        return False
    wide = integers.to_signed(offset, dtype)
    most, least = (2**63 - 1) // size, -(2**63 // size)
    distance = wide * np.int64(size)
    address = ptr.view(np.uint64)
    moved = address + distance.view(np.uint64)
    around = np.where(distance < 0, moved > address, moved < address)
    return np.asarray((wide > most) | (wide < least) | around)
