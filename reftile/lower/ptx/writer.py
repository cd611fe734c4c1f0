"""Lines of PTX, registers by name and type, and how values are held in them."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from functools import lru_cache
from math import prod
from typing import TypeAlias

from reftile.ir.attributes import Dense
from reftile.ir.core import Op, Value
from reftile.ir.diagnostics import NOWHERE, Bug, ReftileError, fail
from reftile.ir.dtypes import DType
from reftile.ir.types import Element as ElementType
from reftile.ir.types import PendingType, TileType
from reftile.lower.fragments import layout_of
from reftile.lower.ptx.storage import Storage
from reftile.lower.ptx.table import register_kind


@dataclass(frozen=True, slots=True)
class Shifted:
    """An i32 element that is a register plus a constant, added where it is used.

    Counters and addresses are such sums: a constant costs nothing in an address operand, and no
    register in a comparison.
    """

    register: str
    amount: int


Element: TypeAlias = "str | Shifted"
"""A register, an immediate, or a sum that is not computed yet."""


@dataclass(frozen=True, slots=True)
class Held:
    """The elements that a thread holds of a value, in the order of its layout's registers.

    each: elements of 8 or 16 bits in an entry, which is a register of 32 bits; the lowest first.
    """

    elements: Sequence[Element]
    each: int = 1


@dataclass(frozen=True, slots=True)
class Form:
    """How a thread holds the values of a type.

    count: elements. each: how many of them share a register. single: the type of register that
    holds one alone; kind: that of the registers which hold them all.
    """

    count: int
    each: int
    single: str
    kind: str


def form_of(value: Value) -> Form:
    """How a thread holds a value.

    Raises:
        Bug: it is not held in registers, or its elements are spread and nothing says how.
    """
    tile = tile_of(value)
    form = _form(tile.shape, tile.element, tile.layout)
    if form is None:
        raise Bug(f"%{value.name}: {tile} has no layout", "ptx")
    return form


@lru_cache(maxsize=1024)
def _form(shape: tuple[int, ...], element: ElementType, layout: str) -> Form | None:
    if not layout and prod(shape) != 1:
        return None
    count = 1 if prod(shape) == 1 else layout_of(layout).extent("register")
    single = register_kind(element)
    # As many elements of 8 or 16 bits as fit 32 bits, if that comes out.
    if shape and isinstance(element, DType) and element.bits in (8, 16):
        each = 32 // element.bits
        if count % each == 0:
            return Form(count, each, single, "b32")
    return Form(count, 1, single, single)


def packing(value: Value) -> int:
    """How many elements of a value share a register."""
    return form_of(value).each


def kind_of(value: Value) -> str:
    """The type of the registers that hold a value."""
    return form_of(value).kind


def tile_of(value: Value) -> TileType:
    """The tile that a value is, or will be."""
    kind = value.type
    if isinstance(kind, TileType):
        return kind
    if isinstance(kind, PendingType):
        return kind.tile
    raise Bug(f"%{value.name}: {kind} is not held in registers", "ptx")


@dataclass(slots=True)
class Writer:
    """Collects the text of one kernel for a target."""

    storage: Storage
    target: str
    lines: list[str] = field(default_factory=list[str])
    registers: dict[str, list[str]] = field(default_factory=dict[str, list[str]])
    held: dict[Value, Held] = field(default_factory=dict[Value, Held])
    count: int = 0
    guard: str = ""
    shared: str = ""
    loops: list[Callable[[Op, str], None]] = field(default_factory=list[Callable[[Op, str], None]])
    origins: list[tuple[Op, int, int]] | None = None
    """The lines that each operation became, inner operations first; None if nobody asks."""

    # Text

    def line(self, text: str) -> None:
        """Append an instruction, under the guard if there is one."""
        self.lines.append(f"  {self.guard}{text}")

    def label(self, name: str) -> None:
        """Append a label."""
        self.lines.append(f"{name}:")

    def fresh_label(self, name: str) -> str:
        """A label that is not used yet."""
        self.count += 1
        return f"{name}_{self.count}"

    # Registers

    def register(self, kind: str, name: str = "t") -> str:
        """A new register of a type, its name made unique."""
        self.count += 1
        full = f"%{name or 't'}_{self.count}"
        self.registers.setdefault(kind, []).append(full)
        return full

    def group(self, kind: str, count: int, name: str) -> list[str]:
        """Several new registers."""
        self.count += 1
        stem = f"%{name or 't'}_{self.count}_"
        self.registers.setdefault(kind, []).append(f"{stem}<{count}>")
        return [f"{stem}{i}" for i in range(count)]

    def declarations(self) -> list[str]:
        """The `.reg` lines."""
        found: list[str] = []
        for kind, names in self.registers.items():
            for i in range(0, len(names), 8):
                found.append(f"  .reg .{kind} {', '.join(names[i : i + 8])};")
        return found

    # Values

    def result(self, value: Value) -> list[str]:
        """The registers that an operation writes its result to."""
        root = self.storage.find(value)
        held = self.held.get(root)
        if held is None:
            form = form_of(value)
            held = self.held[root] = Held(self.fresh(form, value.name), form.each)
        self.held[value] = held
        return [str(e) for e in held.elements]

    def fresh(self, form: Form, name: str) -> list[str]:
        """New registers for all elements of a value of a form."""
        count = form.count // form.each
        return (
            [self.register(form.kind, name)] if count == 1 else self.group(form.kind, count, name)
        )

    def has_storage(self, value: Value) -> bool:
        """True if the value shares registers with others, so that it must lie in them."""
        return value in self.storage.sharing

    def get(self, value: Value) -> Held:
        """How a value is held."""
        found = self.held.get(value)
        if found is None:
            raise Bug(f"%{value.name} is used before it is held", "ptx")
        return found

    def elements(self, value: Value) -> list[str]:
        """The operands that hold a value's elements; sums are computed now."""
        return [e if isinstance(e, str) else self.ready(e) for e in self.get(value).elements]

    def in_registers(self, operands: Sequence[str], kind: str) -> list[str]:
        """The operands, constants moved into new registers: not every instruction takes them.

        Matrix instructions take none (ptxas 13: "Arguments mismatch"), nor do those on halves, and
        untyped ones take none of floats.
        """
        known = {operand: "" for operand in operands if not operand.startswith("%")}
        for operand in known:
            known[operand] = self.register(kind, "known")
            self.line(f"mov.{kind} {known[operand]}, {operand};")
        return [known.get(operand, operand) for operand in operands]

    def ready(self, element: Element) -> str:
        """An element as an operand."""
        if isinstance(element, str):
            return element
        if not element.amount:
            return element.register
        found = self.register("b32", "sum")
        self.line(f"add.s32 {found}, {element.register}, {element.amount};")
        return found

    def single(self, value: Value) -> list[str]:
        """The elements one by one; of 8 bits in registers of 16, whose high half says nothing."""
        found, each = self.elements(value), self.held[value].each
        return found if each == 1 else [part for u in found for part in self.split(u, each)]

    def split(self, unit: str, each: int) -> list[str]:
        """The elements in a register of 32 bits."""
        if unit.startswith("0x"):
            width = 32 // each
            bits = int(unit, 16)
            return [f"0x{bits >> i * width & (1 << width) - 1:X}" for i in range(each)]
        low, high = self.register("b16", "low"), self.register("b16", "high")
        self.line(f"mov.b32 {{{low}, {high}}}, {unit};")
        if each == 2:
            return [low, high]
        parts: list[str] = []
        for half in (low, high):
            above = self.register("b16", "above")
            self.line(f"shr.u16 {above}, {half}, 8;")
            parts += [half, above]
        return parts

    def join(self, parts: Sequence[str], each: int, given: int = 1) -> list[str]:
        """Put elements into registers of `each`; a part has one, or `given`, the lowest first."""
        if each == given:
            return list(parts)
        if each == 4 and given == 1:
            halves: list[str] = []
            for low, high in zip(parts[::2], parts[1::2], strict=True):
                one, other = self.register("b16", "low"), self.register("b16", "high")
                self.line(f"and.b16 {one}, {low}, 0xFF;")
                self.line(f"shl.b16 {other}, {high}, 8;")
                self.line(f"or.b16 {one}, {one}, {other};")
                halves.append(one)
            parts = halves
        found: list[str] = []
        for low, high in zip(parts[::2], parts[1::2], strict=True):
            unit = self.register("b32", "pair")
            self.line(f"mov.b32 {unit}, {{{low}, {high}}};")
            found.append(unit)
        return found

    def hold(self, value: Value, parts: Sequence[str], given: int = 1) -> None:
        """Let a value be these elements, one or `given` in each part."""
        found = self.join(parts, packing(value), given)
        if not self.has_storage(value):
            self.held[value] = Held(found, packing(value))
            return
        kind = kind_of(value)
        self.move([(kind, t, s) for t, s in zip(self.result(value), found, strict=True)])

    def one(self, value: Value) -> str:
        """The operand that holds a scalar."""
        return self.elements(value)[0]

    def address(self, value: Value, offset: int = 0) -> str:
        """An address operand, constants in its offset."""
        (element,) = self.get(value).elements
        if isinstance(element, Shifted):
            element, offset = element.register, element.amount + offset
        return f"[{element}+{offset}]" if offset else f"[{element}]"

    def one_map(self, value: Value) -> str:
        """The register with the address of a tensor's description."""
        return str(self.get(value).elements[0])

    def predicate(self, value: Value) -> str:
        """The predicate register of a scalar truth value."""
        found = self.one(value)
        if found in ("0", "1"):
            register = self.register("pred", "truth")
            self.line(f"setp.eq.u32 {register}, {found}, 1;")
            return register
        return found

    def bits_of(self, value: Value) -> int:
        """The width of an element."""
        element = tile_of(value).element
        return element.bits if isinstance(element, DType) else 64

    # Moves

    def move(self, pairs: Sequence[tuple[str, str, str]]) -> None:
        """Move all at once: (type, target, source) each; cycles go through a new register."""
        assert len({target for _, target, _ in pairs}) == len(pairs), "two moves to one register"
        left: list[tuple[str, str, str]] = [m for m in pairs if m[1] != m[2]]
        while left:
            sources = {s for _, _, s in left}
            ready = [m for m in left if m[1] not in sources]
            blocked = [m for m in left if m[1] in sources]
            if not ready:
                kind, target, source = left[0]
                spare = self.register(kind, "spare")
                self.move_one(kind, spare, source)
                left[0] = (kind, target, spare)
                continue
            for kind, target, source in ready:
                self.move_one(kind, target, source)
            left = blocked

    def move_one(self, kind: str, target: str, source: str) -> None:
        """One move; a predicate has no immediate."""
        if kind == "pred" and source in ("0", "1"):
            self.line(f"setp.eq.u32 {target}, {source}, 1;")
        else:
            self.line(f"mov.{kind} {target}, {source};")

    def moves(self, target: Value, source: Value) -> list[tuple[str, str, str]]:
        """The moves that make `target` hold what `source` does."""
        into = self.result(target)
        kind = kind_of(target)
        return [(kind, t, s) for t, s in zip(into, self.elements(source), strict=True)]

    def unsupported(self, value: Value, what: str) -> ReftileError:
        """The error for a value that cannot be held or computed."""
        span = value.owner.span if isinstance(value.owner, Op) else NOWHERE
        kind = tile_of(value)
        return fail("lower.ptx", f"{what} ({kind}) cannot be printed as PTX yet", span)


def immediates(dense: Dense, elements: Sequence[int], each: int) -> list[str]:
    """The elements of a constant with the given flat indices, as immediates, `each` in one."""
    if dense.splat and len(elements) > each:
        return immediates(dense, elements[:each], each) * (len(elements) // each)
    if dense.splat:
        values = [int.from_bytes(dense.data, "little")] * len(elements)
    else:
        bits = dense.bits()
        values = [int(bits[i]) for i in elements]
    if each > 1:
        width = dense.dtype.bits
        units = (values[i : i + each] for i in range(0, len(values), each))
        return [f"0x{sum(v << k * width for k, v in enumerate(u)):08X}" for u in units]
    name, width = dense.dtype.name, dense.dtype.bits
    if name == "f32":
        return [f"0f{v:08X}" for v in values]
    if name == "f64":
        return [f"0d{v:016X}" for v in values]
    if dense.dtype.kind == "int" and width > 1:
        return [str(v - (1 << width) if v >> (width - 1) else v) for v in values]
    return [str(v) for v in values]


def flat_size(shape: Sequence[int]) -> int:
    """The number of elements."""
    return prod(shape)
