"""The Hopper GEMM from pipe to PTX: right in the executor, clean in ptxas, of the right form."""

from __future__ import annotations

import re

import numpy as np
import pytest

from reftile.ir.dtypes import DTYPES, F64
from reftile.ir.numbers import convert, decode, encode
from reftile.ir.parse import parse
from reftile.lower.pipeline import lower
from reftile.lower.ptx.assemble import assemble, find_ptxas
from tests.lower.on_machine import DEVICE_LOG, EXAMPLES, from_bits, launch, lowered, to_bits

E4M3 = DTYPES["f8e4m3"]
SMALL_GROUPS = ("%sixteen = constant {value = 16}", "%sixteen = constant {value = 2}")
"""Groups of 2 rows of tiles instead of 16, so that 5 rows of tiles make three groups."""


def multiply(m: int, n: int, k: int, grid: int, seed: int) -> tuple[np.ndarray, np.ndarray]:
    """The result in the executor, and the exact one."""
    rng = np.random.default_rng(seed)
    a, b = to_bits(rng.standard_normal((m, k))), to_bits(rng.standard_normal((n, k)))
    c = np.full((m, n), 0x7FC0, np.uint16)
    launch(lowered("gemm_sm90", SMALL_GROUPS), grid, seed, a=a, b=b, c=c, m=m, n=n, k=k)
    return from_bits(c), from_bits(a) @ from_bits(b).T


@pytest.mark.parametrize(("n", "k", "seed"), [(256, 64, 0), (512, 448, 1)])
def test_the_product_is_right(n: int, k: int, seed: int) -> None:
    found, exact = multiply(256, n, k, 2, seed)
    # bf16 keeps 8 bits: half a unit in the last place of each element.
    assert np.all(np.abs(found - exact) <= 2.0**-8 * np.abs(exact) + 2.0**-8)


def test_tiles_in_several_groups_are_right() -> None:
    found, exact = multiply(600, 264, 72, 4, 2)
    assert np.all(np.abs(found - exact) <= 2.0**-8 * np.abs(exact) + 2.0**-8)


def test_descriptors_hold_no_rank() -> None:
    """In a cluster a shared address has the rank above bit 24, which is not for descriptors."""
    text = lowered("gemm_nn_sm90").ptx
    made = re.findall(r"(\S+) (%chunk_\d+), %\w+, 4(?:, 14)?;\n  cvt.u64.u32", text)
    assert [op for op, _ in made] == ["bfe.u32", "bfe.u32"]


def test_the_product_of_8_bit_floats_is_right() -> None:
    path = EXAMPLES.parents[1] / "bench" / "kernels" / "gemm_fp8_sm90.tile"
    text = path.read_text(encoding="utf-8").replace(*SMALL_GROUPS)
    kernel = lower(parse(text, path.name).kernel(), "sm_90a")
    rng = np.random.default_rng(0)
    m, n, k = 256, 256, 256
    a, b = (
        np.asarray(encode(convert(rng.standard_normal(s), F64, E4M3), E4M3))
        for s in ((m, k), (n, k))
    )
    c = np.full((m, n), 0x7FC0, np.uint16)
    launch(kernel, 2, a=a, b=b, c=c, m=m, n=n, k=k)
    left, right = (np.asarray(decode(x, E4M3), np.float64) for x in (a, b))
    exact = left @ right.T
    # The executor's sums are exact; Hopper's keep 13 bits of 32 products at a time.
    wide = k // 32 * 33 * 2.0**-13 * (np.abs(left) @ np.abs(right).T) if DEVICE_LOG else 2.0**-8
    assert np.all(np.abs(from_bits(c) - exact) <= 2.0**-8 * np.abs(exact) + wide)


def test_products_stay_in_flight_across_iterations() -> None:
    text = lowered("gemm_sm90").ptx
    assert text.count("wgmma.mma_async") == 4
    assert re.findall(r"wgmma.wait_group.sync.aligned (\d)", text) == ["1", "0"]
    accumulators = set(re.findall(r"mma_async\S+ \{([^}]*)\}", text))
    assert len(accumulators) == 1, "the accumulator must not move"


def test_what_crosses_blocks_is_relaxed() -> None:
    text = lowered("gemm_sm90").ptx
    assert ".release.cluster" not in text.replace("fence.mbarrier_init.release.cluster", "")
    assert "acquire.cluster" not in text
    assert text.count("mbarrier.arrive.shared::cluster.b64") == 2


def test_barriers_are_those_that_tokens_need() -> None:
    # Two for each of four parts of the result: its buffer is free, its elements are written.
    assert lowered("gemm_sm90").ptx.count("bar.sync") == 8


def test_boxes_follow_from_layouts() -> None:
    maps = {p.name: p for p in lowered("gemm_sm90").host.parameters if hasattr(p, "box")}
    assert {n: (p.box, p.swizzle) for n, p in maps.items()} == {  # type: ignore[union-attr]
        "a_tiles_map": ((64, 128), 128),
        "b_halves_map": ((64, 128), 128),
        "c_tiles_map": ((64, 64), 128),
    }
    extents, strides = maps["a_tiles_map"].evaluate({"m": 2048, "k": 192})  # type: ignore[union-attr]
    assert (extents, strides) == ((192, 2048), (384,))


@pytest.mark.skipif(find_ptxas() is None, reason="needs ptxas")
def test_ptxas_has_nothing_to_say() -> None:
    _, report = assemble(lowered("gemm_sm90").ptx, "sm_90a")
    assert (report.spill_bytes, report.remarks, report.registers) == (0, (), 168)
