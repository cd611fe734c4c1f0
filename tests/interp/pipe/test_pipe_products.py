"""Products of pipe kernels, and `tile` operations inside them."""

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
    matrix,
    one_role,
    program,
    role,
    stored,
    vector,
)

ALL: list[dict[str, Any]] = [
    {},
    {"schedule": "topo", "seed": 1},
    {"schedule": "topo", "seed": 2},
    {"schedule": "adversarial"},
]
PRODUCT = """
%o_t = make_tensor_view %o, [], [] : tensor_view<64x8xf32, strides=[8, 1]>
%o_v = make_partition_view %o_t : partition_view<tile=(64x8), tensor_view<64x8xf32, strides=[8, 1]>>
%a = alloc_buffer : buffer<64x16xbf16, layout=swizzle32>
%b = alloc_buffer : buffer<8x16xbf16, layout=swizzle32>
"""


def product(middle: str) -> Module:
    body = f"""
    %twos = constant {{value = 2.0}} : tile<64x16xbf16>
    %threes = constant {{value = 3.0}} : tile<8x16xbf16>
    %wa = store_buffer %twos, %a : token
    %wb = store_buffer %threes, %b : token
    %w = join_tokens %wa, %wb : token
    %ready = fence_proxy %w : token
    %bt = transpose_buffer %b : buffer<16x8xbf16, layout=swizzle32.t>
    {middle}
    %sum, %read = mma_wait %last : tile<64x8xf32>, token
    %t = store_view_tko %sum, %o_v, [%zero, %zero] {{ordering = weak}} : token
    """
    return program("%o: tile<ptr<f32>>", PRODUCT, role("all", body), attributes="warps = 4")


TWICE = """
%first = mma_start %a, %bt, token=%ready : pending<64x8xf32>
%last = mma_start %twos, %bt, acc=%first, token=%ready : pending<64x8xf32>"""


@pytest.mark.parametrize("options", ALL)
def test_products_of_one_accumulator_add(options: dict[str, Any]) -> None:
    o = np.zeros((64, 8), np.float32)
    interpret(product(TWICE), 1, [o], **options)
    assert np.all(o == 2 * 16 * 6)


def test_an_open_accumulator_is_poison_unless_it_is_left_out() -> None:
    def opened(accumulate: str) -> Module:
        middle = f"""
        %yes = cmpi %zero, {accumulate} {{predicate = equal, signedness = signed}} : tile<i1>
        %open = mma_open : pending<64x8xf32>
        %last = mma_start %a, %bt, acc=%open, accumulate=%yes, token=%ready : pending<64x8xf32>"""
        return product(middle)

    o = np.zeros((64, 8), np.float32)
    interpret(opened("%one"), 1, [o])
    assert np.all(o == 16 * 6)
    assert fails(opened("%zero"), 1, [o]).rule == "poison.output"


def test_a_product_reads_through_the_asynchronous_proxy() -> None:
    o = np.zeros((64, 8), np.float32)
    found = fails(product(TWICE.replace("token=%ready", "token=%w")), 1, [o])
    assert found.rule == "pipe.race.proxy"
    found = fails(product(TWICE.replace(", token=%ready", "", 1)), 1, [o])
    assert found.rule == "pipe.race.unwritten"


def test_8_bit_floats_and_integers_multiply() -> None:
    shape, view = "64x8", "tensor_view<64x8xi32, strides=[8, 1]>"
    prologue = f"""
    %o_t = make_tensor_view %o, [], [] : {view}
    %o_v = make_partition_view %o_t : partition_view<tile=({shape}), {view}>
    %a = alloc_buffer : buffer<64x32xi8, layout=swizzle32>
    %b = alloc_buffer : buffer<8x32xi8, layout=swizzle32>"""
    body = """
    %m = constant {value = -2} : tile<64x32xi8>
    %n = constant {value = 200} : tile<8x32xi8>
    %wa = store_buffer %m, %a : token
    %wb = store_buffer %n, %b : token
    %w = join_tokens %wa, %wb : token
    %ready = fence_proxy %w : token
    %bt = transpose_buffer %b : buffer<32x8xi8, layout=swizzle32.t>
    %p = mma_start %a, %bt, token=%ready {signedness_lhs = signed, signedness_rhs = unsigned} :
        pending<64x8xi32>
    %sum, %read = mma_wait %p : tile<64x8xi32>, token
    %t = store_view_tko %sum, %o_v, [%zero, %zero] {ordering = weak} : token"""
    o = np.zeros((64, 8), np.int32)
    module = program("%o: tile<ptr<i32>>", prologue, role("all", body), attributes="warps = 4")
    interpret(module, 1, [o])
    assert np.all(o == -2 * 200 * 32)


# Operands in registers


OPERAND = """
%i_float = itof %i {signedness = signed} : tile<f32>
%i_short = ftof %i_float : tile<bf16>
%i_one = reshape %i_short : tile<1x1xbf16>
%i_tile = broadcast %i_one : tile<64x16xbf16>"""
START = "mma_start %i_tile, %bt, acc=%acc, token=%ready : pending<64x8xf32>"


def repeated(body: str, extra: str = "") -> Module:
    """Products in a loop, on one accumulator."""
    return product(f"""
    %begun = mma_start %a, %bt, token=%ready : pending<64x8xf32>
    %no = cmpi %bx, %one {{predicate = equal, signedness = signed}} : tile<i1>
    {extra}
    %last = for %zero, %four, %one, [%begun] : pending<64x8xf32> body(
        %i: tile<i32>, %acc: pending<64x8xf32>) {{
      {body}
    }}""")


def test_an_operand_is_not_computed_anew_while_a_product_reads_it() -> None:
    """No loop carries it, and still each iteration writes the same registers."""
    late = f"{OPERAND}\n%next = {START}\n%t = mma_wait {{in_flight = 1}} : token\ncontinue %next"
    found = fails(repeated(late), 1, [np.zeros((64, 8), np.float32)])
    assert found.rule == "pipe.operand_in_flight"
    assert "%i_short is computed anew while a product may still read that" in found.message
    o = np.zeros((64, 8), np.float32)
    interpret(repeated(late.replace("in_flight = 1", "in_flight = 0")), 1, [o])
    assert np.all(o == 16 * 3 * (2 + 0 + 1 + 2 + 3))


@pytest.mark.parametrize("waits", ["mma_wait", "mma_wait {in_flight = 1}"])
def test_an_operand_that_one_branch_gives_to_a_product_is_lent(waits: str) -> None:
    """Behind an `if` that is what either branch leaves in flight."""
    body = f"""
    {OPERAND}
    %next = if %no : pending<64x8xf32> then {{
      %x = {START}
      yield %x
    }} otherwise {{
      %y = mma_start %a, %bt, acc=%acc, token=%ready : pending<64x8xf32>
      %z = mma_start %a, %bt, acc=%y, token=%ready : pending<64x8xf32>
      yield %z
    }}
    %t = {waits} : token
    continue %next"""
    o = np.zeros((64, 8), np.float32)
    if waits == "mma_wait":
        interpret(repeated(body), 1, [o])
    else:
        assert fails(repeated(body), 1, [o]).rule == "pipe.operand_in_flight"


def carried(arguments: str, ends: str) -> Module:
    """A loop that carries register operands `%p` and `%q`."""
    tile = "tile<64x16xbf16>"
    return product(f"""
    %begun = mma_start %a, %bt, token=%ready : pending<64x8xf32>
    %last, %x, %y = for %zero, %four, %one, [%begun, {arguments}] :
        pending<64x8xf32>, {tile}, {tile} body(
        %i: tile<i32>, %acc: pending<64x8xf32>, %p: {tile}, %q: {tile}) {{
      %next = mma_start %p, %bt, acc=%acc, token=%ready : pending<64x8xf32>
      %more = addf %q, %twos : {tile}
      %t = mma_wait {{in_flight = 0}} : token
      continue %next, {ends}
    }}""")


def test_one_value_may_be_the_next_of_several() -> None:
    o = np.zeros((64, 8), np.float32)
    for ends in ("%more, %q", "%more, %more"):
        found = fails(carried("%twos, %twos", ends), 1, [o])
        assert found.rule == "pipe.operand_in_flight"
    for ends in ("%p, %more", "%q, %more"):
        interpret(carried("%twos, %twos", ends), 1, [o])


def test_a_loop_left_by_break_may_leave_products_in_flight() -> None:
    """The loop around it then may not compute the operand anew."""
    inner = f"""
    {OPERAND}
    %next = loop %acc : pending<64x8xf32> body(%acc_in: pending<64x8xf32>) {{
      %s = {START.replace("%acc", "%acc_in")}
      WAIT
      %all = cmpi %i, %four {{predicate = less_than, signedness = signed}} : tile<i1>
      if %all then {{
        break %s
      }}
      %t = mma_wait : token
      continue %s
    }}
    continue %next"""
    o = np.zeros((64, 8), np.float32)
    assert fails(repeated(inner.replace("WAIT", "")), 1, [o]).rule == "pipe.operand_in_flight"
    interpret(repeated(inner.replace("WAIT", "%u = mma_wait : token")), 1, [o])


def test_a_result_of_break_may_be_unfinished() -> None:
    """What a loop gives is what leaves it, not what its iterations hand on."""
    middle = """
    %begun = mma_start %a, %bt, token=%ready : pending<64x8xf32>
    %last = loop %begun : pending<64x8xf32> body(%acc: pending<64x8xf32>) {
      %t = mma_wait : token
      %s = mma_start %a, %bt, acc=%acc, token=%ready : pending<64x8xf32>
      %all = cmpi %zero, %one {predicate = less_than, signedness = signed} : tile<i1>
      if %all then {
        break %s
      }
      %u = mma_wait : token
      continue %s
    }"""
    unfinished = product(
        middle.replace("%last", "%left")
        + """
    %got, %v = mma_wait %left {in_flight = 1} : tile<64x8xf32>, token
    %last = mma_open : pending<64x8xf32>"""
    )
    found = fails(unfinished, 1, [np.zeros((64, 8), np.float32)])
    assert found.rule == "pipe.mma_unfinished"
    assert "may still be among" in found.message


def test_copies_of_an_unrolled_loop_have_operands_of_their_own() -> None:
    parts = "%wide = constant {value = 1.0} : tile<64x64xbf16>"
    body = """
    %part = extract %wide, [%zero, %i] : tile<64x16xbf16>
    %twice = addf %part, %part : tile<64x16xbf16>
    %next = mma_start %twice, %bt, acc=%acc, token=%ready : pending<64x8xf32>
    %t = mma_wait {in_flight = 1} : token
    continue %next"""
    o = np.zeros((64, 8), np.float32)
    interpret(repeated(body, parts), 1, [o])
    assert np.all(o == 16 * 3 * (2 + 4 * 2))


# Tile operations inside


def test_rows_that_are_skipped_keep_their_values_and_stay_poison_free() -> None:
    body = f"""
    %x, %t = load_view_tko %a_v, [%zero, %zero] {{ordering = weak}} : tile<16x32xf32>, token
    %c = constant {{value = [true, false]}} : tile<2xi1>
    %y = if_rows %c, [%x] : tile<16x32xf32> then {{
      %two_x = addf %x, %x : tile<16x32xf32>
      yield %two_x
    }}
    {stored("%y", "16x32", "u", "%zero, %zero")}"""
    a, o = matrix()
    interpret(one_role(POINTERS, TILES, body), 1, [a, o])
    assert np.array_equal(o[:8, :32], 2 * a[:8, :32])
    assert np.array_equal(o[8:16, :32], a[8:16, :32])


def test_what_lies_along_a_row_is_no_row() -> None:
    body = f"""
    %x, %t = load_view_tko %a_v, [%zero, %zero] {{ordering = weak}} : tile<16x32xf32>, token
    %bias = constant {{value = 1.0}} : tile<32xf32>
    %w = constant {{value = 0.0}} : tile<32x32xf32>
    %c = constant {{value = [true, false]}} : tile<2xi1>
    %y = if_rows %c, [%x] : tile<16x32xf32> then {{
      %row = reshape %bias : tile<1x32xf32>
      %biases = broadcast %row : tile<16x32xf32>
      %sum = mmaf %x, %w, %biases : tile<16x32xf32>
      yield %sum
    }}
    {stored("%y", "16x32", "u", "%zero, %zero")}"""
    a, o = matrix()
    interpret(one_role(POINTERS, TILES, body), 1, [a, o])
    assert np.all(o[:8, :32] == 1)
    assert np.array_equal(o[8:16, :32], a[8:16, :32])


def test_a_row_that_depends_on_a_skipped_one_is_poison() -> None:
    body = f"""
    %x, %t = load_view_tko %a_v, [%zero, %zero] {{ordering = weak}} : tile<16x32xf32>, token
    %c = constant {{value = [true, false]}} : tile<2xi1>
    %y = if_rows %c, [%x] : tile<16x32xf32> then {{
      %sum = reduce %x {{axis = 0, identities = [0.0]}} : tile<32xf32> combine(
          %e: tile<f32>, %s: tile<f32>) {{
        %both = addf %e, %s : tile<f32>
        yield %both
      }}
      %row = reshape %sum : tile<1x32xf32>
      %all = broadcast %row : tile<16x32xf32>
      yield %all
    }}
    {stored("%y", "16x32", "u", "%zero, %zero")}"""
    a, o = matrix()
    assert fails(one_role(POINTERS, TILES, body), 1, [a, o]).rule == "poison.output"


def test_a_counter_wraps_and_orders_blocks() -> None:
    body = """
    %old, %t = atomic_inc_wrap_tko %p, %three {ordering = relaxed, scope = device} :
        tile<i32>, token
    %line = reshape %old : tile<1xi32>
    %u = store_view_tko %line, %o_v, [%bx] {ordering = weak} : token"""
    for options in ALL:
        counter, o = np.zeros(1, np.int32), np.zeros(8, np.int32)
        module = program(
            "%p: tile<ptr<i32>>, %o: tile<ptr<i32>>",
            vector("o", 8, 1),
            role("all", body, warps=8),
        )
        interpret(module, 8, [counter, o], **options)
        assert sorted(o.tolist()) == [0, 0, 1, 1, 2, 2, 3, 3]
        assert counter[0] == 0


def test_out_of_bounds_in_global_memory_is_found() -> None:
    prologue = vector("o", 8, 1)
    body = """
    %line = reshape %two : tile<1xi32>
    %u = store_view_tko %line, %o_v, [%four] {ordering = weak} : token"""
    module = program("%o: tile<ptr<i32>>", prologue, role("all", body, warps=8))
    found = fails(module, 1, [np.zeros(3, np.int32)])
    assert found.rule == "memory.out_of_bounds"
    assert found.data["role"] == "all"
