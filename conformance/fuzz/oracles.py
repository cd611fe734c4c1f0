"""What must hold for a generated program, whatever it does.

round_trip    its text reads back as the same kernel, with the same text
verify        the verifier accepts it
races         the interpreter reports races in it exactly if the fuzzer's own trace has some
schedules     every schedule gives the same bits, if the trace says that order does not show
batched       all blocks at once give the same bits as one by one
twins         without one token, order or scope that it needs, a race is reported
same_bits     changes that must not show do not show
crash         nothing but a diagnosis leaves the interpreter
"""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass
from random import Random

import numpy as np
from reftile.conformance.fuzz.alarm import time_limit
from reftile.conformance.fuzz.mutate import racy_twins, variants
from reftile.conformance.fuzz.program import Program
from reftile.conformance.fuzz.races import Findings, examine

from reftile.interp import launch
from reftile.interp.schedule import Schedule
from reftile.ir.compare import same
from reftile.ir.core import Kernel
from reftile.ir.diagnostics import ReftileError
from reftile.ir.parse import parse
from reftile.ir.print import show
from reftile.ir.verify import diagnose

Run = tuple[Schedule, int]
PROGRAM: Run = ("program", 0)
LONGEST_RUN = 20.0
"""Seconds; a run takes milliseconds."""
MORE_SCHEDULES: tuple[Run, ...] = tuple(
    (name, seed) for seed in range(5, 13) for name in ("topo", "adversarial")
)
"""For races that show only if a message is seen in time."""


class Failure(AssertionError):
    """An oracle does not hold. `kernel`: the one that shows it, if not the program's own."""

    def __init__(self, oracle: str, message: str, kernel: Kernel | None = None) -> None:
        super().__init__(f"{oracle}: {message}")
        self.oracle, self.message, self.kernel = oracle, message, kernel


@dataclass(frozen=True)
class Outcome:
    """What a run gave: the bytes of all buffers, or the rules that were broken."""

    memory: tuple[bytes, ...]
    rules: tuple[str, ...]
    text: str = ""

    @property
    def raced(self) -> bool:
        """True if a race was reported."""
        return any(rule.startswith("race.") for rule in self.rules)


def run(
    program: Program, kernel: Kernel, schedule: Schedule, seed: int, check: bool = True
) -> Outcome:
    """Run a kernel with the program's launch.

    Raises:
        Failure: something other than a diagnosis came out.
    """
    arguments, arrays = program.arguments()
    try:
        with time_limit(LONGEST_RUN):
            launch.interpret(
                kernel, program.grid, arguments, check=check, schedule=schedule, seed=seed
            )
    except ReftileError as error:
        found = getattr(error, "diagnoses", None) or [error.diagnosis]
        return Outcome((), tuple(d.rule for d in found), str(error))
    except Exception as error:
        how = f"{schedule} {seed}" if check else "batched"
        where = f"{type(error).__name__}: {error} ({how})"
        raise Failure("crash", where, kernel) from error
    return Outcome(tuple(a.tobytes() for a in arrays), ())


@dataclass(frozen=True)
class Settings:
    """How much is tried for each program. only: the one oracle of interest; empty: all."""

    schedules: int = 4
    twins: int = 1
    twin_tries: int = 4
    variants: int = 2
    only: str = ""

    def wants(self, oracle: str) -> bool:
        """True if an oracle is to be tried."""
        return self.only in ("", "crash", "verify", oracle)


def some_schedules(random: Random, count: int) -> list[Run]:
    """Schedules to try: the plain one, the plain adversary, and others at random."""
    found: list[Run] = [PROGRAM, ("adversarial", 0)]
    while len(found) < count:
        found.append((random.choice(("topo", "topo", "adversarial")), random.randrange(1, 1000)))
    return found[:count]


def check_program(
    program: Program, counts: Counter[str], settings: Settings | None = None
) -> Findings:
    """Hold all oracles against a program; counts what was done.

    Raises:
        Failure: an oracle does not hold.
    """
    settings = settings or Settings()
    random = Random(repr(program.recipe))
    check_text(program.kernel)
    findings = examine(program.kernel, program.buffers, program.scalars, program.grid)
    schedules = some_schedules(random, settings.schedules)
    outcome = check_races(program, program.kernel, findings, schedules, counts)
    counts["racy" if findings.is_racy else "race-free"] += 1
    if not findings.is_racy and findings.conflicts >= 2:
        counts["race-free with conflicts"] += 1
    if findings.is_racy or outcome is None:
        if settings.wants("batched"):
            run(program, program.kernel, "program", 0, check=False)
        return findings
    counts["determinate"] += findings.is_determinate
    if findings.is_determinate and settings.wants("batched"):
        check_batched(program, outcome, counts)
    if findings.is_determinate and settings.wants("same_bits"):
        check_variants(program, outcome, random, settings, counts)
    if settings.wants("twins"):
        check_twins(program, random, settings, counts)
    return findings


def check_text(kernel: Kernel) -> None:
    """Printing, parsing and verifying."""
    text = show(kernel)
    try:
        again = parse(text).kernel()
    except ReftileError as error:
        raise Failure("round_trip", f"the text is not read: {error}", kernel) from error
    if show(again) != text:
        raise Failure("round_trip", "the text changes when it is read", kernel)
    if not same(kernel, again):
        raise Failure("round_trip", "the kernel changes when it is printed and read", kernel)
    for which in (kernel, again):
        findings = diagnose(which)
        if findings:
            raise Failure("verify", findings[0].rule + ": " + findings[0].message, kernel)


def check_races(
    program: Program,
    kernel: Kernel,
    findings: Findings,
    schedules: list[Run],
    counts: Counter[str],
    oracle: str = "races",
) -> Outcome | None:
    """The interpreter and the trace agree on races; all schedules on the results.

    Gives what a run of a race-free program leaves.
    """
    if findings.is_racy:
        _check_racy(program, kernel, findings, schedules, counts, oracle)
        return None
    first: Outcome | None = None
    for schedule, seed in schedules:
        outcome = run(program, kernel, schedule, seed)
        counts["runs"] += 1
        if outcome.rules:
            what = f"without a race, {schedule} {seed} reports {outcome.text}"
            raise Failure(oracle if outcome.raced else "valid", what, kernel)
        if first is None:
            first = outcome
        elif findings.is_determinate and outcome.memory != first.memory:
            where = _difference(program, first, outcome)
            raise Failure("schedules", f"{schedule} {seed} differs from program: {where}", kernel)
    return first


def _check_racy(
    program: Program,
    kernel: Kernel,
    findings: Findings,
    schedules: list[Run],
    counts: Counter[str],
    oracle: str,
) -> None:
    first, second = findings.races[0]
    pair = f"`{first.op.name}` of block {first.block}, `{second.op.name}` of block {second.block}"
    seen = False
    for schedule, seed in schedules:
        outcome = run(program, kernel, schedule, seed)
        counts["runs"] += 1
        seen = seen or outcome.raced
        if findings.certain and not outcome.rules:
            what = f"no race is reported by {schedule} {seed}: {pair}"
            raise Failure(oracle, what, kernel)
    for schedule, seed in () if seen else MORE_SCHEDULES:
        counts["runs"] += 1
        if run(program, kernel, schedule, seed).raced:
            return
    if not seen:
        counts["race not seen"] += 1
        if findings.certain:
            raise Failure(oracle, f"no schedule reports the race: {pair}", kernel)


def _difference(program: Program, left: Outcome, right: Outcome) -> str:
    for buffer, a, b in zip(program.buffers, left.memory, right.memory, strict=True):
        bad = np.flatnonzero(np.frombuffer(a, np.uint8) != np.frombuffer(b, np.uint8))
        if bad.size:
            element = int(bad[0]) // buffer.dtype.storage.itemsize
            return f"{buffer.name}[{element}] ({buffer.dtype.name}), {bad.size} bytes in all"
    return "nothing"


def check_batched(program: Program, expected: Outcome, counts: Counter[str]) -> None:
    """All blocks at once give the same bits."""
    outcome = run(program, program.kernel, "program", 0, check=False)
    if outcome.rules == ("batched.unsupported",):
        counts["not batched: " + outcome.text.splitlines()[0].split(": ")[-1]] += 1
        return
    counts["batched"] += 1
    if outcome.rules:
        raise Failure("batched", f"only the batched path reports {outcome.text}")
    if outcome.memory != expected.memory:
        raise Failure("batched", f"differs from checked: {_difference(program, expected, outcome)}")


def check_variants(
    program: Program, expected: Outcome, random: Random, settings: Settings, counts: Counter[str]
) -> None:
    """Changes that must not show."""
    made = list(variants(program, random))
    random.shuffle(made)
    for name, kernel in made[: settings.variants]:
        counts[f"variant: {name}"] += 1
        check_text(kernel)
        schedule, seed = random.choice(some_schedules(random, 4))
        outcome = run(program, kernel, schedule, seed)
        if outcome.rules:
            raise Failure("same_bits", f"{name}: {schedule} reports {outcome.text}", kernel)
        if outcome.memory != expected.memory:
            where = _difference(program, expected, outcome)
            raise Failure("same_bits", f"{name} changes {where} ({schedule} {seed})", kernel)


def check_twins(program: Program, random: Random, settings: Settings, counts: Counter[str]) -> None:
    """Without something that it needs, a race is reported."""
    found = racy_twins(program, random, settings.twins, settings.twin_tries)
    for name, kernel, findings in found:
        counts[f"twin: {name}"] += 1
        check_races(program, kernel, findings, some_schedules(random, 3), counts, "twins")
