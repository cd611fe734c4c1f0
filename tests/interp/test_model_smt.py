"""The solver and the search agree: on the suite, on random programs, on outcomes."""

from __future__ import annotations

from dataclasses import replace

import pytest

from reftile.interp.model.explore import explore
from reftile.interp.model.relations import parse_expression, spec_model
from reftile.interp.model.smt import Solver
from reftile.interp.model.values import Value
from reftile.ir.diagnostics import Bug
from tests.interp.litmus_suite import suite
from tests.interp.random_programs import random_program

pytest.importorskip("z3")

SAMPLE = sorted(suite())[::4]
"""A quarter of the tests, so that a run is short; all of them agree when all are asked."""


@pytest.mark.parametrize("name", SAMPLE)
def test_verdicts_of_the_suite(name: str) -> None:
    test = suite()[name]
    solver = Solver(test.program)
    assert (solver.find() is not None) == (test.expected.outcome == "allow")
    assert (solver.find_race() is not None) == test.expected.race


def test_random_programs() -> None:
    compared = 0
    for number in range(2000, 2024):
        program = random_program(number, 7)
        expected, solver = explore(program), Solver(program)
        assert (solver.find_race() is not None) == expected.is_racy, number
        names = [leave.register for leave in program.exits]
        found = {_values(dict(e.outcome), names) for e in solver.outcomes()}
        assert found == {_values(dict(o), names) for o in expected.outcomes}, number
        compared += len(found)
    assert compared > 20


def _values(outcome: dict[str, Value], names: list[str]) -> tuple[Value, ...]:
    return tuple(outcome[name] for name in names)


def test_an_answer_is_an_execution() -> None:
    test = suite()["MP+weak+no-consumer-token"]
    execution = Solver(test.program).find_race()
    assert execution is not None and execution.races()
    assert execution.value("r") == 1


def test_a_model_whose_closures_matter_the_other_way_is_refused() -> None:
    model = spec_model()
    race = parse_expression("conflict & hb", frozenset({"conflict", "hb"}))
    with pytest.raises(Bug, match="must be exact"):
        Solver(
            suite()["CoRR"].program if "CoRR" in suite() else next(iter(suite().values())).program,
            replace(model, axioms=model.with_axiom("race", race).axioms),
        )
