"""The litmus tests as kernels of the tile level: written, read back, explored to the same end."""

from __future__ import annotations

import re
from functools import cache
from typing import Any

import pytest

from conformance.litmus_tile.generate import HERE, files, read_back
from conformance.litmus_tile.generate import tests as all_tests
from reftile.cli.explore import parse_condition
from reftile.cli.inputs import Arguments
from reftile.interp.model.execution import Result
from reftile.interp.model.explore import explore
from reftile.interp.model.litmus import LitmusTest
from reftile.interp.model.translate import translate
from reftile.interp.model.view import ViewMachine
from reftile.ir.core import Module
from reftile.ir.parse import parse
from tests.interp.litmus_suite import verdict

TESTS = {test.name: (name, test) for name, test in all_tests()}
EXPRESSIBLE = list(TESTS)


@cache
def module(name: str) -> Module:
    return parse((HERE / name).read_text(encoding="utf-8"), name)


def test_files_are_what_the_generator_writes() -> None:
    for name, text in files().items():
        assert (HERE / name).read_text(encoding="utf-8") == text, name


def test_every_test_is_expressible() -> None:
    """Also those on several devices, whose kernels say which block is where."""
    several = [n for n, (_, t) in TESTS.items() if len({b.device for b in t.program.blocks}) > 1]
    assert len(several) == 35 and len(TESTS) >= 420
    for name in several:
        file, test = TESTS[name]
        assert f'// litmus "{name}" family {test.family}\n// devices' in files()[file]


@pytest.mark.parametrize("name", EXPRESSIBLE)
def test_kernel_has_the_verdict_of_its_test(name: str) -> None:
    """Outcome and race apart, and every outcome the same."""
    file, test = TESTS[name]
    result = explore(read_back(test, module(file)))
    found = verdict(result)
    assert found.outcome == test.expected.outcome
    assert found.race == test.expected.race
    seen = outcomes(result, test)
    shared = {register for outcome in seen for register, _ in outcome}
    assert seen == {
        tuple(pair for pair in outcome if pair[0] in shared)
        for outcome in outcomes(explore(test.program), test)
    }


@pytest.mark.parametrize("name", EXPRESSIBLE[::9])
def test_samples_of_a_kernel_are_executions_of_it(name: str) -> None:
    file, test = TESTS[name]
    program = read_back(test, module(file))
    legal, machine = set(explore(program).outcomes), ViewMachine(program)
    assert {machine.run(seed).outcome for seed in range(30)} <= legal


def outcomes(result: Result, test: LitmusTest) -> set[tuple[tuple[str, Any], ...]]:
    known = {a.register for b in test.program.blocks for op in b.ops for a in op.accesses}
    known |= {leave.register for leave in test.program.exits}
    found: set[tuple[tuple[str, Any], ...]] = set()
    for outcome in result.outcomes:
        named = ((re.sub(r"^b\d+(_launch\d+)?\.", "", name), value) for name, value in outcome)
        found.add(tuple(sorted((n, v) for n, v in named if n in known)))
    return found


def forms() -> dict[str, tuple[list[str], str, str]]:
    """Arguments, condition and expected pair of each kernel that is written by hand."""
    text = (HERE / "forms.tile").read_text(encoding="utf-8")
    pattern = re.compile(
        r"^// grid (\d+)\n// args (.*)\n// exists (.*)\n// expect (.*)\n.*?@(\w+)", re.M
    )
    found = pattern.findall(text)
    return {name: ([grid, *args.split()], exists, pair) for grid, args, exists, pair, name in found}


@pytest.mark.parametrize("name", forms())
def test_forms_that_only_tiles_have(name: str) -> None:
    (grid, *texts), exists, expected = forms()[name]
    kernel = module("forms.tile").kernel(name)
    names = [a.name for a in kernel.arguments]
    found = translate(kernel, (int(grid),), Arguments(texts, 0).for_kernel(names))
    result = explore(found.program)
    hit = result.allows(parse_condition(exists, found)) is not None
    assert f"{'allow' if hit else 'forbid'} {'racy' if result.is_racy else 'race-free'}" == expected
    assert result.is_racy or not result.problems
