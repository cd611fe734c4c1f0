"""Kernels with roles keep their level's promises when their barriers are derived."""

from __future__ import annotations

import os
from collections import Counter

import ml_dtypes
import numpy as np
import pytest

from reftile.interp.model.pipe_order import PipeEvents, explore_pipe, hold_pipe
from reftile.interp.model.pipe_run import Mistake
from reftile.interp.model.ptx import VERSIONS, Version
from reftile.interp.model.relations import Model, simplify_away, spec_model
from reftile.ir.diagnostics import Bug, ReftileError
from reftile.ir.parse import parse
from reftile.lower.derive_barriers import derive_barriers
from tests.interp.pipe_litmus import (
    NAMES,
    arguments,
    explored,
    held,
    kernel_of,
    lowered,
    mistakes,
    promised,
    text,
)
from tests.interp.random_pipes import random_pipe

COUNT = int(os.environ.get("REFTILE_PIPE_PROGRAMS", "12"))
MOST_STEPS = 1500


@pytest.mark.parametrize("name", NAMES)
def test_litmus_kernels_are_race_free(name: str) -> None:
    assert promised(name).is_race_free and promised(name).outcomes


@pytest.mark.parametrize("version", VERSIONS)
@pytest.mark.parametrize("name", NAMES)
def test_derived_barriers_keep_the_promise(name: str, version: Version) -> None:
    verdict = held(name, version)
    assert verdict.holds and not verdict.fewer, (verdict.extra, [str(r) for r in verdict.races])


HARMLESS = {
    "PROXY+tma-st": {
        Mistake("drop", "wait_copies", 1),
        Mistake("early", "wait_copies", 1),
        Mistake("early", "wait_copies", 0),
    },
}
"""Nothing in the kernel needs these: the wait before its end, and a wait for the source alone."""


@pytest.mark.parametrize("name", NAMES)
def test_every_mistake_is_noticed(name: str) -> None:
    listed = list(mistakes(name))
    unnoticed = {m for m in listed if held(name, "ptx-9", m).holds}
    assert unnoticed == HARMLESS.get(name, set())
    assert len(listed) > len(unnoticed)


NEEDED_BY = {
    "fence_proxy": {
        "PROXY+tma-st",
        "PROXY+tma-st-read-back",
        "PROXY+tma-ld-own-data",
        "PROXY+tma-ld-overwrites",
        "PROXY+wgmma",
    },
    "arrive_barrier": {n for n in NAMES if n.startswith(("RING", "HANDOVER"))},
    "sync": {"COPY+threads", "ROLE+store-load", "HANDOVER+elected", "RING+bulk", "PROXY+wgmma"},
    "wait_copies": {"COPY+threads", "PROXY+tma-st"},
    "mma_wait": {"PROXY+wgmma", "PROXY+wgmma-ring"},
    "arrive_named": {"TURN+named", "TURN+there-and-back"},
}


@pytest.mark.parametrize("what", NEEDED_BY)
def test_families_notice_what_is_dropped(what: str) -> None:
    for name in NEEDED_BY[what]:
        assert not held(name, "ptx-9", Mistake("drop", what)).holds, name


def test_wrong_phase_and_too_few_participants_are_noticed() -> None:
    assert held("RING+bulk", "ptx-9", Mistake("flip", "wait_barrier", 1)).races
    assert held("RING+bulk", "ptx-9", Mistake("flip", "wait_barrier", 0)).hangs
    assert held("HANDOVER+two-writers", "ptx-9", Mistake("fewer", "alloc_barrier")).races
    assert held("TURN+named", "ptx-9", Mistake("fewer", "alloc_named_barrier")).races


def test_a_wait_for_the_source_alone_does_not_show_the_copy() -> None:
    assert held("PROXY+tma-st-read-back", "ptx-9", Mistake("early", "wait_copies")).races


EDITS = {
    "PROXY+tma-st": (", token=%fenced\n", ", token=%written\n"),
    "PROXY+tma-st-read-back": (
        "{engine = bulk} : token",
        "{engine = bulk, until = source_free} : token",
    ),
    "PROXY+wgmma": ("%a, token=%read", "%a, token=%fenced"),
    "RING+bulk": (", token=%free {", " {"),
    "HANDOVER+elected": ("%zero, token=%written", "%zero"),
    "TURN+named": ("%b, token=%met", "%b"),
    "COPY+threads": ("%b, token=%landed :", "%b :"),
}
"""A token of each kernel that is then missing or another."""


@pytest.mark.parametrize("name", EDITS)
def test_a_missing_token_is_a_race_of_the_level(name: str) -> None:
    old, new = EDITS[name]
    assert text(name).count(old) >= 1
    assert explored(text(name).replace(old, new, 1)).races


def test_relaxed_arrivals_show_no_writes() -> None:
    source = text("HANDOVER+threads").replace("by = threads", "by = threads, order = relaxed")
    assert explored(source).races
    source = text("RING+bulk").replace(
        "%empty, %s, token=%read", "%empty, %s, token=%read {order = relaxed}"
    )
    assert explored(source).is_race_free


def without(clause: str) -> Model:
    """The second reading with one clause of `kept` less."""
    model = spec_model("ptx-9")
    shorter = dict(simplify_away(model.definitions["kept"]))
    return model.with_definition("kept", shorter[clause])


def test_two_points_go_beyond_the_letter_of_the_isa() -> None:
    """Without `done`, a bulk copy into what threads have read needs a fence; without `linked`,
    fences do nothing."""
    no_done = without("`| done`")
    assert held("RING+bulk", "ptx-9", model=no_done).races
    assert held("PROXY+wgmma-ring", "ptx-9", model=no_done).holds
    assert held("PROXY+wgmma", "ptx-9", model=without("`| linked`")).races


def test_random_kernels_keep_their_promises() -> None:
    counts: Counter[str] = Counter()
    for seed in range(COUNT):
        source = random_pipe(seed)
        kernel = kernel_of(source)
        args = [np.zeros((512, 64), ml_dtypes.bfloat16) for _ in range(2)]
        try:
            promise = explore_pipe(kernel, args, MOST_STEPS)
            if promise.races:
                counts["racy"] += 1
                continue
            code = derive_barriers(parse(source).kernels[0], "sm_90a")
            verdicts = [hold_pipe(promise, code, args, v, None, MOST_STEPS) for v in VERSIONS]
        except ReftileError as error:
            assert error.diagnosis.rule == "model.too_large", seed
            counts["too large"] += 1
            continue
        assert all(v.holds for v in verdicts), (seed, [str(r) for v in verdicts for r in v.races])
        counts["kept"] += 1
        counts["barriers"] += sum(op.name == "sync" for op in code.walk())
    print(f"seeds 0 to {COUNT - 1}: {dict(counts)}")
    assert counts["kept"] >= COUNT // 3 and counts["barriers"] > 0


def test_refuses_what_is_not_modelled() -> None:
    source = text("RING+bulk").replace("warps = 8}", "warps = 8, cluster = [2, 1, 1]}")
    with pytest.raises(ReftileError, match="not a cluster"):
        explore_pipe(parse(source).kernels[0], arguments(lowered("RING+bulk")))
    source = text("ROLE+store-load").replace(
        "%w, %read_again = load_buffer %b",
        "%half = subview %b, [%zero, %zero] : buffer<32x64xf32>\n"
        "  %w, %read_again = load_buffer %b",
    )
    with pytest.raises(ReftileError, match="subview"):
        explore_pipe(parse(source).kernels[0], arguments(lowered("ROLE+store-load")))


def test_a_racy_kernel_promises_nothing() -> None:
    source = text("HANDOVER+elected").replace("%zero, token=%written", "%zero")
    kernel = kernel_of(source)
    with pytest.raises(Bug, match="race-free"):
        hold_pipe(explored(source), kernel, arguments(kernel), "ptx-9")


def test_bulk_copies_and_products_are_of_the_asynchronous_proxy() -> None:
    kernel = kernel_of(text("PROXY+wgmma"))
    events = PipeEvents(kernel, arguments(kernel)).as_ptx()
    tagged = events.space.pairs(events.base["async"])
    assert {events.describe(e).split(":")[0].split("[")[0] for e, _ in tagged} == {
        "cta.all.p.lhs",
        "cta.all.p.rhs",
    }
