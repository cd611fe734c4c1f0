"""Relations between events: the notation of the spec's blocks, parsed.

A `Model` is one `relations` block and one `axioms` block. Its expressions are evaluated by
`evaluate.Evaluator`.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from functools import cache
from importlib.resources import files
from pathlib import Path
from typing import Literal, assert_never

from reftile.ir.diagnostics import Bug, Source, Span, fail

BASE_NAMES = frozenset(
    "id any R W weak relaxed acquire release tok dep rf co rmw whole same_location in_scope "
    "conflict init_before exit_after launch_before po bar granule "
    "async same_block proxy_fence started completed barrier issue".split()
)
"""Names that the program and the candidate give; everything else is defined in the block."""

AxiomKind = Literal["irreflexive", "acyclic", "empty", "order_pairs", "undefined"]
AXIOM_KINDS: tuple[AxiomKind, ...] = (
    "irreflexive",
    "acyclic",
    "empty",
    "order_pairs",
    "undefined",
)


@dataclass(frozen=True, slots=True)
class Name:
    """A base relation or a definition."""

    name: str

    def __str__(self) -> str:
        return self.name


@dataclass(frozen=True, slots=True)
class Unary:
    """`^-1`, `+`, `*` or `?` behind an expression."""

    op: Literal["^-1", "+", "*", "?"]
    arg: Expression

    def __str__(self) -> str:
        return f"{_wrapped(self.arg)}{self.op}"


@dataclass(frozen=True, slots=True)
class Binary:
    r"""`;`, `&`, `\` or `|` between two expressions."""

    op: Literal[";", "&", "\\", "|"]
    lhs: Expression
    rhs: Expression

    def __str__(self) -> str:
        return f"{_wrapped(self.lhs)} {self.op} {_wrapped(self.rhs)}"


Expression = Name | Unary | Binary
BINDING: tuple[Literal["|", "\\", "&", ";"], ...] = ("|", "\\", "&", ";")
"""Binary operators, weakest first."""


def _wrapped(expression: Expression) -> str:
    return f"({expression})" if isinstance(expression, Binary) else str(expression)


@dataclass(frozen=True, slots=True)
class Axiom:
    """One line of an axioms block; `name` is empty for `order_pairs`."""

    kind: AxiomKind
    name: str
    expression: Expression


@dataclass(frozen=True, slots=True)
class Model:
    """A memory model: definitions in order, and axioms."""

    name: str
    definitions: Mapping[str, Expression]
    axioms: tuple[Axiom, ...]

    def without_axiom(self, name: str) -> Model:
        """Return the model with one axiom less."""
        return replace(self, axioms=tuple(a for a in self.axioms if a.name != name))

    def with_definition(self, name: str, expression: Expression) -> Model:
        """Return the model with one definition changed."""
        return replace(self, definitions={**self.definitions, name: expression})

    def with_axiom(self, name: str, expression: Expression) -> Model:
        """Return the model with the expression of one axiom changed."""
        axioms = (replace(a, expression=expression) if a.name == name else a for a in self.axioms)
        return replace(self, axioms=tuple(axioms))


TOKEN = re.compile(
    r"(?P<skip>\s+|--[^\n]*)|(?P<word>[A-Za-z_][A-Za-z_0-9]*)|(?P<mark>\^-1|[-=:;&|\\+*?()])"
)


class _Parser:
    """Reads expressions from one block."""

    def __init__(self, source: Source, start: int, end: int) -> None:
        self.source = source
        self.tokens: list[tuple[str, int, int]] = []
        at = start
        while at < end:
            match = TOKEN.match(source.text, at, end)
            if match is None:
                raise fail(
                    "model.syntax",
                    f"unexpected character {source.text[at]!r}",
                    Span(source, at, at + 1),
                )
            if match.lastgroup != "skip":
                self.tokens.append((match.group(), match.start(), match.end()))
            at = match.end()
        self.tokens.append(("", end, end))
        self.at = 0

    def peek(self, ahead: int = 0) -> str:
        """Return the token `ahead` places on, "" at the end."""
        return self.tokens[min(self.at + ahead, len(self.tokens) - 1)][0]

    def span(self) -> Span:
        """Return where the next token stands."""
        _, start, end = self.tokens[self.at]
        return Span(self.source, start, end)

    def take(self, wanted: str = "") -> str:
        """Take the next token, which must be `wanted` if given."""
        text = self.peek()
        if wanted and text != wanted:
            raise fail("model.syntax", f"expected {wanted!r}, found {text!r}", self.span())
        self.at += 1
        return text

    def expression(self, known: frozenset[str], level: int = 0) -> Expression:
        """Read an expression whose names are all in `known`."""
        if level == len(BINDING):
            return self.postfix(known)
        op = BINDING[level]
        lhs = self.expression(known, level + 1)
        while self.peek() == op:
            self.take()
            lhs = Binary(op, lhs, self.expression(known, level + 1))
        return lhs

    def postfix(self, known: frozenset[str]) -> Expression:
        """Read a name or a bracket with the marks behind it."""
        where = self.span()
        word = self.take()
        if word == "(":
            result = self.expression(known)
            self.take(")")
        elif not word.isidentifier():
            raise fail("model.syntax", f"expected a relation, found {word!r}", where)
        elif word not in known:
            raise fail(
                "model.unknown_name",
                f"`{word}` is not defined above and no base relation",
                where,
                hint=f"base relations are: {', '.join(sorted(BASE_NAMES))}",
            )
        else:
            result = Name(word)
        while True:
            match self.peek():
                case "^-1" | "+" | "*" | "?" as op:
                    self.take()
                    result = Unary(op, result)
                case _:
                    return result

    def definitions(self) -> dict[str, Expression]:
        """Read `name = expression` to the end."""
        found: dict[str, Expression] = {}
        while self.peek():
            where, name = self.span(), self.take()
            if name in BASE_NAMES or name in found:
                raise fail("model.redefined", f"`{name}` already has a meaning", where)
            self.take("=")
            found[name] = self.expression(BASE_NAMES | found.keys())
        return found

    def axioms(self, known: frozenset[str]) -> tuple[Axiom, ...]:
        """Read `name : kind expression` and `order_pairs expression` to the end."""
        found: list[Axiom] = []
        while self.peek():
            name = ""
            if self.peek(1) == ":":
                name = self.take()
                self.take(":")
            where, kind = self.span(), self.take()
            if kind not in AXIOM_KINDS:
                raise fail(
                    "model.axiom_kind",
                    f"`{kind}` is no kind of axiom",
                    where,
                    hint=f"one of {', '.join(AXIOM_KINDS)}",
                )
            found.append(Axiom(kind, name, self.expression(known)))
        return tuple(found)


FENCE = re.compile(
    r"^```(?P<kind>relations|axioms|toml mapping)(?: (?P<name>\S+))?\n(?P<body>.*?)^```",
    re.M | re.S,
)


def blocks(source: Source) -> Iterator[tuple[str, str, int, int]]:
    """Yield (kind, name, start, end) of every block of the memory model in a Markdown text."""
    for match in FENCE.finditer(source.text):
        yield match["kind"], match["name"] or "", match.start("body"), match.end("body")


def parse_model(source: Source, name: str) -> Model:
    """Return the model whose `relations NAME` and `axioms NAME` blocks stand in `source`."""
    found = {(kind, title): (start, end) for kind, title, start, end in blocks(source)}
    for kind in ("relations", "axioms"):
        if (kind, name) not in found:
            raise fail("model.missing_block", f"no block `{kind} {name}` in {source.name}")
    definitions = _Parser(source, *found["relations", name]).definitions()
    axioms = _Parser(source, *found["axioms", name]).axioms(BASE_NAMES | definitions.keys())
    return Model(name, definitions, axioms)


def parse_expression(text: str, known: frozenset[str] = BASE_NAMES) -> Expression:
    """Return the expression that `text` writes."""
    parser = _Parser(Source("<expression>", text), 0, len(text))
    result = parser.expression(known)
    if parser.peek():
        raise fail("model.syntax", f"unexpected {parser.peek()!r}", parser.span())
    return result


@cache
def spec_source() -> Source:
    """Return spec/memory_model.md, from the package or from the checkout around it."""
    name = "memory_model.md"
    try:
        text = (files("reftile.spec") / name).read_text(encoding="utf-8")
    except (ModuleNotFoundError, FileNotFoundError):
        path = Path(__file__).parents[3] / "spec" / name
        if not path.is_file():
            raise Bug("the specification is not installed", "interp.model.relations") from None
        text = path.read_text(encoding="utf-8")
    return Source(f"spec/{name}", text)


@cache
def spec_model(name: str = "tile") -> Model:
    """Return a model of the specification: `tile`, `ptx-6.0` or `ptx-9`."""
    return parse_model(spec_source(), name)


def simplify_away(expression: Expression) -> Iterator[tuple[str, Expression]]:
    """Yield every (what was dropped, expression with one clause less).

    A clause is an operand of `|`, `&` or `;`, the right side of a difference, or the repetition of
    a closure. The negative controls of the tests ask for each of them which litmus test needs it.
    """
    match expression:
        case Name():
            return
        case Unary(op, arg):
            if op in ("+", "*"):
                yield f"the `{op}` of `{expression}`", arg
            for what, changed in simplify_away(arg):
                yield what, Unary(op, changed)
        case Binary(op, lhs, rhs):
            yield f"`{op} {rhs}`", lhs
            if op != "\\":
                yield f"`{lhs} {op}`", rhs
            for what, changed in simplify_away(lhs):
                yield what, Binary(op, changed, rhs)
            for what, changed in simplify_away(rhs):
                yield what, Binary(op, lhs, changed)
        case _:
            assert_never(expression)
