"""How long something takes, in wall time and in processor time, and at which commit."""

from __future__ import annotations

import subprocess
import time
from collections.abc import Callable
from pathlib import Path
from typing import NamedTuple

LEAST_SECONDS = 0.1
"""How long to measure at least: what is shorter is repeated."""


class Seconds(NamedTuple):
    """The mean of some runs, and the least. cpu: of all threads of the process."""

    wall: float
    cpu: float
    best_wall: float
    best_cpu: float


def measure(run: Callable[[], object]) -> Seconds:
    """Run until LEAST_SECONDS have passed."""
    walls: list[float] = []
    cpus: list[float] = []
    while sum(walls) < LEAST_SECONDS:
        wall, cpu = time.perf_counter(), time.process_time()
        run()
        walls.append(time.perf_counter() - wall)
        cpus.append(time.process_time() - cpu)
    count = len(walls)
    return Seconds(sum(walls) / count, sum(cpus) / count, min(walls), min(cpus))


def commit() -> str:
    """The commit that is measured, or nothing outside a checkout."""
    git = ["git", "-C", str(Path(__file__).resolve().parent), "rev-parse", "HEAD"]
    try:
        return subprocess.run(git, capture_output=True, text=True, check=False).stdout.strip()
    except OSError:
        return ""
