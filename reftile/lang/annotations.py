"""What a kernel's parameter annotations say: constants, 64-bit indices, static extents."""

from __future__ import annotations

import inspect
import typing
from collections.abc import Callable
from dataclasses import dataclass
from typing import Annotated, Any, TypeVar, get_args, get_origin

from reftile.ir.diagnostics import fail
from reftile.lang.dtypes import DType, int32, int64

T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class ConstantAnnotation:
    """The parameter's value is part of the compiled kernel."""


Constant = Annotated[T, ConstantAnnotation()]
"""`Constant[int]`, or `Constant` alone: every value of the parameter gives a kernel of its own."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ArrayAnnotation:
    """How an array is passed.

    index_dtype: int32 or int64, of its extents and strides.
    static_shape_dims, static_stride_dims: axes whose extent or stride becomes a constant. When any
        stride is listed, no other stride of the array is taken to be 1.
    """

    index_dtype: DType = int32
    static_shape_dims: tuple[int, ...] = ()
    static_stride_dims: tuple[int, ...] = ()

    def __post_init__(self) -> None:
        if self.index_dtype not in (int32, int64):
            raise fail("lang.annotation", f"index_dtype is int32 or int64, not {self.index_dtype}")


@dataclass(frozen=True, slots=True, kw_only=True)
class ScalarAnnotation:
    """How a number is passed."""

    dtype: DType


@dataclass(frozen=True, slots=True)
class PointerAnnotation:
    """The parameter is an array of which the kernel sees the address alone."""

    dtype: DType


@dataclass(frozen=True, slots=True, kw_only=True)
class ListAnnotation:
    """How the arrays of a list are passed."""

    element: Any


IndexedWithInt64 = Annotated[T, ArrayAnnotation(index_dtype=int64)]
"""An array with 64-bit extents and strides."""

ScalarInt64 = Annotated[T, ScalarAnnotation(dtype=int64)]
"""An integer of 64 bits."""


@dataclass(frozen=True, slots=True)
class Parameter:
    """What is known of a kernel's parameter before a launch.

    each: for tuples and lists. number: int, float or bool, if it is annotated as just that.
    """

    name: str
    constant: bool = False
    scalar: ScalarAnnotation | None = None
    array: ArrayAnnotation | None = None
    items: tuple[Parameter, ...] = ()
    each: Parameter | None = None
    number: str = ""
    pointer: PointerAnnotation | None = None

    def item(self, index: int) -> Parameter:
        """What is known of item `index` of a tuple or list."""
        name = f"{self.name}_{index}"
        if index < len(self.items):
            found = self.items[index]
        elif self.each is not None:
            found = self.each
        else:
            return Parameter(name, self.constant, self.scalar, self.array)
        return Parameter(name, found.constant, found.scalar, found.array, found.items, found.each)


def read_parameters(function: Callable[..., object]) -> tuple[Parameter, ...]:
    """Return what the annotations of a function say, without running any of its code.

    Raises:
        ReftileError: a parameter cannot be one of a kernel (`*args`, `**kwargs`).
    """
    try:
        hints = typing.get_type_hints(function, include_extras=True)
    except Exception:  # names that do not resolve say nothing
        hints = {}
    parameters: list[Parameter] = []
    for name, parameter in inspect.signature(function).parameters.items():
        if parameter.kind in (parameter.VAR_POSITIONAL, parameter.VAR_KEYWORD):
            raise fail(
                "lang.parameter",
                f"kernel `{function.__name__}` has the parameter `{_stars(parameter)}{name}`",
                hint="a kernel has a fixed list of parameters; pass a tuple for several values",
            )
        parameters.append(_read(name, hints.get(name, parameter.annotation), False))
    return tuple(parameters)


def _stars(parameter: inspect.Parameter) -> str:
    return "*" if parameter.kind is parameter.VAR_POSITIONAL else "**"


_KINDS = (ArrayAnnotation, ScalarAnnotation, ListAnnotation, PointerAnnotation)


def _read(name: str, hint: object, constant: bool) -> Parameter:
    metadata: tuple[object, ...] = ()
    inner = hint
    if get_origin(hint) is Annotated:
        inner, *rest = get_args(hint)
        metadata = tuple(rest)
    constant = constant or any(isinstance(m, ConstantAnnotation) for m in metadata)
    kinds = [m for m in metadata if isinstance(m, _KINDS)]
    if len(kinds) + constant > 1:
        raise fail(
            "lang.annotation",
            f"the annotations of `{name}` exclude each other",
            hint="a parameter is a constant, an array, a number or a list",
        )
    array = next((m for m in metadata if isinstance(m, ArrayAnnotation)), None)
    scalar = next((m for m in metadata if isinstance(m, ScalarAnnotation)), None)
    listed = next((m for m in metadata if isinstance(m, ListAnnotation)), None)
    if listed is not None:
        element = listed.element
        each = (
            Parameter(name, array=element)
            if isinstance(element, ArrayAnnotation)
            else _read(name, element, constant)
        )
        return Parameter(name, constant, each=each)
    if get_origin(inner) in (tuple, list):
        args = get_args(inner)
        if len(args) == 2 and args[1] is Ellipsis:
            return Parameter(name, constant, each=_read(name, args[0], constant))
        if get_origin(inner) is list and args:
            return Parameter(name, constant, each=_read(name, args[0], constant))
        return Parameter(name, constant, items=tuple(_read(name, a, constant) for a in args))
    pointer = next((m for m in metadata if isinstance(m, PointerAnnotation)), None)
    number = inner.__name__ if inner in (int, float, bool) else ""
    return Parameter(name, constant, scalar, array, pointer=pointer, number=number)
