"""What is left: who a thread is, known elements, registers renamed, a counter."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from math import prod
from typing import Any

import numpy as np

from reftile.interp.atomics import combine
from reftile.interp.machine import Block
from reftile.interp.plan import Apply, Maker, Plan
from reftile.interp.prepared import Prepared, prepare_meaning
from reftile.interp.simt.barriers import warp_of
from reftile.interp.simt.clocks import LANES
from reftile.interp.simt.fragments import (
    Table,
    element_table,
    exchange,
    is_fragment,
    register_count,
    sources,
    take,
    tile_type,
)
from reftile.interp.simt.machine import Warp
from reftile.interp.simt.shared import find_global, read_units, write_units
from reftile.interp.values import Tile
from reftile.ir.attributes import Dense
from reftile.ir.core import Op
from reftile.ir.dtypes import I32
from reftile.ir.numbers import encode
from reftile.ir.types import TileType

# Who am I


def _per_warp(compute: Callable[[Warp], Any]) -> Maker[Block]:
    def make(op: Op, plan: Plan[Block]) -> Apply[Block]:
        return lambda block, values: (Tile(np.asarray(compute(warp_of(block)), np.int32)),)

    return make


def _triple(compute: Callable[[Warp], tuple[int, int, int]]) -> Maker[Block]:
    def make(op: Op, plan: Plan[Block]) -> Apply[Block]:
        return lambda block, values: tuple(
            Tile(np.array(n, np.int32)) for n in compute(warp_of(block))
        )

    return make


# Known elements


def _make_constant(op: Op, plan: Plan[Block]) -> Apply[Block]:
    dense = op.attributes["value"]
    assert isinstance(dense, Dense)
    kind = tile_type(op.results[0].type)
    whole = prepare_meaning(op)((), None)[0].data.reshape(-1)
    if kind.size == 1:
        return _known(plan, op, Tile(whole.reshape(())))
    if dense.splat:
        shape = register_count(kind), LANES
        return _known(plan, op, Tile(np.broadcast_to(whole[:1], shape)))

    def apply(block: Block, values: list[Any]) -> Sequence[Any]:
        table = element_table(kind.layout, warp_of(block).index)
        return (Tile(whole[np.where(table < 0, 0, table)]),)

    return apply


def _known(plan: Plan[Block], op: Op, tile: Tile) -> Apply[Block]:
    """A constant stands in the environment from the beginning."""
    plan.template[plan.slot(op.results[0])] = tile
    plan.known.add(op.results[0])
    return lambda block, values: (tile,)


def _make_iota(op: Op, plan: Plan[Block]) -> Apply[Block]:
    kind = tile_type(op.results[0].type)

    def apply(block: Block, values: list[Any]) -> Sequence[Any]:
        if kind.size == 1:
            return (Tile(np.zeros((), kind.dtype.carrier)),)
        table = element_table(kind.layout, warp_of(block).index)
        return (Tile(table.astype(kind.dtype.carrier)),)

    return apply


# Renaming


def _renaming(wanted: Callable[[Op], Callable[[Table], Table]]) -> Maker[Block]:
    """An operation each of whose elements is one of its first operand's.

    wanted: from flat indices of the result, to those of the operand.
    """

    def make(op: Op, plan: Plan[Block]) -> Apply[Block]:
        source, result = tile_type(op.operands[0].type), tile_type(op.results[0].type)
        find = wanted(op)

        def apply(block: Block, values: list[Any]) -> Sequence[Any]:
            tile: Tile = values[0]
            if not is_fragment(result):
                if not is_fragment(source):
                    return (tile,)
                return (_element(warp_of(block), op, source, find, tile),)
            if not is_fragment(source):
                return (_everywhere(tile, register_count(result)),)
            warp = warp_of(block)
            table = element_table(result.layout, warp.index)
            need = np.where(table < 0, -1, find(np.where(table < 0, 0, table)))
            registers = sources(source.layout, warp.index, need.tobytes())
            if registers is None:
                warp.fault(
                    "simt.moves",
                    f"`{op.name}` from {source.layout} to {result.layout} moves elements between "
                    "lanes",
                    hint="put `change_layout` before it",
                )
            return (take(tile, registers),)

        return apply

    return make


def _element(
    warp: Warp, op: Op, source: TileType, find: Callable[[Table], Table], tile: Tile
) -> Tile:
    """One element, which every lane must hold."""
    need = np.broadcast_to(find(np.zeros((1, 1), np.int64)), (1, LANES))
    registers = sources(source.layout, warp.index, np.ascontiguousarray(need).tobytes())
    if registers is None:
        warp.fault("simt.moves", f"`{op.name}` takes an element that not every lane holds")
    found = take(tile, registers)
    return Tile(found.data[0], None if found.poison is None else found.poison[0])


def _everywhere(tile: Tile, count: int) -> Tile:
    data = np.broadcast_to(tile.data, (count, LANES))
    poison = None if tile.poison is None else np.broadcast_to(tile.poison, (count, LANES))
    return Tile(data, poison)


def _of_broadcast(op: Op) -> Callable[[Table], Table]:
    source, result = tile_type(op.operands[0].type).shape, tile_type(op.results[0].type).shape

    def find(flat: Table) -> Table:
        index = np.unravel_index(flat, result)
        kept = [np.minimum(i, e - 1) for i, e in zip(index, source, strict=True)]
        return np.asarray(np.ravel_multi_index(kept, source), np.int64)

    return find if source else lambda flat: np.zeros_like(flat)


def _of_reshape(op: Op) -> Callable[[Table], Table]:
    return lambda flat: flat


def _of_permute(op: Op) -> Callable[[Table], Table]:
    source, result = tile_type(op.operands[0].type).shape, tile_type(op.results[0].type).shape
    order = op.attributes["permutation"]
    assert isinstance(order, tuple)

    def find(flat: Table) -> Table:
        index = np.unravel_index(flat, result)
        back: list[Any] = [None] * len(source)
        for axis, at in enumerate(order):
            assert isinstance(at, int)
            back[at] = index[axis]
        return np.asarray(np.ravel_multi_index(back, source), np.int64)

    return find


def _of_extract(op: Op) -> Callable[[Table], Table]:
    source, result = tile_type(op.operands[0].type).shape, tile_type(op.results[0].type).shape
    starts = [_constant_int(v) * e for v, e in zip(op.operands[1:], result, strict=True)]

    def find(flat: Table) -> Table:
        index = np.unravel_index(flat, result)
        moved = [i + s for i, s in zip(index, starts, strict=True)]
        return np.asarray(np.ravel_multi_index(moved, source), np.int64)

    return find


def _constant_int(value: Any) -> int:
    owner = value.owner
    assert isinstance(owner, Op) and owner.name == "constant", "indices of parts are constants"
    dense = owner.attributes["value"]
    assert isinstance(dense, Dense)
    return int(prepare_meaning(owner)((), None)[0].data.reshape(-1)[0])


# Elementwise operations: lanes and registers are batch axes of a scalar operation


def make_elementwise(op: Op, plan: Plan[Block]) -> Apply[Block]:
    """Evaluate the record's meaning for each register of each lane."""
    prepared: Prepared = replace(prepare_meaning(op), ranks=(0,) * len(op.arguments), result_rank=0)
    return lambda block, values: prepared(values, block.report)


# A counter


def _make_increment(op: Op, plan: Plan[Block]) -> Apply[Block]:
    def apply(block: Block, values: list[Any]) -> Sequence[Any]:
        warp = warp_of(block)
        pointers = warp.each(values[0], "a pointer")
        limits = warp.each(values[1], "the limit") & 0xFFFFFFFF
        old = np.zeros(LANES, np.int32)
        for lane in warp.lanes:
            buffer, offsets = find_global(warp, pointers[lane : lane + 1], 4, True)
            found, poison = read_units(buffer, offsets, I32)
            if poison is not None:
                warp.fault("poison.compare", "the counter has no defined value")
            value = int(found[0]) & 0xFFFFFFFF
            old[lane] = found[0]
            new = 0 if value >= limits[lane] else value + 1
            write_units(buffer, offsets, I32, np.array([new], np.uint32).view(np.int32), None)
        warp.simt.version += 1
        warp.simt.accesses += 1
        bad = None if warp.mask.all() else ~warp.mask
        return (Tile(old, bad), None)[: len(op.results)]

    return apply


def _make_update(op: Op, plan: Plan[Block]) -> Apply[Block]:
    """Read, modify and write, or compare and swap: lanes one after another."""
    kind = tile_type(op.results[0].type)
    is_swap = op.name == "atomic_cas_tko"
    mode = str(op.attributes.get("mode", ""))
    size = kind.dtype.storage.itemsize

    def apply(block: Block, values: list[Any]) -> Sequence[Any]:
        warp = warp_of(block)
        pointers = warp.each(values[0], "a pointer")
        operands = [warp.each(v, "an operand of an update") for v in values[1 : 2 + is_swap]]
        found = np.zeros(LANES, kind.dtype.carrier)
        for lane in warp.lanes:
            buffer, offsets = find_global(warp, pointers[lane : lane + 1], size, True)
            old, poison = read_units(buffer, offsets, kind.dtype)
            if poison is not None:
                warp.fault("poison.compare", "the element has no defined value")
            old = np.asarray(old)
            given = [np.asarray(v[lane : lane + 1], kind.dtype.carrier) for v in operands]
            if not is_swap:
                new = combine(mode, old, given[0], kind.dtype)
            else:
                alike = encode(old, kind.dtype) == encode(given[0], kind.dtype)
                new = np.where(alike, given[1], old)
            found[lane] = old[0]
            write_units(buffer, offsets, kind.dtype, np.asarray(new), None)
        warp.simt.version += 1
        warp.simt.accesses += 1
        bad = None if warp.mask.all() else ~warp.mask
        return (Tile(found, bad), None)[: len(op.results)]

    return apply


def _make_change(op: Op, plan: Plan[Block]) -> Apply[Block]:
    source, result = tile_type(op.operands[0].type), tile_type(op.results[0].type)

    def apply(block: Block, values: list[Any]) -> Sequence[Any]:
        warp = warp_of(block)
        tile: Tile = values[0]
        if not is_fragment(result):
            return (tile,)
        found = exchange(source.layout, result.layout, warp.index)
        if found is None:
            warp.fault("simt.moves", f"from {source.layout} to {result.layout} crosses warps")
        registers, lanes, moves = found
        if moves:
            warp.together(op.name)
        shape = tile.data.shape[0], LANES
        data = np.broadcast_to(tile.data, shape)[registers, lanes]
        poison = None if tile.poison is None else np.broadcast_to(tile.poison, shape)
        if poison is not None:
            poison = poison[registers, lanes]
        return (Tile(data, poison if poison is not None and poison.any() else None),)

    return apply


ACTIONS: dict[str, Maker[Block]] = {
    "change_layout": _make_change,
    "thread_id": _per_warp(lambda w: w.index * LANES + np.arange(LANES)),
    "lane_id": _per_warp(lambda w: np.arange(LANES)),
    "warp_id": _per_warp(lambda w: w.index),
    "cluster_rank": _per_warp(lambda w: w.home.rank),
    "get_tile_block_id": _triple(lambda w: w.id),
    "get_num_tile_blocks": _triple(lambda w: w.launch.grid),
    "constant": _make_constant,
    "iota": _make_iota,
    "broadcast": _renaming(_of_broadcast),
    "reshape": _renaming(_of_reshape),
    "permute": _renaming(_of_permute),
    "extract": _renaming(_of_extract),
    "atomic_inc_wrap_tko": _make_increment,
    "atomic_rmw_tko": _make_update,
    "atomic_cas_tko": _make_update,
}
"""How to run each of these operations."""

__all__ = ["ACTIONS", "make_elementwise", "prod"]
