"""What the checked path does for each operation that is neither pure nor control, atomics aside.

A maker takes an operation once and gives the function that runs it; see `plan`.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from reftile.interp.access import (
    Access,
    Window,
    as_places,
    gather,
    index_of,
    note_origin,
    offsets_of,
    parts_of,
    parts_of_view,
    pointee,
    scatter,
    shuffled,
    touch,
    touch_window,
    window_of,
    with_inbounds,
)
from reftile.interp.assumptions import make_assume
from reftile.interp.atomics import ATOMICS
from reftile.interp.histories import Seen, patched
from reftile.interp.machine import Block
from reftile.interp.memory import STORED_POISON, Places, Run, TooMuch
from reftile.interp.order import ROOT, Event, join
from reftile.interp.plan import Apply, Maker, Plan
from reftile.interp.shadow import row_of
from reftile.interp.values import Array, Mask, Tile
from reftile.interp.views import (
    TensorView,
    TileView,
    make_tensor_view,
    make_tile_view,
    padding_value,
)
from reftile.ir.core import Op
from reftile.ir.diagnostics import Diagnosis, ReftileError
from reftile.ir.formatting import format_tiles
from reftile.ir.numbers import decode, encode
from reftile.ir.ops import (
    Alloca,
    Assert,
    GetGlobal,
    LoadPtrTko,
    LoadViewTko,
    MakeTensorView,
    PrintTko,
    StorePtrTko,
    StoreViewTko,
)
from reftile.ir.types import TensorViewType, TileType, TileViewType

_I32 = np.dtype(np.int32)


# The grid


def _make_block_id(op: Op, plan: Plan[Block]) -> Apply[Block]:
    def apply(block: Block, values: list[Any]) -> Sequence[Any]:
        return [Tile(np.array(i, _I32)) for i in block.id]

    return apply


def _make_num_blocks(op: Op, plan: Plan[Block]) -> Apply[Block]:
    def apply(block: Block, values: list[Any]) -> Sequence[Any]:
        return [Tile(np.array(i, _I32)) for i in block.launch.grid]

    return apply


# Tokens


def _make_token(op: Op, plan: Plan[Block]) -> Apply[Block]:
    return lambda block, values: (ROOT,)


def _make_join(op: Op, plan: Plan[Block]) -> Apply[Block]:
    return lambda block, values: (join(tuple(values)),)


def _make_pass_token(op: Op, plan: Plan[Block]) -> Apply[Block]:
    """For operations that only hand a token on while one launch runs at a time on one device."""
    return lambda block, values: (values[0] if values[0] is not None else ROOT,)


# Views


def _make_tensor_view(op: Op, plan: Plan[Block]) -> Apply[Block]:
    assert isinstance(op, MakeTensorView)
    type = op.result.type
    assert isinstance(type, TensorViewType)
    dynamic = len(op.dynamic_shape)
    kinds = [v.type for v in (*op.dynamic_shape, *op.dynamic_strides)]
    bits = [t.dtype.bits for t in kinds if isinstance(t, TileType)]

    def apply(block: Block, values: list[Any]) -> Sequence[Any]:
        address = block.scalar(values[0], "address", "the base of the view")
        numbers: list[int] = []
        for tile, width in zip(values[1:], bits, strict=True):
            number = block.scalar(tile, "address", "an extent or stride") & ((1 << width) - 1)
            if number == 0 or number >= 1 << 62:
                block.fault(
                    "make_tensor_view.positive",
                    f"extents and strides must be positive, found {tile.data.item()}",
                    hint="an array without elements has no tiles: skip the launch",
                )
            numbers.append(number)
        sizes, steps = iter(numbers[:dynamic]), iter(numbers[dynamic:])
        shape = tuple(next(sizes) if d is None else d for d in type.shape)
        strides = tuple(next(steps) if s is None else s for s in type.strides)
        return (make_tensor_view(block.launch.memory, type, address, shape, strides),)

    return apply


def _make_tile_view(op: Op, plan: Plan[Block]) -> Apply[Block]:
    type = op.results[0].type
    assert isinstance(type, TileViewType)
    return lambda block, values: (make_tile_view(type, values[0]),)


def _make_extents(op: Op, plan: Plan[Block]) -> Apply[Block]:
    types = [r.type for r in op.results]

    def apply(block: Block, values: list[Any]) -> Sequence[Any]:
        view: TensorView | TileView = values[0]
        sizes = view.shape if isinstance(view, TensorView) else view.space
        tiles: list[Tile] = []
        for size, type in zip(sizes, types, strict=True):
            assert isinstance(type, TileType)
            if size >= 1 << type.dtype.bits:
                block.fault(
                    f"{op.name}.overflow", f"the extent {size} does not fit {type.dtype.name}"
                )
            wrapped = np.array(size, np.int64).astype(type.dtype.carrier)
            tiles.append(Tile(wrapped))
        return tiles

    return apply


# Loads and stores


def _make_load_ptr(op: Op, plan: Plan[Block]) -> Apply[Block]:
    assert isinstance(op, LoadPtrTko)
    access = Access.of(op, _shaped(op, op.source.type), False, plan.used)

    def apply(block: Block, values: list[Any]) -> Sequence[Any]:
        source, mask, padding, token = values
        event = access.begin(block, token)
        parts = parts_of(block, access, source, mask)
        seen = _find(block, access, event, parts)
        for part in parts:
            touch(block, access, event, part, True)
        tile = gather(parts, access, None if padding is None else padding.data)
        tile = tile if seen is None else patched(tile, seen, access.dtype)
        if padding is not None and padding.poison is not None and mask is not None:
            poison = np.broadcast_to(padding.poison, access.shape) & ~mask.data
            if tile.poison is not None:
                poison = poison | tile.poison
            tile = Tile(tile.data, poison)
        return tile, access.end(block, event)

    return apply


def _shaped(op: Op, pointers: object) -> TileType:
    assert isinstance(pointers, TileType)
    return TileType(pointers.shape, pointee(pointers))


def _make_store_ptr(op: Op, plan: Plan[Block]) -> Apply[Block]:
    assert isinstance(op, StorePtrTko)
    access = Access.of(op, _shaped(op, op.destination.type), True, plan.used)

    def apply(block: Block, values: list[Any]) -> Sequence[Any]:
        destination, value, mask, token = values
        event = access.begin(block, token)
        parts = parts_of(block, access, destination, mask)
        for part in parts:
            touch(block, access, event, part, False)
        _put(block, access, event, parts, value)
        _publish(block, event, parts)
        return (access.end(block, event),)

    return apply


def _find(block: Block, access: Access, event: Event, parts: Sequence[Run | Places]) -> Seen | None:
    """What a strong load finds under the schedule `view`; None where it is what memory holds."""
    histories = block.launch.histories
    if histories is None or access.scope < 0 or _has_halves(parts):
        return None
    seen, stale = histories.read(block.launch.order, event, parts)
    # Looking again may show something else: a block that spins is not stuck.
    block.launch.version += stale
    return seen


def _has_halves(parts: Sequence[Run | Places]) -> bool:
    return any(isinstance(part, Places) and part.nibble is not None for part in parts)


def _put(
    block: Block, access: Access, event: Event, parts: Sequence[Run | Places], value: Tile
) -> None:
    """Store a tile; under the schedule `view`, strong elements go anywhere in their histories."""
    histories = block.launch.histories
    if histories is None or access.scope < 0 or _has_halves(parts):
        scatter(block, parts, access, value)
        return
    flat = np.broadcast_to(value.data, access.shape).reshape(-1)
    poison = None
    if value.poison is not None:
        poison = np.broadcast_to(value.poison, access.shape).reshape(-1)
    for part in parts:
        places = shuffled(block, as_places(part))
        bad = None if poison is None else poison[places.where]
        histories.write(block.launch.order, event, places, access.dtype, flat[places.where], bad)


def _publish(block: Block, event: Event, parts: Sequence[Run | Places]) -> None:
    block.launch.version += 1
    histories = block.launch.histories
    if histories is not None and event.scope < 0:
        for part in parts:
            histories.forget(part.buffer, offsets_of(part), part.size_bytes)
    for part in parts:
        if part.buffer.released or event.releases:
            block.launch.order.publish(
                event, part.buffer.released, offsets_of(part).tolist(), False
            )


def _make_load_view(op: Op, plan: Plan[Block]) -> Apply[Block]:
    assert isinstance(op, LoadViewTko)
    type = op.tile.type
    view_type = op.view.type
    assert isinstance(type, TileType) and isinstance(view_type, TileViewType)
    access = Access.of(op, type, False, plan.used)
    padding = padding_value(view_type)
    dtype = access.dtype

    def apply(block: Block, values: list[Any]) -> Sequence[Any]:
        view, token = values[0], values[-1]
        index = index_of(block, access, view, values[1:-1])
        event = access.begin(block, token)
        part = None if _has_history(block, access) else window_of(view, index)
        if part is None:
            parts = parts_of_view(block, access, view, index)
            seen = _find(block, access, event, parts)
            for places in parts:
                touch(block, access, event, places, True)
            data = gather(parts, access, padding)
            data = data if seen is None else patched(data, seen, access.dtype)
            return data, access.end(block, event)
        touch_window(block, access, event, view, part, True)
        data = decode(part.units.copy(), dtype)
        poison = _window_poison(view, part)
        if not part.is_whole:
            data, poison = _pad(access, part.extents, data, poison, padding)
        return Tile(data, poison), access.end(block, event)

    return with_inbounds(op, access, apply)


def _has_history(block: Block, access: Access) -> bool:
    return block.launch.histories is not None and access.scope >= 0


def _window_poison(view: TileView, part: Window) -> Mask | None:
    state = part.buffer.state
    if state is None:
        return None
    at = view.grid.offsets(part.index, part.extents)  # type: ignore[union-attr]
    size = view.dtype.storage.itemsize
    poison: Mask = np.asarray(state[at[:, None] + np.arange(size)].any(axis=1))
    return poison.reshape(part.extents) if poison.any() else None


def _pad(
    access: Access,
    extents: tuple[int, ...],
    data: Array,
    poison: Mask | None,
    padding: float | None,
) -> tuple[Array, Mask | None]:
    """Put the part of a tile that lies inside its view into a whole tile."""
    whole = np.full(access.shape, 0 if padding is None else padding, access.dtype.carrier)
    inside = tuple(slice(0, e) for e in extents)
    whole[inside] = data
    if poison is None and padding is not None:
        return whole, None
    bad: Mask = np.full(access.shape, padding is None)
    bad[inside] = False if poison is None else poison
    return whole, bad


def _make_store_view(op: Op, plan: Plan[Block]) -> Apply[Block]:
    assert isinstance(op, StoreViewTko)
    type = op.tile.type
    assert isinstance(type, TileType)
    access = Access.of(op, type, True, plan.used)
    dtype = access.dtype

    def apply(block: Block, values: list[Any]) -> Sequence[Any]:
        tile, view, token = values[0], values[1], values[-1]
        index = index_of(block, access, view, values[2:-1])
        event = access.begin(block, token)
        part = None if _has_history(block, access) else window_of(view, index)
        if part is None:
            parts = parts_of_view(block, access, view, index)
            for places in parts:
                touch(block, access, event, places, False)
            _put(block, access, event, parts, tile)
            _publish(block, event, parts)
            return (access.end(block, event),)
        touch_window(block, access, event, view, part, False)
        inside = tuple(slice(0, e) for e in part.extents)
        data = tile.data if part.is_whole else np.broadcast_to(tile.data, access.shape)[inside]
        part.units[...] = encode(data, dtype)
        if tile.poison is not None or part.buffer.state is not None:
            if tile.poison is not None:
                note_origin(block, op, tile)
            _set_window_state(access, view, part, tile, inside)
        block.launch.version += 1
        if block.launch.histories is not None:
            offsets = view.grid.offsets(part.index, part.extents)
            block.launch.histories.forget(part.buffer, offsets, dtype.storage.itemsize)
        if event.releases or part.buffer.released:
            offsets = view.grid.offsets(part.index, part.extents).tolist()
            block.launch.order.publish(event, part.buffer.released, offsets, False)
        return (access.end(block, event),)

    return with_inbounds(op, access, apply)


def _set_window_state(
    access: Access, view: TileView, part: Window, tile: Tile, inside: tuple[slice, ...]
) -> None:
    at = view.grid.offsets(part.index, part.extents)  # type: ignore[union-attr]
    bits = np.zeros(at.size, np.uint8)
    if tile.poison is not None:
        poison = np.broadcast_to(tile.poison, access.shape)[inside]
        bits = poison.reshape(-1).astype(np.uint8) * np.uint8(STORED_POISON)
    size = access.dtype.storage.itemsize
    part.buffer.ensure_state()[at[:, None] + np.arange(size)] = bits[:, None]


# Memory of the block and of the module


def _make_alloca(op: Op, plan: Plan[Block]) -> Apply[Block]:
    assert isinstance(op, Alloca)
    type = op.result.type
    assert isinstance(type, TileType)
    dtype = pointee(type)
    units = -(-op.num_elem // dtype.elements_per_unit)
    name = f"%{op.result.name}"

    def apply(block: Block, values: list[Any]) -> Sequence[Any]:
        memory = block.launch.memory
        try:
            buffer = memory.allocate(name, units * dtype.storage.itemsize, dtype, op.alignment)
        except TooMuch as error:
            block.fault("alloca.memory", f"`alloca` of {error}", hint="allocate less")
        if not op.shared:
            buffer.owner_block, buffer.restricted = block.linear, True
        block.allocated.append(buffer)
        return (Tile(np.array(buffer.address, np.int64)),)

    return apply


def _make_get_global(op: Op, plan: Plan[Block]) -> Apply[Block]:
    assert isinstance(op, GetGlobal)

    def apply(block: Block, values: list[Any]) -> Sequence[Any]:
        buffer = block.launch.globals.get(op.symbol)
        if buffer is None:
            block.fault("get_global.unknown", f"the module has no global `{op.symbol}`")
        return (Tile(np.array(buffer.address, np.int64)),)

    return apply


# Assertions and output


def _make_assert(op: Op, plan: Plan[Block]) -> Apply[Block]:
    assert isinstance(op, Assert)

    def apply(block: Block, values: list[Any]) -> Sequence[Any]:
        condition: Tile = values[0]
        block.demand(condition, "branch", "the condition of `assert`")
        for flat in np.flatnonzero(~condition.data.reshape(-1))[:8]:
            element = row_of(int(flat), condition.data.shape)
            where = f" at element {list(element)}" if element else ""
            name = block.launch.block_name(block.linear)
            block.launch.failed.append(
                Diagnosis(
                    "assert.failed",
                    f"{op.message}{where}",
                    op.span,
                    notes=((f"in block {name}", None),),
                    data={"block": block.id, "element": element},
                )
            )
        return ()

    return apply


def _make_print(op: Op, plan: Plan[Block]) -> Apply[Block]:
    assert isinstance(op, PrintTko)
    types = [v.type for v in op.args]

    def apply(block: Block, values: list[Any]) -> Sequence[Any]:
        try:
            tiles: list[Tile] = values[:-1]
            text = format_tiles(
                op.format, [t.data for t in tiles], [t.poison for t in tiles], types
            )
        except ValueError as error:
            block.fault("print_tko.format", str(error))
        block.launch.printed.append(text)
        return (values[-1] if values[-1] is not None else ROOT,)

    return apply


def _make_unsupported(op: Op, plan: Plan[Block]) -> Apply[Block]:
    raise ReftileError(
        Diagnosis(
            f"{op.name}.unsupported",
            f"`{op.name}` needs several devices, and the interpreter has one",
            op.span,
        )
    )


MAKERS: dict[str, Maker[Block]] = {
    "get_tile_block_id": _make_block_id,
    "get_num_tile_blocks": _make_num_blocks,
    "make_token": _make_token,
    "join_tokens": _make_join,
    "memory_fence_alias_tko": _make_pass_token,
    "gdc_launch_dependents_tko": _make_pass_token,
    "gdc_wait_tko": _make_pass_token,
    "make_tensor_view": _make_tensor_view,
    "make_partition_view": _make_tile_view,
    "make_strided_view": _make_tile_view,
    "make_gather_scatter_view": _make_tile_view,
    "get_index_space_shape": _make_extents,
    "get_tensor_shape": _make_extents,
    "load_ptr_tko": _make_load_ptr,
    "store_ptr_tko": _make_store_ptr,
    "load_view_tko": _make_load_view,
    "store_view_tko": _make_store_view,
    "alloca": _make_alloca,
    "get_global": _make_get_global,
    "assert": _make_assert,
    "assume": make_assume,
    "print_tko": _make_print,
    "multimem_load_reduce_view_tko": _make_unsupported,
    "multimem_reduce_view_tko": _make_unsupported,
    "multimem_store_view_tko": _make_unsupported,
    **ATOMICS,
}
"""How to run each of these operations with all checks."""
