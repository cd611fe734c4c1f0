"""Plans: a kernel made ready to run, once, so that running an operation is one call.

Every value of the kernel gets a slot of an *environment*, a list that each block has for itself. An
operation becomes a `Step`: the slots it reads, the slots it writes, and a function between them.
Constants, and whatever is computed from constants alone, are evaluated here and stand in the
environment from the beginning; what depends on the launch but not on the block is evaluated by the
first block that comes to it.

A plan does not know in which order things will run; see `machine` and `schedule`.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Generic, Protocol, TypeAlias, TypeVar

import numpy as np

from reftile.interp.pure import Run, has_meaning, prepare
from reftile.interp.values import Mask, Report, Tile
from reftile.ir.core import Block as IRBlock
from reftile.ir.core import Kernel, Op, Region, Value
from reftile.ir.diagnostics import Diagnosis, ReftileError
from reftile.ir.types import TileType, TokenType


class Context(Protocol):
    """On whose behalf a step runs: a block, or a batch of blocks."""

    @property
    def report(self) -> Report | None:
        """Who is told of the elements at which a pure operation is undefined."""


C = TypeVar("C", bound=Context)
Apply: TypeAlias = Callable[[C, list[Any]], Sequence[Any]]
"""`apply(context, values)`: the results of a step from the values of its inputs."""
Maker: TypeAlias = "Callable[[Op, Plan[C]], Apply[C]]"
"""Make the function of a step that is not pure."""

CONTROL = frozenset({"for", "if", "loop"})
NO_VALUE = 0
"""The slot of an operand that is absent; it holds None."""


@dataclass(slots=True, eq=False)
class Step(Generic[C]):
    """One operation of a kernel.

    inputs: slots of the operands by port, NO_VALUE for an absent one, then of what its regions use
        from outside.
    kind: `pure` and `now` run as soon as their inputs are there; `control` is run by the machine; a
        schedule may put off `load`, `store`, `update` and `effect`.
    spins: it is a loop in which a block may wait for another.
    """

    op: Op
    kind: str
    inputs: tuple[int, ...]
    outputs: tuple[int, ...]
    apply: Apply[C]
    regions: tuple[PlanRegion[C], ...] = ()
    spins: bool = False


@dataclass(slots=True, eq=False)
class PlanRegion(Generic[C]):
    """The steps of a region, and how it ends: which terminator, with the values of which slots.

    captures: slots of what it uses from outside.
    """

    arguments: tuple[int, ...]
    steps: list[Step[C]]
    ending: str
    results: tuple[int, ...]
    end_op: Op
    captures: tuple[int, ...]


@dataclass(slots=True, eq=False)
class Plan(Generic[C]):
    """A kernel made ready.

    template: the environment of a new block: None at NO_VALUE, constants, and nothing elsewhere
        yet.
    used: values that something uses; results that nothing uses need not be made.
    known, uniform: values that are constants, and values that are the same for all blocks of a
        launch.
    shares: whether they are the same for whoever runs a step, so that the first one's serve all.
    once: where the results of uniform operations are kept for the length of a launch.
    """

    kernel: Kernel
    makers: Mapping[str, Maker[C]]
    shares: bool = True
    template: list[Any] = field(default_factory=lambda: [None])
    slots: dict[Value, int] = field(default_factory=dict[Value, int])
    used: set[Value] = field(default_factory=set[Value])
    known: set[Value] = field(default_factory=set[Value])
    uniform: set[Value] = field(default_factory=set[Value])
    once: list[list[Sequence[Any]]] = field(default_factory=list[list[Sequence[Any]]])
    body: PlanRegion[C] = field(init=False)

    def forget(self) -> None:
        """Drop all that belongs to the launch that has ended."""
        for kept in self.once:
            kept.clear()
        for slot in self.body.arguments:
            self.template[slot] = None

    def slot(self, value: Value) -> int:
        """The slot of a value, given out on first sight."""
        found = self.slots.get(value)
        if found is None:
            found = self.slots[value] = len(self.template)
            self.template.append(None)
        return found


def make_plan(kernel: Kernel, makers: Mapping[str, Maker[C]], shares: bool = True) -> Plan[C]:
    """Make a kernel ready; `makers` has the operations that are neither pure nor control.

    shares: values of the launch alone are computed once, whoever comes first.

    Raises:
        ReftileError: the kernel has an operation that cannot be run here.
    """
    plan = Plan(kernel, makers, shares)
    for op in kernel.walk():
        plan.used.update(op.operands)
    plan.uniform.update(kernel.arguments)
    plan.body = _plan_region(plan, kernel.body.block)
    return plan


def _plan_region(plan: Plan[C], block: IRBlock) -> PlanRegion[C]:
    arguments = tuple(plan.slot(a) for a in block.arguments)
    steps: list[Step[C]] = []
    for op in block.ops[:-1]:
        if not _fold(plan, op):
            steps.append(_plan_op(plan, op))
    last = block.ops[-1]
    results = tuple(plan.slot(v) for v in last.operands)
    captures = tuple(plan.slot(v) for v in captured(block))
    return PlanRegion(arguments, steps, last.name, results, last, captures)


def captured(block: IRBlock) -> list[Value]:
    """Values that a block uses and does not define, inside or in regions within."""
    defined: set[Value] = set(block.arguments)
    found: dict[Value, None] = {}
    for op in block.walk():
        for region in op.regions:
            defined.update(region.block.arguments)
        defined.update(op.results)
    for op in block.walk():
        for value in op.operands:
            if value not in defined:
                found[value] = None
    return list(found)


def _input_slots(plan: Plan[Any], op: Op) -> tuple[int, ...]:
    slots: list[int] = []
    for argument in op.arguments:
        if isinstance(argument, tuple):
            slots.extend(plan.slot(v) for v in argument)
        else:
            slots.append(NO_VALUE if argument is None else plan.slot(argument))
    return tuple(slots)


def _plan_op(plan: Plan[C], op: Op) -> Step[C]:
    inputs = _input_slots(plan, op)
    regions = tuple(_plan_region(plan, r.block) for r in op.regions)
    outputs = tuple(plan.slot(r) for r in op.results)
    if op.name in CONTROL:
        spins = op.name != "if" and any(_waits(inner) for inner in op.regions[0].block.walk())
        return Step(op, "control", inputs, outputs, _no_apply, regions, spins)
    maker = plan.makers.get(op.name)
    captures = tuple(dict.fromkeys(slot for region in regions for slot in region.captures))
    if maker is not None:
        step = Step(op, _kind(op), inputs, outputs, maker(op, plan), regions)
    else:
        # A meaning gets the operands that are there; absent ones have no tile.
        inputs = tuple(plan.slot(v) for v in op.operands)
        apply = _pure(op, plan, len(inputs), regions, captures)
        step = Step(op, "pure", (*inputs, *captures), outputs, apply, regions)
    if plan.shares and step.kind == "pure" and _is_uniform(plan, op):
        step.apply = _once(plan, step.apply)
        plan.uniform.update(op.results)
    return step


def _kind(op: Op) -> str:
    match op.definition.effects:
        case "pure":
            return "pure"
        case "read":
            return "load"
        case "write":
            return "store"
        case "atomic" | "read_write":
            return "update"
        case "trap" | "allocate":
            return "now"
        case _:
            return "effect"


def _waits(op: Op) -> bool:
    """True for what can see another block's progress: strong loads and read-modify-writes."""
    effects = op.definition.effects
    return effects == "atomic" or (effects == "read" and op.attributes.get("ordering") != "weak")


def _no_apply(context: Context, values: list[Any]) -> Sequence[Any]:
    raise NotImplementedError("control is run by the machine")


def _is_uniform(plan: Plan[Any], op: Op) -> bool:
    if op.name == "get_tile_block_id" or op.regions:
        return False
    if any(isinstance(r.type, TokenType) for r in op.results):
        return False
    return all(v in plan.uniform or v in plan.known for v in op.operands)


def _once(plan: Plan[C], apply: Apply[C]) -> Apply[C]:
    kept: list[Sequence[Any]] = []
    plan.once.append(kept)

    def apply_once(context: C, values: list[Any]) -> Sequence[Any]:
        if not kept:
            kept.append(apply(context, values))
        return kept[0]

    return apply_once


# Pure operations


class _Reported(Exception):
    """An operation broke a rule while the plan was made."""


def _refuse(rule: str, message: str, where: Mask) -> None:
    raise _Reported


def _fold(plan: Plan[Any], op: Op) -> bool:
    """Evaluate an operation on constants, unless it breaks a rule: that must be reached."""
    if op.name in plan.makers or op.name in CONTROL or op.regions:
        return False
    if not op.definition.is_pure or not all(v in plan.known for v in op.operands):
        return False
    operands = tuple(plan.template[plan.slot(v)] for v in op.operands)
    try:
        results = _runner(op)(operands, None, _refuse)
    except _Reported:
        return False
    for value, result in zip(op.results, results, strict=True):
        plan.template[plan.slot(value)] = result
        plan.known.add(value)
    return True


def _runner(op: Op) -> Run:
    if not has_meaning(op):
        levels = " and ".join(op.definition.levels)
        message = f"`{op.name}`, of {levels} kernels, cannot be interpreted here"
        raise ReftileError(Diagnosis(f"{op.name}.unsupported", message, op.span))
    return prepare(op)


def _pure(
    op: Op,
    plan: Plan[C],
    count: int,
    regions: tuple[PlanRegion[C], ...],
    captures: tuple[int, ...],
) -> Apply[C]:
    run = _runner(op)

    def apply_alone(context: C, values: list[Any]) -> Sequence[Any]:
        return run(values, None, context.report)

    if not regions:
        return apply_alone
    by_region = dict(zip(op.regions, regions, strict=True))
    ranks = {plan.slots[v]: v.type.rank for v in plan.slots if isinstance(v.type, TileType)}
    captured_ranks = [ranks.get(slot, -1) for slot in captures]
    own_ranks = [v.type.rank for v in op.operands if isinstance(v.type, TileType)]

    def apply(context: C, values: list[Any]) -> Sequence[Any]:
        env = list(plan.template)
        for slot, value in zip(captures, values[count:], strict=True):
            env[slot] = value
        own = values
        if captures:
            own = _with_batch_axes(values[:count], own_ranks, values[count:], captured_ranks)

        def run_region(region: Region, tiles: Sequence[Tile]) -> tuple[Tile, ...]:
            return run_pure_region(context, by_region[region], env, tiles)

        return run(own, run_region, context.report)

    return apply


def _with_batch_axes(
    tiles: list[Any], ranks: list[int], captured: list[Any], captured_ranks: list[int]
) -> list[Any]:
    """Tiles with the number of batch axes that what a region takes from outside has."""
    counts = [t.data.ndim - r for t, r in zip(captured, captured_ranks, strict=True) if r >= 0]
    most = max(counts, default=0)
    found: list[Any] = []
    for tile, rank in zip(tiles, ranks, strict=True):
        missing = (None,) * (most - tile.data.ndim + rank)
        poison = tile.poison
        if missing and poison is not None:
            poison = np.broadcast_to(poison, tile.data.shape)[missing]
        found.append(Tile(tile.data[missing], poison) if missing else tile)
    return found


def run_pure_region(
    context: C, region: PlanRegion[C], env: list[Any], tiles: Sequence[Tile]
) -> tuple[Tile, ...]:
    """Run a region of `reduce` or `scan` on tiles and give what it yields."""
    for slot, tile in zip(region.arguments, tiles, strict=True):
        env[slot] = tile
    for step in region.steps:
        results = step.apply(context, [env[i] for i in step.inputs])
        for slot, result in zip(step.outputs, results, strict=True):
            env[slot] = result
    return tuple(env[s] for s in region.results)


def scalar_tile(value: int, dtype: np.dtype[Any]) -> Tile:
    """A rank-0 tile."""
    return Tile(np.array(value, dtype))
