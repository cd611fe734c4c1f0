# pyright: basic, reportAttributeAccessIssue=false, reportCallIssue=false
# pyright: reportGeneralTypeIssues=false, reportOptionalMemberAccess=false
# pyright: reportPrivateImportUsage=false, reportArgumentType=false
# numba has no types for what it passes to intrinsics.
"""Loads and stores of one element. Offsets are bytes.

A base is an address made by `pointer`, so that LLVM sees base and offset apart and can tell two
bases from each other. In memory an i1 is a byte.
"""

from __future__ import annotations

from functools import cache
from typing import Any

from llvmlite import ir
from numba import types
from numba.extending import intrinsic

from reftile.lower.cpu.functions.machine.instructions import BASE, BYTE, KINDS, LLVM


@intrinsic
def pointer(typingctx, address):
    """The base of accesses at an address."""

    def generate(context, builder, signature, args):
        return builder.inttoptr(args[0], BYTE.as_pointer())

    return BASE(types.int64), generate


@intrinsic
def address_of(typingctx, base):
    """The address of a base."""

    def generate(context, builder, signature, args):
        return builder.ptrtoint(args[0], LLVM["i64"])

    return types.int64(base), generate


@cache
def _scope_names(total: int) -> tuple[str, ...]:
    return tuple(f"memory {i}" for i in range(total))


def _mark(builder: Any, instruction: Any, scope: int, total: int) -> None:
    """Say that an access touches the memory number `scope` and none of the others."""
    if scope < 0 or total < 2:
        return
    module = builder.module
    domain = module.add_metadata(["reftile memories"])
    scopes = [module.add_metadata([name, domain]) for name in _scope_names(total)]
    instruction.set_metadata("alias.scope", module.add_metadata([scopes[scope]]))
    others = [s for i, s in enumerate(scopes) if i != scope]
    instruction.set_metadata("noalias", module.add_metadata(others))


def _memory_kind(kind: str) -> Any:
    return BYTE if kind == "b1" else LLVM[kind]


def _place(builder: Any, base: Any, offset: Any, kind: str) -> Any:
    place = builder.gep(base, [offset])
    return builder.bitcast(place, _memory_kind(kind).as_pointer())


def size_bytes(kind: str) -> int:
    """What an element takes in memory."""
    return 1 if kind == "b1" else int(kind[1:]) // 8


def from_memory(builder: Any, value: Any, kind: str) -> Any:
    """An element of what memory holds."""
    if kind != "b1":
        return value
    return builder.icmp_unsigned("!=", value, ir.Constant(BYTE, 0))


def to_memory(builder: Any, value: Any, kind: str) -> Any:
    """What memory holds of an element."""
    return builder.zext(value, BYTE) if kind == "b1" else value


def loader(kind: str, scope: int = -1, total: int = 0) -> Any:
    """`load(base, offset)` of one element."""

    @intrinsic
    def load(typingctx, base, offset):
        def generate(context, builder, signature, args):
            value = builder.load(_place(builder, *args, kind), align=size_bytes(kind))
            _mark(builder, value, scope, total)
            return from_memory(builder, value, kind)

        return KINDS[kind](base, offset), generate

    return load


def masked_loader(kind: str, scope: int = -1, total: int = 0) -> Any:
    """`load(base, offset, mask, padding)`: memory is touched only where the mask holds."""

    @intrinsic
    def load(typingctx, base, offset, mask, padding):
        def generate(context, builder, signature, args):
            base, offset, mask, padding = args
            start = builder.block
            with builder.if_then(mask):
                value = builder.load(_place(builder, base, offset, kind), align=size_bytes(kind))
                _mark(builder, value, scope, total)
                found = from_memory(builder, value, kind)
                there = builder.block
            merged = builder.phi(LLVM[kind])
            merged.add_incoming(padding, start)
            merged.add_incoming(found, there)
            return merged

        return KINDS[kind](base, offset, mask, padding), generate

    return load


def storer(kind: str, scope: int = -1, total: int = 0) -> Any:
    """`store(base, offset, value)` of one element."""

    @intrinsic
    def store(typingctx, base, offset, value):
        def generate(context, builder, signature, args):
            place = _place(builder, args[0], args[1], kind)
            made = builder.store(to_memory(builder, args[2], kind), place, align=size_bytes(kind))
            _mark(builder, made, scope, total)
            return context.get_dummy_value()

        return types.void(base, offset, value), generate

    return store


def masked_storer(kind: str, scope: int = -1, total: int = 0) -> Any:
    """`store(base, offset, mask, value)`: memory is touched only where the mask holds."""

    @intrinsic
    def store(typingctx, base, offset, mask, value):
        def generate(context, builder, signature, args):
            base, offset, mask, value = args
            with builder.if_then(mask):
                place = _place(builder, base, offset, kind)
                made = builder.store(to_memory(builder, value, kind), place, align=size_bytes(kind))
                _mark(builder, made, scope, total)
            return context.get_dummy_value()

        return types.void(base, offset, mask, value), generate

    return store


def half_storer(scope: int = -1, total: int = 0) -> Any:
    """`store(base, offset, mask, amount, half)`: four bits of a byte, moved up by `amount`."""

    @intrinsic
    def store(typingctx, base, offset, mask, amount, half):
        def generate(context, builder, signature, args):
            base, offset, mask, amount, half = args
            with builder.if_then(mask):
                place = builder.gep(base, [offset])
                old = builder.load(place, align=1)
                _mark(builder, old, scope, total)
                cleared = builder.and_(
                    old, builder.not_(builder.shl(ir.Constant(BYTE, 15), amount))
                )
                new = builder.or_(cleared, builder.shl(half, amount))
                _mark(builder, builder.store(new, place, align=1), scope, total)
            return context.get_dummy_value()

        return types.void(base, offset, mask, amount, half), generate

    return store
