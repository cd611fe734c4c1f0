"""Definitions: what a record says about an operation, parsed from its compact strings.

A port is written `name: pattern`, `name?: pattern` (optional) or `name*: pattern` (any number).
Patterns:

    tile[m k; F]        a tile; each name binds an extent or the element type, and must agree if
    bound
    tile[*s; T]         a tile of any rank; `s` binds the whole shape
    tile[; i32]         a scalar of a fixed element type;  `_` and `*_` match anything
    tile[*s; ptr[T]]    a tile of pointers to T
    token               a token
    view[V]             any view of tiles; `V` binds the type.  Also partition_view, tensor_view,
    buffer, ring, ...
    any[A]              anything; `A` binds the type (for a variadic port: the tuple of types)
    (expression)        results only: the type, or the tuple of types of a variadic port, computed

Extents and element types in results may be `(expression)` too, a whole shape `*(expression)`.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from types import CodeType
from typing import Literal

from reftile.ir.expressions import compile_expression, compile_message

Multiplicity = Literal["one", "optional", "many"]
VIEW_KINDS = frozenset({"partition_view", "strided_view", "gather_scatter_view"})


class BadRecord(ValueError):
    """A record does not follow the format."""


@dataclass(frozen=True, slots=True)
class Term:
    """One name, number or expression inside a pattern. `code` is set for an expression."""

    text: str
    star: bool = False
    code: CodeType | None = None


@dataclass(frozen=True, slots=True)
class Pattern:
    """What a type must look like. `shape` and `element` are for tiles only."""

    kinds: frozenset[str]
    variable: str = ""
    shape: tuple[Term, ...] = ()
    element: Term | None = None
    pointer: bool = False
    code: CodeType | None = None
    text: str = ""


@dataclass(frozen=True, slots=True)
class Port:
    """One operand or result of a record."""

    name: str
    multiplicity: Multiplicity
    pattern: Pattern


@dataclass(frozen=True, slots=True)
class AttributeSpec:
    """One attribute: its kind (an enumeration or a built-in kind), and default if any."""

    name: str
    kind: str
    optional: bool
    default: object = None


@dataclass(frozen=True, slots=True)
class Ending:
    """A terminator that may end a region, and the types its operands must have (None: anything)."""

    op: str
    types: CodeType | None


@dataclass(frozen=True, slots=True)
class RegionSpec:
    """One region: its block's arguments and how it may end; an `optional` one may be absent."""

    name: str
    arguments: tuple[Port, ...]
    endings: tuple[Ending, ...]
    optional: bool = False


@dataclass(frozen=True)
class Rule:
    """A named constraint; its full id is `op.name`. The texts are compiled when first needed."""

    name: str
    check_text: str
    say_text: str
    hint_text: str = ""

    @cached_property
    def check(self) -> CodeType:
        """The condition."""
        return compile_expression(self.check_text)

    @cached_property
    def say(self) -> CodeType:
        """The message."""
        return compile_message(self.say_text)

    @cached_property
    def hint(self) -> CodeType:
        """How to mend it."""
        return compile_message(self.hint_text)


@dataclass(frozen=True)
class Undefined:
    """A named way in which a run of the operation may have no meaning; its full id is `op.name`.

    when: in the vocabulary of meanings, the mask of elements to which it happens, or False.
    """

    name: str
    when_text: str
    say_text: str

    @cached_property
    def when(self) -> CodeType:
        """The condition."""
        return compile_expression(self.when_text)

    @cached_property
    def say(self) -> CodeType:
        """The message."""
        return compile_message(self.say_text)


@dataclass(frozen=True)
class Definition:
    """All that a record says. `operands_text` and its like are the record's own strings."""

    name: str
    summary: str = ""
    operands_text: str = ""
    attributes_text: str = ""
    results_text: str = ""
    regions_text: str = ""
    where: Mapping[str, tuple[str, ...]] = field(default_factory=dict[str, tuple[str, ...]])
    rules: tuple[Rule, ...] = ()
    undefined: tuple[Undefined, ...] = ()
    levels: tuple[str, ...] = ("tile",)
    since: str = "1.0"
    effects: str = "pure"
    traits: tuple[str, ...] = ()
    meaning: str = ""
    accuracy: str = ""
    poison: str = ""
    tile_ir: Mapping[str, object] = field(default_factory=dict[str, object])
    targets: tuple[str, ...] = ()

    @cached_property
    def operands(self) -> tuple[Port, ...]:
        """The operand ports."""
        return parse_ports(self.operands_text)

    @cached_property
    def has_single_operands(self) -> bool:
        """True if every operand port takes exactly one value."""
        return all(port.multiplicity == "one" for port in self.operands)

    @cached_property
    def results(self) -> tuple[Port, ...]:
        """The result ports."""
        return parse_ports(self.results_text)

    @cached_property
    def attributes(self) -> tuple[AttributeSpec, ...]:
        """The attributes, in the record's order."""
        return parse_attributes(self.attributes_text)

    @cached_property
    def attribute_specs(self) -> dict[str, AttributeSpec]:
        """The attributes by name."""
        return {a.name: a for a in self.attributes}

    @cached_property
    def regions(self) -> tuple[RegionSpec, ...]:
        """The regions, in the record's order."""
        return parse_regions(self.regions_text)

    @cached_property
    def allowed(self) -> dict[str, frozenset[str]]:
        """`where`, as sets."""
        return {name: frozenset(values) for name, values in self.where.items()}

    @property
    def is_terminator(self) -> bool:
        """True if the operation ends a block."""
        return "terminator" in self.traits

    @property
    def is_pure(self) -> bool:
        """True if the operation touches no memory and may be duplicated, moved or dropped."""
        return self.effects == "pure" and not self.is_terminator


def split_top(text: str, separator: str = ",") -> list[str]:
    """Split at separators outside all brackets and quotes; empty parts are dropped."""
    parts: list[str] = []
    depth, start, quoted = 0, 0, False
    for i, c in enumerate(text):
        if c == '"':
            quoted = not quoted
        elif quoted:
            continue
        elif c in "([{":
            depth += 1
        elif c in ")]}":
            depth -= 1
        elif c == separator and depth == 0:
            parts.append(text[start:i].strip())
            start = i + 1
    parts.append(text[start:].strip())
    return [p for p in parts if p]


_MULTIPLICITIES: dict[str, Multiplicity] = {"": "one", "?": "optional", "*": "many"}
_PORT = re.compile(r"(\w+)([?*]?)\s*:\s*(.+)$", re.S)


def parse_ports(text: str) -> tuple[Port, ...]:
    """Parse `a: pattern, b?: pattern`.

    Raises:
        BadRecord: a part is not a port.
    """
    ports: list[Port] = []
    for part in split_top(text):
        match = _PORT.match(part)
        if match is None:
            raise BadRecord(f"{part!r} is not a port (`name: pattern`)")
        many = _MULTIPLICITIES[match[2]]
        ports.append(Port(match[1], many, parse_pattern(match[3])))
    return tuple(ports)


def parse_pattern(text: str) -> Pattern:
    """Parse one pattern; the grammar stands at the top of this module."""
    text = text.strip()
    if text.startswith("("):
        return Pattern(frozenset(), code=compile_expression(text), text=text)
    head, bracket, rest = text.partition("[")
    kinds = frozenset(k.strip() for k in head.split("|"))
    if "view" in kinds:
        kinds = (kinds - {"view"}) | VIEW_KINDS
    if "any" in kinds:
        kinds = frozenset({"any"})
    inside = rest[:-1].strip() if bracket else ""
    if kinds != frozenset({"tile"}):
        return Pattern(kinds, variable=inside, text=text)
    if not bracket:
        return Pattern(kinds, shape=(Term("_", star=True),), element=Term("_"), text=text)
    shape_text, semicolon, element_text = inside.partition(";")
    if not semicolon:
        return Pattern(
            kinds, variable=inside, shape=(Term("_", True),), element=Term("_"), text=text
        )
    element_text = element_text.strip()
    pointer = element_text.startswith("ptr[")
    if pointer:
        element_text = element_text[4:-1]
    return Pattern(
        kinds,
        shape=tuple(_term(t) for t in _split_terms(shape_text)),
        element=_term(element_text),
        pointer=pointer,
        text=text,
    )


def _split_terms(text: str) -> list[str]:
    return split_top(text.strip().replace("\n", " "), " ")


def _term(text: str) -> Term:
    star = text.startswith("*")
    body = text[1:] if star else text
    if body.startswith("("):
        return Term(body, star, compile_expression(body))
    if not re.fullmatch(r"\w+", body):
        raise BadRecord(f"{text!r} is not a name, a number or an (expression)")
    return Term(body, star)


_ATTRIBUTE = re.compile(r"(\w+)(\??)\s*:\s*([\w\[\]]+)\s*(?:=\s*(.+))?$")
BUILTIN_KINDS = frozenset(
    "unit int int[] bool bool[] float string string[] dense numbers type dtype symbol dict "
    "layout".split()
)


def parse_attributes(text: str) -> tuple[AttributeSpec, ...]:
    """Parse `axis: int, rounding: rounding = nearest_even, flush_to_zero: unit`."""
    specs: list[AttributeSpec] = []
    for part in split_top(text):
        match = _ATTRIBUTE.match(part)
        if match is None:
            raise BadRecord(f"{part!r} is not an attribute (`name: kind [= default]`)")
        name, mark, kind, default = match.groups()
        specs.append(
            AttributeSpec(
                name,
                kind,
                bool(mark) or kind == "unit" or default is not None,
                _default(kind, default),
            )
        )
    return tuple(specs)


def _default(kind: str, text: str | None) -> object:
    if kind == "unit":
        return False
    if text is None:
        return None
    if kind == "int":
        return int(text)
    if kind == "float":
        return float(text)
    if kind == "bool":
        return text == "true"
    if kind.endswith("[]"):
        return tuple(_default(kind[:-2], t) for t in split_top(text.strip("[]")))
    return text.strip('"')


_REGION = re.compile(r"(\w+)(\??)\s*\((.*?)\)\s*->\s*(.+)$", re.S)


def parse_regions(text: str) -> tuple[RegionSpec, ...]:
    """Parse regions such as `body(iv: tile[; I]) -> continue(A) | break(R)`."""
    regions: list[RegionSpec] = []
    for part in split_top(text):
        head, arrow, tail = part.rpartition("->")
        if not arrow:
            raise BadRecord(f"{part!r} is not a region (`name(ports) -> ending`)")
        name, _, arguments = head.strip().partition("(")
        optional = name.endswith("?")
        ports = parse_ports(arguments.rstrip()[:-1])
        regions.append(RegionSpec(name.strip().rstrip("?"), ports, _endings(tail), optional))
    return tuple(regions)


def _endings(text: str) -> tuple[Ending, ...]:
    endings: list[Ending] = []
    for part in split_top(text, "|"):
        op, bracket, inside = part.partition("(")
        expression = inside.rstrip()[:-1].strip()
        code = compile_expression(f"({expression})" if expression else "()") if bracket else None
        endings.append(Ending(op.strip(), code))
    return tuple(endings)


def port_names(ports: Sequence[Port]) -> tuple[str, ...]:
    """The names of `ports`, in order."""
    return tuple(p.name for p in ports)
