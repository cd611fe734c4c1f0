"""A generated program: a kernel, how it is launched, and how it came about."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from reftile.conformance.fuzz.memory import Buffer
from reftile.conformance.fuzz.values import random_bytes

from reftile.interp.launch import Raw
from reftile.ir.core import Kernel, Op

Grid = tuple[int, int, int]


@dataclass
class Program:
    """A kernel with its launch.

    bare: the kernel without tokens, which `kernel` was made from. must: pairs of its operations
        that need a token between them besides those that share memory.
    contents: initial bytes of each buffer. scalars: values of the scalar arguments behind them.
    policy: how tokens were placed. recipe: the decisions that give this program again.
    """

    kernel: Kernel
    bare: Kernel
    must: list[tuple[Op, Op]]
    grid: Grid
    buffers: list[Buffer]
    contents: list[np.ndarray]
    scalars: list[int]
    policy: str = ""
    recipe: list[int] = field(default_factory=list)
    ops: Counter[str] = field(default_factory=Counter)
    accesses: Counter[str] = field(default_factory=Counter)
    seen: Counter[str] = field(default_factory=Counter)

    @property
    def blocks(self) -> int:
        """The number of blocks."""
        return self.grid[0] * self.grid[1] * self.grid[2]

    def arguments(self) -> tuple[list[Any], list[np.ndarray]]:
        """Fresh arguments for one run, and the arrays of bytes behind them."""
        arrays = [c.copy() for c in self.contents]
        raw = [Raw(a, b.dtype.name) for a, b in zip(arrays, self.buffers, strict=True)]
        return [*raw, *self.scalars], arrays


def make_contents(buffers: list[Buffer], seed: int) -> list[np.ndarray]:
    """Initial bytes by seed."""
    random = np.random.default_rng(seed)
    contents: list[np.ndarray] = []
    for buffer in buffers:
        units = -(-buffer.size // buffer.dtype.elements_per_unit)
        if buffer.fill == "zero":
            data = np.zeros(units, buffer.dtype.storage)
        else:
            data = random_bytes(random, buffer.dtype, units)
        contents.append(data.view(np.uint8).copy())
    return contents
