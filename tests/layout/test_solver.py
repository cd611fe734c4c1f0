import pytest

from reftile.layout.atoms import cover, fragment
from reftile.layout.atoms_memory import blocked
from reftile.layout.cost import count_sectors, global_access
from reftile.layout.linear import Layout, LayoutError
from reftile.layout.solver import Conflict, Demand, Prefer, Same, Solution, solve

ACCUMULATOR = fragment("wgmma.m64n64.d")
OPERAND = cover(fragment("wgmma.m64k16.b16.a"), (64, 64))
WIDE = blocked((64, 64), 8, 4)
TILE = (64, 64)


def solved(shapes: dict[str, tuple[int, ...]], *facts: Demand | Prefer | Same) -> Solution:
    found = solve(shapes, facts)
    assert isinstance(found, Solution), found
    return found


def test_attention_needs_no_conversion() -> None:
    """scores -> row maximum -> exponentials -> operand of the next product."""
    found = solved(
        {"scores": TILE, "maximum": (64,), "scaled": TILE, "weights": TILE},
        Demand("scores", ACCUMULATOR),
        Same("scores", "maximum", "drop", (1,)),
        Same("scores", "scaled"),
        Same("scaled", "maximum", "drop", (1,)),
        Same("scaled", "weights", bits=16),
        Demand("weights", OPERAND),
    )
    assert found.conversions == () and found.cost == 0
    assert found.layouts["maximum"].replication == 4


def test_demands_that_meet_name_both_places() -> None:
    found = solve(
        {"a": TILE, "b": TILE, "c": TILE},
        [
            Demand("a", ACCUMULATOR, where="line 3"),
            Same("a", "b", where="line 4"),
            Same("b", "c", where="line 5"),
            Demand("c", WIDE, where="line 6"),
        ],
    )
    assert isinstance(found, Conflict)
    assert (found.first.where, found.second.where) == ("line 3", "line 6")
    assert [fact.where for fact in found.path] == ["line 4", "line 5"]
    assert str(found).startswith(
        "c would need two layouts: wgmma.m64n64.d<64x64> and layout<64x64;"
    )


def test_a_value_and_its_transpose_conflict_with_themselves() -> None:
    found = solve(
        {"a": TILE, "b": TILE},
        [
            Demand("a", ACCUMULATOR, where="line 1"),
            Same("a", "b", where="line 2"),
            Same("a", "b", "permute", (1, 0), where="line 3"),
        ],
    )
    assert isinstance(found, Conflict)
    assert found.second.where == "line 3"


def test_reduced_demand_against_its_source_conflicts() -> None:
    found = solve(
        {"a": TILE, "sum": (64,)},
        [
            Demand("a", ACCUMULATOR),
            Demand("sum", Layout.parse("layout<64; lane 32*(2); register 2*(1); warp 4*(0)>")),
            Same("a", "sum", "drop", (1,)),
        ],
    )
    assert isinstance(found, Conflict) and found.value == "sum"


def test_conversions_appear_where_they_are_allowed() -> None:
    found = solved(
        {"loaded": TILE, "product": TILE},
        Demand("loaded", WIDE),
        Same("loaded", "product", bits=16),
        Demand("product", ACCUMULATOR),
    )
    (conversion,) = found.conversions
    assert conversion.layout == ACCUMULATOR and conversion.cost == found.cost > 0


def test_free_values_follow_their_neighbours() -> None:
    found = solved(
        {"bias": TILE, "sum": TILE, "out": TILE},
        Demand("sum", ACCUMULATOR),
        Same("sum", "out"),
        Same("bias", "sum", bits=32),
    )
    assert found.layouts["bias"] == ACCUMULATOR and found.conversions == ()


def test_wide_loads_win_when_nothing_else_asks() -> None:
    found = solved({"x": TILE, "y": TILE}, Prefer("x", WIDE), Same("x", "y"))
    assert found.layouts == {"x": WIDE, "y": WIDE} and found.cost == 0


def test_a_load_gives_up_its_vectors_if_converting_costs_more() -> None:
    def sectors(layout: Layout) -> int:
        return count_sectors(global_access(layout, 16, (8192, 2))).sectors // 4

    facts = [
        Demand("sum", ACCUMULATOR),
        Same("bias", "sum", bits=16),
        Prefer("bias", WIDE, price=sectors),
    ]
    found = solved({"bias": TILE, "sum": TILE}, *facts)
    assert found.layouts["bias"] == ACCUMULATOR
    assert found.cost == sectors(ACCUMULATOR)
    dear = Prefer("bias", WIDE, price=lambda layout: 100 * sectors(layout))
    found = solved({"bias": TILE, "sum": TILE}, *facts[:2], dear)
    assert found.layouts["bias"] == WIDE and len(found.conversions) == 1


def test_a_broadcast_row_takes_the_reduced_layout() -> None:
    found = solved(
        {"row": (64,), "tile": TILE},
        Demand("tile", ACCUMULATOR),
        Same("tile", "row", "drop", (0,)),
    )
    assert str(found.layouts["row"]) == (
        "layout<64; register 2*(1) 8*(8); lane 4*(2) 8*(0); warp 4*(0)>"
    )


def test_reshapes_and_transposes_carry_demands_both_ways() -> None:
    found = solved(
        {"a": (64, 64), "b": (64, 64), "c": (64, 2, 32)},
        Same("a", "b", "permute", (1, 0)),
        Same("b", "c", "reshape", (64, 2, 32)),
        Demand("c", ACCUMULATOR.reshape((64, 2, 32))),
    )
    assert found.layouts["a"] == ACCUMULATOR.permute((1, 0))


def test_many_free_values_are_still_decided() -> None:
    values: dict[str, tuple[int, ...]] = {f"v{i}": TILE for i in range(16)}
    chain = [Same(f"v{i}", f"v{i + 1}", bits=16) for i in range(15)]
    found = solved(values, Prefer("v0", WIDE), *chain, Demand("v15", ACCUMULATOR))
    assert len(found.conversions) <= 1


def test_says_what_no_fact_decides() -> None:
    with pytest.raises(LayoutError, match="no layout for x: nothing suggests one"):
        solve({"x": TILE}, [])
    with pytest.raises(LayoutError, match="its layout is for"):
        solve({"x": (32, 32)}, [Demand("x", WIDE)])
