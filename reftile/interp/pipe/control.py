"""Control flow of an agent: regions, branches, loops, roles, and what surrounds regions."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Protocol

import numpy as np

from reftile.interp.coroutines import SPIN, STEP, Control, Ending, Run, Wait
from reftile.interp.machine import Block
from reftile.interp.pipe.machine import Agent
from reftile.interp.pipe.tokens import NOTHING
from reftile.interp.pipe.waits import WAITS, count_step
from reftile.interp.plan import PlanRegion, Step, scalar_tile
from reftile.interp.values import Tile
from reftile.ir.types import TileType


class Controls(Protocol):
    """Runs an operation that may block; gives how the region around it ends, if it does."""

    def __call__(self, agent: Agent, step: Step[Block], /) -> Control: ...


def run_region(agent: Agent, region: PlanRegion[Block]) -> Run:
    """Run the steps of a region; gives how it ended and with which values."""
    env, preempts = agent.env, agent.pipe.preempts
    outermost = len(agent.allocated)
    ending: Ending | None = None
    for step in region.steps:
        control = CONTROLS.get(step.op.name)
        if preempts and (control is None) == (step.kind not in ("pure", "now")):
            yield STEP
        if control is None:
            agent.perform(step)
            continue
        agent.step = step
        ending = yield from control(agent, step)
        if ending is not None:
            break
    if len(agent.allocated) > outermost:
        for buffer in agent.allocated[outermost:]:
            buffer.free()
        del agent.allocated[outermost:]
    return (region.ending, [env[i] for i in region.results]) if ending is None else ending


def _set(agent: Agent, step: Step[Block], values: list[Any]) -> None:
    for slot, value in zip(step.outputs, values, strict=True):
        agent.env[slot] = value


def _run_if(agent: Agent, step: Step[Block]) -> Control:
    condition = agent.env[step.inputs[0]]
    taken = agent.scalar(condition, "branch", "the condition of `if`", step.op)
    index = 0 if taken else 1
    if index >= len(step.regions):
        return None
    ending, values = yield from run_region(agent, step.regions[index])
    if ending != "yield":
        return ending, values
    _set(agent, step, values)
    return None


def _run_for(agent: Agent, step: Step[Block]) -> Control:
    env, op, region = agent.env, step.op, step.regions[0]
    type = op.operands[0].type
    assert isinstance(type, TileType)
    bits, carrier = type.dtype.bits, type.dtype.carrier
    unsigned = bool(op.attributes.get("unsigned_cmp"))
    bounds: list[int] = []
    for slot, name in zip(step.inputs[:3], ("lower", "upper", "step"), strict=True):
        bound = agent.scalar(env[slot], "bound", f"`{name}` of `for`", op)
        bounds.append(bound % (1 << bits) if unsigned else bound)
    value, upper, stride = bounds
    if stride <= 0:
        agent.fault("for.step", f"`step` must be positive, found {stride}", op=op)
    limit = 1 << (bits if unsigned else bits - 1)
    counter, *slots = region.arguments
    carried = [env[s] for s in step.inputs[3:]]
    while value < upper:
        env[counter] = scalar_tile(value if value < limit >> unsigned else value - limit, carrier)
        for slot, item in zip(slots, carried, strict=True):
            env[slot] = item
        ending, carried = yield from run_region(agent, region)
        if ending != "continue":
            return ending, carried
        if step.spins:
            yield SPIN
        value += stride
        if value >= limit:
            break
    _set(agent, step, carried)
    return None


def _run_loop(agent: Agent, step: Step[Block]) -> Control:
    env, region = agent.env, step.regions[0]
    carried = [env[s] for s in step.inputs]
    while True:
        for slot, item in zip(region.arguments, carried, strict=True):
            env[slot] = item
        ending, carried = yield from run_region(agent, region)
        if ending == "break":
            _set(agent, step, carried)
            return None
        if ending != "continue":
            return ending, carried
        yield SPIN


def _run_elected(agent: Agent, step: Step[Block]) -> Control:
    ending, values = yield from run_region(agent, step.regions[0])
    if ending != "yield":
        return ending, values
    _set(agent, step, values)
    return None


def _run_stagger(agent: Agent, step: Step[Block]) -> Control:
    shift = step.op.attributes.get("steps", 1)
    assert isinstance(shift, int)
    for _ in range(agent.replica * shift):
        yield from count_step(agent, step.op, NOTHING)
    ending, values = yield from run_region(agent, step.regions[0])
    if ending != "yield":
        return ending, values
    for _ in range((agent.replicas - 1 - agent.replica) * shift):
        yield from count_step(agent, step.op, NOTHING)
    _set(agent, step, values)
    return None


def _run_if_rows(agent: Agent, step: Step[Block]) -> Control:
    """Run the region with poison in the rows that are skipped, and choose by group of rows."""
    env, op = agent.env, step.op
    condition: Tile = env[step.inputs[0]]
    agent.demand(condition, "branch", "the condition of `if_rows`", op)
    otherwise: list[Tile] = [env[s] for s in step.inputs[1:]]
    groups = condition.data.size
    region = step.regions[0]
    kept = {s: env[s] for s in region.captures}
    columns = {s for inner in region.steps for s in _column_slots(inner)}
    for slot, value in kept.items():
        if isinstance(value, Tile) and slot not in columns and _has_rows(value, groups):
            env[slot] = _hidden(value, condition)
    _, values = yield from run_region(agent, region)
    env_values: list[Tile] = []
    for new, old in zip(values, otherwise, strict=True):
        env_values.append(_chosen(condition, new, old))
    for slot, value in kept.items():
        env[slot] = value
    _set(agent, step, env_values)
    return None


def _column_slots(step: Step[Block]) -> tuple[int, ...]:
    """Operands whose first axis is not the rows: right factors, and vectors along a row."""
    type = step.op.results[0].type if step.op.results else None
    if step.op.definition.poison == "contract":
        return step.inputs[1:2]
    if step.op.name == "reshape" and isinstance(type, TileType) and type.shape[:1] == (1,):
        return step.inputs
    return ()


def _has_rows(tile: Tile, groups: int) -> bool:
    return tile.data.ndim > 0 and tile.data.shape[0] >= groups and not tile.data.shape[0] % groups


def _rows(condition: Tile, like: Tile) -> Any:
    taken = np.repeat(condition.data, like.data.shape[0] // condition.data.size)
    return taken.reshape(-1, *(1,) * (like.data.ndim - 1))


def _hidden(tile: Tile, condition: Tile) -> Tile:
    skipped = np.broadcast_to(~_rows(condition, tile), tile.data.shape)
    if not skipped.any():
        return tile
    return Tile(tile.data, skipped if tile.poison is None else skipped | tile.poison)


def _chosen(condition: Tile, new: Tile, old: Tile) -> Tile:
    if condition.data.all():
        return new
    taken = _rows(condition, old)
    data = np.where(taken, new.data, old.data)
    if new.poison is None and old.poison is None:
        return Tile(data)
    bad = [np.zeros((), np.bool_) if t.poison is None else t.poison for t in (new, old)]
    poison = np.where(taken, *bad)
    return Tile(data, poison if poison.any() else None)


CONTROLS: Mapping[str, Controls] = {
    "if": _run_if,
    "for": _run_for,
    "loop": _run_loop,
    "elected": _run_elected,
    "stagger": _run_stagger,
    "if_rows": _run_if_rows,
    **WAITS,
}
"""Operations that may block, or surround a region."""


# A block


def run_block(agent: Agent, body: PlanRegion[Block]) -> Run:
    """Run a block: its prologue, its roles at the same time, its epilogue."""
    home = agent.home
    roles = [step for step in body.steps if step.op.name == "role"]
    if not roles:
        return (yield from run_region(agent, body))
    first = body.steps.index(roles[0])
    ending = yield from run_region(agent, _part(body, body.steps[:first]))
    if ending[0] != "":
        return ending
    agent.base = agent.performed.everything() | agent.base
    for role in roles:
        _fork(agent, role)
    join = Wait(roles[0].op, home.joining, lambda: "its roles")
    while not all(a.is_done for a in home.agents):
        yield join
    return (yield from run_region(agent, _part(body, body.steps[first + len(roles) :])))


def _part(body: PlanRegion[Block], steps: list[Step[Block]]) -> PlanRegion[Block]:
    return PlanRegion(body.arguments, steps, "", (), body.end_op, body.captures)


def _fork(agent: Agent, step: Step[Block]) -> None:
    """Start the replicas of a role."""
    home, op, launch = agent.home, step.op, agent.pipe
    replicas, warps = op.attributes.get("replicas", 1), op.attributes["warps"]
    assert isinstance(replicas, int) and isinstance(warps, int)
    label = op.attributes["label"]
    for replica in range(replicas):
        name = f"{label} {replica}" if replicas > 1 else str(label)
        threads = warps * agent.threads // agent.warps
        started = Agent(home, list(agent.env), name, warps, threads)
        started.base = started.performed = agent.base
        started.role = str(label)
        started.replica, started.replicas = replica, replicas
        started.step_count = agent.step_count
        started.cluster_arrivals = agent.cluster_arrivals
        started.cluster_waits = agent.cluster_waits
        for slot in step.regions[0].arguments:
            started.env[slot] = scalar_tile(replica, np.dtype(np.int32))
        started.coroutine = run_region(started, step.regions[0])
        home.agents.append(started)
        launch.runnable.append(started)


def finish(agent: Agent) -> None:
    """Note that an agent has run to its end."""
    agent.is_done = True
    home = agent.home
    home.joining.wake()
