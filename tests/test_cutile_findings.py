"""The report on cuTile's tests: the page follows from the data, and the data has its reasons."""

from __future__ import annotations

import importlib.util
import json
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest

ROOT = Path(__file__).resolve().parent.parent
PROGRAMS = ROOT / "tests" / "interop" / "test_cutile_findings.py"


@pytest.fixture(scope="module")
def report() -> ModuleType:
    spec = importlib.util.spec_from_file_location("report", ROOT / "tools" / "cutile_report.py")
    assert spec is not None and spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


@pytest.fixture(scope="module")
def data(report: ModuleType) -> Any:
    return json.loads(report.DATA.read_text(encoding="utf-8"))


def test_the_page_follows_from_the_data(report: ModuleType, data: Any) -> None:
    assert report.render(data) == report.PAGE.read_text(encoding="utf-8")


def test_every_case_that_fails_has_a_reason(report: ModuleType, data: Any) -> None:
    names = {reason["name"] for reason in report.read_reasons()}
    for mode, counts in data["counts"].items():
        listed = [modes[mode] for modes in data["failed"].values() if mode in modes]
        assert len(listed) == counts["failed"], mode
        assert set(listed) <= names


def test_every_fault_of_cutile_has_a_program(report: ModuleType) -> None:
    text = PROGRAMS.read_text(encoding="utf-8")
    for reason in report.read_reasons():
        assert reason["owner"] in report.OWNERS
        if reason["owner"] == "cutile" and reason["name"] != "other_version":
            assert f"def {reason['program']}(" in text


def test_a_case_without_a_reason_is_refused(report: ModuleType) -> None:
    line = {"case": "test_x.py::test_x", "error": "ZeroDivisionError", "message": "what"}
    with pytest.raises(ValueError, match=r"test_x\.py"):
        report.reason_of(line, report.read_reasons())
    raced = line | {"rules": ["race.within_operation"], "error": "ReftileError"}
    assert report.reason_of(raced, report.read_reasons()) == "repeated_index"


def test_the_runs_of_a_folder_become_counts(report: ModuleType, tmp_path: Path) -> None:
    lines = [
        {"case": "a.py::x", "outcome": "passed", "judged": ["1 of 8 units apart (sine)"]},
        {"case": "a.py::y", "outcome": "failed", "rules": ["poison.output"]},
        {"case": "a.py::z", "outcome": "skipped", "message": "Skipped: why"},
    ]
    text = "".join(json.dumps(line) + "\n" for line in lines)
    (tmp_path / "forgiving.jsonl").write_text(text)
    fixed = json.dumps({"case": "a.py::y", "outcome": "passed"}) + "\n"
    (tmp_path / "unspecified.jsonl").write_text(fixed)
    found = report.collect(tmp_path)
    assert found["counts"] == {
        "forgiving": {"passed": 1, "failed": 1, "skipped": 1},
        "unspecified": {"passed": 2, "skipped": 1},
    }
    assert found["failed"] == {"a.py::y": {"forgiving": "undetermined_output"}}
    assert found["judged"] == {"a.py::x": "1 of 8 units apart (sine)"}
    assert found["skipped"] == {"why": 1}
    assert "50.00 %" in report.render(found)
