"""The litmus suite as cases: whether an outcome is reachable, and whether the program races."""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cache
from importlib.resources import files

from reftile.interp.model.litmus import LitmusTest, parse_litmus
from reftile.ir.diagnostics import Source

CLAUSES = {
    # clause of spec/memory_model.md: the families of tests that need it
    "coherence": ("CoRR", "CoWW", "CoWR", "CoRW"),
    "atomicity": ("ATOM",),
    "single_copy": ("MIXED",),
    "thin_air": ("LB",),
    "race": ("MP", "TILE", "ALIAS", "TOK", "TOK_IF", "TOK_FOR", "LAUNCH"),
}


@dataclass(frozen=True)
class Question:
    """A litmus test with its id and the clauses it covers."""

    id: str
    test: LitmusTest
    covers: tuple[str, ...]


@cache
def questions() -> tuple[Question, ...]:
    """Every test."""
    found: list[Question] = []
    folder = files("reftile.conformance") / "litmus"
    for entry in sorted(folder.iterdir(), key=lambda e: e.name):
        if not entry.name.endswith(".litmus"):
            continue
        for test in parse_litmus(Source(entry.name, entry.read_text(encoding="utf-8"))):
            name = re.sub(r"[^\w.+-]+", "_", test.name)
            covers = tuple(
                f"memory.{c}" for c, families in CLAUSES.items() if test.family in families
            )
            found.append(Question(f"litmus/{test.family}/{name}", test, covers))
    return tuple(found)


def ids() -> Iterator[tuple[str, tuple[str, ...]]]:
    """(id, covered ids) of every test."""
    for question in questions():
        yield question.id, question.covers
