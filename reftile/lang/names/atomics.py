"""Read-modify-write on the elements of an array, and through views."""

from __future__ import annotations

from reftile.ir.core import Value
from reftile.lang.arithmetic import broadcast, wrap
from reftile.lang.dtypes import DType
from reftile.lang.enums import MemoryOrder, MemoryScope
from reftile.lang.names.memory import given_token, stored, with_token
from reftile.lang.names.registry import name
from reftile.lang.names.views import element_pointers, need_array, order_and_scope
from reftile.lang.trace import Trace
from reftile.lang.values import Tile


def atomic_mode(t: Trace, what: str, dtype: DType) -> str:
    """The IR's mode of an atomic operation on `dtype`."""
    if what == "add":
        return "addf" if dtype.is_float else "add"
    if what in ("max", "min"):
        if dtype.is_float:
            raise t.error(
                "atomic.dtype",
                f"there is no atomic {what} of {dtype}",
                "it exists for int32, int64, uint32 and uint64",
            )
        return what if dtype.signed else f"u{what}"
    if what in ("and", "or", "xor") and dtype.is_float:
        raise t.error("atomic.dtype", f"there is no atomic {what} of {dtype}")
    return what


def update_tile(t: Trace, what: str, update: object, dtype: DType) -> Tile:
    """What memory is combined with. Bits are combined with those of the same dtype only."""
    if what in ("and", "or", "xor") and isinstance(update, Tile) and update.dtype is not dtype:
        raise t.error(
            "atomic.dtype",
            f"an atomic {what} of {dtype} takes an update of {dtype}, found {update.dtype}",
        )
    return stored(t, update, dtype, "`update`")


def update_pointers(
    t: Trace,
    what: str,
    dtype: DType,
    pointers: Value,
    allowed: Value | None,
    shape: tuple[int, ...],
    update: object,
    order: tuple[str, str | None],
    token: object,
) -> object:
    """Build `atomic_rmw_tko`; the result is what was there before."""
    argument = broadcast(t, update_tile(t, what, update, dtype), shape)
    op = t.op(
        "atomic_rmw_tko",
        pointers,
        argument.value,
        allowed,
        given_token(t, token),
        ordering=order[0],
        scope=order[1],
        mode=atomic_mode(t, what, dtype),
    )
    return with_token(t, token, wrap(op.results[0], dtype), op.results[1])


def swap_pointers(
    t: Trace,
    dtype: DType,
    pointers: Value,
    allowed: Value | None,
    shape: tuple[int, ...],
    expected: object,
    desired: object,
    order: tuple[str, str | None],
    token: object,
) -> object:
    """Build `atomic_cas_tko`; the result is what was there before."""
    old = broadcast(t, stored(t, expected, dtype, "`expected`"), shape)
    new = broadcast(t, stored(t, desired, dtype, "`desired`"), shape)
    op = t.op(
        "atomic_cas_tko",
        pointers,
        old.value,
        new.value,
        allowed,
        given_token(t, token),
        ordering=order[0],
        scope=order[1],
    )
    return with_token(t, token, wrap(op.results[0], dtype), op.results[1])


def _update(
    t: Trace,
    what: str,
    array: object,
    indices: object,
    update: object,
    check_bounds: object,
    memory_order: object,
    memory_scope: object,
    token: object,
) -> object:
    target = need_array(t, array)
    pointers, allowed, shape = element_pointers(t, target, indices, None, check_bounds)
    order = order_and_scope(t, memory_order, memory_scope)
    return update_pointers(t, what, target.dtype, pointers, allowed, shape, update, order, token)


@name
def atomic_cas(
    t: Trace,
    array: object,
    indices: object,
    expected: object,
    desired: object,
    /,
    *,
    check_bounds: object = True,
    memory_order: object = MemoryOrder.ACQ_REL,
    memory_scope: object = MemoryScope.DEVICE,
    token: object = None,
) -> object:
    """Replace elements whose bits equal `expected` by `desired`; the old elements."""
    target = need_array(t, array)
    pointers, allowed, shape = element_pointers(t, target, indices, None, check_bounds)
    order = order_and_scope(t, memory_order, memory_scope)
    return swap_pointers(t, target.dtype, pointers, allowed, shape, expected, desired, order, token)


@name
def atomic_xchg(
    t: Trace,
    array: object,
    indices: object,
    update: object,
    /,
    *,
    check_bounds: object = True,
    memory_order: object = MemoryOrder.ACQ_REL,
    memory_scope: object = MemoryScope.DEVICE,
    token: object = None,
) -> object:
    """Replace elements; the old elements."""
    return _update(
        t, "xchg", array, indices, update, check_bounds, memory_order, memory_scope, token
    )


@name
def atomic_add(
    t: Trace,
    array: object,
    indices: object,
    update: object,
    /,
    *,
    check_bounds: object = True,
    memory_order: object = MemoryOrder.ACQ_REL,
    memory_scope: object = MemoryScope.DEVICE,
    token: object = None,
) -> object:
    """Add to elements; the old elements."""
    return _update(
        t, "add", array, indices, update, check_bounds, memory_order, memory_scope, token
    )


@name
def atomic_max(
    t: Trace,
    array: object,
    indices: object,
    update: object,
    /,
    *,
    check_bounds: object = True,
    memory_order: object = MemoryOrder.ACQ_REL,
    memory_scope: object = MemoryScope.DEVICE,
    token: object = None,
) -> object:
    """Raise elements to at least `update`; the old elements."""
    return _update(
        t, "max", array, indices, update, check_bounds, memory_order, memory_scope, token
    )


@name
def atomic_min(
    t: Trace,
    array: object,
    indices: object,
    update: object,
    /,
    *,
    check_bounds: object = True,
    memory_order: object = MemoryOrder.ACQ_REL,
    memory_scope: object = MemoryScope.DEVICE,
    token: object = None,
) -> object:
    """Lower elements to at most `update`; the old elements."""
    return _update(
        t, "min", array, indices, update, check_bounds, memory_order, memory_scope, token
    )


@name
def atomic_and(
    t: Trace,
    array: object,
    indices: object,
    update: object,
    /,
    *,
    check_bounds: object = True,
    memory_order: object = MemoryOrder.ACQ_REL,
    memory_scope: object = MemoryScope.DEVICE,
    token: object = None,
) -> object:
    """Clear the bits of elements that `update` does not have; the old elements."""
    return _update(
        t, "and", array, indices, update, check_bounds, memory_order, memory_scope, token
    )


@name
def atomic_or(
    t: Trace,
    array: object,
    indices: object,
    update: object,
    /,
    *,
    check_bounds: object = True,
    memory_order: object = MemoryOrder.ACQ_REL,
    memory_scope: object = MemoryScope.DEVICE,
    token: object = None,
) -> object:
    """Set the bits of elements that `update` has; the old elements."""
    return _update(t, "or", array, indices, update, check_bounds, memory_order, memory_scope, token)


@name
def atomic_xor(
    t: Trace,
    array: object,
    indices: object,
    update: object,
    /,
    *,
    check_bounds: object = True,
    memory_order: object = MemoryOrder.ACQ_REL,
    memory_scope: object = MemoryScope.DEVICE,
    token: object = None,
) -> object:
    """Flip the bits of elements that `update` has; the old elements."""
    return _update(
        t, "xor", array, indices, update, check_bounds, memory_order, memory_scope, token
    )
