# pyright: basic, reportAttributeAccessIssue=false, reportCallIssue=false
# pyright: reportGeneralTypeIssues=false, reportOptionalMemberAccess=false
# pyright: reportPrivateImportUsage=false, reportArgumentType=false
# numba has no types for the functions it compiles.
"""Float arithmetic in every rounding mode, as `reftile.ir.arithmetic` defines it.

Up to f32: an f64 rounded to odd, which rounds on to any narrower format in any mode as the exact
result does. f64 itself: a result and the sign of its error, which say the neighbour to move to;
products and quotients are scaled, so that neither overflow nor underflow hides the error.
"""

from __future__ import annotations

import numpy as np

from reftile.lower.cpu.functions import machine as m
from reftile.lower.cpu.functions.numbers import DOWN, NEAREST, UP, ZERO, called, inlined


@inlined
def _odd(result, error):
    """The exact value rounded to odd."""
    bits = m.bits64(result)
    inexact = m.ori(m.flt(error, 0.0), m.fgt(error, 0.0))
    even = m.ieq(m.andi(bits, np.int64(1)), np.int64(0))
    finite = m.flt(m.absf(result), np.inf)
    move = m.andi(m.andi(inexact, even), finite)
    up = m.fgt(error, 0.0)
    outward = m.ieq(m.i64_of_unsigned(up), m.i64_of_unsigned(m.fgt(result, 0.0)))
    by = m.choose(outward, np.int64(1), np.int64(-1))
    return m.float64_of_bits(m.choose(move, m.addi(bits, by), bits))


@inlined
def _sum_error(a, b, total):
    part = m.subf(total, a)
    return m.addf(m.subf(a, m.subf(total, part)), m.subf(b, part))


@inlined
def _zero_sign(result, a, b, mode):
    """An exact zero is -0 in `DOWN` unless both addends are positive."""
    if mode != DOWN:
        return result
    negative = m.ori(
        m.ilt(m.bits64(a), np.int64(0)),
        m.ilt(m.bits64(b), np.int64(0)),
    )
    zero = m.feq(result, 0.0)
    return m.choose(m.andi(zero, negative), np.float64(-0.0), result)


@inlined
def add_odd(a, b, mode):
    """A + b of f32 or narrower numbers, as f64 rounded to odd."""
    total = m.addf(a, b)
    return _zero_sign(_odd(total, _sum_error(a, b, total)), a, b, mode)


@inlined
def mul_odd(a, b, mode):
    """A * b, exact in f64."""
    return m.mulf(a, b)


@inlined
def div_odd(a, b, mode):
    """A / b, as f64 rounded to odd."""
    result = m.divf(a, b)
    rest = m.fmaf(m.negf(result), b, a)
    error = m.choose(m.flt(b, 0.0), m.negf(rest), rest)
    # Of an infinite or zero operand the result is exact, and the rest is NaN or means nothing.
    plain = m.andi(m.fgt(m.absf(b), 0.0), m.flt(m.absf(b), np.inf))
    return m.choose(plain, _odd(result, error), result)


@inlined
def sqrt_odd(a, mode):
    """The square root, as f64 rounded to odd."""
    result = m.sqrtf(a)
    return _odd(result, m.fmaf(m.negf(result), result, a))


@inlined
def fma_odd(a, b, c, mode):
    """A * b + c of f32 or narrower numbers, as f64 rounded to odd."""
    product = m.mulf(a, b)
    total = m.addf(product, c)
    return _zero_sign(_odd(total, _sum_error(product, c, total)), product, c, mode)


@inlined
def _moved(result, error, mode):
    """An f64 moved to the neighbour that the mode asks for; error is that of `result`."""
    bits = m.bits64(result)
    up = m.fgt(error, 0.0)
    inexact = m.ori(up, m.flt(error, 0.0))
    positive = m.fgt(result, 0.0)
    if mode == ZERO:
        move = m.andi(inexact, m.xori(up, positive))
    elif mode == UP:
        move = up
    elif mode == DOWN:
        move = m.andi(inexact, m.noti(up))
    else:
        move = False
    move = m.andi(move, m.flt(m.absf(result), np.inf))
    outward = m.noti(m.xori(up, positive))
    by = m.choose(outward, np.int64(1), np.int64(-1))
    return m.float64_of_bits(m.choose(move, m.addi(bits, by), bits))


@called
def add_wide(a, b, mode):
    """A + b of f64 in a directed mode."""
    scale = 1.0
    if m.absf(a) > 1e300 or m.absf(b) > 1e300:
        scale = 0.25
    x, y = m.mulf(a, scale), m.mulf(b, scale)
    total = m.addf(x, y)
    # Scaled numbers that lose bits are far below the other, whose sum they only tip.
    error = _sum_error(x, y, total)
    if scale != 1.0:
        if error == 0.0 and m.absf(x) < 1e-290 and a != 0.0:
            error = a
        if error == 0.0 and m.absf(y) < 1e-290 and b != 0.0:
            error = b
        moved = _moved(total, error, mode)
        back = m.mulf(moved, 4.0)
        if m.absf(back) == np.inf and m.absf(a) != np.inf and m.absf(b) != np.inf:
            return _overflow(back > 0.0, mode)
        return _zero_sign(back, a, b, mode)
    return _zero_sign(_moved(total, error, mode), a, b, mode)


@inlined
def _overflow(positive, mode):
    largest = np.float64(1.7976931348623157e308)
    if positive:
        return largest if mode in (ZERO, DOWN) else np.inf
    return -largest if mode in (ZERO, UP) else -np.inf


@called
def _parts(x):
    """(fraction in [1, 2), exponent) of a finite positive number."""
    extra = np.int64(0)
    if x < 2.2250738585072014e-308:
        x = x * 18014398509481984.0
        extra = np.int64(-54)
    bits = m.bits64(x)
    exponent = m.subi(m.lshr(bits, np.int64(52)), np.int64(1023))
    fraction = m.ori(m.andi(bits, np.int64(0xFFFFFFFFFFFFF)), np.int64(0x3FF0000000000000))
    return m.float64_of_bits(fraction), exponent + extra


@called
def _scaled(fraction, error, exponent, negative, mode):
    """Fraction * 2**exponent with the sign of its error, rounded once; fraction in [0.5, 4)."""
    fraction, more = _parts(fraction)
    exponent += more
    # Four bits more than f64 has; the lowest says that something was left out.
    significand = m.ori(
        m.andi(m.bits64(fraction), np.int64(0xFFFFFFFFFFFFF)), np.int64(0x10000000000000)
    )
    significand = m.shl(significand, np.int64(4))
    if error < 0.0:
        significand -= np.int64(1)
    elif error > 0.0:
        significand += np.int64(1)
    if significand < np.int64(0x100000000000000):
        significand = significand * np.int64(2) + np.int64(1)
        exponent -= 1
    drop = np.int64(4)
    if exponent < -1022:
        drop = min(np.int64(4) + (-1022 - exponent), np.int64(60))
        exponent = np.int64(-1022)
    kept = m.lshr(significand, drop)
    rest = significand - m.shl(kept, drop)
    half = m.shl(np.int64(1), drop - np.int64(1))
    up = False
    if mode == NEAREST:
        up = rest > half or (rest == half and kept % 2 == 1)
    elif mode == UP:
        up = rest != 0 and not negative
    elif mode == DOWN:
        up = rest != 0 and negative
    if up:
        kept += np.int64(1)
    if kept >= np.int64(0x20000000000000):
        kept = m.lshr(kept, np.int64(1))
        exponent += 1
    if exponent > 1023:
        if mode == NEAREST:
            return -np.inf if negative else np.inf
        return _overflow(not negative, mode)
    field = np.int64(0) if kept < np.int64(0x10000000000000) else exponent + np.int64(1023)
    bits = m.ori(m.andi(kept, np.int64(0xFFFFFFFFFFFFF)), m.shl(field, np.int64(52)))
    value = m.float64_of_bits(bits)
    return -value if negative else value


@inlined
def _is_plain(x):
    return m.andi(m.fgt(m.absf(x), 0.0), m.flt(m.absf(x), np.inf))


@called
def mul_wide(a, b, mode):
    """A * b of f64 in a directed mode."""
    if not (_is_plain(a) and _is_plain(b)):
        return m.mulf(a, b)
    x, p = _parts(m.absf(a))
    y, q = _parts(m.absf(b))
    product = m.mulf(x, y)
    error = m.fmaf(x, y, m.negf(product))
    return _scaled(product, error, p + q, (a < 0.0) != (b < 0.0), mode)


@called
def div_wide(a, b, mode):
    """A / b of f64 in a directed mode."""
    if not (_is_plain(a) and _is_plain(b)):
        return m.divf(a, b)
    x, p = _parts(m.absf(a))
    y, q = _parts(m.absf(b))
    quotient = m.divf(x, y)
    error = m.fmaf(m.negf(quotient), y, x)
    return _scaled(quotient, error, p - q, (a < 0.0) != (b < 0.0), mode)


@called
def sqrt_wide(a, mode):
    """The square root of an f64 in a directed mode."""
    if not (a > 0.0 and a < np.inf):
        return m.sqrtf(a)
    fraction, exponent = _parts(a)
    if exponent % 2 != 0:
        fraction *= 2.0
        exponent -= 1
    root = m.sqrtf(fraction)
    return _scaled(root, m.fmaf(m.negf(root), root, fraction), exponent // 2, False, mode)


@called
def rsqrt_wide(a):
    """1 / sqrt(a) of f64, within a unit."""
    if not (a > 0.0 and a < np.inf):
        return m.divf(1.0, m.sqrtf(a))
    fraction, exponent = _parts(a)
    if exponent % 2 != 0:
        fraction *= 2.0
        exponent -= 1
    root = 1.0 / m.sqrtf(fraction)
    rest = m.fmaf(-fraction * root, root, 1.0)
    return _scaled(root + root * rest * 0.5, 0.0, -(exponent // 2), False, NEAREST)
