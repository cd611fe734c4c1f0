"""Decisions of a generator: each is a number below a bound, and 0 is the simplest.

The source may be hypothesis (which then shrinks a program by shrinking its decisions), a seeded
generator, or a list of decisions taken earlier.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import lru_cache
from random import Random
from typing import TYPE_CHECKING, TypeVar

from reftile.conformance.fuzz.subset import ALL, Subset

if TYPE_CHECKING:
    from hypothesis.strategies import DrawFn, SearchStrategy

Option = TypeVar("Option")


class Choices:
    """Decisions, and a record of them in `taken`. `source(n)` gives a number below n.

    subset: the part of the language that they are about.
    """

    def __init__(self, source: Callable[[int], int], subset: Subset = ALL) -> None:
        self.source, self.subset = source, subset
        self.taken: list[int] = []

    def below(self, bound: int) -> int:
        """A number from 0 to `bound` - 1."""
        if bound <= 1:
            return 0
        number = self.source(bound)
        self.taken.append(number)
        return number

    def between(self, least: int, greatest: int) -> int:
        """A number from `least` to `greatest`."""
        return least + self.below(greatest - least + 1)

    def pick(self, options: Sequence[Option]) -> Option:
        """One of `options`; the first is the simplest."""
        return options[self.below(len(options))]

    def weighted(self, options: Sequence[tuple[Option, int]]) -> Option:
        """One of `options`, each as often as its weight says."""
        number = self.below(sum(weight for _, weight in options))
        for option, weight in options:
            if number < weight:
                return option
            number -= weight
        raise AssertionError("the weights are used up")

    def chance(self, percent: int) -> bool:
        """True in `percent` of a hundred cases; False is the simpler."""
        return self.below(100) >= 100 - percent

    def nested(self, write: Callable[[], None]) -> None:
        """Call `write`; what it decides belongs together, and may be shrunk together."""
        write()

    def shuffled(self, options: Sequence[Option]) -> list[Option]:
        """`options` in some order."""
        left = list(options)
        return [left.pop(self.below(len(left))) for _ in range(len(left))]


def seeded(seed: int | str, subset: Subset = ALL) -> Choices:
    """Decisions of a generator of random numbers."""
    return Choices(Random(seed).randrange, subset)


def drawn(draw: DrawFn) -> Choices:
    """Decisions that hypothesis draws, and can shrink."""
    return _Drawn(draw)


class _Drawn(Choices):
    def __init__(self, draw: DrawFn) -> None:
        super().__init__(lambda bound: self.draw(_below(bound)))
        self.draw = draw

    def nested(self, write: Callable[[], None]) -> None:
        from hypothesis import strategies

        @strategies.composite
        def part(draw: DrawFn) -> None:
            before, self.draw = self.draw, draw
            write()
            self.draw = before

        self.draw(part())


@lru_cache(maxsize=512)
def _below(bound: int) -> SearchStrategy[int]:
    from hypothesis import strategies

    return strategies.integers(0, bound - 1)


def replayed(taken: Sequence[int], subset: Subset = ALL) -> Choices:
    """The decisions `taken` again; zeros behind their end."""
    left = iter(taken)
    return Choices(lambda bound: min(next(left, 0), bound - 1), subset)


def recipe_text(taken: Sequence[int]) -> str:
    """Decisions as a short text; zeros at the end are left out."""
    numbers = list(taken)
    while numbers and numbers[-1] == 0:
        numbers.pop()
    return " ".join(map(str, numbers))


def read_recipe(text: str) -> list[int]:
    """The decisions behind a text of `recipe_text`."""
    return [int(word) for word in text.split()]
