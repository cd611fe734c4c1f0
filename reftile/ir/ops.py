"""Every operation, generated from the records of spec/.

Do not edit: run `python -m reftile.ir.records`.
"""

# ruff: noqa: E501
from __future__ import annotations

from typing import cast

from reftile.ir.attributes import Attribute, Dense
from reftile.ir.core import Op, Region, Value
from reftile.ir.define import Definition, Rule, Undefined


class AtomicRmwTko(Op):
    """Combine elements with memory atomically; give the old values."""

    __slots__ = ()
    name = "atomic_rmw_tko"
    definition = Definition(
        name="atomic_rmw_tko",
        summary="Combine elements with memory atomically; give the old values.",
        operands_text="pointers: tile[*s; ptr[E]], arg: tile[*s; E], mask?: tile[*s; i1], token?: token",
        attributes_text="ordering: memory_ordering, scope: memory_scope, mode: atomic_mode",
        results_text="result: tile[*s; E], result_token: token",
        where={
            "E": ("i32", "i64", "f16", "bf16", "f32", "f64"),
            "ordering": ("relaxed", "acquire", "release", "acq_rel"),
        },
        rules=(
            Rule(
                "mode",
                "E in ('f16', 'bf16', 'f32', 'f64') if mode == 'addf' else E in ('i32', 'i64', 'f32', 'f64') if mode == 'xchg' else E in ('i32', 'i64')",
                "{mode} cannot be applied to {E}",
                "floats are added with addf; f16 and bf16 have no other mode",
            ),
        ),
        levels=("tile", "pipe", "simt"),
        effects="atomic",
        poison="memory",
        tile_ir={
            "name": "atomic_rmw_tko",
            "code": 8,
            "since": "13.1",
            "names": {"ordering": "memory_ordering_semantics", "scope": "memory_scope"},
        },
    )

    @property
    def pointers(self) -> Value:
        return cast("Value", self.arguments[0])

    @property
    def arg(self) -> Value:
        return cast("Value", self.arguments[1])

    @property
    def mask(self) -> Value | None:
        return cast("Value | None", self.arguments[2])

    @property
    def token(self) -> Value | None:
        return cast("Value | None", self.arguments[3])

    @property
    def result(self) -> Value:
        return self.results[0]

    @property
    def result_token(self) -> Value:
        return self.results[1]

    @property
    def ordering(self) -> str:
        return cast("str", self.attributes["ordering"])

    @property
    def scope(self) -> str:
        return cast("str", self.attributes["scope"])

    @property
    def mode(self) -> str:
        return cast("str", self.attributes["mode"])


class AtomicCasTko(Op):
    """Replace elements that equal an expected value; give the old values."""

    __slots__ = ()
    name = "atomic_cas_tko"
    definition = Definition(
        name="atomic_cas_tko",
        summary="Replace elements that equal an expected value; give the old values.",
        operands_text="pointers: tile[*s; ptr[E]], cmp: tile[*s; E], val: tile[*s; E], mask?: tile[*s; i1], token?: token",
        attributes_text="ordering: memory_ordering, scope: memory_scope",
        results_text="result: tile[*s; E], result_token: token",
        where={
            "E": ("i32", "i64", "f32", "f64"),
            "ordering": ("relaxed", "acquire", "release", "acq_rel"),
        },
        levels=("tile", "pipe", "simt"),
        effects="atomic",
        poison="memory",
        tile_ir={
            "name": "atomic_cas_tko",
            "code": 7,
            "since": "13.1",
            "names": {"ordering": "memory_ordering_semantics", "scope": "memory_scope"},
        },
    )

    @property
    def pointers(self) -> Value:
        return cast("Value", self.arguments[0])

    @property
    def cmp(self) -> Value:
        return cast("Value", self.arguments[1])

    @property
    def val(self) -> Value:
        return cast("Value", self.arguments[2])

    @property
    def mask(self) -> Value | None:
        return cast("Value | None", self.arguments[3])

    @property
    def token(self) -> Value | None:
        return cast("Value | None", self.arguments[4])

    @property
    def result(self) -> Value:
        return self.results[0]

    @property
    def result_token(self) -> Value:
        return self.results[1]

    @property
    def ordering(self) -> str:
        return cast("str", self.attributes["ordering"])

    @property
    def scope(self) -> str:
        return cast("str", self.attributes["scope"])


class AtomicRedViewTko(Op):
    """Combine a tile with the tile of a view atomically."""

    __slots__ = ()
    name = "atomic_red_view_tko"
    definition = Definition(
        name="atomic_red_view_tko",
        summary="Combine a tile with the tile of a view atomically.",
        operands_text="view: partition_view | strided_view[V], index*: tile[; I], value: (V.tile_type), token?: token",
        attributes_text="ordering: memory_ordering, scope: memory_scope, mode: atomic_mode, inbounds?: bool[]",
        results_text="result_token: token",
        where={
            "I": ("i8", "i16", "i32", "i64"),
            "ordering": ("relaxed",),
            "scope": ("tl_blk", "device"),
        },
        rules=(
            Rule(
                "index",
                "len(index) == V.rank",
                "the index of {V} must be {V.rank} integer scalars, found {len(index)} operands",
            ),
            Rule(
                "mode",
                "element(V) in ('f16', 'bf16', 'f32', 'f64') if mode == 'addf' else mode != 'xchg' and element(V) in ('i32', 'i64')",
                "{mode} cannot be applied to {element(V)} here",
                "floats are added with addf; xchg would have no result",
            ),
            Rule(
                "inbounds",
                "inbounds is None or len(inbounds) == V.rank",
                "`inbounds` needs one entry for each of the {V.rank} axes",
            ),
            Rule(
                "access",
                "V.tensor.access == 'read_write'",
                "a reduction reads and writes, and the view is {V.tensor.access}",
                "change the access mode of the tensor view",
            ),
        ),
        levels=("tile", "pipe"),
        effects="atomic",
        poison="memory",
        tile_ir={
            "name": "atomic_red_view_tko",
            "code": 117,
            "since": "13.3",
            "arguments": {"inbounds": "13.5"},
            "names": {"ordering": "memory_ordering_semantics", "scope": "memory_scope"},
        },
    )

    @property
    def view(self) -> Value:
        return cast("Value", self.arguments[0])

    @property
    def index(self) -> tuple[Value, ...]:
        return cast("tuple[Value, ...]", self.arguments[1])

    @property
    def value(self) -> Value:
        return cast("Value", self.arguments[2])

    @property
    def token(self) -> Value | None:
        return cast("Value | None", self.arguments[3])

    @property
    def result_token(self) -> Value:
        return self.results[0]

    @property
    def ordering(self) -> str:
        return cast("str", self.attributes["ordering"])

    @property
    def scope(self) -> str:
        return cast("str", self.attributes["scope"])

    @property
    def mode(self) -> str:
        return cast("str", self.attributes["mode"])

    @property
    def inbounds(self) -> tuple[bool, ...] | None:
        return cast("tuple[bool, ...] | None", self.attributes.get("inbounds", None))


class GetTileBlockId(Op):
    """The three coordinates of this block in the grid."""

    __slots__ = ()
    name = "get_tile_block_id"
    definition = Definition(
        name="get_tile_block_id",
        summary="The three coordinates of this block in the grid.",
        results_text="x: tile[; i32], y: tile[; i32], z: tile[; i32]",
        levels=("tile", "pipe", "simt"),
        poison="none",
        tile_ir={
            "name": "get_tile_block_id",
            "code": 48,
            "since": "13.1",
            "names": {"x": "blockId_x", "y": "blockId_y", "z": "blockId_z"},
        },
    )

    @property
    def x(self) -> Value:
        return self.results[0]

    @property
    def y(self) -> Value:
        return self.results[1]

    @property
    def z(self) -> Value:
        return self.results[2]


class GetNumTileBlocks(Op):
    """The number of blocks along each axis of the grid."""

    __slots__ = ()
    name = "get_num_tile_blocks"
    definition = Definition(
        name="get_num_tile_blocks",
        summary="The number of blocks along each axis of the grid.",
        results_text="x: tile[; i32], y: tile[; i32], z: tile[; i32]",
        levels=("tile", "pipe", "simt"),
        poison="none",
        tile_ir={
            "name": "get_num_tile_blocks",
            "code": 46,
            "since": "13.1",
            "names": {"x": "gridSize_x", "y": "gridSize_y", "z": "gridSize_z"},
        },
    )

    @property
    def x(self) -> Value:
        return self.results[0]

    @property
    def y(self) -> Value:
        return self.results[1]

    @property
    def z(self) -> Value:
        return self.results[2]


class GdcLaunchDependentsTko(Op):
    """Allow dependent launches to begin."""

    __slots__ = ()
    name = "gdc_launch_dependents_tko"
    definition = Definition(
        name="gdc_launch_dependents_tko",
        summary="Allow dependent launches to begin.",
        operands_text="token?: token",
        results_text="result_token: token",
        levels=("tile", "pipe"),
        effects="barrier",
        poison="none",
        tile_ir={"name": "gdc_launch_dependents_tko", "code": 119, "since": "13.4"},
    )

    @property
    def token(self) -> Value | None:
        return cast("Value | None", self.arguments[0])

    @property
    def result_token(self) -> Value:
        return self.results[0]


class GdcWaitTko(Op):
    """Wait for the launches that this one depends on; acquires what they stored."""

    __slots__ = ()
    name = "gdc_wait_tko"
    definition = Definition(
        name="gdc_wait_tko",
        summary="Wait for the launches that this one depends on; acquires what they stored.",
        operands_text="token?: token",
        results_text="result_token: token",
        levels=("tile", "pipe"),
        effects="barrier",
        poison="none",
        tile_ir={"name": "gdc_wait_tko", "code": 120, "since": "13.4"},
    )

    @property
    def token(self) -> Value | None:
        return cast("Value | None", self.arguments[0])

    @property
    def result_token(self) -> Value:
        return self.results[0]


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
        regions_text="body(iv: tile[; I], carried*: any[A]) -> continue(A) | return",
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
        tile_ir={
            "name": "for",
            "code": 41,
            "since": "13.1",
            "arguments": {"unsigned_cmp": "13.2"},
            "names": {
                "lower": "lowerBound",
                "upper": "upperBound",
                "init": "initValues",
                "unsigned_cmp": "unsignedCmp",
                "outputs": "resultValues",
            },
        },
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


class Loop(Op):
    """Repeat a region until it breaks, carrying values."""

    __slots__ = ()
    name = "loop"
    definition = Definition(
        name="loop",
        summary="Repeat a region until it breaks, carrying values.",
        operands_text="init*: any[A]",
        results_text="outputs*: any[R]",
        regions_text="body(carried*: any[A]) -> continue(A) | break(R) | return",
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
        tile_ir={
            "name": "loop",
            "code": 65,
            "since": "13.1",
            "names": {"init": "initValues", "outputs": "resultValues"},
        },
    )

    @property
    def init(self) -> tuple[Value, ...]:
        return cast("tuple[Value, ...]", self.arguments[0])

    @property
    def outputs(self) -> tuple[Value, ...]:
        return self.results[0:]

    @property
    def body(self) -> Region:
        return self.regions[0]


class Break(Op):
    """Leave the innermost `loop` with the values of its results."""

    __slots__ = ()
    name = "break"
    definition = Definition(
        name="break",
        summary="Leave the innermost `loop` with the values of its results.",
        operands_text="values*: any",
        levels=("tile", "pipe", "simt"),
        effects="control",
        traits=("terminator",),
        poison="control",
        tile_ir={"name": "break", "code": 10, "since": "13.1", "names": {"values": "operands"}},
    )

    @property
    def values(self) -> tuple[Value, ...]:
        return cast("tuple[Value, ...]", self.arguments[0])


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
        tile_ir={"name": "continue", "code": 17, "since": "13.1", "names": {"values": "operands"}},
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
        rules=(
            Rule(
                "otherwise",
                "otherwise or not R",
                "an `if` with results needs both regions",
                "add an `otherwise` that yields them",
            ),
        ),
        levels=("tile", "pipe", "simt"),
        effects="control",
        traits=("transparent",),
        poison="control",
        tile_ir={"name": "if", "code": 50, "since": "13.1", "names": {"outputs": "results"}},
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
        tile_ir={"name": "yield", "code": 109, "since": "13.1", "names": {"values": "operands"}},
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


class Ftof(Op):
    """Convert between float types, rounding once."""

    __slots__ = ()
    name = "ftof"
    definition = Definition(
        name="ftof",
        summary="Convert between float types, rounding once.",
        operands_text="source: tile[*s; T]",
        attributes_text="rounding: rounding = nearest_even, saturating: unit",
        results_text="result: tile[*s; U]",
        where={
            "T": (
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
            ),
            "U": (
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
            ),
            "rounding": ("nearest_even", "zero", "negative_inf", "positive_inf", "nearest_away"),
        },
        rules=(
            Rule(
                "same_type",
                "T != U",
                "`ftof` must change the element type, found {T} on both sides",
                "drop the conversion",
            ),
            Rule(
                "scale_rounding",
                "U != 'f8e8m0' or rounding in ('zero', 'positive_inf')",
                "conversions to f8e8m0 round to zero or positive_inf, found {rounding}",
                "say rounding = zero or rounding = positive_inf",
            ),
        ),
        levels=("tile", "pipe", "simt"),
        meaning="convert(source, T, U, rounding, saturating)",
        accuracy="rounded",
        poison="elementwise",
        tile_ir={
            "name": "ftof",
            "code": 42,
            "since": "13.1",
            "names": {"rounding": "rounding_mode"},
            "without": ["saturating"],
            "limits": [
                [
                    "U not in ('f8e4m3', 'f8e5m2', 'f4e2m1') or rounding == 'nearest_even'",
                    "`ftof` to {U} rounds to nearest even only",
                ],
                [
                    "U not in ('f16', 'bf16') or T in ('f8e4m3', 'f8e5m2', 'f4e2m1') or rounding in ('nearest_even', 'zero')",
                    "`ftof` from {T} to {U} rounds to nearest even or to zero only",
                ],
                [
                    "T != 'f8e8m0' or U not in ('f32', 'tf32') or rounding in ('nearest_even', 'zero')",
                    "`ftof` from {T} to {U} rounds to nearest even or to zero only",
                ],
                [
                    "U != 'tf32' or T not in ('f32', 'f64') or rounding in ('nearest_even', 'zero') or (T == 'f32' and rounding == 'nearest_away')",
                    "`ftof` from {T} to {U} does not round to {rounding}",
                ],
                [
                    "T != 'f64' or U != 'f32' or rounding != 'nearest_away'",
                    "`ftof` from {T} to {U} does not round to {rounding}",
                ],
            ],
        },
    )

    @property
    def source(self) -> Value:
        return cast("Value", self.arguments[0])

    @property
    def result(self) -> Value:
        return self.results[0]

    @property
    def rounding(self) -> str:
        return cast("str", self.attributes.get("rounding", "nearest_even"))

    @property
    def saturating(self) -> bool:
        return cast("bool", self.attributes.get("saturating", False))


class Ftoi(Op):
    """Convert a float to an integer."""

    __slots__ = ()
    name = "ftoi"
    definition = Definition(
        name="ftoi",
        summary="Convert a float to an integer.",
        operands_text="source: tile[*s; T]",
        attributes_text="signedness: signedness, rounding: rounding = nearest_int_to_zero, saturating: unit",
        results_text="result: tile[*s; I]",
        where={
            "T": (
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
            ),
            "I": ("i1", "i4", "i8", "i16", "i32", "i64"),
            "rounding": ("nearest_int_to_zero", "nearest_even", "negative_inf", "positive_inf"),
        },
        undefined=(
            Undefined(
                "out_of_range",
                "not saturating and float_outside(source, T, I, signedness, rounding)",
                "no {signedness} {I} is the value of the float",
            ),
        ),
        levels=("tile", "pipe", "simt"),
        meaning="float_to_int(source, T, I, signedness, rounding, saturating)",
        accuracy="exact",
        poison="elementwise",
        tile_ir={
            "name": "ftoi",
            "code": 43,
            "since": "13.1",
            "arguments": {"saturating": "13.4"},
            "names": {"rounding": "rounding_mode"},
            "limits": [["rounding == 'nearest_int_to_zero'", "`ftoi` rounds to zero only"]],
        },
    )

    @property
    def source(self) -> Value:
        return cast("Value", self.arguments[0])

    @property
    def result(self) -> Value:
        return self.results[0]

    @property
    def signedness(self) -> str:
        return cast("str", self.attributes["signedness"])

    @property
    def rounding(self) -> str:
        return cast("str", self.attributes.get("rounding", "nearest_int_to_zero"))

    @property
    def saturating(self) -> bool:
        return cast("bool", self.attributes.get("saturating", False))


class Itof(Op):
    """Convert an integer to a float, rounding once."""

    __slots__ = ()
    name = "itof"
    definition = Definition(
        name="itof",
        summary="Convert an integer to a float, rounding once.",
        operands_text="source: tile[*s; I]",
        attributes_text="signedness: signedness, rounding: rounding = nearest_even",
        results_text="result: tile[*s; T]",
        where={
            "T": (
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
            ),
            "I": ("i1", "i4", "i8", "i16", "i32", "i64"),
            "rounding": ("nearest_even", "zero", "negative_inf", "positive_inf"),
        },
        levels=("tile", "pipe", "simt"),
        meaning="int_to_float(source, I, T, signedness, rounding)",
        accuracy="rounded",
        poison="elementwise",
        tile_ir={
            "name": "itof",
            "code": 59,
            "since": "13.1",
            "names": {"rounding": "rounding_mode"},
            "limits": [
                ["rounding == 'nearest_even'", "`itof` rounds to nearest even only"],
                ["T != 'f8e8m0'", "there is no `itof` to {T}"],
            ],
        },
    )

    @property
    def source(self) -> Value:
        return cast("Value", self.arguments[0])

    @property
    def result(self) -> Value:
        return self.results[0]

    @property
    def signedness(self) -> str:
        return cast("str", self.attributes["signedness"])

    @property
    def rounding(self) -> str:
        return cast("str", self.attributes.get("rounding", "nearest_even"))


class Exti(Op):
    """Extend integers."""

    __slots__ = ()
    name = "exti"
    definition = Definition(
        name="exti",
        summary="Extend integers.",
        operands_text="source: tile[*s; I]",
        attributes_text="signedness: signedness",
        results_text="result: tile[*s; J]",
        where={
            "I": ("i1", "i4", "i8", "i16", "i32", "i64"),
            "J": ("i1", "i4", "i8", "i16", "i32", "i64"),
        },
        rules=(
            Rule(
                "wider",
                "bits(J) > bits(I)",
                "`exti` must widen, found {I} to {J}",
                "use trunci to narrow",
            ),
        ),
        levels=("tile", "pipe", "simt"),
        meaning="extend_int(source, I, J, signedness)",
        accuracy="exact",
        poison="elementwise",
        tile_ir={"name": "exti", "code": 37, "since": "13.1"},
    )

    @property
    def source(self) -> Value:
        return cast("Value", self.arguments[0])

    @property
    def result(self) -> Value:
        return self.results[0]

    @property
    def signedness(self) -> str:
        return cast("str", self.attributes["signedness"])


class Trunci(Op):
    """Truncate integers."""

    __slots__ = ()
    name = "trunci"
    definition = Definition(
        name="trunci",
        summary="Truncate integers.",
        operands_text="source: tile[*s; I]",
        attributes_text="overflow: overflow = none",
        results_text="result: tile[*s; J]",
        where={
            "I": ("i1", "i4", "i8", "i16", "i32", "i64"),
            "J": ("i1", "i4", "i8", "i16", "i32", "i64"),
        },
        rules=(
            Rule(
                "narrower",
                "bits(J) < bits(I)",
                "`trunci` must narrow, found {I} to {J}",
                "use exti to widen",
            ),
        ),
        undefined=(
            Undefined(
                "overflow",
                "overflow != 'none' and truncate_overflows(source, I, J, overflow)",
                "the number does not fit {J}, and the operation promises `{overflow}`",
            ),
        ),
        levels=("tile", "pipe", "simt"),
        meaning="truncate_int(source, I, J)",
        accuracy="exact",
        poison="elementwise",
        tile_ir={"name": "trunci", "code": 107, "since": "13.1"},
    )

    @property
    def source(self) -> Value:
        return cast("Value", self.arguments[0])

    @property
    def result(self) -> Value:
        return self.results[0]

    @property
    def overflow(self) -> str:
        return cast("str", self.attributes.get("overflow", "none"))


class Bitcast(Op):
    """Reinterpret the bits of numbers."""

    __slots__ = ()
    name = "bitcast"
    definition = Definition(
        name="bitcast",
        summary="Reinterpret the bits of numbers.",
        operands_text="source: tile[*s; T]",
        results_text="result: tile[*s; U]",
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
            ),
            "U": (
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
            ),
        },
        rules=(
            Rule(
                "width",
                "bits(T) == bits(U)",
                "`bitcast` keeps the width, found {T} of {bits(T)} bits and {U} of {bits(U)}",
                "use pack or unpack to change the number of elements",
            ),
        ),
        levels=("tile", "pipe", "simt"),
        meaning="bitcast(source, T, U)",
        accuracy="exact",
        poison="elementwise",
        tile_ir={
            "name": "bitcast",
            "code": 9,
            "since": "13.1",
            "limits": [
                [
                    "T != 'tf32' and U != 'tf32'",
                    "tf32 has 19 bits, and `bitcast` keeps the number of bits",
                ]
            ],
        },
    )

    @property
    def source(self) -> Value:
        return cast("Value", self.arguments[0])

    @property
    def result(self) -> Value:
        return self.results[0]


class Pack(Op):
    """Turn a tile of numbers into bytes."""

    __slots__ = ()
    name = "pack"
    definition = Definition(
        name="pack",
        summary="Turn a tile of numbers into bytes.",
        operands_text="source: tile[n; T]",
        results_text="result: tile[(n * bits(T) // 8); i8]",
        where={"T": ("i4", "i16", "i32", "i64", "f16", "bf16", "f32", "f64", "tf32", "f4e2m1")},
        rules=(
            Rule(
                "whole_bytes",
                "n * bits(T) % 8 == 0",
                "{n} elements of {T} do not fill whole bytes",
                "use an even number of elements",
            ),
        ),
        levels=("tile", "pipe"),
        meaning="pack(source, T)",
        accuracy="exact",
        poison="bytes",
        tile_ir={"name": "pack", "code": 111, "since": "13.3"},
    )

    @property
    def source(self) -> Value:
        return cast("Value", self.arguments[0])

    @property
    def result(self) -> Value:
        return self.results[0]


class Unpack(Op):
    """Turn bytes into a tile of numbers."""

    __slots__ = ()
    name = "unpack"
    definition = Definition(
        name="unpack",
        summary="Turn bytes into a tile of numbers.",
        operands_text="source: tile[n; i8]",
        results_text="result: tile[p; T]",
        where={"T": ("i4", "i16", "i32", "i64", "f16", "bf16", "f32", "f64", "tf32", "f4e2m1")},
        rules=(
            Rule(
                "size",
                "p * bits(T) == n * 8",
                "{n} bytes are not {p} elements of {T}",
                "give the result n * 8 / bits elements",
            ),
        ),
        levels=("tile", "pipe"),
        meaning="unpack(source, T)",
        accuracy="exact",
        poison="bytes",
        tile_ir={"name": "unpack", "code": 112, "since": "13.3"},
    )

    @property
    def source(self) -> Value:
        return cast("Value", self.arguments[0])

    @property
    def result(self) -> Value:
        return self.results[0]


class IntToPtr(Op):
    """Turn addresses into pointers."""

    __slots__ = ()
    name = "int_to_ptr"
    definition = Definition(
        name="int_to_ptr",
        summary="Turn addresses into pointers.",
        operands_text="source: tile[*s; i64]",
        results_text="result: tile[*s; ptr[P]]",
        where={
            "P": (
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
        meaning="same(source)",
        accuracy="exact",
        poison="elementwise",
        tile_ir={"name": "int_to_ptr", "code": 51, "since": "13.1"},
    )

    @property
    def source(self) -> Value:
        return cast("Value", self.arguments[0])

    @property
    def result(self) -> Value:
        return self.results[0]


class PtrToInt(Op):
    """Turn pointers into addresses."""

    __slots__ = ()
    name = "ptr_to_int"
    definition = Definition(
        name="ptr_to_int",
        summary="Turn pointers into addresses.",
        operands_text="source: tile[*s; ptr[P]]",
        results_text="result: tile[*s; i64]",
        where={
            "P": (
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
        meaning="same(source)",
        accuracy="exact",
        poison="elementwise",
        tile_ir={"name": "ptr_to_int", "code": 86, "since": "13.1"},
    )

    @property
    def source(self) -> Value:
        return cast("Value", self.arguments[0])

    @property
    def result(self) -> Value:
        return self.results[0]


class PtrToPtr(Op):
    """Change what pointers point to."""

    __slots__ = ()
    name = "ptr_to_ptr"
    definition = Definition(
        name="ptr_to_ptr",
        summary="Change what pointers point to.",
        operands_text="source: tile[*s; ptr[P]]",
        results_text="result: tile[*s; ptr[Q]]",
        where={
            "P": (
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
            ),
            "Q": (
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
            ),
        },
        levels=("tile", "pipe", "simt"),
        meaning="same(source)",
        accuracy="exact",
        poison="elementwise",
        tile_ir={"name": "ptr_to_ptr", "code": 87, "since": "13.1"},
    )

    @property
    def source(self) -> Value:
        return cast("Value", self.arguments[0])

    @property
    def result(self) -> Value:
        return self.results[0]


class Offset(Op):
    """Advance pointers by elements."""

    __slots__ = ()
    name = "offset"
    definition = Definition(
        name="offset",
        summary="Advance pointers by elements.",
        operands_text="ptr: tile[*s; ptr[P]], offset: tile[*s; I]",
        results_text="result: tile[*s; ptr[P]]",
        where={
            "P": (
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
            ),
            "I": ("i1", "i8", "i16", "i32", "i64"),
        },
        rules=(
            Rule(
                "whole_bytes",
                "bits(P) != 4",
                "pointers to {P} cannot be advanced: an element takes half a byte",
                "advance a pointer to i8, or use a view",
            ),
        ),
        undefined=(
            Undefined("wrap", "offset_wraps(ptr, offset, P, I)", "the address wraps around"),
        ),
        levels=("tile", "pipe", "simt"),
        meaning="offset_pointer(ptr, offset, P, I)",
        accuracy="exact",
        poison="elementwise",
        tile_ir={"name": "offset", "code": 81, "since": "13.1"},
    )

    @property
    def ptr(self) -> Value:
        return cast("Value", self.arguments[0])

    @property
    def offset(self) -> Value:
        return cast("Value", self.arguments[1])

    @property
    def result(self) -> Value:
        return self.results[0]


class Assume(Op):
    """Promise something about a value."""

    __slots__ = ()
    name = "assume"
    definition = Definition(
        name="assume",
        summary="Promise something about a value.",
        operands_text="value: any[A]",
        attributes_text="div_by?: int, every?: int, along?: int, same_elements?: int[], at_least?: int, at_most?: int",
        results_text="result: any[A]",
        rules=(
            Rule(
                "one",
                "(div_by is not None) + (same_elements is not None) + (at_least is not None or at_most is not None) == 1",
                "`assume` makes exactly one promise: div_by, same_elements, or bounds",
                "write one `assume` for each promise",
            ),
            Rule(
                "kind",
                "is_kind(A, 'tensor_view') and div_by is not None or is_kind(A, 'tile') and (is_int(element(A)) or is_pointer(element(A)) and at_least is None and at_most is None)",
                "this promise cannot be made about {A}",
            ),
            Rule(
                "divisor",
                "div_by is None or is_power_of_two(div_by)",
                "`div_by` must be a power of two, found {div_by}",
            ),
            Rule(
                "groups",
                "(every is None) == (along is None) and (every is None or div_by is not None and every > 0 and is_kind(A, 'tile') and 0 <= along < len(A.shape))",
                "`every` and `along` go together with `div_by`, on an axis of a tile",
            ),
            Rule(
                "same_elements",
                "same_elements is None or is_kind(A, 'tile') and len(same_elements) == len(A.shape) and all(n > 0 for n in same_elements)",
                "`same_elements` needs one positive group size for each axis of {A}",
            ),
        ),
        levels=("tile", "pipe", "simt"),
        poison="elementwise",
        tile_ir={
            "name": "assume",
            "code": 6,
            "since": "13.1",
            "names": {
                "div_by": "predicate",
                "every": "predicate",
                "along": "predicate",
                "same_elements": "predicate",
                "at_least": "predicate",
                "at_most": "predicate",
            },
        },
    )

    @property
    def value(self) -> Value:
        return cast("Value", self.arguments[0])

    @property
    def result(self) -> Value:
        return self.results[0]

    @property
    def div_by(self) -> int | None:
        return cast("int | None", self.attributes.get("div_by", None))

    @property
    def every(self) -> int | None:
        return cast("int | None", self.attributes.get("every", None))

    @property
    def along(self) -> int | None:
        return cast("int | None", self.attributes.get("along", None))

    @property
    def same_elements(self) -> tuple[int, ...] | None:
        return cast("tuple[int, ...] | None", self.attributes.get("same_elements", None))

    @property
    def at_least(self) -> int | None:
        return cast("int | None", self.attributes.get("at_least", None))

    @property
    def at_most(self) -> int | None:
        return cast("int | None", self.attributes.get("at_most", None))


class Assert(Op):
    """Report elements that are false."""

    __slots__ = ()
    name = "assert"
    definition = Definition(
        name="assert",
        summary="Report elements that are false.",
        operands_text="condition: tile[*s; i1]",
        attributes_text="message: string",
        effects="trap",
        poison="control",
        tile_ir={"name": "assert", "code": 5, "since": "13.1"},
    )

    @property
    def condition(self) -> Value:
        return cast("Value", self.arguments[0])

    @property
    def message(self) -> str:
        return cast("str", self.attributes["message"])


class PrintTko(Op):
    """Print tiles in a format."""

    __slots__ = ()
    name = "print_tko"
    definition = Definition(
        name="print_tko",
        summary="Print tiles in a format.",
        operands_text="args*: tile, token?: token",
        attributes_text="format: string",
        results_text="result_token: token",
        effects="print",
        poison="none",
        tile_ir={
            "name": "print_tko",
            "code": 85,
            "since": "13.1",
            "arguments": {"token": "13.2", "result_token": "13.2"},
            "names": {"format": "str"},
        },
    )

    @property
    def args(self) -> tuple[Value, ...]:
        return cast("tuple[Value, ...]", self.arguments[0])

    @property
    def token(self) -> Value | None:
        return cast("Value | None", self.arguments[1])

    @property
    def result_token(self) -> Value:
        return self.results[0]

    @property
    def format(self) -> str:
        return cast("str", self.attributes["format"])


class Addf(Op):
    """Sum of floats, rounded once."""

    __slots__ = ()
    name = "addf"
    definition = Definition(
        name="addf",
        summary="Sum of floats, rounded once.",
        operands_text="lhs: tile[*s; T], rhs: tile[*s; T]",
        attributes_text="rounding: rounding = nearest_even, flush_to_zero: unit",
        results_text="result: tile[*s; T]",
        where={
            "T": ("f16", "bf16", "f32", "f64"),
            "rounding": ("nearest_even", "zero", "negative_inf", "positive_inf"),
        },
        rules=(
            Rule(
                "flush_to_zero",
                "not flush_to_zero or T == 'f32'",
                "flush_to_zero exists for f32 only, found {T}",
                "drop flush_to_zero, or compute in f32",
            ),
        ),
        levels=("tile", "pipe", "simt"),
        traits=("commutative",),
        meaning="add(lhs, rhs, T, rounding, flush_to_zero)",
        accuracy="rounded",
        poison="elementwise",
        tile_ir={
            "name": "addf",
            "code": 2,
            "since": "13.1",
            "names": {"rounding": "rounding_mode"},
        },
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
    def rounding(self) -> str:
        return cast("str", self.attributes.get("rounding", "nearest_even"))

    @property
    def flush_to_zero(self) -> bool:
        return cast("bool", self.attributes.get("flush_to_zero", False))


class Subf(Op):
    """Difference of floats, rounded once."""

    __slots__ = ()
    name = "subf"
    definition = Definition(
        name="subf",
        summary="Difference of floats, rounded once.",
        operands_text="lhs: tile[*s; T], rhs: tile[*s; T]",
        attributes_text="rounding: rounding = nearest_even, flush_to_zero: unit",
        results_text="result: tile[*s; T]",
        where={
            "T": ("f16", "bf16", "f32", "f64"),
            "rounding": ("nearest_even", "zero", "negative_inf", "positive_inf"),
        },
        rules=(
            Rule(
                "flush_to_zero",
                "not flush_to_zero or T == 'f32'",
                "flush_to_zero exists for f32 only, found {T}",
                "drop flush_to_zero, or compute in f32",
            ),
        ),
        levels=("tile", "pipe", "simt"),
        meaning="sub(lhs, rhs, T, rounding, flush_to_zero)",
        accuracy="rounded",
        poison="elementwise",
        tile_ir={
            "name": "subf",
            "code": 103,
            "since": "13.1",
            "names": {"rounding": "rounding_mode"},
        },
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
    def rounding(self) -> str:
        return cast("str", self.attributes.get("rounding", "nearest_even"))

    @property
    def flush_to_zero(self) -> bool:
        return cast("bool", self.attributes.get("flush_to_zero", False))


class Mulf(Op):
    """Product of floats, rounded once."""

    __slots__ = ()
    name = "mulf"
    definition = Definition(
        name="mulf",
        summary="Product of floats, rounded once.",
        operands_text="lhs: tile[*s; T], rhs: tile[*s; T]",
        attributes_text="rounding: rounding = nearest_even, flush_to_zero: unit",
        results_text="result: tile[*s; T]",
        where={
            "T": ("f16", "bf16", "f32", "f64"),
            "rounding": ("nearest_even", "zero", "negative_inf", "positive_inf"),
        },
        rules=(
            Rule(
                "flush_to_zero",
                "not flush_to_zero or T == 'f32'",
                "flush_to_zero exists for f32 only, found {T}",
                "drop flush_to_zero, or compute in f32",
            ),
        ),
        levels=("tile", "pipe", "simt"),
        traits=("commutative",),
        meaning="mul(lhs, rhs, T, rounding, flush_to_zero)",
        accuracy="rounded",
        poison="elementwise",
        tile_ir={
            "name": "mulf",
            "code": 76,
            "since": "13.1",
            "names": {"rounding": "rounding_mode"},
        },
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
    def rounding(self) -> str:
        return cast("str", self.attributes.get("rounding", "nearest_even"))

    @property
    def flush_to_zero(self) -> bool:
        return cast("bool", self.attributes.get("flush_to_zero", False))


class Divf(Op):
    """Quotient of floats, rounded once."""

    __slots__ = ()
    name = "divf"
    definition = Definition(
        name="divf",
        summary="Quotient of floats, rounded once.",
        operands_text="lhs: tile[*s; T], rhs: tile[*s; T]",
        attributes_text="rounding: rounding = nearest_even, flush_to_zero: unit",
        results_text="result: tile[*s; T]",
        where={
            "T": ("f16", "bf16", "f32", "f64"),
            "rounding": ("nearest_even", "zero", "negative_inf", "positive_inf", "approx", "full"),
        },
        rules=(
            Rule(
                "flush_to_zero",
                "not flush_to_zero or T == 'f32'",
                "flush_to_zero exists for f32 only, found {T}",
                "drop flush_to_zero, or compute in f32",
            ),
            Rule(
                "approx",
                "rounding not in ('approx', 'full') or T == 'f32'",
                "{rounding} exists for f32 only, found {T}",
                "use nearest_even, or compute in f32",
            ),
        ),
        levels=("tile", "pipe", "simt"),
        meaning="div(lhs, rhs, T, rounding, flush_to_zero)",
        accuracy="div",
        poison="elementwise",
        tile_ir={
            "name": "divf",
            "code": 20,
            "since": "13.1",
            "names": {"rounding": "rounding_mode"},
        },
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
    def rounding(self) -> str:
        return cast("str", self.attributes.get("rounding", "nearest_even"))

    @property
    def flush_to_zero(self) -> bool:
        return cast("bool", self.attributes.get("flush_to_zero", False))


class Fma(Op):
    """Fused multiply-add."""

    __slots__ = ()
    name = "fma"
    definition = Definition(
        name="fma",
        summary="Fused multiply-add.",
        operands_text="lhs: tile[*s; T], rhs: tile[*s; T], acc: tile[*s; T]",
        attributes_text="rounding: rounding = nearest_even, flush_to_zero: unit",
        results_text="result: tile[*s; T]",
        where={
            "T": ("f16", "bf16", "f32", "f64"),
            "rounding": ("nearest_even", "zero", "negative_inf", "positive_inf"),
        },
        rules=(
            Rule(
                "flush_to_zero",
                "not flush_to_zero or T == 'f32'",
                "flush_to_zero exists for f32 only, found {T}",
                "drop flush_to_zero, or compute in f32",
            ),
        ),
        levels=("tile", "pipe", "simt"),
        meaning="fma(lhs, rhs, acc, T, rounding, flush_to_zero)",
        accuracy="rounded",
        poison="elementwise",
        tile_ir={
            "name": "fma",
            "code": 40,
            "since": "13.1",
            "names": {"rounding": "rounding_mode"},
        },
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
    def rounding(self) -> str:
        return cast("str", self.attributes.get("rounding", "nearest_even"))

    @property
    def flush_to_zero(self) -> bool:
        return cast("bool", self.attributes.get("flush_to_zero", False))


class Remf(Op):
    """Remainder of the division rounded towards zero."""

    __slots__ = ()
    name = "remf"
    definition = Definition(
        name="remf",
        summary="Remainder of the division rounded towards zero.",
        operands_text="lhs: tile[*s; T], rhs: tile[*s; T]",
        results_text="result: tile[*s; T]",
        where={"T": ("f16", "bf16", "f32", "f64")},
        levels=("tile", "pipe", "simt"),
        meaning="remainder(lhs, rhs, T)",
        accuracy="exact",
        poison="elementwise",
        tile_ir={"name": "remf", "code": 89, "since": "13.1"},
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


class Negf(Op):
    """Float with its sign flipped."""

    __slots__ = ()
    name = "negf"
    definition = Definition(
        name="negf",
        summary="Float with its sign flipped.",
        operands_text="source: tile[*s; T]",
        results_text="result: tile[*s; T]",
        where={"T": ("f16", "bf16", "f32", "f64")},
        levels=("tile", "pipe", "simt"),
        meaning="neg_float(source)",
        accuracy="exact",
        poison="elementwise",
        tile_ir={"name": "negf", "code": 79, "since": "13.1"},
    )

    @property
    def source(self) -> Value:
        return cast("Value", self.arguments[0])

    @property
    def result(self) -> Value:
        return self.results[0]


class Absf(Op):
    """Float with its sign cleared."""

    __slots__ = ()
    name = "absf"
    definition = Definition(
        name="absf",
        summary="Float with its sign cleared.",
        operands_text="source: tile[*s; T]",
        results_text="result: tile[*s; T]",
        where={"T": ("f16", "bf16", "f32", "f64")},
        levels=("tile", "pipe", "simt"),
        meaning="abs_float(source)",
        accuracy="exact",
        poison="elementwise",
        tile_ir={"name": "absf", "code": 0, "since": "13.1"},
    )

    @property
    def source(self) -> Value:
        return cast("Value", self.arguments[0])

    @property
    def result(self) -> Value:
        return self.results[0]


class Rcp(Op):
    """Reciprocal of a float, rounded once."""

    __slots__ = ()
    name = "rcp"
    definition = Definition(
        name="rcp",
        summary="Reciprocal of a float, rounded once.",
        operands_text="source: tile[*s; T]",
        attributes_text="rounding: rounding = nearest_even, flush_to_zero: unit",
        results_text="result: tile[*s; T]",
        where={
            "T": ("f16", "bf16", "f32", "f64"),
            "rounding": ("nearest_even", "zero", "negative_inf", "positive_inf", "approx"),
        },
        rules=(
            Rule(
                "flush_to_zero",
                "not flush_to_zero or T == 'f32'",
                "flush_to_zero exists for f32 only, found {T}",
                "drop flush_to_zero, or compute in f32",
            ),
            Rule(
                "approx",
                "rounding not in ('approx', 'full') or T == 'f32'",
                "{rounding} exists for f32 only, found {T}",
                "use nearest_even, or compute in f32",
            ),
        ),
        levels=("tile", "pipe", "simt"),
        meaning="reciprocal(source, T, rounding, flush_to_zero)",
        accuracy="div",
        poison="elementwise",
    )

    @property
    def source(self) -> Value:
        return cast("Value", self.arguments[0])

    @property
    def result(self) -> Value:
        return self.results[0]

    @property
    def rounding(self) -> str:
        return cast("str", self.attributes.get("rounding", "nearest_even"))

    @property
    def flush_to_zero(self) -> bool:
        return cast("bool", self.attributes.get("flush_to_zero", False))


class Maxf(Op):
    """Greater of two floats."""

    __slots__ = ()
    name = "maxf"
    definition = Definition(
        name="maxf",
        summary="Greater of two floats.",
        operands_text="lhs: tile[*s; T], rhs: tile[*s; T]",
        attributes_text="propagate_nan: unit, flush_to_zero: unit",
        results_text="result: tile[*s; T]",
        where={"T": ("f16", "bf16", "f32", "f64")},
        rules=(
            Rule(
                "flush_to_zero",
                "not flush_to_zero or T == 'f32'",
                "flush_to_zero exists for f32 only, found {T}",
                "drop flush_to_zero, or compute in f32",
            ),
        ),
        levels=("tile", "pipe", "simt"),
        traits=("commutative",),
        meaning="maximum(lhs, rhs, T, propagate_nan, flush_to_zero)",
        accuracy="exact",
        poison="elementwise",
        tile_ir={"name": "maxf", "code": 69, "since": "13.1"},
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
    def propagate_nan(self) -> bool:
        return cast("bool", self.attributes.get("propagate_nan", False))

    @property
    def flush_to_zero(self) -> bool:
        return cast("bool", self.attributes.get("flush_to_zero", False))


class Minf(Op):
    """Lesser of two floats."""

    __slots__ = ()
    name = "minf"
    definition = Definition(
        name="minf",
        summary="Lesser of two floats.",
        operands_text="lhs: tile[*s; T], rhs: tile[*s; T]",
        attributes_text="propagate_nan: unit, flush_to_zero: unit",
        results_text="result: tile[*s; T]",
        where={"T": ("f16", "bf16", "f32", "f64")},
        rules=(
            Rule(
                "flush_to_zero",
                "not flush_to_zero or T == 'f32'",
                "flush_to_zero exists for f32 only, found {T}",
                "drop flush_to_zero, or compute in f32",
            ),
        ),
        levels=("tile", "pipe", "simt"),
        traits=("commutative",),
        meaning="minimum(lhs, rhs, T, propagate_nan, flush_to_zero)",
        accuracy="exact",
        poison="elementwise",
        tile_ir={"name": "minf", "code": 71, "since": "13.1"},
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
    def propagate_nan(self) -> bool:
        return cast("bool", self.attributes.get("propagate_nan", False))

    @property
    def flush_to_zero(self) -> bool:
        return cast("bool", self.attributes.get("flush_to_zero", False))


class Cmpf(Op):
    """Comparison of floats."""

    __slots__ = ()
    name = "cmpf"
    definition = Definition(
        name="cmpf",
        summary="Comparison of floats.",
        operands_text="lhs: tile[*s; T], rhs: tile[*s; T]",
        attributes_text="predicate: comparison, ordering: comparison_ordering = ordered",
        results_text="result: tile[*s; i1]",
        where={"T": ("f16", "bf16", "f32", "f64")},
        levels=("tile", "pipe", "simt"),
        meaning="compare(lhs, rhs, predicate, ordering)",
        accuracy="exact",
        poison="elementwise",
        tile_ir={
            "name": "cmpf",
            "code": 14,
            "since": "13.1",
            "names": {"predicate": "comparison_predicate", "ordering": "comparison_ordering"},
        },
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
    def predicate(self) -> str:
        return cast("str", self.attributes["predicate"])

    @property
    def ordering(self) -> str:
        return cast("str", self.attributes.get("ordering", "ordered"))


class Ceil(Op):
    """Float rounded to an integer, upwards."""

    __slots__ = ()
    name = "ceil"
    definition = Definition(
        name="ceil",
        summary="Float rounded to an integer, upwards.",
        operands_text="source: tile[*s; T]",
        results_text="result: tile[*s; T]",
        where={"T": ("f16", "bf16", "f32", "f64")},
        levels=("tile", "pipe", "simt"),
        meaning="ceil(source, T)",
        accuracy="exact",
        poison="elementwise",
        tile_ir={"name": "ceil", "code": 13, "since": "13.1"},
    )

    @property
    def source(self) -> Value:
        return cast("Value", self.arguments[0])

    @property
    def result(self) -> Value:
        return self.results[0]


class Floor(Op):
    """Float rounded to an integer, downwards."""

    __slots__ = ()
    name = "floor"
    definition = Definition(
        name="floor",
        summary="Float rounded to an integer, downwards.",
        operands_text="source: tile[*s; T]",
        results_text="result: tile[*s; T]",
        where={"T": ("f16", "bf16", "f32", "f64")},
        levels=("tile", "pipe", "simt"),
        meaning="floor(source, T)",
        accuracy="exact",
        poison="elementwise",
        tile_ir={"name": "floor", "code": 39, "since": "13.1"},
    )

    @property
    def source(self) -> Value:
        return cast("Value", self.arguments[0])

    @property
    def result(self) -> Value:
        return self.results[0]


class Truncf(Op):
    """Float rounded to an integer, towards zero."""

    __slots__ = ()
    name = "truncf"
    definition = Definition(
        name="truncf",
        summary="Float rounded to an integer, towards zero.",
        operands_text="source: tile[*s; T]",
        results_text="result: tile[*s; T]",
        where={"T": ("f16", "bf16", "f32", "f64")},
        levels=("tile", "pipe", "simt"),
        meaning="trunc(source, T)",
        accuracy="exact",
        poison="elementwise",
    )

    @property
    def source(self) -> Value:
        return cast("Value", self.arguments[0])

    @property
    def result(self) -> Value:
        return self.results[0]


class Roundf(Op):
    """Float rounded to an integer, to nearest."""

    __slots__ = ()
    name = "roundf"
    definition = Definition(
        name="roundf",
        summary="Float rounded to an integer, to nearest.",
        operands_text="source: tile[*s; T]",
        results_text="result: tile[*s; T]",
        where={"T": ("f16", "bf16", "f32", "f64")},
        levels=("tile", "pipe", "simt"),
        meaning="round_even(source, T)",
        accuracy="exact",
        poison="elementwise",
    )

    @property
    def source(self) -> Value:
        return cast("Value", self.arguments[0])

    @property
    def result(self) -> Value:
        return self.results[0]


class Sqrt(Op):
    """Square root, rounded once."""

    __slots__ = ()
    name = "sqrt"
    definition = Definition(
        name="sqrt",
        summary="Square root, rounded once.",
        operands_text="source: tile[*s; T]",
        attributes_text="rounding: rounding = nearest_even, flush_to_zero: unit",
        results_text="result: tile[*s; T]",
        where={
            "T": ("f16", "bf16", "f32", "f64"),
            "rounding": ("nearest_even", "zero", "negative_inf", "positive_inf", "approx"),
        },
        rules=(
            Rule(
                "flush_to_zero",
                "not flush_to_zero or T == 'f32'",
                "flush_to_zero exists for f32 only, found {T}",
                "drop flush_to_zero, or compute in f32",
            ),
            Rule(
                "approx",
                "rounding not in ('approx', 'full') or T == 'f32'",
                "{rounding} exists for f32 only, found {T}",
                "use nearest_even, or compute in f32",
            ),
        ),
        levels=("tile", "pipe", "simt"),
        meaning="sqrt(source, T, rounding, flush_to_zero)",
        accuracy="sqrt",
        poison="elementwise",
        tile_ir={
            "name": "sqrt",
            "code": 100,
            "since": "13.1",
            "names": {"rounding": "rounding_mode"},
        },
    )

    @property
    def source(self) -> Value:
        return cast("Value", self.arguments[0])

    @property
    def result(self) -> Value:
        return self.results[0]

    @property
    def rounding(self) -> str:
        return cast("str", self.attributes.get("rounding", "nearest_even"))

    @property
    def flush_to_zero(self) -> bool:
        return cast("bool", self.attributes.get("flush_to_zero", False))


class Rsqrt(Op):
    """Reciprocal square root."""

    __slots__ = ()
    name = "rsqrt"
    definition = Definition(
        name="rsqrt",
        summary="Reciprocal square root.",
        operands_text="source: tile[*s; T]",
        attributes_text="flush_to_zero: unit",
        results_text="result: tile[*s; T]",
        where={"T": ("f16", "bf16", "f32", "f64")},
        rules=(
            Rule(
                "flush_to_zero",
                "not flush_to_zero or T == 'f32'",
                "flush_to_zero exists for f32 only, found {T}",
                "drop flush_to_zero, or compute in f32",
            ),
        ),
        levels=("tile", "pipe", "simt"),
        meaning="rsqrt(source, T, flush_to_zero)",
        accuracy="rsqrt",
        poison="elementwise",
        tile_ir={"name": "rsqrt", "code": 93, "since": "13.1"},
    )

    @property
    def source(self) -> Value:
        return cast("Value", self.arguments[0])

    @property
    def result(self) -> Value:
        return self.results[0]

    @property
    def flush_to_zero(self) -> bool:
        return cast("bool", self.attributes.get("flush_to_zero", False))


class Exp(Op):
    """Exponential."""

    __slots__ = ()
    name = "exp"
    definition = Definition(
        name="exp",
        summary="Exponential.",
        operands_text="source: tile[*s; T]",
        attributes_text="rounding: rounding = full",
        results_text="result: tile[*s; T]",
        where={"T": ("f16", "bf16", "f32", "f64"), "rounding": ("full", "approx")},
        rules=(
            Rule(
                "approx",
                "rounding != 'approx' or T == 'f32'",
                "approx exists for f32 only, found {T}",
                "use full, or compute in f32",
            ),
        ),
        levels=("tile", "pipe", "simt"),
        meaning="exp(source, T)",
        accuracy="exp",
        poison="elementwise",
        tile_ir={
            "name": "exp",
            "code": 23,
            "since": "13.1",
            "arguments": {"rounding": "13.3"},
            "names": {"rounding": "rounding_mode"},
        },
    )

    @property
    def source(self) -> Value:
        return cast("Value", self.arguments[0])

    @property
    def result(self) -> Value:
        return self.results[0]

    @property
    def rounding(self) -> str:
        return cast("str", self.attributes.get("rounding", "full"))


class Exp2(Op):
    """Power of two."""

    __slots__ = ()
    name = "exp2"
    definition = Definition(
        name="exp2",
        summary="Power of two.",
        operands_text="source: tile[*s; T]",
        attributes_text="flush_to_zero: unit",
        results_text="result: tile[*s; T]",
        where={"T": ("f16", "bf16", "f32", "f64")},
        rules=(
            Rule(
                "flush_to_zero",
                "not flush_to_zero or T == 'f32'",
                "flush_to_zero exists for f32 only, found {T}",
                "drop flush_to_zero, or compute in f32",
            ),
        ),
        levels=("tile", "pipe", "simt"),
        meaning="exp2(source, T, flush_to_zero)",
        accuracy="exp",
        poison="elementwise",
        tile_ir={"name": "exp2", "code": 24, "since": "13.1"},
    )

    @property
    def source(self) -> Value:
        return cast("Value", self.arguments[0])

    @property
    def result(self) -> Value:
        return self.results[0]

    @property
    def flush_to_zero(self) -> bool:
        return cast("bool", self.attributes.get("flush_to_zero", False))


class Expm1(Op):
    """Exponential minus one."""

    __slots__ = ()
    name = "expm1"
    definition = Definition(
        name="expm1",
        summary="Exponential minus one.",
        operands_text="source: tile[*s; T]",
        results_text="result: tile[*s; T]",
        where={"T": ("f16", "bf16", "f32", "f64")},
        levels=("tile", "pipe", "simt"),
        meaning="expm1(source, T)",
        accuracy="log",
        poison="elementwise",
    )

    @property
    def source(self) -> Value:
        return cast("Value", self.arguments[0])

    @property
    def result(self) -> Value:
        return self.results[0]


class Log(Op):
    """Natural logarithm."""

    __slots__ = ()
    name = "log"
    definition = Definition(
        name="log",
        summary="Natural logarithm.",
        operands_text="source: tile[*s; T]",
        results_text="result: tile[*s; T]",
        where={"T": ("f16", "bf16", "f32", "f64")},
        levels=("tile", "pipe", "simt"),
        meaning="log(source, T)",
        accuracy="log",
        poison="elementwise",
        tile_ir={"name": "log", "code": 63, "since": "13.1"},
    )

    @property
    def source(self) -> Value:
        return cast("Value", self.arguments[0])

    @property
    def result(self) -> Value:
        return self.results[0]


class Log2(Op):
    """Binary logarithm."""

    __slots__ = ()
    name = "log2"
    definition = Definition(
        name="log2",
        summary="Binary logarithm.",
        operands_text="source: tile[*s; T]",
        results_text="result: tile[*s; T]",
        where={"T": ("f16", "bf16", "f32", "f64")},
        levels=("tile", "pipe", "simt"),
        meaning="log2(source, T)",
        accuracy="log",
        poison="elementwise",
        tile_ir={"name": "log2", "code": 64, "since": "13.1"},
    )

    @property
    def source(self) -> Value:
        return cast("Value", self.arguments[0])

    @property
    def result(self) -> Value:
        return self.results[0]


class Log1p(Op):
    """Logarithm of one plus a number."""

    __slots__ = ()
    name = "log1p"
    definition = Definition(
        name="log1p",
        summary="Logarithm of one plus a number.",
        operands_text="source: tile[*s; T]",
        results_text="result: tile[*s; T]",
        where={"T": ("f16", "bf16", "f32", "f64")},
        levels=("tile", "pipe", "simt"),
        meaning="log1p(source, T)",
        accuracy="log",
        poison="elementwise",
    )

    @property
    def source(self) -> Value:
        return cast("Value", self.arguments[0])

    @property
    def result(self) -> Value:
        return self.results[0]


class Pow(Op):
    """Power of floats."""

    __slots__ = ()
    name = "pow"
    definition = Definition(
        name="pow",
        summary="Power of floats.",
        operands_text="source: tile[*s; T], exponent: tile[*s; T]",
        results_text="result: tile[*s; T]",
        where={"T": ("f16", "bf16", "f32", "f64")},
        levels=("tile", "pipe", "simt"),
        meaning="power(source, exponent, T)",
        accuracy="pow",
        poison="elementwise",
        tile_ir={"name": "pow", "code": 84, "since": "13.1"},
    )

    @property
    def source(self) -> Value:
        return cast("Value", self.arguments[0])

    @property
    def exponent(self) -> Value:
        return cast("Value", self.arguments[1])

    @property
    def result(self) -> Value:
        return self.results[0]


class Fpowi(Op):
    """Power of a float to an integer."""

    __slots__ = ()
    name = "fpowi"
    definition = Definition(
        name="fpowi",
        summary="Power of a float to an integer.",
        operands_text="source: tile[*s; T], exponent: tile[*s; I]",
        results_text="result: tile[*s; T]",
        where={"T": ("f16", "bf16", "f32", "f64"), "I": ("i1", "i8", "i16", "i32")},
        levels=("tile", "pipe", "simt"),
        meaning="integer_power(source, exponent, T, I)",
        accuracy="pow",
        poison="elementwise",
        tile_ir={"name": "fpowi", "code": 121, "since": "13.4"},
    )

    @property
    def source(self) -> Value:
        return cast("Value", self.arguments[0])

    @property
    def exponent(self) -> Value:
        return cast("Value", self.arguments[1])

    @property
    def result(self) -> Value:
        return self.results[0]


class Sin(Op):
    """Sine."""

    __slots__ = ()
    name = "sin"
    definition = Definition(
        name="sin",
        summary="Sine.",
        operands_text="source: tile[*s; T]",
        results_text="result: tile[*s; T]",
        where={"T": ("f16", "bf16", "f32", "f64")},
        levels=("tile", "pipe", "simt"),
        meaning="sin(source, T)",
        accuracy="sine",
        poison="elementwise",
        tile_ir={"name": "sin", "code": 98, "since": "13.1"},
    )

    @property
    def source(self) -> Value:
        return cast("Value", self.arguments[0])

    @property
    def result(self) -> Value:
        return self.results[0]


class Cos(Op):
    """Cosine."""

    __slots__ = ()
    name = "cos"
    definition = Definition(
        name="cos",
        summary="Cosine.",
        operands_text="source: tile[*s; T]",
        results_text="result: tile[*s; T]",
        where={"T": ("f16", "bf16", "f32", "f64")},
        levels=("tile", "pipe", "simt"),
        meaning="cos(source, T)",
        accuracy="sine",
        poison="elementwise",
        tile_ir={"name": "cos", "code": 18, "since": "13.1"},
    )

    @property
    def source(self) -> Value:
        return cast("Value", self.arguments[0])

    @property
    def result(self) -> Value:
        return self.results[0]


class Tan(Op):
    """Tangent."""

    __slots__ = ()
    name = "tan"
    definition = Definition(
        name="tan",
        summary="Tangent.",
        operands_text="source: tile[*s; T]",
        results_text="result: tile[*s; T]",
        where={"T": ("f16", "bf16", "f32", "f64")},
        levels=("tile", "pipe", "simt"),
        meaning="tan(source, T)",
        accuracy="tan",
        poison="elementwise",
        tile_ir={"name": "tan", "code": 105, "since": "13.1"},
    )

    @property
    def source(self) -> Value:
        return cast("Value", self.arguments[0])

    @property
    def result(self) -> Value:
        return self.results[0]


class Sinh(Op):
    """Hyperbolic sine."""

    __slots__ = ()
    name = "sinh"
    definition = Definition(
        name="sinh",
        summary="Hyperbolic sine.",
        operands_text="source: tile[*s; T]",
        results_text="result: tile[*s; T]",
        where={"T": ("f16", "bf16", "f32", "f64")},
        levels=("tile", "pipe", "simt"),
        meaning="sinh(source, T)",
        accuracy="hyperbolic",
        poison="elementwise",
        tile_ir={"name": "sinh", "code": 99, "since": "13.1"},
    )

    @property
    def source(self) -> Value:
        return cast("Value", self.arguments[0])

    @property
    def result(self) -> Value:
        return self.results[0]


class Cosh(Op):
    """Hyperbolic cosine."""

    __slots__ = ()
    name = "cosh"
    definition = Definition(
        name="cosh",
        summary="Hyperbolic cosine.",
        operands_text="source: tile[*s; T]",
        results_text="result: tile[*s; T]",
        where={"T": ("f16", "bf16", "f32", "f64")},
        levels=("tile", "pipe", "simt"),
        meaning="cosh(source, T)",
        accuracy="hyperbolic",
        poison="elementwise",
        tile_ir={"name": "cosh", "code": 19, "since": "13.1"},
    )

    @property
    def source(self) -> Value:
        return cast("Value", self.arguments[0])

    @property
    def result(self) -> Value:
        return self.results[0]


class Tanh(Op):
    """Hyperbolic tangent."""

    __slots__ = ()
    name = "tanh"
    definition = Definition(
        name="tanh",
        summary="Hyperbolic tangent.",
        operands_text="source: tile[*s; T]",
        attributes_text="rounding: rounding = full",
        results_text="result: tile[*s; T]",
        where={"T": ("f16", "bf16", "f32", "f64"), "rounding": ("full", "approx")},
        rules=(
            Rule(
                "approx",
                "rounding != 'approx' or T == 'f32'",
                "approx exists for f32 only, found {T}",
                "use full, or compute in f32",
            ),
        ),
        levels=("tile", "pipe", "simt"),
        meaning="tanh(source, T)",
        accuracy="tanh",
        poison="elementwise",
        tile_ir={
            "name": "tanh",
            "code": 106,
            "since": "13.1",
            "arguments": {"rounding": "13.2"},
            "names": {"rounding": "rounding_mode"},
        },
    )

    @property
    def source(self) -> Value:
        return cast("Value", self.arguments[0])

    @property
    def result(self) -> Value:
        return self.results[0]

    @property
    def rounding(self) -> str:
        return cast("str", self.attributes.get("rounding", "full"))


class Atan2(Op):
    """Arc tangent of a quotient, in the right quadrant."""

    __slots__ = ()
    name = "atan2"
    definition = Definition(
        name="atan2",
        summary="Arc tangent of a quotient, in the right quadrant.",
        operands_text="x: tile[*s; T], y: tile[*s; T]",
        results_text="result: tile[*s; T]",
        where={"T": ("f16", "bf16", "f32", "f64")},
        levels=("tile", "pipe", "simt"),
        meaning="atan2(x, y, T)",
        accuracy="atan2",
        poison="elementwise",
        tile_ir={"name": "atan2", "code": 110, "since": "13.2"},
    )

    @property
    def x(self) -> Value:
        return cast("Value", self.arguments[0])

    @property
    def y(self) -> Value:
        return cast("Value", self.arguments[1])

    @property
    def result(self) -> Value:
        return self.results[0]


class Erf(Op):
    """Error function."""

    __slots__ = ()
    name = "erf"
    definition = Definition(
        name="erf",
        summary="Error function.",
        operands_text="source: tile[*s; T]",
        results_text="result: tile[*s; T]",
        where={"T": ("f16", "bf16", "f32", "f64")},
        levels=("tile", "pipe", "simt"),
        meaning="erf(source, T)",
        accuracy="erf",
        poison="elementwise",
    )

    @property
    def source(self) -> Value:
        return cast("Value", self.arguments[0])

    @property
    def result(self) -> Value:
        return self.results[0]


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
        undefined=(
            Undefined(
                "overflow",
                "overflow != 'none' and add_overflows(lhs, rhs, T, overflow)",
                "the sum does not fit {T}, and the operation promises `{overflow}`",
            ),
        ),
        levels=("tile", "pipe", "simt"),
        traits=("commutative",),
        meaning="add_int(lhs, rhs, T)",
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


class Subi(Op):
    """Integer difference, wrapping."""

    __slots__ = ()
    name = "subi"
    definition = Definition(
        name="subi",
        summary="Integer difference, wrapping.",
        operands_text="lhs: tile[*s; T], rhs: tile[*s; T]",
        attributes_text="overflow: overflow = none",
        results_text="result: tile[*s; T]",
        where={"T": ("i1", "i8", "i16", "i32", "i64")},
        undefined=(
            Undefined(
                "overflow",
                "overflow != 'none' and sub_overflows(lhs, rhs, T, overflow)",
                "the difference does not fit {T}, and the operation promises `{overflow}`",
            ),
        ),
        levels=("tile", "pipe", "simt"),
        meaning="sub_int(lhs, rhs, T)",
        accuracy="exact",
        poison="elementwise",
        tile_ir={"name": "subi", "code": 104, "since": "13.1"},
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


class Muli(Op):
    """Integer product, wrapping."""

    __slots__ = ()
    name = "muli"
    definition = Definition(
        name="muli",
        summary="Integer product, wrapping.",
        operands_text="lhs: tile[*s; T], rhs: tile[*s; T]",
        attributes_text="overflow: overflow = none",
        results_text="result: tile[*s; T]",
        where={"T": ("i1", "i8", "i16", "i32", "i64")},
        undefined=(
            Undefined(
                "overflow",
                "overflow != 'none' and mul_overflows(lhs, rhs, T, overflow)",
                "the product does not fit {T}, and the operation promises `{overflow}`",
            ),
        ),
        levels=("tile", "pipe", "simt"),
        traits=("commutative",),
        meaning="mul_int(lhs, rhs, T)",
        accuracy="exact",
        poison="elementwise",
        tile_ir={"name": "muli", "code": 78, "since": "13.1"},
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


class Mulhii(Op):
    """High half of an unsigned product."""

    __slots__ = ()
    name = "mulhii"
    definition = Definition(
        name="mulhii",
        summary="High half of an unsigned product.",
        operands_text="x: tile[*s; T], y: tile[*s; T]",
        results_text="result: tile[*s; T]",
        where={"T": ("i1", "i8", "i16", "i32", "i64")},
        levels=("tile", "pipe", "simt"),
        traits=("commutative",),
        meaning="mulhi_int(x, y, T)",
        accuracy="exact",
        poison="elementwise",
        tile_ir={"name": "mulhii", "code": 77, "since": "13.1"},
    )

    @property
    def x(self) -> Value:
        return cast("Value", self.arguments[0])

    @property
    def y(self) -> Value:
        return cast("Value", self.arguments[1])

    @property
    def result(self) -> Value:
        return self.results[0]


class Negi(Op):
    """Integer negation, wrapping."""

    __slots__ = ()
    name = "negi"
    definition = Definition(
        name="negi",
        summary="Integer negation, wrapping.",
        operands_text="source: tile[*s; T]",
        attributes_text="overflow: overflow = none",
        results_text="result: tile[*s; T]",
        where={"T": ("i1", "i8", "i16", "i32", "i64")},
        undefined=(
            Undefined(
                "overflow",
                "overflow != 'none' and neg_overflows(source, T, overflow)",
                "the opposite does not fit {T}, and the operation promises `{overflow}`",
            ),
        ),
        levels=("tile", "pipe", "simt"),
        meaning="neg_int(source, T)",
        accuracy="exact",
        poison="elementwise",
        tile_ir={
            "name": "negi",
            "code": 80,
            "since": "13.1",
            "arguments": {"overflow": "13.2"},
            "limits": [["overflow in ('none', 'nsw')", "`negi` has no unsigned promise"]],
        },
    )

    @property
    def source(self) -> Value:
        return cast("Value", self.arguments[0])

    @property
    def result(self) -> Value:
        return self.results[0]

    @property
    def overflow(self) -> str:
        return cast("str", self.attributes.get("overflow", "none"))


class Absi(Op):
    """Magnitude of a signed integer."""

    __slots__ = ()
    name = "absi"
    definition = Definition(
        name="absi",
        summary="Magnitude of a signed integer.",
        operands_text="source: tile[*s; T]",
        results_text="result: tile[*s; T]",
        where={"T": ("i1", "i8", "i16", "i32", "i64")},
        levels=("tile", "pipe", "simt"),
        meaning="abs_int(source, T)",
        accuracy="exact",
        poison="elementwise",
        tile_ir={"name": "absi", "code": 1, "since": "13.1"},
    )

    @property
    def source(self) -> Value:
        return cast("Value", self.arguments[0])

    @property
    def result(self) -> Value:
        return self.results[0]


class Divi(Op):
    """Integer quotient."""

    __slots__ = ()
    name = "divi"
    definition = Definition(
        name="divi",
        summary="Integer quotient.",
        operands_text="lhs: tile[*s; T], rhs: tile[*s; T]",
        attributes_text="signedness: signedness, rounding: rounding = zero",
        results_text="result: tile[*s; T]",
        where={
            "T": ("i1", "i8", "i16", "i32", "i64"),
            "rounding": ("zero", "negative_inf", "positive_inf"),
        },
        rules=(
            Rule(
                "unsigned_floor",
                "signedness == 'signed' or rounding != 'negative_inf'",
                "an unsigned division cannot round to negative_inf",
                "unsigned quotients round down already: use zero",
            ),
        ),
        undefined=(
            Undefined("division_by_zero", "is_zero(rhs)", "the divisor is zero"),
            Undefined(
                "quotient",
                "signedness == 'signed' and quotient_overflows(lhs, rhs, T)",
                "the quotient of the least {T} and -1 does not fit {T}",
            ),
        ),
        levels=("tile", "pipe", "simt"),
        meaning="div_int(lhs, rhs, T, signedness, rounding)",
        accuracy="exact",
        poison="elementwise",
        tile_ir={"name": "divi", "code": 21, "since": "13.1"},
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
    def signedness(self) -> str:
        return cast("str", self.attributes["signedness"])

    @property
    def rounding(self) -> str:
        return cast("str", self.attributes.get("rounding", "zero"))


class Remi(Op):
    """Integer remainder of the division rounded towards zero."""

    __slots__ = ()
    name = "remi"
    definition = Definition(
        name="remi",
        summary="Integer remainder of the division rounded towards zero.",
        operands_text="lhs: tile[*s; T], rhs: tile[*s; T]",
        attributes_text="signedness: signedness",
        results_text="result: tile[*s; T]",
        where={"T": ("i1", "i8", "i16", "i32", "i64")},
        undefined=(
            Undefined("division_by_zero", "is_zero(rhs)", "the divisor is zero"),
            Undefined(
                "quotient",
                "signedness == 'signed' and quotient_overflows(lhs, rhs, T)",
                "the quotient of the least {T} and -1 does not fit {T}",
            ),
        ),
        levels=("tile", "pipe", "simt"),
        meaning="rem_int(lhs, rhs, T, signedness)",
        accuracy="exact",
        poison="elementwise",
        tile_ir={"name": "remi", "code": 90, "since": "13.1"},
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
    def signedness(self) -> str:
        return cast("str", self.attributes["signedness"])


class Maxi(Op):
    """Greater of two integers."""

    __slots__ = ()
    name = "maxi"
    definition = Definition(
        name="maxi",
        summary="Greater of two integers.",
        operands_text="lhs: tile[*s; T], rhs: tile[*s; T]",
        attributes_text="signedness: signedness",
        results_text="result: tile[*s; T]",
        where={"T": ("i1", "i8", "i16", "i32", "i64")},
        levels=("tile", "pipe", "simt"),
        traits=("commutative",),
        meaning="max_int(lhs, rhs, T, signedness)",
        accuracy="exact",
        poison="elementwise",
        tile_ir={"name": "maxi", "code": 70, "since": "13.1"},
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
    def signedness(self) -> str:
        return cast("str", self.attributes["signedness"])


class Mini(Op):
    """Lesser of two integers."""

    __slots__ = ()
    name = "mini"
    definition = Definition(
        name="mini",
        summary="Lesser of two integers.",
        operands_text="lhs: tile[*s; T], rhs: tile[*s; T]",
        attributes_text="signedness: signedness",
        results_text="result: tile[*s; T]",
        where={"T": ("i1", "i8", "i16", "i32", "i64")},
        levels=("tile", "pipe", "simt"),
        traits=("commutative",),
        meaning="min_int(lhs, rhs, T, signedness)",
        accuracy="exact",
        poison="elementwise",
        tile_ir={"name": "mini", "code": 72, "since": "13.1"},
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
    def signedness(self) -> str:
        return cast("str", self.attributes["signedness"])


class Cmpi(Op):
    """Comparison of integers."""

    __slots__ = ()
    name = "cmpi"
    definition = Definition(
        name="cmpi",
        summary="Comparison of integers.",
        operands_text="lhs: tile[*s; T], rhs: tile[*s; T]",
        attributes_text="predicate: comparison, signedness: signedness",
        results_text="result: tile[*s; i1]",
        where={"T": ("i1", "i8", "i16", "i32", "i64")},
        levels=("tile", "pipe", "simt"),
        meaning="compare_int(lhs, rhs, T, predicate, signedness)",
        accuracy="exact",
        poison="elementwise",
        tile_ir={
            "name": "cmpi",
            "code": 15,
            "since": "13.1",
            "names": {"predicate": "comparison_predicate"},
        },
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
    def predicate(self) -> str:
        return cast("str", self.attributes["predicate"])

    @property
    def signedness(self) -> str:
        return cast("str", self.attributes["signedness"])


class Andi(Op):
    """Bitwise and."""

    __slots__ = ()
    name = "andi"
    definition = Definition(
        name="andi",
        summary="Bitwise and.",
        operands_text="lhs: tile[*s; T], rhs: tile[*s; T]",
        results_text="result: tile[*s; T]",
        where={"T": ("i1", "i8", "i16", "i32", "i64")},
        levels=("tile", "pipe", "simt"),
        traits=("commutative",),
        meaning="and_int(lhs, rhs)",
        accuracy="exact",
        poison="elementwise",
        tile_ir={"name": "andi", "code": 4, "since": "13.1"},
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


class Ori(Op):
    """Bitwise or."""

    __slots__ = ()
    name = "ori"
    definition = Definition(
        name="ori",
        summary="Bitwise or.",
        operands_text="lhs: tile[*s; T], rhs: tile[*s; T]",
        results_text="result: tile[*s; T]",
        where={"T": ("i1", "i8", "i16", "i32", "i64")},
        levels=("tile", "pipe", "simt"),
        traits=("commutative",),
        meaning="or_int(lhs, rhs)",
        accuracy="exact",
        poison="elementwise",
        tile_ir={"name": "ori", "code": 82, "since": "13.1"},
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


class Xori(Op):
    """Bitwise exclusive or."""

    __slots__ = ()
    name = "xori"
    definition = Definition(
        name="xori",
        summary="Bitwise exclusive or.",
        operands_text="lhs: tile[*s; T], rhs: tile[*s; T]",
        results_text="result: tile[*s; T]",
        where={"T": ("i1", "i8", "i16", "i32", "i64")},
        levels=("tile", "pipe", "simt"),
        traits=("commutative",),
        meaning="xor_int(lhs, rhs)",
        accuracy="exact",
        poison="elementwise",
        tile_ir={"name": "xori", "code": 108, "since": "13.1"},
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


class Shli(Op):
    """Shift to the left."""

    __slots__ = ()
    name = "shli"
    definition = Definition(
        name="shli",
        summary="Shift to the left.",
        operands_text="lhs: tile[*s; T], rhs: tile[*s; T]",
        attributes_text="overflow: overflow = none",
        results_text="result: tile[*s; T]",
        where={"T": ("i1", "i8", "i16", "i32", "i64")},
        undefined=(
            Undefined(
                "shift_amount",
                "shift_out_of_range(rhs, T)",
                "the shift amount is not below the {bits(T)} bits of {T}",
            ),
            Undefined(
                "overflow",
                "overflow != 'none' and shl_overflows(lhs, rhs, T, overflow)",
                "the shifted value does not fit {T}, and the operation promises `{overflow}`",
            ),
        ),
        levels=("tile", "pipe", "simt"),
        meaning="shl_int(lhs, rhs, T)",
        accuracy="exact",
        poison="elementwise",
        tile_ir={"name": "shli", "code": 96, "since": "13.1"},
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


class Shri(Op):
    """Shift to the right."""

    __slots__ = ()
    name = "shri"
    definition = Definition(
        name="shri",
        summary="Shift to the right.",
        operands_text="lhs: tile[*s; T], rhs: tile[*s; T]",
        attributes_text="signedness: signedness",
        results_text="result: tile[*s; T]",
        where={"T": ("i1", "i8", "i16", "i32", "i64")},
        undefined=(
            Undefined(
                "shift_amount",
                "shift_out_of_range(rhs, T)",
                "the shift amount is not below the {bits(T)} bits of {T}",
            ),
        ),
        levels=("tile", "pipe", "simt"),
        meaning="shr_int(lhs, rhs, T, signedness)",
        accuracy="exact",
        poison="elementwise",
        tile_ir={"name": "shri", "code": 97, "since": "13.1"},
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
    def signedness(self) -> str:
        return cast("str", self.attributes["signedness"])


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
                "A == 'f64' if F == 'f64' else A == 'f32' or (A == 'f16' and (F == 'f16' or bits(F) == 8))",
                "{F} products need an {'f64' if F == 'f64' else 'f32'} accumulator, found {A}",
                "make `acc` a tile<{m}x{n}x{'f64' if F == 'f64' else 'f32'}> and convert the result",
            ),
            Rule(
                "fast_acc",
                "not fast_acc or bits(F) == 8",
                "fast_acc is for 8 bit floats, found {F}",
                "drop fast_acc",
            ),
        ),
        levels=("tile", "pipe", "simt"),
        meaning="dot(lhs, rhs, acc, A)",
        accuracy="dot",
        poison="contract",
        tile_ir={
            "name": "mmaf",
            "code": 73,
            "since": "13.1",
            "arguments": {"fast_acc": "13.3"},
            "limits": [["len(b) <= 1", "`mmaf` takes two or three axes"]],
        },
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


class Mmai(Op):
    """Matrix product of two integer tiles plus an accumulator."""

    __slots__ = ()
    name = "mmai"
    definition = Definition(
        name="mmai",
        summary="Matrix product of two integer tiles plus an accumulator.",
        operands_text="lhs: tile[*b m k; F], rhs: tile[*b k n; F], acc: tile[*b m n; i32]",
        attributes_text="signedness_lhs: signedness, signedness_rhs: signedness",
        results_text="result: tile[*b m n; i32]",
        where={"F": ("i8", "i4")},
        levels=("tile", "pipe", "simt"),
        meaning="dot_int(lhs, rhs, acc, F, signedness_lhs, signedness_rhs)",
        accuracy="exact",
        poison="contract",
        tile_ir={
            "name": "mmai",
            "code": 74,
            "since": "13.1",
            "limits": [["len(b) <= 1", "`mmai` takes two or three axes"]],
        },
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
    def signedness_lhs(self) -> str:
        return cast("str", self.attributes["signedness_lhs"])

    @property
    def signedness_rhs(self) -> str:
        return cast("str", self.attributes["signedness_rhs"])


class MmafScaled(Op):
    """Matrix product of two block-scaled float tiles plus an accumulator."""

    __slots__ = ()
    name = "mmaf_scaled"
    definition = Definition(
        name="mmaf_scaled",
        summary="Matrix product of two block-scaled float tiles plus an accumulator.",
        operands_text="lhs: tile[*b m k; F], rhs: tile[*b k n; F], acc: tile[*b m n; f32], lhs_scale: tile[*b m q; S], rhs_scale: tile[*b q n; S]",
        results_text="result: tile[*b m n; f32]",
        where={"F": ("f8e4m3", "f8e5m2", "f4e2m1"), "S": ("f8e8m0", "f8e4m3")},
        rules=(
            Rule(
                "block",
                "k % q == 0 and (k // q == 32 or (k // q == 16 and F == 'f4e2m1'))",
                "{k} elements with {q} scales: a block must hold 32 elements, or 16 of f4e2m1",
                "give one scale for 32 elements along k (16 of f4e2m1)",
            ),
            Rule(
                "scale_type",
                "S == 'f8e8m0' or (F == 'f4e2m1' and k // q == 16)",
                "f8e4m3 scales belong to blocks of 16 elements of f4e2m1, found {F}",
                "use f8e8m0 scales",
            ),
        ),
        levels=("tile", "pipe"),
        meaning="dot(scale_rows(lhs, lhs_scale), scale_columns(rhs, rhs_scale), acc, f32)",
        accuracy="dot",
        poison="contract",
        tile_ir={
            "name": "mmaf_scaled",
            "code": 114,
            "since": "13.3",
            "limits": [["len(b) <= 1", "`mmaf_scaled` takes two or three axes"]],
        },
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
    def lhs_scale(self) -> Value:
        return cast("Value", self.arguments[3])

    @property
    def rhs_scale(self) -> Value:
        return cast("Value", self.arguments[4])

    @property
    def result(self) -> Value:
        return self.results[0]


class MmafSparse(Op):
    """Matrix product with a 2:4 sparse left operand."""

    __slots__ = ()
    name = "mmaf_sparse"
    definition = Definition(
        name="mmaf_sparse",
        summary="Matrix product with a 2:4 sparse left operand.",
        operands_text="lhs: tile[*b m h; F], metadata: tile[*b m q; i8], rhs: tile[*b k n; F], acc: tile[*b m n; A]",
        results_text="result: tile[*b m n; A]",
        where={
            "F": ("f16", "bf16", "f8e4m3", "f8e5m2", "f8e4m3fnuz", "f8e5m2fnuz"),
            "A": ("f16", "f32"),
        },
        rules=(
            Rule(
                "wide_accumulator",
                "A == 'f32' or F == 'f16' or bits(F) == 8",
                "{F} products need an f32 accumulator, found {A}",
                "make `acc` a tile<{m}x{n}xf32> and convert the result",
            ),
            Rule(
                "shape",
                "h * 2 == k and q * 8 == k",
                "k is {k}: `lhs` needs {k // 2} columns and `metadata` {k // 8}, found {h} and {q}",
                "k must be a multiple of 8",
            ),
        ),
        undefined=(
            Undefined(
                "places",
                "sparse_places_wrong(metadata)",
                "the two places of a group are not in ascending order",
            ),
        ),
        levels=("tile", "pipe"),
        meaning="dot(expand_sparse(lhs, metadata), rhs, acc, A)",
        accuracy="dot",
        poison="contract",
    )

    @property
    def lhs(self) -> Value:
        return cast("Value", self.arguments[0])

    @property
    def metadata(self) -> Value:
        return cast("Value", self.arguments[1])

    @property
    def rhs(self) -> Value:
        return cast("Value", self.arguments[2])

    @property
    def acc(self) -> Value:
        return cast("Value", self.arguments[3])

    @property
    def result(self) -> Value:
        return self.results[0]


class MakeToken(Op):
    """A token that waits for nothing."""

    __slots__ = ()
    name = "make_token"
    definition = Definition(
        name="make_token",
        summary="A token that waits for nothing.",
        results_text="result: token",
        levels=("tile", "pipe"),
        poison="none",
        tile_ir={"name": "make_token", "code": 68, "since": "13.1"},
    )

    @property
    def result(self) -> Value:
        return self.results[0]


class JoinTokens(Op):
    """A token that waits for everything its operands wait for."""

    __slots__ = ()
    name = "join_tokens"
    definition = Definition(
        name="join_tokens",
        summary="A token that waits for everything its operands wait for.",
        operands_text="tokens*: token",
        results_text="result: token",
        rules=(
            Rule(
                "some",
                "len(tokens) > 0",
                "`join_tokens` needs at least one token",
                "use `make_token` to wait for nothing",
            ),
        ),
        levels=("tile", "pipe"),
        poison="none",
        tile_ir={"name": "join_tokens", "code": 60, "since": "13.1"},
    )

    @property
    def tokens(self) -> tuple[Value, ...]:
        return cast("tuple[Value, ...]", self.arguments[0])

    @property
    def result(self) -> Value:
        return self.results[0]


class LoadPtrTko(Op):
    """Load the elements that a tile of pointers points to."""

    __slots__ = ()
    name = "load_ptr_tko"
    definition = Definition(
        name="load_ptr_tko",
        summary="Load the elements that a tile of pointers points to.",
        operands_text="source: tile[*s; ptr[E]], mask?: tile[*s; i1], padding_value?: tile[*s; E], token?: token",
        attributes_text="ordering: memory_ordering, scope?: memory_scope, hints?: dict",
        results_text="result: tile[*s; E], result_token: token",
        where={
            "E": (
                "i1",
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
            ),
            "ordering": ("weak", "relaxed", "acquire"),
        },
        rules=(
            Rule(
                "scope",
                "(scope is None) == (ordering == 'weak')",
                "a {ordering} access {'takes no' if ordering == 'weak' else 'needs a'} scope",
                "weak accesses have no scope; the others need tl_blk, device or sys",
            ),
        ),
        levels=("tile", "pipe"),
        effects="read",
        poison="memory",
        tile_ir={
            "name": "load_ptr_tko",
            "code": 61,
            "since": "13.1",
            "names": {
                "ordering": "memory_ordering_semantics",
                "scope": "memory_scope",
                "hints": "optimization_hints",
                "padding_value": "paddingValue",
            },
        },
    )

    @property
    def source(self) -> Value:
        return cast("Value", self.arguments[0])

    @property
    def mask(self) -> Value | None:
        return cast("Value | None", self.arguments[1])

    @property
    def padding_value(self) -> Value | None:
        return cast("Value | None", self.arguments[2])

    @property
    def token(self) -> Value | None:
        return cast("Value | None", self.arguments[3])

    @property
    def result(self) -> Value:
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
    def hints(self) -> dict[str, Attribute] | None:
        return cast("dict[str, Attribute] | None", self.attributes.get("hints", None))


class StorePtrTko(Op):
    """Store elements where a tile of pointers points to."""

    __slots__ = ()
    name = "store_ptr_tko"
    definition = Definition(
        name="store_ptr_tko",
        summary="Store elements where a tile of pointers points to.",
        operands_text="destination: tile[*s; ptr[E]], value: tile[*s; E], mask?: tile[*s; i1], token?: token",
        attributes_text="ordering: memory_ordering, scope?: memory_scope, hints?: dict",
        results_text="result_token: token",
        where={
            "E": (
                "i1",
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
            ),
            "ordering": ("weak", "relaxed", "release"),
        },
        rules=(
            Rule(
                "scope",
                "(scope is None) == (ordering == 'weak')",
                "a {ordering} access {'takes no' if ordering == 'weak' else 'needs a'} scope",
                "weak accesses have no scope; the others need tl_blk, device or sys",
            ),
        ),
        levels=("tile", "pipe"),
        effects="write",
        poison="memory",
        tile_ir={
            "name": "store_ptr_tko",
            "code": 101,
            "since": "13.1",
            "names": {
                "ordering": "memory_ordering_semantics",
                "scope": "memory_scope",
                "hints": "optimization_hints",
            },
        },
    )

    @property
    def destination(self) -> Value:
        return cast("Value", self.arguments[0])

    @property
    def value(self) -> Value:
        return cast("Value", self.arguments[1])

    @property
    def mask(self) -> Value | None:
        return cast("Value | None", self.arguments[2])

    @property
    def token(self) -> Value | None:
        return cast("Value | None", self.arguments[3])

    @property
    def result_token(self) -> Value:
        return self.results[0]

    @property
    def ordering(self) -> str:
        return cast("str", self.attributes["ordering"])

    @property
    def scope(self) -> str | None:
        return cast("str | None", self.attributes.get("scope", None))

    @property
    def hints(self) -> dict[str, Attribute] | None:
        return cast("dict[str, Attribute] | None", self.attributes.get("hints", None))


class LoadViewTko(Op):
    """Load the tile of a view at an index."""

    __slots__ = ()
    name = "load_view_tko"
    definition = Definition(
        name="load_view_tko",
        summary="Load the tile of a view at an index.",
        operands_text="view: view[V], index*: tile[*_; _], token?: token",
        attributes_text="ordering: memory_ordering, scope?: memory_scope, inbounds?: bool[], hints?: dict",
        results_text="tile: (V.tile_type), result_token: token",
        where={"ordering": ("weak", "relaxed", "acquire")},
        rules=(
            Rule(
                "scope",
                "(scope is None) == (ordering == 'weak')",
                "a {ordering} access {'takes no' if ordering == 'weak' else 'needs a'} scope",
                "weak accesses have no scope; the others need tl_blk, device or sys",
            ),
            Rule(
                "index",
                "len(index) == V.rank and all(is_int(element(index[i])) and shape(index[i]) == ((V.tile[i],) if is_kind(V, 'gather_scatter_view') and i == V.sparse_dim else ()) for i in range(len(index)))",
                "the index of {V} must be {V.rank} integer scalars (a tile of row numbers along `sparse_dim`), found {len(index)} operands",
            ),
            Rule(
                "inbounds",
                "inbounds is None or len(inbounds) == V.rank",
                "`inbounds` needs one entry for each of the {V.rank} axes",
            ),
            Rule(
                "readable",
                "V.tensor.access != 'write_only'",
                "the view may only be written",
                "change the access mode of the tensor view",
            ),
        ),
        levels=("tile", "pipe"),
        effects="read",
        poison="memory",
        tile_ir={
            "name": "load_view_tko",
            "code": 62,
            "since": "13.1",
            "arguments": {"inbounds": "13.4"},
            "names": {
                "ordering": "memory_ordering_semantics",
                "scope": "memory_scope",
                "hints": "optimization_hints",
            },
        },
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


class StoreViewTko(Op):
    """Store a tile into a view at an index."""

    __slots__ = ()
    name = "store_view_tko"
    definition = Definition(
        name="store_view_tko",
        summary="Store a tile into a view at an index.",
        operands_text="tile: tile[*s; E], view: view[V], index*: tile[*_; _], token?: token",
        attributes_text="ordering: memory_ordering, scope?: memory_scope, inbounds?: bool[], hints?: dict",
        results_text="result_token: token",
        where={"ordering": ("weak", "relaxed", "release")},
        rules=(
            Rule(
                "scope",
                "(scope is None) == (ordering == 'weak')",
                "a {ordering} access {'takes no' if ordering == 'weak' else 'needs a'} scope",
                "weak accesses have no scope; the others need tl_blk, device or sys",
            ),
            Rule("tile", "tile == V.tile_type", "the view takes {V.tile_type}, found {tile}"),
            Rule(
                "index",
                "len(index) == V.rank and all(is_int(element(index[i])) and shape(index[i]) == ((V.tile[i],) if is_kind(V, 'gather_scatter_view') and i == V.sparse_dim else ()) for i in range(len(index)))",
                "the index of {V} must be {V.rank} integer scalars (a tile of row numbers along `sparse_dim`), found {len(index)} operands",
            ),
            Rule(
                "inbounds",
                "inbounds is None or len(inbounds) == V.rank",
                "`inbounds` needs one entry for each of the {V.rank} axes",
            ),
            Rule(
                "writable",
                "V.tensor.access != 'read_only'",
                "the view may only be read",
                "change the access mode of the tensor view",
            ),
        ),
        levels=("tile", "pipe"),
        effects="write",
        poison="memory",
        tile_ir={
            "name": "store_view_tko",
            "code": 102,
            "since": "13.1",
            "arguments": {"inbounds": "13.4"},
            "names": {
                "ordering": "memory_ordering_semantics",
                "scope": "memory_scope",
                "hints": "optimization_hints",
            },
        },
    )

    @property
    def tile(self) -> Value:
        return cast("Value", self.arguments[0])

    @property
    def view(self) -> Value:
        return cast("Value", self.arguments[1])

    @property
    def index(self) -> tuple[Value, ...]:
        return cast("tuple[Value, ...]", self.arguments[2])

    @property
    def token(self) -> Value | None:
        return cast("Value | None", self.arguments[3])

    @property
    def result_token(self) -> Value:
        return self.results[0]

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


class MemoryFenceAliasTko(Op):
    """Order accesses to one memory through different addresses."""

    __slots__ = ()
    name = "memory_fence_alias_tko"
    definition = Definition(
        name="memory_fence_alias_tko",
        summary="Order accesses to one memory through different addresses.",
        operands_text="token: token",
        results_text="result_token: token",
        levels=("tile", "pipe"),
        effects="barrier",
        poison="none",
        tile_ir={"name": "memory_fence_alias_tko", "code": 122, "since": "13.4"},
    )

    @property
    def token(self) -> Value:
        return cast("Value", self.arguments[0])

    @property
    def result_token(self) -> Value:
        return self.results[0]


class Alloca(Op):
    """Allocate memory that lives as long as the region around it."""

    __slots__ = ()
    name = "alloca"
    definition = Definition(
        name="alloca",
        summary="Allocate memory that lives as long as the region around it.",
        attributes_text="num_elem: int, alignment: int, shared: unit",
        results_text="result: tile[; ptr[E]]",
        where={
            "E": (
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
        rules=(
            Rule("positive", "num_elem > 0", "`num_elem` must be positive, found {num_elem}"),
            Rule(
                "alignment",
                "is_power_of_two(alignment)",
                "`alignment` must be a power of two, found {alignment}",
            ),
        ),
        levels=("tile", "pipe"),
        effects="allocate",
        poison="none",
        tile_ir={"name": "alloca", "code": 113, "since": "13.3", "names": {"shared": "global"}},
    )

    @property
    def result(self) -> Value:
        return self.results[0]

    @property
    def num_elem(self) -> int:
        return cast("int", self.attributes["num_elem"])

    @property
    def alignment(self) -> int:
        return cast("int", self.attributes["alignment"])

    @property
    def shared(self) -> bool:
        return cast("bool", self.attributes.get("shared", False))


class MultimemLoadReduceViewTko(Op):
    """Load a tile reduced over all devices of a multicast group."""

    __slots__ = ()
    name = "multimem_load_reduce_view_tko"
    definition = Definition(
        name="multimem_load_reduce_view_tko",
        summary="Load a tile reduced over all devices of a multicast group.",
        operands_text="view: view[V], index*: tile[*_; _], token?: token",
        attributes_text="ordering: memory_ordering, scope?: memory_scope, reduction: multimem_reduction, inbounds?: bool[]",
        results_text="tile: (V.tile_type), result_token: token",
        where={"ordering": ("weak", "relaxed", "acquire")},
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
        tile_ir={
            "name": "multimem_load_reduce_view_tko",
            "code": 123,
            "since": "13.5",
            "names": {"ordering": "memory_ordering_semantics", "scope": "memory_scope"},
        },
        targets=("sm_90", "sm_90a", "sm_100", "sm_100a", "sm_103", "sm_103a"),
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
    def reduction(self) -> str:
        return cast("str", self.attributes["reduction"])

    @property
    def inbounds(self) -> tuple[bool, ...] | None:
        return cast("tuple[bool, ...] | None", self.attributes.get("inbounds", None))


class MultimemReduceViewTko(Op):
    """Reduce a tile into the memories of all devices of a multicast group."""

    __slots__ = ()
    name = "multimem_reduce_view_tko"
    definition = Definition(
        name="multimem_reduce_view_tko",
        summary="Reduce a tile into the memories of all devices of a multicast group.",
        operands_text="view: view[V], tile: (V.tile_type), index*: tile[*_; _], token?: token",
        attributes_text="ordering: memory_ordering, scope: memory_scope, reduction: multimem_reduction, inbounds?: bool[]",
        results_text="result_token: token",
        where={"ordering": ("relaxed", "release")},
        effects="atomic",
        poison="memory",
        tile_ir={
            "name": "multimem_reduce_view_tko",
            "code": 124,
            "since": "13.5",
            "names": {"ordering": "memory_ordering_semantics", "scope": "memory_scope"},
        },
        targets=("sm_90", "sm_90a", "sm_100", "sm_100a", "sm_103", "sm_103a"),
    )

    @property
    def view(self) -> Value:
        return cast("Value", self.arguments[0])

    @property
    def tile(self) -> Value:
        return cast("Value", self.arguments[1])

    @property
    def index(self) -> tuple[Value, ...]:
        return cast("tuple[Value, ...]", self.arguments[2])

    @property
    def token(self) -> Value | None:
        return cast("Value | None", self.arguments[3])

    @property
    def result_token(self) -> Value:
        return self.results[0]

    @property
    def ordering(self) -> str:
        return cast("str", self.attributes["ordering"])

    @property
    def scope(self) -> str:
        return cast("str", self.attributes["scope"])

    @property
    def reduction(self) -> str:
        return cast("str", self.attributes["reduction"])

    @property
    def inbounds(self) -> tuple[bool, ...] | None:
        return cast("tuple[bool, ...] | None", self.attributes.get("inbounds", None))


class MultimemStoreViewTko(Op):
    """Store a tile into the memories of all devices of a multicast group."""

    __slots__ = ()
    name = "multimem_store_view_tko"
    definition = Definition(
        name="multimem_store_view_tko",
        summary="Store a tile into the memories of all devices of a multicast group.",
        operands_text="view: view[V], tile: (V.tile_type), index*: tile[*_; _], token?: token",
        attributes_text="ordering: memory_ordering, scope?: memory_scope, inbounds?: bool[]",
        results_text="result_token: token",
        where={"ordering": ("weak", "relaxed", "release")},
        rules=(
            Rule(
                "scope",
                "(scope is None) == (ordering == 'weak')",
                "a {ordering} access {'takes no' if ordering == 'weak' else 'needs a'} scope",
                "weak accesses have no scope; the others need tl_blk, device or sys",
            ),
        ),
        effects="write",
        poison="memory",
        tile_ir={
            "name": "multimem_store_view_tko",
            "code": 125,
            "since": "13.5",
            "names": {"ordering": "memory_ordering_semantics", "scope": "memory_scope"},
        },
        targets=("sm_90", "sm_90a", "sm_100", "sm_100a", "sm_103", "sm_103a"),
    )

    @property
    def view(self) -> Value:
        return cast("Value", self.arguments[0])

    @property
    def tile(self) -> Value:
        return cast("Value", self.arguments[1])

    @property
    def index(self) -> tuple[Value, ...]:
        return cast("tuple[Value, ...]", self.arguments[2])

    @property
    def token(self) -> Value | None:
        return cast("Value | None", self.arguments[3])

    @property
    def result_token(self) -> Value:
        return self.results[0]

    @property
    def ordering(self) -> str:
        return cast("str", self.attributes["ordering"])

    @property
    def scope(self) -> str | None:
        return cast("str | None", self.attributes.get("scope", None))

    @property
    def inbounds(self) -> tuple[bool, ...] | None:
        return cast("tuple[bool, ...] | None", self.attributes.get("inbounds", None))


class Global(Op):
    """Memory of a module, with initial values."""

    __slots__ = ()
    name = "global"
    definition = Definition(
        name="global",
        summary="Memory of a module, with initial values.",
        attributes_text="symbol: symbol, value: dense, alignment: int = 0, constant: unit, visibility: visibility = public",
        rules=(
            Rule(
                "rank", "len(value.shape) == 1", "a global has one axis, found {len(value.shape)}"
            ),
            Rule(
                "alignment",
                "alignment == 0 or is_power_of_two(alignment)",
                "`alignment` must be a power of two, found {alignment}",
            ),
        ),
        levels=("tile", "pipe", "simt"),
        effects="allocate",
        traits=("module",),
        poison="none",
        tile_ir={
            "name": "global",
            "code": 49,
            "since": "13.1",
            "arguments": {"constant": "13.3", "visibility": "13.3"},
            "names": {"symbol": "sym_name", "visibility": "symbol_visibility"},
        },
    )

    @property
    def symbol(self) -> str:
        return cast("str", self.attributes["symbol"])

    @property
    def value(self) -> Dense:
        return cast("Dense", self.attributes["value"])

    @property
    def alignment(self) -> int:
        return cast("int", self.attributes.get("alignment", 0))

    @property
    def constant(self) -> bool:
        return cast("bool", self.attributes.get("constant", False))

    @property
    def visibility(self) -> str:
        return cast("str", self.attributes.get("visibility", "public"))


class GetGlobal(Op):
    """The address of a global of the module."""

    __slots__ = ()
    name = "get_global"
    definition = Definition(
        name="get_global",
        summary="The address of a global of the module.",
        attributes_text="symbol: symbol",
        results_text="result: tile[; ptr[E]]",
        where={
            "E": (
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
        poison="none",
        tile_ir={"name": "get_global", "code": 44, "since": "13.1", "names": {"symbol": "name"}},
    )

    @property
    def result(self) -> Value:
        return self.results[0]

    @property
    def symbol(self) -> str:
        return cast("str", self.attributes["symbol"])


class Sort(Op):
    """Sort along an axis, carrying other tiles along."""

    __slots__ = ()
    name = "sort"
    definition = Definition(
        name="sort",
        summary="Sort along an axis, carrying other tiles along.",
        operands_text="sources*: tile[A]",
        attributes_text="axis: int, descending: unit, signedness: signedness = signed",
        results_text="outputs*: any[A]",
        rules=(
            Rule("operands", "len(A) >= 1", "there is nothing to sort"),
            Rule("shape", "all(t.shape == A[0].shape for t in A)", "the operands differ in shape"),
            Rule(
                "axis",
                "len(A) == 0 or 0 <= axis < len(A[0].shape)",
                "axis {axis} of a tile of rank {len(A[0].shape)}",
            ),
            Rule(
                "key_type",
                "len(A) == 0 or (not is_pointer(element(A[0])) and element(A[0]) in ('i1', 'i8', 'i16', 'i32', 'i64', 'f16', 'bf16', 'f32', 'f64'))",
                "the key is a tile of {element(A[0])}",
                "sort integers, or floats of 16 bits or more",
            ),
        ),
        levels=("tile", "pipe"),
        accuracy="exact",
        poison="axis",
    )

    @property
    def sources(self) -> tuple[Value, ...]:
        return cast("tuple[Value, ...]", self.arguments[0])

    @property
    def outputs(self) -> tuple[Value, ...]:
        return self.results[0:]

    @property
    def axis(self) -> int:
        return cast("int", self.attributes["axis"])

    @property
    def descending(self) -> bool:
        return cast("bool", self.attributes.get("descending", False))

    @property
    def signedness(self) -> str:
        return cast("str", self.attributes.get("signedness", "signed"))


class Topk(Op):
    """The greatest or least elements along an axis."""

    __slots__ = ()
    name = "topk"
    definition = Definition(
        name="topk",
        summary="The greatest or least elements along an axis.",
        operands_text="source: tile[*s; T]",
        attributes_text="axis: int, count: int, smallest: unit, signedness: signedness = signed",
        results_text="values: tile[*(with_dim(s, axis, count)); T], indices: tile[*(with_dim(s, axis, count)); i32]",
        where={"T": ("i1", "i8", "i16", "i32", "i64", "f16", "bf16", "f32", "f64")},
        rules=(
            Rule("axis", "0 <= axis < len(s)", "axis {axis} of a tile of rank {len(s)}"),
            Rule(
                "count",
                "not 0 <= axis < len(s) or 1 <= count <= s[axis]",
                "{count} of {s[axis]} elements",
            ),
        ),
        levels=("tile", "pipe"),
        meaning="topk(source, T, axis - len(s), count, smallest, signedness)",
        accuracy="exact",
        poison="axis",
    )

    @property
    def source(self) -> Value:
        return cast("Value", self.arguments[0])

    @property
    def values(self) -> Value:
        return self.results[0]

    @property
    def indices(self) -> Value:
        return self.results[1]

    @property
    def axis(self) -> int:
        return cast("int", self.attributes["axis"])

    @property
    def count(self) -> int:
        return cast("int", self.attributes["count"])

    @property
    def smallest(self) -> bool:
        return cast("bool", self.attributes.get("smallest", False))

    @property
    def signedness(self) -> str:
        return cast("str", self.attributes.get("signedness", "signed"))


class Argmax(Op):
    """Position of the greatest element along an axis."""

    __slots__ = ()
    name = "argmax"
    definition = Definition(
        name="argmax",
        summary="Position of the greatest element along an axis.",
        operands_text="source: tile[*s; T]",
        attributes_text="axis: int, signedness: signedness = signed",
        results_text="index: tile[*(without(s, axis)); i32]",
        where={"T": ("i1", "i8", "i16", "i32", "i64", "f16", "bf16", "f32", "f64")},
        rules=(Rule("axis", "0 <= axis < len(s)", "axis {axis} of a tile of rank {len(s)}"),),
        levels=("tile", "pipe"),
        meaning="argmax(source, T, axis - len(s), signedness)",
        accuracy="exact",
        poison="axis",
    )

    @property
    def source(self) -> Value:
        return cast("Value", self.arguments[0])

    @property
    def index(self) -> Value:
        return self.results[0]

    @property
    def axis(self) -> int:
        return cast("int", self.attributes["axis"])

    @property
    def signedness(self) -> str:
        return cast("str", self.attributes.get("signedness", "signed"))


class Argmin(Op):
    """Position of the least element along an axis."""

    __slots__ = ()
    name = "argmin"
    definition = Definition(
        name="argmin",
        summary="Position of the least element along an axis.",
        operands_text="source: tile[*s; T]",
        attributes_text="axis: int, signedness: signedness = signed",
        results_text="index: tile[*(without(s, axis)); i32]",
        where={"T": ("i1", "i8", "i16", "i32", "i64", "f16", "bf16", "f32", "f64")},
        rules=(Rule("axis", "0 <= axis < len(s)", "axis {axis} of a tile of rank {len(s)}"),),
        levels=("tile", "pipe"),
        meaning="argmin(source, T, axis - len(s), signedness)",
        accuracy="exact",
        poison="axis",
    )

    @property
    def source(self) -> Value:
        return cast("Value", self.arguments[0])

    @property
    def index(self) -> Value:
        return self.results[0]

    @property
    def axis(self) -> int:
        return cast("int", self.attributes["axis"])

    @property
    def signedness(self) -> str:
        return cast("str", self.attributes.get("signedness", "signed"))


class Histogram(Op):
    """Count the occurrences of each number."""

    __slots__ = ()
    name = "histogram"
    definition = Definition(
        name="histogram",
        summary="Count the occurrences of each number.",
        operands_text="source: tile[*s; I], mask?: tile[*s; i1]",
        attributes_text="bins: int",
        results_text="counts: tile[(bins); i32]",
        where={"I": ("i8", "i16", "i32", "i64")},
        rules=(Rule("bins", "bins >= 1", "there are {bins} bins"),),
        levels=("tile", "pipe"),
        meaning="histogram(source, mask, I, bins, len(s))",
        accuracy="exact",
        poison="whole",
    )

    @property
    def source(self) -> Value:
        return cast("Value", self.arguments[0])

    @property
    def mask(self) -> Value | None:
        return cast("Value | None", self.arguments[1])

    @property
    def counts(self) -> Value:
        return self.results[0]

    @property
    def bins(self) -> int:
        return cast("int", self.attributes["bins"])


class Role(Op):
    """Warps that run one region; roles run at the same time."""

    __slots__ = ()
    name = "role"
    definition = Definition(
        name="role",
        summary="Warps that run one region; roles run at the same time.",
        attributes_text="label: string, warps: int, replicas: int = 1, registers?: int",
        regions_text="body(replica?: tile[; i32]) -> yield()",
        rules=(
            Rule(
                "warps",
                "warps >= 1 and replicas >= 1",
                "a role has at least one warp and one replica, found {warps} and {replicas}",
            ),
            Rule(
                "registers",
                "registers is None or (registers % 8 == 0 and 24 <= registers <= 256)",
                "registers come in eights from 24 to 256 for each thread, found {registers}",
                "setmaxnreg takes no other numbers",
            ),
        ),
        levels=("pipe",),
        effects="control",
        poison="control",
    )

    @property
    def label(self) -> str:
        return cast("str", self.attributes["label"])

    @property
    def warps(self) -> int:
        return cast("int", self.attributes["warps"])

    @property
    def replicas(self) -> int:
        return cast("int", self.attributes.get("replicas", 1))

    @property
    def registers(self) -> int | None:
        return cast("int | None", self.attributes.get("registers", None))

    @property
    def body(self) -> Region:
        return self.regions[0]


class Elected(Op):
    """One thread of the role runs the region."""

    __slots__ = ()
    name = "elected"
    definition = Definition(
        name="elected",
        summary="One thread of the role runs the region.",
        results_text="tokens*: token[T]",
        regions_text="body() -> yield(T)",
        levels=("pipe",),
        effects="control",
        poison="control",
    )

    @property
    def tokens(self) -> tuple[Value, ...]:
        return self.results[0:]

    @property
    def body(self) -> Region:
        return self.regions[0]


class IfRows(Op):
    """Compute values only for the groups of rows that need them."""

    __slots__ = ()
    name = "if_rows"
    definition = Definition(
        name="if_rows",
        summary="Compute values only for the groups of rows that need them.",
        operands_text="condition: tile[g; i1], otherwise*: any[R]",
        results_text="outputs*: any[R]",
        regions_text="then() -> yield(R)",
        rules=(
            Rule(
                "tiles",
                "R and all(is_kind(t, 'tile') and shape(t) and shape(t)[0] % g == 0 for t in R)",
                "the first axis of every value must be a multiple of the {g} groups",
            ),
        ),
        levels=("pipe", "simt"),
        effects="control",
        poison="elementwise",
    )

    @property
    def condition(self) -> Value:
        return cast("Value", self.arguments[0])

    @property
    def otherwise(self) -> tuple[Value, ...]:
        return cast("tuple[Value, ...]", self.arguments[1])

    @property
    def outputs(self) -> tuple[Value, ...]:
        return self.results[0:]

    @property
    def then(self) -> Region:
        return self.regions[0]


class AllocBuffer(Op):
    """Shared memory for one tile or scalar."""

    __slots__ = ()
    name = "alloc_buffer"
    definition = Definition(
        name="alloc_buffer",
        summary="Shared memory for one tile or scalar.",
        results_text="result: buffer[B]",
        rules=(Rule("layout", "not layout_fault(B)", "{layout_fault(B)}"),),
        levels=("pipe",),
        effects="allocate",
        poison="none",
    )

    @property
    def result(self) -> Value:
        return self.results[0]


class AllocRing(Op):
    """Shared memory for several tiles of one type, one behind another."""

    __slots__ = ()
    name = "alloc_ring"
    definition = Definition(
        name="alloc_ring",
        summary="Shared memory for several tiles of one type, one behind another.",
        results_text="result: ring[R]",
        rules=(Rule("layout", "not layout_fault(R.buffer)", "{layout_fault(R.buffer)}"),),
        levels=("pipe",),
        effects="allocate",
        poison="none",
    )

    @property
    def result(self) -> Value:
        return self.results[0]


class Slot(Op):
    """One buffer of a ring."""

    __slots__ = ()
    name = "slot"
    definition = Definition(
        name="slot",
        summary="One buffer of a ring.",
        operands_text="ring: ring[R], index: tile[; i32]",
        results_text="result: buffer[B]",
        rules=(Rule("buffer", "B == R.buffer", "a slot of {R} is a {R.buffer}, found {B}"),),
        levels=("pipe",),
        poison="address",
    )

    @property
    def ring(self) -> Value:
        return cast("Value", self.arguments[0])

    @property
    def index(self) -> Value:
        return cast("Value", self.arguments[1])

    @property
    def result(self) -> Value:
        return self.results[0]


class Advance(Op):
    """The next slot of a ring, and the phase to wait for there."""

    __slots__ = ()
    name = "advance"
    definition = Definition(
        name="advance",
        summary="The next slot of a ring, and the phase to wait for there.",
        operands_text="slot: tile[; i32], phase: tile[; i32]",
        attributes_text="stages: int",
        results_text="next_slot: tile[; i32], next_phase: tile[; i32]",
        rules=(Rule("stages", "stages >= 1", "`stages` must be positive, found {stages}"),),
        levels=("pipe",),
        meaning="advance(slot, phase, stages)",
        accuracy="exact",
        poison="elementwise",
    )

    @property
    def slot(self) -> Value:
        return cast("Value", self.arguments[0])

    @property
    def phase(self) -> Value:
        return cast("Value", self.arguments[1])

    @property
    def next_slot(self) -> Value:
        return self.results[0]

    @property
    def next_phase(self) -> Value:
        return self.results[1]

    @property
    def stages(self) -> int:
        return cast("int", self.attributes["stages"])


class Subview(Op):
    """An aligned slice of a buffer."""

    __slots__ = ()
    name = "subview"
    definition = Definition(
        name="subview",
        summary="An aligned slice of a buffer.",
        operands_text="source: buffer[S], index*: tile[; i32]",
        results_text="result: buffer[D]",
        rules=(
            Rule(
                "index",
                "len(index) == len(S.shape)",
                "{S} has {len(S.shape)} axes, found {len(index)} indices",
            ),
            Rule(
                "slice",
                "element(S) == element(D) and sliced_layout(S, D.shape) != ''",
                "{D} is no slice of {S}",
                "extents must divide; a swizzled slice keeps whole panels and groups of 8 rows",
            ),
            Rule(
                "layout",
                "sliced_layout(S, D.shape) in ('', D.layout)",
                "this slice has the layout {sliced_layout(S, D.shape)}, found {D.layout}",
            ),
        ),
        levels=("pipe",),
        poison="address",
    )

    @property
    def source(self) -> Value:
        return cast("Value", self.arguments[0])

    @property
    def index(self) -> tuple[Value, ...]:
        return cast("tuple[Value, ...]", self.arguments[1])

    @property
    def result(self) -> Value:
        return self.results[0]


class TransposeBuffer(Op):
    """A buffer with its two axes exchanged."""

    __slots__ = ()
    name = "transpose_buffer"
    definition = Definition(
        name="transpose_buffer",
        summary="A buffer with its two axes exchanged.",
        operands_text="source: buffer[S]",
        results_text="result: buffer[D]",
        rules=(
            Rule(
                "shape",
                "len(S.shape) == 2 and D.shape == (S.shape[1], S.shape[0]) and element(S) == element(D)",
                "{D} is not the transpose of {S}",
            ),
            Rule(
                "layout",
                "D.layout == transposed_layout(S)",
                "the transpose has the layout {transposed_layout(S)}, found {D.layout}",
            ),
        ),
        levels=("pipe",),
        poison="none",
    )

    @property
    def source(self) -> Value:
        return cast("Value", self.arguments[0])

    @property
    def result(self) -> Value:
        return self.results[0]


class ReinterpretBuffer(Op):
    """The memory of a buffer or ring under another type."""

    __slots__ = ()
    name = "reinterpret_buffer"
    definition = Definition(
        name="reinterpret_buffer",
        summary="The memory of a buffer or ring under another type.",
        operands_text="source: buffer|ring[S]",
        results_text="result: buffer|ring[D]",
        rules=(
            Rule(
                "size",
                "place_bytes(D) <= place_bytes(S)",
                "{S} has {place_bytes(S)} bytes, and {D} needs {place_bytes(D)}",
            ),
        ),
        levels=("pipe",),
        poison="none",
    )

    @property
    def source(self) -> Value:
        return cast("Value", self.arguments[0])

    @property
    def result(self) -> Value:
        return self.results[0]


class AllocBarrier(Op):
    """Barriers with phases, ready for their first one."""

    __slots__ = ()
    name = "alloc_barrier"
    definition = Definition(
        name="alloc_barrier",
        summary="Barriers with phases, ready for their first one.",
        results_text="result: barrier[B]",
        levels=("pipe",),
        effects="allocate",
        poison="none",
        targets=("sm_80", "sm_90a"),
    )

    @property
    def result(self) -> Value:
        return self.results[0]


class ArriveBarrier(Op):
    """Arrive on a barrier, and announce bytes that copies will bring."""

    __slots__ = ()
    name = "arrive_barrier"
    definition = Definition(
        name="arrive_barrier",
        summary="Arrive on a barrier, and announce bytes that copies will bring.",
        operands_text="barrier: barrier[B], slot: tile[; i32], rank?: tile[; i32], token?: token",
        attributes_text="by: arrivers = elected, bytes: int = 0, everywhere: unit, order: handover = release, after_copies: unit",
        rules=(
            Rule(
                "bytes",
                "bytes >= 0 and (bytes == 0 or (by == 'elected' and rank is None and not everywhere))",
                "bytes are announced by one thread, on its own block's barrier",
            ),
            Rule(
                "remote",
                "B.scope == 'cluster' or (rank is None and not everywhere)",
                "other blocks arrive on barriers of scope=cluster only, found {B}",
            ),
            Rule(
                "one_destination",
                "not (everywhere and rank is not None)",
                "`everywhere` and `rank` exclude each other",
            ),
            Rule(
                "after_copies",
                "not after_copies or (by == 'threads' and rank is None and not everywhere)",
                "copies of a thread are followed by that thread's own arrival, in its block",
                "write by = threads",
            ),
        ),
        levels=("pipe",),
        effects="barrier",
        poison="address",
        targets=("sm_80", "sm_90a"),
    )

    @property
    def barrier(self) -> Value:
        return cast("Value", self.arguments[0])

    @property
    def slot(self) -> Value:
        return cast("Value", self.arguments[1])

    @property
    def rank(self) -> Value | None:
        return cast("Value | None", self.arguments[2])

    @property
    def token(self) -> Value | None:
        return cast("Value | None", self.arguments[3])

    @property
    def by(self) -> str:
        return cast("str", self.attributes.get("by", "elected"))

    @property
    def bytes(self) -> int:
        return cast("int", self.attributes.get("bytes", 0))

    @property
    def everywhere(self) -> bool:
        return cast("bool", self.attributes.get("everywhere", False))

    @property
    def order(self) -> str:
        return cast("str", self.attributes.get("order", "release"))

    @property
    def after_copies(self) -> bool:
        return cast("bool", self.attributes.get("after_copies", False))


class WaitBarrier(Op):
    """Wait until a phase of a barrier is complete."""

    __slots__ = ()
    name = "wait_barrier"
    definition = Definition(
        name="wait_barrier",
        summary="Wait until a phase of a barrier is complete.",
        operands_text="barrier: barrier[B], slot: tile[; i32], phase: tile[; i32]",
        attributes_text="order: acquisition = acquire",
        results_text="token: token",
        levels=("pipe",),
        effects="barrier",
        poison="address",
        targets=("sm_80", "sm_90a"),
    )

    @property
    def barrier(self) -> Value:
        return cast("Value", self.arguments[0])

    @property
    def slot(self) -> Value:
        return cast("Value", self.arguments[1])

    @property
    def phase(self) -> Value:
        return cast("Value", self.arguments[2])

    @property
    def token(self) -> Value:
        return self.results[0]

    @property
    def order(self) -> str:
        return cast("str", self.attributes.get("order", "acquire"))


class AllocNamedBarrier(Op):
    """Barriers at which a fixed number of threads meet."""

    __slots__ = ()
    name = "alloc_named_barrier"
    definition = Definition(
        name="alloc_named_barrier",
        summary="Barriers at which a fixed number of threads meet.",
        results_text="result: named_barrier[B]",
        rules=(
            Rule("threads", "B.threads % 32 == 0", "whole warps meet, found {B.threads} threads"),
        ),
        levels=("pipe",),
        effects="allocate",
        poison="none",
        targets=("sm_80", "sm_90a"),
    )

    @property
    def result(self) -> Value:
        return self.results[0]


class SyncNamed(Op):
    """Arrive at a named barrier and wait for the others."""

    __slots__ = ()
    name = "sync_named"
    definition = Definition(
        name="sync_named",
        summary="Arrive at a named barrier and wait for the others.",
        operands_text="barrier: named_barrier[B], index: tile[; i32], token?: token",
        results_text="result_token: token",
        levels=("pipe",),
        effects="barrier",
        poison="address",
        targets=("sm_80", "sm_90a"),
    )

    @property
    def barrier(self) -> Value:
        return cast("Value", self.arguments[0])

    @property
    def index(self) -> Value:
        return cast("Value", self.arguments[1])

    @property
    def token(self) -> Value | None:
        return cast("Value | None", self.arguments[2])

    @property
    def result_token(self) -> Value:
        return self.results[0]


class ArriveNamed(Op):
    """Arrive at a named barrier without waiting."""

    __slots__ = ()
    name = "arrive_named"
    definition = Definition(
        name="arrive_named",
        summary="Arrive at a named barrier without waiting.",
        operands_text="barrier: named_barrier[B], index: tile[; i32], token?: token",
        levels=("pipe",),
        effects="barrier",
        poison="address",
        targets=("sm_80", "sm_90a"),
    )

    @property
    def barrier(self) -> Value:
        return cast("Value", self.arguments[0])

    @property
    def index(self) -> Value:
        return cast("Value", self.arguments[1])

    @property
    def token(self) -> Value | None:
        return cast("Value | None", self.arguments[2])


class Sync(Op):
    """All threads of the role meet."""

    __slots__ = ()
    name = "sync"
    definition = Definition(
        name="sync",
        summary="All threads of the role meet.",
        operands_text="token?: token",
        results_text="result_token: token",
        levels=("pipe",),
        effects="barrier",
        poison="none",
    )

    @property
    def token(self) -> Value | None:
        return cast("Value | None", self.arguments[0])

    @property
    def result_token(self) -> Value:
        return self.results[0]


class ClusterRank(Op):
    """The number of this block in its cluster."""

    __slots__ = ()
    name = "cluster_rank"
    definition = Definition(
        name="cluster_rank",
        summary="The number of this block in its cluster.",
        results_text="rank: tile[; i32]",
        levels=("pipe", "simt"),
        poison="none",
        targets=("sm_90a",),
    )

    @property
    def rank(self) -> Value:
        return self.results[0]


class ClusterArrive(Op):
    """Tell the cluster that this block has come."""

    __slots__ = ()
    name = "cluster_arrive"
    definition = Definition(
        name="cluster_arrive",
        summary="Tell the cluster that this block has come.",
        operands_text="token?: token",
        attributes_text="order: handover = release",
        levels=("pipe",),
        effects="barrier",
        poison="none",
        targets=("sm_90a",),
    )

    @property
    def token(self) -> Value | None:
        return cast("Value | None", self.arguments[0])

    @property
    def order(self) -> str:
        return cast("str", self.attributes.get("order", "release"))


class ClusterWait(Op):
    """Wait until all threads of the cluster have come."""

    __slots__ = ()
    name = "cluster_wait"
    definition = Definition(
        name="cluster_wait",
        summary="Wait until all threads of the cluster have come.",
        results_text="token: token",
        levels=("pipe",),
        effects="barrier",
        poison="none",
        targets=("sm_90a",),
    )

    @property
    def token(self) -> Value:
        return self.results[0]


class Step(Op):
    """The block-wide barrier, counted by each role for itself."""

    __slots__ = ()
    name = "step"
    definition = Definition(
        name="step",
        summary="The block-wide barrier, counted by each role for itself.",
        operands_text="token?: token",
        results_text="result_token: token",
        levels=("pipe",),
        effects="barrier",
        poison="none",
        targets=("gfx942",),
    )

    @property
    def token(self) -> Value | None:
        return cast("Value | None", self.arguments[0])

    @property
    def result_token(self) -> Value:
        return self.results[0]


class Stagger(Op):
    """Run the region in all replicas of the role, each `steps` steps behind the one before."""

    __slots__ = ()
    name = "stagger"
    definition = Definition(
        name="stagger",
        summary="Run the region in all replicas of the role, each `steps` steps behind the one before.",
        attributes_text="steps: int = 1",
        results_text="outputs*: any[R]",
        regions_text="body() -> yield(R)",
        rules=(Rule("steps", "steps >= 1", "`steps` must be positive, found {steps}"),),
        levels=("pipe",),
        effects="barrier",
        poison="control",
        targets=("gfx942",),
    )

    @property
    def outputs(self) -> tuple[Value, ...]:
        return self.results[0:]

    @property
    def steps(self) -> int:
        return cast("int", self.attributes.get("steps", 1))

    @property
    def body(self) -> Region:
        return self.regions[0]


class SetPriority(Op):
    """How much this role's warps are preferred from here on."""

    __slots__ = ()
    name = "set_priority"
    definition = Definition(
        name="set_priority",
        summary="How much this role's warps are preferred from here on.",
        attributes_text="level: int",
        rules=(Rule("level", "0 <= level <= 3", "priorities go from 0 to 3, found {level}"),),
        levels=("pipe",),
        effects="control",
        poison="none",
        targets=("gfx942",),
    )

    @property
    def level(self) -> int:
        return cast("int", self.attributes["level"])


class AtomicIncWrapTko(Op):
    """Add one to a counter, or set it to zero at its limit; give the old value."""

    __slots__ = ()
    name = "atomic_inc_wrap_tko"
    definition = Definition(
        name="atomic_inc_wrap_tko",
        summary="Add one to a counter, or set it to zero at its limit; give the old value.",
        operands_text="pointer: tile[; ptr[E]], limit: tile[; E], token?: token",
        attributes_text="ordering: memory_ordering, scope: memory_scope",
        results_text="result: tile[; E], result_token: token",
        where={"E": ("i32",), "ordering": ("relaxed", "acquire", "release", "acq_rel")},
        levels=("pipe", "simt"),
        effects="atomic",
        poison="memory",
    )

    @property
    def pointer(self) -> Value:
        return cast("Value", self.arguments[0])

    @property
    def limit(self) -> Value:
        return cast("Value", self.arguments[1])

    @property
    def token(self) -> Value | None:
        return cast("Value | None", self.arguments[2])

    @property
    def result(self) -> Value:
        return self.results[0]

    @property
    def result_token(self) -> Value:
        return self.results[1]

    @property
    def ordering(self) -> str:
        return cast("str", self.attributes["ordering"])

    @property
    def scope(self) -> str:
        return cast("str", self.attributes["scope"])


class FenceProxy(Op):
    """Let the asynchronous proxy meet what the generic one wrote."""

    __slots__ = ()
    name = "fence_proxy"
    definition = Definition(
        name="fence_proxy",
        summary="Let the asynchronous proxy meet what the generic one wrote.",
        operands_text="token: token",
        attributes_text="space: fence_space = shared",
        results_text="result_token: token",
        levels=("pipe",),
        effects="barrier",
        poison="none",
        targets=("sm_90a",),
    )

    @property
    def token(self) -> Value:
        return cast("Value", self.arguments[0])

    @property
    def result_token(self) -> Value:
        return self.results[0]

    @property
    def space(self) -> str:
        return cast("str", self.attributes.get("space", "shared"))


class OrderFence(Op):
    """Nothing moves across here in the assembler."""

    __slots__ = ()
    name = "order_fence"
    definition = Definition(
        name="order_fence",
        summary="Nothing moves across here in the assembler.",
        levels=("pipe", "simt"),
        effects="barrier",
        poison="none",
    )


class CopyIn(Op):
    """Start copying a tile of a view into a buffer."""

    __slots__ = ()
    name = "copy_in"
    definition = Definition(
        name="copy_in",
        summary="Start copying a tile of a view into a buffer.",
        operands_text="view: view[V], index*: tile[*_; _], destination: buffer[D], barrier?: barrier[B], slot?: tile[; i32], multicast?: tile[; i32], token?: token",
        attributes_text="engine: copy_engine, evict: eviction = normal",
        rules=(
            Rule(
                "index",
                "len(index) == V.rank and all(is_int(element(index[i])) and shape(index[i]) == ((V.tile[i],) if is_kind(V, 'gather_scatter_view') and i == V.sparse_dim else ()) for i in range(len(index)))",
                "the index of {V} must be {V.rank} integer scalars (a tile of row numbers along `sparse_dim`), found {len(index)} operands",
            ),
            Rule(
                "shape",
                "squeezed(V.tile) == squeezed(D.shape) and element(V) == element(D)",
                "{dims(V.tile)} of {element(V)} does not fit {D}",
                "the shapes agree up to extents of 1",
            ),
            Rule(
                "readable",
                "V.tensor.access != 'write_only'",
                "the view may only be written",
                "change the access mode of the tensor view",
            ),
            Rule(
                "barrier",
                "(barrier is not None and slot is not None) if engine == 'bulk' else (barrier is None and slot is None)",
                "a bulk copy signals a barrier, found engine {engine} {'with' if barrier else 'without'} one",
                "thread copies are waited for by `wait_copies`, or handed over by an arrival with `after_copies`",
            ),
            Rule(
                "multicast",
                "multicast is None or engine == 'bulk'",
                "only bulk copies are multicast",
            ),
            Rule(
                "padding",
                "engine == 'thread' or V.padding in (None, 'zero', 'nan')",
                "bulk copies pad with zero or nan, found {V.padding}",
            ),
            Rule(
                "gather",
                "engine == 'thread' or not is_kind(V, 'gather_scatter_view')",
                "rows by number need the thread engine",
            ),
        ),
        levels=("pipe",),
        effects="async",
        poison="memory",
    )

    @property
    def view(self) -> Value:
        return cast("Value", self.arguments[0])

    @property
    def index(self) -> tuple[Value, ...]:
        return cast("tuple[Value, ...]", self.arguments[1])

    @property
    def destination(self) -> Value:
        return cast("Value", self.arguments[2])

    @property
    def barrier(self) -> Value | None:
        return cast("Value | None", self.arguments[3])

    @property
    def slot(self) -> Value | None:
        return cast("Value | None", self.arguments[4])

    @property
    def multicast(self) -> Value | None:
        return cast("Value | None", self.arguments[5])

    @property
    def token(self) -> Value | None:
        return cast("Value | None", self.arguments[6])

    @property
    def engine(self) -> str:
        return cast("str", self.attributes["engine"])

    @property
    def evict(self) -> str:
        return cast("str", self.attributes.get("evict", "normal"))


class CopyOut(Op):
    """Start storing a buffer as a tile of a view, or combining it with what is there."""

    __slots__ = ()
    name = "copy_out"
    definition = Definition(
        name="copy_out",
        summary="Start storing a buffer as a tile of a view, or combining it with what is there.",
        operands_text="source: buffer[S], view: view[V], index*: tile[; I], token?: token",
        attributes_text="mode: copy_mode = store, evict: eviction = normal",
        where={"I": ("i8", "i16", "i32", "i64")},
        rules=(
            Rule(
                "index", "len(index) == V.rank", "{V} has {V.rank} axes, found {len(index)} indices"
            ),
            Rule(
                "shape",
                "squeezed(V.tile) == squeezed(S.shape) and element(V) == element(S)",
                "{S} does not fit {dims(V.tile)} of {element(V)}",
                "the shapes agree up to extents of 1",
            ),
            Rule(
                "writable",
                "V.tensor.access != 'read_only'",
                "the view may only be read",
                "change the access mode of the tensor view",
            ),
            Rule(
                "add",
                "mode != 'add' or element(S) in ('f16', 'bf16', 'f32', 'i32', 'i64')",
                "{element(S)} cannot be added in memory",
            ),
            Rule(
                "extremes",
                "mode in ('store', 'add') or element(S) in ('f16', 'bf16', 'i32', 'i64')",
                "{mode} of {element(S)} cannot be taken in memory",
            ),
        ),
        levels=("pipe",),
        effects="async",
        poison="memory",
        targets=("sm_90a",),
    )

    @property
    def source(self) -> Value:
        return cast("Value", self.arguments[0])

    @property
    def view(self) -> Value:
        return cast("Value", self.arguments[1])

    @property
    def index(self) -> tuple[Value, ...]:
        return cast("tuple[Value, ...]", self.arguments[2])

    @property
    def token(self) -> Value | None:
        return cast("Value | None", self.arguments[3])

    @property
    def mode(self) -> str:
        return cast("str", self.attributes.get("mode", "store"))

    @property
    def evict(self) -> str:
        return cast("str", self.attributes.get("evict", "normal"))


class CommitCopies(Op):
    """Close the group of the copies issued since the last one."""

    __slots__ = ()
    name = "commit_copies"
    definition = Definition(
        name="commit_copies",
        summary="Close the group of the copies issued since the last one.",
        attributes_text="engine: copy_engine",
        levels=("pipe",),
        effects="async",
        poison="none",
    )

    @property
    def engine(self) -> str:
        return cast("str", self.attributes["engine"])


class WaitCopies(Op):
    """Wait until at most the newest `in_flight` groups are under way."""

    __slots__ = ()
    name = "wait_copies"
    definition = Definition(
        name="wait_copies",
        summary="Wait until at most the newest `in_flight` groups are under way.",
        attributes_text="engine: copy_engine, in_flight: int = 0, until: completion = visible",
        results_text="token: token",
        rules=(
            Rule(
                "in_flight", "in_flight >= 0", "`in_flight` must not be negative, found {in_flight}"
            ),
        ),
        levels=("pipe",),
        effects="async",
        poison="none",
    )

    @property
    def token(self) -> Value:
        return self.results[0]

    @property
    def engine(self) -> str:
        return cast("str", self.attributes["engine"])

    @property
    def in_flight(self) -> int:
        return cast("int", self.attributes.get("in_flight", 0))

    @property
    def until(self) -> str:
        return cast("str", self.attributes.get("until", "visible"))


class LoadBuffer(Op):
    """Load a tile from a buffer into registers."""

    __slots__ = ()
    name = "load_buffer"
    definition = Definition(
        name="load_buffer",
        summary="Load a tile from a buffer into registers.",
        operands_text="source: buffer[S], rank?: tile[; i32], token?: token",
        results_text="result: (tile(S.shape, element(S))), result_token: token",
        levels=("pipe",),
        effects="read",
        poison="memory",
    )

    @property
    def source(self) -> Value:
        return cast("Value", self.arguments[0])

    @property
    def rank(self) -> Value | None:
        return cast("Value | None", self.arguments[1])

    @property
    def token(self) -> Value | None:
        return cast("Value | None", self.arguments[2])

    @property
    def result(self) -> Value:
        return self.results[0]

    @property
    def result_token(self) -> Value:
        return self.results[1]


class StoreBuffer(Op):
    """Store a tile from registers into a buffer."""

    __slots__ = ()
    name = "store_buffer"
    definition = Definition(
        name="store_buffer",
        summary="Store a tile from registers into a buffer.",
        operands_text="tile: tile[*s; E], destination: buffer[D], rank?: tile[; i32], token?: token",
        results_text="result_token: token",
        rules=(Rule("tile", "s == D.shape and E == element(D)", "{tile} does not fit {D}"),),
        levels=("pipe",),
        effects="write",
        poison="memory",
    )

    @property
    def tile(self) -> Value:
        return cast("Value", self.arguments[0])

    @property
    def destination(self) -> Value:
        return cast("Value", self.arguments[1])

    @property
    def rank(self) -> Value | None:
        return cast("Value | None", self.arguments[2])

    @property
    def token(self) -> Value | None:
        return cast("Value | None", self.arguments[3])

    @property
    def result_token(self) -> Value:
        return self.results[0]


class PrefetchView(Op):
    """Bring a tile of a view nearer."""

    __slots__ = ()
    name = "prefetch_view"
    definition = Definition(
        name="prefetch_view",
        summary="Bring a tile of a view nearer.",
        operands_text="view: view[V], index*: tile[; I]",
        where={"I": ("i8", "i16", "i32", "i64")},
        levels=("pipe",),
        effects="async",
        poison="none",
        targets=("sm_90a",),
    )

    @property
    def view(self) -> Value:
        return cast("Value", self.arguments[0])

    @property
    def index(self) -> tuple[Value, ...]:
        return cast("tuple[Value, ...]", self.arguments[1])


class MmaOpen(Op):
    """An accumulator with nothing in flight and nothing in it."""

    __slots__ = ()
    name = "mma_open"
    definition = Definition(
        name="mma_open",
        summary="An accumulator with nothing in flight and nothing in it.",
        results_text="result: pending[P]",
        levels=("pipe",),
        effects="async",
        poison="none",
        targets=("sm_90a",),
    )

    @property
    def result(self) -> Value:
        return self.results[0]


class MmaStart(Op):
    """Start a matrix product on an accumulator."""

    __slots__ = ()
    name = "mma_start"
    definition = Definition(
        name="mma_start",
        summary="Start a matrix product on an accumulator.",
        operands_text="lhs: tile|buffer[L], rhs: buffer[R], acc?: tile|pending[C], accumulate?: tile[; i1], token?: token",
        attributes_text="signedness_lhs?: signedness, signedness_rhs?: signedness",
        results_text="result: pending[P]",
        rules=(
            Rule(
                "rank",
                "len(shape(L)) == 2 and len(shape(R)) == 2 and len(shape(P)) == 2",
                "products are of two axes, found {L}, {R} and {P}",
            ),
            Rule(
                "shape",
                "len(shape(L)) != 2 or len(shape(R)) != 2 or len(shape(P)) != 2 or (shape(L)[0] == shape(P)[0] and shape(R)[1] == shape(P)[1] and shape(L)[1] == shape(R)[0])",
                "{L} times {R} is no {P}",
                "lhs is m by k, rhs k by n; `transpose_buffer` turns a buffer that lies the other way",
            ),
            Rule(
                "accumulator",
                "acc is None or (shape(C) == shape(P) and element(C) == element(P))",
                "the accumulator is {C}, and the result {P}",
            ),
            Rule(
                "accumulate",
                "accumulate is None or acc is not None",
                "`accumulate` needs an accumulator",
                "leave it out to start from zero, or give one from `mma_open`",
            ),
            Rule(
                "elements",
                "(element(L), element(R), element(P)) in (('f16', 'f16', 'f16'), ('f16', 'f16', 'f32'), ('bf16', 'bf16', 'f32'), ('tf32', 'tf32', 'f32'), ('i8', 'i8', 'i32')) or (element(L) in ('f8e4m3', 'f8e5m2') and element(R) in ('f8e4m3', 'f8e5m2') and element(P) in ('f16', 'f32'))",
                "{element(L)} by {element(R)} into {element(P)} is not multiplied by this unit",
            ),
            Rule(
                "extents",
                "len(shape(P)) != 2 or (shape(P)[0] % 64 == 0 and shape(P)[1] % 8 == 0 and shape(P)[1] <= 256 and shape(L)[1] * bits(element(L)) % 256 == 0)",
                "m must be a multiple of 64, n of 8 up to 256, a row of lhs of 32 bytes, found {L} into {P}",
            ),
            Rule(
                "contiguous_k",
                "bits(element(L)) == 16 or ((is_kind(L, 'tile') or '.t' not in L.layout) and '.t' in R.layout)",
                "operands of {bits(element(L))} bits lie with k contiguous, found {L} and {R}",
                "only 16-bit operands may lie the other way",
            ),
            Rule(
                "layout",
                "(is_kind(L, 'tile') or 'swizzle' in L.layout) and 'swizzle' in R.layout",
                "operands in shared memory need a swizzled layout, found {L} and {R}",
                "swizzle16 is the plain one",
            ),
            Rule(
                "signedness",
                "(signedness_lhs is None) == (element(L) != 'i8') and (signedness_rhs is None) == (element(L) != 'i8')",
                "integers, and only they, are signed or unsigned",
            ),
        ),
        levels=("pipe",),
        effects="async",
        traits=("affine",),
        accuracy="dot",
        poison="contract",
        targets=("sm_90a",),
    )

    @property
    def lhs(self) -> Value:
        return cast("Value", self.arguments[0])

    @property
    def rhs(self) -> Value:
        return cast("Value", self.arguments[1])

    @property
    def acc(self) -> Value | None:
        return cast("Value | None", self.arguments[2])

    @property
    def accumulate(self) -> Value | None:
        return cast("Value | None", self.arguments[3])

    @property
    def token(self) -> Value | None:
        return cast("Value | None", self.arguments[4])

    @property
    def result(self) -> Value:
        return self.results[0]

    @property
    def signedness_lhs(self) -> str | None:
        return cast("str | None", self.attributes.get("signedness_lhs", None))

    @property
    def signedness_rhs(self) -> str | None:
        return cast("str | None", self.attributes.get("signedness_rhs", None))


class MmaWait(Op):
    """Wait until at most the newest `in_flight` products are under way; take results."""

    __slots__ = ()
    name = "mma_wait"
    definition = Definition(
        name="mma_wait",
        summary="Wait until at most the newest `in_flight` products are under way; take results.",
        operands_text="pending*: pending[P]",
        attributes_text="in_flight: int = 0",
        results_text="values*: (tuple(p.tile for p in P)), token: token",
        rules=(
            Rule(
                "in_flight",
                "0 <= in_flight <= 7",
                "from 0 to 7 products may stay under way, found {in_flight}",
            ),
        ),
        levels=("pipe",),
        effects="async",
        traits=("affine",),
        poison="none",
        targets=("sm_90a",),
    )

    @property
    def pending(self) -> tuple[Value, ...]:
        return cast("tuple[Value, ...]", self.arguments[0])

    @property
    def values(self) -> tuple[Value, ...]:
        return self.results[0:-1]

    @property
    def token(self) -> Value:
        return self.results[-1]

    @property
    def in_flight(self) -> int:
        return cast("int", self.attributes.get("in_flight", 0))


class Philox(Op):
    """Counter-based random words (Philox4x32)."""

    __slots__ = ()
    name = "philox"
    definition = Definition(
        name="philox",
        summary="Counter-based random words (Philox4x32).",
        operands_text="counter0: tile[*s; i32], counter1: tile[*s; i32], counter2: tile[*s; i32], counter3: tile[*s; i32], key0: tile[; i32], key1: tile[; i32]",
        attributes_text="rounds: int = 10",
        results_text="word0: tile[*s; i32], word1: tile[*s; i32], word2: tile[*s; i32], word3: tile[*s; i32]",
        rules=(
            Rule(
                "rounds",
                "1 <= rounds <= 16",
                "{rounds} rounds",
                "10 is the usual number; 7 passes the published tests",
            ),
        ),
        levels=("tile", "pipe", "simt"),
        meaning="philox(counter0, counter1, counter2, counter3, spread(key0, s), spread(key1, s), rounds)",
        accuracy="exact",
        poison="elementwise",
    )

    @property
    def counter0(self) -> Value:
        return cast("Value", self.arguments[0])

    @property
    def counter1(self) -> Value:
        return cast("Value", self.arguments[1])

    @property
    def counter2(self) -> Value:
        return cast("Value", self.arguments[2])

    @property
    def counter3(self) -> Value:
        return cast("Value", self.arguments[3])

    @property
    def key0(self) -> Value:
        return cast("Value", self.arguments[4])

    @property
    def key1(self) -> Value:
        return cast("Value", self.arguments[5])

    @property
    def word0(self) -> Value:
        return self.results[0]

    @property
    def word1(self) -> Value:
        return self.results[1]

    @property
    def word2(self) -> Value:
        return self.results[2]

    @property
    def word3(self) -> Value:
        return self.results[3]

    @property
    def rounds(self) -> int:
        return cast("int", self.attributes.get("rounds", 10))


class Reduce(Op):
    """Combine the elements along an axis."""

    __slots__ = ()
    name = "reduce"
    definition = Definition(
        name="reduce",
        summary="Combine the elements along an axis.",
        operands_text="sources*: tile[A]",
        attributes_text="axis: int, identities: numbers",
        results_text="outputs*: (reduced(A, axis))",
        regions_text="combine(pair*: (pairs(A))) -> yield(scalars(A))",
        rules=(
            Rule("operands", "len(A) >= 1", "there is nothing to combine"),
            Rule("shape", "all(t.shape == A[0].shape for t in A)", "the operands differ in shape"),
            Rule(
                "axis",
                "len(A) == 0 or 0 <= axis < len(A[0].shape)",
                "axis {axis} of a tile of rank {len(A[0].shape)}",
            ),
            Rule(
                "identities",
                "len(identities) == len(A)",
                "{len(identities)} identities for {len(A)} operands",
                "give one identity for each operand",
            ),
            Rule(
                "integer_identity",
                "all(is_float(element(t)) or i % 1 == 0 for t, i in zip(A, identities))",
                "the identity of an integer operand is not an integer",
            ),
        ),
        levels=("tile", "pipe", "simt"),
        accuracy="reduce",
        poison="region",
        tile_ir={
            "name": "reduce",
            "code": 88,
            "since": "13.1",
            "names": {
                "sources": "operands",
                "axis": "dim",
                "outputs": "results",
                "combine": "body",
            },
        },
    )

    @property
    def sources(self) -> tuple[Value, ...]:
        return cast("tuple[Value, ...]", self.arguments[0])

    @property
    def outputs(self) -> tuple[Value, ...]:
        return self.results[0:]

    @property
    def axis(self) -> int:
        return cast("int", self.attributes["axis"])

    @property
    def identities(self) -> tuple[int | float, ...]:
        return cast("tuple[int | float, ...]", self.attributes["identities"])

    @property
    def combine(self) -> Region:
        return self.regions[0]


class Scan(Op):
    """Combine all prefixes along an axis."""

    __slots__ = ()
    name = "scan"
    definition = Definition(
        name="scan",
        summary="Combine all prefixes along an axis.",
        operands_text="sources*: tile[A]",
        attributes_text="axis: int, reverse: bool = false, identities: numbers",
        results_text="outputs*: any[A]",
        regions_text="combine(pair*: (pairs(A))) -> yield(scalars(A))",
        rules=(
            Rule("operands", "len(A) >= 1", "there is nothing to combine"),
            Rule("shape", "all(t.shape == A[0].shape for t in A)", "the operands differ in shape"),
            Rule(
                "axis",
                "len(A) == 0 or 0 <= axis < len(A[0].shape)",
                "axis {axis} of a tile of rank {len(A[0].shape)}",
            ),
            Rule(
                "identities",
                "len(identities) == len(A)",
                "{len(identities)} identities for {len(A)} operands",
                "give one identity for each operand",
            ),
            Rule(
                "integer_identity",
                "all(is_float(element(t)) or i % 1 == 0 for t, i in zip(A, identities))",
                "the identity of an integer operand is not an integer",
            ),
        ),
        levels=("tile", "pipe"),
        accuracy="reduce",
        poison="region",
        tile_ir={
            "name": "scan",
            "code": 94,
            "since": "13.1",
            "names": {
                "sources": "operands",
                "axis": "dim",
                "outputs": "results",
                "combine": "body",
            },
        },
    )

    @property
    def sources(self) -> tuple[Value, ...]:
        return cast("tuple[Value, ...]", self.arguments[0])

    @property
    def outputs(self) -> tuple[Value, ...]:
        return self.results[0:]

    @property
    def axis(self) -> int:
        return cast("int", self.attributes["axis"])

    @property
    def reverse(self) -> bool:
        return cast("bool", self.attributes.get("reverse", False))

    @property
    def identities(self) -> tuple[int | float, ...]:
        return cast("tuple[int | float, ...]", self.attributes["identities"])

    @property
    def combine(self) -> Region:
        return self.regions[0]


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
        tile_ir={
            "name": "constant",
            "code": 16,
            "since": "13.1",
            "limits": [["T != 'i4'", "there are no constants of i4"]],
        },
    )

    @property
    def result(self) -> Value:
        return self.results[0]

    @property
    def value(self) -> Dense:
        return cast("Dense", self.attributes["value"])


class Iota(Op):
    """Count from zero."""

    __slots__ = ()
    name = "iota"
    definition = Definition(
        name="iota",
        summary="Count from zero.",
        results_text="result: tile[n; T]",
        where={"T": ("i1", "i8", "i16", "i32", "i64")},
        rules=(
            Rule("fits", "n <= 2 ** bits(T)", "{n} numbers do not fit {T}", "use a wider type"),
        ),
        levels=("tile", "pipe", "simt"),
        meaning="iota(n, T)",
        accuracy="exact",
        poison="none",
        tile_ir={"name": "iota", "code": 58, "since": "13.1"},
    )

    @property
    def result(self) -> Value:
        return self.results[0]


class Select(Op):
    """Choose between two tiles, element by element."""

    __slots__ = ()
    name = "select"
    definition = Definition(
        name="select",
        summary="Choose between two tiles, element by element.",
        operands_text="condition: tile[*s; i1], if_true: tile[*s; T], if_false: tile[*s; T]",
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
                "pointer",
            )
        },
        levels=("tile", "pipe", "simt"),
        meaning="select(condition, if_true, if_false)",
        accuracy="exact",
        poison="select",
        tile_ir={
            "name": "select",
            "code": 95,
            "since": "13.1",
            "names": {"condition": "cond", "if_true": "val_if_true", "if_false": "val_if_false"},
            "limits": [["T != 'f4e2m1'", "`select` does not take {T}"]],
        },
    )

    @property
    def condition(self) -> Value:
        return cast("Value", self.arguments[0])

    @property
    def if_true(self) -> Value:
        return cast("Value", self.arguments[1])

    @property
    def if_false(self) -> Value:
        return cast("Value", self.arguments[2])

    @property
    def result(self) -> Value:
        return self.results[0]


class Broadcast(Op):
    """Repeat a tile along axes of extent 1."""

    __slots__ = ()
    name = "broadcast"
    definition = Definition(
        name="broadcast",
        summary="Repeat a tile along axes of extent 1.",
        operands_text="source: tile[*s; T]",
        results_text="result: tile[*t; T]",
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
                "pointer",
            )
        },
        rules=(
            Rule(
                "shape",
                "broadcasts(s, t)",
                "a tile of {dims(s) or 'rank 0'} cannot become {dims(t) or 'rank 0'} by repetition",
                "ranks must agree, and every extent be 1 or the result's; reshape first",
            ),
        ),
        levels=("tile", "pipe", "simt"),
        meaning="broadcast(source, t)",
        accuracy="exact",
        poison="structural",
        tile_ir={"name": "broadcast", "code": 11, "since": "13.1"},
    )

    @property
    def source(self) -> Value:
        return cast("Value", self.arguments[0])

    @property
    def result(self) -> Value:
        return self.results[0]


class Reshape(Op):
    """Change the extents of a tile."""

    __slots__ = ()
    name = "reshape"
    definition = Definition(
        name="reshape",
        summary="Change the extents of a tile.",
        operands_text="source: tile[*s; T]",
        results_text="result: tile[*t; T]",
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
                "pointer",
            )
        },
        rules=(
            Rule(
                "size",
                "prod(s) == prod(t)",
                "{dims(s) or 'a scalar'} and {dims(t) or 'a scalar'} have different numbers of elements",
            ),
        ),
        levels=("tile", "pipe", "simt"),
        meaning="reshape(source, s, t)",
        accuracy="exact",
        poison="structural",
        tile_ir={"name": "reshape", "code": 91, "since": "13.1"},
    )

    @property
    def source(self) -> Value:
        return cast("Value", self.arguments[0])

    @property
    def result(self) -> Value:
        return self.results[0]


class Permute(Op):
    """Reorder the axes of a tile."""

    __slots__ = ()
    name = "permute"
    definition = Definition(
        name="permute",
        summary="Reorder the axes of a tile.",
        operands_text="source: tile[*s; T]",
        attributes_text="permutation: int[]",
        results_text="result: tile[*(permuted(s, permutation)); T]",
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
                "pointer",
            )
        },
        rules=(
            Rule(
                "permutation",
                "is_permutation(permutation, len(s))",
                "permutation {permutation} does not name each of the {len(s)} axes once",
            ),
        ),
        levels=("tile", "pipe", "simt"),
        meaning="permute(source, permutation)",
        accuracy="exact",
        poison="structural",
        tile_ir={
            "name": "permute",
            "code": 83,
            "since": "13.1",
            "limits": [["len(s) >= 2", "`permute` takes two axes or more"]],
        },
    )

    @property
    def source(self) -> Value:
        return cast("Value", self.arguments[0])

    @property
    def result(self) -> Value:
        return self.results[0]

    @property
    def permutation(self) -> tuple[int, ...]:
        return cast("tuple[int, ...]", self.attributes["permutation"])


class Cat(Op):
    """Put two tiles one after the other."""

    __slots__ = ()
    name = "cat"
    definition = Definition(
        name="cat",
        summary="Put two tiles one after the other.",
        operands_text="lhs: tile[*s; T], rhs: tile[*t; T]",
        attributes_text="axis: int",
        results_text="result: tile[*(joined(s, t, axis)); T]",
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
                "pointer",
            )
        },
        rules=(
            Rule("axis", "0 <= axis < len(s)", "axis {axis} of a tile of rank {len(s)}"),
            Rule(
                "shape",
                "len(s) == len(t) and without(s, axis) == without(t, axis)",
                "{dims(s)} and {dims(t)} differ off axis {axis}",
            ),
        ),
        levels=("tile", "pipe"),
        meaning="cat(lhs, rhs, axis - len(s))",
        accuracy="exact",
        poison="structural",
        tile_ir={"name": "cat", "code": 12, "since": "13.1", "names": {"axis": "dim"}},
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
    def axis(self) -> int:
        return cast("int", self.attributes["axis"])


class Extract(Op):
    """Take a part out of a tile."""

    __slots__ = ()
    name = "extract"
    definition = Definition(
        name="extract",
        summary="Take a part out of a tile.",
        operands_text="source: tile[*s; T], indices*: tile[; i32]",
        results_text="result: tile[*t; T]",
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
                "pointer",
            )
        },
        rules=(
            Rule("shape", "divides(t, s)", "parts of {dims(t)} do not divide {dims(s)}"),
            Rule("indices", "len(indices) == len(s)", "{len(indices)} indices for {len(s)} axes"),
        ),
        undefined=(
            Undefined(
                "out_of_range",
                "part_outside(indices, s, t)",
                "a tile of {dims(s)} has no such part of {dims(t)}: indices count parts",
            ),
        ),
        levels=("tile", "pipe", "simt"),
        meaning="extract(source, indices, s, t)",
        accuracy="exact",
        poison="structural",
        tile_ir={"name": "extract", "code": 38, "since": "13.1"},
    )

    @property
    def source(self) -> Value:
        return cast("Value", self.arguments[0])

    @property
    def indices(self) -> tuple[Value, ...]:
        return cast("tuple[Value, ...]", self.arguments[1])

    @property
    def result(self) -> Value:
        return self.results[0]


class Insert(Op):
    """Replace a part of a tile."""

    __slots__ = ()
    name = "insert"
    definition = Definition(
        name="insert",
        summary="Replace a part of a tile.",
        operands_text="source: tile[*t; T], destination: tile[*s; T], indices*: tile[; i32]",
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
                "pointer",
            )
        },
        rules=(
            Rule("shape", "divides(t, s)", "parts of {dims(t)} do not divide {dims(s)}"),
            Rule("indices", "len(indices) == len(s)", "{len(indices)} indices for {len(s)} axes"),
        ),
        undefined=(
            Undefined(
                "out_of_range",
                "part_outside(indices, s, t)",
                "a tile of {dims(s)} has no such part of {dims(t)}: indices count parts",
            ),
        ),
        levels=("tile", "pipe"),
        meaning="insert(source, destination, indices, s, t)",
        accuracy="exact",
        poison="structural",
        tile_ir={"name": "insert", "code": 118, "since": "13.4"},
    )

    @property
    def source(self) -> Value:
        return cast("Value", self.arguments[0])

    @property
    def destination(self) -> Value:
        return cast("Value", self.arguments[1])

    @property
    def indices(self) -> tuple[Value, ...]:
        return cast("tuple[Value, ...]", self.arguments[2])

    @property
    def result(self) -> Value:
        return self.results[0]


class Gather(Op):
    """Choose elements along an axis."""

    __slots__ = ()
    name = "gather"
    definition = Definition(
        name="gather",
        summary="Choose elements along an axis.",
        operands_text="source: tile[*s; T], indices: tile[*t; I]",
        attributes_text="axis: int",
        results_text="result: tile[*t; T]",
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
                "pointer",
            ),
            "I": ("i8", "i16", "i32", "i64"),
        },
        rules=(
            Rule("axis", "0 <= axis < len(s)", "axis {axis} of a tile of rank {len(s)}"),
            Rule(
                "shape",
                "len(s) == len(t) and without(s, axis) == without(t, axis)",
                "{dims(s)} and indices {dims(t)} differ off axis {axis}",
            ),
        ),
        undefined=(
            Undefined(
                "out_of_range",
                "index_outside(indices, I, s[axis])",
                "an index is not below the {s[axis]} elements along axis {axis}",
            ),
        ),
        levels=("tile", "pipe"),
        meaning="gather(source, indices, I, axis - len(s))",
        accuracy="exact",
        poison="gather",
    )

    @property
    def source(self) -> Value:
        return cast("Value", self.arguments[0])

    @property
    def indices(self) -> Value:
        return cast("Value", self.arguments[1])

    @property
    def result(self) -> Value:
        return self.results[0]

    @property
    def axis(self) -> int:
        return cast("int", self.attributes["axis"])


class ChangeLayout(Op):
    """The same tile, held in other registers and lanes."""

    __slots__ = ()
    name = "change_layout"
    definition = Definition(
        name="change_layout",
        summary="The same tile, held in other registers and lanes.",
        operands_text="source: tile[*s; T]",
        results_text="result: tile[*s; T]",
        levels=("pipe", "simt"),
        meaning="same(source)",
        accuracy="exact",
        poison="structural",
    )

    @property
    def source(self) -> Value:
        return cast("Value", self.arguments[0])

    @property
    def result(self) -> Value:
        return self.results[0]


class ThreadId(Op):
    """The number of this thread in its block."""

    __slots__ = ()
    name = "thread_id"
    definition = Definition(
        name="thread_id",
        summary="The number of this thread in its block.",
        results_text="result: tile[; i32]",
        levels=("simt",),
        poison="none",
    )

    @property
    def result(self) -> Value:
        return self.results[0]


class LaneId(Op):
    """The number of this thread in its warp."""

    __slots__ = ()
    name = "lane_id"
    definition = Definition(
        name="lane_id",
        summary="The number of this thread in its warp.",
        results_text="result: tile[; i32]",
        levels=("simt",),
        poison="none",
    )

    @property
    def result(self) -> Value:
        return self.results[0]


class WarpId(Op):
    """The number of this warp in its block, known to be the same in all its lanes."""

    __slots__ = ()
    name = "warp_id"
    definition = Definition(
        name="warp_id",
        summary="The number of this warp in its block, known to be the same in all its lanes.",
        results_text="result: tile[; i32]",
        levels=("simt",),
        poison="none",
    )

    @property
    def result(self) -> Value:
        return self.results[0]


class Elect(Op):
    """True in one lane of the warp, the same one each time."""

    __slots__ = ()
    name = "elect"
    definition = Definition(
        name="elect",
        summary="True in one lane of the warp, the same one each time.",
        results_text="result: tile[; i1]",
        levels=("simt",),
        effects="barrier",
        poison="none",
    )

    @property
    def result(self) -> Value:
        return self.results[0]


class SetRegisters(Op):
    """Change the number of registers of each thread of the warp."""

    __slots__ = ()
    name = "set_registers"
    definition = Definition(
        name="set_registers",
        summary="Change the number of registers of each thread of the warp.",
        attributes_text="count: int, direction: register_change",
        levels=("simt",),
        effects="control",
        poison="none",
        targets=("sm_90a",),
    )

    @property
    def count(self) -> int:
        return cast("int", self.attributes["count"])

    @property
    def direction(self) -> str:
        return cast("str", self.attributes["direction"])


class SyncThreads(Op):
    """Arrive at a barrier of the block and wait for the others."""

    __slots__ = ()
    name = "sync_threads"
    definition = Definition(
        name="sync_threads",
        summary="Arrive at a barrier of the block and wait for the others.",
        operands_text="barrier: tile[; i32]",
        attributes_text="threads: int",
        levels=("simt",),
        effects="barrier",
        poison="address",
    )

    @property
    def barrier(self) -> Value:
        return cast("Value", self.arguments[0])

    @property
    def threads(self) -> int:
        return cast("int", self.attributes["threads"])


class ArriveThreads(Op):
    """Arrive at a barrier of the block without waiting."""

    __slots__ = ()
    name = "arrive_threads"
    definition = Definition(
        name="arrive_threads",
        summary="Arrive at a barrier of the block without waiting.",
        operands_text="barrier: tile[; i32]",
        attributes_text="threads: int",
        levels=("simt",),
        effects="barrier",
        poison="address",
    )

    @property
    def barrier(self) -> Value:
        return cast("Value", self.arguments[0])

    @property
    def threads(self) -> int:
        return cast("int", self.attributes["threads"])


class SyncWarp(Op):
    """The lanes of the warp meet."""

    __slots__ = ()
    name = "sync_warp"
    definition = Definition(
        name="sync_warp",
        summary="The lanes of the warp meet.",
        levels=("simt",),
        effects="barrier",
        poison="none",
    )


class ArriveCluster(Op):
    """Tell the cluster that this thread has come."""

    __slots__ = ()
    name = "arrive_cluster"
    definition = Definition(
        name="arrive_cluster",
        summary="Tell the cluster that this thread has come.",
        attributes_text="order: handover = release, aligned: unit",
        levels=("simt",),
        effects="barrier",
        poison="none",
        targets=("sm_90a",),
    )

    @property
    def order(self) -> str:
        return cast("str", self.attributes.get("order", "release"))

    @property
    def aligned(self) -> bool:
        return cast("bool", self.attributes.get("aligned", False))


class WaitCluster(Op):
    """Wait until all threads of the cluster have come."""

    __slots__ = ()
    name = "wait_cluster"
    definition = Definition(
        name="wait_cluster",
        summary="Wait until all threads of the cluster have come.",
        attributes_text="aligned: unit",
        levels=("simt",),
        effects="barrier",
        poison="none",
        targets=("sm_90a",),
    )

    @property
    def aligned(self) -> bool:
        return cast("bool", self.attributes.get("aligned", False))


class InitMbarrier(Op):
    """Make a barrier that awaits `arrivals` arrivals in each phase."""

    __slots__ = ()
    name = "init_mbarrier"
    definition = Definition(
        name="init_mbarrier",
        summary="Make a barrier that awaits `arrivals` arrivals in each phase.",
        operands_text="address: tile[; i32]",
        attributes_text="arrivals: int",
        levels=("simt",),
        effects="barrier",
        poison="address",
        targets=("sm_80", "sm_90a"),
    )

    @property
    def address(self) -> Value:
        return cast("Value", self.arguments[0])

    @property
    def arrivals(self) -> int:
        return cast("int", self.attributes["arrivals"])


class FenceMbarrierInit(Op):
    """Show the barriers that this thread made to the cluster and to the asynchronous proxy."""

    __slots__ = ()
    name = "fence_mbarrier_init"
    definition = Definition(
        name="fence_mbarrier_init",
        summary="Show the barriers that this thread made to the cluster and to the asynchronous proxy.",
        levels=("simt",),
        effects="barrier",
        poison="none",
        targets=("sm_90a",),
    )


class ArriveMbarrier(Op):
    """Arrive, and announce bytes."""

    __slots__ = ()
    name = "arrive_mbarrier"
    definition = Definition(
        name="arrive_mbarrier",
        summary="Arrive, and announce bytes.",
        operands_text="address: tile[; i32]",
        attributes_text="bytes: int = 0, cluster: unit, order: handover = release, after_copies: unit",
        levels=("simt",),
        effects="barrier",
        poison="address",
        targets=("sm_80", "sm_90a"),
    )

    @property
    def address(self) -> Value:
        return cast("Value", self.arguments[0])

    @property
    def bytes(self) -> int:
        return cast("int", self.attributes.get("bytes", 0))

    @property
    def cluster(self) -> bool:
        return cast("bool", self.attributes.get("cluster", False))

    @property
    def order(self) -> str:
        return cast("str", self.attributes.get("order", "release"))

    @property
    def after_copies(self) -> bool:
        return cast("bool", self.attributes.get("after_copies", False))


class WaitMbarrier(Op):
    """Wait until the phase of this parity is complete."""

    __slots__ = ()
    name = "wait_mbarrier"
    definition = Definition(
        name="wait_mbarrier",
        summary="Wait until the phase of this parity is complete.",
        operands_text="address: tile[; i32], phase: tile[; i32]",
        attributes_text="cluster: unit",
        levels=("simt",),
        effects="barrier",
        poison="address",
        targets=("sm_80", "sm_90a"),
    )

    @property
    def address(self) -> Value:
        return cast("Value", self.arguments[0])

    @property
    def phase(self) -> Value:
        return cast("Value", self.arguments[1])

    @property
    def cluster(self) -> bool:
        return cast("bool", self.attributes.get("cluster", False))


class FenceProxyAsync(Op):
    """Let the asynchronous proxy meet what this thread wrote, or was told of."""

    __slots__ = ()
    name = "fence_proxy_async"
    definition = Definition(
        name="fence_proxy_async",
        summary="Let the asynchronous proxy meet what this thread wrote, or was told of.",
        attributes_text="space: fence_space = shared",
        levels=("simt",),
        effects="barrier",
        poison="none",
        targets=("sm_90a",),
    )

    @property
    def space(self) -> str:
        return cast("str", self.attributes.get("space", "shared"))


class SharedAddress(Op):
    """The address of a byte of this block's shared memory."""

    __slots__ = ()
    name = "shared_address"
    definition = Definition(
        name="shared_address",
        summary="The address of a byte of this block's shared memory.",
        attributes_text="offset: int",
        results_text="result: tile[; i32]",
        levels=("simt",),
        poison="none",
    )

    @property
    def result(self) -> Value:
        return self.results[0]

    @property
    def offset(self) -> int:
        return cast("int", self.attributes["offset"])


class MapShared(Op):
    """The address of the same place in another block of the cluster."""

    __slots__ = ()
    name = "map_shared"
    definition = Definition(
        name="map_shared",
        summary="The address of the same place in another block of the cluster.",
        operands_text="address: tile[; i32], rank: tile[; i32]",
        results_text="result: tile[; i32]",
        levels=("simt",),
        poison="elementwise",
        targets=("sm_90a",),
    )

    @property
    def address(self) -> Value:
        return cast("Value", self.arguments[0])

    @property
    def rank(self) -> Value:
        return cast("Value", self.arguments[1])

    @property
    def result(self) -> Value:
        return self.results[0]


class LoadShared(Op):
    """Load an element from shared memory."""

    __slots__ = ()
    name = "load_shared"
    definition = Definition(
        name="load_shared",
        summary="Load an element from shared memory.",
        operands_text="address: tile[; i32]",
        attributes_text="cluster: unit",
        results_text="result: tile[; T]",
        levels=("simt",),
        effects="read",
        poison="memory",
    )

    @property
    def address(self) -> Value:
        return cast("Value", self.arguments[0])

    @property
    def result(self) -> Value:
        return self.results[0]

    @property
    def cluster(self) -> bool:
        return cast("bool", self.attributes.get("cluster", False))


class StoreShared(Op):
    """Store an element to shared memory."""

    __slots__ = ()
    name = "store_shared"
    definition = Definition(
        name="store_shared",
        summary="Store an element to shared memory.",
        operands_text="value: tile[; T], address: tile[; i32]",
        attributes_text="cluster: unit",
        levels=("simt",),
        effects="write",
        poison="memory",
    )

    @property
    def value(self) -> Value:
        return cast("Value", self.arguments[0])

    @property
    def address(self) -> Value:
        return cast("Value", self.arguments[1])

    @property
    def cluster(self) -> bool:
        return cast("bool", self.attributes.get("cluster", False))


class StoreVector(Op):
    """Store registers of a fragment that follow each other."""

    __slots__ = ()
    name = "store_vector"
    definition = Definition(
        name="store_vector",
        summary="Store registers of a fragment that follow each other.",
        operands_text="source: tile[*s; T], address: tile[; A], inside?: tile[; i1]",
        attributes_text="first: int, count: int, offset: int = 0, space: memory_space",
        levels=("simt",),
        effects="write",
        poison="memory",
    )

    @property
    def source(self) -> Value:
        return cast("Value", self.arguments[0])

    @property
    def address(self) -> Value:
        return cast("Value", self.arguments[1])

    @property
    def inside(self) -> Value | None:
        return cast("Value | None", self.arguments[2])

    @property
    def first(self) -> int:
        return cast("int", self.attributes["first"])

    @property
    def count(self) -> int:
        return cast("int", self.attributes["count"])

    @property
    def offset(self) -> int:
        return cast("int", self.attributes.get("offset", 0))

    @property
    def space(self) -> str:
        return cast("str", self.attributes["space"])


class ReduceVector(Op):
    """Combine one element of a fragment with global memory atomically."""

    __slots__ = ()
    name = "reduce_vector"
    definition = Definition(
        name="reduce_vector",
        summary="Combine one element of a fragment with global memory atomically.",
        operands_text="source: tile[*s; T], address: tile[; A], inside?: tile[; i1]",
        attributes_text="first: int, offset: int = 0, mode: atomic_mode, scope: memory_scope",
        levels=("simt",),
        effects="atomic",
        poison="memory",
    )

    @property
    def source(self) -> Value:
        return cast("Value", self.arguments[0])

    @property
    def address(self) -> Value:
        return cast("Value", self.arguments[1])

    @property
    def inside(self) -> Value | None:
        return cast("Value | None", self.arguments[2])

    @property
    def first(self) -> int:
        return cast("int", self.attributes["first"])

    @property
    def offset(self) -> int:
        return cast("int", self.attributes.get("offset", 0))

    @property
    def mode(self) -> str:
        return cast("str", self.attributes["mode"])

    @property
    def scope(self) -> str:
        return cast("str", self.attributes["scope"])


class LoadVector(Op):
    """Load the registers of a fragment, some that follow each other at a time."""

    __slots__ = ()
    name = "load_vector"
    definition = Definition(
        name="load_vector",
        summary="Load the registers of a fragment, some that follow each other at a time.",
        operands_text="addresses*: tile[; _], inside*: tile[; i1]",
        attributes_text="count: int, which: int[], offsets: int[], guards: int[] = [], fill?: padding, space: memory_space",
        results_text="result: tile[*s; T]",
        rules=(
            Rule(
                "instructions",
                "len(which) == len(offsets) and len(guards) in (0, len(which))",
                "`which` and `offsets`, and `guards` if there are any, have an entry for each instruction",
            ),
        ),
        levels=("simt",),
        effects="read",
        poison="memory",
    )

    @property
    def addresses(self) -> tuple[Value, ...]:
        return cast("tuple[Value, ...]", self.arguments[0])

    @property
    def inside(self) -> tuple[Value, ...]:
        return cast("tuple[Value, ...]", self.arguments[1])

    @property
    def result(self) -> Value:
        return self.results[0]

    @property
    def count(self) -> int:
        return cast("int", self.attributes["count"])

    @property
    def which(self) -> tuple[int, ...]:
        return cast("tuple[int, ...]", self.attributes["which"])

    @property
    def offsets(self) -> tuple[int, ...]:
        return cast("tuple[int, ...]", self.attributes["offsets"])

    @property
    def guards(self) -> tuple[int, ...]:
        return cast("tuple[int, ...]", self.attributes.get("guards", ()))

    @property
    def fill(self) -> str | None:
        return cast("str | None", self.attributes.get("fill", None))

    @property
    def space(self) -> str:
        return cast("str", self.attributes["space"])


class StoreMatrix(Op):
    """Store four 8x8 matrices of 16-bit elements, a row of 16 bytes at the address of each lane."""

    __slots__ = ()
    name = "store_matrix"
    definition = Definition(
        name="store_matrix",
        summary="Store four 8x8 matrices of 16-bit elements, a row of 16 bytes at the address of each lane.",
        operands_text="source: tile[*s; T], address: tile[; i32]",
        attributes_text="first: int, offset: int = 0, transpose: unit",
        levels=("simt",),
        effects="write",
        poison="memory",
        targets=("sm_90a",),
    )

    @property
    def source(self) -> Value:
        return cast("Value", self.arguments[0])

    @property
    def address(self) -> Value:
        return cast("Value", self.arguments[1])

    @property
    def first(self) -> int:
        return cast("int", self.attributes["first"])

    @property
    def offset(self) -> int:
        return cast("int", self.attributes.get("offset", 0))

    @property
    def transpose(self) -> bool:
        return cast("bool", self.attributes.get("transpose", False))


class LoadMatrix(Op):
    """Load a fragment by 8x8 matrices, four at a time."""

    __slots__ = ()
    name = "load_matrix"
    definition = Definition(
        name="load_matrix",
        summary="Load a fragment by 8x8 matrices, four at a time.",
        operands_text="addresses*: tile[; i32]",
        attributes_text="which: int[], offsets: int[], transpose: unit",
        results_text="result: tile[*s; T]",
        levels=("simt",),
        effects="read",
        poison="memory",
    )

    @property
    def addresses(self) -> tuple[Value, ...]:
        return cast("tuple[Value, ...]", self.arguments[0])

    @property
    def result(self) -> Value:
        return self.results[0]

    @property
    def which(self) -> tuple[int, ...]:
        return cast("tuple[int, ...]", self.attributes["which"])

    @property
    def offsets(self) -> tuple[int, ...]:
        return cast("tuple[int, ...]", self.attributes["offsets"])

    @property
    def transpose(self) -> bool:
        return cast("bool", self.attributes.get("transpose", False))


class LoadTensor(Op):
    """Start loading a box of a tensor into shared memory."""

    __slots__ = ()
    name = "load_tensor"
    definition = Definition(
        name="load_tensor",
        summary="Start loading a box of a tensor into shared memory.",
        operands_text="map: tensor_map, index*: tile[; i32], destination: tile[; i32], barrier: tile[; i32], multicast?: tile[; i32]",
        attributes_text="evict: eviction = normal",
        levels=("simt",),
        effects="async",
        poison="memory",
        targets=("sm_90a",),
    )

    @property
    def map(self) -> Value:
        return cast("Value", self.arguments[0])

    @property
    def index(self) -> tuple[Value, ...]:
        return cast("tuple[Value, ...]", self.arguments[1])

    @property
    def destination(self) -> Value:
        return cast("Value", self.arguments[2])

    @property
    def barrier(self) -> Value:
        return cast("Value", self.arguments[3])

    @property
    def multicast(self) -> Value | None:
        return cast("Value | None", self.arguments[4])

    @property
    def evict(self) -> str:
        return cast("str", self.attributes.get("evict", "normal"))


class StoreTensor(Op):
    """Start storing a box from shared memory, or combining it with what is there."""

    __slots__ = ()
    name = "store_tensor"
    definition = Definition(
        name="store_tensor",
        summary="Start storing a box from shared memory, or combining it with what is there.",
        operands_text="map: tensor_map, index*: tile[; i32], source: tile[; i32]",
        attributes_text="mode: copy_mode = store",
        levels=("simt",),
        effects="async",
        poison="memory",
        targets=("sm_90a",),
    )

    @property
    def map(self) -> Value:
        return cast("Value", self.arguments[0])

    @property
    def index(self) -> tuple[Value, ...]:
        return cast("tuple[Value, ...]", self.arguments[1])

    @property
    def source(self) -> Value:
        return cast("Value", self.arguments[2])

    @property
    def mode(self) -> str:
        return cast("str", self.attributes.get("mode", "store"))


class CommitBulk(Op):
    """Close the group of the stores issued since the last one."""

    __slots__ = ()
    name = "commit_bulk"
    definition = Definition(
        name="commit_bulk",
        summary="Close the group of the stores issued since the last one.",
        levels=("simt",),
        effects="async",
        poison="none",
        targets=("sm_90a",),
    )


class WaitBulk(Op):
    """Wait until at most `in_flight` groups of this thread are under way."""

    __slots__ = ()
    name = "wait_bulk"
    definition = Definition(
        name="wait_bulk",
        summary="Wait until at most `in_flight` groups of this thread are under way.",
        attributes_text="in_flight: int = 0, until: completion = visible",
        levels=("simt",),
        effects="async",
        poison="none",
        targets=("sm_90a",),
    )

    @property
    def in_flight(self) -> int:
        return cast("int", self.attributes.get("in_flight", 0))

    @property
    def until(self) -> str:
        return cast("str", self.attributes.get("until", "visible"))


class PrefetchTensor(Op):
    """Bring a box of a tensor nearer."""

    __slots__ = ()
    name = "prefetch_tensor"
    definition = Definition(
        name="prefetch_tensor",
        summary="Bring a box of a tensor nearer.",
        operands_text="map: tensor_map, index*: tile[; i32]",
        levels=("simt",),
        effects="async",
        poison="none",
        targets=("sm_90a",),
    )

    @property
    def map(self) -> Value:
        return cast("Value", self.arguments[0])

    @property
    def index(self) -> tuple[Value, ...]:
        return cast("tuple[Value, ...]", self.arguments[1])


class PrefetchTensorMap(Op):
    """Bring a description nearer."""

    __slots__ = ()
    name = "prefetch_tensor_map"
    definition = Definition(
        name="prefetch_tensor_map",
        summary="Bring a description nearer.",
        operands_text="map: tensor_map",
        levels=("simt",),
        effects="async",
        poison="none",
        targets=("sm_90a",),
    )

    @property
    def map(self) -> Value:
        return cast("Value", self.arguments[0])


class CopyAsync(Op):
    """Start copying 4, 8 or 16 bytes from global to shared memory."""

    __slots__ = ()
    name = "copy_async"
    definition = Definition(
        name="copy_async",
        summary="Start copying 4, 8 or 16 bytes from global to shared memory.",
        operands_text="source: tile[; i64], destination: tile[; i32], readable?: tile[; i32]",
        attributes_text="bytes: int, destination_offset: int = 0",
        levels=("simt",),
        effects="async",
        poison="memory",
        targets=("sm_80", "sm_90a"),
    )

    @property
    def source(self) -> Value:
        return cast("Value", self.arguments[0])

    @property
    def destination(self) -> Value:
        return cast("Value", self.arguments[1])

    @property
    def readable(self) -> Value | None:
        return cast("Value | None", self.arguments[2])

    @property
    def bytes(self) -> int:
        return cast("int", self.attributes["bytes"])

    @property
    def destination_offset(self) -> int:
        return cast("int", self.attributes.get("destination_offset", 0))


class CommitAsync(Op):
    """Close the group of this thread's copies since the last one."""

    __slots__ = ()
    name = "commit_async"
    definition = Definition(
        name="commit_async",
        summary="Close the group of this thread's copies since the last one.",
        levels=("simt",),
        effects="async",
        poison="none",
        targets=("sm_80", "sm_90a"),
    )


class WaitAsync(Op):
    """Wait until at most `in_flight` groups of this thread's copies are under way."""

    __slots__ = ()
    name = "wait_async"
    definition = Definition(
        name="wait_async",
        summary="Wait until at most `in_flight` groups of this thread's copies are under way.",
        attributes_text="in_flight: int = 0",
        levels=("simt",),
        effects="async",
        poison="none",
        targets=("sm_80", "sm_90a"),
    )

    @property
    def in_flight(self) -> int:
        return cast("int", self.attributes.get("in_flight", 0))


class GlobalAddress(Op):
    """A pointer as a number of bytes."""

    __slots__ = ()
    name = "global_address"
    definition = Definition(
        name="global_address",
        summary="A pointer as a number of bytes.",
        operands_text="pointer: tile[; ptr[E]]",
        results_text="result: tile[; i64]",
        levels=("simt",),
        poison="elementwise",
    )

    @property
    def pointer(self) -> Value:
        return cast("Value", self.arguments[0])

    @property
    def result(self) -> Value:
        return self.results[0]


class OpenAccumulator(Op):
    """An accumulator with nothing in it."""

    __slots__ = ()
    name = "open_accumulator"
    definition = Definition(
        name="open_accumulator",
        summary="An accumulator with nothing in it.",
        results_text="result: pending[P]",
        levels=("simt",),
        effects="async",
        poison="none",
        targets=("sm_90a",),
    )

    @property
    def result(self) -> Value:
        return self.results[0]


class FenceProducts(Op):
    """Registers written before may be read and written by the products behind."""

    __slots__ = ()
    name = "fence_products"
    definition = Definition(
        name="fence_products",
        summary="Registers written before may be read and written by the products behind.",
        levels=("simt",),
        effects="barrier",
        poison="none",
        targets=("sm_90a",),
    )


class MatrixDescriptor(Op):
    """What products read an operand in shared memory by."""

    __slots__ = ()
    name = "matrix_descriptor"
    definition = Definition(
        name="matrix_descriptor",
        summary="What products read an operand in shared memory by.",
        operands_text="address: tile[; i32]",
        attributes_text="leading: int, stride: int, swizzle: int",
        results_text="result: tile[; i64]",
        levels=("simt",),
        poison="elementwise",
        targets=("sm_90a",),
    )

    @property
    def address(self) -> Value:
        return cast("Value", self.arguments[0])

    @property
    def result(self) -> Value:
        return self.results[0]

    @property
    def leading(self) -> int:
        return cast("int", self.attributes["leading"])

    @property
    def stride(self) -> int:
        return cast("int", self.attributes["stride"])

    @property
    def swizzle(self) -> int:
        return cast("int", self.attributes["swizzle"])


class MultiplyAsync(Op):
    """Start one product of 64 rows and 32 bytes of k on an accumulator."""

    __slots__ = ()
    name = "multiply_async"
    definition = Definition(
        name="multiply_async",
        summary="Start one product of 64 rows and 32 bytes of k on an accumulator.",
        operands_text="lhs: tile, rhs: tile[; i64], acc: tile|pending[C], accumulate?: tile[; i1]",
        attributes_text="dtype: dtype, rows: int = 0, lhs_offset: int = 0, rhs_offset: int = 0, fresh: unit, transpose_lhs: unit, transpose_rhs: unit",
        results_text="result: pending[P]",
        rules=(
            Rule(
                "fresh",
                "not fresh or accumulate is None",
                "a `fresh` product does not accumulate whatever a condition says",
            ),
        ),
        levels=("simt",),
        effects="async",
        traits=("affine",),
        accuracy="dot",
        poison="contract",
        targets=("sm_90a",),
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
    def accumulate(self) -> Value | None:
        return cast("Value | None", self.arguments[3])

    @property
    def result(self) -> Value:
        return self.results[0]

    @property
    def dtype(self) -> str:
        return cast("str", self.attributes["dtype"])

    @property
    def rows(self) -> int:
        return cast("int", self.attributes.get("rows", 0))

    @property
    def lhs_offset(self) -> int:
        return cast("int", self.attributes.get("lhs_offset", 0))

    @property
    def rhs_offset(self) -> int:
        return cast("int", self.attributes.get("rhs_offset", 0))

    @property
    def fresh(self) -> bool:
        return cast("bool", self.attributes.get("fresh", False))

    @property
    def transpose_lhs(self) -> bool:
        return cast("bool", self.attributes.get("transpose_lhs", False))

    @property
    def transpose_rhs(self) -> bool:
        return cast("bool", self.attributes.get("transpose_rhs", False))


class CommitProducts(Op):
    """Close the group of the products started since the last one."""

    __slots__ = ()
    name = "commit_products"
    definition = Definition(
        name="commit_products",
        summary="Close the group of the products started since the last one.",
        levels=("simt",),
        effects="async",
        poison="none",
        targets=("sm_90a",),
    )


class WaitProducts(Op):
    """Wait until at most `in_flight` groups are under way; take results."""

    __slots__ = ()
    name = "wait_products"
    definition = Definition(
        name="wait_products",
        summary="Wait until at most `in_flight` groups are under way; take results.",
        operands_text="pending*: pending[P]",
        attributes_text="in_flight: int = 0",
        results_text="values*: (tuple(p.tile for p in P))",
        levels=("simt",),
        effects="async",
        traits=("affine",),
        poison="none",
        targets=("sm_90a",),
    )

    @property
    def pending(self) -> tuple[Value, ...]:
        return cast("tuple[Value, ...]", self.arguments[0])

    @property
    def values(self) -> tuple[Value, ...]:
        return self.results[0:]

    @property
    def in_flight(self) -> int:
        return cast("int", self.attributes.get("in_flight", 0))


class MakeTensorView(Op):
    """View memory as a strided array."""

    __slots__ = ()
    name = "make_tensor_view"
    definition = Definition(
        name="make_tensor_view",
        summary="View memory as a strided array.",
        operands_text="base: tile[; ptr[E]], dynamic_shape*: tile[; _], dynamic_strides*: tile[; _]",
        results_text="result: tensor_view[V]",
        rules=(
            Rule("element", "element(V) == E", "`base` points to {E}, and the view is {V}"),
            Rule(
                "dynamic_shape_count",
                "len(dynamic_shape) == sum(1 for d in V.shape if d is None)",
                "{V} has {sum(1 for d in V.shape if d is None)} extents that are not in its type, found {len(dynamic_shape)} operands",
            ),
            Rule(
                "dynamic_strides_count",
                "len(dynamic_strides) == sum(1 for d in V.strides if d is None)",
                "{V} has {sum(1 for d in V.strides if d is None)} strides that are not in its type, found {len(dynamic_strides)} operands",
            ),
            Rule(
                "integers",
                "all(is_int(element(t)) for t in dynamic_shape + dynamic_strides)",
                "extents and strides must be integers",
            ),
            Rule(
                "positive",
                "all(d is None or d > 0 for d in V.shape + V.strides)",
                "extents and strides must be positive, found {V}",
            ),
        ),
        levels=("tile", "pipe"),
        poison="address",
        tile_ir={
            "name": "make_tensor_view",
            "code": 67,
            "since": "13.1",
            "names": {"dynamic_shape": "dynamicShape", "dynamic_strides": "dynamicStrides"},
        },
    )

    @property
    def base(self) -> Value:
        return cast("Value", self.arguments[0])

    @property
    def dynamic_shape(self) -> tuple[Value, ...]:
        return cast("tuple[Value, ...]", self.arguments[1])

    @property
    def dynamic_strides(self) -> tuple[Value, ...]:
        return cast("tuple[Value, ...]", self.arguments[2])

    @property
    def result(self) -> Value:
        return self.results[0]


class MakePartitionView(Op):
    """Cut an array into tiles that do not overlap."""

    __slots__ = ()
    name = "make_partition_view"
    definition = Definition(
        name="make_partition_view",
        summary="Cut an array into tiles that do not overlap.",
        operands_text="tensor_view: tensor_view[V]",
        results_text="result: partition_view[P]",
        rules=(
            Rule("tensor", "P.tensor == V", "the view must be of {V}, found {P}"),
            Rule(
                "rank",
                "len(P.tile) == V.rank and len(P.dim_map) == V.rank",
                "{P} must have a tile of rank {V.rank}",
            ),
            Rule(
                "dim_map",
                "is_permutation(P.dim_map, len(P.dim_map))",
                "`dim_map` must name every axis once, found {P.dim_map}",
            ),
            Rule(
                "padding",
                "P.padding in (None, 'zero') or is_float(element(V))",
                "{P.padding} is no value of {element(V)}",
                "pad with zero",
            ),
        ),
        levels=("tile", "pipe"),
        poison="none",
        tile_ir={"name": "make_partition_view", "code": 66, "since": "13.1"},
    )

    @property
    def tensor_view(self) -> Value:
        return cast("Value", self.arguments[0])

    @property
    def result(self) -> Value:
        return self.results[0]


class MakeStridedView(Op):
    """Cut an array into tiles whose origins step by a given number of elements."""

    __slots__ = ()
    name = "make_strided_view"
    definition = Definition(
        name="make_strided_view",
        summary="Cut an array into tiles whose origins step by a given number of elements.",
        operands_text="tensor_view: tensor_view[V]",
        results_text="result: strided_view[P]",
        rules=(
            Rule("tensor", "P.tensor == V", "the view must be of {V}, found {P}"),
            Rule(
                "rank",
                "len(P.tile) == V.rank and len(P.dim_map) == V.rank and len(P.traversal) == V.rank",
                "{P} must have a tile and a traversal of rank {V.rank}",
            ),
            Rule(
                "dim_map",
                "is_permutation(P.dim_map, len(P.dim_map))",
                "`dim_map` must name every axis once, found {P.dim_map}",
            ),
            Rule(
                "traversal",
                "all(s > 0 for s in P.traversal)",
                "the traversal must be positive, found {P.traversal}",
            ),
            Rule(
                "padding",
                "P.padding in (None, 'zero') or is_float(element(V))",
                "{P.padding} is no value of {element(V)}",
                "pad with zero",
            ),
        ),
        levels=("tile", "pipe"),
        poison="none",
        tile_ir={"name": "make_strided_view", "code": 116, "since": "13.3"},
    )

    @property
    def tensor_view(self) -> Value:
        return cast("Value", self.arguments[0])

    @property
    def result(self) -> Value:
        return self.results[0]


class MakeGatherScatterView(Op):
    """View an array by rows whose numbers are given in a tile."""

    __slots__ = ()
    name = "make_gather_scatter_view"
    definition = Definition(
        name="make_gather_scatter_view",
        summary="View an array by rows whose numbers are given in a tile.",
        operands_text="tensor_view: tensor_view[V]",
        results_text="result: gather_scatter_view[P]",
        rules=(
            Rule("tensor", "P.tensor == V", "the view must be of {V}, found {P}"),
            Rule("rank", "len(P.tile) == V.rank", "{P} must have a tile of rank {V.rank}"),
            Rule(
                "padding",
                "P.padding in (None, 'zero') or is_float(element(V))",
                "{P.padding} is no value of {element(V)}",
                "pad with zero",
            ),
        ),
        levels=("tile", "pipe"),
        poison="none",
        tile_ir={"name": "make_gather_scatter_view", "code": 115, "since": "13.3"},
    )

    @property
    def tensor_view(self) -> Value:
        return cast("Value", self.arguments[0])

    @property
    def result(self) -> Value:
        return self.results[0]


class GetIndexSpaceShape(Op):
    """The number of indices of a tile view along each axis of the tile."""

    __slots__ = ()
    name = "get_index_space_shape"
    definition = Definition(
        name="get_index_space_shape",
        summary="The number of indices of a tile view along each axis of the tile.",
        operands_text="src: view[V]",
        results_text="extents*: tile[; I]",
        where={"I": ("i8", "i16", "i32", "i64")},
        rules=(
            Rule(
                "count",
                "len(extents) == V.rank",
                "{V} has {V.rank} axes, found {len(extents)} results",
            ),
        ),
        levels=("tile", "pipe"),
        poison="none",
        tile_ir={
            "name": "get_index_space_shape",
            "code": 45,
            "since": "13.1",
            "names": {"extents": "result"},
        },
    )

    @property
    def src(self) -> Value:
        return cast("Value", self.arguments[0])

    @property
    def extents(self) -> tuple[Value, ...]:
        return self.results[0:]


class GetTensorShape(Op):
    """The extents of a tensor view."""

    __slots__ = ()
    name = "get_tensor_shape"
    definition = Definition(
        name="get_tensor_shape",
        summary="The extents of a tensor view.",
        operands_text="src: tensor_view[V]",
        results_text="extents*: tile[; I]",
        where={"I": ("i8", "i16", "i32", "i64")},
        rules=(
            Rule(
                "count",
                "len(extents) == V.rank",
                "{V} has {V.rank} axes, found {len(extents)} results",
            ),
        ),
        levels=("tile", "pipe"),
        poison="none",
        tile_ir={
            "name": "get_tensor_shape",
            "code": 47,
            "since": "13.1",
            "names": {"extents": "result"},
        },
    )

    @property
    def src(self) -> Value:
        return cast("Value", self.arguments[0])

    @property
    def extents(self) -> tuple[Value, ...]:
        return self.results[0:]


OPS: dict[str, type[Op]] = {
    "atomic_rmw_tko": AtomicRmwTko,
    "atomic_cas_tko": AtomicCasTko,
    "atomic_red_view_tko": AtomicRedViewTko,
    "get_tile_block_id": GetTileBlockId,
    "get_num_tile_blocks": GetNumTileBlocks,
    "gdc_launch_dependents_tko": GdcLaunchDependentsTko,
    "gdc_wait_tko": GdcWaitTko,
    "for": For,
    "loop": Loop,
    "break": Break,
    "continue": Continue,
    "if": If,
    "yield": Yield,
    "return": Return,
    "ftof": Ftof,
    "ftoi": Ftoi,
    "itof": Itof,
    "exti": Exti,
    "trunci": Trunci,
    "bitcast": Bitcast,
    "pack": Pack,
    "unpack": Unpack,
    "int_to_ptr": IntToPtr,
    "ptr_to_int": PtrToInt,
    "ptr_to_ptr": PtrToPtr,
    "offset": Offset,
    "assume": Assume,
    "assert": Assert,
    "print_tko": PrintTko,
    "addf": Addf,
    "subf": Subf,
    "mulf": Mulf,
    "divf": Divf,
    "fma": Fma,
    "remf": Remf,
    "negf": Negf,
    "absf": Absf,
    "rcp": Rcp,
    "maxf": Maxf,
    "minf": Minf,
    "cmpf": Cmpf,
    "ceil": Ceil,
    "floor": Floor,
    "truncf": Truncf,
    "roundf": Roundf,
    "sqrt": Sqrt,
    "rsqrt": Rsqrt,
    "exp": Exp,
    "exp2": Exp2,
    "expm1": Expm1,
    "log": Log,
    "log2": Log2,
    "log1p": Log1p,
    "pow": Pow,
    "fpowi": Fpowi,
    "sin": Sin,
    "cos": Cos,
    "tan": Tan,
    "sinh": Sinh,
    "cosh": Cosh,
    "tanh": Tanh,
    "atan2": Atan2,
    "erf": Erf,
    "addi": Addi,
    "subi": Subi,
    "muli": Muli,
    "mulhii": Mulhii,
    "negi": Negi,
    "absi": Absi,
    "divi": Divi,
    "remi": Remi,
    "maxi": Maxi,
    "mini": Mini,
    "cmpi": Cmpi,
    "andi": Andi,
    "ori": Ori,
    "xori": Xori,
    "shli": Shli,
    "shri": Shri,
    "mmaf": Mmaf,
    "mmai": Mmai,
    "mmaf_scaled": MmafScaled,
    "mmaf_sparse": MmafSparse,
    "make_token": MakeToken,
    "join_tokens": JoinTokens,
    "load_ptr_tko": LoadPtrTko,
    "store_ptr_tko": StorePtrTko,
    "load_view_tko": LoadViewTko,
    "store_view_tko": StoreViewTko,
    "memory_fence_alias_tko": MemoryFenceAliasTko,
    "alloca": Alloca,
    "multimem_load_reduce_view_tko": MultimemLoadReduceViewTko,
    "multimem_reduce_view_tko": MultimemReduceViewTko,
    "multimem_store_view_tko": MultimemStoreViewTko,
    "global": Global,
    "get_global": GetGlobal,
    "sort": Sort,
    "topk": Topk,
    "argmax": Argmax,
    "argmin": Argmin,
    "histogram": Histogram,
    "role": Role,
    "elected": Elected,
    "if_rows": IfRows,
    "alloc_buffer": AllocBuffer,
    "alloc_ring": AllocRing,
    "slot": Slot,
    "advance": Advance,
    "subview": Subview,
    "transpose_buffer": TransposeBuffer,
    "reinterpret_buffer": ReinterpretBuffer,
    "alloc_barrier": AllocBarrier,
    "arrive_barrier": ArriveBarrier,
    "wait_barrier": WaitBarrier,
    "alloc_named_barrier": AllocNamedBarrier,
    "sync_named": SyncNamed,
    "arrive_named": ArriveNamed,
    "sync": Sync,
    "cluster_rank": ClusterRank,
    "cluster_arrive": ClusterArrive,
    "cluster_wait": ClusterWait,
    "step": Step,
    "stagger": Stagger,
    "set_priority": SetPriority,
    "atomic_inc_wrap_tko": AtomicIncWrapTko,
    "fence_proxy": FenceProxy,
    "order_fence": OrderFence,
    "copy_in": CopyIn,
    "copy_out": CopyOut,
    "commit_copies": CommitCopies,
    "wait_copies": WaitCopies,
    "load_buffer": LoadBuffer,
    "store_buffer": StoreBuffer,
    "prefetch_view": PrefetchView,
    "mma_open": MmaOpen,
    "mma_start": MmaStart,
    "mma_wait": MmaWait,
    "philox": Philox,
    "reduce": Reduce,
    "scan": Scan,
    "constant": Constant,
    "iota": Iota,
    "select": Select,
    "broadcast": Broadcast,
    "reshape": Reshape,
    "permute": Permute,
    "cat": Cat,
    "extract": Extract,
    "insert": Insert,
    "gather": Gather,
    "change_layout": ChangeLayout,
    "thread_id": ThreadId,
    "lane_id": LaneId,
    "warp_id": WarpId,
    "elect": Elect,
    "set_registers": SetRegisters,
    "sync_threads": SyncThreads,
    "arrive_threads": ArriveThreads,
    "sync_warp": SyncWarp,
    "arrive_cluster": ArriveCluster,
    "wait_cluster": WaitCluster,
    "init_mbarrier": InitMbarrier,
    "fence_mbarrier_init": FenceMbarrierInit,
    "arrive_mbarrier": ArriveMbarrier,
    "wait_mbarrier": WaitMbarrier,
    "fence_proxy_async": FenceProxyAsync,
    "shared_address": SharedAddress,
    "map_shared": MapShared,
    "load_shared": LoadShared,
    "store_shared": StoreShared,
    "store_vector": StoreVector,
    "reduce_vector": ReduceVector,
    "load_vector": LoadVector,
    "store_matrix": StoreMatrix,
    "load_matrix": LoadMatrix,
    "load_tensor": LoadTensor,
    "store_tensor": StoreTensor,
    "commit_bulk": CommitBulk,
    "wait_bulk": WaitBulk,
    "prefetch_tensor": PrefetchTensor,
    "prefetch_tensor_map": PrefetchTensorMap,
    "copy_async": CopyAsync,
    "commit_async": CommitAsync,
    "wait_async": WaitAsync,
    "global_address": GlobalAddress,
    "open_accumulator": OpenAccumulator,
    "fence_products": FenceProducts,
    "matrix_descriptor": MatrixDescriptor,
    "multiply_async": MultiplyAsync,
    "commit_products": CommitProducts,
    "wait_products": WaitProducts,
    "make_tensor_view": MakeTensorView,
    "make_partition_view": MakePartitionView,
    "make_strided_view": MakeStridedView,
    "make_gather_scatter_view": MakeGatherScatterView,
    "get_index_space_shape": GetIndexSpaceShape,
    "get_tensor_shape": GetTensorShape,
}
"""Every operation class by name."""
