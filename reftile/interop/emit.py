"""Writing numbers: the inverse of `cursor`."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

PADDING_BYTE = 0xCB
"""What gaps are filled with. Source: NVIDIA cuda-tile, bytecode writer."""


def put_number(buffer: bytearray, value: int) -> None:
    """Append an unsigned LEB128 number."""
    while value > 0x7F:
        buffer.append(value & 0x7F | 0x80)
        value >>= 7
    buffer.append(value)


def put_signed(buffer: bytearray, value: int) -> None:
    """Append a zigzag LEB128 number."""
    put_number(buffer, value << 1 if value >= 0 else (-value << 1) - 1)


def put_numbers(buffer: bytearray, values: Sequence[int]) -> None:
    """Append a counted list of LEB128 numbers."""
    put_number(buffer, len(values))
    for value in values:
        put_number(buffer, value)


def put_fixed_list(buffer: bytearray, values: Sequence[int], size_bytes: int) -> None:
    """Append a counted list of signed little-endian numbers."""
    put_number(buffer, len(values))
    for value in values:
        buffer += value.to_bytes(size_bytes, "little", signed=True)


def pad(buffer: bytearray, alignment: int) -> None:
    """Fill up to a multiple of `alignment`."""
    buffer += bytes([PADDING_BYTE]) * (-len(buffer) % alignment)


def put_table(buffer: bytearray, items: Iterable[bytes], offset_bytes: int) -> None:
    """Append a table: the count, aligned offsets, the items."""
    listed = list(items)
    put_number(buffer, len(listed))
    pad(buffer, offset_bytes)
    offset = 0
    for item in listed:
        buffer += offset.to_bytes(offset_bytes, "little")
        offset += len(item)
    for item in listed:
        buffer += item
