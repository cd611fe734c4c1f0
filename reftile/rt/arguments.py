"""Device arrays of any library as pointer, extents and strides.

torch is read by its own attributes, which is several times faster; CuPy, numba and others by
`__cuda_array_interface__`; JAX and the rest by DLPack. NumPy arrays live on the host and are
refused here: copying them is the caller's decision (reftile.rt.host_arrays).
"""

from __future__ import annotations

import ctypes
from dataclasses import dataclass
from typing import Any

from reftile.ir.diagnostics import ReftileError, fail
from reftile.ir.dtypes import DTYPES

_TORCH_DTYPES = {
    "torch.float64": "f64",
    "torch.float32": "f32",
    "torch.float16": "f16",
    "torch.bfloat16": "bf16",
    "torch.float8_e4m3fn": "f8e4m3",
    "torch.float8_e5m2": "f8e5m2",
    "torch.float8_e8m0fnu": "f8e8m0",
    "torch.int64": "i64",
    "torch.uint64": "i64",
    "torch.int32": "i32",
    "torch.uint32": "i32",
    "torch.int16": "i16",
    "torch.uint16": "i16",
    "torch.int8": "i8",
    "torch.uint8": "i8",
    "torch.bool": "i1",
}
TORCH_NAMES = {
    dtype: tuple(n.removeprefix("torch.") for n, d in _TORCH_DTYPES.items() if d == dtype)
    for dtype in _TORCH_DTYPES.values()
}
"""What torch calls each of our element types: several names for integers."""
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
    # Elements without a type, as those of ml_dtypes are shown.
    "V2": "i16",
    "V1": "i8",
}
# dlpack.h, DLDeviceType and DLDataTypeCode.
_DLPACK_CUDA, _DLPACK_CUDA_MANAGED = 2, 13
_DLPACK_KINDS = {0: "i", 1: "i", 2: "f", 4: "bf"}
_DLPACK_NAMES = {
    6: "i1",
    10: "f8e4m3",
    11: "f8e4m3fnuz",
    12: "f8e5m2",
    13: "f8e5m2fnuz",
    14: "f8e8m0",
}
_DLPACK_READ_ONLY = 1


@dataclass(frozen=True, slots=True)
class DeviceArray:
    """Memory on a device.

    strides: elements. dtype: our name, or the library's for what we have none for.
    owner: the object it was read from; it must outlive every use of the address.
    device: its number, or None if the library does not say.
    bytes_behind: how much memory lies from the address on, or None if the library does not say.
    """

    address: int
    dtype: str
    shape: tuple[int, ...]
    strides: tuple[int, ...]
    owner: Any
    device: int | None = None
    read_only: bool = False
    bytes_behind: int | None = None


def is_torch(value: object) -> bool:
    """True for a torch tensor, without importing torch."""
    kind = type(value)
    return hasattr(kind, "data_ptr") and any(
        base.__module__.partition(".")[0] == "torch" for base in kind.__mro__
    )


def read_array(value: Any, name: str = "the argument") -> DeviceArray:
    """Describe an array that lives on a device.

    Raises:
        ReftileError: `cuda.host_array` for memory of the host, `cuda.argument` for anything else.
    """
    if isinstance(value, DeviceArray):
        return value
    try:
        if is_torch(value):
            return _from_torch(value, name)
        interface = getattr(value, "__cuda_array_interface__", None)
        if interface is not None:
            return _from_interface(value, interface, name)
        if hasattr(value, "__array_interface__"):
            raise host_array(name, "a NumPy array", "copy it to the device first")
        if hasattr(value, "__dlpack__"):
            return _from_dlpack(value, name)
    except ReftileError:
        raise
    except Exception as error:  # Other libraries' code: whatever it raises.
        what = f"{type(error).__name__}: {error}"
        raise fail("cuda.argument", f"{name} cannot be read as a device array: {what}") from None
    raise fail(
        "cuda.argument",
        f"{name} is no device array: {type(value).__name__}",
        hint="arrays of torch, CuPy, numba and JAX are, and all with __cuda_array_interface__ or "
        "__dlpack__",
    )


def check_dtype(array: DeviceArray, wanted: str, name: str) -> None:
    """Refuse an array of other elements than the kernel reads.

    Libraries that have no name for a narrow float hold it as integers of its width.

    Raises:
        ReftileError: `cuda.dtype`.
    """
    found = array.dtype
    alike = {found, "tf32"} if found == "f32" else {found}
    if found in ("i8", "i16") and not is_torch(array.owner):
        alike |= {"bf16"} if found == "i16" else {n for n in DTYPES if n.startswith("f8")}
    if wanted not in alike:
        raise fail(
            "cuda.dtype",
            f"{name} holds {found}, and the kernel reads it as {wanted}",
            hint="convert it, or view it as the other type",
        )


def host_array(name: str, what: str, how: str) -> ReftileError:
    """The error for memory of the host where the kernel needs the device's."""
    return fail("cuda.host_array", f"{name} is {what}, and the kernel runs on a GPU", hint=how)


def _from_torch(value: Any, name: str) -> DeviceArray:
    if value.device.type != "cuda":
        where = "the CPU" if value.device.type == "cpu" else str(value.device)
        raise host_array(name, f"a torch tensor on {where}", ".cuda() moves it")
    storage = value.untyped_storage()
    return DeviceArray(
        value.data_ptr(),
        _TORCH_DTYPES.get(str(value.dtype), str(value.dtype)),
        tuple(value.shape),
        tuple(value.stride()),
        value,
        value.device.index,
        bytes_behind=storage.nbytes() - value.storage_offset() * value.element_size(),
    )


def _dense_strides(shape: tuple[int, ...]) -> tuple[int, ...]:
    found: list[int] = []
    size = 1
    for extent in reversed(shape):
        found.insert(0, size)
        size *= extent
    return tuple(found)


def _from_interface(value: Any, interface: dict[str, Any], name: str) -> DeviceArray:
    shape = tuple(interface["shape"])
    typestr = str(interface["typestr"])
    named = str(getattr(value, "dtype", typestr))
    code = typestr[1:]
    if typestr[0] == ">":
        raise fail("cuda.argument", f"{name} has its bytes in the order that GPUs do not read")
    if not code[1:].isdecimal():
        raise fail("cuda.dtype", f"{name} holds {named}, which no kernel reads")
    item_bytes = int(code[1:])
    strides = interface.get("strides")
    if strides is None:
        elements = _dense_strides(shape)
    else:
        if any(int(s) % item_bytes for s in strides):
            raise fail("cuda.argument", f"{name} has a stride of part of an element: {strides}")
        elements = tuple(int(s) // item_bytes for s in strides)
    address, read_only = interface["data"]
    dtype = _TYPESTR_DTYPES.get(code, named)
    # Libraries without a code for bfloat16 and the narrow floats name the dtype elsewhere.
    dtype = {"bfloat16": "bf16", "float8_e4m3fn": "f8e4m3", "float8_e5m2": "f8e5m2"}.get(
        named, dtype
    )
    return DeviceArray(int(address or 0), dtype, shape, elements, value, None, bool(read_only))


# DLPack


class _Tensor(ctypes.Structure):
    """DLTensor of dlpack.h."""

    _fields_ = (
        ("data", ctypes.c_void_p),
        ("device_type", ctypes.c_int32),
        ("device_id", ctypes.c_int32),
        ("ndim", ctypes.c_int32),
        ("code", ctypes.c_uint8),
        ("bits", ctypes.c_uint8),
        ("lanes", ctypes.c_uint16),
        ("shape", ctypes.POINTER(ctypes.c_int64)),
        ("strides", ctypes.POINTER(ctypes.c_int64)),
        ("byte_offset", ctypes.c_uint64),
    )


class _Versioned(ctypes.Structure):
    """DLManagedTensorVersioned of dlpack.h, from version 1.0 on."""

    _fields_ = (
        ("major", ctypes.c_uint32),
        ("minor", ctypes.c_uint32),
        ("context", ctypes.c_void_p),
        ("deleter", ctypes.c_void_p),
        ("flags", ctypes.c_uint64),
        ("tensor", _Tensor),
    )


def _from_dlpack(value: Any, name: str) -> DeviceArray:
    """Look into the capsule and keep it: its owner frees what it holds when it dies."""
    kind, device = value.__dlpack_device__()
    if int(kind) not in (_DLPACK_CUDA, _DLPACK_CUDA_MANAGED):
        raise host_array(name, "an array of another device", "move it to the NVIDIA device first")
    try:
        capsule = value.__dlpack__(max_version=(1, 0))
    except TypeError:
        capsule = value.__dlpack__()
    api = ctypes.pythonapi
    api.PyCapsule_GetPointer.restype = ctypes.c_void_p
    api.PyCapsule_GetPointer.argtypes = (ctypes.py_object, ctypes.c_char_p)
    api.PyCapsule_IsValid.argtypes = (ctypes.py_object, ctypes.c_char_p)
    if api.PyCapsule_IsValid(capsule, b"dltensor_versioned"):
        place = api.PyCapsule_GetPointer(capsule, b"dltensor_versioned")
        managed = _Versioned.from_address(place)
        tensor, read_only = managed.tensor, bool(managed.flags & _DLPACK_READ_ONLY)
    elif api.PyCapsule_IsValid(capsule, b"dltensor"):
        tensor = _Tensor.from_address(api.PyCapsule_GetPointer(capsule, b"dltensor"))
        read_only = False
    else:
        raise fail("cuda.argument", f"{name} gives no DLPack capsule")
    shape = tuple(tensor.shape[i] for i in range(tensor.ndim))
    strides = tuple(tensor.strides[i] for i in range(tensor.ndim)) if tensor.strides else None
    return DeviceArray(
        (tensor.data or 0) + tensor.byte_offset,
        _dlpack_dtype(tensor.code, tensor.bits, tensor.lanes),
        shape,
        strides if strides is not None else _dense_strides(shape),
        (value, capsule),
        int(device),
        read_only,
    )


def _dlpack_dtype(code: int, bits: int, lanes: int) -> str:
    if lanes == 1 and code in _DLPACK_NAMES:
        return _DLPACK_NAMES[code]
    if lanes == 1 and code in _DLPACK_KINDS:
        return f"{_DLPACK_KINDS[code]}{bits}"
    return f"elements of {lanes} x {bits} bits of DLPack's kind {code}"
