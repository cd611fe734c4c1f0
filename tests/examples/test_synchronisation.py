"""Kernels whose blocks talk to each other need every word: weaker ones race, and it is found."""

from __future__ import annotations

from importlib import import_module
from typing import Any

import pytest

from reftile import ReftileError
from reftile.interp.launch import interpret
from reftile.ir.parse import parse

KERNELS = {
    "split_k": ("split-k-turns-float16", "split-k-last-float16"),
    "scan": ("scan-int32",),
    "stream_k": ("stream-k-many-share",),
}
ORDERINGS = ("acquire", "release", "acq_rel")


def _weakened() -> list[tuple[str, str, str]]:
    return [
        (module, name, ordering)
        for module, names in KERNELS.items()
        for name in names
        for ordering in ORDERINGS
        if (ordering == "acq_rel") == (name == "split-k-last-float16")
    ]


@pytest.mark.parametrize(("module", "name", "ordering"), _weakened())
def test_a_weaker_ordering_races(module: str, name: str, ordering: str):
    harness = import_module("harness")
    case = next(c for c in import_module(module).cases() if c.name == name)
    text = harness.tile_ir(case)
    assert f"ordering = {ordering}" in text
    weak = parse(text.replace(f"ordering = {ordering}", "ordering = relaxed"), "weak")
    schedules: list[tuple[Any, int]] = [("program", 0), *case.schedules]
    with pytest.raises(ReftileError) as caught:
        for schedule, seed in schedules:
            _, values = harness.specialise(case, dict(case.arguments, **_copies(case)))
            interpret(weak, case.grid, values, schedule=schedule, seed=seed)
    assert caught.value.diagnosis.rule == "race.between_blocks"


def _copies(case) -> dict[str, object]:
    return {k: v.copy() for k, v in case.arguments.items() if hasattr(v, "copy")}


def test_waiting_needs_declared_progress():
    harness = import_module("harness")
    case = next(c for c in import_module("scan").cases() if c.name == "scan-int32")
    text = harness.tile_ir(case)
    bare = text.replace(' attributes {progress = "occupancy_bound"}', "")
    assert bare != text
    with pytest.raises(ReftileError) as caught:
        _, values = harness.specialise(case, dict(case.arguments, **_copies(case)))
        interpret(parse(bare, "bare"), case.grid, values, schedule="topo", seed=2)
    assert caught.value.diagnosis.rule == "progress.needs_co_residency"
