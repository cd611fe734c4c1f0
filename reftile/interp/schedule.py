"""Schedules: who runs next. All are legal, all are repeatable.

    program       blocks in order, each operation at once
    topo          any ready operation or any block's control, at random by seed
    adversarial   loads as early and stores as late as tokens allow, blocks in reverse; with a seed
                  other than 0, by random priorities that change a few times (the PCT method)
    view          as topo; besides, strong loads find values as old as the memory model permits, and
                  strong stores come in any order that it permits (`histories`)

A program without races whose tokens fix all its results gives the same bits under all of them.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterator
from random import Random
from typing import Literal, NoReturn

from reftile.interp.machine import DRAIN, SPIN, Block, Cell, Instance, Launch, Stop, execute
from reftile.ir.diagnostics import Diagnosis, ReftileError, Span

Schedule = Literal["program", "topo", "adversarial", "view"]
Finished = Callable[[Block], None]

MOST_ROUNDS = 1_000
"""Times that all blocks may look at memory in turn without anybody changing it."""
MOST_PENDING = 4_096
"""Instances that may be ready at the same time; beyond it, control waits."""


def run_program(launch: Launch, blocks: Iterator[Block], finished: Finished) -> None:
    """Run blocks in order; one that spins lets the others run, if progress is declared."""
    waiting: deque[Block] = deque()
    rounds = 0
    while True:
        block = next(blocks, None)
        if block is None:
            if not waiting:
                return
            block = waiting.popleft()
            rounds += 1
        version = launch.version
        if _advance(launch, block) is None:
            finished(block)
            rounds = 0
            continue
        if launch.progress == "none":
            if block.stuck >= 0:
                _raise_lonely_spin(launch, block)
            # Nobody else may be waited for, so this block goes on until it is stuck or done.
            while (stop := _advance(launch, block)) is SPIN and block.stuck < 0:
                pass
            if stop is not None:
                _raise_lonely_spin(launch, block)
            finished(block)
            continue
        waiting.append(block)
        rounds = 0 if launch.version != version else rounds
        _check_stuck(launch, waiting, rounds)


def _advance(launch: Launch, block: Block) -> Cell | Stop | None:
    """Let a block's control go on to its next stop; None when it is done."""
    launch.current = block
    try:
        return next(block.run)
    except StopIteration:
        return None


class _Deferred:
    """What the deferred schedules share: which blocks can go on, and which spin."""

    def __init__(self, launch: Launch, blocks: list[Block], finished: Finished) -> None:
        self.launch = launch
        self.finished = finished
        self.runnable = blocks
        self.parked: list[Block] = []
        self.unfinished = {b.linear for b in blocks}
        self.parked_version = -1
        self.rounds = 0

    def advance(self, block: Block) -> None:
        """Let control of a runnable block go on; it stays runnable, waits, spins or ends."""
        stop = _advance(self.launch, block)
        if stop is None:
            self.runnable.remove(block)
            if block.pending == 0:
                self.end(block)
        elif stop is SPIN and self.launch.progress == "none":
            if block.stuck == self.launch.version:
                _raise_lonely_spin(self.launch, block)
        elif stop is SPIN:
            self.runnable.remove(block)
            self.parked.append(block)
        elif stop is DRAIN:
            if block.pending:
                self.runnable.remove(block)
                block.draining = True
        elif isinstance(stop, Cell) and not stop.done:
            self.runnable.remove(block)
            stop.blocks.append(block)

    def end(self, block: Block) -> None:
        if block.linear in self.unfinished:
            self.unfinished.discard(block.linear)
            self.finished(block)

    def execute(self, instance: Instance) -> None:
        """Run a ready instance, and let those go on that waited for it."""
        self.runnable.extend(execute(instance))
        block = instance.block
        if block.pending == 0 and block.run.gi_frame is None:  # type: ignore[attr-defined]
            self.end(block)

    def release_parked(self) -> None:
        """Let spinning blocks look again once memory has changed, or nothing else is left."""
        if not self.parked:
            return
        launch = self.launch
        idle = not launch.ready and not self.runnable
        if launch.version == self.parked_version and not idle:
            return
        if idle:
            self.rounds = self.rounds + 1 if launch.version == self.parked_version else 0
            _check_stuck(launch, deque(self.parked), self.rounds)
        self.parked_version = launch.version
        self.runnable.extend(self.parked)
        self.parked.clear()


def run_topo(launch: Launch, blocks: list[Block], finished: Finished, seed: int) -> None:
    """Pick at random among ready instances and blocks whose control can advance."""
    random = Random(seed)
    # Some runs let control rush ahead, so that much is ready at once; some keep it short.
    control_share = random.choice((0.3, 0.6, 0.9, 0.98))
    # Some runs let some blocks get far ahead of others: messages arrive only if their readers are
    # late.
    samples = Random(f"speed {seed}").choice((1, 1, 4, 12))
    speeds = Random(f"speeds {seed}")
    speed: dict[int, float] = {}
    state = _Deferred(launch, blocks, finished)

    def fastest(count: int, block_at: Callable[[int], Block]) -> int:
        """Of a few picked at random, the one whose block is the fastest."""
        best = random.randrange(count)
        for _ in range(samples - 1):
            other = random.randrange(count)
            ranks = [speed.setdefault(block_at(i).linear, speeds.random()) for i in (best, other)]
            best = other if ranks[1] > ranks[0] else best
        return best

    while True:
        state.release_parked()
        ready, runnable = launch.ready, state.runnable
        if not ready and not runnable:
            return
        go_on = runnable and len(ready) < MOST_PENDING and random.random() < control_share
        if go_on or not ready:
            state.advance(runnable[fastest(len(runnable), runnable.__getitem__)])
        else:
            i = fastest(len(ready), lambda i, ready=ready: ready[i].block)
            ready[i], ready[-1] = ready[-1], ready[i]
            state.execute(ready.pop())


_HASTE = {"load": 0, "effect": 2, "update": 2, "pure": 0, "now": 0, "store": 3}


def run_adversarial(launch: Launch, blocks: list[Block], finished: Finished, seed: int) -> None:
    """Loads first, then control, then read-modify-writes, then stores, the latest first."""
    if seed != 0:
        _run_by_priority(launch, blocks, finished, seed)
        return
    state = _Deferred(launch, blocks, finished)
    while True:
        state.release_parked()
        ready, runnable = launch.ready, state.runnable
        if not ready and not runnable:
            return
        best = -1
        if ready:
            best = min(range(len(ready)), key=lambda i: (_HASTE[ready[i].step.kind], -i))
        urgent = best >= 0 and _HASTE[ready[best].step.kind] == 0
        if runnable and not urgent and len(ready) < MOST_PENDING:
            state.advance(max(runnable, key=lambda b: b.linear))
        else:
            state.execute(ready.pop(best))


CHANGE_POINTS = 3
"""Times that a run by priority changes its mind: the depth of the bugs it looks for."""
CHANGE_WITHIN = 64
"""Steps within which the first changes happen; each later one may come twice as late."""


def _run_by_priority(launch: Launch, blocks: list[Block], finished: Finished, seed: int) -> None:
    """Each block's control and each operation of each block has a priority; the highest runs.

    Source: Burckhardt et al., "A Randomized Scheduler with Probabilistic Guarantees of
    Finding Bugs".
    """
    random = Random(seed)
    state = _Deferred(launch, blocks, finished)
    priority: dict[tuple[int, int], float] = {}
    changes = {random.randrange(CHANGE_WITHIN << i) for i in range(CHANGE_POINTS)}
    steps = 0

    def rank(block: Block, what: int) -> float:
        key = block.linear, what
        if key not in priority:
            priority[key] = random.random()
        return priority[key]

    while True:
        state.release_parked()
        ready = launch.ready
        runnable = state.runnable if len(ready) < MOST_PENDING else []
        if not ready and not runnable:
            return
        ranked = [rank(i.block, id(i.step)) for i in ready] + [rank(b, 0) for b in runnable]
        best = max(range(len(ranked)), key=ranked.__getitem__)
        if best < len(ready):
            chosen = ready[best].block.linear, id(ready[best].step)
        else:
            chosen = runnable[best - len(ready)].linear, 0
        if steps in changes:
            priority[chosen] = -float(steps + 1)
        steps += 1
        if best < len(ready):
            state.execute(ready.pop(best))
        else:
            state.advance(runnable[best - len(ready)])


# Who waits for whom


def _check_stuck(launch: Launch, waiting: deque[Block], rounds: int) -> None:
    """Raise if all that is left only waits, for certain (deadlock) or for too long (livelock)."""
    started_all = launch.done + len(waiting) == launch.block_count
    if not started_all:
        return
    if all(b.stuck == launch.version for b in waiting):
        _raise_waiting(
            launch, waiting, "progress.deadlock", "every block that is left waits for ever"
        )
    if rounds > MOST_ROUNDS * len(waiting):
        message = f"memory has not changed while all blocks looked at it {MOST_ROUNDS} times"
        _raise_waiting(launch, waiting, "progress.livelock", message)


def _wait_line(launch: Launch, block: Block) -> tuple[str, Span | None]:
    name = launch.block_name(block.linear)
    found = launch.waits.get(block.linear)
    if found is None:
        return f"block {name} loops", None
    op, buffer, offset = found
    return f"block {name} waits for a change of {buffer.element_at(offset)}", op.span


def _raise_waiting(launch: Launch, waiting: deque[Block], rule: str, message: str) -> NoReturn:
    first = waiting[0]
    span = first.step.op.span if first.step else launch.plan.kernel.span
    notes = tuple(_wait_line(launch, b) for b in list(waiting)[:8])
    if len(waiting) > 8:
        notes = (*notes, (f"and {len(waiting) - 8} more", None))
    hint = (
        "a token must lead from each load of the loop to the next, "
        "and some block must store what they wait for"
    )
    data: dict[str, object] = {"blocks": [b.id for b in waiting]}
    raise ReftileError(Diagnosis(rule, message, span, hint, notes, data=data))


def _raise_lonely_spin(launch: Launch, block: Block) -> NoReturn:
    span = block.step.op.span if block.step else launch.plan.kernel.span
    raise ReftileError(
        Diagnosis(
            "progress.needs_co_residency",
            f"block {launch.block_name(block.linear)} waits for another block, "
            "and the kernel does not say that blocks run together",
            span,
            'declare it: attributes {progress = "cooperative"} on the kernel',
            (_wait_line(launch, block),),
            data={"block": block.id},
        )
    )
