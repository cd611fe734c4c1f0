"""Instructions of threads and barriers: who am I, meetings, phases, fences.

Sources: PTX ISA 9.2, "Parallel Synchronization and Communication Instructions"; the cost of
spellings on sm_90a as ptxas 13.0 assembles them (an unqualified `mbarrier.arrive.release.cluster`
is a device-wide wait).
"""

from __future__ import annotations

from collections.abc import Callable

from reftile.ir import ops
from reftile.ir.core import Op
from reftile.ir.targets import instructions_of
from reftile.lower.ptx.writer import Writer


def _special(name: str) -> Callable[[Writer, Op], None]:
    def emit(writer: Writer, op: Op) -> None:
        (result,) = writer.result(op.results[0])
        writer.line(f"mov.u32 {result}, {name};")

    return emit


def _warp_id(writer: Writer, op: Op) -> None:
    (result,) = writer.result(op.results[0])
    writer.line(f"mov.u32 {result}, %tid.x;")
    writer.line(f"shr.u32 {result}, {result}, 5;")
    writer.line(f"shfl.sync.idx.b32 {result}, {result}, 0, 31, -1;")


def _triple(name: str) -> Callable[[Writer, Op], None]:
    def emit(writer: Writer, op: Op) -> None:
        for value, axis in zip(op.results, "xyz", strict=True):
            (result,) = writer.result(value)
            writer.line(f"mov.u32 {result}, {name}.{axis};")

    return emit


def _elect(writer: Writer, op: Op) -> None:
    (result,) = writer.result(op.results[0])
    writer.line(f"elect.sync _|{result}, -1;")


def _set_registers(writer: Writer, op: Op) -> None:
    assert isinstance(op, ops.SetRegisters)
    action = "dec" if op.direction == "decrease" else "inc"
    writer.line(f"setmaxnreg.{action}.sync.aligned.u32 {op.count};")


def _sync_threads(writer: Writer, op: Op) -> None:
    assert isinstance(op, (ops.SyncThreads, ops.ArriveThreads))
    action = "sync" if isinstance(op, ops.SyncThreads) else "arrive"
    writer.line(f"bar.{action} {writer.one(op.barrier)}, {op.threads};")


def _fixed(text: str) -> Callable[[Writer, Op], None]:
    return lambda writer, op: writer.line(text)


def _arrive_cluster(writer: Writer, op: Op) -> None:
    assert isinstance(op, ops.ArriveCluster)
    order = ".relaxed" if op.order == "relaxed" else ""
    aligned = ".aligned" if op.aligned else ""
    writer.line(f"barrier.cluster.arrive{order}{aligned};")


def _wait_cluster(writer: Writer, op: Op) -> None:
    assert isinstance(op, ops.WaitCluster)
    writer.line(f"barrier.cluster.wait{'.aligned' if op.aligned else ''};")


def _init(writer: Writer, op: Op) -> None:
    assert isinstance(op, ops.InitMbarrier)
    writer.line(f"mbarrier.init.shared::cta.b64 {writer.address(op.address)}, {op.arrivals};")


def _arrive(writer: Writer, op: Op) -> None:
    assert isinstance(op, ops.ArriveMbarrier)
    address = writer.address(op.address)
    if op.after_copies:
        writer.line(f"cp.async.mbarrier.arrive.noinc.shared::cta.b64 {address};")
    elif op.bytes:
        writer.line(f"mbarrier.arrive.expect_tx.shared::cta.b64 _, {address}, {op.bytes};")
    elif not op.cluster:
        writer.line(f"mbarrier.arrive.shared::cta.b64 _, {address};")
    else:
        order = ".release.cluster" if op.order == "release" else ""
        writer.line(f"mbarrier.arrive{order}.shared::cluster.b64 _, {address};")


def _wait(writer: Writer, op: Op) -> None:
    assert isinstance(op, ops.WaitMbarrier)
    label, done = writer.fresh_label("wait"), writer.register("pred", "done")
    address, phase = writer.address(op.address), writer.one(op.phase)
    order = ".acquire.cluster" if op.cluster else ""
    # What waits for a while in hardware came with sm_90; before, looking is all there is.
    look = "try_wait" if is_for_hopper(op) else "test_wait"
    writer.label(label)
    writer.line(f"mbarrier.{look}.parity{order}.shared::cta.b64 {done}, {address}, {phase};")
    writer.line(f"@!{done} bra {label};")


def is_for_hopper(op: Op) -> bool:
    """True if the kernel that `op` stands in is for sm_90a."""
    block = op.parent
    while block is not None and block.parent is not None:
        owner = block.parent.parent
        if not isinstance(owner, Op):
            target = getattr(owner, "attributes", {}).get("target", "sm_90a")
            return instructions_of(str(target)) == "sm_90a"
        block = owner.parent
    return True


def _fence_proxy(writer: Writer, op: Op) -> None:
    assert isinstance(op, ops.FenceProxyAsync)
    space = {"shared": ".shared::cta", "global": ".global", "all": ""}[op.space]
    writer.line(f"fence.proxy.async{space};")


THREADS: dict[str, Callable[[Writer, Op], None]] = {
    "thread_id": _special("%tid.x"),
    "lane_id": _special("%laneid"),
    "warp_id": _warp_id,
    "cluster_rank": _special("%cluster_ctarank"),
    "get_tile_block_id": _triple("%ctaid"),
    "get_num_tile_blocks": _triple("%nctaid"),
    "elect": _elect,
    "set_registers": _set_registers,
    "sync_threads": _sync_threads,
    "arrive_threads": _sync_threads,
    "sync_warp": _fixed("bar.warp.sync -1;"),
    "arrive_cluster": _arrive_cluster,
    "wait_cluster": _wait_cluster,
    "init_mbarrier": _init,
    "fence_mbarrier_init": _fixed("fence.mbarrier_init.release.cluster;"),
    "arrive_mbarrier": _arrive,
    "wait_mbarrier": _wait,
    "fence_proxy_async": _fence_proxy,
    "order_fence": _fixed("fence.acq_rel.cta;"),
}

PREDICABLE = frozenset(
    {"map_shared", "arrive_mbarrier", "wait_bulk", "commit_bulk", "store_shared"}
)
"""Operations of one instruction that must not run, and may be predicated, in threads not meant."""
