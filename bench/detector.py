"""What the race detector finds and misses by schedule, and what checking costs.

    python bench/detector.py [--programs 400] [--json FILE] [--page docs/race_detector.md]

Findings: every litmus test that one device can run, as a kernel, and random event programs (seeds
from 5000) as kernels. The explorer knows which of them race. For each schedule: how many of the
racy ones it reports, which tests it misses, and how many reports are false. Cost: copying and
adding 128x128 tiles with every check on, against the batched path without any.
"""

from __future__ import annotations

import argparse
import json
import platform
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

from conformance.litmus_tile.generate import HERE, _array, tests
from conformance.litmus_tile.write import kernel_name
from reftile.interp.launch import interpret
from reftile.interp.model.events import Program
from reftile.interp.model.explore import explore
from reftile.interp.model.view import ViewMachine
from reftile.interp.schedule import Schedule
from reftile.ir.core import Module
from reftile.ir.diagnostics import ReftileError
from reftile.ir.parse import parse
from tests.interp.random_programs import random_program
from tests.interp.test_against_model import SENTINEL, Writer, can_be_written

FIRST_SEED = 5000
RUNS: dict[str, list[tuple[Schedule, int]]] = {
    "program": [("program", 0)],
    "topo, 1 seed": [("topo", 0)],
    "topo, 8 seeds": [("topo", s) for s in range(8)],
    "adversarial, 1 seed": [("adversarial", 0)],
    "adversarial, 8 seeds": [("adversarial", s) for s in range(8)],
    "view, 1 seed": [("view", 0)],
    "view, 8 seeds": [("view", s) for s in range(8)],
    "all of these": [
        ("program", 0),
        *(("topo", s) for s in range(8)),
        *(("adversarial", s) for s in range(8)),
        *(("view", s) for s in range(8)),
    ],
}
SAMPLES = 30
"""Executions of the view machine for each program."""

COPY = """
tile kernel @copy(%x: tile<ptr<f32>>, %y: tile<ptr<f32>>) {
  %i, %j, %k = get_tile_block_id : tile<i32>, tile<i32>, tile<i32>
  %vx = make_tensor_view %x, [], [] : tensor_view<1024x1024xf32, strides=[1024, 1]>
  %vy = make_tensor_view %y, [], [] : tensor_view<1024x1024xf32, strides=[1024, 1]>
  %px = make_partition_view %vx :
      partition_view<tile=(128x128), tensor_view<1024x1024xf32, strides=[1024, 1]>>
  %py = make_partition_view %vy :
      partition_view<tile=(128x128), tensor_view<1024x1024xf32, strides=[1024, 1]>>
  %a, %t = load_view_tko %px, [%i, %j] {ordering = weak} : tile<128x128xf32>, token
  %b = addf %a, %a : tile<128x128xf32>
  %u = store_view_tko %b, %py, [%i, %j] {ordering = weak} : token
  return
}
"""
SCATTER = """
tile kernel @scatter(%x: tile<ptr<f32>>, %y: tile<ptr<f32>>) {
  %i, %j, %k = get_tile_block_id : tile<i32>, tile<i32>, tile<i32>
  %n = constant {value = 16384} : tile<i32>
  %first = muli %i, %n : tile<i32>
  %first1 = reshape %first : tile<1xi32>
  %firsts = broadcast %first1 : tile<16384xi32>
  %at = iota : tile<16384xi32>
  %last = constant {value = 16383} : tile<16384xi32>
  %turned = subi %last, %at : tile<16384xi32>
  %place = addi %firsts, %turned : tile<16384xi32>
  %x1 = reshape %x : tile<1xptr<f32>>
  %y1 = reshape %y : tile<1xptr<f32>>
  %xs = broadcast %x1 : tile<16384xptr<f32>>
  %ys = broadcast %y1 : tile<16384xptr<f32>>
  %p = offset %xs, %place : tile<16384xptr<f32>>
  %q = offset %ys, %place : tile<16384xptr<f32>>
  %a, %t = load_ptr_tko %p {ordering = weak} : tile<16384xf32>, token
  %b = addf %a, %a : tile<16384xf32>
  %u = store_ptr_tko %q, %b {ordering = weak} : token
  return
}
"""


@dataclass
class Subject:
    """A program with its kernel, and whether it races."""

    name: str
    program: Program
    module: Module
    arguments: Callable[[], list[Any]]
    is_racy: bool = False


@dataclass
class Row:
    """What one schedule did. missed: the racy programs that it did not report."""

    reported: int = 0
    false: int = 0
    missed: list[str] = field(default_factory=list)


def litmus_subjects() -> Iterator[Subject]:
    """The litmus tests with one launch on one device."""
    modules: dict[str, Module] = {}
    for file, test in tests():
        blocks = test.program.blocks
        if len({(b.device, b.launch) for b in blocks}) > 1:
            continue
        if file not in modules:
            modules[file] = parse((HERE / file).read_text(encoding="utf-8"), file)
        try:
            kernel = modules[file].kernel(kernel_name(test.name))
        except KeyError:
            continue
        buffers = test.program.buffers
        yield Subject(
            test.name, test.program, Module([kernel]), lambda b=buffers: [_array(x) for x in b]
        )


def random_subjects(count: int) -> Iterator[Subject]:
    """Random event programs."""
    for seed in range(FIRST_SEED, FIRST_SEED + count):
        program = random_program(seed, 8)
        if not can_be_written(program):
            continue
        writer = Writer(program)
        module = writer.module()
        cells, registers = len(program.buffers[0].initial), max(len(writer.cells), 1)
        yield Subject(
            f"seed {seed}",
            program,
            module,
            lambda c=cells, r=registers: [
                np.zeros(c, np.int32),
                np.full(r, SENTINEL, np.int32),
            ],
        )


def is_reported(subject: Subject, schedule: Schedule, seed: int) -> bool:
    """Whether the interpreter reports a race under a schedule."""
    grid = len(subject.program.blocks)
    try:
        interpret(subject.module, grid, subject.arguments(), schedule=schedule, seed=seed)
    except ReftileError as error:
        return error.diagnosis.rule.startswith("race.")
    return False


def survey(subjects: Sequence[Subject]) -> dict[str, object]:
    """The table of one set of programs."""
    rows = {name: Row() for name in (*RUNS, f"view machine, {SAMPLES} seeds")}
    for subject in subjects:
        subject.is_racy = explore(subject.program).is_racy
        known = {run: is_reported(subject, *run) for run in RUNS["all of these"]}
        for name, runs in RUNS.items():
            count(rows[name], subject, any(known[run] for run in runs))
        machine = ViewMachine(subject.program)
        seen = any(machine.run(seed).race for seed in range(SAMPLES))
        count(rows[f"view machine, {SAMPLES} seeds"], subject, seen)
    return {
        "programs": len(subjects),
        "racy": sum(s.is_racy for s in subjects),
        "schedules": {
            name: {
                "reported": row.reported,
                "false": row.false,
                "missed": len(row.missed),
                "missed_programs": row.missed[:40],
            }
            for name, row in rows.items()
        },
    }


def count(row: Row, subject: Subject, reported: bool) -> None:
    """Note what a schedule said of a program."""
    if subject.is_racy:
        row.reported += reported
        if not reported:
            row.missed.append(subject.name)
    else:
        row.false += reported


def cost(text: str, grid: tuple[int, int, int], repeats: int) -> dict[str, float]:
    """Best seconds with every check and with none, on 1024x1024 f32."""
    module = parse(text)
    x, y = np.ones((1024, 1024), np.float32), np.zeros((1024, 1024), np.float32)
    best = {"checked": 1e9, "unchecked": 1e9}
    for _ in range(repeats):
        for name in best:
            start = time.perf_counter()
            interpret(module, grid, [x, y], check=name == "checked")
            best[name] = min(best[name], time.perf_counter() - start)
    assert (y == 2).all()
    tiles = grid[0] * grid[1]
    return {
        "checked_seconds": best["checked"],
        "unchecked_seconds": best["unchecked"],
        "ratio": best["checked"] / best["unchecked"],
        "checked_microseconds_per_tile": best["checked"] / tiles * 1e6,
    }


PAGE = """# What the race detector finds

Written by `python bench/detector.py --programs {programs} --page docs/race_detector.md`.

A race that the checked interpreter reports is a race: it looks at one schedule, and what happens
before what is exact for that. A race that it does not report may still be there, so that it never
says *race-free*; `reftile explore` does. How much each schedule finds is measured on programs whose
races the explorer knows: {litmus} litmus tests as kernels, of which {litmus_racy} race, and
{random} random programs (seeds {first} to {last}), of which {random_racy} race.

| schedule | litmus: found | missed | random: found | missed | false reports |
|---|---|---|---|---|---|
{rows}

The last row samples the view machine on the program itself, not on a kernel that runs.

What is missed, and why:

{missed}

* `SB+dekker+rlx` races only where both blocks read old values (store buffering): no order of whole
  operations shows that, `view` does. `LB+gated` races only where a load reads a store that runs
  later, which no schedule does; the explorer finds it.
* The others need a reader that comes late enough to see a message, or early enough not to.
  `program` runs writers first, so it finds most of the first kind; the random schedules need some
  seeds.

## What checking costs

Copying and adding 1024x1024 numbers in tiles of 128x128, every check on against none, best of
{repeats}:

| accesses | checked | unchecked | ratio |
|---|---|---|---|
{costs}

Through views a whole tile is one region with one entry in the shadow, whatever its size. Scattered
pointers are looked at element by element.
"""


def page(found: dict[str, Any], options: argparse.Namespace) -> str:
    """The findings as a page."""
    litmus, random = found["litmus"], found["random"]
    rows: list[str] = []
    missed: list[str] = []
    for name, row in litmus["schedules"].items():
        other = random["schedules"][name]
        counts = (row["reported"], row["missed"], other["reported"], other["missed"])
        false = row["false"] + other["false"]
        rows.append(f"| {name} | {' | '.join(map(str, counts))} | {false} |")
        tests = ", ".join(f"`{n}`" for n in row["missed_programs"]) or "nothing"
        missed.append(f"* *{name}*: {tests}")
    costs = [
        f"| {name} | {c['checked_seconds'] * 1e3:.1f} ms | {c['unchecked_seconds'] * 1e3:.1f} ms | "
        f"{c['ratio']:.2f} |"
        for name, c in found["cost_128x128"].items()
    ]
    first, last = found["random_seeds"]
    return PAGE.format(
        programs=options.programs,
        litmus=litmus["programs"],
        litmus_racy=litmus["racy"],
        random=random["programs"],
        random_racy=random["racy"],
        first=first,
        last=last,
        rows="\n".join(rows),
        missed="\n".join(missed),
        repeats=options.repeats,
        costs="\n".join(costs),
    )


def main() -> None:
    """Measure, print, and write JSON if asked."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--programs", type=int, default=400)
    parser.add_argument("--repeats", type=int, default=7)
    parser.add_argument("--json", type=Path)
    parser.add_argument("--page", type=Path)
    options = parser.parse_args()
    found: dict[str, Any] = {
        "machine": f"{platform.machine()}, Python {platform.python_version()}",
        "random_seeds": [FIRST_SEED, FIRST_SEED + options.programs - 1],
        "litmus": survey(list(litmus_subjects())),
        "random": survey(list(random_subjects(options.programs))),
        "cost_128x128": {
            "views, one region": cost(COPY, (8, 8, 1), options.repeats),
            "pointers, element by element": cost(SCATTER, (64, 1, 1), options.repeats),
        },
    }
    text = json.dumps(found, indent=1)
    print(text)
    if options.json is not None:
        options.json.write_text(text + "\n", encoding="utf-8")
    if options.page is not None:
        options.page.write_text(page(found, options), encoding="utf-8")


if __name__ == "__main__":
    main()
