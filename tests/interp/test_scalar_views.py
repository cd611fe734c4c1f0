"""Views of rank 0: one element, with no index."""

import numpy as np
import pytest

from reftile.interp.launch import Raw, interpret
from reftile.ir.parse import parse

COPY = """
tile kernel @copy(%a: tile<ptr<f32>>, %b: tile<ptr<f32>>, %n: tile<ptr<i32>>) {
  %va = make_tensor_view %a, [], [] : tensor_view<f32, strides=[]>
  %vb = make_tensor_view %b, [], [] : tensor_view<f32, strides=[]>
  %vn = make_tensor_view %n, [], [] : tensor_view<i32, strides=[]>
  %ta = make_partition_view %va : partition_view<tile=(), tensor_view<f32, strides=[]>>
  %tb = make_strided_view %vb : strided_view<traversal=[], tile=(), tensor_view<f32, strides=[]>>
  %tn = make_partition_view %vn : partition_view<tile=(), tensor_view<i32, strides=[]>>
  %x, %t = load_view_tko %ta, [] {ordering = weak} : tile<f32>, token
  %done = store_view_tko %x, %tb, [] {ordering = weak} : token
  %one = constant {value = 1} : tile<i32>
  %u = atomic_red_view_tko %tn, [], %one {ordering = relaxed, scope = device, mode = add} : token
  return
}
"""


@pytest.mark.parametrize("check", [True, False])
def test_a_view_of_rank_zero(check: bool) -> None:
    source, target = np.array([2.5], np.float32), np.zeros(1, np.float32)
    count = np.array([7], np.int32)
    interpret(parse(COPY), 1, [source, target, count], check=check)
    assert (target[0], count[0]) == (2.5, 8)


NIBBLE = """
tile kernel @copy(%a: tile<ptr<i4>>, %b: tile<ptr<i4>>) {
  %va = make_tensor_view %a, [], [] : tensor_view<i4, strides=[]>
  %vb = make_tensor_view %b, [], [] : tensor_view<i4, strides=[]>
  %ta = make_partition_view %va : partition_view<tile=(), tensor_view<i4, strides=[]>>
  %tb = make_partition_view %vb : partition_view<tile=(), tensor_view<i4, strides=[]>>
  %x, %t = load_view_tko %ta, [] {ordering = weak} : tile<i4>, token
  %done = store_view_tko %x, %tb, [] {ordering = weak} : token
  return
}
"""


@pytest.mark.parametrize("check", [True, False])
def test_half_a_byte_through_a_view_of_rank_zero(check: bool) -> None:
    source, target = np.array([0x5A], np.uint8), np.array([0x73], np.uint8)
    interpret(parse(NIBBLE), 1, [Raw(source, "i4"), Raw(target, "i4")], check=check)
    assert target[0] == 0x7A
