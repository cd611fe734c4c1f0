"""Litmus tests on threads: what is run, that it can be seen, and that a wrong lowering fails."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Generator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from numba import njit
from reftile.conformance import litmus_threads
from reftile.conformance.litmus_threads import (
    HOLDS,
    INSTANCE,
    INSTANCES,
    MEETS,
    NOBODY,
    REPORTS,
    ROLE,
    Draw,
    Field,
    draws,
    harness,
    orders,
    parts,
    run_on_threads,
    turns,
)
from reftile.conformance.litmus_tile.outcomes import ABSENT, count_outcomes, filled, forbidden
from reftile.conformance.litmus_tile.write import Inexpressible
from reftile.conformance.runner import run_suites
from reftile.conformance.stress import Histogram, StressConfig, judge, mutants
from reftile.conformance.suites.litmus import Question, questions
from reftile.conformance.verdicts import Verdict

from reftile.interp.arguments import Raw
from reftile.interp.launch import interpret
from reftile.interp.model.execution import Outcome
from reftile.interp.model.explore import explore
from reftile.interp.model.litmus import LitmusTest
from reftile.interp.model.values import UNINIT
from reftile.ir.core import Block
from reftile.ir.parse import parse
from reftile.lower.cpu.emit import _Generator  # type: ignore[reportPrivateUsage]
from reftile.lower.cpu.functions import machine
from reftile.rt.cpu import code as cpu_code
from reftile.rt.cpu import thread_count
from tests.interp.litmus_suite import suite

CONFIG = StressConfig(iterations=10 * INSTANCES)
UNTIL_SEEN = StressConfig(iterations=2000 * INSTANCES)
"""For what shows in the first launches, but by chance."""
two_processors = pytest.mark.skipif(thread_count() < 2, reason="one processor overlaps nothing")


@pytest.fixture(autouse=True, scope="module")
def cache(tmp_path_factory: pytest.TempPathFactory) -> Generator[None]:
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("REFTILE_CACHE", str(tmp_path_factory.mktemp("cpu_cache")))
        yield


# What is run


def some_questions() -> list[Question]:
    found = [q for q in questions() if not q.test.expected.race]
    return [q for i, q in enumerate(found) if i % 12 == 0]


def test_a_block_is_written_in_the_orders_that_tokens_and_values_leave() -> None:
    def ways(name: str) -> list[list[list[str]]]:
        blocks = suite()[name].program.blocks
        return [[[op.name for op in way.ops] for way in orders(block)] for block in blocks]

    assert ways("MP+rlx+rel-acq") == [[["a", "b"]], [["c", "d"]]]
    no_token = suite()["MP+rlx+rel-acq+no-producer-token"]
    assert ways(no_token.name) == [[["a", "b"], ["b", "a"]], [["c", "d"]]]
    assert all(len(way) == 1 for way in ways("LB+rlx+data"))


@pytest.mark.parametrize("question", some_questions(), ids=lambda q: q.id)
def test_every_order_means_the_same(question: Question) -> None:
    program = question.test.program
    last = tuple(orders(block)[-1] for block in program.blocks)
    again = explore(replace(program, blocks=last))
    first = explore(program)
    assert (again.allows() is None) == (first.allows() is None)
    assert again.is_racy == first.is_racy


BLOCKS = ((0, False), (0, False), (0, True), (1, False), (2, False), (2, True), (3, False))
"""The roles of four blocks, of which two can stop between operations."""


def field(table: np.ndarray, which: Field) -> np.ndarray:
    return table >> which.start & which.most


@pytest.mark.parametrize("threads", [1, 2, 3, 4])
def test_every_block_of_every_instance_is_played_once(threads: int) -> None:
    for draw in draws(StressConfig(seed=threads), 6):
        table = turns(BLOCKS, threads, 50, draw)
        assert table.shape[0] == threads
        words = table[field(table, ROLE) != NOBODY]
        blocks = [BLOCKS[role][0] for role in field(words, ROLE)]
        played = sorted(zip(field(words, INSTANCE).tolist(), blocks, strict=True))
        assert played == [(i, b) for i in range(50) for b in range(4)]
        meeting = [field(row, INSTANCE)[field(row, MEETS) == 1].tolist() for row in table]
        assert all(row == meeting[0] for row in meeting)
        assert len(meeting[0]) == len(set(meeting[0]))
        assert (-(-50 // draw.meets) <= len(meeting[0])) == (threads > 1)
    assert list(draws(CONFIG, 9)) == list(draws(CONFIG, 9))


@pytest.mark.parametrize("threads", [1, 2, 3, 4])
def test_where_a_thread_stops_all_others_meet_it_and_report(threads: int) -> None:
    (draw,) = draws(StressConfig(seed=threads), 1)
    table = turns(BLOCKS, threads, 400, replace(draw, held=50))
    played = table[field(table, ROLE) != NOBODY]
    stopping = played[field(played, HOLDS) != 0]
    assert all(BLOCKS[role][1] for role in field(stopping, ROLE))
    instances = field(stopping, INSTANCE).tolist()
    assert len(instances) == len(set(instances))
    # Half of the instances are to be held, and half of the blocks can be.
    assert 50 < len(instances) < 200 or (threads == 1 and not instances)
    reporting = field(played, INSTANCE)[field(played, REPORTS) == 1].tolist()
    assert sorted(reporting) == sorted(instances * (threads - 1))
    meeting = field(played, INSTANCE)[field(played, MEETS) == 1].tolist()
    assert all(meeting.count(instance) == threads for instance in instances)


def test_blocks_that_share_a_thread_are_played_slowly_too() -> None:
    blocks = suite()["IRIW+rlx"].program.blocks
    pairs = tuple((r.block, r.slow) for r in parts(blocks, 2))
    draw = replace(next(draws(CONFIG, 1)), held=0)
    for threads, are_slow in ((2, True), (4, False)):
        table = turns(pairs, threads, 50, draw)
        played = field(table, ROLE)[field(table, ROLE) != NOBODY]
        assert any(pairs[role][1] for role in played) == are_slow


def test_a_block_alone_stops_for_nobody() -> None:
    blocks = suite()["TILE+overlap"].program.blocks
    assert len(blocks) == 1 and not any(r.slow for r in parts(blocks, 2))


def interpret_instances(
    test: LitmusTest, draw: Draw, instances: int, **options: Any
) -> tuple[dict[Outcome, int], int]:
    """Run the kernels of a test on the checked interpreter, which finds no race: its outcomes."""
    found, program = harness(test, 2), test.program
    memories = filled(program, instances, draw.step)
    results = np.full(instances * max(len(found.outputs), 1), ABSENT, f"i{found.width}")
    for (text, kernel), roles in zip(found.texts, found.roles, strict=True):
        threads = min(2, max(r.block for r in roles) + 1)
        table = turns(tuple((r.block, r.slow) for r in roles), threads, instances, draw)
        buffers = [
            Raw(m, f"i{8 * b.element_size}") for m, b in zip(memories, program.buffers, strict=True)
        ]
        given = [results, np.zeros(instances, np.int32), table.reshape(-1)]
        given.append(np.zeros(4096, np.int32))
        numbers = [table.shape[1], draw.step, 1024]
        module = parse(text, kernel)
        interpret(module, (threads,), [*buffers, *given, *numbers], name=kernel, **options)
    rows = results.astype(np.int64).reshape(instances, -1)
    return count_outcomes(program, found.outputs, memories, rows, draw.step)


@pytest.mark.parametrize("question", some_questions(), ids=lambda q: q.id)
def test_the_kernels_show_only_what_the_model_allows(question: Question) -> None:
    """Run on the checked interpreter: no race, and only possible outcomes."""
    test, draw = question.test, Draw((1, 2), 8, True, 1, 50, 3, True, 50)
    try:
        outcomes, hits = interpret_instances(test, draw, 4, schedule="topo", seed=3)
    except Inexpressible:
        pytest.skip("a CPU cannot be asked")
    assert sum(outcomes.values()) == 4
    assert hits == 0 or explore(test.program).allows() is not None


@pytest.mark.parametrize(
    ("name", "why"),
    [
        ("MP+sys+two-devices", "several devices"),
        ("UNINIT+load", "poison"),
        ("VIEW+masked-load", "poison"),
    ],
)
def test_what_a_cpu_cannot_be_asked_is_said(name: str, why: str) -> None:
    with pytest.raises(Inexpressible, match=why):
        harness(suite()[name], 2)
    (result,) = run_suites("cpu", ["litmus"], filter=f"/{name.replace('+', '.')}$").results
    assert result.verdict is Verdict.UNSUPPORTED and why in result.message


# What is seen


@two_processors
def test_the_processor_shows_that_loads_overtake_stores() -> None:
    assert run_on_threads(suite()["SB+rlx"], UNTIL_SEEN).hits >= 3
    assert run_on_threads(suite()["SB+acq_rel-rmw"], CONFIG).hits == 0


def test_missing_tokens_and_lost_updates_are_seen() -> None:
    for name, what in (
        ("MP+weak+rel-acq", "no token from a"),
        ("ATOM+lost-update", "in two steps"),
        ("ATOM+max-min", "in two steps"),
        ("WIDEN+masked-store", "written back in two steps"),
        ("TILE+overlap", "no token from a"),
    ):
        judged = judge(suite()[name], run_on_threads, CONFIG, keeps_order=True)
        assert judged.verdict is Verdict.PASS, (name, judged)
        assert what in judged.mutant and judged.found.hits == 0


ON_ONE_PROCESSOR = """
import os
os.sched_setaffinity(0, {min(os.sched_getaffinity(0))})
from tests.conformance.test_litmus_threads import CONFIG, judge, run_on_threads, suite
for name in ("MP+weak+rel-acq", "ATOM+lost-update"):
    judged = judge(suite()[name], run_on_threads, CONFIG, keeps_order=True)
    print(judged.verdict.value, judged.found.hits, judged.mutant)
"""


@pytest.mark.skipif(not hasattr(os, "sched_setaffinity"), reason="processors cannot be chosen here")
def test_one_processor_shows_what_comes_of_orders() -> None:
    """Nothing overlaps there, so that all comes of threads that stop between two operations."""
    root = Path(__file__).resolve().parents[2]
    command = [sys.executable, "-c", ON_ONE_PROCESSOR]
    done = subprocess.run(command, cwd=root, capture_output=True, text=True, check=False)
    assert done.stdout.splitlines() == [
        "pass 0 P.b: no token from a",
        "pass 0 P.op0: read and written in two steps",
    ], done.stderr


def test_outcomes_that_the_model_does_not_have_are_named() -> None:
    possible = [(("r", 1), ("s", UNINIT)), (("r", 0), ("s", 0))]
    seen = [(("r", 1), ("s", 5)), (("r", 0), ("s", 0)), (("r", 0), ("s", UNINIT)), (("r", 2),)]
    assert forbidden(seen, possible) == ["r=0, s=-", "r=2"]


def test_any_outcome_that_the_model_does_not_have_fails() -> None:
    def machine(test: LitmusTest, config: StressConfig) -> Histogram:
        return Histogram({"r=7, s=0": 1}, 5, 10, forbidden=["r=7, s=0"])

    judged = judge(suite()["SB+rlx"], machine, CONFIG)
    assert judged.verdict is Verdict.FAIL and "r=7, s=0" in judged.why


def test_mutants_of_a_machine_that_keeps_order_are_written_otherwise() -> None:
    found = [what for what, _ in mutants(suite()["MP+rlx+rel-acq"], keeps_order=True)]
    wanted = ["P.b: no token from a", "C.d: no token from c", "P.b: written in two steps"]
    assert found == wanted
    everything = [what for what, _ in mutants(suite()["MP+rlx+rel-acq"])]
    assert set(found) < set(everything)


def test_the_suite_runs_on_the_cpu() -> None:
    results = run_suites("cpu", ["litmus"], "wimpy", r"litmus/(SB|CoWW|TILE|UNINIT)/")
    found = results.summary()
    assert results.ok and found["fail"] == found["error"] == found["flaky"] == 0
    assert found["pass"] > 3 and found["unsupported"] == 1


# Faults that are planted into the lowering


@contextmanager
def compiled_anew(patch: pytest.MonkeyPatch, folder: Path) -> Generator[None]:
    """Nothing that was compiled before is used in here, nor behind it what is compiled here."""
    patch.setenv("REFTILE_CACHE", str(folder))
    litmus_threads._module.cache_clear()
    try:
        yield
    finally:
        patch.undo()
        litmus_threads._module.cache_clear()


def updater_in_two_steps(mode: str, kind: str, ordering: str) -> Any:
    """`atomic_updater` without the atomicity."""
    read = machine.atomic_loader(kind, "monotonic")
    write = machine.atomic_storer(kind, "monotonic")
    combine = {"add": machine.addi, "xchg": njit(lambda old, value: value)}[mode]

    @njit
    def update(base: Any, offset: Any, mask: Any, value: Any) -> Any:
        if not mask:
            return value
        old = read(base, offset, True, value)
        write(base, offset, True, combine(old, value))
        return old

    return update


def verdict(test: LitmusTest, config: StressConfig = CONFIG) -> Verdict:
    return judge(test, run_on_threads, config, keeps_order=True).verdict


@two_processors
@pytest.mark.parametrize("name", ["ATOM+lost-update", "SB+acq_rel-rmw"])
def test_atomics_that_are_not_fail(
    name: str, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    with compiled_anew(monkeypatch, tmp_path):
        names = cpu_code._names()  # type: ignore[reportPrivateUsage]
        monkeypatch.setitem(names, "atomic_updater", updater_in_two_steps)
        # Who comes to a meeting gets lost too, and need not be waited for that long.
        monkeypatch.setattr(litmus_threads, "MOST_LOOKS", 1 << 18)
        assert verdict(suite()[name], UNTIL_SEEN) is Verdict.FAIL
    assert verdict(suite()[name]) is Verdict.PASS


def storer_of_halves(kind: str, ordering: str) -> Any:
    """`atomic_storer` that writes an element of 32 bits in two steps."""
    assert kind == "i32"
    functions: Any = machine
    write, shift = functions.atomic_storer("i16", "monotonic"), functions.lshr
    low, fence = functions.i16_of_signed, functions.fence

    @njit
    def store(base: Any, offset: Any, mask: Any, value: Any) -> None:
        if mask:
            write(base, offset, True, low(value))
            for _ in range(20):
                fence()
            high = low(shift(value, np.int32(16)))
            write(base, offset + 2, True, high)

    return store


@two_processors
def test_stores_that_are_torn_fail(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    name = "MIXED+single-copy"
    with compiled_anew(monkeypatch, tmp_path):
        names = cpu_code._names()  # type: ignore[reportPrivateUsage]
        monkeypatch.setitem(names, "atomic_storer", storer_of_halves)
        assert verdict(suite()[name], UNTIL_SEEN) is Verdict.FAIL
    assert verdict(suite()[name]) in (Verdict.PASS, Verdict.VACUOUS)


def emit_stores_late(self: _Generator, block: Block) -> None:
    """`_Generator.emit`, but a weak store is written behind the store that waits for it."""
    late: list[int] = []

    def write(place: int) -> None:
        self.b.frames[-1].position = place
        self.operation(block.ops[place], block)
        self.b.frames[-1].position = place
        self.b.release()

    for place, op in enumerate(block.ops[:-1]):
        if op.name == "store_ptr_tko" and op.attributes["ordering"] == "weak" and not late:
            late.append(place)
            continue
        write(place)
        if op.name == "store_ptr_tko" and late:
            write(late.pop())
    for place in late:
        write(place)


@two_processors
@pytest.mark.parametrize("name", ["MP+weak+rel-acq", "TILE+flag-tile"])
def test_a_lowering_that_ignores_tokens_fails(
    name: str, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    with compiled_anew(monkeypatch, tmp_path):
        monkeypatch.setattr(_Generator, "emit", emit_stores_late)
        assert verdict(suite()[name], UNTIL_SEEN) is Verdict.FAIL
    assert verdict(suite()[name]) is Verdict.PASS
