# pyright: basic, reportAttributeAccessIssue=false, reportCallIssue=false
# pyright: reportGeneralTypeIssues=false, reportOptionalMemberAccess=false
# pyright: reportPrivateImportUsage=false, reportArgumentType=false
# numba has no types for what it passes to intrinsics.
"""Floats: each operation rounds once, to nearest even."""

from __future__ import annotations

from numba import types

from reftile.lower.cpu.functions.machine.instructions import binary, call, ternary, unary

addf = binary(lambda b, x, y: b.fadd(x, y))
subf = binary(lambda b, x, y: b.fsub(x, y))
mulf = binary(lambda b, x, y: b.fmul(x, y))
divf = binary(lambda b, x, y: b.fdiv(x, y))
remf = binary(lambda b, x, y: b.frem(x, y))
negf = unary(lambda b, x: b.fneg(x))
absf = unary(call("llvm.fabs"))
sqrtf = unary(call("llvm.sqrt"))
ceilf = unary(call("llvm.ceil"))
floorf = unary(call("llvm.floor"))
truncf = unary(call("llvm.trunc"))
evenf = unary(call("llvm.roundeven"))
copysignf = binary(call("llvm.copysign"))
fmaf = ternary(call("llvm.fma"))
muladd = ternary(call("llvm.fmuladd"))
"""x * y + z, fused where that is one instruction: for approximations, not for results that are
defined to the bit."""
maxnum = binary(call("llvm.maximumnum"))
minnum = binary(call("llvm.minimumnum"))
maximum = binary(call("llvm.maximum"))
minimum = binary(call("llvm.minimum"))
addf_any_order = binary(lambda b, x, y: b.fadd(x, y, flags=("reassoc", "contract")))
"""A term of a sum whose order is free."""
mulf_any_order = binary(lambda b, x, y: b.fmul(x, y, flags=("reassoc",)))

_SIGNS = {"eq": "==", "ne": "!=", "lt": "<", "le": "<=", "gt": ">", "ge": ">="}
for _name, _sign in _SIGNS.items():
    globals()[f"f{_name}"] = binary(lambda b, x, y, s=_sign: b.fcmp_ordered(s, x, y), types.boolean)
    globals()[f"u{_name}"] = binary(
        lambda b, x, y, s=_sign: b.fcmp_unordered(s, x, y), types.boolean
    )
