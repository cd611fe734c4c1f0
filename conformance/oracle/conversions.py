"""Conversions between element types, and their bytes."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
from reftile.conformance.oracle.answer import Answer, Call
from reftile.conformance.oracle.floats import whole_part
from reftile.conformance.oracle.formats import (
    FORMATS,
    WIDTHS,
    Codes,
    Format,
    U,
    infinity,
    is_float,
    is_infinite,
    is_nan,
    is_zero,
    join,
    put,
    round_to,
    take_apart,
)
from reftile.conformance.oracle.integers import FLAGS, fits, read, wrap


def float_to_float(call: Call) -> Answer:
    """ftof."""
    source, target = FORMATS[call.dtypes[0]], FORMATS[call.results[0]]
    (x,) = call.operands
    mode = call.attribute("rounding", "nearest_even")
    saturating = bool(call.attribute("saturating", False))
    sign, m, e = take_apart(x, source)
    bits = round_to(sign, m, e, np.zeros(x.shape, bool), target, mode, saturating)
    bits = np.where(is_zero(x, source), zero(sign, target), bits)
    bits = np.where(is_infinite(x, source), beyond(sign, target, saturating), bits)
    nan = U(target.nan_code)
    return Answer.exactly(call.results[0], np.where(is_nan(x, source), nan, bits))


def zero(sign: np.ndarray, f: Format) -> Codes:
    """Zeros; the least number of a format that has none."""
    return join(sign, np.zeros(sign.shape, np.uint64), f)


def beyond(sign: np.ndarray, f: Format, saturating: bool) -> Codes:
    """What an infinity becomes."""
    if f.infinity and not saturating:
        return infinity(sign, f)
    everywhere = np.ones(sign.shape, bool)
    largest = np.full(sign.shape, f.max_code, np.uint64)
    return put(sign, largest, everywhere, everywhere & saturating, f)


def float_to_int(call: Call) -> Answer:
    """ftoi."""
    f, target = FORMATS[call.dtypes[0]], call.results[0]
    (x,) = call.operands
    signedness = call.attribute("signedness", "signed")
    mode = call.attribute("rounding", "nearest_int_to_zero")
    sign, n, huge = whole_part(x, f, "zero" if mode == "nearest_int_to_zero" else mode)
    width = WIDTHS[target]
    least, most = 0, (1 << width) - 1
    if signedness == "signed":
        least, most = 1 << (width - 1), (1 << (width - 1)) - 1
    nan = is_nan(x, f)
    huge = huge | is_infinite(x, f)
    over = ~nan & (huge | (n > np.where(sign, U(least), U(most))))
    clamped = np.where(over, np.where(sign, U(least), U(most)), np.where(nan, U(0), n))
    bits = np.where(sign, ~clamped + U(1), clamped) & U((1 << width) - 1)
    undefined = None if call.attribute("saturating", False) else over | nan
    return Answer.exactly(target, bits, undefined)


def int_to_float(call: Call) -> Answer:
    """itof."""
    f, width = FORMATS[call.results[0]], WIDTHS[call.dtypes[0]]
    bits = call.operands[0].reshape(-1)
    sign = np.zeros(bits.shape, bool)
    if call.attribute("signedness", "signed") == "signed":
        sign = bits >> U(width - 1) != 0
    magnitude = np.where(sign, (~bits + U(1)) & U((1 << width) - 1), bits)
    mode = call.attribute("rounding", "nearest_even")
    none = np.zeros(bits.shape, np.int64)
    return Answer.exactly(call.results[0], round_to(sign, magnitude, none, none != 0, f, mode))


def extend(call: Call) -> Answer:
    """exti."""
    values = read(call.operands[0], call.dtypes[0], call.attribute("signedness", "signed"))
    return Answer.exactly(call.results[0], wrap(values, call.results[0]))


def truncate(call: Call) -> Answer:
    """trunci."""
    source, target = call.dtypes[0], call.results[0]
    undefined = np.zeros(call.operands[0].size, bool)
    for signedness in FLAGS[call.attribute("overflow", "none")]:
        values = read(call.operands[0], source, signedness)
        undefined |= ~np.array([fits(v, WIDTHS[target], signedness) for v in values], bool)
    return Answer.exactly(target, wrap(read(call.operands[0], source, "signed"), target), undefined)


def same_bits(call: Call) -> Answer:
    """bitcast."""
    (x,) = call.operands
    given, target = x, call.results[0]
    if "tf32" in (call.dtypes[0], target):
        x = x & ~U((1 << 13) - 1)
    answer = Answer.exactly(target, x)
    kept = ("f32", "f64")
    source_keeps = call.dtypes[0] in kept or not is_float(call.dtypes[0])
    answer.same_bits = source_keeps and (target in kept or not is_float(target))
    if is_float(call.dtypes[0]) and call.dtypes[0] not in kept:
        # Which NaN it was is not kept, and so the bits are not.
        answer.free = is_nan(call.operands[0], FORMATS[call.dtypes[0]])
    if target == "tf32" and is_float(call.dtypes[0]):
        # Nothing says what becomes of a NaN that only the ignored bits tell from an infinity.
        answer.free = is_nan(given, FORMATS[call.dtypes[0]]) & ~is_nan(x, FORMATS["tf32"])
    return answer


def to_bytes(bits: Codes, dtype: str) -> Codes:
    """The memory image of elements, low byte first; two elements of 4 bits to the byte."""
    width = WIDTHS[dtype]
    if width == 4:
        low, high = bits[0::2], bits[1::2]
        return low | (high << U(4))
    out = [(bits >> U(8 * i)) & U(0xFF) for i in range(width // 8)]
    return np.stack(out, axis=-1).reshape(-1)


def from_bytes(data: Codes, dtype: str) -> Codes:
    """The inverse of `to_bytes`."""
    width = WIDTHS[dtype]
    if width == 4:
        return np.stack([data & U(15), data >> U(4)], axis=-1).reshape(-1)
    parts = data.reshape(-1, width // 8)
    total = np.zeros(parts.shape[0], np.uint64)
    for i in range(width // 8):
        total |= parts[:, i] << U(8 * i)
    return total


def pack(call: Call) -> Answer:
    """pack."""
    dtype, (x,) = call.dtypes[0], call.operands
    data = to_bytes(x & ~U((1 << 13) - 1) if dtype == "tf32" else x, dtype)
    answer = Answer.exactly("i8", data)
    if dtype in ("f16", "bf16", "tf32"):
        nan = is_nan(x, FORMATS[dtype])
        answer.free = np.repeat(nan, WIDTHS[dtype] // 8)
    return answer


def unpack(call: Call) -> Answer:
    """unpack."""
    bits = from_bytes(call.operands[0], call.results[0])
    return Answer.moved(call.results[0], bits)


CONVERSION_ORACLES: dict[str, Callable[[Call], Answer]] = {
    "ftof": float_to_float,
    "ftoi": float_to_int,
    "itof": int_to_float,
    "exti": extend,
    "trunci": truncate,
    "bitcast": same_bits,
    "pack": pack,
    "unpack": unpack,
}
