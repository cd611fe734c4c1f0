"""A candidate under construction: which writes the reads read from, and the values that follow."""

from __future__ import annotations

from reftile.interp.model.evaluate import Relation
from reftile.interp.model.event_set import EventSet, Unit
from reftile.interp.model.values import (
    COMBINE,
    TRUE,
    UNINIT,
    UNKNOWN,
    Special,
    Value,
    evaluate,
    join,
    part,
    wrap,
)


def stored_value(unit: Unit, old: Value, registers: dict[str, Value]) -> Value:
    """Return what an access stores, given what it read; `UNINIT` for a load."""
    access = unit.access
    if access.kind == "load" or access.value is None:
        return UNINIT
    new = evaluate(access.value, registers)
    if access.kind == "rmw" and access.modify != "xchg" and new is not UNKNOWN:
        if isinstance(old, Special) or isinstance(new, Special):
            return UNINIT
        new = (access.combine or COMBINE[access.modify])(old, new)
    return new if isinstance(new, Special) else wrap(new, access.location.size)


class Candidate:
    """Choices so far. `settle` propagates values as far as they are determined.

    reads_from: the write event of each read event that has one. co: init before every write.
    exists, writes: for each access, whether it happens and whether its write part does: 1, 0 or
    `UNKNOWN`. open: the accesses not settled. stored: the value of each write event.
    guessed: values taken for reads that otherwise wait for themselves.
    problems: faults, and poison where a value decides.
    """

    __slots__ = (
        "co",
        "events",
        "exists",
        "guessed",
        "open",
        "problems",
        "reads_from",
        "registers",
        "rf",
        "stored",
        "writes",
    )

    def __init__(self, events: EventSet) -> None:
        self.events = events
        self.reads_from: dict[int, int] = {}
        self.rf: Relation = 0
        self.co: Relation = 0
        self.exists: list[Value] = [UNKNOWN] * len(events.units)
        self.writes: list[Value] = [UNKNOWN] * len(events.units)
        self.open: list[int] = list(range(len(events.units)))
        self.registers: dict[str, Value] = {}
        self.stored: dict[int, Value] = {}
        self.guessed: dict[int, Value] = {}
        self.problems: list[str] = []

    def copy(self) -> Candidate:
        """Return a candidate to extend."""
        new = Candidate.__new__(Candidate)
        new.events, new.rf, new.co = self.events, self.rf, self.co
        new.reads_from, new.open = dict(self.reads_from), list(self.open)
        new.exists, new.writes = list(self.exists), list(self.writes)
        new.registers, new.stored = dict(self.registers), dict(self.stored)
        new.guessed, new.problems = dict(self.guessed), list(self.problems)
        return new

    def with_source(self, read: int, write: int) -> Candidate:
        """Return a candidate in which `read` reads from `write`."""
        new = self.copy()
        new.read_from(read, write)
        return new

    def read_from(self, read: int, write: int) -> None:
        """Let `read` read from `write`."""
        self.reads_from[read] = write
        self.rf |= 1 << write * self.events.space.size + read

    def with_guess(self, unit: int, value: Value) -> Candidate:
        """Return a candidate in which an access is taken to have read `value`."""
        new = self.copy()
        new.guessed[unit] = value
        return new

    def event_set(self) -> int:
        """Return the bit set of the events that happen."""
        found = 0
        for number, unit in enumerate(self.events.units):
            for event in unit.reads if self.exists[number] == 1 else ():
                found |= 1 << event
            for event in unit.writes if self.writes[number] == 1 else ():
                found |= 1 << event
        return found

    def settle(self) -> bool:
        """Propagate values until nothing changes; False if the candidate contradicts itself."""
        units, changed = self.events.units, True
        while changed:
            changed = False
            for number in tuple(self.open):
                if self.exists[number] is UNKNOWN:
                    changed |= self._settle_existence(number, units[number])
                if self.exists[number] == 1:
                    changed |= self._settle_value(number, units[number])
        events = self.events.events
        if any(evaluate(e, self.registers) == 0 for e in self.events.program.assume):
            return False
        return all(self.writes[events[w].unit] != 0 for w in self.reads_from.values()) and all(
            self._read_value(units[n]) in (UNKNOWN, value) for n, value in self.guessed.items()
        )

    def _settle_existence(self, number: int, unit: Unit) -> bool:
        guard = evaluate(unit.guard, self.registers) if unit.guard != TRUE else 1
        if guard is UNKNOWN:
            return False
        if guard is UNINIT:
            self.problems.append(f"poison decides whether {unit.access.name} is accessed")
            guard = 0
        if guard and unit.access.is_fault:
            self.problems.append(f"{unit.access.name} is accessed outside its bounds")
            guard = 0
        self.exists[number] = 1 if guard else 0
        if unit.access.kind != "cas" or not guard:
            self._settle_write(number, unit, bool(guard))
        if not guard:
            self.open.remove(number)
            self._settle_absent(unit)
        return True

    def _settle_write(self, number: int, unit: Unit, exists: bool) -> None:
        """Note whether the write part of an access exists; init comes first in coherence."""
        self.writes[number] = 1 if exists else 0
        if exists and unit.role != "init":
            for write in unit.writes:
                init = self.events.written[self.events.events[write].granule][0]
                self.co |= 1 << init * self.events.space.size + write

    def _settle_absent(self, unit: Unit) -> None:
        """Give a register its padding when the operation runs but no access to it does."""
        name = unit.access.register
        if not name or unit.role != "op":
            return
        sharing = self.events.definers[name]
        if any(self.exists[u.number] != 0 for u in sharing):
            return
        if evaluate(self.events.ops[unit.op][1].guard, self.registers) == 1:
            padding = unit.access.otherwise
            value = UNINIT if padding is None else evaluate(padding, self.registers)
            self.registers[name] = value

    def _read_value(self, unit: Unit) -> Value:
        events, parts = self.events, list[tuple[Value, int]]()
        for read in unit.reads:
            write = self.reads_from.get(read)
            if write is None:
                return UNKNOWN
            size = events.granules[events.events[read].granule].size
            parts.append((self.stored.get(write, UNKNOWN), size))
        return join(parts)

    def _settle_value(self, number: int, unit: Unit) -> bool:
        """Settle what an access that happens reads and writes; False if nothing was learnt."""
        access = unit.access
        old: Value = UNINIT
        if unit.reads:
            old = self.guessed[number] if number in self.guessed else self._read_value(unit)
            if old is UNKNOWN:
                return self._settle_exchange(unit)
            if access.register:
                self.registers[access.register] = old
        if access.kind == "cas" and not self._settle_comparison(number, unit, old):
            return False
        if unit.role == "init":
            buffer = self.events.program.buffer(access.location.buffer)
            new = buffer.contents(access.location.start, access.location.size)
        else:
            new = stored_value(unit, old, self.registers)
        if new is UNKNOWN:
            return False
        self._store(unit, new)
        self.open.remove(number)
        return True

    def _settle_comparison(self, number: int, unit: Unit, old: Value) -> bool:
        """Settle whether a compare and swap writes."""
        wanted = evaluate(unit.access.compare or TRUE, self.registers)
        if wanted is UNKNOWN:
            return False
        if UNINIT in (old, wanted):
            self.problems.append(f"poison is compared at {unit.access.name}")
        equal = isinstance(wanted, int) and wrap(wanted, unit.access.location.size) == old
        self._settle_write(number, unit, equal)
        return True

    def _settle_exchange(self, unit: Unit) -> bool:
        """An exchange stores its operand whatever it reads."""
        access = unit.access
        if access.kind != "rmw" or access.modify != "xchg" or unit.writes[0] in self.stored:
            return False
        new = stored_value(unit, UNINIT, self.registers)
        if new is UNKNOWN:
            return False
        self._store(unit, new)
        return True

    def _store(self, unit: Unit, value: Value) -> None:
        for write in unit.writes:
            event = self.events.events[write]
            size = self.events.granules[event.granule].size
            self.stored[write] = part(value, event.offset, size)
