"""Reading numbers out of untrusted bytes: every step is bounded, every failure is a diagnosis.

A count is believed only if the bytes behind it could hold that many items, so that a damaged file
cannot make a reader reserve more memory than the file is large.
"""

from __future__ import annotations

from reftile.interop.emit import PADDING_BYTE
from reftile.ir.diagnostics import Diagnosis, ReftileError, Source, Span

LONGEST_NUMBER = 10
"""Bytes of a 64-bit number in LEB128."""


class Cursor:
    """A position inside `data[position:end]`.

    source: names the file in diagnoses.
    what: the part of the file that is being read, for diagnoses.
    """

    __slots__ = ("data", "end", "position", "source", "what")

    def __init__(
        self, data: bytes, source: Source, what: str, start: int = 0, end: int | None = None
    ) -> None:
        self.data = data
        self.source = source
        self.what = what
        self.position = start
        self.end = len(data) if end is None else end

    def error(
        self, rule: str, message: str, offset: int | None = None, hint: str = ""
    ) -> ReftileError:
        """Return (to be raised) the error `bytecode.<rule>` at a byte of the file."""
        offset = self.position if offset is None else offset
        return ReftileError(
            Diagnosis(
                f"bytecode.{rule}",
                f"{message} (byte {offset}, in {self.what})",
                Span(self.source, 0, 0),
                hint,
                data={"offset": offset},
            )
        )

    @property
    def remaining(self) -> int:
        """Bytes left."""
        return self.end - self.position

    def part(self, size: int, what: str) -> Cursor:
        """Return a cursor over the next `size` bytes and step over them."""
        self.need(size)
        start = self.position
        self.position += size
        return Cursor(self.data, self.source, what, start, self.position)

    def need(self, size: int) -> None:
        """Refuse to go on unless `size` bytes are left."""
        if size > self.remaining:
            raise self.error("truncated", f"needs {size} more bytes, found {self.remaining}")

    def byte(self) -> int:
        """Read one byte."""
        self.need(1)
        value = self.data[self.position]
        self.position += 1
        return value

    def take(self, size: int) -> bytes:
        """Read `size` bytes."""
        self.need(size)
        self.position += size
        return self.data[self.position - size : self.position]

    def number(self) -> int:
        """Read an unsigned LEB128 number of at most 64 bits."""
        data, position = self.data, self.position
        if position < self.end and data[position] < 0x80:
            self.position = position + 1
            return data[position]
        start, value = position, 0
        for shift in range(0, 7 * LONGEST_NUMBER, 7):
            byte = self.byte()
            value |= (byte & 0x7F) << shift
            if byte < 0x80:
                if value >> 64:
                    break
                return value
        raise self.error("number", "a number has more than 64 bits", start)

    def signed(self) -> int:
        """Read a zigzag LEB128 number."""
        value = self.number()
        return value >> 1 if value & 1 == 0 else -(value >> 1) - 1

    def count(self, items: str, size_bytes: int = 1) -> int:
        """Read a number of items, each of which takes at least `size_bytes` of what is left."""
        start = self.position
        value = self.number()
        if value * size_bytes > self.remaining:
            raise self.error(
                "count", f"{value} {items} do not fit the {self.remaining} bytes left", start
            )
        return value

    def fixed(self, size_bytes: int, signed: bool = False) -> int:
        """Read a little-endian number of a fixed width."""
        return int.from_bytes(self.take(size_bytes), "little", signed=signed)

    def fixed_list(self, items: str, size_bytes: int) -> tuple[int, ...]:
        """Read a counted list of signed little-endian numbers."""
        return tuple(
            self.fixed(size_bytes, signed=True) for _ in range(self.count(items, size_bytes))
        )

    def choice(self, limit: int, what: str) -> int:
        """Read a number below `limit`, such as an index into a table."""
        start = self.position
        value = self.number()
        if value >= limit:
            raise self.error("index", f"{what} {value} does not exist: there are {limit}", start)
        return value

    def align(self, alignment: int, origin: int = 0) -> None:
        """Step to the next multiple of `alignment`, counted from `origin`."""
        padding = -(self.position - origin) % alignment
        self.take(padding)

    def finish(self) -> None:
        """Refuse bytes that nothing has read, unless they are padding."""
        if self.data[self.position : self.end].strip(bytes([PADDING_BYTE])):
            raise self.error("trailing", f"{self.remaining} bytes are left over")


__all__ = ["LONGEST_NUMBER", "Cursor"]
