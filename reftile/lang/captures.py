"""Values from outside a kernel that its tracing looked at: closure cells, globals, attributes.

A traced kernel holds for as long as these still have the values they had. They are part of the
cache key by value: changing a captured constant between launches gives another kernel.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from enum import Enum
from types import CellType, FunctionType, ModuleType
from typing import Any, cast

import numpy as np

from reftile.lang.values import items_of

MISSING = "<missing>"
Probe = Callable[[], object]


@dataclass(slots=True)
class Captures:
    """Where captured values were found, and a frozen copy of each."""

    probes: dict[tuple[int, str], tuple[Probe, object]] = field(
        default_factory=dict[tuple[int, str], tuple[Probe, object]]
    )

    def cell(self, cell: CellType, name: str) -> object:
        """Read a closure cell and remember what it held."""
        return self._read((id(cell), name), lambda: cell.cell_contents)

    def entry(self, mapping: Mapping[str, object], name: str) -> object:
        """Read an entry of a function's globals and remember it."""
        return self._read((id(mapping), name), lambda: mapping[name])

    def attribute(self, owner: object, name: str) -> object:
        """Read an attribute of an object from outside and remember it."""
        return self._read((id(owner), f".{name}"), lambda: getattr(owner, name))

    def _read(self, key: tuple[int, str], probe: Probe) -> object:
        value = probe()
        if key not in self.probes:
            self.probes[key] = (probe, freeze(value))
        return value

    def hold(self) -> bool:
        """True if everything still has the value it had."""
        return all(_probe(probe) == frozen for probe, frozen in self.probes.values())

    def snapshot(self) -> tuple[object, ...]:
        """The frozen values, for a key."""
        return tuple(frozen for _, frozen in self.probes.values())


def _probe(probe: Probe, inside: frozenset[int] = frozenset()) -> object:
    try:
        return freeze(probe(), inside)
    except (AttributeError, KeyError, ValueError):
        return MISSING


def freeze(value: object, inside: frozenset[int] = frozenset()) -> object:
    """Return something that compares equal only for equal values, and does not change.

    Functions compare by their code, defaults and captured values; other objects by identity.
    """
    if id(value) in inside:
        return "<itself>"
    inside |= {id(value)}
    if isinstance(value, np.generic):
        number = cast("Any", value)
        return (str(number.dtype), number.tobytes())
    items = items_of(value)
    if items is not None:
        return (type(value).__name__, *(freeze(item, inside) for item in items))
    match value:
        case bool() | int() | float() | str() | bytes() | None:
            return (type(value), repr(value) if isinstance(value, float) else value)
        case Enum():
            return value
        case dict():
            entries = cast("dict[object, object]", value)
            return ("dict", *((freeze(k), freeze(v, inside)) for k, v in entries.items()))
        case set() | frozenset():
            members = cast("set[object]", value)
            return ("set", frozenset(freeze(item, inside) for item in members))
        case np.ndarray():
            array = cast("np.ndarray[tuple[int, ...], np.dtype[np.generic]]", value)
            return ("array", array.shape, array.dtype.str, array.tobytes())
        case FunctionType():
            cells = [
                _probe(lambda cell=cell: cell.cell_contents, inside)
                for cell in value.__closure__ or ()
            ]
            return (_Same(value.__code__), freeze(value.__defaults__, inside), *cells)
        case ModuleType() | type():
            return _Same(value)
        case _:
            return _Same(value)


class _Same:
    """Equal to another of the same object, which it keeps alive so that its id stays its own."""

    __slots__ = ("thing",)

    def __init__(self, thing: object) -> None:
        self.thing = thing

    def __eq__(self, other: object) -> bool:
        return isinstance(other, _Same) and other.thing is self.thing

    def __hash__(self) -> int:
        return id(self.thing)
