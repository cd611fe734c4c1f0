"""What the passage from `pipe` to `simt` keeps: values so far, places, the role, a builder."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import TypeAlias

from reftile.ir import ops
from reftile.ir.attributes import Attribute, Dense
from reftile.ir.core import Block, Kernel, Op, Region, Value
from reftile.ir.diagnostics import NOWHERE, ReftileError, Span, fail
from reftile.ir.dtypes import DTYPES, DType
from reftile.ir.types import BufferType, TileType, Type, scalar

I1, I32, I64 = (scalar(DTYPES[name]) for name in ("i1", "i32", "i64"))
Number: TypeAlias = "Value | int"
"""A scalar of 32 bits: a value, or known now."""


@dataclass(frozen=True, slots=True)
class Place:
    """A buffer: where it starts, and what it is.

    It starts `offset` bytes into shared memory, and for each (number, bytes) of `parts` that many
    times so many bytes further; `address` is the sum.
    """

    address: Number
    type: BufferType
    offset: int = 0
    parts: tuple[tuple[Value, int], ...] = ()


@dataclass(slots=True)
class RoleState:
    """What the threads of the role under way know of themselves.

    begin: the first warp of the first replica. barrier: the number of the role's own barrier.
    thread: the number in the replica; lead: is that 0. `one_elected`: the role has one `elected`
    region, around all it does.
    """

    warps: int
    begin: int = 0
    replica: Number = 0
    barrier: Number = 0
    thread: Value | None = None
    lead: Value | None = None
    one_elected: bool = False
    is_elected: bool = False
    start: Block | None = None
    start_length: int = 0
    hoisted: dict[object, Value] = field(default_factory=dict[object, Value])


class Context:
    """The state of the passage, and short names for scalar arithmetic."""

    def __init__(self, source: Kernel, block: Block) -> None:
        self.source = source
        self.block = block
        self.span: Span = NOWHERE
        self.values: dict[Value, Value] = {}
        self.places: dict[Value, Place] = {}
        self.offsets: dict[Value, int] = {}
        self.named: dict[Value, int] = {}
        self.scratch: dict[Op | None, tuple[int, int]] = {}
        self.maps: dict[object, Value] = {}
        self.map_attributes: list[dict[str, Attribute]] = []
        self.constants: dict[tuple[int, DType], Value] = {}
        self.warp: Value | None = None
        self.requirements: list[tuple[str, str]] = []
        warps = source.attributes["warps"]
        assert isinstance(warps, int)
        self.warps = warps
        self.role = RoleState(warps)
        self.entry = block

    # Building

    def emit(
        self,
        cls: type[Op],
        arguments: Sequence[Value | tuple[Value, ...] | None] = (),
        types: Sequence[Type] = (),
        names: Sequence[str] = (),
        regions: tuple[Region, ...] = (),
        **attributes: Attribute | None,
    ) -> Op:
        """Append an operation; attributes that are None, False or the default are left out."""
        definition = cls.definition
        specs = definition.attribute_specs
        kept = {
            k: v
            for k, v in attributes.items()
            if v is not None and (k not in specs or v != specs[k].default)
        }
        padded = (*arguments, *(None,) * (len(definition.operands) - len(arguments)))
        return self.block.append(cls(padded, tuple(types), kept, regions, self.span, tuple(names)))

    def value(
        self,
        cls: type[Op],
        arguments: Sequence[Value | tuple[Value, ...] | None],
        type: Type = I32,
        name: str = "",
        **attributes: Attribute | None,
    ) -> Value:
        """Append an operation of one result, and return that."""
        return self.emit(cls, arguments, (type,), (name,), (), **attributes).results[0]

    def inside(self, block: Block, build: Callable[[], None]) -> None:
        """Build into another block."""
        outer, self.block = self.block, block
        constants, self.constants = self.constants, dict(self.constants)
        try:
            build()
        finally:
            self.block, self.constants = outer, constants

    def when(self, condition: Value, build: Callable[[], None]) -> None:
        """Build what threads do for which `condition` is true."""
        region = Region()
        self.emit(ops.If, (condition,), regions=(region,))

        def body() -> None:
            build()
            self.emit(ops.Yield, ((),))

        self.inside(region.block, body)

    def hoist(self, key: object, build: Callable[[], Value]) -> Value:
        """Build a value once, at the start of the role."""
        role = self.role
        if key not in role.hoisted:
            if role.start is None:
                role.hoisted[key] = build()
                return role.hoisted[key]
            before = Block()
            found: list[Value] = []
            constants, self.constants = self.constants, {}
            self.inside(before, lambda: found.append(build()))
            self.constants = constants
            block = role.start
            for op in before.ops:
                op.parent = block
            block.ops[role.start_length : role.start_length] = before.ops
            role.start_length += len(before.ops)
            role.hoisted[key] = found[0]
        return role.hoisted[key]

    # Numbers

    def number(self, number: Number, type: TileType = I32) -> Value:
        """The value of a number, of a scalar type; constants are made once in a block."""
        if isinstance(number, Value):
            return number
        key = (number, type.dtype)
        found = self.constants.get(key)
        if found is None:
            mask = (1 << type.dtype.bits) - 1
            dense = Dense.of_bits([number & mask], type)
            name = f"c{number}".replace("-", "m")
            found = self.constants[key] = self.value(ops.Constant, (), type, name, value=dense)
        return found

    def binary(self, cls: type[Op], lhs: Number, rhs: Number, name: str = "") -> Value:
        """Integer arithmetic on two numbers."""
        return self.value(cls, (self.number(lhs), self.number(rhs)), I32, name)

    def add(self, lhs: Number, rhs: Number, name: str = "") -> Number:
        """The sum."""
        if isinstance(lhs, int) and isinstance(rhs, int):
            return lhs + rhs
        if rhs == 0:
            return lhs
        if lhs == 0:
            return rhs
        return self.binary(ops.Addi, lhs, rhs, name)

    def multiply(self, lhs: Number, rhs: Number, name: str = "") -> Number:
        """The product."""
        if isinstance(lhs, int) and isinstance(rhs, int):
            return lhs * rhs
        if 0 in (lhs, rhs):
            return 0
        if rhs == 1:
            return lhs
        if lhs == 1:
            return rhs
        return self.binary(ops.Muli, lhs, rhs, name)

    def exclusive_or(self, lhs: Number, rhs: Number, name: str = "") -> Number:
        """Bits that differ."""
        if isinstance(lhs, int) and isinstance(rhs, int):
            return lhs ^ rhs
        if rhs == 0:
            return lhs
        if lhs == 0:
            return rhs
        return self.binary(ops.Xori, lhs, rhs, name)

    def compare(self, predicate: str, lhs: Number, rhs: Number, name: str = "") -> Value:
        """A signed comparison."""
        return self.value(
            ops.Cmpi,
            (self.number(lhs), self.number(rhs)),
            I1,
            name,
            predicate=predicate,
            signedness="signed",
        )

    def linear(self, value: Value, steps: Sequence[int], name: str = "") -> Number:
        """The exclusive or of `steps[i]` over the bits i of `value` that are set.

        Bits that move by one distance share a mask and a shift.
        """
        distances: dict[int, int] = {}
        for i, step in enumerate(steps):
            for part in _bits(step):
                distance = part.bit_length() - 1 - i
                distances[distance] = distances.get(distance, 0) | 1 << i
        total: Number = 0
        for distance, mask in sorted(distances.items()):
            shifted = self._moved(value, mask, distance)
            total = self.exclusive_or(total, shifted, name)
        return total

    def weighted(self, value: Value, steps: Sequence[int], name: str = "") -> Number:
        """The sum of `steps[i]` over the bits i of `value` that are set."""
        if not crossed(steps):
            return self.linear(value, steps, name)
        total: Number = 0
        first = 0
        while first < len(steps):
            end = first + 1
            while end < len(steps) and steps[end] == 2 * steps[end - 1]:
                end += 1
            if steps[first]:
                part = self.binary(ops.Andi, value, (1 << end) - (1 << first))
                part = self.shift_right(part, first) if first else part
                total = self.add(total, self.multiply(part, steps[first]), name)
            first = end
        return total

    def _moved(self, value: Value, mask: int, distance: int) -> Value:
        kept = self.binary(ops.Andi, value, mask)
        if distance > 0:
            return self.binary(ops.Shli, kept, distance)
        return self.shift_right(kept, -distance) if distance < 0 else kept

    def shift_right(self, value: Value, count: int, name: str = "") -> Value:
        """Unsigned shift."""
        return self.value(ops.Shri, (value, self.number(count)), I32, name, signedness="unsigned")

    # What is known

    def scalar(self, value: Value) -> Value:
        """What stands for a value of the pipe kernel; constants enter on use."""
        found = self.values.get(value)
        if found is None:
            raise self.unsupported(f"%{value.name}: {value.type} has no form for threads")
        return found

    def place(self, value: Value) -> Place:
        """Where a buffer lies."""
        return self.places[value]

    def unsupported(self, what: str, hint: str = "") -> ReftileError:
        """The error for what this lowering does not do."""
        return fail("lower.unsupported", what, self.span, hint)

    # Who

    def thread_in_role(self) -> Value:
        """The thread's number in its replica."""
        role = self.role

        def build() -> Value:
            thread = self.value(ops.ThreadId, (), I32, "thread")
            if not role.begin and not isinstance(role.replica, Value):
                return thread
            size = 32 * role.warps
            if size & (size - 1) == 0 and 32 * role.begin % size == 0:
                return self.binary(ops.Andi, thread, size - 1, "thread_in_role")
            first = self.multiply(role.replica, size)
            first = self.add(first, 32 * role.begin)
            return self.value(ops.Subi, (thread, self.number(first)), I32, "thread_in_role")

        if role.thread is None:
            role.thread = self.hoist("thread", build)
        return role.thread

    def lead(self) -> Value:
        """True in the one thread that acts for the role."""
        role = self.role
        if role.lead is None:
            thread = self.thread_in_role()
            role.lead = self.hoist("lead", lambda: self.compare("equal", thread, 0, "lead"))
        return role.lead

    def lane(self) -> Value:
        """The thread's number in its warp."""
        return self.hoist("lane", lambda: self.value(ops.LaneId, (), I32, "lane"))

    def warp_in_role(self) -> Value:
        """The warp's number in its replica."""
        thread = self.thread_in_role()
        return self.hoist("warp", lambda: self.shift_right(thread, 5, "warp_in_role"))


def crossed(steps: Sequence[int]) -> bool:
    """True if some bit is in several steps, so that adding them is not exclusive or."""
    seen = 0
    for step in steps:
        if seen & step:
            return True
        seen |= step
    return False


def bit_steps(values: Sequence[int]) -> tuple[int, ...] | None:
    """What each bit of a number adds to its value; None if values are no such sums."""
    first = values[0]
    steps = [values[1 << i] - first for i in range((len(values) - 1).bit_length())]
    for number, value in enumerate(values):
        if value - first != sum(s for i, s in enumerate(steps) if number >> i & 1):
            return None
    return tuple(steps)


def _bits(value: int) -> list[int]:
    return [1 << i for i in range(value.bit_length()) if value >> i & 1]
