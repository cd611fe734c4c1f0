"""What prologue, fork, roles and epilogue hand on is handed on by the lowered kernel, too."""

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
MINE = """
%part = reinterpret_buffer %b : buffer<32x2xi32>
%turned = transpose_buffer %part : buffer<2x32xi32, layout=row_major.t>
%z, %got = load_buffer %turned, token=%w : tile<2x32xi32>, token
%flat = reshape %z : tile<64xi32>
%kept = store_view_tko %flat, %o_v, [%bx] {ordering = weak} : token
"""
SENT = SEND.replace("[%bx]", "[%bx], token=%f")
FENCED = FILL + "%f = fence_proxy %w : token\n"
WAITED = BACK.replace(
    "%landed = wait_barrier %full, %zero, %zero : token",
    "%landed = elected : token body {\n%one_waits = wait_barrier %full, %zero, %zero : token\n"
    "yield %one_waits\n}",
)
ALL_FENCED = """
%both = join_tokens %w, %s : token
%f = fence_proxy %both {space = all} : token
""" + BACK.replace("%b, barrier", "%b, token=%f, barrier")
CLUSTERED = "warps = 8, cluster = [2, 1, 1]"
CASES = {
    "a store and a load": (FILL, LOAD, ""),
    "a store and a bulk copy": (FILL, SEND, ""),
    "a store to global memory and a bulk copy from there": (FETCH + FILL + STORE, BACK, ""),
    "a store before the cluster meets": (FILL + MEET, LOAD, END),
    "a store behind the meeting of the cluster": (MEET + FILL, LOAD, END),
    "a store before the cluster meets, and a bulk copy": (FILL + MEET, SEND, END),
    "a barrier of the prologue": (FETCH + FILL + STORE + ALL_FENCED, "", ""),
    "threads that meet in the prologue": (FILL + MINE, "", ""),
    "a bulk copy in the prologue": (FENCED + SENT, "", ""),
    "a bulk copy in the epilogue": ("", "", FENCED + SENT),
    "one thread that waits for its role": (FETCH + FILL + STORE, WAITED, ""),
}


def kernel(prologue: str, body: str, epilogue: str) -> Module:
    buffer = "%b = alloc_buffer : buffer<64xi32>\n"
    roles = f"{role('user', body)}\n{role('other', '')}\n{epilogue}"
    attributes = CLUSTERED if epilogue == END else "warps = 8"
    pointer = "%o: tile<ptr<i32>>"
    view = vector("o", 128, 64)
    return program(pointer, f"{view}\n{buffer}{prologue}", roles, attributes=attributes)


def run(lowered: Kernel | Module, options: dict[str, Any]) -> None:
    o = np.zeros(128, np.int32)
    interpret(lowered, 2, [o], **options)
    assert np.all(o == 7)


@pytest.mark.parametrize("options", SCHEDULES)
@pytest.mark.parametrize("name", CASES)
def test_threads_know_what_tokens_and_fork_say(name: str, options: dict[str, Any]) -> None:
    run(kernel(*CASES[name]), options)
    lowered = kernel(*CASES[name]).kernel()
    for step in PIPE_TO_SIMT:
        lowered = step(lowered, "sm_90a")
    run(lowered, options)
