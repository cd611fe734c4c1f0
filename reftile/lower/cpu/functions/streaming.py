# pyright: basic, reportAttributeAccessIssue=false, reportCallIssue=false
# numba has no types for the functions it compiles.
"""Rows written past the caches.

A store into a cache reads the line first, which whoever writes a large array need not pay for.
"""

from __future__ import annotations

from reftile.lower.cpu.functions import machine as m
from reftile.lower.cpu.functions.numbers import called

_load, _store = m.loader("i8"), m.storer("i8")


@called
def stream(base, offset, source, count):
    """Copy `count` bytes from scratch memory to memory that is not read again soon."""
    first = (-(m.address_of(base) + offset)) & (m.LINE_BYTES - 1)
    for i in range(min(first, count)):
        _store(base, offset + i, _load(source, i))
    at = first
    while at + m.LINE_BYTES <= count:
        m.stream_line(base, offset + at, source, at)
        at += m.LINE_BYTES
    for i in range(at, count):
        _store(base, offset + i, _load(source, i))
