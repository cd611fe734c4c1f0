"""What changed between two runs."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from reftile.conformance.report import read_jsonl
from reftile.conformance.verdicts import BAD

_BAD = frozenset(v.value for v in BAD)


@dataclass(frozen=True)
class Change:
    """A case whose verdict differs; "" where one run does not have it."""

    id: str
    before: str
    after: str

    @property
    def is_regression(self) -> bool:
        """True if it was not bad and is now, or passed and does not any more."""
        return (
            self.after in _BAD and self.before not in _BAD
        ) or self.before == "pass" != self.after


def compare(
    before: Sequence[Mapping[str, Any]], after: Sequence[Mapping[str, Any]]
) -> list[Change]:
    """The differences between two lists of results as plain data, in the order of their ids."""
    old = {str(r["id"]): str(r["verdict"]) for r in before}
    new = {str(r["id"]): str(r["verdict"]) for r in after}
    changes = [Change(id, old.get(id, ""), new.get(id, "")) for id in sorted({*old, *new})]
    return [c for c in changes if c.before != c.after]


def compare_files(before: Path, after: Path) -> dict[str, Any]:
    """Compare two files of `write_jsonl`, as plain data.

    Raises:
        ValueError: one is no such file.
    """
    changes = compare(read_jsonl(before)[1], read_jsonl(after)[1])
    return {
        "kind": "reftile-conformance-comparison",
        "changed": [
            {"id": c.id, "before": c.before, "after": c.after, "regression": c.is_regression}
            for c in changes
        ],
        "regressions": sum(c.is_regression for c in changes),
    }
