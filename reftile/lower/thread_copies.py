"""Copies that each thread makes its part of: 16 bytes at a time, rows along the lanes."""

from __future__ import annotations

from reftile.ir import ops
from reftile.ir.core import Op, Value
from reftile.ir.types import PartitionViewType
from reftile.layout.atoms_memory import blocked
from reftile.layout.linear import Layout
from reftile.lower.context import I32, Context, Number
from reftile.lower.fragments import elements_at_origin, text_of
from reftile.lower.lower_transfers import spread_of, thread_offset
from reftile.lower.view_access import (
    TileAccess,
    element_address,
    require_alignment,
    rows_further,
    thread_index,
    tile_access,
)

CHUNK_BYTES = 16
"""What `cp.async` copies at most. Source: PTX ISA 9.2, cp.async."""


def lower_thread_copy(context: Context, op: ops.CopyIn) -> None:
    """Give each thread chunks of 16 bytes; those outside the view are filled with zeros."""
    kind = op.view.type
    place = context.place(op.destination)
    shape = place.type.shape
    if not isinstance(kind, PartitionViewType) or len(shape) != 2 or shape != kind.tile[-2:]:
        raise context.unsupported(f"copies of threads from {kind} are not lowered yet")
    if kind.padding not in (None, "zero"):
        raise context.unsupported(f"padding with {kind.padding} by threads is not lowered yet")
    per_chunk = CHUNK_BYTES * 8 // place.type.dtype.bits
    layout = blocked(shape, per_chunk, context.role.warps)
    spread = spread_of(text_of(layout), place.type)
    if (
        spread is None
        or spread.vector_bytes < CHUNK_BYTES
        or not _is_contiguous(spread.registers, per_chunk, place.type.dtype.bits // 8)
    ):
        raise context.unsupported(f"chunks of {CHUNK_BYTES} bytes do not fit {place.type}")
    access = tile_access(context, op.view, op.index)
    require_alignment(context, access, op.view, CHUNK_BYTES)
    row, column = (thread_index(context, layout, axis) for axis in (0, 1))
    inner = thread_offset(context, spread.lanes, spread.warps, spread.added)
    start = element_address(context, access, row, column)
    for first, (more_rows, more_columns) in _chunks(layout, per_chunk):
        source = rows_further(context, access, start, more_rows)
        if more_columns:
            raise context.unsupported("tiles wider than the lanes reach are not lowered yet")
        readable = _readable(context, access, context.add(row, more_rows), column)
        offset = spread.registers[first]
        at = context.exclusive_or(inner, offset & spread.mask, "chunk")
        target = context.number(context.add(at, place.address, "at"))
        context.emit(
            ops.CopyAsync,
            (source, target, readable),
            bytes=CHUNK_BYTES,
            destination_offset=offset & ~spread.mask,
        )


def _chunks(layout: Layout, per_chunk: int) -> list[tuple[int, tuple[int, ...]]]:
    """The first register of each chunk, and its element in lane 0 of warp 0."""
    elements = elements_at_origin(layout)
    return [(r, elements[r]) for r in range(0, len(elements), per_chunk)]


def _is_contiguous(registers: tuple[int, ...], per_chunk: int, size: int) -> bool:
    return all(
        registers[first + i] == registers[first] + i * size
        for first in range(0, len(registers), per_chunk)
        for i in range(per_chunk)
    )


def _readable(context: Context, access: TileAccess, row: Number, column: Number) -> Value:
    """Bytes of a chunk that lie inside the tensor: 0 to 16."""
    first = context.number(context.add(access.first_column, column, "column"))
    columns = context.number(access.column_count)
    left = context.value(ops.Subi, (columns, first), I32, "left")
    size = context.number(context.multiply(left, access.size, "bytes_left"))
    zero, most = context.number(0), context.number(CHUNK_BYTES)
    size = context.value(ops.Maxi, (size, zero), I32, "bytes_left", signedness="signed")
    size = context.value(ops.Mini, (size, most), I32, "bytes_left", signedness="signed")
    at = context.number(context.add(access.first_row, row, "row"))
    inside = context.compare("less_than", at, access.row_count, "inside")
    return context.value(ops.Select, (inside, size, zero), I32, "readable")


def lower_thread_groups(context: Context, op: Op) -> None:
    """Groups of thread copies."""
    if isinstance(op, ops.WaitCopies):
        context.emit(ops.WaitAsync, in_flight=op.in_flight)
    else:
        context.emit(ops.CommitAsync)
