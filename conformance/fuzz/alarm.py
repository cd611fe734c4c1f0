"""A limit on how long something may run, where the platform has a timer for it."""

from __future__ import annotations

import signal
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager


class TooLong(Exception):
    """The time is up."""


@contextmanager
def time_limit(seconds: float) -> Iterator[None]:
    """Raise TooLong when the body runs for longer. Without effect outside the main thread."""
    on_main = threading.current_thread() is threading.main_thread()
    if not on_main or not hasattr(signal, "setitimer"):
        yield
        return

    def ring(*_: object) -> None:
        raise TooLong(f"still running after {seconds:g} s")

    before = signal.signal(signal.SIGALRM, ring)
    signal.setitimer(signal.ITIMER_REAL, seconds)
    try:
        yield
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)
        signal.signal(signal.SIGALRM, before)


@contextmanager
def remembered_interrupt() -> Iterator[Callable[[], None]]:
    """Give a function that raises KeyboardInterrupt once Ctrl-C was pressed.

    Raised at once, it may come while Python runs a callback, of the garbage collector say, where it
    is printed and lost. So the first press only is remembered, and whoever asks is told; the second
    interrupts at once. Without effect outside the main thread, and where Ctrl-C is ignored.
    """
    pressed = False

    def ask() -> None:
        if pressed:
            raise KeyboardInterrupt

    on_main = threading.current_thread() is threading.main_thread()
    if not on_main or signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
        yield ask
        return

    def note(*_: object) -> None:
        nonlocal pressed
        if pressed:
            raise KeyboardInterrupt
        pressed = True

    before = signal.signal(signal.SIGINT, note)
    try:
        yield ask
    finally:
        signal.signal(signal.SIGINT, before)
