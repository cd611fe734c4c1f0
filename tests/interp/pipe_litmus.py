"""The litmus kernels with roles, and what can be done wrong with each."""

from __future__ import annotations

from collections.abc import Iterator
from functools import cache
from pathlib import Path
from typing import Any

import ml_dtypes
import numpy as np

from reftile.interp.model.execution import Result
from reftile.interp.model.pipe_order import explore_pipe, hold_pipe
from reftile.interp.model.pipe_run import Mistake
from reftile.interp.model.ptx import Verdict, Version
from reftile.interp.model.relations import Model
from reftile.ir.core import Kernel, Op
from reftile.ir.ops import AllocBarrier
from reftile.ir.parse import parse
from reftile.ir.types import BarrierType
from reftile.ir.verify import verify
from reftile.lower.derive_barriers import derive_barriers

FOLDER = Path(__file__).parents[2] / "conformance" / "litmus_pipe"
NAMES = sorted(path.stem for path in FOLDER.glob("*.tile"))

DROPPED = (
    "sync",
    "fence_proxy",
    "arrive_barrier",
    "wait_barrier",
    "wait_copies",
    "mma_wait",
    "sync_named",
    "arrive_named",
)


def text(name: str) -> str:
    return (FOLDER / f"{name}.tile").read_text(encoding="utf-8")


def kernel_of(source: str) -> Kernel:
    kernel = parse(source, "k.tile").kernels[0]
    verify(kernel)
    return kernel


def arguments(kernel: Kernel) -> list[Any]:
    dtype = ml_dtypes.bfloat16 if "bf16" in str(kernel.arguments[0].type) else np.float32
    return [np.zeros((512, 64), dtype) for _ in kernel.arguments]


def explored(source: str) -> Result:
    kernel = kernel_of(source)
    return explore_pipe(kernel, arguments(kernel))


@cache
def promised(name: str) -> Result:
    return explored(text(name))


@cache
def lowered(name: str) -> Kernel:
    kernel = kernel_of(text(name))
    return derive_barriers(kernel, str(kernel.attributes["target"]))


def held(
    name: str, version: Version, mistake: Mistake | None = None, model: Model | None = None
) -> Verdict:
    kernel = lowered(name)
    return hold_pipe(promised(name), kernel, arguments(kernel), version, mistake, model=model)


def mistakes(name: str) -> Iterator[Mistake]:
    """Everything that can be done wrong with a kernel, once."""
    counts: dict[str, int] = {}
    for op in lowered(name).walk():
        at = counts[op.name] = counts.get(op.name, -1) + 1
        if op.name in DROPPED:
            yield Mistake("drop", op.name, at)
        if op.name == "wait_barrier":
            yield Mistake("flip", op.name, at)
        if op.name == "wait_copies" and str(op.attributes["engine"]) == "bulk":
            yield Mistake("early", op.name, at)
        if _counts_several(op):
            yield Mistake("fewer", op.name, at)


def _counts_several(op: Op) -> bool:
    match op:
        case AllocBarrier():
            return isinstance(op.result.type, BarrierType) and op.result.type.arrivals > 1
        case _:
            return op.name == "alloc_named_barrier"
