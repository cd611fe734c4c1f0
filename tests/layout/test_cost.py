import numpy as np
import pytest

from reftile.layout.atoms import cover, fragment, memory, read
from reftile.layout.atoms_memory import blocked, padded
from reftile.layout.cost import (
    bank_conflicts,
    conversion_cost,
    count_conflicts,
    count_sectors,
    global_access,
    matrix_copy,
    shared_access,
)
from reftile.layout.descriptors import byte_offsets
from reftile.layout.linear import Layout, LayoutError

ACCUMULATOR = fragment("wgmma.m64n64.d")


def lanes(*addresses: int) -> np.ndarray:
    return np.array(addresses, np.int64).reshape(1, -1, 1)


# Vector width


def test_width_is_what_lies_together_in_memory() -> None:
    rows = memory("row_major", (64, 64), 16)
    assert shared_access(blocked((64, 64), 8, 4), rows, 16).width_bytes == 16
    assert shared_access(ACCUMULATOR, rows, 16).width_bytes == 4
    assert shared_access(ACCUMULATOR, memory("row_major", (64, 64), 32), 32).width_bytes == 8
    columns = memory("row_major", (64, 64), 16).permute((1, 0))
    assert shared_access(ACCUMULATOR, columns, 16).width_bytes == 2


def test_registers_may_be_in_any_order() -> None:
    swapped = Layout.parse("layout<4x4; register 2*(0,2) 2*(0,1); lane 4*(1,0)>")
    access = shared_access(swapped, memory("row_major", (4, 4), 16), 16)
    assert access.width_bytes == 8
    assert access.groups == ((0, 2, 1, 3),)


def test_registers_beyond_a_repeat_are_grouped_too() -> None:
    tile = read("wgmma.m64n96.d<128x96; register 2x1>")
    access = shared_access(tile, memory("swizzle64", (128, 96), 16), 16)
    assert access.width_bytes == 4
    assert sorted(r for group in access.groups for r in group) == list(range(96))


def test_swizzle_keeps_16_byte_vectors_and_no_more() -> None:
    fragment_of_rows = blocked((64, 64), 64, 2)
    assert shared_access(fragment_of_rows, memory("swizzle128", (64, 64), 16), 16).vector == 8


def test_refuses_a_width_that_is_not_there() -> None:
    with pytest.raises(LayoutError, match="4 are"):
        bank_conflicts(memory("row_major", (64, 64), 16), ACCUMULATOR, 16, width_bytes=16)


def test_alignment_limits_global_vectors() -> None:
    layout = blocked((64, 64), 8, 4)
    assert global_access(layout, 16, (8192, 2)).width_bytes == 16
    assert global_access(layout, 16, (8192, 2), alignment_bytes=4).width_bytes == 4
    assert global_access(layout, 16, (8194, 2)).width_bytes == 2


# Bank conflicts


def test_one_pass_per_word_in_a_bank() -> None:
    assert count_conflicts(lanes(*range(0, 128, 4)), 4).wavefronts == 1
    assert count_conflicts(lanes(*range(0, 256, 8)), 4).wavefronts == 2
    assert count_conflicts(lanes(*range(0, 4096, 128)), 4).wavefronts == 32
    assert count_conflicts(lanes(*[64] * 32), 4).wavefronts == 1
    assert count_conflicts(lanes(*range(0, 64, 2)), 2).wavefronts == 1


def test_wide_accesses_go_by_half_and_quarter_warps() -> None:
    eight = count_conflicts(lanes(*range(0, 256, 8)), 8)
    sixteen = count_conflicts(lanes(*range(0, 512, 16)), 16)
    assert (eight.wavefronts, eight.ideal) == (2, 2)
    assert (sixteen.wavefronts, sixteen.ideal) == (4, 4)
    assert count_conflicts(lanes(*range(0, 4096, 128)), 16).wavefronts == 32


def test_lanes_that_agree_in_pairs_go_together() -> None:
    neighbours = count_conflicts(lanes(*(x // 2 * 8 for x in range(32))), 8)
    assert (neighbours.wavefronts, neighbours.ideal) == (1, 1)
    assert count_conflicts(lanes(*(x // 2 * 16 for x in range(32))), 16).wavefronts == 2
    assert count_conflicts(lanes(*(x % 16 * 8 for x in range(32))), 8).wavefronts == 2
    half = [x // 2 * 8 if x < 16 else x * 8 for x in range(32)]
    assert count_conflicts(lanes(*half), 8).wavefronts == 2


def test_wide_instructions_take_a_pass_per_group() -> None:
    assert count_conflicts(lanes(*range(0, 64, 8), *[-1] * 24), 8).wavefronts == 2
    assert count_conflicts(lanes(*range(0, 1024, 128), *[-1] * 24), 16).wavefronts == 8
    assert count_conflicts(lanes(0, *[-1] * 31), 16).wavefronts == 2


def test_idle_lanes_take_no_pass() -> None:
    found = count_conflicts(lanes(*[-1] * 31, 0), 4)
    assert (found.wavefronts, found.ideal) == (1, 1)
    assert count_conflicts(lanes(*[-1] * 32), 4).wavefronts == 0


@pytest.mark.parametrize("name", ["swizzle128", "swizzle64", "swizzle32", "swizzle16"])
def test_accumulators_meet_no_conflict_in_swizzled_memory(name: str) -> None:
    found = bank_conflicts(memory(name, (64, 64), 16), ACCUMULATOR, 16)
    assert (found.extra, found.worst) == (0, 1)


def test_rows_of_128_bytes_conflict_eightfold() -> None:
    found = bank_conflicts(memory("row_major", (64, 64), 16), ACCUMULATOR, 16)
    assert (found.wavefronts, found.ideal, found.worst) == (512, 64, 8)


def test_padding_of_16_bytes_cures_it() -> None:
    assert bank_conflicts(padded((64, 64), 72), ACCUMULATOR, 16).extra == 0


@pytest.mark.parametrize("name", ["row_major", "swizzle128", "swizzle64", "swizzle32.t"])
@pytest.mark.parametrize("layout", [ACCUMULATOR, blocked((64, 64), 8, 4)])
def test_counting_agrees_with_a_plain_simulation(name: str, layout: Layout) -> None:
    tile = memory(name, (64, 64), 16)
    access = shared_access(layout, tile, 16)
    passes = 0
    offset = byte_offsets(tile, 16)
    for group in access.groups:
        for warp in range(layout.extent("warp")):
            together = 128 // max(4, access.width_bytes)
            for start in range(0, 32, together):
                words: dict[int, set[int]] = {}
                for lane in range(start, start + together):
                    for register in group:
                        at = offset[layout.index(register=register, lane=lane, warp=warp)]
                        words.setdefault(int(at) // 4 % 32, set()).add(int(at) // 4)
                passes += max(map(len, words.values()))
    assert bank_conflicts(tile, layout, 16).wavefronts == passes


# Global memory


def test_blocked_loads_touch_no_sector_twice() -> None:
    found = count_sectors(global_access(blocked((64, 64), 8, 4), 16, (8192, 2)))
    assert found.sectors == found.ideal == 64 * 64 * 2 // 32


def test_accumulators_waste_half_of_each_sector() -> None:
    found = count_sectors(global_access(ACCUMULATOR, 16, (8192, 2)))
    assert found.sectors == 2 * found.ideal


# Conversions


def test_conversions_are_priced_by_distance() -> None:
    operand = cover(fragment("wgmma.m64k16.b16.a"), (64, 64))
    assert conversion_cost(ACCUMULATOR, operand, 16).total == 0
    eight = conversion_cost(ACCUMULATOR, cover(fragment("wgmma.m64k32.b8.a"), (64, 64)), 8)
    assert (eight.conversion.distance, eight.shuffles) == ("lane", 8)
    far = conversion_cost(ACCUMULATOR, blocked((64, 64), 8, 4), 16)
    assert far.conversion.distance == "warp" and far.wavefronts == 128
    assert far.staging is not None and far.total > far.wavefronts


# ldmatrix and stmatrix


def test_accumulator_stores_as_four_matrices_into_128_byte_swizzle() -> None:
    """stmatrix.x4 of 16 x 16: lane l gives row l % 16, chunk l / 16, exchanged by row % 8."""
    tile = memory("swizzle128", (64, 64), 16)
    found = matrix_copy(ACCUMULATOR, tile, 16)
    assert (found.transposed, found.count) == (False, 4)
    assert found.groups[0] == tuple(range(8))
    for lane in range(32):
        row, chunk = lane % 16, lane // 16
        assert found.addresses[0, lane, 1] == (16 + row) * 128 + (chunk ^ row % 8) * 16
    assert found.conflicts().extra == 0


def test_plain_rows_work_but_conflict() -> None:
    found = matrix_copy(ACCUMULATOR, memory("row_major", (64, 64), 16), 16)
    assert found.conflicts().wavefronts == 8 * found.conflicts().ideal


def test_transposed_memory_needs_trans() -> None:
    tile = memory("swizzle128.t", (64, 64), 16)
    found = matrix_copy(ACCUMULATOR, tile, 16)
    assert found.transposed and found.conflicts().extra == 0
    # Matrix 0 is rows 0..7, columns 0..7; its row r in memory is column r of the tile.
    offset = byte_offsets(tile, 16)
    assert [int(a) for a in found.addresses[0, :8, 0]] == [int(offset[0, c]) for c in range(8)]


def test_multiplicand_b_loads_by_trans_from_k_rows() -> None:
    layout = cover(fragment("mma.m16n8k16.b16.b"), (16, 16))
    assert matrix_copy(layout, memory("swizzle32", (16, 16), 16), 16).transposed
    assert not matrix_copy(layout, memory("swizzle32.t", (16, 16), 16), 16).transposed


def test_eight_bit_fragments_move_as_pairs() -> None:
    layout = cover(fragment("wgmma.m64k32.b8.a"), (64, 128))
    found = matrix_copy(layout, memory("swizzle128", (64, 128), 8), 8)
    assert found.count == 4 and found.conflicts().extra == 0


def test_refuses_fragments_without_matrices() -> None:
    with pytest.raises(LayoutError, match="no 8x8 matrices"):
        matrix_copy(blocked((64, 64), 8, 4), memory("swizzle128", (64, 64), 16), 16)
