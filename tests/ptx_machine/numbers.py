"""Floating formats as bit patterns, with one rounding per operation.

Values travel as float64, which holds every narrower format exactly. Where a sum needs more than 53
bits it is first rounded to odd, so that the rounding to 24 bits or fewer that follows is the only
visible one.
Source: PTX ISA, "Alternate floating-point data formats" and the descriptions of cvt, add, fma.
"""

from __future__ import annotations

from dataclasses import dataclass
from fractions import Fraction

import numpy as np

CANONICAL_NAN = {16: 0x7FFF, 32: 0x7FFFFFFF, 64: 0x7FFFFFFFFFFFFFFF}


@dataclass(frozen=True, slots=True)
class Format:
    """A sign, exponent and mantissa split; max_finite and nan are magnitudes as bit patterns."""

    name: str
    exponent_bits: int
    mantissa_bits: int
    max_finite: int
    infinity: int | None
    nan: int

    @property
    def width(self) -> int:
        return 1 + self.exponent_bits + self.mantissa_bits

    @property
    def bias(self) -> int:
        return (1 << (self.exponent_bits - 1)) - 1


F16 = Format("f16", 5, 10, 0x7BFF, 0x7C00, 0x7FFF)
BF16 = Format("bf16", 8, 7, 0x7F7F, 0x7F80, 0x7FFF)
TF32 = Format("tf32", 8, 10, 0x3FBFF, 0x3FC00, 0x3FFFF)
E4M3 = Format("e4m3", 4, 3, 0x7E, None, 0x7F)
E5M2 = Format("e5m2", 5, 2, 0x7B, 0x7C, 0x7F)
F32 = Format("f32", 8, 23, 0x7F7FFFFF, 0x7F800000, 0x7FFFFFFF)
FORMATS = {f.name: f for f in (F16, BF16, TF32, E4M3, E5M2, F32)}


def round_integer(value: np.ndarray, negative: np.ndarray, mode: str) -> np.ndarray:
    """Round non-negative magnitudes to whole numbers; mode is rn, rz, rm, rp or rna."""
    match mode:
        case "rn":
            return np.rint(value)
        case "rz":
            return np.floor(value)
        case "rm":
            return np.where(negative, np.ceil(value), np.floor(value))
        case "rp":
            return np.where(negative, np.floor(value), np.ceil(value))
        case "rna":
            return np.floor(value) + (value - np.floor(value) >= 0.5)
    raise ValueError(mode)


def encode(value: np.ndarray, form: Format, mode: str = "rn", saturate: bool = False) -> np.ndarray:
    """Return bit patterns (uint64) of float64 values rounded once to a format.

    saturate: overflow and infinity become the largest finite value instead of infinity or NaN.
    """
    value = np.asarray(value, np.float64)
    negative, magnitude = np.signbit(value), np.abs(value)
    finite = np.isfinite(value)
    safe = np.where(finite, magnitude, 0.0)
    exponent = np.frexp(safe)[1].astype(np.int64) - 1
    quantum = np.maximum(exponent, 1 - form.bias) - form.mantissa_bits
    quantum = np.where(safe == 0, 1 - form.bias - form.mantissa_bits, quantum)
    steps = round_integer(np.ldexp(safe, -quantum), negative, mode).astype(np.int64)
    biased = quantum + form.mantissa_bits + form.bias
    bits = (biased << form.mantissa_bits) + steps - (1 << form.mantissa_bits)
    over = (bits > form.max_finite) | ~finite
    top = np.full(value.shape, form.nan if form.infinity is None else form.infinity, np.int64)
    if saturate:
        top[:] = form.max_finite
    stays = (mode == "rz") | ((mode == "rm") & ~negative) | ((mode == "rp") & negative)
    top = np.where(stays & finite, form.max_finite, top)
    bits = np.where(over, top, bits)
    bits = np.where(negative, bits | (1 << (form.width - 1)), bits)
    return np.where(np.isnan(value), form.nan, bits).astype(np.uint64)


def decode(bits: np.ndarray, form: Format) -> np.ndarray:
    """Return the float64 values of bit patterns."""
    bits = np.asarray(bits).astype(np.int64)
    mantissa_mask = (1 << form.mantissa_bits) - 1
    magnitude = bits & ((1 << (form.width - 1)) - 1)
    exponent, mantissa = magnitude >> form.mantissa_bits, magnitude & mantissa_mask
    mantissa = mantissa + np.where(exponent > 0, 1 << form.mantissa_bits, 0)
    value = np.ldexp(
        mantissa.astype(np.float64), np.maximum(exponent, 1) - form.bias - form.mantissa_bits
    )
    if form.infinity is None:
        value = np.where(magnitude == form.nan, np.nan, value)
    else:
        value = np.where(
            magnitude == form.infinity, np.inf, np.where(magnitude > form.infinity, np.nan, value)
        )
    return np.where(bits >> (form.width - 1) & 1, -value, value)


def decode_fast(bits: np.ndarray, name: str) -> np.ndarray:
    """Return float32 values of 8-, 16- or 32-bit operand patterns; all fit float32."""
    match name:
        case "f16":
            return bits.view(np.float16).astype(np.float32)
        case "bf16":
            return (bits.astype(np.uint32) << 16).view(np.float32)
        case "tf32":
            return (bits & np.uint32(0xFFFFE000)).view(np.float32)
        case "e4m3" | "e5m2":
            return TABLES[name][bits]
    raise ValueError(name)


TABLES = {f.name: decode(np.arange(256), f).astype(np.float32) for f in (E4M3, E5M2)}


def add_to_odd(a: np.ndarray, b: np.ndarray, mode: str = "rn") -> np.ndarray:
    """Return the float64 sum rounded to odd: inexact results get an odd last bit.

    The sum of opposite numbers is +0, but -0 for mode rm.
    """
    total = a + b
    if mode == "rm":
        is_minus = (total == 0) & (np.signbit(a) | np.signbit(b))
        total = np.where(is_minus, -0.0, total)
    rest = total - a
    error = (a - (total - rest)) + (b - rest)
    bits = total.view(np.int64)
    inexact = (error != 0) & np.isfinite(total) & np.isfinite(error) & (bits & 1 == 0)
    away = (error > 0) == (total > 0)
    return np.where(inexact, bits + np.where(away, 1, -1), bits).view(np.float64)


def flush(value: np.ndarray) -> np.ndarray:
    """Replace float32 subnormals by zero of the same sign."""
    bits = value.view(np.uint32)
    small = (bits & 0x7F800000) == 0
    if not small.any():
        return value
    return np.where(small, bits & np.uint32(0x80000000), bits).view(np.float32)


def to_f32(value: np.ndarray, mode: str = "rn") -> np.ndarray:
    """Round float64 to float32 with a rounding mode."""
    if mode == "rn":
        return value.astype(np.float32)
    return encode(value, F32, mode).astype(np.uint32).view(np.float32)


def canonical(value: np.ndarray) -> np.ndarray:
    """Give float NaNs the bit pattern that PTX arithmetic produces."""
    nan = value != value
    if not nan.any():
        return value
    width = value.dtype.itemsize * 8
    kind = f"u{width // 8}"
    return np.where(nan, np.array(CANONICAL_NAN[width], kind), value.view(kind)).view(value.dtype)


def exact64(op: str, operands: tuple[np.ndarray, ...], mode: str) -> np.ndarray:
    """Return a float64 add, mul, fma, div or sqrt rounded once in any mode, lane by lane."""
    out = []
    for lane in zip(*operands, strict=True):
        values = [float(v) for v in lane]
        out.append(_exact_lane(op, values, mode))
    return np.array(out, np.float64)


def _exact_lane(op: str, values: list[float], mode: str) -> float:
    plain = [np.float64(v) for v in values]
    match op:
        case "add":
            near = plain[0] + plain[1]
        case "mul":
            near = plain[0] * plain[1]
        case "div":
            near = plain[0] / plain[1]
        case "sqrt":
            near = np.sqrt(plain[0])
        case _:
            near = plain[0] * plain[1] + plain[2]
    if not all(np.isfinite(v) for v in plain) or (op == "div" and values[1] == 0) or np.isnan(near):
        return float(near)
    exact = [Fraction(v) for v in values]
    match op:
        case "add":
            true = exact[0] + exact[1]
        case "mul":
            true = exact[0] * exact[1]
        case "div":
            true = exact[0] / exact[1]
        case "sqrt":
            return _nudge(float(near), lambda c: exact[0] - Fraction(c) ** 2, mode)
        case _:
            true = exact[0] * exact[1] + exact[2]
    if true == 0:
        terms = plain if op == "add" else (plain[0] * plain[1], plain[2]) if op == "fma" else ()
        is_minus = mode == "rm" and any(np.signbit(t) for t in terms)
        return -0.0 if is_minus else float(near)
    try:
        near = float(true)
    except OverflowError:
        near = np.inf if true > 0 else -np.inf
    if np.isinf(near):
        largest = np.finfo(np.float64).max
        down = mode == "rz" or (mode == "rm" and true > 0) or (mode == "rp" and true < 0)
        return float(np.copysign(largest, near)) if down else float(near)
    return _nudge(near, lambda c: true - Fraction(c), mode)


def _nudge(near: float, residual, mode: str) -> float:
    """Move a nearest result one step where a directed mode asks for it."""
    sign = residual(near)
    toward_zero = mode == "rz" and ((sign < 0 < near) or (sign > 0 > near))
    if (mode == "rm" and sign < 0) or (toward_zero and near > 0):
        return float(np.nextafter(near, -np.inf))
    if (mode == "rp" and sign > 0) or (toward_zero and near < 0):
        return float(np.nextafter(near, np.inf))
    return near
