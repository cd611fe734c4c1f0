"""Where the parameters of a launch lie, and what an array must be for the kernel to see it so."""

from __future__ import annotations

import re
import struct
from collections.abc import Sequence
from dataclasses import dataclass

from reftile.ir.diagnostics import fail
from reftile.ir.dtypes import DTYPES
from reftile.lower.host import HostPlan, PointerParameter, ScalarParameter, TensorMapParameter
from reftile.rt.arguments import DeviceArray
from reftile.rt.tensor_map import MAP_BYTES

_CODES = {
    "i1": "?", "i8": "b", "i16": "h", "i32": "i", "i64": "q", "f16": "e", "f32": "f", "f64": "d",
}  # fmt: skip


@dataclass(frozen=True, slots=True)
class Fields:
    """Where each parameter lies: numbers and pointers first, maps behind, on 64 bytes.

    format: of `struct`, for the parameters in that order. offsets: by the number of the parameter.
    """

    format: str
    offsets: list[int]
    size: int


def place_parameters(plan: HostPlan) -> Fields:
    """Lay the parameters of a plan out."""
    format, position = "<", 0
    offsets = [0] * len(plan.parameters)
    maps = [isinstance(p, TensorMapParameter) for p in plan.parameters]
    order = sorted(range(len(maps)), key=lambda i: maps[i])
    for i in order:
        parameter = plan.parameters[i]
        if isinstance(parameter, TensorMapParameter):
            code, size, align = f"{MAP_BYTES}s", MAP_BYTES, 64
        else:
            code = "Q" if isinstance(parameter, PointerParameter) else code_of(parameter)
            size = align = struct.calcsize("<" + code)
        padding = -position % align
        format += f"{padding}x" * bool(padding) + code
        offsets[i] = position + padding
        position += padding + size
    return Fields(format, offsets, position)


def code_of(parameter: ScalarParameter) -> str:
    """How `struct` names the type of a number.

    Raises:
        ReftileError: there is no such number.
    """
    code = _CODES.get(parameter.dtype)
    if code is None:
        raise fail(
            "cuda.argument", f"`{parameter.name}`: {parameter.dtype} cannot be passed by value"
        )
    return code


def array_arguments(plan: HostPlan) -> set[str]:
    """The names of the arguments that are arrays."""
    pointers = {p.name for p in plan.parameters if isinstance(p, PointerParameter)}
    maps = {p.base for p in plan.parameters if isinstance(p, TensorMapParameter)}
    return pointers | maps | {a.name for a in plan.arrays}


def is_read_by_host(plan: HostPlan, name: str) -> bool:
    """True if the host reads an argument: in a requirement, an extent or a stride."""
    texts = [text for text, _ in plan.requirements]
    for parameter in plan.parameters:
        if isinstance(parameter, TensorMapParameter):
            texts += [*parameter.extents, *parameter.strides]
    return any(name in re.findall(r"\w+", text) for text in texts)


def check_extents(
    name: str, array: DeviceArray, extents: Sequence[int], strides: Sequence[int]
) -> None:
    """The kernel's view of an array must not reach beyond it, nor read its elements in disorder.

    extents: elements, innermost axis first. strides: bytes, for all axes but the first.
    """
    if array.dtype not in DTYPES or 0 in extents:
        return
    size = DTYPES[array.dtype].bits // 8
    steps = (size, *strides)
    reach = sum((e - 1) * s for e, s in zip(extents, steps, strict=True)) + size
    seen = "x".join(map(str, reversed(extents)))
    behind = array.bytes_behind
    if behind is not None and reach > behind:
        raise fail(
            "cuda.bounds",
            f"the kernel sees `{name}` as {seen} elements, which reach {reach} bytes, "
            f"and the array has {behind}",
            hint="the sizes among the arguments must be the array's",
        )
    found = tuple(s * size for s in reversed(array.strides))
    if array.shape[::-1] == tuple(extents) and any(
        f != s for f, s, e in zip(found, steps, extents, strict=True) if e > 1
    ):
        raise fail(
            "cuda.strides",
            f"the kernel sees `{name}` as {seen} elements with strides of "
            f"{tuple(s // size for s in reversed(steps))}, and the array has {array.strides}",
            hint="give a contiguous copy, or the array that this one is a view of",
        )
