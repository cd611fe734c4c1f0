"""How operations are laid out in bytecode, derived from their records.

An operation is written as

    opcode, types of the results, word of flags, attributes, operands, regions

- The types of the results are counted if any port of the operation is variadic.
- The word of flags has a bit for each attribute that may be absent, then for each optional
  operand; it is there if any of them exists in the version of the file.
- Attributes stand in the order of the record, those that a later version added behind the others.
- Operands: if one port is variadic and none optional, the count of all of them and then all; else
  port by port, a variadic one with its count, an optional one if its flag is set.

Source: `cuda.tile._bytecode.encodings` of cuda-tile 1.7 and the bytecode writer of NVIDIA
cuda-tile; the rules above reproduce all of the public operations there.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from types import CodeType
from typing import cast

from reftile.interop.versions import OLDEST
from reftile.ir.core import Op, Value
from reftile.ir.define import AttributeSpec, Definition, Port
from reftile.ir.expressions import compile_expression, compile_message
from reftile.ir.ops import OPS

NOT_IN_BODIES = frozenset({"global", "entry", "module"})


@dataclass(frozen=True, slots=True)
class AttributeSlot:
    """An attribute and the version that added it."""

    spec: AttributeSpec
    since: int

    @property
    def name(self) -> str:
        """The attribute's name, ours."""
        return self.spec.name


@dataclass(frozen=True, slots=True)
class PortSlot:
    """An operand or result and the version that added it."""

    port: Port
    since: int

    @property
    def name(self) -> str:
        """The port's name, ours."""
        return self.port.name


@dataclass(frozen=True, slots=True)
class Limit:
    """A condition under which Tile IR has a form of an operation, and what to say if it has not."""

    check: CodeType
    say: CodeType


@dataclass(frozen=True, slots=True)
class Coding:
    """The layout of one operation.

    flags: what the word of flags has bits for, lowest first.
    attributes: those that are written, units left out.
    foreign: attributes of ours that Tile IR lacks; they must keep their defaults.
    limits: what Tile IR asks of the operation beyond our rules.
    """

    cls: type[Op]
    definition: Definition
    code: int
    since: int
    results: tuple[PortSlot, ...]
    operands: tuple[PortSlot, ...]
    attributes: tuple[AttributeSlot, ...]
    flags: tuple[AttributeSlot | PortSlot, ...]
    foreign: tuple[str, ...]
    limits: tuple[Limit, ...]
    counts_results: bool
    counts_operands: bool

    @property
    def is_bare(self) -> bool:
        """`return`: laid out like a terminator with operands, of which ours has none."""
        return self.definition.is_terminator and not self.operands


def is_flagged(spec: AttributeSpec) -> bool:
    """Whether presence of an attribute is a flag. Lists of booleans are always written."""
    if spec.kind == "unit":
        return True
    return spec.optional and spec.default is None and spec.kind != "bool[]"


def _minor(text: object) -> int:
    return int(str(text).partition(".")[2])


def _make(cls: type[Op], definition: Definition) -> Coding:
    tile_ir = definition.tile_ir
    added = cast("Mapping[str, str]", tile_ir.get("arguments", {}))
    foreign = tuple(cast("list[str]", tile_ir.get("without", [])))
    limits = cast("list[list[str]]", tile_ir.get("limits", []))
    since = _minor(tile_ir.get("since", f"13.{OLDEST}"))

    def added_in(name: str) -> int:
        return max(since, _minor(added.get(name, f"13.{OLDEST}")))

    operands = tuple(PortSlot(p, added_in(p.name)) for p in definition.operands)
    results = tuple(PortSlot(p, added_in(p.name)) for p in definition.results)
    specs = [a for a in definition.attributes if a.name not in foreign]
    attributes = sorted((AttributeSlot(a, added_in(a.name)) for a in specs), key=lambda s: s.since)
    flagged = [s for s in attributes if is_flagged(s.spec) and definition.name != "assume"]
    optional = [s for s in operands if s.port.multiplicity == "optional"]
    many = sum(s.port.multiplicity == "many" for s in operands)
    is_bare = definition.is_terminator and not operands
    return Coding(
        cls,
        definition,
        cast("int", tile_ir["code"]),
        since,
        results,
        operands,
        tuple(s for s in attributes if s.spec.kind != "unit"),
        (*flagged, *optional),
        foreign,
        tuple(Limit(compile_expression(c), compile_message(m)) for c, m in limits),
        is_bare or many > 0 or any(p.multiplicity == "many" for p in definition.results),
        is_bare or (many == 1 and not optional),
    )


def block_order(op: str, arguments: Sequence[Value]) -> list[Value]:
    """The arguments of a region's block as Tile IR has them, from ours, and the other way round.

    `reduce` and `scan` take pairs. Tile IR's text calls them element and accumulator, but what its
    compiler (13.5.37, on an H200) and cuTile give as the first of a pair stands for what comes
    before the second; with us the accumulator is the second.
    """
    if op not in ("reduce", "scan") or len(arguments) % 2:
        return list(arguments)  # An odd number is damage, which verifying names.
    return [arguments[i ^ 1] for i in range(len(arguments))]


@cache
def codings() -> dict[str, Coding]:
    """The layout of each operation that CUDA Tile IR has, by our name."""
    return {
        name: _make(cls, cls.definition)
        for name, cls in OPS.items()
        if "code" in cls.definition.tile_ir
    }


@cache
def codings_by_code() -> dict[int, Coding]:
    """The layouts of what may stand in a body, by opcode."""
    return {c.code: c for name, c in codings().items() if name not in NOT_IN_BODIES}
