"""Stores, and what must be read before them."""

from __future__ import annotations

from collections.abc import Sequence

from reftile.ir.core import Block, Op
from reftile.ir.dtypes import DType
from reftile.ir.types import PointerType
from reftile.lower.cpu.builder import Builder, may_alias
from reftile.lower.cpu.formats import encoded, memory_kind
from reftile.lower.cpu.loads import PointerLoad, ViewLoad
from reftile.lower.cpu.nests import Nest, survey_tiles
from reftile.lower.cpu.streaming import past_caches
from reftile.lower.cpu.tiles import Held, Root, Tile
from reftile.lower.cpu.views import (
    TensorView,
    TileView,
    Window,
    absolute,
    element_in_memory,
    llvm_ordering,
    optional,
    pointee,
    window,
)


def store_view(b: Builder, op: Op, block: Block) -> None:
    """Store a tile through a view; elements outside are dropped."""
    tile, view = b.tile(op.operands[0]), b.env[op.operands[1]]
    index = op.arguments[2]
    assert isinstance(view, TileView) and isinstance(index, tuple)
    found = window(b, op, view, index)
    root = view.tensor.root
    b.note_write(root)
    strong = op.attributes.get("ordering") != "weak"
    _settle_for_store(b, tile, found, root, strong)
    element = view.type.element
    dtype = element_in_memory(element)
    if isinstance(element, PointerType):
        tile = absolute(tile)
    ordering = llvm_ordering(op)

    def fill(nest: Nest) -> None:
        clipped = nest.fast or (not strong and bounds is not None)
        mask = "" if clipped else found.mask(nest.index, nest)
        if dtype.elements_per_unit == 2:
            _store_half(nest, view.tensor, found, mask, tile, dtype, ordering)
            return
        place = found.offset(nest.index, nest, dtype.storage.itemsize)
        write_element(nest, view.tensor.base, root, place, mask, tile, dtype, ordering)

    bounds: list[str] | None = None
    if found.inside and found.rows is None:
        bounds = [str(e) for e in tile.shape]
        for axis in found.masked:
            rest = f"i64({view.extents[axis]}) - {found.origin[axis]}"
            bounds[axis] = b.scalar(f"smin(i64({tile.shape[axis]}), {rest})", "n")
    parts = [tile] if found.rows is None else [tile, found.rows]
    also = [found.inside] if found.inside else []
    if also == ["False"]:
        _sweep_masked(b, tile, parts, fill, bounds)
        return
    if bounds is not None and tile.size < 64:
        bounds = None
    stream = None if strong else past_caches(b, tile, found, dtype, fill)
    b.sweep(tile.shape, parts, fill, also=also, bounds=bounds, whole=bounds is None, stream=stream)


def _sweep_masked(
    b: Builder, tile: Tile, parts: Sequence[Tile], fill: object, bounds: list[str] | None
) -> None:
    nest = Nest(b, tile.shape, bounds)
    nest.gather(parts, whole=False)
    fill(nest)  # type: ignore[operator]
    nest.write()


def _settle_for_store(
    b: Builder, tile: Tile, found: Window | None, root: Root | None, strong: bool
) -> None:
    """Read what the store may overwrite, but not what it overwrites element by element itself."""
    own = {
        id(h)
        for h in survey_tiles([tile]).order
        if not strong and _is_same_window(h, found, survey_tiles([tile]).reach[id(h)])
    }
    loads = b.loads
    b.loads = [entry for entry in loads if id(entry[0]) not in own]
    kept = [entry for entry in loads if id(entry[0]) in own]
    position = b.frames[-1].position
    late = [e for e in kept if e[1] > position]
    b.loads += late
    b.settle(None if strong else root)
    for held in survey_tiles([tile]).order:
        load = held.tile
        if not isinstance(load, ViewLoad | PointerLoad) or id(held) in own:
            continue
        if may_alias(load.memory, root):
            b.hold(held)


def _is_same_window(held: Held, found: Window | None, reach: str) -> bool:
    load = held.tile
    return (
        found is not None
        and isinstance(load, ViewLoad)
        and load.window.rows is None
        and found.rows is None
        and load.window.key == found.key
        and load.window.view.step == load.window.view.type.tile
        and reach == "same"
    )


def write_element(
    nest: Nest,
    base: str,
    root: Root | None,
    place: str,
    mask: str,
    tile: Tile,
    dtype: DType,
    ordering: str,
) -> None:
    """Write the statement that stores an element."""
    kind = memory_kind(dtype)
    value = nest.temp(encoded(tile.at(nest.index, nest), dtype))
    scope = root.scope if root else -1
    if ordering != "weak":
        store = nest.access("atomic_storer", kind, ordering)
        nest.do(f"{store}({base}, {place}, {mask or 'True'}, {value})")
        return
    if mask:
        store = nest.access("masked_storer", kind, scope)
        nest.do(f"{store}({base}, {place}, {mask}, {value})")
    else:
        store = nest.access("storer", kind, scope)
        nest.do(f"{store}({base}, {place}, {value})")


def _store_half(
    nest: Nest,
    tensor: TensorView,
    found: Window,
    mask: str,
    tile: Tile,
    dtype: DType,
    ordering: str,
) -> None:
    """Elements of four bits: their byte is read, changed and written."""
    scope = tensor.root.scope if tensor.root else -1
    text = tile.at(nest.index, nest)
    half = nest.temp(f"andi({text}, i8(15))" if dtype.is_int else encoded(text, dtype))
    number = nest.temp(f"i64({found.element(nest.index, nest)})")
    place = nest.temp(f"{tensor.start} + ashr({number}, i64(1))")
    amount = nest.temp(f"i8_of_signed(shl(andi({number}, i64(1)), i64(2)))")
    if ordering == "weak":
        store = nest.access("half_storer", scope)
    else:
        store = nest.access("atomic_half_storer", ordering)
    nest.do(f"{store}({tensor.base}, {place}, {mask or 'True'}, {amount}, {half})")


def store_ptr(b: Builder, op: Op, block: Block) -> None:
    """Store elements at pointers."""
    target = b.tile(op.operands[0])
    b.note_write(target.root)
    tile = b.tile(op.operands[1])
    mask = optional(b, op.arguments[2])
    ordering = llvm_ordering(op)
    _settle_for_store(b, tile, None, target.root, ordering != "weak")
    _settle_for_store(b, target, None, target.root, ordering != "weak")
    dtype = pointee(op.operands[0])
    base = target.root.base if target.root else "nowhere"

    def fill(nest: Nest) -> None:
        place = target.at(nest.index, nest)
        inside = mask.at(nest.index, nest) if mask is not None else ""
        write_element(nest, base, target.root, place, inside, tile, dtype, ordering)

    parts = [target, tile] + ([mask] if mask is not None else [])
    b.sweep(tile.shape, parts, fill)
