"""Values where control flow meets: what a name is after an `if`, or from one iteration to the next.

A *slot* says which parts of a value the IR carries. `join` finds the slot that fits the values of a
name on all paths; `pack` gives the IR values to carry for one of them, `unpack` puts the carried
values together again.
"""

from __future__ import annotations

import ast
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Literal, TypeAlias, cast

from reftile.ir.core import Value
from reftile.ir.types import TOKEN, TileType, Type
from reftile.lang.arithmetic import as_tile
from reftile.lang.captures import freeze
from reftile.lang.dtypes import DType
from reftile.lang.promote import promote, promote_weak, weak_dtype
from reftile.lang.source import local_names
from reftile.lang.trace import Trace
from reftile.lang.values import (
    Array,
    Foreign,
    LocalFunction,
    Number,
    RawArrayMemory,
    Tile,
    TiledView,
    Token,
    Undefined,
    describe,
    is_number,
    is_record,
    is_static,
    record_items,
)


@dataclass(frozen=True, slots=True)
class Same:
    """The value is the same on all paths; nothing is carried."""

    value: object


@dataclass(frozen=True, slots=True)
class TileSlot:
    """A tile is carried."""

    shape: tuple[int, ...]
    dtype: DType
    type: TileType


@dataclass(frozen=True, slots=True)
class TokenSlot:
    """A token is carried."""


@dataclass(frozen=True, slots=True)
class GroupSlot:
    """The parts of a tuple, list, dataclass, array or view are carried; `example` says of which."""

    example: object
    items: tuple[Slot, ...]


@dataclass(frozen=True, slots=True)
class Conflict:
    """No value can stand for all of them; using the name afterwards is an error with this text."""

    why: str


class ForeignSlot:
    """How values of a dialect are carried."""

    def types(self) -> tuple[Type, ...]:
        """The types of the IR values."""
        raise NotImplementedError

    def pack(self, t: Trace, value: object) -> Iterator[Value]:
        """The IR values that carry `value`."""
        raise NotImplementedError

    def unpack(self, values: Iterator[Value]) -> object:
        """The value that carried IR values stand for."""
        raise NotImplementedError

    def fits(self, value: object) -> bool:
        """True if `value` can be carried as it is."""
        raise NotImplementedError

    def wider(self, values: Sequence[object]) -> object | None:
        """A slot for `values`, which do not fit; None leaves it to them."""
        return None


Slot: TypeAlias = Same | TileSlot | TokenSlot | GroupSlot | ForeignSlot | Conflict


def parts(value: object) -> tuple[object, ...] | None:
    """The parts of a value that consists of values, or None."""
    if isinstance(value, (tuple, list)):
        return tuple(cast("Sequence[object]", value))
    if isinstance(value, Array):
        return (Tile(value.pointer, value.dtype), *value.shape, *value.strides)
    if isinstance(value, (TiledView, RawArrayMemory)):
        return (value.array,)
    if isinstance(value, LocalFunction):
        captured = value.captured()
        return (*(captured[n] for n in captured_names(value)), *value.defaults.values())
    if is_record(value):
        return record_items(value)
    return None


def captured_names(function: LocalFunction) -> tuple[str, ...]:
    """The names from around a function that it uses."""
    inside = local_names(function.source) | {function.source.name}
    used = {n.id for n in ast.walk(function.source.node) if isinstance(n, ast.Name)}
    return tuple(sorted(n for n in function.captured() if n in used and n not in inside))


def rebuild(example: object, items: Sequence[object]) -> object:
    """A value like `example` made of other parts."""
    if isinstance(example, Array):
        pointer = cast("Tile", items[0])
        rank = example.ndim
        shape = cast("Sequence[int | Tile]", items[1 : 1 + rank])
        strides = cast("Sequence[int | Tile]", items[1 + rank :])
        return replace(example, pointer=pointer.value, shape=tuple(shape), strides=tuple(strides))
    if isinstance(example, (TiledView, RawArrayMemory)):
        return replace(example, array=cast("Array", items[0]))
    if isinstance(example, LocalFunction):
        names = captured_names(example)
        captured = dict(zip(names, items, strict=False))
        defaults = dict(zip(example.defaults, items[len(names) :], strict=True))
        return replace(example, captured=lambda: captured, defaults=defaults)
    if isinstance(example, list):
        return list(items)
    if isinstance(example, tuple):
        fields = getattr(example, "_fields", None)  # type: ignore[reportUnknownArgumentType]
        return type(example)(*items) if fields is not None else tuple(items)  # type: ignore[reportUnknownArgumentType]
    return type(example)(*items)


def same(first: object, second: object) -> bool:
    """True if two values are the same without looking at the run."""
    if first is second:
        return True
    if isinstance(first, Foreign):
        return first.is_same(second)
    if isinstance(first, Token) and isinstance(second, Token):
        return first.value is second.value
    if isinstance(first, Tile) and isinstance(second, Tile):
        return first.value is second.value and first.dtype is second.dtype
    if type(first) is not type(second):
        return False
    match first, second:
        case LocalFunction(), LocalFunction() if first.source.node is not second.source.node:
            return False
        case Array(), Array() if first.dtype is not second.dtype:
            return False
        case _:
            pass
    ours, theirs = parts(first), parts(second)
    if ours is not None and theirs is not None:
        return len(ours) == len(theirs) and all(map(same, ours, theirs))
    return freeze(first) == freeze(second)


Carry: TypeAlias = Literal["differing", "numbers", "run_time"]
"""Which values are carried although all paths have the same.

differing: none. numbers: numbers and tiles, for the entry of a loop, whose end is not known yet.
run_time: all that is known at run time only, as it may be computed in the region that is left.
"""


def join(values: Sequence[object], carry: Carry = "differing") -> Slot:
    """The slot for the values that a name has on the paths that meet."""
    missing = next((v for v in values if isinstance(v, Undefined)), None)
    if missing is not None:
        return Conflict(missing.why)
    first = values[0]
    foreign = next((v for v in values if isinstance(v, Foreign)), None)
    if foreign is not None:
        return _join_foreign(foreign, values, carry)
    numeric = all(isinstance(v, Tile) or is_number(v) for v in values)
    match carry:
        case "differing":
            may_stay = True
        case "numbers":
            may_stay = not numeric and parts(first) is None
        case "run_time":
            may_stay = is_static(first)
    if may_stay and all(same(first, v) for v in values[1:]):
        return Same(first)
    if numeric:
        return _join_numbers(cast("Sequence[Tile | Number]", values))
    if all(isinstance(v, Token) for v in values):
        return TokenSlot()
    return _join_groups(values, carry)


def _join_foreign(foreign: Foreign, values: Sequence[object], carry: Carry) -> Slot:
    found = foreign.join(values, carry)
    if found is not None:
        return cast("Slot", found)
    if all(same(values[0], v) for v in values[1:]):
        return Same(values[0])
    listed = " or ".join(dict.fromkeys(describe(v) for v in values))
    return Conflict(f"it is {listed}, depending on what runs")


def _join_numbers(values: Sequence[Tile | Number]) -> Slot:
    tiles = [v for v in values if isinstance(v, Tile)]
    numbers = [v for v in values if not isinstance(v, Tile)]
    if len({v.shape for v in tiles}) > 1 or (numbers and tiles and tiles[0].shape):
        found = " and ".join(dict.fromkeys(describe(v) for v in values))
        return Conflict(f"it is {found}, depending on what runs")
    dtypes = list(dict.fromkeys(v.dtype for v in tiles))
    if len(dtypes) > 1:
        listed = " and ".join(d.name for d in dtypes)
        return Conflict(f"its dtype is {listed}, depending on what runs")
    dtype: DType | None = dtypes[0] if dtypes else None
    for number in numbers:
        weak = weak_dtype(number)
        if dtype is None:
            dtype = weak
        elif not tiles:
            dtype = promote(dtype, weak)
        elif promote_weak(dtype, number) is not dtype:
            return Conflict(f"it is {number!r} or of {dtype.name}, depending on what runs")
        if dtype is None:
            return Conflict("it is a number of no common dtype, depending on what runs")
    assert dtype is not None
    if tiles:
        return TileSlot(tiles[0].shape, dtype, tiles[0].type)
    return TileSlot((), dtype, TileType((), dtype.element))


def _join_groups(values: Sequence[object], carry: Carry) -> Slot:
    first = values[0]
    lists = [parts(v) for v in values]
    if any(p is None for p in lists) or len({type(v) for v in values}) > 1:
        found = " or ".join(dict.fromkeys(describe(v) for v in values))
        return Conflict(f"it is {found}, depending on what runs")
    groups = cast("list[tuple[object, ...]]", lists)
    if len({len(g) for g in groups}) > 1:
        lengths = " or ".join(str(len(g)) for g in groups)
        return Conflict(f"it has {lengths} items, depending on what runs")
    if len({v.source.node for v in values if isinstance(v, LocalFunction)}) > 1:
        return Conflict("it is one function or another, depending on what runs")
    arrays = [v for v in values if isinstance(v, Array)]
    if len({a.dtype for a in arrays}) > 1:
        return Conflict("it is an array of one dtype or another, depending on what runs")
    views = [v for v in values if isinstance(v, TiledView)]
    if len({(v.tile_shape, v.traversal_steps, v.padding_mode) for v in views}) > 1:
        return Conflict("it is a view of one kind or another, depending on what runs")
    # Extents and strides that agree stay constants, also in a loop.
    inner: Carry = "differing" if carry == "numbers" and arrays else carry
    items = tuple(join([g[i] for g in groups], inner) for i in range(len(groups[0])))
    conflict = next((i for i in items if isinstance(i, Conflict)), None)
    return conflict if conflict is not None else GroupSlot(first, items)


def slot_types(slot: Slot) -> tuple[Type, ...]:
    """The types of the IR values that a slot carries."""
    match slot:
        case TileSlot():
            return (slot.type,)
        case TokenSlot():
            return (TOKEN,)
        case GroupSlot():
            return tuple(t for item in slot.items for t in slot_types(item))
        case ForeignSlot():
            return slot.types()
        case Same() | Conflict():
            return ()


def pack(t: Trace, slot: Slot, value: object) -> Iterator[Value]:
    """The IR values that carry `value`; numbers become constants here."""
    match slot:
        case TileSlot():
            pointer = isinstance(value, Tile) and value.type == slot.type
            tile = cast("Tile", value) if pointer else as_tile(t, value, slot.dtype)
            yield tile.value
        case TokenSlot():
            yield cast("Token", value).value
        case GroupSlot():
            for item, part in zip(slot.items, parts(value) or (), strict=True):
                yield from pack(t, item, part)
        case ForeignSlot():
            yield from slot.pack(t, value)
        case Same() | Conflict():
            return


def unpack(slot: Slot, values: Iterator[Value]) -> object:
    """The value that carried IR values stand for."""
    match slot:
        case Same():
            return slot.value
        case TileSlot():
            return Tile(next(values), slot.dtype)
        case TokenSlot():
            return Token(next(values))
        case GroupSlot():
            return rebuild(slot.example, [unpack(item, values) for item in slot.items])
        case ForeignSlot():
            return slot.unpack(values)
        case Conflict():
            return Undefined(slot.why)


def fits(slot: Slot, value: object) -> bool:
    """True if `value` can be carried in the slot as it is."""
    match slot:
        case Same():
            return same(slot.value, value)
        case Conflict():
            return True
        case TileSlot():
            if isinstance(value, Tile):
                return value.type == slot.type and value.dtype is slot.dtype
            if not is_number(value) or slot.shape:
                return False
            return promote_weak(slot.dtype, value) is slot.dtype
        case TokenSlot():
            return isinstance(value, Token)
        case ForeignSlot():
            return slot.fits(value)
        case GroupSlot():
            items = parts(value)
            if items is None or type(value) is not type(slot.example):
                return False
            if len(items) != len(slot.items):
                return False
            return all(map(fits, slot.items, items))
