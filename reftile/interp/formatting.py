"""The text of `print_tko`: C conversions, one tile for each."""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import Any

import numpy as np

from reftile.interp.values import Tile
from reftile.ir.dtypes import DType
from reftile.ir.types import PointerType, TileType, Type

_CONVERSION = re.compile(r"%(?:%|([-+ #0]*\d*(?:\.\d+)?)(?:hh|h|ll|l|z|j)?([diuoxXeEfFgGsp]))")


def format_tiles(text: str, tiles: Sequence[Tile], types: Sequence[Type]) -> str:
    """Return `text` with each conversion replaced by the next tile.

    Raises:
        ValueError: more or fewer conversions than tiles, or a `%` that begins none; the text says
            which.
    """
    operands = list(zip(tiles, types, strict=True))
    pieces: list[str] = []
    position = used = 0
    for match in _CONVERSION.finditer(text):
        pieces.append(_plain(text[position : match.start()]))
        position = match.end()
        if match[0] == "%%":
            pieces.append("%")
            continue
        if used == len(operands):
            raise ValueError(f"the format has more conversions than its {len(operands)} operands")
        tile, type = operands[used]
        assert isinstance(type, TileType)
        pieces.append(_nested(match[1] or "", match[2], tile, type))
        used += 1
    pieces.append(_plain(text[position:]))
    if used != len(operands):
        raise ValueError(f"the format has {used} conversions for {len(operands)} operands")
    return "".join(pieces)


def _plain(text: str) -> str:
    if "%" in text:
        raise ValueError(f"{text[text.index('%') :][:5]!r} is not a conversion")
    return text


def _nested(flags: str, kind: str, tile: Tile, type: TileType) -> str:
    data = np.broadcast_to(tile.data, type.shape)
    poison = np.broadcast_to(False if tile.poison is None else tile.poison, type.shape)
    return _write(flags, kind, data, poison, type)


def _write(flags: str, kind: str, data: Any, poison: Any, type: TileType) -> str:
    if data.ndim:
        parts = (_write(flags, kind, d, p, type) for d, p in zip(data, poison, strict=True))
        return "[" + ", ".join(parts) + "]"
    if bool(poison):
        return "poison"
    value: Any = data.item()
    if isinstance(type.element, PointerType) or kind == "p":
        return f"0x{int(value):x}"
    return _number(flags, kind, value, type.element)


def _number(flags: str, kind: str, value: Any, dtype: DType) -> str:
    if kind == "s":
        return str(value)
    if kind in "eEfFgG":
        return f"%{flags}{kind}" % float(value)
    if not np.isfinite(value):
        return str(value)
    whole = int(value)
    if kind in "uoxX" and dtype.is_int:
        whole &= (1 << dtype.bits) - 1
    return f"%{flags}{kind.replace('u', 'd')}" % whole
