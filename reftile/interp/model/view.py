"""The view machine: one legal execution, sampled by seed, its values as stale as permitted.

Each granule keeps the history of its writes in coherence order. Operations run one element at a
time in a random order that tokens and dataflow permit. An event knows the set of events that happen
before it; from it follows which entries of the history it may not go behind:

* a read returns a write not older than any write before it, or than any write that a read before it
  has seen;
* a write is placed behind the same ones, at a random place, but never between a pair's read and its
  write.

Every execution that the machine makes is consistent, and conversely it makes all but those in which
a load reads a store that runs later (load buffering).
"""

from __future__ import annotations

from dataclasses import dataclass
from random import Random

from reftile.interp.model.candidate import stored_value
from reftile.interp.model.evaluate import Evaluator, Relation
from reftile.interp.model.event_set import EventSet, Unit
from reftile.interp.model.events import Program
from reftile.interp.model.execution import Execution
from reftile.interp.model.relations import Model, spec_model
from reftile.interp.model.values import (
    TRUE,
    UNINIT,
    UNKNOWN,
    Value,
    evaluate,
    join,
    part,
    registers,
    wrap,
)


@dataclass(frozen=True, slots=True)
class Sampling:
    """How an execution is sampled; by default as freely as the model permits.

    overlap: how often the next step is of any block instead of the first one that can go on, in
    `order`. staleness: how often a read or write takes any place in the history that is permitted,
    instead of the latest.
    """

    overlap: float = 1.0
    staleness: float = 1.0
    order: tuple[int, ...] = ()


class ViewMachine:
    """Samples executions of one program.

    model: defines the race that an execution is checked for; the machine itself follows the rules
    above. deciding: for each operation the registers that decide which tokens it waits for.
    """

    def __init__(self, program: Program | EventSet, model: Model | None = None) -> None:
        self.events = program if isinstance(program, EventSet) else EventSet(program)
        self.evaluator = Evaluator(model or spec_model(), self.events.space, self.events.base)
        self.deciding = _deciding(self.events)

    def run(self, seed: int, sampling: Sampling | None = None) -> Execution:
        """Return the execution of this seed."""
        return _Run(self, Random(seed), sampling or Sampling()).execution()


def _deciding(events: EventSet) -> list[set[str]]:
    guards = {edge.guard: True for _, op in events.ops for edge in op.after}
    found: list[set[str]] = []
    for number, sources in enumerate(events.waits(guards)):
        edges = [edge for n in (*sources, number) for edge in events.ops[n][1].after]
        found.append({name for edge in edges for name in registers(edge.guard)})
    return found


class _Run:
    """One execution in the making.

    before: for each event that ran, the bit set of those that happen before it.
    history: for each granule its writes in coherence order. glued: writes behind which a pair's
    write must stay.
    """

    def __init__(self, machine: ViewMachine, random: Random, sampling: Sampling) -> None:
        self.sampling = sampling
        self.machine, self.events, self.random = machine, machine.events, random
        self.space = machine.events.space
        self.before: dict[int, int] = {}
        self.history: list[list[int]] = [[] for _ in self.events.granules]
        self.glued: set[int] = set()
        self.heads: dict[int, list[int]] = {}
        self.reads_from: dict[int, int] = {}
        self.stored: dict[int, Value] = {}
        self.registers: dict[str, Value] = {}
        self.ran = 0
        base = self.events.base
        self.mutual = (
            base["in_scope"] & self.space.inverse(base["in_scope"]) & base["same_location"]
        )
        self.launches: list[int] = []
        for name in ("init_before", "launch_before", "exit_after"):
            rows = self.space.rows(self.space.inverse(base[name]))
            self.launches = [
                a | b for a, b in zip(self.launches or [0] * len(rows), rows, strict=True)
            ]

    # Order of execution

    def execution(self) -> Execution:
        """Run everything and return the execution."""
        waiting = [n for n, unit in enumerate(self.events.units) if unit.role == "op"]
        for unit in (u for u in self.events.units if u.role == "init"):
            self._write(unit, self._initial(unit))
        for launch in sorted({block.launch for block in self.events.program.blocks}):
            mine = [n for n in waiting if self._launch(n) == launch]
            while mine:
                ready = [n for n in mine if self._is_ready(n, mine)]
                number = self.random.choice(self._preferred(ready))
                mine.remove(number)
                self._step(self.events.units[number])
        for unit in (u for u in self.events.units if u.role == "exit"):
            self._step(unit)
        return self._finished()

    def _preferred(self, ready: list[int]) -> list[int]:
        """All that is ready, or that of the first block, as the sampling has it."""
        overlap, order = self.sampling.overlap, self.sampling.order
        if overlap == 1.0 or self.random.random() < overlap:
            return ready
        rank = {block: at for at, block in enumerate(order)}
        blocks = [self.events.units[n].block for n in ready]
        first = min(blocks, key=lambda block: rank.get(block, block))
        return [n for n, block in zip(ready, blocks, strict=True) if block == first]

    def _is_stale(self) -> bool:
        staleness = self.sampling.staleness
        return staleness == 1.0 or self.random.random() < staleness

    def _launch(self, number: int) -> int:
        return self.events.program.blocks[self.events.units[number].block].launch

    def _is_ready(self, number: int, waiting: list[int]) -> bool:
        """Whether all that this access waits for, or computes with, has run."""
        units, unit = self.events.units, self.events.units[number]
        sources = self._waits()[unit.op]
        if any(units[n].op in sources for n in waiting):
            return False
        access = unit.access
        exprs = [
            e for e in (unit.guard, access.value, access.compare, access.otherwise) if e is not None
        ]
        names = {name for expr in exprs for name in registers(expr)}
        names |= self.machine.deciding[unit.op]
        return all(units[n].access.register not in names for n in waiting if n != number)

    def _waits(self) -> list[set[int]]:
        guards = {edge.guard for _, op in self.events.ops for edge in op.after}
        holds = {g: g == TRUE or evaluate(g, self.registers) == 1 for g in guards}
        return self.events.waits(holds)

    # Steps

    def _initial(self, unit: Unit) -> Value:
        location = unit.access.location
        return self.events.program.buffer(location.buffer).contents(location.start, location.size)

    def _step(self, unit: Unit) -> None:
        access = unit.access
        if access.is_fault or evaluate(unit.guard, self.registers) != 1:
            self._skip(unit)
            return
        old: Value = UNINIT
        if unit.reads:
            old = self._read(unit)
            if access.register:
                self.registers[access.register] = old
        if not unit.writes:
            return
        if access.kind == "cas":
            wanted = evaluate(access.compare or TRUE, self.registers)
            if not isinstance(wanted, int) or wrap(wanted, access.location.size) != old:
                return
        self._write(unit, stored_value(unit, old, self.registers))

    def _skip(self, unit: Unit) -> None:
        name, padding = unit.access.register, unit.access.otherwise
        if name and unit.role == "op" and name not in self.registers:
            guard = evaluate(self.events.ops[unit.op][1].guard, self.registers)
            if guard == 1:
                value = UNINIT if padding is None else evaluate(padding, self.registers)
                self.registers[name] = UNINIT if value is UNKNOWN else value

    def _known(self, unit: Unit, event: int) -> int:
        """The events that happen before an event of this access, as far as its block decides."""
        found = self.launches[event] & self.ran
        if unit.role == "op":
            sources = self._waits()[unit.op]
            for other in self.before:
                if self.events.units[self.events.events[other].unit].op in sources:
                    found |= 1 << other
        for other in list(self.before):
            if found >> other & 1:
                found |= self.before[other]
        return found

    def _oldest(self, granule: int, known: int) -> int:
        """The index in the history behind which nothing that `known` precedes may go."""
        lowest = 0
        for index, write in enumerate(self.history[granule]):
            if known >> write & 1:
                lowest = index
        for read, write in self.reads_from.items():
            if known >> read & 1 and write in self.history[granule]:
                lowest = max(lowest, self.history[granule].index(write))
        return lowest

    def _choices(self, unit: Unit, read: int, known: int) -> list[int]:
        granule = self.events.events[read].granule
        history = self.history[granule]
        found = history[self._oldest(granule, known) :]
        if unit.writes:
            found = [w for w in found if w not in self.glued] or history[-1:]
        return found if self._is_stale() else found[-1:]

    def _read(self, unit: Unit) -> Value:
        """Let each event of the access read, and learn what the writes bring along."""
        known = self._known(unit, unit.reads[0])
        sources = {r: self.random.choice(self._choices(unit, r, known)) for r in unit.reads}
        if len(unit.reads) > 1 and self._is_torn(sources):
            sources = {r: self.history[self.events.events[r].granule][-1] for r in unit.reads}
        for read, write in sources.items():
            known |= self._learnt(read, write)
        parts: list[tuple[Value, int]] = []
        for read, write in sources.items():
            self._record(read, known)
            self.reads_from[read] = write
            size = self.events.granules[self.events.events[read].granule].size
            parts.append((self.stored[write], size))
        return join(parts)

    def _is_torn(self, sources: dict[int, int]) -> bool:
        """Whether one event reads a strong access and another reads from before it."""
        events = self.events.events
        for read, write in sources.items():
            if not self._is_mutual(write, read):
                continue
            for other, source in sources.items():
                history = self.history[events[other].granule]
                same = [w for w in history if events[w].unit == events[write].unit]
                if same and history.index(source) < history.index(same[0]):
                    return True
        return False

    def _is_mutual(self, e: int, f: int) -> bool:
        both = {self.events.events[e].order, self.events.events[f].order}
        return "weak" not in both and bool(self.mutual >> e * self.space.size + f & 1)

    def _learnt(self, read: int, write: int) -> int:
        """What happens before the read because it reads this write."""
        if self.events.events[read].order != "acquire" or not self._is_mutual(write, read):
            return 0
        found = 0
        for head in self.heads[write]:
            if self.events.events[head].order == "release" and self._is_mutual(head, read):
                for event in self.events.units[self.events.events[head].unit].writes:
                    found |= self.before[event] | 1 << event
        return found

    def _record(self, event: int, known: int) -> None:
        self.before[event] = known
        self.ran |= 1 << event

    def _write(self, unit: Unit, value: Value) -> None:
        known = self._known(unit, unit.writes[0])
        for read in unit.reads:
            known |= self.before[read] | 1 << read
        for write in unit.writes:
            event = self.events.events[write]
            history = self.history[event.granule]
            at = self._position(unit, event.granule, known)
            self.heads[write] = [write]
            source = next(
                (self.reads_from[r] for r in unit.reads if self._granule(r) == event.granule), None
            )
            if source is not None:
                at = history.index(source) + 1
                self.glued.add(source)
                read = next(r for r in unit.reads if self._granule(r) == event.granule)
                if self._is_mutual(source, read):
                    self.heads[write] += self.heads[source]
            history.insert(at, write)
            size = self.events.granules[event.granule].size
            self.stored[write] = part(value, event.offset, size)
            self._record(write, known)

    def _granule(self, event: int) -> int:
        return self.events.events[event].granule

    def _position(self, unit: Unit, granule: int, known: int) -> int:
        """A random index at which a write may be put into the history."""
        history = self.history[granule]
        if not history:
            return 0
        lowest = self._oldest(granule, known)
        free = [i + 1 for i in range(lowest, len(history)) if history[i] not in self.glued]
        return self.random.choice(free) if self._is_stale() else free[-1]

    def _finished(self) -> Execution:
        rf = self.space.of((w, r) for r, w in self.reads_from.items())
        co: Relation = self.space.of(
            (a, b) for h in self.history for i, a in enumerate(h) for b in h[i + 1 :]
        )
        guards = {edge.guard for _, op in self.events.ops for edge in op.after}
        tok = self.events.token_relation({g: evaluate(g, self.registers) == 1 for g in guards})
        race = self.space.restrict(self.machine.evaluator.race(rf, co, tok), self.ran)
        outcome = tuple(sorted(self.registers.items()))
        return Execution(self.events, self.reads_from, rf, co, tok, self.ran, outcome, race)
