"""What the run of one case may come to."""

from __future__ import annotations

from enum import StrEnum


class Verdict(StrEnum):
    """The verdict on one case.

    PASS: the implementation did what the case expects.
    FAIL: it did something else.
    XFAIL: it failed, and a waiver with a reason and an id says so.
    UNSUPPORTED: the backend declares that it has no such feature. Counted apart, never as passed.
    VACUOUS: nothing was observed that could have gone wrong, so the run proves nothing.
    FLAKY: it failed, and a second run of the same case passed.
    SKIP: left out for lack of time.
    ERROR: the backend, the runner or the case itself broke.
    """

    PASS = "pass"
    FAIL = "fail"
    XFAIL = "xfail"
    UNSUPPORTED = "unsupported"
    VACUOUS = "vacuous"
    FLAKY = "flaky"
    SKIP = "skip"
    ERROR = "error"


BAD = frozenset({Verdict.FAIL, Verdict.ERROR, Verdict.FLAKY})
"""Verdicts that make a run fail."""


def empty_counts() -> dict[str, int]:
    """A count of zero for every verdict, by its lower-case name."""
    return {verdict.value: 0 for verdict in Verdict}
