"""A progress bar for runs that take longer than two seconds, on terminals only."""

from __future__ import annotations

import sys
import time
from collections.abc import Callable, Generator
from contextlib import contextmanager

PATIENCE_SECONDS = 2.0


@contextmanager
def terminal_progress(
    enabled: bool | None = None,
) -> Generator[Callable[[int, int, str], None] | None]:
    """Give a function to call with (done, total, id), or None where nobody looks.

    enabled: None asks whether standard error is a terminal.
    """
    if not (sys.stderr.isatty() if enabled is None else enabled):
        yield None
        return
    from rich.console import Console
    from rich.progress import (
        BarColumn,
        MofNCompleteColumn,
        Progress,
        TextColumn,
        TimeRemainingColumn,
    )

    bar = Progress(
        BarColumn(),
        MofNCompleteColumn(),
        TimeRemainingColumn(),
        TextColumn("{task.description}"),
        console=Console(stderr=True),
        transient=True,
    )
    start = time.monotonic()
    task = bar.add_task("", total=None)

    def update(done: int, total: int, id: str) -> None:
        if not bar.live.is_started and time.monotonic() - start > PATIENCE_SECONDS:
            bar.start()
        bar.update(task, completed=done, total=total or None, description=id)

    try:
        yield update
    finally:
        if bar.live.is_started:
            bar.stop()
