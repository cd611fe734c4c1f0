"""Bytecode to IR: `read_bytecode`.

    function = name, type, flags (1 private, 2 kernel, 4 hints), debug index, [hints],
               [attributes of the arguments], size, operations
    global   = name, type, constant, alignment, [visibility, is constant]
    region   = number of blocks (0 or 1), types of the arguments, number of operations, operations

Values are numbered in the order in which they are defined; the numbers of those in a region are
given again behind it.

Source: NVIDIA cuda-tile, the bytecode reader; files written by cuda-tile 1.7.
"""

from __future__ import annotations

import re
from collections.abc import Iterator

from reftile.interop.attribute_codec import HINTS, AttributeReader
from reftile.interop.cursor import Cursor
from reftile.interop.debug_read import DebugInfo
from reftile.interop.sections import (
    FUNCTIONS,
    GLOBALS,
    Container,
    open_container,
    read_constants,
    read_producer,
    read_strings,
)
from reftile.interop.table import Coding, PortSlot, block_order, codings_by_code
from reftile.interop.type_read import TypeTable
from reftile.interop.versions import ENTRY_ARGUMENTS, GLOBAL_FLAGS, version_text
from reftile.ir.attributes import Attribute
from reftile.ir.core import Block, Kernel, Module, Op, Region, Value
from reftile.ir.define import AttributeSpec
from reftile.ir.diagnostics import Span
from reftile.ir.enums import ENUMS
from reftile.ir.ops import Global
from reftile.ir.types import TOKEN, TileType, Type
from reftile.ir.verify import verify

PRIVATE, KERNEL, HAS_HINTS = 1, 2, 4
DEEPEST = 64
"""Regions nested at most, as in text."""
FIRST_PREVIEW_CODE = 0x4000

_NAME = re.compile(r"[A-Za-z_]\w*", re.ASCII)
_ENUM_NAMES = {kind: {n: name for name, n in names.items()} for kind, names in ENUMS.items()}


def read_bytecode(data: bytes, name: str = "<bytecode>") -> Module:
    """Return the verified module that a bytecode file holds.

    name: names the file in diagnoses.

    Raises:
        ReftileError: the bytes are damaged (rules `bytecode.*`), or what they say breaks a rule of
            the language.
    """
    module = _Reader(open_container(data, name)).module()
    verify(module)
    return module


def bytecode_version(data: bytes, name: str = "<bytecode>") -> int:
    """Return the minor version of a file."""
    return open_container(data, name).version


class _Reader:
    def __init__(self, container: Container) -> None:
        self.container = container
        self.version = container.version
        self.strings = read_strings(container)
        self.types = TypeTable(container)
        constants = read_constants(container)
        self.attributes = AttributeReader(self.strings, self.types, constants)
        self.debug = DebugInfo(container, self.strings)
        self.symbols: set[str] = set()

    def module(self) -> Module:
        module = Module()
        cursor = self.container.section(GLOBALS)
        if cursor is not None:
            module.globals.extend(self.global_(cursor) for _ in range(cursor.count("globals", 4)))
            cursor.finish()
        cursor = self.container.section(FUNCTIONS)
        if cursor is not None:
            module.kernels.extend(
                self.function(cursor) for _ in range(cursor.count("functions", 5))
            )
            cursor.finish()
        producer = read_producer(self.container, self.strings)
        if producer.isprintable() and producer:
            module.comments = (f" made by {producer}",)
        return module

    def symbol(self, cursor: Cursor) -> str:
        start = cursor.position
        name = self.attributes.string(cursor)
        if not _NAME.fullmatch(name):
            raise cursor.error("name", f"{name!r} is no name that can be written here", start)
        if name in self.symbols:
            raise cursor.error("name", f"`{name}` is defined twice", start)
        self.symbols.add(name)
        return name

    def global_(self, cursor: Cursor) -> Op:
        attributes: dict[str, Attribute] = {"symbol": self.symbol(cursor)}
        type = self.types.tile_type(cursor)
        attributes["value"] = self.attributes.dense(cursor, type)
        alignment = cursor.number()
        if alignment:
            attributes["alignment"] = alignment
        if self.version >= GLOBAL_FLAGS:
            if cursor.choice(2, "visibility"):
                attributes["visibility"] = "private"
            if cursor.choice(2, "constant flag"):
                attributes["constant"] = True
        return Global((), (), attributes)

    def function(self, cursor: Cursor) -> Kernel:
        name = self.symbol(cursor)
        start = cursor.position
        type = self.types.function(cursor)
        flags = cursor.byte()
        known = PRIVATE | KERNEL | (HAS_HINTS if self.version < ENTRY_ARGUMENTS else 0)
        if flags & ~known:
            raise cursor.error("flags", f"unknown flags {flags} of `{name}`", start)
        if not flags & KERNEL or type.results:
            raise cursor.error("function", f"`{name}` is a function and no kernel", start)
        spans = self.debug.function(cursor)
        attributes: dict[str, Attribute] = {}
        if flags & HAS_HINTS or self.version >= ENTRY_ARGUMENTS:
            if cursor.number() != HINTS:
                raise cursor.error("attribute", f"expected the hints of `{name}`")
            attributes["hints"] = self.attributes.dictionary(cursor)
        if self.version >= ENTRY_ARGUMENTS:
            arguments = self.attributes.tagged(cursor)
            if arguments not in ((), ({},) * len(type.parameters)):
                raise cursor.error("unsupported", f"arguments of `{name}` have attributes")
        if flags & PRIVATE:
            attributes["private"] = True
        span = next(spans)
        size = cursor.count("bytes of operations")
        inner = cursor.part(size, f"the operations of `{name}`")
        body = _Body(self, inner, spans)
        block = body.kernel_block(type.parameters)
        return Kernel(name, Region(block), "tile", (), attributes, span)


class _Body:
    """Reads the operations of one function."""

    def __init__(self, reader: _Reader, cursor: Cursor, spans: Iterator[Span]) -> None:
        self.cursor = cursor
        self.spans = spans
        self.version = reader.version
        self.types = reader.types
        self.attributes = reader.attributes
        self.values: list[Value] = []
        self.depth = 0
        self.codings = codings_by_code()

    def kernel_block(self, parameters: tuple[Type, ...]) -> Block:
        block = Block(parameters, tuple(f"arg{i}" for i in range(len(parameters))))
        self.values.extend(block.arguments)
        while self.cursor.remaining:
            block.append(self.op())
        return block

    def block(self, owner: str) -> Block:
        cursor = self.cursor
        types = tuple(self.types.value_type(cursor) for _ in range(cursor.count("arguments")))
        block = Block(types)
        outer = len(self.values)
        self.values.extend(block_order(owner, block.arguments))
        for _ in range(cursor.count("operations")):
            block.append(self.op())
        del self.values[outer:]
        return block

    def op(self) -> Op:
        cursor = self.cursor
        start = cursor.position
        coding = self.coding(start)
        span = next(self.spans)
        result_types = self.result_types(coding)
        flags = self.flags(coding)
        attributes = self.op_attributes(coding, flags, result_types)
        arguments = self.operands(coding, flags)
        regions = self.regions(coding) if coding.definition.regions else ()
        hidden = sum(s.since > self.version for s in coding.results)
        result_types += (TOKEN,) * hidden
        op = coding.cls(arguments, result_types, attributes, regions, span)
        self.values.extend(op.results[: len(op.results) - hidden])
        return op

    def coding(self, start: int) -> Coding:
        code = self.cursor.number()
        coding = self.codings.get(code)
        if coding is None:
            rule = "preview" if code >= FIRST_PREVIEW_CODE else "opcode"
            raise self.cursor.error(rule, f"no operation has the code 0x{code:02x}", start)
        if coding.since > self.version:
            raise self.cursor.error(
                "version",
                f"`{coding.definition.name}` came with {version_text(coding.since)}, "
                f"the file is {version_text(self.version)}",
                start,
            )
        return coding

    def result_types(self, coding: Coding) -> tuple[Type, ...]:
        cursor = self.cursor
        written = sum(s.since <= self.version for s in coding.results)
        count = cursor.count("results") if coding.counts_results else written
        return tuple(self.types.value_type(cursor) for _ in range(count))

    def flags(self, coding: Coding) -> frozenset[str]:
        slots = [s for s in coding.flags if s.since <= self.version]
        if not slots:
            return frozenset()
        start = self.cursor.position
        word = self.cursor.number()
        if word >> len(slots):
            name = coding.definition.name
            raise self.cursor.error("flags", f"unknown flags {word} of `{name}`", start)
        return frozenset(s.name for bit, s in enumerate(slots) if word >> bit & 1)

    # Attributes

    def op_attributes(
        self, coding: Coding, flags: frozenset[str], result_types: tuple[Type, ...]
    ) -> dict[str, Attribute]:
        if coding.definition.name == "assume":
            return self.attributes.predicate(self.cursor)
        flagged = {s.name for s in coding.flags}
        found: dict[str, Attribute] = {}
        for spec in coding.definition.attributes:
            if spec.kind == "unit" and spec.name in flags:
                found[spec.name] = True
        for slot in coding.attributes:
            spec = slot.spec
            if slot.since > self.version or (spec.name in flagged and spec.name not in flags):
                continue
            value = self.attribute(spec, coding, result_types)
            if value != spec.default and not (spec.kind == "bool[]" and not _any(value)):
                found[spec.name] = value
        return found

    def attribute(
        self, spec: AttributeSpec, coding: Coding, result_types: tuple[Type, ...]
    ) -> Attribute:
        cursor = self.cursor
        names = _ENUM_NAMES.get(spec.kind)
        if names is not None:
            start = cursor.position
            number = cursor.byte()
            if number not in names:
                raise cursor.error("enum", f"{number} is no value of {spec.kind}", start)
            return names[number]
        match spec.kind:
            case "int":
                return cursor.number()
            case "bool":
                return self.attributes.boolean(cursor)
            case "string":
                return self.attributes.string(cursor)
            case "symbol":
                return self.attributes.string(cursor)
            case "int[]":
                return cursor.fixed_list("numbers", 4)
            case "bool[]":
                return tuple(map(bool, cursor.fixed_list("booleans", 1)))
            case "dict":
                return self.attributes.dictionary(cursor)
            case "numbers":
                return tuple(self.attributes.tagged(cursor) for _ in range(cursor.count("numbers")))
            case "dense":
                # A constant has no type of its own in bytecode but that of the result.
                type = result_types[0] if result_types else None
                if not isinstance(type, TileType):
                    raise cursor.error("constant", f"there are no constants of {type}")
                return self.attributes.dense(cursor, type)
            case kind:
                raise cursor.error("attribute", f"`{coding.definition.name}` has a {kind}")

    # Operands and regions

    def value(self) -> Value:
        return self.values[self.cursor.choice(len(self.values), "value")]

    def value_list(self) -> tuple[Value, ...]:
        return tuple(self.value() for _ in range(self.cursor.count("operands")))

    def operands(
        self, coding: Coding, flags: frozenset[str]
    ) -> tuple[Value | tuple[Value, ...] | None, ...]:
        ports = coding.operands
        if coding.is_bare:
            if self.value_list():
                raise self.cursor.error("operands", f"`{coding.definition.name}` gives values")
            return ()
        if coding.counts_operands:
            return self.counted_operands(coding)
        arguments: list[Value | tuple[Value, ...] | None] = []
        for slot in ports:
            arguments.append(self.operand(slot, flags))
        return tuple(arguments)

    def operand(self, slot: PortSlot, flags: frozenset[str]) -> Value | tuple[Value, ...] | None:
        match slot.port.multiplicity:
            case "one":
                return self.value()
            case "many":
                return self.value_list()
            case "optional":
                return self.value() if slot.name in flags else None

    def counted_operands(self, coding: Coding) -> tuple[Value | tuple[Value, ...] | None, ...]:
        start = self.cursor.position
        values = self.value_list()
        single = len(coding.operands) - 1
        if len(values) < single:
            name = coding.definition.name
            message = f"`{name}` needs {single} operands, found {len(values)}"
            raise self.cursor.error("operands", message, start)
        arguments: list[Value | tuple[Value, ...]] = []
        position = 0
        for slot in coding.operands:
            if slot.port.multiplicity == "many":
                end = position + len(values) - single
                arguments.append(values[position:end])
                position = end
            else:
                arguments.append(values[position])
                position += 1
        return tuple(arguments)

    def regions(self, coding: Coding) -> tuple[Region, ...]:
        cursor = self.cursor
        start = cursor.position
        self.depth += 1
        if self.depth > DEEPEST:
            raise cursor.error("too_deep", f"regions are nested deeper than {DEEPEST}", start)
        specs = coding.definition.regions
        count = cursor.number()
        if count > len(specs):
            name = coding.definition.name
            raise cursor.error("region", f"`{name}` has {count} regions", start)
        regions: list[Region] = []
        for i in range(count):
            start = cursor.position
            blocks = cursor.number()
            if blocks == 0 and specs[i].optional and i == count - 1:
                break
            if blocks != 1:
                raise cursor.error("region", f"a region has one block, found {blocks}", start)
            regions.append(Region(self.block(coding.definition.name)))
        self.depth -= 1
        return tuple(regions)


def _any(value: Attribute) -> bool:
    return isinstance(value, tuple) and any(value)


__all__ = ["bytecode_version", "read_bytecode"]
