"""`assume`: check a promise about a value."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from reftile.interp.machine import Block
from reftile.interp.plan import Apply, Plan
from reftile.interp.values import Array, Mask, Tile
from reftile.interp.views import TensorView
from reftile.ir.core import Op
from reftile.ir.ops import Assume
from reftile.ir.types import PointerType, TileType


def make_assume(op: Op, plan: Plan[Block]) -> Apply[Block]:
    """Check the promise on each execution, and hand the value on."""
    assert isinstance(op, Assume)
    type = op.value.type

    def apply(block: Block, values: list[Any]) -> Sequence[Any]:
        value: Tile | TensorView = values[0]
        if isinstance(value, TensorView):
            assert op.div_by is not None
            if value.address % op.div_by:
                message = f"the base address 0x{value.address:x} is not a multiple of {op.div_by}"
                block.fault("assume.div_by", message, address=value.address)
            return (value,)
        assert isinstance(type, TileType)
        for broken, rule, message in _broken(op, type, value.data):
            where = np.broadcast_to(broken, value.data.shape)
            if value.poison is not None:
                where = where & ~value.poison
            if where.any():
                position = int(np.argmax(where.reshape(-1)))
                found = value.data.reshape(-1)[position]
                block.fault(
                    f"assume.{rule}",
                    f"{message}, found {found}",
                    position if type.shape else None,
                    hint="the promise is false: a compiled kernel would do anything",
                    shape=type.shape,
                )
        return (value,)

    return apply


def is_multiple(data: Array, divisor: int) -> Mask:
    """Where elements are multiples of `divisor`."""
    return np.asarray(data % divisor == 0)


def _broken(op: Assume, type: TileType, data: Array) -> list[tuple[Mask, str, str]]:
    """Where each promise is broken: (mask, rule, message)."""
    found: list[tuple[Mask, str, str]] = []
    if op.div_by is not None and op.every is not None and op.along is not None:
        message = f"groups of {op.every} must begin at a multiple of {op.div_by} and count up"
        found.append((_broken_groups(op, type, data, op.every, op.along), "div_by", message))
    elif op.div_by is not None:
        mask = ~is_multiple(data.astype(np.int64), op.div_by)
        found.append((mask, "div_by", f"every element must be a multiple of {op.div_by}"))
    if op.same_elements is not None:
        first = data
        for axis, group in enumerate(op.same_elements):
            index = np.arange(type.shape[axis]) // group * group
            first = np.take(first, index, axis=axis)
        message = f"all elements of a group of {list(op.same_elements)} must be equal"
        found.append((data != first, "same_elements", message))
    if op.at_least is not None:
        found.append((data < op.at_least, "at_least", f"must be at least {op.at_least}"))
    if op.at_most is not None:
        found.append((data > op.at_most, "at_most", f"must be at most {op.at_most}"))
    return found


def _broken_groups(op: Assume, type: TileType, data: Array, every: int, along: int) -> Mask:
    assert op.div_by is not None
    unit = 1
    if isinstance(type.element, PointerType):
        unit = type.element.pointee.storage.itemsize
    position = np.arange(type.shape[along])
    first = np.take(data, position // every * every, axis=along).astype(np.int64)
    shape = [1] * len(type.shape)
    shape[along] = type.shape[along]
    ahead = (position % every * unit).reshape(shape)
    return np.asarray((first % op.div_by != 0) | (data.astype(np.int64) != first + ahead))
