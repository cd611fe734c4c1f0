"""Products in flight: descriptors, one instruction for each 64 rows and 32 bytes of k, groups."""

from __future__ import annotations

from collections.abc import Callable
from functools import cache

from reftile.ir import ops
from reftile.ir.buffer_layout import parse_layout
from reftile.ir.core import Op, Value
from reftile.ir.types import BufferType, PendingType, TileType, Type
from reftile.layout.atoms import memory
from reftile.layout.descriptors import MatrixDescriptor, matrix_descriptor
from reftile.layout.linear import Layout
from reftile.lower.context import I32, I64, Context, Place


@cache
def buffer_layout(kind: BufferType) -> Layout:
    """The layout of a buffer as a linear map. Taller panels than the buffer hold nothing above."""
    parsed = parse_layout(kind.layout)
    assert parsed is not None
    name = f"swizzle{parsed.span_bytes}" if parsed.span_bytes else "row_major"
    if parsed.stride is None:
        return memory(name + (".t" if parsed.transposed else ""), kind.shape, kind.dtype.bits)
    rows, columns = kind.shape if not parsed.transposed else kind.shape[::-1]
    whole = (parsed.stride, columns) if parsed.span_bytes else (rows, parsed.stride)
    layout = memory(name, whole, kind.dtype.bits).clip((rows, columns))
    return layout.permute((1, 0)) if parsed.transposed else layout


@cache
def descriptor_of(kind: BufferType, k_axis: int, mn: int) -> MatrixDescriptor:
    """How products read a buffer."""
    return matrix_descriptor(buffer_layout(kind), kind.dtype.bits, k_axis, mn)


def lower_open(context: Context, op: Op) -> None:
    """No code."""
    pending = op.results[0]
    context.values[pending] = context.value(ops.OpenAccumulator, (), pending.type, pending.name)


def lower_start(context: Context, op: Op) -> None:
    """Fence, instructions, commit."""
    assert isinstance(op, ops.MmaStart)
    result = op.result.type
    assert isinstance(result, PendingType)
    rows, columns = result.tile.shape
    lhs = op.operands[0]
    right = context.place(op.rhs)
    steps = right.type.shape[0] * right.type.dtype.bits // 256
    rhs_form = descriptor_of(right.type, 0, columns)
    rhs = _descriptor(context, right, rhs_form, "rhs")
    lhs_form: MatrixDescriptor | None = None
    if isinstance(lhs.type, TileType):
        left = context.scalar(lhs)
    else:
        place = context.place(lhs)
        lhs_form = descriptor_of(place.type, 1, 64)
        left = _descriptor(context, place, lhs_form, "lhs")
    accumulate = context.scalar(op.accumulate) if op.accumulate is not None else None
    acc = _accumulator(context, op, result)
    context.emit(ops.FenceProducts)
    for k in range(steps):
        for block in range(rows // 64):
            first = k == 0
            lhs_offset = lhs_form.starts[block][k] if lhs_form else _lent_offset(left, block, k)
            acc = context.value(
                ops.MultiplyAsync,
                (left, rhs, acc, accumulate if first else None),
                result,
                op.result.name,
                dtype=right.type.dtype.name,
                rows=64 * block,
                lhs_offset=lhs_offset,
                rhs_offset=rhs_form.starts[0][k],
                fresh=(first and op.acc is None) or None,
                transpose_lhs=(lhs_form is not None and not lhs_form.k_major) or None,
                transpose_rhs=(not rhs_form.k_major) or None,
            )
    context.emit(ops.CommitProducts)
    context.values[op.result] = acc


def _accumulator(context: Context, op: ops.MmaStart, result: Type) -> Value:
    if op.acc is None:
        return context.value(ops.OpenAccumulator, (), result, op.result.name)
    return context.scalar(op.acc)


def _lent_offset(lhs: Value, block: int, k: int) -> int:
    """Elements of a thread before block `block` of 64 rows and step `k`: k goes first."""
    assert isinstance(lhs.type, TileType)
    depth = lhs.type.shape[1]
    each = 64 * (256 // lhs.type.dtype.bits) // 128
    return (block * (depth * lhs.type.dtype.bits // 256) + k) * each


def _descriptor(context: Context, place: Place, form: MatrixDescriptor, name: str) -> Value:
    """That of the ring's first buffer, made once in the role, moved to the slot in 16 bytes."""

    def build() -> Value:
        start = context.value(ops.SharedAddress, (), I32, "start", offset=place.offset)
        return context.value(
            ops.MatrixDescriptor,
            (start,),
            I64,
            name,
            leading=form.leading_bytes,
            stride=form.stride_bytes,
            swizzle=form.span,
        )

    key = ("descriptor", place.offset, form.leading_bytes, form.stride_bytes, form.span)
    descriptor = context.hoist(key, build)
    for number, size in place.parts:
        wide = context.value(ops.Exti, (number,), I64, "wide", signedness="unsigned")
        chunks = context.number(size >> 4, I64)
        moved = context.value(ops.Muli, (wide, chunks), I64, "moved")
        descriptor = context.value(ops.Addi, (descriptor, moved), I64, name)
    return descriptor


def lower_wait(context: Context, op: Op) -> None:
    """The results are the registers of the pending values."""
    assert isinstance(op, ops.MmaWait)
    pending = tuple(context.scalar(p) for p in op.pending)
    new = context.emit(
        ops.WaitProducts,
        (pending,),
        tuple(v.type for v in op.values),
        tuple(v.name for v in op.values),
        in_flight=op.in_flight,
    )
    context.values.update(zip(op.values, new.results, strict=True))


PRODUCTS: dict[str, Callable[[Context, Op], None]] = {
    "mma_open": lower_open,
    "mma_start": lower_start,
    "mma_wait": lower_wait,
}
