"""What happens before what: clocks over the token graph, release and acquire, and data races.

A block has no threads: its memory operations form a graph by their tokens. The graph is cut into
*chains* greedily: an operation continues the chain of the token it takes if it is the first to do
so, else it begins a new one. An operation instance (an `Event`) is then a chain and a count, and a
*clock* says, per chain, up to which count everything has happened. A token carries the clock of
what it waits for; joining tokens joins clocks; an acquire joins the clock of the release it reads
from. `e` happens before `f` exactly if the clock of `f` covers `e`.

The elements of one operation share one event: they have the same order, scope, size and clock.
Initial contents happen before everything and the host's look at the end after everything, so
neither appears here.

Which events wrote and read a location, and are not covered by later ones, is kept beside each
buffer: see `shadow`.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import TypeAlias

from reftile.ir.core import Op

Clock: TypeAlias = Mapping[int, int]
NO_CLOCK: Clock = {}
WEAK, BLOCK, DEVICE, SYSTEM = -1, 0, 1, 2
SCOPES = {None: WEAK, "tl_blk": BLOCK, "device": DEVICE, "sys": SYSTEM}
"""Scopes as numbers; a weak access has none."""


@dataclass(slots=True, eq=False)
class Token:
    """What a token waits for; `chain` and `count` name the event that a successor may continue."""

    clock: Clock
    chain: int = -1
    count: int = 0


ROOT = Token(NO_CLOCK)
"""The token that waits for nothing."""


def join(tokens: tuple[Token, ...]) -> Token:
    """The token that waits for all that `tokens` wait for."""
    busy = [t for t in tokens if t.clock]
    if len(busy) <= 1:
        return busy[0] if busy else ROOT
    clock = dict(busy[0].clock)
    for token in busy[1:]:
        add_clock(clock, token.clock)
    return Token(clock, busy[0].chain, busy[0].count)


def add_clock(clock: dict[int, int], other: Clock) -> None:
    """Let `clock` cover what `other` covers."""
    for chain, count in other.items():
        if clock.get(chain, 0) < count:
            clock[chain] = count


@dataclass(slots=True, eq=False)
class Event:
    """One execution of a memory operation.

    clock: covers what happens before it; not itself.
    number: of the operation instance within its block, in the order of the program.
    scope: WEAK, BLOCK, DEVICE or SYSTEM.
    size_bytes: of each access.
    """

    id: int
    chain: int
    count: int
    clock: Clock
    block: int
    number: int
    op: Op
    scope: int
    size_bytes: int
    acquires: bool
    releases: bool
    is_write: bool


@dataclass(slots=True)
class Summary:
    """What all events of a set have in common: -1 where they differ.

    scope: the narrowest; WEAK if any is weak.
    """

    scope: int
    size_bytes: int
    block: int


class Raced(Exception):
    """Two events race; `index` is the access of the later one, as the shadow was given it."""

    def __init__(self, earlier: Event, later: Event, index: int) -> None:
        super().__init__("race")
        self.earlier, self.later, self.index = earlier, later, index


Heads: TypeAlias = "tuple[tuple[Event, Clock], ...]"


@dataclass(slots=True, eq=False)
class Released:
    """What a load of a location synchronises with: its last write, and what that carries on."""

    last: Event
    heads: Heads


@dataclass(slots=True, eq=False)
class Order:
    """The events of a launch and sets of them.

    A set of events is a number: 0 is empty, others are made by `add`. Equal histories have equal
        numbers.
    synchronised: (release, acquire) pairs, for the explanation of races.
    """

    events: list[Event] = field(default_factory=list[Event])
    tails: list[int] = field(default_factory=list[int])
    synchronised: list[tuple[Event, Event]] = field(default_factory=list[tuple[Event, Event]])
    parents: list[int] = field(default_factory=lambda: [0])
    tops: list[Event | None] = field(default_factory=lambda: [None])
    summaries: list[Summary | None] = field(default_factory=lambda: [None])
    known: dict[tuple[int, int], int] = field(default_factory=dict[tuple[int, int], int])

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
    ) -> Event:
        """Make the event of an operation that is executed now."""
        tails = self.tails
        if token is None:
            clock, chain, count = NO_CLOCK, -1, 0
        else:
            clock, chain, count = token.clock, token.chain, token.count
        if chain >= 0 and tails[chain] == count:
            count += 1
            tails[chain] = count
        else:
            chain, count = len(tails), 1
            tails.append(1)
        event = Event(
            len(self.events),
            chain,
            count,
            clock,
            block,
            number,
            op,
            scope,
            size_bytes,
            ordering in ("acquire", "acq_rel"),
            ordering in ("release", "acq_rel"),
            is_write,
        )
        self.events.append(event)
        return event

    def token(self, event: Event) -> Token:
        """The token that waits for `event`."""
        clock = dict(event.clock)
        clock[event.chain] = event.count
        return Token(clock, event.chain, event.count)

    # Sets of events

    def add(self, parent: int, event: Event) -> int:
        """The set `parent` with `event`."""
        key = parent, event.id
        found = self.known.get(key)
        if found is None:
            below = self.summaries[parent]
            found = self.known[key] = len(self.parents)
            self.parents.append(parent)
            self.tops.append(event)
            if below is None:
                summary = Summary(event.scope, event.size_bytes, event.block)
            else:
                summary = Summary(
                    min(below.scope, event.scope),
                    below.size_bytes if below.size_bytes == event.size_bytes else -1,
                    below.block if below.block == event.block else -1,
                )
            self.summaries.append(summary)
        return found

    def members(self, events: int) -> list[Event]:
        """The events of a set, latest first."""
        found: list[Event] = []
        while events:
            top = self.tops[events]
            assert top is not None
            found.append(top)
            events = self.parents[events]
        return found

    def conflict(self, event: Event, others: int) -> Event | None:
        """A member of `others` that is not before `event` and not morally strong with it."""
        if others == 0:
            return None
        common = self.summaries[others]
        if (
            event.scope >= 0
            and common is not None
            and common.scope >= 0
            and common.size_bytes == event.size_bytes
            and (common.block == event.block or (common.scope >= DEVICE and event.scope >= DEVICE))
        ):
            return None
        clock = event.clock
        while others:
            top = self.tops[others]
            assert top is not None
            if clock.get(top.chain, 0) < top.count and not morally_strong(top, event):
                return top
            others = self.parents[others]
        return None

    def supersede(self, event: Event, others: int) -> int:
        """`others` with `event`, which may stand for members that it covers."""
        if others == 0:
            return self.add(0, event)
        parent = self.parents[others]
        top = self.tops[others]
        assert top is not None
        if parent == 0:
            return self.add(0 if _covers(event, top) else others, event)
        if not event.is_write:
            return self.add(parent if _covers(event, top) else others, event)
        return self.add(self.without_covered(event, others), event)

    def without_covered(self, event: Event, others: int) -> int:
        """`others` without what `event` covers; a strong event looks at the latest few only."""
        if not event.clock:
            return others
        kept: list[Event] = []
        rest, looked = others, 0
        while rest and (event.scope < 0 or looked < 4):
            top = self.tops[rest]
            assert top is not None
            if not _covers(event, top):
                kept.append(top)
            rest, looked = self.parents[rest], looked + 1
        for member in reversed(kept):
            rest = self.add(rest, member)
        return rest

    def meet(self, event: Event, writers: int, readers: int) -> tuple[int, int]:
        """Check `event` against the location's sets, and give the new (writers, readers).

        Raises:
            Raced: it races with a member; `index` is 0.
        """
        other = self.conflict(event, writers)
        if other is None and event.is_write and readers:
            other = self.conflict(event, readers)
        if other is not None:
            raise Raced(other, event, 0)
        if event.is_write:
            # A read-modify-write conflicts with all that its read alone would: one set is enough
            # for it.
            left = self.without_covered(event, readers) if readers else 0
            return self.supersede(event, writers), left
        return writers, self.supersede(event, readers)

    # Release and acquire

    def acquire(self, event: Event, released: dict[int, Released], offsets: list[int]) -> None:
        """Let an acquire that reads at `offsets` synchronise with the releases it reads from."""
        clock: dict[int, int] | None = None
        for offset in offsets:
            found = released.get(offset)
            if found is None or not morally_strong(found.last, event):
                continue
            for release, covered in found.heads:
                if morally_strong(release, event):
                    clock = dict(event.clock) if clock is None else clock
                    add_clock(clock, covered)
                    if len(self.synchronised) < 10_000:
                        self.synchronised.append((release, event))
        if clock is not None:
            event.clock = clock

    def publish(
        self, event: Event, released: dict[int, Released], offsets: list[int], is_pair: bool
    ) -> None:
        """Note a write at `offsets`: a release begins, a pair carries on, any other ends."""
        if not released and not event.releases:
            return
        own: Heads = ((event, self.token(event).clock),) if event.releases else ()
        for offset in offsets:
            found = released.get(offset)
            heads = own
            if is_pair and found is not None and morally_strong(found.last, event):
                heads = (*found.heads, *own)
            _forget(released, offset, event.size_bytes)
            if heads:
                released[offset] = Released(event, heads)


def morally_strong(e: Event, f: Event) -> bool:
    """True if both are strong, of one size, and in each other's scope.

    They share a byte and are aligned: with one size, they have one location.
    """
    return (
        e.scope >= 0
        and f.scope >= 0
        and e.size_bytes == f.size_bytes
        and (e.block == f.block or (e.scope >= DEVICE and f.scope >= DEVICE))
    )


def happens_before(e: Event, f: Event) -> bool:
    """True if the clock of `f` covers `e`."""
    return f.clock.get(e.chain, 0) >= e.count


def _covers(event: Event, earlier: Event) -> bool:
    """True if what races with `earlier` from now on races with `event` too."""
    return event.clock.get(earlier.chain, 0) >= earlier.count and (
        event.scope < 0
        or (
            earlier.scope == event.scope
            and earlier.block == event.block
            and earlier.size_bytes == event.size_bytes
        )
    )


def _forget(released: dict[int, Released], offset: int, size_bytes: int) -> None:
    """Drop what a write to [offset, offset + size) ends; accesses have at most 8 bytes."""
    released.pop(offset, None)
    if len(released) == 0:
        return
    line = offset & ~7
    for other in range(line, line + 8):
        found = released.get(other)
        if (
            found is not None
            and other < offset + size_bytes
            and offset < other + found.last.size_bytes
        ):
            del released[other]
