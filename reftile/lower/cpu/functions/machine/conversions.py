# pyright: basic, reportAttributeAccessIssue=false, reportCallIssue=false
# pyright: reportGeneralTypeIssues=false, reportOptionalMemberAccess=false
# pyright: reportPrivateImportUsage=false, reportArgumentType=false
# numba has no types for what it passes to intrinsics.
"""From one kind to another, and between numbers and their bits."""

from __future__ import annotations

from typing import Any

from llvmlite import ir
from numba import types
from numba.core import cgutils

from reftile.lower.cpu.functions.machine.instructions import KINDS, LLVM, Build, suffix, unary


def _resize(b: Any, x: Any, kind: Any, signed: bool) -> Any:
    if x.type.width < kind.width:
        return b.sext(x, kind) if signed else b.zext(x, kind)
    return b.trunc(x, kind) if x.type.width > kind.width else x


def _to_int(kind: Any, signed: bool) -> Build:
    def build(b: Any, x: Any) -> Any:
        return _resize(b, x, kind, signed)

    return build


def _saturated(bits: int, signed: bool, kind: Any) -> Build:
    def build(b: Any, x: Any) -> Any:
        narrow = ir.IntType(bits)
        name = f"llvm.fpto{'s' if signed else 'u'}i.sat.i{bits}.{suffix(x.type)}"
        signature = ir.FunctionType(narrow, [x.type])
        found = b.call(cgutils.get_or_insert_function(b.module, signature, name), [x])
        # A tile of 4-bit integers holds them sign-extended.
        return _resize(b, found, kind, True)

    return build


for _name, _type in KINDS.items():
    if _name[0] == "f":
        globals()[f"{_name}_of_signed"] = unary(lambda b, x, k=LLVM[_name]: b.sitofp(x, k), _type)
        globals()[f"{_name}_of_unsigned"] = unary(lambda b, x, k=LLVM[_name]: b.uitofp(x, k), _type)
        continue
    globals()[f"{_name}_of_signed"] = unary(_to_int(LLVM[_name], True), _type)
    globals()[f"{_name}_of_unsigned"] = unary(_to_int(LLVM[_name], False), _type)
for _bits, _name in ((1, "b1"), (4, "i8"), (8, "i8"), (16, "i16"), (32, "i32"), (64, "i64")):
    for _signed in (True, False):
        globals()[f"int{_bits}_of_float_{'signed' if _signed else 'unsigned'}"] = unary(
            _saturated(_bits, _signed, LLVM[_name]), KINDS[_name]
        )

widen = unary(lambda b, x: b.fpext(x, LLVM["f64"]), types.float64)
narrow = unary(lambda b, x: b.fptrunc(x, LLVM["f32"]), types.float32)
bits32 = unary(lambda b, x: b.bitcast(x, LLVM["i32"]), types.int32)
bits64 = unary(lambda b, x: b.bitcast(x, LLVM["i64"]), types.int64)
float32_of_bits = unary(lambda b, x: b.bitcast(x, LLVM["f32"]), types.float32)
float64_of_bits = unary(lambda b, x: b.bitcast(x, LLVM["f64"]), types.float64)
half_bits = unary(lambda b, x: b.bitcast(b.fptrunc(x, ir.HalfType()), ir.IntType(16)), types.int16)
float_of_half_bits = unary(
    lambda b, x: b.fpext(b.bitcast(x, ir.HalfType()), LLVM["f32"]), types.float32
)
round_f16 = unary(lambda b, x: b.fpext(b.fptrunc(x, ir.HalfType()), LLVM["f32"]))
