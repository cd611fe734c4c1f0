"""The oracle itself: against NumPy, math and mpmath, where those are exact."""

from __future__ import annotations

import ast
from fractions import Fraction
from pathlib import Path

import mpmath
import numpy as np
import pytest
import reftile.conformance.oracle
from reftile.conformance.oracle.answer import Answer, Call, Limit
from reftile.conformance.oracle.floats import FLOAT_ORACLES
from reftile.conformance.oracle.formats import (
    FORMATS,
    codes,
    from_key,
    is_finite,
    key,
    round_to,
    take_apart,
    to_float64,
)
from reftile.conformance.oracle.functions import UNARY, unary
from reftile.conformance.oracle.limits import WIDE, magnitude_code, range_of, wide_ranges
from reftile.conformance.oracle.random import KNOWN, philox4x32
from reftile.conformance.oracle.sums import Profile, dot_bound, gamma
from reftile.conformance.suites.common import Settings
from reftile.conformance.suites.elementwise import ask

ORACLE = Path(reftile.conformance.oracle.__file__ or "").parent
SMALL = [name for name, f in FORMATS.items() if f.width <= 16]


def test_oracle_imports_nothing_of_reftile() -> None:
    for path in ORACLE.glob("*.py"):
        for node in ast.walk(ast.parse(path.read_text())):
            names = [a.name for a in node.names] if isinstance(node, ast.Import) else []
            if isinstance(node, ast.ImportFrom):
                names = [node.module or ""]
            for name in names:
                assert not name.startswith("reftile") or name.startswith(
                    "reftile.conformance.oracle"
                )


@pytest.mark.parametrize("name", SMALL)
def test_codes_come_back_from_their_values(name: str) -> None:
    f = FORMATS[name]
    bits = np.arange(1 << f.width, dtype=np.uint64)
    bits = bits[is_finite(bits, f)]
    exact = np.zeros(bits.shape, bool)
    for mode in ("nearest_even", "nearest_away", "zero", "negative_inf", "positive_inf"):
        assert np.array_equal(round_to(*take_apart(bits, f), exact, f, mode), bits)
    assert np.array_equal(from_key(key(bits, f), f), bits)


@pytest.mark.parametrize("name", SMALL)
def test_keys_follow_the_numbers(name: str) -> None:
    f = FORMATS[name]
    bits = np.arange(1 << f.width, dtype=np.uint64)
    bits = bits[is_finite(bits, f)]
    ranked = bits[np.argsort(key(bits, f), kind="stable")]
    assert np.all(np.diff(to_float64(ranked, f)) >= 0)


def test_rounding_agrees_with_numpy() -> None:
    rng = np.random.default_rng(1)
    x = rng.standard_normal(5000) * 2.0 ** rng.integers(-170, 140, 5000)
    bits = x.view(np.uint64)
    apart = take_apart(bits, FORMATS["f64"])
    exact = np.zeros(x.shape, bool)
    with np.errstate(over="ignore"):
        for name, type in (("f32", np.float32), ("f16", np.float16)):
            expected = codes(x.astype(type).view(f"u{np.dtype(type).itemsize}"))
            assert np.array_equal(round_to(*apart, exact, FORMATS[name], "nearest_even"), expected)


@pytest.mark.parametrize("op", ["addf", "subf", "mulf", "divf"])
def test_f64_arithmetic_agrees_with_numpy(op: str) -> None:
    rng = np.random.default_rng(2)
    x, y = (rng.standard_normal(3000) * 2.0 ** rng.integers(-600, 600, 3000) for _ in range(2))
    call = Call(op, [x.view(np.uint64), y.view(np.uint64)], ["f64"] * 2, ["f64"])
    function = {"addf": np.add, "subf": np.subtract, "mulf": np.multiply, "divf": np.divide}[op]
    with np.errstate(all="ignore"):
        expected = function(x, y).view(np.uint64)
    assert np.array_equal(FLOAT_ORACLES[op](call).low, expected)


def test_directed_sums_lie_around_the_exact_one() -> None:
    rng = np.random.default_rng(3)
    x, y = (codes(rng.integers(0, 0x7B00, 500)) for _ in range(2))
    f = FORMATS["f16"]
    exact = to_float64(x, f) + to_float64(y, f)
    results = {}
    for mode in ("negative_inf", "positive_inf"):
        call = Call("addf", [x, y], ["f16"] * 2, ["f16"], {"rounding": mode})
        results[mode] = FLOAT_ORACLES["addf"](call).low
    below, above = results["negative_inf"], results["positive_inf"]
    assert np.all(to_float64(below, f) <= exact)
    assert np.all(to_float64(above, f) >= exact)
    assert np.all(key(above, f) - key(below, f) <= 1)


@pytest.mark.parametrize("value", [0.3, 1.0, 1.5, 2.0**-24, 65504.0, 65519.0, 1e-9])
@pytest.mark.parametrize("ulp", [0.5, 1.0, 2.0])
def test_both_ways_to_a_range_agree(value: float, ulp: float) -> None:
    if not WIDE:
        pytest.skip("long double is no wider than float64 here")
    f = FORMATS["f16"]
    limit = Limit.of(ulp, (1,))
    low, high, undecided = wide_ranges(np.array([value], np.longdouble), 0.0, f, limit)
    m, e = np.frexp(value)
    assert range_of((int(m * 2**53), int(e) - 53), f, limit, 0) == (low[0], high[0])
    assert not undecided[0]


def test_magnitude_codes_of_fractions() -> None:
    f = FORMATS["f16"]
    third = Fraction(1, 3)
    below, above = magnitude_code(third, f, False), magnitude_code(third, f, True)
    assert above == below + 1
    assert to_float64(codes([below]), f)[0] < 1 / 3 < to_float64(codes([above]), f)[0]
    assert magnitude_code(Fraction(70000), f, False) == f.max_code + 1
    assert magnitude_code(Fraction(0), f, True) == 0


@pytest.mark.parametrize("op", UNARY)
def test_long_double_and_mpmath_agree(op: str) -> None:
    if not WIDE:
        pytest.skip("long double is no wider than float64 here")
    rng = np.random.default_rng(4)
    x = codes(rng.integers(0, 1 << 16, 300))
    for name in ("f16", "bf16"):
        wide = unary(Call(op, [x], [name], [name], limit=Limit.of(0.5001, x.shape)))
        f = FORMATS[name]
        value = to_float64(x, f)
        for i in np.flatnonzero(np.isfinite(value) & (np.abs(value) < 50) & (value != 0))[:60]:
            found = _nearest(op, float(value[i]), f)
            if found is not None:
                assert wide.low[i] <= found <= wide.high[i] or wide.low[i] >= found >= wide.high[i]


@pytest.mark.parametrize("op", UNARY)
def test_many_f32_are_judged_as_few_are(op: str) -> None:
    rng = np.random.default_rng(5)
    x = np.concatenate([codes(rng.integers(0, 1 << 32, 120)), codes([1, 0x3F800000, 0xBF800000])])
    many = np.resize(x, 4100)
    for ulp in (0.5001, 2.0):
        few = unary(Call(op, [x], ["f32"], ["f32"], limit=Limit.of(ulp, x.shape)))
        found = unary(Call(op, [many], ["f32"], ["f32"], limit=Limit.of(ulp, many.shape)))
        assert np.array_equal(found.low[: x.size], few.low)
        assert np.array_equal(found.high[: x.size], few.high)


def _nearest(op: str, value: float, f: object) -> int | None:
    """The code nearest to the function's value, from 60 digits of mpmath."""
    with mpmath.workdps(60):
        exact = UNARY[op][2](mpmath.mpf(value))
        if not isinstance(exact, mpmath.mpf) or not mpmath.isfinite(exact):
            return None
        sign, m, e, _ = exact._mpf_
    mask = (1 << 64) - 1
    shift = max(int(m).bit_length() - 64, 0)
    bits = round_to(
        np.array([bool(sign)]),
        codes([int(m) >> shift & mask]),
        np.array([int(e) + shift], np.int64),
        np.array([True]),
        f,  # type: ignore[arg-type]
        "nearest_even",
    )
    return int(bits[0])


def test_ranges_never_reach_across_zero() -> None:
    x = codes([1, 0x8001])
    answer = unary(Call("sin", [x], ["f16"], ["f16"], limit=Limit.of(4.0, (2,))))
    # The sine of the least number lies just below it, so not even 4 units reach 5.
    assert answer.low.tolist() == [0, 0x8004]
    assert answer.high.tolist() == [4, 0x8000]


def test_nan_asks_for_nan_and_zeros_for_their_sign() -> None:
    f32 = Answer.exactly("f32", codes([0x7FC00000, 0x80000000, 0x3F800000]))
    good = codes([0xFFC00001, 0x80000000, 0x3F800000])
    assert not f32.wrong(good).any()
    assert f32.wrong(codes([0x7F800000, 0, 0x7FC00000])).all()


def test_philox_has_the_published_words() -> None:
    for counter, key_, words in KNOWN:
        assert philox4x32(counter, key_, 10) == words


def test_bounds_of_products() -> None:
    products = [Fraction(1), Fraction(-3, 2), Fraction(1, 4)]
    u = Fraction(1, 1 << 24)
    assert dot_bound(products, Fraction(2), u, Profile()) == gamma(3, u) * (Fraction(11, 4) + 2)
    assert dot_bound(products, Fraction(2), u, Profile(fused=False)) > dot_bound(
        products, Fraction(2), u, Profile()
    )
    blocks = dot_bound(products, Fraction(0), u, Profile(size=4, extra=2))
    assert blocks == u * (Fraction(5, 2) * Fraction(3, 2) + 2 * Fraction(1, 4))


@pytest.mark.parametrize(
    ("rounding", "lhs", "rhs", "right"),
    [
        ("zero", 0x4800, 0x0002, 0x7BFF),
        ("negative_inf", 0x4800, 0x0002, 0x7BFF),
        ("positive_inf", 0xC800, 0x0002, 0xFBFF),
        ("positive_inf", 0x4800, 0x0002, 0x7C00),
    ],
)
def test_a_quotient_too_large_is_right_as_its_mode_rounds_it(
    rounding: str, lhs: int, rhs: int, right: int
) -> None:
    """Found by a GPU: the range around f16 quotients took infinities for the only answer."""
    columns = [codes([lhs]), codes([rhs])]
    answer = ask(Settings(), "divf", columns, ["f16", "f16"], ["f16"], {"rounding": rounding})
    assert not answer.wrong(codes([right])).any()
    assert answer.wrong(codes([0x3C00])).all()
