"""The f32 polynomials stay inside what spec/accuracy.md allows, and special values are right."""

from __future__ import annotations

import math
from fractions import Fraction

import numpy as np
import pytest

from reftile.ir.parse import parse
from reftile.lower.cpu.functions.exact import fma_wide
from reftile.lower.cpu.functions.numbers import DOWN, UP, ZERO
from reftile.rt.cpu import launch_cpu

LIMITS = {"exp": 2.0, "exp2": 2.0, "log": 3.0, "log2": 3.0, "tanh": 5.0, "erf": 16.0, "rsqrt": 2.0}
EXACT = {
    "exp": np.exp,
    "exp2": np.exp2,
    "log": np.log,
    "log2": np.log2,
    "tanh": np.tanh,
    "rsqrt": lambda x: 1 / np.sqrt(x),
    "erf": np.vectorize(math.erf, otypes=[np.float64]),
}


def compute(op: str, values: np.ndarray) -> np.ndarray:
    size = values.size
    text = f"""\
tile kernel @main(%x: tile<ptr<f32>>, %y: tile<ptr<f32>>) {{
  %a = make_tensor_view %x, [], [] : tensor_view<{size}xf32, strides=[1]>
  %p = make_partition_view %a : partition_view<tile=(1024), tensor_view<{size}xf32, strides=[1]>>
  %b = make_tensor_view %y, [], [] : tensor_view<{size}xf32, strides=[1]>
  %q = make_partition_view %b : partition_view<tile=(1024), tensor_view<{size}xf32, strides=[1]>>
  %i, %j, %k = get_tile_block_id : tile<i32>, tile<i32>, tile<i32>
  %v, %t = load_view_tko %p, [%i] {{ordering = weak}} : tile<1024xf32>, token
  %w = {op} %v : tile<1024xf32>
  %s = store_view_tko %w, %q, [%i] {{ordering = weak}} : token
  return
}}
"""
    out = np.empty_like(values)
    launch_cpu(parse(text), (size // 1024,), [values, out])
    return out


def inputs(op: str) -> np.ndarray:
    """All magnitudes, the numbers where most happens, and the special ones."""
    rng = np.random.default_rng(len(op))
    bits = rng.integers(0, 1 << 32, 1 << 17, dtype=np.uint64).astype(np.uint32).view(np.float32)
    near = rng.uniform(-110, 130, 1 << 17).astype(np.float32)
    small = rng.uniform(-2, 2, 1 << 17).astype(np.float32)
    special = [0.0, -0.0, np.inf, -np.inf, np.nan, 1.0, -1.0, 88.73, -103.98, 128.0, -149.0, 1e-45]
    values = np.concatenate([bits, near, small, np.array(special, np.float32)])
    return np.resize(values, -(-values.size // 1024) * 1024)


@pytest.mark.parametrize("op", LIMITS)
def test_functions_of_f32_stay_inside_their_class(op: str) -> None:
    values = inputs(op)
    found = compute(op, values).astype(np.float64)
    with np.errstate(all="ignore"):
        exact = EXACT[op](values.astype(np.float64))
        exponent = np.clip(np.floor(np.log2(np.abs(exact))), -126, 127)
        overflows = np.isfinite(exact) & (np.abs(exact) > np.finfo(np.float32).max)
        units = np.abs(found - exact) / 2.0 ** (exponent - 23)
    assert np.array_equal(np.isnan(found), np.isnan(exact))
    assert np.array_equal(found[np.isinf(exact)], exact[np.isinf(exact)])
    ordinary = np.isfinite(exact) & ~overflows
    assert units[ordinary].max() <= LIMITS[op]
    zero = exact == 0
    assert np.array_equal(np.signbit(found[zero]), np.signbit(exact[zero]))


def test_powers_of_two_are_exact() -> None:
    whole = np.resize(np.arange(-149, 128, dtype=np.float32), 1024)
    assert np.array_equal(compute("exp2", whole), np.ldexp(np.float32(1), whole.astype(int)))
    powers = np.ldexp(np.float32(1), whole.astype(int)).astype(np.float32)
    assert np.array_equal(compute("log2", powers), whole)


def directed(a: float, b: float, c: float, mode: int) -> float:
    """A * b + c rounded as `mode` says, by fractions; not of an exact zero."""
    exact = Fraction(a) * Fraction(b) + Fraction(c)
    negative, size = exact < 0, abs(exact)
    unit = size.numerator.bit_length() - size.denominator.bit_length() - 54
    unit = min(max(unit, -1074), 971)
    while unit < 971 and size / Fraction(2) ** unit >= 1 << 53:
        unit += 1
    kept = min(int(size / Fraction(2) ** unit), (1 << 53) - 1)
    found = math.ldexp(kept, unit)
    if Fraction(found) != size and (mode == (DOWN if negative else UP)):
        found = math.nextafter(found, math.inf)
    return -found if negative else found


def test_fma_of_f64_rounds_once_in_every_directed_mode() -> None:
    rng = np.random.default_rng(3)
    odd = [5e-324, -5e-324, 2.0**-1022, math.ldexp(2 - 2.0**-52, 1023), 1.0, -1.0, 0.0]

    def number() -> float:
        match rng.integers(4):
            case 0:
                return float(rng.choice(odd))
            case 1:
                return float(rng.standard_normal() * 2.0 ** rng.integers(-60, 60))
            case _:
                return math.ldexp(rng.uniform(-1, 1), int(rng.integers(-1073, 1024)))

    count = 0
    for _ in range(4000):
        a, b, c = number(), number(), number()
        if rng.integers(3) == 0 and abs(a * b) < 1e308:
            c = math.nextafter(-(a * b), 0.0)
        if Fraction(a) * Fraction(b) + Fraction(c) == 0:
            continue
        for mode in (ZERO, DOWN, UP):
            found, wanted = fma_wide(a, b, c, mode), directed(a, b, c, mode)
            assert found == wanted, (a, b, c, mode)
        count += 1
    assert count > 3000


def test_fma_of_f64_gives_zeros_their_sign() -> None:
    for a, b, c, mode, sign in (
        (2.0, 3.0, -6.0, UP, 1.0),
        (2.0, 3.0, -6.0, DOWN, -1.0),
        (-0.0, 3.0, 0.0, DOWN, -1.0),
        (-0.0, 3.0, -0.0, UP, -1.0),
        (0.0, 3.0, 0.0, DOWN, 1.0),
    ):
        found = fma_wide(a, b, c, mode)
        assert found == 0.0 and math.copysign(1.0, found) == sign, (a, b, c, mode)
    assert math.isnan(fma_wide(math.inf, 0.0, 1.0, UP))
    assert fma_wide(math.inf, -1.0, 1.0, UP) == -math.inf
