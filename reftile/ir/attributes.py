"""Attributes: compile-time values on operations, arguments and kernels.

An attribute is a bool (a unit attribute that is present is True), an int, a float, a string
(enumerations and
symbols too), a type, a `Dense` constant, a tuple or a dictionary of these.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TypeAlias, cast

import numpy as np
from numpy.typing import NDArray

from reftile.ir import numbers
from reftile.ir.dtypes import DTYPES, DType
from reftile.ir.types import TileType, Type

Attribute: TypeAlias = (
    "bool | int | float | str | Type | Dense | tuple[Attribute, ...] | dict[str, Attribute]"
)
Literal: TypeAlias = "bool | int | float | str | Sequence[Literal]"


@dataclass(frozen=True, slots=True)
class Bits:
    """A literal given as the bit pattern of an element, written `0x...` in text."""

    value: int


@dataclass(frozen=True, slots=True)
class Dense:
    """The elements of a constant tile, exactly.

    data: little-endian storage units; one element if `splat`.

    Sub-byte elements take a byte each here (they are packed only in memory).
    """

    dtype: DType
    shape: tuple[int, ...]
    data: bytes
    splat: bool

    @staticmethod
    def of(values: NDArray[np.generic] | float | int | bool, type: TileType) -> Dense:
        """Make the constant of `type` from carrier values; a single value is a splat.

        Raises:
            ValueError: the number of values is neither 1 nor the tile's size.
        """
        dtype = type.dtype
        array = np.asarray(values, dtype=dtype.carrier)
        splat = array.ndim == 0 or array.size == 1
        if not splat and array.shape != type.shape:
            raise ValueError(f"{array.shape} values for {type}")
        bits = np.asarray(numbers.encode(array.reshape(-1), dtype))
        if not splat and np.all(bits == bits[0]):
            bits, splat = bits[:1], True
        return Dense(dtype, type.shape, bits.tobytes(), splat)

    @staticmethod
    def of_bits(bits: Sequence[int], type: TileType) -> Dense:
        """Make the constant of `type` from element bit patterns; a single pattern is a splat."""
        unit_bytes = type.dtype.storage.itemsize
        kept = (1 << type.dtype.bits) - 1
        if type.dtype is DTYPES["tf32"]:
            kept -= (1 << 13) - 1  # the low bits say nothing; equal constants have equal bits
        data = b"".join([(b & kept).to_bytes(unit_bytes, "little") for b in bits])
        return Dense(type.dtype, type.shape, data, len(bits) == 1)

    def bits(self) -> NDArray[np.generic]:
        """The storage units: one if `splat`, else one per element, flat."""
        return np.frombuffer(self.data, dtype=np.dtype(self.dtype.storage))

    def values(self) -> NDArray[np.generic]:
        """The carrier values, broadcast to the tile's shape (read-only when a splat)."""
        decoded = np.asarray(numbers.decode(self.bits(), self.dtype))
        if self.splat:
            return np.broadcast_to(decoded.reshape(()), self.shape)
        return decoded.reshape(self.shape)

    def __str__(self) -> str:
        decoded = np.asarray(numbers.decode(self.bits(), self.dtype))
        if self.splat:
            return _element_text(decoded[0], self.bits()[0], self.dtype)
        texts = [_element_text(v, b, self.dtype) for v, b in zip(decoded, self.bits(), strict=True)]
        return _nest(texts, self.shape)


def dense_from_literal(literal: object, type: TileType) -> Dense:
    """Make a constant from a parsed literal: a number, `Bits`, or nested lists of them.

    Raises:
        ValueError: the nesting does not match the type, or a value does not fit; the text says
        which.
    """
    if _items(literal) is None:
        return Dense.of_bits([element_bits(literal, type.dtype)], type)
    flat: list[object] = []
    _flatten(literal, type.shape, flat, type)
    return Dense.of_bits([element_bits(item, type.dtype) for item in flat], type)


def _items(literal: object) -> Sequence[object] | None:
    return cast("Sequence[object]", literal) if isinstance(literal, (list, tuple)) else None


def _flatten(literal: object, shape: tuple[int, ...], into: list[object], type: TileType) -> None:
    items = _items(literal)
    if not shape:
        if items is not None:
            raise ValueError(f"nested deeper than the rank of {type}")
        into.append(literal)
        return
    if items is None or len(items) != shape[0]:
        found = "a single value" if items is None else len(items)
        raise ValueError(f"{type} needs {shape[0]} entries here, found {found}")
    for item in items:
        _flatten(item, shape[1:], into, type)


def element_bits(item: object, dtype: DType) -> int:
    """The bit pattern of one literal in `dtype`, rounded to nearest even once.

    Raises:
        ValueError: an integer out of range, or not a number.
    """
    if isinstance(item, Bits):
        if item.value >> dtype.bits:
            raise ValueError(f"0x{item.value:x} has more than {dtype.bits} bits")
        return item.value
    if isinstance(item, bool) or (dtype.kind == "int" and isinstance(item, int)):
        value = int(item)
        if not -(1 << (dtype.bits - 1)) <= value < 1 << dtype.bits:
            raise ValueError(f"{value} does not fit {dtype.name}")
        return value & ((1 << dtype.bits) - 1)
    if not isinstance(item, (int, float)):
        raise ValueError(f"{item!r} is not a number")
    if dtype.kind == "int":
        raise ValueError(f"{item} is not an integer, and the element type is {dtype.name}")
    exact = np.asarray([float(item)], dtype=np.float64)
    rounded = numbers.convert(exact, DTYPES["f64"], dtype)
    return int(np.asarray(numbers.encode(rounded, dtype)).reshape(-1)[0])


def _element_text(value: object, bits: object, dtype: DType) -> str:
    if dtype.name == "i1":
        return "true" if value else "false"
    if dtype.kind == "int":
        return str(int(value))  # type: ignore[call-overload]
    number = float(value)  # type: ignore[arg-type]
    return f"0x{int(bits):X}" if number != number else float_text(number)  # type: ignore[call-overload]


def float_text(number: float) -> str:
    """Write a float so that reading it gives the same float."""
    if number != number:
        return "nan"
    if number in (float("inf"), float("-inf")):
        return "inf" if number > 0 else "-inf"
    return repr(number)


def _nest(texts: list[str], shape: tuple[int, ...]) -> str:
    if len(shape) <= 1:
        return "[" + ", ".join(texts) + "]"
    step = len(texts) // shape[0] if shape[0] else 0
    rows = (texts[i * step : (i + 1) * step] for i in range(shape[0]))
    return "[" + ", ".join(_nest(row, shape[1:]) for row in rows) + "]"


def attribute_text(value: Attribute, kind: str = "") -> str:
    """Write an attribute as the text form reads it. Strings of kind `string` are quoted."""
    match value:
        case bool():
            return "true" if value else "false"
        case int():
            return str(value)
        case float():
            return float_text(value)
        case str():
            return quote(value) if kind in ("string", "") else value
        case tuple():
            inner = kind[:-2] if kind.endswith("[]") else kind
            return "[" + ", ".join(attribute_text(v, inner) for v in value) + "]"
        case dict():
            items = (f"{k} = {attribute_text(v)}" for k, v in value.items())
            return "{" + ", ".join(items) + "}"
        case _:
            return str(value)


_ESCAPES: Mapping[str, str] = {"\\": "\\\\", '"': '\\"', "\n": "\\n", "\t": "\\t", "\r": "\\r"}


def quote(text: str) -> str:
    """Write a string with escapes, in double quotes."""
    return '"' + "".join(_ESCAPES.get(c, c) for c in text) + '"'
