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
        effects="atomic",
        poison="memory",
        tile_ir={"name": "atomic_rmw_tko", "code": 8, "since": "13.1"},
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
        effects="atomic",
        poison="memory",
        tile_ir={"name": "atomic_cas_tko", "code": 7, "since": "13.1"},
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
        effects="atomic",
        poison="memory",
        tile_ir={
            "name": "atomic_red_view_tko",
            "code": 117,
            "since": "13.3",
            "arguments": {"inbounds": "13.5"},
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
        tile_ir={"name": "get_tile_block_id", "code": 48, "since": "13.1"},
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
        tile_ir={"name": "get_num_tile_blocks", "code": 46, "since": "13.1"},
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
        tile_ir={"name": "loop", "code": 65, "since": "13.1"},
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
        tile_ir={"name": "break", "code": 10, "since": "13.1"},
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
        tile_ir={"name": "assume", "code": 6, "since": "13.1"},
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
            Rule(
                "padding_without_mask",
                "padding_value is None or mask is not None",
                "`padding_value` has no use without a mask",
            ),
        ),
        effects="read",
        poison="memory",
        tile_ir={"name": "load_ptr_tko", "code": 61, "since": "13.1"},
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
        effects="write",
        poison="memory",
        tile_ir={"name": "store_ptr_tko", "code": 101, "since": "13.1"},
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
        effects="read",
        poison="memory",
        tile_ir={
            "name": "load_view_tko",
            "code": 62,
            "since": "13.1",
            "arguments": {"inbounds": "13.4"},
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
        effects="write",
        poison="memory",
        tile_ir={
            "name": "store_view_tko",
            "code": 102,
            "since": "13.1",
            "arguments": {"inbounds": "13.4"},
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
        effects="allocate",
        poison="none",
        tile_ir={"name": "alloca", "code": 113, "since": "13.3"},
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
        tile_ir={"name": "multimem_load_reduce_view_tko", "code": 123, "since": "13.5"},
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
        tile_ir={"name": "multimem_reduce_view_tko", "code": 124, "since": "13.5"},
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
        tile_ir={"name": "multimem_store_view_tko", "code": 125, "since": "13.5"},
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
        tile_ir={"name": "get_global", "code": 44, "since": "13.1"},
    )

    @property
    def result(self) -> Value:
        return self.results[0]

    @property
    def symbol(self) -> str:
        return cast("str", self.attributes["symbol"])


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
        tile_ir={"name": "make_tensor_view", "code": 67, "since": "13.1"},
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
        tile_ir={"name": "get_index_space_shape", "code": 45, "since": "13.1"},
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
        tile_ir={"name": "get_tensor_shape", "code": 47, "since": "13.1"},
    )

    @property
    def src(self) -> Value:
        return cast("Value", self.arguments[0])

    @property
    def extents(self) -> tuple[Value, ...]:
        return self.results[0:]


OPS: dict[str, type[Op]] = {
    "addi": Addi,
    "constant": Constant,
    "mmaf": Mmaf,
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
    "assume": Assume,
    "assert": Assert,
    "print_tko": PrintTko,
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
    "make_tensor_view": MakeTensorView,
    "make_partition_view": MakePartitionView,
    "make_strided_view": MakeStridedView,
    "make_gather_scatter_view": MakeGatherScatterView,
    "get_index_space_shape": GetIndexSpaceShape,
    "get_tensor_shape": GetTensorShape,
}
"""Every operation class by name."""
