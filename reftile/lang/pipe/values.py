"""What names of a pipe kernel stand for besides tiles: places, barriers, views, results in flight.

Each holds the value of the IR. Places and barriers stay what they are; a result in flight is
carried from iteration to iteration.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from types import MappingProxyType
from typing import cast

from reftile.ir.core import Block, Op, Value
from reftile.ir.types import (
    BarrierType,
    BufferType,
    NamedBarrierType,
    PendingType,
    RingType,
    TensorViewType,
    TileViewType,
    Type,
)
from reftile.lang.dtypes import DType
from reftile.lang.foreign import ForeignValue
from reftile.lang.merge import Conflict, ForeignSlot
from reftile.lang.names.registry import Name
from reftile.lang.trace import Trace
from reftile.lang.values import BoundMethod, describe

METHODS: dict[type, Mapping[str, Name[..., object]]] = {}
"""The methods of each kind of value; filled by the modules that define them."""


@dataclass(frozen=True, slots=True, eq=False)
class PipeValue(ForeignValue):
    """A value of the IR with a dtype of the language."""

    value: Value
    dtype: DType | None = None

    def describe(self) -> str:
        """Name the value in a message."""
        return f"a {self.value.type.kind.replace('_', ' ')}"

    @property
    def result(self) -> Value | None:
        """The value of the IR."""
        return self.value

    def own_attributes(self) -> Mapping[str, object]:
        """Attributes that are known when compiling."""
        return MappingProxyType({})

    def attributes(self) -> tuple[str, ...]:
        """Attributes and methods."""
        return (*self.own_attributes(), *METHODS.get(type(self), {}))

    def attribute(self, t: Trace, name: str) -> object:
        """An attribute, or a method that is bound to the value."""
        own = self.own_attributes()
        if name in own:
            return own[name]
        return BoundMethod(METHODS[type(self)][name], self, name)

    def is_same(self, other: object) -> bool:
        """True for the same value of the IR."""
        return isinstance(other, PipeValue) and self.value is other.value

    def join(self, values: Sequence[object], carry: str) -> object | None:
        """Not carried: a value made inside a branch or loop stays there."""
        if carry == "run_time" and not _is_outermost(self.value):
            return Conflict(f"{self.describe()} cannot leave the block that it is made in")
        return None


def named_view(t: Trace, value: Value, base: str) -> Value:
    """Give a view a name that no other view has: the host's descriptions are called after it."""
    taken = t.view_names
    name, count = f"{base}_tiles", 1
    while name in taken:
        count += 1
        name = f"{base}_tiles_{count}"
    taken.add(name)
    value.name = name
    return value


def _is_outermost(value: Value) -> bool:
    """True if a value is defined directly in the kernel."""
    owner = value.owner
    block = owner.parent if isinstance(owner, Op) else owner
    if not isinstance(block, Block) or block.parent is None:
        return False
    return not isinstance(block.parent.parent, Op)


@dataclass(frozen=True, slots=True, eq=False)
class Pointer(PipeValue):
    """The address of an array that is given without extents."""

    def describe(self) -> str:
        """Name the value in a message."""
        return f"a pointer to {self.dtype}"


@dataclass(frozen=True, slots=True, eq=False)
class TensorView(PipeValue):
    """An array in global memory: base, extents, strides."""

    @property
    def type(self) -> TensorViewType:
        """The type in the IR."""
        return cast("TensorViewType", self.value.type)

    def describe(self) -> str:
        """Name the value in a message."""
        return f"a tensor of {self.dtype} with {self.type.rank} axes"

    def own_attributes(self) -> Mapping[str, object]:
        """Its dtype and rank."""
        return {"dtype": self.dtype, "ndim": self.type.rank}


@dataclass(frozen=True, slots=True, eq=False)
class TileView(PipeValue):
    """A tensor cut into tiles."""

    @property
    def type(self) -> TileViewType:
        """The type in the IR."""
        return cast("TileViewType", self.value.type)

    def describe(self) -> str:
        """Name the value in a message."""
        return f"a view by tiles of shape {self.type.tile}"

    def own_attributes(self) -> Mapping[str, object]:
        """Its dtype and the shape of its tiles."""
        return {"dtype": self.dtype, "tile_shape": self.type.tile}


@dataclass(frozen=True, slots=True, eq=False)
class Buffer(PipeValue):
    """Shared memory for one tile."""

    @property
    def type(self) -> BufferType:
        """The type in the IR."""
        return cast("BufferType", self.value.type)

    def describe(self) -> str:
        """Name the value in a message."""
        return f"a buffer of {self.dtype} of shape {self.type.shape}"

    def own_attributes(self) -> Mapping[str, object]:
        """Shape, dtype, layout."""
        return {"shape": self.type.shape, "dtype": self.dtype, "layout": self.type.layout}

    def attributes(self) -> tuple[str, ...]:
        """`T` is the buffer with its axes exchanged."""
        return ("T", *PipeValue.attributes(self))

    def attribute(self, t: Trace, name: str) -> object:
        """`T` builds an operation."""
        if name == "T":
            return METHODS[Buffer]["transpose"].implementation(t, self)
        return PipeValue.attribute(self, t, name)


@dataclass(frozen=True, slots=True, eq=False)
class Ring(PipeValue):
    """Buffers used in turn; `ring[i]` is one of them."""

    @property
    def type(self) -> RingType:
        """The type in the IR."""
        return cast("RingType", self.value.type)

    def describe(self) -> str:
        """Name the value in a message."""
        shape = self.type.buffer.shape
        return f"a ring of {self.type.stages} buffers of {self.dtype} of shape {shape}"

    def own_attributes(self) -> Mapping[str, object]:
        """Shape of one buffer, dtype, number of buffers."""
        kind = self.type
        return {"shape": kind.buffer.shape, "dtype": self.dtype, "stages": kind.stages}

    def item(self, t: Trace, index: object) -> object:
        """One buffer."""
        return METHODS[Ring]["slot"].implementation(t, self, index)


@dataclass(frozen=True, slots=True, eq=False)
class Barrier(PipeValue):
    """Barriers with phases."""

    def own_attributes(self) -> Mapping[str, object]:
        """How many there are, and the arrivals that a phase awaits."""
        kind = cast("BarrierType", self.value.type)
        return {"count": kind.count, "arrivals": kind.arrivals}


@dataclass(frozen=True, slots=True, eq=False)
class NamedBarrier(PipeValue):
    """Barriers at which a fixed number of threads meet."""

    def own_attributes(self) -> Mapping[str, object]:
        """How many there are, and the threads that meet."""
        kind = cast("NamedBarrierType", self.value.type)
        return {"count": kind.count, "threads": kind.threads}


@dataclass(frozen=True, slots=True, eq=False)
class Pending(PipeValue):
    """A tile that a product may be writing: it is used once."""

    def describe(self) -> str:
        """Name the value in a message."""
        shape = cast("PendingType", self.value.type).tile.shape
        return f"a result of shape {shape} in flight"

    def join(self, values: Sequence[object], carry: str) -> object | None:
        """Carried, if all are of one type."""
        pending = [v for v in values if isinstance(v, Pending)]
        if len(pending) < len(values) or len({v.value.type for v in pending}) > 1:
            listed = " or ".join(dict.fromkeys(describe(v) for v in values))
            return Conflict(f"it is {listed}, depending on what runs")
        if carry == "differing" and all(self.is_same(v) for v in values):
            return None
        return PendingSlot(self.value.type, self.dtype)


@dataclass(frozen=True, slots=True)
class PendingSlot(ForeignSlot):
    """A result in flight is carried."""

    type: Type
    dtype: DType | None

    def types(self) -> tuple[Type, ...]:
        """One value."""
        return (self.type,)

    def pack(self, t: Trace, value: object) -> Iterator[Value]:
        """The value itself."""
        yield cast("Pending", value).value

    def unpack(self, values: Iterator[Value]) -> object:
        """The next value."""
        return Pending(next(values), self.dtype)

    def fits(self, value: object) -> bool:
        """Only a result in flight of the same type."""
        return isinstance(value, Pending) and value.value.type == self.type
