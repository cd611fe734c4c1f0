"""Blocks of pipe kernels that wait for one another through memory; schedules; stopping."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from reftile.interp import coroutines
from reftile.interp.launch import interpret
from reftile.ir.core import Module
from tests.interp.pipe.pipe_kernels import fails, program, role, vector

ALL: list[dict[str, Any]] = [
    {},
    {"schedule": "topo", "seed": 1},
    {"schedule": "adversarial"},
    {"schedule": "adversarial", "seed": 5},
]
COOPERATIVE = 'warps = 8, progress = "cooperative"'


def flag(
    release: str = "release",
    acquire: str = "acquire",
    token: str = ", token=%seen",
    attributes: str = COOPERATIVE,
) -> Module:
    """Block 1 stores through shared memory and a bulk copy, and raises a flag for block 0."""
    body = f"""
    %waits = cmpi %bx, %zero {{predicate = equal, signedness = signed}} : tile<i1>
    if %waits then {{
      %start = make_token : token
      %seen = loop %start : token body(%t: token) {{
        %v, %u = load_ptr_tko %p, token=%t {{ordering = {acquire}, scope = device}} :
            tile<i32>, token
        %up = cmpi %v, %one {{predicate = equal, signedness = signed}} : tile<i1>
        if %up then {{
          break %u
        }}
        continue %u
      }}
      %x, %got = load_view_tko %o_v, [%one]{token} {{ordering = weak}} : tile<4xi32>, token
      %w = store_view_tko %x, %o_v, [%zero] {{ordering = weak}} : token
      yield
    }} otherwise {{
      %fours = constant {{value = 4}} : tile<4xi32>
      %s = store_buffer %fours, %b : token
      %f = fence_proxy %s : token
      %done = elected : token body {{
        copy_out %b, %o_v, [%one], token=%f
        commit_copies {{engine = bulk}}
        %d = wait_copies {{engine = bulk}} : token
        yield %d
      }}
      %w2 = store_ptr_tko %p, %one, token=%done {{ordering = {release}, scope = device}} : token
      yield
    }}"""
    prologue = f"{vector('o', 8, 4)}\n%b = alloc_buffer : buffer<4xi32>"
    roles = role("all", body, warps=8)
    arguments = "%p: tile<ptr<i32>>, %o: tile<ptr<i32>>"
    return program(arguments, prologue, roles, attributes=attributes)


def arrays() -> list[Any]:
    return [np.zeros(1, np.int32), np.zeros(8, np.int32)]


@pytest.mark.parametrize("options", ALL)
def test_a_release_hands_on_what_a_bulk_copy_wrote(options: dict[str, Any]) -> None:
    args = arrays()
    interpret(flag(), 2, args, **options)
    assert args[1].tolist() == [4] * 8


@pytest.mark.parametrize("options", ALL)
@pytest.mark.parametrize(
    "module", [flag(release="relaxed"), flag(acquire="relaxed"), flag(token="")], ids=str
)
def test_a_flag_without_order_is_a_race(module: Module, options: dict[str, Any]) -> None:
    found = fails(module, 2, arrays(), **options)
    assert found.rule == "pipe.race.unlanded"
    assert "of `o`" in found.message


@pytest.mark.parametrize("options", ALL)
def test_a_flag_that_nobody_raises(
    options: dict[str, Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(coroutines, "MOST_ROUNDS", 100)
    found = fails(flag(), 1, arrays(), **options)
    assert found.rule == "progress.livelock"
    assert "waits for element 0 of `p`" in found.notes[0][0]


def test_blocks_that_wait_must_say_so(monkeypatch: pytest.MonkeyPatch) -> None:
    """Without the declaration blocks may run one behind another."""
    monkeypatch.setattr(coroutines, "MOST_ROUNDS", 100)
    found = fails(flag(attributes="warps = 8"), 2, arrays())
    assert found.rule == "progress.livelock"
    assert 'progress = "cooperative"' in found.hint


def test_other_seeds_give_other_orders() -> None:
    body = """
    %text, %t = atomic_inc_wrap_tko %p, %four {ordering = relaxed, scope = device} :
        tile<i32>, token
    %line = reshape %text : tile<1xi32>
    %u = store_view_tko %line, %o_v, [%bx] {ordering = weak} : token"""
    arguments = "%p: tile<ptr<i32>>, %o: tile<ptr<i32>>"
    module = program(arguments, vector("o", 4, 1), role("all", body, warps=8))
    orders: set[tuple[int, ...]] = set()
    for seed in range(6):
        args: list[Any] = [np.zeros(1, np.int32), np.zeros(4, np.int32)]
        interpret(module, 4, args, schedule="topo", seed=seed)
        orders.add(tuple(args[1].tolist()))
    assert len(orders) > 2
    assert all(sorted(order) == [0, 1, 2, 3] for order in orders)
