"""The machine: blocks advance through a plan and make instances of its steps.

A block is a coroutine. Its control (loops, branches, the order of the text) advances and, for each
operation it comes to, either runs it at once or, when execution is *deferred*, makes an `Instance`
that waits for its inputs. An instance of a memory operation whose inputs are there is ready and
stays so until the schedule picks it. Values that are not there yet are `Cell`s; control forces one
only to decide a branch or a bound. In this way the operations of later iterations, of code behind a
branch and of other blocks may all run before one that came earlier, whenever tokens and data permit
it.

What a coroutine yields tells the schedule why it stopped:

    a Cell    control needs the value
    STEP      a memory operation was issued (deferred execution only)
    DRAIN     nothing that is still pending may outlive this point
    SPIN      the end of an iteration that only looked at memory; other blocks should run
"""

from __future__ import annotations

from collections.abc import Callable, Generator, Sequence
from dataclasses import dataclass, field
from enum import Enum
from random import Random
from typing import Any, Literal, NoReturn, TypeAlias

import numpy as np

from reftile.interp.histories import Histories
from reftile.interp.memory import Buffer, Memory
from reftile.interp.order import Order, Token
from reftile.interp.plan import Plan, PlanRegion, Step, scalar_tile
from reftile.interp.shadow import Shadow, row_of
from reftile.interp.values import Mask, Tile
from reftile.ir.core import Op, Value
from reftile.ir.diagnostics import Diagnosis, ReftileError, Span
from reftile.ir.types import TileType

Index3 = tuple[int, int, int]


class Stop(Enum):
    """Why a block's coroutine stopped, where it is not for a value."""

    STEP = "step"
    DRAIN = "drain"
    SPIN = "spin"


STEP, DRAIN, SPIN = Stop.STEP, Stop.DRAIN, Stop.SPIN


class Cell:
    """A value that is not there yet: a result of `instance`."""

    __slots__ = ("blocks", "done", "value", "waiting")

    def __init__(self) -> None:
        self.done = False
        self.value: Any = None
        self.waiting: list[Instance] = []
        self.blocks: list[Block] = []


Ending: TypeAlias = "tuple[str, list[Any]]"
Run: TypeAlias = "Generator[Cell | Stop, None, Ending]"


@dataclass(slots=True, eq=False)
class Instance:
    """One execution of a step, to happen. `missing` inputs are cells still."""

    block: Block
    step: Step[Block]
    number: int
    inputs: list[Any]
    outputs: list[Cell]
    missing: int = 0


@dataclass(slots=True, eq=False)
class Launch:
    """What all blocks of a launch share.

    version: counts changes of memory, so that a spin can tell whether looking again makes sense.
    waits: by block, the last strong read: what a block that spins is waiting for.
    ready: instances of memory operations that may run (deferred execution only).
    random: in which order the elements of one operation are done; None is the order of the tile.
    histories: what strong loads may find besides the latest (schedule `view`).
    origins: by the operation that stored poison, the one that made it.
    tick: called at each iteration of a loop, so that whoever waits sees that something happens.
    """

    plan: Plan[Block]
    grid: Index3
    memory: Memory
    order: Order = field(default_factory=Order)
    shadows: dict[Buffer, Shadow] = field(default_factory=dict[Buffer, Shadow])
    globals: dict[str, Buffer] = field(default_factory=dict[str, Buffer])
    progress: Literal["none", "occupancy_bound", "cooperative"] = "none"
    version: int = 0
    printed: list[str] = field(default_factory=list[str])
    failed: list[Diagnosis] = field(default_factory=list[Diagnosis])
    waits: dict[int, tuple[Op, Buffer, int]] = field(
        default_factory=dict[int, tuple[Op, Buffer, int]]
    )
    ready: list[Instance] = field(default_factory=list[Instance])
    random: Random | None = None
    histories: Histories | None = None
    current: Block | None = None
    done: int = 0
    origins: dict[Op, Op] = field(default_factory=dict[Op, Op])
    tick: Callable[[], None] | None = None

    @property
    def block_count(self) -> int:
        """The number of blocks of the grid."""
        return self.grid[0] * self.grid[1] * self.grid[2]

    def block_id(self, number: int) -> Index3:
        """The coordinates of block `number`; the first axis runs fastest."""
        x, y, _ = self.grid
        return number % x, number // x % y, number // (x * y)

    def block_name(self, number: int) -> str:
        """The coordinates as messages write them."""
        return "({}, {}, {})".format(*self.block_id(number))

    def shadow(self, buffer: Buffer) -> Shadow:
        """The shadow of a buffer, made on first use."""
        found = self.shadows.get(buffer)
        if found is None:
            found = self.shadows[buffer] = Shadow(buffer, self.order)
        return found


class Block:
    """One block of the grid while it runs.

    step: the one being executed, for messages. number, sequence: of the operation instance being
        executed, and of the last one that control has made.
    allocated: live buffers of `alloca`, innermost region last.
    pending: instances made and not executed yet.
    """

    __slots__ = (
        "allocated",
        "blocks",
        "deferred",
        "draining",
        "env",
        "id",
        "launch",
        "linear",
        "number",
        "pending",
        "run",
        "sequence",
        "step",
        "stuck",
    )

    def __init__(self, launch: Launch, linear: int, env: list[Any], deferred: bool) -> None:
        self.launch = launch
        self.linear = linear
        self.id = launch.block_id(linear)
        self.env = env
        self.deferred = deferred
        self.step: Step[Block] | None = None
        self.number = self.sequence = self.pending = 0
        self.draining = False
        self.allocated: list[Buffer] = []
        self.stuck = -1
        self.run: Run = run_region(self, launch.plan.body)

    # Faults

    def fault(
        self,
        rule: str,
        message: str,
        position: int | None = None,
        address: int | None = None,
        hint: str = "",
        op: Op | None = None,
        shape: tuple[int, ...] = (),
        origin: Sequence[tuple[str, Span | None]] = (),
    ) -> NoReturn:
        """Raise what is wrong at an element of an operation: the one being executed, or `op`.

        origin: notes that say where it comes from.
        """
        if op is None:
            assert self.step is not None
            op = self.step.op
        notes: list[tuple[str, Span | None]] = []
        data: dict[str, object] = {"block": self.id}
        if position is not None:
            element = row_of(position, shape)
            notes.append((f"at element {list(element)} of the tile", None))
            data["element"] = element
        if address is not None:
            data["address"] = address
        notes.append((f"in block {self.launch.block_name(self.linear)}", None))
        notes.extend(origin)
        raise ReftileError(Diagnosis(rule, message, op.span, hint, tuple(notes), data=data))

    def report(self, rule: str, message: str, where: Mask) -> None:
        """Raise a violation that a pure operation found at the first element of `where`."""
        assert self.step is not None
        op = self.step.op
        if not np.any(where):
            return
        position = int(np.argmax(np.asarray(where).reshape(-1)))
        shape = np.asarray(where).shape
        name = rule if "." in rule else f"{op.name}.{rule}"
        self.fault(name, message, position if shape else None, None, "", op, shape)

    def demand(self, tile: Tile, rule: str, what: str, op: Op | None = None) -> None:
        """Raise if any element of a tile is poison: `what` must not be."""
        poison = tile.poison
        if poison is None or not poison.any():
            return
        where = np.broadcast_to(poison, tile.data.shape)
        position = int(np.argmax(where.reshape(-1))) if where.ndim else None
        source = self.origin(tile, op)
        self.fault(
            f"poison.{rule}",
            f"{what} is poison: it has no defined value",
            position,
            None,
            POISON_HINTS.get(source.definition.effects if source else "", POISON_HINT),
            op,
            where.shape,
            () if source is None else [origin_note(source)],
        )

    def origin(self, tile: Tile, op: Op | None = None) -> Op | None:
        """The operation that made the poison of `tile`, an operand of `op` (or what runs now).

        It is the last one on the way to `tile` of which no operand has poison.
        """
        op = op if op is not None else (self.step.op if self.step else None)
        if op is None:
            return None
        slots = self.launch.plan.slots
        seen: set[Value] = set()

        def held(value: Value) -> Tile | None:
            found = self.env[slots[value]] if value in slots else None
            found = found.value if type(found) is Cell else found
            return found if isinstance(found, Tile) else None

        def poisoned(values: Sequence[Value]) -> Value | None:
            for value in values:
                found = held(value)
                if value not in seen and found is not None and found.poison is not None:
                    return value
            return None

        value = next((v for v in op.operands if held(v) is tile), None)
        value = value if value is not None else poisoned(op.operands)
        while value is not None:
            seen.add(value)
            maker = value.owner
            if not isinstance(maker, Op):
                return None  # an argument of a region: it was made elsewhere each time
            before = poisoned(maker.operands)
            if before is None:
                return maker
            value = before
        return None

    def scalar(self, tile: Tile, rule: str, what: str, op: Op | None = None) -> int:
        """The value of a scalar that decides something."""
        if tile.poison is not None:
            self.demand(tile, rule, what, op)
        return int(tile.data.item())


POISON_HINT = (
    "poison comes from memory that was never written, a masked or padded element "
    "without a value, or an undefined result"
)
POISON_HINTS = {
    "read": "the load gives poison for memory that was never written, and for elements that are "
    "masked off or outside the view without a padding value",
    "pure": "the operation is undefined for the operands that it had",
}
"""By the effects of the operation that made the poison."""


def origin_note(source: Op) -> tuple[str, Span | None]:
    """A note that names the operation that made poison."""
    return f"the poison comes from `{source.name}`", source.span


# Control


def run_region(block: Block, region: PlanRegion[Block]) -> Run:
    """Run the steps of a region; gives how it ended and with which values (some may be cells)."""
    env, launch = block.env, block.launch
    outermost = len(block.allocated)
    ending: Ending | None = None
    for step in region.steps:
        if step.kind == "control":
            block.step = step
            ending = yield from _CONTROL[step.op.name](block, step)
            if ending is not None:
                break
        elif block.deferred:
            if _issue(block, step):
                yield STEP
        else:
            block.step = step
            block.number += 1
            results = step.apply(block, [env[i] for i in step.inputs])
            for slot, result in zip(step.outputs, results):  # noqa: B905
                env[slot] = result
    if ending is None:
        ending = region.ending, [env[i] for i in region.results]
    if len(block.allocated) > outermost:
        while block.pending:
            yield DRAIN
        for buffer in block.allocated[outermost:]:
            launch.memory.release(buffer)
        del block.allocated[outermost:]
    launch.current = block
    return ending


def _forced(value: Any) -> Generator[Cell, None, Any]:
    """The value behind a slot's content, once it is there."""
    if type(value) is Cell:
        while not value.done:
            yield value
        return value.value
    return value


def _run_if(block: Block, step: Step[Block]) -> Generator[Cell | Stop, None, Ending | None]:
    condition = yield from _forced(block.env[step.inputs[0]])
    block.step = step
    taken = block.scalar(condition, "branch", "the condition of `if`", step.op)
    index = 0 if taken else 1
    if index >= len(step.regions):
        return None
    ending, values = yield from run_region(block, step.regions[index])
    if ending != "yield":
        return ending, values
    for slot, value in zip(step.outputs, values, strict=True):
        block.env[slot] = value
    return None


def _run_for(block: Block, step: Step[Block]) -> Generator[Cell | Stop, None, Ending | None]:
    env, op, region = block.env, step.op, step.regions[0]
    bounds: list[int] = []
    type = op.operands[0].type
    assert isinstance(type, TileType)
    bits, carrier = type.dtype.bits, type.dtype.carrier
    unsigned = bool(op.attributes.get("unsigned_cmp"))
    for slot, name in zip(step.inputs[:3], ("lower", "upper", "step"), strict=True):
        tile = yield from _forced(env[slot])
        block.step = step
        bound = block.scalar(tile, "bound", f"`{name}` of `for`", op)
        bounds.append(bound % (1 << bits) if unsigned else bound)
    value, upper, stride = bounds
    if stride <= 0:
        block.fault("for.step", f"`step` must be positive, found {stride}", op=op)
    limit = 1 << (bits if unsigned else bits - 1)
    counter, *slots = region.arguments
    carried = [env[s] for s in step.inputs[3:]]
    spin = _Spin(block, step, ends=True) if step.spins else None
    while value < upper:
        env[counter] = scalar_tile(value if value < limit >> unsigned else value - limit, carrier)
        for slot, item in zip(slots, carried, strict=True):
            env[slot] = item
        ending, values = yield from run_region(block, region)
        if ending == "return":
            return ending, values
        if block.launch.tick is not None:
            block.launch.tick()
        if spin is not None and spin.must_yield(carried, values):
            yield SPIN
        carried = values
        value += stride
        if value >= limit:
            break
    for slot, item in zip(step.outputs, carried, strict=True):
        env[slot] = item
    return None


def _run_loop(block: Block, step: Step[Block]) -> Generator[Cell | Stop, None, Ending | None]:
    env, region = block.env, step.regions[0]
    carried = [env[s] for s in step.inputs]
    spin = _Spin(block, step, ends=False)
    while True:
        for slot, item in zip(region.arguments, carried, strict=True):
            env[slot] = item
        ending, values = yield from run_region(block, region)
        if ending == "return":
            return ending, values
        if ending == "break":
            for slot, item in zip(step.outputs, values, strict=True):
                env[slot] = item
            return None
        if block.launch.tick is not None:
            block.launch.tick()
        if spin.must_yield(carried, values):
            yield SPIN
        carried = values


_CONTROL = {"if": _run_if, "for": _run_for, "loop": _run_loop}


class _Spin:
    """Tells an iteration that only looked at memory from one that got on.

    A block is *stuck* at a version of memory if an iteration carried on what it was given and
    memory stayed as it was: it will do the same for ever unless another block changes memory.
    `block.stuck` is that version, or -1. A `for`, which ends, is never stuck.

    A loop that does not wait, and comes back to what it carried some iterations ago while memory
    stayed as it was, never ends. What it carries is kept at iterations 1, 2, 4, 8, ...: that finds
    a cycle of any length.
    """

    def __init__(self, block: Block, step: Step[Block], ends: bool) -> None:
        self.block, self.step, self.ends = block, step, ends
        self.version = block.launch.version
        self.count = 0
        self.kept: Sequence[Any] = ()
        self.kept_version: int = -1

    def must_yield(self, before: Sequence[Any], after: Sequence[Any]) -> bool:
        block, version = self.block, self.block.launch.version
        same = not self.ends and all(map(_same, before, after))
        unchanged = version == self.version
        self.count += 1
        if not self.ends and not self.step.spins:
            if (same and unchanged) or (
                version == self.kept_version and all(map(_same, self.kept, after))
            ):
                message = "this loop never ends: it comes back to where it was"
                block.fault("loop.endless", message, op=self.step.op)
            if self.count & (self.count - 1) == 0:
                self.kept, self.kept_version = after, version
        block.stuck = version if same and unchanged else -1
        self.version = version
        return same or (unchanged and self.count % 16 == 0)


def _same(before: Any, after: Any) -> bool:
    """True if a carried value stayed as it was. Tokens always do, what is not there yet never."""
    if before is after:
        return True
    if isinstance(before, Cell):
        before = before.value
    if isinstance(after, Cell):
        after = after.value
    if isinstance(before, Token) or isinstance(after, Token):
        return True
    if not isinstance(before, Tile) or not isinstance(after, Tile):
        return False
    if before.poison is not None or after.poison is not None:
        return False
    return before.data.tobytes() == after.data.tobytes()


# Deferred execution


def _issue(block: Block, step: Step[Block]) -> bool:
    """Make an instance of a step, or run it now if it is pure; True for a memory operation."""
    env = block.env
    block.sequence += 1
    inputs: list[Any] = []
    missing: list[Cell] = []
    for slot in step.inputs:
        value = env[slot]
        if type(value) is Cell:
            if value.done:
                value = value.value
            else:
                missing.append(value)
        inputs.append(value)
    at_once = step.kind in ("pure", "now")
    if at_once and not missing:
        block.step, block.number = step, block.sequence
        for slot, result in zip(step.outputs, step.apply(block, inputs), strict=True):
            env[slot] = result
        return False
    cells = [Cell() for _ in step.outputs]
    for slot, cell in zip(step.outputs, cells, strict=True):
        env[slot] = cell
    instance = Instance(block, step, block.sequence, inputs, cells, len(missing))
    block.pending += 1
    for cell in missing:
        cell.waiting.append(instance)
    if not missing:
        block.launch.ready.append(instance)
    return not at_once


def execute(instance: Instance) -> list[Block]:
    """Run an instance, and the pure ones that only waited for it; give the blocks that woke."""
    woken: list[Block] = []
    stack = [instance]
    while stack:
        current = stack.pop()
        block, step = current.block, current.step
        inputs = [v.value if type(v) is Cell else v for v in current.inputs]
        block.step, block.number = step, current.number
        block.launch.current = block
        results = step.apply(block, inputs)
        block.pending -= 1
        for cell, result in zip(current.outputs, results, strict=True):
            cell.value, cell.done = result, True
            woken.extend(cell.blocks)
            for waiting in cell.waiting:
                waiting.missing -= 1
                if waiting.missing == 0:
                    at_once = waiting.step.kind in ("pure", "now")
                    (stack if at_once else block.launch.ready).append(waiting)
        if block.draining and block.pending == 0:
            block.draining = False
            woken.append(block)
    return woken
