"""NumPy arrays for a kernel on a device: copied there before a launch, and back after it.

What overlaps on the host is one piece on the device too, so that a kernel sees the same aliases.
Gaps between the elements of a strided array are copied with it.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, cast

import numpy as np
from numpy.lib.array_utils import byte_bounds
from numpy.typing import NDArray

from reftile.ir.diagnostics import fail
from reftile.ir.dtypes import DTYPES, numpy_dtype
from reftile.lower.host import ArrayArgument, HostPlan
from reftile.rt import driver
from reftile.rt.arguments import DeviceArray

_ALIGNMENT = 256
"""Device allocations start at a multiple of this many bytes (CUDA programming guide)."""


class HostArrays:
    """The copies of one launch: `with HostArrays(plan, args, stream, device) as copies`.

    arguments: the launch's arguments, with its copy for each NumPy array.
    copied: bytes copied to the device, by argument.
    """

    def __init__(self, plan: HostPlan, args: Sequence[Any], stream: int, device: int) -> None:
        self.arguments = list(args)
        self.copied: dict[str, int] = {}
        self._stream, self._device = stream, device
        self._pieces: list[tuple[int, int, int]] = []
        self._found: list[tuple[int, NDArray[Any], ArrayArgument]] = []
        described = {a.name: a for a in plan.arrays}
        for i, (name, value) in enumerate(zip(plan.arguments, args, strict=True)):
            if isinstance(value, np.ndarray):
                array = cast("NDArray[Any]", value)
                known = described.get(name)
                if known is None:
                    raise fail("cuda.argument", f"`{name}` takes a number, found an array")
                _check_dtype(name, array, known.dtype)
                if known.written and not array.flags.writeable:
                    raise fail(
                        "cuda.read_only",
                        f"`{name}` may only be read, and the kernel writes to it",
                        hint="give a copy",
                    )
                self._found.append((i, array, known))
                self.copied[name] = array.nbytes

    def __enter__(self) -> HostArrays:
        """Copy to the device, in the order of the stream."""
        try:
            for low, high in _merged([byte_bounds(a) for _, a, _ in self._found if a.size]):
                size = high - low + _ALIGNMENT
                doing = f"allocating {size} bytes for arrays of the host"
                start = int(driver.call(doing, "cuMemAlloc", size))
                self._pieces.append((low, high, start))
                self._copy("cuMemcpyHtoDAsync", start + low % _ALIGNMENT, low, high - low)
        except BaseException:
            self._free()
            raise
        for i, array, known in self._found:
            address, behind = self._place(array)
            self.arguments[i] = DeviceArray(
                address,
                known.dtype,
                array.shape,
                tuple(s // array.itemsize for s in array.strides),
                array,
                self._device,
                bytes_behind=behind,
            )
        return self

    def _place(self, array: NDArray[Any]) -> tuple[int, int]:
        """Where the copy begins, and how many bytes lie from there on."""
        if not array.size:
            return 0, 0
        data = array.__array_interface__["data"][0]
        for low, high, start in self._pieces:
            if low <= data < high:
                return start + low % _ALIGNMENT + data - low, high - data
        raise AssertionError("every array lies in a piece")

    def bring_back(self) -> None:
        """Copy what the kernel may have written back, and wait for it."""
        written = [byte_bounds(a) for _, a, known in self._found if known.written and a.size]
        for low, high in _merged(written):
            for first, last, start in self._pieces:
                if first <= low < last:
                    source = start + first % _ALIGNMENT + low - first
                    self._copy("cuMemcpyDtoHAsync", low, source, high - low)
        driver.call("waiting for the kernel", "cuStreamSynchronize", self._handle())

    def __exit__(self, *_: object) -> None:
        """Give the device's memory back."""
        self._free()

    def _copy(self, function: str, target: int, source: int, size: int) -> None:
        driver.call(f"copying {size} bytes", function, target, source, size, self._handle())

    def _handle(self) -> Any:
        return driver.bindings().CUstream(self._stream)

    def _free(self) -> None:
        for _, _, start in self._pieces:
            # After a kernel's failure this fails too, and that is what the user wants to hear of.
            driver.bindings().cuMemFree(start)
        self._pieces.clear()


def _check_dtype(name: str, array: NDArray[Any], wanted: str) -> None:
    dtype = DTYPES[wanted]
    if dtype.elements_per_unit > 1:
        raise fail("cuda.dtype", f"`{name}`: {wanted} lies packed on a device; copy it there first")
    allowed = numpy_dtype(dtype)
    same_width = array.dtype.kind in "iu" and allowed.kind in "iu"
    if array.dtype != allowed and not (same_width and array.dtype.itemsize == allowed.itemsize):
        raise fail(
            "cuda.dtype",
            f"`{name}` holds {array.dtype}, and the kernel reads it as {wanted}",
            hint="convert it, or view it as the other type",
        )


def _merged(bounds: Sequence[tuple[int, int]]) -> list[tuple[int, int]]:
    """Join what overlaps."""
    found: list[tuple[int, int]] = []
    for low, high in sorted(bounds):
        if found and low < found[-1][1]:
            found[-1] = (found[-1][0], max(high, found[-1][1]))
        else:
            found.append((low, high))
    return found
