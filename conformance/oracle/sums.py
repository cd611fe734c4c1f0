"""Sums of many numbers: exact, with the bounds that follow from the data.

u = 2**-p of the type in which sums are kept, gamma(n) = n u / (1 - n u). Sums are exact fractions;
what an implementation may return is every number within the bound of the exact sum, and half a unit
of the result more where it is narrower than the sum.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from fractions import Fraction

import numpy as np
from reftile.conformance.oracle.answer import Answer, Call
from reftile.conformance.oracle.floats import ints
from reftile.conformance.oracle.formats import (
    FORMATS,
    WIDTHS,
    Codes,
    Format,
    codes,
    is_infinite,
    is_nan,
    join,
    round_integers,
    split,
)
from reftile.conformance.oracle.integers import signed, wrap
from reftile.conformance.oracle.limits import magnitude_code, unit
from reftile.conformance.oracle.tiles import lines, positions

Value = Fraction | str
"""A number, or "inf", "-inf", "nan"."""


@dataclass(frozen=True)
class Profile:
    """How an implementation adds: nothing, or blocks of `size` products with `extra` bits kept.

    unit_bits: u = 2**-unit_bits; 0 stands for that of the accumulator.
    """

    size: int = 0
    extra: int = 0
    unit_bits: int = 0
    fused: bool = True
    pairs: bool = False


def values(bits: Codes, dtype: str) -> list[Value]:
    """Elements as fractions."""
    f = FORMATS[dtype]
    sign, _ = split(bits, f)
    nan, large = is_nan(bits, f), is_infinite(bits, f)
    result: list[Value] = []
    for (m, e), s, n, i in zip(ints(bits, f), sign, nan, large, strict=True):
        if n:
            result.append("nan")
        elif i:
            result.append("-inf" if s else "inf")
        else:
            result.append(Fraction(m << e) if e >= 0 else Fraction(m, 1 << -e))
    return result


def gamma(n: int, u: Fraction) -> Fraction:
    """n u / (1 - n u)."""
    return n * u / (1 - n * u) if n * u < 1 else Fraction(1 << 200)


def signed_code(value: Fraction, f: Format, upwards: bool) -> int:
    """The code of the nearest number not below (above) a value."""
    minus = value < 0
    magnitude = magnitude_code(abs(value), f, upwards != minus)
    # Zeros of either sign are answers to a sum that is zero.
    minus = minus if magnitude else not upwards if value == 0 else minus
    return int(join(np.array([minus]), codes([magnitude]), f)[0])


def around(exact: Fraction, bound: Fraction, f: Format) -> tuple[int, int]:
    """(low, high) codes within a bound; a zero at either end takes both signs."""
    low, high = exact - bound, exact + bound
    least = signed_code(low, f, True)
    most = signed_code(high, f, False)
    top = 1 << (f.width - 1)
    if least & (top - 1) == 0:
        least = top
    if most & (top - 1) == 0:
        most = 0
    return least, most


def nearest(exact: Fraction, f: Format) -> tuple[int, int]:
    """The number nearest to an exact value, ties to even:

    for sums in which nothing is rounded before.
    """
    below = magnitude_code(abs(exact), f, False)
    above = magnitude_code(abs(exact), f, True)
    if exact == 0:
        return 1 << (f.width - 1), 0
    if below == above:
        code = below
    else:
        scale = 400 - (exact.numerator.bit_length() - exact.denominator.bit_length())
        scaled = exact * Fraction(2) ** scale
        m = int(scaled)
        bits = round_integers([(m, -scale, m != scaled)], f, "nearest_even")
        return int(bits[0]), int(bits[0])
    value = int(join(np.array([exact < 0]), codes([code]), f)[0])
    return value, value


def spread(terms: Sequence[Value]) -> str | None:
    """The special value of a sum of these terms, if it has one."""
    kinds = {t for t in terms if isinstance(t, str)}
    if not kinds:
        return None
    return kinds.pop() if len(kinds) == 1 else "nan"


def times(a: Value, b: Value) -> Value:
    """A product of numbers and special values."""
    if isinstance(a, Fraction) and isinstance(b, Fraction):
        return a * b
    if "nan" in (a, b) or 0 in (a, b):
        return "nan"
    minus = [x.startswith("-") if isinstance(x, str) else x < 0 for x in (a, b)]
    return "-inf" if minus[0] != minus[1] else "inf"


def special_code(kind: str, f: Format) -> int:
    """The code of a special value."""
    if kind == "nan":
        return f.nan_code
    return int(join(np.array([kind == "-inf"]), codes([f.max_code + 1]), f)[0])


# Matrix products


def dot_bound(products: list[Fraction], acc: Fraction, u: Fraction, profile: Profile) -> Fraction:
    """The bound of accuracy class `dot`."""
    k = len(products)
    size = sum((abs(p) for p in products), Fraction(0)) + abs(acc)
    if profile.size:
        total, running = Fraction(0), acc
        for i in range(0, k, profile.size):
            block = products[i : i + profile.size]
            largest = max([abs(running), *(abs(p) for p in block)])
            factor = (profile.size + 1) * Fraction(2) ** (1 - profile.extra)
            total += u * (factor * largest + 2 * abs(running + sum(block)))
            running += sum(block)
        return total
    return gamma(k if profile.fused else k + 1, u) * size


def dot_answer(
    rows: list[list[Value]],
    columns: list[list[Value]],
    acc: list[list[Value]],
    dtype: str,
    exact: bool,
    profile: Profile,
    factor_bits: int,
) -> tuple[list[int], list[int]]:
    """Ranges for one product of matrices; `columns` is the right operand by columns.

    factor_bits: significant bits of the factors.
    """
    f = FORMATS[dtype]
    narrow = f.width == 16
    bits = profile.unit_bits or (24 if narrow else f.precision)
    u = Fraction(1, 1 << bits)
    if 2 * factor_bits > bits:
        # Products do not fit the accumulator: they may be rounded before they are added.
        profile = replace(profile, fused=False)
    low: list[int] = []
    high: list[int] = []
    for i, row in enumerate(rows):
        for j, column in enumerate(columns):
            products = [times(a, b) for a, b in zip(row, column, strict=True)]
            kind = spread([*products, acc[i][j]])
            if kind is not None:
                least = most = special_code(kind, f)
            else:
                numbers = [p for p in products if isinstance(p, Fraction)]
                start = acc[i][j]
                assert isinstance(start, Fraction)
                total = sum(numbers, Fraction(0)) + start
                if exact:
                    least, most = nearest(total, f)
                else:
                    bound = dot_bound(numbers, start, u, profile)
                    if narrow:
                        bound += unit(abs(total) + bound, f) / 2
                    least, most = around(total, bound, f)
            low.append(least)
            high.append(most)
    return low, high


def matrices(bits: Codes, dtype: str) -> list[list[list[Value]]]:
    """A batch of matrices of values, row by row."""
    flat = bits.reshape(-1, *bits.shape[-2:])
    return [[values(row, dtype) for row in matrix] for matrix in flat]


def transposed(matrix: list[list[Value]]) -> list[list[Value]]:
    """The columns of a matrix."""
    return [list(column) for column in zip(*matrix, strict=True)]


def mma(call: Call) -> Answer:
    """mmaf, mmaf_scaled, mmaf_sparse; attribute `exact` says that no sum is rounded."""
    lhs, rhs, acc, target = _matrix_operands(call)
    low: list[int] = []
    high: list[int] = []
    profile = call.attributes.get("profile", Profile())
    for a, b, c in zip(lhs, rhs, acc, strict=True):
        ranges = dot_answer(
            a,
            transposed(b),
            c,
            target,
            bool(call.attribute("exact", False)),
            profile,
            FORMATS[call.dtypes[0]].precision,
        )
        low.extend(ranges[0])
        high.extend(ranges[1])
    return Answer(target, codes(low), codes(high))


Batch = list[list[list[Value]]]


def _matrix_operands(call: Call) -> tuple[Batch, Batch, Batch, str]:
    target = call.results[0]
    if call.op == "mmaf_sparse":
        packed, metadata, right, start = call.operands
        lhs = _expanded(matrices(packed, call.dtypes[0]), metadata, right.shape[-2])
        return lhs, matrices(right, call.dtypes[2]), matrices(start, call.dtypes[3]), target
    lhs, rhs, acc = (matrices(x, d) for x, d in zip(call.operands[:3], call.dtypes, strict=False))
    if call.op == "mmaf_scaled":
        left, right = (matrices(x, call.dtypes[3]) for x in call.operands[3:])
        for matrix, scale in zip(lhs, left, strict=True):
            block = len(matrix[0]) // len(scale[0])
            for row, factors in zip(matrix, scale, strict=True):
                row[:] = [times(v, factors[k // block]) for k, v in enumerate(row)]
        for matrix, scale in zip(rhs, right, strict=True):
            block = len(matrix) // len(scale)
            for k, row in enumerate(matrix):
                row[:] = [times(v, s) for v, s in zip(row, scale[k // block], strict=True)]
    return lhs, rhs, acc, target


def _expanded(packed: Batch, metadata: Codes, k: int) -> Batch:
    flat = metadata.reshape(-1, *metadata.shape[-2:])
    result: Batch = []
    for matrix, places in zip(packed, flat, strict=True):
        rows: list[list[Value]] = []
        for row, data in zip(matrix, places.tolist(), strict=True):
            full: list[Value] = [Fraction(0)] * k
            for group in range(k // 4):
                nibble = data[group // 2] >> (4 * (group % 2)) & 15
                full[4 * group + (nibble & 3)] = row[2 * group]
                full[4 * group + (nibble >> 2)] = row[2 * group + 1]
            rows.append(full)
        result.append(rows)
    return result


def mma_integers(call: Call) -> Answer:
    """mmai."""
    lhs, rhs, acc = call.operands
    width = WIDTHS[call.dtypes[0]]

    def number(code: int, signedness: str) -> int:
        return signed(code, width) if signedness == "signed" else code

    batch, m, n, k = lhs.shape[:-2], lhs.shape[-2], rhs.shape[-1], lhs.shape[-1]
    sides = call.attributes["signedness_lhs"], call.attributes["signedness_rhs"]
    result: list[int] = []
    for p in positions((*batch, m, n)):
        *b, i, j = p
        total = signed(int(acc[p]), 32)
        for q in range(k):
            left = number(int(lhs[(*b, i, q)]), sides[0])
            total += left * number(int(rhs[(*b, q, j)]), sides[1])
        result.append(total)
    return Answer.exactly("i32", wrap(result, "i32"))


# Reductions and scans


def sum_line(terms: Sequence[Value], f: Format, exact: bool, profile: Profile) -> tuple[int, int]:
    """The range of a sum of floats of one format, added in any order."""
    kind = spread(terms)
    if kind is not None:
        return special_code(kind, f), special_code(kind, f)
    numbers = [t for t in terms if isinstance(t, Fraction)]
    total = sum(numbers, Fraction(0))
    if exact:
        return nearest(total, f)
    n = len(numbers)
    count = max(n - 1, 1).bit_length() if profile.pairs and n > 1 else max(n - 1, 0)
    u = Fraction(1, 1 << f.precision)
    # A sum that is a subnormal number is exact, so gamma needs no absolute part.
    return around(total, gamma(count, u) * sum(abs(x) for x in numbers), f)


def reduce_sum(call: Call) -> Answer:
    """reduce and scan by addf."""
    (x,) = call.operands
    f, axis = FORMATS[call.dtypes[0]], call.attributes["axis"]
    exact, profile = bool(call.attribute("exact", False)), call.attributes.get("profile", Profile())
    low, high = np.zeros(x.shape, np.uint64), np.zeros(x.shape, np.uint64)
    single: list[tuple[int, int]] = []
    for line in lines(x.shape, axis):
        terms = values(codes([x[p] for p in line]), call.dtypes[0])
        if call.op == "reduce":
            single.append(sum_line(terms, f, exact, profile))
            continue
        ordered = list(reversed(line)) if call.attribute("reverse", False) else line
        terms = terms[::-1] if call.attribute("reverse", False) else terms
        for i, p in enumerate(ordered):
            low[p], high[p] = sum_line(terms[: i + 1], f, exact, profile)
    if call.op == "reduce":
        return Answer(call.results[0], codes([a for a, _ in single]), codes([b for _, b in single]))
    return Answer(call.results[0], low, high)


Combine = Callable[[tuple[int, ...], tuple[int, ...]], tuple[int, ...]]
"""(elements, accumulators) to accumulators, as codes."""


def fold(call: Call, combine: Combine) -> list[Answer]:
    """reduce and scan by an exact, associative function of several operands, from left to right."""
    axis, count = call.attributes["axis"], len(call.operands)
    shape = call.operands[0].shape
    scans = [np.zeros(shape, np.uint64) for _ in range(count)]
    totals: list[tuple[int, ...]] = []
    for line in lines(shape, axis):
        ordered = list(reversed(line)) if call.attribute("reverse", False) else line
        acc: tuple[int, ...] | None = None
        for p in ordered:
            element = tuple(int(x[p]) for x in call.operands)
            acc = element if acc is None else combine(element, acc)
            for result, value in zip(scans, acc, strict=True):
                result[p] = value
        assert acc is not None
        totals.append(acc)
    if call.op == "scan":
        arrays = scans
    else:
        arrays = [codes([t[i] for t in totals]) for i in range(count)]
    return [Answer.exactly(d, a) for d, a in zip(call.results, arrays, strict=True)]
