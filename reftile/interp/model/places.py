"""Where the elements of a memory operation are: bytes of buffers, each under a condition.

An address or an index that depends on what was loaded has one *alternative* for each place it may
be, with disjoint conditions. What lies outside everything is an alternative of its own, a fault.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from itertools import product

import numpy as np

from reftile.interp.memory import Buffer, Memory
from reftile.interp.model.symbolic import Data, Symbolic, bits_of, expressions, signed
from reftile.interp.model.values import (
    FALSE,
    TRUE,
    Bin,
    Const,
    Expr,
    Poison,
    binary,
    both,
    constants,
    negate,
)
from reftile.interp.values import Tile
from reftile.interp.views import TileView, elements
from reftile.ir.core import Op
from reftile.ir.diagnostics import fail
from reftile.ir.dtypes import DTYPES, I64, DType
from reftile.ir.types import TileType

LARGEST_CHOICE = 64
"""Alternatives of one address at most."""


@dataclass(frozen=True, slots=True)
class Place:
    """One place that an element may be.

    guard: when it is there. nibble: 0 or 1 for the low or high half of a byte, else -1.
    fault: what is wrong with the place, or "".
    """

    buffer: Buffer
    offset: int
    guard: Expr = TRUE
    nibble: int = -1
    fault: str = ""


@dataclass(slots=True)
class Spot:
    """An element of the tile with its alternatives; without any it has no access.

    element: flat number in the tile.
    """

    element: int
    places: list[Place] = field(default_factory=list[Place])

    @property
    def is_certain(self) -> bool:
        """Whether the element is accessed whatever was loaded."""
        return len(self.places) == 1 and self.places[0].guard == TRUE


def _is_index(expr: Expr, number: int, bits: int) -> Expr:
    """The condition that an index, which is read as unsigned, has this value."""
    return equals(expr, signed(number, bits))


def equals(expr: Expr, number: int) -> Expr:
    """The condition that an expression has this value, as simple as can be."""
    match expr:
        case Const(value):
            return TRUE if value == number else FALSE
        case Bin("+", inner, Const(value)) | Bin("+", Const(value), inner):
            return equals(inner, number - value)
        case Bin("*", inner, Const(value)) | Bin("*", Const(value), inner) if value:
            return FALSE if number % value else equals(inner, number // value)
        case _:
            return binary("==", expr, Const(number))


# By pointers


def pointed(memory: Memory, op: Op, pointers: Data, dtype: DType, mask: Data | None) -> list[Spot]:
    """The places that a tile of pointers points to, where its mask is true."""
    type = op.operands[0].type
    assert isinstance(type, TileType)
    addresses = expressions(pointers, I64).reshape(-1)
    masks = _mask(op, mask, addresses.size)
    found: list[Spot] = []
    for element, address in enumerate(addresses):
        spot = Spot(element)
        if masks[element] != FALSE:
            for place in _behind(memory, op, address, dtype.storage.itemsize):
                guard = both(masks[element], place.guard)
                spot.places.append(
                    Place(place.buffer, place.offset, guard, place.nibble, place.fault)
                )
        found.append(spot)
    return found


def _mask(op: Op, mask: Data | None, count: int) -> list[Expr]:
    if mask is None:
        return [TRUE] * count
    return list(expressions(mask, DTYPES["i1"]).reshape(-1))


def _behind(memory: Memory, op: Op, address: Expr, size: int) -> Iterator[Place]:
    if isinstance(address, Poison):
        raise fail("poison.address", f"an address of `{op.name}` is poison", op.span)
    if isinstance(address, Const):
        yield _at(memory, op, address.value, size)
        return
    buffers = {id(b): b for n in constants(address) if (b := memory.find(n, 1)) is not None}
    if not buffers:
        raise fail("explore.address", f"`{op.name}` takes an address out of memory", op.span)
    inside: Expr = FALSE
    for buffer in buffers.values():
        first = -(-buffer.address // size) * size
        places = range(first, buffer.end - size + 1, size)
        conditions = [(at, equals(address, at)) for at in places]
        possible = [(at, condition) for at, condition in conditions if condition != FALSE]
        _check_count(op, len(possible))
        for at, condition in possible:
            inside = binary("|", inside, condition)
            yield Place(buffer, at - buffer.address, condition)
    anywhere = next(iter(buffers.values()))
    yield Place(anywhere, 0, negate(inside), fault=f"{anywhere.name}[{address}]")


def _check_count(op: Op, count: int) -> None:
    if count > LARGEST_CHOICE:
        raise fail(
            "explore.too_large",
            f"`{op.name}` takes an address out of {count}, which depends on loaded values",
            op.span,
            hint=f"explore it on a buffer of at most {LARGEST_CHOICE} elements",
        )


def _at(memory: Memory, op: Op, address: int, size: int) -> Place:
    buffer = memory.find(address, size)
    if buffer is not None and address % size == 0:
        return Place(buffer, address - buffer.address)
    nearest = memory.nearest(address)
    if nearest is None or nearest.end - nearest.address < size:
        rule, message = memory.explain(address, size)
        raise fail(rule, message, op.span)
    what = "misaligned" if buffer is not None else memory.explain(address, size)[1]
    return Place(nearest, 0, fault=f"0x{address:x} ({what})")


# By views


def viewed(memory: Memory, op: Op, view: TileView, index: Sequence[Data]) -> list[Spot]:
    """The places of a tile of a view; elements outside the view have none."""
    count = int(np.prod(view.type.tile, dtype=np.int64))
    spots = [Spot(i) for i in range(count)]
    outside: Expr = FALSE
    for at, guard in _indices(op, view, index):
        if at is None:
            outside = guard
            continue
        for element, place in _elements(memory, op, view, at):
            spots[element].places.append(
                Place(place.buffer, place.offset, both(guard, place.guard), place.nibble)
            )
    if outside != FALSE and spots:
        buffer = view.tensor.buffer or memory.buffers[0]
        shown = ", ".join(str(_scalar(op, i, d)) for i, d in enumerate(index) if i != view.sparse)
        spots[0].places.append(Place(buffer, 0, outside, fault=f"the index [{shown}]"))
    return spots


Index = list["int | list[Expr]"]


def _indices(op: Op, view: TileView, index: Sequence[Data]) -> Iterator[tuple[Index | None, Expr]]:
    """Every index that may be meant, with its condition; None for those outside."""
    choices: list[list[tuple[int | list[Expr], Expr]]] = []
    inside: Expr = TRUE
    for axis, data in enumerate(index):
        if axis == view.sparse:
            rows = expressions(data, _index_dtype(op, axis)).reshape(-1)
            choices.append([(list(rows), TRUE)])
            continue
        expr, bits = _scalar(op, axis, data), bits_of(_index_dtype(op, axis))
        conditions = [(k, _is_index(expr, k, bits)) for k in range(view.space[axis])]
        possible: list[tuple[int | list[Expr], Expr]] = [c for c in conditions if c[1] != FALSE]
        either: Expr = FALSE
        for _, condition in possible:
            either = binary("|", either, condition)
        inside = both(inside, either)
        choices.append(possible)
    _check_count(op, int(np.prod([len(c) for c in choices], dtype=np.int64)))
    for chosen in product(*choices):
        guard: Expr = TRUE
        for _, condition in chosen:
            guard = both(guard, condition)
        yield [at for at, _ in chosen], guard
    if inside != TRUE:
        yield None, negate(inside)


def _index_dtype(op: Op, axis: int) -> DType:
    operand = getattr(op, "index")[axis]  # noqa: B009
    assert isinstance(operand.type, TileType)
    return operand.type.dtype


def _scalar(op: Op, axis: int, data: Data) -> Expr:
    dtype = _index_dtype(op, axis)
    expr: Expr = expressions(data, dtype).reshape(-1)[0]
    if isinstance(expr, Poison):
        raise fail("poison.address", f"the index of `{op.name}` is poison", op.span)
    return expr


def _elements(memory: Memory, op: Op, view: TileView, index: Index) -> Iterator[tuple[int, Place]]:
    """The elements of the tile at one index that lie in the view."""
    if view.sparse < 0:
        numbers = [i for i in index if isinstance(i, int)]
        yield from _located(memory, op, view, numbers, None, TRUE)
        return
    rows = index[view.sparse]
    assert isinstance(rows, list)
    for row, expr in enumerate(rows):
        for k in range(view.extents[view.sparse]):
            condition = _is_index(expr, k, bits_of(_index_dtype(op, view.sparse)))
            if condition != FALSE:
                everywhere = np.full(len(rows), k, np.int64)
                at = [everywhere if isinstance(i, list) else i for i in index]
                yield from _located(memory, op, view, at, row, condition)


def _located(
    memory: Memory,
    op: Op,
    view: TileView,
    index: Sequence[int | np.ndarray[tuple[int], np.dtype[np.int64]]],
    row: int | None,
    guard: Expr,
) -> Iterator[tuple[int, Place]]:
    found = elements(view, index)
    numbers = np.arange(found.inside.size).reshape(view.type.tile)
    if row is not None:
        numbers = np.take(numbers, [row], axis=view.sparse)
    for element in numbers.reshape(-1):
        if found.inside[element]:
            place = _at(memory, op, int(found.addresses[element]), view.dtype.storage.itemsize)
            nibble = -1 if found.nibble is None else int(found.nibble[element])
            yield int(element), Place(place.buffer, place.offset, guard, nibble, place.fault)


def known_scalar(op: Op, data: object, what: str) -> int:
    """The value of a scalar that must not depend on what was loaded."""
    if isinstance(data, Symbolic):
        raise fail(
            "explore.unknown",
            f"{what} depends on a loaded value, and the explorer must know it",
            op.span,
        )
    assert isinstance(data, Tile)
    if not data.is_clean:
        raise fail("poison.bound", f"{what} is poison", op.span)
    return int(data.data.item())
