"""Memory of the host that a pointer argument points to, for callers that have no array of it."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any


@dataclass(frozen=True, slots=True, eq=False)
class HostBytes:
    """Bytes that a pointer argument points to; what a kernel stores goes there.

    data: anything with the buffer interface, over the caller's memory.
    dtype: the name of the elements' dtype.
    name: how diagnoses call it; the argument's name if empty.
    reaches: further memory whose addresses lie among the bytes. If any argument of a launch has
        such, every pointer has the value that it has on the host.
    """

    data: Any
    dtype: str
    name: str = ""
    reaches: tuple[HostBytes, ...] = ()
