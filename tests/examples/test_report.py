"""The attention report: it passes, finds its planted bug, and names the missing token."""

from __future__ import annotations

import sys
from importlib import import_module


def test_report_passes_and_explains_the_planted_bug(capsys):
    report = import_module("attention_report")
    assert report.report_planted_bug()
    report.report_backends()
    text = capsys.readouterr().out
    assert "error[race.within_block]" in text
    assert "token=start)" in text
    assert "^^^" in text
    assert "%v_stored" in text
    assert "interp" in text


def test_report_needs_no_rich(monkeypatch):
    report = import_module("attention_report")
    monkeypatch.setitem(sys.modules, "rich.console", None)
    monkeypatch.setattr("sys.stdout.isatty", lambda: True, raising=False)
    with report.progress_bar("title") as progress:
        assert progress is None
