"""Accesses of threads: elements, vectors of fragments, matrices of 8 by 8; bank conflicts."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from reftile.interp.atomics import combine
from reftile.interp.machine import Block
from reftile.interp.memory import STORED_POISON, Buffer
from reftile.interp.plan import Apply, Maker, Plan
from reftile.interp.simt.barriers import place_of, warp_of
from reftile.interp.simt.clocks import LANES, Indices
from reftile.interp.simt.fragments import is_fragment, register_count, tile_type
from reftile.interp.simt.machine import RANK_SHIFT, SHARED_BASE, Home, Warp
from reftile.interp.simt.shadow import Shadow
from reftile.interp.values import Mask, Tile
from reftile.interp.views import padding_number
from reftile.ir.core import Op
from reftile.ir.dtypes import DType
from reftile.ir.numbers import decode, encode
from reftile.ir.types import TileType
from reftile.layout.cost import count_conflicts

Bytes = NDArray[np.uint8]
MATRIX_ROW_BYTES = 16


# Addresses


def _make_address(op: Op, plan: Plan[Block]) -> Apply[Block]:
    offset = op.attributes["offset"]
    assert isinstance(offset, int)
    found = (Tile(np.array(SHARED_BASE + offset, np.int32)),)
    return lambda block, values: found


def _make_map(op: Op, plan: Plan[Block]) -> Apply[Block]:
    def apply(block: Block, values: list[Any]) -> Sequence[Any]:
        warp = warp_of(block)
        addresses = warp.each(values[0], "an address")
        ranks = warp.each(values[1], "a rank")
        blocks = len(warp.home.cluster.homes)
        bad = warp.mask & ((ranks < 0) | (ranks >= blocks))
        if bad.any():
            rank = int(ranks[bad][0])
            warp.fault("simt.rank", f"rank {rank} is outside a cluster of {blocks} blocks")
        inside = addresses & ((1 << RANK_SHIFT) - 1)
        return (Tile((inside | (ranks + 1) << RANK_SHIFT).astype(np.int32)),)

    return apply


# Bytes


def access_shared(
    warp: Warp,
    addresses: Indices,
    size_bytes: int,
    lanes: Indices,
    writes: bool,
    cluster: bool = False,
) -> tuple[Home, Indices]:
    """Check an access of each lane to `size_bytes` bytes, and give the block and the offsets.

    cluster: it may be to another block's memory.
    """
    what = "an access"
    ranks = addresses >> RANK_SHIFT
    if (ranks != ranks[0]).any():
        warp.fault("simt.uniform", "one instruction reaches several blocks of the cluster")
    low, high = int(addresses.min()), int(addresses.max())
    home, _ = place_of(warp, low, what, size_bytes, cluster)
    place_of(warp, high, what, size_bytes, cluster)
    misaligned = np.flatnonzero(addresses % size_bytes)
    if misaligned.size:
        at = int(misaligned[0])
        warp.fault(
            "simt.misaligned",
            f"lane {lanes[at]} accesses {size_bytes} bytes at byte "
            f"{int(addresses[at]) - SHARED_BASE}, which is no multiple of that",
        )
    offsets = (addresses & ((1 << RANK_SHIFT) - 1)) - SHARED_BASE
    if home is not warp.home:
        assert warp.step is not None
        home.reaches.append((warp, warp.step.op, int(warp.cluster_arrivals.max()) + 1))
    if warp.simt.checks:
        touch(warp, home.shadow, offsets, size_bytes, lanes, writes)
    return home, offsets


def touch(
    warp: Warp, shadow: Shadow, offsets: Indices, size_bytes: int, lanes: Indices, writes: bool
) -> None:
    """Check and note accesses of lanes to `size_bytes` bytes each."""
    cells = shadow.cells(offsets, size_bytes)
    spread = np.repeat(lanes, cells.shape[1])
    visit = warp.visit(cells.reshape(-1), spread)
    if writes:
        shadow.write(visit, warp.home.cluster.first_threads())
    else:
        shadow.read(visit, False, warp.knowledge.first)


def count_passes(warp: Warp, addresses: Indices, width_bytes: int) -> None:
    """Count the passes of one instruction through shared memory. addresses: by lane, -1 if idle."""
    assert warp.step is not None
    launch = warp.simt
    used = addresses[addresses >= 0]
    base = int(used.min()) // 128 * 128
    relative = np.where(addresses < 0, -1, addresses - base)
    key = relative.tobytes() + bytes([width_bytes])
    found = launch.passes.get(key)
    if found is None:
        counted = count_conflicts(relative.reshape(1, -1, 1), width_bytes)
        found = launch.passes[key] = counted.wavefronts, counted.ideal
    total = launch.conflicts.setdefault(warp.step.op, [0, 0, 0])
    total[0] += 1
    total[1] += found[0]
    total[2] += found[1]


def read_units(buffer: Buffer, offsets: Indices, dtype: DType) -> tuple[Any, Mask | None]:
    """Elements at byte offsets, and which have no defined value."""
    size = dtype.storage.itemsize
    units = buffer.units(dtype.storage, 0)[offsets // size]
    poison = None
    if buffer.state is not None:
        bad = buffer.state[offsets] != 0
        for i in range(1, size):
            bad = bad | (buffer.state[offsets + i] != 0)
        poison = bad if bad.any() else None
    return decode(units, dtype), poison


def write_units(
    buffer: Buffer, offsets: Indices, dtype: DType, values: Any, poison: Mask | None
) -> None:
    """Store elements at byte offsets."""
    size = dtype.storage.itemsize
    buffer.units(dtype.storage, 0)[offsets // size] = encode(np.ascontiguousarray(values), dtype)
    if buffer.state is not None or poison is not None:
        state = buffer.ensure_state()
        marks = 0 if poison is None else np.where(poison, STORED_POISON, 0).astype(np.uint8)
        for i in range(size):
            state[offsets + i] = marks


def _check_same_instruction(
    warp: Warp, offsets: Indices, size_bytes: int, values: Any, lanes: Indices
) -> None:
    """Lanes of one instruction may write one place only if they write the same."""
    unique, first = np.unique(offsets, return_index=True)
    if unique.size == offsets.size:
        return
    chosen = first[np.searchsorted(unique, offsets)]
    same = values == values[..., chosen]
    differs = ~np.asarray(same | (values != values)).reshape(-1, offsets.size).all(axis=0)
    if differs.any():
        at = int(np.argmax(differs))
        warp.fault(
            "simt.race.instruction",
            f"lanes {lanes[chosen[at]]} and {lanes[at]} write different values to byte "
            f"{offsets[at]} at once",
        )


# One element


def _scalar_type(value: Any) -> TileType:
    kind = value.type
    assert isinstance(kind, TileType)
    return kind


def _make_load(op: Op, plan: Plan[Block]) -> Apply[Block]:
    dtype = _scalar_type(op.results[0]).dtype
    size, cluster = dtype.storage.itemsize, bool(op.attributes.get("cluster"))

    def apply(block: Block, values: list[Any]) -> Sequence[Any]:
        warp = warp_of(block)
        lanes = warp.lanes
        addresses = warp.each(values[0], "an address")[lanes]
        home, offsets = access_shared(warp, addresses, size, lanes, False, cluster)
        _count(warp, lanes, offsets, size)
        data, poison = read_units(home.shared, offsets, dtype)
        return (_spread(data, poison, lanes),)

    return apply


def _spread(data: Any, poison: Mask | None, lanes: Indices) -> Tile:
    """A scalar of some lanes; those that do not run have nothing defined."""
    if lanes.size == LANES:
        return Tile(data, poison)
    whole = np.zeros(LANES, data.dtype)
    whole[lanes] = data
    bad = np.ones(LANES, np.bool_)
    bad[lanes] = False if poison is None else poison
    return Tile(whole, bad)


def _count(warp: Warp, lanes: Indices, offsets: Indices, size: int) -> None:
    whole = np.full(LANES, -1, np.int64)
    whole[lanes] = offsets
    count_passes(warp, whole, size)


def _make_store(op: Op, plan: Plan[Block]) -> Apply[Block]:
    dtype = _scalar_type(op.operands[0]).dtype
    size, cluster = dtype.storage.itemsize, bool(op.attributes.get("cluster"))

    def apply(block: Block, values: list[Any]) -> Sequence[Any]:
        warp = warp_of(block)
        lanes = warp.lanes
        addresses = warp.each(values[1], "an address")[lanes]
        home, offsets = access_shared(warp, addresses, size, lanes, True, cluster)
        _count(warp, lanes, offsets, size)
        tile: Tile = values[0]
        data = np.broadcast_to(tile.data, (LANES,))[lanes]
        _check_same_instruction(warp, offsets, size, data, lanes)
        poison = None if tile.poison is None else np.broadcast_to(tile.poison, (LANES,))[lanes]
        write_units(home.shared, offsets, dtype, data, poison)
        warp.simt.version += 1
        return ()

    return apply


# Vectors


def _inside(warp: Warp, tile: Tile | None) -> Indices:
    if tile is None:
        return warp.lanes
    warp.demand(tile, "mask", "`inside`")
    return np.flatnonzero(warp.mask & np.broadcast_to(tile.data, (LANES,)).astype(np.bool_))


def _registers(tile: Tile, first: int, count: int, lanes: Indices) -> tuple[Any, Mask | None]:
    """Registers of some lanes: (count, lanes). A tile of one element is one register."""
    rows = slice(first, first + count)
    whole = np.asarray(tile.data)
    whole = whole.reshape(1, -1) if whole.ndim < 2 else whole
    data = np.broadcast_to(whole, (whole.shape[0], LANES))[rows][:, lanes]
    if tile.poison is None:
        return data, None
    bad = np.asarray(tile.poison).reshape(whole.shape)
    poison = np.broadcast_to(bad, (whole.shape[0], LANES))[rows][:, lanes]
    return data, poison if poison.any() else None


def _make_store_vector(op: Op, plan: Plan[Block]) -> Apply[Block]:
    kind = tile_type(op.operands[0].type)
    first, count = op.attributes["first"], op.attributes["count"]
    offset, space = op.attributes.get("offset", 0), op.attributes["space"]
    assert isinstance(first, int) and isinstance(count, int) and isinstance(offset, int)
    size = kind.dtype.storage.itemsize

    def apply(block: Block, values: list[Any]) -> Sequence[Any]:
        warp = warp_of(block)
        lanes = _inside(warp, values[2])
        if not lanes.size:
            return ()
        addresses = warp.each(values[1], "an address")[lanes] + offset
        data, poison = _registers(values[0], first, count, lanes)
        if space != "global":
            cluster = space == "cluster"
            home, offsets = access_shared(warp, addresses, size * count, lanes, True, cluster)
            _count(warp, lanes, offsets, size * count)
            buffer = home.shared
        else:
            buffer, offsets = access_global(warp, addresses, size * count, lanes, True)
        _check_same_instruction(warp, offsets, size, data, lanes)
        where = offsets[None, :] + np.arange(count)[:, None] * size
        write_units(buffer, where, kind.dtype, data, poison)
        warp.simt.version += 1
        return ()

    return apply


def _make_reduce_vector(op: Op, plan: Plan[Block]) -> Apply[Block]:
    """Lanes one after another: several may meet in one element."""
    kind = tile_type(op.operands[0].type)
    first, offset = op.attributes["first"], op.attributes.get("offset", 0)
    mode = str(op.attributes["mode"])
    assert isinstance(first, int) and isinstance(offset, int)
    size = kind.dtype.storage.itemsize

    def apply(block: Block, values: list[Any]) -> Sequence[Any]:
        warp = warp_of(block)
        lanes = _inside(warp, values[2])
        addresses = warp.each(values[1], "an address") + offset
        for lane in lanes:
            data, poison = _registers(values[0], first, 1, np.array([lane]))
            buffer, offsets = find_global(warp, addresses[lane : lane + 1], size, True)
            old, missing = read_units(buffer, offsets, kind.dtype)
            new = combine(mode, np.asarray(old), np.asarray(data).reshape(1), kind.dtype)
            bad = missing if poison is None else np.asarray(poison).reshape(1)
            if missing is not None and poison is not None:
                bad = missing | np.asarray(poison).reshape(1)
            write_units(buffer, offsets, kind.dtype, np.asarray(new), bad)
        warp.simt.version += 1
        warp.simt.accesses += 1
        return ()

    return apply


def _make_load_vector(op: Op, plan: Plan[Block]) -> Apply[Block]:
    """Vectors of all registers, one instruction for each `count` of them."""
    kind = tile_type(op.results[0].type)
    count, space = op.attributes["count"], op.attributes["space"]
    which, offsets_of = op.attributes["which"], op.attributes["offsets"]
    guard = op.attributes.get("guards", ())
    assert isinstance(count, int)
    assert isinstance(which, tuple) and isinstance(offsets_of, tuple) and isinstance(guard, tuple)
    size = kind.dtype.storage.itemsize
    fill = op.attributes.get("fill")
    nothing = padding_number(str(fill), kind.dtype) if fill is not None else 0
    port = len(op.arguments[0]) if isinstance(op.arguments[0], tuple) else 0

    def apply(block: Block, values: list[Any]) -> Sequence[Any]:
        warp = warp_of(block)
        addresses, guards = values[:port], values[port:]
        registers = register_count(kind) if is_fragment(kind) else 1
        data = np.full((registers, LANES), nothing, kind.dtype.carrier)
        poison = np.zeros(data.shape, np.bool_)
        poison[:, ~warp.mask] = True
        for i, (place, offset) in enumerate(zip(which, offsets_of, strict=True)):
            assert isinstance(place, int) and isinstance(offset, int)
            inside: Tile | None = None
            if guards:
                number = guard[i]
                assert isinstance(number, int)
                inside = guards[number]
            lanes = _inside(warp, inside)
            rows = np.arange(i * count, (i + 1) * count)
            if fill is None:
                poison[np.ix_(rows, np.setdiff1d(warp.lanes, lanes))] = True
            if not lanes.size:
                continue
            at = warp.each(addresses[place], "an address")[lanes] + offset
            if space != "global":
                cluster = space == "cluster"
                home, offsets = access_shared(warp, at, size * count, lanes, False, cluster)
                _count(warp, lanes, offsets, size * count)
                buffer = home.shared
            else:
                buffer, offsets = access_global(warp, at, size * count, lanes, False)
            where = offsets[None, :] + np.arange(count)[:, None] * size
            found, bad = read_units(buffer, where, kind.dtype)
            data[np.ix_(rows, lanes)] = found
            if bad is not None:
                poison[np.ix_(rows, lanes)] |= bad
        if not is_fragment(kind):
            data, poison = data[0], poison[0]
        return (Tile(data, poison if poison.any() else None),)

    return apply


# Global memory


def find_global(
    warp: Warp, addresses: Indices, size_bytes: int, writes: bool
) -> tuple[Buffer, Indices]:
    """The buffer that all of some accesses lie in, and their offsets; rights are checked."""
    memory = warp.simt.memory
    low, high = int(addresses.min()), int(addresses.max())
    buffer = memory.find(low, high - low + size_bytes)
    if buffer is None:
        for address in addresses.tolist():
            if memory.find(address, size_bytes) is None:
                rule, message = memory.explain(address, size_bytes)
                warp.fault(rule, message, None, address)
        warp.fault("memory.out_of_bounds", "one access reaches several buffers", None, low)
    if (addresses % size_bytes).any():
        at = int(addresses[np.argmax(addresses % size_bytes != 0)])
        warp.fault(
            "memory.misaligned",
            f"address 0x{at:x}, in `{buffer.name}`, is not a multiple of {size_bytes}",
            None,
            at,
        )
    check_rights(warp, buffer, writes)
    return buffer, addresses - buffer.address


def check_rights(warp: Warp, buffer: Buffer, writes: bool) -> None:
    """Raise if the host does not allow what is done to a buffer."""
    if writes and not buffer.writable:
        warp.fault("memory.read_only", f"`{buffer.name}` may only be read")
    if not writes and not buffer.readable:
        warp.fault("memory.write_only", f"`{buffer.name}` may only be written")


def shadow_of(warp: Warp, buffer: Buffer) -> Shadow | None:
    """The shadow of a global buffer in this cluster; None if nothing may write the buffer."""
    launch = warp.simt
    if not launch.checks or buffer not in launch.written:
        return None
    shadows = warp.home.cluster.shadows
    if buffer not in shadows:
        size, cell_bytes = buffer.data.size, launch.cell_bytes[1]
        shadows[buffer] = Shadow(size, cell_bytes, launch.known_origins, None)
    return shadows[buffer]


def access_global(
    warp: Warp, addresses: Indices, size_bytes: int, lanes: Indices, writes: bool
) -> tuple[Buffer, Indices]:
    """Check an access of each lane to global memory, and give the buffer and the offsets."""
    buffer, offsets = find_global(warp, addresses, size_bytes, writes)
    shadow = shadow_of(warp, buffer)
    if shadow is not None:
        touch(warp, shadow, offsets, size_bytes, lanes, writes)
    return buffer, offsets


def _make_global_address(op: Op, plan: Plan[Block]) -> Apply[Block]:
    return lambda block, values: (values[0],)


# Matrices


def _make_store_matrix(op: Op, plan: Plan[Block]) -> Apply[Block]:
    kind = tile_type(op.operands[0].type)
    first, offset = op.attributes["first"], op.attributes.get("offset", 0)
    assert isinstance(first, int) and isinstance(offset, int)
    transpose = bool(op.attributes.get("transpose"))

    def apply(block: Block, values: list[Any]) -> Sequence[Any]:
        warp = warp_of(block)
        warp.together(op.name)
        addresses = warp.each(values[1], "the address of a row") + offset
        home, offsets = access_shared(warp, addresses, MATRIX_ROW_BYTES, warp.lanes, True)
        _count(warp, warp.lanes, offsets, MATRIX_ROW_BYTES)
        data, poison = _registers(values[0], first, 8, warp.lanes)
        where = (
            offsets[_ROWS] + 2 * _COLUMNS if not transpose else offsets[_ROWS_T] + 2 * _COLUMNS_T
        )
        write_units(home.shared, where, kind.dtype, data, poison)
        warp.simt.version += 1
        return ()

    return apply


_REGISTER, _LANE = np.meshgrid(np.arange(8), np.arange(LANES), indexing="ij")
_ROWS, _COLUMNS = _REGISTER // 2 * 8 + _LANE // 4, 2 * (_LANE % 4) + _REGISTER % 2
_ROWS_T, _COLUMNS_T = _REGISTER // 2 * 8 + 2 * (_LANE % 4) + _REGISTER % 2, _LANE // 4
"""Of eight registers: the lane that gives the address of the row, and the element in it.

Source: PTX ISA 9.2, ldmatrix: of each 8x8 matrix lane 4 i + t holds elements 2 t and 2 t + 1 of row
i, or with .trans of column i; lanes 8 j to 8 j + 7 give the rows of matrix j.
"""


def _make_load_matrix(op: Op, plan: Plan[Block]) -> Apply[Block]:
    kind = tile_type(op.results[0].type)
    which, starts = op.attributes["which"], op.attributes["offsets"]
    assert isinstance(which, tuple) and isinstance(starts, tuple)
    transpose = bool(op.attributes.get("transpose"))
    rows, columns = (_ROWS_T, _COLUMNS_T) if transpose else (_ROWS, _COLUMNS)

    def apply(block: Block, values: list[Any]) -> Sequence[Any]:
        warp = warp_of(block)
        warp.together(op.name)
        data = np.zeros((register_count(kind), LANES), kind.dtype.carrier)
        poison = np.zeros(data.shape, np.bool_)
        for i, (place, offset) in enumerate(zip(which, starts, strict=True)):
            assert isinstance(place, int) and isinstance(offset, int)
            addresses = warp.each(values[place], "the address of a row") + offset
            home, offsets = access_shared(warp, addresses, MATRIX_ROW_BYTES, warp.lanes, False)
            _count(warp, warp.lanes, offsets, MATRIX_ROW_BYTES)
            found, bad = read_units(home.shared, offsets[rows] + 2 * columns, kind.dtype)
            data[8 * i : 8 * i + 8] = found
            if bad is not None:
                poison[8 * i : 8 * i + 8] = bad
        return (Tile(data, poison if poison.any() else None),)

    return apply


SHARED: dict[str, Maker[Block]] = {
    "shared_address": _make_address,
    "map_shared": _make_map,
    "load_shared": _make_load,
    "store_shared": _make_store,
    "store_vector": _make_store_vector,
    "load_vector": _make_load_vector,
    "reduce_vector": _make_reduce_vector,
    "global_address": _make_global_address,
    "store_matrix": _make_store_matrix,
    "load_matrix": _make_load_matrix,
}
"""How to run each of these operations."""
