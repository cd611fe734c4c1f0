"""Scalars whose value is known when the kernel is compiled."""

from __future__ import annotations

from reftile.ir import ops
from reftile.ir.attributes import Dense
from reftile.ir.core import Op, Value
from reftile.ir.types import TileType, scalar


def constant_int(value: Value | None) -> int | None:
    """The integer that a scalar holds (signed), or None if it is not known."""
    owner = value.owner if value is not None else None
    if not isinstance(owner, ops.Constant) or not isinstance(owner.results[0].type, TileType):
        return None
    dense = owner.attributes.get("value")
    if not isinstance(dense, Dense) or dense.shape or dense.dtype.kind != "int":
        return None
    bits, width = int.from_bytes(dense.data, "little"), dense.dtype.bits
    return bits - (1 << width) if width > 1 and bits >> (width - 1) else bits


def constant_op(value: int, like: Value, name: str = "") -> Op:
    """Return a `constant` of the integer type of `like`, not in any block yet."""
    assert isinstance(like.type, TileType)
    kind = scalar(like.type.element)
    dense = Dense.of_bits([value & ((1 << like.type.dtype.bits) - 1)], kind)
    return ops.Constant((), (kind,), {"value": dense}, names=(name,))
