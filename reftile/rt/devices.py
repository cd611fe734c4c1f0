"""Devices and their contexts: how many, what they are, and which one calls go to.

Contexts are the primary ones, which torch, CuPy, numba and JAX use too. Each thread has its own
current context, or none.
"""

from __future__ import annotations

import ctypes
from collections.abc import Callable, Generator
from contextlib import contextmanager
from functools import cache
from pathlib import Path
from typing import Any

from reftile.ir.diagnostics import fail
from reftile.rt import driver

_VERSION_FILE = Path("/sys/module/nvidia/version")


@cache
def device_count() -> int:
    """How many NVIDIA devices there are."""
    return int(driver.call("counting devices", "cuDeviceGetCount"))


@cache
def driver_version() -> str:
    """The driver's own version where the system says it, else the CUDA release that it is for."""
    try:
        return _VERSION_FILE.read_text("ascii").strip()
    except (OSError, ValueError):
        number = driver.call("asking the driver for its version", "cuDriverGetVersion")
        return f"CUDA {driver.release(number)}"


@cache
def attribute(device: int, name: str) -> int:
    """A device attribute by the end of its name, such as `MULTIPROCESSOR_COUNT`."""
    bindings = driver.bindings()
    which = getattr(bindings.CUdevice_attribute, f"CU_DEVICE_ATTRIBUTE_{name}")
    return int(driver.call(f"asking for {name}", "cuDeviceGetAttribute", which, device))


@cache
def device_name(device: int) -> str:
    """What the maker calls a device."""
    found = driver.call("asking for a device's name", "cuDeviceGetName", 128, device)
    return bytes(found).split(b"\0", 1)[0].decode(errors="replace")


@cache
def target(device: int) -> str:
    """The target that kernels for a device are lowered for, such as `sm_90a`.

    Raises:
        ReftileError: there is no such device.
    """
    count = device_count()
    if not 0 <= device < count:
        raise fail("cuda.device", f"there is no device {device}: there are {count}, from 0")
    major = attribute(device, "COMPUTE_CAPABILITY_MAJOR")
    minor = attribute(device, "COMPUTE_CAPABILITY_MINOR")
    # From sm_90 on, the fast instructions are those of the architecture alone ("a").
    return f"sm_{major}{minor}{'a' if major >= 9 else ''}"


def check_target(kernel: str, wanted: str, device: int) -> None:
    """Refuse a kernel whose target a device cannot run.

    Code for a target with an `a` runs there only; other code runs on its target and on later ones.

    Raises:
        ReftileError: `cuda.target`.
    """
    if not wanted.startswith("sm_"):
        raise fail(
            "cuda.target",
            f"`{kernel}` is for {wanted or 'no target'}, and CUDA runs sm_80 and later",
            hint="run it on the interpreter",
        )
    have = target(device)
    number, own = int(wanted[3:].rstrip("af")), int(have[3:].rstrip("a"))
    fits = wanted == have if wanted.endswith("a") else number <= own
    if not fits:
        raise fail(
            "cuda.target",
            f"`{kernel}` is for {wanted}, and device {device} ({device_name(device)}) is {have}",
            hint="choose another device, or run it on the interpreter",
        )


def current_device() -> int | None:
    """The device whose context is current in this thread, or None."""
    if not int(driver.call("looking for a context", "cuCtxGetCurrent")):
        return None
    return int(driver.call("asking for the current device", "cuCtxGetDevice"))


@cache
def _primary_context(device: int) -> Any:
    return driver.call(f"opening device {device}", "cuDevicePrimaryCtxRetain", device)


def ensure_context(device: int) -> None:
    """Make a context of the device current in this thread: the primary one, unless one is."""
    if current_device() != device:
        driver.call(f"opening device {device}", "cuCtxSetCurrent", _primary_context(device))


@contextmanager
def on_device(device: int) -> Generator[None]:
    """Have a context of the device current; afterwards the one of before is again."""
    before = driver.call("looking for a context", "cuCtxGetCurrent")
    ensure_context(device)
    try:
        yield
    finally:
        if int(before):
            driver.call("returning to the context of before", "cuCtxSetCurrent", before)


@contextmanager
def in_context(context: Any) -> Generator[None]:
    """Have this context current; afterwards the one of before is again, or none."""
    before = driver.call("looking for a context", "cuCtxGetCurrent")
    driver.call("entering a context", "cuCtxSetCurrent", context)
    try:
        yield
    finally:
        driver.call("returning to the context of before", "cuCtxSetCurrent", before)


@cache
def _pointer_attribute() -> Callable[[Any, int, int], int]:
    """The driver's cuPointerGetAttribute(data, attribute, address), called without cuda-python.

    cuda-python's function of that name gives device 0 for memory of every device (seen with
    cuda-bindings 13 and driver 580 on two H200).
    """
    found = driver.call(
        "finding a function of the driver",
        "cuGetProcAddress",
        b"cuPointerGetAttribute",
        driver.OLDEST_DRIVER,
        0,
    )
    address = int(found[0])
    return ctypes.CFUNCTYPE(ctypes.c_int, ctypes.c_void_p, ctypes.c_int, ctypes.c_uint64)(address)


def device_of_address(address: int) -> int | None:
    """The device that memory lies on, or None if the driver does not know the address."""
    which = driver.bindings().CUpointer_attribute.CU_POINTER_ATTRIBUTE_DEVICE_ORDINAL
    found = ctypes.c_int(-1)
    if _pointer_attribute()(ctypes.addressof(found), int(which), address):
        return None
    # -2 stands for memory of no device (cuda.h).
    return found.value if found.value >= 0 else None


def context_of_stream(stream: int) -> Any:
    """The context that a stream belongs to; of the default stream, the current one."""
    handle = driver.bindings().CUstream(stream)
    return driver.call("asking for a stream's context", "cuStreamGetCtx", handle)


def device_of_stream(stream: int) -> int | None:
    """The device of a stream, or None for the default one, which every device has."""
    if stream == 0:
        return None
    with in_context(context_of_stream(stream)):
        return current_device()


def synchronize(device: int) -> None:
    """Wait for all that was queued on a device.

    Raises:
        ReftileError: something queued failed.
    """
    with on_device(device):
        driver.call("waiting for the device", "cuCtxSynchronize")
