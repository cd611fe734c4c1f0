"""The machine of `pipe` kernels: agents advance through a plan; blocks of a cluster run together.

An agent is one replica of a role in one block, or the block itself for what stands before and
behind its roles. It is a coroutine that runs its operations in the order of the text. What it
yields tells the schedule why it stopped:

    a Wait    it cannot go on until somebody wakes the queue in which it stands
    STEP      before an operation with effects: others may act first
    SPIN      the end of an iteration that may wait for another block through memory
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any, NoReturn

from reftile.interp.coroutines import Queue, Run, Wait
from reftile.interp.machine import Block, Launch
from reftile.interp.pipe.barriers import Barriers, Misuse, NamedBarriers, Rounds
from reftile.interp.pipe.findings import describe_global_race, describe_shared_race
from reftile.interp.pipe.flights import Flight, Groups, Landing, Reach
from reftile.interp.pipe.places import Allocation, RacedAt
from reftile.interp.pipe.tokens import NOTHING, PipeOrder, PipeToken
from reftile.interp.plan import Plan, Step
from reftile.interp.values import Tile
from reftile.ir.core import Op, Value
from reftile.ir.diagnostics import Diagnosis, ReftileError, Span

Index3 = tuple[int, int, int]


@dataclass(slots=True, eq=False)
class Cluster:
    """Blocks that run together. homes: by rank. barrier: of `cluster_arrive`."""

    homes: list[Home]
    barrier: Rounds


@dataclass(slots=True, eq=False)
class Home:
    """One block: its shared memory, its barriers, its agents.

    shared_top: the first free byte of shared memory. landings, sources: copies that nobody has
    waited for, which must be none when the block ends. reaches: accesses of other blocks.
    """

    launch: PipeLaunch
    cluster: Cluster
    linear: int
    rank: int
    id: Index3
    steps: Rounds
    allocations: dict[Value, Allocation] = field(default_factory=dict[Value, Allocation])
    barriers: dict[Value, Barriers] = field(default_factory=dict[Value, Barriers])
    named: dict[Value, NamedBarriers] = field(default_factory=dict[Value, NamedBarriers])
    agents: list[Agent] = field(default_factory=list["Agent"])
    shared_top: int = 0
    landings: set[Landing] = field(default_factory=set["Landing"])
    joining: Queue = field(default_factory=Queue)
    reaches: list[Reach] = field(default_factory=list[Reach])
    ended: bool = False


@dataclass(slots=True, eq=False)
class PipeLaunch(Launch):
    """What all blocks of a launch of a `pipe` kernel share.

    plans: by cluster rank. preempts: agents stop before operations with effects. runnable: agents
    that can go on. flights: asynchronous operations of which a stage can happen now.
    """

    pipe_order: PipeOrder = field(default_factory=PipeOrder)
    plans: list[Plan[Block]] = field(default_factory=list[Plan[Block]])
    cluster_extents: Index3 = (1, 1, 1)
    preempts: bool = False
    runnable: list[Agent] = field(default_factory=list["Agent"])
    flights: list[Flight] = field(default_factory=list["Flight"])
    operations: int = 0

    def fly(self, flight: Flight) -> None:
        """Let an asynchronous operation happen from now on."""
        self.flights.append(flight)

    @property
    def waits_across(self) -> bool:
        """True if the kernel says that blocks wait for one another."""
        return self.progress != "none"

    def select(self, agent: Agent) -> None:
        """Note who acts from now on."""
        self.current = self.pipe_order.agent = agent

    def act(self, flight: Flight) -> None:
        """Do the next stage of an asynchronous operation, which is in `flights`."""
        stage = flight.stages.pop(0)
        self.pipe_order.agent = flight.agent
        stage()
        flight.queue.wake()
        if flight.is_done:
            self.flights.remove(flight)
            for follow in flight.then:
                follow()
            if flight.next is not None:
                self.flights.append(flight.next)


class Agent(Block):
    """A replica of a role, or a block before and behind its roles.

    label: for messages; role: without the replica. base: what fork handed on. performed: all that
    its operations' tokens wait for. products: started and not waited for, oldest first; settled:
    the token of the others. newest: the product that the next one runs behind.
    """

    __slots__ = (
        "base",
        "bulk_copies",
        "cluster_arrivals",
        "cluster_waits",
        "coroutine",
        "home",
        "is_done",
        "label",
        "newest",
        "performed",
        "pipe",
        "products",
        "replica",
        "replicas",
        "role",
        "settled",
        "step_count",
        "thread_copies",
        "threads",
        "waiting",
        "warps",
    )

    def __init__(self, home: Home, env: list[Any], label: str, warps: int, threads: int) -> None:
        self.launch = self.pipe = home.launch
        self.home = home
        self.linear, self.id = home.linear, home.id
        self.env = env
        self.deferred = self.draining = False
        self.step: Step[Block] | None = None
        self.number = self.sequence = self.pending = 0
        self.allocated = []
        self.stuck = -1
        self.label = self.role = label
        self.warps, self.threads = warps, threads
        self.replica, self.replicas = 0, 1
        self.base = self.performed = NOTHING
        self.thread_copies, self.bulk_copies = Groups(), Groups()
        self.products: list[Flight] = []
        self.newest: Flight | None = None
        self.settled: PipeToken = NOTHING
        self.cluster_arrivals = self.cluster_waits = self.step_count = 0
        self.waiting: Wait | None = None
        self.is_done = False
        self.coroutine: Run

    def sleep(self, wait: Wait) -> None:
        """Stop until what is waited for may have come."""
        self.pipe.runnable.remove(self)
        self.waiting = wait
        wait.queue.waiting.append(self.resume)

    def resume(self) -> None:
        """Look again."""
        self.waiting = None
        self.pipe.runnable.append(self)

    @property
    def cluster(self) -> object:
        """The blocks that barriers can order, its own among them."""
        return self.home.cluster

    @property
    def members(self) -> list[Agent]:
        """The agents for whose threads this one stands: its roles' in the epilogue, else itself."""
        started = self.home.agents
        return started if started and self not in started else [self]

    @property
    def name(self) -> str:
        """The agent as messages name it."""
        return f"{self.label} of block {self.launch.block_name(self.linear)}"

    def copies(self, engine: object) -> Groups:
        """The groups of an engine."""
        return self.bulk_copies if engine == "bulk" else self.thread_copies

    def perform(self, step: Step[Block]) -> None:
        """Run an operation that does not block."""
        launch, env = self.pipe, self.env
        launch.current = launch.pipe_order.agent = self
        self.step = step
        self.number += 1
        try:
            results = step.apply(self, [env[i] for i in step.inputs])
        except RacedAt as race:
            raise ReftileError(describe_shared_race(race)) from None
        except Misuse as misuse:
            self.misuse(misuse, step.op)
        except ReftileError as error:
            raise self.restated(error) from None
        for slot, result in zip(step.outputs, results, strict=True):
            env[slot] = result
            if type(result) is PipeToken:
                self.performed = self.performed | result

    def restated(self, error: ReftileError) -> ReftileError:
        """An error of a `tile` operation; a race is told in the words of this level."""
        raced = self.pipe.pipe_order.raced
        if raced is None or not error.diagnosis.rule.startswith("race."):
            return error
        return ReftileError(describe_global_race(self.launch.memory, raced, error.diagnosis))

    def misuse(self, misuse: Misuse, op: Op) -> NoReturn:
        """Raise what was done wrong to a barrier by `op`."""
        rule = f"pipe.{misuse.rule}"
        self.fault(rule, misuse.message, hint=misuse.hint, op=misuse.op or op)

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
        """Raise what is wrong, with the role."""
        try:
            Block.fault(self, rule, message, position, address, hint, op, shape, origin)
        except ReftileError as error:
            found = error.diagnosis
            notes: tuple[tuple[str, Span | None], ...] = (
                *found.notes[:-1],
                (f"in {self.name}", None),
            )
            data = {**found.data, "role": self.label}
            raise ReftileError(
                Diagnosis(found.rule, found.message, found.span, found.hint, notes, data=data)
            ) from None

    def integer(self, tile: Tile, what: str) -> int:
        """A scalar that names a place or a phase."""
        return self.scalar(tile, "address", what)
