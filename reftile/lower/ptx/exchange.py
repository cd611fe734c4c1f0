"""Change the layout of a fragment within warps: registers get other names, lanes exchange them.

Lanes exchange in rounds. In round k lane l receives what its register k xor C(l) is to hold, and
each lane sends one register; C is a linear map of lanes to registers, chosen so that no lane is
asked for two. The lane that a lane reads from is linear in its number, too.
"""

from __future__ import annotations

from functools import lru_cache

import numpy as np

from reftile.ir import ops
from reftile.ir.core import Op, Value
from reftile.layout.linear import Layout
from reftile.lower.fragments import layout_of
from reftile.lower.ptx.lanes import LANES, Table, select_by_lane
from reftile.lower.ptx.table import register_kind
from reftile.lower.ptx.writer import Held, Writer, packing, tile_of


def change_layout(writer: Writer, op: Op) -> None:
    """Print a change of layout whose elements stay in their warps."""
    assert isinstance(op, ops.ChangeLayout)
    texts = tile_of(op.source).layout, tile_of(op.result).layout
    if not all(texts):
        writer.held[op.result] = writer.get(op.source)
        return
    held, target = map(layout_of, texts)
    plan = source_places(held, target)
    if plan is None:
        raise writer.unsupported(op.result, "a change of layout across warps")
    each = packing(op.source)
    if each > 1 and packing(op.result) == each and _moves_whole(plan, each):
        plan = plan[0][::each] // each, plan[1][::each]
        results = _exchange(writer, op, writer.elements(op.source), plan, "b32")
        _hold_units(writer, op.result, results)
        return
    kind = register_kind(tile_of(op.result).element)
    writer.hold(op.result, _exchange(writer, op, writer.single(op.source), plan, kind))


def _hold_units(writer: Writer, value: Value, results: list[str]) -> None:
    if writer.has_storage(value):
        registers = writer.result(value)
        writer.move([("b32", t, s) for t, s in zip(registers, results, strict=True)])
    else:
        writer.held[value] = Held(results, packing(value))


@lru_cache(maxsize=256)
def source_places(held: Layout, target: Layout) -> tuple[Table, Table] | None:
    """For each (register, lane) of the target: the register and lane that hold its element.

    None if the element lies in another warp. A lane's own copy is taken if it has one.
    """
    warps = max(held.extent("warp"), target.extent("warp"))
    plans = [_in_warp(held, target, warp) for warp in range(warps)]
    first = plans[0]
    if first is None:
        return None
    for plan in plans[1:]:
        if plan is None or not np.array_equal(np.stack(plan), np.stack(first)):
            return None
    return first


@lru_cache(maxsize=256)
def is_possible(held: Layout, target: Layout) -> bool:
    """True if every warp makes the change alike, within itself, in rounds."""
    plan = source_places(held, target)
    if plan is None:
        return False
    own = np.broadcast_to(np.arange(LANES), plan[1].shape)
    return np.array_equal(plan[1], own) or rounds(_Plan(plan)) is not None


def _in_warp(held: Layout, target: Layout, warp: int) -> tuple[Table, Table] | None:
    have, want = (_table(layout, warp) for layout in (held, target))
    places: dict[int, list[tuple[int, int]]] = {}
    for (register, lane), element in np.ndenumerate(have):
        places.setdefault(int(element), []).append((register, lane))
    registers, lanes = np.zeros(want.shape, np.int64), np.zeros(want.shape, np.int64)
    for (register, lane), element in np.ndenumerate(want):
        if element < 0:
            lanes[register, lane] = lane
            continue
        found = places.get(int(element))
        if found is None:
            return None
        registers[register, lane], lanes[register, lane] = min(
            found, key=lambda place: (place[1] ^ lane, place[0])
        )
    return registers, lanes


def _table(layout: Layout, warp: int) -> Table:
    count, lanes = layout.extent("register"), layout.extent("lane")
    found = layout(
        register=np.arange(count)[:, None],
        lane=np.arange(LANES)[None, :] % lanes,
        warp=warp % layout.extent("warp"),
    )
    return np.broadcast_to(np.asarray(found, np.int64), (count, LANES))


def _moves_whole(plan: tuple[Table, Table], each: int) -> bool:
    """True if the elements of a register stay together, in their order."""
    registers, lanes = (table.reshape(-1, each, LANES) for table in plan)
    first = registers[:, :1]
    return bool(
        np.all(first % each == 0)
        and np.all(registers == first + np.arange(each)[None, :, None])
        and np.all(lanes == lanes[:, :1])
    )


# Rounds


class _Plan:
    """Tables that can be kept by value."""

    def __init__(self, tables: tuple[Table, Table]) -> None:
        self.tables = tables
        self.key = tables[0].tobytes(), tables[1].tobytes()

    def __eq__(self, other: object) -> bool:
        return isinstance(other, _Plan) and self.key == other.key

    def __hash__(self) -> int:
        return hash(self.key)


@lru_cache(maxsize=256)
def rounds(plan: _Plan) -> Table | None:
    """C, the register that lane l receives in round k, xor k, for each lane; None if none is found.

    A lane is asked for one register in each round.
    """
    count = len(plan.tables[0])
    if count & (count - 1):
        nothing = np.zeros(LANES, np.int64)
        return nothing if _is_consistent(plan, nothing, 5) else None

    def search(chosen: list[int]) -> list[int] | None:
        if not _is_consistent(plan, _linear(chosen), len(chosen)):
            return None
        if len(chosen) == 5:
            return chosen
        for step in range(count):
            found = search([*chosen, step])
            if found is not None:
                return found
        return None

    found = search([])
    return _linear(found) if found is not None else None


def _linear(steps: list[int]) -> Table:
    lanes = np.arange(LANES)
    total = np.zeros(LANES, np.int64)
    for i, step in enumerate(steps):
        total ^= np.where(lanes >> i & 1, step, 0)
    return total


def _is_consistent(plan: _Plan, chosen: Table, bits: int) -> bool:
    """True if among the first lanes no lane is asked for two registers in one round."""
    registers, lanes = plan.tables
    first = np.arange(1 << bits)
    for k in range(len(registers)):
        target = chosen[first] ^ k
        asked: dict[int, int] = {}
        for n, register in zip(first, target, strict=True):
            sender, sent = int(lanes[register, n]), int(registers[register, n])
            if asked.setdefault(sender, sent) != sent:
                return False
    return True


def _exchange(
    writer: Writer, op: ops.ChangeLayout, units: list[str], tables: tuple[Table, Table], kind: str
) -> list[str]:
    registers, lanes = tables
    own = np.arange(LANES)
    if np.array_equal(lanes, np.broadcast_to(own, lanes.shape)):
        return [select_by_lane(writer, kind, units, registers[r]) for r in range(len(registers))]
    chosen = rounds(_Plan(tables))
    if chosen is None:
        raise writer.unsupported(op.result, "this exchange between lanes")
    received: list[str] = []
    for k in range(len(registers)):
        target = chosen ^ k
        sender, sent = lanes[target, own], registers[target, own]
        gives = np.zeros(LANES, np.int64)
        gives[sender] = sent
        value = select_by_lane(writer, kind, units, gives)
        received.append(shuffle(writer, kind, value, sender))
    return [select_by_lane(writer, kind, received, chosen ^ r) for r in range(len(registers))]


def shuffle(writer: Writer, kind: str, value: str, sender: Table, name: str = "received") -> str:
    """What `sender` of each lane sends, of any register type."""
    own = np.arange(LANES)
    distance = sender ^ own
    if (distance == distance[0]).all():
        if not distance[0]:
            return value
        mode, lane = "bfly", str(int(distance[0]))
    else:
        mode, lane = "idx", _number(writer, sender)

    def move(unit: str) -> str:
        found = writer.register("b32", name)
        writer.line(f"shfl.sync.{mode}.b32 {found}, {unit}, {lane}, 31, -1;")
        return found

    if kind in ("b32", "f32"):
        if kind == "b32":
            return move(value)
        bits = writer.register("f32", name)
        writer.line(f"shfl.sync.{mode}.b32 {bits}, {value}, {lane}, 31, -1;")
        return bits
    if kind == "b16":
        wide, narrow = writer.register("b32", "wide"), writer.register("b16", "narrow")
        writer.line(f"cvt.u32.u16 {wide}, {value};")
        writer.line(f"cvt.u16.u32 {narrow}, {move(wide)};")
        return narrow
    if kind == "pred":
        wide, truth = writer.register("b32", "wide"), writer.register("pred", "truth")
        writer.line(f"selp.u32 {wide}, 1, 0, {value};")
        writer.line(f"setp.ne.u32 {truth}, {move(wide)}, 0;")
        return truth
    low, high = writer.register("b32", "low"), writer.register("b32", "high")
    whole = writer.register(kind, "whole")
    writer.line(f"mov.b64 {{{low}, {high}}}, {value};")
    writer.line(f"mov.b64 {whole}, {{{move(low)}, {move(high)}}};")
    return whole


def _number(writer: Writer, values: Table) -> str:
    """A number that depends on the lane by exclusive or of its bits."""
    total = ""
    lane = writer.register("b32", "lane")
    writer.line(f"mov.u32 {lane}, %laneid;")
    base = int(values[0])
    steps = [int(values[1 << i]) ^ base for i in range(5)]
    assert np.array_equal(_linear(steps) ^ base, values), "senders are linear in the lane"
    for i, step in enumerate(steps):
        for j in range(5):
            if step >> j & 1:
                part = writer.register("b32", "part")
                writer.line(f"shr.u32 {part}, {lane}, {i};")
                writer.line(f"and.b32 {part}, {part}, 1;")
                writer.line(f"shl.b32 {part}, {part}, {j};")
                if total:
                    writer.line(f"xor.b32 {part}, {part}, {total};")
                total = part
    found = writer.register("b32", "sender")
    writer.line(f"xor.b32 {found}, {total or '0'}, {base};")
    return found
