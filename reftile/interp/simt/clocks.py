"""Vector clocks of threads and engines: what each knows to have happened before.

Every thread of a cluster is an *agent*; so are, for each thread, the engine that does its copies in
order, and for each warpgroup the engine that does its products in order. An agent counts *epochs*,
and a clock says for each agent up to which epoch its accesses are known. Bulk copies end in any
order, so each is an *operation* of its own, a bit of a set.

A clock has these rows (spec/pipe.md, "Order"): accesses that are DONE, so that their bytes may be
written again; writes that are SHOWN to the generic proxy; and from FENCED on, two for each memory:
writes fenced for the asynchronous proxy (`fenced_row`), and writes that are done (`settled_row`).
DONE says nothing of writes by threads: a relaxed arrival tells of them only if they were fenced.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from reftile.interp.values import Mask

Numbers = NDArray[np.int32]
Indices = NDArray[np.int64]
DONE, SHOWN, FENCED = 0, 1, 2
LANES = 32
"""Lanes of a warp."""
ALL_LANES: Mask = np.ones(LANES, np.bool_)
ALL_LANES.flags.writeable = False
OPERATION = -2
"""The agent of a bulk copy; its epoch is the number of its operation."""


@dataclass(frozen=True, slots=True)
class Agents:
    """The numbers of the agents of one cluster: threads, their copies, warpgroups."""

    blocks: int
    warps: int

    @property
    def threads(self) -> int:
        """Threads of the cluster."""
        return self.blocks * self.warps * LANES

    @property
    def engines(self) -> int:
        """The first agent that is a warpgroup's engine."""
        return 2 * self.threads

    @property
    def groups(self) -> int:
        """Warpgroups of a block."""
        return -(-self.warps // 4)

    @property
    def rows(self) -> int:
        """Rows of a clock."""
        return fenced_row(self.blocks)

    @property
    def count(self) -> int:
        """All agents."""
        return self.engines + self.blocks * self.groups

    def thread(self, rank: int, warp: int) -> int:
        """The agent of lane 0 of a warp; the other lanes follow."""
        return (rank * self.warps + warp) * LANES

    def engine(self, rank: int, warp: int) -> int:
        """The agent that multiplies for the warpgroup of a warp."""
        return self.engines + rank * self.groups + warp // 4


def fenced_row(rank: int | None) -> int:
    """The row of writes fenced in global memory (None), or in a block's shared memory."""
    return FENCED if rank is None else FENCED + 2 * (1 + rank)


def settled_row(rank: int | None) -> int:
    """The row of writes that are done in global memory (None), or in a block's shared memory."""
    return fenced_row(rank) + 1


class Clock:
    """What is known: epochs by row and agent, operations by row."""

    __slots__ = ("operations", "rows")

    def __init__(self, rows: Numbers, operations: list[int]) -> None:
        self.rows = rows
        self.operations = operations

    @staticmethod
    def nothing(agents: Agents) -> Clock:
        """Nothing has happened."""
        return Clock(np.zeros((agents.rows, agents.count), np.int32), [0] * agents.rows)

    def copy(self) -> Clock:
        """An independent copy."""
        return Clock(self.rows.copy(), list(self.operations))

    def join(self, other: Clock) -> None:
        """Learn all that `other` knows."""
        np.maximum(self.rows, other.rows, out=self.rows)
        self.operations = [a | b for a, b in zip(self.operations, other.operations, strict=True)]

    def meet(self, other: Clock) -> None:
        """Keep what `other` knows as well."""
        np.minimum(self.rows, other.rows, out=self.rows)
        self.operations = [a & b for a, b in zip(self.operations, other.operations, strict=True)]

    def only_done(self) -> Clock:
        """What a relaxed arrival hands over: what is done, and nothing that is shown."""
        found = Clock(self.rows.copy(), list(self.operations))
        for row in (SHOWN, *range(FENCED, len(found.rows), 2)):
            found.rows[row] = found.operations[row] = 0
        return found

    def add_operation(self, number: int, writes: bool = True) -> None:
        """Note that a bulk operation is over; what it wrote is seen by both proxies."""
        for row in range(len(self.rows)) if writes else (DONE,):
            self.operations[row] |= 1 << number

    def knows(self, row: int, agents: Indices, epochs: Indices, lanes: Indices) -> Mask:
        """Tell for each access whether it is known; the lanes that ask are of no account."""
        found = self.rows[row][agents] >= epochs
        special = agents == OPERATION
        if special.any():
            found[special] = _in_set(self.operations[row], epochs[special])
        return found


def _in_set(operations: int, numbers: Indices) -> Mask:
    unique, where = np.unique(numbers, return_inverse=True)
    return np.array([operations >> int(n) & 1 for n in unique], np.bool_)[where.reshape(-1)]


class Knowledge:
    """What the lanes of a warp know.

    common: what all lanes know of others. private: what single lanes know, if that is more. epoch:
    of the accesses that come next. fenced: per row from FENCED on and lane, up to which epoch its
    own writes are fenced, and done by that. copies, copies_fenced: the last of its own copies that
    it has waited for, and has fenced.
    """

    __slots__ = (
        "agents",
        "common",
        "copies",
        "copies_fenced",
        "epoch",
        "fenced",
        "first",
        "private",
    )

    def __init__(self, agents: Agents, first: int) -> None:
        self.agents = agents
        self.first = first
        self.common = Clock.nothing(agents)
        self.private: dict[int, Clock] = {}
        self.epoch = 1
        self.fenced = np.zeros((agents.rows - FENCED, LANES), np.int32)
        self.copies = np.zeros(LANES, np.int32)
        self.copies_fenced = np.zeros_like(self.fenced)

    def clock(self, lane: int) -> Clock:
        """What a lane knows of others."""
        return self.private.get(lane, self.common)

    def acquire(self, mask: Mask, clock: Clock) -> None:
        """Let lanes learn."""
        if mask.all():
            self.common.join(clock)
            for own in self.private.values():
                own.join(clock)
            return
        for lane in np.flatnonzero(mask):
            self._own(int(lane)).join(clock)

    def acquire_done(self, mask: Mask, operation: int, writes: bool) -> None:
        """Let lanes learn that a bulk operation is over."""
        clocks = (
            [self.common, *self.private.values()]
            if mask.all()
            else [self._own(int(lane)) for lane in np.flatnonzero(mask)]
        )
        for clock in clocks:
            clock.add_operation(operation, writes)

    def _own(self, lane: int) -> Clock:
        if lane not in self.private:
            self.private[lane] = self.common.copy()
        return self.private[lane]

    def release(self, mask: Mask) -> Clock:
        """What these lanes know together, with their own accesses; a new epoch begins."""
        lanes = np.flatnonzero(mask)
        clocks = [self.private[int(n)] for n in lanes if int(n) in self.private]
        clock = (self.common if len(clocks) < lanes.size or not clocks else clocks.pop()).copy()
        for other in clocks:
            clock.join(other)
        own, copies = self.first + lanes, self.agents.threads + self.first + lanes
        rows = clock.rows
        rows[DONE, own] = rows[SHOWN, own] = self.epoch
        rows[FENCED:, own] = self.fenced[:, lanes]
        rows[DONE, copies] = rows[SHOWN, copies] = self.copies[lanes]
        rows[FENCED:, copies] = self.copies_fenced[:, lanes]
        self.epoch += 1
        return clock

    def fence(self, mask: Mask, rows: Sequence[int]) -> None:
        """Show the asynchronous proxy what these lanes wrote, and what was shown to them."""
        clocks = (
            [self.common, *self.private.values()]
            if mask.all()
            else [self._own(int(lane)) for lane in np.flatnonzero(mask)]
        )
        for row in rows:
            for clock in clocks:
                np.maximum(clock.rows[row], clock.rows[SHOWN], out=clock.rows[row])
                clock.operations[row] |= clock.operations[SHOWN]
            self.fenced[row - FENCED, mask] = self.epoch
            self.copies_fenced[row - FENCED, mask] = self.copies[mask]
        self.epoch += 1

    def meet(self) -> None:
        """All lanes learn what each of them knows."""
        self.common = self.release(ALL_LANES)
        self.private.clear()

    def knows(self, row: int, agents: Indices, epochs: Indices, lanes: Indices) -> Mask:
        """Tell for each access, by agent and epoch, whether the lane that asks knows of it."""
        found = self.common.knows(row, agents, epochs, lanes)
        for lane, clock in self.private.items():
            mine = lanes == lane
            if mine.any():
                found[mine] = clock.knows(row, agents[mine], epochs[mine], lanes[mine])
        own = agents == self.first + lanes
        if own.any():
            found[own] = row < FENCED or (self.fenced[row - FENCED, lanes] >= epochs)[own]
        copies = agents == self.agents.threads + self.first + lanes
        if copies.any():
            waited = self.copies if row < FENCED else self.copies_fenced[row - FENCED]
            found[copies] = (waited[lanes] >= epochs)[copies]
        return found
