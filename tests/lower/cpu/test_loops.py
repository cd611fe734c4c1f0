# ruff: noqa: E501 (kernels as text)
"""Loops on the CPU: what goes round in them, counters of 64 bits, and long chains of operations."""

from __future__ import annotations

import numpy as np
import pytest

import reftile
import reftile.lang as ct
from reftile.interp.launch import interpret
from reftile.ir.parse import parse
from reftile.rt.cpu import launch_cpu

SUMS = """\
tile kernel @sums(%a: tensor_view<16x16xf32, strides=[16, 1]>,
                  %y: tensor_view<16x16xf32, strides=[16, 1]>) {
  %one = constant {value = 1.0} : tile<16x16xf32>
  %from = make_partition_view %a : partition_view<tile=(16x16), tensor_view<16x16xf32, strides=[16, 1]>>
  %to = make_partition_view %y : partition_view<tile=(16x16), tensor_view<16x16xf32, strides=[16, 1]>>
  %zero = constant {value = 0} : tile<i32>
  %start = make_token : token
  %sum, %end = loop %one, %zero, %start : tile<16x16xf32>, token body(%acc: tile<16x16xf32>, %i: tile<i32>, %at: token) {
    %next = constant {value = 1} : tile<i32>
    %last = constant {value = 3} : tile<i32>
    %x, %read = load_view_tko %from, [%zero, %zero] {ordering = weak} : tile<16x16xf32>, token
    %done = cmpi %i, %last {predicate = greater_than_or_equal, signedness = signed} : tile<i1>
    %j = addi %i, %next : tile<i32>
    if %done then {
      break %acc, %at
    }
    %z = addf %x, %x : tile<16x16xf32>
    %product = mmaf %x, %z, %acc : tile<16x16xf32>
    %both = addf %product, %acc : tile<16x16xf32>
    continue %both, %j, %at
  }
  %written = store_view_tko %sum, %to, [%zero, %zero], token=%end {ordering = weak} : token
  return
}
"""

TURNS = """\
tile kernel @turns(%n: tensor_view<1xi32, strides=[1]>, %lower: tile<i64>, %upper: tile<i64>, %step: tile<i64>) {
  %to = make_partition_view %n : partition_view<tile=(1), tensor_view<1xi32, strides=[1]>>
  %zero = constant {value = [0]} : tile<1xi32>
  %at = constant {value = 0} : tile<i32>
  %turns, %last = for %lower, %upper, %step, [%zero, %lower] {unsigned_cmp} : tile<1xi32>, tile<i64> body(%i: tile<i64>, %k: tile<1xi32>, %before: tile<i64>) {
    %one = constant {value = [1]} : tile<1xi32>
    %more = addi %k, %one : tile<1xi32>
    continue %more, %i
  }
  %t = store_view_tko %turns, %to, [%at] {ordering = weak} : token
  return
}
"""


def test_a_product_does_not_replace_an_accumulator_that_a_loop_reads_later() -> None:
    a = np.random.default_rng(2).integers(-3, 4, (16, 16)).astype(np.float32)
    expected, found = np.zeros((2, 16, 16), np.float32)
    interpret(parse(SUMS), (1,), [a, expected])
    launch_cpu(parse(SUMS), (1,), [a, found])
    assert np.array_equal(found, expected) and expected.any()


@reftile.kernel
def count(out, lower: ct.ScalarInt64, upper: ct.ScalarInt64, step: ct.ScalarInt64):
    turns = ct.full((), 0, ct.int32)
    for _ in range(lower, upper, step):
        turns = turns + 1
    ct.store(out, (0,), ct.reshape(turns, (1,)))


GREATEST = (1 << 63) - 1


@pytest.mark.parametrize(
    ("limits", "turns"),
    [
        ((0, 10, 3), 4),
        ((5, 5, 1), 0),
        ((5, 4, 1), 0),
        ((GREATEST - 10, GREATEST, 7), 2),
        ((GREATEST - 1, GREATEST, GREATEST), 1),
        ((-GREATEST - 1, GREATEST, GREATEST), 3),
    ],
)
def test_a_counter_of_64_bits_that_cannot_go_on_ends_its_loop(
    limits: tuple[int, int, int], turns: int
) -> None:
    out = np.zeros(1, np.int32)
    reftile.launch(count, (1,), (out, *limits), backend="cpu", check=False)
    assert out[0] == turns


@pytest.mark.parametrize(
    "limits",
    [(0, 1 << 63, 1 << 62), ((1 << 63) - 3, (1 << 63) + 4, 2), (1, (1 << 64) - 1, (1 << 64) - 2)],
)
def test_counters_of_64_bits_may_be_unsigned(limits: tuple[int, int, int]) -> None:
    expected, found = np.zeros((2, 1), np.int32)
    interpret(parse(TURNS), (1,), [expected, *limits])
    launch_cpu(parse(TURNS), (1,), [found, *limits])
    assert found == expected > 0


@reftile.kernel
def load_at(x, out, index: ct.ScalarInt64):
    ct.store(out, (0,), ct.load(x, (index,), (16,)))


@pytest.mark.parametrize("index", [1 << 60, (1 << 60) + 1, 1 << 62, -(1 << 60), -1, 4])
def test_an_index_that_wraps_with_its_tile_is_outside(index: int) -> None:
    x, out = np.ones(64, np.float32), np.zeros(16, np.float32)
    with pytest.raises(reftile.ReftileError) as caught:
        reftile.launch(load_at, (1,), (x, out, index), backend="cpu", check=False)
    assert caught.value.diagnosis.rule == "view.index" and not out.any()


@reftile.kernel
def long_chain(x, y, length: ct.Constant[int]):
    tile = ct.load(x, (0,), (128,))
    for k in ct.static_iter(range(length)):
        tile = tile * 0.5 + float(k)
    ct.store(y, (0,), tile)


def test_a_chain_of_operations_may_be_long() -> None:
    x = np.random.default_rng(3).standard_normal(100).astype(np.float32)
    expected, found = np.zeros((2, 100), np.float32)
    reftile.launch(long_chain, (1,), (x, expected, 600))
    reftile.launch(long_chain, (1,), (x, found, 600), backend="cpu", check=False)
    assert np.array_equal(found, expected)
