"""Prepared operations: what a record and the types of an operation say, worked out once."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import cache, lru_cache
from types import CodeType
from typing import Any, TypeAlias, cast

import numpy as np

from reftile.interp.poison import SPREAD, Operand, Spread
from reftile.interp.values import Array, Mask, Report, Tile
from reftile.interp.vocabulary import ENVIRONMENT
from reftile.ir.core import Op, Region, Value
from reftile.ir.define import Definition, port_names
from reftile.ir.dtypes import DTYPES, DType
from reftile.ir.expressions import compile_expression, evaluate
from reftile.ir.types import TileType
from reftile.ir.verify import bind_operation

Compute: TypeAlias = Callable[..., Any]
"""A meaning as a function of the operands by port: arrays, tuples of arrays, or None."""

RunRegion: TypeAlias = Callable[[Region, tuple[Tile, ...]], tuple[Tile, ...]]
"""`run_region(region, arguments)`: what the region yields, given scalars with any batch axes."""


@dataclass(frozen=True, slots=True)
class Case:
    """One way in which an operation may be undefined: its rule id, message, and mask."""

    rule: str
    message: str
    when: Compute


@dataclass(slots=True)
class Prepared:
    """How to run one operation. Calling it evaluates the record's meaning.

    arguments, attributes: those of the operation when it was prepared.
    names: what the record's names stand for: extents, shapes, attributes, element types (`DType`).
    is_flat: whether there is one operand at each port.
    constant: the results of an operation without operands.
    single: the operation that is all of what a region with two arguments does.
    ranks: the rank of the tile at each operand port (0 for an absent or variadic one).
    result_rank, result_shape: of the first result.
    """

    op: Op
    arguments: tuple[object, ...]
    attributes: dict[str, object]
    definition: Definition
    names: Mapping[str, object]
    compute: Compute
    undefined: tuple[Case, ...]
    spread: Spread | None
    is_flat: bool
    ranks: tuple[int, ...]
    result_rank: int
    result_shape: tuple[int, ...]
    constant: tuple[Tile, ...] | None = None
    single: Op | None = None

    def is_current(self) -> bool:
        """False if the operation was changed since it was prepared."""
        return self.arguments is self.op.arguments and self.attributes == self.op.attributes

    def dtype(self, name: str) -> DType:
        """The element type that a variable of the record stands for."""
        found = self.names[name]
        assert isinstance(found, DType)
        return found

    def integer(self, name: str) -> int:
        """The value of an integer attribute or extent."""
        found = self.names[name]
        assert isinstance(found, int)
        return found

    def __call__(self, tiles: Sequence[Tile], report: Report | None = None) -> tuple[Tile, ...]:
        """Evaluate on operands in the order of `op.operands`."""
        if self.constant is not None:
            return self.constant
        operands = tiles if self.is_flat else group(self.op, tiles)
        arrays = [_data(operand) for operand in operands]
        results = self.compute(*arrays)
        poison: Mask | None = None
        for tile in tiles:
            if tile.poison is not None and self.spread is not None:
                poison = self.spread(self, operands)
                break
        for case in self.undefined:
            poison = self._check(case, arrays, poison, report)
        if poison is not None and not poison.any():
            poison = None
        if len(self.op.results) == 1:
            return (Tile(np.asarray(results), poison),)
        return tuple(Tile(np.asarray(result), poison) for result in results)

    def _found(self, arrays: Sequence[object], where: Mask) -> str:
        """What the operands were at the first place of `where`, where they have one."""
        place = np.unravel_index(int(np.argmax(where)), where.shape) if where.ndim else ()
        parts: list[str] = []
        for port, operand in zip(port_names(self.definition.operands), arrays, strict=True):
            if isinstance(operand, tuple):
                items = cast("tuple[Array, ...]", operand)
                if items and all(item.ndim == 0 for item in items):
                    parts.append(f"{port} = [{', '.join(str(item.item()) for item in items)}]")
            elif isinstance(operand, np.ndarray):
                array = cast("Array", operand)
                if array.ndim == 0 or array.shape == where.shape:
                    parts.append(f"{port} = {array[place if array.ndim else ()].item()}")
        return f", found {', '.join(parts)}" if parts else ""

    def _check(
        self, case: Case, arrays: Sequence[object], poison: Mask | None, report: Report | None
    ) -> Mask | None:
        where = case.when(*arrays)
        if where is False:
            return poison
        # What comes of poison is no fault of this operation.
        fresh = np.asarray(where if poison is None else where & ~poison)
        if not fresh.any():
            return poison
        if report is not None:
            report(case.rule, case.message + self._found(arrays, fresh), fresh)
        return fresh if poison is None else fresh | poison


def _data(operand: Operand) -> object:
    if isinstance(operand, Tile):
        return operand.data
    return None if operand is None else tuple(tile.data for tile in operand)


def group(op: Op, tiles: Sequence[Tile]) -> list[Operand]:
    """One entry per operand port out of a flat list of tiles."""
    queue = iter(tiles)
    grouped: list[Operand] = []
    for argument in op.arguments:
        if isinstance(argument, tuple):
            grouped.append(tuple(next(queue) for _ in argument))
        else:
            grouped.append(None if argument is None else next(queue))
    return grouped


def prepare_meaning(op: Op) -> Prepared:
    """Work out how to run a verified operation that has a meaning."""
    definition = op.definition
    names = {name: _as_dtype(value) for name, value in bind_operation(op).items()}
    ports = port_names(definition.operands)
    static = {name: value for name, value in names.items() if name not in ports}
    environment = {**ENVIRONMENT, **static}
    result = op.results[0].type
    assert isinstance(result, TileType)
    prepared = Prepared(
        op=op,
        arguments=op.arguments,
        attributes=dict(op.attributes),
        definition=definition,
        names=names,
        compute=_function(definition.meaning, ports, environment),
        undefined=tuple(
            Case(
                f"{op.name}.{case.name}",
                str(evaluate(case.say, names)),
                _function(case.when_text, ports, environment),
            )
            for case in definition.undefined
        ),
        spread=SPREAD.get(definition.poison),
        is_flat=all(isinstance(argument, Value) for argument in op.arguments),
        ranks=tuple(_rank(argument) for argument in op.arguments),
        result_rank=result.rank,
        result_shape=result.shape,
        single=_single_op(op),
    )
    if not op.arguments and definition.meaning:
        prepared.constant = prepared(())
        for tile in prepared.constant:
            tile.data.flags.writeable = False
    return prepared


def prepared_meaning(op: Op) -> Prepared:
    """Return what `prepare_meaning` does, kept from last time unless the operation was changed."""
    if op.regions:  # which may be changed without a trace in the operation
        return prepare_meaning(op)
    prepared = _kept(op)
    return prepared if prepared.is_current() else prepare_meaning(op)


@lru_cache(maxsize=4096)
def _kept(op: Op) -> Prepared:
    return prepare_meaning(op)


def _single_op(op: Op) -> Op | None:
    """The operation of a region that yields one operation on element and accumulator."""
    if len(op.regions) != 1:
        return None
    region = op.regions[0]
    arguments, ops = region.block.arguments, region.block.ops
    if len(arguments) != 2 or len(ops) != 2:
        return None
    inner = ops[0]
    takes_both = inner.operands in (tuple(arguments), tuple(arguments[::-1]))
    if not takes_both or inner.regions or tuple(ops[1].operands) != inner.results:
        return None
    return inner


def _as_dtype(value: object) -> object:
    return DTYPES.get(value, value) if isinstance(value, str) else value


def _rank(argument: object) -> int:
    return (
        argument.type.rank
        if isinstance(argument, Value) and isinstance(argument.type, TileType)
        else 0
    )


def _function(text: str, ports: tuple[str, ...], environment: dict[str, object]) -> Compute:
    return eval(_lambda_code(text, ports), environment)


@cache
def _lambda_code(text: str, ports: tuple[str, ...]) -> CodeType:
    compile_expression(text or "()")
    return compile(f"lambda {', '.join(ports)}: {text or '()'}", f"<meaning: {text}>", "eval")
