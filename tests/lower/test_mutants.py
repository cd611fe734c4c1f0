"""A wrong lowering is noticed: a kernel with one thing broken fails in the PTX executor."""

from __future__ import annotations

import re
from dataclasses import replace

import numpy as np
import pytest

from tests.lower.on_machine import launch, lowered, to_bits
from tests.lower.test_gemm import SMALL_GROUPS
from tests.ptx_machine import PtxError

FENCE_AND_BARRIER = r"(fence\.proxy[^\n]*\n(?:[^\n]*\n){0,3}?)[^\n]*bar\.sync[^\n]*\n"
MUTANTS = {
    "no fence between proxies": (r"fence\.proxy\.async\.shared::cta;", ""),
    "no barrier before the store leaves": (FENCE_AND_BARRIER, r"\1"),
    "one product too many in flight": (r"(wait_group\.sync\.aligned) 1;", r"\1 2;"),
    "results before they are there": (r"(wait_group\.sync\.aligned) 0;", r"\1 1;"),
    "too few bytes announced": (r"_, \[([^\]]*)\], 49152;", r"_, [\1], 32768;"),
    "blocks part too early": (r"barrier\.cluster\.(arrive\.relaxed|wait);", ""),
}


@pytest.mark.parametrize("name", MUTANTS)
def test_a_mutant_is_caught(name: str) -> None:
    kernel = lowered("gemm_sm90", SMALL_GROUPS)
    text, count = re.subn(*MUTANTS[name], kernel.ptx)
    assert count
    rng = np.random.default_rng(0)
    a, b = to_bits(rng.standard_normal((256, 384))), to_bits(rng.standard_normal((256, 384)))
    c = np.zeros((256, 256), np.uint16)
    with pytest.raises(PtxError):
        for seed in range(3):
            mutant = replace(kernel, ptx=text)
            launch(mutant, 2, seed, a=a, b=b, c=c, m=256, n=256, k=384)


def test_a_descriptor_with_the_rank_in_it_is_caught() -> None:
    """The offset between panels of B is the field above that of the address."""
    kernel = lowered("gemm_nn_sm90")
    text, count = re.subn(r"bfe\.u32 (%chunk\S+ \S+) 4, 14;", r"shr.u32 \1 4;", kernel.ptx)
    assert count == 2
    a, b, c = np.ones((256, 64), np.uint16), np.ones((64, 256), np.uint16), np.zeros((256, 256))
    with pytest.raises(PtxError):
        mutant = replace(kernel, ptx=text)
        launch(mutant, 2, a=a, b=b, c=c.astype(np.uint16), m=256, n=256, k=64)
