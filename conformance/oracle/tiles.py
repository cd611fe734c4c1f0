"""Operations that move elements, and order statistics, element by element.

Operands keep their shapes here. Everything is a loop over positions: slow, and plain to see.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from functools import cmp_to_key
from itertools import product

import numpy as np
from reftile.conformance.oracle.answer import Answer, Call
from reftile.conformance.oracle.formats import (
    FORMATS,
    WIDTHS,
    Codes,
    codes,
    is_float,
    is_nan,
    is_zero,
    key,
)
from reftile.conformance.oracle.integers import signed

Index = tuple[int, ...]


def positions(shape: Index) -> Iterator[Index]:
    """All positions in row-major order."""
    return product(*(range(n) for n in shape))


def moved(
    dtype: str, shape: Index, source: Codes, whence: Callable[[Index], Index | None]
) -> Answer:
    """Element p of the result is element `whence(p)` of the source; None is undefined."""
    result = np.zeros(shape, np.uint64)
    undefined = np.zeros(shape, bool)
    for p in positions(shape):
        place = whence(p)
        if place is None:
            undefined[p] = True
        else:
            result[p] = source[place]
    answer = Answer.moved(dtype, result)
    answer.undefined = undefined
    return answer


def constant(call: Call) -> Answer:
    """constant: the literal is an operand here, one code or one for each element."""
    literal = call.operands[0].reshape(-1)
    size = int(np.prod(call.shape, dtype=int))
    bits = np.full(call.shape, literal[0]) if literal.size == 1 else literal.reshape(call.shape)
    assert bits.size == size
    return Answer.moved(call.results[0], bits)


def iota(call: Call) -> Answer:
    """iota."""
    return Answer.exactly(call.results[0], codes(range(call.shape[0])))


def select(call: Call) -> Answer:
    """select."""
    condition, x, y = call.operands
    bits = codes([a if c else b for c, a, b in zip(condition.flat, x.flat, y.flat, strict=True)])
    return Answer.moved(call.results[0], bits)


def broadcast(call: Call) -> Answer:
    """broadcast."""
    (x,) = call.operands
    return moved(
        call.results[0],
        call.shape,
        x,
        lambda p: tuple(0 if n == 1 else i for i, n in zip(p, x.shape, strict=True)),
    )


def reshape(call: Call) -> Answer:
    """reshape."""
    flat = list(call.operands[0].flat)
    return Answer.moved(call.results[0], codes(flat).reshape(call.shape))


def permute(call: Call) -> Answer:
    """permute."""
    order = call.attributes["permutation"]

    def whence(p: Index) -> Index:
        place = [0] * len(order)
        for i, axis in enumerate(order):
            place[axis] = p[i]
        return tuple(place)

    shape = tuple(call.operands[0].shape[a] for a in order)
    return moved(call.results[0], shape, call.operands[0], whence)


def cat(call: Call) -> Answer:
    """cat."""
    x, y = call.operands
    axis = call.attributes["axis"]
    result = np.zeros(call.shape, np.uint64)
    for p in positions(call.shape):
        inside = p[axis] < x.shape[axis]
        behind = (*p[:axis], p[axis] - x.shape[axis], *p[axis + 1 :])
        result[p] = x[p] if inside else y[behind]
    return Answer.moved(call.results[0], result)


def extract(call: Call) -> Answer:
    """extract: the indices follow the source."""
    source, *indices = call.operands
    part = [int(i.reshape(-1)[0]) for i in indices]
    outside = any(i >= n // t for i, n, t in zip(part, source.shape, call.shape, strict=True))

    def whence(p: Index) -> Index | None:
        if outside:
            return None
        return tuple(i * t + q for i, t, q in zip(part, call.shape, p, strict=True))

    return moved(call.results[0], call.shape, source, whence)


def insert(call: Call) -> Answer:
    """insert: source, destination, indices."""
    source, destination, *indices = call.operands
    part = [int(i.reshape(-1)[0]) for i in indices]
    result = destination.copy()
    outside = any(
        i >= n // t for i, n, t in zip(part, destination.shape, source.shape, strict=True)
    )
    if not outside:
        for p in positions(source.shape):
            place = tuple(i * t + q for i, t, q in zip(part, source.shape, p, strict=True))
            result[place] = source[p]
    answer = Answer.moved(call.results[0], result)
    answer.undefined = np.full(result.shape, outside)
    return answer


def gather(call: Call) -> Answer:
    """gather."""
    source, indices = call.operands
    axis = call.attributes["axis"]

    def whence(p: Index) -> Index | None:
        i = int(indices[p])
        return (*p[:axis], i, *p[axis + 1 :]) if i < source.shape[axis] else None

    return moved(call.results[0], indices.shape, source, whence)


# Order statistics


def order_key(code: int, dtype: str, signedness: str) -> tuple[int, int]:
    """A key that sorts elements: numbers by value with equal zeros, then NaN."""
    if not is_float(dtype):
        return 0, signed(code, WIDTHS[dtype]) if signedness == "signed" else code
    f = FORMATS[dtype]
    bits = codes([code])
    if is_nan(bits, f)[0]:
        return 1, 0
    return 0, 0 if is_zero(bits, f)[0] else int(key(bits, f)[0])


def lines(shape: Index, axis: int) -> Iterator[list[Index]]:
    """The positions of each line along an axis."""
    for p in positions((*shape[:axis], *shape[axis + 1 :])):
        yield [(*p[:axis], i, *p[axis:]) for i in range(shape[axis])]


def ranked(
    source: Codes, line: list[Index], dtype: str, signedness: str, descending: bool
) -> list[int]:
    """The places of a line's elements in order, equal ones by position."""
    keys = [order_key(int(source[p]), dtype, signedness) for p in line]

    def before(i: int, j: int) -> int:
        if keys[i] == keys[j]:
            return i - j
        less = keys[i] < keys[j]
        return (1 if less else -1) if descending else (-1 if less else 1)

    return sorted(range(len(line)), key=cmp_to_key(before))


def sort(call: Call) -> list[Answer]:
    """sort."""
    first = call.operands[0]
    axis, down = call.attributes["axis"], bool(call.attribute("descending", False))
    results = [np.zeros_like(x) for x in call.operands]
    for line in lines(first.shape, axis):
        order = ranked(first, line, call.dtypes[0], call.attribute("signedness", "signed"), down)
        for place, i in zip(line, order, strict=True):
            for result, x in zip(results, call.operands, strict=True):
                result[place] = x[line[i]]
    return [Answer.moved(d, r) for d, r in zip(call.results, results, strict=True)]


def topk(call: Call) -> list[Answer]:
    """topk. NaN is greatest in this order."""
    (x,) = call.operands
    axis, count = call.attributes["axis"], call.attributes["count"]
    down = not call.attribute("smallest", False)
    shape = (*x.shape[:axis], count, *x.shape[axis + 1 :])
    values, places = np.zeros(shape, np.uint64), np.zeros(shape, np.uint64)
    for line in lines(x.shape, axis):
        order = ranked(x, line, call.dtypes[0], call.attribute("signedness", "signed"), down)
        for j, i in enumerate(order[:count]):
            at = (*line[0][:axis], j, *line[0][axis + 1 :])
            values[at], places[at] = x[line[i]], i
    return [Answer.moved(call.results[0], values), Answer.exactly("i32", places)]


def arg_extreme(call: Call) -> Answer:
    """argmax, argmin."""
    (x,) = call.operands
    axis, dtype = call.attributes["axis"], call.dtypes[0]
    found: list[int] = []
    for line in lines(x.shape, axis):
        keys = [order_key(int(x[p]), dtype, call.attribute("signedness", "signed")) for p in line]
        nans = [i for i, k in enumerate(keys) if k[0]]
        if nans:
            found.append(nans[0])
        else:
            found.append(keys.index(max(keys) if call.op == "argmax" else min(keys)))
    return Answer.exactly("i32", codes(found))


def histogram(call: Call) -> Answer:
    """histogram; the mask is the second operand, if there is one."""
    x, *mask = call.operands
    bins = call.attributes["bins"]
    counts = [0] * bins
    kept = mask[0].reshape(-1).tolist() if mask else [1] * x.size
    for value, keep in zip(x.reshape(-1).tolist(), kept, strict=True):
        if keep and value < bins:
            counts[value] += 1
    return Answer.exactly("i32", codes(counts))


TILE_ORACLES: dict[str, Callable[[Call], Answer | list[Answer]]] = {
    "constant": constant,
    "iota": iota,
    "select": select,
    "broadcast": broadcast,
    "reshape": reshape,
    "permute": permute,
    "cat": cat,
    "extract": extract,
    "insert": insert,
    "gather": gather,
    "sort": sort,
    "topk": topk,
    "argmax": arg_extreme,
    "argmin": arg_extreme,
    "histogram": histogram,
}
