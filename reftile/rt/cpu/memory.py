"""Memory that compiled code uses beside the arrays of a launch."""

from __future__ import annotations

import threading
from typing import cast

import numpy as np
from numpy.typing import NDArray

from reftile.ir.diagnostics import fail
from reftile.lower.cpu.emit import SCRATCH_ALIGNMENT

_LEAST_SCRATCH_BYTES = 1 << 16
_scratch = threading.local()


def aligned_bytes(size: int, alignment: int) -> NDArray[np.uint8]:
    """Zeros, at an address that is a multiple of `alignment`."""
    space = np.zeros(size + alignment, np.uint8)
    start = -space.ctypes.data % alignment
    return space[start : start + size]


def scratch_address(size: int) -> int:
    """The address of this thread's scratch memory, of at least `size` bytes.

    Raises:
        ReftileError: rule `cpu.memory`: there is not so much memory.
    """
    space: NDArray[np.uint8] | None = getattr(_scratch, "space", None)
    if space is None or space.size < size:
        try:
            space = _scratch.space = aligned_bytes(
                max(size, _LEAST_SCRATCH_BYTES), SCRATCH_ALIGNMENT
            )
        except (MemoryError, ValueError, OverflowError):
            message = f"each thread needs {size} bytes for tiles and `alloca`, which are not there"
            raise fail("cpu.memory", message) from None
        _scratch.address = space.ctypes.data
    return cast("int", _scratch.address)
