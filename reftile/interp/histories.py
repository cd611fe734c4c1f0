"""What loads may find besides the latest: the writes of each place, for the schedule `view`.

Memory that strong accesses touch keeps the history of its writes in coherence order; the bytes of
the buffer are those of the last. Which entries an access may not go behind follows from clocks:

* a load returns an entry not older than any write before it (in the sense of `order`), or than any
  that a strong load before it has seen;
* a store is put behind the same ones, at a random place, but never between the two halves of a
  read-modify-write.

What is returned is therefore old but legal, and every execution is one that the memory model has.
Not shown are loads that find stores which run later (load buffering), and read-modify-writes of
others between two elements of one operation that are at one place: an operation runs as a whole.
Weak accesses need no history: one that does not race finds the latest write.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from random import Random
from typing import TypeVar

import numpy as np

from reftile.interp.memory import Buffer, Places, Run, write_places
from reftile.interp.order import Event, Heads, Order, Released, happens_before, morally_strong
from reftile.interp.values import Array, Mask, Tile
from reftile.ir.dtypes import DType
from reftile.ir.numbers import decode

LONGEST = 64
"""Entries of a history at most: then the oldest is forgotten, which only makes loads less stale."""


@dataclass(slots=True, eq=False)
class Entry:
    """One write. event: None for what was there before the first strong access.

    data, state: the bytes, and which of them are no value. heads: the releases that a load of this
    entry synchronises with. readers: strong events that have read it. has_pair: the next entry is
    the write of a read-modify-write that read this one.
    """

    event: Event | None
    data: bytes
    state: bytes | None
    heads: Heads = ()
    readers: list[Event] = field(default_factory=list[Event])
    has_pair: bool = False

    @property
    def is_poison(self) -> bool:
        """Whether any byte is no defined value."""
        return self.state is not None and any(self.state)

    def value(self, dtype: DType) -> Array:
        """The value as an array of one element."""
        return decode(np.frombuffer(self.data, dtype.storage).copy(), dtype)


@dataclass(slots=True, eq=False)
class History:
    """The writes of one place, in coherence order."""

    size_bytes: int
    entries: list[Entry]

    def oldest(self, event: Event) -> int:
        """The entry behind which `event` may not go."""
        for index in range(len(self.entries) - 1, 0, -1):
            entry = self.entries[index]
            known = entry.event is None or happens_before(entry.event, event)
            if known or any(happens_before(reader, event) for reader in entry.readers):
                return index
        return 0


_Choice = TypeVar("_Choice")
Seen = list[tuple[int, Entry]]
"""What a load found: flat positions in the tile, with the entries read there."""


class Histories:
    """The histories of a launch."""

    def __init__(self, seed: int) -> None:
        self.random = Random(f"histories {seed}")
        # A message that is to arrive must be read, so some runs are less stale than others.
        self.staleness = self.random.choice((0.25, 1.0, 1.0))
        self.places: dict[Buffer, dict[int, History]] = {}

    def history(self, buffer: Buffer, offset: int, size: int) -> History:
        """The history of a place; it begins with what is there now."""
        known = self.places.setdefault(buffer, {})
        found = known.get(offset)
        if found is None or found.size_bytes != size:
            self.forget(buffer, np.array([offset]), size)
            found = known[offset] = History(size, [_snapshot(buffer, offset, size, None)])
        return found

    def forget(self, buffer: Buffer, offsets: Array, size: int) -> None:
        """Begin anew where something else than these accesses has written."""
        known = self.places.get(buffer)
        if not known:
            return
        for offset, history in list(known.items()):
            if np.any((offsets < offset + history.size_bytes) & (offset < offsets + size)):
                del known[offset]

    # Loads

    def read(self, order: Order, event: Event, parts: Sequence[Run | Places]) -> tuple[Seen, bool]:
        """Choose what each element of a strong load finds; also whether any of it is stale."""
        seen: Seen = []
        stale = False
        for buffer, offset, where, size in _elements(parts):
            history = self.history(buffer, offset, size)
            entry = self._pick(history.entries[history.oldest(event) :])
            stale = stale or entry is not history.entries[-1]
            seen.append((where, entry))
        self.learn(order, event, [entry for _, entry in seen])
        for _, entry in seen:
            entry.readers.append(event)
        return seen, stale

    def _pick(self, choices: list[_Choice]) -> _Choice:
        """One of what is permitted, oldest first: any, or the latest."""
        if len(choices) > 1 and self.random.random() >= self.staleness:
            return choices[-1]
        return self.random.choice(choices)

    def learn(self, order: Order, event: Event, entries: Sequence[Entry]) -> None:
        """Let an acquire synchronise with what it reads from."""
        if not event.acquires:
            return
        for entry in entries:
            if entry.event is not None:
                heads = tuple(h for h in entry.heads if h[0] is not event)
                order.acquire(event, {0: Released(entry.event, heads)}, [0])

    # Stores

    def write(
        self,
        order: Order,
        event: Event,
        places: Places,
        dtype: DType,
        values: Array,
        bad: Mask | None,
    ) -> None:
        """Store elements, each somewhere in its history."""
        own: Heads = ((event, order.token(event).clock),) if event.releases else ()
        for index, (buffer, offset, _, size) in enumerate(_elements([places])):
            history = self.history(buffer, offset, size)
            entries = history.entries
            lowest = history.oldest(event)
            free = [i + 1 for i in range(lowest, len(entries)) if not entries[i].has_pair]
            entry = self._put(
                history, self._pick(free), event, _one(places, index), dtype,
                values[index : index + 1], None if bad is None else bad[index : index + 1],
            )  # fmt: skip
            entry.heads = own

    def _put(
        self,
        history: History,
        at: int,
        event: Event,
        place: Places,
        dtype: DType,
        value: Array,
        bad: Mask | None,
    ) -> Entry:
        """Insert an entry; the buffer holds the last one."""
        buffer, offset, size = place.buffer, int(place.offsets[0]), place.size_bytes
        before = history.entries[-1]
        write_places(place, dtype, value, bad)
        entry = _snapshot(buffer, offset, size, event)
        if at < len(history.entries):
            buffer.data[offset : offset + size] = np.frombuffer(before.data, np.uint8)
            if buffer.state is not None:
                state = before.state or bytes(size)
                buffer.state[offset : offset + size] = np.frombuffer(state, np.uint8)
        history.entries.insert(at, entry)
        if len(history.entries) > LONGEST:
            del history.entries[0]
        return entry

    # Read-modify-writes

    def exchange(
        self,
        order: Order,
        event: Event,
        places: Places,
        dtype: DType,
        change: Callable[[int, Entry], tuple[Array, Mask | None] | None],
    ) -> Seen:
        """Do a read-modify-write on each element in turn; give what was found.

        change: from the index of a place and the entry read there to the value to write (one
        element, and its poison), or None to leave it.
        """
        seen: Seen = []
        pairs: list[tuple[Entry, Entry]] = []
        for index, (buffer, offset, where, size) in enumerate(_elements([places])):
            history = self.history(buffer, offset, size)
            entries = history.entries
            found = [e for e in entries[history.oldest(event) :] if not e.has_pair]
            source = self._pick(found)
            seen.append((where, source))
            source.readers.append(event)
            written = change(index, source)
            if written is None:
                continue
            at = entries.index(source) + 1
            source.has_pair = True
            entry = self._put(history, at, event, _one(places, index), dtype, *written)
            pairs.append((source, entry))
        self.learn(order, event, [entry for _, entry in seen])
        own: Heads = ((event, order.token(event).clock),) if event.releases else ()
        for source, entry in pairs:
            goes_on = source.event is not None and morally_strong(source.event, event)
            entry.heads = (*source.heads, *own) if goes_on else own
        return seen


def patched(tile: Tile, seen: Seen, dtype: DType) -> Tile:
    """A tile with what was found in histories."""
    data = np.array(tile.data).reshape(-1)
    poison = np.zeros(data.size, np.bool_)
    if tile.poison is not None:
        poison |= np.broadcast_to(tile.poison, tile.data.shape).reshape(-1)
    for where, entry in seen:
        data[where] = entry.value(dtype)[0]
        poison[where] = entry.is_poison
    shape = tile.data.shape
    return Tile(data.reshape(shape), poison.reshape(shape) if poison.any() else None)


def _snapshot(buffer: Buffer, offset: int, size: int, event: Event | None) -> Entry:
    state = None if buffer.state is None else buffer.state[offset : offset + size].tobytes()
    return Entry(event, buffer.data[offset : offset + size].tobytes(), state)


def _elements(parts: Sequence[Run | Places]) -> Iterator[tuple[Buffer, int, int, int]]:
    """(buffer, offset, flat position, size) of each element."""
    for part in parts:
        if isinstance(part, Run):
            for i in range(part.count):
                yield part.buffer, part.offset + i * part.size_bytes, i, part.size_bytes
        else:
            for offset, where in zip(part.offsets.tolist(), part.where.tolist(), strict=True):
                yield part.buffer, offset, where, part.size_bytes


def _one(places: Places, index: int) -> Places:
    at = slice(index, index + 1)
    return Places(places.buffer, places.offsets[at], places.where[at], places.size_bytes)
