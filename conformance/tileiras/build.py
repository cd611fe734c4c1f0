"""Compile the programs of suites and of the fuzzer into a bundle."""

from __future__ import annotations

import os
from collections.abc import Iterable, Iterator
from concurrent.futures import ThreadPoolExecutor
from itertools import chain
from pathlib import Path

from reftile.conformance.backend import Diagnosed, Unsupported
from reftile.conformance.cases import Budget
from reftile.conformance.runner import Progress, select_cases
from reftile.conformance.suites.common import Settings
from reftile.conformance.tileiras.bundle import Bundle, read_bundle
from reftile.conformance.tileiras.compiler import (
    Target,
    check_target,
    compile_bytecode,
    tileiras_version,
    to_bytecode,
)
from reftile.conformance.tileiras.fuzz import fuzz_bytecodes
from reftile.conformance.tileiras.litmus import litmus_bytecodes

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

    jobs: programs compiled at once; 0 for one on each core. fuzz: seeds of the fuzzer whose
    programs are compiled too, from 0. Stopped halfway, the bundle holds what
    was done.

    Raises:
        ReftileError: there is no compiler, it knows no such target, or the file is no bundle.
    """
    target = target or Target()
    check_target(target)
    bundle = Bundle(target, tileiras_version())
    if path.exists():
        old = read_bundle(path)
        if (old.target, old.tileiras) == (bundle.target, bundle.tileiras):
            bundle = old
    codes = chain(bytecodes(suites, budget, filter, seed), fuzz_bytecodes(0, fuzz))
    wanted = list(_missing(bundle, codes))
    done = 0
    try:
        with ThreadPoolExecutor(jobs or os.cpu_count() or 1) as pool:
            compiled = pool.map(lambda code: compile_bytecode(code, target), wanted)
            for code, result in zip(wanted, compiled, strict=True):
                bundle.add(code, result)
                done += 1
                if progress is not None:
                    progress(done, len(wanted), "")
                if done % SAVE_EVERY == 0:
                    bundle.write(path)
    finally:
        bundle.write(path)
    return bundle


def _missing(bundle: Bundle, codes: Iterable[bytes]) -> Iterator[bytes]:
    seen: set[bytes] = set()
    for code in codes:
        if code not in seen and bundle.find(code) is None:
            seen.add(code)
            yield code


def bytecodes(suites: Iterable[str], budget: Budget, filter: str, seed: int) -> Iterator[bytes]:
    """The bytecode of every case that has one."""
    settings = Settings(budget, seed, powers_of_two=True)
    for suite in suites:
        if suite == "litmus":
            yield from litmus_bytecodes(filter)
            continue
        for case in select_cases(settings, (suite,), filter):
            program = case.build()
            try:
                yield to_bytecode(program.text, program.kernel)
            except (Unsupported, Diagnosed):
                continue
