"""Read types from text: the inverse of their `str`."""

from __future__ import annotations

import re
from functools import lru_cache
from math import prod

from reftile.ir.define import split_top
from reftile.ir.dtypes import DTYPES
from reftile.ir.types import (
    LARGEST_RANK,
    LARGEST_TILE,
    TOKEN,
    BarrierType,
    BufferType,
    Element,
    FragmentType,
    GatherScatterViewType,
    NamedBarrierType,
    PartitionViewType,
    PendingType,
    PointerType,
    RingType,
    StridedViewType,
    TensorMapType,
    TensorViewType,
    TileType,
    Type,
)

_PADDINGS = frozenset({"zero", "neg_zero", "nan", "pos_inf", "neg_inf"})


class BadType(ValueError):
    """A text is not a type; the message says what is wrong with it."""


@lru_cache(maxsize=4096)
def parse_type(text: str) -> Type:
    """Return the type that `text` writes.

    Raises:
        BadType: it writes none.
    """
    text = text.strip()
    if text == "token":
        return TOKEN
    name, bracket, rest = text.partition("<")
    if not bracket or not rest.endswith(">"):
        raise BadType(f"`{text}` is not a type")
    parser = _PARSERS.get(name.strip())
    if parser is None:
        raise BadType(f"there is no type `{name.strip()}` (types: token, {', '.join(_PARSERS)})")
    return parser(rest[:-1].strip())


def _pieces(text: str) -> list[str]:
    """Split at commas outside brackets of any kind, `<>` among them."""
    swapped = text.replace("<", "(").replace(">", ")")
    pieces: list[str] = []
    position = 0
    for part in split_top(swapped):
        start = swapped.index(part, position)
        pieces.append(text[start : start + len(part)])
        position = start + len(part)
    return pieces


def _extent(text: str) -> int | None:
    if text == "?":
        return None
    if not text.isdigit() or len(text) > 12 or int(text) == 0:
        raise BadType(f"`{text}` is not an extent (a positive integer)")
    return int(text)


_SHAPED = re.compile(r"((?:[?\d]+x)*)(.*)$", re.S)


def _shaped(text: str) -> tuple[tuple[int | None, ...], Element]:
    match = _SHAPED.match(text.strip())
    assert match is not None
    extents = tuple(_extent(t) for t in match[1].split("x")[:-1])
    return extents, parse_element(match[2])


def parse_element(text: str) -> Element:
    """Return the element type that `text` writes: a dtype or `ptr<dtype>`.

    Raises:
        BadType: it writes none.
    """
    text = text.strip()
    if text.startswith("ptr<") and text.endswith(">"):
        pointee = parse_element(text[4:-1])
        if isinstance(pointee, PointerType):
            raise BadType("pointers to pointers are not supported")
        return PointerType(pointee)
    if text not in DTYPES:
        raise BadType(f"`{text}` is not an element type (one of {', '.join(DTYPES)})")
    return DTYPES[text]


def _static(text: str) -> tuple[tuple[int, ...], Element]:
    shape, element = _shaped(text)
    if any(e is None for e in shape):
        raise BadType(f"`{text}` needs a static shape")
    static = tuple(e for e in shape if e is not None)
    if len(static) > LARGEST_RANK:
        raise BadType(f"a tile of rank {len(static)}; at most {LARGEST_RANK} axes are supported")
    if prod(static) > LARGEST_TILE:
        raise BadType(f"`{text}` has {prod(static)} elements; at most {LARGEST_TILE} are supported")
    return static, element


def _tile(text: str) -> TileType:
    if "," not in text:
        return TileType(*_static(text))
    pieces = _pieces(text)
    options = _options(pieces[1:], "layout")
    return TileType(*_static(pieces[0]), layout=options.get("layout", ""))


def _options(pieces: list[str], known: str) -> dict[str, str]:
    options: dict[str, str] = {}
    for piece in pieces:
        key, equals, value = piece.partition("=")
        if not equals or key.strip() not in known.split():
            raise BadType(f"`{piece}` is not one of the parameters {known}")
        options[key.strip()] = value.strip()
    return options


def _integers(text: str) -> tuple[int | None, ...]:
    if not (text.startswith("[") and text.endswith("]")):
        raise BadType(f"`{text}` is not a list `[...]`")
    return tuple(_integer(t) for t in split_top(text[1:-1]))


def _integer(text: str) -> int | None:
    if text == "?":
        return None
    if not re.fullmatch(r"-?\d{1,18}", text):
        raise BadType(f"`{text}` is not an integer")
    return int(text)


def _static_integers(text: str) -> tuple[int, ...]:
    values = _integers(text)
    if any(v is None for v in values):
        raise BadType(f"`{text}` needs static values")
    return tuple(v for v in values if v is not None)


def _tensor_view(text: str) -> TensorViewType:
    pieces = _pieces(text)
    shape, element = _shaped(pieces[0] if pieces else "")
    options = _options(pieces[1:], "strides access")
    strides = _integers(options.get("strides", "[]"))
    if len(strides) != len(shape):
        raise BadType(f"{len(shape)} extents and {len(strides)} strides")
    access = options.get("access", "read_write")
    if access not in ("read_write", "read_only", "write_only"):
        raise BadType(f"`{access}` is not an access mode")
    return TensorViewType(shape, element, strides, access)


def _tile_view(text: str, extra: str) -> tuple[dict[str, str], tuple[int, ...], TensorViewType]:
    tensors = [p for p in _pieces(text) if p.startswith("tensor_view<")]
    if len(tensors) != 1:
        raise BadType("a view of tiles needs one tensor_view<...>")
    options = _options(
        [p for p in _pieces(text) if not p.startswith("tensor_view<")], f"tile padding {extra}"
    )
    tile_text = options.get("tile", "")
    if not (tile_text.startswith("(") and tile_text.endswith(")")):
        raise BadType("a view of tiles needs `tile=(64x64)`")
    tile = tuple(_extent(t) or 0 for t in tile_text[1:-1].split("x") if t)
    padding = options.get("padding")
    if padding is not None and padding not in _PADDINGS:
        raise BadType(f"`{padding}` is not a padding value ({', '.join(sorted(_PADDINGS))})")
    if prod(tile) > LARGEST_TILE:
        raise BadType(f"tiles of {prod(tile)} elements; at most {LARGEST_TILE} are supported")
    tensor = parse_type(tensors[0])
    assert isinstance(tensor, TensorViewType)
    return options, tile, tensor


def _dim_map(options: dict[str, str], tile: tuple[int, ...]) -> tuple[int, ...]:
    if "dim_map" not in options:
        return tuple(range(len(tile)))
    return _static_integers(options["dim_map"])


def _partition_view(text: str) -> PartitionViewType:
    options, tile, tensor = _tile_view(text, "dim_map")
    padding = options.get("padding")
    return PartitionViewType(tile, tensor, _dim_map(options, tile), padding)  # type: ignore[arg-type]


def _strided_view(text: str) -> StridedViewType:
    options, tile, tensor = _tile_view(text, "dim_map traversal")
    traversal = _static_integers(options.get("traversal", "[]"))
    padding = options.get("padding")
    return StridedViewType(tile, traversal, tensor, _dim_map(options, tile), padding)  # type: ignore[arg-type]


def _gather_scatter_view(text: str) -> GatherScatterViewType:
    options, tile, tensor = _tile_view(text, "sparse_dim")
    sparse = _integer(options.get("sparse_dim", ""))
    if sparse is None or not 0 <= sparse < len(tile):
        raise BadType("sparse_dim is outside the tile")
    return GatherScatterViewType(tile, tensor, sparse, options.get("padding"))  # type: ignore[arg-type]


def _buffer(text: str) -> BufferType:
    pieces = _pieces(text)
    shape, element = _static(pieces[0] if pieces else "")
    if isinstance(element, PointerType):
        raise BadType("buffers hold numbers, not pointers")
    options = _options(pieces[1:], "layout")
    return BufferType(shape, element, options.get("layout", "row_major"))


def _ring(text: str) -> RingType:
    pieces = _pieces(text)
    if len(pieces) != 2:
        raise BadType("a ring is written ring<stages, buffer<...>>")
    stages, buffer = _integer(pieces[0]), parse_type(pieces[1])
    if not isinstance(buffer, BufferType) or stages is None or stages < 1:
        raise BadType("a ring is written ring<stages, buffer<...>>")
    return RingType(stages, buffer)


def _barrier(text: str) -> BarrierType:
    pieces = _pieces(text)
    options = _options(pieces[1:], "arrivals scope")
    count, arrivals = _integer(pieces[0] if pieces else ""), _integer(options.get("arrivals", ""))
    scope = options.get("scope", "cta")
    if (
        count is None
        or arrivals is None
        or min(count, arrivals) < 1
        or scope not in ("cta", "cluster")
    ):
        raise BadType("a barrier is written barrier<count, arrivals=N> or with scope=cluster")
    return BarrierType(count, arrivals, scope)  # type: ignore[arg-type]


def _named_barrier(text: str) -> NamedBarrierType:
    pieces = _pieces(text)
    options = _options(pieces[1:], "threads")
    count, threads = _integer(pieces[0] if pieces else ""), _integer(options.get("threads", ""))
    if count is None or threads is None or min(count, threads) < 1:
        raise BadType("a named barrier is written named_barrier<count, threads=N>")
    return NamedBarrierType(count, threads)


def _pending(text: str) -> PendingType:
    return PendingType(_tile(text))


def _tensor_map(text: str) -> TensorMapType:
    rank = _integer(text)
    if rank is None or not 1 <= rank <= 5:
        raise BadType("a tensor map is written tensor_map<rank>, with a rank from 1 to 5")
    return TensorMapType(rank)


def _fragment(text: str) -> FragmentType:
    pieces = _pieces(text)
    shape, element = _static(pieces[0] if pieces else "")
    options = _options(pieces[1:], "layout")
    if "layout" not in options:
        raise BadType("a fragment needs a layout")
    return FragmentType(shape, element, options["layout"])


_PARSERS = {
    "tile": _tile,
    "tensor_view": _tensor_view,
    "partition_view": _partition_view,
    "strided_view": _strided_view,
    "gather_scatter_view": _gather_scatter_view,
    "buffer": _buffer,
    "ring": _ring,
    "barrier": _barrier,
    "named_barrier": _named_barrier,
    "pending": _pending,
    "fragment": _fragment,
    "tensor_map": _tensor_map,
}
