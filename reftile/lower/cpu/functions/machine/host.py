# pyright: basic, reportAttributeAccessIssue=false, reportCallIssue=false
# pyright: reportGeneralTypeIssues=false, reportOptionalMemberAccess=false
# pyright: reportPrivateImportUsage=false, reportArgumentType=false
# numba has no types for what it passes to intrinsics.
"""What a block has to do with its launch: the parameters, and calls of the host's functions."""

from __future__ import annotations

from llvmlite import ir
from numba import types
from numba.extending import intrinsic

from reftile.lower.cpu.functions.machine.instructions import LLVM


def _slot(builder, params, number):
    """The address of a slot of the parameters."""
    start = builder.mul(number, ir.Constant(LLVM["i64"], 8))
    return builder.bitcast(builder.gep(params, [start]), LLVM["i64"].as_pointer())


@intrinsic
def get(typingctx, params, slot):
    """A slot of the parameters; they do not change while a launch runs."""

    def generate(context, builder, signature, args):
        place = _slot(builder, args[0], args[1])
        return builder.load(place)

    return types.int64(params, types.int64), generate


@intrinsic
def stopped(typingctx, params):
    """Whether a fault, or the host, has stopped the launch."""

    def generate(context, builder, signature, args):
        place = _slot(builder, args[0], ir.Constant(LLVM["i64"], 6))
        value = builder.load_atomic(place, "monotonic", 8)
        return builder.icmp_signed("!=", value, ir.Constant(LLVM["i64"], 0))

    return types.boolean(params), generate


@intrinsic
def take(typingctx, params, slot, count):
    """Advance a slot of the parameters by `count` for all threads; what it was."""

    def generate(context, builder, signature, args):
        place = _slot(builder, args[0], args[1])
        return builder.atomic_rmw("add", place, args[2], "monotonic")

    return types.int64(params, types.int64, types.int64), generate


@intrinsic
def put_first(typingctx, params, slot, value):
    """Set a slot of the parameters that is still 0."""

    def generate(context, builder, signature, args):
        place = _slot(builder, args[0], args[1])
        zero = ir.Constant(LLVM["i64"], 0)
        builder.cmpxchg(place, zero, args[2], "monotonic", "monotonic")
        return context.get_dummy_value()

    return types.void(params, types.int64, types.int64), generate


@intrinsic
def yield_thread(typingctx, function):
    """Call `sched_yield`, whose address is given; 0 is for a thread that is not to give way."""

    def generate(context, builder, signature, args):
        kind = ir.FunctionType(ir.IntType(32), [])
        is_there = builder.icmp_unsigned("!=", args[0], ir.Constant(ir.IntType(64), 0))
        with builder.if_then(is_there):
            builder.call(builder.inttoptr(args[0], kind.as_pointer()), [])
        return context.get_dummy_value()

    return types.void(types.int64), generate


@intrinsic
def say(typingctx, function, number, block, scratch):
    """Tell the host, at an address, to print operation `number` of a block."""

    def generate(context, builder, signature, args):
        kind = ir.FunctionType(ir.VoidType(), [LLVM["i64"]] * 3)
        builder.call(builder.inttoptr(args[0], kind.as_pointer()), args[1:])
        return context.get_dummy_value()

    return types.void(*[types.int64] * 4), generate
