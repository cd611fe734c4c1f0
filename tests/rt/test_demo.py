"""The demo's part for GPUs, on a driver that records what it is given."""

from __future__ import annotations

from importlib import import_module
from pathlib import Path

import pytest

from reftile.rt import launcher
from tests.rt.fake_driver import FakeDriver

EXAMPLES = Path(__file__).resolve().parents[2] / "examples"


@pytest.mark.parametrize("name", ["HOPPER", "AMPERE"])
def test_a_launch_is_repeated_and_timed_and_its_memory_given_back(
    name: str, fake: FakeDriver, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.syspath_prepend(EXAMPLES)  # pyright: ignore[reportUnknownMemberType]
    monkeypatch.setenv("REFTILE_CACHE", str(tmp_path))
    monkeypatch.setattr(launcher, "encode", lambda *_: bytes(128))
    gpu = import_module("attention_gpu")
    version = getattr(gpu, name)
    launch = version.launch(version.arrays(1, 64), True, 1)
    compiled, milliseconds = gpu.run_on_gpu(launch, times=3)
    assert compiled.target == "sm_90a"
    assert milliseconds == 1.5
    assert [found.grid for found in fake.launches] == [(1, 1, 1)] * 4
    assert not fake.memory
