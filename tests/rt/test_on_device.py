"""The runtime on a real GPU: `pytest -m gpu tests/rt`. What a test lacks, it says."""

from __future__ import annotations

import math
import os
import subprocess
import sys
import threading
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

import reftile
from reftile.ir.core import Kernel
from reftile.ir.diagnostics import ReftileError
from reftile.ir.parse import parse
from reftile.lower.ptx.assemble import find_ptxas
from reftile.rt import devices
from reftile.rt.backend import HostCopy
from reftile.rt.cache import Cache
from reftile.rt.compile import Compiled, compile_kernel
from reftile.rt.jit import load
from reftile.rt.streams import Event

pytestmark = pytest.mark.gpu
EXAMPLES = Path(__file__).resolve().parents[2] / "examples" / "pipe"

COPY = """\
pipe kernel @copy(%x: tile<ptr<f32>>, %y: tile<ptr<f32>>, %rows: tile<i32>) attributes {target = "sm_90a", warps = 4} {
  %zero = constant {value = 0} : tile<i32>
  %xv = make_tensor_view %x, [%rows], [] : tensor_view<?x64xf32, strides=[64, 1], access=read_only>
  %yv = make_tensor_view %y, [%rows], [] : tensor_view<?x64xf32, strides=[64, 1], access=write_only>
  %xp = make_partition_view %xv : partition_view<tile=(16x64), tensor_view<?x64xf32, strides=[64, 1], access=read_only>, padding=zero>
  %yp = make_partition_view %yv : partition_view<tile=(16x64), tensor_view<?x64xf32, strides=[64, 1], access=write_only>>
  %i, %j, %k = get_tile_block_id : tile<i32>, tile<i32>, tile<i32>
  %buffer = alloc_buffer : buffer<16x64xf32>
  %full = alloc_barrier : barrier<1, arrivals=1>
  role {label = "all", warps = 4} body {
    elected body {
      arrive_barrier %full, %zero {bytes = 4096}
      copy_in %xp, [%i, %zero], %buffer, barrier=%full, slot=%zero {engine = bulk}
      %landed = wait_barrier %full, %zero, %zero : token
      copy_out %buffer, %yp, [%i, %zero], token=%landed
      commit_copies {engine = bulk}
      %stored = wait_copies {engine = bulk} : token
      yield
    }
    yield
  }
  return
}
"""  # noqa: E501


@pytest.fixture(scope="module", autouse=True)
def _device() -> None:
    try:
        devices.target(0)
    except ReftileError as error:
        pytest.skip(str(error.diagnosis))


def module(name: str) -> Any:
    return pytest.importorskip(name, reason=f"{name} is not installed here")


@pytest.fixture
def torch() -> Any:
    found = module("torch")
    if not found.cuda.is_available():
        pytest.skip("this torch has no CUDA")
    return found


def read(name: str) -> Kernel:
    if devices.target(0) != "sm_90a":
        pytest.skip(f"device 0 is {devices.target(0)}, and the example is for sm_90a")
    return parse((EXAMPLES / f"{name}.tile").read_text("utf-8"), name).kernel()


def gemm(cache: Cache | None = None) -> Compiled:
    return compile_kernel(read("gemm_sm90"), 0, cached=cache)


def copy() -> Kernel:
    if devices.target(0) != "sm_90a":
        pytest.skip(f"device 0 is {devices.target(0)}, and this is for sm_90a")
    return parse(COPY).kernel()


def operands(torch: Any, m: int = 2048, n: int = 2048, k: int = 448) -> tuple[Any, Any, Any]:
    a = torch.randn(m, k, device="cuda", dtype=torch.bfloat16)
    b = torch.randn(n, k, device="cuda", dtype=torch.bfloat16)
    return a, b, torch.full((m, n), math.nan, device="cuda", dtype=torch.bfloat16)


def check_product(a: Any, b: Any, c: Any) -> None:
    wanted = a.double() @ b.double().T
    assert ((c.double() - wanted).norm() / wanted.norm()).item() < 3e-3


def rule_of(function: Any, *arguments: Any) -> str:
    with pytest.raises(ReftileError) as error:
        function(*arguments)
    return error.value.diagnosis.rule


@pytest.mark.parametrize("from_disk", [False, True])
def test_gemm_is_right_afresh_and_from_the_cache(
    torch: Any, tmp_path: Path, from_disk: bool
) -> None:
    launch = gemm(Cache(tmp_path))
    if from_disk:
        launch = gemm(Cache(tmp_path))
    assert launch.from_disk is from_disk
    assert launch.resources.registers == 168
    assert launch.resources.spill_bytes == 0
    a, b, c = operands(torch)
    launch((128,), [a, b, c, 2048, 2048, 448], torch.cuda.current_stream())
    torch.cuda.synchronize()
    check_product(a, b, c)


def test_the_driver_counts_as_many_blocks_as_explain(torch: Any) -> None:
    for name in ("gemm_sm90", "attention_sm90"):
        compiled = compile_kernel(read(name), 0)
        blocks = compiled.function.blocks_per_multiprocessor(compiled.host.threads)
        assert compiled.explain().blocks == blocks
    compiled = compile_kernel(copy(), 0)
    assert compiled.explain().blocks == compiled.function.blocks_per_multiprocessor(128)


def test_arrays_that_do_not_fit_are_refused(torch: Any) -> None:
    launch = gemm()
    a, b, c = operands(torch)
    sizes = [2048, 2048, 448]
    assert rule_of(launch, (2,), [a.cpu(), b, c, *sizes]) == "cuda.host_array"
    assert rule_of(launch, (2,), [a.half(), b, c, *sizes]) == "cuda.dtype"
    assert rule_of(launch, (2,), [a, b, c, 2048, 2048, 63]) == "cuda.tensor_map"
    assert rule_of(launch, (2,), [a[1024:], b, c, *sizes]) == "cuda.bounds"
    assert rule_of(launch, (2,), [a[:0], b, c, 0, 2048, 448]) == "cuda.empty"
    assert rule_of(launch, (3,), [a, b, c, *sizes]) == "cuda.grid"
    square = torch.zeros(2048, 2048, device="cuda", dtype=torch.bfloat16)
    assert rule_of(launch, (2,), [square.T, b, c, 2048, 2048, 2048]) == "cuda.strides"


def test_launches_are_captured_in_a_graph(torch: Any) -> None:
    launch = gemm()
    a, b, c = operands(torch, k=64)
    args = [a, b, c, 2048, 2048, 64]
    launch((16,), args, torch.cuda.current_stream())
    torch.cuda.synchronize()
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        launch((16,), args, torch.cuda.current_stream())
    c.fill_(math.nan)
    graph.replay()
    torch.cuda.synchronize()
    check_product(a, b, c)


def test_numpy_arrays_are_refused_while_a_graph_is_captured(torch: Any) -> None:
    kernel, x = copy(), np.ones((32, 64), np.float32)
    with pytest.warns(HostCopy):
        reftile.launch(kernel, (2,), (x, x.copy(), 32), backend="cuda")
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        stream = torch.cuda.current_stream()
        with pytest.raises(ReftileError) as error:
            reftile.launch(kernel, (2,), (x, x, 32), backend="cuda", stream=stream)
        torch.zeros(1, device="cuda").add_(1)
    assert error.value.diagnosis.rule == "cuda.capture"


def test_bad_ptx_is_diagnosed(torch: Any) -> None:
    text = ".version 8.4\n.target sm_80\n.address_size 64\nnonsense"
    assert rule_of(load, text, "empty", 0) == "cuda.ptx"


ROWS = 40


def test_numpy_arrays_are_copied_and_it_is_said() -> None:
    x = np.arange(ROWS * 64, dtype=np.float32).reshape(ROWS, 64)
    y = np.full((ROWS + 20, 64), -1, np.float32)
    with pytest.warns(HostCopy, match="copied to the GPU and back"):
        report = reftile.launch(copy(), (3,), (x, y[8 : ROWS + 8], ROWS), backend="cuda")
    assert np.array_equal(y[8 : ROWS + 8], x)
    assert (y[:8] == -1).all()
    assert (y[ROWS + 8 :] == -1).all()
    assert report.copied == {"x": x.nbytes, "y": x.nbytes}  # type: ignore[attr-defined]


def check_library(to_device: Any, to_host: Any, stream: Any = None) -> None:
    data = np.random.default_rng(0).standard_normal((ROWS, 64), np.float32)
    x, y = to_device(data), to_device(np.zeros_like(data))
    devices.synchronize(0)
    reftile.launch(copy(), (3,), (x, y, ROWS), backend="cuda", stream=stream)
    devices.synchronize(0)
    assert np.array_equal(to_host(y), data)


def test_arrays_of_torch(torch: Any) -> None:
    check_library(lambda a: torch.from_numpy(a).cuda(), lambda y: y.cpu().numpy())
    stream = torch.cuda.Stream()
    check_library(lambda a: torch.from_numpy(a).cuda(), lambda y: y.cpu().numpy(), stream)


def test_arrays_of_cupy() -> None:
    cupy = module("cupy")
    check_library(cupy.asarray, cupy.asnumpy)
    check_library(cupy.asarray, cupy.asnumpy, cupy.cuda.Stream(non_blocking=True))


def test_arrays_of_numba() -> None:
    cuda = pytest.importorskip("numba.cuda", reason="numba has no CUDA here")
    if not cuda.is_available():
        pytest.skip("numba finds no GPU here")
    check_library(cuda.to_device, lambda y: y.copy_to_host())
    check_library(cuda.to_device, lambda y: y.copy_to_host(), cuda.stream())


def test_arrays_of_jax(torch: Any) -> None:
    jax = module("jax")
    if jax.default_backend() != "gpu":
        pytest.skip("this JAX finds no GPU")
    x = jax.block_until_ready(jax.numpy.full((ROWS, 64), 3, "float32"))
    y = torch.zeros(ROWS, 64, device="cuda")
    reftile.launch(copy(), (3,), (x, y, ROWS), backend="cuda")
    devices.synchronize(0)
    assert (y == 3).all()
    # JAX counts on its arrays never changing.
    with pytest.raises(ReftileError) as error:
        reftile.launch(copy(), (3,), (y, x, ROWS), backend="cuda")
    assert error.value.diagnosis.rule == "cuda.read_only"


def test_arrays_known_through_dlpack_alone(torch: Any) -> None:
    def shared(array: Any) -> Any:
        tensor = torch.from_numpy(array).cuda()
        return SimpleNamespace(
            __dlpack__=tensor.__dlpack__,
            __dlpack_device__=tensor.__dlpack_device__,
            tensor=tensor,
        )

    check_library(shared, lambda y: y.tensor.cpu().numpy())


def test_streams_and_events_order_launches(torch: Any) -> None:
    compiled = compile_kernel(copy(), 0)
    rows = 1 << 20
    x, y, z = (torch.zeros(rows, 64, device="cuda") for _ in range(3))
    x.fill_(1)
    torch.cuda.synchronize()
    one, other = torch.cuda.Stream(), torch.cuda.Stream()
    two = SimpleNamespace(__cuda_stream__=lambda: (0, other.cuda_stream))
    start = Event().record(one)
    compiled((rows // 16,), (x, y, rows), one)
    done = Event().record(one)
    done.hold(two)
    compiled((rows // 16,), (y, z, rows), two)
    Event().record(two).synchronize()
    assert (z == 1).all()
    assert 0 < done.milliseconds_since(start) < 1000


def in_threads(work: Callable[[int], None], count: int) -> None:
    """Run `work` with 1, 2, ... in as many threads at once; nothing may be raised in one."""
    failures: list[BaseException] = []

    def guarded(number: int) -> None:
        try:
            work(number)
        except BaseException as error:
            failures.append(error)

    threads = [threading.Thread(target=guarded, args=(i,)) for i in range(1, count + 1)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert not failures


def test_threads_launch_one_kernel_at_a_time_each_right(torch: Any) -> None:
    compiled = compile_kernel(copy(), 0)

    def work(seed: int) -> None:
        stream = torch.cuda.Stream()
        with torch.cuda.stream(stream):
            x = torch.full((ROWS, 64), float(seed), device="cuda")
            ys = [torch.zeros_like(x) for _ in range(50)]
            for y in ys:
                compiled((3,), (x, y, ROWS), stream)
        stream.synchronize()
        assert all((y == seed).all() for y in ys)

    in_threads(work, 8)


def test_a_thread_without_a_context_may_launch(torch: Any) -> None:
    compiled = compile_kernel(copy(), 0)
    x, y = torch.ones(ROWS, 64, device="cuda"), torch.zeros(ROWS, 64, device="cuda")
    args = x.data_ptr(), y.data_ptr(), ROWS
    torch.cuda.synchronize()
    in_threads(lambda number: compiled((3,), args), 1)
    devices.synchronize(0)
    assert (y == 1).all()


def test_every_device_runs_what_lies_on_it(torch: Any) -> None:
    if devices.device_count() < 2:
        pytest.skip("there is one device here")
    for device in (1, 0, 1):
        x = torch.full((ROWS, 64), 1.0 + device, device=f"cuda:{device}")
        y = torch.zeros_like(x)
        reftile.launch(copy(), (3,), (x, y, ROWS), backend="cuda")
        torch.cuda.synchronize(device)
        assert (y == 1 + device).all()
    compiled = compile_kernel(copy(), 0)
    assert rule_of(compiled, (3,), (x, y, ROWS)) == "cuda.other_device"


def test_the_default_context_is_that_of_torch(torch: Any) -> None:
    torch.zeros(1, device="cuda")
    assert devices.current_device() == torch.cuda.current_device()


def test_too_large_arrays_of_the_host_are_out_of_memory() -> None:
    small = np.zeros(4, np.float32)
    huge = np.lib.stride_tricks.as_strided(small, (1 << 34, 64), (256, 4))
    with pytest.raises(ReftileError) as error:
        reftile.launch(copy(), (1,), (huge, huge, 16), backend="cuda")
    assert error.value.diagnosis.rule == "cuda.out_of_memory"


ILLEGAL = f"""\
import numpy, reftile
from reftile.ir.parse import parse
from reftile.lower.ptx.assemble import find_ptxas
from reftile.rt.backend import compiled_for
kernel = parse({COPY!r}).kernel()
try:
    compiled = compiled_for(kernel, 0)
    compiled((3,), (4096, 8192, 40))
    x, y = numpy.zeros((16, 64), "f4"), numpy.zeros((16, 64), "f4")
    reftile.launch(kernel, (1,), (x, y, 16), backend="cuda")
except reftile.ReftileError as error:
    print(error)
"""


def test_an_illegal_address_names_the_kernel_and_the_way_to_find_it() -> None:
    done = subprocess.run(
        [sys.executable, "-c", ILLEGAL], capture_output=True, text=True, check=False, timeout=120
    )
    assert "error[cuda.illegal_address]" in done.stdout, done
    assert "`copy` over (3,)" in done.stdout
    assert "reftile check" in done.stdout
    assert "Traceback" not in done.stderr


WITHOUT_THE_DRIVERS_CACHE = """\
import sys
from pathlib import Path
import numpy
from reftile.ir.parse import parse
from reftile.lower.ptx.assemble import find_ptxas
from reftile.rt.cache import Cache
from reftile.rt.compile import compile_kernel
import torch
name, folder, rows = sys.argv[1:]
kernel = parse(Path(name).read_text("utf-8")).kernel()
x = torch.randn(int(rows), 64, device="cuda")
y = torch.zeros_like(x)
torch.cuda.synchronize()
compiled = compile_kernel(kernel, 0, cached=Cache(Path(folder)))
compiled((3,), (x, y, int(rows)))
torch.cuda.synchronize()
print(compiled.kind, compiled.from_disk, bool(torch.equal(x, y)))
"""


def test_where_the_driver_keeps_nothing_the_cache_holds_a_cubin_of_ptxas(
    torch: Any, tmp_path: Path
) -> None:
    if find_ptxas() is None:
        pytest.skip("there is no ptxas here")
    source = tmp_path / "copy.tile"
    source.write_text(COPY, "utf-8")
    said: list[str] = []
    for _ in range(3):
        done = subprocess.run(
            [
                sys.executable,
                "-c",
                WITHOUT_THE_DRIVERS_CACHE,
                str(source),
                str(tmp_path / "cache"),
                str(ROWS),
            ],
            capture_output=True,
            text=True,
            check=False,
            timeout=120,
            env={**os.environ, "CUDA_CACHE_DISABLE": "1"},
        )
        assert done.returncode == 0, done.stderr
        said.append(done.stdout.strip())
    assert said == ["ptx False True", "ptx True True", "cubin True True"]
