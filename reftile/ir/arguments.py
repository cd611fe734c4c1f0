"""What may stand for an array in a launch, besides arrays."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from numpy.typing import NDArray


@dataclass(frozen=True, slots=True, eq=False)
class Raw:
    """Bytes with an element type, for what NumPy has no type for: packed 4-bit elements, tf32.

    data: anything with the buffer interface; what a kernel stores goes there.
    """

    data: Any
    dtype: str


@dataclass(frozen=True, slots=True, eq=False)
class Uninitialized:
    """An array whose contents the kernel must not read before it has written them."""

    array: NDArray[Any]


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
