"""Atomic updates of scalars: once for a role, whatever its threads; old values in `elected`."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from reftile.interp.launch import interpret
from reftile.ir.diagnostics import ReftileError
from reftile.ir.parse import parse
from reftile.lower.pipeline import lower
from reftile.lower.ptx.assemble import assemble, find_ptxas
from tests.lower.on_machine import launch

KINDS: dict[str, Any] = {
    "i32": np.int32,
    "i64": np.int64,
    "f16": np.float16,
    "f32": np.float32,
    "f64": np.float64,
}
BLOCKS = 3


def kernel(dtype: str, body: str) -> str:
    """Each block updates the second element of O."""
    return f"""
    pipe kernel @k(%o: tile<ptr<{dtype}>>, %x: tile<{dtype}>) attributes {{
        target = "sm_80", warps = 4}} {{
      %one = constant {{value = 1}} : tile<i32>
      %p = offset %o, %one : tile<ptr<{dtype}>>
      {body}
      return
    }}
    """


def everywhere(text: str, start: list[float], x: float, dtype: str) -> list[np.ndarray]:
    """What each level leaves."""
    lowered = lower(parse(text).kernel(), "sm_80")
    found: list[np.ndarray] = []
    for level in ("pipe", "simt", "ptx"):
        o = np.array(start, KINDS[dtype])
        number = KINDS[dtype](x)
        if level == "ptx":
            raw = o.view("u2") if dtype == "f16" else o
            given = (number.view("u2") if dtype == "f16" else number).item()
            launch(lowered, BLOCKS, o=raw, x=given)
        else:
            source = parse(text).kernel() if level == "pipe" else lowered.passes.kernel
            interpret(source, BLOCKS, [o, number])
        found.append(o)
    if find_ptxas() is not None:
        assemble(lowered.ptx, "sm_80")
    return found


@pytest.mark.parametrize(
    ("dtype", "mode", "wanted"),
    [
        ("i32", "add", 5 + 3 * 6),
        ("i64", "add", 5 + 3 * 6),
        ("f16", "addf", 5 + 3 * 6),
        ("f32", "addf", 5 + 3 * 6),
        ("f64", "addf", 5 + 3 * 6),
        ("i32", "max", 6),
        ("i32", "umin", 5),
        ("i32", "and", 4),
        ("i64", "or", 7),
        ("i32", "xor", 5 ^ 6),
        ("f32", "xchg", 6),
    ],
)
def test_a_role_updates_once(dtype: str, mode: str, wanted: float) -> None:
    body = f"""
      %old, %t = atomic_rmw_tko %p, %x {{ordering = relaxed, scope = device, mode = {mode}}} :
        tile<{dtype}>, token
    """
    for found in everywhere(kernel(dtype, body), [1, 5, 2], 6, dtype):
        assert found.tolist() == [1, wanted, 2]


def test_a_counter_outside_elected_counts_roles_not_threads() -> None:
    body = """
      %old, %t = atomic_inc_wrap_tko %p, %x {ordering = relaxed, scope = device} : tile<i32>, token
    """
    for found in everywhere(kernel("i32", body), [0, 0, 0], 100, "i32"):
        assert found.tolist() == [0, BLOCKS, 0]


@pytest.mark.parametrize(("start", "wanted"), [(0, 6), (4, 4)])
def test_elements_are_swapped_where_they_are_as_expected(start: int, wanted: int) -> None:
    body = """
      %none = constant {value = 0} : tile<i32>
      elected body {
        %old, %t = atomic_cas_tko %p, %none, %x {ordering = acq_rel, scope = device} :
          tile<i32>, token
        yield
      }
    """
    for found in everywhere(kernel("i32", body), [1, start, 2], 6, "i32"):
        assert found.tolist() == [1, wanted, 2]


def test_the_old_value_is_handed_on_in_elected() -> None:
    """A ticket: each block adds what was there, so that the count tells who came last."""
    body = """
      %next = constant {value = -1} : tile<i32>
      %first = offset %o, %next : tile<ptr<i32>>
      elected body {
        %old, %t = atomic_rmw_tko %p, %x {ordering = relaxed, scope = device, mode = add} :
          tile<i32>, token
        %sum, %u = atomic_rmw_tko %o, %old {ordering = relaxed, scope = device, mode = add} :
          tile<i32>, token
        yield
      }
    """
    for found in everywhere(kernel("i32", body), [0, 0, 0], 1, "i32"):
        assert found.tolist() == [0 + 1 + 2, BLOCKS, 0]


def test_what_all_threads_would_need_is_refused() -> None:
    body = """
      %old, %t = atomic_rmw_tko %p, %x {ordering = relaxed, scope = device, mode = add} :
        tile<i32>, token
      %b = alloc_buffer : buffer<i32>
      %s = store_buffer %old, %b : token
    """
    with pytest.raises(ReftileError, match="outside `elected` is not lowered"):
        lower(parse(kernel("i32", body)).kernel(), "sm_80")
