"""Named layouts: the fragments and memory forms that hardware prescribes, and their text.

A fragment is named like its instruction, `mma.m16n8k16.b16.a`, a memory form like its swizzle. Both
take the shape of the tile in angle brackets; memory forms also the element type, because a swizzle
moves bytes:

    wgmma.m64n96.d<64x96>
    wgmma.m64n96.d<192x192; warp 3x1; register 1x2>
    swizzle128<64x64xbf16>      swizzle64.t<128x96xf8e4m3>      row_major<64x64xbf16>

The second is six copies of the atom: three along the rows, counted by further warps, and two along
the columns, counted by further registers. `.t` exchanges the last two dimensions: the first of them
is contiguous. Where the context states the shape and the element type, as a buffer's type does, the
brackets may be left out.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from functools import cache
from types import MappingProxyType

from reftile.ir.dtypes import DTYPES
from reftile.layout.atoms_amd import CDNA3_ROWS, RDNA3_ROWS, RDNA4_ROWS
from reftile.layout.atoms_memory import row_major, swizzled, transposed
from reftile.layout.atoms_nvidia import LDMATRIX_ROWS, MMA_ROWS, WGMMA_ROWS, Row
from reftile.layout.linear import PLACES, Layout, LayoutError, Place

FRAGMENTS: Mapping[str, Row] = MappingProxyType(
    {
        row.name: row
        for rows in (MMA_ROWS, WGMMA_ROWS, LDMATRIX_ROWS, CDNA3_ROWS, RDNA3_ROWS, RDNA4_ROWS)
        for row in rows
    }
)
"""Every fragment by name."""

MEMORY_SPANS = MappingProxyType(
    {"row_major": 0, "swizzle128": 128, "swizzle64": 64, "swizzle32": 32, "swizzle16": 16}
)
"""The memory forms and the bytes that each swizzles; see `atoms_memory`."""


@cache
def fragment(name: str) -> Layout:
    """The layout of one fragment of `FRAGMENTS`.

    Raises:
        LayoutError: there is none of that name.
    """
    if name not in FRAGMENTS:
        raise LayoutError(f"no fragment is called {name!r}")
    return Layout.parse(FRAGMENTS[name].layout)


def memory(name: str, shape: Sequence[int], bits: int) -> Layout:
    """The memory form `name` (with `.t` or without) for a tile of elements of `bits` bits."""
    base, _, suffix = name.partition(".")
    if base not in MEMORY_SPANS or suffix not in ("", "t"):
        raise LayoutError(f"no memory form is called {name!r}")
    shape = tuple(shape)
    if suffix == "t":
        return transposed(memory(base, (*shape[:-2], *shape[:-3:-1]), bits))
    span = MEMORY_SPANS[base]
    return swizzled(shape, bits, span) if span else row_major(shape, bits)


def tiled(atom: Layout, place: Place, counts: Sequence[int]) -> Layout:
    """Repeat an atom over a tile, `counts[k]` times along dimension k, last dimension fastest."""
    for axis in reversed(range(len(counts))):
        atom = atom.repeat(place, axis, counts[axis])
    return atom


def cover(atom: Layout, shape: Sequence[int], warps: Sequence[int] = ()) -> Layout:
    """Repeat an atom until it fills `shape`: first over warps as given, then over registers.

    Raises:
        LayoutError: the shape is not a multiple of the atom's, times the warps'.
    """
    tile = tiled(atom, "warp", warps)
    if len(tile.shape) != len(shape):
        raise LayoutError(f"a tile of {len(shape)} dimensions has no layout of {len(tile.shape)}")
    if any(e % t for e, t in zip(shape, tile.shape, strict=True)):
        raise LayoutError(f"{tuple(shape)} is not a multiple of {tile.shape}")
    return tiled(tile, "register", [e // t for e, t in zip(shape, tile.shape, strict=True)])


# Text


def read(text: str, shape: Sequence[int] | None = None, bits: int | None = None) -> Layout:
    """Read the text of a layout, named or generic.

    shape, bits: what a name without brackets takes from its context.

    Raises:
        LayoutError: naming the part that does not read.
    """
    text = text.strip()
    name, bracket, rest = text.partition("<")
    if name == "layout":
        return Layout.parse(text)
    if bracket and not rest.endswith(">"):
        raise LayoutError(f"expected `>` at the end of {text!r}")
    head, *factors = (part.strip() for part in rest[:-1].split(";")) if bracket else ("",)
    if name in FRAGMENTS:
        layout = fragment(name)
        for factor in factors:
            layout = _factor(layout, factor)
        wanted = tuple(map(int, head.split("x"))) if head else tuple(shape or layout.shape)
        return layout if layout.shape == wanted else cover(layout, wanted)
    if head:
        *extents, dtype = head.split("x")
        shape, bits = tuple(map(int, extents)), _width(dtype)
    if shape is None or bits is None:
        raise LayoutError(f"{text!r} needs a shape and an element type, as in {name}<64x64xbf16>")
    return memory(name, shape, bits)


def _factor(layout: Layout, text: str) -> Layout:
    place, _, counts = text.partition(" ")
    if place not in PLACES or not re.fullmatch(r"\d+(x\d+)*", counts):
        raise LayoutError(f"expected a place and counts, as in `warp 2x1`, found {text!r}")
    known = PLACES[PLACES.index(place)]
    return tiled(layout, known, tuple(map(int, counts.split("x"))))


def _width(dtype: str) -> int:
    if re.fullmatch(r"b\d+", dtype):
        return int(dtype[1:])
    if dtype not in DTYPES:
        raise LayoutError(f"no element type is called {dtype!r}")
    return DTYPES[dtype].storage_bits


def show(layout: Layout, dtype: str | None = None) -> str:
    """Return the shortest text of a layout: its name if it has one, else the generic form.

    dtype: the element type of a memory form. Without one its width is found, and printed as `b16`.
    """
    if "offset" in layout.places:
        return _show_memory(layout, dtype) or str(layout)
    best: tuple[int, str] | None = None
    for name in FRAGMENTS:
        found = _show_fragment(layout, name)
        if found and (best is None or found[0] < best[0]):
            best = found
    return best[1] if best else str(layout)


def _show_memory(layout: Layout, dtype: str | None) -> str | None:
    if layout.shape != layout.cover:
        return None
    widths = {dtype: _width(dtype)} if dtype else {f"b{b}": b for b in (16, 8, 32, 4, 64)}
    for base in MEMORY_SPANS:
        for name in (base, base + ".t"):
            for label, bits in widths.items():
                try:
                    found = memory(name, layout.shape, bits)
                except LayoutError:
                    continue
                if found == layout:
                    return f"{name}<{'x'.join(map(str, layout.shape))}x{label}>"
    return None


def _show_fragment(layout: Layout, name: str) -> tuple[int, str] | None:
    """Grow the atom until it is the layout; return how many factors it took, and the text."""
    atom = fragment(name)
    if len(atom.shape) != len(layout.shape) or layout.cover != layout.shape:
        return None
    if any(e % a for e, a in zip(layout.shape, atom.shape, strict=True)):
        return None
    if any(layout.digits(p)[: len(atom.digits(p))] != atom.digits(p) for p in PLACES):
        return None
    factors = list[str]()
    while atom != layout:
        grown = _grow_once(atom, layout)
        if grown is None:
            return None
        place, atom, counts = grown
        factors.append(f"; {place} {'x'.join(map(str, counts))}")
    return len(factors), f"{name}<{'x'.join(map(str, layout.shape))}{''.join(factors)}>"


def _grow_once(atom: Layout, layout: Layout) -> tuple[Place, Layout, list[int]] | None:
    for place in layout.places:
        for axis in range(len(layout.shape)):
            grown = _grow(atom, layout, place, axis)
            if grown is not None:
                counts = [g // a for g, a in zip(grown.shape, atom.shape, strict=True)]
                return place, grown, counts
    return None


def _grow(atom: Layout, layout: Layout, place: Place, axis: int) -> Layout | None:
    """Repeat `atom` as often as `layout` does next along `axis`, if it does at all."""
    most = layout.shape[axis] // atom.shape[axis]
    for count in range(most, 1, -1):
        if most % count == 0:
            grown = atom.repeat(place, axis, count)
            if layout.digits(place)[: len(grown.digits(place))] == grown.digits(place):
                return grown
    return None
