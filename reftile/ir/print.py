"""Write kernels as text. `parse(show(x))` is the same as `x`; the text is canonical."""

from __future__ import annotations

from reftile.ir.attributes import Attribute, Dense, attribute_text, quote
from reftile.ir.core import Block, Kernel, Module, Op, Value
from reftile.ir.define import AttributeSpec
from reftile.ir.types import TileType

INDENT = "  "


def show(thing: Module | Kernel | Op) -> str:
    """Return the text of a module, a kernel or a single operation (names as they stand)."""
    printer = _Printer()
    if isinstance(thing, Module):
        return printer.module(thing)
    if isinstance(thing, Kernel):
        return printer.kernel(thing)
    printer.op(thing, 0)
    return "\n".join(printer.lines) + "\n"


class _Printer:
    def __init__(self) -> None:
        self.lines: list[str] = []
        self.names: dict[Value, str] = {}
        self.taken: set[str] = set()
        self.order: list[str] = []  # of what was taken
        self.counter = 0

    def module(self, module: Module) -> str:
        parts: list[str] = []
        if module.name:
            parts.append(f"module @{module.name}\n")
        if module.globals:
            for op in module.globals:
                self.op(op, 0)
            parts.append("\n".join(self.lines) + "\n")
        parts.extend(_Printer().kernel(kernel) for kernel in module.kernels)
        tail = "".join(f"//{c}\n" for c in module.comments)
        return "\n".join(parts) + ("\n" + tail if tail and parts else tail)

    def kernel(self, kernel: Kernel) -> str:
        self.lines.extend(f"//{c}" for c in kernel.comments)
        arguments: list[str] = []
        for value, attributes in zip(kernel.arguments, kernel.argument_attributes, strict=True):
            extra = f" {self.dictionary(attributes)}" if attributes else ""
            arguments.append(f"{self.define(value)}: {value.type}{extra}")
        extra = f" attributes {self.dictionary(kernel.attributes)}" if kernel.attributes else ""
        head = f"{kernel.level} kernel @{kernel.name}({', '.join(arguments)}){extra} {{"
        self.lines.append(head)
        self.block(kernel.body.block, 1)
        self.lines.append("}")
        return "\n".join(self.lines) + "\n"

    def dictionary(self, attributes: dict[str, Attribute]) -> str:
        items = (k if v is True else f"{k} = {attribute_text(v)}" for k, v in attributes.items())
        return "{" + ", ".join(items) + "}"

    def block(self, block: Block, depth: int) -> None:
        for op in block.ops:
            self.op(op, depth)

    def define(self, value: Value) -> str:
        name = value.name
        if not name or name in self.taken:
            stem = f"{name}_" if name else ""
            while not name or name in self.taken:
                name = f"{stem}{self.counter}"
                self.counter += 1
        self.taken.add(name)
        self.order.append(name)
        self.names[value] = name
        return f"%{name}"

    def use(self, value: Value) -> str:
        return f"%{self.names.get(value, value.name or '?')}"

    def op(self, op: Op, depth: int) -> None:
        pad = INDENT * depth
        self.lines.extend(f"{pad}//{c}" for c in op.comments)
        parts = [op.name]
        operands = self.operands(op)
        if operands:
            parts.append(operands)
        attributes = self.attributes(op)
        if attributes:
            parts.append(attributes)
        results = ", ".join(self.define(r) for r in op.results)
        head = " ".join(parts)
        if results:
            head = f"{results} = {head} : {', '.join(str(r.type) for r in op.results)}"
        line = pad + head
        for spec, region in zip(op.definition.regions, op.regions, strict=False):
            before = len(self.order)
            arguments = region.block.arguments
            listed = ", ".join(f"{self.define(a)}: {a.type}" for a in arguments)
            line += f" {spec.name}{f'({listed})' if arguments else ''} {{"
            self.lines.append(line)
            self.block(region.block, depth + 1)
            line = pad + "}"
            self.taken.difference_update(self.order[before:])
            del self.order[before:]
        self.lines.append(line)

    def operands(self, op: Op) -> str:
        ports = op.definition.operands
        items: list[str] = []
        for port, argument in zip(ports, op.arguments, strict=False):
            if isinstance(argument, tuple):
                listed = ", ".join(self.use(v) for v in argument)
                items.append(listed if len(ports) == 1 else f"[{listed}]")
            elif argument is not None:
                name = f"{port.name}=" if port.multiplicity == "optional" else ""
                items.append(name + self.use(argument))
        return ", ".join(i for i in items if i)

    def attributes(self, op: Op) -> str:
        items: list[str] = []
        for spec in op.definition.attributes:
            if spec.name not in op.attributes:
                continue
            value = op.attributes[spec.name]
            if spec.kind == "unit":
                if value:
                    items.append(spec.name)
            else:
                items.append(f"{spec.name} = {self.attribute(op, spec, value)}")
        return "{" + ", ".join(items) + "}" if items else ""

    def attribute(self, op: Op, spec: AttributeSpec, value: Attribute) -> str:
        if isinstance(value, Dense):
            if op.results:
                return str(value)
            return f"dense({TileType(value.shape, value.dtype)}, {value})"
        if spec.kind == "symbol":
            return f"@{value}"
        if spec.kind == "layout":
            return quote(str(value))
        return attribute_text(value, spec.kind)
