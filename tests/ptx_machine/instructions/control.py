"""Barriers, fences, register budgets and other control.

Source: PTX ISA, "Parallel Synchronization and Communication Instructions".
"""

from __future__ import annotations

import numpy as np

from tests.ptx_machine import text as t
from tests.ptx_machine.errors import BarrierError, TrapError
from tests.ptx_machine.operands import Decoder, Modifiers, Step, instruction
from tests.ptx_machine.warp import Wait

SCOPES = ("cta", "cluster", "gpu", "sys")


@instruction("bar", "barrier")
def build_barrier(d: Decoder, ins: t.Instruction, m: Modifiers) -> Step:
    """bar.sync / arrive / red, bar.warp.sync and barrier.cluster."""
    if m.flag("warp"):
        m.one("sync")
        d.count(ins, 1)
        d.sync = d.uniform(ins, ins.operands[0])
        return lambda w: None
    if m.flag("cluster"):
        return build_cluster_barrier(d, ins, m)
    m.flag("cta")
    action = m.one("sync", "arrive", "red")
    aligned = ins.opcode == "bar" or m.flag("aligned")
    d.sync = "aligned" if aligned else whole_warp
    if action == "red":
        return build_barrier_vote(d, ins, m)
    count = d.count(ins, 2 if action == "arrive" else 1, 2)
    number = d.uniform(ins, ins.operands[0])
    threads = d.uniform(ins, ins.operands[1]) if count == 2 else None

    def step(w):
        barrier = named(w, number(w))
        generation = barrier.arrive(w, threads(w) if threads else None)
        if action == "arrive":
            return None
        return Wait(
            lambda: barrier.generation > generation,
            lambda: join(w, barrier, generation),
            lambda: str(barrier),
        )

    return step


def whole_warp(w) -> int:
    """Barriers count whole warps, so all living lanes come together even without .aligned."""
    return w.live


def named(w, number: int):
    if number > 15:
        raise BarrierError(f"barrier {number} does not exist")
    return w.cta.barriers[number]


def join(w, barrier, generation: int) -> None:
    w.clock.join(barrier.completed[generation][0])


def build_barrier_vote(d: Decoder, ins: t.Instruction, m: Modifiers) -> Step:
    """bar.red: a barrier that also counts or combines predicates."""
    name = m.one("popc", "and", "or")
    kind = m.one("u32") if name == "popc" else m.one("pred")
    count = d.count(ins, 3, 4)
    put, number = d.dst(ins, ins.operands[0], kind), d.uniform(ins, ins.operands[1])
    threads = d.uniform(ins, ins.operands[2]) if count == 4 else None
    vote = d.src(ins, ins.operands[-1], "pred")

    def step(w):
        barrier = named(w, number(w))
        generation = barrier.arrive(w, threads(w) if threads else None, vote(w)[w.active_lanes()])

        def finish() -> None:
            join(w, barrier, generation)
            result = barrier.completed[generation][1][name]
            put(w, np.full(32, result, np.uint32 if name == "popc" else bool))

        return Wait(lambda: barrier.generation > generation, finish, lambda: str(barrier))

    return step


def build_cluster_barrier(d: Decoder, ins: t.Instruction, m: Modifiers) -> Step:
    action = m.one("arrive", "wait")
    order = (
        m.one("relaxed", "release", default="release")
        if action == "arrive"
        else m.one("acquire", default="acquire")
    )
    if m.flag("aligned"):
        d.sync = "aligned"
    d.count(ins, 0)

    def arrive(w) -> None:
        barrier = w.cta.cluster.barrier
        barrier.arrive(w, w.release_relaxed() if order == "relaxed" else w.release())

    def wait(w):
        barrier, lanes = w.cta.cluster.barrier, w.active_lanes()
        if not w.cluster_arrived[lanes].all():
            raise BarrierError("barrier.cluster.wait without an arrive before it")
        generation = int(w.cluster_generation[lanes].max())

        def finish() -> None:
            w.cluster_arrived[lanes] = False
            w.clock.join(barrier.completed)

        return Wait(lambda: barrier.generation > generation, finish, lambda: str(barrier))

    return arrive if action == "arrive" else wait


@instruction("membar")
def build_membar(d: Decoder, ins: t.Instruction, m: Modifiers) -> Step:
    m.one("cta", "gl", "sys")
    d.count(ins, 0)
    return lambda w: w.fence()


@instruction("fence")
def build_fence(d: Decoder, ins: t.Instruction, m: Modifiers) -> Step:
    """Memory fences, proxy fences, and the fence after mbarrier.init."""
    d.count(ins, 0)
    if m.flag("mbarrier_init"):
        m.one("release")
        m.one("cluster")
        return lambda w: w.fence_initialisation()
    if m.flag("proxy"):
        kind = m.one("async", "alias", "async.global", "async.shared::cta")
        space = m.one("global", "shared::cta", "shared::cluster", default="all")
        if kind == "alias" or space == "global":
            return lambda w: None
        return lambda w: w.fence_proxy()
    m.one("sc", "acq_rel", "acquire", "release", default="acq_rel")
    m.one(*SCOPES)
    return lambda w: w.fence()


@instruction("setmaxnreg")
def build_setmaxnreg(d: Decoder, ins: t.Instruction, m: Modifiers) -> Step:
    """Give registers back to the CTA's pool, or wait until the pool has enough."""
    action = m.one("inc", "dec")
    m.one("sync")
    m.one("aligned")
    m.one("u32")
    d.sync = "aligned"
    d.count(ins, 1)
    wanted = d.literal(ins, ins.operands[0])
    if wanted % 8 or not 24 <= wanted <= 256:
        raise m.fail("the register count is a multiple of 8 from 24 to 256")

    def step(w):
        change = (wanted - w.register_count) * 32
        if action == "dec":
            if change > 0:
                raise BarrierError(f"setmaxnreg.dec to {wanted} from {w.register_count} registers")
            take(w, change)
            return None
        if change < 0:
            raise BarrierError(f"setmaxnreg.inc to {wanted} from {w.register_count} registers")
        return Wait(
            lambda: w.cta.free_registers >= change,
            lambda: take(w, change),
            lambda: f"{change} registers ({w.cta.free_registers} are free)",
        )

    def take(w, change: int) -> None:
        w.cta.free_registers -= change
        w.register_count = wanted
        w.machine.progressed()

    return step


@instruction("griddepcontrol")
def build_griddep(d: Decoder, ins: t.Instruction, m: Modifiers) -> Step:
    """One grid runs at a time here, so dependencies are met."""
    m.one("wait", "launch_dependents")
    return lambda w: None


@instruction("nanosleep")
def build_sleep(d: Decoder, ins: t.Instruction, m: Modifiers) -> Step:
    m.one("u32")
    d.src(ins, ins.operands[0], "u32")
    return lambda w: None


@instruction("trap")
def build_trap(d: Decoder, ins: t.Instruction, m: Modifiers) -> Step:
    def step(w) -> None:
        raise TrapError("trap")

    return step
