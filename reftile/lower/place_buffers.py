"""Give every place of a `pipe` kernel its offset in shared memory.

In textual order, each at its alignment, 8 bytes for each barrier behind (spec/pipe.md, "Kernels");
named barriers get their numbers. `PLACES` turns the operations on places into addresses.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field

from reftile.ir import ops
from reftile.ir.buffer_layout import bit_offset, buffer_alignment, buffer_bytes, place_bytes
from reftile.ir.core import Kernel, Op, Value
from reftile.ir.types import BarrierType, BufferType, NamedBarrierType, RingType
from reftile.lower.context import I32, Context, Number, Place


@dataclass(slots=True)
class Offsets:
    """Where everything lies.

    bytes: the first byte of each buffer, ring and array of barriers.
    named: the first number of each array of named barriers. next_barrier: the first free number.
    barriers: the arrays of barriers, in textual order, with their `alloc_barrier`.
    """

    bytes: dict[Value, int] = field(default_factory=dict[Value, int])
    named: dict[Value, int] = field(default_factory=dict[Value, int])
    barriers: list[Op] = field(default_factory=list[Op])
    next_barrier: int = 1
    total_bytes: int = 0


def place_buffers(kernel: Kernel) -> Offsets:
    """Place all allocations; the verifier has checked that they fit."""
    offsets = Offsets()
    total = 0
    for op in kernel.body.block.ops:
        if not op.results:
            continue
        place, kind = op.results[0], op.results[0].type
        if op.name in ("alloc_buffer", "alloc_ring"):
            assert isinstance(kind, (BufferType, RingType))
            align = buffer_alignment(kind if isinstance(kind, BufferType) else kind.buffer)
            total = -(-total // align) * align
            offsets.bytes[place] = total
            total += place_bytes(kind)
        elif op.name == "alloc_named_barrier":
            assert isinstance(kind, NamedBarrierType)
            offsets.named[place] = offsets.next_barrier
            offsets.next_barrier += kind.count
        elif op.name == "alloc_barrier":
            offsets.barriers.append(op)
    total = -(-total // 8) * 8
    for op in offsets.barriers:
        kind = op.results[0].type
        assert isinstance(kind, BarrierType)
        offsets.bytes[op.results[0]] = total
        total += 8 * kind.count
    offsets.total_bytes = total
    return offsets


# Addresses


def shared_address(context: Context, offset: int, index: Number = 0, size: int = 0) -> Value:
    """The address `offset + index * size` bytes into the block's shared memory."""
    if isinstance(index, int):
        return context.value(ops.SharedAddress, (), I32, "address", offset=offset + index * size)
    start = context.value(ops.SharedAddress, (), I32, "start", offset=offset)
    moved = context.multiply(index, size, "moved")
    return context.number(context.add(moved, start, "address"))


def lower_alloc(context: Context, op: Op) -> None:
    """A single buffer has a constant address."""
    kind = op.results[0].type
    if isinstance(kind, BufferType):
        offset = context.offsets[op.results[0]]
        context.places[op.results[0]] = Place(shared_address(context, offset), kind, offset)


def lower_slot(context: Context, op: Op) -> None:
    """Base and number of the slot."""
    assert isinstance(op, ops.Slot)
    kind = op.result.type
    assert isinstance(kind, BufferType)
    align = buffer_alignment(kind)
    size = -(-buffer_bytes(kind) // align) * align
    offset = context.offsets[_ring(op.ring)]
    index = context.scalar(op.index)
    address = shared_address(context, offset, index, size)
    context.places[op.result] = Place(address, kind, offset, ((index, size),))


def _ring(value: Value) -> Value:
    while isinstance(value.owner, ops.ReinterpretBuffer):
        value = value.owner.source
    return value


def lower_subview(context: Context, op: Op) -> None:
    """Add the offset of the first element of the slice."""
    assert isinstance(op, ops.Subview)
    place = context.place(op.source)
    kind = op.result.type
    assert isinstance(kind, BufferType)
    address: Number = place.address
    parts = list(place.parts)
    for axis, index in enumerate(op.index):
        count = place.type.shape[axis] // kind.shape[axis]
        if count == 1:
            continue
        step = _slice_step(place.type, kind, axis, count)
        number = context.scalar(index)
        parts.append((number, step))
        address = context.add(address, context.multiply(number, step, "moved"), "part")
    context.places[op.result] = Place(address, kind, place.offset, tuple(parts))


def _slice_step(source: BufferType, part: BufferType, axis: int, count: int) -> int:
    """Bytes from one slice to the next: slices keep whole patterns, so they are evenly spaced."""

    def start(number: int) -> int:
        index = [0] * len(source.shape)
        index[axis] = number * part.shape[axis]
        return bit_offset(source, tuple(index)) // 8

    step = start(1)
    assert all(start(i) == i * step for i in range(count)), "slices are not evenly spaced"
    return step


def lower_renaming(context: Context, op: Op) -> None:
    """The same memory under another type."""
    kind = op.results[0].type
    if isinstance(kind, BufferType) and op.operands[0] in context.places:
        place = context.place(op.operands[0])
        context.places[op.results[0]] = Place(place.address, kind, place.offset, place.parts)
    elif isinstance(kind, BufferType):
        offset = context.offsets[op.operands[0]]
        context.places[op.results[0]] = Place(shared_address(context, offset), kind, offset)


def lower_advance(context: Context, op: Op) -> None:
    """Count up to the number of stages, then begin again in the other phase."""
    assert isinstance(op, ops.Advance)
    slot, phase = context.scalar(op.slot), context.scalar(op.phase)
    up = context.number(context.add(slot, 1, "slot_up"))
    wraps = context.compare("equal", up, op.stages, "wraps")
    other = context.number(context.exclusive_or(phase, 1, "phase_other"))
    zero = context.number(0)
    names = [r.name for r in op.results]
    context.values[op.next_slot] = context.value(ops.Select, (wraps, zero, up), I32, names[0])
    context.values[op.next_phase] = context.value(ops.Select, (wraps, other, phase), I32, names[1])


PLACES: dict[str, Callable[[Context, Op], None]] = {
    "alloc_buffer": lower_alloc,
    "alloc_ring": lower_alloc,
    "alloc_barrier": lower_alloc,
    "alloc_named_barrier": lower_alloc,
    "slot": lower_slot,
    "subview": lower_subview,
    "transpose_buffer": lower_renaming,
    "reinterpret_buffer": lower_renaming,
    "advance": lower_advance,
}
