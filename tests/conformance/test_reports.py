"""What a run leaves behind: reports, comparisons, exported cases, pytest."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from xml.etree import ElementTree

import numpy as np
import pytest
from reftile.conformance import foreign_runner
from reftile.conformance.compare import compare_files
from reftile.conformance.manifest import export_cases
from reftile.conformance.report import read_jsonl, render_html, write_html, write_jsonl, write_junit
from reftile.conformance.runner import Results, run_suites
from reftile.conformance.suites.common import Settings
from reftile.conformance.verdicts import Verdict

from reftile.interp.arguments import Raw
from reftile.interp.launch import interpret
from reftile.ir.diagnostics import ReftileError, ReftileErrors
from reftile.ir.parse import parse
from reftile.ir.types import PointerType, TileType

FILTER = r"^(ops/(addf|negf)/f16/|trap/memory|reject/addf)"


@pytest.fixture(scope="module")
def results() -> Results:
    found = run_suites("interp", ["ops", "trap", "reject"], "wimpy", FILTER)
    found.results[0].verdict = Verdict.FAIL
    found.results[0].message = "2 elements <wrong>\nmore"
    found.results[1].verdict = Verdict.UNSUPPORTED
    return found


def test_json_has_one_summary(results: Results) -> None:
    data = json.loads(json.dumps(results.to_json()))
    assert data["summary"]["fail"] == 1
    assert data["summary"]["unsupported"] == 1
    assert set(data["summary"]) == {v.value for v in Verdict}
    assert data["ok"] is False
    assert [r["verdict"] for r in data["not_passed"]] == ["fail", "unsupported"]


def test_lines_come_back(results: Results, tmp_path: Path) -> None:
    write_jsonl(results, tmp_path / "a.jsonl")
    head, cases = read_jsonl(tmp_path / "a.jsonl")
    assert head["summary"] == results.summary()
    assert [c["id"] for c in cases] == [r.id for r in results.results]
    (tmp_path / "b.jsonl").write_text('{"x": 1}\n')
    with pytest.raises(ValueError, match="is not a file of results"):
        read_jsonl(tmp_path / "b.jsonl")


def test_comparison_names_regressions(results: Results, tmp_path: Path) -> None:
    write_jsonl(results, tmp_path / "after.jsonl")
    kept = results.results[0].verdict
    results.results[0].verdict = Verdict.PASS
    write_jsonl(results, tmp_path / "before.jsonl")
    results.results[0].verdict = kept
    found = compare_files(tmp_path / "before.jsonl", tmp_path / "after.jsonl")
    assert found["regressions"] == 1
    assert found["changed"] == [
        {"id": results.results[0].id, "before": "pass", "after": "fail", "regression": True}
    ]


def test_junit_counts_what_was_not_run_as_skipped(results: Results, tmp_path: Path) -> None:
    write_junit(results, tmp_path / "junit.xml")
    root = ElementTree.parse(tmp_path / "junit.xml").getroot()
    suites = {s.get("name"): s for s in root}
    assert set(suites) == {"ops", "trap", "reject"}
    assert suites["ops"].get("failures") == "1"
    assert suites["ops"].get("skipped") == "1"
    assert "<wrong>" in (root.find(".//failure").text or "")  # type: ignore[union-attr]


def test_page_stands_alone_and_escapes(results: Results, tmp_path: Path) -> None:
    write_html([results], tmp_path / "matrix.html")
    page = (tmp_path / "matrix.html").read_text(encoding="utf-8")
    assert page == render_html([results])
    assert "<script" not in page and "http" not in page
    assert "&lt;wrong&gt;" in page
    assert "<th>addf</th>" in page


def test_the_page_has_a_section_for_each_backend() -> None:
    pattern = r"^ops/addf/f32/shape"
    runs = [run_suites(name, ["ops"], "wimpy", pattern) for name in ("interp", "batched")]
    page = render_html(runs)
    assert [part.split("</h2>")[0] for part in page.split("<h2>")[1:]] == ["interp", "batched"]
    assert page.count("<th>addf</th>") == 2


def run_text(text: str, kernel: str, grid: list[int], values: list[object]) -> str:
    """What a foreign implementation provides: here, the interpreter again."""
    try:
        module = parse(text)
        types = [a.type for a in module.kernel(kernel).arguments]
        arguments = [
            Raw(v, t.element.pointee.name)
            if isinstance(t, TileType) and isinstance(t.element, PointerType)
            else v
            for v, t in zip(values, types, strict=True)
        ]
        return "".join(interpret(module, grid, arguments, name=kernel).printed)
    except ReftileErrors as error:
        raise foreign_runner.Refused(*(d.rule for d in error.diagnoses)) from None
    except ReftileError as error:
        raise foreign_runner.Refused(error.diagnosis.rule) from None


def test_exported_cases_run_without_our_runner(tmp_path: Path) -> None:
    ops = r"ops/(addf|ftof|print_tko|(load|store)_view_tko)/.*(shape|x)"
    pattern = rf"^({ops}|trap/(memory|acc)|reject/addf)"
    manifest = export_cases(tmp_path, filter=pattern, settings=Settings("wimpy"))
    stored = json.loads((tmp_path / "manifest.json").read_text())
    assert len(stored["cases"]) == len(manifest["cases"]) > 100
    verdicts = {
        case["id"]: foreign_runner.run_case(tmp_path, stored, case, run_text)
        for case in stored["cases"]
    }
    assert [id for id, v in verdicts.items() if v != "pass"] == []


def test_foreign_runner_notices_wrong_elements(tmp_path: Path) -> None:
    export_cases(tmp_path, filter=r"^ops/addf/f32/shape", settings=Settings("wimpy"))
    stored = json.loads((tmp_path / "manifest.json").read_text())

    def wrong(text: str, kernel: str, grid: list[int], values: list[object]) -> None:
        _ = run_text(text, kernel, grid, values)
        values[-1][0] ^= 1  # type: ignore[index]

    assert isinstance(stored["cases"], list)
    (case,) = stored["cases"]
    assert foreign_runner.run_case(tmp_path, stored, case, wrong) == "fail"
    assert np.load(tmp_path / case["arrays"])["out0.low"].dtype == np.uint64


def test_foreign_runner_imports_nothing_of_reftile() -> None:
    assert "reftile" not in Path(foreign_runner.__file__).read_text()


def test_pytest_runs_the_suites_by_their_installed_name(tmp_path: Path) -> None:
    command = [sys.executable, "-m", "pytest", "-p", "no:cacheprovider", "-q"]
    command += [
        "-p",
        "reftile.conformance.plugin",
        "--pyargs",
        "reftile.conformance.test_conformance",
    ]
    command += ["--suite", "reject", "--case", "addf", "--rootdir", str(tmp_path)]
    done = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
    assert "conformance of interp: 1 pass" in done.stdout
