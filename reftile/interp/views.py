"""Views at run time: strided arrays over buffers, and the tiles cut out of them."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from math import prod
from typing import NoReturn

import numpy as np
from numpy.typing import NDArray

from reftile.interp.memory import Buffer, Memory, Places, memory_dtype, resolve
from reftile.interp.shadow import Grid
from reftile.interp.values import Array, Mask
from reftile.ir.dtypes import F32, DType
from reftile.ir.numbers import convert
from reftile.ir.types import (
    GatherScatterViewType,
    PartitionViewType,
    StridedViewType,
    TensorViewType,
    TileViewType,
)

Index = tuple[int, ...]
Fault = Callable[[str, str, int, int], NoReturn]


@dataclass(slots=True, eq=False)
class TensorView:
    """A strided array in memory.

    array: the storage units, if the whole view lies in one buffer and elements are whole units;
        else None, and every access goes element by element (so that only what is touched must be
        there).
    """

    type: TensorViewType
    address: int
    shape: Index
    strides: Index
    buffer: Buffer | None
    array: Array | None


def make_tensor_view(
    memory: Memory, type: TensorViewType, address: int, shape: Index, strides: Index
) -> TensorView:
    """View memory from `address` on; extents and strides in elements."""
    dtype = memory_dtype(type.element)
    unit = dtype.storage.itemsize
    span = sum((d - 1) * s for d, s in zip(shape, strides, strict=True)) + 1
    buffer = memory.find(address, -(-span * unit // dtype.elements_per_unit))
    if buffer is None or dtype.elements_per_unit != 1 or address % unit:
        return TensorView(type, address, shape, strides, buffer, None)
    array = np.ndarray(
        shape,
        dtype.storage,
        buffer.data,
        address - buffer.address,
        tuple(s * unit for s in strides),
    )
    return TensorView(type, address, shape, strides, buffer, array)


@dataclass(slots=True, eq=False)
class TileView:
    """Tiles of a tensor view; everything is in the order of the tile's axes.

    array: of the tensor view, its axes permuted.
    extents, strides: of the tensor, in elements.
    step: elements from one index to the next.
    space: the number of indices along each axis.
    whole: once made, all tiles that lie inside as one array (see `whole_tiles`).
    """

    type: TileViewType
    tensor: TensorView
    dtype: DType
    array: Array | None
    extents: Index
    strides: Index
    step: Index
    space: Index
    grid: Grid | None
    sparse: int = -1
    whole: tuple[Array, Index] | None = None


def whole_tiles(view: TileView) -> tuple[Array, Index]:
    """All whole tiles of a view as one array (index axes, then tile axes), and how many."""
    if view.whole is None:
        array = view.array
        assert array is not None
        tile = view.type.tile
        counts = tuple(
            (e - t) // s + 1 if e >= t else 0
            for e, t, s in zip(view.extents, tile, view.step, strict=True)
        )
        steps = tuple(s * n for s, n in zip(array.strides, view.step, strict=True))
        shape, strides = (*counts, *tile), (*steps, *array.strides)
        view.whole = np.lib.stride_tricks.as_strided(array, shape, strides), counts
    return view.whole


def make_tile_view(type: TileViewType, tensor: TensorView) -> TileView:
    """Cut `tensor` into the tiles of `type`."""
    match type:
        case PartitionViewType():
            dim_map, step, sparse = type.dim_map, type.tile, -1
        case StridedViewType():
            dim_map, step, sparse = type.dim_map, type.traversal, -1
        case GatherScatterViewType():
            dim_map, step, sparse = tuple(range(type.rank)), (1,) * type.rank, type.sparse_dim
        case _:
            raise TypeError(str(type))
    extents = tuple(tensor.shape[d] for d in dim_map)
    strides = tuple(tensor.strides[d] for d in dim_map)
    array = None if tensor.array is None else tensor.array.transpose(dim_map)
    space = tuple(-(-e // s) for e, s in zip(extents, step, strict=True))
    dtype = memory_dtype(type.element)
    grid = None
    if array is not None and tensor.buffer is not None and sparse < 0:
        unit = dtype.storage.itemsize
        grid = Grid(
            tensor.address - tensor.buffer.address,
            unit,
            tuple(s * unit for s in strides),
            tuple(n * s * unit for n, s in zip(step, strides, strict=True)),
            _is_injective(tensor.shape, tensor.strides)
            and all(t <= s for t, s in zip(type.tile, step, strict=True)),
        )
    return TileView(type, tensor, dtype, array, extents, strides, step, space, grid, sparse)


def _is_injective(shape: Index, strides: Index) -> bool:
    """True if strides make it plain that no two elements share an address."""
    reach = 0
    for stride, extent in sorted(zip(strides, shape, strict=True)):
        if extent == 1:
            continue
        if stride <= reach:
            return False
        reach += stride * (extent - 1)
    return True


def region(view: TileView, index: Index) -> tuple[Index, Index]:
    """(origin, extents) of the part of a tile that lies in the tensor, in elements."""
    origin: list[int] = []
    extents: list[int] = []
    for i, step, tile, extent in zip(index, view.step, view.type.tile, view.extents, strict=True):
        first = i * step
        left = extent - first
        origin.append(first)
        extents.append(tile if tile <= left else left)
    return tuple(origin), tuple(extents)


def window(view: TileView, origin: Index, extents: Index) -> Array:
    """The storage units of a region, as a view of memory."""
    assert view.array is not None
    # The dots keep a view of rank 0 a view: without them it would be a copy of its element.
    return view.array[(..., *(slice(o, o + e) for o, e in zip(origin, extents, strict=True)))]


@dataclass(slots=True)
class Elements:
    """The elements of a tile one by one: where they are, for the slow path."""

    addresses: NDArray[np.int64]
    inside: Mask
    nibble: NDArray[np.uint8] | None


def elements(view: TileView, index: Sequence[Array | int]) -> Elements:
    """The address of every element of a tile (flat, row-major), and which lie inside the tensor.

    index: one array per axis: the scalar index, or the row numbers along the sparse axis.
    """
    tile = view.type.tile
    inside = np.ones(tile, np.bool_)
    position = np.zeros(tile, np.int64)
    for axis, extent in enumerate(tile):
        shape = [1] * len(tile)
        shape[axis] = extent
        if axis == view.sparse:
            at = np.asarray(index[axis]).astype(np.int64)
        else:
            at = np.arange(extent, dtype=np.int64) + int(index[axis]) * view.step[axis]
        within = (at >= 0) & (at < view.extents[axis])
        inside &= within.reshape(shape)
        position = position + np.where(within, at * view.strides[axis], 0).reshape(shape)
    flat, mask = position.reshape(-1), inside.reshape(-1)
    if view.dtype.elements_per_unit == 2:
        nibble = (flat % 2).astype(np.uint8)
        return Elements(view.tensor.address + flat // 2, mask, nibble)
    return Elements(view.tensor.address + flat * view.dtype.storage.itemsize, mask, None)


def resolve_elements(memory: Memory, found: Elements, dtype: DType, fault: Fault) -> list[Places]:
    """The places behind the elements that lie inside the tensor; nothing is a run here."""
    where = np.flatnonzero(found.inside)
    parts: list[Places] = []
    if where.size == 0:
        return parts
    size = dtype.storage.itemsize

    def fault_there(rule: str, message: str, position: int, address: int) -> NoReturn:
        fault(rule, message, int(where[position]), address)

    for part in resolve(memory, found.addresses[where], None, size, fault_there):
        if isinstance(part, Places):
            places = Places(part.buffer, part.offsets, where[part.where], size)
        else:
            offsets = part.offset + np.arange(part.count, dtype=np.int64) * size
            places = Places(part.buffer, offsets, where[: part.count], size)
        if found.nibble is not None:
            places.nibble = found.nibble[places.where]
        parts.append(places)
    return parts


def padding_value(view: TileViewType) -> float | None:
    """The value of elements outside the view, in the carrier; None if they are poison."""
    if view.padding is None:
        return None
    return padding_number(view.padding, memory_dtype(view.element))


def padding_number(padding: str, dtype: DType) -> float:
    """The value that a padding is, in the carrier."""
    value = {
        "zero": 0.0,
        "neg_zero": -0.0,
        "nan": float("nan"),
        "pos_inf": float("inf"),
        "neg_inf": float("-inf"),
    }[padding]
    if dtype.is_int or dtype.carrier == np.float64:
        return value
    return float(convert(np.asarray([value], np.float32), F32, dtype)[0])


def volume(extents: Index) -> int:
    """The number of elements of a region; zero if any extent is not positive."""
    return prod(extents) if all(e > 0 for e in extents) else 0
