"""The notation of the specification's blocks, and its evaluator."""

from __future__ import annotations

import re
from random import Random

import pytest

from reftile.interp.model.evaluate import Evaluator, Space
from reftile.interp.model.relations import (
    BASE_NAMES,
    Axiom,
    Model,
    Name,
    parse_expression,
    parse_model,
    simplify_away,
    spec_model,
    spec_source,
)
from reftile.ir.diagnostics import ReftileError, Source

SPACE = Space(4)
RF = {(0, 1), (1, 2), (3, 3)}
CO = {(1, 3), (2, 0), (3, 3)}


def value(
    text: str, rf: set[tuple[int, int]] = RF, co: set[tuple[int, int]] = CO
) -> set[tuple[int, int]]:
    """What an expression over rf and co comes to; W is {0, 1}."""
    model = Model("test", {"it": parse_expression(text)}, ())
    base = {"W": SPACE.of([(0, 0), (1, 1)])}
    found = Evaluator(model, SPACE, base).defined("it", SPACE.of(rf), SPACE.of(co))
    return set(SPACE.pairs(found))


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("rf | co", RF | CO),
        ("rf & co", {(3, 3)}),
        ("rf \\ co", {(0, 1), (1, 2)}),
        ("rf^-1", {(1, 0), (2, 1), (3, 3)}),
        ("rf ; co", {(0, 3), (1, 0), (3, 3)}),
        ("rf+", {(0, 1), (1, 2), (0, 2), (3, 3)}),
        ("rf?", RF | {(i, i) for i in range(4)}),
        ("rf*", RF | {(0, 2)} | {(i, i) for i in range(4)}),
        ("W ; rf", {(0, 1), (1, 2)}),
        ("rf ; W", {(0, 1)}),
        ("W ; rf ; W", {(0, 1)}),
        ("id & rf", {(3, 3)}),
        ("any \\ any", set()),
        ("rf ; id", RF),
        ("tok", set()),
    ],
)
def test_operators(text: str, expected: set[tuple[int, int]]) -> None:
    assert value(text) == expected


def test_binding_is_as_documented() -> None:
    assert parse_expression("rf | co \\ tok & dep ; rmw") == parse_expression(
        "rf | (co \\ (tok & (dep ; rmw)))"
    )
    assert parse_expression("rf \\ co \\ tok") == parse_expression("(rf \\ co) \\ tok")
    assert parse_expression("rf ; co+") == parse_expression("rf ; (co+)")
    assert parse_expression("rf^-1+") == parse_expression("(rf^-1)+")


def test_random_relations_agree_with_sets() -> None:
    random = Random(1)
    pairs = [(i, j) for i in range(4) for j in range(4)]
    for _ in range(200):
        rf = set(random.sample(pairs, random.randint(0, 8)))
        co = set(random.sample(pairs, random.randint(0, 8)))
        assert value("rf ; co", rf, co) == {(a, d) for a, b in rf for c, d in co if b == c}
        closed = value("rf+", rf)
        assert rf <= closed and value("rf+ ; rf+", rf) <= closed
        assert value("(rf^-1 ; co^-1)^-1", rf, co) == value("co ; rf", rf, co)


def test_printed_expressions_parse_to_themselves() -> None:
    for name in ("tile", "ptx-6.0", "ptx-9"):
        model = spec_model(name)
        known = frozenset(model.definitions)
        for expression in [*model.definitions.values(), *(a.expression for a in model.axioms)]:
            names = BASE_NAMES | known
            assert parse_expression(str(expression), names) == expression


def test_given_names_are_those_of_the_specification() -> None:
    text = spec_source().text
    tables = text[text.index("## 4.") : text.index("```relations tile")]
    tables += text[text.index("## 10.") : text.index("```relations ptx-6.0")]
    tables += text[text.index("**Kernels with roles.**") : text.index("```relations pipe")]
    rows = [line.split("|")[1] for line in tables.splitlines() if line.startswith("| `")]
    assert {name for row in rows for name in re.findall(r"`([A-Za-z_]+)`", row)} >= BASE_NAMES


def markdown(relations: str, axioms: str) -> Source:
    return Source("model.md", f"```relations m\n{relations}\n```\n\n```axioms m\n{axioms}\n```\n")


@pytest.mark.parametrize(
    ("rule", "relations", "axioms"),
    [
        ("model.unknown_name", "a = b", "x : empty a"),
        ("model.unknown_name", "a = b\nb = rf", "x : empty a"),
        ("model.redefined", "rf = co", "x : empty rf"),
        ("model.redefined", "a = co\na = rf", "x : empty a"),
        ("model.syntax", "a = (rf", "x : empty a"),
        ("model.syntax", "a = rf $", "x : empty a"),
        ("model.axiom_kind", "a = rf", "x : never a"),
    ],
)
def test_rejects_with_a_span(rule: str, relations: str, axioms: str) -> None:
    with pytest.raises(ReftileError) as caught:
        parse_model(markdown(relations, axioms), "m")
    assert caught.value.diagnosis.rule == rule
    assert caught.value.diagnosis.span.file == "model.md"


def test_rejects_a_missing_block() -> None:
    with pytest.raises(ReftileError, match="no block"):
        parse_model(Source("model.md", ""), "m")


def check(kind: str, text: str, rf: set[tuple[int, int]], complete: bool = True) -> bool:
    """Whether an axiom holds."""
    axioms = parse_model(markdown("a = rf", f"x : {kind} {text}"), "m").axioms
    model = Model("test", {}, axioms)
    evaluator = Evaluator(model, SPACE, {})
    return evaluator.broken(SPACE.of(rf), SPACE.of(CO), complete=complete) is None


def test_kinds_of_axioms() -> None:
    assert check("irreflexive", "rf", {(0, 1), (1, 0)})
    assert not check("irreflexive", "rf ; rf", {(0, 1), (1, 0)})
    assert not check("acyclic", "rf", {(0, 1), (1, 0)})
    assert check("acyclic", "rf", {(0, 1), (1, 2)})
    assert check("empty", "rf", set())
    assert not check("empty", "rf", {(0, 1)})


def test_an_axiom_that_edges_can_mend_is_asked_only_at_the_end() -> None:
    assert not check("empty", "rf \\ co", {(0, 1)})
    assert check("empty", "rf \\ co", {(0, 1)}, complete=False)
    assert not check("empty", "rf \\ id", {(0, 1)}, complete=False)


def test_clauses_are_dropped_one_by_one() -> None:
    dropped = dict(simplify_away(parse_expression("(rf | co)+ & tok")))
    assert {str(e) for e in dropped.values()} == {
        "(rf | co)+",
        "tok",
        "(rf | co) & tok",
        "rf+ & tok",
        "co+ & tok",
    }


def test_axioms_and_definitions_can_be_changed() -> None:
    model = spec_model()
    assert [a.name for a in model.without_axiom("coherence").axioms if a.name == "coherence"] == []
    assert model.with_definition("hb", Name("tok")).definitions["hb"] == Name("tok")
    changed = model.with_axiom("coherence", Name("tok"))
    assert Axiom("irreflexive", "coherence", Name("tok")) in changed.axioms
