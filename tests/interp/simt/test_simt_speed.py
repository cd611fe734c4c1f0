"""A tile step of a GEMM is interpreted soon enough to be tried by hand."""

from __future__ import annotations

import time

from reftile.interp.launch import interpret
from reftile.ir.parse import parse
from reftile.lower.pipeline import lower
from tests.lower.hard_inputs import Product, read


def test_a_gemm_tile_step_of_384_threads_takes_less_than_a_second() -> None:
    """128 x 256 x 64 for each of two blocks, in seconds of the processor; the best of three."""
    case = Product("gemm_sm90", 256, 256, 64, 0)
    kernel = parse(read(case.name), "gemm_sm90.tile").kernel()
    order = [a.name for a in kernel.arguments]
    assert kernel.attributes["warps"] == 12
    threads = lower(kernel, "sm_90a").passes.kernel
    times: list[float] = []
    for _ in range(3):
        start = time.thread_time()
        report = interpret(threads, 2, [case.arguments[n] for n in order])
        times.append(time.thread_time() - start)
        assert report.blocks == 2
    assert min(times) < 1.0, times
