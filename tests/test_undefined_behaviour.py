"""The page on undefined behaviour: its outputs are current, and it leaves nothing out."""

from __future__ import annotations

import re
import subprocess
import sys

import pytest

from docs.undefined_behaviour import PAGE, build, read_cases, run
from reftile.ir.ops import OPS

TEXT = PAGE.read_text(encoding="utf-8")
CASES = read_cases(TEXT)


def test_the_page_is_current() -> None:
    assert build(TEXT) == TEXT, "python docs/undefined_behaviour.py rewrites the page"


def test_every_section_is_a_case() -> None:
    assert len(CASES) == TEXT.count("\n### ") == TEXT.count("\n```tile")


def test_every_undefined_case_of_a_record_is_there() -> None:
    kinds = {kind for op in OPS.values() for kind in undefined_of(op)}
    missing = {kind for kind in kinds if f".{kind}`" not in TEXT} - {"places"}
    assert not missing
    assert {"division_by_zero", "overflow", "quotient", "shift_amount"} <= kinds


def undefined_of(op: type) -> list[str]:
    return [case.name for case in op.definition.undefined]  # type: ignore[attr-defined]


def test_a_check_that_finds_something_else_is_refused() -> None:
    wrong = TEXT.replace("- Check: `divi.division_by_zero`", "- Check: `divi.quotient`")
    with pytest.raises(ValueError, match="Division by zero"):
        build(wrong)


def test_an_output_that_is_not_current_is_noticed() -> None:
    changed = re.sub(r"the divisor is zero", "the divisor was zero", TEXT)
    assert build(changed) == TEXT


def test_the_command_shows_one_example() -> None:
    done = subprocess.run(
        [sys.executable, str(PAGE.with_suffix(".py")), "division-by-zero"],
        capture_output=True,
        text=True,
        check=True,
    )
    case = next(c for c in CASES if c.name == "division-by-zero")
    assert done.stdout == f"{case.text}\n{run(case)}"
