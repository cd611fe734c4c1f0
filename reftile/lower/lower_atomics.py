"""Atomic updates of scalars in global memory, by one thread of the role."""

from __future__ import annotations

from collections.abc import Callable

from reftile.ir import ops
from reftile.ir.core import Op, Value
from reftile.ir.types import TOKEN, TileType
from reftile.lower.context import Context


def lower_update(context: Context, op: Op) -> None:
    """One thread does what a role does together; where all need the old value, it is refused."""
    pointer = op.operands[0]
    if isinstance(pointer.type, TileType) and pointer.type.shape:
        raise context.unsupported(
            f"`{op.name}` on {pointer.type} is not lowered yet: combine a tile with a view by "
            "`atomic_red_view_tko`"
        )
    mask = op.mask if isinstance(op, (ops.AtomicRmwTko, ops.AtomicCasTko)) else None
    is_used = _is_used(context, op.results[0])
    if is_used and (mask is not None or not context.role.is_elected):
        why = "under a mask" if mask is not None else "outside `elected`"
        raise context.unsupported(
            f"the old value of `{op.name}` {why} is not lowered: one thread has it; update inside "
            "`elected`, and hand the value on through shared memory"
        )

    def update() -> None:
        if mask is not None:
            context.when(context.scalar(mask), lambda: _copy(context, op))
        else:
            _copy(context, op)

    if context.role.is_elected:
        update()
    else:
        context.when(context.lead(), update)


def _is_used(context: Context, value: Value) -> bool:
    return any(value in op.operands for op in context.source.walk())


def _copy(context: Context, op: Op) -> None:
    arguments: list[Value | None] = []
    for argument, port in zip(op.arguments, op.definition.operands, strict=True):
        assert argument is None or isinstance(argument, Value)
        keep = argument is not None and argument.type != TOKEN and port.name != "mask"
        arguments.append(context.scalar(argument) if keep and argument is not None else None)
    names = tuple(r.name for r in op.results)
    types = tuple(r.type for r in op.results)
    copy = type(op)(tuple(arguments), types, dict(op.attributes), (), op.span, names)
    context.block.append(copy)
    context.values[op.results[0]] = copy.results[0]


ATOMICS: dict[str, Callable[[Context, Op], None]] = {
    "atomic_inc_wrap_tko": lower_update,
    "atomic_rmw_tko": lower_update,
    "atomic_cas_tko": lower_update,
}
