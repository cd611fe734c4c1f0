"""Shared memory under a name: one tile, or as many stages of it as loops want in flight."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import cast

from reftile.ir.core import Value
from reftile.ir.types import BarrierType, BufferType, RingType
from reftile.lang import arithmetic
from reftile.lang.dtypes import DType, int32
from reftile.lang.foreign import ForeignValue
from reftile.lang.names.create import need_dtype
from reftile.lang.names.registry import name
from reftile.lang.pipe.block import BlockShape, History, join, shape_of
from reftile.lang.pipe.building import elected, when
from reftile.lang.pipe.common import buffer_type, error
from reftile.lang.pipe.fragments import at_parallel, need_whole
from reftile.lang.pipe.places import part
from reftile.lang.pipe.values import Buffer
from reftile.lang.pipe.warpgroups import is_first, meet, share_of
from reftile.lang.trace import Trace
from reftile.lang.values import Tile, Token, Undefined


@dataclass(slots=True, eq=False)
class Shared(ForeignValue):
    """A tile in shared memory that copies fill and read.

    ring: the memory; it has as many stages as the loops that fill it ask for. history: what it has
    been through. slot_cell: the stage that holds what the text means.
    """

    kind: BufferType
    dtype: DType
    ring: Value
    history: History
    slot_cell: str
    stages: int = 1
    barrier: Value | None = None
    phase_cell: str = ""

    def describe(self) -> str:
        """Name the value in a message."""
        return f"the {self.dtype} tile of shape {self.kind.shape} in shared memory"

    @property
    def result(self) -> Value | None:
        """The ring, which gets the name that the kernel gives it."""
        return self.ring

    def advice(self) -> str:
        """It is read by an index."""
        return "read it with x[...] as a whole, or with x[i, j] inside `Parallel`"

    def _known(self) -> Mapping[str, object]:
        shape = self.kind.shape
        return {"shape": shape, "dtype": self.dtype, "ndim": len(shape)}

    def attributes(self) -> tuple[str, ...]:
        """Shape, dtype, rank."""
        return tuple(self._known())

    def attribute(self, t: Trace, name: str) -> object:
        """One of them."""
        return self._known()[name]

    def need_stages(self, stages: int) -> None:
        """Let there be that many stages at least."""
        self.stages = max(self.stages, stages)
        self.ring.type = RingType(self.stages, self.kind)

    # Access

    def buffer(self, t: Trace, slot: Tile | None = None) -> Buffer:
        """The memory of a stage: the one that the text means, unless `slot` says another."""
        at = slot if slot is not None else cast("Tile", t.cell(self.slot_cell))
        value = t.value("slot", self.ring, at.value, types=[self.kind])
        return Buffer(value, self.dtype)

    def written(self, t: Trace) -> Token:
        """The token that a read waits for.

        Raises:
            ReftileError: nothing has filled it on some path that leads here.
        """
        found = self.history.written()
        self.touch(t)
        if isinstance(found, Undefined):
            raise error(
                t,
                "unfilled",
                f"{self.describe()} is read, and {found.why}",
                "copy something to it first, on every path that leads here",
            )
        return cast("Token", found)

    def before_writing(self, t: Trace) -> Token:
        """The token that a write waits for: all that has used the memory, products too."""
        self.touch(t)
        return join(t, self.history.all(), wait_for_products(t))

    def touch(self, t: Trace) -> None:
        """Tell the loop around that the memory is used from here on."""
        loop = shape_of(t).loop
        if loop is not None:
            loop.touched.add(self)

    def share(self, t: Trace, whole: bool = False) -> Buffer:
        """The memory of the rows that this warpgroup has."""
        replica = shape_of(t).replica
        buffer = self.buffer(t)
        if replica is None or whole:
            return buffer
        own = share_of(t, self.kind.shape, "shared memory")
        index = (replica, *(0,) * (len(own) - 1))
        return part.implementation(t, buffer, index, own)

    def read(self, t: Trace, whole: bool = False) -> Tile:
        """Its tile in registers, or the warpgroup's share of it."""
        token = self.written(t)
        op = t.op("load_buffer", self.share(t, whole).value, None, token.value)
        self.history.has_read(Token(op.results[1]))
        return Tile(op.results[0], self.dtype)

    def write(self, t: Trace, tile: Tile) -> None:
        """Store a tile of registers, in its dtype; warpgroups store their shares."""
        token = meet(t, self.before_writing(t))
        value = arithmetic.convert(t, tile, self.dtype)
        op = t.op("store_buffer", value.value, self.share(t).value, None, token.value)
        written = op.results[0]
        if shape_of(t).target == "sm_90a":
            # Products and bulk copies are of another proxy than stores of threads.
            written = t.value("fence_proxy", written)
        self.history.has_written(meet(t, Token(written)))

    def own(self, t: Trace) -> tuple[int, ...]:
        """The extents of a warpgroup's share."""
        return share_of(t, self.kind.shape, "shared memory")

    def item(self, t: Trace, index: object) -> object:
        """The elements at the indices of `Parallel`, or with `[...]` all."""
        if index is Ellipsis:
            return self.read(t)
        return at_parallel(t, self, self.own(t), lambda: self.read(t), index)

    def set_item(self, t: Trace, index: object, value: object) -> None:
        """Write the elements at the indices of `Parallel`, or with `[...]` all."""
        if index is not Ellipsis:
            need_whole(t, self, self.own(t), index)
        tile = arithmetic.broadcast(t, arithmetic.as_tile(t, value), self.own(t))
        self.write(t, tile)


def wait_for_products(t: Trace, has_products: bool | None = None) -> Token:
    """Wait for all products under way, so that what they read may be written.

    has_products: whether the text so far has some. Kernels without products drop this again.
    """
    shape = shape_of(t)
    first = t.block is shape.home and not (
        shape.has_products if has_products is None else has_products
    )
    if first or not has_product_unit(shape):
        return shape.start()
    return Token(t.value("mma_wait", (), in_flight=0))


def has_product_unit(shape: BlockShape) -> bool:
    """True if products run beside other work here: on sm_90a, in blocks of whole warpgroups."""
    return shape.target == "sm_90a" and bool(shape.threads) and shape.threads % 128 == 0


@name
def alloc_shared(t: Trace, shape: object, dtype: object, /, layout: object = None) -> Shared:
    """A tile in shared memory, to be filled. Loops that copy ahead give it several stages.

    layout: a name of spec/pipe.md; left out, the widest swizzle that fits.
    """
    block = shape_of(t)
    block.need_home("alloc_shared")
    element = need_dtype(t, dtype)
    kind = buffer_type(t, shape, element, layout)
    with block.on_top():
        ring = t.value("alloc_ring", types=[RingType(1, kind)])
    history = History.of(block, "shared", lambda: Undefined("nothing has been copied to it"))
    slot = block.fresh("slot")
    t.cells[slot] = block.zero
    block.histories.append(history)
    return Shared(kind, element, ring, history, slot)


# Filling it at once


def fill_at_once(
    t: Trace, shared: Shared, load: Callable[[Buffer, Token], None], source: Token
) -> None:
    """Fill the first stage and wait: `load` starts the copies, given the token they wait for.

    source: what the source's last write is known by.
    """
    shape = shape_of(t)
    token = join(t, shared.before_writing(t), source)
    t.set_cell(shared.slot_cell, shape.zero())
    buffer = shared.buffer(t)
    if shape.target != "sm_90a":
        load(buffer, token)
        t.op("commit_copies", engine="thread")
        shared.history.has_written(Token(t.value("wait_copies", engine="thread", in_flight=0)))
        return
    barrier, phase = _barrier_of(t, shape, shared)
    token = meet(t, token)

    def issue() -> None:
        t.op("arrive_barrier", barrier, shape.zero().value, bytes=shared.kind.size_bytes)
        load(buffer, token)

    when(t, is_first(t), lambda: elected(t, issue) and None)
    landed = Token(t.value("wait_barrier", barrier, shape.zero().value, phase.value))
    one = t.constant(1, int32)
    t.set_cell(shared.phase_cell, Tile(t.value("xori", phase.value, one), int32))
    shared.history.has_written(landed)


def _barrier_of(t: Trace, shape: BlockShape, shared: Shared) -> tuple[Value, Tile]:
    """The barrier on which the bytes of `shared` are counted, and the phase that is next."""
    if shared.barrier is None:
        with shape.on_top():
            shared.barrier = t.value("alloc_barrier", types=[BarrierType(1, 1)])
            shared.barrier.name = f"{shared.ring.name or 'shared'}_full"
        shared.phase_cell = shape.fresh("phase")
        t.cells[shared.phase_cell] = shape.zero
    return shared.barrier, cast("Tile", t.cell(shared.phase_cell))
