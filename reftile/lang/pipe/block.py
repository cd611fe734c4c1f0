"""The block that a kernel of the high-level constructs runs as: grid, threads, what stands on top.

Allocations and views of global memory stand at the top of the kernel, wherever the text first needs
them. What a buffer or an array has been through is kept in *cells*: tokens that loops and branches
carry like names.
"""

from __future__ import annotations

import ast
from collections.abc import Callable, Generator
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import cast

from reftile.ir.core import Block, Op, Value
from reftile.ir.core import Kernel as IrKernel
from reftile.ir.types import scalar as int_scalar
from reftile.lang.dtypes import int32
from reftile.lang.expressions import assign_target
from reftile.lang.frame import Frame, Outcome
from reftile.lang.names.registry import name
from reftile.lang.pipe.common import error, scalar
from reftile.lang.statements import ForeignContext
from reftile.lang.trace import Trace
from reftile.lang.values import CELL, Tile, Token


@dataclass(slots=True)
class LoopState:
    """An iteration of a `Pipelined` loop that is being traced.

    block: its operations. counter: its number. slot: the stage that it works on. landed: the token
    of what was copied to that. touched: shared memory used so far. refill: where in the block the
    stage of the iteration before is free, and the token that says so. copies: those done ahead.
    """

    block: Block
    counter: Value
    slot: Tile
    landed: Token
    touched: set[object] = field(default_factory=set[object])
    refill: tuple[int, Token] | None = None
    copies: list[object] = field(default_factory=list[object])


@dataclass(slots=True)
class BlockShape:
    """What is known of the kernel under construction.

    top: operations that go in front of all others. grid: the extents of `Kernel(...)`, if there is
    one. threads: of a block. home: where allocations may stand. at_close: what is done where the
    text of the block ends. at_end: what `finish` does. loop: the innermost `Pipelined`.
    has_products: one has been started so far. histories: those of shared memory. replicas:
    warpgroups that share the rows of fragments; replica: the number of this one, if there are
    several.
    """

    trace: Trace
    top: Block = field(default_factory=Block)
    grid: tuple[Value, ...] | None = None
    threads: int | None = None
    home: Block | None = None
    count: int = 0
    made: dict[object, object] = field(default_factory=dict[object, object])
    at_close: list[Callable[[], None]] = field(default_factory=list[Callable[[], None]])
    at_end: list[Callable[[], None]] = field(default_factory=list[Callable[[], None]])
    loop: LoopState | None = None
    has_products: bool = False
    histories: list[History] = field(default_factory=list["History"])
    replicas: int = 1
    replica: Tile | None = None

    @property
    def target(self) -> str:
        """The target that the kernel is for."""
        return str(self.trace.kernel.attributes["target"])

    @property
    def warps(self) -> int:
        """Warps of the block, or a diagnosis."""
        if self.threads is not None:
            return self.threads // 32
        given = self.trace.kernel.attributes.get("warps")
        if isinstance(given, int):
            return given
        raise error(
            self.trace,
            "warps",
            "how many threads a block has is not known here",
            "put this inside `with Kernel(..., threads=128)`, or give the kernel `warps=4`",
        )

    @contextmanager
    def on_top(self) -> Generator[None]:
        """Build at the top of the kernel for the length of a `with`."""
        with self.trace.inside(self.top):
            yield

    def once(self, key: object, make: Callable[[], object]) -> object:
        """Something that the kernel has once; `make` builds it, at the top of the kernel."""
        if key not in self.made:
            with self.on_top():
                self.made[key] = make()
        return self.made[key]

    def fresh(self, what: str) -> str:
        """A name for a cell that no other has."""
        self.count += 1
        return f"{CELL}{what}{self.count}"

    def start(self) -> Token:
        """The token that waits for nothing."""
        t = self.trace
        return cast("Token", self.once("start", lambda: Token(t.value("make_token"))))

    def zero(self) -> Tile:
        """The number 0, made at the top of the kernel."""
        t = self.trace
        return cast("Tile", self.once("zero", lambda: Tile(t.constant(0, int32), int32)))

    def need_home(self, what: str) -> None:
        """Raise if the place at hand is inside a loop or a branch."""
        if self.home is None:
            raise error(
                self.trace,
                "allocation",
                f"`{what}` stands outside of `with Kernel(...)`",
                "the constructs that become several operations belong into one",
            )
        if self.trace.block is not self.home:
            raise error(
                self.trace,
                "allocation",
                f"`{what}` stands inside a loop or a branch",
                "allocate in front of it: memory and fragments are there for the whole kernel",
            )

    def finish(self, kernel: IrKernel) -> None:
        """Put what was built for the top there, and say how many warps there are."""
        for action in self.at_end:
            action()
        block = kernel.body.block
        for op in self.top.ops:
            op.parent = block
        block.ops = [*self.top.ops, *block.ops]
        if not any(op.name == "mma_start" for op in kernel.walk()):
            self._drop_waits(kernel)
        if self.threads is not None:
            kernel.attributes["warps"] = self.threads // 32

    def _drop_waits(self, kernel: IrKernel) -> None:
        """Without products nothing waits for them."""
        waits = [op for op in kernel.walk() if op.name == "mma_wait"]
        start = self.made.get("start")
        if not waits or not isinstance(start, Token):
            return
        mapping = {op.results[0]: start.value for op in waits}
        for op in kernel.walk():
            op.replace_operands(mapping)
        for op in waits:
            assert op.parent is not None
            op.parent.ops.remove(op)


def shape_of(t: Trace) -> BlockShape:
    """What is known of the kernel that `t` traces."""
    if not isinstance(t.dialect, BlockShape):
        t.dialect = BlockShape(t)
    return t.dialect


@dataclass(frozen=True, slots=True, eq=False)
class Grid(ForeignContext):
    """`Kernel(...)` in a `with`."""

    extents: tuple[Value, ...]
    threads: int | None

    def describe(self) -> str:
        """Name the value in a message."""
        return "`Kernel(...)`, which stands in a `with`"

    def trace(
        self,
        frame: Frame,
        node: ast.With,
        target: ast.expr | None,
        body: Callable[[], Outcome],
    ) -> Outcome:
        """Trace the body for one block; the target gets its coordinates."""
        t = frame.trace
        shape = shape_of(t)
        if not frame.is_kernel or t.block is not t.kernel.body.block or shape.grid is not None:
            raise frame.error(node, "pipe.grid", "a kernel has one `Kernel(...)`, at its top level")
        shape.grid = self.extents
        if self.threads is not None:
            if "warps" in t.kernel.attributes:
                raise frame.error(node, "pipe.warps", "the number of threads is given twice")
            shape.threads = self.threads
        if target is not None:
            results = t.op("get_tile_block_id").results
            found = tuple(Tile(results[i], int32) for i in range(len(self.extents)))
            single = isinstance(target, ast.Name) and len(found) == 1
            assign_target(frame, target, found[0] if single else found)
        if shape.target == "sm_90a" and self.threads and self.threads % 128 == 0:
            shape.replicas = self.threads // 128
        if shape.replicas == 1:
            return self._body(shape, body)
        return self._warpgroups(frame, shape, body)

    def _body(self, shape: BlockShape, body: Callable[[], Outcome]) -> Outcome:
        shape.home = shape.trace.block
        outcome = body()
        for close in shape.at_close:
            close()
        return outcome

    def _warpgroups(self, frame: Frame, shape: BlockShape, body: Callable[[], Outcome]) -> Outcome:
        """The body as a role whose replicas share the rows of fragments."""
        t = frame.trace
        block = Block((int_scalar(int32.element),), ("warpgroup",))
        shape.replica = Tile(block.arguments[0], int32)
        outer, frame.names = frame.names, dict(frame.names)
        try:
            with t.inside(block):
                outcome = self._body(shape, body)
                t.op("yield", ())
        finally:
            frame.names = outer
        role = {"label": "warpgroup", "warps": 4, "replicas": shape.replicas}
        t.structure("role", [block], types=[], **role)
        return outcome


@name
def Kernel(t: Trace, /, *extents: object, threads: object = None) -> Grid:
    """The grid of the kernel, as a context that gives the block's coordinates.

    extents: blocks along one to three axes, of which the host computes the values. threads: of a
    block; a multiple of 32.
    """
    if not 1 <= len(extents) <= 3:
        raise error(t, "grid", f"a grid has one to three axes, found {len(extents)}")
    count = None if threads is None else t.static_int(threads, "threads")
    if count is not None and (count % 32 or not 32 <= count <= 1024):
        raise error(t, "threads", f"a block has 32 to 1024 threads, in whole warps, found {count}")
    return Grid(tuple(scalar(t, e, "extents") for e in extents), count)


# What memory has been through


@dataclass(frozen=True, slots=True)
class History:
    """The accesses to one piece of memory, as tokens in two cells.

    A read waits for the last write, a write for all accesses before it.
    """

    shape: BlockShape
    written_cell: str
    all_cell: str

    @staticmethod
    def of(shape: BlockShape, what: str, initial: Callable[[], object]) -> History:
        """Begin a history; `initial` is what the first read waits for."""
        name_ = shape.fresh(what)
        shape.trace.cells[f"{name_}.written"] = initial
        shape.trace.cells[f"{name_}.all"] = shape.start
        return History(shape, f"{name_}.written", f"{name_}.all")

    def written(self) -> object:
        """The token of the last write; `Undefined` if there may be none."""
        return self.shape.trace.cell(self.written_cell)

    def all(self) -> Token:
        """The token of all accesses."""
        return cast("Token", self.shape.trace.cell(self.all_cell))

    def has_read(self, *tokens: Token) -> None:
        """Note reads."""
        self.shape.trace.set_cell(self.all_cell, join(self.shape.trace, self.all(), *tokens))

    def has_landed(self, token: Token) -> None:
        """Note a write that a loop does ahead of its iterations."""
        t = self.shape.trace
        t.set_cell(self.written_cell, token)
        t.set_cell(self.all_cell, join(t, self.all(), token))

    def has_written(self, token: Token) -> None:
        """Note a write."""
        self.shape.trace.set_cell(self.written_cell, token)
        self.shape.trace.set_cell(self.all_cell, token)


def join(t: Trace, *tokens: Token) -> Token:
    """One token for several; what another has waited for is left out."""
    values = list(dict.fromkeys(v.value for v in tokens))
    values = [v for v in values if not _is_start(v)] or values[:1]
    if len(values) == 1:
        return Token(values[0])
    return Token(t.value("join_tokens", tuple(values)))


def _is_start(value: Value) -> bool:
    return isinstance(value.owner, Op) and value.owner.name == "make_token"
