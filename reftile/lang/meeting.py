"""Join two branches: by a `select` where both may run, else by an `if`."""

from __future__ import annotations

import ast
from typing import cast

from reftile.ir.core import Block, Value
from reftile.ir.types import TileType
from reftile.lang import arithmetic
from reftile.lang.frame import Frame
from reftile.lang.merge import Conflict, join, pack, slot_types, unpack
from reftile.lang.trace import Trace
from reftile.lang.values import Tile, describe

HARMLESS = frozenset(
    "constant cmpi cmpf andi ori xori addi subi muli negi exti trunci select get_tile_block_id "
    "get_num_tile_blocks itof ftof addf subf mulf negf maxi mini maxf minf shli shri".split()
)


def meet(
    frame: Frame,
    node: ast.AST,
    condition: Tile,
    blocks: tuple[Block, Block],
    values: list[object],
    what: str,
) -> object:
    """Join two traced blocks with a value each; give what stands for either.

    Blocks that may both run become a `select`, others an `if`.
    """
    t = frame.trace
    slot = join(values)
    if isinstance(slot, Conflict):
        raise frame.error(
            node,
            "branches",
            f"{what} {describe(values[0])} and {describe(values[1])}",
            "convert them to one type",
        )
    packed: list[tuple[Value, ...]] = []
    for block, value in zip(blocks, values, strict=True):
        with t.inside(block):
            packed.append(tuple(pack(t, slot, value)))
    tiles = all(isinstance(type, TileType) for type in slot_types(slot))
    if tiles and all(op.name in HARMLESS for block in blocks for op in block.ops):
        for op in (*blocks[0].ops, *blocks[1].ops):
            t.block.append(op)
        chosen = [
            x if x is y else t.value("select", spread_condition(t, condition, x), x, y)
            for x, y in zip(*packed, strict=True)
        ]
        return unpack(slot, iter(chosen))
    for block, carried in zip(blocks, packed, strict=True):
        with t.inside(block):
            t.op("yield", carried)
    op = t.structure("if", blocks, condition.value, types=slot_types(slot))
    return unpack(slot, iter(op.results))


def spread_condition(t: Trace, condition: Tile, value: Value) -> Value:
    """A scalar condition in the shape of `value`."""
    shape = cast("TileType", value.type).shape
    return arithmetic.broadcast(t, condition, shape).value
