"""Litmus tests on threads: what is run, that it can be seen, and that a wrong lowering fails."""

from __future__ import annotations

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
    INSTANCES,
    NOBODY,
    Draw,
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

CONFIG = StressConfig(iterations=20 * INSTANCES)
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


@pytest.mark.parametrize("threads", [1, 2, 3, 4])
def test_every_block_of_every_instance_is_played_once(threads: int) -> None:
    roles = (0, 0, 1, 2, 3)
    for draw in draws(StressConfig(seed=threads), 6):
        table = turns(roles, threads, 50, draw)
        assert table.shape[0] == threads
        played = [(w >> 13, roles[w & 15]) for w in table.reshape(-1) if w & 15 != NOBODY]
        assert sorted(played) == [(i, b) for i in range(50) for b in range(4)]
        for row in table:
            meetings = [w >> 13 for w in row if w & 16]
            assert len(meetings) == len(set(meetings)) == (-(-50 // draw.meets)) * (threads > 1)
    assert list(draws(CONFIG, 9)) == list(draws(CONFIG, 9))


def test_blocks_that_share_a_thread_are_played_slowly_too() -> None:
    blocks = suite()["IRIW+rlx"].program.blocks
    assert not any(r.slow for r in parts(blocks, 4))
    assert any(r.slow for r in parts(blocks, 2))


@pytest.mark.parametrize("question", some_questions(), ids=lambda q: q.id)
def test_the_kernels_show_only_what_the_model_allows(question: Question) -> None:
    """Run on the checked interpreter: no race, and only possible outcomes."""
    test, instances = question.test, 4
    try:
        found = harness(test, 2)
    except Inexpressible:
        pytest.skip("a CPU cannot be asked")
    program = test.program
    memories = filled(program, instances, 8)
    results = np.full(instances * max(len(found.outputs), 1), ABSENT, f"i{found.width}")
    for (text, kernel), roles in zip(found.texts, found.roles, strict=True):
        blocks = max(r.block for r in roles) + 1
        threads = min(2, blocks)
        draw = Draw((1, 2), 8, True, 1, 50, 3, True)
        table = turns(tuple(r.block for r in roles), threads, instances, draw)
        buffers = [
            Raw(m, f"i{8 * b.element_size}") for m, b in zip(memories, program.buffers, strict=True)
        ]
        given = [results, np.zeros(instances, np.int32), table.reshape(-1)]
        given.append(np.zeros(4096, np.int32))
        numbers = [table.shape[1], 8, 1024]
        module = parse(text, kernel)
        options: dict[str, Any] = {"schedule": "topo", "seed": 3}
        interpret(module, (threads,), [*buffers, *given, *numbers], name=kernel, **options)
    rows = results.astype(np.int64).reshape(instances, -1)
    outcomes, hits = count_outcomes(program, found.outputs, memories, rows, 8)
    assert sum(outcomes.values()) == instances
    assert hits == 0 or explore(program).allows() is not None


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
    assert run_on_threads(suite()["SB+rlx"], CONFIG).hits >= 3
    assert run_on_threads(suite()["SB+acq_rel-rmw"], CONFIG).hits == 0


@two_processors
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


def verdict(test: LitmusTest) -> Verdict:
    return judge(test, run_on_threads, CONFIG, keeps_order=True).verdict


@two_processors
@pytest.mark.parametrize("name", ["ATOM+lost-update", "SB+acq_rel-rmw"])
def test_atomics_that_are_not_fail(
    name: str, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    with compiled_anew(monkeypatch, tmp_path):
        names = cpu_code._names()  # type: ignore[reportPrivateUsage]
        monkeypatch.setitem(names, "atomic_updater", updater_in_two_steps)
        assert verdict(suite()[name]) is Verdict.FAIL
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
        assert verdict(suite()[name]) is Verdict.FAIL
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
        assert verdict(suite()[name]) is Verdict.FAIL
    assert verdict(suite()[name]) is Verdict.PASS
