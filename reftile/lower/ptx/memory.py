"""Instructions that move data: shared memory, lanes, matrices, bulk copies, copies of threads.

Sources: PTX ISA 9.2, "Data Movement and Conversion Instructions"; cache policies as CUTLASS encodes
them (cute/arch/copy_sm90_desc.hpp, TMA::CacheHintSm90).
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from math import inf, nan

import numpy as np

from reftile.ir import ops
from reftile.ir.core import Op, Value
from reftile.ir.dtypes import F64, DType
from reftile.ir.numbers import convert, encode
from reftile.ir.types import PointerType, TileType
from reftile.lower.ptx.exchange import change_layout
from reftile.lower.ptx.table import register_kind
from reftile.lower.ptx.threads import is_for_hopper
from reftile.lower.ptx.writer import Held, Shifted, Writer, packing, tile_of

_POLICIES = {"first": "0x12F0000000000000", "last": "0x14F0000000000000"}


def _shared_address(writer: Writer, op: Op) -> None:
    assert isinstance(op, ops.SharedAddress)
    writer.held[op.result] = Held([Shifted(writer.shared, op.offset)])


def _map_shared(writer: Writer, op: Op) -> None:
    assert isinstance(op, ops.MapShared)
    address, rank = writer.one(op.address), writer.one(op.rank)
    (result,) = writer.result(op.result)
    writer.line(f"mapa.shared::cluster.u32 {result}, {address}, {rank};")


def _access(value: Value) -> str:
    """The type of an access to one element: registers may be wider."""
    element = tile_of(value).element
    if isinstance(element, DType) and element.bits <= 8:
        return "b8"
    return register_kind(element)


def _load_shared(writer: Writer, op: Op) -> None:
    assert isinstance(op, ops.LoadShared)
    (result,) = writer.result(op.result)
    space = "shared::cluster" if op.cluster else "shared"
    writer.line(f"ld.{space}.{_access(op.result)} {result}, {writer.address(op.address)};")


def _store_shared(writer: Writer, op: Op) -> None:
    assert isinstance(op, ops.StoreShared)
    value = writer.one(op.value)
    space = "shared::cluster" if op.cluster else "shared"
    writer.line(f"st.{space}.{_access(op.value)} {writer.address(op.address)}, {value};")


def _store_vector(writer: Writer, op: Op) -> None:
    assert isinstance(op, ops.StoreVector)
    held = writer.get(op.source)
    if op.count % held.each == 0 and op.first % held.each == 0:
        units = held.elements[op.first // held.each : (op.first + op.count) // held.each]
        found = [writer.ready(e) for e in units]
        kind = "b32" if held.each > 1 else _access(op.source)
    else:
        found = writer.single(op.source)[op.first : op.first + op.count]
        kind = _access(op.source)
    found, kind = _narrow(writer, found, kind)
    width = f".v{len(found)}" if len(found) > 1 else ""
    values = f"{{{', '.join(found)}}}" if len(found) > 1 else found[0]
    place = writer.address(op.address, op.offset)
    guard = f"@{writer.predicate(op.inside)} " if op.inside is not None else ""
    writer.line(f"{guard}st.{_SPACES[op.space]}{width}.{kind} {place}, {values};")


def _narrow(writer: Writer, found: list[str], kind: str) -> tuple[list[str], str]:
    """Bytes and halves in vectors of words: a vector has four parts at most."""
    if kind == "b8" and len(found) % 4 == 0:
        return writer.join(found, 4), "b32"
    if kind == "b16" and len(found) % 2 == 0:
        return writer.join(found, 2), "b32"
    return found, kind


def _reduce_vector(writer: Writer, op: Op) -> None:
    assert isinstance(op, ops.ReduceVector)
    kind = tile_of(op.source).dtype
    if kind.name == "bf16" and not is_for_hopper(op):
        raise writer.unsupported(op.source, "adding bf16 to memory before sm_90")
    name, letter = _REDUCTIONS[op.mode]
    form = kind.name if letter == "f" else f"{letter}{kind.bits}"
    noftz = ".noftz" if kind.bits == 16 else ""
    value = writer.single(op.source)[op.first]
    guard = f"@{writer.predicate(op.inside)} " if op.inside is not None else ""
    place = writer.address(op.address, op.offset)
    scope = SCOPES[op.scope]
    writer.line(f"{guard}red.relaxed.{scope}.global.{name}{noftz}.{form} {place}, {value};")


_REDUCTIONS = {
    "and": ("and", "b"),
    "or": ("or", "b"),
    "xor": ("xor", "b"),
    "add": ("add", "u"),
    "addf": ("add", "f"),
    "max": ("max", "s"),
    "min": ("min", "s"),
    "umax": ("max", "u"),
    "umin": ("min", "u"),
}
SCOPES = {"tl_blk": "cta", "block": "cta", "device": "gpu", "sys": "sys"}
_SPACES = {"shared": "shared", "global": "global", "cluster": "shared::cluster"}
_PADDINGS = {"zero": 0.0, "neg_zero": -0.0, "nan": nan, "pos_inf": inf, "neg_inf": -inf}


def _load_vector(writer: Writer, op: Op) -> None:
    """Words where elements of 8 and 16 bits fill them, else elements one by one."""
    assert isinstance(op, ops.LoadVector)
    each = packing(op.result)
    kind = _access(op.result)
    words = {"b8": 4, "b16": 2}.get(kind, 1)
    if each == 1 and words > 1 and op.count % words == 0:
        _load_unpacked(writer, op, words)
        return
    if op.count % each:
        _load_singles(writer, op)
        return
    targets = writer.result(op.result)
    width = op.count // each
    for i in range(len(op.which)):
        registers = targets[i * width : (i + 1) * width]
        _load(writer, op, i, registers, "b32" if each > 1 else kind, each)


def _load(
    writer: Writer,
    op: ops.LoadVector,
    number: int,
    registers: Sequence[str],
    kind: str,
    each: int,
) -> None:
    guard = _fill(writer, op, number, registers, kind, each)
    vector = f".v{len(registers)}" if len(registers) > 1 else ""
    values = f"{{{', '.join(registers)}}}" if len(registers) > 1 else registers[0]
    place = writer.address(op.addresses[op.which[number]], op.offsets[number])
    writer.line(f"{guard}ld.{_SPACES[op.space]}{vector}.{kind} {values}, {place};")


def _load_unpacked(writer: Writer, op: ops.LoadVector, words: int) -> None:
    """Elements that share no registers, loaded by words."""
    found: list[str] = []
    for i in range(len(op.which)):
        units = [writer.register("b32", "word") for _ in range(op.count // words)]
        _load(writer, op, i, units, "b32", words)
        found += [part for unit in units for part in writer.split(unit, words)]
    writer.hold(op.result, found)


def _load_singles(writer: Writer, op: ops.LoadVector) -> None:
    """Elements one by one, or by twos, that share registers afterwards."""
    kind = _access(op.result)
    found: list[str] = []
    for i in range(len(op.which)):
        parts = [writer.register("b16", "half") for _ in range(op.count)]
        _load(writer, op, i, parts, kind, 1)
        found += parts
    writer.hold(op.result, found)


def _fill(
    writer: Writer, op: ops.LoadVector, number: int, registers: Sequence[str], kind: str, each: int
) -> str:
    """Write what stands outside first; give the guard of the load."""
    if not op.guards:
        return ""
    condition = writer.predicate(op.inside[op.guards[number]])
    bits = _padding_bits(op)
    for register in registers:
        if each > 1:
            unit = sum(bits << k * 32 // each for k in range(each))
            writer.line(f"mov.b32 {register}, 0x{unit:X};")
        elif kind in ("f32", "f64"):
            prefix, digits = ("0f", 8) if kind == "f32" else ("0d", 16)
            writer.line(f"mov.{kind} {register}, {prefix}{bits:0{digits}X};")
        else:
            writer.line(f"mov.{'b16' if kind == 'b8' else kind} {register}, 0x{bits:X};")
    return f"@{condition} "


def _padding_bits(op: ops.LoadVector) -> int:
    dtype = tile_of(op.result).dtype
    value = np.array([_PADDINGS[op.fill or "zero"]], np.float64)
    if dtype.is_int:
        return 0
    encoded = np.asarray(encode(convert(value, F64, dtype), dtype))
    return int(encoded.view(f"u{encoded.dtype.itemsize}")[0])


def _prefetch_tensor(writer: Writer, op: Op) -> None:
    assert isinstance(op, ops.PrefetchTensor)
    index = ", ".join(writer.one(v) for v in op.index)
    described = writer.one_map(op.map)
    name = f"cp.async.bulk.prefetch.tensor.{len(op.index)}d.L2.global"
    writer.line(f"{name} [{described}, {{{index}}}];")


def _store_matrix(writer: Writer, op: Op) -> None:
    assert isinstance(op, ops.StoreMatrix)
    trans = ".trans" if op.transpose else ""
    elements = writer.get(op.source).elements[op.first // 2 : op.first // 2 + 4]
    values = ", ".join(writer.in_registers([writer.ready(e) for e in elements], "b32"))
    place = writer.address(op.address, op.offset)
    writer.line(f"stmatrix.sync.aligned.m8n8.x4{trans}.shared.b16 {place}, {{{values}}};")


def _load_matrix(writer: Writer, op: Op) -> None:
    assert isinstance(op, ops.LoadMatrix)
    targets = writer.result(op.result)
    trans = ".trans" if op.transpose else ""
    for i, offset in enumerate(op.offsets):
        values = ", ".join(targets[4 * i : 4 * i + 4])
        place = writer.address(op.addresses[op.which[i]], offset)
        writer.line(f"ldmatrix.sync.aligned.m8n8.x4{trans}.shared.b16 {{{values}}}, {place};")


# Bulk copies


def _load_tensor(writer: Writer, op: Op) -> None:
    assert isinstance(op, ops.LoadTensor)
    described, destination = writer.one_map(op.map), writer.address(op.destination)
    index = ", ".join(writer.one(v) for v in op.index)
    barrier = writer.address(op.barrier)
    form, tail = "", ""
    if op.multicast is not None:
        mask = writer.register("b16", "mask")
        source = writer.one(op.multicast)
        is_number = source.isdigit()
        writer.line(f"mov.b16 {mask}, {source};" if is_number else f"cvt.u16.u32 {mask}, {source};")
        form, tail = ".multicast::cluster", f", {mask}"
    if op.evict != "normal":
        policy = writer.register("b64", "policy")
        writer.line(f"mov.b64 {policy}, {_POLICIES[op.evict]};")
        form, tail = f"{form}.L2::cache_hint", f"{tail}, {policy}"
    writer.line(
        f"cp.async.bulk.tensor.{len(op.index)}d.shared::cluster.global"
        f".mbarrier::complete_tx::bytes{form} "
        f"{destination}, [{described}, {{{index}}}], {barrier}{tail};"
    )


def _store_tensor(writer: Writer, op: Op) -> None:
    assert isinstance(op, ops.StoreTensor)
    described, source = writer.one_map(op.map), writer.address(op.source)
    index = ", ".join(writer.one(v) for v in op.index)
    rank = f"{len(op.index)}d"
    place = f"[{described}, {{{index}}}], {source};"
    if op.mode == "store":
        writer.line(f"cp.async.bulk.tensor.{rank}.global.shared::cta.bulk_group {place}")
    else:
        name = f"cp.reduce.async.bulk.tensor.{rank}.global.shared::cta.{op.mode}.tile.bulk_group"
        writer.line(f"{name} {place}")


def _commit_bulk(writer: Writer, op: Op) -> None:
    writer.line("cp.async.bulk.commit_group;")


def _wait_bulk(writer: Writer, op: Op) -> None:
    assert isinstance(op, ops.WaitBulk)
    read = ".read" if op.until == "source_free" else ""
    writer.line(f"cp.async.bulk.wait_group{read} {op.in_flight};")


def _prefetch_map(writer: Writer, op: Op) -> None:
    assert isinstance(op, ops.PrefetchTensorMap)
    writer.line(f"prefetch.tensormap [{writer.one_map(op.map)}];")


# Copies of threads


def _copy_async(writer: Writer, op: Op) -> None:
    assert isinstance(op, ops.CopyAsync)
    source = writer.address(op.source)
    destination = writer.address(op.destination, op.destination_offset)
    cache = "cg" if op.bytes == 16 else "ca"
    size = ""
    if op.readable is not None:
        size = f", {writer.one(op.readable)}"
    writer.line(f"cp.async.{cache}.shared.global {destination}, {source}, {op.bytes}{size};")


def _commit_async(writer: Writer, op: Op) -> None:
    writer.line("cp.async.commit_group;")


def _wait_async(writer: Writer, op: Op) -> None:
    assert isinstance(op, ops.WaitAsync)
    writer.line(f"cp.async.wait_group {op.in_flight};")


def _global_address(writer: Writer, op: Op) -> None:
    assert isinstance(op, ops.GlobalAddress)
    writer.held[op.result] = Held(writer.elements(op.pointer))


def _increment(writer: Writer, op: Op) -> None:
    assert isinstance(op, ops.AtomicIncWrapTko)
    assert isinstance(op.result.type, TileType)
    scope = SCOPES[op.scope]
    pointer, limit = writer.one(op.pointer), writer.one(op.limit)
    (result,) = writer.result(op.result)
    writer.line(f"atom.{op.ordering}.{scope}.global.inc.u32 {result}, [{pointer}], {limit};")


def _update(writer: Writer, op: Op) -> None:
    assert isinstance(op, ops.AtomicRmwTko)
    kind = tile_of(op.result).dtype
    if kind.name == "bf16" and not is_for_hopper(op):
        raise writer.unsupported(op.arg, "adding bf16 to memory before sm_90")
    name, letter = _REDUCTIONS.get(op.mode, ("exch", "b"))
    form = kind.name if letter == "f" else f"{letter}{kind.bits}"
    noftz = ".noftz" if kind.bits == 16 else ""
    pointer, value = writer.one(op.pointers), _in_register(writer, op.arg)
    (result,) = writer.result(op.result)
    head = f"atom.{op.ordering}.{SCOPES[op.scope]}.global.{name}{noftz}.{form}"
    writer.line(f"{head} {result}, [{pointer}], {value};")


def _swap(writer: Writer, op: Op) -> None:
    assert isinstance(op, ops.AtomicCasTko)
    bits = tile_of(op.result).dtype.bits
    pointer = writer.one(op.pointers)
    expected, value = (_in_register(writer, v) for v in (op.cmp, op.val))
    (result,) = writer.result(op.result)
    head = f"atom.{op.ordering}.{SCOPES[op.scope]}.global.cas.b{bits}"
    writer.line(f"{head} {result}, [{pointer}], {expected}, {value};")


def _in_register(writer: Writer, value: Value) -> str:
    """A scalar for an untyped instruction."""
    (found,) = writer.in_registers([writer.one(value)], register_kind(tile_of(value).element))
    return found


def _offset(writer: Writer, op: Op) -> None:
    """Elements are counted with a sign; addresses wrap."""
    assert isinstance(op, ops.Offset)
    element = tile_of(op.ptr).element
    assert isinstance(element, PointerType)
    size = element.pointee.bits // 8
    number = tile_of(op.offset).dtype
    if number.bits not in (32, 64) or not size:
        raise writer.unsupported(op.offset, "a pointer advanced by these")
    pointers, amounts = writer.elements(op.ptr), writer.elements(op.offset)
    for target, pointer, amount in zip(writer.result(op.result), pointers, amounts, strict=True):
        if number.bits == 32:
            writer.line(f"mad.wide.s32 {target}, {amount}, {size}, {pointer};")
        else:
            writer.line(f"mad.lo.s64 {target}, {amount}, {size}, {pointer};")


MEMORY: dict[str, Callable[[Writer, Op], None]] = {
    "change_layout": change_layout,
    "shared_address": _shared_address,
    "map_shared": _map_shared,
    "load_shared": _load_shared,
    "store_shared": _store_shared,
    "store_vector": _store_vector,
    "reduce_vector": _reduce_vector,
    "store_matrix": _store_matrix,
    "load_vector": _load_vector,
    "prefetch_tensor": _prefetch_tensor,
    "load_matrix": _load_matrix,
    "load_tensor": _load_tensor,
    "store_tensor": _store_tensor,
    "commit_bulk": _commit_bulk,
    "wait_bulk": _wait_bulk,
    "prefetch_tensor_map": _prefetch_map,
    "copy_async": _copy_async,
    "commit_async": _commit_async,
    "wait_async": _wait_async,
    "global_address": _global_address,
    "atomic_inc_wrap_tko": _increment,
    "atomic_rmw_tko": _update,
    "atomic_cas_tko": _swap,
    "offset": _offset,
}
