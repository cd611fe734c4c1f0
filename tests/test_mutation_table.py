"""The table of mistakes and the tests that notice them."""

from __future__ import annotations

import pytest

from docs.mutation_table import LAYOUT, MUTATIONS, PAGE, Mutation, row
from reftile.interp.model.ptx import lower

TEXT = PAGE.read_text(encoding="utf-8")


def test_every_mistake_is_noticed() -> None:
    rows = [line for line in TEXT.splitlines() if line.startswith("| ")][2:]
    assert len(rows) == len(MUTATIONS)
    assert not [line for line in rows if "| none |" in line]


def test_without_a_mistake_nothing_is_seen() -> None:
    plain = Mutation("none", lambda test, mapping: lower(test.program, LAYOUT, mapping))
    assert row(plain) == "| none | 0 + 0 | none | - |"


@pytest.mark.parametrize("mutation", MUTATIONS[4::5], ids=lambda m: m.name)
def test_rows_are_current(mutation: Mutation) -> None:
    assert row(mutation) in TEXT, "python docs/mutation_table.py rewrites the page"
