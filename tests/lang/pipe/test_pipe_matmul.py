"""The product written with copy, Pipelined and gemm: right everywhere, at its expected form."""

from __future__ import annotations

import re
from typing import Any

import numpy as np
import pytest

from reftile.ir.print import show
from reftile.lang.pipe.kernels import PipeKernel
from reftile.lower.ptx.assemble import assemble, find_ptxas
from tests.interp.pipe.pipe_kernels import SCHEDULES
from tests.lang.pipe.pipe_python import TARGETS, example, lowered, product_bound, run_on_machine

SIZES = ((128, 128, 64), (200, 136, 88), (1, 8, 8))
"""Whole tiles, ragged ones, one row; rows begin at multiples of 16 bytes."""


def matmul(target: str) -> PipeKernel:
    return example("matmul").matmul.for_target(target)


def operands(m: int, n: int, k: int) -> tuple[Any, Any, Any]:
    draw = np.random.default_rng(m + n + k)
    a, b = (draw.standard_normal(s).astype(np.float16) for s in ((m, k), (k, n)))
    return a, b, np.full((m, n), np.nan, np.float16)


@pytest.mark.parametrize("stages", [1, 2, 3, 5])
@pytest.mark.parametrize("target", TARGETS)
def test_it_is_right_under_every_schedule(target: str, stages: int) -> None:
    for size in SIZES:
        a, b, c = operands(*size)
        wanted, bound = product_bound(a, b, c.dtype)
        bits: set[bytes] = set()
        for options in SCHEDULES:
            c[:] = np.nan
            matmul(target)(a, b, c, 64, 64, 32, stages, **options)
            assert np.all(np.abs(c.astype(float) - wanted) <= bound), (size, options)
            bits.add(c.tobytes())
        assert len(bits) == 1


@pytest.mark.parametrize("block", [(128, 128, 32, 2), (64, 64, 64, 4), (64, 128, 32, 1)])
@pytest.mark.parametrize("target", TARGETS)
def test_ptx_gives_the_same(target: str, block: tuple[int, ...]) -> None:
    a, b, c = operands(200, 136, 88)
    wanted, bound = product_bound(a, b, c.dtype)
    run_on_machine(matmul(target), a, b, c, *block, seed=1)
    assert np.all(np.abs(c.astype(float) - wanted) <= bound)


@pytest.mark.skipif(find_ptxas() is None, reason="needs ptxas")
@pytest.mark.parametrize("target", TARGETS)
def test_ptxas_has_nothing_to_say(target: str) -> None:
    for block in ((128, 128, 32, 2), (128, 128, 64, 4)):
        found = matmul(target).specialise(*operands(128, 128, 128), *block)
        _, report = assemble(lowered(found.kernel).ptx, target)
        assert (report.spill_bytes, report.remarks) == (0, ())


def test_on_sm90a_it_is_bulk_copies_barriers_and_asynchronous_products() -> None:
    kernel = matmul("sm_90a").specialise(*operands(128, 128, 128)).kernel
    text = lowered(kernel).ptx
    # Two steps of k by two blocks of 64 rows; a load of A and two of B (a box is 128 bytes wide),
    # in front of the loop and in it.
    assert text.count("wgmma.mma_async") == 4
    assert text.count("cp.async.bulk.tensor.2d.shared") == 6
    assert re.findall(r"wgmma.wait_group.sync.aligned (\d)", text) == ["1", "0"]
    # The block meets once, when the barriers exist: a product completes for all four warps.
    assert text.count("bar.sync") + text.count("barrier.sync") == 1
    assert "cp.async.cg" not in text and "mma.sync" not in text


def test_on_sm80_it_is_copies_of_threads_and_products_of_warps() -> None:
    kernel = matmul("sm_80").specialise(*operands(128, 128, 128)).kernel
    text = lowered(kernel).ptx
    assert re.findall(r"cp.async.wait_group (\d)", text) == ["0"]
    assert text.count("cp.async.cg") == 2 * (4 + 4)
    # B lies the other way: its matrices are turned on the way.
    assert ".trans" in text
    assert text.count("mma.sync") == 2 * 4 * 8
    assert text.count("bar.sync") == 1
    assert "bulk" not in text and "wgmma" not in text


def test_stages_are_as_many_as_asked_for() -> None:
    for stages in (1, 2, 4):
        kernel = matmul("sm_80").specialise(*operands(128, 128, 128), 128, 128, 32, stages).kernel
        assert f"ring<{stages}, buffer<128x32xf16" in show(kernel)


def test_sizes_are_no_part_of_the_kernel() -> None:
    kernel = matmul("sm_90a")
    first = kernel.specialise(*operands(128, 128, 64)).kernel
    assert kernel.specialise(*operands(200, 136, 88)).kernel is first


def test_the_grid_follows_from_the_arguments() -> None:
    kernel = matmul("sm_90a")
    assert kernel.grid_of(kernel.specialise(*operands(300, 136, 64))) == (2, 3, 1)


def test_it_takes_as_many_lines_as_elsewhere() -> None:
    """Eleven lines from the grid to the result: allocate 3, clear, loop 4, store, and two heads."""
    source = (example("matmul").__file__ or "").strip()
    with open(source, encoding="utf-8") as file:
        lines = file.read().split("with pipe.Kernel")[1].splitlines()
    assert len([line for line in lines if line.strip()]) == 10


# Several warpgroups

WARPGROUPS = ((128, 64, 32, 2, 256), (128, 128, 64, 3, 256), (192, 64, 32, 1, 384))


@pytest.mark.parametrize("tile", WARPGROUPS)
def test_warpgroups_share_the_rows(tile: tuple[int, ...]) -> None:
    for size in ((200, 136, 152), (64, 8, 8)):
        a, b, c = operands(*size)
        wanted, bound = product_bound(a, b, c.dtype)
        bits: set[bytes] = set()
        for options in SCHEDULES:
            c[:] = np.nan
            matmul("sm_90a")(a, b, c, *tile, **options)
            assert np.all(np.abs(c.astype(float) - wanted) <= bound), (size, options)
            bits.add(c.tobytes())
        assert len(bits) == 1


@pytest.mark.parametrize("tile", WARPGROUPS)
def test_warpgroups_share_the_rows_in_ptx(tile: tuple[int, ...]) -> None:
    a, b, c = operands(200, 136, 152)
    wanted, bound = product_bound(a, b, c.dtype)
    run_on_machine(matmul("sm_90a"), a, b, c, *tile, seed=2)
    assert np.all(np.abs(c.astype(float) - wanted) <= bound)


@pytest.mark.skipif(find_ptxas() is None, reason="needs ptxas")
def test_wide_tiles_of_two_warpgroups_do_not_spill() -> None:
    found = matmul("sm_90a").specialise(*operands(128, 256, 64), 128, 256, 64, 4, 256)
    _, report = assemble(lowered(found.kernel).ptx, "sm_90a")
    assert (report.spill_bytes, report.remarks) == (0, ())
    assert report.registers <= 168
