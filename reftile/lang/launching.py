"""`launch`: run a kernel over a grid."""

from __future__ import annotations

from collections.abc import Sequence
from typing import cast

from reftile.ir.core import Kernel
from reftile.ir.diagnostics import fail
from reftile.lang.backends import Specialised, run
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
    stream: object = None,
) -> object:
    """Run a kernel over a grid; what it stores is in the caller's arrays afterwards.

    kernel: a function marked with @kernel, or a kernel of the IR. grid: blocks along one to three
        axes.
    args: one value for each parameter: numbers; arrays of NumPy, torch or with DLPack (of the CPU
        for the interpreter, of the device for `cuda`, which copies arrays of NumPy and says so).
    backend: "interp", which is the default for what is checked, "cpu" or "cuda".
    check: watch for everything that makes a program undefined; False runs tile kernels compiled
        for the CPU, unwatched, and what cannot be compiled in the interpreter, all blocks at once.
        A GPU watches nothing.
    schedule, seed: in which order the interpreter does what nothing orders ("program", "topo",
        "adversarial").
    stream: what a launch on a GPU is queued on: a stream of any library, or its handle. By default
        the current one of the library that the arrays are of.

    `launch(stream, grid, kernel, args)`, as cuTile has it, is the same.

    Returns:
        What the backend reports; `backend` of it says which one ran.

    Raises:
        ReftileError: the kernel, an argument or the run is wrong.
    """
    kinds = KernelFunction, Kernel
    if not isinstance(kernel, kinds) and isinstance(args, kinds):
        stream = stream if stream is not None else kernel
        kernel, args = args, rest if rest is not None else ()
    if not isinstance(kernel, kinds):
        raise fail(
            "launch.kernel",
            f"{kernel!r} is no kernel",
            hint="mark the function with @reftile.kernel",
        )
    if not isinstance(args, (tuple, list)):
        raise fail("launch.arguments", f"the arguments must be a tuple, found {args!r}")
    values = cast("Sequence[object]", args)
    if isinstance(kernel, Kernel):
        found = Specialised(kernel, list(values))
    else:
        found = kernel.specialise(*values)
    return run(
        found, grid, backend=backend, check=check, schedule=schedule, seed=seed, stream=stream
    )
