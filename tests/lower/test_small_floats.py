"""Conversions to and from floats of 8 bits: every code, every f16, hard numbers of f32 and bf16."""

from __future__ import annotations

import ml_dtypes  # pyright: ignore[reportMissingImports]
import numpy as np
import pytest

from reftile.interp.launch import interpret
from reftile.ir.diagnostics import ReftileError
from reftile.ir.dtypes import DTYPES
from reftile.ir.numbers import decode
from reftile.ir.parse import parse
from reftile.lower.pipeline import lower
from reftile.lower.ptx.assemble import assemble, find_ptxas
from tests.lower.on_machine import launch, one_tile

SMALL = ("f8e4m3", "f8e5m2")
SIDE = 64
STORED = {
    "f16": np.float16,
    "bf16": ml_dtypes.bfloat16,
    "f32": np.float32,
    "f8e4m3": ml_dtypes.float8_e4m3fn,
    "f8e5m2": ml_dtypes.float8_e5m2,
}


def text(source: str, body: str, result: str, target: str, shape: str = f"{SIDE}x{SIDE}") -> str:
    return one_tile(f"{shape}x{source}", f"{shape}x{result}", body, 4, target)


def converted(kernel: str, target: str, codes: np.ndarray, source: str, result: str) -> np.ndarray:
    """The codes that all levels agree on for the codes of tiles; of NaN the one that ml_dtypes has.

    What a level leaves of a NaN is some NaN: its bits are not part of the meaning.
    """
    module = parse(kernel)
    lowered = lower(module.kernel(), target)
    if find_ptxas() is not None:
        assert assemble(lowered.ptx, target)[1].spill_bytes == 0
    found: list[np.ndarray] = []
    for level in ("pipe", "simt", "ptx"):
        out = np.zeros(codes.shape, DTYPES[result].storage)
        for x, o in zip(codes, out, strict=True):
            if level == "ptx":
                launch(lowered, 1, x=x, o=o)
            else:
                whole = parse(kernel).kernel() if level == "pipe" else lowered.passes.kernel
                interpret(whole, 1, [x.view(STORED[source]), o.view(STORED[result])])
        values = decode(out, DTYPES[result])
        nan = np.array(np.nan, STORED[result]).view(out.dtype)
        found.append(np.where(np.isnan(values), nan, out))
    for level, codes_found in zip(("simt", "ptx"), found[1:], strict=True):
        different = codes_found != found[0]
        assert not different.any(), (level, codes[different][:4], codes_found[different][:4])
    return found[0]


def in_tiles(codes: np.ndarray) -> np.ndarray:
    """Codes filled up to whole tiles."""
    size = -(-codes.size // SIDE**2) * SIDE**2
    return np.resize(codes, size).reshape(-1, SIDE, SIDE)


def hard_numbers(source: str, small: str) -> np.ndarray:
    """All codes of 16 bits; of f32 what a code means, what lies between two, their neighbours."""
    if source != "f32":
        return np.arange(1 << 16, dtype=np.uint16)
    kind = DTYPES[small]
    values = decode(np.arange(256, dtype=np.uint8), kind)
    values = np.unique(values[np.isfinite(values)]).astype(np.float64)
    beyond = 2.0 ** (np.floor(np.log2(kind.max_finite)) - kind.mantissa_bits) + kind.max_finite
    values = np.concatenate([[-beyond], values, [beyond]])
    exact = np.concatenate([values, (values[1:] + values[:-1]) / 2]).astype(np.float32)
    bits = np.concatenate([exact, -exact]).view(np.int32)
    rng = np.random.default_rng(0)
    near = (rng.standard_normal(4096) * 2.0 ** rng.integers(-20, 18, 4096)).astype(np.float32)
    special = [0.0, -0.0, np.inf, -np.inf, np.nan, 1e-45, -1e-45, 3.4e38, -3.4e38]
    parts = [
        bits - 1,
        bits,
        bits + 1,
        near.view(np.int32),
        np.asarray(special, np.float32).view(np.int32),
    ]
    parts.append(rng.integers(-(1 << 31), 1 << 31, 4096).astype(np.int32))
    return np.concatenate(parts).view(np.uint32)


@pytest.mark.parametrize("saturating", [False, True])
@pytest.mark.parametrize("small", SMALL)
@pytest.mark.parametrize("source", ["f32", "f16", "bf16"])
@pytest.mark.parametrize("target", ["sm_89", "sm_90a"])
def test_floats_become_8_bits(target: str, source: str, small: str, saturating: bool) -> None:
    attributes = " {saturating}" if saturating else ""
    kernel = text(source, f"%r = ftof %a{attributes} : tile<{SIDE}x{SIDE}x{small}>", small, target)
    codes = in_tiles(hard_numbers(source, small))
    if target == "sm_89":
        codes = codes[:1]  # The text is that of sm_90a.
    found = converted(kernel, target, codes, source, small)
    values = codes.view(STORED[source]).astype(np.float32)
    if saturating:
        largest = np.float32(DTYPES[small].max_finite)
        values = np.clip(values, -largest, largest)
    with np.errstate(all="ignore"):
        wanted = values.astype(STORED[small]).view(np.uint8)
    nan = np.array(np.nan, STORED[small]).view(np.uint8)
    wanted = np.where(np.isnan(wanted.view(STORED[small]).astype(np.float32)), nan, wanted)
    assert np.array_equal(found, wanted)


@pytest.mark.parametrize("wide", ["f16", "f32"])
@pytest.mark.parametrize("small", SMALL)
def test_every_code_comes_back(small: str, wide: str) -> None:
    shape = "16x16"
    body = f"""
      %wide = ftof %a : tile<{shape}x{wide}>
      %r = ftof %wide : tile<{shape}x{small}>
    """
    codes = np.arange(256, dtype=np.uint8).reshape(1, 16, 16)
    found = converted(text(small, body, small, "sm_90a", shape), "sm_90a", codes, small, small)
    values = decode(codes, DTYPES[small])
    assert np.array_equal(found[~np.isnan(values)], codes[~np.isnan(values)])
    assert np.isnan(decode(found, DTYPES[small])[np.isnan(values)]).all()


@pytest.mark.parametrize("shape", ["1x1", "3x5", "2x32"])
def test_tiles_that_fill_no_register(shape: str) -> None:
    """Their elements lie alone, and are converted alone."""
    rows, columns = (int(n) for n in shape.split("x"))
    x = np.linspace(-450, 450, rows * columns).astype(np.float32)
    codes = x.view(np.uint32).reshape(1, rows, columns)
    kernel = text("f32", f"%r = ftof %a : tile<{shape}xf8e4m3>", "f8e4m3", "sm_90a", shape)
    found = converted(kernel, "sm_90a", codes, "f32", "f8e4m3")
    assert np.array_equal(found.ravel(), x.astype(STORED["f8e4m3"]).view(np.uint8))


def test_two_numbers_take_one_instruction() -> None:
    body = f"%r = ftof %a {{saturating}} : tile<{SIDE}x{SIDE}xf8e4m3>"
    ptx = lower(parse(text("f32", body, "f8e4m3", "sm_90a")).kernel(), "sm_90a").ptx
    assert ptx.count("cvt.rn.satfinite.e4m3x2.f32") == SIDE * SIDE // 128 // 2


@pytest.mark.parametrize(
    ("source", "attributes", "target", "message", "hint"),
    [
        (
            "f32",
            "",
            "sm_80",
            "`ftof` from f32 to f8e4m3 has no instruction on sm_80",
            "make the kernel for sm_89, sm_90a, sm_100 or sm_120",
        ),
        (
            "f32",
            " {rounding = zero}",
            "sm_90a",
            "`ftof` from f32 to f8e4m3 that rounds to zero has no instruction on sm_90a",
            "say rounding = nearest_even",
        ),
        (
            "f32",
            " {rounding = positive_inf, saturating}",
            "sm_80",
            "`ftof` from f32 to f8e4m3 that rounds to positive_inf has no instruction on sm_80",
            "say rounding = nearest_even, and make the kernel for sm_89, sm_90a, sm_100 or sm_120",
        ),
        ("tf32", "", "sm_90a", "`ftof` from tf32 to f8e4m3 cannot be printed as PTX yet", ""),
    ],
)
def test_what_has_no_instruction_is_refused(
    source: str, attributes: str, target: str, message: str, hint: str
) -> None:
    body = f"%r = ftof %a{attributes} : tile<16x16xf8e4m3>"
    if source == "tf32":
        body = body.replace("%a", "%t")
        body = "%t = ftof %a : tile<16x16xtf32>\n" + body
        source = "f32"
    with pytest.raises(ReftileError) as error:
        lower(parse(text(source, body, "f8e4m3", target, "16x16")).kernel(), target)
    diagnosis = error.value.diagnosis
    assert (diagnosis.rule, diagnosis.message, diagnosis.hint) == ("lower.ptx", message, hint)
    assert diagnosis.span.line > 0
