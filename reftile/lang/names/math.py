"""Elementwise mathematics. Dtypes are promoted as `reftile.lang.promote` says."""

from __future__ import annotations

from reftile.lang import arithmetic
from reftile.lang.arithmetic import as_tile, convert, operand, together, wrap
from reftile.lang.dtypes import bool_, float32
from reftile.lang.enums import RoundingMode
from reftile.lang.names.registry import host_name, name
from reftile.lang.trace import Trace
from reftile.lang.values import Tile, describe


def _float_tile(t: Trace, x: object, what: str) -> Tile:
    """A tile of floats with arithmetic; integers become float32."""
    tile = as_tile(t, x, what=what)
    if tile.dtype.category in ("int", "bool"):
        tile = convert(t, tile, float32)
    if tile.dtype.category != "float":
        raise t.error(
            "dtype.arithmetic",
            f"{tile.dtype.name} has no arithmetic",
            "convert with `.astype(ct.float32)` first",
        )
    return tile


def _unary(
    t: Trace, op: str, x: object, rounding: RoundingMode | None = None, flush: bool | None = None
) -> Tile:
    tile = _float_tile(t, x, "`x`")
    if rounding is None and flush is None:
        return wrap(t.value(op, tile.value), tile.dtype)
    if flush is None:
        return wrap(
            t.value(op, tile.value, rounding=arithmetic.rounding_text(rounding)), tile.dtype
        )
    if rounding is None:
        return wrap(t.value(op, tile.value, flush_to_zero=flush), tile.dtype)
    text = arithmetic.rounding_text(rounding)
    return wrap(t.value(op, tile.value, rounding=text, flush_to_zero=flush), tile.dtype)


@name
def add(
    t: Trace,
    x: object,
    y: object,
    /,
    *,
    rounding_mode: RoundingMode | None = None,
    flush_to_zero: object = False,
) -> Tile:
    """`x + y`."""
    flush = t.static_bool(flush_to_zero, "flush_to_zero")
    lhs, rhs = operand(t, x, "`x`"), operand(t, y, "`y`")
    return arithmetic.add_sub_mul(t, "add", lhs, rhs, rounding_mode, flush)


@name
def sub(
    t: Trace,
    x: object,
    y: object,
    /,
    *,
    rounding_mode: RoundingMode | None = None,
    flush_to_zero: object = False,
) -> Tile:
    """`x - y`."""
    flush = t.static_bool(flush_to_zero, "flush_to_zero")
    lhs, rhs = operand(t, x, "`x`"), operand(t, y, "`y`")
    return arithmetic.add_sub_mul(t, "sub", lhs, rhs, rounding_mode, flush)


@name
def mul(
    t: Trace,
    x: object,
    y: object,
    /,
    *,
    rounding_mode: RoundingMode | None = None,
    flush_to_zero: object = False,
) -> Tile:
    """`x * y`."""
    flush = t.static_bool(flush_to_zero, "flush_to_zero")
    lhs, rhs = operand(t, x, "`x`"), operand(t, y, "`y`")
    return arithmetic.add_sub_mul(t, "mul", lhs, rhs, rounding_mode, flush)


@name
def truediv(
    t: Trace,
    x: object,
    y: object,
    /,
    *,
    rounding_mode: RoundingMode | None = None,
    flush_to_zero: object = False,
) -> Tile:
    """`x / y`; two integers are divided as float32."""
    flush = t.static_bool(flush_to_zero, "flush_to_zero")
    lhs, rhs = operand(t, x, "`x`"), operand(t, y, "`y`")
    return arithmetic.true_divide(t, lhs, rhs, rounding_mode, flush)


@name
def floordiv(t: Trace, x: object, y: object, /) -> Tile:
    """`x // y`: rounded down."""
    return arithmetic.floor_divide(t, operand(t, x, "`x`"), operand(t, y, "`y`"))


@host_name(lambda x, y: -((-x) // y))  # type: ignore[reportUnknownLambdaType]
def cdiv(t: Trace, x: object, y: object, /) -> object:
    """The quotient of two integers rounded up. Works on the host too."""
    lhs, rhs = operand(t, x, "`x`"), operand(t, y, "`y`")
    if isinstance(lhs, int) and isinstance(rhs, int):
        if rhs == 0:
            raise t.error("division", "division by zero")
        return -((-lhs) // rhs)
    return arithmetic.floor_divide(t, lhs, rhs, "cdiv")


@name
def mod(t: Trace, x: object, y: object, /) -> Tile:
    """`x % y`: the sign is that of `y`."""
    return arithmetic.modulo(t, operand(t, x, "`x`"), operand(t, y, "`y`"))


@name
def divmod(t: Trace, x: object, y: object, /) -> tuple[Tile, Tile]:
    """`(x // y, x % y)`."""
    return floordiv.implementation(t, x, y), mod.implementation(t, x, y)


@name
def pow(t: Trace, x: object, y: object, /) -> Tile:
    """`x ** y`."""
    return arithmetic.power(t, operand(t, x, "`x`"), operand(t, y, "`y`"))


@name
def fma(
    t: Trace,
    x: object,
    y: object,
    z: object,
    /,
    *,
    rounding_mode: RoundingMode | None = None,
    flush_to_zero: object = False,
) -> Tile:
    """`x * y + z`, rounded once."""
    first, second = together(t, operand(t, x, "`x`"), operand(t, y, "`y`"))
    second, third = together(t, second, operand(t, z, "`z`"))
    first, third = together(t, first, third)
    first, second = together(t, first, second)
    return wrap(
        t.value(
            "fma",
            first.value,
            second.value,
            third.value,
            rounding=arithmetic.rounding_text(rounding_mode),
            flush_to_zero=t.static_bool(flush_to_zero, "flush_to_zero"),
        ),
        first.dtype,
    )


@name
def atan2(t: Trace, x1: object, x2: object, /) -> Tile:
    """The angle of the point (x2, x1), in radians from -pi to pi."""
    lhs, rhs = together(t, operand(t, x1, "`x1`"), operand(t, x2, "`x2`"))
    lhs, rhs = _float_tile(t, lhs, "`x1`"), _float_tile(t, rhs, "`x2`")
    return wrap(t.value("atan2", lhs.value, rhs.value), lhs.dtype)


@name
def bitwise_and(t: Trace, x: object, y: object, /) -> Tile:
    """`x & y`."""
    return arithmetic.logical(t, "and", operand(t, x, "`x`"), operand(t, y, "`y`"))


@name
def bitwise_or(t: Trace, x: object, y: object, /) -> Tile:
    """`x | y`."""
    return arithmetic.logical(t, "or", operand(t, x, "`x`"), operand(t, y, "`y`"))


@name
def bitwise_xor(t: Trace, x: object, y: object, /) -> Tile:
    """`x ^ y`."""
    return arithmetic.logical(t, "xor", operand(t, x, "`x`"), operand(t, y, "`y`"))


@name
def bitwise_lshift(t: Trace, x: object, y: object, /) -> Tile:
    """`x << y`."""
    return arithmetic.shift(t, "left", operand(t, x, "`x`"), operand(t, y, "`y`"))


@name
def bitwise_rshift(t: Trace, x: object, y: object, /) -> Tile:
    """`x >> y`: signed integers keep their sign."""
    return arithmetic.shift(t, "right", operand(t, x, "`x`"), operand(t, y, "`y`"))


@name
def bitwise_not(t: Trace, x: object, /) -> Tile:
    """`~x`."""
    return arithmetic.invert(t, as_tile(t, x, what="`x`"))


@name
def negative(t: Trace, x: object, /) -> Tile:
    """`-x`."""
    return arithmetic.negate(t, as_tile(t, x, what="`x`"))


@name
def minimum(
    t: Trace,
    x: object,
    y: object,
    /,
    *,
    flush_to_zero: object = False,
    propagate_nan: object = False,
) -> Tile:
    """The lesser of two; NaN is ignored unless `propagate_nan`."""
    return arithmetic.min_max(
        t,
        "min",
        operand(t, x, "`x`"),
        operand(t, y, "`y`"),
        t.static_bool(flush_to_zero, "flush_to_zero"),
        t.static_bool(propagate_nan, "propagate_nan"),
    )


@name
def maximum(
    t: Trace,
    x: object,
    y: object,
    /,
    *,
    flush_to_zero: object = False,
    propagate_nan: object = False,
) -> Tile:
    """The greater of two; NaN is ignored unless `propagate_nan`."""
    return arithmetic.min_max(
        t,
        "max",
        operand(t, x, "`x`"),
        operand(t, y, "`y`"),
        t.static_bool(flush_to_zero, "flush_to_zero"),
        t.static_bool(propagate_nan, "propagate_nan"),
    )


@name
def equal(t: Trace, x: object, y: object, /) -> Tile:
    """`x == y`."""
    return arithmetic.compare(t, "equal", operand(t, x, "`x`"), operand(t, y, "`y`"))


@name
def not_equal(t: Trace, x: object, y: object, /) -> Tile:
    """`x != y`; true where one is NaN."""
    return arithmetic.compare(t, "not_equal", operand(t, x, "`x`"), operand(t, y, "`y`"))


@name
def less(t: Trace, x: object, y: object, /) -> Tile:
    """`x < y`."""
    return arithmetic.compare(t, "less_than", operand(t, x, "`x`"), operand(t, y, "`y`"))


@name
def less_equal(t: Trace, x: object, y: object, /) -> Tile:
    """`x <= y`."""
    return arithmetic.compare(t, "less_than_or_equal", operand(t, x, "`x`"), operand(t, y, "`y`"))


@name
def greater(t: Trace, x: object, y: object, /) -> Tile:
    """`x > y`."""
    return arithmetic.compare(t, "greater_than", operand(t, x, "`x`"), operand(t, y, "`y`"))


@name
def greater_equal(t: Trace, x: object, y: object, /) -> Tile:
    """`x >= y`."""
    lhs, rhs = operand(t, x, "`x`"), operand(t, y, "`y`")
    return arithmetic.compare(t, "greater_than_or_equal", lhs, rhs)


@name
def isnan(t: Trace, x: object, /) -> Tile:
    """True where an element is not a number."""
    tile = as_tile(t, x, what="`x`")
    if not tile.dtype.is_float:
        return wrap(t.constant(False, bool_, tile.shape), bool_)
    return arithmetic.compare(t, "not_equal", tile, tile)


@name
def exp(t: Trace, x: object, /, *, rounding_mode: RoundingMode | None = None) -> Tile:
    """E to the power of x."""
    return _unary(t, "exp", x, rounding_mode)


@name
def exp2(t: Trace, x: object, /, *, flush_to_zero: object = False) -> Tile:
    """2 to the power of x."""
    return _unary(t, "exp2", x, flush=t.static_bool(flush_to_zero, "flush_to_zero"))


@name
def expm1(t: Trace, x: object, /) -> Tile:
    """exp(x) - 1, accurate near 0."""
    return _unary(t, "expm1", x)


@name
def log(t: Trace, x: object, /) -> Tile:
    """The natural logarithm."""
    return _unary(t, "log", x)


@name
def log2(t: Trace, x: object, /) -> Tile:
    """The logarithm to base 2."""
    return _unary(t, "log2", x)


@name
def log1p(t: Trace, x: object, /) -> Tile:
    """log(1 + x), accurate near 0."""
    return _unary(t, "log1p", x)


@name
def sqrt(
    t: Trace,
    x: object,
    /,
    *,
    rounding_mode: RoundingMode | None = None,
    flush_to_zero: object = False,
) -> Tile:
    """The square root."""
    return _unary(t, "sqrt", x, rounding_mode, t.static_bool(flush_to_zero, "flush_to_zero"))


@name
def rsqrt(t: Trace, x: object, /, *, flush_to_zero: object = False) -> Tile:
    """1 / sqrt(x)."""
    return _unary(t, "rsqrt", x, flush=t.static_bool(flush_to_zero, "flush_to_zero"))


@name
def sin(t: Trace, x: object, /) -> Tile:
    """The sine."""
    return _unary(t, "sin", x)


@name
def cos(t: Trace, x: object, /) -> Tile:
    """The cosine."""
    return _unary(t, "cos", x)


@name
def tan(t: Trace, x: object, /) -> Tile:
    """The tangent."""
    return _unary(t, "tan", x)


@name
def sinh(t: Trace, x: object, /) -> Tile:
    """The hyperbolic sine."""
    return _unary(t, "sinh", x)


@name
def cosh(t: Trace, x: object, /) -> Tile:
    """The hyperbolic cosine."""
    return _unary(t, "cosh", x)


@name
def tanh(t: Trace, x: object, /, *, rounding_mode: RoundingMode | None = None) -> Tile:
    """The hyperbolic tangent."""
    return _unary(t, "tanh", x, rounding_mode)


@name
def erf(t: Trace, x: object, /) -> Tile:
    """The error function."""
    return _unary(t, "erf", x)


@name
def floor(t: Trace, x: object, /) -> Tile:
    """Rounded down to an integer, as a float."""
    return _unary(t, "floor", x)


@name
def ceil(t: Trace, x: object, /) -> Tile:
    """Rounded up to an integer, as a float."""
    return _unary(t, "ceil", x)


@name
def trunc(t: Trace, x: object, /) -> Tile:
    """Rounded towards zero to an integer, as a float."""
    return _unary(t, "truncf", x)


@name
def round(t: Trace, x: object, /) -> Tile:
    """Rounded to the nearest integer, ties to even, as a float."""
    return _unary(t, "roundf", x)


@name
def reciprocal(
    t: Trace,
    x: object,
    /,
    *,
    rounding_mode: RoundingMode | None = None,
    flush_to_zero: object = False,
) -> Tile:
    """1 / x."""
    return _unary(t, "rcp", x, rounding_mode, t.static_bool(flush_to_zero, "flush_to_zero"))


@name
def abs(t: Trace, x: object, /) -> Tile:
    """The magnitude."""
    tile = as_tile(t, x, what="`x`")
    if tile.dtype.is_float:
        return _unary(t, "absf", tile)
    if not tile.dtype.is_int or not tile.dtype.signed:
        return tile
    return wrap(t.value("absi", tile.value), tile.dtype)


@name
def assume_divisible_by(t: Trace, x: object, divisor: object) -> object:
    """`x`, promised to be a multiple of `divisor`. The interpreter checks the promise.

    What it says is used up to the largest power of two in `divisor`.
    """
    number = t.static_int(divisor, "divisor")
    if number <= 0:
        raise t.error("assume", f"`divisor` must be positive, found {number}")
    if isinstance(x, int):
        return x
    tile = as_tile(t, x, what="`x`")
    if not tile.dtype.is_int:
        raise t.error("assume", f"`x` must be an integer, found {describe(tile)}")
    power = number & -number
    return wrap(t.value("assume", tile.value, div_by=power), tile.dtype) if power > 1 else tile
