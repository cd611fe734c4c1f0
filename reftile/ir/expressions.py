"""The expression language of records: a whitelisted subset of Python expressions.

Rules, result types and meanings are written in it. It has no statements, no attributes beyond
those of types,
and no calls beyond a stated vocabulary, so that another language can implement it.
"""

from __future__ import annotations

import ast
from collections.abc import Callable, Mapping
from math import prod
from types import CodeType

from reftile.ir.buffer_layout import (
    layout_fault,
    place_bytes,
    sliced_layout,
    transposed_layout,
)
from reftile.ir.dtypes import DTYPES
from reftile.ir.types import (
    BufferType,
    FragmentType,
    PendingType,
    PointerType,
    TileType,
    TokenType,
    Type,
    dims,
)

_NODES = (
    ast.Expression,
    ast.BoolOp,
    ast.And,
    ast.Or,
    ast.UnaryOp,
    ast.Not,
    ast.USub,
    ast.Invert,
    ast.BinOp,
    ast.Add,
    ast.Sub,
    ast.Mult,
    ast.FloorDiv,
    ast.Div,
    ast.Mod,
    ast.Pow,
    ast.BitAnd,
    ast.BitOr,
    ast.BitXor,
    ast.LShift,
    ast.RShift,
    ast.Compare,
    ast.Eq,
    ast.NotEq,
    ast.Lt,
    ast.LtE,
    ast.Gt,
    ast.GtE,
    ast.In,
    ast.NotIn,
    ast.Is,
    ast.IsNot,
    ast.Call,
    ast.keyword,
    ast.Name,
    ast.Load,
    ast.Store,
    ast.Constant,
    ast.Tuple,
    ast.List,
    ast.Subscript,
    ast.Slice,
    ast.IfExp,
    ast.GeneratorExp,
    ast.comprehension,
    ast.Attribute,
    ast.JoinedStr,
    ast.FormattedValue,
    ast.Starred,
)
_TYPE_FIELDS = frozenset(
    "tile tile_type tensor element shape strides padding dim_map rank sparse_dim traversal "
    "buffer stages count "
    "arrivals threads layout dtype pointee name size size_bytes access bits kind scope".split()
)


class BadExpression(ValueError):
    """An expression of a record steps outside the language."""


def compile_expression(text: str) -> CodeType:
    """Compile `text` after checking that it stays inside the language.

    Raises:
        BadExpression: a construct outside the language, named.
    """
    try:
        tree = ast.parse(text.strip(), mode="eval")
    except SyntaxError as error:
        raise BadExpression(f"{text!r}: {error.msg}") from error
    for node in ast.walk(tree):
        if not isinstance(node, _NODES):
            raise BadExpression(f"{text!r}: {type(node).__name__} is outside the language")
        if isinstance(node, ast.Attribute) and node.attr not in _TYPE_FIELDS:
            raise BadExpression(f"{text!r}: .{node.attr} is not a field of a type")
        if isinstance(node, ast.Name) and node.id.startswith("_"):
            raise BadExpression(f"{text!r}: `{node.id}` is outside the language")
        if isinstance(node, ast.Call) and not isinstance(node.func, ast.Name):
            raise BadExpression(f"{text!r}: only functions of the vocabulary can be called")
    return compile(tree, f"<record: {text}>", "eval")


def compile_message(text: str) -> CodeType:
    """Compile a message with `{expressions}` in it."""
    return compile_expression("f" + repr(text))


def free_names(text: str) -> frozenset[str]:
    """The names that `text` uses and does not bind itself."""
    tree = ast.parse(text.strip(), mode="eval")
    stored = {
        n.id for n in ast.walk(tree) if isinstance(n, ast.Name) and isinstance(n.ctx, ast.Store)
    }
    return frozenset(n.id for n in ast.walk(tree) if isinstance(n, ast.Name) and n.id not in stored)


def evaluate(code: CodeType, names: Mapping[str, object]) -> object:
    """Evaluate compiled `code` with the vocabulary of types and `names`."""
    return eval(code, {"__builtins__": {}, **VOCABULARY, **names})


def name_of(element: object) -> object:
    """A dtype as the records write it: by its name. Pointers and anything else stay as they are."""
    return getattr(element, "name", element) if not isinstance(element, PointerType) else element


def _bits(element: object) -> int:
    return 64 if isinstance(element, PointerType) else DTYPES[str(element)].bits


def _is_float(element: object) -> bool:
    return not isinstance(element, PointerType) and DTYPES[str(element)].kind == "float"


def _is_int(element: object) -> bool:
    return not isinstance(element, PointerType) and DTYPES[str(element)].kind == "int"


def _is_pointer(element: object) -> bool:
    return isinstance(element, PointerType)


def _element(value: object) -> object:
    """The element of a tile, view, buffer or pending tile, dtypes by name."""
    if isinstance(value, PendingType):
        return name_of(value.tile.element)
    return name_of(value.element)  # type: ignore[attr-defined]


def _shape(value: object) -> tuple[int | None, ...]:
    if isinstance(value, PendingType):
        return value.tile.shape
    return value.shape  # type: ignore[attr-defined,no-any-return]


def _tile(shape: tuple[int, ...], element: object) -> TileType:
    if isinstance(element, str):
        return TileType(tuple(shape), DTYPES[element])
    assert isinstance(element, PointerType)
    return TileType(tuple(shape), element)


def _permute(shape: tuple[int, ...], order: tuple[int, ...]) -> tuple[int, ...]:
    if sorted(order) != list(range(len(shape))):
        return ()
    return tuple(shape[i] for i in order)


def _without(shape: tuple[int, ...], axis: int) -> tuple[int, ...]:
    return shape[:axis] + shape[axis + 1 :]


def _with_dim(shape: tuple[int, ...], axis: int, extent: int) -> tuple[int, ...]:
    return (*shape[:axis], extent, *shape[axis + 1 :])


def _joined(lhs: tuple[int, ...], rhs: tuple[int, ...], axis: int) -> tuple[int, ...]:
    """The shape of `lhs` with `rhs` behind it along `axis`; () if there is no such axis."""
    if not 0 <= axis < min(len(lhs), len(rhs)):
        return ()
    return _with_dim(lhs, axis, lhs[axis] + rhs[axis])


def _divides(inner: tuple[int, ...], outer: tuple[int, ...]) -> bool:
    return len(inner) == len(outer) and all(
        i > 0 and o % i == 0 for i, o in zip(inner, outer, strict=True)
    )


def _broadcasts(small: tuple[int, ...], large: tuple[int, ...]) -> bool:
    """True if `small` reaches `large` by expanding extents of 1; the ranks agree."""
    return len(small) == len(large) and all(a in (1, b) for a, b in zip(small, large, strict=True))


def _is_permutation(order: tuple[int, ...], rank: int) -> bool:
    return sorted(order) == list(range(rank))


def _is_power_of_two(value: int) -> bool:
    return value > 0 and value & (value - 1) == 0


def _is_kind(value: object, kind: str) -> bool:
    return isinstance(value, Type) and getattr(value, "kind", "") == kind


def _pairs(types: tuple[TileType, ...]) -> tuple[TileType, ...]:
    """(element, accumulator) scalars for each operand of a reduction or scan."""
    return tuple(t for tile in types for t in (TileType((), tile.element),) * 2)


def _scalars(types: tuple[TileType, ...]) -> tuple[TileType, ...]:
    return tuple(TileType((), t.element) for t in types)


def _reduced(types: tuple[TileType, ...], axis: int) -> tuple[TileType, ...]:
    return tuple(TileType(_without(t.shape, axis), t.element) for t in types)


def _pointer(element: str) -> PointerType:
    return PointerType(DTYPES[element])


def _pending(tile: TileType) -> PendingType:
    return PendingType(tile)


def _buffer(shape: tuple[int, ...], element: str, layout: str) -> BufferType:
    return BufferType(tuple(shape), DTYPES[element], layout)


def _fragment(shape: tuple[int, ...], element: str, layout: str) -> FragmentType:
    return FragmentType(tuple(shape), DTYPES[element], layout)


def _squeezed(shape: tuple[int, ...]) -> tuple[int, ...]:
    """The shape without extents of 1."""
    return tuple(d for d in shape if d != 1)


VOCABULARY: dict[str, Callable[..., object] | object] = {
    "len": len,
    "all": all,
    "any": any,
    "range": range,
    "min": min,
    "max": max,
    "sum": sum,
    "tuple": tuple,
    "zip": zip,
    "abs": abs,
    "prod": prod,
    "str": str,
    "bits": _bits,
    "is_float": _is_float,
    "is_int": _is_int,
    "is_pointer": _is_pointer,
    "element": _element,
    "shape": _shape,
    "tile": _tile,
    "token": TokenType(),
    "permuted": _permute,
    "without": _without,
    "with_dim": _with_dim,
    "joined": _joined,
    "divides": _divides,
    "broadcasts": _broadcasts,
    "is_permutation": _is_permutation,
    "is_power_of_two": _is_power_of_two,
    "is_kind": _is_kind,
    "pairs": _pairs,
    "scalars": _scalars,
    "reduced": _reduced,
    "pointer": _pointer,
    "pending": _pending,
    "buffer": _buffer,
    "fragment": _fragment,
    "dims": dims,
    "squeezed": _squeezed,
    "layout_fault": layout_fault,
    "place_bytes": place_bytes,
    "sliced_layout": sliced_layout,
    "transposed_layout": transposed_layout,
}
