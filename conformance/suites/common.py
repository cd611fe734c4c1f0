"""What the makers of cases share: the type and attribute combinations of a record."""

from __future__ import annotations

import zlib
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from functools import cache
from itertools import product
from typing import Any

import numpy as np
from reftile.conformance.cases import Budget
from reftile.conformance.oracle.sums import Profile

from reftile.ir.define import Definition
from reftile.ir.enums import ENUMS
from reftile.ir.expressions import evaluate
from reftile.ir.ops import OPS

Attributes = dict[str, Any]
SHAPES: tuple[tuple[int, ...], ...] = ((), (1,), (7,), (3, 5), (2, 1, 3), (2, 3, 1, 5))
"""Ranks 0 to 4, no powers of two."""
Shape = tuple[int, ...]


def is_power_of_two(extent: int) -> bool:
    """1, 2, 4, ..."""
    return extent > 0 and extent & (extent - 1) == 0


def power_of_two(extent: int) -> int:
    """The least power of two that is not smaller."""
    return 1 << (extent - 1).bit_length()


@dataclass(frozen=True)
class Settings:
    """What all makers are told.

    seed: of all inputs. claims: {(op, dtype): ulp} where a backend claims to be better than it
    must be. profiles: how it adds, by element type or for the "default". flushes: types whose
    subnormal numbers it may take for zeros. powers_of_two: it has no tiles of other extents, and is
    asked the same questions on the next larger tile.
    """

    budget: Budget = "default"
    seed: int = 0
    claims: Mapping[tuple[str, str], float] = field(default_factory=dict)
    profiles: Mapping[str, Profile] = field(default_factory=dict)
    flushes: tuple[str, ...] = ()
    powers_of_two: bool = False

    def fit(self, shape: Shape) -> Shape:
        """A shape that the implementation has tiles of: the given one, or the next larger."""
        return tuple(power_of_two(n) for n in shape) if self.powers_of_two else shape

    def has(self, *shapes: Shape) -> bool:
        """Whether the implementation has tiles of all these shapes."""
        return not self.powers_of_two or all(is_power_of_two(n) for s in shapes for n in s)

    def claim(self, op: str, dtype: str) -> float | None:
        """The claim for an operation, if there is one."""
        return self.claims.get((op, dtype))

    def profile(self, dtype: str) -> Profile:
        """How sums of elements, or of products of elements, of a type are kept."""
        return self.profiles.get(dtype) or self.profiles.get("default") or Profile()

    def rng(self, case: str) -> np.random.Generator:
        """Random numbers that depend on the seed and the case alone."""
        return np.random.default_rng([self.seed, zlib.crc32(case.encode())])


@cache
def definition(op: str) -> Definition:
    """The record of an operation."""
    return OPS[op].definition


def element_variables(record: Definition) -> list[str]:
    """The names that stand for element types, in the order of the ports."""
    found: list[str] = []
    for port in (*record.operands, *record.results):
        term = port.pattern.element
        if term is not None and term.text in record.where and term.text not in found:
            found.append(term.text)
    return found


def type_choices(
    record: Definition, keep: Mapping[str, tuple[str, ...]] | None = None
) -> Iterator[dict[str, str]]:
    """Every combination of element types that `where` allows and some attributes go with."""
    names = element_variables(record)
    choices = [(keep or {}).get(n, record.where[n]) for n in names]
    for types in product(*choices):
        bound = dict(zip(names, types, strict=True))
        if any(True for _ in attribute_choices(record, bound)):
            yield bound


def attribute_choices(
    record: Definition, types: Mapping[str, str], names: Mapping[str, object] | None = None
) -> Iterator[Attributes]:
    """Every combination of enumerations and units that no rule forbids."""
    specs = [s for s in record.attributes if s.kind in ("unit", "bool") or s.kind in ENUMS]
    values: list[tuple[object, ...]] = []
    for spec in specs:
        if spec.kind in ("unit", "bool"):
            values.append((False, True))
        else:
            values.append(record.where.get(spec.name, tuple(ENUMS[spec.kind])))
    for chosen in product(*values):
        attributes = {s.name: v for s, v in zip(specs, chosen, strict=True)}
        if follows_rules(record, {**types, **attributes, **(names or {})}):
            yield {
                s.name: attributes[s.name]
                for s in specs
                if attributes[s.name] != s.default or not s.optional
            }


def follows_rules(record: Definition, names: Mapping[str, object]) -> bool:
    """Whether the rules that can be decided from these names hold."""
    for rule in record.rules:
        try:
            if not evaluate(rule.check, names):
                return False
        except (NameError, TypeError):
            continue
    return True


def label(attributes: Attributes) -> str:
    """Attributes in a case's id."""
    parts = [str(k) if v is True else str(v) for k, v in attributes.items() if v is not False]
    return "-".join(p.replace(", ", "x").strip("()[]") for p in parts) or "plain"


def operand_dtypes(record: Definition, types: Mapping[str, str]) -> list[str]:
    """The element type of each operand of an elementwise record."""
    return [types.get(_text(p), _text(p)) for p in record.operands]


def result_dtypes(record: Definition, types: Mapping[str, str]) -> list[str]:
    """The element type of each result."""
    return [types.get(_text(p), _text(p)) for p in record.results]


def _text(port: Any) -> str:
    return port.pattern.element.text if port.pattern.element is not None else ""


def rule_ids(op: str, *more: str) -> tuple[str, ...]:
    """What a vector of an operation covers: its meaning, and what is named besides."""
    return (f"{op}.meaning", *(f"{op}.{m}" for m in more))
