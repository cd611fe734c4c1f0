"""Operations that may block: waits for barriers, copies and products."""

from __future__ import annotations

from collections.abc import Callable, Mapping

import numpy as np

from reftile.interp.coroutines import Control, Wait
from reftile.interp.machine import Block
from reftile.interp.plan import Step
from reftile.interp.simt.barriers import Mbarrier, come, mbarrier_at
from reftile.interp.simt.clocks import ALL_LANES, LANES
from reftile.interp.simt.machine import Flight, Warp
from reftile.interp.simt.products import wait_products
from reftile.interp.values import Mask
from reftile.ir.core import Op


def _wait_mbarrier(warp: Warp, step: Step[Block]) -> Control:
    """Each lane waits at its address for its phase; those that agree wait together."""
    op = step.op
    addresses = warp.each(warp.env[step.inputs[0]], "the address of a barrier")
    parities = warp.each(warp.env[step.inputs[1]], "a phase") & 1
    whole = warp.mask
    pairs = {(int(addresses[n]), int(parities[n])) for n in warp.lanes}
    for address, parity in sorted(pairs):
        mask = whole & (addresses == address) & (parities == parity)
        barrier = mbarrier_at(warp, address, "a barrier")
        wanted = barrier.number - int(barrier.is_passed(parity))
        wait = Wait(op, barrier.queue, _phase_text(barrier, wanted))
        while not barrier.is_passed(parity):
            yield wait
            if barrier.number > wanted + 1:
                warp.step = step
                warp.fault(
                    "simt.phase_missed",
                    f"phase {wanted} of {barrier.name} is over and so is the one behind it: a "
                    "waiter cannot tell them apart",
                    hint="let those who arrive wait for this warp before they go on",
                    op=op,
                )
        _receive(warp, barrier, mask, bool(op.attributes.get("cluster")))
    return None


def _phase_text(barrier: Mbarrier, wanted: int) -> Callable[[], str]:
    return lambda: f"phase {wanted} of {barrier.name} (in {barrier.state()})"


def _receive(warp: Warp, barrier: Mbarrier, mask: Mask, cluster: bool) -> None:
    local, remote = barrier.completed
    warp.knowledge.acquire(mask, local)
    warp.knowledge.acquire(mask, remote if cluster else remote.only_done())
    for flight in barrier.over:
        barrier.home.landings.pop(flight, None)
    barrier.over = []


def _sync_threads(warp: Warp, step: Step[Block]) -> Control:
    index = warp.one(warp.env[step.inputs[0]], "the number of a barrier")
    threads = step.op.attributes["threads"]
    assert isinstance(threads, int)
    barrier, meeting = come(warp, index, threads)

    def what() -> str:
        there = ", ".join(str(w.index) for w in meeting.members)
        return (
            f"barrier {index} ({LANES * len(meeting.members)} of {threads} threads are there: "
            f"warps {there})"
        )

    wait = Wait(step.op, barrier.queue, what)
    while not meeting.is_over:
        yield wait
    warp.knowledge.acquire(ALL_LANES, meeting.clock)
    return None


def _wait_cluster(warp: Warp, step: Step[Block]) -> Control:
    cluster, op = warp.home.cluster, step.op
    if op.attributes.get("aligned"):
        warp.together(op.name)
    warp.cluster_waits[warp.mask] += 1
    if (warp.cluster_arrivals < warp.cluster_waits)[warp.mask].any():
        warp.fault(
            "simt.cluster_order",
            "a thread waits for the cluster before it has arrived",
            hint="each thread does `arrive_cluster` before `wait_cluster`",
            op=op,
        )
    threads = warp.simt.agents.threads
    for number in np.unique(warp.cluster_waits[warp.mask]):
        mask = warp.mask & (warp.cluster_waits == number)
        wait = Wait(op, cluster.queue, lambda n=int(number): _round(warp, n))
        while cluster.rounds[int(number)][0] < threads:
            yield wait
        warp.knowledge.acquire(mask, cluster.rounds[int(number)][1])
        cluster.rounds.pop(int(number) - 2, None)
    return None


def _round(warp: Warp, number: int) -> str:
    came = warp.home.cluster.rounds[number][0]
    return f"round {number} of its cluster ({came} of {warp.simt.agents.threads} threads came)"


def _set_registers(warp: Warp, step: Step[Block]) -> Control:
    """Take registers from the block's, or give them back."""
    op, home = step.op, warp.home
    warp.together(op.name)
    count = op.attributes["count"]
    assert isinstance(count, int)
    more = (count - warp.registers) * LANES
    wait = Wait(
        op,
        home.registers_queue,
        lambda: f"{more} registers, of which {home.free_registers} are free",
    )
    while more > home.free_registers:
        yield wait
    home.free_registers -= more
    warp.registers = count
    home.registers_queue.wake()
    return None


# Copies


def _wait_bulk(warp: Warp, step: Step[Block]) -> Control:
    op = step.op
    in_flight = op.attributes.get("in_flight", 0)
    assert isinstance(in_flight, int)
    free = op.attributes.get("until") == "source_free"
    for lane in warp.lanes:
        groups = warp.bulk.get(int(lane))
        if groups is None:
            continue
        end = max(0, len(groups.closed) - in_flight)
        mask = np.arange(LANES) == lane
        for group in groups.closed[groups.freed if free else 0 : end]:
            for store in group:
                wait = _for_flight(op, store.flight)
                while not (store.is_free if free else store.flight.is_done):
                    yield wait
                warp.knowledge.acquire_done(mask, store.reading, False)
                if not free:
                    warp.knowledge.acquire_done(mask, store.writing, True)
        groups.freed = max(groups.freed, end)
        if not free:
            del groups.closed[:end]
            groups.freed = max(0, groups.freed - end)
    return None


def _for_flight(op: Op, flight: Flight) -> Wait:
    return Wait(op, flight.queue, lambda: f"`{flight.op.name}` of line {flight.op.span.line}")


def _wait_async(warp: Warp, step: Step[Block]) -> Control:
    op = step.op
    in_flight = op.attributes.get("in_flight", 0)
    assert isinstance(in_flight, int)
    end = max(0, len(warp.copies) - in_flight)
    newest = 0
    for group in warp.copies[:end]:
        for flight in group:
            wait = _for_flight(op, flight)
            while not flight.is_done:
                yield wait
            newest = max(newest, flight.epoch)
    del warp.copies[:end]
    know = warp.knowledge
    know.copies[warp.mask] = np.maximum(know.copies[warp.mask], newest)
    return None


WAITS: Mapping[str, Callable[[Warp, Step[Block]], Control]] = {
    "wait_mbarrier": _wait_mbarrier,
    "sync_threads": _sync_threads,
    "wait_cluster": _wait_cluster,
    "set_registers": _set_registers,
    "wait_bulk": _wait_bulk,
    "wait_async": _wait_async,
    "wait_products": wait_products,
}
"""The operations that may block."""
