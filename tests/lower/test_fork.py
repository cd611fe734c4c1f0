"""What the prologue did is known to the roles, whatever they do with it: at `simt`, too."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from reftile.interp.launch import interpret
from reftile.ir.core import Kernel, Module
from reftile.lower.pipeline import PIPE_TO_SIMT
from tests.interp.pipe.pipe_kernels import SCHEDULES, program, role, vector

FILL = """
%x = constant {value = 7} : tile<64xi32>
%w = store_buffer %x, %b : token
"""
LOAD = """
%y, %read = load_buffer %b : tile<64xi32>, token
%s = store_view_tko %y, %o_v, [%bx] {ordering = weak} : token
"""
SEND = """
elected body {
  copy_out %b, %o_v, [%bx]
  commit_copies {engine = bulk}
  %left = wait_copies {engine = bulk} : token
  yield
}
"""
STORE = "%s = store_view_tko %x, %o_v, [%bx] {ordering = weak} : token\n"
FETCH = """
%full = alloc_barrier : barrier<1, arrivals=1>
"""
BACK = """
elected body {
  arrive_barrier %full, %zero {bytes = 256}
  copy_in %o_v, [%bx], %b, barrier=%full, slot=%zero {engine = bulk}
  yield
}
%landed = wait_barrier %full, %zero, %zero : token
%y, %read = load_buffer %b, token=%landed : tile<64xi32>, token
%again = store_view_tko %y, %o_v, [%bx], token=%read {ordering = weak} : token
"""
MEET = """
cluster_arrive {order = relaxed}
%ready = cluster_wait : token
"""
END = """
cluster_arrive {order = relaxed}
%over = cluster_wait : token
"""
CASES = {
    "a store and a load": (FILL, LOAD, False),
    "a store and a bulk copy": (FILL, SEND, False),
    "a store to global memory and a bulk copy from there": (FETCH + FILL + STORE, BACK, False),
    "a store before the cluster meets": (FILL + MEET, LOAD, True),
    "a store behind the meeting of the cluster": (MEET + FILL, LOAD, True),
    "a store before the cluster meets, and a bulk copy": (FILL + MEET, SEND, True),
}


def kernel(prologue: str, body: str, clustered: bool) -> Module:
    buffer = "%b = alloc_buffer : buffer<64xi32>\n"
    roles = role("user", body) + role("other", "") + (END if clustered else "")
    attributes = "warps = 8" + (", cluster = [2, 1, 1]" if clustered else "")
    pointer = "%o: tile<ptr<i32>>"
    view = vector("o", 128, 64)
    return program(pointer, f"{view}\n{buffer}{prologue}", roles, attributes=attributes)


def run(lowered: Kernel | Module, options: dict[str, Any]) -> None:
    o = np.zeros(128, np.int32)
    interpret(lowered, 2, [o], **options)
    assert np.all(o == 7)


@pytest.mark.parametrize("options", SCHEDULES)
@pytest.mark.parametrize("name", CASES)
def test_roles_know_what_the_prologue_did(name: str, options: dict[str, Any]) -> None:
    run(kernel(*CASES[name]), options)
    lowered = kernel(*CASES[name]).kernel()
    for step in PIPE_TO_SIMT:
        lowered = step(lowered, "sm_90a")
    run(lowered, options)
