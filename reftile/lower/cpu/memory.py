"""Views, pointers, loads and stores."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from reftile.ir.core import Block, Op, Value
from reftile.ir.dtypes import F32, I64, DType
from reftile.ir.numbers import convert
from reftile.ir.types import (
    Element,
    GatherScatterViewType,
    PartitionViewType,
    PointerType,
    StridedViewType,
    TensorViewType,
    TileType,
    TileViewType,
)
from reftile.lower.cpu.builder import STRIP, Builder, Fill, may_alias
from reftile.lower.cpu.formats import decoded, encoded, memory_kind
from reftile.lower.cpu.literals import literal
from reftile.lower.cpu.nests import Nest, survey_tiles
from reftile.lower.cpu.tiles import Held, Index, Loops, Reach, Root, Tile

ORDERINGS = {"relaxed": "monotonic"}
_LITERAL = re.compile(r"i\d+\((-?\d+)\)")


def element_in_memory(element: Element) -> DType:
    """The type in which elements lie in memory: pointers are 64-bit integers."""
    return I64 if isinstance(element, PointerType) else element


@dataclass(slots=True, eq=False)
class TensorView:
    """A strided array: everything is the text of an i64; extents that the type has are numbers."""

    type: TensorViewType
    root: Root | None
    base: str
    start: str
    shape: tuple[str, ...]
    strides: tuple[str, ...]


@dataclass(slots=True, eq=False)
class TileView:
    """Tiles of a tensor view; extents, strides and steps are in the order of the tile's axes."""

    type: TileViewType
    tensor: TensorView
    extents: tuple[str, ...]
    strides: tuple[str, ...]
    step: tuple[int, ...]
    sparse: int = -1


# Views


def make_tensor_view(b: Builder, op: Op) -> None:
    """View memory as a strided array."""
    type = op.results[0].type
    assert isinstance(type, TensorViewType)
    pointer, *numbers = op.operands
    texts = iter([wide_unsigned(b, n) for n in numbers])
    shape = tuple(str(d) if d is not None else next(texts) for d in type.shape)
    strides = tuple(str(s) if s is not None else next(texts) for s in type.strides)
    tile = b.tile(pointer)
    base = tile.root.base if tile.root else "nowhere"
    start = b.text(pointer)
    b.env[op.results[0]] = TensorView(type, tile.root, base, start, shape, strides)


def wide_unsigned(b: Builder, value: Value) -> str:
    """A scalar as i64, read as unsigned."""
    text = b.text(value)
    wide = f"i64_of_unsigned({text})"
    if isinstance(value.owner, Block):
        op = value.owner.parent.parent if value.owner.parent else None
        if not isinstance(op, Op):
            return b.launch_constant(wide)
    number = constant_of(text)
    return str(number) if number is not None and number >= 0 else b.shared(wide, "n")


def constant_of(text: str) -> int | None:
    """The integer of a literal."""
    found = _LITERAL.fullmatch(text)
    return int(found[1]) if found else None


def make_tile_view(b: Builder, op: Op) -> None:
    """Cut a tensor view into tiles."""
    type = op.results[0].type
    tensor = b.env[op.operands[0]]
    assert isinstance(tensor, TensorView) and isinstance(type, TileViewType)
    b.env[op.results[0]] = tile_view(type, tensor)


def tile_view(type: TileViewType, tensor: TensorView) -> TileView:
    """The tiles of `type`."""
    sparse = -1
    match type:
        case PartitionViewType():
            order, step = type.dim_map, type.tile
        case StridedViewType():
            order, step = type.dim_map, type.traversal
        case GatherScatterViewType():
            order, step = tuple(range(type.rank)), (1,) * type.rank
            sparse = type.sparse_dim
        case _:
            raise TypeError(str(type))
    extents = tuple(tensor.shape[d] for d in order)
    strides = tuple(tensor.strides[d] for d in order)
    return TileView(type, tensor, extents, strides, step, sparse)


def get_extents(b: Builder, op: Op) -> None:
    """The extents of a view, or how many tiles it has."""
    view = b.env[op.operands[0]]
    for axis, result in enumerate(op.results):
        if isinstance(view, TensorView):
            text = f"i64({view.shape[axis]})"
        else:
            assert isinstance(view, TileView)
            step = view.step[axis]
            text = f"udiv_by(i64({view.extents[axis]}) + {step - 1}, i64({step}))"
        type = result.type
        assert isinstance(type, TileType)
        kind = f"i{type.dtype.bits}"
        from_wide = f"{kind}_of_signed({text})"
        b.env[result] = _variable(b, from_wide, result)


def _variable(b: Builder, text: str, value: Value) -> Tile:
    from_type = value.type
    assert isinstance(from_type, TileType)
    held = Held(_Known(from_type, text), 0)
    held.variable, held.tile = b.scalar(text), None
    return held


class _Known(Tile):
    def __init__(self, type: TileType, text: str) -> None:
        self.shape, self.element, self.text = type.shape, type.element, text

    def at(self, index: Index, nest: Loops) -> str:
        return self.text


# Where a tile of a view lies


@dataclass(slots=True, eq=False)
class Window:
    """The part of a view that an index names.

    origin: the first element along each axis; "" along the sparse one, whose rows are in `rows`.
    inside: the name of a flag that is true if no element lies outside; "" if none ever does.
    masked: axes along which one may.
    """

    view: TileView
    origin: tuple[str, ...]
    inside: str
    masked: tuple[int, ...]
    rows: Tile | None = None

    @property
    def key(self) -> tuple[object, ...]:
        """Equal for windows on the same elements."""
        return (self.view, self.origin)

    def mask(self, index: Index, nest: Loops) -> str:
        """Whether an element lies inside; "" if it does."""
        found = ""
        for axis in self.masked:
            extent = self.view.extents[axis]
            if self.rows is not None and axis == self.view.sparse:
                row = self._row(index, nest)
                part = f"nlt({row}, i64({extent}))"
            else:
                part = f"ilt(i64({self.origin[axis]} + {index[axis]}), i64({extent}))"
            part = nest.temp(part)
            found = nest.temp(f"andi({found}, {part})") if found else part
        return found

    def _row(self, index: Index, nest: Loops) -> str:
        assert self.rows is not None
        return nest.temp(f"i64_of_signed({self.rows.at((index[self.view.sparse],), nest)})")

    def element(self, index: Index, nest: Loops) -> str:
        """The number of an element, counted from the base of the tensor."""
        terms: list[str] = []
        for axis, i in enumerate(index):
            if self.rows is not None and axis == self.view.sparse:
                at = self._row(index, nest)
            else:
                origin = self.origin[axis]
                at = i if origin == "0" else (origin if i == "0" else f"({origin} + {i})")
            stride = self.view.strides[axis]
            if at != "0":
                terms.append(at if stride == "1" else nest.temp(f"{at} * {stride}"))
        return " + ".join(terms) or "0"

    def offset(self, index: Index, nest: Loops, size: int) -> str:
        """The offset in bytes from the base of the memory."""
        start = self.view.tensor.start
        number = self.element(index, nest)
        moved = f"({number}) * {size}" if size != 1 else number
        return moved if start in ("0", "i64(0)") else f"{start} + {moved}"


def window(b: Builder, op: Op, view: TileView, index: Sequence[Value]) -> Window:
    """Find the window of an index; an index outside its space ends the block."""
    origin: list[str] = []
    masked: list[int] = []
    flags: list[str] = []
    rows: Tile | None = None
    promised = op.attributes.get("inbounds")
    for axis, value in enumerate(index):
        tile, step, extent = view.type.tile[axis], view.step[axis], view.extents[axis]
        if axis == view.sparse:
            rows = b.tile(value)
            origin.append("")
            masked.append(axis)
            continue
        first = _first(b, value, step)
        origin.append(first)
        if not (first.isdigit() and extent.isdigit() and int(first) < int(extent)):
            b.fail_if(op, f"nge(i64({first}), i64({extent}))", "view.index")
        if extent.isdigit() and step == tile and int(extent) % tile == 0:
            continue
        if isinstance(promised, tuple) and promised[axis]:
            continue
        if first.isdigit() and extent.isdigit():
            if int(first) + tile <= int(extent):
                continue
            flags.append("False")
        else:
            flags.append(f"{first} + {tile} <= {extent}")
        masked.append(axis)
    inside = ""
    if rows is not None or "False" in flags:
        inside = "False"
    elif flags:
        inside = b.shared(" and ".join(flags), "whole")
    return Window(view, tuple(origin), inside, tuple(masked), rows)


def _first(b: Builder, value: Value, step: int) -> str:
    text = b.text(value)
    number = constant_of(text)
    if number is not None and number >= 0:
        return str(number * step)
    wide = f"i64_of_unsigned({text})"
    return b.shared(wide if step == 1 else f"{wide} * {step}", "o")


# Loads


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
    source, mask, padding = (_optional(b, v) for v in op.arguments[:3])
    assert source is not None
    element = _pointee(op.operands[0])
    if op.attributes.get("ordering") != "weak":
        _strong_pointer_load(b, op, block, source, mask, padding, element)
        return
    _define_load(b, op, PointerLoad(b, source, mask, padding, element), block)


def _optional(b: Builder, value: object) -> Tile | None:
    return b.tile(value) if isinstance(value, Value) else None


def _pointee(value: Value) -> DType:
    type = value.type
    assert isinstance(type, TileType) and isinstance(type.element, PointerType)
    return type.element.pointee


# Stores


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
    ordering = str(op.attributes.get("ordering"))

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
    streamed = None if strong else _streamed(b, tile, found, dtype)
    b.sweep(
        tile.shape, parts, fill, also=also, bounds=bounds, whole=bounds is None, stream=streamed
    )


LEAST_STREAM_BYTES = 1024
"""Rows of fewer bytes are not written past the caches."""


def _streamed(b: Builder, tile: Tile, found: Window, dtype: DType) -> Fill | None:
    """What fills a nest that writes rows past the caches; None if there are no long rows."""
    if dtype.elements_per_unit != 1 or not tile.shape or found.rows is not None:
        return None
    size = dtype.storage.itemsize
    bytes_of_row = tile.shape[-1] * size
    if found.view.strides[-1] != "1" or bytes_of_row < LEAST_STREAM_BYTES:
        return None
    kind = memory_kind(dtype)
    count = STRIP if tile.shape[-1] % STRIP == 0 else tile.shape[-1]
    row = b.buffer((count,), kind, last=b.frames[-1].position)

    def fill(nest: Nest) -> None:
        start = found.offset((*nest.index[:-1], nest.strip), nest, size)
        level = len(nest.levels) - 1
        value = nest.temp(encoded(tile.at(nest.index, nest), dtype))
        store = nest.access("storer", kind, row.scope)
        place = row.place((f"({nest.index[-1]} - {nest.strip})",))
        nest.do(f"{store}({row.base}, {place}, {value})")
        call = f"stream({found.view.tensor.base}, {start}, {row.base}, {count * size})"
        nest.do_after(call, level - 1)

    return fill


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
        store = nest.access("atomic_storer", kind, ORDERINGS.get(ordering, ordering))
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
        store = nest.access("atomic_half_storer", ORDERINGS.get(ordering, ordering))
    nest.do(f"{store}({tensor.base}, {place}, {mask or 'True'}, {amount}, {half})")


def store_ptr(b: Builder, op: Op, block: Block) -> None:
    """Store elements at pointers."""
    target = b.tile(op.operands[0])
    b.note_write(target.root)
    tile = b.tile(op.operands[1])
    mask = _optional(b, op.arguments[2])
    ordering = str(op.attributes.get("ordering"))
    _settle_for_store(b, tile, None, target.root, ordering != "weak")
    _settle_for_store(b, target, None, target.root, ordering != "weak")
    dtype = _pointee(op.operands[0])
    base = target.root.base if target.root else "nowhere"

    def fill(nest: Nest) -> None:
        place = target.at(nest.index, nest)
        inside = mask.at(nest.index, nest) if mask is not None else ""
        write_element(nest, base, target.root, place, inside, tile, dtype, ordering)

    parts = [target, tile] + ([mask] if mask is not None else [])
    b.sweep(tile.shape, parts, fill)


def absolute(tile: Tile) -> Tile:
    """Pointers as addresses."""
    from_root = tile.root
    if from_root is None:
        return tile
    return Absolute(tile, from_root)


class Absolute(Tile):
    """The addresses of pointers whose offsets count from a root."""

    def __init__(self, source: Tile, root: Root) -> None:
        self.source, self.base = source, root.base
        self.shape, self.element = source.shape, source.element

    def at(self, index: Index, nest: Loops) -> str:
        """See `Tile`."""
        offset = self.source.at(index, nest)
        return nest.temp(f"addi(address_of({self.base}), {offset})")

    def parts(self) -> Iterator[tuple[Tile, Reach]]:
        """See `Tile`."""
        yield self.source, "same"

    @property
    def cost(self) -> int:
        """See `Tile`."""
        return 1 + self.source.cost


# Ordered loads, which happen where they stand


def _strong_view_load(
    b: Builder, op: Op, block: Block, view: TileView, index: Sequence[Value]
) -> None:
    found = window(b, op, view, index)
    b.settle(None)
    dtype = element_in_memory(view.type.element)
    kind = "i8" if dtype.elements_per_unit == 2 else memory_kind(dtype)
    ordering = ORDERINGS.get(str(op.attributes["ordering"]), str(op.attributes["ordering"]))
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
    ordering = ORDERINGS.get(str(op.attributes["ordering"]), str(op.attributes["ordering"]))
    load = b.access("atomic_loader", memory_kind(dtype), ordering)
    base = source.root.base if source.root else "nowhere"

    def element(nest: Nest) -> str:
        place = source.at(nest.index, nest)
        inside = mask.at(nest.index, nest) if mask is not None else ""
        other = literal(0, dtype) if padding is None else padding.at(nest.index, nest)
        return _guarded(nest, load, base, place, inside, other, dtype)

    parts = [p for p in (source, mask, padding) if p is not None]
    b.materialise(op.results[0], element, parts, block)


# Read and write at once


def atomic_rmw(b: Builder, op: Op, block: Block) -> None:
    """Combine elements with memory."""
    target, value = b.tile(op.operands[0]), b.tile(op.operands[1])
    b.note_write(target.root)
    mask = _optional(b, op.arguments[2])
    b.settle(None)
    dtype = _pointee(op.operands[0])
    base = target.root.base if target.root else "nowhere"

    def element(nest: Nest) -> str:
        place = target.at(nest.index, nest)
        inside = mask.at(nest.index, nest) if mask is not None else "True"
        return _update(nest, op, base, place, inside, value.at(nest.index, nest), dtype)

    parts = [target, value] + ([mask] if mask is not None else [])
    b.materialise(op.results[0], element, parts, block)


def _update(nest: Nest, op: Op, base: str, place: str, mask: str, value: str, dtype: DType) -> str:
    mode = str(op.attributes["mode"])
    ordering = ORDERINGS.get(str(op.attributes["ordering"]), str(op.attributes["ordering"]))
    if dtype.name in ("f16", "bf16"):
        update = nest.access("narrow_adder", dtype.name, ordering)
    else:
        update = nest.access("atomic_updater", mode, memory_kind(dtype), ordering)
    return nest.once(f"{update}({base}, {place}, {mask}, {value})")


def atomic_cas(b: Builder, op: Op, block: Block) -> None:
    """Compare and swap."""
    target, expected, new = (b.tile(v) for v in op.operands[:3])
    b.note_write(target.root)
    mask = _optional(b, op.arguments[3])
    b.settle(None)
    dtype = _pointee(op.operands[0])
    base = target.root.base if target.root else "nowhere"
    ordering = ORDERINGS.get(str(op.attributes["ordering"]), str(op.attributes["ordering"]))
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
