"""Values that differ between lanes and warps: chosen by masks."""

from __future__ import annotations

import numpy as np

from reftile.layout.exchange import Table
from reftile.lower.ptx.writer import Writer


def select_by_lane(writer: Writer, kind: str, units: list[str], which: Table) -> str:
    """The unit (a register or immediate) that each lane names."""
    return _select(writer, kind, units, which, "lane")


def select_by_warp(writer: Writer, kind: str, units: list[str], which: Table) -> str:
    """The unit that each warp names, by its number in the block modulo their count."""
    return _select(writer, kind, units, which, "warp")


def _select(writer: Writer, kind: str, units: list[str], which: Table, place: str) -> str:
    different: list[int] = sorted(set(which.tolist()))
    found = units[different[0]]
    for number in different[1:]:
        mask = sum(1 << int(n) for n in np.flatnonzero(which == number))
        condition = _among(writer, _number(writer, place, len(which)), mask)
        chosen = writer.register(kind, "chosen")
        if kind == "pred":
            one, other = (_as_number(writer, unit) for unit in (units[number], found))
            picked = writer.register("b32", "picked")
            writer.line(f"selp.u32 {picked}, {one}, {other}, {condition};")
            writer.line(f"setp.ne.u32 {chosen}, {picked}, 0;")
        else:
            writer.line(f"selp.{kind} {chosen}, {units[number]}, {found}, {condition};")
        found = chosen
    return found


def _as_number(writer: Writer, truth: str) -> str:
    if truth in ("0", "1"):
        return truth
    found = writer.register("b32", "one")
    writer.line(f"selp.u32 {found}, 1, 0, {truth};")
    return found


def _number(writer: Writer, place: str, count: int) -> str:
    """The lane, or the warp modulo a power of two."""
    found = writer.register("b32", place)
    if place == "lane":
        writer.line(f"mov.u32 {found}, %laneid;")
        return found
    writer.line(f"mov.u32 {found}, %tid.x;")
    writer.line(f"shr.u32 {found}, {found}, 5;")
    writer.line(f"and.b32 {found}, {found}, {count - 1};")
    return found


def _among(writer: Writer, number: str, mask: int) -> str:
    """A predicate that is true where bit `number` of a mask is set."""
    bit, condition = writer.register("b32", "bit"), writer.register("pred", "among")
    writer.line(f"shr.u32 {bit}, 0x{mask:X}, {number};")
    writer.line(f"and.b32 {bit}, {bit}, 1;")
    writer.line(f"setp.ne.u32 {condition}, {bit}, 0;")
    return condition
