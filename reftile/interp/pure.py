"""Evaluate pure operations: the meaning that a record states, or an evaluator where none is stated.

    results = evaluate(op, tiles, run_region, report)

An interpreter that runs an operation many times may prepare it, and call what it gets instead:

    run = prepare(op)
    results = run(tiles, run_region, report)
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import TypeAlias

import numpy as np

from reftile.interp.prepared import Prepared, RunRegion, prepare_meaning, prepared_meaning
from reftile.interp.reduction import evaluate_reduce, evaluate_scan
from reftile.interp.sorting import evaluate_sort
from reftile.interp.values import Report, Tile
from reftile.ir.core import Op

Evaluator: TypeAlias = Callable[
    [Prepared, Sequence[Tile], RunRegion | None, Report | None], tuple[Tile, ...]
]
Run: TypeAlias = Callable[[Sequence[Tile], RunRegion | None, Report | None], tuple[Tile, ...]]

EVALUATORS: Mapping[str, Evaluator] = {
    "reduce": evaluate_reduce,
    "scan": evaluate_scan,
    "sort": evaluate_sort,
}
"""The operations whose meaning no expression says."""


def has_meaning(op: type[Op] | Op) -> bool:
    """Whether `evaluate` evaluates the operation."""
    return bool(op.definition.meaning) or op.name in EVALUATORS


def prepare(op: Op) -> Run:
    """Return a function that evaluates a verified operation as it is now.

    `has_meaning` must be true of it, and whoever calls the function must have NumPy's warnings of
    floating-point errors turned off (`np.errstate(all="ignore")`).
    """
    return _run(prepare_meaning(op))


def _run(prepared: Prepared) -> Run:
    evaluator = EVALUATORS.get(prepared.op.name, _evaluate_meaning)
    return lambda tiles, run_region, report: evaluator(prepared, tiles, run_region, report)


def _evaluate_meaning(
    prepared: Prepared,
    tiles: Sequence[Tile],
    run_region: RunRegion | None,
    report: Report | None,
) -> tuple[Tile, ...]:
    return prepared(tiles, report)


def evaluate(
    op: Op,
    tiles: Sequence[Tile],
    run_region: RunRegion | None = None,
    report: Report | None = None,
) -> tuple[Tile, ...]:
    """Return the results of a verified operation for which `has_meaning` is true.

    tiles: in the order of `op.operands`.
    run_region: needed by operations with regions.
    report: told of the elements at which the operation is undefined; these become poison.
    """
    prepared = prepared_meaning(op)
    evaluator = EVALUATORS.get(op.name, _evaluate_meaning)
    with np.errstate(all="ignore"):
        return evaluator(prepared, tiles, run_region, report)
