"""What each operation of `pipe` does in a small kernel: accesses, asynchronous tasks, barriers."""

from __future__ import annotations

from typing import Any, cast

import numpy as np

from reftile.interp.model.events import Access, Location
from reftile.interp.model.pipe_run import (
    CELL,
    FENCED,
    THREADS,
    Follow,
    Meeting,
    Nodes,
    PipeRun,
    Slice,
    Slices,
    Step,
    Task,
)
from reftile.interp.model.places import known_scalar
from reftile.interp.model.symbolic import Data, refuse
from reftile.interp.model.values import (
    MBARRIER_PHASE,
    Const,
    Reg,
    binary,
    mbarrier_argument,
    mbarrier_state,
)
from reftile.interp.values import Tile
from reftile.interp.views import TileView
from reftile.ir import ops
from reftile.ir.core import Op, Value
from reftile.ir.types import BarrierType, BufferType, NamedBarrierType, RingType, TileType


def _token(values: dict[Value, Any], token: Value | None) -> Nodes:
    return frozenset() if token is None else cast("Nodes", values[token])


def _flag(op: Op, data: Any) -> int:
    return known_scalar(op, data, "a slot or phase")


# Places


def _cell_count(type: BufferType) -> int:
    return THREADS if np.prod(type.shape, dtype=int) > 1 else 1


def _alloc_buffer(run: PipeRun, op: Op, values: dict[Value, Any]) -> list[Any]:
    type = op.results[0].type
    assert isinstance(type, BufferType)
    return [Slice(f"%{op.results[0].name}", _cell_count(type))]


def _alloc_ring(run: PipeRun, op: Op, values: dict[Value, Any]) -> list[Any]:
    type = op.results[0].type
    assert isinstance(type, RingType)
    return [Slices(f"%{op.results[0].name}", type.stages, _cell_count(type.buffer))]


def _slot(run: PipeRun, op: Op, values: dict[Value, Any]) -> list[Any]:
    assert isinstance(op, ops.Slot)
    ring, index = values[op.ring], _flag(op, values[op.index])
    return [Slice(f"{ring.name}[{index}]", ring.cells)]


def _transpose(run: PipeRun, op: Op, values: dict[Value, Any]) -> list[Any]:
    return [values[op.operands[0]]]


def _load(run: PipeRun, op: Op, token: Nodes, places: list[Location]) -> list[Any]:
    """Load from cells; a scalar that a whole role loads is loaded by each thread."""
    type = op.results[0].type
    assert isinstance(type, TileType)
    step = run.begin("access", op, token, run.unique(op, 0))
    step.threads, cells = run.threads(len(places), run.rotation(op)), len(places)
    if cells == 1 and not run.elected:
        places, step.threads = places * THREADS, list(range(THREADS))
    registers = [f"{step.name}[{i}]" for i in range(len(places))]
    step.accesses = [
        Access("load", at, register=r, name=str(at), element=i)
        for i, (at, r) in enumerate(zip(places, registers, strict=True))
    ]
    return [run.loaded(registers[:cells], type), frozenset([run.add(step)])]


def _store(
    run: PipeRun, op: Op, token: Nodes, tile: tuple[Value, Data], places: list[Location]
) -> list[Any]:
    """Store a tile to cells."""
    type = tile[0].type
    assert isinstance(type, TileType)
    step = run.begin("access", op, token)
    step.threads = run.threads(len(places), run.rotation(op))
    stored = run.stored(tile[1], type.dtype, len(places))
    step.accesses = [
        Access("store", at, value=value, name=str(at), element=i)
        for i, (at, value) in enumerate(zip(places, stored, strict=True))
    ]
    return [frozenset([run.add(step)])]


def _load_buffer(run: PipeRun, op: Op, values: dict[Value, Any]) -> list[Any]:
    assert isinstance(op, ops.LoadBuffer)
    return _load(run, op, _token(values, op.token), run.cells(values[op.source]))


def _store_buffer(run: PipeRun, op: Op, values: dict[Value, Any]) -> list[Any]:
    assert isinstance(op, ops.StoreBuffer)
    places = run.cells(values[op.destination])
    return _store(run, op, _token(values, op.token), (op.tile, values[op.tile]), places)


def _load_view(run: PipeRun, op: Op, values: dict[Value, Any]) -> list[Any]:
    assert isinstance(op, ops.LoadViewTko)
    places = _weak_cells(run, op, values[op.view], [values[i] for i in op.index])
    return _load(run, op, _token(values, op.token), places)


def _store_view(run: PipeRun, op: Op, values: dict[Value, Any]) -> list[Any]:
    assert isinstance(op, ops.StoreViewTko)
    places = _weak_cells(run, op, values[op.view], [values[i] for i in op.index])
    return _store(run, op, _token(values, op.token), (op.tile, values[op.tile]), places)


def _weak_cells(run: PipeRun, op: Op, view: TileView, index: list[Any]) -> list[Location]:
    if str(op.attributes["ordering"]) != "weak":
        raise refuse(op, "with an order is modelled in tile kernels only")
    return run.view_cells(op, view, index)


# Copies and products


def _task(run: PipeRun, issuers: tuple[int, ...]) -> int:
    run.tasks.append(Task(run.agent, issuers, run.turn))
    return len(run.tasks) - 1


def _move(
    run: PipeRun, op: Op, after: Nodes, source: list[Location], target: list[Location], bulk: bool
) -> list[int]:
    """Copy cells, as tasks: one of the elected thread, or one of each thread."""
    rotation, name = run.rotation(op), run.unique(op)
    tasks: list[int] = []
    parts = [list(range(len(source)))] if bulk else [[i] for i in range(len(source))]
    for cells in parts:
        issuer = 0 if bulk else (cells[0] + rotation) % THREADS
        number = _task(run, (issuer,))
        registers = {i: f"{name}.copied[{i}]" for i in cells}
        run.hidden.update(registers.values())
        reading = run.begin("access", op, after, f"{name}.read[{cells[0]}]")
        writing = run.begin("access", op, after, f"{name}.write[{cells[0]}]")
        for step, places in ((reading, source), (writing, target)):
            step.is_async, step.task = bulk, number
            step.threads = [issuer] * len(cells)
            for i in cells:
                value = Reg(registers[i]) if step is writing else None
                kind = "load" if value is None else "store"
                register = "" if value is not None else registers[i]
                step.accesses.append(
                    Access(kind, places[i], value=value, register=register, name=str(places[i]))
                )
        run.tasks[number].reads = [run.add(reading)]
        run.tasks[number].writes = [run.add(writing)]
        tasks.append(number)
    return tasks


def _copy_in(run: PipeRun, op: Op, values: dict[Value, Any]) -> list[Any]:
    assert isinstance(op, ops.CopyIn)
    after = _token(values, op.token)
    source = run.view_cells(op, values[op.view], [values[i] for i in op.index])
    target = run.cells(values[op.destination])
    source = (source * len(target))[: len(target)]
    bulk = str(op.attributes["engine"]) == "bulk"
    tasks = _move(run, op, after, source, target, bulk)
    if not bulk:
        run.groups("thread").open += tasks
        return []
    assert op.barrier is not None and op.slot is not None
    type = op.destination.type
    assert isinstance(type, BufferType)
    task = run.tasks[tasks[0]]
    step = run.begin("complete", op, frozenset((*task.reads, *task.writes)))
    step.task, step.order, step.scope = tasks[0], "release", "device"
    bytes = int(np.prod(type.shape)) * type.element.storage.itemsize
    _change(run, step, values[op.barrier], _flag(op, values[op.slot]), 0, -bytes, [0])
    return []


def _copy_out(run: PipeRun, op: Op, values: dict[Value, Any]) -> list[Any]:
    assert isinstance(op, ops.CopyOut)
    if str(op.attributes.get("mode", "store")) != "store":
        raise refuse(op, "that combines is not modelled")
    source = run.cells(values[op.source])
    target = run.view_cells(op, values[op.view], [values[i] for i in op.index])
    tasks = _move(run, op, _token(values, op.token), source, target, True)
    run.groups("bulk").open += tasks
    return []


def _commit(run: PipeRun, op: Op, values: dict[Value, Any]) -> list[Any]:
    groups = run.groups(str(op.attributes["engine"]))
    groups.closed.append(groups.open)
    groups.open = []
    return []


def _wait_copies(run: PipeRun, op: Op, values: dict[Value, Any]) -> list[Any]:
    assert isinstance(op, ops.WaitCopies)
    groups = run.groups(str(op.attributes["engine"]))
    wrong = run.mistake
    early = wrong is not None and wrong.kind == "early" and wrong.is_at(op, run.kernel)
    reads_only = early or str(op.attributes.get("until", "visible")) == "source_free"
    found: Nodes = frozenset()
    for group in groups.closed[: len(groups.closed) - op.in_flight]:
        for task in group:
            found |= run.finish(task, reads_only and str(op.attributes["engine"]) == "bulk")
    return [found]


def _mma_open(run: PipeRun, op: Op, values: dict[Value, Any]) -> list[Any]:
    return [()]


def _mma_start(run: PipeRun, op: Op, values: dict[Value, Any]) -> list[Any]:
    assert isinstance(op, ops.MmaStart)
    after, name = _token(values, op.token), run.unique(op)
    tasks: list[int] = []
    for label, operand in (("lhs", op.lhs), ("rhs", op.rhs)):
        if not isinstance(values[operand], Slice):
            continue
        for cell, place in enumerate(run.cells(values[operand])):
            issuer = (cell + 1) % THREADS
            number = _task(run, (issuer, *(t for t in range(THREADS) if t != issuer)))
            step = run.begin("access", op, after, f"{name}.{label}[{cell}]")
            step.is_async, step.task, step.threads = True, number, [issuer]
            step.accesses = [Access("load", place, register=step.name, name=str(place))]
            run.tasks[number].reads = [run.add(step)]
            tasks.append(number)
    run.groups("mma").closed.append(tasks)
    return [()]


def _mma_wait(run: PipeRun, op: Op, values: dict[Value, Any]) -> list[Any]:
    assert isinstance(op, ops.MmaWait)
    groups = run.groups("mma")
    found: Nodes = frozenset()
    for group in groups.closed[: len(groups.closed) - op.in_flight]:
        for task in group:
            found |= run.finish(task, False)
    tiles = [Tile(np.zeros(v.type.shape)) for v in op.values if isinstance(v.type, TileType)]
    return [*tiles, found]


# Barriers with phases


def _alloc_barrier(run: PipeRun, op: Op, values: dict[Value, Any]) -> list[Any]:
    type = op.results[0].type
    assert isinstance(type, BarrierType)
    wrong, arrivals = run.mistake, type.arrivals
    if wrong is not None and wrong.kind == "fewer" and wrong.is_at(op, run.kernel):
        arrivals -= max(1, arrivals // 2)
    name = f"%{op.results[0].name}"
    for slot in range(type.count):
        run.initial[f"{name}.{slot}"] = mbarrier_state(arrivals)
    return [name]


def _change(
    run: PipeRun,
    step: Step,
    barrier: str,
    slot: int,
    arrivals: int,
    bytes: int,
    threads: list[int],
) -> int:
    """Let a step change the state of a barrier, once for each of these threads."""
    place = Location(f"{barrier}.{slot}", 0, CELL)
    argument = Const(mbarrier_argument(arrivals, bytes))
    step.threads = threads
    step.accesses = [
        Access("rmw", place, value=argument, modify="mbarrier", name=place.buffer, element=i)
        for i in range(len(threads))
    ]
    return run.add(step)


def _arrive(run: PipeRun, op: Op, values: dict[Value, Any]) -> list[Any]:
    assert isinstance(op, ops.ArriveBarrier)
    if op.rank is not None or op.everywhere or op.after_copies:
        raise refuse(op, "in another block, or behind copies, is not modelled")
    by = str(op.attributes.get("by", "elected"))
    step = run.begin("arrive", op, _token(values, op.token))
    step.order = "release"
    step.scope = "block"
    step.space = "relaxed" if str(op.attributes.get("order", "release")) == "relaxed" else ""
    type = op.barrier.type
    assert isinstance(type, BarrierType)
    threads = list(range(THREADS)) if by == "threads" and not run.elected else [0]
    count = 1
    if by == "threads" and not run.elected:
        count = 32 * _warps(run) // THREADS
    elif by == "warps":
        count = _warps(run)
    slot = _flag(op, values[op.slot])
    _change(run, step, values[op.barrier], slot, count, op.bytes, threads)
    return []


def _warps(run: PipeRun) -> int:
    roles = [op for op in run.kernel.body.block.ops if isinstance(op, ops.Role)]
    if not roles:
        return cast(int, run.kernel.attributes["warps"])
    label = run.agents[run.agent]
    for role in roles:
        if label == role.label or label.rstrip("0123456789") == role.label:
            return role.warps
    raise AssertionError(label)


def _wait(run: PipeRun, op: Op, values: dict[Value, Any]) -> list[Any]:
    assert isinstance(op, ops.WaitBarrier)
    step = run.begin("wait", op, frozenset())
    step.order, step.scope = "acquire", "block"
    step.space = "relaxed" if str(op.attributes.get("order", "acquire")) == "relaxed" else ""
    phase, wrong = _flag(op, values[op.phase]) & 1, run.mistake
    if wrong is not None and wrong.kind == "flip" and wrong.is_at(op, run.kernel):
        phase ^= 1
    place = Location(f"{values[op.barrier]}.{_flag(op, values[op.slot])}", 0, CELL)
    step.threads = [0] if run.elected else list(range(THREADS))
    for thread in step.threads:
        register = f"{step.name}.state[{thread}]"
        step.accesses.append(
            Access("load", place, register=register, name=place.buffer, element=thread)
        )
        parity = binary("&", Reg(register), Const(MBARRIER_PHASE))
        run.assume.append(binary("!=", parity, Const(phase)))
        run.hidden.add(register)
    return [frozenset([run.add(step)])]


# Fences and barriers of threads


def _fence(run: PipeRun, op: Op, values: dict[Value, Any]) -> list[Any]:
    assert isinstance(op, ops.FenceProxy)
    step = run.begin("fence", op, _token(values, op.token))
    step.space = str(op.attributes.get("space", "shared"))
    step.threads = [0] if run.elected else list(range(THREADS))
    step.accesses = [
        Access("load", Location(FENCED, 0, CELL), name="fence", element=i) for i in step.threads
    ]
    run.initial[FENCED] = 0
    return [step.after | {run.add(step)}]


def _sync(run: PipeRun, op: Op, values: dict[Value, Any]) -> list[Any]:
    assert isinstance(op, ops.Sync)
    run.meetings.append(Meeting([(run.agent, run.turn, True)]))
    return [_token(values, op.token)]


def _alloc_named(run: PipeRun, op: Op, values: dict[Value, Any]) -> list[Any]:
    type = op.results[0].type
    assert isinstance(type, NamedBarrierType)
    wrong = run.mistake
    alone = wrong is not None and wrong.kind == "fewer" and wrong.is_at(op, run.kernel)
    return [(f"%{op.results[0].name}", alone)]


def _meet(run: PipeRun, op: Op, values: dict[Value, Any]) -> list[Any]:
    """The n-th coming of every role is for the n-th meeting; one too small is of one role alone."""
    assert isinstance(op, (ops.SyncNamed, ops.ArriveNamed))
    (name, alone), index = values[op.barrier], _flag(op, values[op.index])
    key = name, index, run.agent
    number = run.comings[key] = run.comings.get(key, -1) + 1
    waits = isinstance(op, ops.SyncNamed)
    meeting = Meeting()
    if not alone:
        meeting = run.named.setdefault((name, index, number), meeting)
    if meeting not in run.meetings:
        run.meetings.append(meeting)
    meeting.came.append((run.agent, run.turn, waits))
    step = run.begin("meet", op, _token(values, op.token), f"{name}.{index}.{number}")
    step.space = "waits" if waits else ""
    number = run.add(step)
    return [frozenset([number])] if waits else []


def _elected(run: PipeRun, op: Op, values: dict[Value, Any]) -> list[Any]:
    assert isinstance(op, ops.Elected)
    return run.elect(op.body.block)


def _nothing(run: PipeRun, op: Op, values: dict[Value, Any]) -> list[Any]:
    return []


OPERATIONS: dict[str, Follow] = {
    "alloc_buffer": _alloc_buffer,
    "alloc_ring": _alloc_ring,
    "slot": _slot,
    "transpose_buffer": _transpose,
    "load_buffer": _load_buffer,
    "load_view_tko": _load_view,
    "store_view_tko": _store_view,
    "store_buffer": _store_buffer,
    "copy_in": _copy_in,
    "copy_out": _copy_out,
    "commit_copies": _commit,
    "wait_copies": _wait_copies,
    "mma_open": _mma_open,
    "mma_start": _mma_start,
    "mma_wait": _mma_wait,
    "alloc_barrier": _alloc_barrier,
    "arrive_barrier": _arrive,
    "wait_barrier": _wait,
    "fence_proxy": _fence,
    "sync": _sync,
    "alloc_named_barrier": _alloc_named,
    "sync_named": _meet,
    "arrive_named": _meet,
    "elected": _elected,
    "prefetch_view": _nothing,
    "order_fence": _nothing,
}
"""How to follow each operation of this level."""
