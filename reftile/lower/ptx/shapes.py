"""Operations that rename registers, make known elements, or combine them along an axis."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import lru_cache
from typing import TypeAlias

import numpy as np

from reftile.ir import ops
from reftile.ir.attributes import Dense
from reftile.ir.core import Op, Value
from reftile.layout.exchange import LANES
from reftile.layout.linear import Layout
from reftile.lower.constants import constant_int
from reftile.lower.fragments import elements_at_origin, layout_of, register_of
from reftile.lower.ptx.exchange import shuffle
from reftile.lower.ptx.lanes import select_by_lane, select_by_warp
from reftile.lower.ptx.table import register_kind
from reftile.lower.ptx.writer import Held, Shifted, Writer, immediates, kind_of, packing, tile_of

Print = Callable[[Writer, Op], None]
CHAINS = 4
"""Accumulators of a reduction over registers, so that instructions do not wait for each other."""


def layout_for(value: Value) -> Layout | None:
    """The layout of a value; None if every thread has all of it."""
    text = tile_of(value).layout
    return layout_of(text) if text else None


# Known elements


def _constant(writer: Writer, op: Op) -> None:
    assert isinstance(op, ops.Constant)
    dense = op.value
    assert isinstance(dense, Dense)
    layout = layout_for(op.result)
    if layout is None or dense.splat:
        count = 1 if layout is None else layout.extent("register")
        indices = [0] * count
    elif layout.extent("lane") * layout.extent("warp") > 1:
        _constant_by_thread(writer, op, dense, layout)
        return
    else:
        indices = [max(0, int(i)) for i in layout.indices().ravel()]
    each = packing(op.result)
    writer.held[op.result] = Held(immediates(dense, indices, each), each)


LARGEST_BY_THREAD = 1024
"""Elements at most of a constant that differs between threads: it is chosen by comparisons."""


def _constant_by_thread(writer: Writer, op: ops.Constant, dense: Dense, layout: Layout) -> None:
    """Choose each register by lane, then by warp."""
    each, warps = packing(op.result), layout.extent("warp")
    if tile_of(op.result).size > LARGEST_BY_THREAD or warps & (warps - 1):
        raise writer.unsupported(op.result, "a large constant that differs between threads")
    kind = kind_of(op.result)
    registers = np.arange(layout.extent("register"))
    lanes = np.arange(LANES) % layout.extent("lane")
    flat = np.asarray(
        layout(register=registers[:, None, None], lane=lanes[None, :, None], warp=np.arange(warps))
    )
    flat = np.maximum(np.broadcast_to(flat, (len(registers), LANES, warps)), 0)
    found: list[str] = []
    for first in range(0, len(registers), each):
        units: dict[str, int] = {}
        which = np.zeros((LANES, warps), np.int64)
        for at in np.ndindex(LANES, warps):
            elements = [int(flat[(first + i, *at)]) for i in range(each)]
            (text,) = immediates(dense, elements, each)
            which[at] = units.setdefault(text, len(units))
        names = list(units)
        by_warp = [select_by_lane(writer, kind, names, which[:, w]) for w in range(warps)]
        same = {name: i for i, name in enumerate(dict.fromkeys(by_warp))}
        chosen = np.array([same[name] for name in by_warp], np.int64)
        found.append(select_by_warp(writer, kind, list(same), chosen))
    writer.held[op.result] = Held(found, each)


def _iota(writer: Writer, op: Op) -> None:
    """Each thread's first element from its lane and warp; the others are constants away."""
    assert isinstance(op, ops.Iota)
    layout = layout_for(op.result)
    if layout is None or tile_of(op.result).dtype.name != "i32":
        raise writer.unsupported(op.result, "this `iota`")
    if any(not d.is_bit for p in ("lane", "warp") for d in layout.digits(p)):
        raise writer.unsupported(op.result, "an `iota` over lanes that are no power of two")
    base = _thread_part(writer, layout)
    amounts = [index[0] for index in elements_at_origin(layout)]
    writer.held[op.result] = Held([Shifted(base, a) if base else str(a) for a in amounts])


def _thread_part(writer: Writer, layout: Layout) -> str:
    """Add up what lane and warp contribute along a layout's one axis; digits do not overlap."""
    total = ""
    for place in ("lane", "warp"):
        digits = layout.digits(place)
        if not any(any(d.step) for d in digits):
            continue
        number = writer.register("b32", place)
        if place == "lane":
            writer.line(f"mov.u32 {number}, %laneid;")
        else:
            writer.line(f"mov.u32 {number}, %tid.x;")
            writer.line(f"shr.u32 {number}, {number}, 5;")
        weight = 1
        for digit in digits:
            part = writer.register("b32", "digit")
            shift = weight.bit_length() - 1
            writer.line(f"shr.u32 {part}, {number}, {shift};")
            writer.line(f"and.b32 {part}, {part}, {digit.extent - 1};")
            writer.line(f"mul.lo.u32 {part}, {part}, {digit.step[0]};")
            weight *= digit.extent
            if digit.step[0] and total:
                writer.line(f"add.u32 {part}, {part}, {total};")
            total = part if digit.step[0] else total
    return total


# Renaming


def _reshape(writer: Writer, op: Op) -> None:
    """The registers stay; a scalar may become a tile of one element."""
    writer.held[op.results[0]] = writer.get(op.operands[0])


def _broadcast(writer: Writer, op: Op) -> None:
    assert isinstance(op, ops.Broadcast)
    target = layout_for(op.result)
    if target is None:
        writer.held[op.result] = writer.get(op.source)
        return
    found = _repeated(layout_for(op.source), tile_of(op.source).shape, target)
    _rename(writer, op.source, op.result, found)


@lru_cache(maxsize=256)
def _repeated(held: Layout | None, shape: tuple[int, ...], target: Layout) -> Sequence[int]:
    """The element of a tile of `shape` that each register of its broadcast repeats."""
    places = register_of(held) if held is not None else {}
    found: list[int] = []
    for index in elements_at_origin(target):
        inside = tuple(0 if extent == 1 else i for i, extent in zip(index, shape, strict=True))
        found.append(places[inside] if held is not None else 0)
    return tuple(found)


def _extract(writer: Writer, op: Op) -> None:
    assert isinstance(op, ops.Extract)
    held, target = layout_for(op.source), layout_for(op.result)
    if held is None or target is None:
        raise writer.unsupported(op.result, "taking one element out of a tile")
    shape = tile_of(op.result).shape
    starts = [(constant_int(i) or 0) * e for i, e in zip(op.indices, shape, strict=True)]
    places = register_of(held)
    registers = [
        places[tuple(i + s for i, s in zip(index, starts, strict=True))]
        for index in elements_at_origin(target)
    ]
    _rename(writer, op.source, op.result, registers)


def _permute(writer: Writer, op: Op) -> None:
    assert isinstance(op, ops.Permute)
    source = writer.get(op.source)
    held, target = layout_for(op.source), layout_for(op.result)
    if held is None or target is None:
        writer.held[op.result] = source
        return
    places = register_of(held)
    registers: list[int] = []
    for index in elements_at_origin(target):
        inside = [0] * len(index)
        for axis, at in zip(op.permutation, index, strict=True):
            inside[axis] = at
        registers.append(places[tuple(inside)])
    _rename(writer, op.source, op.result, registers)


def _rename(writer: Writer, source: Value, result: Value, elements: Sequence[int]) -> None:
    """Let a value be elements of another: its registers where these stay whole."""
    each, held = packing(result), writer.get(source)
    if each == held.each == 1:
        writer.held[result] = Held([held.elements[e] for e in elements])
        return
    if each == held.each:
        units = [elements[i : i + each] for i in range(0, len(elements), each)]
        if all(u[0] % each == 0 and list(u) == list(range(u[0], u[0] + each)) for u in units):
            writer.held[result] = Held([held.elements[u[0] // each] for u in units], each)
            return
    singles = writer.single(source)
    writer.held[result] = Held(writer.join([singles[e] for e in elements], each), each)


# Reductions


def emit_reduce(writer: Writer, op: ops.Reduce, emit: Print) -> None:
    """Combine over registers in chains, then over lanes; several tiles go along together."""
    source, result = op.sources[0], op.results[0]
    held = layout_for(source)
    if held is None:
        raise writer.unsupported(source, "a reduction of a tile that no thread shares")
    combine = _Combine(writer, op, emit)
    target = layout_for(result)
    groups: dict[tuple[int, ...], list[Elements]] = {}
    elements = zip(*(writer.single(v) for v in op.sources), strict=True)
    for index, element in zip(elements_at_origin(held), elements, strict=True):
        kept = index[: op.axis] + index[op.axis + 1 :]
        groups.setdefault(kept, []).append(element)
    order = elements_at_origin(target) if target is not None else tuple(groups)
    partial = [combine.chain(groups[index]) for index in order]
    masks = _lane_masks(writer, source, held, op.axis)
    if masks and combine.is_or_of_truth and combine.is_whole_warp(held, op.axis):
        partial = [(combine.vote(p[0]),) for p in partial]
    else:
        for mask in masks:
            partial = [combine.across(p, mask) for p in partial]
    for i, value in enumerate(op.results):
        writer.hold(value, [p[i] for p in partial])


Elements: TypeAlias = tuple[str, ...]
"""One element of each of the tiles that a reduction combines."""


def _lane_masks(writer: Writer, source: Value, layout: Layout, axis: int) -> list[int]:
    """The bits of the lane that tell elements along the axis apart, lowest first."""
    if any(d.step[axis] for d in layout.digits("warp")):
        raise writer.unsupported(source, "a reduction across warps")
    masks: list[int] = []
    weight = 1
    for digit in layout.digits("lane"):
        if digit.step[axis]:
            if not digit.is_bit:
                raise writer.unsupported(source, "a reduction over lanes that are no power of two")
            masks.append(weight)
        weight *= digit.extent
    return masks


class _Combine:
    """The region of a reduction, applied to pairs of registers."""

    def __init__(self, writer: Writer, op: ops.Reduce, emit: Print) -> None:
        self.writer, self.op, self.emit = writer, op, emit
        self.block = op.combine.block
        self.body = self.block.ops[:-1]
        self.made = [r for inner in self.body for r in inner.results]
        self.kinds = [register_kind(tile_of(v).element) for v in op.sources]
        self.is_or_of_truth = self.kinds == ["pred"] and [o.name for o in self.block.ops] == [
            "ori",
            "yield",
        ]

    def apply(self, element: Elements, acc: Elements) -> Elements:
        """Combine registers into new ones."""
        held = self.writer.held
        pairs = [part for pair in zip(element, acc, strict=True) for part in pair]
        for argument, part in zip(self.block.arguments, pairs, strict=True):
            held[argument] = Held([part])
        for result in self.made:
            held.pop(result, None)
        for op in self.body:
            self.emit(self.writer, op)
        return tuple([self.writer.one(v) for v in self.block.ops[-1].operands])

    def chain(self, elements: list[Elements]) -> Elements:
        """Combine registers in `CHAINS` chains, and those in a tree."""
        chains = elements[:CHAINS]
        for i, element in enumerate(elements[CHAINS:]):
            chains[i % CHAINS] = self.apply(element, chains[i % CHAINS])
        while len(chains) > 1:
            pairs = zip(chains[1::2], chains[::2], strict=False)
            rest = chains[-1:] if len(chains) % 2 else []
            chains = [self.apply(second, first) for second, first in pairs] + rest
        return chains[0]

    def across(self, element: Elements, mask: int) -> Elements:
        """Combine with the lane whose number differs in one bit."""
        sender = np.arange(LANES) ^ mask
        other = tuple(
            shuffle(self.writer, kind, part, sender, "other")
            for kind, part in zip(self.kinds, element, strict=True)
        )
        return self.apply(other, element)

    def is_whole_warp(self, layout: Layout, axis: int) -> bool:
        """True if all lanes are along the axis, or copies."""
        others = (s for d in layout.digits("lane") for k, s in enumerate(d.step) if k != axis)
        return not any(others)

    def vote(self, element: str) -> str:
        """True if it is true in any lane."""
        found = self.writer.register("pred", "any")
        self.writer.line(f"vote.sync.any.pred {found}, {element}, -1;")
        return found


SHAPES: dict[str, Callable[[Writer, Op], None]] = {
    "constant": _constant,
    "iota": _iota,
    "reshape": _reshape,
    "broadcast": _broadcast,
    "extract": _extract,
    "permute": _permute,
}
