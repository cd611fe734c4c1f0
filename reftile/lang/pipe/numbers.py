"""Numbers that pipe kernels compute with most: counts, quotients that are never negative."""

from __future__ import annotations

from reftile.ir.core import Value
from reftile.lang.dtypes import int32
from reftile.lang.names.registry import host_name
from reftile.lang.pipe.common import scalar
from reftile.lang.trace import Trace, static_number
from reftile.lang.values import Tile


def _quotient(x: int, y: int) -> int:
    return x // y


def _remainder(x: int, y: int) -> int:
    return x % y


def _ceildiv(x: int, y: int) -> int:
    return -(-x // y)


def _numbers(x: object, y: object) -> tuple[int, int] | None:
    """Both, if Python can compute with them now."""
    if isinstance(x, Tile) or isinstance(y, Tile):
        return None
    first, second = static_number(x), static_number(y)
    if isinstance(first, int) and isinstance(second, int):
        return first, second
    return None


@host_name(_quotient)
def quotient(t: Trace, x: object, y: object, /) -> object:
    """`x // y` of two numbers that are not negative."""
    known = _numbers(x, y)
    if known is not None and known[1]:
        return known[0] // known[1]
    return Tile(_divide(t, "divi", x, y), int32)


@host_name(_remainder)
def remainder(t: Trace, x: object, y: object, /) -> object:
    """`x % y` of two numbers that are not negative."""
    known = _numbers(x, y)
    if known is not None and known[1]:
        return known[0] % known[1]
    return Tile(_divide(t, "remi", x, y), int32)


def _divide(t: Trace, name: str, x: object, y: object) -> Value:
    return t.value(name, scalar(t, x, "x"), scalar(t, y, "y"), signedness="unsigned")


@host_name(_ceildiv)
def ceildiv(t: Trace, x: object, y: object, /) -> object:
    """`x / y` rounded up, of two numbers that are not negative."""
    known = _numbers(x, y)
    if known is not None and known[1]:
        return -(-known[0] // known[1])
    first, second = scalar(t, x, "x"), scalar(t, y, "y")
    up = t.value("addi", first, second)
    last = t.value("subi", up, t.constant(1, int32))
    return Tile(t.value("divi", last, second, signedness="unsigned"), int32)
