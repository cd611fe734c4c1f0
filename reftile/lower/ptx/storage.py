"""Which values share registers: loops, branches and products keep a value where it is.

A value that a loop carries, a product writes or a branch yields has *storage*: one group of
registers that all those values are. They may share it if none of them is still wanted when the next
is written; otherwise a move is printed. For accumulators in flight sharing is certain, because
they are used once. Every other value has registers of its own, and ptxas packs them.
"""

from __future__ import annotations

from dataclasses import dataclass, field

from reftile.ir import ops
from reftile.ir.core import Block, Kernel, Op, Value
from reftile.ir.types import PendingType, TileType

RENAMING = frozenset({"reshape", "broadcast", "permute", "extract", "change_layout"})
"""Operations that may only rename registers, so that their results live where their operands do."""

_IN_PLACE = frozenset({"elementwise", "select"})


@dataclass(slots=True)
class _Life:
    """Where a value is written and last read, as positions in the text."""

    begin: int
    end: int
    reader: Op | None = None


@dataclass(slots=True)
class Storage:
    """The result: values by the representative whose registers they use.

    sharing: the values that share registers, representatives too.
    """

    parent: dict[Value, Value] = field(default_factory=dict[Value, Value])
    sharing: set[Value] = field(default_factory=set[Value])

    def find(self, value: Value) -> Value:
        """The representative of a value."""
        while (up := self.parent.get(value)) is not None:
            value = up
        return value


def assign_storage(kernel: Kernel) -> Storage:
    """Decide for a `simt` kernel which values share registers."""
    return _Assigner(kernel).run()


class _Assigner:
    def __init__(self, kernel: Kernel) -> None:
        self.kernel = kernel
        self.position: dict[Op, tuple[int, int]] = {}
        self.lives: dict[Value, _Life] = {}
        self.storage = Storage()
        self.members: dict[Value, list[Value]] = {}
        self.depth: dict[Value, int] = {}  # loops around a value's definition

    def run(self) -> Storage:
        self.number(self.kernel.body.block, 0)
        self.live(self.kernel.body.block, [])
        all_ops = list(self.kernel.walk())
        self.lend(all_ops)
        for op in all_ops:
            self.products(op)
            self.counted(op)
        for op in all_ops:
            if op.regions:
                self.control(op)
        return self.storage

    def number(self, block: Block, at: int) -> int:
        for op in block.ops:
            begin = at
            at += 1
            for region in op.regions:
                at = self.number(region.block, at)
            self.position[op] = (begin, at)
            at += 1
        return at

    # Lives

    def live(self, block: Block, loops: list[Op]) -> None:
        for op in block.ops:
            begin, end = self.position[op]
            for value in op.operands:
                self.use(value, op, begin, loops)
            for result in op.results:
                self.lives[result] = _Life(end if op.regions else begin, end)
                self.depth[result] = len(loops)
            inner = [*loops, op] if "loop" in op.definition.traits else loops
            for region in op.regions:
                for argument in region.block.arguments:
                    self.lives[argument] = _Life(begin, begin)
                    self.depth[argument] = len(inner)
                self.live(region.block, inner)

    def use(self, value: Value, op: Op, at: int, loops: list[Op]) -> None:
        """Read `value` in `op`, which `loops` are around, the outermost first.

        A read in a loop that the value comes from outside of lasts the whole loop.
        """
        owner = value.owner
        if isinstance(owner, Op) and owner.name in RENAMING:
            for operand in owner.operands:
                self.use(operand, op, at, loops)
        life = self.lives.get(value)
        if life is None:
            return
        depth = self.depth[value]
        if len(loops) > depth:
            at = self.position[loops[depth]][1]
        if at >= life.end:
            life.end, life.reader = at, op

    def _loops_around(self, op: Op) -> list[Op]:
        found: list[Op] = []
        block = op.parent
        while block is not None and block.parent is not None:
            owner = block.parent.parent
            if not isinstance(owner, Op):
                break
            if "loop" in owner.definition.traits:
                found.append(owner)
            block = owner.parent
        return found[::-1]

    def lend(self, all_ops: list[Op]) -> None:
        """A fragment that a product reads lives until the wait for that product."""
        uses = {v: op for op in all_ops for v in op.operands}
        for op in all_ops:
            if isinstance(op, ops.MultiplyAsync) and _is_fragment(op.lhs):
                wait = _wait_of(op.result, uses)
                if wait is not None:
                    self.use(op.lhs, wait, self.position[wait][0], self._loops_around(wait))

    # Sharing

    def products(self, op: Op) -> None:
        """Accumulators stay in their registers, whatever else."""
        if isinstance(op, ops.MultiplyAsync):
            if not _is_constant(op.acc):
                self.join(op.acc, op.result)
        elif isinstance(op, ops.WaitProducts):
            for pending, value in zip(op.pending, op.values, strict=True):
                self.join(pending, value)

    def counted(self, op: Op) -> None:
        """What a counted loop carries is its result. Known before anything else may share."""
        if isinstance(op, ops.For):
            for argument, result in zip(op.body.block.arguments[1:], op.results, strict=True):
                self.join(argument, result)

    def control(self, op: Op) -> None:
        if isinstance(op, (ops.For, ops.Loop)):
            self.loop(op)
        elif isinstance(op, ops.IfRows):
            self.rows(op)
        elif isinstance(op, ops.If) and op.results:
            for region in op.regions:
                last = region.block.ops[-1]
                if last.name == "yield":
                    for result, value in zip(op.results, last.operands, strict=True):
                        self.try_join(result, value)

    def loop(self, op: ops.For | ops.Loop) -> None:
        init = op.init
        block = op.body.block
        carried = block.arguments[len(block.arguments) - len(init) :]
        for argument, value in zip(carried, init, strict=True):
            if isinstance(argument.type, PendingType):
                self.join(argument, value)
            else:
                self.try_join(argument, value)
        for end in block.walk():
            if end.name == "continue" and self._loops_around(end)[-1] is op:
                for argument, value in zip(carried, end.operands, strict=True):
                    if isinstance(argument.type, PendingType):
                        self.join(argument, value)
                    else:
                        self.try_join(argument, value)

    def rows(self, op: ops.IfRows) -> None:
        """Results take the place of `otherwise`, or are written before the branch."""
        last = op.then.block.ops[-1]
        for result, value, computed in zip(op.results, op.otherwise, last.operands, strict=True):
            if not self.try_join(result, value):
                self.lives[result].begin = self.position[op][0]
            self.try_join(result, computed)

    def join(self, first: Value, second: Value) -> None:
        one, other = self.storage.find(first), self.storage.find(second)
        if one is other:
            return
        self.storage.parent[other] = one
        self.storage.sharing.update((one, other))
        members = self.members.pop(one, [one]) + self.members.pop(other, [other])
        self.members[one] = members

    def try_join(self, first: Value, second: Value) -> bool:
        """Share if no member of one is wanted when a member of the other is written."""
        one, other = self.storage.find(first), self.storage.find(second)
        if one is other:
            return True
        if not _has_registers(first) or not _has_registers(second):
            return False
        for a in self.members.get(one, [one]):
            for b in self.members.get(other, [other]):
                if not self._apart(a, b):
                    return False
        self.join(first, second)
        return True

    def _apart(self, a: Value, b: Value) -> bool:
        first, second = self.lives.get(a), self.lives.get(b)
        if first is None or second is None:
            return False
        if first.begin > second.begin:
            first, second, b = second, first, a
        if first.begin == second.begin:
            return False  # One place writes both, and what nobody reads is written too.
        if first.end < second.begin:
            return True
        if first.end > second.begin:
            return False
        # One instruction reads the last of one and writes the other: register by register only.
        owner = b.owner
        return not isinstance(owner, Op) or bool(owner.regions) or _keeps_places(owner)


def _keeps_places(op: Op) -> bool:
    kinds = [v.type for v in (*op.operands, *op.results) if isinstance(v.type, TileType)]
    alike = len({k.element for k in kinds}) == 1 or all(k.size == 1 for k in kinds)
    return op.name in ("wait_products", "mmaf", "mmai") or (
        op.definition.poison in _IN_PLACE and not op.regions and alike
    )


def _is_fragment(value: Value) -> bool:
    return isinstance(value.type, TileType) and bool(value.type.shape)


def _is_constant(value: Value) -> bool:
    return isinstance(value.owner, Op) and value.owner.name in ("constant", "broadcast")


def _has_registers(value: Value) -> bool:
    """True if a value is held in registers of its own, not named by others or known."""
    owner = value.owner
    if isinstance(owner, Block):
        return owner.parent is not None and isinstance(owner.parent.parent, Op)
    return isinstance(owner, Op) and owner.name not in RENAMING | {"constant", "iota"}


def _wait_of(pending: Value, uses: dict[Value, Op]) -> Op | None:
    """The wait that takes `pending`, through the products and loops that hand it on."""
    seen: set[Value] = set()
    while pending not in seen:
        seen.add(pending)
        op = uses.get(pending)
        if isinstance(op, ops.WaitProducts):
            return op
        if isinstance(op, ops.MultiplyAsync):
            pending = op.result
            continue
        return op
    return None
