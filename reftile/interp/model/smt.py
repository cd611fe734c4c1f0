"""Event programs for an SMT solver: is there a race, and which outcomes are there?

The relations and axioms are those of the specification's blocks, translated expression by
expression; nothing of the model is written here. What is written here is what every model shares:
that a read reads one write and gets its value, that coherence is a total order, and what guards,
values and tokens come to. A transitive closure is any relation that contains it. That is exact
wherever a model only forbids pairs in closures or asks for pairs outside them, which is checked.

Every answer is read back as an execution and held against the axioms by the explorer's evaluator.
"""

from __future__ import annotations

from collections.abc import Iterator
from importlib import import_module
from typing import Any, assert_never

from reftile.interp.model.evaluate import Evaluator
from reftile.interp.model.event_set import EventSet
from reftile.interp.model.events import Program
from reftile.interp.model.execution import Execution
from reftile.interp.model.relations import Axiom, Binary, Expression, Model, Name, Unary, spec_model
from reftile.interp.model.smt_values import Logic, Values
from reftile.interp.model.values import TRUE, UNINIT, Expr, Value, evaluate
from reftile.ir.diagnostics import Bug, ReftileError, fail

Formula = Any
Pairs = dict[tuple[int, int], Formula]
"""A relation: for each pair that it may hold, when it does (True: always)."""

OUTCOME_LIMIT = 256


class Solver:
    """The executions of one program under one model.

    is_complete: after `outcomes`, whether it found them all.

    Raises:
        ReftileError: `explore.smt`, if there is no solver here.
    """

    def __init__(self, program: Program | EventSet, model: Model | None = None) -> None:
        self.events = program if isinstance(program, EventSet) else EventSet(program)
        self.model = model or spec_model()
        self.logic = Logic(_z3())
        self.solver: Any = self.logic.z3.Solver()
        self.values = Values(self.events, self.logic, self.solver)
        self.is_complete = True
        self._space = self.events.space
        self._evaluator = Evaluator(self.model, self._space, self.events.base)
        self._known: dict[Expression, Pairs] = {}
        self._co = self._coherence()
        self._races: Formula = False
        for axiom in self.model.axioms:
            self._assert(axiom)

    # Questions

    def find_race(self) -> Execution | None:
        """Return an execution with a race, or None if no execution has one."""
        return self._find(self._races)

    def find(self, condition: Expr | None = None) -> Execution | None:
        """Return an execution whose outcome meets a condition: the program's own by default."""
        wanted = condition if condition is not None else self.events.program.exists
        return None if wanted is None else self._find(self.values.holds(wanted))

    def outcomes(self) -> Iterator[Execution]:
        """Yield an execution for each combination of values that the host may find."""
        names = [leave.register for leave in self.events.program.exits]
        self.solver.push()
        try:
            for _ in range(OUTCOME_LIMIT):
                execution = self._find(True)
                if execution is None:
                    return
                yield execution
                same = [self._is(name, execution.value(name)) for name in names]
                self.solver.add(self.logic.negation(self.logic.all(same)))
            self.is_complete = False
        finally:
            self.solver.pop()

    def _is(self, name: str, value: Value | None) -> Formula:
        found = self.values.register(name)
        if not isinstance(value, int):
            return found.poison
        return self.logic.all([self.logic.negation(found.poison), found.bits == value])

    def _find(self, wanted: Formula) -> Execution | None:
        z3 = self.logic.z3
        self.solver.push()
        try:
            self.solver.add(wanted)
            answer = self.solver.check()
            if answer == z3.unknown:
                raise fail("explore.smt", f"the solver gave up: {self.solver.reason_unknown()}")
            return self._execution(self.solver.model()) if answer == z3.sat else None
        finally:
            self.solver.pop()

    # Executions

    def _execution(self, model: Any) -> Execution:
        """Read an answer of the solver back, and check it."""
        events, space = self.events, self._space

        def holds(formula: Formula) -> bool:
            return formula is True or (
                formula is not False and self.logic.z3.is_true(model.eval(formula, True))
            )

        reads_from = {r: w for (w, r), formula in self.values.rf.items() if holds(formula)}
        rf = space.of((w, r) for r, w in reads_from.items())
        co = space.of(pair for pair, formula in self._co.items() if holds(formula))
        exists = 0
        for unit in events.units:
            for event in unit.reads if holds(self.values.exists[unit.number]) else ():
                exists |= 1 << event
            for event in unit.writes if holds(self.values.writes[unit.number]) else ():
                exists |= 1 << event
        outcome: dict[str, Value] = {}
        for name in events.definers:
            found = self.values.register(name)
            if holds(found.known):
                number = model.eval(found.bits, True).as_signed_long()
                outcome[name] = UNINIT if holds(found.poison) else number
        guards = {edge.guard for _, op in events.ops for edge in op.after}
        tok = events.token_relation({g: evaluate(g, outcome) == 1 for g in guards})
        given = {**events.base, "tok": tok}
        evaluator = Evaluator(self.model, space, given) if events.has_guarded_tokens else None
        judge = evaluator or self._evaluator
        broken = judge.broken(rf, co, tok, complete=True)
        if broken is not None:
            raise Bug(f"an execution of the solver breaks {broken.name}", "interp.model.smt")
        race = space.restrict(judge.race(rf, co, tok), exists)
        listed = tuple(sorted(outcome.items()))
        return Execution(events, reads_from, rf, co, tok, exists, listed, race)

    # Axioms

    def _assert(self, axiom: Axiom) -> None:
        expression, kind = axiom.expression, axiom.kind
        match kind:
            case "order_pairs":
                if expression != Name("any"):
                    raise Bug("coherence must be total here", "interp.model.smt")
            case "undefined":
                _check_closures(expression, self.model, wanted=False)
                both = self.values.happens
                self._races = self.logic.some(
                    self.logic.all([formula, both[i], both[j]])
                    for (i, j), formula in self._relation(expression).items()
                )
            case "irreflexive" | "acyclic" | "empty":
                _check_closures(expression, self.model, wanted=True)
                self._forbid(expression, kind)
            case _:
                assert_never(kind)

    def _forbid(self, expression: Expression, kind: str) -> None:
        if kind == "acyclic":
            expression = Unary("+", expression)
        elif kind == "irreflexive" and isinstance(expression, Binary) and expression.op == ";":
            # `a ; b` has a loop where `a` meets the inverse of `b`.
            lhs, rhs = self._relation(expression.lhs), self._relation(expression.rhs)
            for (i, j), formula in lhs.items():
                back = rhs.get((j, i))
                if back is not None:
                    self.solver.add(self.logic.negation(self.logic.all([formula, back])))
            return
        for (i, j), formula in self._relation(expression).items():
            if kind == "empty" or i == j:
                self.solver.add(self.logic.negation(formula))

    # Relations

    def _coherence(self) -> Pairs:
        """A total order of the writes of each granule that happen, init first."""
        found: Pairs = {}
        events, logic, happens = self.events, self.logic, self.values.happens
        for writes in events.written:
            for n, a in enumerate(writes):
                for b in writes[n + 1 :]:
                    present = logic.all([happens[a], happens[b]])
                    if n == 0:
                        found[a, b] = present
                        continue
                    first = logic.boolean(f"co {a} {b}")
                    found[a, b] = logic.all([present, first])
                    found[b, a] = logic.all([present, logic.negation(first)])
            for a in writes:
                for b in writes:
                    for c in writes:
                        if len({a, b, c}) == 3 and (a, b) in found and (b, c) in found:
                            both = logic.all([found[a, b], found[b, c]])
                            self.solver.add(logic.implies(both, found.get((a, c), False)))
        return found

    def _relation(self, expression: Expression) -> Pairs:
        known = self._known.get(expression)
        if known is None:
            known = self._known[expression] = self._compile(expression)
        return known

    def _compile(self, expression: Expression) -> Pairs:
        match expression:
            case Name(name):
                return self._named(name)
            case Unary("^-1", arg):
                return {(j, i): f for (i, j), f in self._relation(arg).items()}
            case Unary(op, arg):
                inner = self._relation(arg)
                found = dict(inner) if op == "?" else self._closure(inner)
                if op != "+":
                    found.update({(i, i): True for i in range(self._space.size)})
                return found
            case Binary(op, lhs, rhs):
                return self._combined(op, self._relation(lhs), self._relation(rhs))
            case _:
                assert_never(expression)

    def _named(self, name: str) -> Pairs:
        size = self._space.size
        if name in self.model.definitions:
            return self._relation(self.model.definitions[name])
        match name:
            case "rf":
                return dict(self.values.rf)
            case "co":
                return self._co
            case "tok":
                return self._tokens()
            case "id":
                return {(i, i): True for i in range(size)}
            case "any":
                return {(i, j): True for i in range(size) for j in range(size)}
            case _:
                pairs = self._space.pairs(self.events.base.get(name, 0))
                return dict.fromkeys(pairs, True)

    def _combined(self, op: str, lhs: Pairs, rhs: Pairs) -> Pairs:
        logic = self.logic
        found: Pairs = {}
        if op == "&":
            found = {p: logic.all([f, rhs[p]]) for p, f in lhs.items() if p in rhs}
        elif op == "\\":
            found = {
                p: logic.all([f, logic.negation(rhs[p])]) if p in rhs else f for p, f in lhs.items()
            }
        elif op == "|":
            for p in {**lhs, **rhs}:
                found[p] = logic.some(r[p] for r in (lhs, rhs) if p in r)
        else:
            rows: dict[int, list[tuple[int, Formula]]] = {}
            for (k, j), formula in rhs.items():
                rows.setdefault(k, []).append((j, formula))
            ways: dict[tuple[int, int], list[Formula]] = {}
            for (i, k), formula in lhs.items():
                for j, second in rows.get(k, ()):
                    ways.setdefault((i, j), []).append(logic.all([formula, second]))
            found = {p: logic.some(formulas) for p, formulas in ways.items()}
        return {p: f for p, f in found.items() if f is not False}

    def _closure(self, arg: Pairs) -> Pairs:
        """Some transitive relation around `arg`: see the module's text."""
        space, logic = self._space, self.logic
        always = space.closure(space.of(p for p, f in arg.items() if f is True))
        possible = space.closure(space.of(arg))
        found: Pairs = dict.fromkeys(space.pairs(always), True)
        for pair in space.pairs(possible & ~always):
            found[pair] = logic.boolean(f"closure {len(self._known)} {pair}")
        rows: dict[int, list[int]] = {}
        for i, j in arg:
            rows.setdefault(i, []).append(j)
        for (i, j), formula in arg.items():
            self.solver.add(logic.implies(formula, found[i, j]))
        for (i, k), before in found.items():
            for j in rows.get(k, ()):
                if found[i, j] is not True:
                    both = logic.all([before, arg[k, j]])
                    self.solver.add(logic.implies(both, found[i, j]))
        return found

    def _tokens(self) -> Pairs:
        """`tok`: which operation waits for which, under the guards of the edges."""
        events, logic = self.events, self.logic
        numbers = {(block, op.name): n for n, (block, op) in enumerate(events.ops)}
        reached: list[dict[int, Formula]] = []
        for block, op in events.ops:
            ways: dict[int, list[Formula]] = {}
            for edge in op.after:
                source = numbers[block, edge.op]
                guard = True if edge.guard == TRUE else self.values.holds(edge.guard)
                for origin, formula in {source: True, **reached[source]}.items():
                    ways.setdefault(origin, []).append(logic.all([guard, formula]))
            reached.append({n: logic.some(formulas) for n, formulas in ways.items()})
        by_op: dict[int, list[int]] = {}
        for event in events.events:
            by_op.setdefault(events.units[event.unit].op, []).append(event.index)
        return {
            (e, f): formula
            for number, sources in enumerate(reached)
            for source, formula in sources.items()
            for e in by_op.get(source, ())
            for f in by_op.get(number, ())
        }


def _check_closures(expression: Expression, model: Model, wanted: bool) -> None:
    """Refuse a model for which a larger closure could hide what is asked."""
    match expression:
        case Name(name):
            if name in model.definitions:
                _check_closures(model.definitions[name], model, wanted)
        case Unary(op, arg):
            if op in ("+", "*") and not wanted:
                raise Bug(f"the closure `{expression}` must be exact", "interp.model.smt")
            _check_closures(arg, model, wanted)
        case Binary(op, lhs, rhs):
            _check_closures(lhs, model, wanted)
            _check_closures(rhs, model, wanted != (op == "\\"))
        case _:
            assert_never(expression)


def _z3() -> Any:
    try:
        return import_module("z3")
    except ImportError:
        raise no_solver() from None


def no_solver() -> ReftileError:
    """The error (to be raised) that the solver is not installed."""
    return fail("explore.smt", "z3 is not installed", hint="pip install 'reftile[smt]'")
