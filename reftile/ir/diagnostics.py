"""Diagnostics: what is wrong, where, and what to do about it.

A user's mistake becomes a `ReftileError` that carries one `Diagnosis`; a fault of ours becomes a
`Bug`.
Neither is ever shown as a traceback by the command line.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Literal


class Source:
    """A text that spans point into, with line numbers found on demand.

    name: what is printed for it, usually a path.
    first_line: the line number of the text's first line, for a function cut out of a file.
    """

    __slots__ = ("_starts", "first_line", "name", "text")

    def __init__(self, name: str, text: str, first_line: int = 1) -> None:
        self.name = name
        self.text = text
        self.first_line = first_line
        self._starts: list[int] | None = None

    def _line_starts(self) -> list[int]:
        if self._starts is None:
            self._starts = [0]
            self._starts.extend(i + 1 for i, c in enumerate(self.text) if c == "\n")
        return self._starts

    def position(self, offset: int) -> tuple[int, int]:
        """Return (line, column) of `offset`, both counted from 1."""
        starts = self._line_starts()
        row = bisect_right(starts, offset) - 1
        return row + self.first_line, offset - starts[row] + 1

    def line(self, number: int) -> str:
        """Return the text of line `number` without its newline, or "" outside the text."""
        starts = self._line_starts()
        row = number - self.first_line
        if not 0 <= row < len(starts):
            return ""
        end = self.text.find("\n", starts[row])
        return self.text[starts[row] : end if end >= 0 else len(self.text)]

    def offset(self, line: int, column: int) -> int:
        """Return the offset of (line, column), both counted from 1."""
        return self._line_starts()[line - self.first_line] + column - 1


@dataclass(frozen=True, slots=True)
class Span:
    """Characters [start, end) of a source; `called_from` is the call that inlined them, if any."""

    source: Source
    start: int
    end: int
    called_from: Span | None = None

    @property
    def file(self) -> str:
        """The name of the source."""
        return self.source.name

    @property
    def line(self) -> int:
        """The line of the first character, counted from 1."""
        return self.source.position(self.start)[0]

    @property
    def column(self) -> int:
        """The column of the first character, counted from 1."""
        return self.source.position(self.start)[1]

    def __str__(self) -> str:
        line, column = self.source.position(self.start)
        return f"{self.source.name}:{line}:{column}"


NOWHERE = Span(Source("<built>", ""), 0, 0)
"""The span of what no source text stands behind."""

Severity = Literal["error", "warning", "note"]


@dataclass(frozen=True, slots=True)
class Diagnosis:
    """One finding, in the words a user reads.

    rule: a stable name such as `mmaf.wide_accumulator`; never renumbered.
    message: one line that says what was found and what is needed.
    hint: one line on how to mend it.
    notes: further lines, each with a span or None.
    """

    rule: str
    message: str
    span: Span = NOWHERE
    hint: str = ""
    notes: tuple[tuple[str, Span | None], ...] = ()
    severity: Severity = "error"
    data: dict[str, object] = field(default_factory=dict[str, object], compare=False)

    def __str__(self) -> str:
        message = self.message
        if len(message) > LONGEST_MESSAGE:
            half = LONGEST_MESSAGE // 2
            message = f"{message[:half]} ... {message[-half:]}"
        lines = [f"{self.severity}[{self.rule}]: {message}", *_excerpt(self.span)]
        width = _gutter_width(self.span)
        if self.hint:
            lines.append(f"{' ' * width} = hint: {self.hint}")
        for text, span in self.notes:
            lines.append(f"{' ' * width} = note: {text}" + (f" ({span})" if span else ""))
            if span is not None and span.source.text:
                lines.extend(_excerpt(span)[1:])
        calls: list[str] = []
        call = self.span.called_from
        while call is not None:
            calls.append(f"called from {call}")
            call = call.called_from
        if len(calls) > 2 * NAMED_CALLS:
            between = len(calls) - 2 * NAMED_CALLS
            calls[NAMED_CALLS:-NAMED_CALLS] = [f"{between} calls more"]
        lines.extend(f"{' ' * width} = note: {call}" for call in calls)
        return "\n".join(lines)

    def to_json(self) -> dict[str, object]:
        """Return the finding as plain data for `--json`."""
        line, column = self.span.source.position(self.span.start)
        return {
            "severity": self.severity,
            "rule": self.rule,
            "message": self.message,
            "hint": self.hint,
            "file": self.span.file,
            "line": line,
            "column": column,
            "notes": [text for text, _ in self.notes],
            **self.data,
        }


def _gutter_width(span: Span) -> int:
    return len(str(span.line)) if span.source.text else 1


LONGEST_EXCERPT = 200
NAMED_CALLS = 5
"""Calls that are named at each end of a long chain."""
LONGEST_MESSAGE = 1000
"""Characters of a source line, and of a message, that are printed at most."""


def _clipped(text: str, at: int, length: int) -> tuple[str, int, int]:
    """A part of a long line around `length` characters from `at` on, and where they are in it."""
    if len(text) <= LONGEST_EXCERPT:
        return text, at, length
    first = max(0, min(at - LONGEST_EXCERPT // 4, len(text) - LONGEST_EXCERPT))
    part = text[first : first + LONGEST_EXCERPT]
    head = "..." if first else ""
    tail = "..." if first + LONGEST_EXCERPT < len(text) else ""
    at += len(head) - first
    return f"{head}{part}{tail}", at, min(length, len(head) + len(part) - at)


def _excerpt(span: Span) -> list[str]:
    """The arrow line, the source line and the caret line of a span."""
    if not span.source.text:
        return [] if span.source is NOWHERE.source else [f" --> {span.source.name}"]
    line, column = span.source.position(span.start)
    text = span.source.line(line)
    gutter, bar = str(line), " " * len(str(line))
    at = column - 1
    length = max(1, min(span.end - span.start, len(text) - at))
    text, at, length = _clipped(text, at, length)
    # Tabs are kept in the caret line so that it lines up whatever their width.
    indent = "".join("\t" if c == "\t" else " " for c in text[:at])
    return [
        f"{bar}--> {span.source.name}:{line}:{column}",
        f"{gutter} | {text}",
        f"{bar} | {indent}{'^' * length}",
    ]


class ReftileError(Exception):
    """The user's program or input is wrong. `diagnosis` says how; `str()` is what a user reads."""

    def __init__(self, diagnosis: Diagnosis) -> None:
        super().__init__(diagnosis.message)
        self.diagnosis = diagnosis

    def __str__(self) -> str:
        return str(self.diagnosis)


class ReftileErrors(ReftileError):
    """Several findings at once; `diagnoses` holds them all, `diagnosis` the first."""

    def __init__(self, diagnoses: Sequence[Diagnosis]) -> None:
        super().__init__(diagnoses[0])
        self.diagnoses = tuple(diagnoses)

    def __str__(self) -> str:
        return "\n\n".join(map(str, self.diagnoses))


class Bug(Exception):
    """reftile itself is wrong: `what` happened in `where`; `reproduce` is a command or IR text."""

    def __init__(self, what: str, where: str = "", reproduce: str = "") -> None:
        super().__init__(what)
        self.what, self.where, self.reproduce = what, where, reproduce

    def __str__(self) -> str:
        lines = [f"bug in reftile{f' ({self.where})' if self.where else ''}: {self.what}"]
        if self.reproduce:
            lines.append(f"to reproduce:\n{self.reproduce}")
        return "\n".join(lines)


def fail(rule: str, message: str, span: Span = NOWHERE, hint: str = "") -> ReftileError:
    """Return (to be raised) the error for one finding."""
    return ReftileError(Diagnosis(rule, message, span, hint))
