"""Estimates bound the error of what they stand for, and not by much more than they must."""

from __future__ import annotations

from importlib import import_module

import ml_dtypes
import numpy as np

bounds = import_module("bounds")


def test_ulp_is_the_distance_to_the_next_number():
    for dtype in ("float16", "float32", "float64"):
        values = np.array([1.0, 1.5, 3.0, 0.1, 1e-7, 0.0]).astype(dtype)
        next_ones = np.nextafter(values, np.inf, dtype=values.dtype)
        expected = next_ones.astype(np.float64) - values.astype(np.float64)
        assert np.array_equal(bounds.ulp(values.astype(np.float64), dtype), expected)


def test_rounding_stays_within_half_a_unit_and_reaches_it():
    rng = np.random.default_rng(0)
    exact = rng.standard_normal(4000)
    found = exact.astype(ml_dtypes.bfloat16).astype(np.float64)
    allowed = bounds.estimate(exact, "float64").astype("bfloat16").error
    ratio = np.abs(found - exact) / allowed
    assert 0.9 < ratio.max() <= 1.0


def test_products_of_matrices_are_bounded():
    rng = np.random.default_rng(1)
    a, b = (rng.standard_normal((20, 20)).astype(np.float32) for _ in range(2))
    product = bounds.estimate(a) @ bounds.estimate(b)
    assert (np.abs((a @ b).astype(np.float64) - product.value) <= product.error).all()
    assert product.error.max() < 1e-4


def test_errors_go_through_functions():
    rng = np.random.default_rng(2)
    exact = rng.standard_normal(1000) * 3
    near = bounds.Estimate(exact, np.full(1000, 1e-3))
    moved = exact + 1e-3 * rng.uniform(-1, 1, 1000)
    for name, function in (("exp", np.exp), ("exp2", np.exp2)):
        found = getattr(near, name)()
        error = np.abs(function(moved) - function(exact))
        assert (error <= found.error).all()
        assert (found.error <= 1.1e-3 * found.value).all()
    positive = bounds.Estimate(np.abs(exact) + 1, near.error)
    for name, function in (("log", np.log), ("rsqrt", lambda x: x**-0.5)):
        found = getattr(positive, name)()
        error = np.abs(function(positive.value + (moved - exact)) - function(positive.value))
        assert (error <= found.error).all()


def test_a_wrong_kernel_lies_outside():
    harness, matmul = import_module("harness"), import_module("matmul")
    case = matmul.case("wrong", (20, 17, 40), (16, 16, 16), "float16")
    outcome = harness.run(case)
    assert outcome.passed
    # The k-th product left out, or the sum kept in float16.
    a, b = (case.arguments[n].astype(np.float64) for n in ("a", "b"))
    short = {"c": (a[:, 1:] @ b[1:]).astype(np.float16)}
    assert harness.compare(short, case.expected)[0] > 10
