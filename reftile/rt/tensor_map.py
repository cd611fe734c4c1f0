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
    name: str = "",
) -> bytes:
    """Return the map of an array: axes innermost first, strides in bytes for all but the first.

    name: of the argument, for messages.

    Raises:
        ReftileError: `cuda.tensor_map`: the address or a stride is no multiple of 16, or an extent
            is zero or too large; the message says which.
    """
    _explain(address, extents, strides, f"`{name}`" if name else "the array")
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
        # One axis has no strides, and the driver refuses an empty list of them (seen on an H200).
        [bindings.cuuint64_t(s) for s in strides or (16,)],
        [bindings.cuuint32_t(b) for b in box],
        [bindings.cuuint32_t(1)] * rank,
        bindings.CUtensorMapInterleave.CU_TENSOR_MAP_INTERLEAVE_NONE,
        pattern,
        bindings.CUtensorMapL2promotion.CU_TENSOR_MAP_L2_PROMOTION_L2_256B,
        getattr(fills, f"CU_TENSOR_MAP_FLOAT_OOB_FILL_{outside}"),
    )
    return ctypes.string_at(int(encoded.getPtr()), MAP_BYTES)


def _explain(address: int, extents: Sequence[int], strides: Sequence[int], name: str) -> None:
    """The driver only says "invalid value"; say which, and what to do."""
    pad = "pad the rows, or copy the array: the copy engine wants 16-byte steps"
    for axis, extent in enumerate(extents):
        if extent == 0:
            raise fail(
                "cuda.empty",
                f"{name} has no elements along axis {len(extents) - 1 - axis}",
                hint="there is nothing to do: do not launch",
            )
        if not 0 < extent <= 1 << 32:
            raise fail("cuda.tensor_map", f"axis {axis} of {name} has an extent of {extent}")
    if address % 16:
        raise fail("cuda.tensor_map", f"{name} begins at {address:#x}, no multiple of 16", hint=pad)
    for axis, stride in enumerate(strides, 1):
        if stride % 16 or not 0 < stride < 1 << 40:
            raise fail(
                "cuda.tensor_map",
                f"axis {axis} of {name} has a stride of {stride} bytes",
                hint=pad,
            )
