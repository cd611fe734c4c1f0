"""Compute what is known, and divide by powers of two with shifts; drop what nobody uses.

Needs: a `simt` kernel. Leaves: one of the same meaning. ptxas divides by constants in full length
(seen with 13.0), so the divisions of tile numbers by group sizes are made cheap here.

Before:

    simt kernel @count(%o: tile<ptr<i32>>, %n: tile<i32>) attributes {
        target = "sm_80", warps = 1, shared_bytes = 0} {
      %sixteen = constant {value = 16} : tile<i32>
      %two = constant {value = 2} : tile<i32>
      %eight = muli %two, %sixteen : tile<i32>
      %group = divi %n, %sixteen {signedness = unsigned} : tile<i32>
      %old, %s = atomic_inc_wrap_tko %o, %group {ordering = relaxed, scope = device} :
        tile<i32>, token
      return }

After:

    simt kernel @count(%o: tile<ptr<i32>>, %n: tile<i32>) attributes {
      target = "sm_80", warps = 1, shared_bytes = 0} {
      %0 = constant {value = 4} : tile<i32>
      %group = shri %n, %0 {signedness = unsigned} : tile<i32>
      %old, %s = atomic_inc_wrap_tko %o, %group {ordering = relaxed, scope = device} :
        tile<i32>, token
      return }
"""

from __future__ import annotations

from collections.abc import Callable

from reftile.ir import ops
from reftile.ir.core import Block, Kernel, Op, Value
from reftile.ir.types import TileType
from reftile.lower.constants import constant_int, constant_op
from reftile.lower.drop_unused import drop_unused


def fold_constants(kernel: Kernel, target: str) -> Kernel:
    """Fold integer scalars, then remove pure operations without uses."""
    _fold(kernel.body.block, {})
    drop_unused(kernel)
    return kernel


_FOLDERS: dict[str, Callable[[int, int], int]] = {
    "addi": lambda a, b: a + b,
    "subi": lambda a, b: a - b,
    "muli": lambda a, b: a * b,
    "andi": lambda a, b: a & b,
    "ori": lambda a, b: a | b,
    "xori": lambda a, b: a ^ b,
    "mini": min,
    "maxi": max,
}
_NEUTRAL = {"addi": 0, "subi": 0, "muli": 1, "xori": 0, "ori": 0}
_KNOWN = frozenset({*_FOLDERS, "divi", "remi"})
_COMMUTATIVE = frozenset({"addi", "muli", "andi", "ori", "xori"})


def _fold(block: Block, mapping: dict[Value, Value]) -> None:
    result: list[Op] = []
    for op in block.ops:
        op.replace_operands(mapping)
        for region in op.regions:
            _fold(region.block, mapping)
        made = _known(op) if op.name in _KNOWN else [op]
        if isinstance(made, Value):
            mapping[op.results[0]] = made
            continue
        for new in made:
            new.span, new.parent = op.span, block
        result += made
        if made and made[-1] is not op:
            mapping[op.results[0]] = made[-1].results[0]
    block.ops = result


def _known(op: Op) -> Value | list[Op]:
    """The value that `op` computes, or operations to stand in its place."""
    kind = op.results[0].type if len(op.results) == 1 else None
    if not isinstance(kind, TileType) or kind.shape or len(op.operands) != 2:
        return [op]
    lhs, rhs = op.operands
    a, b = constant_int(lhs), constant_int(rhs)
    is_unsigned = op.attributes.get("signedness") == "unsigned"
    rounds = op.attributes.get("rounding", "zero")
    if a is not None and b is not None:
        if op.name in _FOLDERS and not is_unsigned:
            return [constant_op(_FOLDERS[op.name](a, b), lhs, op.results[0].name)]
        if op.name in ("divi", "remi") and a >= 0 and b > 0:
            quotient = -(-a // b) if rounds == "positive_inf" else a // b
            value = quotient if op.name == "divi" else a % b
            return [constant_op(value, lhs, op.results[0].name)]
    if b is not None and b == _NEUTRAL.get(op.name):
        return lhs
    if a is not None and op.name in _COMMUTATIVE and a == _NEUTRAL.get(op.name):
        return rhs
    is_down = is_unsigned and rounds == "zero"
    if b is not None and is_down and b > 0 and b & (b - 1) == 0:
        return _by_power_of_two(op, lhs, b)
    return [op]


def _by_power_of_two(op: Op, lhs: Value, divisor: int) -> Value | list[Op]:
    names, types = (op.results[0].name,), (op.results[0].type,)
    if op.name == "remi":
        mask = constant_op(divisor - 1, lhs)
        return [mask, ops.Andi((lhs, mask.results[0]), types, {}, names=names)]
    if op.name == "divi":
        if divisor == 1:
            return lhs
        count = constant_op(divisor.bit_length() - 1, lhs)
        unsigned = {"signedness": "unsigned"}
        return [count, ops.Shri((lhs, count.results[0]), types, dict(unsigned), names=names)]
    return [op]
