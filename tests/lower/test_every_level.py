"""An example means the same at every level: after each pass, and as the text that is emitted.

Sums of whole numbers are exact, so that products must agree bit by bit. Attention rounds: the
levels agree within what each may be off from the exact result, and threads with the executor of
PTX within a unit in the last place of bf16, since only `ex2.approx` differs.
"""

from __future__ import annotations

from functools import cache
from pathlib import Path
from typing import Any

import ml_dtypes  # pyright: ignore[reportMissingImports]
import numpy as np
import pytest

from reftile.interp.launch import interpret
from reftile.ir.core import Kernel
from reftile.ir.parse import parse
from reftile.lower.pipeline import PIPE_TO_SIMT, lower
from tests.lower.hard_inputs import Attention, Case, Product, read
from tests.lower.on_machine import DEVICE_LOG, EXAMPLES, launch

CASES: dict[str, tuple[Case, tuple[int, ...]]] = {
    "gemm_sm90": (Product("gemm_sm90", 130, 264, 136, 0), (2,)),
    "gemm_nn_sm90": (Product("gemm_nn_sm90", 130, 72, 136, 1), (2,)),
    "gemm_cut_sm90": (Product("gemm_cut_sm90", 130, 72, 136, 6), (8,)),
    "attention_sm90": (Attention("attention_sm90", 2, 1, 70, 90, 20, 2), (1,)),
    "attention_full_sm90": (Attention("attention_full_sm90", 1, 1, 70, 90, 90, 7), (1,)),
    "attention_short_sm90": (Attention("attention_short_sm90", 1, 1, 70, 90, 90, 3), (1,)),
    "attention_d64_sm90": (Attention("attention_d64_sm90", 1, 1, 70, 90, 20, 4), (1,)),
}
OTHERS = {"gemm_sm80", "gemm_gfx942"}
"""The first has a result of f32 (below); the second is not lowered by these passes."""


def sm80() -> tuple[dict[str, Any], tuple[int, int]]:
    """Whole numbers, ragged at both edges; k is a multiple of 8."""
    rng = np.random.default_rng(5)
    m, n, k = 72, 150, 104
    a, b = (rng.integers(-4, 5, s).astype(ml_dtypes.bfloat16) for s in ((m, k), (n, k)))
    c = np.full((m, n), np.nan, np.float32)
    return {"a": a, "b": b, "c": c, "m": m, "n": n, "k": k}, (-(-n // 128), -(-m // 128))


def arguments_of(name: str) -> tuple[dict[str, Any], tuple[int, ...], str]:
    """Fresh arguments, the grid, and the name of the result."""
    if name == "gemm_sm80":
        arguments, grid = sm80()
        return arguments, grid, "c"
    case, grid = CASES[name]
    case.arguments[case.result][...] = np.nan
    return case.arguments, grid, case.result


def run(kernel: Kernel, name: str, order: tuple[str, ...], **options: Any) -> np.ndarray:
    """What a kernel of any level leaves, run by the interpreter of that level."""
    arguments, grid, result = arguments_of(name)
    values = [arguments[n] for n in order]
    values = [np.float32(v) if isinstance(v, float) else v for v in values]
    assert interpret(kernel, grid, values, **options).checked
    return arguments[result].copy()


@cache
def levels(name: str) -> dict[str, np.ndarray]:
    """The result before all passes, after each, and of the emitted text."""
    kernel = parse(read(name), f"{name}.tile").kernel()
    order = tuple(a.name for a in kernel.arguments)
    target = str(kernel.attributes["target"])
    found = {"pipe": run(kernel, name, order)}
    for step in PIPE_TO_SIMT:
        kernel = step(kernel, target)
        found[step.__name__] = run(kernel, name, order)
    found["threads, another schedule"] = run(kernel, name, order, schedule="topo", seed=7)
    arguments, grid, result = arguments_of(name)
    bits = {2: np.uint16, 4: np.int32}
    views = {
        n: v.view(bits[v.itemsize]) if isinstance(v, np.ndarray) and v.dtype != np.float32 else v
        for n, v in arguments.items()
    }
    launch(lower(parse(read(name), name).kernel(), target), grid, 0, **views)
    found["ptx"] = arguments[result].copy()
    return found


def test_every_example_is_here() -> None:
    names = {p.stem for p in Path(EXAMPLES).glob("*.tile")}
    assert names == {*CASES, *OTHERS}


@pytest.mark.parametrize("name", ["gemm_sm90", "gemm_nn_sm90", "gemm_cut_sm90", "gemm_sm80"])
def test_products_agree_bit_by_bit_at_every_level(name: str) -> None:
    found = levels(name)
    first = found["pipe"]
    assert not np.isnan(first.astype(float)).any()
    for level, result in found.items():
        assert result.tobytes() == first.tobytes(), level
    if name in CASES:
        case, _ = CASES[name]
        assert np.array_equal(first.astype(float), case.exact)


@pytest.mark.parametrize("name", [n for n in CASES if n.startswith("attention")])
def test_attention_agrees_at_every_level(name: str) -> None:
    case, _ = CASES[name]
    found = levels(name)
    for level, result in found.items():
        assert np.all(np.abs(result.astype(float) - case.exact) <= case.bound), level
    threads, pipes = found["fold_constants"], found["pipe"]
    for level in ("unroll_loops", "assign_layouts", "split_reductions", "derive_barriers"):
        assert found[level].tobytes() == pipes.tobytes(), level
    for level in ("lower_pipe", "threads, another schedule"):
        assert found[level].tobytes() == threads.tobytes(), level
    if DEVICE_LOG:
        return  # `ex2.approx` is not the executor's; the bound above holds for it too.
    ulp = 2.0**-7 * np.maximum(np.abs(threads.astype(float)), 2.0**-14)
    assert np.all(np.abs(found["ptx"].astype(float) - threads.astype(float)) <= ulp)


def test_the_stores_of_the_gemm_meet_no_bank_conflicts() -> None:
    kernel = parse(read("gemm_sm90"), "gemm_sm90.tile").kernel()
    order = tuple(a.name for a in kernel.arguments)
    simt = lower(kernel, "sm_90a").passes.kernel
    arguments, grid, _ = arguments_of("gemm_sm90")
    report = interpret(simt, grid, [arguments[n] for n in order])
    stores = [c for c in report.conflicts if c.op == "store_matrix"]
    assert stores and all(c.extra == 0 for c in report.conflicts)
