"""A line on the terminal while compiling takes longer than two seconds."""

from __future__ import annotations

import sys
import threading
from collections.abc import Callable
from typing import Protocol

PATIENCE_SECONDS = 2.0


class _Timer(Protocol):
    def start(self) -> None: ...
    def cancel(self) -> None: ...
    def join(self) -> None: ...


def _daemon_timer(seconds: float, act: Callable[[], None]) -> _Timer:
    timer = threading.Timer(seconds, act)
    timer.daemon = True
    return timer


class ProgressLine:
    """Says what is compiled, if standard error is a terminal; nothing stays on the screen.

    timer: makes what calls a function after some seconds.
    """

    def __init__(
        self, name: str, timer: Callable[[float, Callable[[], None]], _Timer] = _daemon_timer
    ) -> None:
        self.name, self.make_timer = name, timer
        self.timer: _Timer | None = None
        self.shown = False

    def __enter__(self) -> None:
        if sys.stderr is not None and sys.stderr.isatty():
            self.timer = self.make_timer(PATIENCE_SECONDS, self._show)
            self.timer.start()

    def __exit__(self, *error: object) -> None:
        if self.timer is None:
            return
        self.timer.cancel()
        # A line that is just being written is erased, not one that comes later.
        self.timer.join()
        if self.shown:
            sys.stderr.write("\r\x1b[K")
            sys.stderr.flush()

    def _show(self) -> None:
        self.shown = True
        sys.stderr.write(f"reftile: compiling `{self.name}` for the CPU ...")
        sys.stderr.flush()
