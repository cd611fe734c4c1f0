"""Negative controls: every axiom and every clause of the model decides some verdict."""

from __future__ import annotations

import pytest

from reftile.interp.model.explore import explore
from reftile.interp.model.relations import Model, simplify_away, spec_model
from tests.interp.litmus_suite import suite, verdict


def mutants() -> dict[str, Model]:
    """The model with one thing less, by what is missing."""
    model, found = spec_model(), dict[str, Model]()

    def add(what: str, changed: Model) -> None:
        again = sum(key.startswith(what) for key in found)
        found[f"{what} ({again + 1})" if again else what] = changed

    for axiom in model.axioms:
        add(f"axiom {axiom.name or axiom.kind}", model.without_axiom(axiom.name))
    for name, expression in model.definitions.items():
        for what, rest in simplify_away(expression):
            add(f"{name} without {what}", model.with_definition(name, rest))
    for axiom in model.axioms:
        for what, rest in simplify_away(axiom.expression):
            add(f"{axiom.name} without {what}", model.with_axiom(axiom.name, rest))
    return found


NEEDED_BY = {
    "axiom order_pairs": "CoRR2+rlx",
    "axiom coherence": "MP+weak+rel-acq",
    "axiom atomicity": "ATOM+lost-update",
    "axiom single_copy": "MIXED+single-copy",
    "axiom thin_air": "LB+rlx+data",
    "axiom race": "MP+weak+unguarded",
    "ms without `& in_scope^-1`": "MP+rel.device+acq.block",
    "ms without `same_location & in_scope &`": "MP+rel.block+acq.device",
    "ms without `& in_scope`": "MP+rel.block+acq.device",
    "ms without `same_location &`": "MIXED+strong",
    "obs without `; (rmw ; (rf & ms))*`": "MP+release-sequence",
    "obs without `rf & ms ;`": "MP+weak+rel-acq",
    "obs without `& ms`": "MP+release-sequence+ordered-first-link",
    "obs without `rf &`": "MP+weak+unguarded",
    "obs without the `*` of `(rmw ; (rf & ms))*`": "MP+weak+rel-acq",
    "obs without `; rf & ms`": "MP+release-sequence",
    "obs without `rmw ;`": "MP+release-sequence",
    "obs without `& ms` (2)": "MP+release-sequence+ordered-last-link",
    "obs without `rf &` (2)": "MP+release-sequence+stale",
    "sw without `; acquire`": "MP+rlx+rel-rlx",
    "sw without `release ; (obs & ms) ;`": "MP+weak+rel-acq",
    "sw without `; obs & ms`": "MP+weak+rel-acq",
    "sw without `release ;`": "MP+rlx+rlx-acq",
    "sw without `& ms`": "MP+release-sequence+ends",
    "sw without `obs &`": "MP+weak+unguarded",
    "hb without the `+` of "
    "`(((((tok | sw) | rmw) | init_before) | exit_after) | launch_before)+`": "MP+weak+rel-acq",
    "hb without `| launch_before`": "EXIT-INIT+two-launches",
    "hb without `(((tok | sw) | rmw) | init_before) | exit_after |`": "MP+weak+rel-acq",
    "hb without `| exit_after`": "CoWW+weak",
    "hb without `((tok | sw) | rmw) | init_before |`": "MP+weak+rel-acq",
    "hb without `| init_before`": "MP+weak+rel-acq",
    "hb without `(tok | sw) | rmw |`": "MP+weak+rel-acq",
    "hb without `| rmw`": "ATOM+xchg-mutual",
    "hb without `tok | sw |`": "MP+weak+rel-acq",
    "hb without `| sw`": "MP+weak+rel-acq",
    "hb without `tok |`": "MP+weak+rel-acq",
    "fr without `; co`": "MP+rlx",
    "fr without `rf^-1 ;`": "MP+weak+rel-acq",
    "eco without the `+` of `((rf | co) | fr)+`": "CoRR+rlx",
    "eco without `| fr`": "MP+weak+rel-acq",
    "eco without `rf | co |`": "CoRR+rlx",
    "eco without `| co`": "CoWW+weak",
    "eco without `rf |`": "CoRR+rlx",
    "race without `\\ (hb | hb^-1) | ms`": "MP+weak+rel-acq",
    "race without `| ms`": "MP+weak+rel-acq",
    "race without `hb | hb^-1 |`": "MP+weak+rel-acq",
    "race without `| hb^-1`": "MP+weak+rel-acq",
    "race without `hb |`": "MP+weak+rel-acq",
    "coherence without `; eco`": "MP+weak+rel-acq",
    "coherence without `hb ;`": "MP+weak+rel-acq",
    "atomicity without `& fr ; co`": "MP+release-sequence+narrow-link",
    "atomicity without `rmw &`": "MP+rmw-flag+rlx",
    "atomicity without `; co`": "MP+release-sequence+narrow-link",
    "atomicity without `fr ;`": "ATOM+lost-update",
    "single_copy without `; whole`": "MIXED+single-copy",
    "single_copy without `((rf & ms) ; whole) ; fr ;`": "MP+rlx",
    "single_copy without `; fr`": "MIXED+single-copy",
    "single_copy without `(rf & ms) ; whole ;`": "MIXED+single-copy",
    "single_copy without `; whole` (2)": "MIXED+single-copy",
    "single_copy without `rf & ms ;`": "MIXED+single-copy",
    "single_copy without `& ms`": "MIXED+torn",
    "single_copy without `rf &`": "MP+rlx",
    "thin_air without `| dep`": "LB+rlx+data",
    "thin_air without `rf |`": "LB+rlx+data",
}
"""For each thing that can be left out, a test that then gets another verdict."""


def test_every_clause_has_a_test() -> None:
    assert set(NEEDED_BY) == set(mutants())


@pytest.mark.parametrize("what", NEEDED_BY)
def test_clause_is_needed(what: str) -> None:
    test = suite()[NEEDED_BY[what]]
    assert verdict(explore(test.program, mutants()[what], step_limit=5000)) != test.expected
