"""Remove pure operations whose results nobody uses."""

from __future__ import annotations

from reftile.ir.core import Block, Kernel, Op, Value


def drop_unused(kernel: Kernel) -> None:
    """Drop them all: walking backwards shows every use before what it uses."""
    _drop(kernel.body.block, set())


def _drop(block: Block, used: set[Value]) -> None:
    kept: list[Op] = []
    for op in reversed(block.ops):
        if op.definition.is_pure and not any(r in used for r in op.results):
            continue
        for region in reversed(op.regions):
            _drop(region.block, used)
        used.update(op.operands)
        kept.append(op)
    block.ops = kept[::-1]
