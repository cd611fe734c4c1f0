"""Another block's shared memory is reached by operations of the cluster alone."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from reftile.interp.launch import interpret
from reftile.ir.core import Kernel
from reftile.ir.passes import run_passes
from reftile.lower.pipeline import PIPE_TO_SIMT
from tests.interp.pipe.pipe_kernels import program, role, vector
from tests.interp.simt.simt_kernels import SCHEDULES, fails, threads

RANKS = """
%rank = cluster_rank : tile<i32>
%other_rank = subi %c1, %rank : tile<i32>
"""


def reaching() -> Kernel:
    """Blocks write to each other's shared memory, read there, and arrive there."""
    prologue = f"""{vector("o", 8, 4)}
    %rank = cluster_rank : tile<i32>
    %other = subi %one, %rank : tile<i32>
    %v = alloc_buffer : buffer<4xi32>
    %s = alloc_buffer : buffer<i32>
    %full = alloc_barrier : barrier<1, arrivals=1, scope=cluster>
    cluster_arrive
    %ready = cluster_wait : token"""
    body = """
    %x = constant {value = 7} : tile<4xi32>
    %w_v = store_buffer %x, %v, rank=%other : token
    %w_s = store_buffer %two, %s, rank=%other : token
    %both = join_tokens %w_v, %w_s : token
    arrive_barrier %full, %zero, rank=%other, token=%both
    %told = wait_barrier %full, %zero, %zero : token
    cluster_arrive token=%told
    %met = cluster_wait : token
    %y, %r_v = load_buffer %v, rank=%other, token=%met : tile<4xi32>, token
    %z, %r_s = load_buffer %s, rank=%other, token=%met : tile<i32>, token
    %line = reshape %z : tile<1xi32>
    %all = broadcast %line : tile<4xi32>
    %sum = addi %y, %all : tile<4xi32>
    %t = store_view_tko %sum, %o_v, [%bx] {ordering = weak} : token"""
    end = "\ncluster_arrive\n%over = cluster_wait : token"
    attributes = "warps = 8, cluster = [2, 1, 1]"
    roles = role("all", body, warps=8) + end
    kernel = program("%o: tile<ptr<i32>>", prologue, roles, attributes=attributes).kernel()
    return run_passes(kernel, PIPE_TO_SIMT, "sm_90a").kernel


@pytest.mark.parametrize("options", SCHEDULES)
def test_blocks_reach_each_other(options: dict[str, Any]) -> None:
    result = np.zeros(8, np.int32)
    interpret(reaching(), 2, [result], **options)
    assert np.all(result == 9)


def test_operations_of_the_own_block_reach_no_other() -> None:
    count = 0
    for number, _ in enumerate(reaching().walk()):
        kernel = reaching()
        op = list(kernel.walk())[number]
        if op.attributes.get("space") == "cluster":
            op.attributes["space"] = "shared"
        elif op.name == "wait_mbarrier" or not op.attributes.get("cluster"):
            continue
        else:
            del op.attributes["cluster"]
        count += 1
        found = fails(kernel, 2, [np.zeros(8, np.int32)])
        assert found.rule == "simt.window" and found.span == op.span
    assert count == 5


@pytest.mark.parametrize(
    "operation",
    [
        "init_mbarrier {0} {{arrivals = 1}}",
        "wait_mbarrier {0}, %c1",
        "arrive_mbarrier {0} {{bytes = 16, cluster}}",
        "arrive_mbarrier {0} {{after_copies, cluster}}",
        "copy_async %from, {0} {{bytes = 4}}",
    ],
)
def test_what_the_hardware_does_in_the_own_block_reaches_no_other(operation: str) -> None:
    def kernel(address: str) -> Kernel:
        body = f"""{RANKS}
        %barrier = shared_address {{offset = 64}} : tile<i32>
        %there = map_shared %barrier, %other_rank : tile<i32>
        %from = global_address %o : tile<i64>
        %first = cmpi %thread, %c0 {{predicate = equal, signedness = signed}} : tile<i1>
        if %first then {{
          init_mbarrier %barrier {{arrivals = 1}}
          fence_mbarrier_init
          yield
        }}
        arrive_cluster
        wait_cluster
        if %first then {{
          {operation.format(address)}
          yield
        }}
        arrive_cluster
        wait_cluster
        """
        return threads(body, "%o: tile<ptr<i32>>", more=", cluster = [2, 1, 1]")

    found = fails(kernel("%there"), 2, [np.zeros(4, np.int32)])
    assert found.rule == "simt.window" and found.hint
    if not operation.startswith(("copy_async", "arrive_mbarrier")):
        interpret(kernel("%barrier"), 2, [np.zeros(4, np.int32)])
