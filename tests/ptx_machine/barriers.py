"""Named barriers of a CTA and the barrier of a cluster.

Source: PTX ISA, "bar, barrier" and "barrier.cluster".
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from .clocks import Clock
from .errors import BarrierError

if TYPE_CHECKING:
    from .machine import Cluster, Cta
    from .warp import Warp


class NamedBarrier:
    """One of the sixteen barriers of a CTA; counts threads, whole warps at a time."""

    def __init__(self, number: int, cta: Cta) -> None:
        self.number, self.cta = number, cta
        self.expected: int | None = None
        self.arrived = 0
        self.generation = 0
        self.gathering = Clock(cta.cluster.agents.count)
        self.completed: dict[int, tuple[Clock, dict[str, int]]] = {}
        self.votes: list[np.ndarray] = []

    def __str__(self) -> str:
        return f"barrier {self.number} ({self.arrived} of {self.expected} threads arrived)"

    def arrive(self, w: Warp, count: int | None, votes: np.ndarray | None = None) -> int:
        """Take one warp's arrival and return the generation it belongs to."""
        expected = 32 * len(self.cta.warps) if count is None else count
        if expected % 32 or not 0 < expected <= 1024:
            raise BarrierError(
                f"barrier {self.number}: {expected} threads is not a positive multiple of 32"
            )
        if self.expected not in (None, expected):
            raise BarrierError(
                f"barrier {self.number}: {expected} threads, earlier arrivals said {self.expected}"
            )
        self.expected = expected
        self.arrived += 32
        published = w.release()
        self.gathering.join(published)
        if votes is not None:
            self.votes.append(votes)
        mine = self.generation
        if self.arrived == expected:
            self._complete()
        w.machine.progressed()
        return mine

    def _complete(self) -> None:
        counts = {}
        if self.votes:
            votes = np.concatenate(self.votes)
            counts = {"popc": int(votes.sum()), "and": int(votes.all()), "or": int(votes.any())}
        self.completed[self.generation] = (self.gathering, counts)
        self.completed.pop(self.generation - 64, None)
        self.generation += 1
        self.expected, self.arrived, self.votes = None, 0, []
        self.gathering = Clock(self.cta.cluster.agents.count)


class ClusterBarrier:
    """barrier.cluster: counts lanes of every CTA in the cluster that have not exited."""

    def __init__(self, cluster: Cluster) -> None:
        self.cluster = cluster
        self.generation = 0
        self.arrived = 0
        self.gathering = Clock(cluster.agents.count)
        self.completed = Clock(cluster.agents.count)

    def __str__(self) -> str:
        return f"the cluster barrier ({self.arrived} threads arrived)"

    def arrive(self, w: Warp, published: Clock) -> None:
        """Take the arrival of a warp's active lanes."""
        lanes = w.active_lanes()
        if w.cluster_arrived[lanes].any():
            raise BarrierError("barrier.cluster.arrive twice without a wait between")
        w.cluster_arrived[lanes] = True
        w.cluster_generation[lanes] = self.generation
        self.gathering.join(published)
        self.arrived += lanes.size
        self.reconsider()

    def reconsider(self) -> None:
        """Complete the phase when all lanes still alive have arrived."""
        alive = sum(w.live.bit_count() for w in self.cluster.warps)
        present = sum(
            (
                w.live
                & int(
                    np.packbits(
                        w.cluster_arrived & (w.cluster_generation == self.generation),
                        bitorder="little",
                    ).view(np.uint32)[0]
                )
            ).bit_count()
            for w in self.cluster.warps
        )
        if self.arrived and present == alive:
            self.completed.join(self.gathering)
            self.gathering = Clock(self.cluster.agents.count)
            self.generation += 1
            self.arrived = 0
        self.cluster.machine.progressed()
