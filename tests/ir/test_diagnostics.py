"""What a diagnosis prints: also of lines and messages that nobody could read."""

from __future__ import annotations

from reftile.ir.diagnostics import Diagnosis, Source, Span


def printed(text: str, start: int, end: int, message: str = "wrong") -> list[str]:
    return str(Diagnosis("a.rule", message, Span(Source("f", text), start, end))).splitlines()


def under_the_carets(lines: list[str]) -> str:
    line, carets = lines[-2], lines[-1]
    return line[carets.index("^") : carets.index("^") + carets.count("^")]


def test_a_short_line_is_printed_whole() -> None:
    lines = printed("one two three", 4, 7)
    assert lines[-2] == "1 | one two three"
    assert under_the_carets(lines) == "two"


def test_a_long_line_is_clipped_around_its_carets() -> None:
    for before, after in ((0, 5000), (5000, 0), (5000, 5000), (100, 90)):
        text = "a" * before + "WRONG" + "b" * after
        lines = printed(text, before, before + 5)
        assert under_the_carets(lines) == "WRONG"
        assert len(lines[-2]) < 220
        assert lines[-2].startswith("1 | ...") == (before > 1000)
        assert lines[-2].endswith("...") == (after > 1000)


def test_carets_end_where_the_line_is_clipped() -> None:
    lines = printed("x" * 5000, 2000, 4000)
    assert len(lines[-1]) < 220
    assert set(under_the_carets(lines)) == {"x"}


def test_a_long_message_is_clipped() -> None:
    assert len(printed("text", 0, 1, "m" * 100_000)[0]) < 1100
