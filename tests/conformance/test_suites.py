"""The suites pass on the interpreter, and every verdict is what it says."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from reftile.conformance.backend import (
    BatchedBackend,
    Diagnosed,
    Info,
    InterpBackend,
    Stopped,
    Unsupported,
)
from reftile.conformance.cases import Argument, Buffer, Bytes, from_memory, to_memory
from reftile.conformance.oracle.formats import FORMATS, flush
from reftile.conformance.runner import Results, Waiver, run_suites

SOME = r"^ops/(addf|addi)/(f32|i8)/"


@pytest.fixture(scope="module")
def some() -> Results:
    return run_suites("interp", ["ops"], "wimpy", SOME)


@pytest.mark.parametrize("suite", ["ops", "reject", "trap", "kernels", "litmus"])
def test_suite_passes_on_the_interpreter(suite: str) -> None:
    results = run_suites("interp", [suite], "wimpy")
    assert results.ok, [(r.id, r.message) for r in results.results if r.verdict != "pass"][:3]
    summary = results.to_json()["summary"]
    assert summary["pass"] == len(results.results)
    assert sum(summary.values()) == len(results.results)


class Broken(InterpBackend):
    """Adds one to the first byte of every output; gives up or breaks if it is told to."""

    def __init__(self, failing: int = -1, error: Exception | None = None) -> None:
        self.runs, self.failing, self.error = 0, failing, error

    def run(
        self, executable: Any, grid: tuple[int, int, int], arguments: Sequence[Argument]
    ) -> dict[str, Bytes]:
        self.runs += 1
        if self.error is not None:
            raise self.error
        outputs = super().run(executable, grid, arguments)
        if self.failing < 0 or self.runs <= self.failing:
            for data in outputs.values():
                data[0] += 1
        return outputs


def verdicts(backend: InterpBackend, filter: str = r"^ops/addi/i8/none") -> dict[str, int]:
    return run_suites(backend, ["ops"], "wimpy", filter).summary()


def test_wrong_results_fail_and_say_where() -> None:
    results = run_suites(Broken(), ["ops"], "wimpy", r"^ops/addf/f32/shape")
    (result,) = results.results
    assert result.verdict == "fail"
    assert not results.ok
    for part in ("element 0", "found", "accepted", "in0 =", "addf %", "reftile conformance run"):
        assert part in result.message


def test_results_that_come_and_go_are_flaky() -> None:
    results = run_suites(Broken(failing=1), ["ops"], "wimpy", r"^ops/addf/f32/shape")
    assert results.summary()["flaky"] == 1
    assert not results.ok


def test_unsupported_is_counted_apart() -> None:
    results = run_suites(Broken(error=Unsupported("no floats")), ["ops"], "wimpy", SOME)
    assert results.summary()["unsupported"] == len(results.results)
    assert results.summary()["pass"] == 0
    assert results.unsupported_percentage() == 100.0


def test_exceptions_of_a_backend_are_errors() -> None:
    assert (
        run_suites(Broken(error=ZeroDivisionError()), ["ops"], "wimpy", SOME).summary()["error"] > 0
    )


def test_what_the_machine_stopped_is_said_in_a_line() -> None:
    stopped = Broken(error=Stopped("cuda.illegal_address: an illegal address"))
    (result,) = run_suites(stopped, ["ops"], "wimpy", r"^ops/addf/f32/shape").results
    assert result.verdict == "error"
    assert result.message.startswith("cuda.illegal_address: an illegal address\n")
    assert "Traceback" not in result.message
    (broken,) = run_suites(
        Broken(error=ZeroDivisionError()), ["ops"], "wimpy", r"^ops/addf/f32/shape"
    ).results
    assert "Traceback" in broken.message


def test_diagnoses_of_right_programs_fail() -> None:
    diagnosed = Diagnosed(["memory.null"], "no")
    assert run_suites(Broken(error=diagnosed), ["ops"], "wimpy", SOME).summary()["fail"] > 0


def test_traps_of_a_backend_without_checks_are_unsupported() -> None:
    found = run_suites(BatchedBackend(), ["trap"], "wimpy", "memory.null").results
    verdicts = {r.id.rpartition("/")[2]: r.verdict.value for r in found}
    assert verdicts == {"faulty": "unsupported", "repaired": "pass"}


class Flushing(InterpBackend):
    """Takes subnormal f32 numbers for zeros on the way in, on the way out, or both."""

    def __init__(self, inputs: bool, outputs: bool, declared: bool) -> None:
        self.inputs, self.outputs, self.declared = inputs, outputs, declared

    def info(self) -> Info:
        return replace(super().info(), flushes=("f32",) if self.declared else ())

    def run(
        self, executable: Any, grid: tuple[int, int, int], arguments: Sequence[Argument]
    ) -> dict[str, Bytes]:
        f = FORMATS["f32"]
        if self.inputs:
            arguments = [
                replace(a, bits=flush(a.bits, f)) if isinstance(a, Buffer) else a for a in arguments
            ]
        found = super().run(executable, grid, arguments)
        if self.outputs:
            for name, data in found.items():
                found[name] = to_memory(flush(from_memory(data, "f32", data.size // 4), f), "f32")
        return found


@pytest.mark.parametrize(("inputs", "outputs"), [(True, False), (False, True), (True, True)])
def test_flushing_is_allowed_where_it_is_declared(inputs: bool, outputs: bool) -> None:
    for declared in (True, False):
        backend = Flushing(inputs, outputs, declared)
        summary = run_suites(backend, ["ops"], "wimpy", r"^ops/mulf/f32/plain").summary()
        assert summary["pass" if declared else "fail"] == 1


def test_waived_failures_are_expected() -> None:
    waiver = Waiver("addf", "adds one", "issue-1")
    results = run_suites(Broken(), ["ops"], "wimpy", r"^ops/addf/f32/shape", waivers=[waiver])
    assert results.summary()["xfail"] == 1
    assert results.ok


def test_cases_without_time_are_skipped() -> None:
    results = run_suites("interp", ["ops"], "wimpy", SOME, time_limit=0.0)
    assert results.summary()["skip"] == len(results.results) > 0


def test_unknown_names_are_refused() -> None:
    with pytest.raises(KeyError, match="interp"):
        run_suites("intrep")
    with pytest.raises(KeyError, match="trap"):
        run_suites("interp", ["traps"])


def test_inputs_depend_on_the_seed_and_the_case_alone(some: Results) -> None:
    from reftile.conformance.runner import select_cases
    from reftile.conformance.suites.common import Settings

    settings = Settings("wimpy")
    cases = list(select_cases(settings, ["ops"], r"^ops/addf/f32/shape"))
    first, again = cases[0].build(), cases[0].build()
    other = next(select_cases(replace(settings, seed=1), ["ops"], r"^ops/addf/f32/shape")).build()
    assert all(
        np.array_equal(a.bits, b.bits)  # type: ignore[union-attr]
        for a, b in zip(first.arguments, again.arguments, strict=True)
    )
    assert any(
        not np.array_equal(a.bits, b.bits)  # type: ignore[union-attr]
        for a, b in zip(first.arguments, other.arguments, strict=True)
    )
    assert some.ok


def test_ids_are_unique() -> None:
    from reftile.conformance.runner import select_cases
    from reftile.conformance.suites.common import Settings

    ids = [case.id for case in select_cases(Settings("default"))]
    assert len(ids) == len(set(ids))
