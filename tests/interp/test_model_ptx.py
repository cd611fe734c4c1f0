"""The PTX lowering keeps the promises of race-free programs, and the suite notices when it does
not."""

from __future__ import annotations

import os
from functools import cache

import pytest

from reftile.interp.model.events import Scope
from reftile.interp.model.execution import Result
from reftile.interp.model.explore import explore
from reftile.interp.model.ptx import (
    VERSIONS,
    Layout,
    PtxMapping,
    Rule,
    hold,
    lower,
    read_instruction,
    spec_mapping,
)
from reftile.ir.diagnostics import Bug
from tests.interp.litmus_suite import suite
from tests.interp.random_programs import handing_over, random_program

COUNT = int(os.environ.get("REFTILE_MODEL_PROGRAMS", "150"))
LAYOUTS = (Layout(1), Layout(2))
RACE_FREE = [name for name, test in suite().items() if not test.expected.race]


@cache
def source(name: str) -> Result:
    return explore(suite()[name].program)


@pytest.mark.parametrize("name", RACE_FREE)
def test_suite_keeps_its_promises(name: str) -> None:
    for layout in LAYOUTS[1:] if suite()[name].family == "CYCLE" else LAYOUTS:
        lowered = lower(suite()[name].program, layout)
        for version in VERSIONS:
            verdict = hold(source(name), lowered, version)
            assert verdict.holds, (layout, version, verdict.extra, [str(r) for r in verdict.races])


@pytest.mark.parametrize("mixed", [False, True])
def test_random_programs_keep_their_promises(mixed: bool) -> None:
    checks = 0
    for seed in range(COUNT // 2):
        program = random_program(seed, 6 if mixed else 8, mixed)
        promised = explore(program, stop_at_race=True)
        if promised.is_racy:
            continue
        for layout in LAYOUTS:
            lowered = lower(program, layout, seed=seed)
            for version in VERSIONS:
                assert hold(promised, lowered, version).holds, (seed, layout, version)
                checks += 1
    assert checks > COUNT // 2


def test_programs_that_wait_in_loops_keep_their_promises() -> None:
    kept = 0
    for seed in range(COUNT // 5):
        program = handing_over(seed)
        promised = explore(program, stop_at_race=True)
        if promised.is_race_free:
            kept += 1
            lowered = lower(program, Layout(2), seed=seed)
            assert all(hold(promised, lowered, version).holds for version in VERSIONS), seed
    assert kept >= COUNT // 10


def changed(row: str, before: str, after: str) -> PtxMapping:
    mapping = spec_mapping()
    assert before in mapping.rows[row]
    return mapping.with_row(row, mapping.rows[row].replace(before, after))


def mutations() -> dict[str, tuple[PtxMapping, Rule]]:
    """Wrong lowerings: barriers dropped, orders weakened, scopes narrowed."""
    mapping = spec_mapping()
    found: dict[str, tuple[PtxMapping, Rule]] = {"no barriers": (mapping, "none")}
    for need in mapping.needed_if:
        found[f"no barrier for {need}"] = mapping.without_need(need), "minimal"
    for row in mapping.rows:
        kind, order = row.split(".")
        weaker = {"acq_rel": ("acquire", "release"), "weak": (), "relaxed": ()}
        for less in weaker.get(order, ("relaxed",)):
            found[f"{row} as {less}"] = changed(row, order, less), "minimal"
        if order == "relaxed" and kind in ("load", "store"):
            found[f"{row} as weak"] = changed(row, "relaxed.{scope}.", ""), "minimal"
    narrower: tuple[tuple[Scope, str], ...] = (("device", "cta"), ("sys", "gpu"), ("sys", "cta"))
    for scope, text in narrower:
        found[f"{scope} as {text}"] = mapping.with_scope(scope, text), "minimal"
    return found


CAUGHT_BY = {
    "no barriers": "MP SB LB S CoRR CoWW CoWR CoRW WRC ISA2 IRIW ATOM SPLITK TILE TOK TOK_IF "
    "TOK_FOR ALIAS MIXED ELECT",
    "no barrier for shared_granule": "CoRR CoWW CoWR CoRW ATOM ALIAS MIXED TOK_IF TOK_FOR VIEW",
    "no barrier for first_acquires": "MP S LB WRC ISA2 ATOM SPLITK TILE TOK ELECT",
    "no barrier for second_releases": "MP S LB WRC ISA2 ATOM SPLITK TILE TOK ELECT SPIN",
    "load.acquire as relaxed": "MP S LB WRC ISA2 TILE TOK ELECT SPIN",
    "load.relaxed as weak": "MP SB LB R WRC RWC IRIW CoRR CoWR CoRW TILE MIXED",
    "store.release as relaxed": "MP S LB WRC ISA2 ATOM TILE TOK ELECT SPIN FAIL_CAS",
    "store.relaxed as weak": "MP SB LB S R 2+2W CoRR CoWW CoWR CoRW RWC IRIW ATOM TILE MIXED",
    "rmw.acquire as relaxed": "MP",
    "rmw.release as relaxed": "MP",
    "rmw.acq_rel as acquire": "MP SB IRIW SPLITK",
    "rmw.acq_rel as release": "MP SB IRIW SPLITK",
    "cas.acquire as relaxed": "ATOM",
    "cas.release as relaxed": "MP",
    "cas.acq_rel as acquire": "ISA2",
    "cas.acq_rel as release": "FAIL_CAS",
    "red.release as relaxed": "MP",
    "device as cta": "MP SB LB S R 2+2W CoRR CoRW WRC ISA2 RWC IRIW ATOM SPLITK RED TILE TOK ELECT "
    "WSCOPE",
    "sys as gpu": "MP WSCOPE",
    "sys as cta": "MP WSCOPE",
}
"""The families that notice each wrong lowering, by an outcome or a race that should not be."""


def test_every_mutation_has_families() -> None:
    assert set(CAUGHT_BY) == set(mutations())


@pytest.mark.parametrize("what", CAUGHT_BY)
def test_mutation_is_caught_by(what: str) -> None:
    mapping, rule = mutations()[what]
    for family in CAUGHT_BY[what].split():
        names = [n for n in RACE_FREE if suite()[n].family == family]
        assert any(is_caught(n, mapping, rule) for n in names), family


def is_caught(name: str, mapping: PtxMapping, rule: Rule) -> bool:
    lowered = (lower(suite()[name].program, layout, mapping, rule) for layout in LAYOUTS)
    return any(not hold(source(name), program, "ptx-9").holds for program in lowered)


EVERY_BARRIER_COUNTS = (
    "CoRR CoWW CoWR CoRW S WRC ISA2 ATOM WSCOPE LB TILE ALIAS MIXED TOK_IF TOK_FOR ELECT FAIL_CAS"
).split()


@pytest.mark.parametrize("family", EVERY_BARRIER_COUNTS)
def test_dropping_any_barrier_is_caught(family: str) -> None:
    dropped = 0
    for name in RACE_FREE:
        program = suite()[name].program
        if suite()[name].family != family:
            continue
        for number in range(lower(program, Layout(2)).barriers):
            lowered = lower(program, Layout(2), dropped_barrier=number)
            assert not hold(source(name), lowered, "ptx-9").holds, (name, number)
            dropped += 1
    assert dropped


def test_the_minimal_rule_saves_barriers() -> None:
    counts = {"minimal": 0, "every": 0}
    for name in RACE_FREE:
        for rule in ("minimal", "every"):
            counts[rule] += lower(suite()[name].program, Layout(2), rule=rule).barriers
    assert counts["minimal"] < 0.65 * counts["every"]


def test_elected_thread_listing() -> None:
    lowered = lower(suite()["ELECT+release"].program, Layout(2, rotate=False))
    assert lowered.text().splitlines() == [
        "P:",
        "  t0: st.global.b32 x[0]",
        "  t1: st.global.b32 x[1]",
        "  t0: st.global.b32 x[2]",
        "  t1: st.global.b32 x[3]",
        "  all: bar.sync 0",
        "  t0: st.release.gpu.global.b32 f",
        "C:",
        "  t0: ld.acquire.gpu.global.b32 f",
        "  all: bar.sync 0   // if (r == 1)",
        "  t0: ld.global.b32 x[0]   // if (r == 1)",
        "  t1: ld.global.b32 x[1]   // if (r == 1)",
        "  t0: ld.global.b32 x[2]   // if (r == 1)",
        "  t1: ld.global.b32 x[3]   // if (r == 1)",
    ]


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("ld.global.b32 x", ("weak", None)),
        ("st.release.gpu.global.b32 x", ("release", "device")),
        ("atom.acq_rel.sys.global.add.b32 x", ("acq_rel", "sys")),
        ("atom.global.add.b32 x", ("relaxed", "device")),
        ("red.relaxed.cta.global.add.b32 x", ("relaxed", "block")),
    ],
)
def test_reads_order_and_scope(text: str, expected: tuple[str, str | None]) -> None:
    assert read_instruction(text) == expected


def test_ptx_forbids_more() -> None:
    """Two loads of one thread cannot run backwards, although the program leaves them unordered."""
    name = "CoRR+rlx+no-token"
    lowered = lower(suite()[name].program, Layout(1))
    for version in VERSIONS:
        verdict = hold(source(name), lowered, version)
        assert verdict.holds and verdict.fewer


def test_a_racy_program_promises_nothing() -> None:
    program = suite()["MP+weak+rlx-flag"].program
    with pytest.raises(Bug, match="race-free"):
        hold(explore(program), lower(program), "ptx-9")
