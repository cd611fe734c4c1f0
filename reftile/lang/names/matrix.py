"""Matrix products."""

from __future__ import annotations

from reftile.lang.arithmetic import (
    as_tile,
    broadcast,
    broadcast_together,
    common_dtype,
    convert,
    wrap,
)
from reftile.lang.arithmetic import reshape as reshape_tile
from reftile.lang.dtypes import (
    DType,
    bfloat16,
    float8_e4m3fn,
    float8_e4m3fnuz,
    float8_e5m2,
    float8_e5m2fnuz,
    float16,
    float32,
    float64,
    int8,
    int32,
    tfloat32,
    uint8,
)
from reftile.lang.names.registry import name
from reftile.lang.trace import Trace
from reftile.lang.values import Tile, describe

_ACCUMULATORS: dict[DType, tuple[DType, ...]] = {
    float16: (float16, float32),
    bfloat16: (float32,),
    float32: (float32,),
    tfloat32: (float32,),
    float64: (float64,),
    float8_e4m3fn: (float16, float32),
    float8_e5m2: (float16, float32),
    float8_e4m3fnuz: (float16, float32),
    float8_e5m2fnuz: (float16, float32),
    int8: (int32,),
    uint8: (int32,),
}


def _check(t: Trace, x: Tile, y: Tile, acc: Tile) -> None:
    bytes_ = (int8, uint8)
    if x.dtype is not y.dtype and not (x.dtype in bytes_ and y.dtype in bytes_):
        raise t.error(
            "mma.dtype",
            f"the operands of a product must have one dtype, found {x.dtype} and {y.dtype}",
            "convert one of them with `.astype(...)`",
        )
    allowed = _ACCUMULATORS.get(x.dtype)
    if allowed is None:
        raise t.error(
            "mma.dtype",
            f"there is no matrix product of {x.dtype}",
            "it takes " + ", ".join(d.name for d in _ACCUMULATORS),
        )
    if acc.dtype not in allowed:
        raise t.error(
            "mma.accumulator",
            f"{x.dtype} products need an accumulator of {' or '.join(d.name for d in allowed)}, "
            f"found {acc.dtype}",
        )
    if min(x.ndim, y.ndim, acc.ndim) < 2:
        raise t.error("mma.rank", f"matrices have two axes, found {x.shape} and {y.shape}")
    if x.shape[-1] != y.shape[-2]:
        raise t.error(
            "mma.shape",
            f"{x.shape} times {y.shape}: {x.shape[-1]} columns meet {y.shape[-2]} rows",
        )


def _batched(t: Trace, tile: Tile, batch: tuple[int, ...]) -> Tile:
    return broadcast(t, tile, (*batch, *tile.shape[-2:]))


@name
def mma(t: Trace, x: object, y: object, /, acc: object, *, use_fast_acc: object = False) -> Tile:
    """`x @ y + acc`, in the dtype of `acc`. Batch axes broadcast.

    Operands of float16 or 8 bits accumulate in float16 or float32, bfloat16 and tfloat32 in
    float32, int8 and uint8 in int32, float32 and float64 in themselves.
    """
    lhs, rhs = as_tile(t, x, what="`x`"), as_tile(t, y, what="`y`")
    total = as_tile(t, acc, what="`acc`")
    _check(t, lhs, rhs, total)
    batch = broadcast_together(t, lhs.shape[:-2], rhs.shape[:-2])
    shape = (*batch, lhs.shape[-2], rhs.shape[-1])
    if total.shape != shape:
        raise t.error(
            "mma.shape", f"{lhs.shape} times {rhs.shape} is {shape}, and `acc` is {total.shape}"
        )
    lhs, rhs = _batched(t, lhs, batch), _batched(t, rhs, batch)
    if lhs.dtype.is_int:
        value = t.value(
            "mmai",
            lhs.value,
            rhs.value,
            total.value,
            signedness_lhs=lhs.dtype.signedness,
            signedness_rhs=rhs.dtype.signedness,
        )
    else:
        fast = t.static_bool(use_fast_acc, "use_fast_acc")
        value = t.value("mmaf", lhs.value, rhs.value, total.value, fast_acc=fast)
    return wrap(value, total.dtype)


@name
def mma_scaled(
    t: Trace, x: object, x_scale: object, y: object, y_scale: object, /, acc: object
) -> Tile:
    """`(x * x_scale) @ (y * y_scale) + acc`, with one scale for each block of elements along K."""
    lhs, rhs = as_tile(t, x, what="`x`"), as_tile(t, y, what="`y`")
    scales = [as_tile(t, s, what="a scale") for s in (x_scale, y_scale)]
    total = as_tile(t, acc, what="`acc`")
    if min(tile.ndim for tile in (lhs, rhs, *scales)) < 2:
        raise t.error("mma.rank", "matrices and their scales have two axes or more")
    if lhs.dtype is not rhs.dtype or scales[0].dtype is not scales[1].dtype:
        raise t.error("mma.dtype", "the operands must have one dtype, and so must their scales")
    batch = broadcast_together(t, lhs.shape[:-2], rhs.shape[:-2])
    parts = [_batched(t, tile, batch) for tile in (lhs, rhs, *scales)]
    first, second, left, right = (part.value for part in parts)
    value = t.value("mmaf_scaled", first, second, total.value, left, right)
    return wrap(value, total.dtype)


@name
def matmul(t: Trace, x: object, y: object, /) -> Tile:
    """`x @ y`. Dtypes are promoted, the sum is kept in a wide accumulator; vectors are allowed."""
    lhs, rhs = as_tile(t, x, what="`x`"), as_tile(t, y, what="`y`")
    if not lhs.ndim or not rhs.ndim:
        raise t.error(
            "mma.rank", f"`@` takes no scalars, found {describe(lhs)} and {describe(rhs)}"
        )
    bytes_ = (int8, uint8)
    if not (lhs.dtype in bytes_ and rhs.dtype in bytes_):
        dtype = common_dtype(t, lhs, rhs)
        lhs, rhs = convert(t, lhs, dtype), convert(t, rhs, dtype)
    row, column = lhs.ndim == 1, rhs.ndim == 1
    if row:
        lhs = reshape_tile(t, lhs, (1, *lhs.shape))
    if column:
        rhs = reshape_tile(t, rhs, (*rhs.shape, 1))
    accumulators = _ACCUMULATORS.get(lhs.dtype)
    wide = accumulators[-1] if accumulators else float32
    batch = broadcast_together(t, lhs.shape[:-2], rhs.shape[:-2])
    shape = (*batch, lhs.shape[-2], rhs.shape[-1])
    zero = wrap(t.constant(0, wide, shape), wide)
    product = mma.implementation(t, lhs, rhs, zero)
    kept = tuple(
        e for e, drop in zip(shape, (*[False] * len(batch), row, column), strict=True) if not drop
    )
    product = reshape_tile(t, product, kept)
    return product if lhs.dtype.is_int else convert(t, product, lhs.dtype)
