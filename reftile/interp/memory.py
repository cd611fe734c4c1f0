"""Global memory: buffers at guarded addresses, and what the bytes of each are worth.

Every buffer has its own range of addresses with a guard around it, so that a pointer that leaves it
meets nothing. The arrays of the host are bound, not copied: what a kernel stores is in the caller's
array at once.

Next to its bytes a buffer may keep a *state* per byte, which says which bytes are no defined value:

    0 defined    1 never written    2 poison was stored

A byte of two 4-bit elements has the state of the low one in bits 0-1 and of the high one in bits
2-3; a state written for whole bytes fills both. A buffer without any such byte keeps no state at
all.
"""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, NoReturn, TypeAlias

import numpy as np
from numpy.typing import NDArray

from reftile.interp.order import Released
from reftile.interp.values import Array, Mask
from reftile.ir.dtypes import I64, DType
from reftile.ir.numbers import decode, encode
from reftile.ir.types import Element, PointerType

GUARD = 4096
"""Bytes between two buffers at least."""
ALIGNMENT = 256
"""Every allocation begins at a multiple of this, as those of GPU drivers do."""
FIRST_ADDRESS = 1 << 20

MOST_ALLOCATED = 1 << 30
"""Bytes that the blocks of a launch may have allocated at a time."""

NEVER_WRITTEN = 0b0101
STORED_POISON = 0b1010

Bytes: TypeAlias = NDArray[np.uint8]
Fault: TypeAlias = Callable[[str, str, int, int], NoReturn]
"""`fault(rule, message, position, address)`: the access of the tile's element at flat `position` is
wrong.
"""


class TooMuch(Exception):
    """A kernel asks for more memory than it may have."""


def memory_dtype(element: Element) -> DType:
    """The dtype by which elements lie in memory; pointers lie there as 64-bit integers."""
    return I64 if isinstance(element, PointerType) else element


class Buffer:
    """A range of bytes with an address.

    readable, writable: what the access modes of the arguments it is bound to allow.
    owner_block: the only block that may use it, or -1.
    restricted: something about an access must be looked at: a right, its owner, that it is freed.
    visible: the host looks at it when the launch is over.
    released: by byte offset, the release stores that a load there may synchronise with (see
        `order`).
    """

    __slots__ = (
        "_units",
        "address",
        "data",
        "dtype",
        "end",
        "freed",
        "name",
        "no_write",
        "owner",
        "owner_block",
        "readable",
        "released",
        "restricted",
        "state",
        "visible",
        "writable",
    )

    def __init__(
        self, name: str, address: int, data: Bytes, dtype: DType | None, owner: object = None
    ) -> None:
        self.name = name
        self.address = address
        self.end = address + data.size
        self.data = data
        self.dtype = dtype
        self.owner = owner
        self.state: Bytes | None = None
        self.readable = self.writable = True
        self.visible = False
        self.freed = self.restricted = False
        self.owner_block = -1
        self.no_write = ""
        self.released: dict[int, Released] = {}
        self._units: dict[tuple[np.dtype[Any], int], Array] = {}

    def units(self, storage: np.dtype[Any], offset: int) -> Array:
        """The bytes as storage units; `offset` lies between two of them."""
        phase = offset % storage.itemsize
        key = storage, phase
        found = self._units.get(key)
        if found is None:
            count = (self.data.size - phase) // storage.itemsize
            found = self.data[phase : phase + count * storage.itemsize].view(storage)
            self._units[key] = found
        return found

    def free(self) -> None:
        """Give the bytes back; the addresses stay dead."""
        self.freed = self.restricted = True
        self.data = self.data[:0].copy()
        self.state = None
        self._units.clear()

    def ensure_state(self, fill: int = 0) -> Bytes:
        """The state of the bytes, made if there is none."""
        if self.state is None:
            self.state = np.full(self.data.size, fill, np.uint8)
        return self.state

    def element_at(self, offset: int) -> str:
        """Name the element at a byte offset as a user counts it."""
        if self.dtype is None:
            return f"byte {offset} of `{self.name}`"
        index = offset * self.dtype.elements_per_unit // self.dtype.storage.itemsize
        return f"element {index} of `{self.name}`"


class Memory:
    """All buffers of a launch, by address."""

    def __init__(self) -> None:
        self.buffers: list[Buffer] = []
        self._starts: list[int] = []
        self._next = FIRST_ADDRESS
        self.allocated = 0

    def add(
        self,
        name: str,
        data: Bytes,
        dtype: DType | None,
        alignment: int = ALIGNMENT,
        phase: int = 0,
        owner: object = None,
        at: int | None = None,
    ) -> Buffer:
        """Give `data` an address that is `phase` bytes behind a multiple of `alignment`.

        at: the address that it must have instead; the caller knows that nothing else lies there.
        """
        if at is not None:
            place = bisect_left(self._starts, at)
            buffer = Buffer(name, at, data, dtype, owner)
            self.buffers.insert(place, buffer)
            self._starts.insert(place, at)
            return buffer
        step = max(alignment, ALIGNMENT)
        address = -(-self._next // step) * step + phase
        while True:  # Past what was placed by its address.
            i = bisect_right(self._starts, address + data.size + GUARD) - 1
            if i < 0 or self.buffers[i].end + GUARD <= address:
                break
            address = -(-(self.buffers[i].end + GUARD) // step) * step + phase
        buffer = Buffer(name, address, data, dtype, owner)
        self.buffers.insert(i + 1, buffer)
        self._starts.insert(i + 1, address)
        self._next = buffer.end + GUARD
        return buffer

    def allocate(self, name: str, size_bytes: int, dtype: DType, alignment: int) -> Buffer:
        """New memory that nothing has written.

        Raises:
            TooMuch: with what is there already it is more than MOST_ALLOCATED bytes.
        """
        if self.allocated + size_bytes > MOST_ALLOCATED:
            raise TooMuch(
                f"{size_bytes} bytes, with {self.allocated} that are allocated already; "
                f"kernels may have {MOST_ALLOCATED} at a time here"
            )
        buffer = self.add(name, np.zeros(size_bytes, np.uint8), dtype, alignment)
        buffer.state = np.full(size_bytes, NEVER_WRITTEN, np.uint8)
        self.allocated += size_bytes
        return buffer

    def release(self, buffer: Buffer) -> None:
        """Free what `allocate` gave."""
        self.allocated -= buffer.end - buffer.address
        buffer.free()

    def nearest(self, address: int) -> Buffer | None:
        """The last buffer that begins at or before `address`, or the first one."""
        if not self.buffers:
            return None
        return self.buffers[max(bisect_right(self._starts, address) - 1, 0)]

    def find(self, address: int, size_bytes: int) -> Buffer | None:
        """The live buffer that holds all bytes [address, address + size), if any."""
        i = bisect_right(self._starts, address) - 1
        if i < 0:
            return None
        buffer = self.buffers[i]
        return buffer if address + size_bytes <= buffer.end and not buffer.freed else None

    def explain(self, address: int, size_bytes: int) -> tuple[str, str]:
        """(rule, message) for an access that no live buffer holds."""
        where = f"address 0x{address:x}"
        if address == 0:
            return "memory.null", "the pointer is null"
        buffer = self.nearest(address)
        if buffer is None:
            return "memory.out_of_bounds", f"{where} lies in no buffer: there is none"
        if buffer.freed and buffer.address <= address < buffer.end:
            return "memory.freed", f"{where} lies in `{buffer.name}`, which has been freed"
        if address < buffer.address:
            text = f"{buffer.address - address} bytes before `{buffer.name}`"
        elif address < buffer.end:
            outside = address + size_bytes - buffer.end
            text = f"in `{buffer.name}`, but the last {outside} bytes of the access are not"
        else:
            text = f"{address - buffer.end} bytes behind the end of `{buffer.name}`"
        return "memory.out_of_bounds", f"{where} lies {text} ({buffer.end - buffer.address} bytes)"


@dataclass(slots=True)
class Run:
    """`count` elements side by side: the first `count` of a tile, in order."""

    buffer: Buffer
    offset: int
    count: int
    size_bytes: int


@dataclass(slots=True)
class Places:
    """Elements anywhere in one buffer.

    offsets: of each element, in bytes.
    where: the flat position in the tile of each.
    nibble: for elements of 4 bits, 1 for those in the high half of their byte.
    """

    buffer: Buffer
    offsets: NDArray[np.int64]
    where: NDArray[np.int64]
    size_bytes: int
    nibble: NDArray[np.uint8] | None = None


_STEPS: dict[tuple[int, int], NDArray[np.int64]] = {}


def steps(count: int, size_bytes: int) -> NDArray[np.int64]:
    """0, size, 2 size, ... as a shared array."""
    found = _STEPS.get((count, size_bytes))
    if found is None:
        if len(_STEPS) > 256:
            _STEPS.clear()
        found = _STEPS[count, size_bytes] = np.arange(count, dtype=np.int64) * size_bytes
    return found


def resolve(
    memory: Memory, addresses: NDArray[np.int64], mask: Mask | None, size_bytes: int, fault: Fault
) -> Sequence[Run | Places]:
    """Find the buffers behind flat `addresses`, and check every access where `mask` is true."""
    count = addresses.size
    if mask is not None:
        count = int(np.count_nonzero(mask))
        if count == 0:
            return ()
    if count == addresses.size or mask is None or mask[:count].all():
        first = int(addresses[0])
        if count == 1 or (
            int(addresses[count - 1]) - first == (count - 1) * size_bytes
            and np.array_equal(addresses[:count] - first, steps(count, size_bytes))
        ):
            buffer = memory.find(first, count * size_bytes)
            if buffer is not None and first % size_bytes == 0:
                return (Run(buffer, first - buffer.address, count, size_bytes),)
    where = np.arange(addresses.size) if mask is None else np.flatnonzero(mask)
    return _resolve_each(memory, addresses[where], where, size_bytes, fault)


def _resolve_each(
    memory: Memory,
    addresses: NDArray[np.int64],
    where: NDArray[np.int64],
    size_bytes: int,
    fault: Fault,
) -> Sequence[Places]:
    odd = np.flatnonzero(addresses % size_bytes)
    if odd.size:
        position, address = int(where[odd[0]]), int(addresses[odd[0]])
        buffer = memory.nearest(address)
        what = f", in `{buffer.name}`" if buffer and buffer.address <= address < buffer.end else ""
        fault(
            "memory.misaligned",
            f"address 0x{address:x}{what} is not a multiple of {size_bytes}, an element's size",
            position,
            address,
        )
    lowest, highest = int(addresses.min()), int(addresses.max())
    whole = memory.find(lowest, highest - lowest + size_bytes)
    if whole is not None:
        return (Places(whole, addresses - whole.address, where, size_bytes),)
    parts: list[Places] = []
    left = np.ones(addresses.size, np.bool_)
    while left.any():
        i = int(np.argmax(left))
        address = int(addresses[i])
        buffer = memory.find(address, size_bytes)
        if buffer is None:
            rule, message = memory.explain(address, size_bytes)
            fault(rule, message, int(where[i]), address)
        inside = left & (addresses >= buffer.address) & (addresses <= buffer.end - size_bytes)
        parts.append(Places(buffer, addresses[inside] - buffer.address, where[inside], size_bytes))
        left &= ~inside
    return parts


# Reading and writing


def read_run(run: Run, dtype: DType) -> tuple[Array, Mask | None]:
    """The values of a run, and which are poison."""
    start = run.offset // run.size_bytes
    units = run.buffer.units(dtype.storage, run.offset)[start : start + run.count]
    values = decode(units.copy(), dtype)
    state = run.buffer.state
    if state is None:
        return values, None
    part = state[run.offset : run.offset + run.count * run.size_bytes]
    return values, _any_byte(part.reshape(run.count, run.size_bytes))


def write_run(run: Run, dtype: DType, values: Array, poison: Mask | None) -> None:
    """Store the first values of a tile into a run."""
    start = run.offset // run.size_bytes
    units = run.buffer.units(dtype.storage, run.offset)
    units[start : start + run.count] = encode(values[: run.count], dtype)
    if poison is not None or run.buffer.state is not None:
        state = run.buffer.ensure_state()[run.offset : run.offset + run.count * run.size_bytes]
        bits = 0 if poison is None else _poison_bits(poison[: run.count])[:, None]
        state.reshape(run.count, run.size_bytes)[...] = bits


def read_places(places: Places, dtype: DType) -> tuple[Array, Mask | None]:
    """The values at the places, in their order, and which are poison."""
    buffer, offsets = places.buffer, places.offsets
    if places.nibble is not None:
        units = buffer.data[offsets] >> (places.nibble * np.uint8(4))
        values = decode(units & np.uint8(0xF), dtype)
        if buffer.state is None:
            return values, None
        return values, (buffer.state[offsets] >> (places.nibble * np.uint8(2)) & 3) != 0
    index = offsets // places.size_bytes
    phase = int(offsets[0]) if offsets.size else 0
    values = decode(buffer.units(dtype.storage, phase)[index], dtype)
    if buffer.state is None:
        return values, None
    return values, _any_byte(buffer.state[offsets[:, None] + np.arange(places.size_bytes)])


def write_places(places: Places, dtype: DType, values: Array, poison: Mask | None) -> None:
    """Store values, one for each place and in the places' order; of equal places the last stays."""
    buffer, offsets = places.buffer, places.offsets
    bits = encode(values, dtype)
    if places.nibble is not None:
        for half in (0, 1):
            part = places.nibble == half
            at, shift = offsets[part], np.uint8(4 * half)
            kept = buffer.data[at] & np.uint8(0xF0 >> (4 * half))
            buffer.data[at] = kept | (bits[part] << shift)
            if poison is not None or buffer.state is not None:
                state = buffer.ensure_state()
                new = np.zeros(at.size, np.uint8) if poison is None else _poison_bits(poison[part])
                keep = np.uint8(0b1100 >> (2 * half))
                state[at] = (state[at] & keep) | (new & np.uint8(0b0011 << (2 * half)))
        return
    phase = int(offsets[0]) if offsets.size else 0
    buffer.units(dtype.storage, phase)[offsets // places.size_bytes] = bits
    if poison is not None or buffer.state is not None:
        at = offsets[:, None] + np.arange(places.size_bytes)
        new = np.zeros(offsets.size, np.uint8) if poison is None else _poison_bits(poison)
        buffer.ensure_state()[at] = new[:, None]


def _any_byte(state: Bytes) -> Mask | None:
    bad: Mask = np.asarray(state.any(axis=-1))
    return bad if bad.any() else None


def _poison_bits(poison: Mask) -> Bytes:
    return poison.astype(np.uint8) * np.uint8(STORED_POISON)
