import pytest

from reftile.layout.atoms import memory
from reftile.layout.atoms_memory import padded
from reftile.layout.descriptors import matrix_descriptor, tensor_boxes
from reftile.layout.linear import Layout, LayoutError


def test_k_major_128_byte_swizzle_as_on_hopper() -> None:
    found = matrix_descriptor(memory("swizzle128", (128, 64), 16), 16, k_axis=1, mn=64)
    assert (found.k_major, found.span, found.stride_bytes) == (True, 128, 1024)
    assert found.constant_bits() == (1 << 62) | ((1024 >> 4) << 32) | (1 << 16)
    assert found.starts == ((0, 32, 64, 96), (64 * 128, 8224, 8256, 8288))
    assert found.encode(0x8400, k=1) - found.encode(0x8400, k=0) == 2


def test_next_block_of_k_follows_after_all_rows() -> None:
    found = matrix_descriptor(memory("swizzle128", (256, 128), 16), 16, k_axis=1)
    assert found.starts[0][4] == 256 * 128


@pytest.mark.parametrize("rows", [64, 80, 112, 128, 176, 192])
def test_mn_major_128_byte_swizzle_as_on_hopper(rows: int) -> None:
    """V [sequence, d] as B of P V: n contiguous, transposed by the instruction."""
    found = matrix_descriptor(memory("swizzle128", (rows, 128), 16), 16, k_axis=0)
    assert (found.k_major, found.span) == (False, 128)
    assert (found.leading_bytes, found.stride_bytes) == (rows * 128, 1024)
    assert found.starts[0][1] == 2048
    assert found.encode(0, k=1) - found.encode(0, k=0) == 128


@pytest.mark.parametrize(
    ("name", "k_axis", "leading", "stride"),
    [
        ("swizzle16", 1, 128 * 16, 128),  # k-adjacent, mn-adjacent core matrices
        ("swizzle16", 0, 128, 128 * 16),  # the other way round, by the layout alone
        ("swizzle32", 1, 16, 256),
        ("swizzle64", 1, 16, 512),
        ("swizzle32", 0, 128 * 32, 256),
        ("swizzle64", 0, 128 * 64, 512),
    ],
)
def test_narrower_swizzles(name: str, k_axis: int, leading: int, stride: int) -> None:
    found = matrix_descriptor(memory(name, (128, 128), 16), 16, k_axis)
    assert found.k_major == (k_axis == 1)
    assert (found.leading_bytes, found.stride_bytes) == (leading, stride)


def test_width_96_takes_the_swizzle_that_divides_it() -> None:
    found = matrix_descriptor(memory("swizzle64", (64, 96), 16), 16, k_axis=0)
    assert (found.span, found.leading_bytes) == (64, 64 * 64)


def test_core_matrices_as_other_people_load_them() -> None:
    """64 x 16 of f16 in 8 x 8 core matrices, the two along k adjacent: offsets 128 and 256."""
    layout = Layout.parse("layout<64x16; offset 8*(0,1) 8*(1,0) 2*(0,8) 8*(8,0)>")
    found = matrix_descriptor(layout, 16, k_axis=1)
    assert (found.span, found.leading_bytes, found.stride_bytes) == (16, 128, 256)


def test_eight_bit_operands_keep_k_contiguous() -> None:
    found = matrix_descriptor(memory("swizzle128", (64, 128), 8), 8, k_axis=1)
    assert found.starts == ((0, 32, 64, 96),)
    with pytest.raises(LayoutError, match="8-bit ones must have k contiguous"):
        matrix_descriptor(memory("swizzle128", (64, 128), 8), 8, k_axis=0)


def test_base_offset_says_where_the_pattern_starts() -> None:
    found = matrix_descriptor(memory("swizzle128", (64, 64), 16), 16, k_axis=1)
    assert found.alignment_bytes == 1024
    assert found.encode(0x400) >> 49 & 7 == 0
    assert found.encode(0x480) >> 49 & 7 == 1


def test_tcgen05_differs_in_swizzle_and_version() -> None:
    found = matrix_descriptor(memory("swizzle128", (128, 64), 16), 16, k_axis=1)
    bits = found.encode_tcgen05(0x400)
    assert (bits >> 61, bits >> 46 & 7) == (2, 1)
    assert bits & (1 << 46) - 1 == found.encode(0x400) & (1 << 46) - 1


@pytest.mark.parametrize(
    ("layout", "message"),
    [
        (memory("row_major", (64, 64), 16), r"\(mn, k\) = \(1, 0\) .* lies at byte 128"),
        (padded((64, 64), 72), "of the operand lies at byte"),
        (Layout.parse("layout<64x64; offset 64*(0,1) 4*(1,8) 16*(4,0)>"), "128-byte swizzle"),
        (memory("swizzle128", (4, 64), 16), "does not divide"),
        (Layout.parse("layout<64x64; offset 64*(0,1) 64*(1,0); lane 2*(0,0)>"), "whole bytes"),
    ],
)
def test_refuses_what_no_descriptor_reads(layout: Layout, message: str) -> None:
    with pytest.raises(LayoutError, match=message):
        matrix_descriptor(layout, 16, k_axis=1)


# TMA


@pytest.mark.parametrize(
    ("name", "mode", "width"),
    [("swizzle128", 3, 64), ("swizzle64", 2, 32), ("swizzle32", 1, 16), ("swizzle16", 0, 8)],
)
def test_boxes_are_as_wide_as_the_swizzle(name: str, mode: int, width: int) -> None:
    found = tensor_boxes(memory(name, (128, 128), 16), 16)
    assert (found.axes, found.extents) == ((1, 0), (width, 128))
    assert found.swizzle_mode == mode
    assert found.box_bytes == width * 128 * 2
    assert found.boxes == tuple(((0, c), c * 256) for c in range(0, 128, width))


def test_a_plain_tile_is_one_box() -> None:
    found = tensor_boxes(memory("row_major", (64, 128), 8), 8)
    assert (found.extents, found.span, len(found.boxes)) == ((128, 64), 0, 1)


def test_long_rows_and_tall_tiles_are_cut_at_256() -> None:
    assert tensor_boxes(memory("swizzle128", (384, 64), 16), 16).extents == (64, 192)
    assert tensor_boxes(memory("swizzle16", (512, 8), 16), 16).extents == (8, 256)


def test_transposed_tiles_swap_the_axes_of_the_tensor_map() -> None:
    found = tensor_boxes(memory("swizzle128.t", (128, 64), 16), 16)
    assert (found.axes, found.extents) == ((0, 1), (64, 64))


def test_stages_are_boxes_of_their_own() -> None:
    found = tensor_boxes(memory("swizzle128", (3, 64, 64), 16), 16)
    assert [start for start, _ in found.boxes] == [(0, 0, 0)] or found.extents[2] == 1


@pytest.mark.parametrize(
    ("layout", "message"),
    [
        (Layout.parse("layout<64x64; offset 64*(0,1) 8*(1,1) 8*(8,0)>"), "unlike the first"),
        (padded((64, 60), 64), "a row of a box has 120 bytes"),
        (padded((64, 64), 72), "multiples of 128"),
        (memory("row_major", (64, 4), 16), "8 bytes"),
    ],
)
def test_refuses_what_no_box_fills(layout: Layout, message: str) -> None:
    with pytest.raises(LayoutError, match=message):
        tensor_boxes(layout, 16)
