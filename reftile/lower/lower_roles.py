"""Roles, the kernel's begin and end, and what one thread does.

A role becomes a branch on the number of the warp, replicas share a branch. The prologue makes the
barriers in thread 0 and ends in a barrier of the block, unless all it does is meet in the cluster.
Source of the register count a thread enters with: what ptxas grants by `.reqntid` (CUDA programming
guide, 65536 registers for a block, in eights).
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

from reftile.ir import ops
from reftile.ir.core import Block, Op, Region
from reftile.ir.pipe_rules import REGISTERS
from reftile.ir.types import BarrierType
from reftile.lower.context import I1, I32, Context, RoleState
from reftile.lower.place_buffers import Offsets, shared_address

Lower = Callable[[Context, Block], None]


def enter_kernel(context: Context, offsets: Offsets) -> None:
    """Let one thread make the barriers; what follows may use them after a meeting."""
    context.warp = context.value(ops.WarpId, (), I32, "warp")
    context.role.start, context.role.start_length = context.block, 1
    if not offsets.barriers:
        return

    def make() -> None:
        for op in offsets.barriers:
            kind = op.results[0].type
            assert isinstance(kind, BarrierType)
            for i in range(kind.count):
                address = shared_address(context, offsets.bytes[op.results[0]], i, 8)
                context.emit(ops.InitMbarrier, (address,), arrivals=kind.arrivals)
        if context.source.attributes["target"] == "sm_90a":
            context.emit(ops.FenceMbarrierInit)

    context.when(context.lead(), make)
    role = next((o for o in context.source.body.block.ops if isinstance(o, ops.Role)), None)
    if role is None or any(_uses_barrier(op) for op in _before(role)):
        # No fork stands between, where the block would meet.
        context.emit(ops.SyncThreads, (context.number(0),), threads=32 * context.warps)


def lower_roles(context: Context, roles: Sequence[Op], offsets: Offsets, lower: Lower) -> None:
    """Branch to the role of each warp."""
    prologue = _before(roles[0])
    space = _written_space(prologue)
    if space is not None and _has_engines(context):
        context.emit(ops.FenceProxyAsync, space=space)
    if not _meets_in_cluster(prologue):
        barrier = context.number(0)
        context.emit(ops.SyncThreads, (barrier,), threads=32 * context.warps)
    outer = context.role
    _branch(context, roles, 0, offsets, lower)
    context.role = outer


def _uses_barrier(op: Op) -> bool:
    return any(isinstance(value.type, BarrierType) for value in op.operands)


def _before(role: Op) -> list[Op]:
    """The operations of the prologue, those inside others too."""
    assert role.parent is not None
    block = role.parent
    return [o for op in block.ops[: block.ops.index(role)] for o in op.walk()]


def _meets_in_cluster(prologue: Sequence[Op]) -> bool:
    """True if a meeting of the cluster is all that the prologue does: it orders nothing else."""
    acts = [op for op in prologue if op.definition.effects not in ("pure", "allocate", "control")]
    meets = any(isinstance(op, ops.ClusterWait) for op in acts)
    return meets and all(isinstance(op, (ops.ClusterArrive, ops.ClusterWait)) for op in acts)


def _written_space(prologue: Sequence[Op]) -> str | None:
    """Where the generic proxy writes in the prologue: fork shows that to the asynchronous one."""
    copies = any(isinstance(op, ops.CopyIn) and op.engine == "thread" for op in prologue)
    shared = copies or any(isinstance(op, ops.StoreBuffer) for op in prologue)
    others = [op for op in prologue if op.definition.effects in ("write", "atomic")]
    is_global = any(not isinstance(op, ops.StoreBuffer) for op in others)
    if shared and is_global:
        return "all"
    return "shared" if shared else "global" if is_global else None


def _has_engines(context: Context) -> bool:
    """True if something of the asynchronous proxy runs in the kernel."""
    return any(
        isinstance(op, (ops.MmaStart, ops.CopyOut)) or op.attributes.get("engine") == "bulk"
        for op in context.source.walk()
    )


def _branch(
    context: Context, roles: Sequence[Op], begin: int, offsets: Offsets, lower: Lower
) -> None:
    role, *rest = roles
    assert isinstance(role, ops.Role) and context.warp is not None
    end = begin + role.warps * role.replicas
    if not rest:
        _enter_role(context, role, begin, offsets, lower)
        return
    condition = context.compare("less_than", context.warp, end, f"is_{role.label}")
    mine, others = Region(), Region()
    context.emit(ops.If, (condition,), regions=(mine, others))

    def build_mine() -> None:
        _enter_role(context, role, begin, offsets, lower)
        context.emit(ops.Yield, ((),))

    def build_others() -> None:
        _branch(context, rest, end, offsets, lower)
        context.emit(ops.Yield, ((),))

    context.inside(mine.block, build_mine)
    context.inside(others.block, build_others)


def _enter_role(
    context: Context, role: ops.Role, begin: int, offsets: Offsets, lower: Lower
) -> None:
    context.span = role.span
    state = RoleState(role.warps, begin)
    context.role = state
    state.barrier = offsets.next_barrier
    offsets.next_barrier += role.replicas
    if role.registers is not None:
        entry = min(255, REGISTERS // (32 * context.warps)) // 8 * 8
        direction = "decrease" if role.registers < entry else "increase"
        context.emit(ops.SetRegisters, count=role.registers, direction=direction)
    if role.replicas > 1:
        assert context.warp is not None
        mine = context.warp
        if begin:
            mine = context.value(ops.Subi, (mine, context.number(begin)), I32)
        state.replica = context.value(
            ops.Divi, (mine, context.number(role.warps)), I32, "replica", signedness="unsigned"
        )
        state.barrier = context.add(state.replica, state.barrier, "role_barrier")
    if role.body.block.arguments:
        context.values[role.body.block.arguments[0]] = context.number(state.replica)
    elected = [op for op in role.body.block.walk() if isinstance(op, ops.Elected)]
    state.one_elected = len(elected) == 1 and elected[0].parent is role.body.block
    state.start, state.start_length = context.block, len(context.block.ops)
    lower_body(context, role.body.block, lower)


def lower_body(context: Context, block: Block, lower: Lower) -> None:
    """Lower all but the `yield` that ends a role or an elected region."""
    last = block.ops[-1]
    body = Block()
    body.ops = block.ops[:-1] if last.definition.is_terminator else block.ops
    lower(context, body)


def lower_elected(context: Context, op: Op, lower: Lower) -> None:
    """One thread runs the region; a whole role elects it, else it is thread 0 of the role."""
    assert isinstance(op, ops.Elected)
    role = context.role
    block = op.body.block

    def build() -> None:
        role.is_elected = True
        lower_body(context, block, lower)
        role.is_elected = False

    if not role.one_elected:
        context.when(context.lead(), build)
        return
    assert context.warp is not None
    first = context.add(context.multiply(role.replica, role.warps), role.begin)
    is_first = context.compare("equal", context.warp, first, "is_first_warp")

    def elect() -> None:
        chosen = context.value(ops.Elect, (), I1, "elected")
        context.when(chosen, build)
        context.emit(ops.SyncWarp)

    context.when(is_first, elect)
