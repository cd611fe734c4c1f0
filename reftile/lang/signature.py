"""What a kernel is specialised for: dtypes, ranks, unit strides, divisibility, constants."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any, TypeAlias, cast

import numpy as np

from reftile.ir.attributes import Attribute
from reftile.ir.core import Value
from reftile.ir.diagnostics import fail
from reftile.ir.types import PointerType, Type, scalar
from reftile.lang.annotations import ArrayAnnotation, Parameter
from reftile.lang.captures import freeze
from reftile.lang.dtypes import DType, as_dtype, bool_, float32, int32, int64, uint64
from reftile.lang.host import HostArray, host_array, looks_like_array, overlap_groups
from reftile.lang.trace import Trace
from reftile.lang.values import Array, Index, Tile, describe

INT32_MAX = (1 << 31) - 1
DIVISIBLE = 16
"""Extents, and strides in bytes, that are multiples of this are promised to be."""


@dataclass(frozen=True, slots=True)
class ArraySpec:
    """An array argument. None is an extent or stride that is passed at run time.

    group: the number of the arguments that share its memory; None if it shares it with none.
    divisible: for pointer (bytes), extents and strides: a power of two that each is a multiple of.
    has_elements: whether all extents are positive.
    """

    name: str
    dtype: DType
    index_dtype: DType
    shape: tuple[int | None, ...]
    strides: tuple[int | None, ...]
    pointer_divisible: int
    shape_divisible: tuple[int, ...]
    stride_divisible: tuple[int, ...]
    group: int | None
    has_elements: bool

    def arguments(self) -> Iterator[tuple[str, Type]]:
        """The IR's arguments: pointer, extents, strides."""
        yield self.name, scalar(PointerType(self.dtype.element))
        for what, sizes in (("shape", self.shape), ("stride", self.strides)):
            for axis, size in enumerate(sizes):
                if size is None:
                    yield f"{self.name}_{what}{axis}", scalar(self.index_dtype.element)


@dataclass(frozen=True, slots=True)
class ScalarSpec:
    """A number."""

    name: str
    dtype: DType


@dataclass(frozen=True, slots=True)
class PointerSpec:
    """An array of which the kernel sees the address alone."""

    name: str
    dtype: DType


@dataclass(frozen=True, slots=True, eq=False)
class ConstantSpec:
    """A value that is part of the kernel."""

    name: str
    value: object


@dataclass(frozen=True, slots=True)
class GroupSpec:
    """A tuple, or a list, of arguments."""

    name: str
    items: tuple[Spec, ...]
    kind: type = tuple


Spec: TypeAlias = ArraySpec | ScalarSpec | PointerSpec | ConstantSpec | GroupSpec


@dataclass(frozen=True, slots=True, eq=False)
class Signature:
    """The specialisation of a kernel. Two with equal keys give the same kernel."""

    parameters: tuple[Spec, ...]

    @property
    def key(self) -> object:
        """What the cache looks up."""
        return tuple(map(_key, self.parameters))

    def leaves(self) -> Iterator[ArraySpec | ScalarSpec | PointerSpec]:
        """Arrays and numbers, in the order of the IR's arguments."""
        for spec in self.parameters:
            yield from _leaves(spec)

    def ir_arguments(self) -> list[tuple[str, Type]]:
        """Name and type of each argument of the IR."""
        found: list[tuple[str, Type]] = []
        for leaf in self.leaves():
            if isinstance(leaf, ArraySpec):
                found.extend(leaf.arguments())
            elif isinstance(leaf, PointerSpec):
                found.append((leaf.name, scalar(PointerType(leaf.dtype.element))))
            else:
                found.append((leaf.name, scalar(leaf.dtype.element)))
        return found

    def argument_attributes(self) -> tuple[dict[str, Attribute], ...]:
        """`noalias` or `alias = group` for pointers, `positive` for extents and strides."""
        found: list[dict[str, Attribute]] = []
        for leaf in self.leaves():
            if not isinstance(leaf, ArraySpec):
                found.append({})
                continue
            alone = leaf.group is None
            found.append({"noalias": True} if alone else {"alias": cast("int", leaf.group)})
            size: dict[str, Attribute] = {"positive": True} if leaf.has_elements else {}
            found.extend(dict(size) for _ in list(leaf.arguments())[1:])
        return tuple(found)


def _key(spec: Spec) -> object:
    if isinstance(spec, ConstantSpec):
        return (spec.name, freeze(spec.value))
    if isinstance(spec, GroupSpec):
        return (spec.name, spec.kind, *map(_key, spec.items))
    return spec


def _leaves(spec: Spec) -> Iterator[ArraySpec | ScalarSpec | PointerSpec]:
    if isinstance(spec, GroupSpec):
        for item in spec.items:
            yield from _leaves(item)
    elif not isinstance(spec, ConstantSpec):
        yield spec


# From the caller's arguments


def specialise(
    parameters: Sequence[Parameter], arguments: Sequence[object]
) -> tuple[Signature, list[Any]]:
    """The signature for a launch, and the values of the IR's arguments.

    An array's pointer is given as the NumPy array.

    Raises:
        ReftileError: an argument cannot be passed to a kernel.
    """
    hosts: list[HostArray] = []
    _collect(parameters, arguments, hosts)
    groups = iter(overlap_groups(hosts))
    arrays = iter(hosts)
    values: list[Any] = []
    specs = tuple(
        _specialise(p, a, arrays, groups, values)
        for p, a in zip(parameters, arguments, strict=True)
    )
    return Signature(specs), values


def _collect(
    parameters: Sequence[Parameter], arguments: Sequence[object], into: list[HostArray]
) -> None:
    for parameter, argument in zip(parameters, arguments, strict=True):
        if parameter.constant:
            continue
        if isinstance(argument, (tuple, list)):
            items = cast("Sequence[object]", argument)
            _collect([parameter.item(i) for i in range(len(items))], items, into)
        elif looks_like_array(argument):
            into.append(host_array(argument, parameter.name))


def _specialise(
    parameter: Parameter,
    argument: object,
    arrays: Iterator[HostArray],
    groups: Iterator[int | None],
    values: list[Any],
) -> Spec:
    if parameter.constant:
        return ConstantSpec(parameter.name, _constant(parameter, argument))
    if isinstance(argument, (tuple, list)):
        items = cast("Sequence[object]", argument)
        if parameter.items and len(items) != len(parameter.items):
            raise fail(
                "lang.argument.tuple",
                f"`{parameter.name}` is annotated as {len(parameter.items)} items, "
                f"found {len(items)}",
            )
        specs = tuple(
            _specialise(parameter.item(i), item, arrays, groups, values)
            for i, item in enumerate(items)
        )
        return GroupSpec(parameter.name, specs, type(cast("object", argument)))
    if looks_like_array(argument):
        array, group = next(arrays), next(groups)
        if parameter.pointer is not None:
            return _pointer(parameter, parameter.pointer.dtype, array, values)
        return _array(parameter, array, group, values)
    if argument is None:
        if parameter.scalar is not None or parameter.number:
            kind = parameter.scalar.dtype.name if parameter.scalar is not None else parameter.number
            raise fail(
                "lang.argument",
                f"`{parameter.name}` is annotated as {kind}, found None",
                hint="pass a number, or annotate it as one that may be None",
            )
        return ConstantSpec(parameter.name, None)
    return _scalar(parameter, argument, values)


def _constant(parameter: Parameter, argument: object) -> object:
    if looks_like_array(argument):
        raise fail(
            "lang.argument.constant",
            f"`{parameter.name}` is a constant, and an array cannot be one",
            hint="drop `Constant` from its annotation",
        )
    return argument


def _scalar(parameter: Parameter, argument: object, values: list[Any]) -> ScalarSpec:
    dtype: DType | None
    if parameter.scalar is not None:
        dtype = parameter.scalar.dtype
    elif isinstance(argument, np.generic):
        dtype = as_dtype(type(cast("object", argument)))
    elif isinstance(argument, bool):
        dtype = bool_
    elif isinstance(argument, int):
        fits = -(1 << 31) <= argument < 1 << 31
        dtype = int32 if fits else int64 if argument < 1 << 63 else uint64
    elif isinstance(argument, float):
        dtype = float32
    elif hasattr(type(argument), "__index__"):
        return _scalar(parameter, int(cast("int", argument)), values)
    else:
        raise fail(
            "lang.argument",
            f"`{parameter.name}` cannot be {describe(argument)} ({type(argument).__name__})",
            hint="pass arrays and numbers; anything else needs the annotation `ct.Constant`",
        )
    if dtype is None:
        raise fail("lang.argument", f"`{parameter.name}`: no dtype fits {argument!r}")
    values.append(argument)
    return ScalarSpec(parameter.name, dtype)


def _pointer(
    parameter: Parameter, dtype: DType, array: HostArray, values: list[Any]
) -> PointerSpec:
    if array.dtype is not dtype:
        raise fail(
            "lang.argument.dtype",
            f"`{parameter.name}` is annotated as a pointer to {dtype}, found {array.dtype}",
        )
    values.append(array.data)
    return PointerSpec(parameter.name, dtype)


def _array(
    parameter: Parameter, array: HostArray, group: int | None, values: list[Any]
) -> ArraySpec:
    note = parameter.array or ArrayAnnotation()
    rank = len(array.shape)
    static_shape = {a % rank for a in note.static_shape_dims} if rank else set[int]()
    if note.static_stride_dims:
        static_strides = {a % rank for a in note.static_stride_dims}
    else:
        static_strides = {i for i, s in enumerate(array.strides) if s == 1}
    reach = sum((e - 1) * s for e, s in zip(array.shape, array.strides, strict=True)) if rank else 0
    wide = max((reach, *array.shape, *array.strides), default=0) > INT32_MAX
    unit = max(1, DIVISIBLE * 8 // array.dtype.element.storage_bits)
    values.append(array.data)
    shape = tuple(e if i in static_shape else None for i, e in enumerate(array.shape))
    strides = tuple(s if i in static_strides else None for i, s in enumerate(array.strides))
    values.extend(e for e, known in zip(array.shape, shape, strict=True) if known is None)
    values.extend(s for s, known in zip(array.strides, strides, strict=True) if known is None)
    return ArraySpec(
        parameter.name,
        array.dtype,
        int64 if wide else note.index_dtype,
        shape,
        strides,
        array.alignment,
        tuple(DIVISIBLE if e and e % DIVISIBLE == 0 else 1 for e in array.shape),
        tuple(unit if s % unit == 0 else 1 for s in array.strides),
        group,
        0 not in array.shape,
    )


# Into the kernel


def bind_arguments(t: Trace, signature: Signature) -> dict[str, object]:
    """The kernel's parameters as values of the language, with what is promised about them."""
    arguments = iter(t.kernel.arguments)
    return {spec.name: _bind(t, spec, arguments) for spec in signature.parameters}


def _bind(t: Trace, spec: Spec, arguments: Iterator[Value]) -> object:
    match spec:
        case ConstantSpec():
            return spec.value
        case ScalarSpec():
            return Tile(next(arguments), spec.dtype)
        case GroupSpec():
            items = [_bind(t, item, arguments) for item in spec.items]
            if hasattr(spec.kind, "_fields"):
                return spec.kind(*items)
            return items if issubclass(spec.kind, list) else tuple(items)
        case ArraySpec():
            return _bind_array(t, spec, arguments)
        case PointerSpec():
            raise fail(
                "lang.annotation",
                f"`{spec.name}` is annotated as a pointer",
                hint="kernels of tiles take arrays; pointers are for @reftile.pipe.kernel",
            )


def _bind_array(t: Trace, spec: ArraySpec, arguments: Iterator[Value]) -> Array:
    pointer = _promise(t, next(arguments), spec.pointer_divisible)

    def sizes(known: tuple[int | None, ...], divisible: tuple[int, ...]) -> tuple[Index, ...]:
        return tuple(
            size
            if size is not None
            else Tile(_promise(t, next(arguments), divisor), spec.index_dtype)
            for size, divisor in zip(known, divisible, strict=True)
        )

    shape = sizes(spec.shape, spec.shape_divisible)
    strides = sizes(spec.strides, spec.stride_divisible)
    return Array(spec.name, spec.dtype, pointer, shape, strides, spec.index_dtype)


def _promise(t: Trace, value: Value, divisor: int) -> Value:
    return t.value("assume", value, div_by=divisor) if divisor > 1 else value
