"""One memory access of the checked path: its event, its checks, its bytes.

An operation on a tile is one `Event` with elements. Where the elements form a region of a view or a
run, they are checked and moved as one; otherwise one by one, in NumPy. This module is what loads,
stores and read-modify-writes have in common; `actions` and `atomics` say what each of them does.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from math import prod
from typing import Any, NoReturn

import numpy as np

from reftile.interp.machine import Block
from reftile.interp.memory import (
    Buffer,
    Places,
    Run,
    memory_dtype,
    read_places,
    read_run,
    resolve,
    write_places,
    write_run,
)
from reftile.interp.order import ROOT, SCOPES, WEAK, Event, Raced, Token
from reftile.interp.plan import Apply
from reftile.interp.races import describe_race
from reftile.interp.shadow import Grid, Offsets
from reftile.interp.values import Array, Mask, Tile
from reftile.interp.views import TileView, elements, region, resolve_elements, window
from reftile.ir.core import Op, Value
from reftile.ir.diagnostics import ReftileError
from reftile.ir.dtypes import DType
from reftile.ir.types import PointerType, TileType


@dataclass(slots=True)
class Access:
    """What is the same each time an operation runs.

    shape: of the tile. makes_token: something uses the token it returns.
    """

    op: Op
    shape: tuple[int, ...]
    dtype: DType
    scope: int
    ordering: str
    writes: bool
    makes_token: bool
    size: int

    @staticmethod
    def of(op: Op, tile: TileType, writes: bool, used: set[Value]) -> Access:
        """Describe an operation that accesses the elements of a tile."""
        element = tile.element
        dtype = memory_dtype(element)
        scope = op.attributes.get("scope")
        return Access(
            op,
            tile.shape,
            dtype,
            SCOPES[str(scope)] if scope is not None else WEAK,
            str(op.attributes["ordering"]),
            writes,
            op.results[-1] in used,
            prod(tile.shape),
        )

    def begin(self, block: Block, token: Token | None) -> Event:
        """The event of one execution."""
        return block.launch.order.begin(
            block.linear,
            block.number,
            self.op,
            token,
            self.scope,
            self.dtype.storage.itemsize,
            self.ordering,
            self.writes,
        )

    def end(self, block: Block, event: Event) -> Token:
        """The token of one execution."""
        return block.launch.order.token(event) if self.makes_token else ROOT


def pointee(type: TileType) -> DType:
    """The dtype that a tile of pointers points to."""
    assert isinstance(type.element, PointerType)
    return type.element.pointee


# Rights


def check_rights(block: Block, access: Access, buffer: Buffer, reads: bool) -> None:
    """Raise if the block or the access modes of the arguments have no right to the access."""
    if not buffer.restricted:
        return
    if buffer.freed:
        block.fault("memory.freed", f"`{buffer.name}` has been freed")
    if buffer.owner_block not in (-1, block.linear):
        owner = block.launch.block_name(buffer.owner_block)
        block.fault(
            "access.private",
            f"`{buffer.name}` belongs to block {owner}",
            hint="make it `shared`, if blocks are to exchange data through it",
        )
    if reads and not buffer.readable:
        block.fault(
            "access.write_only",
            f"`{access.op.name}` reads `{buffer.name}`, which may only be written",
            hint="change the access mode of the argument",
        )
    if access.writes:
        if not buffer.writable:
            block.fault(
                "access.read_only",
                f"`{access.op.name}` writes `{buffer.name}`, which may only be read",
                hint="change the access mode of the argument",
            )
        if buffer.no_write:
            block.fault(
                "access.noalias", buffer.no_write, hint="drop `noalias`, or pass distinct memory"
            )


def raise_race(block: Block, race: Raced, buffer: Buffer, offset: int) -> NoReturn:
    """Raise the diagnosis of a race at a byte offset."""
    raise ReftileError(
        describe_race(block.launch, race.earlier, race.later, buffer, offset)
    ) from None


# Elements by pointers


def parts_of(
    block: Block, access: Access, pointers: Tile, mask: Tile | None
) -> Sequence[Run | Places]:
    """The places behind a tile of pointers, checked; masked elements have none."""
    active: Mask | None = None
    if mask is not None:
        if mask.poison is not None:
            block.demand(mask, "mask", f"the mask of `{access.op.name}`")
        active = mask.data.reshape(-1)
    if pointers.poison is not None:
        poison = np.broadcast_to(pointers.poison, pointers.data.shape)
        if active is not None:
            poison = poison & mask.data  # type: ignore[union-attr]
        block.demand(Tile(pointers.data, poison), "address", f"an address of `{access.op.name}`")

    def fault(rule: str, message: str, position: int, address: int) -> NoReturn:
        block.fault(rule, message, position, address, shape=access.shape)

    addresses = pointers.data.reshape(-1)
    return resolve(block.launch.memory, addresses, active, access.dtype.storage.itemsize, fault)


def touch(block: Block, access: Access, event: Event, part: Run | Places, reads: bool) -> None:
    """Check rights and races of one part of an access, and synchronise."""
    buffer = part.buffer
    check_rights(block, access, buffer, reads)
    strong = access.scope >= 0
    if strong:
        _remember_wait(block, access, buffer, part)
    if event.acquires and buffer.released and block.launch.histories is None:
        block.launch.order.acquire(event, buffer.released, offsets_of(part).tolist())
    shadow = block.launch.shadow(buffer)
    try:
        if isinstance(part, Run):
            size, count = part.size_bytes, part.count
            width = access.size * size
            phase = part.offset % width
            grid = Grid(phase, size, (size,), (width,), True)
            shadow.touch_region(event, grid, (part.offset // width,), (count,))
        else:
            shadow.touch(event, _distinct(part))
    except Raced as race:
        offset = int(offsets_of(part)[race.index])
        raise_race(block, race, buffer, offset)


def _distinct(places: Places) -> Offsets:
    # The 4-bit elements of one operation that share a byte are one access to it.
    return places.offsets if places.nibble is None else np.unique(places.offsets)


def offsets_of(part: Run | Places) -> Offsets:
    """The byte offset of each element."""
    if isinstance(part, Run):
        return part.offset + np.arange(part.count, dtype=np.int64) * part.size_bytes
    return part.offsets


def _remember_wait(block: Block, access: Access, buffer: Buffer, part: Run | Places) -> None:
    offset = part.offset if isinstance(part, Run) else int(part.offsets[0])
    block.launch.waits[block.linear] = access.op, buffer, offset


def gather(parts: Sequence[Run | Places], access: Access, padding: Array | float | None) -> Tile:
    """Read the parts into a tile; elsewhere stands the padding, or poison."""
    dtype = access.dtype
    if len(parts) == 1 and isinstance(parts[0], Run) and parts[0].count == access.size:
        values, poison = read_run(parts[0], dtype)
        return Tile(
            values.reshape(access.shape), None if poison is None else poison.reshape(access.shape)
        )
    data = np.zeros(access.size, dtype.carrier)
    if padding is not None:
        data[...] = np.asarray(padding).reshape(-1)
    poison = np.full(access.size, padding is None)
    for part in parts:
        if isinstance(part, Run):
            where: slice | Offsets = slice(0, part.count)
            data[where], bad = read_run(part, dtype)
        else:
            where = part.where
            data[where], bad = read_places(part, dtype)
        poison[where] = False if bad is None else bad
    bad = poison.reshape(access.shape) if poison.any() else None
    return Tile(data.reshape(access.shape), bad)


def as_places(part: Run | Places) -> Places:
    """A run as places."""
    if isinstance(part, Places):
        return part
    return Places(part.buffer, offsets_of(part), np.arange(part.count), part.size_bytes)


def shuffled(block: Block, places: Places) -> Places:
    """The places in the order in which the schedule lets their elements be done."""
    random = block.launch.random
    if random is None or places.nibble is not None:
        return places
    order = np.array(random.sample(range(places.offsets.size), places.offsets.size), np.int64)
    return Places(places.buffer, places.offsets[order], places.where[order], places.size_bytes)


def scatter(block: Block, parts: Sequence[Run | Places], access: Access, value: Tile) -> None:
    """Write a tile to its parts."""
    flat = np.broadcast_to(value.data, access.shape).reshape(-1)
    poison = None
    if not value.is_clean and value.poison is not None:
        poison = np.broadcast_to(value.poison, access.shape).reshape(-1)
        note_origin(block, access.op, value)
    for part in parts:
        if isinstance(part, Run):
            write_run(part, access.dtype, flat, poison)
        else:
            places = shuffled(block, part)
            bad = None if poison is None else poison[places.where]
            write_places(places, access.dtype, flat[places.where], bad)


def note_origin(block: Block, op: Op, value: Tile) -> None:
    """Remember what made the poison that `op` stores, should it be there when the launch ends."""
    if op not in block.launch.origins:
        source = block.origin(value, op)
        if source is not None:
            block.launch.origins[op] = source


# Elements by views


def index_of(
    block: Block, access: Access, view: TileView, index: Sequence[Tile]
) -> list[Array | int]:
    """The index of a view as arrays. All but the sparse one must lie in the index space."""
    op = access.op
    found: list[Array | int] = []
    operands: Sequence[Value] = getattr(op, "index")  # noqa: B009
    for axis, tile in enumerate(index):
        if tile.poison is not None:
            block.demand(tile, "address", f"the index of `{op.name}`")
        type = operands[axis].type
        assert isinstance(type, TileType)
        data = tile.data
        if axis == view.sparse:
            if type.dtype.bits < 64:
                data = data.astype(np.int64) & ((1 << type.dtype.bits) - 1)
            found.append(data)
            continue
        value = data.item() & ((1 << type.dtype.bits) - 1)
        if value >= view.space[axis]:
            block.fault(
                "view.index",
                f"index {data.item()} along axis {axis} is outside the index space "
                f"{list(view.space)} of the view",
                hint="guard the operation, or launch fewer blocks",
            )
        found.append(value)
    return found


def parts_of_view(
    block: Block, access: Access, view: TileView, index: Sequence[Array | int]
) -> Sequence[Places]:
    """The places behind the tile of a view, element by element."""

    def fault(rule: str, message: str, position: int, address: int) -> NoReturn:
        block.fault(rule, message, position, address, shape=access.shape)

    return resolve_elements(block.launch.memory, elements(view, index), access.dtype, fault)


@dataclass(slots=True)
class Window:
    """A region of a view in one buffer: the fast path."""

    buffer: Buffer
    units: Array
    index: tuple[int, ...]
    origin: tuple[int, ...]
    extents: tuple[int, ...]
    is_whole: bool


def window_of(view: TileView, index: Sequence[Array | int]) -> Window | None:
    """The region at an index, or None if the view must be accessed element by element."""
    if view.grid is None or view.tensor.buffer is None:
        return None
    at = tuple([int(i) for i in index])
    origin, extents = region(view, at)
    whole = extents == view.type.tile
    return Window(view.tensor.buffer, window(view, origin, extents), at, origin, extents, whole)


def touch_window(
    block: Block, access: Access, event: Event, view: TileView, part: Window, reads: bool
) -> None:
    """Check rights and races of a region, and synchronise."""
    buffer, grid = part.buffer, view.grid
    assert grid is not None
    check_rights(block, access, buffer, reads)
    if access.scope >= 0:
        offsets = grid.offsets(part.index, part.extents)
        block.launch.waits[block.linear] = access.op, buffer, int(offsets[0])
        if event.acquires and buffer.released:
            block.launch.order.acquire(event, buffer.released, offsets.tolist())
    try:
        block.launch.shadow(buffer).touch_region(event, grid, part.index, part.extents)
    except Raced as race:
        raise_race(block, race, buffer, int(grid.offsets(part.index, part.extents)[race.index]))


def with_inbounds(op: Op, access: Access, apply: Apply[Block]) -> Apply[Block]:
    """Check the promise `inbounds` first, if the operation makes it."""
    promised = op.attributes.get("inbounds")
    if not isinstance(promised, tuple) or not any(promised):
        return apply
    at = 0 if op.name != "store_view_tko" else 1

    def apply_checked(block: Block, values: list[Any]) -> Sequence[Any]:
        view: TileView = values[at]
        index = index_of(block, access, view, values[at + 1 : at + 1 + len(view.extents)])
        for axis, sure in enumerate(promised):
            last = np.max(index[axis]) * view.step[axis]
            last = last + (0 if axis == view.sparse else access.shape[axis] - 1)
            if sure and last >= view.extents[axis]:
                block.fault(
                    f"{op.name}.inbounds",
                    f"the tile reaches element {int(last)} along axis {axis}, "
                    f"and the view ends at {view.extents[axis]}",
                    hint="drop the promise `inbounds` along this axis",
                )
        return apply(block, values)

    return apply_checked
