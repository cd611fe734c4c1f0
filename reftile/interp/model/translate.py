"""Tile kernels as event programs: what the memory model sees of a launch of litmus size.

    translation = translate(kernel, (2,), [data, flag, out])
    result = explore(translation.program)

Every block of the grid is run on its own, on symbols: what it loads is a register, what it computes
from registers an expression. Loops are unrolled, branches that depend on a register become guards,
and a store that both arms of a branch do is one operation without the guard, as the specification
of dependences wants it. A `loop` that ends by a loaded value is unrolled `unroll` times; executions
that want more iterations are *cut*: they count for races up to there, and not as outcomes.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np

from reftile.interp.arguments import bind_arguments
from reftile.interp.memory import Buffer as Bytes
from reftile.interp.memory import Memory
from reftile.interp.model.events import Block, Buffer, Exit, Location, Op, Program
from reftile.interp.model.run_block import BlockRun, Check, Cut
from reftile.interp.model.symbolic import signed
from reftile.interp.model.values import UNINIT, Value
from reftile.ir.core import Kernel
from reftile.ir.diagnostics import fail
from reftile.ir.dtypes import DType
from reftile.ir.numbers import decode
from reftile.ir.verify import verify

LARGEST_PROGRAM = 2000
"""Accesses of a program at most; the search refuses far smaller ones."""


@dataclass(slots=True)
class Translation:
    """An event program, and how its names lead back to the kernel.

    dtypes: by buffer, the type of its elements. cuts: where a loop was left early.
    checks: the assertions of the kernel.
    """

    program: Program
    dtypes: dict[str, DType | None]
    cuts: list[Cut] = field(default_factory=list[Cut])
    checks: list[Check] = field(default_factory=list[Check])

    def show(self, register: str, value: Value) -> str:
        """A value that the host finds, as its element type writes it."""
        dtype = self.dtypes.get(register.partition("[")[0])
        if dtype is None or not isinstance(value, int) or dtype.is_int:
            return str(value.value if value is UNINIT else value)
        code = np.array([value & ((1 << 8 * dtype.storage.itemsize) - 1)], dtype.storage)
        return str(decode(code, dtype)[0])


def translate(
    kernel: Kernel, grid: Sequence[int], args: Sequence[Any], unroll: int = 3
) -> Translation:
    """Return the event program of one launch.

    args: as for `interpret`. unroll: iterations of a loop that ends by a loaded value.

    Raises:
        ReftileError: `explore.*`, if the kernel is beyond what can be explored; `verify` rules.
    """
    return translate_launches([kernel], grid, args, unroll)


def translate_launches(
    kernels: Sequence[Kernel],
    grid: Sequence[int],
    args: Sequence[Any],
    unroll: int = 3,
    devices: Sequence[int] = (),
) -> Translation:
    """Return the event program of launches that follow one another, with the same arguments.

    devices: for each block, the device that it is taken to run on; one for all without it. A launch
    is of one device; this stands for launches on several that run at the same time.
    """
    memory = Memory()
    for kernel in kernels:
        if kernel.level != "tile":
            message = f"`{kernel.name}` is a {kernel.level} kernel, and only tile kernels have"
            raise fail("explore.level", f"{message} events", kernel.span)
        verify(kernel)
    x, y, z = (*grid, 1, 1)[:3]
    values = bind_arguments(kernels[0], args, memory)
    names: dict[int, str] = {}
    blocks: list[Block] = []
    result = Translation(Program(kernels[0].name, (), ()), {})
    for launch, kernel in enumerate(kernels):
        for number in range(x * y * z):
            at = number % x, number // x % y, number // (x * y)
            extents = sum(n > 1 for n in (x, y, z)) and max(
                i + 1 for i, n in enumerate((x, y, z)) if n > 1
            )
            name = "b" + "_".join(str(i) for i in at[: max(1, extents)])
            name = f"{name}_launch{launch}" if len(kernels) > 1 else name
            run = BlockRun(kernel, at, (x, y, z), memory, names, name, unroll)
            device = devices[number] if devices else 0
            blocks.append(Block(name, _tidy(run.run(values)), device, launch))
            result.cuts += run.cuts
            result.checks += run.checks
            _check_size(kernel, blocks)
    buffers = [b for b in memory.buffers if id(b) in names]
    result.program = Program(
        kernels[0].name,
        tuple(_buffer(b, names[id(b)]) for b in buffers),
        tuple(blocks),
        tuple(_exits(blocks, buffers, names)),
    )
    result.dtypes = {names[id(b)]: b.dtype for b in buffers}
    return result


def _tidy(ops: tuple[Op, ...]) -> tuple[Op, ...]:
    """Leave out operations without accesses that wait for nothing."""
    idle = {op.name for op in ops if not op.accesses and not op.after}
    return tuple(
        replace(op, after=tuple(e for e in op.after if e.op not in idle))
        for op in ops
        if op.name not in idle
    )


def _check_size(kernel: Kernel, blocks: Sequence[Block]) -> None:
    count = sum(len(op.accesses) for block in blocks for op in block.ops)
    if count > LARGEST_PROGRAM:
        raise fail(
            "explore.too_large",
            f"`{kernel.name}` has more than {count} accesses in its first {len(blocks)} blocks, "
            f"and {LARGEST_PROGRAM} can be listed",
            kernel.span,
            hint="use fewer blocks, smaller tiles and fewer iterations: an order that is missing "
            "shows with two blocks and one element",
        )


def _buffer(found: Bytes, name: str) -> Buffer:
    size = 1 if found.dtype is None else found.dtype.storage.itemsize
    data = found.data[: found.data.size // size * size]
    codes = data.view(f"<u{size}")
    values: list[Value] = [signed(int(code), 8 * size) for code in codes]
    if found.state is not None:
        rows = found.state[: data.size].reshape(-1, size)
        values = [UNINIT if rows[i].any() else v for i, v in enumerate(values)]
    return Buffer(name, size, tuple(values))


def _exits(blocks: Sequence[Block], buffers: Sequence[Bytes], names: dict[int, str]) -> list[Exit]:
    """Read by the host: every element of its arrays that something may write."""
    visible = {names[id(b)]: b for b in buffers if b.visible}
    found: dict[tuple[str, int], Exit] = {}
    for block in blocks:
        for access in (a for op in block.ops for a in op.accesses):
            place, buffer = access.location, visible.get(access.location.buffer)
            if access.kind == "load" or access.is_fault or buffer is None:
                continue
            size = place.size if buffer.dtype is None else buffer.dtype.storage.itemsize
            for index in range(place.start // size, (place.start + place.size - 1) // size + 1):
                name = f"{place.buffer}[{index}]"
                if buffer.dtype is not None and buffer.dtype.elements_per_unit == 2:
                    name = f"{place.buffer}[{2 * index}:{2 * index + 2}]"
                found[place.buffer, index] = Exit(name, Location(place.buffer, index * size, size))
    return [found[key] for key in sorted(found)]
