"""Named layouts of buffers in shared memory: text, addresses, sizes, alignment, slices.

    row_major            rows one after another
    row_major[pitch]     rows `pitch` elements apart: padding, or a slice of columns
    swizzle128           panels of 128 bytes, as high as the buffer, chunks exchanged by row
    swizzle128[height]   the same in panels of `height` rows: a slice of a taller buffer
    swizzle128.t         the buffer is the transpose of what lies in memory as swizzle128

There are swizzles of 128, 64, 32 and 16 bytes; `.t` goes with all. spec/pipe.md, "Layouts", is the
definition, `bit_offset` its formula, and `reftile.layout.atoms_memory` the same as linear maps.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from math import prod

from reftile.ir.types import BufferType, RingType

_LAYOUT = re.compile(r"(row_major|swizzle(?:16|32|64|128))(\.t)?(?:\[(\d+)\])?$")


@dataclass(frozen=True, slots=True)
class BufferLayout:
    """A parsed layout.

    span_bytes: the width of a panel, 0 for row_major.
    stride: elements from row to row, or rows in a panel; None if the buffer's own.
    """

    span_bytes: int
    transposed: bool
    stride: int | None

    def __str__(self) -> str:
        name = f"swizzle{self.span_bytes}" if self.span_bytes else "row_major"
        stride = "" if self.stride is None else f"[{self.stride}]"
        return f"{name}{'.t' if self.transposed else ''}{stride}"


def parse_layout(text: str) -> BufferLayout | None:
    """The layout that `text` names, or None if it names none."""
    match = _LAYOUT.match(text)
    if match is None:
        return None
    span = 0 if match[1] == "row_major" else int(match[1][len("swizzle") :])
    return BufferLayout(span, bool(match[2]), int(match[3]) if match[3] else None)


def _parsed(type: BufferType) -> BufferLayout:
    return parse_layout(type.layout) or BufferLayout(0, False, None)


def _in_memory(shape: tuple[int, ...], layout: BufferLayout) -> tuple[int, int]:
    """Rows and columns as they lie in memory; axes before the last two count as rows."""
    if layout.transposed:
        return shape[1], shape[0]
    return (prod(shape[:-1]), shape[-1]) if shape else (1, 1)


def layout_fault(type: BufferType) -> str:
    """What is wrong with the layout of a buffer, or an empty string."""
    layout = parse_layout(type.layout)
    if layout is None:
        return f"`{type.layout}` is not a layout (row_major, swizzle128, swizzle64, ...)"
    if len(type.shape) != 2 and str(layout) != "row_major":
        return f"`{type.layout}` needs a buffer of two axes"
    rows, columns = _in_memory(type.shape, layout)
    if not layout.span_bytes:
        if layout.stride is not None and layout.stride < columns:
            return f"a pitch of {layout.stride} is less than the {columns} columns"
        return ""
    if columns * type.dtype.bits % (8 * layout.span_bytes):
        return f"rows of {columns * type.dtype.bits // 8} bytes do not fill {layout.span_bytes}"
    height = layout.stride or rows
    if height < rows or height % 8:
        return f"panels of {height} rows: a multiple of 8, at least {rows}, is needed"
    return ""


def bit_offset(type: BufferType, index: tuple[int, ...]) -> int:
    """Where an element lies: the offset of its first bit from the start of the buffer."""
    layout = _parsed(type)
    rows, columns = _in_memory(type.shape, layout)
    row, column = 0, index[-1] if index else 0
    if layout.transposed:
        row, column = index[1], index[0]
    else:
        for axis, i in enumerate(index[:-1]):
            row = row * type.shape[axis] + i
    bits = type.dtype.bits
    if not layout.span_bytes:
        return (row * (layout.stride or columns) + column) * bits
    panel, within = divmod(column * bits, 8 * layout.span_bytes)
    address = (panel * (layout.stride or rows) + row) * layout.span_bytes + within // 8
    return 8 * swizzled(address, layout.span_bytes) + within % 8


def swizzled(address: int, span_bytes: int) -> int:
    """Xor address bits from 4 up, as many as number the chunks of a row, with those from 7 up.

    Source: PTX ISA, "Swizzling modes"; CUDA driver API, CUtensorMapSwizzle.
    """
    return address ^ ((address >> 3) & (span_bytes - 16))


def buffer_bytes(type: BufferType) -> int:
    """Bytes of shared memory that one buffer takes, padding included."""
    layout = _parsed(type)
    rows, columns = _in_memory(type.shape, layout)
    if layout.span_bytes:
        panels = columns * type.dtype.bits // (8 * layout.span_bytes)
        return panels * (layout.stride or rows) * layout.span_bytes
    return (rows * (layout.stride or columns) * type.dtype.bits + 7) // 8


def buffer_alignment(type: BufferType) -> int:
    """Bytes a buffer's address is a multiple of: the period of its swizzle, or what TMA needs."""
    layout = _parsed(type)
    if layout.span_bytes:
        return 8 * layout.span_bytes
    return 128 if buffer_bytes(type) >= 16 else 8


def place_bytes(type: BufferType | RingType) -> int:
    """Bytes of shared memory that a buffer or a ring takes; a ring's buffers are all aligned."""
    if isinstance(type, BufferType):
        return buffer_bytes(type)
    align = buffer_alignment(type.buffer)
    return type.stages * (-(-buffer_bytes(type.buffer) // align) * align)


def transposed_layout(type: BufferType) -> str:
    """The layout of the transpose of a buffer of two axes."""
    layout = _parsed(type)
    return str(BufferLayout(layout.span_bytes, not layout.transposed, layout.stride))


def sliced_layout(source: BufferType, shape: tuple[int, ...]) -> str:
    """The layout of a slice whose extents divide those of `source`; empty if it has none.

    A slice of a swizzled buffer keeps whole panels and whole groups of 8 rows.
    """
    layout = parse_layout(source.layout)
    if layout is None or len(shape) != len(source.shape):
        return ""
    if any(n % s for n, s in zip(source.shape, shape, strict=True)):
        return ""
    if len(shape) != 2:
        return "row_major" if shape[1:] == source.shape[1:] else ""
    rows, columns = _in_memory(source.shape, layout)
    slice_rows, slice_columns = _in_memory(shape, layout)
    if not layout.span_bytes:
        pitch = layout.stride or columns
        stride = None if pitch == slice_columns else pitch
        return str(BufferLayout(0, layout.transposed, stride))
    slice_bits = slice_columns * source.dtype.bits
    if slice_rows % 8 or slice_bits % (8 * layout.span_bytes):
        return ""
    height = layout.stride or rows
    keeps = slice_bits == 8 * layout.span_bytes or height == slice_rows
    return str(BufferLayout(layout.span_bytes, layout.transposed, None if keeps else height))
