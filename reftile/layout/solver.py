"""Choose a layout for every tile of a program: demands first, then the cheapest of what is left.

The program is given as facts about named values:

- `Demand`: this value has this layout (an mma wants its fragment);
- `Prefer`: this layout, or a cost per candidate layout (a global load wants wide vectors);
- `Same`: two values share a layout, up to a change of shape (elementwise operations, reductions,
  transposes). A `Same` that allows conversion may be broken, at the price of converting.

Demands spread along rigid facts. Two that meet and differ are a conflict, which names both and the
way between them. What no demand reaches is chosen from candidates by total cost. The result depends
only on the facts and their order.

Places where facts come from (`where`) are passed through untouched.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from itertools import product
from typing import Any, Literal

from reftile.layout.atoms import show
from reftile.layout.cost import conversion_cost
from reftile.layout.linear import Layout, LayoutError

_EXHAUSTIVE_LIMIT = 2000


@dataclass(frozen=True, slots=True)
class Demand:
    """`value` must have `layout`."""

    value: str
    layout: Layout
    where: Any = None


@dataclass(frozen=True, slots=True)
class Prefer:
    """`value` would like `layout`; another one costs what `price` says, or `weight`.

    price: the cost of any layout of this value, in the units of `cost` (wavefronts, cycles).
    """

    value: str
    layout: Layout
    weight: int = 1
    price: Callable[[Layout], int] | None = None
    where: Any = None


Change = Literal["none", "drop", "permute", "reshape"]


@dataclass(frozen=True, slots=True)
class Same:
    """`result` has the layout of `source`, changed in shape.

    change: "none" for elementwise operations; "drop" for a reduction over dimension `argument[0]`
        (or, read backwards, a broadcast along it); "permute" to the order `argument`; "reshape" to
        the shape `argument`.
    bits: width of an element when a conversion is allowed in between; 0 if it is not.
    """

    source: str
    result: str
    change: Change = "none"
    argument: tuple[int, ...] = ()
    bits: int = 0
    where: Any = None

    def apply(self, layout: Layout) -> Layout:
        """Return the result's layout, given the source's."""
        match self.change:
            case "none":
                return layout
            case "drop":
                return layout.drop(self.argument[0])
            case "permute":
                return layout.permute(self.argument)
            case "reshape":
                return layout.reshape(self.argument)

    def undo(self, layout: Layout, shape: tuple[int, ...]) -> Layout | None:
        """Return the source's layout, given the result's, or None where several would do."""
        match self.change:
            case "none":
                return layout
            case "drop":
                return None
            case "permute":
                return layout.permute([self.argument.index(k) for k in range(len(self.argument))])
            case "reshape":
                return layout.reshape(shape)


Fact = Demand | Prefer | Same


@dataclass(frozen=True, slots=True)
class Conflict:
    """Two facts ask for different layouts of one value, with nothing between them that converts.

    path: the `Same` facts that lead from the first to the second.
    """

    value: str
    first: Demand
    second: Demand | Same
    path: tuple[Same, ...]
    wanted: tuple[str, str]

    def __str__(self) -> str:
        one, other = self.wanted
        return f"{self.value} would need two layouts: {one} and {other}"


@dataclass(frozen=True, slots=True)
class Conversion:
    """A `Same` that does not hold: its source is converted to `layout` first."""

    fact: Same
    layout: Layout
    cost: int


@dataclass(frozen=True, slots=True)
class Solution:
    """A layout per value, the conversions between them, and the cost of both together."""

    layouts: Mapping[str, Layout]
    conversions: tuple[Conversion, ...]
    cost: int


def solve(shapes: Mapping[str, tuple[int, ...]], facts: Sequence[Fact]) -> Solution | Conflict:
    """Choose layouts for all values of `shapes`, or say which demands exclude each other.

    Raises:
        LayoutError: a fact does not fit its value's shape, or no fact suggests any layout for it.
    """
    for fact in facts:
        if not isinstance(fact, Same) and fact.layout.shape != shapes[fact.value]:
            shape = fact.layout.shape
            raise LayoutError(f"{fact.value} is {shapes[fact.value]}, its layout is for {shape}")
    state = _State(shapes, facts)
    for fact in facts:
        if isinstance(fact, Demand):
            conflict = state.fix(fact.value, fact.layout, _Origin(fact, ()))
            if conflict:
                return conflict
    state.choose()
    return state.solution()


@dataclass(frozen=True, slots=True)
class _Origin:
    """Why a value has its layout: the demand, and the facts that carried it here."""

    demand: Demand
    path: tuple[Same, ...]


class _State:
    """Layouts found so far. Values in `fixed` have an origin; the others may still change."""

    def __init__(self, shapes: Mapping[str, tuple[int, ...]], facts: Sequence[Fact]) -> None:
        self.shapes = shapes
        self.facts = facts
        self.edges = [f for f in facts if isinstance(f, Same)]
        self.preferences = [f for f in facts if isinstance(f, Prefer)]
        self.layouts = dict[str, Layout]()
        self.origins = dict[str, _Origin]()
        self.prices = dict[tuple[Layout, Layout, int], int]()

    def fix(self, value: str, layout: Layout, origin: _Origin) -> Conflict | None:
        """Set a layout and spread it along rigid facts."""
        waiting = [(value, layout, origin)]
        while waiting:
            value, layout, origin = waiting.pop(0)
            if value in self.layouts:
                if self.layouts[value].is_same(layout):
                    continue
                return self._conflict(value, layout, origin)
            self.layouts[value] = layout
            self.origins[value] = origin
            for edge, other, found in self._spread(value, layout, self.layouts):
                waiting.append((other, found, _Origin(origin.demand, (*origin.path, edge))))
        return None

    def _conflict(self, value: str, layout: Layout, origin: _Origin) -> Conflict:
        first = self.origins[value]
        wanted = show(self.layouts[value]), show(layout)
        path = (*first.path, *reversed(origin.path))
        second = origin.demand if origin.demand is not first.demand else origin.path[-1]
        return Conflict(value, first.demand, second, path, wanted)

    def _spread(
        self, value: str, layout: Layout, known: Mapping[str, Layout]
    ) -> Iterable[tuple[Same, str, Layout]]:
        """What rigid facts say about other values, once `value` has `layout`."""
        for edge in self.edges:
            if edge.bits:
                continue
            if edge.source == value:
                yield edge, edge.result, edge.apply(layout)
            elif edge.result == value:
                found = edge.undo(layout, self.shapes[edge.source])
                if found is not None:
                    yield edge, edge.source, found
                elif edge.source in known and not edge.apply(known[edge.source]).is_same(layout):
                    yield edge, value, edge.apply(known[edge.source])

    # Choosing

    def choose(self) -> None:
        """Give every free group of values the candidate that costs least in all."""
        groups = self._free_groups()
        options = [self._candidates(group) for group in groups]
        if not groups:
            return
        count = 1
        for candidates in options:
            count *= len(candidates)
        if count <= _EXHAUSTIVE_LIMIT:
            best = min(product(*options), key=self._total)
        else:
            best = self._descend(options)
        for assignment in best:
            self.layouts.update(assignment)

    def _descend(self, options: list[list[dict[str, Layout]]]) -> tuple[dict[str, Layout], ...]:
        """Improve one group at a time until none improves: too many combinations to try all."""
        current = [candidates[0] for candidates in options]
        cost = self._total(current)
        improved = True
        while improved:
            improved = False
            for i, candidates in enumerate(options):
                for candidate in candidates:
                    trial = [*current[:i], candidate, *current[i + 1 :]]
                    trial_cost = self._total(trial)
                    if trial_cost < cost:
                        current, cost, improved = trial, trial_cost, True
        return tuple(current)

    def _free_groups(self) -> list[list[str]]:
        """Values without a layout, those that rigid facts tie together in one group."""
        groups = list[list[str]]()
        seen = set(self.layouts)
        for start in self.shapes:
            if start in seen:
                continue
            group = [start]
            seen.add(start)
            for value in group:
                for edge in self.edges:
                    ends = (edge.source, edge.result)
                    if edge.bits or value not in ends:
                        continue
                    for other in ends:
                        if other not in seen:
                            seen.add(other)
                            group.append(other)
            groups.append(group)
        return groups

    def _candidates(self, group: list[str]) -> list[dict[str, Layout]]:
        """Assignments for a whole group, each grown from one suggestion for one of its values."""
        suggestions = [(p.value, p.layout) for p in self.preferences if p.value in group]
        reachable = dict(self.layouts)
        reachable.update({p.value: p.layout for p in self.preferences})
        for _ in self.shapes:
            for edge in self.edges:
                if edge.source in reachable and edge.result not in reachable:
                    reachable[edge.result] = edge.apply(reachable[edge.source])
                elif edge.result in reachable and edge.source not in reachable:
                    found = edge.undo(reachable[edge.result], self.shapes[edge.source])
                    if found is not None:
                        reachable[edge.source] = found
        suggestions += [(v, reachable[v]) for v in group if v in reachable]
        for edge in self.edges:
            if edge.bits and edge.result in group and edge.source in reachable:
                suggestions.append((edge.result, edge.apply(reachable[edge.source])))
            if edge.bits and edge.source in group and edge.result in reachable:
                found = edge.undo(reachable[edge.result], self.shapes[edge.source])
                if found is not None:
                    suggestions.append((edge.source, found))
        candidates = list[dict[str, Layout]]()
        for value, layout in suggestions:
            assignment = self._grow(group, value, layout)
            if assignment is not None and assignment not in candidates:
                candidates.append(assignment)
        if not candidates:
            why = "every suggestion contradicts a demand" if suggestions else "nothing suggests one"
            raise LayoutError(f"no layout for {', '.join(group)}: {why}")
        return candidates

    def _grow(self, group: list[str], value: str, layout: Layout) -> dict[str, Layout] | None:
        """Spread one suggestion over its group; None if it contradicts itself or a demand."""
        assignment = {value: layout}
        waiting = [value]
        while waiting:
            current = waiting.pop(0)
            known = {**self.layouts, **assignment}
            for _, other, found in self._spread(current, assignment[current], known):
                if other in known:
                    if not known[other].is_same(found):
                        return None
                else:
                    assignment[other] = found
                    known[other] = found
                    waiting.append(other)
        return assignment if set(group) <= set(assignment) else None

    # Pricing

    def _total(self, assignments: Iterable[dict[str, Layout]]) -> int:
        layouts = dict(self.layouts)
        for assignment in assignments:
            layouts.update(assignment)
        total = sum(c.cost for c in self._conversions(layouts))
        for preference in self.preferences:
            layout = layouts[preference.value]
            if preference.price is not None:
                total += preference.price(layout)
            elif not layout.is_same(preference.layout):
                total += preference.weight
        return total

    def _conversions(self, layouts: Mapping[str, Layout]) -> list[Conversion]:
        found = list[Conversion]()
        for edge in self.edges:
            if not edge.bits:
                continue
            given = edge.apply(layouts[edge.source])
            wanted = layouts[edge.result]
            if not given.is_same(wanted):
                key = (given, wanted, edge.bits)
                if key not in self.prices:
                    self.prices[key] = conversion_cost(*key).total
                found.append(Conversion(edge, wanted, self.prices[key]))
        return found

    def solution(self) -> Solution:
        """Return what was chosen."""
        conversions = tuple(self._conversions(self.layouts))
        return Solution(self.layouts, conversions, self._total(()))
