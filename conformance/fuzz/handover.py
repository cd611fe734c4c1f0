"""What blocks hand to one another: messages behind flags, and sums by the last one to finish.

Each result is the same whether or not a block sees a message in time: one that does not see it
computes what it would have found.
"""

from __future__ import annotations

from collections.abc import Callable

from reftile.conformance.fuzz.access import Accesses, load, store
from reftile.conformance.fuzz.memory import Buffer, Route
from reftile.conformance.fuzz.values import I32, SCALAR_I32, Writer

from reftile.ir import ops
from reftile.ir.core import Op, Value
from reftile.ir.dtypes import DTYPES
from reftile.ir.types import TileType

Message = Callable[[Value], Value]
"""What a block says, from its number."""
WEAK = {"ordering": "weak"}


def _route(writer: Writer, buffer: Buffer, block: Value | None, count: int) -> Route:
    """The part of a block, or, without a block, `count` elements from the start."""
    if buffer.role in ("flag", "counter"):
        pointers = buffer.argument
        if block is not None:
            pointers = writer.let(ops.Offset, pointers, block)
        return Route(buffer, (), buffer.dtype, pointers)
    type = TileType((count,), I32)
    line = writer.let(ops.Iota, type=type)
    if block is not None:
        begin = writer.let(ops.Muli, block, writer.number(buffer.part))
        line = writer.let(ops.Addi, line, writer.spread(begin, (count,)))
    pointers = writer.let(ops.Offset, writer.spread(buffer.argument, (count,)), line)
    return Route(buffer, (count,), buffer.dtype, pointers)


def _message(writer: Writer, type: TileType) -> Message:
    """A function of the number of a block."""
    factor, bits = writer.choices.between(1, 5), writer.choices.below(16)

    def write(block: Value) -> Value:
        numbers = TileType(type.shape, I32)
        line = writer.let(ops.Iota, type=numbers)
        line = writer.let(ops.Muli, line, writer.filled(numbers, factor))
        line = writer.let(ops.Addi, line, writer.spread(block, type.shape))
        line = writer.let(ops.Xori, line, writer.filled(numbers, bits))
        if type.dtype.is_int:
            return writer.converted(line, type.dtype)
        return writer.let(ops.Itof, line, type=type, signedness="signed")

    return write


def _scope(writer: Writer) -> str:
    return writer.choices.pick(("device", "sys"))


def write_message(
    writer: Writer, accesses: Accesses, data: Buffer, flag: Buffer, block: Value, blocks: int
) -> list[Value]:
    """Each block stores a message and raises a flag; each looks for that of its neighbour."""
    type = TileType((data.part,), data.dtype)
    message = _message(writer, type)
    one = writer.number(1)
    sent = store(writer, accesses, _route(writer, data, block, data.part), message(block), WEAK)
    release = {"ordering": "release", "scope": _scope(writer)}
    raised = store(writer, accesses, _route(writer, flag, block, 1), one, release)
    accesses.must.append((sent, raised))
    step = writer.let(ops.Addi, block, writer.number(writer.choices.between(1, max(1, blocks - 1))))
    other = writer.let(ops.Remi, step, writer.number(blocks), signedness="unsigned")
    looked, seen = _look(writer, accesses, flag, other)
    got = writer.op(ops.If, seen, types=[type])
    with writer.inside(got.regions[0]):
        received, value = load(writer, accesses, _route(writer, data, other, data.part), WEAK)
        accesses.must.append((looked, received))
        writer.op(ops.Yield, [value])
    with writer.inside(got.regions[1]):
        writer.op(ops.Yield, [message(other)])
    return list(got.results)


def _look(writer: Writer, accesses: Accesses, flag: Buffer, other: Value) -> tuple[Op, Value]:
    """Look at a flag a few times; gives the load, and whether it was seen raised."""
    route = _route(writer, flag, other, 1)
    acquire = {"ordering": "acquire", "scope": _scope(writer)}
    zero, one = writer.number(0), writer.number(1)
    times = writer.choices.between(1, 3)
    if times == 1:
        looked, found = load(writer, accesses, route, acquire)
    else:
        loop = writer.op(ops.For, zero, writer.number(times), one, [zero], types=[SCALAR_I32])
        with writer.inside(loop.regions[0]) as (_, so_far):
            looked, value = load(writer, accesses, route, acquire)
            best = writer.let(ops.Maxi, so_far, value, signedness="signed")
            writer.op(ops.Continue, [best])
        accesses.must.append((looked, looked))
        found = loop.results[0]
    seen = writer.let(ops.Cmpi, found, one, predicate="equal", signedness="signed")
    return looked, seen


def write_sum_by_last(
    writer: Writer,
    accesses: Accesses,
    buffers: tuple[Buffer, Buffer, Buffer],
    block: Value,
    blocks: int,
) -> None:
    """Each block stores a part; the last to count itself adds up all of them."""
    parts, counter, total = buffers
    type = TileType((parts.part,), parts.dtype)
    message = _message(writer, type)
    sent = store(writer, accesses, _route(writer, parts, block, parts.part), message(block), WEAK)
    place = _route(writer, counter, None, 1)
    counted = writer.op(
        ops.AtomicRmwTko,
        place.pointers,
        writer.number(1),
        mode="add",
        ordering="acq_rel",
        scope=_scope(writer),
    )
    accesses.note(counted, place)
    accesses.must.append((sent, counted))
    last = writer.number(blocks - 1)
    is_last = writer.let(ops.Cmpi, counted.results[0], last, predicate="equal", signedness="signed")
    branch = writer.op(ops.If, is_last, types=[])
    branch.regions = branch.regions[:1]
    with writer.inside(branch.regions[0]):
        everything = _route(writer, parts, None, parts.size)
        received, value = load(writer, accesses, everything, WEAK)
        accesses.must.append((counted, received))
        shape = TileType((blocks, parts.part), parts.dtype)
        value = writer.let(ops.Reshape, value, type=shape)
        added = writer.op(ops.Reduce, [value], types=[type], axis=0, identities=(0,))
        with writer.inside(added.regions[0]) as (element, sum_so_far):
            writer.op(ops.Yield, [writer.let(ops.Addi, sum_so_far, element)])
        store(writer, accesses, _route(writer, total, None, total.size), added.results[0], WEAK)
        writer.op(ops.Yield, [])


MESSAGE_TYPES = tuple(DTYPES[n] for n in ("i32", "f32", "i64", "f16", "i8"))
