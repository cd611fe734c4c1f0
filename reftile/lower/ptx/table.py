"""The table of elementwise instructions: which row an operation takes, and its text.

`instructions.toml` holds the rows. Two rows that could both take an operation are a fault of the
table, which `choose` reports and tests look for over all types, attributes and targets.
"""

from __future__ import annotations

import tomllib
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cache, lru_cache
from pathlib import Path
from types import CodeType
from typing import Any, cast

from reftile.ir.attributes import Attribute
from reftile.ir.core import Op, Value
from reftile.ir.define import Definition
from reftile.ir.diagnostics import Bug
from reftile.ir.dtypes import DTYPES, DType
from reftile.ir.expressions import compile_expression, evaluate
from reftile.ir.targets import TARGETS
from reftile.ir.types import Element, PointerType, TileType

_ROUNDINGS = {"nearest_even": "rn", "zero": "rz", "negative_inf": "rm", "positive_inf": "rp"}
_WHOLE = {
    "nearest_int_to_zero": "rzi",
    "nearest_even": "rni",
    "negative_inf": "rmi",
    "positive_inf": "rpi",
}
_COMPARISONS = {
    "equal": "eq",
    "not_equal": "ne",
    "less_than": "lt",
    "less_than_or_equal": "le",
    "greater_than": "gt",
    "greater_than_or_equal": "ge",
}


@dataclass(frozen=True, slots=True)
class Row:
    """One row of the table."""

    op: str
    when: CodeType
    when_text: str
    text: str
    pair: bool


@cache
def rows() -> dict[str, tuple[Row, ...]]:
    """All rows by operation."""
    path = Path(__file__).with_name("instructions.toml")
    found: dict[str, tuple[Row, ...]] = {}
    for entry in cast("list[dict[str, Any]]", tomllib.loads(path.read_text("utf-8"))["row"]):
        when = str(entry["when"])
        row = Row(
            str(entry["op"]),
            compile_expression(when),
            when,
            str(entry["text"]),
            bool(entry.get("pair", False)),
        )
        found[row.op] = (*found.get(row.op, ()), row)
    return found


def _variables(definition: Definition, elements: Sequence[Element | None]) -> dict[str, object]:
    """Element types by the variables of the record; None where a port has no tile."""
    names: dict[str, object] = {}
    for port, element in zip((*definition.operands, *definition.results), elements, strict=False):
        term = port.pattern.element
        if element is not None and term is not None and term.code is None:
            names[term.text] = "i64" if isinstance(element, PointerType) else element.name
    return names


def with_spellings(
    names: dict[str, object], definition: Definition, attributes: dict[str, Any], target: str
) -> dict[str, object]:
    """Add attributes with their defaults, how PTX spells them, and what the target can do."""
    for spec in definition.attributes:
        names[spec.name] = attributes.get(spec.name, spec.default)
    names["ftz"] = ".ftz" if names.get("flush_to_zero") else ""
    names["rnd"] = _ROUNDINGS.get(str(names.get("rounding")), "")
    names["whole"] = _WHOLE.get(str(names.get("rounding")), "")
    names["cmp"] = _COMPARISONS.get(str(names.get("predicate")), "")
    names["sm"] = TARGETS[target].capability
    names["s"] = "u" if names.get("signedness") == "unsigned" else "s"
    for variable, letter in (("T", "w"), ("I", "v"), ("J", "u")):
        if variable in names:
            names[letter] = DTYPES[str(names[variable])].bits
    return names


def matching(name: str, names: dict[str, object], pair: bool) -> list[Row]:
    """The rows that take an operation, two elements at once or one; at most one is right."""
    return [r for r in rows().get(name, ()) if r.pair == pair and evaluate(r.when, names)]


def choose(name: str, names: dict[str, object], pair: bool) -> Row | None:
    """The row that an operation takes, or None if there is none.

    pair: two results at once may be asked for; a row that gives them goes first.

    Raises:
        Bug: rows overlap.
    """
    found = matching(name, names, pair=True) if pair else []
    found = found or matching(name, names, pair=False)
    if len(found) > 1:
        texts = ", ".join(row.when_text for row in found)
        raise Bug(f"rows of the table overlap on `{name}` with {names}: {texts}", "ptx.table")
    return found[0] if found else None


@dataclass(frozen=True, slots=True)
class Instruction:
    """What a row says of one form of operations.

    text: with `ports`, `result` and `temporaries` (name, type of register) left to be filled in.
    halves: of each port, whether its elements lie in registers of 16 bits.
    """

    text: str
    pair: bool
    ports: tuple[str, ...]
    halves: tuple[bool, ...]
    temporaries: tuple[tuple[str, str], ...]


_TEMPORARIES = (
    "a_b16 b_b16 c_b16 a_pred b_pred a_b32 b_b32 a_b64 a_f32 b_f32 c_f32 d_f32 a_f64 a_w b_w"
).split()


def instruction(op: Op, pair: bool, target: str) -> Instruction | None:
    """The instructions that an operation takes, or None if the table has none. See `choose`."""
    return instruction_of_form(
        type(op), elements_of(op), tuple(op.attributes.items()), pair, target
    )


def elements_of(op: Op) -> tuple[Element | None, ...]:
    """The element types of operands and results; None for what is no tile."""
    return tuple(
        [
            v.type.element if isinstance(v, Value) and isinstance(v.type, TileType) else None
            for v in (*op.arguments, *op.results)
        ]
    )


@lru_cache(maxsize=1024)
def instruction_of_form(
    cls: type[Op],
    elements: tuple[Element | None, ...],
    attributes: tuple[tuple[str, Attribute], ...],
    pair: bool,
    target: str,
) -> Instruction | None:
    """As `instruction`, of the elements of operands and results: kept, because forms come again."""
    definition = cls.definition
    names = with_spellings(_variables(definition, elements), definition, dict(attributes), target)
    row = choose(cls.name, names, pair)
    if row is None:
        return None
    used = (t for t in _TEMPORARIES if f"{{{t}}}" in row.text)
    kinds = {"w": f"b{names.get('w')}"}
    temporaries = tuple((t, kinds.get(t[2:], t[2:])) for t in used)
    ports = tuple(port.name for port in definition.operands)
    halves = tuple(e is not None and register_kind(e) == "b16" for e in elements[: len(ports)])
    known = _Known({k: v for k, v in names.items() if isinstance(v, (str, int))})
    for name in (*ports, "result"):
        known.pop(name, None)
    return Instruction(row.text.strip().format_map(known), row.pair, ports, halves, temporaries)


class _Known(dict[str, object]):
    """What is known of a text's names; the others stay in braces."""

    def __missing__(self, name: str) -> str:
        return f"{{{name}}}"


def register_kind(element: DType | PointerType) -> str:
    """The type of the register that holds one element."""
    if isinstance(element, PointerType):
        return "b64"
    if element.name == "i1":
        return "pred"
    if element.name in ("f32", "f64"):
        return element.name
    return {8: "b16", 16: "b16", 32: "b32", 64: "b64"}[max(8, element.storage_bits)]
