"""cp.async: per-lane copies to shared memory in groups.

Source: PTX ISA, "cp.async" and its commit, wait and mbarrier forms.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from tests.ptx_machine import text as t
from tests.ptx_machine.clocks import BEFORE
from tests.ptx_machine.errors import AccessError, DivergenceError
from tests.ptx_machine.memory import SharedMemory, byte_indices, check_opaque, resolve
from tests.ptx_machine.operands import Decoder, Modifiers, Step
from tests.ptx_machine.warp import Wait, bits_of

from .access import consume_hints
from .mbarriers import find

if TYPE_CHECKING:
    from tests.ptx_machine.machine import Cta


@dataclass(eq=False)
class LaneCopies:
    """The copies of one instruction: source and destination bytes."""

    cta: Cta
    shared: SharedMemory
    destination: np.ndarray
    values: Callable[[], np.ndarray]
    done: bool = False

    def ready(self) -> bool:
        return True

    def describe(self) -> str:
        return "cp.async"

    def run(self) -> bool:
        self.shared.bytes[self.destination] = self.values()
        self.cta.outstanding -= 1
        self.done = True
        return True


@dataclass(eq=False)
class LaneArrival:
    """The arrival that follows all earlier copies of a warp."""

    after: list[LaneCopies]
    arrive: Callable[[], object]

    def ready(self) -> bool:
        return all(copy.done for copy in self.after)

    def describe(self) -> str:
        return "cp.async.mbarrier.arrive"

    def run(self) -> bool:
        self.arrive()
        return True


def build_lane_copy(d: Decoder, ins: t.Instruction, m: Modifiers) -> Step:
    """Dispatch what follows `cp.async` when it is not a bulk copy."""
    if m.flag("commit_group"):
        d.count(ins, 0)
        return commit
    if m.flag("wait_all"):
        d.count(ins, 0)
        return lambda w: wait(commit(w) or w, 0)
    if m.flag("wait_group"):
        d.count(ins, 1)
        keep = d.literal(ins, ins.operands[0])
        return lambda w: wait(w, keep)
    if m.flag("mbarrier"):
        return build_arrival(d, ins, m)
    return build_copy(d, ins, m)


def groups_of(w) -> list[tuple[int, list[LaneCopies]]]:
    return w.copies.setdefault("groups", [])


def open_of(w) -> list[LaneCopies]:
    return w.copies.setdefault("open", [])


def require_all_lanes(w) -> None:
    if w.mask is not None and bits_of(w.mask) != w.live:
        raise DivergenceError("cp.async groups of lanes that have parted are not modelled")


def commit(w) -> None:
    require_all_lanes(w)
    w.copy_epoch += 1
    groups_of(w).append((w.copy_epoch, list(open_of(w))))
    open_of(w).clear()


def wait(w, keep: int) -> Wait:
    require_all_lanes(w)
    groups = groups_of(w)
    chosen = groups[: max(0, len(groups) - keep)]

    def finish() -> None:
        if chosen:
            del groups[: len(chosen)]
            agent = w.cta.cluster.agents.copy(w.cta.rank, w.index)
            w.clock.epochs[BEFORE, agent] = max(w.clock.epochs[BEFORE, agent], chosen[-1][0])

    return Wait(
        lambda: all(c.done for _, copies in chosen for c in copies),
        finish,
        lambda: "cp.async groups",
    )


def build_arrival(d: Decoder, ins: t.Instruction, m: Modifiers) -> Step:
    m.one("arrive")
    no_increment = m.flag("noinc")
    space = "shared::cta" if m.flag("shared", "shared::cta") else "generic"
    m.one("b64")
    d.count(ins, 1)
    address = d.address(ins, ins.operands[0])

    def step(w) -> None:
        agents, addresses = w.cta.cluster.agents, address(w)
        barriers = [find(w, int(addresses[lane]), space) for lane in w.active_lanes()]
        w.copy_epoch += 1
        published = w.release()
        published.epochs[BEFORE, agents.copy(w.cta.rank, w.index)] = w.copy_epoch
        if not no_increment:
            for barrier in barriers:
                barrier.pending += 1
        earlier = [c for _, copies in groups_of(w) for c in copies] + list(open_of(w))
        w.machine.pending.append(
            LaneArrival(earlier, lambda: [b.arrive(1, published) for b in barriers])
        )

    return step


def build_copy(d: Decoder, ins: t.Instruction, m: Modifiers) -> Step:
    """4, 8 or 16 bytes per lane; a source size below that fills with zeros."""
    bypass = m.one("ca", "cg") == "cg"
    m.one("shared", "shared::cta")
    m.one("global")
    policy = consume_hints(m)
    n = d.count(ins, 3 + policy, 4 + policy)
    size = d.literal(ins, ins.operands[2])
    if size not in ((16,) if bypass else (4, 8, 16)):
        raise m.fail(f"copies of {size} bytes are not allowed")
    to, source = d.address(ins, ins.operands[0]), d.address(ins, ins.operands[1])
    length = d.src(ins, ins.operands[3], "u32") if n == 4 + policy else None
    if policy:
        d.src(ins, ins.operands[-1], "b64")

    def step(w) -> None:
        lanes = w.active_lanes()
        (shared, offsets, _), *more = resolve(w, "shared::cta", to(w)[lanes], size, size)
        if more or not isinstance(shared, SharedMemory):
            raise AccessError("cp.async to several CTAs")
        touched = byte_indices(offsets, size)
        check_opaque(shared, touched)
        agent, epoch = w.cta.cluster.agents.copy(w.cta.rank, w.index), w.copy_epoch + 1
        if w.machine.check_races:
            shared.shadow.write(touched, agent, epoch, w.clock)
        wanted = length(w)[lanes].astype(np.int64) if length else np.full(lanes.size, size)
        if wanted.max() > size:
            raise AccessError("cp.async source size is over the copy size")
        addresses = source(w)[lanes]
        regions = [
            (resolve(w, "global", addresses[i : i + 1], int(k), size)[0] if k else None)
            for i, k in enumerate(wanted)
        ]

        def values() -> np.ndarray:
            out = np.zeros((lanes.size, size), np.uint8)
            for i, k in enumerate(wanted.tolist()):
                source_piece = regions[i]
                if source_piece:
                    region, place, _ = source_piece
                    out[i, :k] = region.bytes[place[0] : place[0] + k]
            return out.reshape(-1)

        copy = LaneCopies(w.cta, shared, touched, values)
        w.cta.outstanding += 1
        open_of(w).append(copy)
        w.machine.pending.append(copy)

    return step
