"""The layout of a tile: which element each register, lane, warp or memory offset holds."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from math import prod
from typing import Any, Literal, get_args

import numpy as np
from numpy.typing import NDArray

from reftile.layout.linear.digits import Digit, LayoutError, Part, Step
from reftile.layout.linear.maps import Indices, Map, first_that_fits

Place = Literal["register", "lane", "warp", "cta", "offset", "bit"]
PLACES: tuple[Place, ...] = get_args(Place)
"""The inputs of a layout. `register` counts the elements one thread holds, packed low bits first;
`offset` counts elements in memory (bytes, if elements are narrower than a byte); `bit` says which
element within the byte, low bits first."""


@dataclass(frozen=True, slots=True)
class Layout:
    """Which element of a tile each place holds.

    map: from places to one index per dimension, named d0, d1, ...
    shape: the tile; indices outside it belong to padding and hold nothing.
    """

    map: Map
    shape: tuple[int, ...]

    @staticmethod
    def of(
        shape: Sequence[int],
        places: Mapping[str, Iterable[Part]],
        cover: Sequence[int] | None = None,
    ) -> Layout:
        """Build from runs (extent, step) or digits per place, lowest first.

        cover: the extents that the places reach, where they exceed `shape`.
        """
        unknown = set(places) - set(PLACES)
        if unknown:
            raise LayoutError(f"unknown places {sorted(unknown)}, expected {', '.join(PLACES)}")
        ordered = {name: places[name] for name in PLACES if name in places}
        cover = tuple(shape if cover is None else cover)
        if len(cover) != len(shape) or any(c < s for c, s in zip(cover, shape, strict=True)):
            raise LayoutError(f"cover {cover} must not be smaller than shape {tuple(shape)}")
        outputs = [(f"d{k}", extent) for k, extent in enumerate(cover)]
        return Layout(Map.of(ordered, outputs), tuple(shape))

    @property
    def cover(self) -> tuple[int, ...]:
        """The extents that the places reach: `shape`, plus padding."""
        return tuple(extent for _, extent in self.map.outputs)

    @property
    def places(self) -> tuple[Place, ...]:
        """The inputs with more than one value."""
        return tuple(p for p in PLACES if self.map.digits(p))

    def extent(self, place: Place) -> int:
        """How many registers, lanes, ... hold elements."""
        return self.map.extent(place)

    def digits(self, place: Place) -> tuple[Digit, ...]:
        """The digits of one place, lowest first."""
        return self.map.digits(place)

    # Calling it

    def index(self, **places: Any) -> tuple[Any, ...]:
        """Return the element's index in each dimension. Places are ints or integer arrays."""
        return self.map(**places)

    def __call__(self, **places: Any) -> Any:
        """Return the row-major flat index of the element at a place, -1 in padding."""
        flat: Any = self._flatten(self.map(**places))
        return flat if np.ndim(flat) else int(flat)

    def indices(self) -> Indices:
        """Return flat indices at every place, -1 in padding: one axis per place in `places`."""
        return np.asarray(self._flatten(self.map.table()))

    def valid(self) -> NDArray[np.bool_]:
        """Return which places hold an element: the validity mask, shaped like `indices`."""
        return self.indices() >= 0

    def _flatten(self, index: Sequence[Any]) -> Any:
        flat = np.int64(0)
        inside = np.bool_(True)
        for value, extent in zip(index, self.shape, strict=True):
            flat = flat * extent + value
            inside = inside & (np.asarray(value) < extent)
        return flat if self.cover == self.shape else np.where(inside, flat, -1)

    # Questions

    @property
    def is_injective(self) -> bool:
        """Does every element (and every element of padding) have at most one place?"""
        return self.map.is_injective

    @property
    def is_onto(self) -> bool:
        """Does every element of the tile have a place?"""
        if self.map.is_onto:
            return True
        if self.cover == self.shape:
            return False
        flat = self.indices()
        return len(np.unique(flat[flat >= 0])) == prod(self.shape)

    @property
    def replication(self) -> int:
        """How many places hold each element."""
        return self.map.size // self.map.image_size

    def is_same(self, other: Layout) -> bool:
        """Do both layouts hold the same elements in the same places, however they are written?"""
        return self.shape == other.shape and self.map.is_same(other.map)

    # Changing the tile

    def permute(self, order: Sequence[int]) -> Layout:
        """Transpose the tile: dimension k of the result is dimension order[k] of this one."""
        if sorted(order) != list(range(len(self.shape))):
            raise LayoutError(f"{tuple(order)} is not an order of {len(self.shape)} dimensions")
        return self._rebuild(
            lambda step: tuple(step[k] for k in order),
            [self.shape[k] for k in order],
            [self.cover[k] for k in order],
        )

    def drop(self, axis: int) -> Layout:
        """Return the layout of a reduction over `axis`: its places now hold copies.

        Registers that only told elements of `axis` apart are gone; lanes, warps and CTAs replicate.
        """
        keep = [k for k in range(len(self.shape)) if k != axis % len(self.shape)]
        dropped = self._rebuild(
            lambda step: tuple(step[k] for k in keep),
            [self.shape[k] for k in keep],
            [self.cover[k] for k in keep],
        )
        places = dropped._parts()
        places["register"] = [d for d in dropped.digits("register") if any(d.step)]
        return Layout.of(dropped.shape, places, dropped.cover)

    def reshape(self, shape: Sequence[int]) -> Layout:
        """Return the layout of the same elements, in row-major order, under another shape.

        Raises:
            LayoutError: the tile is padded, or the new extents cut through the layout's digits.
        """
        if self.cover != self.shape:
            raise LayoutError("a padded tile cannot be reshaped")
        if prod(shape) != prod(self.shape):
            raise LayoutError(f"{self.shape} and {tuple(shape)} differ in size")

        def moved(adding: bool) -> dict[str, list[Digit]]:
            return {
                name: [
                    Digit(
                        d.extent,
                        _unflatten(int(self._flatten(d.step)), shape),
                        d.is_bit and not adding,
                    )
                    for d in row
                ]
                for name, row in self.map.inputs
            }

        outputs = [(f"d{k}", extent) for k, extent in enumerate(shape)]
        if all(e & (e - 1) == 0 for e in (*shape, *self.shape)):
            return Layout(Map.of(moved(adding=False), outputs), tuple(shape))

        def evaluate() -> tuple[Indices, ...]:
            return tuple(np.asarray(v) for v in np.unravel_index(self.indices(), tuple(shape)))

        candidates = (moved(adding=False), moved(adding=True))
        return Layout(first_that_fits(candidates, outputs, evaluate), tuple(shape))

    def slice(self, axis: int, start: int, extent: int) -> tuple[Layout, dict[Place, int]]:
        """Return the layout of elements [start, start + extent) of `axis`, and where it begins.

        The digits that lead outside the slice are fixed and removed. The second result gives their
        value per place: add it to a place of the slice to find the place in this layout, after
        spreading the registers that remain, which are renumbered without gaps. Other places may
        lose only leading digits.

        Raises:
            LayoutError: the slice cuts through a digit.
        """
        if extent < 1 or start % extent or start + extent > self.shape[axis]:
            raise LayoutError(f"[{start}, {start + extent}) is no aligned part of dimension {axis}")
        kept = dict[str, list[Part]]()
        fixed = list[tuple[int, int, Place, int]]()
        for place in self.places:
            weight = 1
            for digit in self.map.digits(place):
                step = digit.step[axis]
                if step < extent:
                    if place != "register" and any(f[2] == place for f in fixed):
                        raise LayoutError(f"the slice removes a middle digit of {place}")
                    kept.setdefault(place, []).append(digit)
                elif step % extent or any(s for k, s in enumerate(digit.step) if k != axis):
                    raise LayoutError(f"the slice cuts through a digit of {place}")
                else:
                    fixed.append((step, digit.extent, place, weight))
                weight *= digit.extent
        begin = dict[Place, int]()
        rest = start
        for step, count, place, weight in sorted(fixed, reverse=True):
            amount = min(rest // step, count - 1)
            begin[place] = begin.get(place, 0) + amount * weight
            rest -= amount * step
        # Amounts were added; where bits overlap, they combine to something else.
        if rest or self.index(**begin)[axis] != start:
            raise LayoutError(f"no place holds element {start} of dimension {axis}")
        shape = [extent if k == axis else e for k, e in enumerate(self.shape)]
        cover = [extent if k == axis else e for k, e in enumerate(self.cover)]
        return Layout.of(shape, kept, cover), begin

    def repeat(self, place: Place, axis: int, count: int) -> Layout:
        """Tile this layout `count` times along `axis`, the copies counted by `place` (topmost)."""
        if self.cover != self.shape:
            raise LayoutError("a padded layout cannot be repeated")
        step = tuple(e if k == axis else 0 for k, e in enumerate(self.shape))
        shape = [e * count if k == axis else e for k, e in enumerate(self.shape)]
        places = self._parts()
        places.setdefault(place, []).append(Digit(count, step))
        return Layout.of(shape, places)

    def replicate(self, place: Place, count: int) -> Layout:
        """Let `count` times as many of `place` hold copies of the same elements."""
        places = self._parts()
        places.setdefault(place, []).append((count, (0,) * len(self.shape)))
        return Layout.of(self.shape, places, self.cover)

    def clip(self, shape: Sequence[int]) -> Layout:
        """Use these places for a smaller tile: what lies outside `shape` becomes padding."""
        return Layout.of(shape, self._parts(), self.cover)

    def _rebuild(
        self, step: Callable[[Step], Step], shape: Sequence[int], cover: Sequence[int]
    ) -> Layout:
        places: dict[str, list[Part]] = {
            p: [Digit(d.extent, step(d.step), d.is_bit) for d in self.digits(p)]
            for p in self.places
        }
        return Layout.of(shape, places, cover)

    def _parts(self) -> dict[str, list[Part]]:
        return {p: list(self.digits(p)) for p in self.places}

    # Text

    def __str__(self) -> str:
        return f"layout<{self.body()}>"

    def body(self) -> str:
        """Return the text between the angle brackets."""
        head = "x".join(map(str, self.shape))
        if self.cover != self.shape:
            head += " in " + "x".join(map(str, self.cover))
        parts = [head]
        for place in self.places:
            parts.append(" ".join((place, *self.map.runs(place))))
        return "; ".join(parts)

    @staticmethod
    def parse(text: str) -> Layout:
        """Read what `str` prints (with or without `layout<` and `>`).

        Raises:
            LayoutError: naming the part that does not read.
        """
        body = text.strip()
        if body.startswith("layout<") and body.endswith(">"):
            body = body[len("layout<") : -1]
        head, *parts = (part.strip() for part in body.split(";"))
        match = re.fullmatch(r"(\d+(?:x\d+)*)(?: in (\d+(?:x\d+)*))?", head)
        if not match:
            raise LayoutError(f"expected a shape such as 64x64, found {head!r}")
        shape, cover = (tuple(map(int, g.split("x"))) if g else None for g in match.groups())
        assert shape is not None
        places = dict[str, list[Part]]()
        for part in parts:
            name, *runs = part.split()
            place = next((p for p in PLACES if p == name), None)
            if place is None:
                raise LayoutError(f"expected one of {', '.join(PLACES)}, found {name!r}")
            places[place] = [_parse_run(run, len(shape)) for run in runs]
        return Layout.of(shape, places, cover)


def _parse_run(text: str, rank: int) -> Part:
    match = re.fullmatch(r"(\d+)([*+])\((\d+(?:,\d+)*)\)", text)
    step = tuple(map(int, match[3].split(","))) if match else ()
    if not match or len(step) != rank or int(match[1]) < 1:
        raise LayoutError(f"expected extent*(step) with {rank} numbers in the step, found {text!r}")
    extent = int(match[1])
    return (extent, step) if match[2] == "*" or extent == 1 else Digit(extent, step)


def _unflatten(flat: int, shape: Sequence[int]) -> Step:
    index = list[int]()
    for extent in reversed(shape):
        flat, value = divmod(flat, extent)
        index.append(value)
    return tuple(reversed(index))
