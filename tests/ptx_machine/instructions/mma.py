"""mma.sync: products of one warp, exact inside and rounded once. Source: PTX ISA, "mma"."""

from __future__ import annotations

from tests.ptx_machine import text as t
from tests.ptx_machine.operands import RAW, Decoder, Modifiers, Step, instruction

from .access import registers_of
from .fragments import WIDTH, accumulator, operand_a, operand_b, to_registers

SHAPES = {
    "f16": ((16, 8), (16, 16)),
    "bf16": ((16, 8), (16, 16)),
    "tf32": ((16, 4), (16, 8)),
    "e4m3": ((16, 32), (16, 16)),
    "e5m2": ((16, 32), (16, 16)),
    "s8": ((8, 16), (16, 16), (16, 32)),
    "u8": ((8, 16), (16, 16), (16, 32)),
    "f64": ((8, 4), (16, 4), (16, 8), (16, 16)),
}
KINDS = tuple(SHAPES)


@instruction("mma")
def build_mma(d: Decoder, ins: t.Instruction, m: Modifiers) -> Step:
    """D = A B + C over fragments."""
    m.one("sync")
    m.one("aligned")
    shape = m.match(r"m(\d+)n8k(\d+)")
    if not shape:
        raise m.fail("the shape is not modelled")
    rows, depth = int(shape[1]), int(shape[2])
    m.one("row")
    m.one("col")
    saturate = m.flag("satfinite")
    words = [w for w in m.left if w in (*KINDS, "f32", "s32")]
    if len(words) != 4:
        raise m.fail("needs four types")
    for word in words:
        m.left.remove(word)
    out, kind_a, kind_b, kind_c = words
    if (
        kind_a not in SHAPES
        or (rows, depth) not in SHAPES[kind_a]
        or WIDTH[kind_a] != WIDTH[kind_b]
    ):
        raise m.fail("this shape and these types are not modelled")
    d.sync = "aligned"
    d.count(ins, 4)
    per_register = max(1, 32 // WIDTH[kind_a])
    a_count, b_count = rows // 8 * depth // (4 * per_register), depth // (4 * per_register)
    c_count = rows // 8 * 2
    size = 8 if kind_a == "f64" else 4

    def registers(operand: t.Operand, kind: str, count: int):
        raw = "b32" if kind == "f16" or size == 4 else "b64"
        return [
            d.src(ins, part, raw)
            for part in registers_of(operand, count // 2 if kind == "f16" else count, m)
        ]

    raw_ab = "b64" if size == 8 else "b32"
    a = [d.src(ins, part, raw_ab) for part in registers_of(ins.operands[1], a_count, m)]
    b = [d.src(ins, part, raw_ab) for part in registers_of(ins.operands[2], b_count, m)]
    c = registers(ins.operands[3], kind_c, c_count)
    out_count = c_count // 2 if out == "f16" else c_count
    puts = [d.dst(ins, part, raw_ab) for part in registers_of(ins.operands[0], out_count, m)]
    unsigned = RAW[size]

    def step(w) -> None:
        left = operand_a([g(w) for g in a], kind_a, rows)
        right = operand_b([g(w) for g in b], kind_b)
        total = left @ right + accumulator([g(w) for g in c], kind_c, rows)
        for put, value in zip(puts, to_registers(total, out, saturate), strict=True):
            put(w, value.astype(unsigned))

    return step
