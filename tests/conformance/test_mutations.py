"""Every formula is needed by a vector: corrupt it, and some case fails."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from functools import cache, partial
from typing import Any

import numpy as np
import pytest
from reftile.conformance.backend import InterpBackend
from reftile.conformance.cases import Case, Program
from reftile.conformance.runner import run_case, select_cases, settings_for

from reftile.interp import poison, prepared, pure
from reftile.interp.values import Tile
from reftile.interp.vocabulary import ENVIRONMENT, WORDS
from reftile.ir.expressions import free_names
from reftile.ir.ops import OPS

BACKEND = InterpBackend()
SIGN_IS_FREE = {"scale_rows", "scale_columns"}
"""Words whose results are summed: a zero of either sign is an answer to a sum."""


@cache
def cases_of(suite: str) -> dict[str, list[Case]]:
    """The wimpy cases of each operation, programs made once."""
    found: dict[str, list[Case]] = {}
    for case in select_cases(settings_for(BACKEND, "wimpy", 0), [suite]):
        found.setdefault(case.op, []).append(case)
    return found


@cache
def program_of(id: str, suite: str, op: str) -> Program:
    return next(c for c in cases_of(suite)[op] if c.id == id).build()


def ready(case: Case) -> Case:
    return Case(
        case.id,
        case.suite,
        case.op,
        case.dtype,
        case.covers,
        lambda: program_of(case.id, case.suite, case.op),
    )


def words_of(texts: list[str]) -> set[str]:
    return {name for text in texts for name in free_names(text)} & set(WORDS)


def tile_records() -> Iterator[tuple[str, Any]]:
    for op, cls in OPS.items():
        if "tile" in cls.definition.levels:
            yield op, cls.definition


def users(pick: Callable[[Any], list[str]]) -> dict[str, list[str]]:
    """The operations whose texts use each word."""
    found: dict[str, list[str]] = {}
    for op, record in tile_records():
        for word in words_of(pick(record)):
            found.setdefault(word, []).append(op)
    return found


MEANINGS = users(lambda r: [r.meaning] if r.meaning else [])
CONDITIONS = users(lambda r: [u.when_text for u in r.undefined])


def some_case_fails(ops: list[str], suite: str = "ops") -> bool:
    """Whether a case of these operations fails; those with short programs come first."""
    for op in ops:
        for case in sorted(cases_of(suite).get(op, []), key=lambda c: "shape" not in c.id)[:60]:
            if run_case(BACKEND, ready(case)).verdict in ("fail", "error", "flaky"):
                return True
    return False


def nudged(value: Any) -> Any:
    """The value with every element a little different."""
    if isinstance(value, tuple):
        return tuple(nudged(v) for v in value)
    array = np.asarray(value)
    if array.dtype == np.bool_:
        return ~array
    if array.dtype.kind == "f":
        return np.where(array == 0, array.dtype.type(1), array * array.dtype.type(1 + 2.0**-6))
    return array ^ array.dtype.type(1)


def mutant(word: Callable[..., Any], change: Callable[[Any], Any]) -> Callable[..., Any]:
    return lambda *arguments: change(word(*arguments))


@pytest.mark.parametrize("word", sorted(MEANINGS))
def test_corrupt_formula_is_noticed(word: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(ENVIRONMENT, word, mutant(WORDS[word], nudged))
    assert some_case_fails(MEANINGS[word])


NAN_WORDS = [w for w in sorted(MEANINGS) if any(OPS[o].definition.accuracy for o in MEANINGS[w])]


@pytest.mark.parametrize("word", NAN_WORDS)
def test_lost_nan_and_lost_sign_of_zero_are_noticed(
    word: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A word that may give NaN or -0 has a vector that says so."""
    for change in (lost_nan,) if word in SIGN_IS_FREE else (lost_nan, lost_sign):
        changed = [False]
        monkeypatch.setitem(ENVIRONMENT, word, mutant(WORDS[word], partial(change, changed)))
        noticed = some_case_fails(MEANINGS[word])
        assert noticed or not changed[0], f"{change.__name__} of {word}"


def lost_nan(changed: list[bool], value: Any) -> Any:
    if isinstance(value, tuple) or np.asarray(value).dtype.kind != "f":
        return value
    nan = np.isnan(value)
    changed[0] |= bool(np.any(nan))
    return np.where(nan, np.asarray(value).dtype.type(0), value)


def lost_sign(changed: list[bool], value: Any) -> Any:
    if isinstance(value, tuple) or np.asarray(value).dtype.kind != "f":
        return value
    zero = (np.asarray(value) == 0) & np.signbit(value)
    changed[0] |= bool(np.any(zero))
    return np.where(zero, np.asarray(value).dtype.type(0), value)


@pytest.mark.parametrize("word", sorted(CONDITIONS))
def test_unchecked_condition_is_noticed(word: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Without the check, the faulty program of a trap runs through."""
    monkeypatch.setitem(ENVIRONMENT, word, lambda *arguments: False)
    assert some_case_fails(CONDITIONS[word], "trap")


@pytest.mark.parametrize("word", sorted(CONDITIONS))
def test_overzealous_condition_is_noticed(word: str, monkeypatch: pytest.MonkeyPatch) -> None:
    def always(*arguments: Any) -> Any:
        return ~np.zeros_like(np.asarray(WORDS[word](*arguments)), bool)

    monkeypatch.setitem(ENVIRONMENT, word, always)
    assert some_case_fails(CONDITIONS[word], "trap")


@pytest.mark.parametrize("op", sorted(pure.EVALUATORS))
def test_corrupt_evaluator_is_noticed(op: str, monkeypatch: pytest.MonkeyPatch) -> None:
    original = pure.EVALUATORS[op]

    def corrupt(*arguments: Any) -> tuple[Tile, ...]:
        return tuple(Tile(nudged(t.data), t.poison) for t in original(*arguments))

    monkeypatch.setattr(pure, "EVALUATORS", {**pure.EVALUATORS, op: corrupt})
    assert some_case_fails([op])


@pytest.mark.parametrize("kind", sorted(poison.SPREAD))
@pytest.mark.parametrize("everywhere", [False, True])
def test_wrong_spread_of_poison_is_noticed(
    kind: str, everywhere: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    ops = [op for op, record in tile_records() if record.poison == kind]
    original = poison.SPREAD[kind]

    def wrong(*arguments: Any) -> Any:
        spread = original(*arguments)
        if not everywhere:
            return None if spread is None else np.zeros_like(spread)
        return np.ones_like(spread) if spread is not None else None

    if everywhere and kind == "whole":
        return  # all of it is poison in any case
    monkeypatch.setattr(prepared, "SPREAD", {**poison.SPREAD, kind: wrong})
    assert some_case_fails(ops, "trap")
