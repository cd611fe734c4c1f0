"""Every case of the examples, compiled, stays within the bounds that the interpreter is held to."""

from __future__ import annotations

import sys
from importlib import import_module
from pathlib import Path

import numpy as np
import pytest

from reftile.rt.cpu import launch_cpu

EXAMPLES = Path(__file__).resolve().parents[3] / "examples"
sys.path.insert(0, str(EXAMPLES))
harness = import_module("harness")
FAMILIES: list[str] = harness.families()


@pytest.mark.parametrize("family", FAMILIES)
def test_examples_stay_within_their_bounds(family: str) -> None:
    worst = {}
    for case in import_module(family).cases():
        if case.large:
            continue
        copies = {
            k: v.copy() if isinstance(v, np.ndarray) else v for k, v in case.arguments.items()
        }
        kernel, values = harness.specialise(case, copies, False)
        launch_cpu(kernel, case.grid, values)
        ratio, where = harness.compare({n: copies[n] for n in case.expected}, case.expected)
        worst[case.name] = (ratio, where)
    assert worst
    assert {name: found for name, found in worst.items() if found[0] > 1} == {}
