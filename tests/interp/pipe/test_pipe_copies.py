"""Copies of pipe kernels, by short kernels: both engines, both directions."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from reftile.interp.launch import interpret
from reftile.ir.core import Module
from tests.interp.pipe.pipe_kernels import (
    POINTERS,
    TILES,
    fails,
    line_of,
    matrix,
    one_role,
    program,
    role,
    stored,
    tiles,
)

ALL: list[dict[str, Any]] = [
    {},
    {"schedule": "topo", "seed": 1},
    {"schedule": "topo", "seed": 2},
    {"schedule": "adversarial"},
]


def copied_in(index: str, engine: str = "thread", padding: str = "") -> Module:
    prologue = f"""{tiles("a", 24, padding)}
    {tiles("o")}
    %b = alloc_buffer : buffer<16x32xf32, layout=swizzle128>
    %full = alloc_barrier : barrier<1, arrivals=1>"""
    if engine == "thread":
        copy = f"""copy_in %a_v, [{index}], %b {{engine = thread}}
        commit_copies {{engine = thread}}
        %t = wait_copies {{engine = thread}} : token"""
    else:
        copy = f"""elected body {{
          arrive_barrier %full, %zero {{bytes = 2048}}
          copy_in %a_v, [{index}], %b, barrier=%full, slot=%zero {{engine = bulk}}
          yield
        }}
        %t = wait_barrier %full, %zero, %zero : token"""
    body = f"""{copy}
    %x, %u = load_buffer %b, token=%t : tile<16x32xf32>, token
    {stored("%x", "16x32", "v", "%zero, %zero")}"""
    return one_role(POINTERS, prologue, body)


@pytest.mark.parametrize("engine", ["thread", "bulk"])
@pytest.mark.parametrize("options", ALL)
def test_elements_outside_a_view_are_padding(engine: str, options: dict[str, Any]) -> None:
    a, o = matrix()
    interpret(copied_in("%one, %one", engine), 1, [a, o], **options)
    assert np.array_equal(o[:8, :32], a[16:24, 32:])
    assert np.all(o[8:16, :32] == 0)
    interpret(copied_in("%one, %zero", engine, "nan"), 1, [a, o], **options)
    assert np.array_equal(o[:8, :32], a[16:24, :32])
    assert np.all(np.isnan(o[8:16, :32]))


@pytest.mark.parametrize("engine", ["thread", "bulk"])
def test_an_index_beyond_the_index_space_is_all_padding(engine: str) -> None:
    a, o = matrix()
    o += 5
    interpret(copied_in("%four, %one", engine), 1, [a, o])
    assert np.all(o[:16, :32] == 0)


def test_rows_by_number_are_copied_by_threads_and_handed_to_a_barrier() -> None:
    view = (
        "gather_scatter_view<sparse_dim=0, tile=(16x32), tensor_view<32x64xf32, strides=[64, 1]>>"
    )
    prologue = f"""{TILES}
    %g_v = make_gather_scatter_view %a_t : {view}
    %b = alloc_buffer : buffer<16x32xf32, layout=swizzle128>
    %full = alloc_barrier : barrier<1, arrivals=128>"""
    copier = """
    %row = iota : tile<16xi32>
    %double = addi %row, %row : tile<16xi32>
    copy_in %g_v, [%double, %one], %b {engine = thread}
    arrive_barrier %full, %zero {by = threads, after_copies}"""
    reader = f"""
    %t = wait_barrier %full, %zero, %zero : token
    %x, %u = load_buffer %b, token=%t : tile<16x32xf32>, token
    {stored("%x", "16x32", "v", "%zero, %zero")}"""
    for options in ALL:
        a, o = matrix()
        roles = f"{role('copier', copier)}\n{role('reader', reader)}"
        interpret(program(POINTERS, prologue, roles), 1, [a, o], **options)
        assert np.array_equal(o[:16, :32], a[::2, 1:33])


def copied_out(mode: str, blocks: str = "%zero") -> Module:
    prologue = f"""{TILES}
    %b = alloc_buffer : buffer<16x32xf32>"""
    body = f"""
    %x = constant {{value = 3.0}} : tile<16x32xf32>
    %w = store_buffer %x, %b : token
    %f = fence_proxy %w : token
    elected body {{
      copy_out %b, %o_v, [{blocks}, %one], token=%f {{mode = {mode}}}
      commit_copies {{engine = bulk}}
      %done = wait_copies {{engine = bulk}} : token
      yield
    }}"""
    return one_role(POINTERS, prologue, body)


@pytest.mark.parametrize("options", ALL)
def test_blocks_add_to_what_is_there(options: dict[str, Any]) -> None:
    a, o = matrix()
    o += 1
    interpret(copied_out("add"), 4, [a, o], **options)
    assert np.all(o[:16, 32:] == 13) and np.all(o[:16, :32] == 1)


@pytest.mark.parametrize("options", ALL)
def test_blocks_that_store_to_one_tile_race(options: dict[str, Any]) -> None:
    a, o = matrix()
    interpret(copied_out("store", "%bx"), 2, [a, o], **options)
    assert np.all(o[:, 32:] == 3)
    found = fails(copied_out("store"), 2, [a, o], **options)
    assert found.rule == "pipe.race.unlanded"
    assert "of `o`" in found.message
    assert line_of(found).startswith("copy_out %b")


def brought_back(space: str) -> Module:
    """A tile is stored to global memory, and brought back by a bulk copy."""
    prologue = f"""{TILES}
    %b = alloc_buffer : buffer<16x32xf32>
    %full = alloc_barrier : barrier<1, arrivals=1>"""
    body = f"""
    %x = constant {{value = 3.0}} : tile<16x32xf32>
    %w = store_view_tko %x, %a_v, [%zero, %zero] {{ordering = weak}} : token
    %f = fence_proxy %w {{space = {space}}} : token
    elected body {{
      arrive_barrier %full, %zero {{bytes = 2048}}
      copy_in %a_v, [%zero, %zero], %b, barrier=%full, slot=%zero, token=%f {{engine = bulk}}
      yield
    }}
    %t = wait_barrier %full, %zero, %zero : token
    %y, %u = load_buffer %b, token=%t : tile<16x32xf32>, token
    {stored("%y", "16x32", "v", "%zero, %zero")}"""
    return one_role(POINTERS, prologue, body)


@pytest.mark.parametrize("space", ["shared", "global", "all"])
def test_bulk_copies_of_global_memory_need_a_fence_too(space: str) -> None:
    a, o = matrix()
    if space == "shared":
        found = fails(brought_back(space), 1, [a, o])
        assert found.rule == "pipe.race.proxy" and "{space = global}" in found.hint
    else:
        interpret(brought_back(space), 1, [a, o])
        assert np.all(o[:16, :32] == 3)


def test_many_blocks_run_in_turn() -> None:
    for options in ALL:
        a, o = matrix()
        report = interpret(copied_out("add"), 100, [a, o], **options)
        assert report.blocks == 100
        assert np.all(o[:16, 32:] == 300)
