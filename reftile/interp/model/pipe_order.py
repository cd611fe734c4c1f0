"""The events of a small `pipe` kernel, related as its level promises and as PTX orders them.

    kernel, lowered = parse(text).kernels[0], parse(text).kernels[0]
    derive_barriers(lowered, "sm_90a")
    verdict = hold_pipe(explore_pipe(kernel, args), lowered, args, "ptx-9")

Both levels have the same accesses, so that their outcomes can be compared. At the level `pipe`
tokens order them; in PTX the threads, their barriers and what the asynchronous operations say of
their beginning and end.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from typing import Any

from reftile.interp.model.event_set import Event, EventSet, order_sets
from reftile.interp.model.events import Block, Buffer, Exit, Location, Program
from reftile.interp.model.events import Op as Operation
from reftile.interp.model.execution import Result
from reftile.interp.model.explore import STEP_LIMIT, explore
from reftile.interp.model.pipe_run import CELL, FENCED, Mistake, PipeRun, Place, Step
from reftile.interp.model.pipe_steps import OPERATIONS
from reftile.interp.model.ptx import Verdict, Version
from reftile.interp.model.relations import Model, spec_model
from reftile.interp.model.values import UNINIT, Value
from reftile.ir.core import Kernel
from reftile.ir.diagnostics import Bug

Pair = tuple[int, int]


class PipeEvents:
    """The events of one block, with the step of each."""

    def __init__(self, kernel: Kernel, args: Sequence[Any], mistake: Mistake | None = None) -> None:
        self.run = PipeRun(kernel, args, OPERATIONS, mistake).follow()
        self.events = EventSet(self._program(kernel.name))
        self.listed = [e for e in self.events.events if e.block >= 0]
        self.step_of = {e.index: self.events.units[e.unit].op for e in self.listed}
        self.steps = [self.run.steps[n] for n in self._numbers]
        self.thread: dict[int, int] = {}
        for number, step in enumerate(self.steps):
            units = [u for u in self.events.units if u.op == number]
            for unit, thread in zip(units, step.threads, strict=True):
                self.thread.update(dict.fromkeys((*unit.reads, *unit.writes), thread))
        self._give(self._common())

    def _program(self, name: str) -> Program:
        run = self.run
        self._numbers = [n for n, step in enumerate(run.steps) if step.accesses]
        listed: list[Operation] = []
        for number in self._numbers:
            step = run.steps[number]
            listed.append(
                Operation(
                    f"{step.name} {number}",
                    tuple(step.accesses),
                    step.order,
                    step.scope,
                    text=step.text,
                )
            )
        cells: dict[str, int] = {}
        for op in listed:
            for access in op.accesses:
                end = access.location.start // CELL + 1
                cells[access.location.buffer] = max(end, cells.get(access.location.buffer, 0))
        for place, count in run.outputs.items():
            cells[place] = max(count, cells.get(place, 0))
        buffers = tuple(
            Buffer(place, CELL, _contents(run.initial.get(place, UNINIT), count))
            for place, count in sorted(cells.items())
        )
        written = {a.location for op in listed for a in op.accesses if a.kind == "store"}
        exits = tuple(
            Exit(f"{place}[{cell}]", Location(place, CELL * cell, CELL))
            for place, count in sorted(run.outputs.items())
            for cell in range(count)
            if Location(place, CELL * cell, CELL) in written
        )
        block = Block("cta", tuple(listed))
        hidden = frozenset(run.hidden)
        return Program(name, buffers, (block,), exits, None, tuple(run.assume), hidden)

    def _give(self, relations: dict[str, Iterator[Pair]]) -> None:
        for name, pairs in relations.items():
            self.events.base[name] = self.events.space.of(pairs)

    # What both levels share

    def _common(self) -> dict[str, Iterator[Pair]]:
        return {
            "async": ((e.index, e.index) for e in self.listed if self._step(e).is_async),
            "same_block": ((e.index, f.index) for e in self.listed for f in self.listed),
            "barrier": (
                (e.index, e.index)
                for e in self.listed
                if self._step(e).kind in ("arrive", "wait", "complete")
            ),
            "proxy_fence": self._fences(),
            "dep": self._dependences(),
        }

    def _step(self, e: Event) -> Step:
        return self.steps[self.step_of[e.index]]

    def _fences(self) -> Iterator[Pair]:
        """From accesses to the fences whose space they are in; a completion fences everything."""
        for f in self.listed:
            fence = self._step(f)
            if fence.kind not in ("fence", "complete"):
                continue
            for e in self.listed:
                buffer = self.events.granules[e.granule].buffer
                space = "global" if buffer in self.run.outputs else "shared"
                if buffer != FENCED and fence.space in (space, "all", ""):
                    yield e.index, f.index

    def _dependences(self) -> Iterator[Pair]:
        """Dataflow, and what follows a wait."""
        yield from self.events.space.pairs(self.events.base["dep"])
        for e in self.listed:
            if self._step(e).kind != "wait":
                continue
            for f in self.listed:
                if self._precedes(self._end(e), self._begin(f)):
                    yield e.index, f.index

    # Places in the text

    def _begin(self, e: Event) -> list[Place]:
        """Where an event begins: behind all that stands before these."""
        step = self._step(e)
        if step.task < 0:
            return [(step.agent, self.thread[e.index], step.turn)]
        task = self.run.tasks[step.task]
        return [(task.agent, task.issuers[0], task.turn)] if step.kind == "access" else []

    def _end(self, e: Event) -> list[Place]:
        """Where an event is over: before all that stands behind one of these."""
        step = self._step(e)
        if step.task < 0:
            return [(step.agent, self.thread[e.index], step.turn)]
        task = self.run.tasks[step.task]
        if step.kind != "access":
            return []
        return task.reads_end if e.kind == "R" else task.writes_end

    def _precedes(self, ends: list[Place], begins: list[Place]) -> bool:
        return any(
            a == agent and t == thread and end < turn
            for a, t, end in ends
            for agent, thread, turn in begins
        )

    # PTX

    def as_ptx(self) -> EventSet:
        """Relate the events by threads."""
        self._give(
            {
                "po": self._pairs(self._program_order),
                "started": self._pairs(self._is_started),
                "completed": self._pairs(self._is_completed),
                "bar": self._pairs(self._is_met),
            }
        )
        return self.events

    def _pairs(self, holds: Callable[[Event, Event], bool]) -> Iterator[Pair]:
        return (
            (e.index, f.index)
            for e in self.listed
            for f in self.listed
            if e is not f and holds(e, f)
        )

    def _program_order(self, e: Event, f: Event) -> bool:
        a, b = self._step(e), self._step(f)
        if a.task != b.task:
            return False
        if a.task >= 0:
            # An asynchronous operation reads, then writes, then says that it is complete.
            return (self.step_of[e.index], e.unit, e.kind) < (self.step_of[f.index], f.unit, f.kind)
        if (a.agent, self.thread[e.index]) != (b.agent, self.thread[f.index]):
            return False
        return (a.turn, e.unit, e.kind) < (b.turn, f.unit, f.kind)

    def _is_started(self, e: Event, f: Event) -> bool:
        return self._step(e).task < 0 <= self._step(f).task and self._follows(e, f)

    def _is_completed(self, e: Event, f: Event) -> bool:
        task = self._step(e).task
        return task >= 0 and task != self._step(f).task and self._follows(e, f)

    def _is_met(self, e: Event, f: Event) -> bool:
        """Whether a barrier stands between events that are no asynchronous operation's."""
        return self._step(e).task < 0 and self._step(f).task < 0 and self._meets(e, f)

    def _follows(self, e: Event, f: Event) -> bool:
        return self._precedes(self._end(e), self._begin(f)) or self._meets(e, f)

    def _meets(self, e: Event, f: Event) -> bool:
        """Whether e is over before a barrier and f begins behind it."""
        ends, begins = self._end(e), self._begin(f)
        return any(
            any(a == agent and end < turn for a, _, end in ends for agent, turn, _ in came)
            and any(
                agent == b and turn < begin
                for b, _, begin in begins
                for agent, turn, waits in came
                if waits
            )
            for came in (meeting.came for meeting in self.run.meetings)
        )

    # The level `pipe`

    def as_pipe(self) -> EventSet:
        """Relate the events by tokens."""
        reached = self._reached()
        by_step: dict[int, list[int]] = {}
        for e in self.listed:
            by_step.setdefault(self._numbers[self.step_of[e.index]], []).append(e.index)
        self.events.tokens = self.events.space.of(
            (e, f)
            for number, sources in enumerate(reached)
            for source in sources
            for e in by_step.get(source, ())
            for f in by_step.get(number, ())
        )
        self._give({"issue": self._pairs(self._is_issued)})
        self._relax()
        return self.events

    def _relax(self) -> None:
        """Let `relaxed` arrivals and waits hand nothing over: in one block PTX orders them all."""
        events = self.events
        relaxed = {e.index for e in self.listed if self._step(e).space == "relaxed"}
        events.events = [
            replace(e, order="relaxed") if e.index in relaxed else e for e in events.events
        ]
        events.base.update(order_sets(events.space, events.events))

    def _reached(self) -> list[set[int]]:
        """For each step, all that it waits for through tokens and named barriers."""
        steps = self.run.steps
        direct = [set(step.after) for step in steps]
        meetings: dict[str, list[int]] = {}
        for number, step in enumerate(steps):
            if step.kind == "meet":
                meetings.setdefault(step.name, []).append(number)
        for numbers in meetings.values():
            for number in numbers:
                if steps[number].space == "waits":
                    direct[number] |= {n for n in numbers if n != number}
        reached: list[set[int]] = []
        for number in range(len(steps)):
            found, left = set[int](), list(direct[number])
            while left:
                source = left.pop()
                if source not in found:
                    found.add(source)
                    left += direct[source]
            reached.append(found - {number})
        return reached

    def _is_issued(self, e: Event, f: Event) -> bool:
        a, b = self._step(e), self._step(f)
        both = {a.kind, b.kind} <= {"arrive", "wait"}
        return both and a.agent == b.agent and a.turn < b.turn


def _contents(first: Value, count: int) -> tuple[Value, ...]:
    """Cells of one place, distinguishable."""
    if not isinstance(first, int):
        return (first,) * count
    return tuple(first + cell for cell in range(count))


def explore_pipe(kernel: Kernel, args: Sequence[Any], step_limit: int = STEP_LIMIT) -> Result:
    """Return the outcomes and races that the level `pipe` gives a kernel of one block."""
    events = PipeEvents(kernel, args).as_pipe()
    return explore(events, spec_model("pipe"), step_limit)


def hold_pipe(
    source: Result,
    lowered: Kernel,
    args: Sequence[Any],
    version: Version,
    mistake: Mistake | None = None,
    step_limit: int = STEP_LIMIT,
    model: Model | None = None,
) -> Verdict:
    """Return how a kernel with its derived barriers compares with its level's promise under PTX.

    mistake: one thing done wrong, to see whether it is noticed. model: instead of the version's.
    Stops at the first race.
    """
    if not source.is_race_free:
        raise Bug("only race-free programs have promises to keep", "interp.model.pipe_order")
    events = PipeEvents(lowered, args, mistake).as_ptx()
    found = explore(events, model or spec_model(version), step_limit, stop_at_race=True)
    extra = tuple(sorted(set(found.outcomes) - set(source.outcomes), key=str))
    fewer = bool(set(source.outcomes) - set(found.outcomes))
    hangs = bool(source.outcomes) and not found.outcomes
    return Verdict(version, extra, tuple(found.races), fewer, hangs)
