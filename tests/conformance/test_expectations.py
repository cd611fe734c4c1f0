"""Waivers, what must pass, printed texts, and runs that Ctrl-C ends."""

from __future__ import annotations

import json
import re
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from reftile.conformance.backend import PRINTED, InterpBackend
from reftile.conformance.cases import Argument, Bytes
from reftile.conformance.expectations import (
    Waiver,
    not_passed,
    read_must_pass,
    read_waivers,
    spec_version,
)
from reftile.conformance.runner import run_suites

from reftile.cli.app import execute
from tests.interrupts import hear_interrupts

WAIVERS = f"""
spec = "{spec_version()}"
[[waiver]]
id = "issue-1"
reason = "adds one"
cases = "^ops/addf/"
"""
MUST_PASS = f"""
spec = "{spec_version()}"
must_pass = ["^ops/addf/f32/shape", "^ops/mulf/f32/shape"]
"""


class Printing(InterpBackend):
    """Prints a text of its own."""

    def __init__(self, text: str | None) -> None:
        self.text = text

    def run(
        self, executable: Any, grid: tuple[int, int, int], arguments: Sequence[Argument]
    ) -> dict[str, Bytes]:
        found = super().run(executable, grid, arguments)
        found.pop(PRINTED, None)
        if self.text is not None:
            found[PRINTED] = np.frombuffer(self.text.encode(), np.uint8)
        return found


def test_printed_texts_are_compared() -> None:
    case = r"^ops/print_tko/i32/text-two$"
    assert run_suites("interp", ["ops"], "wimpy", case).summary()["pass"] == 1
    wrong = run_suites(Printing("10 and 3"), ["ops"], "wimpy", case)
    assert wrong.summary()["fail"] == 1
    assert "printed '10 and 3', expected '3 and 10'" in wrong.results[0].message
    silent = run_suites(Printing(None), ["ops"], "wimpy", case)
    assert silent.summary()["unsupported"] == 1


def test_files_are_read(tmp_path: Path) -> None:
    (tmp_path / "known.toml").write_text(WAIVERS)
    (tmp_path / "required.toml").write_text(MUST_PASS)
    assert read_waivers(tmp_path / "known.toml") == [Waiver("^ops/addf/", "adds one", "issue-1")]
    assert len(read_must_pass(tmp_path / "required.toml")) == 2


@pytest.mark.parametrize(
    ("content", "said"),
    [
        ("", "expected `spec` and a list `waiver`"),
        ("waiver = [", "is not TOML"),
        ('spec = "9.9"\nwaiver = []', "for version '9.9'"),
        (WAIVERS + 'extra = "x"', "a waiver has id, reason and cases"),
        (WAIVERS.replace('"adds one"', '" "'), "`reason` of a waiver is a text"),
        (WAIVERS.replace("^ops/addf/", "("), "is no regular expression"),
        (WAIVERS.replace('"^ops/addf/"', "3"), "`cases` of a waiver is a text"),
        ("\xff\x00", "is not TOML"),
    ],
)
def test_other_files_are_refused_with_a_reason(tmp_path: Path, content: str, said: str) -> None:
    path = tmp_path / "known.toml"
    path.write_bytes(content.encode("latin-1"))
    with pytest.raises(ValueError, match=re.escape(said)):
        read_waivers(path)


def test_what_must_pass_may_not_be_left_out() -> None:
    verdicts = [("ops/a/1", "pass"), ("ops/a/2", "unsupported"), ("ops/b/1", "xfail")]
    assert not_passed(["^ops/a/1$"], verdicts) == []
    assert not_passed(["^ops/a/", "^ops/c/"], verdicts) == [
        "ops/a/2: unsupported",
        "^ops/c/: no case has such an id",
    ]
    assert not_passed(["b/1"], verdicts) == ["ops/b/1: xfail"]


def test_the_command_reads_both_files(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    known, required = tmp_path / "known.toml", tmp_path / "required.toml"
    known.write_text(WAIVERS)
    required.write_text(MUST_PASS)
    run = ["conformance", "run", "--suite", "ops", "--budget", "wimpy", "--json"]
    files = ["--waivers", str(known), "--must-pass", str(required)]
    assert execute([*run, *files, "--filter", "^ops/(addf|mulf)/f32/shape"]) == 0
    assert json.loads(capsys.readouterr().out)["unused_waivers"] == ["issue-1"]
    assert execute([*run, *files, "--filter", "^ops/addf/f32/shape"]) == 1
    found = json.loads(capsys.readouterr().out)
    assert found["must_pass_broken"] == ["^ops/mulf/f32/shape: no case has such an id"]
    assert not found["ok"]


@pytest.mark.parametrize(
    "options",
    [
        ["--waivers", "/nowhere/known.toml"],
        ["--waivers", "/"],
        ["--must-pass", __file__],
        ["--filter", "["],
        ["--html", "/nowhere/page.html"],
        ["--junit", "/"],
    ],
)
def test_bad_options_are_diagnosed_before_anything_runs(
    options: list[str], capsys: pytest.CaptureFixture[str]
) -> None:
    assert execute(["conformance", "run", "--suite", "reject", *options]) == 2
    out, error = capsys.readouterr()
    assert out == ""
    assert error.startswith("error[cli.")
    assert "Traceback" not in error


ENDLESS = """
tile kernel @k(%x: tile<ptr<i32>>) {
  %zero = constant {value = 0} : tile<i32>
  %one = constant {value = 1} : tile<i32>
  %end = loop %zero : tile<i32> body(%i: tile<i32>) {
    %next = addi %i, %one : tile<i32>
    continue %next
  }
  return
}
"""


@pytest.mark.parametrize("command", ["run", "batched", "conformance", "fuzz"])
def test_ctrl_c_reports_what_was_finished(tmp_path: Path, command: str) -> None:
    path = tmp_path / "endless.tile"
    path.write_text(ENDLESS)
    arguments = {
        "run": ["run", str(path), "--grid", "2", "i32[1]=zeros"],
        "batched": ["run", str(path), "--grid", "2", "--backend", "batched", "i32[1]=zeros"],
        "conformance": ["conformance", "run", "--suite", "ops", "--json"],
        "fuzz": ["fuzz", "--programs", "1000000", "--json"],
    }[command]
    place, calls = {
        "run": ("reftile.interp.machine:run_region", 1000),
        "batched": ("reftile.interp.batched:_run_region", 1000),
        "conformance": ("reftile.conformance.runner:run_case", 3),
        "fuzz": ("reftile.conformance.fuzz.run:check_program", 3),
    }[command]
    program = (
        f"from tests.interrupts import interrupt_at; interrupt_at({place!r}, {calls}); "
        "from reftile.cli import main; main()"
    )
    done = subprocess.run(
        [sys.executable, "-c", program, *arguments],
        cwd=Path(__file__).resolve().parents[2],
        capture_output=True,
        text=True,
        check=False,
        preexec_fn=hear_interrupts,
    )
    out, error = done.stdout, done.stderr
    assert done.returncode == 130
    assert "Traceback" not in error
    assert error.startswith("reftile: stopped in ")
    assert error.count("\n") == 1
    if command in ("run", "batched"):
        assert "endless.tile:" in error
        assert "0 of 2 blocks were done" in error
    else:
        found = json.loads(out)
        assert found["stopped"] in error
        count = found["programs"] if command == "fuzz" else sum(found["summary"].values())
        assert count > 0
