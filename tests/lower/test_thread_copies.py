"""The sm_80 GEMM from pipe to PTX: copies of threads, ldmatrix, mma.sync, stores with bounds."""

from __future__ import annotations

import numpy as np
import pytest

from reftile.lower.ptx.assemble import assemble, find_ptxas
from tests.lower.on_machine import from_bits, launch, lowered, to_bits


@pytest.mark.parametrize(("m", "n", "k", "seed"), [(128, 128, 160, 0), (72, 150, 32, 1)])
def test_the_product_is_right_inside_and_at_the_edge(m: int, n: int, k: int, seed: int) -> None:
    rng = np.random.default_rng(seed)
    a, b = to_bits(rng.standard_normal((m, k))), to_bits(rng.standard_normal((n, k)))
    c = np.full((m, n), np.nan, np.float32)
    grid = (-(-n // 128), -(-m // 128))
    launch(lowered("gemm_sm80"), grid, seed, a=a, b=b, c=c, m=m, n=n, k=k)
    exact = from_bits(a) @ from_bits(b).T
    np.testing.assert_allclose(c, exact, rtol=1e-5, atol=1e-5)


def test_one_barrier_serves_both_edges_of_a_slot() -> None:
    assert lowered("gemm_sm80").ptx.count("bar.sync") == 1


def test_the_host_checks_what_vectors_need() -> None:
    host = lowered("gemm_sm80").host
    good = {"a": 256, "b": 1024, "c": 64, "m": 128, "n": 128, "k": 64}
    assert host.broken_requirement(good) is None
    assert host.broken_requirement({**good, "k": 36}) == (
        "rows of `a` must be a multiple of 16 bytes apart, found 36 elements"
    )
    assert host.broken_requirement({**good, "c": 4}) == "`c` must lie at a multiple of 8 bytes"


@pytest.mark.skipif(find_ptxas() is None, reason="needs ptxas")
def test_ptxas_has_nothing_to_say() -> None:
    _, report = assemble(lowered("gemm_sm80").ptx, "sm_80")
    assert (report.spill_bytes, report.remarks) == (0, ())
