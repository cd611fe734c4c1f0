"""What agents meet at: barriers with phases, named barriers, cluster barriers, steps.

Each keeps the tokens that were handed over, and a queue of the agents that wait.
"""

from __future__ import annotations

from dataclasses import dataclass, field

from reftile.interp.coroutines import Queue
from reftile.interp.pipe.flights import Landing, Reach
from reftile.interp.pipe.tokens import NOTHING, Issuer, PipeToken
from reftile.ir.core import Op, Value
from reftile.ir.types import BarrierType, NamedBarrierType


class Misuse(Exception):
    """An operation broke the rule `pipe.<rule>` of a barrier: the one being done, or `op`."""

    def __init__(self, rule: str, message: str, hint: str = "", op: Op | None = None) -> None:
        super().__init__(message)
        self.rule, self.message, self.hint, self.op = rule, message, hint, op


# Barriers with phases


@dataclass(slots=True, eq=False)
class Phases:
    """One element of a barrier array.

    number: of the phase under way. arrived: arrivals in it. bytes_missing: announced in it and not
    come yet; negative if more came. token, landings: handed over in it. completed,
    completed_landings: of the phase before. announced: the last operation that announced bytes.
    coming: copies that were issued in it and have not landed. reaches, completed_reaches: arrivals
    from other blocks for which nobody has waited.
    """

    expected: int
    number: int = 0
    arrived: int = 0
    bytes_missing: int = 0
    token: PipeToken = NOTHING
    landings: list[Landing] = field(default_factory=list[Landing])
    completed: PipeToken = NOTHING
    completed_landings: list[Landing] = field(default_factory=list[Landing])
    announced: Op | None = None
    coming: list[Landing] = field(default_factory=list[Landing])
    reaches: list[Reach] = field(default_factory=list[Reach])
    completed_reaches: list[Reach] = field(default_factory=list[Reach])
    queue: Queue = field(default_factory=Queue)

    def arrive(self, op: Op, count: int, bytes: int, token: PipeToken) -> None:
        """Take arrivals and announced bytes, which may complete the phase."""
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
        self._complete()

    def credit(self, bytes: int, token: PipeToken, landing: Landing) -> None:
        """Take bytes that a copy brought, which may complete the phase."""
        self.bytes_missing -= bytes
        self.token = self.token | token
        self.coming.remove(landing)
        self.landings.append(landing)
        self._complete()

    def _complete(self) -> None:
        if self.arrived != self.expected or self.bytes_missing:
            return
        if self.coming:
            line = self.coming[0].flight.op.span.line
            raise Misuse(
                "transaction_bytes",
                f"phase {self.number} is complete, and the copy of line {line} has not brought "
                "its bytes: more are under way than were announced",
                "announce what the copies bring: each its buffer, a multicast to each block",
                self.announced,
            )
        self.number += 1
        self.arrived = 0
        self.completed_reaches, self.reaches = self.reaches, []
        self.completed, self.token = self.token, NOTHING
        self.completed_landings, self.landings = self.landings, []
        self.queue.wake()

    def waited(self) -> None:
        """Note that somebody has waited for the phase before the one under way."""
        for landing in self.completed_landings:
            landing.waited()
        self.completed_reaches = []

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
    """An array of barriers in one block. scope: "cluster" if other blocks arrive."""

    __slots__ = ("elements", "scope", "value")

    def __init__(self, value: Value, type: BarrierType) -> None:
        self.value, self.scope = value, type.scope
        self.elements = [Phases(type.arrivals) for _ in range(type.count)]


# Named barriers


@dataclass(slots=True, eq=False)
class Meeting:
    """One meeting at a named barrier: who has come, and what their tokens wait for."""

    number: int
    present: int = 0
    token: PipeToken = NOTHING
    members: list[Issuer] = field(default_factory=list[Issuer])
    is_over: bool = False


@dataclass(slots=True, eq=False)
class NamedBarrier:
    """A named barrier and the meeting that has begun there. threads: that meet."""

    threads: int
    meeting: Meeting = field(default_factory=lambda: Meeting(0))
    queue: Queue = field(default_factory=Queue)

    def come(self, agent: Issuer, threads: int, token: PipeToken) -> Meeting:
        """Let all threads of a role come, and give the meeting that they come to."""
        meeting = self.meeting
        if agent in meeting.members:
            raise Misuse(
                "named_twice",
                f"the threads of {agent.label} come twice to one meeting "
                f"({meeting.present} of {self.threads} threads are there)",
                "the others must come in between",
            )
        if meeting.present + threads > self.threads:
            raise Misuse(
                "participants",
                f"{meeting.present + threads} threads come to a meeting of {self.threads}",
            )
        meeting.present += threads
        meeting.token = meeting.token | token
        meeting.members.append(agent)
        if meeting.present == self.threads:
            meeting.is_over = True
            self.meeting = Meeting(meeting.number + 1)
            self.queue.wake()
        return meeting


class NamedBarriers:
    """An array of named barriers in one block."""

    __slots__ = ("elements", "value")

    def __init__(self, value: Value, type: NamedBarrierType) -> None:
        self.value = value
        self.elements = [NamedBarrier(type.threads) for _ in range(type.count)]


# Barriers that all threads of a block or a cluster count for themselves


@dataclass(slots=True, eq=False)
class Rounds:
    """A barrier whose n-th passing needs everybody's n-th coming: of a cluster, or `step`.

    threads: of all who take part. present, tokens: by round, from 1; nobody is further behind than
    one round.
    """

    threads: int
    present: dict[int, int] = field(default_factory=dict[int, int])
    tokens: dict[int, PipeToken] = field(default_factory=dict[int, PipeToken])
    queue: Queue = field(default_factory=Queue)

    def come(self, number: int, threads: int, token: PipeToken) -> None:
        """Let some threads come for the `number`-th time."""
        self.present[number] = self.present.get(number, 0) + threads
        self.tokens[number] = self.tokens.get(number, NOTHING) | token
        self.tokens.pop(number - 2, None)
        if self.is_over(number):
            self.queue.wake()

    def is_over(self, number: int) -> bool:
        """True if everybody has come `number` times."""
        return self.present.get(number, 0) >= self.threads
