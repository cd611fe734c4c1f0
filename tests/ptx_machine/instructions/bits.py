"""Bit operations.

Source: PTX ISA, "Logic and Shift Instructions", "Integer Arithmetic Instructions", "prmt".
"""

from __future__ import annotations

import numpy as np

from tests.ptx_machine import text as t
from tests.ptx_machine.operands import NUMPY, Decoder, Modifiers, Step, instruction

LOGIC = {"and": np.bitwise_and, "or": np.bitwise_or, "xor": np.bitwise_xor}


@instruction("and", "or", "xor")
def build_logic(d: Decoder, ins: t.Instruction, m: Modifiers) -> Step:
    kind = m.type()
    d.count(ins, 3)
    put, a, b = (
        d.dst(ins, ins.operands[0], kind),
        d.src(ins, ins.operands[1], kind),
        d.src(ins, ins.operands[2], kind),
    )
    f = LOGIC[ins.opcode]
    return lambda w: put(w, f(a(w), b(w)))


@instruction("not", "cnot")
def build_not(d: Decoder, ins: t.Instruction, m: Modifiers) -> Step:
    kind = m.type()
    d.count(ins, 2)
    put, a = d.dst(ins, ins.operands[0], kind), d.src(ins, ins.operands[1], kind)
    if ins.opcode == "not":
        return lambda w: put(w, ~a(w))
    return lambda w: put(w, (a(w) == 0).astype(NUMPY[kind]))


@instruction("lop3")
def build_lop3(d: Decoder, ins: t.Instruction, m: Modifiers) -> Step:
    """Any function of three bits, from a table of eight."""
    m.one("b32")
    d.count(ins, 5)
    put = d.dst(ins, ins.operands[0], "b32")
    a, b, c = (d.src(ins, o, "b32") for o in ins.operands[1:4])
    table = d.literal(ins, ins.operands[4])

    def step(w) -> None:
        x, y, z = a(w), b(w), c(w)
        out = np.zeros(32, np.uint32)
        for row in range(8):
            if table >> row & 1:
                out |= (x if row & 4 else ~x) & (y if row & 2 else ~y) & (z if row & 1 else ~z)
        put(w, out)

    return step


@instruction("shl", "shr")
def build_shift(d: Decoder, ins: t.Instruction, m: Modifiers) -> Step:
    """Shifts clamp their amount to the width."""
    kind = m.type()
    d.count(ins, 3)
    put, a, amount = (
        d.dst(ins, ins.operands[0], kind),
        d.src(ins, ins.operands[1], kind),
        d.src(ins, ins.operands[2], "u32"),
    )
    dtype, width = NUMPY[kind], 8 * np.dtype(NUMPY[kind]).itemsize
    left, signed = ins.opcode == "shl", kind.startswith("s")

    def step(w) -> None:
        n = amount(w)
        over, n = n >= width, np.minimum(n, width - 1).astype(dtype)
        value = a(w)
        if left:
            put(w, np.where(over, dtype(0), value << n))
        else:
            put(w, np.where(over, (value >> dtype(width - 1)) if signed else dtype(0), value >> n))

    return step


@instruction("shf")
def build_funnel(d: Decoder, ins: t.Instruction, m: Modifiers) -> Step:
    """Shift the 64-bit value {b, a}; left keeps the upper word, right the lower."""
    direction, mode = m.one("l", "r"), m.one("clamp", "wrap")
    m.one("b32")
    d.count(ins, 4)
    put = d.dst(ins, ins.operands[0], "b32")
    a, b, c = (d.src(ins, o, "u32") for o in ins.operands[1:4])

    def step(w) -> None:
        n = (np.minimum(c(w), 32) if mode == "clamp" else c(w) & np.uint32(31)).astype(np.uint64)
        both = b(w).astype(np.uint64) << np.uint64(32) | a(w).astype(np.uint64)
        put(w, ((both << n) >> np.uint64(32) if direction == "l" else both >> n).astype(np.uint32))

    return step


@instruction("popc", "clz", "brev")
def build_count(d: Decoder, ins: t.Instruction, m: Modifiers) -> Step:
    kind = m.one("b32", "b64")
    d.count(ins, 2)
    width = int(kind[1:])
    put, a = (
        d.dst(ins, ins.operands[0], kind if ins.opcode == "brev" else "u32"),
        d.src(ins, ins.operands[1], kind),
    )
    match ins.opcode:
        case "popc":
            return lambda w: put(w, np.bitwise_count(a(w)).astype(np.uint32))
        case "clz":
            return lambda w: put(
                w, np.array([width - int(x).bit_length() for x in a(w)], np.uint32)
            )
    return lambda w: put(
        w, np.array([int(f"{int(x):0{width}b}"[::-1], 2) for x in a(w)], NUMPY[kind])
    )


@instruction("bfind")
def build_find(d: Decoder, ins: t.Instruction, m: Modifiers) -> Step:
    """Position of the highest significant bit, all ones when there is none."""
    amount, kind = m.flag("shiftamt"), m.type()
    d.count(ins, 2)
    put, a = d.dst(ins, ins.operands[0], "u32"), d.src(ins, ins.operands[1], kind)
    width = 8 * np.dtype(NUMPY[kind]).itemsize

    def find(x: int) -> int:
        high = (~x if x < 0 else x).bit_length() - 1
        if high < 0:
            return 0xFFFFFFFF
        return width - 1 - high if amount else high

    return lambda w: put(w, np.array([find(int(x)) for x in a(w)], np.uint32))


@instruction("bfe")
def build_extract(d: Decoder, ins: t.Instruction, m: Modifiers) -> Step:
    """Field of c bits at b; signed types extend the field's top bit."""
    kind = m.type()
    d.count(ins, 4)
    put, a = d.dst(ins, ins.operands[0], kind), d.src(ins, ins.operands[1], kind)
    b, c = d.src(ins, ins.operands[2], "u32"), d.src(ins, ins.operands[3], "u32")
    width = 8 * np.dtype(NUMPY[kind]).itemsize

    def extract(x: int, position: int, length: int) -> int:
        x, position, length = x % (1 << width), position & 255, length & 255
        if length == 0:
            return 0
        top = min(position + length - 1, width - 1)
        sign = kind.startswith("s") and x >> top & 1
        field = x >> position & ((1 << length) - 1) if position < width else 0
        kept = max(0, min(length, width - position))
        return (field | (-1 << kept)) % (1 << width) if sign else field

    raw = np.uint64 if width == 64 else np.uint32
    return lambda w: put(
        w,
        np.array(
            [extract(int(x), int(p), int(n)) for x, p, n in zip(a(w), b(w), c(w), strict=True)], raw
        ),
    )


@instruction("bfi")
def build_insert(d: Decoder, ins: t.Instruction, m: Modifiers) -> Step:
    """Put d bits of a into b at c."""
    kind = m.one("b32", "b64")
    d.count(ins, 5)
    put, a, b = (
        d.dst(ins, ins.operands[0], kind),
        d.src(ins, ins.operands[1], kind),
        d.src(ins, ins.operands[2], kind),
    )
    c, length = d.src(ins, ins.operands[3], "u32"), d.src(ins, ins.operands[4], "u32")
    width = int(kind[1:])

    def insert(x: int, base: int, position: int, count: int) -> int:
        position, count = position & 255, count & 255
        field = (((1 << count) - 1) << position) % (1 << width)
        return base & ~field | (x << position) & field

    def step(w) -> None:
        rows = zip(a(w), b(w), c(w), length(w), strict=True)
        put(w, np.array([insert(*(int(v) for v in row)) for row in rows], NUMPY[kind]))

    return step


@instruction("bmsk")
def build_mask(d: Decoder, ins: t.Instruction, m: Modifiers) -> Step:
    """A run of b ones from bit a."""
    mode = m.one("clamp", "wrap")
    m.one("b32")
    d.count(ins, 3)
    put, a, b = (
        d.dst(ins, ins.operands[0], "b32"),
        d.src(ins, ins.operands[1], "u32"),
        d.src(ins, ins.operands[2], "u32"),
    )

    def run(start: int, length: int) -> int:
        start, length = (
            (start & 31, length & 31) if mode == "wrap" else (min(start, 32), min(length, 32))
        )
        return (((1 << length) - 1) << start) & 0xFFFFFFFF

    return lambda w: put(
        w, np.array([run(int(x), int(y)) for x, y in zip(a(w), b(w), strict=True)], np.uint32)
    )


@instruction("szext")
def build_extend(d: Decoder, ins: t.Instruction, m: Modifiers) -> Step:
    """Extend the low b bits of a."""
    mode, kind = m.one("clamp", "wrap"), m.one("u32", "s32")
    d.count(ins, 3)
    put, a, b = (
        d.dst(ins, ins.operands[0], kind),
        d.src(ins, ins.operands[1], "u32"),
        d.src(ins, ins.operands[2], "u32"),
    )

    def extend(x: int, n: int) -> int:
        n = n & 31 if mode == "wrap" else min(n, 32)
        low = x & ((1 << n) - 1)
        return (low | -1 << n) & 0xFFFFFFFF if kind == "s32" and n and x >> (n - 1) & 1 else low

    return lambda w: put(
        w, np.array([extend(int(x), int(y)) for x, y in zip(a(w), b(w), strict=True)], np.uint32)
    )


PERMUTES = {
    "f4e": lambda n: [n + i for i in range(4)],
    "b4e": lambda n: [(n - i) % 8 for i in range(4)],
    "rc8": lambda n: [n] * 4,
    "rc16": lambda n: [2 * (n & 1), 2 * (n & 1) + 1] * 2,
    "ecl": lambda n: [max(i, n) for i in range(4)],
    "ecr": lambda n: [min(i, n) for i in range(4)],
}


@instruction("prmt")
def build_permute(d: Decoder, ins: t.Instruction, m: Modifiers) -> Step:
    """Pick four of eight bytes; bit 3 of a selector repeats the byte's sign instead."""
    m.one("b32")
    mode = m.one(*PERMUTES, default="")
    d.count(ins, 4)
    put = d.dst(ins, ins.operands[0], "b32")
    a, b, c = (d.src(ins, o, "u32") for o in ins.operands[1:4])

    def permute(low: int, high: int, selector: int) -> int:
        source = (low | high << 32).to_bytes(8, "little")
        if mode:
            return int.from_bytes(bytes(source[i] for i in PERMUTES[mode](selector & 3)), "little")
        out = 0
        for i in range(4):
            pick = selector >> (4 * i) & 15
            byte = source[pick & 7]
            out |= (0xFF if pick & 8 and byte & 128 else 0 if pick & 8 else byte) << (8 * i)
        return out

    return lambda w: put(
        w,
        np.array(
            [permute(int(x), int(y), int(z)) for x, y, z in zip(a(w), b(w), c(w), strict=True)],
            np.uint32,
        ),
    )
