import itertools
import math
from collections.abc import Callable
from fractions import Fraction

import numpy as np
import pytest

from reftile.ir import arithmetic
from reftile.ir.dtypes import BF16, F8E4M3, F16, F32, F64, TF32, DType
from reftile.ir.exact import round_fraction
from reftile.ir.numbers import convert, decode
from reftile.ir.rounding import Rounding
from tests.ir.float_oracle import (
    FORMATS,
    assert_same,
    comparer,
    root_comparer,
    round_exact,
    same,
)

MODES: tuple[Rounding, ...] = ("nearest_even", "zero", "negative_inf", "positive_inf")
TYPES = (F16, BF16, TF32, F32, F64)
COUNTS = {F16: 350, BF16: 350, TF32: 150, F32: 250, F64: 150}


def f32(value: float) -> np.ndarray:
    return np.array(value, np.float32)


def samples(dtype: DType, count: int, seed: int) -> np.ndarray:
    """Return finite nonzero numbers: random codes, numbers near 1, and edges of the range."""
    rng = np.random.default_rng(seed)
    raw = np.frombuffer(rng.bytes(8 * count), np.uint64).astype(dtype.storage)
    near_one = convert(rng.normal(size=count) * 2.0 ** rng.integers(-3, 3, count), F64, dtype)
    unit = 2.0**-dtype.mantissa_bits
    edges = [dtype.min_subnormal * k for k in (1, 2, 3, 5)]
    edges += [dtype.min_normal, dtype.min_normal - dtype.min_subnormal, dtype.min_normal * 1.5]
    edges += [1, 1 + unit, 1 - unit / 2, 1.5, 2 - unit, 3, unit, unit / 2, unit / 4]
    edges += [dtype.max_finite, dtype.max_finite / 2, math.sqrt(dtype.max_finite)]
    edges += [math.sqrt(dtype.min_normal), math.sqrt(dtype.min_subnormal)]
    edge = convert(np.array(edges), F64, dtype)
    picks = rng.integers(0, 2 * len(edge), count)
    edge = np.concatenate([edge, -edge])[picks]
    which = rng.integers(0, 3, count)
    values = np.where(which == 0, decode(raw, dtype), np.where(which == 1, near_one, edge))
    return np.where(np.isfinite(values) & (values != 0), values, dtype.carrier.type(1.5))


def check(
    actual: Callable[[Rounding], np.ndarray],
    exact: list[Fraction],
    dtype: DType,
    inputs: tuple[np.ndarray, ...],
    make: Callable[[Fraction], Callable[[Fraction], int]] = comparer,
) -> None:
    form = FORMATS[dtype.name]
    rows = [
        [-0.0 if mode == "negative_inf" else 0.0 for mode in MODES]
        if value == 0
        else round_exact(make(abs(value)), value < 0, form, MODES)
        for value in exact
    ]
    for position, mode in enumerate(MODES):
        result = actual(mode)
        assert result.dtype == dtype.carrier
        assert_same(result, np.array([row[position] for row in rows]), *inputs)


def fractions(*arrays: np.ndarray) -> list[list[Fraction]]:
    return [[Fraction(float(v)) for v in row] for row in zip(*arrays, strict=True)]


@pytest.mark.parametrize("dtype", TYPES, ids=str)
@pytest.mark.parametrize("name", ["add", "sub", "mul", "div"])
def test_two_operands_round_once(dtype, name):
    lhs, rhs = samples(dtype, COUNTS[dtype], 1), samples(dtype, COUNTS[dtype], 2)
    if name in ("add", "sub"):
        # Operands within a few binades of each other, and exact cancellation.
        near = lhs * np.resize(np.array([-1, 1, 0.7, -0.25], lhs.dtype), len(lhs))
        near = convert(near, F64 if dtype is F64 else F32, dtype)
        rhs = np.where(np.arange(len(lhs)) % 3 == 0, near, rhs)
        rhs = np.where(rhs == 0, dtype.carrier.type(1), rhs)
    operation = {
        "add": lambda a, b: a + b,
        "sub": lambda a, b: a - b,
        "mul": lambda a, b: a * b,
        "div": lambda a, b: a / b,
    }[name]
    exact = [operation(*row) for row in fractions(lhs, rhs)]
    function = getattr(arithmetic, name)
    check(lambda mode: function(lhs, rhs, dtype, mode), exact, dtype, (lhs, rhs))


@pytest.mark.parametrize("dtype", TYPES, ids=str)
def test_fma_rounds_once(dtype):
    count = COUNTS[dtype]
    lhs, rhs, acc = (samples(dtype, count, seed) for seed in (4, 5, 6))
    # Half of the sums cancel, wholly or to the last bits of the product.
    opposite = -arithmetic.mul(lhs, rhs, dtype, "zero")
    usable = np.isfinite(opposite) & (opposite != 0) & (np.arange(count) % 2 == 0)
    acc = np.where(usable, opposite, acc)
    exact = [a * b + c for a, b, c in fractions(lhs, rhs, acc)]
    check(lambda mode: arithmetic.fma(lhs, rhs, acc, dtype, mode), exact, dtype, (lhs, rhs, acc))


@pytest.mark.parametrize("dtype", TYPES, ids=str)
def test_fma_sees_bits_far_below_the_sum(dtype):
    unit = 2.0**-dtype.mantissa_bits
    # acc plus half its last place, plus or minus a product too small for any wider format.
    rows = [
        (1 + unit, unit / 2 * sign, 1.0 + place * unit)
        for sign in (1, -1)
        for place in (0, 1, 2, -0.5)
    ]
    # The same, short of half the last place by a bit that no wider format keeps.
    rows += [
        (1 + unit, (1 - unit) * unit / 2 * sign, 1.0 + place * unit)
        for sign in (1, -1)
        for place in (0, 1, 2, -0.5)
    ]
    # And in the subnormal range, as far as the exponents allow.
    half = math.sqrt(dtype.min_subnormal / 2) if dtype in (F32, BF16) else 1.0
    subnormal = dtype.min_normal / 2 + dtype.min_subnormal
    rows += [((1 + unit) * half, (1 - unit) * half * sign, subnormal) for sign in (1, -1)]
    rows += [(dtype.min_subnormal, sign * dtype.min_subnormal, 1.0) for sign in (1, -1)]
    rows += [(dtype.min_subnormal, 0.5 * sign, dtype.min_subnormal) for sign in (1, -1)]
    rows += [(dtype.max_finite, 1 + unit, -dtype.max_finite), (dtype.max_finite, 2.0, 1.0)]
    lhs, rhs, acc = np.array(rows).astype(dtype.carrier).T
    exact = [a * b + c for a, b, c in fractions(lhs, rhs, acc)]
    check(lambda mode: arithmetic.fma(lhs, rhs, acc, dtype, mode), exact, dtype, (lhs, rhs, acc))


@pytest.mark.parametrize("dtype", TYPES, ids=str)
def test_square_roots_round_once(dtype):
    values = np.abs(samples(dtype, COUNTS[dtype], 3))
    exact = [value for (value,) in fractions(values)]
    check(lambda mode: arithmetic.sqrt(values, dtype, mode), exact, dtype, (values,), root_comparer)


@pytest.mark.parametrize("dtype", TYPES, ids=str)
def test_reciprocal_roots_round_once(dtype):
    values = np.abs(samples(dtype, COUNTS[dtype], 9))
    form = FORMATS[dtype.name]
    expected = [
        round_exact(root_comparer(1 / value), False, form, ("nearest_even",))[0]
        for (value,) in fractions(values)
    ]
    assert_same(arithmetic.rsqrt(values, dtype), np.array(expected), values)


def test_reciprocal_roots_decide_close_cases_exactly():
    # 1/sqrt(1 + 3e), 1/sqrt(1 - e) and the like lie next to middles of f64 numbers.
    unit = 2.0**-52
    values = np.array([1 + k * unit for k in range(40)] + [1 - k * unit / 2 for k in range(1, 40)])
    values = np.concatenate([values, values * 4.0**500, values * 4.0**-500])
    expected = [
        round_exact(root_comparer(1 / Fraction(v)), False, FORMATS["f64"], ("nearest_even",))[0]
        for v in values.tolist()
    ]
    assert_same(arithmetic.rsqrt(values, F64), np.array(expected), values)


def test_every_f16_square_root_and_bf16_reciprocal_root_is_right():
    # A float64 root rounded to f16 is right: no f16 root lies within 2**-40 of a middle.
    codes = np.arange(0x7C00, dtype=np.uint16)
    values = decode(codes, F16)
    expected = convert(np.sqrt(values.astype(np.float64)), F64, F16)
    assert_same(arithmetic.sqrt(values, F16), expected, values)
    values = decode(np.arange(1, 0x7F80, dtype=np.uint16), BF16)
    expected = convert(1 / np.sqrt(values.astype(np.float64)), F64, BF16)
    assert_same(arithmetic.rsqrt(values, BF16), expected, values)


def test_bf16_subnormal_products_and_quotients_round_once():
    significands = np.arange(128, 256, dtype=np.float32) / 128
    lhs = significands[:, None, None] * np.float32(2.0**-70)
    rhs = significands[None, :, None] * 2.0 ** np.arange(-66, -55).astype(np.float32)
    product = convert(lhs.astype(np.float64) * rhs, F64, BF16)
    assert same(arithmetic.mul(lhs, rhs, BF16), product).all()
    divisor = significands[None, :, None] * 2.0 ** np.arange(55, 66).astype(np.float32)
    quotient = convert(lhs / divisor.astype(np.float64), F64, BF16)
    assert same(arithmetic.div(lhs, divisor, BF16), quotient).all()


def test_tf32_subnormal_products_round_once():
    rng = np.random.default_rng(5)
    lhs = (rng.integers(1024, 2048, 200_000) * 2.0**-80).astype(np.float32)
    rhs = (rng.integers(1024, 2048, 200_000) * 2.0**-73).astype(np.float32)
    expected = convert(lhs.astype(np.float64) * rhs, F64, TF32)
    assert same(arithmetic.mul(lhs, rhs, TF32), expected).all()
    twice = convert(lhs * rhs, F32, TF32)
    assert not same(twice, expected).all()


SPECIALS = (0.0, -0.0, 1.0, -2.0, math.inf, -math.inf, math.nan)


@pytest.mark.parametrize("dtype", [*TYPES, F8E4M3], ids=str)
@pytest.mark.parametrize("mode", MODES)
def test_specials_follow_ieee(dtype, mode):
    special = [v for v in SPECIALS if dtype.has_infinity or not math.isinf(v)]
    lhs, rhs = np.array(list(itertools.product(special, repeat=2))).astype(dtype.carrier).T
    wide = lhs.astype(np.float64), rhs.astype(np.float64)
    with np.errstate(all="ignore"):
        plain = {"add": np.add(*wide), "sub": np.subtract(*wide), "mul": np.multiply(*wide)}
        plain["div"] = np.divide(*wide)
    if not dtype.has_infinity:
        plain["div"] = np.where(np.isinf(plain["div"]), np.nan, plain["div"])
    for name, expected in plain.items():
        if name in ("add", "sub") and mode == "negative_inf":
            both_positive = ~np.signbit(lhs) & (np.signbit(rhs) == (name == "sub"))
            expected = np.where((expected == 0) & ~both_positive, -0.0, expected)
        assert_same(getattr(arithmetic, name)(lhs, rhs, dtype, mode), expected, lhs, rhs)


@pytest.mark.parametrize("dtype", TYPES, ids=str)
@pytest.mark.parametrize("mode", MODES)
def test_fma_specials_follow_ieee(dtype, mode):
    rows = np.array(list(itertools.product(SPECIALS, repeat=3)))
    with np.errstate(all="ignore"):
        product = rows[:, 0] * rows[:, 1]
        expected = product + rows[:, 2]
    if mode == "negative_inf":
        negative = np.signbit(product) | np.signbit(rows[:, 2])
        expected = np.where((expected == 0) & negative, -0.0, expected)
    lhs, rhs, acc = rows.astype(dtype.carrier).T
    assert_same(arithmetic.fma(lhs, rhs, acc, dtype, mode), expected, lhs, rhs, acc)


@pytest.mark.parametrize("dtype", TYPES, ids=str)
def test_roots_of_specials_follow_ieee(dtype):
    values = np.array([0.0, -0.0, -1.0, math.inf, -math.inf, math.nan]).astype(dtype.carrier)
    nan, inf = math.nan, math.inf
    for mode in MODES:
        roots = arithmetic.sqrt(values, dtype, mode)
        assert_same(roots, np.array([0.0, -0.0, nan, inf, nan, nan]), values)
    reciprocal = arithmetic.rsqrt(values, dtype)
    assert_same(reciprocal, np.array([inf, -inf, nan, 0.0, nan, nan]), values)


def test_nans_are_canonical():
    values = np.array([np.inf, -np.nan], np.float32)
    values = np.append(values, np.array([0xFFC12345], np.uint32).view(np.float32))
    for mode in MODES:
        for result in (
            arithmetic.sub(values, values, F32, mode),
            arithmetic.mul(values, f32(0), F32, mode),
            arithmetic.fma(values, values, -values, F32, mode),
        ):
            bits = result[np.isnan(result)].view(np.uint32)
            assert len(bits) >= 2
            assert (bits == 0x7FC00000).all()


def test_flushing_turns_subnormals_into_zeros_of_their_sign():
    tiny = f32(2.0**-127)
    values = np.array([tiny, -tiny, 1.0, -1.0], np.float32)
    one = f32(1)
    sums = arithmetic.add(values, f32(-0.0), F32, flush_to_zero=True)
    assert_same(sums, np.array([0.0, -0.0, 1.0, -1.0]))
    halves = arithmetic.mul(values[2:] * f32(2**-126), f32(0.5), F32, "zero", True)
    assert_same(halves, np.array([0.0, -0.0]))
    assert arithmetic.div(one, tiny, F32, flush_to_zero=True) == np.inf
    assert arithmetic.fma(tiny, one, one, F32, "positive_inf", True) == 1.0
    assert arithmetic.rsqrt(tiny, F32, flush_to_zero=True) == np.inf
    assert arithmetic.sqrt(tiny, F32, flush_to_zero=True) == 0.0
    # 2**-126 less a little rounds up to a normal number, which stays.
    normal = f32(2.0**-126)
    below = arithmetic.mul(normal, f32(1 - 2**-24), F32, "positive_inf", True)
    assert below == normal


def test_only_f32_flushes():
    with pytest.raises(ValueError, match="f16"):
        arithmetic.add(f32(1), f32(1), F16, flush_to_zero=True)


def test_operands_broadcast_and_scalars_stay_scalars():
    column, row = np.ones((3, 1), np.float64) / 3, np.ones((1, 4), np.float64)
    for mode in MODES:
        assert arithmetic.add(column, row, F64, mode).shape == (3, 4)
        assert arithmetic.fma(column, row * 1e308, row * 1e308, F64, mode).shape == (3, 4)
        for dtype in TYPES:
            one = np.ones((), dtype.carrier)
            assert arithmetic.fma(one, one, one, dtype, mode).shape == ()
            assert isinstance(arithmetic.div(one, one * 3, dtype, mode), np.ndarray)
    assert arithmetic.mul(np.array(1e300), np.array(1e300), F64, "zero") == F64.max_finite


def test_arithmetic_never_warns():
    big = np.array([3e38, 1e-45, np.inf, np.nan, 0, -1], np.float32)
    with np.errstate(all="raise"):
        for mode in MODES:
            for dtype in (F32, F16, BF16, F64):
                values = convert(big, F32, dtype)
                arithmetic.fma(values, values[:, None], values, dtype, mode)
                arithmetic.div(values, values[:, None], dtype, mode)
                arithmetic.sqrt(values, dtype, mode)
        arithmetic.rsqrt(big, F32)


def test_division_of_two_f32_agrees_with_numpy_to_nearest():
    lhs, rhs = samples(F32, 2000, 21), samples(F32, 2000, 22)
    with np.errstate(all="ignore"):
        assert same(arithmetic.div(lhs, rhs, F32), lhs / rhs).all()


def test_exact_fractions_round_like_python_floats():
    for value in (
        Fraction(1, 3),
        Fraction(-(10**308)),
        Fraction(1, 10**320),
        Fraction(2, 7) ** 200,
    ):
        assert round_fraction(value, "nearest_even") == float(value)
        assert round_fraction(value, "negative_inf") <= float(value)
        assert round_fraction(value, "positive_inf") >= float(value)
    assert round_fraction(Fraction(10**400), "nearest_even") == math.inf
    assert round_fraction(Fraction(-(10**400)), "positive_inf") == -F64.max_finite
