"""Small `pipe` kernels as steps of agents: who accesses what, and what waits for what.

A role has `THREADS` threads here, which stand for those that hold different parts of a tile, and a
buffer or a tile of a view has as many *cells*: an operation of the role on it accesses every cell,
on a thread that changes from operation to operation unless both move the tile in one known layout.
An asynchronous operation is a thread of its own, with a beginning (its issue) and an end (the wait
that covers it). Loops are unrolled; a barrier is a place in memory that holds its phase, the
arrivals and the bytes that are missing.

Not modelled: several blocks, `subview` and whatever depends on a loaded value. They are refused.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Literal

import numpy as np

from reftile.interp.arguments import bind_arguments
from reftile.interp.memory import Memory
from reftile.interp.model.events import Access, Location, Order, Scope
from reftile.interp.model.places import known_scalar
from reftile.interp.model.run_block import BlockRun
from reftile.interp.model.symbolic import Data, Elements, expressions, refuse, settled
from reftile.interp.model.values import (
    TRUE,
    Expr,
    Reg,
)
from reftile.interp.values import Tile
from reftile.interp.views import TileView
from reftile.ir import ops
from reftile.ir.core import Block, Kernel, Op, Value
from reftile.ir.diagnostics import fail
from reftile.ir.dtypes import DType
from reftile.ir.types import TileType

THREADS = 2
CELL = 8
"""Bytes of a cell, whatever it stands for."""
FENCED = "proxy fence"
"""The name of the place that fences read, so that they are events; nobody writes it."""

Nodes = frozenset[int]
"""What a token waits for: numbers of steps."""
Kind = Literal["access", "arrive", "wait", "fence", "complete", "meet"]
Place = tuple[int, int, int]
"""A point in the text of a thread: (agent, thread, turn)."""


@dataclass(slots=True)
class Step:
    """What one operation does, or one part of an asynchronous one.

    after: what its token waits for. threads: of each access. order, scope: of all.
    turn: the place in the text of the agent. task: the number of the asynchronous operation, or -1.
    space: what a fence acts on. arrivals, threads of meetings: see `Meeting`.
    """

    kind: Kind
    name: str
    agent: int
    turn: int
    after: Nodes
    accesses: list[Access] = field(default_factory=list[Access])
    threads: list[int] = field(default_factory=list[int])
    order: Order = "weak"
    scope: Scope | None = None
    is_async: bool = False
    task: int = -1
    space: str = ""
    text: str = ""


@dataclass(slots=True)
class Task:
    """An asynchronous operation. reads_end, writes_end: where its accesses are known to be over."""

    agent: int
    issuers: tuple[int, ...]
    turn: int
    reads: list[int] = field(default_factory=list[int])
    writes: list[int] = field(default_factory=list[int])
    reads_end: list[Place] = field(default_factory=list[Place])
    writes_end: list[Place] = field(default_factory=list[Place])


@dataclass(slots=True)
class Meeting:
    """A barrier of threads. came: (agent, turn, whether it waits) of each."""

    came: list[tuple[int, int, bool]] = field(default_factory=list[tuple[int, int, bool]])


@dataclass(frozen=True, slots=True)
class Mistake:
    """One thing done wrong in the lowered code.

    drop: the operation is missing. flip: the wait is for the other phase. fewer: the barrier awaits
    half the arrivals, or the threads of one role alone. early: the wait is for the source only.
    """

    kind: Literal["drop", "flip", "fewer", "early"]
    op: str
    at: int = 0

    def is_at(self, op: Op, kernel: Kernel) -> bool:
        """Whether this is the operation: the `at`-th of its name in the text."""
        same = [o for o in kernel.walk() if o.name == self.op]
        return len(same) > self.at and same[self.at] is op


@dataclass(frozen=True, slots=True)
class Slice:
    """A buffer: its name and how many cells it has."""

    name: str
    cells: int


@dataclass(frozen=True, slots=True)
class Slices:
    """A ring of buffers."""

    name: str
    slots: int
    cells: int


@dataclass(slots=True)
class Groups:
    """Asynchronous operations of one agent, by group: open, and closed ones in order."""

    open: list[int] = field(default_factory=list[int])
    closed: list[list[int]] = field(default_factory=list[list[int]])


class PipeRun(BlockRun):
    """Runs one block of a `pipe` kernel, role by role.

    operations: how to follow those of this level (`pipe_steps`).
    steps, tasks, meetings: what happens. initial: the first value of each place that is not poison.
    assume: conditions without which an execution does not go on. hidden: registers of barriers.
    """

    def __init__(
        self,
        kernel: Kernel,
        args: Sequence[Any],
        operations: Mapping[str, Follow],
        mistake: Mistake | None = None,
    ) -> None:
        if kernel.level != "pipe":
            raise fail("explore.level", f"`{kernel.name}` is no pipe kernel", kernel.span)
        if kernel.attributes.get("cluster", (1,)) not in ((1,), (1, 1, 1)):
            raise fail("explore.cluster", "one block is modelled, not a cluster", kernel.span)
        memory = Memory()
        self.arguments = bind_arguments(kernel, args, memory)
        super().__init__(kernel, (0, 0, 0), (1, 1, 1), memory, {}, "cta", 0)
        self.mistake, self._operations = mistake, operations
        self.steps: list[Step] = []
        self.tasks: list[Task] = []
        self.meetings: list[Meeting] = []
        self.initial: dict[str, int] = {}
        self.assume: list[Expr] = []
        self.hidden: set[str] = set()
        self.outputs: dict[str, int] = {}
        self.agents: list[str] = []
        self.agent = -1
        self.turn = 0
        self.elected = False
        self._groups: dict[tuple[int, str], Groups] = {}
        self.comings: dict[tuple[str, int, int], int] = {}
        self.named: dict[tuple[str, int, int], Meeting] = {}
        self._names: dict[str, int] = {}
        self._rotation: dict[str, int] = {}

    def follow(self) -> PipeRun:
        """Run everything; return itself."""
        self._region(self.kernel.body.block, self.arguments, TRUE)
        return self

    # Control

    def _region(self, block: Block, arguments: Sequence[Any], guard: Expr) -> list[Any]:
        self.env.update(zip(block.arguments, arguments, strict=True))
        if any(isinstance(op, ops.Role) for op in block.ops):
            self._roles(block)
            return []
        if self.agent < 0 and block is self.kernel.body.block:
            self._enter("all")
        return super()._region(block, arguments, guard)

    def _roles(self, block: Block) -> None:
        for op in block.ops[:-1]:
            if isinstance(op, ops.Role):
                for replica in range(op.replicas):
                    self._enter(f"{op.label}{replica}" if op.replicas > 1 else op.label)
                    body = op.body.block
                    given = [Tile(np.array(replica, np.int32))] if body.arguments else []
                    self._region(body, given, TRUE)
                self.agent = -1
            elif op.regions or op.definition.effects in ("read", "write", "atomic", "async"):
                raise refuse(op, "outside the roles is not modelled")
            else:
                self._step(op, TRUE)

    def elect(self, block: Block) -> list[Any]:
        """Let one thread run a region; give what it yields."""
        self.elected = True
        leavings = super()._region(block, (), TRUE)
        self.elected = False
        return leavings[-1].values

    def _enter(self, label: str) -> None:
        self.agents.append(label)
        self.agent, self.turn = len(self.agents) - 1, 0

    def _step(self, op: Op, guard: Expr) -> None:
        if guard != TRUE:
            raise refuse(op, "under a loaded condition is not modelled")
        self.turn += 1
        run = self._operations.get(op.name)
        wrong = self.mistake
        if wrong is not None and wrong.kind == "drop" and wrong.is_at(op, self.kernel):
            tokens: list[Nodes] = [self.env[v] for v in op.operands if v.type.kind == "token"]
            self.env.update((r, frozenset[int]().union(*tokens)) for r in op.results)
            return
        if run is None:
            if op.definition.effects in ("read", "write", "read_write", "atomic", "async"):
                raise refuse(op, "is not modelled in pipe kernels")
            super()._step(op, guard)
            return
        values = {v: self.env[v] for v in op.operands}
        results = run(self, op, values)
        self.env.update(zip(op.results, results, strict=True))

    def _other(self, op: Op, values: list[Any], guard: Expr) -> list[Any]:
        if op.name == "make_token":
            return [frozenset[int]()]
        if op.name == "join_tokens":
            return [frozenset[int]().union(*values)]
        return super()._other(op, values, guard)

    # Names and threads

    def unique(self, op: Op, result: int = -1) -> str:
        """A name for a step: that of a result, or of the operation."""
        named = op.results[result].name if op.results else ""
        base = f"{self.agents[self.agent]}.{named or op.name}"
        count = self._names[base] = self._names.get(base, 0) + 1
        return base if count == 1 else f"{base}#{count}"

    def rotation(self, op: Op) -> int:
        """By how many threads an operation's cells are moved: a number for each layout."""
        tiles = [v.type for v in (*op.results, *op.operands) if isinstance(v.type, TileType)]
        layout = str(tiles[0].layout) if tiles and tiles[0].layout else ""
        key = layout or f"{self.agent} {self.turn}"
        return self._rotation.setdefault(key, len(self._rotation))

    def threads(self, count: int, rotation: int) -> list[int]:
        """The threads of `count` cells."""
        if self.elected:
            return [0] * count
        return [(cell + rotation) % THREADS for cell in range(count)]

    def add(self, step: Step) -> int:
        """Note a step; its number is what tokens name."""
        self.steps.append(step)
        return len(self.steps) - 1

    def begin(self, kind: Kind, op: Op, after: Nodes, name: str = "") -> Step:
        """A step of the present agent."""
        text = op.span.source.text[op.span.start : op.span.end] if op.span.source.text else op.name
        short = " ".join(text.split()).partition("{value")[0]
        return Step(kind, name or self.unique(op), self.agent, self.turn, after, text=short)

    def groups(self, engine: str) -> Groups:
        """The asynchronous operations of the present agent, by what does them."""
        return self._groups.setdefault((self.agent, engine), Groups())

    def finish(self, task: int, reads_only: bool) -> Nodes:
        """Let a task be over here; give what its token covers then."""
        found = self.tasks[task]
        threads = found.issuers if self.elected or len(found.issuers) == 1 else range(THREADS)
        here = [(self.agent, thread, self.turn) for thread in threads]
        found.reads_end += here
        if reads_only:
            return frozenset(found.reads)
        found.writes_end += here
        return frozenset((*found.reads, *found.writes))

    # Values in cells

    def stored(self, data: Data, dtype: DType, cells: int) -> list[Expr]:
        """One value for each cell, from the elements that it stands for."""
        flat = expressions(data, dtype).reshape(-1)
        return [flat[cell * flat.size // cells] for cell in range(cells)]

    def loaded(self, registers: list[str], type: TileType) -> Data:
        """A tile whose elements are those of their cells."""
        flat: Elements = np.empty(type.size, np.object_)
        for cell, register in enumerate(registers):
            first = cell * type.size // len(registers)
            flat[first : (cell + 1) * type.size // len(registers)] = Reg(register)
        return settled(flat.reshape(type.shape), type.dtype)

    def cells(self, buffer: Slice) -> list[Location]:
        """The places of a buffer."""
        return [Location(buffer.name, CELL * cell, CELL) for cell in range(buffer.cells)]

    def view_cells(self, op: Op, view: TileView, index: Sequence[Any]) -> list[Location]:
        """The places of a tile of a view."""
        at = [known_scalar(op, i, "the index of a view") for i in index]
        buffer = view.tensor.buffer
        if buffer is None:
            raise refuse(op, "takes a view of no single buffer")
        shape = "x".join(map(str, view.type.tile))
        known = {n for n in self.outputs if n.startswith(f"{buffer.name}<")}
        name = f"{buffer.name}<{shape}>{at}"
        if any(not n.startswith(f"{buffer.name}<{shape}>") for n in known):
            raise refuse(op, f"cuts `{buffer.name}` into tiles of another shape")
        cells = THREADS if np.prod(view.type.tile) > 1 else 1
        self.outputs[name] = cells
        self.initial.setdefault(name, 100 * len(self.outputs))
        return [Location(name, CELL * cell, CELL) for cell in range(cells)]


Follow = Callable[[PipeRun, Op, dict[Value, Any]], list[Any]]
"""`follow(run, op, values)`: note what an operation does, and give its results."""
