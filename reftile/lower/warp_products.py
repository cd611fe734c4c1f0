"""Products of single warps: the instruction for each pair of types, and how warps share a tile.

Source: PTX ISA 9.2, "Warp Level Matrix Multiply-Accumulate Instructions".
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import cache

from reftile.ir import ops
from reftile.ir.diagnostics import fail
from reftile.ir.types import TileType
from reftile.layout.atoms import read
from reftile.layout.linear import Digit, Layout, LayoutError
from reftile.layout.solver import Change
from reftile.lower.fragments import same


@dataclass(frozen=True, slots=True)
class Instruction:
    """One `mma.sync`: its shape, the fragments, and how it names the types."""

    m: int
    n: int
    k: int
    lhs: str
    rhs: str
    acc: str
    types: str


def _instruction(m: int, k: int, bits: int, types: str) -> Instruction:
    name = f"mma.m{m}n8k{k}.b{bits}"
    acc = f"mma.m{m}n8.d"
    return Instruction(m, 8, k, f"{name}.a", f"{name}.b", acc, types)


INSTRUCTIONS: dict[tuple[str, str], Instruction] = {
    ("bf16", "f32"): _instruction(16, 16, 16, "f32.bf16.bf16.f32"),
    ("f16", "f32"): _instruction(16, 16, 16, "f32.f16.f16.f32"),
    ("f16", "f16"): _instruction(16, 16, 16, "f16.f16.f16.f16"),
    ("tf32", "f32"): _instruction(16, 8, 32, "f32.tf32.tf32.f32"),
    ("f64", "f64"): _instruction(8, 4, 64, "f64.f64.f64.f64"),
    ("f8e4m3", "f32"): _instruction(16, 32, 8, "f32.e4m3.e4m3.f32"),
    ("f8e5m2", "f32"): _instruction(16, 32, 8, "f32.e5m2.e5m2.f32"),
    ("i8", "i32"): _instruction(16, 32, 8, "s32.{lhs}8.{rhs}8.s32"),
}
"""By the types of operands and accumulator. Of integers the text has their signs left open."""

NEEDS_SM_89 = ("f8e4m3", "f8e5m2")
"""Operands that warps of sm_80 do not multiply."""


@dataclass(frozen=True, slots=True)
class Grids:
    """The ways in which warps share a product: layouts of the accumulator, and of operands by it.

    The first is as square as the tile.
    """

    accumulators: tuple[Layout, ...]
    lhs: Change
    rhs: Change


def instruction_of(op: ops.Mmaf | ops.Mmai) -> Instruction:
    """The instruction for a product.

    Raises:
        ReftileError: there is none.
    """
    lhs, rhs, acc = (v.type for v in (op.lhs, op.rhs, op.acc))
    assert isinstance(lhs, TileType) and isinstance(rhs, TileType) and isinstance(acc, TileType)
    found = INSTRUCTIONS.get((lhs.dtype.name, acc.dtype.name))
    if len(acc.shape) != 2 or rhs.dtype != lhs.dtype or found is None:
        known = ", ".join(f"{a} into {c}" for a, c in INSTRUCTIONS)
        raise fail(
            "lower.mma",
            f"{lhs} by {rhs} into {acc} is no product of warps",
            op.span,
            f"two axes, and one of {known}",
        )
    return found


def check_target(op: ops.Mmaf | ops.Mmai, target: str) -> None:
    """Refuse what a target's warps do not multiply.

    Raises:
        ReftileError: the target lacks it.
    """
    lhs = op.lhs.type
    assert isinstance(lhs, TileType)
    if target == "sm_80" and lhs.dtype.name in NEEDS_SM_89:
        raise fail(
            "lower.mma",
            f"warps of {target} do not multiply {lhs.dtype}",
            op.span,
            "sm_89 and later do; or convert the operands to f16",
        )


def warp_grids(op: ops.Mmaf | ops.Mmai, warps: int) -> Grids:
    """How so many warps may share a product.

    Raises:
        ReftileError: they cannot.
    """
    instruction = instruction_of(op)
    lhs, acc = op.lhs.type, op.acc.type
    assert isinstance(lhs, TileType) and isinstance(acc, TileType)
    (m, n), k = acc.shape, lhs.shape[1]
    found = _grids(m, n, k, warps, instruction)
    if found is None:
        raise fail("lower.mma", f"{warps} warps cannot share a product of {m}x{n}x{k}", op.span)
    return found


@cache
def _grids(m: int, n: int, k: int, warps: int, instruction: Instruction) -> Grids | None:
    """Warps along n are a power of two; the tile's part of each is a multiple of the shape."""
    square = 1
    while (
        square * square < warps
        and n // (2 * square) >= instruction.n
        and m * square * square <= n * warps * warps
    ):
        square *= 2
    widths = [1 << i for i in range(warps.bit_length()) if warps % (1 << i) == 0]
    widths.sort(key=lambda across: (abs(across.bit_length() - square.bit_length()), across))
    grids = [
        _grid(m, n, k, warps // across, across, instruction)
        for across in widths
        if m % (instruction.m * (warps // across)) == 0
        and n % (instruction.n * across) == 0
        and k % instruction.k == 0
    ]
    if not grids:
        return None
    accumulators = tuple(acc for _, _, acc in grids)

    def side(at: int) -> Callable[[Layout], Layout]:
        def apply(layout: Layout) -> Layout:
            for grid in grids:
                if same(grid[2], layout):
                    return grid[at]
            raise LayoutError("no product of warps has such an accumulator")

        return apply

    return Grids(accumulators, Change("lhs", side(0)), Change("rhs", side(1)))


def _grid(
    m: int, n: int, k: int, down: int, across: int, instruction: Instruction
) -> tuple[Layout, Layout, Layout]:
    """Each warp has a rectangle of the result; warps go along n first."""
    rows, columns = m // down, n // across
    lhs = read(f"{instruction.lhs}<{rows}x{k}>")
    rhs = read(f"{instruction.rhs}<{k}x{columns}>")
    acc = read(f"{instruction.acc}<{rows}x{columns}>")

    def spread(
        layout: Layout, shape: tuple[int, int], steps: list[tuple[int, tuple[int, int]]]
    ) -> Layout:
        places: dict[str, list[Digit | tuple[int, tuple[int, ...]]]] = {
            p: list(layout.digits(p)) for p in layout.places
        }
        places["warp"] = list(steps)
        return Layout.of(shape, places)

    return (
        spread(lhs, (m, k), [(across, (0, 0)), (down, (rows, 0))]),
        spread(rhs, (k, n), [(across, (0, columns)), (down, (0, 0))]),
        spread(acc, (m, n), [(across, (0, columns)), (down, (rows, 0))]),
    )
