"""The host's part of a kernel: launch shape, and parameters as expressions over its arguments.

A launcher evaluates it (reftile.rt); nothing here touches a device. The expressions are texts of
the records' expression language (spec/records.md) over the names of the pipe kernel's arguments,
with `//` for unsigned division, so that a plan can be stored beside the machine code it belongs to.
"""

from __future__ import annotations

import keyword
import re
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from typing import Any, cast

from reftile.ir import ops
from reftile.ir.attributes import Attribute
from reftile.ir.core import Block, Kernel, Op, Value
from reftile.ir.diagnostics import fail
from reftile.ir.dtypes import DTYPES
from reftile.ir.expressions import compile_expression, compile_message, evaluate
from reftile.ir.types import PointerType, TensorMapType, TensorViewType, TileType
from reftile.lower.constants import constant_int

TENSOR_DTYPES = {
    "i8": "uint8", "f8e4m3": "uint8", "f8e5m2": "uint8", "i16": "uint16", "i32": "int32", "i64":
    "int64", "f16": "float16", "bf16": "bfloat16", "f32": "float32", "f64": "float64", "tf32":
    "float32", }  # fmt: skip
"""Names of CUtensorMapDataType (cuda.h) in lower case for our element types."""


@dataclass(frozen=True, slots=True)
class ScalarParameter:
    """A number: the argument called `name`, of the element type `dtype`."""

    name: str
    dtype: str


@dataclass(frozen=True, slots=True)
class PointerParameter:
    """The address of the argument called `name`: 8 bytes."""

    name: str


@dataclass(frozen=True, slots=True)
class TensorMapParameter:
    """A description of boxes: 128 bytes that cuTensorMapEncodeTiled makes; innermost axis first.

    base: the argument whose address is the tensor's. dtype: the name of a CUtensorMapDataType.
    extents: elements, one expression for each axis; strides: bytes, for all axes but the first.
    box: elements of a box. swizzle: bytes of the pattern, 0 for none. fill: what lies outside.
    """

    name: str
    base: str
    dtype: str
    extents: tuple[str, ...]
    strides: tuple[str, ...]
    box: tuple[int, ...]
    swizzle: int
    fill: str

    def evaluate(self, arguments: Mapping[str, int]) -> tuple[tuple[int, ...], tuple[int, ...]]:
        """Return (extents, strides in bytes) for these arguments."""
        extents = tuple(evaluate_expression(e, arguments) for e in self.extents)
        return extents, tuple(evaluate_expression(s, arguments) for s in self.strides)


Parameter = ScalarParameter | PointerParameter | TensorMapParameter


@dataclass(frozen=True, slots=True)
class ArrayArgument:
    """An argument that is an array: its element type, and whether the kernel may write to it."""

    name: str
    dtype: str
    written: bool = True


@dataclass(frozen=True, slots=True)
class HostPlan:
    """All that a launch needs besides the grid, which the caller chooses.

    entry: the name of the kernel in the machine code. cluster: the grid is a multiple of it.
    arguments: the names of the pipe kernel's arguments, in order, which the expressions use.
    requirements: (condition, why) pairs that must hold before a launch.
    arrays: the arguments that are arrays; one that is not described may be of any type.
    """

    entry: str
    threads: int
    cluster: tuple[int, int, int]
    shared_bytes: int
    parameters: tuple[Parameter, ...]
    arguments: tuple[str, ...]
    requirements: tuple[tuple[str, str], ...] = ()
    arrays: tuple[ArrayArgument, ...] = ()

    def to_json(self) -> dict[str, Any]:
        """Plain data, which `plan_from_json` reads."""
        found = asdict(self)
        for parameter, data in zip(self.parameters, found["parameters"], strict=True):
            data["kind"] = type(parameter).__name__
        return found

    def broken_requirement(self, arguments: Mapping[str, int]) -> str | None:
        """Why a launch with these arguments (pointers as addresses) is not possible, or None."""
        for condition, why in self.requirements:
            if not evaluate_expression(condition, arguments):
                return str(evaluate(compile_message(why), arguments))
        return None


_KINDS = {c.__name__: c for c in (ScalarParameter, PointerParameter, TensorMapParameter)}


def plan_from_json(data: Mapping[str, Any]) -> HostPlan:
    """Read a plan that `to_json` wrote.

    Raises:
        KeyError, TypeError, ValueError: it is not one.
    """
    parameters: list[Parameter] = []
    for given in data["parameters"]:
        fields = {k: _frozen(v) for k, v in given.items() if k != "kind"}
        parameters.append(_KINDS[given["kind"]](**fields))
    kept = {k: _frozen(v) for k, v in data.items() if k not in ("parameters", "arrays")}
    arrays = tuple(ArrayArgument(**given) for given in data["arrays"])
    return HostPlan(**kept, parameters=tuple(parameters), arrays=arrays)


def _frozen(value: Any) -> Any:
    """Lists as tuples, as JSON has only the former."""
    if isinstance(value, list):
        return tuple(map(_frozen, cast("list[Any]", value)))
    return value


def evaluate_expression(text: str, arguments: Mapping[str, int]) -> int:
    """Evaluate one expression of a plan."""
    return cast("int", evaluate(compile_expression(text), arguments))


# From the kernel


def name_arguments(kernel: Kernel) -> None:
    """Give arguments names that host expressions can use: `%in` and `%0` become `in_` and `a0`."""
    taken = {value.name for value in kernel.arguments}
    for value in kernel.arguments:
        if _is_usable(value.name):
            continue
        name = re.sub(r"\W", "_", value.name).lstrip("_")
        name = f"{name}_" if _is_usable(f"{name}_") else f"a{name}"
        while name in taken:
            name += "_"
        taken.add(name)
        value.name = name


def _is_usable(name: str) -> bool:
    """True if an expression takes `name` for a variable, and means nothing else by it."""
    words = name.isidentifier() and not keyword.iskeyword(name) and not name.startswith("_")
    return words and name not in ("min", "max")


def array_arguments(kernel: Kernel) -> tuple[ArrayArgument, ...]:
    """The arguments of a `pipe` kernel that are pointers, and whether it may write through them.

    It may where a pointer is used by anything but a view that cannot be written to.
    """
    pointers = {v: v.type.element for v in kernel.arguments if isinstance(v.type, TileType)}
    arrays = {v: False for v, element in pointers.items() if isinstance(element, PointerType)}
    read_only = {
        v
        for v, given in zip(kernel.arguments, kernel.argument_attributes, strict=True)
        if given.get("access") == "read_only"
    }
    for op in kernel.walk():
        for value in op.operands:
            if value in arrays and value not in read_only:
                arrays[value] |= not _is_read_only_view(op)
    return tuple(
        ArrayArgument(v.name, cast("PointerType", pointers[v]).pointee.name, written)
        for v, written in arrays.items()
    )


def _is_read_only_view(op: Op) -> bool:
    kind = op.results[0].type if isinstance(op, ops.MakeTensorView) else None
    return isinstance(kind, TensorViewType) and kind.access == "read_only"


def host_plan(
    kernel: Kernel, arguments: tuple[str, ...], arrays: tuple[ArrayArgument, ...] = ()
) -> HostPlan:
    """Read the plan off a `simt` kernel; `arguments`, `arrays` are those of the pipe kernel."""
    parameters: list[Parameter] = []
    pairs = zip(kernel.arguments, kernel.argument_attributes, strict=True)
    for value, attributes in pairs:
        if isinstance(value.type, TensorMapType):
            parameters.append(_tensor_map(value.name, attributes))
        elif isinstance(value.type, TileType) and isinstance(value.type.element, PointerType):
            parameters.append(PointerParameter(value.name))
        elif isinstance(value.type, TileType):
            parameters.append(ScalarParameter(value.name, value.type.dtype.name))
    warps = cast("int", kernel.attributes["warps"])
    x, y, z = (*cast("tuple[int, ...]", kernel.attributes.get("cluster", (1,))), 1, 1)[:3]
    shared = cast("int", kernel.attributes["shared_bytes"])
    texts = cast("tuple[str, ...]", kernel.attributes.get("requirements", ()))
    pairs_of_texts = (text.partition(": ") for text in texts)
    requirements = tuple((condition, why) for condition, _, why in pairs_of_texts)
    return HostPlan(
        kernel.name,
        32 * warps,
        (x, y, z),
        shared,
        tuple(parameters),
        arguments,
        requirements,
        arrays,
    )


def _tensor_map(name: str, attributes: Mapping[str, Attribute]) -> TensorMapParameter:
    return TensorMapParameter(
        name,
        cast("str", attributes["base"]),
        cast("str", attributes["dtype"]),
        cast("tuple[str, ...]", attributes["extents"]),
        cast("tuple[str, ...]", attributes["strides"]),
        cast("tuple[int, ...]", attributes["box"]),
        cast("int", attributes["swizzle"]),
        cast("str", attributes["fill"]),
    )


def tensor_dtype(dtype: str) -> str:
    """The host's name of an element type."""
    assert dtype in DTYPES
    return TENSOR_DTYPES[dtype]


_BINARY = {"addi": "+", "subi": "-", "muli": "*", "divi": "//", "remi": "%"}


def host_expression(value: Value) -> str:
    """Write a scalar of the prologue as an expression over the kernel's arguments.

    Raises:
        ReftileError: it is computed by something the host does not do.
    """
    if isinstance(value.owner, Block):
        return value.name
    number = constant_int(value)
    if number is not None:
        return str(number)
    op = value.owner
    assert isinstance(op, Op)
    if isinstance(op, (ops.Mini, ops.Maxi)):
        arguments = ", ".join(host_expression(v) for v in op.operands)
        return f"{op.name[:3]}({arguments})"
    if op.name in _BINARY:
        lhs, rhs = (host_expression(v) for v in op.operands)
        if isinstance(op, ops.Divi) and op.rounding == "positive_inf":
            return f"((({lhs}) + ({rhs}) - 1) // ({rhs}))"
        return f"({lhs} {_BINARY[op.name]} {rhs})"
    raise fail(
        "lower.host_expression",
        f"the host cannot compute %{value.name} by `{op.name}`",
        op.span,
        "extents and strides of bulk copies are sums, products and quotients of arguments",
    )
