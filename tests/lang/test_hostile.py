"""Kernels that would hang, exhaust memory or hide what they do are diagnosed instead."""

from __future__ import annotations

import os
import random
from typing import Any

import numpy as np
import pytest

import reftile
import reftile.lang as ct
from reftile import ReftileError


def rule_of(kernel: Any, *args: Any) -> str:
    with pytest.raises(ReftileError) as error:
        kernel.trace(*args)
    return error.value.diagnosis.rule


@reftile.kernel
def unrolls_too_much(x):
    for i in ct.static_iter(range(10**12)):
        ct.store(x, (i,), 0.0)


@reftile.kernel
def lists_too_much(x):
    found = [i for i in range(10**12)]  # noqa: C416
    ct.store(x, (0,), found[0])


@reftile.kernel
def large_power(x):
    ct.store(x, (0,), 10 ** (10**9))


@reftile.kernel
def large_shift(x):
    ct.store(x, (0,), 1 << (10**12))


@reftile.kernel
def long_tuple(x):
    many = (1,) * (10**12)
    ct.store(x, (0,), many[0])


@reftile.kernel
def powers_of_powers(x):
    y = 10
    for _ in ct.static_iter(range(60)):
        y = y * y
    ct.store(x, (0,), y)


@pytest.mark.parametrize(
    "kernel", [unrolls_too_much, lists_too_much, large_power, large_shift, long_tuple]
)
def test_constants_that_would_exhaust_memory_are_diagnosed(kernel: Any) -> None:
    assert rule_of(kernel, np.zeros(4, np.float32)).startswith("lang.")


def test_a_number_that_grows_without_end_is_diagnosed() -> None:
    assert rule_of(powers_of_powers, np.zeros(4, np.float32)) == "lang.static"


@reftile.kernel
def copy(x, y, tile: ct.Constant):
    ct.store(y, (0,), ct.load(x, (0,), (tile,), padding_mode=ct.PaddingMode.ZERO))


@reftile.kernel
def spread(y, tile: ct.Constant):
    ct.store(y, (0,), ct.sum(ct.broadcast_to(ct.full((1,), 1.0, ct.float32), (tile,))))


@pytest.mark.parametrize("size", [1 << 27, 1 << 40, 1 << 62, 1 << 70])
def test_a_tile_that_would_exhaust_memory_is_diagnosed(size: int) -> None:
    x = np.zeros(4, np.float32)
    assert rule_of(copy, x, x, size) == "lang.shape.size"
    assert rule_of(spread, x, size) == "lang.shape.size"


@reftile.kernel
def runs_a_program(x):
    os.system("echo surprise")


@reftile.kernel
def draws_at_compile_time(x):
    ct.store(x, (0,), random.random())


@reftile.kernel
def draws_with_numpy(x):
    ct.store(x, (0,), np.random.rand())


@reftile.kernel
def opens_a_file(x):
    open("surprise", "w")  # noqa: SIM115


@pytest.mark.parametrize(
    "kernel", [runs_a_program, draws_at_compile_time, draws_with_numpy, opens_a_file]
)
def test_functions_with_effects_are_not_called_while_tracing(kernel: Any) -> None:
    assert rule_of(kernel, np.zeros(4, np.float32)) == "lang.call"


@reftile.kernel
def computes_with_text(x):
    ct.store(x, (0,), len("a,b".split(",")) + "abc".index("c") + sorted((3, 1))[0])


def test_methods_of_constants_are_called() -> None:
    x = np.zeros(1, np.float32)
    computes_with_text[1](x)
    assert x[0] == 5


def test_a_lambda_is_no_kernel() -> None:
    with pytest.raises(ReftileError) as error:
        reftile.kernel(lambda x: ct.store(x, (0,), 0.0))
    assert error.value.diagnosis.rule == "lang.kernel"


def test_a_coroutine_is_no_kernel() -> None:
    async def later(x):
        ct.store(x, (0,), 0.0)

    with pytest.raises(ReftileError) as error:
        reftile.kernel(later)
    assert error.value.diagnosis.rule == "lang.kernel"
