# pyright: basic, reportAttributeAccessIssue=false, reportCallIssue=false
# pyright: reportGeneralTypeIssues=false, reportOptionalMemberAccess=false
# pyright: reportPrivateImportUsage=false, reportArgumentType=false
# numba has no types for what it passes to intrinsics.
"""Integers: they wrap. What compares with `i` reads signed numbers, with `n` unsigned ones."""

from __future__ import annotations

from typing import Any

from llvmlite import ir
from numba import types

from reftile.lower.cpu.functions.machine.instructions import Build, binary, call, unary

addi = binary(lambda b, x, y: b.add(x, y))
subi = binary(lambda b, x, y: b.sub(x, y))
muli = binary(lambda b, x, y: b.mul(x, y))
andi = binary(lambda b, x, y: b.and_(x, y))
ori = binary(lambda b, x, y: b.or_(x, y))
xori = binary(lambda b, x, y: b.xor(x, y))
noti = unary(lambda b, x: b.not_(x))
negi = unary(lambda b, x: b.neg(x))
smax = binary(call("llvm.smax"))
smin = binary(call("llvm.smin"))
umax = binary(call("llvm.umax"))
umin = binary(call("llvm.umin"))


_SIGNS = {"eq": "==", "ne": "!=", "lt": "<", "le": "<=", "gt": ">", "ge": ">="}
for _name, _sign in _SIGNS.items():
    globals()[f"i{_name}"] = binary(lambda b, x, y, s=_sign: b.icmp_signed(s, x, y), types.boolean)
    globals()[f"n{_name}"] = binary(
        lambda b, x, y, s=_sign: b.icmp_unsigned(s, x, y), types.boolean
    )


def _amount(b: Any, x: Any, n: Any) -> Any:
    return b.and_(n, ir.Constant(n.type, n.type.width - 1))


shl = binary(lambda b, x, n: b.shl(x, _amount(b, x, n)))
lshr = binary(lambda b, x, n: b.lshr(x, _amount(b, x, n)))
ashr = binary(lambda b, x, n: b.ashr(x, _amount(b, x, n)))


def _safe(b: Any, x: Any, y: Any, signed: bool) -> tuple[Any, Any]:
    """A divisor that traps with no dividend, and where the one given was zero."""
    zero = b.icmp_unsigned("==", y, ir.Constant(y.type, 0))
    bad = zero
    if signed:
        least = ir.Constant(x.type, -(1 << (x.type.width - 1)))
        minus = b.icmp_unsigned("==", y, ir.Constant(y.type, -1))
        bad = b.or_(zero, b.and_(minus, b.icmp_unsigned("==", x, least)))
    return b.select(bad, ir.Constant(y.type, 1), y), zero


def _divide(signed: bool, rounding: str) -> Build:
    def build(b: Any, x: Any, y: Any) -> Any:
        divisor, zero = _safe(b, x, y, signed)
        quotient = b.sdiv(x, divisor) if signed else b.udiv(x, divisor)
        if rounding != "zero" and (signed or rounding == "positive_inf"):
            rest = b.sub(x, b.mul(quotient, divisor))
            none = ir.Constant(x.type, 0)
            move = b.icmp_unsigned("!=", rest, none)
            if signed:
                apart = b.icmp_signed("<", b.xor(rest, divisor), none)
                move = b.and_(move, apart if rounding == "negative_inf" else b.not_(apart))
            by = b.zext(move, x.type)
            quotient = b.sub(quotient, by) if rounding == "negative_inf" else b.add(quotient, by)
        return b.select(zero, ir.Constant(x.type, 0), quotient)

    return build


def _remainder(signed: bool) -> Build:
    def build(b: Any, x: Any, y: Any) -> Any:
        divisor, zero = _safe(b, x, y, signed)
        rest = b.srem(x, divisor) if signed else b.urem(x, divisor)
        return b.select(zero, x, rest)

    return build


for _signed, _letter in ((True, "s"), (False, "u")):
    globals()[f"{_letter}div"] = binary(_divide(_signed, "zero"))
    globals()[f"{_letter}div_floor"] = binary(_divide(_signed, "negative_inf"))
    globals()[f"{_letter}div_ceil"] = binary(_divide(_signed, "positive_inf"))
    globals()[f"{_letter}rem"] = binary(_remainder(_signed))


def _mulhi(b: Any, x: Any, y: Any) -> Any:
    wide = ir.IntType(x.type.width * 2)
    product = b.mul(b.zext(x, wide), b.zext(y, wide))
    return b.trunc(b.lshr(product, ir.Constant(wide, x.type.width)), x.type)


mulhi = binary(_mulhi)
udiv_by = binary(lambda b, x, n: b.udiv(x, n))
"""A position divided by a number that is not zero."""
urem_by = binary(lambda b, x, n: b.urem(x, n))
