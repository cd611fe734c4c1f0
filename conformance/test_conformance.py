"""The suites as tests: one for each case. The options are those of `plugin`."""

from __future__ import annotations

import pytest
from reftile.conformance.backend import Backend, find_backend
from reftile.conformance.cases import Case
from reftile.conformance.plugin import COUNTS
from reftile.conformance.runner import (
    LITMUS_RUNS,
    run_case,
    run_question,
    select_cases,
    select_questions,
    settings_for,
)
from reftile.conformance.suites.litmus import Question
from reftile.conformance.verdicts import BAD, Verdict


def pytest_generate_tests(metafunc: pytest.Metafunc) -> None:
    jobs = _jobs(metafunc.config)
    metafunc.parametrize("job", jobs, ids=[job.id for job in jobs])


def _jobs(config: pytest.Config) -> list[Case | Question]:
    backend = find_backend(config.getoption("--backend"))
    suites = [s for s in str(config.getoption("--suite")).split(",") if s]
    budget, case = config.getoption("--budget"), str(config.getoption("--case"))
    settings = settings_for(backend, budget, config.getoption("--case-seed"))
    jobs: list[Case | Question] = list(select_cases(settings, suites, case))
    if not suites or "litmus" in suites:
        jobs += select_questions(budget, case)
    return jobs


@pytest.fixture(scope="module")
def backend(request: pytest.FixtureRequest) -> Backend:
    return find_backend(request.config.getoption("--backend"))


def test_case(job: Case | Question, backend: Backend, request: pytest.FixtureRequest) -> None:
    config = request.config
    if isinstance(job, Question):
        result = run_question(backend, job, LITMUS_RUNS[config.getoption("--budget")])
    else:
        result = run_case(backend, job)
    config.stash[COUNTS][result.verdict.value] += 1
    if result.verdict in BAD:
        pytest.fail(f"{result.verdict.value}: {result.message}", pytrace=False)
    if result.verdict is not Verdict.PASS:
        pytest.skip(f"{result.verdict.value}: {result.message}")
