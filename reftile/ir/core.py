"""The IR of every level: values, operations, blocks, regions, kernels, modules.

Nothing here knows any particular operation: their classes are generated into `ops.py` from the
records of
spec/. An operation keeps its operands *by port*: one entry per operand port of its record, which
is a value,
None for an absent optional operand, or a tuple for a variadic one.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, ClassVar, Literal

from reftile.ir.diagnostics import NOWHERE, Span
from reftile.ir.types import Type

if TYPE_CHECKING:
    from reftile.ir.attributes import Attribute
    from reftile.ir.define import Definition

Level = Literal["tile", "pipe", "simt"]
Argument = "Value | None | tuple[Value, ...]"


class Value:
    """The result of an operation, or an argument of a block (then `owner` is the block)."""

    __slots__ = ("index", "name", "owner", "type")

    def __init__(
        self, type: Type, name: str = "", owner: Op | Block | None = None, index: int = 0
    ) -> None:
        self.type = type
        self.name = name
        self.owner = owner
        self.index = index

    def __repr__(self) -> str:
        return f"%{self.name or '?'}: {self.type}"


class Op:
    """One operation; the generated subclasses add a property per port, attribute and region.

    arguments: one entry per operand port (value, None or tuple of values).
    attributes: by name; an attribute equal to its default is absent.
    """

    __slots__ = (
        "_flat",
        "_flat_of",
        "arguments",
        "attributes",
        "comments",
        "parent",
        "regions",
        "results",
        "span",
    )

    name: ClassVar[str] = ""
    definition: ClassVar[Definition]

    def __init__(
        self,
        arguments: tuple[Value | tuple[Value, ...] | None, ...] = (),
        result_types: tuple[Type, ...] = (),
        attributes: dict[str, Attribute] | None = None,
        regions: tuple[Region, ...] = (),
        span: Span = NOWHERE,
        names: tuple[str, ...] = (),
    ) -> None:
        self.arguments = arguments
        self._flat: tuple[Value, ...]
        self._flat_of: object = None
        self.attributes: dict[str, Attribute] = attributes if attributes is not None else {}
        self.regions = regions
        self.span = span
        self.parent: Block | None = None
        self.comments: tuple[str, ...] = ()
        self.results: tuple[Value, ...] = ()
        if result_types:
            self.results = tuple(
                [
                    Value(t, names[i] if i < len(names) else "", self, i)
                    for i, t in enumerate(result_types)
                ]
            )
        for region in regions:
            region.parent = self

    @property
    def operands(self) -> tuple[Value, ...]:
        """All operands, flat, in port order."""
        # Asked for several times in every pass; `arguments` is replaced, never changed.
        if self._flat_of is not self.arguments:
            flat: list[Value] = []
            for argument in self.arguments:
                if isinstance(argument, tuple):
                    flat.extend(argument)
                elif argument is not None:
                    flat.append(argument)
            self._flat, self._flat_of = tuple(flat), self.arguments
        return self._flat

    def replace_operands(self, mapping: dict[Value, Value]) -> None:
        """Use `mapping[v]` wherever `v` is used and mapped. Regions inside are not entered."""
        if not mapping.keys().isdisjoint(self.operands):
            self.arguments = map_arguments(self.arguments, mapping)

    def walk(self) -> Iterator[Op]:
        """Yield this operation and all operations inside it, outermost first."""
        yield self
        for region in self.regions:
            yield from region.block.walk()

    def __repr__(self) -> str:
        results = ", ".join(f"%{r.name or '?'}" for r in self.results)
        operands = ", ".join(f"%{o.name or '?'}" for o in self.operands)
        return f"<{results}{' = ' if results else ''}{self.name} {operands} at {self.span}>"


def map_arguments(
    arguments: tuple[Value | tuple[Value, ...] | None, ...], mapping: dict[Value, Value]
) -> tuple[Value | tuple[Value, ...] | None, ...]:
    """Return `mapping[v]` for each `v` that is mapped, and the others as they are."""
    return tuple(
        [
            tuple([mapping.get(v, v) for v in a])
            if isinstance(a, tuple)
            else None
            if a is None
            else mapping.get(a, a)
            for a in arguments
        ]
    )


class Block:
    """A list of operations, with arguments. The last operation of a region's block ends it."""

    __slots__ = ("arguments", "ops", "parent")

    def __init__(self, argument_types: tuple[Type, ...] = (), names: tuple[str, ...] = ()) -> None:
        self.arguments = [
            Value(t, names[i] if i < len(names) else "", self, i)
            for i, t in enumerate(argument_types)
        ]
        self.ops: list[Op] = []
        self.parent: Region | None = None

    def append(self, op: Op) -> Op:
        """Add `op` at the end and return it."""
        op.parent = self
        self.ops.append(op)
        return op

    def insert_before(self, anchor: Op, op: Op) -> Op:
        """Insert `op` in front of `anchor` and return it."""
        op.parent = self
        self.ops.insert(self.ops.index(anchor), op)
        return op

    def walk(self) -> Iterator[Op]:
        """Yield all operations, nested ones too, in textual order."""
        # One generator for all depths: through one for each, every operation would pass them all.
        under_way = [iter(self.ops)]
        while under_way:
            for op in under_way[-1]:
                yield op
                if op.regions:
                    under_way += [iter(r.block.ops) for r in reversed(op.regions)]
                    break
            else:
                under_way.pop()


class Region:
    """The body of an operation: exactly one block."""

    __slots__ = ("block", "parent")

    def __init__(self, block: Block | None = None) -> None:
        self.block = block if block is not None else Block()
        self.block.parent = self
        self.parent: Op | Kernel | None = None


@dataclass(eq=False, slots=True, repr=False)
class Kernel:
    """An entry: arguments, a body and what it is meant for.

    argument_attributes: one dictionary per argument (for example `access`, `noalias`).
    attributes: of the whole kernel: target, cluster, hints, progress, host expressions.
    verified: what the kernel was when `verify_unless_known` last passed it.
    plans: what others made of the kernel as it was then; dropped when it has changed.
    """

    name: str
    body: Region
    level: Level = "tile"
    argument_attributes: tuple[dict[str, Attribute], ...] = ()
    attributes: dict[str, Attribute] = field(default_factory=dict[str, "Attribute"])
    span: Span = NOWHERE
    comments: tuple[str, ...] = ()
    verified: object = None
    plans: dict[str, object] = field(default_factory=dict[str, object])

    def __post_init__(self) -> None:
        self.body.parent = self
        missing = len(self.body.block.arguments) - len(self.argument_attributes)
        self.argument_attributes = (*self.argument_attributes, *({} for _ in range(missing)))

    @property
    def arguments(self) -> list[Value]:
        """The kernel's arguments."""
        return self.body.block.arguments

    def walk(self) -> Iterator[Op]:
        """Yield every operation of the kernel in textual order."""
        return self.body.block.walk()

    def __repr__(self) -> str:
        return f"<{self.level} kernel @{self.name}>"


@dataclass(eq=False, slots=True, repr=False)
class Module:
    """Kernels and module-level operations (globals), in textual order."""

    kernels: list[Kernel] = field(default_factory=list[Kernel])
    globals: list[Op] = field(default_factory=list[Op])
    name: str = ""
    comments: tuple[str, ...] = ()

    def __repr__(self) -> str:
        names = ", ".join(f"@{kernel.name}" for kernel in self.kernels)
        return f"<module of {names or 'no kernel'}>"

    def kernel(self, name: str | None = None) -> Kernel:
        """Return the kernel called `name`, or the only one.

        Raises:
            KeyError: there is no such kernel, or several and no name was given.
        """
        if name is None and len(self.kernels) == 1:
            return self.kernels[0]
        for kernel in self.kernels:
            if kernel.name == name:
                return kernel
        raise KeyError(name)
