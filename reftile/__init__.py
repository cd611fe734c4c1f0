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

from reftile.ir.diagnostics import Diagnosis, ReftileError
from reftile.lang.backends import BACKENDS, Backend, LaunchOptions, UncheckedFallback, fall_back

if TYPE_CHECKING:
    from reftile.ir.core import Kernel
    from reftile.lang.kernels import KernelFunction, kernel
    from reftile.lang.launching import launch

__all__ = [
    "Diagnosis",
    "KernelFunction",
    "ReftileError",
    "UncheckedFallback",
    "kernel",
    "launch",
]

_HOMES = {
    "KernelFunction": "lang.kernels",
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
        settings = {"schedule": options.schedule, "seed": options.seed}
        if not options.check:
            try:
                return interpreter.interpret(kernel, grid, args, check=False, **settings)
            except ReftileError as error:
                if not error.diagnosis.rule.startswith("batched."):
                    raise
                fall_back(error, kernel)
        report = interpreter.interpret(kernel, grid, args, check=True, **settings)
        print("".join(report.printed), end="")
        return report

    return run


BACKENDS.register("interp", _load_interpreter)
