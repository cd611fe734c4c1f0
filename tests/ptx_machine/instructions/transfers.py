"""What a bulk copy moves, and the operations that move it some time after their issue.

Source: PTX ISA, "cp.async.bulk", "cp.async.bulk.tensor", "cp.reduce.async.bulk(.tensor)".
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

import numpy as np

from tests.ptx_machine.clocks import OPERATION, Clock
from tests.ptx_machine.errors import AccessError
from tests.ptx_machine.memory import Region, SharedMemory, resolve, shared_target
from tests.ptx_machine.tensormap import TensorMap

from .atomics import combine

if TYPE_CHECKING:
    from tests.ptx_machine.machine import Cta
    from tests.ptx_machine.mbarrier import Mbarrier


def tensor_map(w, address: int) -> TensorMap:
    """Return the tensor map object at a generic address."""
    if address % 64:
        raise AccessError(f"tensor map address {address:#x} is not 64-byte aligned")
    region, offsets, _ = resolve(w, "generic", np.array([address], np.uint64), 128, 64)[0]
    return w.machine.map_at(region.bytes[offsets[0] : offsets[0] + 128].tobytes())


@dataclass(slots=True)
class Elements:
    """Elements of a memory that a copy touches; outside ones read as fill, never written."""

    region: Region
    index: np.ndarray
    inside: np.ndarray
    width: int
    fill: int = 0

    def read(self) -> np.ndarray:
        view = self.region.view(self.width)
        return np.where(
            self.inside, view[np.where(self.inside, self.index, 0)], view.dtype.type(self.fill)
        )

    def write(self, values: np.ndarray, reduce=None) -> None:
        view = self.region.view(self.width)
        index, values = self.index[self.inside], values[self.inside]
        if reduce is None:
            view[index] = values
            return
        name, kind = reduce
        for at, value in zip(index.tolist(), values, strict=True):
            view[at : at + 1] = combine(
                name, kind, view[at : at + 1].copy(), np.array([value]), None
            )


def global_box(w, tm: TensorMap, coordinates: tuple[int, ...]) -> Elements:
    """Return the elements of a tensor map's box."""
    region = w.machine.memory.add(tm.array, "tensor map array")
    offsets, inside = tm.locate(coordinates)
    offsets = offsets + tm.offset_bytes
    if inside.any():
        last = int(offsets[inside].max()) + tm.element_bytes
        if last > region.bytes.size:
            raise AccessError(
                f"the tensor map reaches byte {last} of an array of {region.bytes.size} bytes"
            )
    return Elements(region, offsets // tm.element_bytes, inside, tm.element_bytes, tm.fill_bits())


def global_run(w, address: int, size: int, width: int) -> Elements:
    """Return a contiguous run of global memory as elements."""
    check_run(address, size)
    region, offsets, _ = resolve(w, "global", np.array([address], np.uint64), size, 16)[0]
    return Elements(
        region,
        int(offsets[0]) // width + np.arange(size // width),
        np.ones(size // width, bool),
        width,
    )


def check_run(address: int, size: int) -> None:
    if address % 16 or size % 16 or size <= 0:
        raise AccessError(
            f"bulk copies take 16-byte aligned addresses and sizes, found {address:#x}, {size}"
        )


@dataclass(slots=True)
class Cargo:
    """What a load brings: elements in order, and where each goes for a destination offset.

    unit: elements that arrive together. release: called once the source has been read.
    """

    read: Callable[[], np.ndarray]
    width: int
    unit: int
    place: Callable[[int], np.ndarray]
    release: Callable[[], None] | None = None


def box_cargo(w, tm: TensorMap, coordinates: tuple[int, ...]) -> Cargo:
    """Return a box of a tensor map."""
    side = global_box(w, tm, coordinates)
    return Cargo(side.read, tm.element_bytes, tm.counts[0], tm.shared_offsets)


def run_cargo(w, address: int, size: int, width: int, space: str) -> Cargo:
    """Return a contiguous run of global or shared memory."""

    def place(offset: int) -> np.ndarray:
        check_run(offset, size)
        return offset + np.arange(size // width) * width

    if space == "global":
        return Cargo(global_run(w, address, size, width).read, width, 16 // width, place)
    shared, offset = shared_target(w, address, "shared::cta")
    check_run(offset, size)
    shared.check_range(offset, offset + size)
    where, number = slice(offset, offset + size), w.machine.operations + 1
    if w.machine.check_races:
        shared.shadow.read(where, OPERATION, number, w.clock, asynchronous=True)
    w.cta.outstanding += 1

    def read() -> np.ndarray:
        return shared.bytes[where].copy().view(f"u{width}")

    def release() -> None:
        w.cta.outstanding -= 1

    return Cargo(read, width, 16 // width, place, release)


@dataclass(eq=False, slots=True)
class Arrival:
    """One destination of a load: where elements go and which mbarrier counts them."""

    shared: SharedMemory
    index: np.ndarray
    cta: Cta
    barrier: Mbarrier
    number: int
    parts: list[int] = field(default_factory=list)


@dataclass(eq=False, slots=True)
class BulkLoad:
    """A copy into shared memory that lands piece by piece and signals mbarriers."""

    cargo: Cargo
    arrivals: list[Arrival]
    text: str
    agents: int
    reduce: tuple[str, str] | None
    values: np.ndarray | None = None

    def ready(self) -> bool:
        return True

    def describe(self) -> str:
        return self.text

    def run(self) -> bool:
        """Deliver one piece; True after the last."""
        if self.values is None:
            self.values = self.cargo.read()
            if self.cargo.release:
                self.cargo.release()
        arrival, width = self.arrivals[0], self.cargo.width
        if arrival.shared.exited:
            raise AccessError("a bulk copy arrives in shared memory of a CTA that has exited")
        low, high = arrival.parts.pop(0), arrival.parts[0]
        index = arrival.index[low:high]
        side = Elements(arrival.shared, index, np.ones(index.size, bool), width)
        side.write(self.values[low:high], self.reduce)
        clock = None
        if len(arrival.parts) == 1:
            clock = Clock(self.agents)
            clock.operations = 1 << arrival.number
            arrival.cta.outstanding -= 1
            self.arrivals.pop(0)
        arrival.barrier.complete((high - low) * width, clock)
        return not self.arrivals


@dataclass(eq=False, slots=True)
class BulkStore:
    """A copy out of shared memory: first it reads its source, later its writes land."""

    cta: Cta
    shared: SharedMemory
    index: np.ndarray
    target: Elements
    reduce: tuple[str, str] | None
    text: str
    values: np.ndarray | None = None
    source_free: bool = False
    done: bool = False

    def ready(self) -> bool:
        return True

    def describe(self) -> str:
        return self.text

    def run(self) -> bool:
        if self.values is None:
            self.values = self.shared.view(self.target.width)[self.index].copy()
            self.source_free = True
            self.cta.outstanding -= 1
            return False
        self.target.write(self.values, self.reduce)
        self.done = True
        return True


class StoreQueue:
    """The bulk groups of one lane."""

    def __init__(self) -> None:
        self.open: list[BulkStore] = []
        self.groups: list[tuple[int, list[BulkStore]]] = []
        self.read_epoch = 0


def new_operation(w) -> int:
    w.machine.operations += 1
    return w.machine.operations


def split_parts(w, count: int, unit: int) -> list[int]:
    """Return the bounds of one or two pieces of a transfer."""
    units = count // unit
    if units > 1 and w.machine.random.random() < 0.5:
        return [0, w.machine.random.randint(1, units - 1) * unit, count]
    return [0, count]
