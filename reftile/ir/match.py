"""Match types against the patterns of a record, and compute result types from them."""

from __future__ import annotations

from collections.abc import Sequence

from reftile.ir.core import Value
from reftile.ir.define import Definition, Pattern, Port, Term
from reftile.ir.dtypes import DTYPES, DType
from reftile.ir.expressions import evaluate, name_of
from reftile.ir.types import PointerType, TileType, TokenType, Type

Names = dict[str, object]


class Mismatch(Exception):
    """A type does not fit a port. `rule` is `port.what`; `message` says found and needed."""

    def __init__(self, rule: str, message: str, hint: str = "") -> None:
        super().__init__(message)
        self.rule, self.message, self.hint = rule, message, hint


def bind_ports(
    ports: Sequence[Port], arguments: Sequence[object], names: Names, definition: Definition
) -> None:
    """Match the types of `arguments` (one entry per port) and bind what the patterns name.

    Raises:
        Mismatch: a type does not fit.
    """
    for port, argument in zip(ports, arguments, strict=True):
        if argument is None:
            names[port.name] = None
            if port.pattern.variable:
                names.setdefault(port.pattern.variable, None)
        elif isinstance(argument, tuple):
            types = tuple(_type(a) for a in argument)  # type: ignore[misc]
            names[port.name] = types
            _bind_many(port, types, names, definition)
        else:
            names[port.name] = _type(argument)
            bind(port, _type(argument), names, definition)


def _type(argument: object) -> Type:
    return argument.type if isinstance(argument, Value) else argument  # type: ignore[return-value]


def _bind_many(port: Port, types: tuple[Type, ...], names: Names, definition: Definition) -> None:
    pattern = port.pattern
    if pattern.code is not None:
        wanted = evaluate(pattern.code, names)
        if wanted != types:
            raise Mismatch(
                f"{port.name}.type", f"`{port.name}` must be {_show(wanted)}, found {_show(types)}"
            )
        return
    if pattern.variable:
        for type in types:
            _require_kind(port, type)
        if names.setdefault(pattern.variable, types) != types:
            wanted = names[pattern.variable]
            raise Mismatch(
                f"{port.name}.type", f"`{port.name}` must be {_show(wanted)}, found {_show(types)}"
            )
        return
    for type in types:
        bind(port, type, names, definition)


def _show(types: object) -> str:
    if isinstance(types, (tuple, list)):
        return "(" + ", ".join(map(str, types)) + ")"  # type: ignore[arg-type]
    return str(types)


def _require_kind(port: Port, type: Type) -> None:
    kinds = port.pattern.kinds
    if "any" not in kinds and getattr(type, "kind", "") not in kinds:
        wanted = " or ".join(sorted(kinds))
        raise Mismatch(f"{port.name}.kind", f"`{port.name}` must be a {wanted}, found {type}")


def bind(port: Port, type: Type, names: Names, definition: Definition) -> None:
    """Match one type against one port.

    Raises:
        Mismatch: it does not fit.
    """
    pattern = port.pattern
    if pattern.code is not None:
        wanted = evaluate(pattern.code, names)
        if wanted != type:
            raise Mismatch(
                f"{port.name}.type", f"`{port.name}` must be {_show(wanted)}, found {type}"
            )
        return
    _require_kind(port, type)
    if isinstance(type, TileType) and pattern.element is not None and not pattern.variable:
        _bind_shape(port, pattern, type, names)
        _bind_element(port, pattern, type, names, definition)
    elif pattern.variable and names.setdefault(pattern.variable, type) != type:
        wanted = names[pattern.variable]
        raise Mismatch(f"{port.name}.type", f"`{port.name}` must be {wanted}, found {type}")


def _bind_shape(port: Port, pattern: Pattern, type: TileType, names: Names) -> None:
    terms, shape = pattern.shape, type.shape
    star = next((i for i, t in enumerate(terms) if t.star), None)
    fixed = len(terms) - (star is not None)
    if len(shape) < fixed or (star is None and len(shape) != fixed):
        raise Mismatch(f"{port.name}.rank", f"`{port.name}` needs rank {fixed}, found {type}")
    if star is None:
        pairs = zip(terms, shape, strict=True)
    else:
        tail = len(terms) - star - 1
        middle = shape[star : len(shape) - tail]
        _agree(port, terms[star], middle, names, type)
        pairs = [*zip(terms[:star], shape, strict=False)]
        pairs += [*zip(terms[star + 1 :], shape[len(shape) - tail :], strict=True)]
    for term, extent in pairs:
        _agree(port, term, extent, names, type)


def _agree(port: Port, term: Term, found: object, names: Names, type: TileType) -> None:
    if term.text == "_":
        return
    if term.code is not None:
        wanted = evaluate(term.code, names)
    elif term.text.isdigit():
        wanted = int(term.text)
    else:
        wanted = names.setdefault(term.text, found)
    if wanted != found:
        what = "shape" if term.star else (term.text if term.code is None else "extent")
        raise Mismatch(
            f"{port.name}.{what}",
            f"`{port.name}` needs {what} {_extent(wanted)}, found {_extent(found)} in {type}",
        )


def _extent(value: object) -> str:
    if isinstance(value, tuple):
        return "x".join(map(str, value)) or "of a scalar"  # type: ignore[arg-type]
    return str(value)


def _bind_element(
    port: Port, pattern: Pattern, type: TileType, names: Names, definition: Definition
) -> None:
    term, element = pattern.element, type.element
    assert term is not None
    if pattern.pointer:
        if not isinstance(element, PointerType):
            raise Mismatch(f"{port.name}.dtype", f"`{port.name}` must hold pointers, found {type}")
        element = element.pointee
    if term.text == "_":
        return
    found = name_of(element)
    allowed = definition.allowed.get(term.text)
    if allowed is not None:
        kind = "pointer" if isinstance(element, PointerType) else found
        if kind not in allowed:
            choices = " | ".join(definition.where[term.text])
            raise Mismatch(f"{port.name}.dtype", f"`{port.name}` takes {choices}, found {type}")
    if term.code is not None:
        wanted = evaluate(term.code, names)
    elif term.text in DTYPES and term.text not in definition.where:
        wanted = term.text
    else:
        wanted = names.setdefault(term.text, found)
    if wanted != found:
        raise Mismatch(
            f"{port.name}.dtype", f"`{port.name}` needs elements of {wanted}, found {type}"
        )


def attribute_names(definition: Definition, attributes: dict[str, object], names: Names) -> None:
    """Bind every attribute of the record, with its default where it is absent."""
    for spec in definition.attributes:
        value = attributes.get(spec.name, spec.default)
        names[spec.name] = name_of(value) if isinstance(value, DType) else value


def infer_results(definition: Definition, names: Names) -> tuple[Type, ...] | None:
    """Compute the result types from bound names, or None where the record leaves one open."""
    types: list[Type] = []
    for port in definition.results:
        if port.multiplicity == "optional":
            return None
        computed = instantiate(port.pattern, names)
        if computed is None:
            return None
        if port.multiplicity == "many":
            types.extend(computed)  # type: ignore[arg-type]
        else:
            types.append(computed)  # type: ignore[arg-type]
    return tuple(types)


def instantiate(pattern: Pattern, names: Names) -> object | None:
    """The type (or tuple of types) that a pattern writes, or None if it leaves one open."""
    if pattern.code is not None:
        try:
            return evaluate(pattern.code, names)
        except NameError:
            return None
    if pattern.kinds == frozenset({"token"}):
        return TokenType()
    if pattern.variable:
        return names.get(pattern.variable)
    if pattern.element is None:
        return None
    shape: list[int] = []
    for term in pattern.shape:
        value = _term_value(term, names)
        if value is None:
            return None
        shape.extend(value) if term.star else shape.append(value)  # type: ignore[arg-type]
    element = _term_value(pattern.element, names)
    if element is None:
        return None
    if isinstance(element, str):
        element = DTYPES[element]
    if pattern.pointer:
        element = PointerType(element)  # type: ignore[arg-type]
    return TileType(tuple(shape), element)  # type: ignore[arg-type]


def _term_value(term: Term, names: Names) -> object | None:
    if term.code is not None:
        try:
            return evaluate(term.code, names)
        except NameError:
            return None
    if term.text.isdigit():
        return int(term.text)
    if term.text in names:
        return names[term.text]
    return term.text if term.text in DTYPES else None
