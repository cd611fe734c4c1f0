"""Beyond cuTile: sorting, selecting, counting, random numbers."""

from __future__ import annotations

from reftile.lang.arithmetic import add_sub_mul, as_tile, broadcast_together, convert, spread, wrap
from reftile.lang.dtypes import bool_, float32, int32, uint32
from reftile.lang.names.registry import name
from reftile.lang.trace import Trace
from reftile.lang.values import Tile


@name
def sort(t: Trace, x: object, /, axis: object = -1, *, descending: object = False) -> Tile:
    """The elements along an axis in ascending order; stable, NaN last."""
    tile = as_tile(t, x, what="`x`")
    value = t.value(
        "sort",
        (tile.value,),
        axis=t.static_axis(axis, tile.ndim),
        descending=t.static_bool(descending, "descending"),
        signedness=tile.dtype.signedness,
    )
    return wrap(value, tile.dtype)


@name
def sort_by(
    t: Trace, keys: object, /, *values: object, axis: object = -1, descending: object = False
) -> tuple[Tile, ...]:
    """The keys in order along an axis, and other tiles rearranged in the same way."""
    first = as_tile(t, keys, what="`keys`")
    rest = [as_tile(t, v, what="a value") for v in values]
    op = t.op(
        "sort",
        tuple(tile.value for tile in (first, *rest)),
        axis=t.static_axis(axis, first.ndim),
        descending=t.static_bool(descending, "descending"),
        signedness=first.dtype.signedness,
    )
    return tuple(wrap(v, tile.dtype) for v, tile in zip(op.results, (first, *rest), strict=True))


@name
def topk(
    t: Trace, x: object, k: object, /, axis: object = -1, *, largest: object = True
) -> tuple[Tile, Tile]:
    """The k greatest (or least) along an axis, in order, and their positions (int32)."""
    tile = as_tile(t, x, what="`x`")
    op = t.op(
        "topk",
        tile.value,
        axis=t.static_axis(axis, tile.ndim),
        count=t.static_int(k, "k"),
        smallest=not t.static_bool(largest, "largest"),
        signedness=tile.dtype.signedness,
    )
    return wrap(op.results[0], tile.dtype), wrap(op.results[1], int32)


@name
def histogram(t: Trace, x: object, bins: object, /, *, mask: object = None) -> Tile:
    """How often each of 0 .. bins - 1 occurs (int32); other numbers are not counted."""
    tile = as_tile(t, x, what="`x`")
    chosen = None
    if mask is not None:
        chosen = spread(t, as_tile(t, mask, what="`mask`"), bool_, tile.shape).value
    return wrap(t.value("histogram", tile.value, chosen, bins=t.static_int(bins, "bins")), int32)


@name
def philox(
    t: Trace,
    c0: object,
    c1: object,
    c2: object,
    c3: object,
    k0: object,
    k1: object,
    /,
    *,
    rounds: object = 10,
) -> tuple[Tile, Tile, Tile, Tile]:
    """Four tiles of random words (uint32) for each counter, under a key: Philox4x32."""
    counters = [as_tile(t, c, what="a counter") for c in (c0, c1, c2, c3)]
    shape = broadcast_together(t, *(c.shape for c in counters))
    words = [spread(t, c, uint32, shape).value for c in counters]
    keys = [as_tile(t, k, uint32, "a key").value for k in (k0, k1)]
    op = t.op("philox", *words, *keys, rounds=t.static_int(rounds, "rounds"))
    first, second, third, fourth = (wrap(v, uint32) for v in op.results)
    return first, second, third, fourth


@name
def randint(t: Trace, seed: object, offset: object, /) -> Tile:
    """A random word (uint32) for each offset."""
    zero = as_tile(t, 0, uint32)
    return philox.implementation(t, offset, zero, zero, zero, seed, zero)[0]


@name
def rand(t: Trace, seed: object, offset: object, /) -> Tile:
    """A random float32 in [0, 1) for each offset: the upper 24 bits of a word."""
    word = randint.implementation(t, seed, offset)
    shifted = t.value("shri", word.value, t.constant(8, uint32, word.shape), signedness="unsigned")
    number = convert(t, wrap(shifted, uint32), float32)
    return add_sub_mul(t, "mul", number, 2.0**-24)
