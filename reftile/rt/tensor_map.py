"""Tensor maps: the 128 bytes that describe boxes of an array to the copy engine.

Source: CUDA driver API, cuTensorMapEncodeTiled.
"""

from __future__ import annotations

import ctypes
from collections.abc import Sequence

from reftile.ir.diagnostics import fail
from reftile.rt import driver

MAP_BYTES = 128
_DTYPES = {
    "uint8": "UINT8",
    "uint16": "UINT16",
    "int32": "INT32",
    "int64": "INT64",
    "float16": "FLOAT16",
    "bfloat16": "BFLOAT16",
    "float32": "FLOAT32",
    "float64": "FLOAT64",
}


def encode(
    address: int,
    dtype: str,
    extents: Sequence[int],
    strides: Sequence[int],
    box: Sequence[int],
    swizzle: int,
    fill: str,
) -> bytes:
    """Return the map of an array: axes innermost first, strides in bytes for all but the first.

    Raises:
        ReftileError: `cuda.tensor_map`: the address or a stride is no multiple of 16, or an extent
            is zero or too large; the message says which.
    """
    _explain(address, extents, strides)
    bindings = driver.bindings()
    rank = len(extents)
    types, swizzles = bindings.CUtensorMapDataType, bindings.CUtensorMapSwizzle
    kind = getattr(types, f"CU_TENSOR_MAP_DATA_TYPE_{_DTYPES[dtype]}")
    pattern = getattr(
        swizzles, "CU_TENSOR_MAP_SWIZZLE_" + (f"{swizzle}B" if swizzle > 16 else "NONE")
    )
    fills = bindings.CUtensorMapFloatOOBfill
    outside = "NAN_REQUEST_ZERO_FMA" if fill == "nan" else "NONE"
    encoded = driver.call(
        "describing an array to the copy engine",
        "cuTensorMapEncodeTiled",
        kind,
        rank,
        address,
        [bindings.cuuint64_t(e) for e in extents],
        [bindings.cuuint64_t(s) for s in strides],
        [bindings.cuuint32_t(b) for b in box],
        [bindings.cuuint32_t(1)] * rank,
        bindings.CUtensorMapInterleave.CU_TENSOR_MAP_INTERLEAVE_NONE,
        pattern,
        bindings.CUtensorMapL2promotion.CU_TENSOR_MAP_L2_PROMOTION_L2_256B,
        getattr(fills, f"CU_TENSOR_MAP_FLOAT_OOB_FILL_{outside}"),
    )
    return ctypes.string_at(int(encoded.getPtr()), MAP_BYTES)


def _explain(address: int, extents: Sequence[int], strides: Sequence[int]) -> None:
    """The driver only says "invalid value"; say which, and what to do."""
    hint = "pad the rows, or copy the array: the copy engine wants 16-byte steps"
    if address % 16:
        raise fail(
            "cuda.tensor_map", f"the array begins at {address:#x}, no multiple of 16", hint=hint
        )
    for axis, stride in enumerate(strides, 1):
        if stride % 16 or not 0 < stride < 1 << 40:
            raise fail("cuda.tensor_map", f"axis {axis} has a stride of {stride} bytes", hint=hint)
    for axis, extent in enumerate(extents):
        if not 0 < extent <= 1 << 32:
            raise fail("cuda.tensor_map", f"axis {axis} has an extent of {extent}")
