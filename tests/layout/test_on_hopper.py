"""The layouts against an NVIDIA GPU of compute capability 9.0: `pytest -m gpu tests/layout`.

Operands hold small integers, so that every product is exact. Each kernel takes raw images: what the
layouts say lies in each register or at each byte of shared memory, and returns raw images, too.
"""

import ctypes
from collections.abc import Sequence
from typing import Any

import numpy as np
import pytest

from reftile.layout.atoms import cover, fragment, memory
from reftile.layout.cost import count_conflicts, matrix_copy
from reftile.layout.descriptors import byte_offsets, matrix_descriptor, tensor_boxes
from reftile.layout.linear import Layout

pytestmark = pytest.mark.gpu

SHARED_BYTES = 128 * 1024
Array = np.ndarray[Any, Any]


# Driver


@pytest.fixture(scope="module", autouse=True)
def context() -> None:
    driver = pytest.importorskip("cuda.bindings.driver")
    if driver.cuInit(0)[0] != 0:
        pytest.skip("no CUDA driver")
    device = checked(driver.cuDeviceGet(0))
    major = driver.CUdevice_attribute.CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MAJOR
    if checked(driver.cuDeviceGetAttribute(major, device)) != 9:
        pytest.skip("needs compute capability 9.0")
    checked(driver.cuCtxSetCurrent(checked(driver.cuDevicePrimaryCtxRetain(device))))


def checked(result: Any) -> Any:
    assert int(result[0]) == 0, result[0]
    return result[1] if len(result) == 2 else result[1:]


def launch(
    body: str, threads: int, inputs: Sequence[Array], output: Array, tensor_map: Any = None
) -> Array:
    """Run PTX `body` on one block; %in0, ... and %out are global addresses, %smem is aligned."""
    from cuda.bindings import driver

    params = [f".param .u64 in{i}" for i in range(len(inputs))] + [".param .u64 out"]
    if tensor_map is not None:
        params.append(".param .align 64 .b8 map[128]")
    names = ", ".join([*(f"%in{i}" for i in range(len(inputs))), "%out"])
    loads = "\n".join(f"ld.param.u64 %in{i}, [in{i}];" for i in range(len(inputs)))
    ptx = f"""
.version 8.6
.target sm_90a
.address_size 64
.extern .shared .align 1024 .b8 dynamic[];
.visible .entry kernel({", ".join(params)}) .reqntid {threads} {{
.reg .b64 {names}, %at, %d<40>;
.reg .b32 %smem, %t, %lane, %i, %r<300>, %s<8>;
.reg .f32 %f<300>;
.reg .f64 %g<40>;
.reg .pred %p<4>;
{loads}
ld.param.u64 %out, [out];
mov.u32 %t, %tid.x;
and.b32 %lane, %t, 31;
mov.u32 %smem, dynamic;
{body}
ret;
}}
"""
    image = ctypes.create_string_buffer(ptx.encode() + b"\0")
    module = checked(driver.cuModuleLoadData(ctypes.addressof(image)))
    kernel = checked(driver.cuModuleGetFunction(module, b"kernel"))
    attribute = driver.CUfunction_attribute.CU_FUNC_ATTRIBUTE_MAX_DYNAMIC_SHARED_SIZE_BYTES
    checked(driver.cuFuncSetAttribute(kernel, attribute, SHARED_BYTES))
    buffers = list[Any]()
    for array in (*inputs, output):
        raw = np.ascontiguousarray(array)
        buffer = checked(driver.cuMemAlloc(max(raw.nbytes, 16)))
        checked(driver.cuMemcpyHtoD(buffer, raw.ctypes.data, raw.nbytes))
        buffers.append(buffer)
    values = [ctypes.c_uint64(int(b)) for b in buffers]
    pointers = [ctypes.addressof(v) for v in values]
    if tensor_map is not None:
        pointers.append(tensor_map(int(buffers[0])))
    packed = (ctypes.c_void_p * len(pointers))(*pointers)
    checked(
        driver.cuLaunchKernel(
            kernel, 1, 1, 1, threads, 1, 1, SHARED_BYTES, 0, ctypes.addressof(packed), 0
        )
    )
    checked(driver.cuCtxSynchronize())
    result = np.empty_like(output)
    checked(driver.cuMemcpyDtoH(result.ctypes.data, buffers[-1], result.nbytes))
    for buffer in buffers:
        checked(driver.cuMemFree(buffer))
    checked(driver.cuModuleUnload(module))
    return result


def copy_in(source: str, target: int, count: int, threads: int, label: str) -> str:
    """PTX: copy `count` bytes from global memory to shared offset `target`, 16 at a time."""
    return f"""
mul.lo.u32 %i, %t, 16;
{label}:
setp.ge.u32 %p0, %i, {count};
@%p0 bra {label}_end;
cvt.u64.u32 %at, %i;
add.u64 %at, %at, {source};
ld.global.v4.b32 {{%s0, %s1, %s2, %s3}}, [%at];
add.u32 %s4, %i, %smem;
st.shared.v4.b32 [%s4 + {target}], {{%s0, %s1, %s2, %s3}};
add.u32 %i, %i, {threads * 16};
bra {label};
{label}_end:
"""


# Numbers of each width, as raw bits


def integers(shape: tuple[int, ...], seed: int) -> Array:
    return np.random.default_rng(seed).integers(-3, 4, shape).astype(np.int64)


def encode(values: Array, kind: str) -> Array:
    """Small integers as raw elements (one unsigned integer each)."""
    single = values.astype(np.float32).view(np.uint32)
    match kind:
        case "bf16":
            return (single >> 16).astype(np.uint16)
        case "f16":
            return values.astype(np.float16).view(np.uint16)
        case "e4m3":
            table = {0: 0, 1: 0x38, 2: 0x40, 3: 0x44}
            codes = [table[abs(int(v))] | (0x80 if v < 0 else 0) for v in values.ravel()]
            return np.array(codes, np.uint8).reshape(values.shape)
        case "s8":
            return values.astype(np.int8).view(np.uint8)
        case "tf32":
            return single
        case "f64":
            return values.astype(np.float64).view(np.uint64)
        case _:
            raise AssertionError(kind)


BITS = {"bf16": 16, "f16": 16, "e4m3": 8, "s8": 8, "s4": 4, "tf32": 32, "f64": 64}


def pack_registers(layout: Layout, values: Array, kind: str) -> Array:
    """32-bit registers by (register, thread) that hold a tile; 64-bit ones count twice."""
    table = layout.indices().reshape(layout.extent("register"), layout.extent("lane"), -1)
    table = np.moveaxis(table, 2, 1).reshape(layout.extent("register"), -1)
    held = values.ravel()[table]
    if kind == "s4":
        nibbles = (held & 15).astype(np.uint32).reshape(-1, 8, held.shape[1])
        shifts = 4 * np.arange(8, dtype=np.uint32)[None, :, None]
        return np.bitwise_or.reduce(nibbles << shifts, axis=1)
    raw = np.ascontiguousarray(encode(held, kind).T)
    return np.ascontiguousarray(raw.view(np.uint32).reshape(held.shape[1], -1).T)


def unpack(layout: Layout, registers: Array) -> Array:
    """The tile that (register, thread) values make up; one element per register."""
    table = layout.indices().reshape(layout.extent("register"), layout.extent("lane"), -1)
    table = np.moveaxis(table, 2, 1).reshape(layout.extent("register"), -1)
    tile = np.zeros(layout.shape, registers.dtype)
    tile.reshape(-1)[table] = registers
    return tile


def image_of(layout: Layout, values: Array, kind: str) -> Array:
    """Bytes of shared memory that hold a tile."""
    raw = encode(values, kind)
    offsets = byte_offsets(layout, BITS[kind])
    size = raw.itemsize
    image = np.zeros(offsets.max() + size + 15 & ~15, np.uint8)
    for byte in range(size):
        image[offsets + byte] = (raw >> (8 * byte)).astype(np.uint8)
    return image


# mma.sync


MMA = [
    ("m16n8k16", "bf16", "f32", "b16"),
    ("m16n8k16", "f16", "f32", "b16"),
    ("m16n8k8", "f16", "f32", "b16"),
    ("m16n8k8", "tf32", "f32", "b32"),
    ("m16n8k4", "tf32", "f32", "b32"),
    ("m16n8k32", "e4m3", "f32", "b8"),
    ("m16n8k32", "s8", "s32", "b8"),
    ("m16n8k16", "s8", "s32", "b8"),
    ("m16n8k64", "s4", "s32", "b4"),
    ("m8n8k4", "f64", "f64", "b64"),
    ("m16n8k4", "f64", "f64", "b64"),
    ("m16n8k8", "f64", "f64", "b64"),
    ("m16n8k16", "f64", "f64", "b64"),
]


@pytest.mark.parametrize(("shape", "kind", "result", "width"), MMA)
def test_mma(shape: str, kind: str, result: str, width: str) -> None:
    a_layout, b_layout = (fragment(f"mma.{shape}.{width}.{x}") for x in "ab")
    d_layout = fragment("mma.m8n8.d" if shape.startswith("m8") else "mma.m16n8.d")
    a, b = integers(a_layout.shape, 1), integers(b_layout.shape, 2)
    words = [pack_registers(a_layout, a, kind), pack_registers(b_layout, b, kind)]
    wide = kind == "f64"
    count_d = d_layout.extent("register")
    operands = list[str]()
    body = "mul.wide.u32 %at, %lane, 4;\n"
    used = 0
    for i, operand in enumerate(words):
        names = list[str]()
        body += f"add.u64 %d0, %in{i}, %at;\n"
        for r in range(len(operand)):
            body += f"ld.global.b32 %r{used + r}, [%d0 + {128 * r}];\n"
            names.append(f"%r{used + r}")
        if wide:
            names = [f"%g{(used + r) // 2}" for r in range(0, len(operand), 2)]
            for r in range(0, len(operand), 2):
                pair = f"{{%r{used + r}, %r{used + r + 1}}}"
                body += f"mov.b64 %g{(used + r) // 2}, {pair};\n"
        used += len(operand)
        operands.append("{" + ", ".join(names) + "}")
    out_type, size = {"f32": ("f", 4), "s32": ("r", 4), "f64": ("g", 8)}[result]
    first = 30 if wide else 200
    outs = [f"%{out_type}{first + i}" for i in range(count_d)]
    zero = {"f32": "mov.f32 {}, 0f00000000;", "s32": "mov.b32 {}, 0;"}
    zero["f64"] = "mov.f64 {}, 0d0000000000000000;"
    body += "\n".join(zero[result].format(o) for o in outs)
    d = "{" + ", ".join(outs) + "}"
    body += f"\nmma.sync.aligned.{shape}.row.col.{result}.{kind}.{kind}.{result} "
    body += f"{d}, {operands[0]}, {operands[1]}, {d};\n"
    body += f"mul.wide.u32 %at, %lane, {size};\nadd.u64 %d0, %out, %at;\n"
    for i, o in enumerate(outs):
        body += f"st.global.{result.replace('s32', 'b32')} [%d0 + {32 * size * i}], {o};\n"
    dtype = {"f32": np.float32, "s32": np.int32, "f64": np.float64}[result]
    found = launch(body, 32, words, np.zeros((count_d, 32), dtype))
    np.testing.assert_array_equal(unpack(d_layout, found), a @ b)


# wgmma


def wgmma(
    kind: str, a: Array, b: Array, a_layout: Layout | None, b_layout: Layout, shift: int = 0
) -> Array:
    """D [64, n] of one instruction per k step; A from registers if it has no memory layout.

    shift: bytes by which A's buffer misses its alignment.
    """
    n, k = b.shape[1], a.shape[1]
    step = 256 // BITS[kind]
    b_found = matrix_descriptor(b_layout, BITS[kind], k_axis=0)
    b_image = image_of(b_layout, b, kind)
    inputs = [b_image]
    b_start = 64 * 1024
    body = copy_in("%in0", b_start, len(b_image), 128, "copy_b")
    b_words = [b_found.encode(b_start, k=j) for j in range(k // step)]
    if a_layout is None:
        registers = cover(fragment(f"wgmma.m64k{step}.b{BITS[kind]}.a"), a.shape)
        inputs.append(pack_registers(registers, a, kind))
        body += "mul.wide.u32 %at, %t, 4;\nadd.u64 %d0, %in1, %at;\n"
        for r in range(len(inputs[1])):
            body += f"ld.global.b32 %r{r}, [%d0 + {512 * r}];\n"
        a_major, a_words = True, [0] * (k // step)
    else:
        a_found = matrix_descriptor(a_layout, BITS[kind], k_axis=1)
        inputs.append(image_of(a_layout, a, kind))
        body += copy_in("%in1", shift, len(inputs[1]), 128, "copy_a")
        a_major = a_found.k_major
        a_words = [a_found.encode(shift, k=j) for j in range(k // step)]
    outs = "{" + ", ".join(f"%f{i}" for i in range(n // 2)) + "}"
    body += "fence.proxy.async.shared::cta;\nbar.sync 0;\n"
    body += "shr.u32 %s0, %smem, 4;\ncvt.u64.u32 %d2, %s0;\n"
    body += "\n".join(f"mov.f32 %f{i}, 0f00000000;" for i in range(n // 2))
    body += "\nwgmma.fence.sync.aligned;\n"
    tail = f", {int(not b_found.k_major)}" if BITS[kind] == 16 else ""
    for j in range(k // step):
        body += f"mov.u64 %d0, {a_words[j]};\nadd.u64 %d0, %d0, %d2;\n"
        body += f"mov.u64 %d1, {b_words[j]};\nadd.u64 %d1, %d1, %d2;\n"
        source = "%d0"
        ends = f"1, 1, 1, {int(not a_major)}{tail}" if tail else "1, 1, 1"
        if a_layout is None:
            source = "{" + ", ".join(f"%r{4 * j + r}" for r in range(4)) + "}"
            ends = f"1, 1, 1{tail}"
        body += f"wgmma.mma_async.sync.aligned.m64n{n}k{step}.f32.{kind}.{kind} "
        body += f"{outs}, {source}, %d1, {ends};\n"
    body += "wgmma.commit_group.sync.aligned;\nwgmma.wait_group.sync.aligned 0;\n"
    body += "mul.wide.u32 %at, %t, 4;\nadd.u64 %d0, %out, %at;\n"
    for i in range(n // 2):
        body += f"st.global.f32 [%d0 + {512 * i}], %f{i};\n"
    found = launch(body, 128, inputs, np.zeros((n // 2, 128), np.float32))
    return unpack(fragment(f"wgmma.m64n{n}.d"), found)


FORMS = ["swizzle128", "swizzle64", "swizzle32", "swizzle16"]


@pytest.mark.parametrize("b_form", [*FORMS, *(f"{f}.t" for f in FORMS)])
@pytest.mark.parametrize("a_form", [*FORMS, *(f"{f}.t" for f in FORMS)])
def test_wgmma_reads_every_form_through_its_descriptor(a_form: str, b_form: str) -> None:
    a, b = integers((64, 64), 3), integers((64, 128), 4)
    found = wgmma("bf16", a, b, memory(a_form, (64, 64), 16), memory(b_form, (64, 128), 16))
    np.testing.assert_array_equal(found, a @ b)


@pytest.mark.parametrize("n", [8, 64, 96, 176, 256])
def test_wgmma_accumulators_of_all_kinds_of_width(n: int) -> None:
    a, b = integers((64, 64), 5), integers((64, n), 6)
    found = wgmma("bf16", a, b, None, memory("swizzle128.t", (64, n), 16))
    np.testing.assert_array_equal(found, a @ b)


@pytest.mark.parametrize("form", FORMS)
@pytest.mark.parametrize("kind", ["bf16", "e4m3", "tf32"])
@pytest.mark.parametrize("in_registers", [True, False])
def test_wgmma_operands_of_each_width(kind: str, in_registers: bool, form: str) -> None:
    k = 1024 // BITS[kind]
    a, b = integers((64, k), 7), integers((k, 64), 8)
    a_layout = None if in_registers else memory(form, (64, k), BITS[kind])
    found = wgmma(kind, a, b, a_layout, memory(f"{form}.t", (k, 64), BITS[kind]))
    np.testing.assert_array_equal(found, a @ b)


@pytest.mark.parametrize("shift", [128, 256, 512, 896])
def test_base_offset_moves_the_pattern_with_the_buffer(shift: int) -> None:
    a, b = integers((64, 64), 9), integers((64, 64), 10)
    layout = memory("swizzle128", (64, 64), 16)
    found = wgmma("bf16", a, b, layout, memory("swizzle128.t", (64, 64), 16), shift)
    np.testing.assert_array_equal(found, a @ b)


# ldmatrix, stmatrix


COPIES = [
    (cover(fragment("mma.m16n8k16.b16.a"), (16, 64)), form, (16, 64))
    for form in ("swizzle128", "row_major", "swizzle16")
]
COPIES += [
    (cover(fragment("mma.m16n8k16.b16.b"), (64, 64)), "swizzle128", (64, 64)),
    (cover(fragment("mma.m16n8k16.b16.b"), (64, 64)), "swizzle64.t", (64, 64)),
    (cover(fragment("mma.m16n8.d"), (16, 8)), "row_major", (16, 8)),
    (cover(fragment("mma.m16n8k8.b16.b"), (8, 8)), "row_major.t", (8, 8)),
]


@pytest.mark.parametrize(("layout", "form", "shape"), COPIES)
@pytest.mark.parametrize("store", [False, True])
def test_matrix_copies(layout: Layout, form: str, shape: tuple[int, ...], store: bool) -> None:
    tile = memory(form, shape, 16)
    plan = matrix_copy(layout, tile, 16)
    values = integers(shape, 11)
    image = image_of(tile, values, "bf16")
    words = pack_registers(layout, values, "bf16")
    addresses = np.ascontiguousarray(plan.addresses[:, :, 0].astype(np.uint32))
    given = words if store else image
    body = "" if store else copy_in("%in0", 0, len(image), 32, "copy")
    body += "bar.sync 0;\nmul.wide.u32 %at, %lane, 4;\n"
    trans = ".trans" if plan.transposed else ""
    for i in range(len(plan.groups)):
        regs = [f"%r{plan.count * i + j}" for j in range(plan.count)]
        group = "{" + ", ".join(regs) + "}"
        body += f"add.u64 %d0, %in1, %at;\nld.global.b32 %s0, [%d0 + {128 * i}];\n"
        body += "add.u32 %s0, %s0, %smem;\n"
        if store:
            body += "add.u64 %d1, %in0, %at;\n"
            for j, r in enumerate(regs):
                body += f"ld.global.b32 {r}, [%d1 + {128 * (plan.count * i + j)}];\n"
            body += f"stmatrix.sync.aligned.m8n8.x{plan.count}{trans}.shared.b16 [%s0], {group};\n"
        else:
            body += f"ldmatrix.sync.aligned.m8n8.x{plan.count}{trans}.shared.b16 {group}, [%s0];\n"
            body += "add.u64 %d1, %out, %at;\n"
            for j, r in enumerate(regs):
                body += f"st.global.b32 [%d1 + {128 * (plan.count * i + j)}], {r};\n"
    expected = image if store else words
    if store:
        body += dump(len(image), 32)
    found = launch(body, 32, [given, addresses], np.zeros_like(expected))
    np.testing.assert_array_equal(found, expected)


def dump(count: int, threads: int) -> str:
    """PTX: write the first bytes of shared memory to the output."""
    return f"""
bar.sync 0;
mul.lo.u32 %i, %t, 16;
dump:
setp.ge.u32 %p0, %i, {count};
@%p0 bra dump_end;
add.u32 %s4, %i, %smem;
ld.shared.v4.b32 {{%s0, %s1, %s2, %s3}}, [%s4];
cvt.u64.u32 %at, %i;
add.u64 %at, %at, %out;
st.global.v4.b32 [%at], {{%s0, %s1, %s2, %s3}};
add.u32 %i, %i, {threads * 16};
bra dump;
dump_end:
"""


# TMA


@pytest.mark.parametrize(
    ("form", "shape", "kind"),
    [
        *((form, (64, 128), "bf16") for form in (*FORMS, "row_major")),
        *((f"{form}.t", (64, 64), "bf16") for form in FORMS),
        ("swizzle128", (96, 256), "s8"),
        ("swizzle64", (64, 96), "tf32"),
        ("swizzle128", (2, 64, 64), "bf16"),
    ],
)
def test_tensor_boxes_fill_the_layout(form: str, shape: tuple[int, ...], kind: str) -> None:
    layout = memory(form, shape, BITS[kind])
    boxes = tensor_boxes(layout, BITS[kind])
    values = integers(shape, 12)
    image = image_of(layout, values, kind)
    order = tuple(reversed(boxes.axes))
    tensor = np.ascontiguousarray(encode(values, kind).transpose(order))
    rank = len(shape)
    body = f"""
setp.ne.u32 %p1, %t, 0;
@%p1 bra wait;
mbarrier.init.shared::cta.b64 [%smem + {SHARED_BYTES - 64}], 1;
fence.mbarrier_init.release.cluster;
fence.proxy.async.shared::cta;
mov.b64 %d0, map;
cvta.param.u64 %d0, %d0;
mbarrier.arrive.expect_tx.shared::cta.b64 _, [%smem + {SHARED_BYTES - 64}],
    {boxes.box_bytes * len(boxes.boxes)};
"""
    for start, offset in boxes.boxes:
        at = ", ".join(str(start[axis]) for axis in boxes.axes)
        body += f"cp.async.bulk.tensor.{rank}d.shared::cluster.global.mbarrier::complete_tx::bytes "
        body += f"[%smem + {offset}], [%d0, {{{at}}}], [%smem + {SHARED_BYTES - 64}];\n"
    body += f"""
wait:
bar.sync 0;
again:
mbarrier.try_wait.parity.shared::cta.b64 %p2, [%smem + {SHARED_BYTES - 64}], 0;
@!%p2 bra again;
"""
    body += dump(len(image), 32)

    def tensor_map(address: int) -> int:
        raw = ctypes.create_string_buffer(192)
        aligned = ctypes.addressof(raw) + (-ctypes.addressof(raw)) % 64
        extents = [shape[axis] for axis in boxes.axes]
        strides = [int(np.prod(extents[: k + 1])) * BITS[kind] // 8 for k in range(rank - 1)]
        formats = {"bf16": 9, "s8": 0, "tf32": 7}
        status = ctypes.CDLL("libcuda.so.1").cuTensorMapEncodeTiled(
            ctypes.c_void_p(aligned),
            formats[kind],
            rank,
            ctypes.c_void_p(address),
            (ctypes.c_uint64 * rank)(*extents),
            (ctypes.c_uint64 * max(1, rank - 1))(*strides),
            (ctypes.c_uint32 * rank)(*boxes.extents),
            (ctypes.c_uint32 * rank)(*([1] * rank)),
            0,
            boxes.swizzle_mode,
            0,
            0,
        )
        assert status == 0
        kept.append(raw)
        return aligned

    kept = list[Any]()
    found = launch(body, 32, [tensor], np.zeros_like(image), tensor_map)
    np.testing.assert_array_equal(found, image)


# Bank conflicts


@pytest.mark.parametrize("width", [4, 8, 16])
def test_loads_take_time_in_proportion_to_counted_passes(width: int) -> None:
    generator = np.random.default_rng(13)
    patterns = [np.arange(32) * stride for stride in (width, 2 * width, 64, 128, 132, 144, 256)]
    patterns += [generator.integers(0, 4096 // width, 32) * width for _ in range(40)]
    lane = np.arange(32)
    for mask in (30, 29, 27, 23, 15, 28, 26, 0):
        patterns += [(lane & mask) * stride for stride in (width, 4 * width, 128)]
        patterns += [generator.permutation(32)[lane & mask] * width for _ in range(2)]
        patterns += [generator.integers(0, 4096 // width, 32)[lane & mask] * width]
    patterns += [
        np.where(lane < 16, lane & 30, lane) * width,
        np.where(lane % 8 < 4, lane & 30, lane & 29) * width,
    ]
    addresses = np.array(patterns) % 32768 // width * width
    idle = generator.random((40, 32)) < generator.random((40, 1))
    addresses = np.concatenate([addresses, np.where(idle, -1, addresses[-40:])])
    quarters = generator.random((60, 4, 1)) < 0.5
    distinct = np.broadcast_to(generator.permutation(32) * width, (60, 32)).reshape(60, 4, 8)
    addresses = np.concatenate([addresses, np.where(quarters, distinct, -1).reshape(60, 32)])
    addresses[-1, 1:] = -1
    cycles = time_loads(addresses.astype(np.int32), width)
    passes = np.array(
        [count_conflicts(a[None, :, None].astype(np.int64), width).wavefronts for a in addresses]
    )
    wrong = np.flatnonzero(np.abs(cycles - passes) > 0.2 + 0.03 * passes)
    for i in wrong:
        print(width, i, passes[i], cycles[i].round(2), (addresses[i] // width).tolist())
    per_pass = cycles[3] / passes[3]
    np.testing.assert_allclose(cycles, per_pass * passes, rtol=0.03, atol=0.2)


def time_loads(addresses: Array, width: int) -> Array:
    """Cycles per load for each row of lane addresses, with enough warps to keep memory busy."""
    rounds, unrolled, warps = 16, 16, 16
    vector = {4: "", 8: ".v2", 16: ".v4"}[width]
    loads = ""
    for j in range(unrolled):
        regs = [f"%r{4 * j + q}" for q in range(width // 4)]
        group = "{" + ", ".join(regs) + "}" if vector else regs[0]
        loads += f"ld.volatile.shared{vector}.b32 {group}, [%s0];\n"
    body = f"""
mul.wide.u32 %at, %lane, 4;
add.u64 %d0, %in0, %at;
mov.u64 %d3, %out;
mov.u32 %s1, 0;
setp.eq.u32 %p1, %t, 0;
next:
ld.global.b32 %s0, [%d0];
setp.eq.s32 %p2, %s0, -1;
add.u32 %s0, %s0, %smem;
mov.u32 %i, 0;
bar.sync 0;
mov.u64 %d1, %clock64;
@%p2 bra idle;
loop:
{loads}
add.u32 %i, %i, 1;
setp.lt.u32 %p0, %i, {rounds};
@%p0 bra loop;
idle:
bar.sync 0;
mov.u64 %d2, %clock64;
sub.u64 %d2, %d2, %d1;
@%p1 st.global.u64 [%d3], %d2;
add.u64 %d0, %d0, 128;
add.u64 %d3, %d3, 8;
add.u32 %s1, %s1, 1;
setp.lt.u32 %p0, %s1, {len(addresses)};
@%p0 bra next;
"""
    found = launch(body, 32 * warps, [addresses], np.zeros(len(addresses), np.uint64))
    return found / (rounds * unrolled * warps)
