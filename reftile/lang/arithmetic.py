"""Building blocks on tiles: conversion, broadcasting, promotion, and the operators.

Operators on two Python numbers never get here: they are computed while tracing.
"""

from __future__ import annotations

import operator
from collections.abc import Callable
from contextlib import suppress
from typing import Literal, TypeAlias, cast

from reftile.ir.core import Value
from reftile.ir.types import PointerType, TileType
from reftile.lang.dtypes import DType, bool_, float32, int32
from reftile.lang.enums import RoundingMode
from reftile.lang.promote import promote, promote_weak, weak_dtype
from reftile.lang.trace import Trace
from reftile.lang.values import Foreign, Number, Tile, describe, is_number

Operand: TypeAlias = Tile | Number
Comparison = Literal[
    "equal", "not_equal", "less_than", "less_than_or_equal", "greater_than", "greater_than_or_equal"
]


def operand(t: Trace, value: object, what: str) -> Operand:
    """A tile or a Python number, or a diagnosis that names `what`."""
    if isinstance(value, Tile) or is_number(value):
        return value
    # Arrays have these methods, and refuse where they are no single number.
    with suppress(TypeError):
        return operator.index(cast("int", value))
    if hasattr(type(value), "__float__"):
        with suppress(TypeError, ValueError):
            return float(cast("float", value))
    advice = value.advice() if isinstance(value, Foreign) else ""
    message = f"{what} must be a tile or a number, found {describe(value)}"
    raise t.error("type.number", message, advice)


def as_tile(t: Trace, value: object, dtype: DType | None = None, what: str = "the value") -> Tile:
    """A tile of `dtype`; numbers become scalars, of their own dtype when none is asked for."""
    found = operand(t, value, what)
    if not isinstance(found, Tile):
        target = dtype or weak_dtype(found)
        return Tile(t.constant(_fit(found, target), target), target, found)
    return found if dtype is None else convert(t, found, dtype)


def _fit(number: Number, dtype: DType) -> Number:
    return int(number) if dtype.is_int and isinstance(number, (bool, float)) else number


def wrap(value: Value, dtype: DType) -> Tile:
    """The tile of an IR value."""
    return Tile(value, dtype)


# Shapes


def reshape(t: Trace, tile: Tile, shape: tuple[int, ...]) -> Tile:
    """The same elements, in row-major order, in another shape."""
    if tile.shape == shape:
        return tile
    return wrap(reshape_value(t, tile.value, shape), tile.dtype)


def reshape_value(t: Trace, value: Value, shape: tuple[int, ...]) -> Value:
    """`reshape` of an IR value, which may hold pointers."""
    type = cast("TileType", value.type)
    if type.shape == shape:
        return value
    return t.value("reshape", value, types=[TileType(shape, type.element)])


def broadcast_value(t: Trace, value: Value, shape: tuple[int, ...]) -> Value:
    """Repeat an IR value to `shape`, which must be reachable by NumPy's rules."""
    type = cast("TileType", value.type)
    padded = (1,) * (len(shape) - len(type.shape)) + type.shape
    value = reshape_value(t, value, padded)
    if padded == shape:
        return value
    return t.value("broadcast", value, types=[TileType(shape, type.element)])


def broadcast(t: Trace, tile: Tile, shape: tuple[int, ...]) -> Tile:
    """Repeat a tile to `shape`; a diagnosis if NumPy's rules do not allow it."""
    if tile.shape == shape:
        return tile
    if common_shape(tile.shape, shape) != shape:
        raise t.error(
            "shape.broadcast",
            f"a tile of shape {tile.shape} cannot be broadcast to {shape}",
            "axes are aligned from the last; an extent must agree or be 1",
        )
    if tile.constant is not None:
        return wrap(t.constant(tile.constant, tile.dtype, shape), tile.dtype)
    return wrap(broadcast_value(t, tile.value, shape), tile.dtype)


def common_shape(*shapes: tuple[int, ...]) -> tuple[int, ...] | None:
    """What the shapes broadcast to, or None."""
    rank = max(map(len, shapes), default=0)
    result: list[int] = []
    for column in zip(*((1,) * (rank - len(s)) + s for s in shapes), strict=True):
        extents = {e for e in column if e != 1}
        if len(extents) > 1:
            return None
        result.append(extents.pop() if extents else 1)
    return tuple(result)


def broadcast_together(t: Trace, *shapes: tuple[int, ...]) -> tuple[int, ...]:
    """What the shapes broadcast to, or a diagnosis."""
    shape = common_shape(*shapes)
    if shape is None:
        listed = " and ".join(map(str, shapes))
        raise t.error(
            "shape.broadcast",
            f"shapes {listed} do not broadcast together",
            "axes are aligned from the last; extents must agree or be 1",
        )
    return shape


# Dtypes


def convert(t: Trace, tile: Tile, dtype: DType, rounding: RoundingMode | None = None) -> Tile:
    """The tile in another dtype: floats round to nearest even, floats to integers towards zero."""
    if tile.dtype is dtype:
        return tile
    constant = tile.constant
    value = _convert_value(t, tile, dtype, rounding)
    if constant is not None and not (dtype.is_int and isinstance(constant, float)):
        return Tile(value, dtype, bool(constant) if dtype is bool_ else constant)
    return Tile(value, dtype)


def _convert_value(t: Trace, tile: Tile, dtype: DType, rounding: RoundingMode | None) -> Value:
    source, value = tile.dtype, tile.value
    type = TileType(tile.shape, dtype.element)
    if dtype is bool_:
        zero = t.constant(0, source, tile.shape)
        if source.is_float:
            return t.value("cmpf", value, zero, predicate="not_equal", ordering="unordered")
        return t.value("cmpi", value, zero, predicate="not_equal", signedness=source.signedness)
    if dtype.is_float and source.is_float:
        # f8e8m0 has directed modes only: its numbers are scales, and are rounded up.
        mode = (
            rounding.value
            if rounding
            else ("positive_inf" if dtype.name == "float8_e8m0fnu" else None)
        )
        return t.value("ftof", value, types=[type], rounding=mode)
    if rounding is not None:
        raise t.error("rounding", "a rounding mode applies to conversions between floats only")
    if dtype.is_float:
        return t.value("itof", value, types=[type], signedness=source.signedness)
    if source.is_float:
        return t.value("ftoi", value, types=[type], signedness=dtype.signedness)
    if dtype.bits > source.bits:
        return t.value("exti", value, types=[type], signedness=source.signedness)
    if dtype.bits < source.bits:
        return t.value("trunci", value, types=[type])
    return value  # only the signedness changes, and the IR's integers have none


def common_dtype(t: Trace, x: Operand, y: Operand, what: str = "operands") -> DType:
    """The dtype that an operation on `x` and `y` computes in, or a diagnosis."""
    if isinstance(x, Tile) and isinstance(y, Tile):
        found = promote(x.dtype, y.dtype)
    elif isinstance(x, Tile):
        found = promote_weak(x.dtype, cast("Number", y))
    elif isinstance(y, Tile):
        found = promote_weak(y.dtype, x)
    else:
        found = promote(weak_dtype(x), weak_dtype(y))
    if found is None:
        raise t.error(
            "dtype.promote",
            f"{what} of {_dtype_text(x)} and {_dtype_text(y)} have no common dtype",
            "convert one of them with `.astype(...)`",
        )
    return found


def _dtype_text(x: Operand) -> str:
    return x.dtype.name if isinstance(x, Tile) else f"the number {x!r}"


def spread(t: Trace, x: Operand, dtype: DType, shape: tuple[int, ...]) -> Tile:
    """`x` in `dtype` and `shape`."""
    if isinstance(x, Tile):
        return broadcast(t, convert(t, x, dtype), shape)
    return Tile(t.constant(_fit(x, dtype), dtype, shape), dtype, x if not shape else None)


def together(t: Trace, x: Operand, y: Operand, dtype: DType | None = None) -> tuple[Tile, Tile]:
    """Both operands in their common dtype and shape."""
    dtype = dtype or common_dtype(t, x, y)
    shapes = [v.shape for v in (x, y) if isinstance(v, Tile)]
    shape = broadcast_together(t, *shapes)
    return spread(t, x, dtype, shape), spread(t, y, dtype, shape)


# Operators

_INTEGER = {"add": "addi", "sub": "subi", "mul": "muli"}
_FLOAT = {"add": "addf", "sub": "subf", "mul": "mulf", "truediv": "divf"}


def _fold(name: str, x: Number, y: Number) -> Number | None:
    """The result on two typed constants, where it is the same in any width."""
    match name:
        case "add":
            return x + y
        case "sub":
            return x - y
        case "mul":
            return x * y
        case "floordiv" if y:
            return x // y
        case "mod" if y:
            return x % y
        case _:
            return None


def add_sub_mul(
    t: Trace,
    name: Literal["add", "sub", "mul"],
    x: Operand,
    y: Operand,
    rounding: RoundingMode | None = None,
    flush_to_zero: bool = False,
) -> Tile:
    """Sum, difference or product. Integers wrap."""
    lhs, rhs = together(t, x, y)
    dtype = lhs.dtype
    folded = _folded(t, name, lhs, rhs)
    if folded is not None and rounding is None:
        return folded
    if dtype is bool_:
        raise t.error(
            "dtype.bool",
            f"booleans have no `{name}`",
            "combine them with `&`, `|`, `^`, or convert with `.astype(ct.int32)`",
        )
    if dtype.is_int:
        _no_float_options(t, rounding, flush_to_zero, dtype)
        return wrap(t.value(_INTEGER[name], lhs.value, rhs.value), dtype)
    _arithmetic(t, dtype)
    return wrap(
        t.value(
            _FLOAT[name],
            lhs.value,
            rhs.value,
            rounding=rounding_text(rounding),
            flush_to_zero=flush_to_zero,
        ),
        dtype,
    )


def _folded(t: Trace, name: str, x: Tile, y: Tile) -> Tile | None:
    if x.constant is None or y.constant is None or not x.dtype.is_int or x.shape or y.shape:
        return None
    number = _fold(name, x.constant, y.constant)
    low = -(1 << (x.dtype.bits - 1)) if x.dtype.signed else 0
    high = (1 << (x.dtype.bits - x.dtype.signed)) - 1
    if number is None or not low <= number <= high:
        return None
    return Tile(t.constant(number, x.dtype), x.dtype, number)


def _arithmetic(t: Trace, dtype: DType) -> None:
    if dtype.category != "float":
        raise t.error(
            "dtype.arithmetic",
            f"{dtype.name} has no arithmetic",
            "convert with `.astype(ct.float32)` first",
        )


def _no_float_options(t: Trace, rounding: RoundingMode | None, flush: bool, dtype: DType) -> None:
    if rounding is not None or flush:
        raise t.error(
            "rounding", f"rounding_mode and flush_to_zero apply to floats, found {dtype.name}"
        )


def rounding_text(rounding: RoundingMode | None) -> str | None:
    """The IR's word for a rounding mode; None leaves the record's default."""
    return rounding.value if rounding is not None else None


def true_divide(
    t: Trace,
    x: Operand,
    y: Operand,
    rounding: RoundingMode | None = None,
    flush_to_zero: bool = False,
) -> Tile:
    """Quotient in floats; two integers are divided as float32."""
    dtype = common_dtype(t, x, y)
    lhs, rhs = together(t, x, y, dtype if dtype.is_float else float32)
    _arithmetic(t, lhs.dtype)
    return wrap(
        t.value(
            "divf",
            lhs.value,
            rhs.value,
            rounding=rounding_text(rounding),
            flush_to_zero=flush_to_zero,
        ),
        lhs.dtype,
    )


def floor_divide(t: Trace, x: Operand, y: Operand, name: str = "floordiv") -> Tile:
    """Quotient rounded down (`cdiv`: up)."""
    dtype = common_dtype(t, x, y)
    lhs, rhs = together(t, x, y, int32 if dtype is bool_ else dtype)
    folded = _folded(t, name, lhs, rhs)
    if folded is not None:
        return folded
    if lhs.dtype.is_float:
        _arithmetic(t, lhs.dtype)
        quotient = t.value("divf", lhs.value, rhs.value)
        return wrap(t.value("floor" if name == "floordiv" else "ceil", quotient), lhs.dtype)
    rounding = "positive_inf" if name == "cdiv" else "negative_inf" if lhs.dtype.signed else "zero"
    return wrap(
        t.value("divi", lhs.value, rhs.value, signedness=lhs.dtype.signedness, rounding=rounding),
        lhs.dtype,
    )


def modulo(t: Trace, x: Operand, y: Operand) -> Tile:
    """Remainder with the sign of the divisor, as in Python."""
    dtype = common_dtype(t, x, y)
    lhs, rhs = together(t, x, y, int32 if dtype is bool_ else dtype)
    folded = _folded(t, "mod", lhs, rhs)
    if folded is not None:
        return folded
    dtype = lhs.dtype
    if dtype.is_int and not dtype.signed:
        return wrap(t.value("remi", lhs.value, rhs.value, signedness="unsigned"), dtype)
    zero = t.constant(0, dtype, lhs.shape)
    if dtype.is_float:
        _arithmetic(t, dtype)
        remainder = wrap(t.value("remf", lhs.value, rhs.value), dtype)
    else:
        remainder = wrap(t.value("remi", lhs.value, rhs.value, signedness="signed"), dtype)
    base = wrap(zero, dtype)
    differs = logical(
        t, "xor", compare(t, "less_than", remainder, base), compare(t, "less_than", rhs, base)
    )
    moved = add_sub_mul(t, "add", remainder, rhs)
    wrong = logical(t, "and", differs, compare(t, "not_equal", remainder, base))
    return select(t, wrong, moved, remainder)


_COMPARE: dict[Comparison, Callable[[Number, Number], bool]] = {
    "equal": lambda a, b: a == b,
    "not_equal": lambda a, b: a != b,
    "less_than": lambda a, b: a < b,
    "less_than_or_equal": lambda a, b: a <= b,
    "greater_than": lambda a, b: a > b,
    "greater_than_or_equal": lambda a, b: a >= b,
}


def compare(t: Trace, predicate: Comparison, x: Operand, y: Operand) -> Tile:
    """A boolean tile; a comparison with NaN is false, `not_equal` is true."""
    lhs, rhs = together(t, x, y)
    if lhs.constant is not None and rhs.constant is not None and not lhs.dtype.is_float:
        known = _COMPARE[predicate](lhs.constant, rhs.constant)
        return Tile(t.constant(known, bool_), bool_, known)
    if lhs.dtype.is_float:
        _arithmetic(t, lhs.dtype)
        ordering = "unordered" if predicate == "not_equal" else "ordered"
        value = t.value("cmpf", lhs.value, rhs.value, predicate=predicate, ordering=ordering)
    else:
        value = t.value(
            "cmpi", lhs.value, rhs.value, predicate=predicate, signedness=lhs.dtype.signedness
        )
    return wrap(value, bool_)


def select(t: Trace, condition: Tile, x: Operand, y: Operand) -> Tile:
    """Elements of `x` where the condition is true, else of `y`."""
    dtype = common_dtype(t, x, y)
    shapes = [v.shape for v in (condition, x, y) if isinstance(v, Tile)]
    shape = broadcast_together(t, *shapes)
    chosen = broadcast(t, condition, shape)
    lhs, rhs = spread(t, x, dtype, shape), spread(t, y, dtype, shape)
    return wrap(t.value("select", chosen.value, lhs.value, rhs.value), dtype)


def logical(t: Trace, name: Literal["and", "or", "xor"], x: Operand, y: Operand) -> Tile:
    """Bits of integers and booleans combined."""
    lhs, rhs = together(t, x, y)
    if lhs.dtype.is_float:
        raise t.error("dtype.bits", f"`{name}` combines integers or booleans, found {lhs.dtype}")
    return wrap(t.value(f"{name}i", lhs.value, rhs.value), lhs.dtype)


def shift(t: Trace, name: Literal["left", "right"], x: Operand, y: Operand) -> Tile:
    """Shifted bits; to the right, signed integers keep their sign."""
    lhs, rhs = together(t, x, y)
    if not lhs.dtype.is_int:
        raise t.error("dtype.bits", f"shifts take integers, found {lhs.dtype}")
    if name == "left":
        return wrap(t.value("shli", lhs.value, rhs.value), lhs.dtype)
    value = t.value("shri", lhs.value, rhs.value, signedness=lhs.dtype.signedness)
    return wrap(value, lhs.dtype)


def min_max(
    t: Trace,
    name: Literal["min", "max"],
    x: Operand,
    y: Operand,
    flush_to_zero: bool = False,
    propagate_nan: bool = False,
) -> Tile:
    """The lesser or greater; NaN is ignored unless it propagates."""
    lhs, rhs = together(t, x, y)
    if lhs.dtype.is_float:
        _arithmetic(t, lhs.dtype)
        value = t.value(
            f"{name}f",
            lhs.value,
            rhs.value,
            flush_to_zero=flush_to_zero,
            propagate_nan=propagate_nan,
        )
    else:
        _no_float_options(t, None, flush_to_zero, lhs.dtype)
        value = t.value(f"{name}i", lhs.value, rhs.value, signedness=lhs.dtype.signedness)
    return wrap(value, lhs.dtype)


def power(t: Trace, x: Operand, y: Operand) -> Tile:
    """`x ** y`. A small whole exponent known now multiplies; other powers need floats."""
    if isinstance(x, Tile) and isinstance(y, int) and 0 <= y <= 4 and x.dtype is not bool_:
        result = wrap(t.constant(1, x.dtype, x.shape), x.dtype) if y == 0 else x
        for _ in range(y - 1):
            result = add_sub_mul(t, "mul", result, x)
        return result
    lhs, rhs = together(t, x, y)
    if lhs.dtype.is_int and isinstance(y, int) and y >= 0:
        return _integer_power(t, lhs, y)
    if not lhs.dtype.is_float:
        raise t.error(
            "dtype.power",
            f"an integer power needs an exponent known when compiling, found {describe(y)}",
            "convert to a float first",
        )
    _arithmetic(t, lhs.dtype)
    return wrap(t.value("pow", lhs.value, rhs.value), lhs.dtype)


def _integer_power(t: Trace, base: Tile, exponent: int) -> Tile:
    result: Tile | None = None
    while exponent:
        if exponent & 1:
            result = base if result is None else add_sub_mul(t, "mul", result, base)
        base, exponent = add_sub_mul(t, "mul", base, base), exponent >> 1
    return result or wrap(t.constant(1, base.dtype, base.shape), base.dtype)


def negate(t: Trace, x: Tile) -> Tile:
    """`-x`."""
    if x.constant is not None and x.dtype.is_int and x.dtype.signed:
        return Tile(t.constant(-x.constant, x.dtype), x.dtype, -x.constant)
    if x.dtype is bool_:
        raise t.error("dtype.bool", "booleans cannot be negated", "`~x` is the opposite of x")
    if x.dtype.is_float:
        _arithmetic(t, x.dtype)
    return wrap(t.value("negf" if x.dtype.is_float else "negi", x.value), x.dtype)


def invert(t: Trace, x: Tile) -> Tile:
    """`~x`: every bit; the opposite of a boolean."""
    if x.dtype.is_float:
        raise t.error("dtype.bits", f"`~` takes integers or booleans, found {x.dtype}")
    ones = x.dtype.element
    value = (
        t.constant(True, x.dtype, x.shape)
        if x.dtype is bool_
        else t.constant(-1 if x.dtype.signed else (1 << ones.bits) - 1, x.dtype, x.shape)
    )
    return wrap(t.value("xori", x.value, value), x.dtype)


def offset_pointer(t: Trace, pointer: Value, offset: Tile) -> Value:
    """Pointers moved by a tile of element offsets; a scalar pointer is repeated."""
    type = cast("TileType", pointer.type)
    if not isinstance(type.element, PointerType):
        raise t.error("type.pointer", f"{type} holds no pointers")
    pointers = broadcast_value(t, pointer, offset.shape)
    return t.value("offset", pointers, offset.value)
