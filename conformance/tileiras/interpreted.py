"""A device that interprets the bytecode it is given, to try a campaign without a GPU.

Its machine code is bytecode; neither the compiler nor a driver is needed. A fault can be planted,
which the campaign must then find, and reduce.
"""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np
from reftile.conformance.tileiras.backend import TileirasBackend
from reftile.conformance.tileiras.compiler import Compiled, Target
from reftile.conformance.tileiras.device import Launch, Memories, Memory

from reftile.interop.read import read_bytecode
from reftile.interp.arguments import Raw
from reftile.interp.launch import interpret
from reftile.ir.core import Kernel
from reftile.ir.ops import OPS
from reftile.ir.types import PointerType, TileType


class InterpretingDevice:
    """Runs launches on the interpreter.

    spoil: the byte of the last buffer to corrupt. faults: operations done as other ones of the same
    operands are.
    """

    longest = 20.0

    def __init__(self, spoil: int | None = None, faults: Mapping[str, str] | None = None) -> None:
        self.spoil, self.faults = spoil, dict(faults or {})

    def describe(self) -> str:
        """See `DeviceProcess`."""
        return "an interpreter"

    def close(self) -> None:
        """See `DeviceProcess`."""

    def run(self, launch: Launch) -> list[Memories]:
        """See `DeviceProcess`."""
        return [self._once(launch, variation) for variation in launch.variations]

    def _once(self, launch: Launch, variation: Mapping[int, bytes]) -> Memories:
        memories = [p.data.copy() for p in launch.parameters if isinstance(p, Memory)]
        for code in launch.kernels:
            (kernel,) = read_bytecode(code.cubin).kernels
            self._plant(kernel)
            values: list[object] = []
            rest = iter(memories)
            for number, parameter in enumerate(launch.parameters):
                type = kernel.arguments[number].type
                assert isinstance(type, TileType)
                if isinstance(parameter, Memory):
                    assert isinstance(type.element, PointerType)
                    values.append(Raw(next(rest), type.element.pointee.name))
                else:
                    data = variation.get(number, parameter.data)
                    values.append(_number(data, type))
            interpret(kernel, code.grid, values, check=True)
        if self.spoil is not None and memories[-1].size:
            memories[-1][self.spoil % memories[-1].size] ^= 0x10
        return memories

    def _plant(self, kernel: Kernel) -> None:
        for op in list(kernel.walk()):
            other = self.faults.get(op.name)
            if other is None or op.parent is None:
                continue
            types = tuple(r.type for r in op.results)
            made = OPS[other](op.arguments, types, {}, ())
            op.parent.insert_before(op, made)
            op.parent.ops.remove(op)
            mapping = dict(zip(op.results, made.results, strict=True))
            for user in kernel.walk():
                user.replace_operands(mapping)


def _number(data: bytes, type: TileType) -> int | float:
    if type.dtype.is_float:
        return float(np.frombuffer(data, f"<f{len(data)}")[0])
    return int.from_bytes(data, "little", signed=True)


class Uncompiled(TileirasBackend):
    """The backend on such a device."""

    def __init__(self, spoil: int | None = None, faults: Mapping[str, str] | None = None) -> None:
        super().__init__(target=Target())
        self.bundle.tileiras = "none"
        self.device = InterpretingDevice(spoil, faults)

    def compiled(self, bytecode: bytes) -> Compiled:
        """The bytecode itself."""
        return Compiled(bytecode)
