"""The suites as tests; `plugin` makes one for each case."""

from typing import Any


def test_case(conformance_case: Any, run_conformance_case: Any) -> None:
    run_conformance_case(conformance_case)
