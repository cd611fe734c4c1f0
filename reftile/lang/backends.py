"""The backends that run kernels, and what they are given."""

from __future__ import annotations

import operator
import warnings
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Protocol, cast

from reftile.ir.diagnostics import ReftileError, fail

if TYPE_CHECKING:
    from reftile.ir.core import Kernel

Grid = int | Sequence[int]


@dataclass(frozen=True, slots=True)
class LaunchOptions:
    """How a launch runs.

    check: watch for races, poison and accesses out of bounds. schedule, seed: in which order things
    happen that nothing orders. stream: what the launch is queued on, of any library; backends
    without streams do not look at it. prints: what the kernel prints is printed when it has ended;
    the report has it in any case.
    """

    check: bool = True
    schedule: str = "program"
    seed: int = 0
    stream: Any = None
    prints: bool = True


class Backend(Protocol):
    """Runs a kernel of the IR. `args` are one for each of its arguments."""

    def __call__(
        self, kernel: Kernel, grid: tuple[int, ...], args: Sequence[Any], options: LaunchOptions
    ) -> object:
        """Run it, and return a report."""
        ...


class Backends:
    """The backends by name; each is loaded when it is first used.

    default: loads what runs if none is named; the first of all if it is not set.
    """

    def __init__(self) -> None:
        self._loaders: dict[str, Callable[[], Backend]] = {}
        self.default: Callable[[], Backend] | None = None

    def register(self, name: str, load: Callable[[], Backend]) -> None:
        """Add a backend, or replace it."""
        self._loaders[name] = load

    @property
    def names(self) -> tuple[str, ...]:
        """What `find` takes, the default first."""
        return tuple(self._loaders)

    def find(self, name: str | None) -> Backend:
        """The backend called `name`, or the default.

        Raises:
            ReftileError: there is none.
        """
        if name is None and self.default is not None:
            return self.default()
        if name is None and self._loaders:
            name = next(iter(self._loaders))
        loader = self._loaders.get(name or "")
        if loader is None:
            known = ", ".join(self._loaders) or "none"
            raise fail("launch.backend", f"there is no backend {name!r} (there are: {known})")
        return loader()


BACKENDS = Backends()
"""Filled by the package, which stands above the language and its backends."""


class UncheckedFallback(UserWarning):
    """A launch with check=False ran on the checked path, and this says why."""


class InterpretedFallback(UserWarning):
    """A launch that would be compiled for the CPU was interpreted, and this says why."""


@dataclass(frozen=True, slots=True, eq=False)
class Specialised:
    """A kernel of the IR for some arguments, and the values of its arguments."""

    kernel: Kernel
    values: list[Any]


def run(
    found: Specialised,
    grid: object,
    *,
    backend: str | None = None,
    check: bool = True,
    schedule: str = "program",
    seed: int = 0,
    stream: Any = None,
) -> object:
    """Run a specialised kernel on a backend, and return its report."""
    options = LaunchOptions(check, schedule, seed, stream)
    return BACKENDS.find(backend)(found.kernel, read_grid(grid), found.values, options)


def read_grid(grid: object) -> tuple[int, ...]:
    """The blocks along each axis.

    Raises:
        ReftileError: it is not one to three positive integers.
    """
    items = cast("Sequence[object]", grid) if isinstance(grid, (tuple, list)) else (grid,)
    sizes: list[int] = []
    for item in items:
        try:
            sizes.append(operator.index(cast("int", item)))
        except TypeError:
            raise fail("launch.grid", f"a grid is made of integers, found {grid!r:.80}") from None
    if not 1 <= len(sizes) <= 3 or any(s < 1 for s in sizes):
        raise fail(
            "launch.grid",
            f"a grid has one to three axes of at least one block, found {grid!r:.80}",
            hint="for no work, launch nothing",
        )
    return tuple(sizes)


def fall_back(reason: ReftileError, kernel: Kernel, category: type[UserWarning]) -> None:
    """Warn that a launch runs otherwise than was asked for."""
    if category is UncheckedFallback:
        what = "checked although check=False"
    else:
        what = "on the interpreter, which takes much longer than compiled code"
    message = f"`{kernel.name}` runs {what}: {reason.diagnosis.message}"
    warnings.warn(message, category, stacklevel=5)
