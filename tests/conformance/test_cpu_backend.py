"""The CPU backend in the suites: what it stops by itself, and what it must not be asked."""

from __future__ import annotations

from collections import Counter

import pytest
from reftile.conformance.backend import LOOKED_FOR, CpuBackend
from reftile.conformance.runner import run_case, run_suites, select_cases
from reftile.conformance.suites.common import Settings
from reftile.conformance.verdicts import Verdict


@pytest.fixture(autouse=True, scope="module")
def cache(tmp_path_factory: pytest.TempPathFactory):
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("REFTILE_CACHE", str(tmp_path_factory.mktemp("cpu_cache")))
        yield


def test_every_rule_that_it_looks_for_is_found() -> None:
    found: Counter[str] = Counter()
    for case in select_cases(Settings("wimpy"), ("trap",), "/faulty$"):
        rules = case.build().rules
        if LOOKED_FOR & {*rules}:
            result = run_case(CpuBackend(), case)
            assert result.verdict is Verdict.PASS, (case.id, result.message)
            found.update(rules)
    assert set(found) >= LOOKED_FOR


def test_a_program_whose_fault_it_would_not_see_is_not_run(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    def run(*anything: object) -> None:
        raise AssertionError("it was run")

    monkeypatch.setattr(CpuBackend, "launch", run)
    results = run_suites("cpu", ["trap"], "wimpy", "^trap/(race|memory).*/faulty$").results
    assert len(results) > 20
    assert {r.verdict for r in results} == {Verdict.UNSUPPORTED}
    assert all("rule:" in r.message for r in results)


def test_programs_without_a_fault_run() -> None:
    found = run_suites("cpu", ["trap"], "wimpy", "^trap/.*/repaired$").summary()
    assert found["pass"] > 80 and found["unsupported"] == found["fail"] == found["error"] == 0


def test_what_is_printed_is_judged() -> None:
    found = run_suites("cpu", ["ops"], "wimpy", "^ops/print_tko/").summary()
    assert found["pass"] > 10 and found["unsupported"] == found["fail"] == 0
