"""Which element each register of each lane holds: AMD's matrix fragments.

Rows as in `atoms_nvidia`. A wave counts as a warp: 64 lanes on CDNA, 32 on RDNA. The formulas are
those that AMD's matrix instruction calculator prints (ROCm/amd_matrix_instruction_calculator,
commit 2ef9189), for single-block dense instructions.

MFMA with m = n = 16 or 32 spreads k over 64 / m groups of lanes, each holding k * m / 64
consecutive elements. RDNA3 gives both halves of a wave the same multiplicand; RDNA4 splits k
between them in chunks of 64 bits.
"""

from __future__ import annotations

from reftile.layout.atoms_nvidia import Row

CALCULATOR = "AMD matrix instruction calculator, "
CDNA3_SHAPES = (
    # bits, m = n, k
    (16, 32, 8),
    (16, 16, 16),
    (8, 32, 16),
    (8, 16, 32),
    (32, 32, 4),  # xf32
    (32, 16, 8),  # xf32
    (32, 32, 2),
    (32, 16, 4),
    (64, 16, 4),
)


def _mfma_operands(bits: int, m: int, k: int) -> tuple[Row, Row]:
    groups = 64 // m
    each = k // groups
    name, source = f"mfma.{m}x{m}x{k}.b{bits}", CALCULATOR + "CDNA3"
    return (
        Row(
            f"{name}.a",
            bits,
            f"{m}x{k}; register {each}*(0,1); lane {m}*(1,0) {groups}*(0,{each})",
            source,
        ),
        Row(
            f"{name}.b",
            bits,
            f"{k}x{m}; register {each}*(1,0); lane {m}*(0,1) {groups}*({each},0)",
            source,
        ),
    )


CDNA3_ROWS = (
    *(row for shape in CDNA3_SHAPES for row in _mfma_operands(*shape)),
    Row(
        "mfma.16x16.d",
        32,
        "16x16; register 4*(1,0); lane 16*(0,1) 4*(4,0)",
        CALCULATOR + "CDNA3",
    ),
    Row(
        "mfma.32x32.d",
        32,
        "32x32; register 4*(1,0) 4*(8,0); lane 32*(0,1) 2*(4,0)",
        CALCULATOR + "CDNA3",
    ),
    Row(
        "mfma.16x16.b64.d",
        64,
        "16x16; register 4*(4,0); lane 16*(0,1) 4*(1,0)",
        CALCULATOR + "CDNA3, v_mfma_f64_16x16x4_f64",
    ),
)

RDNA3_ROWS = (
    *(
        row
        for bits in (16, 8, 4)
        for row in (
            Row(
                f"wmma_rdna3.16x16x16.b{bits}.a",
                bits,
                "16x16; register 16*(0,1); lane 16*(1,0) 2*(0,0)",
                CALCULATOR + "RDNA3",
            ),
            Row(
                f"wmma_rdna3.16x16x16.b{bits}.b",
                bits,
                "16x16; register 16*(1,0); lane 16*(0,1) 2*(0,0)",
                CALCULATOR + "RDNA3",
            ),
        )
    ),
    # A 16-bit accumulator fills one half of each register, chosen by op_sel: not packed.
    Row(
        "wmma_rdna3.16x16.d",
        32,
        "16x16; register 8*(2,0); lane 16*(0,1) 2*(1,0)",
        CALCULATOR + "RDNA3",
    ),
)


def _wmma_rdna4_operands(bits: int, k: int) -> tuple[Row, Row]:
    each = k // 2
    chunk = min(64 // bits, each)
    name, source = f"wmma_rdna4.16x16x{k}.b{bits}", CALCULATOR + "RDNA4"
    registers_a = f"register {chunk}*(0,1) {each // chunk}*(0,{2 * chunk})"
    registers_b = f"register {chunk}*(1,0) {each // chunk}*({2 * chunk},0)"
    return (
        Row(f"{name}.a", bits, f"16x{k}; {registers_a}; lane 16*(1,0) 2*(0,{chunk})", source),
        Row(f"{name}.b", bits, f"{k}x16; {registers_b}; lane 16*(0,1) 2*({chunk},0)", source),
    )


RDNA4_ROWS = (
    *(
        row
        for shape in ((16, 16), (8, 16), (4, 16), (4, 32))
        for row in _wmma_rdna4_operands(*shape)
    ),
    # A 16-bit accumulator is packed, two rows to a register.
    Row(
        "wmma_rdna4.16x16.d",
        32,
        "16x16; register 8*(1,0); lane 16*(0,1) 2*(8,0)",
        CALCULATOR + "RDNA4",
    ),
)
