"""Streams and events of any library, and those of ours for timing.

A stream is given as an integer (its handle), as an object with `__cuda_stream__` (CUDA's common
protocol), or as a stream of torch, CuPy or numba.
"""

from __future__ import annotations

import sys
from typing import Any

from reftile.ir.diagnostics import fail
from reftile.rt import devices, driver

DEFAULT_STREAM = 0
"""The handle of the stream that all libraries share; it waits for the others, and they for it."""


def read_stream(stream: Any) -> int:
    """The handle of a stream.

    Raises:
        ReftileError: `cuda.stream`: it is no stream.
    """
    if stream is None:
        return DEFAULT_STREAM
    if isinstance(stream, int) and not isinstance(stream, bool) and stream >= 0:
        return int(stream)
    protocol = getattr(stream, "__cuda_stream__", None)
    if protocol is not None:
        found: Any = protocol() if callable(protocol) else protocol
        return int(found[1])
    for name in ("cuda_stream", "ptr"):  # torch, CuPy
        handle = getattr(stream, name, None)
        if isinstance(handle, int):
            return handle
    handle = getattr(stream, "handle", None)  # numba
    value = getattr(handle, "value", handle)
    if handle is not None and (value is None or isinstance(value, int)):
        return value or DEFAULT_STREAM
    raise fail(
        "cuda.stream",
        f"{type(stream).__name__} is no stream",
        hint="give a handle, a stream of torch, CuPy or numba, or one with __cuda_stream__",
    )


def current_stream(library: str, device: int) -> int:
    """The stream that a library queues its work on, if it is loaded; else the default one."""
    module = sys.modules.get(library)
    if module is None:
        return DEFAULT_STREAM
    if library == "torch":
        return int(module._C._cuda_getCurrentRawStream(device))
    if library == "cupy":
        return int(module.cuda.get_current_stream().ptr)
    return DEFAULT_STREAM


def is_capturing(stream: int) -> bool:
    """True while a graph is captured on a stream."""
    bindings = driver.bindings()
    found = driver.call("looking for a capture", "cuStreamIsCapturing", bindings.CUstream(stream))
    return found != bindings.CUstreamCaptureStatus.CU_STREAM_CAPTURE_STATUS_NONE


class Event:
    """A point in a stream: wait for it, or measure from one to another of the same device.

    The driver ties an event to the context it was made in, so it is made for the stream that it is
    recorded on, whichever device is current.
    """

    def __init__(self) -> None:
        self._handle: Any = None
        self._context = 0
        self._bindings = driver.bindings()

    @property
    def handle(self) -> Any:
        """The driver's event.

        Raises:
            ReftileError: `cuda.event`: it was never recorded.
        """
        if self._handle is None:
            raise fail("cuda.event", "the event was never recorded", hint="call .record(stream)")
        return self._handle

    def record(self, stream: Any = None) -> Event:
        """Put the event behind all that is queued on the stream, and return it."""
        number = read_stream(stream)
        context = devices.context_of_stream(number)
        handle = driver.bindings().CUstream(number)
        with devices.in_context(context):
            if self._handle is None or self._context != int(context):
                self._destroy()
                self._handle = driver.call("making an event", "cuEventCreate", 0)
                self._context = int(context)
            driver.call("recording an event", "cuEventRecord", self._handle, handle)
        return self

    def hold(self, stream: Any) -> None:
        """Let what is queued on another stream from now on wait for the event."""
        handle = driver.bindings().CUstream(read_stream(stream))
        driver.call("waiting for an event", "cuStreamWaitEvent", handle, self.handle, 0)

    def synchronize(self) -> None:
        """Wait for the event.

        Raises:
            ReftileError: something queued before it failed.
        """
        driver.call("waiting for an event", "cuEventSynchronize", self.handle)

    def milliseconds_since(self, start: Event) -> float:
        """The time from another event to this one; both have happened."""
        found = driver.call("measuring time", "cuEventElapsedTime", start.handle, self.handle)
        return float(found)

    def _destroy(self) -> None:
        if self._handle is not None:
            self._bindings.cuEventDestroy(self._handle)
            self._handle = None

    def __del__(self) -> None:
        if not sys.is_finalizing():
            self._destroy()
