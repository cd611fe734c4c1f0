"""Every consistent execution of an event program.

Reads are given their writes one by one, in an order that follows the dataflow: the next read is the
first that is known to happen. After each choice, values and guards are propagated and the axioms
are asked; an axiom that more edges cannot mend ends the branch. When all reads have a write, a
coherence order is searched pair by pair in the same way. The outcome and the race of a candidate do
not depend on coherence, so one order suffices unless all are asked for.

"Race-free" is claimed only by a search that went through everything.
"""

from __future__ import annotations

from collections.abc import Iterator
from math import log10

from reftile.interp.model.candidate import Candidate
from reftile.interp.model.evaluate import Evaluator, Relation
from reftile.interp.model.event_set import EventSet
from reftile.interp.model.events import Program
from reftile.interp.model.execution import Execution, Result
from reftile.interp.model.relations import Model, spec_model
from reftile.interp.model.values import TRUE, Special, constants, evaluate
from reftile.ir.diagnostics import ReftileError, fail

EVENT_LIMIT = 160
STEP_LIMIT = 200_000


class Explorer:
    """The search over one set of events under one model."""

    def __init__(
        self,
        events: EventSet,
        model: Model,
        step_limit: int = STEP_LIMIT,
        stop_at_race: bool = False,
        all_executions: bool = False,
        race_steps: int | None = None,
    ) -> None:
        if len(events.events) > EVENT_LIMIT:
            raise too_large(events, f"more than {EVENT_LIMIT} events")
        self.events, self.space = events, events.space
        self.step_limit = step_limit
        self.all_executions = all_executions
        self.race_steps = 0 if stop_at_race else race_steps
        self._last_step: int | None = None
        self._raced: Relation = 0
        self.result = Result(events.program)
        self._guards = {e.guard for _, op in events.ops for e in op.after if e.guard != TRUE}
        self._tok = 0 if self._guards else events.token_relation()
        base = events.base if self._guards else {**events.base, "tok": self._tok}
        self.evaluator = Evaluator(model, events.space, base)
        self._possible: dict[tuple[int, int], bool] = {}
        self._shared: dict[tuple[int, int, int], bool] = {}
        self._forced: dict[tuple[int, int], list[tuple[int, int]]] = {}

    def run(self) -> Result:
        """Search everything and return what was found."""
        try:
            for _ in self.executions():
                if self._last_step is None and self.result.races and self.race_steps is not None:
                    self._last_step = self.result.steps + self.race_steps
                    self._check_end()
        except _EnoughRaces:
            self.result.complete = False
        return self.result

    def _check_end(self) -> None:
        if self._last_step is not None and self.result.steps >= self._last_step:
            raise _EnoughRaces

    def executions(self) -> Iterator[Execution]:
        """Yield consistent executions: one for each new outcome or race, or all of them."""
        yield from self._extend(Candidate(self.events))

    # Reads

    def _extend(self, candidate: Candidate) -> Iterator[Execution]:
        self.result.steps += 1
        self._check_end()
        if self.result.steps > self.step_limit:
            raise too_large(self.events, f"no end after {self.step_limit} candidates")
        if not candidate.settle():
            return
        tok = self._tokens(candidate)
        self._force(candidate)
        if self.evaluator.broken(candidate.rf, candidate.co, tok):
            return
        choice = self._next_read(candidate)
        if choice is not None and len(choice[1]) == 1:
            # Nothing to choose: go on without a copy.
            candidate.read_from(choice[0], choice[1][0])
            yield from self._extend(candidate)
        elif choice is not None:
            read, sources = choice
            for write in sources:
                yield from self._extend(candidate.with_source(read, write))
        elif candidate.open:
            yield from self._guess(candidate)
        else:
            yield from self._finish(candidate, tok)

    def _tokens(self, candidate: Candidate) -> Relation:
        if not self._guards:
            return self._tok
        holds = {g: evaluate(g, candidate.registers) == 1 for g in self._guards}
        return self.events.token_relation(holds)

    def _next_read(self, candidate: Candidate) -> tuple[int, list[int]] | None:
        """Of the reads that happen and have no write yet, the one to choose for next.

        One that has no choice, else one of a pair, as those order the writes of their place, then
        a strong one, as those decide what is ordered; among equals the one with fewest choices.
        """
        best: tuple[int, list[int]] | None = None
        lowest = (4, 0)
        for number in candidate.open:
            if candidate.exists[number] != 1:
                continue
            for read in self.events.units[number].reads:
                if read not in candidate.reads_from:
                    sources = self._sources(candidate, read)
                    rank = (self._urgency(read) if len(sources) > 1 else 0, len(sources))
                    if rank < lowest:
                        best, lowest = (read, sources), rank
        return best

    def _urgency(self, read: int) -> int:
        event = self.events.events[read]
        return 1 if self.events.units[event.unit].writes else 3 if event.order == "weak" else 2

    def _sources(self, candidate: Candidate, read: int) -> list[int]:
        """The writes that a read may still read from."""
        events = self.events.events
        return [
            write
            for write in self.events.written[events[read].granule]
            if events[write].unit != events[read].unit
            and candidate.writes[events[write].unit] != 0
            and self._is_possible(write, read)
            and not self._is_taken(candidate, write, read)
        ]

    def _is_possible(self, write: int, read: int) -> bool:
        """Whether the axioms permit this edge on its own."""
        known = self._possible.get((write, read))
        if known is None:
            rf = 1 << write * self.space.size + read
            known = self.evaluator.broken(rf, 0, self._tok) is None
            self._possible[write, read] = known
        return known

    def _is_taken(self, candidate: Candidate, write: int, read: int) -> bool:
        """Whether a read-modify-write already reads this write, and another one must not."""
        events, units = self.events.events, self.events.units
        if units[events[read].unit].access.kind != "rmw":
            return False
        for other, source in candidate.reads_from.items():
            if source == write and units[events[other].unit].access.kind == "rmw":
                pair = (min(read, other), max(read, other))
                if not self._can_share(write, *pair):
                    return True
        return False

    def _can_share(self, write: int, first: int, second: int) -> bool:
        """Whether the axioms permit two read-modify-writes to read from one write."""
        known = self._shared.get((write, first, second))
        if known is None:
            size, events = self.space.size, self.events.events
            rf = 1 << write * size + first | 1 << write * size + second
            granule = events[first].granule
            ends = [
                next(w for w in self.events.written[granule] if events[w].unit == events[r].unit)
                for r in (first, second)
            ]
            is_behind = all(
                (write, end) in self._forced_by(write, read)
                for read, end in zip((first, second), ends, strict=True)
            )
            co = 1 << write * size + ends[0] | 1 << write * size + ends[1]
            wanted = self.evaluator.order_pairs(0, 0, self._tok)
            wanted |= self.space.inverse(wanted)
            known = (
                not is_behind
                or not wanted >> ends[0] * size + ends[1] & 1
                or any(
                    self.evaluator.broken(rf, co | 1 << a * size + b, self._tok) is None
                    for a, b in (ends, ends[::-1])
                )
            )
            self._shared[write, first, second] = known
        return known

    def _force(self, candidate: Candidate) -> None:
        """Add the coherence edges that single reads force between writes known to happen."""
        events, size, co = self.events.events, self.space.size, candidate.co
        for read, write in candidate.reads_from.items():
            for a, b in self._forced_by(write, read):
                if candidate.writes[events[a].unit] == 1 == candidate.writes[events[b].unit]:
                    co |= 1 << a * size + b
        candidate.co = self.space.closure(co) if co != candidate.co else co

    def _forced_by(self, write: int, read: int) -> list[tuple[int, int]]:
        """The coherence edges without whose inverses this edge is not permitted."""
        known = self._forced.get((write, read))
        if known is None:
            size, rf = self.space.size, 1 << write * self.space.size + read
            wanted = self.evaluator.order_pairs(0, 0, self._tok)
            wanted |= self.space.inverse(wanted)
            others = self.events.written[self.events.events[read].granule]
            known = [
                (b, a)
                for other in others
                for a, b in ((write, other), (other, write))
                if other != write
                and wanted >> a * size + b & 1
                and self.evaluator.broken(rf, 1 << a * size + b, self._tok)
            ]
            self._forced[write, read] = known
        return known

    # Values that justify themselves: reached only by a model without the axiom against them

    def _guess(self, candidate: Candidate) -> Iterator[Execution]:
        for number in candidate.open:
            reads = self.events.units[number].reads
            if candidate.exists[number] == 1 and reads and number not in candidate.guessed:
                for value in sorted(self._domain()):
                    yield from self._extend(candidate.with_guess(number, value))
                return

    def _domain(self) -> set[int]:
        program, found = self.events.program, {0, 1}
        for buffer in program.buffers:
            found.update(v for v in buffer.initial if not isinstance(v, Special))
        for unit in self.events.units:
            for expr in (unit.guard, unit.access.value, unit.access.compare, program.exists):
                if expr is not None:
                    found.update(constants(expr))
        return found

    # Finished candidates

    def _finish(self, candidate: Candidate, tok: Relation) -> Iterator[Execution]:
        result = self.result
        hidden = self.events.program.hidden
        outcome = tuple(sorted(r for r in candidate.registers.items() if r[0] not in hidden))
        exists = candidate.event_set()
        race = self.space.restrict(self.evaluator.race(candidate.rf, candidate.co, tok), exists)
        is_news = outcome not in result.outcomes or race & ~self._raced
        if not is_news and not self.all_executions:
            return
        for co in self._coherence(candidate, tok, exists):
            found = Execution(
                self.events, candidate.reads_from, candidate.rf, co, tok, exists, outcome, race
            )
            result.executions += 1
            result.outcomes.setdefault(outcome, found)
            self._note_races(found)
            result.problems = result.problems or candidate.problems
            yield found
            if not self.all_executions:
                return

    def _note_races(self, found: Execution) -> None:
        """Add the pairs that no execution before has shown to race."""
        if found.race & ~self._raced:
            known = {(r.first, r.second) for r in self.result.races}
            self.result.races += [r for r in found.races() if (r.first, r.second) not in known]
            self._raced |= found.race

    def _coherence(self, candidate: Candidate, tok: Relation, exists: int) -> Iterator[Relation]:
        """Yield the coherence orders that the axioms permit."""
        rf, size = candidate.rf, self.space.size
        wanted = self.evaluator.order_pairs(rf, candidate.co, tok)
        wanted |= self.space.inverse(wanted)
        pairs = [
            (a, b)
            for writes in self.events.written
            for i, a in enumerate(writes[1:], 1)
            for b in writes[i + 1 :]
            if exists >> a & exists >> b & wanted >> a * size + b & 1
        ]

        def order(at: int, co: Relation) -> Iterator[Relation]:
            while at < len(pairs):
                a, b = pairs[at]
                if not (co >> a * size + b | co >> b * size + a) & 1:
                    break
                at += 1
            if at == len(pairs):
                if self.evaluator.broken(rf, co, tok, complete=True) is None:
                    yield co
                return
            for first, second in (pairs[at], pairs[at][::-1]):
                extended = self.space.closure(co | 1 << first * size + second)
                self.result.steps += 1
                if self.evaluator.broken(rf, extended, tok) is None:
                    yield from order(at + 1, extended)

        yield from order(0, candidate.co)


class _EnoughRaces(Exception):
    """The program races, and enough has been looked at to say how."""


def too_large(events: EventSet, why: str) -> ReftileError:
    """Return the error that a program cannot be explored, with its sizes."""
    reads = [len(events.written[e.granule]) for e in events.events if e.kind == "R"]
    digits = sum(log10(max(1, n)) for n in reads)
    return fail(
        "model.too_large",
        f"`{events.program.name}` is too large to explore: {why}; it has {len(events.events)} "
        f"events, {len(reads)} reads with up to {max(reads, default=0)} writes each (about "
        f"10^{digits:.0f} combinations), and up to {max(map(len, events.written), default=0)} "
        f"writes to one location",
        hint="use fewer blocks, elements or iterations, or sample with the view machine",
    )


def explore(
    program: Program | EventSet,
    model: Model | None = None,
    step_limit: int = STEP_LIMIT,
    stop_at_race: bool = False,
    all_executions: bool = False,
    race_steps: int | None = None,
) -> Result:
    """Return every outcome and the races of a program.

    model: the specification's by default.
    stop_at_race: stop at the first race, as nothing is promised then.
    race_steps: after the first race, look at so many more candidates for other races.
    all_executions: enumerate every `rf` and every `co`, not one execution for each outcome.

    Raises:
        ReftileError: `model.too_large`, with the sizes.
    """
    events = program if isinstance(program, EventSet) else EventSet(program)
    chosen = model or spec_model()
    explorer = Explorer(events, chosen, step_limit, stop_at_race, all_executions, race_steps)
    return explorer.run()
