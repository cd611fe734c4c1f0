"""What the disk keeps of compiled kernels: what a key covers, damage, many writers, full disks."""

from __future__ import annotations

import os
import resource
import shutil
import subprocess
import sys
from pathlib import Path
from types import ModuleType

import ml_dtypes
import numpy as np
import pytest

import reftile
import reftile.lang as ct
from reftile.ir.parse import parse
from reftile.lower.cpu import emit
from reftile.rt.cache import Cache
from reftile.rt.cpu import code, launch_cpu
from reftile.rt.cpu.code import CodeCache
from tests.interrupts import hear_interrupts

HERE = Path(__file__).resolve().parent

TASK = """
import sys
sys.path.insert(0, {here!r})
from numba.core import event
import numpy as np
import test_code_cache as test
from reftile.rt.cpu import code

print("ready", flush=True)
wishes = sys.stdin.readline().split()
if "changed" in wishes:
    code._sources = lambda: [b"a file that was changed"]
with event.install_recorder("numba:compile") as compiled:
    seconds = [test.work(name) for name in wishes if name != "changed"]
print(sum(s > 0 for s in seconds), sum(found.is_start for _, found in compiled.buffer))
"""
"""Runs kernels by name; prints how many were compiled, and for them how many functions."""


@reftile.kernel
def exponentials(x, y, tile: ct.Constant[int]):
    i = ct.bid(0)
    ct.store(y, (i,), ct.exp(ct.load(x, (i,), (tile,))))


@reftile.kernel
def doubled_exponentials(x, y, tile: ct.Constant[int]):
    i = ct.bid(0)
    ct.store(y, (i,), 2.0 * ct.exp(ct.load(x, (i,), (tile,))))


@reftile.kernel
def to_e4m3(x, y, tile: ct.Constant[int]):
    i = ct.bid(0)
    ct.store(y, (i,), ct.astype(ct.load(x, (i,), (tile,)), ct.float8_e4m3fn))


@reftile.kernel
def to_f16(x, y, tile: ct.Constant[int]):
    i = ct.bid(0)
    ct.store(y, (i,), ct.astype(ct.load(x, (i,), (tile,)), ct.float16))


def work(name: str) -> float:
    """Run a kernel by name, see that it is right, and return the seconds that compiling took."""
    x = np.linspace(-3, 3, 64, dtype=np.float32)
    wanted = {
        "exponentials": np.exp(x),
        "doubled_exponentials": 2 * np.exp(x),
        "to_e4m3": x.astype(ml_dtypes.float8_e4m3fn),
        "to_f16": x.astype(np.float16),
    }[name]
    y = np.zeros_like(wanted)
    found = globals()[name].specialise(x, y, 16)
    seconds = launch_cpu(found.kernel, (4,), found.values).compiled_seconds
    assert np.allclose(y.astype(np.float32), wanted.astype(np.float32), rtol=1e-5, atol=0), name
    return seconds


def start(cache: Path, limit: int | None = None, **variables: str) -> subprocess.Popen[str]:
    """A process that waits for the names of kernels. limit: bytes of the longest file."""

    def prepare() -> None:
        hear_interrupts()
        if limit is not None:
            resource.setrlimit(resource.RLIMIT_FSIZE, (limit, limit))

    process = subprocess.Popen(
        [sys.executable, "-c", TASK.format(here=str(HERE))],
        env=os.environ | {"REFTILE_CACHE": str(cache)} | variables,
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        preexec_fn=prepare,
    )
    assert process.stdout is not None
    line = process.stdout.readline()
    assert line == "ready\n", process.communicate()
    return process


def counts(process: subprocess.Popen[str], names: str) -> tuple[int, int]:
    """How many kernels, and how many functions for them, a process compiled; it says nothing."""
    out, error = process.communicate(names + "\n", timeout=300)
    assert process.returncode == 0 and error == "", error
    kernels, functions = out.split()
    return int(kernels), int(functions)


def entries(cache: Path, kind: str) -> list[Path]:
    """The files of what is kept of a kind."""
    kept = CodeCache()
    kept.folder = cache / "cpu"
    return [kept.place(e.key) for e in kept.entries() if kept.peek(e.key)["kind"] == kind]


@pytest.fixture(scope="module")
def filled(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A cache with one kernel, and the functions that it calls."""
    cache = tmp_path_factory.mktemp("filled")
    numba_folder = cache / "of numba"
    kernels, functions = counts(start(cache, NUMBA_CACHE_DIR=str(numba_folder)), "exponentials")
    assert kernels == 1 and functions > 0
    assert not numba_folder.exists(), "numba keeps nothing by itself"
    return cache


@pytest.fixture
def cache(filled: Path, tmp_path: Path) -> Path:
    """A copy of `filled`."""
    shutil.copytree(filled / "cpu", tmp_path / "cpu")
    return tmp_path


def test_another_process_compiles_nothing_that_is_kept(cache: Path) -> None:
    assert counts(start(cache), "exponentials") == (0, 0)
    assert counts(start(cache), "doubled_exponentials") == (1, 0), "its functions are kept"


def test_what_calls_a_changed_function_is_compiled_anew(cache: Path) -> None:
    kernels, functions = counts(start(cache), "changed exponentials doubled_exponentials")
    assert kernels == 2 and functions > 0


def test_what_numba_is_told_of_the_processor_is_part_of_the_key(cache: Path) -> None:
    kernels, _ = counts(start(cache, NUMBA_CPU_NAME="generic"), "exponentials")
    assert kernels == 1


def test_a_change_of_any_file_of_functions_changes_the_key(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    folder = tmp_path / "functions"
    shutil.copytree(Path(emit.__file__).parent / "functions", folder)
    before = code._identity.__wrapped__()  # type: ignore[reportPrivateUsage]
    monkeypatch.setattr(emit, "__file__", str(tmp_path / "emit.py"))
    assert code._identity.__wrapped__() == before  # type: ignore[reportPrivateUsage]
    found = {before}
    files = sorted(folder.rglob("*.py"))
    for file in files:
        text = file.read_text()
        file.write_text(text + "#")
        found.add(code._identity.__wrapped__())  # type: ignore[reportPrivateUsage]
        file.write_text(text)
    assert len(found) == 1 + len(files) > 10


def test_whatever_kernels_may_call_stands_in_those_files() -> None:
    functions = {n: v for n, v in code.namespace().items() if hasattr(v, "py_func") or is_own(v)}
    assert len(functions) > 100
    elsewhere = [n for n, v in functions.items() if home_of(v) not in homes()]
    assert elsewhere == []


def is_own(value: object) -> bool:
    """Whether it is an instruction, or code of ours."""
    if isinstance(value, ModuleType):
        return False
    return hasattr(value, "_defn") or home_of(value).startswith("reftile")


def home_of(value: object) -> str:
    function = getattr(value, "py_func", None) or getattr(value, "_defn", None) or value
    return str(getattr(function, "__module__", ""))


def homes() -> set[str]:
    """The modules whose files are part of the key."""
    root = Path(emit.__file__).parent
    files = (root / "functions").rglob("*.py")
    names = {".".join(f.relative_to(root).with_suffix("").parts) for f in files}
    return {f"reftile.lower.cpu.{n.removesuffix('.__init__')}" for n in names}


def changed(data: bytes) -> bytes:
    return data[:-9] + bytes([data[-9] ^ 1]) + data[-8:]


def test_damaged_functions_are_compiled_again(cache: Path) -> None:
    damage = [lambda data: data[: len(data) // 2], changed, lambda data: b""]
    functions = entries(cache, "function")
    for number, file in enumerate(functions):
        file.write_bytes(damage[number % 3](file.read_bytes()))
    assert counts(start(cache), "doubled_exponentials") == (1, len(functions))
    assert counts(start(cache), "exponentials doubled_exponentials") == (0, 0)


STORE = """\
tile kernel @main(%x: tile<ptr<i32>>) {{
  %v = constant {{value = {value}}} : tile<i32>
  %t = store_ptr_tko %x, %v {{ordering = weak}} : token
  return
}}
"""


def stored(value: int) -> bool:
    """Run a kernel that stores a number, and return whether it was compiled."""
    x = np.zeros(1, np.int32)
    report = launch_cpu(parse(STORE.format(value=value)), (1,), [x])
    assert x[0] == value
    return report.compiled_seconds > 0


def other_kernel(cache: Cache, first: str, second: str) -> None:
    """What is kept of another kernel, whole."""
    cache.place(first).write_bytes(cache.place(second).read_bytes())


def code_for_a_gpu(cache: Cache, first: str, second: str) -> None:
    cache.store(first, b"\x7fELF", {"kind": "cubin", "target": "sm_90"})


def what_says_nothing(cache: Cache, first: str, second: str) -> None:
    cache.store(first, b"", {})


@pytest.mark.parametrize("swap", [other_kernel, code_for_a_gpu, what_says_nothing])
def test_what_another_wrote_is_not_loaded(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, swap
) -> None:
    monkeypatch.setenv("REFTILE_CACHE", str(tmp_path))
    assert stored(1) and not stored(1)
    (first,) = CodeCache().entries()
    assert stored(2)
    (second,) = (e for e in CodeCache().entries() if e.key != first.key)
    swap(Cache(tmp_path / "cpu"), first.key, second.key)
    assert stored(1), "it was compiled anew"
    assert not stored(1) and not stored(2)


def test_processes_that_compile_different_kernels_at_once_keep_all(tmp_path: Path) -> None:
    """Two of them call the same function, with other signatures."""
    wishes = ["to_e4m3 exponentials", "to_f16 exponentials", "doubled_exponentials"]
    running = [start(tmp_path) for _ in wishes]
    for process, wish in zip(running, wishes, strict=True):
        assert process.stdin is not None
        process.stdin.write(wish + "\n")
        process.stdin.flush()
    for process, wish in zip(running, wishes, strict=True):
        assert counts(process, "")[0] <= len(wish.split())
    assert counts(start(tmp_path), "to_e4m3 to_f16 exponentials doubled_exponentials") == (0, 0)
    assert all(f.name.endswith(".entry") for f in (tmp_path / "cpu").iterdir())


def test_signatures_of_one_function_are_kept_apart(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("REFTILE_CACHE", str(tmp_path))
    """`nan_code` is called with constants for f16, and with numbers for f8."""
    assert counts(start(tmp_path), "to_f16")[0] == 1
    assert counts(start(tmp_path), "to_e4m3")[0] == 1
    shelf = code._Functions(CodeCache())  # type: ignore[reportPrivateUsage]
    shelf.store("f (int32,)", b"of i32")
    shelf.store("f (int64,)", b"of i64")
    assert shelf.find("f (int32,)") == b"of i32" and shelf.find("f (int64,)") == b"of i64"


def test_a_full_disk_only_costs_time(tmp_path: Path) -> None:
    kernels, functions = counts(start(tmp_path, limit=64), "exponentials")
    assert kernels == 1 and functions > 0
    assert list((tmp_path / "cpu").iterdir()) == []
