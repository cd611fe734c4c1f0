"""Float formats written out from their definitions, and rounding by searching their codes.

Shares nothing with reftile.ir: values are fractions, and rounding compares the exact number with
the format's values and the middles between them.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from fractions import Fraction

import numpy as np

MODES = ("nearest_even", "zero", "negative_inf", "positive_inf", "nearest_away")


@dataclass(frozen=True)
class Format:
    """The magnitudes are those of codes 0 .. max_code; code max_code + 1 would be `beyond`."""

    name: str
    exponent_bits: int
    mantissa_bits: int
    bias: int
    max_code: int
    beyond: Fraction
    infinity: bool = False
    nan: bool = True
    negative_zero: bool = True

    def value(self, code: int) -> Fraction:
        """Return the magnitude of a code without its sign."""
        if code > self.max_code:
            return self.beyond
        exponent, fraction = code >> self.mantissa_bits, code % (1 << self.mantissa_bits)
        if exponent == 0:
            return power(1 - self.bias - self.mantissa_bits) * fraction
        return power(exponent - self.bias) * (1 + Fraction(fraction, 1 << self.mantissa_bits))

    def values(self) -> np.ndarray:
        """Return every magnitude in float64, `beyond` last."""
        steps = np.arange(1 << self.mantissa_bits) / float(1 << self.mantissa_bits)
        rows = [steps * 2.0 ** (1 - self.bias)]
        rows += [(1 + steps) * 2.0 ** (e - self.bias) for e in range(1, 1 << self.exponent_bits)]
        return np.append(np.concatenate(rows)[: self.max_code + 1], float(self.beyond))


def power(exponent: int) -> Fraction:
    """Return 2**exponent."""
    return Fraction(1 << exponent) if exponent >= 0 else Fraction(1, 1 << -exponent)


FORMATS = {
    f.name: f
    for f in (
        Format("f64", 11, 52, 1023, 0x7FEFFFFFFFFFFFFF, power(1024), infinity=True),
        Format("f32", 8, 23, 127, 0x7F7FFFFF, power(128), infinity=True),
        Format("tf32", 8, 10, 127, 0x3FBFF, power(128), infinity=True),
        Format("bf16", 8, 7, 127, 0x7F7F, power(128), infinity=True),
        Format("f16", 5, 10, 15, 0x7BFF, Fraction(65536), infinity=True),
        Format("f8e4m3", 4, 3, 7, 0x7E, Fraction(480)),
        Format("f8e5m2", 5, 2, 15, 0x7B, Fraction(65536), infinity=True),
        Format("f8e4m3fnuz", 4, 3, 8, 0x7F, Fraction(256), negative_zero=False),
        Format("f8e5m2fnuz", 5, 2, 16, 0x7F, Fraction(65536), negative_zero=False),
        Format("f4e2m1", 2, 1, 1, 0x7, Fraction(8), nan=False),
    )
}


def round_array(values: np.ndarray, target: Format, mode: str, saturate: bool) -> np.ndarray:
    """Return float64 `values` rounded into a format of at most 19 bits, as float64."""
    table = target.values()
    magnitude, negative = np.abs(values), np.signbit(values)
    top = len(table) - 1
    lower = np.searchsorted(table, np.where(np.isnan(values), 0, magnitude), side="right") - 1
    upper = np.minimum(lower + 1, top)
    middle = (table[lower] + table[upper]) / 2
    inexact = magnitude != table[lower]
    up = {
        "nearest_even": (magnitude > middle) | ((magnitude == middle) & (upper % 2 == 0)),
        "nearest_away": magnitude >= middle,
        "zero": np.zeros_like(negative),
        "positive_inf": ~negative,
        "negative_inf": negative,
    }[mode]
    index = np.where(inexact & up, upper, lower)
    past = (lower == top) & inexact
    if mode in ("zero", "positive_inf", "negative_inf"):
        index = np.where(past & ~up & np.isfinite(values), top - 1, index)
        # Exactly `beyond`, or more, rounded towards zero is the largest number.
        index = np.where((lower == top) & ~up & np.isfinite(values), top - 1, index)
    result = table[index]
    overflow = index == top
    limit = table[top - 1] if saturate or not target.nan else math.nan
    if target.infinity and not saturate:
        limit = math.inf
    result = np.where(overflow, limit, result)
    result = np.where(negative, -result, result)
    result = np.where(np.isnan(values), math.nan if target.nan else table[top - 1], result)
    return result if target.negative_zero else result + 0.0


def neighbours(compare: Callable[[Fraction], int], target: Format) -> tuple[int, bool]:
    """Return (greatest code not above the exact magnitude, whether they are equal).

    compare(t) is the sign of exact - t; a code past max_code means `beyond` or more.
    """
    low, high = 0, target.max_code + 2
    while high - low > 1:
        middle = (low + high) // 2
        if compare(target.value(middle)) >= 0:
            low = middle
        else:
            high = middle
    return low, compare(target.value(low)) == 0


def round_exact(
    compare: Callable[[Fraction], int], negative: bool, target: Format, modes: tuple[str, ...]
) -> list[float]:
    """Return the exact magnitude, given by comparisons, rounded in each mode, as Python floats."""
    code, equal = neighbours(compare, target)
    return [_round_from(code, equal, compare, negative, target, mode) for mode in modes]


def _round_from(
    code: int,
    equal: bool,
    compare: Callable[[Fraction], int],
    negative: bool,
    target: Format,
    mode: str,
) -> float:
    towards_zero = mode == "zero" or mode == ("positive_inf" if negative else "negative_inf")
    if code > target.max_code:
        code = target.max_code if towards_zero else code
    elif not equal and not towards_zero:
        side = 1
        if mode in ("nearest_even", "nearest_away"):
            side = compare((target.value(code) + target.value(code + 1)) / 2)
        if side == 0:
            side = 1 if mode == "nearest_away" or code % 2 == 1 else -1
        code += side > 0
    if code > target.max_code:
        result = math.inf if target.infinity else math.nan
    else:
        result = float(target.value(code))
    return -result if negative else result


def comparer(value: Fraction) -> Callable[[Fraction], int]:
    """Return the comparison with a known magnitude."""
    return lambda other: (value > other) - (value < other)


def root_comparer(square: Fraction) -> Callable[[Fraction], int]:
    """Return the comparison with the square root of a known number."""
    return lambda other: (square > other * other) - (square < other * other)


def same(actual: np.ndarray, expected: np.ndarray) -> np.ndarray:
    """Return where two arrays are the same number: equal with equal signs, or both NaN."""
    with np.errstate(all="ignore"):  # widening a signalling NaN
        actual, expected = np.asarray(actual, np.float64), np.asarray(expected, np.float64)
    equal = (actual == expected) & (np.signbit(actual) == np.signbit(expected))
    return equal | (np.isnan(actual) & np.isnan(expected))


def assert_same(actual: np.ndarray, expected: np.ndarray, *inputs: np.ndarray) -> None:
    """Fail naming the first few inputs whose results differ."""
    wrong = ~same(actual, expected)
    if wrong.any():
        at = np.nonzero(np.atleast_1d(wrong))[0][:4]
        rows = [
            f"{[float(np.ravel(x)[i]) for x in inputs]} gave {np.ravel(actual)[i]}, "
            f"not {np.ravel(expected)[i]}"
            for i in at
        ]
        raise AssertionError(f"{wrong.sum()} of {wrong.size} differ: {rows}")
