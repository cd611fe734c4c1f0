"""Tensor and bulk copies: boxes, swizzles, multicast, reductions, groups."""

import ml_dtypes
import numpy as np
import pytest

from tests.ptx_machine import (
    AccessError,
    BarrierError,
    DeadlockError,
    LaunchError,
    RaceError,
    TensorMap,
    UninitialisedRead,
    UnsupportedInstruction,
    run,
)
from tests.ptx_machine.harness import execute, kernel

SEEDS = range(3)
RANDOM = np.random.default_rng(4)
COMPLETE = "mbarrier::complete_tx::bytes"
START = """
mov.u32 r0, %tid.x; mov.u32 r9, smem; add.u32 r8, r9, BARRIER; setp.ne.u32 p1, r0, 0;
@p1 bra READY;
mbarrier.init.shared::cta.b64 [r8], 1;
fence.mbarrier_init.release.cluster;
READY: SYNC
@p1 bra WAIT;
mbarrier.arrive.expect_tx.shared::cta.b64 _, [r8], BYTES;
"""
WAIT = """
WAIT: mbarrier.try_wait.parity.shared::cta.b64 p2, [r8], 0;
@!p2 bra WAIT;
"""
DUMP = """
mov.u32 r1, r0; mov.u32 r20, %ntid.x;
NEXT: setp.ge.u32 p3, r1, WORDS;
@p3 bra DUMPED;
shl.b32 r2, r1, 2; add.u32 r3, r9, r2; ld.shared.u32 r4, [r3];
cvt.u64.u32 d7, r2; add.u64 d7, d6, d7; st.global.u32 [d7], r4;
add.u32 r1, r1, r20;
bra NEXT;
DUMPED:
"""


def load_kernel(copy: str, size: int, expect: int | None = None, directives: str = "") -> str:
    """Thread 0 issues `copy` of `size` bytes into smem; the CTA dumps what arrived to `out`."""
    sync = "bar.sync 0;"
    if directives:
        sync = "barrier.cluster.arrive.relaxed.aligned; barrier.cluster.wait.acquire.aligned;"
    start = START.replace("BYTES", str(size if expect is None else expect))
    start = start.replace("BARRIER", str(size)).replace("SYNC", sync)
    pointers = """ld.param.u64 d6, [out]; ld.param.u64 d5, [data];
    mov.b64 d4, map; cvta.param.u64 d4, d4; mov.u32 r21, %cluster_ctarank;
    mad.wide.u32 d6, r21, SIZE, d6;""".replace("SIZE", str(size))
    end = "barrier.cluster.arrive; barrier.cluster.wait;" if directives else ""
    body = pointers + start + copy + WAIT + DUMP.replace("WORDS", str(size // 4)) + end
    declared = ".param .align 64 .b8 map[128], .param .u64 data, .param .u64 out"
    text = kernel("u64 x", body, directives)
    return text.replace(".param .u64 x", declared)


def run_load(copy, size, tensor_map, data=None, grid=1, directives="", expect=None, **options):
    out = np.zeros((grid, size), np.uint8)
    data = np.zeros(16, np.uint8) if data is None else data
    text = load_kernel(copy, size, expect, directives)
    options.setdefault("smem_bytes", size + 1024)
    execute(text, grid=grid, block=64, args=[tensor_map, data, out], **options)
    return out


def tensor_load(rank: int, coordinates: str) -> str:
    return (
        f"cp.async.bulk.tensor.{rank}d.shared::cluster.global.{COMPLETE} "
        f"[r9], [d4, {{{coordinates}}}], [r8];"
    )


def box_of(array: np.ndarray, start: tuple[int, ...], shape: tuple[int, ...], fill=0) -> np.ndarray:
    """Copy a box out of an array element by element; outside is filled."""
    out = np.full(shape, fill, array.dtype)
    for index in np.ndindex(*shape):
        place = tuple(s + i for s, i in zip(start, index, strict=True))
        if all(0 <= p < n for p, n in zip(place, array.shape, strict=True)):
            out[index] = array[place]
    return out


def swizzled(rows: np.ndarray, span: int) -> np.ndarray:
    """Permute 16-byte chunks of [rows, span bytes]: chunk numbers are xored with line numbers."""
    flat = rows.reshape(-1).view(np.uint8)
    out = np.zeros_like(flat)
    chunks = {16: 1, 32: 2, 64: 4, 128: 8}[span]
    for chunk in range(flat.size // 16):
        line = chunk // 8
        target = chunk ^ (line % chunks if span > 16 else 0)
        out[16 * target : 16 * target + 16] = flat[16 * chunk : 16 * chunk + 16]
    return out


@pytest.mark.parametrize("seed", SEEDS)
@pytest.mark.parametrize(("mode", "span"), [("none", 64), ("32B", 32), ("64B", 64), ("128B", 128)])
def test_tensor_load_swizzles(mode, span, seed):
    data = RANDOM.integers(0, 65536, (40, 96)).astype(np.uint16)
    inner = span // 2
    tm = TensorMap(data, "u16", (96, 40), (192,), (inner, 32), mode)
    got = run_load(tensor_load(2, "8, 4"), 32 * span, tm, seed=seed)
    box = data[4:36, 8 : 8 + inner]
    np.testing.assert_array_equal(got[0], swizzled(box.copy(), 16 if mode == "none" else span))


def test_rows_shorter_than_the_span_keep_its_pitch():
    data = RANDOM.integers(0, 65536, (16, 16)).astype(np.uint16)
    tm = TensorMap(data, "u16", (16, 16), (32,), (16, 16), "64B")
    copy = tensor_load(2, "0, 0")
    got = run_load(copy, 1024, tm, expect=512, check_uninitialised=False)
    padded = np.full((16, 32), 0xCDCD, np.uint16)
    padded[:, :16] = data
    np.testing.assert_array_equal(got[0], swizzled(padded, 64))


@pytest.mark.parametrize(
    ("fill", "start"),
    [("zero", (-3, -8)), ("zero", (30, 64)), ("nan", (34, 88)), ("zero", (90, 0))],
)
def test_boxes_outside_are_filled_and_fully_credited(fill, start):
    data = RANDOM.integers(0, 100, (40, 96)).astype(np.float16)
    tm = TensorMap(data.view(np.uint16), "f16", (96, 40), (192,), (32, 8), "none", fill=fill)
    got = run_load(tensor_load(2, f"{start[1]}, {start[0]}"), 512, tm)
    expected = box_of(data.view(np.uint16), start, (8, 32), 0x7FF7 if fill == "nan" else 0)
    np.testing.assert_array_equal(got[0].view(np.uint16).reshape(8, 32), expected)


def test_higher_ranks_and_element_strides():
    data = RANDOM.integers(0, 2**32, (2, 3, 6, 8), dtype=np.uint32)
    strides = (32, 192, 576)
    tm = TensorMap(data, "u32", (8, 6, 3, 2), strides, (4, 2, 2, 1))
    got = run_load(tensor_load(4, "4, 1, 1, 1"), 64, tm)
    np.testing.assert_array_equal(got[0].view(np.uint32), data[1, 1:3, 1:3, 4:8].reshape(-1))
    tm = TensorMap(data, "u32", (8, 6, 3, 2), strides, (4, 6, 1, 1), element_strides=(1, 2, 1, 1))
    got = run_load(tensor_load(4, "0, 0, 2, 0"), 48, tm, smem_bytes=1152)
    np.testing.assert_array_equal(got[0].view(np.uint32), data[0, 2, ::2, :4].reshape(-1))


@pytest.mark.parametrize("seed", SEEDS)
def test_multicast_reaches_every_cta_at_the_same_offset(seed):
    data = RANDOM.integers(0, 65536, (16, 64)).astype(np.uint16)
    tm = TensorMap(data, "u16", (64, 16), (128,), (64, 8), "128B")
    copy = """
    mov.u32 r22, %cluster_ctarank; shl.b32 r23, r22, 3; mad.lo.u32 r24, r22, 1024, r9;
    mov.u16 h1, 3; cp.async.bulk.tensor.2d.shared::cluster.global.COMPLETE.multicast::cluster
    [r24], [d4, {0, r23}], [r8], h1;""".replace("COMPLETE", COMPLETE)
    options = {"grid": 2, "directives": ".reqnctapercluster 2,1,1", "seed": seed}
    got = run_load(copy, 2048, tm, smem_bytes=4096, **options)
    for cta in range(2):
        np.testing.assert_array_equal(got[cta], swizzled(data.copy(), 128))


@pytest.mark.parametrize("seed", SEEDS)
def test_linear_bulk_copies(seed):
    data = RANDOM.integers(0, 256, 512).astype(np.uint8)
    tm = TensorMap(data, "u8", (512,), (), (16,))
    copy = f"cp.async.bulk.shared::cluster.global.{COMPLETE} [r9], [d5+64], 256, [r8];"
    got = run_load(copy, 256, tm, data, seed=seed)
    np.testing.assert_array_equal(got[0], data[64:320])


@pytest.mark.parametrize("seed", SEEDS)
@pytest.mark.parametrize("expect", [4080, 4112, 2048, 0])
def test_wrong_transaction_counts_are_caught(expect, seed):
    data = np.zeros((32, 64), np.uint16)
    tm = TensorMap(data, "u16", (64, 32), (128,), (64, 32), "128B")
    with pytest.raises((DeadlockError, RaceError, BarrierError)):
        run_load(tensor_load(2, "0, 0"), 4096, tm, expect=expect, seed=seed)


@pytest.mark.parametrize("seed", SEEDS)
@pytest.mark.parametrize(
    ("old", "new"),
    [
        ("@!p2 bra WAIT;", ""),
        ("p2, [r8], 0;", "p2, [r8], 1;"),
        ("fence.mbarrier_init.release.cluster;", ""),
        ("READY: bar.sync 0;", "READY:"),
    ],
)
def test_load_mutants_are_caught(old, new, seed):
    data = np.zeros((32, 64), np.uint16)
    tm = TensorMap(data, "u16", (64, 32), (128,), (64, 32), "128B")
    text = load_kernel(tensor_load(2, "0, 0"), 4096)
    assert old in text
    text = text.replace(old, new).replace("mbarrier.try_wait", "mbarrier.test_wait")
    out = np.zeros(4096, np.uint8)
    with pytest.raises((RaceError, BarrierError)):
        options = {"smem_bytes": 5120, "seed": seed, "check_uninitialised": False}
        execute(text, block=64, args=[tm, data, out], **options)


@pytest.mark.parametrize(
    ("copy", "match"),
    [
        (tensor_load(2, "0, 0").replace("[r9]", "[r9+64]"), "(128-byte aligned|mbarrier)"),
        (tensor_load(2, "0, 0").replace("[r8]", "[r8+8]"), "no mbarrier"),
        (tensor_load(3, "0, 0, 0"), "rank 2"),
        (tensor_load(2, "4, 0"), "innermost coordinate"),
        (f"cp.async.bulk.shared::cluster.global.{COMPLETE} [r9], [d5+8], 16, [r8];", "16-byte"),
        (tensor_load(2, "0, 0").replace("[r9]", "[r8]"), "(overwrites an mbarrier|outside)"),
    ],
)
def test_bad_copies_are_reported(copy, match):
    data = np.zeros((32, 64), np.uint16)
    tm = TensorMap(data, "u16", (64, 32), (128,), (64, 32), "128B")
    with pytest.raises((AccessError, BarrierError), match=match):
        run_load(copy, 4096, tm)


def test_unknown_copy_forms_are_errors():
    data = np.zeros((32, 64), np.uint16)
    tm = TensorMap(data, "u16", (64, 32), (128,), (64, 32), "128B")
    for old, new in ((".global.mbarrier", ".global.im2col.mbarrier"), ("2d.", "2d.future.")):
        text = load_kernel(tensor_load(2, "0, 0").replace(old, new), 4096)
        with pytest.raises(UnsupportedInstruction):
            run(text, "k", 1, 64, args=[tm, data, data], smem_bytes=8192)


STORE = """
.reg .b64 m; mov.b64 m, map; cvta.param.u64 m, m; ld.param.u64 d6, [out];
mov.u32 r0, %tid.x; mov.u32 r9, smem; mad.lo.u32 r1, r0, 32, r9;
mov.u32 r2, VALUES;
st.shared.v4.u32 [r1], {r2, r2, r2, r2};
st.shared.v4.u32 [r1+16], {r2, r2, r2, r2};
fence.proxy.async.shared::cta;
bar.sync 0;
setp.ne.u32 p1, r0, 0;
@p1 bra END;
COPY
cp.async.bulk.commit_group;
cp.async.bulk.wait_group.read 0;
END: bar.sync 0;
AFTER
@p1 bra OVER;
cp.async.bulk.wait_group 0;
OVER:
"""
TENSOR_STORE = "cp.async.bulk.tensor.2d.global.shared::cta.bulk_group [m, {8, 6}], [r9];"


def run_store(copy, values, tensor_map, out, seed=0, after="", old="", new=""):
    text = STORE.replace("VALUES", values).replace("COPY", copy).replace("AFTER", after)
    assert old in text
    text = text.replace(old, new, 1)
    text = kernel("u64 x", text)
    text = text.replace(".param .u64 x", ".param .align 64 .b8 map[128], .param .u64 out")
    execute(text, block=32, args=[tensor_map, out], smem_bytes=1024, seed=seed)
    return out


@pytest.mark.parametrize("seed", SEEDS)
def test_tensor_store_clips_at_the_edge(seed):
    out = np.zeros((12, 32), np.uint16)
    tm = TensorMap(out, "u16", (32, 12), (64,), (32, 16))
    run_store(TENSOR_STORE, "0x00050005", tm, out, seed)
    expected = np.zeros_like(out)
    expected[6:, 8:] = 5
    np.testing.assert_array_equal(out, expected)


@pytest.mark.parametrize("seed", SEEDS)
@pytest.mark.parametrize(
    ("edit", "after"),
    [
        (("fence.proxy.async.shared::cta;", ""), ""),
        (("bar.sync 0;", ""), ""),
        (("cp.async.bulk.wait_group.read 0;", ""), "st.shared.u32 [r1], r0;"),
        (("cp.async.bulk.commit_group;", ""), "st.shared.u32 [r1], r0;"),
        (
            ("cp.async.bulk.wait_group.read 0;", "cp.async.bulk.wait_group.read 1;"),
            "st.shared.u32 [r1], r0;",
        ),
    ],
)
def test_store_mutants_are_caught(edit, after, seed):
    out = np.zeros((12, 32), np.uint16)
    tm = TensorMap(out, "u16", (32, 12), (64,), (32, 16))
    with pytest.raises((RaceError, AccessError, UninitialisedRead)):
        run_two_warps(TENSOR_STORE, tm, out, seed, after, edit)


def run_two_warps(copy, tensor_map, out, seed, after, edit):
    """Two warps write 1 KB together, so that the barrier matters."""
    text = STORE.replace("VALUES", "1").replace("COPY", copy).replace("AFTER", after)
    text = text.replace("mad.lo.u32 r1, r0, 32, r9;", "mad.lo.u32 r1, r0, 16, r9;")
    text = text.replace("st.shared.v4.u32 [r1+16], {r2, r2, r2, r2};", "")
    text = kernel("u64 x", text.replace(edit[0], edit[1], 1))
    text = text.replace(".param .u64 x", ".param .align 64 .b8 map[128], .param .u64 out")
    execute(text, block=64, args=[tensor_map, out], smem_bytes=1024, seed=seed)


def test_reductions_into_global_memory():
    out = np.full((16, 32), 2, ml_dtypes.bfloat16)
    tm = TensorMap(out.view(np.uint16), "bf16", (32, 16), (64,), (32, 16))
    copy = (
        "cp.reduce.async.bulk.tensor.2d.global.shared::cta.add.tile.bulk_group [m, {0, 0}], [r9];"
    )
    run_store(copy, "0x3F803F80", tm, tm.array)
    assert (out == 3).all()
    out = np.full(256, 7, np.int32)
    tm = TensorMap(out.view(np.uint32), "s32", (256,), (), (256,))
    copy = "cp.reduce.async.bulk.global.shared::cta.bulk_group.max.s32 [d6], [r9], 512;"
    run_store(copy, "9", tm, out)
    assert out.tolist() == [9] * 128 + [7] * 128


def test_tensor_maps_are_checked_when_made():
    data = np.zeros((8, 64), np.uint16)
    for change, match in (
        ({"strides": (120,)}, "multiples of 16"),
        ({"box": (128, 8), "swizzle": "128B"}, "over the 128B span"),
        ({"box": (4, 8)}, "not a multiple of 16"),
        ({"box": (64, 300)}, "1 to 256"),
        ({"fill": "nan"}, "NaN fill"),
    ):
        arguments = {"dims": (64, 8), "strides": (128,), "box": (64, 8), **change}
        with pytest.raises(LaunchError, match=match):
            TensorMap(data, "u16", **arguments)
