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

    An interrupt that comes while Python runs a callback of its own, of the garbage collector say,
    is printed and lost; asked now and then, this one is not. Without effect outside the main
    thread.
    """
    pressed = False

    def ask() -> None:
        if pressed:
            raise KeyboardInterrupt

    if threading.current_thread() is not threading.main_thread():
        yield ask
        return

    def note(*_: object) -> None:
        nonlocal pressed
        pressed = True
        raise KeyboardInterrupt

    before = signal.signal(signal.SIGINT, note)
    try:
        yield ask
    finally:
        signal.signal(signal.SIGINT, before)
