"""Launchers against a driver that records what it is given; the device runs them elsewhere."""

from __future__ import annotations

import struct
import threading
from dataclasses import replace
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

from reftile.ir.diagnostics import ReftileError
from reftile.lower.host import (
    ArrayArgument,
    HostPlan,
    PointerParameter,
    ScalarParameter,
    TensorMapParameter,
)
from reftile.rt import launcher
from reftile.rt.arguments import DeviceArray
from reftile.rt.jit import Resources, read_log, refuse_serialised
from reftile.rt.launcher import Launcher
from reftile.rt.parameters import check_extents
from tests.rt.fake_driver import Array, FakeDriver

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
    (ArrayArgument("a", "bf16", written=False), ArrayArgument("c", "f32")),
)
SIZES = [128, 4, 8, 4]


def bf16(address: int, shape: tuple[int, ...] = (256, 64), **settings: Any) -> Array:
    """An array as a library shows it that has no name for bfloat16."""
    return Array(address, shape, "<u2", **settings)


@pytest.fixture
def maps(monkeypatch: pytest.MonkeyPatch, fake: FakeDriver) -> list[tuple[Any, ...]]:
    fake.sizes = SIZES
    fake.context = 1
    made: list[tuple[Any, ...]] = []

    def encode(*arguments: Any) -> bytes:
        made.append(arguments)
        return struct.pack("<Q", arguments[0]).ljust(128, b"m")

    monkeypatch.setattr(launcher, "encode", encode)
    return made


def make(plan: HostPlan = PLAN) -> Launcher:
    resources = Resources(168, 0, (), 0.0)
    return Launcher(plan, SimpleNamespace(handle="handle", resources=resources))  # type: ignore[arg-type]


def rule_of(launch: Launcher, *given: Any) -> str:
    with pytest.raises(ReftileError) as error:
        launch(*given)
    return error.value.diagnosis.rule


def test_every_parameter_is_packed_where_its_pointer_says(
    fake: FakeDriver, maps: list[tuple[Any, ...]]
) -> None:
    make()((16, 1, 1), [bf16(4096), Array(512), 256, 64, 0.5], stream=7)
    (launch,) = fake.launches
    a_map, m, c, scale = launch.parameters
    assert (launch.grid, launch.stream, launch.handle) == ((16, 1, 1), 7, "handle")
    assert a_map == struct.pack("<Q", 4096).ljust(128, b"m")
    assert (m, c, scale) == (
        struct.pack("<i", 256),
        struct.pack("<Q", 512),
        struct.pack("<f", 0.5),
    )
    assert maps[0] == (4096, "bfloat16", (64, 256), (128,), (64, 128), 128, "zero", "a")


def test_a_tensor_map_is_made_once_for_the_same_array(
    fake: FakeDriver, maps: list[tuple[Any, ...]]
) -> None:
    launch = make()
    for m in (256, 256, 128, 256):
        launch((16, 1, 1), [bf16(4096), Array(512), m, 64, 0.5])
    assert len(maps) == 2
    assert [launch.parameters[1] for launch in fake.launches] == [
        struct.pack("<i", m) for m in (256, 256, 128, 256)
    ]


def test_arguments_of_other_kinds_get_a_function_of_their_own(
    fake: FakeDriver, maps: list[tuple[Any, ...]]
) -> None:
    class Other(Array):
        pass

    launch = make()
    for c in (Array(512), Other(1024), 2048, Array(512), Other(1024)):
        launch((2,), [bf16(4096), c, 256, 64, 0.5])
    found = [struct.unpack("<Q", launch.parameters[2])[0] for launch in fake.launches]
    assert found == [512, 1024, 2048, 512, 1024]


def test_torch_tensors_are_read_by_their_own_attributes(
    fake: FakeDriver, maps: list[tuple[Any, ...]], monkeypatch: pytest.MonkeyPatch
) -> None:
    torch = pytest.importorskip("torch")
    monkeypatch.setattr(
        launcher,
        "read_array",
        lambda value, name: SimpleNamespace(  # pyright: ignore
            address=value.data_ptr(),
            dtype={
                torch.float32: "f32",
                torch.float16: "f16",
                torch.bfloat16: "bf16",
                torch.int32: "i32",
                torch.uint32: "i32",
            }[value.dtype],
            shape=(),
            strides=(),
            owner=value,
            device=0,
            read_only=False,
            bytes_behind=None,
        ),
    )
    launch = make()
    a, c = torch.zeros(256, 64, dtype=torch.bfloat16), torch.zeros(4)
    launch((2,), [a, c, 256, 64, 0.5])
    assert struct.unpack("<Q", fake.launches[0].parameters[2])[0] == c.data_ptr()
    assert rule_of(launch, (2,), [a.half(), c, 256, 64, 0.5]) == "cuda.dtype"
    assert rule_of(launch, (2,), [a, c.bfloat16(), 256, 64, 0.5]) == "cuda.dtype"
    counted = make(replace(PLAN, arrays=(PLAN.arrays[0], ArrayArgument("c", "i32"))))
    for dtype in (torch.int32, torch.uint32):
        counted((2,), [a, c.view(dtype), 256, 64, 0.5])
    del fake.launches[-2:]
    assert rule_of(counted, (2,), [a, c, 256, 64, 0.5]) == "cuda.dtype"
    # Whatever came between, the right kinds still work, and so do others that fit.
    launch((2,), [a, 512, 256, 64, 0.5])
    launch((2,), [a, c, 256, 64, 0.5])
    assert len(fake.launches) == 3


def test_streams_that_cannot_be_compared_do_no_harm(
    fake: FakeDriver, maps: list[tuple[Any, ...]]
) -> None:
    class Stream:
        """Compares as some libraries' streams do: with its own kind only."""

        def __init__(self, handle: int) -> None:
            self.handle = handle

        def __cuda_stream__(self) -> tuple[int, int]:
            return 0, self.handle

        def __eq__(self, other: object) -> bool:
            return self.handle == other.handle  # type: ignore[attr-defined]

        def __hash__(self) -> int:
            return id(self)

    launch = make()
    streams = [0, Stream(5), 0, Stream(6), 7]
    for _ in range(3):
        for stream in streams:
            for _ in range(3):
                launch((2,), [bf16(4096), Array(512), 256, 64, 0.5], stream)
    assert [found.stream for found in fake.launches] == [
        n for n in [0, 5, 0, 6, 7] for _ in "abc"
    ] * 3


def test_launches_that_repeat_are_kept_ready_and_stay_exact(
    fake: FakeDriver, maps: list[tuple[Any, ...]]
) -> None:
    launch = make()
    wanted: list[tuple[Any, ...]] = []
    for turn in range(4):
        for m in (256, 128):
            for scale in (0.0, -0.0, float("nan"), 0.5):
                for grid, stream in (((2,), 0), ((4,), 0), ([4, 1], 3)):
                    launch(grid, [bf16(4096, (m, 64)), Array(512), m, 64, scale], stream)
                    bits = struct.pack("<f", scale)
                    wanted.append(((grid[0], 1, 1), stream, struct.pack("<i", m), bits))
        assert turn < 2 or fake.calls.count("cuLaunchKernelEx") == 24 * (turn + 1)
    found = [(f.grid, f.stream, f.parameters[1], f.parameters[3]) for f in fake.launches]
    assert found == wanted


def test_launches_that_never_repeat_keep_little(
    fake: FakeDriver, maps: list[tuple[Any, ...]], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(launcher, "KEPT", 10)
    monkeypatch.setattr(launcher, "KEPT_BLOCKS", 4)
    launch = make()
    for i in range(100):
        for _ in range(3):
            launch((2,), [bf16(4096), Array(512), 256, 64, float(i)])
    assert len(fake.launches) == 300
    assert [struct.unpack("<f", f.parameters[3])[0] for f in fake.launches[::3]] == [*range(100)]
    assert len(launch._blocks) <= 4  # pyright: ignore[reportPrivateUsage]
    assert len(launch._seen) <= 10  # pyright: ignore[reportPrivateUsage]


def test_grids_and_streams_are_set_when_they_change(
    fake: FakeDriver, maps: list[tuple[Any, ...]]
) -> None:
    launch = make()
    args = [bf16(4096), Array(512), 256, 64, 0.5]
    stream = SimpleNamespace(cuda_stream=99)
    for grid, on in (((2,), 0), ([4, 3], stream), ((2,), stream), ((2, 1, 1), 5), ((2, 1, 1), 0)):
        launch(grid, args, on)
    assert [(launch.grid, launch.stream) for launch in fake.launches] == [
        ((2, 1, 1), 0),
        ((4, 3, 1), 99),
        ((2, 1, 1), 99),
        ((2, 1, 1), 5),
        ((2, 1, 1), 0),
    ]


@pytest.mark.parametrize("grid", [(3,), (2, 70_000), (1 << 31,)])
def test_grids_that_no_launch_of_the_kernel_has_are_refused(
    fake: FakeDriver, maps: list[tuple[Any, ...]], grid: tuple[int, ...]
) -> None:
    assert rule_of(make(), grid, ARGS) == "cuda.grid"
    assert not fake.launches


@pytest.mark.parametrize(
    "grid", [(0,), (2, 0), (-2,), (), (2, 1, 1, 2), (2.0,), "ab", None, np.array([2, 1])]
)
def test_what_is_no_grid_is_refused(
    fake: FakeDriver, maps: list[tuple[Any, ...]], grid: Any
) -> None:
    launch = make()
    assert rule_of(launch, grid, ARGS) == "launch.grid"
    for _ in range(3):
        launch((4,), ARGS)
    assert rule_of(launch, grid, ARGS) == "launch.grid"
    assert len(fake.launches) == 3


@pytest.mark.parametrize(
    ("status", "rule"),
    [
        ("LAUNCH_OUT_OF_RESOURCES", "cuda.resources"),
        ("OUT_OF_MEMORY", "cuda.out_of_memory"),
        ("LAUNCH_FAILED", "cuda.launch_failed"),
        ("STREAM_CAPTURE_UNSUPPORTED", "cuda.capture"),
        ("INVALID_VALUE", "cuda.failed"),
    ],
)
def test_a_failed_launch_is_diagnosed(
    fake: FakeDriver, maps: list[tuple[Any, ...]], status: str, rule: str
) -> None:
    fake.fail["cuLaunchKernelEx"] = status
    with pytest.raises(ReftileError, match="launching `gemm` over") as error:
        make()((2, 1, 1), [bf16(4096), Array(512), 256, 64, 0.5])
    assert error.value.diagnosis.rule == rule


def test_an_illegal_address_names_the_kernels_and_grids_it_may_be_of(
    fake: FakeDriver, maps: list[tuple[Any, ...]]
) -> None:
    args = [bf16(4096), Array(512), 256, 64, 0.5]
    culprit = make(replace(PLAN, entry="culprit"))
    culprit((6, 2), args)
    culprit((2,), args)
    fake.fail["cuLaunchKernelEx"] = "ILLEGAL_ADDRESS"
    with pytest.raises(ReftileError) as error:
        make()((2, 1, 1), args)
    found = error.value.diagnosis
    assert found.rule == "cuda.illegal_address"
    assert "`culprit` over (6, 2) and (2,) on device 0" in found.message
    assert "reftile check" in found.hint


def test_a_thread_without_a_context_launches_in_that_of_the_device(
    fake: FakeDriver, maps: list[tuple[Any, ...]]
) -> None:
    fake.context = 0

    def refuse(*arguments: Any) -> Any:
        if fake.context != 1:
            return (fake.CUresult.CUDA_ERROR_INVALID_CONTEXT,)
        fake.do_cuLaunchKernelEx(*arguments)
        return (fake.CUresult.CUDA_SUCCESS,)

    fake.instead["cuLaunchKernelEx"] = refuse
    make()((2,), [bf16(4096), Array(512), 256, 64, 0.5])
    assert [launch.device for launch in fake.launches] == [1]


ARGS = [bf16(4096), Array(512), 256, 64, 0.5]


@pytest.mark.parametrize(("context", "rule"), [(2, "cuda.other_device"), (1, "cuda.failed")])
def test_a_stream_of_another_device_is_named(
    fake: FakeDriver, maps: list[tuple[Any, ...]], context: int, rule: str
) -> None:
    fake.context, fake.streams = 1, {9: context}
    fake.fail["cuLaunchKernelEx"] = "INVALID_HANDLE"
    with pytest.raises(ReftileError) as error:
        make()((2,), ARGS, 9)
    assert error.value.diagnosis.rule == rule
    assert fake.context == 1


@pytest.mark.parametrize(
    ("at", "value", "rule"),
    [
        (0, np.zeros(4), "cuda.host_array"),
        (1, "x", "cuda.argument"),
        (1, -1, "cuda.argument"),
        (1, Array(512, typestr="<f8"), "cuda.dtype"),
        (1, Array(512, read_only=True), "cuda.read_only"),
        (2, 1.5, "cuda.argument"),
        (2, 1 << 40, "cuda.argument"),
        (2, None, "cuda.argument"),
        (3, 63, "cuda.requirement"),
        (4, "half", "cuda.argument"),
        (0, bf16(4096, strides=(2, 512)), "cuda.strides"),
    ],
)
def test_wrong_arguments_are_diagnosed(
    fake: FakeDriver, maps: list[tuple[Any, ...]], at: int, value: Any, rule: str
) -> None:
    given = [*ARGS[:at], value, *ARGS[at + 1 :]]
    assert rule_of(make(), (2,), given) == rule
    launch = make()
    launch((2,), ARGS)
    # The function for the right kinds says the same.
    assert rule_of(launch, (2,), given) == rule
    launch((2,), ARGS)
    assert len(fake.launches) == 2


@pytest.mark.parametrize("args", [ARGS[:1], [*ARGS, 1], ()])
def test_a_wrong_count_is_diagnosed(
    fake: FakeDriver, maps: list[tuple[Any, ...]], args: list[Any]
) -> None:
    assert rule_of(make(), (2,), args) == "cuda.argument"
    launch = make()
    launch((2,), ARGS)
    assert rule_of(launch, (2,), args) == "cuda.argument"


@pytest.mark.parametrize(
    ("dtype", "size"), [("bf16", 2), ("f32", 4), ("f8e4m3", 1), ("f64", 8), ("i8", 1)]
)
def test_what_the_kernel_sees_of_an_array_must_be_the_array(dtype: str, size: int) -> None:
    def check(shape: tuple[int, ...], strides: tuple[int, ...], behind: int | None) -> str:
        array = DeviceArray(4096, dtype, shape, strides, None, bytes_behind=behind)
        try:
            check_extents("a", array, (64, 256), (64 * size,))  # pyright: ignore
        except ReftileError as error:
            return error.diagnosis.rule
        return ""

    whole = 256 * 64 * size
    assert check((256, 64), (64, 1), whole) == ""
    assert check((256, 64), (64, 1), None) == ""
    assert check((4, 64, 64), (4096, 64, 1), whole) == "", "other shapes may mean the same"
    assert check((256, 64), (64, 1), whole - 1) == "cuda.bounds"
    assert check((256, 64), (1, 256), whole) == "cuda.strides"
    assert check((256, 64), (128, 1), 2 * whole) == "cuda.strides"


def test_an_array_of_another_device_is_refused(
    fake: FakeDriver, maps: list[tuple[Any, ...]]
) -> None:
    fake.owner[512] = 1
    assert rule_of(make(), (2,), ARGS) == "cuda.other_device"


def test_an_array_that_is_only_read_may_be_read_only(
    fake: FakeDriver, maps: list[tuple[Any, ...]]
) -> None:
    make()((2,), [bf16(4096, read_only=True), *ARGS[1:]])
    assert len(fake.launches) == 1


def test_threads_do_not_mix_their_arguments(fake: FakeDriver, maps: list[tuple[Any, ...]]) -> None:
    """The driver gives up the interpreter's lock while it reads the parameters."""
    launch = make()
    barrier = threading.Barrier(2, timeout=300)
    wrong: list[int] = []
    record = fake.do_cuLaunchKernelEx

    def slow(config: Any, handle: Any, pointers: int, extra: int) -> Any:
        barrier.wait()
        record(config, handle, pointers, extra)
        barrier.wait()
        return (fake.CUresult.CUDA_SUCCESS,)

    fake.instead["cuLaunchKernelEx"] = slow

    def work(m: int) -> None:
        launch((2 * m,), [bf16(4096, (m, 64)), Array(512), m, 64, 0.5], stream=m)

    threads = [threading.Thread(target=work, args=(m,)) for m in (8, 16)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    for found in fake.launches:
        (m,) = struct.unpack("<i", found.parameters[1])
        wrong += [m] if (found.stream, found.grid[0]) != (m, 2 * m) else []
    assert len(fake.launches) == 2
    assert not wrong


def test_launches_from_many_threads_are_all_right(
    fake: FakeDriver, maps: list[tuple[Any, ...]]
) -> None:
    launch = make()

    def work(start: int) -> None:
        for m in range(start, start + 400, 8):
            launch((2,), [bf16(4096, (m, 64)), 1 << 20 | m, m, 64, 0.5], stream=m)

    threads = [threading.Thread(target=work, args=(1000 * i,)) for i in range(1, 9)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len(fake.launches) == 400
    for found in fake.launches:
        (m,) = struct.unpack("<i", found.parameters[1])
        assert struct.unpack("<Q", found.parameters[2])[0] == 1 << 20 | m
        assert found.stream == m


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


def test_a_number_that_changes_is_read_at_each_launch(
    fake: FakeDriver, maps: list[tuple[Any, ...]]
) -> None:
    torch = pytest.importorskip("torch")
    launch, m, k = make(), torch.tensor(8), torch.tensor(8)
    for _ in range(6):
        launch((2,), [1 << 12, 512, m, k, 0.5])
        m += 8
        k += 8
    found = [struct.unpack("<i", launched.parameters[1])[0] for launched in fake.launches]
    assert found == [8, 16, 24, 32, 40, 48]
    assert [extents for _, _, extents, *_ in maps] == [(n, n) for n in found]


@pytest.mark.parametrize("number", [np.int32(64), np.array(64), np.uint8(64)])
def test_integers_of_other_libraries_are_integers(
    fake: FakeDriver, maps: list[tuple[Any, ...]], number: Any
) -> None:
    launch = make()
    for _ in range(4):
        launch((2,), [bf16(4096, (64, 64)), Array(512), number, number, 0.5])
    assert {f.parameters[1] for f in fake.launches} == {struct.pack("<i", 64)}
    assert len(maps) == 1
    assert fake.calls.count("cuLaunchKernelEx") == 4


@pytest.mark.parametrize("k", [64.0, None, "64", np.array([64, 64])])
def test_a_number_that_only_the_host_reads_is_an_integer(
    fake: FakeDriver, maps: list[tuple[Any, ...]], k: Any
) -> None:
    assert rule_of(make(), (2,), [*ARGS[:3], k, 0.5]) == "cuda.argument"


@pytest.mark.parametrize("scale", [1e300, 10**400])
def test_a_number_that_its_type_does_not_hold_is_refused(
    fake: FakeDriver, maps: list[tuple[Any, ...]], scale: Any
) -> None:
    assert rule_of(make(), (2,), [*ARGS[:4], scale]) == "cuda.argument"


@pytest.mark.parametrize("args", ["abcde", dict.fromkeys("abcde", 1), None, 5])
def test_arguments_are_a_tuple_or_a_list(
    fake: FakeDriver, maps: list[tuple[Any, ...]], args: Any
) -> None:
    launch = make()
    assert rule_of(launch, (2,), args) == "cuda.argument"
    launch((2,), ARGS)
    assert rule_of(launch, (2,), args) == "cuda.argument"


def test_a_kernel_without_arguments_is_launched(fake: FakeDriver) -> None:
    fake.sizes, fake.context = [], 1
    launch = make(HostPlan("none", 32, (1, 1, 1), 0, (), ()))
    for stream in (None, 0, None, None, None):
        launch((3,), (), stream)
    assert {f.grid for f in fake.launches} == {(3, 1, 1)}
    assert rule_of(launch, None, (), None) == "launch.grid"


def test_elements_without_a_name_of_ours_are_refused(
    fake: FakeDriver, maps: list[tuple[Any, ...]], monkeypatch: pytest.MonkeyPatch
) -> None:
    torch = pytest.importorskip("torch")
    monkeypatch.setattr(torch.Tensor, "device", SimpleNamespace(type="cuda", index=0))
    launch = make()
    for dtype in (torch.complex64, torch.complex128):
        c = torch.zeros(4, dtype=dtype)
        assert rule_of(launch, (2,), [ARGS[0], c, *ARGS[2:]]) == "cuda.dtype"
        launch((2,), [ARGS[0], torch.zeros(4), *ARGS[2:]])
        assert rule_of(launch, (2,), [ARGS[0], c, *ARGS[2:]]) == "cuda.dtype"


def test_a_launch_that_is_tried_again_has_its_buffer_still(
    fake: FakeDriver, maps: list[tuple[Any, ...]]
) -> None:
    """Another thread launches between a call without a context and the same in a context."""
    launch = make()
    record, enter = fake.do_cuLaunchKernelEx, fake.do_cuCtxSetCurrent

    def refuse(*arguments: Any) -> Any:
        if fake.context != 1:
            return (fake.CUresult.CUDA_ERROR_INVALID_CONTEXT,)
        record(*arguments)
        return (fake.CUresult.CUDA_SUCCESS,)

    def interrupt(context: int) -> Any:
        enter(context)
        fake.instead.pop("cuCtxSetCurrent")
        launch((2,), [bf16(4096), Array(512), 256, 64, 0.75])
        return (fake.CUresult.CUDA_SUCCESS,)

    fake.instead["cuLaunchKernelEx"] = refuse
    launch((2,), [bf16(4096), Array(512), 256, 64, 0.25])
    fake.context, fake.instead["cuCtxSetCurrent"] = 0, interrupt
    launch((2,), [bf16(4096), Array(512), 256, 64, 0.5])
    found = [struct.unpack("<f", f.parameters[3])[0] for f in fake.launches]
    assert found == [0.25, 0.75, 0.5]
