"""Remove pure operations whose results nobody uses.

Before:

    simt kernel @count(%o: tile<ptr<i32>>, %n: tile<i32>) attributes {target = "sm_80", warps = 1} {
      %two = constant {value = 2} : tile<i32>
      %twice = muli %n, %two : tile<i32>
      %more = addi %twice, %two : tile<i32>
      %old, %s = atomic_inc_wrap_tko %o, %twice {ordering = relaxed, scope = device} :
        tile<i32>, token
      return }

After:

    simt kernel @count(%o: tile<ptr<i32>>, %n: tile<i32>) attributes {
      target = "sm_80", warps = 1} {
      %two = constant {value = 2} : tile<i32>
      %twice = muli %n, %two : tile<i32>
      %old, %s = atomic_inc_wrap_tko %o, %twice {ordering = relaxed, scope = device} :
        tile<i32>, token
      return }
"""

from __future__ import annotations

from reftile.ir.core import Block, Kernel, Op, Value


def drop_unused(kernel: Kernel) -> None:
    """Drop them all: walking backwards shows every use before what it uses."""
    _drop(kernel.body.block, set())


def _drop(block: Block, used: set[Value]) -> None:
    kept: list[Op] = []
    for op in reversed(block.ops):
        if op.definition.is_pure and used.isdisjoint(op.results):
            continue
        for region in reversed(op.regions):
            _drop(region.block, used)
        used.update(op.operands)
        kept.append(op)
    block.ops = kept[::-1]
