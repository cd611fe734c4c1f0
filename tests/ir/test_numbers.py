import tracemalloc
from fractions import Fraction

import ml_dtypes
import numpy as np
import pytest

from reftile.ir.dtypes import (
    BF16,
    DTYPES,
    F4E2M1,
    F8E4M3,
    F8E5M2,
    F8E8M0,
    F16,
    F32,
    F64,
    FLOATS,
    I1,
    I4,
    TF32,
    DType,
    numpy_dtype,
)
from reftile.ir.numbers import canonical, convert, decode, encode, is_representable
from reftile.ir.rounding import ROUNDINGS
from tests.ir.float_oracle import FORMATS, assert_same, comparer, round_array, round_exact
from tests.work import calls_in

NARROW = tuple(d for d in FLOATS if d.bits <= 16 and d is not F8E8M0)
ALL_FLOAT32 = np.array([0x7F800000, 0x7FC00000, 0x7F800001, 0xFF800001, 1, 0x80000001], np.uint32)


def codes_of(dtype: DType) -> np.ndarray:
    return np.arange(1 << dtype.bits, dtype=dtype.storage)


def edge_values(target: DType) -> np.ndarray:
    """Return float64 numbers around every boundary of the target: values, middles, nearby."""
    table = FORMATS[target.name].values()
    if len(table) > 3000:
        table = np.concatenate([table[:400], table[400:-400:97], table[-400:]])
    middles = (table[1:] + table[:-1]) / 2
    points = np.concatenate([table, middles, [table[-1] * 2, 1e30, 1e300, 5e-324, np.inf]])
    points = np.concatenate([points, np.nextafter(points, 0), np.nextafter(points, np.inf)])
    return np.concatenate([points, -points, [np.nan]])


def random_bits(kind: type, count: int) -> np.ndarray:
    width = np.dtype(kind).itemsize
    return np.frombuffer(np.random.default_rng(7).bytes(width * count), kind)


@pytest.mark.parametrize("dtype", NARROW, ids=str)
def test_every_code_decodes_to_its_defined_value(dtype):
    form = FORMATS[dtype.name]
    codes = codes_of(dtype)
    sign_bit = 1 << (dtype.bits - 1)
    magnitudes = (codes & (sign_bit - 1)).astype(np.int64)
    table = np.full(sign_bit, np.nan)
    table[: form.max_code + 1] = form.values()[:-1]
    if form.infinity:
        table[form.max_code + 1] = np.inf
    expected = np.where(codes >= sign_bit, -table[magnitudes], table[magnitudes])
    if not form.negative_zero:
        expected[sign_bit] = np.nan
    assert_same(decode(codes, dtype), expected.astype(np.float32), codes)


@pytest.mark.parametrize("dtype", [d for d in FLOATS if d.bits <= 16], ids=str)
def test_every_code_survives_decoding_and_encoding(dtype):
    codes = codes_of(dtype)
    values = decode(codes, dtype)
    assert values.dtype == dtype.carrier
    assert (encode(values, dtype) == codes).all()
    assert is_representable(values, dtype).all()


@pytest.mark.parametrize("dtype", [F16, BF16, F8E4M3, F8E5M2, F8E8M0], ids=str)
def test_computed_nans_are_encoded_whatever_their_payload(dtype):
    bits = np.array([0x7F800001, 0xFF800001, 0x7FFFFFFF, 0x7FC00000], np.uint32)
    codes = encode(bits.view(np.float32), dtype)
    assert np.isnan(decode(codes, dtype)).all()
    assert codes[3] == encode(convert(np.array([np.nan], np.float32), F32, dtype), dtype)[0]


def test_scales_decode_to_powers_of_two():
    values = decode(np.arange(255, dtype=np.uint8), F8E8M0)
    assert (values.astype(np.float64) == 2.0 ** np.arange(-127.0, 128.0)).all()
    assert np.isnan(decode(np.array([255], np.uint8), F8E8M0)).all()


def test_tf32_ignores_its_low_bits_but_keeps_nan():
    bits = np.array([0x3F801FFF, 0x7F800001, 0x7F800000, 0x80001FFF], np.uint32)
    values = decode(bits, TF32)
    assert values[0] == 1.0
    assert np.isnan(values[1])
    assert np.isinf(values[2])
    assert values[3] == 0 and np.signbit(values[3])


def test_f32_and_f64_keep_the_bits_of_a_nan():
    for dtype, bits in ((F32, 0xFF812345), (F64, 0xFFF0123456789ABC)):
        array = np.array([bits], dtype.storage)
        assert (encode(decode(array, dtype), dtype) == array).all()


def test_integers_decode_sign_extended():
    assert decode(np.arange(16, dtype=np.uint8) | 0xA0, I4).tolist() == [*range(8), *range(-8, 0)]
    assert encode(np.array([-1, 7], np.int8), I4).tolist() == [15, 7]
    assert decode(np.array([0, 1, 2], np.uint8), I1).tolist() == [False, True, True]
    for dtype in (d for d in DTYPES.values() if d.is_int and d.bits >= 8):
        bits = np.array([0, 1, dtype.unsigned_max, dtype.signed_max + 1], dtype.storage)
        assert decode(bits, dtype).tolist() == [0, 1, -1, dtype.signed_min]
        assert (encode(decode(bits, dtype), dtype) == bits).all()


@pytest.mark.parametrize("rounding", ROUNDINGS)
@pytest.mark.parametrize("saturate", [False, True])
def test_every_narrow_code_converts_to_every_narrow_format(rounding, saturate):
    for source in NARROW:
        values = decode(codes_of(source), source)
        if source is BF16 or source is F16:
            values = values[:: 1 if rounding in ("nearest_even", "zero") else 5]
        # NumPy warns where a signalling NaN becomes a quiet one.
        with np.errstate(invalid="ignore"):
            wide = values.astype(np.float64)
        for target in NARROW:
            expected = round_array(wide, FORMATS[target.name], rounding, saturate)
            assert_same(convert(values, source, target, rounding, saturate), expected, values)


@pytest.mark.parametrize("target", [*NARROW, TF32], ids=str)
@pytest.mark.parametrize("rounding", ROUNDINGS)
def test_wide_sources_round_once(target, rounding):
    exact = np.concatenate([edge_values(target), random_bits(np.float64, 3000)])
    with np.errstate(all="ignore"):
        single = np.concatenate([exact.astype(np.float32), random_bits(np.float32, 3000)])
        widened = single.astype(np.float64)
    for source, values, as_f64 in ((F64, exact, exact), (F32, single, widened)):
        for saturate in (False, True):
            expected = round_array(as_f64, FORMATS[target.name], rounding, saturate)
            actual = convert(values, source, target, rounding, saturate)
            assert actual.dtype == np.float32
            assert_same(actual, expected, values)


@pytest.mark.parametrize("rounding", ROUNDINGS)
def test_f64_rounds_once_to_f32(rounding):
    form = FORMATS["f32"]
    rng = np.random.default_rng(3)
    singles = random_bits(np.float32, 60)
    near = np.concatenate([singles[np.isfinite(singles)], [0, 1e-45, 2**-126, 3e38]])
    near = near.astype(np.float64)
    step = np.spacing(np.abs(near).astype(np.float32)).astype(np.float64)
    values = np.concatenate([near, near + step / 2, near + step * rng.random(len(near))])
    # The middle between the largest number and 2**128 is the first to overflow.
    values = np.append(values, [2.0**128 - 2.0**103, 1e39, 1e300, 5e-324])
    values = np.concatenate([values, np.nextafter(values, np.inf), np.nextafter(values, 0)])
    values = np.concatenate([values, -values])
    expected = [
        round_exact(comparer(abs(Fraction(v))), bool(np.signbit(v)), form, (rounding,))[0]
        for v in values.tolist()
    ]
    assert_same(convert(values, F64, F32, rounding), np.array(expected), values)
    clamped = np.clip(expected, -F32.max_finite, F32.max_finite)
    assert_same(convert(values, F64, F32, rounding, saturate=True), clamped, values)


def test_f64_to_f16_does_not_round_twice():
    # Just above the middle of two f16 numbers, and exactly the middle once rounded to f32.
    value = np.array([1 + 2.0**-11 + 2.0**-40])
    assert convert(value, F64, F16)[0] == 1 + 2.0**-10
    assert value.astype(np.float32).astype(np.float16)[0] == 1.0


@pytest.mark.parametrize("target", NARROW, ids=str)
def test_f32_conversions_agree_with_ml_dtypes(target):
    values = np.concatenate([random_bits(np.float32, 20000), ALL_FLOAT32.view(np.float32)])
    if not target.has_nan:
        values = values[~np.isnan(values)]
    with np.errstate(all="ignore"):
        expected = values.astype(numpy_dtype(target)).astype(np.float32)
    assert_same(convert(values, F32, target), expected, values)


def test_widening_keeps_every_value():
    for source, target in ((F16, F32), (BF16, F64), (F32, F64), (F8E4M3, F16), (F8E5M2, BF16)):
        values = decode(codes_of(source), source) if source.bits <= 16 else ALL_FLOAT32.view("f4")
        for rounding in ROUNDINGS:
            assert_same(convert(values, source, target, rounding), values)


def test_saturation_replaces_infinities_but_not_nan():
    values = np.array([np.inf, -np.inf, np.nan], np.float32)
    for target in (F64, F32, TF32, BF16, F16, F8E4M3, F8E5M2):
        result = convert(values, F32, target, saturate=True)
        assert result[:2].tolist() == [target.max_finite, -target.max_finite]
        assert np.isnan(result[2])


def test_f4_has_no_nan_and_always_saturates():
    values = np.array([np.nan, -np.nan, np.inf, -np.inf, 100, -7.5], np.float32)
    for saturate in (False, True):
        assert convert(values, F32, F4E2M1, saturate=saturate).tolist() == [6, 6, 6, -6, 6, -6]


def test_results_never_keep_a_payload():
    strange = np.array([0xFFC12345, 0x7F800001], np.uint32).view(np.float32)
    for target in (d for d in FLOATS if d.has_nan):
        quiet = encode(canonical(np.array([np.nan], target.carrier)), target)
        assert (encode(convert(strange, F32, target), target) == quiet).all()


SCALE_CASES = {
    # value: (down, nearest, up) as exponents; None is NaN
    0.0: (-127, -127, -127),
    2.0**-149: (-127, -127, -127),
    0.75 * 2.0**-127: (-127, -127, -127),
    2.0**-127: (-127, -127, -127),
    1.25 * 2.0**-127: (-127, -127, -126),
    1.5 * 2.0**-127: (-127, -126, -126),
    1.0: (0, 0, 0),
    1.25: (0, 0, 1),
    1.5: (0, 1, 1),
    1.75: (0, 1, 1),
    3.0: (1, 2, 2),
    2.0**127: (127, 127, 127),
    1.25 * 2.0**127: (127, 127, None),
    1.5 * 2.0**127: (127, None, None),
    float("inf"): (None, None, None),
    float("nan"): (None, None, None),
}


@pytest.mark.parametrize("source", [F32, F64], ids=str)
def test_scales_round_the_magnitude(source):
    values = np.array([*SCALE_CASES, *(-v for v in SCALE_CASES)], source.carrier)
    rows = [*SCALE_CASES.values()] * 2
    modes = {"zero": 0, "negative_inf": 0, "nearest_even": 1, "nearest_away": 1, "positive_inf": 2}
    for rounding in ROUNDINGS:
        exponents = [row[modes[rounding]] for row in rows]
        expected = np.array([np.nan if e is None else 2.0**e for e in exponents])
        assert_same(convert(values, source, F8E8M0, rounding), expected, values)
        clamped = np.where(np.isnan(expected) & ~np.isnan(values), 2.0**127, expected)
        assert_same(convert(values, source, F8E8M0, rounding, saturate=True), clamped, values)


def test_scales_agree_with_ml_dtypes_on_positive_numbers():
    # Not on f32 subnormals, where ml_dtypes rounds 1.25 * 2**-127 up.
    values = np.abs(random_bits(np.float32, 5000))
    values = values[(values >= 2.0**-126) & np.isfinite(values)]
    with np.errstate(all="ignore"):
        expected = values.astype(ml_dtypes.float8_e8m0fnu).astype(np.float32)
    assert_same(convert(values, F32, F8E8M0), expected, values)


def test_scalars_and_empty_tiles_convert():
    assert convert(np.array(1.1, np.float32), F32, BF16).shape == ()
    for target in FLOATS:
        assert convert(np.zeros((0, 4), np.float32), F32, target).shape == (0, 4)
        assert convert(np.array(1.0), F64, target, "zero").shape == ()


@pytest.mark.parametrize("target", [BF16, F16, TF32], ids=str)
def test_common_conversions_take_few_steps_and_little_memory(target):
    """Rounding to a code and back, as others do, takes twice the calls, and ten times a tile."""
    tile = np.random.default_rng(0).standard_normal((1024, 1024)).astype(np.float32)
    convert(tile, F32, target)
    calls = calls_in(lambda: convert(tile, F32, target))
    assert calls == calls_in(lambda: convert(tile[:2, :2], F32, target))
    assert calls < calls_in(lambda: convert(tile, F32, F8E5M2)) * 2 / 3
    tracemalloc.start()
    try:
        convert(tile, F32, target)
        peak = tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()
    assert peak < 2.5 * tile.nbytes
