"""DLPack capsules that say their memory lies on a GPU, as cuTile wants it, when it is the host's.

Source: dlpack.h, version 0 of the ABI (`DLManagedTensor`).
"""

from __future__ import annotations

import ctypes
from ctypes import c_int32, c_int64, c_uint8, c_uint16, c_uint64, c_void_p
from typing import Any

from numpy.typing import NDArray

from reftile.ir.diagnostics import fail

CPU, CUDA = 1, 2
CODES = {"i": 0, "u": 1, "f": 2, "c": 5, "b": 6}
"""By NumPy's kind of dtype."""
NAMED_CODES = {"bfloat16": 4, "float8_e4m3fn": 10, "float8_e5m2": 12, "float8_e8m0fnu": 14}


class Tensor(ctypes.Structure):
    """DLTensor."""

    _fields_ = (
        ("data", c_void_p),
        ("device_type", c_int32),
        ("device_id", c_int32),
        ("rank", c_int32),
        ("code", c_uint8),
        ("bits", c_uint8),
        ("lanes", c_uint16),
        ("shape", ctypes.POINTER(c_int64)),
        ("strides", ctypes.POINTER(c_int64)),
        ("byte_offset", c_uint64),
    )


DELETER = ctypes.CFUNCTYPE(None, c_void_p)


class ManagedTensor(ctypes.Structure):
    """DLManagedTensor."""

    _fields_ = (("tensor", Tensor), ("context", c_void_p), ("deleter", DELETER))


_pointer_of: Any = ctypes.pythonapi.PyCapsule_GetPointer
_pointer_of.restype, _pointer_of.argtypes = c_void_p, (ctypes.py_object, ctypes.c_char_p)
_capsule_of: Any = ctypes.pythonapi.PyCapsule_New
_capsule_of.restype = ctypes.py_object
_capsule_of.argtypes = (c_void_p, ctypes.c_char_p, c_void_p)

_NAME = b"dltensor"


def claim_cuda(capsule: Any) -> None:
    """Have a capsule over memory of the host say that it lies on a GPU."""
    managed = ManagedTensor.from_address(_pointer_of(capsule, _NAME))
    if managed.tensor.device_type == CPU:
        managed.tensor.device_type = CUDA


@DELETER
def _delete(_address: int) -> None:
    """The array lives as long as what lent it."""


class LentArray:
    """A NumPy array as cuTile takes arrays. Lent for one launch; nothing is copied."""

    def __init__(self, array: NDArray[Any]) -> None:
        self.array = array
        code = NAMED_CODES.get(array.dtype.name, CODES.get(array.dtype.kind))
        if code is None or any(s % array.itemsize for s in array.strides):
            raise fail(
                "cutile.array",
                f"an array of {array.dtype} with strides of {array.strides} bytes cannot be passed",
                hint="pass a contiguous array of numbers",
            )
        rank = max(array.ndim, 1)
        self._shape = (c_int64 * rank)(*array.shape)
        self._strides = (c_int64 * rank)(*(s // array.itemsize for s in array.strides))
        address = int(array.__array_interface__["data"][0])
        tensor = Tensor(
            address, CUDA, 0, array.ndim, code, 8 * array.itemsize, 1, self._shape, self._strides, 0
        )
        self._managed = ManagedTensor(tensor, None, _delete)

    def __dlpack__(self, stream: object = None) -> Any:
        return _capsule_of(ctypes.addressof(self._managed), _NAME, None)
