"""Maps from named inputs to named outputs: evaluation, composition, inversion."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from math import gcd, prod
from typing import Any

import numpy as np
from numpy.typing import NDArray

from reftile.layout.linear.digits import (
    Digit,
    LayoutError,
    Part,
    Step,
    as_digits,
    join,
    normalise,
)
from reftile.layout.linear.elimination import Basis, rank

Indices = NDArray[np.int64]


@dataclass(frozen=True, slots=True)
class Map:
    """A map from named inputs to named outputs: the algebra under `Layout`.

    inputs: (name, digits lowest first); an input that is absent has extent 1.
    outputs: (name, extent); every value lies in [0, extent).
    Build with `Map.of`, which brings the digits to their canonical form, so that `==` is useful.
    """

    inputs: tuple[tuple[str, tuple[Digit, ...]], ...]
    outputs: tuple[tuple[str, int], ...]

    @staticmethod
    def of(inputs: Mapping[str, Iterable[Part]], outputs: Sequence[tuple[str, int]]) -> Map:
        """Build from runs (extent, step) or digits, lowest first; inputs of extent 1 vanish."""
        rows = {
            name: [digit for part in parts for digit in as_digits(part)]
            for name, parts in inputs.items()
        }

        for name, row in rows.items():
            rows[name] = normalise(row, [d for n, r in rows.items() if n != name for d in r])
        result = Map(tuple((n, tuple(row)) for n, row in rows.items() if row), tuple(outputs))
        for (name, extent), top in zip(result.outputs, result._largest(), strict=True):
            if top >= extent:
                raise LayoutError(f"places reach {name} = {top}, outside the extent {extent}")
        return result

    # What it is

    def digits(self, name: str) -> tuple[Digit, ...]:
        """The digits of one input, lowest first."""
        return dict(self.inputs).get(name, ())

    def extent(self, name: str) -> int:
        """How many values an input has; 1 if it is absent."""
        return prod(d.extent for d in self.digits(name))

    @property
    def size(self) -> int:
        """The number of places: the product of the extents of all inputs."""
        return prod(d.extent for _, row in self.inputs for d in row)

    def runs(self, name: str) -> tuple[str, ...]:
        """The digits of one input as text, those that continue each other joined."""
        return tuple(
            f"{prod(d.extent for d in group)}*({','.join(map(str, group[0].step))})"
            if len(group) > 1
            else str(group[0])
            for group in join(self.digits(name))
        )

    def _all(self) -> list[Digit]:
        return [d for _, row in self.inputs for d in row]

    def _largest(self) -> list[int]:
        digits = self._all()
        return [
            Basis(d.step[k] for d in digits if d.is_bit).largest()
            + sum((d.extent - 1) * d.step[k] for d in digits if not d.is_bit)
            for k in range(len(self.outputs))
        ]

    # Calling it

    def __call__(self, **values: Any) -> tuple[Any, ...]:
        """Return one value per output. Each input is an int or an integer array; absent means 0."""
        known = dict(self.inputs)
        crossed: list[Any] = [0] * len(self.outputs)
        added: list[Any] = [0] * len(self.outputs)
        for name, value in values.items():
            digits = known.get(name, ())
            extent = prod(d.extent for d in digits)
            inside = (value >= 0) & (value < extent)
            if not (inside if isinstance(inside, bool) else np.all(inside)):
                raise LayoutError(f"{name} must lie in [0, {extent}), found {value}")
            for digit in digits:
                if isinstance(value, int) and not value:
                    break
                amount = value % digit.extent
                value = value // digit.extent
                for k, step in enumerate(digit.step):
                    if step and digit.is_bit:
                        crossed[k] = crossed[k] ^ (amount * step)
                    elif step:
                        added[k] = added[k] + amount * step
        return tuple(x + y for x, y in zip(crossed, added, strict=True))

    def table(self) -> tuple[Indices, ...]:
        """Return every output at every place: one array per output, with one axis per input."""
        extents = [prod(d.extent for d in row) for _, row in self.inputs]
        grid = np.indices(extents, dtype=np.int64, sparse=True) if extents else ()
        values = self(**{name: axis for (name, _), axis in zip(self.inputs, grid, strict=True)})
        return tuple(np.broadcast_to(np.asarray(v, np.int64), extents) for v in values)

    # Questions

    @property
    def is_injective(self) -> bool:
        """Do different places always have different values?"""
        pieces = self._pieces()
        if pieces is None:
            return len(np.unique(self._flat_table())) == self.size
        bits, reached, count = pieces
        return rank(self.pack(b.step) for b in bits) == len(bits) and len(reached) == count

    @property
    def image_size(self) -> int:
        """The number of different values."""
        pieces = self._pieces()
        if pieces is None:
            return len(np.unique(self._flat_table()))
        bits, reached, _ = pieces
        return len(reached) << rank(self.pack(b.step) for b in bits)

    @property
    def is_onto(self) -> bool:
        """Is every combination of outputs reached?"""
        return self.image_size == prod(extent for _, extent in self.outputs)

    def is_same(self, other: Map) -> bool:
        """Is this the same function, however it is written? Decided by evaluation if need be."""
        if self == other:
            return True
        shape = [(n, self.extent(n)) for n, _ in self.inputs]
        if self.outputs != other.outputs or shape != [
            (n, other.extent(n)) for n, _ in other.inputs
        ]:
            return False
        return all(np.array_equal(a, b) for a, b in zip(self.table(), other.table(), strict=True))

    def pack(self, step: Step) -> int:
        """Concatenate one value per output into one number (bit vectors for elimination)."""
        packed = 0
        for value, (_, extent) in zip(step, self.outputs, strict=True):
            packed = packed << (extent - 1).bit_length() | value
        return packed

    def _flat_table(self) -> Indices:
        flat = np.zeros((), np.int64)
        for values, (_, extent) in zip(self.table(), self.outputs, strict=True):
            flat = flat * extent + values
        return np.asarray(flat)

    def _pieces(self) -> tuple[list[Digit], set[Step], int] | None:
        """Split into bits inside a power-of-two piece, and where the pieces lie.

        Returns the bits, the positions of the pieces, and how many combinations of the remaining
        digits there are. None when bits and repeats overlap, so that the parts are not independent.
        """
        digits = self._all()
        count = len(self.outputs)
        limits = [_granule(d.step[k] for d in digits if not d.is_bit) for k in range(count)]
        inner, outer = list[Digit](), list[Digit]()
        for digit in digits:
            if digit.is_bit and all(s < q for s, q in zip(digit.step, limits, strict=True)):
                inner.append(digit)
            elif all(s % q == 0 for s, q in zip(digit.step, limits, strict=True)):
                outer.append(digit)
            else:
                return None
        if not outer:
            return inner, {(0,) * count}, 1
        pieces = Map((("outer", tuple(outer)),), self.outputs)
        return inner, set(zip(*(v.tolist() for v in pieces.table()), strict=True)), pieces.size

    # Algebra

    def then(self, after: Map) -> Map:
        """Compose: first this map, then `after`, whose inputs are our outputs.

        Raises:
            LayoutError: the digits of the two maps do not line up (for example a repeat of 3 in one
                where the other has bits), so that the result has no such form.
        """
        names = [name for name, _ in self.outputs]
        for name, extent in self.outputs:
            if after.extent(name) < extent:
                raise LayoutError(
                    f"{name} reaches {extent}, the next map takes {after.extent(name)}"
                )
        is_linear = all(d.is_bit for d in self._all()) and all(d.is_bit for d in after._all())

        def image(digit: Digit) -> Digit:
            values = after(**dict(zip(names, digit.step, strict=True)))
            return Digit(digit.extent, tuple(map(int, values)), digit.is_bit)

        images = {name: [image(d) for d in row] for name, row in self.inputs}
        if is_linear:
            return Map.of(images, after.outputs)

        def evaluate() -> tuple[Indices, ...]:
            here = self.table()
            values = after(**dict(zip(names, here, strict=True)))
            return tuple(np.broadcast_to(v, here[0].shape) for v in values)

        return first_that_fits((images, _adding(images)), after.outputs, evaluate)

    def invert(self) -> Map:
        """Return the map from outputs back to inputs.

        Raises:
            LayoutError: two places share a value, a value is never reached, or bits and repeats
                overlap so that the inverse has no such form.
        """
        if not self.is_injective:
            raise LayoutError("not invertible: several places hold the same element")
        if not self.is_onto:
            raise LayoutError("not invertible: some elements are held nowhere")
        weights = list[tuple[Digit, Step]]()
        for column, (_, row) in enumerate(self.inputs):
            weight = 1
            for digit in row:
                unit = [0] * len(self.inputs)
                unit[column] = weight
                weights.append((digit, tuple(unit)))
                weight *= digit.extent
        outputs = [(name, prod(d.extent for d in row)) for name, row in self.inputs]
        bits = _invert_runs(self, weights)
        if all(d.is_bit for d in self._all()):
            return Map.of(bits, outputs)
        here = self.table()

        def evaluate() -> tuple[Indices, ...]:
            places = np.indices([e for _, e in outputs], dtype=np.int64)
            result = tuple(np.empty([e for _, e in self.outputs], np.int64) for _ in outputs)
            for values, place in zip(result, places, strict=True):
                values[here] = place
            return result

        return first_that_fits((bits, _adding(bits)), outputs, evaluate)


def first_that_fits(
    candidates: Iterable[Mapping[str, Iterable[Digit]]],
    outputs: Sequence[tuple[str, int]],
    evaluate: Callable[[], tuple[Indices, ...]],
) -> Map:
    """Return the first candidate that equals the evaluated map everywhere."""
    truth = evaluate()
    for runs in candidates:
        try:
            candidate = Map.of(runs, outputs)
        except LayoutError:
            continue
        table = candidate.table()
        if all(np.array_equal(a, b.reshape(a.shape)) for a, b in zip(table, truth, strict=True)):
            return candidate
    raise LayoutError("bits and repeats of the two layouts do not line up")


def _invert_runs(source: Map, weights: list[tuple[Digit, Step]]) -> dict[str, list[Digit]]:
    """For each output of `source`, runs that lead back to its inputs; exact if all are bits."""
    count = len(source.outputs)
    limits = [_granule(d.step[k] for d, _ in weights if not d.is_bit) for k in range(count)]
    inner = [
        (d, w)
        for d, w in weights
        if d.is_bit and all(s < q for s, q in zip(d.step, limits, strict=True))
    ]
    outer = [(d, w) for d, w in weights if (d, w) not in inner]
    basis = Basis(source.pack(d.step) for d, _ in inner)
    runs = dict[str, list[Digit]]()
    for k, (name, extent) in enumerate(source.outputs):
        found = list[Digit]()
        for bit in range((min(limits[k], extent) - 1).bit_length()):
            target = source.pack(tuple(1 << bit if j == k else 0 for j in range(count)))
            chosen = basis.solve(target)
            if chosen is None:
                raise LayoutError("bits and repeats overlap, so the inverse has no such form")
            used = [w for i, (_, w) in enumerate(inner) if chosen >> i & 1]
            found.append(Digit(2, tuple(map(sum, zip(*used, strict=True))), is_bit=True))
        repeats = [(d.step[k], d.extent, w) for d, w in outer if d.step[k]]
        found += [Digit(e, w) for _, e, w in sorted(repeats)]
        runs[name] = found
    return runs


def _adding(rows: Mapping[str, Iterable[Digit]]) -> dict[str, list[Digit]]:
    return {name: [Digit(d.extent, d.step) for d in row] for name, row in rows.items()}


def _granule(steps: Iterable[int]) -> int:
    """Return the largest power of two that divides all steps; a huge one if there are none."""
    common = gcd(*steps)
    return common & -common if common else 1 << 62
