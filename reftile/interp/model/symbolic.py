"""Tiles whose elements are expressions over what was read, and the pure operations on them.

A tile of a kernel is a `Tile` as long as its elements are known, else a `Symbolic`: one expression
for each element, which stands for the element's *bits* as a signed number of the element's width
(an i1 is 0 or 1, a pointer its address). Whatever is computed from known tiles alone is computed by
the interpreter. On others there are moves of elements, which act on any type, integer arithmetic as
expressions, and every other operation on single elements, and reductions, as calls of the
interpreter. What mixes elements otherwise (products, scans, sorting) is refused.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from typing import Any

import numpy as np
from numpy.typing import NDArray

from reftile.interp.memory import memory_dtype
from reftile.interp.model.values import (
    FALSE,
    POISON,
    TRUE,
    UNINIT,
    BinaryOp,
    Call,
    Const,
    Expr,
    Poison,
    Value,
    binary,
    select,
)
from reftile.interp.prepared import RunRegion, prepare_meaning
from reftile.interp.pure import evaluate, has_meaning
from reftile.interp.values import Tile
from reftile.ir.core import Op
from reftile.ir.diagnostics import ReftileError, fail
from reftile.ir.dtypes import DType
from reftile.ir.numbers import decode, encode
from reftile.ir.types import PointerType, TileType

Elements = NDArray[np.object_]
"""Expressions in the shape of a tile."""


@dataclass(frozen=True, slots=True)
class Symbolic:
    """A tile with at least one element that is not known."""

    elements: Elements
    dtype: DType


Data = Tile | Symbolic


def tile_type(op: Op, index: int = 0) -> TileType:
    """The type of a result that is a tile."""
    type = op.results[index].type
    assert isinstance(type, TileType)
    return type


def bits_of(dtype: DType) -> int:
    """The width of the numbers that stand for the elements."""
    return dtype.storage_bits if dtype.bits != 1 else 1


def signed(number: int, bits: int) -> int:
    """Reduce a number to `bits` bits, two's complement; one bit is 0 or 1."""
    number &= (1 << bits) - 1
    return number - (1 << bits) if bits > 1 and number >> (bits - 1) else number


def expressions(data: Data, dtype: DType) -> Elements:
    """The elements of a tile as expressions."""
    if isinstance(data, Symbolic):
        return data.elements
    codes = np.asarray(encode(data.data, dtype)).reshape(-1)
    bits = bits_of(dtype)
    found: Elements = np.empty(codes.size, np.object_)
    found[:] = [Const(signed(int(code), bits)) for code in codes]
    if data.poison is not None:
        found[np.broadcast_to(data.poison, data.data.shape).reshape(-1)] = POISON
    return found.reshape(data.data.shape)


def settled(elements: Elements, dtype: DType) -> Data:
    """A tile of these elements: with numbers if all of them are known."""
    flat = list(elements.reshape(-1))
    if not all(isinstance(e, Const | Poison) for e in flat):
        return Symbolic(elements, dtype)
    mask = (1 << 8 * dtype.storage.itemsize) - 1
    codes = [e.value & mask if isinstance(e, Const) else 0 for e in flat]
    data = np.asarray(decode(np.array(codes, dtype.storage), dtype)).reshape(elements.shape)
    poison = np.array([isinstance(e, Poison) for e in flat], np.bool_).reshape(elements.shape)
    return Tile(data, poison if poison.any() else None)


def wrapped(expr: Expr, bits: int) -> Expr:
    """Reduce a number to `bits` bits, two's complement."""
    if isinstance(expr, Const):
        return Const(signed(expr.value, bits))
    if isinstance(expr, Poison):
        return expr
    mask = Const((1 << bits) - 1)
    if bits == 1:
        return binary("&", expr, mask)
    half = Const(1 << (bits - 1))
    return binary("-", binary("&", binary("+", expr, half), mask), half)


def unsigned(expr: Expr, bits: int) -> Expr:
    """The number that the same bits are without a sign."""
    return expr if bits == 1 else binary("&", expr, Const((1 << bits) - 1))


def _number(expr: Expr, bits: int, is_signed: bool) -> Expr:
    """An element as the number that an operation with this signedness sees."""
    if not is_signed:
        return unsigned(expr, bits)
    return binary("-", FALSE, expr) if bits == 1 else expr


# Operations


Operands = Sequence[Expr]
Element = Callable[[Op, Operands, int], Expr]
"""`element(op, operands, bits)`: one element of the result; `bits` are the first operand's."""

PREDICATES: Mapping[str, BinaryOp] = {
    "equal": "==",
    "not_equal": "!=",
    "less_than": "<",
    "less_than_or_equal": "<=",
    "greater_than": ">",
    "greater_than_or_equal": ">=",
}


def _wrapping(operator: BinaryOp) -> Element:
    return lambda op, x, bits: wrapped(binary(operator, x[0], x[1]), bits)


def _bitwise(operator: BinaryOp) -> Element:
    return lambda op, x, bits: binary(operator, x[0], x[1])


def _is_signed(op: Op) -> bool:
    return op.attributes.get("signedness") == "signed"


def _compare(op: Op, x: Operands, bits: int) -> Expr:
    lhs, rhs = (_number(e, bits, _is_signed(op)) for e in x)
    return binary(PREDICATES[str(op.attributes["predicate"])], lhs, rhs)


def _extreme(operator: BinaryOp) -> Element:
    def element(op: Op, x: Operands, bits: int) -> Expr:
        lhs, rhs = (_number(e, bits, _is_signed(op)) for e in x)
        return select(binary(operator, lhs, rhs), x[0], x[1])

    return element


def _extend(op: Op, x: Operands, bits: int) -> Expr:
    return _number(x[0], bits, _is_signed(op))


def _truncate(op: Op, x: Operands, bits: int) -> Expr:
    return wrapped(x[0], tile_type(op).dtype.bits)


def _offset(op: Op, x: Operands, bits: int) -> Expr:
    type = op.operands[0].type
    assert isinstance(type, TileType) and isinstance(type.element, PointerType)
    return binary("+", x[0], binary("*", x[1], Const(type.element.pointee.storage.itemsize)))


def _same(op: Op, x: Operands, bits: int) -> Expr:
    return x[0]


ELEMENTWISE: Mapping[str, Element] = {
    "addi": _wrapping("+"),
    "subi": _wrapping("-"),
    "muli": _wrapping("*"),
    "negi": lambda op, x, bits: wrapped(binary("-", FALSE, x[0]), bits),
    "andi": _bitwise("&"),
    "ori": _bitwise("|"),
    "xori": _bitwise("^"),
    "maxi": _extreme(">="),
    "mini": _extreme("<="),
    "cmpi": _compare,
    "exti": _extend,
    "trunci": _truncate,
    "offset": _offset,
    "select": lambda op, x, bits: select(x[0], x[1], x[2]),
    "ptr_to_ptr": _same,
    "ptr_to_int": _same,
    "int_to_ptr": _same,
    "bitcast": _same,
}
"""Operations on one element of each operand."""

MOVES: Mapping[str, int] = {
    "reshape": 1,
    "broadcast": 1,
    "permute": 1,
    "extract": 1,
    "gather": 1,
    "cat": 2,
    "insert": 2,
}
"""Operations that only move elements, with the number of operands whose elements move."""


def compute(op: Op, operands: Sequence[Data], run_region: RunRegion) -> list[Data]:
    """Return the results of a pure operation.

    Raises:
        ReftileError: `explore.operation`, if it cannot be done on values that were loaded.
    """
    tiles = [data for data in operands if isinstance(data, Tile)]
    if len(tiles) == len(operands):
        if not has_meaning(op):
            raise refuse(op, "cannot be computed here")
        return list(evaluate(op, tiles, run_region))
    if op.name in MOVES:
        return [_move(op, operands)]
    if op.name in ELEMENTWISE:
        return [_elementwise(op, operands)]
    if op.name == "reduce":
        if len(op.results) == 1 and tile_type(op).dtype.is_int:
            return [_reduce(op, operands[0])]
        return _reduce_as_one(op, operands, run_region)
    if op.definition.poison == "elementwise" and has_meaning(op) and not op.regions:
        return _called(op, operands)
    raise refuse(op, "takes values that were loaded, and the explorer computes element by element")


def refuse(op: Op, why: str) -> ReftileError:
    """The error (to be raised) that an operation cannot be explored."""
    return fail(
        "explore.operation",
        f"`{op.name}` {why}",
        op.span,
        hint="explore a smaller kernel in which integers stand for the data: "
        "which values a load may return does not depend on what is computed from them",
    )


def _dtype(op: Op, index: int) -> DType:
    type = op.operands[index].type
    assert isinstance(type, TileType)
    return memory_dtype(type.element)


def _move(op: Op, operands: Sequence[Data]) -> Data:
    """Move numbers that stand for the elements, and put the elements in their places."""
    moved = MOVES[op.name]
    pool: list[Expr] = []
    stand_ins: list[Any] = []
    for index, data in enumerate(operands):
        if index < moved:
            elements = expressions(data, _dtype(op, index))
            numbers = np.arange(len(pool), len(pool) + elements.size).reshape(elements.shape)
            pool.extend(elements.reshape(-1))
            stand_ins.append(numbers)
        elif isinstance(data, Symbolic):
            raise refuse(op, "moves elements to places that depend on loaded values")
        else:
            stand_ins.append(data.data)
    prepared = prepare_meaning(op)
    queue = iter(stand_ins)
    grouped = [
        tuple(next(queue) for _ in a) if isinstance(a, tuple) else next(queue) for a in op.arguments
    ]
    numbers = np.asarray(prepared.compute(*grouped))
    found: Elements = np.empty(numbers.size, np.object_)
    found[:] = [pool[int(n)] for n in numbers.reshape(-1)]
    return settled(found.reshape(tile_type(op).shape), memory_dtype(tile_type(op).element))


def _elementwise(op: Op, operands: Sequence[Data]) -> Data:
    element = ELEMENTWISE[op.name]
    arrays = [expressions(data, _dtype(op, i)) for i, data in enumerate(operands)]
    bits = bits_of(_dtype(op, 0))
    flat = [a.reshape(-1) for a in arrays]
    found: Elements = np.empty(flat[0].size, np.object_)
    found[:] = [element(op, [a[i] for a in flat], bits) for i in range(flat[0].size)]
    return settled(found.reshape(arrays[0].shape), memory_dtype(tile_type(op).element))


def _called(op: Op, operands: Sequence[Data]) -> list[Data]:
    """Any other operation that works element by element: a function of the operands' elements."""
    arrays = [expressions(data, _dtype(op, i)).reshape(-1) for i, data in enumerate(operands)]
    found: list[Data] = []
    for index in range(len(op.results)):
        type = tile_type(op, index)
        function = _element_function(op, index)
        elements: Elements = np.empty(type.size, np.object_)
        elements[:] = [
            _call(op.name, function, tuple(a[i] for a in arrays)) for i in range(type.size)
        ]
        found.append(settled(elements.reshape(type.shape), memory_dtype(type.element)))
    return found


def _call(name: str, function: Callable[..., Value], args: tuple[Expr, ...]) -> Expr:
    """A call, computed at once where the operands are known."""
    if any(isinstance(arg, Poison) for arg in args):
        return POISON
    known = [arg.value for arg in args if isinstance(arg, Const)]
    if len(known) < len(args):
        return Call(name, function, args)
    value = function(*known)
    return Const(value) if isinstance(value, int) else POISON


def _element_function(op: Op, result: int) -> Callable[..., Value]:
    """One element of a result, as a number, from numbers that stand for the operands' elements."""
    dtypes = [_dtype(op, i) for i in range(len(op.operands))]
    shape = (1,) * len(tile_type(op, result).shape)

    @cache
    def element(*numbers: int) -> Value:
        tiles = [Tile(_array([n], t).reshape(shape)) for n, t in zip(numbers, dtypes, strict=True)]
        return _number_of(evaluate(op, tiles)[result], op, result, 0)

    return element


def _array(numbers: Sequence[int], dtype: DType) -> Any:
    mask = (1 << 8 * dtype.storage.itemsize) - 1
    return decode(np.array([n & mask for n in numbers], dtype.storage), dtype)


def _number_of(tile: Tile, op: Op, result: int, at: int) -> Value:
    if tile.poison is not None and np.broadcast_to(tile.poison, tile.data.shape).reshape(-1)[at]:
        return UNINIT
    dtype = memory_dtype(tile_type(op, result).element)
    code = int(np.asarray(encode(tile.data.reshape(-1)[at : at + 1], dtype))[0])
    return signed(code, bits_of(dtype))


def _reduce_as_one(op: Op, operands: Sequence[Data], run_region: RunRegion) -> list[Data]:
    """A reduction of floats, or of several values: each result is a function of its whole slice."""
    axis = op.attributes["axis"]
    assert isinstance(axis, int)
    dtypes = [_dtype(op, i) for i in range(len(operands))]
    slices = [
        np.moveaxis(expressions(data, dtype), axis, 0)
        for data, dtype in zip(operands, dtypes, strict=True)
    ]
    length, shape = slices[0].shape[0], slices[0].shape
    flat = [s.reshape(length, -1) for s in slices]

    def function(result: int) -> Callable[..., Value]:
        @cache
        def reduced(*numbers: int) -> Value:
            tiles: list[Tile] = []
            for i, dtype in enumerate(dtypes):
                column = _array(numbers[i * length : (i + 1) * length], dtype)
                whole = np.broadcast_to(column.reshape(-1, *(1,) * (len(shape) - 1)), shape)
                tiles.append(Tile(np.ascontiguousarray(np.moveaxis(whole, 0, axis))))
            return _number_of(evaluate(op, tiles, run_region)[result], op, result, 0)

        return reduced

    found: list[Data] = []
    for result in range(len(op.results)):
        type, reduced = tile_type(op, result), function(result)
        elements: Elements = np.empty(flat[0].shape[1], np.object_)
        elements[:] = [
            _call(op.name, reduced, tuple(e for f in flat for e in f[:, column]))
            for column in range(flat[0].shape[1])
        ]
        found.append(settled(elements.reshape(type.shape), memory_dtype(type.element)))
    return found


def _reduce(op: Op, source: Data) -> Data:
    """Combine the elements along an axis one after the other."""
    axis = op.attributes["axis"]
    assert isinstance(axis, int)
    dtype = _dtype(op, 0)
    elements = np.moveaxis(expressions(source, dtype), axis, 0)
    rows = elements.reshape(elements.shape[0], -1)
    found: Elements = np.empty(rows.shape[1], np.object_)
    for column in range(rows.shape[1]):
        total: Expr = rows[0, column]
        for row in range(1, rows.shape[0]):
            total = _combine(op, total, rows[row, column], dtype)
        found[column] = total
    return settled(found.reshape(elements.shape[1:]), dtype)


def _combine(op: Op, total: Expr, element: Expr, dtype: DType) -> Expr:
    """Run the region of a reduction on two scalars."""
    block = op.regions[0].block
    values: dict[Any, Data] = {}
    for argument, expr in zip(block.arguments, (element, total), strict=True):
        values[argument] = settled(_scalar(expr), dtype)

    def no_region(region: Any, tiles: Any) -> Any:
        raise refuse(op, "has a region inside its region")

    for inner in block.ops[:-1]:
        operands = [values[v] for v in inner.operands if v in values]
        if len(operands) != len(inner.operands):
            raise refuse(op, "uses values from outside its region")
        results = compute(inner, operands, no_region)
        values.update(zip(inner.results, results, strict=True))
    result = values[block.ops[-1].operands[0]]
    return expressions(result, dtype).reshape(-1)[0]


def _scalar(expr: Expr) -> Elements:
    found: Elements = np.empty((), np.object_)
    found[()] = expr
    return found


def merged(condition: Expr, yes: Data, no: Data, dtype: DType) -> Data:
    """The tile that is `yes` where a condition holds and `no` elsewhere."""
    if condition == TRUE or yes is no:
        return yes
    if condition == FALSE:
        return no
    first, second = expressions(yes, dtype), expressions(no, dtype)
    found: Elements = np.empty(first.size, np.object_)
    pairs = zip(first.reshape(-1), second.reshape(-1), strict=True)
    found[:] = [select(condition, a, b) for a, b in pairs]
    return settled(found.reshape(first.shape), dtype)
