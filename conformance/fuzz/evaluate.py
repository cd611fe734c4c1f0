"""Integers, pointers and conditions of a kernel, worked out without the interpreter.

Only what decides addresses, masks and branches is worked out; everything else is `None`. Integers
are NumPy arrays of int64 that hold the signed value, pointers are addresses.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np

from reftile.ir.core import Op
from reftile.ir.dtypes import DType
from reftile.ir.ops import Constant
from reftile.ir.types import PointerType, TileType


@dataclass(frozen=True)
class Looked:
    """What loads of a flag or counter gave: `instances` are their numbers."""

    instances: tuple[int, ...]


@dataclass(frozen=True)
class Guard:
    """A condition that holds if one of the loads saw what it hoped for."""

    instances: tuple[int, ...]


def wrap(values: Any, dtype: DType) -> Any:
    """Values read as signed integers of a type (for i1: zero or one)."""
    bits = dtype.bits
    low = np.asarray(values, np.int64)
    if bits == 1:
        return low & 1
    if bits >= 64:
        return low
    low = low & ((1 << bits) - 1)
    return np.where(low >> (bits - 1), low - (1 << bits), low)


def unsigned(values: Any, dtype: DType) -> Any:
    """Values read as unsigned; 64 bits must not be negative here."""
    return np.asarray(values) if dtype.bits >= 64 else np.asarray(values) & ((1 << dtype.bits) - 1)


def evaluate_op(op: Op, values: list[Any]) -> Any:
    """The result of a pure operation with one result, or None if it is not worked out."""
    function = _FUNCTIONS.get(op.name)
    if function is None or any(v is None for v in values):
        return None
    if any(isinstance(v, (Looked, Guard)) for v in values):
        return _of_looks(op, values)
    type = op.results[0].type
    if not isinstance(type, TileType) or not all(isinstance(v, np.ndarray) for v in values):
        return None
    if isinstance(type.element, DType) and type.element.is_float:
        return None
    found = np.asarray(function(op, values))
    return found if isinstance(type.element, PointerType) else np.asarray(wrap(found, type.dtype))


def _of_looks(op: Op, values: list[Any]) -> Any:
    looks = tuple(i for v in values if isinstance(v, Looked) for i in v.instances)
    if op.name == "cmpi" and op.attributes["predicate"] == "equal":
        return Guard(looks)
    return Looked(looks) if op.name == "maxi" else None


def _dtype(op: Op, which: int = 0) -> DType:
    type = op.operands[which].type
    assert isinstance(type, TileType)
    return type.dtype


def _result(op: Op) -> TileType:
    type = op.results[0].type
    assert isinstance(type, TileType)
    return type


def _constant(op: Op, values: list[Any]) -> Any:
    assert isinstance(op, Constant)
    type = _result(op)
    bits = np.asarray(op.value.bits()).astype(np.uint64).astype(np.int64)
    return np.broadcast_to(
        bits.reshape(()) if op.value.splat else bits.reshape(type.shape), type.shape
    )


def _remainder(op: Op, values: list[Any]) -> Any:
    lhs, rhs = (unsigned(v, _dtype(op)) for v in values)
    if op.attributes["signedness"] != "unsigned" or np.any(rhs == 0):
        return np.zeros(np.shape(lhs), np.int64)
    return lhs % rhs


def _quotient(op: Op, values: list[Any]) -> Any:
    lhs, rhs = (unsigned(v, _dtype(op)) for v in values)
    return lhs // np.where(rhs == 0, 1, rhs)


_COMPARE = {
    "equal": np.equal,
    "not_equal": np.not_equal,
    "less_than": np.less,
    "less_than_or_equal": np.less_equal,
    "greater_than": np.greater,
    "greater_than_or_equal": np.greater_equal,
}


def _compare(op: Op, values: list[Any]) -> Any:
    if op.attributes["signedness"] == "unsigned":
        values = [unsigned(v, _dtype(op)) for v in values]
    return _COMPARE[str(op.attributes["predicate"])](*values).astype(np.int64)


def _extend(op: Op, values: list[Any]) -> Any:
    if op.attributes["signedness"] == "unsigned":
        return unsigned(values[0], _dtype(op))
    return -values[0] if _dtype(op).bits == 1 else values[0]


def _offset(op: Op, values: list[Any]) -> Any:
    pointer, offsets = values
    type = op.operands[0].type
    assert isinstance(type, TileType) and isinstance(type.element, PointerType)
    offsets = -offsets if _dtype(op, 1).bits == 1 else offsets
    return pointer + offsets * type.element.pointee.storage.itemsize


_FUNCTIONS: dict[str, Callable[[Op, list[Any]], Any]] = {
    "constant": _constant,
    "iota": lambda op, v: np.arange(_result(op).size, dtype=np.int64),
    "addi": lambda op, v: v[0] + v[1],
    "subi": lambda op, v: v[0] - v[1],
    "muli": lambda op, v: v[0] * v[1],
    "andi": lambda op, v: v[0] & v[1],
    "ori": lambda op, v: v[0] | v[1],
    "xori": lambda op, v: v[0] ^ v[1],
    "maxi": lambda op, v: np.maximum(v[0], v[1]),
    "remi": _remainder,
    "divi": _quotient,
    "cmpi": _compare,
    "exti": _extend,
    "trunci": lambda op, v: v[0],
    "reshape": lambda op, v: v[0].reshape(_result(op).shape),
    "broadcast": lambda op, v: np.broadcast_to(v[0], _result(op).shape),
    "select": lambda op, v: np.where(v[0] != 0, v[1], v[2]),
    "offset": _offset,
    "ptr_to_ptr": lambda op, v: v[0],
    "ptr_to_int": lambda op, v: v[0],
    "int_to_ptr": lambda op, v: v[0],
    "assume": lambda op, v: v[0],
}
"""By operation."""
