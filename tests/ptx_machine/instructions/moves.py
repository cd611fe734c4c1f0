"""mov, address conversion and hints.

Source: PTX ISA, "Data Movement and Conversion Instructions".
"""

from __future__ import annotations

import numpy as np

from tests.ptx_machine import text as t
from tests.ptx_machine.errors import AccessError
from tests.ptx_machine.memory import (
    GLOBAL_BASE,
    LOCAL_WINDOW,
    PARAM_WINDOW,
    RANK_SHIFT,
    SHARED_WINDOW,
)
from tests.ptx_machine.operands import NUMPY, RAW, Decoder, Modifiers, Step, instruction
from tests.ptx_machine.text import type_bytes

from .transfers import tensor_map

PART = {2: "b16", 4: "b32", 1: "b8"}
OFFSET_MASK = np.uint64((1 << RANK_SHIFT) - 1)


@instruction("mov")
def build_move(d: Decoder, ins: t.Instruction, m: Modifiers) -> Step:
    """Copy, pack {a, b} into a register, or unpack a register."""
    kind = m.type()
    d.count(ins, 2)
    target, source = ins.operands
    if isinstance(target, t.Group):
        return build_unpack(d, ins, kind, target, source)
    put = d.dst(ins, target, kind)
    if isinstance(source, t.Group):
        width = type_bytes(kind) // len(source.parts)
        get = [d.src(ins, part, PART[width]) for part in source.parts]

        def step(w) -> None:
            put(
                w,
                np.ascontiguousarray(np.stack([g(w) for g in get], axis=1))
                .view(RAW[type_bytes(kind)])
                .reshape(32),
            )

        return step
    get_one = d.src(ins, source, kind)
    return lambda w: put(w, get_one(w))


def build_unpack(
    d: Decoder, ins: t.Instruction, kind: str, target: t.Group, source: t.Operand
) -> Step:
    get = d.src(ins, source, kind)
    width = type_bytes(kind) // len(target.parts)
    puts = [d.dst(ins, part, PART[width]) for part in target.parts]

    def step(w) -> None:
        parts = np.ascontiguousarray(get(w)).view(RAW[width]).reshape(32, len(puts))
        for i, put in enumerate(puts):
            put(w, parts[:, i].copy())

    return step


@instruction("cvta")
def build_cvta(d: Decoder, ins: t.Instruction, m: Modifiers) -> Step:
    """Between a space's addresses and generic ones; only shared differs here."""
    to_space = m.flag("to")
    space = m.one("global", "shared", "shared::cta", "shared::cluster", "local", "const", "param")
    kind = m.one("u64", "u32")
    d.count(ins, 2)
    put = d.dst(ins, ins.operands[0], kind)
    get = d.src(ins, ins.operands[1], kind)
    if not space.startswith("shared"):
        return lambda w: put(w, get(w))

    def step(w) -> None:
        address = get(w).astype(np.uint64)
        own = np.uint64((w.cta.rank + 1) << RANK_SHIFT)
        if to_space:
            address = address - np.uint64(SHARED_WINDOW)
            mine = (address & ~OFFSET_MASK) == own
            put(w, np.where(mine, address & OFFSET_MASK, address).astype(NUMPY[kind]))
        else:
            local = address <= OFFSET_MASK
            put(
                w,
                (np.where(local, address | own, address) + np.uint64(SHARED_WINDOW)).astype(
                    NUMPY[kind]
                ),
            )

    return step


@instruction("mapa")
def build_mapa(d: Decoder, ins: t.Instruction, m: Modifiers) -> Step:
    """The same shared variable in another CTA of the cluster."""
    in_shared, kind = m.flag("shared::cluster"), m.one("u32", "u64")
    d.count(ins, 3)
    put, rank = d.dst(ins, ins.operands[0], kind), d.src(ins, ins.operands[2], "u32")
    get = (
        d.src(ins, ins.operands[1], kind)
        if not isinstance(ins.operands[1], t.Name) or not ins.operands[1].offset
        else d.address_part(ins, ins.operands[1])
    )
    base = np.uint64(0 if in_shared else SHARED_WINDOW)

    def step(w) -> None:
        ranks = rank(w)
        if int(ranks[w.active_lanes()].max()) >= len(w.cta.cluster.ctas):
            raise AccessError(
                f"mapa to CTA rank {int(ranks[w.active_lanes()].max())} "
                f"of a cluster of {len(w.cta.cluster.ctas)}"
            )
        offset = get(w).astype(np.uint64) & OFFSET_MASK
        put(
            w,
            (
                offset | (ranks.astype(np.uint64) + np.uint64(1)) << np.uint64(RANK_SHIFT) | base
            ).astype(NUMPY[kind]),
        )

    return step


@instruction("getctarank")
def build_getctarank(d: Decoder, ins: t.Instruction, m: Modifiers) -> Step:
    in_shared, kind = m.flag("shared::cluster"), m.one("u32", "u64")
    d.count(ins, 2)
    put, get = d.dst(ins, ins.operands[0], "u32"), d.src(ins, ins.operands[1], kind)

    def step(w) -> None:
        address = get(w).astype(np.uint64) - np.uint64(0 if in_shared else SHARED_WINDOW)
        rank = address >> np.uint64(RANK_SHIFT)
        put(w, np.where(rank == 0, w.cta.rank, rank.astype(np.int64) - 1).astype(np.uint32))

    return step


@instruction("isspacep")
def build_isspacep(d: Decoder, ins: t.Instruction, m: Modifiers) -> Step:
    space = m.one("global", "shared", "shared::cta", "shared::cluster", "local", "const", "param")
    d.count(ins, 2)
    put, get = d.dst(ins, ins.operands[0], "pred"), d.src(ins, ins.operands[1], "u64")

    def step(w) -> None:
        address = get(w)
        window = address >> np.uint64(44)
        match space:
            case "shared" | "shared::cta":
                own = np.uint64(SHARED_WINDOW | (w.cta.rank + 1) << RANK_SHIFT)
                put(w, (address & ~OFFSET_MASK) == own)
            case "shared::cluster":
                put(w, window == SHARED_WINDOW >> 44)
            case "local":
                put(w, window == LOCAL_WINDOW >> 44)
            case "param":
                put(w, window == PARAM_WINDOW >> 44)
            case "global":
                put(w, (window == 0) & (address >= np.uint64(GLOBAL_BASE)))
            case _:
                put(w, np.zeros(32, bool))

    return step


@instruction("createpolicy")
def build_policy(d: Decoder, ins: t.Instruction, m: Modifiers) -> Step:
    """A cache policy is opaque; any value serves."""
    m.one("fractional", "range")
    m.flag("global")
    m.match(r"L2::evict_\w+")
    m.match(r"L2::evict_\w+")
    m.one("b64")
    put = d.dst(ins, ins.operands[0], "b64")
    for operand in ins.operands[1:]:
        if isinstance(operand, t.Name):
            d.src(ins, operand, "f32")
    return lambda w: put(w, np.zeros(32, np.uint64))


@instruction("prefetch", "prefetchu")
def build_prefetch(d: Decoder, ins: t.Instruction, m: Modifiers) -> Step:
    """Prefetches change nothing; the address of a tensor map is checked."""
    m.flag("param", "const", "global", "local")
    is_map = m.flag("tensormap")
    if not is_map:
        m.one("L1", "L2", "L2::evict_last", "L2::evict_normal")
    d.count(ins, 1)
    address = d.address(ins, ins.operands[0])
    if not is_map:
        return lambda w: None
    return lambda w: tensor_map(w, w.uniform(address(w), ins.text)) and None


@instruction("applypriority", "discard")
def build_hint(d: Decoder, ins: t.Instruction, m: Modifiers) -> Step:
    m.flag("global")
    m.one("L2", "L2::evict_normal")
    d.count(ins, 2)
    d.address(ins, ins.operands[0])
    if ins.opcode == "discard":
        raise m.fail("is not modelled: it leaves memory undefined")
    return lambda w: None
