"""Whole kernels: the programs of examples/ with inputs, and what every output element may be.

In `kernels/` stand three files for each case, written by make_kernels.py: the kernel as text, a
description in JSON (grid, arguments, operations used), and the arrays. An array is named after its
buffer and holds the codes of its elements; `NAME.low` and `NAME.high` are the least and greatest
code accepted of an output, equal where only one is right, and `NAME.free` marks elements about
which nothing is said.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
from reftile.conformance.cases import Argument, Buffer, Case, Program, Scalar
from reftile.conformance.oracle.answer import Answer
from reftile.conformance.oracle.formats import codes
from reftile.conformance.suites.common import Settings

FOLDER = Path(__file__).parent / "kernels"


def cases(settings: Settings) -> Iterator[Case]:
    """All of them; in the smallest budget, one of each example."""
    seen: set[str] = set()
    for path in sorted(FOLDER.glob("*.json")):
        described = json.loads(path.read_text())
        family = described["example"]
        if settings.budget == "wimpy" and family in seen:
            continue
        seen.add(family)
        yield Case(
            f"kernels/{family}/{path.stem}",
            "kernels",
            family,
            described["dtype"],
            (),
            partial(load, path.stem),
            tuple(f"op:{op}" for op in described["operations"]),
        )


def load(name: str) -> Program:
    """The program of a case."""
    described = json.loads((FOLDER / f"{name}.json").read_text())
    with np.load(FOLDER / f"{name}.npz") as arrays:
        arguments = tuple(_argument(a, arrays) for a in described["arguments"])
        answers = {b.name: _answer(b, arrays) for b in arguments if f"{b.name}.low" in arrays}
    x, y, z = described["grid"]
    text = (FOLDER / f"{name}.tile").read_text()
    return Program(text, (x, y, z), arguments, answers, kernel=described["kernel"])


def _argument(described: dict[str, Any], arrays: Any) -> Argument:
    name, dtype = described["name"], described["dtype"]
    if "value" in described:
        return Scalar(name, dtype, described["value"])
    fresh = described["fresh"]
    bits = codes(np.zeros(described["count"]) if fresh else arrays[name])
    return Buffer(name, dtype, bits, described["written"], fresh)


def _answer(buffer: Argument, arrays: Any) -> Answer:
    low = codes(arrays[f"{buffer.name}.low"])
    same = f"{buffer.name}.high" not in arrays
    answer = Answer(buffer.dtype, low, low if same else codes(arrays[f"{buffer.name}.high"]))
    if f"{buffer.name}.free" in arrays:
        answer.free = arrays[f"{buffer.name}.free"]
    return answer
