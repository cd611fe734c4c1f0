"""The suites under pytest: `pytest --pyargs reftile.conformance --backend interp --suite ops,trap`.

This module is loaded by every pytest run of an environment in which reftile is installed, so it
imports nothing of reftile: `test_conformance` does, and that only runs where somebody asks for it.
"""

from __future__ import annotations

from collections import Counter
from typing import Any

import pytest

COUNTS = pytest.StashKey[Counter[str]]()
"""How many cases came to each verdict."""


def pytest_addoption(parser: pytest.Parser) -> None:
    group = parser.getgroup("reftile conformance")
    group.addoption("--backend", default="interp", help="the backend to test")
    group.addoption("--suite", default="", help="suites, separated by commas (all)")
    budgets = ["wimpy", "default", "exhaustive"]
    group.addoption("--budget", default="wimpy", choices=budgets, help="seconds, minutes, hours")
    group.addoption("--case", default="", help="a regular expression that ids must contain")
    group.addoption("--case-seed", default=0, type=int, help="seed of the inputs")


def pytest_configure(config: pytest.Config) -> None:
    config.stash[COUNTS] = Counter()


def pytest_terminal_summary(terminalreporter: Any, config: pytest.Config) -> None:
    counts = config.stash.get(COUNTS, Counter())
    if counts:
        text = ", ".join(f"{n} {verdict}" for verdict, n in counts.most_common())
        terminalreporter.write_line(f"conformance of {config.getoption('--backend')}: {text}")
