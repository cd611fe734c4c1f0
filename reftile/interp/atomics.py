"""Read-modify-write operations of the checked path.

Elements at distinct addresses are done together. Elements that share an address are done in rounds:
in round k, the k-th element of each address.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace
from typing import Any, NoReturn

import numpy as np
from numpy.typing import NDArray

from reftile.interp.access import (
    Access,
    as_places,
    check_rights,
    index_of,
    parts_of,
    parts_of_view,
    pointee,
    raise_race,
    shuffled,
    touch,
    with_inbounds,
)
from reftile.interp.histories import Entry
from reftile.interp.machine import Block
from reftile.interp.memory import Places, Run, read_places, write_places
from reftile.interp.order import Event, Raced
from reftile.interp.plan import Apply, Maker, Plan
from reftile.interp.values import Array, Mask, Tile
from reftile.interp.views import TileView
from reftile.ir.core import Op
from reftile.ir.dtypes import F32, DType
from reftile.ir.numbers import canonical, convert, encode
from reftile.ir.ops import AtomicCasTko, AtomicRedViewTko, AtomicRmwTko
from reftile.ir.types import TileType, TileViewType


def combine(mode: str, old: Array, argument: Array, dtype: DType) -> Array:
    """What a read-modify-write puts in the place of `old`."""
    match mode:
        case "and":
            return old & argument
        case "or":
            return old | argument
        case "xor":
            return old ^ argument
        case "add":
            return old + argument
        case "addf":
            with np.errstate(all="ignore"):
                total = canonical(old + argument)
            # Twice rounded for the 16-bit formats, which does no harm: f32 has more than 2p + 2
            # bits.
            return total if dtype.bits > 16 else convert(total, F32, dtype)
        case "max":
            return np.maximum(old, argument)
        case "min":
            return np.minimum(old, argument)
        case "umax":
            return np.maximum(old.view(dtype.storage), argument.view(dtype.storage)).view(old.dtype)
        case "umin":
            return np.minimum(old.view(dtype.storage), argument.view(dtype.storage)).view(old.dtype)
        case _:
            return argument


def rounds(offsets: NDArray[np.int64]) -> Iterator[NDArray[np.int64]]:
    """Split positions, in order, into parts in which no two share an offset."""
    if offsets.size <= 1:
        yield np.arange(offsets.size)
        return
    ranked = np.argsort(offsets, kind="stable")
    sorted_offsets = offsets[ranked]
    is_first = np.r_[True, sorted_offsets[1:] != sorted_offsets[:-1]]
    if is_first.all():
        yield np.arange(offsets.size)
        return
    starts = np.flatnonzero(is_first)
    turn = np.arange(offsets.size) - np.repeat(starts, np.diff(np.r_[starts, offsets.size]))
    for k in range(int(turn.max()) + 1):
        yield ranked[turn == k]


def _subset(places: Places, chosen: NDArray[np.int64] | Mask) -> Places:
    return Places(places.buffer, places.offsets[chosen], places.where[chosen], places.size_bytes)


def _flat(tile: Tile, shape: tuple[int, ...]) -> tuple[Array, Mask | None]:
    data = np.broadcast_to(tile.data, shape).reshape(-1)
    if tile.poison is None or not tile.poison.any():
        return data, None
    return data, np.broadcast_to(tile.poison, shape).reshape(-1)


def update(
    block: Block,
    access: Access,
    event: Event,
    parts: Sequence[Run | Places],
    value: Tile,
    mode: str,
) -> Tile:
    """Do a read-modify-write on all parts; give the old values, poison where there was none."""
    data, bad = _flat(value, access.shape)
    old = np.zeros(access.size, access.dtype.carrier)
    old_bad = np.ones(access.size, np.bool_)
    for part in parts:
        all_places = shuffled(block, as_places(part))
        if block.launch.histories is not None:
            _update_history(block, access, event, all_places, (data, bad), mode, (old, old_bad))
            touch(block, access, event, part, True)
            continue
        touch(block, access, event, part, True)
        for chosen in rounds(all_places.offsets):
            places = _subset(all_places, chosen)
            before, poison = read_places(places, access.dtype)
            argument = data[places.where]
            after = combine(mode, before, argument, access.dtype)
            spoiled = None if bad is None else bad[places.where]
            if poison is not None and mode != "xchg":
                spoiled = poison if spoiled is None else spoiled | poison
            if spoiled is not None or not np.array_equal(before, after):
                block.launch.version += 1
            write_places(places, access.dtype, after, spoiled)
            old[places.where] = before
            old_bad[places.where] = False if poison is None else poison
        buffer = part.buffer
        if buffer.released or event.releases:
            block.launch.order.publish(event, buffer.released, all_places.offsets.tolist(), True)
    poison = old_bad.reshape(access.shape) if old_bad.any() else None
    return Tile(old.reshape(access.shape), poison)


def _update_history(
    block: Block,
    access: Access,
    event: Event,
    places: Places,
    argument: tuple[Array, Mask | None],
    mode: str,
    old: tuple[Array, Mask],
) -> None:
    """Do a read-modify-write on histories, element by element; fill in the old values."""
    histories, (data, bad), dtype = block.launch.histories, argument, access.dtype
    assert histories is not None

    def change(index: int, source: Entry) -> tuple[Array, Mask | None]:
        where = int(places.where[index])
        after = combine(mode, source.value(dtype), data[where : where + 1], dtype)
        spoiled = (bad is not None and bool(bad[where])) or (source.is_poison and mode != "xchg")
        return after, np.array([True]) if spoiled else None

    block.launch.version += 1
    for where, entry in histories.exchange(block.launch.order, event, places, dtype, change):
        old[0][where], old[1][where] = entry.value(dtype)[0], entry.is_poison


def _make_rmw(op: Op, plan: Plan[Block]) -> Apply[Block]:
    assert isinstance(op, AtomicRmwTko)
    type = op.pointers.type
    assert isinstance(type, TileType)
    access = Access.of(op, TileType(type.shape, pointee(type)), True, plan.used)
    mode = op.mode

    def apply(block: Block, values: list[Any]) -> Sequence[Any]:
        pointers, argument, mask, token = values
        event = access.begin(block, token)
        parts = parts_of(block, access, pointers, mask)
        return update(block, access, event, parts, argument, mode), access.end(block, event)

    return apply


def _make_red_view(op: Op, plan: Plan[Block]) -> Apply[Block]:
    assert isinstance(op, AtomicRedViewTko)
    view_type = op.view.type
    assert isinstance(view_type, TileViewType)
    access = Access.of(op, view_type.tile_type, True, plan.used)
    mode = op.mode

    def apply(block: Block, values: list[Any]) -> Sequence[Any]:
        view: TileView = values[0]
        value, token = values[-2], values[-1]
        index = index_of(block, access, view, values[1:-2])
        event = access.begin(block, token)
        parts = parts_of_view(block, access, view, index)
        update(block, access, event, parts, value, mode)
        return (access.end(block, event),)

    return with_inbounds(op, access, apply)


def _make_cas(op: Op, plan: Plan[Block]) -> Apply[Block]:
    assert isinstance(op, AtomicCasTko)
    type = op.pointers.type
    assert isinstance(type, TileType)
    access = Access.of(op, TileType(type.shape, pointee(type)), True, plan.used)

    def apply(block: Block, values: list[Any]) -> Sequence[Any]:
        pointers, expected, value, mask, token = values
        if mask is None:
            block.demand(expected, "compare", "the value to compare with")
        event = access.begin(block, token)
        old, old_bad = (a if a is None else a.copy() for a in _flat(expected, access.shape))
        for part in parts_of(block, access, pointers, mask):
            places = shuffled(block, as_places(part))
            check_rights(block, access, places.buffer, True)
            block.launch.waits[block.linear] = op, places.buffer, int(places.offsets[0])
            if block.launch.histories is not None:
                assert old is not None
                swapped = _swap_history(block, access, event, places, (expected, value), old)
                _record_swap(block, access, event, places, swapped)
                continue
            if event.acquires and places.buffer.released:
                block.launch.order.acquire(event, places.buffer.released, places.offsets.tolist())
            swapped = np.zeros(places.offsets.size, np.bool_)
            for chosen in rounds(places.offsets):
                subset = _subset(places, chosen)
                assert old is not None
                before, equal = _swap(block, access, subset, (expected, value))
                old[subset.where] = before
                swapped[chosen] = equal
            _record_swap(block, access, event, places, swapped)
        assert old is not None
        poison = None if old_bad is None or mask is None else old_bad & ~mask.data.reshape(-1)
        shaped = None if poison is None else poison.reshape(access.shape)
        return Tile(old.reshape(access.shape), shaped), access.end(block, event)

    return apply


def _swap_history(
    block: Block,
    access: Access,
    event: Event,
    places: Places,
    operands: tuple[Tile, Tile],
    old: Array,
) -> Mask:
    """Compare and swap on histories; fill in the old values, and give where they were replaced."""
    (wanted, wanted_bad), (new, new_bad) = (_flat(t, access.shape) for t in operands)
    histories, dtype = block.launch.histories, access.dtype
    swapped = np.zeros(places.offsets.size, np.bool_)
    assert histories is not None

    def change(index: int, source: Entry) -> tuple[Array, Mask | None] | None:
        where = int(places.where[index])
        if source.is_poison or (wanted_bad is not None and wanted_bad[where]):
            _fault_compare(block, access)
        before = encode(source.value(dtype), dtype)
        swapped[index] = bool(np.all(before == encode(wanted[where : where + 1], dtype)))
        bad = None if new_bad is None else new_bad[where : where + 1]
        return (new[where : where + 1], bad) if swapped[index] else None

    block.launch.version += 1
    for where, entry in histories.exchange(block.launch.order, event, places, dtype, change):
        old[where] = entry.value(dtype)[0]
    return swapped


def _fault_compare(block: Block, access: Access) -> NoReturn:
    block.fault(
        "poison.compare",
        f"`{access.op.name}` compares with memory or a value that is poison",
        hint="store the element, and order the store before this operation",
    )


def _swap(
    block: Block, access: Access, places: Places, operands: tuple[Tile, Tile]
) -> tuple[Array, Mask]:
    """Compare and swap at distinct places; give the old values, and where they were replaced."""
    (wanted, wanted_bad), (new, new_bad) = (_flat(t, access.shape) for t in operands)
    before, poison = read_places(places, access.dtype)
    if poison is not None or (wanted_bad is not None and wanted_bad[places.where].any()):
        _fault_compare(block, access)
    equal = encode(before, access.dtype) == encode(wanted[places.where], access.dtype)
    hit = _subset(places, equal)
    if hit.offsets.size:
        bad = None if new_bad is None else new_bad[hit.where]
        write_places(hit, access.dtype, new[hit.where], bad)
        block.launch.version += 1
    return before, equal


def _record_swap(block: Block, access: Access, event: Event, places: Places, swapped: Mask) -> None:
    """Elements that were swapped read and wrote, the others only read."""
    order, buffer = block.launch.order, places.buffer
    shadow = block.launch.shadow(buffer)
    failed = replace(event, id=len(order.events), is_write=False)
    if not swapped.all():
        order.events.append(failed)
    for chosen, part_event in ((swapped, event), (~swapped, failed)):
        part = _subset(places, chosen)
        if not part.offsets.size:
            continue
        try:
            shadow.touch(part_event, part.offsets)
        except Raced as race:
            raise_race(block, race, buffer, int(part.offsets[race.index]))
        if part_event.is_write and (buffer.released or event.releases):
            order.publish(event, buffer.released, part.offsets.tolist(), True)


ATOMICS: dict[str, Maker[Block]] = {
    "atomic_rmw_tko": _make_rmw,
    "atomic_cas_tko": _make_cas,
    "atomic_red_view_tko": _make_red_view,
}
"""How to run each read-modify-write."""
