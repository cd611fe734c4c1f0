"""Scalars of a kernel that the host computes before a launch: the grid."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from reftile.ir.attributes import Dense
from reftile.ir.core import Op, Value
from reftile.ir.diagnostics import fail

_COMPUTE: dict[str, Callable[[int, int], int]] = {
    "addi": lambda a, b: a + b,
    "subi": lambda a, b: a - b,
    "muli": lambda a, b: a * b,
    "mini": min,
    "maxi": max,
}


def evaluate_scalar(value: Value, arguments: Mapping[Value, Any]) -> int:
    """The number that a scalar of the prologue is, given the kernel's arguments.

    Raises:
        ReftileError: it is computed by something that the host does not do.
    """
    if value in arguments:
        return int(arguments[value])
    op = value.owner
    if isinstance(op, Op):
        dense = op.attributes.get("value")
        if op.name == "constant" and isinstance(dense, Dense):
            return int(dense.values().reshape(-1)[0])
        if op.name in ("divi", "remi"):
            over, by = (evaluate_scalar(v, arguments) for v in op.operands)
            return _divide(op, over, by)
        if op.name in _COMPUTE:
            lhs, rhs = (evaluate_scalar(v, arguments) for v in op.operands)
            return _COMPUTE[op.name](lhs, rhs)
    name = op.name if isinstance(op, Op) else "an argument"
    span = op.span if isinstance(op, Op) else None
    message = f"the grid cannot be computed on the host: it depends on `{name}`"
    hint = "extents of a grid are sums, products and quotients of arguments"
    raise fail("lang.pipe.grid", message, *([span] if span else []), hint=hint)


def _divide(op: Op, over: int, by: int) -> int:
    if not by:
        raise fail("lang.pipe.grid", "the grid divides by zero", op.span)
    quotient = over // by
    rounding = str(op.attributes.get("rounding", "zero"))
    if (rounding == "positive_inf" or (rounding == "zero" and quotient < 0)) and over % by:
        quotient += 1
    return quotient if op.name == "divi" else over - by * quotient
