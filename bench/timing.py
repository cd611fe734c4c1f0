"""How long something takes, in wall time and in processor time."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import NamedTuple

LEAST_SECONDS = 0.1
"""How long to measure at least: what is shorter is repeated."""


class Seconds(NamedTuple):
    """The mean of some runs. cpu: of all threads of the process."""

    wall: float
    cpu: float


def measure(run: Callable[[], object]) -> Seconds:
    """Run until LEAST_SECONDS have passed; gives the mean of the runs."""
    count = 0
    wall, cpu = time.perf_counter(), time.process_time()
    while True:
        run()
        count += 1
        passed = time.perf_counter() - wall
        if passed >= LEAST_SECONDS:
            return Seconds(passed / count, (time.process_time() - cpu) / count)
