"""Operations on whole tiles: shape, choice, order, sums along an axis, matrix products."""

from __future__ import annotations

from collections.abc import Callable
from math import prod

from reftile.conformance.fuzz.values import (
    COMMON,
    INDEX,
    LARGEST_TILE,
    Shape,
    Writer,
)

from reftile.ir import ops
from reftile.ir.core import Op, Value
from reftile.ir.dtypes import DTYPES, DType
from reftile.ir.types import TileType

ARITHMETIC = ("i32", "f32", "i64", "f16", "i8", "bf16", "f64", "i16", "i1")
I8, I32 = DTYPES["i8"], DTYPES["i32"]


def write_shaped(writer: Writer) -> list[Value]:
    """Write one operation of this module; gives what it computes."""
    lacks = writer.choices.subset.lacks
    return writer.choices.pick([f for f in SHAPED if NEEDS.get(f) not in lacks])(writer)


def _source(writer: Writer, least_rank: int = 1, allowed: tuple[str, ...] = ()) -> Value:
    """A tile in scope, or a new one, of a rank and element type."""
    found = [
        v
        for v in writer.in_scope()
        if isinstance(v.type, TileType)
        and v.type.rank >= least_rank
        and (not allowed or v.type.dtype.name in allowed)
    ]
    if found and writer.choices.chance(80):
        return writer.choices.pick(found[:8])
    shape = writer.shape(least_rank)
    return writer.need(TileType(shape, writer.dtype(allowed or COMMON)))


def _tile(value: Value) -> TileType:
    assert isinstance(value.type, TileType)
    return value.type


def _reshape(writer: Writer) -> list[Value]:
    source = _source(writer, 0)
    left, sizes = _tile(source).size, []
    for _ in range(writer.choices.between(0, 2)):
        size = writer.choices.pick([d for d in range(1, left + 1) if left % d == 0])
        sizes.append(size)
        left //= size
    if left > 1 or not sizes:
        sizes.append(left)
    return [writer.let(ops.Reshape, source, type=TileType(tuple(sizes), _tile(source).element))]


def _broadcast(writer: Writer) -> list[Value]:
    source = _source(writer, 1)
    type, sizes = _tile(source), list(_tile(source).shape)
    for axis, size in enumerate(type.shape):
        room = LARGEST_TILE // prod(sizes)
        if size == 1 and room > 1:
            sizes[axis] = writer.choices.pick([e for e in (2, 1, 4, 3, 8) if e <= room])
    return [writer.let(ops.Broadcast, source, type=TileType(tuple(sizes), type.element))]


def _permute(writer: Writer) -> list[Value]:
    source = _source(writer)
    order = writer.choices.shuffled(range(_tile(source).rank))
    return [writer.let(ops.Permute, source, permutation=tuple(order))]


def _cat(writer: Writer) -> list[Value]:
    source = _source(writer)
    type = _tile(source)
    axis = writer.choices.below(type.rank)
    sizes = list(type.shape)
    sizes[axis] = writer.choices.pick([e for e in (sizes[axis], 1, 3, 4) if e <= sizes[axis] + 4])
    other = writer.need(TileType(tuple(sizes), type.element))
    return [writer.let(ops.Cat, source, other, axis=axis)]


def _part(writer: Writer, whole: Shape) -> tuple[Shape, list[Value]]:
    """The shape of a part, and the index of one."""
    sizes = [writer.choices.pick([d for d in range(1, n + 1) if n % d == 0]) for n in whole]
    index = [writer.index_below(n // d) for n, d in zip(whole, sizes, strict=True)]
    return tuple(sizes), index


def _extract(writer: Writer) -> list[Value]:
    source = _source(writer, 0)
    sizes, index = _part(writer, _tile(source).shape)
    return [writer.let(ops.Extract, source, index, type=TileType(sizes, _tile(source).element))]


def _insert(writer: Writer) -> list[Value]:
    into = _source(writer, 0)
    sizes, index = _part(writer, _tile(into).shape)
    part = writer.need(TileType(sizes, _tile(into).element))
    return [writer.let(ops.Insert, part, into, index)]


def _gather(writer: Writer) -> list[Value]:
    source = _source(writer)
    type = _tile(source)
    axis = writer.choices.below(type.rank)
    sizes = list(type.shape)
    room = LARGEST_TILE // (type.size // sizes[axis])
    sizes[axis] = writer.choices.pick([e for e in (2, 1, 4, 3, 8) if e <= room] or [1])
    index_type = TileType(tuple(sizes), writer.dtype(INDEX))
    index = writer.need(index_type)
    limit = writer.filled(index_type, min(type.shape[axis], 127))
    index = writer.let(ops.Remi, index, limit, signedness="unsigned")
    return [writer.let(ops.Gather, source, index, axis=axis)]


def condition(writer: Writer, shape: Shape) -> Value:
    """A tile of i1: a comparison, or one in scope."""
    type = TileType(shape, DTYPES["i1"])
    same = [v for v in writer.in_scope() if v.type == type]
    if same and writer.choices.chance(50):
        return writer.choices.pick(same[:4])
    dtype = writer.dtype(ARITHMETIC)
    lhs, rhs = (writer.need(TileType(shape, dtype)) for _ in range(2))
    predicate = writer.choices.pick(("less_than", "equal", "not_equal", "greater_than_or_equal"))
    if dtype.is_int:
        signedness = writer.choices.pick(("signed", "unsigned"))
        return writer.let(ops.Cmpi, lhs, rhs, predicate=predicate, signedness=signedness)
    return writer.let(ops.Cmpf, lhs, rhs, predicate=predicate)


def _select(writer: Writer) -> list[Value]:
    source = _source(writer, 0)
    other = writer.need(_tile(source))
    chosen = condition(writer, _tile(source).shape)
    return [writer.let(ops.Select, chosen, source, other)]


def _iota(writer: Writer) -> list[Value]:
    dtype = writer.dtype(INDEX)
    return [writer.let(ops.Iota, type=TileType((writer.choices.pick((8, 4, 3, 16, 1)),), dtype))]


def _sort(writer: Writer) -> list[Value]:
    source = _source(writer, 1, ARITHMETIC)
    sources = [source]
    if writer.choices.chance(40):
        sources.append(writer.need(TileType(_tile(source).shape, writer.dtype(COMMON))))
    op = writer.op(
        ops.Sort,
        sources,
        types=[_tile(s) for s in sources],
        axis=writer.choices.below(_tile(source).rank),
        descending=writer.choices.chance(40),
        signedness=writer.choices.pick(("signed", "unsigned")),
    )
    return list(op.results)


def _topk(writer: Writer) -> list[Value]:
    source = _source(writer, 1, ARITHMETIC)
    axis = writer.choices.below(_tile(source).rank)
    count = writer.choices.between(1, _tile(source).shape[axis])
    smallest = writer.choices.chance(40)
    return list(writer.op(ops.Topk, source, axis=axis, count=count, smallest=smallest).results)


def _extreme(writer: Writer) -> list[Value]:
    source = _source(writer, 1, ARITHMETIC)
    cls = writer.choices.pick((ops.Argmax, ops.Argmin))
    return [writer.let(cls, source, axis=writer.choices.below(_tile(source).rank))]


def _histogram(writer: Writer) -> list[Value]:
    source = _source(writer, 0, INDEX)
    mask = condition(writer, _tile(source).shape) if writer.choices.chance(40) else None
    return [writer.let(ops.Histogram, source, mask, bins=writer.choices.pick((4, 1, 8, 3)))]


def _philox(writer: Writer) -> list[Value]:
    type = TileType(writer.shape(), I32)
    counters = [writer.need(type, 1) for _ in range(4)]
    keys = [writer.need(TileType((), I32), 1) for _ in range(2)]
    rounds = writer.choices.pick((10, 1, 7))
    return list(writer.op(ops.Philox, *counters, *keys, rounds=rounds).results)


def _pack(writer: Writer) -> list[Value]:
    allowed = "i16 i32 i64 f16 bf16 f32 f64 tf32 i4 f4e2m1".split()
    dtype = writer.dtype(allowed)
    size = writer.choices.pick((4, 2, 8, 16, 6))
    packed = writer.let(ops.Pack, writer.need(TileType((size,), dtype)))
    other = writer.dtype(allowed)
    bits = _tile(packed).size * 8
    if bits % other.bits:
        return [packed]
    return [packed, writer.let(ops.Unpack, packed, type=TileType((bits // other.bits,), other))]


# Along an axis, by a function

_INT_FUNCTIONS: tuple[tuple[type[Op], int, dict[str, str]], ...] = (
    (ops.Addi, 0, {}),
    (ops.Ori, 0, {}),
    (ops.Xori, 0, {}),
    (ops.Muli, 1, {}),
    (ops.Andi, -1, {}),
    (ops.Maxi, 0, {"signedness": "unsigned"}),
    (ops.Mini, -1, {"signedness": "unsigned"}),
)
_FLOAT_FUNCTIONS: tuple[tuple[type[Op], float], ...] = (
    (ops.Addf, 0.0),
    (ops.Maxf, float("-inf")),
    (ops.Minf, float("inf")),
    (ops.Mulf, 1.0),
)


def _along(writer: Writer) -> list[Value]:
    """A reduction or a scan of one or two tiles."""
    choices = writer.choices
    sources = [_source(writer, 1, ARITHMETIC)]
    if choices.chance(25):
        sources.append(writer.need(TileType(_tile(sources[0]).shape, writer.dtype(ARITHMETIC))))
    functions = [_function(writer, _tile(s).dtype) for s in sources]
    axis = choices.below(_tile(sources[0]).rank)
    identities = tuple(f[1] for f in functions)
    scan = choices.chance(40)
    if scan:
        types = [_tile(s) for s in sources]
        extra: dict[str, object] = {"reverse": choices.chance(40)}
    else:
        types, extra = [_without(_tile(s), axis) for s in sources], {}
    cls = ops.Scan if scan else ops.Reduce
    choice = condition(writer, ()) if choices.chance(20) else None
    op = writer.op(cls, sources, types=types, axis=axis, identities=identities, **extra)
    with writer.inside(op.regions[0]) as pairs:
        made = [
            writer.let(f[0], pairs[2 * i + 1], pairs[2 * i], **f[2])
            for i, f in enumerate(functions)
        ]
        for i, function in enumerate(functions):
            if choice is not None and function[0] in (ops.Addi, ops.Ori):
                # One of two functions with the same identity, by a condition from outside.
                other = writer.let(ops.Xori, pairs[2 * i + 1], pairs[2 * i])
                made[i] = writer.let(ops.Select, choice, made[i], other)
        writer.op(ops.Yield, made)
    return list(op.results)


def _function(writer: Writer, dtype: DType) -> tuple[type[Op], float, dict[str, str]]:
    if dtype.is_int:
        cls, identity, extra = writer.choices.pick(_INT_FUNCTIONS)
        return cls, identity if dtype.bits > 1 or identity == 0 else -1, extra
    cls, identity = writer.choices.pick(_FLOAT_FUNCTIONS)
    return cls, identity, {}


def _without(type: TileType, axis: int) -> TileType:
    return TileType(type.shape[:axis] + type.shape[axis + 1 :], type.element)


# Matrix products


def _sizes(writer: Writer) -> tuple[Shape, int, int, int]:
    batch = (2,) if writer.choices.chance(15) else ()
    m, n, k = (writer.choices.pick((4, 2, 1, 8, 3)) for _ in range(3))
    return batch, m, n, k


def _mmaf(writer: Writer) -> list[Value]:
    batch, m, n, k = _sizes(writer)
    dtype = writer.dtype("f16 f32 bf16 f64 tf32 f8e4m3 f8e5m2 f8e4m3fnuz f8e5m2fnuz".split())
    wide = DTYPES["f64" if dtype.name == "f64" else "f32"]
    lhs = writer.need(TileType((*batch, m, k), dtype))
    rhs = writer.need(TileType((*batch, k, n), dtype))
    acc = writer.need(TileType((*batch, m, n), wide))
    fast = dtype.bits == 8 and writer.choices.chance(40)
    return [writer.let(ops.Mmaf, lhs, rhs, acc, fast_acc=fast)]


def _mmai(writer: Writer) -> list[Value]:
    batch, m, n, k = _sizes(writer)
    dtype = DTYPES["i4"] if writer.choices.chance(25) else I8
    lhs = writer.need(TileType((*batch, m, k), dtype))
    rhs = writer.need(TileType((*batch, k, n), dtype))
    acc = writer.need(TileType((*batch, m, n), I32))
    signs = [writer.choices.pick(("signed", "unsigned")) for _ in range(2)]
    return [writer.let(ops.Mmai, lhs, rhs, acc, signedness_lhs=signs[0], signedness_rhs=signs[1])]


def _mmaf_scaled(writer: Writer) -> list[Value]:
    dtype = writer.dtype(["f8e4m3", "f8e5m2", "f4e2m1"])
    m, n = (writer.choices.pick((2, 1, 3)) for _ in range(2))
    lhs, rhs = writer.need(TileType((m, 32), dtype)), writer.need(TileType((32, n), dtype))
    acc = writer.need(TileType((m, n), DTYPES["f32"]))
    scale = DTYPES["f8e8m0"]
    scales = writer.need(TileType((m, 1), scale)), writer.need(TileType((1, n), scale))
    return [writer.let(ops.MmafScaled, lhs, rhs, acc, *scales)]


_KEPT = (0x44, 0xEE, 0x88, 0x9C, 0x4D, 0xC8)


def _mmaf_sparse(writer: Writer) -> list[Value]:
    m, n, k = writer.choices.pick((2, 1)), writer.choices.pick((2, 3)), 8
    dtype = writer.dtype(["f16", "bf16", "f8e4m3", "f8e5m2"])
    lhs, rhs = writer.need(TileType((m, k // 2), dtype)), writer.need(TileType((k, n), dtype))
    places = writer.constant(TileType((m, k // 8), I8), writer.choices.pick(_KEPT))
    acc = writer.need(TileType((m, n), DTYPES["f32"]))
    return [writer.let(ops.MmafSparse, lhs, places, rhs, acc)]


SHAPED: tuple[Callable[[Writer], list[Value]], ...] = (
    _reshape,
    _broadcast,
    _permute,
    _cat,
    _extract,
    _insert,
    _gather,
    _select,
    _iota,
    _sort,
    _topk,
    _extreme,
    _histogram,
    _philox,
    _pack,
    _along,
    _along,
    _mmaf,
    _mmai,
    _mmaf_scaled,
    _mmaf_sparse,
)
"""What can be written; the simplest first."""
NEEDS: dict[Callable[[Writer], list[Value]], str] = {
    _gather: "gather",
    _sort: "sort",
    _topk: "topk",
    _extreme: "argmax",
    _histogram: "histogram",
    _philox: "philox",
    _mmaf_scaled: "mmaf_scaled",
    _mmaf_sparse: "mmaf_sparse",
}
"""The operation that a writer needs, where not every language has it."""
