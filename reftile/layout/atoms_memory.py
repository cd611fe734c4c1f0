"""How tiles lie in memory: rows, and the swizzles that TMA, wgmma and ldmatrix agree on.

A swizzled tile is cut into boxes of `span` bytes along its contiguous axis; a box lies row after
row, and boxes follow one another. Within a box, 16-byte chunks of a row change places: with bytes
numbered from the start of a buffer aligned to 8 spans (1024 bytes for 128-byte swizzle),

    address bits 4..6 ^= address bits 7..9        span 128
    address bits 4..5 ^= address bits 7..8        span 64
    address bit  4    ^= address bit  7           span 32

Span 16 has nothing to exchange: it is the no-swizzle mode of wgmma, whose 8x16-byte core matrices
are contiguous.

Source: PTX ISA 9.2, "Shared Memory Matrix Layout" of wgmma, and "Swizzling modes" of tensors.
"""

from __future__ import annotations

from collections.abc import Sequence
from math import prod

from reftile.layout.linear import Layout, LayoutError, Part, Step

SPANS = (128, 64, 32, 16)
"""Bytes of a row per box. 16 means no exchange."""

ALIGNMENT_BYTES = {128: 1024, 64: 512, 32: 256, 16: 128}
"""What a buffer's address must be a multiple of, so that offsets show the address bits above.

Source: PTX ISA 9.2, wgmma matrix descriptor, "repeat pattern"; TMA needs 128 without a swizzle.
"""


def _unit(rank: int, axis: int, amount: int = 1) -> Step:
    return tuple(amount if k == axis % rank else 0 for k in range(rank))


def _in_memory(shape: Sequence[int], bits: int, parts: list[Part]) -> Layout:
    """Count `parts` in elements, or in bytes and bits where elements are narrower than a byte."""
    if bits >= 8:
        return Layout.of(shape, {"offset": parts})
    per_byte = 8 // bits
    extent, step = parts[0] if isinstance(parts[0], tuple) else (1, ())
    if extent % per_byte:
        raise LayoutError(f"{extent} elements of {bits} bits do not fill whole bytes")
    rest: Part = (extent // per_byte, tuple(s * per_byte for s in step))
    return Layout.of(shape, {"bit": [(per_byte, step)], "offset": [rest, *parts[1:]]})


def row_major(shape: Sequence[int], bits: int = 8) -> Layout:
    """The last dimension contiguous, nothing in between."""
    rank = len(shape)
    return _in_memory(shape, bits, [(shape[k], _unit(rank, k)) for k in reversed(range(rank))])


def swizzled(shape: Sequence[int], bits: int, span: int) -> Layout:
    """Boxes of `span` bytes along the last dimension, swizzled by rows of the one before.

    Further dimensions, such as the stages of a ring, follow outside.

    Raises:
        LayoutError: the last dimension is not a multiple of the span, or the rows cut the pattern.
    """
    if span not in SPANS:
        raise LayoutError(f"a swizzle spans 16, 32, 64 or 128 bytes, found {span}")
    if len(shape) < 2:
        raise LayoutError("a swizzled tile has at least two dimensions")
    rank, rows, columns = len(shape), shape[-2], shape[-1]
    width = span * 8 // bits
    if columns % width:
        raise LayoutError(f"{columns} columns of {bits} bits are not a multiple of {span} bytes")
    if rows % 8 and rows not in (1, 2, 4):
        raise LayoutError(f"{rows} rows cut the swizzle's pattern of 8 rows")
    pattern = min(rows, 8)
    exchanged = width * bits // 128  # chunks of 16 bytes in a row
    parts: list[Part] = [(width, _unit(rank, -1))]
    row = 1
    while row < pattern:
        # Row bit j is address bit log2(span) + j; it flips the chunk bit three below, if any.
        chunk = row * span // 128
        step = list(_unit(rank, -2, row))
        step[-1] = chunk * 128 // bits if chunk < exchanged else 0
        parts.append((2, tuple(step)))
        row *= 2
    parts.append((rows // pattern, _unit(rank, -2, pattern)))
    parts.append((columns // width, _unit(rank, -1, width)))
    parts += [(shape[k], _unit(rank, k)) for k in reversed(range(rank - 2))]
    return _in_memory(shape, bits, parts)


def transposed(layout: Layout) -> Layout:
    """The same memory for the tile with its last two dimensions exchanged."""
    order = list(range(len(layout.shape)))
    order[-2:] = order[:-3:-1]
    return layout.permute(order)


def padded(shape: Sequence[int], pitch: int) -> Layout:
    """Rows of the last dimension every `pitch` elements; the gap holds nothing."""
    if pitch < shape[-1]:
        raise LayoutError(f"a pitch of {pitch} is too small for rows of {shape[-1]}")
    return row_major((*shape[:-1], pitch)).clip(shape)


def blocked(
    shape: Sequence[int], vector: int, warps: int, lanes: int = 32, order: Sequence[int] = ()
) -> Layout:
    """A register layout for loads and stores: each lane `vector` elements, lanes along rows.

    Lanes fill the contiguous dimension first, warps what follows, registers the rest. Where the
    tile has fewer elements than there are places, places hold copies.

    order: dimensions from the contiguous one outwards; the default is last to first.
    """
    order = tuple(order) or tuple(reversed(range(len(shape))))
    left = list(shape)
    done = [1] * len(shape)
    parts: dict[str, list[Part]] = {"register": [], "lane": [], "warp": []}

    def take(place: str, axis: int, count: int) -> None:
        if count > 1:
            parts[place].append((count, _unit(len(shape), axis, done[axis])))
            done[axis] *= count
            left[axis] //= count

    take("register", order[0], _common_power(left[order[0]], vector))
    for place, count in (("lane", lanes), ("warp", warps)):
        for axis in order:
            share = _common_power(left[axis], count)
            take(place, axis, share)
            count //= share
        if count > 1 and place == "warp":
            for axis in order:
                if left[axis] % count == 0:
                    take(place, axis, count)
                    count = 1
        parts[place].append((count, (0,) * len(shape)))
    for axis in order:
        take("register", axis, left[axis])
    layout = Layout.of(shape, parts)
    assert prod(done) == prod(shape)
    return layout


def _common_power(extent: int, limit: int) -> int:
    """The largest power of two that divides both."""
    power = 1
    while extent % (2 * power) == 0 and limit % (2 * power) == 0:
        power *= 2
    return power
