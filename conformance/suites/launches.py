"""Cases of blocks, globals, allocation, tokens, promises and extents known at run time."""

# Programs are written as they read; their lines may be long.
# ruff: noqa: E501

from __future__ import annotations

from collections.abc import Iterator

from reftile.conformance.cases import Case
from reftile.conformance.suites.common import Settings
from reftile.conformance.suites.script import STORE, Script, cases_of, typed


def cases(settings: Settings) -> Iterator[Case]:
    """All of them."""
    yield from cases_of((*blocks(), *memory(), *promises(), *shapes()))


def blocks() -> Iterator[Script]:
    """The grid."""
    body = """  %x, %y, %z = get_tile_block_id : tile<i32>, tile<i32>, tile<i32>
  %nx, %ny, %nz = get_num_tile_blocks : tile<i32>, tile<i32>, tile<i32>
  %a = muli %z, %ny : tile<i32>
  %b = addi %a, %y : tile<i32>
  %c = muli %b, %nx : tile<i32>
  %d = addi %c, %x : tile<i32>
  %hundred = constant {value = 100} : tile<i32>
  %e = muli %z, %hundred : tile<i32>
  %ten = constant {value = 10} : tile<i32>
  %f = muli %y, %ten : tile<i32>
  %g = addi %e, %f : tile<i32>
  %h = addi %g, %x : tile<i32>
  %p = offset %out, %d : tile<ptr<i32>>
  %t = store_ptr_tko %p, %h {ordering = weak} : token"""
    for nx, ny, nz in ((1, 1, 1), (5, 1, 1), (2, 3, 2), (1, 1, 4)):
        expected = [100 * z + 10 * y + x for z in range(nz) for y in range(ny) for x in range(nx)]
        for op in ("get_tile_block_id", "get_num_tile_blocks"):
            yield Script(op, f"{nx}x{ny}x{nz}", body, [("out", "i32", expected)], grid=(nx, ny, nz))
    for op in ("gdc_launch_dependents_tko", "gdc_wait_tko"):
        text = f"""  %t = {op} : token
  %s = store_ptr_tko %out, %c3, token=%t {{ordering = weak}} : token
  %u = {op} token=%s : token
  %x, %v = load_ptr_tko %out, token=%u {{ordering = weak}} : tile<T>, token
  %y = addi %x, %c1 : tile<T>
  %w = store_ptr_tko %out, %y, token=%v {{ordering = weak}} : token"""
        yield Script(op, "hands-the-token-on", typed(text, "i32"), [("out", "i32", [4])])
    add = """  %t, %u = atomic_rmw_tko %out, %c1 {ordering = relaxed, scope = device, mode = add} : tile<T>, token"""
    yield Script(
        "atomic_rmw_tko",
        "across-blocks",
        typed(add, "i32"),
        [("out", "i32", [7 + 24])],
        grid=(4, 3, 2),
        initial={"out": [7]},
    )


def memory() -> Iterator[Script]:
    """Allocation, globals, tokens, scalars."""
    alloca = """  %p = alloca {num_elem = 8, alignment = 64} : tile<ptr<i32>>
  %i = iota : tile<8xi32>
  %r = reshape %p : tile<1xptr<i32>>
  %b = broadcast %r : tile<8xptr<i32>>
  %q = offset %b, %i : tile<8xptr<i32>>
  %t = store_ptr_tko %q, %i {ordering = weak} : token
  %x, %u = load_ptr_tko %q, token=%t {ordering = weak} : tile<8xi32>, token
  %result = reduce %x {axis = 0, identities = [0]} : tile<i32> combine(%e: tile<i32>, %a: tile<i32>) {
    %s = addi %a, %e : tile<i32>
    yield %s
  }"""
    yield Script("alloca", "scratch", alloca + STORE, [("out", "i32", [28])])
    aligned = """  %p = alloca {num_elem = 3, alignment = 256} : tile<ptr<i8>>
  %n = ptr_to_int %p : tile<i64>
  %m = constant {value = 255} : tile<i64>
  %result = andi %n, %m : tile<i64>"""
    yield Script("alloca", "alignment", aligned + STORE, [("out", "i64", [0])], dtype="i64")
    each = """  %one = constant {value = 1} : tile<i32>
  %x, %y, %z = get_tile_block_id : tile<i32>, tile<i32>, tile<i32>
  %p = alloca {num_elem = 1, alignment = 16} : tile<ptr<i32>>
  %t = store_ptr_tko %p, %x {ordering = weak} : token
  %v, %u = load_ptr_tko %p, token=%t {ordering = weak} : tile<i32>, token
  %o = offset %out, %x : tile<ptr<i32>>
  %s = store_ptr_tko %o, %v {ordering = weak} : token"""
    yield Script("alloca", "of-each-block", each, [("out", "i32", [0, 1, 2])], grid=(3, 1, 1))
    table = """  %g = get_global {symbol = @table} : tile<ptr<i16>>
  %i = constant {value = INDEX} : tile<i32>
  %q = offset %g, %i : tile<ptr<i16>>
  %result, %t = load_ptr_tko %q {ordering = weak} : tile<i16>, token"""
    head = "global {symbol = @table, value = dense(tile<4xi16>, [3, -1, 4, 1]), alignment = 16, constant}\n"
    for index, expected in ((0, 3), (1, -1), (3, 1)):
        yield Script(
            "get_global",
            f"element-{index}",
            table.replace("INDEX", str(index)) + STORE,
            [("out", "i16", [expected])],
            head=head,
            dtype="i16",
            covers=["global.meaning"],
        )
    splat = "global {symbol = @table, value = dense(tile<4xi16>, 7)}\n"
    written = """  %g = get_global {symbol = @table} : tile<ptr<i16>>
  %five = constant {value = 5} : tile<i16>
  %old, %t = load_ptr_tko %g {ordering = weak} : tile<i16>, token
  %u = store_ptr_tko %g, %five, token=%t {ordering = weak} : token
  %new, %w = load_ptr_tko %g, token=%u {ordering = weak} : tile<i16>, token
  %result = addi %old, %new : tile<i16>"""
    yield Script(
        "global",
        "may-be-written",
        written + STORE,
        [("out", "i16", [12])],
        head=splat,
        dtype="i16",
        covers=["get_global.meaning"],
    )
    chain = """  %t = make_token : token
  %a = store_ptr_tko %out, %c1, token=%t {ordering = weak} : token
  %j = join_tokens %a, %t : token
  %f = memory_fence_alias_tko %j : token
  %x, %b = load_ptr_tko %out, token=%f {ordering = weak} : tile<T>, token
  %y = addi %x, %c10 : tile<T>
  %c = store_ptr_tko %out, %y, token=%b {ordering = weak} : token"""
    for op in ("make_token", "join_tokens", "memory_fence_alias_tko"):
        yield Script(op, "orders", typed(chain, "i32"), [("out", "i32", [11])])
    for dtype, value, bits in (
        ("i8", -5, 251),
        ("i64", -(1 << 40), -(1 << 40)),
        ("i1", 1, 1),
        ("f32", -2.5, 0xC0200000),
        ("f64", 0.1, 0x3FB999999999999A),
        ("bf16", 1.5, 0x3FC0),
    ):
        yield Script(
            "store_ptr_tko",
            "scalar-argument",
            "  %t = store_ptr_tko %out, %n {ordering = weak} : token",
            [("out", dtype, [bits])],
            scalars=[("n", dtype, value)],
            dtype=dtype,
        )
    shared = """  %x, %t = load_ptr_tko %in {ordering = weak} : tile<i32>, token
  %q = ptr_to_ptr %in : tile<ptr<i8>>
  %three = constant {value = 3} : tile<i32>
  %r = offset %q, %three : tile<ptr<i8>>
  %result, %u = load_ptr_tko %r {ordering = weak} : tile<i8>, token"""
    yield Script(
        "load_ptr_tko",
        "a-byte-of-a-word",
        shared + STORE,
        [("out", "i8", [0x12])],
        inputs=[("in", "i32", [0x12345678])],
        dtype="i8",
    )


def promises() -> Iterator[Script]:
    """`assume`, `assert`, `print_tko` on what holds."""
    table = (
        ("div_by", "%c10 {div_by = 2}", 10),
        ("bounds", "%c3 {at_least = -5, at_most = 3}", 3),
        ("lower", "%c0 {at_least = 0}", 0),
        ("zero-is-divisible", "%c0 {div_by = 1024}", 0),
    )
    for name, text, expected in table:
        body = typed(f"  %result = assume {text} : tile<T>", "i32")
        yield Script("assume", name, body + STORE, [("out", "i32", [expected])])
    groups = """  %i = iota : tile<8xi32>
  %a = assume %i {div_by = 4, every = 4, along = 0} : tile<8xi32>
  %two = constant {value = 2} : tile<8xi32>
  %h = divi %i, %two {signedness = unsigned} : tile<8xi32>
  %b = assume %h {same_elements = [2]} : tile<8xi32>
  %s = addi %a, %b : tile<8xi32>
  %v = make_tensor_view %out, [], [] : tensor_view<8xi32, strides=[1]>
  %p = make_partition_view %v : partition_view<tile=(8), tensor_view<8xi32, strides=[1]>>
  %z = constant {value = 0} : tile<i32>
  %stored = store_view_tko %s, %p, [%z] {ordering = weak} : token"""
    yield Script("assume", "groups", groups, [("out", "i32", [i + i // 2 for i in range(8)])])
    for name, condition in (
        ("true", "constant {value = true} : tile<4xi1>"),
        ("scalar", "constant {value = true} : tile<i1>"),
    ):
        body = f'  %yes = {condition}\n  assert %yes {{message = "it holds"}}\n' + typed(
            "  %result = addi %c1, %c2 : tile<T>", "i32"
        )
        yield Script("assert", name, body + STORE, [("out", "i32", [3])])
    text = '  %t = print_tko [%c3] {format = "three is %d\\n"} : token\n  %result = addi %c1, %c2 : tile<T>'
    yield Script(
        "print_tko", "prints-and-goes-on", typed(text, "i32") + STORE, [("out", "i32", [3])]
    )
    yield from prints()


def prints() -> Iterator[Script]:
    """The text that `print_tko` prints: what C prints for the same conversions."""
    table = (
        ("integer", "%c3", "three is %d\\n", "three is 3\n"),
        ("two", "%c3, %c10", "%i and %u", "3 and 10"),
        ("percent", "%c1", "%d of 100 %%", "1 of 100 %"),
        ("width", "%c3, %c10, %c2", "[%5d|%-5d|%05d]", "[    3|10   |00002]"),
        ("hexadecimal", "%minus, %c10", "%x %#x", "fffffffd 0xa"),
        ("negative", "%minus, %minus", "%d %+d", "-3 -3"),
        ("float", "%half, %half, %half", "%f %.2e %g", "0.500000 5.00e-01 0.5"),
        ("tile", "%many", "(%d)", "([0, 1, 2])"),
        ("nested", "%rows", "%d", "[[0, 1], [2, 3]]"),
        ("nothing", "", "no operand", "no operand"),
    )
    values = """
  %minus = constant {value = -3} : tile<i32>
  %half = constant {value = 0.5} : tile<f32>
  %many = constant {value = [0, 1, 2]} : tile<3xi32>
  %four = iota : tile<4xi32>
  %rows = reshape %four : tile<2x2xi32>"""
    for name, operands, format, expected in table:
        text = f'{values}\n  %t = print_tko [{operands}] {{format = "{format}"}} : token'
        body = typed(text + "\n  %result = addi %c1, %c2 : tile<T>", "i32") + STORE
        outputs = [("out", "i32", [3])]
        yield Script("print_tko", f"text-{name}", body, outputs, prints=expected)
    ordered = """
  %t = print_tko [%c1] {format = "%d"} : token
  %u = print_tko [%c2], token=%t {format = ", %d"} : token
  %v = print_tko [%c3], token=%u {format = ", %d"} : token
  %result = addi %c1, %c2 : tile<T>"""
    body = typed(ordered, "i32") + STORE
    yield Script("print_tko", "text-ordered", body, [("out", "i32", [3])], prints="1, 2, 3")


def shapes() -> Iterator[Script]:
    """Extents known at run time."""
    body = """  %v = make_tensor_view %in, [%n, %m], [%s] : tensor_view<?x?xi32, strides=[?, 1]>
  %p = make_partition_view %v : partition_view<tile=(2x4), tensor_view<?x?xi32, strides=[?, 1]>, padding=zero>
  %a, %b = get_tensor_shape %v : tile<INT>, tile<INT>
  %c, %d = get_index_space_shape %p : tile<INT>, tile<INT>
  %one = constant {value = 1} : tile<i32>
  %x, %t = load_view_tko %p, [%one, %one] {ordering = weak} : tile<2x4xi32>, token
  %o = make_tensor_view %out, [], [] : tensor_view<2x4xi32, strides=[4, 1]>
  %q = make_partition_view %o : partition_view<tile=(2x4), tensor_view<2x4xi32, strides=[4, 1]>>
  %zero = constant {value = 0} : tile<i32>
  %s0 = store_view_tko %x, %q, [%zero, %zero] {ordering = weak} : token
  %e = reshape %a : tile<1xINT>
  %f = reshape %b : tile<1xINT>
  %g = reshape %c : tile<1xINT>
  %h = reshape %d : tile<1xINT>
  %ef = cat %e, %f {axis = 0} : tile<2xINT>
  %gh = cat %g, %h {axis = 0} : tile<2xINT>
  %all = cat %ef, %gh {axis = 0} : tile<4xINT>
  %w = make_tensor_view %out2, [], [] : tensor_view<4xINT, strides=[1]>
  %k = make_partition_view %w : partition_view<tile=(4), tensor_view<4xINT, strides=[1]>>
  %s1 = store_view_tko %all, %k, [%zero] {ordering = weak} : token"""
    data = list(range(100, 140))
    for dtype in ("i8", "i16", "i32", "i64"):
        for op in ("get_tensor_shape", "get_index_space_shape", "make_tensor_view"):
            # 3 x 7 of rows of 10
            tile = [
                data[10 * r + c] if r < 3 and c < 7 else 0 for r in (2, 3) for c in (4, 5, 6, 7)
            ]
            yield Script(
                op,
                "dynamic",
                body.replace("INT", dtype),
                [("out", "i32", tile), ("out2", dtype, [3, 7, 2, 2])],
                inputs=[("in", "i32", data)],
                scalars=[("n", "i32", 3), ("m", "i64", 7), ("s", "i16", 10)],
                dtype=dtype,
            )
    for kind, type, expected in (
        (
            "strided_view",
            "strided_view<traversal=[3], tile=(4), tensor_view<10xi32, strides=[1]>>",
            4,
        ),
        (
            "gather_scatter_view",
            "gather_scatter_view<sparse_dim=0, tile=(4), tensor_view<10xi32, strides=[1]>>",
            10,
        ),
        ("partition_view", "partition_view<tile=(4), tensor_view<10xi32, strides=[1]>>", 3),
    ):
        text = f"""  %v = make_tensor_view %in, [], [] : tensor_view<10xi32, strides=[1]>
  %p = make_{kind} %v : {type}
  %result = get_index_space_shape %p : tile<i32>"""
        yield Script(
            "get_index_space_shape",
            kind,
            text + STORE,
            [("out", "i32", [expected])],
            inputs=[("in", "i32", range(10))],
            covers=[f"make_{kind}.meaning"],
        )
