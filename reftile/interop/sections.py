"""The outside of a bytecode file: header, sections, and the tables of strings and constants.

    file     = 7F "TileIR" 00, major u8, minor u8, tag u16, section*, 00
    section  = byte (id, bit 7: an alignment follows), size, [alignment, padding], payload
    table    = count, padding, offset of each item (fixed width), items

Numbers are LEB128 where no width is given. Sections come in any order, each at most once.

Source: the bytecode reader of NVIDIA cuda-tile, and files written by cuda-tile 1.7.
"""

from __future__ import annotations

from dataclasses import dataclass
from itertools import pairwise

from reftile.interop.cursor import Cursor
from reftile.interop.versions import MAJOR, NEWEST, OLDEST, version_text
from reftile.ir.diagnostics import Source

MAGIC = b"\x7fTileIR\x00"
STRINGS, FUNCTIONS, DEBUG, CONSTANTS, TYPES, GLOBALS, PRODUCER = range(1, 8)
SECTION_NAMES = {
    STRINGS: "the string section",
    FUNCTIONS: "the function section",
    DEBUG: "the debug section",
    CONSTANTS: "the constant section",
    TYPES: "the type section",
    GLOBALS: "the global section",
    PRODUCER: "the producer section",
}
LARGEST_ALIGNMENT = 1 << 16
PREVIEW = 1
"""The bit of the header's tag that says the file uses unreleased features."""


@dataclass(slots=True)
class Container:
    """A file taken apart, its tables not yet understood."""

    source: Source
    data: bytes
    version: int
    sections: dict[int, Cursor]

    def section(self, id: int) -> Cursor | None:
        """Return a fresh cursor over a section, or None if there is no such section."""
        found = self.sections.get(id)
        if found is None:
            return None
        return Cursor(self.data, self.source, found.what, found.position, found.end)


def is_bytecode(data: bytes) -> bool:
    """Whether a file begins like bytecode."""
    return data.startswith(MAGIC)


def open_container(data: bytes, name: str) -> Container:
    """Read the header and find the sections.

    Raises:
        ReftileError: rules `bytecode.magic`, `.version`, `.preview`, `.section`, `.truncated`.
    """
    source = Source(name, "")
    cursor = Cursor(data, source, "the header")
    if not is_bytecode(data):
        raise cursor.error("magic", f"not CUDA Tile IR bytecode: begins with {data[:8].hex(' ')}")
    cursor.take(len(MAGIC))
    version = _version(cursor)
    sections: dict[int, Cursor] = {}
    cursor.what = "the list of sections"
    while True:
        start = cursor.position
        head = cursor.byte()
        if head == 0:
            break
        id = head & 0x7F
        if id not in SECTION_NAMES:
            raise cursor.error("section", f"there is no section {id}", start)
        if id in sections:
            raise cursor.error("section", f"{SECTION_NAMES[id]} stands here twice", start)
        size = cursor.number()
        if head & 0x80:
            alignment = cursor.number()
            if alignment & (alignment - 1) or not 1 <= alignment <= LARGEST_ALIGNMENT:
                raise cursor.error("section", f"{alignment} is no alignment", start)
            cursor.align(alignment)
        sections[id] = cursor.part(size, SECTION_NAMES[id])
    cursor.finish()
    return Container(source, data, version, sections)


def _version(cursor: Cursor) -> int:
    start = cursor.position
    major, minor, tag = cursor.byte(), cursor.byte(), cursor.fixed(2)
    known = f"this reader knows {version_text(OLDEST)} to {version_text(NEWEST)}"
    if major != MAJOR or not OLDEST <= minor <= NEWEST:
        raise cursor.error("version", f"found version {major}.{minor}, and {known}", start)
    if tag & PREVIEW:
        hint = "compile it without preview features"
        raise cursor.error("preview", "the file uses preview features", start + 2, hint)
    if tag:
        raise cursor.error("version", f"found version {major}.{minor}.{tag}, and {known}", start)
    return minor


def read_table(cursor: Cursor, items: str, offset_bytes: int) -> list[Cursor]:
    """Read a table: a cursor for each item.

    Raises:
        ReftileError: `bytecode.table`, if the items overlap or lie outside.
    """
    count = cursor.count(items, offset_bytes)
    cursor.align(offset_bytes)
    start = cursor.position
    offsets = [cursor.fixed(offset_bytes) for _ in range(count)]
    base, size = cursor.position, cursor.remaining
    offsets.append(size)
    if any(a > b for a, b in pairwise(offsets)):
        raise cursor.error("table", f"the offsets of the {items} do not ascend in {size}", start)
    cursor.position = cursor.end
    return [
        Cursor(cursor.data, cursor.source, cursor.what, base + a, base + b)
        for a, b in pairwise(offsets)
    ]


def read_strings(container: Container) -> list[str]:
    """Read the string table; there is none in an empty file.

    Raises:
        ReftileError: `bytecode.string`, if a string is not UTF-8.
    """
    cursor = container.section(STRINGS)
    if cursor is None:
        return []
    strings: list[str] = []
    for item in read_table(cursor, "strings", 4):
        start = item.position
        try:
            strings.append(item.take(item.remaining).decode())
        except UnicodeDecodeError as error:
            raise item.error("string", "a string is not UTF-8", start + error.start) from None
    return strings


def read_constants(container: Container) -> list[Cursor]:
    """Read the constant table: a cursor over the bytes of each constant."""
    cursor = container.section(CONSTANTS)
    if cursor is None:
        return []
    constants: list[Cursor] = []
    for item in read_table(cursor, "constants", 8):
        size = item.count("bytes")
        constants.append(item.part(size, "a constant"))
        item.finish()
    return constants


def read_producer(container: Container, strings: list[str]) -> str:
    """The name of the program that wrote the file, or ""."""
    cursor = container.section(PRODUCER)
    return strings[cursor.choice(len(strings), "string")] if cursor is not None else ""
