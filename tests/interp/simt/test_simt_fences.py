"""What fences between proxies, and arrivals that are relaxed, do not cover is found.

A fence is for the memory that it names: global, the own block's, or all.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from reftile.interp.launch import interpret
from reftile.ir.core import Kernel, Module
from reftile.ir.diagnostics import Diagnosis, ReftileError
from reftile.ir.parse import parse
from reftile.ir.passes import run_passes
from reftile.lower.pipeline import PIPE_TO_SIMT
from tests.interp.pipe.pipe_kernels import NEIGHBOUR, one_role, program, role, stored, vector
from tests.interp.pipe.pipe_kernels import fails as fails_in
from tests.interp.pipe.test_pipe_barriers import remote
from tests.interp.pipe.test_pipe_copies import POINTERS, TILES, brought_back, matrix
from tests.interp.simt.simt_kernels import (
    SCHEDULES,
    breaks,
    drop,
    fails,
    give,
    product,
    run_product,
)
from tests.lower.hard_inputs import Case, Product, read
from tests.lower.test_every_level import CASES

FENCE = "fence_proxy_async"
UNREACHED = {"gemm_cut_sm90": 4}
"""Fences of the tiles that are not cut, which the example's launch does not have."""
EXAMPLES = [
    *((case, grid, UNREACHED.get(name, 0)) for name, (case, grid) in CASES.items()),
    (Product("gemm_cut_sm90", 130, 72, 136, 6), (2,), 1),  # Two whole tiles for two blocks.
]


def threads(module: Module) -> Kernel:
    return run_passes(module.kernel(), PIPE_TO_SIMT, "sm_90a").kernel


@pytest.mark.parametrize("options", SCHEDULES)
def test_a_fence_of_another_space_is_as_good_as_none(options: dict[str, Any]) -> None:
    missing = breaks(drop(FENCE), **options)
    found = breaks(give(FENCE, space="global"), **options)
    assert (found.rule, found.message) == ("simt.race.proxy", missing.message)
    assert found.hint == missing.hint
    assert "`fence_proxy_async {space = shared}`" in found.hint
    _, exact = run_product(product(give(FENCE, space="all")), **options)
    assert exact


@pytest.mark.parametrize("options", SCHEDULES)
def test_what_goes_through_global_memory_needs_a_fence_there(options: dict[str, Any]) -> None:
    for space in ("global", "all"):
        a, o = matrix()
        interpret(threads(brought_back(space)), 1, [a, o], **options)
        assert np.all(o[:16, :32] == 3)
    found = fails(threads(brought_back("shared")), 1, [*matrix()], **options)
    assert found.rule == "simt.race.proxy" and "{space = global}" in found.hint


@pytest.mark.parametrize("options", SCHEDULES)
def test_a_fence_of_shared_memory_is_for_the_own_block(options: dict[str, Any]) -> None:
    for space, reader_fences in (("", True), ("all", False), ("shared", True)):
        result = np.zeros(8, np.int32)
        interpret(threads(remote(space, reader_fences)), 2, [result], **options)
        assert np.all(result == 7)
    for space in ("", "shared", "global"):
        found = fails(threads(remote(space, False)), 2, [np.zeros(8, np.int32)], **options)
        assert found.rule == "simt.race.proxy" and "{space = all}" in found.hint


def overwritten(fence: str) -> Module:
    """A tile is written, and a bulk copy writes its buffer next."""
    prologue = f"""{TILES}
    %b = alloc_buffer : buffer<16x32xf32>
    %full = alloc_barrier : barrier<1, arrivals=1>"""
    body = f"""
    %x = constant {{value = 3.0}} : tile<16x32xf32>
    %w = store_buffer %x, %b : token
    {f"%f = fence_proxy %w {{space = {fence}}} : token" if fence else ""}
    elected body {{
      arrive_barrier %full, %zero {{bytes = 2048}}
      copy_in %a_v, [%zero, %zero], %b, barrier=%full, slot=%zero, token={"%f" if fence else "%w"} {{engine = bulk}}
      yield
    }}
    %t = wait_barrier %full, %zero, %zero : token
    %y, %u = load_buffer %b, token=%t : tile<16x32xf32>, token
    {stored("%y", "16x32", "v", "%zero, %zero")}"""  # noqa: E501
    return one_role(POINTERS, prologue, body)


@pytest.mark.parametrize("options", SCHEDULES)
def test_a_bulk_copy_over_what_threads_wrote_needs_a_fence(options: dict[str, Any]) -> None:
    for space in ("", "global"):
        for level, name in ((fails_in, "pipe"), (in_threads, "simt")):
            found = level(overwritten(space), 1, [*matrix()], **options)
            assert found.rule == f"{name}.race.proxy" and "{space = shared}" in found.hint
    a, o = matrix()
    interpret(threads(overwritten("shared")), 1, [a, o], **options)
    assert np.array_equal(o[:16, :32], a[:16, :32])


def in_threads(module: Module, grid: int, args: list[Any], **options: Any) -> Diagnosis:
    return fails(threads(module), grid, args, **options)


def written_twice(arrival: str, wait: str) -> Module:
    """Each block writes into the other's buffer, where the owner writes again after a wait."""
    first = f"""
    %x = constant {{value = 7}} : tile<4xi32>
    %w = store_buffer %x, %b, rank=%other : token
    arrive_barrier %full, %zero, rank=%other, token=%w {{order = {arrival}}}"""
    second = f"""
    %told = wait_barrier %full, %zero, %zero {{order = {wait}}} : token
    %y = constant {{value = 8}} : tile<4xi32>
    %w = store_buffer %y, %b, token=%told : token
    %z, %t = load_buffer %b, token=%w : tile<4xi32>, token
    %u = store_view_tko %z, %o_v, [%bx] {{ordering = weak}} : token"""
    roles = role("first", first) + role("second", second)
    end = "\ncluster_arrive\n%over = cluster_wait : token"
    attributes = "warps = 8, cluster = [2, 1, 1]"
    return program("%o: tile<ptr<i32>>", NEIGHBOUR, roles + end, attributes=attributes)


@pytest.mark.parametrize("options", SCHEDULES)
def test_a_relaxed_handover_does_not_order_two_writes(options: dict[str, Any]) -> None:
    for arrival, wait in (("relaxed", "acquire"), ("release", "relaxed")):
        module = written_twice(arrival, wait)
        assert fails_in(module, 2, [np.zeros(8, np.int32)], **options).rule.startswith("pipe.race")
        found = in_threads(module, 2, [np.zeros(8, np.int32)], **options)
        assert found.rule == "simt.race.relaxed"
    result = np.zeros(8, np.int32)
    interpret(threads(written_twice("release", "acquire")), 2, [result], **options)
    assert np.all(result == 8)


def brought_by_other(scope: str) -> Module:
    """Each block writes to the other, then brings it a tile; the other waits for the tile."""
    prologue = f"""{vector("a", 8, 4)}
    {vector("o", 8, 4)}
    %rank = cluster_rank : tile<i32>
    %other = subi %one, %rank : tile<i32>
    %mask = subi %two, %rank : tile<i32>
    %b = alloc_buffer : buffer<4xi32>
    %c = alloc_buffer : buffer<4xi32>
    %full = alloc_barrier : barrier<1, arrivals=1{scope}>
    cluster_arrive
    %ready = cluster_wait : token"""
    sender = """
    %x = constant {value = 7} : tile<4xi32>
    %w = store_buffer %x, %b, rank=%other : token
    elected body {
      copy_in %a_v, [%bx], %c, barrier=%full, slot=%zero, multicast=%mask, token=%w {engine = bulk}
      yield
    }"""
    receiver = """
    arrive_barrier %full, %zero {bytes = 16}
    %told = wait_barrier %full, %zero, %zero : token
    %y, %got = load_buffer %c, token=%told : tile<4xi32>, token
    %z, %seen = load_buffer %b, token=%told : tile<4xi32>, token
    %sum = addi %y, %z : tile<4xi32>
    %u = store_view_tko %sum, %o_v, [%bx] {ordering = weak} : token"""
    roles = role("sender", sender) + role("receiver", receiver)
    end = "\ncluster_arrive\n%over = cluster_wait : token"
    arguments = "%a: tile<ptr<i32>>, %o: tile<ptr<i32>>"
    attributes = "warps = 8, cluster = [2, 1, 1]"
    return program(arguments, prologue, roles + end, attributes=attributes)


@pytest.mark.parametrize("options", SCHEDULES)
def test_bytes_from_another_block_show_no_other_writes(options: dict[str, Any]) -> None:
    a = np.arange(8, dtype=np.int32)
    found = fails_in(brought_by_other(""), 2, [a, np.zeros_like(a)], **options)
    assert found.rule == "pipe.race.unwritten" and "line 23" in found.message
    found = in_threads(brought_by_other(""), 2, [a, np.zeros_like(a)], **options)
    assert found.rule == "simt.race.relaxed" and "line 23" in found.message
    for level in (Module.kernel, threads):
        result = np.zeros_like(a)
        interpret(level(brought_by_other(", scope=cluster")), 2, [a, result], **options)
        assert np.array_equal(result, np.roll(a, 4) + 7)


def example(case: Case) -> tuple[Kernel, list[Any]]:
    """An example as threads, and its arguments."""
    kernel = parse(read(case.name), f"{case.name}.tile").kernel()
    values = [case.arguments[a.name] for a in kernel.arguments]
    values = [np.float32(v) if isinstance(v, float) else v for v in values]
    return run_passes(kernel, PIPE_TO_SIMT, "sm_90a").kernel, values


def found_in(kernel: Kernel, grid: Any, values: list[Any], **options: Any) -> Diagnosis | None:
    try:
        interpret(kernel, grid, values, **options)
    except ReftileError as error:
        return error.diagnosis
    return None


@pytest.mark.parametrize(("case", "grid", "unreached"), EXAMPLES)
def test_the_fences_of_the_examples_name_the_space_they_need(
    case: Case, grid: tuple[int, ...], unreached: int
) -> None:
    kernel, values = example(case)
    for options in ({}, {"schedule": "topo", "seed": 5}, {"schedule": "adversarial"}):
        assert found_in(kernel, grid, values, **options) is None
    fences = [op for op in kernel.walk() if op.name == FENCE]
    missed = 0
    for fence in fences:
        assert fence.attributes.get("space", "shared") == "shared"
        fence.attributes["space"] = "global"
        found = found_in(kernel, grid, values)
        fence.attributes["space"] = "shared"
        if found is None:
            missed += 1
            continue
        assert found.rule == "simt.race.proxy" and "{space = shared}" in found.hint
    assert fences and missed == unreached
