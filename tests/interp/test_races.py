"""Races: found, explained with the edge that is missing, and gone once the edge is there."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from reftile.interp.launch import Raw
from reftile.ir.core import Module
from tests.interp.tile_kernels import program, run, vector, violation, zeros

ALL: list[dict[str, Any]] = [
    {},
    {"schedule": "topo", "seed": 3},
    {"schedule": "adversarial"},
]
COOPERATIVE = 'progress = "cooperative"'


def in_place(edge: str) -> Module:
    body = f"""{vector("p", "8", 8)}
    %v, %loaded = load_view_tko %p_v, [%zero] {{ordering = weak}} : tile<8xf32>, token
    %w = addf %v, %v : tile<8xf32>
    %u = store_view_tko %w, %p_v, [%zero]{edge} {{ordering = weak}} : token"""
    return program("%p: tile<ptr<f32>>", body)


@pytest.mark.parametrize("options", ALL)
def test_a_data_dependence_does_not_order_memory(options: dict[str, Any]) -> None:
    found = violation(in_place(""), 1, [zeros(8)], **options)
    assert found.rule == "race.within_block"
    assert "`store_view_tko` (weak) race at element 0 of `p`" in found.message
    assert "pass token=%loaded" in found.hint
    assert found.span.source.line(found.span.line).strip().startswith("%u = store_view_tko")
    (_, first), *_ = found.notes
    assert first is not None and first.source.line(first.line).strip().startswith("%v, %loaded")
    run(in_place(", token=%loaded"), 1, [zeros(8)], **options)


def test_an_edge_is_joined_to_the_one_that_is_there() -> None:
    body = """
    %v, %a = load_ptr_tko %p {ordering = weak} : tile<f32>, token
    %w, %b = load_ptr_tko %q {ordering = weak} : tile<f32>, token
    %u = store_ptr_tko %p, %w, token=%b {ordering = weak} : token"""
    module = program("%p: tile<ptr<f32>>, %q: tile<ptr<f32>>", body)
    found = violation(module, 1, [zeros(1), zeros(1)])
    assert "join_tokens(%b, %a)" in found.hint
    joined = body.replace("%u =", "%c = join_tokens %a, %b : token\n%u =").replace("=%b", "=%c")
    run(program("%p: tile<ptr<f32>>, %q: tile<ptr<f32>>", joined), 1, [zeros(1), zeros(1)])


def loop(carried: bool) -> Module:
    if carried:
        body = """
        %t0 = make_token : token
        %end = for %zero, %n, %one, [%t0] : token body(%i: tile<i32>, %t: token) {
          %v, %a = load_ptr_tko %p, token=%t {ordering = weak} : tile<i32>, token
          %w = addi %v, %one : tile<i32>
          %b = store_ptr_tko %p, %w, token=%a {ordering = weak} : token
          continue %b
        }"""
    else:
        body = """
        for %zero, %n, %one, [] body(%i: tile<i32>) {
          %v, %a = load_ptr_tko %p {ordering = weak} : tile<i32>, token
          %w = addi %v, %one : tile<i32>
          %b = store_ptr_tko %p, %w, token=%a {ordering = weak} : token
          continue
        }"""
    return program("%p: tile<ptr<i32>>, %n: tile<i32>", body)


@pytest.mark.parametrize("options", ALL)
def test_iterations_are_ordered_only_by_a_carried_token(options: dict[str, Any]) -> None:
    found = violation(loop(False), 1, [zeros(1, np.int32), 4], **options)
    assert found.rule == "race.within_block"
    assert "let the loop carry" in found.hint
    run(loop(False), 1, [zeros(1, np.int32), 1], **options)
    out = zeros(1, np.int32)
    run(loop(True), 1, [out, 4], **options)
    assert out[0] == 4


def test_two_elements_of_one_store_race_at_one_address() -> None:
    body = """
    %p1 = reshape %p : tile<1xptr<i32>>
    %ps = broadcast %p1 : tile<4xptr<i32>>
    %at = constant {value = [0, 1, 2, 1]} : tile<4xi32>
    %to = offset %ps, %at : tile<4xptr<i32>>
    %u = store_ptr_tko %to, %at {ordering = weak} : token"""
    found = violation(program("%p: tile<ptr<i32>>", body), 1, [zeros(4, np.int32)])
    assert found.rule == "race.within_operation"
    assert "element 1 of `p`" in found.message
    strong = body.replace("ordering = weak", "ordering = relaxed, scope = tl_blk")
    run(program("%p: tile<ptr<i32>>", strong), 1, [zeros(4, np.int32)])
    apart = body.replace("[0, 1, 2, 1]", "[0, 1, 2, 3]")
    run(program("%p: tile<ptr<i32>>", apart), 1, [zeros(4, np.int32)])


@pytest.mark.parametrize("options", ALL)
def test_blocks_that_store_to_one_place_race(options: dict[str, Any]) -> None:
    body = """
    %q = offset %p, %b : tile<ptr<i32>>
    %u = store_ptr_tko %q, %bx {ordering = weak} : token"""
    one = program(
        "%p: tile<ptr<i32>>", f"%b = divi %bx, %one {{signedness = signed}} : tile<i32>{body}"
    )
    run(one, 4, [zeros(4, np.int32)], **options)
    half = one_half(body)
    found = violation(half, 4, [zeros(4, np.int32)], **options)
    assert found.rule == "race.between_blocks"
    assert {found.data["block"], found.data["other_block"]} in (
        {(0, 0, 0), (1, 0, 0)},
        {(2, 0, 0), (3, 0, 0)},
    )


def one_half(body: str) -> Module:
    head = "%two = constant {value = 2} : tile<i32>\n"
    divide = "%b = divi %bx, %two {signedness = signed} : tile<i32>"
    return program("%p: tile<ptr<i32>>", head + divide + body)


def test_a_shift_by_one_element_races_across_blocks() -> None:
    body = f"""{vector("p", "32", 8, "i32")}
    %next = offset %p, %one : tile<ptr<i32>>
    %nt = make_tensor_view %next, [], [] : tensor_view<32xi32, strides=[1]>
    %nv = make_partition_view %nt : partition_view<tile=(8), tensor_view<32xi32, strides=[1]>>
    %v, %t = load_view_tko %p_v, [%bx] {{ordering = weak}} : tile<8xi32>, token
    %u = store_view_tko %v, %nv, [%bx], token=%t {{ordering = weak}} : token"""
    module = program("%p: tile<ptr<i32>>", body)
    found = violation(module, 4, [zeros(33, np.int32)])
    assert found.rule == "race.between_blocks"
    assert "element 8 of `p`" in found.message
    run(module, 1, [zeros(33, np.int32)])


def test_reading_one_place_is_no_race() -> None:
    body = f"""{vector("p", "8", 8)}
    {vector("o", "32", 8)}
    %v, %t = load_view_tko %p_v, [%zero] {{ordering = weak}} : tile<8xf32>, token
    %u = store_view_tko %v, %o_v, [%bx] {{ordering = weak}} : token"""
    run(program("%p: tile<ptr<f32>>, %o: tile<ptr<f32>>", body), 4, [zeros(8), zeros(32)])


def message_passing(
    release: str = "release", acquire: str = "acquire", scope: str = "device",
    produced: str = "token=%a ", consumed: str = "token=%s ",
) -> Module:  # fmt: skip
    """Block 0 stores data and raises a flag; block 1 waits for the flag and copies the data."""
    body = f"""
    {vector("d", "8", 8)}
    {vector("o", "8", 8)}
    %first = cmpi %bx, %zero {{predicate = equal, signedness = signed}} : tile<i1>
    if %first then {{
      %x = constant {{value = 3.0}} : tile<8xf32>
      %a = store_view_tko %x, %d_v, [%zero] {{ordering = weak}} : token
      %b = store_ptr_tko %flag, %one, {produced}{{ordering = {release}, scope = {scope}}} : token
      yield
    }} otherwise {{
      %t0 = make_token : token
      %s = loop %t0 : token body(%t: token) {{
        %v, %u = load_ptr_tko %flag, token=%t {{
          ordering = {acquire}, scope = {scope}}} : tile<i32>, token
        %up = cmpi %v, %one {{predicate = equal, signedness = signed}} : tile<i1>
        if %up then {{
          break %u
        }}
        continue %u
      }}
      %y, %w = load_view_tko %d_v, [%zero], {consumed}{{ordering = weak}} : tile<8xf32>, token
      %z = store_view_tko %y, %o_v, [%zero] {{ordering = weak}} : token
      yield
    }}"""
    arguments = "%d: tile<ptr<f32>>, %flag: tile<ptr<i32>>, %o: tile<ptr<f32>>"
    return program(arguments, body.replace(", {ord", " {ord"), COOPERATIVE)


@pytest.mark.parametrize("seed", range(6))
@pytest.mark.parametrize("schedule", ["program", "topo", "adversarial"])
def test_release_and_acquire_pass_a_message(schedule: Any, seed: int) -> None:
    out = zeros(8)
    args = [zeros(8), zeros(1, np.int32), out]
    run(message_passing(), 2, args, schedule=schedule, seed=seed)
    assert out.tolist() == [3.0] * 8


def racy(options: dict[str, Any]) -> Any:
    """The diagnosis of the first seed that shows the race; `program` must show it at once."""
    return violation(message_passing(**options), 2, [zeros(8), zeros(1, np.int32), zeros(8)])


def test_a_relaxed_flag_passes_nothing() -> None:
    for options in ({"release": "relaxed"}, {"acquire": "relaxed"}):
        found = racy(options)
        assert found.rule == "race.between_blocks"
        assert "release store" in found.hint


def test_a_scope_of_the_block_does_not_reach_another() -> None:
    found = racy({"scope": "tl_blk"})
    assert found.rule == "race.between_blocks"
    assert "widen the scopes" in found.hint


def test_the_producers_missing_token_is_suggested() -> None:
    found = racy({"produced": ""})
    assert "publishes too early: pass token=%a to the release `store_ptr_tko`" in found.hint


def test_the_consumers_missing_token_is_suggested() -> None:
    found = racy({"consumed": ""})
    assert "does not wait: pass the token of the acquire `load_ptr_tko`" in found.hint
    assert "%u" in found.hint


def relay(link: str) -> Module:
    """Block 0 releases a flag, block 1 touches it, block 2 acquires it and reads block 0's data."""
    body = f"""
    %two = constant {{value = 2}} : tile<i32>
    %first = cmpi %bx, %zero {{predicate = equal, signedness = signed}} : tile<i1>
    %last = cmpi %bx, %two {{predicate = equal, signedness = signed}} : tile<i1>
    if %first then {{
      %a = store_ptr_tko %d, %one {{ordering = weak}} : token
      %b = store_ptr_tko %flag, %one, token=%a {{ordering = release, scope = device}} : token
      return
    }}
    if %last then {{
      %v, %u = load_ptr_tko %flag {{ordering = acquire, scope = device}} : tile<i32>, token
      %up = cmpi %v, %two {{predicate = equal, signedness = signed}} : tile<i1>
      if %up then {{
        %y, %w = load_ptr_tko %d, token=%u {{ordering = weak}} : tile<i32>, token
        yield
      }}
      return
    }}
    {link}"""
    return program("%d: tile<ptr<i32>>, %flag: tile<ptr<i32>>", body)


def test_a_read_modify_write_carries_a_release_on_and_a_store_does_not() -> None:
    args = [zeros(1, np.int32), zeros(1, np.int32)]
    how = "{ordering = relaxed, scope = device, mode = add}"
    rmw = f"%o, %t = atomic_rmw_tko %flag, %one {how} : tile<i32>, token"
    run(relay(rmw), 3, args)
    args = [zeros(1, np.int32), zeros(1, np.int32)]
    store = "%t = store_ptr_tko %flag, %two {ordering = relaxed, scope = device} : token"
    assert violation(relay(store), 3, args).rule == "race.between_blocks"


def test_a_failed_compare_and_swap_only_reads() -> None:
    how = "{ordering = relaxed, scope = device}"
    load = "%v, %u = load_ptr_tko %p {ordering = weak} : tile<i32>, token\n"

    def swap(expected: str) -> str:
        return f"%o, %t = atomic_cas_tko %p, %{expected}, %bx {how} : tile<i32>, token"

    failing = program("%p: tile<ptr<i32>>", load + swap("one"))
    run(failing, 3, [zeros(1, np.int32)])
    swapping = program("%p: tile<ptr<i32>>", load + swap("zero"))
    assert violation(swapping, 3, [zeros(1, np.int32)]).rule.startswith("race.")


def test_strong_accesses_of_two_sizes_race() -> None:
    body = """
    %q = ptr_to_ptr %p : tile<ptr<i16>>
    %first = cmpi %bx, %zero {predicate = equal, signedness = signed} : tile<i1>
    if %first then {
      %a = store_ptr_tko %p, %one {ordering = relaxed, scope = device} : token
      return
    }
    %v, %u = load_ptr_tko %q {ordering = relaxed, scope = device} : tile<i16>, token"""
    found = violation(program("%p: tile<ptr<i32>>", body), 2, [zeros(2, np.int32)])
    assert "the same size" in found.hint


def test_half_bytes_of_one_byte_conflict_between_operations_only() -> None:
    body = f"""{vector("p", "8", 1, "i4")}
    %v = constant {{value = 5}} : tile<1xi4>
    %u = store_view_tko %v, %p_v, [%bx] {{ordering = weak}} : token"""
    module = program("%p: tile<ptr<i4>>", body)
    run(module, 1, [Raw(zeros(4, np.uint8), "i4")])
    assert violation(module, 2, [Raw(zeros(4, np.uint8), "i4")]).rule == "race.between_blocks"


def test_arguments_that_share_memory_race_too() -> None:
    body = f"""{vector("p", "8", 8)}
    {vector("q", "8", 8)}
    %v, %t = load_view_tko %p_v, [%zero] {{ordering = weak}} : tile<8xf32>, token
    %u = store_view_tko %v, %q_v, [%zero] {{ordering = weak}} : token"""
    module = program("%p: tile<ptr<f32>>, %q: tile<ptr<f32>>", body)
    whole = zeros(16)
    run(module, 1, [whole[:8], whole[8:]])
    found = violation(module, 1, [whole[:8], whole[4:12]])
    assert found.rule == "race.within_block"
    assert "element 4 of `p and q`" in found.message
