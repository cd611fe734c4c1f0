"""Number formats written out from their definitions: taking codes apart and putting them together.

A code is the bit pattern of an element. Finite floats are taken apart into (sign, m, e), which is
+-m * 2**e with an integer m below 2**53, and put together from an integer m below 2**64 and a
flag that says whether the exact value lies a little above m * 2**e.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, TypeAlias

import numpy as np
from numpy.typing import NDArray

Codes: TypeAlias = NDArray[np.uint64]
Integers: TypeAlias = NDArray[np.int64]
Mask: TypeAlias = NDArray[np.bool_]

U = np.uint64
NEAREST = ("nearest_even", "nearest_away")


@dataclass(frozen=True)
class Format:
    """A float format.

    max_code: the magnitude of the largest finite number, without the sign.
    infinity: the code max_code + 1 is an infinity. nan: "above" (codes above that or above
    max_code), "negative_zero" (the code that would be -0) or "none".
    width: bits of an element in memory; unused: low bits of it without meaning.
    """

    name: str
    exponent_bits: int
    mantissa_bits: int
    bias: int
    max_code: int
    width: int
    infinity: bool = False
    nan: str = "above"
    signed: bool = True
    unused: int = 0

    @property
    def precision(self) -> int:
        """Significant bits of a normal number."""
        return self.mantissa_bits + 1

    @property
    def least_exponent(self) -> int:
        """The exponent of the least normal number."""
        return 1 - self.bias if self.name != "f8e8m0" else -127

    @property
    def top_exponent(self) -> int:
        """The exponent of the largest finite number."""
        top = self.max_code >> self.mantissa_bits
        return top - self.bias

    @property
    def quantum(self) -> int:
        """The exponent of the last bit of the least numbers."""
        return self.least_exponent - self.mantissa_bits

    @property
    def sign_bit(self) -> int:
        """The position of the sign in the code, less the unused bits."""
        return self.width - self.unused - 1

    @property
    def nan_code(self) -> int:
        """A NaN; the largest number where there is none."""
        if self.nan == "none":
            return self.max_code
        if self.nan == "negative_zero":
            return 1 << self.sign_bit
        if self.infinity:
            quiet = 1 << (self.mantissa_bits - 1)
            return (self.max_code + 1 | quiet) << self.unused
        return self.max_code + 1


FORMATS = {
    f.name: f
    for f in (
        Format("f64", 11, 52, 1023, 0x7FEFFFFFFFFFFFFF, 64, infinity=True),
        Format("f32", 8, 23, 127, 0x7F7FFFFF, 32, infinity=True),
        Format("tf32", 8, 10, 127, 0x3FBFF, 32, infinity=True, unused=13),
        Format("bf16", 8, 7, 127, 0x7F7F, 16, infinity=True),
        Format("f16", 5, 10, 15, 0x7BFF, 16, infinity=True),
        Format("f8e4m3", 4, 3, 7, 0x7E, 8),
        Format("f8e5m2", 5, 2, 15, 0x7B, 8, infinity=True),
        Format("f8e4m3fnuz", 4, 3, 8, 0x7F, 8, nan="negative_zero"),
        Format("f8e5m2fnuz", 5, 2, 16, 0x7F, 8, nan="negative_zero"),
        Format("f8e8m0", 8, 0, 127, 0xFE, 8, signed=False),
        Format("f4e2m1", 2, 1, 1, 0x7, 4, nan="none"),
    )
}
"""OCP 8-bit and Microscaling formats, IEEE 754, and the FNUZ pair (bias one more than IEEE's)."""

WIDTHS = {"i1": 1, "i4": 4, "i8": 8, "i16": 16, "i32": 32, "i64": 64} | {
    name: f.width for name, f in FORMATS.items()
}
"""Bits of an element of each type."""


def codes(values: object) -> Codes:
    """An array of codes."""
    return np.asarray(values, dtype=np.uint64)


def is_float(dtype: str) -> bool:
    """True if `dtype` is a float format."""
    return dtype in FORMATS


def split(bits: Codes, f: Format) -> tuple[Mask, Codes]:
    """(sign, magnitude code) of each element."""
    shifted = bits >> U(f.unused)
    if not f.signed:
        return np.zeros(bits.shape, bool), shifted
    return (shifted >> U(f.sign_bit)) & U(1) != 0, shifted & U((1 << f.sign_bit) - 1)


def join(sign: Mask, magnitude: Codes, f: Format) -> Codes:
    """The inverse of `split`. A format without -0 gets +0."""
    if not f.signed:
        return magnitude
    if f.nan == "negative_zero":
        sign = sign & (magnitude != 0)
    return (magnitude | (sign.astype(np.uint64) << U(f.sign_bit))) << U(f.unused)


def is_nan(bits: Codes, f: Format) -> Mask:
    """Which elements are NaN."""
    if f.nan == "none":
        return np.zeros(bits.shape, bool)
    if f.nan == "negative_zero":
        return bits == U(f.nan_code)
    return split(bits, f)[1] > U(f.max_code + f.infinity)


def is_infinite(bits: Codes, f: Format) -> Mask:
    """Which elements are infinities."""
    if not f.infinity:
        return np.zeros(bits.shape, bool)
    return split(bits, f)[1] == U(f.max_code + 1)


def is_finite(bits: Codes, f: Format) -> Mask:
    """Which elements are numbers."""
    return ~(is_nan(bits, f) | is_infinite(bits, f))


def is_zero(bits: Codes, f: Format) -> Mask:
    """Which elements are zeros."""
    return (split(bits, f)[1] == 0) if f.name != "f8e8m0" else np.zeros(bits.shape, bool)


def is_subnormal(bits: Codes, f: Format) -> Mask:
    """Which elements are numbers below the normal ones, zero left out."""
    magnitude = split(bits, f)[1]
    return (magnitude != 0) & (magnitude < U(1 << f.mantissa_bits))


def take_apart(bits: Codes, f: Format) -> tuple[Mask, Codes, Integers]:
    """(sign, m, e) of finite elements; anything for others."""
    sign, magnitude = split(bits, f)
    if f.name == "f8e8m0":
        return sign, np.ones_like(magnitude), magnitude.astype(np.int64) - 127
    exponent = (magnitude >> U(f.mantissa_bits)).astype(np.int64)
    fraction = magnitude & U((1 << f.mantissa_bits) - 1)
    m = np.where(exponent > 0, fraction | U(1 << f.mantissa_bits), fraction)
    return sign, m, np.maximum(exponent, 1) - 1 + f.quantum


def bit_length(m: Codes) -> Integers:
    """The number of bits of each element."""
    length = np.zeros(m.shape, np.int64)
    rest = m.copy()
    for step in (32, 16, 8, 4, 2, 1):
        high = rest >> U(step) != 0
        length += np.where(high, step, 0)
        rest = np.where(high, rest >> U(step), rest)
    return length + (rest != 0)


def shift_down(m: Codes, by: Integers) -> tuple[Codes, Codes, Codes]:
    """(m >> by, what was cut off, half of its unit), `by` from 0 to any number."""
    many = np.clip(by, 0, 63).astype(np.uint64)
    far = by > 63
    kept = np.where(far, U(0), m >> many)
    cut = np.where(far, m, m & ((U(1) << many) - U(1)))
    half = np.where(many > 0, U(1) << (np.maximum(many, U(1)) - U(1)), U(0))
    half = np.where(by == 64, U(1 << 63), half)
    # Further away than 64 bits, what is left is below a half.
    return (
        kept,
        np.where(by > 64, (cut != 0).astype(np.uint64), cut),
        np.where(by > 64, U(1 << 63), half),
    )


def unbounded(
    sign: Mask, m: Codes, e: Integers, sticky: Mask, f: Format, mode: str
) -> tuple[Codes, Mask]:
    """(magnitude code, exact) as if the format had no largest number; codes stop far above it.

    The value is (m + a little if `sticky`) * 2**e. m is not zero unless the value is.
    """
    length = bit_length(m)
    top = e + length - 1
    q = np.maximum(top - f.mantissa_bits, f.quantum)
    down = np.maximum(q - e, 0)
    up = np.clip(e - q, 0, 63).astype(np.uint64)
    kept, cut, half = shift_down(m, down)
    kept = kept << up
    inexact = (cut != 0) | sticky
    above = (cut > half) | ((cut == half) & sticky)
    tie = (cut == half) & ~sticky & (half != 0)
    odd = (kept & U(1)) != 0
    if f.name == "f8e8m0":
        # One digit of precision: IEEE 754 takes the larger of two equally near numbers.
        odd = np.ones(m.shape, bool)
    if mode == "nearest_even":
        bump = (above & (half != 0)) | (tie & odd)
    elif mode == "nearest_away":
        bump = (above & (half != 0)) | tie
    elif mode == "zero":
        bump = np.zeros(m.shape, bool)
    elif mode == "negative_inf":
        bump = inexact & sign
    else:
        bump = inexact & ~sign
    kept = kept + bump.astype(np.uint64)
    q = np.minimum(q, f.quantum + (f.max_code >> f.mantissa_bits) + 4)
    code = ((q - f.quantum).astype(np.uint64) << U(f.mantissa_bits)) + kept
    if f.name == "f8e8m0":
        # No zero and no subnormal numbers: what lies below the least number becomes it.
        code = np.where((m == 0) | (top < -127), U(0), code - U(1))
        return code, ~inexact
    return np.where(m == 0, bump.astype(np.uint64), code), ~inexact


def round_to(
    sign: Mask,
    m: Codes,
    e: Integers,
    sticky: Mask,
    f: Format,
    mode: str,
    saturating: bool = False,
) -> Codes:
    """The codes of finite exact values rounded once."""
    if f.name == "f8e8m0":
        sign = np.zeros_like(sign)
    code, _ = unbounded(sign, m, e, sticky, f, mode)
    over = code > U(f.max_code)
    if mode in NEAREST:
        stays = np.zeros(sign.shape, bool)
    elif mode == "zero":
        stays = np.ones(sign.shape, bool)
    else:
        stays = sign if mode == "positive_inf" else ~sign
    return put(sign, code, over, over & (stays | saturating), f)


def put(sign: Mask, code: Codes, over: Mask, stays: Mask, f: Format) -> Codes:
    """Codes from magnitudes;

    those `over` the largest become it where `stays`, else what stands beyond.
    """
    result = join(sign, np.where(over, U(f.max_code), code), f)
    beyond = over & ~stays
    if f.infinity:
        return np.where(
            beyond, join(sign, np.full(code.shape, f.max_code + 1, np.uint64), f), result
        )
    if f.nan != "none":
        return np.where(beyond, U(f.nan_code), result)
    return result


def infinity(sign: Mask, f: Format) -> Codes:
    """Infinities with signs."""
    return join(sign, np.full(sign.shape, f.max_code + 1, np.uint64), f)


def key(bits: Codes, f: Format) -> Integers:
    """Integers in the order of the numbers, neighbours one apart; -0 comes just before +0."""
    sign, magnitude = split(bits, f)
    signed = magnitude.astype(np.int64)
    return np.where(sign, -signed - 1, signed)


def from_key(keys: Integers, f: Format) -> Codes:
    """The inverse of `key`."""
    sign = keys < 0
    return join(sign, np.where(sign, -keys - 1, keys).astype(np.uint64), f)


def to_float64(bits: Codes, f: Format) -> NDArray[np.float64]:
    """Every format's elements as float64, exactly."""
    sign, m, e = take_apart(bits, f)
    finite = is_finite(bits, f)
    value = np.ldexp(np.where(finite, m, U(0)).astype(np.float64), e.astype(np.int32))
    value = np.where(is_infinite(bits, f), np.inf, value)
    value = np.where(is_nan(bits, f), np.nan, value)
    return np.where(sign, -value, value)


def reduce_integer(m: int) -> tuple[int, int, bool]:
    """(m', shift, sticky):

    the 64 leading bits of a positive integer, m = m' * 2**shift and a little.
    """
    extra = m.bit_length() - 64
    if extra <= 0:
        return m, 0, False
    top = m >> extra
    return top, extra, top << extra != m


def round_integers(
    parts: list[tuple[int, int, bool]], f: Format, mode: str, saturating: bool = False
) -> Codes:
    """Round exact values (signed integer m, e, sticky) = m * 2**e; zeros count as +0."""
    sign = np.array([m < 0 for m, _, _ in parts], bool)
    lead: list[int] = []
    exponents: list[int] = []
    inexact: list[bool] = []
    for m, e, sticky in parts:
        top, shift, more = reduce_integer(abs(m))
        lead.append(top)
        exponents.append(min(max(e + shift, -(1 << 40)), 1 << 40))
        inexact.append(more or sticky)
    arrays = codes(lead), np.array(exponents, np.int64), np.array(inexact, bool)
    return round_to(sign, *arrays, f, mode, saturating)


def flush(bits: Codes, f: Format) -> Codes:
    """Subnormal numbers as zeros of the same sign."""
    sign, _ = split(bits, f)
    return np.where(is_subnormal(bits, f), join(sign, np.zeros_like(bits), f), bits)


def object_array(items: list[Any]) -> NDArray[np.object_]:
    """A rank-1 array of Python objects."""
    result = np.empty(len(items), object)
    result[:] = items
    return result
