"""Run cases on a backend and give a verdict on each.

results = run_suites("interp", ["ops"], budget="wimpy")
results.to_json()["summary"]
"""

from __future__ import annotations

import re
import time
import traceback
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from reftile.conformance.backend import (
    PRINTED,
    Backend,
    Diagnosed,
    Stopped,
    Unsupported,
    find_backend,
)
from reftile.conformance.cases import Budget, Buffer, Case, Program, from_memory
from reftile.conformance.expectations import Waiver, not_passed
from reftile.conformance.oracle.answer import Answer
from reftile.conformance.oracle.formats import FORMATS, is_float, is_nan, key, to_float64
from reftile.conformance.stress import Histogram, StressConfig, judge
from reftile.conformance.suites.common import Settings
from reftile.conformance.suites.litmus import Question, questions
from reftile.conformance.suites.registry import SUITES, make_cases
from reftile.conformance.verdicts import BAD, Verdict, empty_counts

from reftile.ir.ops import OPS

Progress = Callable[[int, int, str], None]
"""`progress(done, total, id)`; total is 0 while it is not known."""


@dataclass
class Result:
    """The verdict on one case. checked: how many elements were compared."""

    id: str
    suite: str
    op: str
    dtype: str
    verdict: Verdict
    message: str = ""
    seconds: float = 0.0
    checked: int = 0
    data: dict[str, Any] = field(default_factory=dict)

    def to_json(self) -> dict[str, Any]:
        """As plain data."""
        return {
            "id": self.id,
            "suite": self.suite,
            "op": self.op,
            "dtype": self.dtype,
            "verdict": self.verdict.value,
            "message": self.message,
            "seconds": round(self.seconds, 6),
            "checked": self.checked,
            **self.data,
        }


@dataclass
class Results:
    """The verdicts of a run.

    stopped: where Ctrl-C ended it early, for people. broken: cases that had to pass and did not.
    unused: ids of waivers that no failure needed.
    """

    backend: dict[str, Any]
    budget: Budget
    seed: int
    results: list[Result] = field(default_factory=list)
    seconds: float = 0.0
    stopped: str = ""
    broken: list[str] = field(default_factory=list)
    unused: list[str] = field(default_factory=list)

    def summary(self) -> dict[str, int]:
        """How many cases came to each verdict, by its lower-case name."""
        counts = empty_counts()
        for result in self.results:
            counts[result.verdict.value] += 1
        return counts

    def cells(self) -> dict[tuple[str, str], dict[str, int]]:
        """Verdicts for each (operation, element type)."""
        found: dict[tuple[str, str], dict[str, int]] = {}
        for result in self.results:
            counts = found.setdefault((result.op, result.dtype), empty_counts())
            counts[result.verdict.value] += 1
        return found

    @property
    def ok(self) -> bool:
        """True if nothing failed, what had to pass did, and something ran."""
        failed = any(r.verdict in BAD for r in self.results) or bool(self.broken)
        return not failed and bool(self.results)

    def unsupported_percentage(self) -> float:
        """Of all cells, those of which at least one case is unsupported."""
        cells = self.cells()
        missing = sum(1 for counts in cells.values() if counts["unsupported"])
        return 100.0 * missing / len(cells) if cells else 0.0

    def to_json(self) -> dict[str, Any]:
        """As plain data: `summary`, `cells`, and every case that did not pass."""
        return {
            "kind": "reftile-conformance",
            "backend": self.backend,
            "budget": self.budget,
            "seed": self.seed,
            "seconds": round(self.seconds, 3),
            "summary": self.summary(),
            "ok": self.ok,
            **({"stopped": self.stopped} if self.stopped else {}),
            **({"must_pass_broken": self.broken} if self.broken else {}),
            **({"unused_waivers": self.unused} if self.unused else {}),
            "unsupported_percentage": round(self.unsupported_percentage(), 2),
            "cells": [
                {"op": op, "dtype": dtype, **{k: v for k, v in counts.items() if v}}
                for (op, dtype), counts in sorted(self.cells().items())
            ],
            "not_passed": [r.to_json() for r in self.results if r.verdict is not Verdict.PASS],
        }


def settings_for(backend: Backend, budget: Budget, seed: int) -> Settings:
    """What a backend claims, as the makers of cases want it."""
    claims: dict[tuple[str, str], float] = {}
    for op, cls in OPS.items():
        if cls.definition.accuracy in ("", "exact", "rounded", "dot", "reduce"):
            continue
        for dtype in ("f16", "bf16", "f32", "f64"):
            claim = backend.accuracy(op, dtype)
            if claim is not None:
                claims[op, dtype] = claim
    info = backend.info()
    return Settings(budget, seed, claims, info.accumulate, info.flushes, info.powers_of_two)


def run_suites(
    backend: str | Backend = "interp",
    suites: Sequence[str] = (),
    budget: Budget = "default",
    filter: str = "",
    *,
    seed: int = 0,
    waivers: Sequence[Waiver] = (),
    must_pass: Sequence[str] = (),
    time_limit: float | None = None,
    progress: Progress | None = None,
) -> Results:
    """Run suites (all by default) on a backend.

    filter: a regular expression that ids must contain. waivers, must_pass: see `expectations`.
    time_limit: seconds; cases left over are SKIP.

    Raises:
        KeyError: no such backend or suite.
    """
    implementation = find_backend(backend) if isinstance(backend, str) else backend
    settings = settings_for(implementation, budget, seed)
    jobs: list[Case | Question] = list(select_cases(settings, suites, filter))
    if not suites or "litmus" in suites:
        jobs += select_questions(budget, filter)
    results = run_cases(implementation, jobs, settings, waivers, time_limit, progress)
    results.broken = not_passed(must_pass, [(r.id, r.verdict.value) for r in results.results])
    return results


def select_cases(
    settings: Settings, suites: Sequence[str] = (), filter: str = ""
) -> Iterator[Case]:
    """The cases of suites whose ids contain a regular expression."""
    wanted = re.compile(filter) if filter else None
    for name in suites or tuple(SUITES):
        for case in make_cases(name, settings):
            if wanted is None or wanted.search(case.id):
                yield case


def select_questions(budget: Budget, filter: str = "") -> list[Question]:
    """The litmus tests whose ids contain a regular expression;

    of the generated ones a part if `wimpy`.
    """
    wanted = re.compile(filter)
    found = [q for q in questions() if wanted.search(q.id)]
    if budget != "wimpy" or filter:
        return found
    return [q for i, q in enumerate(found) if q.test.family not in GENERATED or i % 20 == 0]


GENERATED = ("CYCLE", "WSCOPE")
LITMUS_RUNS: dict[Budget, int] = {"wimpy": 1_000, "default": 100_000, "exhaustive": 10_000_000}


def run_cases(
    backend: Backend,
    cases: Sequence[Case | Question],
    settings: Settings,
    waivers: Sequence[Waiver] = (),
    time_limit: float | None = None,
    progress: Progress | None = None,
) -> Results:
    """Run cases one after the other. Ctrl-C ends the run; `stopped` of the results says where."""
    info = backend.info()
    described = {
        "name": info.name,
        "version": info.version,
        "device": info.device,
        "checks": info.checks,
    }
    results = Results(described, settings.budget, settings.seed)
    start = time.perf_counter()
    for i, case in enumerate(cases):
        if progress is not None:
            progress(i, len(cases), case.id)
        if time_limit is not None and time.perf_counter() - start > time_limit:
            results.results.append(unrun(case))
            continue
        try:
            if isinstance(case, Question):
                result = run_question(backend, case, LITMUS_RUNS[settings.budget])
            else:
                result = run_case(backend, case)
        except KeyboardInterrupt:
            results.stopped = f"stopped in {case.id}; {i} of {len(cases)} cases were run"
            break
        results.results.append(_with_waiver(result, waivers))
    if progress is not None and not results.stopped:
        progress(len(cases), len(cases), "")
    results.seconds = time.perf_counter() - start
    used = {r.message.partition(":")[0] for r in results.results if r.verdict is Verdict.XFAIL}
    results.unused = [w.id for w in waivers if w.id not in used]
    return results


def unrun(case: Case | Question) -> Result:
    """A case that there was no time for."""
    if isinstance(case, Question):
        return Result(case.id, "litmus", case.test.family, "any", Verdict.SKIP, "no time left")
    return Result(case.id, case.suite, case.op, case.dtype, Verdict.SKIP, "no time left")


def run_question(backend: Backend, question: Question, runs: int) -> Result:
    """Ask a litmus test of a backend."""
    start = time.perf_counter()
    verdict, message = _answer(backend, question, runs)
    family = question.test.family
    seconds = time.perf_counter() - start
    return Result(question.id, "litmus", family, "any", verdict, message, seconds, 1)


def _answer(backend: Backend, question: Question, runs: int) -> tuple[Verdict, str]:
    supported = backend.supports("suite:litmus")
    if supported is not True:
        return Verdict.UNSUPPORTED, f"suite:litmus: {supported or 'not supported'}"
    try:
        info = backend.info()
        if not info.exact_litmus:
            config = StressConfig(iterations=runs)
            judged = judge(question.test, backend.run_litmus, config, info.keeps_order)
            return judged.verdict, judged.why
        found = backend.run_litmus(question.test, StressConfig(iterations=runs))
        return _compare_exactly(question, found)
    except Unsupported as error:
        return Verdict.UNSUPPORTED, str(error)
    except Stopped as error:
        return Verdict.ERROR, str(error)
    except Exception:
        return Verdict.ERROR, traceback.format_exc()


def _compare_exactly(question: Question, found: Histogram) -> tuple[Verdict, str]:
    """Hold an implementation that finds every outcome to the expected pair."""
    expected = question.test.expected
    if found.racy != expected.race:
        what = "a race" if found.racy else "no race"
        return Verdict.FAIL, f"expected {expected}, found {what}"
    if expected.outcome == "forbid" and found.hits:
        return Verdict.FAIL, f"a forbidden outcome was seen {found.hits} times"
    if expected.outcome == "allow" and not found.hits:
        return Verdict.FAIL, "an allowed outcome cannot be reached"
    return Verdict.PASS, ""


def _with_waiver(result: Result, waivers: Iterable[Waiver]) -> Result:
    for waiver in waivers:
        if result.verdict is Verdict.FAIL and re.search(waiver.pattern, result.id):
            result.verdict = Verdict.XFAIL
            result.message = f"{waiver.id}: {waiver.reason} ({result.message})"
    return result


def run_case(backend: Backend, case: Case) -> Result:
    """Run one case; one that fails runs once more, to tell a flaky result from a wrong one."""
    start = time.perf_counter()
    verdict, message, checked, data = _attempt(backend, case)
    if verdict is Verdict.FAIL and _attempt(backend, case)[0] is Verdict.PASS:
        verdict, message = Verdict.FLAKY, f"failed, then passed: {message}"
    if verdict in BAD:
        name = backend.info().name
        message += f"\nto repeat: reftile conformance run --backend {name} --filter '^{case.id}$'"
    seconds = time.perf_counter() - start
    return Result(
        case.id, case.suite, case.op, case.dtype, verdict, message, seconds, checked, data
    )


Attempt = tuple[Verdict, str, int, dict[str, Any]]


def _attempt(backend: Backend, case: Case) -> Attempt:
    for feature in (f"suite:{case.suite}", f"dtype:{case.dtype}", *case.needs):
        answer = backend.supports(feature)
        if answer is not True:
            return Verdict.UNSUPPORTED, f"{feature}: {answer or 'not supported'}", 0, {}
    try:
        program = case.build()
    except Exception:
        return Verdict.ERROR, f"the case cannot be made:\n{traceback.format_exc()}", 0, {}
    unseen = [r for r in program.rules if case.suite == "trap" and not _finds(backend, r)]
    if unseen and len(unseen) == len(program.rules):
        # What it would do is undefined, so it is not run.
        rule = unseen[0]
        return Verdict.UNSUPPORTED, f"rule:{rule}: {backend.supports(f'rule:{rule}')}", 0, {}
    try:
        executable = backend.compile(program.text, program.kernel)
        found = backend.run(executable, program.grid, program.arguments)
    except Unsupported as error:
        return Verdict.UNSUPPORTED, str(error), 0, {}
    except Diagnosed as error:
        return _judge_diagnosis(program, error)
    except Stopped as error:
        return Verdict.ERROR, f"{error}\n{program.text}", 0, {}
    except Exception:
        return Verdict.ERROR, f"{traceback.format_exc()}\n{program.text}", 0, {}
    if program.rules:
        rules = " or ".join(program.rules)
        return (
            Verdict.FAIL,
            f"nothing was found, and {rules} should have been\n{program.text}",
            0,
            {},
        )
    if program.output is not None:
        if PRINTED not in found:
            return Verdict.UNSUPPORTED, "gives back nothing of what is printed", 0, {}
        printed = found[PRINTED].tobytes().decode(errors="replace")
        if printed != program.output:
            message = f"printed {printed!r}, expected {program.output!r}\n{program.text}"
            return Verdict.FAIL, message, 0, {}
    return _judge_outputs(program, found, backend.info().flushes)


def _finds(backend: Backend, rule: str) -> bool:
    return backend.supports(f"rule:{rule}") is True


def _judge_diagnosis(program: Program, error: Diagnosed) -> Attempt:
    if any(rule in program.rules for rule in error.rules):
        return Verdict.PASS, "", 1, {"rules": list(error.rules)}
    wanted = " or ".join(program.rules) if program.rules else "no diagnosis"
    message = f"expected {wanted}, found {', '.join(error.rules)}: {error}\n{program.text}"
    return Verdict.FAIL, message, 0, {"rules": list(error.rules)}


def _judge_outputs(
    program: Program, found: Mapping[str, np.ndarray], flushes: Sequence[str]
) -> Attempt:
    checked = program.checked
    for name, answer in program.answers.items():
        if name not in found:
            return Verdict.ERROR, f"the backend returned no buffer `{name}`", 0, {}
        bits = from_memory(found[name], answer.dtype, answer.size)
        bad = np.ones(answer.size, bool)
        for one in (answer, *program.others.get(name, ())):
            bad &= one.wrong(bits)
            if answer.dtype in flushes and is_float(answer.dtype):
                bad &= ~_is_flushed(one, bits)
        if bad.any():
            message, data = describe(program, name, answer, bits, bad)
            return Verdict.FAIL, message, checked, data
    if checked == 0 and program.answers:
        return Verdict.VACUOUS, "no element has an expected value", 0, {}
    return Verdict.PASS, "", max(checked, 1), {}


def _is_flushed(answer: Answer, bits: np.ndarray) -> np.ndarray:
    """Elements that are zeros where a subnormal number is accepted:

    allowed where a type is flushed.
    """
    f = FORMATS[answer.dtype]
    least = np.uint64(1 << f.mantissa_bits)
    magnitude = np.uint64((1 << (f.width - 1)) - 1)
    small = np.minimum(answer.low.reshape(-1) & magnitude, answer.high.reshape(-1) & magnitude)
    return ((bits & magnitude) == 0) & (small < least)


def describe(
    program: Program, name: str, answer: Answer, bits: np.ndarray, bad: np.ndarray
) -> tuple[str, dict[str, Any]]:
    """What is wrong: the first bad element, its inputs, how far off it is, and the program."""
    i = int(np.argmax(bad))
    low, high = answer.low.reshape(-1), answer.high.reshape(-1)
    accepted = element_text(int(low[i]), answer.dtype)
    if low[i] != high[i]:
        accepted += f" to {element_text(int(high[i]), answer.dtype)}"
    lines = [
        f"{int(bad.sum())} of {bits.size} elements of `{name}` are wrong, element {i} first:",
        f"  found    {element_text(int(bits[i]), answer.dtype)}",
        f"  accepted {accepted}",
    ]
    worst = worst_distance(answer, bits, bad)
    if worst is not None:
        lines.append(f"  the furthest lies {worst} steps outside what is accepted")
    for argument in program.arguments:
        if (
            isinstance(argument, Buffer)
            and not argument.written
            and argument.bits.size == bits.size
        ):
            lines.append(
                f"  {argument.name} = {element_text(int(argument.bits[i]), argument.dtype)}"
            )
    lines.append(program.text)
    return "\n".join(lines), {"wrong": int(bad.sum()), "first": i, "steps": worst}


def worst_distance(answer: Answer, bits: np.ndarray, bad: np.ndarray) -> int | None:
    """How many numbers lie between the furthest wrong element and what is accepted."""
    if not is_float(answer.dtype):
        return None
    f = FORMATS[answer.dtype]
    low, high = answer.low.reshape(-1), answer.high.reshape(-1)
    comparable = bad & ~is_nan(bits, f) & ~is_nan(low, f)
    if not comparable.any():
        return None
    found = key(bits, f)[comparable].astype(object)
    below = key(low, f)[comparable].astype(object) - found
    above = found - key(high, f)[comparable].astype(object)
    return int(max(np.max(below), np.max(above)))


def element_text(code: int, dtype: str) -> str:
    """An element as a number and as bits."""
    if not is_float(dtype):
        return f"{code} (0x{code:x})"
    value = to_float64(np.array([code], np.uint64), FORMATS[dtype])[0]
    return f"{value!r} (0x{code:x})".replace("np.float64", "")
