"""The statements of a generated kernel: computing, accesses, loops and branches."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass, field

from reftile.conformance.fuzz.access import (
    Accesses,
    scratch,
    store,
    touch_input,
    touch_private,
    touch_sum,
)
from reftile.conformance.fuzz.elementwise import write_elementwise
from reftile.conformance.fuzz.memory import Buffer, make_route
from reftile.conformance.fuzz.shaped import condition, write_shaped
from reftile.conformance.fuzz.values import COMMON, INDEX, Writer

from reftile.ir import ops
from reftile.ir.core import Op, Value
from reftile.ir.dtypes import DTYPES
from reftile.ir.types import TileType

DEEPEST = 3
"""Regions inside one another at most."""
I1 = TileType((), DTYPES["i1"])


@dataclass
class Scope:
    """What statements need: where to write, and which buffers there are.

    may_access: False inside a branch whose condition is not known beforehand.
    left: statements that may still be written.
    """

    writer: Writer
    accesses: Accesses
    buffers: list[Buffer]
    seen: Counter[str] = field(default_factory=Counter)
    may_access: bool = True
    left: int = 16
    carrying: list[list[TileType]] = field(default_factory=list)


def write_statements(scope: Scope, most: int) -> None:
    """Write some statements."""
    writer = scope.writer
    written = 0
    while written < most and scope.left > 0 and writer.choices.chance(88):
        write_statement(scope)
        written += 1


def write_statement(scope: Scope) -> None:
    """Write one statement."""
    writer = scope.writer
    scope.left -= 1
    kinds: list[tuple[Callable[[Scope], None], int]] = [(_compute, 8)]
    if scope.may_access:
        kinds.append((_access, 12))
    if writer.depth < DEEPEST:
        kinds += [(_known_branch, 3), (_for, 4), (_branch, 2), (_loop, 2)]
        if scope.may_access:
            kinds.append((_scratch, 1))
    kinds.append((_check, 1))
    writer.choices.nested(lambda: writer.choices.weighted(kinds)(scope))


def _compute(scope: Scope) -> None:
    writer = scope.writer
    write = writer.choices.weighted([(write_elementwise, 6), (write_shaped, 5)])
    for value in write(writer):
        writer.keep(value)


def _access(scope: Scope) -> None:
    writer = scope.writer
    weights = {"private": 6, "input": 3, "sum": 3}
    buffer = writer.choices.weighted([(b, weights[b.role]) for b in scope.buffers])
    touch = {"private": touch_private, "input": touch_input, "sum": touch_sum}[buffer.role]
    for value in touch(writer, scope.accesses, buffer):
        writer.keep(value)


def _scratch(scope: Scope) -> None:
    """Memory of the block: it lives as long as the region that it is made in."""
    writer = scope.writer
    buffer = scratch(writer, scope.accesses, writer.dtype(COMMON))
    with _more_buffers(scope, buffer):
        for _ in range(writer.choices.between(1, 3)):
            for value in touch_private(writer, scope.accesses, buffer):
                writer.keep(value)


class _more_buffers:
    def __init__(self, scope: Scope, buffer: Buffer) -> None:
        self.scope, self.buffer = scope, buffer

    def __enter__(self) -> None:
        self.scope.buffers.append(self.buffer)

    def __exit__(self, *_: object) -> None:
        self.scope.buffers.remove(self.buffer)


def _check(scope: Scope) -> None:
    """An assertion or a promise that always holds, or a text."""
    writer = scope.writer
    kind = writer.choices.weighted([("assert", 8), ("assume", 8), ("print", 1)])
    if kind == "print":
        value = writer.need(TileType((2,), DTYPES["i32"]))
        writer.op(ops.PrintTko, [value], format="%i")
    elif kind == "assume":
        known = writer.known_scalars()
        value = writer.choices.pick(known) if known else writer.number(1)
        writer.keep(writer.let(ops.Assume, value, div_by=1))
    else:
        shape = writer.shape()
        value = writer.need(TileType(shape, DTYPES["i32"]))
        same = writer.let(ops.Cmpi, value, value, predicate="equal", signedness="signed")
        writer.op(ops.Assert, same, message="a number differs from itself")


# Branches


def known_condition(writer: Writer) -> Value:
    """A condition that depends on the block and on loop counters only."""
    choices = writer.choices
    known = writer.known_scalars()
    value = choices.pick(known[:6]) if known else writer.number(0)
    assert isinstance(value.type, TileType)
    dtype = value.type.dtype
    if choices.chance(40):
        two = writer.number(2, dtype)
        value = writer.let(ops.Remi, value, two, signedness="unsigned")
    other = writer.number(choices.below(3), dtype)
    predicate = choices.pick(("equal", "not_equal", "less_than", "greater_than"))
    return writer.let(ops.Cmpi, value, other, predicate=predicate, signedness="signed")


def _known_branch(scope: Scope) -> None:
    _write_branch(scope, known_condition(scope.writer), 4)


def _branch(scope: Scope) -> None:
    """A branch on data: its regions access nothing."""
    before, scope.may_access = scope.may_access, False
    _write_branch(scope, condition(scope.writer, ()), 3)
    scope.may_access = before


def _write_branch(scope: Scope, chosen: Value, most: int) -> None:
    writer, choices = scope.writer, scope.writer.choices
    scope.seen[f"branch at depth {writer.depth + 1}"] += 1
    count = choices.weighted([(0, 3), (1, 3), (2, 1)])
    types = [TileType(writer.shape(), writer.dtype(COMMON)) for _ in range(count)]
    both = bool(types) or choices.chance(40)
    op = writer.op(ops.If, chosen, types=types)
    if not both:
        op.regions = op.regions[:1]
    for region in op.regions:
        with writer.inside(region):
            write_statements(scope, most)
            writer.op(ops.Yield, [writer.need(t) for t in types])
    for result in op.results:
        writer.keep(result)


# Loops


def _carried(writer: Writer) -> list[Value]:
    count = writer.choices.weighted([(1, 4), (0, 3), (2, 2)])
    return [writer.need(TileType(writer.shape(), writer.dtype(COMMON))) for _ in range(count)]


def _types(values: list[Value]) -> list[TileType]:
    return [v.type for v in values if isinstance(v.type, TileType)]


def _for(scope: Scope) -> None:
    writer, choices = scope.writer, scope.writer.choices
    scope.seen[f"loop at depth {writer.depth + 1}"] += 1
    dtype = DTYPES[choices.pick(INDEX)]
    unsigned = choices.chance(20)
    lower = choices.pick((0, 1, 2) if unsigned else (0, 1, -1))
    step = choices.between(1, 2)
    upper = writer.number(lower + step * choices.pick((2, 1, 3, 0)), dtype)
    if choices.chance(15):
        upper = writer.as_i32(writer.index_below(3), dtype)
    init = _carried(writer)
    bounds = writer.number(lower, dtype), upper, writer.number(step, dtype)
    op = writer.op(ops.For, *bounds, init, types=_types(init), unsigned_cmp=unsigned)
    with writer.inside(op.regions[0]) as (counter, *carried):
        writer.known[-1].append(counter)
        for value in carried:
            writer.keep(value)
        scope.carrying.append(_types(init))
        _maybe_continue(scope)
        write_statements(scope, 4)
        scope.carrying.pop()
        writer.op(ops.Continue, [writer.need(t) for t in _types(init)])
    for result in op.results:
        writer.keep(result)


def _maybe_continue(scope: Scope) -> None:
    """Leave some iterations early."""
    writer = scope.writer
    if not writer.choices.chance(12):
        return
    op = writer.op(ops.If, known_condition(writer), types=[])
    op.regions = op.regions[:1]
    with writer.inside(op.regions[0]):
        write_statements(scope, 2)
        writer.op(ops.Continue, [writer.need(t) for t in scope.carrying[-1]])


def _loop(scope: Scope) -> None:
    """A loop that counts for itself and breaks."""
    writer, choices = scope.writer, scope.writer.choices
    scope.seen[f"loop at depth {writer.depth + 1}"] += 1
    init = _carried(writer)
    types = _types(init)
    last = writer.number(choices.between(1, 3))
    op = writer.op(ops.Loop, [writer.number(0), *init], types=types)
    with writer.inside(op.regions[0]) as (counter, *carried):
        writer.known[-1].append(counter)
        for value in carried:
            writer.keep(value)
        done = writer.let(
            ops.Cmpi, counter, last, predicate="greater_than_or_equal", signedness="signed"
        )
        leave = writer.op(ops.If, done, types=[])
        leave.regions = leave.regions[:1]
        with writer.inside(leave.regions[0]):
            writer.op(ops.Break, [writer.need(t) for t in types])
        before, scope.carrying = scope.carrying, []
        write_statements(scope, 4)
        scope.carrying = before
        following = writer.let(ops.Addi, counter, writer.number(1))
        writer.op(ops.Continue, [following, *(writer.need(t) for t in types)])
    for result in op.results:
        writer.keep(result)


def write_results(scope: Scope) -> None:
    """Store some of what was computed, so that it shows."""
    writer = scope.writer
    private = [b for b in scope.buffers if b.role == "private"]
    for _ in range(writer.choices.between(1, 2)):
        buffer = writer.choices.pick(private)
        route = make_route(writer, buffer, distinct=True)
        store(writer, scope.accesses, route, writer.need(route.type))


def write_return(scope: Scope) -> None:
    """Sometimes end some blocks early."""
    writer = scope.writer
    if not writer.choices.chance(6):
        return
    op: Op = writer.op(ops.If, known_condition(writer), types=[])
    op.regions = op.regions[:1]
    with writer.inside(op.regions[0]):
        write_statements(scope, 2)
        writer.op(ops.Return)
