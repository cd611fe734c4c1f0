"""Choose a layout for every tile of a program: demands first, then the cheapest of what is left.

The program is given as facts about values:

- `Demand`: this value has this layout (an accumulator of a warpgroup lies as its product says);
- `Offer`: this value has one of these layouts (warps share a product in several ways);
- `Prefer`: layouts to try for a value, and what any layout of it costs (a load wants wide vectors);
- `Same`: a value's layout is that of another, changed in shape (reductions, transposes);
- `Use`: an operation reads a value as the layout of another says. If the value lies otherwise it is
  converted first, at a price, or not at all where nothing converts it.

Demands spread along `Same`. Two that meet and differ are a conflict, which names both and the way
between them. From there layouts spread along `Use`, so that as little as possible is converted; the
first to reach a value wins, and borders are moved as long as that makes the whole cheaper. Offers
are tried in all combinations (alike offers choose alike), what nothing reaches starts from what it
prefers. A `Use` that remains, and that nothing can convert, is a conflict, too. The result depends
only on the facts and their order.

Places where facts come from (`where`) are passed through untouched.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Hashable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cache, lru_cache
from itertools import islice, product
from typing import Any, TypeAlias

from reftile.layout.atoms import show
from reftile.layout.linear import Layout, LayoutError

Key: TypeAlias = Hashable
"""What names a value."""

MOST_COMBINATIONS = 81
"""Combinations of offers that are tried at most."""

MOST_ROUNDS = 4
"""How often borders are gone over."""

Price: TypeAlias = Callable[[Layout, Layout], "int | None"]
"""What converting one layout into another costs (wavefronts, cycles); None if it cannot be done."""


@dataclass(frozen=True, slots=True)
class Change:
    """How the layout of one value follows from that of another.

    undo: the way back, if there is only one.
    """

    name: str
    apply: Callable[[Layout], Layout]
    undo: Callable[[Layout], Layout] | None = None


def _itself(layout: Layout) -> Layout:
    return layout


KEEP = Change("keep", _itself, _itself)
"""The same layout: elementwise operations, what loops carry."""


@cache
def drop(axis: int) -> Change:
    """A reduction over `axis`."""
    return Change("drop", lambda layout: _dropped(layout, axis))


@cache
def permute(order: tuple[int, ...]) -> Change:
    """A transpose: dimension k of the result is dimension order[k]."""
    back = tuple(order.index(k) for k in range(len(order)))
    return Change(
        "permute", lambda layout: _permuted(layout, order), lambda layout: _permuted(layout, back)
    )


@cache
def reshape(source: tuple[int, ...], result: tuple[int, ...]) -> Change:
    """The same elements under another shape."""
    return Change(
        "reshape",
        lambda layout: _reshaped(layout, result),
        lambda layout: _reshaped(layout, source),
    )


# Kernels have few layouts and many values.


@lru_cache(maxsize=1024)
def _dropped(layout: Layout, axis: int) -> Layout:
    return layout.drop(axis)


@lru_cache(maxsize=1024)
def _permuted(layout: Layout, order: tuple[int, ...]) -> Layout:
    return layout.permute(order)


@lru_cache(maxsize=1024)
def _reshaped(layout: Layout, shape: tuple[int, ...]) -> Layout:
    return layout.reshape(shape)


@dataclass(frozen=True, slots=True)
class Demand:
    """`value` has `layout`."""

    value: Key
    layout: Layout
    where: Any = None


@dataclass(frozen=True, slots=True)
class Offer:
    """`value` has one of `layouts`; the first is taken unless another makes the whole cheaper."""

    value: Key
    layouts: tuple[Layout, ...]
    where: Any = None


@dataclass(frozen=True, slots=True)
class Prefer:
    """`value` may have any layout; `price` says what it costs. `layouts` are worth a try.

    threshold: what one of them must save so that it is tried against a layout from elsewhere.
    inherent: every layout has its price, so that the price alone is no reason to look for others.
    """

    value: Key
    layouts: tuple[Layout, ...]
    price: Callable[[Layout], int] | None = None
    where: Any = None
    threshold: int = 0
    inherent: bool = False


@dataclass(frozen=True, slots=True)
class Same:
    """`result` has the layout of `source`, changed."""

    source: Key
    result: Key
    change: Change = KEEP
    where: Any = None


@dataclass(frozen=True, slots=True)
class Use:
    """`value` is read in the layout of `by`, changed.

    price: what converting costs; None if nothing converts it.
    """

    value: Key
    by: Key
    change: Change = KEEP
    price: Price | None = None
    where: Any = None


Fact: TypeAlias = Demand | Offer | Prefer | Same | Use
Edge: TypeAlias = Same | Use


@dataclass(frozen=True, slots=True)
class Conflict:
    """`value` is needed in two layouts, and nothing converts one into the other.

    first, second: the facts that the two layouts come from. path: the facts that lead from the
    first to the second. at: the fact that fails.
    """

    value: Key
    first: Fact
    second: Fact
    path: tuple[Edge, ...]
    layouts: tuple[Layout, Layout]
    at: Fact

    def __str__(self) -> str:
        one, other = (show(layout) for layout in self.layouts)
        return f"{self.value} would need two layouts: {one} and {other}"


@dataclass(frozen=True, slots=True)
class Conversion:
    """A value that does not lie as a `Use` reads it: it is converted to `layout` first."""

    fact: Use
    layout: Layout
    cost: int


@dataclass(frozen=True, slots=True)
class Solution:
    """A layout per value, and the conversions between them.

    total: what both cost. origin: the fact that gave a value its layout.
    """

    layouts: Mapping[Key, Layout]
    conversions: tuple[Conversion, ...]
    total: Callable[[], int]
    origin: Callable[[Key], Fact]


class UnfitError(LayoutError):
    """A demand reaches an operation that it does not fit.

    fact: the operation's. layout: what its source was to have.
    """

    def __init__(self, fact: Edge, layout: Layout, why: LayoutError) -> None:
        super().__init__(str(why))
        self.fact = fact
        self.layout = layout


class UndecidedError(LayoutError):
    """Values that no layout was found for."""

    def __init__(self, values: Sequence[Key], why: str) -> None:
        super().__init__(f"no layout for {', '.join(map(str, values))}: {why}")
        self.values = values
        self.why = why


def solve(
    shapes: Mapping[Key, tuple[int, ...]],
    facts: Sequence[Fact],
    otherwise: Callable[[Key], Layout] | None = None,
) -> Solution | Conflict:
    """Choose layouts for all values of `shapes`, or say what excludes each other.

    otherwise: the layout of a value that no fact suggests one for.

    Raises:
        LayoutError: a fact does not fit its value's shape.
        UndecidedError: nothing that fits is suggested for a value.
        UnfitError: a demand spreads to an operation that it does not fit.
    """
    for fact in facts:
        layouts = (fact.layout,) if isinstance(fact, Demand) else ()
        layouts = fact.layouts if isinstance(fact, (Offer, Prefer)) else layouts
        for layout in layouts:
            assert isinstance(fact, (Demand, Offer, Prefer))
            if layout.shape != shapes[fact.value]:
                shape, found = shapes[fact.value], layout.shape
                raise LayoutError(f"{fact.value} is {shape}, its layout is for {found}")
    problem = _Problem(shapes, facts, otherwise)
    state = _State(problem)
    for fact in facts:
        if isinstance(fact, Demand):
            conflict = state.fix(fact)
            if conflict is not None:
                return conflict
    state.spread()
    state = _choose(state)
    broken = state.improve()
    return state.conflict(broken) or state.solution(broken)


class _Problem:
    """The facts, by the values that they are about."""

    def __init__(
        self,
        shapes: Mapping[Key, tuple[int, ...]],
        facts: Sequence[Fact],
        otherwise: Callable[[Key], Layout] | None,
    ) -> None:
        self.shapes = shapes
        self.otherwise = otherwise
        self.rigid: dict[Key, list[Same]] = {}
        self.uses: dict[Key, list[Use]] = {}
        self.all_uses: list[Use] = []
        self.one_way: list[Use] = []
        self.offers: dict[Key, Offer] = {}
        self.preferences: dict[Key, list[Prefer]] = {}
        self.changed: dict[tuple[Change, int, bool], tuple[Layout, Layout | LayoutError]] = {}
        self.same: dict[tuple[int, int], tuple[Layout, Layout, bool]] = {}
        self.prices: dict[tuple[int, int, int], tuple[Layout, Layout, int | None]] = {}
        for fact in facts:
            match fact:
                case Same():
                    self.rigid.setdefault(fact.source, []).append(fact)
                    self.rigid.setdefault(fact.result, []).append(fact)
                case Use():
                    self.all_uses.append(fact)
                    if fact.change.undo is None:
                        self.one_way.append(fact)
                    self.uses.setdefault(fact.value, []).append(fact)
                    self.uses.setdefault(fact.by, []).append(fact)
                case Offer():
                    self.offers[fact.value] = fact
                case Prefer():
                    self.preferences.setdefault(fact.value, []).append(fact)
                case Demand():
                    pass

    # Layouts are the same objects again and again, so that looking them up by identity is enough;
    # entries keep them alive.

    def change(self, change: Change, layout: Layout, back: bool = False) -> Layout:
        """The changed layout.

        Raises:
            LayoutError: it does not fit.
        """
        if change is KEEP:
            return layout
        key = change, id(layout), back
        found = self.changed.get(key)
        if found is None:
            how = change.undo if back else change.apply
            assert how is not None
            try:
                result: Layout | LayoutError = how(layout)
            except LayoutError as error:
                result = error
            found = self.changed[key] = (layout, result)
        if isinstance(found[1], LayoutError):
            raise found[1]
        return found[1]

    def are_same(self, one: Layout, other: Layout) -> bool:
        """Do both hold the same elements in the same places?"""
        if one is other:
            return True
        key = id(one), id(other)
        found = self.same.get(key)
        if found is None:
            result = one == other or one.is_same(other)
            found = self.same[key] = (one, other, result)
        return found[2]

    def price(self, use: Use, held: Layout, wanted: Layout) -> int | None:
        """What it takes to read `held` as `wanted`."""
        if self.are_same(held, wanted):
            return 0
        if use.price is None:
            return None
        key = id(use.price), id(held), id(wanted)
        found = self.prices.get(key)
        if found is None:
            found = self.prices[key] = (held, wanted, use.price(held, wanted))
        return found[2]


IMPOSSIBLE = 1 << 40
"""What a `Use` costs that nothing can convert."""


@dataclass(slots=True)
class _State:
    """Layouts found so far, and where each comes from: a fact, and the value it came through."""

    problem: _Problem
    layouts: dict[Key, Layout] = field(default_factory=dict[Key, Layout])
    sources: dict[Key, tuple[Fact, Key | None]] = field(
        default_factory=dict[Key, tuple[Fact, "Key | None"]]
    )

    def copy(self) -> _State:
        return _State(self.problem, dict(self.layouts), dict(self.sources))

    # Spreading

    def fix(self, demand: Demand) -> Conflict | None:
        """Set a layout and spread it along rigid facts."""
        waiting: deque[tuple[Key, Layout, Fact, Key | None]] = deque(
            [(demand.value, demand.layout, demand, None)]
        )
        while waiting:
            value, layout, fact, via = waiting.popleft()
            known = self.layouts.get(value)
            if known is not None:
                if self.problem.are_same(known, layout):
                    continue
                return self._clash(value, layout, fact, via)
            self.layouts[value] = layout
            self.sources[value] = fact, via
            for edge in self.problem.rigid.get(value, ()):
                try:
                    other, found = self._over(edge, value, layout)
                except LayoutError as error:
                    raise UnfitError(edge, layout, error) from error
                if found is not None:
                    waiting.append((other, found, edge, value))
        return None

    def _over(self, edge: Same, value: Key, layout: Layout) -> tuple[Key, Layout | None]:
        """What a rigid fact says of the other value; None if that may have several layouts."""
        if edge.source == value:
            return edge.result, self.problem.change(edge.change, layout)
        if edge.change.undo is not None:
            return edge.source, self.problem.change(edge.change, layout, back=True)
        known = self.layouts.get(edge.source)
        if known is None:
            return edge.source, None
        return value, self.problem.change(edge.change, known)

    def _clash(self, value: Key, layout: Layout, fact: Fact, via: Key | None) -> Conflict:
        first, path = self._root(value)
        second, back = self._root(via) if via is not None else (fact, ())
        if isinstance(fact, (Same, Use)):
            back = (*back, fact)
        if second is first:
            second = fact
        return Conflict(
            value, first, second, (*path, *reversed(back)), (self.layouts[value], layout), fact
        )

    def _root(self, value: Key) -> tuple[Fact, tuple[Edge, ...]]:
        """The fact that a layout comes from, and the way from there."""
        path: list[Edge] = []
        fact, via = self.sources[value]
        while via is not None:
            assert isinstance(fact, (Same, Use))
            path.append(fact)
            fact, via = self.sources[via]
        return fact, tuple(reversed(path))

    def grow(self, value: Key, layout: Layout) -> dict[Key, tuple[Layout, Fact | None, Key]] | None:
        """Layouts of all values that a layout of one settles; None if these contradict others."""
        found: dict[Key, tuple[Layout, Fact | None, Key]] = {value: (layout, None, value)}
        waiting = [value]
        problem = self.problem
        for current in waiting:
            mine = found[current][0]
            offer = problem.offers.get(current)
            if offer is not None and not any(problem.are_same(mine, o) for o in offer.layouts):
                return None
            for edge in problem.rigid.get(current, ()):
                try:
                    if edge.result == current and edge.change.undo is None:
                        known = self.layouts.get(edge.source)
                        if edge.source in found:
                            known = found[edge.source][0]
                        if known is None:
                            continue
                        other, wanted = current, problem.change(edge.change, known)
                    else:
                        other, wanted = self._over(edge, current, mine)
                except LayoutError:
                    return None
                assert wanted is not None
                known = found[other][0] if other in found else self.layouts.get(other)
                if known is None:
                    found[other] = wanted, edge, current
                    waiting.append(other)
                elif not problem.are_same(known, wanted):
                    return None
        return found

    def take(self, value: Key, layout: Layout, fact: Fact, via: Key | None) -> list[Key]:
        """Give a value a layout, and all that follows at once; nothing if that contradicts."""
        grown = self.grow(value, layout)
        if grown is None:
            return []
        for key, (given, edge, before) in grown.items():
            self.layouts[key] = given
            self.sources[key] = (fact, via) if edge is None else (edge, before)
        return list(grown)

    def spread(self, start: Iterable[Key] | None = None) -> None:
        """Carry layouts on along uses; the first to reach a value wins."""
        waiting = deque(self.layouts if start is None else start)
        problem = self.problem
        while waiting or (waiting := deque(self._guess())):
            value = waiting.popleft()
            for use in problem.uses.get(value, ()):
                other = use.value if use.by == value else use.by
                if other in self.layouts:
                    continue
                wanted = self._through(use, value)
                if wanted is not None:
                    waiting.extend(self.take(other, wanted, use, value))

    def _guess(self) -> list[Key]:
        """Let a repeated value be as another of its shape is, so that what it repeats stays."""
        problem = self.problem
        for use in problem.one_way:
            if use.by in self.layouts:
                continue
            held = self.layouts.get(use.value)
            if held is None:
                continue
            shape = problem.shapes[use.by]
            known = {id(x): x for v, x in self.layouts.items() if problem.shapes[v] == shape}
            for layout in known.values():
                try:
                    fits = problem.are_same(problem.change(use.change, layout), held)
                except LayoutError:
                    continue
                taken = self.take(use.by, layout, use, use.value) if fits else []
                if taken:
                    return taken
        return []

    def _through(self, use: Use, value: Key) -> Layout | None:
        """What the other value of a use must have so that nothing is converted."""
        back = use.by != value
        if back and use.change.undo is None:
            return None
        try:
            return self.problem.change(use.change, self.layouts[value], back)
        except LayoutError:
            return None

    def fill(self) -> None:
        """Start what nothing reaches from what it prefers."""
        problem = self.problem
        for value in problem.shapes:
            for fact, layout in self._suggested(value):
                if value in self.layouts:
                    break
                self.spread(self.take(value, layout, fact, None))
        for value in problem.shapes:
            # A reduction follows its operand, not the other way round.
            while value not in self.layouts and problem.otherwise is not None:
                first = self._upstream(value)
                layout = problem.otherwise(first)
                taken = self.take(first, layout, Prefer(first, (layout,)), None)
                if not taken:
                    break
                self.spread(taken)

    def _suggested(self, value: Key) -> Iterable[tuple[Fact, Layout]]:
        offer = self.problem.offers.get(value)
        if offer is not None:
            return [(offer, layout) for layout in offer.layouts]
        preferences = self.problem.preferences.get(value, ())
        return [(p, layout) for p in preferences for layout in p.layouts]

    def _upstream(self, value: Key) -> Key:
        """What an undecided value is computed from, as far as that settles its layout."""
        for edge in self.problem.rigid.get(value, ()):
            undecided = edge.result == value and edge.source not in self.layouts
            if undecided and edge.change.undo is None:
                return self._upstream(edge.source)
        return value

    # Pricing

    def use_cost(self, use: Use) -> int:
        """What a use costs now."""
        held, by = self.layouts.get(use.value), self.layouts.get(use.by)
        if held is None or by is None:
            return 0
        try:
            wanted = self.problem.change(use.change, by)
        except LayoutError:
            return IMPOSSIBLE
        found = self.problem.price(use, held, wanted)
        return IMPOSSIBLE if found is None else found

    def value_cost(self, value: Key) -> int:
        """What a value costs by itself."""
        total = 0
        for preference in self.problem.preferences.get(value, ()):
            if preference.price is not None:
                total += preference.price(self.layouts[value])
        return total

    def is_perfect(self) -> bool:
        """True if nothing converts, and nothing is paid but what is inherent."""
        return not self.broken() and not any(
            preference.price(self.layouts[value])
            for value, preferences in self.problem.preferences.items()
            for preference in preferences
            if preference.price is not None and not preference.inherent
        )

    def cost(self) -> int:
        """What everything costs."""
        total = sum(self.use_cost(use) for use in self.problem.all_uses)
        return total + sum(self.value_cost(v) for v in self.problem.preferences)

    def broken(self) -> list[Use]:
        """The uses that read another layout than their value has."""
        problem, layouts = self.problem, self.layouts
        found: list[Use] = []
        for use in problem.all_uses:
            held, by = layouts.get(use.value), layouts.get(use.by)
            if held is by and use.change is KEEP:
                continue
            if held is None or by is None:
                continue
            try:
                if problem.are_same(held, problem.change(use.change, by)):
                    continue
            except LayoutError:
                pass
            found.append(use)
        return found

    # Improving

    def improve(self) -> list[Use]:
        """Move borders: let one side of a use that converts take the layout of the other.

        Returns the uses that still convert.
        """
        broken = self.broken()
        for _ in range(MOST_ROUNDS):
            moved = False
            for use in broken:
                for mine, other in ((use.value, use.by), (use.by, use.value)):
                    if self.use_cost(use):
                        moved |= self._try(mine, self._through_or_none(use, other), use, other)
            for value, preferences in self.problem.preferences.items():
                if value not in self.sources or self.sources[value][1] is None:
                    continue
                for preference in preferences:
                    moved |= self._try_preferred(value, preference)
            if not moved:
                break
            broken = self.broken()
        return broken

    def _try_preferred(self, value: Key, preference: Prefer) -> bool:
        """Change a value to what it prefers, if what it saves may pay for converting."""
        if preference.price is None or not preference.layouts:
            return False
        now = preference.price(self.layouts[value])
        moved = False
        for layout in preference.layouts:
            if now - preference.price(layout) > preference.threshold:
                moved |= self._try(value, layout, preference, None)
        return moved

    def _through_or_none(self, use: Use, value: Key) -> Layout | None:
        return self._through(use, value) if value in self.layouts else None

    def _try(self, value: Key, layout: Layout | None, fact: Fact, via: Key | None) -> bool:
        """Change one value, and what hangs on it, if that makes the whole cheaper."""
        if layout is None or self.problem.are_same(self.layouts[value], layout):
            return False
        group = self._group(value)
        if group is None:
            return False
        old = {key: (self.layouts.pop(key), self.sources.pop(key)) for key in group}
        grown = self.grow(value, layout)
        if grown is not None and grown.keys() == group.keys():
            touched = [u for key in group for u in self.problem.uses.get(key, ())]
            uses = list(dict.fromkeys(map(id, touched)))
            by_id = {id(u): u for u in touched}
            for key, (given, _edge, _before) in grown.items():
                self.layouts[key] = given
            after = sum(self.use_cost(by_id[u]) for u in uses)
            after += sum(self.value_cost(key) for key in group)
            for key in group:
                self.layouts[key] = old[key][0]
            before = sum(self.use_cost(by_id[u]) for u in uses)
            before += sum(self.value_cost(key) for key in group)
            if after < before:
                for key, (given, edge, earlier) in grown.items():
                    self.layouts[key] = given
                    self.sources[key] = (fact, via) if edge is None else (edge, earlier)
                return True
        for key, (given, source) in old.items():
            self.layouts[key], self.sources[key] = given, source
        return False

    def _group(self, value: Key) -> dict[Key, None] | None:
        """All values that rigid facts tie to one.

        None if a demand or an offer is among them, or a value that nothing fits.
        """
        found: dict[Key, None] = {value: None}
        waiting = [value]
        for current in waiting:
            source = self.sources.get(current)
            if source is None or isinstance(source[0], (Demand, Offer)):
                return None
            for edge in self.problem.rigid.get(current, ()):
                for other in (edge.source, edge.result):
                    if other not in found:
                        found[other] = None
                        waiting.append(other)
        return found

    # The end

    def conflict(self, broken: Iterable[Use]) -> Conflict | None:
        """The first use that nothing can convert."""
        for use in broken:
            if self.use_cost(use) < IMPOSSIBLE:
                continue
            try:
                wanted = self.problem.change(use.change, self.layouts[use.by])
            except LayoutError as error:
                raise UnfitError(use, self.layouts[use.by], error) from error
            (first, path), (second, back) = self._root(use.value), self._root(use.by)
            second = use if second is first else second
            layouts = self.layouts[use.value], wanted
            return Conflict(use.value, first, second, (*path, use, *reversed(back)), layouts, use)
        return None

    def solution(self, broken: Iterable[Use]) -> Solution:
        """Return what was chosen.

        Raises:
            UndecidedError: a value has no layout.
        """
        missing = [v for v in self.problem.shapes if v not in self.layouts]
        if missing:
            suggested = self.problem.otherwise or any(
                v in self.problem.preferences or v in self.problem.offers for v in missing
            )
            why = "every suggestion contradicts a fact" if suggested else "nothing suggests one"
            raise UndecidedError(missing, why)
        conversions = tuple(
            Conversion(u, self.problem.change(u.change, self.layouts[u.by]), self.use_cost(u))
            for u in broken
        )
        return Solution(self.layouts, conversions, self.cost, lambda v: self._root(v)[0])


def _choose(state: _State) -> _State:
    """Try offers that demands leave open in all combinations, alike ones alike; take the best.

    The first combination needs no rival if nothing converts.
    """
    problem = state.problem
    kinds: dict[tuple[Layout, ...], list[Offer]] = {}
    for value, offer in problem.offers.items():
        if value not in state.layouts:
            kinds.setdefault(offer.layouts, []).append(offer)
    best: tuple[int, _State] | None = None
    combinations = product(*(range(len(layouts)) for layouts in kinds))
    for chosen in islice(combinations, MOST_COMBINATIONS):
        trial = state.copy() if kinds else state
        taken: list[Key] = []
        for number, offers in zip(chosen, kinds.values(), strict=True):
            for offer in offers:
                if offer.value not in trial.layouts:
                    taken += trial.take(offer.value, offer.layouts[number], offer, None)
        trial.spread(taken)
        trial.fill()
        is_only = all(len(layouts) == 1 for layouts in kinds)
        if is_only or (best is None and trial.is_perfect()):
            return trial
        cost = trial.cost()
        if best is None or cost < best[0]:
            best = cost, trial
    assert best is not None
    return best[1]
