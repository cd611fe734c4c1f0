"""`Pipelined`: a loop whose copies from global to shared memory run iterations ahead.

With n stages every buffer that the loop fills becomes a ring of n, and n - 1 copies are under way
while an iteration works on what has landed. For sm_80, where each thread copies a part:

    copy steps 0 to n - 2
    for step:
        wait until the copies of this step have landed
        meet: all threads see them, and all have read the stage of the step before
        copy step + n - 1 into that stage
        the body

For sm_90a one thread copies, and a barrier counts the bytes of each stage:

    copy steps 0 to n - 2
    for step:
        wait for the bytes of this stage
        the body up to its first product, behind which the one before is complete
        copy step + n - 1 into the stage of the step before
        the rest of the body

What the copies ahead wait for is said by tokens, so the interpreter finds a stage reused too early.
"""

from __future__ import annotations

import ast
from collections.abc import Callable
from dataclasses import dataclass
from typing import cast

from reftile.ir.core import Block, Value
from reftile.ir.types import BarrierType
from reftile.lang import arithmetic
from reftile.lang.dtypes import int32
from reftile.lang.frame import Flow, Frame, Outcome
from reftile.lang.loops import Execute, ForeignLoop, trace_counted
from reftile.lang.names.registry import name
from reftile.lang.pipe.arrays import history_of
from reftile.lang.pipe.block import BlockShape, LoopState, join, shape_of
from reftile.lang.pipe.building import elected, recompute, when
from reftile.lang.pipe.common import error
from reftile.lang.pipe.copying import CopyAhead, start_copy
from reftile.lang.pipe.shared import wait_for_products
from reftile.lang.pipe.warpgroups import is_first, meet
from reftile.lang.source import leaves_loop
from reftile.lang.trace import Trace, static_number
from reftile.lang.values import Tile, Token, Undefined


@dataclass(slots=True)
class _Ring:
    """The stages of one loop: which is next, its phase, which was the last, and its phase.

    They are cells, so that a loop that runs again goes on where it stopped. barrier: counts the
    bytes of a stage. empty: where several warpgroups say that they have read one.
    """

    shape: BlockShape
    stages: int
    slot: str
    phase: str
    last: str
    last_phase: str
    barrier: Value | None = None
    empty: Value | None = None

    @staticmethod
    def of(shape: BlockShape, node: ast.For, stages: int) -> _Ring:
        """That of a loop of the text."""

        def make() -> _Ring:
            t, name_ = shape.trace, shape.fresh("ring")
            slot, phase = f"{name_}.slot", f"{name_}.phase"
            ring = _Ring(shape, stages, slot, phase, f"{name_}.last", f"{name_}.last_phase")
            t.cells[ring.slot] = t.cells[ring.phase] = shape.zero
            last, one = (Tile(t.constant(n, int32), int32) for n in (stages - 1, 1))
            t.cells[ring.last], t.cells[ring.last_phase] = lambda: last, lambda: one
            if shape.target == "sm_90a":
                ring.barrier = t.value("alloc_barrier", types=[BarrierType(stages, 1)])
                ring.barrier.name = "full"
            if shape.replicas > 1:
                kind = BarrierType(stages, shape.replicas)
                ring.empty = t.value("alloc_barrier", types=[kind])
                ring.empty.name = "empty"
            return ring

        return cast("_Ring", shape.once(("ring", node, stages), make))

    def cell(self, name_: str) -> Tile:
        """The number in one of the cells."""
        return cast("Tile", self.shape.trace.cell(name_))

    def advance(self, slot: Tile, phase: Tile) -> tuple[Tile, Tile]:
        """The next stage, and the phase to wait for there."""
        op = self.shape.trace.op("advance", slot.value, phase.value, stages=self.stages)
        return Tile(op.results[0], int32), Tile(op.results[1], int32)


@dataclass(frozen=True, slots=True, eq=False)
class Pipeline(ForeignLoop):
    """`Pipelined(...)` behind `in`."""

    first: Tile
    end: Tile
    stages: int

    def describe(self) -> str:
        """Name the value in a message."""
        return "`Pipelined(...)`, which stands behind `in`"

    def trace(self, frame: Frame, node: ast.For, execute: Execute) -> Outcome:
        """Trace the loop."""
        if not isinstance(node.target, ast.Name):
            raise frame.error(node.target, "unpack", "the counter of `Pipelined` is one number")
        t = frame.trace
        shape = shape_of(t)
        if shape.home is None:
            raise frame.error(node, "pipe.grid", "`Pipelined` belongs into `with Kernel(...)`")
        if leaves_loop(node.body, ast.Break) or leaves_loop(node.body, ast.Continue):
            raise frame.error(
                node.iter,
                "pipe.pipelined",
                "an iteration of a `Pipelined` loop cannot be left by `break` or `continue`",
                "its copies are under way already: decide with `if`, or loop over range(...)",
            )
        if shape.replicas > 1:
            self._meet(t, shape)
        tracing = _Tracing(t, shape, self, _Ring.of(shape, node, self.stages))
        counter = node.target.id

        def body() -> Outcome:
            return tracing.iteration(
                cast("Tile", frame.names[counter]), lambda: execute(frame, node.body)
            )

        bounds = (self.first, self.end, Tile(t.constant(1, int32), int32, 1))
        outcome = trace_counted(frame, node, counter, bounds, body, tracing.before)
        tracing.after()
        for copy in tracing.copies:
            ended = Undefined("it holds a stage of a `Pipelined` loop that has ended")
            t.set_cell(copy.target.history.written_cell, ended)
        return outcome

    def _meet(self, t: Trace, shape: BlockShape) -> None:
        """Let all warpgroups have done with what shared memory was used for before."""
        histories = shape.histories
        used = [history.all() for history in histories]
        met = meet(t, join(t, shape.start(), *used, wait_for_products(t)))
        for history in histories:
            history.has_read(met)


class _Tracing:
    """One loop while it is traced; its body may be traced several times."""

    def __init__(self, t: Trace, shape: BlockShape, loop: Pipeline, ring: _Ring) -> None:
        self.t, self.shape, self.loop, self.ring = t, shape, loop, ring
        self.copies: list[CopyAhead] = []
        self.block = Block()
        self.counter: Value | None = None
        self.bulk = shape.target == "sm_90a"
        self.fill = self.fill_phase = shape.zero()
        self.has_products = shape.has_products

    # The body

    def iteration(self, counter: Tile, execute: Callable[[], Outcome]) -> Outcome:
        """Trace one iteration, then put in what it copies ahead."""
        t, ring = self.t, self.ring
        slot, phase = ring.cell(ring.slot), ring.cell(ring.phase)
        self.fill, self.fill_phase = ring.cell(ring.last), ring.cell(ring.last_phase)
        names = dict(t.frame.names) if t.frame is not None else {}
        outer, self.block, self.counter = self.shape.loop, t.block, counter.value
        head = len(t.block.ops)
        waits = Block()
        with t.inside(waits):
            landed = self._landed(slot, phase)
        state = LoopState(self.block, counter.value, slot, landed)
        self.shape.loop = state
        try:
            outcome = execute()
        finally:
            self.shape.loop = outer
        if outcome is not Flow.NEXT:
            raise error(
                t,
                "pipelined",
                "a `Pipelined` loop cannot be left by `return`",
                "leave it by its end; loop over range(...) where that is not possible",
            )
        self.copies = [cast("CopyAhead", c) for c in state.copies]
        if not self.copies:
            return outcome
        self._insert(state, names, head, waits)
        following = ring.advance(slot, phase)
        t.set_cell(ring.last, slot)
        t.set_cell(ring.last_phase, phase)
        t.set_cell(ring.slot, following[0])
        t.set_cell(ring.phase, following[1])
        return outcome

    def _landed(self, slot: Tile, phase: Tile) -> Token:
        """Wait for what was copied to the stage of this iteration."""
        t = self.t
        if self.bulk:
            barrier = self.ring.barrier
            return Token(t.value("wait_barrier", barrier, slot.value, phase.value))
        kept = max(0, self.loop.stages - 2)
        waited = t.value("wait_copies", engine="thread", in_flight=kept)
        return Token(t.value("sync", waited))

    def _insert(self, state: LoopState, names: dict[str, object], head: int, waits: Block) -> None:
        """Put the waits at the head of the body, and the copies ahead where a stage is free."""
        used = [self._used(copy, names) for copy in self.copies]
        single = self.loop.stages == 1
        copies = Block()
        with self.t.inside(copies):
            if self.bulk:
                at, free = self._free_stage(state, used, head, single)
                self._ahead(state, free, single)
            else:
                at = head
                self._copy_by_threads(state, waits, used, single)
        if self.bulk and not single and state.refill is not None:
            _splice(self.block, at, copies)
            _splice(self.block, head, waits)
        elif single:
            _splice(self.block, head, waits)
            _splice(self.block, head, copies)
        else:
            _splice(self.block, head, copies)
            _splice(self.block, head, waits)

    def _free_stage(
        self, state: LoopState, used: list[Token], head: int, single: bool
    ) -> tuple[int, Token]:
        """Where in the body the stage of the iteration before may be written, and why."""
        if state.refill is not None and not single:
            at, read = state.refill
            return at, join(self.t, *used, read)
        return head, join(self.t, *used, wait_for_products(self.t))

    def _used(self, copy: CopyAhead, names: dict[str, object]) -> Token:
        """What had used the memory of a copy when the iteration began."""
        found = names.get(copy.target.history.all_cell, self.shape.start())
        return cast("Token", found)

    def _ahead(self, state: LoopState, free: Token, single: bool) -> None:
        """One thread copies for a later iteration."""
        t, counter = self.t, Tile(state.counter, int32)
        if self.ring.empty is not None:
            again = arithmetic.compare(t, "not_equal", counter, self.loop.first)
            when(t, again, lambda: self._release(self.fill, free))
        if single:
            self._fill(None, counter, state.slot, self.fill_phase, free)
            return
        later = self._later(counter)
        inside = arithmetic.compare(t, "less_than", later, self.loop.end)
        self._fill(inside, later, self.fill, self.fill_phase, free)

    def _release(self, slot: Tile, token: Token) -> None:
        """Say that this warpgroup has read a stage."""
        self.t.op("arrive_barrier", self.ring.empty, slot.value, None, token.value)

    def _fill(self, inside: Tile | None, step: Tile, slot: Tile, phase: Tile, token: Token) -> None:
        """The first warpgroup starts the copies of a step that is `inside` the loop.

        phase: that of the use of the stage before, which all warpgroups must have read.
        """
        t, condition = self.t, inside
        first = is_first(t)
        if first is not None:
            condition = first if inside is None else arithmetic.logical(t, "and", inside, first)
        when(t, condition, lambda: self._issue(step, slot, token, phase))

    def _later(self, counter: Tile) -> Tile:
        ahead = self.t.constant(self.loop.stages - 1, int32)
        return Tile(self.t.value("addi", counter.value, ahead), int32)

    def _copy_by_threads(
        self, state: LoopState, waits: Block, used: list[Token], single: bool
    ) -> None:
        """All threads copy for a later iteration, or for this one."""
        t, counter = self.t, Tile(state.counter, int32)
        if single:
            met = Token(t.value("sync", join(t, *used).value))
            self._issue(counter, state.slot, met)
            t.op("commit_copies", engine="thread")
            return
        sync = waits.ops[-1]
        joined = Block()
        with t.inside(joined):
            both = join(t, Token(sync.operands[0]), *used)
        sync.arguments = (both.value,)
        _splice(waits, len(waits.ops) - 1, joined)
        later = self._later(counter)
        inside = arithmetic.compare(t, "less_than", later, self.loop.end)
        met = Token(sync.results[0])
        when(t, inside, lambda: self._issue(later, self.fill, met))
        t.op("commit_copies", engine="thread")

    # Copies

    def _issue(self, step: Tile, slot: Tile, free: Token, phase: Tile | None = None) -> None:
        """Start the copies of a step into a stage."""
        t, empty = self.t, self.ring.empty
        known = {cast("Value", self.counter): step.value}

        def each() -> None:
            token = free
            if empty is not None and phase is not None:
                read = t.value("wait_barrier", empty, slot.value, phase.value)
                token = join(t, free, Token(read))
            if self.bulk:
                size = sum(copy.target.kind.size_bytes for copy in self.copies)
                t.op("arrive_barrier", self.ring.barrier, slot.value, bytes=size)
            for copy in self.copies:
                index = tuple(recompute(t, v, self.block, known) for v in copy.index)
                buffer = copy.target.buffer(t, slot)
                written = cast("Token", history_of(self.shape, copy.source.array).written())
                before = join(t, token, written)
                start_copy(
                    t, self.shape, copy.view, index, buffer, before, (self.ring.barrier, slot)
                )

        if self.bulk:
            elected(t, each)
        else:
            each()

    def before(self) -> None:
        """In front of the loop: the first copies."""
        for copy in self.copies:
            copy.target.need_stages(self.loop.stages)
        if not self.copies or (self.loop.stages == 1 and self.ring.empty is None):
            return
        t, ring = self.t, self.ring
        used = [copy.target.history.all() for copy in self.copies]
        free = join(t, *used, wait_for_products(t, self.has_products))
        slot, phase = ring.cell(ring.slot), ring.cell(ring.phase)
        for ahead in range(self.loop.stages - 1):
            step = arithmetic.add_sub_mul(t, "add", self.loop.first, ahead)
            inside = arithmetic.compare(t, "less_than", step, self.loop.end)
            other = phase
            if ring.empty is not None:
                other = arithmetic.logical(t, "xor", phase, 1)
            self._fill(inside, step, slot, other, free)
            if not self.bulk:
                t.op("commit_copies", engine="thread")
            slot, phase = ring.advance(slot, phase)

    def after(self) -> None:
        """Behind the loop: hand back the last stage."""
        if not self.copies or self.ring.empty is None:
            return
        t = self.t
        used = [copy.target.history.all() for copy in self.copies]
        free = join(t, *used, wait_for_products(t))
        ran = arithmetic.compare(t, "less_than", self.loop.first, self.loop.end)
        when(t, ran, lambda: self._release(self.ring.cell(self.ring.last), free))


def _splice(block: Block, at: int, inserted: Block) -> None:
    """Put operations into a block."""
    for op in inserted.ops:
        op.parent = block
    block.ops[at:at] = inserted.ops


@name
def Pipelined(
    t: Trace, first: object, end: object = None, /, *, num_stages: object = 2
) -> Pipeline:
    """A loop, behind `in`, whose copies from global to shared memory run ahead.

    num_stages: how many stages each buffer that the loop fills has; all but one are ahead.
    """
    stages = t.static_int(num_stages, "num_stages")
    if not 1 <= stages <= 32:
        raise error(
            t,
            "stages",
            f"a loop has 1 to 32 stages, found {stages}",
            "1 copies and waits in each iteration; 2 copies one iteration ahead",
        )
    low, high = (0, first) if end is None else (first, end)
    tiles: list[Tile] = []
    for value in (low, high):
        tile = arithmetic.as_tile(t, value, what="a bound of `Pipelined`")
        if tile.shape or not tile.dtype.is_int:
            raise error(t, "pipelined", "a bound of `Pipelined` is an integer")
        number = static_number(value)
        found = arithmetic.convert(t, tile, int32)
        tiles.append(Tile(found.value, int32, int(number) if number is not None else None))
    return Pipeline(tiles[0], tiles[1], stages)
