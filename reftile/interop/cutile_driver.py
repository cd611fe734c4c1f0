"""A CUDA driver on the host: as much of one as cuTile Python asks for to launch a kernel.

Device memory is memory of the host, every call is done when it returns, and a launch is handed to a
function in Python. What a module holds is not looked at: it is a key, and the launcher knows what
it stands for.

Source: the CUDA driver API reference, for the signatures and the numbers of results and attributes.
"""

from __future__ import annotations

import ctypes
import threading
import time
from collections.abc import Callable
from ctypes import POINTER, c_char_p, c_int, c_size_t, c_uint, c_uint64, c_void_p
from dataclasses import dataclass, field
from itertools import count
from typing import Any

SUCCESS, INVALID_VALUE, NO_BINARY, NOT_SUPPORTED, LAUNCH_FAILED = 0, 1, 209, 801, 719

KEY = b"reftile:"
"""What the driver loads begins with this; the code of a GPU does not."""

VERSION = 13040
"""What the driver says of itself: 1000 major + 10 minor."""
GRID_LIMITS = (0x7FFFFFFF, 0xFFFF, 0xFFFF)
MAX_GRID_DIM_X, CC_MAJOR, CC_MINOR = 5, 75, 76
ATTRIBUTES = {16: 4, 38: 1 << 20, 97: 232448}
"""By number: multiprocessors, bytes of the L2 cache, and of shared memory a block may ask for."""
POINTER_CONTEXT = 1
CONTEXT, DEVICE = 0xC0DE, 0

Bind = Callable[[bytes, str, tuple[int, int, int], int | None], Callable[[], None]]
"""`bind(key, symbol, grid, parameters)`: what runs a launch; `parameters` is the address of the
array of pointers to the arguments, which are read at once, or None if there are none."""


class LaunchConfig(ctypes.Structure):
    """CUlaunchConfig."""

    _fields_ = (
        ("grid", c_uint * 3),
        ("block", c_uint * 3),
        ("shared_bytes", c_uint),
        ("stream", c_void_p),
        ("attributes", c_void_p),
        ("attribute_count", c_uint),
    )


class KernelNode(ctypes.Structure):
    """CUDA_KERNEL_NODE_PARAMS_v2."""

    _fields_ = (
        ("function", c_void_p),
        ("grid", c_uint * 3),
        ("block", c_uint * 3),
        ("shared_bytes", c_uint),
        ("parameters", c_void_p),
        ("extra", c_void_p),
        ("kernel", c_void_p),
        ("context", c_void_p),
    )


class MemsetNode(ctypes.Structure):
    """CUDA_MEMSET_NODE_PARAMS_v1."""

    _fields_ = (
        ("destination", c_uint64),
        ("pitch", c_size_t),
        ("value", c_uint),
        ("element_size", c_uint),
        ("width", c_size_t),
        ("height", c_size_t),
    )


class AllocNode(ctypes.Structure):
    """CUDA_MEM_ALLOC_NODE_PARAMS: what is read of it."""

    _fields_ = (
        ("properties", ctypes.c_uint8 * 88),
        ("access", c_void_p),
        ("access_count", c_size_t),
        ("size", c_size_t),
        ("pointer", c_uint64),
    )


@dataclass(slots=True)
class Graph:
    """What a graph does, in the order in which it was said; cuTile makes chains only.

    memory: what its steps write, alive as long as they can.
    """

    steps: list[Callable[[], None]] = field(default_factory=list[Callable[[], None]])
    memory: list[Any] = field(default_factory=list[Any])


class HostDriver:
    """The functions of the driver, as C calls them.

    captured: launches of a graph that is being recorded, instead of running them.
    """

    def __init__(self, bind: Bind, compute_capability: tuple[int, int]) -> None:
        self.bind = bind
        self.compute_capability = compute_capability
        self._errors = threading.local()
        self.captured: list[Callable[[], None]] | None = None
        self._message = ctypes.create_string_buffer(b"no error")
        self._handles = count(1)
        self._programs: dict[int, bytes] = {}
        self._kernels: dict[int, tuple[bytes, str]] = {}
        self._memory: dict[int, Any] = {}
        self._events: dict[int, float] = {}
        self._graphs: dict[int, Graph] = {}
        self._functions = self._make_functions()
        # C keeps pointers to these and calls some of them while the process ends.
        for function in (*self._functions.values(), self):
            ctypes.pythonapi.Py_IncRef(ctypes.py_object(function))
        lookup = self._functions["cuGetProcAddress"]
        self._lookup = c_void_p(ctypes.cast(lookup, c_void_p).value)

    @property
    def error(self) -> BaseException | None:
        """What a launch of this thread raised last; whoever takes it sets None."""
        return getattr(self._errors, "last", None)

    @error.setter
    def error(self, value: BaseException | None) -> None:
        self._errors.last = value

    @property
    def lookup_address(self) -> int:
        """The address of a pointer to cuGetProcAddress."""
        return ctypes.addressof(self._lookup)

    def allocation(self, address: int) -> tuple[int, int] | None:
        """First and last byte + 1 of the memory that the driver gave out at `address`."""
        for first, memory in self._memory.items():
            if first <= address < first + len(memory):
                return first, first + len(memory)
        return None

    # Devices, contexts, streams

    def _find(self, name: bytes, found: Any, *_rest: object) -> int:
        function = self._functions.get(name.decode()) or self._functions["unknown"]
        found[0] = ctypes.cast(function, c_void_p).value
        return SUCCESS

    def _device_attribute(self, value: Any, attribute: int, _device: int) -> int:
        axis = attribute - MAX_GRID_DIM_X
        if 0 <= axis < len(GRID_LIMITS):
            value[0] = GRID_LIMITS[axis]
        elif attribute in (CC_MAJOR, CC_MINOR):
            value[0] = self.compute_capability[attribute - CC_MAJOR]
        else:
            value[0] = ATTRIBUTES.get(attribute, 0)
        return SUCCESS

    def _device(self, device: Any, ordinal: int) -> int:
        if ordinal != DEVICE:
            return INVALID_VALUE
        device[0] = DEVICE
        return SUCCESS

    def _pointer_attribute(self, data: int, attribute: int, _pointer: int) -> int:
        if attribute != POINTER_CONTEXT:
            return NOT_SUPPORTED
        c_void_p.from_address(data).value = CONTEXT
        return SUCCESS

    def _error_text(self, result: int, text: Any) -> int:
        if result != LAUNCH_FAILED:
            text_of = {NO_BINARY: "code of a GPU cannot run on the host"}
            message = text_of.get(result, f"CUDA error {result}")
            self._message = ctypes.create_string_buffer(message.encode())
        text[0] = ctypes.addressof(self._message)
        return SUCCESS

    # Memory

    def _allocate(self, pointer: Any, size: int) -> int:
        memory = (ctypes.c_uint8 * max(size, 1))()
        address = ctypes.addressof(memory)
        self._memory[address] = memory
        pointer[0] = address
        return SUCCESS

    def _free(self, pointer: int | None) -> int:
        self._memory.pop(pointer or 0, None)
        return SUCCESS

    def _copy(self, target: int, source: int, size: int, _stream: int) -> int:
        ctypes.memmove(target, source, size)
        return SUCCESS

    # Programs

    def _load_library(self, library: Any, code: int, *_options: object) -> int:
        key = ctypes.string_at(code)
        if not key.startswith(KEY):
            return NO_BINARY
        handle = next(self._handles)
        self._programs[handle] = key
        library[0] = handle
        return SUCCESS

    def _library_kernel(self, kernel: Any, library: int, name: bytes) -> int:
        handle = next(self._handles)
        self._kernels[handle] = self._programs[library], name.decode()
        kernel[0] = handle
        return SUCCESS

    def _function(self, function: Any, kernel: int) -> int:
        function[0] = kernel
        return SUCCESS

    def _bound(
        self, function: int, grid: tuple[int, int, int], parameters: int
    ) -> Callable[[], None]:
        key, symbol = self._kernels[function]
        return self.bind(key, symbol, grid, parameters)

    def _launch(self, config: Any, function: int, parameters: int, _extra: int) -> int:
        x, y, z = config[0].grid
        if any(n > limit for n, limit in zip((x, y, z), GRID_LIMITS, strict=True)):
            return INVALID_VALUE

        def step() -> None:
            bound = self._bound(function, (x, y, z), parameters)
            if self.captured is None:
                bound()
            else:
                self.captured.append(bound)

        return self._guarded(step)

    def _guarded(self, step: Callable[[], None]) -> int:
        """Run; an exception cannot pass through C, so it waits in `error`."""
        try:
            step()
        except BaseException as error:
            self.error = error
            self._message = ctypes.create_string_buffer(str(error).encode())
            return LAUNCH_FAILED
        return SUCCESS

    def _is_capturing(self, _stream: int, status: Any) -> int:
        status[0] = int(self.captured is not None)
        return SUCCESS

    # Events and graphs

    def _event(self, event: Any, _flags: int) -> int:
        event[0] = next(self._handles)
        return SUCCESS

    def _record(self, event: int, _stream: int) -> int:
        self._events[event] = time.perf_counter()
        return SUCCESS

    def _elapsed(self, milliseconds: Any, start: int, end: int) -> int:
        milliseconds[0] = 1e3 * (self._events.get(end, 0.0) - self._events.get(start, 0.0))
        return SUCCESS

    def _new_graph(self, graph: Any, _flags: int) -> int:
        handle = next(self._handles)
        self._graphs[handle] = Graph()
        graph[0] = handle
        return SUCCESS

    def _add(self, node: Any, graph: int, step: Callable[[], None]) -> int:
        self._graphs[graph].steps.append(step)
        node[0] = next(self._handles)
        return SUCCESS

    def _add_alloc(self, node: Any, graph: int, _before: int, _count: int, what: Any) -> int:
        place = c_uint64()
        self._allocate(ctypes.pointer(place), what[0].size)
        what[0].pointer = place.value
        self._graphs[graph].memory.append(self._memory[place.value])
        return self._add(node, graph, lambda: None)

    def _add_memset(
        self, node: Any, graph: int, _before: int, _count: int, what: Any, _context: int
    ) -> int:
        found = what[0]
        target, value, size = found.destination, found.value, found.width * found.element_size
        if found.element_size != 1 or found.height != 1:
            return NOT_SUPPORTED
        return self._add(node, graph, lambda: void(ctypes.memset(target, value, size)))

    def _add_event(self, node: Any, graph: int, _before: int, _count: int, event: int) -> int:
        return self._add(node, graph, lambda: void(self._record(event, 0)))

    def _add_kernel(self, node: Any, graph: int, _before: int, _count: int, what: Any) -> int:
        found = what[0]
        x, y, z = found.grid
        step = self._bound(found.kernel or found.function, (x, y, z), found.parameters)
        return self._add(node, graph, step)

    def _add_free(self, node: Any, graph: int, _before: int, _count: int, pointer: int) -> int:
        return self._add(node, graph, lambda: void(self._free(pointer)))

    def _instantiate(self, executable: Any, graph: int, _flags: int) -> int:
        handle, found = next(self._handles), self._graphs[graph]
        self._graphs[handle] = Graph(list(found.steps), list(found.memory))
        executable[0] = handle
        return SUCCESS

    def _drop_graph(self, graph: int) -> int:
        self._graphs.pop(graph, None)
        return SUCCESS

    def _run_graph(self, graph: int, _stream: int) -> int:
        def run() -> None:
            for step in self._graphs[graph].steps:
                step()

        return self._guarded(run)

    # The table

    def _make_functions(self) -> dict[str, Any]:
        """By name, the callable objects of C. What is not here fails with NOT_SUPPORTED."""
        handle, out, text = c_void_p, POINTER(c_void_p), c_char_p
        number, integer = POINTER(c_int), c_int

        def done(*_arguments: object) -> int:
            return 0  # No name of the module: C calls this when they are gone.

        def put(value: int) -> Callable[..., int]:
            def function(place: Any, *_arguments: object) -> int:
                place[0] = value
                return SUCCESS

            return function

        def put_last(value: int) -> Callable[..., int]:
            def function(*arguments: Any) -> int:
                arguments[-1][0] = value
                return SUCCESS

            return function

        table: dict[str, tuple[Callable[..., int], tuple[Any, ...]]] = {
            "unknown": (lambda *_: NOT_SUPPORTED, ()),
            "cuGetProcAddress": (self._find, (text, out, integer, c_uint64, handle)),
            "cuInit": (done, (c_uint,)),
            "cuDriverGetVersion": (put(VERSION), (number,)),
            "cuGetErrorString": (self._error_text, (integer, out)),
            "cuDeviceGetCount": (put(1), (number,)),
            "cuDeviceGet": (self._device, (number, integer)),
            "cuDeviceGetAttribute": (self._device_attribute, (number, integer, integer)),
            "cuDevicePrimaryCtxRetain": (put(CONTEXT), (out, integer)),
            "cuCtxGetCurrent": (put(CONTEXT), (out,)),
            "cuCtxPushCurrent": (done, (handle,)),
            "cuCtxPopCurrent": (put(CONTEXT), (out,)),
            "cuCtxSetCurrent": (done, (handle,)),
            "cuCtxGetDevice": (put(DEVICE), (number, handle)),
            "cuCtxGetId": (put_last(1), (handle, POINTER(c_uint64))),
            "cuCtxSynchronize": (done, ()),
            "cuPointerGetAttribute": (self._pointer_attribute, (handle, integer, c_uint64)),
            "cuMemAlloc": (self._allocate, (POINTER(c_uint64), c_size_t)),
            "cuMemAllocHost": (self._allocate, (out, c_size_t)),
            "cuMemFree": (self._free, (c_uint64,)),
            "cuMemFreeHost": (self._free, (handle,)),
            "cuMemcpyHtoDAsync": (self._copy, (c_uint64, handle, c_size_t, handle)),
            "cuStreamCreate": (put(1), (out, c_uint)),
            "cuStreamDestroy": (done, (handle,)),
            "cuStreamGetCtx": (put_last(CONTEXT), (handle, out)),
            "cuStreamGetId": (put_last(1), (handle, POINTER(c_uint64))),
            "cuStreamIsCapturing": (self._is_capturing, (handle, number)),
            "cuStreamSynchronize": (done, (handle,)),
            "cuStreamWaitEvent": (done, (handle, handle, c_uint)),
            "cuEventCreate": (self._event, (out, c_uint)),
            "cuEventDestroy": (done, (handle,)),
            "cuEventQuery": (done, (handle,)),
            "cuEventRecord": (self._record, (handle, handle)),
            "cuEventElapsedTime": (self._elapsed, (POINTER(ctypes.c_float), handle, handle)),
            "cuLibraryLoadData": (
                self._load_library,
                (out, handle, handle, handle, c_uint, handle, handle, c_uint),
            ),
            "cuLibraryUnload": (done, (handle,)),
            "cuLibraryGetKernel": (self._library_kernel, (out, handle, text)),
            "cuKernelGetFunction": (self._function, (out, handle)),
            "cuKernelGetAttribute": (put(0), (number, integer, handle, integer)),
            "cuKernelSetAttribute": (done, (integer, integer, handle, integer)),
            "cuLaunchKernelEx": (self._launch, (POINTER(LaunchConfig), handle, handle, handle)),
            "cuGraphCreate": (self._new_graph, (out, c_uint)),
            "cuGraphDestroy": (self._drop_graph, (handle,)),
            "cuGraphAddKernelNode": (
                self._add_kernel,
                (out, handle, handle, c_size_t, POINTER(KernelNode)),
            ),
            "cuGraphAddMemsetNode": (
                self._add_memset,
                (out, handle, handle, c_size_t, POINTER(MemsetNode), handle),
            ),
            "cuGraphAddMemAllocNode": (
                self._add_alloc,
                (out, handle, handle, c_size_t, POINTER(AllocNode)),
            ),
            "cuGraphAddMemFreeNode": (
                self._add_free,
                (out, handle, handle, c_size_t, c_uint64),
            ),
            "cuGraphAddEventRecordNode": (
                self._add_event,
                (out, handle, handle, c_size_t, handle),
            ),
            "cuGraphInstantiateWithFlags": (self._instantiate, (out, handle, c_uint64)),
            "cuGraphExecDestroy": (self._drop_graph, (handle,)),
            "cuGraphLaunch": (self._run_graph, (handle, handle)),
        }
        return {
            name: ctypes.CFUNCTYPE(c_int, *types)(function)
            for name, (function, types) in table.items()
        }


def void(_result: object) -> None:
    """Drop a result."""
