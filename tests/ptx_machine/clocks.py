"""Vector clocks, and the shadow of a shared memory that finds unordered accesses.

An agent is a warp, or an in-order asynchronous engine that works for one (wgmma of a warpgroup,
bulk stores and cp.async of a warp). Bulk loads finish in any order, so each is its own
operation. A clock has four rows: what happened before; what of it is fenced for the asynchronous
proxy; which mbarrier initialisations are fenced; what was executed before, relaxed arrivals too.
Source: PTX ISA, "Memory consistency model", "Proxies".
"""

from __future__ import annotations

import numpy as np

from .errors import ProxyError, RaceError, UninitialisedRead

BEFORE, FENCED, INITIALISED, EXECUTED = 0, 1, 2, 3
NOBODY, OPERATION = -2, -1


class Clock:
    """Epochs per agent (four rows) and the set of finished bulk operations, as bits."""

    __slots__ = ("epochs", "operations")

    def __init__(self, agents: int) -> None:
        self.epochs = np.zeros((4, agents), np.int32)
        self.operations = 0

    def copy(self) -> Clock:
        """Return an independent copy."""
        other = Clock.__new__(Clock)
        other.epochs, other.operations = self.epochs.copy(), self.operations
        return other

    def join(self, other: Clock) -> None:
        """Learn everything that `other` knows."""
        np.maximum(self.epochs, other.epochs, out=self.epochs)
        self.operations |= other.operations

    def knows(self, agent: int, epoch: int) -> bool:
        """Tell whether an event happened before the holder's present."""
        return self.epochs[BEFORE, agent] >= epoch


class Agents:
    """Names the agents of one cluster by number."""

    def __init__(self, warps_per_cta: int, ctas: int) -> None:
        self.warps = warps_per_cta * ctas
        self.warps_per_cta = warps_per_cta
        self.groups_per_cta = (warps_per_cta + 3) // 4
        self.store_base = self.warps
        self.copy_base = 2 * self.warps
        self.wgmma_base = 3 * self.warps
        self.count = self.wgmma_base + self.groups_per_cta * ctas

    def warp(self, cta: int, warp: int) -> int:
        return cta * self.warps_per_cta + warp

    def store(self, cta: int, warp: int) -> int:
        return self.store_base + self.warp(cta, warp)

    def copy(self, cta: int, warp: int) -> int:
        return self.copy_base + self.warp(cta, warp)

    def wgmma(self, cta: int, warp: int) -> int:
        return self.wgmma_base + cta * self.groups_per_cta + warp // 4

    def describe(self, agent: int) -> str:
        """Return words for a message."""
        if agent == OPERATION:
            return "an asynchronous bulk copy"
        if agent >= self.wgmma_base:
            cta, group = divmod(agent - self.wgmma_base, self.groups_per_cta)
            return f"wgmma of CTA {cta} warpgroup {group}"
        for base, what in (
            (self.copy_base, "cp.async"),
            (self.store_base, "bulk store"),
            (0, "generic access"),
        ):
            if agent >= base:
                cta, warp = divmod(agent - base, self.warps_per_cta)
                return f"{what} of CTA {cta} warp {warp}"
        return "nobody"


class Shadow:
    """Who last wrote and read each byte of one CTA's shared memory."""

    def __init__(self, size: int, agents: Agents, check_uninitialised: bool) -> None:
        self.agents = agents
        self.writer = np.full(size, NOBODY, np.int16)
        self.epoch = np.zeros(size, np.int32)
        self.atomic = np.zeros(size, bool)
        self.generic = np.zeros(size, bool)
        self.readers: dict[tuple[int, bool], np.ndarray] = {}
        self.operation_reads: list[tuple[int, np.ndarray]] = []
        self.check_uninitialised = check_uninitialised
        self.lines: dict[tuple[int, int], str] = {}

    def mark_initialised(self, where) -> None:
        """Declare bytes as written before the launch (static data)."""
        self.writer[where] = 0
        self.epoch[where] = 0

    def _fail(self, kind, where, bad, access: str, who: str) -> None:
        offsets = np.arange(self.writer.size)[where][bad]
        byte = int(offsets[0])
        writer = int(self.writer[byte])
        raise kind(
            f"{access} of shared byte {byte:#x} by {who}: {kind.__doc__} "
            f"(last written by {self.agents.describe(writer)})"
        )

    def _check_writers(
        self, where, clock: Clock, who: str, access: str, asynchronous: bool, atomic: bool
    ) -> None:
        writer, epoch = self.writer[where], self.epoch[where]
        known = clock.epochs[BEFORE][writer] >= epoch
        special = writer < 0
        if special.any():
            known &= ~special
            for number in np.unique(epoch[writer == OPERATION]):
                if clock.operations >> int(number) & 1:
                    known |= (writer == OPERATION) & (epoch == number)
            known |= writer == NOBODY
        if atomic:
            known |= self.atomic[where]
        if not known.all():
            self._fail(RaceError, where, ~known, access, who)
        if asynchronous:
            fenced = (clock.epochs[FENCED][writer] >= epoch) | ~self.generic[where] | special
            if not fenced.all():
                self._fail(ProxyError, where, ~fenced, access, who)

    def read(
        self,
        where,
        agent: int,
        epoch: int,
        clock: Clock,
        asynchronous: bool = False,
        atomic: bool = False,
    ) -> None:
        """Record a read of `where` (slice or byte indices) and report what it is not ordered after.

        agent may be OPERATION, then epoch is the operation's number.
        """
        who = self.agents.describe(agent)
        if self.check_uninitialised and (self.writer[where] == NOBODY).any():
            self._fail(UninitialisedRead, where, self.writer[where] == NOBODY, "read", who)
        self._check_writers(where, clock, who, "read", asynchronous, atomic)
        if agent == OPERATION:
            self.operation_reads.append((epoch, np.arange(self.writer.size)[where]))
            return
        if (agent, atomic) not in self.readers:
            self.readers[agent, atomic] = np.zeros(self.writer.size, np.int32)
        self.readers[agent, atomic][where] = epoch

    def write(
        self,
        where,
        agent: int,
        epoch: int,
        clock: Clock,
        asynchronous: bool = False,
        atomic: bool = False,
    ) -> None:
        """Record a write of `where` and report which accesses it is not ordered after."""
        who = self.agents.describe(agent)
        self._check_writers(where, clock, who, "write", asynchronous, atomic)
        for (reader, strong), epochs in self.readers.items():
            if reader == agent or (strong and atomic):
                continue
            late = epochs[where] > clock.epochs[BEFORE, reader]
            if late.any():
                byte = int(np.arange(self.writer.size)[where][late][0])
                raise RaceError(
                    f"write of shared byte {byte:#x} by {who} is not ordered after "
                    f"the read by {self.agents.describe(reader)}"
                )
        if self.operation_reads:
            self._check_operation_reads(where, clock, who)
        self.writer[where] = agent
        self.epoch[where] = epoch
        self.atomic[where] = atomic
        self.generic[where] = not asynchronous

    def _check_operation_reads(self, where, clock: Clock, who: str) -> None:
        touched = np.zeros(self.writer.size, bool)
        touched[where] = True
        kept = []
        for number, bytes_read in self.operation_reads:
            if touched[bytes_read].any():
                if not clock.operations >> number & 1:
                    raise RaceError(
                        f"write by {who} to shared bytes that an unfinished bulk copy still reads"
                    )
                continue
            kept.append((number, bytes_read))
        self.operation_reads = kept
