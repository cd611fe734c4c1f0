"""Hold a tile in other registers: by lanes' exchange, or through shared memory.

`convert` says how far elements go. Within a warp the operation stays, and PTX has shuffles for it.
What crosses warps goes through shared memory behind everything else: a barrier of the role (what
was there has been read), stores, a barrier, loads. The layout there is the one that both access in
the fewest passes.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import cache

from reftile.ir import ops
from reftile.ir.buffer_layout import buffer_alignment, buffer_bytes
from reftile.ir.core import Block, Kernel, Op
from reftile.ir.diagnostics import Diagnosis, ReftileError
from reftile.ir.dtypes import DType
from reftile.ir.targets import TARGETS
from reftile.ir.types import BufferType, TileType
from reftile.layout.atoms_memory import SPANS
from reftile.layout.convert import convert
from reftile.layout.cost import BARRIER_COST, SHUFFLE_COST, bank_conflicts, shuffle_count
from reftile.layout.exchange import is_possible
from reftile.layout.linear import LayoutError
from reftile.lower.context import Context, Number
from reftile.lower.fragments import layout_of
from reftile.lower.lower_products import buffer_layout
from reftile.lower.lower_transfers import load_fragment, spread_of, store_fragment
from reftile.lower.place_buffers import Offsets, shared_address


def staging(source: TileType, target: TileType) -> tuple[BufferType, int] | None:
    """The buffer through which one becomes the other in the fewest passes, and how many these are.

    None if no buffer takes both.
    """
    return _staging(target.shape, target.dtype, (source.layout, target.layout))


@cache  # Types that differ in their layouts are equal: those must be said.
def _staging(
    shape: tuple[int, ...], dtype: DType, layouts: tuple[str, str]
) -> tuple[BufferType, int] | None:
    if dtype.bits < 8:
        return None
    best: tuple[BufferType, int] | None = None
    for name in _names(shape, dtype.bits):
        try:
            buffer = BufferType(shape, dtype, name)
            where = buffer_layout(buffer)
            if not all(spread_of(layout, buffer) is not None for layout in layouts):
                continue
            passes = sum(
                bank_conflicts(where, layout_of(layout), dtype.bits).wavefronts
                for layout in layouts
            )
        except LayoutError:
            continue
        if best is None or passes < best[1]:
            best = buffer, passes
    return best


def _names(shape: tuple[int, ...], bits: int) -> list[str]:
    names = ["row_major"]
    if len(shape) == 2:
        pitch = shape[1] + max(1, 128 // bits)
        names += [f"swizzle{span}{suffix}" for span in SPANS for suffix in ("", ".t")]
        names.append(f"row_major[{pitch}]")
    return names


def goes_through_memory(source: TileType, target: TileType) -> bool:
    """True if a change crosses warps, differs from warp to warp, or takes too many shuffles."""
    return _goes_through_memory(target.shape, target.dtype, (source.layout, target.layout))


@cache
def _goes_through_memory(shape: tuple[int, ...], dtype: DType, layouts: tuple[str, str]) -> bool:
    held, wanted = map(layout_of, layouts)
    conversion = convert(held, wanted)
    if conversion.distance == "none":
        return False
    if conversion.distance in ("warp", "cta") or not is_possible(held, wanted):
        return True
    if conversion.distance == "register":
        return False
    found = _staging(shape, dtype, layouts)
    if found is None:
        return False
    shuffles = shuffle_count(conversion, dtype.bits) * wanted.extent("warp") * SHUFFLE_COST
    return shuffles > found[1] + BARRIER_COST


def _kinds(op: Op) -> tuple[TileType, TileType]:
    source, target = op.operands[0].type, op.results[0].type
    assert isinstance(source, TileType) and isinstance(target, TileType)
    return source, target


# Where it goes through memory


def plan_scratch(kernel: Kernel, offsets: Offsets) -> dict[Op | None, tuple[int, int]]:
    """Give each role, or a kernel without roles, memory for its changes of layout.

    Returns (offset, bytes for each replica) by role; `offsets` grow by what is needed.

    Raises:
        ReftileError: rule `lower.layout_conflict`, if it does not fit.
    """
    needed: dict[Op | None, int] = {}
    for op in kernel.walk():
        if op.name != "change_layout" or not goes_through_memory(*_kinds(op)):
            continue
        found = staging(*_kinds(op))
        if found is None:
            raise _conflict(op, "no layout in shared memory takes both")
        align = buffer_alignment(found[0])
        size = -(-buffer_bytes(found[0]) // align) * align
        role = role_of(op)
        needed[role] = max(needed.get(role, 0), size)
        _check_room(kernel, op, offsets.total_bytes, needed)
    placed: dict[Op | None, tuple[int, int]] = {}
    for role, size in needed.items():
        begin = -(-offsets.total_bytes // _ALIGNMENT) * _ALIGNMENT
        each = -(-size // _ALIGNMENT) * _ALIGNMENT
        placed[role] = begin, each
        offsets.total_bytes = begin + each * _replicas(role)
    return placed


_ALIGNMENT = 1024


def _replicas(role: Op | None) -> int:
    return role.replicas if isinstance(role, ops.Role) else 1


def _check_room(kernel: Kernel, op: Op, total: int, needed: dict[Op | None, int]) -> None:
    end = total
    for role, size in needed.items():
        end = -(-end // _ALIGNMENT) * _ALIGNMENT
        end += -(-size // _ALIGNMENT) * _ALIGNMENT * _replicas(role)
    limit = TARGETS[str(kernel.attributes["target"])].shared_bytes
    if end > limit:
        raise _conflict(op, f"the way through shared memory needs {end} bytes of the {limit}")


def _conflict(op: Op, why: str) -> ReftileError:
    """Both layouts of a value, where each comes from, and why neither becomes the other."""
    source, target = _kinds(op)
    value = op.operands[0]
    user = next((u for u in _users(op) if op.results[0] in u.operands), None)
    name = user.name if user is not None else op.name
    distance = convert(layout_of(source.layout), layout_of(target.layout)).distance
    maker = value.owner if isinstance(value.owner, Op) else None
    notes = ((f"its elements would move between {distance}s: {why}", None),)
    if maker is not None:
        notes = ((f"`{maker.name}` makes it so", maker.span), *notes)
    return ReftileError(
        Diagnosis(
            "lower.layout_conflict",
            f"%{value.name} is held as {source.layout}, and `{name}` needs {target.layout}",
            op.span,
            "use less shared memory, or choose operations that agree",
            notes,
        )
    )


def _users(op: Op) -> list[Op]:
    assert op.parent is not None
    return op.parent.ops


def role_of(op: Op) -> Op | None:
    """The role that an operation stands in."""
    block: Block | None = op.parent
    while block is not None and block.parent is not None:
        owner = block.parent.parent
        if not isinstance(owner, Op):
            return None
        if isinstance(owner, ops.Role):
            return owner
        block = owner.parent
    return None


def lower_change(context: Context, op: Op) -> None:
    """Within a warp as it is; else stores, a barrier and loads."""
    assert isinstance(op, ops.ChangeLayout)
    source, target = _kinds(op)
    tile = context.scalar(op.source)
    if not goes_through_memory(source, target):
        context.values[op.result] = context.value(ops.ChangeLayout, (tile,), target, op.result.name)
        return
    found = staging(source, target)
    assert found is not None, "plan_scratch has looked"
    if _is_in_rows(op):
        raise _conflict(op, "warps that branch for themselves cannot meet")
    begin, size = context.scratch[role_of(op)]
    address: Number = shared_address(context, begin, context.role.replica, size)
    meet(context)
    store_fragment(context, tile, source, found[0], address)
    meet(context)
    context.values[op.result] = load_fragment(context, target, op.result.name, found[0], address)


def _is_in_rows(op: Op) -> bool:
    block = op.parent
    while block is not None and block.parent is not None:
        owner = block.parent.parent
        if isinstance(owner, ops.IfRows):
            return True
        block = owner.parent if isinstance(owner, Op) else None
    return False


def meet(context: Context) -> None:
    """All threads of the role meet."""
    if context.role.warps == 1:
        context.emit(ops.SyncWarp)
        return
    barrier = context.number(context.role.barrier)
    context.emit(ops.SyncThreads, (barrier,), threads=32 * context.role.warps)


CHANGES: dict[str, Callable[[Context, Op], None]] = {"change_layout": lower_change}
