"""Types in bytecode: a table of them, each a tag and its parts, which name other entries.

Source: NVIDIA cuda-tile, Types.td and the bytecode reader; `cuda.tile._bytecode.type`.
"""

from __future__ import annotations

from typing import cast

from reftile.interop.cursor import Cursor
from reftile.interop.sections import TYPES, Container, read_table
from reftile.interop.type_tags import (
    DTYPES_BY_TAG,
    DYNAMIC,
    LARGEST_EXTENT,
    MULTICAST,
    MULTICAST_SINCE,
    PADDINGS,
    VIEWS_SINCE,
    Entry,
    FunctionType,
)
from reftile.interop.versions import DTYPES_SINCE, POINTER_FLAGS, UNIFIED_FLAGS, version_text
from reftile.ir.dtypes import DType
from reftile.ir.types import (
    LARGEST_RANK,
    LARGEST_TILE,
    TOKEN,
    Element,
    GatherScatterViewType,
    Padding,
    PartitionViewType,
    PointerType,
    StridedViewType,
    TensorViewType,
    TileType,
    TileViewType,
    TokenType,
    Type,
)


class TypeTable:
    """The types of a file, each read when it is first asked for."""

    def __init__(self, container: Container) -> None:
        self.version = container.version
        cursor = container.section(TYPES)
        self.items = read_table(cursor, "types", 4) if cursor is not None else []
        self.known: dict[int, Entry] = {}
        self.reading: set[int] = set()

    def entry(self, cursor: Cursor) -> Entry:
        """Read an index at `cursor` and return the type it stands for."""
        start = cursor.position
        index = cursor.choice(len(self.items), "type")
        found = self.known.get(index)
        if found is None:
            if index in self.reading:
                raise cursor.error("type", f"type {index} contains itself", start)
            self.reading.add(index)
            item = self.items[index]
            item.what = f"type {index}"
            found = self._read(item)
            item.finish()
            self.known[index] = found
            self.reading.discard(index)
        return found

    def value_type(self, cursor: Cursor) -> Type:
        """Read the type of a value: a tile, a view or a token."""
        start = cursor.position
        found = self.entry(cursor)
        if isinstance(found, (TileType, TileViewType, TensorViewType, TokenType)):
            return found
        raise cursor.error("type", f"expected the type of a value, found {_name(found)}", start)

    def tile_type(self, cursor: Cursor) -> TileType:
        """Read a tile type."""
        start = cursor.position
        found = self.entry(cursor)
        if isinstance(found, TileType):
            return found
        raise cursor.error("type", f"expected a tile, found {_name(found)}", start)

    def element(self, cursor: Cursor) -> Element:
        """Read an element type: a number or a pointer."""
        start = cursor.position
        found = self.entry(cursor)
        if isinstance(found, (DType, PointerType)):
            return found
        raise cursor.error("type", f"expected an element type, found {_name(found)}", start)

    def dtype(self, cursor: Cursor) -> DType:
        """Read the type of a number."""
        start = cursor.position
        found = self.entry(cursor)
        if isinstance(found, DType):
            return found
        raise cursor.error("type", f"expected a number type, found {_name(found)}", start)

    def function(self, cursor: Cursor) -> FunctionType:
        """Read the type of a function."""
        start = cursor.position
        found = self.entry(cursor)
        if isinstance(found, FunctionType):
            return found
        raise cursor.error("type", f"expected a function, found {_name(found)}", start)

    def _read(self, cursor: Cursor) -> Entry:
        start = cursor.position
        tag = cursor.number()
        found = DTYPES_BY_TAG.get(tag)
        if found is not None:
            self._since(cursor, found.name, DTYPES_SINCE.get(found.name, 1), start)
            return found
        match tag:
            case 17:
                return TOKEN
            case 12:
                flags = self._pointer_flags(cursor)
                pointer = PointerType(self.dtype(cursor))
                self._pointer_attribute(cursor, flags)
                return pointer
            case 13:
                element = self.element(cursor)
                return TileType(self._tile_shape(cursor, 8), element)
            case 14:
                return self._tensor_view(cursor)
            case 15:
                return self._partition_view(cursor)
            case 16:
                parameters = [self.value_type(cursor) for _ in range(cursor.count("parameters"))]
                results = [self.value_type(cursor) for _ in range(cursor.count("results"))]
                return FunctionType(tuple(parameters), tuple(results))
            case 20:
                self._since(cursor, "gather_scatter_view", VIEWS_SINCE, start)
                return self._gather_scatter_view(cursor)
            case 21:
                self._since(cursor, "strided_view", VIEWS_SINCE, start)
                return self._strided_view(cursor)
            case 130:
                raise cursor.error("unsupported", "f8e5m3 is a preview type", start)
            case _:
                raise cursor.error("type", f"no type has the tag {tag}", start)

    def _since(self, cursor: Cursor, name: str, since: int, start: int) -> None:
        if self.version < since:
            found = f"`{name}` came with {version_text(since)}"
            raise cursor.error(
                "version", f"{found}, the file is {version_text(self.version)}", start
            )

    def _pointer_flags(self, cursor: Cursor) -> int:
        start = cursor.position
        flags = cursor.number() if self.version >= POINTER_FLAGS else 0
        if flags > 1:
            raise cursor.error("flags", f"unknown flags {flags} of a pointer", start)
        return flags

    def _pointer_attribute(self, cursor: Cursor, flags: int) -> None:
        """What is said of a pointer is not kept: which operations use it says the same."""
        start = cursor.position
        known = (MULTICAST if self.version >= MULTICAST_SINCE else 0) + 1
        if flags and cursor.byte() >= known:
            raise cursor.error("enum", "there is no such attribute of a pointer", start)

    def _tile_shape(self, cursor: Cursor, size_bytes: int) -> tuple[int, ...]:
        start = cursor.position
        shape = cursor.fixed_list("extents", size_bytes)
        _check_rank(cursor, len(shape), start)
        size = 1
        for extent in shape:
            if extent < 1 or extent & (extent - 1):
                raise cursor.error(
                    "type", f"a tile's extent is a power of two, not {extent}", start
                )
            size *= extent
            if size > LARGEST_TILE:
                raise cursor.error("type", f"a tile has more than {LARGEST_TILE} elements", start)
        return shape

    def _tensor_view(self, cursor: Cursor) -> TensorViewType:
        flags = self._pointer_flags(cursor)
        element = self.element(cursor)
        shape = _dynamic(cursor, "extents")
        strides = _dynamic(cursor, "strides")
        if len(shape) != len(strides):
            raise cursor.error("type", f"{len(shape)} extents and {len(strides)} strides")
        self._pointer_attribute(cursor, flags)
        return TensorViewType(shape, element, strides)

    def _inner_view(self, cursor: Cursor) -> TensorViewType:
        start = cursor.position
        found = self.entry(cursor)
        if isinstance(found, TensorViewType):
            return found
        raise cursor.error("type", f"expected a tensor view, found {_name(found)}", start)

    def _padding(self, cursor: Cursor, flags: int) -> Padding | None:
        if flags & ~1:
            raise cursor.error("type", f"unknown flags {flags} of a view")
        if not flags:
            return None
        start = cursor.position
        name = PADDINGS.get(cursor.byte())
        if name is None:
            raise cursor.error("enum", "there is no such padding", start)
        return cast("Padding", name)

    def _partition_view(self, cursor: Cursor) -> PartitionViewType:
        unified = self.version >= UNIFIED_FLAGS
        flags = cursor.number() if unified else 0
        tile = self._tile_shape(cursor, 4)
        tensor = self._inner_view(cursor)
        dim_map = cursor.fixed_list("axes", 4)
        flags = flags if unified else cursor.number()
        return PartitionViewType(tile, tensor, dim_map, self._padding(cursor, flags))

    def _strided_view(self, cursor: Cursor) -> StridedViewType:
        flags = cursor.number()
        tile = self._tile_shape(cursor, 4)
        traversal = cursor.fixed_list("strides", 4)
        tensor = self._inner_view(cursor)
        dim_map = cursor.fixed_list("axes", 4)
        return StridedViewType(tile, traversal, tensor, dim_map, self._padding(cursor, flags))

    def _gather_scatter_view(self, cursor: Cursor) -> GatherScatterViewType:
        flags = cursor.number()
        tile = self._tile_shape(cursor, 4)
        tensor = self._inner_view(cursor)
        sparse_dim = cursor.number()
        return GatherScatterViewType(tile, tensor, sparse_dim, self._padding(cursor, flags))


def _check_rank(cursor: Cursor, rank: int, start: int) -> None:
    if rank > LARGEST_RANK:
        raise cursor.error("type", f"{rank} axes; at most {LARGEST_RANK} are supported", start)


def _name(entry: Entry) -> str:
    return "a function" if isinstance(entry, FunctionType) else f"`{entry}`"


def _dynamic(cursor: Cursor, what: str) -> tuple[int | None, ...]:
    start = cursor.position
    values = cursor.fixed_list(what, 8)
    _check_rank(cursor, len(values), start)
    for value in values:
        if not 1 <= value <= LARGEST_EXTENT and value != DYNAMIC:
            message = f"{what} are 1 to {LARGEST_EXTENT}, found {value}"
            raise cursor.error("type", message, start)
    return tuple(None if v == DYNAMIC else v for v in values)
