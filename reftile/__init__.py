"""The executable reference for tile programs.

    import reftile
    import reftile.lang as ct

    @reftile.kernel
    def add(a, b, c, tile: ct.Constant[int]):
        i = ct.bid(0)
        ct.store(c, (i,), ct.load(a, (i,), (tile,)) + ct.load(b, (i,), (tile,)))

    add[(4,)](a, b, c, 256)

Importing is cheap: the language and the interpreter are loaded when they are first used.
"""

from __future__ import annotations

from collections.abc import Sequence
from importlib import import_module
from typing import TYPE_CHECKING, Any

from reftile.interop.running import RunOptions, connect
from reftile.ir.diagnostics import Diagnosis, ReftileError
from reftile.lang.backends import (
    BACKENDS,
    Backend,
    InterpretedFallback,
    LaunchOptions,
    UncheckedFallback,
    fall_back,
    read_grid,
)
from reftile.progress import ProgressBar

if TYPE_CHECKING:
    from reftile.ir.core import Kernel
    from reftile.lang.kernels import KernelFunction, kernel
    from reftile.lang.launching import launch
    from reftile.lower.explain.examine import explain_kernel
    from reftile.rt.compile import compile_kernel

__all__ = [
    "Diagnosis",
    "InterpretedFallback",
    "KernelFunction",
    "ReftileError",
    "UncheckedFallback",
    "compile_kernel",
    "explain_kernel",
    "kernel",
    "launch",
]

_HOMES = {
    "KernelFunction": "lang.kernels",
    "compile_kernel": "rt.compile",
    "explain_kernel": "lower.explain.examine",
    "kernel": "lang.kernels",
    "launch": "lang.launching",
}


def __getattr__(name: str) -> object:
    home = _HOMES.get(name)
    if home is None:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(import_module(f"{__name__}.{home}"), name)


def _load_interpreter() -> Backend:
    """The interpreter as a backend; check=False falls back to the checked path, and says so."""
    interpreter: Any = import_module(f"{__name__}.interp.launch")

    def run(
        kernel: Kernel, grid: tuple[int, ...], args: Sequence[Any], options: LaunchOptions
    ) -> object:
        with ProgressBar(kernel.name) as progress:
            settings = {"schedule": options.schedule, "seed": options.seed, "progress": progress}
            if not options.check:
                try:
                    return interpreter.interpret(kernel, grid, args, check=False, **settings)
                except ReftileError as error:
                    if not error.diagnosis.rule.startswith("batched."):
                        raise
                    fall_back(error, kernel, UncheckedFallback)
            report = interpreter.interpret(kernel, grid, args, check=True, **settings)
        if options.prints:
            print("".join(report.printed), end="")
        return report

    return run


def _load_cpu() -> Backend:
    """Compiled kernels on the CPU. They are not checked: check=True is refused."""
    cpu: Any = import_module(f"{__name__}.rt.cpu")
    return cpu.run


def _load_default() -> Backend:
    """The interpreter where a launch is checked; else the CPU.

    What the CPU lacks is interpreted, with a warning.
    """
    interpreter = _load_interpreter()

    def run(
        kernel: Kernel, grid: tuple[int, ...], args: Sequence[Any], options: LaunchOptions
    ) -> object:
        if options.check or kernel.level != "tile" or options.schedule != "program":
            return interpreter(kernel, grid, args, options)
        try:
            return _load_cpu()(kernel, grid, args, options)
        except ReftileError as error:
            if error.diagnosis.rule not in ("cpu.unsupported", "cpu.co_resident", "cpu.missing"):
                raise
            fall_back(error, kernel, InterpretedFallback)
            return interpreter(kernel, grid, args, options)

    return run


BACKENDS.register("interp", _load_interpreter)
BACKENDS.register("cpu", _load_cpu)
BACKENDS.default = _load_default
BACKENDS.register("cuda", lambda: import_module(f"{__name__}.rt.backend").run)


def _run_imported(
    kernel: Kernel, grid: tuple[int, ...], args: Sequence[Any], options: RunOptions
) -> object:
    """Run a kernel that was imported from elsewhere."""
    settings = LaunchOptions(options.check, options.schedule, options.seed)
    return BACKENDS.find(options.backend)(kernel, read_grid(grid), args, settings)


connect(_run_imported)
