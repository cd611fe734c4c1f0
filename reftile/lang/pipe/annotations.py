"""What annotations of pipe kernels say: pointers and numbers, with their types."""

from __future__ import annotations

from typing import Annotated

from reftile.lang.annotations import PointerAnnotation, ScalarAnnotation
from reftile.lang.dtypes import DType, float32, int32, int64


class Pointer:
    """`Pointer[float16]` annotates an array of which the kernel sees the address alone."""

    def __class_getitem__(cls, dtype: DType) -> object:
        return Annotated[object, PointerAnnotation(dtype)]


i32 = Annotated[int, ScalarAnnotation(dtype=int32)]
"""A number of 32 bits."""

i64 = Annotated[int, ScalarAnnotation(dtype=int64)]
"""A number of 64 bits."""

f32 = Annotated[float, ScalarAnnotation(dtype=float32)]
"""A float of 32 bits."""
