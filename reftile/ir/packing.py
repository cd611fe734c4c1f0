"""Elements in memory: encodings to and from buffers, two 4-bit elements to the byte."""

from __future__ import annotations

import numpy as np

from reftile.ir.dtypes import DType
from reftile.ir.numbers import decode, encode
from reftile.ir.rounding import Array


def pack_nibbles(codes: Array) -> Array:
    """Return bytes of two codes each along the last axis, the first in the low nibble.

    An odd count leaves the upper nibble of the last byte zero.
    """
    codes = np.asarray(codes, np.uint8)
    if codes.ndim == 0:
        codes = codes.reshape(1)
    if codes.shape[-1] % 2:
        codes = np.concatenate([codes, np.zeros((*codes.shape[:-1], 1), np.uint8)], axis=-1)
    low = codes[..., 0::2] & np.uint8(0xF)
    return low | (codes[..., 1::2] << np.uint8(4))


def unpack_nibbles(packed: Array, count: int | None = None) -> Array:
    """Return the codes in packed bytes, low nibble first; the first `count` along the last axis."""
    packed = np.asarray(packed, np.uint8)
    codes = np.empty((*packed.shape[:-1], packed.shape[-1] * 2), np.uint8)
    codes[..., 0::2] = packed & np.uint8(0xF)
    codes[..., 1::2] = packed >> np.uint8(4)
    return codes if count is None else codes[..., :count]


def to_units(values: Array, dtype: DType) -> Array:
    """Return carrier values as storage units of memory, packed along the last axis."""
    bits = encode(values, dtype)
    return pack_nibbles(bits) if dtype.elements_per_unit == 2 else bits


def from_units(units: Array, dtype: DType, count: int | None = None) -> Array:
    """Return the carrier values in storage units; the first `count` along the last axis."""
    if dtype.elements_per_unit == 2:
        return decode(unpack_nibbles(units, count), dtype)
    return decode(units if count is None else np.asarray(units)[..., :count], dtype)


def to_bytes(values: Array, dtype: DType) -> bytes:
    """Return a tile's elements in row-major order as little-endian memory."""
    units = to_units(np.asarray(values).reshape(-1), dtype)
    return units.astype(units.dtype.newbyteorder("<")).tobytes()


def from_bytes(data: bytes, dtype: DType, shape: tuple[int, ...]) -> Array:
    """Return the tile of `shape` whose elements, row-major and little-endian, are `data`."""
    units = np.frombuffer(data, dtype.storage.newbyteorder("<")).astype(dtype.storage)
    count = 1
    for size in shape:
        count *= size
    return from_units(units, dtype, count).reshape(shape)
