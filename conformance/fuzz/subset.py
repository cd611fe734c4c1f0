"""The part of the language that programs are made of: all of it, or what another one has too."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

from reftile.ir.core import Op


def _everything(op: Op) -> bool:
    return True


@dataclass(frozen=True)
class Subset:
    """What may be written.

    powers_of_two: extents of tiles are powers of two. without: element types left out. lacks:
    names of operations left out. accepts: whether an operation may be used in this form.
    """

    powers_of_two: bool = False
    without: frozenset[str] = frozenset()
    lacks: frozenset[str] = frozenset()
    accepts: Callable[[Op], bool] = _everything

    def extents(self, options: Sequence[int]) -> list[int]:
        """Those of some extents that tiles may have."""
        return [n for n in options if not (self.powers_of_two and n & (n - 1))]

    def dtypes(self, options: Sequence[str]) -> list[str]:
        """Those of some element types that may be used."""
        return [n for n in options if n not in self.without]


ALL = Subset()
"""The whole language."""
