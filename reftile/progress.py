"""A progress bar on standard error, for what takes longer than two seconds and is looked at."""

from __future__ import annotations

import sys
from time import perf_counter
from types import TracebackType
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from rich.progress import Progress, TaskID

PATIENCE_SECONDS = 2.0
REDRAW_SECONDS = 0.1


class ProgressBar:
    """Count what is done; draw it if it takes long and standard error is a terminal.

        with ProgressBar("matmul") as advance:
            interpret(..., progress=advance)

    What the `with` gives is None where nobody looks, so that work pays nothing for it. Otherwise it
    is called with (done, in all), as often as one likes: a call that repeats `done` is a step
    within what is being done, and the number of steps is shown too. Nothing stays on the screen.
    """

    __slots__ = ("_enabled", "bar", "label", "next", "steps", "task")

    def __init__(self, label: str, enabled: bool | None = None) -> None:
        """enabled: None asks whether standard error is a terminal."""
        self.label = label
        self.steps = 0
        self.next = perf_counter() + PATIENCE_SECONDS
        self.bar: Progress | None = None
        self.task: TaskID | None = None
        self._enabled = enabled

    def __enter__(self) -> ProgressBar | None:
        enabled = self._enabled
        if enabled is None:
            enabled = sys.stderr is not None and sys.stderr.isatty()
        return self if enabled else None

    def __call__(self, done: int, total: int) -> None:
        """Note that something was done."""
        self.steps += 1
        now = perf_counter()
        if now < self.next:
            return
        self.next = now + REDRAW_SECONDS
        if self.bar is None:
            self._open()
        if self.bar is not None and self.task is not None:
            self.bar.update(self.task, completed=done, total=total, steps=self.steps, refresh=True)

    def _open(self) -> None:
        # Imported on use: most work is done before anybody looks.
        try:
            from rich.console import Console
            from rich.progress import (
                BarColumn,
                MofNCompleteColumn,
                Progress,
                TextColumn,
                TimeElapsedColumn,
            )
        except ImportError:
            self.next = float("inf")
            return
        self.bar = Progress(
            TextColumn("{task.description}"),
            BarColumn(),
            MofNCompleteColumn(),
            TextColumn("{task.fields[steps]:,} steps"),
            TimeElapsedColumn(),
            console=Console(stderr=True),
            transient=True,
            auto_refresh=False,
            redirect_stdout=False,
            redirect_stderr=False,
        )
        self.bar.start()
        self.task = self.bar.add_task(self.label, total=None, steps=0)

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        if self.bar is not None:
            self.bar.stop()
