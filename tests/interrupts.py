"""Ctrl-C for the processes that tests start."""

from __future__ import annotations

import signal


def hear_interrupts() -> None:
    """In a child: what runs in the background of a script is born deaf to Ctrl-C."""
    signal.signal(signal.SIGINT, signal.SIG_DFL)
