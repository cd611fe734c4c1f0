"""The machine of `simt` kernels: warps advance through a plan; blocks of a cluster run together.

A warp is a coroutine (see `interp.coroutines`) that runs operations for the lanes of its mask. A
scalar is an array of 32 lanes, or of no axes if all lanes have the same; a fragment is an array of
(registers, lanes). Where lanes part, branches run one behind the other.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any, NoReturn

import numpy as np

from reftile.interp.coroutines import Queue, Run, Wait
from reftile.interp.machine import Block, Launch
from reftile.interp.memory import NEVER_WRITTEN, Buffer
from reftile.interp.plan import Step
from reftile.interp.simt.clocks import ALL_LANES, LANES, Agents, Clock, Indices, Knowledge
from reftile.interp.simt.findings import describe_race
from reftile.interp.simt.shadow import Origin, Raced, Shadow, Visit
from reftile.interp.values import Mask, Tile
from reftile.ir.core import Op
from reftile.ir.diagnostics import Diagnosis, ReftileError, Span
from reftile.ir.dtypes import DTYPES

Index3 = tuple[int, int, int]
SHARED_BASE = 1024
"""Where shared memory begins in the window of a block: a multiple of 1024, and not null."""
RANK_SHIFT = 24
"""Addresses of the cluster's window have the block's rank, plus 1, above this bit."""


@dataclass(slots=True, eq=False)
class Flight:
    """What is under way: stages left, in order. queue: who waits. then: called at the end."""

    warp: Warp
    op: Op
    stages: list[Callable[[], None]]
    queue: Queue = field(default_factory=Queue)
    then: list[Callable[[], None]] = field(default_factory=list[Callable[[], None]])

    @property
    def is_done(self) -> bool:
        """True if it has happened."""
        return not self.stages


@dataclass(slots=True, eq=False)
class SimtLaunch(Launch):
    """What all blocks of a launch of a `simt` kernel share.

    agents: the numbers of a cluster. checks: races are looked for. cell_bytes: of the shadows of
    shared and of global memory. written: the global buffers that the kernel may write.
    first_threads: the agent of lane 0 of each warp of a cluster.
    conflicts: per operation, accesses and passes through shared memory, and passes without
    conflicts.
    """

    agents: Agents = field(default_factory=lambda: Agents(1, 1))
    cluster_extents: Index3 = (1, 1, 1)
    warps: int = 1
    shared_bytes: int = 0
    checks: bool = True
    preempts: bool = False
    cell_bytes: tuple[int, int] = (1, 1)
    written: set[Buffer] = field(default_factory=set[Buffer])
    runnable: list[Warp] = field(default_factory=list["Warp"])
    flights: list[Flight] = field(default_factory=list["Flight"])
    known_origins: list[Origin] = field(default_factory=list[Origin])
    origin_numbers: dict[tuple[Op, str], int] = field(default_factory=dict[tuple[Op, str], int])
    first_threads: dict[int, int] = field(default_factory=dict[int, int])
    operations: int = 0
    accesses: int = 0
    conflicts: dict[Op, list[int]] = field(default_factory=dict[Op, list[int]])
    passes: dict[bytes, tuple[int, int]] = field(default_factory=dict[bytes, tuple[int, int]])

    @property
    def waits_across(self) -> bool:
        """True if the kernel says that blocks wait for one another."""
        return self.progress != "none"

    def select(self, agent: Warp) -> None:
        """Note who acts from now on."""
        self.current = agent

    def fly(self, flight: Flight) -> None:
        """Let an asynchronous operation happen from now on."""
        self.flights.append(flight)

    def act(self, flight: Flight) -> None:
        """Do the next stage of an asynchronous operation."""
        stage = flight.stages.pop(0)
        self.current = flight.warp
        stage()
        if flight.is_done:
            self.flights.remove(flight)
            for follow in flight.then:
                follow()
        flight.queue.wake()

    def next_operation(self) -> int:
        """A number for a bulk operation."""
        self.operations += 1
        return self.operations

    def origin(self, op: Op, warp: Warp, is_async: bool, in_flight: bool) -> int:
        """The number of an access for messages."""
        key = op, warp.name
        found = self.origin_numbers.get(key)
        if found is None:
            found = self.origin_numbers[key] = len(self.known_origins)
            origin = Origin(op, warp.name, warp.home.rank, is_async, in_flight)
            self.known_origins.append(origin)
        return found


@dataclass(slots=True, eq=False)
class Cluster:
    """Blocks that run together. homes: by rank. rounds: of the cluster's barrier."""

    launch: SimtLaunch
    homes: list[Home]
    shadows: dict[Buffer, Shadow] = field(default_factory=dict[Buffer, Shadow])
    rounds: dict[int, tuple[int, Clock]] = field(default_factory=dict[int, tuple[int, Clock]])
    queue: Queue = field(default_factory=Queue)

    def first_threads(self) -> dict[int, int]:
        """The agent of lane 0, by the number of a warp in the cluster."""
        return self.launch.first_threads


class Home:
    """One block: its shared memory, its barriers, its warps, what is under way in it."""

    def __init__(self, launch: SimtLaunch, cluster: Cluster, linear: int, rank: int, id: Index3):
        self.launch, self.cluster = launch, cluster
        self.linear, self.rank, self.id = linear, rank, id
        size = launch.shared_bytes
        data = np.zeros(size, np.uint8)
        self.shared = Buffer("shared memory", SHARED_BASE, data, DTYPES["i8"])
        self.shared.state = np.full(size, NEVER_WRITTEN, np.uint8)
        self.shadow = Shadow(size, launch.cell_bytes[0], launch.known_origins, rank)
        self.mbarriers: dict[int, Any] = {}
        self.named: dict[int, Any] = {}
        self.engines: dict[int, Any] = {}
        self.warps: list[Warp] = []
        self.free_registers = 0
        self.registers_queue = Queue()
        self.landings: dict[Flight, str] = {}
        self.reaches: list[tuple[Warp, Op, int]] = []
        self.ended = False

    def over(self, flight: Flight) -> None:
        """Note that something under way need not be waited for any more."""
        self.landings.pop(flight, None)

    @property
    def name(self) -> str:
        """The block as messages name it."""
        return self.launch.block_name(self.linear)


class Warp(Block):
    """32 threads of a block.

    mask: the lanes that run now. frames: of the loops around. knowledge: what its lanes know.
    products: see `products`. bulk, copies: groups of what the lanes have issued.
    """

    __slots__ = (
        "bulk",
        "cluster_arrivals",
        "cluster_waits",
        "copies",
        "copy_count",
        "coroutine",
        "fences",
        "frames",
        "home",
        "index",
        "is_done",
        "knowledge",
        "mask",
        "open_copies",
        "products",
        "registers",
        "simt",
        "stamps",
        "taken",
        "waiting",
    )

    def __init__(self, home: Home, index: int, env: list[Any]) -> None:
        self.launch = self.simt = home.launch
        self.home, self.index = home, index
        self.linear, self.id = home.linear, home.id
        self.env = env
        self.deferred = self.draining = False
        self.step: Step[Block] | None = None
        self.number = self.sequence = self.pending = 0
        self.allocated = []
        self.stuck = -1
        self.mask: Mask = ALL_LANES
        self.frames: list[Any] = []
        agents = home.launch.agents
        self.knowledge = Knowledge(agents, agents.thread(home.rank, index))
        self.bulk: dict[int, Any] = {}
        self.copies: list[Any] = []
        self.open_copies: list[Any] = []
        self.copy_count = 0
        self.products: Any = None
        self.fences = 0
        self.stamps: dict[int, int] = {}
        self.taken: dict[int, Op] = {}
        self.registers = 0
        self.cluster_arrivals = np.zeros(LANES, np.int64)
        self.cluster_waits = np.zeros(LANES, np.int64)
        self.waiting: Wait | None = None
        self.is_done = False
        self.coroutine: Run

    # As an agent

    def sleep(self, wait: Wait) -> None:
        """Stop until what is waited for may have come."""
        self.simt.runnable.remove(self)
        self.waiting = wait
        wait.queue.waiting.append(self.resume)

    def resume(self) -> None:
        """Look again."""
        self.waiting = None
        self.simt.runnable.append(self)

    @property
    def name(self) -> str:
        """The warp as messages name it."""
        return f"warp {self.index} of block {self.home.name}"

    @property
    def number_in_cluster(self) -> int:
        """Its number among the warps of the cluster."""
        return self.home.rank * self.simt.warps + self.index

    @property
    def lanes(self) -> Indices:
        """The lanes that run now."""
        return np.flatnonzero(self.mask)

    def perform(self, step: Step[Block]) -> None:
        """Run an operation that does not block."""
        env = self.env
        self.step = step
        self.number += 1
        try:
            results = step.apply(self, [env[i] for i in step.inputs])
        except Raced as race:
            self.raced(race)
        for slot, result in zip(step.outputs, results, strict=True):
            env[slot] = result

    # Faults

    def raced(self, race: Raced) -> NoReturn:
        """Raise a race as a diagnosis."""
        found = describe_race(race, self.whereabouts(), {"block": self.id, "warp": self.index})
        raise ReftileError(found) from None

    def fault(
        self,
        rule: str,
        message: str,
        position: int | None = None,
        address: int | None = None,
        hint: str = "",
        op: Op | None = None,
        shape: tuple[int, ...] = (),
        origin: Sequence[tuple[str, Span | None]] = (),
    ) -> NoReturn:
        """Raise what is wrong, with the warp and its lanes."""
        if op is None:
            assert self.step is not None
            op = self.step.op
        notes: tuple[tuple[str, Span | None], ...] = (
            *origin,
            (f"in {self.whereabouts()}", None),
        )
        data: dict[str, object] = {"block": self.id, "warp": self.index}
        if position is not None:
            data["position"] = position
        if address is not None:
            data["address"] = address
        raise ReftileError(Diagnosis(rule, message, op.span, hint, notes, data=data))

    def whereabouts(self) -> str:
        """The warp, and the lanes if not all run."""
        if self.mask.all():
            return self.name
        return f"lanes {lanes_text(self.mask)} of {self.name}"

    def report(self, rule: str, message: str, where: Mask) -> None:
        """Raise a violation that a pure operation found in lanes that run."""
        found = np.asarray(where)
        if found.ndim:
            found = found & self.mask
        if not found.any():
            return
        assert self.step is not None
        name = rule if "." in rule else f"{self.step.op.name}.{rule}"
        lane = int(np.argmax(found.reshape(-1, LANES).any(0))) if found.ndim else None
        self.fault(name, message, lane)

    def demand(self, tile: Tile, rule: str, what: str, op: Op | None = None) -> None:
        """Raise if a lane that runs has poison in a tile: `what` must not be."""
        if tile.poison is None:
            return
        bad = np.broadcast_to(tile.poison, tile.data.shape)
        bad = bad & self.mask if bad.ndim else bad
        if bad.any():
            hint = "poison comes from memory that was never written, or an undefined result"
            self.fault(
                f"poison.{rule}", f"{what} is poison: it has no defined value", hint=hint, op=op
            )

    def each(self, tile: Tile, what: str) -> Indices:
        """A scalar of each lane; those that do not run have any number."""
        self.demand(tile, "address", what)
        return np.broadcast_to(tile.data, (LANES,)).astype(np.int64)

    def one(self, tile: Tile, what: str) -> int:
        """A scalar that must be the same in all lanes that run."""
        values = self.each(tile, what)[self.mask]
        if (values != values[0]).any():
            self.fault(
                "simt.uniform",
                f"{what} differs between lanes: {values[0]} and "
                f"{values[int(np.argmax(values != values[0]))]}",
            )
        return int(values[0])

    def together(self, what: str) -> None:
        """Raise unless all lanes of the warp run."""
        if not self.mask.all():
            self.fault(
                "simt.divergent",
                f"`{what}` is of whole warps, and lanes {lanes_text(~self.mask)} do not come along",
                hint="let all lanes take the branch, or move it behind",
            )

    # Accesses

    def visit(
        self, cells: Indices, lanes: Indices, is_async: bool = False, in_flight: bool = False
    ) -> Visit:
        """An access of this warp's lanes to cells."""
        assert self.step is not None
        know = self.knowledge
        self.simt.accesses += 1
        origin = self.simt.origin(self.step.op, self, is_async, in_flight)
        return Visit(
            know, cells, lanes, know.first + lanes, know.epoch, self.number_in_cluster, origin
        )


def lanes_text(mask: Mask) -> str:
    """Lanes in words: "0, 4-7"."""
    lanes = [int(n) for n in np.flatnonzero(mask)]
    parts: list[str] = []
    while lanes:
        end = 0
        while end + 1 < len(lanes) and lanes[end + 1] == lanes[end] + 1:
            end += 1
        parts.append(str(lanes[0]) if end == 0 else f"{lanes[0]}-{lanes[end]}")
        lanes = lanes[end + 1 :]
    return ", ".join(parts)
