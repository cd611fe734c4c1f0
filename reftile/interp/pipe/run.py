"""A launch of a `pipe` kernel: its clusters, its blocks, and what must hold when they end."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from itertools import product
from math import prod
from random import Random
from typing import Any

import numpy as np

from reftile.interp.actions import MAKERS
from reftile.interp.coroutines import run
from reftile.interp.machine import Block
from reftile.interp.memory import STORED_POISON, Buffer, Memory
from reftile.interp.pipe.actions import ACTIONS
from reftile.interp.pipe.arrivals import ARRIVALS
from reftile.interp.pipe.barriers import Rounds
from reftile.interp.pipe.control import run_block
from reftile.interp.pipe.copies import COPIES
from reftile.interp.pipe.deadlock import bytes_message
from reftile.interp.pipe.flights import Flight
from reftile.interp.pipe.machine import Agent, Cluster, Home, PipeLaunch
from reftile.interp.pipe.products import PRODUCTS
from reftile.interp.pipe.schedule import make_runner
from reftile.interp.pipe.tokens import Issuer, PipeOrder
from reftile.interp.plan import Apply, Maker, Plan, make_plan
from reftile.interp.schedule import Schedule
from reftile.interp.values import Tile
from reftile.ir.core import Kernel, Op
from reftile.ir.diagnostics import NOWHERE, Diagnosis, ReftileError, ReftileErrors, Span

Index3 = tuple[int, int, int]
Progress = Callable[[int, int], None]


def make_plans(kernel: Kernel) -> list[Plan[Block]]:
    """A plan for each cluster rank; in each, the rank is a constant."""
    makers = {**MAKERS, **ACTIONS, **ARRIVALS, **COPIES, **PRODUCTS}
    return [
        make_plan(kernel, {**makers, "cluster_rank": _rank_maker(rank)})
        for rank in range(prod(cluster_of(kernel)))
    ]


def launch_pipe(kernel: Kernel, grid: Index3, memory: Memory, checks: bool) -> PipeLaunch:
    """Make a launch of a verified kernel ready; `checks`: look for races."""
    plans, order = make_plans(kernel), PipeOrder(checks=checks)
    return PipeLaunch(
        plans[0],
        grid,
        memory,
        order,
        pipe_order=order,
        plans=plans,
        cluster_extents=cluster_of(kernel),
    )


def _rank_maker(rank: int) -> Maker[Block]:
    def make(op: Op, plan: Plan[Block]) -> Apply[Block]:
        return lambda block, values: (Tile(np.array(rank, np.int32)),)

    return make


def cluster_of(kernel: Kernel) -> Index3:
    """The blocks of a cluster along each axis."""
    found = kernel.attributes.get("cluster", ())
    sizes = [e for e in found if isinstance(e, int)] if isinstance(found, tuple) else []
    x, y, z = (*sizes, 1, 1, 1)[:3]
    return x, y, z


def run_pipe(
    launch: PipeLaunch,
    arguments: list[Any],
    schedule: Schedule,
    seed: int,
    progress: Progress | None,
) -> None:
    """Run all blocks under a schedule, then look at what the host will see.

    Raises:
        ReftileError: a rule is broken.
    """
    kernel = launch.plan.kernel
    for plan in launch.plans:
        for slot, value in zip(plan.body.arguments, arguments, strict=True):
            plan.template[slot] = value
    if any(g % c for g, c in zip(launch.grid, launch.cluster_extents, strict=True)):
        message = (
            f"the grid {list(launch.grid)} is no multiple of the cluster "
            f"{list(launch.cluster_extents)}"
        )
        raise ReftileError(Diagnosis("launch.grid", message, kernel.span))
    if schedule != "program":
        launch.random = Random(seed)
    clusters = _clusters(launch)

    def ended(agent: Agent) -> None:
        check_exit(agent.home, agent)
        _release(agent.home, agent)
        launch.done += 1
        launch.waits.pop(agent.linear, None)
        if progress is not None:
            progress(launch.done, launch.block_count)

    run(make_runner(launch, lambda: next(clusters, None), ended), schedule, seed)
    if launch.failed:
        raise (
            ReftileErrors(launch.failed)
            if len(launch.failed) > 1
            else ReftileError(launch.failed[0])
        )
    for buffer in launch.memory.buffers:
        if buffer.visible and buffer.state is not None:
            _check_output(buffer)


def _clusters(launch: PipeLaunch) -> Iterator[list[Agent]]:
    """Make the blocks of one cluster after another, the first axis fastest."""
    kernel, extents = launch.plan.kernel, launch.cluster_extents
    warps = kernel.attributes["warps"]
    assert isinstance(warps, int)
    threads = warps * (64 if kernel.attributes["target"] == "gfx942" else 32)
    counts = [g // c for g, c in zip(launch.grid, extents, strict=True)]
    inner = [range(e) for e in reversed(extents)]
    for at in product(*(range(n) for n in reversed(counts))):
        cluster = Cluster([], Rounds(threads * prod(extents)))
        agents: list[Agent] = []
        for rank, within in enumerate(product(*inner)):
            z, y, x = (a * e + w for a, e, w in zip(at, reversed(extents), within, strict=True))
            linear = (z * launch.grid[1] + y) * launch.grid[0] + x
            home = Home(launch, cluster, linear, rank, (x, y, z), Rounds(threads))
            cluster.homes.append(home)
            plan = launch.plans[rank]
            agent = Agent(home, list(plan.template), "all threads", warps, threads)
            agent.coroutine = run_block(agent, plan.body)
            agents.append(agent)
        yield agents


def _release(home: Home, whole: Agent) -> None:
    """Let go of the memory of a block that has ended; accesses remember its agents only."""
    home.ended = True
    home.allocations.clear()
    for agent in (whole, *home.agents):
        agent.env = []


# What must hold when a block ends


def check_exit(home: Home, whole: Agent) -> None:
    """Nothing may be under way in a block that ends, and no phase may have lost bytes.

    Raises:
        ReftileError: rule `pipe.exit` or `pipe.transaction_bytes`.
    """
    for barriers in home.barriers.values():
        for at, element in enumerate(barriers.elements):
            if element.bytes_missing and element.announced is not None:
                message = bytes_message(barriers.value.name, at, element)
                _raise("pipe.transaction_bytes", message, element.announced.span, home, "")
    _check_reaches(home, whole)
    for landing in home.landings:
        _raise_under_way(home, landing.flight, "wait for the phase that its bytes are credited to")
    for agent in (whole, *home.agents):
        _check_agent(home, agent)
    counts = {agent.step_count for agent in home.agents}
    if len(counts) > 1:
        counted = ", ".join(f"{a.label} {a.step_count}" for a in home.agents)
        message = f"the roles of a block execute different numbers of steps: {counted}"
        _raise("pipe.steps", message, home.launch.plan.kernel.span, home, "")


def _check_reaches(home: Home, whole: Agent) -> None:
    """Others that reach this block must have met it in the cluster since."""
    passed = max(agent.cluster_waits for agent in (whole, *home.agents))
    elements = [e for barriers in home.barriers.values() for e in barriers.elements]
    arrivals = [r for e in elements for r in (*e.completed_reaches, *e.reaches)]
    for reach in (*home.reaches, *arrivals):
        if reach.round > passed:
            message = f"block {home.id} ends without waiting for this `{reach.op.name}`"
            hint = "meet in the epilogue: `cluster_arrive`, `cluster_wait`"
            _raise("pipe.exit", message, reach.op.span, home, hint, reach.agent)


def _check_agent(home: Home, agent: Agent) -> None:
    bulk, thread = agent.bulk_copies, agent.thread_copies
    for group in (*bulk.closed[bulk.freed :], bulk.open):
        for flight in group:
            _raise_under_way(home, flight, "end with `wait_copies {until = source_free}`")
    for group in (*thread.closed[thread.freed :], thread.open):
        for flight in group:
            if not flight.handed:
                _raise_under_way(home, flight, "end with `wait_copies {engine = thread}`")
    for flight in agent.products:
        _raise_under_way(home, flight, "end with `mma_wait`")


def _raise_under_way(home: Home, flight: Flight, hint: str) -> None:
    message = f"the block ends, and nobody has waited for this `{flight.op.name}`"
    _raise("pipe.exit", message, flight.op.span, home, hint, flight.agent)


def _raise(
    rule: str, message: str, span: Span, home: Home, hint: str, agent: Issuer | None = None
) -> None:
    name = agent.name if agent is not None else f"block {home.launch.block_name(home.linear)}"
    notes = ((f"in {name}", None),)
    raise ReftileError(Diagnosis(rule, message, span, hint, notes, data={"block": home.id}))


def _check_output(buffer: Buffer) -> None:
    """Poison that was stored must not be left where the host looks."""
    assert buffer.state is not None
    bad = np.flatnonzero(buffer.state & STORED_POISON)
    if not bad.size:
        return
    offset = int(bad[0])
    raise ReftileError(
        Diagnosis(
            "poison.output",
            f"{buffer.element_at(offset)} (address 0x{buffer.address + offset:x}) is poison "
            "when the launch ends",
            NOWHERE,
            "stored here was memory that was never written, or an undefined result",
            data={"buffer": buffer.name, "address": buffer.address + offset},
        )
    )
