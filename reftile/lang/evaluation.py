"""`static_eval`: an expression evaluated by Python itself while the kernel is compiled.

Names of the kernel keep their values. Tiles are wrapped so that Python's operators on them build
operations.
"""

from __future__ import annotations

import ast
from collections.abc import Callable, Mapping
from typing import cast

from reftile.ir.diagnostics import ReftileError
from reftile.lang.frame import UNKNOWN, Frame
from reftile.lang.operators import binary, compare, truth, unary
from reftile.lang.trace import Trace
from reftile.lang.values import Array, Tile, Undefined


class StaticTile:
    """A tile inside `static_eval`."""

    __slots__ = ("_tile", "_trace")

    def __init__(self, trace: Trace, tile: Tile) -> None:
        self._trace = trace
        self._tile = tile

    @property
    def shape(self) -> tuple[int, ...]:
        """The extents."""
        return self._tile.shape

    @property
    def dtype(self) -> object:
        """The dtype."""
        return self._tile.dtype

    @property
    def ndim(self) -> int:
        """The number of axes."""
        return self._tile.ndim

    def _binary(self, op: type[ast.operator], other: object, swap: bool = False) -> object:
        pair = (expose(other), self._tile) if swap else (self._tile, expose(other))
        return hide(self._trace, binary(self._trace, op, *pair))

    def _compare(self, op: type[ast.cmpop], other: object) -> object:
        return hide(self._trace, compare(self._trace, op, self._tile, expose(other)))

    def __add__(self, other: object) -> object:
        return self._binary(ast.Add, other)

    def __radd__(self, other: object) -> object:
        return self._binary(ast.Add, other, True)

    def __sub__(self, other: object) -> object:
        return self._binary(ast.Sub, other)

    def __rsub__(self, other: object) -> object:
        return self._binary(ast.Sub, other, True)

    def __mul__(self, other: object) -> object:
        return self._binary(ast.Mult, other)

    def __rmul__(self, other: object) -> object:
        return self._binary(ast.Mult, other, True)

    def __truediv__(self, other: object) -> object:
        return self._binary(ast.Div, other)

    def __rtruediv__(self, other: object) -> object:
        return self._binary(ast.Div, other, True)

    def __floordiv__(self, other: object) -> object:
        return self._binary(ast.FloorDiv, other)

    def __rfloordiv__(self, other: object) -> object:
        return self._binary(ast.FloorDiv, other, True)

    def __mod__(self, other: object) -> object:
        return self._binary(ast.Mod, other)

    def __rmod__(self, other: object) -> object:
        return self._binary(ast.Mod, other, True)

    def __pow__(self, other: object) -> object:
        return self._binary(ast.Pow, other)

    def __rpow__(self, other: object) -> object:
        return self._binary(ast.Pow, other, True)

    def __and__(self, other: object) -> object:
        return self._binary(ast.BitAnd, other)

    def __rand__(self, other: object) -> object:
        return self._binary(ast.BitAnd, other, True)

    def __or__(self, other: object) -> object:
        return self._binary(ast.BitOr, other)

    def __ror__(self, other: object) -> object:
        return self._binary(ast.BitOr, other, True)

    def __xor__(self, other: object) -> object:
        return self._binary(ast.BitXor, other)

    def __rxor__(self, other: object) -> object:
        return self._binary(ast.BitXor, other, True)

    def __lshift__(self, other: object) -> object:
        return self._binary(ast.LShift, other)

    def __rshift__(self, other: object) -> object:
        return self._binary(ast.RShift, other)

    def __matmul__(self, other: object) -> object:
        return self._binary(ast.MatMult, other)

    def __neg__(self) -> object:
        return hide(self._trace, unary(self._trace, ast.USub, self._tile))

    def __invert__(self) -> object:
        return hide(self._trace, unary(self._trace, ast.Invert, self._tile))

    def __lt__(self, other: object) -> object:
        return self._compare(ast.Lt, other)

    def __le__(self, other: object) -> object:
        return self._compare(ast.LtE, other)

    def __gt__(self, other: object) -> object:
        return self._compare(ast.Gt, other)

    def __ge__(self, other: object) -> object:
        return self._compare(ast.GtE, other)

    def __eq__(self, other: object) -> object:  # type: ignore[override]
        return self._compare(ast.Eq, other)

    def __ne__(self, other: object) -> object:  # type: ignore[override]
        return self._compare(ast.NotEq, other)

    def __hash__(self) -> int:
        return id(self._tile)

    def __index__(self) -> int:
        return self._trace.static_int(self._tile, "the value")

    def __bool__(self) -> bool:
        if self._tile.constant is None:
            raise self._trace.error(
                "static_eval", f"the truth of {self._tile} is not known when the kernel is compiled"
            )
        return truth(self._trace, self._tile)

    def __str__(self) -> str:
        return str(self._tile)

    __repr__ = __str__


def hide(t: Trace, value: object) -> object:
    """A value as Python code sees it: tiles wrapped, also inside tuples."""
    if isinstance(value, Tile):
        return StaticTile(t, value)
    if isinstance(value, Array):
        return value
    if type(value) is tuple:
        return tuple(hide(t, item) for item in cast("tuple[object, ...]", value))
    if type(value) is list:
        return [hide(t, item) for item in cast("list[object]", value)]
    return value


def expose(value: object) -> object:
    """The value behind what Python code computed."""
    if isinstance(value, StaticTile):
        return value._tile  # type: ignore[reportPrivateUsage]
    if type(value) is tuple:
        return tuple(expose(item) for item in cast("tuple[object, ...]", value))
    if type(value) is list:
        return [expose(item) for item in cast("list[object]", value)]
    return value


class _Names(Mapping[str, object]):
    """What an expression sees: the kernel's names, then those from outside."""

    def __init__(self, frame: Frame, names: frozenset[str]) -> None:
        self._values: dict[str, object] = {}
        for name in names:
            value = frame.names.get(name, UNKNOWN)
            if value is UNKNOWN:
                value = frame.lookup(name)
            if value is not UNKNOWN and not isinstance(value, Undefined):
                self._values[name] = hide(frame.trace, value)

    def __getitem__(self, key: str) -> object:
        return self._values[key]

    def __iter__(self):  # type: ignore[no-untyped-def]
        return iter(self._values)

    def __len__(self) -> int:
        return len(self._values)


def evaluate_statically(frame: Frame, node: ast.expr) -> object:
    """Let Python evaluate an expression.

    Raises:
        ReftileError: Python raised something.
    """
    for inner in ast.walk(node):
        if isinstance(inner, ast.NamedExpr):
            raise frame.error(inner, "static_eval", "names cannot be assigned inside `static_eval`")
    names = frozenset(n.id for n in ast.walk(node) if isinstance(n, ast.Name))
    expression = ast.Expression(node)
    code = compile(expression, frame.source.source.name, "eval")
    with frame.trace.at(frame.span(node)):
        try:
            result = _run(code, dict(_Names(frame, names)))
        except ReftileError:
            raise
        except Exception as error:
            raise frame.error(node, "static_eval", f"{type(error).__name__}: {error}") from None
    return expose(list(result) if _is_iterator(result) else result)  # type: ignore[call-overload]


_run: Callable[[object, dict[str, object]], object] = eval  # type: ignore[assignment]


def _is_iterator(value: object) -> bool:
    return hasattr(type(value), "__next__")
