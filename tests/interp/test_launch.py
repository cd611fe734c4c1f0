"""What `interpret` is given: grids, schedules and scalars that cannot be are diagnosed."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from reftile.interp.launch import MOST_BLOCKS, interpret
from reftile.ir.diagnostics import ReftileError
from reftile.ir.parse import parse

NOTHING = parse("tile kernel @k() {\n  return\n}\n")
INTEGER = parse("tile kernel @k(%n: tile<i32>) {\n  return\n}\n")
FLOAT = parse("tile kernel @k(%x: tile<f32>) {\n  return\n}\n")


def rule_of(program: Any, grid: Any, args: Any, **options: Any) -> str:
    with pytest.raises(ReftileError) as error:
        interpret(program, grid, args, **options)
    return error.value.diagnosis.rule


@pytest.mark.parametrize(
    "grid", [None, "ab", 1.5, (1.5,), (float("nan"),), (), 0, (1, 1, 1, 1), (1 << 24,)]
)
def test_what_is_no_grid_is_diagnosed(grid: Any) -> None:
    assert rule_of(NOTHING, grid, []) == "launch.grid"


@pytest.mark.parametrize("check", [True, False])
def test_a_grid_that_would_never_end_is_refused(check: bool) -> None:
    axis = (1 << 24) - 1
    assert rule_of(NOTHING, (axis, axis, axis), [], check=check) == "launch.grid"


def test_a_schedule_that_keeps_all_blocks_at_hand_takes_fewer() -> None:
    assert rule_of(NOTHING, (MOST_BLOCKS["topo"] + 1,), [], schedule="topo") == "launch.grid"


def test_numbers_of_numpy_are_numbers_of_a_grid() -> None:
    pair: Any = (np.int64(2), np.int32(3))
    single: Any = np.int64(2)
    assert interpret(NOTHING, pair, []).blocks == 6
    assert interpret(NOTHING, single, []).blocks == 2


@pytest.mark.parametrize("options", [{"schedule": "random"}, {"seed": "x"}, {"seed": [1]}])
def test_an_unknown_schedule_or_seed_is_diagnosed(options: Any) -> None:
    assert rule_of(NOTHING, 1, [], **options) == "launch.schedule"


@pytest.mark.parametrize("value", [None, "3", "a", float("nan"), float("inf"), 1.5, 1j, b"1"])
def test_what_is_no_integer_is_diagnosed(value: Any) -> None:
    assert rule_of(INTEGER, 1, [value]) == "launch.arguments"


@pytest.mark.parametrize("value", [None, "3", 1j, 10**400])
def test_what_is_no_float_is_diagnosed(value: Any) -> None:
    assert rule_of(FLOAT, 1, [value]) == "launch.arguments"


def test_numbers_of_every_kind_are_scalars() -> None:
    for value in (3, 3.0, True, np.int8(3), np.float16(3), np.bool_(True)):
        interpret(INTEGER, 1, [value])
        interpret(FLOAT, 1, [value])


@pytest.mark.parametrize("check", [True, False])
@pytest.mark.parametrize("step", [0, -1])
def test_a_loop_that_does_not_advance_is_diagnosed_on_both_paths(check: bool, step: int) -> None:
    program = parse(
        """tile kernel @k(%step: tile<i32>) {
  %zero = constant {value = 0} : tile<i32>
  %ten = constant {value = 10} : tile<i32>
  for %zero, %ten, %step, [] body(%i: tile<i32>) {
    continue
  }
  return
}
"""
    )
    assert rule_of(program, 1, [step], check=check) == "for.step"


@pytest.mark.parametrize("check", [True, False])
def test_a_loop_that_never_ends_is_diagnosed_on_both_paths(check: bool) -> None:
    program = parse(
        """tile kernel @k(%n: tile<i32>) {
  %r = loop %n : tile<i32> body(%i: tile<i32>) {
    %next = muli %i, %i : tile<i32>
    continue %next
  }
  return
}
"""
    )
    assert rule_of(program, 2, [1], check=check) == "loop.endless"


LOOKING = """tile kernel @k(%flag: tile<ptr<i32>>, %n: tile<i32>) {
  %zero = constant {value = 0} : tile<i32>
  %one = constant {value = 1} : tile<i32>
  %x, %y, %z = get_tile_block_id : tile<i32>, tile<i32>, tile<i32>
  %r = loop %x : tile<i32> body(%i: tile<i32>) {
    %v, %t = load_ptr_tko %flag {ordering = weak} : tile<i32>, token
    %is_set = cmpi %v, %zero {predicate = not_equal, signedness = signed} : tile<i1>
    if %is_set then {
      break %i
    }
    %up = addi %i, %one : tile<i32>
    %next = remi %up, %n {signedness = signed} : tile<i32>
    continue %next
  }
  return
}
"""


@pytest.mark.parametrize("period", [1, 2, 7])
@pytest.mark.parametrize("check", [True, False])
def test_a_loop_that_looks_at_memory_for_ever_is_diagnosed(check: bool, period: int) -> None:
    program, flag = parse(LOOKING), np.zeros(1, np.int32)
    assert rule_of(program, 3, [flag, period], check=check) == "loop.endless"
    flag[0] = 1
    interpret(program, 3, [flag, period], check=check)


@pytest.mark.parametrize("schedule", ["topo", "adversarial"])
def test_so_it_is_under_every_schedule(schedule: Any) -> None:
    program, flag = parse(LOOKING), np.zeros(1, np.int32)
    assert rule_of(program, 2, [flag, 3], schedule=schedule) == "loop.endless"


@pytest.mark.parametrize("check", [True, False])
@pytest.mark.parametrize("count", [(1 << 63) - 1, 100_000_000_000, 1 << 28])
def test_memory_is_not_exhausted_without_a_word(count: int, check: bool) -> None:
    text = f"""tile kernel @k() {{
  %a = alloca {{num_elem = {count}, alignment = 4}} : tile<ptr<f32>>
  %b = alloca {{num_elem = 1, alignment = 4}} : tile<ptr<f32>>
  return
}}
"""
    assert rule_of(parse(text), 1, [], check=check) == "alloca.memory"


def test_memory_of_blocks_that_have_ended_counts_no_more() -> None:
    text = """tile kernel @k() {
  %a = alloca {num_elem = 16777216, alignment = 4} : tile<ptr<f32>>
  return
}
"""
    interpret(parse(text), 20, [])
