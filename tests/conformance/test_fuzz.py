"""The fuzzer: its programs are valid and diverse, nothing breaks, planted faults show."""

from __future__ import annotations

import json
import signal
from collections import Counter
from collections.abc import Callable
from math import inf
from typing import Any

import numpy as np
import pytest
from reftile.conformance.fuzz import oracles
from reftile.conformance.fuzz import run as runner
from reftile.conformance.fuzz.alarm import remembered_interrupt
from reftile.conformance.fuzz.choices import read_recipe, recipe_text
from reftile.conformance.fuzz.generate import program_of_recipe, program_of_seed
from reftile.conformance.fuzz.oracles import Failure, Settings, check_program
from reftile.conformance.fuzz.races import examine
from reftile.conformance.fuzz.run import FuzzResult, fuzz

from reftile.interp import access, actions, checked, machine, order
from reftile.interp.values import Tile
from reftile.ir.compare import same
from reftile.ir.print import show

QUICK = Settings(schedules=3, twins=1, twin_tries=2, variants=1)


@pytest.fixture(scope="module")
def result() -> FuzzResult:
    return fuzz(programs=50, seed=2024, settings=QUICK)


def test_nothing_fails(result: FuzzResult) -> None:
    assert not result.failures, "\n".join(result.lines())
    assert result.programs == 50


def test_most_programs_are_race_free_with_conflicts(result: FuzzResult) -> None:
    assert result.share >= 0.7, "\n".join(result.lines())


def test_the_programs_are_diverse(result: FuzzResult) -> None:
    tables = result.histograms.tables
    assert len(tables["ops"]) >= 75
    assert len(tables["dtypes"]) >= 15
    assert {"0", "1", "2", "3"} <= set(tables["ranks"])
    assert {"1", "2"} <= set(tables["loop depth"])
    assert len(tables["policies"]) >= 4
    assert result.counts["racy"] > 0
    assert result.counts["batched"] > 10
    assert sum(n for k, n in result.counts.items() if k.startswith("twin: ")) > 10


def test_the_result_is_plain_data(result: FuzzResult) -> None:
    assert json.loads(json.dumps(result.to_json()))["programs"] == 50


def test_the_share_of_many_seeded_programs() -> None:
    kinds = Counter[str]()
    for seed in range(100):
        program = program_of_seed(seed)
        found = examine(program.kernel, program.buffers, program.scalars, program.grid)
        kinds["wanted"] += not found.is_racy and found.conflicts >= 2
        kinds["racy"] += found.is_racy
        if program.policy != "subset":
            assert found.is_determinate, seed
    assert kinds["wanted"] >= 70
    assert kinds["racy"] >= 5


def test_a_recipe_gives_the_program_again() -> None:
    for seed in range(5):
        program = program_of_seed(seed)
        again = program_of_recipe(read_recipe(recipe_text(program.recipe)))
        assert same(program.kernel, again.kernel)
        assert show(program.kernel) == show(again.kernel)
        assert all(map(np.array_equal, program.contents, again.contents))


# The oracles find faults


def _found(oracle: str, programs: int, settings: Settings = QUICK) -> bool:
    """True if a fault is seen by an oracle within some programs."""
    for seed in range(programs):
        try:
            check_program(program_of_seed(seed), Counter(), settings)
        except Failure as failure:
            if failure.oracle == oracle:
                return True
    return False


def test_a_wrong_batched_evaluator_is_found(monkeypatch: pytest.MonkeyPatch) -> None:
    real = oracles.launch.run_batched

    def off_by_one(kernel: Any, grid: Any, arguments: Any, memory: Any, *rest: Any) -> int:
        blocks = real(kernel, grid, arguments, memory, *rest)
        for buffer in memory.buffers:
            if buffer.visible and buffer.data.size:
                buffer.data[-1] ^= 1
        return blocks

    monkeypatch.setattr(oracles.launch, "run_batched", off_by_one)
    assert _found("batched", 5)


def test_a_schedule_that_ignores_tokens_is_found(monkeypatch: pytest.MonkeyPatch) -> None:
    """Memory operations do not wait for their tokens: the detector sees it."""
    _ignore_tokens(monkeypatch)
    assert _found("races", 12)


def test_ignored_tokens_show_in_the_bits(monkeypatch: pytest.MonkeyPatch) -> None:
    """As above, with a detector that is off."""
    _ignore_tokens(monkeypatch)
    monkeypatch.setattr(order.Order, "conflict", lambda self, event, others: None)
    assert _found("schedules", 12)


def _ignore_tokens(monkeypatch: pytest.MonkeyPatch) -> None:
    real = machine._issue  # pyright: ignore[reportPrivateUsage]

    def issue(block: Any, step: Any) -> bool:
        env = block.env
        for slot in step.inputs:
            value = env[slot]
            if type(value) is machine.Cell and not value.done and _is_token(step, slot, block):
                env[slot] = order.ROOT
        return real(block, step)

    monkeypatch.setattr(machine, "_issue", issue)


def _is_token(step: Any, slot: int, block: Any) -> bool:
    slots = block.launch.plan.slots
    return any(slots.get(v) == slot and str(v.type) == "token" for v in step.op.operands)


def test_a_detector_that_is_off_is_found(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(order.Order, "conflict", lambda self, event, others: None)
    assert _found("twins", 8) or _found("races", 8)


def test_a_detector_that_forgets_reads_is_found(monkeypatch: pytest.MonkeyPatch) -> None:
    real = order.Order.meet

    def meet(self: Any, event: Any, writers: int, readers: int) -> tuple[int, int]:
        return real(self, event, writers, 0)

    monkeypatch.setattr(order.Order, "meet", meet)
    assert _found("twins", 60) or _found("races", 60)


def test_a_load_that_is_wrong_when_late_is_found(monkeypatch: pytest.MonkeyPatch) -> None:
    """What a load gives depends on the schedule, although the program is ordered."""
    real = access.gather

    def gather(parts: Any, which: Any, padding: Any) -> Tile:
        tile = real(parts, which, padding)
        if deferred[0] and tile.data.dtype.kind == "i":
            return Tile(tile.data + 1, tile.poison)
        return tile

    deferred = [False]
    _watch_schedules(monkeypatch, deferred)
    monkeypatch.setattr(actions, "gather", gather)
    assert _found("schedules", 25)


def _watch_schedules(monkeypatch: pytest.MonkeyPatch, deferred: list[bool]) -> None:
    def wrap(real: Callable[..., None], value: bool) -> Callable[..., None]:
        def run(*args: Any) -> None:
            deferred[0] = value
            real(*args)

        return run

    monkeypatch.setattr(checked, "run_program", wrap(checked.run_program, False))
    monkeypatch.setattr(checked, "run_topo", wrap(checked.run_topo, True))
    monkeypatch.setattr(checked, "run_adversarial", wrap(checked.run_adversarial, True))


def test_a_printer_that_drops_an_attribute_is_found(monkeypatch: pytest.MonkeyPatch) -> None:
    real = oracles.show

    def forget(kernel: Any) -> str:
        return real(kernel).replace(", signedness = unsigned", ", signedness = signed")

    monkeypatch.setattr(oracles, "show", forget)
    assert _found("round_trip", 8)


def test_failures_are_shrunk(monkeypatch: pytest.MonkeyPatch) -> None:
    """A path that always crashes leaves next to nothing of a program."""

    def crash(*_: Any) -> None:
        raise ZeroDivisionError

    monkeypatch.setattr(runner, "SHRINK_SECONDS", inf)
    monkeypatch.setattr(runner, "REDUCE_SECONDS", inf)
    monkeypatch.setattr(oracles.launch, "run_batched", crash)
    found = fuzz(programs=4, seed=1, settings=QUICK)
    (failure, *_) = found.failures
    assert failure.oracle == "crash"
    assert "ZeroDivisionError" in failure.message
    again = program_of_recipe(read_recipe(failure.recipe))
    with pytest.raises(Failure):
        check_program(again, Counter(), QUICK)
    assert failure.text.count("\n") < 6, failure.text


def test_the_first_interrupt_waits_to_be_asked_for() -> None:
    before = signal.signal(signal.SIGINT, signal.default_int_handler)
    try:
        with remembered_interrupt() as ask:
            ask()
            signal.raise_signal(signal.SIGINT)
            with pytest.raises(KeyboardInterrupt):
                ask()
            with pytest.raises(KeyboardInterrupt):
                signal.raise_signal(signal.SIGINT)
        assert signal.getsignal(signal.SIGINT) is signal.default_int_handler
    finally:
        signal.signal(signal.SIGINT, before)
