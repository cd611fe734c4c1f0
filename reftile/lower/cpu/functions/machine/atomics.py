# pyright: basic, reportAttributeAccessIssue=false, reportCallIssue=false
# pyright: reportGeneralTypeIssues=false, reportOptionalMemberAccess=false
# pyright: reportPrivateImportUsage=false, reportArgumentType=false
# numba has no types for what it passes to intrinsics.
"""Accesses of memory that are atomic, with their orders; a mask says whether they happen."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from llvmlite import ir
from numba import types
from numba.extending import intrinsic

from reftile.lower.cpu.functions.machine.instructions import BYTE, KINDS, LLVM
from reftile.lower.cpu.functions.machine.memory import from_memory, size_bytes, to_memory


def atomic_loader(kind: str, ordering: str) -> Any:
    """`load(base, offset, mask, other)`, whole and ordered: `monotonic` or `acquire`."""

    @intrinsic
    def load(typingctx, base, offset, mask, other):
        def generate(context, builder, signature, args):
            base, offset, mask, other = args

            def act() -> Any:
                whole = ir.IntType(size_bytes(kind) * 8)
                place = builder.bitcast(builder.gep(base, [offset]), whole.as_pointer())
                return _of_bits(
                    builder, builder.load_atomic(place, ordering, size_bytes(kind)), kind
                )

            return _if(builder, mask, kind, other, act)

        return KINDS[kind](base, offset, mask, other), generate

    return load


def atomic_storer(kind: str, ordering: str) -> Any:
    """`store(base, offset, mask, value)`, whole and ordered: `monotonic` or `release`."""

    @intrinsic
    def store(typingctx, base, offset, mask, value):
        def generate(context, builder, signature, args):
            base, offset, mask, value = args
            with builder.if_then(mask):
                whole = ir.IntType(size_bytes(kind) * 8)
                place = builder.bitcast(builder.gep(base, [offset]), whole.as_pointer())
                bits = _as_bits(builder, value, kind)
                builder.store_atomic(bits, place, ordering, size_bytes(kind))
            return context.get_dummy_value()

        return types.void(base, offset, mask, value), generate

    return store


def atomic_half_storer(ordering: str) -> Any:
    """`store(base, offset, mask, amount, half)`: as `half_storer`, in one step for others."""

    @intrinsic
    def store(typingctx, base, offset, mask, amount, half):
        def generate(context, builder, signature, args):
            base, offset, mask, amount, half = args
            with builder.if_then(mask):
                place = builder.gep(base, [offset])
                kept = builder.not_(builder.shl(ir.Constant(BYTE, 15), amount))
                first = builder.load_atomic(place, "monotonic", 1)
                before = builder.block
                again, done = (builder.append_basic_block(n) for n in ("again", "done"))
                builder.branch(again)
                builder.position_at_end(again)
                old = builder.phi(BYTE)
                old.add_incoming(first, before)
                new = builder.or_(builder.and_(old, kept), builder.shl(half, amount))
                seen, hit = _exchange(builder, place, old, new, ordering)
                old.add_incoming(seen, builder.block)
                builder.cbranch(hit, done, again)
                builder.position_at_end(done)
            return context.get_dummy_value()

        return types.void(base, offset, mask, amount, half), generate

    return store


def _of_bits(builder: Any, bits: Any, kind: str) -> Any:
    if kind[0] == "f":
        return builder.bitcast(bits, LLVM[kind])
    return from_memory(builder, bits, kind)


def _as_bits(builder: Any, value: Any, kind: str) -> Any:
    if kind[0] == "f":
        return builder.bitcast(value, ir.IntType(size_bytes(kind) * 8))
    return to_memory(builder, value, kind)


def _if(builder: Any, mask: Any, kind: str, otherwise: Any, act: Callable[[], Any]) -> Any:
    start = builder.block
    with builder.if_then(mask):
        found = act()
        there = builder.block
    merged = builder.phi(LLVM[kind])
    merged.add_incoming(otherwise, start)
    merged.add_incoming(found, there)
    return merged


def atomic_updater(mode: str, kind: str, ordering: str) -> Any:
    """`update(base, offset, mask, value)`: read, combine and write at once; the old value."""

    @intrinsic
    def update(typingctx, base, offset, mask, value):
        def generate(context, builder, signature, args):
            base, offset, mask, value = args

            def act() -> Any:
                if mode == "addf":
                    return _add_floats(builder, base, offset, value, kind, ordering)
                whole = ir.IntType(size_bytes(kind) * 8)
                place = builder.bitcast(builder.gep(base, [offset]), whole.as_pointer())
                bits = _as_bits(builder, value, kind)
                return _of_bits(builder, builder.atomic_rmw(mode, place, bits, ordering), kind)

            return _if(builder, mask, kind, value, act)

        return KINDS[kind](base, offset, mask, value), generate

    return update


def _exchange(builder: Any, place: Any, old: Any, new: Any, ordering: str) -> tuple[Any, Any]:
    failure = {"acq_rel": "acquire", "release": "monotonic"}.get(ordering, ordering)
    pair = builder.cmpxchg(place, old, new, ordering, failure)
    return builder.extract_value(pair, 0), builder.extract_value(pair, 1)


def _add_floats(b: Any, base: Any, offset: Any, value: Any, kind: str, ordering: str) -> Any:
    """A sum in a loop of compare and swap; `kind` may be f16 or bf16, of values in f32."""
    whole = ir.IntType(size_bytes(kind) * 8)
    place = b.bitcast(b.gep(base, [offset]), whole.as_pointer())
    first = b.load_atomic(place, "monotonic", size_bytes(kind))
    before = b.block
    again, done = b.append_basic_block("again"), b.append_basic_block("done")
    b.branch(again)
    b.position_at_end(again)
    old = b.phi(whole)
    old.add_incoming(first, before)
    total = b.fadd(b.bitcast(old, LLVM[kind]), value)
    # In memory every NaN that a sum gives is the canonical one.
    nan = b.fcmp_unordered("uno", total, total)
    total = b.select(nan, ir.Constant(LLVM[kind], float("nan")), total)
    seen, hit = _exchange(b, place, old, b.bitcast(total, whole), ordering)
    old.add_incoming(seen, b.block)
    b.cbranch(hit, done, again)
    b.position_at_end(done)
    return b.bitcast(old, LLVM[kind])


def atomic_swapper(kind: str, ordering: str) -> Any:
    """`swap(base, offset, mask, expected, new)`: by bits; the old value, or `expected`."""

    @intrinsic
    def swap(typingctx, base, offset, mask, expected, new):
        def generate(context, builder, signature, args):
            base, offset, mask, expected, new = args

            def act() -> Any:
                whole = ir.IntType(size_bytes(kind) * 8)
                place = builder.bitcast(builder.gep(base, [offset]), whole.as_pointer())
                old = _as_bits(builder, expected, kind)
                seen, _ = _exchange(builder, place, old, _as_bits(builder, new, kind), ordering)
                return _of_bits(builder, seen, kind)

            return _if(builder, mask, kind, expected, act)

        return KINDS[kind](base, offset, mask, expected, new), generate

    return swap


def compare_and_swap16(ordering: str) -> Any:
    """`swap(base, offset, old, new)` of 16 bits; what was seen."""

    @intrinsic
    def swap(typingctx, base, offset, old, new):
        def generate(context, builder, signature, args):
            base, offset, old, new = args
            place = builder.bitcast(builder.gep(base, [offset]), ir.IntType(16).as_pointer())
            return _exchange(builder, place, old, new, ordering)[0]

        return types.int16(base, offset, old, new), generate

    return swap
