"""Which dtype an operation on two numbers computes in.

A Python number has no width until it meets something that has one (it is *weak*). The categories
are bool < int < float.

1. The higher category wins: int8 with float16 is float16.
2. In one category, a weak number takes the other's dtype: int8 with 3 is int8.
3. Alone, or in the higher category, a weak number is bool_, int32 (int64 or uint64 when it does not
   fit), or float32: int8 with 0.5 is float32.
4. Two integers of one signedness give the wider; int with uint is an error.
5. Two floats give the one that holds the other: float16 with bfloat16 is an error.
6. tfloat32 and the 8 and 4 bit formats mix with nothing: convert them.
"""

from __future__ import annotations

from reftile.lang.dtypes import (
    DType,
    bfloat16,
    bool_,
    float16,
    float32,
    int32,
    int64,
    uint64,
)

_RANK = {"bool": 0, "int": 1, "float": 2, "storage_float": 3}


def weak_dtype(number: bool | int | float) -> DType:
    """The dtype of a Python number that nothing else decides."""
    if isinstance(number, bool):
        return bool_
    if isinstance(number, float):
        return float32
    if -(1 << 31) <= number < 1 << 31:
        return int32
    return int64 if number < 1 << 63 else uint64


def promote(first: DType, second: DType) -> DType | None:
    """The common dtype of two, or None if they need an explicit conversion.

    The relation is symmetric, and `promote(x, x)` is `x`.
    """
    if first is second:
        return first
    if _RANK[first.category] == 3 or _RANK[second.category] == 3:
        return None
    if _RANK[first.category] != _RANK[second.category]:
        return max(first, second, key=lambda d: _RANK[d.category])
    if first.is_int:
        if first.signed != second.signed:
            return None
        return max(first, second, key=lambda d: d.bits)
    if {first, second} == {float16, bfloat16}:
        return None
    return max(first, second, key=lambda d: d.bits)


def promote_weak(dtype: DType, number: bool | int | float) -> DType | None:
    """The common dtype of a typed number and a Python number."""
    weak = weak_dtype(number)
    if _RANK[weak.category] > _RANK[dtype.category]:
        return weak
    return None if _RANK[dtype.category] == 3 else dtype


def promotion_table(dtypes: tuple[DType, ...]) -> dict[tuple[str, str], str | None]:
    """The common dtype of every pair, by name; the table in the documentation."""
    table: dict[tuple[str, str], str | None] = {}
    for first in dtypes:
        for second in dtypes:
            common = promote(first, second)
            table[first.name, second.name] = common.name if common is not None else None
    return table
