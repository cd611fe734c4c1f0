"""How far from the exact result a kernel may land: bounds computed from the data.

A tolerance picked by hand is either so wide that it hides a bug or so narrow that it fails for no
reason. Here nothing is picked. An `Estimate` is what a kernel should give, in float64, together
with a bound on how far a correct kernel may be from it. Arithmetic on estimates is arithmetic on
the values, and each step adds what it may add to the error:

- what the errors of its operands become (first order and products of errors);
- one rounding, half a unit in the last place of the type that the step computes in, or as many
  units
  as the specification allows for that function;
- for sums of n numbers in any order, gamma(n - 1) times the sum of magnitudes, where
  gamma(n) = n u / (1 - n u); for products of matrices over k, gamma(k) times the sum of |a b|.

spec/accuracy.md states the rules; `expected` of each example composes them along the kernel's
steps.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from reftile.ir.enums import ACCURACY

Floats = NDArray[np.float64]

# Bits of precision (the leading one included) and the exponent of the least normal number.
FORMATS: dict[str, tuple[int, int]] = {
    "float64": (53, -1022),
    "float32": (24, -126),
    "float16": (11, -14),
    "bfloat16": (8, -126),
    "float8_e5m2": (3, -14),
    "float8_e4m3fn": (4, -6),
    "float4_e2m1fn": (2, 0),
}
SHORT_NAMES = {"float64": "f64", "float32": "f32", "float16": "f16", "bfloat16": "bf16"}


def ulp(values: Any, dtype: str) -> Floats:
    """The unit in the last place of `dtype` at each value; that of subnormals near zero."""
    precision, least = FORMATS[dtype]
    magnitude = np.maximum(np.abs(np.asarray(values, np.float64)), np.ldexp(1.0, least))
    _, exponent = np.frexp(magnitude)
    return np.ldexp(1.0, exponent - 1 - (precision - 1))


def gamma(count: int, dtype: str = "float32") -> float:
    """The relative error of `count` roundings to nearest, one after the other."""
    unit = 2.0 ** -FORMATS[dtype][0]
    return count * unit / (1 - count * unit)


@dataclass(frozen=True)
class Estimate:
    """Exact values, and for each a bound on the error of a kernel that computes them in `dtype`."""

    value: Floats
    error: Floats
    dtype: str = "float32"

    # One operation, one rounding

    def rounded(self, ulps: float = 0.5, dtype: str = "") -> Estimate:
        """After a rounding to `dtype` that is off by `ulps` units at most."""
        dtype = dtype or self.dtype
        step = ulps * ulp(np.abs(self.value) + self.error, dtype)
        return Estimate(self.value, self.error + step, dtype)

    def astype(self, dtype: str) -> Estimate:
        """Converted: a type that is no wider rounds, a wider one changes nothing."""
        (precision, least), (wide, low) = FORMATS[self.dtype], FORMATS[dtype]
        if wide >= precision and low <= least:
            return Estimate(self.value, self.error, dtype)
        return self.rounded(0.5, dtype)

    def __add__(self, other: Any) -> Estimate:
        other = estimate(other, self.dtype)
        return Estimate(self.value + other.value, self.error + other.error, self.dtype).rounded()

    def __sub__(self, other: Any) -> Estimate:
        return self + -estimate(other, self.dtype)

    def __rsub__(self, other: Any) -> Estimate:
        return -self + other

    def __neg__(self) -> Estimate:
        return Estimate(-self.value, self.error, self.dtype)

    def __mul__(self, other: Any) -> Estimate:
        other = estimate(other, self.dtype)
        return Estimate(
            self.value * other.value, _product_error(self, other, np.multiply), self.dtype
        ).rounded()

    def __truediv__(self, other: Any) -> Estimate:
        other = estimate(other, self.dtype)
        value = self.value / other.value
        error = (self.error + np.abs(value) * other.error) / (np.abs(other.value) - other.error)
        return Estimate(value, error, self.dtype).rounded(limit("div", self.dtype))

    __radd__ = __add__
    __rmul__ = __mul__

    # Functions, to the accuracy that the specification demands of implementations

    def exp(self) -> Estimate:
        """E to the power of x: an error of x becomes a relative error."""
        value = np.exp(self.value)
        error = value * np.expm1(self.error)
        return Estimate(value, error, self.dtype).rounded(limit("exp", self.dtype))

    def exp2(self) -> Estimate:
        """2 to the power of x."""
        value = np.exp2(self.value)
        error = value * np.expm1(self.error * np.log(2.0))
        return Estimate(value, error, self.dtype).rounded(limit("exp", self.dtype))

    def log(self) -> Estimate:
        """The natural logarithm."""
        error = self.error / (np.abs(self.value) - self.error)
        return Estimate(np.log(self.value), error, self.dtype).rounded(limit("log", self.dtype))

    def rsqrt(self) -> Estimate:
        """1 / sqrt(x)."""
        value = self.value**-0.5
        error = value * self.error / (2 * (self.value - self.error))
        return Estimate(value, error, self.dtype).rounded(limit("rsqrt", self.dtype))

    def smooth(self, value: Any, steepest: Any, kind: str) -> Estimate:
        """A function given by its values and a bound on its slope, of accuracy class `kind`."""
        error = np.asarray(steepest) * self.error
        return Estimate(value, error, self.dtype).rounded(limit(kind, self.dtype))

    # Many numbers at once

    def sum(self, axis: int = -1, keepdims: bool = False) -> Estimate:
        """Added along an axis in any order."""
        count = self.value.shape[axis]
        size = (np.abs(self.value) + self.error).sum(axis, keepdims=keepdims)
        error = self.error.sum(axis, keepdims=keepdims) + gamma(count - 1, self.dtype) * size
        return Estimate(self.value.sum(axis, keepdims=keepdims), error, self.dtype)

    def __matmul__(self, other: Any) -> Estimate:
        """A matrix product kept in float32 (or in float64), added in any order.

        Products of two narrow numbers are exact in float32; those of two float32 may be rounded.
        """
        other = estimate(other, self.dtype)
        wide = "float64" if self.dtype == "float64" else "float32"
        count = self.value.shape[-1] + (self.dtype in ("float32", "float64"))
        size = (np.abs(self.value) + self.error) @ (np.abs(other.value) + other.error)
        error = _product_error(self, other, np.matmul) + gamma(count, wide) * size
        return Estimate(self.value @ other.value, error, wide)

    # Choosing and rearranging change nothing

    def where(self, mask: Any) -> Estimate:
        """Exactly 0 where the mask is false."""
        return Estimate(
            np.where(mask, self.value, 0.0), np.where(mask, self.error, 0.0), self.dtype
        )

    def __getitem__(self, index: Any) -> Estimate:
        return Estimate(self.value[index], self.error[index], self.dtype)

    def swap(self) -> Estimate:
        """The last two axes swapped."""
        return Estimate(self.value.swapaxes(-1, -2), self.error.swapaxes(-1, -2), self.dtype)


def _product_error(a: Estimate, b: Estimate, times: Any) -> Floats:
    first_order = times(np.abs(a.value), b.error) + times(a.error, np.abs(b.value))
    return first_order + times(a.error, b.error)


def estimate(values: Any, dtype: str = "") -> Estimate:
    """Values as they are: data that a kernel is given has no error."""
    if isinstance(values, Estimate):
        return values
    array = np.asarray(values)
    found = dtype or str(array.dtype)
    exact = array.astype(np.float64)
    return Estimate(exact, np.zeros_like(exact), found if found in FORMATS else "float32")


def number(value: float, dtype: str = "float32") -> Estimate:
    """A constant of a kernel: rounded to `dtype` when it is compiled, by an amount that we know."""
    near = np.asarray(value).astype(dtype).astype(np.float64)
    return Estimate(np.asarray(value, np.float64), np.abs(near - value), dtype)


def concatenate(parts: Sequence[Estimate], axis: int = 0) -> Estimate:
    """One after the other."""
    values = np.concatenate([p.value for p in parts], axis)
    return Estimate(values, np.concatenate([p.error for p in parts], axis), parts[0].dtype)


def stack(parts: Sequence[Estimate]) -> Estimate:
    """Side by side, along a new first axis."""
    return concatenate([Estimate(p.value[None], p.error[None], p.dtype) for p in parts])


def limit(kind: str, dtype: str) -> float:
    """Units in the last place that the specification allows for an accuracy class."""
    return float(ACCURACY[kind]["limits"][SHORT_NAMES[dtype]])
