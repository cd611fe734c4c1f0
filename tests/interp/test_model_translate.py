"""Kernels as event programs: what is translated is what the interpreter runs."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import pytest

from reftile.interp.arguments import Raw
from reftile.interp.model.execution import Result
from reftile.interp.model.explain import missing_edge
from reftile.interp.model.explore import explore
from reftile.interp.model.translate import Translation, translate, translate_launches
from reftile.interp.model.values import TRUE, Const, Reg, binary, evaluate
from reftile.ir.diagnostics import ReftileError
from reftile.ir.parse import parse
from tests.interp.random_programs import random_program
from tests.interp.test_against_model import SENTINEL, Writer, can_be_written

ID = "%b, %b1, %b2 = get_tile_block_id : tile<i32>, tile<i32>, tile<i32>"
NUMBERS = """
  %c0 = constant {value = 0} : tile<i32>
  %c1 = constant {value = 1} : tile<i32>
"""


def ints(count: int, value: int = 0) -> np.ndarray:
    return np.full(count, value, np.int32)


def translated(body: str, args: Sequence[Any], grid: int = 1, arguments: str = "") -> Translation:
    arguments = arguments or ", ".join(f"%{n}: tile<ptr<i32>>" for n in "xyf"[: len(args)])
    text = f"tile kernel @k({arguments}) {{\n  {ID}\n{NUMBERS}{body}\n  return\n}}\n"
    return translate(parse(text, "k.tile").kernels[0], (grid,), args)


def explored(body: str, args: Sequence[Any], grid: int = 1, arguments: str = "") -> Result:
    return explore(translated(body, args, grid, arguments).program)


def finals(result: Result) -> set[tuple[Any, ...]]:
    names = [leave.register for leave in result.program.exits]
    return {tuple(dict(o)[n] for n in names) for o in result.outcomes}


PASSING = """
  %first = cmpi %b, %c0 {predicate = equal, signedness = signed} : tile<i1>
  if %first then {
    %s = store_ptr_tko %x, %c1 {ordering = weak} : token
    %t = store_ptr_tko %f, %c1, token=%s {ordering = release, scope = device} : token
    yield
  } otherwise {
    %r, %u = load_ptr_tko %f {ordering = acquire, scope = device} : tile<i32>, token
    %ready = cmpi %r, %c1 {predicate = equal, signedness = signed} : tile<i1>
    if %ready then {
      %v, %w = load_ptr_tko %x, token=%u {ordering = weak} : tile<i32>, token
      %z = store_ptr_tko %y, %v {ordering = weak} : token
      yield
    }
    yield
  }
"""


def test_message_passing_is_race_free() -> None:
    result = explored(PASSING, [ints(1), ints(1), ints(1)], 2)
    assert result.is_race_free
    assert finals(result) == {(1, 1, 0), (1, 1, 1)}


@pytest.mark.parametrize(
    ("what", "instead", "edge"),
    [
        (", token=%s", "", "no token leads from `b0.s` to `b0.t`"),
        (", token=%u", "", "no token leads from `b1.r` to `b1.v`"),
        ("release, scope", "relaxed, scope", "`b0.t` does not release"),
        ("acquire, scope", "relaxed, scope", "`b1.r` does not acquire"),
        ("release, scope = device", "release, scope = tl_blk", "scope block of `b0.t`"),
    ],
)
def test_message_passing_done_wrong_names_what_is_missing(
    what: str, instead: str, edge: str
) -> None:
    result = explored(PASSING.replace(what, instead), [ints(1), ints(1), ints(1)], 2)
    assert result.is_racy
    assert edge in missing_edge(result.races[0])
    lines = {
        result.races[0]
        .execution.events.ops[result.races[0].execution.events.units[u].op][1]
        .span.line
        for u in (
            result.races[0].execution.events.events[e].unit
            for e in (result.races[0].first, result.races[0].second)
        )
    }
    assert lines == ({10, 13} if "tl_blk" in instead else {9, 16})


RING = """
  %n = constant {value = 3} : tile<i32>
  %start = make_token : token
  %end, %last = for %c0, %n, %c1, [%start, %start] : token, token body(
      %i: tile<i32>, %two: token, %one: token) {
    %slot = andi %i, %c1 : tile<i32>
    %p = offset %x, %slot : tile<ptr<i32>>
    %s = store_ptr_tko %p, %i, token=%two {ordering = weak} : token
    %v, %l = load_ptr_tko %p, token=%s {ordering = weak} : tile<i32>, token
    %q = offset %y, %i : tile<ptr<i32>>
    %o = store_ptr_tko %q, %v {ordering = weak} : token
    continue %one, %l
  }
"""


def test_tokens_carried_by_a_loop_order_its_iterations() -> None:
    result = explored(RING, [ints(2), ints(3)])
    assert result.is_race_free
    assert finals(result) == {(2, 1, 0, 1, 2)}
    assert explored(RING.replace("continue %one, %l", "continue %start, %l"), [ints(2), ints(3)])
    broken = RING.replace("token=%two", "token=%start")
    assert explored(broken, [ints(2), ints(3)]).is_racy


BUFFERING = """
  %first = cmpi %b, %c0 {predicate = equal, signedness = signed} : tile<i1>
  %p, %q = if %first : tile<ptr<i32>>, tile<ptr<i32>> then {
    yield %x, %y
  } otherwise {
    yield %y, %x
  }
  %r, %t = load_ptr_tko %p {ordering = relaxed, scope = device} : tile<i32>, token
  %one = cmpi %r, %c1 {predicate = equal, signedness = signed} : tile<i1>
  if %one then {
    %s = store_ptr_tko %q, %c1 {ordering = relaxed, scope = device} : token
    yield
  } otherwise {
    %u = store_ptr_tko %q, ELSE {ordering = relaxed, scope = device} : token
    yield
  }
"""


def test_a_store_of_both_arms_does_not_depend_on_the_branch() -> None:
    """Load buffering: possible if both arms store 1, as the store may then move out."""
    args = [ints(1), ints(1)]
    same = explored(BUFFERING.replace("ELSE", "%c1"), args, 2)
    seen = binary("&", binary("==", Reg("b0.r"), Const(1)), binary("==", Reg("b1.r"), Const(1)))
    assert same.allows(seen)
    assert all(len(b.ops) == 2 and b.ops[1].guard == TRUE for b in same.program.blocks)
    assert not explored(BUFFERING.replace("ELSE", "%c0"), args, 2).allows(seen)


def test_a_value_that_cancels_is_no_dependence() -> None:
    body = """
  %r, %t = load_ptr_tko %x {ordering = relaxed, scope = device} : tile<i32>, token
  %zero = subi %r, %r : tile<i32>
  %s = store_ptr_tko %y, %zero {ordering = relaxed, scope = device} : token
"""
    store = translated(body, [ints(1), ints(1)]).program.blocks[0].ops[1]
    assert store.accesses[0].value == Const(0)


SCATTER = """
  %zero = reshape %c0 : tile<1xi32>
  %n = iota : tile<2xi32>
  %wx = reshape %x : tile<1xptr<i32>>
  %wx2 = broadcast %wx : tile<2xptr<i32>>
  %px = offset %wx2, %n : tile<2xptr<i32>>
  %i, %t = load_ptr_tko %px {ordering = weak} : tile<2xi32>, token
  %wy = reshape %y : tile<1xptr<i32>>
  %wy2 = broadcast %wy : tile<2xptr<i32>>
  %py = offset %wy2, %i : tile<2xptr<i32>>
  %s = store_ptr_tko %py, %n {ordering = weak} : token
"""


def test_addresses_that_were_loaded_have_alternatives() -> None:
    result = explored(SCATTER, [np.array([1, 0], np.int32), ints(3, 9)])
    assert result.is_race_free
    assert finals(result) == {(1, 0, 9)}
    assert explored(SCATTER, [np.array([1, 1], np.int32), ints(3)]).is_racy
    outside = explored(SCATTER, [np.array([0, 3], np.int32), ints(3)])
    assert "outside" in outside.problems[0]


NIBBLES = """
  %vx = make_tensor_view %x, [], [] : tensor_view<4xi4, strides=[1]>
  %tiles = make_partition_view %vx : partition_view<tile=(SIZE), tensor_view<4xi4, strides=[1]>>
  %v = constant {value = 3} : tile<SIZExi4>
  %s = store_view_tko %v, %tiles, [%b] {ordering = weak} : token
"""


def test_half_bytes_of_one_byte_conflict() -> None:
    args = [Raw(np.array([0x21, 0x43], np.uint8), "i4")]
    arguments = "%x: tile<ptr<i4>>"
    assert explored(NIBBLES.replace("SIZE", "1"), args, 2, arguments).is_racy
    whole = explored(NIBBLES.replace("SIZE", "2"), args, 2, arguments)
    assert whole.is_race_free
    assert finals(whole) == {(0x33, 0x33)}
    alone = explored(NIBBLES.replace("SIZE", "1"), args, 1, arguments)
    assert alone.is_race_free
    assert finals(alone) == {(0x23,)}


ROWS = """
  %vx = make_tensor_view %x, [], [] : tensor_view<4x2xi32, strides=[2, 1]>
  %rows = make_gather_scatter_view %vx : gather_scatter_view<sparse_dim=0, tile=(2x2), tensor_view<4x2xi32, strides=[2, 1]>, padding=zero>
  %n = constant {value = NUMBERS} : tile<2xi32>
  %v, %t = load_view_tko %rows, [%n, %c0] {ordering = weak} : tile<2x2xi32>, token
  %s = store_view_tko %v, %rows, [%n, %c0], token=%t {ordering = weak} : token
"""  # noqa: E501


def test_equal_row_numbers_race_only_when_stored() -> None:
    assert explored(ROWS.replace("NUMBERS", "[2, 0]"), [ints(8)]).is_race_free
    assert explored(ROWS.replace("NUMBERS", "[2, 2]"), [ints(8)]).is_racy
    only_loaded = "\n".join(ROWS.splitlines()[:-1]).replace("NUMBERS", "[2, 2]")
    assert explored(only_loaded, [ints(8)]).is_race_free
    beyond = explored(ROWS.replace("NUMBERS", "[2, 9]"), [ints(8)])
    assert beyond.is_race_free and not beyond.problems


def test_print_and_assert_hand_tokens_on_and_touch_nothing() -> None:
    body = """
  %s = store_ptr_tko %x, %c1 {ordering = weak} : token
  %p = print_tko [%c1], token=%s {format = "{}"} : token
  %v, %t = load_ptr_tko %x, token=%p {ordering = weak} : tile<i32>, token
  %ok = cmpi %v, %c1 {predicate = equal, signedness = signed} : tile<i1>
  assert %ok {message = "stored"}
"""
    found = translated(body, [ints(1)])
    result = explore(found.program)
    assert result.is_race_free and len(found.checks) == 1
    assert result.allows(found.checks[0].condition)
    assert explored(body.replace(", token=%p", ""), [ints(1)]).is_racy


def test_launches_follow_one_another() -> None:
    text = f"""
tile kernel @a(%x: tile<ptr<i32>>) {{ {NUMBERS}
  %t = store_ptr_tko %x, %c1 {{ordering = weak}} : token
  return
}}
tile kernel @b(%x: tile<ptr<i32>>) {{ {NUMBERS}
  %v, %u = load_ptr_tko %x {{ordering = weak}} : tile<i32>, token
  %w = addi %v, %c1 : tile<i32>
  %t = store_ptr_tko %x, %w, token=%u {{ordering = weak}} : token
  return
}}
"""
    module = parse(text)
    result = explore(translate_launches(module.kernels, (1,), [ints(1)]).program)
    assert result.is_race_free
    assert finals(result) == {(2,)}


SPIN = """
  %first = cmpi %b, %c0 {predicate = equal, signedness = signed} : tile<i1>
  if %first then {
    %s = store_ptr_tko %x, %c1 {ordering = weak} : token
    %t = store_ptr_tko %f, %c1, token=%s {ordering = release, scope = device} : token
    yield
  } otherwise {
    %start = make_token : token
    %seen = loop %start : token body(%before: token) {
      %r, %u = load_ptr_tko %f, token=%before {ordering = acquire, scope = device} : tile<i32>, token
      %ready = cmpi %r, %c1 {predicate = equal, signedness = signed} : tile<i1>
      if %ready then { break %u }
      continue %u
    }
    %v, %w = load_ptr_tko %x, token=%seen {ordering = weak} : tile<i32>, token
    %z = store_ptr_tko %y, %v {ordering = weak} : token
    yield
  }
"""  # noqa: E501


def test_a_loop_that_waits_is_cut() -> None:
    found = translated(SPIN, [ints(1), ints(1), ints(1)], 2)
    result = explore(found.program)
    assert len(found.cuts) == 1 and not result.is_racy
    done = [o for o in result.outcomes if not result.allows(found.cuts[0].guard) or "y" in str(o)]
    assert done
    racy = SPIN.replace("token=%seen", "token=%start")
    assert explored(racy, [ints(1), ints(1), ints(1)], 2).is_racy


FLOATS = "%x: tile<ptr<f32>>, %y: tile<ptr<f32>>"


def shown(translation: Translation) -> set[tuple[str, ...]]:
    """What the host finds, as its types write it."""
    result = explore(translation.program)
    assert result.is_race_free and not result.problems
    names = [leave.register for leave in translation.program.exits]
    return {tuple(translation.show(n, dict(o)[n]) for n in names) for o in result.outcomes}


def test_arithmetic_on_loaded_floats() -> None:
    body = """
    %v, %t = load_ptr_tko %x {ordering = weak} : tile<f32>, token
    %w = addf %v, %v : tile<f32>
    %e = exp %w : tile<f32>
    %r = ftof %e : tile<f16>
    %z = ftof %r : tile<f32>
    %s = store_ptr_tko %y, %z {ordering = weak} : token"""
    x, y = np.full(1, 0.5, np.float32), np.zeros(1, np.float32)
    assert shown(translated(body, [x, y], 1, FLOATS)) == {(str(np.float32(np.float16(np.e))),)}


def test_loaded_floats_decide_branches() -> None:
    body = """
    %half = constant {value = 0.5} : tile<f32>
    %v, %t = load_ptr_tko %x {ordering = weak} : tile<f32>, token
    %more = cmpf %v, %half {predicate = greater_than, ordering = ordered} : tile<i1>
    if %more then {
      %s = store_ptr_tko %y, %v {ordering = weak} : token
      yield
    }"""
    for value, stored in ((0.25, {()}), (0.75, {("0.75",)})):
        x, y = np.full(1, value, np.float32), np.zeros(1, np.float32)
        found = shown(translated(body, [x, y], 1, FLOATS))
        assert found == stored or found == {("0.0",)}


@pytest.mark.parametrize(
    ("mode", "dtype", "old", "argument", "new"),
    [
        ("addf", "f32", 0.5, "0.25", "0.75"),
        ("addf", "f16", 0.5, "0.25", "0.75"),
        ("umax", "i32", 3, "-1", "-1"),
        ("umin", "i32", 3, "-1", "3"),
        ("max", "i64", 3, "-1", "3"),
        ("xchg", "f32", 0.5, "0.25", "0.25"),
    ],
)
def test_read_modify_writes_of_all_kinds(
    mode: str, dtype: str, old: float, argument: str, new: str
) -> None:
    numpy = {"f32": np.float32, "f16": np.float16, "i32": np.int32, "i64": np.int64}[dtype]
    how = f"{{ordering = relaxed, scope = device, mode = {mode}}}"
    body = f"""
    %a = constant {{value = {argument}}} : tile<{dtype}>
    %o, %t = atomic_rmw_tko %x, %a {how} : tile<{dtype}>, token"""
    found = translated(body, [np.full(1, old, numpy)], 1, f"%x: tile<ptr<{dtype}>>")
    assert shown(found) == {(new,)}


def test_two_float_additions_meet_in_both_orders() -> None:
    """Rounding shows the order: 2^24 + 1 + 2 is 2^24 + 2 or 2^24 + 4."""
    body = """
    %big = constant {value = 1.0} : tile<f32>
    %two = constant {value = 2.0} : tile<f32>
    %first = cmpi %b, %c0 {predicate = equal, signedness = signed} : tile<i1>
    %a = select %first, %big, %two : tile<f32>
    %o, %t = atomic_rmw_tko %x, %a {HOW, mode = addf} : tile<f32>, token""".replace(
        "HOW", "ordering = relaxed, scope = device"
    )
    found = translated(body, [np.full(1, 2**24, np.float32)], 2, "%x: tile<ptr<f32>>")
    order = {np.float32(2**24) + np.float32(a) + np.float32(b) for a, b in ((1, 2), (2, 1))}
    assert shown(found) == {(str(value),) for value in order}


def test_compare_and_swap_of_floats_compares_bits() -> None:
    body = """
    %old = constant {value = 0.0} : tile<f32>
    %new = constant {value = 1.0} : tile<f32>
    %o, %t = atomic_cas_tko %x, %old, %new {HOW} : tile<f32>, token""".replace(
        "HOW", "ordering = relaxed, scope = device"
    )
    for value, left in ((0.0, "1.0"), (-0.0, "-0.0")):
        found = translated(body, [np.full(1, value, np.float32)], 1, "%x: tile<ptr<f32>>")
        assert shown(found) == {(left,)}


def test_reduction_of_a_loaded_tile_of_floats() -> None:
    body = """
    %n = iota : tile<4xi32>
    %p1 = reshape %x : tile<1xptr<f32>>
    %p4 = broadcast %p1 : tile<4xptr<f32>>
    %p = offset %p4, %n : tile<4xptr<f32>>
    %v, %t = load_ptr_tko %p {ordering = weak} : tile<4xf32>, token
    %sum = reduce %v {axis = 0, identities = [0.0]} : tile<f32> combine(%l: F, %r: F) {
      %s = addf %l, %r : tile<f32>
      yield %s
    }
    %z = store_ptr_tko %y, %sum {ordering = weak} : token""".replace(" F", " tile<f32>")
    x, y = np.arange(1, 5, dtype=np.float32), np.zeros(1, np.float32)
    assert shown(translated(body, [x, y], 1, FLOATS)) == {("10.0",)}


COUNTED = """
    %n, %t = load_ptr_tko %x {ordering = weak} : tile<i32>, token
    %sum = for %c0, %n, %c1, [%c0] : tile<i32> body(%i: tile<i32>, %s: tile<i32>) {
      %more = addi %s, %i : tile<i32>
      continue %more
    }
    %z = store_ptr_tko %y, %sum {ordering = weak} : token"""


@pytest.mark.parametrize(("count", "total"), [(0, 0), (2, 1), (3, 3), (9, None)])
def test_a_loop_to_a_loaded_bound_is_followed_a_while(count: int, total: int | None) -> None:
    found = translated(COUNTED, [ints(1, count), ints(1)])
    result = explore(found.program)
    values = dict(next(iter(result.outcomes)))
    was_cut = [evaluate(cut.guard, values) for cut in found.cuts] == [1]
    assert was_cut == (total is None)
    if total is not None:
        assert values["y[0]"] == total


def test_products_of_loaded_tiles_are_refused() -> None:
    body = """
    %n = iota : tile<1xi32>
    %p1 = reshape %x : tile<1x1xptr<f32>>
    %v, %t = load_ptr_tko %p1 {ordering = weak} : tile<1x1xf32>, token
    %z = mmaf %v, %v, %v : tile<1x1xf32>"""
    with pytest.raises(ReftileError) as error:
        translated(body, [np.zeros(1, np.float32)], 1, "%x: tile<ptr<f32>>")
    assert error.value.diagnosis.rule == "explore.operation"


def test_loaded_floats_are_moved() -> None:
    body = """
  %v, %t = load_ptr_tko %x {ordering = weak} : tile<f32>, token
  %s = store_ptr_tko %y, %v {ordering = weak} : token
"""
    arguments = "%x: tile<ptr<f32>>, %y: tile<ptr<f32>>"
    args = [np.array([1.5], np.float32), np.zeros(1, np.float32)]
    found = translated(body, args, 1, arguments)
    ((value,),) = finals(explore(found.program))
    assert found.show("y[0]", value) == "1.5"


def test_a_large_kernel_is_refused_with_its_size() -> None:
    body = """
  %p = reshape %x : tile<1xptr<i32>>
  %w = broadcast %p : tile<4096xptr<i32>>
  %n = iota : tile<4096xi32>
  %q = offset %w, %n : tile<4096xptr<i32>>
  %s = store_ptr_tko %q, %n {ordering = weak} : token
"""
    with pytest.raises(ReftileError, match="4096 accesses"):
        translated(body, [ints(4096)])


def test_random_programs_come_back_as_they_were() -> None:
    """Event program to kernel text to event program: the same outcomes and the same verdict."""
    compared = 0
    for number in range(1000, 1060):
        program = random_program(number, 7)
        if not can_be_written(program):
            continue
        writer = Writer(program)
        out = ints(max(len(writer.cells), 1), SENTINEL)
        cells = len(program.buffers[0].initial)
        found = translate(
            writer.module().kernels[0], (len(program.blocks),), [ints(cells), out]
        ).program
        expected, result = explore(program), explore(found)
        assert result.is_racy == expected.is_racy, number
        places = {f"out[{cell}]": name for name, cell in writer.cells.items()}
        exits = {f"x[{e.location.start // 4}]": e.register for e in program.exits}
        names = places | exits
        known = {names[e.register] for e in found.exits if e.register in names}
        assert _named(result, names) == _named(expected, {n: n for n in known}), number
        compared += 1
    assert compared > 30


def _named(result: Result, names: dict[str, str]) -> set[tuple[tuple[str, Any], ...]]:
    found: set[tuple[tuple[str, Any], ...]] = set()
    for outcome in result.outcomes:
        values = {names.get(k, ""): v for k, v in outcome}
        found.add(tuple(sorted((k, v) for k, v in values.items() if k and v != SENTINEL)))
    return found


def test_an_iteration_does_not_depend_on_how_the_one_before_ended() -> None:
    body = """
  %two = constant {value = 2} : tile<i32>
  for %c0, %two, %c1, [] body(%i: tile<i32>) {
    %v, %t = load_ptr_tko %x {ordering = relaxed, scope = device} : tile<i32>, token
    %one = cmpi %v, %c1 {predicate = equal, signedness = signed} : tile<i1>
    if %one then {
      continue
    }
    %s = store_ptr_tko %y, %i {ordering = relaxed, scope = device} : token
    continue
  }
"""
    first, store, second, _ = translated(body, [ints(1), ints(1)]).program.blocks[0].ops
    assert first.guard == second.guard == TRUE
    assert store.guard != TRUE
