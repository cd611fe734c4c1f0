"""Address spaces: windows of the generic space, buffers, and lane-wise access with checks.

Layout of addresses (ours; a program may only rely on what cvta, mapa and isspacep say):
shared offsets lie below 16 MiB; `mapa` adds (rank + 1) << 24, in a cluster so do names of
variables; generic windows follow.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from .clocks import BEFORE, Agents, Clock, Shadow
from .errors import AccessError, BarrierError
from .mbarrier import Mbarrier

if TYPE_CHECKING:
    from .warp import Warp

SHARED_WINDOW, LOCAL_WINDOW, PARAM_WINDOW = 1 << 44, 1 << 45, 1 << 46
GLOBAL_BASE = 0x7_0000_0000
RANK_SHIFT = 24
SHARED_BASE = 1024
UNSIGNED = {1: np.uint8, 2: np.uint16, 4: np.uint32, 8: np.uint64}


class Region:
    """A run of bytes; `view(width)` indexes it by element."""

    kind = "global"

    def __init__(self, name: str, base: int, data: np.ndarray) -> None:
        self.name, self.base, self.bytes = name, base, data
        self.owner: np.ndarray | None = None
        self.views: dict[int, np.ndarray] = {}

    def view(self, width: int) -> np.ndarray:
        if width not in self.views:
            whole = self.bytes.size // width * width
            self.views[width] = self.bytes[:whole].view(UNSIGNED[width])
        return self.views[width]


class SharedMemory(Region):
    """The shared memory of one CTA, its shadow, and the mbarrier objects in it."""

    kind = "shared"

    def __init__(self, rank: int, size: int, agents: Agents, check_uninitialised: bool) -> None:
        super().__init__(f"shared memory of CTA {rank}", 0, np.full(size + 8 & ~7, 0xCD, np.uint8))
        self.rank, self.size = rank, size
        self.shadow = Shadow(size, agents, check_uninitialised)
        self.barriers: dict[int, Mbarrier] = {}
        self.opaque = np.zeros(size, bool)
        self.released: dict[int, Clock] = {}
        self.remote: dict[int, int] = {}
        self.exited = False

    def barrier(self, offset: int) -> Mbarrier:
        """Return the mbarrier object at an offset."""
        if self.exited:
            raise AccessError(f"mbarrier {offset:#x} belongs to CTA {self.rank}, which has exited")
        if offset not in self.barriers:
            raise BarrierError(f"no mbarrier was initialised at {offset:#x} of CTA {self.rank}")
        return self.barriers[offset]

    def check_range(self, low: int, high: int) -> None:
        """Report offsets [low, high) that leave the allocation, or an exited CTA."""
        if low < SHARED_BASE or high > self.size:
            raise AccessError(
                f"shared bytes {low:#x}..{high:#x} are outside {SHARED_BASE:#x}..{self.size:#x}"
            )
        if self.exited:
            raise AccessError(f"shared memory of CTA {self.rank} is used after it exited")


class GlobalMemory:
    """Host arrays at device addresses, apart from each other."""

    def __init__(self) -> None:
        self.regions: list[Region] = []
        self.next = GLOBAL_BASE

    def add(self, array: np.ndarray, name: str) -> Region:
        """Map a C-contiguous array, written in place, and return its region; it maps once."""
        for region in self.regions:
            if region.owner is array:
                return region
        if not array.flags.c_contiguous:
            raise AccessError(f"{name} is not C-contiguous")
        data = array.reshape(-1).view(np.uint8) if array.size else np.zeros(0, np.uint8)
        region = Region(name, self.next, data)
        region.owner = array
        self.regions.append(region)
        self.next += (data.size + 4095 & ~4095) + 4096
        return region

    def find(self, low: int, high: int) -> Region:
        """Return the region that holds bytes [low, high)."""
        for region in self.regions:
            if region.base <= low and high <= region.base + region.bytes.size:
                return region
        near = [r for r in self.regions if r.base - 4096 <= low < r.base + r.bytes.size + 4096]
        where = f" (near {near[0].name}, offset {low - near[0].base})" if near else ""
        raise AccessError(f"global bytes {low:#x}..{high:#x} are in no buffer{where}")


Pieces = list[tuple[Region, np.ndarray, np.ndarray]]


def shared_target(w: Warp, address: int, space: str) -> tuple[SharedMemory, int]:
    """Return the CTA memory and offset that one shared or generic address names."""
    if space == "generic":
        if address >> 44 != 1:
            raise AccessError(f"generic address {address:#x} is not in the shared window")
        address -= SHARED_WINDOW
    rank, offset = address >> RANK_SHIFT, address & ((1 << RANK_SHIFT) - 1)
    if rank == 0:
        return w.cta.shared, offset
    if space == "shared::cta" and rank - 1 != w.cta.rank:
        raise AccessError(f"address {address:#x} of another CTA used as .shared::cta")
    if rank > len(w.cta.cluster.ctas):
        raise AccessError(
            f"shared address {address:#x} names CTA rank {rank - 1} "
            f"of a cluster of {len(w.cta.cluster.ctas)}"
        )
    return w.cta.cluster.ctas[rank - 1].shared, offset


def resolve(w: Warp, space: str, addresses: np.ndarray, size: int, align: int) -> Pieces:
    """Split active-lane addresses into (region, offsets, positions); check alignment and bounds."""
    if (addresses & np.uint64(align - 1)).any():
        bad = int(addresses[(addresses & np.uint64(align - 1)) != 0][0])
        raise AccessError(f"address {bad:#x} is not aligned to {align} bytes")
    everyone = np.arange(addresses.size)
    low, high = int(addresses.min()), int(addresses.max())
    if space.startswith("shared") or (space == "generic" and low >> 44 == 1 and high >> 44 == 1):
        pieces = []
        high_part = addresses >> np.uint64(RANK_SHIFT)
        for part in np.unique(high_part):
            chosen = everyone[high_part == part]
            region, _ = shared_target(w, int(addresses[chosen[0]]), space)
            offsets = (addresses[chosen] & np.uint64((1 << RANK_SHIFT) - 1)).astype(np.int64)
            region.check_range(int(offsets.min()), int(offsets.max()) + size)
            pieces.append((region, offsets, chosen))
        return pieces
    if space in ("global", "generic", "const") and high < SHARED_WINDOW:
        return resolve_global(w, addresses, size)
    if space in ("local", "generic") and low >> 45 == 1:
        offsets = (addresses - np.uint64(LOCAL_WINDOW)).astype(np.int64)
        if int(offsets.max()) + size > w.local_size:
            raise AccessError(
                f"local address {high:#x} is outside the {w.local_size} bytes declared"
            )
        return [(w.local, offsets + w.active_lanes() * w.local_size, everyone)]
    if space in ("param", "generic") and low >> 46 == 1:
        region = w.machine.parameters
        offsets = (addresses - np.uint64(PARAM_WINDOW)).astype(np.int64)
        if int(offsets.max()) + size > region.bytes.size:
            raise AccessError(
                f"parameter bytes {int(offsets.max())}.. are outside the {region.bytes.size} passed"
            )
        return [(region, offsets, everyone)]
    if space == "generic" and addresses.size > 1:
        pieces = []
        for lane in everyone:
            region, offsets, _ = resolve(w, space, addresses[lane : lane + 1], size, align)[0]
            pieces.append((region, offsets, everyone[lane : lane + 1]))
        return pieces
    raise AccessError(f"address {low:#x} is not in the {space} space")


def resolve_global(w: Warp, addresses: np.ndarray, size: int) -> Pieces:
    """Split global addresses by buffer."""
    memory = w.machine.memory
    low, high = int(addresses.min()), int(addresses.max())
    pieces, left = [], np.arange(addresses.size)
    try:
        region = memory.find(low, high + size)
        return [(region, (addresses - np.uint64(region.base)).astype(np.int64), left)]
    except AccessError:
        if low == high:
            raise
    while left.size:
        first = int(addresses[left[0]])
        region = memory.find(first, first + size)
        offsets = addresses[left].astype(np.int64) - region.base
        inside = (offsets >= 0) & (offsets + size <= region.bytes.size)
        pieces.append((region, offsets[inside], left[inside]))
        left = left[~inside]
    return pieces


def byte_indices(offsets: np.ndarray, size: int) -> np.ndarray:
    """Return every byte index that lanes at `offsets` touch."""
    return (offsets[:, None] + np.arange(size)).reshape(-1)


def check_opaque(region: SharedMemory, touched: np.ndarray) -> None:
    """Report plain accesses to mbarrier objects."""
    if region.barriers and region.opaque[touched].any():
        byte = int(touched[region.opaque[touched]][0])
        raise BarrierError(f"a memory access touches an mbarrier object at {byte:#x}")


def load(
    w: Warp,
    space: str,
    addresses: np.ndarray,
    width: int,
    count: int,
    strong: bool = False,
    acquire: bool = False,
) -> np.ndarray:
    """Return [count, 32] unsigned elements; lanes that are not active get zero."""
    out = np.zeros((count, 32), UNSIGNED[width])
    lanes = w.active_lanes()
    chosen = addresses[lanes]
    for region, offsets, positions in resolve(w, space, chosen, width * count, width * count):
        view, first = region.view(width), offsets // width
        if isinstance(region, SharedMemory):
            touched = byte_indices(offsets, width * count)
            check_opaque(region, touched)
            if acquire:
                acquire_clock(w, region, offsets)
            w.touch_shared(region, touched, write=False, atomic=strong)
        for j in range(count):
            out[j][lanes[positions]] = view[first + j]
    return out


def store(
    w: Warp,
    space: str,
    addresses: np.ndarray,
    values: list[np.ndarray],
    width: int,
    strong: bool = False,
    release: bool = False,
) -> None:
    """Write one unsigned element per value and active lane."""
    lanes, count = w.active_lanes(), len(values)
    for region, offsets, positions in resolve(
        w, space, addresses[lanes], width * count, width * count
    ):
        if region.kind == "param":
            raise AccessError("parameters of a kernel are read-only")
        view, first = region.view(width), offsets // width
        if isinstance(region, SharedMemory):
            touched = byte_indices(offsets, width * count)
            check_opaque(region, touched)
            w.touch_shared(region, touched, write=True, atomic=strong)
            if release:
                release_clock(w, region, offsets)
        for j in range(count):
            view[first + j] = values[j][lanes[positions]]
    w.machine.progressed()


def acquire_clock(w: Warp, region: SharedMemory, offsets: np.ndarray) -> None:
    """Learn what the last release to these addresses published."""
    for offset in offsets.tolist():
        if offset in region.released:
            w.clock.join(region.released[offset])


def release_clock(w: Warp, region: SharedMemory, offsets: np.ndarray) -> None:
    """Publish the warp's past at these addresses."""
    published = w.release()
    for offset in offsets.tolist():
        if offset in region.released:
            region.released[offset].join(published)
        else:
            region.released[offset] = published.copy()


def own_epoch(w: Warp) -> int:
    """Return the warp's present epoch."""
    return int(w.clock.epochs[BEFORE, w.agent])
