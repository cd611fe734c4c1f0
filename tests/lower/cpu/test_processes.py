"""Compiled kernels in many processes: one cache for all, Ctrl-C, folders that cannot be written."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

import reftile
import reftile.lang as ct
from tests.interrupts import hear_interrupts

HERE = str(Path(__file__).resolve().parent)

ADD = """
import sys
sys.path.insert(0, sys.argv[1])
import numpy as np
from test_launch_cpu import add, arrays
from reftile.rt.cpu import launch_cpu
a, b, c = arrays(4096)
found = add.specialise(a, b, c, 64)
report = launch_cpu(found.kernel, (64,), found.values, threads=1)
assert np.array_equal(c, a + b)
print(report.compiled_seconds)
"""

LONG = """
import sys
sys.path.insert(0, sys.argv[1])
import numpy as np
from test_processes import spin
from reftile.rt.cpu import launch_cpu
x = np.ones(1 << 24, np.float32)
found = spin.specialise(x, 4096)
launch_cpu(found.kernel, (1,), found.values)
print("begun", flush=True)
try:
    launch_cpu(found.kernel, (1 << 12,), found.values, threads=int(sys.argv[2]))
except KeyboardInterrupt:
    launch_cpu(found.kernel, (1,), found.values)
    print("interrupted", flush=True)
    sys.exit(0)
sys.exit("it ended by itself")
"""

ONE_BLOCK = """
import sys
sys.path.insert(0, sys.argv[1])
import numpy as np
from test_processes import turn
from reftile.rt.cpu import launch_cpu
x = np.ones(64, np.float32)
found = turn.specialise(x, 3)
launch_cpu(found.kernel, (1,), found.values)
print("begun", flush=True)
try:
    launch_cpu(found.kernel, (1,), turn.specialise(x, (1 << 31) - 1).values)
except KeyboardInterrupt:
    launch_cpu(found.kernel, (1,), found.values)
    print("interrupted", flush=True)
    sys.exit(0)
sys.exit("it ended by itself")
"""


@reftile.kernel
def turn(x, turns):
    t = ct.load(x, (0,), (64,))
    for _ in range(turns):
        t = ct.exp(t) - 1.0
    ct.store(x, (0,), t)


@reftile.kernel
def spin(x, tile: ct.Constant[int]):
    i = ct.bid(0)
    t = ct.load(x, (i,), (tile,))
    for _ in range(2000):
        t = ct.exp(t) - 1.0
    ct.store(x, (i,), t)


def start(program: str, cache: Path, *arguments: str, **variables: str) -> subprocess.Popen[str]:
    """A process of its own with a cache."""
    return subprocess.Popen(
        [sys.executable, "-c", program, *arguments],
        env=os.environ | {"REFTILE_CACHE": str(cache)} | variables,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        preexec_fn=hear_interrupts,
    )


def seconds_of(process: subprocess.Popen[str]) -> float:
    """What compiling took in a process that ended well, and said nothing else."""
    out, error = process.communicate(timeout=120)
    assert process.returncode == 0 and error == "", error
    return float(out)


def test_processes_compile_one_kernel_at_once(tmp_path: Path) -> None:
    running = [start(ADD, tmp_path, HERE) for _ in range(4)]
    for process in running:
        seconds_of(process)
    assert len(list((tmp_path / "cpu").iterdir())) == 1, "one entry, and nothing left behind"
    assert seconds_of(start(ADD, tmp_path, HERE)) == 0.0


@pytest.mark.parametrize("damage", ["cut", "changed", "empty"])
def test_damaged_code_is_compiled_again(tmp_path: Path, damage: str) -> None:
    assert seconds_of(start(ADD, tmp_path, HERE)) > 0
    (entry,) = (tmp_path / "cpu").iterdir()
    data = entry.read_bytes()
    changed = data[:-9] + bytes([data[-9] ^ 1]) + data[-8:]
    entry.write_bytes({"cut": data[: len(data) // 2], "changed": changed, "empty": b""}[damage])
    assert seconds_of(start(ADD, tmp_path, HERE)) > 0
    assert seconds_of(start(ADD, tmp_path, HERE)) == 0.0


def test_a_cache_that_cannot_be_written_to_only_costs_time(tmp_path: Path) -> None:
    (tmp_path / "file").write_bytes(b"")
    for _ in range(2):
        assert seconds_of(start(ADD, tmp_path / "file", HERE)) > 0


@pytest.mark.parametrize(("program", "threads"), [(LONG, "1"), (LONG, "2"), (ONE_BLOCK, "1")])
def test_a_long_launch_hears_ctrl_c(tmp_path: Path, program: str, threads: str) -> None:
    process = start(program, tmp_path, HERE, threads)
    assert process.stdout is not None
    assert process.stdout.readline() == "begun\n"
    time.sleep(0.5)
    process.send_signal(signal.SIGINT)
    # Were it not heard, the launch would go on for minutes.
    out, error = process.communicate(timeout=60)
    assert process.returncode == 0 and out == "interrupted\n", error
