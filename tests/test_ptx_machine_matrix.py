"""ldmatrix, stmatrix, mma.sync and wgmma against plain matrix products."""

import ml_dtypes
import numpy as np
import pytest

from tests.ptx_machine import DivergenceError, InFlightError, ProxyError, PtxError
from tests.ptx_machine.harness import compute, execute, kernel

RANDOM = np.random.default_rng(3)
G, T = np.arange(32) // 4, np.arange(32) % 4
BF16 = ml_dtypes.bfloat16


def small(shape: tuple[int, ...], dtype) -> np.ndarray:
    """Small integers: every product and sum is exact."""
    low = 0 if np.dtype(dtype).kind == "u" else -4
    return RANDOM.integers(low, 5, shape).astype(dtype)


MATRICES = """
ld.param.u64 d0, [a]; ld.param.u64 d1, [b]; mov.u32 r0, %tid.x; mov.u32 r9, smem;
shl.b32 r1, r0, 4; add.u32 r2, r1, r9; mad.wide.u32 d2, r0, 16, d0; mad.wide.u32 d3, r0, 16, d1;
ld.global.v4.u32 {r4, r5, r6, r7}, [d2]; st.shared.v4.u32 [r2], {r4, r5, r6, r7};
bar.sync 0;
ldmatrix.sync.aligned.m8n8.x4LOAD.shared.b16 {r10, r11, r12, r13}, [r2];
stmatrix.sync.aligned.m8n8.x4STORE.shared.b16 [r2+512], {r10, r11, r12, r13};
bar.sync 0;
ld.shared.v4.u32 {r4, r5, r6, r7}, [r2+512]; st.global.v4.u32 [d3], {r4, r5, r6, r7};
"""


@pytest.mark.parametrize("load", ["", ".trans"])
@pytest.mark.parametrize("store", ["", ".trans"])
def test_matrix_loads_and_stores_are_inverse(load, store):
    source = RANDOM.integers(0, 65536, (4, 8, 8)).astype(np.uint16)
    target = np.zeros((4, 8, 8), np.uint16)
    text = kernel("u64 a, u64 b", MATRICES.replace("LOAD", load).replace("STORE", store))
    execute(text, args=[source, target], smem_bytes=1024)
    expected = source if load == store else source.transpose(0, 2, 1)
    np.testing.assert_array_equal(target, expected)


def test_matrix_load_gives_neighbours_of_a_row():
    source = np.arange(256, dtype=np.uint16).reshape(4, 8, 8)
    out = np.zeros((32, 4), np.uint32)
    body = MATRICES.replace("LOAD", "").replace("STORE", "")
    body += "st.global.v4.u32 [d3], {r10, r11, r12, r13};"
    execute(kernel("u64 a, u64 b", body), args=[source, out], smem_bytes=1024)
    pairs = source[:, G, 2 * T].astype(np.uint32) | source[:, G, 2 * T + 1].astype(np.uint32) << 16
    np.testing.assert_array_equal(out, pairs.T)


@pytest.mark.parametrize(
    "body",
    [
        "stmatrix.sync.aligned.m8n8.x4.shared.b16 [r9], {r1, 1, r1, r1};",
        "mma.sync.aligned.m16n8k16.row.col.f32.bf16.bf16.f32 {f0, f1, f2, f3}, {r1, 1, r1, r1}, "
        "{r1, r1}, {f0, f0, f0, f0};",
    ],
)
def test_matrix_instructions_take_no_constants(body):
    text = kernel("u64 a", f"mov.u32 r9, smem; mov.b32 r1, 0; mov.f32 f0, 0f00000000; {body}")
    with pytest.raises(PtxError, match="registers only"):
        execute(text, args=[np.zeros(4)], smem_bytes=1024)


def packed(elements: np.ndarray) -> np.ndarray:
    """Pack [32, P] elements of a register into 32 lanes."""
    size = elements.shape[1] * elements.dtype.itemsize
    return np.ascontiguousarray(elements).view(f"u{size}").reshape(32)


def lanes_of_a(a: np.ndarray, per: int) -> list[np.ndarray]:
    """Registers of A [m, k] written out from the figures of the document."""
    out = []
    for k in range(0, a.shape[1], 4 * per):
        for row in range(0, a.shape[0], 8):
            columns = k + T[:, None] * per + np.arange(per)
            out.append(packed(a[(row + G)[:, None], columns]))
    return out


def lanes_of_b(b: np.ndarray, per: int) -> list[np.ndarray]:
    return [
        packed(b[k + T[:, None] * per + np.arange(per), G[:, None]])
        for k in range(0, b.shape[0], 4 * per)
    ]


MMA = [
    ("m16n8k8", "f32.f16.f16.f32", np.float16, np.float16, np.float32),
    ("m16n8k16", "f32.f16.f16.f32", np.float16, np.float16, np.float32),
    ("m16n8k8", "f32.bf16.bf16.f32", BF16, BF16, np.float32),
    ("m16n8k16", "f32.bf16.bf16.f32", BF16, BF16, np.float32),
    ("m16n8k4", "f32.tf32.tf32.f32", np.float32, np.float32, np.float32),
    ("m16n8k8", "f32.tf32.tf32.f32", np.float32, np.float32, np.float32),
    ("m16n8k32", "f32.e4m3.e5m2.f32", ml_dtypes.float8_e4m3fn, ml_dtypes.float8_e5m2, np.float32),
    ("m8n8k16", "s32.s8.s8.s32", np.int8, np.int8, np.int32),
    ("m16n8k16", "s32.u8.s8.s32", np.uint8, np.int8, np.int32),
    ("m16n8k32", "s32.s8.u8.s32", np.int8, np.uint8, np.int32),
    ("m8n8k4", "f64.f64.f64.f64", np.float64, np.float64, np.float64),
    ("m16n8k4", "f64.f64.f64.f64", np.float64, np.float64, np.float64),
    ("m16n8k8", "f64.f64.f64.f64", np.float64, np.float64, np.float64),
    ("m16n8k16", "f64.f64.f64.f64", np.float64, np.float64, np.float64),
]


@pytest.mark.parametrize(("shape", "types", "kind_a", "kind_b", "kind_c"), MMA)
def test_mma_multiplies_fragments(shape, types, kind_a, kind_b, kind_c):
    m, k = int(shape[1:].split("n")[0]), int(shape.split("k")[1])
    a, b, c = small((m, k), kind_a), small((k, 8), kind_b), small((m, 8), kind_c)
    per = max(1, 4 // a.dtype.itemsize)
    registers = {
        **{f"a{i}": v for i, v in enumerate(lanes_of_a(a, per))},
        **{f"b{i}": v for i, v in enumerate(lanes_of_b(b, per))},
    }
    c_lanes = [c[8 * half + G, 2 * T + j] for half in range(m // 8) for j in range(2)]
    registers |= {f"c{i}": np.ascontiguousarray(v) for i, v in enumerate(c_lanes)}
    names = {p: ", ".join(n for n in registers if n[0] == p) for p in "abc"}
    outputs = {f"o{i}": kind_c for i in range(len(c_lanes))}
    text = f"mma.sync.aligned.{shape}.row.col.{types} "
    text += f"{{{', '.join(outputs)}}}, {{{names['a']}}}, {{{names['b']}}}, {{{names['c']}}};"
    got = compute(text, registers, outputs)
    expected = (a.astype(np.float64) @ b.astype(np.float64) + c).astype(kind_c)
    for i, value in enumerate(got.values()):
        np.testing.assert_array_equal(value, expected[8 * (i // 2) + G, 2 * T + i % 2])


def test_mma_rounds_half_accumulators_once():
    a, b = small((16, 16), np.float16), small((16, 8), np.float16)
    registers = {f"a{i}": v for i, v in enumerate(lanes_of_a(a, 2))}
    registers |= {f"b{i}": v for i, v in enumerate(lanes_of_b(b, 2))}
    registers["c0"] = registers["c1"] = np.full(32, 0x68006800, np.uint32)
    text = (
        "mma.sync.aligned.m16n8k16.row.col.f16.f16.f16.f16 "
        "{o0, o1}, {a0, a1, a2, a3}, {b0, b1}, {c0, c1};"
    )
    got = compute(text, registers, {"o0": np.uint32, "o1": np.uint32})
    expected = (a.astype(np.float64) @ b.astype(np.float64) + 2048).astype(np.float16)
    for half in range(2):
        value = got[f"o{half}"].view(np.float16).reshape(32, 2)
        np.testing.assert_array_equal(value[:, 0], expected[8 * half + G, 2 * T])


# --- wgmma: operands are laid out in shared memory by the host, byte for byte.

FILL = """
ld.param.u64 d0, [image]; ld.param.u64 d1, [out]; mov.u32 r0, %tid.x; mov.u32 r9, smem;
mov.u32 r1, r0;
COPY: mul.wide.u32 d2, r1, 16; add.u64 d3, d0, d2; shl.b32 r2, r1, 4; add.u32 r2, r2, r9;
ld.global.v4.u32 {r4, r5, r6, r7}, [d3]; st.shared.v4.u32 [r2], {r4, r5, r6, r7};
add.u32 r1, r1, 128; setp.lt.u32 p1, r1, CHUNKS;
@p1 bra COPY;
fence.proxy.async.shared::cta;
bar.sync 0;
"""


def descriptor(offset: int, leading: int, stride: int, mode: int) -> str:
    """PTX that builds a matrix descriptor in d4 / d5 from the shared base."""
    high = (mode << 62) | (stride >> 4) << 32 | (leading >> 4) << 16
    return (
        f"add.u32 r3, r9, {offset}; and.b32 r3, r3, 0x3FFFF; shr.u32 r3, r3, 4; "
        f"cvt.u64.u32 dX, r3; or.b64 dX, dX, {high};"
    )


def product_kernel(n: int, instruction: str, a: str, b: str, chunks: int) -> str:
    """A kernel for one warpgroup that runs one wgmma and stores every accumulator register."""
    count = n // 2
    letter = "r" if ".s32." in instruction else "f"
    names = [f"{letter}{i + 32}" for i in range(count)]
    registers = ", ".join(names)
    zero = " ".join(f"mov.b32 {name}, 0x3F800000;" for name in names)
    stores = " ".join(f"st.global.b32 [d6+{4 * i}], {name};" for i, name in enumerate(names))
    body = f"""{FILL.replace("CHUNKS", str(chunks))}
    {a.replace("dX", "d4")} {b.replace("dX", "d5")} {zero}
    mad.wide.u32 d6, r0, {4 * count}, d1;
    wgmma.fence.sync.aligned;
    {instruction.replace("{d}", "{" + registers + "}")}
    wgmma.commit_group.sync.aligned;
    wgmma.wait_group.sync.aligned 0;
    {stores}"""
    return kernel("u64 image, u64 out", body, ".reqntid 128,1,1")


def gather(out: np.ndarray, n: int) -> np.ndarray:
    """Put 32-bit accumulators [128, n / 2] back into a matrix [64, n]."""
    result = np.zeros((64, n), out.dtype)
    thread = np.arange(128)
    warp, g, t = thread // 32, thread % 32 // 4, thread % 4
    for i in range(n // 2):
        row, column = 16 * warp + g + 8 * (i // 2 % 2), 8 * (i // 4) + 2 * t + i % 2
        result[row, column] = out[:, i]
    return result


SPAN = {0: 16, 1: 128, 2: 64, 3: 32}


def xor_chunks(byte: int, mode: int) -> int:
    """The swizzle of a shared byte address, bit by bit."""
    for bit in range({0: 0, 1: 3, 2: 2, 3: 1}[mode]):
        byte ^= (byte >> (7 + bit) & 1) << (4 + bit)
    return byte


def k_major_image(matrix: np.ndarray, mode: int) -> tuple[np.ndarray, int, int]:
    """Place [rows, k] with k contiguous; return (bytes, leading, stride)."""
    rows, depth = matrix.shape
    size, span = matrix.dtype.itemsize, SPAN[mode]
    stride = 8 * span if mode else 8 * 16 * (depth * size // 16)
    image = np.zeros(rows // 8 * stride, np.uint8)
    for r in range(rows):
        for k in range(depth):
            if mode:
                place = r // 8 * stride + r % 8 * span + k * size
            else:
                place = r // 8 * stride + k * size // 16 * 128 + r % 8 * 16 + k * size % 16
            place = xor_chunks(place, mode)
            image[place : place + size] = matrix[r, k : k + 1].view(np.uint8)
    return image, 128 if not mode else 16, stride


def mn_major_image(matrix: np.ndarray, mode: int) -> tuple[np.ndarray, int, int]:
    """Place [rows, k] of 2-byte elements with rows contiguous."""
    rows, depth = matrix.shape
    span = SPAN[mode]
    per = span // 2
    group = 8 * span
    if mode:
        stride, leading = group, group * (depth // 8)
    else:
        leading, stride = group, group * (depth // 8)
    outer, inner = (leading, stride) if mode else (stride, leading)
    image = np.zeros(max(1, rows // per) * group * (depth // 8), np.uint8)
    for r in range(rows):
        for k in range(depth):
            place = r // per * outer + k // 8 * inner + k % 8 * span + r % per * 2
            place = xor_chunks(place, mode)
            image[place : place + 2] = matrix[r, k : k + 1].view(np.uint8)
    return image, leading, stride


def run_product(a, b, types, tail, build_a, build_b, n, mode=1, out_type=np.float32):
    """Run one wgmma on images of a [64, k] and b [n, k]; return the accumulators as a matrix."""
    image_a, leading_a, stride_a = build_a(a, mode)
    image_b, leading_b, stride_b = build_b(b, mode)
    start_b = -(-image_a.size // 1024) * 1024
    image = np.zeros(start_b + -(-image_b.size // 2048) * 2048, np.uint8)
    image[: image_a.size], image[start_b : start_b + image_b.size] = image_a, image_b
    text = product_kernel(
        n,
        f"wgmma.mma_async.sync.aligned.m64n{n}k{a.shape[1]}.{types} {{d}}, d4, d5, {tail};",
        descriptor(0, leading_a, stride_a, mode),
        descriptor(start_b, leading_b, stride_b, mode),
        image.size // 16,
    )
    out = np.zeros((128, n // 2), out_type)
    execute(text, block=128, args=[image, out], smem_bytes=image.size, check_uninitialised=False)
    return gather(out, n)


@pytest.mark.parametrize("mode", [0, 1, 2, 3])
@pytest.mark.parametrize("transposes", [(0, 0), (0, 1), (1, 0), (1, 1)])
def test_wgmma_reads_every_layout(mode, transposes):
    a, b = small((64, 16), BF16), small((64, 16), BF16)
    build_a, build_b = (mn_major_image if flag else k_major_image for flag in transposes)
    tail = f"0, 1, 1, {transposes[0]}, {transposes[1]}"
    got = run_product(a, b, "f32.bf16.bf16", tail, build_a, build_b, 64, mode)
    np.testing.assert_array_equal(got, a.astype(np.float32) @ b.astype(np.float32).T)


@pytest.mark.parametrize(
    ("types", "kind", "tail", "out_type"),
    [
        ("f32.f16.f16", np.float16, "1, -1, 1, 0, 0", np.float32),
        ("f32.tf32.tf32", np.float32, "0, 1, 1", np.float32),
        ("f32.e4m3.e4m3", ml_dtypes.float8_e4m3fn, "0, 1, 1", np.float32),
        ("f32.e5m2.e5m2", ml_dtypes.float8_e5m2, "0, 1, -1", np.float32),
        ("s32.s8.s8", np.int8, "0", np.int32),
        ("s32.u8.u8", np.uint8, "0", np.int32),
    ],
)
def test_wgmma_types_and_scales(types, kind, tail, out_type):
    depth = 32 // np.dtype(kind).itemsize
    a, b = small((64, depth), kind), small((24, depth), kind)
    got = run_product(a, b, types, tail, k_major_image, k_major_image, 24, 1, out_type)
    sign = -1 if "-1" in tail else 1
    start = 1 if tail.startswith("1") else 0
    expected = sign * (a.astype(np.float64) @ b.astype(np.float64).T) + start
    np.testing.assert_array_equal(got, expected.astype(out_type))


def from_registers(extra: str = "", fence: str = "wgmma.fence.sync.aligned;") -> str:
    """A in registers: P[row, k] = row + 1 on the diagonal of each 16-row slice, as bf16."""
    return kernel(
        "u64 image, u64 out",
        f"""{FILL.replace("CHUNKS", "128")}
        {descriptor(0, 128, 1024, 1).replace("dX", "d5")}
        ld.param.u64 d4, [image]; mad.wide.u32 d4, r0, 16, d4;
        ld.global.v4.b32 {{r10, r11, r12, r13}}, [d4+2048];
        mad.wide.u32 d6, r0, 16, d1;
        {fence}
        wgmma.mma_async.sync.aligned.m64n8k16.f32.bf16.bf16
            {{f0, f1, f2, f3}}, {{r10, r11, r12, r13}}, d5, 0, 1, 1, 0;
        wgmma.commit_group.sync.aligned;
        {extra}
        wgmma.wait_group.sync.aligned 0;
        st.global.v4.f32 [d6], {{f0, f1, f2, f3}};""",
        ".reqntid 128,1,1",
    )


def register_image() -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    a, b = small((64, 16), BF16), small((8, 16), BF16)
    fragments = []
    for warp in range(4):
        lanes = lanes_of_a(a[16 * warp : 16 * warp + 16].view(np.uint16), 2)
        fragments.append(np.stack([lanes[i] for i in range(4)], axis=1))
    image = np.zeros(4096, np.uint8)
    tile = k_major_image(b, 1)[0]
    image[: tile.size] = tile
    image[2048:] = np.concatenate(fragments).reshape(-1).view(np.uint8)
    return a, b, image


@pytest.mark.parametrize("seed", range(3))
def test_wgmma_takes_a_from_registers(seed):
    a, b, image = register_image()
    out = np.zeros((128, 4), np.float32)
    execute(from_registers(), block=128, args=[image, out], smem_bytes=2048, seed=seed)
    np.testing.assert_array_equal(gather(out, 8), a.astype(np.float32) @ b.astype(np.float32).T)


@pytest.mark.parametrize(
    ("extra", "fence"),
    [
        ("mov.f32 f9, f1;", "wgmma.fence.sync.aligned;"),
        ("mov.f32 f1, f9;", "mov.f32 f9, 0f00000000; wgmma.fence.sync.aligned;"),
        ("mov.b32 r11, 0;", "wgmma.fence.sync.aligned;"),
        ("", ""),
        ("", "wgmma.fence.sync.aligned; mov.b32 r10, r11;"),
    ],
)
def test_registers_in_flight_are_guarded(extra, fence):
    _, _, image = register_image()
    out = np.zeros((128, 4), np.float32)
    for seed in range(3):
        with pytest.raises(InFlightError):
            execute(
                from_registers(extra, fence),
                block=128,
                args=[image, out],
                smem_bytes=2048,
                seed=seed,
            )


def test_wgmma_needs_a_proxy_fence_and_a_common_descriptor():
    _, _, image = register_image()
    out = np.zeros((128, 4), np.float32)
    text = from_registers()
    with pytest.raises(ProxyError):
        mutant = text.replace("fence.proxy.async.shared::cta;", "")
        execute(mutant, block=128, args=[image, out], smem_bytes=2048)
    with pytest.raises(DivergenceError, match="different wgmma"):
        skewed = "shr.u32 r20, r0, 5; cvt.u64.u32 d9, r20; add.u64 d5, d5, d9; wgmma.fence"
        execute(
            text.replace("wgmma.fence", skewed),
            block=128,
            args=[image, out],
            smem_bytes=2048,
            check_uninitialised=False,
        )
