"""Source spans as debug information: the inverse of `debug_read`."""

from __future__ import annotations

from pathlib import PurePath

from reftile.interop.attribute_codec import AttributeWriter
from reftile.interop.debug_read import (
    CALL_SITE,
    COMPILE_UNIT,
    DEEPEST_CALL,
    FILE,
    LOCATION,
    SUBPROGRAM,
    first_column_offset,
)
from reftile.interop.emit import pad, put_number, put_table
from reftile.interop.versions import SUBPROGRAM_FLAGS
from reftile.ir.core import Kernel
from reftile.ir.diagnostics import NOWHERE, Span


class DebugWriter:
    """Collects the debug entries of a module; entry 0 says that nothing is known."""

    def __init__(self, version: int, attributes: AttributeWriter) -> None:
        self.version = version
        self.attributes = attributes
        self.entries: dict[bytes, int] = {}
        self.functions: list[list[int]] = []
        self.scope = 0

    def begin(self, kernel: Kernel) -> int:
        """Begin a function; return its debug index, 0 if nothing is known of any operation."""
        spans = [kernel.span, *(op.span for op in kernel.walk())]
        if all(span.source is NOWHERE.source for span in spans):
            self.functions.append([])
            return 0
        known = next(s for s in spans if s.source is not NOWHERE.source)
        span = kernel.span if kernel.span.source is not NOWHERE.source else known
        path = PurePath(span.source.name)
        file = self._entry(FILE, strings=(path.name, str(path.parent)))
        unit = self._entry(COMPILE_UNIT, file)
        line = span.line
        out = bytearray([SUBPROGRAM])
        put_number(out, file)
        put_number(out, line)
        self.attributes.string(out, kernel.name)
        self.attributes.string(out, kernel.name)
        put_number(out, unit)
        put_number(out, line)
        if self.version >= SUBPROGRAM_FLAGS:
            put_number(out, 0)
        self.scope = self._add(out)
        self.functions.append([self.location(span)])
        return len(self.functions)

    def op(self, span: Span) -> None:
        """Add the next operation of the function."""
        self.functions[-1].append(self.location(span))

    def location(self, span: Span | None, depth: int = 0) -> int:
        """Return the entry of a span and the calls around it."""
        if span is None or span.source is NOWHERE.source or depth > DEEPEST_CALL:
            return 0
        out = bytearray([LOCATION])
        put_number(out, self.scope)
        self.attributes.string(out, span.source.name)
        put_number(out, span.line)
        put_number(out, span.column - first_column_offset(span.source.name))
        place = self._add(out)
        caller = self.location(span.called_from, depth + 1)
        return self._entry(CALL_SITE, place, caller) if caller else place

    def _entry(self, tag: int, *references: int, strings: tuple[str, ...] = ()) -> int:
        out = bytearray([tag])
        for reference in references:
            put_number(out, reference)
        for text in strings:
            self.attributes.string(out, text)
        return self._add(out)

    def _add(self, entry: bytearray) -> int:
        return self.entries.setdefault(bytes(entry), len(self.entries) + 1)

    def section(self) -> bytes:
        """Return the payload of the debug section, empty if there is nothing to say."""
        if not self.entries:
            return b""
        out = bytearray()
        put_number(out, len(self.functions))
        pad(out, 4)
        offset = 0
        for indices in self.functions:
            out += offset.to_bytes(4, "little")
            offset += len(indices)
        put_number(out, offset)
        pad(out, 8)
        for indices in self.functions:
            for index in indices:
                out += index.to_bytes(8, "little")
        put_table(out, self.entries, 4)
        return bytes(out)
