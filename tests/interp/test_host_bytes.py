"""Pointer arguments given as bytes of the host, and memory that lies behind addresses in memory."""

from __future__ import annotations

import numpy as np
import pytest

from reftile.interp.launch import interpret
from reftile.interp.memory import GUARD, Memory
from reftile.ir.arguments import HostBytes
from reftile.ir.diagnostics import ReftileError
from reftile.ir.parse import parse

COPY = """tile kernel @copy(%from: tile<ptr<f32>>, %to: tile<ptr<f32>>) {
  %t = make_token : token
  %v, %a = load_ptr_tko %from, token=%t {ordering = weak} : tile<f32>, token
  %b = store_ptr_tko %to, %v, token=%a {ordering = weak} : token
  return
}
"""
CHASE = """tile kernel @chase(%table: tile<ptr<i64>>, %to: tile<ptr<f32>>) {
  %t = make_token : token
  %n, %a = load_ptr_tko %table, token=%t {ordering = weak} : tile<i64>, token
  %p = int_to_ptr %n : tile<ptr<f32>>
  %v, %b = load_ptr_tko %p, token=%a {ordering = weak} : tile<f32>, token
  %c = store_ptr_tko %to, %v, token=%b {ordering = weak} : token
  return
}
"""


def whole(array: np.ndarray) -> HostBytes:
    names = {"float32": "f32", "int64": "i64"}
    return HostBytes(array.view(np.uint8), names[array.dtype.name], "lent")


def test_bytes_are_used_in_place() -> None:
    a, b = np.array([3.5, 1], np.float32), np.zeros(1, np.float32)
    interpret(parse(COPY), 1, [whole(a), whole(b)])
    assert b[0] == 3.5


def test_findings_use_the_name_that_was_given() -> None:
    with pytest.raises(ReftileError, match="`lent`"):
        interpret(parse(COPY), 1, [whole(np.zeros(1, np.float32)), whole(np.zeros(0, np.float32))])


def test_an_address_in_memory_leads_to_what_it_reaches() -> None:
    values, out = np.array([1, 2.5], np.float32), np.zeros(1, np.float32)
    table = np.array([values.ctypes.data + 4], np.int64)
    reaching = HostBytes(table.view(np.uint8), "i64", "table", (whole(values),))
    interpret(parse(CHASE), 1, [reaching, whole(out)])
    assert out[0] == 2.5


def test_an_address_behind_what_it_reaches_is_out_of_bounds() -> None:
    values, out = np.array([1, 2.5], np.float32), np.zeros(1, np.float32)
    table = np.array([values.ctypes.data + 8], np.int64)
    reaching = HostBytes(table.view(np.uint8), "i64", "table", (whole(values),))
    with pytest.raises(ReftileError) as raised:
        interpret(parse(CHASE), 1, [reaching, whole(out)])
    assert raised.value.diagnosis.rule == "memory.out_of_bounds"


def test_buffers_placed_by_address_stay_apart_from_the_others() -> None:
    memory = Memory()
    data = np.zeros(4096, np.uint8)
    high = memory.add("high", data, None, at=1 << 40)
    first = memory.add("first", data, None)
    low = memory.add("low", data, None, at=first.end + GUARD + 512)
    second = memory.add("second", data, None)
    assert second.address >= low.end + GUARD
    for buffer in (high, first, low, second):
        assert memory.find(buffer.address, buffer.data.size) is buffer
        assert memory.find(buffer.end - 1, 2) is None
