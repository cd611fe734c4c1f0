"""The events that a program can have, and what relates them whatever the candidate."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from functools import cached_property
from itertools import pairwise
from typing import Literal

from reftile.interp.model.evaluate import Relation, Space
from reftile.interp.model.events import Access, Exit, Location, Op, Order, Program, Scope, check
from reftile.interp.model.values import TRUE, Expr, both, registers


@dataclass(frozen=True, slots=True)
class Granule:
    """The largest range of bytes that every access covers wholly or not at all."""

    buffer: str
    start: int
    size: int


@dataclass(frozen=True, slots=True)
class Event:
    """What one access does to one granule.

    unit: the number of the access in `EventSet.units`.
    offset: bytes from the access's first byte.
    block, launch: -1 for init and exit.
    """

    index: int
    kind: Literal["R", "W"]
    unit: int
    granule: int
    offset: int
    order: Literal["weak", "relaxed", "acquire", "release"]
    scope: Scope | None
    block: int
    launch: int
    device: int


@dataclass(frozen=True, slots=True)
class Unit:
    """An access of the program with its events; init and exit have an access of their own.

    number: its place in `EventSet.units`. guard: of the operation and the access together.
    op: number of the operation among all operations, -1 for init and exit.
    """

    number: int
    access: Access
    guard: Expr
    op: int
    block: int
    reads: tuple[int, ...]
    writes: tuple[int, ...]
    role: Literal["op", "init", "exit"] = "op"


def _event_order(
    kind: Literal["R", "W"], order: Order
) -> Literal["weak", "relaxed", "acquire", "release"]:
    """The order of one event: reads acquire, writes release, the rest is relaxed."""
    match kind, order:
        case _, "weak":
            return "weak"
        case "R", "acquire" | "acq_rel":
            return "acquire"
        case "W", "release" | "acq_rel":
            return "release"
        case _:
            return "relaxed"


def _granules(program: Program) -> list[Granule]:
    """Cut the touched bytes of every buffer at the ends of all accesses."""
    touched: dict[str, set[tuple[int, int]]] = {}
    for location in _locations(program):
        touched.setdefault(location.buffer, set()).add(
            (location.start, location.start + location.size)
        )
    found: list[Granule] = []
    for name, ranges in touched.items():
        cuts = sorted({at for r in ranges for at in r})
        for start, end in pairwise(cuts):
            if any(low <= start and end <= high for low, high in ranges):
                found.append(Granule(name, start, end - start))
    return found


def _locations(program: Program) -> Iterable[Location]:
    for block in program.blocks:
        for op in block.ops:
            yield from (access.location for access in op.accesses)
    yield from (leave.location for leave in program.exits)


class EventSet:
    """The possible events of a program, and the relations that hold whatever the candidate.

    written: the write events of each granule, init first.
    base: the relations that section 4 of the specification calls given, except rf, co and tok.
    tokens: `tok`, if it does not follow from the operations' `after`.
    """

    tokens: Relation | None = None

    def __init__(self, program: Program) -> None:
        check(program)
        self.program = program
        self.granules = _granules(program)
        self.ops: list[tuple[int, Op]] = [
            (number, op) for number, block in enumerate(program.blocks) for op in block.ops
        ]
        self.events: list[Event] = []
        self.units: list[Unit] = []
        self._add_init()
        for number, (block, op) in enumerate(self.ops):
            for access in op.accesses:
                self._add_access(number, block, op, access)
        for leave in program.exits:
            self._add_exit(leave)
        self.space = Space(len(self.events))
        self.written: list[list[int]] = [
            [e.index for e in self.events if e.kind == "W" and e.granule == g]
            for g in range(len(self.granules))
        ]
        self.base: dict[str, Relation] = self._relations()

    # Events

    def _event(
        self,
        kind: Literal["R", "W"],
        granule: int,
        start: int,
        order: Order,
        scope: Scope | None,
        block: int,
    ) -> int:
        where = self.program.blocks[block] if block >= 0 else None
        self.events.append(
            Event(
                len(self.events),
                kind,
                len(self.units),
                granule,
                self.granules[granule].start - start,
                _event_order(kind, order),
                scope,
                block,
                where.launch if where else -1,
                where.device if where else -1,
            )
        )
        return len(self.events) - 1

    def _covered(self, location: Location) -> list[int]:
        return [
            number
            for number, g in enumerate(self.granules)
            if g.buffer == location.buffer
            and location.start <= g.start < location.start + location.size
        ]

    def _add_init(self) -> None:
        for number, g in enumerate(self.granules):
            access = Access("store", Location(g.buffer, g.start, g.size), name=f"init {g.buffer}")
            event = self._event("W", number, g.start, "weak", None, -1)
            self.units.append(Unit(len(self.units), access, TRUE, -1, -1, (), (event,), "init"))

    def _add_access(self, number: int, block: int, op: Op, access: Access) -> None:
        covered, start = self._covered(access.location), access.location.start
        reads: tuple[int, ...] = ()
        writes: tuple[int, ...] = ()
        if access.kind != "store":
            reads = tuple(self._event("R", g, start, op.order, op.scope, block) for g in covered)
        if access.kind != "load":
            writes = tuple(self._event("W", g, start, op.order, op.scope, block) for g in covered)
        guard = both(op.guard, access.guard)
        self.units.append(Unit(len(self.units), access, guard, number, block, reads, writes))

    def _add_exit(self, leave: Exit) -> None:
        access = Access("load", leave.location, register=leave.register, name=leave.register)
        start = leave.location.start
        reads = tuple(
            self._event("R", g, start, "weak", None, -1) for g in self._covered(leave.location)
        )
        self.units.append(Unit(len(self.units), access, TRUE, -1, -1, reads, (), "exit"))

    # Relations

    def _pairs(self, holds: Iterable[tuple[int, int]]) -> Relation:
        return self.space.of(holds)

    def _relations(self) -> dict[str, Relation]:
        events, units = self.events, self.units
        both_ways = [(e, f) for e in events for f in events]
        role = [units[e.unit].role for e in events]
        location = [units[e.unit].access.location for e in events]

        def where(test: Iterable[tuple[Event, Event]]) -> Relation:
            return self._pairs((e.index, f.index) for e, f in test)

        return {
            "R": where((e, e) for e in events if e.kind == "R"),
            "W": where((e, e) for e in events if e.kind == "W"),
            **order_sets(self.space, events),
            "rmw": where((e, f) for e, f in both_ways if e.unit == f.unit and e.kind < f.kind),
            "whole": where((e, f) for e, f in both_ways if e.unit == f.unit and e.kind == f.kind),
            "same_location": where(
                (e, f) for e, f in both_ways if location[e.index] == location[f.index]
            ),
            "granule": where((e, f) for e, f in both_ways if e.granule == f.granule),
            "conflict": where(
                (e, f)
                for e, f in both_ways
                if e.granule == f.granule and e.unit != f.unit and "W" in (e.kind, f.kind)
            ),
            "init_before": where(
                (e, f) for e, f in both_ways if role[e.index] == "init" and role[f.index] != "init"
            ),
            "exit_after": where(
                (e, f) for e, f in both_ways if role[f.index] == "exit" and role[e.index] != "exit"
            ),
            "launch_before": where((e, f) for e, f in both_ways if 0 <= e.launch < f.launch),
            "dep": self._dependences(),
        }

    def _sources(self, names: Iterable[str], found: set[int]) -> set[int]:
        """Add the read events that the values of these registers are computed from."""
        for name in names:
            for unit in self.definers.get(name, ()):
                if found.issuperset(unit.reads):
                    continue
                found.update(unit.reads)
                self._sources(registers(unit.guard), found)
                if unit.access.otherwise is not None:
                    self._sources(registers(unit.access.otherwise), found)
        return found

    @cached_property
    def definers(self) -> dict[str, list[Unit]]:
        """The accesses that write each register."""
        found: dict[str, list[Unit]] = {}
        for unit in self.units:
            if unit.access.register:
                found.setdefault(unit.access.register, []).append(unit)
        return found

    def _dependences(self) -> Relation:
        pairs: list[tuple[int, int]] = []
        for unit in self.units:
            access = unit.access
            existence = self._sources(registers(unit.guard), set())
            pairs += [(r, e) for r in existence for e in (*unit.reads, *unit.writes)]
            stored: set[int] = set()
            if access.value is not None:
                self._sources(registers(access.value), stored)
            if access.compare is not None:
                self._sources(registers(access.compare), stored)
            if access.kind == "cas" or (access.kind == "rmw" and access.modify != "xchg"):
                stored.update(unit.reads)
            pairs += [(r, w) for r in stored for w in unit.writes]
        return self._pairs(pairs)

    # Tokens

    @cached_property
    def has_guarded_tokens(self) -> bool:
        """Whether a token edge depends on a value."""
        return any(edge.guard != TRUE for _, op in self.ops for edge in op.after)

    def waits(self, holds: Mapping[Expr, bool] | None = None) -> list[set[int]]:
        """Return for each operation the numbers of all those it waits for.

        holds: guards known to be true; edges with other guards than these and TRUE do not count.
        """
        known = holds or {}
        numbers = {(block, op.name): number for number, (block, op) in enumerate(self.ops)}
        found: list[set[int]] = []
        for block, op in self.ops:
            reached: set[int] = set()
            for edge in op.after:
                source = numbers[block, edge.op]
                if edge.guard == TRUE or known.get(edge.guard, False):
                    reached |= {source} | found[source]
            found.append(reached)
        return found

    def token_relation(self, holds: Mapping[Expr, bool] | None = None) -> Relation:
        """Return `tok`."""
        if self.tokens is not None:
            return self.tokens
        by_op: dict[int, list[int]] = {}
        for event in self.events:
            by_op.setdefault(self.units[event.unit].op, []).append(event.index)
        waits = self.waits(holds)
        return self._pairs(
            (e, f)
            for number, sources in enumerate(waits)
            for source in sources
            for e in by_op.get(source, ())
            for f in by_op.get(number, ())
        )

    # Names for messages

    def describe(self, event: int) -> str:
        """Return what an event is, in the words of the program."""
        e = self.events[event]
        unit = self.units[e.unit]
        if unit.role != "op":
            return unit.access.name
        block, op = self.ops[unit.op]
        name = f"{self.program.blocks[block].name}.{op.name}"
        order = op.order if op.scope is None else f"{op.order}.{op.scope}"
        what = {"load": "load", "store": "store", "rmw": unit.access.modify, "cas": "cas"}
        half = "" if unit.access.kind in ("load", "store") else f" ({e.kind})"
        return f"{name}: {what[unit.access.kind]}.{order} {unit.access.name}{half}"


def order_sets(space: Space, events: Iterable[Event]) -> dict[str, Relation]:
    """Return the sets of events by order, and `in_scope`."""
    listed = list(events)

    def includes(e: Event, f: Event) -> bool:
        if e.scope is None or e.block < 0 or f.block < 0:
            return False
        same_device = e.scope == "device" and e.device == f.device
        return e.scope == "sys" or same_device or e.block == f.block

    sets = {
        order: space.of((e.index, e.index) for e in listed if e.order == order)
        for order in ("weak", "relaxed", "acquire", "release")
    }
    inside = space.of((e.index, f.index) for e in listed for f in listed if includes(e, f))
    return {**sets, "in_scope": inside}
