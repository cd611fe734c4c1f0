"""Run the cases of an example, compare them with float64 and print a table.

An example is a file with kernels, a `reference` in float64 and `cases()`. A `Case` is one launch
with inputs that are always the same, and with what must come out: for each output an `Estimate`,
values and the bound on their error. `main(cases)` runs them all, with every check on:

    python examples/softmax.py                       the table
    python examples/softmax.py --schedule topo       blocks and operations in another legal order
    python examples/softmax.py --fast                without checks, all blocks at once
    python examples/softmax.py --show                the tile IR of each kernel
"""

from __future__ import annotations

import argparse
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import ml_dtypes
import numpy as np
from bounds import Estimate

from reftile import KernelFunction, ReftileError
from reftile.interp.launch import Report, Uninitialized, interpret
from reftile.ir.core import Kernel
from reftile.ir.print import show
from reftile.rt.cpu import launch_cpu

Progress = Callable[[int, int], None]


@dataclass(frozen=True)
class Case:
    """One launch of a kernel.

    arguments: by parameter, in order. expected: by name of an output, what must be in it. starts:
    the outputs whose contents before the launch count; no other output may be read before it
        is written, and every element of it must be written.
    schedules: the orders that `all_schedules` tries, as (schedule, seed).
    large: takes many seconds with checks on; run when asked for by name.
    """

    name: str
    kernel: KernelFunction
    grid: tuple[int, ...]
    arguments: dict[str, Any]
    expected: dict[str, Estimate]
    starts: tuple[str, ...] = ()
    schedules: tuple[tuple[str, int], ...] = (("topo", 1), ("adversarial", 0))
    large: bool = False


@dataclass(frozen=True)
class Outcome:
    """What a run gave. ratio: the greatest error over its bound; at most 1 is right."""

    case: Case
    report: Report
    results: dict[str, np.ndarray]
    ratio: float
    worst: str
    seconds: float
    notes: tuple[str, ...] = field(default=())

    @property
    def passed(self) -> bool:
        """Whether every element lies within its bound."""
        return self.ratio <= 1.0


def run(
    case: Case,
    *,
    check: bool = True,
    schedule: str = "program",
    seed: int = 0,
    progress: Progress | None = None,
) -> Outcome:
    """Run a case on the interpreter, on copies of its arrays, and compare.

    Raises:
        ReftileError: the kernel broke a rule of the language while it ran.
    """
    copies = {k: v.copy() if isinstance(v, np.ndarray) else v for k, v in case.arguments.items()}
    began = time.perf_counter()
    kernel, values = specialise(case, copies, check)
    report = interpret(
        kernel,
        case.grid,
        values,
        check=check,
        schedule=schedule,  # type: ignore[arg-type]
        seed=seed,
        progress=progress,
    )
    seconds = time.perf_counter() - began
    results = {name: copies[name] for name in case.expected}
    ratio, worst = compare(results, case.expected)
    return Outcome(case, report, results, ratio, worst, seconds)


def families() -> list[str]:
    """The names of the examples that have cases."""
    files = Path(__file__).parent.glob("*.py")
    return sorted(p.stem for p in files if "\ndef cases(" in p.read_text("utf-8"))


def run_compiled(case: Case) -> tuple[float, str, float]:
    """Run a case compiled for this CPU, unchecked, and compare.

    Returns the greatest error over its bound, where that is, and the seconds that a launch takes
    once the kernel is compiled.

    Raises:
        ReftileError: the case cannot be compiled for a CPU.
    """
    _launch_compiled(case)
    results, seconds = _launch_compiled(case)
    return *compare(results, case.expected), seconds


def _launch_compiled(case: Case) -> tuple[dict[str, np.ndarray], float]:
    copies = {k: v.copy() if isinstance(v, np.ndarray) else v for k, v in case.arguments.items()}
    found = case.kernel.specialise(**copies)
    began = time.perf_counter()
    launch_cpu(found.kernel, case.grid, found.values)
    return {name: copies[name] for name in case.expected}, time.perf_counter() - began


def specialise(
    case: Case, arguments: dict[str, Any] | None = None, check: bool = True
) -> tuple[Kernel, list[Any]]:
    """The kernel of the IR for a case, and what the interpreter takes for each of its arguments.

    Outputs whose contents do not count are wrapped, so that reading them first is found.
    """
    given = case.arguments if arguments is None else arguments
    found = case.kernel.specialise(**given)
    if not check:
        return found.kernel, found.values
    fresh = {id(given[name]) for name in case.expected if name not in case.starts}
    return found.kernel, [Uninitialized(v) if id(v) in fresh else v for v in found.values]


def compare(results: dict[str, np.ndarray], expected: dict[str, Estimate]) -> tuple[float, str]:
    """The greatest error over its bound, and where it is. An exact element has the bound 0."""
    ratio, worst = -1.0, ""
    for name, wanted in expected.items():
        found = results[name].astype(np.float64)
        if found.shape != wanted.value.shape:
            raise ValueError(f"`{name}` has shape {found.shape}, expected {wanted.value.shape}")
        with np.errstate(invalid="ignore", divide="ignore"):
            error = np.abs(found - wanted.value)
            error[(found == wanted.value) | (np.isnan(found) & np.isnan(wanted.value))] = 0.0
            over = np.where(error == 0.0, 0.0, error / wanted.error)
        over = np.where(np.isnan(over), np.inf, over)
        place = np.unravel_index(int(np.argmax(over)), over.shape)
        if float(over[place]) > ratio:
            ratio = float(over[place])
            index = ", ".join(str(int(i)) for i in place)
            worst = f"{name}[{index}] is {found[place]:.6g}, exact {wanted.value[place]:.6g}"
    return ratio, worst


# Inputs


def seeded(seed: int) -> np.random.Generator:
    """Random numbers that are the same in every run."""
    return np.random.default_rng(seed)


def numpy_dtype(name: str) -> np.dtype[Any]:
    """The dtype called `name`, NumPy's or one of ml_dtypes."""
    return np.dtype(getattr(ml_dtypes, name, None) or name)


def normal(rng: np.random.Generator, shape: Sequence[int], dtype: str) -> np.ndarray:
    """Normally distributed numbers in `dtype`."""
    return rng.standard_normal(tuple(shape)).astype(numpy_dtype(dtype))


def output(shape: Sequence[int], dtype: str) -> np.ndarray:
    """An array to be written. It holds rubbish, so that what is left out shows."""
    array = np.zeros(tuple(shape), numpy_dtype(dtype))
    array.view(np.uint8)[...] = 0x7F
    return array


# Scripts


def all_schedules(case: Case) -> Iterator[Outcome]:
    """Run a case in each of its schedules, beginning with the order of the text."""
    yield run(case)
    for schedule, seed in case.schedules:
        yield run(case, schedule=schedule, seed=seed)


def tile_ir(case: Case) -> str:
    """The tile IR of the case's kernel, specialised for its arguments."""
    return show(case.kernel.trace(**case.arguments))


def main(make_cases: Callable[[], Sequence[Case]], argv: Sequence[str] | None = None) -> None:
    """The command line of an example."""
    parser = argparse.ArgumentParser(description="Run an example on the interpreter.")
    parser.add_argument("names", nargs="*", help="parts of the names of the cases to run; all")
    parser.add_argument("--schedule", choices=("program", "topo", "adversarial"))
    parser.add_argument("--seed", type=int, default=0, help="of the schedule")
    parser.add_argument("--fast", action="store_true", help="no checks, all blocks at once")
    parser.add_argument("--show", action="store_true", help="print the tile IR")
    options = parser.parse_args(argv)
    print(f"{'case':38} {'blocks':>6} {'accesses':>8} {'error/bound':>11} {'time':>7}  verdict")
    failed = False
    for case in make_cases():
        wanted = any(part in case.name for part in options.names)
        if not wanted and (options.names or case.large):
            continue
        if options.show:
            print(tile_ir(case))
        schedule = options.schedule or "program"
        try:
            outcome = run(case, check=not options.fast, schedule=schedule, seed=options.seed)
        except ReftileError as error:
            refused = options.fast and error.diagnosis.rule.startswith("batched.")
            text = (
                f"only with checks: {error.diagnosis.message}" if refused else f"STOPPED\n{error}"
            )
            print(f"{case.name:38} {text}")
            failed |= not refused
            continue
        verdict = "pass" if outcome.passed else f"FAIL: {outcome.worst}"
        print(
            f"{case.name:38} {outcome.report.blocks:6} {outcome.report.operations:8} "
            f"{outcome.ratio:11.3f} {outcome.seconds:6.2f}s  {verdict}",
            flush=True,
        )
        failed |= not outcome.passed
    sys.exit(failed)
