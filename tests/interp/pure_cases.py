"""Operations to evaluate: those of the records' examples, with random operands of their types."""

from __future__ import annotations

from collections.abc import Iterator
from functools import cache

import numpy as np

from reftile.interp.prepared import RunRegion
from reftile.interp.pure import evaluate, has_meaning
from reftile.interp.values import Array, Report, Tile
from reftile.ir.core import Block, Kernel, Op, Region, Value
from reftile.ir.dtypes import F64, DType
from reftile.ir.numbers import convert
from reftile.ir.parse import parse
from reftile.ir.records import load
from reftile.ir.types import TileType


def kernel_of(body: str) -> Kernel:
    """A kernel of the lines of an example."""
    return parse(f"tile kernel @example() {{\n{body}\nreturn\n}}\n").kernel()


def run_block(block: Block, values: dict[Value, Tile], report: Report | None) -> tuple[Tile, ...]:
    """Run pure operations; return what the block's last operation takes."""
    for op in block.ops:
        tiles = tuple(values[v] for v in op.operands)
        if op.definition.is_terminator:
            return tiles
        results = evaluate(op, tiles, region_runner(values, report), report)
        values.update(zip(op.results, results, strict=True))
    raise AssertionError("the block does not end")


def region_runner(values: dict[Value, Tile], report: Report | None = None) -> RunRegion:
    def run_region(region: Region, tiles: tuple[Tile, ...]) -> tuple[Tile, ...]:
        arguments = zip(region.block.arguments, tiles, strict=True)
        return run_block(region.block, {**values, **dict(arguments)}, report)

    return run_region


@cache
def example_ops() -> dict[str, tuple[Op, ...]]:
    """The operations with a meaning in the examples, by name."""
    found: dict[str, tuple[Op, ...]] = {}
    for name, record in load().ops.items():
        if "tile" in record.definition.levels and record.example and record.definition.is_pure:
            for op in kernel_of(record.example).body.block.ops:
                if op.name == name and has_meaning(op):
                    found[name] = (*found.get(name, ()), op)
    return found


def tile_type(value: Value) -> TileType:
    assert isinstance(value.type, TileType)
    return value.type


def random_values(type: TileType, batch: tuple[int, ...], rng: np.random.Generator) -> Array:
    """Numbers of the type, small ones often and special ones sometimes."""
    shape = (*batch, *type.shape)
    element = type.element
    if not isinstance(element, DType):
        return rng.integers(0, 1 << 40, shape)
    if element.bits == 1:
        return rng.integers(0, 2, shape).astype(np.bool_)
    if element.is_int:
        small = rng.integers(-4, 5, shape)
        full = rng.integers(element.signed_min, element.signed_max, shape, endpoint=True)
        return np.where(rng.random(shape) < 0.7, small, full).astype(element.carrier)
    special = rng.choice(np.array([0.0, -0.0, 1.0, -1.0, np.inf, -np.inf, np.nan, 1e-42]), shape)
    wide = np.where(rng.random(shape) < 0.8, rng.normal(size=shape) * 4, special)
    return convert(wide, F64, element)


def random_mask(shape: tuple[int, ...], rng: np.random.Generator) -> Array:
    return rng.random(shape) < 0.2


def bits(values: Array) -> Array:
    """The values as integers, so that NaN and -0 compare."""
    return np.ascontiguousarray(values).view(f"u{values.dtype.itemsize}")


def same_defined(left: Tile, right: Tile) -> bool:
    """Whether two tiles have the same poison, and the same bits elsewhere."""
    shape = np.broadcast_shapes(left.data.shape, right.data.shape)

    def whole(source: Array | None) -> Array:
        return np.broadcast_to(False if source is None else source, shape)

    poisoned = whole(left.poison)
    equal = bits(np.broadcast_to(left.data, shape)) == bits(np.broadcast_to(right.data, shape))
    return bool(np.array_equal(poisoned, whole(right.poison)) and np.all(equal | poisoned))


def each(
    op: Op, tiles: list[Tile], batch: tuple[int, ...]
) -> Iterator[tuple[tuple[int, ...], list[Tile]]]:
    """The operands at every index of the batch; those without batch axes are always the same."""
    for index in np.ndindex(batch):
        yield (
            index,
            [
                part(tile, index, tile_type(v).rank)
                for tile, v in zip(tiles, op.operands, strict=True)
            ],
        )


def part(tile: Tile, index: tuple[int, ...], rank: int) -> Tile:
    """One index of the batch axes of a tile."""
    count = tile.data.ndim - rank
    extents = tile.data.shape[:count]
    places = index[len(index) - count :]
    kept = tuple(i if extent > 1 else 0 for i, extent in zip(places, extents, strict=True))
    poison = None if tile.poison is None else np.broadcast_to(tile.poison, tile.data.shape)[kept]
    return Tile(np.asarray(tile.data[kept]), None if poison is None else np.asarray(poison))
