"""Coroutines under a schedule: who acts next, agents or what is under way.

Interpreters below `tile` run their agents (roles, warps) as coroutines that stop where others may
act, and keep asynchronous operations as flights, of which the schedule picks the times.

program       agents in order; what is under way happens when nobody else can go on
topo          anybody who can act, at random by seed
adversarial   what is under way as late and as disorderly as it may; with a seed other than 0,
              by random priorities that change a few times
"""

from __future__ import annotations

from collections.abc import Callable, Generator, Iterable
from dataclasses import dataclass, field
from enum import Enum
from random import Random
from typing import Any, Generic, Protocol, TypeAlias, TypeVar

from reftile.interp.schedule import Schedule
from reftile.ir.core import Op, Value
from reftile.ir.diagnostics import Diagnosis, ReftileError

MOST_TOGETHER = 64
"""Blocks that run together unless the kernel says that blocks wait for one another."""
MOST_ROUNDS = 10_000
"""Times that all who spin may look at memory in turn without anybody changing it."""


class Pause(Enum):
    """Why an agent stopped that could go on.

    STEP: before an operation with effects, where others may act first. SPIN: at the end of an
    iteration that may wait for another block through memory.
    """

    STEP = "step"
    SPIN = "spin"


STEP, SPIN = Pause.STEP, Pause.SPIN


class Queue:
    """Who waits for something: what to call to let each look again."""

    __slots__ = ("waiting",)

    def __init__(self) -> None:
        self.waiting: list[Callable[[], None]] = []

    def wake(self) -> None:
        """Let all look again; those who still wait come back."""
        waiting, self.waiting = self.waiting, []
        for resume in waiting:
            resume()


class Lands(Protocol):
    """A flight that says when it is over. then: what is called at that time."""

    then: list[Callable[[], None]]

    @property
    def is_done(self) -> bool:
        """Whether it is over."""
        ...


def when_landed(flights: Iterable[Lands], act: Callable[[], None]) -> None:
    """Call `act` once the last of some flights is over: now, if none is under way."""
    missing = [flight for flight in flights if not flight.is_done]

    def one_less() -> None:
        missing.pop()
        if not missing:
            act()

    for flight in tuple(missing):
        flight.then.append(one_less)
    if not missing:
        act()


@dataclass(slots=True, eq=False)
class Wait:
    """What an agent waits for.

    queue: where whoever lets it go on finds it. what: in words. on: the barrier that is waited on,
    so that those who could arrive can be named.
    """

    op: Op
    queue: Queue
    what: Callable[[], str]
    on: Value | None = None


Ending: TypeAlias = "tuple[str, list[Any]]"
Run: TypeAlias = "Generator[Wait | Pause, None, Ending]"
Control: TypeAlias = "Generator[Wait | Pause, None, Ending | None]"


class Agent(Protocol):
    """Who runs as a coroutine. stuck: the version of memory at which it last looked in vain."""

    stuck: int
    coroutine: Run

    def sleep(self, wait: Wait) -> None:
        """Stop until what is waited for may have come."""
        ...


A = TypeVar("A", bound=Agent)
F = TypeVar("F")


class Launch(Protocol[A, F]):
    """What the agents of a launch share.

    runnable: agents that can go on. flights: what is under way and can happen now. version: counts
    changes of memory. preempts: agents stop before operations with effects.
    """

    runnable: list[A]
    flights: list[F]
    version: int
    preempts: bool

    @property
    def block_count(self) -> int:
        """The blocks of the grid."""
        ...

    @property
    def waits_across(self) -> bool:
        """True if the kernel says that blocks wait for one another."""
        ...

    def select(self, agent: A) -> None:
        """Note who acts from now on."""
        ...

    def act(self, flight: F) -> None:
        """Let the next stage of what is under way happen."""
        ...


@dataclass(slots=True)
class Runner(Generic[A, F]):
    """Runs a launch under a schedule.

    admit: start the next cluster, and give the agents of its blocks; None if there is none.
    ended: told of an agent that has run to its end; true if its block runs on without it.
    deadlock, livelock: the diagnosis when nobody can go on, or all only look at memory.
    live: agents that were admitted and have not ended. together: how many may be.
    """

    launch: Launch[A, F]
    admit: Callable[[], list[A] | None]
    ended: Callable[[A], None]
    deadlock: Callable[[list[A]], Diagnosis]
    livelock: Callable[[list[A]], Diagnosis]
    live: list[A] = field(default_factory=list[Any])
    spinning: list[tuple[A, int]] = field(default_factory=list[Any])
    rounds: int = 0
    together: int = 1

    def fill(self) -> bool:
        """Start clusters until as many blocks run as may; False if none runs."""
        while len(self.live) < self.together and self.start():
            pass
        return bool(self.live)

    def start(self) -> bool:
        """Start the next cluster; False if there is none."""
        agents = self.admit()
        if agents is None:
            return False
        self.live.extend(agents)
        self.launch.runnable.extend(agents)
        return True

    def advance(self, agent: A) -> None:
        """Let an agent go on to where it stops next."""
        launch = self.launch
        launch.select(agent)
        try:
            stop = next(agent.coroutine)
        except StopIteration:
            launch.runnable.remove(agent)
            if agent in self.live:
                self.live.remove(agent)
            self.ended(agent)
            return
        if isinstance(stop, Wait):
            agent.sleep(stop)
        elif stop is SPIN:
            if launch.version == agent.stuck:
                launch.runnable.remove(agent)
                self.spinning.append((agent, launch.version))
            agent.stuck = launch.version

    def is_idle(self) -> bool:
        """True if nobody can act: then let those who spin look again, or start more blocks."""
        launch = self.launch
        if launch.runnable or launch.flights:
            return False
        if self.spinning:
            changed = any(version != launch.version for _, version in self.spinning)
            self.rounds = 0 if changed else self.rounds + 1
            if self.rounds > MOST_ROUNDS:
                raise ReftileError(self.livelock([a for a, _ in self.spinning]))
            if launch.waits_across and not changed:
                self.start()
            launch.runnable.extend(agent for agent, _ in self.spinning)
            self.spinning.clear()
            return False
        if self.live:
            raise ReftileError(self.deadlock(self.live))
        return not self.fill()


def run(runner: Runner[A, F], schedule: Schedule, seed: int) -> None:
    """Run all blocks to their ends."""
    launch = runner.launch
    if schedule == "program":
        _run_program(runner)
        return
    launch.preempts = True
    runner.together = launch.block_count if launch.waits_across else MOST_TOGETHER
    if schedule == "topo":
        _run_topo(runner, seed)
    else:
        _run_adversarial(runner, seed)


def _run_program(runner: Runner[A, F]) -> None:
    launch = runner.launch
    while not runner.is_idle():
        while launch.runnable:
            agent = launch.runnable[0]
            runner.advance(agent)
            if launch.runnable and launch.runnable[0] is agent:
                launch.runnable.append(launch.runnable.pop(0))
        if launch.flights:
            launch.act(launch.flights[0])


def _run_topo(runner: Runner[A, F], seed: int) -> None:
    launch, random = runner.launch, Random(seed)
    # Some runs have engines that hurry, others engines that dawdle.
    share = random.choice((0.02, 0.2, 0.5, 0.9))
    while not runner.is_idle():
        if launch.flights and (not launch.runnable or random.random() < share):
            launch.act(random.choice(launch.flights))
        else:
            runner.advance(random.choice(launch.runnable))


CHANGES = 3
"""Times that a run by priority changes its mind."""
CHANGE_WITHIN = 512
"""Actions within which the first change happens; each later one may come twice as late."""


def _run_adversarial(runner: Runner[A, F], seed: int) -> None:
    launch = runner.launch
    if seed == 0:
        while not runner.is_idle():
            if launch.runnable:
                runner.advance(launch.runnable[-1])
            else:
                launch.act(launch.flights[-1])
        return
    random = Random(seed)
    priority: dict[object, float] = {}
    changes = {random.randrange(CHANGE_WITHIN << i) for i in range(CHANGES)}
    count = 0

    def rank(who: object) -> float:
        if who not in priority:
            priority[who] = random.random()
        return priority[who]

    while not runner.is_idle():
        agent = max(launch.runnable, key=rank, default=None)
        flight = max(launch.flights, key=rank, default=None)
        flies = flight is not None and (agent is None or rank(flight) > rank(agent))
        chosen = flight if flies else agent
        if count in changes:
            priority[chosen] = -float(count)
        count += 1
        if flies and flight is not None:
            launch.act(flight)
        elif agent is not None:
            runner.advance(agent)
