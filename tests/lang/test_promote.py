"""Dtype promotion: the table, weak numbers, and what kernels get from them."""

from __future__ import annotations

import numpy as np
import pytest

import reftile
import reftile.lang as ct
from reftile import ReftileError
from reftile.lang.dtypes import LANGUAGE_DTYPES, as_dtype
from reftile.lang.promote import promote, promote_weak, promotion_table, weak_dtype

SHORT = {
    "b1": ct.bool_,
    "u8": ct.uint8,
    "u16": ct.uint16,
    "u32": ct.uint32,
    "u64": ct.uint64,
    "i8": ct.int8,
    "i16": ct.int16,
    "i32": ct.int32,
    "i64": ct.int64,
    "f16": ct.float16,
    "f32": ct.float32,
    "f64": ct.float64,
    "bf": ct.bfloat16,
    "tf32": ct.tfloat32,
    "e4m3": ct.float8_e4m3fn,
}
TABLE = """
      b1   u8   u16  u32  u64  i8   i16  i32  i64  f16  f32  f64  bf   tf32 e4m3
b1    b1   u8   u16  u32  u64  i8   i16  i32  i64  f16  f32  f64  bf   -    -
u8    u8   u8   u16  u32  u64  -    -    -    -    f16  f32  f64  bf   -    -
u16   u16  u16  u16  u32  u64  -    -    -    -    f16  f32  f64  bf   -    -
u32   u32  u32  u32  u32  u64  -    -    -    -    f16  f32  f64  bf   -    -
u64   u64  u64  u64  u64  u64  -    -    -    -    f16  f32  f64  bf   -    -
i8    i8   -    -    -    -    i8   i16  i32  i64  f16  f32  f64  bf   -    -
i16   i16  -    -    -    -    i16  i16  i32  i64  f16  f32  f64  bf   -    -
i32   i32  -    -    -    -    i32  i32  i32  i64  f16  f32  f64  bf   -    -
i64   i64  -    -    -    -    i64  i64  i64  i64  f16  f32  f64  bf   -    -
f16   f16  f16  f16  f16  f16  f16  f16  f16  f16  f16  f32  f64  -    -    -
f32   f32  f32  f32  f32  f32  f32  f32  f32  f32  f32  f32  f64  f32  -    -
f64   f64  f64  f64  f64  f64  f64  f64  f64  f64  f64  f64  f64  f64  -    -
bf    bf   bf   bf   bf   bf   bf   bf   bf   bf   -    f32  f64  bf   -    -
tf32  -    -    -    -    -    -    -    -    -    -    -    -    -    tf32 -
e4m3  -    -    -    -    -    -    -    -    -    -    -    -    -    -    e4m3
"""


def rows() -> list[tuple[str, str, str]]:
    head, *lines = TABLE.strip("\n").splitlines()
    return [
        (line.split()[0], column, cell)
        for line in lines
        for column, cell in zip(head.split(), line.split()[1:], strict=True)
    ]


def test_every_pair_promotes_as_the_table_says() -> None:
    found = [(a, b, promote(SHORT[a], SHORT[b])) for a, b, _ in rows()]
    assert found == [(a, b, SHORT.get(cell)) for a, b, cell in rows()]


def test_promotion_is_symmetric() -> None:
    table = promotion_table(tuple(LANGUAGE_DTYPES.values()))
    assert all(table[a, b] == table[b, a] for a, b in table)


@pytest.mark.parametrize(
    ("number", "expected"),
    [(True, "bool_"), (3, "int32"), (1 << 40, "int64"), (1 << 63, "uint64"), (0.5, "float32")],
)
def test_a_number_alone_gets_the_dtype_that_holds_it(number: float, expected: str) -> None:
    assert weak_dtype(number).name == expected


@pytest.mark.parametrize(
    ("dtype", "number", "expected"),
    [
        ("int8", 3, "int8"),
        ("float16", 3, "float16"),
        ("float16", 0.1, "float16"),
        ("int8", 0.5, "float32"),
        ("bool_", 3, "int32"),
        ("uint64", True, "uint64"),
    ],
)
def test_a_number_adapts_to_a_tile(dtype: str, number: float, expected: str) -> None:
    found = promote_weak(LANGUAGE_DTYPES[dtype], number)
    assert found is not None
    assert found.name == expected


def test_numpy_and_python_types_name_dtypes() -> None:
    assert as_dtype(np.int32) is ct.int32
    assert as_dtype(np.dtype("uint8")) is ct.uint8
    assert as_dtype(bool) is ct.bool_
    assert as_dtype("float32") is None


@reftile.kernel
def mix(x, y):
    ct.store(y, (0,), ct.load(x, (0,), (4,)) + ct.load(x, (0,), (4,)).astype(ct.uint8))


def test_operands_without_a_common_dtype_are_diagnosed() -> None:
    with pytest.raises(ReftileError) as error:
        mix.trace(np.zeros(4, np.int8), np.zeros(4, np.int8))
    assert error.value.diagnosis.rule == "lang.dtype.promote"
    assert "int8 and uint8" in str(error.value)


@reftile.kernel
def halve(x, y):
    ct.store(y, (0,), ct.load(x, (0,), (4,)) / 2)


def test_integers_divide_as_float32() -> None:
    y = np.zeros(4, np.float32)
    halve[1](np.arange(4, dtype=np.int32), y)
    assert y.tolist() == [0, 0.5, 1, 1.5]


@reftile.kernel
def floor(x, q, r, d: ct.Constant[int]):
    t = ct.load(x, (0,), (4,))
    ct.store(q, (0,), t // d)
    ct.store(r, (0,), t % d)


@pytest.mark.parametrize("divisor", [3, -3])
def test_division_and_remainder_are_those_of_python(divisor: int) -> None:
    x = np.array([-7, -1, 0, 7], np.int32)
    q, r = np.zeros_like(x), np.zeros_like(x)
    floor[1](x, q, r, divisor)
    assert q.tolist() == [v // divisor for v in x.tolist()]
    assert r.tolist() == [v % divisor for v in x.tolist()]
