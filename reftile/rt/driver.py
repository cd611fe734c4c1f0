"""The CUDA driver, through cuda-python: every failure is one diagnosis.

cuda-python and the driver are looked for when first used. Nothing of the CUDA toolkit is needed.
"""

from __future__ import annotations

from functools import cache
from importlib import import_module
from typing import Any

from reftile.ir.diagnostics import ReftileError, fail
from reftile.rt.recent import recent_launches

OLDEST_DRIVER = 12_070
"""CUDA 12.7: the first driver whose assembler takes PTX ISA 8.6, which lower.ptx writes."""

_CHECKED = "`reftile check` runs the kernel on the interpreter, which names the wrong access"
_LOST = "the device context is lost, so start a new process"
_HINTS = {
    "NO_DEVICE": ("cuda.no_device", "the driver sees no NVIDIA GPU; CUDA_VISIBLE_DEVICES may say"),
    "STUB_LIBRARY": ("cuda.no_driver", "a stub of libcuda was found: put the driver's in front"),
    "NOT_INITIALIZED": (
        "cuda.forked",
        "a process that was forked after CUDA was used cannot use it: start processes by `spawn`",
    ),
    "INSUFFICIENT_DRIVER": ("cuda.old_driver", "install a newer NVIDIA driver"),
    "SYSTEM_DRIVER_MISMATCH": ("cuda.old_driver", "reboot after updating the driver"),
    "COMPAT_NOT_SUPPORTED_ON_DEVICE": ("cuda.old_driver", "install a newer NVIDIA driver"),
    "UNSUPPORTED_PTX_VERSION": ("cuda.old_driver", "install a newer NVIDIA driver"),
    "OUT_OF_MEMORY": ("cuda.out_of_memory", "free device memory, or use smaller arrays"),
    "ILLEGAL_ADDRESS": ("cuda.illegal_address", f"{_CHECKED}; {_LOST}"),
    "MISALIGNED_ADDRESS": ("cuda.illegal_address", f"{_CHECKED}; {_LOST}"),
    "INVALID_ADDRESS_SPACE": ("cuda.illegal_address", f"{_CHECKED}; {_LOST}"),
    "ILLEGAL_INSTRUCTION": (
        "cuda.illegal_instruction",
        f"a copy or barrier was given an operand it does not take; {_CHECKED}; {_LOST}",
    ),
    "LAUNCH_FAILED": ("cuda.launch_failed", f"{_CHECKED}; {_LOST}"),
    "ASSERT": ("cuda.assert", _LOST),
    "LAUNCH_OUT_OF_RESOURCES": ("cuda.resources", "use fewer warps or less shared memory"),
    "INVALID_CLUSTER_SIZE": ("cuda.resources", "the device cannot hold such a cluster of blocks"),
    "COOPERATIVE_LAUNCH_TOO_LARGE": ("cuda.resources", "launch no more blocks than fit at a time"),
    "LAUNCH_TIMEOUT": ("cuda.timeout", f"the kernel ran too long; {_LOST}"),
    "INVALID_PTX": ("cuda.ptx", "the driver's assembler refused the PTX"),
    "NO_BINARY_FOR_GPU": ("cuda.target", "the kernel was lowered for another GPU"),
    "INVALID_SOURCE": ("cuda.target", "the kernel was lowered for another GPU"),
    "STREAM_CAPTURE_UNSUPPORTED": (
        "cuda.capture",
        "launch the kernel once before capturing, and give it arrays of the device",
    ),
    "STREAM_CAPTURE_INVALIDATED": ("cuda.capture", "an earlier call ended the capture"),
    "DEVICE_UNAVAILABLE": ("cuda.busy", "another process has the device for itself"),
    "CONTEXT_IS_DESTROYED": ("cuda.context", _LOST),
}
"""Rule and hint by the driver's name of the failure (cuda.h, CUresult), CUDA_ERROR_ left out."""


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
    start(driver)
    return driver


def start(driver: Any) -> None:
    """Initialise the driver and look at its version.

    Raises:
        ReftileError: there is no driver or no device, or the driver is too old.
    """
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
            f"the NVIDIA driver is for CUDA {release(version)}, "
            f"and {release(OLDEST_DRIVER)} is needed",
            hint="install a newer NVIDIA driver",
        )


def release(version: int) -> str:
    """The number of a CUDA release as people write it."""
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


def short_name(status: Any) -> str:
    """The driver's name of a failure, such as `OUT_OF_MEMORY`."""
    return str(getattr(status, "name", status)).removeprefix("CUDA_ERROR_")


def is_lost(status: Any) -> bool:
    """True for a failure of a kernel that shows at some later call, in a context that is lost."""
    return _HINTS.get(short_name(status), ("", ""))[1].endswith(_LOST)


def error_of(driver: Any, status: Any, doing: str, notes: tuple[str, ...] = ()) -> ReftileError:
    """The diagnosis of a failed call; `notes` say more about what was going on.

    A kernel's failure shows at whatever call comes next, so that all launches are named then.
    """
    name = short_name(status)
    rule, hint = _HINTS.get(name, ("cuda.failed", ""))
    found = driver.cuGetErrorString(status)
    text = found[1].decode() if len(found) > 1 and found[1] else "unknown error"
    if is_lost(status):
        notes = (*notes, recent_launches())
    message = "; ".join((f"{doing} failed: {name}: {text}", *notes))
    return fail(rule, message, hint=hint)


def call(doing: str, function: str, *arguments: Any) -> Any:
    """Call a function of the driver by name and return its results."""
    driver = bindings()
    return check(driver, getattr(driver, function)(*arguments), doing)
