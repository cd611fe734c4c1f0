"""Comparison and selection. Source: PTX ISA, "Comparison and Selection Instructions"."""

from __future__ import annotations

import numpy as np

from tests.ptx_machine import text as t
from tests.ptx_machine.numbers import flush
from tests.ptx_machine.operands import NUMPY, Decoder, Modifiers, Step, instruction, no_operand

from .packed import HALVES, RAW_TYPE, unpack

ORDERED = {
    "eq": np.equal,
    "ne": np.not_equal,
    "lt": np.less,
    "le": np.less_equal,
    "gt": np.greater,
    "ge": np.greater_equal,
}
UNSIGNED = {"lo": "lt", "ls": "le", "hi": "gt", "hs": "ge"}
UNORDERED = {f"{name}u": name for name in ORDERED}
COMBINE = {"and": np.logical_and, "or": np.logical_or, "xor": np.logical_xor}
FLOATS = ("f32", "f64", *HALVES)


def comparison(name: str, is_float: bool):
    """Return a function of two arrays for a comparison word."""
    if not is_float:
        return ORDERED[UNSIGNED.get(name, name)]
    if name == "num":
        return lambda a, b: ~(np.isnan(a) | np.isnan(b))
    if name == "nan":
        return lambda a, b: np.isnan(a) | np.isnan(b)
    if name in UNORDERED:
        plain = ORDERED[UNORDERED[name]]
        return lambda a, b: plain(a, b) | np.isnan(a) | np.isnan(b)
    plain = ORDERED[name]
    return lambda a, b: plain(a, b) & ~(np.isnan(a) | np.isnan(b))


def operands_of(d: Decoder, ins: t.Instruction, m: Modifiers, kind: str, first: int):
    """Return a function of a warp that gives the two compared arrays, [1 or 2, 32] for halves."""
    ftz = kind in ("f32", "f16", "f16x2") and m.flag("ftz")
    raw = RAW_TYPE.get(kind, kind)
    a, b = d.src(ins, ins.operands[first], raw), d.src(ins, ins.operands[first + 1], raw)
    if kind in HALVES:
        return lambda w: (unpack(a(w), kind), unpack(b(w), kind))
    if ftz:
        return lambda w: (flush(a(w)), flush(b(w)))
    return lambda w: (a(w), b(w))


@instruction("setp")
def build_setp(d: Decoder, ins: t.Instruction, m: Modifiers) -> Step:
    """Predicates p|q from a comparison, optionally combined with a third predicate."""
    kind = m.type()
    is_float = kind in FLOATS
    words = [*ORDERED, *UNSIGNED] if not is_float else [*ORDERED, *UNORDERED, "num", "nan"]
    compare = comparison(m.one(*words), is_float)
    combine = COMBINE.get(m.one(*COMBINE, default="-"))
    d.count(ins, 4 if combine else 3)
    pair = operands_of(d, ins, m, kind, 1)
    out = ins.operands[0]
    both = isinstance(out, t.Pair)
    put = d.dst(ins, out.first if both else out, "pred")
    put_second = d.dst(ins, out.second, "pred") if both else None
    c = d.src(ins, ins.operands[3], "pred") if combine else no_operand

    def step(w) -> None:
        result = compare(*pair(w))
        if kind.endswith("x2"):
            first, second = result[0], result[1]
        else:
            first = result[0] if result.ndim == 2 else result
            second = ~first
        if combine:
            third = c(w)
            first, second = combine(first, third), combine(second, third)
        put(w, first)
        if put_second:
            put_second(w, second)

    return step


@instruction("set")
def build_set(d: Decoder, ins: t.Instruction, m: Modifiers) -> Step:
    """Like setp with a value: all ones or 1.0 when true."""
    out_kind, kind = m.types(2)
    is_float = kind in FLOATS
    words = [*ORDERED, *UNSIGNED] if not is_float else [*ORDERED, *UNORDERED, "num", "nan"]
    compare = comparison(m.one(*words), is_float)
    combine = COMBINE.get(m.one(*COMBINE, default="-"))
    d.count(ins, 4 if combine else 3)
    pair = operands_of(d, ins, m, kind, 1)
    if kind.endswith("x2") or out_kind not in ("f32", "u32", "s32"):
        raise m.fail("only set to .u32, .s32 or .f32 from one value is modelled")
    put = d.dst(ins, ins.operands[0], out_kind)
    c = d.src(ins, ins.operands[3], "pred") if combine else no_operand
    true = np.uint32(0x3F800000) if out_kind == "f32" else np.uint32(0xFFFFFFFF)

    def step(w) -> None:
        result = compare(*pair(w)).reshape(32)
        if combine:
            result = combine(result, c(w))
        put(w, np.where(result, true, np.uint32(0)))

    return step


@instruction("selp")
def build_selp(d: Decoder, ins: t.Instruction, m: Modifiers) -> Step:
    """a where the predicate holds, else b."""
    kind = m.type()
    d.count(ins, 4)
    put, a, b = (
        d.dst(ins, ins.operands[0], kind),
        d.src(ins, ins.operands[1], kind),
        d.src(ins, ins.operands[2], kind),
    )
    c = d.src(ins, ins.operands[3], "pred")
    return lambda w: put(w, np.where(c(w), a(w), b(w)))


@instruction("slct")
def build_slct(d: Decoder, ins: t.Instruction, m: Modifiers) -> Step:
    """a where c is not negative, else b."""
    kind, test = m.types(2)
    ftz = test == "f32" and m.flag("ftz")
    d.count(ins, 4)
    put, a, b = (
        d.dst(ins, ins.operands[0], kind),
        d.src(ins, ins.operands[1], kind),
        d.src(ins, ins.operands[2], kind),
    )
    c = d.src(ins, ins.operands[3], test)
    zero = NUMPY[test](0)
    return lambda w: put(w, np.where((flush(c(w)) if ftz else c(w)) >= zero, a(w), b(w)))
