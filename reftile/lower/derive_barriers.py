"""Put a barrier of the role wherever a token edge needs one.

Needs: a `pipe` kernel. Leaves: what tokens order between threads of one role, `sync` operations and
other barriers order too; across roles the program has its own barriers.

The rule is in spec/pipe.md, "What lowering adds". For every token this pass keeps the operations
behind it that no barrier has covered yet. An operation that takes such a token and meets their
elements in other threads gets a `sync` directly before it, which covers all that came before.

Before:

    pipe kernel @leave(%o: tile<ptr<f32>>) attributes {target = "sm_90a", warps = 4} {
      %zero = constant {value = 0} : tile<i32>
      %t = make_tensor_view %o, [], [] : tensor_view<64x32xf32, strides=[32, 1]>
      %v = make_partition_view %t :
        partition_view<tile=(64x32), tensor_view<64x32xf32, strides=[32, 1]>>
      %b = alloc_buffer : buffer<64x32xf32, layout=swizzle128>
      %x = constant {value = 2.0} : tile<64x32xf32>
      %written = store_buffer %x, %b : token
      %fenced = fence_proxy %written : token
      elected body {
        copy_out %b, %v, [%zero, %zero], token=%fenced
        commit_copies {engine = bulk}
        %done = wait_copies {engine = bulk} : token
        yield
      }
      return }

After:

    pipe kernel @leave(%o: tile<ptr<f32>>) attributes {target = "sm_90a", warps = 4} {
      %zero = constant {value = 0} : tile<i32>
      %t = make_tensor_view %o, [], [] : tensor_view<64x32xf32, strides=[32, 1]>
      %v = make_partition_view %t :
        partition_view<tile=(64x32), tensor_view<64x32xf32, strides=[32, 1]>>
      %b = alloc_buffer : buffer<64x32xf32, layout=swizzle128>
      %x = constant {value = 2.0} : tile<64x32xf32>
      %written = store_buffer %x, %b : token
      %fenced = fence_proxy %written : token
      %met = sync : token
      elected body {
        copy_out %b, %v, [%zero, %zero], token=%fenced
        commit_copies {engine = bulk}
        %done = wait_copies {engine = bulk} : token
        yield
      }
      return }
"""

from __future__ import annotations

from dataclasses import dataclass

from reftile.ir import ops
from reftile.ir.core import Block, Kernel, Op, Value
from reftile.ir.types import TOKEN, TileType, TokenType
from reftile.lower.fragments import copies, layout_of

Open = frozenset[Op]
"""Operations that a token stands for and no barrier has covered."""

_NOTHING: Open = frozenset()
_BARRIERS = ("sync", "sync_named", "step")
_COVERED_WAITS = ("wait_barrier", "mma_wait", "cluster_wait")
_TOUCHING = frozenset({"read", "write", "read_write", "atomic", "async"})
"""Effects of operations that a token stands for."""


@dataclass(frozen=True, slots=True)
class _Inside:
    """The operations inside `elected`, itself too, and the tokens that they take from outside."""

    ops: Open
    tokens: tuple[Value, ...]


def derive_barriers(kernel: Kernel, target: str) -> Kernel:
    """Insert `sync` operations, for the whole block around the roles, then role by role."""
    _Role().block(kernel.body.block)
    for op in kernel.body.block.ops:
        if isinstance(op, ops.Role):
            _Role().block(op.body.block)
    return kernel


class _Role:
    """Follows the text of one role; loops twice, so that the second iteration sees the first."""

    def __init__(self) -> None:
        self.open: dict[Value, Open] = {}
        self.elected: dict[Op, _Inside] = {}

    def block(self, block: Block) -> None:
        for op in list(block.ops):
            if isinstance(op, ops.Role):
                self._cover()  # Fork orders all that came before.
                continue
            gathered = self._gathered(op)
            if self._needs_barrier(op, gathered):
                self._insert(block, op)
                gathered = _NOTHING
            self._follow(op, gathered)

    def _gathered(self, op: Op) -> Open:
        """What the operands of `op` stand for."""
        found = [sources for v in op.operands if (sources := self.open.get(v))]
        return _NOTHING.union(*found) if found else _NOTHING

    def _inside(self, op: ops.Elected) -> _Inside:
        """Nothing is inserted into `elected`, so that what is found once stays right."""
        if op not in self.elected:
            self.elected[op] = _Inside(frozenset(op.walk()), tuple(_tokens_into(op)))
        return self.elected[op]

    def _insert(self, block: Block, op: Op) -> None:
        tokens = [t for t in _tokens_into(op) if self.open.get(t)]
        known = next((t for t in tokens if t in op.operands), None)
        sync = ops.Sync((known,), (TOKEN,), {}, (), op.span, ("met",))
        block.insert_before(op, sync)
        self._cover()

    def _cover(self) -> None:
        self.open = dict.fromkeys(self.open, _NOTHING)

    def _needs_barrier(self, op: Op, gathered: Open) -> bool:
        if isinstance(op, ops.Elected):
            inside = self._inside(op)
            return any(self.open.get(t, _NOTHING) - inside.ops for t in inside.tokens)
        if not gathered:
            return False
        if op.regions or op.name in _BARRIERS or op.name in ("join_tokens", "fence_proxy"):
            return False
        if op.name == "arrive_named" or op.attributes.get("by") == "threads":
            return False  # Every thread comes for itself.
        if op.definition.is_terminator:
            return False
        return any(_conflicts(source, op) for source in gathered)

    def _follow(self, op: Op, gathered: Open) -> None:
        if op.name in _BARRIERS:
            self._cover()
            gathered = _NOTHING
        elif op.name in _COVERED_WAITS:
            gathered = _NOTHING
        elif isinstance(op, ops.Elected):
            self._follow_elected(op)
            return
        elif op.regions and op.definition.effects == "control":
            self._follow_regions(op)
            return
        elif op.definition.effects in _TOUCHING:
            gathered = gathered | {op}
        for result in op.results:
            if isinstance(result.type, TokenType):
                self.open[result] = gathered

    def _follow_elected(self, op: ops.Elected) -> None:
        """One thread: nothing inside needs a barrier, what leaves stands for that thread only."""
        block = op.body.block
        for result, value in zip(op.results, block.ops[-1].operands, strict=True):
            found = _sources(value, self._inside(op).ops, self.open)
            self.open[result] = found

    def _follow_regions(self, op: Op) -> None:
        is_loop = "loop" in op.definition.traits
        for _ in range(2 if is_loop else 1):
            for region in op.regions:
                block = region.block
                if is_loop:
                    init = op.operands[3:] if isinstance(op, ops.For) else op.operands
                    carried = block.arguments[1:] if isinstance(op, ops.For) else block.arguments
                    ends = [
                        o.operands for o in block.walk() if o.name == "continue" and _ends(o, op)
                    ]
                    for i, argument in enumerate(carried):
                        values = [init[i], *(e[i] for e in ends)]
                        self._merge(argument, values)
                self.block(block)
        for region in op.regions:
            for inner in region.block.walk():
                if inner.name in ("continue", "yield", "break") and _ends(inner, op):
                    for result, value in zip(op.results, inner.operands, strict=False):
                        self._merge(result, [value])
        if isinstance(op, ops.For):
            for result, value in zip(op.results, op.init, strict=True):
                self._merge(result, [value])

    def _merge(self, target: Value, values: list[Value]) -> None:
        if isinstance(target.type, TokenType):
            found = self.open.get(target, _NOTHING)
            self.open[target] = found.union(*(self.open.get(v, _NOTHING) for v in values))


def _ends(op: Op, loop: Op) -> bool:
    """True if `op` ends a region of `loop`, perhaps from inside an `if`."""
    block = op.parent
    while block is not None and block.parent is not None:
        owner = block.parent.parent
        if owner is loop:
            return True
        if not isinstance(owner, Op) or owner.name != "if" or op.name == "yield":
            return False
        block = owner.parent
    return False


def _sources(value: Value, inside: frozenset[Op], open: dict[Value, Open]) -> Open:
    """The operations behind a token that leaves `elected`."""
    owner = value.owner
    if not isinstance(owner, Op) or owner not in inside:
        return open.get(value, _NOTHING)
    found = frozenset[Op]() if owner.name == "join_tokens" else frozenset([owner])
    for operand in owner.operands:
        if isinstance(operand.type, TokenType):
            found |= _sources(operand, inside, open)
    return found


def _tokens_into(op: Op) -> list[Value]:
    """Tokens from outside that `op`, or an operation inside it, takes."""
    inside = {r for o in op.walk() for r in o.results}
    return [
        v
        for o in op.walk()
        for v in o.operands
        if isinstance(v.type, TokenType) and v not in inside
    ]


def _conflicts(source: Op, op: Op) -> bool:
    """True if the two may touch one element in different threads, or one thread acts for all."""
    if op.name in ("mma_wait", "wait_barrier", "wait_copies", "make_token"):
        return False
    if source.name == "load_buffer" and op.name == "load_buffer":
        return False
    if source.name in ("load_buffer", "store_buffer") and op.name in (
        "load_buffer",
        "store_buffer",
    ):
        return not _same_threads(source, op)
    return True


def _same_threads(source: Op, op: Op) -> bool:
    """True if both move one tile of one buffer in one layout, each element by one thread.

    Of copies one thread stores, and all load.
    """
    tiles = [
        next(v.type for v in (*o.results, *o.operands) if isinstance(v.type, TileType))
        for o in (source, op)
    ]
    places = [next(v for v in o.operands if v.type.kind == "buffer") for o in (source, op)]
    first, second = tiles
    alike = places[0] is places[1] and bool(first.layout) and first.layout == second.layout
    return alike and copies(layout_of(first.layout)) == (0, 0)
