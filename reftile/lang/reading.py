"""Attributes, items and formats of values."""

from __future__ import annotations

import ast
import inspect
from enum import Enum
from types import EllipsisType
from typing import cast

from reftile.lang import arithmetic
from reftile.lang.dtypes import DType
from reftile.lang.foreign import ForeignValue
from reftile.lang.frame import Frame
from reftile.lang.meeting import spread_condition
from reftile.lang.merge import Conflict, join, pack, unpack
from reftile.lang.names.methods import MISSING, find_attribute, find_method, known_attributes
from reftile.lang.names.shape import expand_dims
from reftile.lang.operators import static
from reftile.lang.trace import static_number
from reftile.lang.values import (
    Array,
    BoundMethod,
    FormattedText,
    FormattedTile,
    Tile,
    describe,
    is_record,
    is_static,
    items_of,
)


def read_attribute(frame: Frame, node: ast.AST, owner: object, attribute: str) -> object:
    """`owner.attribute`."""
    value = find_attribute(frame.trace, owner, attribute)
    if value is not MISSING:
        return value
    method = find_method(owner, attribute)
    if method is not None:
        return BoundMethod(method, owner, attribute)
    if isinstance(owner, ForeignValue) and attribute in owner.attributes():
        return owner.attribute(frame.trace, attribute)
    if known := (
        owner.attributes() if isinstance(owner, ForeignValue) else known_attributes(owner)
    ):
        raise frame.error(
            node,
            "attribute",
            f"{describe(owner)} has no attribute `{attribute}`",
            "it has " + ", ".join(known),
        )
    if is_record(owner):
        found = inspect.getattr_static(type(owner), attribute, None)
        if isinstance(found, property) and found.fget is not None:
            return frame.trace.call(found.fget, owner)
    if is_record(owner) or isinstance(owner, (str, tuple, range, slice, DType, Enum)):
        plain = cast("object", owner)
        return static(frame.trace, lambda: getattr(plain, attribute))
    try:
        return frame.trace.captures.attribute(owner, attribute)
    except AttributeError as error:
        raise frame.error(node, "attribute", str(error)) from None


def read_item(frame: Frame, node: ast.AST, owner: object, index: object) -> object:
    """`owner[index]`."""
    t = frame.trace
    if isinstance(owner, ForeignValue):
        return owner.item(t, index)
    if isinstance(owner, Tile):
        return _tile_item(frame, node, owner, index)
    if isinstance(owner, Array):
        raise frame.error(
            node,
            "subscript",
            f"{describe(owner)} cannot be indexed",
            "use ct.load and ct.store for tiles, ct.gather and ct.scatter for elements",
        )
    if (items := items_of(owner)) is not None:
        number = static_number(index)
        if isinstance(number, int):
            if not -len(items) <= number < len(items):
                raise frame.error(
                    node, "subscript", f"item {number} of {len(items)} does not exist"
                )
            return items[number]
        if isinstance(index, slice):
            return static(t, lambda: items[index])
        if isinstance(index, Tile):
            return _choose(frame, node, items, index)
    if isinstance(owner, dict):
        entries = cast("dict[object, object]", owner)
        return static(t, lambda: entries[index])
    if is_static(owner) and is_static(index):
        return static(t, lambda: cast("tuple[object, ...]", owner)[cast("int", index)])
    raise frame.error(
        node, "subscript", f"{describe(owner)} cannot be indexed by {describe(index)}"
    )


def _choose(frame: Frame, node: ast.AST, items: tuple[object, ...], index: Tile) -> object:
    """An item of a tuple by a number known at run time: all items must be of one kind."""
    t = frame.trace
    slot = join(items)
    if isinstance(slot, Conflict) or not items:
        raise frame.error(
            node,
            "subscript",
            f"a tuple indexed at run time must have items of one kind, found {describe(items)}",
            "use an index known when the kernel is compiled: ct.static_iter(range(...))",
        )
    packed = [list(pack(t, slot, item)) for item in items]
    chosen = packed[0]
    for number, values in enumerate(packed[1:], 1):
        this = arithmetic.compare(t, "equal", index, number)
        chosen = [
            new if new is old else t.value("select", spread_condition(t, this, new), new, old)
            for new, old in zip(values, chosen, strict=True)
        ]
    return unpack(slot, iter(chosen))


def _tile_item(frame: Frame, node: ast.AST, tile: Tile, index: object) -> object:
    """`tile[:, None]`: new axes of extent 1."""
    items = cast("tuple[object, ...]", index) if isinstance(index, tuple) else (index,)
    full = slice(None, None, None)
    ellipsis = sum(isinstance(item, EllipsisType) for item in items)
    kept = sum(item == full for item in items if isinstance(item, slice))
    new = sum(item is None for item in items)
    if ellipsis + kept + new != len(items) or ellipsis > 1 or kept > tile.ndim:
        raise frame.error(
            node,
            "subscript",
            "a tile can only be indexed to add axes, as in x[:, None]",
            "use ct.extract for a part of a tile, ct.gather_axis for elements by number",
        )
    if not ellipsis and kept < tile.ndim:
        items = (*items, ...)
    position, result = 0, tile
    for item in items:
        if item is None:
            result = expand_dims.implementation(frame.trace, result, position)
            position += 1
        elif isinstance(item, EllipsisType):
            position += tile.ndim - kept
        else:
            position += 1
    return result


def format_value(
    frame: Frame, node: ast.AST, value: object, spec: str, conversion: int
) -> list[str | FormattedTile]:
    """The pieces of an f-string that `value` gives: text, and tiles with their format."""
    if isinstance(value, FormattedText):
        return list(value.parts)
    if isinstance(value, Tile):
        return [FormattedTile(value, spec)]
    items = items_of(value)
    if items is not None and not is_static(value):
        opening, closing = "[]" if isinstance(value, list) else "()"
        parts: list[str | FormattedTile] = [opening]
        for i, item in enumerate(items):
            parts.extend([", "] if i else [])
            parts.extend(format_value(frame, node, item, spec, conversion))
        return [*parts, ("," if len(items) == 1 and closing == ")" else "") + closing]
    if not is_static(value):
        raise frame.error(node, "print.format", f"{describe(value)} cannot be formatted")
    if conversion == ord("r"):
        value = repr(value)
    return [cast("str", static(frame.trace, lambda: format(value, spec)))]
