"""Loads: read where their elements are used, or where they stand if they are ordered."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from reftile.ir.core import Block, Op, Value
from reftile.ir.dtypes import F32, DType
from reftile.ir.numbers import convert
from reftile.ir.types import Element, TileViewType
from reftile.lower.cpu.builder import Builder
from reftile.lower.cpu.formats import decoded, memory_kind
from reftile.lower.cpu.literals import literal
from reftile.lower.cpu.nests import Nest
from reftile.lower.cpu.tiles import Held, Index, Loops, Reach, Tile
from reftile.lower.cpu.views import (
    TensorView,
    TileView,
    Window,
    element_in_memory,
    llvm_ordering,
    optional,
    pointee,
    window,
)


class ViewLoad(Tile):
    """A tile of a view, read where its elements are used."""

    def __init__(self, b: Builder, found: Window, element: Element) -> None:
        self.window, self.element = found, element
        self.shape = found.view.type.tile
        self.memory = found.view.tensor.root
        self.inside = found.inside
        self.padding = _padding(found.view.type)
        self.root = None

    def parts(self) -> Iterator[tuple[Tile, Reach]]:
        """See `Tile`."""
        if self.window.rows is not None:
            yield self.window.rows, "repeated"

    @property
    def cost(self) -> int:
        """See `Tile`."""
        return 1 if decoded("", self.element) == "" else 3

    def at(self, index: Index, nest: Loops) -> str:
        """See `Tile`."""
        mask = "" if nest.fast else self.window.mask(index, nest)
        tensor = self.window.view.tensor
        return read(nest, tensor, self.window, index, mask, self.padding, self.element)


def read(
    nest: Loops,
    tensor: TensorView,
    found: Window,
    index: Index,
    mask: str,
    padding: str,
    element: Element,
) -> str:
    """The text of an element of a view."""
    scope = tensor.root.scope if tensor.root else -1
    dtype = element_in_memory(element)
    if dtype.elements_per_unit == 2:
        number = nest.temp(f"i64({found.element(index, nest)})")
        # Half of a negative number is rounded down, as the shift does.
        place = f"{tensor.start} + ashr({number}, i64(1))"
        byte = _load(nest, "i8", scope, tensor.base, place, mask, "i8(0)")
        text = _half(nest, byte, number, dtype)
        return nest.temp(f"choose({mask}, {text}, {padding})") if mask else text
    kind = memory_kind(dtype)
    place = found.offset(index, nest, dtype.storage.itemsize)
    same_kind = decoded("", dtype) == ""
    text = _load(
        nest, kind, scope, tensor.base, place, mask, padding if same_kind else f"{kind}(0)"
    )
    if same_kind:
        return text
    text = nest.temp(decoded(text, dtype))
    return nest.temp(f"choose({mask}, {text}, {padding})") if mask else text


def _load(
    nest: Loops, kind: str, scope: int, base: str, place: str, mask: str, padding: str
) -> str:
    if mask:
        load = nest.access("masked_loader", kind, scope)
        return nest.temp(f"{load}({base}, {place}, {mask}, {padding})")
    load = nest.access("loader", kind, scope)
    return nest.temp(f"{load}({base}, {place})")


def _half(nest: Loops, byte: str, number: str, dtype: DType) -> str:
    """The element of four bits whose number in its view is given, out of its byte."""
    amount = f"i8_of_signed(shl(andi({number}, i64(1)), i64(2)))"
    half = nest.temp(f"andi(lshr({byte}, {amount}), i8(15))")
    text = f"ashr(shl({half}, i8(4)), i8(4))" if dtype.is_int else decoded(half, dtype)
    return nest.temp(text)


def _padding(view: TileViewType) -> str:
    """The text of the value outside the view; anything where that is poison."""
    dtype = element_in_memory(view.element)
    if view.padding is None:
        return literal(0, view.element)
    value = {
        "zero": 0.0,
        "neg_zero": -0.0,
        "nan": float("nan"),
        "pos_inf": float("inf"),
        "neg_inf": float("-inf"),
    }[view.padding]
    if dtype.is_float and dtype.bits < 64:
        value = float(convert(value, F32, dtype))  # type: ignore[arg-type]
    return literal(value, view.element)


def load_view(b: Builder, op: Op, block: Block) -> None:
    """Load a tile of a view; it is read where it is used unless the access is ordered."""
    view = b.env[op.operands[0]]
    index = op.arguments[1]
    assert isinstance(view, TileView) and isinstance(index, tuple)
    if op.attributes.get("ordering") != "weak":
        _strong_view_load(b, op, block, view, index)
        return
    found = window(b, op, view, index)
    tile = ViewLoad(b, found, view.type.element)
    _define_load(b, op, tile, block)


def _define_load(b: Builder, op: Op, tile: Tile, block: Block) -> None:
    held = b.define(op.results[0], tile, block)
    assert isinstance(held, Held)
    if not held.is_there:
        b.loads.append((held, held.last, block))


class PointerLoad(Tile):
    """Elements at pointers, read where they are used."""

    def __init__(
        self, b: Builder, source: Tile, mask: Tile | None, padding: Tile | None, element: DType
    ) -> None:
        self.source, self.mask, self.padding = source, mask, padding
        self.shape, self.element, self.memory = source.shape, element, source.root

    def parts(self) -> Iterator[tuple[Tile, Reach]]:
        """See `Tile`."""
        for part in (self.source, self.mask, self.padding):
            if part is not None:
                yield part, "same"

    @property
    def cost(self) -> int:
        """See `Tile`."""
        parts = sum(p.cost for p, _ in self.parts())
        return parts + (1 if decoded("", self.element) == "" else 3)

    def at(self, index: Index, nest: Loops) -> str:
        """See `Tile`."""
        base = self.source.root.base if self.source.root else "nowhere"
        scope = self.source.root.scope if self.source.root else -1
        place = self.source.at(index, nest)
        mask = "" if self.mask is None else self.mask.at(index, nest)
        other = literal(0, self.element)
        if self.padding is not None:
            other = self.padding.at(index, nest)
        kind = memory_kind(self.element)
        if decoded("", self.element) == "":
            return _load(nest, kind, scope, base, place, mask, other)
        text = _load(nest, kind, scope, base, place, mask, f"{kind}(0)")
        text = nest.temp(decoded(text, self.element))
        return nest.temp(f"choose({mask}, {text}, {other})") if mask else text


def load_ptr(b: Builder, op: Op, block: Block) -> None:
    """Load the elements at pointers."""
    source, mask, padding = (optional(b, v) for v in op.arguments[:3])
    assert source is not None
    element = pointee(op.operands[0])
    if op.attributes.get("ordering") != "weak":
        _strong_pointer_load(b, op, block, source, mask, padding, element)
        return
    _define_load(b, op, PointerLoad(b, source, mask, padding, element), block)


# Ordered loads, which happen where they stand


def _strong_view_load(
    b: Builder, op: Op, block: Block, view: TileView, index: Sequence[Value]
) -> None:
    found = window(b, op, view, index)
    b.settle(None)
    dtype = element_in_memory(view.type.element)
    kind = "i8" if dtype.elements_per_unit == 2 else memory_kind(dtype)
    ordering = llvm_ordering(op)
    load = b.access("atomic_loader", kind, ordering)
    padding = _padding(view.type)

    def element(nest: Nest) -> str:
        mask = found.mask(nest.index, nest)
        if dtype.elements_per_unit == 2:
            number = nest.temp(f"i64({found.element(nest.index, nest)})")
            place = f"{view.tensor.start} + ashr({number}, i64(1))"
            byte = nest.once(f"{load}({view.tensor.base}, {place}, {mask or 'True'}, i8(0))")
            text = _half(nest, byte, number, dtype)
            return nest.temp(f"choose({mask}, {text}, {padding})") if mask else text
        place = found.offset(nest.index, nest, dtype.storage.itemsize)
        return _guarded(nest, load, view.tensor.base, place, mask, padding, dtype)

    b.materialise(op.results[0], element, [found.rows] if found.rows else [], block)


def _guarded(
    nest: Nest, load: str, base: str, place: str, mask: str, other: str, dtype: DType
) -> str:
    raw = f"{memory_kind(dtype)}(0)" if memory_kind(dtype) != "b1" else "False"
    text = nest.once(f"{load}({base}, {place}, {mask or 'True'}, {raw})")
    text = nest.temp(decoded(text, dtype))
    return nest.temp(f"choose({mask}, {text}, {other})") if mask else text


def _strong_pointer_load(
    b: Builder,
    op: Op,
    block: Block,
    source: Tile,
    mask: Tile | None,
    padding: Tile | None,
    dtype: DType,
) -> None:
    b.settle(None)
    ordering = llvm_ordering(op)
    load = b.access("atomic_loader", memory_kind(dtype), ordering)
    base = source.root.base if source.root else "nowhere"

    def element(nest: Nest) -> str:
        place = source.at(nest.index, nest)
        inside = mask.at(nest.index, nest) if mask is not None else ""
        other = literal(0, dtype) if padding is None else padding.at(nest.index, nest)
        return _guarded(nest, load, base, place, inside, other, dtype)

    parts = [p for p in (source, mask, padding) if p is not None]
    b.materialise(op.results[0], element, parts, block)
