"""The runtime on two real GPUs: `pytest -m gpu tests/rt/test_two_devices.py`.

One kernel is launched on both, from several threads, with the context of the other device current,
and with arrays that lie on both.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import reftile
from reftile.ir.core import Kernel
from reftile.ir.diagnostics import ReftileError
from reftile.ir.parse import parse
from reftile.rt import devices
from reftile.rt.cache import Cache
from reftile.rt.compile import compile_kernel
from reftile.rt.streams import Event
from tests.rt.test_on_device import (
    COPY,
    EXAMPLES,
    ROWS,
    check_product,
    in_threads,
    operands,
    rule_of,
)

pytestmark = pytest.mark.gpu


@pytest.fixture(autouse=True)
def torch() -> Any:
    found = pytest.importorskip("torch", reason="torch is not installed here")
    if not found.cuda.is_available() or found.cuda.device_count() < 2:
        pytest.skip("there are not two devices here")
    for device in (0, 1):
        if devices.target(device) != "sm_90a":
            pytest.skip(f"device {device} is {devices.target(device)}, the kernels are for sm_90a")
    return found


def copy() -> Kernel:
    return parse(COPY).kernel()


def gemm() -> Kernel:
    return parse((EXAMPLES / "gemm_sm90.tile").read_text("utf-8"), "gemm_sm90").kernel()


@pytest.mark.parametrize("device", [0, 1])
def test_gemm_is_right_while_the_other_device_is_current(
    torch: Any, device: int, tmp_path: Any
) -> None:
    torch.cuda.set_device(device)
    a, b, c = operands(torch)
    torch.cuda.synchronize(device)
    try:
        torch.cuda.set_device(1 - device)
        torch.zeros(1, device=f"cuda:{1 - device}")
        for compiled in (
            compile_kernel(gemm(), device, cached=Cache(tmp_path)),
            compile_kernel(gemm(), device, cached=Cache(tmp_path)),
        ):
            c.fill_(float("nan"))
            torch.cuda.synchronize(device)
            stream = torch.cuda.current_stream(device)
            compiled((128,), [a, b, c, 2048, 2048, 448], stream)
            torch.cuda.synchronize(device)
            check_product(a, b, c)
            assert devices.current_device() == 1 - device == torch.cuda.current_device()
    finally:
        torch.cuda.set_device(0)


def test_the_same_cached_kernel_is_loaded_on_both(torch: Any, tmp_path: Any) -> None:
    first = compile_kernel(copy(), 0, cached=Cache(tmp_path))
    second = compile_kernel(copy(), 1, cached=Cache(tmp_path))
    assert not first.from_disk
    assert second.from_disk
    for compiled in (first, second):
        where = f"cuda:{compiled.device}"
        x = torch.randn(ROWS, 64, device=where)
        y = torch.zeros_like(x)
        torch.cuda.synchronize(compiled.device)
        compiled((3,), (x, y, ROWS))
        devices.synchronize(compiled.device)
        assert torch.equal(x, y)


def test_arrays_of_two_devices_in_one_launch_are_refused(torch: Any) -> None:
    x, y = torch.ones(ROWS, 64, device="cuda:0"), torch.zeros(ROWS, 64, device="cuda:1")
    for args in ((x, y, ROWS), (y, x, ROWS)):
        with pytest.raises(ReftileError) as error:
            reftile.launch(copy(), (3,), args, backend="cuda")
        assert error.value.diagnosis.rule == "cuda.other_device"
    compiled = compile_kernel(copy(), 1)
    assert rule_of(compiled, (3,), (x, x, ROWS)) == "cuda.other_device"
    torch.cuda.synchronize(0)
    torch.cuda.synchronize(1)
    assert (y == 0).all()


def test_threads_launch_on_both_devices_at_once(torch: Any) -> None:
    kernel = copy()

    def work(seed: int) -> None:
        where = torch.device("cuda", seed % 2)
        stream = torch.cuda.Stream(where)
        with torch.cuda.stream(stream):
            x = torch.full((ROWS, 64), float(seed), device=where)
            ys = [torch.zeros_like(x) for _ in range(50)]
            for y in ys:
                reftile.launch(kernel, (3,), (x, y, ROWS), backend="cuda")
        stream.synchronize()
        assert all((y == seed).all() for y in ys)

    in_threads(work, 8)


def test_a_launch_on_one_device_waits_for_an_event_of_the_other(torch: Any) -> None:
    rows = 1 << 20
    compiled = [compile_kernel(copy(), device) for device in (0, 1)]
    x, y = (torch.zeros(rows, 64, device="cuda:0") for _ in range(2))
    x.fill_(3)
    there, z = (torch.zeros(rows, 64, device="cuda:1") for _ in range(2))
    one, two = torch.cuda.Stream("cuda:0"), torch.cuda.Stream("cuda:1")
    torch.cuda.synchronize(0)
    torch.cuda.synchronize(1)
    compiled[0]((rows // 16,), (x, y, rows), one)
    with torch.cuda.stream(one):
        there.copy_(y, non_blocking=True)
    done = Event().record(one)
    done.hold(two)
    compiled[1]((rows // 16,), (there, z, rows), two)
    Event().record(two).synchronize()
    assert (z == 3).all()


def test_a_graph_is_captured_on_the_second_device(torch: Any) -> None:
    compiled = compile_kernel(copy(), 1)
    with torch.cuda.device(1):
        x, y = torch.ones(ROWS, 64, device="cuda:1"), torch.zeros(ROWS, 64, device="cuda:1")
        torch.cuda.synchronize()
        graph = torch.cuda.CUDAGraph()
        with torch.cuda.graph(graph, stream=torch.cuda.Stream("cuda:1")):
            compiled((3,), (x, y, ROWS), torch.cuda.current_stream())
        y.zero_()
        graph.replay()
        torch.cuda.synchronize()
        assert (y == 1).all()


def test_a_stream_of_the_other_device_is_refused(torch: Any) -> None:
    compiled = compile_kernel(copy(), 1)
    x, y = torch.ones(ROWS, 64, device="cuda:1"), torch.zeros(ROWS, 64, device="cuda:1")
    stream = torch.cuda.Stream("cuda:0")
    assert rule_of(compiled, (3,), (x, y, ROWS), stream) == "cuda.other_device"
    compiled((3,), (x, y, ROWS), torch.cuda.Stream("cuda:1"))
    torch.cuda.synchronize(1)
    assert (y == 1).all()


def _cupy(device: int, data: np.ndarray) -> tuple[Any, Any, Callable[[Any], np.ndarray]]:
    cupy = pytest.importorskip("cupy", reason="CuPy is not installed here")
    with cupy.cuda.Device(device):
        return cupy.asarray(data), cupy.zeros_like(data), cupy.asnumpy


def _numba(device: int, data: np.ndarray) -> tuple[Any, Any, Callable[[Any], np.ndarray]]:
    cuda = pytest.importorskip("numba.cuda", reason="numba has no CUDA here")
    if not cuda.is_available():
        pytest.skip("numba finds no GPU here")
    with cuda.gpus[device]:
        return (
            cuda.to_device(data),
            cuda.to_device(np.zeros_like(data)),
            lambda y: y.copy_to_host(),
        )


@pytest.mark.parametrize("library", [_cupy, _numba])
@pytest.mark.parametrize("device", [0, 1])
def test_arrays_of_other_libraries_are_found_where_they_lie(library: Any, device: int) -> None:
    data = np.random.default_rng(device).standard_normal((ROWS, 64), np.float32)
    x, y, to_host = library(device, data)
    devices.synchronize(device)
    report = reftile.launch(copy(), (3,), (x, y, ROWS), backend="cuda")
    devices.synchronize(device)
    assert report.compiled.device == device  # type: ignore[attr-defined]
    assert np.array_equal(to_host(y), data)
