"""One diagnosis for each thing that is missing, too old, or fails."""

from __future__ import annotations

from typing import Any

import pytest

from reftile.ir.diagnostics import ReftileError
from reftile.rt import devices, driver
from tests.rt.fake_driver import FakeDriver


def rule_of(function: Any, *arguments: Any) -> str:
    with pytest.raises(ReftileError) as error:
        function(*arguments)
    assert error.value.diagnosis.hint
    return error.value.diagnosis.rule


def test_missing_bindings_name_the_extra(monkeypatch: pytest.MonkeyPatch) -> None:
    def absent(name: str) -> Any:
        raise ImportError(name)

    monkeypatch.setattr(driver, "import_module", absent)
    with pytest.raises(ReftileError) as error:
        driver.bindings.__wrapped__()
    found = error.value.diagnosis
    assert (found.rule, found.hint) == ("cuda.no_bindings", "pip install reftile[cuda]")


def test_a_missing_driver_is_told(fake: FakeDriver) -> None:
    def absent(flags: int) -> Any:
        raise RuntimeError("Failed to dlopen libcuda.so.1")

    fake.instead["cuInit"] = absent
    assert rule_of(driver.start, fake) == "cuda.no_driver"


@pytest.mark.parametrize(
    ("failure", "rule"),
    [
        ("NO_DEVICE", "cuda.no_device"),
        ("STUB_LIBRARY", "cuda.no_driver"),
        ("SYSTEM_DRIVER_MISMATCH", "cuda.old_driver"),
        ("COMPAT_NOT_SUPPORTED_ON_DEVICE", "cuda.old_driver"),
    ],
)
def test_a_driver_that_does_not_start_is_told(fake: FakeDriver, failure: str, rule: str) -> None:
    fake.fail["cuInit"] = failure
    assert rule_of(driver.start, fake) == rule


def test_an_old_driver_is_told_with_both_versions(fake: FakeDriver) -> None:
    fake.version = 12_020
    with pytest.raises(ReftileError, match=r"for CUDA 12\.2, and 12\.7 is needed") as error:
        driver.start(fake)
    assert error.value.diagnosis.rule == "cuda.old_driver"


def test_a_new_driver_starts(fake: FakeDriver) -> None:
    driver.start(fake)
    assert fake.calls == ["cuInit", "cuDriverGetVersion"]


@pytest.mark.parametrize(
    ("failure", "rule", "lost"),
    [
        ("OUT_OF_MEMORY", "cuda.out_of_memory", False),
        ("ILLEGAL_ADDRESS", "cuda.illegal_address", True),
        ("MISALIGNED_ADDRESS", "cuda.illegal_address", True),
        ("ILLEGAL_INSTRUCTION", "cuda.illegal_instruction", True),
        ("LAUNCH_FAILED", "cuda.launch_failed", True),
        ("LAUNCH_TIMEOUT", "cuda.timeout", True),
        ("UNSUPPORTED_PTX_VERSION", "cuda.old_driver", False),
        ("NOT_INITIALIZED", "cuda.forked", False),
        ("NO_BINARY_FOR_GPU", "cuda.target", False),
    ],
)
def test_failures_have_a_rule_of_their_own(
    fake: FakeDriver, failure: str, rule: str, lost: bool
) -> None:
    status = getattr(fake.CUresult, f"CUDA_ERROR_{failure}")
    found = driver.error_of(fake, status, "doing it").diagnosis
    assert found.rule == rule
    assert f"doing it failed: {failure}" in found.message
    assert driver.is_lost(status) is lost
    assert found.hint


def test_targets_are_those_of_the_devices(fake: FakeDriver) -> None:
    assert (devices.target(0), devices.target(1)) == ("sm_90a", "sm_80")
    with pytest.raises(ReftileError, match="there is no device 2"):
        devices.target(2)


@pytest.mark.parametrize(
    ("target", "device", "fits"),
    [
        ("sm_90a", 0, True),
        ("sm_80", 0, True),
        ("sm_80", 1, True),
        ("sm_89", 1, False),
        ("sm_90a", 1, False),
        ("sm_100a", 0, False),
        ("gfx942", 0, False),
        ("", 0, False),
    ],
)
def test_kernels_for_other_devices_are_refused(
    fake: FakeDriver, target: str, device: int, fits: bool
) -> None:
    if fits:
        devices.check_target("k", target, device)
    else:
        assert rule_of(devices.check_target, "k", target, device) == "cuda.target"


def test_a_device_is_current_only_for_as_long_as_it_is_needed(fake: FakeDriver) -> None:
    fake.context = 1
    with devices.on_device(1):
        assert devices.current_device() == 1
        with devices.on_device(1):
            pass
        assert devices.current_device() == 1
    assert devices.current_device() == 0


def test_another_context_of_the_same_device_stays_current(fake: FakeDriver) -> None:
    fake.context = 1
    devices.ensure_context(0)
    assert "cuCtxSetCurrent" not in fake.calls


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
