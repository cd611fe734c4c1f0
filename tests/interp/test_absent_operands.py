"""Pure operations whose optional operands are absent."""

import numpy as np
import pytest

from reftile.interp.launch import interpret
from reftile.ir.parse import parse

HISTOGRAM = """
tile kernel @count(%p: tile<ptr<i32>>, %n: tile<i32>) {
  %a = constant {value = 1} : tile<4xi32>
  %counts = histogram SOURCE {bins = 2} : tile<2xi32>
  %v = make_tensor_view %p, [], [] : tensor_view<2xi32, strides=[1]>
  %t = make_partition_view %v : partition_view<tile=(2), tensor_view<2xi32, strides=[1]>>
  %zero = constant {value = 0} : tile<i32>
  %done = store_view_tko %counts, %t, [%zero] {ordering = weak} : token
  return
}
"""


@pytest.mark.parametrize("check", [True, False])
@pytest.mark.parametrize("source", ["%a", "%n"])
def test_a_histogram_without_a_mask(source: str, check: bool) -> None:
    out = np.zeros(2, np.int32)
    interpret(parse(HISTOGRAM.replace("SOURCE", source)), 1, [out, 1], check=check)
    assert out.tolist() == [0, 4 if source == "%a" else 1]
