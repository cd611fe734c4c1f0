"""The examples of pipe kernels give the right numbers under every schedule, and soon."""

from __future__ import annotations

import time
from typing import Any

import numpy as np
import pytest

from tests.interp.pipe.pipe_kernels import (
    SCHEDULES,
    attention,
    gemm,
    gemm_gfx942,
    gemm_sm80,
    gemm_sm90,
)


@pytest.mark.parametrize("options", SCHEDULES)
def test_gemm_sm90_is_right(options: dict[str, Any]) -> None:
    case = gemm_sm90()
    report = case.run(**options)
    assert case.is_right()
    assert report.blocks == 2
    assert report.checked


def test_gemm_sm90_is_right_where_blocks_take_several_tiles() -> None:
    case = gemm("gemm_sm90", 2048, 256, 64, (4,), 64)
    case.run(schedule="topo", seed=5)
    assert case.is_right()


@pytest.mark.parametrize("options", SCHEDULES)
def test_gemm_sm80_is_right(options: dict[str, Any]) -> None:
    case = gemm_sm80()
    case.run(**options)
    assert case.is_right()


@pytest.mark.parametrize("options", SCHEDULES)
def test_gemm_gfx942_is_right(options: dict[str, Any]) -> None:
    case = gemm_gfx942()
    case.run(**options)
    assert case.is_right()


@pytest.mark.parametrize("options", SCHEDULES)
def test_attention_is_right(options: dict[str, Any]) -> None:
    case = attention(False, 2, 256, 3)
    case.run(**options)
    assert case.is_right()


@pytest.mark.parametrize("options", SCHEDULES)
def test_causal_attention_is_right(options: dict[str, Any]) -> None:
    case = attention(True, 8, 200, 3)
    case.run(**options)
    assert case.is_right()
    assert case.extra["counter"][0] == 0


def test_the_same_seed_gives_the_same_bits_and_operations() -> None:
    results: list[tuple[Any, int]] = []
    for _ in range(2):
        case = gemm_sm90()
        report = case.run(schedule="topo", seed=7)
        results.append((case.result.view(np.uint16), report.operations))
    assert np.array_equal(results[0][0], results[1][0])
    assert results[0][1] == results[1][1]


def test_without_races_all_schedules_give_the_same_bits() -> None:
    bits: set[bytes] = set()
    for options in SCHEDULES:
        case = gemm_sm80()
        case.run(**options)
        bits.add(case.result.tobytes())
    assert len(bits) == 1


def test_a_gemm_tile_step_of_384_threads_takes_less_than_a_second() -> None:
    """128 x 256 x 64 for each of two blocks, in seconds of the processor; the best of three."""
    case = gemm_sm90(k=64)
    times: list[float] = []
    for _ in range(3):
        start = time.thread_time()
        case.run()
        times.append(time.thread_time() - start)
    assert min(times) < 1.0


def test_unchecked_launches_find_no_races_and_say_so() -> None:
    case = gemm_sm90()
    assert not case.run(check=False).checked
    assert case.is_right()
