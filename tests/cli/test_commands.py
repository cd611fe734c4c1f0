"""The command line: output, JSON, exit codes, and no traceback whatever it is given."""

from __future__ import annotations

# ruff: noqa: E501
import json
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

from reftile.cli.app import execute
from reftile.interp.launch import Interrupted

ADD = """\
tile kernel @add(%x: tile<ptr<f32>>, %z: tile<ptr<f32>>, %n: tile<i32>) {
  %vx = make_tensor_view %x, [%n], [] : tensor_view<?xf32, strides=[1]>
  %vz = make_tensor_view %z, [%n], [] : tensor_view<?xf32, strides=[1]>
  %px = make_partition_view %vx : partition_view<tile=(16), tensor_view<?xf32, strides=[1]>, padding=zero>
  %pz = make_partition_view %vz : partition_view<tile=(16), tensor_view<?xf32, strides=[1]>>
  %i, %j, %k = get_tile_block_id : tile<i32>, tile<i32>, tile<i32>
  %a, %ta = load_view_tko %px, [%i] {ordering = weak} : tile<16xf32>, token
  %c = addf %a, %a : tile<16xf32>
  %tc = store_view_tko %c, %pz, [%i], token=%ta {ordering = weak} : token
  return
}
"""
IN_PLACE = ADD.replace("make_tensor_view %z", "make_tensor_view %x").replace(", token=%ta", "")
ARGUMENTS = ["--grid", "3", "f32[40]=arange", "f32[40]=zeros", "40"]


@pytest.fixture
def add(tmp_path: Path) -> Path:
    path = tmp_path / "add.tile"
    path.write_text(ADD)
    return path


def test_run_shows_and_saves_the_arrays(
    add: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    saved = tmp_path / "out.npz"
    assert execute(["run", str(add), *ARGUMENTS, "--save", str(saved)]) == 0
    assert "every check on, no finding" in capsys.readouterr().out
    assert np.array_equal(np.load(saved)["z"], 2 * np.arange(40, dtype=np.float32))


SAY = """\
tile kernel @say(%x: tile<ptr<i32>>) {
  %v, %t = load_ptr_tko %x {ordering = weak} : tile<i32>, token
  %u = print_tko [%v] {format = "it is %d\\n"} : token
  return
}
"""


@pytest.mark.parametrize("backend", ["interp", "cpu"])
def test_what_a_kernel_prints_is_shown_once(
    backend: str,
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setenv("REFTILE_CACHE", str(tmp_path))
    path = tmp_path / "say.tile"
    path.write_text(SAY)
    command = ["run", str(path), "--backend", backend, "i32[1]=ones"]
    assert execute(command) == 0
    assert capsys.readouterr().out.count("it is 1") == 1
    assert execute([*command, "--json"]) == 0
    assert json.loads(capsys.readouterr().out)["printed"] == ["it is 1\n"]


def test_run_prints_one_json_object(add: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert execute(["run", str(add), *ARGUMENTS, "--json"]) == 0
    found = json.loads(capsys.readouterr().out)
    assert found["arrays"]["z"]["maximum"] == 78.0
    assert found["blocks"] == 3


def test_arguments_can_be_given_by_name(add: Path) -> None:
    assert execute(["run", str(add), "--grid", "3", "n=40", "z=f32[40]=zeros", "f32[40]"]) == 0


def test_check_finds_the_missing_token(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = tmp_path / "inplace.tile"
    path.write_text(IN_PLACE)
    assert execute(["check", str(path), *ARGUMENTS, "--json"]) == 1
    (finding,) = json.loads(capsys.readouterr().out)["findings"]
    assert finding["rule"].startswith("race.")
    assert finding["line"] == 9


TICKETS = """\
import reftile
import reftile.lang as ct

@reftile.kernel
def tickets(count, out):
    place = ct.atomic_add(count, (0,), 1)
    ct.store(out, (place,), ct.full((1,), ct.bid(0), ct.int32))
"""


def test_check_does_not_blame_itself_for_the_order_of_atomics(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path = tmp_path / "tickets.py"
    path.write_text(TICKETS)
    where = [f"{path}:tickets", "i32[1]=zeros", "i32[4]=zeros"]
    assert execute(["check", *where, "--grid", "4"]) == 0
    out = capsys.readouterr().out
    assert "warning[check.order]" in out
    assert "atomics depend on order where their results are used" in out


def test_check_verifies_a_python_kernel_without_running_it(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path = tmp_path / "tickets.py"
    path.write_text(TICKETS)
    where = [f"{path}:tickets", "i32[1]=zeros", "i32[4]=zeros"]
    assert execute(["check", *where, "--verify-only"]) == 0
    assert "tickets verified" in capsys.readouterr().out


@pytest.mark.parametrize("command", ["run", "check"])
def test_ctrl_c_says_where_it_stopped(
    command: str, add: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    def stop(*_: object, **__: object) -> None:
        raise Interrupted("stopped in block (1, 0, 0)")

    monkeypatch.setattr("reftile.cli.run.interpret", stop)
    assert execute([command, str(add), *ARGUMENTS]) == 130
    assert "stopped in block (1, 0, 0)" in capsys.readouterr().err


def test_run_tells_a_finding_from_wrong_input(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path = tmp_path / "inplace.tile"
    path.write_text(IN_PLACE)
    assert execute(["run", str(path), *ARGUMENTS]) == 1
    assert "race.within_block" in capsys.readouterr().err
    path.write_text(IN_PLACE.replace("addf %a, %a", "addf %a, %i"))
    assert execute(["run", str(path), *ARGUMENTS]) == 2


def test_check_is_silent_on_a_right_kernel(add: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert execute(["check", str(add), *ARGUMENTS]) == 0
    assert "no finding under 6 schedules" in capsys.readouterr().out


def test_show_prints_canonical_text(add: Path, capsys: pytest.CaptureFixture[str]) -> None:
    add.write_text(ADD.replace("  %c", "     %c"))
    assert execute(["show", str(add)]) == 0
    assert capsys.readouterr().out == ADD


def test_doctor_names_what_is_missing(capsys: pytest.CaptureFixture[str]) -> None:
    assert execute(["doctor", "--json"]) == 0
    abilities = json.loads(capsys.readouterr().out)["abilities"]
    assert {"interpreter", "NVIDIA GPU", "AMD GPU"} <= {a["name"] for a in abilities}
    assert all(a["detail"] for a in abilities)


BAD = [
    ["frobnicate"],
    ["run"],
    ["run", "missing.tile"],
    ["run", "ADD", "--grid", "0"],
    ["run", "ADD", "--grid", "1,1,1,1"],
    ["run", "ADD", "--grid", "x"],
    ["run", "ADD", "f32[40]"],
    ["run", "ADD", "f32[40]", "f32[40]", "40", "41"],
    ["run", "ADD", "f99[40]", "f32[40]", "40"],
    ["run", "ADD", "f32[99999999999999]", "f32[40]", "40"],
    ["run", "ADD", "f32[40]=lots", "f32[40]", "40"],
    ["run", "ADD", "f32[40]", "f32[40]", "q=40"],
    ["run", "ADD", "@missing.npy", "f32[40]", "40"],
    ["run", "ADD", "what", "f32[40]", "40"],
    ["run", "ADD", "i8[40]", "f32[40]", "40"],
    ["run", "ADD:other", "f32[40]", "f32[40]", "40"],
    ["run", "ADD", "f32[40]", "f32[40]", "40", "--backend", "abacus"],
    ["run", "ADD", "f32[40]", "f32[40]", "40", "--const", "x"],
    ["show", "BINARY"],
    ["show", "PYTHON"],
    ["show", "PYTHON:missing"],
    ["show", "PYTHON:number"],
    ["show", "BROKEN:kernel"],
    ["check", "ADD", "f32[40]"],
    ["check", "ADD", "f32[40]", "f32[40]", "40", "--schedules", "-1"],
]


@pytest.mark.parametrize("command", BAD, ids=" ".join)
@pytest.mark.parametrize("as_json", [False, True])
def test_bad_input_is_diagnosed(
    command: list[str], as_json: bool, add: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "binary.tile").write_bytes(b"\xff\xfe\x00")
    (tmp_path / "kernels.py").write_text("number = 1\n")
    (tmp_path / "broken.py").write_text("1/0\n")
    names = {
        "ADD": str(add),
        "BINARY": str(tmp_path / "binary.tile"),
        "PYTHON": str(tmp_path / "kernels.py"),
        "BROKEN": str(tmp_path / "broken.py"),
    }
    words: list[str] = []
    for word in command:
        head, colon, tail = word.partition(":")
        words.append(names.get(head, head) + colon + tail)
    assert execute([*words, *(["--json"] if as_json else [])]) == 2
    captured = capsys.readouterr()
    assert "Traceback" not in captured.out + captured.err
    assert captured.out + captured.err


def test_the_command_starts_as_a_process(add: Path) -> None:
    command = [sys.executable, "-m", "reftile.cli", "check", str(add), *ARGUMENTS]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert (done.returncode, done.stderr) == (0, "")


def test_conformance_runs_reports_and_compares(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    lines, junit, html = (tmp_path / n for n in ("r.jsonl", "r.xml", "r.html"))
    command = ["conformance", "run", "--suite", "trap", "--filter", "alias|bounds", "--json"]
    outputs = ["--jsonl", str(lines), "--junit", str(junit), "--html", str(html)]
    assert execute([*command, *outputs]) == 0
    summary = json.loads(capsys.readouterr().out)["summary"]
    assert summary["pass"] > 0
    assert summary["fail"] == summary["error"] == 0
    assert "<testsuite" in junit.read_text()
    assert "<html" in html.read_text()
    assert execute(["conformance", "report", str(lines), "--json"]) == 0
    assert json.loads(capsys.readouterr().out)["runs"][0]["summary"] == summary
    assert execute(["conformance", "compare", str(lines), str(lines)]) == 0
    worse = tmp_path / "worse.jsonl"
    worse.write_text(lines.read_text().replace('"verdict": "pass"', '"verdict": "fail"', 1))
    assert execute(["conformance", "compare", str(lines), str(worse)]) == 1


def test_conformance_lists_and_exports_cases(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert execute(["conformance", "list", "--suite", "trap", "--json"]) == 0
    assert json.loads(capsys.readouterr().out)["count"] > 10
    folder = tmp_path / "cases"
    assert (
        execute(
            ["conformance", "export", str(folder), "--suite", "kernels", "--filter", "top_k|top-k"]
        )
        == 0
    )
    assert (folder / "manifest.json").exists()


def test_fuzz_reports_what_it_made(capsys: pytest.CaptureFixture[str]) -> None:
    assert execute(["fuzz", "--programs", "3", "--seed", "1", "--json"]) == 0
    assert json.loads(capsys.readouterr().out)["programs"] == 3


@pytest.mark.parametrize(
    "command",
    [
        ["conformance", "run", "--suite", "opps"],
        ["conformance", "run", "--budget", "huge"],
        ["conformance", "run", "--suite", "trap", "--backend", "abacus"],
        ["conformance", "report", "missing.jsonl"],
        ["conformance", "compare", "missing.jsonl", "missing.jsonl"],
        ["fuzz", "--programs", "0"],
    ],
    ids=" ".join,
)
def test_wrong_conformance_commands_are_diagnosed(
    command: list[str], capsys: pytest.CaptureFixture[str]
) -> None:
    assert execute(command) == 2
    assert "Traceback" not in capsys.readouterr().err


@pytest.mark.parametrize("command", [["fuzz", "--programs", "1"], ["conformance", "list"]])
def test_a_missing_package_is_named(
    command: list[str], monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def missing(name: str) -> None:
        raise ModuleNotFoundError("no module", name="hypothesis")

    monkeypatch.setattr("reftile.cli.conformance.import_module", missing)
    assert execute(command) == 3
    assert "the package hypothesis is not installed" in capsys.readouterr().err


def test_a_pipe_kernel_of_python_runs_over_its_own_grid(
    capsys: pytest.CaptureFixture[str],
) -> None:
    """Parameters with a default may be left out, and `Kernel(...)` says how many blocks there are."""
    path = Path(__file__).resolve().parents[2] / "examples" / "pipe" / "matmul.py"
    where = f"{path}:matmul"
    arguments = ["f16[200,64]", "f16[64,136]", "f16[200,136]=zeros"]
    assert execute(["run", where, *arguments]) == 0
    assert "4 blocks" in capsys.readouterr().out
    assert execute(["check", where, *arguments, "64", "64", "32", "3"]) == 0
    assert "no finding" in capsys.readouterr().out
