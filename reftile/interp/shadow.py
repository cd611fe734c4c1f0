"""The shadow of a buffer: which events touched each location last.

A *grid* divides a buffer into regions, one for each index: the tiles of a partition view, or runs
of equal length. While the regions are disjoint, as they nearly always are, the shadow holds one
pair of event sets for each. As soon as a write meets regions of another grid, or elements that form
no region, all is spread to elements once and for all.
"""

from __future__ import annotations

from dataclasses import dataclass
from math import prod

import numpy as np
from numpy.typing import NDArray

from reftile.interp.memory import Buffer
from reftile.interp.order import Event, Order, Raced

Offsets = NDArray[np.int64]


@dataclass(frozen=True, slots=True)
class Grid:
    """Regions of one buffer: region `i` begins at `origin + sum(i * step)`, in bytes, axis by axis.

    strides: between neighbours of a region, in bytes.
    disjoint: no two regions share a byte, and no two elements of one do.
    """

    origin: int
    size_bytes: int
    strides: tuple[int, ...]
    step: tuple[int, ...]
    disjoint: bool

    def offsets(self, index: tuple[int, ...], extents: tuple[int, ...]) -> Offsets:
        """The byte offsets of a region's elements, row-major."""
        start = self.origin + sum(i * s for i, s in zip(index, self.step, strict=True))
        result = np.full((1,) * len(extents), start, np.int64)
        for axis, (extent, stride) in enumerate(zip(extents, self.strides, strict=True)):
            shape = [1] * len(extents)
            shape[axis] = extent
            result = result + (np.arange(extent, dtype=np.int64) * stride).reshape(shape)
        return result.reshape(-1)


@dataclass(slots=True, eq=False)
class _Regions:
    """The regions of one grid: their event sets, and the bytes between which they lie.

    first, end: kept only once the buffer has a second grid; `end` is 0 before.
    """

    grid: Grid
    sets: dict[tuple[int, ...], tuple[int, int, tuple[int, ...]]]
    first: int
    end: int

    def reach(self) -> None:
        """Work out the bytes between which all regions lie."""
        for index, (_, _, extents) in self.sets.items():
            self.reach_over(index, extents)

    def reach_over(self, index: tuple[int, ...], extents: tuple[int, ...]) -> None:
        """Let the bytes take in one region."""
        grid = self.grid
        first = end = grid.origin
        for i, step, extent, stride in zip(index, grid.step, extents, grid.strides, strict=True):
            first += i * step
            end += i * step + (extent - 1) * stride
        self.first = first if self.end == 0 else min(first, self.first)
        self.end = max(end + grid.size_bytes, self.end)


class Shadow:
    """The event sets of one buffer. `Raced.index` counts the elements of the access."""

    __slots__ = ("buffer", "elements", "grids", "order", "written")

    def __init__(self, buffer: Buffer, order: Order) -> None:
        self.buffer = buffer
        self.order = order
        self.grids: dict[Grid, _Regions] = {}
        self.elements: _Elements | None = None
        self.written = False

    def touch_region(
        self,
        event: Event,
        grid: Grid,
        index: tuple[int, ...],
        extents: tuple[int, ...],
    ) -> None:
        """Record an access to a region of a grid.

        Raises:
            Raced: with whom, and at which element.
        """
        if self.elements is None:
            regions = self.grids.get(grid)
            if regions is None:
                regions = self.grids[grid] = _Regions(grid, {}, 0, 0)
            self.written = self.written or event.is_write
            if not self.written or (
                grid.disjoint and (len(self.grids) == 1 or self._is_apart(regions, index, extents))
            ):
                writers, readers, known = regions.sets.get(index, (0, 0, extents))
                if known == extents:
                    writers, readers = self.order.meet(event, writers, readers)
                    regions.sets[index] = writers, readers, extents
                    return
        self.touch(event, grid.offsets(index, extents))

    def _is_apart(
        self, regions: _Regions, index: tuple[int, ...], extents: tuple[int, ...]
    ) -> bool:
        """True if no other grid reaches between the bytes of this one, `index` included."""
        for other in self.grids.values():
            if other.end == 0:
                other.reach()
        regions.reach_over(index, extents)
        return all(
            other is regions or other.end <= regions.first or regions.end <= other.first
            for other in self.grids.values()
        )

    def touch(self, event: Event, offsets: Offsets) -> None:
        """Record an access to elements by their byte offsets.

        Raises:
            Raced: with whom, and at which element.
        """
        if self.elements is None:
            self.elements = self._spread(event.size_bytes)
        self.written = self.written or event.is_write
        self.elements.touch(event, offsets, self.order)

    def writer_at(self, offset: int) -> Event | None:
        """The last event that wrote the byte at `offset`, if it is known."""
        if self.elements is not None:
            found = int(self.elements.writers[self.elements.index(offset)])
            return self.order.tops[found]
        for grid, regions in self.grids.items():
            for index, (writers, _, extents) in regions.sets.items():
                if writers:
                    at = grid.offsets(index, extents)
                    if np.any((at <= offset) & (offset < at + grid.size_bytes)):
                        return self.order.tops[writers]
        return None

    def _spread(self, size_bytes: int) -> _Elements:
        """Element by element what the regions hold."""
        granule = min([size_bytes, *(g.size_bytes for g in self.grids)])
        elements = _Elements(self.buffer, granule)
        for grid, regions in self.grids.items():
            for index, (writers, readers, extents) in regions.sets.items():
                at = elements.granules(grid.offsets(index, extents), grid.size_bytes)
                for array, events in ((elements.writers, writers), (elements.readers, readers)):
                    for event in reversed(self.order.members(events)):
                        _push(array, at, event, self.order)
        self.grids.clear()
        return elements


def _push(array: NDArray[np.int32], at: Offsets, event: Event, order: Order) -> None:
    there, inverse = np.unique(array[at], return_inverse=True)
    array[at] = np.array([order.add(int(e), event) for e in there], np.int32)[inverse.reshape(-1)]


class _Elements:
    """Event sets per granule: the largest unit that no access so far has cut."""

    __slots__ = ("granule", "phase", "readers", "writers")

    def __init__(self, buffer: Buffer, granule: int) -> None:
        self.granule = granule
        self.phase = buffer.address % 16
        count = -(-(buffer.data.size + self.phase) // granule)
        self.writers = np.zeros(count, np.int32)
        self.readers = np.zeros(count, np.int32)

    def index(self, offset: int) -> int:
        return (offset + self.phase) // self.granule

    def granules(self, offsets: Offsets, size_bytes: int) -> Offsets:
        index = (offsets + self.phase) // self.granule
        per = size_bytes // self.granule
        return index if per == 1 else (index[:, None] + np.arange(per)).reshape(-1)

    def touch(self, event: Event, offsets: Offsets, order: Order) -> None:
        if event.size_bytes < self.granule:
            factor = self.granule // event.size_bytes
            self.writers = np.repeat(self.writers, factor)
            self.readers = np.repeat(self.readers, factor)
            self.granule = event.size_bytes
        per = event.size_bytes // self.granule
        at = self.granules(offsets, event.size_bytes)
        if event.is_write and event.scope < 0 and offsets.size > 1:
            _check_distinct(event, offsets)
        pairs = self.writers[at].astype(np.int64) << 32 | self.readers[at]
        first = int(pairs[0])
        if pairs.size == 1 or (pairs == first).all():
            writers, readers = order.meet(event, first >> 32, first & 0x7FFFFFFF)
            self.writers[at], self.readers[at] = writers, readers
            return
        found, where, inverse = np.unique(pairs, return_index=True, return_inverse=True)
        new = np.empty((found.size, 2), np.int32)
        for i, pair in enumerate(found.tolist()):
            try:
                new[i] = order.meet(event, pair >> 32, pair & 0x7FFFFFFF)
            except Raced as race:
                race.index = int(where[i]) // per
                raise
        inverse = inverse.reshape(-1)
        self.writers[at], self.readers[at] = new[inverse, 0], new[inverse, 1]


def _check_distinct(event: Event, offsets: Offsets) -> None:
    """Two elements of one weak store at one address race with each other."""
    ranked = np.argsort(offsets, kind="stable")
    same = np.flatnonzero(np.diff(offsets[ranked]) == 0)
    if same.size:
        raise Raced(event, event, int(ranked[same[0] + 1]))


def row_of(index: int, extents: tuple[int, ...]) -> tuple[int, ...]:
    """The coordinates of a flat, row-major `index`."""
    coordinates: list[int] = []
    for axis in range(len(extents)):
        below = prod(extents[axis + 1 :])
        coordinates.append(index // below % extents[axis])
    return tuple(coordinates)
