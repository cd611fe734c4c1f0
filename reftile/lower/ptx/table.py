"""The table of elementwise instructions: which row an operation takes, and its text.

`instructions.toml` holds the rows. Two rows that could both take an operation are a fault of the
table, which `choose` reports and tests look for over all types and attributes.
"""

from __future__ import annotations

import tomllib
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from types import CodeType
from typing import Any, cast

from reftile.ir.core import Op
from reftile.ir.define import Definition
from reftile.ir.diagnostics import Bug
from reftile.ir.dtypes import DTYPES, DType
from reftile.ir.expressions import compile_expression, evaluate
from reftile.ir.types import PointerType, TileType

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


def names_of(op: Op) -> dict[str, object]:
    """The names that conditions and texts use: element types by variable, attributes, spellings."""
    definition = op.definition
    names: dict[str, object] = {}
    ports = zip(
        (*definition.operands, *definition.results), (*op.arguments, *op.results), strict=False
    )
    for port, value in ports:
        kind = getattr(value, "type", None)
        term = port.pattern.element
        if isinstance(kind, TileType) and term is not None and term.code is None:
            element = kind.element
            names[term.text] = "i64" if isinstance(element, PointerType) else element.name
    return with_spellings(names, definition, op.attributes)


def with_spellings(
    names: dict[str, object], definition: Definition, attributes: dict[str, Any]
) -> dict[str, object]:
    """Add attributes with their defaults, and how PTX spells them."""
    for spec in definition.attributes:
        names[spec.name] = attributes.get(spec.name, spec.default)
    names["ftz"] = ".ftz" if names.get("flush_to_zero") else ""
    names["rnd"] = _ROUNDINGS.get(str(names.get("rounding")), "")
    names["whole"] = _WHOLE.get(str(names.get("rounding")), "")
    names["cmp"] = _COMPARISONS.get(str(names.get("predicate")), "")
    names["s"] = "u" if names.get("signedness") == "unsigned" else "s"
    for variable, letter in (("T", "w"), ("I", "v"), ("J", "u")):
        if variable in names:
            names[letter] = DTYPES[str(names[variable])].bits
    return names


def matching(name: str, names: dict[str, object], pair: bool) -> list[Row]:
    """The rows that take an operation, two elements at once or one; at most one is right."""
    return [r for r in rows().get(name, ()) if r.pair == pair and evaluate(r.when, names)]


def choose(op: Op, names: dict[str, object], pair: bool) -> Row | None:
    """The row that an operation takes, or None if there is none.

    pair: results share registers by twos; a row for two at once goes first.

    Raises:
        Bug: rows overlap.
    """
    found = matching(op.name, names, pair=True) if pair else []
    found = found or matching(op.name, names, pair=False)
    if len(found) > 1:
        texts = ", ".join(row.when_text for row in found)
        raise Bug(f"rows of the table overlap on {op!r}: {texts}", "ptx.table")
    return found[0] if found else None


def register_kind(element: DType | PointerType) -> str:
    """The type of the register that holds one element."""
    if isinstance(element, PointerType):
        return "b64"
    if element.name == "i1":
        return "pred"
    if element.name in ("f32", "f64"):
        return element.name
    return {8: "b16", 16: "b16", 32: "b32", 64: "b64"}[max(8, element.storage_bits)]
