"""The command line on a GPU, with a driver that records what it is given."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

import reftile.cli.doctor as machine
from reftile.cli.app import execute
from reftile.ir.diagnostics import fail
from tests.rt.fake_driver import FakeDriver, install

GEMM = Path(__file__).resolve().parents[2] / "examples" / "pipe" / "gemm_sm80.tile"
ARGUMENTS = ["bf16[128,32]", "bf16[128,32]", "f32[128,128]=zeros", "128", "128", "32"]


@pytest.fixture
def fake(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> FakeDriver:
    fake = FakeDriver()
    fake.sizes = [8, 8, 8, 4, 4, 4]
    install(monkeypatch, fake)
    monkeypatch.setenv("REFTILE_CACHE", str(tmp_path))
    return fake


def run(capsys: pytest.CaptureFixture[str], *arguments: str) -> tuple[int, dict[str, Any]]:
    code = execute(["run", *arguments, "--backend", "cuda", "--json"])
    return code, json.loads(capsys.readouterr().out)


def test_a_pipe_kernel_runs_on_a_gpu(
    fake: FakeDriver, capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    assert execute(["run", str(GEMM), *ARGUMENTS, "--backend", "cuda", "--grid", "2,3"]) == 0
    out, err = capsys.readouterr()
    assert "gemm: 6 blocks" in out and "no checks" in out
    assert err.startswith("note: `gemm`: `a` (8192 bytes)")
    assert fake.launches[0].grid == (2, 3, 1)
    assert execute(["cache", "list", "--json"]) == 0
    (entry,) = json.loads(capsys.readouterr().out)["entries"]
    assert (entry["kernel"], entry["target"], entry["registers"]) == ("gemm", "sm_80", 168)


@pytest.mark.parametrize(
    ("function", "failure", "code", "rule"),
    [
        ("cuStreamSynchronize", "ILLEGAL_ADDRESS", 1, "cuda.illegal_address"),
        ("cuMemAlloc", "OUT_OF_MEMORY", 2, "cuda.out_of_memory"),
        ("cuDevicePrimaryCtxRetain", "DEVICE_UNAVAILABLE", 3, "cuda.busy"),
    ],
)
def test_what_fails_has_its_exit_code(
    fake: FakeDriver,
    capsys: pytest.CaptureFixture[str],
    function: str,
    failure: str,
    code: int,
    rule: str,
) -> None:
    fake.fail[function] = failure
    found, data = run(capsys, str(GEMM), *ARGUMENTS)
    assert (found, data["errors"][0]["rule"]) == (code, rule)


def test_a_tile_kernel_is_refused(
    fake: FakeDriver, capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    path = tmp_path / "k.tile"
    path.write_text("tile kernel @k(%n: tile<i32>) {\n  return\n}\n")
    found, data = run(capsys, str(path), "3")
    assert (found, data["errors"][0]["rule"]) == (2, "cuda.level")


def test_a_machine_without_a_gpu_is_told_and_exits_with_3(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def absent() -> Any:
        raise fail("cuda.no_driver", "the NVIDIA driver cannot be loaded", hint="install it")

    monkeypatch.setattr("reftile.rt.driver.bindings", absent)
    found, data = run(capsys, str(GEMM), *ARGUMENTS)
    assert (found, data["errors"][0]["rule"]) == (3, "cuda.no_driver")


class Library:
    """libcuda, as doctor asks it before any package."""

    def cuInit(self, flags: int) -> int:
        return 0

    def cuDeviceGetCount(self, count: Any) -> int:
        count._obj.value = 2
        return 0

    def cuDriverGetVersion(self, version: Any) -> int:
        version._obj.value = 13_000
        return 0


def nvidia(monkeypatch: pytest.MonkeyPatch) -> machine.Ability:
    def load(name: str) -> Library:
        if "cuda" not in name:
            raise OSError(name)
        return Library()

    monkeypatch.setattr(machine, "CDLL", load)
    return next(a for a in machine.examine() if a.name == "NVIDIA GPU")


def test_doctor_names_the_devices_and_their_targets(
    fake: FakeDriver, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(machine, "bindings", lambda: fake)
    found = nvidia(monkeypatch)
    assert found.available
    assert "Fake 0 (sm_90a), Fake 1 (sm_80)" in found.detail
    assert "--backend cuda" in found.detail


def test_doctor_says_what_keeps_the_gpu_from_being_used(monkeypatch: pytest.MonkeyPatch) -> None:
    def old() -> Any:
        raise fail("cuda.old_driver", "the NVIDIA driver is for CUDA 12.2", hint="install a newer")

    monkeypatch.setattr(machine, "bindings", old)
    found = nvidia(monkeypatch)
    assert not found.available
    assert "CUDA 12.2" in found.detail
    assert found.remedy == "install a newer"


def test_doctor_prints_extras_in_full(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(machine, "_version", lambda distribution: "")  # pyright: ignore
    assert execute(["doctor"]) == 0
    assert "reftile[ptxas]" in capsys.readouterr().out.replace("\n", "")


def test_doctor_says_whether_kernels_can_be_kept(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    def kept() -> machine.Ability:
        return next(a for a in machine.examine() if a.name == "kernel cache")

    monkeypatch.setenv("REFTILE_CACHE", str(tmp_path / "not" / "yet"))
    assert kept().available
    blocked = tmp_path / "file"
    blocked.write_text("")
    monkeypatch.setenv("REFTILE_CACHE", str(blocked))
    assert not kept().available
