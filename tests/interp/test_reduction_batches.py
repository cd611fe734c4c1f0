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
