"""Tiles from and to memory by threads: ragged edges, padding, widths, other blocks, arrivals.

Each kernel runs at all three levels: pipe, threads, and the emitted text in the executor.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from reftile.interp.launch import interpret
from reftile.ir.diagnostics import ReftileError
from reftile.ir.parse import parse
from reftile.lower.pipeline import lower
from reftile.lower.ptx.assemble import assemble, find_ptxas
from tests.lower.on_machine import launch


def everywhere(
    text: str, grid: int, arguments: dict[str, Any], result: str, seed: int = 0
) -> list[np.ndarray]:
    """What a kernel leaves at each level; `result` is filled anew for each."""
    target = str(parse(text).kernel().attributes["target"])
    lowered = lower(parse(text).kernel(), target)
    names = [a.name for a in parse(text).kernel().arguments]
    found: list[np.ndarray] = []
    for level in ("pipe", "simt", "ptx"):
        arguments[result][...] = -1
        if level == "ptx":
            launch(lowered, grid, seed, **arguments)
        else:
            kernel = parse(text).kernel() if level == "pipe" else lowered.passes.kernel
            interpret(kernel, grid, [arguments[n] for n in names], schedule="topo", seed=seed)
        found.append(arguments[result].copy())
    return found


def scaled(dtype: str, padding: str, target: str = "sm_80", warps: int = 4) -> str:
    """O = X + X over tiles of 16 by 32, all of which meet an edge."""
    view = f"tensor_view<?x?x{dtype}, strides=[?, 1]>"
    pad = f", padding={padding}" if padding else ""
    add = "addi" if dtype.startswith("i") else "addf"
    return f"""
    pipe kernel @scale(%x: tile<ptr<{dtype}>>, %o: tile<ptr<{dtype}>>, %m: tile<i32>,
        %n: tile<i32>, %pitch: tile<i32>) attributes {{target = "{target}", warps = {warps}}} {{
      %bx, %by, %bz = get_tile_block_id : tile<i32>, tile<i32>, tile<i32>
      %zero = constant {{value = 0}} : tile<i32>
      %xt = make_tensor_view %x, [%m, %n], [%pitch] : {view}
      %v = make_partition_view %xt : partition_view<tile=(16x32), {view}{pad}>
      %ot = make_tensor_view %o, [%m, %n], [%pitch] : {view}
      %w = make_partition_view %ot : partition_view<tile=(16x32), {view}>
      %a, %read = load_view_tko %v, [%bx, %zero] {{ordering = weak}} : tile<16x32x{dtype}>, token
      %b = {add} %a, %a : tile<16x32x{dtype}>
      %s = store_view_tko %b, %w, [%bx, %zero] {{ordering = weak}} : token
      return
    }}
    """


@pytest.mark.parametrize(("dtype", "kind"), [("f32", np.float32), ("i32", np.int32)])
@pytest.mark.parametrize(("m", "n", "pitch"), [(37, 28, 28), (5, 32, 40), (16, 4, 8)])
def test_tiles_at_the_edge_are_loaded_and_stored(
    dtype: str, kind: type, m: int, n: int, pitch: int
) -> None:
    rng = np.random.default_rng(m)
    x = rng.integers(-50, 50, (m, pitch)).astype(kind)
    o = np.zeros_like(x)
    arguments = {"x": x, "o": o, "m": m, "n": n, "pitch": pitch}
    wanted = np.full_like(x, -1)
    wanted[:, :n] = 2 * x[:, :n]
    for result in everywhere(scaled(dtype, "zero"), -(-m // 16), arguments, "o"):
        assert np.array_equal(result, wanted), "what lies behind the edge stays as it was"


def test_the_host_checks_that_rows_are_whole_vectors() -> None:
    host = lower(parse(scaled("f32", "zero")).kernel(), "sm_80").host
    good = {"x": 256, "o": 512, "m": 3, "n": 28, "pitch": 32}
    assert host.broken_requirement(good) is None
    assert "`n` must be a multiple of" in (host.broken_requirement({**good, "n": 27}) or "")
    assert "multiple of" in (host.broken_requirement({**good, "pitch": 31}) or "")


@pytest.mark.parametrize("padding", ["zero", "neg_inf", "nan"])
def test_what_lies_outside_becomes_padding(padding: str) -> None:
    """Row maxima of a tile of which a part is outside."""
    view = "tensor_view<8x20xf32, strides=[20, 1]>"
    text = f"""
    pipe kernel @pad(%x: tile<ptr<f32>>, %o: tile<ptr<f32>>) attributes {{
        target = "sm_80", warps = 1}} {{
      %zero = constant {{value = 0}} : tile<i32>
      %xt = make_tensor_view %x, [], [] : {view}
      %v = make_partition_view %xt : partition_view<tile=(8x32), {view}, padding={padding}>
      %ot = make_tensor_view %o, [], [] : tensor_view<8x32xf32, strides=[32, 1]>
      %w = make_partition_view %ot :
        partition_view<tile=(8x32), tensor_view<8x32xf32, strides=[32, 1]>>
      %a, %read = load_view_tko %v, [%zero, %zero] {{ordering = weak}} : tile<8x32xf32>, token
      %s = store_view_tko %a, %w, [%zero, %zero] {{ordering = weak}} : token
      return
    }}
    """
    x = np.arange(160, dtype=np.float32).reshape(8, 20)
    fill = {"zero": 0.0, "neg_inf": -np.inf, "nan": np.nan}[padding]
    wanted = np.full((8, 32), fill, np.float32)
    wanted[:, :20] = x
    for result in everywhere(text, 1, {"x": x, "o": np.zeros((8, 32), np.float32)}, "o"):
        np.testing.assert_array_equal(result, wanted)


@pytest.mark.parametrize("layout", ["row_major", "swizzle64", "swizzle128.t"])
def test_fragments_of_any_width_pass_through_buffers(layout: str) -> None:
    """What one layout stores another loads: words, in a buffer of any form."""
    view = "tensor_view<32x32xf32, strides=[32, 1]>"
    text = f"""
    pipe kernel @through(%x: tile<ptr<f32>>, %o: tile<ptr<f32>>) attributes {{
        target = "sm_80", warps = 4}} {{
      %zero = constant {{value = 0}} : tile<i32>
      %xt = make_tensor_view %x, [], [] : {view}
      %v = make_partition_view %xt : partition_view<tile=(32x32), {view}>
      %ot = make_tensor_view %o, [], [] : {view}
      %w = make_partition_view %ot : partition_view<tile=(32x32), {view}>
      %b = alloc_buffer : buffer<32x32xf32, layout={layout}>
      %a, %read = load_view_tko %v, [%zero, %zero] {{ordering = weak}} : tile<32x32xf32>, token
      %put = store_buffer %a, %b, token=%read : token
      %c, %got = load_buffer %b, token=%put : tile<32x32xf32>, token
      %t = permute %c {{permutation = [1, 0]}} : tile<32x32xf32>
      %s = store_view_tko %t, %w, [%zero, %zero] {{ordering = weak}} : token
      return
    }}
    """
    x = np.arange(1024, dtype=np.float32).reshape(32, 32)
    for result in everywhere(text, 1, {"x": x, "o": np.zeros_like(x)}, "o"):
        assert np.array_equal(result, x.T)


def test_arrivals_after_copies_hand_them_over() -> None:
    view = "tensor_view<64x32xbf16, strides=[32, 1]>"
    out = "tensor_view<64x32xbf16, strides=[32, 1]>"
    text = f"""
    pipe kernel @hand(%x: tile<ptr<bf16>>, %o: tile<ptr<bf16>>) attributes {{
        target = "sm_80", warps = 8}} {{
      %zero = constant {{value = 0}} : tile<i32>
      %xt = make_tensor_view %x, [], [] : {view}
      %v = make_partition_view %xt : partition_view<tile=(64x32), {view}>
      %ot = make_tensor_view %o, [], [] : {out}
      %w = make_partition_view %ot : partition_view<tile=(64x32), {out}>
      %b = alloc_buffer : buffer<64x32xbf16, layout=swizzle64>
      %full = alloc_barrier : barrier<1, arrivals=128>
      role {{label = "consumer", warps = 4}} body {{
        %landed = wait_barrier %full, %zero, %zero : token
        %c, %got = load_buffer %b, token=%landed : tile<64x32xbf16>, token
        %s = store_view_tko %c, %w, [%zero, %zero] {{ordering = weak}} : token
        yield
      }}
      role {{label = "producer", warps = 4}} body {{
        copy_in %v, [%zero, %zero], %b {{engine = thread}}
        arrive_barrier %full, %zero {{by = threads, after_copies}}
        commit_copies {{engine = thread}}
        %done = wait_copies {{engine = thread}} : token
        yield
      }}
      return
    }}
    """
    rng = np.random.default_rng(0)
    x = rng.integers(0, 1 << 14, (64, 32)).astype(np.uint16)
    lowered = lower(parse(text).kernel(), "sm_80")
    assert "cp.async.mbarrier.arrive.noinc" in lowered.ptx
    assert "test_wait" in lowered.ptx, "sm_80 has no try_wait"
    import ml_dtypes  # pyright: ignore[reportMissingImports]

    for seed in range(3):
        for kernel in (parse(text).kernel(), lowered.passes.kernel):
            o = np.zeros((64, 32), ml_dtypes.bfloat16)
            arguments = [x.view(ml_dtypes.bfloat16), o]
            interpret(kernel, 1, arguments, schedule="topo", seed=seed)
            assert np.array_equal(o.view(np.uint16), x)
        o = np.zeros((64, 32), np.uint16)
        launch(lowered, 1, seed, x=x, o=o)
        assert np.array_equal(o, x)


def test_blocks_of_a_cluster_read_each_other() -> None:
    text = """
    pipe kernel @swap(%o: tile<ptr<i32>>) attributes {
        target = "sm_90a", warps = 4, cluster = [2, 1, 1]} {
      %one = constant {value = 1} : tile<i32>
      %seven = constant {value = 7} : tile<i32>
      %rank = cluster_rank : tile<i32>
      %ot = make_tensor_view %o, [], [] : tensor_view<2x32xi32, strides=[32, 1]>
      %w = make_partition_view %ot :
        partition_view<tile=(1x32), tensor_view<2x32xi32, strides=[32, 1]>>
      %b = alloc_buffer : buffer<i32>
      %zero = constant {value = 0} : tile<i32>
      %mine = addi %rank, %seven : tile<i32>
      %put = store_buffer %mine, %b : token
      cluster_arrive token=%put
      %met = cluster_wait : token
      role {label = "all", warps = 4} body {
        %other = xori %rank, %one : tile<i32>
        %theirs, %got = load_buffer %b, rank=%other, token=%met : tile<i32>, token
        %r = reshape %theirs : tile<1x1xi32>
        %row = broadcast %r : tile<1x32xi32>
        %s = store_view_tko %row, %w, [%rank, %zero] {ordering = weak} : token
        yield
      }
      cluster_arrive
      %over = cluster_wait : token
      return
    }
    """
    wanted = np.repeat([[8], [7]], 32, axis=1)
    for result in everywhere(text, 2, {"o": np.zeros((2, 32), np.int32)}, "o"):
        assert np.array_equal(result, wanted)
    assert "ld.shared::cluster" in lower(parse(text).kernel(), "sm_90a").ptx


def test_a_tile_of_one_axis_is_a_row() -> None:
    view = "tensor_view<?xf32, strides=[1]>"
    text = f"""
    pipe kernel @double(%x: tile<ptr<f32>>, %o: tile<ptr<f32>>, %n: tile<i32>) attributes {{
        target = "sm_80", warps = 4}} {{
      %bx, %by, %bz = get_tile_block_id : tile<i32>, tile<i32>, tile<i32>
      %xt = make_tensor_view %x, [%n], [] : {view}
      %v = make_partition_view %xt : partition_view<tile=(256), {view}>
      %ot = make_tensor_view %o, [%n], [] : {view}
      %w = make_partition_view %ot : partition_view<tile=(256), {view}>
      %a, %read = load_view_tko %v, [%bx] {{ordering = weak}} : tile<256xf32>, token
      %b = addf %a, %a : tile<256xf32>
      %s = store_view_tko %b, %w, [%bx] {{ordering = weak}} : token
      return
    }}
    """
    x = np.arange(1000, dtype=np.float32)
    for result in everywhere(text, 4, {"x": x, "o": np.zeros_like(x), "n": 1000}, "o"):
        assert np.array_equal(result, 2 * x)


# Atomic reductions


def added(dtype: str, mode: str, target: str = "sm_80", warps: int = 4) -> str:
    """O += X, by every block, at ragged edges."""
    view = f"tensor_view<?x?x{dtype}, strides=[?, 1]>"
    return f"""
    pipe kernel @add(%x: tile<ptr<{dtype}>>, %o: tile<ptr<{dtype}>>, %m: tile<i32>,
        %n: tile<i32>) attributes {{target = "{target}", warps = {warps}}} {{
      %zero = constant {{value = 0}} : tile<i32>
      %xt = make_tensor_view %x, [%m, %n], [%n] : {view}
      %v = make_partition_view %xt : partition_view<tile=(8x16), {view}, padding=zero>
      %ot = make_tensor_view %o, [%m, %n], [%n] : {view}
      %w = make_partition_view %ot : partition_view<tile=(8x16), {view}>
      %a, %read = load_view_tko %v, [%zero, %zero] {{ordering = weak}} : tile<8x16x{dtype}>, token
      %s = atomic_red_view_tko %w, [%zero, %zero], %a {{
        ordering = relaxed, scope = device, mode = {mode}}} : token
      return
    }}
    """


MODES = {
    "addf": lambda o, x: o + 3 * x,
    "add": lambda o, x: o + 3 * x,
    "max": np.maximum,
    "min": np.minimum,
    "or": np.bitwise_or,
    "xor": lambda o, x: o ^ x,
}


FORMS = [("f32", "addf"), ("f64", "addf"), ("f16", "addf"), ("i64", "add")]
FORMS += [("i32", mode) for mode in MODES if mode != "addf"]


@pytest.mark.parametrize(("dtype", "mode"), FORMS)
@pytest.mark.parametrize("warps", [1, 8])
def test_tiles_are_combined_with_memory(dtype: str, mode: str, warps: int) -> None:
    """Three blocks; 8 warps hold more copies than there are elements: each counts once."""
    kinds = {"f32": np.float32, "f64": np.float64, "f16": np.float16, "i32": np.int32}
    rng = np.random.default_rng(0)
    m, n = 5, 8
    x = rng.integers(-9, 10, (m, n)).astype(kinds.get(dtype, np.int64))
    start = rng.integers(-9, 10, (m, n)).astype(x.dtype)
    wanted = MODES[mode](start, x).astype(x.dtype)
    text = added(dtype, mode, warps=warps)
    lowered = lower(parse(text).kernel(), "sm_80")
    for level in ("pipe", "simt", "ptx"):
        o = start.copy()
        if level == "ptx":
            raw = "u2" if dtype == "f16" else x.dtype
            launch(lowered, 3, x=x.view(raw), o=o.view(raw), m=m, n=n)
        else:
            kernel = parse(text).kernel() if level == "pipe" else lowered.passes.kernel
            interpret(kernel, 3, [x, o, m, n])
        assert np.array_equal(o, wanted), level
    if find_ptxas() is not None:
        assemble(lowered.ptx, "sm_80")


def test_bf16_is_added_to_memory_where_the_hardware_does() -> None:
    with pytest.raises(ReftileError, match="adding bf16 to memory before sm_90"):
        lower(parse(added("bf16", "addf")).kernel(), "sm_80")
    ptx = lower(parse(added("bf16", "addf", "sm_90a")).kernel(), "sm_90a").ptx
    if find_ptxas() is not None:
        assemble(ptx, "sm_90a")


def test_arguments_may_have_any_names() -> None:
    """Keywords of Python, numbers, functions of host expressions: the host computes with them."""
    view = "tensor_view<?x?xf32, strides=[?, 1]>"
    text = f"""
    pipe kernel @send(%in: tile<ptr<f32>>, %_o: tile<ptr<f32>>, %0: tile<i32>, %min: tile<i32>,
        %in_: tile<i32>, %.1: tile<i32>) attributes {{target = "sm_90a", warps = 4}} {{
      %zero = constant {{value = 0}} : tile<i32>
      %columns = mini %min, %in_ {{signedness = signed}} : tile<i32>
      %from = make_tensor_view %in, [%0, %columns], [%.1] : {view}
      %to = make_tensor_view %_o, [%0, %columns], [%.1] : {view}
      %v = make_partition_view %from : partition_view<tile=(8x32), {view}>
      %w = make_partition_view %to : partition_view<tile=(8x32), {view}>
      %b = alloc_buffer : buffer<8x32xf32>
      %full = alloc_barrier : barrier<1, arrivals=1>
      elected body {{
        arrive_barrier %full, %zero {{bytes = 1024}}
        copy_in %v, [%zero, %zero], %b, barrier=%full, slot=%zero {{engine = bulk}}
        %landed = wait_barrier %full, %zero, %zero : token
        copy_out %b, %w, [%zero, %zero], token=%landed
        commit_copies {{engine = bulk}}
        %left = wait_copies {{engine = bulk}} : token
        yield
      }}
      %seen = wait_barrier %full, %zero, %zero : token
      return
    }}
    """
    given, result = np.arange(256, dtype=np.float32).reshape(8, 32), np.zeros((8, 32), np.float32)
    lowered = lower(parse(text).kernel(), "sm_90a")
    assert lowered.host.arguments == ("in__", "o_", "a0", "min_", "in_", "a1")
    for level in (parse(text), lowered.passes.kernel):
        result[...] = 0
        interpret(level, 1, [given, result, 8, 32, 32, 32])
        assert np.array_equal(result, given)
    result[...] = 0
    names = dict(zip(lowered.host.arguments, [given, result, 8, 32, 32, 32], strict=True))
    launch(lowered, 1, 0, **names)
    assert np.array_equal(result, given)
    with pytest.raises(ReftileError):
        interpret(lowered.passes.kernel, 1, [given, result, 8, 32, 32, 33])
