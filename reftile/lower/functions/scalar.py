"""Scalars that write themselves down: Python's arithmetic on them appends operations to a block."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np

from reftile.ir import ops
from reftile.ir.attributes import Attribute, Dense
from reftile.ir.core import Block, Op, Region, Value
from reftile.ir.dtypes import F32, I1, I32, I64, DType
from reftile.ir.types import TileType, scalar


@dataclass(frozen=True, slots=True, eq=False)
class Scalar:
    """A number of type f32, i32, i64 or i1 in a block that is being written.

    Floats round to nearest even and keep subnormal numbers; integers wrap.
    """

    value: Value
    block: Block

    @property
    def dtype(self) -> DType:
        """Its type."""
        assert isinstance(self.value.type, TileType)
        return self.value.type.dtype

    def make(
        self, cls: type[Op], *others: Scalar, to: DType | None = None, **attributes: Attribute
    ) -> Scalar:
        """Append an operation on this and others; `to` is the result's type if it is another."""
        operands = (self.value, *(o.value for o in others))
        op = cls(operands, (scalar(to or self.dtype),), attributes)
        return Scalar(self.block.append(op).results[0], self.block)

    def like(self, number: float) -> Scalar:
        """A constant of the same type."""
        return self.constant(number, self.dtype)

    def constant(self, number: float, dtype: DType) -> Scalar:
        """A constant; an integer may be given as its bits."""
        if dtype == F32:
            bits = int(np.float32(number).view(np.uint32))
        else:
            bits = int(number) & ((1 << dtype.bits) - 1)
        kind = scalar(dtype)
        op = ops.Constant((), (kind,), {"value": Dense.of_bits([bits], kind)})
        return Scalar(self.block.append(op).results[0], self.block)

    def _both(self, whole: type[Op], float_: type[Op], other: Scalar | float) -> Scalar:
        other = other if isinstance(other, Scalar) else self.like(other)
        return self.make(float_ if self.dtype.kind == "float" else whole, other)

    # Arithmetic

    def __add__(self, other: Scalar | float) -> Scalar:
        return self._both(ops.Addi, ops.Addf, other)

    def __sub__(self, other: Scalar | float) -> Scalar:
        return self._both(ops.Subi, ops.Subf, other)

    def __rsub__(self, other: float) -> Scalar:
        return self.like(other) - self

    def __mul__(self, other: Scalar | float) -> Scalar:
        return self._both(ops.Muli, ops.Mulf, other)

    def __truediv__(self, other: Scalar | float) -> Scalar:
        return self.make(ops.Divf, other if isinstance(other, Scalar) else self.like(other))

    def __rtruediv__(self, other: float) -> Scalar:
        return self.like(other) / self

    def __neg__(self) -> Scalar:
        return self.make(ops.Negf)

    def times_plus(self, factor: Scalar | float, term: Scalar | float) -> Scalar:
        """This * factor + term, rounded once."""
        factor, term = (v if isinstance(v, Scalar) else self.like(v) for v in (factor, term))
        return self.make(ops.Fma, factor, term)

    def polynomial(self, coefficients: Sequence[float]) -> Scalar:
        """The polynomial in this number, the coefficient of the highest power first."""
        total = self.like(coefficients[0])
        for coefficient in coefficients[1:]:
            total = total.times_plus(self, coefficient)
        return total

    def magnitude(self) -> Scalar:
        """The absolute value of a float."""
        return self.make(ops.Absf)

    def whole(self) -> Scalar:
        """The float without its fraction."""
        return self.make(ops.Truncf)

    def within(self, least: float, greatest: float) -> Scalar:
        """The float moved into a range; NaN stays."""
        low = self.make(ops.Maxf, self.like(least), propagate_nan=True)
        return low.make(ops.Minf, self.like(greatest), propagate_nan=True)

    # Bits

    def __and__(self, other: Scalar | int) -> Scalar:
        return self.make(ops.Andi, other if isinstance(other, Scalar) else self.like(other))

    def __or__(self, other: Scalar) -> Scalar:
        return self.make(ops.Ori, other)

    def __xor__(self, other: Scalar | int) -> Scalar:
        return self.make(ops.Xori, other if isinstance(other, Scalar) else self.like(other))

    def __lshift__(self, count: Scalar | int) -> Scalar:
        return self.make(ops.Shli, count if isinstance(count, Scalar) else self.like(count))

    def __rshift__(self, count: Scalar | int) -> Scalar:
        """Zeros come in from above."""
        count = count if isinstance(count, Scalar) else self.like(count)
        return self.make(ops.Shri, count, signedness="unsigned")

    def halved(self) -> Scalar:
        """The signed integer halved, rounded down."""
        return self.make(ops.Shri, self.like(1), signedness="signed")

    def bits(self) -> Scalar:
        """The bits of an f32 as an integer."""
        return self.make(ops.Bitcast, to=I32)

    def as_float(self) -> Scalar:
        """The f32 of these bits."""
        return self.make(ops.Bitcast, to=F32)

    def rounded(self) -> Scalar:
        """The signed integer as an f32."""
        return self.make(ops.Itof, to=F32, signedness="signed")

    def extended(self) -> Scalar:
        """The signed integer, of 32 bits at most, as an i32."""
        return self if self.dtype == I32 else self.make(ops.Exti, to=I32, signedness="signed")

    def widened(self) -> Scalar:
        """The unsigned i32 as an i64."""
        return self.make(ops.Exti, to=I64, signedness="unsigned")

    def narrowed(self) -> Scalar:
        """The low bits of an i64."""
        return self.make(ops.Trunci, to=I32)

    # Choices

    def _compare(self, predicate: str, other: Scalar | float) -> Scalar:
        other = other if isinstance(other, Scalar) else self.like(other)
        if self.dtype.kind == "float":
            return self.make(ops.Cmpf, other, to=I1, predicate=predicate, ordering="ordered")
        return self.make(ops.Cmpi, other, to=I1, predicate=predicate, signedness="signed")

    def __lt__(self, other: Scalar | float) -> Scalar:
        return self._compare("less_than", other)

    def __gt__(self, other: Scalar | float) -> Scalar:
        return self._compare("greater_than", other)

    def equals(self, other: Scalar | float) -> Scalar:
        """Whether both are the same number; NaN never is."""
        return self._compare("equal", other)

    def negated(self) -> Scalar:
        """The other truth value."""
        return self ^ 1

    def choose(self, if_true: Scalar, if_false: Scalar | float) -> Scalar:
        """One of two numbers by this truth value."""
        other = if_false if isinstance(if_false, Scalar) else if_true.like(if_false)
        return if_true.make_choice(self, other)

    def make_choice(self, condition: Scalar, other: Scalar) -> Scalar:
        """This where the condition holds, else the other."""
        op = ops.Select((condition.value, self.value, other.value), (self.value.type,), {})
        return Scalar(self.block.append(op).results[0], self.block)

    def branch(
        self,
        types: Sequence[DType],
        then: Callable[[Block], Sequence[Scalar]],
        otherwise: Callable[[Block], Sequence[Scalar]],
    ) -> tuple[Scalar, ...]:
        """Compute numbers in one of two ways by this truth value."""
        regions = (Region(), Region())
        for region, build in zip(regions, (then, otherwise), strict=True):
            found = tuple(s.value for s in build(region.block))
            region.block.append(ops.Yield((found,)))
        op = ops.If((self.value,), tuple(scalar(t) for t in types), {}, regions)
        self.block.append(op)
        return tuple(Scalar(r, self.block) for r in op.results)

    def repeat(self, start: Scalar, step: Callable[[Scalar], Scalar]) -> Scalar:
        """Do a step as many times as this i32 says; none if it is not positive."""
        kind = start.value.type
        region = Region(Block((self.value.type, kind), ("i", "carried")))
        made = step(Scalar(region.block.arguments[1], region.block))
        region.block.append(ops.Continue(((made.value,),)))
        bounds = (self.like(0).value, self.value, self.like(1).value)
        op = ops.For((*bounds, (start.value,)), (kind,), {}, (region,))
        return Scalar(self.block.append(op).results[0], self.block)

    def inside(self, block: Block) -> Scalar:
        """The same number, for what is written into a block of a branch."""
        return Scalar(self.value, block)


def with_sign_of(number: Scalar, sign: Scalar) -> Scalar:
    """A number that is not negative, with the sign of another."""
    return (number.bits() | (sign.bits() & 0x80000000)).as_float()
