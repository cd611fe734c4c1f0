"""The backend `cuda` of `launch`: pipe kernels on an NVIDIA GPU.

Nothing is checked while a kernel runs; what its arguments must be is, before.
"""

from __future__ import annotations

import warnings
from collections.abc import Sequence
from dataclasses import dataclass, field
from math import prod
from typing import Any

import numpy as np

from reftile.ir.core import Kernel
from reftile.ir.diagnostics import fail
from reftile.ir.verify import is_verified
from reftile.lang.backends import LaunchOptions
from reftile.rt import devices, driver
from reftile.rt.arguments import is_torch, read_array
from reftile.rt.cache import Cache
from reftile.rt.compile import Compiled, check_level, compile_kernel
from reftile.rt.host_arrays import HostArrays
from reftile.rt.streams import current_stream, is_capturing, read_stream


class HostCopy(UserWarning):
    """A launch on a GPU copied arrays of NumPy there and back, and this says which."""


@dataclass(frozen=True, slots=True)
class CudaReport:
    """What a launch did.

    blocks: how many were launched. compiled: the kernel as it was run. copied: bytes of each
    argument that lay on the host. Unless something was copied, the launch may still be running.
    """

    blocks: int
    compiled: Compiled
    copied: dict[str, int] = field(default_factory=dict[str, int])
    printed: tuple[str, ...] = ()
    checked: bool = False
    backend: str = "cuda"


def run(
    kernel: Kernel, grid: tuple[int, ...], args: Sequence[Any], options: LaunchOptions
) -> CudaReport:
    """Launch a pipe kernel on the device that its arrays lie on.

    Raises:
        ReftileError: there is no GPU, the kernel is not for it, an argument does not fit, or the
            launch failed.
    """
    check_level(kernel)
    device = _device_of(args)
    compiled = compiled_for(kernel, device)
    names = compiled.host.arguments
    if len(args) != len(names):
        raise fail(
            "cuda.argument", f"`{kernel.name}` takes ({', '.join(names)}), found {len(args)} values"
        )
    stream = read_stream(options.stream) if options.stream is not None else _stream_of(args, device)
    extents = (*grid, 1, 1)[:3]
    if not any(isinstance(a, np.ndarray) for a in args):
        compiled.launch(extents, args, stream)
        return CudaReport(prod(extents), compiled)
    with devices.on_device(device):
        if is_capturing(stream):
            raise fail(
                "cuda.capture",
                f"`{kernel.name}` was given arrays of NumPy while a graph is captured",
                hint="give it arrays of the device",
            )
        with HostArrays(compiled.host, args, stream, device) as copies:
            listed = ", ".join(f"`{n}` ({b} bytes)" for n, b in copies.copied.items())
            message = f"`{kernel.name}`: {listed} copied to the GPU and back"
            warnings.warn(message, HostCopy, stacklevel=4)
            compiled.launch(extents, copies.arguments, stream)
            copies.bring_back()
    return CudaReport(prod(extents), compiled, copies.copied)


def compiled_for(kernel: Kernel, device: int) -> Compiled:
    """The kernel on a device: from memory while it has not changed, from the disk, or compiled."""
    key = f"cuda:{device}"
    known = kernel.plans.get(key)
    if isinstance(known, Compiled) and is_verified(kernel):
        return known
    compiled = compile_kernel(kernel, device, cached=Cache())
    kernel.plans[key] = compiled
    return compiled


def _device_of(args: Sequence[Any]) -> int:
    """The device of the first array that lies on one; else the current one, else the first."""
    driver.bindings()
    for value in args:
        if is_torch(value) and value.device.type == "cuda":
            return int(value.device.index)
        if hasattr(value, "__cuda_array_interface__"):
            found = devices.device_of_address(read_array(value).address)
            if found is not None:
                return found
        elif hasattr(value, "__dlpack_device__") and not isinstance(value, np.ndarray):
            kind, number = value.__dlpack_device__()
            if int(kind) == 2:  # kDLCUDA
                return int(number)
    return devices.current_device() or 0


def _stream_of(args: Sequence[Any], device: int) -> int:
    """The current stream of the library that the first array is of."""
    for value in args:
        if is_torch(value) and value.device.type == "cuda":
            return current_stream("torch", device)
        if type(value).__module__.partition(".")[0] == "cupy":
            return current_stream("cupy", device)
    return 0
