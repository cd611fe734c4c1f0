"""Memory that is read and written at once."""

from __future__ import annotations

from reftile.ir.core import Block, Op
from reftile.ir.dtypes import DType
from reftile.lower.cpu.builder import Builder
from reftile.lower.cpu.formats import memory_kind
from reftile.lower.cpu.nests import Nest
from reftile.lower.cpu.views import (
    TileView,
    element_in_memory,
    llvm_ordering,
    optional,
    pointee,
    window,
)


def atomic_rmw(b: Builder, op: Op, block: Block) -> None:
    """Combine elements with memory."""
    target, value = b.tile(op.operands[0]), b.tile(op.operands[1])
    b.note_write(target.root)
    mask = optional(b, op.arguments[2])
    b.settle(None)
    dtype = pointee(op.operands[0])
    base = target.root.base if target.root else "nowhere"

    def element(nest: Nest) -> str:
        place = target.at(nest.index, nest)
        inside = mask.at(nest.index, nest) if mask is not None else "True"
        return _update(nest, op, base, place, inside, value.at(nest.index, nest), dtype)

    parts = [target, value] + ([mask] if mask is not None else [])
    b.materialise(op.results[0], element, parts, block)


def _update(nest: Nest, op: Op, base: str, place: str, mask: str, value: str, dtype: DType) -> str:
    mode = str(op.attributes["mode"])
    ordering = llvm_ordering(op)
    if dtype.name in ("f16", "bf16"):
        update = nest.access("narrow_adder", dtype.name, ordering)
    else:
        update = nest.access("atomic_updater", mode, memory_kind(dtype), ordering)
    return nest.once(f"{update}({base}, {place}, {mask}, {value})")


def atomic_cas(b: Builder, op: Op, block: Block) -> None:
    """Compare and swap."""
    target, expected, new = (b.tile(v) for v in op.operands[:3])
    b.note_write(target.root)
    mask = optional(b, op.arguments[3])
    b.settle(None)
    dtype = pointee(op.operands[0])
    base = target.root.base if target.root else "nowhere"
    ordering = llvm_ordering(op)
    swap = b.access("atomic_swapper", memory_kind(dtype), ordering)

    def element(nest: Nest) -> str:
        place = target.at(nest.index, nest)
        inside = mask.at(nest.index, nest) if mask is not None else "True"
        texts = (expected.at(nest.index, nest), new.at(nest.index, nest))
        return nest.once(f"{swap}({base}, {place}, {inside}, {', '.join(texts)})")

    parts = [target, expected, new] + ([mask] if mask is not None else [])
    b.materialise(op.results[0], element, parts, block)


def atomic_red_view(b: Builder, op: Op, block: Block) -> None:
    """Combine a tile with the tile of a view."""
    view, index = b.env[op.operands[0]], op.arguments[1]
    value = b.tile(op.arguments[2])  # type: ignore[arg-type]
    assert isinstance(view, TileView) and isinstance(index, tuple)
    found = window(b, op, view, index)
    b.note_write(view.tensor.root)
    b.settle(None)
    dtype = element_in_memory(view.type.element)

    def fill(nest: Nest) -> None:
        mask = found.mask(nest.index, nest) or "True"
        place = found.offset(nest.index, nest, dtype.storage.itemsize)
        _update(nest, op, view.tensor.base, place, mask, value.at(nest.index, nest), dtype)

    nest = Nest(b, value.shape)
    nest.gather([value])
    fill(nest)
    nest.write()
