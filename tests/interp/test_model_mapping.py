"""The mapping tables of the specification cover every order and scope."""

from __future__ import annotations

import tomllib

import pytest

from reftile.interp.model.events import ORDERS, SCOPES
from reftile.interp.model.ptx import spec_mapping
from reftile.interp.model.relations import blocks, spec_source


def tables() -> dict[str, dict[str, dict[str, object]]]:
    source, found = spec_source(), dict[str, dict[str, dict[str, object]]]()
    for kind, _, start, end in blocks(source):
        if kind == "toml mapping":
            for name, table in tomllib.loads(source.text[start:end]).items():
                found.setdefault(name, {}).update(table)
    return found


def test_ptx_has_a_row_for_every_order() -> None:
    mapping = spec_mapping()
    wanted = {f"{kind}.{order}" for kind, orders in ORDERS.items() for order in orders}
    assert wanted | {"red.relaxed", "red.release"} == set(mapping.rows)
    assert set(mapping.scopes) == set(SCOPES)


@pytest.mark.parametrize("kind", ["load", "store"])
def test_gfx942_has_a_row_for_every_order_and_scope(kind: str) -> None:
    rows = tables()["gfx942"][kind]
    orders = ORDERS["load" if kind == "load" else "store"]
    assert set(rows) == set(orders)
    for order, by_scope in rows.items():
        assert isinstance(by_scope, dict)
        assert set(by_scope) == ({"any"} if order == "weak" else set(SCOPES))


def test_gfx942_atomics_have_a_row_for_every_scope() -> None:
    rows = tables()["gfx942"]["rmw"]
    assert set(rows) == {"relaxed", "before_release", "after_acquire"}
    assert all(isinstance(r, dict) and set(r) == set(SCOPES) for r in rows.values())


def test_both_targets_need_barriers_for_the_same_reasons() -> None:
    found = tables()
    assert found["gfx942"]["token"]["needed_if"] == found["ptx"]["token"]["needed_if"]


def test_asynchronous_operations_state_both_ends() -> None:
    for entry in tables()["ptx"]["async"]:
        assert isinstance(entry, dict) and set(entry) == {"name", "before", "after"}
