"""Attention with every check: what runs, how exact it is, a bug that is found; then compiled.

Run by ./demo.sh. The first part runs the kernels of attention.py and compares them with float64.
The second runs a kernel with a planted bug, a load that does not wait for the store it reads from.
Its numbers come out right, so no comparison finds it; the interpreter does, and says which token
is missing. The third runs the kernels of the first compiled for the CPU, and attention on a GPU.
"""

from __future__ import annotations

import math
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace

import attention
import attention_cache
from attention import LOG2_E, ZERO, softmax_step
from attention_gpu import report_gpu
from harness import Case, Outcome, Progress, run, run_compiled

import reftile
import reftile.lang as ct
from reftile import ReftileError

SCHEDULES = (("program", 0), ("topo", 1), ("topo", 2), ("adversarial", 0), ("adversarial", 7))
"""Orders of blocks and operations that are all legal: if tokens fix the results, all agree."""


@reftile.kernel(tokens="none")
def attend_forgetting(
    q,
    new_k,
    new_v,
    k_cache,
    v_cache,
    out,
    length: int,
    scale: float,
    group: ct.Constant[int],
    head_dim: ct.Constant[int],
    tile_n: ct.Constant[int],
):
    """attention_cache.attend_appending with a bug: the values do not wait for the new one."""
    head = ct.bid(0)
    start = ct.make_token()
    row = ct.load(new_k, (head, 0, 0), (1, 1, head_dim))
    k_stored = ct.store(k_cache, (head, length, 0), row, token=start)
    row = ct.load(new_v, (head, 0, 0), (1, 1, head_dim))
    v_stored = ct.store(v_cache, (head, length, 0), row, token=start)  # noqa: F841

    query = ct.load(q, (head, 0, 0), (1, group, head_dim)).reshape((group, head_dim))
    highest = ct.full((group, 1), -math.inf, ct.float32)
    total = ct.zeros((group, 1), ct.float32)
    acc = ct.zeros((group, head_dim), ct.float32)
    for j in range(ct.cdiv(length + 1, tile_n)):
        index, shape = (head, j, 0), (1, tile_n, head_dim)
        key, _ = ct.load(k_cache, index, shape, padding_mode=ZERO, token=k_stored)
        value, _ = ct.load(v_cache, index, shape, padding_mode=ZERO, token=start)
        key = key.reshape((tile_n, head_dim)).transpose()
        value = value.reshape((tile_n, head_dim))
        scores = ct.mma(query, key, ct.zeros((group, tile_n), ct.float32)) * (scale * LOG2_E)
        column = j * tile_n + ct.arange(tile_n, dtype=ct.int32)[None, :]
        scores = ct.where(column <= length, scores, -math.inf)
        value = ct.where(column.reshape((tile_n, 1)) <= length, value, 0.0)
        highest, total, acc = softmax_step(scores, value, highest, total, acc)
    ct.store(out, (head, 0, 0), (acc / total).astype(out.dtype).reshape((1, group, head_dim)))


def attention_cases() -> list[Case]:
    """Larger than those of the tests; no extent is a multiple of its tile."""
    tiles = (32, 32)
    return [
        attention.dense("plain", (1, 2, 75, 93, 64), tiles=tiles),
        attention.dense("causal", (1, 2, 109, 109, 64), window=1, tiles=tiles),
        attention.dense("causal-gqa", (2, 2, 77, 141, 64), heads=6, window=1, tiles=tiles),
        attention.dense("block-causal", (1, 2, 99, 99, 40), window=8, tiles=tiles),
        attention.ragged("variable-length", [61, 7, 29, 40], 2, 64, "bfloat16"),
    ]


# What is shown


@contextmanager
def progress_bar(title: str) -> Iterator[Progress | None]:
    """Show how many blocks are done, where somebody is looking and `rich` is installed."""
    try:
        from rich.console import Console
        from rich.progress import BarColumn, MofNCompleteColumn, TextColumn
        from rich.progress import Progress as Bar
    except ImportError:
        yield None
        return
    if not sys.stdout.isatty():
        yield None
        return
    columns = (TextColumn("  {task.description:44}"), BarColumn(), MofNCompleteColumn())
    with Bar(*columns, console=Console(), transient=True) as bar:
        task = bar.add_task(title, total=None)
        yield lambda done, count: bar.update(task, completed=done, total=count)


def heading(text: str) -> None:
    """A heading between empty lines."""
    print(f"\n{text}\n{'-' * len(text)}")


def shape_of(case: Case) -> str:
    """The shapes of q and k as NumPy writes them."""
    q, k = (case.arguments[name] for name in ("q", "k"))
    return f"{'x'.join(map(str, q.shape))} on {'x'.join(map(str, k.shape))} {q.dtype}"


def run_everywhere(case: Case) -> list[Outcome]:
    """Run a case under every schedule."""
    outcomes: list[Outcome] = []
    for schedule, seed in SCHEDULES:
        with progress_bar(f"{case.name}, {schedule} {seed}") as progress:
            outcomes.append(run(case, schedule=schedule, seed=seed, progress=progress))
    return outcomes


def report_attention() -> bool:
    """Run attention under every schedule and print a line for each case."""
    heading("Attention forward, every check on")
    print(
        f"{'case':27} {'queries on keys':33} {'blocks':>6} {'memory ops':>10} {'error/bound':>11}"
    )
    good = True
    for case in attention_cases():
        outcomes = run_everywhere(case)
        first, worst = outcomes[0], max(outcomes, key=lambda o: o.ratio)
        same = all((o.results["out"] == first.results["out"]).all() for o in outcomes)
        good &= worst.passed and same
        print(
            f"{case.name:27} {shape_of(case):33} {first.report.blocks:6} "
            f"{first.report.operations:10} {worst.ratio:11.3f}"
            f"{'' if worst.passed else '  FAIL: ' + worst.worst}{'' if same else '  ORDERS DIFFER'}"
        )
    print(
        f"\nEach ran in {len(SCHEDULES)} orders of its blocks and memory operations, "
        + ("with the same bits in all of them." if good else "and something is WRONG, see above.")
    )
    print(
        "Watched for: races, missing tokens, reads of memory never written, accesses out of\n"
        "bounds, poison that reaches a result. error/bound is the greatest error against float64\n"
        "over what the roundings of the kernel can add up to on this data; above 1 is a failure."
    )
    return good


def report_planted_bug() -> bool:
    """Run a kernel with a missing token: unchecked, checked, and repaired."""
    heading("A planted bug: a token is missing")
    sound = attention_cache.case("gqa", 2, 3, 37, 50, "bfloat16")
    planted = replace(sound, name="planted", kernel=attend_forgetting)
    plain = run(planted, check=False)
    print(
        "A decoding step stores a new key and value in the cache, then attends over the cache.\n"
        "The load of the values does not wait for the store. Without checks, in the order of the\n"
        f"text, all numbers are right: error/bound is {plain.ratio:.3f}. With checks:\n"
    )
    try:
        run(planted)
    except ReftileError as error:
        print(error)
        found = error.diagnosis.rule == "race.within_block"
    else:
        found = False
        print("NOT FOUND")
    outcomes = run_everywhere(sound)
    worst = max(o.ratio for o in outcomes)
    repaired = all(o.passed for o in outcomes)
    print(
        "\nWith token=v_stored in that load (attention_cache.py) it "
        + (f"passes in {len(outcomes)} orders, error/bound {worst:.3f}." if repaired else "FAILS.")
    )
    return plain.passed and found and repaired


def report_compiled() -> bool:
    """Run the same kernels compiled for this CPU, and attention on a GPU if there is one."""
    heading("Compiled for this CPU")
    good = True
    for case in attention_cases():
        ratio, worst, seconds = run_compiled(case)
        good &= ratio <= 1
        print(
            f"{case.name:27} {shape_of(case):33} {1e3 * seconds:7.2f} ms  error/bound {ratio:.3f}"
            f"{'' if ratio <= 1 else '  FAIL: ' + worst}"
        )
    heading("On a GPU")
    return report_gpu() and good


def demo() -> int:
    """Everything; 0 if all went as it should."""
    began = time.perf_counter()
    print("reftile: tile programs, executed with every check")
    good = report_attention()
    good &= report_planted_bug()
    good &= report_compiled()
    print(f"\n{'All as it should be' if good else 'FAILED'}, {time.perf_counter() - began:.1f} s.")
    return 0 if good else 1


if __name__ == "__main__":
    sys.exit(demo())
