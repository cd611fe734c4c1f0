"""Words of meanings: order statistics.

Numbers are ordered by value, zeros being equal and NaN coming last, which is how NumPy orders
floats; equal elements keep the order of their positions.
"""

from __future__ import annotations

import numpy as np

from reftile.interp.values import Array
from reftile.ir.dtypes import DType
from reftile.ir.integers import to_unsigned


def order_keys(source: Array, dtype: DType, signedness: str) -> Array:
    """Numbers that NumPy orders as the elements are ordered."""
    if dtype.is_float:
        return source
    if dtype.bits == 1:
        # Read as signed, True is -1 and the lesser.
        return ~source if signedness == "signed" else source
    return source if signedness == "signed" else source.view(dtype.storage)


def order_along(keys: Array, axis: int, descending: bool) -> Array:
    """The positions, along `axis`, of the elements in order."""
    if not descending:
        return np.argsort(keys, axis=axis, kind="stable")
    # Ascending order of the reversed line, read backwards, keeps equal elements as they were.
    backwards = np.argsort(np.flip(keys, axis), axis=axis, kind="stable")
    return keys.shape[axis] - 1 - np.flip(backwards, axis)


def topk(
    source: Array, dtype: DType, axis: int, count: int, smallest: bool, signedness: str
) -> tuple[Array, Array]:
    """The `count` greatest elements, descending, or least, ascending, and their positions."""
    order = order_along(order_keys(source, dtype, signedness), axis, descending=not smallest)
    first = np.take(order, np.arange(count), axis=axis)
    return np.take_along_axis(source, first, axis=axis), first.astype(np.int32)


def argmax(source: Array, dtype: DType, axis: int, signedness: str) -> Array:
    """The position of the first NaN, or else of the first of the greatest."""
    return np.argmax(order_keys(source, dtype, signedness), axis=axis).astype(np.int32)


def argmin(source: Array, dtype: DType, axis: int, signedness: str) -> Array:
    """The position of the first NaN, or else of the first of the least."""
    return np.argmin(order_keys(source, dtype, signedness), axis=axis).astype(np.int32)


def histogram(source: Array, mask: Array | None, dtype: DType, bins: int, rank: int) -> Array:
    """How many elements equal each number below `bins`, among those where the mask holds."""
    values = to_unsigned(source, dtype)
    counted = values < np.uint64(bins)
    if mask is not None:
        counted = counted & mask
    values, counted = np.broadcast_arrays(values, counted)
    batch = values.shape[: values.ndim - rank]
    lines = int(np.prod(batch, dtype=np.int64))
    counted = counted.reshape(lines, -1)
    # One histogram for all lines, each with bins of its own.
    numbers = values.reshape(lines, -1).astype(np.int64) + np.arange(lines)[:, None] * bins
    counts = np.bincount(numbers[counted], minlength=lines * bins)
    return counts.astype(np.int32).reshape(*batch, bins)
