"""Race reports name the missing edge."""

from __future__ import annotations

import pytest

from reftile.interp.model.explain import missing_edge
from reftile.interp.model.explore import explore
from tests.interp.litmus_suite import suite

EXPLAINED = {
    "ISA2+no-middle-token": "`C.e` acquires from `Q.d`; `P.b` is read by `Q.c`, but no token "
    "leads from `Q.c` to `Q.d`",
    "MP+weak+no-consumer-token": "`P.b` is read by `C.c`, but no token leads from `C.c` to `C.d`",
    "MP+weak+no-producer-token": "`P.b` is read by `C.c`, but no token leads from `P.a` to `P.b`",
    "MP+weak+rlx-flag": "`P.b` is read by `C.c`, but `P.b` does not release "
    "and `C.c` does not acquire",
    "MP+rmw-flag+acquire-only": "`P.b` is read by `C.c`, but `P.b` does not release",
    "MP+rmw-flag+release-only": "`P.b` is read by `C.c`, but `C.c` does not acquire",
    "MP+rel.block+acq.device": "scope block of `P.b` does not include block C: widen it",
    "MP+weak+unguarded": "`C.c` acquires, but here it reads nothing that block P released: "
    "let `C.d` depend on the value that it reads",
    "CoWW+weak+no-token": "no token leads from `P.op0` to `P.op1`: let `P.op1` wait for `P.op0`",
    "TILE+duplicate+weak": "two elements of `P.op0` have one location, and no token orders "
    "elements of one operation: make it relaxed.block, or the locations different",
    "ATOM+block-scope": "scope block of `P.op0` does not include block Q: widen it",
    "MIXED+strong": "both are strong, but accesses of different size or place are never "
    "morally strong",
    "SUBBYTE+neighbours": "blocks P and Q do not synchronise: release a flag after one access and "
    "acquire it before the other",
}


@pytest.mark.parametrize("name", EXPLAINED)
def test_missing_edge(name: str) -> None:
    races = explore(suite()[name].program).races
    assert EXPLAINED[name] in [missing_edge(race) for race in races]


def test_every_race_of_the_suite_is_explained() -> None:
    for name, test in suite().items():
        for race in explore(test.program, stop_at_race=True).races:
            assert missing_edge(race) != "nothing orders them", name
