# pyright: basic, reportAttributeAccessIssue=false, reportCallIssue=false
# pyright: reportGeneralTypeIssues=false, reportOptionalMemberAccess=false
# pyright: reportPrivateImportUsage=false, reportArgumentType=false
# numba has no types for what it passes to intrinsics.
"""Vectors that are written past the caches."""

from __future__ import annotations

from typing import Any

from llvmlite import ir
from numba import njit, types
from numba.core import cgutils
from numba.extending import intrinsic

from reftile.lower.cpu.functions.machine.instructions import BASE, BYTE, LLVM


def vector_placer(size_bytes: int) -> Any:
    """`place(number)`: the thread's place for a vector, which LLVM keeps in a register.

    number: tells places apart.
    """

    @intrinsic
    def place(typingctx, number):
        def generate(context, builder, signature, args):
            made = cgutils.alloca_once(builder, ir.ArrayType(BYTE, size_bytes))
            made.align = size_bytes
            return builder.bitcast(made, BYTE.as_pointer())

        return BASE(number), generate

    return place


def streamer(size_bytes: int) -> Any:
    """`stream(base, offset, source)`: a vector past the caches, to a multiple of its size."""
    vector = ir.VectorType(LLVM["i64"], size_bytes // 8)

    @intrinsic
    def stream(typingctx, base, offset, source):
        def generate(context, builder, signature, args):
            base, offset, source = args
            from_place = builder.bitcast(source, vector.as_pointer())
            value = builder.load(from_place, align=size_bytes)
            to_place = builder.bitcast(builder.gep(base, [offset]), vector.as_pointer())
            made = builder.store(value, to_place, align=size_bytes)
            one = ir.Constant(ir.IntType(32), 1)
            made.set_metadata("nontemporal", builder.module.add_metadata([one]))
            return context.get_dummy_value()

        return types.void(base, types.int64, source), generate

    return stream


@njit(forceinline=True)
def lanes(count):
    """The positions in a vector."""
    return range(count)


@intrinsic
def fence(typingctx):
    """Order what went past the caches before what follows.

    On x86 this is a locked instruction, which empties the buffers that combine writes.
    Source: Intel SDM, volume 3, "Buffering of write combining memory locations".
    """

    def generate(context, builder, signature, args):
        builder.fence("seq_cst")
        return context.get_dummy_value()

    return types.void(), generate
