"""The explorer: completeness against brute force, refusals, races."""

from __future__ import annotations

import os

import pytest

from reftile.interp.model.evaluate import Evaluator
from reftile.interp.model.explore import explore
from reftile.interp.model.litmus import parse_program
from reftile.interp.model.relations import spec_model
from reftile.ir.diagnostics import ReftileError
from tests.interp.litmus_suite import suite
from tests.interp.naive_model import Naive
from tests.interp.random_programs import random_program
from tests.work import calls_in

COUNT = int(os.environ.get("REFTILE_MODEL_PROGRAMS", "150"))
"""Random programs for each test; more by the environment variable."""


def test_brute_force_agrees_on_random_programs() -> None:
    for seed in range(COUNT // 3):
        program = random_program(seed, 6)
        expected, found = Naive(program).verdict(), explore(program, all_executions=True)
        assert set(found.outcomes) == expected.outcomes, seed
        assert found.is_racy == expected.racy, seed
        assert found.executions == expected.executions, seed


def test_one_execution_for_each_outcome_loses_nothing() -> None:
    for seed in range(COUNT, 2 * COUNT):
        program = random_program(seed, 8)
        short, full = explore(program), explore(program, all_executions=True)
        assert set(short.outcomes) == set(full.outcomes), seed
        assert short.is_racy == full.is_racy, seed
        assert short.executions <= full.executions


def test_twelve_accesses_take_little_work_up_to_the_first_race() -> None:
    programs = [random_program(seed, 12) for seed in range(50)]
    calls = [calls_in(lambda p=p: explore(p, stop_at_race=True)) for p in programs]
    # At most 143,445, which take a tenth of a second.
    assert max(calls) < 300_000


def test_happens_before_has_no_cycle_although_no_axiom_says_so() -> None:
    programs = [test.program for test in suite().values()]
    programs += [random_program(seed, 8, mixed=seed % 2 == 1) for seed in range(COUNT)]
    for program in programs:
        for execution in explore(program).outcomes.values():
            events = execution.events
            evaluator = Evaluator(spec_model(), events.space, events.base)
            hb = evaluator.defined("hb", execution.rf, execution.co, execution.tok)
            assert not hb & events.space.identity, program.name


def test_a_search_that_stopped_claims_nothing() -> None:
    result = explore(suite()["MP+weak+rlx-flag"].program, stop_at_race=True)
    assert result.is_racy and not result.complete and not result.is_race_free


WIDE = """
litmus "wide"
buffer x: i32[{n}] = 0
block P {{ store.relaxed.device x[0:{n}] = 1 }}
block Q {{ r = load.relaxed.device x[0:{n}] }}
exists 1
expect allow race-free
"""


def test_refuses_a_program_with_too_many_events() -> None:
    with pytest.raises(
        ReftileError, match=r"more than 160 events; it has 192 events, 64 reads"
    ) as caught:
        explore(parse_program(WIDE.format(n=64)))
    assert caught.value.diagnosis.rule == "model.too_large"


def test_refuses_a_search_without_end() -> None:
    with pytest.raises(ReftileError, match=r"no end after 1000 candidates.*about 10\^6"):
        explore(parse_program(WIDE.format(n=20)), step_limit=1000)


def test_a_race_names_both_operations() -> None:
    (race,) = explore(suite()["MP+weak+no-consumer-token"].program).races
    assert str(race) == "race between `P.a: store.weak x` and `C.d: load.weak x`"
