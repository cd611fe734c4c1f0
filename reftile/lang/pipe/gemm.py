"""`gemm`: a product of tiles, by the unit that the target has for it.

On sm_90a products run beside other work. One stays in flight: each is started, then the one before
it is waited for. A fragment holds the result in flight until something else reads it.
"""

from __future__ import annotations

from reftile.ir.core import Value
from reftile.ir.types import PendingType, TileType
from reftile.lang.dtypes import DType, bool_
from reftile.lang.names import matrix
from reftile.lang.names.registry import name
from reftile.lang.pipe.block import join, shape_of
from reftile.lang.pipe.common import error
from reftile.lang.pipe.fragments import (
    Cleared,
    Fragment,
    InFlight,
    need_fragment,
    settle,
)
from reftile.lang.pipe.places import part, transpose
from reftile.lang.pipe.shared import Shared, has_product_unit
from reftile.lang.pipe.warpgroups import share_of
from reftile.lang.trace import Trace
from reftile.lang.values import Tile, Token, Undefined, describe

UNITS = ("wgmma", "mma")


@name
def gemm(
    t: Trace,
    lhs: object,
    rhs: object,
    total: object,
    /,
    *,
    transpose_A: object = False,
    transpose_B: object = False,
    unit: object = None,
) -> None:
    """Add `lhs @ rhs` to a fragment.

    lhs: shared memory or a fragment; rhs: shared memory. transpose_A, transpose_B: an operand lies
    the other way. unit: "wgmma" (sm_90a, 128 threads) or "mma"; left out, what the target does
    fastest.
    """
    acc = need_fragment(t, total, "total")
    sides = t.static_bool(transpose_A, "transpose_A"), t.static_bool(transpose_B, "transpose_B")
    _check(t, lhs, rhs, acc, sides)
    if _unit(t, unit) == "wgmma":
        _start(t, lhs, rhs, acc, sides)
    else:
        _multiply(t, lhs, rhs, acc, sides)


def _unit(t: Trace, unit: object) -> str:
    shape = shape_of(t)
    if unit is not None and unit not in UNITS:
        raise error(t, "unit", f"`unit` is wgmma or mma, found {describe(unit)}")
    if unit is None and shape.target == "sm_90a" and not has_product_unit(shape):
        raise error(
            t,
            "unit",
            f"products of sm_90a are done by four warps, and a block has {shape.threads} threads",
            'threads=128 or a multiple, or gemm(..., unit="mma") for products of single warps',
        )
    if unit == "wgmma" and not has_product_unit(shape):
        raise error(
            t,
            "unit",
            f"{shape.target} with {shape.threads} threads has no wgmma",
            "it needs sm_90a and threads=128, or a multiple",
        )
    if isinstance(unit, str):
        return unit
    return "wgmma" if has_product_unit(shape) else "mma"


def _extents(t: Trace, operand: object, what: str) -> tuple[tuple[int, ...], DType]:
    match operand:
        case Shared():
            return operand.kind.shape, operand.dtype
        case Fragment() if what == "lhs":
            return operand.shape, operand.dtype
        case _:
            where = "shared memory or a fragment" if what == "lhs" else "shared memory"
            raise error(t, "gemm_place", f"`{what}` must be {where}, found {describe(operand)}")


def _check(t: Trace, lhs: object, rhs: object, acc: Fragment, sides: tuple[bool, bool]) -> None:
    (left, ours), (right, theirs) = _extents(t, lhs, "lhs"), _extents(t, rhs, "rhs")
    if len(left) != 2 or len(right) != 2 or len(acc.shape) != 2:
        raise error(t, "gemm_shape", f"products are of two axes, found {left}, {right}")
    first = left[::-1] if sides[0] else left
    second = right[::-1] if sides[1] else right
    if first[1] != second[0] or (first[0], second[1]) != acc.shape:
        raise error(
            t,
            "gemm_shape",
            f"{first} times {second} is no {acc.shape}",
            "lhs is m by k, rhs k by n; transpose_A and transpose_B turn an operand",
        )
    if ours is not theirs:
        raise error(t, "gemm_dtype", f"operands have one dtype, found {ours} and {theirs}")
    if sides[0] and isinstance(lhs, Fragment):
        raise error(
            t, "gemm_place", "a fragment cannot be transposed", "copy it to shared memory first"
        )


def _read_buffer(t: Trace, shared: Shared, turned: bool, rows: bool) -> tuple[Value, Token]:
    """An operand as the product reads it; `rows`: only those of this warpgroup."""
    token, buffer = shared.written(t), shared.buffer(t)
    if turned:
        buffer = transpose.implementation(t, buffer)
    replica = shape_of(t).replica
    if rows and replica is not None:
        own = share_of(t, buffer.type.shape, "the left operand")
        buffer = part.implementation(t, buffer, (replica, 0), own)
    return buffer.value, token


# By single warps


def _multiply(t: Trace, lhs: object, rhs: object, acc: Fragment, sides: tuple[bool, bool]) -> None:
    """Operands through registers, then the product."""
    left = lhs.read(t) if isinstance(lhs, Fragment) else _load(t, lhs, sides[0], True)
    right = _load(t, rhs, sides[1], False)
    acc.write(t, matrix.mma.implementation(t, left, right, acc.read(t)))


def _load(t: Trace, operand: object, turned: bool, rows: bool) -> Tile:
    assert isinstance(operand, Shared)
    buffer, token = _read_buffer(t, operand, turned, rows)
    op = t.op("load_buffer", buffer, None, token.value)
    operand.history.has_read(Token(op.results[1]))
    return Tile(op.results[0], operand.dtype)


# By the unit of four warps


def _start(t: Trace, lhs: object, rhs: object, acc: Fragment, sides: tuple[bool, bool]) -> None:
    """Start the product, and wait for the one before it."""
    ready: list[Token] = []
    if isinstance(lhs, Fragment):
        left = lhs.read(t).value
    else:
        assert isinstance(lhs, Shared)
        left, token = _read_buffer(t, lhs, sides[0], True)
        ready.append(token)
    assert isinstance(rhs, Shared)
    right, token = _read_buffer(t, rhs, sides[1], False)
    ready.append(token)
    given, accumulate = _accumulator(t, acc)
    kind = PendingType(TileType(acc.own, acc.dtype.element))
    signs = {
        f"signedness_{side}": rhs.dtype.signedness if rhs.dtype.is_int else None
        for side in ("lhs", "rhs")
    }
    pending = t.value(
        "mma_start", left, right, given, accumulate, join(t, *ready).value, types=[kind], **signs
    )
    shape_of(t).has_products = True
    read = Token(t.value("mma_wait", (), in_flight=1))
    started = Tile(t.constant(True, bool_), bool_, True)
    t.set_cell(acc.cell, InFlight(pending, started, acc.dtype))
    loop = shape_of(t).loop
    if loop is not None and t.block is loop.block and loop.refill is None:
        loop.refill = len(t.block.ops), read


def _accumulator(t: Trace, acc: Fragment) -> tuple[Value | None, Value | None]:
    """What the product adds to, and whether it does."""
    held = t.cell(acc.cell)
    match held:
        case Cleared():
            return None, None
        case InFlight():
            known = held.started.constant is True
            return held.pending, None if known else held.started.value
        case Undefined():
            acc.read(t)  # raises
            raise AssertionError
        case _:
            return settle(t, held).value, None
