"""Build kernels in Python, with result types computed from the records where they can be.

builder = Builder(kernel.body.block)
total = builder.create(ops.Addi, a, b).results[0]
loop = builder.create(ops.For, lower, upper, step, (init,))
with builder.inside(loop.body): ...
"""

from __future__ import annotations

from collections.abc import Generator, Sequence
from contextlib import contextmanager
from typing import TypeVar

from reftile.ir.attributes import Attribute
from reftile.ir.core import Block, Kernel, Level, Op, Region, Value
from reftile.ir.define import Definition, Pattern
from reftile.ir.diagnostics import NOWHERE, Diagnosis, ReftileError, Span
from reftile.ir.expressions import evaluate
from reftile.ir.match import (
    Mismatch,
    Names,
    attribute_names,
    bind_ports,
    infer_results,
    instantiate,
)
from reftile.ir.types import Type

AnyOp = TypeVar("AnyOp", bound=Op)
BuildArgument = "Value | None | Sequence[Value]"


def make_kernel(
    name: str, arguments: Sequence[tuple[str, Type]], level: Level = "tile", span: Span = NOWHERE
) -> Kernel:
    """Return a kernel with an empty body; arguments are (name, type) pairs."""
    block = Block(tuple(t for _, t in arguments), tuple(n for n, _ in arguments))
    return Kernel(name, Region(block), level, span=span)


class Builder:
    """Appends operations to a block. `span` is given to every operation that is built."""

    def __init__(self, block: Block, span: Span = NOWHERE) -> None:
        self.block = block
        self.span = span

    def create(
        self,
        cls: type[AnyOp],
        *arguments: Value | Sequence[Value] | None,
        types: Sequence[Type] | None = None,
        names: Sequence[str] = (),
        span: Span | None = None,
        **attributes: Attribute | None,
    ) -> AnyOp:
        """Append one operation, and return it.

        arguments: one per operand port, in the record's order; missing trailing ones are absent.
        types: the result types; None computes them from the record.
        attributes: those that are None or equal to the record's default are left out. Regions are
        made empty,
            with the block arguments that the record computes.

        Raises:
            ReftileError: the operands do not fit the record (rule `op.port.what`).
        """
        definition = cls.definition
        ports = definition.operands
        given = [tuple(a) if isinstance(a, (list, tuple)) else a for a in arguments]
        for port in ports[len(given) :]:
            given.append(() if port.multiplicity == "many" else None)
        kept = _without_defaults(definition, attributes)
        where = span or self.span
        names_bound: Names = {}
        try:
            bind_ports(ports, given, names_bound, definition)
            attribute_names(definition, kept, names_bound)  # type: ignore[arg-type]
            result_types = (
                tuple(types) if types is not None else infer_results(definition, names_bound)
            )
        except Mismatch as error:
            raise ReftileError(
                Diagnosis(
                    f"{cls.name}.{error.rule}", f"{error.message} (`{cls.name}`)", where, error.hint
                )
            ) from None
        if result_types is None:
            raise ReftileError(
                Diagnosis(
                    f"{cls.name}.results", f"the result types of `{cls.name}` must be given", where
                )
            )
        regions = tuple(
            _empty_region(definition, i, names_bound) for i in range(len(definition.regions))
        )
        op = cls(tuple(given), result_types, kept, regions, where, tuple(names))  # type: ignore[arg-type]
        self.block.append(op)
        return op

    @contextmanager
    def inside(self, region: Region) -> Generator[Block]:
        """Append to the block of `region` for the length of a `with`."""
        outer, self.block = self.block, region.block
        try:
            yield region.block
        finally:
            self.block = outer

    @contextmanager
    def at(self, span: Span) -> Generator[None]:
        """Give `span` to what is built for the length of a `with`."""
        outer, self.span = self.span, span
        try:
            yield
        finally:
            self.span = outer


def _without_defaults(
    definition: Definition, attributes: dict[str, Attribute | None]
) -> dict[str, Attribute]:
    specs = definition.attribute_specs
    kept: dict[str, Attribute] = {}
    for name, value in attributes.items():
        spec = specs.get(name)
        if value is None or (spec is not None and value == spec.default):
            continue
        kept[name] = tuple(value) if isinstance(value, list) else value  # type: ignore[arg-type]
    return kept


def _empty_region(definition: Definition, index: int, names: Names) -> Region:
    types: list[Type] = []
    labels: list[str] = []
    bound = dict(names)
    for port in definition.regions[index].arguments:
        found = _argument_types(port.pattern, port.multiplicity == "many", bound)
        types.extend(found)
        labels.extend([port.name] if len(found) == 1 else [""] * len(found))
    return Region(Block(tuple(types), tuple(labels)))


def _argument_types(pattern: Pattern, many: bool, names: Names) -> tuple[Type, ...]:
    if pattern.code is not None:
        value = evaluate(pattern.code, names)
        return tuple(value) if many else (value,)  # type: ignore[arg-type,return-value]
    if pattern.variable and pattern.variable in names:
        value = names[pattern.variable]
        return tuple(value) if isinstance(value, tuple) else (value,)  # type: ignore[return-value]
    computed = instantiate(pattern, names)
    return (computed,) if isinstance(computed, Type) else ()
