"""What a caller passes to a launch, bound to memory and to the kernel's arguments.

Arrays are bound where they are: a kernel writes into the caller's array. Arrays that share bytes
share a buffer, so that a kernel that is given overlapping slices sees that they overlap.
"""

from __future__ import annotations

import ctypes
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, cast

import numpy as np
from numpy.typing import NDArray

from reftile.interp.memory import (
    ALIGNMENT,
    NEVER_WRITTEN,
    Buffer,
    Bytes,
    Memory,
    memory_dtype,
)
from reftile.interp.values import Tile
from reftile.interp.views import make_tensor_view
from reftile.ir.arguments import HostBytes, Raw, Uninitialized
from reftile.ir.core import Kernel, Value
from reftile.ir.diagnostics import Diagnosis, ReftileError
from reftile.ir.dtypes import DTYPES, TF32, DType, from_numpy
from reftile.ir.numbers import convert
from reftile.ir.types import PointerType, TensorViewType, TileType


@dataclass(slots=True)
class _Array:
    """An array argument: where its bytes are on the host."""

    index: int
    name: str
    dtype: DType
    first: int
    end: int
    shape: tuple[int, ...]
    strides: tuple[int, ...]
    phase: int
    writeable: bool
    fresh: bool
    owner: Any
    reaches: tuple[HostBytes, ...] = ()
    address: int = 0


def bind_arguments(kernel: Kernel, args: Sequence[Any], memory: Memory) -> list[Any]:
    """Give each argument of the kernel its value: a scalar tile, a pointer or a tensor view.

    Raises:
        ReftileError: rule `launch.arguments`, if an argument does not fit.
    """
    if len(args) != len(kernel.arguments):
        names = ", ".join(f"%{a.name}: {a.type}" for a in kernel.arguments)
        raise _bad(
            kernel,
            f"`{kernel.name}` takes {len(kernel.arguments)} arguments ({names}), found {len(args)}",
        )
    arrays: list[_Array] = []
    for i, (value, arg) in enumerate(zip(kernel.arguments, args, strict=True)):
        if isinstance(value.type, TensorViewType) or _is_pointer(value):
            arrays.append(_array(kernel, i, value, arg))
    reached = [_reached(found) for a in arrays for found in a.reaches]
    _bind_arrays(kernel, arrays, reached, memory)
    by_index = {a.index: a for a in arrays}
    values: list[Any] = []
    for i, (value, arg) in enumerate(zip(kernel.arguments, args, strict=True)):
        found = by_index.get(i)
        if found is None:
            values.append(_scalar(kernel, value, arg))
        elif isinstance(value.type, TensorViewType):
            values.append(_view(kernel, value, found, memory))
        else:
            values.append(Tile(np.array(found.address, np.int64)))
        _check_divisible(kernel, i, value, values[-1])
    return values


def _bad(
    kernel: Kernel, message: str, rule: str = "launch.arguments", hint: str = ""
) -> ReftileError:
    return ReftileError(Diagnosis(rule, message, kernel.span, hint))


def _is_pointer(value: Value) -> bool:
    return isinstance(value.type, TileType) and isinstance(value.type.element, PointerType)


def _check_divisible(kernel: Kernel, index: int, value: Value, bound: Any) -> None:
    divisor = kernel.argument_attributes[index].get("div_by")
    if divisor is None:
        return
    number = int(bound.data.item()) if isinstance(bound, Tile) else int(bound.address)
    if number % int(divisor):  # type: ignore[arg-type]
        raise _bad(
            kernel,
            f"%{value.name} is {number}, which is not a multiple of {divisor}",
            "assume.div_by",
        )


# Scalars


def _scalar(kernel: Kernel, value: Value, arg: Any) -> Tile:
    type = value.type
    if not isinstance(type, TileType) or type.shape:
        raise _bad(kernel, f"%{value.name}: {type} cannot be passed to a kernel")
    dtype = type.dtype
    array = np.asarray(arg)
    if array.ndim:
        raise _bad(
            kernel, f"%{value.name} is a scalar {dtype.name}, found an array of shape {array.shape}"
        )
    try:
        exact = float(arg)
        number = int(arg) if dtype.is_int else 0
    except (TypeError, ValueError, OverflowError):
        exact, number = None, 0
    if exact is None or isinstance(arg, str | bytes | bytearray):
        raise _bad(kernel, f"%{value.name} takes a number of {dtype.name}, found {arg!r}")
    if dtype.is_int:
        if number != arg or not -(1 << (dtype.bits - 1)) <= number < 1 << dtype.bits:
            raise _bad(kernel, f"{arg!r} does not fit %{value.name}: {dtype.name}")
        if dtype.bits == 1:
            return Tile(np.array(bool(number & 1)))
        low = number & ((1 << dtype.bits) - 1)
        signed = low - (1 << dtype.bits) if low >> (dtype.bits - 1) else low
        return Tile(np.array(signed, dtype.carrier))
    found = convert(np.asarray([exact], np.float64), DTYPES["f64"], dtype)
    return Tile(np.asarray(found, dtype.carrier).reshape(()))


# Arrays


def _array(kernel: Kernel, index: int, value: Value, arg: Any) -> _Array:
    fresh = isinstance(arg, Uninitialized)
    array = arg.array if fresh else arg
    owner, found, shape, strides = _host_array(kernel, value, array)
    wanted = _wanted_dtype(value)
    if wanted is TF32 and found.name == "f32":
        found = TF32
    if found is not wanted:
        hint = f'pass Raw(data, "{wanted.name}")' if wanted.elements_per_unit == 2 else ""
        message = f"%{value.name} needs elements of {wanted.name}, found {found.name}"
        raise _bad(kernel, message, hint=hint)
    first = int(owner.__array_interface__["data"][0])
    last = sum((d - 1) * s for d, s in zip(owner.shape, owner.strides, strict=True) if d)
    size = last + owner.itemsize if owner.size else 0
    name, phase, reaches = "", (first - _root_address(owner)) % ALIGNMENT, ()
    if isinstance(array, HostBytes):
        name, phase, reaches = array.name, first % ALIGNMENT, array.reaches
    return _Array(
        index,
        name or value.name or f"argument {index}",
        wanted,
        first,
        first + size,
        shape,
        strides,
        phase,
        bool(owner.flags.writeable),
        fresh,
        owner,
        reaches,
    )


def _reached(found: HostBytes) -> _Array:
    """Memory that no argument points to itself."""
    units: NDArray[np.uint8] = np.frombuffer(found.data, np.uint8)
    first = int(units.__array_interface__["data"][0])
    end = first + units.size
    writeable = bool(units.flags.writeable)
    return _Array(
        -1, found.name, DTYPES[found.dtype], first, end, (), (), 0, writeable, False, units
    )


def _wanted_dtype(value: Value) -> DType:
    type = value.type
    if isinstance(type, TensorViewType):
        return memory_dtype(type.element)
    assert isinstance(type, TileType) and isinstance(type.element, PointerType)
    return type.element.pointee


Index = tuple[int, ...]


def _host_array(kernel: Kernel, value: Value, arg: Any) -> tuple[NDArray[Any], DType, Index, Index]:
    """The array behind an argument, its dtype, extents and strides (in elements)."""
    if isinstance(arg, Raw | HostBytes):
        units: NDArray[Any] = np.frombuffer(arg.data, np.uint8)
        dtype = DTYPES[arg.dtype]
        return units, dtype, (units.size * dtype.elements_per_unit // dtype.storage.itemsize,), (1,)
    if not isinstance(arg, np.ndarray):
        raise _bad(kernel, f"%{value.name}: {value.type} takes an array, found {arg!r}")
    array = cast("NDArray[Any]", arg)
    size = array.itemsize
    if any(s % size or s < 0 for s in array.strides):
        steps = f"{array.strides} bytes: negative, or not whole elements"
        raise _bad(kernel, f"the strides of %{value.name} are {steps}")
    return (
        array,
        _dtype_of(kernel, value, array),
        array.shape,
        tuple(s // size for s in array.strides),
    )


def _dtype_of(kernel: Kernel, value: Value, array: NDArray[Any]) -> DType:
    try:
        found = from_numpy(array.dtype)
    except TypeError as error:
        raise _bad(kernel, f"%{value.name}: {error}") from None
    if found.elements_per_unit == 2:
        raise _bad(
            kernel,
            f"%{value.name} is an array of {array.dtype} with one element in each byte, "
            "and memory holds two",
            hint=f'pack it (reftile.ir.packing.to_units) and pass Raw(data, "{found.name}")',
        )
    return found


def _root_address(array: NDArray[Any]) -> int:
    """The address of the allocation that an array is a slice of."""
    root = array
    while isinstance(root.base, np.ndarray):
        root = root.base
    return int(root.__array_interface__["data"][0])


def _bind_arrays(
    kernel: Kernel, arrays: list[_Array], reached: list[_Array], memory: Memory
) -> None:
    groups: list[list[_Array]] = []
    reach = 0
    for array in sorted([*arrays, *reached], key=lambda a: (a.first, a.end)):
        if groups and array.first < reach:
            groups[-1].append(array)
        else:
            groups.append([array])
        reach = max(reach, array.end)
    for group in sorted(groups, key=lambda g: min(a.index for a in g)):
        first, end = group[0].first, max(a.end for a in group)
        raw = (ctypes.c_uint8 * (end - first)).from_address(first)
        data: Bytes = np.ctypeslib.as_array(raw) if end > first else np.zeros(0, np.uint8)
        dtypes = {a.dtype for a in group}
        name = " and ".join(dict.fromkeys(a.name for a in sorted(group, key=lambda a: a.index)))
        dtype = group[0].dtype if len(dtypes) == 1 else None
        owners = tuple(a.owner for a in group)
        at = first if reached and end > first else None
        buffer = memory.add(name, data, dtype, phase=group[0].phase, owner=owners, at=at)
        buffer.visible = True
        for array in group:
            array.address = buffer.address + array.first - first
        if any(a.fresh for a in group):
            buffer.state = np.full(data.size, NEVER_WRITTEN, np.uint8)
        _set_rights(kernel, group, buffer)


def _set_rights(kernel: Kernel, group: list[_Array], buffer: Buffer) -> None:
    own = [a for a in group if a.index >= 0]
    attributes = [kernel.argument_attributes[a.index] for a in own]
    modes = [str(a.get("access", "read_write")) for a in attributes]
    modes += ["read_write"] * (len(group) - len(own))
    for i, array in enumerate(own):
        type = kernel.arguments[array.index].type
        if isinstance(type, TensorViewType):
            modes[i] = type.access if modes[i] == "read_write" else modes[i]
    buffer.readable = any(m != "write_only" for m in modes)
    buffer.writable = all(a.writeable for a in group) and any(m != "read_only" for m in modes)
    buffer.restricted = not (buffer.readable and buffer.writable)
    if len(group) > 1:
        alone = [g.name for g, a in zip(own, attributes, strict=True) if a.get("noalias")]
        if alone:
            others = ", ".join(f"%{g.name}" for g in group)
            buffer.restricted = True
            buffer.no_write = (
                f"%{alone[0]} is `noalias`, but {others} share memory, and it is written"
            )


def _view(kernel: Kernel, value: Value, array: _Array, memory: Memory) -> Any:
    type = value.type
    assert isinstance(type, TensorViewType)
    shape, strides = array.shape, array.strides
    if len(shape) != type.rank:
        raise _bad(kernel, f"%{value.name} needs an array of rank {type.rank}, found shape {shape}")
    if 0 in shape:
        hint = "an array without elements has no tiles: skip the launch, or pass its pointer"
        raise _bad(kernel, f"%{value.name} is empty: shape {shape}", hint=hint)
    for axis, (size, wanted) in enumerate(zip(shape, type.shape, strict=True)):
        if wanted is not None and size != wanted:
            raise _bad(
                kernel, f"axis {axis} of %{value.name} must have {wanted} elements, found {size}"
            )
    for axis, (step, wanted) in enumerate(zip(strides, type.strides, strict=True)):
        if wanted is not None and step != wanted and shape[axis] > 1:
            raise _bad(
                kernel, f"axis {axis} of %{value.name} must have the stride {wanted}, found {step}"
            )
    static = tuple(s if w is None else w for s, w in zip(strides, type.strides, strict=True))
    return make_tensor_view(memory, type, array.address, shape, static)
