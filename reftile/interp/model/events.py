"""Event programs: the form in which the memory model sees a program.

This is the meeting point. Litmus texts (`litmus`) and tile kernels are translated to a `Program`;
the explorer, the view machine, the PTX lowering and the pictures start from it. A program is of
litmus size: loops are unrolled, every operation instance is listed with the accesses of its
elements, and locations are known:

* An access whose address depends on a value is given as several accesses with disjoint guards
  `index == k`, all writing the same register.
* A branch is a guard on the operations inside it, an element's mask a guard on its access.
* The program shall be in the if-converted, simplified form of the specification, because
  dependences are read off it: a store that both arms of a branch do with one value is one operation
  without the guard.
* A token that comes out of an `if` is a join whose edges carry the guards of the arms.

`EventSet` lists the events that a program can have and the relations between them that no candidate
changes.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Literal

from reftile.interp.model.values import TRUE, Expr, Modify, Value, join, part, registers
from reftile.ir.diagnostics import NOWHERE, Bug, Span

Order = Literal["weak", "relaxed", "acquire", "release", "acq_rel"]
Scope = Literal["block", "device", "sys"]
Kind = Literal["load", "store", "rmw", "cas"]

ORDERS: Mapping[Kind, tuple[Order, ...]] = {
    "load": ("weak", "relaxed", "acquire"),
    "store": ("weak", "relaxed", "release"),
    "rmw": ("relaxed", "acquire", "release", "acq_rel"),
    "cas": ("relaxed", "acquire", "release", "acq_rel"),
}
SCOPES: tuple[Scope, ...] = ("block", "device", "sys")


@dataclass(frozen=True, slots=True)
class Location:
    """Bytes [start, start + size) of a buffer."""

    buffer: str
    start: int
    size: int

    def __str__(self) -> str:
        return f"{self.buffer}[{self.start}:{self.start + self.size}]"


@dataclass(frozen=True, slots=True)
class Access:
    """What an operation does to one element.

    guard: 1 where the element is not masked off and, for a computed address, where the address is
    this one.
    value: what a store stores, a read-modify-write combines, or a compare and swap writes.
    register: receives what was read; several accesses with disjoint guards may share it.
    otherwise: what the register holds when the operation runs but no access does (padding); None is
    poison.
    name: how messages write the place, such as `x[3]`.
    element: its number in the tile; accesses to the alternatives of one address share it.
    is_fault: the access lies outside its buffer; that it happens is a problem to report.
    combine: what a read-modify-write stores, where that depends on the type of the element.
    """

    kind: Kind
    location: Location
    guard: Expr = TRUE
    value: Expr | None = None
    compare: Expr | None = None
    modify: Modify = "xchg"
    register: str = ""
    otherwise: Expr | None = None
    name: str = ""
    element: int = 0
    is_fault: bool = False
    combine: Callable[[int, int], int] | None = None


@dataclass(frozen=True, slots=True)
class Edge:
    """A token taken from operation `op` of the same block, where `guard` holds."""

    op: str
    guard: Expr = TRUE


@dataclass(frozen=True, slots=True)
class Op:
    """One memory operation instance; without accesses it joins tokens.

    name: unique in its block; it names the operation's token too.
    """

    name: str
    accesses: tuple[Access, ...] = ()
    order: Order = "weak"
    scope: Scope | None = None
    guard: Expr = TRUE
    after: tuple[Edge, ...] = ()
    text: str = field(default="", compare=False)
    span: Span = field(default=NOWHERE, compare=False)


@dataclass(frozen=True, slots=True)
class Block:
    """One block of the grid; launches are numbered in stream order."""

    name: str
    ops: tuple[Op, ...]
    device: int = 0
    launch: int = 0


@dataclass(frozen=True, slots=True)
class Buffer:
    """Memory of `len(initial)` elements of `element_size` bytes; `UNINIT` was never written."""

    name: str
    element_size: int
    initial: tuple[Value, ...]

    @property
    def size_bytes(self) -> int:
        """The bytes of the buffer."""
        return self.element_size * len(self.initial)

    def contents(self, start: int, size: int) -> Value:
        """Return the initial value of `size` bytes from byte `start`."""
        parts: list[tuple[Value, int]] = []
        for byte in range(start, start + size):
            element, offset = divmod(byte, self.element_size)
            parts.append((part(self.initial[element], offset, 1), 1))
        return join(parts)


@dataclass(frozen=True, slots=True)
class Exit:
    """The host reads a location into a register after everything."""

    register: str
    location: Location


@dataclass(frozen=True, slots=True)
class Program:
    """Buffers, blocks, what the host looks at, and the outcome asked for (None: no question).

    assume: conditions on registers; an execution that breaks one never gets on and is left out.
    hidden: registers that are no part of the outcome.
    """

    name: str
    buffers: tuple[Buffer, ...]
    blocks: tuple[Block, ...]
    exits: tuple[Exit, ...] = ()
    exists: Expr | None = None
    assume: tuple[Expr, ...] = ()
    hidden: frozenset[str] = frozenset()

    def buffer(self, name: str) -> Buffer:
        """Return the buffer of that name."""
        return next(b for b in self.buffers if b.name == name)


def check(program: Program) -> None:
    """Refuse a program that a translation got wrong.

    Raises:
        Bug: a name without a meaning, a location outside its buffer, or an order or scope that its
        operation cannot have. Texts and kernels are diagnosed before they become programs.
    """
    sizes = {buffer.name: buffer.size_bytes for buffer in program.buffers}
    accesses = [a for block in program.blocks for op in block.ops for a in op.accesses]
    known = {a.register for a in accesses} | {leave.register for leave in program.exits}
    places = [a.location for a in accesses] + [leave.location for leave in program.exits]
    for place in places:
        if not 0 <= place.start < place.start + place.size <= sizes.get(place.buffer, 0):
            raise Bug(f"{place} is no place in {program.name}", "interp.model.events")
    for block in program.blocks:
        earlier: set[str] = set()
        for op in block.ops:
            _check_op(op, known, earlier)
            earlier.add(op.name)


def _check_op(op: Op, known: set[str], earlier: set[str]) -> None:
    def wrong(what: str) -> Bug:
        return Bug(f"operation {op.name}: {what}", "interp.model.events")

    if op.name in earlier:
        raise wrong("its name is taken")
    if (op.order == "weak") != (op.scope is None) and op.accesses:
        raise wrong(f"order {op.order} with scope {op.scope}")
    exprs: list[Expr | None] = [op.guard, *(edge.guard for edge in op.after)]
    for access in op.accesses:
        if op.order not in ORDERS[access.kind]:
            raise wrong(f"a {access.kind} cannot be {op.order}")
        if (access.value is None) != (access.kind == "load"):
            raise wrong(
                f"a {access.kind} {'without a' if access.value is None else 'with a'} value"
            )
        exprs += [access.guard, access.value, access.compare, access.otherwise]
    for expr in exprs:
        for name in registers(expr) if expr is not None else ():
            if name not in known:
                raise wrong(f"nothing writes the register {name}")
    for edge in op.after:
        if edge.op not in earlier:
            raise wrong(f"it waits for {edge.op}, which does not stand before it")
