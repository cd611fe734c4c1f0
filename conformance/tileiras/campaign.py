"""What a campaign does in its processes: cases, litmus tests, the fuzzer, reductions."""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from reftile.conformance.backend import Unsupported
from reftile.conformance.cases import Budget, Case
from reftile.conformance.runner import (
    LITMUS_RUNS,
    Result,
    run_case,
    run_question,
    select_cases,
    select_questions,
    settings_for,
)
from reftile.conformance.stress import StressConfig
from reftile.conformance.suites.litmus import Question
from reftile.conformance.tileiras import fuzz
from reftile.conformance.tileiras.backend import TileirasBackend
from reftile.conformance.tileiras.bundle import Bundle, read_bundle
from reftile.conformance.tileiras.compiler import Target, check_target, check_tileiras
from reftile.conformance.tileiras.reduce import Finding, reduce_group, reduce_litmus
from reftile.conformance.verdicts import Verdict

from reftile.ir.diagnostics import ReftileError


def make_backend(paths: Sequence[Path], gpu: str = "sm_90") -> TileirasBackend:
    """The backend with the programs of some bundles; what is in none is compiled, if it can be."""
    backend = TileirasBackend()
    backend.bundle = Bundle(Target(gpu))
    for path in paths:
        bundle = read_bundle(path)
        backend.bundle.target, backend.bundle.tileiras = bundle.target, bundle.tileiras
        backend.bundle.programs |= bundle.programs
    try:
        check_target(backend.bundle.target)
        check_tileiras(backend.bundle.target)
    except ReftileError:
        if not paths:
            raise
        backend.live = False
    return backend


@dataclass(frozen=True)
class Suite:
    """The cases of a suite."""

    name: str
    budget: Budget = "default"
    filter: str = ""
    litmus_runs: int = 0

    def prepare(self, backend: TileirasBackend) -> Sequence[Case | Question]:
        """See `Work`."""
        if self.name == "litmus":
            return select_questions(self.budget, self.filter)
        settings = settings_for(backend, self.budget, 0)
        return list(select_cases(settings, (self.name,), self.filter))

    def do(self, backend: TileirasBackend, piece: Case | Question) -> Result:
        """See `Work`."""
        if isinstance(piece, Question):
            return run_question(backend, piece, self.litmus_runs or LITMUS_RUNS[self.budget])
        return run_case(backend, piece)


@dataclass(frozen=True)
class Reductions:
    """Groups of results that disagree in the same way. seconds: for each."""

    suite: Suite
    groups: tuple[tuple[Result, ...], ...]
    seconds: float

    def prepare(self, backend: TileirasBackend) -> Sequence[Any]:
        """See `Work`."""
        pieces = {p.id: p for p in self.suite.prepare(backend)}
        return [[(r, pieces[r.id]) for r in members] for members in self.groups]

    def do(self, backend: TileirasBackend, piece: Any) -> Finding:
        """See `Work`."""
        if self.suite.name != "litmus":
            return reduce_group(backend, piece, self.seconds)
        result, question = piece[0]
        finding = Finding.of([r for r, _ in piece])
        if result.verdict is not Verdict.FAIL:
            return finding
        config = StressConfig(iterations=self.suite.litmus_runs or LITMUS_RUNS["default"])
        test = reduce_litmus(backend, question.test, config, self.seconds)
        sizes = tuple(sum(len(b.ops) for b in t.program.blocks) for t in (question.test, test))
        text = "\n".join(
            f"{b.name}: " + "; ".join(f"{o.name} {o.order} {o.scope} {o.accesses}" for o in b.ops)
            for b in test.program.blocks
        )
        return replace(finding, text=text, operations=(sizes[0], sizes[1]))


@dataclass(frozen=True)
class Seeds:
    """Programs of the fuzzer, by seed. seconds: to reduce one that disagrees; 0 to leave it."""

    first: int
    count: int
    seconds: float = 0.0

    def prepare(self, backend: TileirasBackend) -> Sequence[int]:
        """See `Work`."""
        return range(self.first, self.first + self.count)

    def do(self, backend: TileirasBackend, piece: int) -> tuple[str, Finding | None]:
        """What came of a seed, and the finding if it disagrees."""
        found = fuzz.compare(backend, piece, 1)
        if not found.counts:
            return "racy or not determined", None
        (kind,) = found.counts
        if not found.disagreements:
            return kind, None
        one = found.disagreements[0]
        whole = one.text
        if self.seconds:
            with suppress(Unsupported):
                one = fuzz.reduce(backend, one, self.seconds)
        operations = (_lines(whole), _lines(one.text))
        finding = Finding(
            "wrong",
            "fuzz",
            "any",
            (f"seed {piece}",),
            one.what,
            one.text,
            one.launch,
            operations,
        )
        return kind, finding


def _lines(text: str) -> int:
    return sum(1 for line in text.splitlines() if "=" in line)
