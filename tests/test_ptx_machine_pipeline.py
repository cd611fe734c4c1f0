"""A warp-specialised product kernel, and every small mistake in it that must be caught.

One CTA computes C[64, 64] = A[64, K] @ B[64, K]^T in bf16: warpgroup 0 loads a ring of two stages
by tensor copies, warpgroup 1 multiplies, writes C through stmatrix and stores it by a tensor copy.
"""

import ml_dtypes
import numpy as np
import pytest

from tests.ptx_machine import PtxError, TensorMap
from tests.ptx_machine.harness import HEAD, execute

BF16 = ml_dtypes.bfloat16
STAGES, TILE = 2, 64 * 128
A, B, C, FULL = 0, STAGES * TILE, 2 * STAGES * TILE, 2 * STAGES * TILE + TILE
EMPTY, SIZE = FULL + 8 * STAGES, FULL + 16 * STAGES
HIGH = 1 << 62 | (1024 >> 4) << 32 | 1 << 16
ACC = [f"acc{i}" for i in range(32)]
LOAD = (
    "cp.async.bulk.tensor.2d.shared::cluster.global.mbarrier::complete_tx::bytes "
    "[{to}], [{map}, {{r10, r0}}], [r12];"
)


def step(index: int) -> str:
    """One k16 product; each advances both descriptors by 32 bytes."""
    return (
        f"add.u64 d6, d4, {2 * index}; add.u64 d7, d5, {2 * index};\n"
        f"wgmma.mma_async.sync.aligned.m64n64k16.f32.bf16.bf16 {{{', '.join(ACC)}}}, "
        f"d6, d7, {'p5' if index == 0 else '1'}, 1, 1, 0, 0;\n"
    )


def store_block(block: int) -> str:
    """16 columns of the accumulator, converted and written with the 128-byte swizzle."""
    pairs = "".join(
        f"cvt.rn.bf16x2.f32 r{20 + j}, {ACC[8 * block + 2 * j + 1]}, {ACC[8 * block + 2 * j]};\n"
        for j in range(4)
    )
    return (
        f"{pairs}add.u32 r24, r18, {2 * block}; xor.b32 r24, r24, r17; shl.b32 r24, r24, 4;\n"
        "add.u32 r24, r24, r16;\n"
        "stmatrix.sync.aligned.m8n8.x4.shared.b16 [r24], {r20, r21, r22, r23};\n"
    )


KERNEL = f"""{HEAD}
.visible .entry k(.param .align 64 .b8 map_a[128], .param .align 64 .b8 map_b[128],
                  .param .align 64 .b8 map_c[128], .param .u32 depth)
.reqntid 256,1,1 .maxnreg 168
{{
.reg .pred p<8>; .reg .b32 r<32>; .reg .b64 d<12>; .reg .f32 {", ".join(ACC)};
mov.u32 r1, smem; mov.u32 r2, %tid.x; ld.param.u32 r3, [depth]; mov.u32 r0, 0;
mov.b64 d0, map_a; cvta.param.u64 d0, d0; mov.b64 d1, map_b; cvta.param.u64 d1, d1;
mov.b64 d2, map_c; cvta.param.u64 d2, d2;
setp.ne.u32 p0, r2, 0;
@p0 bra READY;
mbarrier.init.shared::cta.b64 [r1+{FULL}], 1; mbarrier.init.shared::cta.b64 [r1+{FULL + 8}], 1;
mbarrier.init.shared::cta.b64 [r1+{EMPTY}], 1; mbarrier.init.shared::cta.b64 [r1+{EMPTY + 8}], 1;
fence.mbarrier_init.release.cluster;
READY: bar.sync 0;
shr.u32 r4, r2, 7; shfl.sync.idx.b32 r4, r4, 0, 31, -1; and.b32 r5, r2, 127;
mov.u32 r8, 0; mov.u32 r9, 0; mov.u32 r10, 0;
setp.ne.u32 p1, r4, 0;
@p1 bra CONSUMER;
setmaxnreg.dec.sync.aligned.u32 40;
setp.ge.u32 p1, r5, 32;
@p1 bra END;
elect.sync r6|p2, -1;
@!p2 bra END;
mov.u32 r9, 1;
PRODUCE: shl.b32 r11, r8, 3; add.u32 r11, r11, r1; add.u32 r12, r11, {FULL};
WAIT_EMPTY: mbarrier.try_wait.parity.shared::cta.b64 p3, [r11+{EMPTY}], r9;
@!p3 bra WAIT_EMPTY;
mbarrier.arrive.expect_tx.shared::cta.b64 _, [r12], {2 * TILE};
mad.lo.u32 r13, r8, {TILE}, r1; add.u32 r14, r13, {B};
{LOAD.format(to="r13", map="d0")}
{LOAD.format(to="r14", map="d1")}
add.u32 r8, r8, 1; setp.eq.u32 p4, r8, {STAGES};
@p4 mov.u32 r8, 0;
@p4 xor.b32 r9, r9, 1;
add.u32 r10, r10, 64; setp.lt.u32 p4, r10, r3;
@p4 bra PRODUCE;
bra END;
CONSUMER: setmaxnreg.inc.sync.aligned.u32 232;
setp.eq.u32 p6, r5, 0;
CONSUME: shl.b32 r11, r8, 3; add.u32 r11, r11, r1;
WAIT_FULL: mbarrier.try_wait.parity.shared::cta.b64 p3, [r11+{FULL}], r9;
@!p3 bra WAIT_FULL;
mad.lo.u32 r13, r8, {TILE}, r1; add.u32 r14, r13, {B};
and.b32 r13, r13, 0x3FFFF; shr.u32 r13, r13, 4; cvt.u64.u32 d4, r13; or.b64 d4, d4, {HIGH};
and.b32 r14, r14, 0x3FFFF; shr.u32 r14, r14, 4; cvt.u64.u32 d5, r14; or.b64 d5, d5, {HIGH};
setp.ne.u32 p5, r10, 0;
wgmma.fence.sync.aligned;
{"".join(step(i) for i in range(4))}
wgmma.commit_group.sync.aligned;
wgmma.wait_group.sync.aligned 0;
@p6 mbarrier.arrive.shared::cta.b64 _, [r11+{EMPTY}];
add.u32 r8, r8, 1; setp.eq.u32 p4, r8, {STAGES};
@p4 mov.u32 r8, 0;
@p4 xor.b32 r9, r9, 1;
add.u32 r10, r10, 64; setp.lt.u32 p4, r10, r3;
@p4 bra CONSUME;
and.b32 r15, r5, 15; shr.u32 r16, r5, 5; mad.lo.u32 r16, r16, 16, r15; and.b32 r17, r16, 7;
shl.b32 r16, r16, 7; add.u32 r16, r16, r1; add.u32 r16, r16, {C};
and.b32 r18, r5, 31; shr.u32 r18, r18, 4;
{"".join(store_block(i) for i in range(4))}
fence.proxy.async.shared::cta;
bar.sync 1, 128;
@!p6 bra END;
add.u32 r19, r1, {C};
cp.async.bulk.tensor.2d.global.shared::cta.bulk_group [d2, {{r0, r0}}], [r19];
cp.async.bulk.commit_group;
cp.async.bulk.wait_group 0;
END:
ret;
}}
"""


def multiply(text: str, seed: int, swizzle: str = "128B") -> tuple[np.ndarray, np.ndarray]:
    """Return C and what it should be, for K = 320."""
    random = np.random.default_rng(5)
    a, b = (random.integers(-3, 4, (64, 320)).astype(BF16) for _ in range(2))
    c = np.full((64, 64), np.nan, BF16)
    maps = [
        TensorMap(x.view(np.uint16), "bf16", x.shape[::-1], (2 * x.shape[1],), (64, 64), how)
        for x, how in ((a, swizzle), (b, "128B"), (c, "128B"))
    ]
    execute(text, block=256, args=[*maps, 320], smem_bytes=SIZE, seed=seed)
    return maps[2].array.view(BF16), (a.astype(np.float32) @ b.astype(np.float32).T).astype(BF16)


@pytest.mark.parametrize("seed", range(6))
def test_product_is_right_under_every_schedule(seed):
    got, expected = multiply(KERNEL, seed)
    np.testing.assert_array_equal(got.astype(np.float32), expected.astype(np.float32))


RELEASE = f"@p6 mbarrier.arrive.shared::cta.b64 _, [r11+{EMPTY}];"
FENCE = "fence.proxy.async.shared::cta;"
WAIT = "mbarrier.try_wait.parity.shared::cta.b64"
STAGE_B = f"add.u32 r14, r13, {B};"
STAGE = f"mad.lo.u32 r13, r8, {TILE}, r1; {STAGE_B}"
MUTANTS = {
    "full wait dropped": (f"{WAIT} p3, [r11+{FULL}], r9;\n@!p3 bra WAIT_FULL;", ""),
    "empty wait dropped": (f"{WAIT} p3, [r11+{EMPTY}], r9;\n@!p3 bra WAIT_EMPTY;", ""),
    "consumer in the wrong phase": (f"[r11+{FULL}], r9;", f"[r11+{FULL}], r0;"),
    "producer in the wrong phase": ("mov.u32 r9, 1;", "mov.u32 r9, 0;"),
    "phase never flips": ("@p4 xor.b32 r9, r9, 1;", ""),
    "transaction bytes short": (f"_, [r12], {2 * TILE};", f"_, [r12], {TILE};"),
    "transaction bytes over": (f"_, [r12], {2 * TILE};", f"_, [r12], {2 * TILE + 16};"),
    "wgmma wait dropped": ("wgmma.wait_group.sync.aligned 0;", ""),
    "wgmma wait too shallow": ("wait_group.sync.aligned 0", "wait_group.sync.aligned 1"),
    "wgmma commit dropped": ("wgmma.commit_group.sync.aligned;", ""),
    "wgmma fence dropped": ("wgmma.fence.sync.aligned;", ""),
    "release before the products": ("wgmma.fence.sync", f"{RELEASE}\nwgmma.fence.sync"),
    "release dropped": (RELEASE, ""),
    "descriptor stride": (str(HIGH), str(1 << 62 | (512 >> 4) << 32 | 1 << 16)),
    "descriptor swizzle": (str(HIGH), str(2 << 62 | (1024 >> 4) << 32 | 1 << 16)),
    "descriptor advance": ("add.u64 d7, d5, 4;", "add.u64 d7, d5, 2;"),
    "stage ignored by the products": (f"{STAGE}\nand", f"mov.u32 r13, r1; {STAGE_B}\nand"),
    "operand transposed": ("p5, 1, 1, 0, 0;", "p5, 1, 1, 0, 1;"),
    "accumulator never cleared": ("d7, p5, 1", "d7, 1, 1"),
    "stmatrix swizzle": ("xor.b32 r24, r24, r17;", ""),
    "proxy fence dropped": (FENCE, ""),
    "proxy fence of one warp only": (f"{FENCE}\n", f"@p6 {FENCE}\n"),
    "epilogue barrier dropped": ("bar.sync 1, 128;", ""),
    "epilogue barrier too small": ("bar.sync 1, 128;", "bar.sync 1, 96;"),
    "store not awaited": ("cp.async.bulk.wait_group 0;", ""),
    "store not committed": ("cp.async.bulk.commit_group;", ""),
    "mbarrier fence dropped": ("fence.mbarrier_init.release.cluster;", ""),
    "first barrier dropped": ("READY: bar.sync 0;", "READY:"),
    "every lane loads": ("@!p2 bra END;", ""),
    "mbarrier count": (f"[r1+{EMPTY}], 1;", f"[r1+{EMPTY}], 2;"),
    "coordinates swapped": ("{r10, r0}", "{r0, r10}"),
}  # fmt: skip


@pytest.mark.parametrize("name", MUTANTS)
def test_mutants_are_caught(name):
    old, new = MUTANTS[name]
    assert old in KERNEL
    try:
        got, expected = multiply(KERNEL.replace(old, new), seed=1)
    except PtxError:
        return
    assert not np.array_equal(got.astype(np.float32), expected.astype(np.float32))


def test_wrong_swizzle_of_a_tensor_map_is_caught():
    got, expected = multiply(KERNEL, 0, "none")
    assert not np.array_equal(got.astype(np.float32), expected.astype(np.float32))
