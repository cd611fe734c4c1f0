"""Litmus tests on the threads of a CPU: many instances of a test in one launch of a kernel.

    found = run_on_threads(test, StressConfig(iterations=100_000))

A launch has as many blocks as the test, or as there are processors, each on a thread of its own.
Each thread goes through a list of turns: in a turn it plays one block of one instance, some time
after meeting the other threads at that instance. Who plays what, when threads meet, how long they
wait, in which order instances come and how far they lie apart are drawn for every launch. Blocks
beyond the threads are played by a thread that has done its own, which the model cannot tell from
blocks that come late.

In some turns a thread stops between two operations until the others have played theirs. What
comes of orders of operations is seen that way on a machine of whatever load, and on one processor.
Threads wait for each other until they come: on a busy machine a launch takes longer, but as many
turns overlap.

A processor keeps what machine code says nearly in order (x86 lets loads overtake stores, and no
more). So a block is written in every order that its tokens and values leave open: the model knows
no other, and a compiler may choose any. That is how outcomes of missing tokens show.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from functools import cache, lru_cache
from itertools import islice
from typing import Any

import numpy as np
from numpy.typing import NDArray
from reftile.conformance.litmus_tile.outcomes import (
    ABSENT,
    asked_registers,
    asks_for_poison,
    count_outcomes,
    filled,
    forbidden,
    outcome_text,
)
from reftile.conformance.litmus_tile.write import (
    Inexpressible,
    Writer,
    kernel_name,
    needed_registers,
)
from reftile.conformance.stress import ENOUGH, Histogram, StressConfig

from reftile.interp.model.events import Block, Op
from reftile.interp.model.execution import Outcome
from reftile.interp.model.explore import explore
from reftile.interp.model.litmus import LitmusTest
from reftile.ir.core import Module
from reftile.ir.parse import parse
from reftile.ir.verify import verify
from reftile.rt.cpu import launch_cpu, thread_count
from reftile.rt.cpu.threads import processor_count

INSTANCES = 4096
"""Of a test in a launch; their memory stays in the caches, mostly."""
FEW_INSTANCES = 64
"""Of a test in a launch on one processor, where threads meet by giving way to each other."""
STEPS = (8, 32, 72)
"""Elements between the places of two instances: on one line, and on lines of their own."""
MOST_LOOKS = 1 << 24
"""How often a thread looks for the others before it goes on without them: for more of a
processor's time than others get one to themselves, so that on a busy machine it waits for them."""
MOST_ORDERS = 3
"""Orders in which a block is written, of those that it may have."""
MOST_DELAY = 255
"""Accesses of other memory that a thread does before it plays, at most."""
SCRATCH_LINES = 64
HELD = 25
"""Instances at which a thread stops between two operations until the others are done, in percent.
"""
NOBODY = 31
"""The role of a turn in which nothing is played."""


@dataclass(frozen=True)
class Field:
    """Bits of the word that says what happens in a turn."""

    start: int
    most: int


ROLE, MEETS, REPORTS, HOLDS = Field(0, NOBODY), Field(5, 1), Field(6, 1), Field(7, 3)
"""What is played; whether after meeting; whether others are to know that it is done; and, if not 0,
which of the places between two operations, counted round, is where the thread waits for that."""
DELAY, INSTANCE = Field(9, MOST_DELAY), Field(17, (1 << 14) - 1)
"""How long it waits before; where it is played."""


@dataclass(frozen=True)
class Role:
    """A block of a test, by number, with its operations in one of their orders.

    slow: between two of them there is a delay, or the thread waits until others are done.
    """

    block: int
    written: Block
    slow: bool = False


@dataclass(frozen=True)
class ThreadHarness:
    """A litmus test as kernels that run many instances of it, one kernel for each launch.

    roles: by launch, those that its kernel knows by number. outputs: the registers that are stored,
    in order.
    """

    test: LitmusTest
    texts: tuple[tuple[str, str], ...]
    roles: tuple[tuple[Role, ...], ...]
    outputs: tuple[str, ...]
    width: int


def orders(block: Block) -> list[Block]:
    """The block with its operations as they are written, and in other orders that mean the same.

    An order may be any in which tokens and values are there when they are needed: first the one
    that differs most.
    """
    found = [block]
    for ops in islice(_sorted(block.ops), 200):
        if all(ops != one.ops for one in found):
            found.append(replace(block, ops=ops))
    return found[:MOST_ORDERS]


def _sorted(ops: Sequence[Op]) -> Iterator[tuple[Op, ...]]:
    """All orders, those with late operations first coming first."""
    if not ops:
        yield ()
        return
    names, defined = {op.name for op in ops}, {a.register: op for op in ops for a in op.accesses}
    for op in reversed(ops):
        if any(edge.op in names for edge in op.after):
            continue
        if any(defined.get(r, op) is not op for r in needed_registers(op)):
            continue
        for rest in _sorted([o for o in ops if o is not op]):
            yield (op, *rest)


def parts(blocks: Sequence[Block], threads: int) -> tuple[Role, ...]:
    """The roles of blocks that run together.

    Raises:
        Inexpressible: there are more than a turn can name.
    """
    found: list[Role] = []
    for number, block in enumerate(blocks):
        for way, written in enumerate(orders(block)):
            name = f"{block.name}_{way}"
            found.append(Role(number, replace(written, name=name)))
            if min(threads, len(blocks)) > 1 and len(block.ops) > 1:
                found.append(Role(number, replace(written, name=f"{name}_slow"), True))
    if len(found) > NOBODY:
        raise Inexpressible(f"{len(blocks)} blocks in {len(found)} orders")
    return tuple(found)


class ThreadWriter(Writer):
    """Writes the kernels.

    Arguments: the buffers; what registers held; counters of meetings; the turns of each thread;
    memory to access while waiting; how many turns a thread has; elements between two instances, and
    between what two threads access while they wait.
    """

    absent = ABSENT

    def __init__(self, test: LitmusTest, outputs: tuple[str, ...]) -> None:
        super().__init__(test)
        self.outputs = outputs
        self.slow = frozenset[str]()
        self.delay = self.holds = self.everything = ""

    def loop(self, launch: int, roles: Sequence[Role], threads: int) -> str:
        """The kernel of one launch."""
        self.lines, self.count, self.indent = [], 0, "  "
        size = {b.name: f"i{8 * b.element_size}" for b in self.program.buffers}
        pointers = [f"%{name}_all: tile<ptr<{dtype}>>" for name, dtype in size.items()]
        more = [f"%_out_all: tile<ptr<{self.int}>>"]
        more += [f"%_{n}: tile<ptr<i32>>" for n in ("meet_all", "turns_all", "scratch")]
        more += [f"%_{n}: tile<i32>" for n in ("count", "step", "apart")]
        self.emit("%_thread, %_b1, %_b2 = get_tile_block_id : tile<i32>, tile<i32>, tile<i32>")
        first = self.define("muli %_thread, %_count", "tile<i32>")
        self.emit(f"%_turns = offset %_turns_all, {first} : tile<ptr<i32>>")
        apart = self.define("muli %_thread, %_apart", "tile<i32>")
        self.emit(f"%_mine = offset %_scratch, {apart} : tile<ptr<i32>>")
        self.emit("%_none = constant {value = 0} : tile<i32>")
        self.emit("%_one = constant {value = 1} : tile<i32>")
        self.emit("for %_none, %_count, %_one, [] body(%_turn: tile<i32>) {")
        role, instance, reports = self._turn(threads)
        place = self.define(f"muli {instance}, %_step", "tile<i32>")
        for name, dtype in size.items():
            self.emit(f"%{name} = offset %{name}_all, {place} : tile<ptr<{dtype}>>")
        each = self.define(f"constant {{value = {max(len(self.outputs), 1)}}}", "tile<i32>")
        line = self.define(f"muli {instance}, {each}", "tile<i32>")
        self.emit(f"%_out = offset %_out_all, {line} : tile<ptr<{self.int}>>")
        self.slow = frozenset(r.written.name for r in roles if r.slow)
        self.branches([r.written for r in roles], role)
        self.emit(f"if {reports} then {{")
        how = "{ordering = relaxed, scope = device, mode = add}"
        self.emit(f"  %_before, %_told = atomic_rmw_tko %_meet, %_one {how} : tile<i32>, token")
        self.emit("  yield")
        self.emit("}")
        self.emit("continue")
        self.emit("}")
        return self.finished(launch, ", ".join([*pointers, *more]))

    def block(self, block: Block) -> None:
        """The operations of a block, and its report."""
        super().block(block)
        for register, scalar in list(self.registers.items()):
            if register not in self.outputs:
                continue
            at = self.define(f"constant {{value = {self.outputs.index(register)}}}", "tile<i32>")
            place = self.define(f"offset %_out, {at}", f"tile<ptr<{self.int}>>")
            self.define(f"store_ptr_tko {place}, {scalar.name} {{ordering = weak}}", "token")

    def access(self, block: Block, op: Op, before: str, keep: bool = True) -> tuple[str, str]:
        """Write an operation, some time after the one before it if the block is slow."""
        if block.name in self.slow and op is not block.ops[0]:
            self._pause(block.ops.index(op) - 1, len(block.ops) - 1)
        return super().access(block, op, before, keep)

    def is_used(self, register: str) -> bool:
        """Whether an expression, or the outcome, needs the register."""
        return register in self.outputs or super().is_used(register)

    def _turn(self, threads: int) -> tuple[str, str, str]:
        """Read the turn, meet and wait as it says: the role, the instance, whether to report."""
        at = self.define("offset %_turns, %_turn", "tile<ptr<i32>>")
        self.emit(f"%_word, %_read = load_ptr_tko {at} {{ordering = weak}} : tile<i32>, token")
        role, instance = self._field(ROLE), self._field(INSTANCE)
        self.delay, self.holds = self._field(DELAY), self._field(HOLDS)
        meets, reports = self._is_set(self._field(MEETS)), self._is_set(self._field(REPORTS))
        # All have come, and all but one are done.
        everything = self.define(f"constant {{value = {2 * threads - 1}}}", "tile<i32>")
        self.everything = everything
        self.emit(f"%_meet = offset %_meet_all, {instance} : tile<ptr<i32>>")
        self.emit(f"if {meets} then {{")
        all = self.define(f"constant {{value = {threads}}}", "tile<i32>")
        self.meet("%_meet", all, self._most_looks())
        self.emit("yield")
        self.emit("}")
        self._wait()
        return role, instance, reports

    def _field(self, field: Field) -> str:
        by = self.define(f"constant {{value = {field.start}}}", "tile<i32>")
        moved = self.define(f"shri %_word, {by} {{signedness = unsigned}}", "tile<i32>")
        ones = self.define(f"constant {{value = {field.most}}}", "tile<i32>")
        return self.define(f"andi {moved}, {ones}", "tile<i32>")

    def _is_set(self, field: str) -> str:
        how = "{predicate = not_equal, signedness = signed}"
        return self.define(f"cmpi {field}, %_none {how}", "tile<i1>")

    def _most_looks(self) -> str:
        return self.define(f"constant {{value = {MOST_LOOKS}}}", "tile<i32>")

    def _pause(self, place: int, places: int) -> None:
        """Between two operations: wait, until the others are done if the turn holds here."""
        count = self.define(f"constant {{value = {places}}}", "tile<i32>")
        turned = self.define(f"remi {self.holds}, {count} {{signedness = signed}}", "tile<i32>")
        here = self.define(f"constant {{value = {place}}}", "tile<i32>")
        how = "{predicate = equal, signedness = signed}"
        is_here = self.define(f"cmpi {turned}, {here} {how}", "tile<i1>")
        holds = self.define(f"andi {is_here}, {self._is_set(self.holds)}", "tile<i1>")
        self.emit(f"if {holds} then {{")
        begin = self.define("make_token", "token")
        self.look("%_meet", self.everything, self._most_looks(), begin)
        self.emit("yield")
        self.emit("} otherwise {")
        self._wait()
        self.emit("yield")
        self.emit("}")

    def _wait(self) -> None:
        """Access other memory for as long as the turn says."""
        last = self.define(f"constant {{value = {SCRATCH_LINES - 1}}}", "tile<i32>")
        line = self.define("constant {value = 16}", "tile<i32>")
        how = "{ordering = relaxed, scope = device}"
        self.emit(f"for %_none, {self.delay}, %_one, [] body(%_k: tile<i32>) {{")
        self.emit(f"  %_other = andi %_k, {last} : tile<i32>")
        self.emit(f"  %_there = muli %_other, {line} : tile<i32>")
        self.emit("  %_cell = offset %_mine, %_there : tile<ptr<i32>>")
        self.emit(f"  %_put = store_ptr_tko %_cell, %_k {how} : token")
        self.emit(f"  %_got, %_gone = load_ptr_tko %_cell {how} : tile<i32>, token")
        self.emit("  continue")
        self.emit("}")


def harness(test: LitmusTest, threads: int) -> ThreadHarness:
    """The kernels that run a test on at most so many threads.

    Raises:
        Inexpressible: it needs several devices, or says what a tile kernel cannot.
    """
    program = test.program
    if program.exists is None:
        raise Inexpressible("the test asks for no outcome")
    if asks_for_poison(program.exists):
        raise Inexpressible("the test asks for poison, and compiled code has none")
    if len({b.device for b in program.blocks}) > 1:
        raise Inexpressible("the test needs several devices, and a CPU is one")
    outputs = asked_registers(program)
    writer = ThreadWriter(test, outputs)
    texts: list[tuple[str, str]] = []
    roles: list[tuple[Role, ...]] = []
    for launch in sorted({b.launch for b in program.blocks}):
        blocks = [b for b in program.blocks if b.launch == launch]
        found = parts(blocks, threads)
        text = writer.loop(launch, found, min(threads, len(blocks)))
        texts.append((text, kernel_name(test.name, launch)))
        roles.append(found)
    width = 8 if writer.int == "i64" else 4
    return ThreadHarness(test, tuple(texts), tuple(roles), outputs, width)


@dataclass(frozen=True)
class Draw:
    """What is drawn for a launch, and from what.

    seed: of what is drawn for each turn. step: elements between two instances. meets: of how many
    instances threads meet at one. delayed: turns with a delay, in percent; delay: accesses of the
    longest. apart: each thread waits on lines of its own. held: instances at which a thread stops
    between two operations until the others are done, in percent.
    """

    seed: tuple[int, int]
    step: int
    shuffled: bool
    meets: int
    delayed: int
    delay: int
    apart: bool
    held: int


def draws(config: StressConfig, launches: int) -> Iterator[Draw]:
    """What is drawn for each launch of a configuration; the same each time."""
    for number in range(launches):
        random = np.random.default_rng((config.seed, number))

        def happens(percent: int, random: np.random.Generator = random) -> bool:
            return bool(random.random() * 100 < percent)

        delay = min(config.stress_iterations, MOST_DELAY)
        yield Draw(
            (config.seed, number),
            STEPS[number % len(STEPS)],
            happens(config.shuffle),
            1 if happens(config.barrier) else int(random.choice((8, 64))),
            config.prestress,
            int(random.choice((delay // 32, delay // 8, delay))),
            not happens(config.stress),
            HELD,
        )


@lru_cache(maxsize=256)
def turns(
    roles: tuple[tuple[int, bool], ...], threads: int, instances: int, draw: Draw
) -> NDArray[np.int32]:
    """A row of turns for each thread, in which all blocks of all instances are played once.

    roles: the block of each, and whether it is slow. Each block of an instance is played in an
    order drawn from its own; threads play a block each, and those that are left over behind one of
    these.
    """
    random, blocks = np.random.default_rng(draw.seed), max(block for block, _ in roles) + 1
    names = np.arange(instances)
    if draw.shuffled:
        random.shuffle(names)
    # By place in the list and number in the deal: which block, and which thread plays it.
    deal = np.argsort(random.random((instances, blocks)), axis=1)
    thread = np.broadcast_to(np.arange(blocks), deal.shape).copy()
    thread[:, threads:] = random.integers(0, threads, (instances, blocks - threads))
    first = np.broadcast_to(np.arange(blocks) < threads, deal.shape)
    place = np.broadcast_to(np.arange(instances)[:, None], deal.shape)
    # At some, one of those that come first stops between two operations.
    is_held = random.random((instances, 1)) * 100 < (draw.held if threads > 1 else 0)
    is_holder = np.arange(blocks) == random.integers(0, threads, (instances, 1))
    holds = is_held & is_holder & np.isin(deal, [block for block, slow in roles if slow])
    has_holder = holds.any(axis=1, keepdims=True)
    longest = random.integers(0, draw.delay + 1, deal.shape)
    words = _word(
        (ROLE, _chosen(random, roles, deal, holds, blocks > threads)),
        (MEETS, first & ((place % draw.meets == 0) | has_holder) & (threads > 1)),
        (REPORTS, first & has_holder & ~holds),
        (HOLDS, np.where(holds, random.integers(1, HOLDS.most + 1, deal.shape), 0)),
        (DELAY, np.where(random.random(deal.shape) * 100 < draw.delayed, longest, 0)),
        (INSTANCE, names[place]),
    )
    rows = [words[thread == t] for t in range(threads)]
    found = np.full((threads, max(row.size for row in rows)), NOBODY, np.int32)
    for row, line in zip(rows, found, strict=True):
        line[: row.size] = row
    return found


def _chosen(
    random: np.random.Generator,
    roles: tuple[tuple[int, bool], ...],
    deal: NDArray[np.int64],
    holds: NDArray[np.bool_],
    is_crowded: bool,
) -> NDArray[np.int64]:
    """The roles of dealt blocks: slow ones where one holds, or where a thread plays several."""
    found = np.zeros_like(deal)
    for block in {block for block, _ in roles}:
        slow = [n for n, role in enumerate(roles) if role == (block, True)]
        usual = [n for n, role in enumerate(roles) if role == (block, False)]
        here = random.choice([*usual, *slow] if is_crowded else usual, deal.shape)
        if slow:
            here = np.where(holds, random.choice(slow, deal.shape), here)
        found = np.where(deal == block, here, found)
    return found


def _word(*fields: tuple[Field, NDArray[Any]]) -> NDArray[np.int64]:
    """The words that have these in their fields."""
    parts = [values.astype(np.int64) << field.start for field, values in fields]
    return np.sum(parts, axis=0)


def run_on_threads(test: LitmusTest, config: StressConfig) -> Histogram:
    """How often outcomes were seen in about `config.iterations` instances.

    All outcomes of a test without a race are held against the model. A test ends once the outcome
    that it asks for was seen ENOUGH. One that allows it is asked half as often, unless it has more
    blocks than there are threads. On one processor, where nothing else shows, a thread stops at
    each of FEW_INSTANCES.

    Raises:
        Inexpressible: see `harness`.
    """
    threads = max(thread_count(), 2)
    is_allowed = test.expected.outcome == "allow"
    found = harness(test, threads)
    modules = [_module(text, kernel) for text, kernel in found.texts]
    histogram, seen = Histogram(), dict[Outcome, int]()
    share = 2 if is_allowed and len(test.program.blocks) <= threads else 1
    is_alone = processor_count() == 1
    instances = FEW_INSTANCES if is_alone else INSTANCES
    launches = max(-(-config.iterations // INSTANCES) // share, len(STEPS))
    for draw in draws(config, launches):
        draw = replace(draw, held=100 if is_alone else draw.held)
        outcomes, hits = _launch(found, modules, draw, instances)
        for outcome, count in outcomes.items():
            seen[outcome] = seen.get(outcome, 0) + count
        histogram.hits += hits
        histogram.runs += instances
        if histogram.hits >= ENOUGH:
            break
    histogram.outcomes = {outcome_text(outcome): count for outcome, count in seen.items()}
    if not test.expected.race:
        histogram.forbidden = forbidden(seen, explore(test.program).outcomes)
    return histogram


@cache
def _module(text: str, kernel: str) -> Module:
    module = parse(text, kernel)
    verify(module)
    return module


def _launch(
    found: ThreadHarness, modules: Sequence[Module], draw: Draw, instances: int
) -> tuple[dict[Outcome, int], int]:
    """Run every instance once."""
    program = found.test.program
    memories = filled(program, instances, draw.step)
    buffers = [
        data.view(f"i{b.element_size}") for b, data in zip(program.buffers, memories, strict=True)
    ]
    results = np.full((instances, max(len(found.outputs), 1)), ABSENT, f"i{found.width}")
    most = max(thread_count(), 2)
    scratch = np.zeros(16 * SCRATCH_LINES * most, np.int32)
    for module, roles, (_, kernel) in zip(modules, found.roles, found.texts, strict=True):
        threads = min(most, max(r.block for r in roles) + 1)
        table = turns(tuple((r.block, r.slow) for r in roles), threads, instances, draw)
        meetings = np.zeros(instances, np.int32)
        given = [*buffers, results.reshape(-1), meetings, table.reshape(-1), scratch]
        numbers = [table.shape[1], draw.step, 16 * SCRATCH_LINES if draw.apart else 0]
        values = [*given, *numbers]
        launch_cpu(module, (threads,), values, threads=threads, name=kernel, pinned=True)
    asked = results.astype(np.int64)
    return count_outcomes(program, found.outputs, memories, asked, draw.step)
