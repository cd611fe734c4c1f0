"""What agents meet at: barriers with phases, named barriers, cluster barriers, steps.

Each keeps the tokens that were handed over, and a queue of the agents that wait.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from reftile.interp.pipe.tokens import NOTHING, PipeToken
from reftile.ir.core import Op, Value
from reftile.ir.types import BarrierType, NamedBarrierType

if TYPE_CHECKING:
    from reftile.interp.pipe.flights import Landing
    from reftile.interp.pipe.machine import Agent, Home

Queue = list["Agent"]


class Misuse(Exception):
    """An operation broke the rule `pipe.<rule>` of a barrier."""

    def __init__(self, rule: str, message: str, hint: str = "") -> None:
        super().__init__(message)
        self.rule, self.message, self.hint = rule, message, hint


# Barriers with phases


@dataclass(slots=True, eq=False)
class Phases:
    """One element of a barrier array.

    number: of the phase under way. arrived: arrivals in it. bytes_missing: announced in it and not
    come yet; negative if more came. token, landings: handed over in it. completed,
    completed_landings: of the phase before. announced: the last operation that announced bytes.
    """

    expected: int
    number: int = 0
    arrived: int = 0
    bytes_missing: int = 0
    token: PipeToken = NOTHING
    landings: list[Landing] = field(default_factory=list["Landing"])
    completed: PipeToken = NOTHING
    completed_landings: list[Landing] = field(default_factory=list["Landing"])
    announced: Op | None = None
    queue: Queue = field(default_factory=list["Agent"])

    def arrive(self, op: Op, count: int, bytes: int, token: PipeToken) -> bool:
        """Take arrivals and announced bytes; True if that completes the phase."""
        if self.arrived + count > self.expected:
            raise Misuse(
                "arrivals",
                f"{self.arrived + count} arrivals in phase {self.number}, which awaits "
                f"{self.expected}",
                "arrive once for each phase, or raise `arrivals`",
            )
        self.arrived += count
        self.bytes_missing += bytes
        if bytes:
            self.announced = op
        self.token = self.token | token
        return self._complete()

    def credit(self, bytes: int, token: PipeToken, landing: Landing | None) -> bool:
        """Take bytes that a copy brought; True if that completes the phase."""
        self.bytes_missing -= bytes
        self.token = self.token | token
        if landing is not None:
            self.landings.append(landing)
        return self._complete()

    def _complete(self) -> bool:
        if self.arrived != self.expected or self.bytes_missing:
            return False
        self.number += 1
        self.arrived = 0
        self.completed, self.token = self.token, NOTHING
        self.completed_landings, self.landings = self.landings, []
        return True

    def is_passed(self, parity: int) -> bool:
        """True if a wait for this parity goes on."""
        return self.number & 1 != parity

    def state(self) -> str:
        """What has come of the phase under way, in words."""
        text = f"{self.arrived} of {self.expected} arrivals"
        if self.bytes_missing > 0:
            text += f", {self.bytes_missing} announced bytes still to come"
        elif self.bytes_missing < 0:
            text += f", {-self.bytes_missing} bytes more than announced"
        return text


class Barriers:
    """An array of barriers in one block."""

    __slots__ = ("elements", "home", "type", "value")

    def __init__(self, home: Home, value: Value, type: BarrierType) -> None:
        self.home, self.value, self.type = home, value, type
        self.elements = [Phases(type.arrivals) for _ in range(type.count)]

    def in_block(self, home: Home) -> Barriers:
        """The array of another block of the cluster."""
        return home.barriers[self.value]


# Named barriers


@dataclass(slots=True, eq=False)
class Meeting:
    """One named barrier: those who came to the meeting that has begun, and what they brought.

    number: of meetings that are over. over: the token of each meeting that somebody still leaves.
    """

    threads: int
    number: int = 0
    present: int = 0
    token: PipeToken = NOTHING
    members: list[Agent] = field(default_factory=list["Agent"])
    over: dict[int, PipeToken] = field(default_factory=dict[int, PipeToken])
    queue: Queue = field(default_factory=list["Agent"])

    def come(self, agent: Agent, token: PipeToken) -> bool:
        """Take all threads of a role; True if the meeting is over then."""
        if agent in self.members:
            raise Misuse(
                "named_twice",
                f"the threads of {agent.label} come twice to one meeting "
                f"({self.present} of {self.threads} threads are there)",
                "the others must come in between",
            )
        if self.present + agent.threads > self.threads:
            raise Misuse(
                "participants",
                f"{self.present + agent.threads} threads come to a meeting of {self.threads}",
            )
        self.present += agent.threads
        self.token = self.token | token
        self.members.append(agent)
        if self.present < self.threads:
            return False
        self.over[self.number] = self.token
        self.over.pop(self.number - 64, None)
        self.number += 1
        self.present, self.token = 0, NOTHING
        self.members = []
        return True


class NamedBarriers:
    """An array of named barriers in one block."""

    __slots__ = ("elements", "value")

    def __init__(self, value: Value, type: NamedBarrierType) -> None:
        self.value = value
        self.elements = [Meeting(type.threads) for _ in range(type.count)]


# Barriers that all threads of a block or a cluster count for themselves


@dataclass(slots=True, eq=False)
class Rounds:
    """A barrier whose n-th passing needs everybody's n-th coming: of a cluster, or `step`.

    threads: of all who take part. present, tokens: by round, from 1.
    """

    threads: int
    present: dict[int, int] = field(default_factory=dict[int, int])
    tokens: dict[int, PipeToken] = field(default_factory=dict[int, PipeToken])
    queue: Queue = field(default_factory=list["Agent"])

    def come(self, number: int, threads: int, token: PipeToken) -> bool:
        """Take some threads that come for the `number`-th time; True if all are there."""
        self.present[number] = self.present.get(number, 0) + threads
        self.tokens[number] = self.tokens.get(number, NOTHING) | token
        return self.is_over(number)

    def is_over(self, number: int) -> bool:
        """True if everybody has come `number` times."""
        return self.present.get(number, 0) >= self.threads
