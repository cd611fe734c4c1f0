"""ldmatrix and stmatrix: 8x8 tiles of 16-bit elements. Source: PTX ISA, "ldmatrix", "stmatrix"."""

from __future__ import annotations

import numpy as np

from tests.ptx_machine import text as t
from tests.ptx_machine.errors import AccessError
from tests.ptx_machine.memory import SharedMemory, byte_indices, check_opaque, resolve
from tests.ptx_machine.operands import Decoder, Modifiers, Step, instruction
from tests.ptx_machine.warp import EVERYONE

from .access import registers_of

ROW, COLUMN = EVERYONE // 4, 2 * (EVERYONE % 4)


def parse_shape(d: Decoder, ins: t.Instruction, m: Modifiers) -> tuple[int, bool, str]:
    """Consume the modifiers; return (tiles, transposed, space)."""
    m.one("sync")
    m.one("aligned")
    m.one("m8n8")
    count = int(m.one("x1", "x2", "x4")[1])
    transposed = m.flag("trans")
    space = "shared::cta" if m.flag("shared", "shared::cta") else "generic"
    m.one("b16")
    d.sync = "aligned"
    d.count(ins, 2)
    return count, transposed, space


def rows(w, space: str, addresses: np.ndarray, count: int, write: bool):
    """Return the shared region and the element indices [8 * count, 8] of the tile rows."""
    pieces = resolve(w, space, addresses[: 8 * count], 16, 16)
    region, offsets, _ = pieces[0]
    if len(pieces) != 1 or not isinstance(region, SharedMemory):
        raise AccessError("matrix rows must lie in the CTA's shared memory")
    touched = byte_indices(offsets, 16)
    check_opaque(region, touched)
    w.touch_shared(region, touched, write=write)
    return region, (offsets // 2)[:, None] + np.arange(8)


@instruction("ldmatrix")
def build_load(d: Decoder, ins: t.Instruction, m: Modifiers) -> Step:
    """Lane 8i+r names row r of tile i; a lane receives two neighbours of row lane/4."""
    count, transposed, space = parse_shape(d, ins, m)
    puts = [d.dst(ins, part, "b32") for part in registers_of(ins.operands[0], count, m)]
    address = d.address(ins, ins.operands[1])

    def step(w) -> None:
        region, index = rows(w, space, address(w), count, write=False)
        tiles = region.view(2)[index].reshape(count, 8, 8).astype(np.uint32)
        if transposed:
            tiles = tiles.transpose(0, 2, 1)
        for tile, put in zip(tiles, puts, strict=True):
            put(w, tile[ROW, COLUMN] | tile[ROW, COLUMN + 1] << np.uint32(16))

    return step


@instruction("stmatrix")
def build_store(d: Decoder, ins: t.Instruction, m: Modifiers) -> Step:
    """The inverse of ldmatrix."""
    count, transposed, space = parse_shape(d, ins, m)
    address = d.address(ins, ins.operands[0])
    get = [d.src(ins, part, "b32") for part in registers_of(ins.operands[1], count, m)]

    def step(w) -> None:
        region, index = rows(w, space, address(w), count, write=True)
        tiles = np.zeros((count, 8, 8), np.uint16)
        for tile, value in zip(tiles, get, strict=True):
            register = value(w)
            tile[ROW, COLUMN] = register.astype(np.uint16)
            tile[ROW, COLUMN + 1] = (register >> np.uint32(16)).astype(np.uint16)
        if transposed:
            tiles = tiles.transpose(0, 2, 1)
        region.view(2)[index] = tiles.reshape(8 * count, 8)
        w.machine.progressed()

    return step


@instruction("movmatrix")
def build_move(d: Decoder, ins: t.Instruction, m: Modifiers) -> Step:
    """Transpose one 8x8 tile held in a warp's registers."""
    for word in ("sync", "aligned", "m8n8", "trans", "b16"):
        m.one(word)
    d.sync = "aligned"
    d.count(ins, 2)
    put, get = d.dst(ins, ins.operands[0], "b32"), d.src(ins, ins.operands[1], "b32")

    def step(w) -> None:
        register, tile = get(w), np.zeros((8, 8), np.uint32)
        tile[ROW, COLUMN], tile[ROW, COLUMN + 1] = (
            register & np.uint32(0xFFFF),
            register >> np.uint32(16),
        )
        tile = tile.T
        put(w, tile[ROW, COLUMN] | tile[ROW, COLUMN + 1] << np.uint32(16))

    return step
