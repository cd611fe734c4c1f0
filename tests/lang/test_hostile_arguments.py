"""Arguments of every wrong kind at a launch: a diagnosis at the kernel, and no array is touched."""

from __future__ import annotations

from decimal import Decimal
from fractions import Fraction
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import reftile
import reftile.lang as ct
from reftile.ir.diagnostics import ReftileError


@reftile.kernel
def double(x, y):
    i = ct.bid(0)
    ct.store(y, (i,), ct.load(x, (i,), (4,)) * 2)


@reftile.kernel
def scale(x, f):
    i = ct.bid(0)
    ct.store(x, (i,), ct.load(x, (i,), (4,)) * f)


@reftile.kernel
def count(x, n):
    total = ct.zeros((), ct.float32)
    for _ in range(n):
        total = total + 1.0
    ct.store(x, (0,), ct.full((4,), 0.0, ct.float32) + total)


def numbers(size: int = 8) -> Any:
    return np.arange(size, dtype=np.float32)


def read_only() -> Any:
    array = numbers()
    array.flags.writeable = False
    return array


ARRAYS: dict[str, tuple[Any, str, str]] = {
    "big endian": (np.arange(8, dtype=">f4"), "lang.argument.dtype", "in the other order"),
    "objects": (np.arange(8).astype(object), "lang.argument.dtype", "array of object"),
    "strings": (np.array(["a"] * 8), "lang.argument.dtype", "array of <U1"),
    "records": (np.zeros(8, [("a", "f4"), ("b", "i4")]), "lang.argument.dtype", "no such elements"),
    "complex": (np.zeros(8, np.complex64), "lang.argument.dtype", "array of complex64"),
    "long double": (np.zeros(8, np.longdouble), "lang.argument.dtype", "no such elements"),
    "dates": (np.zeros(8, "M8[s]"), "lang.argument.dtype", "no such elements"),
    "rank 0": (np.array(1.0, np.float32), "lang.shape.rank", "has 0"),
    "empty": (np.zeros(0, np.float32), "make_tensor_view.positive", "found 0"),
    "rank 2": (np.zeros((2, 4), np.float32), "lang.shape.rank", "has 2"),
    "rank 40": (np.zeros((1,) * 40, np.float32), "lang.shape.rank", "has 40"),
    "backwards": (numbers()[::-1], "lang.argument.strides", "strides (-1,)"),
    "broadcast": (np.broadcast_to(np.float32(1), (8,)), "lang.argument.strides", "strides (0,)"),
    "masked": (np.ma.masked_all(8), "lang.argument.array", "its mask"),
    "odd strides": (
        np.zeros(8, [("a", "f4"), ("b", "i1")])["a"],
        "lang.argument.strides",
        "no whole elements",
    ),
    "unaligned": (
        np.frombuffer(bytearray(33), np.uint8)[1:].view(np.float32),
        "memory.misaligned",
        "not a multiple of 4",
    ),
    "list": ([1.0, 2.0], "lang.type.array", "must be an array"),
    "None": (None, "lang.type.array", "must be an array"),
    "text": ("abc", "lang.argument", "cannot be 'abc'"),
    "bytes": (b"abc", "lang.argument", "type bytes"),
    "range": (range(8), "lang.argument", "type range"),
}


@pytest.mark.parametrize("name", ARRAYS)
def test_arrays_that_cannot_be_passed(name: str) -> None:
    array, rule, said = ARRAYS[name]
    out = np.full(8, 7, np.float32)
    with pytest.raises(ReftileError) as error:
        double[(2,)](array, out)
    assert error.value.diagnosis.rule == rule
    assert said in error.value.diagnosis.message
    assert "test_hostile_arguments.py" in str(error.value)
    assert (out == 7).all()


@pytest.mark.parametrize("name", ["int4", "float4_e2m1fn"])
def test_arrays_with_four_bits_in_a_byte_are_told_what_to_do(name: str) -> None:
    ml_dtypes = pytest.importorskip("ml_dtypes")
    with pytest.raises(ReftileError, match=r"lang\.argument\.dtype"):
        double[(2,)](np.zeros(8, getattr(ml_dtypes, name)), numbers())
    if name == "float4_e2m1fn":
        with pytest.raises(ReftileError, match="unpack_from_bytes"):
            double[(2,)](np.zeros(8, ml_dtypes.float4_e2m1fn), numbers())


def test_arrays_of_every_harmless_kind_are_used_in_place(tmp_path: Path) -> None:
    class Derived(np.ndarray):
        pass

    mapped = np.memmap(tmp_path / "map", np.float32, "w+", shape=(8,))
    for out in (numbers(), numbers(16)[::2], numbers().view(Derived), mapped):
        double[(2,)](read_only(), out)
        assert out.tolist() == (numbers() * 2).tolist()
    shared = numbers()
    double[(2,)](shared, shared)
    assert shared.tolist() == (numbers() * 2).tolist()


def test_what_may_not_be_written_and_what_overlaps_is_found() -> None:
    shared, fixed = numbers(12), read_only()
    with pytest.raises(ReftileError, match=r"access\.read_only"):
        double[(2,)](numbers(), fixed)
    with pytest.raises(ReftileError, match=r"race\.between_blocks"):
        double[(2,)](shared[:8], shared[4:])
    assert fixed.tolist() == numbers().tolist()


NUMBERS: list[tuple[object, str]] = [
    (2**100, "launch.arguments"),
    (1j, "lang.argument"),
    (Decimal("1.5"), "lang.argument"),
    (Fraction(3, 2), "lang.argument"),
    (np.float64(1.5), "lang.dtype.store"),
    (np.longdouble(1.5), "lang.argument"),
    ({}, "lang.argument"),
    (len, "lang.argument"),
]


@pytest.mark.parametrize(("number", "rule"), NUMBERS)
def test_numbers_that_cannot_be_passed(number: object, rule: str) -> None:
    x = numbers()
    with pytest.raises(ReftileError) as error:
        scale[(2,)](x, number)
    assert error.value.diagnosis.rule == rule
    assert x.tolist() == numbers().tolist()


def test_nan_and_infinity_are_numbers() -> None:
    x = np.ones(8, np.float32)
    scale[(2,)](x, float("nan"))
    assert np.isnan(x).all()
    x[:] = 1
    scale[(2,)](x, 1e300)
    assert np.isposinf(x).all()


@pytest.mark.parametrize("bound", [float("nan"), 2.5, True])
def test_loop_bounds_that_are_no_integers(bound: object) -> None:
    with pytest.raises(ReftileError, match=r"lang\.range"):
        count[(1,)](numbers(4), bound)
    x = numbers(4)
    count[(1,)](x, -5)
    assert (x == 0).all()


GRIDS = [0, (-1,), 2.0, "2", None, (float("nan"),), (1, 1, 1, 1), (), (1 << 23, 1 << 23), 1 << 70]


@pytest.mark.parametrize("grid", GRIDS)
@pytest.mark.parametrize("check", [True, False])
def test_grids_that_cannot_be(grid: object, check: bool) -> None:
    with pytest.raises(ReftileError, match=r"launch\.grid"):
        reftile.launch(double, grid, (numbers(), numbers()), check=check, backend="interp")


@pytest.mark.parametrize(
    ("options", "rule"),
    [
        ({"schedule": "fast"}, "launch.schedule"),
        ({"schedule": []}, "launch.schedule"),
        ({"seed": "x"}, "launch.schedule"),
        ({"backend": "gpu"}, "launch.backend"),
        ({"backend": 3}, "launch.backend"),
    ],
)
def test_options_that_do_not_exist(options: Any, rule: str) -> None:
    with pytest.raises(ReftileError) as error:
        reftile.launch(double, 2, (numbers(), numbers()), **options)
    assert error.value.diagnosis.rule == rule


@pytest.mark.parametrize(
    ("kernel", "args", "rule"),
    [
        (None, (), "launch.kernel"),
        (print, (), "launch.kernel"),
        (double, None, "launch.arguments"),
        (double, numbers(), "launch.arguments"),
        (double, (numbers(),), "lang.arguments"),
        (double, (numbers(), numbers(), 1), "lang.arguments"),
    ],
)
def test_kernels_and_arguments_that_are_none(kernel: object, args: object, rule: str) -> None:
    with pytest.raises(ReftileError) as error:
        reftile.launch(kernel, 2, args)
    assert error.value.diagnosis.rule == rule


def test_tensors_of_torch_that_cannot_be_used_in_place() -> None:
    torch: Any = pytest.importorskip("torch")
    watched = torch.arange(8.0, requires_grad=True)
    out = numbers()
    double[(2,)](watched, out)
    assert out.tolist() == (numbers() * 2).tolist()
    with pytest.raises(ReftileError, match=r"access\.read_only"):
        double[(2,)](numbers(), watched)
    assert watched.tolist() == numbers().tolist()
    for tensor in (torch.eye(3).to_sparse(), torch._neg_view(torch.arange(8.0))):
        with pytest.raises(ReftileError, match="cannot be used in place"):
            double[(2,)](tensor, numbers())
    with pytest.raises(ReftileError, match=r"lang\.argument\.device"):
        double[(2,)](torch.empty(8, device="meta"), numbers())
    with pytest.raises(ReftileError, match=r"lang\.argument\.strides"):
        double[(2,)](torch.zeros(1).expand(8), numbers())
