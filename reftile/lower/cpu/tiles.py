"""Tiles while source is generated: how the text of one element follows from its position.

Nothing is computed when a tile is made. `tile.at(index, nest)` gives the text of one element, and
adds to the loop nest what must be computed first; so trees of operations become one loop over
scalars. Only a `Held` tile has a place of its own, in scratch memory or in a variable, once it
needs one.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from math import prod
from typing import Literal, Protocol

from reftile.ir.dtypes import DType
from reftile.ir.types import Element, PointerType

Index = tuple[str, ...]
Shape = tuple[int, ...]
Reach = Literal["same", "moved", "repeated"]
"""How a tile reads another: each element at its own position, each once elsewhere, or some again.
"""


class Loops(Protocol):
    """The loop nest that an element is written into (see `nests.Nest`).

    fast: no load in it needs a mask.
    """

    fast: bool

    def access(self, factory: str, *key: object) -> str:
        """The name of a function that a factory of `functions.machine` makes."""
        ...

    def temp(self, text: str) -> str:
        """A variable with the value of an expression."""
        ...

    def once(self, text: str) -> str:
        """The same of an expression that does something."""
        ...

    def adopt(self, held: Held, index: Index) -> str:
        """An element of a tile without a place."""
        ...


def kind_of(element: Element) -> str:
    """The carrier of an element, by the name that the functions use."""
    if isinstance(element, PointerType):
        return "i64"
    if element.is_int:
        return "b1" if element.bits == 1 else f"i{max(element.bits, 8)}"
    return "f64" if element.bits == 64 else "f32"


def size_of(kind: str) -> int:
    """Bytes of a carrier in memory."""
    return 1 if kind == "b1" else int(kind[1:]) // 8


def position(index: Sequence[str], strides: Sequence[int | str]) -> str:
    """The text of a sum of products; zeros and ones are left out."""
    terms: list[str] = []
    for i, stride in zip(index, strides, strict=True):
        if i == "0" or stride in (0, "0"):
            continue
        if i.isdigit() and isinstance(stride, int):
            terms.append(str(int(i) * stride))
        else:
            terms.append(i if stride in (1, "1") else f"{i} * {stride}")
    return " + ".join(terms) or "0"


def row_major(shape: Shape) -> Shape:
    """The strides of a dense array."""
    return tuple(prod(shape[axis + 1 :]) for axis in range(len(shape)))


@dataclass(frozen=True, slots=True, eq=False)
class Root:
    """Memory that pointers lead to: an argument, a global, the block's own; None is unknown.

    base: the text of its base. scope: its number among the memories of the kernel, or -1.
    """

    base: str
    scope: int
    group: int


class Tile:
    """The tiles of the generator.

    shape, element: as in the IR. root: for pointers, what their offsets count from.
    """

    shape: Shape
    element: Element
    root: Root | None = None

    def at(self, index: Index, nest: Loops) -> str:
        """The text of the element at a position."""
        raise NotImplementedError

    def parts(self) -> Iterator[tuple[Tile, Reach]]:
        """What it is computed from."""
        return iter(())

    @property
    def cost(self) -> int:
        """About how many instructions an element takes."""
        return 0

    @property
    def depth(self) -> int:
        """How many tiles without a place stand behind one another in what it is computed from."""
        return max((part.depth for part, _ in self.parts()), default=0)

    @property
    def kind(self) -> str:
        """The carrier's name."""
        return kind_of(self.element)

    @property
    def size(self) -> int:
        """The number of elements."""
        return prod(self.shape)

    @property
    def dtype(self) -> DType:
        """The element type of a tile of numbers."""
        assert isinstance(self.element, DType)
        return self.element


class Literal_(Tile):
    """The same text for every element: a literal, a variable."""

    def __init__(self, shape: Shape, element: Element, text: str, root: Root | None = None) -> None:
        self.shape, self.element, self.text, self.root = shape, element, text, root

    def at(self, index: Index, nest: Loops) -> str:
        """See `Tile`."""
        return self.text


class Table(Tile):
    """The elements of a constant, in the block of constants that the launch passes."""

    def __init__(self, shape: Shape, element: Element, base: str, offset: int) -> None:
        self.shape, self.element, self.base, self.offset = shape, element, base, offset

    def at(self, index: Index, nest: Loops) -> str:
        """See `Tile`."""
        size = size_of(self.kind)
        strides = tuple(s * size for s in row_major(self.shape))
        place = position(index, strides)
        load = nest.access("loader", self.kind)
        return nest.temp(f"{load}({self.base}, {self.offset} + {place})")

    @property
    def cost(self) -> int:
        """See `Tile`."""
        return 1


class Iota(Tile):
    """0, 1, 2, ..."""

    def __init__(self, count: int, element: Element) -> None:
        self.shape, self.element = (count,), element

    def at(self, index: Index, nest: Loops) -> str:
        """See `Tile`."""
        return nest.temp(f"{self.kind}_of_signed(i64({index[0]}))")


class Map(Tile):
    """An elementwise operation: `write` makes its text of those of the operands."""

    def __init__(
        self,
        shape: Shape,
        element: Element,
        write: Callable[..., str],
        operands: Sequence[Tile],
        work: int = 1,
        root: Root | None = None,
    ) -> None:
        self.shape, self.element, self.write = shape, element, write
        self.operands, self.work, self.root = tuple(operands), work, root

    def at(self, index: Index, nest: Loops) -> str:
        """See `Tile`."""
        texts = [o.at(index if o.shape else (), nest) for o in self.operands]
        return nest.temp(self.write(*texts))

    def parts(self) -> Iterator[tuple[Tile, Reach]]:
        """See `Tile`."""
        for operand in self.operands:
            yield operand, "same"

    @property
    def cost(self) -> int:
        """See `Tile`."""
        return self.work + sum(o.cost for o in self.operands)


class Item(Tile):
    """One result of an operation that has several."""

    def __init__(self, source: Tile, place: int, element: Element) -> None:
        self.source, self.place = source, place
        self.shape, self.element = source.shape, element

    def at(self, index: Index, nest: Loops) -> str:
        """See `Tile`."""
        return nest.temp(f"{self.source.at(index, nest)}[{self.place}]")

    def parts(self) -> Iterator[tuple[Tile, Reach]]:
        """See `Tile`."""
        yield self.source, "same"

    @property
    def cost(self) -> int:
        """See `Tile`."""
        return self.source.cost


class Moved(Tile):
    """Elements of another tile, found by a map of positions.

    order: of the axes, if that is all that is moved.
    """

    order: Shape | None = None

    def __init__(
        self,
        shape: Shape,
        source: Tile,
        move: Callable[[Index, Loops], Index],
        reach: Reach,
        work: int = 0,
    ) -> None:
        self.reach: Reach = reach
        self.shape, self.element, self.source = shape, source.element, source
        self.move, self.work, self.root = move, work, source.root

    def at(self, index: Index, nest: Loops) -> str:
        """See `Tile`."""
        return self.source.at(self.move(index, nest), nest)

    def parts(self) -> Iterator[tuple[Tile, Reach]]:
        """See `Tile`."""
        yield self.source, self.reach

    @property
    def cost(self) -> int:
        """See `Tile`."""
        return self.work + self.source.cost


class Piecewise(Tile):
    """One of several tiles by position: `write(index, nest)` may read any of them anywhere."""

    def __init__(
        self,
        shape: Shape,
        element: Element,
        write: Callable[[Index, Loops], str],
        sources: Sequence[Tile],
        work: int = 2,
        root: Root | None = None,
    ) -> None:
        self.shape, self.element, self.write = shape, element, write
        self.sources, self.work, self.root = tuple(sources), work, root

    def at(self, index: Index, nest: Loops) -> str:
        """See `Tile`."""
        return self.write(index, nest)

    def parts(self) -> Iterator[tuple[Tile, Reach]]:
        """See `Tile`."""
        for source in self.sources:
            yield source, "repeated"

    @property
    def cost(self) -> int:
        """See `Tile`."""
        return self.work + sum(s.cost for s in self.sources)


@dataclass(slots=True, eq=False)
class Buffer:
    """A place in scratch memory for the elements of a tile, dense.

    base: the text of its base; scope: its number among the kernel's memories.
    """

    base: str
    scope: int
    shape: Shape
    kind: str
    offset: int
    size: int

    def place(self, index: Sequence[str]) -> str:
        """The text of an element's offset in bytes."""
        size = size_of(self.kind)
        return position(index, tuple(s * size for s in row_major(self.shape)))


class Held(Tile):
    """A tile that may get a place of its own.

    tile: how its elements are computed. buffer, variable: where they are, once they are.
    left: how many uses of it have not been written yet.
    """

    def __init__(self, tile: Tile, left: int, name: str = "") -> None:
        self.shape, self.element, self.root = tile.shape, tile.element, tile.root
        self.tile: Tile | None = tile
        self.left, self.name = left, name
        self.block: object = None
        self.last = -1
        self.buffer: Buffer | None = None
        self.variable = ""
        # Worked out once: tiles that share what they are made of would be walked over again.
        self._cost, self._depth = tile.cost, 1 + tile.depth

    @property
    def is_there(self) -> bool:
        """Whether the elements have been computed."""
        return self.buffer is not None or bool(self.variable)

    def at(self, index: Index, nest: Loops) -> str:
        """See `Tile`."""
        if self.variable:
            return self.variable
        if self.buffer is not None:
            load = nest.access("loader", self.kind, self.buffer.scope)
            return nest.temp(f"{load}({self.buffer.base}, {self.buffer.place(index)})")
        assert self.tile is not None
        return nest.adopt(self, index)

    def parts(self) -> Iterator[tuple[Tile, Reach]]:
        """See `Tile`."""
        if not self.is_there and self.tile is not None:
            yield self.tile, "same"

    @property
    def cost(self) -> int:
        """See `Tile`."""
        if self.variable:
            return 0
        return 1 if self.is_there else self._cost

    @property
    def depth(self) -> int:
        """See `Tile`."""
        return 0 if self.is_there else self._depth


# Moves


def broadcast(source: Tile, shape: Shape) -> Tile:
    """Axes of extent 1 repeated."""
    old = source.shape
    if old == shape:
        return source

    def move(index: Index, nest: Loops) -> Index:
        return tuple("0" if e == 1 else i for i, e in zip(index, old, strict=True))

    return Moved(shape, source, move, "repeated")


def spread(source: Tile, shape: Shape) -> Tile:
    """A scalar at every position."""
    return Moved(shape, source, lambda index, nest: (), "repeated")


def permute(source: Tile, order: Shape) -> Tile:
    """Axis i of the result is axis order[i]."""
    shape = tuple(source.shape[axis] for axis in order)

    def move(index: Index, nest: Loops) -> Index:
        found = [""] * len(order)
        for i, axis in zip(index, order, strict=True):
            found[axis] = i
        return tuple(found)

    moved = Moved(shape, source, move, "same" if order == tuple(sorted(order)) else "moved")
    moved.order = order
    return moved


def reshape(source: Tile, shape: Shape) -> Tile:
    """The elements in row-major order with other extents."""
    if source.shape == shape:
        return source
    groups = _groups(source.shape, shape)

    def move(index: Index, nest: Loops) -> Index:
        found = ["0"] * len(source.shape)
        for old, new in groups:
            _regroup(index, nest, source.shape, shape, old, new, found)
        return tuple(found)

    return Moved(shape, source, move, "moved", 0 if _only_units(groups) else 2)


Group = tuple[tuple[int, ...], tuple[int, ...]]


def _only_units(groups: list[Group]) -> bool:
    return all(len(old) == len(new) == 1 for old, new in groups)


def _groups(old: Shape, new: Shape) -> list[Group]:
    """Runs of axes, of extents other than 1, that hold the same elements in both shapes."""
    left = [a for a, e in enumerate(old) if e != 1]
    right = [a for a, e in enumerate(new) if e != 1]
    groups: list[Group] = []
    i = j = 0
    while i < len(left):
        first, second = [left[i]], [right[j]]
        m, n = old[left[i]], new[right[j]]
        while m != n:
            if m < n:
                i += 1
                first.append(left[i])
                m *= old[left[i]]
            else:
                j += 1
                second.append(right[j])
                n *= new[right[j]]
        groups.append((tuple(first), tuple(second)))
        i, j = i + 1, j + 1
    return groups


def _regroup(
    index: Index,
    nest: Loops,
    old_shape: Shape,
    new_shape: Shape,
    old: tuple[int, ...],
    new: tuple[int, ...],
    found: list[str],
) -> None:
    extents = tuple(new_shape[a] for a in new)
    flat = position([index[a] for a in new], row_major(extents))
    if len(old) == 1:
        found[old[0]] = f"({flat})" if len(new) > 1 else flat
        return
    flat = nest.temp(f"i64({flat})")
    strides = row_major(tuple(old_shape[a] for a in old))
    for number, (axis, stride) in enumerate(zip(old, strides, strict=True)):
        text = flat if stride == 1 else f"udiv_by({flat}, i64({stride}))"
        if number:
            text = f"urem_by({text}, i64({old_shape[axis]}))"
        found[axis] = nest.temp(text)
