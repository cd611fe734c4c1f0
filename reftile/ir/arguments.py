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
