"""The checked path: every rule of the language is checked while a launch runs.

The first violation is raised as a diagnosis that names the operation, the block, the element and
the address. Failed assertions are collected and raised when the launch is over.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from random import Random

import numpy as np

from reftile.interp.histories import Histories
from reftile.interp.machine import Block, Launch, origin_note
from reftile.interp.memory import STORED_POISON, Buffer
from reftile.interp.schedule import Schedule, run_adversarial, run_program, run_topo
from reftile.ir.diagnostics import NOWHERE, Diagnosis, ReftileError, ReftileErrors, Span

Progress = Callable[[int, int], None]
"""`progress(done, total)`: blocks that are done, and of how many; called when one is done, and for
each iteration of a loop."""


def run_checked(
    launch: Launch,
    arguments: list[object],
    schedule: Schedule,
    seed: int,
    progress: Progress | None,
) -> None:
    """Run all blocks under a schedule, then look at what the host will see.

    Raises:
        ReftileError: a rule is broken.
    """
    template = launch.plan.template
    for slot, value in zip(launch.plan.body.arguments, arguments, strict=True):
        template[slot] = value
    total = launch.block_count
    if progress is not None:
        launch.tick = lambda: progress(launch.done, total)

    def finished(block: Block) -> None:
        launch.done += 1
        launch.waits.pop(block.linear, None)
        if progress is not None:
            progress(launch.done, total)

    def blocks(deferred: bool) -> Iterator[Block]:
        for linear in range(total):
            yield Block(launch, linear, list(template), deferred)

    launch.random = Random(seed) if schedule in ("topo", "view") else None
    launch.histories = Histories(seed) if schedule == "view" else None
    if schedule == "program":
        run_program(launch, blocks(False), finished)
    elif schedule in ("topo", "view"):
        run_topo(launch, list(blocks(True)), finished, seed)
    else:
        run_adversarial(launch, list(blocks(True)), finished, seed)
    if launch.failed:
        raise (
            ReftileErrors(launch.failed)
            if len(launch.failed) > 1
            else ReftileError(launch.failed[0])
        )
    for buffer in launch.memory.buffers:
        if buffer.visible and buffer.state is not None:
            _check_output(launch, buffer)


def _check_output(launch: Launch, buffer: Buffer) -> None:
    """Poison that was stored must not be left where the host looks."""
    assert buffer.state is not None
    bad = np.flatnonzero(buffer.state & STORED_POISON)
    if not bad.size:
        return
    offset = int(bad[0])
    writer = launch.shadow(buffer).writer_at(offset)
    notes: tuple[tuple[str, Span | None], ...] = ()
    data: dict[str, object] = {"buffer": buffer.name, "address": buffer.address + offset}
    if writer is not None:
        notes = ((f"stored by block {launch.block_name(writer.block)}", None),)
        source = launch.origins.get(writer.op)
        if source is not None:
            notes = (*notes, origin_note(source))
        data["block"] = launch.block_id(writer.block)
    raise ReftileError(
        Diagnosis(
            "poison.output",
            f"{buffer.element_at(offset)} (address 0x{buffer.address + offset:x}) is poison "
            "when the launch ends",
            writer.op.span if writer is not None else NOWHERE,
            "stored here was a masked load without padding, memory that was never written, "
            "or an undefined result",
            notes,
            data=data,
        )
    )
