"""Types to bytecode: the inverse of `type_read`."""

from __future__ import annotations

from math import prod

from reftile.interop.emit import put_fixed_list, put_number, put_numbers
from reftile.interop.type_tags import (
    DTYPE_TAGS,
    DYNAMIC,
    FUNCTION,
    GATHER_SCATTER_VIEW,
    MULTICAST,
    MULTICAST_SINCE,
    PARTITION_VIEW,
    POINTER,
    STRIDED_VIEW,
    TENSOR_VIEW,
    TILE,
    TOKEN_TAG,
    VIEWS_SINCE,
    Entry,
    FunctionType,
)
from reftile.interop.versions import DTYPES_SINCE, POINTER_FLAGS, UNIFIED_FLAGS
from reftile.ir.dtypes import DTYPES, DType
from reftile.ir.enums import ENUMS
from reftile.ir.types import (
    GatherScatterViewType,
    PartitionViewType,
    PointerType,
    StridedViewType,
    TensorViewType,
    TileType,
    TileViewType,
    TokenType,
    Type,
)


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
            if isinstance(entry, TileViewType):
                _check_view(entry)
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
                if entry.pointee.name == "i4":
                    raise CannotWrite("Tile IR has no pointers to i4")
                pointee = self.index(entry.pointee)
                put_number(out, POINTER)
                self._pointer_flags(out, multicast)
                put_number(out, pointee)
                self._pointer_attribute(out, multicast)
            case TileType():
                for extent in entry.shape:
                    if extent & (extent - 1):
                        raise CannotWrite(f"{entry}: extents are powers of two in Tile IR")
                self._check_four_bits(entry)
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

    def _check_four_bits(self, entry: TileType) -> None:
        """f4e2m1 is packed in pairs, in tiles and behind pointers."""
        element = entry.element
        if element == DTYPES["f4e2m1"] and prod(entry.shape) % 2:
            raise CannotWrite(f"{entry}: Tile IR packs f4e2m1 in pairs")
        if isinstance(element, PointerType) and entry.shape and element.pointee.name == "f4e2m1":
            raise CannotWrite(f"{entry}: Tile IR reaches f4e2m1 through views only")

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


def _check_view(entry: TileViewType) -> None:
    """Views have axes; those of f4e2m1, which is packed in pairs, must say along which one."""
    tensor = entry.tensor
    if not entry.tile:
        raise CannotWrite(f"{entry}: views of Tile IR have one axis or more")
    if tensor.element != DTYPES["f4e2m1"]:
        return
    packed = [axis for axis, stride in enumerate(tensor.strides) if stride == 1]
    if len(packed) != 1:
        raise CannotWrite(f"{entry}: in Tile IR, views of f4e2m1 have exactly one unit stride")
    if isinstance(entry, GatherScatterViewType) and entry.sparse_dim == packed[0]:
        raise CannotWrite(f"{entry}: Tile IR does not gather f4e2m1 along its unit stride")
