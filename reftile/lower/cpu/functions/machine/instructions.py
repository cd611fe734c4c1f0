# pyright: basic, reportAttributeAccessIssue=false, reportCallIssue=false
# pyright: reportGeneralTypeIssues=false, reportOptionalMemberAccess=false
# pyright: reportPrivateImportUsage=false, reportArgumentType=false
# numba has no types for what it passes to intrinsics.
"""What instructions are made of: kinds of numbers, and functions of one to three operands."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from llvmlite import ir
from numba import types
from numba.core import cgutils
from numba.extending import intrinsic

BASE = types.CPointer(types.uint8)
KINDS = {
    "b1": types.boolean,
    "i8": types.int8,
    "i16": types.int16,
    "i32": types.int32,
    "i64": types.int64,
    "f32": types.float32,
    "f64": types.float64,
}
LLVM = {
    "b1": ir.IntType(1),
    "i8": ir.IntType(8),
    "i16": ir.IntType(16),
    "i32": ir.IntType(32),
    "i64": ir.IntType(64),
    "f32": ir.FloatType(),
    "f64": ir.DoubleType(),
}
BYTE = ir.IntType(8)

Build = Callable[..., Any]


def unary(build: Build, result: Any = None) -> Any:
    """A function of one operand. result: its numba type, that of the operand if not given."""

    @intrinsic
    def function(typingctx, a):
        out = result or a

        def generate(context, builder, signature, args):
            return build(builder, *args)

        return out(a), generate

    return function


def binary(build: Build, result: Any = None) -> Any:
    """A function of two operands. result: its numba type, that of the first if not given."""

    @intrinsic
    def function(typingctx, a, b):
        def generate(context, builder, signature, args):
            return build(builder, *args)

        return (result or a)(a, b), generate

    return function


def ternary(build: Build, result: Any = None) -> Any:
    """A function of three operands. result: its numba type, that of the first if not given."""

    @intrinsic
    def function(typingctx, a, b, c):
        def generate(context, builder, signature, args):
            return build(builder, *args)

        return (result or a)(a, b, c), generate

    return function


def call(name: str) -> Build:
    """Call the LLVM intrinsic `name` on operands of one type."""

    def build(builder: Any, *args: Any) -> Any:
        kind = args[0].type
        full = f"{name}.{suffix(kind)}"
        signature = ir.FunctionType(kind, [a.type for a in args])
        return builder.call(cgutils.get_or_insert_function(builder.module, signature, full), args)

    return build


def suffix(kind: Any) -> str:
    """How names of LLVM's intrinsics end for an LLVM type."""
    if isinstance(kind, ir.IntType):
        return f"i{kind.width}"
    return {"float": "f32", "double": "f64"}[str(kind)]


@intrinsic
def choose(typingctx, condition, x, y):
    """X where the condition holds, else y; both are computed."""

    def generate(context, builder, signature, args):
        return builder.select(*args)

    return x(condition, x, y), generate
