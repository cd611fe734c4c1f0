"""`reftile explore`: outcomes, races with their lines, JSON, pictures, exit codes."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from reftile.cli.app import execute

KERNEL = """\
tile kernel @pass(%x: tile<ptr<i32>>, %f: tile<ptr<i32>>, %out: tile<ptr<i32>>) {
  %b, %b1, %b2 = get_tile_block_id : tile<i32>, tile<i32>, tile<i32>
  %zero = constant {value = 0} : tile<i32>
  %one = constant {value = 1} : tile<i32>
  %first = cmpi %b, %zero {predicate = equal, signedness = signed} : tile<i1>
  if %first then {
    %s = store_ptr_tko %x, %one {ordering = weak} : token
    %t = store_ptr_tko %f, %one, token=%s {ordering = release, scope = device} : token
    yield
  } otherwise {
    %r, %u = load_ptr_tko %f {ordering = acquire, scope = device} : tile<i32>, token
    %ready = cmpi %r, %one {predicate = equal, signedness = signed} : tile<i1>
    if %ready then {
      %v, %w = load_ptr_tko %x, token=%u {ordering = weak} : tile<i32>, token
      %z = store_ptr_tko %out, %v {ordering = weak} : token
      yield
    }
    yield
  }
  return
}
"""
ARRAY = "i32[1]=zeros"
ARGUMENTS = ["--grid", "2", ARRAY, ARRAY, ARRAY]


@pytest.fixture
def good(tmp_path: Path) -> str:
    path = tmp_path / "pass.tile"
    path.write_text(KERNEL)
    return str(path)


@pytest.fixture
def bad(tmp_path: Path) -> str:
    path = tmp_path / "bad.tile"
    path.write_text(KERNEL.replace(", token=%u", ""))
    return str(path)


def run(capsys: pytest.CaptureFixture[str], *arguments: str) -> tuple[int, str, str]:
    code = execute(["explore", *arguments])
    output = capsys.readouterr()
    return code, output.out, output.err


def test_a_correct_kernel_is_race_free(good: str, capsys: pytest.CaptureFixture[str]) -> None:
    code, out, _ = run(capsys, good, *ARGUMENTS)
    assert code == 0
    assert "f[0] = 1, out[0] = 1, x[0] = 1" in out
    assert "race-free: every execution was looked at" in out


def test_a_race_has_both_lines_and_the_missing_edge(
    bad: str, capsys: pytest.CaptureFixture[str]
) -> None:
    code, out, _ = run(capsys, bad, *ARGUMENTS)
    assert code == 1
    assert "bad.tile:7" in out and "bad.tile:14" in out
    assert "no token leads from `b1.r` to `b1.v`" in out
    assert "race-free" not in out


@pytest.mark.parametrize("engine", [[], ["--smt"]])
def test_json_says_what_was_found(
    engine: list[str], good: str, bad: str, capsys: pytest.CaptureFixture[str]
) -> None:
    if engine:
        pytest.importorskip("z3")
    code, out, _ = run(capsys, good, *ARGUMENTS, "--json", "--exists", "out[0] == 1", *engine)
    found = json.loads(out)
    assert code == 0 and found["race_free"] and found["complete"] and found["exists"]
    assert {o["values"]["out[0]"] for o in found["outcomes"]} == {"0", "1"}
    code, out, _ = run(capsys, bad, *ARGUMENTS, "--json", *engine)
    found = json.loads(out)
    assert code == 1 and not found["race_free"]
    (finding,) = found["findings"]
    assert finding["rule"] == "model.race" and sorted(finding["lines"]) == [7, 14]


def test_samples_never_claim_to_be_all(good: str, capsys: pytest.CaptureFixture[str]) -> None:
    code, out, _ = run(capsys, good, *ARGUMENTS, "--sample", "20", "--json")
    found = json.loads(out)
    assert code == 0 and not found["race_free"] and not found["complete"]
    assert sum(o["seen"] for o in found["outcomes"]) == 20


def test_the_picture_is_written(
    bad: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    page = tmp_path / "race.html"
    run(capsys, bad, *ARGUMENTS, "--html", str(page))
    assert "<svg" in page.read_text() and "Races" in page.read_text()


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["--exists", "out[0] =="], "is not a condition"),
        (["--exists", "nothing == 1"], "nothing is called `nothing`"),
        (["--html", "/no/such/folder/x.html"], "No such file"),
    ],
)
def test_wrong_input_is_named(
    arguments: list[str], message: str, good: str, capsys: pytest.CaptureFixture[str]
) -> None:
    code, _, err = run(capsys, good, *ARGUMENTS, *arguments)
    assert code == 2 and message in err


def test_too_many_events_are_refused_with_sizes(
    good: str, capsys: pytest.CaptureFixture[str]
) -> None:
    code, _, err = run(capsys, good, "--grid", "60", ARRAY, ARRAY, ARRAY)
    assert code == 2
    assert "too large to explore" in err and "events" in err
