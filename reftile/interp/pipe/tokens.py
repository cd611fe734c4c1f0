"""What a token of a `pipe` kernel waits for, and which two accesses race.

A token is three sets of accesses (spec/pipe.md, "Order"): those that are *done*, the writes *shown*
to the generic proxy, and the writes *fenced*: shown to the asynchronous proxy. Accesses are
numbered, and a set is an integer with a bit for each: joining is `|`, membership one shift. That is
exact, and for the some ten thousand accesses of a launch cheaper than clocks would be.

`PipeOrder` stands where `tile` kernels have `order.Order`, so that their loads, stores and atomics
run here unchanged.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import Any, Protocol

from reftile.interp.order import (
    DEVICE,
    NO_CLOCK,
    WEAK,
    Event,
    Order,
    Raced,
    Released,
    Token,
    morally_strong,
)
from reftile.ir.core import Op


class Issuer(Protocol):
    """Who issues accesses: an agent of the machine.

    base: what all its operations come after. performed: what its synchronous accesses and its
    waits have seen to.
    """

    linear: int
    number: int
    id: tuple[int, int, int]
    label: str
    base: PipeToken
    performed: PipeToken

    @property
    def cluster(self) -> object:
        """The blocks that barriers can order, its own among them."""
        ...

    @property
    def name(self) -> str:
        """The agent as messages name it."""
        ...


@dataclass(slots=True, eq=False)
class PipeToken(Token):
    """Three sets of accesses; bit i stands for the access with the number i."""

    done: int = 0
    shown: int = 0
    fenced: int = 0

    def __or__(self, other: PipeToken) -> PipeToken:
        if other is self or other is NOTHING:
            return self
        if self is NOTHING:
            return other
        return sets(self.done | other.done, self.shown | other.shown, self.fenced | other.fenced)

    def only_done(self) -> PipeToken:
        """What a relaxed arrival or wait lets through."""
        return sets(self.done, 0, 0)

    def everything(self) -> PipeToken:
        """All its accesses in all three sets, as fork gives them."""
        known = self.done | self.shown | self.fenced
        return sets(known, known, known)


def sets(done: int, shown: int, fenced: int) -> PipeToken:
    """A token of three sets."""
    return PipeToken(NO_CLOCK, -1, 0, done, shown, fenced)


NOTHING = sets(0, 0, 0)
"""The token that waits for nothing."""
KEPT = 64
"""Accesses that know what comes before them: those of the operation being done, and then some."""


def token_of(value: object) -> PipeToken:
    """A token operand; absent ones wait for nothing."""
    return value if isinstance(value, PipeToken) else NOTHING


def join_all(tokens: Iterable[PipeToken]) -> PipeToken:
    """All that `tokens` wait for."""
    joined = NOTHING
    for token in tokens:
        joined = joined | token
    return joined


@dataclass(slots=True, eq=False)
class Touch(Event):
    """An access of a `pipe` kernel: of one operation, to all the bytes that it touches.

    agent: who issued it. is_async: of the asynchronous proxy. in_flight: it happens after its
    issue, so that a wait must cover it. before: what is known to come before it.
    """

    agent: Issuer
    is_async: bool
    in_flight: bool
    is_read: bool
    before: PipeToken

    @property
    def bit(self) -> int:
        """The access as a set."""
        return 1 << self.id


def is_ordered(a: Touch, b: Touch) -> bool:
    """True if the token of `b` says that `a`, which came first, is over as far as `b` needs it."""
    known = b.before
    if not a.is_write:
        return bool(known.done >> a.id & 1)
    visible = (known.fenced if b.is_async else known.shown) >> a.id & 1
    return bool(visible) or (not b.is_read and bool(known.done >> a.id & 1))


@dataclass(slots=True, eq=False)
class PipeOrder(Order):
    """The accesses of a launch.

    agent: whose operation is being executed. shared: the accesses to the shared memory of each
    block. checks: races are looked for. raced: the two accesses of the race that was found.
    """

    agent: Issuer | None = None
    shared: dict[tuple[int, int, int], int] = field(default_factory=dict[Any, int])
    checks: bool = True
    raced: tuple[Touch, Touch] | None = None

    def begin(
        self,
        block: int,
        number: int,
        op: Op,
        token: Token | None,
        scope: int,
        size_bytes: int,
        ordering: str,
        is_write: bool,
    ) -> Touch:
        """Make the access of a synchronous operation of the generic proxy."""
        assert self.agent is not None
        reads = not is_write or op.definition.effects == "atomic"
        return self.record(
            self.agent, op, token_of(token), reads, is_write, scope, size_bytes, ordering
        )

    def record(
        self,
        agent: Issuer,
        op: Op,
        token: PipeToken,
        is_read: bool,
        is_write: bool,
        scope: int = WEAK,
        size_bytes: int = 1,
        ordering: str = "weak",
        is_async: bool = False,
        in_flight: bool = False,
    ) -> Touch:
        """Make an access that comes after what `token` waits for."""
        touch = Touch(
            len(self.events),
            -1,
            0,
            NO_CLOCK,
            agent.linear,
            agent.number,
            op,
            scope,
            size_bytes,
            ordering in ("acquire", "acq_rel"),
            ordering in ("release", "acq_rel"),
            is_write,
            agent,
            is_async,
            in_flight,
            is_read,
            token | agent.base,
        )
        self.events.append(touch)
        self._forget()
        if not in_flight:
            agent.performed = agent.performed | sets(touch.bit, touch.bit, 0)
        return touch

    def _forget(self) -> None:
        """Drop what comes before an access that nobody asks about any more: it has many bits."""
        if len(self.events) > KEPT:
            old = self.events[-KEPT]
            assert isinstance(old, Touch)
            if not old.releases:
                old.before = NOTHING

    def token(self, event: Event) -> PipeToken:
        """The token of a synchronous operation: its reads done, its writes shown."""
        assert isinstance(event, Touch)
        known, bit = event.before, event.bit
        if event.is_write:
            return sets(known.done, known.shown | bit, known.fenced)
        return sets(known.done | bit, known.shown, known.fenced)

    def completed(self, event: Touch) -> PipeToken:
        """The token of an asynchronous operation that was waited for."""
        known, bit = event.before, event.bit
        if not event.is_async:
            return self.token(event)
        if event.is_write:
            return sets(known.done | bit, known.shown | bit, known.fenced | bit)
        return sets(known.done | bit, known.shown, known.fenced)

    # Meeting what was there before

    def conflict(self, event: Event, others: int) -> Event | None:
        """A member of `others` that races with `event`."""
        assert isinstance(event, Touch)
        common = self.summaries[others]
        if (
            event.scope >= 0
            and common is not None
            and common.scope >= 0
            and common.size_bytes == event.size_bytes
            and (common.block == event.block or min(common.scope, event.scope) >= DEVICE)
        ):
            return None
        while others:
            top = self.tops[others]
            assert isinstance(top, Touch)
            if not is_ordered(top, event) and not morally_strong(top, event):
                return top
            others = self.parents[others]
        return None

    def meet(self, event: Event, writers: int, readers: int) -> tuple[int, int]:
        """Check `event` against a location's sets, and give the new (writers, readers).

        A write that does not race comes after all that touched the location before: what comes
        after the write comes after them, and they are forgotten.

        Raises:
            Raced: it races with a member.
        """
        assert isinstance(event, Touch)
        if not self.checks:
            return 0, 0
        # Readers first: that a read may not be over says more than what was written before it.
        other = self.conflict(event, readers) if event.is_write and readers else None
        other = other or self.conflict(event, writers)
        if other is not None:
            assert isinstance(other, Touch)
            self.raced = other, event
            raise Raced(other, event, 0)
        if not event.is_write:
            return writers, self.add(self._unknown_to(event, readers, 1), event)
        if event.scope < 0:
            return self.add(0, event), 0
        return (
            self.add(self._unknown_to(event, writers, 4), event),
            self._unknown_to(event, readers, 4),
        )

    def _unknown_to(self, event: Touch, others: int, looks: int) -> int:
        """`others` without those of its latest members that `event` comes after."""
        kept: list[Event] = []
        while others and looks:
            top = self.tops[others]
            assert isinstance(top, Touch)
            if not is_ordered(top, event):
                kept.append(top)
            others, looks = self.parents[others], looks - 1
        for member in reversed(kept):
            others = self.add(others, member)
        return others

    def acquire(self, event: Event, released: dict[int, Released], offsets: list[int]) -> None:
        """Let an acquire receive what the releases that it reads from hand over."""
        assert isinstance(event, Touch)
        for offset in offsets:
            found = released.get(offset)
            if found is None or not morally_strong(found.last, event):
                continue
            for release, _ in found.heads:
                if morally_strong(release, event):
                    event.before = event.before | self.token(release)
