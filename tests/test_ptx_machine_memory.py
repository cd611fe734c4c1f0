"""Loads, stores, atomics, lane copies, address spaces and lane exchange."""

import numpy as np
import pytest

from tests.ptx_machine import (
    AccessError,
    DivergenceError,
    RaceError,
    UninitialisedRead,
    run,
)
from tests.ptx_machine.harness import compute, execute, kernel

LANES = np.arange(32)
POINTERS = "ld.param.u64 d0, [a]; ld.param.u64 d1, [b]; mov.u32 r0, %tid.x;"


def run_pair(body: str, source: np.ndarray, target: np.ndarray, **options) -> np.ndarray:
    """Run a kernel with pointers a (d0) and b (d1) and the thread number in r0."""
    execute(kernel("u64 a, u64 b", POINTERS + body), args=[source, target], **options)
    return target


def test_vector_and_narrow_accesses():
    source = np.arange(128, dtype=np.uint32) * 0x01020304
    body = """
    mad.wide.u32 d2, r0, 16, d0; mad.wide.u32 d3, r0, 16, d1;
    ld.global.v4.u32 {r1, r2, r3, r4}, [d2];
    ld.global.L1::evict_last.v2.b32 {r5, r6}, [d2+8];
    ld.global.s8 r7, [d2+3]; ld.global.nc.u16 r8, [d2+2];
    add.u32 r1, r1, r5; add.u32 r2, r2, r6;
    st.global.v2.u32 [d3], {r1, r2}; st.global.u16 [d3+8], r7; st.global.wt.u32 [d3+12], r8;
    """
    got = run_pair(body, source, np.zeros(128, np.uint32)).reshape(32, 4)
    rows = source.reshape(32, 4)
    np.testing.assert_array_equal(got[:, :2], rows[:, :2] + rows[:, 2:])
    top = rows.view(np.int8).reshape(32, 16)[:, 3]
    np.testing.assert_array_equal(got[:, 2].astype(np.uint16), top.astype(np.int16).view(np.uint16))
    np.testing.assert_array_equal(got[:, 3], rows[:, 0] >> 16)


def test_shared_local_and_generic_addresses_agree():
    body = """
    .local .align 4 .b8 stack[8];
    mov.u32 r9, smem; shl.b32 r1, r0, 2; add.u32 r1, r1, r9; mad.wide.u32 d2, r0, 4, d1;
    st.shared.u32 [r1], r0; st.local.u32 [stack+4], r0;
    cvt.u64.u32 d3, r1; cvta.shared.u64 d3, d3; isspacep.shared p1, d3;
    ld.u32 r2, [d3]; mov.u64 d4, stack; cvta.local.u64 d4, d4; ld.u32 r3, [d4+4];
    add.u32 r2, r2, r3; selp.u32 r4, 100, 0, p1; add.u32 r2, r2, r4;
    st.u32 [d2], r2;
    """
    got = run_pair(body, np.zeros(1, np.uint32), np.zeros(32, np.uint32), smem_bytes=128)
    np.testing.assert_array_equal(got, 2 * LANES + 100)


@pytest.mark.parametrize(
    ("line", "match"),
    [
        ("mad.wide.u32 d2, r0, 4, d0; ld.global.u32 r1, [d2+4];", "in no buffer"),
        ("ld.global.u32 r1, [d0+2];", "not aligned"),
        ("ld.shared.u32 r1, [smem+64];", "outside"),
        ("st.global.u32 [d0+-4], r0;", "in no buffer"),
        ("mov.u32 r2, smem; ld.shared.u32 r1, [r2];", "before anything wrote"),
        ("add.u32 r1, r0, r50;", "before it is written"),
    ],
)
def test_bad_accesses_are_reported(line, match):
    with pytest.raises((AccessError, UninitialisedRead), match=match):
        run_pair(line, np.zeros(32, np.uint32), np.zeros(32, np.uint32), smem_bytes=64)


def test_atomics_combine_every_lane():
    memory = np.array([5, 0, 7, 100, 3, 0, 0, 0], np.uint32)
    old = np.zeros(32, np.uint32)
    body = """
    mad.wide.u32 d2, r0, 4, d1;
    atom.global.add.u32 r1, [d0], 1; st.global.u32 [d2], r1;
    red.global.or.b32 [d0+4], r0; red.relaxed.gpu.global.max.s32 [d0+8], r0;
    red.global.min.u32 [d0+12], r0; atom.global.cas.b32 r2, [d0+16], 3, 44;
    red.global.inc.u32 [d0+20], 20; mov.f32 f1, 0f3F800000; red.global.add.f32 [d0+24], f1;
    mov.b32 r3, 0x3C003C00; red.global.add.noftz.f16x2 [d0+28], r3;
    """
    run_pair(body, memory, old)
    np.testing.assert_array_equal(np.sort(old), 5 + LANES)
    assert memory[:6].tolist() == [37, 31, 31, 0, 44, 11]
    assert memory[6:7].view(np.float32)[0] == 32
    assert memory[7:].view(np.float16).tolist() == [32, 32]


LANE_COPY = """
mad.wide.u32 d2, r0, 16, d0; mad.wide.u32 d3, r0, 16, d1; shl.b32 r1, r0, 4;
mov.u32 r9, smem; add.u32 r1, r1, r9;
cp.async.cg.shared.global [r1], [d2], 16;
cp.async.commit_group;
cp.async.ca.shared.global [r1+512], [d2], 8, 4;
cp.async.commit_group;
cp.async.wait_group 1;
ld.shared.v4.u32 {r2, r3, r4, r5}, [r1];
cp.async.wait_all;
ld.shared.v2.u32 {r6, r7}, [r1+512];
add.u32 r2, r2, r6; add.u32 r3, r3, r7;
st.global.v4.u32 [d3], {r2, r3, r4, r5};
"""


@pytest.mark.parametrize("seed", range(4))
def test_lane_copies_arrive_by_group(seed):
    source = np.arange(128, dtype=np.uint32) + 1
    target = np.zeros(128, np.uint32)
    got = run_pair(LANE_COPY, source, target, smem_bytes=1024, seed=seed)
    expected = source.reshape(32, 4).copy()
    expected[:, 0] *= 2
    np.testing.assert_array_equal(got.reshape(32, 4), expected)


@pytest.mark.parametrize("seed", range(4))
def test_lane_copy_without_a_wait_is_a_race(seed):
    body = LANE_COPY.replace("cp.async.wait_group 1;", "cp.async.wait_group 2;")
    with pytest.raises(RaceError):
        run_pair(
            body, np.ones(128, np.uint32), np.zeros(128, np.uint32), smem_bytes=1024, seed=seed
        )


def test_shuffles():
    a = (LANES * 10).astype(np.uint32)
    body = """
    shfl.sync.up.b32 o0|o4, a, 3, 0, -1; shfl.sync.down.b32 o1, a, 4, 0x1f, -1;
    shfl.sync.bfly.b32 o2, a, 1, 0x1f, -1; shfl.sync.idx.b32 o3, a, 5, 0x181f, -1;
    """
    kinds = {"o0": np.uint32, "o1": np.uint32, "o2": np.uint32, "o3": np.uint32, "o4": bool}
    got = compute(body, {"a": a}, kinds)
    np.testing.assert_array_equal(got["o0"], np.where(LANES >= 3, a - 30, a))
    np.testing.assert_array_equal(got["o4"], LANES >= 3)
    np.testing.assert_array_equal(got["o1"], np.where(LANES < 28, a + 40, a))
    np.testing.assert_array_equal(got["o2"], 10 * (LANES ^ 1))
    np.testing.assert_array_equal(got["o3"], 10 * (LANES // 8 * 8 + 5))


def test_votes_matches_and_reductions():
    a = (LANES % 3).astype(np.uint32)
    body = """
    setp.eq.u32 p1, a, 1; vote.sync.ballot.b32 o0, p1, -1; vote.sync.any.pred o1, p1, -1;
    match.any.sync.b32 o2, a, -1; redux.sync.add.u32 o3, a, -1; elect.sync r1|o4, -1;
    activemask.b32 o5; match.all.sync.b32 o6|p2, a, -1;
    """
    kinds = {"o0": np.uint32, "o1": bool, "o2": np.uint32, "o3": np.uint32, "o4": bool}
    got = compute(body, {"a": a}, {**kinds, "o5": np.uint32, "o6": np.uint32})
    masks = np.array([sum(1 << i for i in LANES if i % 3 == k) for k in range(3)], np.uint32)
    assert (got["o0"] == masks[1]).all() and got["o1"].all()
    np.testing.assert_array_equal(got["o2"], masks[a])
    assert (got["o3"] == a.sum()).all() and got["o4"].tolist() == [True] + [False] * 31
    assert (got["o5"] == 0xFFFFFFFF).all() and not got["o6"].any()


DIVERGENT = """
mov.u32 r1, 0; mov.u32 r2, 0; mad.wide.u32 d3, r0, 4, d1;
LOOP: setp.ge.u32 p1, r1, r0;
@p1 bra OUT;
add.u32 r1, r1, 1; add.u32 r2, r2, r1;
bra LOOP;
OUT: shfl.sync.bfly.b32 r3, r2, 1, 31, -1;
st.global.u32 [d3], r3;
"""


@pytest.mark.parametrize("seed", range(3))
def test_lanes_part_and_meet_again(seed):
    got = run_pair(DIVERGENT, np.zeros(1, np.uint32), np.zeros(32, np.uint32), seed=seed)
    mate = LANES ^ 1
    np.testing.assert_array_equal(got, mate * (mate + 1) // 2)


def test_aligned_instruction_under_a_parting_guard_is_an_error():
    with pytest.raises(DivergenceError):
        run_pair("setp.lt.u32 p1, r0, 7; @p1 bar.sync 0;", np.zeros(1), np.zeros(1))


def test_constants_and_scopes():
    body = """
    ld.param.u64 d0, [a]; ld.const.u32 r1, [table+4];
    { .reg .b32 r1; mov.u32 r1, 9; st.global.u32 [d0], r1; }
    mov.u32 r2, %ntid.x; mov.u32 r3, %nctaid.y; st.global.v2.u32 [d0+8], {r2, r3};
    st.global.u32 [d0+4], r1;
    """
    head, mark, rest = kernel("u64 a", body).partition(".visible")
    text = f"{head}.const .align 4 .u32 table[2] = {{11, 22}};\n{mark}{rest}"
    out = np.zeros(4, np.uint32)
    execute(text, grid=(1, 3), block=64, args=[out])
    assert out.tolist() == [9, 22, 64, 3]


def test_grid_dimensions_and_partial_warps():
    out = np.zeros((2, 3, 40), np.uint32)
    body = """
    ld.param.u64 d0, [a]; mov.u32 r0, %tid.x; mov.u32 r1, %ctaid.x; mov.u32 r2, %ctaid.y;
    mov.u32 r5, %nctaid.x; mad.lo.u32 r3, r2, r5, r1; mad.lo.u32 r3, r3, 40, r0;
    mad.wide.u32 d1, r3, 4, d0; mad.lo.u32 r4, r2, 1000, r1; mad.lo.u32 r4, r1, 99, r4;
    add.u32 r4, r4, r0; st.global.u32 [d1], r4;
    """
    execute(kernel("u64 a", body), grid=(3, 2), block=40, args=[out], resident=2)
    y, x, t = np.meshgrid(np.arange(2), np.arange(3), np.arange(40), indexing="ij")
    np.testing.assert_array_equal(out, 1000 * y + 100 * x + t)


def test_arguments_are_packed_as_declared():
    out = np.zeros(4, np.uint32)
    body = """
    ld.param.u64 d0, [a]; ld.param.u16 r1, [n]; ld.param.f32 f1, [x]; ld.param.s64 d1, [m];
    cvt.rzi.u32.f32 r2, f1; cvt.u32.u64 r3, d1;
    st.global.u32 [d0], r1; st.global.u32 [d0+4], r2; st.global.u32 [d0+8], r3;
    """
    execute(kernel("u64 a, u16 n, f32 x, s64 m", body), args=[(out, 4), 513, 7.5, -2], block=1)
    assert out.tolist() == [0, 513, 7, 2**32 - 2]


def test_launch_rejects_what_does_not_fit():
    from tests.ptx_machine import LaunchError

    with pytest.raises(LaunchError, match="parameters"):
        run(kernel("u64 a", ""), "k", 1, 32)
    with pytest.raises(LaunchError, match="reqntid"):
        run(kernel("", "", ".reqntid 64,1,1"), "k", 1, 32)
    with pytest.raises(LaunchError, match="shared memory"):
        run(kernel("", ""), "k", 1, 32, smem_bytes=250000)


def test_addresses_of_shared_variables_name_their_cta_in_a_cluster():
    """On an H200 the bits from 24 up are the rank; a program must not take them for an offset."""
    body = """
    ld.param.u64 d0, [a]; mov.u32 r0, %tid.x; mov.u32 r1, %cluster_ctarank;
    mov.u32 r2, smem; shr.u32 r3, r2, 24; mad.wide.u32 d0, r1, 4, d0; setp.eq.u32 p0, r0, 0;
    @p0 st.global.u32 [d0], r3; @p0 st.shared.u32 [r2], r1;
    @p0 ld.shared.u32 r4, [smem]; @p0 st.global.u32 [d0+8], r4;
    """
    found, alone = np.zeros(4, np.uint32), np.ones(4, np.uint32)
    pair = kernel("u64 a", body, ".reqnctapercluster 2,1,1")
    execute(pair, 2, 32, args=[found], smem_bytes=16)
    assert found[0] != found[1] and list(found[2:]) == [0, 1]
    execute(kernel("u64 a", body), 1, 32, args=[alone], smem_bytes=16)
    assert alone[0] == 0
