"""What the names of pipe kernels share: scalars, tokens, words, shapes."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TypeVar

from reftile.ir.buffer_layout import parse_layout
from reftile.ir.core import Value
from reftile.ir.diagnostics import ReftileError
from reftile.ir.types import BufferType
from reftile.lang.arithmetic import as_tile, convert
from reftile.lang.dtypes import DType, bool_, int32
from reftile.lang.trace import Trace
from reftile.lang.values import Tile, Token, as_items, describe, items_of

Kind = TypeVar("Kind")


def error(t: Trace, rule: str, message: str, hint: str = "") -> ReftileError:
    """Return (to be raised) a diagnosis of the pipe front end about the place being traced."""
    return t.error(f"pipe.{rule}", message, hint)


def need(t: Trace, value: object, kind: type[Kind], what: str, hint: str = "") -> Kind:
    """A value of one kind, or a diagnosis that names `what`."""
    if isinstance(value, kind):
        return value
    noun = kind.__name__.lower()
    raise error(t, "type", f"`{what}` must be a {noun}, found {describe(value)}", hint)


def scalar(t: Trace, value: object, what: str) -> Value:
    """An i32 scalar, or a diagnosis that names `what`."""
    tile = as_tile(t, value, what=f"`{what}`")
    if tile.shape or not (tile.dtype.is_int or tile.dtype is bool_):
        raise error(t, "scalar", f"`{what}` must be an integer scalar, found {describe(tile)}")
    return convert(t, tile, int32).value


def scalars(t: Trace, values: object, what: str) -> tuple[Value, ...]:
    """i32 scalars."""
    return tuple(scalar(t, item, what) for item in as_items(values))


def condition(t: Trace, value: object, what: str) -> Value:
    """A boolean scalar, or a diagnosis that names `what`."""
    tile = as_tile(t, value, what=f"`{what}`")
    if tile.shape:
        raise error(t, "scalar", f"`{what}` must be a scalar, found {describe(tile)}")
    return convert(t, tile, bool_).value


def token_of(t: Trace, value: object) -> Value | None:
    """The token of a `token=` argument: one, several in a tuple, or None."""
    if value is None:
        return None
    items = items_of(value)
    if items is not None:
        tokens = [t.token(item) for item in items]
        kept = tuple(v for v in tokens if v is not None)
        return kept[0] if len(kept) == 1 else t.value("join_tokens", kept)
    return t.token(value)


def word(t: Trace, value: object, allowed: Sequence[str], what: str) -> str:
    """One of the words that an attribute takes."""
    if isinstance(value, str) and value in allowed:
        return value
    known = ", ".join(allowed)
    raise error(t, "word", f"`{what}` is one of {known}, found {describe(value)}")


def flag(t: Trace, value: object, what: str) -> bool | None:
    """A unit attribute: True, or None to leave it out."""
    return True if t.static_bool(value, what) else None


def option(t: Trace, value: object, what: str) -> int | None:
    """An integer known when compiling, or None."""
    return None if value is None else t.static_int(value, what)


def buffer_type(t: Trace, shape: object, dtype: DType, layout: object) -> BufferType:
    """The type of a buffer; `layout` is a name of spec/pipe.md, or None for the natural one."""
    extents = t.static_shape(shape)
    if layout is None:
        return BufferType(extents, dtype.element, natural_layout(extents, dtype))
    if not isinstance(layout, str) or parse_layout(layout) is None:
        raise error(
            t,
            "layout",
            f"{layout!r} is no layout",
            "row_major, row_major[P], swizzle128, swizzle64, swizzle32, swizzle16",
        )
    return BufferType(extents, dtype.element, layout)


def natural_layout(shape: tuple[int, ...], dtype: DType) -> str:
    """The widest swizzle whose spans fill the rows of a matrix; else rows one behind another."""
    if len(shape) == 2 and shape[0] % 8 == 0 and dtype.bits >= 8:
        row_bytes = shape[1] * dtype.bits // 8
        for span in (128, 64, 32, 16):
            if row_bytes % span == 0:
                return f"swizzle{span}"
    return "row_major"


def wrap_tokens(values: Mapping[str, Value]) -> dict[str, Token]:
    """Tokens by name."""
    return {name: Token(value) for name, value in values.items()}


def known(tile: Tile | int) -> int | None:
    """The number that a scalar is known to be."""
    if isinstance(tile, Tile):
        return int(tile.constant) if tile.constant is not None else None
    return tile
