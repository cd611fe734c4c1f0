"""Copies of operations with other operands."""

from __future__ import annotations

from collections.abc import Iterable

from reftile.ir.core import Block, Kernel, Op, Region, Value, map_arguments


def clone_op(op: Op, mapping: dict[Value, Value]) -> Op:
    """Return a copy of `op` that uses `mapping[v]` for `v`; its results are entered there."""
    arguments = map_arguments(op.arguments, mapping)
    regions = tuple([_clone_region(r, mapping) for r in op.regions])
    names = tuple([r.name for r in op.results])
    types = tuple([r.type for r in op.results])
    copy = type(op)(arguments, types, dict(op.attributes), regions, op.span, names)
    mapping.update(zip(op.results, copy.results, strict=True))
    return copy


def _clone_region(region: Region, mapping: dict[Value, Value]) -> Region:
    old = region.block
    block = Block(tuple(a.type for a in old.arguments), tuple(a.name for a in old.arguments))
    mapping.update(zip(old.arguments, block.arguments, strict=True))
    for op in old.ops:
        block.append(clone_op(op, mapping))
    return Region(block)


def clone_ops(ops: Iterable[Op], mapping: dict[Value, Value]) -> list[Op]:
    """Return copies of `ops`, which use one another."""
    return [clone_op(op, mapping) for op in ops]


def substitute(block: Block, mapping: dict[Value, Value]) -> None:
    """Use `mapping[v]` for `v` in all operations of `block`, nested ones too."""
    if mapping:
        for op in block.walk():
            op.replace_operands(mapping)


def clone_kernel(kernel: Kernel) -> Kernel:
    """Return a copy of a kernel that shares nothing with it that a pass may change."""
    return Kernel(
        kernel.name,
        _clone_region(kernel.body, {}),
        kernel.level,
        tuple(dict(a) for a in kernel.argument_attributes),
        dict(kernel.attributes),
        kernel.span,
        kernel.comments,
    )
