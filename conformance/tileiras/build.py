"""Compile the programs of suites and of the fuzzer into a bundle."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass
from functools import partial
from pathlib import Path

from reftile.conformance.backend import Diagnosed, Unsupported
from reftile.conformance.cases import Budget, Case
from reftile.conformance.runner import Progress, select_cases
from reftile.conformance.suites.common import Settings
from reftile.conformance.suites.litmus import Question
from reftile.conformance.tileiras.backend import TileirasBackend
from reftile.conformance.tileiras.bundle import Bundle, key_of, read_bundle
from reftile.conformance.tileiras.compiler import (
    Compiled,
    Target,
    check_target,
    check_tileiras,
    compile_once,
    tileiras_version,
    to_bytecode,
)
from reftile.conformance.tileiras.fuzz import fuzz_bytecodes
from reftile.conformance.tileiras.litmus import question_bytecodes, questions_of
from reftile.conformance.tileiras.workers import do_all

SUITES = ("ops", "kernels", "litmus")
"""The suites whose programs are compiled."""
SAVE_EVERY = 500


def build(
    path: Path,
    suites: Iterable[str] = SUITES,
    budget: Budget = "default",
    filter: str = "",
    *,
    target: Target | None = None,
    seed: int = 0,
    jobs: int = 0,
    fuzz: int = 0,
    progress: Progress | None = None,
) -> Bundle:
    """Compile what the suites need and write the bundle; what an older one holds is kept.

    jobs: processes; 0 for one on each core. fuzz: seeds of the fuzzer whose
    programs are compiled too, from 0. Stopped halfway, the bundle holds what
    was done.

    Raises:
        ReftileError: there is no compiler, it knows no such target, or the file is no bundle.
    """
    target = target or Target()
    check_target(target)
    check_tileiras(target)
    bundle = Bundle(target, tileiras_version())
    if path.exists():
        old = read_bundle(path)
        if (old.target, old.tileiras) == (bundle.target, bundle.tileiras):
            bundle = old
    work = Compiling(tuple(suites), budget, filter, seed, fuzz, target, frozenset(bundle.programs))
    count = len(work.prepare(None))
    try:
        made = do_all(partial(TileirasBackend, "", target), work, count, jobs)
        for done, (_, programs) in enumerate(made, 1):
            bundle.programs.update(programs)
            if progress is not None:
                progress(done, count, "")
            if done % SAVE_EVERY == 0:
                bundle.write(path)
    finally:
        bundle.write(path)
    return bundle


@dataclass(frozen=True)
class Compiling:
    """The programs of cases, litmus tests and seeds, but those that are known."""

    suites: tuple[str, ...]
    budget: Budget
    filter: str
    seed: int
    fuzz: int
    target: Target
    known: frozenset[str]

    def prepare(self, backend: TileirasBackend | None) -> Sequence[Case | Question | int]:
        """See `Work`."""
        settings = Settings(self.budget, self.seed, powers_of_two=True)
        found: list[Case | Question | int] = []
        for suite in self.suites:
            if suite == "litmus":
                found += questions_of(self.filter)
            else:
                found += select_cases(settings, (suite,), self.filter)
        return [*found, *range(self.fuzz)]

    def do(self, backend: TileirasBackend, piece: Case | Question | int) -> dict[str, Compiled]:
        """The programs of a piece by their key."""
        found: dict[str, Compiled] = {}
        for code in _bytecodes(piece):
            key = key_of(code)
            if key not in self.known and key not in found:
                found[key] = compile_once(code, self.target)
        return found


def _bytecodes(piece: Case | Question | int) -> Iterator[bytes]:
    """The bytecode of what has one."""
    if isinstance(piece, int):
        yield from fuzz_bytecodes(piece, 1)
    elif isinstance(piece, Question):
        yield from question_bytecodes(piece)
    else:
        program = piece.build()
        with suppress(Unsupported, Diagnosed):
            yield to_bytecode(program.text, program.kernel)
