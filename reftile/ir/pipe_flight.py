"""What is in flight where: follow products from start to wait through the text of a `pipe` kernel.

Loops are followed for two iterations: that shows all that one iteration can leave to the next.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from typing import TypeAlias

from reftile.ir.core import Block, Kernel, Op, Value
from reftile.ir.types import PendingType, TileType

Report: TypeAlias = Callable[..., None]

RENAMING = frozenset({"reshape", "permute", "broadcast", "extract"})
"""What gives registers other names and writes none."""


def check_flight(kernel: Kernel, report: Report) -> None:
    """Accumulators are used once, results taken when complete, lent operands left alone."""
    given_away = {op.arguments[2] for op in kernel.walk() if op.name == "mma_start"}
    blocks = list(_blocks(kernel.body.block))
    checked = [
        {v for v in _defined(block) if _is_accumulator(v, v in given_away)} for block in blocks
    ]
    uses: dict[Block, Uses] = {}
    _count_uses(kernel.body.block, set[Value]().union(*checked), uses)
    for block, values in zip(blocks, checked, strict=True):
        for value in _defined(block) if values else ():
            if value in values:
                _check_uses(block, value, uses[block].get(value, 0), report)
    follower = _Follower(report)
    follower.block(kernel.body.block, _State())


def _blocks(block: Block) -> Iterator[Block]:
    yield block
    for op in block.ops:
        for region in op.regions:
            yield from _blocks(region.block)


def _defined(block: Block) -> Iterator[Value]:
    yield from block.arguments
    for op in block.ops:
        yield from op.results


# Each accumulator has one use

Uses: TypeAlias = dict[Value, int]


def _is_accumulator(value: Value, is_given_away: bool) -> bool:
    if isinstance(value.type, PendingType):
        return True
    return is_given_away and isinstance(value.type, TileType) and bool(value.type.shape)


def _check_uses(block: Block, value: Value, uses: int, report: Report) -> None:
    at = value.owner if isinstance(value.owner, Op) else block.ops[-1]
    if isinstance(value.type, PendingType):
        if uses != 1:
            named = f"%{value.name}" if value.name else "a result"
            report(
                "pending_affine",
                f"{named} is in flight and must be used exactly once, found {uses} uses",
                at,
                "carry it on, or take it with `mma_wait`",
            )
    elif uses > 1:
        report(
            "accumulator_reused",
            f"%{value.name} is given to a product and used {uses} times in all",
            at,
            "a product takes the registers of its accumulator; use its result",
        )


def _count_uses(block: Block, counted: set[Value], found: dict[Block, Uses]) -> Uses:
    """Uses of the values to be counted on the path through `block` that has most.

    A use in a loop around it counts twice. `found` gets the answers for the blocks inside too.
    """
    uses = found[block] = Uses()
    for op in reversed(block.ops):
        inside = [_count_uses(r.block, counted, found) for r in op.regions]
        for value in set[Value]().union(*inside):
            counts = [c.get(value, 0) for c in inside]
            if op.name == "if":
                stays = [c for c, r in zip(counts, op.regions, strict=True) if _stays(r.block)]
                leaves = [c for c, r in zip(counts, op.regions, strict=True) if not _stays(r.block)]
                uses[value] = max([uses.get(value, 0) + max(stays, default=0), *leaves])
            else:
                times = 2 if "loop" in op.definition.traits else 1
                uses[value] = uses.get(value, 0) + times * sum(counts)
        for operand in op.operands:
            if operand in counted:
                uses[operand] = uses.get(operand, 0) + 1
    return uses


def _stays(block: Block) -> bool:
    return not block.ops or block.ops[-1].name == "yield"


# What is in flight


@dataclass(eq=False, slots=True)
class _Product:
    """A product that was started, with the register tile that it reads, if any."""

    start: Op
    lent: Value | None


def in_registers(value: Value) -> Value:
    """The value whose registers `value` names."""
    while isinstance(value.owner, Op) and value.owner.name in RENAMING:
        value = value.owner.operands[0]
    return value


def _is_unrolled(op: Op) -> bool:
    """True for a `for` that becomes a copy of its body for each iteration, values and all."""
    if op.name != "for" or not all(_is_constant(bound) for bound in op.operands[:3]):
        return False
    counter = op.regions[0].block.arguments[0]
    return any(o.name == "extract" and counter in o.operands[1:] for o in op.walk())


def _is_constant(value: Value) -> bool:
    return isinstance(value.owner, Op) and value.owner.name == "constant"


Products: TypeAlias = frozenset[_Product]
"""Alternatives: which of them it is depends on the path."""


@dataclass(slots=True)
class _State:
    """Products under way, oldest first, and the newest product on each pending value."""

    flying: list[Products] = field(default_factory=list[Products])
    on: dict[Value, Products] = field(default_factory=dict[Value, Products])

    def copy(self) -> _State:
        return _State(list(self.flying), dict(self.on))

    def hand(self, sources: tuple[Value, ...], targets: tuple[Value, ...]) -> None:
        found = [self.on.get(source, Products()) for source in sources]
        for products, target in zip(found, targets, strict=False):
            if isinstance(target.type, PendingType):
                self.on[target] = products

    @property
    def lent(self) -> set[Value]:
        """The values whose registers products under way may read."""
        return {p.lent for products in self.flying for p in products if p.lent is not None}


def _merge(states: list[_State]) -> _State:
    """What may be under way where paths meet: the newest products of each are alternatives."""
    merged = _State()
    for state in states:
        missing = max(0, len(state.flying) - len(merged.flying))
        merged.flying = [Products()] * missing + merged.flying
        for i, products in enumerate(reversed(state.flying), 1):
            merged.flying[-i] |= products
        for value, products in state.on.items():
            merged.on[value] = merged.on.get(value, Products()) | products
    return merged


@dataclass(slots=True)
class _Loop:
    """The states at which iterations end, and those at which the loop does."""

    carried: tuple[Value, ...]
    results: tuple[Value, ...]
    continued: list[_State] = field(default_factory=list[_State])
    broken: list[_State] = field(default_factory=list[_State])


class _Follower:
    def __init__(self, report: Report) -> None:
        self._report = report
        self.reported: set[tuple[str, Op]] = set()
        self.loops: list[_Loop] = []
        # For each value that replaces carried ones: the block arguments whose storage it takes.
        self.replaces: dict[Value, set[Value]] = {}
        # Values of which each iteration has its own.
        self.unrolled: set[Value] = set()

    def report(self, rule: str, message: str, at: Op, hint: str) -> None:
        if (rule, at) not in self.reported:
            self.reported.add((rule, at))
            self._report(rule, message, at, hint)

    def block(self, block: Block, state: _State) -> None:
        for op in block.ops:
            self.op(op, state)

    def op(self, op: Op, state: _State) -> None:
        if op.regions:
            self.regions(op, state)
        elif op.name == "mma_start":
            lhs = op.operands[0]
            lent = in_registers(lhs) if isinstance(lhs.type, TileType) else None
            product = Products({_Product(op, lent)})
            state.flying.append(product)
            state.on[op.results[0]] = product
        elif op.name == "mma_wait":
            self.wait(op, state)
        if state.flying:
            self.check_lent(op, state)
        if op.name in ("continue", "break") and self.loops:
            self.leave(op, state)

    def regions(self, op: Op, state: _State) -> None:
        match op.name:
            case "for":
                self.loop(op, op.operands[3:], state)
            case "loop":
                self.loop(op, op.operands, state)
            case "if":
                self.branches(op, state)
            case "role":
                self.block(op.regions[0].block, _State())
            case _:
                for region in op.regions:
                    self.block(region.block, state)
                    last = region.block.ops[-1] if region.block.ops else None
                    if last is not None and last.name == "yield":
                        state.hand(last.operands, op.results)

    def wait(self, op: Op, state: _State) -> None:
        in_flight = op.attributes.get("in_flight", 0)
        keep = in_flight if isinstance(in_flight, int) else 0
        left = state.flying[-keep:] if keep else []
        for value in op.operands:
            if any(state.on.get(value, Products()) & products for products in left):
                self.report(
                    "mma_unfinished",
                    f"%{value.name} may still be among the {keep} products left in flight",
                    op,
                    "wait for fewer to remain, or take it later",
                )
        state.flying = left

    def loop(self, op: Op, init: tuple[Value, ...], state: _State) -> None:
        block = op.regions[0].block
        carried = tuple(block.arguments[1:] if op.name == "for" else block.arguments)
        loop = _Loop(carried, op.results)
        if _is_unrolled(op):
            self.unrolled.update(v for inner in _blocks(block) for v in _defined(inner))
        self.check_replaced(op, init, carried, state)
        state.hand(init, carried)
        self.loops.append(loop)
        self.block(block, state.copy())
        again, loop.continued = _merge(loop.continued), []
        self.block(block, again)
        self.loops.pop()
        ends = loop.continued if op.name == "for" else loop.broken
        if ends:
            after = _merge(ends)
            state.flying, state.on = after.flying, after.on

    def leave(self, op: Op, state: _State) -> None:
        """End an iteration, or the loop."""
        loop, after = self.loops[-1], state.copy()
        after.hand(op.operands, loop.results)
        if op.name == "break":
            loop.broken.append(after)
            return
        for end, argument in zip(op.operands, loop.carried, strict=False):
            if isinstance(argument.type, TileType) and argument not in self.unrolled:
                self.replaces.setdefault(in_registers(end), set()).add(argument)
        self.check_replaced(op, op.operands, loop.carried, state)
        after.hand(op.operands, loop.carried)
        loop.continued.append(after)

    def branches(self, op: Op, state: _State) -> None:
        after: list[_State] = []
        for region in op.regions:
            inner = state.copy()
            self.block(region.block, inner)
            if _stays(region.block):
                inner.hand(region.block.ops[-1].operands if region.block.ops else (), op.results)
                after.append(inner)
        if len(op.regions) < 2:
            after.append(state.copy())
        merged = _merge(after)
        state.flying, state.on = merged.flying, merged.on

    def check_lent(self, op: Op, state: _State) -> None:
        """No operation may write where an operand in flight is stored."""
        if op.name in RENAMING:
            return
        lent = state.lent
        for result in op.results:
            taken = self.replaces.get(result, set[Value]()) & lent
            if result in lent and result not in self.unrolled:
                taken = {result}
            for value in taken:
                again = "anew" if value is result else f"in the storage of %{value.name}"
                self.report(
                    "operand_in_flight",
                    f"%{result.name} is computed {again} while a product may still read that",
                    op,
                    "compute it after the wait for that product",
                )

    def check_replaced(
        self, op: Op, values: tuple[Value, ...], arguments: tuple[Value, ...], state: _State
    ) -> None:
        """What a loop carries gets its next value when no product reads the one before."""
        lent = state.lent & set[Value]().union(*self.replaces.values())
        for value, argument in zip(values, arguments, strict=False):
            if argument in lent and in_registers(value) is not argument:
                self.report(
                    "operand_in_flight",
                    f"%{argument.name} gets its next value while a product may still read it",
                    op,
                    "wait for the product before",
                )
