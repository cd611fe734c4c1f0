"""Exchange between lanes.

Source: PTX ISA, "shfl.sync", "vote.sync", "match.sync", "redux.sync", "elect.sync".
"""

from __future__ import annotations

import numpy as np

from tests.ptx_machine import text as t
from tests.ptx_machine.errors import DivergenceError
from tests.ptx_machine.operands import Decoder, Modifiers, Step, instruction
from tests.ptx_machine.warp import EVERYONE, bits_of


def require_members(d: Decoder, ins: t.Instruction, operand: t.Operand) -> None:
    """Make the instruction wait for the lanes of its member mask."""
    d.sync = d.uniform(ins, operand)


def active_mask(w) -> np.ndarray:
    return np.ones(32, bool) if w.mask is None else w.mask


@instruction("shfl")
def build_shuffle(d: Decoder, ins: t.Instruction, m: Modifiers) -> Step:
    """Read a register of another lane; lanes out of their segment keep their own."""
    m.one("sync")
    mode = m.one("up", "down", "bfly", "idx")
    m.one("b32")
    d.count(ins, 5)
    out = ins.operands[0]
    put = d.dst(ins, out.first if isinstance(out, t.Pair) else out, "b32")
    put_valid = d.dst(ins, out.second, "pred") if isinstance(out, t.Pair) else None
    a, b, c = (d.src(ins, o, "b32") for o in ins.operands[1:4])
    require_members(d, ins, ins.operands[4])

    def step(w) -> None:
        offset = (b(w) & np.uint32(31)).astype(np.int64)
        control = c(w).astype(np.int64)
        segment, clamp = control >> 8 & 31, control & 31
        highest = (EVERYONE & segment) | (clamp & ~segment)
        lowest = EVERYONE & segment
        match mode:
            case "up":
                source = EVERYONE - offset
                valid = source >= highest
            case "down":
                source = EVERYONE + offset
                valid = source <= highest
            case "bfly":
                source = EVERYONE ^ offset
                valid = source <= highest
            case _:
                source = lowest | (offset & ~segment)
                valid = source <= highest
        source = np.where(valid, source, EVERYONE)
        active = active_mask(w)
        if not active[source[active]].all():
            raise DivergenceError("shfl reads a register of a lane that does not take part")
        put(w, a(w)[source])
        if put_valid:
            put_valid(w, valid)

    return step


@instruction("vote")
def build_vote(d: Decoder, ins: t.Instruction, m: Modifiers) -> Step:
    m.one("sync")
    mode = m.one("all", "any", "uni", "ballot")
    kind = m.one("b32") if mode == "ballot" else m.one("pred")
    d.count(ins, 3)
    put, a = d.dst(ins, ins.operands[0], kind), d.src(ins, ins.operands[1], "pred")
    require_members(d, ins, ins.operands[2])

    def step(w) -> None:
        votes = a(w)[w.active_lanes()]
        match mode:
            case "all":
                put(w, np.full(32, votes.all()))
            case "any":
                put(w, np.full(32, votes.any()))
            case "uni":
                put(w, np.full(32, votes.all() or not votes.any()))
            case _:
                put(w, np.full(32, bits_of(a(w) & active_mask(w)), np.uint32))

    return step


@instruction("match")
def build_match(d: Decoder, ins: t.Instruction, m: Modifiers) -> Step:
    """Masks of lanes that hold the same value."""
    mode = m.one("any", "all")
    m.one("sync")
    kind = m.one("b32", "b64")
    d.count(ins, 3)
    out = ins.operands[0]
    put = d.dst(ins, out.first if isinstance(out, t.Pair) else out, "b32")
    put_same = d.dst(ins, out.second, "pred") if isinstance(out, t.Pair) else None
    a = d.src(ins, ins.operands[1], kind)
    require_members(d, ins, ins.operands[2])

    def step(w) -> None:
        value, active = a(w), active_mask(w)
        if mode == "any":
            put(w, np.array([bits_of((value == v) & active) for v in value], np.uint32))
            return
        same = bool((value[active] == value[active][0]).all())
        put(w, np.full(32, bits_of(active) if same else 0, np.uint32))
        if put_same:
            put_same(w, np.full(32, same))

    return step


@instruction("redux")
def build_redux(d: Decoder, ins: t.Instruction, m: Modifiers) -> Step:
    m.one("sync")
    name = m.one("add", "min", "max", "and", "or", "xor")
    kind = m.one("u32", "s32", "b32")
    d.count(ins, 3)
    put, a = d.dst(ins, ins.operands[0], kind), d.src(ins, ins.operands[1], kind)
    require_members(d, ins, ins.operands[2])
    reduce = {
        "add": np.add,
        "min": np.minimum,
        "max": np.maximum,
        "and": np.bitwise_and,
        "or": np.bitwise_or,
        "xor": np.bitwise_xor,
    }[name].reduce

    def step(w) -> None:
        chosen = a(w)[w.active_lanes()]
        put(w, np.full(32, reduce(chosen, dtype=chosen.dtype)))

    return step


@instruction("elect")
def build_elect(d: Decoder, ins: t.Instruction, m: Modifiers) -> Step:
    """One lane of the mask is chosen: the lowest here, by convention of the hardware."""
    m.one("sync")
    d.count(ins, 2)
    out = ins.operands[0]
    if not isinstance(out, t.Pair):
        raise m.fail("needs d|p")
    put, put_chosen = d.dst(ins, out.first, "b32"), d.dst(ins, out.second, "pred")
    require_members(d, ins, ins.operands[1])

    def step(w) -> None:
        leader = int(w.active_lanes()[0])
        put(w, np.full(32, leader, np.uint32))
        put_chosen(w, np.equal(EVERYONE, leader))

    return step


@instruction("activemask")
def build_activemask(d: Decoder, ins: t.Instruction, m: Modifiers) -> Step:
    m.one("b32")
    d.count(ins, 1)
    put = d.dst(ins, ins.operands[0], "b32")
    return lambda w: put(w, np.full(32, bits_of(active_mask(w)), np.uint32))
