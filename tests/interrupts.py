"""Ctrl-C for the processes that tests start."""

from __future__ import annotations

import signal
from importlib import import_module
from typing import Any


def hear_interrupts() -> None:
    """In a child: what runs in the background of a script is born deaf to Ctrl-C."""
    signal.signal(signal.SIGINT, signal.SIG_DFL)


def interrupt_at(place: str, calls: int) -> None:
    """In a child: it gets Ctrl-C when it calls a function of reftile for the `calls`-th time.

    So it is at work then, on a machine of any speed. place: `module:name`.
    """
    name, _, function = place.partition(":")
    module = import_module(name)
    real, left = getattr(module, function), calls

    def call(*given: Any, **named: Any) -> Any:
        nonlocal left
        left -= 1
        if left == 0:
            signal.raise_signal(signal.SIGINT)
        return real(*given, **named)

    setattr(module, function, call)
