"""mbarrier instructions. Source: PTX ISA, "mbarrier"."""

from __future__ import annotations

import numpy as np

from tests.ptx_machine import text as t
from tests.ptx_machine.clocks import BEFORE, INITIALISED
from tests.ptx_machine.errors import BarrierError, RaceError
from tests.ptx_machine.mbarrier import Mbarrier
from tests.ptx_machine.memory import SharedMemory, own_epoch, shared_target
from tests.ptx_machine.operands import Decoder, Modifiers, Step, instruction, no_operand
from tests.ptx_machine.warp import Wait

SPACES = ("shared", "shared::cta", "shared::cluster")
SCOPES = ("cta", "cluster")


def space_of(m: Modifiers) -> str:
    space = m.one(*SPACES, default="generic")
    return "shared::cta" if space == "shared" else space


def find(w, address: int, space: str) -> Mbarrier:
    """Return the mbarrier at an address; its initialisation must be ordered before this use."""
    memory, offset = locate(w, address, space)
    barrier = memory.barrier(offset)
    w.note_remote(memory)
    agent, epoch = barrier.owner
    fenced = w.clock.epochs[INITIALISED, agent] >= epoch
    local = memory is w.cta.shared
    if w.machine.check_races and not (fenced or (local and w.clock.epochs[BEFORE, agent] >= epoch)):
        raise RaceError(f"the initialisation of {barrier} is not ordered before this use")
    return barrier


def find_for_copy(w, address: int, space: str) -> Mbarrier:
    """Like `find`, for signals of the asynchronous proxy: they need a fence after mbarrier.init."""
    barrier = find(w, address, space)
    agent, epoch = barrier.owner
    if w.machine.check_races and w.clock.epochs[INITIALISED, agent] < epoch:
        raise BarrierError(
            f"no fence.mbarrier_init or fence.proxy.async after the initialisation of {barrier}"
        )
    return barrier


def locate(w, address: int, space: str) -> tuple[SharedMemory, int]:
    memory, offset = shared_target(w, address, space)
    if offset % 8:
        raise BarrierError(f"mbarrier address {offset:#x} is not a multiple of 8")
    memory.check_range(offset, offset + 8)
    return memory, offset


def initialise(w, address: int, space: str, count: int) -> None:
    memory, offset = locate(w, address, space)
    if memory is not w.cta.shared:
        raise BarrierError("mbarrier.init of another CTA's object")
    if offset in memory.barriers:
        raise BarrierError(f"mbarrier.init of a live object: {memory.barriers[offset]}")
    w.touch_shared(memory, slice(offset, offset + 8), write=True)
    memory.barriers[offset] = Mbarrier(
        offset, count, w.cta.cluster.agents.count, (w.agent, own_epoch(w))
    )
    memory.opaque[offset : offset + 8] = True
    w.machine.progressed()


def invalidate(w, address: int, space: str) -> None:
    find(w, address, space)
    memory, offset = locate(w, address, space)
    del memory.barriers[offset]
    memory.opaque[offset : offset + 8] = False
    memory.shadow.writer[offset : offset + 8] = w.agent
    memory.shadow.epoch[offset : offset + 8] = own_epoch(w)
    memory.shadow.generic[offset : offset + 8] = True


@instruction("mbarrier")
def build_mbarrier(d: Decoder, ins: t.Instruction, m: Modifiers) -> Step:
    action = m.one(
        "init",
        "inval",
        "arrive",
        "arrive_drop",
        "test_wait",
        "try_wait",
        "expect_tx",
        "complete_tx",
        "pending_count",
    )
    if action == "pending_count":
        raise m.fail("is not modelled")
    if action in ("arrive", "arrive_drop"):
        return build_arrive(d, ins, m, action == "arrive_drop")
    if action in ("test_wait", "try_wait"):
        return build_wait(d, ins, m, action == "try_wait")
    if action in ("expect_tx", "complete_tx"):
        m.one("relaxed", default="relaxed")
        m.one(*SCOPES, default="cta")
    space = space_of(m)
    m.one("b64")
    d.count(ins, 1 if action == "inval" else 2)
    address = d.address(ins, ins.operands[0])
    count = d.src(ins, ins.operands[1], "u32") if action != "inval" else no_operand

    def step(w) -> None:
        addresses = address(w)
        for lane in w.active_lanes().tolist():
            where = int(addresses[lane])
            match action:
                case "init":
                    initialise(w, where, space, int(count(w)[lane]))
                case "inval":
                    invalidate(w, where, space)
                case "expect_tx":
                    find(w, where, space).expect(int(count(w)[lane]))
                case _:
                    find(w, where, space).complete(int(count(w)[lane]), None)
        w.machine.progressed()

    return step


def build_arrive(d: Decoder, ins: t.Instruction, m: Modifiers, drop: bool) -> Step:
    """arrive, with expect_tx or a count; the state returned is the phase number."""
    expects, incomplete = m.flag("expect_tx"), m.flag("noComplete")
    order = m.one("release", "relaxed", default="release")
    m.one(*SCOPES, default="cta")
    space = space_of(m)
    m.one("b64")
    returns = not isinstance(ins.operands[0], t.Memory)
    at = 1 if returns else 0
    n = d.count(ins, at + 1, at + 2)
    if (expects or incomplete) and n != at + 2:
        raise m.fail("needs a count")
    if space == "shared::cluster" and returns and ins.operands[0] != t.Name("_"):
        raise m.fail("a remote arrive returns no state")
    put = d.dst(ins, ins.operands[0], "b64") if returns else None
    address = d.address(ins, ins.operands[at])
    count = d.src(ins, ins.operands[at + 1], "u32") if n == at + 2 else None

    def step(w) -> None:
        addresses, state = address(w), np.zeros(32, np.uint64)
        published = w.release_relaxed() if order == "relaxed" else w.release()
        for lane in w.active_lanes().tolist():
            barrier = find(w, int(addresses[lane]), space)
            state[lane] = barrier.phase
            value = int(count(w)[lane]) if count else 1
            if expects:
                barrier.expect(value)
            if incomplete and barrier.pending <= value:
                raise BarrierError(f"arrive.noComplete would complete the phase ({barrier})")
            barrier.arrive(1 if expects else value, published, drop)
        if put:
            put(w, state)
        w.machine.progressed()

    return step


def build_wait(d: Decoder, ins: t.Instruction, m: Modifiers, may_block: bool) -> Step:
    """test_wait and try_wait, by parity or by state.

    A blocking try_wait that is not ready suspends until it is, or now and then gives up, by seed.
    """
    parity = m.flag("parity")
    order = m.one("acquire", "relaxed", default="acquire")
    m.one(*SCOPES, default="cta")
    space = space_of(m)
    m.one("b64")
    n = d.count(ins, 3, 4 if may_block else 3)
    put = d.dst(ins, ins.operands[0], "pred")
    address = d.address(ins, ins.operands[1])
    phase = d.src(ins, ins.operands[2], "u32" if parity else "b64")
    if n == 4:
        d.src(ins, ins.operands[3], "u32")

    def step(w):
        addresses, phases = address(w), phase(w)
        found: dict[tuple[int, int], tuple[Mbarrier, list[int]]] = {}
        for lane in w.active_lanes().tolist():
            key = int(addresses[lane]), int(phases[lane])
            if key not in found:
                found[key] = find(w, key[0], space), []
            found[key][1].append(lane)

        def done(barrier: Mbarrier, value: int) -> bool:
            return barrier.has_completed_parity(value) if parity else barrier.phase != value

        def any_done() -> bool:
            return any(done(barrier, key[1]) for key, (barrier, _) in found.items())

        def finish() -> None:
            result = np.zeros(32, bool)
            for key, (barrier, lanes) in found.items():
                if done(barrier, key[1]):
                    result[lanes] = True
                    if order == "acquire":
                        w.clock.join(barrier.completed)
            put(w, result)

        if any_done() or not may_block or w.machine.random.random() < w.machine.impatience:
            finish()
            return None
        return Wait(
            any_done,
            finish,
            lambda: ", ".join(
                f"{'parity' if parity else 'phase'} {key[1]} of {b}"
                for key, (b, _) in found.items()
            ),
        )

    return step
