"""What a launch is given: its grid, and what may stand for an array besides arrays."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from operator import index
from typing import Any

from numpy.typing import NDArray

from reftile.ir.core import Kernel
from reftile.ir.diagnostics import Diagnosis, ReftileError

LARGEST_AXIS = (1 << 24) - 1
"""Blocks along one axis of a grid at most."""


def grid_extents(kernel: Kernel, grid: int | Sequence[int]) -> tuple[int, int, int]:
    """The blocks along each axis of a grid.

    Raises:
        ReftileError: rule `launch.grid`: it is not one to three axes of 1 to `LARGEST_AXIS` blocks.
    """
    try:
        sizes = [index(g) for g in (grid if isinstance(grid, Iterable) else [grid])]
    except TypeError:
        message = f"a grid is made of integers, found {grid!r}"
        raise ReftileError(Diagnosis("launch.grid", message, kernel.span)) from None
    if not 1 <= len(sizes) <= 3 or not all(1 <= s <= LARGEST_AXIS for s in sizes):
        message = f"a grid has one to three axes of 1 to {LARGEST_AXIS} blocks, found {grid}"
        raise ReftileError(Diagnosis("launch.grid", message, kernel.span))
    x, y, z = (*sizes, 1, 1)[:3]
    return x, y, z


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
