"""What kernels on the CPU print: compiled code calls back, and the text is made here."""

from __future__ import annotations

import ctypes
from collections.abc import Sequence
from typing import Any

import numpy as np

from reftile.ir.formatting import format_tiles
from reftile.lower.cpu.emit import Printed
from reftile.lower.cpu.tiles import Buffer

_CALL = ctypes.CFUNCTYPE(None, ctypes.c_int64, ctypes.c_int64, ctypes.c_int64)
_DTYPES = {"b1": "?", "i8": "i1", "i16": "i2", "i32": "i4", "i64": "i8", "f32": "f4", "f64": "f8"}


class Printer:
    """Collects the texts of one launch. address: what compiled code calls.

    The code gives the number of the operation, that of the block, and the address of the thread's
    scratch memory, where the tiles are until it goes on.
    """

    def __init__(self, prints: Sequence[Printed]) -> None:
        self.prints = prints
        self.found: list[tuple[int, str]] = []
        self.failed: list[BaseException] = []
        self.call = _CALL(self._say)
        self.address = ctypes.cast(self.call, ctypes.c_void_p).value or 0

    def texts(self) -> tuple[str, ...]:
        """The texts of each block in its order, one block behind the other."""
        return tuple(text for _, text in sorted(self.found, key=lambda entry: entry[0]))

    def _say(self, number: int, block: int, scratch: int) -> None:
        # What a callback raises is lost on its way through compiled code.
        try:
            printed = self.prints[number]
            tiles = [_read(scratch, buffer) for buffer in printed.buffers]
            text = format_tiles(printed.format, tiles, [None] * len(tiles), printed.types)
            self.found.append((block, text))
        except BaseException as error:
            self.failed.append(error)


def _read(scratch: int, buffer: Buffer) -> Any:
    dtype = np.dtype(_DTYPES[buffer.kind])
    count = int(np.prod(buffer.shape, dtype=np.int64))
    data = ctypes.string_at(scratch + buffer.offset, count * dtype.itemsize)
    return np.frombuffer(data, dtype).reshape(buffer.shape)
