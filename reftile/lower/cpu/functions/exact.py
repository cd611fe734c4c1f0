# pyright: basic, reportAttributeAccessIssue=false, reportCallIssue=false
# pyright: reportGeneralTypeIssues=false, reportOptionalMemberAccess=false
# pyright: reportPrivateImportUsage=false, reportArgumentType=false
# numba has no types for what it passes to intrinsics.
"""f64 `fma` in the directed modes: the exact sum as an integer of 256 bits, rounded once.

A product has 106 bits and an addend 53. Where they lie so far apart that 256 bits would not hold
both, the lower one only says on which side of the higher one the sum lies, and a 1 says that too.
"""

from __future__ import annotations

import numpy as np
from llvmlite import ir
from numba import types
from numba.core import cgutils
from numba.extending import intrinsic

from reftile.lower.cpu.functions import machine as m
from reftile.lower.cpu.functions.arithmetic import _is_plain, _overflow, _zero_sign
from reftile.lower.cpu.functions.numbers import DOWN, UP, called, inlined

_I64, _WIDE = ir.IntType(64), ir.IntType(256)
_HIGHEST_PRODUCT = 130
"""Bits that a product is moved up at most: 236 in all, far above any addend moved to 1."""
_HIGHEST_ADDEND = 190
"""Bits that an addend is moved up at most: 243 in all, far above any product moved to 1."""


@intrinsic
def _sum(typingctx, a, b, c, up, down, opposite, exponent):
    """(kept, inexact, unit, negative): |a * b * 2**up ± c * 2**down| * 2**exponent, cut to f64.

    The result lies in [kept, kept + 1) * 2**unit; `negative` says that the addend won.
    """

    def generate(context, builder, signature, args):
        a, b, c, up, down = (builder.zext(x, _WIDE) for x in args[:5])
        opposite, exponent = args[5:]
        product = builder.shl(builder.mul(a, b), up)
        addend = builder.shl(c, down)
        differ = builder.icmp_unsigned("!=", opposite, ir.Constant(_I64, 0))
        total = builder.select(differ, builder.sub(product, addend), builder.add(product, addend))
        negative = builder.icmp_signed("<", total, ir.Constant(_WIDE, 0))
        total = builder.select(negative, builder.neg(total), total)
        kind = ir.FunctionType(_WIDE, [_WIDE, ir.IntType(1)])
        zeros = cgutils.get_or_insert_function(builder.module, kind, "llvm.ctlz.i256")
        leading = builder.trunc(builder.call(zeros, [total, ir.Constant(ir.IntType(1), 0)]), _I64)
        length = builder.sub(ir.Constant(_I64, 256), leading)
        least = ir.Constant(_I64, -1074)
        unit = builder.sub(builder.add(exponent, length), ir.Constant(_I64, 53))
        unit = builder.select(builder.icmp_signed(">", unit, least), unit, least)
        drop = builder.sub(unit, exponent)
        none, most = ir.Constant(_I64, 0), ir.Constant(_I64, 255)
        is_down = builder.icmp_signed(">", drop, none)
        cut = builder.select(is_down, drop, none)
        cut = builder.select(builder.icmp_signed("<", cut, most), cut, most)
        cut = builder.zext(cut, _WIDE)
        kept = builder.lshr(total, cut)
        inexact = builder.icmp_unsigned("!=", builder.shl(kept, cut), total)
        raised = builder.zext(builder.select(is_down, none, builder.neg(drop)), _WIDE)
        kept = builder.trunc(builder.shl(kept, raised), _I64)
        found = [kept, builder.zext(inexact, _I64), unit, builder.zext(negative, _I64)]
        return cgutils.pack_array(builder, found)

    return types.UniTuple(types.int64, 4)(*[types.int64] * 7), generate


@inlined
def _significand(bits):
    normal = m.ine(m.andi(bits, np.int64(0x7FF0000000000000)), np.int64(0))
    fraction = m.andi(bits, np.int64(0xFFFFFFFFFFFFF))
    return m.choose(normal, m.ori(fraction, np.int64(0x10000000000000)), fraction)


@inlined
def _exponent(bits):
    """Of the lowest bit of the significand."""
    field = m.andi(m.lshr(bits, np.int64(52)), np.int64(0x7FF))
    return m.subi(m.smax(field, np.int64(1)), np.int64(1075))


@called
def fma_wide(a, b, c, mode):
    """A * b + c of f64 in a directed mode."""
    if not (_is_plain(a) and _is_plain(b) and m.flt(m.absf(c), np.inf)):
        return _zero_sign(m.fmaf(a, b, c), m.mulf(a, b), c, mode)
    x, y, z = m.bits64(a), m.bits64(b), m.bits64(c)
    one, other, addend = _significand(x), _significand(y), _significand(z)
    exponent = _exponent(x) + _exponent(y)
    distance = exponent - _exponent(z)
    up, down = np.int64(0), np.int64(0)
    if distance > _HIGHEST_PRODUCT:
        up = np.int64(_HIGHEST_PRODUCT)
        addend = np.int64(1) if addend != 0 else np.int64(0)
        exponent -= _HIGHEST_PRODUCT
    elif distance >= 0:
        up = distance
        exponent -= distance
    elif distance >= -_HIGHEST_ADDEND or addend == 0:
        down = -distance if addend != 0 else np.int64(0)
    else:
        down = np.int64(_HIGHEST_ADDEND)
        one, other = np.int64(1), np.int64(1)
        exponent = _exponent(z) - _HIGHEST_ADDEND
    negative_product = m.xori(x, y) < 0
    opposite = np.int64(1) if negative_product != (z < 0) else np.int64(0)
    kept, inexact, unit, turned = _sum(one, other, addend, up, down, opposite, exponent)
    if kept == 0 and inexact == 0:
        return np.float64(-0.0) if mode == DOWN else np.float64(0.0)
    negative = negative_product != (turned != 0)
    if inexact != 0 and ((mode == UP and not negative) or (mode == DOWN and negative)):
        kept += 1
    if kept == np.int64(0x20000000000000):
        kept = np.int64(0x10000000000000)
        unit += 1
    if unit > 971:
        return _overflow(not negative, mode)
    bits = kept
    if kept >= np.int64(0x10000000000000):
        bits = m.ori(
            m.andi(kept, np.int64(0xFFFFFFFFFFFFF)), m.shl(unit + np.int64(1075), np.int64(52))
        )
    value = m.float64_of_bits(bits)
    return -value if negative else value
