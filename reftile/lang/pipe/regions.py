"""What stands in a `with`: roles, one thread of a role, rows that need it, staggered halves."""

from __future__ import annotations

import ast
from collections.abc import Callable, Sequence
from dataclasses import dataclass

from reftile.ir.core import Block, Value
from reftile.ir.types import scalar
from reftile.lang.dtypes import int32
from reftile.lang.expressions import assign_target
from reftile.lang.frame import Environment, Flow, Frame, Outcome
from reftile.lang.merge import (
    Conflict,
    GroupSlot,
    Slot,
    TileSlot,
    TokenSlot,
    join,
    pack,
    same,
    unpack,
)
from reftile.lang.merge import slot_types as types_of
from reftile.lang.names.registry import name
from reftile.lang.pipe.common import error, option
from reftile.lang.statements import ForeignContext
from reftile.lang.trace import Trace
from reftile.lang.values import CELL, Tile, Undefined, is_static

Body = Callable[[], Outcome]


@dataclass(frozen=True, slots=True, eq=False)
class Region(ForeignContext):
    """An operation with a region. `what` names it in messages."""

    what: str

    def describe(self) -> str:
        """Name the value in a message."""
        return f"`{self.what}(...)`, which stands in a `with`"

    def inside(self, frame: Frame, block: Block, body: Body) -> Environment:
        """Trace the body into a block; give the names at its end."""
        outer, loop = frame.names, frame.loop
        frame.names, frame.loop = dict(outer), None
        try:
            with frame.trace.inside(block):
                body()
            return frame.names
        finally:
            frame.names, frame.loop = outer, loop


def _changed(frame: Frame, names: Environment) -> dict[str, object]:
    """The names that a region gave other values, in order."""
    before = frame.names
    return {n: v for n, v in names.items() if n not in before or not same(before[n], v)}


def _forget(frame: Frame, names: Sequence[str], why: str) -> None:
    for changed in names:
        if changed.startswith(CELL):
            raise frame.trace.error("pipe.region", f"a fragment or buffer changes here: {why}")
        frame.names[changed] = Undefined(why)


@dataclass(frozen=True, slots=True, eq=False)
class Role(Region):
    """A role: nothing that it computes leaves it."""

    label: str
    warps: int
    replicas: int
    registers: int | None

    def trace(self, frame: Frame, node: ast.With, target: ast.expr | None, body: Body) -> Outcome:
        """Trace a `role`; the target is the number of the replica."""
        t = frame.trace
        argument = target.id if isinstance(target, ast.Name) else ""
        block = Block((scalar(int32.element),) if target is not None else (), (argument,))
        if target is None:
            block = Block()

        def whole() -> Outcome:
            if target is not None:
                assign_target(frame, target, Tile(block.arguments[0], int32))
            outcome = body()
            t.op("yield", ())
            return outcome

        names = self.inside(frame, block, whole)
        t.structure(
            "role",
            [block],
            types=[],
            label=self.label,
            warps=self.warps,
            replicas=self.replicas if self.replicas != 1 else None,
            registers=self.registers,
        )
        _forget(frame, list(_changed(frame, names)), "it was given its value inside a role")
        return Flow.NEXT


@name
def role(
    t: Trace,
    label: object,
    /,
    *,
    warps: object,
    replicas: object = 1,
    registers: object = None,
) -> Role:
    """A context that runs beside other roles; it gives the number of the replica.

    registers: the budget of each thread.
    """
    if not isinstance(label, str):
        raise error(t, "role", "a role is named by a text")
    counts = t.static_int(warps, "warps"), t.static_int(replicas, "replicas")
    return Role("role", label, *counts, option(t, registers, "registers"))


@dataclass(frozen=True, slots=True, eq=False)
class Elected(Region):
    """One thread of the role: tokens may leave."""

    def trace(self, frame: Frame, node: ast.With, target: ast.expr | None, body: Body) -> Outcome:
        """Trace an `elected`."""
        if target is not None:
            raise frame.unsupported(target, "`as` behind `elected()`")
        t, block = frame.trace, Block()
        names = self.inside(frame, block, body)
        changed = _changed(frame, names)
        slots = {n: _tokens(join([v], "run_time")) for n, v in changed.items()}
        leaving = {n: s for n, s in slots.items() if s is not None}
        stay = [n for n in changed if n not in leaving and not is_static(changed[n])]
        with t.inside(block):
            t.op("yield", tuple(_packed(t, leaving, changed)))
        types = [k for s in leaving.values() for k in types_of(s)]
        op = t.structure("elected", [block], types=types)
        results = iter(op.results)
        for name_, slot in leaving.items():
            frame.names[name_] = unpack(slot, results)
        for name_ in changed:
            if name_ not in leaving and name_ not in stay:
                frame.names[name_] = changed[name_]
        _forget(frame, stay, "it was given its value inside `elected`, which only tokens leave")
        return Flow.NEXT


def _tokens(slot: Slot) -> Slot | None:
    """A slot that carries tokens alone, or None."""
    match slot:
        case TokenSlot():
            return slot
        case GroupSlot() if all(_tokens(item) is not None for item in slot.items):
            return slot
        case _:
            return None


def _packed(t: Trace, slots: dict[str, Slot], names: Environment) -> list[Value]:
    return [v for n, slot in slots.items() for v in pack(t, slot, names[n])]


@name
def elected(t: Trace, /) -> Elected:
    """A context that one thread of the role runs. Tokens may leave it, values may not."""
    return Elected("elected")


@dataclass(frozen=True, slots=True, eq=False)
class IfRows(Region):
    """Values are computed for the groups of rows that need them, and kept in the others."""

    condition: Tile

    def trace(self, frame: Frame, node: ast.With, target: ast.expr | None, body: Body) -> Outcome:
        """Trace an `if_rows`: names that change inside keep their values in the other rows."""
        if target is not None:
            raise frame.unsupported(target, "`as` behind `if_rows(...)`")
        t, block = frame.trace, Block()
        names = self.inside(frame, block, body)
        before = {n: v for n, v in frame.names.items() if not isinstance(v, Undefined)}
        changed = {n: v for n, v in _changed(frame, names).items() if n in before}
        slots: dict[str, Slot] = {}
        for name_, value in changed.items():
            slot = join([frame.names[name_], value])
            if isinstance(slot, Conflict) or not isinstance(slot, TileSlot):
                raise frame.error(
                    node,
                    "pipe.if_rows",
                    f"`{name_}` changes inside `if_rows`, and is no tile of one type",
                    "only tiles are computed by rows",
                )
            slots[name_] = slot
        with t.inside(block):
            t.op("yield", tuple(_packed(t, slots, names)))
        otherwise = tuple(_packed(t, slots, frame.names))
        types = [k for s in slots.values() for k in types_of(s)]
        op = t.structure("if_rows", [block], self.condition.value, otherwise, types=types)
        results = iter(op.results)
        for name_, slot in slots.items():
            frame.names[name_] = unpack(slot, results)
        fresh = [n for n in _changed(frame, names) if n not in slots]
        _forget(frame, fresh, "it was given its value inside `if_rows`, for some rows only")
        return Flow.NEXT


@name
def if_rows(t: Trace, condition: object, /) -> IfRows:
    """A context that computes tiles anew in the groups of rows where the condition is true.

    condition: one boolean for each of equal groups of rows; sixteen rows are those of a warp.
    """
    tile = t.tile(condition, "condition")
    if tile.ndim != 1 or tile.dtype.category != "bool":
        raise error(t, "if_rows", "`condition` must be a row of booleans")
    return IfRows("if_rows", tile)


@dataclass(frozen=True, slots=True, eq=False)
class Stagger(Region):
    """All replicas run the region, each some steps behind the one before."""

    steps: int

    def trace(self, frame: Frame, node: ast.With, target: ast.expr | None, body: Body) -> Outcome:
        """Trace a `stagger`: what changes inside leaves it."""
        t, block = frame.trace, Block()
        names = self.inside(frame, block, body)
        changed = _changed(frame, names)
        slots = {n: join([v], "run_time") for n, v in changed.items()}
        with t.inside(block):
            t.op("yield", tuple(_packed(t, slots, names)))
        types = [k for s in slots.values() for k in types_of(s)]
        op = t.structure("stagger", [block], types=types, steps=self.steps)
        results = iter(op.results)
        for name_, slot in slots.items():
            frame.names[name_] = unpack(slot, results)
        return Flow.NEXT


@name
def stagger(t: Trace, /, steps: object = 1) -> Stagger:
    """A context that shifts the replicas of a role against each other (gfx942)."""
    return Stagger("stagger", t.static_int(steps, "steps"))
