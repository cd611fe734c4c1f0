"""The words that the records' meanings are written in, as NumPy functions.

A meaning is an expression in which operands are arrays (batch axes first, then the tile's axes),
attributes and extents are what they are, and element types are `DType`s. Every word is right for
any number of batch axes, also when operands differ in it and broadcast; axes of tiles are given as
negative numbers. Words give defined values always: what is undefined is told by words of their own
that give masks.

spec/records.md lists the words.
"""

from __future__ import annotations

from collections.abc import Callable
from types import ModuleType

from reftile.interp.vocabulary import (
    conversions,
    elementary,
    floats,
    integers,
    matrix,
    order,
    random,
    rings,
    shapes,
)
from reftile.ir.dtypes import DTYPES
from reftile.ir.expressions import VOCABULARY as EXPRESSIONS

_MODULES = (conversions, elementary, floats, integers, matrix, order, random, rings, shapes)
_HELPERS = frozenset({"canonical", "batch_of", "order_keys", "order_along", "take_along"})


def _words(module: ModuleType) -> dict[str, Callable[..., object]]:
    return {
        name: thing
        for name, thing in vars(module).items()
        if callable(thing)
        and getattr(thing, "__module__", "") == module.__name__
        and not name.startswith("_")
        and name not in _HELPERS
    }


WORDS: dict[str, Callable[..., object]] = {
    name: word for module in _MODULES for name, word in _words(module).items()
}
"""The words by name."""

ENVIRONMENT: dict[str, object] = {"__builtins__": {}, **EXPRESSIONS, **DTYPES, **WORDS}
"""What a meaning may name besides the operation's own names."""
