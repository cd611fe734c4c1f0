"""Floating arithmetic and conversions in every rounding mode, against rationals and ml_dtypes."""

from fractions import Fraction

import ml_dtypes
import numpy as np
import pytest

from tests.ptx_machine.harness import compute

RANDOM = np.random.default_rng(2)
SPECIAL = [0.0, -0.0, 1.0, -1.0, np.inf, -np.inf, np.nan, 1e-40, -1e-45, 3.4e38, 1.5, 65504.0]
TINY = np.finfo(np.float32).tiny
MODES = ["rn", "rz", "rm", "rp"]
BF16 = ml_dtypes.bfloat16


def floats() -> np.ndarray:
    x = RANDOM.standard_normal(32) * 2.0 ** RANDOM.integers(-30, 30, 32)
    x[:12] = RANDOM.permutation(SPECIAL)
    return x.astype(np.float32)


def finite() -> np.ndarray:
    return (RANDOM.standard_normal(32) * 2.0 ** RANDOM.integers(-20, 20, 32)).astype(np.float32)


def check(cases: list[tuple[str, np.ndarray]], **inputs: np.ndarray) -> None:
    """Compare outputs; any NaN equals any, zeros keep their sign."""
    expected = {f"out{i}": e for i, (_, e) in enumerate(cases)}
    kinds = {n: bool if e.dtype == bool else e.dtype.type for n, e in expected.items()}
    body = "\n".join(s.format(o=f"out{i}") for i, (s, _) in enumerate(cases))
    got = compute(body, inputs, kinds)
    for i, (statement, value) in enumerate(cases):
        result, zero = got[f"out{i}"], value == 0
        np.testing.assert_array_equal(result, value, err_msg=statement)
        if value.dtype.kind == "f":
            signs = np.signbit(result[zero]), np.signbit(value[zero])
            np.testing.assert_array_equal(*signs, err_msg=statement)


def nearest(value: Fraction, below: np.floating, above: np.floating) -> np.floating:
    """Pick the closer neighbour; on a tie the one with an even pattern."""
    low, high = value - Fraction(float(below)), Fraction(float(above)) - value
    if low != high:
        return below if low < high else above
    return below if int(below.view(f"u{below.nbytes}")) % 2 == 0 else above


def directed(exact: list[Fraction], mode: str, dtype: type = np.float32) -> np.ndarray:
    """Round rationals to a float type by looking at neighbours."""
    out = []
    for value in exact:
        near = dtype(float(value))
        below = near if Fraction(float(near)) <= value else np.nextafter(near, dtype(-np.inf))
        above = near if Fraction(float(near)) >= value else np.nextafter(near, dtype(np.inf))
        truncated = below if value > 0 else above
        picks = {"rm": below, "rp": above, "rz": truncated, "rn": nearest(value, below, above)}
        out.append(picks[mode])
    return np.array(out, dtype)


def rationals(*arrays: np.ndarray) -> list[tuple[Fraction, ...]]:
    return [tuple(Fraction(float(v)) for v in row) for row in zip(*arrays, strict=True)]


def flush(x: np.ndarray) -> np.ndarray:
    return np.where(np.abs(x) < TINY, np.copysign(0, x), x).astype(np.float32)


@pytest.mark.filterwarnings("ignore::RuntimeWarning")
def test_nearest_f32_arithmetic():
    a, b = floats(), floats()
    total = a + b
    cases = [
        ("add.f32 {o}, a, b;", total),
        ("sub.rn.f32 {o}, a, b;", a - b),
        ("mul.f32 {o}, a, b;", a * b),
        ("div.rn.f32 {o}, a, b;", a / b),
        ("sqrt.rn.f32 {o}, a;", np.sqrt(a)),
        ("rcp.rn.f32 {o}, a;", np.float32(1) / a),
        ("mul.ftz.f32 {o}, a, b;", flush(flush(a) * flush(b))),
        ("add.sat.f32 {o}, a, b;", np.where(total > 0, np.minimum(total, 1), 0).astype(np.float32)),
        ("neg.f32 {o}, a;", -a),
        ("abs.f32 {o}, a;", np.abs(a)),
        ("copysign.f32 {o}, a, b;", np.copysign(b, a)),
        ("testp.subnormal.f32 {o}, a;", (a != 0) & (np.abs(a) < TINY)),
        ("setp.ltu.f32 {o}, a, b;", ~(a >= b)),
        ("setp.ne.f32 {o}, a, b;", (a != b) & ~np.isnan(a) & ~np.isnan(b)),
    ]
    check(cases, a=a, b=b)


def test_extrema_prefer_numbers_to_nan_and_order_zeros():
    a = np.array([1, -0.0, 0.0, np.nan, 2, np.nan] + [3] * 26, np.float32)
    b = np.array([2, 0.0, -0.0, 5, np.nan, np.nan] + [-4] * 26, np.float32)
    larger = np.array([2, 0.0, 0.0, 5, 2, np.nan] + [3] * 26, np.float32)
    smaller = np.array([1, -0.0, -0.0, 5, 2, np.nan] + [-4] * 26, np.float32)
    strict = np.array([2, 0.0, 0.0, np.nan, np.nan, np.nan] + [3] * 26, np.float32)
    cases = [
        ("max.f32 {o}, a, b;", larger),
        ("min.f32 {o}, a, b;", smaller),
        ("max.NaN.f32 {o}, a, b;", strict),
    ]
    check(cases, a=a, b=b)


@pytest.mark.parametrize("mode", MODES)
def test_directed_rounding_matches_rationals(mode):
    a, b, c = finite(), finite(), finite()
    c[:16] = -(a * b)[:16]
    rows = rationals(a, b, c)
    cases = [
        (f"add.{mode}.f32 {{o}}, a, b;", directed([x + y for x, y, _ in rows], mode)),
        (f"mul.{mode}.f32 {{o}}, a, b;", directed([x * y for x, y, _ in rows], mode)),
        (f"fma.{mode}.f32 {{o}}, a, b, c;", directed([x * y + z for x, y, z in rows], mode)),
        (f"div.{mode}.f32 {{o}}, a, b;", directed([x / y for x, y, _ in rows], mode)),
    ]
    check(cases, a=a, b=b, c=c)


@pytest.mark.parametrize("mode", MODES)
def test_f64_arithmetic_rounds_once(mode):
    a, b, c = (RANDOM.standard_normal(32) for _ in range(3))
    rows = rationals(a, b, c)
    fused = directed([x * y + z for x, y, z in rows], mode, np.float64)
    cases = [
        (f"add.{mode}.f64 {{o}}, a, b;", directed([x + y for x, y, _ in rows], mode, np.float64)),
        (f"fma.{mode}.f64 {{o}}, a, b, c;", fused),
        (f"div.{mode}.f64 {{o}}, a, b;", directed([x / y for x, y, _ in rows], mode, np.float64)),
    ]
    check(cases, a=a, b=b, c=c)


@pytest.mark.filterwarnings("ignore::RuntimeWarning")
def test_approximations_are_close_and_flush():
    a = np.concatenate([np.linspace(-8, 8, 30), [np.inf, -np.inf]]).astype(np.float32)
    b = np.abs(a) + np.float32(0.01)
    body = (
        "ex2.approx.ftz.f32 o0, a; lg2.approx.f32 o1, b; rsqrt.approx.f32 o2, b;"
        "rcp.approx.ftz.f32 o3, b; tanh.approx.f32 o4, a; ex2.approx.ftz.f32 o5, t;"
    )
    names = [f"o{i}" for i in range(6)]
    underflowing = np.full(32, -127.5, np.float32)
    got = compute(body, {"a": a, "b": b, "t": underflowing}, dict.fromkeys(names, np.float32))
    x, y = a.astype(np.float64), b.astype(np.float64)
    expected = [np.exp2(x), np.log2(y), y**-0.5, 1 / y, np.tanh(x), np.zeros(32)]
    for name, value in zip(names, expected, strict=True):
        np.testing.assert_allclose(got[name], value, rtol=2e-7, err_msg=name)


def patterns(x: np.ndarray, dtype) -> np.ndarray:
    """Bit patterns after one rounding, NaN canonical."""
    width = np.dtype(dtype).itemsize
    bits = x.astype(dtype).view(np.uint8 if width == 1 else np.uint16)
    return np.where(np.isnan(x), 0x7F if width == 1 else 0x7FFF, bits).astype(np.uint16)


def join(low: np.ndarray, high: np.ndarray) -> np.ndarray:
    return low.astype(np.uint32) | high.astype(np.uint32) << np.uint32(16)


def fused_half(a: np.ndarray, b: np.ndarray, dtype) -> np.ndarray:
    """Round a * b + a once, by trying the patterns around a first guess."""
    out = []
    for x, y in zip(a.astype(float), b.astype(float), strict=True):
        exact = Fraction(x) * Fraction(y) + Fraction(x)
        guess = int(np.array(x * y + x, np.float32).astype(dtype).view(np.uint16))
        near = [np.uint16((guess + step) % 65536) for step in (-1, 0, 1)]
        near = [v for v in near if np.isfinite(float(v.view(dtype)))]
        best = min(near, key=lambda v: (abs(Fraction(float(v.view(dtype))) - exact), int(v) % 2))
        out.append(guess if exact == 0 else best)
    return np.array(out, np.uint16)


@pytest.mark.parametrize(("name", "dtype"), [("f16x2", np.float16), ("bf16x2", BF16)])
def test_half_pairs_round_once(name, dtype):
    scale = np.float32(2.0**-10 if dtype is np.float16 else 1)
    (a0, a1, b0, b1) = parts = [(finite() * scale).astype(dtype) for _ in range(4)]
    a, b = (join(*(p.view(np.uint16) for p in parts[i : i + 2])) for i in (0, 2))
    (x0, x1, y0, y1) = (p.astype(np.float64) for p in parts)
    fused = join(fused_half(a0, b0, dtype), fused_half(a1, b1, dtype))
    larger = join(patterns(np.maximum(x0, y0), dtype), patterns(np.maximum(x1, y1), dtype))
    cases = [
        (f"add.{name} {{o}}, a, b;", join(patterns(x0 + y0, dtype), patterns(x1 + y1, dtype))),
        (f"mul.{name} {{o}}, a, b;", join(patterns(x0 * y0, dtype), patterns(x1 * y1, dtype))),
        (f"fma.rn.{name} {{o}}, a, b, a;", fused),
        (f"max.{name} {{o}}, a, b;", larger),
        (f"neg.{name} {{o}}, a;", a ^ np.uint32(0x80008000)),
    ]
    check(cases, a=a, b=b)


def eight(low: np.ndarray, high: np.ndarray, dtype, largest: float) -> np.ndarray:
    """Pack two saturating 8-bit conversions."""
    clipped = [patterns(np.clip(x, -largest, largest), dtype) for x in (low, high)]
    return clipped[0] | clipped[1] << np.uint16(8)


@pytest.mark.filterwarnings("ignore::RuntimeWarning")
def test_conversions_to_narrow_floats():
    a, b = floats(), floats()
    truncated = np.where(np.isnan(a), 0x7FFF, a.view(np.uint32) >> 16).astype(np.uint16)
    e4m3 = eight(a, b, ml_dtypes.float8_e4m3fn, 448)
    cases = [
        ("cvt.rn.bf16x2.f32 {o}, b, a;", join(patterns(a, BF16), patterns(b, BF16))),
        ("cvt.rn.f16x2.f32 {o}, b, a;", join(patterns(a, np.float16), patterns(b, np.float16))),
        ("cvt.rn.satfinite.e4m3x2.f32 {o}, b, a;", e4m3),
        ("cvt.rn.satfinite.e5m2x2.f32 {o}, b, a;", eight(a, b, ml_dtypes.float8_e5m2, 57344)),
        ("cvt.rn.f16x2.e4m3x2 r2, out2; cvt.rn.satfinite.e4m3x2.f16x2 {o}, r2;", e4m3),
        ("cvt.rz.bf16.f32 {o}, a;", truncated),
        ("cvt.rn.relu.f16.f32 {o}, a;", patterns(np.where(a <= 0, np.float32(0), a), np.float16)),
        ("cvt.f32.f16 {o}, out6;", np.where(a <= 0, 0, a).astype(np.float16).astype(np.float32)),
    ]
    check(cases, a=a, b=b)


@pytest.mark.filterwarnings("ignore::RuntimeWarning")
def test_conversions_between_floats_and_integers():
    a = floats()
    x = RANDOM.integers(0, 2**64, 32, dtype=np.uint64)
    whole = [(Fraction(int(v))) for v in x]
    clean = np.nan_to_num(a.astype(np.float64), nan=0.0, posinf=1e30, neginf=-1e30)
    tf32 = (finite().view(np.uint32) & np.uint32(0xFFFFE000)).view(np.float32)

    def clip(value: np.ndarray) -> np.ndarray:
        return np.clip(value, -(2**31), 2**31 - 1).astype(np.int32)

    cases = [
        ("cvt.rzi.s32.f32 {o}, a;", clip(np.trunc(clean))),
        ("cvt.rni.s32.f32 {o}, a;", clip(np.rint(clean))),
        ("cvt.rmi.f32.f32 {o}, a;", np.floor(a)),
        ("cvt.rn.f32.u64 {o}, x;", directed(whole, "rn")),
        ("cvt.rz.f32.u64 {o}, x;", directed(whole, "rz")),
        ("cvt.f64.f32 {o}, a;", a.astype(np.float64)),
        ("cvt.rn.f64.u64 {o}, x;", x.astype(np.float64)),
        ("cvt.rna.tf32.f32 r3, t; mov.b32 {o}, r3;", tf32),
    ]
    check(cases, a=a, x=x, t=tf32)


def test_sums_of_opposite_numbers_are_negative_zero_when_rounding_down():
    a = np.array([1.0, -0.0, 0.0, -0.0] * 8)
    b = np.array([-1.0, 0.0, 0.0, -0.0] * 8)
    minus = np.array([-0.0, -0.0, 0.0, -0.0] * 8)
    ones = np.ones(32)
    for kind, dtype in (("f32", np.float32), ("f64", np.float64)):
        cases = [
            (f"add.rm.{kind} {{o}}, a, b;", minus.astype(dtype)),
            (f"sub.rm.{kind} {{o}}, a, a;", np.array([-0.0] * 32, dtype)),
            (f"fma.rm.{kind} {{o}}, a, one, b;", minus.astype(dtype)),
        ]
        check(cases, a=a.astype(dtype), b=b.astype(dtype), one=ones.astype(dtype))


@pytest.mark.parametrize(("source", "dtype"), [("f32", np.float32), ("f64", np.float64)])
def test_nan_becomes_zero_or_the_highest_bit(source, dtype):
    nan = np.full(32, np.nan, dtype)
    for to, kind in (("s32", np.int32), ("u32", np.uint32), ("s64", np.int64), ("u64", np.uint64)):
        bits = np.dtype(kind).itemsize * 8
        highest = np.iinfo(kind).min or 1 << (bits - 1)
        expected = 0 if source == "f32" and bits == 32 else highest
        check([(f"cvt.rzi.{to}.{source} {{o}}, a;", np.full(32, expected, kind))], a=nan)
