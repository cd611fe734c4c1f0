"""Elementary functions: ranges around the exact value, with as many digits as it takes to decide.

Formats of 16 bits are tested on every value, and now and then so is f32. Exact values then come
from long double (64 significant bits, the C library's own algorithms), trusted to 58; where that
leaves a range open, and everywhere else, mpmath decides.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import mpmath
import numpy as np
from reftile.conformance.oracle.answer import Answer, Call, Limit
from reftile.conformance.oracle.floats import operands, signed_zero, special
from reftile.conformance.oracle.formats import (
    Codes,
    Format,
    Mask,
    U,
    infinity,
    is_infinite,
    is_nan,
    is_zero,
    join,
    split,
    take_apart,
    to_float64,
)
from reftile.conformance.oracle.integers import read
from reftile.conformance.oracle.limits import (
    WIDE,
    Dyadic,
    LongDouble,
    answer_from,
    settle,
    wide_ranges,
)

WIDE_ERROR = 2.0**-58
MANY = 4000
"""Elements of f32 from which on long double is asked first."""
HUGE = 40000
"""A power of two further out than any format of ours."""


def one(x: Codes, f: Format, negative: Mask | None = None) -> Codes:
    """Ones, with signs."""
    ones = np.full(x.shape, f.bias << f.mantissa_bits, np.uint64)
    return join(np.zeros(x.shape, bool) if negative is None else negative, ones, f)


Specials = Callable[[Codes, Format], tuple[Mask, Codes]]
"""(where the answer is a special value, that value); NaN in gives NaN out, without being said."""


def _at_infinity(plus: str, minus: str) -> Specials:
    """Answers at the infinities, by name."""

    def specials(x: Codes, f: Format) -> tuple[Mask, Codes]:
        sign, _ = split(x, f)
        kinds = {
            "inf": infinity(np.zeros(x.shape, bool), f),
            "-inf": infinity(np.ones(x.shape, bool), f),
            "0": np.zeros(x.shape, np.uint64),
            "1": one(x, f),
            "-1": one(x, f, np.ones(x.shape, bool)),
            "nan": np.full(x.shape, f.nan_code, np.uint64),
        }
        return is_infinite(x, f), np.where(sign, kinds[minus], kinds[plus])

    return specials


def _odd(plus: str, minus: str) -> Specials:
    """As `_at_infinity`; zeros give themselves."""

    def specials(x: Codes, f: Format) -> tuple[Mask, Codes]:
        where, bits = _at_infinity(plus, minus)(x, f)
        zero = is_zero(x, f)
        return where | zero, np.where(zero, x, bits)

    return specials


def _logarithm(x: Codes, f: Format) -> tuple[Mask, Codes]:
    sign, _ = split(x, f)
    zero, large = is_zero(x, f), is_infinite(x, f)
    bits = np.where(sign, U(f.nan_code), infinity(np.zeros(x.shape, bool), f))
    return zero | large | sign, np.where(zero, infinity(np.ones(x.shape, bool), f), bits)


def _log1p(x: Codes, f: Format) -> tuple[Mask, Codes]:
    value = to_float64(x, f)
    where, bits = _odd("inf", "nan")(x, f)
    bits = np.where(value == -1, infinity(np.ones(x.shape, bool), f), bits)
    return where | (value <= -1), np.where(value < -1, U(f.nan_code), bits)


def _rsqrt(x: Codes, f: Format) -> tuple[Mask, Codes]:
    sign, _ = split(x, f)
    zero, large = is_zero(x, f), is_infinite(x, f)
    bits = np.where(sign, U(f.nan_code), U(0))
    return zero | large | sign, np.where(zero, infinity(sign, f), bits)


def _wide_erf(x: LongDouble) -> LongDouble:
    """2 / sqrt(pi) * exp(-x^2) * sum of 2^n x^(2n+1) / (2n+1)!!: all terms of one sign."""
    a = np.minimum(np.abs(x), np.longdouble(7))
    term = a.copy()
    total = a.copy()
    for n in range(1, 220):
        term = term * 2 * a * a / (2 * n + 1)
        total = total + term
        if not np.any(term > total * 2.0**-70):
            break
    root = np.sqrt(np.longdouble(4) * np.arctan(np.longdouble(1)))
    return np.copysign(np.where(np.abs(x) >= 7, 1, 2 / root * np.exp(-a * a) * total), x)


UNARY: dict[str, tuple[Specials, Callable[[Any], Any], Callable[[Any], Any]]] = {
    # name: (special values, in long double, in mpmath)
    "exp": (_at_infinity("inf", "0"), np.exp, mpmath.exp),
    "exp2": (_at_infinity("inf", "0"), np.exp2, lambda x: mpmath.power(2, x)),
    "expm1": (_odd("inf", "-1"), np.expm1, mpmath.expm1),
    "log": (_logarithm, np.log, mpmath.log),
    "log2": (_logarithm, np.log2, lambda x: mpmath.log(x) / mpmath.log(2)),
    "log1p": (_log1p, np.log1p, mpmath.log1p),
    "sin": (_odd("nan", "nan"), np.sin, mpmath.sin),
    "cos": (_at_infinity("nan", "nan"), np.cos, mpmath.cos),
    "tan": (_odd("nan", "nan"), np.tan, mpmath.tan),
    "sinh": (_odd("inf", "-inf"), np.sinh, mpmath.sinh),
    "cosh": (_at_infinity("inf", "inf"), np.cosh, mpmath.cosh),
    "tanh": (_odd("1", "-1"), np.tanh, mpmath.tanh),
    "erf": (_odd("1", "-1"), _wide_erf, mpmath.erf),
    "rsqrt": (_rsqrt, lambda x: 1 / np.sqrt(x), lambda x: 1 / mpmath.sqrt(x)),
}


def unary(call: Call) -> Answer:
    """The functions of one number."""
    f, (x,) = operands(call)
    specials, wide, precise = UNARY[call.op]
    where, bits = specials(x, f)
    nan = is_nan(x, f)
    fixed = np.where(nan, U(f.nan_code), bits)
    plain = ~(where | nan)
    answer = _ranges(call, f, x, plain, wide, precise)
    return special(answer, ~plain, fixed, f, call)


def _ranges(
    call: Call,
    f: Format,
    x: Codes,
    plain: Mask,
    wide: Callable[[Any], Any],
    precise: Callable[[Any], Any],
) -> Answer:
    limit = call.limit or Limit.of(0.5, x.shape)
    low, high = np.zeros(x.shape, np.uint64), np.zeros(x.shape, np.uint64)
    open_, sign = plain.copy(), np.zeros(x.shape, bool)
    if WIDE and (f.width == 16 or (f.width == 32 and x.size > MANY)):
        values = to_float64(np.where(plain, x, one(x, f)), f).astype(np.longdouble)
        with np.errstate(all="ignore"):
            found = _apart(call.op, values, wide(values))
        sign = np.signbit(found)
        low, high, undecided = wide_ranges(found, WIDE_ERROR, f, limit)
        open_ &= undecided
    for i in np.flatnonzero(open_):
        minus, pair = _settle_one(_number(x[i : i + 1], f), precise, f, limit, int(i), call.op)
        sign[i], low[i], high[i] = minus, *pair
    return answer_from(call.results[0], f, sign, low.tolist(), high.tolist(), limit)


TENDS = {
    # name: (to what the magnitude of the result tends, from which side: -1 below, 1 above, 2 that
    # of the operand's sign, -2 the other); in the order in which they are tried
    "exp": (("1", 2),),
    "exp2": (("1", 2),),
    "cosh": (("1", 1),),
    "cos": (("1", -1),),
    "expm1": (("x", 2), ("1", -1)),
    "log1p": (("x", -2),),
    "tanh": (("x", -1), ("1", -1)),
    "erf": (("1", -1),),
    "sin": (("x", -1),),
    "tan": (("x", 1),),
    "sinh": (("x", 1),),
}


def _apart(op: str, x: LongDouble, found: LongDouble) -> LongDouble:
    """`found`, moved to the right side where it may equal 1, or its operand, for all we know.

    No number of 32 bits, and no end of a range that counts in units, lies as near as that.
    """
    for target, side in TENDS.get(op, ()):
        goal = np.abs(x) if target == "x" else np.ones_like(found)
        near = (np.abs(np.abs(found) - goal) <= goal * 2.0**-44) & (x != 0)
        way = np.sign(x) * (side // 2) if abs(side) == 2 else np.full(x.shape, side)
        moved = np.copysign(goal * (1 + way * np.longdouble(2.0**-40)), found)
        found = np.where(near, moved, found)
    return found


def _number(x: Codes, f: Format) -> Dyadic:
    sign, m, e = take_apart(x, f)
    return (-int(m[0]) if sign[0] else int(m[0])), int(e[0])


GROWING = {"exp": 1.4427, "exp2": 1.0, "expm1": 1.4427, "sinh": 1.4427, "cosh": 1.4427}
FLAT = {"tanh": 6, "erf": 3, "expm1": 7}
"""From which power of two on a function is as good as 1 in magnitude (expm1:

on the negative side).
"""


def _settle_one(
    x: Dyadic, precise: Callable[[Any], Any], f: Format, limit: Limit, index: int, op: str
) -> tuple[bool, tuple[int, int]]:
    if op in GROWING:
        size = math.ldexp(x[0], x[1]) if x[0].bit_length() + x[1] < 1000 else math.inf * x[0]
        if op in ("sinh", "cosh") or size > 0:
            if abs(size) * GROWING[op] > HUGE:
                minus = op == "sinh" and size < 0
                return minus, settle(lambda _: ((1, HUGE), (1, HUGE)), f, limit, index)
        elif size * GROWING[op] < -HUGE and op != "expm1":
            tiny: tuple[Dyadic, Dyadic] = ((0, 0), (1, -HUGE))
            return False, settle(lambda _: tiny, f, limit, index)
    if op in FLAT and x[0].bit_length() + x[1] > FLAT[op] and (op != "expm1" or x[0] < 0):
        # So little below 1 that no format tells.
        near: Dyadic = (1 << 3000) - 1, -3000
        return x[0] < 0, settle(lambda _: (near, near), f, limit, index)
    return refine_with(lambda: precise(mpmath.mpf(x[0]) * mpmath.power(2, x[1])), f, limit, index)


def refine_with(
    compute: Callable[[], Any], f: Format, limit: Limit, index: int
) -> tuple[bool, tuple[int, int]]:
    """(sign, range) of a value that mpmath computes to any precision."""
    signs: list[bool] = []

    def refine(digits: int) -> tuple[Dyadic, Dyadic]:
        # The operands have up to 53 bits and exponents of 11: they are exact at every precision
        # used.
        with mpmath.workprec(digits + 24):
            sign, man, exp, _ = compute()._mpf_
        signs.append(bool(sign))
        man = int(man)
        if man == 0:
            return (0, 0), (0, 0)
        extra = digits + 8 - man.bit_length()
        if extra > 0:
            man, exp = man << extra, exp - extra
        error = 1 << max(man.bit_length() - digits, 0)
        return (man - error, int(exp)), (man + error, int(exp))

    found = settle(refine, f, limit, index)
    return signs[-1], found


def power(call: Call) -> Answer:
    """pow, fpowi."""
    f, given = operands(call)
    x, y = given
    sx, _ = split(x, f)
    if call.op == "fpowi":
        exponents: list[Dyadic] = [(n, 0) for n in read(call.operands[1], call.dtypes[1], "signed")]
        y_nan = np.zeros(x.shape, bool)
        y_inf, y_minus = y_nan, np.array([n < 0 for n, _ in exponents], bool)
        y_zero = np.array([n == 0 for n, _ in exponents], bool)
    else:
        sy, m, e = take_apart(y, f)
        exponents = [
            (-a if s else a, b) for a, b, s in zip(m.tolist(), e.tolist(), sy.tolist(), strict=True)
        ]
        y_nan, y_inf, y_zero, y_minus = is_nan(y, f), is_infinite(y, f), is_zero(y, f), sy
    whole = np.array([_is_whole(v) for v in exponents], bool) & ~y_inf
    odd = np.array([_is_whole(v) and _is_odd(v) for v in exponents], bool) & ~y_inf
    size = np.abs(to_float64(x, f))
    is_one = ~sx & (size == 1)
    x_zero, x_inf, x_nan = is_zero(x, f), is_infinite(x, f), is_nan(x, f)
    minus = sx & odd

    fixed = np.full(x.shape, f.nan_code, np.uint64)
    where = x_nan | y_nan
    negative = sx & ~x_zero & ~x_inf & ~whole & ~y_inf
    where = where | negative
    edge = (x_zero | x_inf) & ~y_nan & ~x_nan
    large = (x_zero & y_minus) | (x_inf & ~y_minus)
    fixed = np.where(edge, np.where(large, infinity(minus, f), signed_zero(minus, f)), fixed)
    where = where | edge
    reaches = y_inf & ~x_nan & ~x_zero & ~x_inf
    up = (size > 1) != y_minus
    zero = np.zeros(x.shape, bool)
    fixed = np.where(reaches, np.where(up, infinity(zero, f), U(0)), fixed)
    fixed = np.where(reaches & (size == 1), one(x, f), fixed)
    where = where | reaches
    ones = y_zero | is_one
    fixed, where = np.where(ones, one(x, f), fixed), where | ones
    return special(_powers(call, f, x, exponents, ~where, minus), where, fixed, f, call)


def _is_whole(value: Dyadic) -> bool:
    m, e = value
    return e >= 0 or m % (1 << min(-e, 2000)) == 0


def _is_odd(value: Dyadic) -> bool:
    m, e = value
    return e <= 0 and (m >> min(-e, 2000)) & 1 == 1


def _powers(
    call: Call, f: Format, x: Codes, exponents: list[Dyadic], plain: Mask, minus: Mask
) -> Answer:
    limit = call.limit or Limit.of(0.5, x.shape)
    low, high = [0] * x.size, [0] * x.size
    _, mx, ex = take_apart(x, f)
    for i in np.flatnonzero(plain):
        m, e = int(mx[i]), int(ex[i])
        n, d = exponents[i]
        logarithm = _log2(m, e)
        exponent = math.ldexp(n, d) if n.bit_length() + d < 1000 else math.inf * n
        reach = logarithm * exponent if logarithm else 0.0
        if abs(reach) < 2.0**-200 and n:
            # So near 1 that no format tells; and which side matters only to the sign of the
            # difference.
            near = ((1 << 3000) + (1 if reach > 0 else -1), -3000)
            low[i], high[i] = settle(lambda _, near=near: (near, near), f, limit, int(i))
            continue
        if abs(reach) > HUGE:
            ends = ((1, HUGE), (1, HUGE)) if reach > 0 else ((0, 0), (1, -HUGE))
            low[i], high[i] = settle(lambda _, ends=ends: ends, f, limit, int(i))
            continue

        def compute(m: int = m, e: int = e, n: int = n, d: int = d) -> Any:
            with mpmath.extraprec(80):
                return mpmath.power(
                    mpmath.mpf(m) * mpmath.power(2, e), mpmath.mpf(n) * mpmath.power(2, d)
                )

        low[i], high[i] = refine_with(compute, f, limit, int(i))[1]
    return answer_from(call.results[0], f, minus, low, high, limit)


def _log2(m: int, e: int) -> float:
    """log2(m * 2**e) to a few digits, also next to 1."""
    if -1100 < e < 0:
        one = 1 << -e
        if abs(m - one) * 4 < one:
            return math.log1p((m - one) / one) / math.log(2)
    return math.log2(m) + e


def angle(call: Call) -> Answer:
    """atan2."""
    f, (ordinate, abscissa) = operands(call)
    limit = call.limit or Limit.of(0.5, ordinate.shape)
    (sy, my, ey), (sx, mx, ex) = take_apart(ordinate, f), take_apart(abscissa, f)
    iy, ix = is_infinite(ordinate, f), is_infinite(abscissa, f)
    zy, zx = is_zero(ordinate, f), is_zero(abscissa, f)
    nan = is_nan(ordinate, f) | is_nan(abscissa, f)
    zero = (zy | (ix & ~iy)) & ~sx & ~nan
    low, high = [0] * ordinate.size, [0] * ordinate.size
    for i in np.flatnonzero(~(nan | zero)):
        if iy[i] and ix[i]:
            factor = (3, 4) if sx[i] else (1, 4)
        elif iy[i] or (zx[i] and not zy[i]):
            factor = (1, 2)
        elif zy[i] or ix[i]:
            factor = (1, 1)
        else:
            factor = None

        def compute(i: int = int(i), factor: tuple[int, int] | None = factor) -> Any:
            if factor is not None:
                return mpmath.pi * factor[0] / factor[1]
            y = mpmath.mpf(int(my[i])) * mpmath.power(2, int(ey[i]))
            x = mpmath.mpf(int(mx[i])) * mpmath.power(2, int(ex[i]))
            return mpmath.atan2(y, -x if sx[i] else x)

        low[i], high[i] = refine_with(compute, f, limit, int(i))[1]
    answer = answer_from(call.results[0], f, sy, low, high, limit)
    fixed = np.where(nan, U(f.nan_code), signed_zero(sy, f))
    return special(answer, nan | zero, fixed, f, call)


FUNCTION_ORACLES: dict[str, Callable[[Call], Answer]] = dict.fromkeys(UNARY, unary) | {
    "pow": power,
    "fpowi": power,
    "atan2": angle,
}
