"""Bulk and tensor copies of the asynchronous proxy.

Source: PTX ISA, "cp.async.bulk", "cp.async.bulk.tensor", "cp.reduce.async.bulk(.tensor)", groups.
"""

from __future__ import annotations

import numpy as np

from tests.ptx_machine import text as t
from tests.ptx_machine.clocks import BEFORE, OPERATION
from tests.ptx_machine.errors import AccessError
from tests.ptx_machine.memory import SharedMemory, byte_indices, shared_target
from tests.ptx_machine.operands import Decoder, Modifiers, Step, instruction, no_operand
from tests.ptx_machine.warp import Wait

from .copies import build_lane_copy
from .mbarriers import find_for_copy
from .transfers import (
    Arrival,
    BulkLoad,
    BulkStore,
    Cargo,
    StoreQueue,
    box_cargo,
    check_run,
    global_box,
    global_run,
    new_operation,
    run_cargo,
    split_parts,
    tensor_map,
)

COMPLETION = "mbarrier::complete_tx::bytes"
REDUCTIONS = ("add", "min", "max", "inc", "dec", "and", "or", "xor")
REDUCE_TYPES = ("f16", "bf16", "b32", "u32", "s32", "b64", "u64", "s64", "f32", "f64")


@instruction("cp")
def build_cp(d: Decoder, ins: t.Instruction, m: Modifiers) -> Step:
    """Every copy instruction: lane copies, bulk, tensor, reductions, groups."""
    reducing = m.flag("reduce")
    m.one("async")
    if not m.flag("bulk"):
        return build_lane_copy(d, ins, m)
    if m.flag("commit_group"):
        d.count(ins, 0)
        return commit
    if m.flag("wait_group"):
        d.count(ins, 1)
        keep, reading = d.literal(ins, ins.operands[0]), m.flag("read")
        return lambda w: wait(w, keep, reading)
    tensor = m.flag("tensor")
    rank = 0
    if tensor:
        rank = int(m.one("1d", "2d", "3d", "4d", "5d")[0])
        m.flag("tile")
    if m.flag("prefetch"):
        return build_prefetch(d, ins, m, tensor, rank)
    spaces = [word for word in m.left if word in ("global", "shared::cta", "shared::cluster")]
    if len(spaces) != 2:
        raise m.fail("needs a destination and a source space")
    for word in spaces:
        m.left.remove(word)
    reduce = parse_reduction(m, tensor) if reducing else None
    if spaces[0] == "global":
        return build_store(d, ins, m, tensor, rank, reduce)
    return build_load(d, ins, m, tensor, rank, spaces, reduce)


def parse_reduction(m: Modifiers, tensor: bool) -> tuple[str, str | None]:
    name = m.one(*REDUCTIONS)
    if tensor:
        return name, None
    m.flag("noftz")
    return name, m.one(*REDUCE_TYPES)


def build_prefetch(d: Decoder, ins: t.Instruction, m: Modifiers, tensor: bool, rank: int) -> Step:
    m.one("L2")
    m.one("global")
    policy = m.flag("L2::cache_hint")
    d.count(ins, (1 if tensor else 2) + policy)
    if not tensor:
        d.address(ins, ins.operands[0])
        d.src(ins, ins.operands[1], "u32")
        return lambda w: None
    where = tensor_operand(d, ins, ins.operands[0], rank, m)

    def step(w) -> None:
        for lane in w.active_lanes().tolist():
            where(w, lane)

    return step


def tensor_operand(d: Decoder, ins: t.Instruction, operand: t.Operand, rank: int, m: Modifiers):
    """Return a function (warp, lane) -> (map, coordinates) of `[map, {c0, c1}]`."""
    if (
        not isinstance(operand, t.Memory)
        or len(operand.parts) != 2
        or not isinstance(operand.parts[1], t.Group)
    ):
        raise m.fail("needs [map, {coordinates}]")
    if len(operand.parts[1].parts) != rank:
        raise m.fail(f"needs {rank} coordinates")
    address = d.address_part(ins, operand.parts[0])
    get = [d.src(ins, part, "s32") for part in operand.parts[1].parts]

    def read(w, lane: int):
        return tensor_map(w, int(address(w)[lane])), tuple(int(g(w)[lane]) for g in get)

    return read


def build_load(
    d: Decoder, ins: t.Instruction, m: Modifiers, tensor: bool, rank: int, spaces: list[str], reduce
) -> Step:
    """Copies into shared memory, signalled by mbarriers; multicast reaches several CTAs."""
    m.one(COMPLETION)
    multicast, policy = m.flag("multicast::cluster"), m.flag("L2::cache_hint")
    if reduce and (tensor or spaces != ["shared::cluster", "shared::cta"]):
        raise m.fail("reductions into shared memory come from shared memory")
    if multicast and spaces != ["shared::cluster", "global"]:
        raise m.fail("multicast goes from global to shared::cluster")
    fixed = 3 if tensor else 4
    d.count(ins, fixed + multicast + policy)
    to, bar = d.address(ins, ins.operands[0]), d.address(ins, ins.operands[fixed - 1])
    where = tensor_operand(d, ins, ins.operands[1], rank, m) if tensor else None
    source = no_operand if tensor else d.address(ins, ins.operands[1])
    size = no_operand if tensor else d.src(ins, ins.operands[2], "u32")
    mask = d.src(ins, ins.operands[fixed], "b16") if multicast else None
    if policy:
        d.src(ins, ins.operands[-1], "b64")
    text = f"bulk copy of line {ins.line}"
    width = int(reduce[1].lstrip("bsuf")) // 8 if reduce else 1

    def take(w, lane: int) -> Cargo:
        if where:
            return box_cargo(w, *where(w, lane))
        return run_cargo(w, int(source(w)[lane]), int(size(w)[lane]), width, spaces[1])

    def step(w) -> None:
        for lane in w.active_lanes().tolist():
            cargo = take(w, lane)
            ranks = int(mask(w)[lane]) if mask else None
            arrivals = []
            for shared, offset in destinations(w, int(to(w)[lane]), spaces[0], ranks):
                barrier = barrier_of(w, int(bar(w)[lane]), shared, multicast, spaces[0])
                arrivals.append(arrive_at(w, shared, offset, cargo, barrier))
            agents = w.cta.cluster.agents.count
            w.machine.pending.append(BulkLoad(cargo, arrivals, text, agents, reduce))

    return step


def claim(shared: SharedMemory, index: np.ndarray, width: int) -> np.ndarray | slice:
    """Check the range of elements of a copy and return the bytes they cover."""
    low, high = int(index.min()) * width, int(index.max() + 1) * width
    shared.check_range(low, high)
    if high - low == index.size * width:
        return slice(low, high)
    return byte_indices(index * width, width)


def destinations(w, address: int, space: str, mask: int | None) -> list[tuple[SharedMemory, int]]:
    """Return (memory, offset) of every CTA that receives the data."""
    own, offset = shared_target(w, address, space)
    if mask is None:
        return [(own, offset)]
    ctas = w.cta.cluster.ctas
    if mask == 0 or mask >> len(ctas):
        raise AccessError(f"multicast mask {mask:#x} does not fit a cluster of {len(ctas)}")
    return [(cta.shared, offset) for cta in ctas if mask >> cta.rank & 1]


def barrier_of(w, address: int, shared: SharedMemory, multicast: bool, space: str):
    """Return the mbarrier that a destination signals: at the same offset in its own CTA."""
    holder, offset = shared_target(w, address, space)
    if multicast:
        return find_for_copy(w, (shared.rank + 1) << 24 | offset, "shared::cluster")
    if holder is not shared:
        raise AccessError("the mbarrier of a bulk copy is not in the CTA of its destination")
    return find_for_copy(w, address, space)


def arrive_at(w, shared: SharedMemory, offset: int, cargo: Cargo, barrier) -> Arrival:
    """Claim the destination bytes in the shadow and describe the delivery."""
    index = cargo.place(offset) // cargo.width
    where = claim(shared, index, cargo.width)
    number = new_operation(w)
    if shared.barriers and shared.opaque[where].any():
        raise AccessError("a bulk copy overwrites an mbarrier object")
    if w.machine.check_races:
        shared.shadow.write(where, OPERATION, number, w.clock, asynchronous=True)
    cta = w.cta.cluster.ctas[shared.rank]
    cta.outstanding += 1
    return Arrival(shared, index, cta, barrier, number, split_parts(w, index.size, cargo.unit))


def build_store(
    d: Decoder, ins: t.Instruction, m: Modifiers, tensor: bool, rank: int, reduce
) -> Step:
    """Copies out of shared memory, tracked by bulk groups."""
    m.one("bulk_group")
    policy = m.flag("L2::cache_hint")
    d.count(ins, (2 if tensor else 3) + policy)
    where = tensor_operand(d, ins, ins.operands[0], rank, m) if tensor else None
    to = no_operand if tensor else d.address(ins, ins.operands[0])
    source = d.address(ins, ins.operands[1])
    size = no_operand if tensor else d.src(ins, ins.operands[2], "u32")
    if policy:
        d.src(ins, ins.operands[-1], "b64")
    text = f"bulk store of line {ins.line}"
    width = 1 if not reduce or tensor else int(reduce[1].lstrip("bsuf")) // 8

    def step(w) -> None:
        agent, epoch = w.cta.cluster.agents.store(w.cta.rank, w.index), w.store_epoch + 1
        for lane in w.active_lanes().tolist():
            shared, offset = shared_target(w, int(source(w)[lane]), "shared::cta")
            operation = reduce
            if where:
                tm, coordinates = where(w, lane)
                target = global_box(w, tm, coordinates)
                index = tm.shared_offsets(offset) // tm.element_bytes
                operation = (reduce[0], tm.dtype) if reduce else None
            else:
                total = int(size(w)[lane])
                check_run(offset, total)
                target = global_run(w, int(to(w)[lane]), total, width)
                index = offset // width + np.arange(total // width)
            covered = claim(shared, index, target.width)
            if w.machine.check_races:
                shared.shadow.read(covered, agent, epoch, w.clock, asynchronous=True)
            w.cta.outstanding += 1
            store = BulkStore(w.cta, shared, index, target, operation, text)
            w.stores.setdefault(lane, StoreQueue()).open.append(store)
            w.machine.pending.append(store)

    return step


def commit(w) -> None:
    w.store_epoch += 1
    for lane in w.active_lanes().tolist():
        queue = w.stores.setdefault(lane, StoreQueue())
        queue.groups.append((w.store_epoch, queue.open))
        queue.open = []


def wait(w, keep: int, reading: bool) -> Wait:
    """Wait until all but the latest `keep` groups have read their source (or landed)."""
    queues = [w.stores[lane] for lane in w.active_lanes().tolist() if lane in w.stores]
    chosen = [(q, q.groups[: max(0, len(q.groups) - keep)]) for q in queues]
    stores = [s for _, groups in chosen for _, members in groups for s in members]
    done = (lambda s: s.source_free) if reading else (lambda s: s.done)

    def finish() -> None:
        agent = w.cta.cluster.agents.store(w.cta.rank, w.index)
        for queue, groups in chosen:
            if not groups:
                continue
            w.clock.epochs[BEFORE, agent] = max(w.clock.epochs[BEFORE, agent], groups[-1][0])
            if not reading:
                queue.groups = queue.groups[len(groups) :]

    return Wait(
        lambda: all(done(s) for s in stores),
        finish,
        lambda: f"{sum(not done(s) for s in stores)} bulk stores",
    )
