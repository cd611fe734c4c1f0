"""Barriers of `pipe` as barriers of threads: addresses, numbers, who arrives."""

from __future__ import annotations

from collections.abc import Callable
from math import prod

from reftile.ir import ops
from reftile.ir.core import Op, Value
from reftile.ir.types import BarrierType, NamedBarrierType
from reftile.lower.constants import constant_int
from reftile.lower.context import I32, Context, Number
from reftile.lower.place_buffers import shared_address


def barrier_address(context: Context, barrier: Value, slot: Value) -> Value:
    """The address of an element of an array of barriers."""
    index = constant_int(slot)
    number: Number = context.scalar(slot) if index is None else index
    return shared_address(context, context.offsets[barrier], number, 8)


def lower_arrive(context: Context, op: Op) -> None:
    """Arrive in the thread, lane or threads that `by` names."""
    assert isinstance(op, ops.ArriveBarrier)
    kind = op.barrier.type
    assert isinstance(kind, BarrierType)
    address = barrier_address(context, op.barrier, op.slot)
    if op.everywhere:
        _arrive_everywhere(context, op, address)
        return

    def arrive() -> None:
        target = address
        if op.rank is not None:
            rank = context.scalar(op.rank)
            target = context.value(ops.MapShared, (address, rank), I32, "remote")
        is_remote = op.rank is not None
        order = op.order if is_remote else "release"
        context.emit(
            ops.ArriveMbarrier,
            (target,),
            bytes=op.bytes,
            cluster=is_remote or None,
            order=order,
            after_copies=op.after_copies or None,
        )

    if op.by == "threads" or context.role.is_elected:
        arrive()
    elif op.by == "warps":
        is_first = context.hoist(
            "first_lane", lambda: context.compare("equal", context.lane(), 0, "first_lane")
        )
        context.when(is_first, arrive)
    else:
        context.when(context.lead(), arrive)


def _arrive_everywhere(context: Context, op: ops.ArriveBarrier, address: Value) -> None:
    """Thread i of the role arrives in block i; one thread does it for all inside `elected`."""
    if op.by != "elected":
        raise context.unsupported("`everywhere` is lowered for by = elected only")
    extents = context.source.attributes.get("cluster", (1,))
    assert isinstance(extents, tuple)
    blocks = prod(e for e in extents if isinstance(e, int))

    def arrive(rank: Number) -> None:
        remote = context.value(ops.MapShared, (address, context.number(rank)), I32, "remote")
        context.emit(ops.ArriveMbarrier, (remote,), cluster=True, order=op.order)

    if context.role.is_elected:
        for rank in range(blocks):
            arrive(rank)
        return
    thread = context.thread_in_role()
    speaks = context.hoist(
        ("speaks", blocks), lambda: context.compare("less_than", thread, blocks, "speaks")
    )
    context.when(speaks, lambda: arrive(thread))


def lower_wait(context: Context, op: Op) -> None:
    """Every thread that comes along waits for itself."""
    assert isinstance(op, ops.WaitBarrier)
    kind = op.barrier.type
    assert isinstance(kind, BarrierType)
    address = barrier_address(context, op.barrier, op.slot)
    acquires = kind.scope == "cluster" and op.order == "acquire"
    context.emit(ops.WaitMbarrier, (address, context.scalar(op.phase)), cluster=acquires or None)


def lower_sync_named(context: Context, op: Op) -> None:
    """`sync_named` and `arrive_named`."""
    assert isinstance(op, (ops.SyncNamed, ops.ArriveNamed))
    kind = op.barrier.type
    assert isinstance(kind, NamedBarrierType)
    first = context.named[op.barrier]
    index = constant_int(op.index)
    number = context.add(context.scalar(op.index) if index is None else index, first, "turn")
    cls = ops.SyncThreads if isinstance(op, ops.SyncNamed) else ops.ArriveThreads
    context.emit(cls, (context.number(number),), threads=kind.threads)


def lower_sync(context: Context, op: Op) -> None:
    """The role's own barrier."""
    barrier = context.number(context.role.barrier)
    context.emit(ops.SyncThreads, (barrier,), threads=32 * context.role.warps)


def lower_cluster_arrive(context: Context, op: Op) -> None:
    """Aligned in the prologue only: later, warps may come in parts."""
    assert isinstance(op, ops.ClusterArrive)
    context.emit(ops.ArriveCluster, order=op.order, aligned=_is_prologue(op) or None)


def lower_cluster_wait(context: Context, op: Op) -> None:
    """See `lower_cluster_arrive`."""
    context.emit(ops.WaitCluster, aligned=_is_prologue(op) or None)


def _is_prologue(op: Op) -> bool:
    assert op.parent is not None
    return any(isinstance(o, ops.Role) for o in op.parent.ops[op.parent.ops.index(op) :])


def lower_fence_proxy(context: Context, op: Op) -> None:
    """Each thread fences its own writes."""
    assert isinstance(op, ops.FenceProxy)
    context.emit(ops.FenceProxyAsync, space=op.space)


BARRIERS: dict[str, Callable[[Context, Op], None]] = {
    "arrive_barrier": lower_arrive,
    "wait_barrier": lower_wait,
    "sync_named": lower_sync_named,
    "arrive_named": lower_sync_named,
    "sync": lower_sync,
    "cluster_arrive": lower_cluster_arrive,
    "cluster_wait": lower_cluster_wait,
    "fence_proxy": lower_fence_proxy,
}
