"""Memory operations of the batched path: the accesses of all blocks of a batch in one go.

Nothing is checked but that accesses stay inside buffers. Where blocks touch one address, they do so
in their order.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from math import prod
from typing import Any, NoReturn

import numpy as np

from reftile.interp.access import pointee
from reftile.interp.atomics import combine, rounds
from reftile.interp.batch import Batch, as_rows, block_ids, lead_of
from reftile.interp.memory import (
    Buffer,
    Places,
    Run,
    TooMuch,
    memory_dtype,
    read_places,
    read_run,
    resolve,
    write_places,
    write_run,
)
from reftile.interp.order import ROOT
from reftile.interp.plan import Apply, Maker, Plan
from reftile.interp.values import Array, Tile
from reftile.interp.views import (
    TensorView,
    TileView,
    elements,
    make_tensor_view,
    make_tile_view,
    padding_value,
    region,
    resolve_elements,
    whole_tiles,
    window,
)
from reftile.ir.core import Op
from reftile.ir.diagnostics import Diagnosis, ReftileError
from reftile.ir.dtypes import DType
from reftile.ir.numbers import decode, encode
from reftile.ir.types import TensorViewType, TileType, TileViewType


def _fault(op: Op, rule: str, message: str) -> ReftileError:
    return ReftileError(Diagnosis(rule, message, op.span, "run it with check=True to see where"))


def _check_writable(op: Op, buffer: Buffer | None) -> None:
    """Protect what the host has protected: it may lie in memory that cannot be written at all."""
    if buffer is not None and not buffer.writable:
        message = f"`{op.name}` writes `{buffer.name}`, which may only be read"
        raise _fault(op, "access.read_only", message)


def _tile_type(value: Any) -> TileType:
    assert isinstance(value.type, TileType)
    return value.type


# The grid, tokens and views


def _make_block_id(op: Op, plan: Plan[Batch]) -> Apply[Batch]:
    def apply(batch: Batch, values: list[Any]) -> Sequence[Any]:
        return [Tile(i.astype(np.int32)) for i in block_ids(batch)]

    return apply


def _make_num_blocks(op: Op, plan: Plan[Batch]) -> Apply[Batch]:
    return lambda batch, values: [Tile(np.array(n, np.int32)) for n in batch.shared.grid]


def _make_token(op: Op, plan: Plan[Batch]) -> Apply[Batch]:
    return lambda batch, values: (ROOT,)


def _make_identity(op: Op, plan: Plan[Batch]) -> Apply[Batch]:
    return lambda batch, values: (values[0],)


def _make_tensor_view(op: Op, plan: Plan[Batch]) -> Apply[Batch]:
    type = op.results[0].type
    assert isinstance(type, TensorViewType)
    missing = [d for d in (*type.shape, *type.strides) if d is None]
    bits = [_tile_type(v).dtype.bits for v in op.operands[1:]]
    assert len(missing) == len(bits)

    def apply(batch: Batch, values: list[Any]) -> Sequence[Any]:
        if any(t.data.ndim for t in values):
            raise _fault(
                op, "batched.unsupported", "the blocks of this kernel make different views"
            )
        address, *numbers = (int(t.data.item()) for t in values)
        sizes = iter([n & ((1 << b) - 1) for n, b in zip(numbers, bits, strict=True)])
        shape = tuple(next(sizes) if d is None else d for d in type.shape)
        strides = tuple(next(sizes) if s is None else s for s in type.strides)
        return (make_tensor_view(batch.shared.memory, type, address, shape, strides),)

    return apply


def _make_tile_view(op: Op, plan: Plan[Batch]) -> Apply[Batch]:
    type = op.results[0].type
    assert isinstance(type, TileViewType)
    return lambda batch, values: (make_tile_view(type, values[0]),)


def _make_extents(op: Op, plan: Plan[Batch]) -> Apply[Batch]:
    carriers = [_tile_type(r).dtype.carrier for r in op.results]

    def apply(batch: Batch, values: list[Any]) -> Sequence[Any]:
        view: TensorView | TileView = values[0]
        sizes = view.shape if isinstance(view, TensorView) else view.space
        return [Tile(np.array(n, np.int64).astype(c)) for n, c in zip(sizes, carriers, strict=True)]

    return apply


# Views


@dataclass(slots=True)
class _Indices:
    """The index of each block's tile in a view.

    at: by axis, an int if all blocks have the same, else an array with batch axes; along a sparse
        axis the row numbers.
    highest: by axis, the greatest; -1 for a sparse axis.
    differ: whether any axis has an array with batch axes.
    """

    at: tuple[Any, ...]
    highest: tuple[int, ...]
    differ: bool


def _indices(batch: Batch, values: Sequence[Tile], op: Op, view: TileView) -> _Indices:
    """The index along each axis, checked."""
    at: list[Any] = []
    highest: list[int] = []
    differ = False
    for axis, tile in enumerate(values):
        data = tile.data
        if axis == view.sparse:
            at.append(data)
            highest.append(-1)
            differ = differ or data.ndim > 1
            continue
        if data.ndim == 0:
            low = high = place = int(data)
        else:
            low, high, place = _span(batch, data)
            differ = True
        if low < 0 or high >= view.space[axis]:
            raise _fault(op, "view.index", "an index is outside the index space of the view")
        at.append(place)
        highest.append(high)
    return _Indices(tuple(at), tuple(highest), differ)


def _span(batch: Batch, data: Array) -> tuple[int, int, Array]:
    """(least, greatest, as NumPy indexes) of an array of indices; known if it was met before."""
    kept = batch.spans.get(id(data))
    if kept is None:
        if len(batch.spans) >= 64:
            batch.spans.clear()
        # Holding the array keeps its id from being given to another.
        found = int(data.min()), int(data.max()), data.astype(np.intp)
        kept = batch.spans[id(data)] = data, found
    return kept[1]


def _whole_tiles(view: TileView, index: _Indices) -> Array | None:
    """All tiles of a view as one array (see `views.whole_tiles`), if those at `index` are whole."""
    if view.array is None or view.sparse >= 0:
        return None
    tiles, counts = view.whole or whole_tiles(view)
    for high, count in zip(index.highest, counts, strict=True):
        if high >= count:
            return None
    return tiles


def _lead(index: _Indices, view: TileView) -> tuple[int, ...]:
    """The batch axes that the indices have together."""
    shapes = [np.shape(i)[: np.ndim(i) - (axis == view.sparse)] for axis, i in enumerate(index.at)]
    return np.broadcast_shapes(*shapes)


def _each(
    index: _Indices, view: TileView, lead: tuple[int, ...]
) -> Iterator[tuple[int, list[Any]]]:
    """(number, index) of each block along batch axes, for what is done block by block."""
    ranks = [int(axis == view.sparse) for axis in range(len(index.at))]
    columns = [as_rows(np.asarray(i), r, lead) for i, r in zip(index.at, ranks, strict=True)]
    for number in range(prod(lead)):
        yield (
            number,
            [c[number] if r else int(c[number]) for c, r in zip(columns, ranks, strict=True)],
        )


def _make_load_view(op: Op, plan: Plan[Batch]) -> Apply[Batch]:
    type, view_type = op.results[0].type, op.operands[0].type
    assert isinstance(type, TileType) and isinstance(view_type, TileViewType)
    padding = padding_value(view_type)
    padding = 0 if padding is None else padding  # which may be -0.0
    dtype = memory_dtype(type.element)

    def apply(batch: Batch, values: list[Any]) -> Sequence[Any]:
        view: TileView = values[0]
        index = _indices(batch, values[1:-1], op, view)
        tiles = _whole_tiles(view, index)
        if tiles is not None:
            units = tiles[index.at]
            # Arrays of indices make a copy, integers a view of memory.
            return Tile(decode(units if index.differ else units.copy(), dtype)), ROOT
        lead = _lead(index, view)
        data = np.full((*lead, *type.shape), padding, dtype.carrier)
        rows = data.reshape((prod(lead), *type.shape))
        for row, at in _each(index, view, lead):
            _load_one(batch, op, view, at, rows[row, ...], dtype)
        return Tile(data), ROOT

    return apply


def _load_one(
    batch: Batch, op: Op, view: TileView, index: list[Any], into: Array, dtype: DType
) -> None:
    if view.array is not None and view.sparse < 0:
        origin, extents = region(view, tuple(index))
        into[tuple(slice(0, e) for e in extents)] = decode(window(view, origin, extents), dtype)
        return
    flat = into.reshape(-1)
    for places in _places_of_view(batch, op, view, index, dtype):
        flat[places.where], _ = read_places(places, dtype)


def _places_of_view(
    batch: Batch, op: Op, view: TileView, index: list[Any], dtype: DType
) -> Sequence[Places]:
    def fault(rule: str, message: str, position: int, address: int) -> NoReturn:
        raise _fault(op, rule, message)

    arrays = [np.asarray(i) for i in index]
    return resolve_elements(batch.shared.memory, elements(view, arrays), dtype, fault)


def _make_store_view(op: Op, plan: Plan[Batch]) -> Apply[Batch]:
    type = op.operands[0].type
    assert isinstance(type, TileType)
    dtype = memory_dtype(type.element)

    def apply(batch: Batch, values: list[Any]) -> Sequence[Any]:
        tile, view = values[0], values[1]
        _check_writable(op, view.tensor.buffer)
        index = _indices(batch, values[2:-1], op, view)
        tiles = _whole_tiles(view, index)
        if tiles is not None:
            bits = encode(tile.data, dtype)
            # Of blocks that store to one place the last is to stay.
            if index.differ:
                lead = np.empty(lead_of(type.rank, tile), np.bool_)
                tiles[tuple(np.broadcast_arrays(*index.at, lead)[:-1])] = bits
            else:
                tiles[index.at] = bits[(-1,) * (bits.ndim - type.rank)]
            return (ROOT,)
        lead = np.broadcast_shapes(lead_of(type.rank, tile), _lead(index, view))
        data = as_rows(tile.data, type.rank, lead)
        for row, at in _each(index, view, lead):
            _store_one(batch, op, view, at, data[row], dtype)
        return (ROOT,)

    return apply


def _store_one(
    batch: Batch, op: Op, view: TileView, index: list[Any], data: Array, dtype: DType
) -> None:
    if view.array is not None and view.sparse < 0:
        origin, extents = region(view, tuple(index))
        inside = data[tuple(slice(0, e) for e in extents)]
        window(view, origin, extents)[...] = encode(inside, dtype)
        return
    flat = data.reshape(-1)
    for places in _places_of_view(batch, op, view, index, dtype):
        _check_writable(op, places.buffer)
        write_places(places, dtype, flat[places.where], None)


# Pointers


def _parts(
    batch: Batch, op: Op, shape: tuple[int, ...], pointers: Tile, mask: Tile | None, dtype: DType
) -> Sequence[Run | Places]:
    def fault(rule: str, message: str, position: int, address: int) -> NoReturn:
        raise _fault(op, rule, message)

    addresses = np.broadcast_to(pointers.data, shape).reshape(-1)
    active = None if mask is None else np.broadcast_to(mask.data, shape).reshape(-1)
    return resolve(batch.shared.memory, addresses, active, dtype.storage.itemsize, fault)


def _make_load_ptr(op: Op, plan: Plan[Batch]) -> Apply[Batch]:
    type = _tile_type(op.operands[0])
    dtype = pointee(type)

    def apply(batch: Batch, values: list[Any]) -> Sequence[Any]:
        source, mask, padding, _ = values
        shape = (*lead_of(type.rank, source, mask, padding), *type.shape)
        parts = _parts(batch, op, shape, source, mask, dtype)
        data = np.zeros(shape, dtype.carrier)
        if padding is not None:
            data[...] = padding.data
        flat = data.reshape(-1)
        for part in parts:
            if isinstance(part, Run):
                flat[: part.count], _ = read_run(part, dtype)
            else:
                flat[part.where], _ = read_places(part, dtype)
        return Tile(data), ROOT

    return apply


def _make_store_ptr(op: Op, plan: Plan[Batch]) -> Apply[Batch]:
    type = _tile_type(op.operands[0])
    dtype = pointee(type)

    def apply(batch: Batch, values: list[Any]) -> Sequence[Any]:
        destination, value, mask, _ = values
        shape = (*lead_of(type.rank, destination, value, mask), *type.shape)
        flat = np.broadcast_to(value.data, shape).reshape(-1)
        for part in _parts(batch, op, shape, destination, mask, dtype):
            _check_writable(op, part.buffer)
            if isinstance(part, Run):
                write_run(part, dtype, flat, None)
            else:
                write_places(part, dtype, flat[part.where], None)
        return (ROOT,)

    return apply


def _as_places(part: Run | Places) -> Places:
    if isinstance(part, Places):
        return part
    offsets = part.offset + np.arange(part.count, dtype=np.int64) * part.size_bytes
    return Places(part.buffer, offsets, np.arange(part.count), part.size_bytes)


def _make_rmw(op: Op, plan: Plan[Batch]) -> Apply[Batch]:
    type = _tile_type(op.operands[0])
    dtype, mode = pointee(type), str(op.attributes["mode"])

    def apply(batch: Batch, values: list[Any]) -> Sequence[Any]:
        pointers, argument, mask, _ = values
        # Each block adds for itself, also where all add the same to the same place.
        shape = (*batch.lead, *type.shape)
        data = np.broadcast_to(argument.data, shape).reshape(-1)
        old = np.zeros(prod(shape), dtype.carrier)
        for part in _parts(batch, op, shape, pointers, mask, dtype):
            _check_writable(op, part.buffer)
            places = _as_places(part)
            for chosen in rounds(places.offsets):
                turn = Places(
                    places.buffer,
                    places.offsets[chosen],
                    places.where[chosen],
                    places.size_bytes,
                )
                before, _ = read_places(turn, dtype)
                write_places(turn, dtype, combine(mode, before, data[turn.where], dtype), None)
                old[turn.where] = before
        return Tile(old.reshape(shape)), ROOT

    return apply


def _make_cas(op: Op, plan: Plan[Batch]) -> Apply[Batch]:
    type = _tile_type(op.operands[0])
    dtype = pointee(type)

    def apply(batch: Batch, values: list[Any]) -> Sequence[Any]:
        pointers, expected, new, mask, _ = values
        shape = (*batch.lead, *type.shape)
        wanted = np.broadcast_to(expected.data, shape).reshape(-1)
        value = np.broadcast_to(new.data, shape).reshape(-1)
        old = wanted.copy()
        for part in _parts(batch, op, shape, pointers, mask, dtype):
            _check_writable(op, part.buffer)
            places = _as_places(part)
            for chosen in rounds(places.offsets):
                at, where = places.offsets[chosen], places.where[chosen]
                turn = Places(places.buffer, at, where, places.size_bytes)
                before, _ = read_places(turn, dtype)
                equal = encode(before, dtype) == encode(wanted[where], dtype)
                hit = Places(places.buffer, at[equal], where[equal], places.size_bytes)
                write_places(hit, dtype, value[hit.where], None)
                old[where] = before
        return Tile(old.reshape(shape)), ROOT

    return apply


def _make_red_view(op: Op, plan: Plan[Batch]) -> Apply[Batch]:
    view_type = op.operands[0].type
    assert isinstance(view_type, TileViewType)
    dtype, mode = memory_dtype(view_type.element), str(op.attributes["mode"])

    def apply(batch: Batch, values: list[Any]) -> Sequence[Any]:
        view, value = values[0], values[-2]
        index = _indices(batch, values[1:-2], op, view)
        data = as_rows(value.data, len(view_type.tile), batch.lead)
        for row, at in _each(index, view, batch.lead):
            flat = data[row].reshape(-1)
            for places in _places_of_view(batch, op, view, at, dtype):
                _check_writable(op, places.buffer)
                before, _ = read_places(places, dtype)
                after = combine(mode, before, flat[places.where], dtype)
                write_places(places, dtype, after, None)
        return (ROOT,)

    return apply


# Memory of the block, globals, assertions


def _make_alloca(op: Op, plan: Plan[Batch]) -> Apply[Batch]:
    dtype = pointee(_tile_type(op.results[0]))
    count, alignment = op.attributes["num_elem"], op.attributes["alignment"]
    assert isinstance(count, int) and isinstance(alignment, int)
    size = -(-count // dtype.elements_per_unit) * dtype.storage.itemsize
    stride = -(-size // alignment) * alignment

    def apply(batch: Batch, values: list[Any]) -> Sequence[Any]:
        blocks = batch.blocks.size
        name = f"%{op.results[0].name}"
        try:
            buffer = batch.shared.memory.allocate(name, stride * blocks, dtype, alignment)
        except TooMuch as error:
            message = f"`alloca` of {error}, for {blocks} blocks"
            raise _fault(op, "alloca.memory", message) from None
        buffer.state = None
        first = buffer.address + np.arange(blocks, dtype=np.int64) * stride
        return (Tile(first.reshape(batch.lead)),)

    return apply


def _make_get_global(op: Op, plan: Plan[Batch]) -> Apply[Batch]:
    def apply(batch: Batch, values: list[Any]) -> Sequence[Any]:
        buffer = batch.shared.globals.get(str(op.attributes["symbol"]))
        if buffer is None:
            raise _fault(op, "get_global.unknown", "the module has no such global")
        return (Tile(np.array(buffer.address, np.int64)),)

    return apply


def _make_assert(op: Op, plan: Plan[Batch]) -> Apply[Batch]:
    def apply(batch: Batch, values: list[Any]) -> Sequence[Any]:
        if not values[0].data.all():
            raise _fault(op, "assert.failed", str(op.attributes["message"]))
        return ()

    return apply


def _make_unsupported(op: Op, plan: Plan[Batch]) -> Apply[Batch]:
    raise _fault(op, f"{op.name}.unsupported", f"`{op.name}` needs several devices")


BATCHED_MAKERS: dict[str, Maker[Batch]] = {
    "get_tile_block_id": _make_block_id,
    "get_num_tile_blocks": _make_num_blocks,
    "make_token": _make_token,
    "join_tokens": _make_token,
    "memory_fence_alias_tko": _make_token,
    "gdc_launch_dependents_tko": _make_token,
    "gdc_wait_tko": _make_token,
    "make_tensor_view": _make_tensor_view,
    "make_partition_view": _make_tile_view,
    "make_strided_view": _make_tile_view,
    "make_gather_scatter_view": _make_tile_view,
    "get_index_space_shape": _make_extents,
    "get_tensor_shape": _make_extents,
    "load_ptr_tko": _make_load_ptr,
    "store_ptr_tko": _make_store_ptr,
    "load_view_tko": _make_load_view,
    "store_view_tko": _make_store_view,
    "atomic_rmw_tko": _make_rmw,
    "atomic_cas_tko": _make_cas,
    "atomic_red_view_tko": _make_red_view,
    "alloca": _make_alloca,
    "get_global": _make_get_global,
    "assert": _make_assert,
    "assume": _make_identity,
    "multimem_load_reduce_view_tko": _make_unsupported,
    "multimem_reduce_view_tko": _make_unsupported,
    "multimem_store_view_tko": _make_unsupported,
}
"""How to run each of these operations for a batch of blocks."""
