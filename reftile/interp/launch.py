"""Run a kernel on NumPy arrays: the one entry of the interpreter.

    report = interpret(kernel, (1024,), [x, y, out, n])

What the kernel stores is in the caller's arrays afterwards.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from math import prod
from typing import Any, Literal

import numpy as np

from reftile.interp.actions import MAKERS
from reftile.interp.arguments import Raw, Uninitialized, bind_arguments
from reftile.interp.batched import run_batched
from reftile.interp.checked import Progress, run_checked
from reftile.interp.machine import Launch
from reftile.interp.memory import Buffer, Memory
from reftile.interp.pipe.run import launch_pipe, run_pipe
from reftile.interp.plan import make_plan
from reftile.interp.schedule import Schedule
from reftile.interp.simt.run import BankConflicts, launch_simt, run_simt
from reftile.ir.arguments import grid_extents
from reftile.ir.core import Kernel, Module
from reftile.ir.diagnostics import Diagnosis, ReftileError
from reftile.ir.ops import Global
from reftile.ir.packing import pack_nibbles
from reftile.ir.verify import verify_unless_known

MOST_BLOCKS: dict[str, int] = {
    "program": 1 << 24,
    "topo": 1 << 20,
    "adversarial": 1 << 20,
    "view": 1 << 20,
}
"""Blocks of a launch at most, by schedule: more would run for hours, and the schedules that defer
keep all blocks in memory."""


@dataclass(frozen=True, slots=True)
class Report:
    """What a launch did.

    blocks: how many ran. operations: memory operations that the checked path executed.
    printed: the texts of `print_tko`, in the order they ran. schedule, seed: as given; they repeat
        the run.
    conflicts: of a simt kernel, its accesses to shared memory and what bank conflicts cost them.
    backend: what ran, as in the report of every backend.
    """

    blocks: int
    operations: int
    printed: tuple[str, ...]
    schedule: Schedule
    seed: int
    checked: bool
    conflicts: tuple[BankConflicts, ...] = ()
    backend: str = "interp"


class Interrupted(KeyboardInterrupt):
    """Ctrl-C while a launch ran; `str()` says where it stopped. Buffers stay as they are."""


def interpret(
    program: Module | Kernel,
    grid: int | Sequence[int],
    args: Sequence[Any],
    *,
    check: bool = True,
    schedule: Schedule = "program",
    seed: int = 0,
    progress: Progress | None = None,
    name: str | None = None,
) -> Report:
    """Run a kernel over a grid of blocks.

    program: a kernel, or a module with the kernel called `name` (needed if it has several) and its
        globals.
    grid: blocks along one to three axes.
    args: one for each argument: a NumPy array (types of ml_dtypes too) or `Raw` bytes for a pointer
        or a tensor view, a number for a scalar. `Uninitialized(array)` must be written before it is
        read.
    check: False runs all blocks at once along a leading axis, without any checks, or says why it
        cannot. A pipe kernel runs as ever then, and races are not looked for.
    schedule: in which order things happen: "program", "topo" or "adversarial" (see `schedule`).
    seed: of the schedule; the same seed gives the same run.
    progress: called with (blocks done, blocks in all) when some are done, and for each iteration of
        a loop.

    Raises:
        ReftileError: the kernel is invalid, or breaks a rule while it runs.
        Interrupted: on Ctrl-C.
    """
    kernel, module = _kernel_of(program, name)
    if kernel.level not in ("tile", "pipe", "simt"):
        message = f"`{kernel.name}` is a {kernel.level} kernel, which is not interpreted"
        raise ReftileError(Diagnosis("launch.level", message, kernel.span))
    _check_schedule(schedule, seed)
    verify_unless_known(kernel)
    extents = _grid(kernel, grid, "program" if not check else schedule)
    memory = Memory()
    if kernel.level == "simt":
        return _run_simt(kernel, extents, memory, args, check, schedule, seed, progress)
    arguments = bind_arguments(kernel, args, memory)
    with np.errstate(all="ignore"):
        globals = _load_globals(module, memory)
        if kernel.level == "pipe" and schedule == "view":
            message = "the schedule `view` runs tile kernels: a pipe kernel has no stale values"
            raise ReftileError(Diagnosis("launch.schedule", message, kernel.span))
        if kernel.level == "pipe":
            pipe = launch_pipe(kernel, extents, memory, check)
            pipe.globals, pipe.progress = globals, _progress_of(kernel)
            try:
                run_pipe(pipe, arguments, schedule, seed, progress)
            except KeyboardInterrupt:
                raise Interrupted(_where(pipe)) from None
            operations = len(pipe.order.events)
            return Report(pipe.done, operations, tuple(pipe.printed), schedule, seed, check)
        if not check:
            try:
                blocks = run_batched(kernel, extents, arguments, memory, globals, progress)
            except KeyboardInterrupt as stop:
                raise Interrupted(str(stop) or "stopped before the first block") from None
            return Report(blocks, 0, (), schedule, seed, False)
        launch = Launch(make_plan(kernel, MAKERS), extents, memory)
        launch.globals = globals
        launch.progress = _progress_of(kernel)
        try:
            run_checked(launch, arguments, schedule, seed, progress)
        except KeyboardInterrupt:
            raise Interrupted(_where(launch)) from None
    done = launch.done
    return Report(done, len(launch.order.events), tuple(launch.printed), schedule, seed, True)


def _run_simt(
    kernel: Kernel,
    grid: tuple[int, int, int],
    memory: Memory,
    args: Sequence[Any],
    check: bool,
    schedule: Schedule,
    seed: int,
    progress: Progress | None,
) -> Report:
    """Run a kernel of threads; its arguments are those of the kernel it was lowered from."""
    with np.errstate(all="ignore"):
        launch = launch_simt(kernel, grid, memory, check)
        launch.progress = _progress_of(kernel)
        try:
            conflicts = run_simt(launch, args, schedule, seed, progress)
        except KeyboardInterrupt:
            raise Interrupted(_where(launch)) from None
    return Report(launch.done, launch.accesses, (), schedule, seed, check, conflicts)


def _kernel_of(program: Module | Kernel, name: str | None) -> tuple[Kernel, Module]:
    if isinstance(program, Kernel):
        return program, Module([program])
    try:
        return program.kernel(name), program
    except KeyError:
        names = ", ".join(k.name for k in program.kernels)
        if not program.kernels:
            message = "the module has no kernel"
        elif name:
            message = f"there is no kernel `{name}` (kernels: {names})"
        else:
            message = f"several kernels: name one (kernels: {names})"
        raise ReftileError(Diagnosis("launch.kernel", message)) from None


def _check_schedule(schedule: object, seed: object) -> None:
    if not isinstance(schedule, str) or schedule not in MOST_BLOCKS:
        message = f"there is no schedule {schedule!r} (there are: {', '.join(MOST_BLOCKS)})"
        raise ReftileError(Diagnosis("launch.schedule", message))
    if not isinstance(seed, int | np.integer):
        raise ReftileError(Diagnosis("launch.schedule", f"a seed is an integer, found {seed!r}"))


def _grid(kernel: Kernel, grid: int | Sequence[int], schedule: Schedule) -> tuple[int, int, int]:
    extents = grid_extents(kernel, grid)
    most = MOST_BLOCKS[schedule]
    if prod(extents) > most:
        message = f"{prod(extents)} blocks; the interpreter runs at most {most} (`{schedule}`)"
        hint = "launch fewer blocks: the interpreter is for small sizes"
        raise ReftileError(Diagnosis("launch.grid", message, kernel.span, hint))
    return extents


def _progress_of(kernel: Kernel) -> Literal["none", "occupancy_bound", "cooperative"]:
    found = kernel.attributes.get("progress", "none")
    match found:
        case "none" | "occupancy_bound" | "cooperative":
            return found
        case _:
            message = f"`progress` is none, occupancy_bound or cooperative, found {found}"
            raise ReftileError(Diagnosis("kernel.progress", message, kernel.span))


def _load_globals(module: Module, memory: Memory) -> dict[str, Buffer]:
    found: dict[str, Buffer] = {}
    for op in module.globals:
        if not isinstance(op, Global):
            continue
        bits = np.asarray(op.value.bits())
        if op.value.splat:
            bits = np.repeat(bits, op.value.shape[0])
        if op.value.dtype.elements_per_unit == 2:
            bits = pack_nibbles(bits)
        data = np.frombuffer(bytearray(bits.tobytes()), np.uint8)
        buffer = memory.add(f"@{op.symbol}", data, op.value.dtype, op.alignment or 1)
        buffer.writable, buffer.restricted = not op.constant, op.constant
        found[op.symbol] = buffer
    return found


def _where(launch: Launch) -> str:
    block = launch.current
    if block is None:
        return "stopped before the first block"
    at = f" at {block.step.op.span} (`{block.step.op.name}`)" if block.step else ""
    name = launch.block_name(block.linear)
    return f"stopped in block {name}{at}; {launch.done} of {launch.block_count} blocks were done"


__all__ = ["Interrupted", "Raw", "Report", "Uninitialized", "interpret"]
