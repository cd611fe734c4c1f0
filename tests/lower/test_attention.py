"""The Hopper attention kernels from pipe to PTX."""

from __future__ import annotations

import re
import runpy

import numpy as np
import pytest

from reftile.lower.ptx.assemble import assemble, find_ptxas
from tests.lower.hard_inputs import Attention, run_executor
from tests.lower.on_machine import EXAMPLES, lowered

NAMES = ["attention_sm90", "attention_full_sm90", "attention_short_sm90", "attention_d64_sm90"]


WRITER = EXAMPLES.parents[1] / "bench" / "kernels" / "attention.py"


@pytest.mark.parametrize("name", NAMES)
def test_the_examples_are_written_from_one_text(name: str) -> None:
    written = runpy.run_path(str(WRITER))["example"](name.removesuffix("_sm90"))
    assert (EXAMPLES / f"{name}.tile").read_text(encoding="utf-8") == written


def relative_error(case: Attention, grid: int, seed: int) -> float:
    """Run a kernel in the executor; its error in the 2-norm."""
    found = run_executor(case, grid, seed)
    return float(np.linalg.norm(found - case.exact) / np.linalg.norm(case.exact))


@pytest.mark.parametrize("name", NAMES)
def test_attention_is_right(name: str) -> None:
    case = Attention(name, heads=1, kv_heads=1, length=384, keys=384, reach=384, seed=0)
    assert relative_error(case, 2, 0) < 2.5e-3


@pytest.mark.parametrize(("length", "seed"), [(80, 0), (250, 1)])
def test_causal_attention_is_right(length: int, seed: int) -> None:
    case = Attention("attention_sm90", 1, 1, length, length, 0, seed)
    assert relative_error(case, 1, seed) < 2.5e-3


@pytest.mark.parametrize("name", NAMES)
def test_the_sums_of_p_times_v_keep_their_registers(name: str) -> None:
    places = set(re.findall(r"mma_async\S+ \{([^}]*)\}", lowered(name).ptx))
    assert len([p for p in places if p.startswith("%o_")]) == 1


def test_probabilities_feed_the_product_without_shuffles() -> None:
    text = lowered("attention_sm90").ptx
    # Four for each of two maxima and one sum at the end: two rows, two steps.
    assert text.count("shfl.sync.bfly") == 4 * 3


@pytest.mark.skipif(find_ptxas() is None, reason="needs ptxas")
@pytest.mark.parametrize(
    ("name", "registers"), list(zip(NAMES, (128, 128, 168, 128), strict=True)), ids=NAMES
)
def test_ptxas_has_nothing_to_say(name: str, registers: int) -> None:
    _, report = assemble(lowered(name).ptx, "sm_90a")
    assert (report.spill_bytes, report.remarks, report.registers) == (0, (), registers)
