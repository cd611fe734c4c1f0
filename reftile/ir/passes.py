"""Run passes over a kernel: verify after each, time each, keep the text after each if asked."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from time import perf_counter

from reftile.ir.core import Kernel
from reftile.ir.diagnostics import Bug, ReftileError
from reftile.ir.print import show
from reftile.ir.verify import verify

Pass = Callable[[Kernel, str], Kernel]
"""A pass takes a kernel and the target's name, and returns the kernel (changed, or a new one)."""


@dataclass(slots=True)
class PassRun:
    """What one pass did: its name, seconds (verification apart), the text after it if kept."""

    name: str
    seconds: float
    verify_seconds: float
    text: str = ""


@dataclass(slots=True)
class PassReport:
    """The kernel after all passes and one entry per pass."""

    kernel: Kernel
    runs: list[PassRun] = field(default_factory=list[PassRun])

    def after(self, name: str) -> str:
        """The text after the pass called `name`.

        Raises:
            KeyError: no such pass ran.
        """
        for run in self.runs:
            if run.name == name:
                return run.text
        raise KeyError(name)


def run_passes(
    kernel: Kernel,
    passes: Sequence[Pass],
    target: str = "",
    keep_text: bool = False,
    check_each: bool = True,
) -> PassReport:
    """Run `passes` in order.

    check_each: verify after every pass; otherwise only after the last, which takes a third of the
        time. A caller who gets a Bug then repeats the run to learn which pass is at fault.

    Raises:
        Bug: a pass left a kernel that does not verify, or raised; it names the pass and holds the
        text before.
    """
    report = PassReport(kernel)
    for number, run in enumerate(passes, 1):
        name = run.__name__
        before = show(report.kernel) if check_each else ""
        start = perf_counter()
        try:
            report.kernel = run(report.kernel, target)
        except ReftileError:
            raise
        except Exception as error:
            raise Bug(f"{type(error).__name__}: {error}", f"pass {name}", before) from error
        done = perf_counter()
        try:
            if check_each or number == len(passes):
                verify(report.kernel)
        except ReftileError as error:
            raise Bug(f"the kernel no longer verifies:\n{error}", f"pass {name}", before) from error
        text = show(report.kernel) if keep_text else ""
        report.runs.append(PassRun(name, done - start, perf_counter() - done, text))
    return report
