"""Tiles between registers and shared memory: matrices of 8x8 if layouts allow, else vectors."""

from __future__ import annotations

import functools
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from functools import cache

import numpy as np
from numpy.typing import NDArray

from reftile.ir import ops
from reftile.ir.buffer_layout import bit_offset
from reftile.ir.core import Op, Value
from reftile.ir.types import BufferType, TileType
from reftile.layout.cost import bank_conflicts
from reftile.layout.linear import Layout, LayoutError
from reftile.lower.context import I32, Context, Number, bit_steps
from reftile.lower.fragments import is_first_copy, layout_of
from reftile.lower.lower_products import buffer_layout

Table = NDArray[np.int64]


@dataclass(frozen=True, slots=True)
class Spread:
    """Where the elements of a fragment lie in a buffer, in bytes from its start.

    registers: for register r of lane 0 of warp 0. lanes, warps: what each bit of their numbers adds
    by exclusive or; or as a sum, if `added`: rows may be any number of bytes apart.
    """

    registers: tuple[int, ...]
    lanes: tuple[int, ...]
    warps: tuple[int, ...]
    added: bool = False

    @property
    def vector_bytes(self) -> int:
        """The widest access whose address is aligned in all threads."""
        if not self.added:
            return 16
        together = functools.reduce(int.__or__, (*self.lanes, *self.warps), 16)
        return together & -together

    @property
    def mask(self) -> int:
        """All bits that depend on the thread by exclusive or."""
        mask = 0
        if self.added:
            return mask
        for step in (*self.lanes, *self.warps):
            mask |= step
        return mask


def spread_of(layout: str, buffer: BufferType) -> Spread | None:
    """Find how a fragment lies in a buffer; None if it is not linear in lanes and warps."""
    return _spread(layout_of(layout), buffer)


@cache
def _spread(held: Layout, buffer: BufferType) -> Spread | None:
    offsets = _byte_offsets(buffer)
    extents = [held.extent(p) for p in ("register", "lane", "warp")]
    flat = np.zeros((1,), np.int64)
    for index, extent in zip(
        held.index(
            register=np.arange(extents[0])[:, None, None],
            lane=np.arange(extents[1])[None, :, None],
            warp=np.arange(extents[2])[None, None, :],
        ),
        held.shape,
        strict=True,
    ):
        flat = flat * extent + index
    table = offsets.reshape(-1)[np.broadcast_to(flat, extents)]
    lanes, warps = _steps(table[0, :, 0]), _steps(table[0, 0, :])
    rebuilt = (
        table[:, :1, :1]
        ^ _apply(lanes, extents[1])[None, :, None]
        ^ _apply(warps, extents[2])[None, None, :]
    )
    registers = tuple(table[:, 0, 0].tolist())
    if np.array_equal(rebuilt, table):
        return Spread(registers, lanes, warps)
    by_lane, by_warp = table[:1, :, :1] - table[0, 0, 0], table[:1, :1, :] - table[0, 0, 0]
    steps = bit_steps(by_lane.ravel().tolist()), bit_steps(by_warp.ravel().tolist())
    if None in steps or not np.array_equal(table[:, :1, :1] + by_lane + by_warp, table):
        return None
    return Spread(registers, steps[0] or (), steps[1] or (), added=True)


@cache
def _byte_offsets(buffer: BufferType) -> Table:
    shape = buffer.shape
    return np.array(
        [bit_offset(buffer, tuple(map(int, index))) // 8 for index in np.ndindex(*shape)], np.int64
    ).reshape(shape)


def _steps(values: Table) -> tuple[int, ...]:
    return tuple(int(values[1 << i] ^ values[0]) for i in range((len(values) - 1).bit_length()))


def _apply(steps: tuple[int, ...], extent: int) -> Table:
    numbers = np.arange(extent)
    total = np.zeros(extent, np.int64)
    for i, step in enumerate(steps):
        total ^= np.where(numbers >> i & 1, step, 0)
    return total


@cache
def passes_of(held: Layout, bits: int, buffer: BufferType) -> int:
    """How many passes through shared memory all warps take to load or store a fragment.

    Matrices of 8x8 meet no bank twice in the buffers that hold them. `UNFIT` if the fragment does
    not fit the buffer.
    """
    spread = _spread(held, buffer)
    if spread is None or bits < 8:
        return UNFIT
    if bits == 16 and (_are_matrices(spread) or _are_turned_matrices(spread)):
        return len(spread.registers) * held.extent("warp") // 2
    try:
        return bank_conflicts(buffer_layout(buffer), held, bits).wavefronts
    except LayoutError:
        return UNFIT


UNFIT = 1 << 24
"""Passes of what cannot be done: more than any fragment takes."""


# Stores


def lower_store(context: Context, op: Op) -> None:
    """A scalar by each thread that comes along; a fragment by matrices or vectors."""
    assert isinstance(op, ops.StoreBuffer)
    place = context.place(op.destination)
    address = _in_block(context, place.address, op.rank)
    kind = op.tile.type
    assert isinstance(kind, TileType)
    tile = context.scalar(op.tile)
    remote = op.rank is not None
    if kind.size == 1:
        if kind.shape:
            tile = context.value(ops.Reshape, (tile,), TileType((), kind.element), "scalar")
        _store_scalar(context, tile, context.number(address), remote)
    else:
        store_fragment(context, tile, kind, place.type, address, remote)


def _in_block(context: Context, address: Number, rank: Value | None) -> Number:
    """The same place in another block of the cluster, if one is named."""
    if rank is None:
        return address
    arguments = (context.number(address), context.scalar(rank))
    return context.value(ops.MapShared, arguments, I32, "remote")


def store_fragment(
    context: Context,
    tile: Value,
    kind: TileType,
    buffer: BufferType,
    address: Number,
    remote: bool = False,
) -> None:
    """Store a fragment to a buffer at an address.

    Raises:
        ReftileError: the fragment's lanes and warps do not lie linearly in the buffer.
    """
    spread = spread_of(kind.layout, buffer)
    if spread is None:
        raise context.unsupported(f"a tile held as {kind.layout} does not fit {buffer}")
    whole = kind.dtype.bits == 16 and _are_matrices(spread) and _has_matrices(context)
    if whole and not remote and is_first_copy(context, layout_of(kind.layout)) is None:
        _store_matrices(context, tile, spread, address)
    else:
        _store_vectors(context, tile, kind, spread, address, remote)


def _has_matrices(context: Context) -> bool:
    return context.source.attributes["target"] == "sm_90a"


def _store_scalar(context: Context, value: Value, address: Value, remote: bool) -> None:
    def store() -> None:
        context.emit(ops.StoreShared, (value, address), cluster=remote or None)

    if context.role.is_elected:
        store()
    else:
        context.when(context.lead(), store)


def _are_matrices(spread: Spread) -> bool:
    """True if groups of eight registers are four 8x8 matrices with rows of 16 contiguous bytes.

    Source: PTX ISA 9.2, stmatrix: thread 4 i + t holds elements 2 t and 2 t + 1 of row i.
    """
    registers = spread.registers
    if spread.added or len(registers) % 8 or spread.lanes[:2] != (4, 8):
        return False
    if any(registers[i + 1] != registers[i] ^ 2 for i in range(0, len(registers), 2)):
        return False
    first = registers[0]
    steps = [registers[2] ^ first, registers[4] ^ first]
    return all(
        registers[g + 2] ^ registers[g] == steps[0]
        and registers[g + 4] ^ registers[g] == steps[1]
        and registers[g + 6] ^ registers[g] == steps[0] ^ steps[1]
        for g in range(0, len(registers), 8)
    )


def _store_matrices(context: Context, tile: Value, spread: Spread, address: Number) -> None:
    registers = spread.registers
    rows = _matrix_rows(spread)
    inner = thread_offset(context, rows, spread.warps)
    mask = _mask((*rows, *spread.warps))
    for first in range(0, len(registers), 8):
        at = context.exclusive_or(inner, registers[first] & mask, "chunk")
        row = context.number(context.add(at, address, "row"))
        context.emit(ops.StoreMatrix, (tile, row), first=first, offset=registers[first] & ~mask)


def thread_offset(
    context: Context, lanes: tuple[int, ...], warps: tuple[int, ...], added: bool = False
) -> Number:
    """The part of an offset that depends on the thread, computed once in the role."""
    lane = context.lane()
    warp = context.warp_in_role() if any(warps) else None

    def build() -> Value:
        if added:
            total = context.weighted(lane, lanes, "by_lane")
            by_warp = context.weighted(warp, warps, "by_warp") if warp is not None else 0
            return context.number(context.add(total, by_warp, "inner"))
        total = context.linear(lane, lanes, "by_lane")
        if warp is not None:
            total = context.exclusive_or(total, context.linear(warp, warps, "by_warp"), "inner")
        return context.number(total)

    return context.hoist(("inner", lanes, warps, added), build)


def _store_vectors(
    context: Context,
    tile: Value,
    kind: TileType,
    spread: Spread,
    address: Number,
    remote: bool,
) -> None:
    if kind.dtype.bits < 8:
        raise context.unsupported(f"storing {kind}: its elements are no whole bytes")
    inside = is_first_copy(context, layout_of(kind.layout))
    space = "cluster" if remote else "shared"
    size = kind.dtype.bits // 8
    inner = thread_offset(context, spread.lanes, spread.warps, spread.added)
    mask, registers = spread.mask, spread.registers
    first = 0
    while first < len(registers):
        count = _run(spread, first, size)
        at = context.exclusive_or(inner, registers[first] & mask, "chunk")
        where = context.number(context.add(at, address, "at"))
        offset = registers[first] & ~mask
        context.emit(
            ops.StoreVector,
            (tile, where, inside),
            first=first,
            count=count,
            offset=offset,
            space=space,
        )
        first += count


def _run(spread: Spread, first: int, size: int) -> int:
    """How many registers from `first` on lie one behind another, at most 16 bytes."""
    registers, count = spread.registers, 1
    while (
        2 * count * size <= spread.vector_bytes
        and first + 2 * count <= len(registers)
        and registers[first] % (2 * count * size) == 0
        and all(registers[first + i] == registers[first] + i * size for i in range(2 * count))
    ):
        count *= 2
    return count


# Loads


def lower_load(context: Context, op: Op) -> None:
    """A scalar by every thread; a fragment of 16-bit elements by matrices, others by vectors."""
    assert isinstance(op, ops.LoadBuffer)
    place = context.place(op.source)
    kind = op.result.type
    assert isinstance(kind, TileType)
    address = _in_block(context, place.address, op.rank)
    remote = op.rank is not None
    name = op.result.name
    if kind.size == 1:
        scalar, at = TileType((), kind.element), context.number(address)
        found = context.value(ops.LoadShared, (at,), scalar, name, cluster=remote or None)
        if kind.shape:
            found = context.value(ops.Reshape, (found,), kind, name)
    else:
        found = load_fragment(context, kind, name, place.type, address, remote)
    context.values[op.result] = found


def load_fragment(
    context: Context,
    kind: TileType,
    name: str,
    buffer: BufferType,
    address: Number,
    remote: bool = False,
) -> Value:
    """Load a fragment from a buffer at an address.

    Raises:
        ReftileError: the fragment's lanes and warps do not lie linearly in the buffer.
    """
    spread = spread_of(kind.layout, buffer)
    if spread is None:
        raise context.unsupported(f"a tile held as {kind.layout} does not fit {buffer}")
    turned = _are_turned_matrices(spread)
    if kind.dtype.bits != 16 or remote or not (turned or _are_matrices(spread)):
        return _load_vectors(context, kind, name, spread, address, remote)
    rows = _turned_rows(spread) if turned else _matrix_rows(spread)
    which, offsets, addresses = _starts(context, spread.registers[::8], rows, spread.warps, address)
    return context.value(
        ops.LoadMatrix,
        (addresses,),
        kind,
        name,
        which=which,
        offsets=offsets,
        transpose=turned or None,
    )


def _starts(
    context: Context,
    starts: tuple[int, ...],
    lanes: tuple[int, ...],
    warps: tuple[int, ...],
    address: Number,
    added: bool = False,
) -> tuple[tuple[int, ...], tuple[int, ...], tuple[Value, ...]]:
    """For each instruction: which address, and the bytes from it. Bits of the thread's are few."""
    inner = thread_offset(context, lanes, warps, added)
    mask = 0 if added else _mask((*lanes, *warps))
    low = list(dict.fromkeys(start & mask for start in starts))
    addresses = tuple(
        context.number(context.add(context.exclusive_or(inner, part, "chunk"), address, "row"))
        for part in low
    )
    which = tuple(low.index(start & mask) for start in starts)
    return which, tuple(start & ~mask for start in starts), addresses


def _load_vectors(
    context: Context, kind: TileType, name: str, spread: Spread, address: Number, remote: bool
) -> Value:
    if kind.dtype.bits < 8:
        raise context.unsupported(f"loading {kind}: its elements are no whole bytes")
    registers, size = spread.registers, kind.dtype.bits // 8
    count = len(registers)
    for first in range(0, len(registers), count):
        count = min(count, _run(spread, first, size))
    while any(_run(spread, first, size) < count for first in range(0, len(registers), count)):
        count //= 2
    which, offsets, addresses = _starts(
        context, registers[::count], spread.lanes, spread.warps, address, spread.added
    )
    return context.value(
        ops.LoadVector,
        (addresses, ()),
        kind,
        name,
        count=count,
        which=which,
        offsets=offsets,
        space="cluster" if remote else "shared",
    )


def _matrix_rows(spread: Spread) -> tuple[int, ...]:
    """Lane l gives the address of row l % 8 of matrix l / 8: its row, then which registers."""
    registers = spread.registers
    pairs = registers[2] ^ registers[0], registers[4] ^ registers[0]
    return (*spread.lanes[2:5], *pairs)


def _are_turned_matrices(spread: Spread) -> bool:
    """True if groups of eight registers are four 8x8 matrices whose columns are contiguous.

    Source: PTX ISA 9.2, ldmatrix.trans: thread 4 i + t holds rows 2 t and 2 t + 1 of column i.
    """
    registers = spread.registers
    if spread.added or len(registers) % 8 or spread.lanes[2:5] != (2, 4, 8):
        return False
    steps = [registers[1 << i] ^ registers[0] for i in range(3)]
    return all(
        registers[g + i] == registers[g] ^ exclusive_sum(steps[b] for b in range(3) if i >> b & 1)
        for g in range(0, len(registers), 8)
        for i in range(8)
    )


def exclusive_sum(steps: Iterable[int]) -> int:
    """The exclusive or of all steps."""
    total = 0
    for step in steps:
        total ^= step
    return total


def _turned_rows(spread: Spread) -> tuple[int, ...]:
    """As `_matrix_rows` where a row of a matrix runs along the columns of the fragment."""
    registers = spread.registers
    pairs = registers[2] ^ registers[0], registers[4] ^ registers[0]
    return (registers[1] ^ registers[0], *spread.lanes[:2], *pairs)


def _mask(steps: tuple[int, ...]) -> int:
    mask = 0
    for step in steps:
        mask |= step
    return mask


TRANSFERS: dict[str, Callable[[Context, Op], None]] = {
    "store_buffer": lower_store,
    "load_buffer": lower_load,
}
