"""What must move to turn one register layout into another.

Both layouts hold the same tile; `convert` says how far its elements travel: between registers of
a thread, between lanes of a warp, between warps or between CTAs. Every bit of a target place is
solved for bits of source places (Gaussian elimination), preferring those that stay closest: copies
that the source already holds nearby are used. Layouts with different repeats are compared by
enumeration, which is exact too but slower and names no bits.
"""

from __future__ import annotations

from dataclasses import dataclass
from math import prod
from typing import Literal

import numpy as np

from reftile.layout.linear import Basis, Digit, Indices, Layout, LayoutError, Place

Distance = Literal["none", "register", "lane", "warp", "cta"]
_DISTANCES: tuple[Distance, ...] = ("none", "register", "lane", "warp", "cta")
_SCOPES: tuple[Place, ...] = ("register", "lane", "warp", "cta")

Bit = tuple[Place, int]
"""A bit of a place, counted among that place's bits from the lowest."""


@dataclass(frozen=True, slots=True)
class Conversion:
    """How elements travel.

    distance: the farthest any element goes. "warp" means through shared memory, "cta" through
        distributed shared memory.
    sources: for each bit of the target, the source bits that hold the same elements (none: a copy
        of the bits that are set otherwise). Empty when found by enumeration.
    shuffle_rounds: for "lane", how often each lane exchanges one element with another.
    parallel_elements: how many elements of a lane go to the same lane and can be packed together.
    """

    distance: Distance
    sources: tuple[tuple[Bit, tuple[Bit, ...]], ...]
    shuffle_rounds: int
    parallel_elements: int

    @property
    def moved(self) -> tuple[tuple[Bit, tuple[Bit, ...]], ...]:
        """The bits of the target that are not simply the same bit of the source."""
        return tuple((bit, found) for bit, found in self.sources if found != (bit,))


def convert(source: Layout, target: Layout) -> Conversion:
    """Find what must move to hold in `target` what is held in `source`.

    Raises:
        LayoutError: the tiles differ, or the source does not hold some element of the target.
    """
    if source.shape != target.shape or source.cover != target.cover:
        raise LayoutError(f"a tile of {source.shape} does not become one of {target.shape}")
    for layout in (source, target):
        if set(layout.places) - set(_SCOPES):
            raise LayoutError("convert compares register layouts, not memory")
    if source == target:
        return Conversion("none", _identity(target), 0, 1)
    if _repeats_agree(source, target) and _separate(source) and _separate(target):
        return _by_elimination(source, target)
    return _by_enumeration(source, target)


def _bits(layout: Layout, place: Place) -> list[Digit]:
    return [d for d in layout.digits(place) if d.is_bit]


def _identity(layout: Layout) -> tuple[tuple[Bit, tuple[Bit, ...]], ...]:
    bits: list[Bit] = [(p, i) for p in _SCOPES for i in range(len(_bits(layout, p)))]
    return tuple((bit, (bit,)) for bit in bits)


def _repeats_agree(source: Layout, target: Layout) -> bool:
    """Do the repeats stay where they are, so that only bits need looking at?"""
    for place in _SCOPES:
        mine, theirs = source.digits(place), target.digits(place)
        if place == "register":
            mine, theirs = ([d for d in row if not d.is_bit] for row in (mine, theirs))
            if sorted(mine, key=lambda d: d.step) != sorted(theirs, key=lambda d: d.step):
                return False
        elif [d if not d.is_bit else None for d in mine] != [
            d if not d.is_bit else None for d in theirs
        ]:
            return False
    return True


def _separate(layout: Layout) -> bool:
    """Do bits and repeats tell apart different parts of the index?"""
    digits = [d for p in layout.places for d in layout.digits(p)]
    for k in range(len(layout.shape)):
        top = max((d.step[k] for d in digits if d.is_bit), default=0).bit_length()
        if any(d.step[k] % (1 << top) for d in digits if not d.is_bit):
            return False
    return True


def _by_elimination(source: Layout, target: Layout) -> Conversion:
    pack = source.map.pack
    columns: list[tuple[Bit, int]] = [
        ((place, i), pack(digit.step))
        for place in _SCOPES
        for i, digit in enumerate(_bits(source, place))
    ]
    value = dict(columns)
    scopes = [
        [c for c in columns if _SCOPES.index(c[0][0]) <= reach] for reach in range(len(_SCOPES))
    ]
    bases = [Basis(v for _, v in scope) for scope in scopes]
    sources = list[tuple[Bit, tuple[Bit, ...]]]()
    reach = 0
    for place in _SCOPES:
        for i, digit in enumerate(_bits(target, place)):
            bit = (place, i)
            found = _nearest(bit, pack(digit.step), value, scopes, bases)
            if found is None:
                raise LayoutError("the source does not hold every element of the target")
            sources.append((bit, found[1]))
            reach = max(reach, found[0])
    rounds, parallel = _rounds(sources, target) if reach == 1 else (0, 1)
    return Conversion(_DISTANCES[reach + 1], tuple(sources), rounds, parallel)


def _nearest(
    bit: Bit,
    wanted: int,
    value: dict[Bit, int],
    scopes: list[list[tuple[Bit, int]]],
    bases: list[Basis],
) -> tuple[int, tuple[Bit, ...]] | None:
    """Solve one target bit: (how far it reaches, the source bits), nearest solution first.

    A bit of a lane, warp or CTA stays nearby if its own element differs from that of the same bit
    of the source by bits of a smaller scope only.
    """
    if wanted == value.get(bit):
        return 0, (bit,)
    own = _SCOPES.index(bit[0])
    for reach, (scope, basis) in enumerate(zip(scopes, bases, strict=True)):
        keeps = reach < own
        if keeps and bit not in value:
            continue
        chosen = basis.solve(wanted ^ value[bit] if keeps else wanted)
        if chosen is not None:
            used = [b for i, (b, _) in enumerate(scope) if chosen >> i & 1]
            return reach, (*used, bit) if keeps else tuple(used)
    return None


def _rounds(sources: list[tuple[Bit, tuple[Bit, ...]]], target: Layout) -> tuple[int, int]:
    """Count exchanges between lanes for a conversion within warps.

    The source lane of register r in lane l is A r + B l. If B l differs from l by something that A
    reaches, registers can be taken in an order (by lane) that makes every round a butterfly, and
    the rounds with A r = 0 stay in the lane. Otherwise some lane receives all its registers.
    """

    def lanes(found: tuple[Bit, ...]) -> int:
        mask = 0
        for place, i in found:
            mask ^= 1 << i if place == "lane" else 0
        return mask

    registers = [
        lanes(found)
        for (place, i), found in sources
        if place == "register" and any(_bits(target, "register")[i].step)
    ]
    reached = Basis(registers)
    repeats = prod(d.extent for d in target.digits("register") if not d.is_bit)
    count = 1 << len(registers)
    parallel = count >> reached.rank
    offsets = [
        lanes(found) ^ (1 << i if place == "lane" else 0)
        for (place, i), found in sources
        if place != "register"
    ]
    if all(reached.solve(offset) is not None for offset in offsets):
        count -= parallel
    return count * repeats, parallel * repeats


def _by_enumeration(source: Layout, target: Layout) -> Conversion:
    held = _table(source)
    wanted = _table(target)
    if held.shape == wanted.shape and np.array_equal(held, wanted):
        return Conversion("none", (), 0, 1)
    size = prod(source.cover)
    for reach, distance in enumerate(_DISTANCES[1:], start=1):
        keys = [_keys(table, reach, size) for table in (held, wanted)]
        if np.all(np.isin(keys[1], keys[0])):
            rounds = target.extent("register") if distance == "lane" else 0
            return Conversion(distance, (), rounds, 1)
    raise LayoutError("the source does not hold every element of the target")


def _table(layout: Layout) -> Indices:
    """Flat indices in the cover with one axis per scope, absent ones included."""
    flat = np.zeros((), np.int64)
    for values, extent in zip(layout.map.table(), layout.cover, strict=True):
        flat = flat * extent + values
    return np.asarray(flat).reshape([layout.extent(p) for p in _SCOPES])


def _keys(table: Indices, reach: int, size: int) -> Indices:
    """Number (element, place) pairs, counting places of the scopes that must not be left."""
    keys = table
    grid = np.indices(table.shape, dtype=np.int64, sparse=True)
    stride = size
    for axis in range(reach, len(_SCOPES)):
        keys = keys + grid[axis] * stride
        # Both tables count with a common stride, so that equal places get equal numbers.
        stride <<= 12
    return np.unique(keys)
