"""Fuzz: write programs, hold the oracles against them, reduce what fails.

    result = fuzz(programs=200, seed=7, report=print)
    result.to_json()

hypothesis drives the decisions of the generator, a few programs at a time, and shrinks those of a
program that fails. Everything is repeatable by seed.
"""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

from reftile.conformance.fuzz.alarm import remembered_interrupt
from reftile.conformance.fuzz.choices import drawn, read_recipe, recipe_text
from reftile.conformance.fuzz.generate import make_program, program_of_recipe
from reftile.conformance.fuzz.histograms import Histograms
from reftile.conformance.fuzz.oracles import Failure, Settings, check_program
from reftile.conformance.fuzz.program import Program
from reftile.conformance.fuzz.reduce import reduce_failure

from reftile.ir.print import show

CHUNK = 25
"""Programs that one run of hypothesis makes."""
SHRINK_SECONDS = 40.0
REDUCE_SECONDS = 20.0
MOST_FAILURES = 5
Report = Callable[[str], None]


@dataclass
class FuzzFailure:
    """A program that breaks an oracle, reduced.

    text: the kernel that shows it, smaller than that of the recipe where that can be.
    recipe: the decisions that give the program again. reproducer: a command that checks it again.
    """

    oracle: str
    message: str
    text: str
    seed: int
    recipe: str
    launch: str
    reproducer: str

    def to_json(self) -> dict[str, Any]:
        """As plain data."""
        return dict(vars(self))


@dataclass
class FuzzResult:
    """What a run of the fuzzer did. `counts` by what was checked; `histograms` of what was made."""

    seed: int
    programs: int = 0
    seconds: float = 0.0
    counts: Counter[str] = field(default_factory=Counter)
    histograms: Histograms = field(default_factory=Histograms)
    failures: list[FuzzFailure] = field(default_factory=list)
    stopped: str = ""

    @property
    def share(self) -> float:
        """Of all programs, those that are race-free with two or more conflicts."""
        return self.counts["race-free with conflicts"] / max(1, self.programs)

    def to_json(self) -> dict[str, Any]:
        """As plain data."""
        return {
            "seed": self.seed,
            "programs": self.programs,
            "seconds": round(self.seconds, 3),
            "race_free_with_conflicts": round(self.share, 4),
            "counts": dict(sorted(self.counts.items())),
            "histograms": self.histograms.to_json(),
            "failures": [f.to_json() for f in self.failures],
            **({"stopped": self.stopped} if self.stopped else {}),
        }

    def lines(self) -> Iterator[str]:
        """A text for people."""
        yield (
            f"{self.programs} programs in {self.seconds:.1f} s, seed {self.seed}: "
            f"{100 * self.share:.1f}% race-free with two or more conflicts"
        )
        for name, count in sorted(self.counts.items()):
            yield f"  {name:<60} {count:6}"
        yield from self.histograms.lines()
        for failure in self.failures:
            yield ""
            yield f"{failure.oracle}: {failure.message}"
            yield failure.launch
            yield failure.text
            yield f"reproduce: {failure.reproducer}"


def fuzz(
    programs: int = 200,
    seed: int = 0,
    budget_seconds: float | None = None,
    report: Report | None = None,
    settings: Settings | None = None,
) -> FuzzResult:
    """Make programs by seed and check each; stops early when the budget is used up, or on Ctrl-C.

    report: given a line for each chunk and failure.
    """
    result = FuzzResult(seed)
    start = time.monotonic()
    chunk = 0
    while result.programs < programs and len(result.failures) < MOST_FAILURES:
        left = None if budget_seconds is None else budget_seconds - (time.monotonic() - start)
        if left is not None and left <= 0:
            break
        count = min(CHUNK, programs - result.programs)
        try:
            with remembered_interrupt() as ask:
                _Chunk(result, seed * 1_000_003 + chunk, count, left, settings, ask).run(report)
                ask()
        except KeyboardInterrupt:
            done = f"{result.programs} of {programs} programs were made"
            result.stopped = f"stopped in chunk {chunk} of seed {seed}; {done}"
            result.seconds = time.monotonic() - start
            break
        chunk += 1
        result.seconds = time.monotonic() - start
        if report is not None:
            done = f"{result.programs} of {programs} programs"
            report(f"{done}, {len(result.failures)} failures, {result.seconds:.0f} s")
    return result


def replay(recipe: str | Sequence[int], settings: Settings | None = None) -> Program:
    """Make a program again and check it; for the debugger.

    Raises:
        Failure: the oracle that it breaks.
    """
    taken = read_recipe(recipe) if isinstance(recipe, str) else list(recipe)
    program = program_of_recipe(taken)
    check_program(program, Counter(), settings)
    return program


@dataclass
class _Attempt:
    """A program, or what came up while it was made."""

    taken: list[int]
    program: Program | None
    error: Exception | None = None


@dataclass
class _Chunk:
    """One run of hypothesis. `oracle`: the one that failed first; shrinking stays with it."""

    result: FuzzResult
    seed: int
    count: int
    seconds: float | None
    settings: Settings | None
    ask: Callable[[], None]
    oracle: str = ""
    best: tuple[int, _Attempt, Failure] | None = None
    give_up: float = 0.0

    def run(self, report: Report | None) -> None:
        """Make and check the programs."""
        self.give_up = time.monotonic() + (self.seconds if self.seconds is not None else 1e9)
        before = self.result.programs
        try:
            self._drive()
        except Exception as error:
            if self.best is None:
                raise
            _ = error
        # hypothesis stops when there is nothing new to make; that counts as made.
        if self.result.programs == before:
            self.result.programs += 1
        if self.best is not None:
            failure = self._failure()
            self.result.failures.append(failure)
            if report is not None:
                report(f"{failure.oracle}: {failure.message}\n{failure.launch}\n{failure.text}")
                report(f"reproduce: {failure.reproducer}")

    def _drive(self) -> None:
        import hypothesis
        from hypothesis import errors, strategies

        @strategies.composite
        def attempts(draw: Any) -> _Attempt:
            choices = drawn(draw)
            try:
                return _Attempt(choices.taken, make_program(choices))
            except errors.HypothesisException:
                raise
            except Exception as error:
                return _Attempt(choices.taken, None, error)

        settings = hypothesis.settings(
            max_examples=self.count,
            database=None,
            deadline=None,
            phases=(hypothesis.Phase.generate, hypothesis.Phase.shrink),
            suppress_health_check=tuple(hypothesis.HealthCheck),  # type: ignore[arg-type]
            report_multiple_bugs=False,
            print_blob=False,
        )
        run = hypothesis.given(attempts())(self._check)
        hypothesis.seed(self.seed)(settings(run))()

    def _check(self, attempt: _Attempt) -> None:
        self.ask()
        if time.monotonic() > self.give_up:
            return
        counts: Counter[str] = Counter()
        try:
            self._check_attempt(attempt, counts)
        except Failure as failure:
            if self.oracle not in ("", failure.oracle):
                return
            if not self.oracle:
                self.oracle = failure.oracle
                self.result.programs += 1
                self.give_up = min(self.give_up, time.monotonic() + SHRINK_SECONDS)
            size = len(attempt.taken)
            if self.best is None or size <= self.best[0]:
                self.best = size, attempt, failure
            raise

    def _check_attempt(self, attempt: _Attempt, counts: Counter[str]) -> None:
        program = attempt.program
        if program is None:
            error = attempt.error
            raise Failure("generator", f"{type(error).__name__}: {error}") from error
        settings = replace(self.settings or Settings(), only=self.oracle)
        findings = check_program(program, counts, settings)
        if not self.oracle:
            self.result.programs += 1
            self.result.counts += counts
            self.result.histograms.add(program, findings)

    def _failure(self) -> FuzzFailure:
        assert self.best is not None
        _, attempt, failure = self.best
        recipe = recipe_text(attempt.taken)
        program = attempt.program
        kernel = None if program is None else reduce_failure(program, failure, REDUCE_SECONDS)
        launch = "" if program is None else _launch(program)
        return FuzzFailure(
            failure.oracle,
            failure.message,
            "" if kernel is None else show(kernel),
            self.seed,
            recipe,
            launch,
            f'python -m reftile.conformance.fuzz --recipe "{recipe}"',
        )


def _launch(program: Program) -> str:
    sizes = ", ".join(f"{b.name}: {b.dtype.name}[{b.size}]" for b in program.buffers)
    scalars = "".join(f", {s}" for s in program.scalars)
    return f"grid {program.grid}, arguments {sizes}{scalars}, tokens: {program.policy}"
