"""Make the kernel of a failure smaller: take operations out for as long as it still fails."""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Callable
from dataclasses import replace

from reftile.conformance.fuzz.copying import copy_kernel
from reftile.conformance.fuzz.oracles import (
    PROGRAM,
    Failure,
    Settings,
    check_program,
    check_races,
)
from reftile.conformance.fuzz.program import Program
from reftile.conformance.fuzz.races import examine

from reftile.ir import ops
from reftile.ir.attributes import Dense
from reftile.ir.core import Kernel, Op, Value
from reftile.ir.dtypes import DType
from reftile.ir.types import TOKEN, TileType
from reftile.ir.verify import diagnose

KEPT = frozenset({"constant", "make_token"})
"""Operations that are not replaced by simpler ones; they go when nothing uses them."""
Fails = Callable[[Kernel], bool]


def reduce_failure(program: Program, failure: Failure, seconds: float) -> Kernel:
    """The smallest kernel found that fails in the same way."""
    kernel = failure.kernel or program.kernel
    test = _still_fails(program, failure.oracle)
    if failure.oracle == "same_bits" or test is None or not _try(test, kernel):
        return kernel
    return reduce_kernel(kernel, test, seconds)


def reduce_kernel(kernel: Kernel, fails: Fails, seconds: float) -> Kernel:
    """Take out what is not needed for `fails` to hold, within some time."""
    end = time.monotonic() + seconds
    changed = True
    while changed:
        changed = False
        number = sum(1 for _ in kernel.walk()) - 1
        while number >= 0:
            if time.monotonic() > end:
                return kernel
            smaller = _without(kernel, number)
            if smaller is not None and not diagnose(smaller) and _try(fails, smaller):
                kernel, changed = smaller, True
            number = min(number, sum(1 for _ in kernel.walk())) - 1
    return kernel


def _try(fails: Fails, kernel: Kernel) -> bool:
    try:
        return fails(kernel)
    except Exception:
        return False


def _still_fails(program: Program, oracle: str) -> Fails | None:
    """A test that a kernel breaks an oracle as the program did."""

    def test(kernel: Kernel) -> bool:
        try:
            if oracle == "twins":
                found = examine(kernel, program.buffers, program.scalars, program.grid)
                check_races(program, kernel, found, [PROGRAM], Counter(), oracle)
            else:
                check_program(replace(program, kernel=kernel), Counter(), Settings(only=oracle))
        except Failure as failure:
            return failure.oracle == oracle
        return False

    return test


def _without(kernel: Kernel, number: int) -> Kernel | None:
    """A copy without the operation of a number, or with something simpler in its place."""
    copy = copy_kernel(kernel)
    op = list(copy.walk())[number]
    block = op.parent
    if block is None or op.definition.is_terminator:
        return None
    used = {v for other in copy.walk() for v in other.operands}
    needed = [r for r in op.results if r in used]
    if needed and op.name in KEPT:
        return None
    mapping: dict[Value, Value] = {}
    for result in needed:
        found = _instead(op, result)
        if found is None:
            return None
        if isinstance(found, Op):
            block.insert_before(op, found)
            found = found.results[0]
        mapping[result] = found
    block.ops.remove(op)
    for other in copy.walk():
        other.replace_operands(mapping)
    return copy


def _instead(op: Op, result: Value) -> Op | Value | None:
    """Something simpler with the type of a result: an operand of the operation, or a literal."""
    for operand in reversed(op.operands):
        if operand.type == result.type:
            return operand
    if result.type == TOKEN:
        return ops.MakeToken((), (TOKEN,))
    if isinstance(result.type, TileType) and isinstance(result.type.element, DType):
        return ops.Constant((), (result.type,), {"value": Dense.of_bits([0], result.type)})
    return None
