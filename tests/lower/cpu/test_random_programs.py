"""Random programs without races give the bits that the interpreter gives.

python tests/lower/cpu/test_random_programs.py 0 200      seeds, on a longer road
"""

from __future__ import annotations

import sys

import numpy as np
import pytest
from reftile.conformance.fuzz.generate import program_of_seed
from reftile.conformance.fuzz.races import examine

from reftile.interp.launch import interpret
from reftile.ir.diagnostics import ReftileError
from reftile.ir.print import show
from reftile.rt.cpu import launch_cpu

SEEDS = range(30)


def compare(seed: int) -> str:
    """Return "same", or why the program says nothing, or what differs."""
    program = program_of_seed(seed)
    kernel = program.kernel
    findings = examine(kernel, program.buffers, program.scalars, program.grid)
    if findings.is_racy or not findings.is_determinate:
        return "racy"
    arguments, expected = program.arguments()
    try:
        interpret(kernel, program.grid, arguments)
    except ReftileError as error:
        return f"stopped: {error.diagnosis.rule}"
    arguments, found = program.arguments()
    try:
        launch_cpu(kernel, program.grid, arguments)
    except ReftileError as error:
        return f"refused: {error.diagnosis}"
    for one, other in zip(expected, found, strict=True):
        if not np.array_equal(one.view(np.uint8), other.view(np.uint8)):
            places = np.flatnonzero(one.view(np.uint8) != other.view(np.uint8))
            return f"different at bytes {places[:8]} of {one.dtype}\n{show(kernel)}"
    return "same"


@pytest.mark.parametrize("seed", SEEDS)
def test_random_programs_give_the_interpreters_bits(seed: int) -> None:
    found = compare(seed)
    if found == "racy" or found.startswith(("stopped", "refused: error[cpu.unsupported]")):
        pytest.skip(found)
    assert found == "same"


if __name__ == "__main__":
    results = {seed: compare(seed) for seed in range(int(sys.argv[1]), int(sys.argv[2]))}
    for seed, result in results.items():
        if result not in ("same", "racy"):
            print(seed, result[:1500])
    print(len(results), sum(r == "same" for r in results.values()), "the same")
