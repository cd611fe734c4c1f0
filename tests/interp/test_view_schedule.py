"""The schedule `view` of the checked interpreter: old values, and only legal ones."""

from __future__ import annotations

import os
from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from reftile.interp.launch import interpret
from reftile.interp.model.events import Buffer, Location, Program
from reftile.interp.model.execution import Outcome
from reftile.interp.model.explore import explore
from reftile.interp.model.relations import parse_expression, spec_model
from reftile.ir.core import Module
from reftile.ir.diagnostics import ReftileError
from reftile.ir.parse import parse
from tests.interp.litmus_suite import suite
from tests.interp.random_programs import random_program
from tests.interp.test_against_model import SENTINEL, Writer, can_be_written
from tests.interp.tile_kernels import program as kernel_text
from tests.interp.tile_kernels import violation

COUNT = int(os.environ.get("REFTILE_MODEL_PROGRAMS", "60"))
SEEDS = 6

WITHOUT_LOAD_BUFFERING = spec_model().with_axiom(
    "thin_air", parse_expression("rf | dep | tok | rmw | launch_before")
)


class Runner:
    """An event program as a kernel, run again and again."""

    def __init__(self, program: Program) -> None:
        self.program, self.writer = program, Writer(program)
        self.module: Module = self.writer.module()

    def run(self, seed: int, schedule: Any = "view") -> Outcome | str:
        """The outcome, or the rule of what was reported."""
        buffer = self.program.buffers[0]
        memory = np.array(buffer.initial, np.int32)
        out = np.full(max(len(self.writer.cells), 1), SENTINEL, np.int32)
        grid = len(self.program.blocks)
        try:
            interpret(self.module, grid, [memory, out], schedule=schedule, seed=seed)
        except ReftileError as error:
            return error.diagnosis.rule
        found = {n: int(out[c]) for n, c in self.writer.cells.items() if out[c] != SENTINEL}
        for leave in self.program.exits:
            found[leave.register] = int(memory[leave.location.start // 4])
        return tuple(sorted(found.items()))


def programs(count: int, accesses: int) -> list[tuple[int, Program]]:
    made = ((n, random_program(n, accesses)) for n in range(count))
    return [(n, p) for n, p in made if can_be_written(p)]


def test_random_programs_show_legal_outcomes_only() -> None:
    runs = stale = races = 0
    for number, program in programs(COUNT, 8):
        legal = explore(program)
        runner = Runner(program)
        flat = {runner.run(0, "program")}
        for seed in range(SEEDS):
            found = runner.run(seed)
            where = number, seed, found
            runs += 1
            if isinstance(found, str):
                assert found.startswith("race.") and legal.is_racy, where
                races += 1
            elif not legal.is_racy:
                assert found in legal.outcomes, where
                stale += found not in flat
    print(
        f"programs 0 to {COUNT - 1}, seeds 0 to {SEEDS - 1}: {runs} runs, {races} races reported,"
    )
    print(f"{stale} outcomes that program order does not show; 0 forbidden")
    assert stale > 0 and races > 0


def test_every_outcome_but_load_buffering_is_shown_in_time() -> None:
    asked = shown = 0
    for number, program in programs(COUNT // 2, 7):
        if has_twins(program):
            continue
        result = explore(program, WITHOUT_LOAD_BUFFERING)
        if result.races or not 2 <= len(result.outcomes) <= 6:
            continue
        missing, runner = set(result.outcomes), Runner(program)
        asked += len(missing)
        for seed in range(1500):
            missing.discard(runner.run(seed))  # type: ignore[arg-type]
            if not missing:
                break
        shown += len(result.outcomes) - len(missing)
        assert not missing, (number, missing)
    print(f"{shown} of {asked} allowed outcomes shown")
    assert asked >= COUNT // 10


def has_twins(program: Program) -> bool:
    """Whether one operation has two read-modify-writes of one place: nothing comes between them."""
    return any(
        len({a.location for a in op.accesses}) < len(op.accesses) and op.accesses[0].kind != "store"
        for block in program.blocks
        for op in block.ops
    )


STALE = ("SB+rlx", "SB+rel-acq", "IRIW+rel-acq", "CoRR+rlx+no-token", "MP+rlx", "2+2W+rlx", "R+rlx")


@pytest.mark.parametrize("name", STALE)
def test_shapes_that_no_interleaving_shows(name: str) -> None:
    program = one_buffer(suite()[name].program)
    wanted = explore(program).allows()
    assert wanted is not None
    runner = Runner(program)
    assert any(runner.run(seed) == wanted.outcome for seed in range(300))


def one_buffer(program: Program) -> Program:
    """The program with its buffers side by side in one."""
    starts: dict[str, int] = {}
    cells: list[Any] = []
    for buffer in program.buffers:
        starts[buffer.name] = 4 * len(cells)
        cells += buffer.initial

    def moved(at: Location) -> Location:
        return Location("x", starts[at.buffer] + at.start, at.size)

    blocks = tuple(
        replace(
            b,
            ops=tuple(
                replace(
                    op, accesses=tuple(replace(a, location=moved(a.location)) for a in op.accesses)
                )
                for op in b.ops
            ),
        )
        for b in program.blocks
    )
    exits = tuple(replace(leave, location=moved(leave.location)) for leave in program.exits)
    whole = Buffer("x", 4, tuple(cells))
    return replace(program, buffers=(whole,), blocks=blocks, exits=exits)


SPIN = """
%first = cmpi %bx, %zero {predicate = equal, signedness = signed} : tile<i1>
%next = offset %flag, %one : tile<ptr<i32>>
if %first then {
  %w = store_ptr_tko %data, %one {ordering = weak} : token
  %s = store_ptr_tko %flag, %one, token=%w {ordering = release, scope = device} : token
  yield
} otherwise {
  %start = make_token : token
  %seen = loop %start : token body(%before: token) {
    %f, %t = load_ptr_tko %flag, token=%before {ordering = ORDER, scope = device} : tile<i32>, token
    %up = cmpi %f, %one {predicate = equal, signedness = signed} : tile<i1>
    if %up then {
      break %t
    }
    continue %t
  }
  %v, %r = load_ptr_tko %data, token=%seen {ordering = weak} : tile<i32>, token
  %done = store_ptr_tko %next, %v {ordering = weak} : token
  yield
}
"""


def spin(order: str) -> Module:
    arguments = "%data: tile<ptr<i32>>, %flag: tile<ptr<i32>>"
    return kernel_text(arguments, SPIN.replace("ORDER", order), 'progress = "cooperative"')


def test_waiting_ends_although_looks_are_stale() -> None:
    for seed in range(20):
        data, flag = np.zeros(1, np.int32), np.zeros(2, np.int32)
        interpret(spin("acquire"), 2, [data, flag], schedule="view", seed=seed)
        assert flag.tolist() == [1, 1]


def test_a_relaxed_wait_is_a_race() -> None:
    data, flag = np.zeros(1, np.int32), np.zeros(2, np.int32)
    found = violation(spin("relaxed"), 2, [data, flag], schedule="view", seed=1)
    assert found.rule == "race.between_blocks"


def test_a_weak_store_begins_the_history_anew() -> None:
    body = """
    %two = constant {value = 2} : tile<i32>
    %a = store_ptr_tko %x, %one {ordering = relaxed, scope = device} : token
    %b = store_ptr_tko %x, %two, token=%a {ordering = weak} : token
    %v, %c = load_ptr_tko %x, token=%b {ordering = relaxed, scope = device} : tile<i32>, token
    %d = store_ptr_tko %out, %v {ordering = weak} : token
    """
    module = kernel_text("%x: tile<ptr<i32>>, %out: tile<ptr<i32>>", body)
    for seed in range(10):
        x, out = np.zeros(1, np.int32), np.zeros(1, np.int32)
        interpret(module, 1, [x, out], schedule="view", seed=seed)
        assert (x[0], out[0]) == (2, 2)


def test_pipe_kernels_are_refused() -> None:
    module = parse('pipe kernel @k() attributes {target = "sm_90a", warps = 4} {\nreturn\n}')
    found = violation(module, 1, [], schedule="view")
    assert found.rule == "launch.schedule"
