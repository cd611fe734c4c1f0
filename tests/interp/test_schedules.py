"""Schedules: bugs that only some orders show, repeatability, waiting for others, and stopping."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from reftile.interp import schedule as schedule_module
from reftile.interp.launch import Interrupted, interpret
from reftile.ir.core import Module
from reftile.ir.diagnostics import ReftileError
from tests.interp.test_races import COOPERATIVE, message_passing
from tests.interp.tile_kernels import program, run, vector, violation, zeros

SEEDS = range(12)


def shows(module: Module, grid: Any, make: Any, schedule: Any) -> set[str]:
    """The rules that a schedule finds broken over some seeds."""
    found: set[str] = set()
    for seed in SEEDS:
        try:
            interpret(module, grid, make(), schedule=schedule, seed=seed)
        except ReftileError as error:
            found.add(error.diagnosis.rule)
    return found


def guarded_store() -> tuple[Module, Any]:
    """Block 0 sees a relaxed flag that block 1 raises only later in program order, then races."""
    body = """
    %first = cmpi %bx, %zero {predicate = equal, signedness = signed} : tile<i1>
    if %first then {
      %v, %u = load_ptr_tko %flag {ordering = relaxed, scope = device} : tile<i32>, token
      %up = cmpi %v, %one {predicate = equal, signedness = signed} : tile<i1>
      if %up then {
        %a = store_ptr_tko %d, %one {ordering = weak} : token
        yield
      }
      return
    }
    %b = store_ptr_tko %d, %zero {ordering = weak} : token
    %c = store_ptr_tko %flag, %one, token=%b {ordering = relaxed, scope = device} : token"""
    module = program("%d: tile<ptr<i32>>, %flag: tile<ptr<i32>>", body)
    return module, lambda: [zeros(1, np.int32), zeros(1, np.int32)]


def last_block() -> tuple[Module, Any]:
    """The last block to count sums up, but the counter is relaxed: seen if that is block 0."""
    body = f"""{vector("d", "2", 1, "i32")}
    %v = reshape %one : tile<1xi32>
    %a = store_view_tko %v, %d_v, [%bx] {{ordering = weak}} : token
    %old, %t = atomic_rmw_tko %count, %one, token=%a {{
      ordering = relaxed, scope = device, mode = add}} : tile<i32>, token
    %is_last = cmpi %old, %one {{predicate = equal, signedness = signed}} : tile<i1>
    %is_0 = cmpi %bx, %zero {{predicate = equal, signedness = signed}} : tile<i1>
    %sum = andi %is_last, %is_0 : tile<i1>
    if %sum then {{
      %w, %u = load_view_tko %d_v, [%one], token=%t {{ordering = weak}} : tile<1xi32>, token
      yield
    }}"""
    module = program("%d: tile<ptr<i32>>, %count: tile<ptr<i32>>", body)
    return module, lambda: [zeros(2, np.int32), zeros(1, np.int32)]


def unordered_relaxed() -> tuple[Module, Any]:
    """Two relaxed stores to one place without a token: legal, but the later need not win."""
    body = """
    %a = store_ptr_tko %d, %zero {ordering = relaxed, scope = tl_blk} : token
    %b = store_ptr_tko %d, %one {ordering = relaxed, scope = tl_blk} : token
    %t = join_tokens %a, %b : token
    %v, %u = load_ptr_tko %d, token=%t {ordering = weak} : tile<i32>, token
    %ok = cmpi %v, %one {predicate = equal, signedness = signed} : tile<i1>
    assert %ok {message = "the second store was lost"}"""
    return program("%d: tile<ptr<i32>>", body), lambda: [zeros(1, np.int32)]


@pytest.mark.parametrize("planted", [guarded_store, last_block, unordered_relaxed])
@pytest.mark.parametrize("schedule", ["topo", "adversarial"])
def test_a_planted_bug_is_found_by_reordering_only(planted: Any, schedule: Any) -> None:
    module, make = planted()
    grid = 1 if planted is unordered_relaxed else 2
    assert shows(module, grid, make, "program") == set()
    assert shows(module, grid, make, schedule) & {"race.between_blocks", "assert.failed"}


def test_iterations_of_a_loop_run_in_any_order() -> None:
    body = """
    for %zero, %n, %one, [] body(%i: tile<i32>) {
      %q = offset %p, %zero : tile<ptr<i32>>
      %t = store_ptr_tko %q, %i {ordering = relaxed, scope = tl_blk} : token
      continue
    }"""
    module = program("%p: tile<ptr<i32>>, %n: tile<i32>", body)
    last: set[int] = set()
    for seed in SEEDS:
        out = zeros(1, np.int32)
        run(module, 1, [out, 5], schedule="topo", seed=seed)
        last.add(int(out[0]))
    assert len(last) > 2


def test_elements_at_one_address_are_done_in_any_order() -> None:
    body = """
    %p1 = reshape %p : tile<1xptr<i32>>
    %ps = broadcast %p1 : tile<4xptr<i32>>
    %new = constant {value = [1, 2, 3, 4]} : tile<4xi32>
    %t = store_ptr_tko %ps, %new {ordering = relaxed, scope = tl_blk} : token
    %old, %u = atomic_rmw_tko %ps, %new, token=%t {
      ordering = relaxed, scope = device, mode = xchg} : tile<4xi32>, token"""
    module = program("%p: tile<ptr<i32>>", body)
    last: set[int] = set()
    for seed in range(30):
        out = zeros(1, np.int32)
        run(module, 1, [out], schedule="topo", seed=seed)
        last.add(int(out[0]))
    assert last == {1, 2, 3, 4}


def test_the_same_seed_gives_the_same_run() -> None:
    module, _ = unordered_relaxed()
    body = """
    %o, %t = atomic_rmw_tko %p, %bx {
      ordering = relaxed, scope = device, mode = xchg} : tile<i32>, token
    %u = print_tko [%bx, %o], token=%t {format = "%d after %d;"} : token"""
    module = program("%p: tile<ptr<i32>>", body)

    def trace(seed: int) -> tuple[str, ...]:
        return run(module, 6, [zeros(1, np.int32)], schedule="topo", seed=seed).printed

    assert all(trace(seed) == trace(seed) for seed in SEEDS)
    assert len({trace(seed) for seed in SEEDS}) > 3


def test_waiting_needs_a_declaration() -> None:
    module = message_passing()
    kernel = module.kernels[0]
    kernel.attributes = {}
    run(module, 2, [zeros(8), zeros(1, np.int32), zeros(8)])
    args = [zeros(8), zeros(1, np.int32), zeros(8)]
    alone = violation(module, 2, args, schedule="adversarial")
    assert alone.rule == "progress.needs_co_residency"
    assert "element 0 of `flag`" in alone.notes[0][0]
    assert "progress" in alone.hint


def waiting_for(target: str) -> Module:
    body = f"""
    %mine = offset %flags, %bx : tile<ptr<i32>>
    {target}
    %theirs = offset %flags, %other : tile<ptr<i32>>
    %t0 = make_token : token
    %s = loop %t0 : token body(%t: token) {{
      %v, %u = load_ptr_tko %theirs, token=%t {{
        ordering = acquire, scope = device}} : tile<i32>, token
      %up = cmpi %v, %one {{predicate = equal, signedness = signed}} : tile<i1>
      if %up then {{
        break %u
      }}
      continue %u
    }}
    %r = store_ptr_tko %mine, %one, token=%s {{ordering = release, scope = device}} : token"""
    return program("%flags: tile<ptr<i32>>", body, COOPERATIVE)


@pytest.mark.parametrize("schedule", ["program", "topo", "adversarial"])
def test_a_circle_of_waiting_blocks_is_a_deadlock(schedule: Any) -> None:
    circle = waiting_for("%other = subi %one, %bx : tile<i32>")
    found = violation(circle, 2, [zeros(2, np.int32)], schedule=schedule)
    assert found.rule == "progress.deadlock"
    lines = sorted(text for text, _ in found.notes)
    assert lines == [
        "block (0, 0, 0) waits for a change of element 1 of `flags`",
        "block (1, 0, 0) waits for a change of element 0 of `flags`",
    ]


@pytest.mark.parametrize("chosen", ["program", "topo", "adversarial"])
def test_looking_in_vain_for_too_long_is_a_livelock(chosen: Any, monkeypatch: Any) -> None:
    monkeypatch.setattr(schedule_module, "MOST_ROUNDS", 20)
    body = """
    loop %zero body(%n: tile<i32>) {
      %v, %u = load_ptr_tko %flag {ordering = relaxed, scope = device} : tile<i32>, token
      %up = cmpi %v, %one {predicate = equal, signedness = signed} : tile<i1>
      if %up then {
        break
      }
      %next = addi %n, %one : tile<i32>
      continue %next
    }"""
    module = program("%flag: tile<ptr<i32>>", body, COOPERATIVE)
    found = violation(module, 2, [zeros(1, np.int32)], schedule=chosen)
    assert found.rule == "progress.livelock"
    assert "element 0 of `flag`" in found.notes[0][0]


@pytest.mark.parametrize("schedule", ["program", "topo", "adversarial"])
def test_a_chain_of_waiting_blocks_ends(schedule: Any) -> None:
    chain = waiting_for("%other = addi %bx, %one : tile<i32>")
    flags = np.array([0, 0, 0, 0, 1], np.int32)
    run(chain, 4, [flags], schedule=schedule)
    assert flags.tolist() == [1] * 5


@pytest.mark.parametrize("schedule", ["program", "topo", "adversarial"])
def test_a_lock_lets_every_block_in_once(schedule: Any) -> None:
    body = """
    %t0 = make_token : token
    %s = loop %t0 : token body(%t: token) {
      %o, %u = atomic_cas_tko %lock, %zero, %one, token=%t {
        ordering = acquire, scope = device} : tile<i32>, token
      %mine = cmpi %o, %zero {predicate = equal, signedness = signed} : tile<i1>
      if %mine then {
        break %u
      }
      continue %u
    }
    %v, %a = load_ptr_tko %p, token=%s {ordering = weak} : tile<i32>, token
    %w = addi %v, %one : tile<i32>
    %b = store_ptr_tko %p, %w, token=%a {ordering = weak} : token
    %c = store_ptr_tko %lock, %zero, token=%b {ordering = release, scope = device} : token"""
    module = program("%lock: tile<ptr<i32>>, %p: tile<ptr<i32>>", body, COOPERATIVE)
    out = zeros(1, np.int32)
    run(module, 6, [zeros(1, np.int32), out], schedule=schedule, seed=4)
    assert out[0] == 6
    unlocked = body.replace(
        "store_ptr_tko %lock, %zero, token=%b {ordering = release",
        "store_ptr_tko %lock, %zero, token=%b {ordering = relaxed",
    )
    broken = program("%lock: tile<ptr<i32>>, %p: tile<ptr<i32>>", unlocked, COOPERATIVE)
    found = violation(broken, 6, [zeros(1, np.int32), zeros(1, np.int32)], schedule=schedule)
    assert found.rule == "race.between_blocks"


def test_progress_is_reported_and_may_stop_the_launch() -> None:
    body = """
    %q = offset %p, %bx : tile<ptr<i32>>
    %u = store_ptr_tko %q, %one {ordering = weak} : token"""
    module = program("%p: tile<ptr<i32>>", body)
    seen: list[tuple[int, int]] = []
    run(module, 3, [zeros(3, np.int32)], progress=lambda done, total: seen.append((done, total)))
    assert seen == [(1, 3), (2, 3), (3, 3)]

    def press(done: int, total: int) -> None:
        if done == 2:
            raise KeyboardInterrupt

    out = zeros(3, np.int32)
    with pytest.raises(Interrupted) as stopped:
        interpret(module, 3, [out], progress=press)
    assert "block (1, 0, 0)" in str(stopped.value)
    assert "2 of 3 blocks were done" in str(stopped.value)
    assert out.tolist() == [1, 1, 0]
