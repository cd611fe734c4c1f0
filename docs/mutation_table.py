"""Write the page that says which litmus tests notice which mistake in the lowering.

python docs/mutation_table.py            # rewrite the page: a minute or two
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import cache
from pathlib import Path

from reftile.interp.model.execution import Result
from reftile.interp.model.explore import explore
from reftile.interp.model.litmus import LitmusTest, parse_litmus
from reftile.interp.model.ptx import Layout, Lowered, PtxMapping, hold, lower, spec_mapping
from reftile.ir.diagnostics import ReftileError, Source

HERE = Path(__file__).parent
PAGE = HERE / "memory_model_mutations.md"
LITMUS = HERE.parent / "conformance" / "litmus"
LAYOUT = Layout(threads=2)


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
TAIL = """
Proxy fences are not in the table, as the model has no asynchronous proxy. That a dropped one is
noticed is tested where code for it runs: `tests/test_ptx_machine_bulk.py` and
`tests/test_ptx_machine_matrix.py` drop the fences of bulk copies and of `wgmma` operands.
"""


def page() -> str:
    """The page."""
    plain = Mutation("none", lambda t, m: lower(t.program, LAYOUT, m))
    rows = [row(m) for m in (plain, *MUTATIONS)]
    return HEAD.format(count=len(tests())) + "\n".join(rows) + "\n" + TAIL


if __name__ == "__main__":
    PAGE.write_text(page(), encoding="utf-8")
    sys.exit(0)
