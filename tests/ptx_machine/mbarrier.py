"""The mbarrier object: arrivals and transaction bytes per phase.

Source: PTX ISA, "Parallel synchronization and communication instructions: mbarrier".
"""

from __future__ import annotations

from .clocks import Clock
from .errors import BarrierError

MAX_COUNT = (1 << 20) - 1


class Mbarrier:
    """One object in shared memory; phase counts completed phases."""

    def __init__(self, address: int, count: int, agents: int, owner: tuple[int, int]) -> None:
        if not 1 <= count <= MAX_COUNT:
            raise BarrierError(f"mbarrier at {address:#x}: count {count} is outside 1..{MAX_COUNT}")
        self.address = address
        self.expected = self.pending = count
        self.bytes_pending = 0
        self.phase = 0
        self.owner = owner
        self.agents = agents
        self.gathering = Clock(agents)
        self.completed = Clock(agents)

    def __str__(self) -> str:
        return (
            f"mbarrier {self.address:#x}: phase {self.phase}, "
            f"{self.pending} of {self.expected} arrivals pending, "
            f"{self.bytes_pending} transaction bytes pending"
        )

    def arrive(self, count: int, clock: Clock | None, drop: bool = False) -> None:
        """Take `count` arrivals; clock is what the arriver releases, None when relaxed."""
        if not 1 <= count <= self.pending:
            raise BarrierError(f"{count} arrivals exceed what is pending ({self})")
        if clock is not None:
            self.gathering.join(clock)
        self.pending -= count
        if drop:
            self.expected -= count
        self._advance()

    def expect(self, count: int) -> None:
        """Add expected transaction bytes to the current phase."""
        self._set_bytes(self.bytes_pending + count)

    def complete(self, count: int, clock: Clock | None) -> None:
        """Take delivered transaction bytes."""
        if clock is not None:
            self.gathering.join(clock)
        self._set_bytes(self.bytes_pending - count)
        self._advance()

    def _set_bytes(self, value: int) -> None:
        if abs(value) > MAX_COUNT:
            raise BarrierError(f"transaction count {value} is out of range ({self})")
        self.bytes_pending = value

    def _advance(self) -> None:
        if self.pending == 0 and self.bytes_pending == 0:
            self.phase += 1
            self.pending = self.expected
            self.completed.join(self.gathering)
            self.gathering = Clock(self.agents)

    def has_completed_parity(self, parity: int) -> bool:
        """Tell whether the phase of that parity is the one just completed."""
        return self.phase & 1 != parity & 1
