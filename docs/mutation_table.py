"""Write the page that says which litmus tests notice which mistake in the lowering.

python docs/mutation_table.py            # rewrite the page: a minute or two
"""

from __future__ import annotations

import sys
from collections import Counter
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any, Literal

import ml_dtypes
import numpy as np

from reftile.interp.model.execution import Result
from reftile.interp.model.explore import explore
from reftile.interp.model.litmus import LitmusTest, parse_litmus
from reftile.interp.model.pipe_order import explore_pipe, hold_pipe
from reftile.interp.model.pipe_run import Mistake
from reftile.interp.model.ptx import Layout, Lowered, PtxMapping, hold, lower, spec_mapping
from reftile.ir.core import Kernel
from reftile.ir.diagnostics import ReftileError, Source
from reftile.ir.parse import parse
from reftile.lower.derive_barriers import derive_barriers

HERE = Path(__file__).parent
PAGE = HERE / "memory_model_mutations.md"
LITMUS = HERE.parent / "conformance" / "litmus"
PIPES = HERE.parent / "conformance" / "litmus_pipe"
LAYOUT = Layout(threads=2)
MistakeKind = Literal["drop", "flip", "fewer", "early"]


@dataclass(frozen=True)
class Mutation:
    """A mistake in the lowering, and how to make it."""

    name: str
    apply: Callable[[LitmusTest, PtxMapping], Lowered]


def _with(
    change: Callable[[PtxMapping], PtxMapping],
) -> Callable[[LitmusTest, PtxMapping], Lowered]:
    return lambda test, mapping: lower(test.program, LAYOUT, change(mapping))


def _weaker_row(row: str, found: str, instead: str) -> Mutation:
    def change(mapping: PtxMapping) -> PtxMapping:
        return mapping.with_row(row, mapping.rows[row].replace(found, instead))

    return Mutation(f"`{row}` becomes {instead.strip('.')}", _with(change))


MUTATIONS = (
    Mutation("no barriers at all", lambda t, m: lower(t.program, LAYOUT, m, rule="none")),
    Mutation("no barrier for a shared place", _with(lambda m: m.without_need("shared_granule"))),
    Mutation("no barrier behind an acquire", _with(lambda m: m.without_need("first_acquires"))),
    Mutation("no barrier before a release", _with(lambda m: m.without_need("second_releases"))),
    _weaker_row("store.release", ".release", ".relaxed"),
    _weaker_row("load.acquire", ".acquire", ".relaxed"),
    _weaker_row("rmw.acq_rel", ".acq_rel", ".relaxed"),
    _weaker_row("rmw.acq_rel", ".acq_rel", ".acquire"),
    _weaker_row("rmw.acq_rel", ".acq_rel", ".release"),
    _weaker_row("cas.acq_rel", ".acq_rel", ".relaxed"),
    _weaker_row("cas.acquire", ".acquire", ".relaxed"),
    _weaker_row("red.release", ".release", ".relaxed"),
    Mutation("scope `device` becomes `cta`", _with(lambda m: m.with_scope("device", "cta"))),
    Mutation("scope `sys` becomes `gpu`", _with(lambda m: m.with_scope("sys", "gpu"))),
    Mutation("scope `sys` becomes `cta`", _with(lambda m: m.with_scope("sys", "cta"))),
)


@cache
def tests() -> tuple[tuple[LitmusTest, Result], ...]:
    """The tests written by hand that are free of races, explored."""
    found: list[tuple[LitmusTest, Result]] = []
    for path in sorted(LITMUS.glob("*.litmus")):
        if path.name.startswith("generated"):
            continue
        for test in parse_litmus(Source(path.name, path.read_text(encoding="utf-8"))):
            if not test.expected.race:
                found.append((test, explore(test.program)))
    return tuple(found)


def noticed_by(mutation: Mutation) -> Iterator[tuple[LitmusTest, str]]:
    """Yield the tests that notice a mistake, with what they see: an outcome or a race."""
    mapping = spec_mapping()
    for test, result in tests():
        try:
            verdict = hold(result, mutation.apply(test, mapping), "ptx-9")
        except ReftileError:
            continue
        if not verdict.holds:
            yield test, "race" if verdict.races else "outcome"


def row(mutation: Mutation) -> str:
    """One line of the table."""
    found = list(noticed_by(mutation))
    families = sorted({test.family for test, _ in found})
    example = found[0][0].name if found else "-"
    races = sum(what == "race" for _, what in found)
    counts = f"{len(found) - races} + {races}"
    return f"| {mutation.name} | {counts} | {', '.join(families) or 'none'} | {example} |"


HEAD = """# Which tests notice which mistake

Written by `docs/mutation_table.py`. Each row breaks the lowering to PTX of
[the memory model](reference/memory_model.md) in one way. The {count} litmus tests that are written
by hand and free of races are lowered with two threads for each block, and all executions of the
result under the second PTX model of the specification are held against the outcomes that the
program has. The second column counts the tests that see an outcome that should not be, and those in
which the lowered code races. Without a mutation it is 0 + 0. A row with `none` would be a mistake
that no test notices.

| mistake | outcomes + races | families that notice | for instance |
|---|---|---|---|
"""
PIPE_HEAD = """
## Kernels with roles

The {count} kernels in `conformance/litmus_pipe` hand tiles over by shared memory: ring buffers,
bulk copies, products, named barriers. They get the barriers that the lowering derives, and one
thing is then done wrong in the code for the threads. `noticed` counts the places where that can be
done and how many of them end in a race, another outcome, or code that waits for ever. The rest is
named below.

| mistake | noticed | how | families that notice | for instance |
|---|---|---|---|---|
"""
PIPE_TAIL = """
Not noticed, as nothing in the kernel needs them: {unnoticed}. By the letter of the ISA two more
things would be mistakes, see `linked` and `done` in
[the memory model](reference/memory_model.md#10-ptx-in-the-same-notation).
"""


@dataclass(frozen=True)
class PipeTest:
    """A kernel with roles: its promise, and its code with barriers."""

    name: str
    promised: Result
    lowered: Kernel
    args: list[Any]


@cache
def pipe_tests() -> tuple[PipeTest, ...]:
    """The kernels with roles, explored and lowered."""
    found: list[PipeTest] = []
    for path in sorted(PIPES.glob("*.tile")):
        source, code = (parse(path.read_text(encoding="utf-8")).kernels[0] for _ in range(2))
        dtype = ml_dtypes.bfloat16 if "bf16" in str(source.arguments[0].type) else np.float32
        args: list[Any] = [np.zeros((512, 64), dtype) for _ in source.arguments]
        derive_barriers(code, str(code.attributes["target"]))
        found.append(PipeTest(path.stem, explore_pipe(source, args), code, args))
    return tuple(found)


PIPE_MISTAKES: tuple[tuple[str, MistakeKind, str], ...] = (
    ("derived barrier dropped", "drop", "sync"),
    ("proxy fence dropped", "drop", "fence_proxy"),
    ("arrival dropped", "drop", "arrive_barrier"),
    ("wait for a phase dropped", "drop", "wait_barrier"),
    ("wait for the wrong phase", "flip", "wait_barrier"),
    ("barrier awaits too few arrivals", "fewer", "alloc_barrier"),
    ("wait for copies dropped", "drop", "wait_copies"),
    ("wait for the source of a copy only", "early", "wait_copies"),
    ("wait for a product dropped", "drop", "mma_wait"),
    ("named barrier: arrival dropped", "drop", "arrive_named"),
    ("named barrier: meeting dropped", "drop", "sync_named"),
    ("named barrier: too few participants", "fewer", "alloc_named_barrier"),
)


def pipe_places(kind: MistakeKind, op: str) -> Iterator[tuple[PipeTest, Mistake]]:
    """Where a mistake can be made."""
    for test in pipe_tests():
        same = [o for o in test.lowered.walk() if o.name == op]
        for at, found in enumerate(same):
            arrivals = getattr(found.results[0].type, "arrivals", 2) if found.results else 2
            is_thread_copy = kind == "early" and found.attributes.get("engine") != "bulk"
            if arrivals > 1 and not is_thread_copy:
                yield test, Mistake(kind, op, at)


def pipe_table() -> str:
    """The second table, with the text around it."""
    rows: list[str] = []
    unnoticed: list[str] = []
    for what, kind, op in PIPE_MISTAKES:
        counts: Counter[str] = Counter()
        names: list[str] = []
        for test, mistake in pipe_places(kind, op):
            verdict = hold_pipe(test.promised, test.lowered, test.args, "ptx-9", mistake)
            if verdict.holds:
                unnoticed.append(f"{what} ({test.name})")
                continue
            how = "race" if verdict.races else "waits for ever" if verdict.hangs else "outcome"
            counts[how] += 1
            names.append(test.name)
        total = sum(counts.values()) + sum(entry.startswith(f"{what} (") for entry in unnoticed)
        families = ", ".join(sorted({name.partition("+")[0] for name in names})) or "none"
        shown = ", ".join(f"{how} {n}" for how, n in sorted(counts.items()))
        noticed = f"{sum(counts.values())} of {total}"
        example = names[0] if names else "-"
        rows.append(f"| {what} | {noticed} | {shown} | {families} | {example} |")
    rest = "; ".join(dict.fromkeys(unnoticed)) or "none"
    head = PIPE_HEAD.format(count=len(pipe_tests()))
    return head + "\n".join(rows) + "\n" + PIPE_TAIL.format(unnoticed=rest)


def page() -> str:
    """The page."""
    plain = Mutation("none", lambda t, m: lower(t.program, LAYOUT, m))
    rows = [row(m) for m in (plain, *MUTATIONS)]
    return HEAD.format(count=len(tests())) + "\n".join(rows) + "\n" + pipe_table()


if __name__ == "__main__":
    PAGE.write_text(page(), encoding="utf-8")
    sys.exit(0)
