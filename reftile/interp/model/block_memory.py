"""The memory operations of one block as operations of an event program."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import cache
from typing import cast

import numpy as np

from reftile.interp.atomics import combine
from reftile.interp.memory import Buffer, Memory, memory_dtype
from reftile.interp.model.events import Access, Edge, Kind, Location, Op, Order, Scope
from reftile.interp.model.places import Place, Spot, pointed, viewed
from reftile.interp.model.symbolic import (
    Data,
    Elements,
    bits_of,
    expressions,
    refuse,
    settled,
    signed,
    wrapped,
)
from reftile.interp.model.values import (
    FALSE,
    MODIFY,
    POISON,
    TRUE,
    Const,
    Expr,
    Modify,
    Reg,
    binary,
    both,
)
from reftile.interp.values import Array
from reftile.interp.views import TileView, padding_value
from reftile.ir import ops
from reftile.ir.core import Op as Operation
from reftile.ir.dtypes import DType
from reftile.ir.numbers import decode, encode
from reftile.ir.types import PointerType, TileType

Token = tuple[Edge, ...]
"""What a token waits for: operations, each under a condition."""

SCOPE_OF: dict[str, Scope] = {"tl_blk": "block", "device": "device", "sys": "sys"}


@dataclass(slots=True)
class Request:
    """A memory operation about to be listed.

    values: one for each element, of what stores and read-modify-writes write.
    compare, padding: likewise, where the operation has them.
    """

    op: Operation
    kind: Kind
    dtype: DType
    shape: tuple[int, ...]
    spots: list[Spot]
    token: Token
    guard: Expr
    values: Sequence[Expr] = ()
    compare: Sequence[Expr] = ()
    padding: Sequence[Expr] | None = None
    modify: Modify = "xchg"
    register: str = ""


class BlockMemory:
    """Lists the memory operations of one block.

    names: of the buffers that are used, by identity; shared by the blocks of a program.
    """

    def __init__(self, memory: Memory, names: dict[int, str], block: str) -> None:
        self.memory, self.names, self.block = memory, names, block
        self.ops: list[Op] = []
        self._taken: set[str] = set()

    # Names

    def unique(self, name: str) -> str:
        """A name that nothing in this block has: `name`, or `name#2` and so on."""
        found, count = name, 1
        while found in self._taken:
            count += 1
            found = f"{name}#{count}"
        self._taken.add(found)
        return found

    def buffer_name(self, buffer: Buffer) -> str:
        """The name of a buffer in the program; a second one of the same name gets a number."""
        found = self.names.get(id(buffer))
        if found is None:
            taken, found, count = set(self.names.values()), buffer.name, 1
            while found in taken:
                count += 1
                found = f"{buffer.name}#{count}"
            self.names[id(buffer)] = found
        return found

    # Operations

    def load_pointer(self, op: ops.LoadPtrTko, values: list[object], guard: Expr) -> list[object]:
        """`load_ptr_tko`."""
        source, mask, padding, token = values
        dtype, shape = _pointee(op.source.type)
        spots = pointed(self.memory, op, _data(source), dtype, _optional(mask))
        filling = None if padding is None else list(_flat(padding, dtype))
        request = Request(op, "load", dtype, shape, spots, _token(token), guard, padding=filling)
        return self._loaded(request)

    def store_pointer(self, op: ops.StorePtrTko, values: list[object], guard: Expr) -> list[object]:
        """`store_ptr_tko`."""
        destination, value, mask, token = values
        dtype, shape = _pointee(op.destination.type)
        spots = pointed(self.memory, op, _data(destination), dtype, _optional(mask))
        stored = _flat(value, dtype)
        return self._stored(Request(op, "store", dtype, shape, spots, _token(token), guard, stored))

    def load_view(self, op: ops.LoadViewTko, values: list[object], guard: Expr) -> list[object]:
        """`load_view_tko`."""
        view = cast(TileView, values[0])
        padding, dtype = padding_value(view.type), view.dtype
        shape = view.type.tile
        spots = viewed(self.memory, op, view, [_data(v) for v in values[1:-1]])
        filling = None
        if padding is not None:
            code = int(np.asarray(encode(np.array([padding], dtype.carrier), dtype))[0])
            filling = [wrapped(Const(code), bits_of(dtype))] * len(spots)
        token = _token(values[-1])
        return self._loaded(Request(op, "load", dtype, shape, spots, token, guard, padding=filling))

    def store_view(self, op: ops.StoreViewTko, values: list[object], guard: Expr) -> list[object]:
        """`store_view_tko`."""
        view = cast(TileView, values[1])
        stored = _flat(values[0], view.dtype)
        spots = viewed(self.memory, op, view, [_data(v) for v in values[2:-1]])
        shape, token = view.type.tile, _token(values[-1])
        return self._stored(Request(op, "store", view.dtype, shape, spots, token, guard, stored))

    def modify(self, op: ops.AtomicRmwTko, values: list[object], guard: Expr) -> list[object]:
        """`atomic_rmw_tko`."""
        pointers, argument, mask, token = values
        dtype, shape = _pointee(op.pointers.type)
        spots = pointed(self.memory, op, _data(pointers), dtype, _optional(mask))
        stored, mode = _flat(argument, dtype), _mode(op)
        return self._loaded(
            Request(op, "rmw", dtype, shape, spots, _token(token), guard, stored, modify=mode)
        )

    def reduce(self, op: ops.AtomicRedViewTko, values: list[object], guard: Expr) -> list[object]:
        """`atomic_red_view_tko`."""
        view = cast(TileView, values[0])
        stored = _flat(values[-2], view.dtype)
        spots = viewed(self.memory, op, view, [_data(v) for v in values[1:-2]])
        shape, token, mode = view.type.tile, _token(values[-1]), _mode(op)
        return self._stored(
            Request(op, "rmw", view.dtype, shape, spots, token, guard, stored, modify=mode)
        )

    def swap(self, op: ops.AtomicCasTko, values: list[object], guard: Expr) -> list[object]:
        """`atomic_cas_tko`."""
        pointers, expected, value, mask, token = values
        dtype, shape = _pointee(op.pointers.type)
        spots = pointed(self.memory, op, _data(pointers), dtype, _optional(mask))
        compare, stored = _flat(expected, dtype), _flat(value, dtype)
        return self._loaded(
            Request(op, "cas", dtype, shape, spots, _token(token), guard, stored, compare, compare)
        )

    # Listing

    def _loaded(self, request: Request) -> list[object]:
        """List an operation with a result; give the result and the token."""
        base = self.unique(_label(request.op, 0))
        request.register = f"{self.block}.{base}"
        found: Elements = np.empty(len(request.spots), np.object_)
        accesses: list[Access] = []
        bytes_read: dict[int, str] = {}
        for spot in request.spots:
            register = request.register + _index(request.shape, spot.element)
            padding = POISON if request.padding is None else request.padding[spot.element]
            if not spot.places:
                found[spot.element] = padding
                continue
            if spot.places[0].nibble >= 0:
                at = spot.places[0].offset
                if at not in bytes_read:
                    bytes_read[at] = register
                    accesses += self._accesses(request, spot, register)
                found[spot.element] = self._half(request, spot, bytes_read[at])
                continue
            accesses += self._accesses(request, spot, register)
            found[spot.element] = _from_memory(Reg(register), request.dtype)
        name = self._list(request, accesses, base)
        data = settled(found.reshape(request.shape), request.dtype)
        return [data, (Edge(name),)]

    def _half(self, request: Request, spot: Spot, register: str) -> Expr:
        if not spot.is_certain:
            raise refuse(request.op, "takes half bytes at an index that was loaded")
        half = binary(">>", Reg(register), Const(4)) if spot.places[0].nibble else Reg(register)
        return wrapped(half, 4)

    def _stored(self, request: Request) -> list[object]:
        """List an operation without a result; give its token."""
        base = self.unique(_label(request.op, -1))
        if any(p.nibble >= 0 for spot in request.spots for p in spot.places):
            return [(Edge(self._store_halves(request, base)),)]
        accesses = [a for spot in request.spots for a in self._accesses(request, spot, "")]
        return [(Edge(self._list(request, accesses, base)),)]

    def _accesses(self, request: Request, spot: Spot, register: str) -> list[Access]:
        return [self._access(request, spot, place, register) for place in spot.places]

    def _access(self, request: Request, spot: Spot, place: Place, register: str) -> Access:
        size = request.dtype.storage.itemsize
        buffer = self.buffer_name(place.buffer)
        element = spot.element
        return Access(
            request.kind,
            Location(buffer, place.offset, size),
            place.guard,
            request.values[element] if request.values else None,
            request.compare[element] if request.compare else None,
            request.modify,
            register,
            request.padding[element] if request.padding is not None else None,
            place.fault or _place_name(place.buffer, buffer, place.offset, size),
            element,
            bool(place.fault),
            _combination(request.modify, request.dtype),
        )

    def _list(self, request: Request, accesses: list[Access], name: str) -> str:
        op = request.op
        order = cast(Order, str(op.attributes["ordering"]))
        scope = op.attributes.get("scope")
        text = op.span.source.text[op.span.start : op.span.end]
        self.ops.append(
            Op(
                name,
                tuple(accesses),
                order,
                SCOPE_OF[str(scope)] if scope is not None else None,
                request.guard,
                request.token,
                " ".join(text.split()),
                op.span,
            )
        )
        return name

    def _store_halves(self, request: Request, base: str) -> str:
        """Store elements of half a byte: where one half stays, the byte is read first."""
        halves: dict[int, dict[int, Spot]] = {}
        for spot in request.spots:
            for place in spot.places:
                if not spot.is_certain:
                    raise refuse(request.op, "takes half bytes at an index that was loaded")
                halves.setdefault(place.offset, {})[place.nibble] = spot
        single = [spots for spots in halves.values() if len(spots) == 1]
        if single and request.op.attributes["ordering"] != "weak":
            raise refuse(request.op, "stores half of a byte with an order")
        token = request.token
        reading = Request(
            request.op, "load", request.dtype, request.shape, [], token, request.guard
        )
        reads: list[Access] = []
        writes: list[Access] = []
        for offset, spots in sorted(halves.items()):
            spot = next(iter(spots.values()))
            place = spot.places[0]
            register = f"{self.block}.{base}.kept[{offset}]"
            if len(spots) == 1:
                reads.append(self._access(reading, spot, place, register))
            value: Expr = Const(0)
            for nibble in (0, 1):
                part = _shifted(spots, nibble, request.values, Reg(register))
                value = binary("+", value, part)
            writes.append(
                Access(
                    "store",
                    Location(self.buffer_name(place.buffer), offset, 1),
                    value=wrapped(value, 8),
                    name=f"{self.buffer_name(place.buffer)} byte {offset}",
                    element=spot.element,
                )
            )
        if reads:
            request.token = (Edge(self._list(reading, reads, self.unique(f"{base}.kept"))),)
        return self._list(request, writes, base)


def _label(op: Operation, result: int) -> str:
    """What an operation is called: as its result, or by its line."""
    name, verb = op.results[result].name, op.name.split("_")[0]
    if verb == "atomic":
        verb = str(op.attributes.get("mode", "cas"))
    return name or (f"{verb}_{op.span.line}" if op.span.source.text else verb)


def _shifted(spots: dict[int, Spot], nibble: int, values: Sequence[Expr], old: Expr) -> Expr:
    """What one half of a byte adds to its value."""
    spot = spots.get(nibble)
    if spot is None:
        return binary("&", old, Const(0xF0 if nibble else 0x0F))
    bits = binary("&", values[spot.element], Const(0x0F))
    return binary("*", bits, Const(16)) if nibble else bits


def _from_memory(register: Expr, dtype: DType) -> Expr:
    """An element from its bytes: a byte other than zero is a true i1."""
    return binary("!=", register, FALSE) if dtype.bits == 1 else register


def _place_name(buffer: Buffer, name: str, offset: int, size: int) -> str:
    width = 1 if buffer.dtype is None else buffer.dtype.storage.itemsize
    if buffer.dtype is not None and (size != width or offset % size):
        return f"{name} bytes {offset}-{offset + size - 1}"
    if buffer.dtype is not None and buffer.dtype.elements_per_unit == 2:
        return f"{name} byte {offset}"
    return f"{name}[{offset // size}]"


def _index(shape: tuple[int, ...], element: int) -> str:
    if not shape:
        return ""
    return f"[{','.join(str(int(i)) for i in np.unravel_index(element, shape))}]"


def _pointee(type: object) -> tuple[DType, tuple[int, ...]]:
    assert isinstance(type, TileType) and isinstance(type.element, PointerType)
    return memory_dtype(type.element.pointee), type.shape


def _mode(op: ops.AtomicRmwTko | ops.AtomicRedViewTko) -> Modify:
    return cast(Modify, op.mode)


@cache
def _combination(mode: str, dtype: DType) -> Callable[[int, int], int] | None:
    """What a read-modify-write stores, for the modes that depend on the type."""
    if mode in MODIFY:
        return None
    mask = (1 << bits_of(dtype)) - 1

    def array(number: int) -> Array:
        return decode(np.array([number & mask], dtype.storage), dtype)

    def combined(old: int, argument: int) -> int:
        result = combine(mode, array(old), array(argument), dtype)
        return signed(int(np.asarray(encode(result, dtype))[0]), bits_of(dtype))

    return combined


def _data(value: object) -> Data:
    return cast(Data, value)


def _optional(value: object) -> Data | None:
    return None if value is None else cast(Data, value)


def _token(value: object) -> Token:
    return () if value is None else cast(Token, value)


def _flat(value: object, dtype: DType) -> list[Expr]:
    return list(expressions(_data(value), dtype).reshape(-1))


def guarded(token: Sequence[Edge], condition: Expr) -> Token:
    """A token that waits only where a condition holds."""
    return tuple(Edge(e.op, both(condition, e.guard)) for e in token)


def joined(tokens: Sequence[Token]) -> Token:
    """A token that waits for all that these wait for."""
    certain = {e.op for token in tokens for e in token if e.guard == TRUE}
    found: dict[Edge, None] = {}
    for token in tokens:
        for edge in token:
            if edge.guard == TRUE or edge.op not in certain:
                found[edge] = None
    return tuple(found)
