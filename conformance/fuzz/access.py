"""Loads, stores and read-modify-writes of a generated kernel. They have no tokens yet."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, field

from reftile.conformance.fuzz.memory import Buffer, Route, make_route, pointer_route
from reftile.conformance.fuzz.values import Writer

from reftile.ir import ops
from reftile.ir.core import Op, Value
from reftile.ir.dtypes import DTYPES, DType
from reftile.ir.types import PointerType, TileType

MODES = {
    "i32": ("add", "and", "or", "xor", "max", "min", "umax", "umin"),
    "i64": ("add", "and", "or", "xor", "max", "min", "umax", "umin"),
    "f16": ("addf",),
    "bf16": ("addf",),
    "f32": ("addf",),
    "f64": ("addf",),
}
"""Combinations whose order does not show, by element type (of floats, for small whole numbers)."""


@dataclass
class Accesses:
    """The accesses of a kernel.

    must: pairs of operations that need a token between them even where they share no memory.
    seen: what was written, for histograms.
    """

    must: list[tuple[Op, Op]] = field(default_factory=list)
    seen: Counter[str] = field(default_factory=Counter)

    def note(self, op: Op, route: Route) -> Op:
        """Count an access."""
        ordering, scope = op.attributes["ordering"], op.attributes.get("scope", "")
        self.seen[f"{op.name} {ordering} {scope}".strip()] += 1
        self.seen[f"element {route.dtype.name}"] += 1
        return op


def _order(writer: Writer, strong: str) -> dict[str, object]:
    """An ordering with its scope: weak, relaxed, or acquire or release."""
    ordering = writer.choices.weighted([("weak", 6), ("relaxed", 2), (strong, 2)])
    if ordering == "weak":
        return {"ordering": ordering}
    return {"ordering": ordering, "scope": writer.choices.pick(("device", "sys", "tl_blk"))}


def _inbounds(writer: Writer, route: Route) -> tuple[bool, ...] | None:
    if route.partial or not route.index or not writer.choices.chance(15):
        return None
    return tuple(True for _ in route.index)


def load(
    writer: Writer, accesses: Accesses, route: Route, order: dict[str, object] | None = None
) -> tuple[Op, Value]:
    """Load; gives the operation, and a tile without poison."""
    order = _order(writer, "acquire") if order is None else order
    if route.view is not None:
        op = writer.op(
            ops.LoadViewTko, route.view, route.index, inbounds=_inbounds(writer, route), **order
        )
        return accesses.note(op, route), op.results[0]
    mask, padding = route.mask, None
    if mask is not None and writer.choices.chance(60):
        padding = writer.need(route.type)
    op = writer.op(ops.LoadPtrTko, route.pointers, mask, padding, **order)
    accesses.note(op, route)
    return op, _cleaned(writer, op.results[0], mask if padding is None else None)


def _cleaned(writer: Writer, value: Value, mask: Value | None) -> Value:
    """`value` with something else where it has no meaning."""
    if mask is None:
        return value
    assert isinstance(value.type, TileType)
    return writer.let(ops.Select, mask, value, writer.need(value.type))


def store(
    writer: Writer,
    accesses: Accesses,
    route: Route,
    value: Value,
    order: dict[str, object] | None = None,
) -> Op:
    """Store a tile."""
    order = _order(writer, "release") if order is None else order
    if route.view is not None:
        promise = _inbounds(writer, route)
        op = writer.op(ops.StoreViewTko, value, route.view, route.index, inbounds=promise, **order)
    else:
        op = writer.op(ops.StorePtrTko, route.pointers, value, route.mask, **order)
    return accesses.note(op, route)


def modify(
    writer: Writer, accesses: Accesses, route: Route, mode: str, argument: Value
) -> tuple[Op, Value]:
    """A read-modify-write by pointers; gives the old elements, without poison."""
    order = _strong(writer)
    op = writer.op(ops.AtomicRmwTko, route.pointers, argument, route.mask, mode=mode, **order)
    accesses.note(op, route)
    return op, op.results[0]


def _strong(writer: Writer) -> dict[str, object]:
    ordering = writer.choices.pick(("relaxed", "acq_rel", "acquire", "release"))
    return {"ordering": ordering, "scope": writer.choices.pick(("device", "sys"))}


# What a program does with a buffer


def touch_input(writer: Writer, accesses: Accesses, buffer: Buffer) -> list[Value]:
    """Load from what is only read."""
    return [load(writer, accesses, make_route(writer, buffer, distinct=False))[1]]


def touch_private(writer: Writer, accesses: Accesses, buffer: Buffer) -> list[Value]:
    """Any access to what belongs to the block."""
    choices = writer.choices
    names = buffer.dtype.name
    kinds = [("store", 5), ("load", 4), ("update", 5)]
    if names in MODES:
        kinds += [("modify", 3), ("reduce", 2)]
    if names in ("i32", "i64", "f32", "f64"):
        kinds += [("swap", 2)]
    kind = choices.weighted(kinds)
    if kind == "load":
        return [load(writer, accesses, make_route(writer, buffer, distinct=False))[1]]
    if kind == "reduce":
        return _reduce(writer, accesses, buffer, choices.pick(MODES[names]))
    if kind == "modify":
        return [_exchange(writer, accesses, buffer)]
    if kind == "swap":
        return [_swap(writer, accesses, buffer)]
    route = make_route(writer, buffer, distinct=True)
    if kind == "update":
        return update(writer, accesses, route)
    store(writer, accesses, route, writer.need(route.type))
    return []


def update(writer: Writer, accesses: Accesses, route: Route) -> list[Value]:
    """Load, compute and store to the same place."""
    _, old = load(writer, accesses, route)
    writer.keep(old)
    store(writer, accesses, route, _changed(writer, old))
    return [old]


def _changed(writer: Writer, old: Value) -> Value:
    assert isinstance(old.type, TileType)
    other = writer.need(old.type)
    names = old.type.dtype.name
    if names in ("i1", "i8", "i16", "i32", "i64"):
        cls: type[Op] = writer.choices.pick((ops.Addi, ops.Xori, ops.Subi))
        return writer.let(cls, old, other)
    if names in ("f16", "bf16", "f32", "f64"):
        cls = writer.choices.pick((ops.Addf, ops.Mulf, ops.Subf))
        return writer.let(cls, old, other)
    return other


def _atomic_route(writer: Writer, buffer: Buffer, distinct: bool) -> Route:
    route = pointer_route(writer, buffer, distinct)
    while route.dtype is not buffer.dtype:
        route = pointer_route(writer, buffer, distinct)
    return route


def _exchange(writer: Writer, accesses: Accesses, buffer: Buffer) -> Value:
    route = _atomic_route(writer, buffer, distinct=True)
    modes = MODES[route.dtype.name]
    if route.dtype.name in ("i32", "i64", "f32", "f64"):
        modes = (*modes, "xchg")
    mode = writer.choices.pick(modes)
    _, old = modify(writer, accesses, route, mode, writer.need(route.type))
    return _cleaned(writer, old, route.mask)


def _swap(writer: Writer, accesses: Accesses, buffer: Buffer) -> Value:
    """A compare and swap, often with what is there."""
    route = _atomic_route(writer, buffer, distinct=True)
    if writer.choices.chance(50):
        _, expected = load(writer, accesses, route)
    else:
        expected = writer.need(route.type)
    wanted = writer.need(route.type)
    op = writer.op(
        ops.AtomicCasTko, route.pointers, expected, wanted, route.mask, **_strong(writer)
    )
    accesses.note(op, route)
    # A masked element gives what was expected: nothing has to be cleaned.
    return op.results[0]


def _reduce(writer: Writer, accesses: Accesses, buffer: Buffer, mode: str) -> list[Value]:
    """A reduction through a view, or by pointers if there is no such view."""
    distinct = buffer.role == "private"
    route = make_route(writer, buffer, distinct)
    argument = _summand(writer, route.type, buffer)
    if route.view is None or route.view_type.kind == "gather_scatter_view":
        if route.view is not None or route.dtype is not buffer.dtype:
            route = _atomic_route(writer, buffer, distinct)
            argument = _summand(writer, route.type, buffer)
        modify(writer, accesses, route, mode, argument)
        return []
    order = {"ordering": "relaxed", "scope": "device", "mode": mode}
    op = writer.op(ops.AtomicRedViewTko, route.view, route.index, argument, **order)
    accesses.note(op, route)
    return []


def _summand(writer: Writer, type: TileType, buffer: Buffer) -> Value:
    """What is combined: for floats that all blocks add to, small whole numbers."""
    if type.dtype.is_int or buffer.role == "private":
        return writer.need(type)
    small = writer.masked_bits(writer.need(TileType(type.shape, DTYPES["i8"])), 3)
    return writer.let(ops.Itof, small, type=type, signedness="unsigned")


def touch_sum(writer: Writer, accesses: Accesses, buffer: Buffer) -> list[Value]:
    """Combine with what all blocks combine with."""
    return _reduce(writer, accesses, buffer, buffer.mode)


def fill(writer: Writer, accesses: Accesses, buffer: Buffer) -> None:
    """Store every element of the block's part."""
    assert buffer.base is not None
    type = TileType((buffer.part,), DTYPES["i32"])
    line = writer.let(ops.Iota, type=type)
    pointers = writer.let(ops.Offset, writer.spread(buffer.base, type.shape), line)
    route = Route(buffer, type.shape, buffer.dtype, pointers)
    store(writer, accesses, route, writer.need(route.type), {"ordering": "weak"})


def scratch(writer: Writer, accesses: Accesses, dtype: DType) -> Buffer:
    """Memory of the block, filled."""
    part = writer.choices.pick((8, 16, 4))
    pointer = writer.op(ops.Alloca, types=[_pointer(dtype)], num_elem=part, alignment=16).results[0]
    buffer = Buffer("scratch", dtype, "private", part, pointer, base=pointer)
    fill(writer, accesses, buffer)
    return buffer


def _pointer(dtype: DType) -> TileType:
    return TileType((), PointerType(dtype))
