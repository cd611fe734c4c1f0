"""Changes of layout: right for every pair, in the interpreter of threads and in the executor."""

from __future__ import annotations

import itertools
import re

import numpy as np
import pytest

from reftile.interp.launch import interpret
from reftile.ir.core import Kernel
from reftile.ir.parse import parse
from reftile.ir.verify import verify
from reftile.layout.atoms import read, show
from reftile.layout.atoms_memory import blocked
from reftile.layout.convert import convert
from reftile.layout.linear import Layout
from reftile.lower.pipeline import lower
from reftile.lower.ptx.assemble import assemble, find_ptxas
from reftile.lower.ptx.emit import emit_ptx
from tests.lower.on_machine import launch
from tests.ptx_machine import run

ROWS, COLUMNS = 16, 16
SIZE = ROWS * COLUMNS


def flat(layout: Layout) -> Layout:
    """The same places, elements counted in rows."""
    return layout.reshape((SIZE,))


LAYOUTS: dict[str, Layout] = {
    "accumulator": read("mma.m16n8.d<16x16>"),
    "left operand": read("mma.m16n8k16.b16.a<16x16>"),
    "right operand": read("mma.m16n8k16.b16.b<16x16>"),
    "rows by ones": blocked((ROWS, COLUMNS), 1, 1),
    "rows by twos": blocked((ROWS, COLUMNS), 2, 1),
    "rows by eights": blocked((ROWS, COLUMNS), 8, 1),
    "columns by fours": blocked((ROWS, COLUMNS), 4, 1, order=(0, 1)),
}
PAIRS = [(a, b) for a, b in itertools.permutations(LAYOUTS, 2)]
CONVERSIONS = {
    "i32": "",
    "f32": "%v = itof %x {{signedness = signed}} : tile<256xf32, layout={a}>",
    "bf16": "%f = itof %x {{signedness = signed}} : tile<256xf32, layout={a}>\n"
    "%v = ftof %f : tile<256xbf16, layout={a}>",
    "i64": "%v = exti %x {{signedness = signed}} : tile<256xi64, layout={a}>",
}


def kernel(source: Layout, target: Layout, dtype: str) -> Kernel:
    """Each thread stores what its registers hold of 0, 1, 2, ... behind one another."""
    a, b = show(flat(source)), show(flat(target))
    made = CONVERSIONS[dtype].format(a=a)
    value = "%v" if made else "%x"
    count = target.extent("register")
    size = {"i32": 4, "f32": 4, "bf16": 2, "i64": 8}[dtype]
    each = 2 if dtype == "bf16" else 1
    stores = "\n".join(
        f"store_vector %y, %at {{first = {r}, count = {each}, offset = {r * size}, space = global}}"
        for r in range(0, count, each)
    )
    text = f"""
    simt kernel @k(%o: tile<ptr<{dtype}>>) attributes {{target = "sm_80", warps = 1}} {{
      %lane = lane_id : tile<i32>
      %wide = exti %lane {{signedness = unsigned}} : tile<i64>
      %bytes = constant {{value = {count * size}}} : tile<i64>
      %moved = muli %wide, %bytes : tile<i64>
      %base = global_address %o : tile<i64>
      %at = addi %base, %moved : tile<i64>
      %x = iota : tile<256xi32, layout={a}>
      {made}
      %y = change_layout {value} : tile<256x{dtype}, layout={b}>
      {stores}
      return
    }}
    """
    found = parse(text, "k.simt").kernel()
    verify(found)
    return found


def wanted(target: Layout) -> np.ndarray:
    """The elements by lane and register."""
    count = target.extent("register")
    return np.array(
        [[int(flat(target)(register=r, lane=lane)) for r in range(count)] for lane in range(32)]
    )


@pytest.mark.parametrize("pair", PAIRS, ids=lambda p: f"{p[0]} to {p[1]}")
def test_elements_reach_their_places(pair: tuple[str, str]) -> None:
    source, target = (LAYOUTS[name] for name in pair)
    made = kernel(source, target, "i32")
    expected = wanted(target)
    found = np.full(expected.shape, -1, np.int32)
    interpret(made, 1, [found])
    assert np.array_equal(found, expected)
    found[...] = -1
    run(emit_ptx(made), "k", 1, 32, args=[found])
    assert np.array_equal(found, expected)


@pytest.mark.parametrize("dtype", ["f32", "bf16", "i64"])
def test_elements_of_any_width_travel(dtype: str) -> None:
    for names in (("accumulator", "rows by eights"), ("rows by ones", "left operand")):
        source, target = (LAYOUTS[name] for name in names)
        made = kernel(source, target, dtype)
        expected = wanted(target)
        kind = {"f32": np.float32, "bf16": np.uint16, "i64": np.int64}[dtype]
        found = np.zeros(expected.shape, kind)
        run(emit_ptx(made), "k", 1, 32, args=[found])
        if dtype == "bf16":
            found = (found.astype(np.uint32) << 16).view(np.float32)
        assert np.array_equal(found, expected)


def test_an_accumulator_becomes_a_left_operand_without_shuffles() -> None:
    source, target = LAYOUTS["accumulator"], LAYOUTS["left operand"]
    assert convert(source, target).distance in ("none", "register")
    assert "shfl" not in emit_ptx(kernel(source, target, "bf16"))


def test_shuffles_are_as_few_as_rounds() -> None:
    for names in PAIRS:
        source, target = (LAYOUTS[name] for name in names)
        conversion = convert(source, target)
        text = emit_ptx(kernel(source, target, "i32"))
        assert text.count("shfl.sync") <= max(conversion.shuffle_rounds, 0) or not text
        assert ("shfl" in text) == (conversion.distance == "lane")


@pytest.mark.skipif(find_ptxas() is None, reason="needs ptxas")
def test_ptxas_takes_the_exchange() -> None:
    for dtype in CONVERSIONS:
        made = kernel(LAYOUTS["rows by ones"], LAYOUTS["left operand"], dtype)
        assert assemble(emit_ptx(made), "sm_80")[1].spill_bytes == 0


# From pipe


def turned(warps: int, target: str, roles: bool = False) -> str:
    """O = X + X^T for a product X: its elements lie in other threads for the second operand."""
    rows = 16 * warps
    view = f"tensor_view<{rows}x{rows}xf32, strides=[{rows}, 1]>"
    body = f"""
      %a = constant {{value = 1.0}} : tile<{rows}x16xbf16>
      %b = constant {{value = 1.0}} : tile<16x{rows}xbf16>
      %c, %loaded = load_view_tko %v, [%zero, %zero] {{ordering = weak}} :
        tile<{rows}x{rows}xf32>, token
      %x = mmaf %a, %b, %c : tile<{rows}x{rows}xf32>
      %t = permute %x {{permutation = [1, 0]}} : tile<{rows}x{rows}xf32>
      %sum = addf %x, %t : tile<{rows}x{rows}xf32>
      %s = store_view_tko %sum, %w, [%zero, %zero] {{ordering = weak}} : token
    """
    if roles:
        body = f'role {{label = "all", warps = {warps}}} body {{ {body} yield }}'
    return f"""
    pipe kernel @turn(%x_in: tile<ptr<f32>>, %o: tile<ptr<f32>>) attributes {{
        target = "{target}", warps = {warps}}} {{
      %zero = constant {{value = 0}} : tile<i32>
      %xt = make_tensor_view %x_in, [], [] : {view}
      %v = make_partition_view %xt : partition_view<tile=({rows}x{rows}), {view}>
      %ot = make_tensor_view %o, [], [] : {view}
      %w = make_partition_view %ot : partition_view<tile=({rows}x{rows}), {view}>
      {body}
      return
    }}
    """


@pytest.mark.parametrize("warps", [1, 2, 4])
@pytest.mark.parametrize("roles", [False, True])
def test_operands_that_lie_differently_meet(warps: int, roles: bool) -> None:
    text = turned(warps, "sm_80", roles)
    rows = 16 * warps
    rng = np.random.default_rng(warps)
    x = rng.integers(-8, 9, (rows, rows)).astype(np.float32)
    exact = x + 16 + (x + 16).T
    lowered = lower(parse(text).kernel(), "sm_80")
    through_memory = "bar.sync" in lowered.ptx or "bar.warp.sync" in lowered.ptx
    assert through_memory or "shfl.sync" in lowered.ptx
    results: list[np.ndarray] = []
    for level in ("pipe", "simt", "ptx"):
        o = np.full((rows, rows), np.nan, np.float32)
        if level == "ptx":
            launch(lowered, 1, x_in=x, o=o)
        else:
            interpret(parse(text).kernel() if level == "pipe" else lowered.passes.kernel, 1, [x, o])
        results.append(o)
    assert all(np.array_equal(r, exact) for r in results)


def test_the_way_through_memory_meets_few_conflicts() -> None:
    lowered = lower(parse(turned(4, "sm_80")).kernel(), "sm_80")
    x = np.zeros((64, 64), np.float32)
    report = interpret(lowered.passes.kernel, 1, [x, x.copy()])
    assert report.conflicts
    passes = sum(c.passes for c in report.conflicts)
    assert passes <= 2 * sum(c.ideal for c in report.conflicts)


def test_scratch_is_counted() -> None:
    lowered = lower(parse(turned(4, "sm_80")).kernel(), "sm_80")
    assert lowered.host.shared_bytes >= 64 * 64 * 4
    assert re.search(r"bar\.sync 0, 128", lowered.ptx)
