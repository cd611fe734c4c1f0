"""Litmus tests on a machine that shows outcomes by chance."""

from __future__ import annotations

from dataclasses import replace

import pytest
from reftile.conformance.runner import run_suites
from reftile.conformance.stress import (
    Histogram,
    StressConfig,
    check_config,
    judge,
    mutants,
    random_config,
    roles,
    run_on_views,
)
from reftile.conformance.verdicts import Verdict

from reftile.interp.model.litmus import LitmusTest
from tests.interp.litmus_suite import suite

CONFIG = StressConfig(iterations=100, seed=1)


def test_a_forbidden_outcome_passes_where_a_mutant_shows_it() -> None:
    judged = judge(suite()["MP+rlx+rel-acq"], run_on_views, CONFIG)
    assert judged.verdict is Verdict.PASS
    assert judged.mutant and judged.seen >= 3 and judged.found.hits == 0


def test_load_buffering_is_vacuous_on_a_machine_that_never_buffers_loads() -> None:
    judged = judge(suite()["LB+weak+control"], run_on_views, CONFIG)
    assert judged.verdict is Verdict.VACUOUS
    assert "seed 1, 100 iterations" in judged.why


def test_a_strong_machine_proves_nothing() -> None:
    def in_order(test: LitmusTest, config: StressConfig) -> Histogram:
        return Histogram({"": config.iterations}, 0, config.iterations)

    assert judge(suite()["MP+rlx+rel-acq"], in_order, CONFIG).verdict is Verdict.VACUOUS
    assert judge(suite()["MP+rlx"], in_order, CONFIG).verdict is Verdict.VACUOUS


def test_a_forbidden_outcome_fails_with_what_repeats_it() -> None:
    def broken(test: LitmusTest, config: StressConfig) -> Histogram:
        return Histogram({"": config.iterations}, 1, config.iterations)

    judged = judge(suite()["MP+rlx+rel-acq"], broken, CONFIG)
    assert judged.verdict is Verdict.FAIL and "seed 1" in judged.why


def test_racy_programs_are_never_asked() -> None:
    judged = judge(suite()["MP+weak+unguarded"], run_on_views, CONFIG)
    assert judged.verdict is Verdict.VACUOUS and judged.found.runs == 0


def test_mutants_without_a_race_come_first() -> None:
    found = [mutant.expected.race for _, mutant in mutants(suite()["MP+rlx+rel-acq"])]
    assert found == sorted(found) and not found[0]


def test_the_same_seed_gives_the_same_histogram() -> None:
    test = suite()["SB+rlx"]
    assert run_on_views(test, CONFIG) == run_on_views(test, CONFIG)


@pytest.mark.parametrize("seed", range(20))
def test_random_configurations_can_be_run(seed: int) -> None:
    config = random_config(seed)
    check_config(config)
    assert config == random_config(seed)
    placed = [pair for block in roles(config, 3) for pair in block]
    assert sorted(placed) == [(i, r) for i in range(config.instances) for r in range(3)]


def test_wrong_configurations_are_refused() -> None:
    with pytest.raises(ValueError, match="percentage"):
        check_config(replace(CONFIG, shuffle=101))
    with pytest.raises(ValueError, match="most_blocks"):
        check_config(replace(CONFIG, testing_blocks=2000))


def test_the_suite_runs_on_the_view_machine() -> None:
    found = run_suites("views", ["litmus"], "wimpy", "litmus/(MP|SB|CoRR)/").summary()
    assert found["fail"] == found["error"] == 0
    assert found["pass"] > 10 and found["vacuous"] > 0
