"""The types of values: tiles, pointers, views, tokens, and what `pipe` and `simt` add.

Every type is a frozen value that prints as the text form reads it. Extents and strides are in
elements;
`None` is an extent or stride known only at run time and prints as `?`.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from math import prod
from typing import Literal

from reftile.ir.dtypes import DType

Padding = Literal["zero", "neg_zero", "nan", "pos_inf", "neg_inf"]
Access = Literal["read_write", "read_only", "write_only"]

LARGEST_TILE = 1 << 26
"""Elements of a tile at most: beyond that a program is a mistake, and interpreting it would exhaust
memory."""
LARGEST_RANK = 32
"""Axes of a tile at most; NumPy has 64, and an operation may need twice those of its operands."""


class Type:
    """A type. The subclasses are the whole list; they compare by value."""

    __slots__ = ()
    kind = "type"


@dataclass(frozen=True, slots=True)
class PointerType(Type):
    """A pointer to elements of `pointee` in global memory; the element of a pointer tile."""

    pointee: DType
    kind = "ptr"

    def __str__(self) -> str:
        return f"ptr<{self.pointee.name}>"


Element = DType | PointerType


def dims(shape: tuple[int | None, ...]) -> str:
    """Write a shape as `64x?`; the empty shape as ``."""
    return "x".join("?" if d is None else str(d) for d in shape)


def _list(values: tuple[int | None, ...]) -> str:
    return "[" + ", ".join("?" if v is None else str(v) for v in values) + "]"


@dataclass(frozen=True, slots=True)
class TileType(Type):
    """A dense array of `shape` elements that one block computes on; rank 0 is a scalar.

    layout: which register of which lane holds what, as `reftile.layout.atoms` writes it; empty
        above `simt` and for scalars. It says how a tile is held, not what it is: types that
        differ in it alone are equal.
    """

    shape: tuple[int, ...]
    element: Element
    layout: str = field(default="", compare=False)
    kind = "tile"

    @property
    def rank(self) -> int:
        """The number of axes."""
        return len(self.shape)

    @property
    def size(self) -> int:
        """The number of elements."""
        return prod(self.shape)

    @property
    def dtype(self) -> DType:
        """The element type of a tile of numbers (the pointee of a pointer is not one)."""
        if isinstance(self.element, PointerType):
            raise TypeError(f"{self} holds pointers, not numbers")
        return self.element

    def __str__(self) -> str:
        element = self.element.name if isinstance(self.element, DType) else str(self.element)
        layout = f", layout={self.layout}" if self.layout else ""
        return f"tile<{dims(self.shape)}{'x' if self.shape else ''}{element}{layout}>"


@dataclass(frozen=True, slots=True)
class TokenType(Type):
    """An ordering dependency between memory operations; it has no run-time representation."""

    kind = "token"

    def __str__(self) -> str:
        return "token"


TOKEN = TokenType()


@dataclass(frozen=True, slots=True)
class TensorViewType(Type):
    """A strided array in global memory: base, extents and strides, in elements."""

    shape: tuple[int | None, ...]
    element: Element
    strides: tuple[int | None, ...]
    access: Access = "read_write"
    kind = "tensor_view"

    @property
    def rank(self) -> int:
        """The number of axes."""
        return len(self.shape)

    def __str__(self) -> str:
        element = self.element.name if isinstance(self.element, DType) else str(self.element)
        head = f"{dims(self.shape)}{'x' if self.shape else ''}{element}"
        access = "" if self.access == "read_write" else f", access={self.access}"
        return f"tensor_view<{head}, strides={_list(self.strides)}{access}>"


class TileViewType(Type):
    """What partition, strided and gather-scatter views share: tiles of a tensor by index."""

    __slots__ = ()
    tile: tuple[int, ...]
    tensor: TensorViewType
    padding: Padding | None

    @property
    def rank(self) -> int:
        """The number of indices."""
        return len(self.tile)

    @property
    def element(self) -> Element:
        """The element type of the tiles."""
        return self.tensor.element

    @property
    def tile_type(self) -> TileType:
        """The type of one tile of the view."""
        return TileType(self.tile, self.tensor.element)


def _view_tail(view: TileViewType, dim_map: tuple[int, ...] | None) -> str:
    parts = [f"tile=({dims(view.tile)})", str(view.tensor)]
    if dim_map is not None and dim_map != tuple(range(len(dim_map))):
        parts.append(f"dim_map={_list(dim_map)}")
    if view.padding is not None:
        parts.append(f"padding={view.padding}")
    return ", ".join(parts)


@dataclass(frozen=True, slots=True)
class PartitionViewType(TileViewType):
    """Non-overlapping tiles of a tensor. Axis `i` of the tile lies along axis `dim_map[i]`."""

    tile: tuple[int, ...]
    tensor: TensorViewType
    dim_map: tuple[int, ...]
    padding: Padding | None = None
    kind = "partition_view"

    def __str__(self) -> str:
        return f"partition_view<{_view_tail(self, self.dim_map)}>"


@dataclass(frozen=True, slots=True)
class StridedViewType(TileViewType):
    """Tiles whose origins step by `traversal` elements; they may overlap."""

    tile: tuple[int, ...]
    traversal: tuple[int, ...]
    tensor: TensorViewType
    dim_map: tuple[int, ...]
    padding: Padding | None = None
    kind = "strided_view"

    def __str__(self) -> str:
        tail = _view_tail(self, self.dim_map)
        return f"strided_view<traversal={_list(self.traversal)}, {tail}>"


@dataclass(frozen=True, slots=True)
class GatherScatterViewType(TileViewType):
    """Tiles whose axis `sparse_dim` takes its rows from a rank-1 tile of indices."""

    tile: tuple[int, ...]
    tensor: TensorViewType
    sparse_dim: int
    padding: Padding | None = None
    kind = "gather_scatter_view"

    def __str__(self) -> str:
        return f"gather_scatter_view<sparse_dim={self.sparse_dim}, {_view_tail(self, None)}>"


@dataclass(frozen=True, slots=True)
class BufferType(Type):
    """`pipe`: a tile's place in shared memory, with the layout its bytes have there."""

    shape: tuple[int, ...]
    dtype: DType
    layout: str = "row_major"
    kind = "buffer"

    @property
    def element(self) -> DType:
        """The element type, under the name that tiles use."""
        return self.dtype

    @property
    def size_bytes(self) -> int:
        """Bytes of shared memory that one buffer takes, without padding."""
        return (prod(self.shape) * self.dtype.bits + 7) // 8

    def __str__(self) -> str:
        layout = "" if self.layout == "row_major" else f", layout={self.layout}"
        return f"buffer<{dims(self.shape)}{'x' if self.shape else ''}{self.dtype.name}{layout}>"


@dataclass(frozen=True, slots=True)
class RingType(Type):
    """`pipe`: `stages` buffers of one type, used in turn."""

    stages: int
    buffer: BufferType
    kind = "ring"

    def __str__(self) -> str:
        return f"ring<{self.stages}, {self.buffer}>"


@dataclass(frozen=True, slots=True)
class BarrierType(Type):
    """`pipe`, `simt`: an array of `count` barriers with phases, each awaiting `arrivals` arrivals.

    scope: `cta`, or `cluster` when other blocks of the cluster arrive on it.
    """

    count: int
    arrivals: int
    scope: Literal["cta", "cluster"] = "cta"
    kind = "barrier"

    def __str__(self) -> str:
        scope = "" if self.scope == "cta" else ", scope=cluster"
        return f"barrier<{self.count}, arrivals={self.arrivals}{scope}>"


@dataclass(frozen=True, slots=True)
class NamedBarrierType(Type):
    """`pipe`, `simt`: `count` barriers without phases; `threads` threads take part in each turn."""

    count: int
    threads: int
    kind = "named_barrier"

    def __str__(self) -> str:
        return f"named_barrier<{self.count}, threads={self.threads}>"


@dataclass(frozen=True, slots=True)
class PendingType(Type):
    """`pipe`, `simt`: the result of an mma still in flight. Used exactly once (affine)."""

    tile: TileType
    kind = "pending"

    def __str__(self) -> str:
        return f"pending<{str(self.tile)[5:-1]}>"


@dataclass(frozen=True, slots=True)
class TensorMapType(Type):
    """`simt`: the description of boxes of a tensor in global memory that the host has encoded."""

    rank: int
    kind = "tensor_map"

    def __str__(self) -> str:
        return f"tensor_map<{self.rank}>"


@dataclass(frozen=True, slots=True)
class FragmentType(Type):
    """`simt`: the registers in which each thread holds its part of a tile, by `layout`."""

    shape: tuple[int, ...]
    element: Element
    layout: str
    kind = "fragment"

    def __str__(self) -> str:
        element = self.element.name if isinstance(self.element, DType) else str(self.element)
        head = f"{dims(self.shape)}{'x' if self.shape else ''}{element}"
        return f"fragment<{head}, layout={self.layout}>"


def scalar(element: Element) -> TileType:
    """The rank-0 tile of `element`."""
    return TileType((), element)
