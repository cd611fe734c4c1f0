"""Instructions that multiply matrices.

Source: PTX ISA 9.2, "Asynchronous Warpgroup Level Matrix Instructions" and "Warp Level Matrix
Instructions".
"""

from __future__ import annotations

from collections.abc import Callable

from reftile.ir import ops
from reftile.ir.core import Op
from reftile.ir.types import TileType
from reftile.lower.fragments import register_of
from reftile.lower.ptx.shapes import layout_for
from reftile.lower.ptx.writer import Writer, kind_of, packing, tile_of
from reftile.lower.warp_products import instruction_of

_SWIZZLE_MODES = {128: 1, 64: 2, 32: 3, 16: 0}
_TYPES = {"f8e4m3": "e4m3", "f8e5m2": "e5m2", "i8": "s8"}
_RESULTS = {"i32": "s32"}


def _open(writer: Writer, op: Op) -> None:
    writer.result(op.results[0])


def _wait(writer: Writer, op: Op) -> None:
    assert isinstance(op, ops.WaitProducts)
    writer.line(f"wgmma.wait_group.sync.aligned {op.in_flight};")
    for value in op.values:
        writer.result(value)


def _descriptor(writer: Writer, op: Op) -> None:
    """The constant half of a descriptor, and the address in units of 16 bytes.

    Bits from 24 on of a shared address are the block's rank in its cluster; the field of 14 bits
    has no place for them, and the next one is the leading offset.
    """
    assert isinstance(op, ops.MatrixDescriptor)
    address = writer.one(op.address)
    (result,) = writer.result(op.result)
    high = _SWIZZLE_MODES[op.swizzle] << 62 | op.stride >> 4 << 32 | op.leading >> 4 << 16
    chunk = writer.register("b32", "chunk")
    writer.line(f"bfe.u32 {chunk}, {address}, 4, 14;")
    writer.line(f"cvt.u64.u32 {result}, {chunk};")
    writer.line(f"or.b64 {result}, {result}, 0x{high:016X};")


def _moved(writer: Writer, descriptor: str, offset: int) -> str:
    if not offset:
        return descriptor
    found = writer.register("b64", "descriptor")
    writer.line(f"add.s64 {found}, {descriptor}, {offset >> 4};")
    return found


def _multiply(writer: Writer, op: Op) -> None:
    assert isinstance(op, ops.MultiplyAsync)
    kind = tile_of(op.result)
    columns = kind.shape[1]
    bits = {"bf16": 16, "f16": 16, "tf32": 32}.get(op.dtype, 8)
    targets = writer.result(op.result)
    each = columns // 2 // packing(op.result)
    acc = targets[op.rows // 64 * each :][:each]
    rhs = _moved(writer, writer.one(op.rhs), op.rhs_offset)
    if isinstance(op.lhs.type, TileType) and op.lhs.type.shape:
        per = 32 // bits
        registers = writer.in_registers(writer.elements(op.lhs), kind_of(op.lhs))
        first = op.lhs_offset // per
        lhs = f"{{{', '.join(registers[first : first + 4])}}}"
    else:
        lhs = _moved(writer, writer.one(op.lhs), op.lhs_offset)
    scale = "0" if op.fresh else "1"
    if op.accumulate is not None:
        scale = writer.predicate(op.accumulate)
    tail = ", 1, 1"
    if bits == 16:
        tail += f", {int(op.transpose_lhs)}" if not lhs.startswith("{") else ""
        tail += f", {int(op.transpose_rhs)}"
    dtype = _TYPES.get(op.dtype, op.dtype)
    result = kind.dtype.name
    writer.line(
        f"wgmma.mma_async.sync.aligned.m64n{columns}k{256 // bits}"
        f".{_RESULTS.get(result, result)}.{dtype}.{dtype} "
        f"{{{', '.join(acc)}}}, {lhs}, {rhs}, {scale}{'' if dtype == 's8' else tail};"
    )


def _multiply_warps(writer: Writer, op: Op) -> None:
    """One `mma.sync` for each part of the result and each step of k, k outermost."""
    assert isinstance(op, (ops.Mmaf, ops.Mmai))
    shape = instruction_of(op)
    operands = (op.lhs, op.rhs, op.acc)
    layouts = [layout_for(v) for v in operands]
    lhs, rhs, acc = (register_of(layout) for layout in layouts if layout is not None)
    a, b, c = (writer.in_registers(writer.elements(v), kind_of(v)) for v in operands)
    d = writer.result(op.result)
    per = packing(op.lhs), packing(op.rhs), packing(op.result)
    counts = [
        rows * columns // 32 // each
        for (rows, columns), each in zip(
            ((shape.m, shape.k), (shape.k, shape.n), (shape.m, shape.n)), per, strict=True
        )
    ]
    types = shape.types
    if isinstance(op, ops.Mmai):
        signs = (op.signedness_lhs, op.signedness_rhs)
        left, right = ("u" if sign == "unsigned" else "s" for sign in signs)
        types = types.format(lhs=left, rhs=right)
    depths = sorted({k for _, k in lhs if k % shape.k == 0})
    blocks = sorted((m, n) for m, n in acc if m % shape.m == 0 and n % shape.n == 0)

    def part(registers: list[str], first: int, port: int) -> str:
        begin = first // per[port]
        return ", ".join(registers[begin : begin + counts[port]])

    for k in depths:
        for m, n in blocks:
            into, given = part(d, acc[m, n], 2), part(c if k == depths[0] else d, acc[m, n], 2)
            left, right = part(a, lhs[m, k], 0), part(b, rhs[k, n], 1)
            writer.line(
                f"mma.sync.aligned.m{shape.m}n{shape.n}k{shape.k}.row.col.{types} "
                f"{{{into}}}, {{{left}}}, {{{right}}}, {{{given}}};"
            )


def _fixed(text: str) -> Callable[[Writer, Op], None]:
    return lambda writer, op: writer.line(text)


PRODUCTS: dict[str, Callable[[Writer, Op], None]] = {
    "open_accumulator": _open,
    "fence_products": _fixed("wgmma.fence.sync.aligned;"),
    "matrix_descriptor": _descriptor,
    "multiply_async": _multiply,
    "mmaf": _multiply_warps,
    "mmai": _multiply_warps,
    "commit_products": _fixed("wgmma.commit_group.sync.aligned;"),
    "wait_products": _wait,
}
