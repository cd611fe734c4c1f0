"""Operations whose records say what they mean: evaluated with tiles for operands."""

from __future__ import annotations

from collections.abc import Sequence
from functools import cache
from types import CodeType
from typing import Any, cast

from reftile.ir.attributes import Dense
from reftile.ir.core import Block, Op, Value
from reftile.ir.define import port_names
from reftile.ir.dtypes import DTYPES
from reftile.ir.expressions import compile_expression
from reftile.ir.types import TileType
from reftile.ir.verify import bind_operation
from reftile.lower.cpu.builder import Builder
from reftile.lower.cpu.literals import literal
from reftile.lower.cpu.nests import Nest
from reftile.lower.cpu.tiles import Literal_, Table, Tile, size_of
from reftile.lower.cpu.words import WORDS


def evaluate(b: Builder, op: Op) -> tuple[Tile, ...]:
    """The tiles of an operation's results."""
    definition = op.definition
    names = {
        k: DTYPES.get(v, v) if isinstance(v, str) else v for k, v in bind_operation(op).items()
    }
    for port, argument in zip(port_names(definition.operands), op.arguments, strict=True):
        names[port] = _operand(b, argument)
    if op.name == "constant":
        return (constant(b, op),)
    found = eval(_code(definition.meaning), {"__builtins__": {}, **WORDS, **names})
    return cast("tuple[Tile, ...]", found) if isinstance(found, tuple) else (found,)


@cache
def _code(text: str) -> CodeType:
    compile_expression(text)
    return compile(text, f"<meaning: {text}>", "eval")


def _operand(b: Builder, argument: Any) -> Any:
    if isinstance(argument, tuple):
        return tuple(b.tile(v) for v in cast("tuple[Value, ...]", argument))
    return None if argument is None else b.tile(argument)


def constant(b: Builder, op: Op) -> Tile:
    """The tile of a literal: its text if all elements are equal, else a table."""
    value, type = op.attributes["value"], op.results[0].type
    assert isinstance(value, Dense) and isinstance(type, TileType)
    values = value.values()
    if value.splat or type.size == 1:
        return Literal_(type.shape, type.element, literal(values.reshape(-1)[0], type.element))
    data = values.tobytes()
    offset = b.table(data, size_of(Literal_((), type.element, "").kind))
    return Table(type.shape, type.element, "constants", offset)


def define(b: Builder, op: Op, block: Block) -> None:
    """Give the results of an operation with a meaning their tiles."""
    for value, tile in zip(op.results, evaluate(b, op), strict=True):
        b.define(value, tile, block)


def region_texts(b: Builder, block: Block, arguments: Sequence[str], nest: Nest) -> list[str]:
    """What the region of a reduction yields for scalars, in a nest."""
    before = dict(b.env)
    for value, text in zip(block.arguments, arguments, strict=True):
        type = value.type
        assert isinstance(type, TileType)
        b.env[value] = Literal_((), type.element, text)
    for op in block.ops[:-1]:
        for value, tile in zip(op.results, evaluate(b, op), strict=True):
            b.env[value] = Literal_((), tile.element, tile.at((), nest))
    texts = [nest.temp(b.tile(v).at((), nest)) for v in block.ops[-1].operands]
    b.env = before
    return texts
