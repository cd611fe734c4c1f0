"""Compiling: the cache is asked before anything is lowered, and every failure is a diagnosis."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import pytest

from reftile.ir.core import Kernel
from reftile.ir.diagnostics import Bug, ReftileError
from reftile.ir.parse import parse
from reftile.ir.print import show
from reftile.lower import pipeline
from reftile.lower.ptx import assemble as ptxas
from reftile.rt import compile as compiling
from reftile.rt import devices
from reftile.rt.cache import Cache
from reftile.rt.compile import cache_key, compile_kernel, own_version
from tests.rt.fake_driver import FakeDriver
from tests.work import calls_in

EXAMPLES = Path(__file__).resolve().parents[2] / "examples" / "pipe"
FIRST_LAUNCH = b""


def read(name: str = "gemm_sm80") -> Kernel:
    return parse((EXAMPLES / f"{name}.tile").read_text("utf-8"), name).kernel()


@pytest.fixture
def lowered(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """The kernels that were lowered, in order."""
    found: list[str] = []
    lower = pipeline.lower_copy

    def counted(kernel: Kernel, *arguments: Any, **settings: Any) -> Any:
        found.append(kernel.name)
        return lower(kernel, *arguments, **settings)

    monkeypatch.setattr(compiling, "lower_copy", counted)
    return found


def test_a_kernel_is_compiled_and_left_as_it_is(fake: FakeDriver) -> None:
    kernel = read()
    before = show(kernel)
    compiled = compile_kernel(kernel, 1)
    assert show(kernel) == before
    assert (compiled.kind, compiled.from_disk, compiled.device) == ("ptx", False, 1)
    assert compiled.resources.registers == 168
    assert compiled.ptx == pipeline.lower(read(), "sm_80").ptx
    assert fake.modules == [compiled.ptx.encode() + b"\0"]
    assert compiled.function.handle == "gemm of module 1 in context 2"


def test_a_compiled_kernel_explains_itself_with_the_drivers_registers(fake: FakeDriver) -> None:
    found = compile_kernel(read(), 1).explain()
    assert (found.registers, found.kernel, found.target) == (168, "gemm", "sm_80")
    registers = next(limit for limit in found.occupancy if limit.resource == "registers")
    assert registers.sum == "65536 / (4 warps x 5376)"


def test_a_warm_start_neither_lowers_nor_verifies(
    fake: FakeDriver, tmp_path: Path, lowered: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    first = compile_kernel(read(), 1, cached=Cache(tmp_path))

    def refuse(*_: object) -> None:
        raise AssertionError("a warm start verifies nothing")

    monkeypatch.setattr(pipeline, "verify_unless_known", refuse)
    fake.log = b""  # the driver has the machine code
    second = compile_kernel(read(), 1, cached=Cache(tmp_path))
    assert lowered == ["gemm"]
    assert second.from_disk
    assert (second.ptx, second.host, second.kind) == (first.ptx, first.host, "ptx")
    assert second.resources == first.resources


def test_a_warm_start_does_little(fake: FakeDriver, tmp_path: Path) -> None:
    """It takes about 3 ms of this process's own time; bench/launch.py measures it."""
    for name in sorted(path.stem for path in EXAMPLES.glob("*sm90.tile")):
        compile_kernel(read(name), 0, cached=Cache(tmp_path))
        fake.log = b""
        kernel, warm = read(name), list[bool]()

        def start(kernel: Kernel = kernel, warm: list[bool] = warm) -> None:
            warm.append(compile_kernel(kernel, 0, cached=Cache(tmp_path)).from_disk)

        # At most 14,846.
        assert calls_in(start) < 25_000
        assert warm == [True]


@pytest.mark.parametrize("change", ["text", "plan", "target", "driver", "reftile"])
def test_the_key_depends_on_all_that_the_code_does(
    fake: FakeDriver, monkeypatch: pytest.MonkeyPatch, change: str
) -> None:
    kernel = read()
    before = cache_key(kernel, "", "sm_80")
    assert cache_key(read(), "", "sm_80") == before
    plan, target = "", "sm_80"
    match change:
        case "text":
            kernel.attributes["warps"] = 8
        case "plan":
            plan = "stages = 3"
        case "target":
            target = "sm_89"
        case "driver":
            monkeypatch.setattr(devices, "driver_version", lambda: "999.1")
        case _:
            monkeypatch.setattr(compiling, "own_version", lambda: "another")
    assert cache_key(kernel, plan, target) != before


def test_own_version_changes_with_what_decides_the_code(tmp_path: Path) -> None:
    for folder in ("lower/ptx", "ir", "cli"):
        (tmp_path / folder).mkdir(parents=True)

    def version() -> str:
        return own_version.__wrapped__(tmp_path)

    (tmp_path / "lower/ptx/emit.py").write_text("a = 1\n")
    first = version()
    (tmp_path / "cli/app.py").write_text("a = 1\n")
    (tmp_path / "ir/notes.txt").write_text("a = 1\n")
    assert version() == first
    (tmp_path / "lower/ptx/rows.toml").write_text("")
    second = version()
    assert second != first
    os.utime(tmp_path / "lower/ptx/emit.py", (1, 1))
    assert version() not in (first, second)
    assert len(own_version()) == 64


def test_the_assembler_is_told_the_registers_at_entry_if_it_asks(
    fake: FakeDriver, tmp_path: Path
) -> None:
    load = fake.do_cuModuleLoadDataEx
    used = b"ptxas info    : Used 168 registers\n"
    asking = b"(C7508) 'setmaxnreg' ignored; unable to determine register count at entry.\n"

    def speak(code: bytes, *rest: Any) -> Any:
        fake.log = used if b".minnctapersm 1\n" in code else used + asking
        return fake.CUresult.CUDA_SUCCESS, load(code, *rest)

    fake.instead["cuModuleLoadDataEx"] = speak
    first = compile_kernel(read(), 1, cached=Cache(tmp_path))
    assert ".reqntid 128, 1, 1\n.minnctapersm 1\n" in first.ptx
    assert first.resources.remarks == ()
    again = compile_kernel(read(), 1, cached=Cache(tmp_path))
    assert (again.from_disk, again.ptx) == (True, first.ptx)


def test_damaged_entries_are_compiled_again(
    fake: FakeDriver, tmp_path: Path, lowered: list[str]
) -> None:
    cache = Cache(tmp_path)
    compile_kernel(read(), 1, cached=cache)
    (entry,) = cache.entries()
    cache.place(entry.key).write_bytes(cache.place(entry.key).read_bytes()[:-9])
    assert not compile_kernel(read(), 1, cached=cache).from_disk
    cache.store(entry.key, b"code", {"kind": "ptx"})  # whole, but of another version of ours
    assert not compile_kernel(read(), 1, cached=cache).from_disk
    assert compile_kernel(read(), 1, cached=cache).from_disk
    assert len(lowered) == 3


def test_a_folder_that_cannot_be_written_only_costs_time(fake: FakeDriver, tmp_path: Path) -> None:
    blocked = tmp_path / "file"
    blocked.write_text("")
    assert not compile_kernel(read(), 1, cached=Cache(blocked)).from_disk


@pytest.mark.skipif(ptxas.find_ptxas() is None, reason="needs ptxas (extra `ptxas`)")
def test_machine_code_is_kept_once_the_driver_has_to_assemble_twice(
    fake: FakeDriver, tmp_path: Path
) -> None:
    cache = Cache(tmp_path)
    kinds = [compile_kernel(read(), 1, cached=cache).kind for _ in range(3)]
    assert kinds == ["ptx", "ptx", "cubin"]
    assert fake.modules[2].startswith(b"\x7fELF")
    third = compile_kernel(read(), 1, cached=cache)
    assert third.ptx == pipeline.lower(read(), "sm_80").ptx
    # A driver that does not take the newer assembler's code gets the text.
    load = fake.do_cuModuleLoadDataEx

    def no_cubin(code: bytes, *rest: Any) -> Any:
        if code.startswith(b"\x7fELF"):
            return (fake.CUresult.CUDA_ERROR_NO_BINARY_FOR_GPU,)
        return (fake.CUresult.CUDA_SUCCESS, load(code, *rest))

    fake.instead["cuModuleLoadDataEx"] = no_cubin
    assert compile_kernel(read(), 1, cached=cache).kind == "ptx"


def test_a_kernel_that_the_assembler_serialised_is_refused(fake: FakeDriver) -> None:
    fake.log = b"ptxas info : (C7512) Potential Performance Loss: wgmma is serialized\n"
    with pytest.raises(ReftileError) as error:
        compile_kernel(read("gemm_sm90"), 0)
    assert error.value.diagnosis.rule == "cuda.serialised"


def test_ptx_that_the_driver_refuses_is_a_diagnosis(fake: FakeDriver) -> None:
    fake.fail["cuModuleLoadDataEx"] = "INVALID_PTX"
    with pytest.raises(ReftileError) as error:
        compile_kernel(read(), 1)
    assert error.value.diagnosis.rule == "cuda.ptx"


def test_a_tile_kernel_is_refused_with_the_reason(fake: FakeDriver) -> None:
    kernel = parse("tile kernel @k(%n: tile<i32>) {\n  return\n}\n").kernel()
    with pytest.raises(ReftileError) as error:
        compile_kernel(kernel, 0)
    found = error.value.diagnosis
    assert found.rule == "cuda.level"
    assert "interp" in found.hint


def test_a_wrong_kernel_is_a_diagnosis_not_a_fault_of_ours(fake: FakeDriver) -> None:
    text = (EXAMPLES / "gemm_sm90.tile").read_text("utf-8").replace("arrivals=4", "arrivals=3")
    with pytest.raises(ReftileError) as error:
        compile_kernel(parse(text).kernel(), 0)
    assert error.value.diagnosis.rule == "pipe.arrivals"


def test_more_shared_memory_than_there_is_is_refused_with_the_sum(fake: FakeDriver) -> None:
    text = (EXAMPLES / "gemm_sm90.tile").read_text("utf-8").replace("ring<4,", "ring<6,")
    with pytest.raises(ReftileError) as error:
        compile_kernel(parse(text).kernel(), 0)
    found = error.value.diagnosis
    assert found.rule == "pipe.shared_memory"
    assert "232448" in found.message


def test_a_fault_of_a_pass_names_the_pass(
    fake: FakeDriver, monkeypatch: pytest.MonkeyPatch
) -> None:
    def break_barriers(kernel: Kernel, target: str) -> Kernel:
        kernel.body.block.ops.pop()
        return kernel

    passes = (pipeline.PIPE_TO_SIMT[0], break_barriers, *pipeline.PIPE_TO_SIMT[1:])
    monkeypatch.setattr(pipeline, "PIPE_TO_SIMT", passes)
    with pytest.raises(Bug) as error:
        compile_kernel(read(), 1)
    assert error.value.where == "pass break_barriers"
