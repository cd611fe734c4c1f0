"""What each operation of this level does that neither blocks nor is put off."""

from __future__ import annotations

from collections.abc import Sequence
from math import prod
from typing import Any

import numpy as np

from reftile.interp.access import Access, touch
from reftile.interp.access import parts_of as places_of
from reftile.interp.machine import Block
from reftile.interp.memory import Places, Run, read_places, read_run, write_places, write_run
from reftile.interp.order import SCOPES
from reftile.interp.pipe.flights import Reach
from reftile.interp.pipe.machine import Agent, Home
from reftile.interp.pipe.places import (
    Allocation,
    Place,
    RingPlace,
    read_place,
    touch_place,
    write_place,
)
from reftile.interp.pipe.tokens import token_of
from reftile.interp.pipe.waits import WAITS
from reftile.interp.plan import Apply, Maker, Plan
from reftile.interp.values import Tile
from reftile.ir.buffer_layout import buffer_alignment, buffer_bytes, place_bytes
from reftile.ir.core import Op
from reftile.ir.diagnostics import Diagnosis, ReftileError
from reftile.ir.dtypes import I32
from reftile.ir.types import BufferType, RingType


def agent_of(block: Block) -> Agent:
    """The agent for which an operation runs."""
    assert isinstance(block, Agent)
    return block


def home_of(agent: Agent, rank: Tile | None, op: Op) -> Home:
    """The block of the cluster with a rank, or the agent's own."""
    if rank is None:
        return agent.home
    number = agent.integer(rank, f"the rank of `{op.name}`")
    homes = agent.home.cluster.homes
    if not 0 <= number < len(homes):
        agent.fault("pipe.rank", f"rank {number} is outside a cluster of {len(homes)} blocks")
    return reached(agent, homes[number])


def reached(agent: Agent, home: Home) -> Home:
    """A block that an operation reaches; it must not have ended."""
    if home.ended:
        name = agent.launch.block_name(home.linear)
        agent.fault(
            "pipe.exit",
            f"block {name} has ended, and its shared memory is gone",
            hint="let the cluster meet in the epilogue: `cluster_arrive`, `cluster_wait`",
        )
    return home


def note_reach(agent: Agent, op: Op, reaches: list[Reach], home: Home) -> None:
    """Note that an operation reaches another block, which must not end before."""
    if home is not agent.home:
        arrivals = max(member.cluster_arrivals for member in agent.members)
        reaches.append(Reach(agent, op, arrivals + 1))


def in_block(place: Place, home: Home) -> Place:
    """The buffer at the same place of a block of the cluster."""
    if home.id == place.allocation.block:
        return place
    return Place(home.allocations[place.allocation.value], place.offset, place.type, place.name)


# Allocations


def _alignment(type: BufferType | RingType) -> int:
    return buffer_alignment(type if isinstance(type, BufferType) else type.buffer)


def _make_alloc(op: Op, plan: Plan[Block]) -> Apply[Block]:
    type = op.results[0].type
    assert isinstance(type, BufferType | RingType)
    size, alignment = place_bytes(type), _alignment(type)
    dtype = type.dtype if isinstance(type, BufferType) else type.buffer.dtype
    if dtype.bits < 8:
        message = f"elements of {dtype.name} in shared memory cannot be interpreted"
        raise ReftileError(Diagnosis("pipe.unsupported", message, op.span))

    def apply(block: Block, values: list[Any]) -> Sequence[Any]:
        home = agent_of(block).home
        address = -(-home.shared_top // alignment) * alignment
        home.shared_top = address + size
        allocation = Allocation(home.id, op.results[0], address, size)
        home.allocations[op.results[0]] = allocation
        if isinstance(type, BufferType):
            return (Place(allocation, 0, type, allocation.buffer.name),)
        return (RingPlace(allocation, 0, type),)

    return apply


# Parts of places


def _make_slot(op: Op, plan: Plan[Block]) -> Apply[Block]:
    type = op.results[0].type
    assert isinstance(type, BufferType)
    alignment = buffer_alignment(type)
    step = -(-buffer_bytes(type) // alignment) * alignment

    def apply(block: Block, values: list[Any]) -> Sequence[Any]:
        ring: RingPlace = values[0]
        index = agent_of(block).integer(values[1], "the index of `slot`")
        if not 0 <= index < ring.type.stages:
            block.fault("pipe.slot", f"index {index} is outside {ring.type}")
        name = f"{ring.allocation.buffer.name}[{index}]"
        return (Place(ring.allocation, ring.offset + index * step, type, name),)

    return apply


def _make_subview(op: Op, plan: Plan[Block]) -> Apply[Block]:
    type = op.results[0].type
    assert isinstance(type, BufferType)

    def apply(block: Block, values: list[Any]) -> Sequence[Any]:
        source: Place = values[0]
        where: list[int] = []
        for tile, whole, part in zip(values[1:], source.type.shape, type.shape, strict=True):
            index = agent_of(block).integer(tile, "an index of `subview`")
            if not 0 <= index * part < whole:
                block.fault("pipe.slot", f"slice {index} is outside the {whole // part} there are")
            where.append(index * part)
        slices = [f"{w}:{w + n}" for w, n in zip(where, type.shape, strict=True)]
        name = f"{source.name}[{', '.join(slices)}]"
        offset = source.offset + _offset(source, tuple(where))
        return (Place(source.allocation, offset, type, name),)

    return apply


def _offset(source: Place, index: tuple[int, ...]) -> int:
    """The byte of an element at which a slice begins; a swizzle leaves those alone."""
    where = source.placement
    at = index[::-1] if where.is_transposed else index
    flat = 0
    for i, extent in zip(at, where.shape, strict=True):
        flat = flat * extent + i
    byte = flat * source.type.dtype.storage.itemsize
    chunk = int(where.index[byte // where.chunk_bytes])
    return chunk * where.chunk_bytes + byte % where.chunk_bytes


def _make_transpose(op: Op, plan: Plan[Block]) -> Apply[Block]:
    type = op.results[0].type
    assert isinstance(type, BufferType)

    def apply(block: Block, values: list[Any]) -> Sequence[Any]:
        source: Place = values[0]
        return (Place(source.allocation, source.offset, type, f"{source.name}.t"),)

    return apply


def _make_reinterpret(op: Op, plan: Plan[Block]) -> Apply[Block]:
    type = op.results[0].type
    assert isinstance(type, BufferType | RingType)
    alignment = _alignment(type)

    def apply(block: Block, values: list[Any]) -> Sequence[Any]:
        source: Place | RingPlace = values[0]
        address = source.allocation.address + source.offset
        if address % alignment:
            block.fault(
                "reinterpret_buffer.alignment",
                f"byte {address} of shared memory is no multiple of {alignment}, as {type} needs",
            )
        if isinstance(type, BufferType):
            return (Place(source.allocation, source.offset, type, source.allocation.buffer.name),)
        return (RingPlace(source.allocation, source.offset, type),)

    return apply


# Registers and shared memory


def _make_load(op: Op, plan: Plan[Block]) -> Apply[Block]:
    def apply(block: Block, values: list[Any]) -> Sequence[Any]:
        source, rank, token = values
        agent = agent_of(block)
        order = agent.pipe.pipe_order
        home = home_of(agent, rank, op)
        note_reach(agent, op, home.reaches, home)
        place = in_block(source, home)
        access = order.record(agent, op, token_of(token), True, False)
        touch_place(order, access, place)
        return read_place(place), order.token(access)

    return apply


def _make_store(op: Op, plan: Plan[Block]) -> Apply[Block]:
    def apply(block: Block, values: list[Any]) -> Sequence[Any]:
        tile, destination, rank, token = values
        agent = agent_of(block)
        order = agent.pipe.pipe_order
        home = home_of(agent, rank, op)
        note_reach(agent, op, home.reaches, home)
        place = in_block(destination, home)
        access = order.record(agent, op, token_of(token), False, True)
        touch_place(order, access, place)
        write_place(place, tile)
        agent.launch.version += 1
        return (order.token(access),)

    return apply


def _make_nothing(op: Op, plan: Plan[Block]) -> Apply[Block]:
    return lambda block, values: ()


def _make_commit(op: Op, plan: Plan[Block]) -> Apply[Block]:
    engine = op.attributes["engine"]

    def apply(block: Block, values: list[Any]) -> Sequence[Any]:
        agent_of(block).copies(engine).commit()
        return ()

    return apply


# A counter


def _make_inc_wrap(op: Op, plan: Plan[Block]) -> Apply[Block]:
    access = Access(
        op,
        (),
        I32,
        SCOPES[str(op.attributes["scope"])],
        str(op.attributes["ordering"]),
        True,
        True,
        prod(()),
    )

    def apply(block: Block, values: list[Any]) -> Sequence[Any]:
        pointer, limit, token = values
        event = access.begin(block, token)
        (part,) = places_of(block, access, pointer, None)
        touch(block, access, event, part, True)
        old, poison = _read(part)
        if poison is not None and poison.any():
            block.fault("poison.compare", "the counter has no defined value")
        most = block.scalar(limit, "compare", "the limit") & 0xFFFFFFFF
        value = int(old.item()) & 0xFFFFFFFF
        new = np.array([0 if value >= most else value + 1], np.uint32).view(np.int32)
        _write(part, new)
        block.launch.version += 1
        if part.buffer.released or event.releases:
            offset = part.offset if isinstance(part, Run) else int(part.offsets[0])
            block.launch.order.publish(event, part.buffer.released, [offset], True)
        return Tile(old.reshape(())), block.launch.order.token(event)

    return apply


def _read(part: Run | Places) -> Any:
    return read_run(part, I32) if isinstance(part, Run) else read_places(part, I32)


def _write(part: Run | Places, values: Any) -> None:
    if isinstance(part, Run):
        write_run(part, I32, values, None)
    else:
        write_places(part, I32, values, None)


def make_unreached(op: Op, plan: Plan[Block]) -> Apply[Block]:
    """For what the machine runs itself: roles, waits, and what surrounds regions."""

    def apply(block: Block, values: list[Any]) -> Sequence[Any]:
        raise NotImplementedError(op.name)

    return apply


ACTIONS: dict[str, Maker[Block]] = {
    "alloc_buffer": _make_alloc,
    "alloc_ring": _make_alloc,
    "slot": _make_slot,
    "subview": _make_subview,
    "transpose_buffer": _make_transpose,
    "reinterpret_buffer": _make_reinterpret,
    "load_buffer": _make_load,
    "store_buffer": _make_store,
    "order_fence": _make_nothing,
    "set_priority": _make_nothing,
    "prefetch_view": _make_nothing,
    "commit_copies": _make_commit,
    "atomic_inc_wrap_tko": _make_inc_wrap,
    **dict.fromkeys(("role", "elected", "stagger", "if_rows", *WAITS), make_unreached),
}
"""How to run each of these operations."""
