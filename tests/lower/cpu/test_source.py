"""What the generated source says: fused loops, places, products where they lie."""

from __future__ import annotations

import re

import numpy as np
import pytest
from numba import cfunc, types

import reftile
import reftile.lang as ct
from reftile.lower.cpu.emit import generate
from reftile.rt.cpu.code import namespace

ZERO = ct.PaddingMode.ZERO


@reftile.kernel
def axpy(x, y, out, tile: ct.Constant[int]):
    i = ct.bid(0)
    ct.store(out, (i,), ct.load(x, (i,), (tile,)) * 2.0 + ct.load(y, (i,), (tile,)))


@reftile.kernel
def softmax(x, out, rows: ct.Constant[int], width: ct.Constant[int]):
    i = ct.bid(0)
    row = ct.load(x, (i, 0), (rows, width), padding_mode=ct.PaddingMode.NEG_INF)
    powers = ct.exp(row - ct.max(row, axis=1, keepdims=True))
    ct.store(out, (i, 0), powers / ct.sum(powers, axis=1, keepdims=True))


@reftile.kernel
def matmul(a, b, c, m: ct.Constant[int], n: ct.Constant[int], k: ct.Constant[int]):
    i, j = ct.bid(0), ct.bid(1)
    acc = ct.zeros((m, n), ct.float32)
    for s in range(ct.num_tiles(a, 1, (m, k))):
        x = ct.load(a, (i, s), (m, k), padding_mode=ZERO)
        y = ct.load(b, (s, j), (k, n), padding_mode=ZERO)
        acc = ct.mma(x, y, acc)
    ct.store(c, (i, j), acc)


@reftile.kernel
def in_place(x, tile: ct.Constant[int]):
    i = ct.bid(0)
    ct.store(x, (i,), ct.load(x, (i,), (tile,)) + 1.0)


def source_of(kernel: reftile.KernelFunction, *arguments: object) -> str:
    return generate(kernel.trace(*arguments)).source


def vectors(count: int, size: int = 1024) -> list[np.ndarray]:
    return [np.zeros(size, np.float32) for _ in range(count)]


def loops(source: str) -> int:
    return len(re.findall(r"^ *for x\d+ in ", source, re.MULTILINE))


def test_elementwise_trees_are_one_loop_and_one_for_the_edge() -> None:
    source = source_of(axpy, *vectors(3), 128)
    assert loops(source) == 2
    assert "pointer(scratch" not in source


def test_masks_stand_at_the_edge_only() -> None:
    source = source_of(axpy, *vectors(3), 128)
    whole, edge = source.split("            else:")
    assert " masked_load" not in whole.split("for x0")[1]
    assert "masked_load" in edge


def test_a_sum_and_what_it_sums_are_computed_in_one_loop() -> None:
    x = np.zeros((8, 256), np.float32)
    source = source_of(softmax, x, x.copy(), 1, 256)
    passes = re.findall(r"exp32\(", source)
    assert len(passes) == 2, "once without masks, once with"
    assert "addf_any_order" in source and "maxnum" in source


def test_products_are_added_to_where_the_accumulator_lies() -> None:
    a = np.zeros((64, 64), np.float32)
    source = source_of(matmul, a, a.copy(), a.copy(), 32, 32, 16)
    places = source.count("= pointer(scratch")
    assert places == 4, "the accumulator, padded copies of both operands, products of neighbours"


def test_a_loop_that_is_a_product_is_one_call() -> None:
    a = np.zeros((64, 64), np.float32)
    source = source_of(matmul, a, a.copy(), a.copy(), 32, 32, 16)
    before = source[: source.index("for k0")]
    assert "sgemm(blas_sgemm, False, False, (32), (32)" in before


def test_what_is_overwritten_in_place_is_not_copied() -> None:
    source = source_of(in_place, np.zeros(256, np.float32), 64)
    assert "pointer(scratch" not in source


def test_long_rows_have_a_way_past_the_caches() -> None:
    assert "streams" not in source_of(axpy, *vectors(3), 512)
    source = source_of(axpy, *vectors(3), 1024)
    way = source[source.index("if streams") : source.index("else:")]
    assert "lanes(8)" in way and "stream_32(" in way and way.rstrip().endswith("fence()")


@pytest.mark.parametrize(
    ("kernel", "arguments"),
    [
        (axpy, (*vectors(3), 128)),
        (axpy, (*vectors(3), 1024)),
        (softmax, (np.zeros((8, 256), np.float32), np.zeros((8, 256), np.float32), 4, 256)),
        (matmul, (*(np.zeros((64, 64), np.float32) for _ in range(3)), 32, 32, 16)),
    ],
)
def test_numba_takes_the_source_as_it_stands(kernel, arguments) -> None:
    scope = namespace()
    exec(source_of(kernel, *arguments), scope)
    made = cfunc(types.int64(scope["BASE"], types.int64), error_model="numpy")(scope["run"])
    assert made.address
