"""The backend `cuda` against a driver whose device memory is memory of the host."""

from __future__ import annotations

import ctypes
import struct
import warnings
from collections.abc import Generator
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

import reftile
from reftile.cli.inputs import load_python_object
from reftile.ir.core import Kernel
from reftile.ir.diagnostics import ReftileError
from reftile.ir.parse import parse
from reftile.rt import launcher
from reftile.rt.backend import HostCopy
from tests.rt.fake_driver import Array, FakeDriver

EXAMPLES = Path(__file__).resolve().parents[2] / "examples" / "pipe"
GEMM, GEMM_PY = (EXAMPLES / "gemm_sm80.tile").read_text("utf-8"), EXAMPLES / "gemm_sm90.py"


@pytest.fixture
def kernel(fake: FakeDriver, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Kernel:
    """A GEMM for sm_80 (device 1 of the fake), and a cache of its own."""
    monkeypatch.setenv("REFTILE_CACHE", str(tmp_path))
    kernel = parse(GEMM).kernel()
    # c, n and k; the kernel reads a and b through pointers too, and m not at all.
    fake.context = 2
    return kernel


@pytest.fixture(autouse=True)
def _quiet() -> Generator[None]:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", HostCopy)
        yield


def arrays() -> tuple[Any, Any, Any]:
    a = np.arange(128 * 32, dtype=np.uint16).reshape(128, 32)
    return a, a.copy(), np.zeros((128, 128), np.float32)


def bf16(array: Any) -> Any:
    return array.view(pytest.importorskip("ml_dtypes").bfloat16)


def launch(kernel: Kernel, *args: Any, **settings: Any) -> Any:
    return reftile.launch(kernel, (1,), args, backend="cuda", **settings)


def rule_of(kernel: Kernel, *args: Any, **settings: Any) -> str:
    with pytest.raises(ReftileError) as error:
        launch(kernel, *args, **settings)
    return error.value.diagnosis.rule


def test_arrays_of_numpy_go_there_and_come_back(fake: FakeDriver, kernel: Kernel) -> None:
    a, b, c = arrays()
    plan = compiled_plan(kernel)
    fake.sizes = [8 if p in ("a", "b", "c") else 4 for p in plan]

    def write(parameters: list[bytes]) -> None:
        found = dict(zip(plan, parameters, strict=True))
        source, target = (struct.unpack("<Q", found[n])[0] for n in "ac")
        assert ctypes.string_at(source, a.nbytes) == a.tobytes()
        ctypes.memset(target, 0x41, c.nbytes // 2)
        ctypes.memset(source, 0, a.nbytes)

    fake.kernel = write
    before = a.copy()
    with pytest.warns(HostCopy, match=r"`a` \(8192 bytes\)"):
        report = launch(kernel, bf16(a), bf16(b), c, 128, 128, 32)
    assert (c.view(np.uint8)[:64] == 0x41).all()
    assert (c.view(np.uint8)[64:] == 0).all()
    assert np.array_equal(a, before), "what the kernel only reads is not brought back"
    assert report.copied == {"a": 8192, "b": 8192, "c": 65536}
    assert not fake.memory, "all device memory is given back"


def compiled_plan(kernel: Kernel) -> list[str]:
    from reftile.rt.backend import compiled_for

    return [getattr(p, "name", "") for p in compiled_for(kernel, 1).host.parameters]


def test_what_overlaps_on_the_host_overlaps_on_the_device(fake: FakeDriver, kernel: Kernel) -> None:
    whole = np.zeros(128 * 128 + 64, np.float32)
    c, a = whole[: 128 * 128].reshape(128, 128), whole.view(np.uint16)[64 : 64 + 4096]
    plan = compiled_plan(kernel)
    fake.sizes = [8 if p in ("a", "b", "c") else 4 for p in plan]
    launch(kernel, bf16(a), bf16(np.zeros(4096, np.uint16)), c, 128, 128, 32)
    found = dict(zip(plan, fake.launches[0].parameters, strict=True))
    source, target = (struct.unpack("<Q", found[n])[0] for n in "ac")
    assert source - target == a.ctypes.data - c.ctypes.data


def test_gaps_of_a_strided_array_stay_as_they_are(fake: FakeDriver, kernel: Kernel) -> None:
    whole = np.full((128, 256), 7, np.float32)
    c = whole[:, 4:132]
    plan = compiled_plan(kernel)
    fake.sizes = [8 if p in ("a", "b", "c") else 4 for p in plan]
    a, b, _ = arrays()
    launch(kernel, bf16(a), bf16(b), c, 128, 128, 32)
    assert (whole == 7).all()


def test_a_failure_while_it_runs_names_the_kernel_and_its_grid(
    fake: FakeDriver, kernel: Kernel
) -> None:
    a, b, c = arrays()
    fake.sizes = [8 if p in ("a", "b", "c") else 4 for p in compiled_plan(kernel)]
    fake.fail["cuStreamSynchronize"] = "ILLEGAL_ADDRESS"
    with pytest.raises(ReftileError, match=r"`gemm` over \(1, 1, 1\) on device 1") as error:
        launch(kernel, bf16(a), bf16(b), c, 128, 128, 32)
    found = error.value.diagnosis
    assert found.rule == "cuda.illegal_address"
    assert "reftile check" in found.hint
    assert not fake.memory


@pytest.mark.parametrize(
    ("function", "failure", "rule"),
    [
        ("cuMemAlloc", "OUT_OF_MEMORY", "cuda.out_of_memory"),
        ("cuMemcpyHtoDAsync", "INVALID_VALUE", "cuda.failed"),
        ("cuModuleLoadDataEx", "NO_BINARY_FOR_GPU", "cuda.target"),
        ("cuModuleLoadDataEx", "OUT_OF_MEMORY", "cuda.out_of_memory"),
        ("cuFuncSetAttribute", "INVALID_VALUE", "cuda.failed"),
        ("cuDevicePrimaryCtxRetain", "DEVICE_UNAVAILABLE", "cuda.busy"),
    ],
)
def test_every_step_that_fails_is_diagnosed(
    fake: FakeDriver, kernel: Kernel, function: str, failure: str, rule: str
) -> None:
    a, b, c = arrays()
    if function == "cuDevicePrimaryCtxRetain":
        fake.context = 0
        kernel.attributes["target"] = "sm_80"
    if function == "cuFuncSetAttribute":
        text = GEMM.replace("ring<2,", "ring<4,")
        kernel = parse(text).kernel()
    fake.fail[function] = failure
    assert rule_of(kernel, bf16(a), bf16(b), c, 128, 128, 32) == rule
    assert not fake.memory


@pytest.mark.parametrize(
    ("at", "value", "rule"),
    [
        (0, np.zeros(4096, np.float32), "cuda.dtype"),
        (2, np.broadcast_to(np.float32(0), (128, 128)), "cuda.read_only"),
        (3, np.zeros(3), "cuda.argument"),
    ],
)
def test_arrays_of_numpy_that_do_not_fit_are_refused(
    fake: FakeDriver, kernel: Kernel, at: int, value: Any, rule: str
) -> None:
    a, b, c = arrays()
    args = [bf16(a), bf16(b), c, 128, 128, 32]
    args[at] = value
    assert rule_of(kernel, *args) == rule
    assert rule_of(kernel, *args[:-1]) == "cuda.argument"


def test_arrays_of_numpy_are_refused_during_a_capture(fake: FakeDriver, kernel: Kernel) -> None:
    a, b, c = arrays()
    fake.capturing = True
    assert rule_of(kernel, bf16(a), bf16(b), c, 128, 128, 32) == "cuda.capture"


def test_the_device_is_that_of_the_arrays(fake: FakeDriver, kernel: Kernel) -> None:
    fake.context = 1
    fake.owner = {1 << 20: 1, 1 << 21: 1, 1 << 22: 1}
    fake.sizes = [8 if p in ("a", "b", "c") else 4 for p in compiled_plan(kernel)]
    arrays = (Array(1 << 20, typestr="<u2"), Array(1 << 21, typestr="<u2"), Array(1 << 22))
    report = launch(kernel, *arrays, 128, 128, 32, stream=SimpleNamespace(ptr=5))
    assert (report.compiled.device, fake.launches[0].stream) == (1, 5)
    assert fake.launches[0].handle.endswith("in context 2")
    assert report.copied == {}
    assert fake.context == 1


def test_a_kernel_is_compiled_once_while_it_does_not_change(
    fake: FakeDriver, kernel: Kernel
) -> None:
    from reftile.rt.backend import compiled_for

    first = compiled_for(kernel, 1)
    assert compiled_for(kernel, 1) is first
    kernel.attributes["warps"] = 64
    with pytest.raises(ReftileError):
        compiled_for(kernel, 1)
    kernel.attributes["warps"] = 4
    again = compiled_for(kernel, 1)
    assert again is not first
    assert again.from_disk


def test_a_pipe_kernel_in_python_is_launched(
    fake: FakeDriver, kernel: Kernel, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(launcher, "encode", lambda *a: bytes(128))  # pyright: ignore
    fake.context, fake.sizes = 1, [128] * 3 + [4] * 3
    gemm = load_python_object(GEMM_PY, "gemm")
    shapes = ((512, 64), (256, 64), (512, 256))
    arrays = [bf16(np.zeros(shape, np.uint16)) for shape in shapes]
    report = reftile.launch(gemm, (2,), (*arrays, 512, 256, 64), backend="cuda")
    assert [*report.copied.values()] == [65536, 32768, 262144]  # type: ignore[attr-defined]
    assert [launch.grid for launch in fake.launches] == [(2, 1, 1)]


@pytest.mark.parametrize(
    ("a", "rule"),
    [
        (np.zeros((256, 64), np.uint16), "cuda.bounds"),
        (np.zeros((512, 64), np.uint16)[::-1], "cuda.bounds"),
        (np.zeros((512, 128), np.uint16)[:, ::2], "cuda.strides"),
        (np.asfortranarray(np.zeros((512, 64), np.uint16)), "cuda.strides"),
    ],
)
def test_what_the_kernel_sees_of_an_array_of_numpy_is_the_array(
    fake: FakeDriver, kernel: Kernel, monkeypatch: pytest.MonkeyPatch, a: Any, rule: str
) -> None:
    monkeypatch.setattr(launcher, "encode", lambda *a: bytes(128))  # pyright: ignore
    fake.context = 1
    gemm = parse((EXAMPLES / "gemm_sm90.tile").read_text("utf-8")).kernel()
    b, c = np.zeros((256, 64), np.uint16), np.zeros((512, 256), np.uint16)
    assert rule_of(gemm, bf16(a), bf16(b), bf16(c), 512, 256, 64) == rule
    assert not fake.launches
    assert not fake.memory


def test_tensors_of_torch_on_the_cpu_are_refused(fake: FakeDriver, kernel: Kernel) -> None:
    torch = pytest.importorskip("torch")
    a, b = (torch.zeros(128, 32, dtype=torch.bfloat16) for _ in "ab")
    assert rule_of(kernel, a, b, torch.zeros(128, 128), 128, 128, 32) == "cuda.host_array"
    assert rule_of(kernel, a, b, arrays()[2], 128, 128, 32) == "cuda.host_array"


def test_a_tile_kernel_is_refused_without_looking_for_a_gpu(fake: FakeDriver) -> None:
    fake.fail["cuDeviceGetCount"] = "NO_DEVICE"
    kernel = parse("tile kernel @k(%n: tile<i32>) {\n  return\n}\n").kernel()
    assert rule_of(kernel, 4) == "cuda.level"
    assert "cuDeviceGetCount" not in fake.calls


def test_a_launch_in_the_form_of_cutile_uses_its_stream(fake: FakeDriver, kernel: Kernel) -> None:
    fake.sizes = [8 if p in ("a", "b", "c") else 4 for p in compiled_plan(kernel)]
    fake.owner = {1 << 20: 1, 1 << 21: 1, 1 << 22: 1}
    arrays = (Array(1 << 20, typestr="<u2"), Array(1 << 21, typestr="<u2"), Array(1 << 22))
    reftile.launch(9, (1,), kernel, (*arrays, 128, 128, 32), backend="cuda")
    assert fake.launches[0].stream == 9
