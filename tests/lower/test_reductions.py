"""Reductions over registers, lanes and warps: the same at every level, for every element type."""

from __future__ import annotations

import numpy as np
import pytest

from reftile.ir.parse import parse
from reftile.lower.pipeline import lower
from reftile.lower.ptx.assemble import assemble, find_ptxas
from tests.lower.on_machine import one_tile
from tests.lower.test_views import everywhere

KINDS = {"f32": np.float32, "i32": np.int32, "f64": np.float64, "i64": np.int64}
TARGETS = ("sm_80", "sm_89", "sm_90a")
ROWS, COLUMNS = 8, 256


def region(op: str, dtype: str) -> str:
    """A region that combines two elements."""
    sign = " {signedness = signed}" if op in ("maxi", "mini") else ""
    return (
        f"combine(%e: tile<{dtype}>, %acc: tile<{dtype}>) "
        f"{{ %r = {op} %acc, %e{sign} : tile<{dtype}> yield %r }}"
    )


def along(dtype: str, op: str, identity: str, axis: int, warps: int, target: str) -> str:
    """O = the reduction of X over one axis."""
    kept = COLUMNS if axis == 0 else ROWS
    body = f"""
      %r = reduce %a {{axis = {axis}, identities = [{identity}]}} :
        tile<{kept}x{dtype}> {region(op, dtype)}
    """
    return one_tile(f"{ROWS}x{COLUMNS}x{dtype}", f"{kept}x{dtype}", body, warps, target)


def values(dtype: str) -> np.ndarray:
    """Whole numbers, so that sums of floats are exact in any order."""
    rng = np.random.default_rng(3)
    return rng.integers(-50, 50, (ROWS, COLUMNS)).astype(KINDS[dtype])


@pytest.mark.parametrize("axis", [0, 1])
@pytest.mark.parametrize("warps", [1, 4, 8])
@pytest.mark.parametrize("dtype", KINDS)
def test_sums_agree_at_every_level(dtype: str, warps: int, axis: int) -> None:
    op, zero = ("addi", "0") if dtype.startswith("i") else ("addf", "0.0")
    x = values(dtype)
    wanted = x.sum(axis, dtype=x.dtype)
    text = along(dtype, op, zero, axis, warps, "sm_80")
    for found in everywhere(text, 1, {"x": x, "o": np.zeros_like(wanted)}, "o"):
        assert found.tobytes() == wanted.tobytes()


@pytest.mark.parametrize(("dtype", "op"), [("f32", "maxf"), ("i32", "mini")])
def test_extremes_agree_at_every_level(dtype: str, op: str) -> None:
    x = values(dtype)
    wanted = x.max(1) if op == "maxf" else x.min(1)
    identity = "neg_inf" if op == "maxf" else str(2**31 - 1)
    text = along(dtype, op, "-inf" if identity == "neg_inf" else identity, 1, 8, "sm_80")
    for found in everywhere(text, 1, {"x": x, "o": np.zeros_like(wanted)}, "o"):
        assert found.tobytes() == wanted.tobytes()


@pytest.mark.skipif(find_ptxas() is None, reason="needs ptxas")
@pytest.mark.parametrize("target", TARGETS)
def test_ptxas_takes_reductions_across_warps(target: str) -> None:
    for dtype in KINDS:
        op = "addi" if dtype.startswith("i") else "addf"
        text = along(dtype, op, "0" if op == "addi" else "0.0", 1, 8, target)
        ptx = lower(parse(text).kernel(), target).ptx
        assert "bar.sync" in ptx
        assert assemble(ptx, target)[1].spill_bytes == 0


# Several tiles at once, truth values, and all of a block


def whole(body: str, out: str) -> str:
    """O, of 32 elements equal to the %s of `body`, from a row of 1024."""
    spread = f"""
      %one = reshape %s : tile<1x{out}>
      %r = broadcast %one : tile<32x{out}>
    """
    return one_tile("1024xf32", f"32x{out}", body + spread, warps=4)


def test_the_greatest_element_and_where_it_is() -> None:
    body = """
      %i = iota : tile<1024xi32>
      %top, %s = reduce %a, %i {axis = 0, identities = [-inf, 0]} :
        tile<f32>, tile<i32> combine(%e: tile<f32>, %m: tile<f32>,
          %at: tile<i32>, %best: tile<i32>) {
          %more = cmpf %e, %m {predicate = greater_than, ordering = ordered} : tile<i1>
          %same = cmpf %e, %m {predicate = equal, ordering = ordered} : tile<i1>
          %first = cmpi %at, %best {predicate = less_than, signedness = signed} : tile<i1>
          %earlier = andi %same, %first : tile<i1>
          %take = ori %more, %earlier : tile<i1>
          %value = select %take, %e, %m : tile<f32>
          %where = select %take, %at, %best : tile<i32>
          yield %value, %where
        }
    """
    x = np.random.default_rng(1).integers(-40, 41, 1024).astype(np.float32)
    wanted = np.full(32, x.argmax(), np.int32)
    for found in everywhere(whole(body, "i32"), 1, {"x": x, "o": np.zeros_like(wanted)}, "o"):
        assert np.array_equal(found, wanted)


@pytest.mark.parametrize("op", ["ori", "andi", "xori"])
@pytest.mark.parametrize("place", [None, 0, 777])
def test_truth_values_cross_warps(op: str, place: int | None) -> None:
    identity = "1" if op == "andi" else "0"
    body = f"""
      %none = constant {{value = 0.0}} : tile<1024xf32>
      %t = cmpf %a, %none {{predicate = not_equal, ordering = ordered}} : tile<1024xi1>
      %b = reduce %t {{axis = 0, identities = [{identity}]}} : tile<i1> {region(op, "i1")}
      %s = exti %b {{signedness = unsigned}} : tile<i32>
    """
    x = np.full(1024, 1 if op == "andi" else 0, np.float32)
    if place is not None:
        x[place] = 1 - x[place]
    reduced = {"ori": np.any, "andi": np.all, "xori": lambda t: t.sum() % 2 == 1}[op](x != 0)
    wanted = np.full(32, int(reduced), np.int32)
    for found in everywhere(whole(body, "i32"), 1, {"x": x, "o": np.zeros_like(wanted)}, "o"):
        assert np.array_equal(found, wanted)


def test_a_row_is_normalised_by_a_block() -> None:
    """Mean and variance over all threads, of numbers for which both are exact."""
    body = f"""
      %sum = reduce %a {{axis = 0, identities = [0.0]}} : tile<f32> {region("addf", "f32")}
      %share = constant {{value = 0.0009765625}} : tile<f32>
      %mean = mulf %sum, %share : tile<f32>
      %mean_1 = reshape %mean : tile<1xf32>
      %means = broadcast %mean_1 : tile<1024xf32>
      %apart = subf %a, %means : tile<1024xf32>
      %squares = mulf %apart, %apart : tile<1024xf32>
      %total = reduce %squares {{axis = 0, identities = [0.0]}} : tile<f32> {region("addf", "f32")}
      %s = mulf %total, %share : tile<f32>
    """
    x = np.where(np.arange(1024) % 3 == 0, -6, 3).astype(np.float32)
    x[:512] += 1
    x[512:] = -x[:512]
    wanted = np.full(32, np.mean((x - x.mean()) ** 2), np.float32)
    for found in everywhere(whole(body, "f32"), 1, {"x": x, "o": np.zeros_like(wanted)}, "o"):
        assert found.tobytes() == wanted.tobytes()
