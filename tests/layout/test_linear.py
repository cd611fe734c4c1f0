from itertools import product

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from reftile.layout.linear import Basis, Layout, LayoutError, Map, rank

WGMMA_96 = "layout<64x96; register 2*(0,1) 2*(8,0) 12*(0,8); lane 4*(0,2) 8*(1,0); warp 4*(16,0)>"
WGMMA_64 = "layout<64x64; register 2*(0,1) 2*(8,0) 8*(0,8); lane 4*(0,2) 8*(1,0); warp 4*(16,0)>"
SWIZZLE = "layout<64x64; offset 64*(0,1) 8*(1,8) 8*(8,0)>"


SAME_EVERYWHERE = settings(
    derandomize=True, deadline=None, suppress_health_check=[HealthCheck.too_slow]
)
"""The same examples on any machine, however long they take to make."""


def row_major(*shape: int) -> Layout:
    step = [int(np.prod(shape[k + 1 :])) for k in range(len(shape))]
    runs = [(e, tuple(int(j == k) for j in range(len(shape)))) for k, e in enumerate(shape)]
    assert step[-1] == 1
    return Layout.of(shape, {"offset": runs[::-1]})


@st.composite
def layouts(draw: st.DrawFn) -> Layout:
    """Bijections of a tile: bits mixed by random invertible matrices, repeats dealt out at will."""
    dims = draw(st.integers(1, 3))
    bits = [draw(st.integers(0, 4)) for _ in range(dims)]
    odd = [draw(st.sampled_from([1, 1, 3, 5, 9])) for _ in range(dims)]
    units = [(k, 1 << j) for k in range(dims) for j in range(bits[k])]
    steps = [tuple(v if j == k else 0 for j in range(dims)) for k, v in units]
    for _ in range(draw(st.integers(0, 6))):
        if len(steps) > 1:
            i, j = draw(st.permutations(range(len(steps))))[:2]
            steps[i] = tuple(a ^ b for a, b in zip(steps[i], steps[j], strict=True))
    digits = [(2, s) for s in draw(st.permutations(steps))]
    for k in range(dims):
        digits.append((odd[k], tuple((1 << bits[k]) if j == k else 0 for j in range(dims))))
    places: dict[str, list[tuple[int, tuple[int, ...]]]] = {}
    for digit in digits:
        place = draw(st.sampled_from(["register", "lane", "warp"]))
        places.setdefault(place, []).append(digit)
    return Layout.of([o << b for o, b in zip(odd, bits, strict=True)], places)


# Values


def test_wgmma_accumulator_of_width_96_matches_its_formula() -> None:
    layout = Layout.parse(WGMMA_96)
    for warp, lane, register in product(range(4), range(32), range(48)):
        row = 16 * warp + lane // 4 + 8 * (register // 2 % 2)
        column = 8 * (register // 4) + 2 * (lane % 4) + register % 2
        place = {"register": register, "lane": lane, "warp": warp}
        assert layout.index(**place) == (row, column)
        assert layout(**place) == row * 96 + column


def test_arrays_and_tables_agree_with_scalars() -> None:
    layout = Layout.parse(WGMMA_96)
    table = layout.indices()
    assert table.shape == (48, 32, 4)
    lanes = np.arange(32)
    np.testing.assert_array_equal(layout(register=7, lane=lanes, warp=3), table[7, :, 3])
    assert table[7, 30, 3] == layout(register=7, lane=30, warp=3)


def test_swizzle_is_an_exclusive_or_of_row_and_chunk() -> None:
    layout = Layout.parse(SWIZZLE)
    for offset in range(64 * 64):
        row, column = divmod(offset, 64)
        assert layout.index(offset=offset) == (row, (column // 8 ^ row % 8) * 8 + column % 8)


def test_refuses_a_place_outside_its_extent() -> None:
    with pytest.raises(LayoutError, match=r"lane must lie in \[0, 32\)"):
        Layout.parse(WGMMA_96)(lane=32)


def test_refuses_places_that_leave_the_tile() -> None:
    with pytest.raises(LayoutError, match="reach d1 = 127"):
        Layout.parse("layout<64x64; offset 128*(0,1)>")


def test_padding_is_masked() -> None:
    layout = Layout.parse("layout<60 in 64; register 2*(1); lane 32*(2)>")
    assert layout(register=1, lane=29) == 59
    assert layout(register=0, lane=30) == -1
    assert layout.valid().sum() == 60
    assert layout.is_onto and layout.is_injective


def test_replication_counts_the_copies() -> None:
    layout = Layout.parse(WGMMA_96).drop(1)
    assert str(layout) == "layout<64; register 2*(8); lane 4*(0) 8*(1); warp 4*(16)>"
    assert layout.replication == 4
    assert layout.is_onto and not layout.is_injective


# Canonical form and text


@pytest.mark.parametrize(
    ("text", "canonical"),
    [
        ("layout<64; lane 2*(1) 2*(2) 8*(4) 2*(32)>", "layout<64; lane 64*(1)>"),
        ("layout<9; register 3*(1) 3*(3)>", "layout<9; register 9*(1)>"),
        ("layout<6; register 3*(1) 2*(3)>", "layout<6; register 6*(1)>"),
        ("layout<6; warp 3*(2); register 2*(1)>", "layout<6; register 2*(1); warp 3*(2)>"),
        ("layout<8; lane 2+(1) 2+(2) 2*(4)>", "layout<8; lane 8*(1)>"),
        ("layout<10; lane 2*(3); warp 2+(6)>", "layout<10; lane 2*(3); warp 2+(6)>"),
        ("8; lane 4*(1); register 2*(4); warp 1*(0)", "layout<8; register 2*(4); lane 4*(1)>"),
    ],
)
def test_equal_layouts_have_one_form(text: str, canonical: str) -> None:
    assert str(Layout.parse(text)) == canonical
    assert Layout.parse(text) == Layout.parse(canonical)


@given(layouts())
@settings(SAME_EVERYWHERE, max_examples=60)
def test_text_reads_back(layout: Layout) -> None:
    assert Layout.parse(str(layout)) == layout


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("layout<64y64>", "expected a shape"),
        ("layout<64; thread 32*(1)>", "expected one of register, lane"),
        ("layout<64; lane 32*(1,2)>", "with 1 numbers in the step"),
        ("layout<64; lane 32(1)>", "expected extent"),
        ("layout<64 in 32; lane 32*(1)>", "must not be smaller"),
    ],
)
def test_text_errors_name_the_part(text: str, message: str) -> None:
    with pytest.raises(LayoutError, match=message):
        Layout.parse(text)


def test_same_function_in_another_form_is_the_same() -> None:
    additive = Layout.parse("layout<12; register 3*(1) 4*(3)>")
    assert additive.is_same(Layout.parse("layout<12; register 12*(1)>"))
    assert not additive.is_same(Layout.parse("layout<12; register 4*(3) 3*(1)>"))


# Questions


@given(layouts())
@settings(SAME_EVERYWHERE, max_examples=60)
def test_bijections_are_injective_and_onto(layout: Layout) -> None:
    assert layout.is_injective and layout.is_onto
    assert sorted(layout.indices().ravel()) == list(range(layout.map.size))


def test_a_lost_bit_is_neither_injective_nor_onto() -> None:
    layout = Layout.of((8,), {"lane": [(2, (1,)), (2, (2,)), (2, (3,))]})
    assert not layout.is_injective and not layout.is_onto
    assert layout.replication == 2


def test_overlapping_repeats_are_counted_exactly() -> None:
    layout = Layout.parse("layout<8; register 3*(2); lane 2*(1); warp 2*(2)>")
    assert not layout.is_injective
    assert layout.map.image_size == len(np.unique(layout.indices()))


# Algebra


@given(layouts())
@settings(SAME_EVERYWHERE, max_examples=60)
def test_inverse_leads_back(layout: Layout) -> None:
    try:
        inverse = layout.map.invert()
    except LayoutError as error:
        assert "no such form" in str(error) or "line up" in str(error)
        return
    table = dict(zip((n for n, _ in layout.map.outputs), layout.map.table(), strict=True))
    reached = {n: t for n, t in table.items() if inverse.extent(n) > 1}
    for values, expected in zip(inverse(**reached), places_of(layout).values(), strict=True):
        np.testing.assert_array_equal(values, np.broadcast_to(expected, np.shape(values)))


def places_of(layout: Layout) -> dict[str, np.ndarray]:
    """Every place of a layout, as arrays to call it with."""
    extents = [layout.extent(p) for p in layout.places]
    return dict(zip(layout.places, np.indices(extents, sparse=True), strict=True))


@given(layouts())
@settings(SAME_EVERYWHERE, max_examples=60)
def test_composition_is_evaluation_in_turn_or_refused(layout: Layout) -> None:
    try:
        composed = layout.map.then(row_major(*layout.shape).map.invert())
    except LayoutError:
        # An exclusive or of rows, times an odd row length, is neither kind of digit.
        digits = [d for _, row in layout.map.inputs for d in row]
        assert any(d.is_bit and sum(map(int.bit_count, d.step)) > 1 for d in digits)
        return
    offsets = composed(**places_of(layout)) or (0,)
    np.testing.assert_array_equal(offsets[0], layout.indices())


@pytest.mark.parametrize("place", ["register", "lane"])
@pytest.mark.parametrize("columns", [3, 72, 96, 176])
def test_unswizzled_fragments_compose_with_any_row_length(place: str, columns: int) -> None:
    runs = [(2, (1, 0)), (columns, (0, 1)), (2, (4, 0))]
    layout = Layout.of((8, columns), {place: runs, "warp": [(2, (2, 0))]})
    composed = layout.map.then(row_major(8, columns).map.invert())
    np.testing.assert_array_equal(composed(**places_of(layout))[0], layout.indices())


def test_fragment_in_swizzled_memory() -> None:
    offsets = Layout.parse(WGMMA_64).map.then(Layout.parse(SWIZZLE).map.invert())
    assert offsets.runs("lane") == ("4*(2)", "2*(72)", "2*(144)", "2*(288)")
    (at,) = offsets(register=4, lane=4, warp=1)
    assert Layout.parse(SWIZZLE).index(offset=at) == (17, 8)


def test_fragment_in_rows_padded_to_a_pitch_of_72() -> None:
    memory = Layout.parse("layout<64x64 in 64x72; offset 72*(0,1) 64*(1,0)>")
    (offsets,) = Layout.parse(WGMMA_64).map.then(memory.map.invert()).table()
    row, column = Layout.parse(WGMMA_64).map.table()
    np.testing.assert_array_equal(offsets, row * 72 + column)


def test_refuses_to_invert_copies_and_gaps() -> None:
    with pytest.raises(LayoutError, match="several places"):
        Layout.parse("layout<4; lane 8*(0) 4*(1)>").map.invert()
    with pytest.raises(LayoutError, match="held nowhere"):
        Layout.parse("layout<8; lane 4*(1)>").map.invert()


def test_composition_refuses_digits_that_do_not_line_up() -> None:
    three_by_two = Map.of({"a": [(2, (3,)), (3, (1,))]}, [("x", 6)])
    swizzled = Map.of({"x": [(2, (1, 1)), (3, (2, 0))]}, [("y", 6), ("z", 2)])
    with pytest.raises(LayoutError, match="line up"):
        three_by_two.then(swizzled)


# Tiles


def test_repeat_makes_three_warpgroups() -> None:
    tile = Layout.parse(WGMMA_96).repeat("warp", 0, 3)
    assert tile.shape == (192, 96)
    assert tile.extent("warp") == 12
    assert tile.index(register=0, lane=0, warp=9) == (144, 0)
    assert tile.is_injective and tile.is_onto


def test_registers_may_count_beyond_a_repeat() -> None:
    tile = Layout.parse(WGMMA_96).repeat("register", 0, 2)
    assert tile.index(register=48, lane=0, warp=0) == (64, 0)
    assert tile.is_injective and tile.is_onto


def test_permute_transposes() -> None:
    layout = Layout.parse(WGMMA_96)
    row, column = layout.index(register=5, lane=9, warp=2)
    assert layout.permute((1, 0)).index(register=5, lane=9, warp=2) == (column, row)


@pytest.mark.parametrize("shape", [(64, 3, 32), (6144,), (2, 32, 96), (64, 12, 8)])
def test_reshape_keeps_the_row_major_index(shape: tuple[int, ...]) -> None:
    layout = Layout.parse(WGMMA_96)
    np.testing.assert_array_equal(layout.reshape(shape).indices(), layout.indices())


def test_reshape_refuses_to_cut_through_a_repeat() -> None:
    with pytest.raises(LayoutError, match="line up"):
        Layout.parse(WGMMA_96).reshape((128, 48))


def test_slice_selects_registers() -> None:
    layout = Layout.parse(WGMMA_96)
    part, begin = layout.slice(1, 64, 32)
    assert part.shape == (64, 32) and begin == {"register": 32}
    for register in range(16):
        row, column = part.index(register=register, lane=13, warp=1)
        assert layout.index(register=32 + register, lane=13, warp=1) == (row, column + 64)


def test_slice_refuses_to_cut_through_a_digit() -> None:
    with pytest.raises(LayoutError, match="cuts through a digit"):
        Layout.parse(SWIZZLE).slice(0, 0, 8)[0].slice(1, 0, 8)


def test_clip_pads() -> None:
    layout = Layout.parse(WGMMA_64).clip((50, 60))
    assert str(layout).startswith("layout<50x60 in 64x64;")
    assert layout.valid().sum() == 50 * 60


# Elimination


def test_basis_solves_for_the_vectors_used() -> None:
    basis = Basis([0b110, 0b011, 0b101])
    assert basis.rank == 2 == rank([0b110, 0b011, 0b101])
    assert basis.solve(0b101) == 0b011
    assert basis.solve(0b001) is None
    assert basis.largest() == 0b110


def test_blocks_of_a_cluster_hold_parts_and_copies() -> None:
    """Two blocks share the rows of a tile; four hold it in pairs of copies."""
    parts = Layout.parse("layout<8x4; lane 4*(0,1); warp 2*(1,0) 2*(2,0); cta 2*(4,0)>")
    assert parts.places == ("lane", "warp", "cta")
    assert [int(parts(lane=1, warp=3, cta=c)) for c in range(2)] == [13, 29]
    assert parts.is_injective and parts.is_onto
    pairs = parts.replicate("cta", 2)
    assert (pairs.extent("cta"), pairs.replication) == (4, 2)
    assert int(pairs(lane=1, warp=3, cta=3)) == int(parts(lane=1, warp=3, cta=1))
    assert Layout.parse(str(pairs)) == pairs


@pytest.mark.parametrize("place", ["register", "lane", "warp", "cta", "offset"])
@pytest.mark.parametrize("count", [3, 5, 6])
def test_any_input_may_repeat(place: str, count: int) -> None:
    """Extents that are no powers of two, on every input, also where the tile is smaller."""
    repeated = Layout.of((4 * count,), {place: [(4 * count, (1,))]})
    found = [int(repeated(**{place: n})) for n in range(4 * count)]
    assert found == list(range(4 * count))
    clipped = repeated.clip((4 * count - 3,))
    assert [int(clipped(**{place: n})) for n in range(4 * count)] == [
        *range(4 * count - 3), -1, -1, -1
    ]  # fmt: skip
    assert int(clipped.valid().sum()) == 4 * count - 3
