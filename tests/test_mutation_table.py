"""The table of mistakes and the tests that notice them."""

from __future__ import annotations

import pytest

from docs.mutation_table import (
    LAYOUT,
    MUTATIONS,
    PAGE,
    PIPE_MISTAKES,
    Mutation,
    pipe_places,
    row,
)
from reftile.interp.model.pipe_order import hold_pipe
from reftile.interp.model.ptx import lower

TEXT = PAGE.read_text(encoding="utf-8")
TABLES = TEXT.split("## Kernels with roles")


def test_every_mistake_is_noticed() -> None:
    rows = [line for line in TABLES[0].splitlines() if line.startswith("| ")][2:]
    assert len(rows) == len(MUTATIONS)
    assert not [line for line in rows if "| none |" in line]


def test_every_mistake_in_kernels_with_roles_is_noticed() -> None:
    rows = [line for line in TABLES[1].splitlines() if line.startswith("| ")][1:]
    assert [row.split(" | ")[0].strip("| ") for row in rows] == [m[0] for m in PIPE_MISTAKES]
    assert not [line for line in rows if "| none |" in line]


def test_rows_of_kernels_with_roles_are_current() -> None:
    for _, kind, op in PIPE_MISTAKES[1::5]:
        noticed = [
            test.name
            for test, mistake in pipe_places(kind, op)
            if not hold_pipe(test.promised, test.lowered, test.args, "ptx-9", mistake).holds
        ]
        row = next(
            line
            for what, k, o in PIPE_MISTAKES
            for line in TABLES[1].splitlines()
            if (k, o) == (kind, op) and line.startswith(f"| {what} |")
        )
        assert f"| {len(noticed)} of " in row and noticed[0] in row, row


def test_without_a_mistake_nothing_is_seen() -> None:
    plain = Mutation("none", lambda test, mapping: lower(test.program, LAYOUT, mapping))
    assert row(plain) == "| none | 0 + 0 | none | - |"


@pytest.mark.parametrize("mutation", MUTATIONS[4::5], ids=lambda m: m.name)
def test_rows_are_current(mutation: Mutation) -> None:
    assert row(mutation) in TEXT, "python docs/mutation_table.py rewrites the page"
