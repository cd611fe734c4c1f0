"""Options of the tests."""

from __future__ import annotations

import pytest


def pytest_addoption(parser: pytest.Parser) -> None:
    """`--bless` writes the expected texts instead of comparing with them."""
    parser.addoption("--bless", action="store_true", help="write golden texts anew")


@pytest.fixture
def bless(request: pytest.FixtureRequest) -> bool:
    """True if golden texts are to be written."""
    return bool(request.config.getoption("--bless"))
