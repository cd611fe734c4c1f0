"""Why two events race: the edge that is missing between them, and what would add it."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from reftile.interp.model.evaluate import Evaluator, Relation
from reftile.interp.model.event_set import Event
from reftile.interp.model.execution import Execution, Race
from reftile.interp.model.relations import Model, spec_model


def missing_edge(race: Race, model: Model | None = None) -> str:
    """Return one line: what keeps the two events of a race unordered, and what would order them."""
    return _Finder(race.execution, model or spec_model()).explain(race.first, race.second)


@dataclass(frozen=True, slots=True)
class _Bridge:
    """A write that is read in the other block, and what it lacks to order the race."""

    write: int
    read: int
    lacks: tuple[str, ...]


class _Finder:
    def __init__(self, execution: Execution, model: Model) -> None:
        self.execution, self.events = execution, execution.events
        self.size = self.events.space.size
        evaluator = Evaluator(model, self.events.space, self.events.base)
        given = execution.rf, execution.co, execution.tok
        self.hb: Relation = evaluator.defined("hb", *given)
        self.ms: Relation = evaluator.defined("ms", *given)

    def explain(self, first: int, second: int) -> str:
        """Return the explanation for two racing events."""
        e, f = self.events.events[first], self.events.events[second]
        if e.block == f.block:
            return self._within(e, f)
        if "weak" not in (e.order, f.order):
            return self._strong(e, f)
        return self._direct(e, f) or self._over_third(e, f) or self._nothing_read(e, f)

    def _direct(self, e: Event, f: Event) -> str:
        """What a write of one block that the other reads lacks, or "" if there is none."""
        found = [*self._bridges(e, f), *self._bridges(f, e)]
        if not found:
            return ""
        best = min(found, key=lambda bridge: len(bridge.lacks))
        link = f"{self._name(best.write)} is read by {self._name(best.read)}"
        return f"{link}, but {' and '.join(best.lacks)}"

    def _over_third(self, e: Event, f: Event) -> str:
        """What is lacking before a release of a third block that one of the two acquires."""
        for x, y in ((e, f), (f, e)):
            for read, write in self.execution.reads_from.items():
                w, r = self.events.events[write], self.events.events[read]
                is_third = w.block >= 0 and w.block not in (e.block, f.block) and r.block == y.block
                if is_third and not list(self._lacks(w, w, r, y)):
                    before = self._direct(x, w)
                    if before:
                        return f"{self._name(read)} acquires from {self._name(write)}; {before}"
        return ""

    def _name(self, event: int) -> str:
        unit = self.events.units[self.events.events[event].unit]
        if unit.role != "op":
            return f"the {unit.access.name}"
        block, op = self.events.ops[unit.op]
        return f"`{self.events.program.blocks[block].name}.{op.name}`"

    def _within(self, e: Event, f: Event) -> str:
        """Two events of one block: a token is missing."""
        first, second = (self.events.units[x.unit].op for x in (e, f))
        if first == second:
            return (
                f"two elements of {self._name(e.index)} have one location, and no token orders "
                "elements of one operation: make it relaxed.block, or the locations different"
            )
        later, earlier = (e, f) if first > second else (f, e)
        return (
            f"no token leads from {self._name(earlier.index)} to {self._name(later.index)}: "
            f"let {self._name(later.index)} wait for {self._name(earlier.index)}"
        )

    def _strong(self, e: Event, f: Event) -> str:
        """Two strong accesses that are not morally strong."""
        units = self.events.units
        if units[e.unit].access.location != units[f.unit].access.location:
            return (
                "both are strong, but accesses of different size or place are never morally strong"
            )
        for x, y in ((e, f), (f, e)):
            if not self._in_scope(x, y):
                return (
                    f"scope {x.scope} of {self._name(x.index)} does not include block "
                    f"{self.events.program.blocks[y.block].name}: widen it"
                )
        return "nothing orders them"

    def _in_scope(self, e: Event, f: Event) -> bool:
        return bool(self.events.base["in_scope"] >> e.index * self.size + f.index & 1)

    def _ordered(self, relation: Relation, e: int, f: int) -> bool:
        return e == f or bool(relation >> e * self.size + f & 1)

    def _bridges(self, e: Event, f: Event) -> Iterator[_Bridge]:
        """The reads in f's block of writes in e's block."""
        for read, write in self.execution.reads_from.items():
            w, r = self.events.events[write], self.events.events[read]
            if (w.block, r.block) == (e.block, f.block) and w.granule != e.granule:
                yield _Bridge(write, read, tuple(self._lacks(e, w, r, f)))

    def _lacks(self, e: Event, w: Event, r: Event, f: Event) -> Iterator[str]:
        """What a write and a read lack to carry order from e to f."""
        if not self._ordered(self.hb, e.index, w.index):
            yield f"no token leads from {self._name(e.index)} to {self._name(w.index)}"
        if w.order != "release":
            yield f"{self._name(w.index)} does not release"
        if r.order != "acquire":
            yield f"{self._name(r.index)} does not acquire"
        if "weak" not in (w.order, r.order) and not self._ordered(self.ms, w.index, r.index):
            narrow = w if not self._in_scope(w, r) else r
            yield f"scope {narrow.scope} of {self._name(narrow.index)} leaves the other block out"
        if not self._ordered(self.hb, r.index, f.index):
            yield f"no token leads from {self._name(r.index)} to {self._name(f.index)}"

    def _nothing_read(self, e: Event, f: Event) -> str:
        """No write of one block reaches the other in this execution."""
        names = [self.events.program.blocks[x.block].name for x in (e, f)]
        for x, y in ((e, f), (f, e)):
            for read in self.execution.reads_from:
                r = self.events.events[read]
                is_flag = r.block == y.block and r.order == "acquire"
                if is_flag and self._ordered(self.hb, read, y.index):
                    return (
                        f"{self._name(read)} acquires, but here it reads nothing that block "
                        f"{self.events.program.blocks[x.block].name} released: let "
                        f"{self._name(y.index)} depend on the value that it reads"
                    )
        return (
            f"blocks {names[0]} and {names[1]} do not synchronise: release a flag after one access "
            "and acquire it before the other"
        )
