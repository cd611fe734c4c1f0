"""The element types of a tile: their formats, carriers while computing, and storage in memory.

A dtype says three things about a number: its *format* (which values exist), its *carrier* (the
NumPy dtype in which a tile of such numbers is held while a program runs) and its *storage* (one
unit of memory). Integers are signless, as in CUDA Tile IR: operations say whether they read them
signed or unsigned.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from types import MappingProxyType
from typing import TYPE_CHECKING, Any, Literal, TypeAlias

import numpy as np
from numpy.typing import DTypeLike

if TYPE_CHECKING:
    from types import ModuleType

NumpyDType: TypeAlias = np.dtype[Any]

Kind = Literal["int", "float"]

NanEncoding = Literal["ieee", "all_ones", "negative_zero", "none"]
"""Which bits mean NaN.

ieee: exponent all ones, mantissa not zero. all_ones: every bit but the sign (OCP "FN" formats,
E8M0). negative_zero: only the code that would be -0 ("FNUZ" formats). none: there is no NaN.
"""


@dataclass(frozen=True, slots=True, eq=False, repr=False)
class DType:
    """One element type; there is exactly one instance per name, so dtypes compare with `is`.

    name: as written in programs, such as "bf16" or "f8e4m3".
    bits: width, but 32 for tf32, which fills an f32 in memory and ignores its low 13 bits.
    exponent_bits, mantissa_bits, bias: of the format, mantissa without the implicit bit.
    has_infinity, nan, has_negative_zero, has_zero: which special values exist.
    signed: whether the format has negative values; True for integers.
    max_finite, min_normal, min_subnormal: positive magnitudes. Where no subnormals exist,
        min_subnormal is min_normal.
    max_finite_code: the encoding of max_finite (for tf32 the upper 19 of the 32 bits).
    carrier: NumPy dtype of a tile's values while computing. i1 is bool, i4 is int8 (sign-extended),
        f64 is float64, every other float is float32 holding values that the format has.
    storage: unsigned NumPy dtype of one unit in memory.
    elements_per_unit: elements in one storage unit: 2 for i4 and f4e2m1 (low nibble first), else 1.

    Integers have 0, False and "none" where a field says nothing about them.
    """

    name: str
    kind: Kind
    bits: int
    exponent_bits: int
    mantissa_bits: int
    bias: int
    has_infinity: bool
    nan: NanEncoding
    has_negative_zero: bool
    has_zero: bool
    signed: bool
    max_finite: float
    min_normal: float
    min_subnormal: float
    max_finite_code: int
    carrier: NumpyDType
    storage: NumpyDType
    elements_per_unit: int

    def __repr__(self) -> str:
        return self.name

    def __reduce__(self) -> tuple[object, tuple[str]]:
        # Copies and pickles find the one instance again, so `is` stays a valid comparison.
        return (dtype_named, (self.name,))

    @property
    def is_int(self) -> bool:
        """Whether this is an integer type."""
        return self.kind == "int"

    @property
    def is_float(self) -> bool:
        """Whether this is a floating-point type."""
        return self.kind == "float"

    @property
    def storage_bits(self) -> int:
        """Bits that one element takes in memory: 8 for i1, 4 for i4 and f4e2m1, else `bits`."""
        return self.storage.itemsize * 8 // self.elements_per_unit

    @property
    def has_nan(self) -> bool:
        """Whether the format can say "not a number"."""
        return self.nan != "none"

    @property
    def precision(self) -> int:
        """Significant bits of a normal number, with the implicit one; 0 for integers."""
        return self.mantissa_bits + 1 if self.kind == "float" else 0

    @property
    def signed_min(self) -> int:
        """Least value of an integer type read as signed."""
        return -(1 << (self.bits - 1))

    @property
    def signed_max(self) -> int:
        """Greatest value of an integer type read as signed."""
        return (1 << (self.bits - 1)) - 1

    @property
    def unsigned_max(self) -> int:
        """Greatest value of an integer type read as unsigned."""
        return (1 << self.bits) - 1


def _integer(bits: int) -> DType:
    carrier = np.dtype(np.bool_) if bits == 1 else np.dtype(f"int{max(bits, 8)}")
    return DType(
        name=f"i{bits}",
        kind="int",
        bits=bits,
        exponent_bits=0,
        mantissa_bits=0,
        bias=0,
        has_infinity=False,
        nan="none",
        has_negative_zero=False,
        has_zero=True,
        signed=True,
        max_finite=0.0,
        min_normal=0.0,
        min_subnormal=0.0,
        max_finite_code=0,
        carrier=carrier,
        storage=np.dtype(f"uint{max(bits, 8)}"),
        elements_per_unit=2 if bits == 4 else 1,
    )


def _float(
    name: str,
    exponent_bits: int,
    mantissa_bits: int,
    nan: NanEncoding = "ieee",
    bias: int | None = None,
    storage_bits: int | None = None,
) -> DType:
    """Build a signed format; `nan` decides where the finite codes end and whether -0 exists."""
    if bias is None:
        bias = (1 << (exponent_bits - 1)) - 1
    magnitude_codes = 1 << (exponent_bits + mantissa_bits)
    match nan:
        case "ieee":
            max_code = magnitude_codes - (1 << mantissa_bits) - 1
        case "all_ones":
            max_code = magnitude_codes - 2
        case "negative_zero" | "none":
            max_code = magnitude_codes - 1
    max_exponent = (max_code >> mantissa_bits) - bias
    max_fraction = max_code & ((1 << mantissa_bits) - 1)
    bits = storage_bits or 1 + exponent_bits + mantissa_bits
    return DType(
        name=name,
        kind="float",
        bits=bits,
        exponent_bits=exponent_bits,
        mantissa_bits=mantissa_bits,
        bias=bias,
        has_infinity=nan == "ieee",
        nan=nan,
        has_negative_zero=nan != "negative_zero",
        has_zero=True,
        signed=True,
        max_finite=math.ldexp((1 << mantissa_bits) + max_fraction, max_exponent - mantissa_bits),
        min_normal=math.ldexp(1.0, 1 - bias),
        min_subnormal=math.ldexp(1.0, 1 - bias - mantissa_bits),
        max_finite_code=max_code,
        carrier=np.dtype(np.float64 if mantissa_bits > 23 else np.float32),
        storage=np.dtype(f"uint{max(bits, 8)}"),
        elements_per_unit=2 if bits == 4 else 1,
    )


def _scale() -> DType:
    """Build E8M0: code c is 2**(c - 127), there is no sign, no zero, no subnormal; 0xFF is NaN.

    2**-127 is a subnormal of the float32 carrier, which holds it exactly.
    """
    return DType(
        name="f8e8m0",
        kind="float",
        bits=8,
        exponent_bits=8,
        mantissa_bits=0,
        bias=127,
        has_infinity=False,
        nan="all_ones",
        has_negative_zero=False,
        has_zero=False,
        signed=False,
        max_finite=2.0**127,
        min_normal=2.0**-127,
        min_subnormal=2.0**-127,
        max_finite_code=0xFE,
        carrier=np.dtype(np.float32),
        storage=np.dtype(np.uint8),
        elements_per_unit=1,
    )


I1 = _integer(1)
I4 = _integer(4)
I8 = _integer(8)
I16 = _integer(16)
I32 = _integer(32)
I64 = _integer(64)

F64 = _float("f64", 11, 52)
F32 = _float("f32", 8, 23)
TF32 = _float("tf32", 8, 10, storage_bits=32)
BF16 = _float("bf16", 8, 7)
F16 = _float("f16", 5, 10)
# 8 and 4 bit formats: OCP "8-bit Floating Point" and "Microscaling Formats" specifications; the
# FNUZ pair is AMD's and Graphcore's, whose bias is one more than IEEE's.
F8E4M3 = _float("f8e4m3", 4, 3, nan="all_ones")
F8E5M2 = _float("f8e5m2", 5, 2)
F8E4M3FNUZ = _float("f8e4m3fnuz", 4, 3, nan="negative_zero", bias=8)
F8E5M2FNUZ = _float("f8e5m2fnuz", 5, 2, nan="negative_zero", bias=16)
F8E8M0 = _scale()
F4E2M1 = _float("f4e2m1", 2, 1, nan="none")

INTEGERS: tuple[DType, ...] = (I1, I4, I8, I16, I32, I64)
FLOATS: tuple[DType, ...] = (
    F64,
    F32,
    TF32,
    BF16,
    F16,
    F8E4M3,
    F8E5M2,
    F8E4M3FNUZ,
    F8E5M2FNUZ,
    F8E8M0,
    F4E2M1,
)

DTYPES: Mapping[str, DType] = MappingProxyType({d.name: d for d in (*INTEGERS, *FLOATS)})
"""Every dtype by name."""


def dtype_named(name: str) -> DType:
    """Return the dtype called `name`; KeyError when there is none."""
    return DTYPES[name]


_NUMPY_NAMES: Mapping[str, DType] = MappingProxyType(
    {
        "bool": I1,
        "int8": I8,
        "int16": I16,
        "int32": I32,
        "int64": I64,
        "uint8": I8,
        "uint16": I16,
        "uint32": I32,
        "uint64": I64,
        "float16": F16,
        "float32": F32,
        "float64": F64,
    }
)

# Names that ml_dtypes registers; the first name of a dtype is the one that numpy_dtype gives back.
_ML_DTYPES_NAMES: Mapping[str, DType] = MappingProxyType(
    {
        "int4": I4,
        "uint4": I4,
        "bfloat16": BF16,
        "float8_e4m3fn": F8E4M3,
        "float8_e5m2": F8E5M2,
        "float8_e4m3fnuz": F8E4M3FNUZ,
        "float8_e5m2fnuz": F8E5M2FNUZ,
        "float8_e8m0fnu": F8E8M0,
        "float4_e2m1fn": F4E2M1,
    }
)


def from_numpy(dtype: DTypeLike) -> DType:
    """Return the dtype of a user's array whose NumPy dtype is `dtype`.

    Unsigned NumPy integers give the signless integer of the same width. No NumPy dtype gives tf32:
    its arrays are float32. TypeError when there is no such element type.
    """
    name = np.dtype(dtype).name
    found = _NUMPY_NAMES.get(name) or _ML_DTYPES_NAMES.get(name)
    if found is None:
        raise TypeError(f"no tile element type corresponds to the NumPy dtype {name}")
    return found


def numpy_dtype(dtype: DType) -> NumpyDType:
    """Return the NumPy dtype of a user's array of `dtype`: signed integers, float32 for tf32.

    The 4-bit types give ml_dtypes' dtypes, which hold one element per byte; packed buffers are
    uint8.
    """
    if dtype is TF32:
        return np.dtype(np.float32)
    for name, candidate in _NUMPY_NAMES.items():
        if candidate is dtype:
            return np.dtype(name)
    for name, candidate in _ML_DTYPES_NAMES.items():
        if candidate is dtype:
            return np.dtype(getattr(_ml_dtypes(), name))
    raise TypeError(f"{dtype} has no NumPy dtype")


def _ml_dtypes() -> ModuleType:
    # Imported on use: it costs more than the rest of this module, and most programs never need it.
    import ml_dtypes

    return ml_dtypes
