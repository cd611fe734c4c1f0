"""How the lanes of a warp exchange elements to hold them in another layout, in rounds.

In round k lane l receives what its register k xor C(l) is to hold, and each lane sends one
register; C is a linear map of lanes to registers, chosen so that no lane is asked for two. The lane
that a lane reads from is linear in its number, too.
"""

from __future__ import annotations

from functools import lru_cache

import numpy as np
from numpy.typing import NDArray

from reftile.layout.linear import Layout

LANES = 32
Table = NDArray[np.int64]
"""Numbers by register and lane, or by lane."""


@lru_cache(maxsize=256)
def source_places(held: Layout, target: Layout) -> tuple[Table, Table] | None:
    """For each (register, lane) of the target: the register and lane that hold its element.

    None if the element lies in another warp. A lane's own copy is taken if it has one.
    """
    warps = max(held.extent("warp"), target.extent("warp"))
    plans = [_in_warp(held, target, warp) for warp in range(warps)]
    first = plans[0]
    if first is None:
        return None
    for plan in plans[1:]:
        if plan is None or not np.array_equal(np.stack(plan), np.stack(first)):
            return None
    return first


@lru_cache(maxsize=256)
def is_possible(held: Layout, target: Layout) -> bool:
    """True if every warp makes the change alike, within itself, in rounds."""
    plan = source_places(held, target)
    if plan is None:
        return False
    own = np.broadcast_to(np.arange(LANES), plan[1].shape)
    return np.array_equal(plan[1], own) or rounds(plan) is not None


def _in_warp(held: Layout, target: Layout, warp: int) -> tuple[Table, Table] | None:
    have, want = (_table(layout, warp) for layout in (held, target))
    places: dict[int, list[tuple[int, int]]] = {}
    for (register, lane), element in np.ndenumerate(have):
        places.setdefault(int(element), []).append((register, lane))
    registers, lanes = np.zeros(want.shape, np.int64), np.zeros(want.shape, np.int64)
    for (register, lane), element in np.ndenumerate(want):
        if element < 0:
            lanes[register, lane] = lane
            continue
        found = places.get(int(element))
        if found is None:
            return None
        registers[register, lane], lanes[register, lane] = min(
            found, key=lambda place: (place[1] ^ lane, place[0])
        )
    return registers, lanes


def _table(layout: Layout, warp: int) -> Table:
    count, lanes = layout.extent("register"), layout.extent("lane")
    found = layout(
        register=np.arange(count)[:, None],
        lane=np.arange(LANES)[None, :] % lanes,
        warp=warp % layout.extent("warp"),
    )
    return np.broadcast_to(np.asarray(found, np.int64), (count, LANES))


def rounds(places: tuple[Table, Table]) -> Table | None:
    """C, the register that lane l receives in round k, xor k, for each lane; None if none is found.

    A lane is asked for one register in each round, by lanes whose numbers give its own linearly.
    places: as of `source_places`.
    """
    return _rounds(_Plan(places))


class _Plan:
    """Tables that can be kept by value."""

    def __init__(self, tables: tuple[Table, Table]) -> None:
        self.tables = tables
        self.key = tables[0].tobytes(), tables[1].tobytes()

    def __eq__(self, other: object) -> bool:
        return isinstance(other, _Plan) and self.key == other.key

    def __hash__(self) -> int:
        return hash(self.key)


@lru_cache(maxsize=256)
def _rounds(plan: _Plan) -> Table | None:
    count = len(plan.tables[0])
    if count & (count - 1):
        nothing = np.zeros(LANES, np.int64)
        return nothing if _is_consistent(plan, nothing, 5) else None

    def search(chosen: list[int]) -> list[int] | None:
        if not _is_consistent(plan, by_bits(chosen), len(chosen)):
            return None
        if len(chosen) == 5:
            return chosen
        for step in range(count):
            found = search([*chosen, step])
            if found is not None:
                return found
        return None

    found = search([])
    return by_bits(found) if found is not None else None


def by_bits(steps: list[int]) -> Table:
    """For each lane, the exclusive or of the steps of its bits."""
    lanes = np.arange(LANES)
    total = np.zeros(LANES, np.int64)
    for i, step in enumerate(steps):
        total ^= np.where(lanes >> i & 1, step, 0)
    return total


def _is_consistent(plan: _Plan, chosen: Table, bits: int) -> bool:
    """True if among the first lanes each asks one that depends on it linearly, for one register."""
    registers, lanes = plan.tables
    first = np.arange(1 << bits)
    for k in range(len(registers)):
        target = chosen[first] ^ k
        senders = lanes[target, first]
        asked: dict[int, int] = {}
        for sender, sent in zip(senders.tolist(), registers[target, first].tolist(), strict=True):
            if asked.setdefault(sender, sent) != sent:
                return False
        if not _is_linear(senders, bits):
            return False
    return True


def _is_linear(numbers: Table, bits: int) -> bool:
    """True if numbers are the first xor one more for each bit of their position."""
    halves = (1 << i for i in range(bits))
    return all(
        np.array_equal(numbers[n : 2 * n], numbers[:n] ^ numbers[n] ^ numbers[0]) for n in halves
    )
