"""The attention report: it passes, finds its planted bug, and names the missing token."""

from __future__ import annotations

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
