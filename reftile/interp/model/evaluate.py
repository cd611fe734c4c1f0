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
"""Base relations that change while candidates are built; the others belong to the program."""

MEMORY_LIMIT = 20_000
"""Remembered results per expression, after which they are forgotten."""


@dataclass(frozen=True, slots=True)
class Space:
    """The relations between `size` events."""

    size: int

    @property
    def identity(self) -> Relation:
        """Every event with itself."""
        return self.of((i, i) for i in range(self.size))

    @property
    def everything(self) -> Relation:
        """Every event with every event."""
        return (1 << self.size * self.size) - 1

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
        return self.of((j, i) for i, j in self.pairs(relation))

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
        for k in range(self.size):
            through, bit = rows[k], 1 << k
            if through:
                for i, row in enumerate(rows):
                    if row & bit:
                        rows[i] = row | through
        return self.from_rows(rows)


@dataclass(frozen=True, slots=True)
class _Step:
    """One node of the compiled expressions: `run` takes the values of `inputs`."""

    inputs: tuple[int, ...]
    run: Callable[..., Relation]
    is_static: bool
    is_monotone: bool
    is_heavy: bool


class Evaluator:
    """A model ready to be evaluated for one set of events.

    base: the static relations by name. `rf`, `co` and `tok` are given at each evaluation.
    """

    def __init__(self, model: Model, space: Space, base: Mapping[str, Relation]) -> None:
        self.model, self.space = model, space
        self.base = {"id": space.identity, "any": space.everything, **base}
        self._steps: list[_Step] = []
        self._numbers: dict[Expression, int] = {}
        self._definitions = dict(model.definitions)
        self.prunable: list[tuple[Axiom, int]] = []
        self.final: list[tuple[Axiom, int]] = []
        self._races: list[int] = []
        self._order_pairs: list[int] = []
        for axiom in model.axioms:
            self._place(axiom)
        self._memory: list[dict[tuple[Relation, ...], Relation]] = [{} for _ in self._steps]
        self._static: dict[int, Relation] = {}

    def _place(self, axiom: Axiom) -> None:
        acyclic = axiom.kind == "acyclic"
        number = self._compile(Unary("+", axiom.expression) if acyclic else axiom.expression)
        match axiom.kind:
            case "undefined":
                self._races.append(number)
            case "order_pairs":
                self._order_pairs.append(number)
            case "irreflexive" | "acyclic" | "empty":
                target = self.prunable if self._steps[number].is_monotone else self.final
                target.append((axiom, number))
            case _:
                assert_never(axiom.kind)

    def _compile(self, expression: Expression) -> int:
        if expression in self._numbers:
            return self._numbers[expression]
        match expression:
            case Name(name) if name in self._definitions:
                number = self._compile(self._definitions[name])
            case Name(name):
                number = self._add((), self._reader(name), name not in DYNAMIC, True, False)
            case Unary(op, arg):
                number = self._compile_unary(op, self._compile(arg))
            case Binary(op, lhs, rhs):
                number = self._compile_binary(op, self._compile(lhs), self._compile(rhs))
            case _:
                assert_never(expression)
        self._numbers[expression] = number
        return number

    def _reader(self, name: str) -> Callable[[], Relation]:
        return lambda: self.base.get(name, 0)

    def _add(
        self,
        inputs: tuple[int, ...],
        run: Callable[..., Relation],
        static: bool,
        monotone: bool,
        heavy: bool,
    ) -> int:
        self._steps.append(_Step(inputs, run, static, monotone, heavy))
        return len(self._steps) - 1

    def _compile_unary(self, op: str, arg: int) -> int:
        space, identity, step = self.space, self.base["id"], self._steps[arg]
        runs: dict[str, Callable[[Relation], Relation]] = {
            "^-1": space.inverse,
            "+": space.closure,
            "*": lambda a: space.closure(a) | identity,
            "?": lambda a: a | identity,
        }
        return self._add((arg,), runs[op], step.is_static, step.is_monotone, op != "?")

    def _compile_binary(self, op: str, lhs: int, rhs: int) -> int:
        runs: dict[str, Callable[[Relation, Relation], Relation]] = {
            ";": self.space.compose,
            "&": lambda a, b: a & b,
            "|": lambda a, b: a | b,
            "\\": lambda a, b: a & ~b,
        }
        left, right = self._steps[lhs], self._steps[rhs]
        static = left.is_static and right.is_static
        monotone = left.is_monotone and (right.is_static if op == "\\" else right.is_monotone)
        return self._add((lhs, rhs), runs[op], static, monotone, op == ";")

    def values(self, rf: Relation, co: Relation, tok: Relation) -> list[Relation]:
        """Return the value of every compiled step for this candidate."""
        self.base["rf"], self.base["co"], self.base["tok"] = rf, co, tok
        results: list[Relation] = []
        static = self._static
        for number, step in enumerate(self._steps):
            if number in static:
                results.append(static[number])
                continue
            inputs = tuple([results[i] for i in step.inputs])
            if step.is_heavy:
                memory = self._memory[number]
                value = memory.get(inputs)
                if value is None:
                    if len(memory) > MEMORY_LIMIT:
                        memory.clear()
                    value = memory[inputs] = step.run(*inputs)
            else:
                value = step.run(*inputs)
            if step.is_static:
                static[number] = value
            results.append(value)
        return results

    def _broken(self, axioms: list[tuple[Axiom, int]], values: list[Relation]) -> Axiom | None:
        for axiom, number in axioms:
            value = values[number]
            if value if axiom.kind == "empty" else value & self.base["id"]:
                return axiom
        return None

    def broken(self, rf: Relation, co: Relation, tok: Relation, complete: bool) -> Axiom | None:
        """Return an axiom that a candidate breaks, or None.

        complete: False for a candidate under construction; then only axioms are asked that more
        edges cannot mend.
        """
        values = self.values(rf, co, tok)
        found = self._broken(self.prunable, values)
        if found is None and complete:
            found = self._broken(self.final, values)
        return found

    def race(self, rf: Relation, co: Relation, tok: Relation) -> Relation:
        """Return the pairs that race in a candidate."""
        values = self.values(rf, co, tok)
        result = 0
        for number in self._races:
            result |= values[number]
        return result

    def order_pairs(self, rf: Relation, co: Relation, tok: Relation) -> Relation:
        """Return the pairs of writes that coherence must order in a candidate."""
        values = self.values(rf, co, tok)
        result = 0
        for number in self._order_pairs:
            result |= values[number]
        return result

    def defined(self, name: str, rf: Relation, co: Relation, tok: Relation) -> Relation:
        """Return the value of one definition of the model in a candidate."""
        known = len(self._steps)
        number = self._compile(Name(name))
        self._memory.extend({} for _ in range(len(self._steps) - known))
        return self.values(rf, co, tok)[number]
