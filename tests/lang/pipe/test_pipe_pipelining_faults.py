"""What `Pipelined` writes is needed: each wait, token and count taken out is found."""

from __future__ import annotations

import re

import numpy as np
import pytest

from reftile.interp.launch import interpret
from reftile.ir.diagnostics import ReftileError, ReftileErrors
from reftile.ir.parse import parse
from reftile.ir.print import show
from tests.lang.pipe.pipe_python import example

SEEDS = range(6)

FAULTS: dict[str, tuple[str, int, str, str]] = {
    # A stage is filled again before the product that reads it is complete.
    "refill before the product": (
        "sm_90a",
        3,
        r"(mma_wait \{in_flight = 1\} : token\n.*?)token=%\d+ \{engine = bulk\}",
        r"\1token=%START {engine = bulk}",
    ),
    # The product reads what may not have landed.
    "product before the bytes": (
        "sm_90a",
        2,
        r"(accumulate=%\w+), token=%\d+",
        r"\1, token=%START",
    ),
    "one product too many in flight": (
        "sm_90a",
        2,
        r"mma_wait \{in_flight = 1\}",
        "mma_wait {in_flight = 2}",
    ),
    "the wrong stage is filled": (
        "sm_90a",
        3,
        r"arrive_barrier (%\w+), %ring\d+_last \{",
        r"arrive_barrier \1, %SLOT {",
    ),
    "too few bytes are announced": ("sm_90a", 2, r"bytes = \d+", "bytes = 64"),
    "the phase is the other one": (
        "sm_90a",
        2,
        r"wait_barrier (%\w+), (%ring\d+_slot), %ring\d+_phase",
        r"wait_barrier \1, \2, %\2_x",
    ),
    "a group too many in flight": (
        "sm_80",
        3,
        r"wait_copies \{engine = thread, in_flight = 1\}",
        "wait_copies {engine = thread, in_flight = 2}",
    ),
    "nobody waits for the others to have read": (
        "sm_80",
        2,
        r"join_tokens (%\d+), %shared\d+_all, %shared\d+_all",
        r"join_tokens \1, \1",
    ),
    "loads before the copies have landed": (
        "sm_80",
        2,
        r"(load_buffer %\d+), token=%\d+",
        r"\1, token=%START",
    ),
}


def traced(target: str, stages: int) -> str:
    """The text of the product, 64 x 64 x 32, and its arguments."""
    kernel = example("matmul").matmul.for_target(target)
    return show(kernel.specialise(*arguments(), 64, 64, 32, stages).kernel)


def arguments() -> list[np.ndarray]:
    draw = np.random.default_rng(0)
    a, b = (draw.standard_normal(s).astype(np.float16) for s in ((64, 256), (256, 64)))
    return [a, b, np.zeros((64, 64), np.float16)]


def run(text: str, schedule: str, seed: int) -> np.ndarray:
    a, b, c = arguments()
    values = [v for x in (a, b, c) for v in (x, *x.shape, x.shape[1])]
    kernel = parse(text, "matmul.tile").kernel()
    interpret(kernel, (1, 1), values, schedule=schedule, seed=seed)  # type: ignore[arg-type]
    return c


def broken(name: str) -> str:
    target, stages, pattern, replacement = FAULTS[name]
    text = traced(target, stages)
    start = re.search(r"(%\d+) = make_token", text)
    slot = re.search(r"%ring\d+_slot", text)
    assert start is not None and slot is not None
    replacement = replacement.replace("%START", start[1]).replace("%SLOT", slot[0])
    if name == "the phase is the other one":
        phase = re.search(r"%ring\d+_last: tile<i32>\) \{\n", text)
        assert phase is not None
        one = "    %other = constant {value = 1} : tile<i32>\n"
        ring = slot[0].removesuffix("_slot")
        flip = f"    %flip = xori {ring}_phase, %other : tile<i32>\n"
        text = text[: phase.end()] + one + flip + text[phase.end() :]
        replacement = r"wait_barrier \1, \2, %flip"
    changed, count = re.subn(pattern, replacement, text, flags=re.S)
    assert count, f"{pattern} is not in\n{text}"
    return changed


@pytest.mark.parametrize("name", FAULTS)
def test_a_fault_is_found(name: str) -> None:
    text = broken(name)
    found: list[str] = []
    for schedule in ("topo", "adversarial"):
        for seed in SEEDS:
            try:
                run(text, schedule, seed)
            except (ReftileError, ReftileErrors) as error:
                found.append(str(error))
    assert found, "no schedule has noticed"


@pytest.mark.parametrize(("target", "stages"), [("sm_90a", 2), ("sm_90a", 3), ("sm_80", 2)])
def test_without_a_fault_nothing_is_found(target: str, stages: int) -> None:
    text = traced(target, stages)
    results = {run(text, s, seed).tobytes() for s in ("topo", "adversarial") for seed in SEEDS}
    assert len(results) == 1
