"""Gaussian elimination over GF(2), on integers as bit vectors."""

from __future__ import annotations

from collections.abc import Iterable


class Basis:
    """Echelon form of some bit vectors, remembering which of them make each row."""

    __slots__ = ("_rows", "count")

    def __init__(self, vectors: Iterable[int]) -> None:
        self._rows = dict[int, tuple[int, int]]()
        self.count = 0
        for vector in vectors:
            self.add(vector)

    def add(self, vector: int) -> bool:
        """Append a vector; say whether it was independent of those before."""
        vector, made = self._reduce(vector, 1 << self.count)
        self.count += 1
        if vector:
            self._rows[vector.bit_length()] = (vector, made)
        return bool(vector)

    @property
    def rank(self) -> int:
        """The dimension of the span."""
        return len(self._rows)

    def solve(self, vector: int) -> int | None:
        """Return which vectors (a bit mask) combine to `vector`, or None."""
        rest, made = self._reduce(vector, 0)
        return None if rest else made

    def largest(self) -> int:
        """Return the largest number in the span."""
        result = 0
        for top in sorted(self._rows, reverse=True):
            result = max(result, result ^ self._rows[top][0])
        return result

    def _reduce(self, vector: int, made: int) -> tuple[int, int]:
        rows = self._rows
        while vector and (row := rows.get(vector.bit_length())):
            vector ^= row[0]
            made ^= row[1]
        return vector, made


def rank(vectors: Iterable[int]) -> int:
    """Return the rank of some bit vectors over GF(2)."""
    return Basis(vectors).rank
