"""Change the layout of a fragment within warps: registers get other names, lanes exchange them.

How lanes exchange elements is planned in reftile.layout.exchange.
"""

from __future__ import annotations

import numpy as np

from reftile.ir import ops
from reftile.ir.core import Op, Value
from reftile.layout.exchange import LANES, Table, by_bits, rounds, source_places
from reftile.lower.fragments import layout_of
from reftile.lower.ptx.lanes import select_by_lane
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


def _moves_whole(plan: tuple[Table, Table], each: int) -> bool:
    """True if the elements of a register stay together, in their order."""
    registers, lanes = (table.reshape(-1, each, LANES) for table in plan)
    first = registers[:, :1]
    return bool(
        np.all(first % each == 0)
        and np.all(registers == first + np.arange(each)[None, :, None])
        and np.all(lanes == lanes[:, :1])
    )


def _exchange(
    writer: Writer, op: ops.ChangeLayout, units: list[str], tables: tuple[Table, Table], kind: str
) -> list[str]:
    registers, lanes = tables
    own = np.arange(LANES)
    if np.array_equal(lanes, np.broadcast_to(own, lanes.shape)):
        return [select_by_lane(writer, kind, units, registers[r]) for r in range(len(registers))]
    chosen = rounds(tables)
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
    assert np.array_equal(by_bits(steps) ^ base, values), "senders are linear in the lane"
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
