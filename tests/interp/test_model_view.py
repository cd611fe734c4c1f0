"""The view machine makes legal executions only."""

from __future__ import annotations

import os

import pytest

from reftile.interp.model.explore import explore
from reftile.interp.model.relations import parse_expression, spec_model
from reftile.interp.model.view import ViewMachine
from tests.interp.litmus_suite import suite
from tests.interp.random_programs import random_program

COUNT = int(os.environ.get("REFTILE_MODEL_PROGRAMS", "150"))

WITHOUT_LOAD_BUFFERING = spec_model().with_axiom(
    "thin_air", parse_expression("rf | dep | tok | rmw | launch_before")
)
"""The model less the executions in which a load reads a store that runs later."""


@pytest.mark.parametrize("name", suite())
def test_suite_outcomes_are_legal(name: str) -> None:
    program = suite()[name].program
    legal, machine = explore(program), ViewMachine(program)
    for seed in range(10):
        execution = machine.run(seed)
        broken = machine.evaluator.broken(execution.rf, execution.co, execution.tok, complete=True)
        assert broken is None, seed
        assert execution.outcome in legal.outcomes, seed
        assert legal.is_racy or not execution.race


@pytest.mark.parametrize("mixed", [False, True])
def test_random_outcomes_are_legal(mixed: bool) -> None:
    for number in range(COUNT):
        program = random_program(number, 6 if mixed else 8, mixed)
        legal, machine = explore(program), ViewMachine(program)
        for seed in range(5):
            execution = machine.run(seed)
            broken = machine.evaluator.broken(
                execution.rf, execution.co, execution.tok, complete=True
            )
            assert broken is None, (number, seed)
            assert execution.outcome in legal.outcomes, (number, seed)
            assert legal.is_racy or not execution.race


def test_stale_values_are_found() -> None:
    """What an interleaving of blocks never shows: store buffering, IRIW, unordered loads."""
    for name in ("SB+rlx", "SB+rel-acq", "IRIW+rel-acq", "CoRR+rlx+no-token", "MP+rlx"):
        program = suite()[name].program
        wanted = explore(program).allows()
        assert wanted is not None
        machine = ViewMachine(program)
        assert any(machine.run(seed).outcome == wanted.outcome for seed in range(400)), name


def test_every_outcome_but_load_buffering_is_found_in_time() -> None:
    cycles = [name for name, test in suite().items() if test.family == "CYCLE"]
    for name, test in suite().items():
        if name in cycles and cycles.index(name) % 8:
            continue
        result = explore(test.program, WITHOUT_LOAD_BUFFERING)
        if len(result.outcomes) > 8:
            continue
        machine, missing = ViewMachine(test.program), set(result.outcomes)
        for seed in range(3000):
            outcome = machine.run(seed).outcome
            assert outcome in result.outcomes, name
            missing.discard(outcome)
            if not missing:
                break
        assert not missing, name


def test_the_same_seed_gives_the_same_execution() -> None:
    machine = ViewMachine(suite()["IRIW+rlx"].program)
    first, second = machine.run(7), machine.run(7)
    assert first.outcome == second.outcome and first.rf == second.rf and first.co == second.co
