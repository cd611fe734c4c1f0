"""What a layout costs: vector width, memory transactions, bank conflicts, shuffles.

Nothing is estimated from patterns: the addresses of all lanes are listed and counted. Costs are in
warp instructions or wavefronts (one pass through shared memory), which take a cycle each.

The rules are NVIDIA's. AMD's LDS groups lanes differently and is not covered.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import product
from math import prod

import numpy as np
from numpy.typing import NDArray

from reftile.layout.atoms import memory
from reftile.layout.atoms_memory import SPANS, padded
from reftile.layout.convert import Conversion, convert
from reftile.layout.descriptors import byte_offsets
from reftile.layout.linear import Indices, Layout, LayoutError

BANKS = 32
"""Banks of shared memory, four bytes each (CUDA programming guide, "Shared Memory")."""

SECTOR_BYTES = 32
"""What one transaction of global memory fetches (CUDA best practices guide, "Coalesced Access")."""

SHUFFLE_COST = 1
"""Cycles of a shuffle per warp: 32 results per clock (CUDA programming guide, throughput)."""

BARRIER_COST = 30
"""Cycles of a barrier among warps: a guess, so that a way through shared memory is not free."""


@dataclass(frozen=True, slots=True)
class Access:
    """How warps load or store a fragment.

    vector: elements per lane and instruction, consecutive in memory.
    groups: for each instruction of a thread, the registers it moves, in memory order.
    addresses: bytes, by instruction, lane and warp; -1 where the lane is idle (padding).
    """

    vector: int
    width_bytes: int
    groups: tuple[tuple[int, ...], ...]
    addresses: Indices


def shared_access(
    fragment: Layout, tile: Layout, bits: int, width_bytes: int | None = None
) -> Access:
    """Plan the widest access of a fragment to a tile in shared memory, at most 16 bytes per lane.

    width_bytes: ask for this width instead of the widest.

    Raises:
        LayoutError: the layouts hold different tiles, or the width is not possible.
    """
    if fragment.shape != tile.shape:
        raise LayoutError(f"a fragment of {fragment.shape} does not lie in a tile of {tile.shape}")
    return _access(fragment, byte_offsets(tile, bits), bits, width_bytes, 16)


def global_access(
    fragment: Layout, bits: int, strides_bytes: Sequence[int], alignment_bytes: int = 16
) -> Access:
    """Plan the widest access of a fragment to global memory.

    strides_bytes: between neighbours along each dimension of the tile. alignment_bytes: what the
    address of the tile's first element is known to be a multiple of.
    """
    grid = np.indices(fragment.shape, dtype=np.int64)
    offsets = np.zeros(fragment.shape, np.int64)
    for axis, stride in enumerate(strides_bytes):
        offsets += grid[axis] * stride
    return _access(fragment, offsets, bits, None, min(16, alignment_bytes))


def _access(
    fragment: Layout, offsets: Indices, bits: int, wanted: int | None, limit: int
) -> Access:
    size = bits // 8
    flat = fragment.indices().reshape(
        [fragment.extent("register"), fragment.extent("lane"), fragment.extent("warp"), -1]
    )[..., 0]
    table = np.where(flat >= 0, offsets.ravel()[flat], -1)
    registers = range(len(table))
    used = list[int]()
    weights = _bit_weights(fragment)
    width = size
    while width * 2 <= (wanted or limit):
        rest = np.array([r for r in registers if not any(_digit(r, w) for w in used)])
        step = next((w for w in weights if _continues(table, rest, w, width)), None)
        if step is None:
            break
        used.append(step)
        weights.remove(step)
        width *= 2
    if wanted and width != wanted:
        raise LayoutError(f"{wanted} bytes per lane are not consecutive in memory, {width} are")
    bases = [r for r in registers if not any(_digit(r, w) for w in used)]
    offsets_of = [sum(w for i, w in enumerate(used) if v >> i & 1) for v in range(1 << len(used))]
    groups = tuple(tuple(base + at for at in offsets_of) for base in bases)
    return Access(width // size, width, groups, table[bases])


def _bit_weights(fragment: Layout) -> list[int]:
    weights = list[int]()
    weight = 1
    for digit in fragment.digits("register"):
        if digit.is_bit:
            weights.append(weight)
        weight *= digit.extent
    return weights


def _digit(register: int, weight: int) -> bool:
    """Is the bit of this weight set? Bits above a repeat have weights that are no powers of two."""
    return register // weight % 2 == 1


def _continues(table: Indices, bases: Indices, weight: int, width: int) -> bool:
    """Does the bit of `weight` lead `width` bytes on, from addresses aligned to twice the width?"""
    low = bases[bases // weight % 2 == 0]
    here, there = table[low], table[low + weight]
    idle = (here < 0) & (there < 0)
    return bool(np.all(idle | ((there - here == width) & (here % (2 * width) == 0) & (here >= 0))))


# Counting


@dataclass(frozen=True, slots=True)
class Conflicts:
    """What an access to shared memory takes, over all warps.

    wavefronts: passes through shared memory; ideal: passes if no two lanes met in a bank.
    """

    instructions: int
    wavefronts: int
    ideal: int
    worst: int

    @property
    def extra(self) -> int:
        """The passes that bank conflicts cost."""
        return self.wavefronts - self.ideal


def bank_conflicts(
    tile: Layout, fragment: Layout, bits: int, width_bytes: int | None = None
) -> Conflicts:
    """Count the passes that loading or storing a fragment takes, exactly.

    width_bytes: bytes per lane and instruction; the widest possible if not given.
    """
    access = shared_access(fragment, tile, bits, width_bytes)
    return count_conflicts(access.addresses, access.width_bytes)


def count_conflicts(addresses: Indices, width_bytes: int) -> Conflicts:
    """Count passes for byte addresses by (instruction, lane, warp), -1 for idle lanes.

    Lanes go together as far as 128 bytes reach: 32 with up to 4 bytes each, 16 with 8, 8 with 16.
    Neighbouring groups (0 and 1, 2 and 3) go together if every lane of the warp wants the same as
    its neighbour at distance 1, or every lane the same as that at distance 2. Within a group, a
    pass serves one word per bank; lanes that want the same word share it. An instruction takes at
    least one pass per group, but a group that is idle leaves its pass to the others.

    Source: CUDA programming guide, "Shared Memory" of compute capability 5.x and later, for banks;
    the groups were measured on an H200, where a load takes one cycle per pass
    (tests/layout/test_on_hopper.py).
    """
    lanes = addresses.shape[1]
    by_lane = np.moveaxis(addresses, 1, -1).reshape(-1, lanes)
    groups, count = _groups(by_lane, max(1, min(lanes, 128 // max(4, width_bytes))))
    words = groups[..., None] // 4 + np.arange(max(1, width_bytes // 4))
    words = np.where(groups[..., None] < 0, -1, words).reshape(*groups.shape[:2], -1)
    words = np.sort(words, axis=-1)
    first = np.ones(words.shape, bool)
    first[..., 1:] = words[..., 1:] != words[..., :-1]
    first &= words >= 0
    passes = np.zeros(words.shape[:2], np.int64)
    for bank in range(BANKS):
        passes = np.maximum(passes, np.sum(first & (words % BANKS == bank), axis=-1))
    least = count * np.any(by_lane >= 0, axis=-1)
    per_instruction = np.maximum(passes.sum(axis=-1), least)
    return Conflicts(
        instructions=len(per_instruction),
        wavefronts=int(per_instruction.sum()),
        ideal=int(least.sum()),
        worst=int(passes.max(initial=0)),
    )


def _groups(by_lane: Indices, together: int) -> tuple[Indices, Indices]:
    """Arrange each row of lanes in groups that go together; also return how many groups there are.

    Where two groups are one, the first holds both and the second is left idle.
    """
    rows, lanes = by_lane.shape
    count = np.full(rows, lanes // together, np.int64)
    if lanes == together:
        return by_lane[:, None, :], count
    merged = _in_pairs(by_lane, 1) | _in_pairs(by_lane, 2)
    pairs = by_lane.reshape(rows, -1, 2, together)
    groups = np.full((*pairs.shape[:3], 2 * together), -1, np.int64)
    groups[..., :together] = pairs
    groups[merged, :, 0, together:] = pairs[merged, :, 1]
    groups[merged, :, 1] = -1
    count[merged] //= 2
    return groups.reshape(rows, -1, 2 * together), count


def _in_pairs(addresses: Indices, distance: int) -> NDArray[np.bool_]:
    """Does every lane want the same as its neighbour at a distance? Idle lanes agree with any."""
    partner = addresses[:, np.arange(addresses.shape[1]) ^ distance]
    return np.all((addresses == partner) | (addresses < 0) | (partner < 0), axis=-1)


@dataclass(frozen=True, slots=True)
class Sectors:
    """What an access to global memory takes: sectors of 32 bytes, and how few would do."""

    instructions: int
    sectors: int
    ideal: int


def count_sectors(access: Access) -> Sectors:
    """Count the sectors that all warps' instructions touch, each instruction by itself."""
    addresses = np.moveaxis(access.addresses, 1, -1).reshape(-1, access.addresses.shape[1])
    sectors = np.where(addresses < 0, -1, addresses // SECTOR_BYTES)
    ideal = -(-_different(addresses) * access.width_bytes // SECTOR_BYTES)
    return Sectors(len(addresses), _different(sectors), ideal)


def _different(rows: Indices) -> int:
    """How many different numbers there are in each row, negative ones apart, in all."""
    found = np.sort(rows, axis=-1)
    new = np.ones(found.shape, bool)
    new[:, 1:] = found[:, 1:] != found[:, :-1]
    return int((new & (found >= 0)).sum())


# Conversions


@dataclass(frozen=True, slots=True)
class ConversionCost:
    """What turning one register layout into another takes, per CTA.

    staging: the layout in shared memory that conflicts least, if the way leads there.
    shuffles: 32-bit shuffles per warp. wavefronts: passes for storing and loading, over all warps.
    """

    conversion: Conversion
    shuffles: int
    staging: Layout | None
    wavefronts: int
    total: int


def conversion_cost(source: Layout, target: Layout, bits: int) -> ConversionCost:
    """Price a conversion: free in a thread, shuffles in a warp, else through shared memory."""
    conversion = convert(source, target)
    warps = target.extent("warp")
    if conversion.distance in ("none", "register"):
        return ConversionCost(conversion, 0, None, 0, 0)
    shuffles = shuffle_count(conversion, bits)
    staging, wavefronts = stage(source, target, bits)
    through_memory = wavefronts + BARRIER_COST
    if conversion.distance == "lane" and shuffles * warps * SHUFFLE_COST <= through_memory:
        total = shuffles * warps * SHUFFLE_COST
        return ConversionCost(conversion, shuffles, None, 0, total)
    return ConversionCost(conversion, 0, staging, wavefronts, through_memory)


def shuffle_count(conversion: Conversion, bits: int) -> int:
    """Return how many 32-bit shuffles each warp executes for a conversion among lanes."""
    if bits > 32:
        return conversion.shuffle_rounds * bits // 32
    together = min(32 // bits, conversion.parallel_elements)
    return -(-conversion.shuffle_rounds // together)


def stage(source: Layout, target: Layout, bits: int) -> tuple[Layout, int]:
    """Choose the shared-memory layout through which source becomes target in the fewest passes."""
    best: tuple[Layout, int] | None = None
    for tile in _stagings(target.shape, bits):
        try:
            passes = bank_conflicts(tile, source, bits).wavefronts
            passes += bank_conflicts(tile, target, bits).wavefronts
        except LayoutError:
            continue
        if best is None or passes < best[1]:
            best = tile, passes
    if best is None:
        raise LayoutError(f"no shared memory layout holds a tile of {target.shape} at {bits} bits")
    return best


def _stagings(shape: Sequence[int], bits: int) -> list[Layout]:
    names = ["row_major"]
    if len(shape) >= 2:
        names += [f"swizzle{span}{suffix}" for span in SPANS for suffix in ("", ".t")]
    found = list[Layout]()
    for name in names:
        try:
            found.append(memory(name, shape, bits))
        except LayoutError:
            continue
    pitch = shape[-1] + max(1, 128 // bits)
    if len(shape) >= 2 and prod(shape) * bits <= 1 << 20:
        found.append(padded(shape, pitch))
    return found


# ldmatrix and stmatrix


@dataclass(frozen=True, slots=True)
class MatrixCopy:
    """How ldmatrix or stmatrix moves a fragment: 8x8 matrices of 16-bit units, up to four at once.

    transposed: with `.trans`. count: matrices per instruction (x1, x2, x4).
    groups: for each instruction, the registers (elements) of its matrices in order.
    addresses: the byte of the row that each lane points at, by (instruction, lane, warp).
    """

    transposed: bool
    count: int
    groups: tuple[tuple[int, ...], ...]
    addresses: Indices

    def conflicts(self) -> Conflicts:
        """Count the passes: a matrix is eight rows of 16 bytes, one pass without conflicts."""
        return count_conflicts(self.addresses, 16)


def matrix_copy(fragment: Layout, tile: Layout, bits: int) -> MatrixCopy:
    """Plan ldmatrix (or stmatrix) between a fragment and a tile in shared memory.

    Raises:
        LayoutError: the lanes do not hold 8x8 matrices whose rows are 16 consecutive bytes.

    Source: PTX ISA 9.2, ldmatrix: in a matrix lane l holds two units of row l / 4; with `.trans`,
    of column l / 4. Lanes 8 j + i point at row i of matrix j.
    """
    if fragment.extent("lane") != 32 or bits not in (8, 16):
        raise LayoutError("ldmatrix needs 32 lanes and elements of 8 or 16 bits")
    offsets = byte_offsets(tile, bits).ravel()
    flat = fragment.indices().reshape([fragment.extent("register"), 32, -1])
    if np.any(flat < 0):
        raise LayoutError("ldmatrix has no idle lanes, but the fragment is padded")
    table = offsets[flat]
    for transposed in (False, True):
        pairs = _pairs(fragment, table, bits, transposed)
        if pairs is None:
            continue
        count = next(c for c in (4, 2, 1) if len(pairs) % c == 0)
        groups = tuple(
            tuple(r for pair in pairs[i : i + count] for r in pair)
            for i in range(0, len(pairs), count)
        )
        addresses = np.empty((len(groups), 32, table.shape[2]), np.int64)
        for group, (lane, j) in product(range(len(groups)), enumerate(np.arange(32) // 8 % count)):
            pair = pairs[group * count + j]
            row = lane % 8
            held = (pair[row % 2], row // 2) if transposed else (pair[0], row * 4)
            addresses[group, lane] = table[held]
        return MatrixCopy(transposed, count, groups, addresses)
    raise LayoutError("no 8x8 matrices with rows of 16 consecutive bytes lie across the lanes")


def _pairs(
    fragment: Layout, table: Indices, bits: int, transposed: bool
) -> list[tuple[int, ...]] | None:
    """Group registers into 32-bit registers of one matrix each, or None if they do not fit."""
    per_register = 32 // bits
    if len(table) % per_register:
        return None
    pairs = [tuple(range(i, i + per_register)) for i in range(0, len(table), per_register)]
    lane = np.arange(32)
    inside = np.arange(per_register)[:, None]
    for pair in pairs:
        found = table[list(pair)]
        if transposed and bits == 16:
            # Unit u of lane l is row 2 (l % 4) + u, column l / 4.
            rows = found[:, lane % 4]
            expected = rows + (lane // 4 * 2)[None, :, None]
        elif not transposed:
            rows = found[:1, lane // 4 * 4]
            expected = rows + (lane % 4 * 4 + inside * (bits // 8))[:, :, None]
        else:
            return None
        if np.any(rows % 16) or not np.array_equal(found, expected):
            return None
    return pairs
