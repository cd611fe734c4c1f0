"""Printing and asserting while a kernel runs, and deciding while it is compiled."""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import Any

from reftile.lang.arithmetic import as_tile, convert
from reftile.lang.dtypes import bool_, float32, float64, int32
from reftile.lang.names.registry import name
from reftile.lang.trace import Trace
from reftile.lang.values import FormattedText, FormattedTile, Tile, describe, items_of

_CONVERSION = re.compile(r"%(?:%|[-+ #0]*\d*(?:\.\d+)?(?:hh|h|ll|l|j|z|t|L)?([diuoxXeEfFgGaAs]))")


def _emit(t: Trace, text: str, tiles: Sequence[Tile]) -> None:
    t.op("print_tko", tuple(tile.value for tile in tiles), format=text)


@name
def printf(t: Trace, format: object, *args: object) -> None:
    """Print tiles in a format of C's: `%d`, `%u`, `%x`, `%f`, `%e`, `%g`."""
    if not isinstance(format, str):
        raise t.error("type.string", f"`format` must be a string, found {describe(format)}")
    conversions = [m[1] for m in _CONVERSION.finditer(format) if m[1]]
    if len(conversions) != len(args):
        raise t.error(
            "print.count", f"the format has {len(conversions)} conversions for {len(args)} values"
        )
    tiles: list[Tile] = []
    for letter, value in zip(conversions, args, strict=True):
        tile = as_tile(t, value, what="a printed value")
        is_float_conversion = letter in "eEfFgGaA"
        if is_float_conversion != tile.dtype.is_float:
            raise t.error(
                "print.type",
                f"`%{letter}` prints {'floats' if is_float_conversion else 'integers'}, "
                f"found {tile.dtype}",
            )
        tiles.append(tile)
    _emit(t, format, tiles)


_SPEC = re.compile(r"([-+ #0]*)(\d*)((?:\.\d+)?)([diuxXeEfFgG]?)$")


def _piece(t: Trace, value: object, spec: str, text: list[str], tiles: list[Tile]) -> None:
    if isinstance(value, FormattedText):
        for part in value.parts:
            if isinstance(part, FormattedTile):
                _piece(t, part.tile, part.spec, text, tiles)
            else:
                text.append(part.replace("%", "%%"))
    elif isinstance(value, Tile):
        match = _SPEC.match(spec)
        if match is None:
            raise t.error(
                "print.format", f"`{spec}` is no format of a tile", "for example .3f or 4d"
            )
        flags, width, precision, letter = match.groups()
        tile = value
        if tile.dtype.is_float or letter in tuple("eEfFgG"):
            letter = letter or "f"
            if tile.dtype not in (float32, float64):
                tile = convert(t, tile, float32)
        else:
            letter = "d" if letter in ("", "d", "i") and tile.dtype.signed else letter or "u"
            if tile.dtype is bool_:
                tile, letter = convert(t, tile, int32), "d"
        text.append(f"%{flags}{width}{precision}{letter}")
        tiles.append(tile)
    elif (items := items_of(value)) is not None:
        text.append("(" if isinstance(value, tuple) else "[")
        for i, item in enumerate(items):
            text.append(", " if i else "")
            _piece(t, item, "", text, tiles)
        text.append((",)" if len(items) == 1 else ")") if isinstance(value, tuple) else "]")
    else:
        text.append(str(value).replace("%", "%%"))


@name
def print(t: Trace, *args: object, sep: object = " ", end: object = "\n") -> None:
    """Print values as Python's `print` does; f-strings may hold tiles with a format."""
    text: list[str] = []
    tiles: list[Tile] = []
    for i, value in enumerate(args):
        if i:
            text.append(str(sep).replace("%", "%%"))
        _piece(t, value, "", text, tiles)
    text.append(str(end).replace("%", "%%"))
    _emit(t, "".join(text), tiles)


@name
def assert_(t: Trace, cond: object, /, message: object = None) -> None:
    """Report, when the kernel runs, elements of `cond` that are false."""
    tile = convert(t, as_tile(t, cond, what="`cond`"), bool_)
    if message is not None and not isinstance(message, str):
        raise t.error("type.string", f"`message` must be a string, found {describe(message)}")
    t.op("assert", tile.value, message=message or "assertion failed")


@name
def ensure_constant(t: Trace, value: object, /) -> object:
    """`value`, which must be known when the kernel is compiled."""
    if isinstance(value, Tile) and value.constant is None:
        raise t.error(
            "constant",
            f"the value must be known when the kernel is compiled, found {describe(value)}",
        )
    return value.constant if isinstance(value, Tile) else value


class Keyword:
    """A name whose arguments are evaluated by Python, not traced; `trace` knows each by name."""

    def __init__(self, name: str, doc: str) -> None:
        self.__name__ = name
        self.__doc__ = doc

    def __call__(self, *args: object) -> Any:
        """On the host, what was written."""
        return args[0] if args else None

    def __repr__(self) -> str:
        return f"<reftile.lang.{self.__name__}>"


def function(function: Any = None, /, **spaces: bool) -> Any:
    """Mark a helper, as cuTile does; here any Python function can be called from a kernel."""
    return function if function is not None else (lambda inner: inner)  # type: ignore[reportUnknownLambdaType]


static_eval = Keyword(
    "static_eval",
    "Evaluate an expression in Python while the kernel is compiled. Tiles in it have a shape and a "
    "dtype, and arithmetic on them builds operations.",
)
static_assert = Keyword(
    "static_assert",
    "Check a condition while the kernel is compiled; the message is evaluated only if it is false.",
)
static_iter = Keyword(
    "static_iter",
    "The iterable of a `for` loop that is unrolled; it is evaluated as by `static_eval`.",
)
static_exception = Keyword(
    "static_exception",
    "`raise static_exception(...)`: stop compiling with this exception.",
)
