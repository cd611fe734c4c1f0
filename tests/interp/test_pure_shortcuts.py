"""The quick ways of the vocabulary give the bits of the careful ones in reftile.ir."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import pytest

from reftile.interp.values import Array
from reftile.interp.vocabulary import conversions, floats, integers
from reftile.ir import arithmetic, comparison, numbers
from reftile.ir import integers as careful
from reftile.ir.dtypes import DTYPES, F32, F64, I8, I16, I32, I64, DType
from reftile.ir.integers import IntRounding
from tests.interp.pure_cases import bits

EVERY = np.arange(-128, 128, dtype=np.int8)
PAIRS = EVERY[:, None], EVERY[None, :]


def same(left: Array, right: Array) -> bool:
    return bool(np.array_equal(bits(left), bits(right)))


@pytest.fixture(autouse=True)
def no_warnings() -> object:
    with np.errstate(all="ignore"):
        yield


@pytest.mark.parametrize("signedness", ["signed", "unsigned"])
@pytest.mark.parametrize("rounding", ["zero", "negative_inf", "positive_inf"])
def test_every_quotient_of_bytes(signedness: str, rounding: IntRounding) -> None:
    quick = integers.div_int(*PAIRS, I8, signedness, rounding)
    slow, _ = careful.div_int(*PAIRS, I8, signedness == "signed", rounding)
    assert same(quick, slow)


@pytest.mark.parametrize("dtype", [I16, I32])
def test_quotients_next_to_an_integer_are_not_rounded_to_it(dtype: DType) -> None:
    divisors = np.arange(1, 200, dtype=dtype.carrier)
    greatest = np.array([dtype.signed_max, dtype.signed_min, -1], dtype.carrier)[:, None]
    values = np.concatenate([greatest - (greatest % divisors) + step for step in (-1, 0, 1)])
    for signedness in ("signed", "unsigned"):
        quick = integers.div_int(values, divisors, dtype, signedness, "zero")
        slow, _ = careful.div_int(values, divisors, dtype, signedness == "signed")
        assert same(quick, slow)


@pytest.mark.parametrize("signedness", ["signed", "unsigned"])
def test_every_remainder_and_shift_of_bytes(signedness: str) -> None:
    signed, divisor = signedness == "signed", np.where(PAIRS[1] == 0, np.int8(1), PAIRS[1])
    slow, invalid = careful.rem_int(PAIRS[0], divisor, I8, signed)
    quick = integers.rem_int(PAIRS[0], divisor, I8, signedness)
    assert same(np.where(invalid, slow, quick), slow)
    amounts = np.arange(8, dtype=np.int8)
    assert same(
        integers.shr_int(PAIRS[0], amounts, I8, signedness),
        careful.shr_int(PAIRS[0], amounts, I8, signed),
    )
    assert same(integers.shl_int(PAIRS[0], amounts, I8), careful.shl_int(PAIRS[0], amounts, I8))
    assert integers.shift_out_of_range(amounts, I8) is False


@pytest.mark.parametrize("overflow", ["nsw", "nuw", "nw"])
def test_every_overflow_of_bytes(overflow: str) -> None:
    for quick, slow in [
        (integers.add_overflows, careful.add_overflows),
        (integers.sub_overflows, careful.sub_overflows),
    ]:
        expected = np.zeros((256, 256), np.bool_)
        if overflow != "nuw":
            expected |= slow(*PAIRS, I8, True)
        if overflow != "nsw":
            expected |= slow(*PAIRS, I8, False)
        assert np.array_equal(quick(*PAIRS, I8, overflow), expected)


@pytest.mark.parametrize("overflow", ["nsw", "nuw"])
def test_overflows_at_the_ends_of_wide_integers(overflow: str) -> None:
    ends = np.array([I64.signed_min, I64.signed_min + 1, -1, 0, 1, I64.signed_max], np.int64)
    for quick, slow in [
        (integers.add_overflows, careful.add_overflows),
        (integers.sub_overflows, careful.sub_overflows),
    ]:
        pair = ends[:, None], ends[None, :]
        assert np.array_equal(quick(*pair, I64, overflow), slow(*pair, I64, overflow == "nsw"))


def test_every_extreme_of_bytes() -> None:
    for signedness in ("signed", "unsigned"):
        signed = signedness == "signed"
        assert same(integers.max_int(*PAIRS, I8, signedness), careful.max_int(*PAIRS, I8, signed))
        assert same(integers.min_int(*PAIRS, I8, signedness), careful.min_int(*PAIRS, I8, signed))


# Floats


def some_floats(rng: np.random.Generator, count: int, spread: int) -> Array:
    """Numbers of few and of many bits, subnormal and special ones among them."""
    digits = rng.integers(1, 1 << rng.integers(1, 25), count).astype(np.float64)
    signs = rng.choice([-1.0, 1.0], count)
    values = np.ldexp(digits * signs, rng.integers(-spread, spread, count)).astype(np.float32)
    special = np.array([0, -0.0, np.inf, -np.inf, np.nan, 1e-45], np.float32)
    return np.where(rng.random(count) < 0.05, rng.choice(special, count), values)


@pytest.mark.parametrize("spread", [6, 140])
def test_fma_rounds_once(spread: int) -> None:
    rng = np.random.default_rng(spread)
    for cancels in (False, True):
        lhs, rhs, acc = (some_floats(rng, 4000, spread) for _ in range(3))
        if cancels:
            acc = -(lhs.astype(np.float64) * rhs).astype(np.float32)
        quick = floats.fma(lhs, rhs, acc, F32, "nearest_even", False)
        assert same(quick, arithmetic.fma(lhs, rhs, acc, F32))


@pytest.mark.parametrize("name", ["maximum", "minimum"])
@pytest.mark.parametrize("propagate_nan", [False, True])
def test_extremes_are_those_of_the_comparisons(name: str, propagate_nan: bool) -> None:
    values = np.array([0, -0.0, 1, -1, np.inf, -np.inf, np.nan, -np.nan], np.float32)
    lhs, rhs = values[:, None], values[None, :]
    quick: Callable[..., Array] = getattr(floats, name)
    slow: Callable[..., Array] = getattr(comparison, name)
    assert same(quick(lhs, rhs, F32, propagate_nan, False), slow(lhs, rhs, F32, propagate_nan))


@pytest.mark.parametrize("target", [I8, I32, I64])
@pytest.mark.parametrize("signedness", ["signed", "unsigned"])
def test_floats_in_range_become_the_same_integers(target: DType, signedness: str) -> None:
    signed = signedness == "signed"
    top = float(target.signed_max if signed else target.unsigned_max) / 2
    values = np.linspace(-top if signed else 0, top, 1001)
    quick = conversions.float_to_int(values, F64, target, signedness, "zero", False)
    slow, invalid = numbers.float_to_int(values, F64, target, signed)
    assert same(quick, slow)
    assert not invalid.any()
    assert conversions.float_outside(values, F64, target, signedness, "zero") is False


@pytest.mark.parametrize("source", [I8, I32, I64])
@pytest.mark.parametrize("signedness", ["signed", "unsigned"])
@pytest.mark.parametrize("target_name", ["f32", "f64"])
def test_integers_become_the_same_floats(source: DType, signedness: str, target_name: str) -> None:
    rng, target = np.random.default_rng(source.bits), DTYPES[target_name]
    values = rng.integers(source.signed_min, source.signed_max, 5000).astype(source.carrier)
    quick = conversions.int_to_float(values, source, target, signedness, "nearest_even")
    slow = numbers.int_to_float(values, source, target, signedness == "signed")
    assert same(quick, slow)
