"""Arrays on a device as arguments: what a kernel is specialised for is read without touching them.

torch tensors are read by their attributes, others by `__cuda_array_interface__`.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from reftile.ir.diagnostics import fail
from reftile.lang.annotations import ArrayAnnotation, Parameter
from reftile.lang.dtypes import DType, as_dtype
from reftile.lang.signature import INT32_MAX, ArraySpec, PointerSpec, Signature, Spec, specialise


@dataclass(frozen=True, slots=True)
class DeviceArray:
    """Extents and strides, in elements, of an array on a device."""

    dtype: DType
    shape: tuple[int, ...]
    strides: tuple[int, ...]


def device_array(value: Any, name: str) -> DeviceArray | None:
    """What an array on a device is; None for everything else.

    Raises:
        ReftileError: its elements have no dtype of the language.
    """
    if type(value).__module__.partition(".")[0] == "torch" and getattr(value, "is_cuda", False):
        dtype, shape, strides = value.dtype, tuple(value.shape), tuple(value.stride())
    elif hasattr(value, "__cuda_array_interface__"):
        interface: dict[str, Any] = value.__cuda_array_interface__
        dtype, shape = np.dtype(interface["typestr"]), tuple(interface["shape"])
        bytes_ = interface.get("strides")
        strides = (
            _dense(shape) if bytes_ is None else tuple(int(s) // dtype.itemsize for s in bytes_)
        )
    else:
        return None
    found = as_dtype(dtype)
    if found is None:
        raise fail("lang.argument.dtype", f"`{name}` has elements of {dtype}, which have no dtype")
    return DeviceArray(found, shape, strides)


def _dense(shape: tuple[int, ...]) -> tuple[int, ...]:
    strides = [1]
    for extent in reversed(shape[1:]):
        strides.insert(0, strides[0] * extent)
    return tuple(strides[: len(shape)])


def specialise_with_devices(
    parameters: Sequence[Parameter], values: Sequence[object]
) -> tuple[Signature, list[Any]]:
    """As `specialise`, for arguments of which some lie on a device."""
    specs: list[Spec] = []
    flat: list[Any] = []
    for parameter, value in zip(parameters, values, strict=True):
        found = None if parameter.constant else device_array(value, parameter.name)
        if found is None:
            signature, own = specialise([parameter], [value])
            specs.extend(signature.parameters)
            flat.extend(own)
            continue
        spec, numbers = _spec(parameter, found)
        specs.append(spec)
        flat.extend((value, *numbers))
    return Signature(tuple(specs)), flat


def _spec(parameter: Parameter, array: DeviceArray) -> tuple[Spec, list[int]]:
    if parameter.pointer is not None:
        if array.dtype is not parameter.pointer.dtype:
            raise fail(
                "lang.argument.dtype",
                f"`{parameter.name}` is annotated as a pointer to {parameter.pointer.dtype}, "
                f"found {array.dtype}",
            )
        return PointerSpec(parameter.name, array.dtype), []
    note = parameter.array or ArrayAnnotation()
    if max((*array.shape, *array.strides), default=0) > INT32_MAX:
        raise fail("lang.argument", f"`{parameter.name}` has an extent or stride over 2^31")
    strides = tuple(s if s == 1 else None for s in array.strides)
    ones = (1,) * len(array.shape)
    spec = ArraySpec(
        parameter.name,
        array.dtype,
        note.index_dtype,
        (None,) * len(array.shape),
        strides,
        1,
        ones,
        ones,
        None,
        0 not in array.shape,
    )
    passed = [s for s, known in zip(array.strides, strides, strict=True) if known is None]
    return spec, [*array.shape, *passed]
