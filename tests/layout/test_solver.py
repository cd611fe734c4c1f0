from __future__ import annotations

import pytest

from reftile.layout.atoms import cover, fragment
from reftile.layout.atoms_memory import blocked
from reftile.layout.cost import conversion_cost, count_sectors, global_access
from reftile.layout.linear import Layout, LayoutError
from reftile.layout.solver import (
    Change,
    Conflict,
    Demand,
    Fact,
    Key,
    Offer,
    Prefer,
    Same,
    Solution,
    UnfitError,
    Use,
    drop,
    permute,
    reshape,
    solve,
)

ACCUMULATOR = fragment("wgmma.m64n64.d")
OPERAND = cover(fragment("wgmma.m64k16.b16.a"), (64, 64))
WIDE = blocked((64, 64), 8, 4)
TILE = (64, 64)


def price16(held: Layout, wanted: Layout) -> int:
    return conversion_cost(held, wanted, 16).total


def solved(shapes: dict[Key, tuple[int, ...]], *facts: Fact) -> Solution:
    found = solve(shapes, facts)
    assert isinstance(found, Solution), found
    return found


def test_attention_needs_no_conversion() -> None:
    """scores -> row maximum -> exponentials -> operand of the next product."""
    found = solved(
        {"scores": TILE, "maximum": (64,), "scaled": TILE, "weights": TILE},
        Demand("scores", ACCUMULATOR),
        Same("scores", "maximum", drop(1)),
        Same("scores", "scaled"),
        Same("scaled", "maximum", drop(1)),
        Use("scaled", "weights", price=price16),
        Demand("weights", OPERAND),
    )
    assert found.conversions == () and found.total() == 0
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


def test_a_use_that_nothing_converts_names_both_places() -> None:
    """Demands at both ends, and between them a value that cannot be converted."""
    found = solve(
        {"a": TILE, "b": TILE, "c": TILE},
        [
            Demand("a", ACCUMULATOR, where="line 1"),
            Use("a", "b", where="line 2"),
            Use("b", "c", price=lambda held, wanted: None, where="line 3"),
            Demand("c", WIDE, where="line 4"),
        ],
    )
    assert isinstance(found, Conflict)
    assert {found.first.where, found.second.where} == {"line 1", "line 4"}
    assert "line 3" in [fact.where for fact in found.path]


def test_a_value_and_its_transpose_conflict_with_themselves() -> None:
    found = solve(
        {"a": TILE, "b": TILE},
        [
            Demand("a", ACCUMULATOR, where="line 1"),
            Same("a", "b", where="line 2"),
            Same("a", "b", permute((1, 0)), where="line 3"),
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
            Same("a", "sum", drop(1)),
        ],
    )
    assert isinstance(found, Conflict) and found.value == "sum"


def test_a_demand_that_an_operation_cannot_carry_names_the_operation() -> None:
    def refuse(layout: Layout) -> Layout:
        raise LayoutError("cuts a digit")

    with pytest.raises(UnfitError, match="cuts a digit") as error:
        solve(
            {"a": TILE, "b": TILE},
            [Demand("a", ACCUMULATOR), Same("a", "b", Change("cut", refuse), where="line 2")],
        )
    assert error.value.fact.where == "line 2"


def test_conversions_appear_where_they_are_allowed() -> None:
    found = solved(
        {"loaded": TILE, "product": TILE},
        Demand("loaded", WIDE),
        Use("loaded", "product", price=price16),
        Demand("product", ACCUMULATOR),
    )
    (conversion,) = found.conversions
    assert conversion.layout == ACCUMULATOR and conversion.cost == found.total() > 0


def test_free_values_follow_their_neighbours() -> None:
    found = solved(
        {"bias": TILE, "sum": TILE, "out": TILE},
        Demand("sum", ACCUMULATOR),
        Same("sum", "out"),
        Use("bias", "sum", price=price16),
    )
    assert found.layouts["bias"] == ACCUMULATOR and found.conversions == ()


def test_wide_loads_win_when_nothing_else_asks() -> None:
    found = solved({"x": TILE, "y": TILE}, Prefer("x", (WIDE,)), Same("x", "y"))
    assert found.layouts == {"x": WIDE, "y": WIDE} and found.total() == 0


def test_a_load_gives_up_its_vectors_if_converting_costs_more() -> None:
    def sectors(layout: Layout) -> int:
        return count_sectors(global_access(layout, 16, (8192, 2))).sectors // 4

    facts: list[Fact] = [
        Demand("sum", ACCUMULATOR),
        Use("bias", "sum", price=price16),
        Prefer("bias", (WIDE,), price=sectors),
    ]
    found = solved({"bias": TILE, "sum": TILE}, *facts)
    assert found.layouts["bias"] == ACCUMULATOR
    assert found.total() == sectors(ACCUMULATOR)
    dear = Prefer("bias", (WIDE,), price=lambda layout: 100 * sectors(layout))
    found = solved({"bias": TILE, "sum": TILE}, *facts[:2], dear)
    assert found.layouts["bias"] == WIDE and len(found.conversions) == 1
    cautious = Prefer("bias", (WIDE,), dear.price, threshold=1 << 20)
    found = solved({"bias": TILE, "sum": TILE}, *facts[:2], cautious)
    assert found.layouts["bias"] == ACCUMULATOR


def test_a_broadcast_row_takes_the_reduced_layout() -> None:
    found = solved(
        {"row": (64,), "tile": TILE},
        Demand("tile", ACCUMULATOR),
        Use("row", "tile", drop(0), price16),
    )
    assert found.conversions == ()
    assert str(found.layouts["row"]) == (
        "layout<64; register 2*(1) 8*(8); lane 4*(2) 8*(0); warp 4*(0)>"
    )


def test_reshapes_and_transposes_carry_demands_both_ways() -> None:
    found = solved(
        {"a": (64, 64), "b": (64, 64), "c": (64, 2, 32)},
        Same("a", "b", permute((1, 0))),
        Same("b", "c", reshape((64, 64), (64, 2, 32))),
        Demand("c", ACCUMULATOR.reshape((64, 2, 32))),
    )
    assert found.layouts["a"] == ACCUMULATOR.permute((1, 0))


def test_a_chain_converts_once() -> None:
    values: dict[Key, tuple[int, ...]] = {f"v{i}": TILE for i in range(16)}
    chain = [Use(f"v{i}", f"v{i + 1}", price=price16) for i in range(15)]
    found = solved(values, Prefer("v0", (WIDE,)), *chain, Demand("v15", ACCUMULATOR))
    assert found.conversions == ()
    found = solved(values, Demand("v0", WIDE), *chain, Demand("v15", ACCUMULATOR))
    assert len(found.conversions) == 1


def test_the_dear_half_of_a_border_moves() -> None:
    """Wide elements convert where they are narrow, wherever the layouts first met."""

    def price(weight: int):
        return lambda held, wanted: weight * price16(held, wanted)  # type: ignore[no-any-return]

    found = solved(
        {"a": TILE, "b": TILE, "c": TILE},
        Demand("a", WIDE),
        Use("a", "b", price=price(8)),
        Use("b", "c", price=price(1)),
        Demand("c", ACCUMULATOR),
    )
    assert found.layouts["b"] == WIDE
    assert [c.fact.by for c in found.conversions] == ["c"]


def test_offers_are_chosen_together() -> None:
    """The first offer would do, but two of the second kind need nothing in between."""
    facts: list[Fact] = [
        Offer("s", (WIDE, ACCUMULATOR)),
        Offer("o", (OPERAND, ACCUMULATOR)),
        Use("s", "o", price=price16),
    ]
    found = solved({"s": TILE, "o": TILE}, *facts)
    assert found.layouts == {"s": ACCUMULATOR, "o": ACCUMULATOR}
    alone = solved({"s": TILE}, facts[0])
    assert alone.layouts["s"] == WIDE


def test_a_price_alone_makes_offers_compete_unless_it_is_inherent() -> None:
    def price(layout: Layout) -> int:
        return 10 if layout == WIDE else 1

    offer = Offer("s", (WIDE, ACCUMULATOR))
    found = solved({"s": TILE}, offer, Prefer("s", (), price))
    assert found.layouts["s"] == ACCUMULATOR
    found = solved({"s": TILE}, offer, Prefer("s", (), price, inherent=True))
    assert found.layouts["s"] == WIDE


def test_says_what_no_fact_decides() -> None:
    with pytest.raises(LayoutError, match="no layout for x: nothing suggests one"):
        solve({"x": TILE}, [])
    with pytest.raises(LayoutError, match="its layout is for"):
        solve({"x": (32, 32)}, [Demand("x", WIDE)])
    found = solve({"x": TILE}, [], otherwise=lambda value: WIDE)
    assert isinstance(found, Solution) and found.layouts["x"] == WIDE


def test_a_reduction_follows_its_operand() -> None:
    """The result comes first, and has no say in the layout of what is reduced."""
    found = solve(
        {"sum": (64,), "x": TILE},
        [Same("x", "sum", drop(1))],
        otherwise=lambda value: WIDE if value == "x" else blocked((64,), 4, 4),
    )
    assert isinstance(found, Solution)
    assert found.layouts["x"] == WIDE and found.layouts["sum"] == WIDE.drop(1)


def test_a_repeated_row_lies_as_what_it_came_from() -> None:
    """x -> its row sums -> the same shape again: nothing is converted."""
    found = solve(
        {"x": TILE, "sums": (64,), "again": TILE},
        [
            Demand("x", ACCUMULATOR),
            Same("x", "sums", drop(1)),
            Use("sums", "again", drop(1), price16),
            Prefer("again", (WIDE,)),
        ],
    )
    assert isinstance(found, Solution)
    assert found.layouts["again"] == ACCUMULATOR and not found.conversions
