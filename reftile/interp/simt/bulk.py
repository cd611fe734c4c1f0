"""Copies that happen later: boxes of tensors by the bulk engine, and the copies of each thread."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from functools import lru_cache
from typing import Any

import numpy as np

from reftile.interp.atomics import combine
from reftile.interp.machine import Block
from reftile.interp.memory import Buffer
from reftile.interp.plan import Apply, Maker, Plan
from reftile.interp.simt.barriers import Mbarrier, mbarrier_at, place_of, warp_of
from reftile.interp.simt.clocks import LANES, OPERATION, Clock, Indices
from reftile.interp.simt.machine import Flight, Home, Warp
from reftile.interp.simt.shadow import Raced, Shadow, Visit
from reftile.interp.simt.shared import (
    access_shared,
    check_rights,
    find_global,
    shadow_of,
    touch,
)
from reftile.interp.values import Mask
from reftile.ir.core import Op
from reftile.ir.dtypes import DType
from reftile.ir.numbers import decode, encode
from reftile.layout.descriptors import exchange_chunks

BOX_ALIGNMENT = 128
"""What the place of a box is a multiple of. Source: PTX ISA 9.2, cp.async.bulk.tensor."""


@dataclass(frozen=True, slots=True, eq=False)
class TensorMap:
    """A tensor and a box of it; innermost axis first. strides: bytes, for all axes."""

    name: str
    buffer: Buffer
    offset: int
    dtype: DType
    extents: tuple[int, ...]
    strides: tuple[int, ...]
    box: tuple[int, ...]
    swizzle: int
    fill: int

    @property
    def row_bytes(self) -> int:
        """Bytes of a row of the box."""
        return self.box[0] * self.dtype.storage.itemsize

    @property
    def rows(self) -> int:
        """Rows of the box."""
        return int(np.prod(self.box[1:], dtype=np.int64))

    @property
    def size_bytes(self) -> int:
        """Bytes of the box."""
        return self.rows * self.row_bytes

    def locate(self, start: tuple[int, ...]) -> tuple[Indices, Mask]:
        """Byte offsets of a box's elements in the buffer, (rows, inner), and what is inside."""
        offset, inside = np.array(self.offset, np.int64), np.ones((), np.bool_)
        for axis in reversed(range(len(self.box))):
            index = start[axis] + np.arange(self.box[axis], dtype=np.int64)
            offset = offset[..., None] + index * self.strides[axis]
            inside = inside[..., None] & (index >= 0) & (index < self.extents[axis])
        return offset.reshape(self.rows, self.box[0]), inside.reshape(self.rows, self.box[0])


@lru_cache(maxsize=256)
def box_places(rows: int, row_bytes: int, size: int, swizzle: int, phase: int) -> Indices:
    """Where the elements of a box lie, in bytes from its place; `phase` is that modulo 1024."""
    pitch = swizzle or row_bytes
    linear = np.arange(rows)[:, None] * pitch + np.arange(0, row_bytes, size)[None, :] + phase
    return (exchange_chunks(linear, swizzle) if swizzle else linear) - phase


@lru_cache(maxsize=1024)
def box_cells(
    rows: int, row_bytes: int, size: int, swizzle: int, place: int, cell_bytes: int
) -> Indices:
    """The cells of shared memory that a box at byte `place` fills."""
    places = place + box_places(rows, row_bytes, size, swizzle, place % 1024)
    return np.unique(places // cell_bytes)


# Into shared memory


def _make_load_tensor(op: Op, plan: Plan[Block]) -> Apply[Block]:
    def apply(block: Block, values: list[Any]) -> Sequence[Any]:
        warp = warp_of(block)
        described: TensorMap = values[0]
        *index, destination, barrier, multicast = values[1:]
        for lane in warp.lanes:
            warp_mask, warp.mask = warp.mask, np.arange(LANES) == lane
            start = tuple(warp.one(i, "an index") for i in index)
            _load_box(
                warp,
                op,
                described,
                start,
                warp.one(destination, "the place of a box"),
                warp.one(barrier, "the address of a barrier"),
                None if multicast is None else warp.one(multicast, "the mask of blocks"),
            )
            warp.mask = warp_mask
        return ()

    return apply


def _load_box(
    warp: Warp,
    op: Op,
    described: TensorMap,
    start: tuple[int, ...],
    destination: int,
    barrier: int,
    multicast: int | None,
) -> None:
    home, place = place_of(warp, destination, "the place of a box", described.size_bytes, True)
    _check_aligned(warp, described, place, start)
    mbarrier = mbarrier_at(warp, barrier, "a barrier", True)
    homes = [home] if multicast is None else _destinations(warp, multicast)
    check_rights(warp, described.buffer, False)
    before = warp.knowledge.release(warp.mask)
    number = warp.simt.next_operation()
    where, inside = described.locate(start)
    visit = _visitor(warp, op, before, number)
    global_shadow = shadow_of(warp, described.buffer)
    if global_shadow is not None:
        cells = _cells_of(global_shadow, where[inside], described.dtype)
        _touch(warp, visit, global_shadow, cells, False)
    places = _places(described, place)
    pairs = [(h, _barrier_of(warp, h, mbarrier)) for h in homes]
    for target, _ in pairs:
        if warp.simt.checks:
            _touch(warp, visit, target.shadow, _cells(described, place, target), True)
    flight = Flight(warp, op, [])
    taken: list[Any] = []
    flight.stages.append(lambda: taken.append(_read_box(described, where, inside)))
    for target, landed in pairs:
        landed.coming.append(flight)
        target.landings[flight] = "wait for the phase that its bytes are credited to"

        def land(target: Home = target, landed: Mbarrier = landed) -> None:
            data, state = taken[0]
            _write_shared(target, places, data, state, described.dtype)
            landed.credit(flight, described.size_bytes, number, before)

        flight.stages.append(land)
    warp.simt.fly(flight)


def _places(described: TensorMap, place: int) -> Indices:
    """Byte offsets in shared memory of the elements of a box."""
    size = described.dtype.storage.itemsize
    return place + box_places(
        described.rows, described.row_bytes, size, described.swizzle, place % 1024
    )


def _check_aligned(warp: Warp, described: TensorMap, place: int, start: tuple[int, ...]) -> None:
    if place % BOX_ALIGNMENT:
        warp.fault(
            "simt.misaligned", f"a box at byte {place}, which is no multiple of {BOX_ALIGNMENT}"
        )
    if start[0] * described.dtype.storage.itemsize % 16:
        warp.fault("simt.misaligned", f"the innermost index {start[0]} is no multiple of 16 bytes")


def _destinations(warp: Warp, mask: int) -> list[Home]:
    homes = warp.home.cluster.homes
    if not 0 < mask < 1 << len(homes):
        warp.fault("simt.rank", f"the mask {mask} names no blocks, or some outside the cluster")
    found = [h for h in homes if mask >> h.rank & 1]
    for home in found:
        if home.ended:
            warp.fault("simt.exit", f"block {home.name} has ended, and a copy is to write there")
    return found


def _barrier_of(warp: Warp, home: Home, own: Mbarrier) -> Mbarrier:
    found = home.mbarriers.get(own.offset)
    if found is None:
        warp.fault(
            "simt.no_mbarrier", f"block {home.name} has no barrier at byte {own.offset} (yet)"
        )
    if not found.shown:
        warp.fault(
            "simt.mbarrier_unseen",
            f"the initialisation of {found.name} is not fenced for the asynchronous proxy",
            hint="put `fence_mbarrier_init` behind it",
        )
    return found


def _visitor(warp: Warp, op: Op, before: Clock, number: int) -> Any:
    origin = warp.simt.origin(op, warp, True, True)

    def visit(cells: Indices) -> Visit:
        nobody = np.zeros(cells.size, np.int64)
        return Visit(
            before, cells, nobody, np.full(cells.size, OPERATION), number, OPERATION, origin
        )

    return visit


def _cells(described: TensorMap, place: int, home: Home) -> Indices:
    size, cell_bytes = described.dtype.storage.itemsize, home.shadow.cell_bytes
    return box_cells(
        described.rows, described.row_bytes, size, described.swizzle, place, cell_bytes
    )


def _cells_of(shadow: Shadow, offsets: Indices, dtype: DType) -> Indices:
    size = dtype.storage.itemsize
    if size <= shadow.cell_bytes:
        return np.unique(offsets // shadow.cell_bytes)
    return np.unique(shadow.cells(offsets, size))


def _touch(warp: Warp, visit: Any, shadow: Shadow, cells: Indices, writes: bool) -> None:
    """Check a bulk access to cells, and note it, as one operation."""
    warp.simt.accesses += 1
    try:
        if writes:
            shadow.write(visit(cells), warp.home.cluster.first_threads())
        else:
            shadow.read(visit(cells), True)
    except Raced as race:
        warp.raced(race)


def _read_box(described: TensorMap, where: Indices, inside: Mask) -> Any:
    """Elements as they lie in memory, and the state of their bytes."""
    buffer, size = described.buffer, described.dtype.storage.itemsize
    phase = described.offset % size
    units = buffer.units(described.dtype.storage, phase)
    if inside.all():
        data = units[(where - phase) // size]
        state = None if buffer.state is None else buffer.state[where]
        return data, state
    data = np.full(where.shape, described.fill, units.dtype)
    data[inside] = units[(where[inside] - phase) // size]
    state = None
    if buffer.state is not None:
        state = np.zeros(where.shape, np.uint8)
        state[inside] = buffer.state[where[inside]]
    return data, state


def _write_shared(home: Home, places: Indices, data: Any, state: Any, dtype: DType) -> None:
    size = dtype.storage.itemsize
    home.shared.units(dtype.storage, 0)[places // size] = data
    marks = home.shared.state
    assert marks is not None
    for i in range(size):
        marks[places + i] = 0 if state is None else state


# Out of shared memory


@dataclass(slots=True, eq=False)
class Store:
    """A bulk store under way. reading, writing: the operations that its accesses are."""

    flight: Flight
    reading: int
    writing: int

    @property
    def is_free(self) -> bool:
        """True if it has read its source."""
        return len(self.flight.stages) <= 1


@dataclass(slots=True, eq=False)
class Groups:
    """The bulk stores of one thread. freed: of `closed`, those known to have read their source."""

    open: list[Store] = field(default_factory=list[Store])
    closed: list[list[Store]] = field(default_factory=list[list[Store]])
    freed: int = 0


def _make_store_tensor(op: Op, plan: Plan[Block]) -> Apply[Block]:
    mode = str(op.attributes.get("mode", "store"))

    def apply(block: Block, values: list[Any]) -> Sequence[Any]:
        warp = warp_of(block)
        described: TensorMap = values[0]
        *index, source = values[1:]
        for lane in warp.lanes:
            warp_mask, warp.mask = warp.mask, np.arange(LANES) == lane
            start = tuple(warp.one(i, "an index") for i in index)
            store = _store_box(
                warp, op, described, start, warp.one(source, "the place of a box"), mode
            )
            warp.mask = warp_mask
            warp.bulk.setdefault(int(lane), Groups()).open.append(store)
        return ()

    return apply


def _store_box(
    warp: Warp, op: Op, described: TensorMap, start: tuple[int, ...], source: int, mode: str
) -> Store:
    home, place = place_of(warp, source, "the place of a box", described.size_bytes)
    _check_aligned(warp, described, place, start)
    check_rights(warp, described.buffer, True)
    before = warp.knowledge.release(warp.mask)
    reading, writing = warp.simt.next_operation(), warp.simt.next_operation()
    places = _places(described, place)
    if warp.simt.checks:
        cells = _cells(described, place, home)
        _touch(warp, _visitor(warp, op, before, reading), home.shadow, cells, False)
    where, inside = described.locate(start)
    shadow = shadow_of(warp, described.buffer)
    if shadow is not None and mode == "store":
        visit = _visitor(warp, op, before, writing)
        _touch(warp, visit, shadow, _cells_of(shadow, where[inside], described.dtype), True)
    taken: list[Any] = []
    size = described.dtype.storage.itemsize

    def leave() -> None:
        state = home.shared.state
        assert state is not None
        bad = state[places]
        for i in range(1, size):
            bad = bad | state[places + i]
        data = home.shared.units(described.dtype.storage, 0)[places // size].copy()
        taken.append((data, bad if bad.any() else None))

    flight = Flight(warp, op, [leave, lambda: _write_box(described, where, inside, taken[0], mode)])
    warp.simt.fly(flight)
    warp.simt.version += 1
    return Store(flight, reading, writing)


def _write_box(described: TensorMap, where: Indices, inside: Mask, taken: Any, mode: str) -> None:
    data, state = taken
    buffer, dtype = described.buffer, described.dtype
    size = dtype.storage.itemsize
    phase = described.offset % size
    at = (where[inside] - phase) // size
    units = buffer.units(dtype.storage, phase)
    if mode == "store":
        units[at] = data[inside]
    else:
        old, new = decode(units[at].copy(), dtype), decode(data[inside], dtype)
        kind = "addf" if mode == "add" and not dtype.is_int else mode
        if mode in ("min", "max") and not dtype.is_int:
            result = np.fmin(old, new) if mode == "min" else np.fmax(old, new)
        else:
            result = combine(kind, old, new, dtype)
        units[at] = encode(result, dtype)
    if state is not None or buffer.state is not None:
        marks = buffer.ensure_state()
        for i in range(size):
            marks[where[inside] + i] = 0 if state is None else state[inside]


def _make_commit_bulk(op: Op, plan: Plan[Block]) -> Apply[Block]:
    def apply(block: Block, values: list[Any]) -> Sequence[Any]:
        warp = warp_of(block)
        for lane in warp.lanes:
            groups = warp.bulk.setdefault(int(lane), Groups())
            groups.closed.append(groups.open)
            groups.open = []
        return ()

    return apply


# Copies of each thread


@dataclass(slots=True, eq=False)
class ThreadCopy(Flight):
    """The copies of a warp's lanes by one instruction; epoch: of the lanes' engines."""

    epoch: int = 0


def _make_copy_async(op: Op, plan: Plan[Block]) -> Apply[Block]:
    bytes, more = op.attributes["bytes"], op.attributes.get("destination_offset", 0)
    assert isinstance(bytes, int) and isinstance(more, int)

    def apply(block: Block, values: list[Any]) -> Sequence[Any]:
        warp = warp_of(block)
        lanes = warp.lanes
        sources = warp.each(values[0], "an address")[lanes]
        targets = warp.each(values[1], "an address")[lanes] + more
        sizes = np.full(lanes.size, bytes)
        if values[2] is not None:
            sizes = warp.each(values[2], "the bytes to read")[lanes]
            if ((sizes < 0) | (sizes > bytes)).any():
                warp.fault("simt.copy_size", f"a copy of {bytes} bytes reads {sizes.max()} bytes")
        warp.copy_count += 1
        reads = np.flatnonzero(sizes)
        buffer, offsets = None, np.zeros(0, np.int64)
        if reads.size:
            buffer, offsets = _find_sources(warp, sources[reads], sizes[reads], bytes)
        checks, warp.simt.checks = warp.simt.checks, False
        home, places = access_shared(warp, targets, bytes, lanes, True)
        warp.simt.checks = checks
        if checks:
            _touch_copy(warp, op, home, places, bytes, lanes)
            shadow = shadow_of(warp, buffer) if buffer is not None else None
            if shadow is not None and buffer is not None:
                whole = reads[sizes[reads] == bytes]
                touch(warp, shadow, sources[whole] - buffer.address, bytes, lanes[whole], False)
        flight = ThreadCopy(warp, op, [], epoch=warp.copy_count)

        def move() -> None:
            data = np.zeros((lanes.size, bytes), np.uint8)
            if buffer is not None:
                within = np.arange(bytes)[None, :] < sizes[reads][:, None]
                at = offsets[:, None] + np.arange(bytes)[None, :]
                data[reads] = np.where(within, buffer.data[np.where(within, at, 0)], 0)
            home.shared.data[places[:, None] + np.arange(bytes)] = data
            assert home.shared.state is not None
            home.shared.state[places[:, None] + np.arange(bytes)] = 0

        flight.stages.append(move)
        home.landings[flight] = "end with `wait_async`"
        flight.then.append(lambda: home.over(flight))
        warp.open_copies.append(flight)
        warp.simt.fly(flight)
        warp.simt.version += 1
        return ()

    return apply


def _find_sources(
    warp: Warp, sources: Indices, sizes: Indices, bytes: int
) -> tuple[Buffer, Indices]:
    """The buffer that copies read; each must be aligned to what it copies."""
    if (sources % bytes).any():
        at = int(sources[np.argmax(sources % bytes != 0)])
        message = f"a copy of {bytes} bytes from address 0x{at:x}, which is no multiple of that"
        warp.fault("memory.misaligned", message, None, at)
    memory = warp.simt.memory
    last = int(np.argmax(sources + sizes))
    low, high = int(sources.min()), int(sources[last] + sizes[last])
    buffer = memory.find(low, high - low)
    if buffer is None:
        for address, size in zip(sources.tolist(), sizes.tolist(), strict=True):
            if memory.find(address, size) is None:
                rule, message = memory.explain(address, size)
                warp.fault(rule, message, None, address)
        buffer, _ = find_global(warp, sources[:1], 1, False)
    check_rights(warp, buffer, False)
    return buffer, sources - buffer.address


def _touch_copy(
    warp: Warp, op: Op, home: Home, places: Indices, bytes: int, lanes: Indices
) -> None:
    """Writes of the engines of the lanes: in flight until each waits for its own."""
    shadow = home.shadow
    cells = shadow.cells(places, bytes)
    spread = np.repeat(lanes, cells.shape[1])
    know = warp.knowledge
    origin = warp.simt.origin(op, warp, False, True)
    agents = warp.simt.agents.threads + know.first + spread
    warp.simt.accesses += 1
    visit = Visit(
        know, cells.reshape(-1), spread, agents, warp.copy_count, warp.number_in_cluster, origin
    )
    shadow.write(visit, home.cluster.first_threads())


def _make_commit_async(op: Op, plan: Plan[Block]) -> Apply[Block]:
    def apply(block: Block, values: list[Any]) -> Sequence[Any]:
        warp = warp_of(block)
        warp.together(op.name)
        warp.copies.append(warp.open_copies)
        warp.open_copies = []
        return ()

    return apply


BULK: dict[str, Maker[Block]] = {
    "load_tensor": _make_load_tensor,
    "store_tensor": _make_store_tensor,
    "commit_bulk": _make_commit_bulk,
    "copy_async": _make_copy_async,
    "commit_async": _make_commit_async,
}
"""How to start each copy."""
