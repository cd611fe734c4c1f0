"""Attributes in bytecode: of one kind as their place demands, or tagged with their kind.

Source: NVIDIA cuda-tile, BytecodeAttrOpcodes.td and the bytecode writer;
`cuda.tile._bytecode.attribute`. Elements of constants follow MLIR's dense attributes: little-endian
whole bytes, but i1 in bits, lowest first, unless all elements are one.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

import numpy as np
from numpy.typing import NDArray

from reftile.interop.cursor import Cursor
from reftile.interop.emit import put_number, put_signed
from reftile.interop.type_read import TypeTable
from reftile.interop.type_write import CannotWrite, TypeWriter
from reftile.ir import numbers
from reftile.ir.attributes import Attribute, Dense, element_bits
from reftile.ir.dtypes import DTYPES, DType
from reftile.ir.types import TileType

(
    INTEGER,
    FLOAT,
    BOOL,
    TYPE,
    STRING,
    ARRAY,
    DENSE,
    DIV_BY,
    SAME_ELEMENTS,
    DICTIONARY,
    HINTS,
    BOUNDED,
) = range(1, 13)
DEEPEST = 8
"""Attributes nest this deep at most: hints need three levels."""

LARGEST_CONSTANTS_BYTES = 1 << 28
"""All constants of a file at most, taken apart: one of the table may be read as many types."""

TF32_UNUSED_BITS = 13
"""Bytecode has the 19 bits of a tf32, we have them at the top of 32."""


def format_bits(dtype: DType) -> int:
    """The bits of an element in bytecode."""
    return dtype.bits - TF32_UNUSED_BITS if dtype.name == "tf32" else dtype.bits


@dataclass(slots=True)
class AttributeReader:
    """Reads attributes with the tables of one file."""

    strings: list[str]
    types: TypeTable
    constants: list[Cursor]
    known: dict[tuple[int, TileType], Dense] = field(
        default_factory=dict[tuple[int, TileType], Dense]
    )
    decoded_bytes: int = 0

    def string(self, cursor: Cursor) -> str:
        """Read an index into the string table."""
        return self.strings[cursor.choice(len(self.strings), "string")]

    def tagged(self, cursor: Cursor, depth: int = 0) -> Attribute:
        """Read a tag and an attribute of that kind; integers and floats lose their type."""
        start = cursor.position
        if depth > DEEPEST:
            raise cursor.error("attribute", f"attributes nest deeper than {DEEPEST}")
        tag = cursor.number()
        match tag:
            case 1:
                return self._integer(cursor)
            case 2:
                return self._float(cursor)
            case 3:
                return self.boolean(cursor)
            case 4:
                return self.types.value_type(cursor)
            case 5:
                return self.string(cursor)
            case 6:
                return tuple(
                    self.tagged(cursor, depth + 1) for _ in range(cursor.count("attributes"))
                )
            case 10 | 11:
                return self.dictionary(cursor, depth + 1)
            case _:
                raise cursor.error("attribute", f"no attribute with the tag {tag} here", start)

    def dictionary(self, cursor: Cursor, depth: int = 0) -> dict[str, Attribute]:
        """Read names and tagged attributes."""
        found: dict[str, Attribute] = {}
        for _ in range(cursor.count("entries", 2)):
            start = cursor.position
            name = self.string(cursor)
            if name in found or not (name.isidentifier() and name.isascii()):
                raise cursor.error("attribute", f"the name {name!r} is no name here", start)
            found[name] = self.tagged(cursor, depth)
        return found

    def boolean(self, cursor: Cursor) -> bool:
        """Read one byte, 0 or 1."""
        value = cursor.byte()
        if value > 1:
            raise cursor.error("attribute", f"a boolean is 0 or 1, found {value}")
        return bool(value)

    def predicate(self, cursor: Cursor) -> dict[str, Attribute]:
        """Read what `assume` promises, as the attributes of our operation."""
        start = cursor.position
        tag = cursor.number()
        found: dict[str, Attribute] = {}
        if tag == DIV_BY:
            found["div_by"] = cursor.number()
            names = ("every", "along")
        elif tag == SAME_ELEMENTS:
            return {"same_elements": cursor.fixed_list("sizes", 8)}
        elif tag == BOUNDED:
            names = ("at_least", "at_most")
        else:
            raise cursor.error("attribute", f"no promise has the tag {tag}", start)
        flags = cursor.byte()
        if flags > 3:
            raise cursor.error("flags", f"unknown flags {flags} of a promise")
        for bit, name in enumerate(names):
            if flags >> bit & 1:
                found[name] = cursor.signed()
        return found

    def _integer(self, cursor: Cursor) -> int:
        start = cursor.position
        entry = self.types.entry(cursor)
        dtype = entry.element if isinstance(entry, TileType) and not entry.shape else entry
        if not isinstance(dtype, DType) or not dtype.is_int:
            raise cursor.error("attribute", "expected the type of an integer", start)
        value = cursor.number()
        if value >> dtype.bits:
            raise cursor.error("attribute", f"{value} does not fit {dtype.name}", start)
        return (
            value if dtype.bits == 1 or not value >> dtype.bits - 1 else value - (1 << dtype.bits)
        )

    def _float(self, cursor: Cursor) -> float:
        start = cursor.position
        dtype = self.types.dtype(cursor)
        if not dtype.is_float:
            raise cursor.error("attribute", "expected the type of a float", start)
        bits = format_bits(dtype)
        value = cursor.byte() if bits <= 8 else cursor.signed()
        if not 0 <= value < 1 << bits:
            raise cursor.error("attribute", f"{value} is no {dtype.name}", start)
        if dtype.name == "tf32":
            value <<= TF32_UNUSED_BITS
        return float(numbers.decode(np.asarray([value], np.dtype(dtype.storage)), dtype)[0])

    def dense(self, cursor: Cursor, type: TileType) -> Dense:
        """Read an index into the constant table and the constant as `type`."""
        start = cursor.position
        index = cursor.choice(len(self.constants), "constant")
        found = self.known.get((index, type))
        if found is not None:
            return found
        stored = self.constants[index]
        data = stored.data[stored.position : stored.end]
        try:
            found = dense_of_bytes(data, type)
        except ValueError as error:
            raise cursor.error("constant", str(error), start) from None
        self.decoded_bytes += len(found.data)
        if self.decoded_bytes > LARGEST_CONSTANTS_BYTES:
            message = f"the constants take more than {LARGEST_CONSTANTS_BYTES} bytes"
            raise cursor.error("constant", message, start)
        self.known[index, type] = found
        return found


def dense_of_bytes(data: bytes, type: TileType) -> Dense:
    """Return the constant of `type` that `data` holds.

    Raises:
        ValueError: the bytes do not fit the type.
    """
    if not isinstance(type.element, DType):
        raise ValueError(f"there are no constants of {type}")
    dtype, size = type.element, type.size
    width = (format_bits(dtype) + 7) // 8
    # One element is written like a splat by every writer; two i1 would take one byte either way,
    # and are told apart as MLIR does: a splat is 00 or FF.
    if dtype.bits == 1:
        if len(data) == 1 and (size == 1 or data[0] in (0, 0xFF)):
            return Dense(dtype, type.shape, bytes([data[0] & 1]), True)
        if len(data) != (size + 7) // 8:
            raise ValueError(f"{len(data)} bytes are no constant of {type}")
        bits = np.unpackbits(np.frombuffer(data, np.uint8), count=size, bitorder="little")
        return Dense(dtype, type.shape, bits.astype(np.uint8).tobytes(), False)
    if len(data) not in (width, width * size):
        raise ValueError(f"{len(data)} bytes are no constant of {type}")
    raw: NDArray[np.uint8] = np.frombuffer(data, np.uint8).reshape(-1, width)
    padded = np.zeros((len(raw), dtype.storage.itemsize), np.uint8)
    padded[:, :width] = raw
    units = padded.reshape(-1).view(dtype.storage.newbyteorder("<"))
    if np.any(units >> np.array(format_bits(dtype) - 1, units.dtype) > 1):
        raise ValueError(f"an element has more than {format_bits(dtype)} bits")
    if dtype.name == "tf32":
        units = units << np.array(TF32_UNUSED_BITS, units.dtype)
    return Dense(dtype, type.shape, units.astype(dtype.storage).tobytes(), len(data) == width)


def bytes_of_dense(value: Dense) -> bytes:
    """Return the bytes that stand for a constant."""
    dtype = value.dtype
    units = np.frombuffer(value.data, dtype.storage)
    if dtype.bits == 1:
        if value.splat:
            return b"\xff" if units[0] else b"\x00"
        return np.packbits(units.astype(np.uint8), bitorder="little").tobytes()
    if dtype.name == "tf32":
        units = units >> np.array(TF32_UNUSED_BITS, units.dtype)
    width = (format_bits(dtype) + 7) // 8
    little = units.astype(dtype.storage.newbyteorder("<"))
    return little.view(np.uint8).reshape(len(units), -1)[:, :width].tobytes()


@dataclass(slots=True)
class AttributeWriter:
    """Writes attributes and collects the strings and constants that they need."""

    types: TypeWriter
    strings: dict[str, int]
    constants: dict[bytes, int]

    def string(self, out: bytearray, text: str) -> None:
        """Write the index of a string."""
        put_number(out, self.strings.setdefault(text, len(self.strings)))

    def dense(self, out: bytearray, value: Dense) -> None:
        """Write the index of a constant."""
        data = bytes_of_dense(value)
        item = bytearray()
        put_number(item, len(data))
        put_number(out, self.constants.setdefault(bytes(item + data), len(self.constants)))

    def dictionary(self, out: bytearray, values: Mapping[str, Attribute]) -> None:
        """Write names and tagged attributes."""
        put_number(out, len(values))
        for name, value in values.items():
            self.string(out, name)
            self.tagged(out, value)

    def tagged(self, out: bytearray, value: Attribute) -> None:
        """Write a tag and an attribute; integers become i32."""
        match value:
            case bool():
                out += bytes([BOOL, value])
            case int():
                self.number(out, value, DTYPES["i32"])
            case str():
                put_number(out, STRING)
                self.string(out, value)
            case tuple():
                put_number(out, ARRAY)
                put_number(out, len(value))
                for item in value:
                    self.tagged(out, item)
            case dict():
                put_number(out, DICTIONARY)
                self.dictionary(out, value)
            case _:
                raise CannotWrite(f"Tile IR has no attribute {value}")

    def number(self, out: bytearray, value: int | float, dtype: DType) -> None:
        """Write a tag and a number of `dtype`."""
        try:
            bits = element_bits(value, dtype)
        except ValueError as error:
            raise CannotWrite(str(error)) from None
        put_number(out, INTEGER if dtype.is_int else FLOAT)
        put_number(out, self.types.index(dtype))
        if dtype.is_int:
            put_number(out, bits)
            return
        width = format_bits(dtype)
        bits = bits >> TF32_UNUSED_BITS if dtype.name == "tf32" else bits
        if width <= 8:
            out.append(bits)
        else:
            put_signed(out, bits)

    def predicate(self, out: bytearray, promise: Mapping[str, Attribute]) -> None:
        """Write what an `assume` promises."""
        groups = promise.get("same_elements")
        if isinstance(groups, tuple):
            put_number(out, SAME_ELEMENTS)
            put_number(out, len(groups))
            for size in groups:
                out += int(size).to_bytes(8, "little")  # type: ignore[arg-type]
            return
        divisor = promise.get("div_by")
        names = ("at_least", "at_most") if divisor is None else ("every", "along")
        put_number(out, BOUNDED if divisor is None else DIV_BY)
        if isinstance(divisor, int):
            put_number(out, divisor)
        values = [promise.get(name) for name in names]
        out.append(sum((v is not None) << bit for bit, v in enumerate(values)))
        for value in values:
            if isinstance(value, int):
                put_signed(out, value)
