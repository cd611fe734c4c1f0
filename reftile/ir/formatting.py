"""The text of `print_tko`: C conversions, one tile for each."""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import Any

import numpy as np

from reftile.ir.dtypes import DTYPES, DType
from reftile.ir.types import PointerType, TileType, Type

_CONVERSION = re.compile(r"%(?:%|([-+ #0]*\d*(?:\.\d+)?)(?:hh|h|ll|l|z|j)?([diuoxXeEfFgGsp]))")


def check_format(text: str, count: int) -> None:
    """Refuse a format that `count` tiles do not fit.

    Raises:
        ValueError: more or fewer conversions than tiles, or a `%` that begins none; the text says
            which.
    """
    scalar = TileType((), DTYPES["i32"])
    zero = np.zeros((), np.int32)
    format_tiles(text, [zero] * count, [None] * count, [scalar] * count)


def format_tiles(
    text: str, data: Sequence[Any], poison: Sequence[Any], types: Sequence[Type]
) -> str:
    """Return `text` with each conversion replaced by the next tile.

    data: an array for each tile, of its shape or one that is broadcast to it. poison: where an
    element has no value, or None.

    Raises:
        ValueError: see `check_format`.
    """
    operands = list(zip(data, poison, types, strict=True))
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
        tile, lost, type = operands[used]
        assert isinstance(type, TileType)
        elements = np.broadcast_to(tile, type.shape)
        missing = np.broadcast_to(False if lost is None else lost, type.shape)
        pieces.append(_write(match[1] or "", match[2], elements, missing, type))
        used += 1
    pieces.append(_plain(text[position:]))
    if used != len(operands):
        raise ValueError(f"the format has {used} conversions for {len(operands)} operands")
    return "".join(pieces)


def _plain(text: str) -> str:
    if "%" in text:
        raise ValueError(f"{text[text.index('%') :][:5]!r} is not a conversion")
    return text


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
