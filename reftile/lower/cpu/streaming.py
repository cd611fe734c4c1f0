"""Rows written past the caches.

A store into a cache reads the line first, which whoever writes a large array need not pay for. So
the whole lines of a row are written vector by vector with stores that leave the caches out, and
what stands before the first and behind the last of them with ordinary ones. A long row is written
at four places of it in turn, a page apart: memory answers faster than at one.
"""

from __future__ import annotations

from dataclasses import dataclass

from reftile.ir.dtypes import DType
from reftile.lower.cpu.builder import Builder, Fill, Streamed
from reftile.lower.cpu.formats import encoded, memory_kind
from reftile.lower.cpu.nests import Nest
from reftile.lower.cpu.tiles import Tile
from reftile.lower.cpu.views import Window

LEAST_BYTES = 4096
"""Rows of fewer bytes are not written past the caches: of 2 KiB they take longer that way."""
VECTOR_BYTES = 32
"""What is written at once: the widest that LLVM writes past the caches on every x86 with AVX."""
_LINE_BYTES = 64
_RUN_BYTES = 2 * _LINE_BYTES
"""What is written at one place before the next one's turn; a processor fetches lines in pairs."""
_PAGE_BYTES = 4096
_PLACES = 4


@dataclass(frozen=True, slots=True)
class _Row:
    """One row of a tile in a nest: all counts are of elements, as texts.

    lead: those before the first line. lines: those in whole lines. length: all of them.
    """

    lead: str
    lines: str
    length: int


@dataclass(frozen=True, slots=True)
class _Writer:
    """Writes the nests of one store. size: of an element, in bytes."""

    b: Builder
    tile: Tile
    found: Window
    dtype: DType
    fill: Fill
    size: int

    def write(self, first: Nest) -> None:
        """Write the lines, and what is left of the rows."""
        for part in (self._lines, self._rest):
            nest = Nest(self.b, self.tile.shape, rows=True)
            nest.take_over(first)
            nest.fast = True
            part(nest)
            nest.write(finish=False)
        self.b.line("fence()")

    def _row(self, nest: Nest) -> _Row:
        length = self.tile.shape[-1]
        start = self.found.offset((*nest.index, "0"), nest, self.size)
        address = f"address_of({self.found.view.tensor.base}) + {start}"
        before = nest.temp(f"andi(i64(0) - ({address}), i64({_LINE_BYTES - 1}))")
        lead = nest.temp(f"udiv_by({before}, i64({self.size}))")
        rest = nest.temp(f"{length} - {lead}")
        lines = nest.temp(f"{rest} - urem_by({rest}, i64({_RUN_BYTES // self.size}))")
        return _Row(lead, lines, length)

    def _lines(self, nest: Nest) -> None:
        row, index = self._row(nest), nest.index
        page, run = _PAGE_BYTES // self.size, _RUN_BYTES // self.size
        lanes = min(8, VECTOR_BYTES // self.size)
        part = nest.open(f"{row.lines}, {_PLACES * page}", "0", True)
        here = nest.temp(f"smin({row.lines} - {part}, i64({_PLACES * page}))")
        is_whole = nest.temp(f"ieq({here}, i64({_PLACES * page}))")
        places = nest.temp(f"choose({is_whole}, i64({_PLACES}), i64(1))")
        at = nest.open(f"{nest.temp(f'choose({is_whole}, i64({page}), {here})')}, {run}", "0", True)
        place = nest.open(places)
        start = nest.temp(f"{row.lead} + {part} + {place} * {page} + {at}")
        vector = nest.open(f"{start} + {run}, {lanes}", start, True)
        lane = nest.open_lanes(lanes)
        nest.index = (*index, nest.temp(f"{vector} + {lane}"))
        value = nest.temp(encoded(self.tile.at(nest.index, nest), self.dtype))
        kind = memory_kind(self.dtype)
        placer = self.b.access("vector_placer", VECTOR_BYTES)
        held = self.b.launch_constant(f"{placer}({len(self.b.lines)})")
        store = nest.access("storer", kind, -1)
        nest.do(f"{store}({held}, {lane} * {self.size}, {value})")
        offset = self.found.offset((*index, vector), nest, self.size)
        stream = nest.access("streamer", lanes * self.size)
        base = self.found.view.tensor.base
        nest.do_after(f"{stream}({base}, {offset}, {held})", len(nest.levels) - 2)

    def _rest(self, nest: Nest) -> None:
        row, index = self._row(nest), nest.index
        number = nest.open(f"{row.length} - {row.lines}")
        at = nest.temp(f"choose(ilt({number}, {row.lead}), {number}, {number} + {row.lines})")
        nest.index = (*index, at)
        self.fill(nest)


def past_caches(b: Builder, tile: Tile, found: Window, dtype: DType, fill: Fill) -> Streamed | None:
    """How a tile is written past the caches; None if it has no long rows.

    fill: writes an element in the ordinary way.
    """
    if dtype.elements_per_unit != 1 or not tile.shape or found.rows is not None:
        return None
    size = dtype.storage.itemsize
    if found.view.strides[-1] != "1" or tile.shape[-1] * size < LEAST_BYTES:
        return None
    tensor = found.view.tensor
    address = f"address_of({tensor.base}) + {tensor.start}"
    # Elements that do not lie at multiples of their size never begin at a line.
    condition = f"ieq(andi({address}, i64({size - 1})), i64(0))"
    return condition, _Writer(b, tile, found, dtype, fill, size).write
