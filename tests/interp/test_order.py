"""Clocks and shadows against the definition: every pair of accesses, byte by byte."""

from __future__ import annotations

from dataclasses import dataclass
from random import Random
from typing import Any

import numpy as np
import pytest

from reftile.interp.memory import Memory
from reftile.interp.order import ROOT, Order, Raced, Token, join
from reftile.interp.shadow import Grid, Shadow
from reftile.ir.core import Op

BYTES = 64


@dataclass
class _Access:
    """What the definition needs to know of one access."""

    block: int
    scope: int
    size: int
    writes: bool
    bytes: set[int]
    before: set[int]


def _strong(e: _Access, f: _Access) -> bool:
    in_scope = e.block == f.block or min(e.scope, f.scope) >= 1
    return min(e.scope, f.scope) >= 0 and e.size == f.size and in_scope


def _races(number: int, accesses: list[_Access]) -> bool:
    """Whether an access races with an earlier one, by the definition."""
    f = accesses[number]
    return any(
        e.bytes & f.bytes and (e.writes or f.writes) and i not in f.before and not _strong(e, f)
        for i, e in enumerate(accesses[:number])
    )


class _Player:
    """Makes random accesses until one races: the shadow must agree with the definition on each."""

    def __init__(self, seed: int) -> None:
        self.random = Random(seed)
        self.order = Order()
        memory = Memory()
        buffer = memory.add("b", np.zeros(BYTES, np.uint8), None)
        self.shadow = Shadow(buffer, self.order)
        self.accesses: list[_Access] = []
        self.tokens: dict[int, list[tuple[Token, set[int]]]] = {
            b: [(ROOT, set())] for b in range(3)
        }
        self.few_grids = self.random.random() < 0.5
        self.token_count = self.random.choice((2, 6))
        self.blocks = self.random.choice((1, 3))
        self.write_rate = self.random.choice((0.05, 0.2, 0.4))
        self.scopes = self.random.choice(((-1,), (-1, -1, 0, 1, 2), (1, 1, 2)))

    def region(self, size: int) -> tuple[Grid, tuple[int, ...], tuple[int, ...]]:
        """A tile of an 8-byte-row array, or a run."""
        random = self.random
        columns = 8 // size
        if self.few_grids or random.random() < 0.5:
            tile = (2, max(columns // 2, 1))
            step = (tile[0] * 8, tile[1] * size)
            grid = Grid(0, size, (8, size), step, True)
            index = random.randrange(4), random.randrange(columns // tile[1])
            return grid, index, tile if random.random() < 0.8 else (1, tile[1])
        count = random.choice((1, 2, 4))
        width = count * size
        offset = random.randrange(BYTES // width) * width
        return Grid(0, size, (size,), (width,), True), (offset // width,), (count,)

    def play(self) -> bool:
        return any(self.step() for _ in range(14))

    def step(self) -> bool:
        random = self.random
        block = random.randrange(self.blocks)
        size = random.choice((4, 4, 4, 4, 4, 2))
        scope = random.choice(self.scopes)
        writes = random.random() < self.write_rate
        chosen = random.choices(self.tokens[block][-8:], k=self.token_count)
        token = join(tuple(t for t, _ in chosen))
        before = set[int]().union(*(b for _, b in chosen))
        ordering = "weak" if scope < 0 else "relaxed"
        event = self.order.begin(block, 0, Op(), token, scope, size, ordering, writes)
        number = len(self.accesses)
        found = False
        try:
            offsets = self.touch(event, size)
        except _Found as error:
            offsets, found = error.offsets, True
        covered = {int(o) + i for o in offsets for i in range(size)}
        self.accesses.append(_Access(block, scope, size, writes, covered, before))
        assert found == _races(number, self.accesses)
        self.tokens[block].append((self.order.token(event), before | {number}))
        return found

    def touch(self, event: Any, size: int) -> Any:
        if self.random.random() < 0.15:
            count = self.random.randint(1, 4)
            cells = self.random.sample(range(BYTES // size), count)
            offsets = np.array(cells, np.int64) * size
            try:
                self.shadow.touch(event, offsets)
            except Raced as race:
                raise _Found(offsets, race.index) from None
            return offsets
        grid, index, extents = self.region(size)
        offsets = grid.offsets(index, extents)
        try:
            self.shadow.touch_region(event, grid, index, extents)
        except Raced as race:
            raise _Found(offsets, race.index) from None
        return offsets


class _Found(Exception):
    def __init__(self, offsets: Any, index: int) -> None:
        super().__init__()
        assert index < len(offsets)
        self.offsets = offsets


@pytest.mark.parametrize("part", range(4))
def test_a_race_is_reported_exactly_when_the_definition_has_one(part: int) -> None:
    found = sum(_Player(seed).play() for seed in range(part * 500, part * 500 + 500))
    assert 100 < found < 500


def test_an_event_continues_the_chain_of_its_token_once() -> None:
    order = Order()

    def event(token: Token | None) -> Any:
        return order.begin(0, 0, Op(), token, -1, 4, "weak", False)

    first = event(None)
    second = event(order.token(first))
    third = event(order.token(first))
    assert (second.chain, second.count) == (first.chain, 2)
    assert third.chain != first.chain
    both = join((order.token(second), order.token(third)))
    assert both.clock == {first.chain: 2, third.chain: 1}
