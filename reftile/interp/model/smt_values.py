"""Values and existence of events as formulas: the part of a candidate that no model defines."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any, assert_never

from reftile.interp.model.event_set import EventSet, Unit
from reftile.interp.model.values import (
    FALSE,
    MODIFY,
    TRUE,
    Bin,
    Call,
    Const,
    Expr,
    IsUninit,
    Poison,
    Reg,
    Select,
)
from reftile.ir.diagnostics import ReftileError, fail

Formula = Any
"""A formula of the solver, or True or False."""


def _beyond(what: str) -> ReftileError:
    return fail("explore.smt", f"{what} is not written for the solver: explore without --smt")


class Logic:
    """Formulas in which True and False are folded away."""

    def __init__(self, z3: Any) -> None:
        self.z3 = z3

    def boolean(self, name: str) -> Formula:
        """A new variable."""
        return self.z3.FreshBool(name)

    def all(self, formulas: Iterable[Formula]) -> Formula:
        """The conjunction."""
        found = [f for f in formulas if f is not True]
        if any(f is False for f in found):
            return False
        return True if not found else found[0] if len(found) == 1 else self.z3.And(*found)

    def some(self, formulas: Iterable[Formula]) -> Formula:
        """The disjunction."""
        found = [f for f in formulas if f is not False]
        if any(f is True for f in found):
            return True
        return False if not found else found[0] if len(found) == 1 else self.z3.Or(*found)

    def negation(self, formula: Formula) -> Formula:
        """The negation."""
        return not formula if isinstance(formula, bool) else self.z3.Not(formula)

    def implies(self, first: Formula, second: Formula) -> Formula:
        """The implication."""
        return self.some([self.negation(first), second])

    def choose(self, condition: Formula, yes: Formula, no: Formula) -> Formula:
        """`yes` if the condition holds, else `no`: formulas both."""
        return self.some([self.all([condition, yes]), self.all([self.negation(condition), no])])


@dataclass(frozen=True, slots=True)
class Term:
    """A value: bits, whether it is poison, and whether it is there at all."""

    bits: Any
    poison: Formula
    known: Formula


class Values:
    """The values of a candidate.

    rf: when a read reads from a write. exists, writes: when an access happens, and its write part.
    happens: when an event happens.
    """

    def __init__(self, events: EventSet, logic: Logic, solver: Any) -> None:
        self.events, self.logic, self.solver = events, logic, solver
        largest = max((u.access.location.size for u in events.units), default=4)
        # Room for a product of two elements.
        self.width = 16 * largest + 8
        self.registers: dict[str, Term] = {}
        self._terms: dict[Expr, Term] = {}
        self.rf: dict[tuple[int, int], Formula] = {}
        self.parts: dict[int, tuple[Any, Formula]] = {}
        self.exists: list[Formula] = []
        self.writes: list[Formula] = []
        self._declare()
        for unit in events.units:
            self.exists.append(self._existence(unit))
            self.writes.append(self._write_existence(unit))
        self.happens: dict[int, Formula] = {}
        for unit in events.units:
            self.happens.update(dict.fromkeys(unit.reads, self.exists[unit.number]))
            self.happens.update(dict.fromkeys(unit.writes, self.writes[unit.number]))
        self._constrain_registers()
        self._constrain_reads()

    def register(self, name: str) -> Term:
        """The value of a register."""
        return self.registers[name]

    def holds(self, condition: Expr) -> Formula:
        """When a condition is known, no poison, and not zero."""
        term, logic = self.term(condition), self.logic
        return logic.all([term.known, logic.negation(term.poison), self._is_true(term.bits)])

    # Declarations

    def _declare(self) -> None:
        z3, logic = self.logic.z3, self.logic
        for name in self.events.definers:
            bits = z3.FreshConst(z3.BitVecSort(self.width), name)
            self.registers[name] = Term(bits, logic.boolean(f"poison {name}"), logic.boolean(name))
        for event in self.events.events:
            if event.kind == "R":
                size = 8 * self.events.granules[event.granule].size
                bits = z3.FreshConst(z3.BitVecSort(size), f"read {event.index}")
                self.parts[event.index] = bits, logic.boolean(f"poison {event.index}")

    def _existence(self, unit: Unit) -> Formula:
        if unit.access.is_fault:
            return False
        return True if unit.guard == TRUE else self.holds(unit.guard)

    def _write_existence(self, unit: Unit) -> Formula:
        exists, logic = self.exists[unit.number], self.logic
        if not unit.writes or unit.access.kind != "cas":
            return exists if unit.writes else False
        old, wanted = self.read(unit), self.term(unit.access.compare or TRUE)
        clean = [logic.negation(old.poison), logic.negation(wanted.poison), wanted.known]
        same = old.bits == self._wrapped(wanted.bits, unit.access.location.size)
        return logic.all([exists, *clean, same])

    # Terms

    def _number(self, value: int) -> Any:
        return self.logic.z3.BitVecVal(value, self.width)

    def _is_true(self, bits: Any) -> Formula:
        found = self.logic.z3.simplify(bits != 0)
        if self.logic.z3.is_true(found):
            return True
        return False if self.logic.z3.is_false(found) else found

    def _wrapped(self, bits: Any, size: int) -> Any:
        z3 = self.logic.z3
        return z3.SignExt(self.width - 8 * size, z3.Extract(8 * size - 1, 0, bits))

    def term(self, expr: Expr) -> Term:
        """The value of an expression."""
        known = self._terms.get(expr)
        if known is None:
            known = self._terms[expr] = self._make(expr)
        return known

    def _make(self, expr: Expr) -> Term:
        z3, logic = self.logic.z3, self.logic
        match expr:
            case Const(value):
                return Term(self._number(value), False, True)
            case Poison():
                return Term(self._number(0), True, True)
            case Reg(name):
                return self.registers[name]
            case IsUninit(arg):
                inner = self.term(arg)
                bits = self._from_formula(inner.poison)
                return Term(bits, False, inner.known)
            case Select(condition, yes, no):
                chosen, a, b = self.term(condition), self.term(yes), self.term(no)
                way = self._is_true(chosen.bits)
                bits = z3.If(way, a.bits, b.bits)
                poison = logic.some([chosen.poison, logic.choose(way, a.poison, b.poison)])
                known = logic.choose(way, a.known, b.known)
                known = logic.all([chosen.known, logic.some([chosen.poison, known])])
                return Term(bits, poison, known)
            case Bin(op, lhs, rhs):
                return self._binary(op, self.term(lhs), self.term(rhs))
            case Call(name):
                raise _beyond(f"`{name}` of a loaded value")
            case _:
                assert_never(expr)

    def _from_formula(self, formula: Formula) -> Any:
        if isinstance(formula, bool):
            return self._number(int(formula))
        return self.logic.z3.If(formula, self._number(1), self._number(0))

    def _binary(self, op: str, a: Term, b: Term) -> Term:
        logic, x, y = self.logic, a.bits, b.bits
        poison, known = logic.some([a.poison, b.poison]), logic.all([a.known, b.known])
        match op:
            case "+":
                bits = x + y
            case "-":
                bits = x - y
            case "*":
                bits = x * y
            case "&":
                zeros = [
                    logic.all(
                        [t.known, logic.negation(t.poison), logic.negation(self._is_true(t.bits))]
                    )
                    for t in (a, b)
                ]
                zero = logic.some(zeros)
                bits = x & y if zero is False else self._zero_if(zero, x & y)
                return Term(
                    bits,
                    logic.all([poison, logic.negation(zero)]),
                    logic.some([known, zero]),
                )
            case "|":
                bits = x | y
            case "^":
                bits = x ^ y
            case ">>":
                bits = x >> y
            case _:
                compared = {
                    "==": lambda: x == y,
                    "!=": lambda: x != y,
                    "<": lambda: x < y,
                    "<=": lambda: x <= y,
                    ">": lambda: x > y,
                    ">=": lambda: x >= y,
                }[op]()
                bits = self._from_formula(compared)
        return Term(bits, poison, known)

    def _zero_if(self, zero: Formula, bits: Any) -> Any:
        if zero is True:
            return self._number(0)
        return self.logic.z3.If(zero, self._number(0), bits)

    # Reads and writes

    def read(self, unit: Unit) -> Term:
        """What an access reads, put together from its events."""
        z3 = self.logic.z3
        parts = [self.parts[r] for r in unit.reads]
        bits = parts[0][0] if len(parts) == 1 else z3.Concat(*[p for p, _ in reversed(parts)])
        wide = z3.SignExt(self.width - bits.size(), bits)
        return Term(wide, self.logic.some(p for _, p in parts), True)

    def stored(self, write: int) -> tuple[Any, Formula]:
        """The bits of a write event, and whether they are poison."""
        z3, event = self.logic.z3, self.events.events[write]
        unit = self.events.units[event.unit]
        size = self.events.granules[event.granule].size
        if unit.role == "init":
            place = unit.access.location
            buffer = self.events.program.buffer(place.buffer)
            value = buffer.contents(place.start, place.size)
            number = value if isinstance(value, int) else 0
            return z3.BitVecVal(number, 8 * size), not isinstance(value, int)
        term = self._new_value(unit)
        low = 8 * event.offset
        return z3.Extract(low + 8 * size - 1, low, term.bits), term.poison

    def _new_value(self, unit: Unit) -> Term:
        access, logic = unit.access, self.logic
        new = self.term(access.value or FALSE)
        if access.kind != "rmw" or access.modify == "xchg":
            return new
        if access.combine is not None:
            raise _beyond(f"a read-modify-write with `{access.modify}`")
        old, z3 = self.read(unit), logic.z3
        x, y = old.bits, new.bits
        bits = {
            "add": lambda: x + y,
            "and": lambda: x & y,
            "or": lambda: x | y,
            "xor": lambda: x ^ y,
            "max": lambda: z3.If(x >= y, x, y),
            "min": lambda: z3.If(x <= y, x, y),
        }[access.modify]()
        assert access.modify in MODIFY
        return Term(bits, logic.some([old.poison, new.poison]), new.known)

    def _constrain_reads(self) -> None:
        """A read that happens reads from one write that happens, and gets its value."""
        logic, events = self.logic, self.events
        written = {w: self.stored(w) for writes in events.written for w in writes}
        for read, (bits, poison) in self.parts.items():
            event, sources = events.events[read], list[Formula]()
            for write in events.written[event.granule]:
                if events.events[write].unit == event.unit or self.happens[write] is False:
                    continue
                chosen = logic.boolean(f"rf {write} {read}")
                self.rf[write, read] = chosen
                value, bad = written[write]
                same = logic.choose(bad, poison, logic.all([logic.negation(poison), bits == value]))
                needs = [self.happens[write], self.happens[read], same]
                self.solver.add(logic.implies(chosen, logic.all(needs)))
                sources.append(chosen)
            self.solver.add(logic.implies(self.happens[read], logic.some(sources)))
            if len(sources) > 1:
                self.solver.add(logic.z3.AtMost(*sources, 1))

    def _constrain_registers(self) -> None:
        """A register holds what an access has read, or padding where the operation has none."""
        logic = self.logic
        for name, units in self.events.definers.items():
            term = self.registers[name]
            any_exists = logic.some(self.exists[u.number] for u in units)
            for unit in units:
                self._equal(self.exists[unit.number], term, self.read(unit))
            unit = units[0]
            runs: Formula = False
            if unit.role == "op":
                guard = self.events.ops[unit.op][1].guard
                runs = True if guard == TRUE else self.holds(guard)
                absent = logic.all([runs, logic.negation(any_exists)])
                padding = unit.access.otherwise
                if padding is None:
                    self.solver.add(logic.implies(absent, term.poison))
                else:
                    self._equal(absent, term, self.term(padding))
            here = logic.some([any_exists, runs])
            self.solver.add(term.known if here is True else term.known == here)

    def _equal(self, when: Formula, term: Term, value: Term) -> None:
        logic = self.logic
        clean = logic.all([logic.negation(term.poison), term.bits == value.bits])
        self.solver.add(logic.implies(when, logic.choose(value.poison, term.poison, clean)))
