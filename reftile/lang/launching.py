"""`launch`: run a kernel over a grid."""

from __future__ import annotations

from collections.abc import Sequence
from typing import cast

from reftile.ir.diagnostics import fail
from reftile.lang.backends import run
from reftile.lang.kernels import KernelFunction


def launch(
    kernel: object,
    grid: object,
    args: object = (),
    rest: object = None,
    /,
    *,
    backend: str | None = None,
    check: bool = True,
    schedule: str = "program",
    seed: int = 0,
) -> object:
    """Run a kernel over a grid; what it stores is in the caller's arrays afterwards.

    kernel: a function marked with @kernel. grid: blocks along one to three axes.
    args: one value for each parameter: numbers; arrays of NumPy, torch (CPU) or with DLPack.
    check: watch for everything that makes a program undefined; False runs all blocks at once,
        unwatched.
    schedule, seed: in which order the interpreter does what nothing orders ("program", "topo",
        "adversarial").

    `launch(stream, grid, kernel, args)`, as cuTile has it, is the same; the stream is not used.

    Returns:
        What the backend reports.

    Raises:
        ReftileError: the kernel, an argument or the run is wrong.
    """
    if not isinstance(kernel, KernelFunction) and isinstance(args, KernelFunction):
        kernel, args = args, rest if rest is not None else ()
    if not isinstance(kernel, KernelFunction):
        raise fail(
            "launch.kernel",
            f"{kernel!r} is no kernel",
            hint="mark the function with @reftile.kernel",
        )
    if not isinstance(args, (tuple, list)):
        raise fail("launch.arguments", f"the arguments must be a tuple, found {args!r}")
    found = kernel.specialise(*cast("Sequence[object]", args))
    return run(found, grid, backend=backend, check=check, schedule=schedule, seed=seed)
