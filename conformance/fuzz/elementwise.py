"""Elementwise operations, written from their records alone; nothing they give is undefined."""

from __future__ import annotations

from collections.abc import Callable
from functools import cache

from reftile.conformance.fuzz.values import Shape, Writer

from reftile.ir import ops
from reftile.ir.core import Op, Value
from reftile.ir.define import AttributeSpec, Definition, Port
from reftile.ir.dtypes import DTYPES
from reftile.ir.enums import ENUMS
from reftile.ir.expressions import evaluate
from reftile.ir.ops import OPS
from reftile.ir.types import TileType
from reftile.ir.verify import bind_operation

TRIES = 8
"""Times that attributes and types are chosen anew when a rule does not hold."""


@cache
def elementwise() -> tuple[type[Op], ...]:
    """The operations that this module can write, of all in the records."""
    found = [c for c in OPS.values() if _is_elementwise(c.definition)]
    return tuple(sorted(found, key=lambda c: _SIMPLEST.get(c.name, 1)))


_SIMPLEST = {"addi": 0, "addf": 0}


def _is_elementwise(definition: Definition) -> bool:
    if "tile" not in definition.levels or definition.effects != "pure" or definition.regions:
        return False
    ports = (*definition.operands, *definition.results)
    if not definition.operands or not all(_is_plain(p, definition) for p in ports):
        return False
    if definition.undefined and definition.name not in GUARDS:
        return False
    return all(a.kind == "unit" or a.kind in ENUMS for a in definition.attributes)


def _is_plain(port: Port, definition: Definition) -> bool:
    pattern = port.pattern
    if port.multiplicity != "one" or pattern.kinds != frozenset({"tile"}) or pattern.pointer:
        return False
    shape, element = pattern.shape, pattern.element
    if len(shape) != 1 or not shape[0].star or shape[0].text != "s" or element is None:
        return False
    return element.code is None and (element.text in definition.where or element.text in DTYPES)


def write_elementwise(writer: Writer) -> list[Value]:
    """Write one elementwise operation on operands in scope or new ones."""
    shape = writer.shape()
    for _ in range(TRIES):
        cls = writer.choices.pick(elementwise())
        found = _try(writer, cls, shape)
        if found is not None:
            writer.used[cls.name] += 1
            return list(found.results)
    return []


def _try(writer: Writer, cls: type[Op], shape: Shape) -> Op | None:
    definition = cls.definition
    types = _types(writer, definition, shape)
    if any(t.dtype.name == "pointer" for t in types.values()):
        return None
    if cls.name in writer.choices.subset.lacks:
        return None
    attributes = _attributes(writer, definition)
    operands = [writer.need(types[p.name]) for p in definition.operands]
    guard = GUARDS.get(cls.name)
    if guard is not None:
        operands = guard(writer, operands, attributes, types)
    block = writer.builder.block
    op = writer.builder.create(
        cls,
        *operands,
        types=[types[p.name] for p in definition.results],
        **attributes,  # type: ignore[arg-type]
    )
    if _fits(op) and writer.choices.subset.accepts(op):
        return op
    block.ops.pop()
    return None


def _types(writer: Writer, definition: Definition, shape: Shape) -> dict[str, TileType]:
    chosen: dict[str, str] = {}
    types: dict[str, TileType] = {}
    for port in (*definition.operands, *definition.results):
        assert port.pattern.element is not None
        name = port.pattern.element.text
        if name in definition.where and name not in chosen:
            allowed = [n for n in definition.where[name] if n != "pointer"]
            if port in definition.results and definition.name in ("exti", "trunci", "bitcast"):
                allowed = _result_types(definition.name, chosen, allowed)
            chosen[name] = writer.dtype(allowed).name
        types[port.name] = TileType(shape, DTYPES[chosen.get(name, name)])
    return types


def _result_types(name: str, chosen: dict[str, str], allowed: list[str]) -> list[str]:
    """Result types of the width that a conversion needs; all of them where there is none."""
    width = DTYPES[next(iter(chosen.values()))].bits
    widths = {n: DTYPES[n].bits for n in allowed}
    wanted = [
        n
        for n, w in widths.items()
        if (w > width if name == "exti" else w < width if name == "trunci" else w == width)
    ]
    return wanted or allowed


def _attributes(writer: Writer, definition: Definition) -> dict[str, object]:
    attributes: dict[str, object] = {}
    for spec in definition.attributes:
        value = _attribute(writer, definition, spec)
        if value is not None:
            attributes[spec.name] = value
    return attributes


def _attribute(writer: Writer, definition: Definition, spec: AttributeSpec) -> object:
    choices = writer.choices
    if spec.kind == "unit":
        return True if choices.chance(25) else None
    if spec.optional and not choices.chance(40):
        return None
    return choices.pick(definition.where.get(spec.name, tuple(ENUMS[spec.kind])))


def _fits(op: Op) -> bool:
    names = bind_operation(op)
    return all(evaluate(rule.check, names) for rule in op.definition.rules)


# What keeps operands off the undefined cases

FRACTIONS = ("f16", "bf16", "f32", "f64")
"""Types whose products every target has."""

Attributes = dict[str, object]
Types = dict[str, TileType]
Guard = Callable[[Writer, list[Value], Attributes, Types], list[Value]]


def _guard_division(
    writer: Writer, operands: list[Value], attributes: Attributes, types: Types
) -> list[Value]:
    lhs, rhs = operands
    assert isinstance(rhs.type, TileType)
    if rhs.type.dtype.bits == 1:
        attributes["signedness"] = "unsigned"
        attributes.pop("rounding", None)
        return [lhs, writer.filled(rhs.type, 1)]
    low = writer.masked_bits(rhs, 7)
    return [lhs, writer.let(ops.Ori, low, writer.filled(rhs.type, 1))]


def _guard_shift(
    writer: Writer, operands: list[Value], attributes: Attributes, types: Types
) -> list[Value]:
    lhs, rhs = operands
    assert isinstance(rhs.type, TileType)
    bits = rhs.type.dtype.bits
    if attributes.get("overflow", "none") != "none":
        if bits < 8:
            del attributes["overflow"]
        else:
            return [writer.masked_bits(lhs, 3), writer.masked_bits(rhs, 1)]
    return [lhs, writer.masked_bits(rhs, bits - 1)]


def _guard_sum(
    writer: Writer, operands: list[Value], attributes: Attributes, types: Types
) -> list[Value]:
    if attributes.get("overflow", "none") == "none":
        return operands
    type = operands[0].type
    assert isinstance(type, TileType)
    narrow = min(t.dtype.bits for t in types.values())
    if narrow < 8:
        del attributes["overflow"]
        return operands
    return [writer.masked_bits(o, 3) for o in operands]


def _guard_difference(
    writer: Writer, operands: list[Value], attributes: Attributes, types: Types
) -> list[Value]:
    operands = _guard_sum(writer, operands, attributes, types)
    if attributes.get("overflow", "none") == "none":
        return operands
    if len(operands) == 1:
        attributes["overflow"] = "nsw"
        return operands
    type = operands[0].type
    assert isinstance(type, TileType)
    return [writer.let(ops.Ori, operands[0], writer.filled(type, 4)), operands[1]]


def _guard_truncation(
    writer: Writer, operands: list[Value], attributes: Attributes, types: Types
) -> list[Value]:
    """A float that fits the integer: saturated, or small and whole, of an i1 below 1."""
    source = operands[0]
    assert isinstance(source.type, TileType)
    result = types["result"].dtype
    if result.bits == 1 and source.type.dtype.name in FRACTIONS and writer.choices.chance(50):
        bits = writer.need(TileType(source.type.shape, DTYPES["i8"]))
        low = writer.masked_bits(bits, 1)
        whole = writer.let(ops.Itof, low, type=source.type, signedness="unsigned")
        attributes.pop("saturating", None)
        attributes["rounding"] = "nearest_int_to_zero"
        return [writer.let(ops.Mulf, whole, writer.filled(source.type, 0.75))]
    small = result.bits >= 8 and source.type.dtype.has_zero
    if attributes.get("saturating") or not small or not writer.choices.chance(50):
        attributes["saturating"] = True
        return operands
    bits = writer.need(TileType(source.type.shape, DTYPES["i8"]))
    low = writer.masked_bits(bits, 3)
    return [writer.let(ops.Itof, low, type=source.type, signedness="unsigned")]


GUARDS: dict[str, Guard] = {
    "divi": _guard_division,
    "remi": _guard_division,
    "shli": _guard_shift,
    "shri": _guard_shift,
    "addi": _guard_sum,
    "muli": _guard_sum,
    "trunci": _guard_sum,
    "subi": _guard_difference,
    "negi": _guard_difference,
    "ftoi": _guard_truncation,
}
"""By operation: how its operands are made such that its result is defined."""
