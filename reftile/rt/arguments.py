"""Device arrays of any library as pointer, extents and strides.

torch, CuPy, numba, JAX and others are read through `__cuda_array_interface__` or DLPack; torch by
its own attributes, which is several times faster. NumPy arrays live on the host and are refused
here: copying them is the caller's decision, and he says so.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from reftile.ir.diagnostics import ReftileError, fail

_DLPACK_CUDA = 2
_TORCH_DTYPES = {
    "torch.float64": "f64",
    "torch.float32": "f32",
    "torch.float16": "f16",
    "torch.bfloat16": "bf16",
    "torch.float8_e4m3fn": "f8e4m3",
    "torch.float8_e5m2": "f8e5m2",
    "torch.int64": "i64",
    "torch.int32": "i32",
    "torch.int16": "i16",
    "torch.int8": "i8",
    "torch.uint8": "i8",
    "torch.bool": "i1",
}
_TYPESTR_DTYPES = {
    "f8": "f64",
    "f4": "f32",
    "f2": "f16",
    "i8": "i64",
    "u8": "i64",
    "i4": "i32",
    "u4": "i32",
    "i2": "i16",
    "u2": "i16",
    "i1": "i8",
    "u1": "i8",
    "b1": "i1",
}


@dataclass(frozen=True, slots=True)
class DeviceArray:
    """Memory on a device.

    strides: elements. dtype: our name, or "" if the library has no such name.
    owner: the object it was read from; it must outlive every use of the address.
    """

    address: int
    dtype: str
    shape: tuple[int, ...]
    strides: tuple[int, ...]
    owner: Any


def is_torch(value: object) -> bool:
    """True for a torch tensor, without importing torch."""
    return type(value).__module__.partition(".")[0] == "torch" and hasattr(value, "data_ptr")


def read_array(value: Any, name: str = "the argument") -> DeviceArray:
    """Describe an array that lives on a device.

    Raises:
        ReftileError: `cuda.host_array` for memory of the host, `cuda.argument` for anything else.
    """
    if is_torch(value):
        if not value.is_cuda:
            raise host_array(name, "a torch tensor on the CPU", ".cuda() moves it")
        dtype = _TORCH_DTYPES.get(str(value.dtype), "")
        return DeviceArray(
            value.data_ptr(), dtype, tuple(value.shape), tuple(value.stride()), value
        )
    interface = getattr(value, "__cuda_array_interface__", None)
    if interface is not None:
        return _from_interface(value, interface)
    if hasattr(value, "__array_interface__"):
        raise host_array(name, "a NumPy array", "copy it to the device first")
    if hasattr(value, "__dlpack__"):
        return _from_dlpack(value, name)
    raise fail("cuda.argument", f"{name} is no device array: {type(value).__name__}")


def host_array(name: str, what: str, how: str) -> ReftileError:
    """The error for memory of the host where the kernel needs the device's."""
    return fail("cuda.host_array", f"{name} is {what}, and the kernel runs on a GPU", hint=how)


def _from_interface(value: Any, interface: dict[str, Any]) -> DeviceArray:
    shape = tuple(interface["shape"])
    code = str(interface["typestr"])[1:]
    item_bytes = int(code[1:])
    strides = interface.get("strides")
    if strides is None:
        counted: list[int] = []
        size = 1
        for extent in reversed(shape):
            counted.insert(0, size)
            size *= extent
        elements = tuple(counted)
    else:
        elements = tuple(int(s) // item_bytes for s in strides)
    dtype = _TYPESTR_DTYPES.get(code, "")
    return DeviceArray(int(interface["data"][0]), dtype, shape, elements, value)


def _from_dlpack(value: Any, name: str) -> DeviceArray:
    """Through torch or CuPy if one is loaded; reading the capsule would copy their work."""
    device = value.__dlpack_device__()
    if device[0] != _DLPACK_CUDA:
        raise host_array(name, "an array of another device", "move it to the NVIDIA device first")
    import sys

    for library in ("torch", "cupy"):
        module = sys.modules.get(library)
        if module is not None:
            return read_array(module.from_dlpack(value), name)
    raise fail(
        "cuda.argument",
        f"{name} is known through DLPack only",
        hint="import torch or cupy, which read it, or give it __cuda_array_interface__",
    )
