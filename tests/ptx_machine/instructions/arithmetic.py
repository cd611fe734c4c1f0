"""Arithmetic by opcode: integers here, floats and packed halves by type.

Source: PTX ISA, "Integer Arithmetic Instructions".
"""

from __future__ import annotations

import numpy as np

from tests.ptx_machine import text as t
from tests.ptx_machine.operands import NUMPY, Decoder, Modifiers, Step, instruction

from .floating import build_float
from .packed import HALVES, build_packed

FLOATS = ("f32", "f64")
WIDER = {"u16": "u32", "s16": "s32", "u32": "u64", "s32": "s64"}
PAIRS = ("u16x2", "s16x2")


@instruction("add", "sub", "mul", "div", "min", "max", "abs", "neg", "fma", "mad")
def build_arithmetic(d: Decoder, ins: t.Instruction, m: Modifiers) -> Step:
    """Dispatch an opcode shared by integers and floats."""
    kind = m.type()
    if kind in FLOATS:
        return build_float(d, ins, m, kind)
    if kind in HALVES:
        return build_packed(d, ins, m, kind)
    if kind in PAIRS:
        return build_pair(d, ins, m, kind)
    match ins.opcode:
        case "mul" | "mad":
            return build_multiply(d, ins, m, kind)
        case "add" | "sub":
            return build_sum(d, ins, m, kind)
        case "abs" | "neg":
            return build_unary(d, ins, kind)
        case "min" | "max" | "div":
            relu = ins.opcode != "div" and m.flag("relu")
            return build_binary(d, ins, kind, ins.opcode, relu)
    raise m.fail(f"has no .{kind} form")


def divide(a: np.ndarray, b: np.ndarray) -> np.ndarray:
    """Divide toward zero; division by zero gives all ones, as seen on an H200."""
    safe = np.where(b == 0, np.ones_like(b), b)
    quotient = (a - np.fmod(a, safe)) // safe
    return np.where(b == 0, ~np.zeros_like(a), quotient).astype(a.dtype)


def remainder(a: np.ndarray, b: np.ndarray) -> np.ndarray:
    """Return the remainder with the sign of the dividend; all ones for a divisor of zero."""
    return np.where(
        b == 0, ~np.zeros_like(a), np.fmod(a, np.where(b == 0, np.ones_like(b), b))
    ).astype(a.dtype)


BINARY = {"min": np.minimum, "max": np.maximum, "div": divide, "rem": remainder}


def build_binary(d: Decoder, ins: t.Instruction, kind: str, name: str, relu: bool = False) -> Step:
    d.count(ins, 3)
    put, a, b = (
        d.dst(ins, ins.operands[0], kind),
        d.src(ins, ins.operands[1], kind),
        d.src(ins, ins.operands[2], kind),
    )
    f = BINARY[name]
    if relu:
        return lambda w: put(w, np.maximum(f(a(w), b(w)), 0).astype(NUMPY[kind]))
    return lambda w: put(w, f(a(w), b(w)))


@instruction("rem")
def build_remainder(d: Decoder, ins: t.Instruction, m: Modifiers) -> Step:
    return build_binary(d, ins, m.type(), "rem")


def build_unary(d: Decoder, ins: t.Instruction, kind: str) -> Step:
    d.count(ins, 2)
    put, a = d.dst(ins, ins.operands[0], kind), d.src(ins, ins.operands[1], kind)
    if ins.opcode == "abs":
        return lambda w: put(w, np.abs(a(w)))
    return lambda w: put(w, -a(w))


def build_sum(d: Decoder, ins: t.Instruction, m: Modifiers, kind: str) -> Step:
    """add and sub, with saturation or a carry out."""
    d.count(ins, 3)
    saturate, carry = m.flag("sat"), m.flag("cc")
    if carry:
        return build_carry(d, ins, kind, takes_carry=False, sets_carry=True)
    put, a, b = (
        d.dst(ins, ins.operands[0], kind),
        d.src(ins, ins.operands[1], kind),
        d.src(ins, ins.operands[2], kind),
    )
    subtract = ins.opcode == "sub"
    if saturate:
        info = np.iinfo(NUMPY[kind])
        sign = -1 if subtract else 1
        return lambda w: put(
            w,
            np.clip(
                a(w).astype(np.int64) + sign * b(w).astype(np.int64), info.min, info.max
            ).astype(NUMPY[kind]),
        )
    if subtract:
        return lambda w: put(w, a(w) - b(w))
    return lambda w: put(w, a(w) + b(w))


def build_carry(
    d: Decoder, ins: t.Instruction, kind: str, takes_carry: bool, sets_carry: bool
) -> Step:
    """add.cc, addc, sub.cc, subc through exact integers; one flag holds carry or borrow."""
    kind = kind.replace("s", "u").replace("b", "u")
    put, a, b = (
        d.dst(ins, ins.operands[0], kind),
        d.src(ins, ins.operands[1], kind),
        d.src(ins, ins.operands[2], kind),
    )
    width = 8 * np.dtype(NUMPY[kind]).itemsize
    sign = -1 if ins.opcode.startswith("sub") else 1

    def step(w) -> None:
        flag = w.carry if takes_carry else np.zeros(32, np.uint64)
        exact = a(w).astype(object) + sign * (b(w).astype(object) + flag.astype(object))
        put(w, np.array([x % (1 << width) for x in exact], NUMPY[kind]))
        if sets_carry:
            out = np.array([int(not 0 <= x < 1 << width) for x in exact], np.uint64)
            w.carry = out if w.mask is None else np.where(w.mask, out, w.carry)

    return step


@instruction("addc", "subc")
def build_carry_in(d: Decoder, ins: t.Instruction, m: Modifiers) -> Step:
    d.count(ins, 3)
    return build_carry(d, ins, m.type(), takes_carry=True, sets_carry=m.flag("cc"))


def high_product(a: np.ndarray, b: np.ndarray) -> np.ndarray:
    """Return the upper half of a full product."""
    width = 8 * a.dtype.itemsize
    if width < 64:
        wide = np.int64 if a.dtype.kind == "i" else np.uint64
        return (a.astype(wide) * b.astype(wide) >> wide(width)).astype(a.dtype)
    exact = a.astype(object) * b.astype(object)
    return np.array([(int(x) >> 64) % (1 << 64) for x in exact], np.uint64).view(a.dtype)


def build_multiply(d: Decoder, ins: t.Instruction, m: Modifiers, kind: str) -> Step:
    """mul and mad: .lo, .hi, .wide."""
    part = m.one("lo", "hi", "wide")
    saturate = m.flag("sat")
    if saturate and (part != "hi" or kind != "s32" or ins.opcode != "mad"):
        raise m.fail(".sat is for mad.hi.s32")
    out = WIDER[kind] if part == "wide" else kind
    d.count(ins, 4 if ins.opcode == "mad" else 3)
    put, a, b = (
        d.dst(ins, ins.operands[0], out),
        d.src(ins, ins.operands[1], kind),
        d.src(ins, ins.operands[2], kind),
    )

    def product(w) -> np.ndarray:
        if part == "lo":
            return a(w) * b(w)
        if part == "hi":
            return high_product(a(w), b(w))
        return a(w).astype(NUMPY[out]) * b(w).astype(NUMPY[out])

    if ins.opcode == "mul":
        return lambda w: put(w, product(w))
    c = d.src(ins, ins.operands[3], out)
    if saturate:
        return lambda w: put(
            w, np.clip(product(w).astype(np.int64) + c(w), -(2**31), 2**31 - 1).astype(np.int32)
        )
    return lambda w: put(w, product(w) + c(w))


@instruction("mul24", "mad24")
def build_multiply24(d: Decoder, ins: t.Instruction, m: Modifiers) -> Step:
    """24-bit products: .lo gives bits 31..0, .hi bits 47..16."""
    part, kind = m.one("lo", "hi"), m.type()
    put, a, b = (
        d.dst(ins, ins.operands[0], kind),
        d.src(ins, ins.operands[1], kind),
        d.src(ins, ins.operands[2], kind),
    )
    c = d.src(ins, ins.operands[3], kind) if ins.opcode == "mad24" else None
    wide = np.int64 if kind == "s32" else np.uint64

    def low24(x: np.ndarray) -> np.ndarray:
        return (x.astype(wide) << wide(40)) >> wide(40)

    def step(w) -> None:
        exact = low24(a(w)) * low24(b(w))
        result = (exact >> wide(16 if part == "hi" else 0)).astype(NUMPY[kind])
        put(w, result if c is None else result + c(w))

    return step


@instruction("sad")
def build_sad(d: Decoder, ins: t.Instruction, m: Modifiers) -> Step:
    """c + |a - b|."""
    kind = m.type()
    put = d.dst(ins, ins.operands[0], kind)
    a, b, c = (d.src(ins, o, kind) for o in ins.operands[1:4])
    return lambda w: put(w, c(w) + np.where(a(w) > b(w), a(w) - b(w), b(w) - a(w)))


@instruction("dp4a", "dp2a")
def build_dot(d: Decoder, ins: t.Instruction, m: Modifiers) -> Step:
    """Byte dot products added to a 32-bit value."""
    half = m.one("lo", "hi") if ins.opcode == "dp2a" else None
    kind_b, kind_a = m.type(), m.type()
    put = d.dst(ins, ins.operands[0], "u32")
    a, b, c = (d.src(ins, o, "u32") for o in ins.operands[1:4])
    byte = {"u32": np.uint8, "s32": np.int8}
    pair = {"u32": np.uint16, "s32": np.int16}

    def step(w) -> None:
        right = b(w).copy().view(byte[kind_b]).reshape(32, 4).astype(np.int64)
        if half is None:
            left = a(w).copy().view(byte[kind_a]).reshape(32, 4).astype(np.int64)
        else:
            left = a(w).copy().view(pair[kind_a]).reshape(32, 2).astype(np.int64)
            right = right[:, :2] if half == "lo" else right[:, 2:]
        put(w, ((left * right).sum(1) + c(w).view(np.int32)).astype(np.int64).astype(np.uint32))

    return step


def build_pair(d: Decoder, ins: t.Instruction, m: Modifiers, kind: str) -> Step:
    """add, min, max on two 16-bit integers in a register."""
    if ins.opcode not in ("add", "min", "max"):
        raise m.fail(f"has no .{kind} form")
    relu = ins.opcode != "add" and m.flag("relu")
    d.count(ins, 3)
    part = np.int16 if kind == "s16x2" else np.uint16
    f = {"add": np.add, "min": np.minimum, "max": np.maximum}[ins.opcode]
    put, a, b = (
        d.dst(ins, ins.operands[0], "b32"),
        d.src(ins, ins.operands[1], "b32"),
        d.src(ins, ins.operands[2], "b32"),
    )

    def step(w) -> None:
        result = f(np.ascontiguousarray(a(w)).view(part), np.ascontiguousarray(b(w)).view(part))
        put(w, (np.maximum(result, 0) if relu else result).astype(part).view(np.uint32))

    return step
