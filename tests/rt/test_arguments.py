"""Arrays of every library as pointer, extents and strides."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

from reftile.ir.diagnostics import ReftileError
from reftile.rt.arguments import check_dtype, is_torch, read_array
from tests.rt.fake_driver import Array


class Shared:
    """An array known through DLPack alone, such as JAX's; its memory is NumPy's."""

    def __init__(
        self, array: Any, device: tuple[int, int] = (2, 1), versioned: bool = True
    ) -> None:
        self.array, self.device, self.versioned = array, device, versioned

    def __dlpack_device__(self) -> tuple[int, int]:
        return self.device

    def __dlpack__(self, **settings: Any) -> Any:
        if settings and not self.versioned:
            raise TypeError("unexpected keyword argument")
        return self.array.__dlpack__(**settings)


def rule_of(value: Any) -> str:
    with pytest.raises(ReftileError) as error:
        read_array(value, "`x`")
    assert "`x`" in error.value.diagnosis.message
    return error.value.diagnosis.rule


def test_the_array_interface_without_strides_is_dense() -> None:
    found = read_array(Array(64))
    assert (found.address, found.dtype, found.shape, found.strides) == (64, "f32", (4, 8), (8, 1))
    assert not found.read_only


def test_strides_of_the_array_interface_are_counted_in_elements() -> None:
    found = read_array(Array(64, (4, 8), "<i2", strides=(2, 8), read_only=True))
    assert (found.dtype, found.strides, found.read_only) == ("i16", (1, 4), True)


def test_an_empty_array_has_no_address() -> None:
    assert read_array(Array(0, (0, 8))).address == 0


@pytest.mark.parametrize("versioned", [False, True])
@pytest.mark.parametrize(
    ("dtype", "name"), [("f4", "f32"), ("f2", "f16"), ("i8", "i64"), ("u1", "i8"), ("?", "i1")]
)
def test_dlpack_is_read_without_any_library(versioned: bool, dtype: str, name: str) -> None:
    array = np.zeros((6, 8), dtype)[::2, 1:]
    found = read_array(Shared(array, versioned=versioned))
    assert (found.address, found.dtype) == (array.ctypes.data, name)
    assert (found.shape, found.strides, found.device) == ((3, 7), (16, 1), 1)


def test_dlpack_says_that_an_array_is_read_only() -> None:
    array = np.zeros(4, np.float32)
    array.flags.writeable = False
    assert read_array(Shared(array)).read_only


def test_bfloat16_and_narrow_floats_are_known_through_dlpack() -> None:
    torch = pytest.importorskip("torch")
    for dtype, name in ((torch.bfloat16, "bf16"), (torch.float8_e4m3fn, "f8e4m3")):
        shared = SimpleNamespace(
            __dlpack__=lambda **settings: torch.zeros(4, dtype=dtype).__dlpack__(**settings),  # noqa: B023  # pyright: ignore
            __dlpack_device__=lambda: (2, 0),
        )
        assert read_array(shared).dtype == name


@pytest.mark.parametrize(
    ("value", "rule"),
    [
        (np.zeros(4), "cuda.host_array"),
        (Shared(np.zeros(4), (1, 0)), "cuda.host_array"),
        (Shared(np.zeros(4), (10, 0)), "cuda.host_array"),
        ([1, 2], "cuda.argument"),
        (None, "cuda.argument"),
        (Array(64, (4,), ">f4"), "cuda.argument"),
        (Array(64, (4,), "<f4", strides=(6,)), "cuda.argument"),
    ],
)
def test_what_is_no_device_array_is_diagnosed(value: Any, rule: str) -> None:
    assert rule_of(value) == rule


def test_a_torch_tensor_on_the_cpu_is_refused_with_the_way_out() -> None:
    torch = pytest.importorskip("torch")
    assert is_torch(torch.zeros(4))
    assert is_torch(torch.nn.Parameter(torch.zeros(4)))
    assert not is_torch(torch)
    with pytest.raises(ReftileError) as error:
        read_array(torch.zeros(4), "`x`")
    found = error.value.diagnosis
    assert found.rule == "cuda.host_array"
    assert ".cuda()" in found.hint


@pytest.mark.parametrize(
    ("typestr", "wanted", "fits"),
    [
        ("<f4", "f32", True),
        ("<f4", "tf32", True),
        ("<f4", "f64", False),
        ("<f2", "bf16", False),
        ("<u2", "bf16", True),
        ("|u1", "f8e4m3", True),
        ("|u1", "bf16", False),
        ("<u4", "i32", True),
    ],
)
def test_element_types_must_agree_where_they_are_known(
    typestr: str, wanted: str, fits: bool
) -> None:
    array = read_array(Array(64, (4,), typestr))
    if fits:
        check_dtype(array, wanted, "`x`")
        return
    with pytest.raises(ReftileError, match="the kernel reads it as"):
        check_dtype(array, wanted, "`x`")
