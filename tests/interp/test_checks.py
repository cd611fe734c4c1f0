"""Each rule that a running kernel can break: its diagnosis, and the mended twin that passes."""

from __future__ import annotations

from typing import Any

import ml_dtypes
import numpy as np
import pytest

from reftile.interp.launch import Raw, Uninitialized, interpret
from reftile.ir.diagnostics import ReftileErrors
from reftile.ir.parse import parse
from tests.interp.tile_kernels import program, run, vector, violation, zeros

POINTERS = """
%p1 = reshape %p : tile<1xptr<f32>>
%ps = broadcast %p1 : tile<8xptr<f32>>
%lanes = iota : tile<8xi32>
"""
LOAD = "%v, %t = load_ptr_tko %at {ordering = weak} : tile<8xf32>, token"
MASKED = "%v, %t = load_ptr_tko %at, mask=%m {ordering = weak} : tile<8xf32>, token"


def test_a_pointer_behind_its_buffer_is_named_with_element_and_address() -> None:
    body = POINTERS + "%at = offset %ps, %lanes : tile<8xptr<f32>>\n" + LOAD
    found = violation(program("%p: tile<ptr<f32>>", body), 1, [zeros(6)])
    assert found.rule == "memory.out_of_bounds"
    assert found.data["element"] == (6,)
    assert "0 bytes behind the end of `p` (24 bytes)" in found.message
    assert found.span.source.line(found.span.line).startswith("%v, %t = load_ptr_tko")
    run(program("%p: tile<ptr<f32>>", body), 1, [zeros(8)])


def test_a_masked_element_may_point_anywhere() -> None:
    body = f"""{POINTERS}
    %at = offset %ps, %lanes : tile<8xptr<f32>>
    %six = constant {{value = 6}} : tile<8xi32>
    %m = cmpi %lanes, %six {{predicate = less_than, signedness = signed}} : tile<8xi1>
    {MASKED}"""
    run(program("%p: tile<ptr<f32>>", body), 1, [zeros(6)])


@pytest.mark.parametrize(
    ("make", "rule"),
    [
        ("%q = ptr_to_int %p : tile<i64>\n%two = constant {value = 2} : tile<i64>\n"
         "%r = addi %q, %two : tile<i64>\n%at = int_to_ptr %r : tile<ptr<f32>>",
         "memory.misaligned"),
        ("%z = constant {value = 0} : tile<i64>\n%at = int_to_ptr %z : tile<ptr<f32>>",
         "memory.null"),
        ("%m = constant {value = -1} : tile<i32>\n%at = offset %p, %m : tile<ptr<f32>>",
         "memory.out_of_bounds"),
        ("%i = constant {value = 2000} : tile<i32>\n%at = offset %p, %i : tile<ptr<f32>>",
         "memory.out_of_bounds"),
    ],
)  # fmt: skip
def test_a_bad_address_is_an_error(make: str, rule: str) -> None:
    body = f"{make}\n%v, %t = load_ptr_tko %at {{ordering = weak}} : tile<f32>, token"
    found = violation(program("%p: tile<ptr<f32>>", body), 1, [zeros(8)])
    assert found.rule == rule
    assert found.data["block"] == (0, 0, 0)


def test_two_buffers_may_be_reached_by_one_tile_of_pointers() -> None:
    body = """
    %a = reshape %p : tile<1xptr<f32>>
    %b = reshape %q : tile<1xptr<f32>>
    %at = cat %a, %b {dim = 0} : tile<2xptr<f32>>
    %v, %t = load_ptr_tko %at {ordering = weak} : tile<2xf32>, token
    %u = store_ptr_tko %at, %v, token=%t {ordering = weak} : token
    """
    module = program("%p: tile<ptr<f32>>, %q: tile<ptr<f32>>", body.replace("dim", "axis"))
    x, y = np.full(1, 2.0, np.float32), np.full(1, 3.0, np.float32)
    run(module, 1, [x, y])
    assert (x[0], y[0]) == (2.0, 3.0)


def test_a_view_index_outside_the_index_space_is_an_error() -> None:
    body = (
        vector("p", "10", 4)
        + """
    %v, %t = load_view_tko %p_v, [%bx] {ordering = weak} : tile<4xf32>, token"""
    )
    module = program("%p: tile<ptr<f32>>", body)
    run(module, 3, [zeros(10)])
    found = violation(module, 4, [zeros(10)])
    assert found.rule == "view.index"
    assert found.data["block"] == (3, 0, 0)
    assert "[3]" in found.message


def test_a_negative_view_index_is_outside() -> None:
    body = (
        vector("p", "16", 4)
        + """
    %m = constant {value = -1} : tile<i32>
    %v, %t = load_view_tko %p_v, [%m] {ordering = weak} : tile<4xf32>, token"""
    )
    assert violation(program("%p: tile<ptr<f32>>", body), 1, [zeros(16)]).rule == "view.index"


COPY_TAIL = "%t1 = store_view_tko %v, %o_v, [%bx] {ordering = weak} : token"


@pytest.mark.parametrize(("padding", "value"), [("zero", 0.0), ("neg_inf", -np.inf)])
def test_padding_fills_what_lies_outside(padding: str, value: float) -> None:
    body = f"""{vector("p", "6", 4, padding=padding)}
    {vector("o", "8", 4)}
    %v, %t = load_view_tko %p_v, [%bx] {{ordering = weak}} : tile<4xf32>, token
    {COPY_TAIL}"""
    out = np.ones(8, np.float32)
    run(program("%p: tile<ptr<f32>>, %o: tile<ptr<f32>>", body), 2, [np.ones(6, np.float32), out])
    assert out.tolist() == [1, 1, 1, 1, 1, 1, value, value]


def test_an_element_without_padding_must_not_leave_the_kernel() -> None:
    body = f"""{vector("p", "6", 4)}
    {vector("o", "8", 4)}
    %v, %t = load_view_tko %p_v, [%bx] {{ordering = weak}} : tile<4xf32>, token
    {COPY_TAIL}"""
    module = program("%p: tile<ptr<f32>>, %o: tile<ptr<f32>>", body)
    found = violation(module, 2, [zeros(6), zeros(8)])
    assert found.rule == "poison.output"
    assert "element 6 of `o`" in found.message
    assert found.data["block"] == (1, 0, 0)
    assert "store_view_tko" in found.span.source.line(found.span.line)
    run(module, 1, [zeros(6), zeros(8)])


def test_a_store_outside_the_view_does_nothing() -> None:
    body = f"""{vector("p", "8", 4)}
    {vector("o", "6", 4)}
    %v, %t = load_view_tko %p_v, [%bx] {{ordering = weak}} : tile<4xf32>, token
    {COPY_TAIL}"""
    whole = np.zeros(8, np.float32)
    module = program("%p: tile<ptr<f32>>, %o: tile<ptr<f32>>", body)
    run(module, 2, [np.ones(8, np.float32), whole[:6]])
    assert whole.tolist() == [1] * 6 + [0, 0]


@pytest.mark.parametrize(
    ("use", "rule"),
    [
        ("if %c then {\n yield\n}", "poison.branch"),
        ("%q = offset %p, %v : tile<ptr<i32>>\n"
         "%w, %u = load_ptr_tko %q {ordering = weak} : tile<i32>, token", "poison.address"),
        ("%w, %u = load_ptr_tko %p, mask=%c {ordering = weak} : tile<i32>, token", "poison.mask"),
        ("%w = for %zero, %v, %one, [%zero] : tile<i32> body(%i: tile<i32>, %acc: tile<i32>) {\n"
         "continue %acc\n}", "poison.bound"),
        ("%t2 = make_token : token", None),
    ],
)  # fmt: skip
def test_poison_may_be_held_but_decides_nothing(use: str, rule: str | None) -> None:
    body = f"""
    %a = alloca {{num_elem = 1, alignment = 4}} : tile<ptr<i32>>
    %v, %t = load_ptr_tko %a {{ordering = weak}} : tile<i32>, token
    %c = cmpi %v, %zero {{predicate = equal, signedness = signed}} : tile<i1>
    {use}"""
    module = program("%p: tile<ptr<i32>>", body)
    if rule is None:
        run(module, 1, [zeros(4, np.int32)])
        return
    found = violation(module, 1, [zeros(4, np.int32)])
    assert found.rule == rule
    stored = body.replace(
        "%v, %t = load_ptr_tko %a",
        "%s = store_ptr_tko %a, %one {ordering = weak} : token\n%v, %t = load_ptr_tko %a, token=%s",
    )
    run(program("%p: tile<ptr<i32>>", stored), 1, [zeros(4, np.int32)])


def test_memory_of_a_region_is_dead_behind_it() -> None:
    body = """
    %yes = constant {value = true} : tile<i1>
    %q = if %yes : tile<ptr<i32>> then {
      %a = alloca {num_elem = 1, alignment = 4} : tile<ptr<i32>>
      yield %a
    } otherwise {
      %b = alloca {num_elem = 1, alignment = 4} : tile<ptr<i32>>
      yield %b
    }
    %t = store_ptr_tko %q, %one {ordering = weak} : token
    """
    found = violation(program("", body), 1, [])
    assert found.rule == "memory.freed"
    assert "`%a`" in found.message


def test_an_uninitialized_output_must_be_written_before_it_is_read() -> None:
    body = f"""{vector("p", "8", 8)}
    %v, %t = load_view_tko %p_v, [%zero] {{ordering = weak}} : tile<8xf32>, token
    %t1 = store_view_tko %v, %p_v, [%zero], token=%t {{ordering = weak}} : token"""
    module = program("%p: tile<ptr<f32>>", body)
    run(module, 1, [zeros(8)])
    assert violation(module, 1, [Uninitialized(zeros(8))]).rule == "poison.output"
    run(program("%p: tile<ptr<f32>>", ""), 1, [Uninitialized(zeros(8))])


@pytest.mark.parametrize(
    ("attributes", "value", "good"),
    [
        ("div_by = 16", 24, 32),
        ("at_least = 3", 2, 3),
        ("at_most = 3", 4, 3),
        ("at_least = -1, at_most = 1", 2, -1),
    ],
)
def test_a_false_promise_is_an_error(attributes: str, value: int, good: int) -> None:
    module = program("%n: tile<i32>", f"%m = assume %n {{{attributes}}} : tile<i32>")
    found = violation(module, 1, [value])
    assert found.rule.startswith("assume.")
    assert str(value) in found.message
    run(module, 1, [good])


@pytest.mark.parametrize(
    ("attributes", "values", "good"),
    [
        ("div_by = 4, every = 4, along = 0", [4, 5, 6, 7, 8, 9, 10, 12], [4, 5, 6, 7, 0, 1, 2, 3]),
        ("same_elements = [4]", [1, 1, 1, 1, 2, 2, 2, 3], [1, 1, 1, 1, 2, 2, 2, 2]),
    ],
)
def test_promises_about_groups(attributes: str, values: list[int], good: list[int]) -> None:
    for numbers, holds in ((values, False), (good, True)):
        body = f"%v = constant {{value = {numbers}}} : tile<8xi32>\n"
        module = program("", body + f"%m = assume %v {{{attributes}}} : tile<8xi32>")
        if holds:
            run(module, 1, [])
        else:
            assert violation(module, 1, []).data["element"] == (7,)


def test_a_promise_about_a_pointer_counts_from_its_allocation() -> None:
    module = program("%p: tile<ptr<f32>>", "%q = assume %p {div_by = 16} : tile<ptr<f32>>")
    whole = zeros(64)
    run(module, 1, [whole])
    run(module, 1, [whole[4:]])
    assert violation(module, 1, [whole[1:]]).rule == "assume.div_by"


@pytest.mark.parametrize(
    ("operation", "rule"),
    [
        ("%r = addi %n, %n {overflow = nsw} : tile<i32>", "addi"),
        ("%r = divi %one, %n {signedness = signed} : tile<i32>", "divi"),
        ("%s = constant {value = [1, 2]} : tile<2xi32>\n%r = extract %s, [%n] : tile<1xi32>",
         "extract"),
    ],
)  # fmt: skip
def test_an_undefined_pure_operation_is_an_error(operation: str, rule: str) -> None:
    module = program("%n: tile<i32>", operation)
    bad = {"addi": 1 << 30, "divi": 0, "extract": 2}[rule]
    found = violation(module, 1, [bad])
    assert found.rule.startswith(rule + ".")
    assert found.span.source.line(found.span.line).startswith("%r")
    run(module, 1, [1])


ACCESS = """
%v, %t = load_ptr_tko %p {ordering = weak} : tile<f32>, token
%u = store_ptr_tko %p, %v, token=%t {ordering = weak} : token
"""


@pytest.mark.parametrize("mode", ["read_only", "write_only", "read_write"])
def test_access_modes_of_arguments_hold(mode: str) -> None:
    module = program(f'%p: tile<ptr<f32>> {{access = "{mode}"}}', ACCESS)
    if mode == "read_write":
        run(module, 1, [zeros(1)])
    else:
        found = violation(module, 1, [zeros(1)])
        assert found.rule == f"access.{mode}"
        assert "`p`" in found.message


def test_an_array_that_numpy_protects_is_not_written() -> None:
    array = zeros(1)
    array.setflags(write=False)
    for check in (True, False):
        found = violation(program("%p: tile<ptr<f32>>", ACCESS), 1, [array], check=check)
        assert found.rule == "access.read_only"


def test_noalias_is_checked_once_shared_memory_is_written() -> None:
    module = program("%p: tile<ptr<f32>> {noalias}, %q: tile<ptr<f32>>", ACCESS)
    whole = zeros(8)
    run(module, 1, [whole[:4], whole[4:]])
    assert violation(module, 1, [whole[:5], whole[4:]]).rule == "access.noalias"


def test_a_broken_inbounds_promise_is_an_error() -> None:
    body = (
        vector("p", "6", 4, padding="zero")
        + """
    %v, %t = load_view_tko %p_v, [%bx] {ordering = weak, inbounds = [true]} : tile<4xf32>, token"""
    )
    module = program("%p: tile<ptr<f32>>", body)
    run(module, 1, [zeros(6)])
    found = violation(module, 2, [zeros(6)])
    assert found.rule == "load_view_tko.inbounds"


def test_assertions_are_collected_with_element_and_block() -> None:
    body = """
    %lanes = iota : tile<4xi32>
    %b1 = reshape %bx : tile<1xi32>
    %b = broadcast %b1 : tile<4xi32>
    %ok = cmpi %lanes, %b {predicate = greater_than_or_equal, signedness = signed} : tile<4xi1>
    assert %ok {message = "too small"}
    """
    module = program("", body)
    run(module, 1, [])
    with pytest.raises(ReftileErrors) as error:
        interpret(module, 3, [])
    texts = [(d.message, d.data["block"]) for d in error.value.diagnoses]
    assert texts == [
        ("too small at element [0]", (1, 0, 0)),
        ("too small at element [0]", (2, 0, 0)),
        ("too small at element [1]", (2, 0, 0)),
    ]


def test_print_formats_like_c() -> None:
    body = r"""
    %x = constant {value = [1.5, -2.0]} : tile<2xf32>
    %m = constant {value = -1} : tile<i32>
    %t = print_tko [%bx, %x, %m, %m] {format = "block %d: %.2f %u %x 100%%\n"} : token
    """
    printed = run(program("", body), 2, []).printed
    assert printed[1] == "block 1: [1.50, -2.00] 4294967295 ffffffff 100%\n"
    wrong = program("", '%t = print_tko [%bx] {format = "%d %d"} : token')
    assert violation(wrong, 1, []).rule == "print_tko.format"


@pytest.mark.parametrize(
    ("dtype", "array"),
    [
        ("f16", np.array([1.5, -0.0, 65504, np.inf], np.float16)),
        ("bf16", np.array([1.5, -0.0, 3e38, np.inf], ml_dtypes.bfloat16)),
        ("f8e4m3", np.array([1.5, -0.0, 448, 2**-9], ml_dtypes.float8_e4m3fn)),
        ("f8e5m2", np.array([1.5, -0.0, 57344, np.inf], ml_dtypes.float8_e5m2)),
        ("f64", np.array([1.5, -0.0, 1e300, np.inf])),
        ("i8", np.array([-128, 127, 0, 1], np.int8)),
        ("i64", np.array([-(1 << 63), 5, 0, 1])),
        ("i1", np.array([True, False, True, True])),
        ("tf32", np.array([1.5, -0.0, 2**100, np.inf], np.float32)),
    ],
)
def test_every_element_type_goes_through_memory(dtype: str, array: Any) -> None:
    body = f"""{vector("p", "4", 4, dtype)}
    {vector("o", "4", 4, dtype)}
    %v, %t = load_view_tko %p_v, [%zero] {{ordering = weak}} : tile<4x{dtype}>, token
    {COPY_TAIL}"""
    module = program(f"%p: tile<ptr<{dtype}>>, %o: tile<ptr<{dtype}>>", body)
    out = np.zeros_like(array)
    run(module, 1, [array, out])
    assert out.tobytes() == array.tobytes()


def test_elements_of_four_bits_are_packed() -> None:
    body = f"""{vector("p", "8", 4, "i4")}
    {vector("o", "8", 4, "i4")}
    %v, %t = load_view_tko %p_v, [%bx] {{ordering = weak}} : tile<4xi4>, token
    {COPY_TAIL}"""
    module = program("%p: tile<ptr<i4>>, %o: tile<ptr<i4>>", body)
    source, out = np.array([0x21, 0x43, 0x65, 0x87], np.uint8), zeros(4, np.uint8)
    run(module, 2, [Raw(source, "i4"), Raw(out, "i4")])
    assert out.tolist() == source.tolist()


def test_a_gather_scatter_view_takes_rows_and_leaves_out_those_outside() -> None:
    tensor = "tensor_view<6x4xf32, strides=[4, 1]>"
    view = f"gather_scatter_view<sparse_dim=0, tile=(4x2), {tensor}"
    body = f"""
    %pt = make_tensor_view %p, [], [] : {tensor}
    %ot = make_tensor_view %o, [], [] : {tensor}
    %rows = make_gather_scatter_view %pt : {view}, padding=zero>
    %out = make_gather_scatter_view %ot : {view}>
    %at = constant {{value = [5, 0, 9, 2]}} : tile<4xi32>
    %to = constant {{value = [0, 1, -1, 3]}} : tile<4xi32>
    %v, %t = load_view_tko %rows, [%at, %one] {{ordering = weak}} : tile<4x2xf32>, token
    %u = store_view_tko %v, %out, [%to, %one] {{ordering = weak}} : token"""
    module = program("%p: tile<ptr<f32>>, %o: tile<ptr<f32>>", body)
    x, out = np.arange(24, dtype=np.float32), zeros(24)
    for check in (True, False):
        out[:] = 0
        run(module, 1, [x, out], check=check)
        expected = np.zeros((6, 4), np.float32)
        expected[[0, 1, 3], 1:3] = x.reshape(6, 4)[[5, 0, 2], 1:3]
        assert (out.reshape(6, 4) == expected).all()


def test_a_transposed_view_and_a_tensor_view_argument() -> None:
    view = "tensor_view<?x?xf32, strides=[?, 1]>"
    body = f"""
    %pv = make_partition_view %p : partition_view<tile=(4x2), {view}, dim_map=[1, 0]>
    %ov = make_partition_view %o : partition_view<tile=(4x2), {view}>
    %v, %t = load_view_tko %pv, [%bx, %by] {{ordering = weak}} : tile<4x2xf32>, token
    %u = store_view_tko %v, %ov, [%bx, %by] {{ordering = weak}} : token"""
    module = program(f"%p: {view}, %o: {view}", body)
    x, out = np.arange(48, dtype=np.float32).reshape(6, 8), np.zeros((8, 6), np.float32)
    for check in (True, False):
        out[:] = 0
        run(module, (2, 3), [x, out], check=check)
        assert (out == x.T).all()


def test_overlapping_windows_are_read_by_a_strided_view() -> None:
    tensor = "tensor_view<10xi32, strides=[1]>"
    body = f"""
    %pt = make_tensor_view %p, [], [] : {tensor}
    %pv = make_strided_view %pt : strided_view<traversal=[2], tile=(4), {tensor}, padding=zero>
    {vector("o", "20", 4, "i32")}
    %v, %t = load_view_tko %pv, [%bx] {{ordering = weak}} : tile<4xi32>, token
    {COPY_TAIL}"""
    module = program("%p: tile<ptr<i32>>, %o: tile<ptr<i32>>", body)
    out = zeros(20, np.int32)
    for check in (True, False):
        out[:] = 0
        run(module, 5, [np.arange(10, dtype=np.int32), out], check=check)
        assert out.reshape(5, 4)[4].tolist() == [8, 9, 0, 0]
        assert out.reshape(5, 4)[1].tolist() == [2, 3, 4, 5]


def test_globals_hold_their_values() -> None:
    text = """
    global {symbol = @table, value = dense(tile<3xi32>, [7, 8, 9]), constant}
    tile kernel @k(%o: tile<ptr<i32>>) {
      %i, %j, %l = get_tile_block_id : tile<i32>, tile<i32>, tile<i32>
      %g = get_global {symbol = @table} : tile<ptr<i32>>
      %p = offset %g, %i : tile<ptr<i32>>
      %v, %t = load_ptr_tko %p {ordering = weak} : tile<i32>, token
      %q = offset %o, %i : tile<ptr<i32>>
      %u = store_ptr_tko %q, %v {ordering = weak} : token
      return
    }
    """
    out = zeros(3, np.int32)
    for check in (True, False):
        out[:] = 0
        run(parse(text), 3, [out], check=check)
        assert out.tolist() == [7, 8, 9]
    written = parse(text.replace("store_ptr_tko %q, %v", "store_ptr_tko %p, %v, token=%t"))
    assert violation(written, 3, [out]).rule == "access.read_only"


def test_atomics_combine_every_element_once() -> None:
    body = """
    %p1 = reshape %p : tile<1xptr<f16>>
    %ps = broadcast %p1 : tile<8xptr<f16>>
    %x = constant {value = 0.1} : tile<8xf16>
    %old, %t = atomic_rmw_tko %ps, %x {
      ordering = relaxed, scope = device, mode = addf} : tile<8xf16>, token
    """
    out = zeros(1, np.float16)
    run(program("%p: tile<ptr<f16>>", body), 2, [out])
    expected = np.float16(0)
    for _ in range(16):
        expected = np.float16(expected + np.float16(0.1))
    assert out[0] == expected


def test_compare_and_swap_lets_one_element_through() -> None:
    body = """
    %p1 = reshape %p : tile<1xptr<i32>>
    %ps = broadcast %p1 : tile<4xptr<i32>>
    %zeros = constant {value = 0} : tile<4xi32>
    %new = constant {value = [5, 6, 7, 8]} : tile<4xi32>
    %old, %t = atomic_cas_tko %ps, %zeros, %new {
      ordering = relaxed, scope = device} : tile<4xi32>, token
    %o1 = reshape %o : tile<1xptr<i32>>
    %os = broadcast %o1 : tile<4xptr<i32>>
    %lanes = iota : tile<4xi32>
    %to = offset %os, %lanes : tile<4xptr<i32>>
    %u = store_ptr_tko %to, %old {ordering = weak} : token
    """
    module = program("%p: tile<ptr<i32>>, %o: tile<ptr<i32>>", body)
    cell, out = zeros(1, np.int32), zeros(4, np.int32)
    run(module, 1, [cell, out])
    assert cell[0] == 5
    assert out.tolist() == [0, 5, 5, 5]


def test_a_view_may_be_larger_than_its_buffer_but_not_what_is_accessed() -> None:
    body = (
        vector("p", "64", 8)
        + """
    %v, %t = load_view_tko %p_v, [%bx] {ordering = weak} : tile<8xf32>, token"""
    )
    module = program("%p: tile<ptr<f32>>", body)
    run(module, 2, [zeros(16)])
    found = violation(module, 2, [zeros(12)])
    assert found.rule == "memory.out_of_bounds"
    assert found.data["element"] == (4,)
    assert found.data["block"] == (1, 0, 0)


def test_a_view_of_misaligned_memory_cannot_be_accessed() -> None:
    body = (
        """
    %a = ptr_to_int %p : tile<i64>
    %two = constant {value = 2} : tile<i64>
    %b = addi %a, %two : tile<i64>
    %q = int_to_ptr %b : tile<ptr<f32>>
    """
        + vector("q", "4", 4)
        + """
    %v, %t = load_view_tko %q_v, [%bx] {ordering = weak} : tile<4xf32>, token"""
    )
    assert violation(program("%p: tile<ptr<f32>>", body), 1, [zeros(8)]).rule == "memory.misaligned"


@pytest.mark.parametrize("shared", [False, True])
def test_memory_of_a_block_is_its_own_unless_shared(shared: bool) -> None:
    body = f"""
    %first = cmpi %bx, %zero {{predicate = equal, signedness = signed}} : tile<i1>
    %slot = ptr_to_ptr %p : tile<ptr<i64>>
    if %first then {{
      %a = alloca {{num_elem = 1, alignment = 4{", shared" if shared else ""}}} : tile<ptr<i32>>
      %w = store_ptr_tko %a, %one {{ordering = weak}} : token
      %n = ptr_to_int %a : tile<i64>
      %t = store_ptr_tko %slot, %n, token=%w {{ordering = release, scope = device}} : token
      %end = loop %t : token body(%c: token) {{
        %m, %u = load_ptr_tko %slot, token=%c {{
          ordering = acquire, scope = device}} : tile<i64>, token
        %same = cmpi %m, %n {{predicate = equal, signedness = signed}} : tile<i1>
        if %same then {{
          continue %u
        }}
        break %u
      }}
      yield
    }} otherwise {{
      %m, %u = load_ptr_tko %slot {{ordering = acquire, scope = device}} : tile<i64>, token
      %a = int_to_ptr %m : tile<ptr<i32>>
      %v, %x = load_ptr_tko %a, token=%u {{ordering = weak}} : tile<i32>, token
      %zero64 = constant {{value = 0}} : tile<i64>
      %t = store_ptr_tko %slot, %zero64, token=%x {{ordering = release, scope = device}} : token
      yield
    }}"""
    module = program("%p: tile<ptr<i32>>", body, 'progress = "cooperative"')
    if shared:
        run(module, 2, [zeros(2, np.int32)])
    else:
        assert violation(module, 2, [zeros(2, np.int32)]).rule == "access.private"


def test_a_loop_that_never_ends_is_an_error() -> None:
    module = program("", "loop body() {\ncontinue\n}")
    assert violation(module, 1, []).rule == "loop.endless"


def test_multicast_operations_are_refused_by_name() -> None:
    body = (
        vector("p", "8", 8)
        + """
    %v, %t = multimem_load_reduce_view_tko %p_v, [%bx] {
      ordering = weak, reduction = add} : tile<8xf32>, token"""
    )
    found = violation(program("%p: tile<ptr<f32>>", body), 1, [zeros(8)])
    assert found.rule == "multimem_load_reduce_view_tko.unsupported"


@pytest.mark.parametrize(
    ("args", "text"),
    [
        ([], "takes 2 arguments"),
        ([zeros(4), 1.5], "does not fit %n: i32"),
        ([zeros(4), 1 << 33], "does not fit %n: i32"),
        ([zeros(4), zeros(3)], "found an array of shape (3,)"),
        ([zeros(4, np.int32), 1], "needs elements of f32, found i32"),
        ([3, 1], "takes an array"),
        ([zeros(4, np.complex64), 1], "complex64"),
        ([zeros(8)[::-1], 1], "negative"),
    ],
)
def test_arguments_must_fit(args: list[Any], text: str) -> None:
    found = violation(program("%p: tile<ptr<f32>>, %n: tile<i32>", ""), 1, args)
    assert found.rule == "launch.arguments"
    assert text in found.message


def test_grids_and_names_must_fit() -> None:
    module = program("", "")
    assert violation(module, 0, []).rule == "launch.grid"
    assert violation(module, (1, 1, 1, 1), []).rule == "launch.grid"
    assert violation(module, 1, [], name="other").rule == "launch.kernel"


def test_unsigned_and_signed_counters_end_at_their_limits() -> None:
    body = """
    %low = constant {value = 125} : tile<i8>
    %high = constant {value = -2} : tile<i8>
    %two = constant {value = 2} : tile<i8>
    %n = for %low, %high, %two, [%zero] {unsigned_cmp} : tile<i32> body(
        %i: tile<i8>, %a: tile<i32>) {
      %b = addi %a, %one : tile<i32>
      continue %b
    }
    %top = constant {value = 127} : tile<i8>
    %m = for %low, %top, %two, [%zero] : tile<i32> body(%i: tile<i8>, %a: tile<i32>) {
      %b = addi %a, %one : tile<i32>
      continue %b
    }
    %p1 = offset %p, %one : tile<ptr<i32>>
    %t = store_ptr_tko %p, %n {ordering = weak} : token
    %u = store_ptr_tko %p1, %m {ordering = weak} : token"""
    for check in (True, False):
        out = zeros(2, np.int32)
        run(program("%p: tile<ptr<i32>>", body), 1, [out], check=check)
        assert out.tolist() == [65, 1]
