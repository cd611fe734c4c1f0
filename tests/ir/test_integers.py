import math

import numpy as np
import pytest

from reftile.ir import integers
from reftile.ir.dtypes import I1, I4, I8, I16, I32, I64, INTEGERS, DType
from reftile.ir.integers import (
    abs_int,
    add_int,
    add_overflows,
    compare_int,
    div_int,
    extend_int,
    max_int,
    min_int,
    mul_int,
    mul_overflows,
    mulhi_int,
    neg_int,
    neg_overflows,
    rem_int,
    shift_out_of_range,
    shl_int,
    shl_overflows,
    shr_int,
    sub_int,
    sub_overflows,
    to_wide,
    truncate_int,
    truncate_overflows,
    wrap,
)


def pairs(dtype: DType) -> tuple[list[int], list[int]]:
    """Return unsigned codes: every pair up to i4, edges with edges and random ones above."""
    if dtype.bits <= 4:
        codes = range(2**dtype.bits)
        return [a for a in codes for _ in codes], [b for _ in codes for b in codes]
    top, size = 2 ** (dtype.bits - 1), 2**dtype.bits
    edges = [0, 1, 2, 3, 7, dtype.bits - 1, dtype.bits, top - 1, top, top + 1, size - 2, size - 1]
    edges += [math.isqrt(size), math.isqrt(size) - 1, math.isqrt(top), size // 3]
    rng = np.random.default_rng(dtype.bits)
    random = [int.from_bytes(rng.bytes(dtype.bits // 8), "little") for _ in range(300)]
    lhs = [a for a in edges for _ in edges] + random
    rhs = [b for _ in edges for b in edges] + random[150:] + [r >> 5 for r in random[:150]]
    return lhs, rhs


def carried(codes: list[int], dtype: DType) -> np.ndarray:
    return wrap(np.array(codes, np.uint64), dtype)


def read(code: int, dtype: DType, signed: bool) -> int:
    code %= 2**dtype.bits
    return code - 2**dtype.bits if signed and code >= 2 ** (dtype.bits - 1) else code


def fits(value: int, dtype: DType, signed: bool) -> bool:
    return read(value, dtype, signed) == value


def codes_of(values: np.ndarray, dtype: DType) -> list[int]:
    assert values.dtype == dtype.carrier
    return to_wide(values, dtype, signed=False).tolist()


@pytest.mark.parametrize("dtype", INTEGERS, ids=str)
@pytest.mark.parametrize("name", ["add", "sub", "mul"])
def test_results_wrap_and_overflow_is_told(dtype, name):
    lhs, rhs = pairs(dtype)
    operation = {
        "add": lambda a, b: a + b,
        "sub": lambda a, b: a - b,
        "mul": lambda a, b: a * b,
    }[name]
    function = {"add": add_int, "sub": sub_int, "mul": mul_int}[name]
    overflows = {"add": add_overflows, "sub": sub_overflows, "mul": mul_overflows}[name]
    left, right = carried(lhs, dtype), carried(rhs, dtype)
    expected = [operation(a, b) % 2**dtype.bits for a, b in zip(lhs, rhs, strict=True)]
    assert codes_of(function(left, right, dtype), dtype) == expected
    for signed in (True, False):
        masks = [
            not fits(operation(read(a, dtype, signed), read(b, dtype, signed)), dtype, signed)
            for a, b in zip(lhs, rhs, strict=True)
        ]
        assert overflows(left, right, dtype, signed).tolist() == masks


@pytest.mark.parametrize("dtype", INTEGERS, ids=str)
@pytest.mark.parametrize("signed", [True, False])
def test_the_high_half_of_a_product_is_exact(dtype, signed):
    lhs, rhs = pairs(dtype)
    expected = [
        (read(a, dtype, signed) * read(b, dtype, signed) >> dtype.bits) % 2**dtype.bits
        for a, b in zip(lhs, rhs, strict=True)
    ]
    result = mulhi_int(carried(lhs, dtype), carried(rhs, dtype), dtype, signed)
    assert codes_of(result, dtype) == expected


@pytest.mark.parametrize("dtype", INTEGERS, ids=str)
@pytest.mark.parametrize("signed", [True, False])
def test_division_rounds_as_asked(dtype, signed):
    lhs, rhs = pairs(dtype)
    left, right = carried(lhs, dtype), carried(rhs, dtype)
    numbers = [
        (read(a, dtype, signed), read(b, dtype, signed)) for a, b in zip(lhs, rhs, strict=True)
    ]

    def quotient(a: int, b: int, rounding: str) -> int:
        if b == 0:
            return 0
        floor, ceiling = a // b, -(-a // b)
        if rounding == "zero":
            return floor if (a < 0) == (b < 0) or a == 0 else ceiling
        return floor if rounding == "negative_inf" else ceiling

    for rounding in ("zero", "negative_inf", "positive_inf"):
        exact = [quotient(a, b, rounding) for a, b in numbers]
        result, invalid = div_int(left, right, dtype, signed, rounding)
        assert codes_of(result, dtype) == [q % 2**dtype.bits for q in exact]
        assert invalid.tolist() == [
            b == 0 or (signed and b == -1 and a == dtype.signed_min) for a, b in numbers
        ]
    remainders = [0 if b == 0 else a - b * quotient(a, b, "zero") for a, b in numbers]
    result, invalid_remainder = rem_int(left, right, dtype, signed)
    assert codes_of(result, dtype) == [r % 2**dtype.bits for r in remainders]
    assert (invalid_remainder == invalid).all()


@pytest.mark.parametrize("dtype", INTEGERS, ids=str)
def test_shifts_move_bits(dtype):
    values, _ = pairs(dtype)
    size = 2**dtype.bits
    amounts = [k for k in (0, 1, 2, 3, 7, dtype.bits - 1, dtype.bits, 63, 64) if k < size]
    amounts.append(size - 1)
    for amount in amounts:
        left, right = carried(values, dtype), carried([amount] * len(values), dtype)
        out = amount >= dtype.bits
        assert shift_out_of_range(right, dtype).tolist() == [out] * len(values)
        shifted = [0 if out else (v << amount) % size for v in values]
        assert codes_of(shl_int(left, right, dtype), dtype) == shifted
        for signed in (True, False):
            count = min(amount, dtype.bits)
            expected = [(read(v, dtype, signed) >> count) % size for v in values]
            assert codes_of(shr_int(left, right, dtype, signed), dtype) == expected
            lost = [
                out or not fits(read(v, dtype, signed) << amount, dtype, signed) for v in values
            ]
            assert shl_overflows(left, right, dtype, signed).tolist() == lost


@pytest.mark.parametrize("dtype", INTEGERS, ids=str)
@pytest.mark.parametrize("signed", [True, False])
def test_order_depends_on_the_reading(dtype, signed):
    lhs, rhs = pairs(dtype)
    left, right = carried(lhs, dtype), carried(rhs, dtype)
    numbers = [
        (read(a, dtype, signed), read(b, dtype, signed)) for a, b in zip(lhs, rhs, strict=True)
    ]
    for predicate in ("eq", "ne", "lt", "le", "gt", "ge"):
        expected = [getattr(a, f"__{predicate}__")(b) for a, b in numbers]
        assert compare_int(left, right, dtype, predicate, signed).tolist() == expected
    for function, chooser in ((max_int, max), (min_int, min)):
        result = to_wide(function(left, right, dtype, signed), dtype, signed).tolist()
        assert result == [chooser(pair) for pair in numbers]


@pytest.mark.parametrize("dtype", INTEGERS, ids=str)
def test_negation_and_magnitude_wrap_at_the_least_value(dtype):
    values, _ = pairs(dtype)
    array, size = carried(values, dtype), 2**dtype.bits
    assert codes_of(neg_int(array, dtype), dtype) == [-v % size for v in values]
    assert neg_overflows(array, dtype, True).tolist() == [v == size // 2 for v in values]
    assert neg_overflows(array, dtype, False).tolist() == [v != 0 for v in values]
    magnitudes = [abs(read(v, dtype, True)) for v in values]
    assert codes_of(abs_int(array, dtype), dtype) == magnitudes


def test_widths_change_by_extension_and_truncation():
    order = (I1, I4, I8, I16, I32, I64)
    for source in order:
        values, _ = pairs(source)
        array = carried(values, source)
        for target in order[order.index(source) + 1 :]:
            for signed in (True, False):
                wide = extend_int(array, source, target, signed)
                expected = [read(v, source, signed) for v in values]
                assert to_wide(wide, target, signed).tolist() == expected
        for target in order[: order.index(source)]:
            narrow = truncate_int(array, source, target)
            assert codes_of(narrow, target) == [v % 2**target.bits for v in values]
            for signed in (True, False):
                lost = [not fits(read(v, source, signed), target, signed) for v in values]
                assert truncate_overflows(array, source, target, signed).tolist() == lost


def test_one_bit_reads_as_minus_one_or_one():
    bits = np.array([True, False])
    assert to_wide(bits, I1, signed=True).tolist() == [-1, 0]
    assert to_wide(bits, I1, signed=False).tolist() == [1, 0]


def test_unsigned_readings_keep_all_64_bits():
    value = np.array([-1], np.int64)
    assert to_wide(value, I64, signed=False).tolist() == [2**64 - 1]
    assert compare_int(value, np.array([2**53], np.int64), I64, "gt", signed=False).all()


def test_scalars_never_warn():
    least = np.array(-(2**63), np.int64)
    with np.errstate(all="raise"):
        assert add_int(least, least, I64).shape == ()
        assert mul_int(least, least, I64) == 0
        assert neg_int(least, I64) == least
        assert div_int(least, np.array(-1, np.int64), I64, True)[1]
        assert div_int(least, np.array(0, np.int64), I64, True)[0] == 0
        assert add_int(np.array(7, np.int8), np.array(1, np.int8), I4) == -8
        assert isinstance(integers.sub_overflows(least, least, I64, True), np.ndarray)
