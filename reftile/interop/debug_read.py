"""Where operations come from: debug information as source spans.

Each function has a list of indices, one for itself and one for each of its operations in textual
order; an index names an entry of a table, or nothing if it is 0. An entry is a place in a file, or
a call site: a place in an inlined function with the place that called it.

Columns count from 1, but cuda-tile writes those of Python's syntax trees, from 0: they are read so
for files that end in `.py`.

Source: NVIDIA cuda-tile, the comments of the bytecode reader on the debug section; cuda-tile 1.7.
"""

from __future__ import annotations

import stat
from collections.abc import Iterator
from pathlib import Path

from reftile.interop.cursor import Cursor
from reftile.interop.sections import DEBUG, Container, read_table
from reftile.ir.diagnostics import NOWHERE, ReftileError, Source, Span

COMPILE_UNIT, FILE, LEXICAL_BLOCK, LOCATION, SUBPROGRAM, CALL_SITE = range(1, 7)
DEEPEST_CALL = 1024
"""cuTile inlines at most 1,000 calls into one another."""
LARGEST_SOURCE_BYTES = 4 << 20
LARGEST_COLUMN = 1 << 16
READ_SUFFIXES = frozenset({".py", ".tile"})
"""Files that a diagnosis may quote. A name in a file from elsewhere is not read otherwise."""
NOT_HERE = "(this file is not here)"


class DebugInfo:
    """The debug section of a file; entries are read when they are first asked for."""

    def __init__(self, container: Container, strings: list[str]) -> None:
        self.strings = strings
        self.version = container.version
        self.items: list[Cursor] = []
        self.starts: list[int] = []
        self.indices: Cursor | None = None
        self.sources: dict[str, Source | None] = {}
        self.missing: dict[tuple[str, int], Source] = {}
        self.spans: dict[int, Span] = {}
        cursor = container.section(DEBUG)
        if cursor is None:
            return
        count = cursor.count("functions", 4)
        cursor.align(4)
        self.starts = [cursor.fixed(4) for _ in range(count)]
        count = cursor.count("indices", 8)
        cursor.align(8)
        self.indices = cursor.part(8 * count, "the debug indices")
        self.items = read_table(cursor, "debug entries", 4)

    def function(self, cursor: Cursor) -> Iterator[Span]:
        """Read the debug index of a function; the spans are its own and those of its operations."""
        start = cursor.position
        index = cursor.number()
        if index > len(self.starts):
            raise cursor.error("debug", f"debug index {index} of {len(self.starts)}", start)
        if not index or self.indices is None:
            return _nowhere()
        inside = self.indices
        position = inside.position + 8 * self.starts[index - 1]
        if position > inside.end:
            raise cursor.error("debug", "the debug indices of a function lie outside", start)
        return self._spans(Cursor(inside.data, inside.source, inside.what, position, inside.end))

    def _spans(self, cursor: Cursor) -> Iterator[Span]:
        while True:
            start = cursor.position
            index = cursor.fixed(8)
            if index > len(self.items):
                raise cursor.error("debug", f"debug entry {index} does not exist", start)
            yield self.span(index)

    def span(self, index: int) -> Span:
        """Return the span of a debug entry; NOWHERE for 0 and what is no place."""
        waiting, inside = [index], set[int]()
        while waiting:
            last = waiting[-1]
            missing = [i for i in self._call(last) if i not in self.spans]
            if last in self.spans or not missing:
                inside.discard(waiting.pop())
                if last not in self.spans:
                    self.spans[last] = self._read(last) if last else NOWHERE
            else:
                inside.add(last)
                if len(inside) > DEEPEST_CALL or not inside.isdisjoint(missing):
                    raise self._too_deep(last)
                waiting.extend(missing)
        return self.spans[index]

    def _call(self, index: int) -> tuple[int, ...]:
        """The entries that a call site stands for: what is called, and from where."""
        if not index or index in self.spans:
            return ()
        cursor = self._entry(index)
        if cursor.number() != CALL_SITE:
            return ()
        return self._reference(cursor), self._reference(cursor)

    def _too_deep(self, index: int) -> ReftileError:
        message = f"calls are nested deeper than {DEEPEST_CALL}, or in a circle"
        return self._entry(index).error("debug", message)

    def _entry(self, index: int) -> Cursor:
        item = self.items[index - 1]
        return Cursor(item.data, item.source, f"debug entry {index}", item.position, item.end)

    def _reference(self, cursor: Cursor) -> int:
        return cursor.choice(len(self.items) + 1, "debug entry")

    def _string(self, cursor: Cursor) -> str:
        return self.strings[cursor.choice(len(self.strings), "string")]

    def _read(self, index: int) -> Span:
        cursor = self._entry(index)
        start = cursor.position
        tag = cursor.number()
        match tag:
            case 4:
                self._reference(cursor)
                name, line, column = self._string(cursor), cursor.number(), cursor.number()
                return self._place(name, line, column)
            case 5:
                name = self._file(self._reference(cursor))
                return self._place(name, cursor.number(), 0) if name else NOWHERE
            case 6:
                callee = self.spans[self._reference(cursor)]
                caller = self.spans[self._reference(cursor)]
                if _calls(caller) + _calls(callee) > DEEPEST_CALL:
                    raise self._too_deep(index)
                return _called(callee, caller) if caller is not NOWHERE else callee
            case 0 | 1 | 2 | 3:
                return NOWHERE
            case _:
                raise cursor.error("debug", f"no debug entry has the tag {tag}", start)

    def _file(self, index: int) -> str:
        if not index:
            return ""
        cursor = self._entry(index)
        if cursor.number() != FILE:
            raise cursor.error("debug", "expected a file")
        name, folder = self._string(cursor), self._string(cursor)
        return str(Path(folder) / name) if folder else name

    def _place(self, name: str, line: int, column: int) -> Span:
        source = self.sources[name] if name in self.sources else _read_source(name)
        self.sources[name] = source
        column = min(column + first_column_offset(name), LARGEST_COLUMN)
        if source is not None and source.line(line):
            text = source.line(line)
            start = source.offset(line, min(max(column, 1), len(text)))
            return Span(source, start, start + _length(text, column))
        lost = self.missing.setdefault((name, line), Source(name, NOT_HERE, line))
        return Span(lost, max(column - 1, 0), max(column, 1))


def first_column_offset(name: str) -> int:
    """What is added to a column of this file to count from 1."""
    return 1 if name.endswith(".py") else 0


def _nowhere() -> Iterator[Span]:
    while True:
        yield NOWHERE


def _calls(span: Span) -> int:
    """How many calls a span stands inside."""
    count = 0
    while span.called_from is not None:
        span, count = span.called_from, count + 1
    return count


def _called(callee: Span, caller: Span) -> Span:
    """The span of `callee`, whose outermost call is `caller`."""
    chain = [callee]
    while chain[-1].called_from is not None:
        chain.append(chain[-1].called_from)
    for span in reversed(chain):
        caller = Span(span.source, span.start, span.end, caller)
    return caller


def _length(text: str, column: int) -> int:
    """Characters of the word at `column`; entries have no end."""
    end = max(column - 1, 0)
    while end < len(text) and (text[end].isalnum() or text[end] in "_."):
        end += 1
    return max(end - column + 1, 1)


def _read_source(name: str) -> Source | None:
    path = Path(name)
    try:
        found = path.stat()
        if (
            path.suffix not in READ_SUFFIXES
            or not stat.S_ISREG(found.st_mode)
            or found.st_size > LARGEST_SOURCE_BYTES
        ):
            return None
        return Source(name, path.read_text(encoding="utf-8"))
    except (OSError, ValueError):
        return None
