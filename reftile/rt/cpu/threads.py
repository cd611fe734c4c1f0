"""Blocks on threads: how many, which chunks they take, and the end of a launch.

Every thread runs the same compiled function, which takes chunks of blocks from one counter until
none is left.
"""

from __future__ import annotations

import os
import threading
from collections.abc import Generator, Sequence
from concurrent.futures import FIRST_COMPLETED, Future, ThreadPoolExecutor, wait
from contextlib import ExitStack, contextmanager, nullcontext
from functools import cache

import numpy as np
from numpy.typing import NDArray

from reftile.ir.core import Kernel
from reftile.ir.diagnostics import Diagnosis, ReftileError, fail
from reftile.rt.cpu.memory import scratch_address
from reftile.rt.cpu.prepare import LONG_WORK, Prepared

MOST_WAITING = 256
"""Blocks at most of a kernel in which blocks wait for each other: each gets a thread of its own."""
PATIENCE_SECONDS = 60.0
"""How long blocks may wait for each other without any of them ending."""
STOP_SLOT = 6
"""The slot of the parameters that stops a launch: the number of a fault, or -1 of the host."""
GIVE_WAY_SLOT = 9
"""The slot of the address of what lets other threads run, or of 0."""
_CHUNKS_PER_THREAD = 8
_SMALL_WORK = 1 << 15
_RUNS_PER_PROCESSOR = 4


def thread_count() -> int:
    """`REFTILE_CPU_THREADS`, or the processors that this process may use.

    Raises:
        ReftileError: rule `cpu.threads`: the variable is no number from 1 on.
    """
    chosen = os.environ.get("REFTILE_CPU_THREADS", "")
    if chosen:
        if not chosen.isdecimal() or int(chosen) < 1:
            message = f"REFTILE_CPU_THREADS is {chosen!r}, and must be a number from 1 on"
            raise fail("cpu.threads", message)
        return int(chosen)
    return processor_count()


def processor_count() -> int:
    """How many processors this process may use."""
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


def blocks_in_run(most: int, along_x: int, blocks: int) -> int:
    """How many blocks, one behind the other along x, share a product: a power of two.

    It depends on the machine and the grid alone, and not on the number of threads, so that results
    do not either: BLAS may add in another order for other shapes. most: what the kernel allows.
    """
    if most < 2:
        return 1
    run, runs = 1, _RUNS_PER_PROCESSOR * (os.cpu_count() or 1)
    while 2 * run <= most and along_x % (2 * run) == 0 and blocks >= 2 * run * runs:
        run *= 2
    return run


def share_blocks(
    kernel: Kernel, prepared: Prepared, blocks: int, threads: int | None, run: int = 1
) -> tuple[int, int]:
    """On how many threads blocks run, and how many a thread takes at once: whole runs.

    Raises:
        ReftileError: rule `cpu.co_resident`: blocks wait for each other, and there are too many;
            rule `cpu.threads`: there is no such number of threads.
    """
    if threads is not None and threads < 1:
        raise fail("cpu.threads", f"`{kernel.name}` was to run on {threads} threads")
    if prepared.program.waits and blocks > 1:
        if blocks > MOST_WAITING:
            message = (
                f"blocks of `{kernel.name}` wait for each other, and {blocks} blocks cannot all "
                f"run at once: the CPU runs at most {MOST_WAITING} such blocks"
            )
            hint = "launch fewer blocks, or use backend='interp'"
            raise ReftileError(Diagnosis("cpu.co_resident", message, kernel.span, hint))
        return blocks, 1
    if threads is None and blocks * prepared.elements <= _SMALL_WORK:
        return 1, run
    count = 1 if blocks == 1 else min(threads or thread_count(), blocks)
    # Between chunks a thread sees that it is to stop.
    most = max(1, LONG_WORK // prepared.work)
    chunk = max(1, min(blocks // (count * _CHUNKS_PER_THREAD), most))
    return count, -(-chunk // run) * run


def run_blocks(
    kernel: Kernel,
    prepared: Prepared,
    parameters: NDArray[np.int64],
    count: int,
    blocks: int,
    pinned: bool,
) -> None:
    """Run all blocks of a launch on `count` threads.

    parameters: what the compiled function reads.
    pinned: each thread stays on one processor, and where each has its own, it does not let others
        run while it waits.

    Raises:
        ReftileError: rule `cpu.no_progress`: blocks waited for each other, and none ended.
    """
    function, size = prepared.code.function, prepared.program.scratch_bytes
    if pinned and count <= processor_count():
        parameters[GIVE_WAY_SLOT] = 0

    def work(number: int) -> None:
        # Whoever gives up waiting leaves the parameters to those that still run.
        address = int(parameters.__array_interface__["data"][0])
        with _stay(number) if pinned else nullcontext():
            function(address, scratch_address(size))

    # A thread that runs compiled code does not hear Ctrl-C; one that waits for others does.
    is_long = prepared.is_open_ended or blocks * prepared.work >= LONG_WORK
    if count == 1 and not prepared.program.waits and not is_long:
        work(0)
        return
    futures: list[Future[None]] = []
    with ExitStack() as stack:
        if prepared.program.waits:
            stack.enter_context(_seats.taken(count))
        pool = _pool(count if not prepared.program.waits else MOST_WAITING)
        try:
            futures += [pool.submit(work, n) for n in range(1, count)]
            if prepared.program.waits:
                futures.append(pool.submit(work, 0))
                _watch(kernel, futures, parameters)
            elif is_long:
                futures.append(pool.submit(work, 0))
                for future in futures:
                    future.result()
            else:
                work(0)
                for future in futures:
                    # A thread that has not begun by now has nothing left to do.
                    if not future.cancel():
                        future.result()
        except BaseException:
            if parameters[STOP_SLOT] == 0:
                parameters[STOP_SLOT] = -1
            for future in futures:
                if not future.cancel():
                    future.exception()
            raise


class _Seats:
    """The threads for blocks that wait for each other, which must all have one at once.

    Launches at the same time that got a part of what they need would wait for each other for ever.
    """

    def __init__(self) -> None:
        self.free_all()

    def free_all(self) -> None:
        """Take none as taken."""
        self.changed = threading.Condition()
        self.free = MOST_WAITING

    @contextmanager
    def taken(self, count: int) -> Generator[None]:
        """Wait until `count` threads are free, and keep them while it is in here."""
        with self.changed:
            self.changed.wait_for(lambda: self.free >= count)
            self.free -= count
        try:
            yield
        finally:
            with self.changed:
                self.free += count
                self.changed.notify_all()


_seats = _Seats()


@contextmanager
def _stay(number: int) -> Generator[None]:
    """Keep the calling thread on the processor of this number while it is in here."""
    if not hasattr(os, "sched_setaffinity"):
        yield
        return
    before = os.sched_getaffinity(0)
    os.sched_setaffinity(0, {sorted(before)[number % len(before)]})
    try:
        yield
    finally:
        os.sched_setaffinity(0, before)


def _watch(kernel: Kernel, futures: Sequence[Future[None]], parameters: NDArray[np.int64]) -> None:
    """Wait for all blocks, but not for ever if they wait for each other."""
    left = set(futures)
    while left:
        done, left = wait(left, PATIENCE_SECONDS, FIRST_COMPLETED)
        if not done:
            parameters[STOP_SLOT] = -1
            message = (
                f"{len(left)} blocks of `{kernel.name}` waited {PATIENCE_SECONDS:.0f} seconds "
                "without any of them ending"
            )
            hint = "run it with check=True: the interpreter names the blocks that wait"
            raise ReftileError(Diagnosis("cpu.no_progress", message, kernel.span, hint))
        for future in done:
            future.result()


@cache
def _pool(count: int) -> ThreadPoolExecutor:
    return ThreadPoolExecutor(count, thread_name_prefix="reftile-cpu")


if hasattr(os, "register_at_fork"):
    # The threads of a pool do not live on in a forked process.
    os.register_at_fork(after_in_child=_pool.cache_clear)
    os.register_at_fork(after_in_child=_seats.free_all)
