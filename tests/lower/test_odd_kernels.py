"""Small kernels that no example has: odd extents and warps, known values, ends of counters."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from reftile.ir.diagnostics import ReftileError
from reftile.ir.parse import parse
from reftile.ir.types import TileType
from reftile.lower.change_layouts import goes_through_memory
from reftile.lower.pipeline import lower
from reftile.lower.ptx.assemble import assemble, find_ptxas
from tests.lower.on_machine import one_tile
from tests.lower.test_views import everywhere


def agree(text: str, arguments: dict[str, Any], wanted: np.ndarray) -> None:
    """Each level leaves what is wanted in `o`; ptxas takes the text."""
    for found in everywhere(text, 1, arguments, "o"):
        assert found.tobytes() == wanted.tobytes()
    if find_ptxas() is not None:
        kernel = parse(text).kernel()
        target = str(kernel.attributes["target"])
        assemble(lower(kernel, target).ptx, target)


def refusal(text: str, target: str = "sm_80") -> tuple[str, str]:
    """The rule by which a kernel is refused, and the hint."""
    with pytest.raises(ReftileError) as error:
        lower(parse(text).kernel(), target)
    return error.value.diagnosis.rule, error.value.diagnosis.hint or ""


# Warps and extents that are no powers of two


@pytest.mark.parametrize(("rows", "columns", "warps"), [(6, 20, 3), (12, 20, 6), (48, 8, 3)])
def test_each_element_is_written_once(rows: int, columns: int, warps: int) -> None:
    tile = f"{rows}x{columns}xf32"
    text = one_tile(tile, tile, f"%r = addf %a, %a : tile<{tile}>", warps)
    x = np.arange(rows * columns, dtype=np.float32).reshape(rows, columns)
    agree(text, {"x": x, "o": np.zeros_like(x)}, 2 * x)


@pytest.mark.parametrize("warps", [3, 6])
def test_each_element_is_added_once(warps: int) -> None:
    body = """
      %seen = atomic_red_view_tko %w, [%zero], %a {
        mode = add, ordering = relaxed, scope = device} : token
      %r = addi %a, %a : tile<64xi32>
    """
    text = one_tile("64xi32", "64xi32", body, warps).replace("%stored = store_view_tko %r", "")
    text = "\n".join(line for line in text.splitlines() if "{ordering = weak} : token" not in line)
    x = np.arange(64, dtype=np.int32)
    agree(text, {"x": x, "o": np.zeros_like(x)}, x - 1)


def test_shapes_that_do_not_fit_are_refused_with_a_hint() -> None:
    reshaped = one_tile("6x20xf32", "4x30xf32", "%r = reshape %a : tile<4x30xf32>", 3)
    known = """
      %c = constant {value = 1.0} : tile<6x20xf32>
      %r = reshape %c : tile<4x30xf32>
    """
    part = """
      %one = constant {value = 1} : tile<i32>
      %r = extract %a, [%zero, %one] : tile<3x10xf32>
    """
    view = "tensor_view<10xf32, strides=[1]>"
    tied = f"""
      %one = constant {{value = 1}} : tile<i32>
      %c = constant {{value = 1.0}} : tile<20xf32>
      %e = extract %c, [%one] : tile<10xf32>
      %r = reshape %e : tile<2x5xf32>
      %et = make_tensor_view %x, [], [] : {view}
      %ev = make_partition_view %et : partition_view<tile=(10), {view}>
      %put = store_view_tko %e, %ev, [%zero] {{ordering = weak}} : token
    """
    for text in (
        reshaped,
        one_tile("2x5xf32", "2x5xf32", tied, 2),
        one_tile("6x20xf32", "4x30xf32", known, 3),
        one_tile("6x20xf32", "3x10xf32", part, 3),
    ):
        rule, hint = refusal(text)
        assert rule in ("lower.layout", "lower.no_layout") and "powers of two" in hint


# Layouts


def test_types_that_differ_in_their_layout_are_told_apart() -> None:
    """The same tile in other warps goes through memory, though in other registers it does not."""
    dtype = one_tile("2x128xi32", "2x128xi32", "%r = addi %a, %a : tile<2x128xi32>")
    element = next(op for op in parse(dtype).kernel().walk() if op.name == "addi").results[0].type
    assert isinstance(element, TileType)

    def held(layout: str) -> TileType:
        return TileType((2, 128), element.element, f"layout<2x128; {layout}>")

    spread = held("register 4*(0,1); lane 32*(0,4); warp 2*(1,0)")
    alike = held("register 4*(0,1) 2*(1,0); lane 32*(0,4)")
    assert not goes_through_memory(alike, held("register 2*(1,0) 4*(0,1); lane 32*(0,4)"))
    assert goes_through_memory(spread, alike)


def test_a_part_is_taken_out_of_what_all_lanes_hold() -> None:
    body = """
      %one = constant {value = 1} : tile<i32>
      %b = addi %a, %a : tile<2x128xi32>
      %r = extract %b, [%one, %zero] : tile<1x64xi32>
    """
    x = np.arange(256, dtype=np.int32).reshape(2, 128)
    for warps in (1, 2):
        text = one_tile("2x128xi32", "1x64xi32", body, warps)
        agree(text, {"x": x, "o": np.zeros((1, 64), np.int32)}, 2 * x[1:, :64])


def test_a_known_tile_is_reduced() -> None:
    body = """
      %c = constant {value = 2.0} : tile<48x8xf32>
      %r = reduce %c {axis = 1, identities = [0.0]} :
        tile<48xf32> combine(%e: tile<f32>, %acc: tile<f32>) {
          %m = addf %acc, %e : tile<f32>
          yield %m
        }
    """
    text = one_tile("48x8xf32", "48xf32", body)
    x = np.zeros((48, 8), np.float32)
    agree(text, {"x": x, "o": np.zeros(48, np.float32)}, np.full(48, 16, np.float32))


def test_a_branch_gives_a_known_tile() -> None:
    body = """
      %two = constant {value = 2} : tile<i32>
      %limit = constant {value = 9} : tile<64xi32>
      %below = cmpi %a, %limit {predicate = less_than, signedness = signed} : tile<64xi1>
      %is_so = cmpi %zero, %two {predicate = less_than, signedness = signed} : tile<i1>
      %yes = reshape %is_so : tile<1xi1>
      %known = broadcast %yes : tile<64xi1>
      %any = cmpi %two, %two {predicate = less_than, signedness = signed} : tile<i1>
      %which = if %any : tile<64xi1> then {
        yield %known
      } otherwise {
        yield %below
      }
      %r = exti %which {signedness = unsigned} : tile<64xi32>
    """
    x = np.arange(64, dtype=np.int32)
    text = one_tile("64xi32", "64xi32", body, 2)
    agree(text, {"x": x, "o": np.zeros_like(x)}, (x < 9).astype(np.int32))


def test_lanes_whose_senders_are_not_linear_go_through_memory() -> None:
    body = """
      %one = constant {value = 1} : tile<i32>
      %b = mulhii %a, %a : tile<48x8xi32>
      %none = constant {value = 0} : tile<48x8xi32>
      %p, %q = for %zero, %one, %one, [%a, %b] : tile<48x8xi32>, tile<48x8xi32> body(
          %i: tile<i32>, %c: tile<48x8xi32>, %d: tile<48x8xi32>) {
        continue %none, %c
      }
      %r = reshape %q : tile<8x48xi32>
    """
    text = one_tile("48x8xi32", "8x48xi32", body, 8, "sm_89")
    x = np.arange(384, dtype=np.int32).reshape(48, 8)
    agree(text, {"x": x, "o": np.zeros((8, 48), np.int32)}, x.reshape(8, 48))


# Numbers


@pytest.mark.parametrize("rounding", ["zero", "positive_inf"])
def test_known_divisors_round_as_is_said(rounding: str) -> None:
    """A shift rounds down; so does the quotient of constants unless it is told otherwise."""
    body = f"""
      %seven = constant {{value = 7}} : tile<i32>
      %two = constant {{value = 2}} : tile<i32>
      %most = reduce %a {{axis = 0, identities = [0]}} :
        tile<i32> combine(%e: tile<i32>, %acc: tile<i32>) {{
          %m = maxi %acc, %e {{signedness = signed}} : tile<i32>
          yield %m
        }}
      %x1 = divi %most, %two {{signedness = unsigned, rounding = {rounding}}} : tile<i32>
      %x2 = divi %seven, %two {{signedness = unsigned, rounding = {rounding}}} : tile<i32>
      %sum = addi %x1, %x2 : tile<i32>
      %row = reshape %sum : tile<1xi32>
      %r = broadcast %row : tile<32xi32>
    """
    x = np.arange(32, dtype=np.int32)
    wanted = 15 + 3 if rounding == "zero" else 16 + 4
    text = one_tile("32xi32", "32xi32", body)
    agree(text, {"x": x, "o": np.zeros_like(x)}, np.full(32, wanted, np.int32))


def counted(dtype: str, step: str, sign: str) -> str:
    """O = how often a loop from `first` to `end` runs."""
    one = f"constant {{value = 1}} : tile<{dtype}>"
    view = f"tensor_view<32x{dtype}, strides=[1]>"
    return f"""
    pipe kernel @k(%o: tile<ptr<{dtype}>>, %first: tile<{dtype}>, %end: tile<{dtype}>,
        %by: tile<{dtype}>) attributes {{target = "sm_80", warps = 1}} {{
      %ot = make_tensor_view %o, [], [] : {view}
      %w = make_partition_view %ot : partition_view<tile=(32), {view}>
      %at = constant {{value = 0}} : tile<i32>
      %zero = constant {{value = 0}} : tile<{dtype}>
      %three = constant {{value = 3}} : tile<{dtype}>
      %one = {one}
      %n = for %first, %end, {step}, [%zero] : tile<{dtype}> body(
          %i: tile<{dtype}>, %count: tile<{dtype}>) {sign} {{
        %more = addi %count, %one : tile<{dtype}>
        continue %more
      }}
      %row = reshape %n : tile<1x{dtype}>
      %r = broadcast %row : tile<32x{dtype}>
      %s = store_view_tko %r, %w, [%at] {{ordering = weak}} : token
      return
    }}
    """


@pytest.mark.parametrize("step", ["%by", "%three"])
def test_a_counter_that_reaches_the_last_number_ends_the_loop(step: str) -> None:
    last = 2**31 - 1
    for first, end, count in (
        (last - 4, last, 2),
        (last - 3, last, 1),
        (last, last, 0),
        (-(2**31), 2 - 2**31, 1),
        (-1, 9, 4),
    ):
        arguments = {"o": np.zeros(32, np.int32), "first": first, "end": end, "by": 3}
        agree(counted("i32", step, ""), arguments, np.full(32, count, np.int32))


# Tiles of one element


@pytest.mark.parametrize(("dtype", "kind"), [("f32", np.float32), ("i8", np.int8)])
@pytest.mark.parametrize("warps", [1, 4])
def test_one_element_is_stored_once_and_loaded_by_all(dtype: str, kind: type, warps: int) -> None:
    op, zero = ("addi", "0") if dtype == "i8" else ("addf", "0.0")
    total = f"""
      %sum = reduce %a {{axis = 0, identities = [{zero}]}} :
        tile<{dtype}> combine(%e: tile<{dtype}>, %acc: tile<{dtype}>) {{
          %m = {op} %acc, %e : tile<{dtype}>
          yield %m
        }}
      %r = reshape %sum : tile<1x{dtype}>
    """
    x = np.arange(10, 26).astype(kind)
    text = one_tile(f"16x{dtype}", f"1x{dtype}", total, warps)
    agree(text, {"x": x, "o": np.zeros(1, kind)}, x.sum(dtype=kind)[None])
    repeated = f"%r = broadcast %a : tile<16x16x{dtype}>"
    text = one_tile(f"1x1x{dtype}", f"16x16x{dtype}", repeated, warps)
    arguments = {"x": x[:1, None].copy(), "o": np.zeros((16, 16), kind)}
    agree(text, arguments, np.full((16, 16), 10, kind))


@pytest.mark.parametrize("tile", ["1xf32", "1x1xf64", "1x1xi8"])
@pytest.mark.parametrize("warps", [1, 4])
def test_one_element_passes_through_a_buffer(tile: str, warps: int) -> None:
    kind = {"f32": np.float32, "f64": np.float64, "i8": np.int8}[tile.split("x")[-1]]
    body = f"""
      %b = alloc_buffer : buffer<{tile}>
      %put = store_buffer %a, %b, token=%read : token
      %r, %got = load_buffer %b, token=%put : tile<{tile}>, token
    """
    x = np.full((1,) * tile.count("x"), 7, kind)
    agree(one_tile(tile, tile, body, warps), {"x": x, "o": np.zeros_like(x)}, x)


# Rows of buffers that are no power of two apart


@pytest.mark.parametrize(("dtype", "kind"), [("f32", np.float32), ("i8", np.int8)])
@pytest.mark.parametrize(
    ("rows", "columns", "layout", "warps"),
    [
        (16, 32, "row_major[33]", 1),
        (16, 32, "row_major[36]", 4),
        (32, 16, "row_major.t[40]", 4),
        (6, 20, "row_major", 3),
        (4, 20, "row_major", 1),
        (48, 8, "row_major[12]", 6),
    ],
)
def test_tiles_pass_through_buffers_with_rows_of_any_length(
    dtype: str, kind: type, rows: int, columns: int, layout: str, warps: int
) -> None:
    tile = f"{rows}x{columns}x{dtype}"
    body = f"""
      %b = alloc_buffer : buffer<{tile}, layout={layout}>
      %put = store_buffer %a, %b, token=%read : token
      %r, %got = load_buffer %b, token=%put : tile<{tile}>, token
    """
    x = (np.arange(rows * columns) % 100).astype(kind).reshape(rows, columns)
    agree(one_tile(tile, tile, body, warps), {"x": x, "o": np.zeros_like(x)}, x)


# What has no form is refused


@pytest.mark.parametrize(("kind", "extent"), [("i64", "?"), ("i16", "?"), ("i32", "4294967296")])
def test_extents_of_other_widths_are_refused(kind: str, extent: str) -> None:
    view = f"tensor_view<{extent}xf32, strides=[1]>"
    given = "[%n]" if extent == "?" else "[]"
    text = f"""
    pipe kernel @k(%x: tile<ptr<f32>>, %n: tile<{kind}>) attributes {{
        target = "sm_80", warps = 1}} {{
      %zero = constant {{value = 0}} : tile<i32>
      %c = constant {{value = 1.0}} : tile<16xf32>
      %t = make_tensor_view %x, {given}, [] : {view}
      %v = make_partition_view %t : partition_view<tile=(16), {view}>
      %s = store_view_tko %c, %v, [%zero] {{ordering = weak}} : token
      return
    }}
    """
    rule, hint = refusal(text)
    assert rule == "lower.unsupported" and hint


def test_rows_may_be_any_number_of_64_bits_apart() -> None:
    view = "tensor_view<16x32xf32, strides=[?, 1]>"
    text = f"""
    pipe kernel @k(%o: tile<ptr<f32>>, %pitch: tile<i64>) attributes {{
        target = "sm_80", warps = 1}} {{
      %zero = constant {{value = 0}} : tile<i32>
      %c = constant {{value = 1.0}} : tile<16x32xf32>
      %t = make_tensor_view %o, [], [%pitch] : {view}
      %v = make_partition_view %t : partition_view<tile=(16x32), {view}>
      %s = store_view_tko %c, %v, [%zero, %zero] {{ordering = weak}} : token
      return
    }}
    """
    wanted = np.full((16, 40), -1, np.float32)
    wanted[:, :32] = 1
    agree(text, {"o": np.zeros((16, 40), np.float32), "pitch": 40}, wanted)


def test_a_truth_value_is_no_parameter() -> None:
    body = "%r = addf %a, %a : tile<16xf32>"
    text = one_tile("16xf32", "16xf32", body).replace("@k(", "@k(%q: tile<i1>, ")
    text = text.replace(body, "%r = if %q : tile<16xf32> then { yield %a } otherwise { yield %a }")
    rule, hint = refusal(text)
    assert rule == "lower.unsupported" and "i32" in hint


def test_bulk_copies_fill_small_buffers() -> None:
    """A box lies at a multiple of 128 bytes, however few it has."""
    vector = "tensor_view<8xi32, strides=[1]>"
    text = f"""
    pipe kernel @k(%x: tile<ptr<i32>>, %o: tile<ptr<i32>>) attributes {{target = "sm_90a", warps = 4}} {{
      %zero = constant {{value = 0}} : tile<i32>
      %one = constant {{value = 1}} : tile<i32>
      %xt = make_tensor_view %x, [], [] : {vector}
      %v = make_partition_view %xt : partition_view<tile=(4), {vector}>
      %ot = make_tensor_view %o, [], [] : {vector}
      %w = make_partition_view %ot : partition_view<tile=(4), {vector}>
      %a = alloc_buffer : buffer<4xi32>
      %b = alloc_buffer : buffer<4xi32>
      %full = alloc_barrier : barrier<1, arrivals=1>
      elected body {{
        arrive_barrier %full, %zero {{bytes = 32}}
        copy_in %v, [%zero], %a, barrier=%full, slot=%zero {{engine = bulk}}
        copy_in %v, [%one], %b, barrier=%full, slot=%zero {{engine = bulk}}
        yield
      }}
      %landed = wait_barrier %full, %zero, %zero : token
      %y, %got_y = load_buffer %a, token=%landed : tile<4xi32>, token
      %z, %got_z = load_buffer %b, token=%landed : tile<4xi32>, token
      %t = store_view_tko %y, %w, [%one] {{ordering = weak}} : token
      %u = store_view_tko %z, %w, [%zero] {{ordering = weak}} : token
      return
    }}
    """  # noqa: E501
    x = np.arange(8, dtype=np.int32)
    agree(text, {"x": x, "o": np.zeros_like(x)}, np.roll(x, 4))
