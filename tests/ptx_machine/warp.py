"""One warp: 32 lanes of registers, and strands of lanes that share a program counter.

Lanes that part ways become strands; strands that meet at one instruction merge. Instructions that
need lanes together (.aligned, or a member mask) hold a strand until the others arrive.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

import numpy as np

from . import text as t
from .clocks import BEFORE, EXECUTED, FENCED, INITIALISED, Clock
from .errors import DivergenceError, InFlightError, PtxError, UninitialisedRead
from .memory import Region, SharedMemory

if TYPE_CHECKING:
    from .machine import Cta, Machine

EVERYONE = np.arange(32)
FULL = 0xFFFFFFFF


def bits_of(mask: np.ndarray) -> int:
    """Return 32 booleans as an integer, lane 0 lowest."""
    return int.from_bytes(np.packbits(mask, bitorder="little").tobytes(), "little")


def mask_of(bits: int) -> np.ndarray:
    """Return an integer's low 32 bits as booleans."""
    return (bits >> EVERYONE & 1).astype(bool)


class Unwritten:
    """What a register holds before its first write: any look at it is an error."""

    def __init__(self, name: str) -> None:
        self.name = name

    def view(self, *_: object) -> np.ndarray:
        raise UninitialisedRead(f"register {self.name} is read before it is written")


@dataclass(slots=True)
class Wait:
    """Why a strand cannot go on: `finish` runs, under the same lanes, once `ready` holds."""

    ready: Callable[[], bool]
    finish: Callable[[], None]
    describe: Callable[[], str]
    mask: np.ndarray | None = None
    retry: bool = False


@dataclass(slots=True)
class Op:
    """A decoded instruction. sync: None, "aligned", or a function that returns the member mask."""

    step: Callable[[Warp], Wait | None]
    ins: t.Instruction
    guard: tuple[int, bool] | None
    touched: frozenset[int]
    written: frozenset[int]
    sync: Callable[[Warp], int] | str | None = None
    target: int | None = None
    uniform: bool = False
    is_exit: bool = False
    owns_flight: bool = False


@dataclass(slots=True)
class Strand:
    """Lanes at one program counter; mask is None when all 32 are in."""

    pc: int
    bits: int
    mask: np.ndarray | None = field(init=False)
    wait: Wait | None = None

    def __post_init__(self) -> None:
        self.mask = None if self.bits == FULL else mask_of(self.bits)


class Warp:
    """Registers, strands, clock and outstanding asynchronous work of one warp."""

    def __init__(
        self, machine: Machine, cta: Cta, index: int, names: list[str], lanes: int
    ) -> None:
        self.machine, self.cta, self.index = machine, cta, index
        self.code: list[Op] = machine.code
        self.registers: list = [Unwritten(name) for name in names]
        self.written_at = [0] * len(names)
        self.live = (1 << lanes) - 1
        self.strands = [Strand(0, self.live)]
        self.mask: np.ndarray | None = None
        self.steps = 1
        self.agent = cta.cluster.agents.warp(cta.rank, index)
        self.clock = Clock(cta.cluster.agents.count)
        self.clock.epochs[BEFORE, self.agent] = 1
        self.fence_clock = Clock(cta.cluster.agents.count)
        self.carry = np.zeros(32, np.uint64)
        self.inflight: set[int] = set()
        self.fenced_at = 0
        self.wgmma_open: list = []
        self.wgmma_groups: list = []
        self.wgmma_epoch = 0
        self.stores: dict[int, object] = {}
        self.copies: dict[int, object] = {}
        self.store_epoch = self.copy_epoch = 0
        self.cluster_arrived = np.zeros(32, bool)
        self.cluster_generation = np.zeros(32, np.int64)
        self.register_count = machine.entry_registers
        self.local_size = machine.local_bytes
        self.local = Region("local memory", 0, np.full(32 * self.local_size, 0xCD, np.uint8))
        self.local.kind = "local"
        self.thread_index = self._thread_index()

    def _thread_index(self) -> list[np.ndarray]:
        x, y, _ = self.machine.block
        linear = (self.index * 32 + EVERYONE).astype(np.uint64)
        return [
            linear % np.uint64(x),
            linear // np.uint64(x) % np.uint64(y),
            linear // np.uint64(x * y),
        ]

    # --- values

    def put(self, slot: int, value: np.ndarray) -> None:
        """Write a register in the active lanes; lanes never written hold a recognisable pattern."""
        if self.mask is not None:
            old = self.registers[slot]
            if isinstance(old, Unwritten):
                old = np.full(32, 0xDEADBEEFDEADBEEF, np.uint64).astype(value.dtype)
            value = np.where(self.mask, value, old)
        self.registers[slot] = value
        self.written_at[slot] = self.steps

    def active_lanes(self) -> np.ndarray:
        return EVERYONE if self.mask is None else np.flatnonzero(self.mask)

    def uniform(self, value: np.ndarray, text: str) -> int:
        """Return the one value that all active lanes hold."""
        chosen = value if self.mask is None else value[self.mask]
        if (chosen != chosen[0]).any():
            raise DivergenceError(f"operand differs between lanes: {text}")
        return int(chosen[0])

    # --- order

    def release(self) -> Clock:
        """Return what this warp has done so far, and begin a new epoch."""
        published = self.clock.copy()
        self.clock.epochs[BEFORE, self.agent] += 1
        return published

    def release_relaxed(self) -> Clock:
        """Return what a relaxed arrival carries: the past to the last fence; execution order."""
        carried, epochs = self.fence_clock.copy(), self.clock.epochs
        np.maximum(epochs[BEFORE], epochs[EXECUTED], out=carried.epochs[EXECUTED])
        epochs[BEFORE, self.agent] += 1
        return carried

    def fence(self) -> None:
        """Remember the past for later relaxed arrivals."""
        self.fence_clock = self.release()

    def fence_proxy(self) -> None:
        """Make everything known so far visible to the asynchronous proxy."""
        epochs = self.clock.epochs
        np.maximum(epochs[FENCED], epochs[BEFORE], out=epochs[FENCED])
        np.maximum(epochs[INITIALISED], epochs[BEFORE], out=epochs[INITIALISED])
        epochs[BEFORE, self.agent] += 1

    def fence_initialisation(self) -> None:
        """Publish mbarrier initialisations to the cluster and the asynchronous proxy."""
        epochs = self.clock.epochs
        epochs[INITIALISED, self.agent] = epochs[BEFORE, self.agent]
        np.maximum(
            self.fence_clock.epochs[INITIALISED],
            epochs[INITIALISED],
            out=self.fence_clock.epochs[INITIALISED],
        )
        epochs[BEFORE, self.agent] += 1

    def note_remote(self, region: SharedMemory) -> None:
        """Remember that this warp used another CTA's memory, which must outlive the use."""
        if region is not self.cta.shared:
            region.remote[self.agent] = int(self.clock.epochs[BEFORE, self.agent])

    def touch_shared(
        self, region: SharedMemory, touched, write: bool, atomic: bool = False
    ) -> None:
        """Check a generic access against the shadow."""
        self.note_remote(region)
        if not self.machine.check_races:
            return
        act = region.shadow.write if write else region.shadow.read
        act(
            touched,
            self.agent,
            int(self.clock.epochs[BEFORE, self.agent]),
            self.clock,
            atomic=atomic,
        )

    # --- execution

    def can_run(self) -> bool:
        """Finish what has become ready; tell whether some strand can execute."""
        runnable = False
        for strand in self.strands:
            if strand.wait is None:
                runnable = True
            elif not strand.wait.retry and strand.wait.ready():
                self.finish(strand)
                runnable = True
        if runnable and len(self.strands) > 1:
            self.merge()
            runnable = any(s.wait is None for s in self.strands)
        return runnable

    def finish(self, strand: Strand) -> None:
        wait, strand.wait = strand.wait, None
        if wait is None:
            return
        self.mask = wait.mask
        try:
            wait.finish()
        except PtxError as error:
            raise self.located(error, strand) from None
        strand.pc += 1

    def run(self, budget: int) -> None:
        """Execute up to `budget` instructions, less when every strand waits."""
        while budget > 0 and self.strands:
            if len(self.strands) == 1:
                strand = self.strands[0]
                while budget > 0 and strand.wait is None and len(self.strands) == 1:
                    self.step(strand)
                    budget -= 1
                if len(self.strands) == 1:
                    return
            able = [s for s in self.strands if s.wait is None]
            if not able:
                return
            random = self.machine.random
            self.step(
                min(able, key=lambda s: s.pc) if random.random() < 0.85 else random.choice(able)
            )
            self.merge()
            budget -= 1

    def merge(self) -> None:
        """Join strands at the same instruction that are not waiting for an event."""
        by_pc: dict[int, Strand] = {}
        kept = []
        for strand in self.strands:
            if strand.wait is not None and not strand.wait.retry:
                kept.append(strand)
            elif strand.pc in by_pc:
                by_pc[strand.pc].bits |= strand.bits
            else:
                by_pc[strand.pc] = strand
        if len(by_pc) + len(kept) < len(self.strands):
            for strand in by_pc.values():
                strand.__post_init__()
                strand.wait = None
            self.strands = [*kept, *by_pc.values()]

    def step(self, strand: Strand) -> None:
        """Execute one instruction of a strand."""
        op = self.code[strand.pc]
        self.steps += 1
        self.machine.count_step()
        try:
            self._step(op, strand)
        except PtxError as error:
            raise self.located(error, strand) from None

    def _step(self, op: Op, strand: Strand) -> None:
        bits, mask = strand.bits, strand.mask
        if op.guard is not None:
            slot, negated = op.guard
            allowed = self.registers[slot].view(np.bool_)
            allowed = ~allowed if negated else allowed
            if mask is not None:
                allowed = allowed & mask
            bits = bits_of(allowed)
            mask = None if bits == FULL else allowed
        if self.inflight and not op.owns_flight and not self.inflight.isdisjoint(op.touched):
            raise InFlightError("a register of an unfinished wgmma is used before wgmma.wait_group")
        if bits == 0:
            strand.pc += 1
            return
        if op.target is not None:
            self._branch(op, op.target, strand, bits)
            return
        if op.is_exit:
            self._exit(strand, bits)
            return
        self.mask = mask
        if op.sync is not None and not self._together(op, strand, bits):
            return
        wait = op.step(self)
        if wait is None:
            strand.pc += 1
        else:
            wait.mask = mask
            strand.wait = wait

    def _branch(self, op: Op, target: int, strand: Strand, bits: int) -> None:
        if bits == strand.bits:
            strand.pc = target
            return
        if op.uniform:
            raise DivergenceError("bra.uni parts the lanes")
        self.strands.append(Strand(target, bits))
        strand.bits &= ~bits
        strand.__post_init__()
        strand.pc += 1

    def _exit(self, strand: Strand, bits: int) -> None:
        self.live &= ~bits
        strand.bits &= ~bits
        if strand.bits:
            strand.__post_init__()
            strand.pc += 1
        else:
            self.strands.remove(strand)
        for other in self.strands:
            if other.wait is not None and other.wait.retry:
                other.wait = None
        self.machine.progressed()
        if not self.live:
            self.cta.warp_exited(self)

    def _together(self, op: Op, strand: Strand, bits: int) -> bool:
        """Tell whether the lanes that must execute `op` together are here; else hold the strand."""
        if not callable(op.sync):
            needed = self.live
        else:
            needed = op.sync(self) & FULL
            if bits & ~needed:
                raise DivergenceError(
                    f"a lane executes the instruction but is not in its member mask {needed:#x}"
                )
            needed &= self.live
        if bits & needed == needed:
            return True
        if strand.bits & needed == needed:
            raise DivergenceError(
                f"the guard keeps out lanes {needed & ~bits:#x}, which the instruction needs"
            )
        strand.wait = Wait(
            lambda: False,
            lambda: None,
            lambda: f"lanes {needed & ~bits:#010x} of the warp to arrive",
            retry=True,
        )
        return False

    # --- messages

    def located(self, error: PtxError, strand: Strand) -> PtxError:
        if not error.place:
            error.place = f"{self.who(strand)}, {self.where(strand)}"
        return error

    def who(self, strand: Strand) -> str:
        return f"CTA {self.cta.index} warp {self.index} lanes {strand.bits:#010x}"

    def where(self, strand: Strand) -> str:
        ins = self.code[strand.pc].ins
        return f"line {ins.line}: {ins.text}"

    def describe(self) -> list[str]:
        """Return a line per strand on what it waits for."""
        out = []
        for strand in self.strands:
            what = strand.wait.describe() if strand.wait else "nothing (it spins)"
            out.append(f"{self.who(strand)} waits for {what} at {self.where(strand)}")
        return out
