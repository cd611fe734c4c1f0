"""What the hardware must be told about a tile in shared memory, derived from its layout.

wgmma and tcgen05 read an operand through a descriptor: where it starts, two strides and a swizzle.
TMA copies boxes: their extents and a swizzle. Both are found here by asking which of the forms that
the hardware offers places every element where the layout does. A layout that fits none is refused,
naming the first element that lies elsewhere.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from itertools import product
from math import prod

import numpy as np

from reftile.layout.atoms_memory import ALIGNMENT_BYTES, SPANS
from reftile.layout.linear import Indices, Layout, LayoutError

_CHUNK_BYTES = 16
_WGMMA_MODES = {128: 1, 64: 2, 32: 3, 16: 0}
_TCGEN05_MODES = {128: 2, 64: 4, 32: 6, 16: 0}
_TMA_MODES = {128: 3, 64: 2, 32: 1, 0: 0}


@dataclass(frozen=True, slots=True)
class MatrixDescriptor:
    """How wgmma or tcgen05 reads one operand of a tile, instruction by instruction.

    k_major: k is contiguous; otherwise the instruction must transpose (tnsp = 1).
    span: bytes of the swizzle, 16 for none.
    leading_bytes, stride_bytes: the fields of these names. Where the form does not use the leading
        offset it is 16, as in other people's code.
    starts: byte offsets from the buffer's start, per instruction along m or n, then along k.
    """

    k_major: bool
    span: int
    leading_bytes: int
    stride_bytes: int
    starts: tuple[tuple[int, ...], ...]

    @property
    def alignment_bytes(self) -> int:
        """What the buffer's address must be a multiple of for a base offset of 0."""
        return ALIGNMENT_BYTES[self.span]

    def constant_bits(self) -> int:
        """Return the wgmma descriptor without its start address and base offset.

        Source: PTX ISA 9.2, "Matrix Descriptor Format" of wgmma: start address in bits 0..13,
        leading offset in 16..29, stride offset in 32..45, base offset in 49..51, swizzle in 62..63.
        """
        strides = self.leading_bytes >> 4 << 16 | self.stride_bytes >> 4 << 32
        return _WGMMA_MODES[self.span] << 62 | strides

    def encode(self, address: int, mn: int = 0, k: int = 0) -> int:
        """Return the wgmma descriptor of instruction (mn, k) for a buffer at `address`.

        The base offset says how far the buffer lies behind a multiple of the swizzle's pattern.
        """
        start = address + self.starts[mn][k]
        return self.constant_bits() | (start & 0x3FFFF) >> 4 | self.base_offset(address) << 49

    def base_offset(self, address: int) -> int:
        """Return the base offset field for a buffer at `address`: 0 if it is aligned.

        Source: PTX ISA 9.2, "Matrix base offset" of wgmma and tcgen05 descriptors.
        """
        aligned = self.span == _CHUNK_BYTES or address % self.alignment_bytes == 0
        return 0 if aligned else address >> 7 & 7

    def encode_tcgen05(self, address: int, mn: int = 0, k: int = 0) -> int:
        """Return the descriptor for tcgen05.mma, which differs in the swizzle field and a version.

        Source: PTX ISA 9.2, "Shared memory descriptor" of tcgen05: bits 46..48 hold 1, 61..63 the
        swizzle (0 none, 2 128 bytes, 4 64 bytes, 6 32 bytes). Not tried on hardware.
        """
        start = address + self.starts[mn][k]
        strides = self.leading_bytes >> 4 << 16 | self.stride_bytes >> 4 << 32
        base = self.base_offset(address) << 49
        return _TCGEN05_MODES[self.span] << 61 | base | 1 << 46 | strides | (start & 0x3FFFF) >> 4


def matrix_descriptor(layout: Layout, bits: int, k_axis: int, mn: int = 0) -> MatrixDescriptor:
    """Derive how wgmma reads a tile in shared memory as one of its operands.

    k_axis: the dimension that is summed over. mn: rows of A (64) or columns of B (n) that one
    instruction takes; 0 means the whole tile. An instruction takes 32 bytes' worth of k.

    Raises:
        LayoutError: no descriptor places the elements where the layout does.

    Source: PTX ISA 9.2, "Shared Memory Matrix Layout" and "Strides" of wgmma; in CUTLASS's terms,
    with T elements per 16 bytes and W chunks of 16 bytes per span: K-major ((8,m),(T,2)) over
    ((W,SBO),(1,LBO or T)); MN-major ((T,W,m),(8,k)) over ((1,T,LBO),(W T,SBO)), where no swizzle
    exchanges LBO and SBO.
    """
    if len(layout.shape) != 2:
        raise LayoutError(f"a matrix operand has two dimensions, found {len(layout.shape)}")
    table = byte_offsets(layout, bits)
    table = table if k_axis % 2 == 1 else table.T
    mn = mn or table.shape[0]
    k = 256 // bits
    if table.shape[0] % mn or table.shape[1] % k or mn % 8:
        raise LayoutError(f"a tile of {table.shape} (mn, k) does not divide into {mn} x {k}")
    complaints = list[tuple[int, str]]()
    for k_major, span in product((True, False), SPANS):
        form = _Form(k_major, span, bits // 8)
        try:
            leading, stride = form.measure(table, mn)
            starts = tuple(
                tuple(form.start(block, leading, stride) for block in row)
                for row in _blocks(table, mn, k)
            )
        except _Misfit as misfit:
            complaints.append((misfit.matched, str(misfit)))
            continue
        if not k_major and bits != 16:
            raise LayoutError(
                f"wgmma transposes 16-bit operands only: {bits}-bit ones must have k contiguous"
            )
        return MatrixDescriptor(k_major, span, leading, stride, starts)
    raise LayoutError(f"no wgmma descriptor reads this layout; nearest: {max(complaints)[1]}")


def _blocks(table: Indices, mn: int, k: int) -> Iterator[list[Indices]]:
    for i in range(0, table.shape[0], mn):
        yield [table[i : i + mn, j : j + k] for j in range(0, table.shape[1], k)]


class _Misfit(Exception):
    def __init__(self, matched: int, message: str) -> None:
        super().__init__(message)
        self.matched = matched


@dataclass(frozen=True, slots=True)
class _Form:
    """One of the eight forms that a descriptor can express, for elements of `size` bytes."""

    k_major: bool
    span: int
    size: int

    def __str__(self) -> str:
        swizzle = "no swizzle" if self.span == _CHUNK_BYTES else f"{self.span}-byte swizzle"
        return f"{'k' if self.k_major else 'mn'} contiguous with {swizzle}"

    def measure(self, table: Indices, mn: int) -> tuple[int, int]:
        """Read the two strides off the table, (leading, stride) bytes."""
        plain = exchange_chunks(table, self.span)
        per_chunk = _CHUNK_BYTES // self.size
        per_span = self.span // self.size

        def step(i: int, j: int) -> int:
            inside = i < mn and j < table.shape[1]
            return int(plain[i, j] - plain[0, 0]) if inside else _CHUNK_BYTES

        if self.k_major:
            leading = step(0, per_chunk) if self.span == _CHUNK_BYTES else _CHUNK_BYTES
            stride = step(8, 0)
        elif self.span == _CHUNK_BYTES:
            leading, stride = step(0, 8), step(per_chunk, 0)
        else:
            leading, stride = step(per_span, 0), step(0, 8)
        for name, value in (("leading", leading), ("stride", stride)):
            if value % 16 or not 0 <= value < 1 << 18:
                raise _Misfit(0, f"{self}, but the {name} offset would be {value} bytes")
        return leading, stride

    def start(self, block: Indices, leading: int, stride: int) -> int:
        """Return where a block starts; raise if the form puts any element elsewhere."""
        i, j = np.indices(block.shape, dtype=np.int64)
        per_chunk, per_span = _CHUNK_BYTES // self.size, self.span // self.size
        if self.k_major:
            chunk = leading if self.span == _CHUNK_BYTES else _CHUNK_BYTES
            rows = i // 8 * stride + i % 8 * self.span
            linear = rows + j // per_chunk * chunk + j % per_chunk * self.size
        else:
            mn, k = (stride, leading) if self.span == _CHUNK_BYTES else (leading, stride)
            columns = i // per_span * mn + i % per_span * self.size
            linear = columns + j % 8 * self.span + j // 8 * k
        start = exchange_chunks(block[:1], self.span).tolist()[0][0]
        expected = exchange_chunks(start + linear, self.span)
        wrong = np.argwhere(expected != block)
        if len(wrong):
            at = tuple(wrong[0].tolist())
            raise _Misfit(
                block.size - len(wrong),
                f"{self}, but element (mn, k) = {at} of the operand lies at byte {block[at]}, "
                f"which the form puts at {expected[at]}",
            )
        if start % 16:
            raise _Misfit(block.size, f"{self}, but an operand starts at byte {start}")
        if start != block[0, 0]:
            raise _Misfit(block.size, f"{self}, but an operand starts inside the swizzle's pattern")
        return start


# TMA


@dataclass(frozen=True, slots=True)
class TensorBoxes:
    """How TMA copies a tile between global and shared memory: as equal boxes.

    axes: the tile's dimensions from the innermost of the tensor map outwards.
    extents: elements of a box along `axes`.
    span: bytes of the swizzle, 0 for none.
    boxes: for each box, the first element's index in the tile and the box's byte offset.
    """

    axes: tuple[int, ...]
    extents: tuple[int, ...]
    span: int
    boxes: tuple[tuple[tuple[int, ...], int], ...]
    bits: int

    @property
    def swizzle_mode(self) -> int:
        """The value of CUtensorMapSwizzle: 0 none, 1 32 bytes, 2 64 bytes, 3 128 bytes (cuda.h)."""
        return _TMA_MODES[self.span]

    @property
    def box_bytes(self) -> int:
        """Bytes of one box: what an mbarrier expects per copy, in full even at a ragged edge."""
        return prod(self.extents) * self.bits // 8

    @property
    def alignment_bytes(self) -> int:
        """What the buffer's address must be a multiple of."""
        return ALIGNMENT_BYTES[self.span or 16]


def tensor_boxes(layout: Layout, bits: int) -> TensorBoxes:
    """Derive the boxes by which TMA fills or drains a tile in shared memory.

    The largest boxes that fit are chosen, the swizzle being what the layout says.

    Raises:
        LayoutError: TMA has no box and swizzle for this layout.

    Source: CUDA driver API, cuTensorMapEncodeTiled: boxes of at most 256 elements per dimension and
    rank 5, innermost a multiple of 16 bytes and at most the swizzle's span; PTX ISA 9.2, tensors.
    """
    if len(layout.shape) > 5:
        raise LayoutError(f"TMA copies up to 5 dimensions, found {len(layout.shape)}")
    table = byte_offsets(layout, bits)
    complaints = list[str]()
    for span in (0, 128, 64, 32):
        plain = exchange_chunks(table, span) if span else table
        axes, extents = _grow_box(plain, bits // 8, span)
        if not axes:
            continue
        inner = extents[0] * bits // 8
        if inner % 16 or (span and inner != span):
            complaints.append(
                f"a row of a box has {inner} bytes, for a swizzle of {span or 'none'}"
            )
            continue
        box = dict(zip(axes, extents, strict=True))
        sizes = [box[k] for k in range(len(layout.shape))]
        starts = list(product(*(range(0, e, s) for e, s in zip(layout.shape, sizes, strict=True))))
        boxes = tuple((start, int(table[start])) for start in starts)
        misplaced = _misplaced_box(plain, sizes, [plain[start] for start in starts], starts)
        if misplaced:
            complaints.append(misplaced)
            continue
        alignment = ALIGNMENT_BYTES[span or 16]
        if any(offset % alignment for _, offset in boxes):
            complaints.append(f"boxes would start at bytes that are no multiples of {alignment}")
            continue
        return TensorBoxes(axes, extents, span, boxes, bits)
    complaints.append("its elements follow each other along no dimension")
    raise LayoutError(f"TMA cannot copy this layout: {complaints[0]}")


def _grow_box(plain: Indices, size: int, span: int) -> tuple[tuple[int, ...], tuple[int, ...]]:
    """Find the dense box at the origin: axes by increasing stride, and how far each stays dense."""
    expected = size
    axes, extents = list[int](), list[int]()
    rank = plain.ndim
    while len(axes) < rank:
        found = None
        for axis in range(rank):
            line = plain[tuple(slice(None) if k == axis else 0 for k in range(rank))]
            if axis not in axes and len(line) > 1 and line[1] - line[0] == expected:
                found = axis, line - line[0]
        if found is None:
            break
        axis, line = found
        limit = min(256, span // size) if span and not axes else 256
        fitting = [
            e
            for e in range(1, limit + 1)
            if len(line) % e == 0 and np.array_equal(line[:e], np.arange(e) * expected)
        ]
        axes.append(axis)
        extents.append(fitting[-1])
        expected *= fitting[-1]
    if not axes:
        return (), ()
    rest = [k for k in range(rank) if k not in axes]
    return (*axes, *reversed(rest)), (*extents, *(1 for _ in rest))


def _misplaced_box(
    plain: Indices, sizes: list[int], origins: list[np.int64], starts: list[tuple[int, ...]]
) -> str | None:
    first = plain[tuple(slice(0, s) for s in sizes)]
    for start, origin in zip(starts, origins, strict=True):
        window = tuple(slice(at, at + s) for at, s in zip(start, sizes, strict=True))
        if not np.array_equal(plain[window] - origin, first - first.flat[0]):
            return f"the box at {start} is laid out unlike the first"
    dense = np.sort((first - first.flat[0]).ravel())
    if not np.array_equal(dense, np.arange(first.size) * (dense[1] if first.size > 1 else 1)):
        return "a box has gaps"
    return None


# Bytes


def byte_offsets(layout: Layout, bits: int) -> Indices:
    """Return the byte at which each element lies: an array shaped like the tile.

    Raises:
        LayoutError: the layout is not one of memory, elements are narrower than a byte, or an
            element has no place or several.
    """
    if set(layout.places) - {"offset"} or bits % 8:
        raise LayoutError("expected a layout of whole bytes in memory")
    flat = layout.indices().ravel()
    held = flat >= 0
    result = np.full(prod(layout.shape), -1, np.int64)
    result[flat[held]] = np.flatnonzero(held) * (bits // 8)
    if np.any(result < 0) or np.count_nonzero(held) != len(result):
        raise LayoutError("some elements have no place in memory, or several")
    return result.reshape(layout.shape)


def exchange_chunks(address: Indices, span: int) -> Indices:
    """Apply a swizzle to byte addresses; applying it twice changes nothing. See `atoms_memory`."""
    return address ^ (address >> 7 & (span // 16 - 1)) << 4
