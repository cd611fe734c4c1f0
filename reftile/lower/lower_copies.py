"""Asynchronous copies: boxes of bulk copies and what the host must know; copies of each thread."""

from __future__ import annotations

from collections.abc import Callable
from functools import cache

from reftile.ir import ops
from reftile.ir.core import Op, Value
from reftile.ir.types import (
    BufferType,
    PartitionViewType,
    PointerType,
    TensorMapType,
    TensorViewType,
)
from reftile.layout.descriptors import TensorBoxes, tensor_boxes
from reftile.layout.linear import LayoutError
from reftile.lower.context import Context, Number
from reftile.lower.host import host_expression, tensor_dtype
from reftile.lower.lower_barriers import barrier_address
from reftile.lower.lower_products import buffer_layout
from reftile.lower.thread_copies import lower_thread_copy, lower_thread_groups


@cache
def boxes_of(kind: BufferType) -> TensorBoxes:
    """The boxes that fill a buffer."""
    return tensor_boxes(buffer_layout(kind), kind.dtype.bits)


def lower_copy_in(context: Context, op: Op) -> None:
    """One bulk load for each box."""
    assert isinstance(op, ops.CopyIn)
    if op.engine == "thread":
        lower_thread_copy(context, op)
        return
    assert op.barrier is not None and op.slot is not None
    barrier = barrier_address(context, op.barrier, op.slot)
    mask = context.scalar(op.multicast) if op.multicast is not None else None
    for described, coordinates, address in _boxes(context, op, op.view, op.index, op.destination):
        context.emit(
            ops.LoadTensor,
            (described, coordinates, address, barrier, mask),
            evict=op.evict,
        )


def lower_copy_out(context: Context, op: Op) -> None:
    """One bulk store for each box."""
    assert isinstance(op, ops.CopyOut)
    for described, coordinates, address in _boxes(context, op, op.view, op.index, op.source):
        context.emit(ops.StoreTensor, (described, coordinates, address), mode=op.mode)


def _boxes(
    context: Context, op: Op, view: Value, index: tuple[Value, ...], buffer: Value
) -> list[tuple[Value, tuple[Value, ...], Value]]:
    """For each box: the description, where it begins in the tensor, where it lies."""
    place = context.place(buffer)
    try:
        boxes = boxes_of(place.type)
    except LayoutError as error:
        raise context.unsupported(f"%{buffer.name}: {error}") from error
    kind = view.type
    assert isinstance(kind, PartitionViewType)
    axes = _tensor_axes(kind, place.type)
    described = _tensor_map(context, view, kind, boxes, axes)
    found: list[tuple[Value, tuple[Value, ...], Value]] = []
    for start, offset in boxes.boxes:
        numbers = _coordinates(context, kind, axes, index, start)
        address = context.add(place.address, offset, "box")
        found.append((described, numbers, context.number(address)))
    return found


def _coordinates(
    context: Context,
    kind: PartitionViewType,
    axes: list[int],
    index: tuple[Value, ...],
    start: tuple[int, ...],
) -> tuple[Value, ...]:
    """Where a box begins in the tensor, innermost axis first."""
    coordinates: list[Number] = [0] * len(kind.tensor.shape)
    for axis, (number, extent) in enumerate(zip(index, kind.tile, strict=True)):
        first = context.multiply(context.scalar(number), extent, "first")
        coordinates[kind.dim_map[axis]] = first
    for axis, inside in enumerate(start):
        coordinates[axes[axis]] = context.add(coordinates[axes[axis]], inside)
    return tuple(context.number(c) for c in reversed(coordinates))


def lower_prefetch(context: Context, op: Op) -> None:
    """One prefetch for each box, by the thread that acts for the role."""
    assert isinstance(op, ops.PrefetchView)
    kind = op.view.type
    assert isinstance(kind, PartitionViewType) and not isinstance(kind.tensor.element, PointerType)
    buffer = BufferType(kind.tile, kind.tensor.element, "row_major")
    try:
        boxes = boxes_of(buffer)
    except LayoutError as error:
        raise context.unsupported(f"%{op.view.name}: {error}") from error
    axes = _tensor_axes(kind, buffer)
    described = _tensor_map(context, op.view, kind, boxes, axes)

    def fetch() -> None:
        for start, _ in boxes.boxes:
            numbers = _coordinates(context, kind, axes, op.index, start)
            context.emit(ops.PrefetchTensor, (described, numbers))

    if context.role.is_elected:
        fetch()
    else:
        context.when(context.lead(), fetch)


def _tensor_axes(view: PartitionViewType, buffer: BufferType) -> list[int]:
    """The tensor's axis along which each axis of the buffer lies; extents of 1 drop out."""
    wide = [view.dim_map[i] for i, extent in enumerate(view.tile) if extent != 1]
    rest = iter(wide)
    spare = [view.dim_map[i] for i, extent in enumerate(view.tile) if extent == 1]
    return [next(rest) if extent != 1 else spare.pop(0) for extent in buffer.shape]


def _tensor_map(
    context: Context, view: Value, kind: PartitionViewType, boxes: TensorBoxes, axes: list[int]
) -> Value:
    key = (view, boxes.extents, boxes.span)
    if key in context.maps:
        return context.maps[key]
    tensor = view.owner
    assert isinstance(tensor, ops.MakePartitionView)
    made = tensor.operands[0].owner
    assert isinstance(made, ops.MakeTensorView)
    rank = len(kind.tensor.shape)
    extents, strides = _extents(made, kind.tensor)
    order = [axes[a] for a in boxes.axes]
    if kind.tensor.strides[-1] != 1 or order[0] != rank - 1:
        raise context.unsupported(
            f"%{view.name}: the last axis must be contiguous, and innermost in the buffer",
            "give the array with its axes exchanged, and transpose the buffer: `gemm` and `T` do",
        )
    box = [1] * rank
    for axis, extent in zip(order, boxes.extents, strict=True):
        box[axis] = extent
    size = boxes.bits // 8
    described: dict[str, object] = {
        "base": made.operands[0].name,
        "element": kind.tensor.element.name,  # type: ignore[union-attr]
        "dtype": tensor_dtype(kind.tensor.element.name),  # type: ignore[union-attr]
        "extents": tuple(reversed(extents)),
        "strides": tuple(f"{s} * {size}" for s in reversed(strides[:-1])),
        "box": tuple(reversed(box)),
        "swizzle": boxes.span,
        "fill": kind.padding or "zero",
    }
    value = Value(TensorMapType(rank), f"{view.name}_map", context.entry)
    context.maps[key] = value
    context.map_attributes.append(described)  # type: ignore[arg-type]
    return value


def _extents(made: ops.MakeTensorView, kind: TensorViewType) -> tuple[list[str], list[str]]:
    """Extents and strides in elements, as host expressions, outermost axis first."""
    dynamic = list(made.operands[1:])

    def read(values: tuple[int | None, ...]) -> list[str]:
        return [host_expression(dynamic.pop(0)) if v is None else str(v) for v in values]

    assert not isinstance(kind.element, PointerType)
    return read(kind.shape), read(kind.strides)


def lower_commit(context: Context, op: Op) -> None:
    """Close a group."""
    assert isinstance(op, ops.CommitCopies)
    if op.engine == "bulk":
        context.emit(ops.CommitBulk)
    else:
        lower_thread_groups(context, op)


def lower_wait(context: Context, op: Op) -> None:
    """Wait for groups."""
    assert isinstance(op, ops.WaitCopies)
    if op.engine == "bulk":
        context.emit(ops.WaitBulk, in_flight=op.in_flight, until=op.until)
    else:
        lower_thread_groups(context, op)


COPIES: dict[str, Callable[[Context, Op], None]] = {
    "copy_in": lower_copy_in,
    "copy_out": lower_copy_out,
    "commit_copies": lower_commit,
    "prefetch_view": lower_prefetch,
    "wait_copies": lower_wait,
}
