"""A campaign in many processes: each has its compiler and its context on the GPU.

The processes take pieces of work by number, next one first, and send back what came of them. A
piece is named by what can be made anew in each process: a suite and the number of a case in it.
"""

from __future__ import annotations

import multiprocessing
import os
import queue
import signal
import sys
import time
from collections.abc import Callable, Generator, Sequence
from typing import Any, Protocol

from reftile.conformance.tileiras.backend import TileirasBackend

from reftile.ir.diagnostics import Bug

Make = Callable[[], TileirasBackend]
"""Makes the backend of a process; it must be a function that another process can import."""


class Work(Protocol):
    """Work in pieces, that another process can be given."""

    def prepare(self, backend: TileirasBackend) -> Sequence[Any]:
        """The pieces, the same in every process."""
        ...

    def do(self, backend: TileirasBackend, piece: Any) -> Any:
        """What comes of a piece."""
        ...


def do_all(
    make: Make, work: Work, count: int, jobs: int = 0, time_limit: float | None = None
) -> Generator[tuple[int, Any]]:
    """Yield (number, what came of it) for each of `count` pieces, in any order.

    jobs: processes; 0 for one on each core. Pieces that no process took within `time_limit` seconds
    are left out, and so is the one that a process was at when it died. Closing the generator, as
    Ctrl-C does, ends the processes.

    Raises:
        Bug: a process failed, or all of them died.
    """
    jobs = min(jobs or os.cpu_count() or 1, max(count, 1))
    context = multiprocessing.get_context("spawn")
    # Made before they are needed: what a process is at must be known if it dies.
    taken, results = context.Value("l", 0), context.Queue()
    end = None if time_limit is None else time.time() + time_limit
    processes = [
        context.Process(target=_work, args=(make, work, count, taken, results, end))
        for _ in range(jobs)
    ]
    for process in processes:
        process.start()
    try:
        ended = 0
        while ended < jobs:
            try:
                number, found = results.get(timeout=1.0)
            except queue.Empty:
                if any(p.is_alive() for p in processes):
                    continue
                if ended:
                    return
                codes = sorted({p.exitcode for p in processes}, key=str)
                died = f"all {jobs} processes of the campaign died (exit codes {codes})"
                raise Bug(died, "conformance") from None
            if number < 0:
                ended += 1
                if found:
                    raise Bug(f"a process of the campaign failed: {found}", "conformance")
            else:
                yield number, found
    finally:
        for process in processes:
            process.terminate()
        for process in processes:
            process.join(5.0)
            if process.is_alive():
                process.kill()


def _work(make: Make, work: Work, count: int, taken: Any, results: Any, end: float | None) -> None:
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    # An orderly exit takes the process of the device along.
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(1))
    failure = ""
    try:
        backend = make()
        pieces = work.prepare(backend)
        while end is None or time.time() < end:
            with taken.get_lock():
                number = taken.value
                taken.value += 1
            if number >= count:
                break
            results.put((number, work.do(backend, pieces[number])))
        backend.device.close()
    except Exception as error:
        failure = f"{type(error).__name__}: {error}"
    results.put((-1, failure))
