"""`reftile import`, `export`, `run` and `check` with bytecode."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from reftile.cli.app import execute
from reftile.interop.read import bytecode_version
from reftile.ir.parse import parse

DATA = Path(__file__).parent / "data"
VADD = str(DATA / "vadd-13.4.tilebc")
ARRAY = ["200", "1"]
ARGUMENTS = ["f32[200]=arange", *ARRAY, "f32[200]=ones", *ARRAY, "f32[200]=zeros", *ARRAY]


def test_import_prints_the_text_form(capsys: pytest.CaptureFixture[str]) -> None:
    assert execute(["import", VADD]) == 0
    assert len(parse(capsys.readouterr().out).kernels) == 1


def test_import_writes_a_file(tmp_path: Path) -> None:
    target = tmp_path / "vadd.tile"
    assert execute(["import", VADD, "--output", str(target)]) == 0
    assert len(parse(target.read_text()).kernels) == 1


def test_import_checks_folders(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert execute(["import", "--check", str(DATA)]) == 0
    assert "6 files, 6 kernels, 0 files with findings" in capsys.readouterr().out
    (tmp_path / "cut.tilebc").write_bytes(Path(VADD).read_bytes()[:100])
    assert execute(["import", "--check", "--json", str(tmp_path), VADD]) == 1
    found = json.loads(capsys.readouterr().out)
    assert (found["files"], found["failed"]) == (2, 1)
    assert found["findings"][0]["rule"] == "bytecode.truncated"
    assert found["findings"][0]["offset"] > 0


def test_run_and_check_take_bytecode(capsys: pytest.CaptureFixture[str]) -> None:
    assert execute(["run", VADD, "--grid", "4", *ARGUMENTS, "--json"]) == 0
    assert json.loads(capsys.readouterr().out)["arrays"]["arg6"]["maximum"] == 200.0
    assert execute(["check", VADD, "--grid", "4", *ARGUMENTS]) == 0


def test_damaged_bytecode_is_a_diagnosis(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path = tmp_path / "bad.tilebc"
    path.write_bytes(b"nothing")
    for command in ("import", "run", "check", "show"):
        assert execute([command, str(path)]) == 2
        assert "error[bytecode.magic]" in capsys.readouterr().err


def test_export_takes_the_oldest_version_that_will_do(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    target = tmp_path / "vadd.tilebc"
    assert execute(["export", VADD, "--output", str(target), "--json"]) == 0
    assert json.loads(capsys.readouterr().out)["version"] == "13.1"
    assert execute(["export", VADD, "-o", str(target), "--tile-ir", "13.5"]) == 0
    assert bytecode_version(target.read_bytes()) == 5


def test_export_refuses_what_the_version_lacks(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path = tmp_path / "k.tile"
    path.write_text(
        "tile kernel @k(%a: tile<f32>) {\n  %b = atan2 %a, %a : tile<f32>\n  return\n}\n"
    )
    target = tmp_path / "k.tilebc"
    assert execute(["export", str(path), "-o", str(target), "--tile-ir", "13.1"]) == 2
    assert "`atan2` needs Tile IR 13.2, and 13.1 is asked for" in capsys.readouterr().err
    assert not target.exists()
