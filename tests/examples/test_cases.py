"""Every case of every example lies within its bound: checked, reordered, and all blocks at once."""

from __future__ import annotations

from importlib import import_module
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from reftile import ReftileError

EXAMPLES = Path(__file__).parents[2] / "examples"
MODULES: list[str] = import_module("harness").families()


def test_every_other_file_is_known_to_have_no_cases() -> None:
    others = {p.stem for p in EXAMPLES.glob("*.py")} - set(MODULES)
    assert others == {"harness", "bounds", "attention_report", "attention_gpu"}


def _small_cases() -> list[Any]:
    return [
        pytest.param(case, id=case.name)
        for module in MODULES
        for case in import_module(module).cases()
        if not case.large
    ]


CASES = _small_cases()


@pytest.mark.parametrize("case", CASES)
def test_lies_within_its_bound_in_every_order(case):
    harness = import_module("harness")
    outcomes = list(harness.all_schedules(case))
    for outcome in outcomes:
        assert outcome.passed, f"{outcome.report.schedule} {outcome.report.seed}: {outcome.worst}"
    assert outcomes[0].report.operations > 0


@pytest.mark.parametrize("case", CASES)
def test_all_blocks_at_once_give_the_same_or_are_refused(case):
    harness = import_module("harness")
    try:
        batched = harness.run(case, check=False)
    except ReftileError as error:
        assert error.diagnosis.rule.startswith("batched.")
        return
    checked = harness.run(case)
    assert batched.passed, batched.worst
    for name, found in batched.results.items():
        assert found.tobytes() == checked.results[name].tobytes(), name


def test_names_of_cases_are_distinct():
    names = [p.id for p in CASES]
    assert len(names) == len(set(names))


def test_cases_are_the_same_each_time():
    for module in MODULES:
        for first, second in zip(*(import_module(module).cases() for _ in range(2)), strict=True):
            for name, value in first.arguments.items():
                assert np.array_equal(
                    np.asarray(value).view(np.uint8) if isinstance(value, np.ndarray) else value,
                    second.arguments[name].view(np.uint8)
                    if isinstance(value, np.ndarray)
                    else second.arguments[name],
                ), f"{first.name}: {name}"
