"""f16, bf16 and their pairs. Source: PTX ISA, "Half Precision Floating Point Instructions"."""

from __future__ import annotations

import numpy as np

from tests.ptx_machine import text as t
from tests.ptx_machine.numbers import BF16, F16, Format, add_to_odd, encode
from tests.ptx_machine.operands import Decoder, Modifiers, Step, instruction

from .floating import FUNCTIONS, build_unary_function, extremum, saturate01

HALVES = ("f16", "f16x2", "bf16", "bf16x2")
RAW_TYPE = {"f16": "b16", "bf16": "b16", "f16x2": "b32", "bf16x2": "b32"}


def format_of(kind: str) -> Format:
    return BF16 if kind.startswith("bf") else F16


def unpack(raw: np.ndarray, kind: str) -> np.ndarray:
    """Return float64 values, shape [1 or 2, 32], low half first."""
    halves = (
        raw.reshape(1, 32)
        if not kind.endswith("x2")
        else np.stack([raw & np.uint32(0xFFFF), raw >> np.uint32(16)])
    )
    halves = halves.astype(np.uint16)
    if kind.startswith("bf"):
        return (halves.astype(np.uint32) << np.uint32(16)).view(np.float32).astype(np.float64)
    return halves.view(np.float16).astype(np.float64)


def pack(value: np.ndarray, kind: str, mode: str = "rn", ftz: bool = False) -> np.ndarray:
    """Round float64 values [1 or 2, 32] and return the register pattern."""
    form = format_of(kind)
    bits = encode(value, form, mode)
    if ftz:
        bits = np.where(
            bits & ((1 << form.width - 1) - (1 << form.mantissa_bits)) == 0, bits & 0x8000, bits
        )
    if kind.endswith("x2"):
        return (bits[0] | bits[1] << np.uint64(16)).astype(np.uint32)
    return bits[0].astype(np.uint16)


def flush_half(x: np.ndarray, form: Format) -> np.ndarray:
    return np.where(np.abs(x) < 2.0 ** (1 - form.bias), np.copysign(0.0, x), x)


def build_packed(d: Decoder, ins: t.Instruction, m: Modifiers, kind: str) -> Step:
    """Opcodes shared with integers, for halves."""
    op, raw = ins.opcode, RAW_TYPE[kind]
    if op in ("abs", "neg"):
        return build_sign(d, ins, m, kind)
    if op not in ("add", "sub", "mul", "fma", "min", "max"):
        raise m.fail(f"has no .{kind} form")
    ftz = m.flag("ftz")
    if ftz and kind.startswith("bf"):
        raise m.fail("bf16 has no .ftz")
    sat = relu = nan = xorsign = False
    if op in ("min", "max"):
        nan, xorsign = m.flag("NaN"), m.flag("xorsign")
        if xorsign and not m.flag("abs"):
            raise m.fail(".xorsign needs .abs")
    else:
        m.one("rn", default=None if op == "fma" else "rn")
        sat = m.flag("sat")
        relu = op == "fma" and m.flag("relu")
    d.count(ins, 4 if op == "fma" else 3)
    put, get = d.dst(ins, ins.operands[0], raw), [d.src(ins, o, raw) for o in ins.operands[1:]]
    form = format_of(kind)

    def step(w) -> None:
        x = [unpack(g(w), kind) for g in get]
        if ftz:
            x = [flush_half(v, form) for v in x]
        match op:
            case "add":
                out = add_to_odd(x[0], x[1])
            case "sub":
                out = add_to_odd(x[0], -x[1])
            case "mul":
                out = x[0] * x[1]
            case "fma":
                out = add_to_odd(x[0] * x[1], x[2])
            case _:
                out = extremum(op, x[0], x[1], nan, xorsign)
        if sat:
            out = saturate01(out)
        if relu:
            out = np.where(out <= 0, 0.0, out)
        put(w, pack(out, kind, "rn", ftz))

    return step


def build_sign(d: Decoder, ins: t.Instruction, m: Modifiers, kind: str) -> Step:
    """abs and neg change sign bits only, except that NaN becomes the canonical one."""
    ftz, raw = m.flag("ftz"), RAW_TYPE[kind]
    d.count(ins, 2)
    put, a = d.dst(ins, ins.operands[0], raw), d.src(ins, ins.operands[1], raw)
    form = format_of(kind)
    sign = np.uint32(0x80008000) if raw == "b32" else np.uint16(0x8000)

    def step(w) -> None:
        x = a(w)
        if ftz:
            x = pack(flush_half(unpack(x, kind), form), kind)
        out = x & ~sign if ins.opcode == "abs" else x ^ sign
        put(w, pack(unpack(out, kind), kind))

    return step


def build_half_function(d: Decoder, ins: t.Instruction, kind: str, f, ftz: bool) -> Step:
    """A function of halves, evaluated in float64 and rounded once."""
    d.count(ins, 2)
    raw, form = RAW_TYPE[kind], format_of(kind)
    put, a = d.dst(ins, ins.operands[0], raw), d.src(ins, ins.operands[1], raw)

    def step(w) -> None:
        x = unpack(a(w), kind)
        put(w, pack(f(flush_half(x, form) if ftz else x), kind, "rn", ftz))

    return step


@instruction("ex2", "tanh")
def build_exponential(d: Decoder, ins: t.Instruction, m: Modifiers) -> Step:
    """ex2 and tanh on f32 and on halves."""
    m.one("approx")
    kind = m.type()
    ftz = m.flag("ftz")
    if kind in HALVES:
        return build_half_function(
            d, ins, kind, FUNCTIONS[ins.opcode], ftz and kind.startswith("bf")
        )
    if kind != "f32":
        raise m.fail(f"has no .{kind} form")
    return build_unary_function(d, ins, kind, FUNCTIONS[ins.opcode], ftz)
