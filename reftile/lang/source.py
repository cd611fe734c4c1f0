"""The source of Python functions: their syntax trees, and spans for every node.

A file is read and parsed once. Nothing of it is executed.
"""

from __future__ import annotations

import ast
import linecache
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import lru_cache
from types import CodeType, FunctionType
from typing import TypeAlias

from reftile.ir.diagnostics import Source, Span, fail

FunctionNode: TypeAlias = ast.FunctionDef | ast.Lambda


@dataclass(frozen=True, slots=True, eq=False)
class FunctionSource:
    """A function's syntax tree and the text it stands in."""

    name: str
    node: FunctionNode
    source: Source
    line_offsets: tuple[int, ...]

    def span(self, node: ast.AST, called_from: Span | None = None) -> Span:
        """Return the characters of `node`."""
        line = getattr(node, "lineno", self.node.lineno)
        column = getattr(node, "col_offset", 0)
        end_line = getattr(node, "end_lineno", None) or line
        end_column = getattr(node, "end_col_offset", None) or column + 1
        start = self._offset(line, column)
        return Span(
            self.source, start, max(start + 1, self._offset(end_line, end_column)), called_from
        )

    def head(self, called_from: Span | None = None) -> Span:
        """Return the characters of the function's name."""
        if isinstance(self.node, ast.Lambda):
            return self.span(self.node, called_from)
        start = self._offset(self.node.lineno, self.node.col_offset) + len("def ")
        return Span(self.source, start, start + len(self.node.name), called_from)

    def _offset(self, line: int, column: int) -> int:
        """Offset of a column that counts UTF-8 bytes, as syntax trees do."""
        start = self.line_offsets[line - 1]
        text = self.source.text[start : start + column]
        if not text.isascii():
            text = self.source.text[start : start + column]
            text = text.encode()[:column].decode(errors="ignore")
        return start + len(text)


@lru_cache(maxsize=128)
def _parse_file(name: str, text: str) -> tuple[ast.Module, Source, tuple[int, ...]]:
    offsets = [0]
    for line in text.splitlines(keepends=True):
        offsets.append(offsets[-1] + len(line))
    return ast.parse(text, name), Source(name, text), tuple(offsets)


def function_source(function: Callable[..., object]) -> FunctionSource:
    """Return the syntax tree of a Python function or lambda.

    Raises:
        ReftileError: there is no source text, or it is no plain function.
    """
    if not isinstance(function, FunctionType):
        raise fail("lang.function", f"{function!r} is not a Python function")
    code = function.__code__
    text = "".join(linecache.getlines(code.co_filename, function.__globals__))
    if not text:
        raise fail(
            "lang.source",
            f"the source of `{function.__name__}` cannot be found ({code.co_filename})",
            hint="kernels and the functions they call must be written in a file or a notebook cell",
        )
    try:
        tree, source, offsets = _parse_file(code.co_filename, text)
    except SyntaxError:
        tree, source, offsets = None, None, None
    if tree is None or source is None or offsets is None:
        raise fail("lang.source", f"{code.co_filename} has changed and no longer parses")
    node = _find(tree, code)
    if node is None:
        raise fail(
            "lang.source",
            f"`{function.__name__}` is not where {code.co_filename} had it: the file has changed",
            hint="run the program again",
        )
    return FunctionSource(function.__name__, node, source, offsets)


def _find(tree: ast.Module, code: CodeType) -> FunctionNode | None:
    """The node that `code` was compiled from, by its first line, name and position."""
    matches = [n for n in _functions(tree) if _first_line(n) == code.co_firstlineno]
    if code.co_name != "<lambda>":
        named = [n for n in matches if isinstance(n, ast.FunctionDef) and n.name == code.co_name]
        return named[0] if named else None
    lambdas = [n for n in matches if isinstance(n, ast.Lambda)]
    if len(lambdas) <= 1:
        return lambdas[0] if lambdas else None
    positions = [p for p in code.co_positions() if p[2] is not None and p[0] and p[3]]
    for node in lambdas:
        body = node.body
        inside = [(body.lineno, body.col_offset), (body.end_lineno, body.end_col_offset)]
        if any((p[0], p[2]) == inside[0] and (p[1], p[3]) == inside[1] for p in positions):
            return node
    return None


def _functions(tree: ast.AST) -> Iterator[FunctionNode]:
    for node in ast.walk(tree):
        if isinstance(node, (ast.FunctionDef, ast.Lambda)):
            yield node


def _first_line(node: FunctionNode) -> int:
    if isinstance(node, ast.FunctionDef) and node.decorator_list:
        return node.decorator_list[0].lineno
    return node.lineno


def assigned_names(statements: list[ast.stmt]) -> tuple[str, ...]:
    """The names that running `statements` may give values to, in order of appearance."""
    names: dict[str, None] = {}

    def visit(node: ast.AST) -> None:
        if isinstance(node, (ast.FunctionDef, ast.ClassDef)):
            names[node.name] = None
            return
        if isinstance(node, ast.Lambda):
            return
        if isinstance(node, (ast.ListComp, ast.GeneratorExp, ast.SetComp, ast.DictComp)):
            for inner in ast.walk(node):
                if isinstance(inner, ast.NamedExpr):
                    names[inner.target.id] = None
            return
        if isinstance(node, ast.Name) and isinstance(node.ctx, ast.Store):
            names[node.id] = None
        for child in ast.iter_child_nodes(node):
            visit(child)

    for statement in statements:
        visit(statement)
    return tuple(names)


def returns(statements: list[ast.stmt]) -> bool:
    """True if there is a `return` of this function among `statements`."""

    def search(node: ast.AST) -> bool:
        if isinstance(node, (ast.FunctionDef, ast.Lambda)):
            return False
        return isinstance(node, ast.Return) or any(map(search, ast.iter_child_nodes(node)))

    return any(map(search, statements))


def leaves_loop(statements: list[ast.stmt], kind: type[ast.Break] | type[ast.Continue]) -> bool:
    """True if a `break` (or `continue`) among `statements` belongs to the loop around them."""

    def search(node: ast.AST) -> bool:
        if isinstance(node, kind):
            return True
        if isinstance(node, (ast.For, ast.While, ast.FunctionDef, ast.Lambda)):
            return False
        return any(search(child) for child in ast.iter_child_nodes(node))

    return any(search(s) for s in statements)


def local_names(source: FunctionSource) -> frozenset[str]:
    """The names that a function assigns, parameters included."""
    node = source.node
    arguments = node.args
    names = [a.arg for a in (*arguments.posonlyargs, *arguments.args, *arguments.kwonlyargs)]
    if isinstance(node, ast.FunctionDef):
        names.extend(assigned_names(node.body))
    return frozenset(names)
