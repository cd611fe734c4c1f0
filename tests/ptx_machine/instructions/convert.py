"""cvt in all its forms. Source: PTX ISA, "Data Movement and Conversion Instructions: cvt"."""

from __future__ import annotations

import numpy as np

from tests.ptx_machine import text as t
from tests.ptx_machine.numbers import (
    BF16,
    E4M3,
    E5M2,
    F16,
    F32,
    TF32,
    add_to_odd,
    canonical,
    decode,
    encode,
    exact64,
    flush,
)
from tests.ptx_machine.operands import NUMPY, Decoder, Modifiers, Step, instruction

from .floating import saturate01

FLOAT_FORMATS = {"f16": F16, "bf16": BF16, "f32": F32, "tf32": TF32}
PAIR_FORMATS = {"f16x2": F16, "bf16x2": BF16, "e4m3x2": E4M3, "e5m2x2": E5M2}
INTEGERS = ("u8", "s8", "u16", "s16", "u32", "s32", "u64", "s64")
FLOATS = ("f16", "bf16", "f32", "f64", "tf32")
ROUND_TO_INTEGER = {"rni": np.rint, "rzi": np.trunc, "rmi": np.floor, "rpi": np.ceil}


@instruction("cvt")
def build_convert(d: Decoder, ins: t.Instruction, m: Modifiers) -> Step:
    to, source = m.types(2)
    if to in PAIR_FORMATS:
        return build_pair(d, ins, m, to, source)
    d.count(ins, 2)
    if to in INTEGERS and source in INTEGERS:
        return build_integer(d, ins, m, to, source)
    if to in INTEGERS:
        return build_to_integer(d, ins, m, to, source)
    if source in INTEGERS:
        return build_from_integer(d, ins, m, to, source)
    return build_float(d, ins, m, to, source)


def raw_type(kind: str) -> str:
    """Return the register type that holds a float type as bits."""
    return {"f16": "b16", "bf16": "b16", "f32": "f32", "f64": "f64", "tf32": "b32"}[kind]


def widen(raw: np.ndarray, kind: str) -> np.ndarray:
    """Return float64 values of a source register."""
    match kind:
        case "f32" | "f64":
            return raw.astype(np.float64)
        case "f16":
            return raw.view(np.float16).astype(np.float64)
        case "bf16":
            return (raw.astype(np.uint32) << np.uint32(16)).view(np.float32).astype(np.float64)
    raise ValueError(kind)


def narrow(value: np.ndarray, kind: str, mode: str, satfinite: bool = False) -> np.ndarray:
    """Return the bit pattern of float64 values in a destination type."""
    if kind == "f64":
        return canonical(value).view(np.uint64)
    form = FLOAT_FORMATS[kind]
    bits = encode(value, form, mode, satfinite)
    if kind == "tf32":
        return (bits << np.uint64(13)).astype(np.uint32)
    return bits.astype(np.uint16 if form.width == 16 else np.uint32)


def clamp_to_integer(value: np.ndarray, kind: str, source: str) -> np.ndarray:
    """Return whole float64 values as integers, clamped.

    NaN becomes 0, but the highest bit alone where either side has 64 bits.
    """
    info = np.iinfo(NUMPY[kind])
    highest = info.min if info.min else 1 << (info.bits - 1)
    nan = highest if source == "f64" or info.bits == 64 else 0
    out = []
    for x in value.tolist():
        if x != x:
            out.append(nan)
        elif x in (float("inf"), float("-inf")):
            out.append(info.max if x > 0 else info.min)
        else:
            out.append(min(max(int(x), info.min), info.max))
    return np.array(out, NUMPY[kind])


def build_to_integer(d: Decoder, ins: t.Instruction, m: Modifiers, to: str, source: str) -> Step:
    mode, ftz = m.one(*ROUND_TO_INTEGER), m.flag("ftz")
    m.flag("sat")
    put, a = (
        d.dst(ins, ins.operands[0], to, loose=True),
        d.src(ins, ins.operands[1], raw_type(source)),
    )
    f = ROUND_TO_INTEGER[mode]

    def step(w) -> None:
        x = flush(a(w)) if ftz else a(w)
        put(w, clamp_to_integer(f(widen(x, source)), to, source))

    return step


def build_from_integer(d: Decoder, ins: t.Instruction, m: Modifiers, to: str, source: str) -> Step:
    mode, sat = m.one("rn", "rz", "rm", "rp"), m.flag("sat")
    put, a = (
        d.dst(ins, ins.operands[0], raw_type(to)),
        d.src(ins, ins.operands[1], source, loose=True),
    )

    def step(w) -> None:
        x = a(w)
        low = (x & NUMPY[source](0xFFFFFFFF if x.dtype.itemsize == 8 else 0)).astype(np.float64)
        high = (
            x.astype(np.float64)
            if x.dtype.itemsize < 8
            else (x >> NUMPY[source](32)).astype(np.float64) * 2.0**32
        )
        if x.dtype.itemsize < 8:
            low = np.zeros(32)
        value = exact64("add", (high, low), mode) if to == "f64" else add_to_odd(high, low)
        put(w, narrow(saturate01(value) if sat else value, to, mode))

    return step


def build_integer(d: Decoder, ins: t.Instruction, m: Modifiers, to: str, source: str) -> Step:
    sat = m.flag("sat")
    put, a = (
        d.dst(ins, ins.operands[0], to, loose=True),
        d.src(ins, ins.operands[1], source, loose=True),
    )
    info = np.iinfo(NUMPY[to])
    if sat:
        return lambda w: put(
            w, np.array([min(max(int(x), info.min), info.max) for x in a(w)], NUMPY[to])
        )
    return lambda w: put(w, a(w).astype(NUMPY[to]))


def build_float(d: Decoder, ins: t.Instruction, m: Modifiers, to: str, source: str) -> Step:
    """Float to float: rounds when narrowing, or to whole numbers with rni and its kin."""
    whole = m.one(*ROUND_TO_INTEGER, default="-")
    mode = m.one("rn", "rz", "rm", "rp", "rna", default="-")
    ftz, sat, relu, satfinite = m.flag("ftz"), m.flag("sat"), m.flag("relu"), m.flag("satfinite")
    order = {"f16": 0, "bf16": 0, "tf32": 1, "f32": 2, "f64": 3}
    narrows = order[to] < order[source] or (to != source and order[to] == order[source])
    if narrows == (mode == "-") and not (whole == "-" and to == source):
        raise m.fail("a narrowing conversion needs a rounding mode, others must not have one")
    put, a = (
        d.dst(ins, ins.operands[0], raw_type(to)),
        d.src(ins, ins.operands[1], raw_type(source)),
    )
    f = ROUND_TO_INTEGER.get(whole)

    def step(w) -> None:
        x = a(w)
        if source == "bf16" and to == "f32" and not (sat or relu or f):
            put(w, x.astype(np.uint32) << np.uint32(16))
            return
        value = widen(flush(x) if ftz and source == "f32" else x, source)
        if f:
            value = f(value)
        if sat:
            value = saturate01(value)
        if relu:
            value = np.where(value <= 0, 0.0, value)
        out = narrow(value, to, "rn" if mode == "-" else mode, satfinite)
        if ftz and to == "f32":
            out = flush(out.view(np.float32)).view(np.uint32)
        put(w, out)

    return step


def build_pair(d: Decoder, ins: t.Instruction, m: Modifiers, to: str, source: str) -> Step:
    """Two values to a packed pair; the first f32 operand becomes the upper half."""
    mode, relu, satfinite = m.one("rn", "rz"), m.flag("relu"), m.flag("satfinite")
    form = PAIR_FORMATS[to]
    if form.width == 8 and not satfinite:
        raise m.fail("needs .satfinite")
    out_raw = "b32" if form.width == 16 else "b16"
    put = d.dst(ins, ins.operands[0], out_raw)
    if source == "f32":
        d.count(ins, 3)
        high, low = (d.src(ins, o, "f32") for o in ins.operands[1:])

        def get(w) -> tuple[np.ndarray, np.ndarray]:
            return low(w).astype(np.float64), high(w).astype(np.float64)
    elif source in PAIR_FORMATS:
        d.count(ins, 2)
        origin = PAIR_FORMATS[source]
        a = d.src(ins, ins.operands[1], "b32" if origin.width == 16 else "b16")
        mask = (1 << origin.width) - 1

        def get(w) -> tuple[np.ndarray, np.ndarray]:
            raw = a(w).astype(np.int64)
            return decode(raw & mask, origin), decode(raw >> origin.width, origin)
    else:
        raise m.fail(f"has no form from .{source}")

    def step(w) -> None:
        bits = []
        for value in get(w):
            value = np.where(value <= 0, 0.0, value) if relu else value
            bits.append(encode(value, form, mode, satfinite))
        packed = bits[0] | bits[1] << np.uint64(form.width)
        put(w, packed.astype(np.uint32 if out_raw == "b32" else np.uint16))

    return step
