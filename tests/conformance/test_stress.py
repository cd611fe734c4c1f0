"""Litmus tests on a machine that shows outcomes by chance."""

from __future__ import annotations

from dataclasses import replace
from math import inf
from pathlib import Path

import pytest
from reftile.conformance.runner import run_suites
from reftile.conformance.stress import (
    VIEW_CONFIG,
    Histogram,
    StressConfig,
    check_config,
    judge,
    launches,
    load_profile,
    mutants,
    places,
    random_config,
    roles,
    run_on_views,
    save_profile,
    scratch_bytes,
    staleness,
    tune,
)
from reftile.conformance.verdicts import Verdict

from reftile.interp.model.litmus import LitmusTest
from tests.interp.litmus_suite import suite

CONFIG = replace(VIEW_CONFIG, iterations=100, seed=1)


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


BUSY = replace(CONFIG, iterations=400, testing_blocks=64, most_blocks=96, stress_targets=3)


def test_percentages_say_how_often() -> None:
    config = replace(BUSY, shuffle=25, barrier=75, stress=50, prestress=10)
    found = list(launches(config))
    rates = {
        "shuffle": sum(launch.order != tuple(range(64)) for launch in found),
        "barrier": sum(launch.has_barrier for launch in found),
        "stress": sum(launch.has_stress for launch in found),
        "prestress": sum(launch.has_prestress for launch in found),
    }
    for name, count in rates.items():
        assert abs(count / 4 - getattr(config, name)) < 8, (name, count)
    assert list(launches(config)) == found
    assert list(launches(replace(config, seed=2))) != found


def test_blocks_that_stress_use_the_lines_they_are_given() -> None:
    for assignment in ("round-robin", "chunked"):
        config = replace(BUSY, stress_line=128, assignment=assignment)  # type: ignore[arg-type]
        for launch in launches(replace(config, iterations=50)):
            targets = list(dict.fromkeys(launch.stressing))
            assert 1 <= len(targets) <= 3 and len(launch.stressing) <= 32
            assert all(at % 128 == 0 and at < scratch_bytes(config) for at in targets)
            runs = sum(a != b for a, b in zip(launch.stressing, launch.stressing[1:], strict=False))
            assert assignment == "round-robin" or runs < 3
    assert scratch_bytes(config) == 32 * 128 * 3
    assert not any(launch.has_stress for launch in launches(replace(BUSY, stress_iterations=0)))


def test_no_stress_without_its_share() -> None:
    calm = replace(BUSY, stress=0, prestress=0, shuffle=0, barrier=0, iterations=20)
    for launch in launches(calm):
        assert not (launch.has_stress or launch.has_prestress or launch.has_barrier)
        assert launch.order == tuple(range(64))
        assert staleness(calm, launch) == 0.05


@pytest.mark.parametrize("stride", [1, 7])
def test_instances_lie_apart(stride: int) -> None:
    config = replace(CONFIG, instances=50, stride=stride)
    found = [at for instance in places(config, 3) for at in instance]
    assert len(set(found)) == 150 and all(at % stride == 0 for at in found)


def test_every_instance_of_every_launch_is_counted() -> None:
    config = replace(CONFIG, iterations=7, instances=9, testing_blocks=5)
    assert run_on_views(suite()["SB+rlx"], config).runs == 63


def test_stress_and_barriers_decide_what_is_seen() -> None:
    """A calm machine hardly shows what a busy one does: a test under it would prove nothing."""
    busy = replace(CONFIG, iterations=300)
    calm = replace(busy, stress=0, prestress=0, barrier=0)
    test = suite()["SB+rlx"]
    assert run_on_views(test, busy).hits > 10 * max(1, run_on_views(test, calm).hits)
    small = replace(calm, iterations=20)
    assert judge(suite()["MP+rlx+rel-acq"], run_on_views, small).verdict is Verdict.VACUOUS
    more = [replace(busy, stress_iterations=n) for n in (16, 256)]
    assert run_on_views(test, more[0]).hits < run_on_views(test, more[1]).hits


def test_tuning_finds_a_configuration_and_keeps_it(tmp_path: Path) -> None:
    def few(test: LitmusTest, config: StressConfig) -> Histogram:
        return run_on_views(test, replace(config, instances=1))

    tuned = tune(suite()["SB+rlx"], few, configs=12, iterations=25, seconds=inf)
    assert tuned.rate > 0.1
    assert tuned.rate >= few(suite()["SB+rlx"], random_config(0, 25)).rate
    path = tmp_path / "profile.json"
    save_profile(path, "views", {"SB+rlx": tuned})
    assert load_profile(path, "views") == {"SB+rlx": tuned}
    with pytest.raises(ValueError, match="is for views"):
        load_profile(path, "another")


def test_the_suite_runs_on_the_view_machine() -> None:
    found = run_suites("views", ["litmus"], "wimpy", "litmus/(MP|SB|CoRR)/").summary()
    assert found["fail"] == found["error"] == 0
    assert found["pass"] > 10 and found["vacuous"] > 0
