"""A stand-in for `cuda.bindings.driver`: device memory is memory of the host, launches are kept.

What a launch does to memory is given as a function of its parameters; failures are set by name.
"""

from __future__ import annotations

import ctypes
from collections.abc import Callable
from types import SimpleNamespace
from typing import Any

import pytest

from reftile.rt import devices, driver

CAPABILITY = {0: (9, 0), 1: (8, 0)}


class Status:
    """One result code; there is one object for each name, as in cuda-python."""

    def __init__(self, name: str) -> None:
        self.name = name

    def __int__(self) -> int:
        return 0


class Names:
    """An enumeration that has whatever member it is asked for."""

    def __init__(self) -> None:
        self._members: dict[str, Status] = {}

    def __getattr__(self, name: str) -> Status:
        if name.startswith("__"):
            raise AttributeError(name)
        return self._members.setdefault(name, Status(name))


class FakeDriver:
    """Records launches and calls.

    `fail[name]` makes that function return an error; `instead[name]` is called for it.
    """

    def __init__(self, device_count: int = 2, version: int = 13_000) -> None:
        self.device_count, self.version = device_count, version
        self.calls: list[str] = []
        self.launches: list[SimpleNamespace] = []
        self.fail: dict[str, str] = {}
        self.instead: dict[str, Callable[..., Any]] = {}
        self.sizes: list[int] = []
        self.kernel: Callable[[list[bytes]], None] = lambda parameters: None
        self.log = b"ptxas info    : Used 168 registers, used 1 barriers\n"
        self.modules: list[bytes] = []
        self.context = 0
        self.capturing = False
        self.streams: dict[int, int] = {}  # the context of a stream; by default the current one
        self.event_contexts: list[int] = []
        self.memory: dict[int, Any] = {}
        self.owner: dict[int, int] = {}
        # cuPointerGetAttribute as the driver's library has it.
        self.pointer_attribute = ctypes.CFUNCTYPE(
            ctypes.c_int, ctypes.c_void_p, ctypes.c_int, ctypes.c_uint64
        )(self._write_owner)
        self.CUresult = Names()
        self.CUdevice_attribute = Names()
        self.CUfunction_attribute = Names()
        self.CUpointer_attribute = Names()
        self.CUjit_option = Names()
        self.CUstreamCaptureStatus = Names()

    def __getattr__(self, name: str) -> Any:
        instead: dict[str, Callable[..., Any]] = self.__dict__.get("instead", {})
        if name in instead:
            return instead[name]
        function = type(self).__dict__.get(f"do_{name}")
        if function is None:
            raise AttributeError(name)

        def call(*arguments: Any) -> Any:
            self.calls.append(name)
            if name in self.fail:
                return (getattr(self.CUresult, f"CUDA_ERROR_{self.fail[name]}"),)
            found = function(self, *arguments)
            return (self.CUresult.CUDA_SUCCESS, *(() if found is None else (found,)))

        return call

    # Plain objects

    def CUlaunchConfig(self) -> Any:
        return SimpleNamespace()

    def CUstream(self, number: int) -> int:
        return number

    def cuGetErrorString(self, status: Status) -> tuple[Status, bytes]:
        return self.CUresult.CUDA_SUCCESS, f"text of {status.name}".encode()

    # Devices and contexts; a context is its device's number and one

    def do_cuInit(self, flags: int) -> None: ...

    def do_cuDriverGetVersion(self) -> int:
        return self.version

    def do_cuDeviceGetCount(self) -> int:
        return self.device_count

    def do_cuDeviceGetName(self, size: int, device: int) -> bytes:
        return f"Fake {device}".encode().ljust(size, b"\0")

    def do_cuDeviceGetAttribute(self, which: Status, device: int) -> int:
        major, minor = CAPABILITY[device]
        return major if which.name.endswith("MAJOR") else minor

    def do_cuCtxGetCurrent(self) -> int:
        return self.context

    def do_cuCtxGetDevice(self) -> int:
        return self.context - 1

    def do_cuCtxSetCurrent(self, context: int) -> None:
        self.context = context

    def do_cuDevicePrimaryCtxRetain(self, device: int) -> int:
        return device + 1

    def do_cuCtxSynchronize(self) -> None: ...

    # Modules

    def do_cuModuleLoadDataEx(
        self, code: bytes, count: int, options: list[Status], values: list[Any]
    ) -> int:
        self.modules.append(code)
        for option, value in zip(options, values, strict=True):
            if option.name == "CU_JIT_INFO_LOG_BUFFER":
                value[: len(self.log)] = self.log
        return len(self.modules)

    def do_cuModuleGetFunction(self, module: int, name: bytes) -> str:
        return f"{name.decode()} of module {module} in context {self.context}"

    def do_cuFuncSetAttribute(self, function: str, which: Status, value: int) -> None: ...

    def do_cuLaunchKernelEx(self, config: Any, handle: Any, pointers: int, extra: int) -> None:
        addresses = (ctypes.c_void_p * len(self.sizes)).from_address(pointers)
        found = [ctypes.string_at(a or 0, n) for a, n in zip(addresses, self.sizes, strict=True)]
        grid = (config.gridDimX, config.gridDimY, config.gridDimZ)
        launch = SimpleNamespace(
            grid=grid, stream=config.hStream, parameters=found, handle=handle, device=self.context
        )
        self.launches.append(launch)
        self.kernel(found)

    # Memory

    def do_cuMemAlloc(self, size: int) -> int:
        buffer = ctypes.create_string_buffer(size + 256)
        address = ctypes.addressof(buffer) + -ctypes.addressof(buffer) % 256
        self.memory[address] = buffer
        return address

    def do_cuMemFree(self, address: int) -> None:
        del self.memory[address]

    def do_cuMemcpyHtoDAsync(self, target: int, source: int, size: int, stream: int) -> None:
        ctypes.memmove(target, source, size)

    def do_cuMemcpyDtoHAsync(self, target: int, source: int, size: int, stream: int) -> None:
        ctypes.memmove(target, source, size)

    def do_cuGetProcAddress(self, symbol: bytes, version: int, flags: int) -> tuple[int, int]:
        assert symbol == b"cuPointerGetAttribute"
        found = ctypes.cast(self.pointer_attribute, ctypes.c_void_p).value
        assert found is not None
        return found, 0

    def _write_owner(self, data: int, which: int, address: int) -> int:
        ctypes.c_int.from_address(data).value = self.owner.get(address, 0)
        return 0

    def do_cuStreamSynchronize(self, stream: int) -> None: ...

    def do_cuStreamIsCapturing(self, stream: int) -> Status:
        ends = "ACTIVE" if self.capturing else "NONE"
        return getattr(self.CUstreamCaptureStatus, f"CU_STREAM_CAPTURE_STATUS_{ends}")

    def do_cuStreamGetCtx(self, stream: int) -> int:
        return self.streams.get(stream, self.context)

    # Events; one is recorded on streams of its own context only

    def do_cuEventCreate(self, flags: int) -> list[Any]:
        self.event_contexts.append(self.context)
        return []

    def do_cuEventRecord(self, event: list[Any], stream: int) -> None:
        assert self.event_contexts[-1] == self.do_cuStreamGetCtx(stream) == self.context
        event.append(stream)

    def do_cuStreamWaitEvent(self, stream: int, event: list[Any], flags: int) -> None:
        event.append(("held", stream))

    def do_cuEventSynchronize(self, event: list[Any]) -> None: ...

    def do_cuEventElapsedTime(self, start: list[Any], end: list[Any]) -> float:
        return 1.5

    def do_cuEventDestroy(self, event: list[Any]) -> None: ...


_CACHED = (
    devices.device_count,
    devices.driver_version,
    devices.attribute,
    devices.device_name,
    devices._pointer_attribute,  # pyright: ignore[reportPrivateUsage]
    devices.target,
    devices._primary_context,  # pyright: ignore[reportPrivateUsage]
)


def install(monkeypatch: pytest.MonkeyPatch, fake: FakeDriver) -> None:
    """Have the runtime talk to the fake; what was cached of another driver is forgotten."""
    monkeypatch.setattr(driver, "bindings", lambda: fake)
    for function in _CACHED:
        function.cache_clear()


class Array:
    """A device array as CuPy and numba show theirs."""

    def __init__(
        self,
        address: int,
        shape: tuple[int, ...] = (4, 8),
        typestr: str = "<f4",
        strides: tuple[int, ...] | None = None,
        read_only: bool = False,
    ) -> None:
        self.__cuda_array_interface__ = {
            "data": (address, read_only),
            "shape": shape,
            "typestr": typestr,
            "strides": strides,
        }
