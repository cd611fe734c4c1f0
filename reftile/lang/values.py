"""What the names of a kernel stand for while it is traced.

A value known while tracing is the Python object itself: numbers, tuples, strings, dtypes,
functions, modules. The classes here stand for what is known only when the kernel runs.
"""

from __future__ import annotations

import ast
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, fields, is_dataclass
from typing import TYPE_CHECKING, TypeAlias, TypeGuard, cast

from reftile.ir.core import Value
from reftile.ir.types import TileType
from reftile.lang.dtypes import DType
from reftile.lang.enums import PaddingMode

if TYPE_CHECKING:
    from reftile.lang.source import FunctionSource

Number: TypeAlias = bool | int | float

CELL = "%"
"""Names that begin with this are state of a dialect, carried through loops and branches beside the
names of the user's."""


class Foreign:
    """A value of a dialect of the language; what can be done with it stands in `foreign`."""

    def describe(self) -> str:
        """Name the value in a message."""
        return f"a {type(self).__name__.lower()}"

    def advice(self) -> str:
        """What to write where a tile or a number is needed."""
        return ""

    @property
    def result(self) -> Value | None:
        """The value of the IR that this stands for, if it is one."""
        return None

    def attributes(self) -> tuple[str, ...]:
        """The names that `attribute` finds."""
        return ()

    def is_same(self, other: object) -> bool:
        """True if both are the same without looking at the run."""
        return self is other

    def join(self, values: Sequence[object], carry: str) -> object | None:
        """How `values`, which may be of other kinds, are carried: a slot of `merge`, or None."""
        return None


@dataclass(frozen=True, slots=True, eq=False)
class Tile:
    """A tile; a scalar has the shape (). `constant` is set for a typed constant scalar."""

    value: Value
    dtype: DType
    constant: Number | None = None

    @property
    def type(self) -> TileType:
        """The tile's type in the IR."""
        return cast("TileType", self.value.type)

    @property
    def shape(self) -> tuple[int, ...]:
        """The extents."""
        return self.type.shape

    @property
    def ndim(self) -> int:
        """The number of axes."""
        return len(self.shape)

    def __str__(self) -> str:
        return f"<tile[{self.dtype.name}, {self.shape}]>"


Index: TypeAlias = int | Tile


@dataclass(frozen=True, slots=True, eq=False)
class Token:
    """A token."""

    value: Value


@dataclass(frozen=True, slots=True, eq=False)
class Array:
    """An array in memory. Extents and strides count elements; an int is a constant."""

    name: str
    dtype: DType
    pointer: Value
    shape: tuple[Index, ...]
    strides: tuple[Index, ...]
    index_dtype: DType

    @property
    def ndim(self) -> int:
        """The number of axes."""
        return len(self.shape)

    def __str__(self) -> str:
        return f"<array[{self.dtype.name}, {self.ndim}d]>"


@dataclass(frozen=True, slots=True, eq=False)
class TiledView:
    """An array cut into tiles of one shape."""

    array: Array
    tile_shape: tuple[int, ...]
    traversal_steps: tuple[int, ...]
    padding_mode: PaddingMode

    @property
    def dtype(self) -> DType:
        """The dtype of the elements."""
        return self.array.dtype


@dataclass(frozen=True, slots=True, eq=False)
class RawArrayMemory:
    """An array's memory, reached by offsets from its first element."""

    array: Array

    @property
    def dtype(self) -> DType:
        """The dtype of the elements."""
        return self.array.dtype


@dataclass(frozen=True, slots=True)
class Slice:
    """`length` elements from `start` on, along an axis of an array."""

    start: object
    length: object


@dataclass(frozen=True, slots=True, eq=False)
class LocalFunction:
    """A function or lambda written inside another one.

    captured: the names around it: those of the function it stands in, as they are when it is
        called, or a copy, when it has been carried away.
    """

    source: FunctionSource
    captured: Callable[[], Mapping[str, object]]
    defaults: Mapping[str, object]
    lookup: Callable[[str], object]
    local_names: frozenset[str]


@dataclass(frozen=True, slots=True, eq=False)
class BoundMethod:
    """A method of a value of the language."""

    function: Callable[..., object]
    owner: object
    name: str


@dataclass(frozen=True, slots=True, eq=False)
class Undefined:
    """A name that has no value here; `why` says so to the user."""

    why: str
    where: ast.AST | None = None


@dataclass(frozen=True, slots=True, eq=False)
class FormattedTile:
    """A tile inside an f-string, with its format."""

    tile: Tile
    spec: str


@dataclass(frozen=True, slots=True, eq=False)
class FormattedText:
    """An f-string with tiles in it."""

    parts: tuple[str | FormattedTile, ...]


Runtime: TypeAlias = Tile | Token | Array | TiledView | RawArrayMemory


def is_number(value: object) -> TypeGuard[Number]:
    """True for Python numbers that are constants of the language."""
    return isinstance(value, (bool, int, float))


def items_of(value: object) -> tuple[object, ...] | None:
    """The items of a tuple or list, or None for anything else."""
    if isinstance(value, (tuple, list)):
        return tuple(cast("tuple[object, ...]", value))
    return None


def as_items(value: object) -> tuple[object, ...]:
    """The items of a tuple or list; anything else is the only item."""
    items = items_of(value)
    return (value,) if items is None else items


def is_static(value: object) -> bool:
    """True if nothing in `value` depends on the run."""
    if isinstance(value, (Tile, Token, Array, TiledView, RawArrayMemory, Undefined, FormattedText)):
        return False
    if isinstance(value, Foreign):
        return False
    if isinstance(value, (tuple, list)):
        return all(is_static(item) for item in cast("tuple[object, ...]", value))
    if isinstance(value, dict):
        return all(is_static(item) for item in cast("dict[object, object]", value).values())
    if isinstance(value, Slice):
        return is_static(value.start)
    if is_record(value):
        return all(is_static(item) for item in record_items(value))
    return True


def is_record(value: object) -> bool:
    """True for an instance of a dataclass of the user's."""
    return (
        is_dataclass(value)
        and not isinstance(value, type)
        and not type(value).__module__.startswith("reftile.")
    )


def record_items(value: object) -> tuple[object, ...]:
    """The field values of a dataclass instance, in order."""
    return tuple(getattr(value, f.name) for f in fields(cast("type", value)))


def describe(value: object) -> str:
    """Name a value in a message."""
    match value:
        case Tile():
            kind = "scalar" if not value.shape else "tile"
            return f"a {value.dtype.name} {kind}" + (
                f" of shape {value.shape}" if value.shape else ""
            )
        case Array():
            return f"the {value.ndim}-dimensional {value.dtype.name} array `{value.name}`"
        case Token():
            return "a token"
        case TiledView():
            return "a tiled view"
        case RawArrayMemory():
            return "the memory of an array"
        case Undefined():
            return "an undefined name"
        case Foreign():
            return value.describe()
        case tuple():
            items = cast("tuple[object, ...]", value)
            return "(" + ", ".join(map(describe, items)) + ("," if len(items) == 1 else "") + ")"
        case bool() | int() | float() | str() | None:
            return repr(value)
        case LocalFunction():
            return f"the function `{value.source.name}`"
        case _:
            name = getattr(value, "__name__", None)
            return (
                f"`{name}`" if isinstance(name, str) else f"a value of type {type(value).__name__}"
            )
