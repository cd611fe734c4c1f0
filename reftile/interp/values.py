"""Run-time values of the interpreter.

A tile is held as an array in its dtype's carrier (see `ir.dtypes`), pointers as int64 addresses.
The array's shape is the *batch* axes followed by the tile's own shape. The checked path has no
batch axes; the batched path has one or two, the blocks of the grid (see `batch`). A value
that is the same for all blocks may lack the batch axes, so the operands of one operation can differ
in their number and broadcast.

Poison marks elements that have no defined value: it may be computed with, but not branched on, used
as an address or a mask, or leave the kernel.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, TypeAlias

import numpy as np
from numpy.typing import NDArray

Array: TypeAlias = NDArray[Any]
Mask: TypeAlias = NDArray[np.bool_]


@dataclass(slots=True)
class Tile:
    """The elements of a tile and which of them are poison.

    data: carrier array, batch axes first.
    poison: None if no element is poison; else a bool array that broadcasts to `data.shape`.
    """

    data: Array
    poison: Mask | None = None

    @property
    def is_clean(self) -> bool:
        """True if no element is poison."""
        return self.poison is None or not self.poison.any()


Report: TypeAlias = Callable[[str, str, Mask], None]
"""`report(rule, message, where)`: elements (batch axes + shape) at which an operation broke a rule.

In the checked path it raises a diagnosis for the first such element; in the batched path it is None
and the elements become poison.
"""
