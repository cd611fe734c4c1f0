"""Run machine code on a GPU, in a process of its own.

A kernel that traps or never ends takes its process with it, not the run: the next one gets a fresh
process. All buffers of a launch lie in one allocation with guards between them; a guard that
changed is reported.
"""

from __future__ import annotations

import ctypes
import multiprocessing
import signal
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from multiprocessing.connection import Connection
from multiprocessing.process import BaseProcess
from typing import Any

import numpy as np
from numpy.typing import NDArray

from reftile.ir.diagnostics import Diagnosis, ReftileError, fail
from reftile.rt import devices, driver

Bytes = NDArray[np.uint8]
GUARD, ALIGNMENT, PATTERN = 256, 256, 0xA7
"""Bytes between two buffers, what their addresses are multiples of, and what guards hold."""
LONGEST_LAUNCH = 20.0
"""Seconds until a launch counts as one that never ends."""
STARTING = 60.0


@dataclass(frozen=True)
class Memory:
    """A buffer of a launch: its bytes, or those of an earlier one.

    shift: bytes that it begins behind an aligned address.
    """

    data: Bytes
    shift: int = 0
    same_as: int | None = None


@dataclass(frozen=True)
class Parameter:
    """A parameter that is a number, as its bytes."""

    data: bytes


@dataclass(frozen=True)
class Code:
    """A kernel: the machine code that it lies in, its name, and the blocks of its grid."""

    cubin: bytes
    kernel: str
    grid: tuple[int, int, int]


@dataclass(frozen=True)
class Launch:
    """Kernels that run one after the other on the same arguments.

    parameters: in the order of the kernels' arguments. variations: for each time that all of it is
    done, from the same initial memory, the parameters that are another number then.
    """

    kernels: tuple[Code, ...]
    parameters: tuple[Memory | Parameter, ...]
    variations: tuple[Mapping[int, bytes], ...] = ({},)


Memories = list[Bytes]
"""The bytes of each buffer of a launch."""


def run_here(launch: Launch, device: int = 0) -> list[Memories]:
    """Run a launch in this process; for each variation, what the buffers hold afterwards.

    Raises:
        ReftileError: the driver refuses, the kernel traps, or it wrote outside its buffers
            (`tileiras.out_of_bounds`).
    """
    return _Driver(device).run(launch)


class _Driver:
    """The driver, with the context of one device current.

    A failed call is not cleaned up after: the process ends with it.
    """

    def __init__(self, device: int) -> None:
        devices.ensure_context(device)

    def run(self, launch: Launch) -> list[Memories]:
        call = driver.call
        modules = [call("loading the program", "cuModuleLoadData", c.cubin) for c in launch.kernels]
        functions = [
            call("finding the kernel", "cuModuleGetFunction", module, code.kernel.encode())
            for module, code in zip(modules, launch.kernels, strict=True)
        ]
        places, image = lay_out(launch.parameters)
        base = int(call("allocating", "cuMemAlloc", image.size))
        found: list[Memories] = []
        for variation in launch.variations:
            call("copying", "cuMemcpyHtoD", base, image.ctypes.data, image.size)
            # The buffers that the addresses point to must outlive the launches.
            holders = list(_holders(launch.parameters, places, base, variation))
            addresses = [ctypes.addressof(h) for h in holders]
            pointers = (ctypes.c_void_p * max(len(holders), 1))(*addresses)
            where = ctypes.addressof(pointers)
            for function, code in zip(functions, launch.kernels, strict=True):
                block = (1, 1, 1)  # the cubin itself says how many threads a tile block has
                call("launching", "cuLaunchKernel", function, *code.grid, *block, 0, 0, where, 0)
            call("running the kernel", "cuCtxSynchronize")
            after = np.empty_like(image)
            call("copying", "cuMemcpyDtoH", after.ctypes.data, base, after.size)
            found.append(take_out(launch.parameters, places, after))
        call("freeing", "cuMemFree", base)
        for module in modules:
            call("unloading the program", "cuModuleUnload", module)
        return found


def _holders(
    parameters: Sequence[Memory | Parameter],
    places: Sequence[int],
    base: int,
    variation: Mapping[int, bytes],
) -> Iterator[Any]:
    """Each parameter's bytes, in memory that C can read."""
    for number, (parameter, place) in enumerate(zip(parameters, places, strict=True)):
        data = variation.get(number)
        if data is None and isinstance(parameter, Parameter):
            data = parameter.data
        if data is None:
            data = (base + place).to_bytes(8, "little")
        yield ctypes.create_string_buffer(data, max(len(data), 8))


def lay_out(parameters: Sequence[Memory | Parameter]) -> tuple[list[int], Bytes]:
    """Where each buffer begins in the allocation, and the allocation before the launch."""
    places: list[int] = []
    end = GUARD
    for parameter in parameters:
        if isinstance(parameter, Parameter):
            places.append(-1)
        elif parameter.same_as is not None:
            places.append(places[parameter.same_as])
        else:
            start = -(-end // ALIGNMENT) * ALIGNMENT + parameter.shift
            places.append(start)
            end = start + parameter.data.size + GUARD
    image = np.full(end, PATTERN, np.uint8)
    for parameter, place in zip(parameters, places, strict=True):
        if isinstance(parameter, Memory) and parameter.same_as is None:
            image[place : place + parameter.data.size] = parameter.data
    return places, image


def take_out(
    parameters: Sequence[Memory | Parameter], places: Sequence[int], after: Bytes
) -> list[Bytes]:
    """The bytes of each buffer; all others must be as they were.

    Raises:
        ReftileError: `tileiras.out_of_bounds`.
    """
    found: list[Bytes] = []
    untouched = np.ones(after.size, bool)
    for parameter, place in zip(parameters, places, strict=True):
        if isinstance(parameter, Memory):
            size = parameter.data.size
            untouched[place : place + size] = False
            found.append(after[place : place + size].copy())
    changed = np.flatnonzero(untouched & (after != PATTERN))
    if changed.size:
        at = int(changed[0])
        before = max((p for p in places if 0 <= p <= at), default=-1)
        where = f"{at - before} bytes after the start of a buffer" if before >= 0 else "in front"
        message = f"{changed.size} bytes outside the buffers were written, the first {where}"
        raise fail("tileiras.out_of_bounds", message)
    return found


# In another process


class DeviceProcess:
    """A process that runs launches; it is replaced when a launch breaks it."""

    def __init__(self, device: int = 0, longest: float = LONGEST_LAUNCH) -> None:
        self.device, self.longest = device, longest
        self._process: BaseProcess | None = None
        self._pipe: Connection | None = None

    def run(self, launch: Launch) -> list[Memories]:
        """Run a launch; for each variation, what the buffers hold afterwards.

        Raises:
            ReftileError: as `run_here`, and `tileiras.timeout` for a kernel that does not end.
        """
        pipe = self._started()
        pipe.send(launch)
        if not pipe.poll(self.longest):
            self.close()
            raise fail("tileiras.timeout", f"the kernel did not end within {self.longest:.0f} s")
        try:
            kind, answer = pipe.recv()
        except (EOFError, OSError):
            self.close()
            raise fail("tileiras.crash", "the process that ran the kernel died") from None
        if kind == "done":
            return answer
        # The context may be lost, and with it all further launches.
        self.close()
        raise ReftileError(Diagnosis(answer[0], answer[1]))

    def describe(self) -> str:
        """The device and its driver.

        Raises:
            ReftileError: there is no device, or no driver.
        """
        pipe = self._started()
        pipe.send(None)
        kind, answer = pipe.recv()
        if kind == "done":
            return answer
        self.close()
        raise ReftileError(Diagnosis(answer[0], answer[1]))

    def close(self) -> None:
        """End the process."""
        if self._process is not None:
            self._process.kill()
            self._process.join()
        if self._pipe is not None:
            self._pipe.close()
        self._process = self._pipe = None

    def _started(self) -> Connection:
        if self._pipe is not None and self._process is not None and self._process.is_alive():
            return self._pipe
        self.close()
        context = multiprocessing.get_context("spawn")
        self._pipe, theirs = context.Pipe()
        self._process = context.Process(target=_serve, args=(theirs, self.device), daemon=True)
        self._process.start()
        theirs.close()
        if not self._pipe.poll(STARTING) or self._pipe.recv() != "ready":
            self.close()
            raise fail("tileiras.crash", "the process that runs kernels does not start")
        return self._pipe


def _serve(pipe: Connection, device: int) -> None:
    """Answer launches until the other side is gone; that is also how Ctrl-C ends it."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    pipe.send("ready")
    machine: _Driver | None = None
    while True:
        try:
            launch: Launch | None = pipe.recv()
        except EOFError:
            return
        try:
            machine = machine or _Driver(device)
            answer = _describe(device) if launch is None else machine.run(launch)
            pipe.send(("done", answer))
        except ReftileError as error:
            pipe.send(("failed", (error.diagnosis.rule, error.diagnosis.message)))


def _describe(device: int) -> str:
    name = driver.call("asking for the name", "cuDeviceGetName", 256, device)
    version = driver.call("asking the driver for its version", "cuDriverGetVersion")
    text = bytes(name).split(b"\0")[0].decode()
    return f"{text}, driver for CUDA {version // 1000}.{version % 1000 // 10}"
