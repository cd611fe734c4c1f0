"""Kernels that are ready to run: written as source, compiled or found, kept beside the kernel."""

from __future__ import annotations

import os
import threading
from dataclasses import dataclass
from importlib.util import find_spec
from typing import cast

import numpy as np
from numpy.typing import NDArray

from reftile.ir.core import Block, Kernel
from reftile.ir.diagnostics import fail
from reftile.ir.types import TileType
from reftile.ir.verify import verify_unless_known
from reftile.lower.cpu.control import turns_of
from reftile.lower.cpu.emit import Program, generate
from reftile.rt.cpu.blas import blas_address
from reftile.rt.cpu.code import Code, load_code
from reftile.rt.cpu.memory import aligned_bytes

LONG_WORK = 1 << 24
"""Elements, in all blocks, from which on a launch may take longer than one waits for Ctrl-C."""
_TURNS = 64
"""How often a loop is taken to run of which the kernel does not say it."""
_lock = threading.RLock()
"""One kernel is compiled at a time."""

if hasattr(os, "register_at_fork"):
    # A process is not forked while a thread compiles: its child could never compile anything.
    os.register_at_fork(
        before=_lock.acquire, after_in_parent=_lock.release, after_in_child=_lock.release
    )


@dataclass(frozen=True, slots=True)
class Prepared:
    """A kernel that is ready to run.

    elements: of its largest tile. work: elements of a block, as far as it is known.
    is_open_ended: only the arguments say how often a loop turns. constants: the memory they lie in.
    """

    program: Program
    code: Code
    elements: int
    work: int
    is_open_ended: bool
    constants: NDArray[np.uint8] | None


def prepare(kernel: Kernel, groups: tuple[int, ...]) -> tuple[Prepared, float]:
    """A verified kernel that is ready to run, and the seconds that compiling took now.

    groups: which arrays overlap (`arguments.overlaps`); code is compiled for each case.

    Raises:
        ReftileError: rules `cpu.missing` and `cpu.unsupported`.
    """
    key = str(("cpu", groups))
    found = cast("Prepared | None", kernel.plans.get(key))
    if found is not None:
        return found, 0.0
    with _lock:
        found = cast("Prepared | None", kernel.plans.get(key))
        if found is not None:
            return found, 0.0
        found = _prepare(kernel, groups)
        kernel.plans[key] = found
    return found, found.code.seconds


def _prepare(kernel: Kernel, groups: tuple[int, ...]) -> Prepared:
    verify_unless_known(kernel)
    try:
        if find_spec("numba") is None:
            raise ModuleNotFoundError("it is not installed")
        program = generate(kernel, groups, blas=blas_address("sgemm") != 0)
        code = load_code(program, kernel.name)
    except ImportError as error:
        # numba refuses to be imported beside a NumPy that it does not know, too.
        message = f"the CPU backend needs numba: {error}"
        hint = "pip install numba, or use backend='interp'"
        raise fail("cpu.missing", message, hint=hint) from None
    elements = 1
    for op in kernel.walk():
        for result in op.results:
            if isinstance(result.type, TileType):
                elements = max(elements, result.type.size)
    open_ended = any(
        op.name == "loop" or (op.name == "for" and turns_of(op) is None) for op in kernel.walk()
    )
    work = elements * _turns(kernel.body.block)
    return Prepared(program, code, elements, work, open_ended, _constants(program.constants))


def _turns(block: Block) -> int:
    """How often the operation inside most loops is about done."""
    found = [1]
    for op in block.ops:
        turns = (turns_of(op) or _TURNS) if op.name in ("for", "loop") else 1
        found += [turns * _turns(region.block) for region in op.regions]
    return max(found)


def _constants(data: bytes) -> NDArray[np.uint8] | None:
    if not data:
        return None
    space = aligned_bytes(len(data), 64)
    space[:] = np.frombuffer(data, np.uint8)
    return space
