"""Examples as scripts: the table, the exit code, the options."""

from __future__ import annotations

from dataclasses import replace
from importlib import import_module

import pytest

harness = import_module("harness")


def _main(cases, *arguments: str) -> int:
    with pytest.raises(SystemExit) as caught:
        harness.main(cases, list(arguments))
    return int(caught.value.code or 0)


def test_prints_a_line_for_each_case(capsys):
    assert _main(import_module("softmax").cases) == 0
    lines = capsys.readouterr().out.splitlines()
    assert "error/bound" in lines[0]
    assert [line.split()[-1] for line in lines[1:]] == ["pass"] * 4


def test_selects_by_name_and_shows_the_ir(capsys):
    assert _main(import_module("vector_add").cases, "int32", "--show", "--schedule", "topo") == 0
    text = capsys.readouterr().out
    assert "tile kernel @vector_add" in text
    assert text.count("pass") == 1


def test_says_which_kernels_need_checks(capsys):
    assert _main(import_module("scan").cases, "--fast") == 0
    assert "only with checks" in capsys.readouterr().out


def test_fails_with_the_worst_element(capsys):
    case = import_module("vector_add").cases()[3]
    wrong = replace(case, expected={"c": case.expected["c"] + 1})
    assert _main(lambda: [wrong]) == 1
    assert "FAIL: c[" in capsys.readouterr().out


def test_large_cases_pass():
    matmul = import_module("matmul")
    large = [c for c in matmul.cases() if c.large]
    assert {c.name for c in large} == {"matmul-1024", "matmul-1000"}
    for case in large:
        assert harness.run(case).passed
