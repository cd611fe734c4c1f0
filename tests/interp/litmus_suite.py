"""The litmus suite as Python values, for the tests beside this file."""

from __future__ import annotations

from functools import cache
from pathlib import Path

from reftile.interp.model.execution import Result
from reftile.interp.model.litmus import Expected, LitmusTest, parse_litmus
from reftile.ir.diagnostics import Source

FOLDER = Path(__file__).parents[2] / "conformance" / "litmus"


@cache
def suite() -> dict[str, LitmusTest]:
    """Every test by name."""
    found: dict[str, LitmusTest] = {}
    for path in sorted(FOLDER.rglob("*.litmus")):
        for test in parse_litmus(Source(path.name, path.read_text(encoding="utf-8"))):
            assert test.name not in found, f"two tests are called {test.name}"
            found[test.name] = test
    return found


def verdict(result: Result) -> Expected:
    """The pair that an exploration finds."""
    return Expected("allow" if result.allows() else "forbid", result.is_racy)
