"""Loop nests: one pass over the positions of a tile, with everything that is computed in it.

A statement is put in the outermost loop that knows all it reads, so that what does not change in
an inner loop is not computed there again. The same text is computed once.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass, field
from typing import Protocol

from reftile.lower.cpu.tiles import Buffer, Held, Index, Shape, Tile

_NAME = re.compile(r"[A-Za-z_]\w*")
CHEAP = 3
"""Up to this cost an element is computed again rather than kept."""


class Builder(Protocol):
    """What a nest needs of `builder.Builder`."""

    pending: dict[int, Buffer]

    def name(self, stem: str) -> str:
        """A name that is not used yet."""
        ...

    def line(self, text: str) -> None:
        """Add a line."""
        ...

    def indented(self) -> AbstractContextManager[None]:
        """Lines in here stand one step deeper."""
        ...

    def access(self, factory: str, *key: object) -> str:
        """The name of a function that a factory of `functions.machine` makes."""
        ...

    def buffer(self, shape: Shape, kind: str, owner: Held | None = None) -> Buffer:
        """A place for a tile."""
        ...

    def hold(self, held: Held) -> None:
        """Compute a tile, and give it a place."""
        ...

    def placed_here(self, held: Held) -> None:
        """Note that a tile gets a place."""
        ...


@dataclass(slots=True)
class _Level:
    loop: str
    before: list[str] = field(default_factory=list[str])
    after: list[str] = field(default_factory=list[str])


class Nest:
    """The loops over a shape, outermost first; extents of 1 have no loop.

    bounds: the text of each extent, where it is not the whole one. rows: the last axis has no loop
    yet, and who makes the nest opens loops over it and adds its position to `index`.
    """

    def __init__(
        self,
        builder: Builder,
        shape: Shape,
        bounds: Sequence[str] | None = None,
        rows: bool = False,
    ) -> None:
        self.builder = builder
        self.shape = shape
        self.levels = [_Level("")]
        self._level_of: dict[str, int] = {}
        self._known: dict[str, str] = {}
        self._kept: dict[tuple[int, Index], str] = {}
        self._adopted: dict[int, Held] = {}
        self.fast = False
        index: list[str] = []
        for axis, extent in enumerate(shape[:-1] if rows else shape):
            if extent == 1 and bounds is None:
                index.append("0")
                continue
            index.append(self.open(bounds[axis] if bounds else str(extent)))
        self.index: Index = tuple(index)

    def open(self, extent: str, start: str = "0", steps: bool = False) -> str:
        """Open one more loop inside; the name of its counter. steps: `extent` names a step too."""
        name = self.builder.name("x")
        limits = f"{start}, {extent}" if steps or start != "0" else extent
        return self._open(name, f"range({limits})")

    def open_lanes(self, count: int) -> str:
        """Open a loop inside whose turns become the lanes of one vector; its counter's name."""
        return self._open(self.builder.name("x"), f"lanes({count})")

    def _open(self, name: str, turns: str) -> str:
        self.levels.append(_Level(f"for {name} in {turns}:"))
        self._level_of[name] = len(self.levels) - 1
        return name

    def access(self, factory: str, *key: object) -> str:
        """The name of a function that a factory of `functions.machine` makes."""
        return self.builder.access(factory, *key)

    # Statements

    def level(self, text: str) -> int:
        """The outermost loop that knows all names in a text."""
        return max((self._level_of.get(n, 0) for n in _NAME.findall(text)), default=0)

    def temp(self, text: str) -> str:
        """A variable with the value of an expression."""
        if _NAME.fullmatch(text):
            return text
        found = self._known.get(text)
        if found is None:
            found = self._known[text] = self.builder.name("t")
            at = self._level_of[found] = self.level(text)
            self.levels[at].before.append(f"{found} = {text}")
        return found

    def once(self, text: str) -> str:
        """A variable with the value of an expression that does something: never shared."""
        name = self.builder.name("t")
        self._level_of[name] = len(self.levels) - 1
        self.levels[-1].before.append(f"{name} = {text}")
        return name

    def do(self, text: str, level: int | None = None) -> None:
        """A statement in the innermost loop, or in a given one."""
        self.levels[len(self.levels) - 1 if level is None else level].before.append(text)

    def do_after(self, text: str, level: int) -> None:
        """A statement behind the loop inside a level."""
        self.levels[level].after.append(text)

    def bind(self, name: str, level: int) -> None:
        """A variable that changes in a loop."""
        self._level_of[name] = level

    def adopt(self, held: Held, index: Index) -> str:
        """An element of a tile without a place, kept on the way if it was asked for."""
        key = (id(held), index)
        found = self._kept.get(key)
        if found is None:
            assert held.tile is not None
            found = self._kept[key] = held.tile.at(index, self)
            if id(held) in self._adopted:
                self._keep(held, found)
        return found

    def _keep(self, held: Held, text: str) -> None:
        buffer = held.buffer or self.builder.pending[id(held)]
        store = self.builder.access("storer", held.kind, buffer.scope)
        self.do(f"{store}({buffer.base}, {buffer.place(self.index)}, {text})")

    # What the nest reads

    def gather(self, tiles: Iterable[Tile], keeps: bool = True, whole: bool = True) -> None:
        """Decide, before anything is written, what is kept and what must be there already.

        keeps: the nest may keep tiles. whole: it passes over the whole shape.
        """
        tiles = tuple(tiles)
        while True:
            survey = survey_tiles(tiles)
            blocked = next((h for h in survey.order if self._must_be_there(survey, h, whole)), None)
            if blocked is None:
                break
            self.builder.hold(blocked)
        for held in survey.order:
            count = survey.count[id(held)]
            if keeps and held.left > count and held.cost > CHEAP:
                self._adopted[id(held)] = held
                self.builder.pending[id(held)] = self.builder.buffer(held.shape, held.kind, held)
            held.left -= count

    def _must_be_there(self, survey: Survey, held: Held, whole: bool) -> bool:
        if held.cost <= CHEAP:
            return False
        count, reach = survey.count[id(held)], survey.reach[id(held)]
        if reach == "repeated" or (reach == "moved" and (count > 1 or held.left > count)):
            return True
        if held.left > count:
            return not whole or held.shape != self.shape
        return False

    # Text

    def take_over(self, other: Nest) -> None:
        """Keep what another nest over the same shape was to keep."""
        self._adopted = other._adopted

    def write(self, finish: bool = True) -> None:
        """Write the loops to the builder, and mark what was kept as being there."""
        self._write(0)
        if not finish:
            return
        for held in self._adopted.values():
            self.builder.placed_here(held)
            held.buffer = self.builder.pending.pop(id(held))

    def _write(self, number: int) -> None:
        builder, level = self.builder, self.levels[number]
        for line in level.before:
            builder.line(line)
        if number + 1 < len(self.levels):
            inner = self.levels[number + 1]
            if inner.loop:
                builder.line(inner.loop)
                with builder.indented():
                    self._write(number + 1)
        for line in level.after:
            builder.line(line)


@dataclass(slots=True)
class Survey:
    """The tiles without a place that a nest reads: how often, and how."""

    order: list[Held] = field(default_factory=list[Held])
    count: dict[int, int] = field(default_factory=dict[int, int])
    reach: dict[int, str] = field(default_factory=dict[int, str])


_WORSE = {"same": 0, "moved": 1, "repeated": 2}


def survey_tiles(tiles: Iterable[Tile]) -> Survey:
    """Walk over what tiles are computed from, as far as it has no place yet."""
    survey = Survey()

    def visit(tile: Tile, reach: str) -> None:
        if isinstance(tile, Held):
            if tile.is_there:
                return
            key = id(tile)
            survey.count[key] = survey.count.get(key, 0) + 1
            before = survey.reach.get(key)
            if before is None:
                survey.order.append(tile)
            elif _WORSE[before] >= _WORSE[reach]:
                return
            survey.reach[key] = reach
            if before is not None:
                _worsen(tile, reach)
                return
        for part, how in tile.parts():
            visit(part, max(reach, how, key=_WORSE.__getitem__))

    def _worsen(tile: Tile, reach: str) -> None:
        for part, how in tile.parts():
            worst = max(reach, how, key=_WORSE.__getitem__)
            if isinstance(part, Held) and not part.is_there:
                key = id(part)
                if _WORSE[survey.reach.get(key, "same")] >= _WORSE[worst]:
                    continue
                survey.reach[key] = worst
            _worsen(part, worst)

    for tile in tiles:
        visit(tile, "same")
    return survey
