"""The batched path: all blocks at once, along a leading axis, without checks.

One NumPy call does an operation for all blocks of a *batch*, so the cost of interpreting it is
shared. All blocks take each step together, which is a legal execution of a kernel without races.
Where they part (an `if`, a loop that ends earlier for some), the batch is split, each part goes its
way, and the parts are joined where their ways meet.

A kernel in which blocks wait for each other, or print, cannot be run like this and is refused.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, cast

import numpy as np
from numpy.typing import NDArray

from reftile.interp.batch import (
    Batch,
    Index3,
    Part,
    Rows,
    Shared,
    as_rows,
    divide,
    join_parts,
    select,
    select_value,
)
from reftile.interp.batched_memory import BATCHED_MAKERS
from reftile.interp.memory import Buffer, Memory
from reftile.interp.plan import Plan, PlanRegion, Step, make_plan, scalar_tile
from reftile.interp.values import Tile
from reftile.ir.core import Kernel, Op
from reftile.ir.diagnostics import Diagnosis, ReftileError
from reftile.ir.types import TileType

MOST_ELEMENTS = 1 << 19
"""Elements that one tile of a batch may have in all; it sets how many blocks a batch has."""


def run_batched(
    kernel: Kernel,
    grid: Index3,
    arguments: list[Any],
    memory: Memory,
    globals: dict[str, Buffer],
    progress: Callable[[int, int], None] | None,
) -> int:
    """Run all blocks; gives their number.

    Raises:
        ReftileError: rule `batched.unsupported`, with the operation that stands in the way.
        KeyboardInterrupt: on Ctrl-C; its text says where it stopped.
    """
    # A plan belongs to one launch at a time: a second one beside this makes its own.
    plan = cast("Plan[Batch] | None", kernel.plans.pop("batched", None))
    if plan is None:
        refuse_waiting(kernel)
        plan = make_plan(kernel, BATCHED_MAKERS)
    try:
        return _run_planned(plan, grid, arguments, memory, globals, progress)
    finally:
        plan.forget()
        kernel.plans["batched"] = plan


def _run_planned(
    plan: Plan[Batch],
    grid: Index3,
    arguments: list[Any],
    memory: Memory,
    globals: dict[str, Buffer],
    progress: Callable[[int, int], None] | None,
) -> int:
    for slot, value in zip(plan.body.arguments, arguments, strict=True):
        plan.template[slot] = value
    shared = Shared(grid, memory, globals, [-1] * len(plan.template))
    largest = 1
    for value, slot in plan.slots.items():
        if isinstance(value.type, TileType):
            shared.ranks[slot] = value.type.rank
            largest = max(largest, value.type.size)
    total = grid[0] * grid[1] * grid[2]
    size = max(1, MOST_ELEMENTS // largest)
    if progress is not None:
        shared.tick = lambda: progress(shared.done, total)
    for blocks, lead in divide(grid, size):
        try:
            _run_region(Batch(blocks, lead, list(plan.template), shared), plan.body)
        except KeyboardInterrupt:
            raise KeyboardInterrupt(_where(shared, blocks, total)) from None
        shared.done += blocks.size
        if progress is not None:
            progress(shared.done, total)
    return total


def _where(shared: Shared, blocks: Rows, total: int) -> str:
    """Where a launch stopped, for people."""
    at = "" if shared.at is None else f" at {shared.at.span} (`{shared.at.name}`)"
    return (
        f"stopped in blocks {blocks[0]} to {blocks[-1]}, which run together{at}; "
        f"{shared.done} of {total} blocks were done"
    )


def refuse_waiting(kernel: Kernel) -> None:
    """Raise if the kernel has what cannot be batched."""
    for op in kernel.walk():
        if op.name == "print_tko":
            raise _refusal(op, "`print_tko` would print the blocks out of order")
        if op.name != "loop":
            continue
        for inner in op.walk():
            ordering = inner.attributes.get("ordering", "weak")
            if inner.definition.effects in ("atomic", "read") and ordering != "weak":
                raise _refusal(inner, f"this `{inner.name}` may wait for another block")


def _refusal(op: Op, why: str) -> ReftileError:
    return ReftileError(
        Diagnosis(
            "batched.unsupported",
            f"the blocks of this kernel cannot run all at once: {why}",
            op.span,
            "run it with check=True",
        )
    )


# Control


def _run_region(batch: Batch, region: PlanRegion[Batch]) -> list[Part]:
    """Run a region; gives the parts in which its blocks left it."""
    left: list[Part] = []
    rows = batch.everyone
    for step in region.steps:
        env = batch.env
        batch.shared.at = step.op
        if step.kind != "control":
            results = step.apply(batch, [env[i] for i in step.inputs])
            for slot, result in zip(step.outputs, results, strict=True):
                env[slot] = result
            continue
        stay, gone = _CONTROL[step.op.name](batch, step)
        if len(stay) == 1 and not gone:  # all blocks stay together
            for slot, value in zip(step.outputs, stay[0].values, strict=True):
                env[slot] = value
            continue
        left.extend(Part(p.ending, rows[p.rows], p.values) for p in gone)
        if not stay:
            return left
        kept = np.sort(np.concatenate([p.rows for p in stay]))
        if kept.size < batch.blocks.size:
            batch, rows = select(batch, kept), rows[kept]
        for i, slot in enumerate(step.outputs):
            batch.env[slot] = join_parts(stay, i, batch.shared.ranks[slot], batch.lead)
    left.append(Part(region.ending, rows, [batch.env[i] for i in region.results]))
    return left


Ways = tuple[list[Part], list[Part]]
"""Parts that go on behind an operation, and parts that left the region around it."""


def _run_if(batch: Batch, step: Step[Batch]) -> Ways:
    condition = batch.env[step.inputs[0]].data
    everyone = batch.everyone
    if condition.ndim == 0 or condition.all() or not condition.any():
        groups = [(bool(condition.reshape(-1)[0]), everyone, batch)]
    else:
        condition = as_rows(condition, 0, batch.lead)
        yes, no = np.flatnonzero(condition), np.flatnonzero(~condition)
        groups = [(True, yes, select(batch, yes)), (False, no, select(batch, no))]
    stay: list[Part] = []
    gone: list[Part] = []
    for taken, rows, inner in groups:
        index = 0 if taken else 1
        if index >= len(step.regions):
            stay.append(Part("yield", rows, []))
            continue
        for part in _run_region(inner, step.regions[index]):
            found = Part(part.ending, rows[part.rows], part.values)
            (stay if part.ending == "yield" else gone).append(found)
    return stay, gone


def _run_for(batch: Batch, step: Step[Batch]) -> Ways:
    op, region = step.op, step.regions[0]
    type = op.operands[0].type
    assert isinstance(type, TileType)
    bounds = [np.asarray(batch.env[s].data) for s in step.inputs[:3]]
    bounds = [as_rows(b, 0, batch.lead) if b.ndim else b for b in bounds]
    trips = _trips(op, bounds, type.dtype.bits, bool(op.attributes.get("unsigned_cmp")))
    if all(b.ndim == 0 for b in bounds):
        first, by = int(bounds[0]), int(bounds[2])
        return _run_together(batch, step, range(first, first + by * int(trips), by))
    lower, stride = (b.astype(np.int64) for b in (bounds[0], bounds[2]))
    carried = [batch.env[s] for s in step.inputs[3:]]
    rows = batch.everyone
    stay: list[Part] = []
    gone: list[Part] = []
    inner, done = batch, 0
    while rows.size:
        ended = trips == done
        if ended.all():
            stay.append(Part("continue", rows, carried))
            break
        if ended.any():
            ranks = [batch.shared.ranks[s] for s in step.outputs]
            over, on = np.flatnonzero(ended), np.flatnonzero(~ended)
            kept = [
                select_value(c, r, over, inner.lead) for c, r in zip(carried, ranks, strict=True)
            ]
            stay.append(Part("continue", rows[over], kept))
            carried = [
                select_value(c, r, on, inner.lead) for c, r in zip(carried, ranks, strict=True)
            ]
            rows = rows[on]
            lower, stride, trips = (a[on] if a.ndim else a for a in (lower, stride, trips))
            inner = select(inner, on)
        counter = np.asarray(lower + done * stride).astype(type.dtype.carrier)
        inner.env[region.arguments[0]] = Tile(
            counter.reshape(inner.lead) if counter.ndim else counter
        )
        count = rows.size
        inner, rows, carried, kept_rows = _iterate(inner, region, carried, rows, gone)
        if rows.size != count:
            lower, stride, trips = (a[kept_rows] if a.ndim else a for a in (lower, stride, trips))
        done += 1
    return stay, gone


def _run_together(batch: Batch, step: Step[Batch], counters: range) -> Ways:
    """A `for` with the same bounds in all blocks."""
    region, type = step.regions[0], step.op.operands[0].type
    assert isinstance(type, TileType)
    limit = 1 << (type.dtype.bits - 1)
    carried = [batch.env[s] for s in step.inputs[3:]]
    inner, rows = batch, batch.everyone
    gone: list[Part] = []
    for value in counters:
        # An unsigned counter may pass the greatest that its carrier holds.
        carrier = value if value < limit else value - 2 * limit
        inner.env[region.arguments[0]] = scalar_tile(carrier, type.dtype.carrier)
        inner, rows, carried, _ = _iterate(inner, region, carried, rows, gone)
        if not rows.size:
            return [], gone
    return [Part("continue", rows, carried)], gone


def _trips(op: Op, bounds: list[NDArray[Any]], bits: int, unsigned: bool) -> NDArray[np.uint64]:
    """How often a `for` runs: one number if all blocks have the same bounds, else one for each."""
    lower, upper, stride = (b.astype(np.int64).view(np.uint64) for b in bounds)
    if unsigned:
        mask = np.uint64((1 << bits) - 1)
        lower, upper, stride = lower & mask, upper & mask, stride & mask
        wrong, goes = stride == 0, lower < upper
    else:
        wrong, goes = stride.view(np.int64) <= 0, lower.view(np.int64) < upper.view(np.int64)
    if wrong.any():  # it would never end
        found = np.broadcast_to(bounds[2], wrong.shape)[wrong].reshape(-1)[0]
        message = f"`step` must be positive, found {found}"
        raise ReftileError(
            Diagnosis("for.step", message, op.span, "run it with check=True to see where")
        )
    # The distance is at most 2**64 - 1, which only unsigned arithmetic holds.
    return np.where(goes, (upper - lower - np.uint64(1)) // stride + np.uint64(1), np.uint64(0))


def _iterate(
    inner: Batch, region: PlanRegion[Batch], carried: list[Any], rows: Rows, gone: list[Part]
) -> tuple[Batch, Rows, list[Any], Rows]:
    """One iteration of a loop for a batch: those that go on, and what they carry."""
    slots = region.arguments[len(region.arguments) - len(carried) :]
    for slot, item in zip(slots, carried, strict=True):
        inner.env[slot] = item
    if inner.shared.tick is not None:
        inner.shared.tick()
    ended = _run_region(inner, region)
    if len(ended) == 1 and ended[0].ending == "continue":
        # Nobody left: parts together hold every row.
        return inner, rows, ended[0].values, inner.everyone
    again = [p for p in ended if p.ending == "continue"]
    gone.extend(Part(p.ending, rows[p.rows], p.values) for p in ended if p.ending != "continue")
    if not again:
        nobody = np.zeros(0, np.int64)
        return inner, nobody, carried, nobody
    kept = np.sort(np.concatenate([p.rows for p in again]))
    ranks = [inner.shared.ranks[s] for s in slots]
    if kept.size < inner.blocks.size:
        inner = select(inner, kept)
    carried = [join_parts(again, i, r, inner.lead) for i, r in enumerate(ranks)]
    return inner, rows[kept], carried, kept


def _run_loop(batch: Batch, step: Step[Batch]) -> Ways:
    region = step.regions[0]
    carried = [batch.env[s] for s in step.inputs]
    rows = batch.everyone
    left: list[Part] = []
    inner = batch
    # Its blocks run together, and none of them writes: memory stays as it is. (Strong loads, by
    # which blocks wait for others, are refused.)
    changes_nothing = all(o.definition.effects in QUIET for o in step.op.walk())
    kept, done = carried, 0
    while rows.size:
        count = rows.size
        inner, rows, carried, _ = _iterate(inner, region, carried, rows, left)
        done = done + 1 if rows.size == count else 0
        if not changes_nothing:
            continue
        if done and all(map(_same, kept, carried)):
            raise ReftileError(
                Diagnosis(
                    "loop.endless",
                    "this loop never ends: it comes back to where it was",
                    step.op.span,
                    "run it with check=True to see in which block",
                )
            )
        if done & (done - 1) == 0:  # what is kept at 1, 2, 4, 8, ... finds cycles of any length
            kept = carried
    stay = [p for p in left if p.ending == "break"]
    return stay, [p for p in left if p.ending != "break"]


QUIET = frozenset({"pure", "control", "read", "trap"})
"""Effects of operations that leave memory as it is."""


def _same(before: object, after: object) -> bool:
    """True if a carried value stayed as it was, to the bit."""
    if not isinstance(before, Tile) or not isinstance(after, Tile):
        return before is after
    x, y = before.data, after.data
    return x is y or (x.shape == y.shape and x.tobytes() == y.tobytes())


_CONTROL: dict[str, Callable[[Batch, Step[Batch]], Ways]] = {
    "if": _run_if,
    "for": _run_for,
    "loop": _run_loop,
}
