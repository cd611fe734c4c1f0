"""Shared memory: allocations, the buffers in them, their bytes by layout, and who touched them.

A layout moves whole *chunks* of up to 16 bytes (spec/pipe.md, "Layouts"), so a tile is read by one
gather of chunks. The shadow of an allocation holds, for each of its chunks, which accesses wrote
and read it last, as two numbers of sets (see `order.Order`) in one integer.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import lru_cache
from math import gcd, prod
from typing import Any

import numpy as np
from numpy.typing import NDArray

from reftile.interp.memory import NEVER_WRITTEN, STORED_POISON, Buffer
from reftile.interp.order import Raced
from reftile.interp.pipe.tokens import PipeOrder, Touch
from reftile.interp.values import Array, Tile
from reftile.ir.buffer_layout import BufferLayout, buffer_bytes, parse_layout, swizzled
from reftile.ir.core import Value
from reftile.ir.numbers import decode, encode
from reftile.ir.types import BufferType, RingType

Indices = NDArray[np.int64]
Index3 = tuple[int, int, int]

CHUNKS: dict[int, np.dtype[Any]] = {
    16: np.dtype(np.complex128),
    8: np.dtype(np.uint64),
    4: np.dtype(np.uint32),
    2: np.dtype(np.uint16),
    1: np.dtype(np.uint8),
}
"""Types by size, only to move bytes with."""


@dataclass(frozen=True, slots=True)
class Placement:
    """Where the bytes of a buffer lie, in chunks from its start.

    chunk_bytes: 1 to 16. index: of each chunk, in the order of the buffer's rows in memory.
    end: if the chunks are all from 0 to `end`, else 0. shape: as the elements lie in memory.
    """

    chunk_bytes: int
    index: Indices
    end: int
    is_plain: bool
    shape: tuple[int, ...]
    is_transposed: bool


@lru_cache(maxsize=1024)
def placement(type: BufferType, alignment: int) -> Placement:
    """Work out where the bytes of a buffer lie that begins at a multiple of `alignment` bytes."""
    layout = parse_layout(type.layout) or BufferLayout(0, False, None)
    shape = type.shape[::-1] if layout.transposed else type.shape
    rows, columns = (prod(shape[:-1]), shape[-1]) if shape else (1, 1)
    size = type.dtype.storage.itemsize
    row_bytes = columns * size
    pitch_bytes = (layout.stride or columns) * size
    if layout.span_bytes:
        chunk, height = 16, layout.stride or rows
        row = np.arange(rows, dtype=np.int64)[:, None]
        byte = np.arange(0, row_bytes, chunk, dtype=np.int64)[None, :]
        span = layout.span_bytes
        address = (byte // span * height + row) * span + byte % span
        at = address ^ ((address >> 3) & (span - 16))
        assert swizzled(int(address[-1, -1]), span) == int(at[-1, -1])
    else:
        chunk = gcd(16, row_bytes, alignment, pitch_bytes if rows > 1 else 16)
        row = np.arange(rows, dtype=np.int64)[:, None] * pitch_bytes
        at = row + np.arange(0, row_bytes, chunk, dtype=np.int64)[None, :]
    index = np.asarray(at.reshape(-1) // chunk)
    plain = np.array_equal(index, np.arange(index.size))
    end = index.size if plain or int(index.max()) + 1 == index.size else 0
    index.flags.writeable = False
    return Placement(chunk, index, end, plain, shape, layout.transposed)


class Allocation:
    """The memory of one `alloc_buffer` or `alloc_ring` in one block.

    block: whose it is. address: in the block's shared memory. cells: per `cell_bytes` bytes, the
    sets of accesses that wrote them last (upper half) and read them since (lower half).
    """

    __slots__ = ("address", "block", "buffer", "cell_bytes", "cells", "value")

    def __init__(self, block: Index3, value: Value, address: int, size_bytes: int) -> None:
        self.block = block
        self.value = value
        self.address = address
        self.buffer = Buffer(
            f"%{value.name}", address, np.zeros(-(-size_bytes // 16) * 16, np.uint8), None
        )
        self.buffer.state = np.full(self.buffer.data.size, NEVER_WRITTEN, np.uint8)
        self.cell_bytes = 16
        self.cells = np.zeros(self.buffer.data.size // 16, np.int64)

    def refine(self, cell_bytes: int) -> None:
        """Let cells be no larger than `cell_bytes`."""
        if cell_bytes < self.cell_bytes:
            self.cells = np.repeat(self.cells, self.cell_bytes // cell_bytes)
            self.cell_bytes = cell_bytes


@dataclass(frozen=True, slots=True, eq=False)
class RingPlace:
    """A ring in shared memory: `offset` bytes into its allocation."""

    allocation: Allocation
    offset: int
    type: RingType


@dataclass(frozen=True, slots=True, eq=False)
class Place:
    """A buffer in shared memory: `offset` bytes into its allocation. name: for messages."""

    allocation: Allocation
    offset: int
    type: BufferType
    name: str

    @property
    def placement(self) -> Placement:
        """Where its bytes lie, from its start."""
        return placement(self.type, gcd(16, self.offset))

    def __str__(self) -> str:
        """The buffer as messages name it."""
        end = self.offset + buffer_bytes(self.type) - 1
        return f"{self.name} (bytes {self.offset} to {end} of {self.allocation.buffer.name})"


def read_place(place: Place) -> Tile:
    """The tile in a buffer; bytes without a value make poison."""
    where, buffer = place.placement, place.allocation.buffer
    data = decode(_units(buffer.data, place, where), place.type.dtype)
    if where.is_transposed:
        data = data.T
    if buffer.state is None:
        return Tile(data)
    size = place.type.dtype.storage.itemsize
    state = _moved(buffer.state, place, where).reshape(*where.shape, size)
    poison = np.asarray(state.any(axis=-1))
    if not poison.any():
        return Tile(data)
    return Tile(data, poison.T if where.is_transposed else poison)


def _moved(source: NDArray[np.uint8], place: Place, where: Placement) -> NDArray[np.uint8]:
    first = place.offset // where.chunk_bytes
    chunks = source.view(CHUNKS[where.chunk_bytes])
    if where.is_plain:
        return chunks[first : first + where.end].copy().view(np.uint8)
    return chunks[first + where.index].view(np.uint8)


def _units(source: NDArray[np.uint8], place: Place, where: Placement) -> Array:
    return _moved(source, place, where).view(place.type.dtype.storage).reshape(where.shape)


def write_place(place: Place, tile: Tile) -> None:
    """Store a tile into a buffer."""
    where, buffer = place.placement, place.allocation.buffer
    data = np.broadcast_to(tile.data, place.type.shape)
    if where.is_transposed:
        data = data.T
    units = np.ascontiguousarray(encode(data, place.type.dtype)).reshape(-1)
    _store(buffer.data, place, where, units.view(np.uint8))
    poison = None if tile.is_clean else tile.poison
    if poison is None and buffer.state is None:
        return
    size = place.type.dtype.storage.itemsize
    bad = np.broadcast_to(False if poison is None else poison, place.type.shape)
    state = np.repeat((bad.T if where.is_transposed else bad).reshape(-1), size)
    marks = state.astype(np.uint8) * np.uint8(STORED_POISON)
    _store(buffer.ensure_state(), place, where, marks)
    if poison is None and not buffer.ensure_state().any():
        buffer.state = None


def _store(
    target: NDArray[np.uint8], place: Place, where: Placement, source: NDArray[np.uint8]
) -> None:
    first = place.offset // where.chunk_bytes
    type = CHUNKS[where.chunk_bytes]
    chunks = target.view(type)
    if where.is_plain:
        chunks[first : first + where.end] = source.view(type)
    else:
        chunks[first + where.index] = source.view(type)


class RacedAt(Exception):
    """Two accesses to a buffer race; `offset` is the first such byte from its start."""

    def __init__(self, earlier: Touch, later: Touch, place: Place, offset: int) -> None:
        super().__init__("race")
        self.earlier, self.later = earlier, later
        self.place, self.offset = place, offset


def touch_place(order: PipeOrder, touch: Touch, place: Place) -> None:
    """Record an access to all of a buffer.

    Raises:
        RacedAt: it races with an earlier one.
    """
    if not order.checks:
        return
    where, allocation = place.placement, place.allocation
    order.shared[allocation.block] = order.shared.get(allocation.block, 0) | touch.bit
    allocation.refine(where.chunk_bytes)
    cells, per = allocation.cells, where.chunk_bytes // allocation.cell_bytes
    first = place.offset // allocation.cell_bytes
    at: slice | Indices
    if where.end:
        at = slice(first, first + where.end * per)
    elif per == 1:
        at = first + where.index
    else:
        at = first + (where.index[:, None] * per + np.arange(per)).reshape(-1)
    found = cells[at]
    try:
        cells[at] = _meet_all(order, touch, found)
    except Raced as race:
        cell = first + race.index if isinstance(at, slice) else int(at[race.index])
        earlier, later = race.earlier, race.later
        assert isinstance(earlier, Touch) and isinstance(later, Touch)
        offset = cell * allocation.cell_bytes - place.offset
        raise RacedAt(earlier, later, place, offset) from None


def _meet_all(order: PipeOrder, touch: Touch, cells: Indices) -> int | Indices:
    common = int(cells[0])
    if cells.size == 1 or bool((cells == common).all()):
        return _meet(order, touch, common)
    known, first, inverse = np.unique(cells, return_index=True, return_inverse=True)
    changed = np.empty(known.size, np.int64)
    for i, pair in enumerate(known.tolist()):
        try:
            changed[i] = _meet(order, touch, pair)
        except Raced as race:
            race.index = int(first[i])
            raise
    return np.asarray(changed[inverse.reshape(-1)])


def _meet(order: PipeOrder, touch: Touch, pair: int) -> int:
    writers, readers = order.meet(touch, pair >> 32, pair & 0x7FFFFFFF)
    return writers << 32 | readers


def element_at(place: Place, offset: int) -> tuple[int, ...]:
    """The coordinates of the element whose bytes begin at or before `offset`, or ()."""
    where = place.placement
    found = np.flatnonzero(where.index == offset // where.chunk_bytes)
    if not found.size or not place.type.shape:
        return ()
    size = place.type.dtype.storage.itemsize
    flat = int(found[0]) * where.chunk_bytes // size + offset % where.chunk_bytes // size
    at = tuple(int(i) for i in np.unravel_index(flat, where.shape))
    return at[::-1] if where.is_transposed else at
