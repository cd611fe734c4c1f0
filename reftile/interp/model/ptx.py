"""Event programs lowered to PTX threads, and held against the PTX memory model.

The lowering reads its rows from the specification: an operation becomes one instruction for each
element, on the thread that the layout gives it; a token edge becomes a barrier, or nothing where
the rule permits. The result is an `EventSet` with program order and barriers in place of tokens,
which the explorer runs under the models `ptx-6.0` and `ptx-9`.

The claim that `hold` tests: a program without a race keeps its promises, that is, its lowering has
no PTX race and no outcome that the program does not have.
"""

from __future__ import annotations

import tomllib
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace
from functools import cache
from random import Random
from typing import Literal

from reftile.interp.model.event_set import Event, EventSet, order_sets
from reftile.interp.model.events import Access, Op, Order, Program, Scope
from reftile.interp.model.execution import Outcome, Race, Result
from reftile.interp.model.explore import STEP_LIMIT, explore
from reftile.interp.model.relations import blocks, spec_model, spec_source
from reftile.interp.model.values import TRUE, Bin, Expr, registers
from reftile.ir.diagnostics import Bug

Version = Literal["ptx-6.0", "ptx-9"]
VERSIONS: tuple[Version, ...] = ("ptx-6.0", "ptx-9")
Rule = Literal["minimal", "every", "none"]
Need = Literal["shared_granule", "first_acquires", "second_releases"]


ORDER_WORDS: Mapping[str, Order] = {
    "relaxed": "relaxed",
    "acquire": "acquire",
    "release": "release",
    "acq_rel": "acq_rel",
}
SCOPE_WORDS: Mapping[str, Scope] = {"cta": "block", "gpu": "device", "sys": "sys"}


@dataclass(frozen=True, slots=True)
class PtxMapping:
    """The rows of the specification's PTX mapping.

    rows: instruction text by `load.acquire` and the like. scopes: PTX scope by scope.
    needed_if: when a token edge between elements on different threads takes a barrier.
    """

    rows: Mapping[str, str]
    scopes: Mapping[Scope, str]
    barrier: str
    needed_if: tuple[Need, ...]

    def with_row(self, row: str, text: str) -> PtxMapping:
        """Return the mapping with one row changed."""
        return replace(self, rows={**self.rows, row: text})

    def with_scope(self, scope: Scope, text: str) -> PtxMapping:
        """Return the mapping with one scope changed."""
        return replace(self, scopes={**self.scopes, scope: text})

    def without_need(self, need: Need) -> PtxMapping:
        """Return the mapping with one reason for a barrier less."""
        return replace(self, needed_if=tuple(n for n in self.needed_if if n != need))


@cache
def spec_mapping() -> PtxMapping:
    """Return the PTX mapping of the specification."""
    source = spec_source()
    for kind, _, start, end in blocks(source):
        if kind == "toml mapping":
            table = tomllib.loads(source.text[start:end]).get("ptx", {})
            if "row" in table:
                rows = {
                    f"{op}.{o}": text for op, by in table["row"].items() for o, text in by.items()
                }
                token = table["token"]
                return PtxMapping(rows, table["scope"], token["barrier"], tuple(token["needed_if"]))
    raise Bug("the specification has no PTX mapping", "interp.model.ptx")


@dataclass(frozen=True, slots=True)
class Layout:
    """Which thread of a block does an element.

    rotate: the first element moves on by one thread from operation to operation.
    """

    threads: int = 1
    rotate: bool = True

    def thread(self, op: int, element: int) -> int:
        """Return the thread of an element of the op-th operation of a block."""
        return (element + (op if self.rotate else 0)) % self.threads


@dataclass(frozen=True, slots=True)
class Instruction:
    """An instruction of one thread, or a barrier of all of them (thread -1)."""

    thread: int
    text: str
    guard: Expr = TRUE


@dataclass(slots=True)
class Lowered:
    """A program in PTX.

    code: the instructions of each block, in program order. barriers: how many there are.
    """

    events: EventSet
    code: list[list[Instruction]] = field(default_factory=list[list[Instruction]])
    barriers: int = 0

    def text(self) -> str:
        """Return the code as a listing."""
        lines: list[str] = []
        for block, code in zip(self.events.program.blocks, self.code, strict=True):
            lines.append(f"{block.name}:")
            for i in code:
                guard = "" if i.guard == TRUE else f"   // if {i.guard}"
                lines.append(f"  {'all' if i.thread < 0 else f't{i.thread}'}: {i.text}{guard}")
        return "\n".join(lines)


@dataclass(frozen=True, slots=True)
class _Barrier:
    block: int
    position: int
    guard: Expr


class _Lowering:
    """One lowering; positions number the operations and barriers of a block in program order."""

    def __init__(
        self, program: Program, layout: Layout, mapping: PtxMapping, rule: Rule, seed: int | None
    ) -> None:
        self.source = EventSet(program)
        self.layout, self.mapping, self.rule = layout, mapping, rule
        self.waits = self.source.waits({e.guard: True for _, o in self.source.ops for e in o.after})
        self.order = [self._schedule(b, seed) for b in range(len(program.blocks))]
        self.place: dict[int, int] = {}
        self.turn: dict[int, int] = {}
        self.barriers: list[_Barrier] = []
        for block, numbers in enumerate(self.order):
            self._place_block(block, numbers)

    # Program order

    def _schedule(self, block: int, seed: int | None) -> list[int]:
        """The operations of a block in an order that tokens and dataflow permit."""
        left = [n for n, (b, _) in enumerate(self.source.ops) if b == block]
        if seed is None:
            return left
        random, found = Random(f"{seed} {block}"), list[int]()
        while left:
            ready = [n for n in left if not any(m in self._before(n) for m in left)]
            found.append(random.choice(ready))
            left.remove(found[-1])
        return found

    def _before(self, number: int) -> set[int]:
        names = {
            name for expr in _expressions(self.source.ops[number][1]) for name in registers(expr)
        }
        writers = {u.op for name in names for u in self.source.definers.get(name, ())}
        return (self.waits[number] | writers) - {number}

    # Barriers

    def _place_block(self, block: int, numbers: list[int]) -> None:
        position = 0
        for turn, number in enumerate(numbers):
            self.turn[number] = turn
            if any(
                self._needs(a, number) and not self._divided(a, number) for a in self.waits[number]
            ):
                self.barriers.append(_Barrier(block, position, self.source.ops[number][1].guard))
                position += 1
            self.place[number] = position
            position += 1

    def _divided(self, first: int, second: int) -> bool:
        """Whether a barrier stands between two operations whenever both happen."""
        block, op = self.source.ops[second]
        start = self.place[first]
        return any(
            b.block == block
            and b.position > start
            and _implied(b.guard, self.source.ops[first][1].guard, op.guard)
            for b in self.barriers
        )

    def _needs(self, first: int, second: int) -> bool:
        a, b = self.source.ops[first][1], self.source.ops[second][1]
        apart = [
            (x.location, y.location)
            for x in a.accesses
            for y in b.accesses
            if self._thread(first, x) != self._thread(second, y)
        ]
        if not apart or self.rule == "none":
            return False
        shares = any(
            p.buffer == q.buffer and p.start < q.start + q.size and q.start < p.start + p.size
            for p, q in apart
        )
        reasons: dict[Need, bool] = {
            "shared_granule": shares,
            "first_acquires": a.order in ("acquire", "acq_rel"),
            "second_releases": b.order in ("release", "acq_rel"),
        }
        return self.rule == "every" or any(reasons[n] for n in self.mapping.needed_if)

    def _thread(self, number: int, access: Access) -> int:
        return self.layout.thread(self.turn[number], access.element)

    # Events

    def _row(self, op: Op, access: Access) -> str:
        kind = access.kind
        is_red = kind == "rmw" and not access.register and op.order in ("relaxed", "release")
        row = self.mapping.rows[f"{'red' if is_red else kind}.{op.order}"]
        scope = self.mapping.scopes[op.scope] if op.scope else ""
        return row.format(scope=scope, type=f"b{8 * access.location.size}", op=access.modify)

    def lowered(self, dropped: int | None) -> Lowered:
        """Return the threads' events and code, one barrier less if `dropped` names it."""
        self.barriers = [b for n, b in enumerate(self.barriers) if n != dropped]
        program = self.source.program
        bare = [
            replace(b, ops=tuple(replace(op, after=()) for op in b.ops)) for b in program.blocks
        ]
        events = EventSet(replace(program, blocks=tuple(bare)))
        texts: dict[int, str] = {}
        threads: dict[int, int] = {}
        for number, (_, op) in enumerate(self.source.ops):
            mine = [u for u in events.units if u.op == number]
            for unit in mine:
                texts[unit.number] = self._row(op, unit.access)
                threads[unit.number] = self._thread(number, unit.access)
        events.events = [
            _by_text(e, texts[e.unit]) if e.unit in texts else e for e in events.events
        ]
        events.base.update(order_sets(events.space, events.events))
        events.base["po"] = events.space.of(self._program_order(events, threads))
        events.base["bar"] = events.space.of(self._barrier_order(events))
        result = Lowered(events, barriers=len(self.barriers))
        for block in range(len(program.blocks)):
            result.code.append(self._code(block, events, texts, threads))
        return result

    def _program_order(
        self, events: EventSet, threads: Mapping[int, int]
    ) -> Iterable[tuple[int, int]]:
        def key(e: Event) -> tuple[int, int, str]:
            return self.place[events.units[e.unit].op], e.unit, e.kind

        listed = [e for e in events.events if e.block >= 0]
        for e in listed:
            for f in listed:
                one_thread = e.block == f.block and threads[e.unit] == threads[f.unit]
                if one_thread and key(e) < key(f):
                    yield e.index, f.index

    def _barrier_order(self, events: EventSet) -> Iterable[tuple[int, int]]:
        listed = [e for e in events.events if e.block >= 0]
        place = {e.index: self.place[events.units[e.unit].op] for e in listed}
        guard = {e.index: self.source.ops[events.units[e.unit].op][1].guard for e in listed}
        for barrier in self.barriers:
            mine = [e.index for e in listed if e.block == barrier.block]
            for e in mine:
                for f in mine:
                    between = place[e] < barrier.position < place[f]
                    if between and _implied(barrier.guard, guard[e], guard[f]):
                        yield e, f

    def _code(
        self, block: int, events: EventSet, texts: Mapping[int, str], threads: Mapping[int, int]
    ) -> list[Instruction]:
        found: list[tuple[int, Instruction]] = [
            (b.position, Instruction(-1, self.mapping.barrier, b.guard))
            for b in self.barriers
            if b.block == block
        ]
        for unit in events.units:
            if unit.block == block:
                text = f"{texts[unit.number]} {unit.access.name}"
                found.append(
                    (self.place[unit.op], Instruction(threads[unit.number], text, unit.guard))
                )
        return [i for _, i in sorted(found, key=lambda item: item[0])]


def _expressions(op: Op) -> Iterable[Expr]:
    yield op.guard
    for access in op.accesses:
        for expr in (access.guard, access.value, access.compare, access.otherwise):
            if expr is not None:
                yield expr


def _conjuncts(guard: Expr) -> set[Expr]:
    match guard:
        case Bin("&", lhs, rhs):
            return _conjuncts(lhs) | _conjuncts(rhs)
        case _:
            return set() if guard == TRUE else {guard}


def _implied(guard: Expr, *others: Expr) -> bool:
    """Whether a guard holds whenever the others all hold, by its conjuncts alone."""
    return _conjuncts(guard) <= {c for other in others for c in _conjuncts(other)}


def read_instruction(text: str) -> tuple[Order, Scope | None]:
    """Return the order and the scope that an instruction has by its name."""
    words = text.split()[0].split(".")
    if words[0] in ("ld", "st") and not any(word in ORDER_WORDS for word in words):
        return "weak", None
    # Without these words, `atom` and `red` are relaxed and of GPU scope.
    order: Order = "relaxed"
    scope: Scope = "device"
    for word in words:
        order = ORDER_WORDS.get(word, order)
        scope = SCOPE_WORDS.get(word, scope)
    return order, scope


def _by_text(event: Event, text: str) -> Event:
    """Return an event with the order and scope of its instruction."""
    order, scope = read_instruction(text)
    strength = {"R": ("acquire", "acq_rel"), "W": ("release", "acq_rel")}[event.kind]
    mine: Literal["weak", "relaxed", "acquire", "release"] = "relaxed"
    if order == "weak":
        mine = "weak"
    elif order in strength:
        mine = "acquire" if event.kind == "R" else "release"
    return replace(event, order=mine, scope=scope)


def lower(
    program: Program,
    layout: Layout | None = None,
    mapping: PtxMapping | None = None,
    rule: Rule = "minimal",
    seed: int | None = None,
    dropped_barrier: int | None = None,
) -> Lowered:
    """Return a program as PTX threads.

    rule: `minimal` is the specification's, `every` puts a barrier on every token edge between
    threads, `none` leaves them out. seed: shuffles operations that nothing orders.
    dropped_barrier: the number of a barrier to leave out, to see whether that is noticed.
    """
    chosen = layout or Layout(), mapping or spec_mapping()
    return _Lowering(program, *chosen, rule, seed).lowered(dropped_barrier)


@dataclass(frozen=True, slots=True)
class Verdict:
    """How a lowering compares with its program under one PTX model.

    extra: outcomes that the program does not have. fewer: whether it lost some. hangs: whether it
    lost all, as nothing lets its waits pass.
    """

    version: Version
    extra: tuple[Outcome, ...]
    races: tuple[Race, ...]
    fewer: bool
    hangs: bool = False

    @property
    def holds(self) -> bool:
        """Whether the lowering keeps the program's promises."""
        return not self.extra and not self.races and not self.hangs


def hold(
    source: Result, lowered: Lowered, version: Version, step_limit: int = STEP_LIMIT
) -> Verdict:
    """Return how a lowering compares with its program, which must be free of races."""
    if not source.is_race_free:
        raise Bug("only race-free programs have promises to keep", "interp.model.ptx")
    found = explore(lowered.events, spec_model(version), step_limit)
    extra = tuple(sorted(set(found.outcomes) - set(source.outcomes), key=str))
    fewer = bool(set(source.outcomes) - set(found.outcomes))
    return Verdict(version, extra, tuple(found.races), fewer)
