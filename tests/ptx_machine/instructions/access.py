"""ld and st. Source: PTX ISA, "Data Movement and Conversion Instructions: ld, st"."""

from __future__ import annotations

import numpy as np

from tests.ptx_machine import text as t
from tests.ptx_machine.memory import load, store
from tests.ptx_machine.operands import NUMPY, Decoder, Modifiers, Step, instruction

SPACES = ("global", "shared", "shared::cta", "shared::cluster", "local", "const", "param")
SCOPES = ("cta", "cluster", "gpu", "sys")


def space_of(m: Modifiers) -> str:
    """Consume a state space word; .shared alone means the CTA's own."""
    space = m.one(*SPACES, default="generic")
    return "shared::cta" if space == "shared" else space


def consume_hints(m: Modifiers) -> bool:
    """Consume cache operators; tell whether a cache policy operand follows."""
    m.match(r"c[agsvb]|lu|w[bt]")
    m.match(r"L1::(evict_\w+|no_allocate)")
    m.match(r"L2::evict_\w+")
    m.match(r"L2::(64|128|256)B")
    return m.flag("L2::cache_hint")


def consume_order(m: Modifiers, *words: str) -> tuple[bool, str]:
    """Consume the memory-order words; return (strong, order)."""
    order = m.one("weak", "volatile", "mmio", *words, default="weak")
    if order == "mmio":
        order = m.one(*words)
    if order in words:
        m.one(*SCOPES)
    return order != "weak", order


def vector_length(m: Modifiers) -> int:
    found = m.match(r"v([248])")
    return int(found[1]) if found else 1


def elements(operand: t.Operand, count: int, m: Modifiers) -> tuple[t.Operand, ...]:
    """Return the registers of a scalar or braced operand."""
    parts = operand.parts if isinstance(operand, t.Group) else (operand,)
    if len(parts) != count:
        raise m.fail(f"{len(parts)} registers for a vector of {count}")
    return parts


def registers_of(operand: t.Operand, count: int, m: Modifiers) -> tuple[t.Operand, ...]:
    """As `elements`, of an instruction that takes registers only: ptxas refuses constants."""
    parts = elements(operand, count, m)
    if not all(isinstance(part, t.Name) for part in parts):
        raise m.fail("takes registers only")
    return parts


def transfer_type(kind: str, m: Modifiers) -> str:
    """Map a memory type to the raw type of the same width and signedness."""
    if kind in ("pred", "f16x2", "bf16x2", "bf16", "tf32"):
        raise m.fail(f"has no .{kind} form")
    return "b16" if kind == "f16" else kind


@instruction("ld", "ldu")
def build_load(d: Decoder, ins: t.Instruction, m: Modifiers) -> Step:
    strong, order = consume_order(m, "relaxed", "acquire")
    space = space_of(m)
    m.flag("nc")
    policy = consume_hints(m)
    count, kind = vector_length(m), transfer_type(m.type(), m)
    d.count(ins, 3 if policy else 2)
    if policy:
        d.src(ins, ins.operands[2], "b64")
    puts = [d.dst(ins, part, kind, loose=True) for part in elements(ins.operands[0], count, m)]
    address = d.address(ins, ins.operands[1])
    width, dtype = np.dtype(NUMPY[kind]).itemsize, NUMPY[kind]

    def step(w) -> None:
        values = load(w, space, address(w), width, count, strong, order == "acquire")
        for put, value in zip(puts, values, strict=True):
            put(w, value.view(dtype))

    return step


@instruction("st")
def build_store(d: Decoder, ins: t.Instruction, m: Modifiers) -> Step:
    strong, order = consume_order(m, "relaxed", "release")
    space = space_of(m)
    policy = consume_hints(m)
    count, kind = vector_length(m), transfer_type(m.type(), m)
    d.count(ins, 3 if policy else 2)
    if policy:
        d.src(ins, ins.operands[2], "b64")
    address = d.address(ins, ins.operands[0])
    width = np.dtype(NUMPY[kind]).itemsize
    raw = f"b{8 * width}" if kind not in ("f32", "f64") else kind
    values = [
        d.src(ins, part, raw, loose=raw[0] == "b") for part in elements(ins.operands[1], count, m)
    ]
    unsigned = np.dtype(f"u{width}")

    def step(w) -> None:
        store(
            w,
            space,
            address(w),
            [value(w).view(unsigned) for value in values],
            width,
            strong,
            order == "release",
        )

    return step
