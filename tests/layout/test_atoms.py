"""Every fragment against its vendor's formula, written out here from the vendor's document."""

from collections.abc import Callable
from itertools import product

import pytest

from reftile.layout.atoms import FRAGMENTS, cover, fragment, memory, read, show, tiled
from reftile.layout.atoms_memory import blocked, padded, swizzled
from reftile.layout.linear import Layout, LayoutError

Formula = Callable[[int, int, int], tuple[int, ...]]
"""(register, lane, warp) -> index"""


# PTX ISA: groupID = laneid >> 2, threadID_in_group = laneid % 4


def ptx(row: Callable[[int, int, int], int], column: Callable[[int, int, int], int]) -> Formula:
    """Formulas of (i, group, thread), as the PTX ISA writes them; warps hold 16 rows each."""
    return lambda i, lane, warp: (
        16 * warp + row(i, lane >> 2, lane % 4),
        column(i, lane >> 2, lane % 4),
    )


PTX: dict[str, Formula] = {
    "mma.m16n8.d": ptx(lambda i, g, t: g if i < 2 else g + 8, lambda i, g, t: t * 2 + (i & 1)),
    "mma.m8n8.d": ptx(lambda i, g, t: g, lambda i, g, t: t * 2 + (i & 1)),
    "mma.m16n8k16.b16.a": ptx(
        lambda i, g, t: g if i < 2 or 4 <= i < 6 else g + 8,
        lambda i, g, t: t * 2 + (i & 1) + (8 if i >= 4 else 0),
    ),
    "mma.m16n8k16.b16.b": ptx(
        lambda i, g, t: t * 2 + (i & 1) + (8 if i >= 2 else 0), lambda i, g, t: g
    ),
    "mma.m16n8k8.b16.a": ptx(
        lambda i, g, t: g if i < 2 else g + 8, lambda i, g, t: t * 2 + (i & 1)
    ),
    "mma.m16n8k8.b16.b": ptx(lambda i, g, t: t * 2 + i, lambda i, g, t: g),
    "mma.m16n8k8.b32.a": ptx(
        lambda i, g, t: g if i in (0, 2) else g + 8, lambda i, g, t: t if i < 2 else t + 4
    ),
    "mma.m16n8k8.b32.b": ptx(lambda i, g, t: t if i == 0 else t + 4, lambda i, g, t: g),
    "mma.m16n8k4.b32.a": ptx(lambda i, g, t: g if i == 0 else g + 8, lambda i, g, t: t),
    "mma.m16n8k4.b32.b": ptx(lambda i, g, t: t, lambda i, g, t: g),
    "mma.m16n8k32.b8.a": ptx(
        lambda i, g, t: g if i < 4 or 8 <= i < 12 else g + 8,
        lambda i, g, t: t * 4 + (i & 3) + (16 if i >= 8 else 0),
    ),
    "mma.m16n8k32.b8.b": ptx(
        lambda i, g, t: t * 4 + (i & 3) + (16 if i >= 4 else 0), lambda i, g, t: g
    ),
    "mma.m16n8k16.b8.a": ptx(
        lambda i, g, t: g if i < 4 else g + 8, lambda i, g, t: t * 4 + (i & 3)
    ),
    "mma.m16n8k16.b8.b": ptx(lambda i, g, t: t * 4 + i, lambda i, g, t: g),
    "mma.m16n8k64.b4.a": ptx(
        lambda i, g, t: g if i < 8 or 16 <= i < 24 else g + 8,
        lambda i, g, t: t * 8 + (i & 7) + (32 if i >= 16 else 0),
    ),
    "mma.m16n8k64.b4.b": ptx(
        lambda i, g, t: t * 8 + (i & 7) + (32 if i >= 8 else 0), lambda i, g, t: g
    ),
    "mma.m8n8k4.b64.a": ptx(lambda i, g, t: g, lambda i, g, t: t),
    "mma.m8n8k4.b64.b": ptx(lambda i, g, t: t, lambda i, g, t: g),
    "mma.m16n8k4.b64.a": ptx(lambda i, g, t: g if i == 0 else g + 8, lambda i, g, t: t),
    "mma.m16n8k4.b64.b": ptx(lambda i, g, t: t, lambda i, g, t: g),
    "mma.m16n8k8.b64.a": ptx(
        lambda i, g, t: g if i in (0, 2) else g + 8, lambda i, g, t: t if i < 2 else t + 4
    ),
    "mma.m16n8k8.b64.b": ptx(lambda i, g, t: t if i == 0 else t + 4, lambda i, g, t: g),
    "mma.m16n8k16.b64.a": ptx(
        lambda i, g, t: g if i % 2 == 0 else g + 8,
        lambda i, g, t: i * 2 + t if i % 2 == 0 else i * 2 - 2 + t,
    ),
    "mma.m16n8k16.b64.b": ptx(lambda i, g, t: t + i * 4, lambda i, g, t: g),
    "wgmma.m64k16.b16.a": ptx(
        lambda i, g, t: g + (0 if i in (0, 1, 4, 5) else 8),
        lambda i, g, t: 2 * t + i % 2 + (0 if i < 4 else 8),
    ),
    "wgmma.m64k32.b8.a": ptx(
        lambda i, g, t: g + (0 if i // 4 in (0, 2) else 8),
        lambda i, g, t: 4 * t + i % 4 + (0 if i < 8 else 16),
    ),
    "wgmma.m64k8.b32.a": ptx(
        lambda i, g, t: g + (0 if i in (0, 2) else 8), lambda i, g, t: t + (0 if i < 2 else 4)
    ),
    **{
        f"wgmma.m64n{n}.d": ptx(
            lambda i, g, t: g + 8 * (i // 2 % 2), lambda i, g, t: 8 * (i // 4) + 2 * t + i % 2
        )
        for n in range(8, 257, 8)
    },
}


def ldmatrix(transposed: bool) -> Formula:
    """Register i // 2 holds matrix i // 2: two elements of row lane // 4, or of that column."""

    def formula(i: int, lane: int, warp: int) -> tuple[int, ...]:
        row, column = lane // 4, 2 * (lane % 4) + i % 2
        return (i // 2, column, row) if transposed else (i // 2, row, column)

    return formula


LDMATRIX = {
    **{f"ldmatrix.x{n}": ldmatrix(False) for n in (1, 2, 4)},
    **{f"ldmatrix.x{n}.trans": ldmatrix(True) for n in (1, 2, 4)},
}


# AMD's calculator: MFMA (64 lanes, G = 64 / m groups), WMMA of RDNA3 and RDNA4 (32 lanes)


def mfma(m: int, k: int, operand: str) -> Formula:
    per_lane = k * m // 64

    def formula(e: int, lane: int, warp: int) -> tuple[int, ...]:
        outer, inner = lane % m, per_lane * (lane // m) + e
        return (outer, inner) if operand == "a" else (inner, outer)

    return formula


def wmma_rdna4(bits: int, k: int, operand: str) -> Formula:
    per_lane = k // 2
    c = min(64 // bits, per_lane)

    def formula(e: int, lane: int, warp: int) -> tuple[int, ...]:
        outer, inner = lane % 16, 2 * c * (e // c) + c * (lane // 16) + e % c
        return (outer, inner) if operand == "a" else (inner, outer)

    return formula


AMD: dict[str, Formula] = {
    **{
        f"mfma.{m}x{m}x{k}.b{bits}.{operand}": mfma(m, k, operand)
        for bits, m, k in (
            *((16, 32, 8), (16, 16, 16), (8, 32, 16), (8, 16, 32)),
            *((32, 32, 4), (32, 16, 8), (32, 32, 2), (32, 16, 4), (64, 16, 4)),
        )
        for operand in "ab"
    },
    "mfma.16x16.d": lambda v, lane, warp: (4 * (lane // 16) + v, lane % 16),
    "mfma.32x32.d": lambda v, lane, warp: (8 * (v // 4) + 4 * (lane // 32) + v % 4, lane % 32),
    "mfma.16x16.b64.d": lambda v, lane, warp: (4 * v + lane // 16, lane % 16),
    **{f"wmma_rdna3.16x16x16.b{b}.a": lambda e, lane, warp: (lane % 16, e) for b in (16, 8, 4)},
    **{f"wmma_rdna3.16x16x16.b{b}.b": lambda e, lane, warp: (e, lane % 16) for b in (16, 8, 4)},
    "wmma_rdna3.16x16.d": lambda v, lane, warp: (2 * v + lane // 16, lane % 16),
    **{
        f"wmma_rdna4.16x16x{k}.b{bits}.{operand}": wmma_rdna4(bits, k, operand)
        for bits, k in ((16, 16), (8, 16), (4, 16), (4, 32))
        for operand in "ab"
    },
    "wmma_rdna4.16x16.d": lambda v, lane, warp: (8 * (lane // 16) + v, lane % 16),
}

FORMULAS = PTX | LDMATRIX | AMD
ADDRESSES = {f"ldmatrix.x{n}.address" for n in (1, 2, 4)}


def test_every_fragment_has_a_formula_here() -> None:
    assert set(FRAGMENTS) == set(FORMULAS) | ADDRESSES


@pytest.mark.parametrize("name", FORMULAS)
def test_fragment_matches_the_formula(name: str) -> None:
    layout = fragment(name)
    lanes = 64 if name.startswith("mfma") else 32
    warps = 4 if name.startswith("wgmma") else 1
    assert layout.extent("lane") == lanes and layout.extent("warp") == warps
    seen = set[tuple[int, ...]]()
    for i, lane, warp in product(range(layout.extent("register")), range(lanes), range(warps)):
        index = FORMULAS[name](i, lane, warp)
        assert layout.index(register=i, lane=lane, warp=warp) == index
        seen.add(index)
    assert len(seen) * layout.replication == layout.map.size
    assert layout.is_onto


@pytest.mark.parametrize("count", [1, 2, 4])
def test_ldmatrix_takes_row_addresses_from_the_first_lanes(count: int) -> None:
    layout = fragment(f"ldmatrix.x{count}.address")
    for lane in range(8 * count):
        assert layout.index(lane=lane) == (lane // 8, lane % 8)


def test_every_fragment_names_its_source() -> None:
    assert all(row.source and row.bits in (4, 8, 16, 32, 64) for row in FRAGMENTS.values())


# Memory forms, on addresses


@pytest.mark.parametrize("span", [16, 32, 64, 128])
@pytest.mark.parametrize("bits", [8, 16, 32, 64])
def test_swizzle_flips_address_bits(span: int, bits: int) -> None:
    width, size = span * 8 // bits, bits // 8
    layout = swizzled((24, 3 * width), bits, span)
    offset_of = layout.map.invert()
    for row, column in product(range(24), range(3 * width)):
        box, within = divmod(column, width)
        address = box * 24 * span + row * span + within * size
        address ^= (address >> 7 & (span // 16 - 1)) << 4
        assert offset_of(d0=row, d1=column) == (address // size,)


def test_four_bit_elements_count_bytes_and_nibbles() -> None:
    layout = swizzled((8, 512), 4, 128)
    assert layout.index(offset=1, bit=1) == (0, 3)
    assert layout.index(offset=128 + 16, bit=0) == (1, 0)
    assert memory("row_major", (4, 6), 4).index(offset=4, bit=1) == (1, 3)


@pytest.mark.parametrize(
    ("shape", "bits", "span", "message"),
    [
        ((64, 48), 16, 128, "not a multiple of 128 bytes"),
        ((12, 64), 16, 128, "cut the swizzle's pattern"),
        ((64, 64), 16, 256, "spans 16, 32, 64 or 128"),
        ((64,), 16, 128, "two dimensions"),
    ],
)
def test_swizzle_refuses(shape: tuple[int, ...], bits: int, span: int, message: str) -> None:
    with pytest.raises(LayoutError, match=message):
        swizzled(shape, bits, span)


def test_stages_of_a_ring_follow_outside() -> None:
    ring = memory("swizzle128", (3, 64, 128), 16)
    stage, begin = ring.slice(0, 2, 1)
    assert begin == {"offset": 2 * 64 * 128}
    assert stage.reshape((64, 128)) == memory("swizzle128", (64, 128), 16)


def test_padded_rows_have_gaps() -> None:
    layout = padded((4, 6), 8)
    assert layout(offset=8) == 6 and layout(offset=7) == -1


def test_blocked_gives_lanes_whole_vectors_of_a_row() -> None:
    assert str(blocked((64, 64), 8, 4)) == (
        "layout<64x64; register 8*(0,1) 4*(16,0); lane 8*(0,8) 4*(1,0); warp 4*(4,0)>"
    )


@pytest.mark.parametrize("shape", [(64, 96), (8, 8), (128, 176), (3, 5), (64,), (2, 32, 48)])
@pytest.mark.parametrize("warps", [1, 4, 12])
def test_blocked_covers_any_shape(shape: tuple[int, ...], warps: int) -> None:
    layout = blocked(shape, 4, warps)
    assert layout.is_onto
    assert (layout.extent("lane"), layout.extent("warp")) == (32, warps)


# Tiles of atoms, text


def test_cover_fills_with_warps_then_registers() -> None:
    layout = cover(fragment("wgmma.m64n96.d"), (192, 192), warps=(3, 1))
    assert layout.shape == (192, 192)
    assert (layout.extent("warp"), layout.extent("register")) == (12, 96)
    with pytest.raises(LayoutError, match="not a multiple"):
        cover(fragment("wgmma.m64n96.d"), (64, 100))


@pytest.mark.parametrize(
    "text",
    [
        "wgmma.m64n256.d<64x256>",
        "wgmma.m64n96.d<192x192; register 1x2; warp 3x1>",
        "mma.m16n8.d<64x32; register 2x2; warp 2x2>",
        "swizzle128<64x64xb16>",
        "swizzle64.t<128x96xb8>",
        "swizzle16<2x64x64xb16>",
        "row_major<64x64xb16>",
        "layout<8; lane 4*(2); warp 2*(1)>",
    ],
)
def test_named_text_reads_back(text: str) -> None:
    layout = read(text)
    assert read(show(layout)) == layout
    assert Layout.parse(str(layout)) == layout


def test_names_are_chosen_for_layouts() -> None:
    assert show(read("wgmma.m64n256.d")) == "wgmma.m64n256.d<64x256>"
    assert show(read("swizzle128<64x64xbf16>"), "bf16") == "swizzle128<64x64xbf16>"
    assert show(read("swizzle128<64x64xbf16>")) == "swizzle128<64x64xb16>"
    assert show(tiled(fragment("wgmma.m64n96.d"), "warp", (3, 1))) == (
        "wgmma.m64n96.d<192x96; warp 3x1>"
    )
    assert show(Layout.parse("layout<8; lane 4*(2); warp 2*(1)>")).startswith("layout<8;")


def test_context_supplies_shape_and_type() -> None:
    assert read("swizzle128", (64, 64), 16) == read("swizzle128<64x64xf16>")
    with pytest.raises(LayoutError, match="needs a shape"):
        read("swizzle128")


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("swizzle99<64x64xf16>", "no memory form"),
        ("swizzle128<64x64xq16>", "no element type"),
        ("wgmma.m64n96.d<64x96; lanes 2x1>", "expected a place"),
        ("wgmma.m64n96.d<64x96", "expected `>`"),
    ],
)
def test_named_text_errors_name_the_part(text: str, message: str) -> None:
    with pytest.raises(LayoutError, match=message):
        read(text)
