"""Pictures of executions."""

from __future__ import annotations

from xml.etree import ElementTree

import pytest

from reftile.interp.model.execution import Execution
from reftile.interp.model.explore import explore
from reftile.interp.model.render import edges, render_html, render_svg
from tests.interp.litmus_suite import suite

NAMES = ("MP+weak+rel-acq", "IRIW+rel-acq", "TILE+tearing+rlx", "MIXED+single-copy", "CoWW+weak")


def some_execution(name: str) -> Execution:
    result = explore(suite()[name].program)
    return result.allows() or next(iter(result.outcomes.values()))


@pytest.mark.parametrize("name", NAMES)
def test_svg_shows_every_operation_that_runs(name: str) -> None:
    execution = some_execution(name)
    picture = ElementTree.fromstring(render_svg(execution))
    texts = [e.text or "" for e in picture.iter("{http://www.w3.org/2000/svg}text")]
    for block in execution.events.program.blocks:
        assert f"block {block.name}" in texts
    for unit in execution.events.units:
        happens = any(execution.exists >> e & 1 for e in (*unit.reads, *unit.writes))
        if unit.role == "op" and happens:
            name = execution.events.ops[unit.op][1].name
            assert any(text.startswith(f"{name}: ") for text in texts)


def test_edges_that_follow_are_left_out() -> None:
    found = edges(some_execution("CoWW+weak"))
    assert len(found["co"]) == 2 and len(found["tok"]) == 1


def test_page_explains_the_race() -> None:
    race = explore(suite()["MP+weak+no-consumer-token"].program).races[0]
    page = render_html(race.execution)
    assert "no token leads from `C.c` to `C.d`" in page
    assert "<title>race</title>" in page
