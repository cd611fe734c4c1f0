"""What is under way: asynchronous operations between their issue and the wait that covers them."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field

from reftile.interp.coroutines import Queue
from reftile.interp.pipe.tokens import NOTHING, Issuer, PipeToken
from reftile.interp.values import Tile
from reftile.ir.core import Op

Stage = Callable[[], None]


@dataclass(slots=True, eq=False)
class Flight:
    """One asynchronous operation.

    stages: what is left to do, in order; the schedule picks the times. free_after: stages left
    when the source has been read. token: what a wait for all of it gives. free_token: what a wait
    for its reads gives. then: called when it is done. next: the product that runs behind it.
    queue: who waits for it. handed: its completion arrives on a barrier.
    """

    agent: Issuer
    op: Op
    stages: list[Stage] = field(default_factory=list[Stage])
    free_after: int = 0
    token: PipeToken = NOTHING
    free_token: PipeToken = NOTHING
    then: list[Callable[[], None]] = field(default_factory=list[Callable[[], None]])
    next: Flight | None = None
    queue: Queue = field(default_factory=Queue)
    handed: bool = False

    @property
    def is_done(self) -> bool:
        """True if it has happened."""
        return not self.stages

    @property
    def is_free(self) -> bool:
        """True if it has read its source."""
        return len(self.stages) <= self.free_after


@dataclass(slots=True, eq=False)
class Landing:
    """The arrival of a copy's bytes in one block, to be waited for before that block ends.

    unwaited: those of that block that nobody has waited for.
    """

    flight: Flight
    unwaited: set[Landing]

    def waited(self) -> None:
        """Note that somebody waited for the phase that its bytes were credited to."""
        self.unwaited.discard(self)


@dataclass(frozen=True, slots=True)
class Reach:
    """An access to another block, or an arrival there.

    round: of the cluster's barrier, whose passing says that it is over.
    """

    agent: Issuer
    op: Op
    round: int


@dataclass(slots=True, eq=False)
class Groups:
    """The copies of one engine that an agent has issued.

    open: since the last commit. closed: groups that no wait for `visible` has covered yet; the
    first `freed` of them were covered by one for `source_free`. settled, freed_token: of what was
    covered.
    """

    open: list[Flight] = field(default_factory=list[Flight])
    closed: list[list[Flight]] = field(default_factory=list[list[Flight]])
    freed: int = 0
    settled: PipeToken = NOTHING
    freed_token: PipeToken = NOTHING

    def commit(self) -> None:
        """Close the group of what is open."""
        self.closed.append(self.open)
        self.open = []

    def covered(self, in_flight: int, until_free: bool) -> list[Flight]:
        """What a wait must wait for."""
        end = max(0, len(self.closed) - in_flight)
        begin = self.freed if until_free else 0
        return [flight for group in self.closed[begin:end] for flight in group]

    def settle(self, in_flight: int, until_free: bool) -> PipeToken:
        """Note that a wait is over, and give its token."""
        end = max(0, len(self.closed) - in_flight)
        if until_free:
            for group in self.closed[self.freed : end]:
                for flight in group:
                    self.freed_token = self.freed_token | flight.free_token
            self.freed = max(self.freed, end)
            return self.freed_token | self.settled
        for group in self.closed[:end]:
            for flight in group:
                self.settled = self.settled | flight.token
        del self.closed[:end]
        self.freed = max(0, self.freed - end)
        return self.settled


@dataclass(slots=True, eq=False)
class Pending:
    """A value of type `pending`: the product that computes it, or nothing in flight.

    tile: the accumulators once the product is done.
    """

    flight: Flight | None
    tile: Tile | None
