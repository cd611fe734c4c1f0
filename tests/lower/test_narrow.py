"""Elements of 8 and 16 bits, which share registers: accesses of any width, renaming, arithmetic."""

from __future__ import annotations

from typing import Any

import ml_dtypes  # pyright: ignore[reportMissingImports]
import numpy as np
import pytest

from reftile.interp.launch import interpret
from reftile.ir.parse import parse
from reftile.lower.pipeline import lower
from reftile.lower.ptx.assemble import assemble, find_ptxas
from tests.lower.on_machine import launch, one_tile

KINDS: dict[str, Any] = {
    "i8": np.int8,
    "i16": np.int16,
    "f16": np.float16,
    "bf16": ml_dtypes.bfloat16,
    "f8e4m3": ml_dtypes.float8_e4m3fn,
}


def text(dtype: str, rows: int, columns: int, body: str, warps: int = 1) -> str:
    """O from X, both of rows x columns, with a buffer %b of that size."""
    tile = f"{rows}x{columns}x{dtype}"
    return one_tile(tile, tile, f"%b = alloc_buffer : buffer<{tile}>\n{body}", warps)


def agree(source: str, x: np.ndarray, wanted: np.ndarray) -> None:
    """Each level leaves what is wanted; ptxas takes the text."""
    lowered = lower(parse(source).kernel(), "sm_80")
    for level in ("pipe", "simt", "ptx"):
        o = np.zeros_like(x)
        if level == "ptx":
            launch(lowered, 1, x=x.view(f"u{x.itemsize}"), o=o.view(f"u{x.itemsize}"))
        else:
            interpret(
                parse(source).kernel() if level == "pipe" else lowered.passes.kernel, 1, [x, o]
            )
        assert o.tobytes() == wanted.tobytes(), level
    if find_ptxas() is not None:
        assert assemble(lowered.ptx, "sm_80")[1].spill_bytes == 0


def numbers(dtype: str, rows: int, columns: int) -> np.ndarray:
    return np.random.default_rng(rows).integers(-8, 9, (rows, columns)).astype(KINDS[dtype])


@pytest.mark.parametrize("dtype", KINDS)
@pytest.mark.parametrize(("rows", "columns"), [(16, 32), (8, 8), (4, 2), (3, 5)])
def test_tiles_pass_through_registers_and_memory(dtype: str, rows: int, columns: int) -> None:
    tile = f"tile<{rows}x{columns}x{dtype}>"
    body = f"""
      %put = store_buffer %a, %b, token=%read : token
      %r, %got = load_buffer %b, token=%put : {tile}, token
    """
    x = numbers(dtype, rows, columns)
    agree(text(dtype, rows, columns, body), x, x)


@pytest.mark.parametrize("warps", [1, 4])
@pytest.mark.parametrize("dtype", KINDS)
def test_tiles_are_turned(dtype: str, warps: int) -> None:
    """A transpose, brought back to rows: elements leave their registers, and their lanes."""
    body = f"""
      %c = constant {{value = 0}} : tile<i32>
      %put = store_buffer %a, %b, token=%read : token
      %y, %got = load_buffer %b, token=%put : tile<16x16x{dtype}>, token
      %r = permute %y {{permutation = [1, 0]}} : tile<16x16x{dtype}>
    """
    x = numbers(dtype, 16, 16)
    agree(text(dtype, 16, 16, body, warps), x, np.ascontiguousarray(x.T))


@pytest.mark.parametrize("dtype", ["f16", "bf16"])
def test_floats_of_16_bits_are_added_and_compared(dtype: str) -> None:
    tile = f"tile<16x16x{dtype}>"
    body = f"""
      %two = constant {{value = 2.0}} : {tile}
      %double = mulf %a, %two : {tile}
      %more = addf %double, %two : {tile}
      %less = subf %more, %a : {tile}
      %up = cmpf %a, %two {{predicate = less_than, ordering = ordered}} : tile<16x16xi1>
      %picked = select %up, %less, %double : {tile}
      %r = maxf %picked, %a : {tile}
    """
    x = numbers(dtype, 16, 16)
    wide = x.astype(float)
    wanted = np.maximum(np.where(wide < 2, wide + 2, 2 * wide), wide).astype(KINDS[dtype])
    agree(text(dtype, 16, 16, body), x, wanted)


@pytest.mark.parametrize("dtype", ["i8", "i16"])
def test_integers_are_widened_and_narrowed(dtype: str) -> None:
    body = f"""
      %wide = exti %a {{signedness = signed}} : tile<16x16xi32>
      %square = muli %wide, %wide : tile<16x16xi32>
      %r = trunci %square : tile<16x16x{dtype}>
    """
    x = numbers(dtype, 16, 16)
    agree(text(dtype, 16, 16, body), x, (x.astype(np.int32) ** 2).astype(KINDS[dtype]))


def test_sums_of_16_bit_floats_along_rows() -> None:
    body = """
      %sum = reduce %a {axis = 1, identities = [0.0]} :
        tile<16xf16> combine(%e: tile<f16>, %acc: tile<f16>) {
          %m = addf %acc, %e : tile<f16>
          yield %m
        }
      %column = reshape %sum : tile<16x1xf16>
      %r = broadcast %column : tile<16x16xf16>
    """
    x = numbers("f16", 16, 16)
    wanted = np.repeat(x.astype(float).sum(1, keepdims=True), 16, 1).astype(np.float16)
    agree(text("f16", 16, 16, body, 4), x, wanted)
