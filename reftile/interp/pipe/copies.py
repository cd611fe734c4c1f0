"""Asynchronous copies: `copy_in` and `copy_out`."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from math import prod
from typing import Any

import numpy as np

from reftile.interp.access import (
    Access,
    Window,
    gather,
    parts_of_view,
    scatter,
    touch,
    touch_window,
    window_of,
)
from reftile.interp.atomics import combine
from reftile.interp.machine import Block
from reftile.interp.memory import STORED_POISON, Places
from reftile.interp.order import DEVICE, WEAK
from reftile.interp.pipe.actions import agent_of, in_block, reached
from reftile.interp.pipe.barriers import Barriers, Misuse, Phases
from reftile.interp.pipe.flights import Flight, Landing
from reftile.interp.pipe.machine import Agent, Home
from reftile.interp.pipe.places import Place, read_place, touch_place, write_place
from reftile.interp.pipe.tokens import PipeToken, Touch, sets, token_of
from reftile.interp.pipe.waits import element_of
from reftile.interp.plan import Apply, Maker, Plan
from reftile.interp.values import Array, Mask, Tile
from reftile.interp.views import TileView, padding_value
from reftile.ir.core import Op
from reftile.ir.numbers import decode, encode
from reftile.ir.types import BufferType, TileType, TileViewType

# The part of a view that a copy touches


@dataclass(slots=True)
class Region:
    """The elements of one tile of a view: a window, or places one by one; empty if outside."""

    access: Access
    view: TileView
    window: Window | None
    places: Sequence[Places]

    def touch(self, agent: Agent, event: Touch) -> None:
        """Record the access: rights and races."""
        if self.window is not None:
            touch_window(agent, self.access, event, self.view, self.window, event.is_read)
        for part in self.places:
            touch(agent, self.access, event, part, event.is_read)

    def read(self, padding: float) -> Tile:
        """The tile; outside the view stands the padding."""
        if self.window is None:
            return gather(self.places, self.access, padding)
        window = self.window
        data = decode(window.units.copy(), self.access.dtype)
        poison = self._poison(window)
        if window.is_whole:
            return Tile(data, poison)
        whole = np.full(self.access.shape, padding, self.access.dtype.carrier)
        inside = tuple(slice(0, e) for e in window.extents)
        whole[inside] = data
        if poison is None:
            return Tile(whole)
        bad = np.zeros(self.access.shape, np.bool_)
        bad[inside] = poison
        return Tile(whole, bad)

    def _bytes(self, window: Window) -> Array:
        assert self.view.grid is not None
        at = self.view.grid.offsets(window.index, window.extents)
        return at[:, None] + np.arange(self.access.dtype.storage.itemsize)

    def _poison(self, window: Window) -> Mask | None:
        state = window.buffer.state
        if state is None:
            return None
        bad = np.asarray(state[self._bytes(window)].any(axis=1))
        return bad.reshape(window.extents) if bad.any() else None

    def write(self, agent: Agent, tile: Tile, mode: str) -> None:
        """Store the elements that lie inside the view, or combine them with what is there."""
        agent.launch.version += 1
        if self.window is None:
            if mode != "store":
                tile = self._combined(gather(self.places, self.access, 0.0), tile, mode)
            scatter(agent, self.places, self.access, tile)
            return
        window = self.window
        inside = tuple(slice(0, e) for e in window.extents)
        bad = None if tile.is_clean or tile.poison is None else tile.poison[inside]
        part = Tile(tile.data[inside], bad)
        if mode != "store":
            old = Tile(decode(window.units.copy(), self.access.dtype), self._poison(window))
            part = self._combined(old, part, mode)
        window.units[...] = encode(part.data, self.access.dtype)
        if part.poison is not None or window.buffer.state is not None:
            marks = np.zeros(window.extents, np.uint8)
            if part.poison is not None:
                marks[part.poison] = STORED_POISON
            window.buffer.ensure_state()[self._bytes(window)] = marks.reshape(-1)[:, None]

    def _combined(self, old: Tile, new: Tile, mode: str) -> Tile:
        dtype = self.access.dtype
        if mode == "add":
            data = combine("add" if dtype.is_int else "addf", old.data, new.data, dtype)
        elif dtype.is_int:
            data = combine(mode, old.data, new.data, dtype)
        else:
            data = np.fmin(old.data, new.data) if mode == "min" else np.fmax(old.data, new.data)
        bad = [p for p in (old.poison, new.poison) if p is not None]
        return Tile(data, np.logical_or.reduce(bad) if bad else None)


def _access_of(op: Op, type: TileViewType, writes: bool, strong: bool = False) -> Access:
    tile = type.tile_type
    scope = DEVICE if strong else WEAK
    ordering = "relaxed" if strong else "weak"
    return Access(op, tile.shape, tile.dtype, scope, ordering, writes, False, prod(tile.shape))


def _region_of(agent: Agent, access: Access, view: TileView, index: Sequence[Tile]) -> Region:
    """The elements at an index; one beyond the index space has none."""
    found: list[Array] = []
    operands: Sequence[Any] = getattr(access.op, "index")  # noqa: B009
    for axis, tile in enumerate(index):
        agent.demand(tile, "address", f"the index of `{access.op.name}`")
        type = operands[axis].type
        assert isinstance(type, TileType)
        value = tile.data.astype(np.int64)
        if axis == view.sparse:
            found.append(value)
            continue
        if not 0 <= int(value) < view.space[axis]:
            return Region(access, view, None, ())
        found.append(value)
    window = window_of(view, found)
    if window is not None:
        return Region(access, view, window, ())
    return Region(access, view, None, parts_of_view(agent, access, view, found))


# Into shared memory


def _make_copy_in(op: Op, plan: Plan[Block]) -> Apply[Block]:
    view_type = next(v for v in op.operands).type
    assert isinstance(view_type, TileViewType)
    access = _access_of(op, view_type, False)
    padding = padding_value(view_type) or 0.0
    bulk = op.attributes["engine"] == "bulk"
    rank = view_type.rank

    def apply(block: Block, values: list[Any]) -> Sequence[Any]:
        agent = agent_of(block)
        view, index = values[0], values[1 : 1 + rank]
        destination, barriers, slot, multicast, token = values[1 + rank :]
        flight = Flight(agent, op)
        order, before = agent.pipe.pipe_order, token_of(token)
        region = _region_of(agent, access, view, index)
        read = order.record(agent, op, before, True, False, WEAK, _size(access), "weak", bulk, True)
        region.touch(agent, read)
        taken: list[Tile] = []
        flight.stages.append(lambda: taken.append(region.read(padding)))
        flight.token = order.completed(read)
        known = before | agent.base
        for home in _destinations(agent, multicast):
            place = in_block(destination, home)
            write = order.record(agent, op, before, False, True, is_async=bulk, in_flight=True)
            touch_place(order, write, place)
            flight.token = flight.token | order.completed(write)
            _add_landing(agent, flight, (home, place), taken, barriers, slot, known)
        flight.free_token = flight.token
        if not bulk:
            agent.thread_copies.open.append(flight)
        agent.pipe.fly(flight)
        return ()

    return apply


def _size(access: Access) -> int:
    return access.dtype.storage.itemsize


def _destinations(agent: Agent, multicast: Tile | None) -> list[Home]:
    """The blocks that a copy writes to."""
    if multicast is None:
        return [agent.home]
    mask = agent.integer(multicast, "the mask of `copy_in`")
    homes = agent.home.cluster.homes
    if not 0 < mask < 1 << len(homes):
        agent.fault("pipe.rank", f"the mask {mask} names no blocks, or some outside the cluster")
    return [reached(agent, h) for h in homes if mask >> h.rank & 1]


def _add_landing(
    agent: Agent,
    flight: Flight,
    destination: tuple[Home, Place],
    taken: list[Tile],
    barriers: Barriers | None,
    slot: Tile | None,
    known: PipeToken,
) -> None:
    """Let a copy write one destination, and credit its bytes there. known: before the copy."""
    home, place = destination
    shape, bytes = place.type.shape, place.type.size_bytes
    credits: list[tuple[Phases, Landing]] = []
    across = False
    if barriers is not None:
        across = barriers.scope == "cluster"
        at = element_of(agent, barriers.elements, slot, barriers.value.name, flight.op)
        landing = Landing(flight, home.landings)
        home.landings.add(landing)
        element = home.barriers[barriers.value].elements[at]
        element.coming.append(landing)
        credits.append((element, landing))

    def land() -> None:
        tile = taken[0]
        poison = None if tile.poison is None else tile.poison.reshape(shape)
        write_place(place, Tile(tile.data.reshape(shape), poison))
        token = flight.token
        if home is not agent.home and not across:
            token = sets(token.done, token.shown & ~known.shown, token.fenced & ~known.fenced)
        for element, landing in credits:
            try:
                element.credit(bytes, token, landing)
            except Misuse as misuse:
                agent.misuse(misuse, flight.op)

    flight.stages.append(land)


# Out of shared memory


def _make_copy_out(op: Op, plan: Plan[Block]) -> Apply[Block]:
    source_type, view_type = op.operands[0].type, op.operands[1].type
    assert isinstance(source_type, BufferType) and isinstance(view_type, TileViewType)
    mode = str(op.attributes.get("mode", "store"))
    access = _access_of(op, view_type, True, mode != "store")
    shape = view_type.tile

    def apply(block: Block, values: list[Any]) -> Sequence[Any]:
        agent = agent_of(block)
        source, view, index, token = values[0], values[1], values[2:-1], values[-1]
        order, before = agent.pipe.pipe_order, token_of(token)
        read = order.record(agent, op, before, True, False, is_async=True, in_flight=True)
        touch_place(order, read, source)
        region = _region_of(agent, access, view, index)
        write = order.record(
            agent,
            op,
            before,
            mode != "store",
            True,
            access.scope,
            _size(access),
            access.ordering,
            True,
            True,
        )
        region.touch(agent, write)
        taken: list[Tile] = []

        def leave() -> None:
            tile = read_place(source)
            poison = None if tile.poison is None else tile.poison.reshape(shape)
            taken.append(Tile(tile.data.reshape(shape), poison))

        flight = Flight(
            agent,
            op,
            [leave, lambda: region.write(agent, taken[0], mode)],
            free_after=1,
            token=order.completed(read) | order.completed(write),
            free_token=order.completed(read),
        )
        agent.bulk_copies.open.append(flight)
        agent.pipe.fly(flight)
        return ()

    return apply


COPIES: dict[str, Maker[Block]] = {"copy_in": _make_copy_in, "copy_out": _make_copy_out}
"""How to start each copy."""
