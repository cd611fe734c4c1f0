"""Random programs lowered to PTX and held against its model: how many keep their promises.

    python bench/soundness.py [--programs 300] [--seed 0]

Two in three of the programs pass data on between blocks, one of which waits in a loop; the
others are random operations with guards. Two or three blocks, 4 to 12 element accesses are kept.
Each that is free of races is lowered with one and with two threads for each block, operations that
nothing orders shuffled, and explored under both readings of PTX. Printed are the sizes, how many
are free of races although blocks conflict, and every violation, of which there should be none.
"""

from __future__ import annotations

import argparse
import sys
import time
from collections import Counter
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

from reftile.interp.model.events import Program
from reftile.interp.model.explore import explore
from reftile.interp.model.ptx import VERSIONS, Layout, hold, lower
from reftile.ir.diagnostics import ReftileError
from tests.interp.random_programs import handing_over, random_program

LIMIT = 20_000
"""Candidates looked at for one program."""


def size(program: Program) -> int:
    """Element accesses."""
    return sum(len(op.accesses) for block in program.blocks for op in block.ops)


def conflicts(program: Program) -> bool:
    """Whether two blocks touch one place and one of them writes it."""
    touched = [
        {(a.location, a.kind != "load") for op in block.ops for a in op.accesses}
        for block in program.blocks
    ]
    return any(
        x == y and (w or v)
        for i, first in enumerate(touched)
        for second in touched[i + 1 :]
        for x, w in first
        for y, v in second
    )


def main() -> int:
    """Check, print, and fail on a violation."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--programs", type=int, default=300)
    parser.add_argument("--seed", type=int, default=0)
    options = parser.parse_args()
    sizes: Counter[int] = Counter()
    counts: Counter[str] = Counter()
    slowest, seed = 0.0, options.seed
    while sum(sizes.values()) < options.programs:
        made = handing_over(seed) if seed % 3 else random_program(seed, 12, seed % 2 == 0)
        seed += 1
        if not 4 <= size(made) <= 12 or not 2 <= len(made.blocks) <= 3:
            continue
        sizes[size(made)] += 1
        counts["with conflicts"] += conflicts(made)
        start = time.process_time()
        try:
            found = explore(made, step_limit=LIMIT, stop_at_race=True)
        except ReftileError:
            counts["too large"] += 1
            continue
        slowest = max(slowest, time.process_time() - start)
        if found.is_racy:
            counts["racy"] += 1
            continue
        counts["race-free"] += 1
        counts["race-free with conflicts"] += conflicts(made)
        for threads in (1, 2):
            lowered = lower(made, Layout(threads), seed=seed)
            for version in VERSIONS:
                try:
                    verdict = hold(found, lowered, version, LIMIT)
                except ReftileError:
                    counts["lowered too large"] += 1
                    continue
                counts["checks"] += 1
                counts["fewer outcomes"] += verdict.fewer
                if not verdict.holds:
                    counts["violations"] += 1
                    print(f"violation: seed {seed - 1}, {threads} threads, {version}")
    print(f"seeds {options.seed} to {seed - 1}, element accesses:")
    for count, number in sorted(sizes.items()):
        print(f"  {count:2} {number:4} {'#' * (60 * number // max(sizes.values()))}")
    for name, number in sorted(counts.items()):
        print(f"{name}: {number}")
    share = counts["race-free with conflicts"] / max(1, sum(sizes.values()))
    print(f"share race-free with conflicting accesses: {share:.0%}; slowest search {slowest:.2f} s")
    return int(counts["violations"] > 0)


if __name__ == "__main__":
    sys.exit(main())
