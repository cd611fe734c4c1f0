"""The numbers that stand for types in bytecode.

Source: NVIDIA cuda-tile, BytecodeTypeOpcodes.td and Types.td; `cuda.tile._bytecode.type`.
"""

from __future__ import annotations

from dataclasses import dataclass

from reftile.ir.dtypes import DTYPES, DType
from reftile.ir.enums import ENUMS
from reftile.ir.types import Type

DTYPE_TAGS = {
    "i1": 0,
    "i8": 1,
    "i16": 2,
    "i32": 3,
    "i64": 4,
    "f16": 5,
    "bf16": 6,
    "f32": 7,
    "tf32": 8,
    "f64": 9,
    "f8e4m3": 10,
    "f8e5m2": 11,
    "f8e8m0": 18,
    "f4e2m1": 19,
    "i4": 22,
}
POINTER, TILE, TENSOR_VIEW, PARTITION_VIEW, FUNCTION, TOKEN_TAG = 12, 13, 14, 15, 16, 17
GATHER_SCATTER_VIEW, STRIDED_VIEW, PREVIEW_FLOAT = 20, 21, 130
MULTICAST, MULTICAST_SINCE = 2, 5
"""The attribute of pointers to memory of several devices, from 13.5; the others are none (0), from
13.4, and unicast (1). Found with tileirdisasm 13.5."""
VIEWS_SINCE = 3
"""Gather-scatter and strided views came with 13.3."""
DYNAMIC = -(1 << 63)
"""An extent or stride that is known only at run time."""
LARGEST_EXTENT = 10**12 - 1
"""Extents and strides of a tensor view at most, as in text."""

DTYPES_BY_TAG = {tag: DTYPES[name] for name, tag in DTYPE_TAGS.items()}
PADDINGS = {number: name for name, number in ENUMS["padding"].items()}


@dataclass(frozen=True, slots=True)
class FunctionType:
    """The type of a kernel; it is no type of values.

    multicast: the numbers of the parameters that are multicast pointers; for writing.
    """

    parameters: tuple[Type, ...]
    results: tuple[Type, ...]
    multicast: tuple[int, ...] = ()


Entry = Type | DType | FunctionType
