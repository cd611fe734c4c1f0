"""Arithmetic, comparison and rounding of floats, by exact integers."""

from __future__ import annotations

from math import isqrt

import numpy as np
from reftile.conformance.oracle.answer import Answer, Call
from reftile.conformance.oracle.formats import (
    FORMATS,
    Codes,
    Format,
    Integers,
    Mask,
    U,
    bit_length,
    codes,
    flush,
    infinity,
    is_finite,
    is_infinite,
    is_nan,
    is_subnormal,
    is_zero,
    join,
    key,
    round_integers,
    round_to,
    shift_down,
    split,
    take_apart,
)
from reftile.conformance.oracle.limits import Dyadic, answer_from, settle

Exact = tuple[int, int, bool]
"""(m, e, sticky): the number m * 2**e, or a little further from zero."""

QUOTIENT_BITS = 140


def operands(call: Call) -> tuple[Format, list[Codes]]:
    """The format, and the operands as the operation sees them."""
    f = FORMATS[call.dtypes[0]]
    return f, [flush(x, f) if call.flush else x for x in call.operands]


def ints(bits: Codes, f: Format) -> list[tuple[int, int]]:
    """(signed m, e) of each element."""
    sign, m, e = take_apart(bits, f)
    pairs = zip(m.tolist(), e.tolist(), sign.tolist(), strict=True)
    return [(-a if s else a, b) for a, b, s in pairs]


def finish(call: Call, f: Format, bits: Codes) -> Answer:
    """An answer, flushed if the operation asks for it."""
    if call.flush:
        bits = flush(bits, f)
    return Answer.exactly(call.results[0], bits)


def signed_zero(sign: Mask, f: Format) -> Codes:
    """Zeros with signs."""
    return join(sign, np.zeros(sign.shape, np.uint64), f)


def nan(shape: tuple[int, ...], f: Format) -> Codes:
    """NaN everywhere."""
    return np.full(shape, f.nan_code, np.uint64)


def align(a: tuple[int, int], b: tuple[int, int]) -> tuple[int, int, int]:
    """Two numbers over one exponent."""
    (m, e), (n, d) = a, b
    low = min(e, d)
    return m << (e - low), n << (d - low), low


def exact_sum(a: tuple[int, int], b: tuple[int, int]) -> Exact:
    m, n, e = align(a, b)
    return m + n, e, False


def add(call: Call) -> Answer:
    """addf, subf."""
    f, (x, y) = operands(call)
    if call.op == "subf":
        y = y ^ U(1 << (f.width - 1))
    return finish(call, f, sums(x, y, f, call.attribute("rounding", "nearest_even")))


def sums(x: Codes, y: Codes, f: Format, mode: str) -> Codes:
    """x + y, rounded once."""
    parts = [exact_sum(a, b) for a, b in zip(ints(x, f), ints(y, f), strict=True)]
    bits = round_integers(parts, f, mode)
    return sum_specials(x, y, f, mode, parts, bits)


def sum_specials(
    x: Codes, y: Codes, f: Format, mode: str, parts: list[Exact], bits: Codes
) -> Codes:
    """Zeros, infinities and NaN of a sum of which `bits` is the rounded exact value."""
    (sx, _), (sy, _) = split(x, f), split(y, f)
    none = np.array([m == 0 for m, _, _ in parts], bool)
    minus = np.where(sx == sy, sx, mode == "negative_inf")
    bits = np.where(none, signed_zero(minus, f), bits)
    ix, iy = is_infinite(x, f), is_infinite(y, f)
    bits = np.where(iy, infinity(sy, f), np.where(ix, infinity(sx, f), bits))
    bad = is_nan(x, f) | is_nan(y, f) | (ix & iy & (sx != sy))
    return np.where(bad, U(f.nan_code), bits)


def multiply(call: Call) -> Answer:
    """mulf."""
    f, (x, y) = operands(call)
    pairs = zip(ints(x, f), ints(y, f), strict=True)
    parts = [(a * b, e + d, False) for (a, e), (b, d) in pairs]
    bits = round_integers(parts, f, call.attribute("rounding", "nearest_even"))
    return finish(call, f, product_specials(x, y, f, bits))


def product_specials(x: Codes, y: Codes, f: Format, bits: Codes) -> Codes:
    """Zeros, infinities and NaN of a product."""
    (sx, _), (sy, _) = split(x, f), split(y, f)
    sign = sx ^ sy
    zero = is_zero(x, f) | is_zero(y, f)
    large = is_infinite(x, f) | is_infinite(y, f)
    bits = np.where(zero, signed_zero(sign, f), bits)
    bits = np.where(large, infinity(sign, f), bits)
    bad = is_nan(x, f) | is_nan(y, f) | (zero & large)
    return np.where(bad, U(f.nan_code), bits)


def fused(call: Call) -> Answer:
    """fma."""
    f, (x, y, z) = operands(call)
    mode = call.attribute("rounding", "nearest_even")
    products = [(a * b, e + d) for (a, e), (b, d) in zip(ints(x, f), ints(y, f), strict=True)]
    parts = [exact_sum(p, c) for p, c in zip(products, ints(z, f), strict=True)]
    bits = round_integers(parts, f, mode)
    # A stand-in for the product: its sign, and whether it is a zero, an infinity or NaN.
    product = product_specials(
        x, y, f, join(split(x, f)[0] ^ split(y, f)[0], codes([1] * x.size), f)
    )
    return finish(call, f, sum_specials(product, z, f, mode, parts, bits))


def exact_quotient(a: tuple[int, int], b: tuple[int, int]) -> Exact:
    """a / b with b not zero."""
    (m, e), (n, d) = a, b
    q, rest = divmod(abs(m) << QUOTIENT_BITS, abs(n))
    return (q if (m < 0) == (n < 0) else -q), e - d - QUOTIENT_BITS, rest != 0


def divide(call: Call) -> Answer:
    """divf, rcp."""
    f, given = operands(call)
    y = given[-1]
    one = np.full(y.shape, f.bias << f.mantissa_bits, np.uint64)
    x = given[0] if call.op == "divf" else one
    (sx, _), (sy, _) = split(x, f), split(y, f)
    sign, zero, none = sx ^ sy, is_zero(y, f), is_zero(x, f)
    ix, iy = is_infinite(x, f), is_infinite(y, f)
    plain = is_finite(x, f) & is_finite(y, f) & ~zero & ~none
    if f.width <= 32 and is_rounded(call):
        answer = _small_quotients(call, f, x, y, plain)
    else:
        pairs = zip(ints(x, f), ints(y, f), plain.tolist(), strict=True)
        parts = [exact_quotient(a, b) if p else (1, 0, False) for a, b, p in pairs]
        answer = rounded_or_ranged(call, f, parts, sign)
    fixed = np.where(zero | ix, infinity(sign, f), signed_zero(sign, f))
    bad = is_nan(x, f) | is_nan(y, f) | (none & zero) | (ix & iy)
    return special(answer, ~plain, np.where(bad, U(f.nan_code), fixed), f, call)


def full_width(sign: Mask, m: Codes, e: Integers) -> tuple[Mask, Codes, Integers]:
    """Numbers of up to 24 bits with 24 bits."""
    lead = np.maximum(24 - bit_length(m), 0)
    return sign, m << lead.astype(np.uint64), e - lead


def _small_quotients(call: Call, f: Format, x: Codes, y: Codes, plain: Mask) -> Answer:
    """Quotients of numbers of up to 24 bits, all at once: 39 bits and whether something is left."""
    sx, m, e = full_width(*take_apart(x, f))
    sy, n, d = take_apart(y, f)
    top, bottom = np.where(plain, m, U(1)) << U(39), np.where(plain, n, U(1))
    quotient, rest = top // bottom, top % bottom
    mode = call.attribute("rounding", "nearest_even")
    bits = round_to(sx ^ sy, quotient, e - d - 39, rest != 0, f, mode)
    return Answer.exactly(call.results[0], bits)


def _small_roots(call: Call, f: Format, x: Codes, plain: Mask) -> Answer:
    """Roots of numbers of up to 24 bits, all at once: of the number times 2**28 or 2**29."""
    sign, m, e = full_width(*take_apart(x, f))
    shift = 28 + (e & 1)
    scaled = np.where(plain, m, U(1)) << shift.astype(np.uint64)
    root = np.floor(np.sqrt(scaled.astype(np.float64))).astype(np.uint64)
    root -= (root * root > scaled).astype(np.uint64)
    mode = call.attribute("rounding", "nearest_even")
    bits = round_to(np.zeros_like(sign), root, (e - shift) // 2, root * root != scaled, f, mode)
    return Answer.exactly(call.results[0], bits)


def special(answer: Answer, where: Mask, bits: Codes, f: Format, call: Call) -> Answer:
    """`answer` with one right answer where the exact result is a special value."""
    answer.low = np.where(where, bits, answer.low)
    answer.high = np.where(where, bits, answer.high)
    if call.flush:
        # A result that is subnormal after rounding becomes a zero: both ends of the range may.
        answer.low, answer.high = _flush_range(answer.low, answer.high, f)
    return answer


def _flush_range(low: Codes, high: Codes, f: Format) -> tuple[Codes, Codes]:
    sign = split(low, f)[0]
    near, far = np.where(sign, high, low), np.where(sign, low, high)
    near = flush(near, f)
    far = np.where(is_subnormal(far, f), flush(far, f), far)
    return np.where(sign, far, near), np.where(sign, near, far)


def is_rounded(call: Call) -> bool:
    """Whether the exact value rounded once is the one answer."""
    approximate = call.attribute("rounding", "") in ("approx", "full")
    return call.limit is None or (
        not approximate and float(np.max(call.limit.ulp, initial=0)) <= 0.5
    )


def rounded_or_ranged(call: Call, f: Format, parts: list[Exact], sign: Mask) -> Answer:
    """Exact values rounded once, or the ranges that the limit allows around them."""
    mode = call.attribute("rounding", "nearest_even")
    limit = call.limit
    if limit is None or is_rounded(call):
        return Answer.exactly(call.results[0], round_integers(parts, f, mode))
    low: list[int] = []
    high: list[int] = []
    rounded = round_integers(parts, f, "nearest_even" if mode in ("approx", "full") else mode)
    once = split(rounded, f)[1].tolist()
    for i, part in enumerate(parts):
        least, most = _settled(part, f, call, i)
        # The value rounded once as asked is right too: away from an infinity, say, in mode `zero`.
        low.append(min(least, once[i]))
        high.append(max(most, once[i]))
    return answer_from(call.results[0], f, sign, low, high, limit)


def _settled(part: Exact, f: Format, call: Call, index: int) -> tuple[int, int]:
    assert call.limit is not None
    m, e, sticky = part
    below: Dyadic = abs(m), e
    above: Dyadic = abs(m) + sticky, e
    return settle(lambda _: (below, above), f, call.limit, index)


def square_root(call: Call) -> Answer:
    """sqrt."""
    f, (x,) = operands(call)
    sign, _ = split(x, f)
    plain = is_finite(x, f) & ~is_zero(x, f) & ~sign
    if f.width <= 32 and is_rounded(call):
        answer = _small_roots(call, f, x, plain)
    else:
        parts: list[Exact] = []
        for (m, e), good in zip(ints(x, f), plain.tolist(), strict=True):
            shift = 140 + (e & 1)
            scaled = (m if good else 1) << shift
            root = isqrt(scaled)
            parts.append((root, (e - shift) // 2, root * root != scaled))
        answer = rounded_or_ranged(call, f, parts, np.zeros(x.shape, bool))
    fixed = np.where(is_zero(x, f), signed_zero(sign, f), infinity(sign, f))
    bad = is_nan(x, f) | (sign & ~is_zero(x, f))
    return special(answer, ~plain, np.where(bad, U(f.nan_code), fixed), f, call)


def remainder(call: Call) -> Answer:
    """remf."""
    f, (x, y) = operands(call)
    sign, _ = split(x, f)
    bad = is_nan(x, f) | is_nan(y, f) | is_infinite(x, f) | is_zero(y, f)
    keeps = is_infinite(y, f) & ~bad
    parts: list[Exact] = []
    for a, b, skip in zip(ints(x, f), ints(y, f), (bad | keeps).tolist(), strict=True):
        if skip:
            parts.append((0, 0, False))
            continue
        m, n, e = align(a, b)
        rest = abs(m) % abs(n)
        parts.append((-rest if m < 0 else rest, e, False))
    bits = round_integers(parts, f, "nearest_even")
    none = np.array([m == 0 for m, _, _ in parts], bool)
    bits = np.where(none, signed_zero(sign, f), bits)
    bits = np.where(keeps, x, bits)
    return finish(call, f, np.where(bad, U(f.nan_code), bits))


def change_sign(call: Call) -> Answer:
    """negf, absf."""
    f, (x,) = operands(call)
    top = U(1 << (f.width - 1))
    bits = x ^ top if call.op == "negf" else x & ~top
    return Answer.moved(call.results[0], bits)


def to_integer(call: Call) -> Answer:
    """ceil, floor, truncf, roundf."""
    f, (x,) = operands(call)
    mode = {
        "ceil": "positive_inf",
        "floor": "negative_inf",
        "truncf": "zero",
        "roundf": "nearest_even",
    }[call.op]
    sign, n, _ = whole_part(x, f, mode)
    bits = round_to(sign, n, np.zeros(x.shape, np.int64), np.zeros(x.shape, bool), f, "zero")
    # What has no fraction stays as it is.
    stays = take_apart(x, f)[2] >= 0
    return finish(call, f, np.where(stays | ~is_finite(x, f), x, bits))


def whole_part(x: Codes, f: Format, mode: str) -> tuple[Mask, Codes, Mask]:
    """(sign, magnitude, too large) of finite floats rounded to integers; magnitudes below 2**64."""
    sign, m, e = take_apart(x, f)
    large = (m != 0) & (e + bit_length(m) > 64)
    up = np.clip(e, 0, 63).astype(np.uint64)
    n, cut, half = shift_down(m, np.maximum(-e, 0))
    inexact = cut != 0
    if mode == "nearest_even":
        bump = inexact & ((cut > half) | ((cut == half) & (n & U(1) != 0)))
    elif mode == "zero":
        bump = np.zeros(x.shape, bool)
    else:
        bump = inexact & (sign if mode == "negative_inf" else ~sign)
    return sign, (n + bump.astype(np.uint64)) << up, large


def extreme(call: Call) -> Answer:
    """maxf, minf."""
    f, (x, y) = operands(call)
    kx, ky = key(x, f), key(y, f)
    first = kx >= ky if call.op == "maxf" else kx <= ky
    bits = np.where(first, x, y)
    nx, ny = is_nan(x, f), is_nan(y, f)
    if call.attribute("propagate_nan", False):
        bits = np.where(nx | ny, U(f.nan_code), bits)
    else:
        bits = np.where(nx, y, np.where(ny, x, bits))
        bits = np.where(nx & ny, U(f.nan_code), bits)
    return finish(call, f, bits)


def compare(call: Call) -> Answer:
    """cmpf."""
    f, (x, y) = operands(call)
    kx, ky = (np.where(is_zero(v, f), 0, key(v, f)) for v in (x, y))
    predicate = call.attribute("predicate", "")
    result = relation(kx, ky, predicate)
    unordered = call.attribute("ordering", "ordered") == "unordered"
    result = np.where(is_nan(x, f) | is_nan(y, f), unordered, result)
    return Answer.exactly("i1", result.astype(np.uint64))


def relation(x: np.ndarray, y: np.ndarray, predicate: str) -> Mask:
    """A comparison of integers by its name."""
    match predicate:
        case "equal":
            return x == y
        case "not_equal":
            return x != y
        case "less_than":
            return x < y
        case "less_than_or_equal":
            return x <= y
        case "greater_than":
            return x > y
        case _:
            return x >= y


FLOAT_ORACLES = {
    "addf": add,
    "subf": add,
    "mulf": multiply,
    "divf": divide,
    "rcp": divide,
    "fma": fused,
    "remf": remainder,
    "negf": change_sign,
    "absf": change_sign,
    "maxf": extreme,
    "minf": extreme,
    "cmpf": compare,
    "ceil": to_integer,
    "floor": to_integer,
    "truncf": to_integer,
    "roundf": to_integer,
    "sqrt": square_root,
}
