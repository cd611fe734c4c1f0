"""Every operation, generated from the records of spec/.

Do not edit: run `python -m reftile.ir.records`.
"""

# ruff: noqa: E501
from __future__ import annotations

from typing import cast

from reftile.ir.attributes import Attribute, Dense
from reftile.ir.core import Op, Region, Value
from reftile.ir.define import Definition, Rule


class Addi(Op):
    """Integer sum, wrapping."""

    __slots__ = ()
    name = "addi"
    definition = Definition(
        name="addi",
        summary="Integer sum, wrapping.",
        operands_text="lhs: tile[*s; T], rhs: tile[*s; T]",
        attributes_text="overflow: overflow = none",
        results_text="result: tile[*s; T]",
        where={"T": ("i1", "i8", "i16", "i32", "i64")},
        levels=("tile", "pipe", "simt"),
        traits=("commutative",),
        meaning="add_int(lhs, rhs, T, overflow)",
        accuracy="exact",
        poison="elementwise",
        tile_ir={"name": "addi", "code": 3, "since": "13.1"},
    )

    @property
    def lhs(self) -> Value:
        return cast("Value", self.arguments[0])

    @property
    def rhs(self) -> Value:
        return cast("Value", self.arguments[1])

    @property
    def result(self) -> Value:
        return self.results[0]

    @property
    def overflow(self) -> str:
        return cast("str", self.attributes.get("overflow", "none"))


class Constant(Op):
    """A tile of literal values."""

    __slots__ = ()
    name = "constant"
    definition = Definition(
        name="constant",
        summary="A tile of literal values.",
        attributes_text="value: dense",
        results_text="result: tile[*s; T]",
        where={
            "T": (
                "i1",
                "i4",
                "i8",
                "i16",
                "i32",
                "i64",
                "f16",
                "bf16",
                "f32",
                "f64",
                "tf32",
                "f8e4m3",
                "f8e5m2",
                "f8e4m3fnuz",
                "f8e5m2fnuz",
                "f8e8m0",
                "f4e2m1",
            )
        },
        levels=("tile", "pipe", "simt"),
        meaning="constant(value)",
        accuracy="exact",
        poison="none",
        tile_ir={"name": "constant", "code": 16, "since": "13.1"},
    )

    @property
    def result(self) -> Value:
        return self.results[0]

    @property
    def value(self) -> Dense:
        return cast("Dense", self.attributes["value"])


class Mmaf(Op):
    """Matrix product of two float tiles plus an accumulator."""

    __slots__ = ()
    name = "mmaf"
    definition = Definition(
        name="mmaf",
        summary="Matrix product of two float tiles plus an accumulator.",
        operands_text="lhs: tile[*b m k; F], rhs: tile[*b k n; F], acc: tile[*b m n; A]",
        attributes_text="fast_acc: unit",
        results_text="result: tile[*b m n; A]",
        where={
            "F": (
                "f16",
                "bf16",
                "f32",
                "f64",
                "tf32",
                "f8e4m3",
                "f8e5m2",
                "f8e4m3fnuz",
                "f8e5m2fnuz",
            ),
            "A": ("f16", "f32", "f64"),
        },
        rules=(
            Rule(
                "wide_accumulator",
                "F in ('f16', 'f64', 'f8e4m3', 'f8e5m2') or A == 'f32'",
                "{F} products need an f32 accumulator, found {A}",
                "make `acc` a tile<{m}x{n}xf32> and convert the result",
            ),
        ),
        levels=("tile", "pipe"),
        meaning="dot(lhs, rhs, acc, A)",
        accuracy="dot",
        poison="contract",
        tile_ir={"name": "mmaf", "code": 73, "since": "13.1", "arguments": {"fast_acc": "13.3"}},
    )

    @property
    def lhs(self) -> Value:
        return cast("Value", self.arguments[0])

    @property
    def rhs(self) -> Value:
        return cast("Value", self.arguments[1])

    @property
    def acc(self) -> Value:
        return cast("Value", self.arguments[2])

    @property
    def result(self) -> Value:
        return self.results[0]

    @property
    def fast_acc(self) -> bool:
        return cast("bool", self.attributes.get("fast_acc", False))


class LoadViewTko(Op):
    """Load the tile of a view at an index."""

    __slots__ = ()
    name = "load_view_tko"
    definition = Definition(
        name="load_view_tko",
        summary="Load the tile of a view at an index.",
        operands_text="view: view[V], index*: tile[; I], token?: token",
        attributes_text="ordering: memory_ordering, scope?: memory_scope, inbounds?: bool[], hints?: dict",
        results_text="tile: (V.tile_type), result_token: token",
        where={"I": ("i8", "i16", "i32", "i64"), "ordering": ("weak", "relaxed", "acquire")},
        rules=(
            Rule(
                "scope",
                "(scope is None) == (ordering == 'weak')",
                "a {ordering} access {'takes no' if ordering == 'weak' else 'needs a'} scope",
                "weak accesses have no scope; the others need tl_blk, device or sys",
            ),
        ),
        effects="read",
        poison="memory",
        tile_ir={"name": "load_view_tko", "code": 62, "since": "13.1"},
    )

    @property
    def view(self) -> Value:
        return cast("Value", self.arguments[0])

    @property
    def index(self) -> tuple[Value, ...]:
        return cast("tuple[Value, ...]", self.arguments[1])

    @property
    def token(self) -> Value | None:
        return cast("Value | None", self.arguments[2])

    @property
    def tile(self) -> Value:
        return self.results[0]

    @property
    def result_token(self) -> Value:
        return self.results[1]

    @property
    def ordering(self) -> str:
        return cast("str", self.attributes["ordering"])

    @property
    def scope(self) -> str | None:
        return cast("str | None", self.attributes.get("scope", None))

    @property
    def inbounds(self) -> tuple[bool, ...] | None:
        return cast("tuple[bool, ...] | None", self.attributes.get("inbounds", None))

    @property
    def hints(self) -> dict[str, Attribute] | None:
        return cast("dict[str, Attribute] | None", self.attributes.get("hints", None))


class For(Op):
    """Run a region for each value of a counter, carrying values."""

    __slots__ = ()
    name = "for"
    definition = Definition(
        name="for",
        summary="Run a region for each value of a counter, carrying values.",
        operands_text="lower: tile[; I], upper: tile[; I], step: tile[; I], init*: any[A]",
        attributes_text="unsigned_cmp: unit",
        results_text="outputs*: any[A]",
        regions_text="body(iv: tile[; I], carried*: any[A]) -> continue(A)",
        where={"I": ("i8", "i16", "i32", "i64")},
        rules=(
            Rule(
                "carried_views",
                "not any(is_kind(t, 'tensor_view') or is_kind(t, 'partition_view') or is_kind(t, 'strided_view') or is_kind(t, 'gather_scatter_view') for t in A)",
                "a view cannot be carried by a loop",
                "make the view before the loop, or inside its body",
            ),
        ),
        levels=("tile", "pipe", "simt"),
        effects="control",
        traits=("loop",),
        poison="control",
        tile_ir={"name": "for", "code": 41, "since": "13.1", "arguments": {"unsigned_cmp": "13.2"}},
    )

    @property
    def lower(self) -> Value:
        return cast("Value", self.arguments[0])

    @property
    def upper(self) -> Value:
        return cast("Value", self.arguments[1])

    @property
    def step(self) -> Value:
        return cast("Value", self.arguments[2])

    @property
    def init(self) -> tuple[Value, ...]:
        return cast("tuple[Value, ...]", self.arguments[3])

    @property
    def outputs(self) -> tuple[Value, ...]:
        return self.results[0:]

    @property
    def unsigned_cmp(self) -> bool:
        return cast("bool", self.attributes.get("unsigned_cmp", False))

    @property
    def body(self) -> Region:
        return self.regions[0]


class Continue(Op):
    """End an iteration of a loop with the values of the next one."""

    __slots__ = ()
    name = "continue"
    definition = Definition(
        name="continue",
        summary="End an iteration of a loop with the values of the next one.",
        operands_text="values*: any",
        levels=("tile", "pipe", "simt"),
        effects="control",
        traits=("terminator",),
        poison="control",
        tile_ir={"name": "continue", "code": 17, "since": "13.1"},
    )

    @property
    def values(self) -> tuple[Value, ...]:
        return cast("tuple[Value, ...]", self.arguments[0])


class If(Op):
    """Run one of two regions, by a scalar condition."""

    __slots__ = ()
    name = "if"
    definition = Definition(
        name="if",
        summary="Run one of two regions, by a scalar condition.",
        operands_text="condition: tile[; i1]",
        results_text="outputs*: any[R]",
        regions_text="then() -> yield(R), otherwise?() -> yield(R)",
        levels=("tile", "pipe", "simt"),
        effects="control",
        traits=("transparent",),
        poison="control",
        tile_ir={"name": "if", "code": 50, "since": "13.1"},
    )

    @property
    def condition(self) -> Value:
        return cast("Value", self.arguments[0])

    @property
    def outputs(self) -> tuple[Value, ...]:
        return self.results[0:]

    @property
    def then(self) -> Region:
        return self.regions[0]

    @property
    def otherwise(self) -> Region | None:
        return self.regions[1] if len(self.regions) > 1 else None


class Yield(Op):
    """End a region with its values."""

    __slots__ = ()
    name = "yield"
    definition = Definition(
        name="yield",
        summary="End a region with its values.",
        operands_text="values*: any",
        levels=("tile", "pipe", "simt"),
        effects="control",
        traits=("terminator",),
        poison="control",
        tile_ir={"name": "yield", "code": 109, "since": "13.1"},
    )

    @property
    def values(self) -> tuple[Value, ...]:
        return cast("tuple[Value, ...]", self.arguments[0])


class Return(Op):
    """End the kernel for this block."""

    __slots__ = ()
    name = "return"
    definition = Definition(
        name="return",
        summary="End the kernel for this block.",
        levels=("tile", "pipe", "simt"),
        effects="control",
        traits=("terminator",),
        poison="control",
        tile_ir={"name": "return", "code": 92, "since": "13.1"},
    )


OPS: dict[str, type[Op]] = {
    "addi": Addi,
    "constant": Constant,
    "mmaf": Mmaf,
    "load_view_tko": LoadViewTko,
    "for": For,
    "continue": Continue,
    "if": If,
    "yield": Yield,
    "return": Return,
}
"""Every operation class by name."""
