"""The progress bar: only on terminals, only when it takes long, also inside long blocks."""

from __future__ import annotations

import os
import pty
import subprocess
import sys
from pathlib import Path

import pytest

from reftile import progress
from reftile.progress import ProgressBar
from tests.interrupts import hear_interrupts

SCRIPT = """
import sys
import numpy as np
import reftile
import reftile.lang as ct
from reftile import progress

progress.PATIENCE_SECONDS = {patience}

@reftile.kernel
def count(x, rounds):
    i = ct.bid(0)
    total = ct.zeros((), ct.int32)
    for k in range(rounds):
        total += k
        ct.store(x, (i,), ct.full((1,), k, ct.int32))

x = np.zeros(4, np.int32)
count[(4,)](x, 1, check={check}, backend="interp")
print("ready", flush=True)
try:
    count[(4,)](x, {rounds}, check={check}, backend="interp")
except KeyboardInterrupt as stop:
    print(stop)
print("rich" in sys.modules, x.tolist())
"""


ROOT = Path(__file__).resolve().parents[1]
NEVER = 1e9
"""Seconds of patience that no launch here takes."""


def start(
    tmp_path: Path, patience: float, rounds: int, check: bool, stderr: int, first: str = ""
) -> subprocess.Popen[str]:
    """A process that launches; first: what it does before."""
    path = tmp_path / "count.py"
    path.write_text(first + SCRIPT.format(patience=patience, rounds=rounds, check=check))
    environment = {**os.environ, "TERM": "xterm", "COLUMNS": "100", "PYTHONPATH": str(ROOT)}
    return subprocess.Popen(
        [sys.executable, str(path)],
        stdout=subprocess.PIPE,
        stderr=stderr,
        text=True,
        env=environment,
        preexec_fn=hear_interrupts,
    )


def read_terminal(terminal: int) -> str:
    """What was written to a terminal that nobody has open any more."""
    text = b""
    while True:
        try:
            part = os.read(terminal, 65536)
        except OSError:  # Linux reports the end so
            part = b""
        if not part:
            return text.decode()
        text += part


def run_on_terminal(
    tmp_path: Path, patience: float, rounds: int, check: bool = True
) -> tuple[str, str]:
    """(stdout, what the terminal got) of a launch whose stderr is a terminal."""
    terminal, other = pty.openpty()
    process = start(tmp_path, patience, rounds, check, other)
    os.close(other)
    shown = read_terminal(terminal)
    os.close(terminal)
    assert process.stdout is not None
    out = process.stdout.read()
    assert process.wait() == 0
    return out, shown


@pytest.mark.parametrize("check", [True, False])
def test_a_long_launch_shows_a_bar_that_moves_inside_a_block(tmp_path: Path, check: bool) -> None:
    out, shown = run_on_terminal(tmp_path, 0.0, 600, check)
    assert "count" in shown
    assert "0/4" in shown, "no block is done when the first step is"
    assert "steps" in shown
    assert out.splitlines()[-1].endswith("[599, 599, 599, 599]")


def test_a_short_launch_shows_nothing_and_loads_nothing(tmp_path: Path) -> None:
    out, shown = run_on_terminal(tmp_path, NEVER, 3)
    assert shown == ""
    assert out.splitlines()[-1] == "False [2, 2, 2, 2]"


def test_a_long_launch_shows_nothing_in_a_pipe(tmp_path: Path) -> None:
    process = start(tmp_path, 0.0, 600, True, subprocess.PIPE)
    out, error = process.communicate()
    assert error == ""
    assert out.splitlines()[-1] == "False [599, 599, 599, 599]"


def test_nobody_is_told_where_nobody_looks(monkeypatch: pytest.MonkeyPatch) -> None:
    with ProgressBar("work") as advance:
        assert advance is None
    monkeypatch.setattr(progress, "PATIENCE_SECONDS", 100.0)
    with ProgressBar("work", enabled=True) as advance:
        assert advance is not None
        advance(1, 2)
        assert advance.bar is None


@pytest.mark.parametrize("check", [True, False])
def test_ctrl_c_leaves_the_buffers_and_says_where_it_stopped(tmp_path: Path, check: bool) -> None:
    place = "machine:run_region" if check else "batched:_run_region"
    first = "from tests.interrupts import interrupt_at\n"
    first += f"interrupt_at('reftile.interp.{place}', 1000)\n"
    process = start(tmp_path, NEVER, 1 << 30, check, subprocess.PIPE, first)
    out, error = process.communicate()
    assert error == ""
    ready, where, after = out.splitlines()
    assert ready == "ready"
    assert where.startswith("stopped in block")
    assert "count.py:1" in where
    assert "0 of 4 blocks were done" in where
    stored = int(after.split("[")[1].split(",")[0])
    assert stored > 0, "what was stored stays"
