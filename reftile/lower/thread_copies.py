"""Copies that each thread makes its part of (sm_80)."""

from __future__ import annotations

from reftile.ir import ops
from reftile.ir.core import Op
from reftile.lower.context import Context


def lower_thread_copy(context: Context, op: ops.CopyIn) -> None:
    """Each thread copies 16 bytes at a time."""
    raise context.unsupported("thread copies are not lowered yet")


def lower_thread_groups(context: Context, op: Op) -> None:
    """Groups of thread copies."""
    if isinstance(op, ops.WaitCopies):
        context.emit(ops.WaitAsync, in_flight=op.in_flight)
    else:
        context.emit(ops.CommitAsync)
