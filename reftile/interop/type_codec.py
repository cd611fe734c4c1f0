"""Types in bytecode: a table of them, each a tag and its parts, which name other entries by index.

Source: NVIDIA cuda-tile, BytecodeTypeOpcodes.td and Types.td; `cuda.tile._bytecode.type`.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import cast

from reftile.interop.cursor import Cursor
from reftile.interop.emit import put_fixed_list, put_number, put_numbers
from reftile.interop.sections import TYPES, Container, read_table
from reftile.interop.versions import (
    DTYPES_SINCE,
    POINTER_FLAGS,
    UNIFIED_FLAGS,
    version_text,
)
from reftile.ir.dtypes import DTYPES, DType
from reftile.ir.enums import ENUMS
from reftile.ir.types import (
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

DTYPE_TAGS = {
    "i1": 0,
    "i8": 1,
    "i16": 2,
    "i32": 3,
    "i64": 4,
    "f16": 5,
    "bf16": 6,
    "f32": 7,
    "tf32": 8,
    "f64": 9,
    "f8e4m3": 10,
    "f8e5m2": 11,
    "f8e8m0": 18,
    "f4e2m1": 19,
    "i4": 22,
}
POINTER, TILE, TENSOR_VIEW, PARTITION_VIEW, FUNCTION, TOKEN_TAG = 12, 13, 14, 15, 16, 17
GATHER_SCATTER_VIEW, STRIDED_VIEW, PREVIEW_FLOAT = 20, 21, 130
MULTICAST, MULTICAST_SINCE = 2, 5
"""The attribute of pointers to memory of several devices, from 13.5; the others are none (0), from
13.4, and unicast (1). Found with tileirdisasm 13.5."""
VIEWS_SINCE = 3
"""Gather-scatter and strided views came with 13.3."""
DYNAMIC = -(1 << 63)
"""An extent or stride that is known only at run time."""
LARGEST_EXTENT = 10**12 - 1
"""Extents and strides of a tensor view at most, as in text."""

DTYPES_BY_TAG = {tag: DTYPES[name] for name, tag in DTYPE_TAGS.items()}
PADDINGS = {number: name for name, number in ENUMS["padding"].items()}


@dataclass(frozen=True, slots=True)
class FunctionType:
    """The type of a kernel; it is no type of values.

    multicast: the numbers of the parameters that are multicast pointers; for writing.
    """

    parameters: tuple[Type, ...]
    results: tuple[Type, ...]
    multicast: tuple[int, ...] = ()


Entry = Type | DType | FunctionType


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


def _name(entry: Entry) -> str:
    return "a function" if isinstance(entry, FunctionType) else f"`{entry}`"


def _dynamic(cursor: Cursor, what: str) -> tuple[int | None, ...]:
    start = cursor.position
    values = cursor.fixed_list(what, 8)
    for value in values:
        if not 1 <= value <= LARGEST_EXTENT and value != DYNAMIC:
            message = f"{what} are 1 to {LARGEST_EXTENT}, found {value}"
            raise cursor.error("type", message, start)
    return tuple(None if v == DYNAMIC else v for v in values)


class CannotWrite(ValueError):
    """A type, attribute or operation has no form in the version that is being written.

    since: the version that could hold it, or 0 if none can.
    """

    def __init__(self, what: str, since: int = 0) -> None:
        super().__init__(what)
        self.since = since


class TypeWriter:
    """Gives every type that is used an index."""

    def __init__(self, version: int) -> None:
        self.version = version
        self.items: dict[bytes, int] = {}
        self.known: dict[tuple[Entry, bool], int] = {}
        # NVIDIA's writers begin with these two; readers do not depend on it.
        self.index(DTYPES["i1"])
        self.index(DTYPES["i32"])

    def index(self, entry: Entry, multicast: bool = False) -> int:
        """Return the index of a type, adding it if it is new.

        multicast: whether the pointer inside, of a tile or view, is a multicast pointer.

        Raises:
            CannotWrite: the type does not exist in this version, or in Tile IR.
        """
        found = self.known.get((entry, multicast))
        if found is None:
            # Parts come first, so that an entry refers to earlier ones only.
            encoded = bytes(self._encode(entry, multicast))
            found = self.items.setdefault(encoded, len(self.items))
            self.known[entry, multicast] = found
        return found

    def _encode(self, entry: Entry, multicast: bool) -> bytearray:
        out = bytearray()
        match entry:
            case DType():
                self._dtype(out, entry)
            case PointerType():
                pointee = self.index(entry.pointee)
                put_number(out, POINTER)
                self._pointer_flags(out, multicast)
                put_number(out, pointee)
                self._pointer_attribute(out, multicast)
            case TileType():
                for extent in entry.shape:
                    if extent & (extent - 1):
                        raise CannotWrite(f"{entry}: extents are powers of two in Tile IR")
                element = self.index(entry.element, multicast)
                put_number(out, TILE)
                put_number(out, element)
                put_fixed_list(out, entry.shape, 8)
            case TensorViewType():
                element = self.index(entry.element)
                put_number(out, TENSOR_VIEW)
                self._pointer_flags(out, multicast)
                put_number(out, element)
                for values in (entry.shape, entry.strides):
                    put_fixed_list(out, [DYNAMIC if v is None else v for v in values], 8)
                self._pointer_attribute(out, multicast)
            case PartitionViewType():
                self._partition_view(out, entry, multicast)
            case StridedViewType():
                self._newer_view(entry)
                tensor = self.index(entry.tensor, multicast)
                out += bytes([STRIDED_VIEW, entry.padding is not None])
                put_fixed_list(out, entry.tile, 4)
                put_fixed_list(out, entry.traversal, 4)
                put_number(out, tensor)
                put_fixed_list(out, entry.dim_map, 4)
                self._padding(out, entry)
            case GatherScatterViewType():
                self._newer_view(entry)
                tensor = self.index(entry.tensor, multicast)
                out += bytes([GATHER_SCATTER_VIEW, entry.padding is not None])
                put_fixed_list(out, entry.tile, 4)
                put_number(out, tensor)
                put_number(out, entry.sparse_dim)
                self._padding(out, entry)
            case FunctionType():
                many = entry.multicast
                parameters = [self.index(t, i in many) for i, t in enumerate(entry.parameters)]
                put_number(out, FUNCTION)
                put_numbers(out, parameters)
                put_numbers(out, [self.index(t) for t in entry.results])
            case TokenType():
                put_number(out, TOKEN_TAG)
            case _:
                raise CannotWrite(f"Tile IR has no type {entry}")
        return out

    def _dtype(self, out: bytearray, dtype: DType) -> None:
        tag = DTYPE_TAGS.get(dtype.name)
        if tag is None:
            raise CannotWrite(f"Tile IR has no element type {dtype.name}")
        since = DTYPES_SINCE.get(dtype.name, 1)
        if since > self.version:
            raise CannotWrite(f"the element type {dtype.name}", since)
        put_number(out, tag)

    def _newer_view(self, entry: Type) -> None:
        if self.version < VIEWS_SINCE:
            raise CannotWrite(f"a {entry.kind}", VIEWS_SINCE)

    def _pointer_flags(self, out: bytearray, multicast: bool) -> None:
        if multicast and self.version < MULTICAST_SINCE:
            raise CannotWrite("a multicast pointer", MULTICAST_SINCE)
        if self.version >= POINTER_FLAGS:
            out.append(multicast)

    def _pointer_attribute(self, out: bytearray, multicast: bool) -> None:
        if multicast:
            out.append(MULTICAST)

    def _partition_view(self, out: bytearray, entry: PartitionViewType, multicast: bool) -> None:
        tensor = self.index(entry.tensor, multicast)
        put_number(out, PARTITION_VIEW)
        if self.version >= UNIFIED_FLAGS:
            out.append(entry.padding is not None)
        put_fixed_list(out, entry.tile, 4)
        put_number(out, tensor)
        put_fixed_list(out, entry.dim_map, 4)
        if self.version < UNIFIED_FLAGS:
            out.append(entry.padding is not None)
        self._padding(out, entry)

    def _padding(self, out: bytearray, entry: TileViewType) -> None:
        if entry.padding is not None:
            out.append(ENUMS["padding"][entry.padding])
