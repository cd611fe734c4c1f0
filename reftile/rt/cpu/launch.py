"""Launch tile kernels on the CPU: pack arguments, find machine code, run blocks on threads.

    report = launch_cpu(kernel, (1024,), [x, y, out])

Nothing is checked but the indices of views and the asserts of the kernel; everything else that
makes a program undefined is for the interpreter to find.
"""

from __future__ import annotations

import ctypes
from collections.abc import Sequence
from contextlib import nullcontext
from dataclasses import dataclass
from functools import cache
from typing import Any

import numpy as np
from numpy.typing import NDArray

from reftile.ir.arguments import grid_extents
from reftile.ir.core import Kernel, Module
from reftile.ir.diagnostics import Diagnosis, ReftileError
from reftile.ir.verify import verify_unless_known
from reftile.lang.backends import LaunchOptions
from reftile.lower.cpu.emit import Fault
from reftile.rt.cpu.arguments import Array, load_globals, overlaps, pack_arguments
from reftile.rt.cpu.blas import blas_address, one_blas_thread
from reftile.rt.cpu.prepare import Prepared, prepare
from reftile.rt.cpu.printing import Printer
from reftile.rt.cpu.threads import STOP_SLOT, blocks_in_run, run_blocks, share_blocks

MOST_BLOCKS = 1 << 62
"""Blocks of a launch at most: threads count on a little when none is left."""
STREAM_BYTES = 64 << 20
"""From this size of all arrays on rows are written past the caches."""


@dataclass(frozen=True, slots=True)
class CpuReport:
    """What a launch did.

    blocks: how many ran. threads: on how many threads. compiled_seconds: what compiling took, 0
    for code from the cache or from before. printed: the texts of `print_tko`, those of one block
    behind those of the blocks before it.
    """

    blocks: int
    threads: int
    compiled_seconds: float
    backend: str = "cpu"
    checked: bool = False
    printed: tuple[str, ...] = ()


def launch_cpu(
    program: Module | Kernel,
    grid: Sequence[int],
    args: Sequence[Any],
    *,
    threads: int | None = None,
    name: str | None = None,
    pinned: bool = False,
) -> CpuReport:
    """Run a kernel over a grid of blocks.

    args: one for each argument: a NumPy array (types of ml_dtypes too) or `Raw` bytes for a pointer
        or a tensor view, a number for a scalar.
    threads: `thread_count()` if not given. Results do not depend on it, except for the order of
        atomic additions of floats.
    pinned: while it runs, each thread stays on one processor, in turn of those that this process
        may use; where the system cannot do that, it makes no difference. Where each thread has a
        processor to itself, it keeps it while it waits for others: on a busy machine, who gives way
        each time does not run when the others do.

    Raises:
        ReftileError: the kernel or an argument is wrong, or the CPU lacks something
            (`cpu.unsupported`).
    """
    module = program if isinstance(program, Module) else Module([program])
    kernel = program if isinstance(program, Kernel) else module.kernel(name)
    x, y, z = grid_extents(kernel, grid)
    blocks = x * y * z
    if blocks > MOST_BLOCKS:
        message = f"{blocks} blocks; the CPU runs at most {MOST_BLOCKS}"
        raise ReftileError(Diagnosis("launch.grid", message, kernel.span))
    verify_unless_known(kernel)
    numbers, arrays = pack_arguments(kernel, args)
    groups = overlaps(kernel, arrays)
    prepared, seconds = prepare(kernel, groups)
    _check_writeable(kernel, prepared, arrays, groups)
    kept = load_globals(module, prepared.program.globals, numbers)
    run = blocks_in_run(prepared.program.most_shared, x, blocks)
    count, chunk = share_blocks(kernel, prepared, blocks, threads, run)
    prints = prepared.program.prints
    printer = Printer(prints) if prints else None
    streams = sum(array.end - array.first for array in arrays) >= STREAM_BYTES
    head = _head(prepared, (x, y, z), chunk, streams, printer, run)
    parameters = np.array([*head, *numbers], np.int64)
    with one_blas_thread() if prepared.program.uses_blas else nullcontext():
        run_blocks(kernel, prepared, parameters, count, blocks, pinned)
    del kept
    _raise_fault(prepared, parameters, printer)
    return CpuReport(blocks, count, seconds, printed=printer.texts() if printer else ())


def run(
    kernel: Kernel, grid: tuple[int, ...], args: Sequence[Any], options: LaunchOptions
) -> CpuReport:
    """The backend `cpu` of `launch`.

    Raises:
        ReftileError: as `launch_cpu`; rule `cpu.check` if the launch was to be checked.
    """
    if options.check:
        message = f"`{kernel.name}` was to be checked, and compiled kernels are not"
        raise ReftileError(
            Diagnosis("cpu.check", message, kernel.span, "pass check=False, or leave out `backend`")
        )
    report = launch_cpu(kernel, grid, args)
    if options.prints:
        print("".join(report.printed), end="")
    return report


def _check_writeable(
    kernel: Kernel, prepared: Prepared, arrays: Sequence[Array], groups: tuple[int, ...]
) -> None:
    for number, array in enumerate(arrays):
        group = groups[number] if groups else number
        if not array.writeable and group in prepared.program.written:
            message = f"the array of %{array.name} may not be written to, and the kernel does"
            hint = "pass an array that may be written to, such as a copy"
            diagnosis = Diagnosis("access.read_only", message, kernel.span, hint)
            raise ReftileError(diagnosis)


def _head(
    prepared: Prepared,
    grid: tuple[int, int, int],
    chunk: int,
    streams: bool,
    printer: Printer | None,
    run: int,
) -> tuple[int, ...]:
    """The slots in front of the arguments (`reftile.lower.cpu.emit.FIRST_ARGUMENT`)."""
    x, y, z = grid
    uses_blas, constants = prepared.program.uses_blas, prepared.constants
    next_block = stop = 0
    return (
        x,
        y,
        z,
        x * y * z,
        chunk,
        next_block,
        stop,
        blas_address("sgemm") if uses_blas else 0,
        blas_address("dgemm") if uses_blas else 0,
        _yield_address(),
        constants.ctypes.data if constants is not None else 0,
        streams,
        printer.address if printer else 0,
        run,
    )


@cache
def _yield_address() -> int:
    library = ctypes.CDLL(None)
    return ctypes.cast(library.sched_yield, ctypes.c_void_p).value or 0


def _raise_fault(
    prepared: Prepared, parameters: NDArray[np.int64], printer: Printer | None
) -> None:
    """Raise what ended a launch before its time, if something did."""
    if printer and printer.failed:
        raise printer.failed[0]
    if parameters[STOP_SLOT] > 0:
        raise _fault(prepared.program.faults[int(parameters[STOP_SLOT]) - 1], printer)


def _fault(fault: Fault, printer: Printer | None) -> ReftileError:
    op = fault.op
    match fault.rule:
        case "assert.failed":
            message = str(op.attributes["message"])
        case "for.step":
            message = "`step` must be positive"
        case _:
            message = "an index is outside the index space of the view"
    hint = "run it with check=True to see where"
    text = "".join(printer.texts()) if printer else ""
    notes = ((f"the kernel had printed:\n{text}", None),) if text else ()
    return ReftileError(Diagnosis(fault.rule, message, op.span, hint, notes))
