"""The runtime on a real GPU: `pytest -m gpu tests/rt`. Needs torch there."""

from __future__ import annotations

import math
from pathlib import Path
from typing import Any

import pytest

from reftile.ir.diagnostics import ReftileError
from reftile.ir.parse import parse
from reftile.lower.pipeline import Lowered, lower
from reftile.rt.cache import Cache
from reftile.rt.jit import load
from reftile.rt.launcher import Launcher

pytestmark = pytest.mark.gpu
EXAMPLES = Path(__file__).resolve().parents[2] / "examples" / "pipe"


def lowered(name: str) -> Lowered:
    return lower(parse((EXAMPLES / f"{name}.tile").read_text(), name).kernel(), "sm_90a")


def launcher(name: str, cache: Cache | None = None) -> Launcher:
    found = lowered(name)
    function = load(found.ptx, found.host.entry, found.host.shared_bytes, cache)
    return Launcher(found.host, function)


@pytest.fixture
def torch() -> Any:
    return pytest.importorskip("torch")


@pytest.mark.parametrize("from_disk", [False, True])
def test_gemm_is_right_afresh_and_from_the_cache(
    torch: Any, tmp_path: Path, from_disk: bool
) -> None:
    cache = Cache(tmp_path)
    launch = launcher("gemm_sm90", cache)
    if from_disk:
        launch = launcher("gemm_sm90", cache)
    assert launch.function.resources.registers == 168
    assert launch.function.resources.spill_bytes == 0
    a, b = (torch.randn(2048, 448, device="cuda", dtype=torch.bfloat16) for _ in "ab")
    c = torch.full((2048, 2048), math.nan, device="cuda", dtype=torch.bfloat16)
    stream = torch.cuda.current_stream().cuda_stream
    launch((128,), [a, b, c, 2048, 2048, 448], stream)
    torch.cuda.synchronize()
    wanted = a.double() @ b.double().T
    assert ((c.double() - wanted).norm() / wanted.norm()).item() < 3e-3


def test_arrays_of_the_host_are_refused(torch: Any) -> None:
    launch = launcher("gemm_sm90")
    a = torch.randn(2048, 64, dtype=torch.bfloat16)
    with pytest.raises(ReftileError) as error:
        launch((2,), [a, a, a, 2048, 256, 64])
    assert error.value.diagnosis.rule == "cuda.host_array"


def test_what_the_kernel_requires_is_checked(torch: Any) -> None:
    launch = launcher("gemm_sm90")
    a = torch.randn(2048, 64, device="cuda", dtype=torch.bfloat16)
    with pytest.raises(ReftileError):
        launch((2,), [a, a, a, 2048, 256, 63])


def test_launches_are_captured_in_a_graph(torch: Any) -> None:
    launch = launcher("gemm_sm90")
    a, b = (torch.randn(2048, 64, device="cuda", dtype=torch.bfloat16) for _ in "ab")
    c = torch.zeros(2048, 2048, device="cuda", dtype=torch.bfloat16)
    launch((16,), [a, b, c, 2048, 2048, 64], torch.cuda.current_stream().cuda_stream)
    torch.cuda.synchronize()
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        stream = torch.cuda.current_stream().cuda_stream
        launch((16,), [a, b, c, 2048, 2048, 64], stream)
    c.fill_(math.nan)
    graph.replay()
    torch.cuda.synchronize()
    wanted = a.double() @ b.double().T
    assert ((c.double() - wanted).norm() / wanted.norm()).item() < 3e-3


def test_bad_ptx_is_diagnosed(torch: Any) -> None:
    torch.zeros(1, device="cuda")
    with pytest.raises(ReftileError) as error:
        load(".version 8.4\n.target sm_80\n.address_size 64\nnonsense", "empty", 0, None)
    assert error.value.diagnosis.rule == "cuda.ptx"
