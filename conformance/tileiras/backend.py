"""`tileiras` as a conformance backend."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from reftile.conformance.backend import Info, Stopped, Unsupported
from reftile.conformance.cases import Argument, Buffer, Bytes, Scalar
from reftile.conformance.oracle.formats import WIDTHS
from reftile.conformance.stress import ENOUGH, Histogram, StressConfig
from reftile.conformance.tileiras.bundle import Bundle, read_bundle
from reftile.conformance.tileiras.compiler import (
    Compiled,
    Target,
    compile_once,
    tileiras_version,
    to_bytecode,
)
from reftile.conformance.tileiras.device import Code, DeviceProcess, Launch, Memory, Parameter
from reftile.conformance.tileiras.litmus import (
    INSTANCES,
    SETTINGS,
    count_hits,
    harness,
    litmus_parameters,
    settings,
    variation,
)

from reftile.interp.model.litmus import LitmusTest
from reftile.ir.diagnostics import ReftileError

LACKING = {
    "suite:reject": "its messages have no rule ids",
    "suite:trap": "runs without checks",
}


@dataclass(frozen=True)
class Executable:
    """Machine code and the name of the kernel in it."""

    cubin: bytes
    kernel: str


class TileirasBackend:
    """Programs exported as Tile IR, compiled by NVIDIA's compiler, run on a GPU.

    bundle: a file of `reftile conformance compile`; without one, programs are compiled as they
    come.
    """

    name = "tileiras"

    def __init__(self, bundle: str = "", target: Target | None = None) -> None:
        self.bundle = read_bundle(Path(bundle)) if bundle else Bundle(target or Target())
        self.live = not bundle
        self.device = DeviceProcess()
        self._described = ""

    def info(self) -> Info:
        """See `Backend`."""
        if not self._described:
            self._described = self.device.describe()
        version = self.bundle.tileiras or tileiras_version()
        target = self.bundle.target
        device = f"{self._described}, compiled for {target.gpu} with -O{target.opt}"
        return Info(self.name, version, device, powers_of_two=True)

    def supports(self, feature: str) -> bool | str:
        """See `Backend`."""
        if "multimem" in feature:
            return "has one device"
        return LACKING.get(feature, True)

    def compiled(self, bytecode: bytes) -> Compiled:
        """What the compiler makes of a program.

        Raises:
            Unsupported: it is not in the bundle.
        """
        found = self.bundle.find(bytecode)
        if found is None:
            if not self.live:
                raise Unsupported("the program is not in the bundle")
            found = compile_once(bytecode, self.bundle.target)
            self.bundle.add(bytecode, found)
        return found

    def compile(self, text: str, kernel: str) -> Executable:
        """See `Backend`."""
        found = self.compiled(to_bytecode(text, kernel))
        if found.refused:
            raise Unsupported(found.refused)
        return Executable(found.cubin, kernel)

    def run(
        self, executable: Executable, grid: tuple[int, int, int], arguments: Sequence[Argument]
    ) -> dict[str, Bytes]:
        """See `Backend`."""
        parameters = tuple(_parameters(arguments))
        code = Code(executable.cubin, executable.kernel, grid)
        (found,) = self._launch(Launch((code,), parameters))
        buffers = [a for a in arguments if isinstance(a, Buffer)]
        return {b.name: data for b, data in zip(buffers, found, strict=True) if b.written}

    def _launch(self, launch: Launch) -> list[list[Bytes]]:
        try:
            return self.device.run(launch)
        except ReftileError as error:
            # No diagnosis of a checker: the machine broke.
            raise Stopped(f"{error.diagnosis.rule}: {error.diagnosis.message}") from None

    def run_litmus(self, test: LitmusTest, config: StressConfig) -> Histogram:
        """See `Backend`: many instances in each launch, under several kinds of stress.

        It ends as soon as the outcome has been seen often enough, or all iterations are done.
        """
        if test.program.exists is None:
            raise Unsupported("the test asks for no outcome")
        found = harness(test)
        made = [(self.compile(text, kernel), kernel) for text, kernel in found.texts]
        launches = max(-(-config.iterations // (INSTANCES * SETTINGS)), 1)
        hits = runs = 0
        for setting in settings(config.seed, launches):
            codes = tuple(
                Code(code.cubin, kernel, (roles * INSTANCES + setting.stressing, 1, 1))
                for (code, kernel), roles in zip(made, found.roles, strict=True)
            )
            launch = Launch(
                codes,
                tuple(litmus_parameters(found, INSTANCES, setting.step)),
                tuple(variation(found, numbers) for numbers in setting.numbers),
            )
            for memories in self._launch(launch):
                hits += count_hits(found, memories, setting.step)
                runs += INSTANCES
            if hits >= ENOUGH:
                break
        return Histogram({}, hits, runs)

    def accuracy(self, op: str, dtype: str) -> float | None:
        """See `Backend`: the limits of the specification are claimed."""
        return None


def _parameters(arguments: Sequence[Argument]) -> list[Memory | Parameter]:
    names = [a.name for a in arguments]
    found: list[Memory | Parameter] = []
    for argument in arguments:
        if isinstance(argument, Scalar):
            found.append(Parameter(number_bytes(argument.dtype, argument.value)))
        elif argument.same_as:
            found.append(Memory(argument.memory(), 0, names.index(argument.same_as)))
        else:
            found.append(Memory(argument.memory(), argument.shift_bytes))
    return found


def number_bytes(dtype: str, value: int | float) -> bytes:
    """A number as a parameter: an integer of its width, or a float that its type has.

    Raises:
        Unsupported: NumPy has no such float.
    """
    width = WIDTHS[dtype]
    if dtype.startswith("i"):
        size = max(width, 8) // 8
        return (int(value) & ((1 << (8 * size)) - 1)).to_bytes(size, "little")
    if dtype not in ("f16", "f32", "f64"):
        raise Unsupported(f"a parameter of type {dtype}")
    return np.array(value, f"<f{width // 8}").tobytes()
