# pyright: basic, reportAttributeAccessIssue=false, reportCallIssue=false
# pyright: reportGeneralTypeIssues=false, reportOptionalMemberAccess=false
# pyright: reportPrivateImportUsage=false, reportArgumentType=false
# numba has no types for the functions it compiles.
"""Conversions between formats, rounded once, as `reftile.ir.rounding` and `numbers` define them.

Formats are given by their numbers: they are constants where these functions are called, so that
what does not matter for a format is gone after inlining.
"""

from __future__ import annotations

import numpy as np

from reftile.lower.cpu.functions import machine as m
from reftile.lower.cpu.functions.kept import kept


def inlined(function):
    """A function whose body stands where it is called."""
    return kept(function, forceinline=True)


def called(function):
    """A function that LLVM inlines if it likes."""
    return kept(function)


NEAREST, ZERO, DOWN, UP, AWAY = range(5)
"""Rounding modes: nearest_even, zero, negative_inf, positive_inf, nearest_away."""
IEEE, ALL_ONES, NEGATIVE_ZERO, NO_NAN = range(4)
"""How a format writes NaN."""

_QUIET = np.int32(0x7FC00000)


@inlined
def flush(x):
    """A subnormal f32 as a zero of its sign."""
    tiny = m.flt(m.absf(x), np.float32(1.1754943508222875e-38))
    return m.choose(tiny, m.copysignf(np.float32(0), x), x)


@inlined
def round_bits(x, drop):
    """An f32 rounded to even with `drop` fraction bits fewer; its exponents stay."""
    bits = m.bits32(x)
    odd = m.andi(m.lshr(bits, drop), np.int32(1))
    half = m.subi(m.shl(np.int32(1), m.subi(drop, np.int32(1))), np.int32(1))
    moved = m.addi(m.addi(bits, half), odd)
    kept = m.andi(moved, m.shl(np.int32(-1), drop))
    return m.float32_of_bits(m.choose(m.feq(x, x), kept, _QUIET))


@inlined
def round_bf16(x):
    """An f32 rounded to bf16."""
    return round_bits(x, np.int32(16))


@inlined
def round_tf32(x):
    """An f32 rounded to tf32."""
    return round_bits(x, np.int32(13))


@inlined
def bf16_bits(x):
    """The code of a bf16; a NaN keeps its sign and what there is room for of its fraction."""
    code = m.lshr(m.bits32(x), np.int32(16))
    lost = m.andi(m.noti(m.feq(x, x)), m.ieq(m.andi(code, np.int32(0x7F)), np.int32(0)))
    return m.i16_of_signed(m.choose(lost, m.ori(code, np.int32(0x40)), code))


@inlined
def float_of_bf16_bits(bits):
    """The value of a bf16 code."""
    return m.float32_of_bits(m.shl(m.i32_of_unsigned(bits), np.int32(16)))


@inlined
def f16_bits(x):
    """The code of an f16; a NaN keeps its sign and what there is room for of its fraction."""
    nan = nan_code(x, 5, 10, True)
    return m.choose(m.feq(x, x), m.half_bits(x), m.i16_of_signed(nan))


@inlined
def float_of_f16_bits(bits):
    """The value of an f16 code; the processor's own conversion makes every NaN a quiet one."""
    code = m.i32_of_unsigned(bits)
    nan = m.igt(m.andi(code, np.int32(0x7FFF)), np.int32(0x7C00))
    return m.choose(nan, nan_of_code(code, 5, 10, True), m.float_of_half_bits(bits))


@inlined
def nan_code(x, exponent_bits, mantissa_bits, fractions):
    """The code, as i32, of a NaN of f32 in a narrower signed format.

    fractions: whether the format has more than one NaN of a sign; else it is the one of all ones.
    """
    bits = m.bits32(x)
    sign_at = exponent_bits + mantissa_bits
    sign = m.shl(m.lshr(bits, np.int32(31)), np.int32(sign_at))
    if not fractions:
        return m.ori(sign, np.int32((1 << sign_at) - 1))
    fraction = m.lshr(m.andi(bits, np.int32(0x7FFFFF)), np.int32(23 - mantissa_bits))
    quiet = np.int32(1 << (mantissa_bits - 1))
    fraction = m.choose(m.ieq(fraction, np.int32(0)), quiet, fraction)
    infinity = np.int32(((1 << exponent_bits) - 1) << mantissa_bits)
    return m.ori(m.ori(sign, infinity), fraction)


@inlined
def nan_of_code(code, exponent_bits, mantissa_bits, fractions):
    """The f32 of the code, as i32, of a NaN in a narrower signed format (see `nan_code`)."""
    sign = m.shl(code, np.int32(31 - exponent_bits - mantissa_bits))
    sign = m.andi(sign, np.int32(-0x80000000))
    if not fractions:
        return m.float32_of_bits(m.ori(sign, _QUIET))
    fraction = m.andi(code, np.int32((1 << mantissa_bits) - 1))
    fraction = m.shl(fraction, np.int32(23 - mantissa_bits))
    return m.float32_of_bits(m.ori(m.ori(sign, np.int32(0x7F800000)), fraction))


@inlined
def f8_bits(x, code, exponent_bits, mantissa_bits, infinite):
    """The code of a signed 8 bit format that has -0, given that of numbers, as i64."""
    nan = nan_code(x, exponent_bits, mantissa_bits, infinite)
    return m.i8_of_signed(m.choose(m.feq(x, x), m.i32_of_signed(code), nan))


@inlined
def float_of_tf32(x):
    """An f32 without the bits that tf32 lacks."""
    kept = m.float32_of_bits(m.andi(m.bits32(x), np.int32(-8192)))
    return m.choose(m.feq(x, x), kept, x)


@inlined
def _shifted(value, count, mode, negative):
    """Value / 2**count as an integer, rounded; count is between 1 and 62."""
    one = np.int64(1)
    low = m.subi(m.shl(one, count), one)
    half = m.shl(one, m.subi(count, one))
    more = np.int64(0)
    if mode == NEAREST:
        odd = m.andi(m.lshr(value, count), one)
        more = m.addi(m.subi(half, one), odd)
    elif mode == AWAY:
        more = half
    elif mode == UP:
        more = m.choose(negative, np.int64(0), low)
    elif mode == DOWN:
        more = m.choose(negative, low, np.int64(0))
    return m.lshr(m.addi(value, more), count)


@inlined
def code_of(x, exponent_bits, mantissa_bits, bias, largest, infinite, nan, minus, mode, saturate):
    """The code of an f64 in a narrower format, rounded once (see `reftile.ir.rounding`).

    largest: the code of the greatest number. infinite, minus: whether there is an infinity, and a
    negative zero.
    """
    bits = m.bits64(x)
    magnitude = m.andi(bits, np.int64(0x7FFFFFFFFFFFFFFF))
    negative = m.ilt(bits, np.int64(0))
    infinity = np.int64(0x7FF0000000000000)
    exponent = m.lshr(magnitude, np.int64(52))
    normal = m.igt(exponent, np.int64(0))
    significand = m.andi(magnitude, np.int64(0xFFFFFFFFFFFFF))
    significand = m.choose(normal, m.ori(significand, np.int64(0x10000000000000)), significand)
    field = m.subi(m.smax(exponent, np.int64(1)), np.int64(1023 - bias))
    below = m.smax(m.subi(np.int64(1), field), np.int64(0))
    drop = m.smin(m.addi(np.int64(52 - mantissa_bits), below), np.int64(54))
    code = _shifted(significand, drop, mode, negative)
    up = m.subi(m.smax(field, np.int64(1)), np.int64(1))
    code = m.addi(code, m.shl(up, np.int64(mantissa_bits)))
    # Beyond f64's own range of fields nothing is left to round, but the shift would overflow.
    huge = m.igt(field, np.int64(1 << exponent_bits))
    code = m.choose(huge, np.int64(largest + 2), code)
    is_nan = m.igt(magnitude, infinity)
    greatest = np.int64(largest)
    beyond = m.igt(code, greatest)
    if saturate or nan == NO_NAN:
        code = m.smin(code, greatest)
    else:
        finite = m.ilt(magnitude, infinity)
        stays = False
        if mode == ZERO:
            stays = finite
        elif mode == UP:
            stays = m.andi(finite, negative)
        elif mode == DOWN:
            stays = m.andi(finite, m.noti(negative))
        over = m.andi(beyond, m.noti(stays))
        code = m.choose(m.andi(beyond, stays), greatest, code)
        if infinite:
            code = m.choose(over, np.int64(largest + 1), code)
        else:
            is_nan = m.ori(is_nan, over)
    if nan == IEEE:
        code = m.choose(is_nan, np.int64(largest + 1 + (1 << (mantissa_bits - 1))), code)
    elif nan == NO_NAN:
        code = m.choose(is_nan, greatest, code)
    else:
        code = m.choose(is_nan, np.int64(largest + 1), code)
    negative = m.andi(negative, m.noti(is_nan))
    if not minus:
        negative = m.andi(negative, m.ine(code, np.int64(0)))
    sign = m.shl(m.i64_of_unsigned(negative), np.int64(exponent_bits + mantissa_bits))
    return m.ori(code, sign)


@inlined
def scale_code_of(x, mode, saturate):
    """The code of an f64 in f8e8m0: the exponent of its magnitude, rounded."""
    bits = m.andi(m.bits64(x), np.int64(0x7FFFFFFFFFFFFFFF))
    infinity = np.int64(0x7FF0000000000000)
    exponent = m.lshr(bits, np.int64(52))
    fraction = m.andi(bits, np.int64(0xFFFFFFFFFFFFF))
    up = False
    if mode == UP:
        up = m.igt(fraction, np.int64(0))
    elif mode in (NEAREST, AWAY):
        up = m.ige(fraction, np.int64(0x8000000000000))
    code = m.addi(m.subi(exponent, np.int64(1023 - 127)), m.i64_of_unsigned(up))
    if saturate or mode in (ZERO, DOWN):
        code = m.smin(code, np.int64(254))
    code = m.smin(m.smax(code, np.int64(0)), np.int64(255))
    code = m.choose(m.ieq(bits, infinity), np.int64(254 if saturate else 255), code)
    return m.choose(m.igt(bits, infinity), np.int64(255), code)


@inlined
def float_of_code(code, exponent_bits, mantissa_bits, bias, largest, infinite, minus):
    """The value of a code of at most 8 bits, as f32."""
    code = m.i32_of_unsigned(code)
    sign_at = exponent_bits + mantissa_bits
    magnitude = m.andi(code, np.int32((1 << sign_at) - 1))
    negative = m.ine(m.andi(code, np.int32(1 << sign_at)), np.int32(0))
    placed = m.float32_of_bits(m.shl(magnitude, np.int32(23 - mantissa_bits)))
    # The format's fields count from another bias; a product with a power of two is exact, and
    # makes numbers of subnormals.
    value = m.mulf(placed, np.float32(2.0 ** (127 - bias)))
    nan = m.igt(magnitude, np.int32(largest))
    if infinite:
        infinity = m.ieq(magnitude, np.int32(largest + 1))
        value = m.choose(infinity, np.float32(np.inf), value)
        nan = m.andi(nan, m.noti(infinity))
    if not minus:
        nan = m.ori(nan, m.ieq(code, np.int32(1 << sign_at)))
    value = m.choose(negative, m.negf(value), value)
    if minus and exponent_bits + mantissa_bits == 7:
        return m.choose(nan, nan_of_code(code, exponent_bits, mantissa_bits, infinite), value)
    return m.choose(nan, np.float32(np.nan), value)


@inlined
def float_of_scale_code(code):
    """The value of an f8e8m0 code."""
    wide = m.i32_of_unsigned(code)
    least = m.float32_of_bits(np.int32(0x00400000))
    value = m.float32_of_bits(m.shl(wide, np.int32(23)))
    value = m.choose(m.ieq(wide, np.int32(0)), least, value)
    return m.choose(m.ieq(wide, np.int32(255)), np.float32(np.nan), value)


@inlined
def float32_of_code(code):
    """The f32 of a code in its own format."""
    return m.float32_of_bits(m.i32_of_signed(code))


@inlined
def _significand(magnitude):
    """An f64 that rounds to any format of at most 42 bits as the unsigned integer does."""
    large = m.nge(magnitude, np.int64(1 << 53))
    rest = m.ine(m.andi(magnitude, np.int64(0x7FF)), np.int64(0))
    odd = m.shl(m.i64_of_unsigned(rest), np.int64(11))
    folded = m.ori(m.andi(magnitude, np.int64(-2048)), odd)
    return m.f64_of_unsigned(m.choose(large, folded, magnitude))


@inlined
def odd_of_signed(x):
    """An f64 that rounds to any narrower format as the signed i64 does."""
    negative = m.ilt(x, np.int64(0))
    value = _significand(m.choose(negative, m.negi(x), x))
    return m.choose(negative, m.negf(value), value)


@inlined
def odd_of_unsigned(x):
    """An f64 that rounds to any narrower format as the unsigned i64 does."""
    return _significand(x)


@inlined
def _float_of_magnitude(x, mode, negative):
    """An unsigned i64 as f64, rounded; `negative` says that it stands for its opposite."""
    nearest = m.f64_of_unsigned(x)
    # The nearest may be 2**64, which no i64 is.
    over = m.fge(nearest, np.float64(18446744073709551616.0))
    back = m.int64_of_float_unsigned(m.choose(over, np.float64(0), nearest))
    above = m.ori(over, m.ngt(back, x))
    below = m.andi(m.nlt(back, x), m.noti(over))
    bits = m.bits64(nearest)
    lower = m.choose(above, m.subi(bits, np.int64(1)), bits)
    upper = m.choose(below, m.addi(bits, np.int64(1)), bits)
    if mode == ZERO:
        bits = lower
    elif mode == UP:
        bits = m.choose(negative, lower, upper)
    elif mode == DOWN:
        bits = m.choose(negative, upper, lower)
    return m.float64_of_bits(bits)


@inlined
def f64_of_signed64(x, mode):
    """A signed i64 as f64, rounded as `mode` says."""
    negative = m.ilt(x, np.int64(0))
    value = _float_of_magnitude(m.choose(negative, m.negi(x), x), mode, negative)
    return m.choose(negative, m.negf(value), value)


@inlined
def f64_of_unsigned64(x, mode):
    """An unsigned i64 as f64, rounded as `mode` says."""
    return _float_of_magnitude(x, mode, False)
