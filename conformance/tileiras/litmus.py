"""Litmus tests on a GPU: many instances of a test in one launch, and the outcome of each.

Blocks are numbered anew by a permutation, or as the hardware does. The block that plays role r of
instance i is number i * roles + r, or that of an instance further on; the blocks behind those of
the test stress memory beside it. Those of an instance may stress it too, and then meet (a bounded
spin on a relaxed counter) and wait for a little while each, by role and instance, before the test
begins: every operation of the test takes a token from there, which orders no two of them.

Source: Kirkham, Sorensen, Tureci, Martonosi, "Foundations of Empirical Memory Consistency Testing"
(OOPSLA 2020), and Levine et al., "MC Mutants" (ASPLOS 2023), for what to vary.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import islice
from random import Random

import numpy as np
from numpy.typing import NDArray
from reftile.conformance.backend import Diagnosed, Unsupported
from reftile.conformance.litmus_tile.outcomes import (
    ABSENT,
    asked_registers,
    asks_for_poison,
    count_outcomes,
    filled,
)
from reftile.conformance.litmus_tile.write import Inexpressible, Writer, kernel_name
from reftile.conformance.stress import StressConfig, mutants, random_config
from reftile.conformance.suites.litmus import Question, questions
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
NUMBERS: tuple[str, ...] = tuple(
    "step instances moved tries factor first rounds warm pattern lines line late".split()
)
"""The numbers that kernels are given behind their memory.

step: elements between two instances. moved: instances that a role is moved by. tries: how often
blocks look for the others of their instance. factor, first: the permutation of blocks. rounds,
warm: turns of stress, of the blocks beside the test and of those of the test. pattern: bit 0, the
first access of a turn stores; bit 1, the second does. lines, line: how many are stressed, and
elements from one to the next. late: most looks at the meeting after it.
"""
STRESS_ELEMENTS = 1 << 14
MOST_STRESSING, MOST_ROUNDS = 512, 256
PRIMES = (3011, 4019, 5003, 7001, 9001, 10007)
"""Factors of permutations: more than there are blocks, so that they have no divisor in common."""
SETTINGS = 8
"""Ways to stress the machine that a test is tried under."""
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

        Arguments: the buffers; what registers held; the counters of meetings; the memory to stress;
        then NUMBERS.
        """
        self.lines, self.count, self.indent = [], 0, "  "
        size = {b.name: f"i{8 * b.element_size}" for b in self.program.buffers}
        pointers = [f"%{name}_all: tile<ptr<{dtype}>>" for name, dtype in size.items()]
        numbers = [f"%{name}: tile<i32>" for name in NUMBERS]
        more = [f"%out_all: tile<ptr<{self.int}>>", "%meet_all: tile<ptr<i32>>"]
        more.append("%stress_all: tile<ptr<i32>>")
        blocks = [b for b in self.program.blocks if b.launch == launch]
        roles = self.define(f"constant {{value = {len(blocks)}}}", "tile<i32>")
        block = self._number()
        testing = self.define(f"muli {roles}, %instances", "tile<i32>")
        less = "{predicate = less_than, signedness = signed}"
        is_testing = self.define(f"cmpi {block}, {testing} {less}", "tile<i1>")
        turns = self.define(f"select {is_testing}, %warm, %rounds", "tile<i32>")
        stressed = self._stress(block, turns)
        self.emit(f"if {is_testing} then {{")
        first = self.define(
            f"divi {block}, {roles} {{signedness = unsigned, rounding = zero}}", "tile<i32>"
        )
        role = self.define(f"remi {block}, {roles} {{signedness = unsigned}}", "tile<i32>")
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
        self.start = self.meet("%meet", roles, "%tries", stressed)
        self._wait(role, instance)
        self.branches(blocks, role)
        self.emit("yield")
        self.emit("}")
        return self.finished(launch, ", ".join([*pointers, *more, *numbers]))

    def _number(self) -> str:
        """The number of the block after the permutation b * factor + first mod the blocks."""
        self.emit("%b, %b1, %b2 = get_tile_block_id : tile<i32>, tile<i32>, tile<i32>")
        self.emit("%n, %n1, %n2 = get_num_tile_blocks : tile<i32>, tile<i32>, tile<i32>")
        far = self.define("muli %b, %factor", "tile<i32>")
        far = self.define(f"addi {far}, %first", "tile<i32>")
        return self.define(f"remi {far}, %n {{signedness = unsigned}}", "tile<i32>")

    def _stress(self, block: str, turns: str) -> str:
        """Store to and load from one of the lines, some turns long; the token at the end of it."""
        which = self.define(f"remi {block}, %lines {{signedness = unsigned}}", "tile<i32>")
        at = self.define(f"muli {which}, %line", "tile<i32>")
        self.emit(f"%stress = offset %stress_all, {at} : tile<ptr<i32>>")
        zero, one = self._constant(0), self._constant(1)
        token = self.define("make_token", "token")
        how = "ordering = relaxed, scope = device"
        equal = "{predicate = equal, signedness = signed}"
        stores = [self._bit(bit) for bit in (1, 2)]
        self.emit(f"%turns, %held, %stressed = loop {zero}, {zero}, {token}")
        self.lines[-1] += " : tile<i32>, tile<i32>, token"
        self.lines[-1] += " body(%turn: tile<i32>, %value: tile<i32>, %before: token) {"
        self.emit(f"  %enough = cmpi %turn, {turns} {equal} : tile<i1>")
        self.emit("  if %enough then {")
        self.emit("    break %turn, %value, %before")
        self.emit("  }")
        value, before = "%value", "%before"
        for number, is_store in enumerate(stores):
            names = f"%value{number}, %after{number}"
            self.emit(f"  {names} = if {is_store} : tile<i32>, token then {{")
            store = f"store_ptr_tko %stress, {value}, token={before} {{{how}}}"
            self.emit(f"    %stored{number} = {store} : token")
            self.emit(f"    %next{number} = addi {value}, {one} : tile<i32>")
            self.emit(f"    yield %next{number}, %stored{number}")
            self.emit("  } otherwise {")
            load = f"load_ptr_tko %stress, token={before} {{{how}}}"
            self.emit(f"    %loaded{number}, %got{number} = {load} : tile<i32>, token")
            self.emit(f"    %more{number} = addi %loaded{number}, {one} : tile<i32>")
            self.emit(f"    yield %more{number}, %got{number}")
            self.emit("  }")
            value, before = f"%value{number}", f"%after{number}"
        self.emit(f"  %turned = addi %turn, {one} : tile<i32>")
        self.emit(f"  continue %turned, {value}, {before}")
        self.emit("}")
        # What was loaded is used, so that loads are not left out.
        self.emit(f"%kept = store_ptr_tko %stress, %held, token=%stressed {{{how}}} : token")
        return "%kept"

    def _bit(self, bit: int) -> str:
        """Whether the pattern has a bit."""
        part = self.define(f"andi %pattern, {self._constant(bit)}", "tile<i32>")
        unequal = "{predicate = not_equal, signedness = signed}"
        return self.define(f"cmpi {part}, {self._constant(0)} {unequal}", "tile<i1>")

    def _constant(self, value: int) -> str:
        return self.define(f"constant {{value = {value}}}", "tile<i32>")

    def _wait(self, role: str, instance: str) -> None:
        """Look at the meeting again, as often as role and instance say: 0 to %late times."""
        far = self.define(f"muli {role}, {self._constant(7)}", "tile<i32>")
        far = self.define(f"addi {far}, {self._constant(1)}", "tile<i32>")
        far = self.define(f"muli {far}, {instance}", "tile<i32>")
        some = self.define(f"addi %late, {self._constant(1)}", "tile<i32>")
        times = self.define(f"remi {far}, {some} {{signedness = unsigned}}", "tile<i32>")
        how = "ordering = relaxed, scope = device"
        equal = "{predicate = equal, signedness = signed}"
        zero, one = self._constant(0), self._constant(1)
        self.emit(f"%waits, %waited_for = loop {zero}, {self.start} : tile<i32>, token")
        self.lines[-1] += " body(%delay: tile<i32>, %came_from: token) {"
        self.emit(f"  %over = cmpi %delay, {times} {equal} : tile<i1>")
        self.emit("  if %over then {")
        self.emit("    break %delay, %came_from")
        self.emit("  }")
        load = f"load_ptr_tko %meet, token=%came_from {{{how}}}"
        self.emit(f"  %look, %looked = {load} : tile<i32>, token")
        self.emit(f"  %delay1 = addi %delay, {one} : tile<i32>")
        self.emit("  continue %delay1, %looked")
        self.emit("}")
        self.start = "%waited_for"

    def block(self, block: Block) -> None:
        """The operations of a block, and its report."""
        super().block(block)
        self._report()

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
    if program.exists is not None and asks_for_poison(program.exists):
        raise Unsupported("the test asks for poison, and compiled code has none")
    outputs = asked_registers(program)
    launches = sorted({b.launch for b in program.blocks})
    writer = HarnessWriter(test, outputs)
    try:
        texts = tuple((writer.kernel(n), kernel_name(test.name, n)) for n in launches)
    except Inexpressible as error:
        raise Unsupported(f"not a tile kernel: {error}") from None
    roles = tuple(sum(b.launch == n for b in program.blocks) for n in launches)
    return Harness(test, texts, roles, outputs, 8 if writer.int == "i64" else 4)


def questions_of(filter: str) -> list[Question]:
    """The tests without a race whose id contains a regular expression."""
    return [q for q in questions() if re.search(filter, q.id) and not q.test.expected.race]


def question_bytecodes(question: Question) -> Iterator[bytes]:
    """The bytecode of a test, and of its mutants if it needs them."""
    tests = [question.test]
    if question.test.expected.outcome == "forbid":
        tests += [mutant for _, mutant in islice(mutants(question.test), MUTANTS)]
    for test in tests:
        try:
            yield from (to_bytecode(*one) for one in harness(test).texts)
        except (Unsupported, Diagnosed):
            continue


# Running


@dataclass(frozen=True)
class Setting:
    """How some launches are stressed: blocks beside the test, and the numbers of each launch."""

    step: int
    stressing: int
    numbers: tuple[Mapping[str, int], ...]


PLAIN = {"moved": 0, "tries": MEETING_TRIES, "factor": 1, "first": 0, "rounds": 0, "warm": 0}
PLAIN |= {"pattern": 1, "lines": 1, "line": 1, "late": 0}
"""No stress, and blocks as the hardware numbers them."""


def settings(seed: int, launches: int) -> Iterator[Setting]:
    """Ways to stress a test, the plain one first, each `launches` long; the same for a seed."""
    for number in range(SETTINGS):
        step = STEPS[number % len(STEPS)]
        random = Random(f"tileiras {seed} {number}")
        if number == 0:
            each = [PLAIN | {"moved": moved(n)} for n in range(launches)]
            yield Setting(step, 0, tuple(each))
            continue
        config = random_config(seed * SETTINGS + number)
        stressing = min(config.most_blocks - config.testing_blocks, MOST_STRESSING)
        numbers = tuple(_numbers(config, random) for _ in range(launches))
        yield Setting(step, max(stressing, 1), numbers)


def _numbers(config: StressConfig, random: Random) -> dict[str, int]:
    """What happens in one launch, as `StressConfig` says how often it does."""

    def happens(percent: int) -> bool:
        return random.random() * 100 < percent

    first, second = config.stress_pattern.split("-")
    line = max(config.stress_line // 4, 1)
    is_shuffled = happens(config.shuffle)
    return {
        "moved": random.choice((0, 0, 0, 1, random.randrange(INSTANCES))),
        "tries": MEETING_TRIES if happens(max(config.barrier, 50)) else 0,
        "factor": random.choice(PRIMES) if is_shuffled else 1,
        "first": random.randrange(1 << 10) if is_shuffled else 0,
        "rounds": min(config.stress_iterations, MOST_ROUNDS) if happens(config.stress) else 0,
        "warm": config.prestress_iterations if happens(config.prestress) else 0,
        "pattern": (first == "store") + 2 * (second == "store"),
        "lines": min(config.stress_targets, STRESS_ELEMENTS // line),
        "line": line,
        "late": random.choice((0, 0, 1, 3, 7, 15)),
    }


def litmus_parameters(
    found: Harness, instances: int, step: int, numbers: Mapping[str, int] = PLAIN
) -> Iterator[Memory | Parameter]:
    """The arguments of the kernels: `step` elements of each buffer for each instance."""
    for data in filled(found.test.program, instances, step):
        yield Memory(data)
    absent = np.full(instances * max(len(found.outputs), 1), ABSENT, f"<i{found.width}")
    yield Memory(absent.view(np.uint8))
    yield Memory(np.zeros(4 * instances, np.uint8))
    yield Memory(np.zeros(4 * STRESS_ELEMENTS, np.uint8))
    given = {**numbers, "step": step, "instances": instances}
    for name in NUMBERS:
        yield Parameter(number_of(given[name]))


def number_of(value: int) -> bytes:
    """A number as a parameter of the kernels."""
    return value.to_bytes(4, "little")


def variation(found: Harness, numbers: Mapping[str, int]) -> dict[int, bytes]:
    """The parameters of one launch by their place."""
    first = len(found.test.program.buffers) + 3
    return {first + NUMBERS.index(name): number_of(value) for name, value in numbers.items()}


def moved(launch: int) -> int:
    """How far a role is moved in a launch: mostly not at all, which keeps an instance together."""
    return 0 if launch % 4 else launch % 61


def count_hits(found: Harness, memories: Sequence[NDArray[np.uint8]], step: int) -> int:
    """In how many instances the outcome that the test asks for was seen.

    memories: the buffers, then what registers held, as `litmus_parameters` made them.
    """
    count = len(found.test.program.buffers)
    width = max(len(found.outputs), 1)
    results = memories[count].view(f"<i{found.width}").astype(np.int64).reshape(-1, width)
    program = found.test.program
    return count_outcomes(program, found.outputs, memories[:count], results, step)[1]
