"""The suites under pytest: `pytest --pyargs reftile.conformance --backend interp --suite ops,trap`.

This module is loaded by every pytest run of an environment in which reftile is installed, so it
imports nothing of reftile until a suite is asked for.
"""

from __future__ import annotations

from collections import Counter
from importlib import import_module
from typing import Any

import pytest

COUNTS = pytest.StashKey[Counter[str]]()


def pytest_addoption(parser: pytest.Parser) -> None:
    group = parser.getgroup("reftile conformance")
    group.addoption("--backend", default="interp", help="the backend to test")
    group.addoption("--suite", default="", help="suites, separated by commas (all)")
    group.addoption("--budget", default="wimpy", choices=["wimpy", "default", "exhaustive"])
    group.addoption("--case", default="", help="a regular expression that ids must contain")
    group.addoption("--case-seed", default=0, type=int, help="seed of the inputs")


def pytest_configure(config: pytest.Config) -> None:
    config.stash[COUNTS] = Counter()


def pytest_generate_tests(metafunc: pytest.Metafunc) -> None:
    if "conformance_case" not in metafunc.fixturenames:
        return
    jobs = _jobs(metafunc.config)
    metafunc.parametrize("conformance_case", jobs, ids=[job.id for job in jobs])


def _jobs(config: pytest.Config) -> list[Any]:
    runner = import_module("reftile.conformance.runner")
    backend = import_module("reftile.conformance.backend").find_backend(
        config.getoption("--backend")
    )
    suites = [s for s in str(config.getoption("--suite")).split(",") if s]
    budget, case = config.getoption("--budget"), str(config.getoption("--case"))
    settings = runner.settings_for(backend, budget, config.getoption("--case-seed"))
    jobs = list(runner.select_cases(settings, suites, case))
    if not suites or "litmus" in suites:
        jobs += runner.select_questions(budget, case)
    return jobs


@pytest.fixture
def run_conformance_case(request: pytest.FixtureRequest) -> Any:
    """Run a case on the backend that was asked for, and turn its verdict into pytest's."""
    runner = import_module("reftile.conformance.runner")
    find_backend = import_module("reftile.conformance.backend").find_backend
    backend = find_backend(request.config.getoption("--backend"))

    def run(job: Any) -> None:
        question = job if hasattr(job, "test") else None
        result = (
            runner.run_question(backend, question, 1000)
            if question
            else runner.run_case(backend, job)
        )
        verdict = result.verdict.value
        request.config.stash[COUNTS][verdict] += 1
        if verdict in ("fail", "error", "flaky"):
            pytest.fail(f"{verdict}: {result.message}", pytrace=False)
        if verdict == "xfail":
            pytest.xfail(result.message)
        if verdict != "pass":
            pytest.skip(f"{verdict}: {result.message}")

    return run


def pytest_terminal_summary(terminalreporter: Any, config: pytest.Config) -> None:
    counts = config.stash.get(COUNTS, Counter())
    if counts:
        text = ", ".join(f"{n} {verdict}" for verdict, n in counts.most_common())
        terminalreporter.write_line(f"conformance of {config.getoption('--backend')}: {text}")
