"""Descriptions of arrays for the copy engine."""

from __future__ import annotations

import ctypes
from typing import Any

import pytest

from reftile.ir.diagnostics import ReftileError
from reftile.rt.tensor_map import encode
from tests.rt.fake_driver import FakeDriver, Names


class Described:
    """What the driver fills in."""

    def __init__(self) -> None:
        self.bytes = ctypes.create_string_buffer(b"map", 128)

    def getPtr(self) -> int:
        return ctypes.addressof(self.bytes)


@pytest.fixture
def calls(fake: FakeDriver) -> list[tuple[Any, ...]]:
    """The calls of an encoder that refuses what the driver's was seen to refuse."""
    found: list[tuple[Any, ...]] = []

    def refuse_or_take(kind: Any, rank: int, address: int, *lists: Any) -> tuple[Any, ...]:
        extents, strides, box, steps = lists[:4]
        found.append((rank, extents, strides, box))
        is_right = strides and len(extents) == len(box) == len(steps) == rank
        if not is_right:
            return (fake.CUresult.CUDA_ERROR_INVALID_VALUE,)
        return fake.CUresult.CUDA_SUCCESS, Described()

    fake.instead["cuTensorMapEncodeTiled"] = refuse_or_take
    for name in ("DataType", "Swizzle", "Interleave", "L2promotion", "FloatOOBfill"):
        setattr(fake, f"CUtensorMap{name}", Names())
    for name in ("cuuint64_t", "cuuint32_t"):
        setattr(fake, name, int)
    return found


def test_arrays_of_one_axis_have_a_list_of_strides_too(calls: list[tuple[Any, ...]]) -> None:
    made = encode(4096, "int32", (8,), (), (4,), 0, "zero", "x")
    assert made == b"map".ljust(128, b"\0")
    assert encode(4096, "float32", (8, 3), (32,), (4, 2), 0, "zero") == made
    assert [(rank, extents, box) for rank, extents, _, box in calls] == [
        (1, [8], [4]),
        (2, [8, 3], [4, 2]),
    ]
    assert calls[1][2] == [32]


@pytest.mark.parametrize(
    ("address", "extents", "strides", "said"),
    [
        (4100, (8,), (), "begins at"),
        (4096, (8, 3), (36,), "stride of 36"),
        (4096, (8, 0), (32,), "no elements along axis 0"),
    ],
)
@pytest.mark.usefixtures("calls")
def test_what_the_copy_engine_cannot_take_is_said(
    address: int, extents: tuple[int, ...], strides: tuple[int, ...], said: str
) -> None:
    with pytest.raises(ReftileError, match=said):
        encode(address, "float32", extents, strides, (4, 2)[: len(extents)], 0, "zero", "x")
