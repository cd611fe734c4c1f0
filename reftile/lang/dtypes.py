"""The dtypes that kernels name: element types of the IR together with a signedness.

Integers of the IR are signless; the front end knows whether a number is read as signed, and chooses
operations by it.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from types import MappingProxyType
from typing import Any, Literal, cast

import numpy as np

from reftile.ir.diagnostics import fail
from reftile.ir.dtypes import DTYPES
from reftile.ir.dtypes import DType as ElementType

Category = Literal["bool", "int", "float", "storage_float"]


@dataclass(frozen=True, slots=True, eq=False, repr=False)
class DType:
    """One dtype of the language; there is one instance per name, so dtypes compare with `is`.

    category: what promotion looks at. A `storage_float` converts, loads, stores and multiplies in
        matrices, and has no arithmetic.
    """

    name: str
    element: ElementType
    category: Category
    signed: bool = True

    @property
    def bits(self) -> int:
        """The width of a value."""
        return self.element.bits

    @property
    def bitwidth(self) -> int:
        """The width of a value, under cuTile's name."""
        return self.element.bits

    @property
    def is_int(self) -> bool:
        """Whether this is an integer type; a boolean is not."""
        return self.category == "int"

    @property
    def is_float(self) -> bool:
        """Whether this is a floating-point type, with or without arithmetic."""
        return self.category in ("float", "storage_float")

    @property
    def signedness(self) -> str:
        """`signed` or `unsigned`, as operations of the IR write it."""
        return "signed" if self.signed else "unsigned"

    def __call__(self, value: object = 0) -> object:
        """Convert a number, inside kernels."""
        raise fail(
            "lang.outside",
            f"`{self.name}({value!r})` can only be used inside a kernel",
            hint="on the host, numbers need no dtype",
        )

    def __repr__(self) -> str:
        return self.name

    def __reduce__(self) -> tuple[object, tuple[str]]:
        return (dtype_named, (self.name,))


def _make(name: str, element: str, category: Category, signed: bool = True) -> DType:
    return DType(name, DTYPES[element], category, signed)


bool_ = _make("bool_", "i1", "bool", False)
"""True or false; a byte in memory."""
int8 = _make("int8", "i8", "int")
"""8-bit signed integer."""
int16 = _make("int16", "i16", "int")
"""16-bit signed integer."""
int32 = _make("int32", "i32", "int")
"""32-bit signed integer."""
int64 = _make("int64", "i64", "int")
"""64-bit signed integer."""
uint8 = _make("uint8", "i8", "int", False)
"""8-bit unsigned integer."""
uint16 = _make("uint16", "i16", "int", False)
"""16-bit unsigned integer."""
uint32 = _make("uint32", "i32", "int", False)
"""32-bit unsigned integer."""
uint64 = _make("uint64", "i64", "int", False)
"""64-bit unsigned integer."""
float16 = _make("float16", "f16", "float")
"""IEEE binary16."""
bfloat16 = _make("bfloat16", "bf16", "float")
"""The upper half of a binary32."""
float32 = _make("float32", "f32", "float")
"""IEEE binary32."""
float64 = _make("float64", "f64", "float")
"""IEEE binary64."""
tfloat32 = _make("tfloat32", "tf32", "storage_float")
"""binary32 with 10 bits of mantissa, for matrix products."""
float8_e4m3fn = _make("float8_e4m3fn", "f8e4m3", "storage_float")
"""OCP 8-bit float with 4 bits of exponent and no infinities."""
float8_e5m2 = _make("float8_e5m2", "f8e5m2", "storage_float")
"""OCP 8-bit float with 5 bits of exponent."""
float8_e4m3fnuz = _make("float8_e4m3fnuz", "f8e4m3fnuz", "storage_float")
"""AMD's 8-bit float with 4 bits of exponent."""
float8_e5m2fnuz = _make("float8_e5m2fnuz", "f8e5m2fnuz", "storage_float")
"""AMD's 8-bit float with 5 bits of exponent."""
float8_e8m0fnu = _make("float8_e8m0fnu", "f8e8m0", "storage_float", False)
"""A power of two: the scale of a block."""
float4_e2m1fn = _make("float4_e2m1fn", "f4e2m1", "storage_float")
"""OCP 4-bit float."""

LANGUAGE_DTYPES: Mapping[str, DType] = MappingProxyType(
    {
        d.name: d
        for d in (
            *(bool_, uint8, uint16, uint32, uint64, int8, int16, int32, int64),
            *(float16, float32, float64, bfloat16, tfloat32, float8_e4m3fn, float8_e5m2),
            *(float8_e8m0fnu, float4_e2m1fn, float8_e4m3fnuz, float8_e5m2fnuz),
        )
    }
)
"""Every dtype by name."""

# What NumPy, ml_dtypes and torch call them. `bool` is Python's, NumPy's and torch's.
_NAMES: Mapping[str, DType] = MappingProxyType({**LANGUAGE_DTYPES, "bool": bool_})


def dtype_named(name: str) -> DType:
    """Return the dtype called `name`; KeyError when there is none."""
    return _NAMES[name]


def as_dtype(thing: object) -> DType | None:
    """Return the dtype that a user's object means: ours, NumPy's, torch's; None if it is none."""
    if isinstance(thing, DType):
        return thing
    if isinstance(thing, np.dtype):
        return _NAMES.get(str(cast("object", thing)))
    if isinstance(thing, type):
        if issubclass(thing, np.generic) or thing.__module__ == "ml_dtypes":
            return _NAMES.get(str(np.dtype(cast("Any", thing))))
        kinds: dict[object, DType] = {bool: bool_, int: int32, float: float32}
        return kinds.get(cast("object", thing))
    if type(thing).__module__ == "torch" and type(thing).__name__ == "dtype":
        return _NAMES.get(str(thing).removeprefix("torch."))
    return None
