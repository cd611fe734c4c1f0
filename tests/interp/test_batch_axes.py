"""Batches of whole rows of a grid: what depends on one axis of it is computed once along the other.

Each kernel runs on grids of one to three axes, all at once and in batches of a few blocks, and must
store what the checked path stores.
"""

from __future__ import annotations

from math import prod
from typing import Any

import numpy as np
import pytest

from reftile.interp import batched
from reftile.interp.batch import divide
from reftile.interp.launch import interpret
from reftile.ir.parse import parse
from tests.interp.tile_kernels import violation

GRIDS = [(5,), (4, 3), (1, 4), (3, 1, 2), (3, 2, 2), (2, 4, 3)]

HEAD = """
tile kernel @k(%data: tile<ptr<i32>>, %out: tile<ptr<i32>>, %nx: tile<i32>, %ny: tile<i32>) {
  %x, %y, %z = get_tile_block_id : tile<i32>, tile<i32>, tile<i32>
  %zero = constant {value = 0} : tile<i32>
  %one = constant {value = 1} : tile<i32>
  %two = constant {value = 2} : tile<i32>
  %ten = constant {value = 10} : tile<i32>
  %zy = muli %z, %ny : tile<i32>
  %row = addi %zy, %y : tile<i32>
  %before = muli %row, %nx : tile<i32>
  %block = addi %before, %x : tile<i32>
  %mine = offset %out, %block : tile<ptr<i32>>
  %xten = muli %x, %ten : tile<i32>
  %even = remi %x, %two {signedness = signed} : tile<i32>
  %is_even = cmpi %even, %zero {predicate = equal, signedness = signed} : tile<i1>
  %first_row = cmpi %y, %zero {predicate = equal, signedness = signed} : tile<i1>
  %places = iota : tile<4xi32>
"""
TAIL = """
  %done = store_ptr_tko %mine, %result {ordering = weak} : token
  return
}
"""
BODIES = {
    "pointers of one axis": """
  %p = offset %data, %x : tile<ptr<i32>>
  %q = offset %data, %y : tile<ptr<i32>>
  %a, %ta = load_ptr_tko %p {ordering = weak} : tile<i32>, token
  %b, %tb = load_ptr_tko %q {ordering = weak} : tile<i32>, token
  %a10 = muli %a, %ten : tile<i32>
  %result = addi %a10, %b : tile<i32>
""",
    "a branch on one axis": """
  %result = if %is_even : tile<i32> then {
    yield %y
  } otherwise {
    %s = addi %xten, %z : tile<i32>
    yield %s
  }
""",
    "branches within a branch": """
  %result = if %is_even : tile<i32> then {
    %r = if %first_row : tile<i32> then {
      yield %xten
    } otherwise {
      %s = addi %xten, %y : tile<i32>
      yield %s
    }
    yield %r
  } otherwise {
    yield %row
  }
""",
    "a loop whose end depends on one axis": """
  %r = for %zero, %x, %one, [%y] : tile<i32> body(%i: tile<i32>, %acc: tile<i32>) {
    %t = addi %acc, %i : tile<i32>
    %u = addi %t, %z : tile<i32>
    continue %u
  }
  %result = addi %r, %row : tile<i32>
""",
    "a loop whose beginning depends on the block": """
  %end = addi %block, %two : tile<i32>
  %result = for %block, %end, %one, [%zero] : tile<i32> body(%i: tile<i32>, %acc: tile<i32>) {
    %t = addi %acc, %i : tile<i32>
    continue %t
  }
""",
    "a loop that some blocks leave": """
  %result = loop %zero : tile<i32> body(%i: tile<i32>) {
    %over = cmpi %i, %x {predicate = greater_than_or_equal, signedness = signed} : tile<i1>
    if %over then {
      %r = addi %i, %row : tile<i32>
      break %r
    }
    %next = addi %i, %one : tile<i32>
    continue %next
  }
""",
    "blocks that return early": """
  if %first_row then {
    if %is_even then {
      return
    }
    yield
  }
  %result = addi %block, %one : tile<i32>
""",
    "a function that differs along one axis": """
  %ones = constant {value = [1, 2, 3, 4]} : tile<4xi32>
  %result = reduce %ones {axis = 0, identities = [0]} : tile<i32> combine(
      %e: tile<i32>, %acc: tile<i32>) {
    %sum = addi %acc, %e : tile<i32>
    %s = select %is_even, %sum, %e : tile<i32>
    %t = addi %s, %y : tile<i32>
    yield %t
  }
""",
    "a scan of what depends on the row": """
  %yr = reshape %y : tile<1xi32>
  %y4 = broadcast %yr : tile<4xi32>
  %sums = scan %y4 {axis = 0, identities = [0]} : tile<4xi32> combine(
      %e: tile<i32>, %acc: tile<i32>) {
    %sum = addi %acc, %e : tile<i32>
    %t = addi %sum, %x : tile<i32>
    yield %t
  }
  %last = extract %sums, [%even] : tile<1xi32>
  %result = reshape %last : tile<i32>
""",
    "memory of the block": """
  %own = alloca {num_elem = 1, alignment = 4} : tile<ptr<i32>>
  %t0 = store_ptr_tko %own, %xten {ordering = weak} : token
  %v, %t1 = load_ptr_tko %own, token=%t0 {ordering = weak} : tile<i32>, token
  %result = addi %v, %y : tile<i32>
""",
    "atomics that all blocks do": """
  %place = constant {value = 100} : tile<i32>
  %shared = offset %data, %place : tile<ptr<i32>>
  %old, %t1 = atomic_rmw_tko %shared, %y {
      ordering = relaxed, scope = device, mode = add} : tile<i32>, token
  %result = addi %block, %one : tile<i32>
""",
    "rows gathered": """
  %ten_t = make_tensor_view %data, [], [] : tensor_view<10x4xi32, strides=[4, 1]>
  %rows_v = make_gather_scatter_view %ten_t :
      gather_scatter_view<tile=(2x4), tensor_view<10x4xi32, strides=[4, 1]>, sparse_dim=0>
  %pair = iota : tile<2xi32>
  %yr = reshape %y : tile<1xi32>
  %y2 = broadcast %yr : tile<2xi32>
  %which = addi %pair, %y2 : tile<2xi32>
  %tile, %t1 = load_view_tko %rows_v, [%which, %zero] {ordering = weak} : tile<2x4xi32>, token
  %sums = reduce %tile {axis = 1, identities = [0]} : tile<2xi32> combine(
      %e: tile<i32>, %acc: tile<i32>) {
    %sum = addi %acc, %e : tile<i32>
    yield %sum
  }
  %one_of = extract %sums, [%one] : tile<1xi32>
  %s = reshape %one_of : tile<i32>
  %result = addi %s, %xten : tile<i32>
""",
    "ragged tiles of a view": """
  %t = make_tensor_view %data, [], [] : tensor_view<9x14xi32, strides=[14, 1]>
  %v = make_partition_view %t :
      partition_view<tile=(2x4), tensor_view<9x14xi32, strides=[14, 1]>, padding=zero>
  %tile, %t1 = load_view_tko %v, [%y, %x] {ordering = weak} : tile<2x4xi32>, token
  %sums = reduce %tile {axis = 1, identities = [0]} : tile<2xi32> combine(
      %e: tile<i32>, %acc: tile<i32>) {
    %sum = addi %acc, %e : tile<i32>
    yield %sum
  }
  %one_of = extract %sums, [%one] : tile<1xi32>
  %result = reshape %one_of : tile<i32>
""",
}


def launch(name: str, grid: tuple[int, ...], **options: Any) -> bytes:
    data = np.arange(128, dtype=np.int32) * 3 + 1
    x, y, _ = (*grid, 1, 1)[:3]
    out = np.full(prod(grid), -1, np.int32)
    interpret(parse(HEAD + BODIES[name] + TAIL), grid, [data, out, x, y], **options)
    return data.tobytes() + out.tobytes()


@pytest.mark.parametrize("grid", GRIDS)
@pytest.mark.parametrize("name", BODIES)
def test_batches_of_rows_store_what_single_blocks_do(
    name: str, grid: tuple[int, ...], monkeypatch: pytest.MonkeyPatch
) -> None:
    if name == "ragged tiles of a view" and (grid[0] > 4 or len(grid) == 1):
        grid = (4, 5)
    expected = launch(name, grid)
    assert launch(name, grid, check=False) == expected
    for most in (8, 24, 48):
        monkeypatch.setattr(batched, "MOST_ELEMENTS", most)
        assert launch(name, grid, check=False) == expected, most


def test_a_grid_is_divided_into_whole_rows_where_several_fit() -> None:
    def shapes(grid: tuple[int, int, int], most: int) -> list[tuple[int, ...]]:
        parts = list(divide(grid, most))
        together = np.concatenate([blocks for blocks, _ in parts])
        assert together.tolist() == list(range(prod(grid)))
        assert all(blocks.size == prod(lead) <= most for blocks, lead in parts)
        return [lead for _, lead in parts]

    assert shapes((4, 4, 1), 100) == [(4, 4)]
    assert shapes((4, 3, 2), 10) == [(2, 4), (2, 4), (2, 4)]
    assert shapes((4, 5, 1), 8) == [(2, 4), (2, 4), (1, 4)]
    assert shapes((4, 3, 1), 5) == [(5,), (5,), (2,)]
    assert shapes((7, 1, 1), 3) == [(3,), (3,), (1,)]
    assert shapes((1, 7, 1), 4) == [(4,), (3,)]


def test_of_blocks_that_store_to_one_place_the_last_stays() -> None:
    text = """
tile kernel @k(%o: tile<ptr<i32>>, %p: tile<ptr<i32>>) {
  %x, %y, %z = get_tile_block_id : tile<i32>, tile<i32>, tile<i32>
  %zero = constant {value = 0} : tile<i32>
  %ten = constant {value = 10} : tile<i32>
  %y10 = muli %y, %ten : tile<i32>
  %s = addi %y10, %x : tile<i32>
  %r = reshape %s : tile<1xi32>
  %t = make_tensor_view %o, [], [] : tensor_view<4xi32, strides=[1]>
  %v = make_partition_view %t : partition_view<tile=(1), tensor_view<4xi32, strides=[1]>>
  %t1 = store_view_tko %r, %v, [%x] {ordering = weak} : token
  %q = offset %p, %y : tile<ptr<i32>>
  %t2 = store_ptr_tko %q, %s {ordering = weak} : token
  return
}
"""
    by_column, by_row = np.zeros(4, np.int32), np.zeros(3, np.int32)
    interpret(parse(text), (4, 3), [by_column, by_row], check=False)
    assert by_column.tolist() == [20, 21, 22, 23]
    assert by_row.tolist() == [3, 13, 23]
    same = parse(text.replace("%v, [%x]", "%v, [%zero]"))
    interpret(same, (4, 3), [by_column, by_row], check=False)
    assert by_column[0] == 23


TRIPS = """
tile kernel @k(%o: tile<ptr<i64>>, %lower: tile<i64>, %upper: tile<i64>, %step: tile<i64>) {
  %x, %y, %z = get_tile_block_id : tile<i32>, tile<i32>, tile<i32>
  %wide = exti %x {signedness = signed} : tile<i64>
  %from = addi %lower, %wide : tile<i64>
  %zero = constant {value = 0} : tile<i64>
  %one = constant {value = 1} : tile<i64>
  %n = for %START, %upper, %step, [%zero] FLAG : tile<i64> body(%i: tile<i64>, %acc: tile<i64>) {
    %t = addi %acc, %one : tile<i64>
    continue %t
  }
  %p = offset %o, %x : tile<ptr<i64>>
  %t = store_ptr_tko %p, %n {ordering = weak} : token
  return
}
"""
LIMIT = 1 << 63


@pytest.mark.parametrize("start", ["from", "lower"])
@pytest.mark.parametrize(
    ("unsigned", "lower", "upper", "step"),
    [
        (False, LIMIT - 5, LIMIT - 1, 2),
        (False, -LIMIT, LIMIT - 1, LIMIT - 1),
        (False, LIMIT - 5, LIMIT - 1, LIMIT - 1),
        (True, LIMIT - 2, LIMIT + 3, 2),
        (True, 2 * LIMIT - 9, 2 * LIMIT - 1, 3),
        (True, 5, 3, 1),
    ],
)
def test_loops_near_the_ends_of_their_type_run_as_often_in_both_paths(
    start: str, unsigned: bool, lower: int, upper: int, step: int
) -> None:
    text = TRIPS.replace("%START", f"%{start}")
    text = text.replace("FLAG", "{unsigned_cmp = true}" if unsigned else "")
    expected, found = np.zeros(3, np.int64), np.zeros(3, np.int64)
    interpret(parse(text), 3, [expected, lower, upper, step])
    interpret(parse(text), 3, [found, lower, upper, step], check=False)
    assert found.tolist() == expected.tolist()
    first = range(lower, upper, step)
    assert expected[0] == len(first)


def test_a_step_that_is_not_positive_is_refused_in_batches() -> None:
    text = TRIPS.replace("%START", "%lower").replace("FLAG", "")
    out = np.zeros(3, np.int64)
    assert violation(parse(text), 3, [out, 0, 5, 0], check=False).rule == "for.step"
    assert violation(parse(text), 3, [out, 0, 5, -2], check=False).rule == "for.step"
