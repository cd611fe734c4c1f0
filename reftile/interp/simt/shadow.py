"""The shadow of a memory: for each cell of some bytes, who wrote it last and who has read it since.

An access is checked where it is issued: what touched its cells before must be known, by the clocks,
to whoever comes now. A read needs the last write shown (fenced for the asynchronous proxy); a write
needs the same or that it is done, and the reads since DONE.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Protocol

import numpy as np
from numpy.typing import NDArray

from reftile.interp.simt.clocks import (
    DONE,
    LANES,
    OPERATION,
    SHOWN,
    Indices,
    fenced_row,
    settled_row,
)
from reftile.interp.values import Mask
from reftile.ir.core import Op

NOBODY = -1


class Viewer(Protocol):
    """Who comes: what it knows."""

    def knows(self, row: int, agents: Indices, epochs: Indices, lanes: Indices) -> Mask:
        """Tell for each access, by agent and epoch, whether the lane that asks knows of it."""
        ...


@dataclass(frozen=True, slots=True)
class Origin:
    """An access for messages: its operation, who issued it, whether it happens after its issue.

    rank: of the block that issued it.
    """

    op: Op
    who: str
    rank: int
    is_async: bool
    in_flight: bool


class Raced(Exception):
    """Two accesses that nothing orders, at a cell; seen: the later knows that the earlier is done.

    rank: of the block whose shared memory it is; None for global memory. lane: of the later one.
    shown: the earlier write is shown to the generic proxy.
    """

    def __init__(
        self,
        earlier: Origin,
        later: Origin,
        writes: tuple[bool, bool],
        rank: int | None,
        cell: int,
        lane: int,
    ) -> None:
        super().__init__("race")
        self.earlier, self.later, self.writes = earlier, later, writes
        self.rank, self.cell, self.lane = rank, cell, lane
        self.done = self.shown = False


@dataclass(slots=True)
class Visit:
    """An access to cells: what came to them, for each cell which lane, and when.

    agents: for each cell; OPERATION for bulk copies, whose number is the epoch. reader: where reads
    are kept: the warp, or the engine's agent; OPERATION for bulk copies.
    """

    viewer: Viewer
    cells: Indices
    lanes: Indices
    agents: Indices
    epoch: int
    reader: int
    origin: int


@dataclass(slots=True)
class _Readers:
    """The reads of one warp or engine: per cell, the last epoch, the lanes, the access."""

    epoch: NDArray[np.int32]
    lanes: NDArray[np.uint32]
    origin: NDArray[np.int32]


class Shadow:
    """Who touched each cell of one memory: a block's, by its rank, or global memory."""

    def __init__(
        self, size_bytes: int, cell_bytes: int, origins: list[Origin], rank: int | None
    ) -> None:
        count = -(-size_bytes // cell_bytes)
        self.cell_bytes = cell_bytes
        self.rank = rank
        self.origins = origins
        self.writer = np.full(count, NOBODY, np.int64)
        self.epoch = np.zeros(count, np.int64)
        self.origin = np.zeros(count, np.int32)
        self.readers: dict[int, _Readers] = {}
        self.older: list[tuple[int, int, Indices, Indices, int]] = []
        self.copies: list[tuple[int, Indices, int]] = []

    def cells(self, addresses: Indices, size_bytes: int) -> Indices:
        """The cells of accesses of `size_bytes` each: one row for each address."""
        first = addresses // self.cell_bytes
        return first[:, None] + np.arange(max(1, size_bytes // self.cell_bytes))

    # Checks

    def _meet_writers(self, visit: Visit, is_write: bool) -> None:
        agents, epochs = self.writer[visit.cells], self.epoch[visit.cells]
        row = fenced_row(self.rank) if self.origins[visit.origin].is_async else SHOWN
        found = visit.viewer.knows(row, agents, epochs, visit.lanes) | (agents == NOBODY)
        if is_write and not found.all():
            found |= visit.viewer.knows(settled_row(self.rank), agents, epochs, visit.lanes)
        if found.all():
            return
        at = int(np.argmin(found))
        one = slice(at, at + 1)
        raced = self._raced(visit, at, int(self.origin[visit.cells[at]]), (True, is_write))
        raced.done = bool(visit.viewer.knows(DONE, agents[one], epochs[one], visit.lanes[one])[0])
        raced.shown = bool(visit.viewer.knows(SHOWN, agents[one], epochs[one], visit.lanes[one])[0])
        raise raced

    def _raced(self, visit: Visit, at: int, origin: int, writes: tuple[bool, bool]) -> Raced:
        return Raced(
            self.origins[origin],
            self.origins[visit.origin],
            writes,
            self.rank,
            int(visit.cells[at]),
            int(visit.lanes[at]),
        )

    def read(self, visit: Visit, is_async: bool, first_thread: int = 0) -> None:
        """Check and note a read. first_thread: the agent of lane 0 of the warp that reads.

        Raises:
            Raced: the last write of a cell is not known.
        """
        self._meet_writers(visit, False)
        if visit.reader == OPERATION:
            self.copies.append((visit.epoch, visit.cells, visit.origin))
            return
        kept = self.readers.get(visit.reader)
        if kept is None:
            count = self.writer.size
            kept = self.readers[visit.reader] = _Readers(
                np.zeros(count, np.int32), np.zeros(count, np.uint32), np.zeros(count, np.int32)
            )
        cells = visit.cells
        if is_async:
            kept.epoch[cells], kept.origin[cells] = visit.epoch, visit.origin
            return
        self._keep_older(visit, kept, first_thread)
        stale = kept.epoch[cells] != visit.epoch
        kept.lanes[cells[stale]] = 0
        kept.epoch[cells], kept.origin[cells] = visit.epoch, visit.origin
        np.bitwise_or.at(kept.lanes, cells, (np.uint32(1) << visit.lanes.astype(np.uint32)))

    def _keep_older(self, visit: Visit, kept: _Readers, first_thread: int) -> None:
        """Note apart earlier reads of the warp that the lane which reads now has not met."""
        cells = visit.cells
        before = (kept.epoch[cells] > 0) & (kept.epoch[cells] != visit.epoch)
        others = before & (kept.lanes[cells] != (np.uint32(1) << visit.lanes.astype(np.uint32)))
        if not others.any():
            return
        for epoch in np.unique(kept.epoch[cells[others]]):
            these = cells[others & (kept.epoch[cells] == epoch)]
            for lanes in np.unique(kept.lanes[these]):
                chosen = these[kept.lanes[these] == lanes]
                met = all(
                    self._is_known(visit.viewer, first_thread + n, int(epoch), visit.lanes[:1])
                    for n in range(LANES)
                    if int(lanes) >> n & 1
                )
                if not met:
                    members = np.array([n for n in range(LANES) if int(lanes) >> n & 1])
                    self.older.append(
                        (first_thread, int(epoch), chosen, members, int(kept.origin[chosen[0]]))
                    )

    @staticmethod
    def _is_known(viewer: Viewer, agent: int, epoch: int, lane: Indices) -> bool:
        return bool(viewer.knows(DONE, np.array([agent]), np.array([epoch]), lane)[0])

    def write(self, visit: Visit, first_threads: dict[int, int]) -> None:
        """Check and note a write. first_threads: the agent of lane 0, by warp that reads.

        Raises:
            Raced: an access before is not known to be over.
        """
        for reader, kept in self.readers.items():
            self._meet_readers(visit, reader, kept, first_threads)
        self._meet_copies(visit)
        self._meet_older(visit)
        self._meet_writers(visit, True)
        cells = visit.cells
        self.writer[cells], self.epoch[cells] = visit.agents, visit.epoch
        self.origin[cells] = visit.origin

    def _meet_readers(
        self, visit: Visit, reader: int, kept: _Readers, first_threads: dict[int, int]
    ) -> None:
        epochs = kept.epoch[visit.cells]
        read = np.flatnonzero(epochs)
        if not read.size:
            return
        cells, lanes, epochs = visit.cells[read], visit.lanes[read], epochs[read].astype(np.int64)
        first = first_threads.get(reader)
        if first is None:
            known = visit.viewer.knows(DONE, np.full(read.size, reader), epochs, lanes)
        else:
            known = np.ones(read.size, np.bool_)
            masks = kept.lanes[cells]
            for mask in np.unique(masks):
                these = np.flatnonzero(masks == mask)
                for n in range(LANES):
                    if int(mask) >> n & 1:
                        agents = np.full(these.size, first + n)
                        known[these] &= visit.viewer.knows(
                            DONE, agents, epochs[these], lanes[these]
                        )
        if not known.all():
            at = int(read[np.argmin(known)])
            raise self._raced(visit, at, int(kept.origin[visit.cells[at]]), (False, True))
        kept.epoch[visit.cells] = 0

    def _meet_copies(self, visit: Visit) -> None:
        if not self.copies:
            return
        touched = np.zeros(self.writer.size, np.bool_)
        touched[visit.cells] = True
        rest: list[tuple[int, Indices, int]] = []
        for number, cells, origin in self.copies:
            if not touched[cells].any():
                rest.append((number, cells, origin))
                continue
            at = int(np.flatnonzero(np.isin(visit.cells, cells))[0])
            one = slice(at, at + 1)
            agent = np.array([OPERATION])
            if not visit.viewer.knows(DONE, agent, np.array([number]), visit.lanes[one])[0]:
                raise self._raced(visit, at, origin, (False, True))
        self.copies = rest

    def _meet_older(self, visit: Visit) -> None:
        if not self.older:
            return
        rest: list[tuple[int, int, Indices, Indices, int]] = []
        for first, epoch, cells, members, origin in self.older:
            where = np.flatnonzero(np.isin(visit.cells, cells))
            if not where.size:
                rest.append((first, epoch, cells, members, origin))
                continue
            at = int(where[0])
            for n in members:
                if not self._is_known(
                    visit.viewer, first + int(n), epoch, visit.lanes[at : at + 1]
                ):
                    raise self._raced(visit, at, origin, (False, True))
        self.older = rest
