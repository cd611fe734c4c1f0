import itertools
import math

import numpy as np
import pytest

from reftile.ir.comparison import compare, maximum, minimum, total_order_key
from reftile.ir.dtypes import BF16, F16, F32, F64
from reftile.ir.integers import Predicate
from tests.ir.float_oracle import assert_same

POINTS = (-math.inf, -1.0, -0.0, 0.0, 2.0**-130, 1.0, math.inf, math.nan)


def pairs(dtype=F32):
    rows = np.array(list(itertools.product(POINTS, repeat=2))).astype(dtype.carrier)
    return rows[:, 0], rows[:, 1]


@pytest.mark.parametrize("dtype", [F16, BF16, F32, F64], ids=str)
def test_extremes_order_zeros_and_skip_nan(dtype):
    lhs, rhs = pairs(dtype)
    # POINTS is in ascending order, so positions compare as the numbers should.
    place = {(p, math.copysign(1, p)): i for i, p in enumerate(POINTS) if p == p}

    def pick(chooser, a, b, propagate):
        if a != a or b != b:
            return math.nan if propagate else (b if a != a else a)
        return chooser((a, b), key=lambda v: place[v, math.copysign(1, v)])

    for chooser, function in ((max, maximum), (min, minimum)):
        for propagate in (False, True):
            expected = [
                pick(chooser, a, b, propagate)
                for a, b in zip(lhs.tolist(), rhs.tolist(), strict=True)
            ]
            result = function(lhs, rhs, dtype, propagate_nan=propagate)
            assert result.dtype == dtype.carrier
            assert_same(result, np.array(expected), lhs, rhs)


def test_extremes_give_the_canonical_nan():
    strange = np.array([0xFFC12345], np.uint32).view(np.float32)
    assert maximum(strange, strange, F32).view(np.uint32)[0] == 0x7FC00000
    assert minimum(strange, np.array(1, np.float32), F32, True).view(np.uint32)[0] == 0x7FC00000


def test_extremes_flush_subnormals():
    tiny = np.array(2.0**-130, np.float32)
    assert_same(maximum(-tiny, -tiny * 2, F32, flush_to_zero=True), np.array(-0.0))
    assert_same(minimum(tiny, np.array(1, np.float32), F32, flush_to_zero=True), np.array(0.0))
    with pytest.raises(ValueError, match="f64"):
        maximum(np.array(1, np.float64), np.array(2, np.float64), F64, flush_to_zero=True)


def test_comparisons_with_nan_are_not_ordered():
    lhs, rhs = pairs()
    unordered = np.isnan(lhs) | np.isnan(rhs)
    operators: dict[Predicate, np.ufunc] = {
        "eq": np.equal,
        "ne": np.not_equal,
        "lt": np.less,
        "le": np.less_equal,
        "gt": np.greater,
        "ge": np.greater_equal,
    }
    for predicate, function in operators.items():
        plain = function(lhs, rhs)
        assert (compare(lhs, rhs, predicate) == (plain & ~unordered)).all()
        assert (compare(lhs, rhs, predicate, ordered=False) == (plain | unordered)).all()
    assert compare(lhs, rhs, "ne", ordered=False)[unordered].all()


def test_total_order_sorts_all_bit_patterns():
    for kind in (np.float32, np.float64):
        points = np.array([-math.nan, *POINTS[:-1], math.nan]).astype(kind)
        keys = total_order_key(points)
        assert (np.diff(keys) > 0).all()


def test_total_order_counts_units_in_the_last_place():
    values = np.array([1.0, -2.5, 3e38], np.float32)
    steps = total_order_key(np.nextafter(values, np.float32(np.inf))) - total_order_key(values)
    assert steps.tolist() == [1, 1, 1]
