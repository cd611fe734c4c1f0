"""Evaluation of a model's expressions over bit sets.

A relation between n events is one Python integer of n*n bits: bit i*n + j says that event i is
related to event j. Union, intersection and difference are single machine-code operations on it; the
others go row by row and are remembered.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import assert_never

from reftile.interp.model.relations import Axiom, Binary, Expression, Model, Name, Unary

Relation = int
DYNAMIC = frozenset({"rf", "co", "tok"})
"""Base relations that belong to the candidate; `tok` does so if a token depends on a value."""

MEMORY_LIMIT = 20_000
"""Remembered results per expression, after which they are forgotten."""


class Space:
    """The relations between `size` events.

    identity: every event with itself. everything: every event with every event.
    """

    __slots__ = ("_turned", "everything", "identity", "size")

    def __init__(self, size: int) -> None:
        self.size = size
        self.identity: Relation = self.of((i, i) for i in range(size))
        self.everything: Relation = (1 << size * size) - 1
        self._turned = [1 << j * size + i for i in range(size) for j in range(size)]

    def of(self, pairs: Iterable[tuple[int, int]]) -> Relation:
        """Return the relation of these pairs."""
        result = 0
        for i, j in pairs:
            result |= 1 << i * self.size + j
        return result

    def pairs(self, relation: Relation) -> Iterator[tuple[int, int]]:
        """Yield the pairs of a relation."""
        while relation:
            low = relation & -relation
            yield divmod(low.bit_length() - 1, self.size)
            relation ^= low

    def rows(self, relation: Relation) -> list[int]:
        """Return for each event the bit set of those it is related to."""
        mask, n = (1 << self.size) - 1, self.size
        return [(relation >> i * n) & mask for i in range(n)]

    def from_rows(self, rows: Iterable[int]) -> Relation:
        """Return the relation with these rows."""
        result, shift = 0, 0
        for row in rows:
            result |= row << shift
            shift += self.size
        return result

    def restrict(self, relation: Relation, members: int) -> Relation:
        """Return the pairs of `relation` whose ends are both in the bit set `members`."""
        rows = self.rows(relation)
        return self.from_rows(
            row & members if members >> i & 1 else 0 for i, row in enumerate(rows)
        )

    def inverse(self, relation: Relation) -> Relation:
        """Return the relation turned round."""
        result, turned = 0, self._turned
        while relation:
            low = relation & -relation
            result |= turned[low.bit_length() - 1]
            relation ^= low
        return result

    def compose(self, first: Relation, second: Relation) -> Relation:
        """Return `first ; second`."""
        if not first or not second:
            return 0
        n, mask = self.size, (1 << self.size) - 1
        rows = self.rows(second)
        result, shift = 0, 0
        while first:
            row, reached = first & mask, 0
            while row:
                low = row & -row
                reached |= rows[low.bit_length() - 1]
                row ^= low
            result |= reached << shift
            first >>= n
            shift += n
        return result

    def closure(self, relation: Relation) -> Relation:
        """Return the transitive closure."""
        if not relation:
            return 0
        rows = self.rows(relation)
        live = [i for i, row in enumerate(rows) if row]
        for k in live:
            through, bit = rows[k], 1 << k
            for i in live:
                if rows[i] & bit:
                    rows[i] |= through
        return self.from_rows(rows)


Run = Callable[..., Relation]
Values = dict[int, Relation]


def _both(a: Relation, b: Relation) -> Relation:
    return a & b


@dataclass(frozen=True, slots=True)
class _Step:
    """One compiled expression.

    value: what it is in every candidate, or None if that depends on the candidate.
    run: computes it from the values of `inputs`. memory: results of a costly `run` by inputs.
    """

    value: Relation | None
    is_monotone: bool
    inputs: tuple[int, ...] = ()
    run: Run | None = None
    memory: dict[tuple[Relation, ...], Relation] | None = None
    variable: str = ""


@dataclass(frozen=True, slots=True)
class _Check:
    """An axiom with the number of the step that must not meet `mask`."""

    axiom: Axiom
    number: int
    mask: Relation


class Evaluator:
    """A model ready to be evaluated for one set of events.

    base: the relations that do not depend on the candidate, by name. Of `rf`, `co` and `tok`, those
    that it leaves out are given at each evaluation.
    """

    def __init__(self, model: Model, space: Space, base: Mapping[str, Relation]) -> None:
        self.model, self.space = model, space
        self.base = {"id": space.identity, "any": space.everything, **base}
        self._steps: list[_Step] = []
        self._numbers: dict[Expression, int] = {}
        self._definitions = dict(model.definitions)
        self._races: list[int] = []
        self._order_pairs: list[int] = []
        checks = [c for axiom in model.axioms for c in self._place(axiom)]
        self._prunable = [c for c in checks if self._steps[c.number].is_monotone]
        self._final = [c for c in checks if not self._steps[c.number].is_monotone]
        self._plan = self._schedule()

    # Compilation

    def _place(self, axiom: Axiom) -> Iterator[_Check]:
        expression, kind = axiom.expression, axiom.kind
        if kind == "acyclic":
            expression = Unary("+", expression)
        elif kind == "irreflexive" and isinstance(expression, Binary) and expression.op == ";":
            # `a ; b` has a loop where `a` meets the inverse of `b`, which costs less to compute.
            kind = "empty"
            expression = Binary("&", expression.lhs, Unary("^-1", expression.rhs))
        number = self._compile(expression)
        match kind:
            case "undefined":
                self._races.append(number)
            case "order_pairs":
                self._order_pairs.append(number)
            case "irreflexive" | "acyclic":
                yield _Check(axiom, number, self.space.identity)
            case "empty":
                yield _Check(axiom, number, self.space.everything)
            case _:
                assert_never(kind)

    def _compile(self, expression: Expression) -> int:
        if expression in self._numbers:
            return self._numbers[expression]
        match expression:
            case Name(name) if name in self._definitions:
                number = self._compile(self._definitions[name])
            case Name(name):
                is_given = name in DYNAMIC and name not in self.base
                value = None if is_given else self.base.get(name, 0)
                number = self._add(_Step(value, True, variable=name))
            case Unary(op, arg):
                number = self._compile_unary(op, self._compile(arg))
            case Binary(op, lhs, rhs):
                number = self._compile_binary(op, self._compile(lhs), self._compile(rhs))
            case _:
                assert_never(expression)
        self._numbers[expression] = number
        return number

    def _add(self, step: _Step) -> int:
        self._steps.append(step)
        return len(self._steps) - 1

    def _derive(self, inputs: tuple[int, ...], run: Run, monotone: bool, heavy: bool) -> int:
        """Add a step, with its value at once if those of its inputs are known."""
        known = [self._steps[i].value for i in inputs]
        if None not in known:
            return self._add(_Step(run(*known), monotone))
        return self._add(_Step(None, monotone, inputs, run, {} if heavy else None))

    def _compile_unary(self, op: str, arg: int) -> int:
        space, identity = self.space, self.space.identity

        def star(a: Relation) -> Relation:
            return space.closure(a) | identity

        def maybe(a: Relation) -> Relation:
            return a | identity

        runs: dict[str, Run] = {"^-1": space.inverse, "+": space.closure, "*": star, "?": maybe}
        return self._derive((arg,), runs[op], self._steps[arg].is_monotone, op != "?")

    def _compile_binary(self, op: str, lhs: int, rhs: int) -> int:
        left, right = self._steps[lhs], self._steps[rhs]
        monotone = left.is_monotone and right.is_monotone
        if op == ";":
            return self._compile_compose(lhs, rhs, monotone)
        if op == "\\":
            monotone = left.is_monotone and right.value is not None

        def either(a: Relation, b: Relation) -> Relation:
            return a | b

        def without(a: Relation, b: Relation) -> Relation:
            return a & ~b

        runs: dict[str, Run] = {"&": _both, "|": either, "\\": without}
        return self._derive((lhs, rhs), runs[op], monotone, False)

    def _compile_compose(self, lhs: int, rhs: int, monotone: bool) -> int:
        """A fixed set of events on one side only selects rows or columns of the other."""
        space = self.space
        for fixed, other, is_first in ((lhs, rhs, True), (rhs, lhs, False)):
            value = self._steps[fixed].value
            if value is not None and not value & ~space.identity:
                if value == space.identity:
                    return other
                mask = space.compose(value, space.everything)
                mask = mask if is_first else space.inverse(mask)
                return self._derive((other, self._add(_Step(mask, True))), _both, monotone, False)
        return self._derive((lhs, rhs), space.compose, monotone, True)

    def _schedule(self) -> list[tuple[int, _Step, tuple[_Check, ...]]]:
        """The steps that the prunable axioms need, each with the axioms to ask after it."""
        needed: set[int] = set()

        def visit(number: int) -> None:
            if number not in needed:
                needed.add(number)
                for source in self._steps[number].inputs:
                    visit(source)

        for check in self._prunable:
            visit(check.number)
        return [
            (n, self._steps[n], tuple(c for c in self._prunable if c.number == n))
            for n in sorted(needed)
        ]

    # Evaluation

    def _value(
        self, step: _Step, values: dict[int, Relation], given: dict[str, Relation]
    ) -> Relation:
        if step.value is not None:
            return step.value
        if step.run is None:
            return given[step.variable]
        inputs = tuple([values[i] for i in step.inputs])
        if step.memory is None:
            return step.run(*inputs)
        value = step.memory.get(inputs)
        if value is None:
            if len(step.memory) > MEMORY_LIMIT:
                step.memory.clear()
            value = step.memory[inputs] = step.run(*inputs)
        return value

    def _find(
        self, number: int, values: dict[int, Relation], given: dict[str, Relation]
    ) -> Relation:
        if number not in values:
            step = self._steps[number]
            for source in step.inputs:
                self._find(source, values, given)
            values[number] = self._value(step, values, given)
        return values[number]

    def broken(
        self, rf: Relation, co: Relation, tok: Relation = 0, complete: bool = False
    ) -> Axiom | None:
        """Return an axiom that a candidate breaks, or None.

        complete: False for a candidate under construction; then only axioms are asked that more
        edges cannot mend.
        """
        given = {"rf": rf, "co": co, "tok": tok}
        values: Values = {}
        for number, step, checks in self._plan:
            values[number] = value = self._value(step, values, given)
            for check in checks:
                if value & check.mask:
                    return check.axiom
        if complete:
            for check in self._final:
                if self._find(check.number, values, given) & check.mask:
                    return check.axiom
        return None

    def _union(self, numbers: list[int], rf: Relation, co: Relation, tok: Relation) -> Relation:
        values: Values = {}
        result = 0
        for number in numbers:
            result |= self._find(number, values, {"rf": rf, "co": co, "tok": tok})
        return result

    def race(self, rf: Relation, co: Relation, tok: Relation = 0) -> Relation:
        """Return the pairs that race in a candidate."""
        return self._union(self._races, rf, co, tok)

    def order_pairs(self, rf: Relation, co: Relation, tok: Relation = 0) -> Relation:
        """Return the pairs of writes that coherence must order in a candidate."""
        return self._union(self._order_pairs, rf, co, tok)

    def defined(self, name: str, rf: Relation, co: Relation, tok: Relation = 0) -> Relation:
        """Return the value of one name of the model in a candidate."""
        return self._union([self._compile(Name(name))], rf, co, tok)
