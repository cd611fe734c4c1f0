"""Run random kernels at every level and compare what they leave, bit for bit.

    python -m tests.lower.random_kernels 0 300 --size 14 --assemble --reduce

writes a line for each seed from 0 to 299 whose kernel fails, and makes the kernel smaller. The
interpreter of `pipe`, that of `simt` on the lowered kernel, and the executor of PTX must agree.
With `REFTILE_DEVICE_LOG=FILE` a GPU judges instead of the last (tests/lower/on_machine.py);
`--target` then makes every kernel for it.
"""

from __future__ import annotations

import argparse
import sys
import warnings
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace
from typing import Any, Literal

import numpy as np
from reftile.conformance.fuzz.reduce import reduce_kernel

from reftile.interp.launch import interpret
from reftile.ir.core import Kernel
from reftile.ir.diagnostics import ReftileError
from reftile.ir.parse import parse
from reftile.ir.print import show
from reftile.ir.verify import diagnose
from reftile.lower.pipeline import Lowered, lower
from reftile.lower.ptx.assemble import assemble
from tests.lower.kernel_generator import Program, generate
from tests.lower.on_machine import launch

SPILLS_ALLOWED = 1 << 20
"""Bytes: a random kernel may need more registers than there are."""
SECONDS_TO_REDUCE = 120


@dataclass(frozen=True, slots=True)
class Verdict:
    """What became of a kernel; `stage` says where it was refused or failed, `reason` why."""

    kind: Literal["agrees", "refused", "fails"]
    stage: str = ""
    reason: str = ""


class _Stop(Exception):
    """There is a verdict before the end."""

    def __init__(self, verdict: Verdict) -> None:
        super().__init__(verdict)
        self.verdict = verdict


def judge(program: Program, seed: int, assembles: bool = False) -> Verdict:
    """Lower a kernel, run it at each level and compare; `seed` orders what its threads do."""
    try:
        lowered = _lower(program)
        wanted = _run("pipe", program, lowered, seed)
        for level in ("simt", "ptx"):
            for name, found in _run(level, program, lowered, seed).items():
                if found != wanted[name]:
                    raise _Stop(Verdict("fails", f"{level} differs", f"in {name}"))
        if assembles:
            with _stage("ptxas"):
                assemble(lowered.ptx, program.target, SPILLS_ALLOWED)
    except _Stop as stop:
        return stop.verdict
    return Verdict("agrees")


@contextmanager
def _stage(name: str) -> Iterator[None]:
    """What goes wrong inside is a failure of this stage."""
    try:
        yield
    except Exception as error:
        reason = f"{type(error).__name__}: {error}".replace("\n", " / ")
        raise _Stop(Verdict("fails", name, reason)) from error


def _lower(program: Program) -> Lowered:
    """The lowered kernel; a diagnosis of the lowering, or the launch's, is a refusal."""
    if found := diagnose(parse(program.text)):
        raise _Stop(Verdict("fails", "verify", found[0].message))
    try:
        with _stage("lower"):
            lowered = lower(parse(program.text).kernel(), program.target)
    except _Stop as stop:
        if isinstance(why := stop.__cause__, ReftileError):
            raise _Stop(Verdict("refused", why.diagnosis.rule, why.diagnosis.message)) from why
        raise
    numbers = {k: v if isinstance(v, int) else 1 << 12 for k, v in program.arguments.items()}
    if why := lowered.host.broken_requirement(numbers):
        raise _Stop(Verdict("refused", "launch", why))
    return lowered


def _run(level: str, program: Program, lowered: Lowered, seed: int) -> dict[str, bytes]:
    """What a level leaves in each result. Elements that nobody writes keep what they held."""
    given = dict(program.arguments)
    for name in program.results:
        array = given[name] = np.empty_like(given[name])
        array.view(np.uint8)[...] = 0xAB
    with _stage(level):
        if level == "ptx":
            launch(lowered, 1, seed, **{k: _as_numbers(v) for k, v in given.items()})
        else:
            kernel = parse(program.text).kernel() if level == "pipe" else lowered.passes.kernel
            values = [given[n] for n in lowered.host.arguments]
            interpret(kernel, 1, values, schedule="topo", seed=seed)
    return {name: _bits(given[name]) for name in program.results}


def _as_numbers(value: Any) -> Any:
    """An array of a type that NumPy lacks as one of bits."""
    if isinstance(value, np.ndarray) and value.dtype.kind not in "iuf":
        return value.view(f"u{value.itemsize}")
    return value


def _bits(value: Any) -> bytes:
    """An array's bits; one NaN is as good as another, since what an operation makes is open."""
    assert isinstance(value, np.ndarray)
    bits = value.view(f"u{value.itemsize}").copy()
    if value.dtype.kind not in "iu":
        bits[np.isnan(value.astype(np.float64))] = 0x7F
    return bits.tobytes()


def make_smaller(program: Program, seed: int, verdict: Verdict) -> str:
    """The text of a kernel that fails at the same stage, with less in it."""

    def fails(kernel: Kernel) -> bool:
        smaller = replace(program, text=show(kernel))
        found = judge(smaller, seed, verdict.stage == "ptxas")
        return (found.kind, found.stage) == (verdict.kind, verdict.stage)

    return show(reduce_kernel(parse(program.text).kernel(), fails, SECONDS_TO_REDUCE))


def judge_seeds(
    first: int, end: int, size: int, target: str | None, assembles: bool, reduces: bool
) -> Counter[str]:
    """Judge the kernels of seeds, tell of those that fail, and count the verdicts."""
    counts: Counter[str] = Counter()
    for seed in range(first, end):
        program = generate(seed, size, target)
        verdict = judge(program, seed, assembles)
        counts[" ".join((verdict.kind, verdict.stage)).strip()] += 1
        if verdict.kind == "fails":
            print(f"{seed}: {verdict.stage}: {verdict.reason[:300]}", flush=True)
            if reduces:
                print(make_smaller(program, seed, verdict), flush=True)
    return counts


def main(arguments: list[str]) -> int:
    """The command; 1 if a kernel failed."""
    parser = argparse.ArgumentParser(prog="python -m tests.lower.random_kernels")
    parser.add_argument("first", type=int, metavar="FROM", help="the first seed")
    parser.add_argument("end", type=int, metavar="TO", help="the seed after the last")
    parser.add_argument("--size", type=int, default=8, help="steps of a kernel")
    parser.add_argument("--target", help="make all kernels for one target, such as sm_90a")
    parser.add_argument("--assemble", action="store_true", help="assemble them with ptxas too")
    parser.add_argument("--reduce", action="store_true", help="make kernels that fail smaller")
    given = parser.parse_args(arguments)
    counts = judge_seeds(
        given.first, given.end, given.size, given.target, given.assemble, given.reduce
    )
    for kind, count in sorted(counts.items()):
        print(f"{count:5} {kind}")
    return int(any(kind.startswith("fails") for kind in counts))


if __name__ == "__main__":
    warnings.simplefilter("ignore")
    sys.exit(main(sys.argv[1:]))
