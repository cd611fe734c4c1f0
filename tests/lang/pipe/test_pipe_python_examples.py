"""Kernels of the pipe level in Python do what those in text do."""

from __future__ import annotations

import re
from collections import Counter

import ml_dtypes
import numpy as np
import pytest

from reftile.ir.core import Kernel
from reftile.lower.pipeline import lower
from reftile.lower.ptx.assemble import assemble, find_ptxas
from tests.interp.pipe.pipe_kernels import SCHEDULES, attention, gemm, gemm_sm80
from tests.lang.pipe.pipe_python import example, lowered
from tests.lower.on_machine import from_bits, launch, to_bits


def test_the_gemm_gives_the_bits_of_the_text() -> None:
    case = gemm("gemm_sm90", 2048, 256, 128, (2,), 64)
    case.run()
    a, b, c, *sizes = case.args
    from_python = np.full_like(c, np.nan)
    example("gemm_sm90").gemm[(2,)](a, b, from_python, *sizes)
    assert case.is_right()
    assert np.array_equal(from_python.view(np.uint16), c.view(np.uint16))


@pytest.mark.parametrize("options", SCHEDULES)
def test_the_gemm_is_right_for_ragged_sizes(options: dict[str, object]) -> None:
    m, n, k = 200, 264, 136
    case = gemm("gemm_sm90", m, n, k, (2,), 64)
    a, b, c, *_ = case.args
    example("gemm_sm90").gemm[(2,)](a, b, c, m, n, k, 2, **options)
    assert case.is_right()


def test_the_gemm_is_right_in_the_executor_of_ptx() -> None:
    rng = np.random.default_rng(0)
    m, n, k = 256, 256, 192
    a, b = to_bits(rng.standard_normal((m, k))), to_bits(rng.standard_normal((n, k)))
    c = np.full((m, n), 0x7FC0, np.uint16)
    code = lowered(example("gemm_sm90").gemm.build(group=2))
    launch(code, 2, a=a, b=b, c=c, m=m, n=n, k=k)
    exact = from_bits(a) @ from_bits(b).T
    assert np.all(np.abs(from_bits(c) - exact) <= 2.0**-8 * np.abs(exact) + 2.0**-8)


@pytest.mark.parametrize("options", SCHEDULES)
def test_the_gemm_of_sm80_gives_the_bits_of_the_text(options: dict[str, object]) -> None:
    case = gemm_sm80()
    case.run()
    a, b, c, *sizes = case.args
    from_python = np.full_like(c, np.nan)
    example("gemm_sm80").gemm[case.grid](a, b, from_python, *sizes, **options)
    assert case.is_right()
    assert np.array_equal(from_python.view(np.uint32), c.view(np.uint32))


@pytest.mark.parametrize("options", SCHEDULES[:1] + SCHEDULES[3:4])
def test_attention_gives_the_numbers_of_the_text(options: dict[str, object]) -> None:
    case = attention(False, 2, 256, 3)
    q, k, v = case.args[:3]
    scale = float(np.float32(np.log2(np.e) / np.sqrt(128)))
    kernel = example("attention_sm90").attention
    kernel[(3,)](q, k, v, case.result, 2, 256, scale, **options)
    assert case.is_right()


def causal_case(length: int) -> tuple[list[object], np.ndarray, np.ndarray]:
    """Arguments of the causal kernel for one head, the result, and attention in f64."""
    rng = np.random.default_rng(length)
    q, k, v = (rng.standard_normal((1, length, 128)).astype(ml_dtypes.bfloat16) for _ in range(3))
    o = np.full_like(q, np.nan)
    scores = np.einsum("hid,hjd->hij", q.astype(float), k.astype(float)) / np.sqrt(128)
    scores = np.where(np.triu(np.ones((length, length), bool), 1), -np.inf, scores)
    weights = np.exp(scores - scores.max(-1, keepdims=True))
    weights /= weights.sum(-1, keepdims=True)
    scale = float(np.float32(np.log2(np.e) / np.sqrt(128)))
    counter = np.zeros(1, np.int32)
    return [q, k, v, o, 1, length, scale, counter], o, weights @ v.astype(float)


@pytest.mark.parametrize("options", SCHEDULES)
def test_causal_attention_is_right(options: dict[str, object]) -> None:
    args, o, wanted = causal_case(250)
    example("attention_causal_sm90").attention[(2,)](*args, 1, **options)
    assert np.linalg.norm(o.astype(float) - wanted) < 2.5e-3 * np.linalg.norm(wanted)
    assert args[-1] == 0


def test_causal_attention_is_right_in_the_executor_of_ptx() -> None:
    args, o, wanted = causal_case(100)
    code = lowered(example("attention_causal_sm90").attention.build(together=1))
    named = dict(zip(code.host.arguments, args, strict=True))
    values = {
        n: v.view(np.uint16) if isinstance(v, np.ndarray) and v.itemsize == 2 else v
        for n, v in named.items()
    }
    launch(code, 1, **values)  # type: ignore[arg-type]
    assert np.linalg.norm(o.astype(float) - wanted) < 2.5e-3 * np.linalg.norm(wanted)


@pytest.mark.parametrize("options", SCHEDULES)
def test_the_staggered_gemm_gives_the_bits_of_the_text(options: dict[str, object]) -> None:
    case = gemm("gemm_gfx942", 256, 256, 160, (1,), 32)
    case.run()
    a, b, c, *sizes = case.args
    from_python = np.full_like(c, np.nan)
    example("gemm_gfx942").gemm[case.grid](a, b, from_python, *sizes, **options)
    assert case.is_right()
    assert np.array_equal(from_python.view(np.uint32), c.view(np.uint32))


def counted(kernel: Kernel) -> Counter[str]:
    """How often a lowered kernel has each instruction that matters for its form."""
    text = lower(kernel, str(kernel.attributes["target"])).ptx
    found = re.findall(
        r"(wgmma\.\w+|cp\.async\.bulk\.\w+|stmatrix|mbarrier\.\w+|bar\.sync|setmaxnreg\.\w+)", text
    )
    return Counter(found)


@pytest.mark.skipif(find_ptxas() is None, reason="needs ptxas")
@pytest.mark.parametrize(
    ("module", "name", "registers"),
    [
        ("gemm_sm90", "gemm", 168),
        ("attention_sm90", "attention", 168),
        ("attention_causal_sm90", "attention", 128),
    ],
)
def test_ptxas_has_nothing_to_say(module: str, name: str, registers: int) -> None:
    kernel = getattr(example(module), name).build()
    _, report = assemble(lowered(kernel).ptx, "sm_90a")
    assert (report.spill_bytes, report.remarks, report.registers) == (0, (), registers)


def test_the_gemm_has_the_instructions_of_the_text() -> None:
    ours = counted(example("gemm_sm90").gemm.build())
    # Four steps of k, one wait with a product in flight and one without; four pieces leave.
    assert ours["wgmma.mma_async"] == 4
    assert ours["wgmma.wait_group"] == 2
    assert ours["cp.async.bulk.tensor"] == 6
    assert ours["stmatrix"] == 16
    assert ours["bar.sync"] == 8


def test_products_stay_in_flight_and_accumulators_stay_put() -> None:
    text = lowered(example("gemm_sm90").gemm.build()).ptx
    assert re.findall(r"wgmma.wait_group.sync.aligned (\d)", text) == ["1", "0"]
    assert len(set(re.findall(r"mma_async\S+ \{([^}]*)\}", text))) == 1


def test_kernels_are_built_once() -> None:
    gemm_kernel = example("gemm_sm90").gemm
    assert gemm_kernel.build(group=8) is gemm_kernel.build(group=8)
    assert gemm_kernel.build(group=8) is not gemm_kernel.build(group=16)


def test_bf16_arrays_are_taken() -> None:
    kernel = example("gemm_sm90").gemm
    a, b = (np.ones((256, 64), ml_dtypes.bfloat16) for _ in range(2))
    c = np.zeros((256, 256), ml_dtypes.bfloat16)
    kernel[(2,)](a, b, c, 256, 256, 64, 2)
    assert np.all(c == 64)
