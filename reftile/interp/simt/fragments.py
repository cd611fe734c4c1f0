"""Fragments: which element of a tile each register of each lane of a warp holds.

A fragment in one warp is an array of (registers, lanes). The warps of a layout are those of the
role that holds it, counted from its first; roles of w warps begin at multiples of w, so a warp's
number in its block, modulo the layout's warps, says which part it has.
"""

from __future__ import annotations

from functools import lru_cache
from math import prod
from typing import Any

import numpy as np
from numpy.typing import NDArray

from reftile.interp.simt.clocks import LANES
from reftile.interp.values import Tile
from reftile.ir.types import PendingType, TileType, Type
from reftile.layout.atoms import read
from reftile.layout.linear import Layout

Table = NDArray[np.int64]


@lru_cache(maxsize=1024)
def layout_of(text: str) -> Layout:
    """The layout that a type's text names."""
    return read(text)


def tile_type(type: Type) -> TileType:
    """The tile that a value is, or will be."""
    if isinstance(type, PendingType):
        return type.tile
    assert isinstance(type, TileType)
    return type


def is_fragment(type: Type) -> bool:
    """True if the elements of a tile are spread over threads."""
    return isinstance(type, TileType) and type.size > 1


@lru_cache(maxsize=1024)
def element_table(text: str, warp: int) -> Table:
    """Flat indices of the elements that a warp holds, (registers, lanes); -1 in padding."""
    layout = layout_of(text)
    registers, lanes = layout.extent("register"), layout.extent("lane")
    warps = layout.extent("warp")
    assert LANES % lanes == 0, "lanes of a layout divide those of a warp"
    found = layout(
        register=np.arange(registers)[:, None],
        lane=np.arange(LANES)[None, :] % lanes,
        warp=warp % warps,
    )
    table = np.broadcast_to(np.asarray(found, np.int64), (registers, LANES)).copy()
    table.flags.writeable = False
    return table


def register_count(type: TileType) -> int:
    """Elements that each thread holds."""
    return layout_of(type.layout).extent("register")


@lru_cache(maxsize=4096)
def positions(text: str, warp: int) -> tuple[Table, Table]:
    """Where a warp holds each element: (flat indices sorted, register * lanes + lane of each)."""
    flat = element_table(text, warp).reshape(-1)
    order = np.argsort(flat, kind="stable")
    return flat[order], order


@lru_cache(maxsize=4096)
def sources(text: str, warp: int, wanted: bytes) -> Table | None:
    """For each (register, lane) the register of the same lane that holds the wanted element.

    wanted: flat indices, (registers, lanes) of int64, as bytes. None: some lane does not hold what
    it needs. Padding takes register 0.
    """
    table = element_table(text, warp)
    need = np.frombuffer(wanted, np.int64).reshape(-1, LANES)
    found = np.zeros(need.shape, np.int64)
    for lane in range(LANES):
        held = {int(e): r for r, e in reversed(list(enumerate(table[:, lane])))}
        for register, element in enumerate(need[:, lane]):
            if element < 0:
                continue
            if int(element) not in held:
                return None
            found[register, lane] = held[int(element)]
    return found


@lru_cache(maxsize=256)
def exchange(source: str, target: str, warp: int) -> tuple[Table, Table, bool] | None:
    """For each (register, lane) of a target where a warp holds it: (registers, lanes, moves lanes).

    None if the warp does not hold it all. A lane's own copy is taken if it has one.
    """
    held, wanted = element_table(source, warp), element_table(target, warp)
    found = sources(source, warp, wanted.tobytes())
    lanes = np.broadcast_to(np.arange(LANES), wanted.shape)
    if found is not None:
        return found, lanes, False
    places: dict[int, tuple[int, int]] = {}
    for (register, lane), element in np.ndenumerate(held):
        places.setdefault(int(element), (register, lane))
    if not set(wanted[wanted >= 0].tolist()) <= places.keys():
        return None
    pairs = np.array([places.get(int(e), (0, 0)) for e in wanted.reshape(-1)], np.int64)
    return pairs[:, 0].reshape(wanted.shape), pairs[:, 1].reshape(wanted.shape), True


def take(tile: Tile, registers: Table) -> Tile:
    """Registers of a fragment, chosen for each (register, lane)."""
    lanes = np.arange(LANES)[None, :]
    data = np.broadcast_to(tile.data, (tile.data.shape[0], LANES))[registers, lanes]
    if tile.poison is None:
        return Tile(data)
    poison = np.broadcast_to(tile.poison, (tile.data.shape[0], LANES))[registers, lanes]
    return Tile(data, poison if poison.any() else None)


def dense(tile: Tile, type: TileType, warp: int) -> tuple[NDArray[Any], NDArray[np.bool_] | None]:
    """The elements that a warp holds in place in a whole tile (zeros elsewhere), and the poison."""
    table = element_table(type.layout, warp)
    whole = np.zeros(prod(type.shape), tile.data.dtype)
    data = np.broadcast_to(tile.data, table.shape)
    inside = table >= 0
    whole[table[inside]] = data[inside]
    poison = None
    if tile.poison is not None and tile.poison.any():
        poison = np.zeros(whole.shape, np.bool_)
        poison[table[inside]] = np.broadcast_to(tile.poison, table.shape)[inside]
        poison = poison.reshape(type.shape)
    return whole.reshape(type.shape), poison
