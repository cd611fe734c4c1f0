"""Barriers of pipe kernels, by short kernels: phases, turns, clusters, ends."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from reftile.interp.launch import interpret
from reftile.ir.core import Module
from tests.interp.pipe.pipe_kernels import NEIGHBOUR, fails, line_of, program, role, vector

ALL: list[dict[str, Any]] = [
    {},
    {"schedule": "topo", "seed": 1},
    {"schedule": "topo", "seed": 4},
    {"schedule": "adversarial"},
    {"schedule": "adversarial", "seed": 2},
]
OUT = "%o: tile<ptr<i32>>"
CELL = "%cell = alloc_buffer : buffer<i32>"


def out() -> Any:
    return np.full(4, -1, np.int32)


def message(send: str = "", receive: str = "", arrival: str = "", wait: str = "") -> Module:
    """One role hands a number to another through shared memory and a barrier."""
    sender = f"""
    %seven = constant {{value = 7}} : tile<i32>
    %written = store_buffer %seven, %cell : token
    arrive_barrier %full, %zero{arrival or ", token=%written"}
    {send}"""
    receiver = f"""
    %told = wait_barrier %full, %zero, %zero{wait} : token
    %got, %read = load_buffer %cell{receive or ", token=%told"} : tile<i32>, token
    %line = reshape %got : tile<1xi32>
    %t = store_view_tko %line, %o_v, [%bx] {{ordering = weak}} : token"""
    prologue = f"{vector('o', 4, 1)}\n{CELL}\n%full = alloc_barrier : barrier<1, arrivals=1>"
    roles = f"{role('sender', sender)}\n{role('receiver', receiver)}"
    return program(OUT, prologue, roles)


@pytest.mark.parametrize("options", ALL)
def test_a_message_arrives(options: dict[str, Any]) -> None:
    result = out()
    interpret(message(), 2, [result], **options)
    assert result.tolist() == [7, 7, -1, -1]


@pytest.mark.parametrize("options", ALL)
def test_a_message_without_a_token_at_either_end_is_a_race(options: dict[str, Any]) -> None:
    for module in (message(arrival=" "), message(receive=" ")):
        found = fails(module, 1, [out()], **options)
        assert found.rule in ("pipe.race.unwritten", "pipe.race.reused")


@pytest.mark.parametrize("options", ALL)
def test_a_relaxed_arrival_shows_no_writes(options: dict[str, Any]) -> None:
    found = fails(message(arrival=", token=%written {order = relaxed}"), 1, [out()], **options)
    # The write is not even done for others: only a wait or a fence makes it so.
    assert found.rule == "pipe.race.unwritten"


def ring(writer_waits: bool) -> Module:
    """A number in one slot, handed over four times; `%empty` gives the slot back."""
    wait = "%free = wait_barrier %empty, %zero, %turn_up : token"
    writer = f"""
    for %zero, %four, %one, [] body(%i: tile<i32>) {{
      %turn = remi %i, %two {{signedness = unsigned}} : tile<i32>
      %turn_up = subi %one, %turn : tile<i32>
      {wait if writer_waits else "%free = make_token : token"}
      %written = store_buffer %i, %cell, token=%free : token
      arrive_barrier %full, %zero, token=%written
      continue
    }}"""
    reader = """
    for %zero, %four, %one, [] body(%i: tile<i32>) {
      %turn = remi %i, %two {signedness = unsigned} : tile<i32>
      %told = wait_barrier %full, %zero, %turn : token
      %got, %read = load_buffer %cell, token=%told : tile<i32>, token
      %line = reshape %got : tile<1xi32>
      %t = store_view_tko %line, %o_v, [%i] {ordering = weak} : token
      arrive_barrier %empty, %zero, token=%read
      continue
    }"""
    prologue = f"""{vector("o", 4, 1)}
    {CELL}
    %full = alloc_barrier : barrier<1, arrivals=1>
    %empty = alloc_barrier : barrier<1, arrivals=1>"""
    return program(OUT, prologue, f"{role('writer', writer)}\n{role('reader', reader)}")


@pytest.mark.parametrize("options", ALL)
def test_a_slot_is_handed_to_and_fro(options: dict[str, Any]) -> None:
    result = out()
    interpret(ring(True), 1, [result], **options)
    assert result.tolist() == [0, 1, 2, 3]


@pytest.mark.parametrize("options", ALL)
def test_a_writer_that_does_not_wait_races(options: dict[str, Any]) -> None:
    found = fails(ring(False), 1, [out()], **options)
    assert found.rule in ("pipe.race.unwritten", "pipe.race.reused")
    assert found.data["buffer"] == "%cell"


def test_a_waiter_that_falls_two_phases_behind_is_told() -> None:
    sender = "arrive_barrier %full, %zero\narrive_barrier %full, %zero"
    receiver = "%t = wait_barrier %full, %zero, %zero : token"
    prologue = "%full = alloc_barrier : barrier<1, arrivals=1>"
    roles = f"{role('receiver', receiver)}\n{role('sender', sender)}"
    found = fails(program("", prologue, roles), 1, [])
    assert found.rule == "pipe.phase_missed"
    assert "phase 0 of %full[0] is over and so is the one behind it" in found.message


def test_more_arrivals_than_a_phase_awaits() -> None:
    prologue = "%full = alloc_barrier : barrier<1, arrivals=2>"
    by_warps = "%i = subi %one, %one : tile<i32>\narrive_barrier %full, %i {by = warps}"
    module = program("", prologue, role("a", by_warps, warps=2) + role("b", "", warps=6))
    interpret(module, 1, [])
    twice = f"arrive_barrier %full, %zero\n{by_warps}"
    module = program("", prologue, role("a", twice, warps=2) + role("b", "", warps=6))
    found = fails(module, 1, [])
    assert found.rule == "pipe.arrivals"


def test_an_index_outside_an_array_of_barriers() -> None:
    prologue = (
        "%full = alloc_barrier : barrier<2, arrivals=1>\n%five = addi %four, %one : tile<i32>"
    )
    body = "arrive_barrier %full, %five"
    found = fails(program("", prologue, role("a", body, warps=8)), 1, [])
    assert found.rule == "pipe.slot"
    assert "index 5 is outside %full, which has 2" in found.message


# Named barriers


def turns(first: str) -> Module:
    """Two replicas take turns to double a number and add their own: an order that shows."""
    body = f"""
    %other = subi %one, %r : tile<i32>
    %is_last = cmpi %r, %one {{predicate = equal, signedness = signed}} : tile<i1>
    {first}
    for %zero, %two, %one, [] body(%i: tile<i32>) {{
      %mine = sync_named %turn, %r : token
      %old, %read = load_buffer %cell, token=%mine : tile<i32>, token
      %double = muli %old, %two : tile<i32>
      %new = addi %double, %r : tile<i32>
      %written = store_buffer %new, %cell, token=%read : token
      arrive_named %turn, %other, token=%written
      continue
    }}
    %over = sync_named %turn, %r : token
    %last, %seen = load_buffer %cell, token=%over : tile<i32>, token
    if %is_last then {{
      %line = reshape %last : tile<1xi32>
      %t = store_view_tko %line, %o_v, [%zero] {{ordering = weak}} : token
      yield
    }} otherwise {{
      arrive_named %turn, %other, token=%seen
      yield
    }}"""
    prologue = f"""{vector("o", 4, 1)}
    {CELL}
    %begun = store_buffer %one, %cell : token
    %turn = alloc_named_barrier : named_barrier<2, threads=256>"""
    return program(OUT, prologue, role("worker", body, replicas=2))


FIRST_TURN = "if %is_last then {\narrive_named %turn, %zero\nyield\n}"


@pytest.mark.parametrize("options", ALL)
def test_roles_take_turns(options: dict[str, Any]) -> None:
    result = out()
    interpret(turns(FIRST_TURN), 1, [result], **options)
    assert result[0] == ((1 * 2 + 0) * 2 + 1) * 4 + 1


@pytest.mark.parametrize("options", ALL)
def test_a_first_turn_that_nobody_hands_out_is_a_deadlock(options: dict[str, Any]) -> None:
    found = fails(turns(""), 1, [out()], **options)
    assert found.rule == "pipe.deadlock"
    texts = [text for text, _ in found.notes]
    assert any("meeting 0 at %turn[0] (128 of 256 threads are there: worker 0)" in t for t in texts)
    assert line_of(found) == "%mine = sync_named %turn, %r : token"


def test_threads_that_come_twice_to_one_meeting() -> None:
    body = "arrive_named %turn, %r\n%t = sync_named %turn, %r : token"
    prologue = "%turn = alloc_named_barrier : named_barrier<2, threads=256>"
    found = fails(program("", prologue, role("a", body, replicas=2)), 1, [])
    assert found.rule == "pipe.named_twice"
    assert "the threads of a 0 come twice to one meeting" in found.message


# Roles that end


def test_a_role_may_end_early() -> None:
    result = out()
    sender = "%seven = constant {value = 7} : tile<i32>"
    receiver = """
    %line = reshape %four : tile<1xi32>
    %t = store_view_tko %line, %o_v, [%bx] {ordering = weak} : token"""
    module = program(OUT, vector("o", 4, 1), role("a", sender) + "\n" + role("b", receiver))
    interpret(module, 4, [result], schedule="topo", seed=3)
    assert result.tolist() == [4] * 4


def test_a_deadlock_names_a_role_that_has_ended() -> None:
    prologue = "%full = alloc_barrier : barrier<1, arrivals=1>"
    sender = """
    %never = cmpi %one, %zero {predicate = less_than, signedness = signed} : tile<i1>
    if %never then {
      arrive_barrier %full, %zero
      yield
    }"""
    receiver = "%t = wait_barrier %full, %zero, %zero : token"
    roles = f"{role('sender', sender)}\n{role('receiver', receiver)}"
    found = fails(program("", prologue, roles), 1, [])
    assert found.rule == "pipe.deadlock"
    ((text, span),) = found.notes
    assert text == (
        "receiver of block (0, 0, 0) waits for phase 0 of %full[0] (0 of 1 arrivals); "
        "who arrives there: sender (has ended)"
    )
    assert span is not None and span.source.line(span.line).startswith("%t = wait_barrier")


# Clusters

CLUSTER = "warps = 4, cluster = [2, 1, 1]"
MEET = "cluster_arrive\n%ready = cluster_wait : token"
PART = "cluster_arrive\n%over = cluster_wait : token"


def neighbours(part: str = PART, order: str = "") -> Module:
    """Each block sends its rank to the other by a store to its shared memory."""
    body = f"""
    %rank = cluster_rank : tile<i32>
    %other = subi %one, %rank : tile<i32>
    %written = store_buffer %rank, %cell, rank=%other, token=%ready : token
    arrive_barrier %full, %zero, rank=%other, token=%written{order}
    %told = wait_barrier %full, %zero, %zero : token
    %got, %read = load_buffer %cell, token=%told : tile<i32>, token
    %line = reshape %got : tile<1xi32>
    %t = store_view_tko %line, %o_v, [%bx] {{ordering = weak}} : token"""
    prologue = f"""{vector("o", 4, 1)}
    {CELL}
    %full = alloc_barrier : barrier<1, arrivals=1, scope=cluster>
    {MEET}"""
    return program(OUT, prologue, f"{role('all', body)}\n{part}", attributes=CLUSTER)


@pytest.mark.parametrize("options", ALL)
def test_blocks_of_a_cluster_write_to_each_other(options: dict[str, Any]) -> None:
    result = out()
    interpret(neighbours(), 4, [result], **options)
    assert result.tolist() == [1, 0, 1, 0]


@pytest.mark.parametrize("options", ALL)
def test_a_relaxed_arrival_shows_no_writes_to_the_other_block(options: dict[str, Any]) -> None:
    found = fails(neighbours(order=" {order = relaxed}"), 2, [out()], **options)
    assert found.rule.startswith("pipe.race.")


def test_a_grid_must_hold_whole_clusters() -> None:
    assert fails(neighbours(), 3, [out()]).rule == "launch.grid"


def test_a_thread_waits_for_the_cluster_after_it_has_come() -> None:
    found = fails(neighbours(part="%over = cluster_wait : token\ncluster_arrive"), 2, [out()])
    assert found.rule == "pipe.cluster_order"


@pytest.mark.parametrize("options", ALL)
def test_an_arrival_after_the_cluster_has_parted(options: dict[str, Any]) -> None:
    """Whether the other block is gone by then depends on luck; the finding does not."""
    late = f"{PART}\narrive_barrier %late, %zero, rank=%one"
    prologue = f"%late = alloc_barrier : barrier<1, arrivals=2, scope=cluster>\n{MEET}"
    module = program("", prologue, f"{role('all', '')}\n{late}", attributes=CLUSTER)
    found = fails(module, 2, [], **options)
    assert found.rule == "pipe.exit"


# gfx942


def test_roles_must_execute_the_same_number_of_steps() -> None:
    body = """
    %is_first = cmpi %r, %zero {predicate = equal, signedness = signed} : tile<i1>
    if %is_first then {
      %t = step : token
      yield
    }"""
    module = program("", "", role("half", body, replicas=2), "gfx942")
    found = fails(module, 1, [])
    assert found.rule == "pipe.deadlock"
    assert "step 1 of its block (half 1 ended at step 0)" in found.notes[0][0]


def remote(writer_space: str, reader_fences: bool) -> Module:
    """Each block writes into the other's buffer, which leaves by a bulk copy there."""
    fence = f"%f = fence_proxy %w {{space = {writer_space}}} : token" if writer_space else ""
    write = f"""
    %x = constant {{value = 7}} : tile<4xi32>
    %w = store_buffer %x, %b, rank=%other : token
    {fence}
    arrive_barrier %full, %zero, rank=%other, token={"%f" if fence else "%w"}"""
    send = f"""
    %told = wait_barrier %full, %zero, %zero : token
    {"%g = fence_proxy %told : token" if reader_fences else ""}
    elected body {{
      copy_out %b, %o_v, [%bx], token={"%g" if reader_fences else "%told"}
      commit_copies {{engine = bulk}}
      %left = wait_copies {{engine = bulk}} : token
      yield
    }}"""
    end = "\ncluster_arrive\n%over = cluster_wait : token"
    roles = role("writer", write) + role("sender", send) + end
    return program(OUT, NEIGHBOUR, roles, attributes="warps = 8, cluster = [2, 1, 1]")


@pytest.mark.parametrize("options", ALL)
def test_a_fence_of_shared_memory_is_for_the_own_block(options: dict[str, Any]) -> None:
    for space, reader_fences in (("", True), ("all", False), ("shared", True)):
        result = np.zeros(8, np.int32)
        interpret(remote(space, reader_fences), 2, [result], **options)
        assert np.all(result == 7)
    for space in ("", "shared", "global"):
        found = fails(remote(space, False), 2, [np.zeros(8, np.int32)], **options)
        assert found.rule == "pipe.race.proxy" and "{space = all}" in found.hint
