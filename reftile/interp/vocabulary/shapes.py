"""Words of meanings: making tiles and moving their elements.

They move any elements, and so also the masks that say which elements are poison. Shapes are those
of the tile; whatever axes an array has in front of them are batch axes. Axes are negative.
"""

from __future__ import annotations

from math import prod

import numpy as np

from reftile.interp.values import Array, Mask
from reftile.ir.attributes import Dense
from reftile.ir.dtypes import DType
from reftile.ir.integers import to_unsigned, wrap

Shape = tuple[int, ...]


def constant(value: Dense) -> Array:
    """The values of a literal."""
    return value.values()


def iota(count: int, dtype: DType) -> Array:
    """0, 1, ..., count - 1."""
    return wrap(np.arange(count, dtype=np.int64), dtype)


def select(condition: Array, if_true: Array, if_false: Array) -> Array:
    """if_true where condition holds, else if_false."""
    return np.where(condition, if_true, if_false)


def spread(source: Array, shape: Shape) -> Array:
    """A scalar with as many axes of extent 1 as `shape` has."""
    return source[(..., *(None,) * len(shape))]


def batch_of(source: Array, rank: int) -> Shape:
    """The batch axes of an array that holds tiles of `rank`."""
    return source.shape[: source.ndim - rank]


def broadcast(source: Array, shape: Shape) -> Array:
    """Axes of extent 1 repeated to `shape`."""
    return np.broadcast_to(source, batch_of(source, len(shape)) + shape)


def reshape(source: Array, shape: Shape, target: Shape) -> Array:
    """The elements in row-major order with other extents."""
    return source.reshape(batch_of(source, len(shape)) + target)


def permute(source: Array, permutation: Shape) -> Array:
    """Axis i of the result is axis permutation[i] of the tile."""
    batch = source.ndim - len(permutation)
    return source.transpose(*range(batch), *(batch + axis for axis in permutation))


def cat(lhs: Array, rhs: Array, axis: int) -> Array:
    """Return lhs and behind it rhs along `axis`."""
    lhs, rhs = _same_axes_but(axis, lhs, rhs)
    return np.concatenate((lhs, rhs), axis=axis)


def _same_axes_but(axis: int, lhs: Array, rhs: Array) -> tuple[Array, Array]:
    """Both operands with the same extents in front of and behind `axis`."""
    left, right = list(lhs.shape), list(rhs.shape)
    left[axis] = right[axis] = 1
    common = np.broadcast_shapes(tuple(left), tuple(right))

    def expanded(source: Array) -> Array:
        shape = list(common)
        shape[axis] = source.shape[axis]
        return np.broadcast_to(source, tuple(shape))

    return expanded(lhs), expanded(rhs)


# Parts of tiles


def extract(source: Array, indices: tuple[Array, ...], shape: Shape, part: Shape) -> Array:
    """The part of a tile that `indices` name, counted in parts; any part where there is none."""
    counts = _part_counts(shape, part)
    if all(index.ndim == 0 for index in indices):
        places = [
            _in_range(int(index), count) for index, count in zip(indices, counts, strict=True)
        ]
        slices = (slice(p * e, (p + 1) * e) for p, e in zip(places, part, strict=True))
        return source[(..., *slices)]
    number = _part_number(indices, counts)
    parts = _cut(source, shape, part)
    batch = np.broadcast_shapes(batch_of(parts, len(part) + 1), number.shape)
    parts = np.broadcast_to(parts, batch + parts.shape[parts.ndim - len(part) - 1 :])
    number = np.broadcast_to(number, batch)[(..., *(None,) * (len(part) + 1))]
    axis = -len(part) - 1
    return np.take_along_axis(parts, number, axis=axis).squeeze(axis)


def insert(
    source: Array, destination: Array, indices: tuple[Array, ...], shape: Shape, part: Shape
) -> Array:
    """`destination` with the part that `indices` name replaced by `source`."""
    counts = _part_counts(shape, part)
    parts = _cut(destination, shape, part)
    number = _part_number(indices, counts)
    chosen = np.arange(prod(counts)) == number[..., None]
    replaced = np.where(
        chosen[(..., *(None,) * len(part))], np.expand_dims(source, -len(part) - 1), parts
    )
    return _join(replaced, shape, part)


def part_outside(indices: tuple[Array, ...], shape: Shape, part: Shape) -> Mask:
    """Where indices, read as unsigned, name no part; spread over a part's or a tile's axes."""
    outside = np.zeros((), np.bool_)
    for index, count in zip(indices, _part_counts(shape, part), strict=True):
        outside = outside | (index < 0) | (index >= count)
    return spread(np.asarray(outside), shape)


def _part_counts(shape: Shape, part: Shape) -> Shape:
    return tuple(extent // size for extent, size in zip(shape, part, strict=True))


def _in_range(index: int, count: int) -> int:
    return min(max(index, 0), count - 1)


def _part_number(indices: tuple[Array, ...], counts: Shape) -> Array:
    """The row-major number of the part, with indices that name none moved to the nearest."""
    number = np.zeros((), np.int64)
    for index, count in zip(indices, counts, strict=True):
        number = number * count + np.clip(index, 0, count - 1)
    return np.asarray(number)


def _cut(source: Array, shape: Shape, part: Shape) -> Array:
    """The parts of a tile along a new axis in front of the tile's."""
    rank, batch = len(shape), batch_of(source, len(shape))
    counts = _part_counts(shape, part)
    split = source.reshape(
        batch + tuple(e for pair in zip(counts, part, strict=True) for e in pair)
    )
    first = len(batch)
    order = [
        *range(first),
        *range(first, first + 2 * rank, 2),
        *range(first + 1, first + 2 * rank, 2),
    ]
    return split.transpose(order).reshape((*batch, prod(counts), *part))


def _join(parts: Array, shape: Shape, part: Shape) -> Array:
    """The inverse of `_cut`."""
    rank, batch = len(shape), batch_of(parts, len(part) + 1)
    first = len(batch)
    split = parts.reshape(batch + _part_counts(shape, part) + part)
    order = [*range(first), *(first + i + j * rank for i in range(rank) for j in (0, 1))]
    return split.transpose(order).reshape(batch + shape)


# Elements by index


def gather(source: Array, indices: Array, dtype: DType, axis: int) -> Array:
    """Elements chosen along `axis`; an index out of range chooses the last one."""
    extent = source.shape[axis]
    wide = np.minimum(to_unsigned(indices, dtype), np.uint64(extent - 1)).astype(np.int64)
    return take_along(source, wide, axis)


def take_along(source: Array, positions: Array, axis: int) -> Array:
    """The elements at signed positions in range along `axis`."""
    source, positions = _same_axes_but(axis, source, positions)
    return np.take_along_axis(source, positions, axis=axis)


def index_outside(indices: Array, dtype: DType, extent: int) -> Mask:
    """Where an index, read as unsigned, is not below the extent."""
    return np.asarray(to_unsigned(indices, dtype) >= np.uint64(extent))
