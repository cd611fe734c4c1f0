"""The CUDA driver, through cuda-python: every failure is one diagnosis.

cuda-python and the driver are looked for when first used. Nothing of the CUDA toolkit is needed.
"""

from __future__ import annotations

from functools import cache
from importlib import import_module
from typing import Any

from reftile.ir.diagnostics import ReftileError, fail

OLDEST_DRIVER = 12_040
"""CUDA 12.4: the first driver whose assembler takes PTX ISA 8.4."""

_HINTS = {
    "CUDA_ERROR_NO_DEVICE": ("cuda.no_device", "the driver sees no NVIDIA GPU"),
    "CUDA_ERROR_INSUFFICIENT_DRIVER": ("cuda.old_driver", "install a newer NVIDIA driver"),
    "CUDA_ERROR_SYSTEM_DRIVER_MISMATCH": ("cuda.old_driver", "reboot after updating the driver"),
    "CUDA_ERROR_OUT_OF_MEMORY": ("cuda.out_of_memory", "free device memory, or use smaller arrays"),
    "CUDA_ERROR_ILLEGAL_ADDRESS": (
        "cuda.illegal_address",
        "run the kernel on the interpreter with its checks: it names the access; "
        "the device context is lost, so start a new process",
    ),
    "CUDA_ERROR_MISALIGNED_ADDRESS": (
        "cuda.illegal_address",
        "run the kernel on the interpreter with its checks; start a new process",
    ),
    "CUDA_ERROR_ILLEGAL_INSTRUCTION": (
        "cuda.illegal_instruction",
        "a copy or barrier was given an operand it does not take; start a new process",
    ),
    "CUDA_ERROR_LAUNCH_OUT_OF_RESOURCES": ("cuda.resources", "fewer warps or less shared memory"),
    "CUDA_ERROR_LAUNCH_TIMEOUT": ("cuda.timeout", "the kernel ran too long; start a new process"),
    "CUDA_ERROR_INVALID_PTX": ("cuda.ptx", "the driver's assembler refused the PTX"),
    "CUDA_ERROR_UNSUPPORTED_PTX_VERSION": ("cuda.old_driver", "install a newer NVIDIA driver"),
    "CUDA_ERROR_NO_BINARY_FOR_GPU": ("cuda.target", "the kernel was lowered for another GPU"),
}


@cache
def bindings() -> Any:
    """The module `cuda.bindings.driver`, with the driver initialised.

    Raises:
        ReftileError: cuda-python, the driver or a device is missing, or the driver is too old.
    """
    try:
        driver = import_module("cuda.bindings.driver")
    except ImportError:
        raise fail(
            "cuda.no_bindings", "cuda-python is not installed", hint="pip install reftile[cuda]"
        ) from None
    try:
        status = driver.cuInit(0)
    except Exception as error:
        raise fail(
            "cuda.no_driver",
            f"the NVIDIA driver cannot be loaded: {error}",
            hint="install NVIDIA's driver, or run on the interpreter",
        ) from None
    check(driver, status, "starting the driver")
    version = check(driver, driver.cuDriverGetVersion(), "asking the driver for its version")
    if version < OLDEST_DRIVER:
        raise fail(
            "cuda.old_driver",
            f"the NVIDIA driver is for CUDA {_release(version)}, "
            f"and {_release(OLDEST_DRIVER)} is needed",
            hint="install a newer NVIDIA driver",
        )
    return driver


def _release(version: int) -> str:
    return f"{version // 1000}.{version % 1000 // 10}"


def check(driver: Any, result: Any, doing: str) -> Any:
    """Return what a driver call returned besides its status: nothing, one value or a tuple.

    Raises:
        ReftileError: the call failed; the rule says which kind of failure it was.
    """
    status = result[0]
    if status != driver.CUresult.CUDA_SUCCESS:
        raise error_of(driver, status, doing)
    if len(result) == 1:
        return None
    return result[1] if len(result) == 2 else result[1:]


def error_of(driver: Any, status: Any, doing: str) -> ReftileError:
    """The diagnosis of a failed call."""
    name = getattr(status, "name", str(status))
    rule, hint = _HINTS.get(name, ("cuda.failed", ""))
    found = driver.cuGetErrorString(status)
    text = found[1].decode() if len(found) > 1 and found[1] else "unknown error"
    return fail(rule, f"{doing} failed: {name}: {text}", hint=hint)


def call(doing: str, function: str, *arguments: Any) -> Any:
    """Call a function of the driver by name and return its results."""
    driver = bindings()
    return check(driver, getattr(driver, function)(*arguments), doing)


@cache
def device_count() -> int:
    """How many NVIDIA devices there are."""
    return int(call("counting devices", "cuDeviceGetCount"))


@cache
def attribute(device: int, name: str) -> int:
    """A device attribute by the end of its name, such as `MULTIPROCESSOR_COUNT`."""
    driver = bindings()
    which = getattr(driver.CUdevice_attribute, f"CU_DEVICE_ATTRIBUTE_{name}")
    return int(call(f"asking for {name}", "cuDeviceGetAttribute", which, device))


@cache
def target(device: int) -> str:
    """The target that kernels for a device are lowered for, such as `sm_90a`."""
    major = attribute(device, "COMPUTE_CAPABILITY_MAJOR")
    minor = attribute(device, "COMPUTE_CAPABILITY_MINOR")
    # From sm_90 on, the fast instructions are those of the architecture alone ("a").
    return f"sm_{major}{minor}{'a' if major >= 9 else ''}"


def ensure_context(device: int = 0) -> None:
    """Make the device's primary context current, unless another one is.

    Other libraries share the primary context.
    """
    current = call("looking for a context", "cuCtxGetCurrent")
    if int(current):
        return
    context = call("opening the device", "cuDevicePrimaryCtxRetain", device)
    call("opening the device", "cuCtxSetCurrent", context)
