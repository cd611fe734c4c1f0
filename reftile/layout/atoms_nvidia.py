"""Which element each register of each lane holds: NVIDIA's matrix fragments.

One row is one fragment: name, width of an element in bits, layout, source. Registers count
elements, packed into 32-bit registers low bits first. Multiplicands are written [m, k] and [k, n],
accumulators [m, n]. Formats of one width share a row: `b16` is f16 and bf16, `b8` fp8 and int8,
`b32` tf32.

Every row is tested element by element against the formula in its source.
"""

from __future__ import annotations

from typing import NamedTuple


class Row(NamedTuple):
    """One fragment of the tables."""

    name: str
    bits: int
    layout: str
    source: str


PTX_MMA = "PTX ISA 9.2, Matrix Fragments for mma."
PTX_WGMMA = "PTX ISA 9.2, Asynchronous wgmma: Register Fragments for "
PTX_LDMATRIX = "PTX ISA 9.2, ldmatrix (stmatrix distributes alike)"

_QUAD_ROWS = "lane 4*(0,2) 8*(1,0)"

MMA_ROWS = (
    # Accumulators: all formats of m16n8 alike, m8n8 has one row of eight.
    Row("mma.m16n8.d", 32, f"16x8; register 2*(0,1) 2*(8,0); {_QUAD_ROWS}", PTX_MMA + "m16n8k16"),
    Row("mma.m8n8.d", 64, f"8x8; register 2*(0,1); {_QUAD_ROWS}", PTX_MMA + "m8n8k4 with .f64"),
    # 16-bit multiplicands
    Row(
        "mma.m16n8k16.b16.a",
        16,
        f"16x16; register 2*(0,1) 2*(8,0) 2*(0,8); {_QUAD_ROWS}",
        PTX_MMA + "m16n8k16 with floating point type",
    ),
    Row(
        "mma.m16n8k16.b16.b",
        16,
        "16x8; register 2*(1,0) 2*(8,0); lane 4*(2,0) 8*(0,1)",
        PTX_MMA + "m16n8k16 with floating point type",
    ),
    Row(
        "mma.m16n8k8.b16.a",
        16,
        f"16x8; register 2*(0,1) 2*(8,0); {_QUAD_ROWS}",
        PTX_MMA + "m16n8k8",
    ),
    Row(
        "mma.m16n8k8.b16.b", 16, "8x8; register 2*(1,0); lane 4*(2,0) 8*(0,1)", PTX_MMA + "m16n8k8"
    ),
    # tf32 multiplicands
    Row(
        "mma.m16n8k8.b32.a",
        32,
        "16x8; register 2*(8,0) 2*(0,4); lane 4*(0,1) 8*(1,0)",
        PTX_MMA + "m16n8k8",
    ),
    Row(
        "mma.m16n8k8.b32.b", 32, "8x8; register 2*(4,0); lane 4*(1,0) 8*(0,1)", PTX_MMA + "m16n8k8"
    ),
    Row(
        "mma.m16n8k4.b32.a",
        32,
        "16x4; register 2*(8,0); lane 4*(0,1) 8*(1,0)",
        PTX_MMA + "m16n8k4",
    ),
    Row("mma.m16n8k4.b32.b", 32, "4x8; lane 4*(1,0) 8*(0,1)", PTX_MMA + "m16n8k4"),
    # 8-bit multiplicands
    Row(
        "mma.m16n8k32.b8.a",
        8,
        "16x32; register 4*(0,1) 2*(8,0) 2*(0,16); lane 4*(0,4) 8*(1,0)",
        PTX_MMA + "m16n8k32",
    ),
    Row(
        "mma.m16n8k32.b8.b",
        8,
        "32x8; register 4*(1,0) 2*(16,0); lane 4*(4,0) 8*(0,1)",
        PTX_MMA + "m16n8k32",
    ),
    Row(
        "mma.m16n8k16.b8.a",
        8,
        "16x16; register 4*(0,1) 2*(8,0); lane 4*(0,4) 8*(1,0)",
        PTX_MMA + "m16n8k16 with integer type",
    ),
    Row(
        "mma.m16n8k16.b8.b",
        8,
        "16x8; register 4*(1,0); lane 4*(4,0) 8*(0,1)",
        PTX_MMA + "m16n8k16 with integer type",
    ),
    # 4-bit multiplicands
    Row(
        "mma.m16n8k64.b4.a",
        4,
        "16x64; register 8*(0,1) 2*(8,0) 2*(0,32); lane 4*(0,8) 8*(1,0)",
        PTX_MMA + "m16n8k64",
    ),
    Row(
        "mma.m16n8k64.b4.b",
        4,
        "64x8; register 8*(1,0) 2*(32,0); lane 4*(8,0) 8*(0,1)",
        PTX_MMA + "m16n8k64",
    ),
    # f64 multiplicands
    Row("mma.m8n8k4.b64.a", 64, "8x4; lane 4*(0,1) 8*(1,0)", PTX_MMA + "m8n8k4 with .f64"),
    Row("mma.m8n8k4.b64.b", 64, "4x8; lane 4*(1,0) 8*(0,1)", PTX_MMA + "m8n8k4 with .f64"),
    Row(
        "mma.m16n8k4.b64.a",
        64,
        "16x4; register 2*(8,0); lane 4*(0,1) 8*(1,0)",
        PTX_MMA + "m16n8k4",
    ),
    Row("mma.m16n8k4.b64.b", 64, "4x8; lane 4*(1,0) 8*(0,1)", PTX_MMA + "m16n8k4"),
    Row(
        "mma.m16n8k8.b64.a",
        64,
        "16x8; register 2*(8,0) 2*(0,4); lane 4*(0,1) 8*(1,0)",
        PTX_MMA + "m16n8k8",
    ),
    Row(
        "mma.m16n8k8.b64.b", 64, "8x8; register 2*(4,0); lane 4*(1,0) 8*(0,1)", PTX_MMA + "m16n8k8"
    ),
    Row(
        "mma.m16n8k16.b64.a",
        64,
        "16x16; register 2*(8,0) 4*(0,4); lane 4*(0,1) 8*(1,0)",
        PTX_MMA + "m16n8k16 with floating point type",
    ),
    Row(
        "mma.m16n8k16.b64.b",
        64,
        "16x8; register 4*(4,0); lane 4*(1,0) 8*(0,1)",
        PTX_MMA + "m16n8k16 with floating point type",
    ),
)

WGMMA_WIDTHS = tuple(range(8, 257, 8))
"""The n that wgmma.m64nNk* accepts for floating point; integers take fewer."""

WGMMA_ROWS = (
    Row(
        "wgmma.m64k16.b16.a",
        16,
        f"64x16; register 2*(0,1) 2*(8,0) 2*(0,8); {_QUAD_ROWS}; warp 4*(16,0)",
        PTX_WGMMA + "wgmma.mma_async.m64nNk16",
    ),
    Row(
        "wgmma.m64k32.b8.a",
        8,
        "64x32; register 4*(0,1) 2*(8,0) 2*(0,16); lane 4*(0,4) 8*(1,0); warp 4*(16,0)",
        PTX_WGMMA + "wgmma.mma_async.m64nNk32",
    ),
    Row(
        "wgmma.m64k8.b32.a",
        32,
        "64x8; register 2*(8,0) 2*(0,4); lane 4*(0,1) 8*(1,0); warp 4*(16,0)",
        PTX_WGMMA + "wgmma.mma_async.m64nNk8",
    ),
    # The accumulator is one row per width; f16 packs two columns per register, f32 and s32 do not.
    *(
        Row(
            f"wgmma.m64n{n}.d",
            32,
            f"64x{n}; register 2*(0,1) 2*(8,0) {n // 8}*(0,8); {_QUAD_ROWS}; warp 4*(16,0)",
            PTX_WGMMA + "wgmma.mma_async.m64nNk16, accumulator D",
        )
        for n in WGMMA_WIDTHS
    ),
)

LDMATRIX_ROWS = (
    # [matrix, row, column] of 8x8 matrices of b16; `.trans` gives lanes the columns instead.
    *(
        Row(
            f"ldmatrix.x{count}",
            16,
            f"{count}x8x8; register 2*(0,0,1) {count}*(1,0,0); lane 4*(0,0,2) 8*(0,1,0)",
            PTX_LDMATRIX,
        )
        for count in (1, 2, 4)
    ),
    *(
        Row(
            f"ldmatrix.x{count}.trans",
            16,
            f"{count}x8x8; register 2*(0,1,0) {count}*(1,0,0); lane 4*(0,2,0) 8*(0,0,1)",
            PTX_LDMATRIX,
        )
        for count in (1, 2, 4)
    ),
    # [matrix, row] whose address a lane supplies; further lanes' addresses are ignored, so that
    # copies of the first ones are as good as any.
    *(
        Row(
            f"ldmatrix.x{count}.address",
            16,
            f"{count}x8; lane 8*(0,1) {count}*(1,0) {4 // count}*(0,0)",
            PTX_LDMATRIX,
        )
        for count in (1, 2, 4)
    ),
)
