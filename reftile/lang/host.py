"""The arrays that a caller passes: NumPy's, torch's on the CPU, anything that speaks DLPack.

Nothing is copied: what a kernel stores is in the caller's memory.
"""

from __future__ import annotations

from dataclasses import dataclass
from importlib import import_module
from typing import Any, cast

import numpy as np
from numpy.typing import NDArray

from reftile.ir.diagnostics import fail
from reftile.lang.dtypes import DType, as_dtype

AnyArray = NDArray[Any]


@dataclass(frozen=True, slots=True, eq=False)
class HostArray:
    """An array of the caller's. Strides are in elements; addresses in bytes.

    data: the memory as NumPy sees it, in a dtype of NumPy or ml_dtypes.
    first, end: the bytes that its elements span.
    """

    data: AnyArray
    dtype: DType
    shape: tuple[int, ...]
    strides: tuple[int, ...]
    first: int
    end: int

    @property
    def alignment(self) -> int:
        """16 if the first element lies at a multiple of 16 bytes, also within its allocation."""
        return (
            16 if self.first % 16 == 0 and (self.first - _root_address(self.data)) % 16 == 0 else 1
        )


def _root_address(array: AnyArray) -> int:
    root = array
    while isinstance(root.base, np.ndarray):
        root = root.base
    return int(root.__array_interface__["data"][0])


def looks_like_array(value: object) -> bool:
    """True for anything that `host_array` may take."""
    if isinstance(value, np.ndarray):
        return True
    if isinstance(value, np.generic):
        return False
    return (
        _is_torch(value)
        or hasattr(value, "__dlpack__")
        or hasattr(value, "__array_interface__")
        or hasattr(value, "__cuda_array_interface__")
    )


def _is_torch(value: object) -> bool:
    return type(value).__module__.split(".")[0] == "torch" and hasattr(value, "data_ptr")


def host_array(value: object, name: str) -> HostArray:
    """See the memory of an argument as an array.

    Raises:
        ReftileError: it lies on a device, has a dtype that tiles do not have, or strides that views
            cannot have.
    """
    data = _as_numpy(value, name)
    dtype = as_dtype(data.dtype)
    if not data.dtype.isnative:
        raise fail(
            "lang.argument.dtype",
            f"`{name}` has the bytes of its elements in the other order ({data.dtype.str})",
            hint=f"convert it before the launch: {name}.astype({name}.dtype.newbyteorder('='))",
        )
    if dtype is None:
        raise fail(
            "lang.argument.dtype",
            f"`{name}` is an array of {data.dtype}, and tiles have no such elements",
            hint="convert it before the launch",
        )
    if dtype.element.elements_per_unit > 1:
        raise fail(
            "lang.argument.dtype",
            f"`{name}` has one element of {data.dtype} in each byte, and memory holds two",
            hint="pack two into a byte, pass an array of uint8, and call ct.unpack_from_bytes",
        )
    item = data.dtype.itemsize
    if any(s % item for s in data.strides):
        raise fail(
            "lang.argument.strides",
            f"`{name}` has strides of {data.strides} bytes, no whole elements of {item} bytes",
        )
    strides = tuple(
        1 if s <= 0 and (extent <= 1 or not data.size) else s // item
        for extent, s in zip(data.shape, data.strides, strict=True)
    )
    if any(s < 0 for s in strides) or any(
        s == 0 and e > 1 for s, e in zip(strides, data.shape, strict=True)
    ):
        raise fail(
            "lang.argument.strides",
            f"`{name}` has the strides {strides}, and a view's strides are positive",
            hint="pass a copy: numpy.ascontiguousarray(x) or x.contiguous()",
        )
    first = int(data.__array_interface__["data"][0])
    last = sum((e - 1) * s for e, s in zip(data.shape, strides, strict=True)) if data.size else -1
    return HostArray(data, dtype, data.shape, strides, first, first + (last + 1) * item)


def _as_numpy(value: object, name: str) -> AnyArray:
    if isinstance(value, np.ma.MaskedArray):
        raise fail(
            "lang.argument.array",
            f"`{name}` is a masked array, and a kernel would not see its mask",
            hint="pass x.filled(value), or the mask as an array of its own",
        )
    if isinstance(value, np.ndarray):
        return cast("AnyArray", value)
    if _is_torch(value):
        return _from_torch(cast("Any", value), name)
    if hasattr(value, "__cuda_array_interface__"):
        raise _on_device(name)
    try:
        if hasattr(value, "__dlpack__"):
            return cast("AnyArray", np.from_dlpack(cast("Any", value)))
        return np.asarray(cast("Any", value))
    except (BufferError, RuntimeError, TypeError, ValueError) as error:
        raise fail(
            "lang.argument.array",
            f"`{name}` ({type(value).__name__}) is no array that can be used in place: {error}",
        ) from None


def _on_device(name: str) -> Exception:
    return fail(
        "lang.argument.device",
        f"`{name}` lies on a device, and this backend runs on the CPU",
        hint="pass x.cpu(), or choose a backend of the device",
    )


def _from_torch(tensor: Any, name: str) -> AnyArray:
    if tensor.device.type != "cpu":
        raise _on_device(name)
    if tensor.requires_grad:
        # What autograd watches may be read; torch too refuses to write into it.
        data = _from_torch(tensor.detach(), name)
        data.flags.writeable = False
        return data
    kind = str(tensor.dtype).removeprefix("torch.")
    try:
        return cast("AnyArray", tensor.numpy())
    except (TypeError, RuntimeError) as error:
        reason = str(error).partition("\n")[0]
    # NumPy has no such dtype: look at the bits, and give them their name back.
    ml_dtypes, torch = import_module("ml_dtypes"), import_module("torch")

    named = getattr(ml_dtypes, kind, None)
    if named is None and hasattr(np, kind):
        raise fail(
            "lang.argument.array",
            f"`{name}` is a tensor that cannot be used in place: {reason}",
            hint="pass a dense tensor with memory of its own: x.to_dense(), x.resolve_neg()",
        )
    if named is None:
        raise fail(
            "lang.argument.dtype",
            f"`{name}` is a tensor of {kind}, and tiles have no such elements",
        )
    units = {1: torch.uint8, 2: torch.int16, 4: torch.int32}[tensor.element_size()]
    return cast("AnyArray", tensor.view(units).numpy().view(named))


def overlap_groups(arrays: list[HostArray]) -> list[int | None]:
    """For each array, the number of the group that it shares memory with, or None."""
    groups: list[int | None] = [None] * len(arrays)
    order = sorted(range(len(arrays)), key=lambda i: arrays[i].first)
    count, reach, previous = 0, -1, -1
    for i in order:
        array = arrays[i]
        if array.end <= array.first:
            continue
        if previous >= 0 and array.first < reach:
            if groups[previous] is None:
                groups[previous], count = count, count + 1
            groups[i] = groups[previous]
        reach, previous = max(reach, array.end), i
    return groups
