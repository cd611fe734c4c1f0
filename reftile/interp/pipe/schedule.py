"""Who acts next in a launch of a `pipe` kernel: roles, and the stages of what is under way."""

from __future__ import annotations

from collections.abc import Callable

from reftile.interp.coroutines import Runner
from reftile.interp.pipe.control import finish
from reftile.interp.pipe.deadlock import describe_deadlock, describe_livelock
from reftile.interp.pipe.flights import Flight
from reftile.interp.pipe.machine import Agent, PipeLaunch

Admit = Callable[[], "list[Agent] | None"]
"""Start the next cluster, and give the agents of its blocks; None if there is none."""


def make_runner(
    launch: PipeLaunch, admit: Admit, ended: Callable[[Agent], None]
) -> Runner[Agent, Flight]:
    """Return what runs a launch. ended: told of the blocks that have run to their ends."""

    def note(agent: Agent) -> None:
        finish(agent)
        if agent not in agent.home.agents:
            ended(agent)

    return Runner(
        launch,
        admit,
        note,
        lambda live: describe_deadlock(launch, live),
        lambda spinning: describe_livelock(launch, spinning),
    )
