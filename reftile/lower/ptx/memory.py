"""Instructions that move data: shared memory, matrices, bulk copies, copies of threads.

Sources: PTX ISA 9.2, "Data Movement and Conversion Instructions"; cache policies as CUTLASS encodes
them (cute/arch/copy_sm90_desc.hpp, TMA::CacheHintSm90).
"""

from __future__ import annotations

from collections.abc import Callable

from reftile.ir import ops
from reftile.ir.core import Op, Value
from reftile.ir.types import TileType
from reftile.lower.ptx.table import register_kind
from reftile.lower.ptx.writer import Held, Shifted, Writer, is_pairs, tile_of

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
    kind = register_kind(tile_of(value).element)
    return {"pred": "u8"}.get(kind, kind)


def _load_shared(writer: Writer, op: Op) -> None:
    assert isinstance(op, ops.LoadShared)
    (result,) = writer.result(op.result)
    writer.line(f"ld.shared.{_access(op.result)} {result}, {writer.address(op.address)};")


def _store_shared(writer: Writer, op: Op) -> None:
    assert isinstance(op, ops.StoreShared)
    value = writer.one(op.value)
    writer.line(f"st.shared.{_access(op.value)} {writer.address(op.address)}, {value};")


def _store_vector(writer: Writer, op: Op) -> None:
    assert isinstance(op, ops.StoreVector)
    each = 2 if is_pairs(op.source) else 1
    elements = writer.get(op.source).elements[op.first // each : (op.first + op.count) // each]
    found = [writer.ready(e) for e in elements]
    kind = "b32" if each == 2 else _access(op.source)
    width = f".v{len(found)}" if len(found) > 1 else ""
    values = f"{{{', '.join(found)}}}" if len(found) > 1 else found[0]
    place = writer.address(op.address, op.offset)
    guard = f"@{writer.predicate(op.inside)} " if op.inside is not None else ""
    writer.line(f"{guard}st.{op.space}{width}.{kind} {place}, {values};")


def _store_matrix(writer: Writer, op: Op) -> None:
    assert isinstance(op, ops.StoreMatrix)
    elements = writer.get(op.source).elements[op.first // 2 : op.first // 2 + 4]
    trans = ".trans" if op.transpose else ""
    values = ", ".join(map(writer.ready, elements))
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
    scope = {"tl_blk": "cta", "block": "cta", "device": "gpu", "sys": "sys"}[op.scope]
    pointer, limit = writer.one(op.pointer), writer.one(op.limit)
    (result,) = writer.result(op.result)
    writer.line(f"atom.{op.ordering}.{scope}.global.inc.u32 {result}, [{pointer}], {limit};")


MEMORY: dict[str, Callable[[Writer, Op], None]] = {
    "shared_address": _shared_address,
    "map_shared": _map_shared,
    "load_shared": _load_shared,
    "store_shared": _store_shared,
    "store_vector": _store_vector,
    "store_matrix": _store_matrix,
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
}
