"""One block of a kernel, run on symbols: control flow becomes guards, tokens become edges."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any, cast

import numpy as np

from reftile.interp.access import pointee
from reftile.interp.memory import Memory, memory_dtype
from reftile.interp.model.block_memory import BlockMemory, Token, guarded, joined
from reftile.interp.model.events import Edge, Op
from reftile.interp.model.places import known_scalar
from reftile.interp.model.symbolic import (
    Data,
    Symbolic,
    compute,
    expressions,
    merged,
    refuse,
    tile_type,
)
from reftile.interp.model.values import FALSE, TRUE, Const, Expr, binary, both, negate
from reftile.interp.plan import CONTROL
from reftile.interp.values import Tile
from reftile.interp.views import TensorView, TileView, make_tensor_view, make_tile_view
from reftile.ir import ops
from reftile.ir.core import Block, Kernel, Region
from reftile.ir.core import Op as Operation
from reftile.ir.core import Value as Name
from reftile.ir.diagnostics import Span, fail
from reftile.ir.dtypes import DTYPES
from reftile.ir.types import TensorViewType, TileType, TileViewType, TokenType

LARGEST_LOOP = 4096
"""Iterations of a loop with known bounds at most."""


@dataclass(frozen=True, slots=True)
class Leaving:
    """How control leaves a region: by which terminator, when, and with which values."""

    kind: str
    guard: Expr
    values: list[Any]


@dataclass(frozen=True, slots=True)
class Cut:
    """A loop that was left after `count` iterations, where `guard` holds."""

    guard: Expr
    span: Span
    count: int


@dataclass(frozen=True, slots=True)
class Check:
    """An assertion: reached where `guard` holds, and broken where `condition` is 0 then."""

    guard: Expr
    condition: Expr
    message: str
    span: Span


class BlockRun:
    """Runs one block. `id` are its coordinates, `grid` the extents.

    unroll: iterations of a loop whose end depends on what is loaded.
    """

    def __init__(
        self,
        kernel: Kernel,
        id: tuple[int, int, int],
        grid: tuple[int, int, int],
        memory: Memory,
        names: dict[int, str],
        name: str,
        unroll: int,
    ) -> None:
        self.kernel, self.id, self.grid, self.unroll = kernel, id, grid, unroll
        self.memory = BlockMemory(memory, names, name)
        self.cuts: list[Cut] = []
        self.checks: list[Check] = []
        self.env: dict[Name, Any] = {}
        self._merged: dict[str, str] = {}

    def run(self, arguments: Sequence[Any]) -> tuple[Op, ...]:
        """Return the operations of the block."""
        self._region(self.kernel.body.block, arguments, TRUE)
        return tuple(self._renamed(op) for op in self.memory.ops)

    def _renamed(self, op: Op) -> Op:
        """Let edges name the operations that others were merged into."""
        if not self._merged:
            return op
        edges = tuple(Edge(self._merged.get(e.op, e.op), e.guard) for e in op.after)
        return replace(op, after=tuple(dict.fromkeys(edges)))

    # Control

    def _region(self, block: Block, arguments: Sequence[Any], guard: Expr) -> list[Leaving]:
        """Run a region where `guard` holds; give every way in which control leaves it."""
        self.env.update(zip(block.arguments, arguments, strict=True))
        found: list[Leaving] = []
        for op in block.ops[:-1]:
            if op.name not in CONTROL:
                self._step(op, guard)
                continue
            guard, leavings = self._control(op, guard)
            found += leavings
            if guard == FALSE:
                return found
        last = block.ops[-1]
        found.append(Leaving(last.name, guard, [self.env[v] for v in last.operands]))
        return found

    def _condition(self, value: Data) -> Expr:
        return expressions(value, DTYPES["i1"]).reshape(-1)[0]

    def _if(self, op: Operation, guard: Expr) -> tuple[Expr, list[Leaving]]:
        condition = self._condition(self.env[op.operands[0]])
        if isinstance(condition, Const):
            taken = 0 if condition.value else 1
            if taken >= len(op.regions):
                return guard, []
            return self._joined(op, guard, self._region(op.regions[taken].block, (), guard))
        start = len(self.memory.ops)
        leavings = self._region(op.regions[0].block, (), both(guard, condition))
        middle, other = len(self.memory.ops), both(guard, negate(condition))
        if len(op.regions) > 1:
            leavings += self._region(op.regions[1].block, (), other)
            self._merge_stores(start, middle, guard, condition)
        else:
            leavings.append(Leaving("yield", other, []))
        yields = [leaving for leaving in leavings if leaving.kind == "yield"]
        if [y.guard for y in yields] == [both(guard, condition), other]:
            values = self._select(condition, yields[0].values, yields[1].values, op.results)
            self.env.update(zip(op.results, values, strict=True))
            return guard, [leaving for leaving in leavings if leaving.kind != "yield"]
        return self._joined(op, guard, leavings)

    def _joined(
        self, op: Operation, guard: Expr, leavings: list[Leaving]
    ) -> tuple[Expr, list[Leaving]]:
        """Go on behind an `if` where a region yields; the other ways out lead further."""
        yields = [leaving for leaving in leavings if leaving.kind == "yield"]
        rest = [leaving for leaving in leavings if leaving.kind != "yield"]
        if not yields:
            return FALSE, rest
        after, values = self._either(yields, op.results)
        self.env.update(zip(op.results, values, strict=True))
        return (guard if not rest else after), rest

    def _either(self, leavings: Sequence[Leaving], names: Sequence[Name]) -> tuple[Expr, list[Any]]:
        """When any of these happens, and the values there."""
        guard, values = leavings[-1].guard, leavings[-1].values
        for leaving in reversed(leavings[:-1]):
            values = self._select(leaving.guard, leaving.values, values, names)
            guard = binary("|", leaving.guard, guard)
        return guard, values

    def _select(
        self, condition: Expr, yes: Sequence[Any], no: Sequence[Any], names: Sequence[Name]
    ) -> list[Any]:
        found: list[Any] = []
        for a, b, name in zip(yes, no, names, strict=True):
            if isinstance(name.type, TokenType):
                common = tuple(e for e in a if e in b)
                first = guarded([e for e in a if e not in common], condition)
                second = guarded([e for e in b if e not in common], negate(condition))
                found.append(joined([common, first, second]))
            elif isinstance(name.type, TileType):
                found.append(merged(condition, a, b, memory_dtype(name.type.element)))
            elif a is b:
                found.append(a)
            else:
                raise fail(
                    "explore.unknown",
                    f"which view %{name.name} is depends on a loaded value",
                )
        return found

    def _for(self, op: Operation, guard: Expr) -> tuple[Expr, list[Leaving]]:
        type = op.operands[0].type
        assert isinstance(type, TileType)
        bits, is_unsigned = type.dtype.bits, bool(op.attributes.get("unsigned_cmp"))
        if isinstance(self.env[op.operands[1]], Symbolic) and not is_unsigned:
            return self._for_unknown(op, guard)
        bounds = [
            known_scalar(op, self.env[v], f"`{what}` of `for`")
            for v, what in zip(op.operands[:3], ("lower", "upper", "step"), strict=True)
        ]
        at, upper, step = (b % (1 << bits) if is_unsigned else b for b in bounds)
        if step <= 0:
            raise fail("for.step", f"`step` must be positive, found {step}", op.span)
        limit = 1 << (bits if is_unsigned else bits - 1)
        carried = [self.env[v] for v in op.operands[3:]]
        left: list[Leaving] = []
        count = 0
        while at < upper and guard != FALSE:
            count += 1
            if count > LARGEST_LOOP:
                raise fail("explore.too_large", f"more than {LARGEST_LOOP} iterations", op.span)
            counter = Tile(np.array(at, np.int64).astype(type.dtype.carrier))
            leavings = self._region(op.regions[0].block, (counter, *carried), guard)
            left += [leaving for leaving in leavings if leaving.kind != "continue"]
            guard, carried = self._next(guard, leavings, carried, op.results)
            at += step
            if at >= limit:
                break
        self.env.update(zip(op.results, carried, strict=True))
        return guard, left

    def _for_unknown(self, op: Operation, guard: Expr) -> tuple[Expr, list[Leaving]]:
        """A `for` up to a loaded bound: followed for `unroll` iterations."""
        type = op.operands[0].type
        assert isinstance(type, TileType)
        at, step = (known_scalar(op, self.env[op.operands[i]], "`for`") for i in (0, 2))
        if step <= 0:
            raise fail("for.step", f"`step` must be positive, found {step}", op.span)
        upper = expressions(self.env[op.operands[1]], type.dtype).reshape(-1)[0]
        carried = [self.env[v] for v in op.operands[3:]]
        ends: list[Leaving] = []
        left: list[Leaving] = []
        entry, count = guard, 0
        while True:
            goes_on = binary("<", Const(at), upper)
            ends.append(Leaving("end", both(guard, negate(goes_on)), carried))
            guard = both(guard, goes_on)
            if guard == FALSE or count == self.unroll:
                break
            count += 1
            counter = Tile(np.array(at, np.int64).astype(type.dtype.carrier))
            leavings = self._region(op.regions[0].block, (counter, *carried), guard)
            left += [leaving for leaving in leavings if leaving.kind != "continue"]
            guard, carried = self._next(guard, leavings, carried, op.results)
            at += step
        if guard != FALSE:
            self.cuts.append(Cut(guard, op.span, count))
        after, values = self._either(ends, op.results)
        self.env.update(zip(op.results, values, strict=True))
        return (entry if guard == FALSE and not left else after), left

    def _next(
        self, guard: Expr, leavings: list[Leaving], carried: list[Any], names: Sequence[Name]
    ) -> tuple[Expr, list[Any]]:
        """When there is another iteration, and what it is given."""
        going = [leaving for leaving in leavings if leaving.kind == "continue"]
        if not going:
            return FALSE, carried
        after, values = self._either(going, names)
        return (guard if len(going) == len(leavings) else after), values

    def _loop(self, op: Operation, guard: Expr) -> tuple[Expr, list[Leaving]]:
        carried = [self.env[v] for v in op.operands]
        types = op.regions[0].block.arguments
        breaks: list[Leaving] = []
        left: list[Leaving] = []
        entry, count, uncertain = guard, 0, 0
        while guard != FALSE and uncertain < self.unroll:
            count += 1
            if count > LARGEST_LOOP:
                raise fail("explore.too_large", f"more than {LARGEST_LOOP} iterations", op.span)
            leavings = self._region(op.regions[0].block, carried, guard)
            breaks += [leaving for leaving in leavings if leaving.kind == "break"]
            left += [leaving for leaving in leavings if leaving.kind == "return"]
            uncertain += len(leavings) > 1
            guard, carried = self._next(guard, leavings, carried, types)
        if guard != FALSE:
            self.cuts.append(Cut(guard, op.span, count))
        if not breaks:
            return FALSE, left
        after, values = self._either(breaks, op.results)
        self.env.update(zip(op.results, values, strict=True))
        return (entry if guard == FALSE and not left else after), left

    def _control(self, op: Operation, guard: Expr) -> tuple[Expr, list[Leaving]]:
        """Run an operation with regions; give when control goes on behind it, and how it left."""
        match op.name:
            case "if":
                return self._if(op, guard)
            case "for":
                return self._for(op, guard)
            case _:
                return self._loop(op, guard)

    def _merge_stores(self, start: int, middle: int, guard: Expr, condition: Expr) -> None:
        """Make one store of two that do the same in both arms of a branch, in the same order."""
        all_ops = self.memory.ops
        then, otherwise = all_ops[start:middle], all_ops[middle:]
        found: list[Op] = []
        for store in list(then):
            twins = [
                t
                for t in otherwise
                if _does_the_same(store, t)
                and store.guard == both(guard, condition)
                and t.guard == both(guard, negate(condition))
            ]
            if not twins:
                continue
            twin = twins[0]
            at, there = then.index(store), otherwise.index(twin)
            after = joined(
                [
                    guarded(store.after, condition),
                    guarded(twin.after, negate(condition)),
                ]
            )
            found += [*then[:at], *otherwise[:there], replace(store, guard=guard, after=after)]
            self._merged[twin.name] = store.name
            then, otherwise = then[at + 1 :], otherwise[there + 1 :]
        all_ops[start:] = [*found, *then, *otherwise]

    # Steps

    def _step(self, op: Operation, guard: Expr) -> None:
        values = [None if v is None else self.env[v] for v in _by_port(op)]
        listed = self._memory_operation(op, values, guard)
        if listed is None:
            listed = self._other(op, values, guard)
        self.env.update(zip(op.results, listed, strict=True))

    def _memory_operation(self, op: Operation, values: list[Any], guard: Expr) -> list[Any] | None:
        match op:
            case ops.LoadPtrTko():
                return self.memory.load_pointer(op, values, guard)
            case ops.StorePtrTko():
                return self.memory.store_pointer(op, values, guard)
            case ops.LoadViewTko():
                return self.memory.load_view(op, values, guard)
            case ops.StoreViewTko():
                return self.memory.store_view(op, values, guard)
            case ops.AtomicRmwTko():
                return self.memory.modify(op, values, guard)
            case ops.AtomicCasTko():
                return self.memory.swap(op, values, guard)
            case ops.AtomicRedViewTko():
                return self.memory.reduce(op, values, guard)
            case _:
                return None

    def _other(self, op: Operation, values: list[Any], guard: Expr) -> list[Any]:
        match op.name:
            case "make_token":
                return [()]
            case "join_tokens":
                return [joined(cast("list[Token]", values))]
            case "memory_fence_alias_tko" | "gdc_wait_tko" | "gdc_launch_dependents_tko":
                return [values[0] or ()]
            case "print_tko":
                return [values[-1] or ()]
            case "assert":
                self._assert(op, values[0], guard)
                return []
            case "assume":
                return [values[0]]
            case "get_tile_block_id":
                return [Tile(np.array(i, np.int32)) for i in self.id]
            case "get_num_tile_blocks":
                return [Tile(np.array(i, np.int32)) for i in self.grid]
            case "make_tensor_view":
                return [self._tensor_view(op, values)]
            case "get_tensor_shape" | "get_index_space_shape":
                return self._extents(op, values[0])
            case "alloca":
                return [self._allocate(op)]
            case _:
                type = op.results[0].type if op.results else None
                if isinstance(type, TileViewType):
                    return [make_tile_view(type, values[0])]
                if not op.definition.is_pure or not isinstance(type, TileType):
                    raise refuse(op, "has no events that the explorer knows")
                return list(compute(op, [v for v in values if v is not None], self._run_pure))

    def _assert(self, op: Operation, condition: Data, guard: Expr) -> None:
        for expr in expressions(condition, DTYPES["i1"]).reshape(-1):
            if expr != TRUE:
                message = str(op.attributes["message"])
                self.checks.append(Check(guard, expr, message, op.span))

    def _tensor_view(self, op: Operation, values: list[Any]) -> TensorView:
        assert isinstance(op, ops.MakeTensorView)
        type = op.result.type
        assert isinstance(type, TensorViewType)
        address = known_scalar(op, values[0], "the base of a view")
        sizes = [
            known_scalar(op, v, "an extent or stride of a view") % (1 << _bits(n))
            for v, n in zip(values[1:], (*op.dynamic_shape, *op.dynamic_strides), strict=True)
        ]
        queue = iter(sizes)
        shape = tuple(next(queue) if d is None else d for d in type.shape)
        strides = tuple(next(queue) if s is None else s for s in type.strides)
        if 0 in (*shape, *strides):
            raise fail("make_tensor_view.positive", "an extent or stride is zero", op.span)
        return make_tensor_view(self.memory.memory, type, address, shape, strides)

    def _extents(self, op: Operation, view: TensorView | TileView) -> list[Any]:
        sizes = view.shape if isinstance(view, TensorView) else view.space
        return [
            Tile(np.array(size, np.int64).astype(tile_type(op, i).dtype.carrier))
            for i, size in enumerate(sizes)
        ]

    def _allocate(self, op: Operation) -> Tile:
        assert isinstance(op, ops.Alloca)
        dtype = _pointee(op.result)
        units = -(-op.num_elem // dtype.elements_per_unit)
        memory, name = self.memory.memory, f"{self.memory.block}.{op.result.name or 'alloca'}"
        size = units * dtype.storage.itemsize
        return Tile(np.array(memory.allocate(name, size, dtype, op.alignment).address, np.int64))

    def _run_pure(self, region: Region, tiles: Sequence[Tile]) -> tuple[Tile, ...]:
        """Run the region of a reduction or scan on known scalars."""
        env = dict(self.env)
        env.update(zip(region.block.arguments, tiles, strict=True))
        for op in region.block.ops[:-1]:
            values = [env[v] for v in op.operands]
            if any(isinstance(v, Symbolic) for v in values):
                raise refuse(op, "takes a loaded value into a reduction")
            env.update(zip(op.results, compute(op, values, self._run_pure), strict=True))
        return tuple(env[v] for v in region.block.ops[-1].operands)


def _by_port(op: Operation) -> list[Name | None]:
    """The operands flat, with None for an absent one."""
    flat: list[Name | None] = []
    for argument in op.arguments:
        if isinstance(argument, tuple):
            flat.extend(argument)
        else:
            flat.append(argument)
    return flat


def _does_the_same(first: Op, second: Op) -> bool:
    return (
        bool(first.accesses)
        and all(a.kind == "store" and not a.is_fault for a in first.accesses)
        and (first.order, first.scope, first.accesses)
        == (second.order, second.scope, second.accesses)
    )


def _bits(value: Name) -> int:
    assert isinstance(value.type, TileType)
    return value.type.dtype.bits


def _pointee(value: Name) -> Any:
    assert isinstance(value.type, TileType)
    return pointee(value.type)
