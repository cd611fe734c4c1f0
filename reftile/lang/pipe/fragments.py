"""Fragments: tiles in registers under a name, which operations fill, change and read.

What a fragment holds is a cell: nothing yet, zeros that nobody has computed with, a tile, or the
result of a product that may still be under way.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import cast

from reftile.ir.core import Value
from reftile.ir.types import TOKEN, PendingType, TileType, Type
from reftile.lang import arithmetic
from reftile.lang.dtypes import DType, bool_
from reftile.lang.foreign import ForeignValue
from reftile.lang.merge import Conflict, ForeignSlot
from reftile.lang.names.create import need_dtype
from reftile.lang.names.registry import name
from reftile.lang.pipe.block import shape_of
from reftile.lang.pipe.common import error
from reftile.lang.pipe.warpgroups import share_of
from reftile.lang.trace import Trace
from reftile.lang.values import Tile, Undefined, as_items, describe

# What a fragment may hold


@dataclass(frozen=True, slots=True, eq=False)
class Cleared(ForeignValue):
    """Zeros that nothing has been added to."""

    shape: tuple[int, ...]
    dtype: DType

    def describe(self) -> str:
        """Name the value in a message."""
        return "zeros"

    def is_same(self, other: object) -> bool:
        """Zeros are zeros."""
        return isinstance(other, Cleared) and (other.shape, other.dtype) == (self.shape, self.dtype)

    def join(self, values: Sequence[object], carry: str) -> object | None:
        """Zeros stay zeros where nothing else comes in; loops see that when they end."""
        return _join(self.shape, self.dtype, values)


@dataclass(frozen=True, slots=True, eq=False)
class InFlight(ForeignValue):
    """A result that a product may be writing.

    started: false at run time if nothing was added yet: the result is zeros then. slot: how it came
    into the loop at hand.
    """

    pending: Value
    started: Tile
    dtype: DType
    slot: FlightSlot | None = None

    def describe(self) -> str:
        """Name the value in a message."""
        return "a result in flight"

    def is_same(self, other: object) -> bool:
        """True for the same value of the IR."""
        return isinstance(other, InFlight) and other.pending is self.pending

    def join(self, values: Sequence[object], carry: str) -> object | None:
        """Carried as it is, if the others are zeros or in flight too."""
        return _join(cast("PendingType", self.pending.type).tile.shape, self.dtype, values)


def _join(shape: tuple[int, ...], dtype: DType, values: Sequence[object]) -> object | None:
    kind = TileType(shape, dtype.element)
    if all(isinstance(v, Cleared) for v in values):
        return None
    if all(isinstance(v, (Cleared, InFlight)) for v in values):
        return FlightSlot(PendingType(kind), dtype)
    if all(isinstance(v, (Cleared, InFlight, Tile)) for v in values):
        return FilledSlot(kind, dtype)
    listed = " or ".join(dict.fromkeys(describe(v) for v in values))
    return Conflict(f"it is {listed}, depending on what runs")


@dataclass(slots=True, eq=False)
class FlightSlot(ForeignSlot):
    """A result in flight is carried, and whether anything was added to it.

    was_read: the loop's body takes the result before it adds to it, so that a tile is better.
    """

    type: PendingType
    dtype: DType
    was_read: bool = False

    def types(self) -> tuple[Type, ...]:
        """The result, and the flag."""
        return self.type, TileType((), bool_.element)

    def pack(self, t: Trace, value: object) -> Iterator[Value]:
        """Zeros become an accumulator that nothing was added to."""
        if isinstance(value, Cleared):
            yield t.value("mma_open", types=[self.type])
            yield t.constant(False, bool_)
        else:
            found = cast("InFlight", value)
            yield found.pending
            yield found.started.value

    def unpack(self, values: Iterator[Value]) -> object:
        """A result in flight."""
        return InFlight(next(values), Tile(next(values), bool_), self.dtype, self)

    def fits(self, value: object) -> bool:
        """A tile is carried otherwise."""
        if self.was_read:
            return False
        if isinstance(value, InFlight):
            return value.pending.type == self.type
        return isinstance(value, Cleared)

    def wider(self, values: Sequence[object]) -> object | None:
        """A tile, if the body wants one."""
        return FilledSlot(self.type.tile, self.dtype) if self.was_read else None


@dataclass(frozen=True, slots=True)
class FilledSlot(ForeignSlot):
    """A tile is carried; what is in flight is waited for before."""

    type: TileType
    dtype: DType

    def types(self) -> tuple[Type, ...]:
        """The tile."""
        return (self.type,)

    def pack(self, t: Trace, value: object) -> Iterator[Value]:
        """The tile, once it is there."""
        yield settle(t, value).value

    def unpack(self, values: Iterator[Value]) -> object:
        """A tile."""
        return Tile(next(values), self.dtype)

    def fits(self, value: object) -> bool:
        """Whatever a fragment can hold, but nothing."""
        return isinstance(value, (Tile, Cleared, InFlight))


def settle(t: Trace, value: object) -> Tile:
    """The tile that a fragment holds; waits for what is in flight."""
    if isinstance(value, Tile):
        return value
    if isinstance(value, Cleared):
        return Tile(t.constant(0, value.dtype, value.shape), value.dtype)
    found = cast("InFlight", value)
    if found.slot is not None:
        found.slot.was_read = True
    tile = cast("PendingType", found.pending.type).tile
    op = t.op("mma_wait", (found.pending,), types=[tile, TOKEN])
    result = Tile(op.results[0], found.dtype)
    if found.started.constant is True:
        return result
    return arithmetic.select(t, found.started, result, 0)


# Fragments


@dataclass(frozen=True, slots=True, eq=False)
class Fragment(ForeignValue):
    """A tile in registers that can be written: `f[i, j]` inside `Parallel`, `f[...]` as a whole.

    own: the extents of what a warpgroup holds. replicated: each holds all of it.
    """

    shape: tuple[int, ...]
    dtype: DType
    cell: str
    own: tuple[int, ...]
    replicated: bool = False

    def describe(self) -> str:
        """Name the value in a message."""
        return f"a {self.dtype} fragment of shape {self.shape}"

    def advice(self) -> str:
        """It is read by an index."""
        return "read it with x[...] as a whole, or with x[i, j] inside `Parallel`"

    def _known(self) -> Mapping[str, object]:
        return {"shape": self.shape, "dtype": self.dtype, "ndim": len(self.shape)}

    def attributes(self) -> tuple[str, ...]:
        """Shape, dtype, rank."""
        return tuple(self._known())

    def attribute(self, t: Trace, name: str) -> object:
        """One of them."""
        return self._known()[name]

    def read(self, t: Trace) -> Tile:
        """The tile that it holds.

        Raises:
            ReftileError: nothing has filled it on some path that leads here.
        """
        held = t.cell(self.cell)
        if isinstance(held, Undefined):
            raise error(
                t,
                "unfilled",
                f"{self.describe()} is read, and {held.why}",
                "clear or fill it first, on every path that leads here",
            )
        tile = settle(t, held)
        if tile is not held:
            t.set_cell(self.cell, tile)
        return tile

    def write(self, t: Trace, tile: Tile) -> None:
        """Let it hold a tile, in its dtype."""
        self.hold(t, arithmetic.convert(t, tile, self.dtype))

    def hold(self, t: Trace, value: object) -> None:
        """Let it hold something else; a result that nobody has read is waited for."""
        held = t.cell(self.cell)
        if isinstance(held, InFlight):
            settle(t, held)
        t.set_cell(self.cell, value)

    def item(self, t: Trace, index: object) -> object:
        """The elements at the indices of `Parallel`, or with `[...]` all."""
        if index is Ellipsis:
            return self.read(t)
        return at_parallel(t, self, self.own, lambda: self.read(t), index)

    def set_item(self, t: Trace, index: object, value: object) -> None:
        """Write the elements at the indices of `Parallel`, or with `[...]` all."""
        if index is not Ellipsis:
            need_whole(t, self, self.own, index)
        tile = arithmetic.as_tile(t, value)
        self.write(t, arithmetic.broadcast(t, tile, self.own))


@dataclass(frozen=True, slots=True, eq=False)
class ParallelIndex(Tile):
    """An index of `Parallel`: a tile of numbers, of the shape of all iterations together."""

    axis: int = 0

    __hash__ = object.__hash__


def _axes(t: Trace, owner: ForeignValue, shape: tuple[int, ...], index: object) -> list[int]:
    """The axis of `Parallel` along which each axis of `owner` lies."""
    items = as_items(index)
    found: list[int] = []
    for item in items:
        if not isinstance(item, ParallelIndex):
            raise error(
                t,
                "parallel",
                f"{owner.describe()} is indexed by {describe(item)}",
                "index it with the counters of `Parallel`, or as a whole: x[...]",
            )
        found.append(item.axis)
    extents = tuple(cast("ParallelIndex", i).shape[a] for i, a in zip(items, found, strict=True))
    if extents != shape:
        raise error(
            t,
            "parallel",
            f"{owner.describe()} is indexed by counters up to {extents}",
            "`Parallel` has the extents of what it indexes",
        )
    return found


def at_parallel(
    t: Trace,
    owner: ForeignValue,
    shape: tuple[int, ...],
    read: Callable[[], Tile],
    index: object,
) -> Tile:
    """A tile, or a row or column of one, repeated to the shape of `Parallel`."""
    axes = _axes(t, owner, shape, index)
    items = cast("tuple[ParallelIndex, ...]", as_items(index))
    if axes != sorted(axes):
        raise error(
            t,
            "parallel",
            "the counters of `Parallel` come in their order",
            "permute(x[...], (1, 0)) exchanges axes",
        )
    whole = items[0].shape
    tile = read()
    wide = tuple(e if a in axes else 1 for a, e in enumerate(whole))
    return arithmetic.broadcast(t, arithmetic.reshape(t, tile, wide), whole)


def need_whole(t: Trace, owner: ForeignValue, shape: tuple[int, ...], index: object) -> None:
    """Raise unless the counters run over all elements, each once."""
    axes = _axes(t, owner, shape, index)
    items = cast("tuple[ParallelIndex, ...]", as_items(index))
    if sorted(axes) == list(range(items[0].ndim)) != axes:
        raise error(
            t,
            "parallel",
            "the counters of `Parallel` come in their order",
            "x[...] = permute(y[...], (1, 0)) exchanges axes",
        )
    if axes != list(range(items[0].ndim)):
        raise error(
            t,
            "parallel",
            f"{owner.describe()} is written with {len(axes)} of {items[0].ndim} counters",
            "every element is written once: use all counters, in order",
        )


@name
def alloc_fragment(
    t: Trace, shape: object, dtype: object, /, *, replicated: object = False
) -> Fragment:
    """A tile in registers, to be filled.

    replicated: where a block has several warpgroups, each holds all of it, not its share of rows.
    """
    block = shape_of(t)
    block.need_home("alloc_fragment")
    extents, element = t.static_shape(shape), need_dtype(t, dtype)
    cell = block.fresh("fragment")
    t.cells[cell] = lambda: Undefined("nothing has filled it")
    whole = t.static_bool(replicated, "replicated")
    own = extents if whole else share_of(t, extents, "a fragment")
    fragment = Fragment(extents, element, cell, own, whole)
    block.at_close.append(lambda: _close(t, fragment))
    return fragment


def _close(t: Trace, fragment: Fragment) -> None:
    """At the end of the kernel no product may be under way."""
    held = t.cell(fragment.cell)
    if isinstance(held, InFlight):
        settle(t, held)


def need_fragment(t: Trace, value: object, what: str) -> Fragment:
    """A fragment, or a diagnosis that names `what`."""
    if isinstance(value, Fragment):
        return value
    raise error(t, "type", f"`{what}` must be a fragment, found {describe(value)}")


@name
def fill(t: Trace, target: object, value: object, /) -> None:
    """Let all elements of a fragment be one number."""
    fragment = need_fragment(t, target, "target")
    number = arithmetic.as_tile(t, value, fragment.dtype)
    if number.shape:
        raise error(t, "fill", f"`fill` takes one number, found {describe(number)}")
    if number.constant == 0 and not str(number.constant).startswith("-"):
        fragment.hold(t, Cleared(fragment.own, fragment.dtype))
        return
    fragment.write(t, arithmetic.broadcast(t, number, fragment.own))


@name
def clear(t: Trace, target: object, /) -> None:
    """Let all elements of a fragment be zero."""
    fragment = need_fragment(t, target, "target")
    fragment.hold(t, Cleared(fragment.own, fragment.dtype))
