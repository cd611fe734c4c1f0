"""Products of warps, of every pair of types: the same at every level, and taken by ptxas."""

from __future__ import annotations

from typing import Any

import ml_dtypes  # pyright: ignore[reportMissingImports]
import numpy as np
import pytest

from reftile.interp.launch import interpret
from reftile.ir.diagnostics import ReftileError
from reftile.ir.parse import parse
from reftile.lower.pipeline import lower
from reftile.lower.ptx.assemble import assemble, find_ptxas
from reftile.lower.warp_products import INSTRUCTIONS, NEEDS_SM_89
from tests.lower.on_machine import launch

KINDS: dict[str, Any] = {
    "bf16": ml_dtypes.bfloat16,
    "f16": np.float16,
    "f32": np.float32,
    "f64": np.float64,
    "f8e4m3": ml_dtypes.float8_e4m3fn,
    "f8e5m2": ml_dtypes.float8_e5m2,
    "i8": np.int8,
    "i32": np.int32,
}
M, N, K = 64, 32, 64


def product(
    kind: str, acc: str, target: str, warps: int, turned: bool, signs: tuple[str, str] | None
) -> str:
    """C += A B, operands through shared memory; B lies along n, or along k if `turned`."""
    stored = "f32" if kind == "tf32" else kind
    shapes = {"a": (M, K), "b": (N, K) if turned else (K, N), "c": (M, N)}
    lines = ["%zero = constant {value = 0} : tile<i32>"]
    for name, (rows, columns) in shapes.items():
        dtype = acc if name == "c" else stored
        view = f"tensor_view<{rows}x{columns}x{dtype}, strides=[{columns}, 1]>"
        lines += [
            f"%{name}_t = make_tensor_view %{name}, [], [] : {view}",
            f"%{name}_v = make_partition_view %{name}_t : "
            f"partition_view<tile=({rows}x{columns}), {view}>",
            f"%{name}_1, %{name}_r = load_view_tko %{name}_v, [%zero, %zero] "
            f"{{ordering = weak}} : tile<{rows}x{columns}x{dtype}>, token",
        ]
    for name in "ab":
        rows, columns = shapes[name]
        lines += [
            f"%{name}_s = alloc_buffer : buffer<{rows}x{columns}x{stored}>",
            f"%{name}_p = store_buffer %{name}_1, %{name}_s, token=%{name}_r : token",
        ]
    source = "%b_s"
    if turned:
        layout = f"buffer<{K}x{N}x{stored}, layout=row_major.t>"
        lines.append(f"%b_k = transpose_buffer %b_s : {layout}")
        source = "%b_k"
    lines += [
        f"%a_2, %a_g = load_buffer %a_s, token=%a_p : tile<{M}x{K}x{stored}>, token",
        f"%b_2, %b_g = load_buffer {source}, token=%b_p : tile<{K}x{N}x{stored}>, token",
    ]
    operands = "%a_2, %b_2"
    if kind == "tf32":
        for name, shape in (("a", f"{M}x{K}"), ("b", f"{K}x{N}")):
            lines.append(f"%{name}_3 = ftof %{name}_2 : tile<{shape}xtf32>")
        operands = "%a_3, %b_3"
    given = ""
    if signs is not None:
        given = f" {{signedness_lhs = {signs[0]}, signedness_rhs = {signs[1]}}}"
    name = "mmaf" if signs is None else "mmai"
    lines += [
        f"%d = {name} {operands}, %c_1{given} : tile<{M}x{N}x{acc}>",
        "%s = store_view_tko %d, %c_v, [%zero, %zero], token=%c_r {ordering = weak} : token",
    ]
    body = "\n".join(lines)
    return f"""
    pipe kernel @k(%a: tile<ptr<{stored}>>, %b: tile<ptr<{stored}>>, %c: tile<ptr<{acc}>>)
        attributes {{target = "{target}", warps = {warps}}} {{
      {body}
      return
    }}
    """


def check(
    kind: str, acc: str, warps: int, turned: bool, signs: tuple[str, str] | None = None
) -> None:
    """Small whole numbers, so that every sum is exact."""
    target = "sm_89" if kind in NEEDS_SM_89 else "sm_80"
    stored = KINDS["f32" if kind == "tf32" else kind]
    rng = np.random.default_rng(warps)
    low = -3 if signs is None else -100
    a = rng.integers(low, 4, (M, K)).astype(stored)
    b = rng.integers(low, 4, (N, K) if turned else (K, N)).astype(stored)
    start = rng.integers(-3, 4, (M, N)).astype(KINDS[acc])
    left, right = a.astype(np.int64), b.astype(np.int64)
    if signs is not None:
        left, right = (
            x & 0xFF if sign == "unsigned" else x
            for x, sign in zip((left, right), signs, strict=True)
        )
    wanted = (start.astype(np.int64) + left @ (right.T if turned else right)).astype(KINDS[acc])
    text = product(kind, acc, target, warps, turned, signs)
    lowered = lower(parse(text).kernel(), target)
    assert "mma.sync" in lowered.ptx
    for level in ("pipe", "simt", "ptx"):
        c = start.copy()
        if level == "ptx":
            bits = [x.view(f"u{x.itemsize}") for x in (a, b, c)]
            launch(lowered, 1, a=bits[0], b=bits[1], c=bits[2])
        else:
            kernel = parse(text).kernel() if level == "pipe" else lowered.passes.kernel
            interpret(kernel, 1, [a, b, c])
        assert c.tobytes() == wanted.tobytes(), level
    if find_ptxas() is not None:
        for device in {target, "sm_89", "sm_90a"}:
            code = lower(parse(text.replace(target, device)).kernel(), device)
            assert assemble(code.ptx, device)[1].spill_bytes == 0


@pytest.mark.parametrize("turned", [False, True])
@pytest.mark.parametrize("warps", [4, 8])
@pytest.mark.parametrize(("kind", "acc"), [p for p in INSTRUCTIONS if p[0] != "i8"])
def test_floats(kind: str, acc: str, warps: int, turned: bool) -> None:
    check(kind, acc, warps, turned)


@pytest.mark.parametrize("lhs", ["signed", "unsigned"])
@pytest.mark.parametrize("rhs", ["signed", "unsigned"])
def test_integers(lhs: str, rhs: str) -> None:
    check("i8", "i32", 4, lhs == rhs, (lhs, rhs))


def test_what_warps_do_not_multiply_is_refused() -> None:
    text = product("f8e4m3", "f32", "sm_80", 4, True, None)
    with pytest.raises(ReftileError, match="warps of sm_80 do not multiply f8e4m3"):
        lower(parse(text).kernel(), "sm_80")
    text = product("f8e4m3", "f16", "sm_89", 4, True, None)
    with pytest.raises(ReftileError, match="is no product of warps"):
        lower(parse(text).kernel(), "sm_89")
