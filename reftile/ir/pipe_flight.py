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
            report(
                "pending_affine",
                f"%{value.name} is in flight and must be used exactly once, found {uses} uses",
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


@dataclass(slots=True)
class _State:
    """Products under way, oldest first, and the newest product on each pending value."""

    flying: list[_Product] = field(default_factory=list[_Product])
    on: dict[Value, _Product | None] = field(default_factory=dict["Value", "_Product | None"])

    def copy(self) -> _State:
        return _State(list(self.flying), dict(self.on))

    def hand(self, sources: tuple[Value, ...], targets: tuple[Value, ...]) -> None:
        for source, target in zip(sources, targets, strict=False):
            if isinstance(target.type, PendingType):
                self.on[target] = self.on.get(source)


class _Follower:
    def __init__(self, report: Report) -> None:
        self._report = report
        self.reported: set[tuple[str, Op]] = set()
        # For each value that replaces a carried one: the block argument whose storage it takes.
        self.replaces: dict[Value, Value] = {}

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
            product = _Product(op, lhs if isinstance(lhs.type, TileType) else None)
            state.flying.append(product)
            state.on[op.results[0]] = product
        elif op.name == "mma_wait":
            self.wait(op, state)
        if state.flying:
            self.check_lent(op, state)

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
            product = state.on.get(value)
            if product is not None and product in left:
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
        last = block.ops[-1] if block.ops else None
        ends = last.operands if last is not None and last.name == "continue" else ()
        self.replaces.update(
            (end, argument)
            for end, argument in zip(ends, carried, strict=False)
            if end is not argument and isinstance(argument.type, TileType)
        )
        state.hand(init, carried)
        self.block(block, state)
        state.hand(ends, carried)
        self.block(block, state)
        state.hand(ends, op.results)

    def branches(self, op: Op, state: _State) -> None:
        after: list[_State] = []
        for region in op.regions:
            inner = state.copy()
            self.block(region.block, inner)
            if _stays(region.block):
                inner.hand(region.block.ops[-1].operands, op.results)
                after.append(inner)
        if len(op.regions) < 2:
            after.append(state.copy())
        if after:
            most = max(after, key=lambda s: len(s.flying))
            state.flying, state.on = most.flying, most.on

    def check_lent(self, op: Op, state: _State) -> None:
        """Nothing may be written where an operand in flight is stored."""
        lent = {p.lent for p in state.flying}
        for result in op.results:
            argument = self.replaces.get(result)
            if argument is not None and argument in lent:
                self.report(
                    "operand_in_flight",
                    f"%{result.name} takes the storage of %{argument.name}, which a product reads",
                    op,
                    "compute it after the wait for that product",
                )
        if op.name == "continue":
            for value in op.operands:
                argument = self.replaces.get(value)
                if argument is not None and argument in lent:
                    self.report(
                        "operand_in_flight",
                        f"%{argument.name} is replaced while a product reads it",
                        op,
                        "wait for the product before the iteration ends",
                    )
