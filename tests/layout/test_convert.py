import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from reftile.layout.atoms import cover, fragment, read
from reftile.layout.atoms_memory import blocked
from reftile.layout.convert import _by_elimination, _by_enumeration, convert
from reftile.layout.linear import Layout, LayoutError

SAME_EVERYWHERE = settings(
    derandomize=True, deadline=None, suppress_health_check=[HealthCheck.too_slow]
)
"""The same examples on any machine, however long they take to make."""


def test_accumulator_is_the_next_operand_for_16_bits() -> None:
    scores = fragment("wgmma.m64n128.d")
    assert convert(scores, cover(fragment("wgmma.m64k16.b16.a"), (64, 128))).distance == "none"


def test_accumulator_of_width_176_is_the_next_operand() -> None:
    scores = fragment("wgmma.m64n176.d")
    assert convert(scores, cover(fragment("wgmma.m64k16.b16.a"), (64, 176))).distance == "none"


def test_eight_bit_operands_exchange_within_quads() -> None:
    found = convert(fragment("wgmma.m64n64.d"), cover(fragment("wgmma.m64k32.b8.a"), (64, 64)))
    assert found.distance == "lane"
    assert dict(found.moved) == {
        ("register", 1): (("lane", 0),),
        ("register", 2): (("register", 1),),
        ("lane", 0): (("lane", 1),),
        ("lane", 1): (("register", 2),),
    }
    assert (found.shuffle_rounds, found.parallel_elements) == (32, 16)


def test_renaming_registers_is_free() -> None:
    one = Layout.parse("layout<8x4; register 2*(0,1) 2*(0,2); lane 8*(1,0)>")
    other = Layout.parse("layout<8x4; register 2*(0,2) 2*(0,1); lane 8*(1,0)>")
    assert convert(one, other).distance == "register"


def test_transposing_a_register_and_a_lane_bit_takes_one_round() -> None:
    rows = Layout.parse("layout<2x2; register 2*(0,1); lane 2*(1,0)>")
    found = convert(rows, rows.permute((1, 0)))
    assert (found.distance, found.shuffle_rounds, found.parallel_elements) == ("lane", 1, 1)


def test_copies_nearby_are_used() -> None:
    reduced = fragment("wgmma.m64n64.d").drop(1)
    fewer = Layout.parse("layout<64; register 2*(8); lane 4*(0) 8*(1); warp 4*(16)>")
    assert convert(reduced, fewer).distance == "none"
    one_each = Layout.parse("layout<64; lane 2*(8) 2*(0) 8*(1); warp 4*(16)>")
    assert convert(reduced, one_each).distance == "register"
    assert convert(one_each, reduced).distance == "lane"


def test_other_rows_per_warp_go_through_memory() -> None:
    assert convert(fragment("wgmma.m64n64.d"), blocked((64, 64), 8, 4)).distance == "warp"
    split = Layout.parse("layout<4; cta 4*(1)>")
    assert convert(split, Layout.parse("layout<4; cta 2*(2) 2*(1)>")).distance == "cta"


def test_repeats_that_stay_need_no_enumeration() -> None:
    tile = read("wgmma.m64n96.d<192x96; warp 3x1>")
    found = convert(tile, cover(fragment("wgmma.m64k32.b8.a"), (192, 96), (3, 1)))
    assert found.distance == "lane" and found.sources
    assert found.shuffle_rounds == 48


def test_different_repeats_are_compared_exactly() -> None:
    by_warp = Layout.parse("layout<6; register 2*(1); warp 3*(2)>")
    by_register = Layout.parse("layout<6; register 6*(1)>")
    assert convert(by_warp, by_register).distance == "warp"
    everywhere = by_register.replicate("warp", 3)
    assert convert(everywhere, by_warp).distance == "register"


def test_refuses_what_the_source_lacks() -> None:
    half = Layout.parse("layout<4; lane 2*(1)>")
    with pytest.raises(LayoutError, match="does not hold every element"):
        convert(half, Layout.parse("layout<4; lane 4*(1)>"))
    with pytest.raises(LayoutError, match="does not become"):
        convert(half, Layout.parse("layout<8; lane 8*(1)>"))


@st.composite
def register_layouts(draw: st.DrawFn) -> Layout:
    """64 elements over registers, 4 lanes and 2 warps: mixed bits, sometimes copies."""
    steps = [1 << i for i in range(6)]
    for _ in range(draw(st.integers(0, 4))):
        i, j = draw(st.permutations(range(6)))[:2]
        steps[i] ^= steps[j]
    copies = draw(st.integers(0, 2))
    bits = draw(st.permutations([*steps, *[0] * copies]))
    runs = [(2, (s,)) for s in bits]
    return Layout.of((64,), {"lane": runs[:2], "warp": runs[2:3], "register": runs[3:]})


@given(register_layouts(), register_layouts())
@settings(SAME_EVERYWHERE, max_examples=150)
def test_elimination_and_enumeration_agree(source: Layout, target: Layout) -> None:
    found = _by_elimination(source, target)
    counted = _by_enumeration(source, target)
    if counted.distance != "none":
        assert found.distance == counted.distance


@given(register_layouts(), register_layouts())
@settings(SAME_EVERYWHERE, max_examples=150)
def test_named_sources_hold_the_elements(source: Layout, target: Layout) -> None:
    found = _by_elimination(source, target)
    for (place, i), bits in found.sources:
        here = target.index(**{place: 1 << i})
        at: dict[str, int] = {}
        for origin, j in bits:
            at[origin] = at.get(origin, 0) | 1 << j
        assert source.index(**at) == here


@given(register_layouts(), register_layouts())
@settings(SAME_EVERYWHERE, max_examples=100)
def test_rounds_reach_the_bound_of_the_busiest_lane(source: Layout, target: Layout) -> None:
    """No lane can receive more than one element per round, and none needs to."""
    found = _by_elimination(source, target)
    if found.distance != "lane" or source.replication > 1 or target.replication > 1:
        return
    place_of = {int(source(register=r, lane=x, warp=w)): x for r, x, w in places(source)}
    incoming = np.zeros((4, 2), int)
    for register, lane, warp in places(target):
        incoming[lane, warp] += place_of[target(register=register, lane=lane, warp=warp)] != lane
    assert found.shuffle_rounds == incoming.max()


def places(layout: Layout) -> list[tuple[int, int, int]]:
    extents = [layout.extent(p) for p in ("register", "lane", "warp")]
    return [(r, x, w) for r, x, w in np.ndindex(*extents)]
