"""Views and pointers: which memory they lead to, and where in it elements lie."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from reftile.ir.core import Block, Op, Value
from reftile.ir.dtypes import I64, DType
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
from reftile.lower.cpu.builder import Builder
from reftile.lower.cpu.tiles import Held, Index, Loops, Reach, Root, Tile

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
        if step > 1 and _is_wide(value):
            # A product with the step may wrap.
            b.fail_if(op, f"nge({b.text(value)}, i64({extent}))", "view.index")
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


def _is_wide(value: Value) -> bool:
    """Whether an index has 64 bits."""
    type = value.type
    return isinstance(type, TileType) and type.dtype.bits == 64


def _first(b: Builder, value: Value, step: int) -> str:
    text = b.text(value)
    number = constant_of(text)
    if number is not None and 0 <= number * step < 1 << 63:
        return str(number * step)
    wide = f"i64_of_unsigned({text})"
    return b.shared(wide if step == 1 else f"{wide} * {step}", "o")


# Pointers


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


def pointee(value: Value) -> DType:
    """What a pointer, or each of a tile, leads to."""
    type = value.type
    assert isinstance(type, TileType) and isinstance(type.element, PointerType)
    return type.element.pointee


def optional(b: Builder, value: object) -> Tile | None:
    """The tile of an operand that may be left out."""
    return b.tile(value) if isinstance(value, Value) else None


def llvm_ordering(op: Op) -> str:
    """The ordering of an access, as LLVM calls it; "weak" if it has none."""
    name = str(op.attributes.get("ordering"))
    return "monotonic" if name == "relaxed" else name
