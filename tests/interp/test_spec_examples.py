"""Every example of a tile operation in spec/ runs, under every schedule."""

from __future__ import annotations

from typing import Any

import pytest

from reftile.interp.launch import interpret
from reftile.ir.parse import parse
from reftile.ir.records import load

CHAPTERS = "control blocks views memory atomics debug module".split()
EXAMPLES = {
    name: record.example
    for name, record in load().ops.items()
    if record.example and record.chapter.removesuffix(".md") in CHAPTERS
}


@pytest.mark.parametrize("schedule", ["program", "topo", "adversarial"])
@pytest.mark.parametrize("name", list(EXAMPLES))
def test_the_example_runs(name: str, schedule: Any) -> None:
    module = parse(f"tile kernel @example() {{\n{EXAMPLES[name]}\nreturn\n}}", name)
    interpret(module, 2, [], schedule=schedule)


def test_every_operation_of_these_chapters_has_an_example_or_a_reason() -> None:
    shown_elsewhere = "break continue yield return global get_global"
    several_devices = (
        "multimem_load_reduce_view_tko multimem_reduce_view_tko multimem_store_view_tko"
    )
    missing = {
        name
        for name, record in load().ops.items()
        if record.chapter.removesuffix(".md") in CHAPTERS and not record.example
    }
    assert missing == set(f"{shown_elsewhere} {several_devices}".split())
