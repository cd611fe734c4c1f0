"""Products that run beside other work: started on an accumulator, waited for by count."""

from __future__ import annotations

from typing import cast

from reftile.ir.core import Value
from reftile.ir.types import TOKEN, PendingType, TileType
from reftile.lang.arithmetic import as_tile
from reftile.lang.dtypes import DType, float32, int32
from reftile.lang.names.create import need_dtype
from reftile.lang.names.registry import name
from reftile.lang.pipe.common import condition, error, need, token_of
from reftile.lang.pipe.values import Buffer, Pending
from reftile.lang.trace import Trace
from reftile.lang.values import Tile, Token, describe


@name
def mma_open(t: Trace, shape: object, dtype: object = float32, /) -> Pending:
    """An accumulator with nothing in flight and nothing in it."""
    element = need_dtype(t, dtype)
    kind = PendingType(TileType(t.static_shape(shape), element.element))
    return Pending(t.value("mma_open", types=[kind]), element)


def _lhs(t: Trace, value: object) -> tuple[Value, tuple[int, ...], DType]:
    if isinstance(value, Buffer):
        assert value.dtype is not None
        return value.value, value.type.shape, value.dtype
    tile = as_tile(t, value, what="`lhs`")
    return tile.value, tile.shape, tile.dtype


@name
def mma_start(
    t: Trace,
    lhs: object,
    rhs: object,
    /,
    acc: object = None,
    *,
    accumulate: object = None,
    token: object = None,
    dtype: object = None,
) -> Pending:
    """Start `lhs @ rhs + acc` in the matrix unit of sm_90a; four warps take part.

    lhs: a buffer, or a tile in registers, which is lent until the wait. rhs: a buffer.
    acc: a result in flight, or a tile, which is given away; None begins with zero, in `dtype`
    (float32, int32 for bytes). accumulate: false drops what `acc` holds.
    """
    left, shape, element = _lhs(t, lhs)
    right = need(t, rhs, Buffer, "rhs")
    given: Value | None = None
    result = need_dtype(t, dtype) if dtype is not None else int32 if element.is_int else float32
    if isinstance(acc, Pending):
        given, result = acc.value, cast("DType", acc.dtype)
    elif acc is not None:
        tile = as_tile(t, acc, what="`acc`")
        given, result = tile.value, tile.dtype
    if len(shape) != 2 or len(right.type.shape) != 2:
        raise error(t, "rank", f"products are of two axes, found {shape} and {describe(rhs)}")
    kind = PendingType(TileType((shape[0], right.type.shape[1]), result.element))
    signs = {
        f"signedness_{side}": found.signedness if found is not None and found.is_int else None
        for side, found in (("lhs", element), ("rhs", right.dtype))
    }
    value = t.value(
        "mma_start",
        left,
        right.value,
        given,
        None if accumulate is None else condition(t, accumulate, "accumulate"),
        token_of(t, token),
        types=[kind],
        **signs,
    )
    return Pending(value, result)


@name
def mma_wait(t: Trace, *pending: object, in_flight: object = 0) -> object:
    """Wait until at most the newest `in_flight` products are under way.

    Gives the tiles of the results named, then the token of what all complete products have read.
    """
    found = [need(t, p, Pending, "pending") for p in pending]
    count = t.static_int(in_flight, "in_flight")
    tiles = [cast("PendingType", p.value.type).tile for p in found]
    op = t.op(
        "mma_wait",
        tuple(p.value for p in found),
        types=[*tiles, TOKEN],
        in_flight=count,
    )
    token = Token(op.results[-1])
    if not found:
        return token
    values = [
        Tile(result, cast("DType", p.dtype)) for result, p in zip(op.results, found, strict=False)
    ]
    return (*values, token)
