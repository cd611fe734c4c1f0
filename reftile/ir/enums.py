"""Enumerations, classes of dtypes, accuracy limits, generated from spec/."""

# ruff: noqa: E501, RUF100
from __future__ import annotations

from typing import Any

ENUMS: dict[str, dict[str, int]] = {
    "rounding": {
        "nearest_even": 0,
        "zero": 1,
        "negative_inf": 2,
        "positive_inf": 3,
        "approx": 4,
        "full": 5,
        "nearest_int_to_zero": 6,
        "nearest_away": 7,
    },
    "overflow": {"none": 0, "nsw": 1, "nuw": 2, "nw": 3},
    "signedness": {"unsigned": 0, "signed": 1},
    "comparison": {
        "equal": 0,
        "not_equal": 1,
        "less_than": 2,
        "less_than_or_equal": 3,
        "greater_than": 4,
        "greater_than_or_equal": 5,
    },
    "comparison_ordering": {"unordered": 0, "ordered": 1},
    "memory_ordering": {"weak": 0, "relaxed": 1, "acquire": 2, "release": 3, "acq_rel": 4},
    "memory_scope": {"tl_blk": 0, "device": 1, "sys": 2},
    "atomic_mode": {
        "and": 0,
        "or": 1,
        "xor": 2,
        "add": 3,
        "addf": 4,
        "max": 5,
        "min": 6,
        "umax": 7,
        "umin": 8,
        "xchg": 9,
    },
    "padding": {"zero": 0, "neg_zero": 1, "nan": 2, "pos_inf": 3, "neg_inf": 4},
}
"""The values of each enumeration with their bytecode numbers."""

CLASSES: dict[str, tuple[str, ...]] = {
    "arithmetic_float": ("f16", "bf16", "f32", "f64"),
    "storage_float": ("tf32", "f8e4m3", "f8e5m2", "f8e4m3fnuz", "f8e5m2fnuz", "f8e8m0", "f4e2m1"),
    "float": (
        "f16",
        "bf16",
        "f32",
        "f64",
        "tf32",
        "f8e4m3",
        "f8e5m2",
        "f8e4m3fnuz",
        "f8e5m2fnuz",
        "f8e8m0",
        "f4e2m1",
    ),
    "int": ("i1", "i8", "i16", "i32", "i64"),
    "any_int": ("i1", "i4", "i8", "i16", "i32", "i64"),
    "index": ("i8", "i16", "i32", "i64"),
    "number": (
        "i1",
        "i4",
        "i8",
        "i16",
        "i32",
        "i64",
        "f16",
        "bf16",
        "f32",
        "f64",
        "tf32",
        "f8e4m3",
        "f8e5m2",
        "f8e4m3fnuz",
        "f8e5m2fnuz",
        "f8e8m0",
        "f4e2m1",
    ),
    "element": (
        "i1",
        "i4",
        "i8",
        "i16",
        "i32",
        "i64",
        "f16",
        "bf16",
        "f32",
        "f64",
        "tf32",
        "f8e4m3",
        "f8e5m2",
        "f8e4m3fnuz",
        "f8e5m2fnuz",
        "f8e8m0",
        "f4e2m1",
        "pointer",
    ),
}
"""The element types of each class that records name."""

ACCURACY: dict[str, dict[str, Any]] = {}
"""The accuracy classes: limits in ulp of the result type."""
