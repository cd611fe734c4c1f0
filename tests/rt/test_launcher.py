"""Launchers against a driver that records what it is given; the device runs them elsewhere."""

from __future__ import annotations

import ctypes
import struct
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

from reftile.ir.diagnostics import ReftileError
from reftile.lower.host import HostPlan, PointerParameter, ScalarParameter, TensorMapParameter
from reftile.rt import driver, launcher
from reftile.rt.arguments import read_array
from reftile.rt.jit import Resources, read_log, refuse_serialised
from reftile.rt.launcher import Launcher

PLAN = HostPlan(
    "gemm",
    384,
    (2, 1, 1),
    200_000,
    (
        TensorMapParameter(
            "a_map", "a", "bfloat16", ("k", "m"), ("(k * 2)",), (64, 128), 128, "zero"
        ),
        ScalarParameter("m", "i32"),
        PointerParameter("c"),
        ScalarParameter("scale", "f32"),
    ),
    ("a", "c", "m", "k", "scale"),
    (("k % 8 == 0", "k must be a multiple of 8, found {k}"),),
)


class Recorder:
    """Stands for the driver: keeps the bytes of every parameter of every launch."""

    def __init__(self) -> None:
        self.launches: list[tuple[tuple[int, int, int], int, list[bytes]]] = []
        self.sizes = [128, 4, 8, 4]
        self.status = "ok"
        self.CUresult = SimpleNamespace(CUDA_SUCCESS="ok")

    def CUlaunchConfig(self) -> Any:
        return SimpleNamespace()

    def CUstream(self, number: int) -> int:
        return number

    def cuGetErrorString(self, status: str) -> tuple[str, bytes]:
        return "ok", b"it broke"

    def cuLaunchKernelEx(self, config: Any, handle: Any, pointers: int, extra: int) -> tuple[str]:
        addresses = (ctypes.c_void_p * len(self.sizes)).from_address(pointers)
        found = [ctypes.string_at(a or 0, n) for a, n in zip(addresses, self.sizes, strict=True)]
        grid = (config.gridDimX, config.gridDimY, config.gridDimZ)
        self.launches.append((grid, config.hStream, found))
        return (self.status,)


class Array:
    """A device array as CuPy and numba show theirs."""

    def __init__(self, address: int) -> None:
        self.__cuda_array_interface__ = {
            "data": (address, False),
            "shape": (4, 8),
            "typestr": "<f4",
            "strides": None,
        }


@pytest.fixture
def recorder(monkeypatch: pytest.MonkeyPatch) -> Recorder:
    recorder = Recorder()
    monkeypatch.setattr(driver, "bindings", lambda: recorder)
    return recorder


@pytest.fixture
def maps(monkeypatch: pytest.MonkeyPatch) -> list[tuple[Any, ...]]:
    made: list[tuple[Any, ...]] = []

    def encode(*arguments: Any) -> bytes:
        made.append(arguments)
        return struct.pack("<Q", arguments[0]).ljust(128, b"m")

    monkeypatch.setattr(launcher, "encode", encode)
    return made


def make(recorder: Recorder) -> Launcher:
    return Launcher(PLAN, SimpleNamespace(handle="handle"))  # type: ignore[arg-type]


def test_every_parameter_is_packed_where_its_pointer_says(
    recorder: Recorder, maps: list[tuple[Any, ...]]
) -> None:
    make(recorder)((16, 1, 1), [Array(4096), Array(512), 256, 64, 0.5], stream=7)
    grid, stream, (a_map, m, c, scale) = recorder.launches[0]
    assert (grid, stream) == ((16, 1, 1), 7)
    assert a_map[:8] == struct.pack("<Q", 4096)
    assert (m, c, scale) == (
        struct.pack("<i", 256),
        struct.pack("<Q", 512),
        struct.pack("<f", 0.5),
    )
    assert maps[0] == (4096, "bfloat16", (64, 256), (128,), (64, 128), 128, "zero")


def test_a_tensor_map_is_made_once_for_the_same_array(
    recorder: Recorder, maps: list[tuple[Any, ...]]
) -> None:
    launch = make(recorder)
    for m in (256, 256, 128, 256):
        launch((16, 1, 1), [Array(4096), Array(512), m, 64, 0.5])
    assert len(maps) == 2
    assert [launch[2][1] for launch in recorder.launches] == [
        struct.pack("<i", m) for m in (256, 256, 128, 256)
    ]


def test_a_failed_launch_is_diagnosed(recorder: Recorder, maps: list[tuple[Any, ...]]) -> None:
    recorder.status = "CUDA_ERROR_LAUNCH_OUT_OF_RESOURCES"
    with pytest.raises(ReftileError, match="launching `gemm` failed"):
        make(recorder)((1, 1, 1), [Array(4096), Array(512), 256, 64, 0.5])


@pytest.mark.parametrize(
    ("args", "rule"),
    [
        ([np.zeros(4), 512, 256, 64, 0.5], "cuda.host_array"),
        ([Array(4096), "x", 256, 64, 0.5], "cuda.argument"),
        ([Array(4096)], "cuda.argument"),
        ([Array(4096), Array(512), 256, 63, 0.5], "cuda.requirement"),
    ],
)
def test_wrong_arguments_are_diagnosed(
    recorder: Recorder, maps: list[tuple[Any, ...]], args: list[Any], rule: str
) -> None:
    with pytest.raises(ReftileError) as error:
        make(recorder)((1, 1, 1), args)
    assert error.value.diagnosis.rule == rule
    assert not recorder.launches


def test_strides_are_counted_in_elements() -> None:
    found = read_array(Array(64))
    assert (found.address, found.dtype, found.shape, found.strides) == (64, "f32", (4, 8), (8, 1))


def test_the_assemblers_log_is_read() -> None:
    log = """\
ptxas info    : 0 bytes gmem
ptxas info    : Function properties for gemm
    0 bytes stack frame, 48 bytes spill stores, 96 bytes spill loads
ptxas info    : (C7512) Potential Performance Loss: wgmma.mma_async instructions are serialized
ptxas info    : Used 168 registers, used 1 barriers
"""
    registers, spills, remarks = read_log(log)
    assert (registers, spills, len(remarks)) == (168, 48, 1)
    with pytest.raises(ReftileError) as error:
        refuse_serialised(Resources(registers, spills, remarks, 0.0))
    assert error.value.diagnosis.rule == "cuda.serialised"


def test_a_machine_without_a_driver_is_told_so() -> None:
    driver.bindings.cache_clear()
    try:
        driver.bindings()
    except ReftileError as error:
        assert error.diagnosis.rule in (
            "cuda.no_bindings",
            "cuda.no_driver",
            "cuda.no_device",
            "cuda.old_driver",
        )
        assert error.diagnosis.hint
