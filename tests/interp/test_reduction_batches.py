"""Reductions and scans of several tiles of which only some differ between blocks."""

import numpy as np
import pytest

from reftile.interp.launch import interpret
from reftile.ir.parse import parse

REDUCE = """
tile kernel @k(%p: tile<ptr<f32>>) {
  %x, %y, %z = get_tile_block_id : tile<i32>, tile<i32>, tile<i32>
  %a = constant {value = 2.0} : tile<2xf32>
  %one = reshape %x : tile<1xi32>
  %b = broadcast %one : tile<2xi32>
  OPERATION combine(%e: tile<f32>, %f: tile<f32>, %g: tile<i32>, %h: tile<i32>) {
    yield %e, %g
  }
  %zero = constant {value = 0} : tile<i32>
  %one_more = constant {value = 1} : tile<i32>
  RESULT
  %q = offset %p, %x : tile<ptr<f32>>
  %first = cmpi %x, %zero {predicate = equal, signedness = signed} : tile<i1>
  if %first then {
    %t = store_ptr_tko %q, %r {ordering = weak} : token
    yield
  } otherwise {
    %s = negf %r : tile<f32>
    %t = store_ptr_tko %q, %s {ordering = weak} : token
    yield
  }
  return
}
"""
CASES = {
    "reduce": (
        "%r, %d = reduce %a, %b {axis = 0, identities = [1.0, -1]} : tile<f32>, tile<i32>",
        "",
    ),
    "scan": (
        "%c, %d = scan %a, %b {axis = 0, identities = [1.0, -1]} : tile<2xf32>, tile<2xi32>",
        "%l = extract %c, [%one_more] : tile<1xf32>\n  %r = reshape %l : tile<f32>",
    ),
}


@pytest.mark.parametrize("name", CASES)
@pytest.mark.parametrize("check", [True, False])
def test_a_tile_that_is_the_same_in_all_blocks(name: str, check: bool) -> None:
    operation, result = CASES[name]
    out = np.zeros(3, np.float32)
    text = REDUCE.replace("OPERATION", operation).replace("RESULT", result)
    interpret(parse(text), 3, [out], check=check)
    assert out.tolist() == [2.0, -2.0, -2.0]


CAPTURE = """
tile kernel @k(%p: tile<ptr<i32>>) {
  %x, %y, %z = get_tile_block_id : tile<i32>, tile<i32>, tile<i32>
  %a = constant {value = [1, 2, 3]} : tile<3xi32>
  %zero = constant {value = 0} : tile<i32>
  %first = cmpi %x, %zero {predicate = equal, signedness = signed} : tile<i1>
  %i = constant {value = 2} : tile<i32>
  OPERATION combine(%e: tile<i32>, %f: tile<i32>) {
    %sum = addi %f, %e : tile<i32>
    %s = select %first, %sum, %e : tile<i32>
    yield %s
  }
  RESULT
  %q = offset %p, %x : tile<ptr<i32>>
  %t = store_ptr_tko %q, %r {ordering = weak} : token
  return
}
"""
CAPTURING = {
    "reduce": ("%r = reduce %a {axis = 0, identities = [0]} : tile<i32>", ""),
    "scan": (
        "%c = scan %a {axis = 0, identities = [0]} : tile<3xi32>",
        "%l = extract %c, [%i] : tile<1xi32>\n  %r = reshape %l : tile<i32>",
    ),
}


@pytest.mark.parametrize("blocks", [1, 2, 3])
@pytest.mark.parametrize("name", CAPTURING)
@pytest.mark.parametrize("check", [True, False])
def test_a_function_that_differs_between_blocks(name: str, check: bool, blocks: int) -> None:
    operation, result = CAPTURING[name]
    out = np.zeros(blocks, np.int32)
    text = CAPTURE.replace("OPERATION", operation).replace("RESULT", result)
    interpret(parse(text), blocks, [out], check=check)
    assert out.tolist() == [6, 3, 3][:blocks]
