"""A part of the conformance suites, spread over all operations; the whole takes 15 minutes."""

from __future__ import annotations

import pytest
from reftile.conformance.backend import find_backend
from reftile.conformance.cases import Case
from reftile.conformance.runner import run_case, settings_for
from reftile.conformance.suites.registry import make_cases

BACKEND = find_backend("cpu")


def sample() -> list[Case]:
    """Of each operation three cases, the same ones each time."""
    by_op: dict[str, list[Case]] = {}
    for case in make_cases("ops", settings_for(BACKEND, "wimpy", 0)):
        by_op.setdefault(case.op, []).append(case)
    return [
        cases[place * len(cases) // 3]
        for cases in by_op.values()
        for place in range(min(3, len(cases)))
    ]


@pytest.mark.parametrize("case", sample(), ids=lambda case: case.id)
def test_cases_pass(case: Case) -> None:
    result = run_case(BACKEND, case)
    assert result.verdict.value == "pass", result.message
