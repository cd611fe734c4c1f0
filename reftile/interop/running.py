"""Who runs kernels for this package.

Backends stand beside or above it, so it cannot name them; `reftile` itself connects them.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Protocol

from reftile.ir.diagnostics import fail

if TYPE_CHECKING:
    from reftile.ir.core import Kernel


@dataclass(frozen=True, slots=True)
class RunOptions:
    """How kernels run: a backend by name, or the default; the rest as `reftile.launch` has it."""

    backend: str | None = None
    check: bool = True
    schedule: str = "program"
    seed: int = 0


class Runner(Protocol):
    """Runs a kernel over a grid; `args` are one for each of its arguments."""

    def __call__(
        self, kernel: Kernel, grid: tuple[int, ...], args: Sequence[Any], options: RunOptions
    ) -> object:
        """Run it, and return the backend's report."""
        ...


_connected: list[Runner] = []


def connect(runner: Runner) -> None:
    """Say who runs kernels from now on."""
    _connected[:] = [runner]


def run_kernel(
    kernel: Kernel, grid: tuple[int, ...], args: Sequence[Any], options: RunOptions
) -> object:
    """Run a kernel, and return the backend's report.

    Raises:
        ReftileError: a rule is broken, or there is nobody to run it.
    """
    if not _connected:
        raise fail("launch.backend", "there is no backend: `reftile` was not imported as a whole")
    return _connected[0](kernel, grid, args, options)
