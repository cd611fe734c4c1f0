"""Kernels of cuTile Python, run by reftile; skipped where cuda-tile is not installed."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from importlib import import_module
from pathlib import Path
from typing import Any

import ml_dtypes
import numpy as np
import pytest

from reftile.interop import cutile, cutile_hooks
from reftile.interop.cutile_assumptions import unit_stride_promises, withdraw
from reftile.interop.cutile_judge import distance, unit_names
from reftile.interop.cutile_torch import cuda_on_cpu
from reftile.ir.diagnostics import ReftileError
from reftile.ir.parse import parse

ct = pytest.importorskip("cuda.tile", reason="cuda-tile is not installed")
if ct.__version__ not in cutile_hooks.PINNED:
    pytest.skip(f"cuda-tile {ct.__version__} is not one that is known", allow_module_level=True)


@ct.kernel
def scale_add(a, b, c, factor, tile: ct.Constant[int]):  # type: ignore[no-untyped-def]
    i = ct.bid(0)
    ct.store(c, (i,), ct.load(a, (i,), (tile,)) * factor + ct.load(b, (i,), (tile,)))


@ct.kernel
def double(a, b, tile: ct.Constant[int]):  # type: ignore[no-untyped-def]
    t = ct.load(a, (ct.bid(0),), (tile,))
    ct.store(b, (ct.bid(0),), t + t)


@ct.kernel
def shift(a, tile: ct.Constant[int]):  # type: ignore[no-untyped-def]
    i = ct.bid(0)
    ct.store(a, (i,), ct.load(a, (i + 1,), (tile,)))


@ct.kernel
def total(arrays, out, tile: ct.Constant[int]):  # type: ignore[no-untyped-def]
    acc = ct.zeros((tile,), ct.float32)
    for i in range(len(arrays)):
        acc += ct.load(arrays[i], (0,), (tile,))
    ct.store(out, (0,), acc)


@ct.kernel
def copy_column(a, b, tile: ct.Constant[int]):  # type: ignore[no-untyped-def]
    ct.store(b, (0, 0), ct.load(a, (0, 0), (tile, 1)))


@ct.kernel
def say(a):  # type: ignore[no-untyped-def]
    ct.printf("block %d: %d\n", ct.bid(0), ct.load(a, (0,), (2,)))


@ct.kernel
def demand(a):  # type: ignore[no-untyped-def]
    ct.assert_(ct.load(a, (0,), (4,)) > 1, "too small")


@ct.kernel
def beyond(a, b):  # type: ignore[no-untyped-def]
    ct.scatter(b, ct.arange(4, dtype=ct.int32) + 2, ct.gather(a, ct.arange(4, dtype=ct.int32)))


def descend(value, depth):  # type: ignore[no-untyped-def]
    if depth > 0:
        value = descend(value, depth - 1) + 1
    return value


@ct.kernel
def deep(a, depth: ct.Constant[int]):  # type: ignore[no-untyped-def]
    ct.store(a, (0,), descend(ct.load(a, (0,), (1,)), depth))


@ct.kernel
def nothing():  # type: ignore[no-untyped-def]
    pass


def floats(count: int) -> Any:
    return np.arange(count, dtype=np.float32)


def test_a_kernel_runs_on_arrays_of_numpy() -> None:
    a, b, c = floats(200), floats(200) + 1, np.zeros(200, np.float32)
    report: Any = cutile.run(scale_add, 4, (a, b, c, 2.0, 64))
    assert np.array_equal(c, 2 * a + b)
    assert (report.blocks, report.checked) == (4, True)


def test_a_kernel_runs_on_tensors_of_torch() -> None:
    torch: Any = pytest.importorskip("torch")
    a, b, c = torch.arange(200.0), torch.ones(200), torch.zeros(200)
    cutile.run(scale_add, (4,), (a, b, c, 3.0, 64))
    assert torch.equal(c, 3 * a + 1)


def test_tensors_of_torch_stay_on_the_cpu_for_everybody_else() -> None:
    torch: Any = pytest.importorskip("torch")
    before = torch._C._to_dlpack
    a = torch.arange(64.0)
    with cutile.on_host():
        ct.launch(0, (1,), scale_add, (a, a, torch.zeros(64), 3.0, 64))
        assert np.from_dlpack(a).sum() == a.sum()
    assert torch._C._to_dlpack is before
    assert np.from_dlpack(a)[5] == 5


@pytest.mark.parametrize("dtype", ["float16", "float64", "bfloat16", "int8", "uint32", "int64"])
def test_dtypes_pass_as_they_are(dtype: str) -> None:
    kind = np.dtype(getattr(ml_dtypes, dtype, None) or dtype)
    a, c = np.arange(64).astype(kind), np.zeros(64, kind)
    cutile.run(double, 2, (a, c, 32))
    assert np.array_equal(c, a + a)


def test_strided_arrays_are_used_in_place() -> None:
    a, c = floats(128), np.zeros(128, np.float32)
    cutile.run(scale_add, 2, (a[::2], a[1::2], c[::2], 1.0, 32))
    assert np.array_equal(c[::2], a[::2] + a[1::2])
    assert not c[1::2].any()


def test_lists_of_arrays_lead_to_their_memory() -> None:
    a, b, out = floats(32), floats(32) * 10, np.zeros(16, np.float32)
    cutile.run(total, 1, ([a[:16], b[16:]], out, 16))
    assert np.array_equal(out, a[:16] + b[16:])


@pytest.mark.filterwarnings("ignore::reftile.interop.cutile.CutileWarning")
def test_calls_may_be_deep() -> None:
    a = floats(1)
    cutile.run(deep, 1, (a, 200))
    assert a[0] == 200


def test_a_kernel_may_take_nothing() -> None:
    report: Any = cutile.run(nothing, (2, 3))
    assert report.blocks == 6


def test_a_program_launches_on_the_host_while_the_context_lasts() -> None:
    a, c = floats(64), np.zeros(64, np.float32)
    with cutile.on_host(check=False) as host:
        ct.launch(0, (2,), scale_add, (a, a, c, 1.0, 32))
        ct.launch(0, (2,), scale_add, (a, c, c, 1.0, 32))
        report: Any = host.report
    assert np.array_equal(c, 3 * a)
    assert host.launches == 2
    assert not report.checked
    with pytest.raises(RuntimeError):
        ct.launch(0, (2,), scale_add, (a, a, c, 1.0, 32))


def test_a_finding_points_at_the_authors_line() -> None:
    with pytest.raises(ReftileError) as raised:
        cutile.run(shift, 3, (floats(128), 32))
    found = raised.value.diagnosis
    assert found.rule == "race.between_blocks"
    assert "`a`" in found.message
    assert found.span.file == __file__
    assert "ct.store(a, (i,), ct.load(a, (i + 1,), (tile,)))" in str(found)


def test_an_access_beyond_an_array_is_found() -> None:
    a, b = floats(4), np.zeros(4, np.float32)
    cutile.run(beyond, 1, (a, b))  # Masked by the array's bounds.
    assert list(b) == [0, 0, 0, 1]


def test_what_a_kernel_prints_is_printed(capsys: pytest.CaptureFixture[str]) -> None:
    cutile.run(say, 2, (np.array([7, 8], np.int32),))
    assert capsys.readouterr().out == "block 0: [7, 8]\nblock 1: [7, 8]\n"


def test_a_failed_assertion_is_printed_and_raised(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(ReftileError) as raised:
        cutile.run(demand, 1, (np.array([0, 1, 2, 3], np.int32),))
    assert raised.value.diagnosis.rule == "assert.failed"
    assert "too small" in capsys.readouterr().out


def test_a_false_promise_about_one_column_is_an_error_or_a_warning() -> None:
    a = np.arange(32, dtype=np.float32).reshape(4, 8)[:, :1]
    b = np.zeros((4, 8), np.float32)[:, :1]
    with pytest.raises(ReftileError) as raised:
        cutile.run(copy_column, 1, (a, b, 4), forgive=())
    assert raised.value.diagnosis.rule == "assume.div_by"
    with pytest.warns(cutile.CutileWarning, match="axis of one element"):
        cutile.run(copy_column, 1, (a, b, 4))
    assert np.array_equal(a, b)


STRIDES = """tile kernel @k(%p: tile<ptr<f32>>, %n: tile<i32>, %s: tile<i32>) {
  %good = assume %s {div_by = 4} : tile<i32>
  %bad = assume %s {div_by = 16} : tile<i32>
  %used = assume %s {div_by = 16} : tile<i32>
  %v = make_tensor_view %p, [], [%good] : tensor_view<1xf32, strides=[?]>
  %w = make_tensor_view %p, [%n], [%bad] : tensor_view<?xf32, strides=[?]>
  %x = make_tensor_view %p, [], [%used] : tensor_view<1xf32, strides=[?]>
  %y = addi %used, %used : tile<i32>
  return
}
"""


def test_only_strides_of_one_element_are_forgiven() -> None:
    kernel = parse(STRIDES).kernels[0]
    pointer, extent, stride = kernel.arguments
    assert pointer.name == "p"
    one = unit_stride_promises(kernel, {extent: 1, stride: 4})
    assert [op.results[0].name for op in one] == ["bad"]
    assert unit_stride_promises(kernel, {extent: 2, stride: 4}) == []
    assert withdraw(one[0]).severity == "warning"
    assert unit_stride_promises(kernel, {extent: 1, stride: 4}) == []


def test_another_version_of_cutile_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(ct, "__version__", "9.9.9")
    with pytest.raises(ReftileError) as raised:
        cutile.run(shift, 1, (floats(64), 32))
    found = raised.value.diagnosis
    assert found.rule == "cutile.version"
    assert "9.9.9" in found.message
    assert "pip install cuda-tile==" in found.hint


def test_only_what_can_be_forgiven_is() -> None:
    with pytest.raises(ReftileError) as raised:
        cutile.run(shift, 1, (floats(64), 32), forgive=["races"])
    assert raised.value.diagnosis.rule == "cutile.forgive"


def test_threads_launch_what_is_theirs() -> None:
    def work(value: int) -> None:
        for _ in range(10):
            a, out = np.full(64, value, np.float32), np.zeros(64, np.float32)
            ct.launch(0, (2,), double, (a, out, 32))
            assert np.all(out == 2 * value)

    with cutile.on_host() as host, ThreadPoolExecutor(4) as pool:
        list(pool.map(work, range(4)))
    assert host.launches == 40


def test_what_is_no_kernel_is_named() -> None:
    with pytest.raises(ReftileError) as raised:
        cutile.run(floats, 1, ())
    assert raised.value.diagnosis.rule == "launch.kernel"


# torch on the CPU


def test_torch_gets_the_cpu_for_the_gpu_until_the_context_ends() -> None:
    torch: Any = pytest.importorskip("torch")
    before = torch.cuda.current_stream, torch.cuda.is_available()
    with cutile.on_host() as host, cuda_on_cpu(host.driver):
        assert torch.cuda.is_available()
        assert torch.zeros(2, device="cuda:0").device.type == "cpu"
        assert torch.zeros(2).to("cuda").cuda().device.type == "cpu"
        assert torch.abs(torch.tensor([True, False])).tolist() == [True, False]
        a = torch.ones(2, 2, dtype=torch.float16)
        assert torch.mm(a, a, out_dtype=torch.float32).dtype is torch.float32
        start, end = torch.cuda.Event(enable_timing=True), torch.cuda.Event(enable_timing=True)
        start.record()
        end.record()
        assert start.elapsed_time(end) >= 0
    assert (torch.cuda.current_stream, torch.cuda.is_available()) == before


def test_a_graph_records_launches() -> None:
    torch: Any = pytest.importorskip("torch")
    with cutile.on_host() as host, cuda_on_cpu(host.driver):
        a, b = torch.ones(64, device="cuda"), torch.zeros(64, device="cuda")
        graph = torch.cuda.CUDAGraph()
        with torch.cuda.graph(graph):
            ct.launch(torch.cuda.current_stream(), (2,), double, (a, b, 32))
            with pytest.raises(RuntimeError, match="only launches"):
                torch.ones(2)
        assert b.sum() == 0
        a.fill_(3)
        graph.replay()
        assert b.sum() == 6 * 64


def test_tuning_measures_on_the_host() -> None:
    torch: Any = pytest.importorskip("torch")
    tune: Any = pytest.importorskip("cuda.tile.tune")
    with cutile.on_host() as host, cuda_on_cpu(host.driver):
        a, b = torch.ones(64, device="cuda"), torch.zeros(64, device="cuda")
        found = tune.exhaustive_search(
            [32, 64],
            torch.cuda.current_stream(),
            grid_fn=lambda tile: (64 // tile,),
            kernel=double,
            args_fn=lambda tile: (a, b, tile),
        )
    assert found.best.config in (32, 64)
    assert b.sum() == 128


# The judge of equal bits


def test_answers_of_a_class_may_be_apart_by_twice_its_limit() -> None:
    assert unit_names({("sine", "")}, "torch.float32") == {"sine": 8}
    assert unit_names({("sqrt", "")}, "torch.float32") == {"sqrt": 1}
    assert unit_names({("div", "approx"), ("div", "")}, "torch.float32") == {"div": 5}
    assert unit_names({("sqrt", "")}, "torch.int32") == {}


def test_distances_count_the_floats_between() -> None:
    torch: Any = pytest.importorskip("torch")
    a = torch.tensor([1.0, -0.0, float("nan"), -1.0])
    b = torch.tensor([float(np.nextafter(np.float32(1), np.float32(2))), 0.0, float("nan"), -1.0])
    assert distance(a, b) == 1
    assert distance(a[1:2], torch.tensor([-(2.0**-149)])) == 1
    assert distance(a[:1], a[2:3]) is None
    assert distance(a.to(torch.bfloat16)[:1], torch.ones(1)) is None
    assert distance(torch.tensor([-1.5], dtype=torch.float64), torch.tensor([-1.5]).double()) == 0


# The plugin

SUITE = """
import cuda.tile as ct
import pytest
import torch

@ct.kernel
def shift(a, tile: ct.Constant[int]):
    i = ct.bid(0)
    ct.store(a, (i,), ct.load(a, (i + 1,), (tile,)))

@ct.kernel
def double(a, tile: ct.Constant[int]):
    i = ct.bid(0)
    ct.store(a, (i,), ct.load(a, (i,), (tile,)) * 2)

def test_double():
    a = torch.ones(64, device="cuda")
    ct.launch(torch.cuda.current_stream(), (2,), double, (a, 32))
    assert a.cpu().sum() == 128

def test_shift():
    a = torch.ones(128, device="cuda")
    ct.launch(torch.cuda.current_stream(), (3,), shift, (a, 32))

def test_slow():
    while True:
        pass
"""


UNSPECIFIED = """
import cuda.tile as ct
import torch

@ct.kernel
def widen(a, b):
    ct.store(b, (0,), ct.load(a, (0,), (8,)))

def test_widen():
    a, b = torch.ones(5, device="cuda"), torch.zeros(8, device="cuda")
    ct.launch(torch.cuda.current_stream(), (1,), widen, (a, b))
    assert b[:5].sum() == 5
"""


@pytest.fixture
def suite(tmp_path: Path) -> Iterator[Path]:
    pytest.importorskip("torch")
    (tmp_path / "test_cases.py").write_text(SUITE)
    (tmp_path / "pytest.ini").write_text("[pytest]\n")
    yield tmp_path


def run_plugin(suite: Path, *options: str) -> str:
    command = [sys.executable, "-m", "pytest", "-p", "reftile.interop.cutile_pytest", *options]
    done = subprocess.run(
        [*command, str(suite)], cwd=suite, capture_output=True, text=True, check=False
    )
    return done.stdout + done.stderr


def test_the_plugin_runs_cases_without_a_gpu(suite: Path) -> None:
    options = ("--reftile-limit", "8", "--reftile-results", "results.jsonl")
    text = run_plugin(suite, *options)
    assert "1 passed" in text, text
    assert "2 failed" in text
    assert "race.between_blocks" in text
    assert "more than 8 s" in text
    assert "no tests ran" in run_plugin(suite, *options)


def test_the_plugin_leaves_the_token_order_out(suite: Path) -> None:
    text = run_plugin(suite, "--reftile-no-tokens", "-k", "double")
    assert "race.within_block" in text


def test_the_plugin_forgives_what_it_is_asked_to(suite: Path) -> None:
    (suite / "test_cases.py").write_text(UNSPECIFIED)
    assert "poison.output" in run_plugin(suite)
    text = run_plugin(suite, "--reftile-unspecified")
    assert "1 passed" in text
    assert "forgiving unit_stride, unspecified" in text


def test_the_compiler_for_gpus_need_not_be_installed(monkeypatch: pytest.MonkeyPatch) -> None:
    compiler: Any = import_module("cuda.tile._compile")

    def missing() -> None:
        raise FileNotFoundError("tileiras")

    monkeypatch.setattr(compiler, "_find_compiler_bin", missing)
    newest = compiler._get_max_supported_bytecode_version
    with cutile_hooks.compiler_not_needed():
        found = compiler._get_max_supported_bytecode_version("/tmp", allow_dev=False)
        assert found.as_string() == cutile_hooks.PINNED[ct.__version__][0]
        with pytest.raises(FileNotFoundError):
            compiler._find_compiler_bin().run([], [])
    assert compiler._find_compiler_bin is missing
    assert compiler._get_max_supported_bytecode_version is newest


CRASHING = """
import os

import pytest


@pytest.mark.parametrize("i", range(6))
def test_case(i):
    if i == 2:
        os.abort()
"""


def test_the_plugin_goes_on_when_a_process_ends(suite: Path) -> None:
    pytest.importorskip("xdist")
    (suite / "test_cases.py").write_text(CRASHING)
    text = run_plugin(suite, "-n", "1", "--reftile-results", "results.jsonl")
    assert "1 failed, 5 passed" in text, text
    lines = [json.loads(line) for line in (suite / "results.jsonl").read_text().splitlines()]
    (crash,) = (line for line in lines if line["outcome"] == "failed")
    assert (crash["case"], crash["error"]) == ("test_cases.py::test_case[2]", "Crash")
    assert "crashed" in crash["message"]
