import math
from fractions import Fraction

import numpy as np
import pytest

from reftile.ir.dtypes import (
    BF16,
    F8E4M3,
    F8E8M0,
    F16,
    F32,
    F64,
    I1,
    I4,
    I8,
    I32,
    I64,
    INTEGERS,
    DType,
)
from reftile.ir.integers import wrap
from reftile.ir.numbers import decode, float_to_int, int_to_float
from reftile.ir.rounding import ROUNDINGS
from tests.ir.float_oracle import FORMATS, assert_same, comparer, round_exact


def whole_number(value: float, rounding: str) -> int:
    exact = Fraction(value)
    below = math.floor(exact)
    rest = exact - below
    match rounding:
        case "zero":
            return math.trunc(exact)
        case "negative_inf":
            return below
        case "positive_inf":
            return math.ceil(exact)
        case "nearest_even":
            return round(exact)
        case _:
            away = exact > 0 if rest == Fraction(1, 2) else rest > Fraction(1, 2)
            return below + away


def float_cases(target: DType) -> list[float]:
    ends = [2.0**k for k in (0, 3, 4, 7, 8, target.bits - 1, target.bits)]
    points = [0.0, 0.25, 0.5, 0.75, 1.5, 2.5, 0.49999997, 0.49999999999999994, 1e30, 1e300]
    points += [e + d for e in ends for d in (-1.0, -0.5, -0.25, 0.0, 0.5, 1.0)]
    points += [math.nextafter(p, math.inf) for p in points]
    points += [math.nextafter(e, 0) for e in ends]
    return [sign * p for p in points for sign in (1, -1)] + [math.inf, -math.inf, math.nan]


@pytest.mark.parametrize("source", [F16, F32, F64], ids=str)
@pytest.mark.parametrize("target", INTEGERS, ids=str)
@pytest.mark.parametrize("signed", [True, False])
def test_floats_round_to_integers_or_are_invalid(source, target, signed):
    with np.errstate(over="ignore"):
        values = np.array(float_cases(target)).astype(source.carrier)
    low, high = (target.signed_min, target.signed_max) if signed else (0, target.unsigned_max)
    for rounding in ROUNDINGS:
        integers, invalid = float_to_int(values, source, target, signed, rounding)
        clamped, never = float_to_int(values, source, target, signed, rounding, saturate=True)
        assert integers.dtype == clamped.dtype == target.carrier
        assert not never.any()
        for value, integer, bad, end in zip(
            values.tolist(), integers, invalid, clamped, strict=True
        ):
            if math.isnan(value):
                expected, nearest = None, 0
            elif math.isinf(value):
                expected, nearest = None, high if value > 0 else low
            else:
                expected = whole_number(value, rounding)
                nearest = min(max(expected, low), high)
                expected = expected if nearest == expected else None
            assert bad == (expected is None), (value, rounding)
            stored = np.array([(expected or 0) % 2**target.bits], np.uint64)
            assert integer == wrap(stored, target)[0], (value, rounding)
            assert end == wrap(np.array([nearest % 2**target.bits], np.uint64), target)[0]


def integer_cases(bits: int) -> list[int]:
    rng = np.random.default_rng(11)
    cases = {0, 1, 2, 3, 5, 7, 9, 11, 464, 465, 480, 65519, 65520, 65521}
    for shift in (4, 8, 11, 16, 24, 25, 32, 53, 54, 62, 63, 64):
        cases |= {2**shift + d for d in (-2, -1, 0, 1, 2)}
        for precision in (8, 11, 24, 53):
            if shift > precision:
                half = 2 ** (shift - precision - 1)
                cases |= {2**shift + k * half + d for k in (1, 2, 3) for d in (-1, 0, 1)}
    cases |= {int(x) >> int(s) for x, s in rng.integers(0, 2**63, (60, 2)) % (2**63, 64)}
    return sorted({c % 2**bits for c in cases} | {-c % 2**bits for c in cases})


@pytest.mark.parametrize("signed", [True, False])
@pytest.mark.parametrize("source", [I64, I32, I8, I4, I1], ids=str)
@pytest.mark.parametrize("target", [F64, F32, F16, BF16, F8E4M3], ids=str)
def test_integers_round_once(source, target, signed):
    cases = integer_cases(source.bits)
    values = decode(np.array(cases, np.uint64).astype(source.storage), source)
    half = 2 ** (source.bits - 1)
    numbers = [c - 2 * half if signed and c >= half else c for c in cases]
    rows = [
        round_exact(comparer(Fraction(abs(n))), n < 0, FORMATS[target.name], ROUNDINGS)
        for n in numbers
    ]
    for position, rounding in enumerate(ROUNDINGS):
        expected = np.array([row[position] for row in rows])
        actual = int_to_float(values, source, target, signed, rounding)
        assert actual.dtype == target.carrier
        assert_same(actual, expected, np.array(numbers, np.float64))


def test_large_integers_saturate_when_asked():
    values = np.array([2**62, -(2**62), 7], np.int64)
    assert int_to_float(values, I64, F8E4M3, True, saturate=True).tolist() == [448, -448, 7]
    assert int_to_float(values, I64, F16, True).tolist() == [math.inf, -math.inf, 7]


def test_integers_become_scales():
    values = np.array([0, 1, 3, 4, 5, 2**62 + 1], np.int64)
    down = int_to_float(values, I64, F8E8M0, False, "zero").tolist()
    up = int_to_float(values, I64, F8E8M0, False, "positive_inf").tolist()
    assert down == [2.0**-127, 1, 2, 4, 4, 2.0**62]
    assert up == [2.0**-127, 1, 4, 4, 8, 2.0**63]


def test_a_set_bit_is_minus_one_when_signed():
    bits = np.array([True, False])
    assert int_to_float(bits, I1, F32, signed=True).tolist() == [-1, 0]
    assert int_to_float(bits, I1, F32, signed=False).tolist() == [1, 0]
