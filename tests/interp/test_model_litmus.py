"""Every verdict of the litmus suite, from the specification's blocks."""

from __future__ import annotations

import pytest

from conformance.litmus import generate
from reftile.interp.model.execution import Result
from reftile.interp.model.explore import explore
from reftile.interp.model.litmus import parse_litmus, parse_program
from reftile.interp.model.values import TRUE
from reftile.ir.diagnostics import ReftileError, Source
from tests.interp.litmus_suite import FOLDER, suite, verdict
from tests.interp.naive_model import Naive

FAMILIES = (
    "MP SB LB S R 2+2W CoRR CoWW CoWR CoRW WRC ISA2 RWC IRIW ATOM TILE TOK MIXED SPLITK WIDEN "
    "ALIAS TOK_IF TOK_FOR SUBBYTE SPIN ELECT FAIL_CAS LAUNCH GATHER RED WSCOPE UNINIT VIEW CYCLE"
).split()
SLOW_MIXED = {"MIXED", "SUBBYTE"}


@pytest.mark.parametrize("name", suite())
def test_verdict_is_as_expected(name: str) -> None:
    test = suite()[name]
    result = explore(test.program)
    assert result.complete
    assert verdict(result) == test.expected, [str(race) for race in result.races]


def test_suite_has_every_family() -> None:
    assert {test.family for test in suite().values()} == set(FAMILIES)


def test_no_program_of_the_suite_branches_on_poison() -> None:
    assert not [n for n, t in suite().items() if explore(t.program).problems]


def by_hand(name: str) -> bool:
    """Whether brute force can judge this test, and in reasonable time."""
    test = suite()[name]
    ops = [op for block in test.program.blocks for op in block.ops]
    accesses = [access for op in ops for access in op.accesses]
    if test.family in ("MIXED", "SUBBYTE") or any(e.guard != TRUE for o in ops for e in o.after):
        return False
    if any(a.guard != TRUE or a.otherwise not in (None, a.compare) for a in accesses):
        return False
    naive, size = Naive(test.program), 1
    for read in naive.reads:
        where = naive.events[read].where
        size *= 1 + sum(e.kind == "W" and e.where == where for e in naive.events)
    return size <= 300


@pytest.mark.parametrize("name", [n for n in suite() if by_hand(n)])
def test_brute_force_agrees(name: str) -> None:
    program = suite()[name].program
    expected, found = Naive(program).verdict(), explore(program, all_executions=True)
    assert set(found.outcomes) == expected.outcomes
    assert found.is_racy == expected.racy
    assert found.executions == expected.executions


def outcome(text: str) -> Result:
    return explore(parse_program(text))


def test_poison_that_reaches_a_branch_is_reported() -> None:
    result = outcome(
        """
        litmus "branch on poison"
        buffer x = uninit
        buffer y = 0
        block P {
          a: r = load x
          if r == 1 { store y = 1  after a }
        }
        exists final y == 1
        expect forbid race-free
        """
    )
    assert result.problems == ["poison decides whether y is accessed"]


def test_poison_that_is_only_passed_on_is_no_error() -> None:
    result = outcome(
        """
        litmus "copy poison"
        buffer x = uninit
        buffer y = 0
        block P {
          a: r = load x
          b: store y = r + 1  after a
        }
        exists uninit(final y)
        expect allow race-free
        """
    )
    assert result.allows() and not result.problems


def test_a_computed_index_outside_is_reported() -> None:
    result = outcome(
        """
        litmus "outside"
        buffer i: i32[2] = [1, 2]
        buffer x: i32[2] = 0
        block P {
          k = load i[0:2]
          store x[k] = 1
        }
        exists final x[1] == 1
        expect allow race-free
        """
    )
    assert result.problems == ["x[k[1]] is accessed outside its bounds"]


def test_values_wrap_to_the_element_size() -> None:
    result = outcome(
        """
        litmus "wrap"
        buffer x: i8[1] = 127
        block P { r = add.relaxed.block x, 1 }
        exists final x == -128
        expect allow race-free
        """
    )
    assert result.allows()


REJECTS = {
    "litmus.order": "buffer x = 0 block P { r = load.release.device x }",
    "litmus.unknown_buffer": "buffer x = 0 block P { r = load y }",
    "litmus.unknown_register": "buffer x = 0 block P { store x = r }",
    "litmus.unknown_token": "buffer x = 0 block P { store x = 1 after a }",
    "litmus.out_of_bounds": "buffer x = 0 block P { store x[1] = 1 }",
    "litmus.shape": "buffer x: i32[3] = 0 block P { store x[0:3] = [1, 2] }",
    "litmus.redefined": "buffer x = 0 block P { a: store x = 1 a: store x = 2 }",
    "litmus.syntax": "buffer x = 0 block P { store x 1 }",
}


@pytest.mark.parametrize("rule", REJECTS)
def test_rejects_with_a_span(rule: str) -> None:
    text = f'litmus "bad" {REJECTS[rule]} exists 1 expect allow race-free'
    with pytest.raises(ReftileError) as caught:
        parse_litmus(Source("bad.litmus", text))
    assert caught.value.diagnosis.rule == rule
    span = caught.value.diagnosis.span
    assert 0 < span.start < span.end <= len(text)
    assert "^" in str(caught.value)


def test_generated_files_are_what_the_generator_writes() -> None:
    for name, text in generate.files().items():
        assert (FOLDER / name).read_text(encoding="utf-8") == text, name
