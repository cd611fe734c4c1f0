"""Words of meanings: matrix products."""

from __future__ import annotations

import numpy as np

from reftile.interp.values import Array, Mask
from reftile.ir.dtypes import F64, DType
from reftile.ir.integers import to_wide
from reftile.ir.numbers import convert


def dot(lhs: Array, rhs: Array, acc: Array, dtype: DType) -> Array:
    """Return lhs @ rhs + acc, with exact products added in f64 and one rounding to `dtype`."""
    total = np.matmul(_contiguous(lhs), _contiguous(rhs))
    if acc.shape == total.shape or acc.ndim == 2:
        np.add(total, acc, out=total)
    else:
        total = total + acc
    return convert(total, F64, dtype)


def _contiguous(values: Array) -> Array:
    # With equal strides for equal shapes the library adds in one order, batched or not.
    return np.ascontiguousarray(values, np.float64)


def dot_int(
    lhs: Array, rhs: Array, acc: Array, dtype: DType, signedness_lhs: str, signedness_rhs: str
) -> Array:
    """Return lhs @ rhs + acc of integers of at most 8 bits, wrapping in 32."""
    left = to_wide(lhs, dtype, signedness_lhs == "signed")
    right = to_wide(rhs, dtype, signedness_rhs == "signed")
    # Products have 16 bits: sums over any k that fits in memory are exact in f64.
    product = np.matmul(_contiguous(left), _contiguous(right)).astype(np.int64)
    return (product + acc).astype(np.int32)


def scale_rows(lhs: Array, scale: Array) -> Array:
    """Each row's blocks of consecutive elements times their scales, exactly (as f64)."""
    return _scaled(lhs, scale, -1)


def scale_columns(rhs: Array, scale: Array) -> Array:
    """Each column's blocks of consecutive elements times their scales, exactly (as f64)."""
    return _scaled(rhs, scale, -2)


def _scaled(source: Array, scale: Array, axis: int) -> Array:
    block = source.shape[axis] // scale.shape[axis]
    return source * np.repeat(scale.astype(np.float64), block, axis=axis)


def expand_sparse(kept: Array, metadata: Array) -> Array:
    """The matrix of which two elements in four are `kept`, at the places that `metadata` names."""
    groups: Array = np.arange(metadata.shape[-1] * 2, dtype=np.int64) * 4
    columns: Array = np.stack([place + groups for place in _places(metadata)], axis=-1)
    columns = columns.reshape((*metadata.shape[:-1], -1))
    batch = np.broadcast_shapes(kept.shape[:-1], columns.shape[:-1])
    dense = np.zeros((*batch, kept.shape[-1] * 2), kept.dtype)
    columns = np.broadcast_to(columns, (*batch, columns.shape[-1]))
    np.put_along_axis(dense, columns, np.broadcast_to(kept, columns.shape), axis=-1)
    return dense


def sparse_places_wrong(metadata: Array) -> Mask:
    """Rows of which some group has its places out of order; one column, for all of a result's."""
    first, second = _places(metadata)
    return np.any(first >= second, axis=-1, keepdims=True)


def _places(metadata: Array) -> tuple[Array, Array]:
    """The places of the first and the second element kept, one per group of four."""
    codes = np.stack((metadata & 0xF, (metadata >> 4) & 0xF), axis=-1)
    codes = codes.reshape(*metadata.shape[:-1], -1).astype(np.int64)
    return codes & 3, codes >> 2
