"""What threads meet at, and what they do there without waiting: arrivals, fences."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from reftile.interp.coroutines import Queue, when_landed
from reftile.interp.machine import Block
from reftile.interp.plan import Apply, Maker, Plan
from reftile.interp.simt.clocks import (
    ALL_LANES,
    DONE,
    FENCED,
    LANES,
    SHOWN,
    Clock,
    fenced_row,
    settled_row,
)
from reftile.interp.simt.machine import RANK_SHIFT, SHARED_BASE, Flight, Home, Warp
from reftile.interp.values import Mask, Tile
from reftile.ir.core import Op

MOST_NAMED = 16
"""Barriers without phases of a block. Source: PTX ISA 9.2, bar."""


def warp_of(block: Block) -> Warp:
    """The warp for which an operation runs."""
    assert isinstance(block, Warp)
    return block


def place_of(
    warp: Warp, address: int, what: str, size_bytes: int, cluster: bool = False
) -> tuple[Home, int]:
    """The block and the byte of its shared memory that an address names.

    cluster: the operation takes addresses of other blocks.
    """
    rank, inside = address >> RANK_SHIFT, address & ((1 << RANK_SHIFT) - 1)
    homes = warp.home.cluster.homes
    if rank > len(homes) or rank < 0:
        warp.fault("simt.rank", f"{what} lies in no block of the cluster")
    home = warp.home if rank == 0 else homes[rank - 1]
    if home is not warp.home and not cluster:
        warp.fault(
            "simt.window",
            f"{what} lies in block {home.name}, and the operation reaches its own block only",
            hint="those that reach others say `cluster`; for the rest, let the other block do it",
        )
    offset = inside - SHARED_BASE
    if not 0 <= offset <= home.shared.data.size - size_bytes:
        warp.fault(
            "simt.shared_bounds",
            f"{what} is byte {offset} of the {home.shared.data.size} of shared memory",
        )
    if home.ended:
        warp.fault(
            "simt.exit",
            f"block {home.name} has ended, and its shared memory is gone",
            hint="let the cluster meet before its blocks end: `arrive_cluster`, `wait_cluster`",
        )
    return home, offset


# Barriers with phases


@dataclass(slots=True, eq=False)
class Mbarrier:
    """A barrier with phases at byte `offset` of a block.

    number: of the phase under way. arrived, bytes_missing: in it. coming: bulk copies issued for it
    that have not landed. local, remote: what is handed over, from this block and from others;
    completed: of the phase before. made: the agent and epoch of its initialisation; shown: it was
    fenced for the cluster and the asynchronous proxy. announced: who announced bytes last.
    """

    home: Home
    offset: int
    expected: int
    made: tuple[int, int]
    made_by: Op
    local: Clock
    remote: Clock
    completed: tuple[Clock, Clock]
    number: int = 0
    arrived: int = 0
    bytes_missing: int = 0
    shown: bool = False
    announced: Op | None = None
    coming: list[Flight] = field(default_factory=list[Flight])
    landed: list[Flight] = field(default_factory=list[Flight])
    over: list[Flight] = field(default_factory=list[Flight])
    queue: Queue = field(default_factory=Queue)

    @property
    def name(self) -> str:
        """How messages name it."""
        return f"the barrier at byte {self.offset}"

    def state(self) -> str:
        """What has come of the phase under way, in words."""
        text = f"phase {self.number}: {self.arrived} of {self.expected} arrivals"
        if self.bytes_missing > 0:
            text += f", {self.bytes_missing} announced bytes still to come"
        elif self.bytes_missing < 0:
            text += f", {-self.bytes_missing} bytes more than announced"
        return text

    def arrive(self, warp: Warp, count: int, bytes: int, clock: Clock) -> None:
        """Take arrivals and announced bytes, which may complete the phase."""
        if self.arrived + count > self.expected:
            warp.fault(
                "simt.arrivals",
                f"{self.arrived + count} arrivals on {self.name} in phase {self.number}, which "
                f"awaits {self.expected}",
                hint="arrive once for each phase, or raise `arrivals`",
            )
        self.arrived += count
        self.bytes_missing += bytes
        if bytes:
            assert warp.step is not None
            self.announced = warp.step.op
        (self.local if warp.home is self.home else self.remote).join(clock)
        self.complete(warp)

    def credit(self, flight: Flight, bytes: int, operation: int, before: Clock) -> None:
        """Take bytes that a copy brought, which may complete the phase.

        operation: of the copy. before: what its issuer knew.
        """
        self.bytes_missing -= bytes
        self.local.add_operation(operation)
        (self.local if flight.warp.home is self.home else self.remote).join(before)
        self.coming.remove(flight)
        self.landed.append(flight)
        self.complete(flight.warp)

    def complete(self, warp: Warp) -> None:
        """Begin the next phase if this one has all it awaits."""
        if self.arrived != self.expected or self.bytes_missing:
            return
        if self.coming:
            op = self.announced or self.coming[0].op
            warp.fault(
                "simt.transaction_bytes",
                f"phase {self.number} of {self.name} is complete, and the copy of line "
                f"{self.coming[0].op.span.line} has not brought its bytes: more are under way "
                "than were announced",
                hint="announce what the copies bring: each its box, a multicast to each block",
                op=op,
            )
        self.number += 1
        self.arrived = 0
        agents = warp.simt.agents
        self.completed = self.local, self.remote
        self.local, self.remote = Clock.nothing(agents), Clock.nothing(agents)
        self.over, self.landed = self.landed, []
        self.queue.wake()

    def is_passed(self, parity: int) -> bool:
        """True if a wait for this parity goes on."""
        return self.number & 1 != parity


def mbarrier_at(warp: Warp, address: int, what: str, cluster: bool = False) -> Mbarrier:
    """The barrier at an address, which this warp must know to be initialised.

    cluster: it may be another block's.
    """
    home, offset = place_of(warp, address, what, 8, cluster)
    found = home.mbarriers.get(offset)
    if found is None:
        warp.fault(
            "simt.no_mbarrier",
            f"at byte {offset} of shared memory there is no barrier (yet)",
            hint="`init_mbarrier`, then a barrier of all who use it",
        )
    if warp.simt.checks:
        _check_made(warp, found)
    return found


def _check_made(warp: Warp, barrier: Mbarrier) -> None:
    agent, epoch = (np.array([n]) for n in barrier.made)
    lanes = warp.lanes[:1]
    known = warp.knowledge.knows(SHOWN, agent, epoch, lanes)[0]
    done = warp.knowledge.knows(DONE, agent, epoch, lanes)[0]
    if known or (done and barrier.shown):
        return
    warp.fault(
        "simt.mbarrier_unseen",
        f"nothing says that {barrier.name} is initialised"
        + ("" if not done else ", and its initialisation is not fenced"),
        hint="`fence_mbarrier_init` behind the initialisation, then a barrier that all pass",
    )


def _make_init(op: Op, plan: Plan[Block]) -> Apply[Block]:
    arrivals = op.attributes["arrivals"]
    assert isinstance(arrivals, int)

    def apply(block: Block, values: list[Any]) -> Sequence[Any]:
        warp = warp_of(block)
        addresses = warp.each(values[0], "the address of a barrier")
        for lane in warp.lanes:
            home, offset = place_of(warp, int(addresses[lane]), "a barrier", 8)
            if offset % 8:
                warp.fault("simt.misaligned", f"a barrier at byte {offset}: no multiple of 8")
            nothing = [Clock.nothing(warp.simt.agents) for _ in range(4)]
            made = warp.knowledge.first + int(lane), warp.knowledge.epoch
            home.mbarriers[offset] = Mbarrier(
                home, offset, arrivals, made, op, nothing[0], nothing[1], (nothing[2], nothing[3])
            )
        return ()

    return apply


def _make_fence_init(op: Op, plan: Plan[Block]) -> Apply[Block]:
    def apply(block: Block, values: list[Any]) -> Sequence[Any]:
        warp = warp_of(block)
        own = set((warp.knowledge.first + warp.lanes).tolist())
        for barrier in warp.home.mbarriers.values():
            if barrier.made[0] in own:
                barrier.shown = True
        return ()

    return apply


def _make_arrive(op: Op, plan: Plan[Block]) -> Apply[Block]:
    relaxed = op.attributes.get("order") == "relaxed"
    bytes = op.attributes.get("bytes", 0)
    after_copies = bool(op.attributes.get("after_copies"))
    assert isinstance(bytes, int)
    cluster = bool(op.attributes.get("cluster")) and not bytes and not after_copies

    def apply(block: Block, values: list[Any]) -> Sequence[Any]:
        warp = warp_of(block)
        addresses = warp.each(values[0], "the address of a barrier")
        for address in np.unique(addresses[warp.mask]):
            mask = warp.mask & (addresses == address)
            count = int(mask.sum())
            barrier = mbarrier_at(warp, int(address), "a barrier", cluster)
            if barrier.home is not warp.home:
                warp.home.cluster.homes[barrier.home.rank].reaches.append(
                    (warp, op, int(warp.cluster_arrivals.max()) + 1)
                )
            if after_copies:
                _arrive_after(warp, barrier, mask, count)
                continue
            clock = warp.knowledge.release(mask)
            if relaxed:
                clock = clock.only_done()
            barrier.arrive(warp, count, bytes * count, clock)
        return ()

    return apply


def _arrive_after(warp: Warp, barrier: Mbarrier, mask: Mask, count: int) -> None:
    """Arrive for lanes once the copies that they have issued so far are done."""
    flights = [f for group in (*warp.copies, warp.open_copies) for f in group]
    clock = warp.knowledge.release(mask)
    own = warp.simt.agents.threads + warp.knowledge.first + np.flatnonzero(mask)
    clock.rows[DONE, own] = clock.rows[SHOWN, own] = warp.copy_count
    step = warp.step

    def arrive() -> None:
        warp.step = step
        barrier.arrive(warp, count, 0, clock)

    when_landed(flights, arrive)


# Barriers without phases


@dataclass(slots=True, eq=False)
class Meeting:
    """One meeting at a named barrier."""

    number: int
    clock: Clock
    threads: int = 0
    members: list[Warp] = field(default_factory=list[Warp])
    is_over: bool = False


@dataclass(slots=True, eq=False)
class NamedBarrier:
    """A barrier of a block without phases. meeting: the one that gathers."""

    index: int
    meeting: Meeting
    queue: Queue = field(default_factory=Queue)


def come(warp: Warp, index: int, threads: int) -> tuple[NamedBarrier, Meeting]:
    """Let a warp come to a meeting of so many threads."""
    assert warp.step is not None
    warp.together(warp.step.op.name)
    if not 0 <= index < MOST_NAMED:
        warp.fault("simt.barrier_number", f"barriers have numbers from 0 to 15, found {index}")
    barrier = warp.home.named.get(index)
    if barrier is None:
        made = NamedBarrier(index, Meeting(0, Clock.nothing(warp.simt.agents)))
        barrier = warp.home.named[index] = made
    meeting = barrier.meeting
    if meeting.threads and meeting.threads != threads:
        warp.fault(
            "simt.participants",
            f"barrier {index} is told of {threads} threads, and was told of {meeting.threads}",
        )
    if warp in meeting.members:
        warp.fault(
            "simt.named_twice",
            f"{warp.name} comes twice to one meeting at barrier {index} "
            f"({LANES * len(meeting.members)} of {threads} threads are there)",
            hint="the others must come in between",
        )
    meeting.threads = threads
    meeting.members.append(warp)
    meeting.clock.join(warp.knowledge.release(ALL_LANES))
    if LANES * len(meeting.members) == threads:
        meeting.is_over = True
        barrier.meeting = Meeting(meeting.number + 1, Clock.nothing(warp.simt.agents))
        barrier.queue.wake()
    return barrier, meeting


def _make_arrive_threads(op: Op, plan: Plan[Block]) -> Apply[Block]:
    threads = op.attributes["threads"]
    assert isinstance(threads, int)

    def apply(block: Block, values: list[Any]) -> Sequence[Any]:
        warp = warp_of(block)
        come(warp, warp.one(values[0], "the number of a barrier"), threads)
        return ()

    return apply


def _make_sync_warp(op: Op, plan: Plan[Block]) -> Apply[Block]:
    def apply(block: Block, values: list[Any]) -> Sequence[Any]:
        warp = warp_of(block)
        warp.together(op.name)
        warp.knowledge.meet()
        return ()

    return apply


def _make_elect(op: Op, plan: Plan[Block]) -> Apply[Block]:
    def apply(block: Block, values: list[Any]) -> Sequence[Any]:
        warp_of(block).together(op.name)
        return (Tile(np.arange(LANES) == 0),)

    return apply


# Of the cluster, and fences


def _make_arrive_cluster(op: Op, plan: Plan[Block]) -> Apply[Block]:
    relaxed = op.attributes.get("order") == "relaxed"
    aligned = bool(op.attributes.get("aligned"))

    def apply(block: Block, values: list[Any]) -> Sequence[Any]:
        warp = warp_of(block)
        if aligned:
            warp.together(op.name)
        late = warp.mask & (warp.cluster_arrivals > warp.cluster_waits)
        if late.any():
            warp.fault("simt.cluster_order", "a thread arrives twice without a wait between")
        warp.cluster_arrivals[warp.mask] += 1
        cluster = warp.home.cluster
        clock = warp.knowledge.release(warp.mask)
        if relaxed:
            clock = clock.only_done()
        for number in np.unique(warp.cluster_arrivals[warp.mask]):
            came = int((warp.mask & (warp.cluster_arrivals == number)).sum())
            count, known = cluster.rounds.get(int(number), (0, Clock.nothing(warp.simt.agents)))
            known.join(clock)
            cluster.rounds[int(number)] = count + came, known
        cluster.queue.wake()
        return ()

    return apply


def _make_fence_proxy(op: Op, plan: Plan[Block]) -> Apply[Block]:
    space = op.attributes.get("space", "shared")

    def apply(block: Block, values: list[Any]) -> Sequence[Any]:
        warp = warp_of(block)
        rows: Sequence[int] = range(FENCED, warp.simt.agents.rows)
        if space != "all":
            rank = None if space == "global" else warp.home.rank
            rows = fenced_row(rank), settled_row(rank)
        warp.knowledge.fence(warp.mask, rows)
        return ()

    return apply


def _make_nothing(op: Op, plan: Plan[Block]) -> Apply[Block]:
    return lambda block, values: ()


BARRIERS: dict[str, Maker[Block]] = {
    "init_mbarrier": _make_init,
    "fence_mbarrier_init": _make_fence_init,
    "arrive_mbarrier": _make_arrive,
    "arrive_threads": _make_arrive_threads,
    "sync_warp": _make_sync_warp,
    "elect": _make_elect,
    "arrive_cluster": _make_arrive_cluster,
    "fence_proxy_async": _make_fence_proxy,
    "order_fence": _make_nothing,
    "prefetch_tensor_map": _make_nothing,
    "prefetch_tensor": _make_nothing,
}
"""How to run each of these operations."""
