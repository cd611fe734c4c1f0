"""atom and red, lane by lane in lane order. Source: PTX ISA, "atom", "red"."""

from __future__ import annotations

import numpy as np

from tests.ptx_machine import text as t
from tests.ptx_machine.errors import AccessError
from tests.ptx_machine.memory import (
    SharedMemory,
    acquire_clock,
    byte_indices,
    check_opaque,
    release_clock,
    resolve,
)
from tests.ptx_machine.numbers import canonical, flush
from tests.ptx_machine.operands import NUMPY, Decoder, Modifiers, Step, instruction

from .access import SCOPES, elements, space_of, vector_length
from .floating import extremum
from .packed import pack, unpack

OPERATIONS = ("add", "min", "max", "inc", "dec", "and", "or", "xor", "exch", "cas")
PAIRS = ("f16", "f16x2", "bf16", "bf16x2")


def combine(
    name: str, kind: str, old: np.ndarray, value: np.ndarray, other: np.ndarray | None
) -> np.ndarray:
    """Return the new value of one location; arrays have one element of the raw type."""
    if name == "exch":
        return value
    if name == "cas" and other is not None:
        return other if old[0] == value[0] else old
    if kind in PAIRS:
        x, y = unpack_one(old, kind), unpack_one(value, kind)
        out = x + y if name == "add" else extremum(name, x, y, False, False)
        return pack(out, kind).reshape(-1)[:1].astype(old.dtype)
    a, b = old.view(NUMPY[kind]), value.view(NUMPY[kind])
    match name:
        case "add":
            out = a + b
            out = canonical(flush(out)) if kind == "f32" else out
        case "min" | "max":
            out = (np.minimum if name == "min" else np.maximum)(a, b)
        case "inc":
            out = np.where(a >= b, a.dtype.type(0), a + a.dtype.type(1))
        case "dec":
            out = np.where((a == 0) | (a > b), b, a - a.dtype.type(1))
        case "and":
            out = a & b
        case "or":
            out = a | b
        case _:
            out = a ^ b
    return out.view(old.dtype)


def unpack_one(raw: np.ndarray, kind: str) -> np.ndarray:
    return unpack(np.repeat(raw, 32), kind)


def build(d: Decoder, ins: t.Instruction, m: Modifiers, returns: bool) -> Step:
    order = m.one("relaxed", "acquire", "release", "acq_rel", default="relaxed")
    m.one(*SCOPES, default="gpu")
    space = space_of(m)
    if space not in ("global", "generic", "shared::cta", "shared::cluster"):
        raise m.fail(f"has no .{space} form")
    name, noftz, kind, count = m.one(*OPERATIONS), m.flag("noftz"), m.type(), vector_length(m)
    policy = m.flag("L2::cache_hint")
    if noftz != (kind in PAIRS):
        raise m.fail(".noftz goes with half types")
    if kind in ("f32", "f64") and name not in ("add", "exch"):
        raise m.fail(f"has no .{name}.{kind} form")
    width = np.dtype(NUMPY[kind]).itemsize
    raw = f"b{8 * width}" if kind in PAIRS else kind
    at = 1 if returns else 0
    d.count(ins, at + (3 if name == "cas" else 2) + policy)
    puts = (
        [d.dst(ins, part, raw) for part in elements(ins.operands[0], count, m)] if returns else []
    )
    address = d.address(ins, ins.operands[at])
    values = [d.src(ins, part, raw) for part in elements(ins.operands[at + 1], count, m)]
    other = d.src(ins, ins.operands[at + 2], raw) if name == "cas" else None
    unsigned = np.dtype(f"u{width}")

    def step(w) -> None:
        lanes = w.active_lanes()
        old = np.zeros((count, 32), unsigned)
        second = other(w).view(unsigned) if other else None
        for region, offsets, positions in resolve(
            w, space, address(w)[lanes], width * count, width * count
        ):
            if region.kind not in ("global", "shared"):
                raise AccessError(f"atomic on {region.name}")
            if isinstance(region, SharedMemory):
                touched = byte_indices(offsets, width * count)
                check_opaque(region, touched)
                if order in ("acquire", "acq_rel"):
                    acquire_clock(w, region, offsets)
                w.touch_shared(region, touched, write=False, atomic=True)
                w.touch_shared(region, touched, write=True, atomic=True)
                if order in ("release", "acq_rel"):
                    release_clock(w, region, offsets)
            view = region.view(width)
            for offset, lane in zip(
                (offsets // width).tolist(), lanes[positions].tolist(), strict=True
            ):
                for j, value in enumerate(values):
                    cell = view[offset + j : offset + j + 1]
                    old[j][lane] = cell[0]
                    new = value(w).view(unsigned)[lane : lane + 1]
                    cell[:] = combine(
                        name,
                        kind,
                        cell.copy(),
                        new,
                        None if second is None else second[lane : lane + 1],
                    )
        for put, value in zip(puts, old, strict=False):
            put(w, value)
        w.machine.progressed()

    return step


@instruction("atom")
def build_atom(d: Decoder, ins: t.Instruction, m: Modifiers) -> Step:
    """Read, combine, write; the old value is returned."""
    return build(d, ins, m, returns=True)


@instruction("red")
def build_red(d: Decoder, ins: t.Instruction, m: Modifiers) -> Step:
    """An atomic that returns nothing."""
    if m.flag("async"):
        raise m.fail("red.async is not modelled")
    return build(d, ins, m, returns=False)
