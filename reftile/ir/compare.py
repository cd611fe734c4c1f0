"""Structural equality of kernels: operations, types, attributes and uses; not names or spans."""

from __future__ import annotations

from reftile.ir.core import Block, Kernel, Module, Op, Value


def same(left: Module | Kernel, right: Module | Kernel) -> bool:
    """True if the two have the same structure."""
    if isinstance(left, Module) and isinstance(right, Module):
        return (
            left.name == right.name
            and len(left.kernels) == len(right.kernels)
            and len(left.globals) == len(right.globals)
            and all(_same_op(a, b, {}) for a, b in zip(left.globals, right.globals, strict=True))
            and all(same(a, b) for a, b in zip(left.kernels, right.kernels, strict=True))
        )
    if isinstance(left, Kernel) and isinstance(right, Kernel):
        return (
            (left.name, left.level) == (right.name, right.level)
            and left.argument_attributes == right.argument_attributes
            and left.attributes == right.attributes
            and _same_block(left.body.block, right.body.block, {})
        )
    return False


def _same_block(left: Block, right: Block, values: dict[Value, Value]) -> bool:
    if [a.type for a in left.arguments] != [a.type for a in right.arguments]:
        return False
    values.update(zip(left.arguments, right.arguments, strict=True))
    return len(left.ops) == len(right.ops) and all(
        _same_op(a, b, values) for a, b in zip(left.ops, right.ops, strict=True)
    )


def _same_op(left: Op, right: Op, values: dict[Value, Value]) -> bool:
    if type(left) is not type(right) or left.attributes != right.attributes:
        return False
    shape = [len(a) if isinstance(a, tuple) else a is None for a in left.arguments]
    if shape != [len(a) if isinstance(a, tuple) else a is None for a in right.arguments]:
        return False
    if [values.get(v, v) for v in left.operands] != list(right.operands):
        return False
    if [r.type for r in left.results] != [r.type for r in right.results]:
        return False
    values.update(zip(left.results, right.results, strict=True))
    return len(left.regions) == len(right.regions) and all(
        _same_block(a.block, b.block, values)
        for a, b in zip(left.regions, right.regions, strict=True)
    )
