"""Regions under a mask of lanes: branches, loops, rows, reductions.

Lanes that take a branch run it, then those that take the other; all meet behind it. Lanes that
leave a loop wait for the others at its end.
"""

from __future__ import annotations

from collections.abc import Callable, Generator, Mapping
from dataclasses import dataclass, field
from typing import Any, TypeAlias

import numpy as np

from reftile.interp.coroutines import SPIN, STEP, Control, Ending, Pause, Run, Wait
from reftile.interp.machine import Block
from reftile.interp.plan import PlanRegion, Step, run_pure_region
from reftile.interp.simt.clocks import LANES
from reftile.interp.simt.fragments import (
    element_table,
    is_fragment,
    layout_of,
    tile_type,
)
from reftile.interp.simt.machine import Warp
from reftile.interp.simt.waits import WAITS
from reftile.interp.values import Mask, Tile
from reftile.ir.core import Op
from reftile.ir.types import TileType

CHAINS = 4
"""Chains of a reduction over registers (spec/simt.md)."""
GONE = "gone"
"""How a region ends whose lanes have all left it before."""


@dataclass(slots=True)
class _Frame:
    """A loop: which lanes have gone on to the next iteration, or left, and with which values."""

    continued: list[tuple[Mask, list[Any]]] = field(default_factory=list[Any])
    broken: list[tuple[Mask, list[Any]]] = field(default_factory=list[Any])


def run_region(warp: Warp, region: PlanRegion[Block]) -> Run:
    """Run the steps of a region for the lanes of the mask; gives how it ended."""
    env, preempts = warp.env, warp.simt.preempts
    for step in region.steps:
        control = CONTROLS.get(step.op.name)
        if preempts and step.kind not in ("pure", "now", "control"):
            yield STEP
        if warp.taken:
            _check_taken(warp, step)
        if control is None:
            if step.op.name == "reduce":
                _run_reduce(warp, step)
                continue
            if warp.products is not None and warp.products.lent:
                warp.step = step
                _check_lent(warp, step.outputs)
            warp.perform(step)
            if warp.stamps or warp.taken:
                _written(warp, step.outputs)
            continue
        warp.step = step
        ending = yield from control(warp, step)
        if warp.stamps or warp.taken:
            _written(warp, step.outputs)
        if ending is not None:
            return ending
    return region.ending, [env[i] for i in region.results]


def _written(warp: Warp, slots: tuple[int, ...]) -> None:
    """Note when registers that products use were written: behind which fence."""
    for slot in slots:
        warp.taken.pop(slot, None)
        if slot in warp.stamps:
            warp.stamps[slot] = warp.fences


def _check_taken(warp: Warp, step: Step[Block]) -> None:
    for slot in step.inputs:
        if slot in warp.taken:
            given = warp.taken[slot]
            warp.step = step
            warp.fault(
                "simt.accumulator_in_flight",
                f"`{step.op.name}` uses registers that the product of line {given.span.line} "
                "accumulates in",
                hint="use what `wait_products` gives",
            )


def _changed(warp: Warp, slots: tuple[int, ...], values: list[Any]) -> tuple[int, ...]:
    """The slots that get values other than they have."""
    return tuple(s for s, v in zip(slots, values, strict=True) if v is not warp.env[s])


def _check_lent(warp: Warp, slots: tuple[int, ...], op: Op | None = None) -> None:
    """Registers that a product may still read must not be written."""
    assert warp.products is not None
    for slot in slots:
        given = warp.products.lent.get(slot)
        if given is not None:
            warp.fault(
                "simt.operand_in_flight",
                f"the product of line {given.span.line} may still read the registers that get "
                "their next value here",
                hint="wait for the product before the next value is computed",
                op=op,
            )


def set_values(warp: Warp, slots: tuple[int, ...], values: list[Any]) -> None:
    """Give values to slots."""
    if warp.products is not None and warp.products.lent:
        _check_lent(warp, _changed(warp, slots, values))
    for slot, value in zip(slots, values, strict=True):
        warp.env[slot] = value
    if warp.stamps or warp.taken:
        _written(warp, slots)


def merged(taken: Mask, new: Any, old: Any) -> Any:
    """A value that is `new` in some lanes and `old` in the others."""
    if new is old or not isinstance(new, Tile) or not isinstance(old, Tile):
        return new
    data = np.where(taken, new.data, old.data)
    if new.poison is None and old.poison is None:
        return Tile(data)
    none = np.zeros((), np.bool_)
    bad = [none if t.poison is None else t.poison for t in (new, old)]
    poison = np.where(taken, *bad)
    return Tile(data, poison if poison.any() else None)


def _gather(exits: list[tuple[Mask, list[Any]]], old: list[Any] | None) -> list[Any]:
    """The values with which lanes came, those of the others as they were."""
    (mask, values), *rest = exits
    found = (
        values
        if old is None or mask.all()
        else [merged(mask, n, o) for n, o in zip(values, old, strict=True)]
    )
    for mask, values in rest:
        found = [merged(mask, n, o) for n, o in zip(values, found, strict=True)]
    return found


# Branches


def _run_if(warp: Warp, step: Step[Block]) -> Control:
    condition: Tile = warp.env[step.inputs[0]]
    warp.demand(condition, "branch", "the condition of `if`", step.op)
    taken = np.broadcast_to(condition.data, (LANES,)).astype(np.bool_)
    outer = warp.mask
    there, rest = outer & taken, outer & ~taken
    exits: list[tuple[Mask, list[Any]]] = []
    for mask, index in ((there, 0), (rest, 1)):
        if not mask.any():
            continue
        if index >= len(step.regions):
            exits.append((mask, []))
            continue
        warp.mask = mask if mask is not outer and not np.array_equal(mask, outer) else outer
        ending, values = yield from run_region(warp, step.regions[index])
        if ending == "yield":
            exits.append((warp.mask, values))
        elif ending in ("continue", "break"):
            frame: _Frame = warp.frames[-1]
            (frame.continued if ending == "continue" else frame.broken).append((warp.mask, values))
        elif ending == "return":
            if not np.array_equal(warp.mask, outer):
                warp.fault("simt.return", "some lanes of a warp return alone", op=step.op)
            return ending, values
    if not exits:
        return GONE, []
    left = exits[0][0].copy()
    for mask, _ in exits[1:]:
        left |= mask
    warp.mask = left
    if step.outputs:
        set_values(warp, step.outputs, _gather(exits, None))
    return None


# Loops


def _run_for(warp: Warp, step: Step[Block]) -> Control:
    env, op, region = warp.env, step.op, step.regions[0]
    type = op.operands[0].type
    assert isinstance(type, TileType)
    bits, carrier = type.dtype.bits, type.dtype.carrier
    unsigned = bool(op.attributes.get("unsigned_cmp"))
    bounds: list[Any] = []
    for slot, name in zip(step.inputs[:3], ("lower", "upper", "step"), strict=True):
        warp.demand(env[slot], "bound", f"`{name}` of `for`", op)
        bound = env[slot].data.astype(np.int64)
        bounds.append(bound % (1 << bits) if unsigned else bound)
    value, upper, stride = bounds
    if np.any(np.broadcast_to(stride, (LANES,))[warp.mask] <= 0):
        warp.fault("for.step", "`step` must be positive", op=op)
    limit = 1 << (bits if unsigned else bits - 1)
    counter, *slots = region.arguments
    carried = [env[s] for s in step.inputs[3:]]
    outer = warp.mask
    while True:
        active = outer & np.broadcast_to(value < upper, (LANES,))
        active &= np.broadcast_to(value < limit, (LANES,))
        if not active.any():
            break
        warp.mask = outer if np.array_equal(active, outer) else active
        wrapped = value - limit * (value >= limit >> unsigned)
        env[counter] = Tile(np.asarray(wrapped, np.int64).astype(carrier))
        set_values(warp, tuple(slots), carried)
        carried, _ = yield from _iterate(warp, region, carried)
        if step.spins:
            yield SPIN
        value = value + stride
    warp.mask = outer
    set_values(warp, step.outputs, carried)
    return None


Exits: TypeAlias = "list[tuple[Mask, list[Any]]]"
Iteration: TypeAlias = "Generator[Wait | Pause, None, tuple[list[Any], Exits]]"


def _iterate(warp: Warp, region: PlanRegion[Block], carried: list[Any]) -> Iteration:
    """One iteration: the carried values behind it, and the lanes that left with their values."""
    frame = _Frame()
    warp.frames.append(frame)
    ending, values = yield from run_region(warp, region)
    warp.frames.pop()
    if ending == "continue":
        frame.continued.append((warp.mask, values))
    elif ending == "break":
        frame.broken.append((warp.mask, values))
    if frame.continued:
        if warp.products is not None and warp.products.lent:
            _check_replaced(warp, region, frame.continued)
        carried = _gather(frame.continued, carried)
    return carried, frame.broken


def _check_replaced(warp: Warp, region: PlanRegion[Block], exits: Exits) -> None:
    """Carried values keep their registers: they get the next values when no product reads them."""
    values = exits[0][1]
    slots = region.arguments[-len(values) :] if values else ()
    _check_lent(warp, _changed(warp, slots, values), region.end_op)


def _run_loop(warp: Warp, step: Step[Block]) -> Control:
    env, region = warp.env, step.regions[0]
    carried = [env[s] for s in step.inputs]
    outer = warp.mask
    left: list[tuple[Mask, list[Any]]] = []
    active = outer
    while True:
        warp.mask = active
        set_values(warp, region.arguments, carried)
        carried, broken = yield from _iterate(warp, region, carried)
        left += broken
        for mask, _ in broken:
            active = active & ~mask
        if not active.any():
            break
        yield SPIN
    warp.mask = outer
    set_values(warp, step.outputs, _gather(left, None))
    return None


# Rows


def _run_if_rows(warp: Warp, step: Step[Block]) -> Control:
    """A branch of the warp if all its rows agree, else a choice by group of rows."""
    env, op = warp.env, step.op
    condition: Tile = env[step.inputs[0]]
    warp.demand(condition, "branch", "the condition of `if_rows`", op)
    groups = tile_type(op.operands[0].type)
    held = np.ones(condition.data.shape, np.bool_)
    if groups.size > 1:
        held = element_table(groups.layout, warp.index) >= 0
    wanted = np.broadcast_to(condition.data, held.shape)[held].astype(np.bool_)
    otherwise = [env[s] for s in step.inputs[1:]]
    if not wanted.any():
        set_values(warp, step.outputs, otherwise)
        return None
    _, values = yield from run_region(warp, step.regions[0])
    if not wanted.all():
        values = [
            _by_group(warp, condition, groups, tile_type(r.type), new, old)
            for r, new, old in zip(op.results, values, otherwise, strict=True)
        ]
    set_values(warp, step.outputs, values)
    return None


def _by_group(
    warp: Warp, condition: Tile, groups: TileType, kind: TileType, new: Tile, old: Tile
) -> Tile:
    table = element_table(kind.layout, warp.index)
    rows = np.where(table < 0, 0, table) // (kind.size // kind.shape[0])
    group = rows * groups.shape[0] // kind.shape[0]
    where = element_table(groups.layout, warp.index)
    taken = np.zeros(table.shape, np.bool_)
    for register in range(where.shape[0]):
        mine = group == where[register]
        taken |= mine & np.broadcast_to(condition.data, where.shape)[register]
    return merged(taken, new, old)


# Reductions


def _run_reduce(warp: Warp, step: Step[Block]) -> None:
    """Combine over registers in chains, then over lanes, one bit of the lane after another."""
    op = step.op
    sources = [warp.env[s] for s in step.inputs[: len(op.operands)]]
    source = tile_type(op.operands[0].type)
    axis = op.attributes["axis"]
    assert isinstance(axis, int)
    result = tile_type(op.results[0].type)
    warp.step = step
    if not is_fragment(source):
        set_values(warp, step.outputs, sources)
        return
    order = _groups(source.layout, result.layout if result.size > 1 else "", axis)
    if order is None:
        warp.fault("simt.moves", "the result of this reduction lies in other registers", op=op)
    width = len(order[0])
    parts = [
        [_row(s, np.array([group[i] for group in order])) for s in sources] for i in range(width)
    ]
    region = step.regions[0]

    def combine(element: list[Tile], acc: list[Tile]) -> list[Tile]:
        env = list(warp.env)
        pairs = [t for pair in zip(element, acc, strict=True) for t in pair]
        return list(run_pure_region(warp, region, env, pairs))

    chains = parts[:CHAINS]
    for i, element in enumerate(parts[CHAINS:]):
        chains[i % CHAINS] = combine(element, chains[i % CHAINS])
    while len(chains) > 1:
        rest = chains[-1:] if len(chains) % 2 else []
        pairs = zip(chains[1::2], chains[::2], strict=False)
        chains = [combine(second, first) for second, first in pairs] + rest
    found = chains[0]
    masks = _lane_masks(source.layout, axis)
    if masks is None:
        warp.fault("simt.moves", "this reduction crosses warps", op=op)
    if masks:
        warp.together("reduce")
    for mask in masks:
        other = [_exchanged(t, mask) for t in found]
        found = combine(other, found)
    if result.size == 1:
        found = [Tile(t.data[0], None if t.poison is None else t.poison[0]) for t in found]
    set_values(warp, step.outputs, found)


def _row(tile: Tile, registers: Any) -> Tile:
    data = np.broadcast_to(tile.data, (tile.data.shape[0], LANES))[registers]
    if tile.poison is None:
        return Tile(data)
    poison = np.broadcast_to(tile.poison, (tile.data.shape[0], LANES))[registers]
    return Tile(data, poison if poison.any() else None)


def _exchanged(tile: Tile, mask: int) -> Tile:
    lanes = np.arange(LANES) ^ mask
    poison = None if tile.poison is None else tile.poison[..., lanes]
    return Tile(tile.data[..., lanes], poison)


_ORDERS: dict[tuple[str, str, int], list[list[int]] | None] = {}


def _groups(source: str, result: str, axis: int) -> list[list[int]] | None:
    """For each register of the result the registers that combine into it, in order."""
    key = source, result, axis
    if key in _ORDERS:
        return _ORDERS[key]
    held = layout_of(source)
    registers = np.arange(held.extent("register"))
    axes = [np.broadcast_to(a, registers.shape) for a in held.index(register=registers)]
    groups: dict[tuple[int, ...], list[int]] = {}
    for r in registers:
        index = tuple(int(a[r]) for k, a in enumerate(axes) if k != axis)
        groups.setdefault(index, []).append(int(r))
    order: list[list[int]] | None = list(groups.values())
    if result:
        target = layout_of(result)
        numbers = np.arange(target.extent("register"))
        kept = [np.broadcast_to(a, numbers.shape) for a in target.index(register=numbers)]
        wanted = [tuple(int(a[r]) for a in kept) for r in numbers]
        order = [groups[w] for w in wanted] if all(w in groups for w in wanted) else None
    _ORDERS[key] = order
    return order


def _lane_masks(source: str, axis: int) -> list[int] | None:
    layout = layout_of(source)
    if any(d.step[axis] for d in layout.digits("warp")):
        return None
    masks: list[int] = []
    weight = 1
    for digit in layout.digits("lane"):
        if digit.step[axis]:
            masks.append(weight)
        weight *= digit.extent
    return masks


CONTROLS: Mapping[str, Callable[[Warp, Step[Block]], Control]] = {
    "if": _run_if,
    "for": _run_for,
    "loop": _run_loop,
    "if_rows": _run_if_rows,
    **WAITS,
}
"""Operations that may block, or surround a region."""

__all__ = ["CONTROLS", "Ending", "run_region"]
