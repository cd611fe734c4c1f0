"""What many instances of a litmus test came to, read out of the memory that they left."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

import numpy as np
from numpy.typing import NDArray

from reftile.interp.model.events import Program
from reftile.interp.model.execution import Outcome
from reftile.interp.model.values import UNINIT, Bin, Expr, IsUninit, Value, evaluate, registers

ABSENT = -77
"""What stands for the result of an operation that did not run."""


def asked_registers(program: Program) -> tuple[str, ...]:
    """The registers of operations that the question of a program needs, in order."""
    wanted = set(registers(program.exists)) if program.exists is not None else set[str]()
    known = {a.register for b in program.blocks for o in b.ops for a in o.accesses}
    return tuple(sorted(known & wanted))


def asks_for_poison(expr: Expr) -> bool:
    """True if an outcome depends on what is poison, which no machine shows."""
    match expr:
        case IsUninit():
            return True
        case Bin(_, lhs, rhs):
            return asks_for_poison(lhs) or asks_for_poison(rhs)
        case _:
            return False


def filled(program: Program, instances: int, step: int) -> list[NDArray[np.uint8]]:
    """The memory of each buffer before the test: `step` of its elements for each instance."""
    found: list[NDArray[np.uint8]] = []
    for buffer in program.buffers:
        line = np.zeros(step * buffer.element_size, np.uint8)
        for number, value in enumerate(buffer.initial):
            start, size = number * buffer.element_size, buffer.element_size
            data = value if isinstance(value, int) else 0
            bits = (data & ((1 << (8 * size)) - 1)).to_bytes(size, "little")
            line[start : start + size] = np.frombuffer(bits, np.uint8)
        found.append(np.tile(line, instances))
    return found


def count_outcomes(
    program: Program,
    outputs: Sequence[str],
    memories: Sequence[NDArray[np.uint8]],
    results: NDArray[np.int64],
    step: int,
) -> tuple[dict[Outcome, int], int]:
    """How often each outcome was seen, and how often the one that the program asks for.

    outputs: the registers whose contents stand in `results`, a row for each instance, ABSENT where
    nothing does. memories: what is in the buffers, as `filled` made them.
    """
    assert program.exists is not None
    buffers = {b.name: data for b, data in zip(program.buffers, memories, strict=True)}
    names = [*outputs, *(leave.register for leave in program.exits)]
    columns = [results[:, i] for i in range(len(outputs))]
    for leave in program.exits:
        buffer = program.buffer(leave.location.buffer)
        rows = buffers[buffer.name].reshape(-1, step * buffer.element_size)
        start, size = leave.location.start, leave.location.size
        part = np.ascontiguousarray(rows[:, start : start + size])
        columns.append(part.view(f"<i{size}")[:, 0].astype(np.int64))
    kinds, counts = _distinct(columns)
    outcomes: dict[Outcome, int] = {}
    hits = 0
    for row, count in zip(kinds, counts, strict=True):
        values: dict[str, Value] = {
            name: UNINIT if value == ABSENT else value
            for name, value in zip(names, row, strict=True)
        }
        outcomes[tuple(values.items())] = count
        hits += count if evaluate(program.exists, values) == 1 else 0
    return outcomes, hits


def outcome_text(outcome: Outcome) -> str:
    """An outcome as people write it; `-` is the result of an operation that did not run."""
    return ", ".join(f"{name}={'-' if value is UNINIT else value}" for name, value in outcome)


def forbidden(seen: Iterable[Outcome], possible: Iterable[Outcome]) -> list[str]:
    """Of outcomes that were seen those that agree with none that are possible.

    A register that a possible outcome has no value for, or poison, may hold anything.
    """
    known = [dict(outcome) for outcome in possible]

    def agrees(outcome: Outcome, values: dict[str, Value]) -> bool:
        found = ((value, values.get(name, UNINIT)) for name, value in outcome)
        return all(wanted is UNINIT or value == wanted for value, wanted in found)

    return [
        outcome_text(outcome)
        for outcome in seen
        if not any(agrees(outcome, values) for values in known)
    ]


def _distinct(columns: Sequence[NDArray[np.int64]]) -> tuple[list[list[int]], list[int]]:
    """The rows that differ, and how often there is each."""
    key = np.zeros(len(columns[0]), np.int64)
    for column in columns:
        values, place = np.unique(column, return_inverse=True)
        key = key * len(values) + place.reshape(-1)
    _, first, counts = np.unique(key, return_index=True, return_counts=True)
    return [[int(c[i]) for c in columns] for i in first], counts.tolist()
