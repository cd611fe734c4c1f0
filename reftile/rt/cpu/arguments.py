"""What a kernel is given, as the numbers that compiled code reads.

A scalar is one number. An array is its address; of a view its extents and strides follow, in
elements.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, cast

import numpy as np
from numpy.typing import NDArray

from reftile.ir.arguments import HostBytes, Raw, Uninitialized
from reftile.ir.core import Kernel, Module, Value
from reftile.ir.diagnostics import Diagnosis, ReftileError, fail
from reftile.ir.dtypes import DTYPES, I64, TF32, DType, from_numpy
from reftile.ir.numbers import convert
from reftile.ir.ops import Global
from reftile.ir.packing import pack_nibbles
from reftile.ir.types import PointerType, TensorViewType, TileType
from reftile.rt.cpu.memory import aligned_bytes


@dataclass(slots=True)
class Array:
    """An argument's memory: its first address, and the one behind its last."""

    name: str
    first: int
    end: int
    writeable: bool


Packer = Callable[[Kernel, Value, Any, list[int], list[Array]], None]
"""Checks one argument, and appends its numbers, and its array, to those of the launch."""


def pack_arguments(kernel: Kernel, args: Sequence[Any]) -> tuple[list[int], list[Array]]:
    """The numbers that a kernel reads, and the arrays that lie behind them.

    Raises:
        ReftileError: rule `launch.arguments`: there are too many or too few, or one does not fit.
    """
    if len(args) != len(kernel.arguments):
        names = ", ".join(f"%{a.name}: {a.type}" for a in kernel.arguments)
        raise bad_argument(
            kernel, f"`{kernel.name}` takes {len(kernel.arguments)} arguments ({names})"
        )
    packers = cast("list[Packer] | None", kernel.plans.get("cpu packers"))
    if packers is None:
        packers = [
            _packer(v, a) for v, a in zip(kernel.arguments, kernel.argument_attributes, strict=True)
        ]
        kernel.plans["cpu packers"] = packers
    numbers: list[int] = []
    arrays: list[Array] = []
    for pack, value, arg in zip(packers, kernel.arguments, args, strict=True):
        pack(kernel, value, arg, numbers, arrays)
    return numbers, arrays


def bad_argument(kernel: Kernel, message: str, rule: str = "launch.arguments") -> ReftileError:
    """The error of an argument that does not fit."""
    return ReftileError(Diagnosis(rule, message, kernel.span))


def _packer(value: Value, attributes: dict[str, Any]) -> Packer:
    type = value.type
    if isinstance(type, TensorViewType):
        wanted = I64 if isinstance(type.element, PointerType) else type.element
        return _array_packer(wanted, type, attributes)
    if not isinstance(type, TileType) or type.shape:
        return _refuse
    if isinstance(type.element, PointerType):
        return _array_packer(type.element.pointee, None, attributes)
    return _scalar_packer(type.dtype)


def _refuse(kernel: Kernel, value: Value, arg: Any, numbers: Any, arrays: Any) -> None:
    raise bad_argument(kernel, f"%{value.name}: {value.type} cannot be passed to a kernel")


def _scalar_packer(dtype: DType) -> Packer:
    low, high = -(1 << (dtype.bits - 1)), 1 << dtype.bits
    top = min(high, 1 << 63)

    def pack_int(
        kernel: Kernel, value: Value, arg: Any, numbers: list[int], arrays: list[Array]
    ) -> None:
        if type(arg) is int and low <= arg < top:
            numbers.append(arg if dtype.bits > 1 else arg & 1)
            return
        try:
            number = int(arg)
            exact = number == arg and not isinstance(arg, str | bytes)
        except (TypeError, ValueError, OverflowError):
            number, exact = 0, False
        if not exact or np.ndim(arg):
            raise bad_argument(
                kernel, f"%{value.name} takes a number of {dtype.name}, found {arg!r}"
            )
        if not low <= number < high:
            raise bad_argument(kernel, f"{arg!r} does not fit %{value.name}: {dtype.name}")
        if dtype.bits == 1:
            number &= 1
        numbers.append(number if number < 1 << 63 else number - (1 << 64))

    def pack_float(
        kernel: Kernel, value: Value, arg: Any, numbers: list[int], arrays: list[Array]
    ) -> None:
        try:
            exact = None if isinstance(arg, str | bytes) or np.ndim(arg) else float(arg)
        except (TypeError, ValueError, OverflowError):
            exact = None
        if exact is None:
            raise bad_argument(
                kernel, f"%{value.name} takes a number of {dtype.name}, found {arg!r}"
            )
        found = convert(np.asarray([exact], np.float64), DTYPES["f64"], dtype)
        carrier = np.asarray(found, dtype.carrier)
        numbers.append(int(carrier.view(np.int64 if dtype.bits == 64 else np.int32)[0]))

    return pack_int if dtype.is_int else pack_float


def _array_packer(wanted: DType, view: TensorViewType | None, attributes: dict[str, Any]) -> Packer:
    divisor = attributes.get("div_by")
    accepted: dict[Any, DType] = {}

    def pack(
        kernel: Kernel, value: Value, arg: Any, numbers: list[int], arrays: list[Array]
    ) -> None:
        if isinstance(arg, Uninitialized):
            arg = arg.array
        if isinstance(arg, Raw | HostBytes):
            units = np.frombuffer(arg.data, np.uint8)
            found: DType = DTYPES[arg.dtype]
            array: NDArray[Any] = units
        elif isinstance(arg, np.ndarray):
            array = cast("NDArray[Any]", arg)
            cached = accepted.get(array.dtype)
            found = cached or _dtype_of(kernel, value, array)
            accepted[array.dtype] = found
        else:
            raise bad_argument(kernel, f"%{value.name}: {value.type} takes an array, found {arg!r}")
        if found is not wanted and not (wanted is TF32 and found.name == "f32"):
            raise bad_argument(
                kernel,
                f"%{value.name} needs elements of {wanted.name}, found {found.name}",
            )
        first = int(array.__array_interface__["data"][0])
        if divisor is not None and first % int(divisor):
            message = f"%{value.name} is {first}, which is not a multiple of {divisor}"
            raise bad_argument(kernel, message, "assume.div_by")
        numbers.append(first)
        flags = array.flags
        size = array.nbytes
        if not flags.c_contiguous and size:
            last = sum((d - 1) * s for d, s in zip(array.shape, array.strides, strict=True))
            size = last + array.itemsize
        arrays.append(Array(value.name, first, first + size, flags.writeable))
        if view is not None:
            _pack_view(kernel, value, view, array, numbers)

    return pack


def _dtype_of(kernel: Kernel, value: Value, array: NDArray[Any]) -> DType:
    try:
        found = from_numpy(array.dtype)
    except TypeError as error:
        raise bad_argument(kernel, f"%{value.name}: {error}") from None
    if found.elements_per_unit == 2:
        message = f"%{value.name} has one element in each byte, and memory holds two"
        raise bad_argument(kernel, message)
    return found


def _pack_view(
    kernel: Kernel, value: Value, type: TensorViewType, array: NDArray[Any], numbers: list[int]
) -> None:
    size = array.itemsize
    if any(s % size or s < 0 for s in array.strides):
        raise bad_argument(kernel, f"the strides of %{value.name} are {array.strides} bytes")
    shape, strides = array.shape, tuple(s // size for s in array.strides)
    if len(shape) != type.rank or 0 in shape:
        raise bad_argument(
            kernel, f"%{value.name} needs an array of rank {type.rank}, found {shape}"
        )
    for axis in range(type.rank):
        wanted, step = type.shape[axis], type.strides[axis]
        if wanted is not None and shape[axis] != wanted:
            message = f"axis {axis} of %{value.name} must have {wanted} elements"
            raise bad_argument(kernel, f"{message}, found {shape[axis]}")
        if step is not None and strides[axis] != step and shape[axis] > 1:
            message = f"axis {axis} of %{value.name} must have the stride {step}"
            raise bad_argument(kernel, f"{message}, found {strides[axis]}")
    numbers += [*shape, *strides]


def overlaps(kernel: Kernel, arrays: Sequence[Array]) -> tuple[int, ...]:
    """A number for each array, shared by those whose memory overlaps; () if none does."""
    if len(arrays) < 2:
        return ()
    order = sorted(range(len(arrays)), key=lambda i: arrays[i].first)
    groups = list(range(len(arrays)))
    reach, leader, apart = -1, 0, True
    for i in order:
        array = arrays[i]
        if array.first < reach and array.end > array.first:
            groups[i], apart = leader, False
        else:
            leader = groups[i]
        reach = max(reach, array.end)
    return () if apart else tuple(groups)


def load_globals(module: Module, symbols: tuple[str, ...], numbers: list[int]) -> list[Any]:
    """Append the addresses of globals; what is given keeps their memory."""
    kept: list[Any] = []
    if not symbols:
        return kept
    found = {op.symbol: op for op in module.globals if isinstance(op, Global)}
    for symbol in symbols:
        op = found.get(symbol)
        if op is None:
            raise fail("get_global.unknown", f"the module has no global @{symbol}")
        bits = np.asarray(op.value.bits())
        if op.value.splat:
            bits = np.repeat(bits, op.value.shape[0])
        if op.value.dtype.elements_per_unit == 2:
            bits = pack_nibbles(bits)
        data = aligned_bytes(bits.nbytes, 4096)
        data[: bits.nbytes] = bits.view(np.uint8)
        kept.append(data)
        numbers.append(data.ctypes.data)
    return kept
