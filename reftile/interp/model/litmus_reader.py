"""Tokens and expressions of litmus texts."""

from __future__ import annotations

import re
from collections.abc import Callable

from reftile.interp.model.values import BinaryOp, Const, Expr, IsUninit, binary, negate
from reftile.ir.diagnostics import ReftileError, Source, Span, fail

LEVELS: tuple[tuple[BinaryOp, ...], ...] = (
    ("|",),
    ("^",),
    ("&",),
    ("==", "!=", "<", "<=", ">", ">="),
    ("+", "-"),
    ("*",),
)
"""Binary operators of expressions, weakest first."""

TOKEN = re.compile(
    r"(?P<skip>\s+|--[^\n]*)|(?P<string>\"[^\"\n]*\")|(?P<number>\d+)|(?P<word>[A-Za-z_]\w*(?:-free)?)"
    r"|(?P<mark>==|!=|<=|>=|[-=:,.()\[\]{}+*&|^<>!])"
)


class Reader:
    """Reads tokens and expressions.

    tiles: the values of each register, one for each element.
    """

    def __init__(self, source: Source) -> None:
        self.source = source
        self.tokens: list[tuple[str, str, int, int]] = []
        at = 0
        while at < len(source.text):
            match = TOKEN.match(source.text, at)
            if match is None:
                span = Span(source, at, at + 1)
                raise fail("litmus.syntax", f"unexpected character {source.text[at]!r}", span)
            if match.lastgroup != "skip":
                kind = match.lastgroup or ""
                self.tokens.append((kind, match.group(), match.start(), match.end()))
            at = match.end()
        self.tokens.append(("end", "", at, at))
        self.at = 0
        self.tiles: dict[str, list[Expr]] = {}

    # Tokens

    def peek(self) -> str:
        """Return the text of the next token, "" at the end."""
        return self.tokens[self.at][1]

    def span(self) -> Span:
        """Return where the next token stands."""
        _, _, start, end = self.tokens[self.at]
        return Span(self.source, start, end)

    def wrong(self, wanted: str) -> ReftileError:
        """Return the error that something else than the next token was wanted."""
        found = repr(self.peek()) if self.peek() else "the end of the text"
        return fail("litmus.syntax", f"expected {wanted}, found {found}", self.span())

    def accept(self, text: str) -> bool:
        """Take the next token if it is `text`."""
        if self.peek() != text:
            return False
        self.at += 1
        return True

    def expect(self, text: str) -> None:
        """Take the next token, which must be `text`."""
        if not self.accept(text):
            raise self.wrong(f"`{text}`")

    def take(self, kind: str) -> str:
        """Take the next token, which must be of this kind."""
        if self.tokens[self.at][0] != kind:
            raise self.wrong(f"a {kind}")
        self.at += 1
        return self.tokens[self.at - 1][1]

    def choose(self, options: dict[str, object] | tuple[str, ...], what: str) -> str:
        """Take a word that must be one of `options`."""
        if self.peek() not in options:
            raise self.wrong(f"{what}: one of {', '.join(options)}")
        self.at += 1
        return self.tokens[self.at - 1][1]

    def listed(self, item: Callable[[], Expr], close: str) -> list[Expr]:
        """Read items up to the closing mark, which is taken."""
        found = [item()]
        while self.accept(","):
            found.append(item())
        self.expect(close)
        return found

    # Expressions: a list of one element stands for all elements

    def values(self, level: int = 0) -> list[Expr]:
        """Read an expression; the result has one entry for each element, or one for all."""
        if level == len(LEVELS):
            return self.operand()
        lhs = self.values(level + 1)
        while (op := self.peek()) in LEVELS[level]:
            where = self.span()
            self.at += 1
            rhs = self.values(level + 1)
            if 1 not in (len(lhs), len(rhs)) and len(lhs) != len(rhs):
                raise fail("litmus.shape", f"{len(lhs)} and {len(rhs)} elements", where)
            count = max(len(lhs), len(rhs))
            pairs = zip(spread(lhs, count), spread(rhs, count), strict=True)
            lhs = [binary(op, a, b) for a, b in pairs]
        return lhs

    def value(self) -> Expr:
        """Read an expression of one element."""
        where = self.span()
        found = self.values()
        if len(found) != 1:
            raise fail("litmus.shape", f"needed one value, found {len(found)}", where)
        return found[0]

    def operand(self) -> list[Expr]:
        """Read a number, register, bracket, list, negation or poison question."""
        kind, text, _, _ = self.tokens[self.at]
        if kind == "number":
            self.at += 1
            return [Const(int(text))]
        if self.accept("("):
            inner = self.values()
            self.expect(")")
            return inner
        if self.accept("["):
            return self.listed(self.value, "]")
        if self.accept("!"):
            return [negate(v) for v in self.operand()]
        if self.accept("-"):
            return [binary("-", Const(0), v) for v in self.operand()]
        if text == "uninit":
            self.at += 1
            self.expect("(")
            inner = self.values()
            self.expect(")")
            return [IsUninit(v) for v in inner]
        return self.register()

    def register(self) -> list[Expr]:
        """Read a register, or one element of it."""
        where, name = self.span(), self.take("word")
        if name not in self.tiles:
            hint = f"known: {', '.join(self.tiles)}" if self.tiles else ""
            raise fail("litmus.unknown_register", f"`{name}` was not loaded above", where, hint)
        tile = self.tiles[name]
        if not self.accept("["):
            return tile
        where, index = self.span(), int(self.take("number"))
        self.expect("]")
        if index >= len(tile):
            raise fail("litmus.shape", f"`{name}` has {len(tile)} elements", where)
        return [tile[index]]


def spread(values: list[Expr], count: int) -> list[Expr]:
    """Return one value for each of `count` elements."""
    return values * count if len(values) == 1 else values
