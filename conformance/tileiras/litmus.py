"""Litmus tests on a GPU: many instances of a test in one launch, and the outcome of each.

The block that plays role r of instance i is number i * roles + r, or lies a permutation further, so
that the blocks of an instance run at the same time. They meet before the test begins (a bounded
spin on a relaxed counter): every operation of the test takes a token from that meeting, which
orders no two of them.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import islice

import numpy as np
from numpy.typing import NDArray
from reftile.conformance.backend import Diagnosed, Unsupported
from reftile.conformance.litmus_tile.outcomes import (
    ABSENT,
    asked_registers,
    count_outcomes,
    filled,
)
from reftile.conformance.litmus_tile.write import Inexpressible, Writer, kernel_name
from reftile.conformance.stress import mutants
from reftile.conformance.suites.litmus import questions
from reftile.conformance.tileiras.compiler import to_bytecode
from reftile.conformance.tileiras.device import Memory, Parameter

from reftile.interp.model.events import Block
from reftile.interp.model.litmus import LitmusTest

MEETING_TRIES = 400
"""How often a block looks for the others of its instance before it goes on without them."""
INSTANCES = 256
"""Of a test in a launch: few enough that the blocks of four roles are all resident."""
STEPS = (8, 32, 72)
"""Elements between the places of two instances."""
MUTANTS = 6
"""Mutants of a test that are compiled; enough that one shows the outcome, if any does."""


@dataclass(frozen=True)
class Harness:
    """A litmus test as kernels that run many instances of it.

    texts: (text, kernel) of each launch. roles: blocks of an instance in each launch. outputs: the
    registers that a kernel stores, in their order; width: their bytes.
    """

    test: LitmusTest
    texts: tuple[tuple[str, str], ...]
    roles: tuple[int, ...]
    outputs: tuple[str, ...]
    width: int


class HarnessWriter(Writer):
    """Writes the kernels with their instances."""

    absent = ABSENT

    def __init__(self, test: LitmusTest, outputs: tuple[str, ...]) -> None:
        super().__init__(test)
        self.outputs = outputs

    def kernel(self, launch: int) -> str:
        """The kernel of one launch.

        Arguments: the buffers; what registers held; the counters of meetings; elements between two
        instances; instances; how far a role is moved.
        """
        self.lines, self.count, self.indent = [], 0, "  "
        size = {b.name: f"i{8 * b.element_size}" for b in self.program.buffers}
        pointers = [f"%{name}_all: tile<ptr<{dtype}>>" for name, dtype in size.items()]
        numbers = [f"%{name}: tile<i32>" for name in ("step", "instances", "moved")]
        more = [f"%out_all: tile<ptr<{self.int}>>", "%meet_all: tile<ptr<i32>>"]
        blocks = [b for b in self.program.blocks if b.launch == launch]
        roles = self.define(f"constant {{value = {len(blocks)}}}", "tile<i32>")
        self.emit("%b, %b1, %b2 = get_tile_block_id : tile<i32>, tile<i32>, tile<i32>")
        first = self.define(
            f"divi %b, {roles} {{signedness = unsigned, rounding = zero}}", "tile<i32>"
        )
        role = self.define(f"remi %b, {roles} {{signedness = unsigned}}", "tile<i32>")
        shift = self.define(f"muli {role}, %moved", "tile<i32>")
        sum = self.define(f"addi {first}, {shift}", "tile<i32>")
        instance = self.define(f"remi {sum}, %instances {{signedness = unsigned}}", "tile<i32>")
        place = self.define(f"muli {instance}, %step", "tile<i32>")
        for name, dtype in size.items():
            self.emit(f"%{name} = offset %{name}_all, {place} : tile<ptr<{dtype}>>")
        each = self.define(f"constant {{value = {max(len(self.outputs), 1)}}}", "tile<i32>")
        line = self.define(f"muli {instance}, {each}", "tile<i32>")
        self.emit(f"%out = offset %out_all, {line} : tile<ptr<{self.int}>>")
        self.emit(f"%meet = offset %meet_all, {instance} : tile<ptr<i32>>")
        self._meet(roles)
        self.branches(blocks, role)
        return self.finished(launch, ", ".join([*pointers, *more, *numbers]))

    def block(self, block: Block) -> None:
        """The operations of a block, and its report."""
        super().block(block)
        self._report()

    def _meet(self, roles: str) -> None:
        one = self.define("constant {value = 1}", "tile<i32>")
        zero = self.define("constant {value = 0}", "tile<i32>")
        most = self.define(f"constant {{value = {MEETING_TRIES}}}", "tile<i32>")
        how = "ordering = relaxed, scope = device"
        add = f"atomic_rmw_tko %meet, {one} {{{how}, mode = add}}"
        self.emit(f"%came, %arrived = {add} : tile<i32>, token")
        self.emit(f"%tries, %start = loop {zero}, %arrived : tile<i32>, token")
        self.lines[-1] += " body(%n: tile<i32>, %waited: token) {"
        load = f"load_ptr_tko %meet, token=%waited {{{how}}}"
        self.emit(f"  %there, %seen = {load} : tile<i32>, token")
        least = "{predicate = greater_than_or_equal, signedness = signed}"
        self.emit(f"  %all = cmpi %there, {roles} {least} : tile<i1>")
        self.emit(f"  %late = cmpi %n, {most} {least} : tile<i1>")
        self.emit("  %go = ori %all, %late : tile<i1>")
        self.emit("  if %go then {")
        self.emit("    break %n, %seen")
        self.emit("  }")
        self.emit(f"  %more = addi %n, {one} : tile<i32>")
        self.emit("  continue %more, %seen")
        self.emit("}")
        self.start = "%start"

    def is_used(self, register: str) -> bool:
        """Whether an expression, or the outcome, needs the register."""
        return register in self.outputs or super().is_used(register)

    def _report(self) -> None:
        """Store what the block's registers hold."""
        for register, scalar in list(self.registers.items()):
            if register not in self.outputs:
                continue
            at = self.define(f"constant {{value = {self.outputs.index(register)}}}", "tile<i32>")
            place = self.define(f"offset %out, {at}", f"tile<ptr<{self.int}>>")
            self.define(f"store_ptr_tko {place}, {scalar.name} {{ordering = weak}}", "token")


def harness(test: LitmusTest) -> Harness:
    """The kernels that run a test.

    Raises:
        Unsupported: it needs several devices, or says what a tile kernel cannot.
    """
    program = test.program
    if len({b.device for b in program.blocks}) > 1:
        raise Unsupported("the test needs several devices")
    outputs = asked_registers(program)
    launches = sorted({b.launch for b in program.blocks})
    writer = HarnessWriter(test, outputs)
    try:
        texts = tuple((writer.kernel(n), kernel_name(test.name, n)) for n in launches)
    except Inexpressible as error:
        raise Unsupported(f"not a tile kernel: {error}") from None
    roles = tuple(sum(b.launch == n for b in program.blocks) for n in launches)
    return Harness(test, texts, roles, outputs, 8 if writer.int == "i64" else 4)


def litmus_bytecodes(filter: str) -> Iterator[bytes]:
    """The bytecode of every test whose id contains a regular expression, and of its mutants."""
    for question in questions():
        if not re.search(filter, question.id) or question.test.expected.race:
            continue
        tests = [question.test]
        if question.test.expected.outcome == "forbid":
            tests += [mutant for _, mutant in islice(mutants(question.test), MUTANTS)]
        for test in tests:
            try:
                yield from (to_bytecode(*one) for one in harness(test).texts)
            except (Unsupported, Diagnosed):
                continue


# Running


def litmus_parameters(found: Harness, instances: int, step: int) -> Iterator[Memory | Parameter]:
    """The arguments of the kernels: `step` elements of each buffer for each instance."""
    for data in filled(found.test.program, instances, step):
        yield Memory(data)
    absent = np.full(instances * max(len(found.outputs), 1), ABSENT, f"<i{found.width}")
    yield Memory(absent.view(np.uint8))
    yield Memory(np.zeros(4 * instances, np.uint8))
    for number in (step, instances, 0):
        yield Parameter(number.to_bytes(4, "little"))


def moved_place(found: Harness) -> int:
    """Which of the arguments says how far a role is moved."""
    return len(found.test.program.buffers) + 4


def moved(launch: int) -> bytes:
    """How far a role is moved in a launch: mostly not at all, which keeps an instance together."""
    return (0 if launch % 4 else launch % 61).to_bytes(4, "little")


def count_hits(found: Harness, memories: Sequence[NDArray[np.uint8]], step: int) -> int:
    """In how many instances the outcome that the test asks for was seen.

    memories: the buffers, then what registers held, as `litmus_parameters` made them.
    """
    count = len(found.test.program.buffers)
    width = max(len(found.outputs), 1)
    results = memories[count].view(f"<i{found.width}").astype(np.int64).reshape(-1, width)
    program = found.test.program
    return count_outcomes(program, found.outputs, memories[:count], results, step)[1]
