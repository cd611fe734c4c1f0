"""f32 and f64 arithmetic, correctly rounded, approximations included.

Source: PTX ISA, "Floating Point Instructions".
"""

from __future__ import annotations

import numpy as np

from tests.ptx_machine import text as t
from tests.ptx_machine.numbers import add_to_odd, canonical, exact64, flush, to_f32
from tests.ptx_machine.operands import Decoder, Modifiers, Step, instruction

MODES = ("rn", "rz", "rm", "rp")


def saturate01(x: np.ndarray) -> np.ndarray:
    """Clamp to [0, 1]; NaN becomes +0."""
    return np.where(x > 0, np.minimum(x, 1), 0).astype(x.dtype)


def larger(a: np.ndarray, b: np.ndarray) -> np.ndarray:
    """Maximum that prefers numbers to NaN and +0 to -0."""
    first = (a > b) | np.isnan(b) | ((a == b) & ~np.signbit(a))
    return np.where(first, a, b)


def smaller(a: np.ndarray, b: np.ndarray) -> np.ndarray:
    """Minimum that prefers numbers to NaN and -0 to +0."""
    first = (a < b) | np.isnan(b) | ((a == b) & np.signbit(a))
    return np.where(first, a, b)


def extremum(name: str, a: np.ndarray, b: np.ndarray, nan: bool, xorsign: bool) -> np.ndarray:
    """min or max with the .NaN and .xorsign.abs variants."""
    sign = np.signbit(a) ^ np.signbit(b)
    if xorsign:
        a, b = np.abs(a), np.abs(b)
    out = larger(a, b) if name == "max" else smaller(a, b)
    if nan:
        out = np.where(np.isnan(a) | np.isnan(b), np.array(np.nan, out.dtype), out)
    return np.where(sign, -out, out) if xorsign else out


def compute32(op: str, mode: str, x: tuple[np.ndarray, ...]) -> np.ndarray:
    """Return one float32 operation rounded once."""
    if mode == "rn":
        match op:
            case "add":
                return x[0] + x[1]
            case "sub":
                return x[0] - x[1]
            case "mul":
                return x[0] * x[1]
            case "div":
                return x[0] / x[1]
            case "sqrt":
                return np.sqrt(x[0])
            case "rcp":
                return np.float32(1) / x[0]
    wide = tuple(v.astype(np.float64) for v in x)
    match op:
        case "add":
            return to_f32(add_to_odd(wide[0], wide[1], mode), mode)
        case "sub":
            return to_f32(add_to_odd(wide[0], -wide[1], mode), mode)
        case "mul":
            return to_f32(wide[0] * wide[1], mode)
        case "fma":
            return to_f32(add_to_odd(wide[0] * wide[1], wide[2], mode), mode)
        case "div":
            return to_f32(wide[0] / wide[1], mode)
        case "rcp":
            return to_f32(1.0 / wide[0], mode)
        case "sqrt":
            return to_f32(np.sqrt(wide[0]), mode)
    raise ValueError(op)


def compute64(op: str, mode: str, x: tuple[np.ndarray, ...]) -> np.ndarray:
    """Return one float64 operation rounded once."""
    if op == "sub":
        return compute64("add", mode, (x[0], -x[1]))
    if op == "rcp":
        return compute64("div", mode, (np.ones(32), x[0]))
    if mode != "rn" or op == "fma":
        return exact64(op, x, mode)
    match op:
        case "add":
            return x[0] + x[1]
        case "mul":
            return x[0] * x[1]
        case "div":
            return x[0] / x[1]
    return np.sqrt(x[0])


def build_rounded(
    d: Decoder, ins: t.Instruction, kind: str, op: str, mode: str, ftz: bool, sat: bool, count: int
) -> Step:
    """A step that applies an operation to `count` operands with flushing and saturation."""
    d.count(ins, count + 1)
    put = d.dst(ins, ins.operands[0], kind)
    get = [d.src(ins, o, kind) for o in ins.operands[1:]]
    compute = compute32 if kind == "f32" else compute64

    def step(w) -> None:
        x = tuple(g(w) for g in get)
        if ftz:
            x = tuple(flush(v) for v in x)
        out = compute(op, mode, x)
        if sat:
            out = saturate01(out)
        put(w, canonical(flush(out) if ftz else out))

    return step


def build_float(d: Decoder, ins: t.Instruction, m: Modifiers, kind: str) -> Step:
    """Opcodes shared with integers, for f32 and f64."""
    ftz = kind == "f32" and m.flag("ftz")
    op = ins.opcode
    match op:
        case "add" | "sub" | "mul":
            mode, sat = m.one(*MODES, default="rn"), kind == "f32" and m.flag("sat")
            return build_rounded(d, ins, kind, op, mode, ftz, sat, 2)
        case "fma" | "mad":
            mode, sat = m.one(*MODES), kind == "f32" and m.flag("sat")
            return build_rounded(d, ins, kind, "fma", mode, ftz, sat, 3)
        case "div":
            approximate = kind == "f32" and m.flag("approx", "full")
            return build_rounded(
                d, ins, kind, op, "rn" if approximate else m.one(*MODES), ftz, False, 2
            )
        case "min" | "max":
            return build_extremum(d, ins, m, kind, ftz)
        case "abs" | "neg":
            d.count(ins, 2)
            put, a = d.dst(ins, ins.operands[0], kind), d.src(ins, ins.operands[1], kind)
            f = np.abs if op == "abs" else np.negative
            return lambda w: put(w, canonical(f(flush(a(w)) if ftz else a(w))))
    raise m.fail(f"has no .{kind} form")


def build_extremum(d: Decoder, ins: t.Instruction, m: Modifiers, kind: str, ftz: bool) -> Step:
    nan, xorsign = m.flag("NaN"), m.flag("xorsign")
    if xorsign and not m.flag("abs"):
        raise m.fail(".xorsign needs .abs")
    d.count(ins, 3)
    put, a, b = (
        d.dst(ins, ins.operands[0], kind),
        d.src(ins, ins.operands[1], kind),
        d.src(ins, ins.operands[2], kind),
    )
    name = ins.opcode

    def step(w) -> None:
        x, y = a(w), b(w)
        if ftz:
            x, y = flush(x), flush(y)
        put(w, canonical(extremum(name, x, y, nan, xorsign)))

    return step


@instruction("rcp", "sqrt")
def build_root(d: Decoder, ins: t.Instruction, m: Modifiers) -> Step:
    """rcp and sqrt, rounded or approximate; the approximations here are the rounded values."""
    kind = m.one("f32", "f64")
    mode = "rn" if m.flag("approx") else m.one(*MODES)
    return build_rounded(d, ins, kind, ins.opcode, mode, kind == "f32" and m.flag("ftz"), False, 1)


FUNCTIONS = {
    "rsqrt": lambda x: 1.0 / np.sqrt(x),
    "ex2": np.exp2,
    "lg2": np.log2,
    "sin": np.sin,
    "cos": np.cos,
    "tanh": np.tanh,
}


@instruction("rsqrt", "lg2", "sin", "cos")
def build_function(d: Decoder, ins: t.Instruction, m: Modifiers) -> Step:
    """Approximate functions, evaluated in float64 and rounded once."""
    m.one("approx")
    kind = m.one("f32", "f64") if ins.opcode == "rsqrt" else m.one("f32")
    ftz = m.flag("ftz")
    return build_unary_function(d, ins, kind, FUNCTIONS[ins.opcode], ftz)


def build_unary_function(d: Decoder, ins: t.Instruction, kind: str, f, ftz: bool) -> Step:
    d.count(ins, 2)
    put, a = d.dst(ins, ins.operands[0], kind), d.src(ins, ins.operands[1], kind)
    if kind == "f64":
        return lambda w: put(w, canonical(f(a(w))))

    def step(w) -> None:
        x = flush(a(w)) if ftz else a(w)
        out = f(x.astype(np.float64)).astype(np.float32)
        put(w, canonical(flush(out) if ftz else out))

    return step


@instruction("copysign")
def build_copysign(d: Decoder, ins: t.Instruction, m: Modifiers) -> Step:
    """Magnitude of b with the sign of a."""
    kind = m.one("f32", "f64")
    d.count(ins, 3)
    put, a, b = (
        d.dst(ins, ins.operands[0], kind),
        d.src(ins, ins.operands[1], kind),
        d.src(ins, ins.operands[2], kind),
    )
    return lambda w: put(w, np.copysign(b(w), a(w)))


@instruction("testp")
def build_testp(d: Decoder, ins: t.Instruction, m: Modifiers) -> Step:
    """Classify a float."""
    test, kind = (
        m.one("finite", "infinite", "number", "notanumber", "normal", "subnormal"),
        m.one("f32", "f64"),
    )
    d.count(ins, 2)
    put, a = d.dst(ins, ins.operands[0], "pred"), d.src(ins, ins.operands[1], kind)
    tiny = np.finfo(np.float32 if kind == "f32" else np.float64).tiny
    tests = {
        "finite": np.isfinite,
        "infinite": np.isinf,
        "number": lambda x: ~np.isnan(x),
        "notanumber": np.isnan,
        "normal": lambda x: np.isfinite(x) & (np.abs(x) >= tiny),
        "subnormal": lambda x: (x != 0) & (np.abs(x) < tiny),
    }
    return lambda w: put(w, tests[test](a(w)))
