"""What calls do: names of the language, methods, Python's built-ins, and the user's functions."""

from __future__ import annotations

import builtins
import functools
import math
import operator
from collections.abc import Callable, Mapping, Sequence
from dataclasses import is_dataclass
from types import BuiltinFunctionType, FunctionType, MethodType, ModuleType
from typing import Any, cast

import numpy as np

from reftile.lang import arithmetic
from reftile.lang.dtypes import DType, bool_, float32, int32
from reftile.lang.names import create, debug, matrix, reduction
from reftile.lang.names import math as mathematics
from reftile.lang.names.registry import Name
from reftile.lang.operators import is_run_time, static, truth, truth_tile
from reftile.lang.trace import Trace, static_number
from reftile.lang.values import (
    Array,
    BoundMethod,
    LocalFunction,
    Slice,
    Tile,
    TiledView,
    describe,
    is_record,
    is_static,
    items_of,
)

Arguments = Sequence[object]
Keywords = Mapping[str, object]
Handler = Callable[[Trace, Arguments, Keywords], object]

# The type of these functions is too general to be of use.
_python: Any = operator


def call(t: Trace, function: object, arguments: Arguments, keywords: Keywords) -> object:
    """Call anything that a kernel may call."""
    match function:
        case Name():
            return _named(t, cast("Name[..., object]", function), arguments, keywords)
        case BoundMethod():
            method = cast("Name[..., object]", function.function)
            return method.trace(t, [function.owner, *arguments], keywords)
        case DType():
            return _typed(t, function, arguments)
        case LocalFunction() | FunctionType():
            replacement = _replacement(function)
            if replacement is not None:
                return call(t, replacement, arguments, keywords)
            return t.inline(function, arguments, keywords)
        case functools.partial():
            partial = cast("functools.partial[object]", function)
            merged = {**partial.keywords, **keywords}
            return call(t, partial.func, [*partial.args, *arguments], merged)
        case MethodType():
            return call(t, function.__func__, [function.__self__, *arguments], keywords)
        case _:
            return _other(t, function, arguments, keywords)


def _named(
    t: Trace, function: Name[..., object], arguments: Arguments, keywords: Keywords
) -> object:
    """A name of the language. Numbers alone are computed now, as Python computes them."""
    python = _PYTHON_OF.get(function.__name__)
    numbers = all(static_number(a) is not None and not isinstance(a, Tile) for a in arguments)
    if python is not None and numbers and arguments and not keywords:
        return static(t, lambda: python(*arguments))
    return function.trace(t, arguments, keywords)


def _replacement(function: object) -> object | None:
    """A name of the language that was decorated by somebody, or a kernel's helper."""
    return getattr(function, "__reftile_name__", None)


def _typed(t: Trace, dtype: DType, arguments: Arguments) -> object:
    """`ct.int16(5)`: a constant that has a dtype, or a conversion."""
    if len(arguments) != 1:
        raise t.error("arguments", f"`{dtype.name}` takes one number")
    value = arguments[0]
    if isinstance(value, str) and dtype.is_float:
        text = value
        value = static(t, lambda: float(text))
    number = static_number(value)
    if number is not None and dtype.is_int and isinstance(number, float):
        number = int(number)
    if number is not None:
        return Tile(t.constant(number, dtype), dtype, bool(number) if dtype is bool_ else number)
    return arithmetic.convert(t, arithmetic.as_tile(t, value), dtype)


def _other(t: Trace, function: Any, arguments: Arguments, keywords: Keywords) -> object:
    handler = _HANDLERS.get(id(function))
    if handler is not None:
        return handler(t, arguments, keywords)
    if function is Slice:
        return static(t, lambda: Slice(*arguments, **keywords))
    twin = _TWINS.get(id(function))
    known = all(is_static(a) for a in (*arguments, *keywords.values()))
    if twin is not None and not known:
        return twin.trace(t, arguments, keywords)
    if is_record(function) and callable(function):
        return call(t, type(function).__call__, [function, *arguments], keywords)
    if _makes_record(function) or (known and _is_computable(function)):
        return static(t, lambda: function(*arguments, **keywords))
    if getattr(function, "is_reftile_kernel", False):
        raise t.error(
            "call",
            f"a kernel cannot call the kernel {describe(function)}",
            "move what both need into a function without @reftile.kernel",
        )
    if _is_numpy_scalar(function):
        return _typed(t, create.need_dtype(t, function), arguments)
    hint = (
        "functions written in Python are inlined; of others, those without effects are called "
        "while compiling, on constants"
    )
    raise t.error("call", f"{describe(function)} cannot be called in a kernel", hint)


def _makes_record(function: object) -> bool:
    """True for dataclasses and named tuples."""
    return isinstance(function, type) and (
        is_dataclass(function) or hasattr(cast("object", function), "_fields")
    )


def _is_numpy_scalar(function: object) -> bool:
    return isinstance(function, type) and issubclass(function, np.generic)


_PURE_MODULES = {"builtins", "math", "cmath", "_operator", "numpy", "numpy._core._multiarray_umath"}
_IMPURE = {"open", "input", "exec", "eval", "compile", "__import__", "setattr", "delattr", "id"}


def _is_computable(function: object) -> bool:
    """Functions that compute from constants and have no effects."""
    if isinstance(function, np.ufunc):
        return True
    if isinstance(function, BuiltinFunctionType):
        owner = getattr(function, "__self__", None)
        if isinstance(owner, ModuleType):
            return owner.__name__ in _PURE_MODULES and function.__name__ not in _IMPURE
        # A method: of a constant, or a class method as int.from_bytes.
        return type(owner).__module__ == "builtins" or owner is None
    module = getattr(function, "__module__", "") or ""
    if isinstance(function, type):
        return module in ("builtins", "numpy", "fractions", "decimal", "enum") or hasattr(
            function, "__members__"
        )
    if module.startswith("numpy.random"):
        return False
    return module.split(".")[0] in ("math", "operator", "numpy", "builtins")


# Python's built-ins


def _check_count(t: Trace, name: str, arguments: Arguments, low: int, high: int) -> None:
    if not low <= len(arguments) <= high:
        raise t.error("arguments", f"`{name}` was given {len(arguments)} arguments")


def _extreme(which: str) -> Handler:
    """`min` and `max` of several values, or of a tuple."""

    def handler(t: Trace, arguments: Arguments, keywords: Keywords) -> object:
        items = list(arguments)
        if len(items) == 1 and (inner := items_of(items[0])) is not None:
            items = list(inner)
        if len(items) == 1 and isinstance(items[0], Tile):
            name = reduction.min if which == "min" else reduction.max
            return name.trace(t, arguments, keywords)
        if keywords or not items:
            raise t.error("arguments", f"`{which}` takes values only")
        if all(is_static(item) for item in items):
            chosen = builtins.min if which == "min" else builtins.max
            return static(t, lambda: chosen(cast("list[int]", items)))
        pair = mathematics.minimum if which == "min" else mathematics.maximum
        result = items[0]
        for item in items[1:]:
            result = pair.trace(t, [result, item], {})
        return result

    return handler


def _len(t: Trace, arguments: Arguments, keywords: Keywords) -> object:
    _check_count(t, "len", arguments, 1, 1)
    value = arguments[0]
    if isinstance(value, (Tile, Array, TiledView)):
        raise t.error("len", f"{describe(value)} has no length", "its shape does: x.shape[0]")
    return static(t, lambda: len(cast("Sequence[object]", value)))


def _number(name: str, dtype: DType, python: Callable[..., object]) -> Handler:
    """`int(x)`, `float(x)`, `bool(x)`."""

    def handler(t: Trace, arguments: Arguments, keywords: Keywords) -> object:
        _check_count(t, name, arguments, 0, 1)
        if not arguments:
            return python()
        value = arguments[0]
        number = static_number(value)
        if number is not None:
            return static(t, lambda: python(number))
        if isinstance(value, Tile):
            if name == "bool":
                return truth_tile(t, value)
            if name == "int" and value.dtype.is_int:
                return value
            return arithmetic.convert(t, value, dtype)
        return static(t, lambda: python(value))

    return handler


def _sum(t: Trace, arguments: Arguments, keywords: Keywords) -> object:
    items = items_of(arguments[0]) if len(arguments) == 1 and not keywords else None
    if items is not None:
        result: object = 0
        for item in items:
            result = _add(t, result, item)
        return result
    return reduction.sum.trace(t, arguments, keywords)


def _add(t: Trace, x: object, y: object) -> object:
    if is_static(x) and is_static(y):
        return static(t, lambda: cast("int", x) + cast("int", y))
    if x == 0 and not isinstance(x, Tile):
        return y
    return mathematics.add.trace(t, [x, y], {})


def _all_any(which: str) -> Handler:
    def handler(t: Trace, arguments: Arguments, keywords: Keywords) -> object:
        name = reduction.any if which == "any" else reduction.all
        items = items_of(arguments[0]) if len(arguments) == 1 else None
        if items is not None:
            result: object = which == "all"
            for item in items:
                if not is_run_time(item):
                    if truth(t, item) == (which == "any"):
                        return which == "any"
                    continue
                tile = truth_tile(t, item)
                result = (
                    arithmetic.logical(t, "or" if which == "any" else "and", result, tile)
                    if isinstance(result, Tile)
                    else tile
                )
            return result
        return name.trace(t, arguments, keywords)

    return handler


def _isinstance(t: Trace, arguments: Arguments, keywords: Keywords) -> object:
    _check_count(t, "isinstance", arguments, 2, 2)
    value, kinds = arguments
    return static(t, lambda: isinstance(value, cast("type", kinds)))


def _sequence(python: Callable[..., object]) -> Handler:
    """`zip`, `enumerate`, `reversed`, ...: of tuples, now."""

    def handler(t: Trace, arguments: Arguments, keywords: Keywords) -> object:
        for argument in arguments:
            if isinstance(argument, (Tile, Array)):
                raise t.error("iterate", f"{describe(argument)} cannot be iterated over")
        found = static(t, lambda: python(*arguments, **keywords))
        return tuple(cast("Sequence[object]", found))

    return handler


def _range(t: Trace, arguments: Arguments, keywords: Keywords) -> object:
    _check_count(t, "range", arguments, 1, 3)
    numbers = [static_number(a) for a in arguments]
    if any(n is None for n in numbers):
        raise t.error(
            "range",
            "a range with bounds known only at run time can only stand in `for ... in range(...)`",
        )
    return static(t, lambda: range(*cast("list[int]", numbers)))


def _type(t: Trace, arguments: Arguments, keywords: Keywords) -> object:
    _check_count(t, "type", arguments, 1, 1)
    return type(arguments[0])


def _hasattr(t: Trace, arguments: Arguments, keywords: Keywords) -> object:
    return static(t, lambda: hasattr(arguments[0], cast("str", arguments[1])))


def _getattr(t: Trace, arguments: Arguments, keywords: Keywords) -> object:
    return static(t, lambda: getattr(*cast("tuple[object, str]", tuple(arguments))))


def _operator(name: Name[..., object], symbol: Callable[..., object]) -> tuple[int, Handler]:
    def handler(t: Trace, arguments: Arguments, keywords: Keywords) -> object:
        if all(is_static(a) for a in arguments):
            return static(t, lambda: symbol(*arguments))
        return name.trace(t, arguments, keywords)

    return id(symbol), handler


def _forward(name: Name[..., object], python: Callable[..., object]) -> Handler:
    def handler(t: Trace, arguments: Arguments, keywords: Keywords) -> object:
        if all(is_static(a) and not isinstance(a, Tile) for a in arguments):
            return static(t, lambda: python(*arguments, **keywords))
        return name.trace(t, arguments, keywords)

    return handler


_HANDLERS: dict[int, Handler] = {
    id(builtins.min): _extreme("min"),
    id(builtins.max): _extreme("max"),
    id(builtins.len): _len,
    id(builtins.int): _number("int", int32, int),
    id(builtins.float): _number("float", float32, float),
    id(builtins.bool): _number("bool", bool_, bool),
    id(builtins.abs): _forward(mathematics.abs, builtins.abs),
    id(builtins.pow): _forward(mathematics.pow, builtins.pow),
    id(builtins.divmod): _forward(mathematics.divmod, builtins.divmod),
    id(builtins.round): _forward(mathematics.round, builtins.round),
    id(builtins.sum): _sum,
    id(builtins.any): _all_any("any"),
    id(builtins.all): _all_any("all"),
    id(builtins.isinstance): _isinstance,
    id(builtins.type): _type,
    id(builtins.hasattr): _hasattr,
    id(builtins.getattr): _getattr,
    id(builtins.range): _range,
    id(builtins.tuple): _sequence(tuple),
    id(builtins.list): _sequence(list),
    id(builtins.zip): _sequence(lambda *a, **k: tuple(zip(*a, strict=False, **k))),  # type: ignore[reportUnknownLambdaType]
    id(builtins.enumerate): _sequence(lambda *a, **k: tuple(enumerate(*a, **k))),  # type: ignore[reportUnknownLambdaType]
    id(builtins.reversed): _sequence(lambda a: tuple(reversed(a))),  # type: ignore[reportUnknownLambdaType]
    id(builtins.print): lambda t, arguments, keywords: debug.print.trace(t, arguments, keywords),
    **dict(
        (
            _operator(mathematics.add, _python.add),
            _operator(mathematics.sub, _python.sub),
            _operator(mathematics.mul, _python.mul),
            _operator(mathematics.truediv, _python.truediv),
            _operator(mathematics.floordiv, _python.floordiv),
            _operator(mathematics.mod, _python.mod),
            _operator(mathematics.pow, _python.pow),
            _operator(mathematics.bitwise_and, _python.and_),
            _operator(mathematics.bitwise_or, _python.or_),
            _operator(mathematics.bitwise_xor, _python.xor),
            _operator(mathematics.bitwise_lshift, _python.lshift),
            _operator(mathematics.bitwise_rshift, _python.rshift),
            _operator(mathematics.bitwise_not, _python.invert),
            _operator(mathematics.negative, _python.neg),
            _operator(mathematics.equal, _python.eq),
            _operator(mathematics.not_equal, _python.ne),
            _operator(mathematics.less, _python.lt),
            _operator(mathematics.less_equal, _python.le),
            _operator(mathematics.greater, _python.gt),
            _operator(mathematics.greater_equal, _python.ge),
            _operator(matrix.matmul, _python.matmul),
        )
    ),
}

# Functions of `math` and NumPy that stand for a name of the language when given a tile.
_TWINS: dict[int, Name[..., object]] = {
    id(getattr(module, name)): getattr(mathematics, twin)
    for module, pairs in (
        (
            math,
            "exp exp2 expm1 log log2 log1p sqrt sin cos tan sinh cosh tanh erf floor ceil trunc",
        ),
        (np, "exp exp2 expm1 log log2 log1p sqrt sin cos tan sinh cosh tanh floor ceil trunc"),
    )
    for name in pairs.split()
    for twin in (name,)
    if hasattr(module, name)
}

# Names of the language that Python computes when given numbers only.
_PYTHON_OF: dict[str, Callable[..., object]] = {
    "add": _python.add,
    "sub": _python.sub,
    "mul": _python.mul,
    "truediv": _python.truediv,
    "floordiv": _python.floordiv,
    "mod": _python.mod,
    "pow": _python.pow,
    "minimum": builtins.min,
    "maximum": builtins.max,
    "negative": _python.neg,
    "bitwise_and": _python.and_,
    "bitwise_or": _python.or_,
    "bitwise_xor": _python.xor,
    "bitwise_not": _python.invert,
    "bitwise_lshift": _python.lshift,
    "bitwise_rshift": _python.rshift,
    "equal": _python.eq,
    "not_equal": _python.ne,
    "less": _python.lt,
    "less_equal": _python.le,
    "greater": _python.gt,
    "greater_equal": _python.ge,
}
