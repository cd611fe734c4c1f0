"""The trace of one kernel: where operations are appended, where we are in the user's source.

`Trace` is what the implementations of the language's names get as their first argument.
"""

from __future__ import annotations

from collections.abc import Callable, Generator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from math import inf, isfinite, prod
from re import compile as pattern
from typing import Any, Protocol

import numpy as np

from reftile.ir.attributes import Attribute, Dense, element_bits
from reftile.ir.build import Builder
from reftile.ir.core import Block, Kernel, Op, Value
from reftile.ir.diagnostics import Diagnosis, ReftileError, Span
from reftile.ir.dtypes import F64
from reftile.ir.dtypes import DType as ElementType
from reftile.ir.numbers import convert
from reftile.ir.ops import OPS
from reftile.ir.types import LARGEST_RANK, LARGEST_TILE, TileType, Type
from reftile.lang.captures import Captures
from reftile.lang.dtypes import DType
from reftile.lang.values import Number, Tile, Token, as_items, describe, is_number

Arguments = Sequence[object]
Inline = Callable[["Trace", object, Arguments, Mapping[str, object]], object]


class Names(Protocol):
    """Whoever has the names of the function that is being traced."""

    names: dict[str, object]


_TILE_ONLY = pattern(
    r"\bct\.(load|store|gather|scatter|insert|assert_|static_exception|gather_axis|unpack_\w+)\b"
)
"""What hints name that pipe kernels do not have."""


@dataclass(slots=True)
class Options:
    """How kernels are traced.

    tokens: `auto` inserts them, `none` leaves only those that the author passes.
    """

    tokens: str = "auto"
    deepest_call: int = 400
    longest_unrolling: int = 10000


class Trace:
    """Appends operations to the kernel under construction.

    call: calls anything callable with values of the language. inline: calls a Python function by
    tracing its body. Both are given by the tracer, which stands above this module.

    frame: the function that is being traced. cells: what cells hold before anything has set them.
    dialect: what a dialect keeps for the length of the trace. view_names: names of views so far.
    """

    def __init__(
        self, kernel: Kernel, captures: Captures, options: Options, call: Inline, inline: Inline
    ) -> None:
        self.kernel = kernel
        self.captures = captures
        self.options = options
        self.builder = Builder(kernel.body.block, kernel.span)
        self._call = call
        self._inline = inline
        self.depth = 0
        self.frame: Names | None = None
        self.cells: dict[str, Callable[[], object]] = {}
        self.dialect: object = None
        self.view_names: set[str] = set()

    @property
    def block(self) -> Block:
        """The block that operations are appended to."""
        return self.builder.block

    @property
    def span(self) -> Span:
        """Where in the user's source the trace is."""
        return self.builder.span

    @contextmanager
    def at(self, span: Span) -> Generator[None]:
        """Trace `span` for the length of a `with`."""
        with self.builder.at(span):
            yield

    @contextmanager
    def inside(self, block: Block) -> Generator[None]:
        """Append to `block` for the length of a `with`."""
        outer, self.builder.block = self.builder.block, block
        try:
            yield
        finally:
            self.builder.block = outer

    def cell(self, name: str) -> object:
        """What a cell holds here."""
        assert self.frame is not None
        names = self.frame.names
        return names[name] if name in names else self.cells[name]()

    def set_cell(self, name: str, value: object) -> None:
        """Let a cell hold `value` from here on."""
        assert self.frame is not None
        self.frame.names[name] = value

    def call(self, function: object, *arguments: object) -> object:
        """Call a function of the user's, or a name of the language."""
        return self._call(self, function, arguments, {})

    def call_with(
        self, function: object, arguments: Arguments, keywords: Mapping[str, object]
    ) -> object:
        """Call a function of the user's, or a name of the language, with keywords."""
        return self._call(self, function, arguments, keywords)

    def inline(
        self, function: object, arguments: Arguments, keywords: Mapping[str, object]
    ) -> object:
        """Trace the body of a Python function in place of a call of it."""
        return self._inline(self, function, arguments, keywords)

    # Errors

    def error(
        self, rule: str, message: str, hint: str = "", span: Span | None = None
    ) -> ReftileError:
        """Return (to be raised) a diagnosis about the place that is being traced.

        hint: names of the language with `ct.` before them; pipe kernels read of theirs.
        """
        if self.kernel.level == "pipe":
            hint = "" if _TILE_ONLY.search(hint) else hint.replace("ct.", "pipe.")
        return ReftileError(Diagnosis(f"lang.{rule}", message, span or self.span, hint))

    # Operations

    def _create(
        self,
        name: str,
        arguments: Sequence[Value | Sequence[Value] | None],
        types: Sequence[Type] | None,
        attributes: Mapping[str, Attribute | None],
    ) -> Op:
        given: dict[str, Any] = dict(attributes)
        return self.builder.create(OPS[name], *arguments, types=types, **given)

    def op(
        self,
        name: str,
        *arguments: Value | Sequence[Value] | None,
        types: Sequence[Type] | None = None,
        **attributes: Attribute | None,
    ) -> Op:
        """Append the operation called `name`; arguments by port, as in its record."""
        return self._create(name, arguments, types, attributes)

    def value(
        self,
        name: str,
        *arguments: Value | Sequence[Value] | None,
        types: Sequence[Type] | None = None,
        **attributes: Attribute | None,
    ) -> Value:
        """Append an operation and return its first result."""
        return self.op(name, *arguments, types=types, **attributes).results[0]

    def structure(
        self,
        name: str,
        blocks: Sequence[Block],
        *arguments: Value | Sequence[Value] | None,
        types: Sequence[Type],
        **attributes: Attribute | None,
    ) -> Op:
        """Append an operation whose regions have been traced already; missing ones are optional."""
        op = self._create(name, arguments, types, attributes)
        op.regions = op.regions[: len(blocks)]
        for region, block in zip(op.regions, blocks, strict=True):
            region.block, block.parent = block, region
        return op

    def constant(self, number: Number, dtype: DType, shape: tuple[int, ...] = ()) -> Value:
        """A tile in which every element is `number`, rounded to `dtype`."""
        type = TileType(shape, dtype.element)
        if dtype.category == "bool":
            number = bool(number)
        elif dtype.is_int:
            number = self._wrap(int(number), dtype)
        else:
            number = self._round(number, dtype)
        return self.op("constant", types=[type], value=_dense(number, type)).results[0]

    def _round(self, number: Number, dtype: DType) -> float:
        """The number as a float that stays finite in `dtype`, if it is finite."""
        try:
            value = float(number)
        except OverflowError:
            value = inf
        element = dtype.element
        if isinstance(number, float) and not isfinite(number):
            return value
        if abs(value) > element.max_finite and not _rounds_to_finite(value, element):
            raise self.error(
                "constant.range",
                f"{value:g} does not fit {dtype.name}",
                f"the greatest finite {dtype.name} is {element.max_finite:g}; "
                'for infinity write float("inf")',
            )
        return value

    def _wrap(self, number: int, dtype: DType) -> int:
        low = -(1 << (dtype.bits - 1)) if dtype.signed else 0
        high = (1 << (dtype.bits - (1 if dtype.signed else 0))) - 1
        if not low <= number <= high:
            raise self.error(
                "constant.range",
                f"{number} does not fit {dtype.name}",
                f"{dtype.name} holds {low} to {high}",
            )
        # The IR's integers are signless: the upper half of an unsigned type is negative there.
        return number - (1 << dtype.bits) if number > (1 << (dtype.bits - 1)) - 1 else number

    # What arguments of names must be

    def static_int(self, value: object, what: str) -> int:
        """An integer known now, or a diagnosis that names `what`."""
        found = static_number(value)
        if found is None:
            found = _index_of(value)
        if isinstance(found, bool) or not isinstance(found, int):
            raise self.error(
                "constant.int",
                f"`{what}` must be an integer known when the kernel is compiled, "
                f"found {describe(value)}",
                "a literal, a `Constant` parameter, an extent of a tile, or arithmetic on these",
            )
        return found

    def static_bool(self, value: object, what: str) -> bool:
        """A truth value known now, or a diagnosis that names `what`."""
        found = static_number(value)
        if found is None:
            raise self.error(
                "constant.bool",
                f"`{what}` must be known when the kernel is compiled, found {describe(value)}",
            )
        return bool(found)

    def static_shape(self, value: object, what: str = "shape") -> tuple[int, ...]:
        """A tuple of positive extents known now; a single integer is a tuple of one."""
        items = as_items(value)
        shape = tuple(self.static_int(item, what) for item in items)
        if any(extent <= 0 for extent in shape):
            raise self.error("shape.positive", f"`{what}` needs positive extents, found {shape}")
        if prod(shape) > LARGEST_TILE or len(shape) > LARGEST_RANK:
            raise self.error(
                "shape.size",
                f"`{what}` {shape} is too large: a tile has at most {LARGEST_TILE} "
                f"elements along {LARGEST_RANK} axes",
            )
        return shape

    def static_axis(self, value: object, rank: int, what: str = "axis") -> int:
        """An axis of something of rank `rank`; negative ones count from the end."""
        axis = self.static_int(value, what)
        if not -rank <= axis < rank:
            raise self.error(
                "axis", f"`{what}` is {axis}, and there are {rank} axes", "axes count from 0"
            )
        return axis % rank

    def tile(self, value: object, what: str) -> Tile:
        """A tile, or a diagnosis that names `what`."""
        if isinstance(value, Tile):
            return value
        raise self.error("type.tile", f"`{what}` must be a tile, found {describe(value)}")

    def token(self, value: object) -> Value | None:
        """The token of a `token=` argument; None waits for nothing."""
        if isinstance(value, Token):
            return value.value
        raise self.error(
            "type.token",
            f"`token` must be a token, found {describe(value)}",
            "`ct.make_token()` gives one; operations given one return one",
        )


def static_number(value: object) -> Number | None:
    """The number that a value is known to be, or None."""
    if is_number(value):
        return value
    if isinstance(value, Tile):
        return value.constant
    return None


def _rounds_to_finite(value: float, element: ElementType) -> bool:
    """True if a number beyond the greatest of a format is near enough to be rounded to it."""
    return isfinite(value) and bool(np.isfinite(convert(np.asarray([value]), F64, element)[0]))


def _index_of(value: object) -> int | None:
    """What NumPy integers and the like are as an index."""
    index = getattr(type(value), "__index__", None)
    try:
        return int(index(value)) if index is not None else None
    except TypeError:  # arrays of NumPy that are no single integer
        return None


def _dense(number: Number, type: TileType) -> Dense:
    element: ElementType = type.dtype
    return Dense.of_bits([element_bits(number, element)], type)
