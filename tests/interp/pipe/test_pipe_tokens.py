"""The order of pipe kernels: the table of needs, and the shadow against one that keeps all."""

from __future__ import annotations

from dataclasses import dataclass, field
from random import Random
from typing import Any

import numpy as np
import pytest

from reftile.interp.order import WEAK
from reftile.interp.pipe.places import Allocation, Place, RacedAt, touch_place
from reftile.interp.pipe.tokens import NOTHING, PipeOrder, PipeToken, Touch, is_ordered, sets
from reftile.ir.buffer_layout import bit_offset, buffer_bytes
from reftile.ir.core import Op, Value
from reftile.ir.dtypes import DTYPES
from reftile.ir.types import BufferType


@dataclass
class Someone:
    """An agent that only issues accesses."""

    linear: int = 0
    number: int = 0
    id: tuple[int, int, int] = (0, 0, 0)
    label: str = "someone"
    base: PipeToken = NOTHING
    performed: PipeToken = NOTHING
    name: str = "someone of block (0, 0, 0)"


@dataclass
class World:
    order: PipeOrder = field(default_factory=PipeOrder)
    agent: Any = field(default_factory=Someone)

    def access(self, token: PipeToken, kind: str) -> Touch:
        """kind: read or write, generic or async, as two letters."""
        write, is_async = kind[0] == "w", kind[1] == "a"
        return self.order.record(
            self.agent, Op(), token, not write, write, WEAK, 1, "weak", is_async, is_async
        )


# (earlier, later, in which of the sets D, W, F the earlier one must be): spec/pipe.md, "Order".
NEEDS = [
    ("rg", "wg", "D"),
    ("rg", "wa", "D"),
    ("ra", "wg", "D"),
    ("ra", "wa", "D"),
    ("wg", "rg", "W"),
    ("wa", "rg", "W"),
    ("wg", "ra", "F"),
    ("wa", "ra", "F"),
    ("wg", "wg", "DW"),
    ("wa", "wg", "DW"),
    ("wg", "wa", "DF"),
    ("wa", "wa", "DF"),
]


@pytest.mark.parametrize(("earlier", "later", "needed"), NEEDS)
def test_what_each_pair_of_accesses_needs(earlier: str, later: str, needed: str) -> None:
    for name, place in (("D", 0), ("W", 1), ("F", 2)):
        world = World()
        first = world.access(NOTHING, earlier)
        bits = [0, 0, 0]
        bits[place] = first.bit
        second = world.access(sets(*bits), later)
        assert is_ordered(first, second) == (name in needed)


def test_what_a_token_gains() -> None:
    world = World()
    order = world.order
    read, write = world.access(NOTHING, "rg"), world.access(NOTHING, "wg")
    copied, product = world.access(NOTHING, "wa"), world.access(NOTHING, "ra")

    def gained(token: PipeToken) -> tuple[int, int, int]:
        return token.done, token.shown, token.fenced

    assert gained(order.token(read)) == (read.bit, 0, 0)
    assert gained(order.token(write)) == (0, write.bit, 0)
    assert gained(order.completed(copied)) == (copied.bit,) * 3
    assert gained(order.completed(product)) == (product.bit, 0, 0)
    both = order.completed(copied) | order.token(write)
    assert gained(both.only_done()) == (copied.bit, 0, 0)
    assert gained(both.everything()) == (copied.bit | write.bit,) * 3


# Against a shadow that keeps every access to every byte

TYPES = [
    BufferType((16, 64), DTYPES["bf16"], "swizzle128"),
    BufferType((8, 64), DTYPES["bf16"], "swizzle128"),
    BufferType((16, 32), DTYPES["bf16"], "row_major[64]"),
    BufferType((32,), DTYPES["i32"]),
    BufferType((), DTYPES["i8"]),
    BufferType((3,), DTYPES["i8"]),
]


def bytes_of(place: Place) -> set[int]:
    size = place.type.dtype.bits // 8
    starts = [bit_offset(place.type, i) // 8 for i in np.ndindex(place.type.shape)]
    return {place.offset + start + i for start in starts for i in range(size)}


class Naive:
    """For each byte, the last write and the reads since then."""

    def __init__(self) -> None:
        self.writes: dict[int, Touch] = {}
        self.reads: dict[int, list[Touch]] = {}

    def races(self, touch: Touch, place: Place) -> bool:
        for byte in bytes_of(place):
            before = [self.writes[byte]] if byte in self.writes else []
            if touch.is_write:
                before = [*before, *self.reads.get(byte, [])]
            if any(not is_ordered(b, touch) for b in before):
                return True
        return False

    def touch(self, touch: Touch, place: Place) -> None:
        for byte in bytes_of(place):
            if touch.is_write:
                self.writes[byte] = touch
                self.reads[byte] = []
            else:
                self.reads.setdefault(byte, []).append(touch)


@pytest.mark.parametrize("seed", range(8))
def test_the_shadow_finds_what_one_that_keeps_all_finds(seed: int) -> None:
    draw = Random(seed)
    whole = TYPES[0]
    world, naive = World(), Naive()
    allocation = Allocation((0, 0, 0), Value(whole, "b"), 0, buffer_bytes(whole))
    known: list[PipeToken] = [NOTHING]
    raced = 0
    for _ in range(60):
        type = draw.choice(TYPES)
        align = 1024 if "swizzle" in type.layout else type.dtype.bits // 8
        room = (buffer_bytes(whole) - buffer_bytes(type)) // align
        place = Place(allocation, draw.randint(0, room) * align, type, "%b")
        token = NOTHING
        for other in draw.sample(known, min(len(known), draw.choice((2, 20, 60)))):
            token = token | other
        touch = world.access(token, draw.choice(("rg", "wg", "ra", "wa")))
        expected = naive.races(touch, place)
        try:
            touch_place(world.order, touch, place)
            found = False
        except RacedAt as race:
            found = True
            assert place.offset + race.offset in bytes_of(place)
            assert not is_ordered(race.earlier, race.later)
        assert found == expected
        if found:
            raced += 1
            continue
        naive.touch(touch, place)
        done = world.order.completed(touch)
        known.append(done if draw.random() < 0.5 else done.everything())
    assert raced
