"""The model once more, by brute force and in plain sets: an oracle for the explorer.

It shares the representation of programs and the evaluation of expressions with the package, and
nothing of the notation, the evaluator or the search. Every access must be one of its locations
exactly (no overlap of different sizes) and tokens must not depend on values.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from itertools import permutations, product

from reftile.interp.model.events import Access, Op, Program
from reftile.interp.model.values import MODIFY, Const, Expr, Reg, Value, evaluate, registers, wrap

Pair = tuple[int, int]
Pairs = set[Pair]


@dataclass
class Event:
    kind: str
    where: object
    order: str
    scope: str | None
    block: int
    op: int
    access: int
    pair: int = -1


@dataclass
class Verdict:
    outcomes: set[tuple[tuple[str, Value], ...]] = field(default_factory=set)
    racy: bool = False
    executions: int = 0


def closure(pairs: Pairs) -> Pairs:
    result = set(pairs)
    while True:
        new = {(a, d) for a, b in result for c, d in result if b == c} - result
        if not new:
            return result
        result |= new


def compose(first: Pairs, second: Pairs) -> Pairs:
    return {(a, d) for a, b in first for c, d in second if b == c}


class Naive:
    def __init__(self, program: Program) -> None:
        self.program = program
        self.events: list[Event] = []
        self.accesses: list[tuple[Access, Op | None, int]] = []
        self.reads: list[int] = []
        self.initial: dict[int, Value] = {}
        places = {a.location for b in program.blocks for o in b.ops for a in o.accesses} | {
            e.location for e in program.exits
        }
        for place in sorted(places, key=str):
            contents = program.buffer(place.buffer).contents(place.start, place.size)
            self.initial[len(self.events)] = contents
            self.events.append(Event("W", place, "weak", None, -1, -1, -1))
        self.op_list: list[tuple[int, Op]] = []
        for number, block in enumerate(program.blocks):
            for op in block.ops:
                self.op_list.append((number, op))
                for access in op.accesses:
                    self.add(access, op, number, len(self.op_list) - 1)
        for leave in program.exits:
            access = Access("load", leave.location, register=leave.register)
            self.add(access, None, -2, -2)
        self.waits = self.token_pairs()

    def add(self, access: Access, op: Op | None, block: int, number: int) -> None:
        order = op.order if op else "weak"
        scope = op.scope if op else None
        here = len(self.accesses)
        self.accesses.append((access, op, number))
        first = len(self.events)
        if access.kind != "store":
            mine = {"release": "relaxed", "acq_rel": "acquire"}.get(order, order)
            self.reads.append(first)
            self.events.append(Event("R", access.location, mine, scope, block, number, here))
        if access.kind != "load":
            mine = {"acquire": "relaxed", "acq_rel": "release"}.get(order, order)
            self.events.append(Event("W", access.location, mine, scope, block, number, here))
        if access.kind in ("rmw", "cas"):
            self.events[first].pair = first + 1

    def token_pairs(self) -> Pairs:
        index = {(b, o.name): n for n, (b, o) in enumerate(self.op_list)}
        direct = {(index[b, e.op], n) for n, (b, o) in enumerate(self.op_list) for e in o.after}
        waits = closure(direct)
        return {
            (i, j)
            for i, e in enumerate(self.events)
            for j, f in enumerate(self.events)
            if (e.op, f.op) in waits
        }

    # Values

    def run(
        self, sources: dict[int, int]
    ) -> tuple[dict[str, Value], dict[int, Value], set[int]] | None:
        """Evaluate with these sources; None if values wait for themselves or a source is
        missing."""
        env: dict[str, Value] = {}
        stored: dict[int, Value] = dict(self.initial)
        exists: dict[int, bool] = dict.fromkeys(self.initial, True)
        for _ in range(len(self.events) + 1):
            for i, event in enumerate(self.events):
                if i in exists and (event.kind == "R" or i in stored):
                    continue
                self.step(i, event, sources, env, stored, exists)
        if len(exists) < len(self.events):
            return None
        happening = {i for i, e in exists.items() if e}
        for read in self.reads:
            if exists[read] != (read in sources):
                return None
        if any(w not in happening for w in sources.values()):
            return None
        return env, stored, happening

    def step(self, i, event, sources, env, stored, exists) -> None:
        access, op, _ = self.accesses[event.access]
        guard = evaluate(access.guard, env) if op is None else 0
        if op is None:
            guard = 1
        else:
            outer = evaluate(op.guard, env)
            inner = evaluate(access.guard, env)
            if not isinstance(outer, int) or (outer and not isinstance(inner, int)):
                return
            guard = bool(outer) and bool(inner)
        if not guard:
            exists[i] = False
            return
        if event.kind == "R":
            if sources.get(i) in stored:
                env[access.register or f"hidden {event.access}"] = stored[sources[i]]
                exists[i] = True
            elif i not in sources:
                exists[i] = True
            return
        old = env.get(access.register or f"hidden {event.access}")
        value = evaluate(access.value or Const(0), env)
        if not isinstance(value, int):
            return
        if access.kind == "store":
            exists[i], stored[i] = True, wrap(value, access.location.size)
        elif isinstance(old, int):
            if access.kind == "cas":
                compare = evaluate(access.compare or Const(0), env)
                if not isinstance(compare, int):
                    return
                exists[i] = compare == old
            else:
                exists[i] = True
                value = MODIFY[access.modify](old, value)
            if exists[i]:
                stored[i] = wrap(value, access.location.size)

    def dependences(self, happening: set[int]) -> Pairs:
        reader = {self.accesses[self.events[r].access][0].register: r for r in self.reads}
        found: Pairs = set()

        def sources(expr: Expr | None) -> set[int]:
            return {reader[n] for n in registers(expr)} if expr else set()

        for i, event in enumerate(self.events):
            if i in self.initial or i not in happening:
                continue
            access, op, _ = self.accesses[event.access]
            needed = sources(access.guard) | (sources(op.guard) if op else set())
            if event.kind == "W":
                needed |= sources(access.value) | sources(access.compare)
                own = access.kind == "cas" or (access.kind == "rmw" and access.modify != "xchg")
                if own:
                    needed.add(i - 1)
            found |= {(r, i) for r in needed}
        return found

    # Axioms

    def strong_pair(self, i: int, j: int) -> bool:
        e, f = self.events[i], self.events[j]
        if "weak" in (e.order, f.order) or e.where != f.where:
            return False

        def includes(a: Event, b: Event) -> bool:
            blocks = self.program.blocks
            if a.scope == "sys" or a.block == b.block:
                return True
            return a.scope == "device" and blocks[a.block].device == blocks[b.block].device

        return includes(e, f) and includes(f, e)

    def happens_before(self, rf: Pairs, happening: set[int]) -> Pairs:
        links = {(w, r) for w, r in rf if self.strong_pair(w, r)}
        observed = set(links)
        pairs = {
            (i, e.pair) for i, e in enumerate(self.events) if e.pair in happening and i in happening
        }
        while True:
            new = compose(compose(observed, pairs), links) - observed
            if not new:
                break
            observed |= new
        sync = {
            (w, r)
            for w, r in observed
            if self.events[w].order == "release"
            and self.events[r].order == "acquire"
            and self.strong_pair(w, r)
        }
        first = {
            (i, j) for i in self.initial for j in range(len(self.events)) if j not in self.initial
        }
        last = {
            (i, j)
            for j, f in enumerate(self.events)
            if f.block == -2
            for i, e in enumerate(self.events)
            if e.block != -2
        }
        launch = {
            (i, j)
            for i, e in enumerate(self.events)
            for j, f in enumerate(self.events)
            if e.block >= 0
            and f.block >= 0
            and self.program.blocks[e.block].launch < self.program.blocks[f.block].launch
        }
        every = self.waits | sync | pairs | first | last | launch
        return closure({(i, j) for i, j in every if i in happening and j in happening})

    def coherences(self, happening: set[int]) -> Iterator[Pairs]:
        by_place: dict[object, list[int]] = {}
        for i in happening:
            if self.events[i].kind == "W" and i not in self.initial:
                by_place.setdefault(self.events[i].where, []).append(i)
        init = {self.events[i].where: i for i in self.initial}
        for orders in product(*(permutations(ws) for ws in by_place.values())):
            pairs: Pairs = set()
            for order in orders:
                line = [init[self.events[order[0]].where], *order]
                pairs |= {(a, b) for n, a in enumerate(line) for b in line[n + 1 :]}
            yield pairs

    def consistent(self, rf: Pairs, co: Pairs, hb: Pairs) -> bool:
        back = {(r, w) for w, r in rf}
        fr = {(a, b) for a, b in compose(back, co) if a != b}
        eco = closure(rf | co | fr)
        if any((b, a) in eco for a, b in hb):
            return False
        for w, r in rf:
            mine = self.events[r].pair
            if mine >= 0 and any((w, x) in co and (x, mine) in co for x in range(len(self.events))):
                return False
        return True

    def verdict(self) -> Verdict:
        result = Verdict()
        writes = {
            r: [
                i
                for i, e in enumerate(self.events)
                if e.kind == "W" and e.where == self.events[r].where and self.events[r].pair != i
            ]
            for r in self.reads
        }
        for choice in product(*([None, *writes[r]] for r in self.reads)):
            sources = {r: w for r, w in zip(self.reads, choice, strict=True) if w is not None}
            found = self.run(sources)
            if found is None:
                continue
            env, _, happening = found
            rf = {(w, r) for r, w in sources.items()}
            deps = closure(rf | self.dependences(happening))
            hb = self.happens_before(rf, happening)
            if any(a == b for a, b in deps | hb):
                continue
            count = sum(self.consistent(rf, co, hb) for co in self.coherences(happening))
            if not count:
                continue
            result.executions += count
            visible = {k: v for k, v in env.items() if not k.startswith("hidden")}
            result.outcomes.add(tuple(sorted(visible.items())))
            result.racy |= self.races(hb, happening)
        return result

    def races(self, hb: Pairs, happening: set[int]) -> bool:
        return any(
            self.events[i].where == self.events[j].where
            and "W" in (self.events[i].kind, self.events[j].kind)
            and (self.events[i].access != self.events[j].access or i in self.initial)
            and (i, j) not in hb
            and (j, i) not in hb
            and not self.strong_pair(i, j)
            for i in happening
            for j in happening
            if i < j
        )


__all__ = ["Naive", "Reg", "Verdict"]
