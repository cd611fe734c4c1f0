"""The Hopper attention kernels from pipe to PTX."""

from __future__ import annotations

import re

import numpy as np
import pytest

from reftile.lower.ptx.assemble import assemble, find_ptxas
from tests.lower.on_machine import from_bits, launch, lowered, to_bits

ONE_HEAD = ("%heads_together = constant {value = 8}", "%heads_together = constant {value = 1}")
DEPTH = 128


def attend(q: np.ndarray, k: np.ndarray, v: np.ndarray, causal: bool) -> np.ndarray:
    """Attention in f64."""
    scores = np.einsum("hid,hjd->hij", q, k) / np.sqrt(DEPTH)
    if causal:
        length = scores.shape[-1]
        hidden = np.arange(length)[None, :] > np.arange(length)[:, None]
        scores = np.where(hidden, -np.inf, scores)
    weights = np.exp(scores - scores.max(-1, keepdims=True))
    return np.einsum("hij,hjd->hid", weights / weights.sum(-1, keepdims=True), v)


def relative_error(length: int, causal: bool, grid: int, seed: int) -> float:
    """Run a kernel in the executor; its error in the 2-norm."""
    rng = np.random.default_rng(seed)
    shape = (1, length, DEPTH)
    q = to_bits(2 * rng.standard_normal(shape))
    k, v = (to_bits(rng.standard_normal(shape)) for _ in range(2))
    o = np.full(shape, 0x7FC0, np.uint16)
    scale = float(np.float32(np.log2(np.e) / np.sqrt(DEPTH)))
    arguments = {"q": q, "k": k, "v": v, "o": o, "heads": 1, "length": length, "scale": scale}
    if causal:
        counter = np.zeros(1, np.int32)
        kernel = lowered("attention_causal_sm90", ONE_HEAD)
        launch(kernel, grid, seed, counter=counter, **arguments)
        assert counter[0] == 0
    else:
        launch(lowered("attention_sm90"), grid, seed, **arguments)
    exact = attend(from_bits(q), from_bits(k), from_bits(v), causal)
    return float(np.linalg.norm(from_bits(o) - exact) / np.linalg.norm(exact))


def test_attention_is_right() -> None:
    assert relative_error(384, False, 2, 0) < 2.5e-3


@pytest.mark.parametrize(("length", "seed"), [(80, 0), (250, 1)])
def test_causal_attention_is_right(length: int, seed: int) -> None:
    assert relative_error(length, True, 1, seed) < 2.5e-3


@pytest.mark.parametrize("name", ["attention_sm90", "attention_causal_sm90"])
def test_the_sums_of_p_times_v_keep_their_registers(name: str) -> None:
    places = set(re.findall(r"mma_async\S+ \{([^}]*)\}", lowered(name).ptx))
    assert len([p for p in places if p.startswith("%o_")]) == 1


def test_probabilities_feed_the_product_without_shuffles() -> None:
    text = lowered("attention_sm90").ptx
    # Four for each maximum and one sum at the end: two rows, two steps.
    assert text.count("shfl.sync.bfly") == 4 * 3


@pytest.mark.skipif(find_ptxas() is None, reason="needs ptxas")
@pytest.mark.parametrize(
    ("name", "registers"), [("attention_sm90", 168), ("attention_causal_sm90", 128)]
)
def test_ptxas_has_nothing_to_say(name: str, registers: int) -> None:
    _, report = assemble(lowered(name).ptx, "sm_90a")
    assert (report.spill_bytes, report.remarks, report.registers) == (0, (), registers)
