"""Which kernels were launched: what a failure that shows later may be due to."""

from __future__ import annotations

from collections import deque
from collections.abc import Sequence
from typing import Protocol
from weakref import WeakSet

from reftile.lower.host import HostPlan


class Launches(Protocol):
    """What is asked of a launcher."""

    plan: HostPlan
    device: int
    recent_grids: deque[Sequence[int]]


_LAUNCHERS: WeakSet[Launches] = WeakSet()


def note_launcher(launcher: Launches) -> None:
    """Remember a launcher for as long as it lives."""
    _LAUNCHERS.add(launcher)


def recent_launches() -> str:
    """The kernels launched so far, with the newest grids of each, for a message."""
    found = sorted(
        f"`{launcher.plan.entry}` over {' and '.join(map(str, launcher.recent_grids))} "
        f"on device {launcher.device}"
        for launcher in tuple(_LAUNCHERS)
        if launcher.recent_grids
    )
    return "launched were " + ", ".join(found) if found else "no kernel of ours was launched"
