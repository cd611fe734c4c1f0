"""Place tokens in a kernel that has none, by a policy.

The accesses of a kernel are put on *lanes*. At every point there is at most one token for each
lane: it waits for all accesses of the lane that came before. An access takes the tokens of the
lanes that it has to wait for. Loops carry the tokens of their lanes, branches yield them.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable
from dataclasses import dataclass, field

from reftile.conformance.fuzz.choices import Choices
from reftile.conformance.fuzz.copying import Copier, kernel_with
from reftile.conformance.fuzz.program import Program
from reftile.conformance.fuzz.races import dependences
from reftile.conformance.fuzz.trace import ACCESSES

from reftile.ir import ops
from reftile.ir.core import Block, Kernel, Op, Region, Value
from reftile.ir.types import TOKEN

Lane = Hashable
State = dict[Lane, Value]
POLICIES = [("minimal", 45), ("chain", 20), ("lanes", 18), ("subset", 17)]
"""minimal: only what shares memory, or hands something over, is ordered. chain: everything, by one
token. lanes: what touches one buffer, by a token each. subset: some of `minimal`."""
DROPPED_PERCENT = 30
DECORATIONS = (ops.MemoryFenceAliasTko, ops.GdcWaitTko, ops.GdcLaunchDependentsTko)
"""Operations that hand a token on."""


@dataclass
class Plan:
    """Which lane each access is on, and for which lanes it waits."""

    lane: dict[Op, Lane]
    waits: dict[Op, list[Lane]]
    decorate: Callable[[], bool] = field(default=lambda: False)


def place_tokens(program: Program, policy: str, choices: Choices) -> Kernel:
    """The program's kernel with tokens."""
    return thread_tokens(program.bare, _plan(program, policy, choices))


def _plan(program: Program, policy: str, choices: Choices) -> Plan:
    accesses = [op for op in program.bare.walk() if op.name in ACCESSES]
    if policy == "chain":
        return Plan(dict.fromkeys(accesses, 0), {op: [0] for op in accesses})
    needed = dependences(program.bare, program.buffers, program.scalars, program.grid)
    needed |= set(program.must)
    number = {op: i for i, op in enumerate(accesses)}
    edges = sorted(needed, key=lambda e: (number[e[0]], number[e[1]]))
    if policy == "subset":
        edges = [e for e in edges if not choices.chance(DROPPED_PERCENT)]
    lane = _components(accesses, edges) if policy == "lanes" else number
    waits: dict[Op, list[Lane]] = {op: [] for op in accesses}
    for first, second in edges:
        if lane[first] not in waits[second]:
            waits[second].append(lane[first])
    return Plan(dict(lane), waits, lambda: choices.chance(6))


def _components(accesses: list[Op], edges: list[tuple[Op, Op]]) -> dict[Op, int]:
    """One lane for all that is connected by edges."""
    lane = {op: i for i, op in enumerate(accesses)}
    for first, second in edges:
        old, new = lane[second], lane[first]
        for op, number in lane.items():
            if number == old:
                lane[op] = new
    return lane


def thread_tokens(bare: Kernel, plan: Plan) -> Kernel:
    """A copy of `bare` with tokens."""
    threader = _Threader(plan)
    body = threader.empty(bare.body.block)
    threader.fill(bare.body.block, body, {})
    return kernel_with(body, bare)


class _Threader(Copier):
    def __init__(self, plan: Plan) -> None:
        super().__init__()
        self.plan = plan
        self.loops: list[list[Lane]] = []
        self.awaited = {lane for lanes in plan.waits.values() for lane in lanes}

    def fill(self, source: Block, target: Block, state: State) -> None:
        """Copy operations into `target`; `state` has the tokens of the lanes."""
        for op in source.ops:
            if op.name in ACCESSES:
                self._access(op, target, state)
            elif op.name == "if":
                self._branch(op, target, state)
            elif op.name in ("for", "loop"):
                self._loop(op, target, state)
            elif op.name in ("continue", "break"):
                values = self._values(op)
                lanes = self.loops[-1]
                values += [self._token(target, state, lane) for lane in lanes]
                target.append(type(op)((tuple(values),)))
            else:
                self.op(op, target)

    def _values(self, op: Op) -> list[Value]:
        return [self.mapping[v] for v in op.operands]

    def _token(self, target: Block, state: State, lane: Lane) -> Value:
        """The token of a lane, or one that waits for nothing."""
        found = state.get(lane)
        return found if found is not None else _append(target, ops.MakeToken).results[0]

    def _access(self, op: Op, target: Block, state: State) -> None:
        lane = self.plan.lane[op]
        waited = [state[w] for w in self.plan.waits[op] if w in state]
        tokens = list(dict.fromkeys(waited))
        token = self._joined(target, tokens)
        if token is not None and self.plan.decorate():
            cls = DECORATIONS[len(target.ops) % len(DECORATIONS)]
            token = _append(target, cls, token).results[0]
        copy = self.op(op, target)
        copy.arguments = (*copy.arguments[:-1], token)
        if lane not in self.awaited:
            return
        result = copy.results[-1]
        if lane in state and lane not in self.plan.waits[op]:
            joined = self._joined(target, [state[lane], result])
            assert joined is not None
            result = joined
        state[lane] = result

    def _joined(self, target: Block, tokens: list[Value]) -> Value | None:
        if len(tokens) <= 1:
            return tokens[0] if tokens else None
        return _append(target, ops.JoinTokens, tuple(tokens)).results[0]

    def _lanes_of(self, op: Op) -> list[Lane]:
        """Lanes of accesses inside an operation that something waits for."""
        inside = [self.plan.lane[o] for o in op.walk() if o.name in ACCESSES]
        return [lane for lane in dict.fromkeys(inside) if lane in self.awaited]

    def _branch(self, op: Op, target: Block, state: State) -> None:
        lanes = self._lanes_of(op)
        arguments, regions = self.arguments(op), list(op.regions)
        if lanes and len(regions) == 1:
            nothing = Region(Block())
            nothing.block.append(ops.Yield(((),)))
            regions.append(nothing)
        made: list[Region] = []
        for region in regions:
            block, inner = self.empty(region.block), dict(state)
            self.fill_branch(region.block, block, inner, lanes)
            made.append(Region(block))
        types = tuple(r.type for r in op.results) + (TOKEN,) * len(lanes)
        copy = type(op)(arguments, types, dict(op.attributes), tuple(made))
        target.append(copy)
        self._take(op, copy, lanes, state)

    def fill_branch(self, source: Block, target: Block, state: State, lanes: list[Lane]) -> None:
        """As `fill`; a `yield` yields tokens too."""
        *rest, last = source.ops
        head = Block()
        head.ops = rest
        self.fill(head, target, state)
        if last.name != "yield":
            head.ops = [last]
            self.fill(head, target, state)
            return
        values = self._values(last)
        values += [self._token(target, state, lane) for lane in lanes]
        target.append(ops.Yield((tuple(values),)))

    def _take(self, op: Op, copy: Op, lanes: list[Lane], state: State) -> None:
        count = len(op.results)
        self.mapping.update(zip(op.results, copy.results[:count], strict=True))
        state.update(zip(lanes, copy.results[count:], strict=True))

    def _loop(self, op: Op, target: Block, state: State) -> None:
        lanes = self._lanes_of(op)
        tokens = tuple(self._token(target, state, lane) for lane in lanes)
        *bounds, init = self.arguments(op)
        assert isinstance(init, tuple)
        block = self.empty(op.regions[0].block, (TOKEN,) * len(lanes))
        inner = dict(state)
        inner.update(zip(lanes, block.arguments[len(block.arguments) - len(lanes) :], strict=True))
        self.loops.append(lanes)
        self.fill(op.regions[0].block, block, inner)
        self.loops.pop()
        types = tuple(r.type for r in op.results) + (TOKEN,) * len(lanes)
        arguments = (*bounds, (*init, *tokens))
        copy = type(op)(arguments, types, dict(op.attributes), (Region(block),))
        target.append(copy)
        self._take(op, copy, lanes, state)


def _append(target: Block, cls: type[Op], *arguments: Value | tuple[Value, ...]) -> Op:
    op = cls(arguments, (TOKEN,))
    target.append(op)
    return op
