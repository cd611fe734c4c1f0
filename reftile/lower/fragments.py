"""Layouts of fragments: their text, those of products, and what operations make of them.

Everything is kept once computed: a kernel has few layouts and many values.
"""

from __future__ import annotations

from functools import cache

import numpy as np

from reftile.ir import ops
from reftile.ir.core import Value
from reftile.layout.atoms import read, show
from reftile.layout.linear import Digit, Layout
from reftile.lower.context import I32, Context, Number


@cache
def text_of(layout: Layout) -> str:
    """The text of a layout."""
    return show(layout)


@cache
def layout_of(text: str) -> Layout:
    """The layout that a type's text names."""
    return read(text)


@cache
def accumulator_layout(rows: int, columns: int) -> Layout:
    """How a warpgroup holds the result of a product: 64 rows at a time, in its registers."""
    return read(f"wgmma.m64n{columns}.d<{rows}x{columns}>")


@cache
def operand_layout(rows: int, depth: int, bits: int) -> Layout:
    """How a warpgroup holds the left operand of a product that lies in registers."""
    return read(f"wgmma.m64k{256 // bits}.b{bits}.a<{rows}x{depth}>")


@cache
def dropped(layout: Layout, axis: int) -> Layout:
    """The layout of a reduction over `axis`."""
    return layout.drop(axis)


@cache
def reshaped(layout: Layout, shape: tuple[int, ...]) -> Layout:
    """The same elements under another shape."""
    return layout.reshape(shape)


@cache
def collapsed(layout: Layout, shape: tuple[int, ...]) -> Layout:
    """The layout that a tile of `shape` needs so that repeating it along axes of 1 gives `layout`.

    Registers that only told repeated elements apart are gone, lanes and warps hold copies.
    """

    def step(digit: Digit) -> tuple[int, ...]:
        return tuple(0 if e == 1 else s for s, e in zip(digit.step, shape, strict=True))

    places: dict[str, list[Digit]] = {
        p: [Digit(d.extent, step(d), d.is_bit) for d in layout.digits(p)] for p in layout.places
    }
    places["register"] = [d for d in places.get("register", []) if any(d.step)]
    return Layout.of(shape, places)


@cache
def same(first: Layout, second: Layout) -> bool:
    """True if both hold the same elements in the same places."""
    return first == second or first.is_same(second)


@cache
def elements_at_origin(layout: Layout) -> tuple[tuple[int, ...], ...]:
    """The index of the element in each register of lane 0 of warp 0."""
    registers = np.arange(layout.extent("register"))
    axes = [np.broadcast_to(a, registers.shape) for a in layout.index(register=registers)]
    return tuple(tuple(int(a[r]) for a in axes) for r in registers)


@cache
def copies(layout: Layout) -> tuple[int, int]:
    """The bits of lane and warp that tell copies of the same elements apart, as masks.

    Where the number of warps is no power of two, every bit may.
    """
    found: list[int] = []
    for place in ("lane", "warp"):
        mask, weight = 0, 1
        for digit in layout.digits(place):
            if not any(digit.step):
                mask |= weight * (digit.extent - 1) if digit.is_bit else 31
            weight *= digit.extent
        found.append(mask)
    return found[0], found[1]


def is_first_copy(context: Context, layout: Layout) -> Value | None:
    """True in threads that hold the first copy of their elements; None if there is one only."""
    lanes, warps = copies(layout)
    if not lanes and not warps:
        return None

    def build() -> Value:
        bits: Number = 0
        if lanes:
            bits = context.binary(ops.Andi, context.lane(), lanes, "copy")
        if warps:
            more = _copy_of_warp(context, layout, warps)
            bits = more if isinstance(bits, int) else context.binary(ops.Ori, bits, more, "copy")
        return context.compare("equal", bits, 0, "first_copy")

    return context.hoist(("first_copy", layout), build)


def _copy_of_warp(context: Context, layout: Layout, bits: int) -> Value:
    """Not zero in warps that hold later copies."""
    warp = context.warp_in_role()
    if all(digit.is_bit for digit in layout.digits("warp")):
        return context.binary(ops.Andi, warp, bits, "copy")
    arguments = (context.number(_later_copies(layout)), warp)
    others = context.value(ops.Shri, arguments, I32, "others", signedness="unsigned")
    return context.binary(ops.Andi, others, 1, "copy")


def _later_copies(layout: Layout) -> int:
    """The warps that hold copies of what a warp before them has, as a mask."""
    mask, warps = 0, layout.extent("warp")
    for warp in range(warps):
        rest = warp
        for digit in layout.digits("warp"):
            rest, number = divmod(rest, digit.extent)
            if number and not any(digit.step):
                mask |= 1 << warp
    return mask


@cache
def register_of(layout: Layout) -> dict[tuple[int, ...], int]:
    """The register of lane 0 of warp 0 that holds each element it has."""
    return {index: r for r, index in enumerate(elements_at_origin(layout))}
