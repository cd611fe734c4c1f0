"""What a module becomes before it is written: kernels with nothing that Tile IR lacks.

- A tensor view among the arguments becomes its pointer, and an i64 for each extent and stride that
  its type leaves open, in this order; a `make_tensor_view` stands at the beginning of the kernel.
- `div_by` of an argument becomes an `assume`.
- Access modes and `noalias` are promises without a form in Tile IR, and are left out.
"""

from __future__ import annotations

from dataclasses import replace

from reftile.ir.attributes import Attribute
from reftile.ir.core import Block, Kernel, Module, Op, Region, Value
from reftile.ir.diagnostics import Diagnosis, ReftileError
from reftile.ir.dtypes import DTYPES
from reftile.ir.ops import Assume, MakeTensorView
from reftile.ir.parse import parse
from reftile.ir.print import show
from reftile.ir.types import PointerType, TensorViewType, Type, scalar

KNOWN = frozenset({"hints", "private", "target", "progress"})


def prepare(module: Module) -> Module:
    """Return a module that has a form in Tile IR; the module itself if nothing is to be done.

    Raises:
        ReftileError: `export.unsupported`, for a kernel of another level or with attributes that
            Tile IR has no form for.
    """
    for kernel in module.kernels:
        _check(kernel)
    if not any(_needs_work(k) for k in module.kernels):
        return module
    kernels = [_prepared(k) if _needs_work(k) else k for k in module.kernels]
    return Module(kernels, module.globals, module.name)


def _check(kernel: Kernel) -> None:
    message = ""
    unknown = sorted(set(kernel.attributes) - KNOWN)
    if kernel.level != "tile":
        message = f"`{kernel.name}` is a {kernel.level} kernel, and Tile IR has tile kernels"
    elif unknown:
        message = f"the attribute `{unknown[0]}` of `{kernel.name}` has no form in Tile IR"
    elif kernel.attributes.get("progress", "none") != "none":
        message = f"`{kernel.name}` needs progress between blocks, which Tile IR does not promise"
    if message:
        raise ReftileError(Diagnosis("export.unsupported", message, kernel.span))


def _needs_work(kernel: Kernel) -> bool:
    views = any(isinstance(a.type, TensorViewType) for a in kernel.arguments)
    return views or any("div_by" in a for a in kernel.argument_attributes)


def _prepared(kernel: Kernel) -> Kernel:
    """A copy of the kernel with plain arguments; the original stays as it is."""
    copy = _copy(kernel)
    old = copy.body.block
    types: list[Type] = []
    names: list[str] = []
    for argument in old.arguments:
        expanded = _expanded(argument.type)
        types.extend(expanded)
        names.extend(f"{argument.name}_{i}" if i else argument.name for i in range(len(expanded)))
    block = Block(tuple(types), tuple(names))
    mapping: dict[Value, Value] = {}
    position = 0
    for argument, attributes in zip(old.arguments, copy.argument_attributes, strict=True):
        count = len(_expanded(argument.type))
        parts = block.arguments[position : position + count]
        position += count
        mapping[argument] = _bound(block, argument, parts, attributes, kernel)
    for op in old.ops:
        block.append(op)
    for op in block.walk():
        op.replace_operands(mapping)
    return replace(copy, body=Region(block), argument_attributes=())


def _expanded(type: Type) -> list[Type]:
    if not isinstance(type, TensorViewType):
        return [type]
    open_places = (type.shape + type.strides).count(None)
    element = type.element
    if isinstance(element, PointerType):
        message = f"an argument {type} of pointers has no form in Tile IR"
        raise ReftileError(Diagnosis("export.unsupported", message))
    return [scalar(PointerType(element)), *[scalar(DTYPES["i64"])] * open_places]


def _bound(
    block: Block,
    argument: Value,
    parts: list[Value],
    attributes: dict[str, Attribute],
    kernel: Kernel,
) -> Value:
    """Make of `parts` what `argument` was, with its promises."""
    first = parts[0]
    if "div_by" in attributes:
        promise = {"div_by": attributes["div_by"]}
        first = block.append(Assume((first,), (first.type,), promise, (), kernel.span)).results[0]
    type = argument.type
    if not isinstance(type, TensorViewType):
        return first
    extents = type.shape.count(None)
    operands = (first, tuple(parts[1 : 1 + extents]), tuple(parts[1 + extents :]))
    view: Op = MakeTensorView(operands, (type,), {}, (), kernel.span)
    return block.append(view).results[0]


def _copy(kernel: Kernel) -> Kernel:
    """A copy that shares nothing; the text form is exact, and spans are put back."""
    copy = parse(show(kernel)).kernels[0]
    for old, new in zip(kernel.walk(), copy.walk(), strict=True):
        new.span = old.span
    copy.span = kernel.span
    return copy
