"""The operators of Python on values of the language."""

from __future__ import annotations

import ast
import operator
from collections.abc import Callable, Sequence
from types import FunctionType
from typing import Any, cast

from reftile.lang import arithmetic
from reftile.lang.dtypes import as_dtype, bool_
from reftile.lang.names.matrix import matmul
from reftile.lang.trace import Trace
from reftile.lang.values import Foreign, Tile, describe, is_number, is_record, is_static, items_of

Binary = Callable[[object, object], object]

# The type of these functions is too general to be of use.
_python: Any = operator

STATIC_BINARY: dict[type[ast.operator], Binary] = {
    ast.Add: _python.add,
    ast.Sub: _python.sub,
    ast.Mult: _python.mul,
    ast.Div: _python.truediv,
    ast.FloorDiv: _python.floordiv,
    ast.Mod: _python.mod,
    ast.Pow: _python.pow,
    ast.BitAnd: _python.and_,
    ast.BitOr: _python.or_,
    ast.BitXor: _python.xor,
    ast.LShift: _python.lshift,
    ast.RShift: _python.rshift,
    ast.MatMult: _python.matmul,
}
SYMBOLS: dict[type[ast.AST], str] = {
    ast.Add: "+",
    ast.Sub: "-",
    ast.Mult: "*",
    ast.Div: "/",
    ast.FloorDiv: "//",
    ast.Mod: "%",
    ast.Pow: "**",
    ast.BitAnd: "&",
    ast.BitOr: "|",
    ast.BitXor: "^",
    ast.LShift: "<<",
    ast.RShift: ">>",
    ast.MatMult: "@",
    ast.Eq: "==",
    ast.NotEq: "!=",
    ast.Lt: "<",
    ast.LtE: "<=",
    ast.Gt: ">",
    ast.GtE: ">=",
}
STATIC_COMPARE: dict[type[ast.cmpop], Binary] = {
    ast.Eq: _python.eq,
    ast.NotEq: _python.ne,
    ast.Lt: _python.lt,
    ast.LtE: _python.le,
    ast.Gt: _python.gt,
    ast.GtE: _python.ge,
}
_PREDICATES: dict[type[ast.cmpop], arithmetic.Comparison] = {
    ast.Eq: "equal",
    ast.NotEq: "not_equal",
    ast.Lt: "less_than",
    ast.LtE: "less_than_or_equal",
    ast.Gt: "greater_than",
    ast.GtE: "greater_than_or_equal",
}


def static(t: Trace, compute: Callable[[], object]) -> object:
    """What Python computes; its complaints become a diagnosis."""
    try:
        return compute()
    except (ArithmeticError, TypeError, ValueError, LookupError, AttributeError) as error:
        raise t.error("static", f"{type(error).__name__}: {error}") from None


LARGEST_CONSTANT = 1 << 16
"""Bits of an integer, or items of a sequence, at most: beyond that a constant is a mistake, and
computing it may exhaust memory."""


def _check_size(t: Trace, op: type[ast.operator], x: object, y: object) -> None:
    """Raise if a constant would be larger than anything that a kernel needs."""
    size = 0
    match x, y:
        case int(), int() if op is ast.Pow:
            size = x.bit_length() * y if abs(x) > 1 else 0
        case int(), int() if op is ast.LShift:
            size = x.bit_length() + y if x else 0
        case int(), int() if op is ast.Mult:
            size = x.bit_length() + y.bit_length()
        case (str() | bytes() | tuple() | list(), int()) if op is ast.Mult:
            size = len(cast("Sequence[object]", x)) * y
        case (int(), str() | bytes() | tuple() | list()) if op is ast.Mult:
            size = len(cast("Sequence[object]", y)) * x
        case _:
            pass
    if size > LARGEST_CONSTANT:
        unit = "bits" if isinstance(x, int) and isinstance(y, int) else "items"
        message = f"this constant has {size} {unit}; at most {LARGEST_CONSTANT} are supported"
        raise t.error("static", message)


def binary(t: Trace, op: type[ast.operator], x: object, y: object) -> object:
    """`x op y`."""
    _check_size(t, op, x, y)
    if not (isinstance(x, Tile) or isinstance(y, Tile) or is_record(x) or is_record(y)):
        sequence, other = items_of(x), items_of(y)
        if sequence is not None and other is not None and op is ast.Add:
            return static(t, lambda: STATIC_BINARY[op](x, y))
        if is_static(x) and is_static(y):
            return static(t, lambda: STATIC_BINARY[op](x, y))
        if sequence is not None and isinstance(y, int) and op is ast.Mult:
            return sequence * y
    if op is ast.MatMult and not is_record(x) and not is_record(y):
        return matmul.implementation(t, x, y)
    overloaded = _overloaded(t, _METHODS[op], x, y)
    if overloaded is not NotImplemented:
        return overloaded
    for side in (x, y):
        if not isinstance(side, Tile) and not is_number(side) and not _is_index(side):
            raise t.error(
                "operator",
                f"`{SYMBOLS[op]}` cannot combine {describe(x)} and {describe(y)}",
                _advice(side),
            )
    lhs, rhs = arithmetic.operand(t, x, "`x`"), arithmetic.operand(t, y, "`y`")
    return _tile_binary(t, op, lhs, rhs)


def _advice(side: object) -> str:
    if isinstance(side, Foreign):
        return side.advice()
    is_array = type(side).__name__ == "Array"
    return "load elements of an array with ct.load or ct.gather first" if is_array else ""


_METHODS: dict[type[ast.AST], str] = {
    ast.Add: "add",
    ast.Sub: "sub",
    ast.Mult: "mul",
    ast.Div: "truediv",
    ast.FloorDiv: "floordiv",
    ast.Mod: "mod",
    ast.Pow: "pow",
    ast.BitAnd: "and",
    ast.BitOr: "or",
    ast.BitXor: "xor",
    ast.LShift: "lshift",
    ast.RShift: "rshift",
    ast.MatMult: "matmul",
}


def _overloaded(t: Trace, method: str, x: object, y: object) -> object:
    """What a dataclass of the user's makes of an operator; NotImplemented if nothing."""
    for owner, name, other in ((x, f"__{method}__", y), (y, f"__r{method}__", x)):
        function = getattr(type(owner), name, None) if is_record(owner) else None
        if isinstance(function, FunctionType):
            result = t.call(function, owner, other)
            if result is not NotImplemented:
                return result
    return NotImplemented


def _is_index(value: object) -> bool:
    return hasattr(type(value), "__index__") or hasattr(type(value), "__float__")


def _tile_binary(
    t: Trace, op: type[ast.operator], x: arithmetic.Operand, y: arithmetic.Operand
) -> Tile:
    match op:
        case ast.Add:
            return arithmetic.add_sub_mul(t, "add", x, y)
        case ast.Sub:
            return arithmetic.add_sub_mul(t, "sub", x, y)
        case ast.Mult:
            return arithmetic.add_sub_mul(t, "mul", x, y)
        case ast.Div:
            return arithmetic.true_divide(t, x, y)
        case ast.FloorDiv:
            return arithmetic.floor_divide(t, x, y)
        case ast.Mod:
            return arithmetic.modulo(t, x, y)
        case ast.Pow:
            return arithmetic.power(t, x, y)
        case ast.BitAnd:
            return arithmetic.logical(t, "and", x, y)
        case ast.BitOr:
            return arithmetic.logical(t, "or", x, y)
        case ast.BitXor:
            return arithmetic.logical(t, "xor", x, y)
        case ast.LShift:
            return arithmetic.shift(t, "left", x, y)
        case ast.RShift:
            return arithmetic.shift(t, "right", x, y)
        case _:
            raise t.error("operator", f"`{SYMBOLS.get(op, op.__name__)}` has no meaning for tiles")


def unary(t: Trace, op: type[ast.unaryop], x: object) -> object:
    """`op x`."""
    if op is ast.Not:
        if isinstance(x, Tile) and x.constant is None:
            return arithmetic.invert(t, truth_tile(t, x))
        return not truth(t, x)
    if not isinstance(x, Tile):
        if not is_static(x):
            raise t.error("operator", f"{describe(x)} has no such operator")
        functions: dict[type[ast.unaryop], Callable[[object], object]] = {
            ast.USub: lambda v: _python.neg(cast("int", v)),
            ast.UAdd: lambda v: _python.pos(cast("int", v)),
            ast.Invert: lambda v: _python.invert(cast("int", v)),
        }
        return static(t, lambda: functions[op](x))
    if op is ast.USub:
        return arithmetic.negate(t, x)
    return x if op is ast.UAdd else arithmetic.invert(t, x)


def compare(t: Trace, op: type[ast.cmpop], x: object, y: object) -> object:
    """`x op y` for one link of a comparison."""
    if op in (ast.Is, ast.IsNot):
        return _identical(x, y) == (op is ast.Is)
    if op in (ast.In, ast.NotIn):
        found = _contains(t, x, y)
        return found if op is ast.In else unary(t, ast.Not, found)
    if isinstance(x, Tile) or isinstance(y, Tile):
        for side in (x, y):
            if not isinstance(side, Tile) and not is_number(side) and not _is_index(side):
                return _mixed(t, op, x, y)
        lhs, rhs = arithmetic.operand(t, x, "`x`"), arithmetic.operand(t, y, "`y`")
        return arithmetic.compare(t, _PREDICATES[op], lhs, rhs)
    ours, theirs = as_dtype(x), as_dtype(y)
    if ours is not None and theirs is not None and op in (ast.Eq, ast.NotEq):
        return (ours is theirs) == (op is ast.Eq)
    if not is_static(x) or not is_static(y):
        ours_items, their_items = items_of(x), items_of(y)
        if ours_items is not None and their_items is not None:
            return _tuples(t, op, ours_items, their_items)
        return _mixed(t, op, x, y)
    return static(t, lambda: STATIC_COMPARE[op](x, y))


def _mixed(t: Trace, op: type[ast.cmpop], x: object, y: object) -> object:
    if op in (ast.Eq, ast.NotEq) and (
        x is None or y is None or isinstance(x, str) or isinstance(y, str)
    ):
        return op is ast.NotEq
    raise t.error("operator", f"`{SYMBOLS[op]}` cannot compare {describe(x)} and {describe(y)}")


def _tuples(t: Trace, op: type[ast.cmpop], x: tuple[object, ...], y: tuple[object, ...]) -> object:
    if op not in (ast.Eq, ast.NotEq):
        raise t.error("operator", "tuples of run-time values can only be compared by == and !=")
    if len(x) != len(y):
        return op is ast.NotEq
    result: object = True
    for first, second in zip(x, y, strict=True):
        link = compare(t, ast.Eq, first, second)
        if link is False or result is False:
            result = False
        elif link is not True:
            tile = truth_tile(t, link)
            result = (
                tile if result is True else arithmetic.logical(t, "and", cast("Tile", result), tile)
            )
    return unary(t, ast.Not, result) if op is ast.NotEq else result


def _identical(x: object, y: object) -> bool:
    if isinstance(x, Tile) and isinstance(y, Tile):
        return x.value is y.value
    ours, theirs = as_dtype(x), as_dtype(y)
    return x is y or (ours is not None and ours is theirs)


def _contains(t: Trace, x: object, y: object) -> object:
    """`x in y`: known now, or the comparisons with all items joined by `or`."""
    if is_static(x) and is_static(y):
        return bool(static(t, lambda: cast("list[object]", y).__contains__(x)))
    keys = cast("dict[object, object]", y) if isinstance(y, dict) else None
    items = tuple(keys) if keys is not None else items_of(cast("object", y))
    if items is None:
        raise t.error("operator", "`in` takes a tuple here")
    result: object = False
    for item in items:
        link = compare(t, ast.Eq, x, item)
        if not is_run_time(link):
            if truth(t, link):
                return True
            continue
        tile = truth_tile(t, link)
        result = arithmetic.logical(t, "or", result, tile) if isinstance(result, Tile) else tile
    return result


def truth(t: Trace, value: object) -> bool:
    """The truth of a value that is known now."""
    if isinstance(value, Tile) and value.constant is not None:
        return bool(value.constant)
    if isinstance(value, (tuple, list)):
        return len(cast("list[object]", value)) > 0
    if not is_static(value):
        return True
    return bool(static(t, lambda: bool(value)))


def is_run_time(value: object) -> bool:
    """True if the truth of a value depends on the run."""
    return isinstance(value, Tile) and value.constant is None


def truth_tile(t: Trace, value: object) -> Tile:
    """The truth of a scalar, as a boolean scalar."""
    tile = arithmetic.as_tile(t, value, what="a condition")
    if tile.shape and any(e != 1 for e in tile.shape):
        raise t.error(
            "condition",
            f"a condition must be a scalar, found {describe(tile)}",
            "choose elements with ct.where, or combine them with ct.any",
        )
    return arithmetic.convert(t, arithmetic.reshape(t, tile, ()), bool_)
