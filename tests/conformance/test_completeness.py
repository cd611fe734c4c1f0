"""No record without an evaluator, a vector, a rejected program for each rule, and documentation."""

from __future__ import annotations

from importlib.resources import files

import pytest
from reftile.conformance.suites import elementwise, matrices, structural
from reftile.conformance.suites.common import Settings
from reftile.conformance.suites.registry import SUITES, make_cases
from reftile.conformance.trace import EXCUSED, is_known, known_ids, trace

from reftile.interp.actions import MAKERS
from reftile.interp.pure import has_meaning
from reftile.ir.ops import OPS
from reftile.ir.records import load

CONTROL = {"for", "loop", "if", "break", "continue", "yield", "return", "global"}
"""What the interpreter runs itself."""
FOUND = trace()


def tile_ops() -> list[str]:
    return [op for op, cls in OPS.items() if "tile" in cls.definition.levels]


@pytest.mark.parametrize("op", tile_ops())
def test_operation_is_evaluated(op: str) -> None:
    assert has_meaning(OPS[op]) or op in MAKERS or op in CONTROL


def test_every_id_of_the_specification_has_a_test() -> None:
    assert FOUND["untested"] == []


def test_every_test_names_ids_that_exist() -> None:
    assert FOUND["unknown"] == []


def test_excuses_are_needed_and_give_a_reason() -> None:
    assert FOUND["stale_excuses"] == []
    assert all(EXCUSED.values())


def test_every_record_is_documented() -> None:
    missing = [op for op, record in load().ops.items() if len(record.prose.split()) < 4]
    missing += [op for op, record in load().ops.items() if not record.definition.summary]
    # Prose may stand behind a record instead of before it.
    behind = {op for op in missing if _prose_behind(op)}
    assert [op for op in missing if op not in behind] == []


def _prose_behind(op: str) -> bool:
    record = load().ops[op]
    lines = (files("reftile.spec") / record.chapter).read_text(encoding="utf-8").splitlines()
    end = next(i for i in range(record.line, len(lines)) if lines[i].startswith("```"))
    return any(f"`{op}`" in line for line in lines) or bool(
        "".join(lines[end + 1 : end + 3]).strip()
    )


def test_elementwise_records_have_an_oracle() -> None:
    """A new elementwise operation needs a record and an oracle;

    its cases are made from the record.
    """
    known = {*elementwise.ORACLES, *structural.ORACLES, *matrices.ORACLES}
    known |= {"int_to_ptr", "ptr_to_int", "ptr_to_ptr", "offset", "assume"}
    for op in tile_ops():
        if OPS[op].definition.meaning:
            assert op in known, f"`{op}` has no oracle"


def test_a_missing_vector_is_named() -> None:
    known = known_ids()
    assert "addf.meaning" in known
    assert is_known("addf.lhs.dtype", known)
    assert not is_known("addf.speed", known)
    assert not is_known("memory.lost", known)


def test_every_suite_makes_cases() -> None:
    for suite in SUITES:
        if suite != "litmus":
            assert next(make_cases(suite, Settings("wimpy"))).suite == suite
