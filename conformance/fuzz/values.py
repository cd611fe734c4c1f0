"""What a generator writes with: a builder, and the values in scope by type."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from math import prod

import numpy as np
from reftile.conformance.fuzz.choices import Choices

from reftile.ir import ops
from reftile.ir.attributes import Dense, element_bits
from reftile.ir.build import Builder
from reftile.ir.core import Op, Region, Value
from reftile.ir.dtypes import DTYPES, DType
from reftile.ir.numbers import convert, encode
from reftile.ir.types import TileType

Shape = tuple[int, ...]
EXTENTS = (4, 2, 1, 8, 3, 16, 48)
LARGEST_TILE = 256
"""Elements of a tile at most."""
COMMON = ("i32", "f32", "i64", "f16", "i8", "bf16", "f64", "i16", "i1")
STORED = ("f8e4m3", "f8e5m2", "tf32", "i4", "f4e2m1", "f8e8m0", "f8e4m3fnuz", "f8e5m2fnuz")
INDEX = ("i32", "i64", "i16", "i8")
I1, I32 = DTYPES["i1"], DTYPES["i32"]
SCALAR_I32 = TileType((), I32)


@dataclass
class Writer:
    """A kernel being written.

    frames: values in scope, innermost region last; only tiles without poison are there.
    known: integer scalars that depend on nothing but the block and loop counters, in the same way.
    used: operations written. depth: regions around the place that is written to.
    """

    choices: Choices
    builder: Builder
    frames: list[list[Value]] = field(default_factory=lambda: [[]])
    known: list[list[Value]] = field(default_factory=lambda: [[]])
    used: Counter[str] = field(default_factory=Counter)
    depth: int = 0

    # Writing

    def op(
        self,
        cls: type[Op],
        *arguments: Value | Sequence[Value] | None,
        types: Sequence[TileType] | None = None,
        **attributes: object,
    ) -> Op:
        """Append an operation."""
        op = self.builder.create(cls, *arguments, types=types, **attributes)  # type: ignore[arg-type]
        self.used[op.name] += 1
        return op

    def let(
        self,
        cls: type[Op],
        *arguments: Value | Sequence[Value] | None,
        type: TileType | None = None,
        **attributes: object,
    ) -> Value:
        """Append an operation, and give its first result."""
        types = None if type is None else (type,)
        return self.op(cls, *arguments, types=types, **attributes).results[0]

    @contextmanager
    def inside(self, region: Region) -> Iterator[list[Value]]:
        """Write into a region; its values are in scope only there."""
        self.frames.append([])
        self.known.append([])
        self.depth += 1
        with self.builder.inside(region) as block:
            yield block.arguments
        self.depth -= 1
        self.frames.pop()
        self.known.pop()

    def keep(self, value: Value) -> Value:
        """Put a value into scope."""
        self.frames[-1].append(value)
        return value

    def in_scope(self) -> list[Value]:
        """All values in scope, the latest first."""
        return [v for frame in reversed(self.frames) for v in reversed(frame)]

    # Types

    def shape(self, least_rank: int = 0, most: int = LARGEST_TILE) -> Shape:
        """A shape, often one that is in scope."""
        if self.choices.chance(50):
            found = [v.type.shape for v in self.in_scope() if isinstance(v.type, TileType)]
            found = [s for s in found if len(s) >= least_rank and prod(s) <= most]
            if found:
                return self.choices.pick(found[:8])
        rank = self.choices.weighted([(1, 5), (2, 3), (0, 1), (3, 1)])
        extents = self.choices.subset.extents(EXTENTS)
        sizes: list[int] = []
        for _ in range(max(rank, least_rank)):
            room = most // max(1, prod(sizes))
            sizes.append(self.choices.pick([e for e in extents if e <= room]))
        return tuple(sizes)

    def dtype(self, allowed: Sequence[str] = COMMON + STORED) -> DType:
        """An element type of `allowed`, mostly one to compute with."""
        names = self.choices.subset.dtypes((*COMMON, *STORED))
        names = [n for n in names if n in allowed] or list(allowed)
        weights = [(DTYPES[n], 6 if n in COMMON else 1) for n in names]
        return self.choices.weighted(weights)

    # Values

    def constant(self, type: TileType, *values: float) -> Value:
        """A literal; without `values`, any."""
        if not values:
            return self.let(ops.Constant, type=type, value=_any_literal(self.choices, type))
        dense = _dense(values, type)
        return self.let(ops.Constant, type=type, value=dense)

    def number(self, value: int, dtype: DType = I32) -> Value:
        """An integer scalar."""
        return self.constant(TileType((), dtype), value)

    def spread(self, source: Value, shape: Shape) -> Value:
        """A scalar repeated to a shape."""
        assert isinstance(source.type, TileType)
        if not shape:
            return source
        element = source.type.element
        ones = self.let(ops.Reshape, source, type=TileType((1,) * len(shape), element))
        if prod(shape) == 1:
            return ones
        return self.let(ops.Broadcast, ones, type=TileType(shape, element))

    def filled(self, type: TileType, value: float) -> Value:
        """A tile of one value: a constant, or a scalar repeated."""
        if type.shape and self.choices.chance(20):
            return self.spread(self.constant(TileType((), type.element), value), type.shape)
        return self.constant(type, value)

    def need(self, type: TileType, effort: int = 2) -> Value:
        """A tile of a type: one in scope, or a new one."""
        same = [v for v in self.in_scope() if v.type == type]
        if same and self.choices.chance(75):
            return self.choices.pick(same[:6])
        if effort > 0 and self.choices.chance(60):
            found = self._derived(type, effort - 1)
            if found is not None:
                return found
        return self.constant(type)

    def _derived(self, type: TileType, effort: int) -> Value | None:
        """A tile made from one in scope by a conversion or a change of shape."""
        found = [(v, v.type) for v in self.in_scope() if isinstance(v.type, TileType)]
        reshaped = [(v, t) for v, t in found if t.element == type.element and t != type]
        sized = [v for v, t in reshaped if t.size == type.size]
        if sized:
            return self.let(ops.Reshape, self.choices.pick(sized[:4]), type=type)
        small = [(v, t) for v, t in reshaped if t.size == 1]
        if small and type.shape:
            one, its_type = self.choices.pick(small[:4])
            if its_type.rank:
                one = self.let(ops.Reshape, one, type=TileType((), type.element))
            return self.spread(one, type.shape)
        alike = [v for v, t in found if t.shape == type.shape]
        if alike:
            return self.converted(self.choices.pick(alike[:6]), type.dtype)
        if (
            type.rank == 1
            and type.dtype.name in COMMON
            and type.dtype.is_int
            and type.size <= 1 << min(type.dtype.bits, 20)
        ):
            return self.let(ops.Iota, type=type)
        return None

    def converted(self, source: Value, dtype: DType) -> Value:
        """`source` with elements of another type; nothing is undefined on the way."""
        assert isinstance(source.type, TileType)
        held, type = source.type.dtype, TileType(source.type.shape, dtype)
        if held is dtype:
            return source
        signedness = self.choices.pick(("signed", "unsigned"))
        if held.is_int and dtype.is_int:
            if held.bits < dtype.bits:
                return self.let(ops.Exti, source, type=type, signedness=signedness)
            return self.let(ops.Trunci, source, type=type)
        if held.is_int:
            return self.let(ops.Itof, source, type=type, signedness=signedness)
        if dtype.is_int:
            return self.let(ops.Ftoi, source, type=type, signedness=signedness, saturating=True)
        rounding = "zero" if dtype.name == "f8e8m0" else None
        return self.let(ops.Ftof, source, type=type, rounding=rounding)

    def masked_bits(self, source: Value, bits: int) -> Value:
        """`source` with all but some of its low bits cleared."""
        assert isinstance(source.type, TileType)
        return self.let(ops.Andi, source, self.filled(source.type, bits))

    # Integers that decide addresses and branches

    def known_scalars(self) -> list[Value]:
        """Integer scalars that tell where to go, the latest first."""
        return [v for frame in reversed(self.known) for v in reversed(frame)]

    def as_i32(self, scalar: Value, dtype: DType = I32) -> Value:
        """A small integer scalar as i32, or as another integer type."""
        assert isinstance(scalar.type, TileType)
        if scalar.type.dtype is dtype:
            return scalar
        type = TileType((), dtype)
        if scalar.type.dtype.bits < dtype.bits:
            return self.let(ops.Exti, scalar, type=type, signedness="unsigned")
        return self.let(ops.Trunci, scalar, type=type)

    def index_below(self, limit: int) -> Value:
        """An i32 scalar from 0 to `limit` - 1: a number, or made from what is known."""
        known = self.known_scalars()
        if limit <= 1 or not known or not self.choices.chance(60):
            return self.number(self.choices.below(min(limit, 1 << 30)))
        value = self.as_i32(self.choices.pick(known[:6]))
        if self.choices.chance(30):
            value = self.let(ops.Addi, value, self.number(self.choices.between(1, 3)))
        return self.let(ops.Remi, value, self.number(limit), signedness="unsigned")


def _dense(values: Sequence[float], type: TileType) -> Dense:
    dtype = type.dtype
    if dtype.is_int:
        return Dense.of_bits([int(v) & ((1 << dtype.bits) - 1) for v in values], type)
    return Dense.of_bits([element_bits(float(v), dtype) for v in values], type)


_INTEGERS = (0, 1, 2, 3, -1, 7, 100, -128, 127)
_FLOATS = (0.0, 1.0, -1.0, 0.5, 2.0, -3.0, 1.5, 0.1, 100.0)
_STRANGE = (float("inf"), float("-inf"), float("nan"), -0.0, 1e-40, 6e4, 3e38)


def _any_literal(choices: Choices, type: TileType) -> Dense:
    """One value for all elements, or a few that repeat."""
    count = type.size if type.size <= 16 and choices.chance(40) else 1
    if type.dtype.is_int:
        return _dense([choices.pick(_INTEGERS) for _ in range(count)], type)
    if choices.chance(10):
        return Dense.of_bits([choices.below(1 << min(type.dtype.bits, 32))], type)
    pool = _FLOATS + _STRANGE if choices.chance(15) else _FLOATS
    return _dense([choices.pick(pool) for _ in range(count)], type)


def random_bytes(random: np.random.Generator, dtype: DType, count: int) -> np.ndarray:
    """`count` storage units of plausible contents."""
    unit = dtype.storage
    if dtype.name == "i1":
        return random.integers(0, 2, count).astype(unit)
    bits = random.integers(0, 1 << (unit.itemsize * 8 - 1), count, dtype=np.uint64) * 2
    bits = (bits + random.integers(0, 2, count).astype(np.uint64)).astype(unit)
    if dtype.is_int or dtype.elements_per_unit == 2 or random.random() < 0.1:
        small = random.integers(0, 8, count).astype(unit)
        return np.where(random.random(count) < 0.5, small, bits)
    plain = np.round(random.standard_normal(count) * 4, 2)
    return np.asarray(encode(convert(plain, DTYPES["f64"], dtype), dtype)).astype(unit)
