"""Launching: what may be passed, where results go, and how mistakes are told."""

from __future__ import annotations

import warnings
from typing import Any

import numpy as np
import pytest

import reftile
import reftile.lang as ct
from reftile import KernelFunction, ReftileError
from reftile.ir.print import show


@reftile.kernel
def add(a, b, c, tile: ct.Constant[int]):
    i = ct.bid(0)
    ct.store(c, (i,), ct.load(a, (i,), (tile,)) + ct.load(b, (i,), (tile,)))


def rule_of(call: Any) -> str:
    with pytest.raises(ReftileError) as error:
        call()
    return error.value.diagnosis.rule


def operands() -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    a = np.arange(32, dtype=np.float32)
    return a, a * 2, np.zeros_like(a)


def test_results_land_in_the_arrays_of_the_caller() -> None:
    a, b, c = operands()
    add[(4,)](a, b, c, tile=8)
    assert np.array_equal(c, a + b)


def test_launch_takes_our_order_and_that_of_cutile() -> None:
    a, b, c = operands()
    reftile.launch(add, 4, (a, b, c, 8))
    assert np.array_equal(c, a + b)
    c[:] = 0
    ct.launch(None, (4, 1, 1), add, (a, b, c, 8))
    assert np.array_equal(c, a + b)


@pytest.mark.parametrize("check", [True, False])
@pytest.mark.parametrize("schedule", ["program", "adversarial"])
def test_both_paths_and_all_schedules_agree(check: bool, schedule: str) -> None:
    a, b, c = operands()
    reftile.launch(add, 4, (a, b, c, 8), check=check, schedule=schedule, seed=3)
    assert np.array_equal(c, a + b)


@reftile.kernel
def take_turns(lock, out):
    while ct.atomic_cas(lock, 0, 0, 1, memory_order=ct.MemoryOrder.ACQUIRE) == 1:
        pass
    ct.store(out, (0,), ct.load(out, (0,), (1,)) + 1)
    ct.atomic_xchg(lock, 0, 0, memory_order=ct.MemoryOrder.RELEASE)


def test_what_cannot_run_unchecked_runs_checked_and_says_why() -> None:
    lock, out = np.zeros(1, np.int32), np.zeros(1, np.int32)
    with pytest.warns(reftile.UncheckedFallback, match="runs checked although check=False"):
        reftile.launch(take_turns, 3, (lock, out), check=False, backend="interp")
    assert out[0] == 3
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        reftile.launch(take_turns, 3, (lock, out), check=True)


def test_strided_arrays_are_passed_without_copying() -> None:
    a, b, _ = operands()
    c = np.zeros((32, 3), np.float32)
    add[4](a[::-1].copy(), b, c[:, 1], 8)
    assert np.array_equal(c[:, 1], a[::-1] + b)
    assert not c[:, 0].any()


class OnlyDLPack:
    """An array that speaks DLPack and nothing else."""

    def __init__(self, array: np.ndarray) -> None:
        self.array = array

    def __dlpack__(self, **options: Any) -> Any:
        return self.array.__dlpack__(**options)

    def __dlpack_device__(self) -> Any:
        return self.array.__dlpack_device__()


def test_arrays_may_come_by_dlpack() -> None:
    a, b, c = operands()
    add[4](OnlyDLPack(a), OnlyDLPack(b), c, 8)
    assert np.array_equal(c, a + b)


def test_a_torch_tensor_is_used_in_place() -> None:
    torch = pytest.importorskip("torch")
    a = torch.arange(32, dtype=torch.bfloat16)
    c = torch.zeros(32, dtype=torch.bfloat16)
    add[4](a, a, c, 8)
    assert torch.equal(c, a + a)


@pytest.mark.parametrize(
    ("make", "rule"),
    [
        (lambda a: a[::-1], "lang.argument.strides"),
        (lambda a: np.broadcast_to(a[:1], (32,)), "lang.argument.strides"),
        (lambda a: a.astype(np.complex64), "lang.argument.dtype"),
        (lambda a: "text", "lang.argument"),
        (lambda a: 1.5, "lang.type.array"),
    ],
)
def test_what_cannot_be_an_array_is_diagnosed(make: Any, rule: str) -> None:
    a, b, c = operands()
    assert rule_of(lambda: add[4](make(a), b, c, 8)) == rule


def test_an_array_that_may_not_be_written_is_diagnosed() -> None:
    a, b, c = operands()
    c.flags.writeable = False
    with pytest.raises(ReftileError) as error:
        add[4](a, b, c, 8)
    assert "c" in error.value.diagnosis.message
    assert not c.any()


def test_wrong_launches_are_diagnosed() -> None:
    a, b, c = operands()
    assert rule_of(lambda: reftile.launch(add, (0,), (a, b, c, 8))) == "launch.grid"
    assert rule_of(lambda: reftile.launch(add, (1, 1, 1, 1), (a, b, c, 8))) == "launch.grid"
    assert rule_of(lambda: reftile.launch(add, 4, (a, b, c))) == "lang.arguments"
    assert rule_of(lambda: reftile.launch(operands, 4, ())) == "launch.kernel"
    unknown = lambda: reftile.launch(add, 4, (a, b, c, 8), backend="none")  # noqa: E731
    assert rule_of(unknown) == "launch.backend"


def text(kernel: KernelFunction, *args: object) -> str:
    return show(kernel.trace(*args))


def test_promises_are_true_facts_about_the_arguments() -> None:
    a, b, c = operands()
    aligned, shifted = text(add, a, b, c, 8), text(add, a[1:], b[1:], c[1:], 8)
    assert "assume %a {div_by = 16}" in aligned
    assert "assume %a_shape0 {div_by = 16}" in aligned
    assert "assume %a" not in shifted


def test_unit_strides_are_part_of_the_type_and_others_are_arguments() -> None:
    a, b, c = operands()
    wide = np.zeros((32, 2), np.float32)
    assert "strides=[1]" in text(add, a, b, c, 8)
    strided = text(add, wide[:, 0], b, c, 8)
    assert "%a_stride0: tile<i32>" in strided
    assert "strides=[?]" in strided


@reftile.kernel
def first_extent(x: ct.IndexedWithInt64, out):
    ct.scatter(out, 0, x.shape[0])


def test_annotations_choose_the_width_of_extents() -> None:
    out = np.zeros(1, np.int64)
    assert "%x_shape0: tile<i64>" in text(first_extent, np.zeros(3), out)
    first_extent[1](np.zeros(3), out)
    assert out[0] == 3


def test_access_modes_are_written_on_the_arguments() -> None:
    a, b, c = operands()
    found = text(add, a, b, c, 8)
    assert found.count('access = "read_only"') == 2
    assert found.count('access = "write_only"') == 1


def test_hints_reach_the_kernel_and_change_nothing_else() -> None:
    hinted = reftile.kernel(num_ctas=ct.ByTarget(sm_100=2, default=1), occupancy=2)(add.function)
    a, b, c = operands()
    assert hinted.trace(a, b, c, 8).attributes["occupancy"] == 2
    assert hinted.replace_hints(occupancy=4).trace(a, b, c, 8).attributes["occupancy"] == 4
