"""Layouts are the solver's: warps share products as is cheapest, conflicts name both places."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from reftile.ir.diagnostics import ReftileError
from reftile.ir.parse import parse
from reftile.lower.assign_layouts import assign_layouts
from reftile.lower.pipeline import Lowered, lower
from reftile.lower.ptx.assemble import assemble, find_ptxas
from tests.lang.pipe.pipe_python import example, lowered
from tests.lang.pipe.test_pipe_fragments import attention_error, run_on_machine
from tests.lower.test_views import everywhere

TARGETS = ("sm_80", "sm_89", "sm_90a")


def head(rows: int, *names: str) -> str:
    """Views of rows x rows of f32, one for each argument."""
    view = f"tensor_view<{rows}x{rows}xf32, strides=[{rows}, 1]>"
    lines = ["%zero = constant {value = 0} : tile<i32>"]
    for name in names:
        lines.append(f"%{name}_t = make_tensor_view %{name}, [], [] : {view}")
        part = f"partition_view<tile=({rows}x{rows}), {view}>"
        lines.append(f"%{name}_v = make_partition_view %{name}_t : {part}")
    return "\n".join(lines)


def product(body: str, warps: int = 4) -> str:
    """A product of 64 x 64, and what is done with it."""
    return f"""
    pipe kernel @k(%x: tile<ptr<f32>>, %o: tile<ptr<f32>>) attributes {{
        target = "sm_80", warps = {warps}}} {{
      {head(64, "x", "o")}
      %a = constant {{value = 1.0}} : tile<64x16xbf16>
      %b = constant {{value = 1.0}} : tile<16x64xbf16>
      %c, %loaded = load_view_tko %x_v, [%zero, %zero] {{ordering = weak}} : tile<64x64xf32>, token
      %p = mmaf %a, %b, %c : tile<64x64xf32>
      {body}
      return
    }}
    """


SUM = "combine(%e: tile<f32>, %acc: tile<f32>) { %r = addf %acc, %e : tile<f32> yield %r }"


def test_warps_share_a_product_as_is_cheapest() -> None:
    """In a square; or along its rows alone, if these are reduced."""
    store = "%s = store_view_tko %p, %o_v, [%zero, %zero] {ordering = weak} : token"
    square = assign_layouts(parse(product(store)).kernel(), "sm_80")
    (found,) = (op.results[0] for op in square.walk() if op.name == "mmaf")
    assert "warp 2x2" in str(found.type) or "warp 1x2; warp 2x1" in str(found.type)
    rows = f"""
      %sum = reduce %p {{axis = 1, identities = [0.0]}} : tile<64xf32> {SUM}
      %column = reshape %sum : tile<64x1xf32>
      %all = broadcast %column : tile<64x64xf32>
      %s = store_view_tko %all, %o_v, [%zero, %zero] {{ordering = weak}} : token
    """
    lowered = lower(parse(product(rows)).kernel(), "sm_80")
    assert "bar.sync" not in lowered.ptx
    x = np.random.default_rng(0).integers(-9, 10, (64, 64)).astype(np.float32)
    wanted = np.repeat((x + 16).sum(1, keepdims=True), 64, axis=1)
    arguments: dict[str, Any] = {"x": x, "o": np.zeros_like(x)}
    for result in everywhere(product(rows), 1, arguments, "o"):
        assert np.array_equal(result, wanted)


def test_a_conflict_names_both_places() -> None:
    """Truth values cannot go through shared memory: they have no bytes there."""
    body = """
      %none = constant {value = 0.0} : tile<64x64xf32>
      %t = cmpf %p, %none {predicate = less_than, ordering = ordered} : tile<64x64xi1>
      %turned = permute %t {permutation = [1, 0]} : tile<64x64xi1>
      %both = andi %t, %turned : tile<64x64xi1>
      %n = select %both, %p, %none : tile<64x64xf32>
      %s = store_view_tko %n, %o_v, [%zero, %zero] {ordering = weak} : token
    """
    with pytest.raises(ReftileError) as error:
        lower(parse(product(body), "k.tile").kernel(), "sm_80")
    diagnosis = error.value.diagnosis
    assert diagnosis.rule == "lower.layout_conflict"
    lines = product(body).splitlines()
    assert "andi" in lines[diagnosis.span.line - 1]
    places = [(note, span) for note, span in diagnosis.notes if span is not None]
    assert places[0][0] == "`mmaf` makes it so"
    assert "mmaf" in lines[places[0][1].line - 1]


def test_a_layout_that_is_given_is_kept() -> None:
    """The text of a kernel may prescribe a layout; what meets it is converted."""
    layout = "layout<64x64; register 4*(0,1) 8*(8,0); lane 16*(0,4) 2*(1,0); warp 4*(2,0)>"
    body = f"""
      %q = addf %p, %p : tile<64x64xf32, layout={layout}>
      %s = store_view_tko %q, %o_v, [%zero, %zero] {{ordering = weak}} : token
    """
    kernel = assign_layouts(parse(product(body)).kernel(), "sm_80")
    (found,) = (op.results[0] for op in kernel.walk() if op.name == "addf")
    assert layout in str(found.type)
    assert any(op.name == "change_layout" for op in kernel.walk())
    x = np.arange(4096, dtype=np.float32).reshape(64, 64)
    for result in everywhere(product(body), 1, {"x": x, "o": np.zeros_like(x)}, "o"):
        assert np.array_equal(result, 2 * (x + 16))


# Attention by single warps


def attention(target: str, causal: bool) -> tuple[Lowered, float]:
    """The example for a target, in the executor: one head of 100 queries. Also the error."""
    rng = np.random.default_rng(int(causal))
    q, k, v = (rng.standard_normal((1, 100, 64)).astype(np.float16) for _ in "qkv")
    o = np.full_like(q, np.nan)
    kernel = example("flash_attention").attention.for_target(target)
    found = run_on_machine(kernel, q, k, v, o, causal)
    return found, attention_error(q, k, v, o, causal)


@pytest.mark.parametrize("causal", [False, True])
@pytest.mark.parametrize("target", ["sm_80", "sm_89"])
def test_attention_keeps_probabilities_in_registers(target: str, causal: bool) -> None:
    """Each warp has whole rows, so that nothing but copies of K and V goes through memory."""
    found, error = attention(target, causal)
    assert error < 1e-3
    assert found.ptx.count("mma.sync") == 64
    assert found.ptx.count("bar.sync") == 1
    assert "st.shared" not in found.ptx


@pytest.mark.skipif(find_ptxas() is None, reason="needs ptxas")
@pytest.mark.parametrize("causal", [False, True])
@pytest.mark.parametrize("target", TARGETS)
def test_ptxas_takes_attention_without_spills(target: str, causal: bool) -> None:
    q = np.zeros((1, 100, 64), np.float16)
    kernel = example("flash_attention").attention.for_target(target)
    code = lowered(kernel.specialise(q, q, q, q, causal).kernel)
    assert assemble(code.ptx, target)[1].spill_bytes == 0
