"""The attention report: it passes, finds its planted bug, and names the missing token."""

from __future__ import annotations

import sys
from dataclasses import replace
from importlib import import_module

import pytest

from reftile.interp.launch import interpret
from reftile.ir.diagnostics import fail


def test_report_passes_and_explains_the_planted_bug(capsys):
    report = import_module("attention_report")
    assert report.report_planted_bug()
    text = capsys.readouterr().out
    assert "error[race.within_block]" in text
    assert "token=start)" in text
    assert "^^^" in text
    assert "%v_stored" in text


@pytest.mark.parametrize(("name", "causal"), [("HOPPER", True), ("AMPERE", False)])
def test_attention_for_gpus_is_right(name, causal):
    gpu = import_module("attention_gpu")
    version = getattr(gpu, name)

    def run(launch):
        interpret(launch.kernel, launch.grid, launch.args)

    assert 0 < gpu.compare_with_reference(version, 1, 150, causal, run) <= 1
    # A wrong mask is no matter of rounding.
    wrong = replace(version, launch=lambda arrays, c, blocks: version.launch(arrays, not c, blocks))
    assert gpu.compare_with_reference(wrong, 1, 150, causal, run) > 1


def test_a_missing_gpu_is_said_in_a_line(capsys, monkeypatch):
    gpu = import_module("attention_gpu")

    def refuse(device):
        raise fail("cuda.no_device", "there is no such device")

    monkeypatch.setattr(gpu.devices, "target", refuse)
    assert gpu.report_gpu()
    assert capsys.readouterr().out == "Not run here: there is no such device.\n"


def test_kernels_compiled_for_the_cpu_are_right():
    report, harness = import_module("attention_report"), import_module("harness")
    case = report.attention_cases()[1]
    ratio, _, seconds = harness.run_compiled(case)
    assert 0 < ratio <= 1
    assert seconds > 0


def test_report_needs_no_rich(monkeypatch):
    report = import_module("attention_report")
    monkeypatch.setitem(sys.modules, "rich.console", None)
    monkeypatch.setattr("sys.stdout.isatty", lambda: True, raising=False)
    with report.progress_bar("title") as progress:
        assert progress is None
