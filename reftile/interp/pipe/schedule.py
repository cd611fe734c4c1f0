"""Who acts next: agents, and the stages of what is under way.

program       agents in order; what is under way happens when nobody else can go on
topo          anybody who can act, at random by seed
adversarial   what is under way as late and as disorderly as it may; with a seed other than 0,
              by random priorities that change a few times
"""

from __future__ import annotations

from collections.abc import Callable
from random import Random
from typing import NoReturn

from reftile.interp.pipe.control import finish
from reftile.interp.pipe.deadlock import describe_deadlock, describe_livelock
from reftile.interp.pipe.flights import Flight
from reftile.interp.pipe.machine import SPIN, Agent, PipeLaunch, Wait
from reftile.interp.schedule import Schedule
from reftile.ir.diagnostics import ReftileError

MOST_TOGETHER = 64
"""Blocks that run together unless the kernel says that blocks wait for one another."""
MOST_ROUNDS = 10_000
"""Times that all who spin may look at memory in turn without anybody changing it."""

Admit = Callable[[], "list[Agent] | None"]
"""Start the next cluster, and give the agents of its blocks; None if there is none."""


class Runner:
    """Runs a launch under a schedule. together: blocks that may run at the same time."""

    def __init__(self, launch: PipeLaunch, admit: Admit, ended: Callable[[Agent], None]) -> None:
        self.launch = launch
        self.admit = admit
        self.ended = ended
        self.live: list[Agent] = []
        self.spinning: list[tuple[Agent, int]] = []
        self.rounds = 0
        self.together = 1

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

    def advance(self, agent: Agent) -> None:
        """Let an agent go on to where it stops next."""
        launch = self.launch
        launch.current = launch.pipe_order.agent = agent
        try:
            stop = next(agent.coroutine)
        except StopIteration:
            launch.runnable.remove(agent)
            finish(agent)
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
                raise ReftileError(describe_livelock(launch, [a for a, _ in self.spinning]))
            if launch.progress != "none" and not changed:
                self.start()
            launch.runnable.extend(agent for agent, _ in self.spinning)
            self.spinning.clear()
            return False
        if self.live:
            self._deadlock()
        return not self.fill()

    def _deadlock(self) -> NoReturn:
        raise ReftileError(describe_deadlock(self.launch, self.live))


def run(runner: Runner, schedule: Schedule, seed: int) -> None:
    """Run all blocks to their ends."""
    launch = runner.launch
    if schedule == "program":
        _run_program(runner)
        return
    launch.preempts = True
    runner.together = MOST_TOGETHER if launch.progress == "none" else launch.block_count
    if schedule == "topo":
        _run_topo(runner, seed)
    else:
        _run_adversarial(runner, seed)


def _run_program(runner: Runner) -> None:
    launch = runner.launch
    while not runner.is_idle():
        while launch.runnable:
            agent = launch.runnable[0]
            runner.advance(agent)
            if launch.runnable and launch.runnable[0] is agent:
                launch.runnable.append(launch.runnable.pop(0))
        if launch.flights:
            launch.act(launch.flights[0])


def _run_topo(runner: Runner, seed: int) -> None:
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


def _run_adversarial(runner: Runner, seed: int) -> None:
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
        chosen = max([*launch.runnable, *launch.flights], key=rank)
        if count in changes:
            priority[chosen] = -float(count)
        count += 1
        if isinstance(chosen, Flight):
            launch.act(chosen)
        else:
            runner.advance(chosen)
