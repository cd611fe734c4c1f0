"""Compiling that takes long says so on a terminal, and Ctrl-C while it runs leaves no trace."""

from __future__ import annotations

import io
import os
import signal
import threading
from collections.abc import Callable, Generator
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import reftile
import reftile.lang as ct
from reftile.lower.cpu.functions import compiler, kept
from reftile.rt.cpu import code, launch_cpu
from reftile.rt.cpu.code import CodeCache
from reftile.rt.cpu.progress import PATIENCE_SECONDS, ProgressLine

ERASED = "\r\x1b[K"


class Terminal(io.StringIO):
    """Standard error that somebody looks at."""

    def isatty(self) -> bool:
        return True


class Clock:
    """Time that passes when the test says so; its timers are those of `ProgressLine`."""

    def __init__(self) -> None:
        self.now = 0.0
        self.waiting: list[ClockTimer] = []

    def timer(self, seconds: float, act: Callable[[], None]) -> ClockTimer:
        return ClockTimer(self, seconds, act)

    def advance(self, seconds: float) -> None:
        self.now += seconds
        for timer in [t for t in self.waiting if t.due <= self.now]:
            self.waiting.remove(timer)
            timer.act()


class ClockTimer:
    def __init__(self, clock: Clock, seconds: float, act: Callable[[], None]) -> None:
        self.clock, self.due, self.act = clock, clock.now + seconds, act

    def start(self) -> None:
        self.clock.waiting.append(self)

    def cancel(self) -> None:
        if self in self.clock.waiting:
            self.clock.waiting.remove(self)

    def join(self) -> None:
        assert self not in self.clock.waiting, "it would wait for ever"


@pytest.fixture
def clock() -> Clock:
    return Clock()


def look(monkeypatch: pytest.MonkeyPatch) -> Terminal:
    """Make standard error a terminal; pytest sets it anew between fixtures and test."""
    found = Terminal()
    monkeypatch.setattr("sys.stderr", found)
    return found


def test_what_takes_two_seconds_is_named_until_it_is_done(
    clock: Clock, monkeypatch: pytest.MonkeyPatch
) -> None:
    terminal = look(monkeypatch)
    assert PATIENCE_SECONDS == 2.0
    with ProgressLine("attention", clock.timer):
        clock.advance(1.99)
        assert terminal.getvalue() == ""
        clock.advance(0.02)
        assert "compiling `attention`" in terminal.getvalue()
        assert "\n" not in terminal.getvalue()
    assert terminal.getvalue().endswith(ERASED)


def test_what_takes_less_shows_nothing_then_or_later(
    clock: Clock, monkeypatch: pytest.MonkeyPatch
) -> None:
    terminal = look(monkeypatch)
    with ProgressLine("add", clock.timer):
        clock.advance(1.99)
    clock.advance(100)
    assert terminal.getvalue() == "" and clock.waiting == []


def test_a_line_is_erased_after_an_error_too(clock: Clock, monkeypatch: pytest.MonkeyPatch) -> None:
    terminal = look(monkeypatch)
    with pytest.raises(KeyboardInterrupt), ProgressLine("add", clock.timer):
        clock.advance(3)
        raise KeyboardInterrupt
    assert terminal.getvalue().endswith(ERASED)


@pytest.mark.parametrize("stream", [io.StringIO(), None])
def test_nothing_is_shown_where_nobody_looks(
    clock: Clock, monkeypatch: pytest.MonkeyPatch, stream: io.StringIO | None
) -> None:
    monkeypatch.setattr("sys.stderr", stream)
    with ProgressLine("add", clock.timer):
        clock.advance(100)
    assert stream is None or stream.getvalue() == ""


def test_the_timer_of_a_process_fires_and_stops(monkeypatch: pytest.MonkeyPatch) -> None:
    terminal = look(monkeypatch)
    monkeypatch.setattr("reftile.rt.cpu.progress.PATIENCE_SECONDS", 0.0)
    line = ProgressLine("product")
    with line:
        assert line.timer is not None
        line.timer.join()
        assert "compiling `product`" in terminal.getvalue()
    assert terminal.getvalue().endswith(ERASED)


@reftile.kernel
def grow(x, y, factor: ct.Constant[int]):
    i = ct.bid(0)
    ct.store(y, (i,), ct.exp(ct.load(x, (i,), (8,))) * factor)


def launch_grow(factor: int) -> tuple[np.ndarray, float]:
    """What a kernel of its own for each factor gives, and the seconds of compiling."""
    x, y = np.arange(16, dtype=np.float32), np.zeros(16, np.float32)
    found = grow.specialise(x, y, factor)
    report = launch_cpu(found.kernel, (2,), found.values)
    assert np.allclose(y, factor * np.exp(x), rtol=1e-5, atol=0)
    return y, report.compiled_seconds


@pytest.fixture
def cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> CodeCache:
    """An empty cache."""
    monkeypatch.setenv("REFTILE_CACHE", str(tmp_path))
    return CodeCache()


def test_kernels_that_compile_long_are_named(
    cache: CodeCache, clock: Clock, monkeypatch: pytest.MonkeyPatch
) -> None:
    terminal = look(monkeypatch)
    compile_kernel: Any = code._compile  # type: ignore[reportPrivateUsage]
    duration = 1.0

    def compile_slowly(*args: object) -> object:
        clock.advance(duration)
        return compile_kernel(*args)

    monkeypatch.setattr(code, "_compile", compile_slowly)
    monkeypatch.setattr(code, "ProgressLine", lambda name: ProgressLine(name, clock.timer))
    assert launch_grow(3)[1] > 0
    assert terminal.getvalue() == ""
    duration = 3.0
    assert launch_grow(4)[1] > 0
    assert "compiling `grow`" in terminal.getvalue()
    shown = terminal.getvalue()
    assert launch_grow(4)[1] == 0.0
    assert terminal.getvalue() == shown, "what is kept is not compiled"


MOMENTS = {
    "lowering": (compiler._Lowering, "statement"),
    "a function is compiled": (kept._Kept, "save_overload"),
    "passes": (compiler, "_object_code"),
    "storing": (os, "replace"),
}


@pytest.fixture
def hears_interrupts() -> Generator[None]:
    """What runs in the background of a script is born deaf to Ctrl-C."""
    before = signal.signal(signal.SIGINT, signal.default_int_handler)
    yield
    signal.signal(signal.SIGINT, before)


@pytest.mark.usefixtures("hears_interrupts")
@pytest.mark.parametrize("moment", MOMENTS)
def test_ctrl_c_while_compiling_leaves_no_trace(
    cache: CodeCache, monkeypatch: pytest.MonkeyPatch, moment: str
) -> None:
    before, _ = launch_grow(5)
    for function in compiled_functions():
        function.overloads.clear()
    for entry in cache.entries():
        cache.place(entry.key).unlink()
    owner, name = MOMENTS[moment]
    act = getattr(owner, name)
    calls = 0

    def interrupted(*args: Any) -> Any:
        nonlocal calls
        calls += 1
        if calls == 1:
            signal.raise_signal(signal.SIGINT)
        return act(*args)

    factor = 100 + list(MOMENTS).index(moment)
    with monkeypatch.context() as patch:
        patch.setattr(owner, name, interrupted)
        with pytest.raises(KeyboardInterrupt):
            launch_grow(factor)
    assert calls == 1, "the moment came"
    assert [f.name for f in cache.folder.glob("*") if f.suffix != ".entry"] == []
    seconds: list[float] = []
    another = threading.Thread(target=lambda: seconds.append(launch_grow(factor)[1]), daemon=True)
    another.start()
    another.join(60)
    assert seconds and seconds[0] > 0, "no lock is held"
    assert launch_grow(factor)[1] == 0.0
    assert np.array_equal(launch_grow(5)[0], before)


def compiled_functions() -> list[Any]:
    """The functions of kernels that numba compiles."""
    return [
        f for f in code.namespace().values() if isinstance(getattr(f, "_cache", None), kept._Kept)
    ]
