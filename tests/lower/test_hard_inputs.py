"""The Hopper kernels on sizes that tiles do not divide, shared heads, and every kind of mask.

bench/hopper_cases.py asks the same of a device, with many more cases.
"""

from __future__ import annotations

import numpy as np
import pytest

from tests.lower.hard_inputs import Attention, Product, run_executor, run_interpreter

PRODUCTS = [
    # Ten whole tiles, and two cut into four parts each; then parts alone.
    (Product("gemm_cut_sm90", 700, 264, 72, 5), 10),
    (Product("gemm_cut_sm90", 130, 264, 200, 6), 16),
    (Product("gemm_sm90", 1, 8, 8, 0), 2),
    (Product("gemm_sm90", 300, 328, 136, 1), 2),
    (Product("gemm_nn_sm90", 157, 96, 40, 2), 2),
    (Product("gemm_nn_sm90", 300, 328, 136, 3), 2),
    (Product("gemm_fp8_sm90", 130, 264, 144, 4), 2),
]
ATTENTIONS = [
    Attention("attention_sm90", 1, 1, 1, 1, 0, 0),
    Attention("attention_sm90", 2, 1, 70, 170, 100, 1),
    Attention("attention_sm90", 2, 1, 193, 100, 0, 2),
    Attention("attention_sm90", 1, 1, 250, 83, -100, 3),
    # Row 48 sees nothing of two blocks in turn, while row 50 of its warp sees a part of the second.
    Attention("attention_sm90", 1, 1, 192, 222, 30, 10),
    Attention("attention_sm90", 1, 1, 65, 400, 400, 4, growing=True),
    Attention("attention_full_sm90", 2, 1, 70, 170, 170, 11),
    Attention("attention_short_sm90", 2, 1, 131, 300, 169, 5),
    Attention("attention_short_sm90", 1, 1, 129, 257, 257, 6, growing=True),
    Attention("attention_d64_sm90", 2, 1, 200, 300, 100, 7),
    Attention("attention_d64_sm90", 1, 1, 70, 390, 390, 8, growing=True),
]


def called(case: object) -> str:
    """A short name of a case."""
    if isinstance(case, Product):
        return f"{case.name}-{case.m}x{case.n}x{case.k}"
    if not isinstance(case, Attention):
        return str(case)
    return f"{case.name}-{case.heads}/{case.kv_heads}-{case.length}x{case.keys}+{case.reach}"


@pytest.mark.parametrize(("case", "grid"), PRODUCTS, ids=called)
def test_products_of_integers_are_exact(case: Product, grid: int) -> None:
    found = run_interpreter(case, grid, schedule="topo", seed=case.seed)
    assert np.array_equal(found, case.exact)
    assert np.array_equal(run_executor(case, grid, case.seed), case.exact)


@pytest.mark.parametrize("case", ATTENTIONS, ids=called)
def test_attention_is_within_its_bound(case: Attention) -> None:
    for found in (
        run_interpreter(case, 2, schedule="topo", seed=case.seed),
        run_executor(case, 2, case.seed),
    ):
        assert np.all(np.abs(found - case.exact) <= case.bound)


def test_rows_that_see_nothing_are_zero() -> None:
    case = Attention("attention_sm90", 1, 1, 100, 40, -60, 9)
    found = run_executor(case, 1)
    assert np.all(found[:, :60] == 0) and np.all(np.any(found[:, 60:] != 0, axis=-1))
